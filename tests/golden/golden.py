#!/usr/bin/env python3
"""The program's logits against references, as TAP.

  golden.py tiny LOGITS_TOOL              tiny random models against the float64 reference
  golden.py recorded LOGITS_TOOL MODELS   real models against what was recorded in recorded_*.json
  golden.py verbs LOGITS_TOOL ESPALIER    `espalier logits` and `perplexity` on tiny models

Bounds for the tiny models, in units of the spread (standard deviation) of the logits, against the reference in
`contract` mode, which rounds activations and what attention multiplies exactly where the program may:
  - the best tenth of the rows within 1e-5 (quantised), where no rounding fell on the other side, so that only
    float32 is left; within 1e-4 (float weights, where some rounding nearly always falls otherwise). One wrong
    block, scale or bias reaches every row and breaks this; a test below shows it.
  - every row within 0.1 (quantised) or 0.002 (float weights): a rounding to 8 or 11 bits that falls on the
    other side moves later rows by steps of that size, measured up to 0.06 and 0.0008.
Against the exact reference: mean KL below 0.01 (quantised; measured up to 0.0045) or 1e-5 (float).
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads only wait for each other
try:
    import numpy as np
except ImportError:
    print("TAP version 13\n1..0 # SKIP numpy is not installed")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import make_tiny  # noqa: E402
import reference  # noqa: E402

TENTH_FLOAT, TENTH_QUANTISED = 1e-4, 1e-5
ALL_FLOAT, ALL_QUANTISED = 2e-3, 0.1
KL_FLOAT, KL_QUANTISED = 1e-5, 0.01
LEAD = 0.5  # where a reference leads by less, its own error could decide
MODEL_FILES = {
    "recorded_smollm2.json": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "recorded_gemma3.json": "gemma-3-270m-Q4_K_M.gguf",
}


def program(tool, model, ids, n_vocab, chunk, folder):
    names = os.path.join(folder, "ids"), os.path.join(folder, "logits")
    with open(names[0], "w") as f:
        f.write(" ".join(map(str, ids)))
    done = subprocess.run([tool, model, names[0], names[1], str(chunk)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.fromfile(names[1], "<f4").reshape(len(ids), n_vocab)


def row_errors(got, want):
    assert np.isfinite(got).all(), "not all logits are finite"
    return np.abs(got - want).max(axis=1) / want.std()


def is_float(m):
    return all(t in ("F32", "F16", "BF16") for t in m["types"])


def within(errors, m):
    tenth, worst = (TENTH_FLOAT, ALL_FLOAT) if is_float(m) else (TENTH_QUANTISED, ALL_QUANTISED)
    return np.quantile(errors, 0.1) < tenth and errors.max() < worst


def sequences(m, n_vocab):
    """Short ones, where few roundings can flip, and one over several pages and past every window."""
    rng = np.random.default_rng(len(m["name"]))
    return [[int(t) for t in rng.integers(0, n_vocab, n)] for n in (3, 3, 3, 3, 3, 3, 3, 3, 50)]


class Tiny:
    """One model: the file, its references and the program's logits for all sequences, one after the other."""

    def __init__(self, m, tool, folder):
        self.m, self.tool, self.folder = m, tool, folder
        self.path = os.path.join(folder, m["name"] + ".gguf")
        make_tiny.make(m, self.path)
        self.contract, self.exact = reference.Model(self.path, True), reference.Model(self.path)
        self.sequences = sequences(m, self.exact.n_vocab)

    def program(self, chunk):
        return np.concatenate(
            [program(self.tool, self.path, s, self.exact.n_vocab, chunk, self.folder) for s in self.sequences]
        )

    def of(self, model):
        return np.concatenate([model.logits(s) for s in self.sequences])

    def check(self):
        got = self.program(64)
        errors = row_errors(got, self.of(self.contract))
        kl = reference.kl(self.of(self.exact), got.astype(np.float64)).mean()
        print(
            "# %s: tenth %.1e, worst %.1e of the spread, mean KL %.1e"
            % (self.m["name"], np.quantile(errors, 0.1), errors.max(), kl)
        )
        assert within(errors, self.m), "too far from the reference"
        assert kl < (KL_FLOAT if is_float(self.m) else KL_QUANTISED), "mean KL %g" % kl
        self.sequences = self.sequences[-1:]
        whole = got[-len(self.sequences[0]) :]
        for chunk in (1, 7, 16):
            assert np.array_equal(whole, self.program(chunk)), "other bits with chunks of %d" % chunk

    def check_sees_damage(self):
        """The bounds must notice one block with a wrong scale in one matrix, even in the last one of a layer."""
        got = self.program(64)
        for name in ("blk.0.attn_v.weight", "blk.1.ffn_down.weight"):
            kind, dims, data = self.contract.file.tensors[name]
            size = reference.TYPES[kind][1]
            at = make_tiny.SCALES[self.m["types"][0]][0] + 40 * size
            broken = data.copy()
            broken[at : at + 2] = (broken[at : at + 2].view("<f2") * np.float16(1.5)).view(np.uint8)
            self.contract.file.tensors[name] = (kind, dims, broken)
            errors = row_errors(got, self.of(self.contract))
            self.contract.file.tensors[name] = (kind, dims, data)
            print("# %s, a scale of %s times 1.5: tenth %.1e" % (self.m["name"], name, np.quantile(errors, 0.1)))
            assert not within(errors, self.m), "a wrong scale in %s was not noticed" % name


