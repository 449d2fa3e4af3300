#!/usr/bin/env python3
"""Writes a GGUF file of a known shape and type with random weights: its text is noise, its speed is real.

  make_model.py SHAPE:TYPE OUT.gguf     shapes and types below; 1b:Q4_K_M takes about 800 MB

Matrices repeat a few million random weights, so that a file takes seconds. "Q4_K_M" mixes types as llama.cpp's
quantiser does, with its fallbacks for rows that are no multiple of 256. Espalier and llama.cpp both load the files.
"""

import pathlib
import sys
import zlib

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import make_tiny  # noqa: E402
from make_tiny import BOOL, I32, STRING, U32, array, kv  # noqa: E402

N_RANDOM = 1 << 22  # weights of a matrix that are drawn; the rest repeats them
SHAPES = {
    "135m": dict(arch="llama", n_layer=30, n_embd=576, n_head=9, n_kv=3, head_dim=64, n_ff=1536, vocab=49152),
    "0.5b": dict(
        arch="qwen2", n_layer=24, n_embd=896, n_head=14, n_kv=2, head_dim=64, n_ff=4864, vocab=151936, bias=True
    ),
    "1b": dict(arch="llama", n_layer=16, n_embd=2048, n_head=32, n_kv=8, head_dim=64, n_ff=8192, vocab=128256),
}
TYPES = ("Q4_0", "Q4_1", "Q8_0", "Q4_K_M")
NARROW = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}  # for rows that are no multiple of 256


class Writer(make_tiny.Writer):
    """Keeps the types of a mix; draws the first rows of a matrix and repeats them."""

    def __init__(self, shape, mix):
        super().__init__(zlib.crc32(mix.encode()))
        self.mix, self.n_layer = mix, shape["n_layer"]

    def kind(self, name, n_in):
        if name == "token_embd.weight":
            wanted = "Q8_0" if self.mix == "Q8_0" else "Q6_K"
        elif self.mix != "Q4_K_M":
            wanted = self.mix
        else:
            layer, n = int(name.split(".")[1]), self.n_layer
            more = layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2
            wanted = "Q6_K" if more and ("attn_v" in name or "ffn_down" in name) else "Q4_K"
        return NARROW.get(wanted, wanted) if n_in % 256 != 0 else wanted

    def matrix(self, name, n_in, n_out, kind, size):
        kind = self.kind(name, n_in)
        n_drawn = min(n_out, max(1, N_RANDOM // n_in))
        super().matrix(name, n_in, n_drawn, kind, size)
        self.infos.pop()
        drawn = self.data.pop()
        self.n -= 1
        row_bytes = n_in // make_tiny.reference.TYPES[make_tiny.TYPE[kind]][0]
        row_bytes *= make_tiny.reference.TYPES[make_tiny.TYPE[kind]][1]
        padded = n_drawn * row_bytes + -(n_drawn * row_bytes) % 32
        self.end -= padded
        rows = np.frombuffer(drawn[: n_drawn * row_bytes], np.uint8).reshape(n_drawn, row_bytes)
        whole = rows[np.arange(n_out) % n_drawn]
        self.add(name, [n_in, n_out], make_tiny.TYPE[kind], whole.tobytes())


def vocabulary(n):
    """The 256 bytes, then words that nothing is merged to."""
    keys, n_small = make_tiny.bpe_vocabulary(0)
    letters = make_tiny.byte_letters()
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [letters[b] for b in range(256)]
    tokens += ["Ġw%d" % i for i in range(n - n_small)]
    types = [3, 3, 3] + [1] * (n - 3)
    return [
        kv("tokenizer.ggml.model", STRING, "gpt2"),
        kv("tokenizer.ggml.pre", STRING, "gpt-2"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", I32, types),
        array("tokenizer.ggml.merges", STRING, ["t h"]),
        kv("tokenizer.ggml.bos_token_id", U32, 1),
        kv("tokenizer.ggml.eos_token_id", U32, 2),
        kv("tokenizer.ggml.add_bos_token", BOOL, 0),
    ]


def make(name, path):
    shape_name, _, mix = name.partition(":")
    if shape_name not in SHAPES or mix not in TYPES:
        raise SystemExit("%s: SHAPE:TYPE with %s and %s" % (name, ", ".join(SHAPES), ", ".join(TYPES)))
    shape = dict(SHAPES[shape_name], name=name, ctx=8192, base=1000000.0)
    w = Writer(shape, mix)
    w.matrix("token_embd.weight", shape["n_embd"], shape["vocab"], lambda: mix, 3)
    for layer in range(shape["n_layer"]):
        make_tiny.layer(w, shape, layer, lambda: mix)
    w.vector("output_norm.weight", shape["n_embd"], 1, 0.2)
    w.save(path, make_tiny.metadata(shape) + vocabulary(shape["vocab"]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    make(sys.argv[1], sys.argv[2])
