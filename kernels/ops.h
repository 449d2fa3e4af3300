/* The device interface: one table of operations over plain pointers.
 *
 * A backend fills a `static const struct esp_ops`. The engine knows nothing else of a device.
 * Memory given out by `alloc` belongs to the device; on the CPU it is ordinary memory.
 *
 * Rules for every operation
 *   - Operations run in the order they are issued; `wait` returns when all have finished. A CPU
 *     backend may simply run them at once.
 *   - Nothing is allocated after `seal`; scratch memory is sized by struct esp_dev_config.
 *   - Matrices are row-major and dense: x [n_rows, dim] has no gaps. Out pointers do not alias
 *     inputs unless said here.
 *   - Rows are independent: the bits of row r do not depend on n_rows or on other rows. This is the
 *     determinism contract, and it holds across the levels of the CPU backend as well: `ref`, AVX2
 *     and AVX-512 give the same bits, because all follow the arithmetic written here.
 *
 * The arithmetic (all float operations are IEEE f32, round to nearest, in the order written;
 * "fma" is one fused operation; -ffp-contract=off, so nothing else is fused)
 *   sum16(v[0..n))  sixteen partial sums, lane i takes v[i], v[i+16], … in order, starting from 0
 *                   (elements past n count as 0); then lanes are added 8+8 (i and i+8), 4+4, 2+2,
 *                   1+1. "sum16 of a·b" accumulates with fma per lane.
 *   expf            esp_expf of kernels/ref/math.h: one fixed polynomial with fma, valid for
 *                   x ≤ 0 and for the ranges that silu, gelu need; vector code runs the same steps.
 *   quantise        a row is cut into groups of 32: amax = max |x|, d = amax / 127,
 *                   q = rint(x · (127 / amax)) (ties to even; the product is cut to ±127, NaN to 127);
 *                   d = 0 and q = 0 when amax < 2^-100 (NaN is not counted in amax);
 *                   s16[0..1] = the integer sums of q over each half, s = their sum.
 *   linear, integer types (every quantised type; weights w = scale·q − … as in the file)
 *                   Each output element starts at +0. For each group of 32 inputs in order k = 0, 1, …
 *                   and within it for each weight group g in order (one of 32 values, or two of 16 for
 *                   Q2_K, Q3_K, Q6_K): isum = Σ q_w·q_x as exact integers;
 *                   acc = fma(scale_g · d_x, (float)isum, acc);
 *                   and for types with a minimum: acc = fma(min_g, d_x · (float)s_x, acc), where s_x is
 *                   the integer sum of q_x over that group.
 *                   scale_g and min_g are f32 values that are exact: d·s for K-quants, −dmin·m for
 *                   their minimum (products rounded to f32 once where they are not exact), d and m
 *                   for Q4_1 and Q5_1. Q4_0, Q5_0, Q3_K, Q6_K use signed q_w (zero point taken off),
 *                   however the kernel stores it.
 *   linear, F32 F16 BF16: acc starts at +0; acc = fma(w_k, x_k, acc) for k = 0, 1, … n_in − 1.
 *                   Afterwards, in both: y = acc + bias when there is a bias, then with
 *                   ESP_LINEAR_ADD y = y_old + that.
 *   norm (RMS)      ss = sum16 of x·x; r = 1 / sqrtf(ss / dim + eps); y = (x · r) · w.
 *                   With ESP_NORM_ADD: y = y_old + ((x · r) · w).
 *   glu             out = act(gate) · up. SILU: x / (1 + exp(−x)). GELU_TANH: 0.5·x·(1 + tanh(u)),
 *                   u = 0.7978845608·(x + 0.044715·x³), through esp_expf as math.h defines them.
 *   rope            (a, b) → (a·c − b·s, a·s + b·c), each product rounded, then one sub or add.
 *   attn            Keys, queries and values are integers with one scale a row (a head of a position):
 *                   key, query  n = sqrtf(sum16 of x·x); x^ = rint(x · (32767 / n)), cut to ±32767, NaN to
 *                               32767; d = n / 32767. n < 2^-60: all 0. So |q^·k^| < 2^31 at any size.
 *                   value       a = max |x| (NaN not counted); x^ = rint(x · (2047 / a)), cut to ±2047, NaN to
 *                               2047; d = a / 2047. a < 2^-100: all 0.
 *                   Per query head, for spans of 512 positions [512·j, …) in order, over the visible ones:
 *                   u_t = (float)(q^·k^_t) · d_k,t; m = max u_t (NaN not counted);
 *                   f = d_q · scale (scale > 0); m_j = m · f;
 *                   p_t = expf(fma(u_t, f, −m_j)), 0 if not visible; l_j = sum16 of p over the span's positions;
 *                   w_t = p_t · d_v,t; W = max(0, w_t) (NaN not counted);
 *                   r_t = rint(min(w_t · (8191 / W), 8191)), NaN to 8191; W < 2^-100: 0 in place of 8191 / W;
 *                   o_j,d = (W / 8191) · Σ over the span's four blocks of 128 positions, in order from +0, of
 *                   (float)(Σ_t r_t · v^_t,d), whose integer sum is exact. A span without a visible position
 *                   is skipped.
 *                   Merge in order: first span: m = m_j, l = l_j, o = o_j; then M = max(m, m_j),
 *                   a = expf(m − M), b = expf(m_j − M), l = l·a + l_j·b, o = o·a + o_j·b (products
 *                   rounded, then one add), m = M. At the end out = o / l.
 *
 * KV pages: 16 tokens of every layer.
 *   page p at kv + p · page_bytes; in it layer l at l · layer_bytes; in it head h at h · head_bytes:
 *     K^  [head_dim / 2][16][2] i16  — two dimensions of 16 positions side by side
 *     V^  [8][head_dim][2]      i16  — two positions of all dimensions side by side
 *     d_k [16] f32, d_v [16] f32
 *   head_bytes = head_dim · 16 · 2 · 2 + 128, layer_bytes = n_head_kv · head_bytes, page_bytes = n_layer · layer_bytes.
 */
