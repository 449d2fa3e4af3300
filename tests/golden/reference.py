#!/usr/bin/env python3
"""The forward pass in float64, written from the published mathematics, to check the program against.

Nothing here is shared with the program: GGUF files are parsed, blocks decoded and the model computed with numpy
alone. Two modes:
  exact     float64 throughout: what the model file means.
  contract  the same, with the roundings that kernels/ops.h allows itself written down: the input of a
            matrix of quantised type is quantised to 8 bits in groups of 32; queries, keys, values and the
            weights of a span of attention are integers. What remains between this and the program is
            float32 rounding.

  reference.py MODEL --tokens 1,2,3 [--contract] [--out FILE]   raw little-endian f32, as `espalier logits`
"""

import argparse
import struct

import numpy as np

SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
STRING, ARRAY = 8, 9


class Gguf:
    """Metadata as `kv`, and `tensors`: name -> (type number, dims innermost first, bytes)."""

    def __init__(self, path):
        self.raw = np.memmap(path, dtype=np.uint8, mode="r")
        self.at = 0
        assert bytes(self.raw[:4]) == b"GGUF"
        self.at = 8
        n_tensors, n_kv = self.scalar(10), self.scalar(10)
        self.kv = {}
        for _ in range(n_kv):
            key = self.string()
            self.kv[key] = self.value(self.scalar(4))
        infos = []
        for _ in range(n_tensors):
            name = self.string()
            dims = [self.scalar(10) for _ in range(self.scalar(4))]
            infos.append((name, dims, self.scalar(4), self.scalar(10)))
        align = self.kv.get("general.alignment", 32)
        start = -(-self.at // align) * align
        self.tensors = {}
        for name, dims, kind, offset in infos:
            block, size, _ = TYPES[kind]
            n = int(np.prod(dims)) // block * size
            self.tensors[name] = (kind, dims, self.raw[start + offset : start + offset + n])

    def scalar(self, kind):
        dtype = np.dtype(SCALARS[kind])
        value = np.frombuffer(self.raw[self.at : self.at + dtype.itemsize].tobytes(), dtype)[0]
        self.at += dtype.itemsize
        return value.item()

    def string(self):
        n = self.scalar(10)
        self.at += n
        return self.raw[self.at - n : self.at].tobytes().decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.scalar(kind)
        item, n = self.scalar(4), self.scalar(10)
        if item == STRING:
            return [self.string() for _ in range(n)]
        dtype = np.dtype(SCALARS[item])
        self.at += n * dtype.itemsize
        return np.frombuffer(self.raw[self.at - n * dtype.itemsize : self.at].tobytes(), dtype)

    def matrix(self, name, first=0, n=None):
        """Rows first … first + n of a tensor as float64 [n, n_in]; a vector is one row."""
        kind, dims, data = self.tensors[name]
        block, size, decode = TYPES[kind]
        rows = int(np.prod(dims[1:]))
        row_bytes = dims[0] // block * size
        n = rows - first if n is None else min(n, rows - first)
        part = np.ascontiguousarray(data[first * row_bytes : (first + n) * row_bytes]).reshape(-1, size)
        return decode(part).reshape(n, dims[0])


# ---- Decoders: blocks [n, bytes] of uint8 to values [n, block] of float64 -----------------------------------


def plain(dtype):
    return lambda b: b.reshape(-1).view(dtype).astype(np.float64)


def bf16(b):
    return (b.reshape(-1).view("<u2").astype(np.uint32) << 16).view("<f4").astype(np.float64)


def half(b, at):
    return np.ascontiguousarray(b[:, at : at + 2]).view("<f2").astype(np.float64)  # [n, 1]


def low_high(q):
    """Bytes [n, k] to nibbles [n, 2k]: all the low ones, then all the high ones."""
    return np.concatenate([q & 15, q >> 4], axis=1).astype(np.float64)


def bits32(b, at):
    """The 32 bits of a little-endian word, [n, 32]."""
    return np.unpackbits(np.ascontiguousarray(b[:, at : at + 4]), axis=1, bitorder="little").astype(np.float64)


def q4_0(b):
    return (low_high(b[:, 2:18]) - 8) * half(b, 0)


def q4_1(b):
    return low_high(b[:, 4:20]) * half(b, 0) + half(b, 2)


def q5_0(b):
    return (low_high(b[:, 6:22]) + 16 * bits32(b, 2) - 16) * half(b, 0)


def q5_1(b):
    return (low_high(b[:, 8:24]) + 16 * bits32(b, 4)) * half(b, 0) + half(b, 2)


def q8_0(b):
    return b[:, 2:34].view(np.int8).astype(np.float64) * half(b, 0)


def two_bits(q):
    """64 bytes [n, 64] to 256 values: in each half, four planes of 32."""
    q = q.reshape(-1, 2, 1, 32)
    shift = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    return ((q >> shift) & 3).reshape(-1, 256).astype(np.float64)


def spread(groups, size):
    """One number a group [n, g] to one a value [n, g * size]."""
    return np.repeat(groups, size, axis=1)


def q2_k(b):
    scale = half(b, 80) * (b[:, :16] & 15)
    low = half(b, 82) * (b[:, :16] >> 4)
    return spread(scale, 16) * two_bits(b[:, 16:80]) - spread(low, 16)


def q3_k(b):
    plane = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    high = ((b[:, :32].reshape(-1, 1, 32) >> plane) & 1).reshape(-1, 256)
    s = b[:, 96:108]
    lows = np.concatenate([s[:, :8] & 15, s[:, :8] >> 4], axis=1)
    tops = np.concatenate([(s[:, 8:12] >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)
    scale = (lows | (tops << 4)).astype(np.float64) - 32
    return spread(half(b, 108) * scale, 16) * (two_bits(b[:, 32:96]) - 4 * (1.0 - high))


def scales_6bit(s):
    """12 bytes to eight scales and eight minima of 6 bits."""
    scale = np.concatenate([s[:, :4] & 63, (s[:, 8:] & 15) | ((s[:, :4] >> 6) << 4)], axis=1)
    low = np.concatenate([s[:, 4:8] & 63, (s[:, 8:] >> 4) | ((s[:, 4:8] >> 6) << 4)], axis=1)
    return scale.astype(np.float64), low.astype(np.float64)


def nibble_groups(q):
    """128 bytes to 256 values: each 32 bytes hold one group in the low nibbles and the next in the high ones."""
    q = q.reshape(-1, 4, 1, 32)
    return np.concatenate([q & 15, q >> 4], axis=2).reshape(-1, 256).astype(np.float64)


def q4_k(b):
    scale, low = scales_6bit(b[:, 4:16])
    return spread(half(b, 0) * scale, 32) * nibble_groups(b[:, 16:144]) - spread(half(b, 2) * low, 32)


def q5_k(b):
    scale, low = scales_6bit(b[:, 4:16])
    group = np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    high = ((b[:, 16:48].reshape(-1, 1, 32) >> group) & 1).reshape(-1, 256)
    q = nibble_groups(b[:, 48:176]) + 16.0 * high
    return spread(half(b, 0) * scale, 32) * q - spread(half(b, 2) * low, 32)


def q6_k(b):
    ql = b[:, :128].reshape(-1, 2, 2, 32)
    low = np.concatenate([ql & 15, ql >> 4], axis=2).reshape(-1, 256)
    high = two_bits(b[:, 128:192])
    scale = half(b, 208) * np.ascontiguousarray(b[:, 192:208]).view(np.int8)
    return spread(scale, 16) * (low + 16 * high - 32)


TYPES = {
    0: (1, 4, plain("<f4")),
    1: (1, 2, plain("<f2")),
    30: (1, 2, bf16),
    2: (32, 18, q4_0),
    3: (32, 20, q4_1),
    6: (32, 22, q5_0),
    7: (32, 24, q5_1),
    8: (32, 34, q8_0),
    10: (256, 84, q2_k),
    11: (256, 110, q3_k),
    12: (256, 144, q4_k),
    13: (256, 176, q5_k),
    14: (256, 210, q6_k),
}
FLOATS = (0, 1, 30)

# ---- The model ----------------------------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def quantise_8bit(x):
    """Rows to the values that 8-bit groups of 32 can hold: scale = largest magnitude / 127."""
    g = x.astype(np.float32).reshape(x.shape[0], -1, 32)
    top = np.abs(g).max(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(top > 0, np.rint(g * (np.float32(127) / top)), 0)
    return (q.astype(np.float64) * (top / np.float32(127))).reshape(x.shape)


def integers(x, size, high):
    """Rows (the last axis) as integers times a scale, size the number that becomes `high`; both as float64."""
    step = size.astype(np.float32) / np.float32(high)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(size > 0, np.rint(x.astype(np.float32) * (np.float32(high) / size.astype(np.float32))), 0)
    return q.astype(np.float64), step.astype(np.float64)


def long_integers(x):
    """Queries and keys: their length becomes 32767."""
    return integers(x, np.sqrt((x**2).sum(axis=-1, keepdims=True)), 32767)


def attend_in_integers(q, k, v, visible, scale):
    """One head: q [n, dim], k and v [n_positions, dim], spans of 512 positions."""
    (qi, dq), (ki, dk) = long_integers(q), long_integers(k)
    vi, dv = integers(v, np.abs(v).max(axis=-1, keepdims=True), 2047)
    s = np.where(visible, (qi @ ki.T) * dk.T * dq * scale, -np.inf)
    top, total, out = s.max(axis=1, keepdims=True), 0, 0
    for span in range(0, k.shape[0], 512):
        here = s[:, span : span + 512]
        best = here.max(axis=1, keepdims=True)
        seen = np.isfinite(best)
        p = np.exp(here - np.where(seen, best, 0))
        w, step = integers(p * dv[span : span + 512].T, (p * dv[span : span + 512].T).max(axis=1, keepdims=True), 8191)
        back = np.where(seen, np.exp(best - top), 0)
        total = total + back * p.sum(axis=1, keepdims=True)
        out = out + back * step * (w @ vi[span : span + 512])
    return out / total


class Model:
    def __init__(self, path, contract=False):
        self.file, self.contract = Gguf(path), contract
        kv = self.file.kv
        self.arch = kv["general.architecture"]

        def key(name, default=None):
            value = kv.get(self.arch + "." + name, default)
            assert value is not None, name
            return value

        self.n_layer, self.n_embd, self.n_head = (
            key("block_count"),
            key("embedding_length"),
            key("attention.head_count"),
        )
        self.n_kv = key("attention.head_count_kv", self.n_head)
        self.head_dim = key("attention.key_length", self.n_embd // self.n_head)
        self.n_rot = key("rope.dimension_count", self.head_dim)
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.base, self.base_window = key("rope.freq_base", 10000.0), key("rope.freq_base_swa", 10000.0)
        self.factor = key("rope.scaling.factor", 1.0)
        self.gemma = self.arch == "gemma3"
        self.window = key("attention.sliding_window", 0) if self.gemma else 0
        self.period = key("attention.sliding_window_pattern", 6)
        self.adjacent = self.arch == "llama"  # rope pairs (2i, 2i+1); the others (i, i + n/2)
        self.scale = self.head_dim**-0.5
        self.head = "output.weight" if "output.weight" in self.file.tensors else "token_embd.weight"
        self.n_vocab = self.file.tensors["token_embd.weight"][1][1]

    def vector(self, name):
        return self.file.matrix(name)[0] if name in self.file.tensors else None

    def linear(self, x, name, bias=None):
        kind, dims, _ = self.file.tensors[name]
        if self.contract and kind not in FLOATS:
            x = quantise_8bit(x)
        step = max(1, (1 << 24) // dims[0])
        y = np.concatenate([x @ self.file.matrix(name, at, step).T for at in range(0, dims[1], step)], axis=1)
        b = self.vector(bias) if bias else None
        return y if b is None else y + b

    def rope(self, x, pos, windowed):
        """x [n, heads, head_dim]."""
        i = np.arange(self.n_rot // 2)
        freq = (self.base_window if windowed else self.base) ** (-2.0 * i / self.n_rot)
        if not windowed:
            freq = freq / self.factor
            factors = self.vector("rope_freqs.weight")
            freq = freq if factors is None else freq / factors
        angle = pos[:, None, None] * freq
        cos, sin = np.cos(angle), np.sin(angle)
        a, b = (2 * i, 2 * i + 1) if self.adjacent else (i, i + self.n_rot // 2)
        y = x.copy()
        y[..., a] = x[..., a] * cos - x[..., b] * sin
        y[..., b] = x[..., a] * sin + x[..., b] * cos
        return y

    def attention(self, x, layer):
        p, n = "blk.%d." % layer, x.shape[0]
        windowed = self.window > 0 and layer % self.period < self.period - 1
        q = self.linear(x, p + "attn_q.weight", p + "attn_q.bias").reshape(n, self.n_head, self.head_dim)
        k = self.linear(x, p + "attn_k.weight", p + "attn_k.bias").reshape(n, self.n_kv, self.head_dim)
        v = self.linear(x, p + "attn_v.weight", p + "attn_v.bias").reshape(n, self.n_kv, self.head_dim)
        if p + "attn_q_norm.weight" in self.file.tensors:
            q = rms_norm(q, self.vector(p + "attn_q_norm.weight"), self.eps)
            k = rms_norm(k, self.vector(p + "attn_k_norm.weight"), self.eps)
        pos = np.arange(n)
        q, k = self.rope(q, pos, windowed), self.rope(k, pos, windowed)
        back = pos[:, None] - pos[None, :]
        visible = (back >= 0) & ((back < self.window) | (not windowed))
        out = np.empty((n, self.n_head, self.head_dim))
        for h in range(self.n_head):
            g = h // (self.n_head // self.n_kv)
            if self.contract:
                out[:, h] = attend_in_integers(q[:, h], k[:, g], v[:, g], visible, self.scale)
                continue
            s = np.where(visible, q[:, h] @ k[:, g].T * self.scale, -np.inf)
            w = np.exp(s - s.max(axis=1, keepdims=True))
            out[:, h] = w / w.sum(axis=1, keepdims=True) @ v[:, g]
        return self.linear(out.reshape(n, -1), p + "attn_output.weight", p + "attn_output.bias")

    def feed_forward(self, x, layer):
        p = "blk.%d." % layer
        act = gelu_tanh if self.gemma else silu
        return self.linear(
            act(self.linear(x, p + "ffn_gate.weight")) * self.linear(x, p + "ffn_up.weight"), p + "ffn_down.weight"
        )

    def after(self, y, name):
        weight = self.vector(name)
        return y if weight is None else rms_norm(y, weight, self.eps)

    def hidden(self, tokens, rows=None):
        """[n_tokens, n_embd] of float64: what the final norm gives, or only the wanted rows of it."""
        x = np.concatenate([self.file.matrix("token_embd.weight", t, 1) for t in tokens])
        if self.gemma:
            x = x * np.sqrt(self.n_embd)
        for layer in range(self.n_layer):
            p = "blk.%d." % layer
            y = self.attention(rms_norm(x, self.vector(p + "attn_norm.weight"), self.eps), layer)
            x = x + self.after(y, p + "post_attention_norm.weight")
            y = self.feed_forward(rms_norm(x, self.vector(p + "ffn_norm.weight"), self.eps), layer)
            x = x + self.after(y, p + "post_ffw_norm.weight")
        x = x if rows is None else x[rows]
        return rms_norm(x, self.vector("output_norm.weight"), self.eps)

    def logits(self, tokens, rows=None):
        """[n_tokens, n_vocab] of float64, or only the wanted rows."""
        return self.linear(self.hidden(tokens, rows), self.head)


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def kl(reference, other):
    """Kullback-Leibler divergence of each row's distribution from the reference's, in nats."""
    p, q = log_softmax(reference), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--contract", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    got = Model(args.model, args.contract).logits([int(t) for t in args.tokens.split(",")])
    if args.out:
        got.astype("<f4").tofile(args.out)
        return
    for pos, row in enumerate(got):
        best = np.argsort(-row)[:5]
        print(pos, " ".join("%d:%.4f" % (t, row[t]) for t in best))


if __name__ == "__main__":
    main()
