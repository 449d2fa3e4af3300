/* Attention over pages: many queries share every K and V that is read.
 *
 * A tile is up to 48 queries: query heads of one KV head, of neighbouring rows. For each span of 512 positions
 *   1. scores: lanes are the 16 positions of a page; one fma a dimension for each query and page,
 *   2. maximum, exp, and the sum of what is visible,
 *   3. values: lanes are dimensions; one fma a visible position for each query,
 * and spans are merged in order. A span is walked in blocks of some pages. Neighbouring queries that have the
 * same pages in a block are a group, whatever sequence they belong to; more than a few of them read the block
 * from a copy in f32, made once a group. Positions that a query may not see are never added, not even as zeros.
 * Every sum has one chain, so queries have the same bits in any tile.
 * Compiled once per level (kernels/cpu/vec.h). Thread: any, see kernels/cpu/level.h.
 */
#include <math.h>

#include "kernels/cpu/vec.h"
#include "kernels/x86/x86.h"

#define N_PAGES_SPAN (ESP_SPAN_TOKENS / ESP_PAGE_TOKENS)
#define DIM_MAX 256
#define N_PAGES_BLOCK 4
#if defined(__AVX512F__)
#define N_TOGETHER 6 /* queries whose sums are in registers at a time */
#define N_PAGES_WIDE 4
#define N_DIMS 4 /* vectors of dimensions that are summed at a time */
#define N_SUMS 24
#else
#define N_TOGETHER 2
#define N_PAGES_WIDE 2
#define N_DIMS 2
#define N_SUMS 4
#endif

struct range {
    uint32_t lo, hi; /* empty when lo ≥ hi */
};

struct query {
    float *out; /* [dim] */
    const uint32_t *pages;
    uint32_t first, end; /* visible positions [first, end) */
    struct range seen;   /* of them in the span, relative to it */
    bool any;            /* a span was seen */
    float m, l;
};

struct tile {
    const struct esp_attn_args *args;
    const uint8_t *k; /* of the head in page 0 */
    size_t page_bytes, v_offset;
    uint32_t dim, n_queries, n_pages_block;
    struct query queries[ESP_ATTN_QUERIES];
    size_t q_step; /* from one dimension of the queries to the next: a few stay close together */
    _Alignas(64) float q[DIM_MAX * ESP_ATTN_QUERIES];
    _Alignas(64) float wide[DIM_MAX * N_PAGES_BLOCK * ESP_PAGE_TOKENS]; /* K [dim][64] or V [64][dim] of a block */
    _Alignas(64) float p[ESP_ATTN_QUERIES][ESP_SPAN_TOKENS];
    _Alignas(64) float part[ESP_ATTN_QUERIES][DIM_MAX]; /* of the span */
    _Alignas(64) float o[ESP_ATTN_QUERIES][DIM_MAX];    /* of the spans before */
};

/* Queries [first, end) of a tile on pages [page, page_end) of the span that starts at page `base`. */
struct group {
    uint32_t first, end, base, page, page_end;
    uint32_t page_last; /* the last page worth fetching early */
    const uint32_t *pages;
    bool wide;
};

ESP_VEC_INLINE const uint16_t *page_k(const struct tile *t, const struct group *g, uint32_t page)
{
    return (const uint16_t *)(const void *)(t->k + g->pages[g->base + page] * t->page_bytes);
}

ESP_VEC_INLINE const uint16_t *page_v(const struct tile *t, const struct group *g, uint32_t page)
{
    return (const uint16_t *)(const void *)(t->k + t->v_offset + g->pages[g->base + page] * t->page_bytes);
}

/* A page to fetch while one works on [page, page + n): the next, or for a group that copies one of the next block. */
ESP_VEC_INLINE uint32_t page_next(const struct group *g, uint32_t first, uint32_t page, uint32_t n, const bool wide)
{
    uint32_t next = page + (wide ? N_PAGES_BLOCK + (first - g->first) / N_TOGETHER : n);
    return next < g->page_last ? next : g->page_last;
}

