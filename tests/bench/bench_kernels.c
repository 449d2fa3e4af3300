/* Speed of the CPU kernels alone, as JSON lines.
 *
 * usage: bench_kernels [--threads N] [--level NAME] [--seconds S] [--shape N_OUT N_IN] [TYPE | attn | sample]
 * linear: matrices of one shape walked in order over about 96 MB, so that few rows read memory and not a
 * cache; rates count multiplications and additions. One thread is timed by the CPU time of the process,
 * which other load on the machine disturbs least, several by the wall clock; the best of several runs.
 */
#include <math.h>

#include "kernels/cpu/kv.h"
#include "kernels/ops.h"
#include "runtime/base/alloc.h"
#include "runtime/base/cpu.h"
#include "tests/esptest.h"

static const struct esp_ops *ops;
static struct esp_dev *dev;
static int n_threads = 2;
static double seconds = 0.3;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(n_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a call: the least, which other load on the machine disturbs least. */
static double measure(void (*fn)(void *), void *ctx)
{
    double times[512];
    int n = 0;
    fn(ctx);
    for (double start = now_s(); n < 512 && (n < 5 || now_s() - start < seconds); n++) {
        double t = now_s();
        fn(ctx);
        times[n] = now_s() - t;
    }
    qsort(times, (size_t)n, sizeof times[0], by_value);
    return times[0];
}

static void *must_alloc(size_t bytes)
{
    void *p = NULL;
    if (ops->alloc(dev, ESP_TAG_MISC, bytes, &p) != ESP_OK) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static uint32_t rnd(void)
{
    return (uint32_t)esp_rng_next(&esp_test_state.rng);
}

static float *random_floats(size_t n)
{
    float *x = must_alloc(n * 4);
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)(int32_t)rnd() * 0x1p-31f;
    }
    return x;
}

/* Blocks of random values with scales of about 0.01. */
static void random_weights(enum esp_type type, uint8_t *p, size_t n_blocks)
{
    uint32_t bytes = esp_type_info((uint32_t)type)->bytes;
    for (size_t i = 0; i < n_blocks * bytes; i++) {
        p[i] = (uint8_t)rnd();
    }
    static const int at[ESP_TYPE_COUNT][2] = {[10] = {80, 82}, [11] = {108, 108}, [12] = {0, 2},
                                              [13] = {0, 2},   [14] = {208, 208}, [3] = {0, 2},
                                              [7] = {0, 2}};
    for (size_t b = 0; b < n_blocks; b++) {
        for (int j = 0; j < 2; j++) {
            uint16_t h = esp_f16_from_f32((float)(1 + (rnd() & 15)) * 1e-3f);
            memcpy(p + b * bytes + at[type][j], &h, 2);
        }
    }
}

#define N_MATRICES_MAX 256
struct linear_bench {
    struct esp_weight weights[N_MATRICES_MAX];
    uint32_t n_weights, n_rows;
    float *x, *y;
};

static void run_linear(void *ctx)
{
    struct linear_bench *b = ctx;
    for (uint32_t w = 0; w < b->n_weights; w++) {
        struct esp_linear_args args = {
            .n_weights = 1, .weight = {&b->weights[w]}, .y = {b->y}, .x = b->x, .n_rows = b->n_rows};
        if (ops->linear(dev, &args) != ESP_OK) {
            exit(1);
        }
    }
}

