/* What the kernel checks share: devices of every level and thread count, guarded buffers, random data.
 *
 * The reference level on one thread gives the expected bits; every other device must give the same.
 * Buffers stand between canaries, which are looked at after each operation.
 */
#ifndef ESP_TESTS_KERNELS_CHECK_H
#define ESP_TESTS_KERNELS_CHECK_H

#include <math.h>

#include "kernels/ops.h"
#include "runtime/base/cpu.h"
#include "tests/esptest.h"

#define CHECK_DEVICES 7 /* device 0 is the reference */

struct check_dev {
    struct esp_dev *dev;
    enum esp_cpu_level level;
    int n_threads;
    char name[32];
};

static struct check_dev check_devs[CHECK_DEVICES];
static int check_n_devs;

static inline void check_close(void)
{
    for (int i = 0; i < check_n_devs; i++) {
        esp_ops_cpu()->dev_close(check_devs[i].dev);
    }
    check_n_devs = 0;
    esp_cpu_level_mask(ESP_CPU_LEVELS - 1);
}

/* Opens the reference and each level of this machine with 1 and 3 threads; says which are missing. */
static inline bool check_open(const struct esp_dev_config *wanted)
{
    esp_cpu_level_mask(ESP_CPU_LEVELS - 1);
    enum esp_cpu_level best = esp_cpu_level();
    check_n_devs = 0;
    for (int level = 0; level < ESP_CPU_LEVELS; level++) {
        if ((enum esp_cpu_level)level > best) {
            printf("# level %s is not there on this machine\n", esp_cpu_level_name((enum esp_cpu_level)level));
            continue;
        }
        esp_cpu_level_mask((enum esp_cpu_level)level);
        for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
            struct esp_dev_config config = *wanted;
            struct check_dev *d = &check_devs[check_n_devs];
            struct esp_err err;
            config.n_threads = n_threads;
            d->level = (enum esp_cpu_level)level;
            d->n_threads = n_threads;
            snprintf(d->name, sizeof d->name, "%s, %d threads", esp_cpu_level_name((enum esp_cpu_level)level),
                     n_threads);
            if (esp_ops_cpu()->dev_open(&config, &d->dev, &err) != ESP_OK) {
                ESP_TEST_FAILED("dev_open", "%s: %s", d->name, err.message);
                check_close();
                return false;
            }
            check_n_devs++;
        }
    }
    return true;
}

#define CANARY 0xA5u
#define GUARD_BYTES 256

/* Memory of n bytes between canaries, aligned to 64. */
struct guarded {
    uint8_t *base, *data;
    size_t n_bytes;
};

static inline struct guarded guarded_make(size_t n_bytes)
{
    struct guarded g = {.n_bytes = n_bytes};
    g.base = aligned_alloc(64, (n_bytes + 2 * GUARD_BYTES + 63) & ~(size_t)63);
    g.data = g.base + GUARD_BYTES;
    memset(g.base, (int)CANARY, n_bytes + 2 * GUARD_BYTES);
    return g;
}

static inline void guarded_free(struct guarded *g, const char *what)
{
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (g->base[i] != CANARY || g->data[g->n_bytes + i] != CANARY) {
            ESP_TEST_FAILED("canary", "%s: written outside, near byte %zu", what, i);
            break;
        }
    }
    free(g->base);
}

static inline uint64_t rnd(void)
{
    return esp_rng_next(&esp_test_state.rng);
}

static inline uint32_t rnd_below(uint32_t n)
{
    return (uint32_t)esp_rng_below(&esp_test_state.rng, n);
}

static inline float rnd_float(void)
{
    return (float)(esp_rng_unit(rnd()) * 2 - 1);
}

/* Mostly ordinary numbers; now and then zeros, denormals, large ones, and whole groups of each. */
static inline void rnd_floats(float *x, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t run = 1 + rnd_below(48);
        uint32_t kind = rnd_below(16);
        float factor = kind == 0 ? 0 : kind == 1 ? 1e-42f : kind == 2 ? 1e12f : kind == 3 ? -0.0f : 1;
        for (; run > 0 && i < n; run--, i++) {
            x[i] = rnd_float() * factor;
        }
    }
}

/* Random bytes as blocks of a type; 16-bit scales are kept finite and moderate. */
static inline void rnd_blocks(enum esp_type type, uint8_t *p, size_t n_blocks)
{
    static const struct {
        uint32_t type;
        int n, at[2];
    } scales[] = {{1, 1, {0}},  {2, 1, {0}},         {3, 2, {0, 2}},  {6, 1, {0}},    {7, 2, {0, 2}}, {8, 1, {0}},
                  {10, 2, {80, 82}}, {11, 1, {108}}, {12, 2, {0, 2}}, {13, 2, {0, 2}}, {14, 1, {208}}};
    uint32_t bytes = esp_type_info((uint32_t)type)->bytes;
    for (size_t b = 0; b < n_blocks; b++, p += bytes) {
        for (uint32_t i = 0; i < bytes; i++) {
            p[i] = (uint8_t)rnd();
        }
        for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
            for (int j = 0; scales[k].type == (uint32_t)type && j < scales[k].n; j++) {
                uint16_t h = esp_f16_from_f32(rnd_float() * (rnd_below(8) == 0 ? 1e-6f : 0.1f));
                memcpy(p + scales[k].at[j], &h, 2);
            }
        }
        float f = rnd_float();
        if (type == ESP_TYPE_F32) {
            memcpy(p, &f, 4);
        } else if (type == ESP_TYPE_BF16) {
            memcpy(p, (const uint8_t *)&f + 2, 2);
        }
    }
}

static inline void check_same(const void *want, const void *got, size_t n_floats, const char *what, const char *dev)
{
    const float *w = want, *g = got;
    for (size_t i = 0; i < n_floats; i++) {
        if (memcmp(&w[i], &g[i], sizeof *w) != 0) {
            ESP_TEST_FAILED("same bits", "%s, %s: value %zu is %a, want %a", what, dev, i, (double)g[i],
                            (double)w[i]);
            return;
        }
    }
}

#endif
