#!/usr/bin/env python3
"""Writes tiny random models of each architecture, small enough for a test and complete enough for the engine.

  make_tiny.py DIR            all models of MODELS
  make_tiny.py DIR NAME …     some of them

Weights are random blocks of the wanted type: every bit pattern of quants and scales occurs. Block scales are
chosen so that a matrix keeps the size of its input. The vocabulary has all 256 bytes and a few special tokens.
The same name always gives the same file.
"""

import os
import struct
import sys
import zlib

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import reference  # noqa: E402

U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TYPE = {
    "F32": 0,
    "F16": 1,
    "BF16": 30,
    "Q4_0": 2,
    "Q4_1": 3,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
}

# Where the half-precision scale of a block lies, and the minimum with its ratio to the scale that
# makes the mean of the values zero.
SCALES = {
    "Q4_0": (0, None, 0),
    "Q4_1": (0, 2, -7.5),
    "Q5_0": (0, None, 0),
    "Q5_1": (0, 2, -15.5),
    "Q8_0": (0, None, 0),
    "Q2_K": (80, 82, 1.5),
    "Q3_K": (108, None, 0),
    "Q4_K": (0, 2, 7.5),
    "Q5_K": (0, 2, 15.5),
    "Q6_K": (208, None, 0),
}


def row(name, arch, weights, **more):
    return dict(
        {
            "name": name,
            "arch": arch,
            "types": weights,
            "n_layer": 2,
            "n_embd": 256,
            "n_head": 4,
            "n_kv": 2,
            "head_dim": 64,
            "n_ff": 512,
            "tied": False,
            "extra_tokens": 5,
            "ctx": 2048,
        },
        **more
    )


