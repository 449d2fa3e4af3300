/* Attention over pages: up to six queries at a time share every K and V that is read.
 *
 * A tile is some query heads of one KV head, of one row or of neighbouring rows of one sequence. For each
 * span of 512 positions
 *   1. scores: lanes are the 16 positions of a page; one fma a dimension for each query and page,
 *   2. maximum, exp, and the sum of what is visible,
 *   3. values: lanes are dimensions; one fma a visible position for each query,
 * and spans are merged in order. Positions that a query may not see are never added, not even as zeros.
 * Every sum has one chain, so queries have the same bits in any tile.
 * Compiled once per level (kernels/cpu/vec.h). Thread: any, see kernels/cpu/level.h.
 */
#include <math.h>

#include "kernels/cpu/vec.h"
#include "kernels/x86/x86.h"

#define N_PAGES_SPAN (ESP_SPAN_TOKENS / ESP_PAGE_TOKENS)
#define DIM_MAX 256
#if defined(__AVX512F__)
#define N_QUERIES_MAX 6
#define N_DIMS 4 /* vectors of dimensions that are summed at a time */
#else
#define N_QUERIES_MAX 2
#define N_DIMS 2
#endif

struct query {
    const float *q; /* [dim] */
    float *out;     /* [dim] */
    uint32_t first, end; /* visible positions [first, end) */
    bool any;            /* a span was seen */
    float m, l;
};

struct tile {
    const struct esp_attn_args *args;
    const uint32_t *pages;
    const uint8_t *k; /* of the head in page 0 */
    size_t page_bytes, v_offset;
    uint32_t dim, n_queries;
    struct query queries[N_QUERIES_MAX];
    _Alignas(64) float p[N_QUERIES_MAX][ESP_SPAN_TOKENS];
    _Alignas(64) float part[N_QUERIES_MAX][DIM_MAX]; /* of the span */
    _Alignas(64) float o[N_QUERIES_MAX][DIM_MAX];    /* of the spans before */
};

ESP_VEC_INLINE const uint16_t *page_k(const struct tile *t, uint32_t page_idx)
{
    return (const uint16_t *)(const void *)(t->k + t->pages[page_idx] * t->page_bytes);
}

ESP_VEC_INLINE const uint16_t *page_v(const struct tile *t, uint32_t page_idx)
{
    return (const uint16_t *)(const void *)(t->k + t->v_offset + t->pages[page_idx] * t->page_bytes);
}

/* Scores of n_pages pages from page_idx on, into p at the page's place in its span. */
ESP_VEC_INLINE void score_pages(struct tile *t, uint32_t page_idx, uint32_t page_next, const int n_queries,
                                const int n_pages)
{
    const uint16_t *k[8];
    v16 acc[16];
    ESP_UNROLL
    for (int i = 0; i < n_pages; i++) {
        k[i] = page_k(t, page_idx + (uint32_t)i);
    }
    ESP_UNROLL
    for (int i = 0; i < n_queries * n_pages; i++) {
        acc[i] = v16_set1(0);
    }
    const uint16_t *next = page_k(t, page_next);
    for (uint32_t d = 0; d < t->dim; d++) {
        v16 kd[8];
        ESP_UNROLL
        for (int i = 0; i < n_pages; i++) {
            kd[i] = v16_load_f16(k[i] + (size_t)d * ESP_PAGE_TOKENS);
        }
        __builtin_prefetch(next + (size_t)d * ESP_PAGE_TOKENS);
        ESP_UNROLL
        for (int j = 0; j < n_queries; j++) {
            v16 q = v16_set1(t->queries[j].q[d]);
            ESP_UNROLL
            for (int i = 0; i < n_pages; i++) {
                acc[j * n_pages + i] = v16_fma(q, kd[i], acc[j * n_pages + i]);
            }
        }
    }
    v16 scale = v16_set1(t->args->scale);
    ESP_UNROLL
    for (int j = 0; j < n_queries; j++) {
        ESP_UNROLL
        for (int i = 0; i < n_pages; i++) {
            uint32_t at = (page_idx + (uint32_t)i) % N_PAGES_SPAN * ESP_PAGE_TOKENS;
            v16_store(&t->p[j][at], v16_mul(scale, acc[j * n_pages + i]));
        }
    }
}

