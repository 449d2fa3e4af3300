/* Reference for rotation, for writing K and V, and for attention.
 *
 * Thread: any, see kernels/cpu/level.h.
 */
#include <math.h>

#include "kernels/cpu/kv.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

static void rotate(float *head, const float *cos_sin, enum esp_rope_kind kind, uint32_t n_rot)
{
    for (uint32_t i = 0; kind != ESP_ROPE_NONE && i < n_rot / 2; i++) {
        float *a = kind == ESP_ROPE_NORM ? head + 2 * i : head + i;
        float *b = kind == ESP_ROPE_NORM ? a + 1 : a + n_rot / 2;
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        float ac = *a * c, bs = *b * s, as = *a * s, bc = *b * c;
        *a = ac - bs;
        *b = as + bc;
    }
}

static int16_t integer_of(float x, float factor, float high)
{
    float v = x * factor;
    v = v < high ? v : high;
    return (int16_t)rintf(v > -high ? v : -high);
}

/* A key or query as integers; returns its scale. */
static float quantise_key(const float *x, uint32_t dim, int16_t *out)
{
    float lanes[16] = {0};
    for (uint32_t d = 0; d < dim; d++) {
        lanes[d % 16] = fmaf(x[d], x[d], lanes[d % 16]);
    }
    float length = sqrtf(esp_sum_lanes(lanes));
    bool zero = length < ESP_KV_LENGTH_MIN;
    for (uint32_t d = 0; d < dim; d++) {
        out[d] = zero ? 0 : integer_of(x[d], ESP_KV_KEY_MAX / length, ESP_KV_KEY_MAX);
    }
    return zero ? 0 : length / ESP_KV_KEY_MAX;
}

static float quantise_value(const float *x, uint32_t dim, int16_t *out)
{
    float amax = 0;
    for (uint32_t d = 0; d < dim; d++) {
        amax = fabsf(x[d]) > amax ? fabsf(x[d]) : amax;
    }
    bool zero = amax < ESP_KV_AMAX_MIN;
    for (uint32_t d = 0; d < dim; d++) {
        out[d] = zero ? 0 : integer_of(x[d], ESP_KV_VALUE_MAX / amax, ESP_KV_VALUE_MAX);
    }
    return zero ? 0 : amax / ESP_KV_VALUE_MAX;
}

void esp_ref_rope_kv(const struct esp_rope_kv_args *args, uint32_t row, uint32_t row_end)
{
    const struct esp_kv_geom *geom = &args->geom;
    uint32_t dim = geom->head_dim;
    for (size_t r = row; r < row_end; r++) {
        const float *cos_sin = args->cos_sin + r * args->n_rot;
        for (size_t h = 0; h < args->n_head; h++) {
            rotate(args->q + (r * args->n_head + h) * dim, cos_sin, args->kind, args->n_rot);
        }
        size_t slot = args->pos[r] % ESP_PAGE_TOKENS;
        for (uint32_t h = 0; h < geom->n_head_kv; h++) {
            struct esp_kv_head to = esp_kv_head_at(args->kv, geom, args->layer, args->page[r], h);
            float *k = args->k + (r * geom->n_head_kv + h) * dim;
            int16_t key[256], value[256];
            rotate(k, cos_sin, args->kind, args->n_rot);
            to.dk[slot] = quantise_key(k, dim, key);
            to.dv[slot] = quantise_value(args->v + (r * geom->n_head_kv + h) * dim, dim, value);
            for (uint32_t d = 0; d < dim; d++) {
                to.k[esp_kv_k_idx(slot, d)] = key[d];
                to.v[esp_kv_v_idx(dim, slot, d)] = value[d];
            }
        }
    }
}

struct query {
    const struct esp_attn_args *args;
    int16_t q[256];
    float factor; /* d_q · scale */
    const uint32_t *pages;
    uint32_t head_kv, first, end; /* visible positions [first, end) */
};

static struct esp_kv_head page_of(const struct query *qu, uint32_t pos)
{
    return esp_kv_head_at(qu->args->kv, &qu->args->geom, qu->args->layer, qu->pages[pos / ESP_PAGE_TOKENS],
                          qu->head_kv);
}

struct part {
    float m, l, o[256];
};

/* u [512] of the visible positions [lo, hi) of a span; returns their maximum. */
static float scores(const struct query *qu, uint32_t span, uint32_t lo, uint32_t hi, float *u)
{
    float m = -INFINITY;
    for (uint32_t t = lo; t < hi; t++) {
        struct esp_kv_head page = page_of(qu, t);
        size_t slot = t % ESP_PAGE_TOKENS;
        int64_t sum = 0;
        for (uint32_t d = 0; d < qu->args->geom.head_dim; d++) {
            sum += (int64_t)qu->q[d] * page.k[esp_kv_k_idx(slot, d)];
        }
        u[t - span] = (float)sum * page.dk[slot];
        m = u[t - span] > m ? u[t - span] : m;
    }
    return m;
}

