/* Attention over pages: many queries share every K and V that is read.
 *
 * A tile is up to 48 queries: query heads of one KV head, of neighbouring rows. For each span of 512 positions
 *   1. scores: lanes are the 16 positions of a page; one product a pair of dimensions for each query and page,
 *   2. maximum, exp, the sum, and the weights as integers, 0 where a query does not see,
 *   3. values: lanes are dimensions; one product a pair of positions for each query,
 * and spans are merged in order. A span is walked in blocks of 128 positions. Neighbouring queries that have the
 * same pages in a block are a group, whatever sequence they belong to. Products and their sums are integers and
 * exact, so what a query does not see may be read and multiplied by 0, and a query has the same bits in any tile.
 * Compiled once per level (kernels/cpu/vec.h). Thread: any, see kernels/cpu/level.h.
 */
#include <math.h>

#include "kernels/x86/words.h"
#include "kernels/x86/x86.h"

#define N_PAGES_SPAN (ESP_SPAN_TOKENS / ESP_PAGE_TOKENS)
#define N_PAGES_BLOCK (ESP_KV_POSITIONS / ESP_PAGE_TOKENS)
#define DIM_MAX 256
#define N_WEIGHED 8     /* whose weights are in the L1 cache at a time */
#define WEIGHT_STEP 544 /* floats from one query's weights to the next: no power of two, which would share cache sets */
#if defined(__AVX512F__)
#define N_TOGETHER 6 /* queries whose sums are in registers at a time */
#define N_WIDE 4     /* and pages, or vectors of dimensions */
#define N_SUMS 24
#else
#define N_TOGETHER 2
#define N_WIDE 2
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
    float factor;        /* scale of the query times that of attention */
    bool any;            /* a span was seen */
    float m, l;
    float span_m, span_l, weight; /* of the span; weight: what 1 stands for */
};

struct tile {
    const struct esp_attn_args *args;
    const uint8_t *heads; /* of the KV head in page 0 */
    size_t page_bytes;
    uint32_t dim, n_queries;
    struct query queries[ESP_ATTN_QUERIES];
    _Alignas(64) int16_t q[ESP_ATTN_QUERIES][DIM_MAX];
    _Alignas(64) float p[ESP_ATTN_QUERIES][WEIGHT_STEP]; /* scores; then weights, as words from the row's start */
    _Alignas(64) float dv[ESP_SPAN_TOKENS]; /* scales of the values of a span */
    _Alignas(64) float part[ESP_ATTN_QUERIES][DIM_MAX];  /* of the span */
    _Alignas(64) float o[ESP_ATTN_QUERIES][DIM_MAX];     /* of the spans before */
};

/* Queries [first, end) of a tile on pages [page, page_end) of the span that starts at page `base`. */
struct group {
    uint32_t first, end, base, page, page_end;
    uint32_t page_last; /* the last page worth fetching early */
    const uint32_t *pages;
};

ESP_VEC_INLINE struct esp_kv_head head_at(const struct tile *t, const uint32_t *pages, uint32_t page)
{
    return esp_kv_head_parts(t->heads + pages[page] * t->page_bytes, t->dim);
}

/* Words of the weights of a query. */
ESP_VEC_INLINE int16_t *words_of(struct tile *t, uint32_t query)
{
    return (int16_t *)(void *)t->p[query];
}

/* A page to fetch while the queries from `first` on work at one: each run of queries fetches another. */
ESP_VEC_INLINE uint32_t page_next(const struct group *g, uint32_t first, uint32_t page, uint32_t n)
{
    uint32_t next = page + n + (first - g->first) / N_TOGETHER;
    return g->base + (next < g->page_last ? next : g->page_last);
}

