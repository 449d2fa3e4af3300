/* Reference for rotation, for writing K and V, and for attention.
 *
 * Thread: any, see kernels/cpu/level.h.
 */
#include <math.h>

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

void esp_ref_rope_kv(const struct esp_rope_kv_args *args, uint32_t row, uint32_t row_end)
{
    const struct esp_kv_geom *geom = &args->geom;
    size_t dim = geom->head_dim, half_layer = geom->n_head_kv * dim * ESP_PAGE_TOKENS;
    for (size_t r = row; r < row_end; r++) {
        const float *cos_sin = args->cos_sin + r * args->n_rot;
        for (size_t h = 0; h < args->n_head; h++) {
            rotate(args->q + (r * args->n_head + h) * dim, cos_sin, args->kind, args->n_rot);
        }
        uint8_t *page = (uint8_t *)args->kv + args->page[r] * esp_kv_page_bytes(geom);
        uint16_t *k_out = (uint16_t *)(void *)(page + args->layer * esp_kv_layer_bytes(geom));
        uint16_t *v_out = k_out + half_layer;
        size_t slot = args->pos[r] % ESP_PAGE_TOKENS;
        for (size_t h = 0; h < geom->n_head_kv; h++) {
            float *k = args->k + (r * geom->n_head_kv + h) * dim;
            const float *v = args->v + (r * geom->n_head_kv + h) * dim;
            rotate(k, cos_sin, args->kind, args->n_rot);
            for (size_t d = 0; d < dim; d++) {
                k_out[(h * dim + d) * ESP_PAGE_TOKENS + slot] = esp_f16_from_f32(k[d]);
                v_out[(h * ESP_PAGE_TOKENS + slot) * dim + d] = esp_f16_from_f32(v[d]);
            }
        }
    }
}

struct query {
    const struct esp_attn_args *args;
    const float *q;
    const uint32_t *pages;
    uint32_t head_kv, first, end; /* visible positions [first, end) */
};

static const uint16_t *page_k(const struct query *qu, uint32_t pos)
{
    const struct esp_kv_geom *geom = &qu->args->geom;
    size_t page = qu->pages[pos / ESP_PAGE_TOKENS];
    const uint8_t *layer = (const uint8_t *)qu->args->kv + page * esp_kv_page_bytes(geom) +
                           qu->args->layer * esp_kv_layer_bytes(geom);
    return (const uint16_t *)(const void *)layer + (size_t)qu->head_kv * geom->head_dim * ESP_PAGE_TOKENS;
}

static const uint16_t *page_v(const struct query *qu, uint32_t pos)
{
    return page_k(qu, pos) + (size_t)qu->args->geom.n_head_kv * qu->args->geom.head_dim * ESP_PAGE_TOKENS;
}

struct part {
    float m, l, o[256];
};

static bool span_part(const struct query *qu, uint32_t span, struct part *part)
{
    uint32_t dim = qu->args->geom.head_dim;
    uint32_t lo = span > qu->first ? span : qu->first;
    uint32_t hi = span + ESP_SPAN_TOKENS < qu->end ? span + ESP_SPAN_TOKENS : qu->end;
    if (lo >= hi) {
        return false;
    }
    float p[ESP_SPAN_TOKENS] = {0}, lanes[16] = {0};
    part->m = -INFINITY;
    for (uint32_t t = lo; t < hi; t++) {
        const uint16_t *k = page_k(qu, t) + t % ESP_PAGE_TOKENS;
        float acc = 0;
        for (uint32_t d = 0; d < dim; d++) {
            acc = fmaf(qu->q[d], esp_f16_to_f32(k[(size_t)d * ESP_PAGE_TOKENS]), acc);
        }
        p[t - span] = qu->args->scale * acc;
        part->m = p[t - span] > part->m ? p[t - span] : part->m;
    }
    for (uint32_t d = 0; d < dim; d++) {
        part->o[d] = 0;
    }
    for (uint32_t t = lo; t < hi; t++) {
        const uint16_t *v = page_v(qu, t) + (size_t)(t % ESP_PAGE_TOKENS) * dim;
        p[t - span] = esp_expf(p[t - span] - part->m);
        for (uint32_t d = 0; d < dim; d++) {
            part->o[d] = fmaf(p[t - span], esp_f16_to_f32(v[d]), part->o[d]);
        }
    }
    for (uint32_t i = 0; i < ESP_SPAN_TOKENS; i++) {
        lanes[i % 16] += p[i];
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
                .q = args->q + at,
                .pages = args->pages[args->row_seq[r]],
                .head_kv = head_kv,
                .first = args->window != 0 && end > args->window ? end - args->window : 0,
                .end = end,
            };
            attend(&qu, args->out + at);
        }
    }
}
