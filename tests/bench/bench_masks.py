"""Masks over a directory of MaskBench-format files ({"schema": …, "tests": [{"data": …, "valid": …}]}), side by side.

    tests/bench/bench_masks.py ESPALIER DIRECTORY --vocab GGUF [--sample N] [--seed N] [--peers llguidance,xgrammar]
                               [--verbose]

Every engine gets the same schemas, the same texts (compact JSON) and the same token ids, in one process each, one
thread. Times: the compile of a schema up to the first state, and each mask of each text up to its end or its first
refusal; the peers' times include the step that takes the token. A file counts as covered when it compiles and every
verdict is right, the end of the text included; a valid instance may have to be written in another order of its keys,
which is counted apart. Peers are the Python packages llguidance and xgrammar; what is not installed is left out.
Prints one JSON object an engine and one of ratios to each peer.
"""
import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from grammar_driver import Driver, dumps, loads, orders  # noqa: E402


class Vocabulary:
    """Tokens of a byte-level GGUF vocabulary as bytes, and a tokenizer that asks espalier."""

    def __init__(self, binary, path):
        text = subprocess.run([binary, "inspect", "--json", "--full", path], capture_output=True, check=True).stdout
        kv = json.loads(text)["kv"]
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [b for b in range(256) if b not in plain]
        letters = {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(others)}
        kinds = kv["tokenizer.ggml.token_type"]
        self.control = [id for id, kind in enumerate(kinds) if kind == 3]
        self.end = kv["tokenizer.ggml.eos_token_id"]
        self.tokens = [token.encode() if kind == 3 or any(c not in letters for c in token)
                       else bytes(letters[c] for c in token)
                       for token, kind in zip(kv["tokenizer.ggml.tokens"], kinds)]
        self.process = subprocess.Popen([binary, "tokenize", "--vocab", path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, encoding="utf-8")

    def cut(self, text):
        self.process.stdin.write(json.dumps({"text": text}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["ids"]


class Espalier:
    name = "espalier"

    def __init__(self, binary, path):
        self.driver = Driver(binary, vocab=path)

    def run(self, schema, texts, ids):
        answer = self.driver.ask({"id": 1, "schema": schema, "accept": texts, "options": {"mask_times": True}})
        if answer.get("compile") != "ok":
            return {"error": "%(code)s %(keyword)s: %(message)s" % answer["error"]}
        return {"compile_us": answer["compile_us"], "masks_us": answer["mask_us"]["all"], "bytes": answer["bytes"],
                "verdicts": answer["accept"]}


def drive(ids, mask, take, ended):
    """Masks and verdict of one text in a peer; mask and take do the work that is timed."""
    times = []
    for token in ids:
        start = time.perf_counter()
        bits = mask()
        allowed = bits[token // 32] >> (token % 32) & 1
        if allowed:
            take(token)
        times.append((time.perf_counter() - start) * 1e6)
        if not allowed:
            return times, False
    return times, ended()


class Llguidance:
    name = "llguidance"

    def __init__(self, vocabulary):
        import llguidance
        import llguidance.numpy
        import numpy

        given = types.SimpleNamespace(eos_token_id=vocabulary.end, bos_token_id=None, tokens=vocabulary.tokens,
                                      special_token_ids=vocabulary.control)

        class Tokenizer:
            def __init__(self):
                self.__dict__.update(given.__dict__)

            def __call__(self, text):
                return vocabulary.cut(text.decode() if isinstance(text, bytes) else text)

        self.lib = llguidance
        self.fill = llguidance.numpy.fill_next_token_bitmask
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()), len(vocabulary.tokens))
        self.bits = numpy.zeros((1, (len(vocabulary.tokens) + 31) // 32), numpy.int32)

    def run(self, schema, texts, ids):
        start = time.perf_counter()
        grammar = self.lib.LLMatcher.grammar_from_json_schema(dumps(schema))
        first = self.lib.LLMatcher(self.tokenizer, grammar)
        if first.is_error():
            return {"error": first.get_error()}
        self.fill(first, self.bits)
        out = {"compile_us": (time.perf_counter() - start) * 1e6, "masks_us": [], "verdicts": [], "bytes": 0}

        for text_ids in ids:
            matcher = self.lib.LLMatcher(self.tokenizer, grammar)

            def mask(matcher=matcher):
                self.fill(matcher, self.bits)
                return self.bits[0]

            times, verdict = drive(text_ids, mask, matcher.consume_token, matcher.is_accepting)
            out["masks_us"] += times
            out["verdicts"].append(verdict)
        return out


class Xgrammar:
    name = "xgrammar"

    def __init__(self, vocabulary):
        import numpy

        for module in ("tvm_ffi", "torch", "transformers"):
            if importlib.util.find_spec(module) is None:
                self.stand_in(module, numpy)
            elif module == "tvm_ffi":
                __import__(module)
        import xgrammar

        self.lib = xgrammar
        info = xgrammar.TokenizerInfo(vocabulary.tokens, vocab_type=xgrammar.VocabType.RAW,
                                      vocab_size=len(vocabulary.tokens), stop_token_ids=[vocabulary.end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = numpy.zeros((1, (len(vocabulary.tokens) + 31) // 32), numpy.int32)
        self.end = vocabulary.end

    @staticmethod
    def stand_in(name, numpy):
        """Only names of types are needed of packages that are not there; arrays are numpy's."""
        module = types.ModuleType(name)
        module.int32, module.Tensor = numpy.int32, numpy.ndarray
        module.tensor = numpy.array
        module.__getattr__ = lambda attribute: object
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module

    def run(self, schema, texts, ids):
        start = time.perf_counter()
        try:
            grammar = self.compiler.compile_json_schema(dumps(schema), any_whitespace=True, strict_mode=False)
        except Exception as error:  # its own classes, by version
            return {"error": str(error)}
        self.lib.GrammarMatcher(grammar).fill_next_token_bitmask(self.bits)
        out = {"compile_us": (time.perf_counter() - start) * 1e6, "masks_us": [], "verdicts": [],
               "bytes": grammar.memory_size_bytes}
        for text_ids in ids:
            matcher = self.lib.GrammarMatcher(grammar)

            def mask(matcher=matcher):
                self.bits.fill(-1)
                matcher.fill_next_token_bitmask(self.bits)
                return self.bits[0]

            def ended(mask=mask):
                return bool(mask()[self.end // 32] >> (self.end % 32) & 1)

            times, verdict = drive(text_ids, mask, matcher.accept_token, ended)
            out["masks_us"] += times
            out["verdicts"].append(verdict)
        return out


class Tally:
    def __init__(self, engine):
        self.engine = engine
        self.files = self.compiled = self.covered = self.other_order = 0
        self.wrong_accepts, self.wrong_refusals, self.errors = [], [], {}
        self.compile_us, self.masks_us, self.bytes = [], [], []

    def add(self, name, schema, tests, texts, ids):
        self.files += 1
        got = self.engine.run(schema, texts, ids)
        if "error" in got:
            key = got["error"].split(":")[0][:60]
            self.errors.setdefault(key, []).append((name, got["error"]))
            return
        self.compiled += 1
        self.compile_us.append(got["compile_us"])
        self.masks_us += got["masks_us"]
        self.bytes.append(got["bytes"])
        wrong = False
        for test, text, verdict in zip(tests, texts, got["verdicts"]):
            if test["valid"] and not verdict and self.engine.name == "espalier":
                others = [dumps(v) for v in orders(test["data"], 200)]
                verdict = any(self.engine.run(schema, others, None)["verdicts"])
                self.other_order += verdict
            if verdict != test["valid"]:
                wrong = True
                (self.wrong_refusals if test["valid"] else self.wrong_accepts).append((name, text[:200]))
        self.covered += not wrong

    def summary(self):
        return {"engine": self.engine.name, "files": self.files, "compiled": self.compiled, "covered": self.covered,
                "coverage": round(self.covered / max(1, self.files), 4), "wrong_accepts": len(self.wrong_accepts),
                "wrong_refusals": len(self.wrong_refusals), "other_order": self.other_order,
                "compile_us": spread(self.compile_us), "masks": len(self.masks_us), "mask_us": spread(self.masks_us),
                "bytes": spread(self.bytes)}


def spread(values):
    values = sorted(values) or [0]
    at = [values[min(len(values) - 1, int(len(values) * part))] for part in (0.5, 0.9, 0.99, 0.999)]
    return {"p50": round(at[0], 2), "p90": round(at[1], 1), "p99": round(at[2], 1), "p999": round(at[3], 1),
            "max": round(values[-1], 1), "mean": round(sum(values) / len(values), 2)}


def load(path):
    with open(path, encoding="utf-8") as file:
        case = loads(file.read())
    tests = [test for test in case.get("tests", []) if isinstance(test, dict) and "data" in test and "valid" in test]
    texts = [dumps(test["data"]) for test in tests]
    if any(0xD800 <= ord(c) < 0xE000 for c in "".join(texts) + dumps(case["schema"])):
        return None
    return case["schema"], tests, texts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("espalier")
    parser.add_argument("directory")
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--sample", type=int, default=0, help="so many files, drawn by --seed; default all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", default="")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    names = sorted(name for name in os.listdir(options.directory) if name.endswith(".json"))
    if options.sample:
        names = sorted(random.Random(options.seed).sample(names, min(options.sample, len(names))))
    vocabulary = Vocabulary(options.espalier, options.vocab)
    tallies = [Tally(Espalier(options.espalier, options.vocab))]
    for peer in (Llguidance, Xgrammar):
        if peer.name in options.peers.split(","):
            try:
                tallies.append(Tally(peer(vocabulary)))
            except ImportError as error:
                print("%s is left out: %s" % (peer.name, error), file=sys.stderr)
    for name in names:
        case = load(os.path.join(options.directory, name))
        if case is None:
            continue
        schema, tests, texts = case
        ids = [vocabulary.cut(text) for text in texts] if len(tallies) > 1 else None
        for tally in tallies:
            tally.add(name, schema, tests, texts, ids)
    for tally in tallies:
        print(json.dumps(tally.summary()), flush=True)
        for kind, cases in sorted(tally.errors.items(), key=lambda item: -len(item[1])) if options.verbose else ():
            print("  %5d %s  e.g. %s: %s" % (len(cases), kind, *[part[:160] for part in cases[0]]), file=sys.stderr)
        for kind in ("wrong_accepts", "wrong_refusals") if options.verbose else ():
            for case in getattr(tally, kind)[:20]:
                print("  %s %s: %s" % (kind, *case), file=sys.stderr)
    own = tallies[0].summary()
    for tally in tallies[1:]:
        peer = tally.summary()
        print(json.dumps({"ratio_to": peer["engine"], "coverage": [own["coverage"], peer["coverage"]],
                          **{key: {at: round(own[key][at] / max(peer[key][at], 1e-9), 3)
                                   for at in ("p50", "p99", "max", "mean")} for key in ("mask_us", "compile_us")}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
