"""Laws of the schema algebra on random schemas: what is equal must give equal verdicts, and equal masks where the text
is spelled alike.

usage: test_grammar_algebra.py ESPALIER [--seed N] [--rounds N]

A ∧ ¬A has no value. ¬¬A has A's masks, token by token, on a vocabulary of bytes and pairs. A = (A∧B) ∪ (A∧¬B), and
oneOf, if and De Morgan's laws said with the other keywords give the same verdicts. Some rounds compare every mask
with brute force. A refusal is no finding, unless it is UNSAT and the equal schema accepts something.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from grammar_driver import Driver, Tap, dumps, find_model, first_seed, option, orders  # noqa: E402
from test_grammar_model import Maker  # noqa: E402

PAIRS = ['{"', '":', ',"', '"]', '"}', "[[", "{}", "[]", "10", "true", "null", "ab", '":"', '","', "}]", "1,"]
TOKENS = ["%02x" % byte for byte in range(256)] + [text.encode().hex() for text in PAIRS]


def laws(a, b, c):
    """Pairs of schemas that mean the same."""
    def both(x, y):
        return {"allOf": [x, y]}

    def deny(x):
        return {"not": x}

    yield a, {"anyOf": [both(a, b), both(a, deny(b))]}
    yield {"oneOf": [a, b, c]}, {"oneOf": [c, a, b]}
    yield {"oneOf": [a, b]}, {"anyOf": [both(a, deny(b)), both(deny(a), b)]}
    yield {"if": a, "then": b, "else": c}, {"anyOf": [both(a, b), both(deny(a), c)]}
    yield deny({"anyOf": [a, b]}), both(deny(a), deny(b))
    yield deny({"allOf": [a, b]}), {"anyOf": [deny(a), deny(b)]}
    yield deny({"oneOf": [a, b]}), {"anyOf": [both(a, b), both(deny(a), deny(b))]}
    yield deny({"if": a, "then": b, "else": c}), {"if": a, "then": deny(b), "else": deny(c)}
    yield {"contains": a, "minContains": 1}, {"anyOf": [{"not": {"type": "array"}}, deny({"items": deny(a)})]}


class Round:
    def __init__(self, driver, make):
        self.driver, self.make, self.counts, self.failures = driver, make, {}, []

    def root(self, schema, defs):
        return {**schema, "$defs": defs} if isinstance(schema, dict) else {"allOf": [schema], "$defs": defs}

    def ask(self, schema, texts):
        """A verdict for each list of texts; or the code of the refusal."""
        answer = self.driver.ask({"id": 0, "schema": schema, "accept": [t for variants in texts for t in variants]})
        if answer.get("compile") != "ok":
            return answer["error"]["code"]
        if answer.get("mask_errors"):
            self.failures.append("a wrong mask: %s %s" % (dumps(schema), texts))
        at, out = 0, []
        for variants in texts:
            out.append(any(answer["accept"][at:at + len(variants)]))
            at += len(variants)
        return out

    def compare(self, left, right, texts):
        a, b = self.ask(left, texts), self.ask(right, texts)
        for x, y in ((a, b), (b, a)):
            if x == "UNSAT" and isinstance(y, list) and any(y):
                return self.failures.append("UNSAT, but something fits: %s %s" % (dumps(left), dumps(right)))
        if isinstance(a, str) or isinstance(b, str):
            self.counts["refused"] = self.counts.get("refused", 0) + 1
            return None
        for variants, x, y in zip(texts, a, b):
            self.counts[x] = self.counts.get(x, 0) + 1
            if x != y:
                self.failures.append("%s: %s by %s, %s by %s" % (variants[0], x, dumps(left), y, dumps(right)))
        return None

    def masks(self, schema, texts):
        vocab = {"tokens": TOKENS + [""], "control": [len(TOKENS)], "end": [len(TOKENS)]}
        feed = []
        for text in texts:
            data = text.encode()
            feed.extend([[data[at]] for at in range(len(data))])
            feed.append([-len(data)])
        return self.driver.ask({"id": 0, "schema": schema, "vocab": vocab, "feed": feed})

    def double_denial(self, schema, defs, texts):
        answers = [self.masks(self.root(s, defs), texts) for s in (schema, {"not": {"not": schema}})]
        if any(answer.get("compile") != "ok" for answer in answers):
            return
        self.counts["masks"] = self.counts.get("masks", 0) + len(answers[0]["feed"])
        if answers[0]["feed"] != answers[1]["feed"]:
            self.failures.append("twice denied, other masks: %s" % dumps(schema))

    def run(self):
        make = self.make
        defs = {"x": make.schema(1), "y/z": make.schema(2)}
        a, b, c = make.schema(1), make.schema(1), make.schema(2)
        instances = [make.instance(a) for _ in range(6)] + [make.instance(b) for _ in range(4)] + [make.value()]
        texts = [[dumps(v) for v in orders(value, 24)] for value in instances]
        texts = [variants for variants in texts if len(variants) < 24]
        verdict = self.ask(self.root({"allOf": [a, {"not": a}]}, defs), texts)
        self.counts[str(verdict)[:11]] = self.counts.get(str(verdict)[:11], 0) + 1
        if verdict not in ("UNSAT", "LIMIT", "UNSUPPORTED", "INVALID"):
            self.failures.append("not empty beside its denial: %s" % dumps(a))
        for left, right in laws(a, b, c):
            self.compare(self.root(left, defs), self.root(right, defs), texts)
        self.double_denial(a, defs, [variants[0] for variants in texts[:2]])


def main():
    tap = Tap()
    if find_model() is None:
        return tap.skip_all("needs the default model")
    seed, rounds = first_seed(), option("--rounds", 80)
    tap.note("seed %d" % seed)
    rng = random.Random(seed)
    parts = (("laws", (), rounds), ("every mask against brute force", ("--oracle",), max(2, rounds // 20)))
    for name, flags, n in parts:
        run = Round(Driver(sys.argv[1], *flags), Maker(rng))
        for _ in range(n):
            run.run()
        tap.note("%s: %s" % (name, ", ".join("%s %d" % item for item in sorted(run.counts.items(), key=str))))
        for problem in run.failures[:10]:
            tap.note(problem[:3000])
        tap.check(not run.failures, "%s: %d findings" % (name, len(run.failures)))
        tap.check(run.counts.get(True, 0) > n and run.counts.get(False, 0) > n and run.counts.get("masks", 0) > n,
                  name + ": both verdicts and masks were seen")
        tap.check(run.driver.close() == 0, name + ": grammar check ends well")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
