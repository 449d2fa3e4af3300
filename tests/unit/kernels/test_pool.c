/* The thread pool: every chunk once, nothing lost when workers sleep, no CPU used when idle. */
#include <stdatomic.h>
#include <time.h>

#include "kernels/cpu/pool.h"
#include "tests/esptest.h"

struct tally {
    _Atomic uint32_t counts[5000];
    _Atomic uint32_t total;
};

static void count_chunk(void *ctx, uint32_t chunk)
{
    struct tally *tally = ctx;
    atomic_fetch_add(&tally->counts[chunk], 1);
    atomic_fetch_add(&tally->total, 1);
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

static void test_every_chunk_once(void)
{
    static struct tally tally;
    for (int n_threads = 1; n_threads <= 8; n_threads++) {
        struct esp_pool *pool = NULL;
        struct esp_err err;
        REQUIRE(esp_pool_create(n_threads, &pool, &err) == ESP_OK, "%s", err.message);
        CHECK(esp_pool_threads(pool) == n_threads);
        for (int round = 0; round < 400; round++) {
            uint32_t n = round % 50 == 0 ? 5000 : (uint32_t)esp_rng_below(&esp_test_state.rng, 20);
            memset(&tally, 0, sizeof tally);
            esp_pool_run(pool, count_chunk, &tally, n);
            CHECK(tally.total == n, "%d threads: %u of %u", n_threads, tally.total, n);
            for (uint32_t i = 0; i < n; i++) {
                CHECK(tally.counts[i] == 1, "chunk %u ran %u times", i, tally.counts[i]);
            }
            if (round % 100 == 99) {
                nap_ms(2); /* long enough for the workers to sleep */
            }
        }
        esp_pool_destroy(pool);
    }
}

static void test_idle_uses_no_cpu(void)
{
    struct esp_pool *pool = NULL;
    struct esp_err err;
    static struct tally tally;
    REQUIRE(esp_pool_create(4, &pool, &err) == ESP_OK, "%s", err.message);
    esp_pool_run(pool, count_chunk, &tally, 100);
    nap_ms(20);
    double before = cpu_s();
    nap_ms(200);
    CHECK(cpu_s() - before < 0.005, "%g s of CPU in 0.2 s of rest", cpu_s() - before);
    esp_pool_destroy(pool);
}

static void test_refusals(void)
{
    struct esp_pool *pool = NULL;
    struct esp_err err;
    CHECK(esp_pool_create(0, &pool, &err) == ESP_EINVAL && pool == NULL);
    CHECK(esp_pool_create(100000, &pool, &err) == ESP_EINVAL && pool == NULL);
    esp_pool_destroy(NULL);
}

ESP_TEST_MAIN(T(test_every_chunk_once), T(test_idle_uses_no_cpu), T(test_refusals))
