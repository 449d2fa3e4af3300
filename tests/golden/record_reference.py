#!/usr/bin/env python3
"""Records what two other implementations say about the two real models: llama.cpp, through llama-cpp-python,
and the float64 reference beside this file. Needs `pip install llama-cpp-python==0.3.36 numpy`.

  record_reference.py MODEL.gguf recorded_NAME.json

For every text: its ids (made by llama.cpp's tokenizer), the greedy continuation of 32 tokens by llama.cpp, and for
the recorded positions of text plus continuation the ten best ids with their logits and the logsumexp of the row, from
both. Logits are rounded to four decimals.
"""

import hashlib
import json
import os
import sys

import llama_cpp
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference  # noqa: E402

N_GREEDY, N_TOP = 32, 10
LIST = "".join("%d squared is %d, and its last digit is %d.\n" % (n, n * n, n * n % 10) for n in range(3, 40))
TEXTS = [
    {"text": "The capital of France is Paris. The capital of Japan is"},
    {"text": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'},
    {"text": 'Die Katze saß auf der Matte, 猫は眠い — and the dog said: "Ça va?" \U0001f642'},
    {
        "text": "<|im_start|>user\nName three colours of the rainbow.<|im_end|>\n<|im_start|>assistant\n",
        "only": "llama",
    },
    {"text": LIST, "every": 40},
]


def top(row):
    best = np.argsort(-row, kind="stable")[:N_TOP]
    peak = float(row[best[0]])
    return {
        "ids": [int(t) for t in best],
        "logits": [round(float(row[t]), 4) for t in best],
        "logsumexp": round(peak + float(np.log(np.exp(row.astype(np.float64) - peak).sum())), 4),
    }


def greedy(model, ids):
    model.reset()
    model.eval(ids)
    new = []
    while True:
        row = model.scores[model.n_tokens - 1]
        new.append(int(np.argmax(row)))
        if len(new) == N_GREEDY:
            return new
        model.eval(new[-1:])


def record(model, exact, text, add_bos):
    ids = model.tokenize(text["text"].encode(), add_bos=add_bos, special=True)
    new = greedy(model, ids)
    every = ids + new
    model.reset()
    model.eval(every)
    n, step = len(every), text.get("every", 1)
    rows = sorted(set(range(0, len(ids) - 1, step)) | set(range(len(ids) - 1, n - 1, 1 if step == 1 else 4)))
    theirs, ours = np.array(model.scores[:n]), exact.logits(every, rows)
    return {
        "text": text["text"],
        "ids": ids,
        "greedy": new,
        "positions": rows,
        "llama_cpp": [top(theirs[r]) for r in rows],
        "float64": [top(row) for row in ours],
    }


def main():
    path, out = sys.argv[1:]
    model = llama_cpp.Llama(path, n_ctx=2048, logits_all=True, verbose=False, n_threads=1, n_batch=512)
    exact = reference.Model(path)
    digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
    add_bos = bool(exact.file.kv.get("tokenizer.ggml.add_bos_token"))
    made = {
        "script": "tests/golden/record_reference.py",
        "llama-cpp-python": llama_cpp.__version__,
        "numpy": np.__version__,
        "model": os.path.basename(path),
        "sha256": digest,
        "n_threads": 1,
        "n_batch": 512,
        "n_ctx": 2048,
        "add_bos": add_bos,
    }
    texts = [record(model, exact, t, add_bos) for t in TEXTS if t.get("only", exact.arch) == exact.arch]
    with open(out, "w") as f:
        f.write('{"manifest": ' + json.dumps(made) + ',\n"texts": [\n')
        f.write(",\n".join(json.dumps(t, ensure_ascii=False, separators=(",", ":")) for t in texts) + "\n]}\n")


if __name__ == "__main__":
    main()
