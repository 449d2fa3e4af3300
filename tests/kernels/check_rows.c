/* norm, glu, rope and attention: every level and thread count, odd shapes, against the reference. */
#include "kernels/cpu/kv.h"
#include "tests/kernels/check.h"

static const struct esp_dev_config config = {
    .n_rows_max = 72, .n_in_max = 1024, .head_dim_max = 256, .n_ctx_max = 2048};

static void check_norm(void)
{
    uint32_t dim = 1 + rnd_below(rnd_below(2) == 0 ? 70 : 1000), n_rows = 1 + rnd_below(70);
    size_t n = (size_t)dim * n_rows;
    float *x = malloc(n * 4), *w = malloc(dim * 4), *y0 = malloc(n * 4), *want = malloc(n * 4);
    rnd_floats(x, n);
    rnd_floats(w, dim);
    rnd_floats(y0, n);
    struct esp_norm_args args = {.x = x, .w = w, .n_rows = n_rows, .dim = dim, .eps = 1e-5f,
                                 .flags = rnd_below(2) == 0 ? ESP_NORM_ADD : 0};
    for (int d = 0; d < check_n_devs; d++) {
        struct guarded y = guarded_make(n * 4);
        memcpy(y.data, y0, n * 4);
        args.y = (float *)(void *)y.data;
        CHECK(esp_ops_cpu()->norm(check_devs[d].dev, &args) == ESP_OK);
        if (d == 0) {
            memcpy(want, y.data, n * 4);
        }
        check_same(want, y.data, n, "norm", check_devs[d].name);
        if ((args.flags & ESP_NORM_ADD) == 0) { /* in place */
            memcpy(y.data, x, n * 4);
            args.x = args.y;
            CHECK(esp_ops_cpu()->norm(check_devs[d].dev, &args) == ESP_OK);
            args.x = x;
            check_same(want, y.data, n, "norm in place", check_devs[d].name);
        }
        guarded_free(&y, "norm");
    }
    free(x);
    free(w);
    free(y0);
    free(want);
}

static void test_norm(void)
{
    REQUIRE(check_open(&config));
    for (int round = 0; round < 60; round++) {
        check_norm();
    }
    check_close();
}

static void check_glu(enum esp_act act)
{
    uint32_t dim = 1 + rnd_below(600), n_rows = 1 + rnd_below(40);
    size_t n = (size_t)dim * n_rows;
    float *gate = malloc(n * 4), *up = malloc(n * 4), *want = malloc(n * 4);
    rnd_floats(gate, n);
    rnd_floats(up, n);
    for (size_t i = 0; i < n; i++) {
        gate[i] *= rnd_below(4) == 0 ? 200 : 5;
    }
    struct esp_glu_args args = {.gate = gate, .up = up, .n_rows = n_rows, .dim = dim, .act = act};
    for (int d = 0; d < check_n_devs; d++) {
        struct guarded out = guarded_make(n * 4);
        args.out = (float *)(void *)out.data;
        CHECK(esp_ops_cpu()->glu(check_devs[d].dev, &args) == ESP_OK);
        if (d == 0) {
            memcpy(want, out.data, n * 4);
        }
        check_same(want, out.data, n, "glu", check_devs[d].name);
        memcpy(out.data, gate, n * 4);
        args.gate = args.out;
        CHECK(esp_ops_cpu()->glu(check_devs[d].dev, &args) == ESP_OK);
        args.gate = gate;
        check_same(want, out.data, n, "glu in place", check_devs[d].name);
        guarded_free(&out, "glu");
    }
    free(gate);
    free(up);
    free(want);
}

static void test_glu(void)
{
    REQUIRE(check_open(&config));
    for (int round = 0; round < 30; round++) {
        check_glu(round % 2 == 0 ? ESP_ACT_SILU : ESP_ACT_GELU_TANH);
    }
    check_close();
}

