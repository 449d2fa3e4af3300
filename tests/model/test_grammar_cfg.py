"""Random context-free grammars against a naive recogniser: texts, and every mask on the way.

usage: test_grammar_cfg.py ESPALIER [--seed N] [--rounds N]

A grammar is drawn as a tree, written as GBNF (and as Lark), and asked about all short texts over two letters. The
recogniser follows the definition: which ends a rule reaches from a place, as a least fixpoint. For masks it also
knows whether a text can be continued to one of the grammar. Left recursion, rules that may be empty, rules without
any text and ambiguity are all drawn.
"""
import itertools
import os
import random
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from grammar_driver import Driver, Tap, find_model, first_seed, option  # noqa: E402

TOKENS = ["a", "b", "ab", "ba", "aab", "bb"]
NUMBERS = list("0123456789+-.eE")  # a vocabulary that has these and all its bytes alone needs no search for the end
NAMES = ["start", "one", "two", "three"]


def draw(rng, n_rules, depth):
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        kind = rng.random()
        if kind < 0.5:
            return ("ref", rng.randrange(n_rules))
        if kind < 0.85:
            return ("text", rng.choice(["a", "b", "ab", "", "ba", "aa"]))
        return ("set", rng.choice(["a", "ab"]))
    if kind < 0.6:
        return ("seq", [draw(rng, n_rules, depth - 1) for _ in range(rng.randrange(1, 4))])
    if kind < 0.85:
        return ("alt", [draw(rng, n_rules, depth - 1) for _ in range(rng.randrange(1, 4))])
    counts = rng.choice([(0, None), (1, None), (0, 1), (2, 3), (0, 2), (2, None)])
    return ("rep", draw(rng, n_rules, depth - 1)) + counts


class Recogniser:
    """ends(node, at): where a text of the node that begins at `at` may end; open(node, at): whether the rest of the
    text begins some text of the node."""

    def __init__(self, rules):
        self.rules = rules
        self.productive = [False] * len(rules)
        while True:
            now = [self.has_text(rule) for rule in rules]
            if now == self.productive:
                break
            self.productive = now

    def has_text(self, node):
        if node[0] == "ref":
            return self.productive[node[1]]
        if node[0] in ("seq", "alt"):
            return (all if node[0] == "seq" else any)(self.has_text(n) for n in node[1])
        return node[0] != "rep" or node[2] == 0 or self.has_text(node[1])

    def run(self, text):
        self.text, n = text, len(text)
        self.table = [[frozenset()] * (n + 1) for _ in self.rules]
        self.opens = [[False] * (n + 1) for _ in self.rules]
        changed = True
        while changed:
            changed = False
            for rule, body in enumerate(self.rules):
                for at in range(n + 1):
                    ends, opened = self.look(body, at)
                    if ends != self.table[rule][at] or opened != self.opens[rule][at]:
                        self.table[rule][at], self.opens[rule][at], changed = ends, opened, True
        return n in self.table[0][0], self.opens[0][0]

    def look(self, node, at):
        kind, rest = node[0], self.text[at:]
        if kind == "ref":
            return self.table[node[1]][at], self.opens[node[1]][at]
        if kind == "text":
            return frozenset([at + len(node[1])] if rest.startswith(node[1]) else []), node[1].startswith(rest)
        if kind == "set":
            return frozenset([at + 1] if rest[:1] and rest[0] in node[1] else []), rest == "" or rest in list(node[1])
        if kind == "alt":
            seen = [self.look(n, at) for n in node[1]]
            return frozenset().union(*(s[0] for s in seen)), any(s[1] for s in seen)
        if kind == "seq":
            return self.look_seq(node[1], at)
        return self.look_rep(node, at)

    def look_seq(self, parts, at):
        places, opened = frozenset([at]), False
        for idx, part in enumerate(parts):
            seen = [self.look(part, p) for p in places]
            after = all(self.has_text(n) for n in parts[idx + 1:])
            opened = opened or (after and any(s[1] for s in seen))
            places = frozenset().union(*(s[0] for s in seen))
        return places, opened or len(self.text) in places

    def look_rep(self, node, at):
        _, part, low, high = node
        ends, places, opened = frozenset(), frozenset([at]), False
        for count in range((len(self.text) + low + 2) if high is None else high + 1):
            if count >= low:
                ends |= places
            if not places or (high is not None and count == high):
                break
            seen = [self.look(part, p) for p in places]
            opened = opened or (self.has_text(part) and any(s[1] for s in seen))
            places = frozenset().union(*(s[0] for s in seen))
        return ends, opened or len(self.text) in ends


def gbnf(node):
    kind = node[0]
    if kind == "ref":
        return ["root", "one", "two", "three"][node[1]]
    if kind == "text":
        return '"%s"' % node[1]
    if kind == "set":
        return "[%s]" % node[1]
    if kind == "rep":
        return "(%s){%d,%s}" % (gbnf(node[1]), node[2], "" if node[3] is None else node[3])
    return "(%s)" % (" " if kind == "seq" else " | ").join(map(gbnf, node[1]))