ESP_VEC_INLINE void score_run(struct tile *t, uint32_t page_idx, uint32_t page_end, const int n_queries,
                              const int n_pages)
{
    for (; page_idx + (uint32_t)n_pages <= page_end; page_idx += (uint32_t)n_pages) {
        uint32_t next = page_idx + (uint32_t)n_pages;
        score_pages(t, page_idx, next < page_end ? next : page_idx, n_queries, n_pages);
    }
    for (; page_idx < page_end; page_idx++) {
        score_pages(t, page_idx, page_idx, n_queries, 1);
    }
}

static void scores(struct tile *t, uint32_t page_idx, uint32_t page_end)
{
    switch (t->n_queries) {
    case 1:
        score_run(t, page_idx, page_end, 1, N_QUERIES_MAX == 6 ? 8 : 4);
        break;
    case 2:
        score_run(t, page_idx, page_end, 2, N_QUERIES_MAX == 6 ? 4 : 2);
        break;
#if N_QUERIES_MAX == 6
    case 3:
        score_run(t, page_idx, page_end, 3, 4);
        break;
    case 4:
        score_run(t, page_idx, page_end, 4, 2);
        break;
    default:
        score_run(t, page_idx, page_end, 6, 2);
        break;
#endif
    }
}

/* Bits of the lanes of [at, at + 16) that lie below end. */
static uint32_t lanes_below(uint32_t end, uint32_t at)
{
    uint32_t n = end <= at ? 0 : end - at;
    return n >= 16 ? 0xffff : (1u << n) - 1;
}

/* Turns the scores of one query in [lo, hi) of the span at base into weights, 0 elsewhere; returns their sum. */
static float weights(float *p, uint32_t from, uint32_t to, uint32_t lo, uint32_t hi, float *ret_m)
{
    v16 low = v16_set1(-INFINITY), m = low, sum = v16_set1(0);
    for (uint32_t at = from; at < to; at += 16) {
        if (at < lo || at + 16 > hi) {
            uint32_t seen = lanes_below(hi, at) & ~lanes_below(lo, at);
            v16_store(p + at, v16_select(seen, v16_load(p + at), low));
        }
        m = v16_max(v16_load(p + at), m);
    }
    *ret_m = v16_hmax(m);
    for (uint32_t at = from; at < to; at += 16) {
        v16 w = v16_exp(v16_sub(v16_load(p + at), v16_set1(*ret_m)));
        v16_store(p + at, w);
        sum = v16_add(sum, w);
    }
    return v16_sum(sum);
}

/* Adds positions [from, to) of the span that starts at page `page_idx` to the sums of queries [first, first + n). */
ESP_VEC_INLINE void add_values(struct tile *t, uint32_t page_idx, uint32_t from, uint32_t to, const int first,
                               const int n_queries, const int n_dims)
{
    for (uint32_t d = 0; d < t->dim; d += 16 * (uint32_t)n_dims) {
        v16 acc[N_QUERIES_MAX * N_DIMS];
        ESP_UNROLL
        for (int i = 0; i < n_queries * n_dims; i++) {
            acc[i] = v16_load(&t->part[first + i / n_dims][d + 16 * (uint32_t)(i % n_dims)]);
        }
        for (uint32_t at = from; at < to;) {
            uint32_t page_end = (at | (ESP_PAGE_TOKENS - 1)) + 1, end = page_end < to ? page_end : to;
            const uint16_t *v = page_v(t, page_idx + at / ESP_PAGE_TOKENS) + d;
            const uint16_t *next = page_end < to ? page_v(t, page_idx + page_end / ESP_PAGE_TOKENS) + d : v;
            for (; at < end; at++) {
                size_t row = (size_t)(at % ESP_PAGE_TOKENS) * t->dim;
                v16 value[N_DIMS];
                ESP_UNROLL
                for (int i = 0; i < n_dims; i++) {
                    value[i] = v16_load_f16(v + row + 16 * i);
                }
                __builtin_prefetch(next + row);
                __builtin_prefetch(next + row + 32);
                ESP_UNROLL
                for (int j = 0; j < n_queries; j++) {
                    v16 p = v16_set1(t->p[first + j][at]);
                    ESP_UNROLL
                    for (int i = 0; i < n_dims; i++) {
                        acc[j * n_dims + i] = v16_fma(p, value[i], acc[j * n_dims + i]);
                    }
                }
            }
        }
        ESP_UNROLL
        for (int i = 0; i < n_queries * n_dims; i++) {
            v16_store(&t->part[first + i / n_dims][d + 16 * (uint32_t)(i % n_dims)], acc[i]);
        }
    }
}