/* Scores of queries [first, first + n_queries) with n_pages pages, not yet times the query's scale. */
ESP_VEC_INLINE void score_pages(struct tile *t, const struct group *g, uint32_t first, uint32_t page,
                                const int n_queries, const int n_pages)
{
    struct esp_kv_head head[8];
    w16 acc[N_SUMS];
    ESP_UNROLL
    for (int i = 0; i < n_pages; i++) {
        head[i] = head_at(t, g->pages, g->base + page + (uint32_t)i);
    }
    ESP_UNROLL
    for (int i = 0; i < n_queries * n_pages; i++) {
        acc[i] = w16_zero();
    }
    const int16_t *q = t->q[first];
    const int16_t *next = head_at(t, g->pages, page_next(g, first, page, (uint32_t)n_pages)).k;
    for (size_t pair = 0; pair < t->dim / 2; pair++) {
        w16 k[8];
        ESP_UNROLL
        for (int i = 0; i < n_pages; i++) {
            k[i] = w16_load(head[i].k + 32 * pair);
        }
        __builtin_prefetch(next + 32 * pair);
        ESP_UNROLL
        for (int j = 0; j < n_queries; j++) {
            w16 x = w16_pair(q + (size_t)j * DIM_MAX + 2 * pair);
            ESP_UNROLL
            for (int i = 0; i < n_pages; i++) {
                acc[j * n_pages + i] = w16_dot(acc[j * n_pages + i], k[i], x);
            }
        }
    }
    ESP_UNROLL
    for (int i = 0; i < n_pages; i++) {
        v16 scale = v16_load(head[i].dk);
        ESP_UNROLL
        for (int j = 0; j < n_queries; j++) {
            float *p = &t->p[first + (uint32_t)j][(page + (uint32_t)i) * ESP_PAGE_TOKENS];
            v16_store(p, v16_mul(w16_to_f32(acc[j * n_pages + i]), scale));
        }
    }
}

ESP_VEC_INLINE void score_run(struct tile *t, const struct group *g, uint32_t first, const int n_queries,
                              const int n_pages)
{
    uint32_t page = g->page;
    for (; page + (uint32_t)n_pages <= g->page_end; page += (uint32_t)n_pages) {
        score_pages(t, g, first, page, n_queries, n_pages);
    }
    for (; n_pages > 2 && page + 2 <= g->page_end; page += 2) {
        score_pages(t, g, first, page, n_queries, 2);
    }
    for (; page < g->page_end; page++) {
        score_pages(t, g, first, page, n_queries, 1);
    }
}

/* Adds pages [g->page, g->page_end), at most a block, to the sums of queries [first, first + n_queries), for n_dims
 * vectors of dimensions at a time. Few sums come in two parts, so that enough independent ones are under way. */
ESP_VEC_INLINE void add_values(struct tile *t, const struct group *g, uint32_t first, const int n_queries,
                               const int n_dims)
{
    const int n = n_queries * n_dims, n_parts = n <= 4 && N_SUMS > 4 ? 2 : 1;
    for (uint32_t d = 0; d < t->dim; d += 16 * (uint32_t)n_dims) {
        w16 acc[N_SUMS];
        ESP_UNROLL
        for (int i = 0; i < n * n_parts; i++) {
            acc[i] = w16_zero();
        }
        for (uint32_t page = g->page; page < g->page_end; page++) {
            const int16_t *v = head_at(t, g->pages, g->base + page).v + 2 * d;
            const int16_t *next = head_at(t, g->pages, page_next(g, first, page, 1)).v + 2 * d;
            const int16_t *w = words_of(t, first) + (size_t)page * ESP_PAGE_TOKENS;
            ESP_UNROLL
            for (int pair = 0; pair < ESP_PAGE_TOKENS / 2; pair++) {
                w16 value[N_WIDE];
                ESP_UNROLL
                for (int i = 0; i < n_dims; i++) {
                    value[i] = w16_load(v + (size_t)pair * 2 * t->dim + 32 * i);
                    __builtin_prefetch(next + (size_t)pair * 2 * t->dim + 32 * i);
                }
                ESP_UNROLL
                for (int j = 0; j < n_queries; j++) {
                    w16 x = w16_pair(w + (size_t)j * 2 * WEIGHT_STEP + 2 * pair);
                    ESP_UNROLL
                    for (int i = 0; i < n_dims; i++) {
                        const int at = pair % n_parts * n + j * n_dims + i;
                        acc[at] = w16_dot(acc[at], value[i], x);
                    }
                }
            }
        }
        ESP_UNROLL
        for (int i = 0; i < n; i++) {
            float *part = &t->part[first + (uint32_t)(i / n_dims)][d + 16 * (uint32_t)(i % n_dims)];
            w16 sum = n_parts == 2 ? w16_add(acc[i], acc[n + i]) : acc[i];
            v16_store(part, v16_add(v16_load(part), w16_to_f32(sum)));
        }
    }
}