/* Scores of queries [first, first + n_queries) with n_pages pages, into p at the page's place in its span. */
ESP_VEC_INLINE void score_pages(struct tile *t, const struct group *g, uint32_t first, uint32_t page,
                                const int n_queries, const int n_pages, const bool wide)
{
    const uint16_t *k[8];
    v16 acc[N_SUMS];
    const float *copy = t->wide + (size_t)(page % N_PAGES_BLOCK) * ESP_PAGE_TOKENS, *q = t->q + first;
    ESP_UNROLL
    for (int i = 0; i < n_pages; i++) {
        k[i] = page_k(t, g, page + (uint32_t)i);
    }
    ESP_UNROLL
    for (int i = 0; i < n_queries * n_pages; i++) {
        acc[i] = v16_set1(0);
    }
    const uint16_t *next = page_k(t, g, page_next(g, first, page, (uint32_t)n_pages, wide));
    for (uint32_t d = 0; d < t->dim; d++) {
        v16 kd[8];
        ESP_UNROLL
        for (int i = 0; i < n_pages; i++) {
            kd[i] = wide ? v16_load(copy + i * ESP_PAGE_TOKENS) : v16_load_f16(k[i] + (size_t)d * ESP_PAGE_TOKENS);
        }
        __builtin_prefetch(next + (size_t)d * ESP_PAGE_TOKENS);
        ESP_UNROLL
        for (int j = 0; j < n_queries; j++) {
            v16 qd = v16_set1(q[j]);
            ESP_UNROLL
            for (int i = 0; i < n_pages; i++) {
                acc[j * n_pages + i] = v16_fma(qd, kd[i], acc[j * n_pages + i]);
            }
        }
        copy += N_PAGES_BLOCK * ESP_PAGE_TOKENS;
        q += t->q_step;
    }
    v16 scale = v16_set1(t->args->scale);
    ESP_UNROLL
    for (int j = 0; j < n_queries; j++) {
        ESP_UNROLL
        for (int i = 0; i < n_pages; i++) {
            float *p = &t->p[first + (uint32_t)j][(page + (uint32_t)i) * ESP_PAGE_TOKENS];
            v16_store(p, v16_mul(scale, acc[j * n_pages + i]));
        }
    }
}

ESP_VEC_INLINE void score_run(struct tile *t, const struct group *g, uint32_t first, struct range pages,
                              const int n_queries, const int n_pages, const bool wide)
{
    uint32_t page = pages.lo;
    for (; page + (uint32_t)n_pages <= pages.hi; page += (uint32_t)n_pages) {
        score_pages(t, g, first, page, n_queries, n_pages, wide);
    }
    for (; wide && n_pages > 2 && page + 2 <= pages.hi; page += 2) {
        score_pages(t, g, first, page, n_queries, 2, wide);
    }
    for (; page < pages.hi; page++) {
        score_pages(t, g, first, page, n_queries, 1, wide);
    }
}

/* Scores of n queries straight from the pages. */
static void score_few(struct tile *t, const struct group *g, uint32_t first, uint32_t n, struct range pages)
{
    switch (n) {
    case 1:
        score_run(t, g, first, pages, 1, N_TOGETHER == 6 ? 8 : 4, false);
        break;
    case 2:
        score_run(t, g, first, pages, 2, N_TOGETHER == 6 ? 4 : 2, false);
        break;
#if N_TOGETHER == 6
    case 3:
        score_run(t, g, first, pages, 3, 4, false);
        break;
    case 4:
        score_run(t, g, first, pages, 4, 2, false);
        break;
    default:
        score_run(t, g, first, pages, 6, 2, false);
        break;
#endif
    }
}