/* Some sequences with KV of their own in scattered pages, and rows that stand somewhere in them. */
struct attn_case {
    struct esp_kv_geom geom;
    uint32_t n_head, n_seqs, n_rows, n_pages, n_pages_seq, window;
    uint32_t tables[3][128], pos[72], row_seq[72], page[72];
    const uint32_t *pages[3];
    uint8_t *kv;
    size_t kv_bytes;
    float *q, *k, *v, *cos_sin;
    size_t n_q, n_k;
};

static void make_rows(struct attn_case *c)
{
    uint32_t r = 0;
    for (uint32_t s = 0; s < c->n_seqs && r < c->n_rows; s++) {
        uint32_t n = s + 1 == c->n_seqs ? c->n_rows - r : 1 + rnd_below(c->n_rows - r);
        n = n > c->n_pages_seq * 16 ? c->n_pages_seq * 16 : n;
        uint32_t first = rnd_below(c->n_pages_seq * 16 - n + 1);
        for (uint32_t i = 0; i < n; i++, r++) {
            c->pos[r] = first + i;
            c->row_seq[r] = s;
            c->page[r] = c->tables[s][c->pos[r] / 16];
        }
    }
    c->n_rows = r;
}

/* Keys and values at their limits as well; scales of 0, small and large. */
static void fill_head(uint8_t *at, uint32_t dim)
{
    struct esp_kv_head head = esp_kv_head_parts(at, dim);
    int32_t k_max = (int32_t)(ESP_KV_KEY_MAX / sqrtf((float)dim)), v_max = (int32_t)ESP_KV_VALUE_MAX;
    for (size_t i = 0; i < (size_t)dim * ESP_PAGE_TOKENS; i++) {
        head.k[i] = (int16_t)((int32_t)rnd_below(2 * (uint32_t)k_max + 1) - k_max);
        head.v[i] = (int16_t)((int32_t)rnd_below(2 * (uint32_t)v_max + 1) - v_max);
    }
    bool limit = rnd_below(8) == 0;
    for (size_t i = 0; i < ESP_PAGE_TOKENS; i++) {
        static const float factors[] = {0, 1e-33f, 1e-20f, 100};
        float factor = rnd_below(8) == 0 ? factors[rnd_below(4)] : 1;
        head.dk[i] = (float)(rnd_below(1000) + 1) * 1e-6f * factor;
        head.dv[i] = (float)(rnd_below(1000) + 1) * 1e-6f * factor;
        for (uint32_t d = 0; limit && d < dim; d++) {
            head.k[esp_kv_k_idx(i, d)] = d == 3 ? -(int16_t)ESP_KV_KEY_MAX : 0;
            head.v[esp_kv_v_idx(dim, i, d)] = (int16_t)(d % 2 == 0 ? v_max : -v_max);
        }
    }
}

static void make_attn(struct attn_case *c)
{
    static const uint32_t dims[] = {32, 64, 64, 128, 256}, groups[] = {1, 2, 3, 4, 5, 7, 8};
    *c = (struct attn_case){.geom = {.n_layer = 1 + rnd_below(2), .n_head_kv = 1 + rnd_below(3),
                                     .head_dim = dims[rnd_below(5)]}};
    c->n_head = c->geom.n_head_kv * groups[rnd_below(7)];
    c->n_seqs = 1 + rnd_below(3);
    c->n_rows = 1 + rnd_below(rnd_below(2) == 0 ? 4 : 40);
    c->n_pages_seq = 1 + rnd_below(rnd_below(3) == 0 ? 90 : 6);
    c->window = rnd_below(2) == 0 ? 0 : 1 + rnd_below(rnd_below(2) == 0 ? 40 : 900);
    c->n_pages = c->n_seqs * c->n_pages_seq;
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        for (uint32_t i = 0; i < c->n_pages_seq; i++) { /* last page first, sequences apart */
            c->tables[s][i] = c->n_pages - 1 - (s * c->n_pages_seq + i);
        }
        c->pages[s] = c->tables[s];
    }
    make_rows(c);
    c->kv_bytes = c->n_pages * esp_kv_page_bytes(&c->geom);
    c->kv = malloc(c->kv_bytes);
    for (size_t i = 0; i < (size_t)c->n_pages * c->geom.n_layer * c->geom.n_head_kv; i++) {
        fill_head(c->kv + i * esp_kv_head_bytes(&c->geom), c->geom.head_dim);
    }
    c->n_q = (size_t)c->n_rows * c->n_head * c->geom.head_dim;
    c->n_k = (size_t)c->n_rows * c->geom.n_head_kv * c->geom.head_dim;
    c->q = malloc(c->n_q * 4);
    c->k = malloc(c->n_k * 4);
    c->v = malloc(c->n_k * 4);
    c->cos_sin = malloc((size_t)c->n_rows * c->geom.head_dim * 4);
    rnd_floats(c->k, c->n_k);
    rnd_floats(c->v, c->n_k);
    for (size_t i = 0; i < c->n_q; i++) {
        c->q[i] = rnd_float() * 3;
    }
    for (size_t i = 0; i < (size_t)c->n_rows * c->geom.head_dim; i++) {
        c->cos_sin[i] = rnd_float();
    }
}