#ifndef ESP_KERNELS_OPS_H
#define ESP_KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/types.h"
#include "runtime/base/status.h"

#define ESP_PAGE_TOKENS 16
#define ESP_SPAN_TOKENS 512
#define ESP_PACK_ROWS 16     /* a matrix is packed in ranges of whole multiples of these */
#define ESP_LINEAR_FAN_OUT 3 /* matrices that may share one input */

struct esp_dev; /* a backend's own */

struct esp_dev_config {
    int n_threads;         /* compute threads, the caller's included; at least 1 */
    uint32_t n_rows_max;   /* rows of any batch */
    uint32_t n_in_max;     /* widest input of a linear */
    uint32_t head_dim_max; /* 32, 64, 128 or 256 */
    uint32_t n_ctx_max;    /* positions of any sequence */
};

struct esp_kv_geom {
    uint32_t n_layer, n_head_kv, head_dim;
};
static inline size_t esp_kv_layer_bytes(const struct esp_kv_geom *g)
{
    return (size_t)g->n_head_kv * ESP_PAGE_TOKENS * (g->head_dim * 2 * 2 + 2 * sizeof(float));
}
static inline size_t esp_kv_page_bytes(const struct esp_kv_geom *g)
{
    return g->n_layer * esp_kv_layer_bytes(g);
}

/* A matrix [n_out, n_in] in the backend's own layout, made once by `weight_pack`. */
struct esp_weight {
    const void *data; /* NULL: this weight is absent */
    size_t bytes;
    uint32_t n_out, n_in;
    enum esp_type type; /* of the file */
    uint32_t layout;    /* the backend's own number */
};

/* Rows [row, row_end) of a matrix to pack. A matrix may be packed in ranges, in any order, so that the file's
 * pages can be given back as they are read; it is whole when each row has been in one call. */
struct esp_pack_args {
    enum esp_type type;
    uint32_t n_out, n_in; /* of the whole matrix */
    uint32_t row;         /* a multiple of ESP_PACK_ROWS */
    uint32_t row_end;     /* a multiple of ESP_PACK_ROWS, or n_out */
    const void *src;      /* the whole matrix as in the file; only the range is read */
    void *dst;            /* weight_bytes of the whole matrix, from alloc; the same in each call */
};

/* x = rows `ids` of weight, each times scale: x [n_rows, n_in]. Values as esp_dequantize gives them. */
struct esp_embed_args {
    const struct esp_weight *weight; /* [n_vocab, n_in] */
    const uint32_t *ids;             /* [n_rows], each < n_out */
    float scale;                     /* 1 when there is none; the product is rounded to f32 */
    uint32_t n_rows;
    float *x;
};