/* Scores of n queries from the copy. */
static void score_wide(struct tile *t, const struct group *g, uint32_t first, uint32_t n, struct range pages)
{
    switch (n) {
    case 1:
        score_run(t, g, first, pages, 1, N_PAGES_WIDE, true);
        break;
    case 2:
        score_run(t, g, first, pages, 2, N_PAGES_WIDE, true);
        break;
#if N_TOGETHER == 6
    case 3:
        score_run(t, g, first, pages, 3, N_PAGES_WIDE, true);
        break;
    case 4:
        score_run(t, g, first, pages, 4, N_PAGES_WIDE, true);
        break;
    default:
        score_run(t, g, first, pages, 6, N_PAGES_WIDE, true);
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

/* Turns the visible scores of one query into weights, 0 elsewhere in their pages; returns their sum. */
static float weights(float *p, struct range seen, float *ret_m)
{
    uint32_t from = seen.lo & ~15u, to = (seen.hi + 15) & ~15u;
    v16 low = v16_set1(-INFINITY), m = low, sum = v16_set1(0);
    for (uint32_t at = from; at < to; at += 16) {
        if (at < seen.lo || at + 16 > seen.hi) {
            uint32_t lanes = lanes_below(seen.hi, at) & ~lanes_below(seen.lo, at);
            v16_store(p + at, v16_select(lanes, v16_load(p + at), low));
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

/* Adds positions [from, to) of the span to the sums of queries [first, first + n_queries). */
ESP_VEC_INLINE void add_values(struct tile *t, const struct group *g, uint32_t first, struct range seen,
                               const int n_queries, const int n_dims, const bool wide)
{
    for (uint32_t d = 0; d < t->dim; d += 16 * (uint32_t)n_dims) {
        v16 acc[N_SUMS];
        ESP_UNROLL
        for (int i = 0; i < n_queries * n_dims; i++) {
            acc[i] = v16_load(&t->part[first + (uint32_t)(i / n_dims)][d + 16 * (uint32_t)(i % n_dims)]);
        }
        for (uint32_t at = seen.lo; at < seen.hi;) {
            uint32_t page = at / ESP_PAGE_TOKENS, page_end = (page + 1) * ESP_PAGE_TOKENS;
            uint32_t end = wide || page_end > seen.hi ? seen.hi : page_end;
            const uint16_t *v = page_v(t, g, page) + d;
            const uint16_t *next = page_v(t, g, page_next(g, first, page, 1, wide)) + (wide ? 0 : d);
            const size_t next_step = wide ? t->dim / N_PAGES_BLOCK : t->dim;
            const float *copy = t->wide + d + (size_t)(page % N_PAGES_BLOCK) * ESP_PAGE_TOKENS * t->dim;
            size_t row = (size_t)(at % ESP_PAGE_TOKENS) * t->dim;
            for (const float *p = t->p[first] + at, *p_end = t->p[first] + end; p < p_end; p++, row += t->dim) {
                v16 value[N_DIMS];
                ESP_UNROLL
                for (int i = 0; i < n_dims; i++) {
                    value[i] = wide ? v16_load(copy + row + 16 * i) : v16_load_f16(v + row + 16 * i);
                }
                __builtin_prefetch(next);
                if (!wide) {
                    __builtin_prefetch(next + 32);
                }
                next += next_step;
                ESP_UNROLL
                for (int j = 0; j < n_queries; j++) {
                    v16 weight = v16_set1(p[j * ESP_SPAN_TOKENS]);
                    ESP_UNROLL
                    for (int i = 0; i < n_dims; i++) {
                        acc[j * n_dims + i] = v16_fma(weight, value[i], acc[j * n_dims + i]);
                    }
                }
            }
            at = end;
        }
        ESP_UNROLL
        for (int i = 0; i < n_queries * n_dims; i++) {
            v16_store(&t->part[first + (uint32_t)(i / n_dims)][d + 16 * (uint32_t)(i % n_dims)], acc[i]);
        }
    }
}

static void add_values_one(struct tile *t, const struct group *g, uint32_t query, struct range seen)
{
    if (seen.lo < seen.hi && t->dim == 32) {
        add_values(t, g, query, seen, 1, 2, false);
    } else if (seen.lo < seen.hi) {
        add_values(t, g, query, seen, 1, N_DIMS, false);
    }
}

/* As add_values_one for n queries that see the same positions. */
static void add_values_all(struct tile *t, const struct group *g, uint32_t first, uint32_t n, struct range seen)
{
    if (t->dim == 32 || n == 1) {
        for (uint32_t j = first; j < first + n; j++) {
            add_values_one(t, g, j, seen);
        }
        return;
    }
    switch (2 * n + g->wide) {
    case 4:
        add_values(t, g, first, seen, 2, N_DIMS, false);
        break;
    case 5:
        add_values(t, g, first, seen, 2, N_DIMS, true);
        break;
#if N_TOGETHER == 6
    case 6:
        add_values(t, g, first, seen, 3, N_DIMS, false);
        break;
    case 7:
        add_values(t, g, first, seen, 3, N_DIMS, true);
        break;
    case 8:
        add_values(t, g, first, seen, 4, N_DIMS, false);
        break;
    case 9:
        add_values(t, g, first, seen, 4, N_DIMS, true);
        break;
    case 12:
        add_values(t, g, first, seen, 6, N_DIMS, false);
        break;
    default:
        add_values(t, g, first, seen, 6, N_DIMS, true);
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

static struct range intersect(struct range a, struct range b)
{
    struct range r = {a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    return r;
}

/* Pages [page, page_end) of the span as far as the query sees them. */
static struct range pages_seen(const struct query *query, uint32_t page, uint32_t page_end)
{
    struct range seen = {query->seen.lo / ESP_PAGE_TOKENS, (query->seen.hi + ESP_PAGE_TOKENS - 1) / ESP_PAGE_TOKENS};
    return intersect(seen, (struct range){page, page_end});
}

/* Of one sequence, or with the same pages in the same place. */
static bool same_pages(const struct query *a, const struct query *b, const struct group *g, uint32_t page_end)
{
    if (a->pages == b->pages) {
        return true;
    }
    struct range ra = pages_seen(a, g->page, page_end), rb = pages_seen(b, g->page, page_end);
    return ra.lo < ra.hi && ra.lo == rb.lo && ra.hi == rb.hi &&
           memcmp(a->pages + g->base + ra.lo, b->pages + g->base + ra.lo, (ra.hi - ra.lo) * sizeof *a->pages) == 0;
}

/* The group of query `first` in the block [page, page_end); false when it sees nothing there. */
static bool find_group(const struct tile *t, uint32_t first, uint32_t span, uint32_t page, uint32_t page_end,
                       struct group *ret_group)
{
    const struct query *leader = &t->queries[first];
    struct group g = {.first = first, .end = first, .base = span / ESP_PAGE_TOKENS, .page = page,
                      .pages = leader->pages};
    struct range all = {page_end, page};
    while (g.end < t->n_queries && same_pages(leader, &t->queries[g.end], &g, page_end)) {
        struct range r = pages_seen(&t->queries[g.end++], page, page_end);
        if (r.lo < r.hi) {
            all.lo = r.lo < all.lo ? r.lo : all.lo;
            all.hi = r.hi > all.hi ? r.hi : all.hi;
        }
    }
    g.page = all.lo;
    g.page_end = all.hi;
    g.wide = g.end - first > N_TOGETHER;
    uint32_t n_pages = (leader->seen.hi + ESP_PAGE_TOKENS - 1) / ESP_PAGE_TOKENS;
    g.page_last = n_pages > all.hi ? n_pages - 1 : all.hi - 1;
    *ret_group = g;
    return all.lo < all.hi;
}

static void copy_k(struct tile *t, const struct group *g)
{
    for (uint32_t page = g->page; g->wide && page < g->page_end; page++) {
        const uint16_t *from = page_k(t, g, page);
        float *to = t->wide + (size_t)(page % N_PAGES_BLOCK) * ESP_PAGE_TOKENS;
        for (size_t d = 0; d < t->dim; d++) {
            v16_store(to + d * N_PAGES_BLOCK * ESP_PAGE_TOKENS, v16_load_f16(from + d * ESP_PAGE_TOKENS));
        }
    }
}

static void copy_v(struct tile *t, const struct group *g)
{
    size_t n = (size_t)ESP_PAGE_TOKENS * t->dim;
    for (uint32_t page = g->page; g->wide && page < g->page_end; page++) {
        const uint16_t *from = page_v(t, g, page);
        float *to = t->wide + (page % N_PAGES_BLOCK) * n;
        for (size_t i = 0; i < n; i += 16) {
            v16_store(to + i, v16_load_f16(from + i));
        }
    }
}

static uint32_t n_together(uint32_t left)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 4, 6};
    return sizes[(left < N_TOGETHER ? left : N_TOGETHER) - 1];
}

static void score_group(struct tile *t, const struct group *g)
{
    copy_k(t, g);
    for (uint32_t j = g->first, n; j < g->end; j += n) {
        n = n_together(g->end - j);
        struct range all = {g->page_end, g->page};
        for (uint32_t i = j; i < j + n; i++) {
            struct range r = pages_seen(&t->queries[i], g->page, g->page_end);
            all.lo = r.lo < r.hi && r.lo < all.lo ? r.lo : all.lo;
            all.hi = r.lo < r.hi && r.hi > all.hi ? r.hi : all.hi;
        }
        if (g->wide) {
            score_wide(t, g, j, n, all);
        } else {
            score_few(t, g, j, n, all);
        }
    }
}

/* What some of the queries see and others do not comes one query at a time, before and after the rest. */
static void value_group(struct tile *t, const struct group *g)
{
    struct range block = {g->page * ESP_PAGE_TOKENS, g->page_end * ESP_PAGE_TOKENS};
    copy_v(t, g);
    for (uint32_t j = g->first, n; j < g->end; j += n) {
        n = n_together(g->end - j);
        struct range all = block;
        for (uint32_t i = j; i < j + n; i++) {
            all = intersect(all, t->queries[i].seen);
        }
        if (all.lo >= all.hi) {
            all.lo = all.hi = block.hi;
        }
        for (uint32_t i = j; i < j + n; i++) {
            add_values_one(t, g, i, intersect(t->queries[i].seen, (struct range){block.lo, all.lo}));
        }
        if (all.lo < all.hi) {
            add_values_all(t, g, j, n, all);
        }
        for (uint32_t i = j; i < j + n; i++) {
            add_values_one(t, g, i, intersect(t->queries[i].seen, (struct range){all.hi, block.hi}));
        }
    }
}

/* Runs `run` on every group of every block of pages of the span. */
ESP_VEC_INLINE void each_group(struct tile *t, uint32_t span, struct range pages,
                               void (*run)(struct tile *, const struct group *))
{
    for (uint32_t page = pages.lo, end; page < pages.hi; page = end) {
        end = (page / t->n_pages_block + 1) * t->n_pages_block;
        end = end < pages.hi ? end : pages.hi;
        struct group g;
        for (uint32_t j = 0; j < t->n_queries; j = g.end) {
            if (find_group(t, j, span, page, end, &g)) {
                run(t, &g);
            }
        }
    }
}

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
    struct range pages = {N_PAGES_SPAN, 0};
    for (uint32_t j = 0; j < t->n_queries; j++) {
        t->queries[j].seen = visible(&t->queries[j], span);
        struct range r = pages_seen(&t->queries[j], 0, N_PAGES_SPAN);
        if (r.lo < r.hi) {
            pages.lo = r.lo < pages.lo ? r.lo : pages.lo;
            pages.hi = r.hi > pages.hi ? r.hi : pages.hi;
        }
        memset(t->part[j], 0, t->dim * sizeof(float));
    }
    float m[ESP_ATTN_QUERIES], l[ESP_ATTN_QUERIES];
    each_group(t, span, pages, score_group);
    for (uint32_t j = 0; j < t->n_queries; j++) {
        if (t->queries[j].seen.lo < t->queries[j].seen.hi) {
            l[j] = weights(t->p[j], t->queries[j].seen, &m[j]);
        }
    }
    each_group(t, span, pages, value_group);
    for (uint32_t j = 0; j < t->n_queries; j++) {
        if (t->queries[j].seen.lo < t->queries[j].seen.hi) {
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
        .out = args->out + at,
        .pages = args->pages[args->row_seq[row]],
        .first = args->window != 0 && end > args->window ? end - args->window : 0,
        .end = end,
    };
    for (uint32_t d = 0; d < t->dim; d++) {
        t->q[d * t->q_step + j] = args->q[at + d];
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
    uint32_t n_heads = args->n_head / geom->n_head_kv;
    size_t n_all = (size_t)(row_end - row) * n_heads;
    for (size_t i = 0; i < n_all; i += t.n_queries) {
        t.n_queries = n_all - i < ESP_ATTN_QUERIES ? (uint32_t)(n_all - i) : ESP_ATTN_QUERIES;
        /* a few queries copy nothing, and need not stop between blocks */
        t.q_step = t.n_queries <= N_TOGETHER ? N_TOGETHER : ESP_ATTN_QUERIES;
        t.n_pages_block = t.n_queries <= N_TOGETHER ? N_PAGES_SPAN : N_PAGES_BLOCK;
        for (uint32_t j = 0; j < t.n_queries; j++) {
            set_query(&t, j, row + (i + j) / n_heads, (size_t)head_kv * n_heads + (i + j) % n_heads);
        }
        attend(&t);
    }
}