static void free_attn(struct attn_case *c)
{
    free(c->kv);
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->cos_sin);
}

static void check_rope(const struct attn_case *c)
{
    struct guarded want = {0}, want_q = {0};
    enum esp_rope_kind kind = (enum esp_rope_kind)rnd_below(3);
    uint32_t n_rot = kind == ESP_ROPE_NONE ? 0 : 2 * (1 + rnd_below(c->geom.head_dim / 2));
    uint32_t layer = rnd_below(c->geom.n_layer);
    for (int d = 0; d < check_n_devs; d++) {
        struct guarded kv = guarded_make(c->kv_bytes), q = guarded_make(c->n_q * 4), k = guarded_make(c->n_k * 4);
        memcpy(kv.data, c->kv, c->kv_bytes);
        memcpy(q.data, c->q, c->n_q * 4);
        memcpy(k.data, c->k, c->n_k * 4);
        struct esp_rope_kv_args args = {
            .q = (float *)(void *)q.data, .k = (float *)(void *)k.data, .v = c->v, .cos_sin = c->cos_sin,
            .kind = kind, .n_rot = n_rot, .n_rows = c->n_rows, .n_head = c->n_head, .kv = kv.data,
            .geom = c->geom, .layer = layer, .page = c->page, .pos = c->pos};
        CHECK(esp_ops_cpu()->rope_kv(check_devs[d].dev, &args) == ESP_OK);
        if (d == 0) {
            want = kv;
            want_q = q;
        } else {
            CHECK(memcmp(want.data, kv.data, c->kv_bytes) == 0, "pages, %s", check_devs[d].name);
            check_same(want_q.data, q.data, c->n_q, "rope q", check_devs[d].name);
            guarded_free(&kv, "pages");
            guarded_free(&q, "q");
        }
        guarded_free(&k, "k");
    }
    guarded_free(&want, "pages");
    guarded_free(&want_q, "q");
}

static void run_attn(const struct attn_case *c, int d, uint32_t row, uint32_t n_rows, const void *kv, float *out)
{
    struct esp_attn_args args = {
        .q = c->q + (size_t)row * c->n_head * c->geom.head_dim, .out = out, .kv = kv, .geom = c->geom,
        .layer = c->geom.n_layer - 1, .n_rows = n_rows, .n_head = c->n_head, .pos = c->pos + row,
        .row_seq = c->row_seq + row, .pages = c->pages, .window = c->window, .scale = 0.15f};
    CHECK(esp_ops_cpu()->attn(check_devs[d].dev, &args) == ESP_OK);
}