static void add_values_one(struct tile *t, uint32_t page_idx, uint32_t from, uint32_t to, uint32_t query)
{
    if (from < to && t->dim == 32) {
        add_values(t, page_idx, from, to, (int)query, 1, 2);
    } else if (from < to) {
        add_values(t, page_idx, from, to, (int)query, 1, N_DIMS);
    }
}

/* As add_values for all queries of the tile. */
static void add_values_all(struct tile *t, uint32_t page_idx, uint32_t from, uint32_t to)
{
    if (from >= to) {
        return;
    }
    if (t->dim == 32 || t->n_queries == 1) {
        for (uint32_t j = 0; j < t->n_queries; j++) {
            add_values_one(t, page_idx, from, to, j);
        }
        return;
    }
    switch (t->n_queries) {
    case 2:
        add_values(t, page_idx, from, to, 0, 2, N_DIMS);
        break;
#if N_QUERIES_MAX == 6
    case 3:
        add_values(t, page_idx, from, to, 0, 3, N_DIMS);
        break;
    case 4:
        add_values(t, page_idx, from, to, 0, 4, N_DIMS);
        break;
    default:
        add_values(t, page_idx, from, to, 0, 6, N_DIMS);
        break;
#endif
    }
}

static void merge(struct query *query, float m, float l, const float *part, float *o, uint32_t dim)
{
    if (!query->any) {
        memcpy(o, part, dim * sizeof *o);
        query->any = true;
        query->m = m;
        query->l = l;
        return;
    }
    float high = query->m > m ? query->m : m, a = esp_expf(query->m - high), b = esp_expf(m - high);
    float la = query->l * a, lb = l * b;
    query->l = la + lb;
    query->m = high;
    for (uint32_t d = 0; d < dim; d += 16) {
        v16 oa = v16_mul(v16_load(o + d), v16_set1(a)), ob = v16_mul(v16_load(part + d), v16_set1(b));
        v16_store(o + d, v16_add(oa, ob));
    }
}

struct range {
    uint32_t lo, hi; /* visible part of a span, relative to it; empty when lo ≥ hi */
};

static struct range visible(const struct query *query, uint32_t span)
{
    struct range r = {0, 0};
    if (query->end > span && query->first < span + ESP_SPAN_TOKENS) {
        r.lo = query->first > span ? query->first - span : 0;
        r.hi = query->end - span < ESP_SPAN_TOKENS ? query->end - span : ESP_SPAN_TOKENS;
    }
    return r;
}