def tiny_tests(tool, folder):
    for m in make_tiny.MODELS:
        yield m["name"], lambda m=m: Tiny(m, tool, folder).check()
    for m in make_tiny.MODELS:
        if len(m["types"]) == 1 and m["types"][0] in make_tiny.SCALES:
            yield m["name"] + "_sees_damage", lambda m=m: Tiny(m, tool, folder).check_sees_damage()
    yield "long", lambda: check_long(tool, folder)


def check_long(tool, folder):
    """Past the 512-token spans of attention, with and without windows."""
    for name in ("llama_narrow", "gemma3_f32"):
        m = next(m for m in make_tiny.MODELS if m["name"] == name)
        t = Tiny(m, tool, folder)
        t.sequences = [[int(i) for i in np.random.default_rng(5).integers(0, t.exact.n_vocab, 1100)]]
        errors = row_errors(t.program(300), t.of(t.contract))
        print("# %s, 1100 tokens: tenth %.1e, worst %.1e" % (name, np.quantile(errors, 0.1), errors.max()))
        assert errors.max() < ALL_FLOAT


# ---- Recorded references ------------------------------------------------------------------------------------


def coarse_kl(recorded, row):
    """KL over the recorded ids and "all others" as one: a lower bound of the full one."""
    p = np.exp(np.array(recorded["logits"]) - recorded["logsumexp"])
    q = np.exp(reference.log_softmax(row.astype(np.float64))[recorded["ids"]])
    p, q = np.append(p, max(1 - p.sum(), 1e-9)), np.append(q, max(1 - q.sum(), 1e-9))
    return float((p * np.log(p / q)).sum())


def lead(recorded):
    return recorded["logits"][0] - recorded["logits"][1]


def check_text(text, got):
    """Where float64 has another best token than llama.cpp, llama.cpp's own rounding has decided (once with a
    lead of 1.0): float64 is the judge there."""
    n_prompt = len(text["ids"])
    agree = [a["ids"][0] == b["ids"][0] for a, b in zip(text["llama_cpp"], text["float64"])]
    compared, kls = 0, {"float64": [], "llama_cpp": []}
    for which in kls:
        for at, pos in enumerate(text["positions"]):
            want, row = text[which][at], got[pos]
            kls[which].append(coarse_kl(want, row))
            if lead(want) > LEAD and (agree[at] or which == "float64"):
                compared += 1
                assert int(np.argmax(row)) == want["ids"][0], "%s at %d: %d, not %d" % (
                    which,
                    pos,
                    np.argmax(row),
                    want["ids"][0],
                )
    for k, token in enumerate(text["greedy"]):
        if n_prompt - 1 + k not in text["positions"]:
            break
        at = text["positions"].index(n_prompt - 1 + k)
        if lead(text["llama_cpp"][at]) <= LEAD or not agree[at]:
            break
        assert int(np.argmax(got[n_prompt - 1 + k])) == token, "the greedy continuation differs at %d" % k
    mean = {which: float(np.mean(v)) for which, v in kls.items()}
    print(
        "# %r: %d positions with a lead, mean KL %.5f to float64, %.5f to llama.cpp"
        % (text["text"][:30], compared, mean["float64"], mean["llama_cpp"])
    )
    assert compared > len(text["positions"]) // 2
    assert mean["float64"] < 0.01 and mean["llama_cpp"] < 0.02, "mean KL too large"


