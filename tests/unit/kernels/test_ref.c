/* The reference level against plain formulas in double: right within rounding. That it and the other
 * levels agree bit for bit is the matter of tests/kernels. */
#include <math.h>

#include "kernels/format.h"
#include "kernels/ops.h"
#include "kernels/ref/math.h"
#include "runtime/base/cpu.h"
#include "tests/esptest.h"

static float random_float(void)
{
    return (float)(esp_rng_unit(esp_rng_next(&esp_test_state.rng)) * 2 - 1);
}

static struct esp_dev *open_ref(void)
{
    struct esp_dev_config config = {
        .n_threads = 1, .n_rows_max = 1100, .n_in_max = 1024, .head_dim_max = 256, .n_ctx_max = 4096};
    struct esp_dev *dev = NULL;
    struct esp_err err;
    esp_cpu_level_mask(ESP_CPU_SCALAR);
    CHECK(esp_ops_cpu()->dev_open(&config, &dev, &err) == ESP_OK, "%s", err.message);
    return dev;
}

static void test_exp(void)
{
    double worst = 0;
    for (float x = -86.9f; x < 88; x += 0.0137f) {
        double want = exp((double)x);
        worst = fmax(worst, fabs((double)esp_expf(x) - want) / want);
    }
    CHECK(worst < 4e-7, "%g", worst);
    CHECK(esp_expf(0) == 1 && esp_expf(-0.0f) == 1 && esp_expf(-INFINITY) == 0 && esp_expf(-88) == 0);
    CHECK(isfinite(esp_expf(1000)) && isfinite(esp_siluf(-1000)) && esp_siluf(1000) == 1000);
    for (float x = -9; x < 9; x += 0.01f) {
        double u = 0.7978845608028654 * (double)(x + 0.044715f * x * x * x);
        CHECK(fabs((double)esp_gelu_tanhf(x) - 0.5 * (double)x * (1 + tanh(u))) < 2e-6, "%g", (double)x);
        CHECK(fabs((double)esp_siluf(x) - (double)x / (1 + exp(-(double)x))) < 2e-6, "%g", (double)x);
    }
}

/* A block of random bits whose scales are harmless numbers. */
static void random_block(enum esp_type type, uint8_t *p)
{
    const struct esp_type_info *info = esp_type_info(type);
    for (uint32_t i = 0; i < info->bytes; i++) {
        p[i] = (uint8_t)esp_rng_next(&esp_test_state.rng);
    }
    static const struct {
        int type, at[2];
    } scales[] = {{2, {0, 0}},   {3, {0, 2}},    {6, {0, 0}}, {7, {0, 2}}, {8, {0, 0}},    {10, {80, 82}},
                  {11, {108, 108}}, {12, {0, 2}}, {13, {0, 2}}, {14, {208, 208}}, {1, {0, 0}}};
    for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
        for (int j = 0; scales[k].type == (int)type && j < 2; j++) {
            uint16_t h = esp_f16_from_f32(random_float() * 0.1f);
            memcpy(p + scales[k].at[j], &h, 2);
        }
    }
    float f = random_float();
    if (type == ESP_TYPE_F32) {
        memcpy(p, &f, 4);
    } else if (type == ESP_TYPE_BF16) {
        uint32_t bits;
        memcpy(&bits, &f, 4);
        bits >>= 16;
        memcpy(p, &bits, 2);
    }
}