def lark(node):
    kind = node[0]
    if kind == "ref":
        return NAMES[node[1]]
    if kind == "text":
        return '"%s"' % node[1]
    if kind == "set":
        return "/[%s]/" % node[1]
    if kind == "rep":
        return "(%s)" % lark(node[1]) + ("~%d" % node[2] if node[2] == node[3] else
                                         "{%d,%s}" % (node[2], "" if node[3] is None else node[3]))
    return "(%s)" % (" " if kind == "seq" else " | ").join(map(lark, node[1]))


def draw_terminal(rng, depth):
    """A terminal as Lark text, and as a function that tells whether a text is one of it."""
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        pattern = rng.choice(["a*b?", "(ab)*", "[ab]{2,3}", "a|bb", "b+a+", ".*ba.*", ".b*"])
        return "/%s/" % pattern, lambda t: re.fullmatch(pattern, t) is not None
    one, is_one = draw_terminal(rng, depth - 1)
    if kind < 0.5:
        return "~(%s)" % one, lambda t: not is_one(t)
    two, is_two = draw_terminal(rng, depth - 1)
    if kind < 0.7:
        return "(%s & %s)" % (one, two), lambda t: is_one(t) and is_two(t)
    if kind < 0.85:
        return "(%s | %s)" % (one, two), lambda t: is_one(t) or is_two(t)
    return "(%s %s)" % (one, two), lambda t: any(is_one(t[:i]) and is_two(t[i:]) for i in range(len(t) + 1))


def check_terminal(driver, rng):
    source, holds = draw_terminal(rng, 3)
    texts = ["".join(t) for n in range(6) for t in itertools.product("ab", repeat=n)]
    vocab = vocabulary(rng)
    answer = driver.ask({"id": 0, "lark": "start: T\nT: %s" % source, "vocab": vocab, "accept": texts})
    if answer.get("compile") != "ok":
        fits = any(map(holds, texts))
        return [] if answer["error"]["code"] == "UNSAT" and not fits else [source, answer]
    wrong = ["text %r" % t for t, v in zip(texts, answer["accept"]) if v != holds(t)]
    wrong += ["masks differ from the oracle's"] if answer["mask_errors"] else []
    return [source] + wrong if wrong else []


def vocabulary(rng):
    texts = TOKENS + (NUMBERS if rng.random() < 0.8 else [])
    return {"tokens": [t.encode().hex() for t in texts] + ["3c2f733e"], "end": [len(texts)]}


def check(driver, rng, rules, key, source):
    """A list of what is wrong."""
    vocab = vocabulary(rng)
    naive = Recogniser(rules)
    texts = ["".join(t) for n in range(6) for t in itertools.product("ab", repeat=n)]
    request = {"id": 0, key: source, "vocab": vocab}
    if not naive.productive[0]:
        answer = driver.ask(request)
        return [] if answer.get("error", {}).get("code") == "UNSAT" else ["has no text", answer]
    runs = [rng.choice(["a", "b"]) for _ in range(6)]
    feed = [[]] + [[TOKENS.index(c)] for c in runs]
    answer = driver.ask({**request, "accept": texts, "feed": feed})
    if answer.get("compile") != "ok":
        return [answer]
    wrong = ["text %r" % t for t, v in zip(texts, answer["accept"]) if v != naive.run(t)[0]]
    prefix = ""
    for idx, state in enumerate(answer["feed"]):
        if idx > 0:
            if state["taken"] == 0:
                break
            prefix += runs[idx - 1]
        want = [i for i, t in enumerate(TOKENS) if naive.run(prefix + t)[1]]
        want += vocab["end"] if naive.run(prefix)[0] else []
        if state["allowed"] != want:
            wrong.append("mask after %r: %s, not %s" % (prefix, state["allowed"], want))
    return wrong + (["masks differ from the oracle's"] if answer["mask_errors"] else [])


def main():
    tap = Tap()
    if find_model() is None:
        return tap.skip_all("needs the default model")
    seed, rounds = first_seed(), option("--rounds", 40)
    tap.note("seed %d" % seed)
    rng, driver = random.Random(seed), Driver(sys.argv[1], "--oracle")
    for key, write, define in (("gbnf", gbnf, "%s ::= %s"), ("lark", lark, "%s: %s")):
        wrong = 0
        for _ in range(rounds):
            rules = [draw(rng, n, 3) for n in [rng.randrange(1, 5)] for _ in range(n)]
            source = "\n".join(define % (write(("ref", i)), write(rule)) for i, rule in enumerate(rules))
            bad = check(driver, rng, rules, key, source)
            if bad and wrong < 3:
                tap.note(source.replace("\n", " ; "))
                tap.note(str(bad[:4]))
            wrong += bool(bad)
        tap.check(wrong == 0, "%s: %d grammars, %d wrong" % (key, rounds, wrong))
    bad = [b for b in (check_terminal(driver, rng) for _ in range(rounds)) if b]
    for one in bad[:3]:
        tap.note(str(one[:5]))
    tap.check(not bad, "terminals with & and ~: %d, %d wrong" % (rounds, len(bad)))
    driver.close()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