def recorded_tests(tool, models, folder):
    for name, file in MODEL_FILES.items():
        with open(os.path.join(HERE, name)) as f:
            recorded = json.load(f)
        path = os.path.join(models, file)
        for idx, text in enumerate(recorded["texts"]):
            label = "%s_%d" % (name[9:-5], idx)
            if not os.path.exists(path):
                yield label + " # SKIP model file not fetched", lambda: None
                continue
            n_vocab = reference.Model(path).n_vocab
            yield label, lambda text=text, path=path, n_vocab=n_vocab: check_text(
                text, program(tool, path, text["ids"] + text["greedy"], n_vocab, 64, folder)
            )


# ---- The verbs ----------------------------------------------------------------------------------------------


def espalier(program_path, *args):
    return subprocess.run([program_path, *args], capture_output=True, text=True)


def check_logits_verb(t, exe):
    ids = t.sequences[-1]
    out = os.path.join(t.folder, "verb")
    listed = ",".join(map(str, ids))
    done = espalier(exe, "logits", "-m", t.path, "--tokens", listed, "--out", out)
    assert done.returncode == 0, done.stderr
    want = program(t.tool, t.path, ids, t.exact.n_vocab, 64, t.folder)
    assert np.array_equal(np.fromfile(out, "<f4").reshape(want.shape), want), "other bits through the engine"
    for top in (3, 300):
        lines = espalier(exe, "logits", "-m", t.path, "--tokens", listed, "--top", str(top)).stdout.splitlines()
        for pos, (line, row) in enumerate(zip(map(json.loads, lines), want)):
            best = np.argsort(-row, kind="stable")[:top]
            assert (line["pos"], line["token"], line["ids"]) == (pos, ids[pos], [int(i) for i in best])
            assert np.array_equal(np.array(line["logits"], "<f4"), row[best])
        assert len(lines) == len(ids)
    assert espalier(exe, "logits", "-m", t.path, "--tokens", "1,%d" % t.exact.n_vocab).returncode == 1
    for bad in ("", "1,,2", "1,x", "-1", "1,", "1.5", "99999999999"):
        assert espalier(exe, "logits", "-m", t.path, "--tokens", bad).returncode == 2, bad


def check_perplexity_verb(t, exe):
    text = os.path.join(t.folder, "text")
    with open(text, "w") as f:
        f.write("Qx zj 17!")
    done = espalier(exe, "perplexity", "-m", t.path, "-f", text)
    assert done.returncode == 0, done.stderr
    ids = json.loads(subprocess.run([exe, "tokenize", "--vocab", t.path], input='{"text":"Qx zj 17!"}\n',
                                    capture_output=True, text=True).stdout)["ids"]
    if t.exact.file.kv["tokenizer.ggml.add_bos_token"]:
        ids = [t.exact.file.kv["tokenizer.ggml.bos_token_id"]] + ids
    p = reference.log_softmax(t.exact.logits(ids))
    want = -np.mean([p[i, ids[i + 1]] for i in range(len(ids) - 1)])
    got = float(done.stdout.splitlines()[-1].split()[-1])
    assert abs(got - want) < 0.01, "%f, not %f" % (got, want)


def verb_tests(tool, exe, folder):
    for name in ("llama_narrow", "gemma3_f32"):
        t = Tiny(next(m for m in make_tiny.MODELS if m["name"] == name), tool, folder)
        yield name + "_logits", lambda t=t: check_logits_verb(t, exe)
        yield name + "_perplexity", lambda t=t: check_perplexity_verb(t, exe)


def main():
    with tempfile.TemporaryDirectory() as folder:
        tool = sys.argv[2]
        tests = list({
            "tiny": lambda: tiny_tests(tool, folder),
            "recorded": lambda: recorded_tests(tool, sys.argv[3], folder),
            "verbs": lambda: verb_tests(tool, sys.argv[3], folder),
        }[sys.argv[1]]())
        print("TAP version 13\n1..%d" % len(tests), flush=True)
        failed = 0
        for number, (name, test) in enumerate(tests, 1):
            try:
                test()
                word = "ok"
            except Exception:
                print("# " + traceback.format_exc().strip().replace("\n", "\n# "))
                word, failed = "not ok", failed + 1
            print("%s %d - %s" % (word, number, name), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