enum esp_norm_flags { ESP_NORM_ADD = 1 };
struct esp_norm_args {
    const float *x; /* [n_rows, dim]; y may be x */
    const float *w; /* [dim] */
    float *y;
    uint32_t n_rows, dim; /* a norm per head is n_rows · n_head rows of head_dim */
    float eps;
    uint32_t flags;
};

enum esp_act { ESP_ACT_SILU, ESP_ACT_GELU_TANH };

/* GLU: two weights of one quantised type and shape, gate and up, without bias: y[0] = act(gate) · up, the bits of
 * linear and then glu; y[1] is not used. Not together with ADD. */
enum esp_linear_flags { ESP_LINEAR_ADD = 1, ESP_LINEAR_GLU = 2 };
struct esp_linear_args {
    uint32_t n_weights; /* 1 to ESP_LINEAR_FAN_OUT, all with the same n_in; x is quantised once */
    const struct esp_weight *weight[ESP_LINEAR_FAN_OUT];
    const float *bias[ESP_LINEAR_FAN_OUT]; /* [n_out] or NULL */
    float *y[ESP_LINEAR_FAN_OUT];          /* [n_rows, n_out] */
    const float *x;                        /* [n_rows, n_in] */
    uint32_t n_rows;
    uint32_t flags;
    enum esp_act act; /* of GLU */
};
/* Whether these two weights may be multiplied with ESP_LINEAR_GLU. */
static inline bool esp_linear_glu_fits(const struct esp_linear_args *args)
{
    const struct esp_weight *gate = args->weight[0], *up = args->weight[1];
    return args->n_weights == 2 && gate->type == up->type && gate->n_out == up->n_out &&
           esp_type_info((uint32_t)gate->type)->block > 1 && args->bias[0] == NULL && args->bias[1] == NULL;
}

/* cos_sin[r][i] = (cos, sin)(pos_r · inv_freq_i), each times mscale, computed in f64 and rounded once. */
struct esp_rope_table_args {
    const uint32_t *pos;    /* [n_rows] */
    const double *inv_freq; /* [n_rot / 2] */
    float mscale;
    uint32_t n_rows, n_rot;
    float *cos_sin; /* [n_rows, n_rot / 2, 2] */
};

enum esp_rope_kind { ESP_ROPE_NONE, ESP_ROPE_NORM /* pairs 2i, 2i+1 */, ESP_ROPE_NEOX /* pairs i, i+n_rot/2 */ };
/* Rotates q and k in place, then writes k and v of each row into its page. */
struct esp_rope_kv_args {
    float *q;             /* [n_rows, n_head, head_dim] */
    float *k;             /* [n_rows, n_head_kv, head_dim] */
    const float *v;       /* [n_rows, n_head_kv, head_dim] */
    const float *cos_sin; /* [n_rows, n_rot / 2, 2] */
    enum esp_rope_kind kind;
    uint32_t n_rot; /* even, at most head_dim; the rest is passed through */
    uint32_t n_rows, n_head;
    void *kv;
    struct esp_kv_geom geom;
    uint32_t layer;
    const uint32_t *page; /* [n_rows] page that holds the row's position */
    const uint32_t *pos;  /* [n_rows]; the slot in the page is pos % 16 */
};

/* Causal attention of each row over its sequence's pages: positions 0 … pos are visible, and with a
 * window only those with pos − t < window. */
struct esp_attn_args {
    const float *q; /* [n_rows, n_head, head_dim] */
    float *out;     /* [n_rows, n_head, head_dim] */
    const void *kv;
    struct esp_kv_geom geom;
    uint32_t layer;
    uint32_t n_rows, n_head;       /* n_head is a multiple of n_head_kv */
    const uint32_t *pos;           /* [n_rows] */
    const uint32_t *row_seq;       /* [n_rows] index into pages; equal neighbours may be tiled */
    const uint32_t *const *pages;  /* [n_seqs] → page of positions 16·i … 16·i + 15 */
    uint32_t window;               /* 0 = none */
    float scale; /* above 0 */
};

struct esp_glu_args {
    const float *gate, *up; /* [n_rows, dim] */
    float *out;             /* may be gate or up */
    uint32_t n_rows, dim;
    enum esp_act act;
};

/* Copies whole pages inside kv: the first tokens of a page are reused by copy. */
struct esp_copy_pages_args {
    void *kv;
    size_t page_bytes;
    const uint32_t *src, *dst; /* [n]; no page is in both */
    uint32_t n;
};