/* Σ r·v over positions [lo, hi), at most ESP_KV_POSITIONS, in dimension d. */
static int64_t value_sum(const struct query *qu, const int32_t *r, uint32_t lo, uint32_t hi, uint32_t d)
{
    int64_t sum = 0;
    for (uint32_t t = lo; t < hi; t++) {
        struct esp_kv_head page = page_of(qu, t);
        sum += (int64_t)r[t - lo] * page.v[esp_kv_v_idx(qu->args->geom.head_dim, t % ESP_PAGE_TOKENS, d)];
    }
    return sum;
}

static bool span_part(const struct query *qu, uint32_t span, struct part *part)
{
    uint32_t lo = span > qu->first ? span : qu->first;
    uint32_t hi = span + ESP_SPAN_TOKENS < qu->end ? span + ESP_SPAN_TOKENS : qu->end;
    if (lo >= hi) {
        return false;
    }
    float p[ESP_SPAN_TOKENS] = {0}, lanes[16] = {0}, high = 0;
    int32_t r[ESP_SPAN_TOKENS] = {0};
    part->m = scores(qu, span, lo, hi, p) * qu->factor;
    for (uint32_t t = lo; t < hi; t++) {
        float *w = &p[t - span];
        *w = esp_expf(fmaf(*w, qu->factor, -part->m));
        lanes[(t - span) % 16] += *w;
        *w = *w * page_of(qu, t).dv[t % ESP_PAGE_TOKENS];
        high = *w > high ? *w : high;
    }
    float factor = high < ESP_KV_AMAX_MIN ? 0 : ESP_KV_WEIGHT_MAX / high;
    for (uint32_t i = lo - span; i < hi - span; i++) {
        float v = p[i] * factor;
        r[i] = (int32_t)rintf(v < ESP_KV_WEIGHT_MAX ? v : ESP_KV_WEIGHT_MAX);
    }
    for (uint32_t d = 0; d < qu->args->geom.head_dim; d++) {
        float sum = 0;
        for (uint32_t at = span; at < span + ESP_SPAN_TOKENS; at += ESP_KV_POSITIONS) {
            uint32_t from = at > lo ? at : lo, to = at + ESP_KV_POSITIONS < hi ? at + ESP_KV_POSITIONS : hi;
            sum = sum + (from < to ? (float)value_sum(qu, r + (from - span), from, to, d) : 0);
        }
        part->o[d] = (high / ESP_KV_WEIGHT_MAX) * sum;
    }
    part->l = esp_sum_lanes(lanes);
    return true;
}

static void merge(struct part *whole, const struct part *part, uint32_t dim)
{
    float m = whole->m > part->m ? whole->m : part->m;
    float a = esp_expf(whole->m - m), b = esp_expf(part->m - m);
    float la = whole->l * a, lb = part->l * b;
    whole->l = la + lb;
    for (uint32_t d = 0; d < dim; d++) {
        float oa = whole->o[d] * a, ob = part->o[d] * b;
        whole->o[d] = oa + ob;
    }
    whole->m = m;
}

static void attend(const struct query *qu, float *out)
{
    struct part whole = {0}, part;
    bool any = false;
    for (uint32_t span = 0; span < qu->end; span += ESP_SPAN_TOKENS) {
        if (!span_part(qu, span, &part)) {
            continue;
        }
        if (any) {
            merge(&whole, &part, qu->args->geom.head_dim);
        } else {
            whole = part;
        }
        any = true;
    }
    for (uint32_t d = 0; d < qu->args->geom.head_dim; d++) {
        out[d] = whole.o[d] / whole.l;
    }
}

void esp_ref_attn(const struct esp_attn_args *args, uint32_t head_kv, uint32_t row, uint32_t row_end)
{
    uint32_t n_group = args->n_head / args->geom.n_head_kv;
    for (size_t r = row; r < row_end; r++) {
        for (size_t h = head_kv * n_group; h < (head_kv + 1) * n_group; h++) {
            size_t at = (r * args->n_head + h) * args->geom.head_dim;
            uint32_t end = args->pos[r] + 1;
            struct query qu = {
                .args = args,
                .pages = args->pages[args->row_seq[r]],
                .head_kv = head_kv,
                .first = args->window != 0 && end > args->window ? end - args->window : 0,
                .end = end,
            };
            qu.factor = quantise_key(args->q + at, args->geom.head_dim, qu.q) * args->scale;
            attend(&qu, args->out + at);
        }
    }
}