static void attend_span(struct tile *t, uint32_t span)
{
    struct range ranges[N_QUERIES_MAX], any = {ESP_SPAN_TOKENS, 0}, all = {0, ESP_SPAN_TOKENS};
    for (uint32_t j = 0; j < t->n_queries; j++) {
        struct range r = ranges[j] = visible(&t->queries[j], span);
        all.lo = r.lo > all.lo ? r.lo : all.lo;
        all.hi = r.hi < all.hi ? r.hi : all.hi;
        if (r.lo < r.hi) {
            any.lo = r.lo < any.lo ? r.lo : any.lo;
            any.hi = r.hi > any.hi ? r.hi : any.hi;
        }
    }
    if (any.lo >= any.hi) {
        return;
    }
    uint32_t page_idx = span / ESP_PAGE_TOKENS, from = any.lo & ~15u, to = (any.hi + 15) & ~15u;
    float m[N_QUERIES_MAX], l[N_QUERIES_MAX];
    scores(t, page_idx + from / ESP_PAGE_TOKENS, page_idx + to / ESP_PAGE_TOKENS);
    bool shared = all.lo < all.hi;
    for (uint32_t j = 0; j < t->n_queries; j++) {
        memset(t->part[j], 0, t->dim * sizeof(float));
        if (ranges[j].lo < ranges[j].hi) {
            l[j] = weights(t->p[j], from, to, ranges[j].lo, ranges[j].hi, &m[j]);
            add_values_one(t, page_idx, ranges[j].lo, shared ? all.lo : ranges[j].hi, j);
        }
    }
    if (shared) {
        add_values_all(t, page_idx, all.lo, all.hi);
    }
    for (uint32_t j = 0; j < t->n_queries; j++) {
        if (ranges[j].lo < ranges[j].hi) {
            add_values_one(t, page_idx, shared ? all.hi : ranges[j].hi, ranges[j].hi, j);
            merge(&t->queries[j], m[j], l[j], t->part[j], t->o[j], t->dim);
        }
    }
}

static void attend(struct tile *t)
{
    uint32_t first = UINT32_MAX, end = 0;
    for (uint32_t j = 0; j < t->n_queries; j++) {
        first = t->queries[j].first < first ? t->queries[j].first : first;
        end = t->queries[j].end > end ? t->queries[j].end : end;
    }
    for (uint32_t span = first / ESP_SPAN_TOKENS * ESP_SPAN_TOKENS; span < end; span += ESP_SPAN_TOKENS) {
        attend_span(t, span);
    }
    for (uint32_t j = 0; j < t->n_queries; j++) {
        for (uint32_t d = 0; d < t->dim; d += 16) {
            v16_store(t->queries[j].out + d, v16_div(v16_load(&t->o[j][d]), v16_set1(t->queries[j].l)));
        }
    }
}

static void set_query(struct tile *t, uint32_t j, size_t row, size_t head)
{
    const struct esp_attn_args *args = t->args;
    size_t at = (row * args->n_head + head) * t->dim;
    uint32_t end = args->pos[row] + 1;
    t->queries[j] = (struct query){
        .q = args->q + at,
        .out = args->out + at,
        .first = args->window != 0 && end > args->window ? end - args->window : 0,
        .end = end,
    };
}

/* Rows [row, row_end) of one sequence. */
static void attend_rows(struct tile *t, uint32_t head_kv, uint32_t row, uint32_t row_end)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 4, 6};
    uint32_t n_group = t->args->n_head / t->args->geom.n_head_kv, n_all = (row_end - row) * n_group;
    for (uint32_t i = 0; i < n_all; i += t->n_queries) {
        uint32_t left = n_all - i < N_QUERIES_MAX ? n_all - i : N_QUERIES_MAX;
        t->n_queries = sizes[left - 1];
        for (uint32_t j = 0; j < t->n_queries; j++) {
            set_query(t, j, row + (i + j) / n_group, (size_t)head_kv * n_group + (i + j) % n_group);
        }
        attend(t);
    }
}

void ESP_LEVEL_NAME(esp_x86_attn)(const struct esp_attn_args *args, uint32_t head_kv, uint32_t row, uint32_t row_end)
{
    const struct esp_kv_geom *geom = &args->geom;
    struct tile t;
    t.args = args;
    t.dim = geom->head_dim;
    t.page_bytes = esp_kv_page_bytes(geom);
    t.v_offset = (size_t)geom->n_head_kv * geom->head_dim * ESP_PAGE_TOKENS * 2;
    t.k = (const uint8_t *)args->kv + args->layer * esp_kv_layer_bytes(geom) +
          (size_t)head_kv * geom->head_dim * ESP_PAGE_TOKENS * 2;
    for (uint32_t next; row < row_end; row = next) {
        for (next = row + 1; next < row_end && args->row_seq[next] == args->row_seq[row]; next++) {
        }
        t.pages = args->pages[args->row_seq[row]];
        attend_rows(&t, head_kv, row, next);
    }
}