static void check_linear(struct esp_dev *dev, enum esp_type type)
{
    enum { N_IN = 512, N_OUT = 20, N_ROWS = 3 };
    static uint8_t file[N_IN * N_OUT * 4], packed[N_IN * N_OUT * 4];
    static float x[N_ROWS * N_IN], y[N_ROWS * N_OUT], w[N_IN];
    const struct esp_type_info *info = esp_type_info(type);
    const struct esp_ops *ops = esp_ops_cpu();
    for (size_t b = 0; b < N_IN * N_OUT / info->block; b++) {
        random_block(type, file + b * info->bytes);
    }
    for (int i = 0; i < N_ROWS * N_IN; i++) {
        x[i] = random_float();
    }
    struct esp_weight weight;
    REQUIRE(ops->weight_bytes(type, N_OUT, N_IN) <= sizeof packed, "%s", info->name);
    struct esp_pack_args pack = {.type = type, .n_out = N_OUT, .n_in = N_IN, .row_end = N_OUT, .src = file,
                                 .dst = packed};
    REQUIRE(ops->weight_pack(dev, &pack, &weight) == ESP_OK, "%s", info->name);
    struct esp_linear_args args = {.n_weights = 1, .weight = {&weight}, .y = {y}, .x = x, .n_rows = N_ROWS};
    REQUIRE(ops->linear(dev, &args) == ESP_OK, "%s", info->name);
    for (int r = 0; r < N_ROWS; r++) {
        for (int o = 0; o < N_OUT; o++) {
            esp_dequantize(type, file + (size_t)o * (N_IN / info->block) * info->bytes, N_IN, w);
            double sum = 0, magnitude = 0;
            for (int i = 0; i < N_IN; i++) {
                sum += (double)w[i] * (double)x[r * N_IN + i];
                magnitude += fabs((double)w[i]);
            }
            double bound = info->block == 1 ? 1e-6 * magnitude : 0.004 * magnitude;
            CHECK(fabs(sum - (double)y[r * N_OUT + o]) <= bound, "%s: %g, want %g", info->name,
                  (double)y[r * N_OUT + o], sum);
        }
    }
}

static void test_linear(void)
{
    struct esp_dev *dev = open_ref();
    REQUIRE(dev != NULL);
    for (uint32_t type = 0; type < ESP_TYPE_COUNT; type++) {
        if (esp_type_info(type) != NULL && esp_type_info(type)->runs) {
            check_linear(dev, type);
        }
    }
    esp_ops_cpu()->dev_close(dev);
}

enum { DIM = 64, HEADS = 4, HEADS_KV = 2, TOKENS = 1100, PAGES = (TOKENS + 15) / 16 };

struct attn_case {
    float q[TOKENS * HEADS * DIM], k[TOKENS * HEADS_KV * DIM], v[TOKENS * HEADS_KV * DIM];
    float cos_sin[TOKENS * DIM], out[TOKENS * HEADS * DIM];
    uint32_t pos[TOKENS], page[TOKENS], table[PAGES], row_seq[TOKENS];
    _Alignas(64) uint8_t kv[PAGES * 2 * HEADS_KV * (DIM * 16 * 4 + 128)];
};

static double score(const struct attn_case *c, uint32_t r, uint32_t h, uint32_t t)
{
    double sum = 0;
    for (int d = 0; d < DIM; d++) {
        sum += (double)c->q[(r * HEADS + h) * DIM + d] * (double)c->k[(t * HEADS_KV + h / 2) * DIM + d];
    }
    return sum / 8;
}

static void check_row(const struct attn_case *c, uint32_t r, uint32_t h, uint32_t window)
{
    double total = 0, want[DIM] = {0};
    for (uint32_t t = window != 0 && r + 1 > window ? r + 1 - window : 0; t <= r; t++) {
        double p = exp(score(c, r, h, t));
        total += p;
        for (int d = 0; d < DIM; d++) {
            want[d] += p * (double)c->v[(t * HEADS_KV + h / 2) * DIM + d];
        }
    }
    for (int d = 0; d < DIM; d++) {
        double got = (double)c->out[(r * HEADS + h) * DIM + d];
        CHECK(fabs(got - want[d] / total) < 1e-3, "row %u head %u dim %d: %g, want %g", r, h, d, got, want[d] / total);
    }
}