/* Sampling, a row at a time. Masked-out and biased logits never leave the device.
 * Order: penalties, bias, mask, then temperature 0 → highest logit (lowest id on a tie); else
 * top-k, softmax at temperature T, top-p (the fewest best tokens whose probabilities reach it, at least
 * one), min-p (logit ≥ best + T · ln min_p), and one draw with esp_rng_at(seed, pos) over what is
 * left, in order of id. Ties at a cut are kept by lowest id. Repetition: a positive logit is divided,
 * another multiplied, once per distinct token; then presence once and frequency per occurrence are
 * subtracted. Non-finite logits are cut to ±FLT_MAX, NaN to −FLT_MAX.
 * More than 4,096 biases or n_ctx_max tokens of history are ESP_ELIMIT. */
struct esp_sample_row {
    const float *logits;  /* [n_vocab] on the device; not changed */
    const uint64_t *mask; /* bit set = allowed; NULL = all. At least one bit is set */
    const uint32_t *bias_ids;
    const float *bias; /* [n_bias] */
    uint32_t n_bias;
    const uint32_t *history; /* generated tokens, for penalties */
    uint32_t n_history;
    float temperature, top_p, min_p; /* top_p 1 and min_p 0 switch them off */
    float repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0 */
    uint32_t top_k; /* 0 = all */
    uint64_t seed;
    uint64_t pos;
    uint32_t n_top; /* 0 to 20 alternatives wanted; logprobs of log-softmax after the mask */
    bool want_logprob;
    /* results */
    uint32_t token;
    float logprob;
    uint32_t top_id[20];
    float top_logprob[20]; /* best first; -inf beyond the allowed ones */
};
struct esp_sample_args {
    struct esp_sample_row *rows;
    uint32_t n_rows, n_vocab;
};

struct esp_ops {
    const char *name; /* "cpu", "cuda" */
    esp_status (*dev_open)(const struct esp_dev_config *config, struct esp_dev **ret_dev, struct esp_err *err);
    void (*dev_close)(struct esp_dev *dev); /* NULL is fine; frees all memory of the device */
    const char *(*level)(const struct esp_dev *dev); /* "avx512" */
    size_t (*scratch_bytes)(const struct esp_dev_config *config); /* what dev_open takes for itself */

    /* Zero-filled device memory, 64-byte aligned. tag is an enum esp_tag. */
    esp_status (*alloc)(struct esp_dev *dev, int tag, size_t bytes, void **ret_ptr);
    void (*seal)(struct esp_dev *dev); /* from here on alloc fails with ESP_ESTATE */
    esp_status (*upload)(struct esp_dev *dev, void *dst, const void *src, size_t bytes);
    esp_status (*download)(struct esp_dev *dev, void *dst, const void *src, size_t bytes);
    esp_status (*wait)(struct esp_dev *dev);

    /* Bytes that weight_pack will take for a matrix; 0 when the type or shape cannot run
     * (n_in not a multiple of 32, or of the type's block). */
    size_t (*weight_bytes)(enum esp_type type, uint32_t n_out, uint32_t n_in);
    /* The weight is that of the whole matrix, the same after each call. */
    esp_status (*weight_pack)(struct esp_dev *dev, const struct esp_pack_args *args, struct esp_weight *ret_weight);

    esp_status (*embed)(struct esp_dev *dev, const struct esp_embed_args *args);
    esp_status (*norm)(struct esp_dev *dev, const struct esp_norm_args *args);
    esp_status (*linear)(struct esp_dev *dev, const struct esp_linear_args *args);
    esp_status (*rope_table)(struct esp_dev *dev, const struct esp_rope_table_args *args);
    esp_status (*rope_kv)(struct esp_dev *dev, const struct esp_rope_kv_args *args);
    esp_status (*attn)(struct esp_dev *dev, const struct esp_attn_args *args);
    esp_status (*glu)(struct esp_dev *dev, const struct esp_glu_args *args);
    esp_status (*copy_pages)(struct esp_dev *dev, const struct esp_copy_pages_args *args);
    esp_status (*sample)(struct esp_dev *dev, struct esp_sample_args *args);
};

/* The CPU backend at the best level that esp_cpu_level() allows when dev_open is called. */
const struct esp_ops *esp_ops_cpu(void);

#endif