MODELS = [
    # every weight type, on llama
    *[row("llama_" + t.lower(), "llama", [t]) for t in TYPE],
    # shapes: narrow, odd vocabulary, many query heads a key head, one key head, no sharing
    row("llama_narrow", "llama", ["F32"], n_embd=64, n_head=4, n_kv=1, head_dim=32, n_ff=96, extra_tokens=18),
    row("llama_wide_head", "llama", ["F32"], n_embd=96, n_head=2, n_kv=2, head_dim=128, n_ff=160, tied=True),
    row("llama_mixed", "llama", ["Q4_0", "Q5_0", "Q8_0", "F16"], n_embd=160, n_head=5, n_kv=5, head_dim=32, n_ff=352),
    row("llama3", "llama", ["Q4_K", "Q6_K"], rope_freqs=True, base=500000.0, n_head=8, n_kv=2, head_dim=32),
    row("llama_linear", "llama", ["F32"], factor=4.0, n_embd=64, n_head=2, n_kv=1, head_dim=32, n_ff=64, tied=True),
    row("llama_part_rope", "llama", ["F32"], n_rot=16, n_embd=64, n_head=2, n_kv=1, head_dim=32, n_ff=64),
    row("qwen2", "qwen2", ["Q8_0"], bias=True, tied=True, base=1000000.0),
    row("qwen2_f32", "qwen2", ["F32"], bias=True, n_embd=96, n_head=3, n_kv=1, head_dim=32, n_ff=128),
    row("qwen3", "qwen3", ["Q4_K", "Q6_K"], head_dim=128, n_head=4, n_kv=2, base=1000000.0, tied=True),
    row("qwen3_f32", "qwen3", ["F32"], n_embd=64, head_dim=128, n_head=2, n_kv=1, n_ff=96),
    row(
        "gemma3",
        "gemma3",
        ["Q5_0", "Q4_K", "Q8_0", "Q6_K"],
        n_layer=7,
        head_dim=256,
        n_head=2,
        n_kv=1,
        window=20,
        base=1000000.0,
        tied=True,
    ),
    row(
        "gemma3_f32",
        "gemma3",
        ["F32"],
        n_layer=7,
        n_embd=64,
        head_dim=32,
        n_head=4,
        n_kv=2,
        n_ff=128,
        window=9,
        period=3,
        base=1000000.0,
        factor=8.0,
    ),
    row("gemma3_no_window", "gemma3", ["BF16"], n_embd=64, head_dim=64, n_head=2, n_kv=1, n_ff=96, tied=True),
]


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def kv(key, kind, value):
    head = string(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + string(value)
    return head + struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<B"}[kind], value)


def array(key, kind, values):
    if kind == STRING:
        body = b"".join(string(v) for v in values)
    else:
        body = np.asarray(values, {I32: "<i4", F32: "<f4"}[kind]).tobytes()
    return string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + body


def byte_letters():
    """The printable letters that byte-level BPE writes for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte if byte in plain else 256 + more)
        more += byte not in plain
    return letters


def bpe_vocabulary(n_extra):
    letters = byte_letters()
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [letters[b] for b in range(256)]
    types = [3, 3, 3] + [1] * 256
    pairs = "t h,i n,a n,e r,o n,th e,in g,an d,r e,a t,e n,o r,i s,i t,a l,e s,o u,a r".split(",")
    merges = pairs[:n_extra]
    tokens += [m.replace(" ", "") for m in merges]
    types += [1] * len(merges)
    template = (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
        " + '<|im_end|>' + '\n'}}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    keys = [
        kv("tokenizer.ggml.model", STRING, "gpt2"),
        kv("tokenizer.ggml.pre", STRING, "gpt-2"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", I32, types),
        array("tokenizer.ggml.merges", STRING, merges),
        kv("tokenizer.ggml.bos_token_id", U32, 1),
        kv("tokenizer.ggml.eos_token_id", U32, 2),
        kv("tokenizer.ggml.add_bos_token", BOOL, 0),
        kv("tokenizer.chat_template", STRING, template),
    ]
    return keys, len(tokens)


def spm_vocabulary(n_extra):
    words = "▁ e t a o i n s ▁t he ▁the in er an ▁a on re at".split()[:n_extra]
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)] + words
    types = [2, 3, 3] + [6] * 256 + [1] * len(words)
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))]
    keys = [
        kv("tokenizer.ggml.model", STRING, "llama"),
        kv("tokenizer.ggml.pre", STRING, "default"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.scores", F32, scores),
        array("tokenizer.ggml.token_type", I32, types),
        kv("tokenizer.ggml.bos_token_id", U32, 1),
        kv("tokenizer.ggml.eos_token_id", U32, 2),
        kv("tokenizer.ggml.unknown_token_id", U32, 0),
        kv("tokenizer.ggml.add_bos_token", BOOL, 1),
        kv("tokenizer.ggml.add_space_prefix", BOOL, 0),
    ]
    return keys, len(tokens)


class Writer:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.infos, self.data, self.end, self.n = [], [], 0, 0

    def add(self, name, dims, kind, data):
        self.infos.append(
            string(name)
            + struct.pack("<I", len(dims))
            + b"".join(struct.pack("<Q", d) for d in dims)
            + struct.pack("<IQ", kind, self.end)
        )
        data += b"\0" * (-len(data) % 32)
        self.data.append(data)
        self.end += len(data)
        self.n += 1

    def vector(self, name, n, mean, spread):
        self.add(name, [n], 0, (mean + spread * self.rng.standard_normal(n)).astype("<f4").tobytes())

    def matrix(self, name, n_in, n_out, kind, size):
        """Values of about size / sqrt(n_in)."""
        want = size / np.sqrt(n_in)
        number = TYPE[kind]
        if kind in ("F32", "F16", "BF16"):
            values = (want * self.rng.standard_normal(n_in * n_out)).astype("<f4")
            data = (
                values
                if kind == "F32"
                else values.astype("<f2") if kind == "F16" else (values.view("<u4") >> 16).astype("<u2")
            )
            self.add(name, [n_in, n_out], number, data.tobytes())
            return
        block, n_bytes, decode = reference.TYPES[number]
        blocks = self.rng.integers(0, 256, (n_in * n_out // block, n_bytes), dtype=np.uint8)
        at, min_at, ratio = SCALES[kind]

        def scale(d):
            blocks[:, at : at + 2] = d.astype("<f2").view(np.uint8).reshape(-1, 2)
            if min_at is not None:
                blocks[:, min_at : min_at + 2] = (ratio * d).astype("<f2").view(np.uint8).reshape(-1, 2)

        scale(np.ones(len(blocks)))
        scale(want / np.sqrt(np.mean(decode(blocks) ** 2)) * self.rng.uniform(0.6, 1.4, len(blocks)))
        self.add(name, [n_in, n_out], number, blocks.tobytes())

    def save(self, path, keys):
        head = b"GGUF" + struct.pack("<IQQ", 3, self.n, len(keys)) + b"".join(keys) + b"".join(self.infos)
        with open(path, "wb") as f:
            f.write(head + b"\0" * (-len(head) % 32) + b"".join(self.data))


def metadata(m):
    arch = m["arch"]
    keys = [kv("general.architecture", STRING, arch), kv("general.name", STRING, "tiny " + m["name"])]

    def put(name, kind, value):
        keys.append(kv(arch + "." + name, kind, value))

    put("block_count", U32, m["n_layer"])
    put("context_length", U32, m["ctx"])
    put("embedding_length", U32, m["n_embd"])
    put("feed_forward_length", U32, m["n_ff"])
    put("attention.head_count", U32, m["n_head"])
    put("attention.head_count_kv", U32, m["n_kv"])
    put("attention.key_length", U32, m["head_dim"])
    put("attention.value_length", U32, m["head_dim"])
    put("attention.layer_norm_rms_epsilon", F32, 1e-5)
    put("rope.freq_base", F32, m.get("base", 10000.0))
    if "n_rot" in m:
        put("rope.dimension_count", U32, m["n_rot"])
    if "factor" in m:
        put("rope.scaling.type", STRING, "linear")
        put("rope.scaling.factor", F32, m["factor"])
    if "window" in m:
        put("attention.sliding_window", U32, m["window"])
    if "period" in m:
        put("attention.sliding_window_pattern", U32, m["period"])
    return keys


def layer(w, m, idx, kind):
    p, n_q, n_kv = "blk.%d." % idx, m["n_head"] * m["head_dim"], m["n_kv"] * m["head_dim"]
    gemma, qk_norm = m["arch"] == "gemma3", m["arch"] in ("qwen3", "gemma3")
    w.vector(p + "attn_norm.weight", m["n_embd"], 1, 0.2)
    w.matrix(p + "attn_q.weight", m["n_embd"], n_q, kind(), 1.6)
    w.matrix(p + "attn_k.weight", m["n_embd"], n_kv, kind(), 1.6)
    w.matrix(p + "attn_v.weight", m["n_embd"], n_kv, kind(), 1)
    if m.get("bias"):
        for name, n in (("q", n_q), ("k", n_kv), ("v", n_kv)):
            w.vector(p + "attn_%s.bias" % name, n, 0, 0.5)
    if qk_norm:
        w.vector(p + "attn_q_norm.weight", m["head_dim"], 1.5, 0.3)
        w.vector(p + "attn_k_norm.weight", m["head_dim"], 1.5, 0.3)
    w.matrix(p + "attn_output.weight", n_q, m["n_embd"], kind(), 1)
    w.vector(p + "ffn_norm.weight", m["n_embd"], 1, 0.2)
    w.matrix(p + "ffn_gate.weight", m["n_embd"], m["n_ff"], kind(), 1)
    w.matrix(p + "ffn_up.weight", m["n_embd"], m["n_ff"], kind(), 1)
    w.matrix(p + "ffn_down.weight", m["n_ff"], m["n_embd"], kind(), 1)
    if gemma:
        w.vector(p + "post_attention_norm.weight", m["n_embd"], 1, 0.2)
        w.vector(p + "post_ffw_norm.weight", m["n_embd"], 1, 0.2)


def make(m, path):
    w = Writer(zlib.crc32(m["name"].encode()))
    turn = [0]

    def kind():
        turn[0] += 1
        return m["types"][turn[0] % len(m["types"])]

    vocab, n_vocab = (spm_vocabulary if m["arch"] == "gemma3" else bpe_vocabulary)(m["extra_tokens"])
    n_vocab += m.get("rows_more", 0)  # rows of the embedding that no token has
    w.matrix("token_embd.weight", m["n_embd"], n_vocab, kind(), 3)
    for idx in range(m["n_layer"]):
        layer(w, m, idx, kind)
    w.vector("output_norm.weight", m["n_embd"], 1, 0.2)
    if not m["tied"]:
        w.matrix("output.weight", m["n_embd"], n_vocab, kind(), 3)
    if m.get("rope_freqs"):
        n = m["head_dim"] // 2
        factors = np.where(np.arange(n) < n // 3, 1.0, np.linspace(1, 8, n))
        w.add("rope_freqs.weight", [n], 0, factors.astype("<f4").tobytes())
    w.save(path, metadata(m) + vocab)


def main():
    names = sys.argv[2:]
    for m in MODELS:
        if not names or m["name"] in names:
            make(m, os.path.join(sys.argv[1], m["name"] + ".gguf"))


if __name__ == "__main__":
    main()
