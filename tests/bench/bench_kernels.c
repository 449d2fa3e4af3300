/* Speed of the CPU kernels alone, as JSON lines, against ceilings measured in the same run.
 *
 * usage: bench_kernels [--threads N] [--level scalar|avx2|avx512] [--seconds S] [linear|pack|attn|sample|pool …]
 * linear: weights of one matrix type walked in order over `walk_mb` of memory, so that decode reads DRAM;
 * prefill rates are in 10^9 multiply and add operations a second. The best of several repetitions.
 */
#include <math.h>

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
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
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
        void *dst = must_alloc(packed);
        double t = now_s();
        if (ops->weight_pack(dev, type, n_out, n_in, file, dst, &b.weights[w]) != ESP_OK) {
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

int main(int argc, char **argv)
{
    const char *only = NULL;
    uint32_t n_out = 1536, n_in = 576;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            n_threads = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            seconds = atof(argv[++i]);
        } else if (strcmp(argv[i], "--shape") == 0 && i + 2 < argc) {
            n_out = (uint32_t)atoi(argv[++i]);
            n_in = (uint32_t)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--level") == 0 && i + 1 < argc) {
            i++;
            for (int level = 0; level < ESP_CPU_LEVELS; level++) {
                if (strcmp(argv[i], esp_cpu_level_name((enum esp_cpu_level)level)) == 0) {
                    esp_cpu_level_mask((enum esp_cpu_level)level);
                }
            }
        } else {
            only = argv[i];
        }
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
        if (info != NULL && info->runs && (only == NULL || strcmp(only, info->name) == 0) && n_in % info->block == 0) {
            bench_linear((enum esp_type)type, n_out, n_in);
        }
    }
    ops->dev_close(dev);
    return 0;
}