static void bench_linear(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    static struct linear_bench b;
    const struct esp_type_info *info = esp_type_info((uint32_t)type);
    size_t n_blocks = (size_t)n_out * n_in / info->block, packed = ops->weight_bytes(type, n_out, n_in);
    uint8_t *file = must_alloc(n_blocks * info->bytes);
    random_weights(type, file, n_blocks);
    b.n_weights = (uint32_t)((size_t)96 * 1000000 / packed);
    b.n_weights = b.n_weights < 1 ? 1 : b.n_weights > N_MATRICES_MAX ? N_MATRICES_MAX : b.n_weights;
    double pack_s = 0;
    for (uint32_t w = 0; w < b.n_weights; w++) {
        struct esp_pack_args args = {.type = type, .n_out = n_out, .n_in = n_in, .row_end = n_out, .src = file,
                                     .dst = must_alloc(packed)};
        double t = now_s();
        if (ops->weight_pack(dev, &args, &b.weights[w]) != ESP_OK) {
            exit(1);
        }
        pack_s += now_s() - t;
    }
    printf("{\"bench\":\"pack\",\"type\":\"%s\",\"n_out\":%u,\"n_in\":%u,\"gb_per_s\":%.2f}\n", info->name, n_out, n_in,
           (double)(n_blocks * info->bytes) * b.n_weights / pack_s * 1e-9);
    b.x = random_floats((size_t)512 * n_in);
    b.y = must_alloc((size_t)512 * n_out * 4);
    static const uint32_t rows[] = {1, 2, 4, 8, 12, 16, 32, 128, 512};
    uint32_t n_all = b.n_weights;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        b.n_rows = rows[i];
        b.n_weights = rows[i] > 32 && n_all > 8 ? 8 : n_all;
        double s = measure(run_linear, &b);
        printf("{\"bench\":\"linear\",\"type\":\"%s\",\"n_out\":%u,\"n_in\":%u,\"rows\":%u,\"us_per_matrix\":%.1f,"
               "\"gb_per_s\":%.2f,\"gops\":%.1f}\n",
               info->name, n_out, n_in, b.n_rows, s / b.n_weights * 1e6, (double)packed * b.n_weights / s * 1e-9,
               2.0 * n_out * n_in * b.n_rows * b.n_weights / s * 1e-9);
        fflush(stdout);
    }
}

struct attn_bench {
    struct esp_attn_args args;
};

static void run_attn(void *ctx)
{
    const struct attn_bench *b = ctx;
    if (ops->attn(dev, &b->args) != ESP_OK) {
        exit(1);
    }
}

/* 9 query heads over 3 KV heads of 64: decode of one row, and a prefill chunk, at the end of n_ctx. */
static void bench_attn(uint32_t n_rows, uint32_t n_ctx)
{
    enum { N_HEAD = 9, DIM = 64 };
    struct esp_kv_geom geom = {.n_layer = 1, .n_head_kv = 3, .head_dim = DIM};
    uint32_t n_pages = (n_ctx + 15) / 16, *table = must_alloc(n_pages * 4), *pos = must_alloc(n_rows * 4);
    uint8_t *kv = must_alloc(n_pages * esp_kv_page_bytes(&geom));
    for (size_t i = 0; i < (size_t)n_pages * geom.n_head_kv; i++) {
        struct esp_kv_head head = esp_kv_head_parts(kv + i * esp_kv_head_bytes(&geom), DIM);
        for (size_t j = 0; j < DIM * ESP_PAGE_TOKENS; j++) {
            head.k[j] = (int16_t)(rnd() % 8192 - 4096);
            head.v[j] = (int16_t)(rnd() % 4095 - 2047);
        }
        for (size_t j = 0; j < ESP_PAGE_TOKENS; j++) {
            head.dk[j] = head.dv[j] = 1e-4f;
        }
    }
    for (uint32_t i = 0; i < n_pages; i++) {
        table[i] = i;
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        pos[r] = n_ctx - n_rows + r;
    }
    const uint32_t *tables[1] = {table};
    struct attn_bench b = {.args = {.q = random_floats((size_t)n_rows * N_HEAD * DIM),
                                    .out = must_alloc((size_t)n_rows * N_HEAD * DIM * 4), .kv = kv, .geom = geom,
                                    .n_rows = n_rows, .n_head = N_HEAD, .pos = pos,
                                    .row_seq = must_alloc(n_rows * 4), .pages = tables, .scale = 0.125f}};
    double s = measure(run_attn, &b), n_positions = (n_ctx - (n_rows - 1) * 0.5) * n_rows * N_HEAD;
    printf("{\"bench\":\"attn\",\"rows\":%u,\"context\":%u,\"us\":%.1f,\"ns_per_row_position\":%.3f}\n", n_rows, n_ctx,
           s * 1e6, s / n_positions * 1e9);
}