/* The two passes over a block for n queries of a group. */
typedef void run_fn(struct tile *t, const struct group *g, uint32_t first);

#define RUN(n, n_pages)                                                                                      \
    static void score_##n(struct tile *t, const struct group *g, uint32_t first)                             \
    {                                                                                                        \
        score_run(t, g, first, n, n_pages);                                                                  \
    }                                                                                                        \
    static void add_##n(struct tile *t, const struct group *g, uint32_t first)                               \
    {                                                                                                        \
        if (t->dim == 32) {                                                                                  \
            add_values(t, g, first, n, 2);                                                                   \
        } else {                                                                                             \
            add_values(t, g, first, n, N_WIDE);                                                              \
        }                                                                                                    \
    }
#if N_TOGETHER == 6
RUN(1, 8)
RUN(2, 8)
RUN(3, 8)
RUN(4, 4)
RUN(6, 4)
static const uint32_t sizes[N_TOGETHER] = {1, 2, 3, 4, 4, 6};
static run_fn *const scores[N_TOGETHER + 1] = {NULL, score_1, score_2, score_3, score_4, NULL, score_6};
static run_fn *const values[N_TOGETHER + 1] = {NULL, add_1, add_2, add_3, add_4, NULL, add_6};
#else
RUN(1, 4)
RUN(2, 2)
static const uint32_t sizes[N_TOGETHER] = {1, 2};
static run_fn *const scores[N_TOGETHER + 1] = {NULL, score_1, score_2};
static run_fn *const values[N_TOGETHER + 1] = {NULL, add_1, add_2};
#endif

/* Bits of the lanes of [at, at + 16) that lie below end. */
static uint32_t lanes_below(uint32_t end, uint32_t at)
{
    uint32_t n = end <= at ? 0 : end - at;
    return n >= 16 ? 0xffff : (1u << n) - 1;
}

/* Bits of the lanes of the sixteen positions from `at` that are visible. */
static uint32_t lanes_seen(struct range seen, uint32_t at)
{
    return lanes_below(seen.hi, at) & ~lanes_below(seen.lo, at);
}

/* exp of what is not above 0, or NaN: the steps of v16_exp that can matter. */
ESP_VEC_INLINE v16 exp_not_above_0(v16 x)
{
    v16 clamped = v16_max(x, v16_set1(ESP_EXP_LOW));
    v16 shifted = v16_fma(clamped, v16_set1(ESP_EXP_LOG2E), v16_set1(ESP_EXP_ROUND));
    v16 n = v16_sub(shifted, v16_set1(ESP_EXP_ROUND));
    v16 r = v16_fma(n, v16_set1(-ESP_EXP_LN2_HIGH), clamped);
    r = v16_fma(n, v16_set1(-ESP_EXP_LN2_LOW), r);
    v16 p = v16_fma(v16_set1(ESP_EXP_C6), r, v16_set1(ESP_EXP_C5));
    p = v16_fma(p, r, v16_set1(ESP_EXP_C4));
    p = v16_fma(p, r, v16_set1(ESP_EXP_C3));
    p = v16_fma(p, r, v16_set1(ESP_EXP_C2));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(1.0f));
    return v16_select(v16_less_bits(x, v16_set1(ESP_EXP_LOW)), v16_set1(0.0f), v16_scale_by_bits(p, shifted));
}

/* The largest visible score, as the exponent of 1. */
static void find_most(struct tile *t, uint32_t query)
{
    struct query *qu = &t->queries[query];
    const float *p = t->p[query];
    v16 low = v16_set1(-INFINITY), m = low;
    for (uint32_t at = qu->seen.lo & ~15u; at < qu->seen.hi; at += 16) {
        uint32_t lanes = lanes_seen(qu->seen, at);
        m = v16_max(lanes == 0xffff ? v16_load(p + at) : v16_select(lanes, v16_load(p + at), low), m);
    }
    qu->span_m = v16_hmax(m) * qu->factor;
}