static void test_attention(void)
{
    struct esp_dev *dev = open_ref();
    const struct esp_ops *ops = esp_ops_cpu();
    struct attn_case *c = aligned_alloc(64, sizeof *c);
    REQUIRE(dev != NULL && c != NULL);
    memset(c, 0, sizeof *c);
    for (uint32_t t = 0; t < TOKENS; t++) {
        c->pos[t] = t;
        c->page[t] = c->table[t / 16] = PAGES - 1 - t / 16;
        for (int i = 0; i < DIM / 2; i++) {
            c->cos_sin[t * DIM + 2 * i] = 1;
        }
    }
    for (size_t i = 0; i < TOKENS * HEADS * DIM; i++) {
        c->q[i] = random_float();
        c->k[i / 2] = random_float() * 2;
        c->v[i / 2] = random_float();
    }
    struct esp_kv_geom geom = {.n_layer = 2, .n_head_kv = HEADS_KV, .head_dim = DIM};
    struct esp_rope_kv_args rope = {.q = c->q, .k = c->k, .v = c->v, .cos_sin = c->cos_sin, .kind = ESP_ROPE_NEOX,
                                    .n_rot = DIM, .n_rows = TOKENS, .n_head = HEADS, .kv = c->kv, .geom = geom,
                                    .layer = 1, .page = c->page, .pos = c->pos};
    CHECK(ops->rope_kv(dev, &rope) == ESP_OK);
    const uint32_t *tables[1] = {c->table};
    for (uint32_t window = 0; window < 700; window += 600) {
        struct esp_attn_args attn = {.q = c->q, .out = c->out, .kv = c->kv, .geom = geom, .layer = 1,
                                     .n_rows = TOKENS, .n_head = HEADS, .pos = c->pos, .row_seq = c->row_seq,
                                     .pages = tables, .window = window, .scale = 0.125f};
        CHECK(ops->attn(dev, &attn) == ESP_OK);
        static const uint32_t rows[] = {0, 1, 15, 16, 511, 512, 600, 1023, 1024, 1099};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            check_row(c, rows[i], (uint32_t)i % HEADS, window);
        }
    }
    free(c);
    ops->dev_close(dev);
}

static void test_norm_and_rope(void)
{
    struct esp_dev *dev = open_ref();
    const struct esp_ops *ops = esp_ops_cpu();
    REQUIRE(dev != NULL);
    float x[50], w[50], y[50];
    double ss = 0;
    for (int i = 0; i < 50; i++) {
        x[i] = random_float() * 3;
        w[i] = random_float();
        ss += (double)x[i] * (double)x[i];
    }
    struct esp_norm_args norm = {.x = x, .w = w, .y = y, .n_rows = 1, .dim = 50, .eps = 1e-5f};
    CHECK(ops->norm(dev, &norm) == ESP_OK);
    for (int i = 0; i < 50; i++) {
        double want = (double)x[i] / sqrt(ss / 50 + 1e-5) * (double)w[i];
        CHECK(fabs(want - (double)y[i]) < 1e-5, "%d", i);
    }
    uint32_t pos = 7;
    double inv_freq[16];
    for (int i = 0; i < 16; i++) {
        inv_freq[i] = pow(10000, -i / 16.0);
    }
    float table[32];
    struct esp_rope_table_args rope = {.pos = &pos, .inv_freq = inv_freq, .mscale = 1, .n_rows = 1, .n_rot = 32,
                                       .cos_sin = table};
    CHECK(ops->rope_table(dev, &rope) == ESP_OK);
    CHECK(table[0] == (float)cos(7.0) && table[1] == (float)sin(7.0));
    float q[32] = {0}, k[32] = {0}, v[32] = {0};
    _Alignas(4) uint8_t kv[32 * 16 * 4 + 128] = {0};
    q[1] = 1; /* the second pair's partner: dimension 17 (NEOX) or the first pair's second half (NORM) */
    struct esp_rope_kv_args args = {.q = q, .k = k, .v = v, .cos_sin = table, .kind = ESP_ROPE_NEOX, .n_rot = 32,
                                    .n_rows = 1, .n_head = 1, .kv = kv, .geom = {1, 1, 32}, .page = (uint32_t[]){0},
                                    .pos = &pos};
    CHECK(ops->rope_kv(dev, &args) == ESP_OK);
    CHECK(q[1] == table[2] && q[17] == table[3] && q[0] == 0);
    memset(q, 0, sizeof q);
    q[1] = 1;
    args.kind = ESP_ROPE_NORM;
    CHECK(ops->rope_kv(dev, &args) == ESP_OK);
    CHECK(q[0] == -table[1] && q[1] == table[0]);
    ops->dev_close(dev);
}

ESP_TEST_MAIN(T(test_exp), T(test_linear), T(test_attention), T(test_norm_and_rope))
