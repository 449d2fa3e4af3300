"""Look-around, \\b and anchors inside patterns against JavaScript's own regular expressions (node).

usage: test_grammar_looks.py ESPALIER [--seed N] [--rounds N]

Random patterns with look-around are tried on all short texts over a small alphabet. A pattern that compiles must take
exactly the texts in which node finds a match; some of the patterns of every kind must compile.
"""
import itertools
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from grammar_driver import Driver, Tap, dumps, find_model, first_seed, option  # noqa: E402

FIXED = ["^(?!foo)[a-z]+$", "^(?=.*\\d)(?=.*[a-b]).{2,}$", "(?<!a)$", "^(?!.*-$)[a-b-]+", "\\ba\\b", "^\\B-", "a(?!b)",
         "(^a|b$)", "x|^a$|(b|$)-", "(?<=a)b", "^a(?=b$)", "(?<![ab])1$", "^(?:(?!ab).)b?$", "\\b1", "a\\b-", "a$|^b",
         "(?=a)(?!ab)a", "^(?=a|b)(?=.b).*$", "(?:a|^)b", "^(?!-)[a-b1-]{1,3}(?<!-)$", "(a$|b)-", "^(?!$)"]
NODE = """
const lines = require("fs").readFileSync(0, "utf8").trim().split("\\n").map(JSON.parse);
const texts = lines.shift();
for (const p of lines) {
  let out;
  try { const r = new RegExp(p, "u"); out = texts.map(t => r.test(t)); } catch (e) { out = null; }
  console.log(JSON.stringify(out));
}
"""


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def atom(self, depth):
        r = self.rng
        kind = r.random()
        if kind < 0.5:
            return r.choice(["a", "b", "-", "1", ".", "[ab]", "[^a]", "\\w", "\\d", "\\W"]) + r.choice(
                ["", "", "", "?", "*", "+", "{2}"])
        if kind < 0.6:
            return r.choice(["\\b", "\\B", "^", "$"])
        if depth > 2:
            return "a"
        if kind < 0.85:
            return r.choice(["(?=", "(?!", "(?!", "(?<=", "(?<!"]) + self.pattern(depth + 1) + ")"
        return "(?:" + self.pattern(depth + 1) + ")" + r.choice(["", "", "?", "*"])

    def pattern(self, depth=0):
        r = self.rng
        branches = r.choice([1, 1, 1, 2])
        out = "|".join("".join(self.atom(depth) for _ in range(r.randrange(1, 4))) for _ in range(branches))
        return out if depth else r.choice(["", "^"]) + out + r.choice(["", "$"])


def main():
    tap = Tap()
    if find_model() is None:
        return tap.skip_all("needs the default model")
    seed, rounds = first_seed(), option("--rounds", 600)
    tap.note("seed %d" % seed)
    make = Maker(random.Random(seed))
    texts = ["".join(t) for n in range(5) for t in itertools.product("ab-1", repeat=n)] + ["foo", "foob", "afoo"]
    patterns = FIXED + [make.pattern() for _ in range(rounds)]
    lines = "\n".join(json.dumps(line) for line in [texts] + patterns)
    try:
        done = subprocess.run(["node", "-e", NODE], input=lines, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return tap.skip_all("needs node: %s" % error)
    want, driver = [json.loads(line) for line in done.stdout.splitlines()], Driver(sys.argv[1])
    counts, problems = {}, []
    for pattern, matches in zip(patterns, want):
        if matches is None:
            continue
        answer = driver.ask({"id": 1, "schema": {"type": "string", "pattern": pattern},
                             "accept": [dumps(text) for text in texts]})
        code = answer["error"]["code"] if "error" in answer else "ok"
        counts[code] = counts.get(code, 0) + 1
        if code == "UNSAT" and any(matches):
            problems.append("%s is not without matches" % pattern)
        elif code not in ("ok", "UNSAT", "UNSUPPORTED") or (pattern in FIXED and code != "ok"):
            problems.append("%s: %s" % (pattern, answer.get("error")))
        elif code == "ok":
            wrong = [text for text, good, got in zip(texts, matches, answer["accept"]) if good != got]
            if wrong:
                problems.append("%s differs on %s" % (pattern, wrong[:5]))
    tap.note("verdicts %s" % counts)
    for problem in problems[:20]:
        tap.note(problem)
    tap.check(not problems, "%d of %d patterns differ from node" % (len(problems), len(patterns)))
    tap.check(counts.get("ok", 0) * 3 > len(patterns), "a third of the patterns compile")
    tap.check(driver.close() == 0, "grammar check ends well")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