struct sample_bench {
    struct esp_sample_row row;
    uint32_t n_vocab;
};

static void run_sample(void *ctx)
{
    struct sample_bench *b = ctx;
    struct esp_sample_args args = {.rows = &b->row, .n_rows = 1, .n_vocab = b->n_vocab};
    if (ops->sample(dev, &args) != ESP_OK) {
        exit(1);
    }
}

static void bench_sample(uint32_t n_vocab)
{
    static const struct {
        const char *name;
        float temperature, top_p;
        uint32_t top_k, n_top;
        bool masked;
    } kinds[] = {{"greedy", 0, 1, 0, 0, false},   {"greedy, masked", 0, 1, 0, 0, true}, {"plain", 1, 1, 0, 0, false},
                 {"top_k 40", 1, 1, 40, 0, false}, {"top_p 0.9", 1, 0.9f, 0, 0, false},  {"top 5", 0, 1, 0, 5, false}};
    float *logits = random_floats(n_vocab);
    uint64_t *mask = must_alloc((n_vocab + 63) / 64 * 8);
    for (uint32_t i = 0; i < n_vocab; i++) {
        logits[i] = logits[i] * 6 + (i % 997 == 0 ? 6 : 0);
        mask[i / 64] |= (uint64_t)(rnd() & 1) << (i % 64);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct sample_bench b = {.n_vocab = n_vocab, .row = {.logits = logits, .temperature = kinds[i].temperature,
                                 .top_p = kinds[i].top_p, .top_k = kinds[i].top_k, .repetition_penalty = 1,
                                 .n_top = kinds[i].n_top, .mask = kinds[i].masked ? mask : NULL, .seed = 1}};
        printf("{\"bench\":\"sample\",\"kind\":\"%s\",\"n_vocab\":%u,\"us\":%.1f}\n", kinds[i].name, n_vocab,
               measure(run_sample, &b) * 1e6);
    }
}

static const char *only;
static uint32_t shape[2] = {1536, 576};

static void mask_level(const char *name)
{
    for (int level = 0; level < ESP_CPU_LEVELS; level++) {
        if (strcmp(name, esp_cpu_level_name((enum esp_cpu_level)level)) == 0) {
            esp_cpu_level_mask((enum esp_cpu_level)level);
        }
    }
}

/* Takes one option; returns how many further arguments it used. */
static int take_option(char **arg, int n_left)
{
    if (strcmp(arg[0], "--threads") == 0 && n_left > 0) {
        n_threads = atoi(arg[1]);
    } else if (strcmp(arg[0], "--seconds") == 0 && n_left > 0) {
        seconds = atof(arg[1]);
    } else if (strcmp(arg[0], "--level") == 0 && n_left > 0) {
        mask_level(arg[1]);
    } else if (strcmp(arg[0], "--shape") == 0 && n_left > 1) {
        shape[0] = (uint32_t)atoi(arg[1]);
        shape[1] = (uint32_t)atoi(arg[2]);
        return 2;
    } else {
        only = arg[0];
        return 0;
    }
    return 1;
}

static bool asked(const char *name)
{
    return only == NULL || strcmp(only, name) == 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        i += take_option(argv + i, argc - i - 1);
    }
    ops = esp_ops_cpu();
    struct esp_dev_config config = {
        .n_threads = n_threads, .n_rows_max = 512, .n_in_max = 16384, .head_dim_max = 256, .n_ctx_max = 8192};
    struct esp_err err;
    if (ops->dev_open(&config, &dev, &err) != ESP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (uint32_t type = 0; type < ESP_TYPE_COUNT; type++) {
        const struct esp_type_info *info = esp_type_info(type);
        if (info != NULL && info->runs && asked(info->name) && shape[1] % info->block == 0) {
            bench_linear((enum esp_type)type, shape[0], shape[1]);
        }
    }
    if (asked("attn")) {
        bench_attn(1, 512);
        bench_attn(1, 4096);
        bench_attn(512, 512);
        bench_attn(512, 4096);
    }
    if (asked("sample")) {
        bench_sample(49152);
    }
    ops->dev_close(dev);
    return 0;
}
