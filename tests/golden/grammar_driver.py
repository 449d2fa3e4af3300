"""Drives `espalier grammar check` line by line, and writes JSON with the spelling of its numbers kept.

usage in a test: driver = Driver(sys.argv[1]); driver.ask({"schema": …, "accept": […]}) → the answer as a dict.
The vocabulary is the default model's; find_model() is None where it was not fetched.
"""
import itertools
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Number(str):
    """A JSON number as it was written."""


def loads(text):
    return json.loads(text, parse_float=Number, parse_int=Number)


def dumps(value):
    """Compact JSON, keys in their order, non-ASCII as it is."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(dumps(str(k)) + ":" + dumps(v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def orders(value, limit=24):
    """The value with its object keys in every order, at most `limit` of them."""

    def walk(v):
        if isinstance(v, dict):
            for keys in itertools.permutations(v):
                for combo in itertools.product(*[list(itertools.islice(walk(v[k]), limit)) for k in keys]):
                    yield dict(zip(keys, combo))
        elif isinstance(v, list):
            for combo in itertools.product(*[list(itertools.islice(walk(item), limit)) for item in v]):
                yield list(combo)
        else:
            yield v

    return list(itertools.islice(walk(value), limit))


def find_model():
    folder = os.environ.get("ESPALIER_TEST_MODELS", os.path.join(ROOT, "models"))
    path = os.path.join(folder, "SmolLM2-135M-Instruct.Q4_1.gguf")
    return path if os.path.exists(path) else None


def find_shared(name):
    path = os.path.join(os.environ.get("ESPALIER_TEST_SHARED", os.path.join(ROOT, "..", "shared")), name)
    return path if os.path.exists(path) else None


def option(name, default):
    """The number after an option of the test's command line."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def first_seed():
    """A fresh one, unless --seed or ESPALIER_TEST_SEED names it."""
    return option("--seed", int(os.environ.get("ESPALIER_TEST_SEED") or time.time()))


class Driver:
    def __init__(self, binary, *flags, vocab=None):
        source = ["--vocab", vocab] if vocab else ["-m", find_model()]
        command = [binary, "grammar", "check", *source, *flags]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, encoding="utf-8")

    def ask_text(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("grammar check ended with %s on: %s" % (self.process.wait(), line[:2000]))
        return json.loads(answer)

    def ask(self, request):
        return self.ask_text(dumps(request))

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


class Tap:
    def __init__(self):
        self.n = self.bad = 0
        print("TAP version 13", flush=True)

    def check(self, ok, name):
        self.n += 1
        self.bad += not ok
        name = name.replace("#", "no. ").replace("\n", " ")
        print("%s %d - %s" % ("ok" if ok else "not ok", self.n, name), flush=True)
        return ok

    def note(self, text):
        print("# " + text.replace("\n", " "), flush=True)

    def skip_all(self, why):
        print("1..0 # SKIP " + why)
        return 0

    def finish(self):
        print("1..%d" % self.n)
        return 1 if self.bad else 0
