/* The machine's own ceilings, as one JSON object: what the kernels can be compared with.
 *
 * usage: bench_machine [THREADS]
 * 8-bit dot products and f32 multiply-adds between registers, and reading of memory that no cache holds, by all
 * threads at once; the best of some windows, because other load on the machine only takes away. A ceiling that this
 * CPU does not have (or whose instructions this build does not know) is null.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/base/cpu.h"
#include "tests/esptest.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define N_THREADS_MAX 64
#define N_WINDOWS 64
#define N_ROUNDS 200000
#define READ_BYTES ((size_t)256 << 20) /* of each thread, in N_WINDOWS parts */

struct worker {
    pthread_t thread;
    const uint8_t *memory;
    int kind;
    double seconds[N_WINDOWS]; /* of each window */
};

static atomic_int n_ready;
static int n_threads = 2;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#if defined(__x86_64__)
/* Twelve independent sums, so that nothing waits; by hand, because the compiler would fold them. */
#define TWELVE(op)                                                                                           \
    op " %%zmm15, %%zmm15, %%zmm0\n" op " %%zmm15, %%zmm15, %%zmm1\n" op " %%zmm15, %%zmm15, %%zmm2\n"       \
    op " %%zmm15, %%zmm15, %%zmm3\n" op " %%zmm15, %%zmm15, %%zmm4\n" op " %%zmm15, %%zmm15, %%zmm5\n"       \
    op " %%zmm15, %%zmm15, %%zmm6\n" op " %%zmm15, %%zmm15, %%zmm7\n" op " %%zmm15, %%zmm15, %%zmm8\n"       \
    op " %%zmm15, %%zmm15, %%zmm9\n" op " %%zmm15, %%zmm15, %%zmm10\n" op " %%zmm15, %%zmm15, %%zmm11\n"
#define CLOBBERS                                                                                             \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm15"

__attribute__((target("avx512f"))) static void multiply(int kind)
{
    __asm__ volatile("vpxord %%zmm15, %%zmm15, %%zmm15" ::: "xmm15");
    for (int i = 0; i < N_ROUNDS; i++) {
        if (kind == 0) {
            __asm__ volatile(TWELVE("vpdpbusd")::: CLOBBERS);
        } else {
            __asm__ volatile(TWELVE("vfmadd231ps")::: CLOBBERS);
        }
    }
}

__attribute__((target("avx512f"))) static void read_window(const uint8_t *memory, size_t window)
{
    __m512i sum[4] = {_mm512_setzero_si512()};
    for (int s = 1; s < 4; s++) {
        sum[s] = sum[0];
    }
    const size_t part = READ_BYTES / 4, step = part / N_WINDOWS;
    for (size_t at = window * step; at < (window + 1) * step; at += 64) { /* four streams, fetched 4 KiB ahead */
        for (size_t s = 0; s < 4; s++) {
            const uint8_t *p = memory + s * part + at;
            _mm_prefetch((const char *)p + 4096, _MM_HINT_T0);
            sum[s] = _mm512_xor_si512(sum[s], _mm512_load_si512((const void *)p));
        }
    }
    __m512i all = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
    __asm__ volatile("" ::"v"(all));
}
#else
static void multiply(int kind)
{
    (void)kind;
}
static void read_window(const uint8_t *memory, size_t window)
{
    (void)memory;
    (void)window;
}
#endif

static void *run(void *arg)
{
    struct worker *w = arg;
    atomic_fetch_add(&n_ready, 1);
    while (atomic_load(&n_ready) < n_threads) {
    }
    for (int i = 0; i < N_WINDOWS; i++) {
        double start = now_s();
        if (w->kind == 2) {
            read_window(w->memory, (size_t)i);
        } else {
            multiply(w->kind);
        }
        w->seconds[i] = now_s() - start;
    }
    return NULL;
}

/* What all threads do a second together, each at its best. */
static double rate(struct worker *workers, int kind, double units)
{
    double sum = 0;
    atomic_store(&n_ready, 0);
    for (int i = 0; i < n_threads; i++) {
        workers[i].kind = kind;
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0) {
            exit(1);
        }
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(workers[i].thread, NULL);
        double best = workers[i].seconds[0];
        for (int k = 1; k < N_WINDOWS; k++) {
            best = workers[i].seconds[k] < best ? workers[i].seconds[k] : best;
        }
        sum += units / best;
    }
    return sum;
}

int main(int argc, char **argv)
{
    static struct worker workers[N_THREADS_MAX];
    n_threads = argc > 1 ? atoi(argv[1]) : 2;
    if (n_threads < 1 || n_threads > N_THREADS_MAX) {
        fprintf(stderr, "1 to %d threads\n", N_THREADS_MAX);
        return 2;
    }
    if (esp_cpu_level() < ESP_CPU_AVX512) {
        printf("{\"threads\":%d,\"vnni_gops\":null,\"fma_gflops\":null,\"read_gb_per_s\":null}\n", n_threads);
        return 0;
    }
    for (int i = 0; i < n_threads; i++) {
        uint8_t *memory = aligned_alloc(4096, READ_BYTES + 4096);
        if (memory == NULL) {
            return 1;
        }
        memset(memory, i + 1, READ_BYTES);
        workers[i].memory = memory;
    }
    double vnni = rate(workers, 0, 12.0 * N_ROUNDS * 128), fma = rate(workers, 1, 12.0 * N_ROUNDS * 32);
    double reads = rate(workers, 2, (double)READ_BYTES / N_WINDOWS);
    printf("{\"threads\":%d,\"vnni_gops\":%.0f,\"fma_gflops\":%.0f,\"read_gb_per_s\":%.1f}\n", n_threads, vnni * 1e-9,
           fma * 1e-9, reads * 1e-9);
    for (int i = 0; i < n_threads; i++) {
        free((void *)(uintptr_t)workers[i].memory);
    }
    return 0;
}