/* The scales of the values of a span, as far as the query sees it. */
static void copy_scales(struct tile *t, const struct query *qu, uint32_t span)
{
    for (uint32_t at = qu->seen.lo & ~15u; at < qu->seen.hi; at += 16) {
        v16_store(t->dv + at, v16_load(head_at(t, qu->pages, (span + at) / ESP_PAGE_TOKENS).dv));
    }
}

struct exponents {
    v16 factor, most, sum, high;
};

/* Scores of sixteen positions to weights in f32, 0 for those whose lane is not set. */
ESP_VEC_INLINE void exponentiate_16(struct exponents *e, float *p, const float *dv, uint32_t lanes)
{
    v16 zero = v16_set1(0), v = exp_not_above_0(v16_fma(v16_load(p), e->factor, e->most));
    v16 w = v16_mul(v, v16_load(dv));
    if (lanes != 0xffff) {
        v = v16_select(lanes, v, zero);
        w = v16_select(lanes, w, zero);
    }
    e->sum = v16_add(e->sum, v);
    e->high = v16_max(w, e->high);
    v16_store(p, w);
}

/* Scores to weights in f32, their sum, and the largest. */
static void exponentiate(struct tile *t, uint32_t query)
{
    struct query *qu = &t->queries[query];
    float *p = t->p[query];
    v16 zero = v16_set1(0);
    struct exponents e = {v16_set1(qu->factor), v16_set1(-qu->span_m), zero, zero};
    uint32_t at = qu->seen.lo & ~15u;
    if (at < qu->seen.hi && lanes_seen(qu->seen, at) != 0xffff) {
        exponentiate_16(&e, p + at, t->dv + at, lanes_seen(qu->seen, at));
        at += 16;
    }
    for (; at + 16 <= qu->seen.hi; at += 16) {
        exponentiate_16(&e, p + at, t->dv + at, 0xffff);
    }
    if (at < qu->seen.hi) {
        exponentiate_16(&e, p + at, t->dv + at, lanes_seen(qu->seen, at));
    }
    qu->span_l = v16_sum(e.sum);
    qu->weight = v16_hmax(e.high);
}

/* Weights to integers against the largest, 0 in the pages of the span that the query does not see. */
static void make_words(struct tile *t, uint32_t query, struct range pages)
{
    struct query *qu = &t->queries[query];
    const uint32_t from = qu->seen.lo & ~15u, to = (qu->seen.hi + 15) & ~15u;
    const float *p = t->p[query];
    int16_t *words = words_of(t, query);
    v16 zero = v16_set1(0), cut = v16_set1(ESP_KV_WEIGHT_MAX);
    v16 factor = v16_set1(qu->weight < ESP_KV_AMAX_MIN ? 0 : ESP_KV_WEIGHT_MAX / qu->weight);
    for (uint32_t at = pages.lo * 16; at < from; at += 16) {
        v16_store_i16(words + at, zero);
    }
    for (uint32_t at = from; at < to; at += 16) { /* in place: what is written has been read */
        v16_store_i16(words + at, v16_min(v16_mul(v16_load(p + at), factor), cut));
    }
    for (uint32_t at = to; at < pages.hi * 16; at += 16) {
        v16_store_i16(words + at, zero);
    }
    qu->weight = qu->weight / ESP_KV_WEIGHT_MAX;
}

/* Turns the scores of the span into integer weights, some queries at a time: between the passes one waits for the
 * last numbers of a query, while those of the next are under way. */
static void weigh(struct tile *t, uint32_t span, struct range pages)
{
    const uint32_t *pages_copied = NULL;
    struct range copied = {0, 0};
    for (uint32_t first = 0, end; first < t->n_queries; first = end) {
        end = t->n_queries - first < N_WEIGHED ? t->n_queries : first + N_WEIGHED;
        for (uint32_t j = first; j < end; j++) {
            find_most(t, j);
        }
        for (uint32_t j = first; j < end; j++) {
            struct query *qu = &t->queries[j];
            if (qu->pages != pages_copied || qu->seen.lo < copied.lo || qu->seen.hi > copied.hi) {
                copy_scales(t, qu, span);
                pages_copied = qu->pages;
                copied = (struct range){qu->seen.lo & ~15u, (qu->seen.hi + 15) & ~15u};
            }
            exponentiate(t, j);
        }
        for (uint32_t j = first; j < end; j++) {
            make_words(t, j, pages);
        }
    }
}

