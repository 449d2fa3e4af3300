"""The verbs of the command line as a user meets them: gone readers, full disks, odd contexts, odd model files.

usage: test_verbs.py PATH_OF_ESPALIER [test …]
"""
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from kit import PATIENCE, Skip, run_tests, test

PROGRAM = sys.argv[1]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(os.environ.get("ESPALIER_TEST_MODELS", os.path.join(ROOT, "models")),
                     "SmolLM2-135M-Instruct.Q4_1.gguf")
GONE = "the reader went away: exit 1, not a word about it"


def model():
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    return MODEL


def run(*args, **rest):
    return subprocess.run([PROGRAM, *args], capture_output=True, timeout=120 * PATIENCE, check=False, **rest)


def errors(text):
    """Lines on stderr that are no log lines about the model."""
    return [line for line in text.decode().splitlines() if not line.startswith("espalier: ")]


def lines_of(value, n):
    return (json.dumps(value) + "\n").encode() * n


def verbs():
    """Verbs that print more than a pipe holds, with what they read."""
    return [
        (["inspect", "--full", model()], b""),
        (["grammar", "check", "-m", model()], lines_of({"regex": "a" * 400, "accept": ["a"] * 50}, 600)),
        (["tokenize", "-m", model()], lines_of({"text": "a" * 400}, 600)),
        (["logits", "-m", model(), "--tokens", ",".join(["1"] * 100), "--top", "200"], b""),
        (["run", "-m", model(), "--raw", "-p", "One, two, three,", "--max-tokens", "60"], b""),
        (["--help"], b""),
    ]


@test
def explain_tells_each_keyword():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "schema.json")
        with open(path, "w") as out:
            out.write('{"type":"object","properties":{"a":{"pattern":"^x+$"},"b":{"$ref":"#/$defs/c"}},'
                      '"$defs":{"c":{}}}')
        text = run("grammar", "explain", path, "--dot").stdout.decode()
        for part in ("/properties/a/pattern ", "an automaton over the text", "rules ", "digraph grammar {",
                     "label=\"x\""):
            assert part in text, (part, text)
        answer = json.loads(run("grammar", "explain", "--json", path).stdout)
        assert answer["compile"] == "ok" and answer["compile_us"] > 0
        assert [(e["pointer"], e["keyword"]) for e in answer["explain"]] == [
            ("/type", "type"), ("/properties", "properties"), ("/$defs", "$defs"),
            ("/properties/a/pattern", "pattern"), ("/properties/b/$ref", "$ref")], answer
        assert answer["explain"][3]["cost"] > 0
        with open(path, "w") as out:
            out.write('{"properties":{"a":{"pattern":"(a)\\\\1"}}}')
        done = run("grammar", "explain", path)
        assert done.returncode == 1 and b"refused: UNSUPPORTED" in done.stdout, done
        assert b"/properties/a/pattern" in done.stdout and b"refused: pattern regular" in done.stdout, done


@test
def readers_that_go():
    for args, given in verbs():
        with tempfile.TemporaryFile() as source:
            source.write(given)
            source.seek(0)
            reader, writer = os.pipe()
            os.close(reader)
            with subprocess.Popen([PROGRAM, *args], stdin=source, stdout=writer, stderr=subprocess.PIPE) as process:
                os.close(writer)
                said = process.stderr.read()
                assert process.wait(120) == 1, (args[0], GONE, process.returncode, said)
                assert not errors(said), (args[0], GONE, said)


@test
def disks_that_are_full():
    for args, given in verbs():
        with open("/dev/full", "wb") as full:
            done = subprocess.run([PROGRAM, *args], input=given, stdout=full, stderr=subprocess.PIPE, check=False)
        told = errors(done.stderr)
        assert done.returncode == 1 and len(told) == 1 and "No space left" in told[0], (args[0], done)


def gguf(*kvs):
    """A file of string keys and string values, without tensors; a list is an array of strings."""

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(kvs))
    for key, value in kvs:
        out += text(key)
        if isinstance(value, list):
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        else:
            out += struct.pack("<I", 8) + text(value)
    return out


@test
def inspect_judges_the_vocabulary():
    base = [("general.architecture", "nosuch"), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "gpt-2")]
    tokens = [("tokenizer.ggml.tokens", ["a", "b", "ab"]), ("tokenizer.ggml.merges", ["a b"])]
    for kvs, want in [
        (base[:1], []),
        (base + tokens, ["241 bytes have no token and are lost from text: 00-60 63-BF C2-F4"]),
        (base, ["the vocabulary cannot be used: "]),
        (base[:2] + [("tokenizer.ggml.pre", "nosuch")] + tokens, ["the vocabulary cannot be used: "]),
    ]:
        with tempfile.NamedTemporaryFile(suffix=".gguf") as out:
            out.write(gguf(*kvs))
            out.flush()
            as_json, as_text = run("inspect", "--json", out.name), run("inspect", out.name)
        assert as_json.returncode == as_text.returncode == 0 and not as_json.stderr, (as_json, as_text)
        got = json.loads(as_json.stdout)["warnings"]
        assert len(got) == len(want) and all(g.startswith(w) for g, w in zip(got, want)), got
        assert all(w in as_text.stdout.decode() for w in want), as_text
    warned = run("tokenize", "-m", model(), input=b'{"text":"a"}\n').stderr
    assert warned.count(b"have no token") == 1 and b": 04 06 13-14 16 1D F1-F2\n" in warned, warned


@test
def grammar_of_a_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.gbnf")
        with open(path, "w") as file:
            file.write('root ::= "[" [a-c]{2} ("," [a-c]{2}){1,3} "]" # a list\n')
        done = run("run", "-m", model(), "--raw", "-p", "x", "--grammar", path)
        assert done.returncode == 0 and re.fullmatch(rb"\[[a-c]{2}(,[a-c]{2}){1,3}\]\n", done.stdout), done
        with open(path, "w") as file:
            file.write('root ::= "a"\n  ]\n')
        done = run("run", "-m", model(), "--raw", "-p", "x", "--grammar", path)
        assert done.returncode == 1 and b"line 2, column 3" in done.stderr, done


@test
def contexts_small_and_odd():
    for bad in ("0", "15", "-1", "16.5", "1e3", "16777217", "4294967312", "x", ""):
        done = run("run", "-m", model(), "--raw", "-p", "x", "--ctx", bad)
        assert done.returncode == 2 and b"--ctx" in done.stderr, (bad, done)
    wanted, n_whole = None, None
    for ctx in ("64", "16", "17", "23", "31"):
        done = run("run", "-m", model(), "--raw", "-p", "The sun is", "--temperature", "0", "--ctx", ctx,
                   "--prefill-chunk", "1" if ctx == "17" else "512")
        assert done.returncode == 0, (ctx, done)
        wanted = wanted or done.stdout[:-1]
        got = done.stdout[:-1]
        assert wanted.startswith(got) and got, (ctx, got, wanted)
        ids = run("tokenize", "-m", model(), input=lines_of({"text": "The sun is" + got.decode()}, 1)).stdout
        n_ids = len(json.loads(ids)["ids"])
        n_whole = n_whole or n_ids
        assert n_ids == min(int(ctx), n_whole), (ctx, ids)
    long = run("run", "-m", model(), "--raw", "-p", "word " * 40, "--ctx", "17")
    assert long.returncode == 1 and b"17" in long.stderr, long


if __name__ == "__main__":
    run_tests()