/* What no row may see is NaN, and integers of all ones, in this copy. */
static uint8_t *poisoned(const struct attn_case *c)
{
    const struct esp_kv_geom *geom = &c->geom;
    uint8_t *kv = malloc(c->kv_bytes);
    memset(kv, 0xff, c->kv_bytes);
    for (uint32_t r = 0; r < c->n_rows; r++) {
        uint32_t end = c->pos[r] + 1, first = c->window != 0 && end > c->window ? end - c->window : 0;
        for (uint32_t t = first; t < end; t++) {
            uint32_t page = c->tables[c->row_seq[r]][t / 16], slot = t % 16;
            for (uint32_t h = 0; h < geom->n_head_kv; h++) {
                struct esp_kv_head from = esp_kv_head_at(c->kv, geom, geom->n_layer - 1, page, h);
                struct esp_kv_head to = esp_kv_head_at(kv, geom, geom->n_layer - 1, page, h);
                to.dk[slot] = from.dk[slot];
                to.dv[slot] = from.dv[slot];
                for (uint32_t d = 0; d < geom->head_dim; d++) {
                    to.k[esp_kv_k_idx(slot, d)] = from.k[esp_kv_k_idx(slot, d)];
                    size_t at = esp_kv_v_idx(geom->head_dim, slot, d);
                    to.v[at] = from.v[at];
                }
            }
        }
    }
    return kv;
}

static void check_attn(const struct attn_case *c)
{
    size_t row_floats = (size_t)c->n_head * c->geom.head_dim;
    float *want = malloc(c->n_q * 4);
    uint8_t *kv = poisoned(c);
    char what[128];
    snprintf(what, sizeof what, "attn dim %u heads %u/%u rows %u window %u", c->geom.head_dim, c->n_head,
             c->geom.n_head_kv, c->n_rows, c->window);
    run_attn(c, 0, 0, c->n_rows, c->kv, want);
    for (int d = 0; d < check_n_devs; d++) {
        struct guarded out = guarded_make(c->n_q * 4);
        run_attn(c, d, 0, c->n_rows, kv, (float *)(void *)out.data);
        check_same(want, out.data, c->n_q, what, check_devs[d].name);
        guarded_free(&out, what);
        uint32_t row = rnd_below(c->n_rows), n = 1 + rnd_below(c->n_rows - row);
        out = guarded_make(n * row_floats * 4);
        run_attn(c, d, row, n, kv, (float *)(void *)out.data);
        check_same(want + row * row_floats, out.data, n * row_floats, what, check_devs[d].name);
        guarded_free(&out, what);
    }
    free(kv);
    free(want);
}

static void test_rope(void)
{
    REQUIRE(check_open(&config));
    for (int round = 0; round < 40; round++) {
        struct attn_case c;
        make_attn(&c);
        check_rope(&c);
        free_attn(&c);
    }
    check_close();
}

/* Sequences begin with the same pages, up to somewhere. Only for reading: rows would write to one another's. */
static void share_pages(struct attn_case *c)
{
    for (uint32_t s = 1; s < c->n_seqs; s++) {
        uint32_t n_shared = rnd_below(c->n_pages_seq + 1);
        memcpy(c->tables[s], c->tables[rnd_below(s)], n_shared * sizeof c->tables[s][0]);
    }
}

static void test_attn(void)
{
    REQUIRE(check_open(&config));
    for (int round = 0; round < 80; round++) {
        struct attn_case c;
        make_attn(&c);
        if (round % 2 == 0) {
            share_pages(&c);
        }
        check_attn(&c);
        free_attn(&c);
    }
    check_close();
}

static void test_copy_pages(void)
{
    REQUIRE(check_open(&config));
    uint8_t kv[6 * 128];
    for (int d = 0; d < check_n_devs; d++) {
        for (size_t i = 0; i < sizeof kv; i++) {
            kv[i] = (uint8_t)(i / 128);
        }
        struct esp_copy_pages_args args = {
            .kv = kv, .page_bytes = 128, .src = (uint32_t[]){1, 4}, .dst = (uint32_t[]){3, 0}, .n = 2};
        CHECK(esp_ops_cpu()->copy_pages(check_devs[d].dev, &args) == ESP_OK);
        CHECK(kv[0] == 4 && kv[127] == 4 && kv[128] == 1 && kv[256] == 2 && kv[512] == 4);
        CHECK(kv[3 * 128] == 1 && kv[4 * 128 - 1] == 1);
    }
    check_close();
}

ESP_TEST_MAIN(T(test_norm), T(test_glu), T(test_rope), T(test_attn), T(test_copy_pages))