static void merge(struct tile *t, uint32_t query)
{
    struct query *qu = &t->queries[query];
    const float *part = t->part[query];
    float *o = t->o[query];
    v16 weight = v16_set1(qu->weight);
    if (!qu->any) {
        qu->any = true;
        qu->m = qu->span_m;
        qu->l = qu->span_l;
        for (uint32_t d = 0; d < t->dim; d += 16) {
            v16_store(o + d, v16_mul(weight, v16_load(part + d)));
        }
        return;
    }
    float high = qu->m > qu->span_m ? qu->m : qu->span_m;
    float a = esp_expf(qu->m - high), b = esp_expf(qu->span_m - high);
    float la = qu->l * a, lb = qu->span_l * b;
    qu->l = la + lb;
    qu->m = high;
    for (uint32_t d = 0; d < t->dim; d += 16) {
        v16 oa = v16_mul(v16_load(o + d), v16_set1(a));
        v16 ob = v16_mul(v16_mul(weight, v16_load(part + d)), v16_set1(b));
        v16_store(o + d, v16_add(oa, ob));
    }
}

/* Pages [page, page_end) of the span as far as the query sees them. */
static struct range pages_seen(const struct query *query, uint32_t page, uint32_t page_end)
{
    uint32_t lo = query->seen.lo / ESP_PAGE_TOKENS, hi = (query->seen.hi + ESP_PAGE_TOKENS - 1) / ESP_PAGE_TOKENS;
    return (struct range){lo > page ? lo : page, hi < page_end ? hi : page_end};
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
    uint32_t n_pages = (leader->seen.hi + ESP_PAGE_TOKENS - 1) / ESP_PAGE_TOKENS;
    g.page_last = n_pages > all.hi ? n_pages - 1 : all.hi - 1;
    *ret_group = g;
    return all.lo < all.hi;
}

/* Runs one of `runs` on every group of every block of pages of the span. */
static void each_group(struct tile *t, uint32_t span, struct range pages, run_fn *const *runs)
{
    for (uint32_t page = pages.lo, end; page < pages.hi; page = end) {
        end = (page / N_PAGES_BLOCK + 1) * N_PAGES_BLOCK;
        end = end < pages.hi ? end : pages.hi;
        struct group g;
        for (uint32_t j = 0; j < t->n_queries; j = g.end) {
            if (!find_group(t, j, span, page, end, &g)) {
                continue;
            }
            for (uint32_t i = j, n; i < g.end; i += n) {
                n = sizes[(g.end - i < N_TOGETHER ? g.end - i : N_TOGETHER) - 1];
                runs[n](t, &g, i);
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
    each_group(t, span, pages, scores);
    weigh(t, span, pages);
    each_group(t, span, pages, values);
    for (uint32_t j = 0; j < t->n_queries; j++) {
        if (t->queries[j].seen.lo < t->queries[j].seen.hi) {
            merge(t, j);
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
        .factor = esp_words_of_key(args->q + at, t->dim, t->q[j]) * args->scale,
    };
}

void ESP_LEVEL_NAME(esp_x86_attn)(const struct esp_attn_args *args, uint32_t head_kv, uint32_t row, uint32_t row_end)
{
    const struct esp_kv_geom *geom = &args->geom;
    struct tile t;
    t.args = args;
    t.dim = geom->head_dim;
    t.page_bytes = esp_kv_page_bytes(geom);
    t.heads = (const uint8_t *)args->kv + args->layer * esp_kv_layer_bytes(geom) + head_kv * esp_kv_head_bytes(geom);
    uint32_t n_heads = args->n_head / geom->n_head_kv;
    size_t n_all = (size_t)(row_end - row) * n_heads;
    for (size_t i = 0; i < n_all; i += t.n_queries) {
        t.n_queries = n_all - i < ESP_ATTN_QUERIES ? (uint32_t)(n_all - i) : ESP_ATTN_QUERIES;
        for (uint32_t j = 0; j < t.n_queries; j++) {
            set_query(&t, j, row + (i + j) / n_heads, (size_t)head_kv * n_heads + (i + j) % n_heads);
        }
        attend(&t);
    }
}
