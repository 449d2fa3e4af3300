/* The chunk claimer.
 *
 * One 64-bit word holds everything a claim depends on:
 *
 *      63        40 39        20 19         0
 *     | generation |  n_chunks  | next chunk |
 *
 * A claim is a compare-and-swap that adds one to `next`. When it succeeds the job of that word cannot
 * have ended (the claimed chunk has not run), so fn and ctx, written before the word was published,
 * stay valid until the chunk is counted in n_done. The caller publishes a new word only after all
 * chunks of the last one were counted. Sleeping workers are woken under a lock; the pair
 * "publish, then look at n_asleep" against "count as asleep, then look at the word" (both
 * sequentially consistent) leaves no gap in which a wake-up is lost.
 */
#include "kernels/cpu/pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/base/alloc.h"

#define SPIN_ROUNDS 800       /* about 40 µs of pause instructions before a worker sleeps */
#define SPIN_ROUNDS_CALLER 4000 /* before the caller offers its CPU to whoever holds the last chunk */

struct esp_pool {
    _Alignas(64) _Atomic uint64_t word;
    esp_pool_fn *fn;
    void *ctx;
    _Alignas(64) _Atomic uint32_t n_done;
    _Alignas(64) _Atomic uint32_t n_asleep;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int n_threads, n_workers;
    bool lock_made, wake_made;
    pthread_t workers[];
};

static inline void spin_wait(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static inline bool word_has_work(uint64_t word)
{
    return (word & 0xfffff) < (word >> 20 & 0xfffff);
}

/* Claims and runs chunks until none is left. */
static void work(struct esp_pool *pool)
{
    uint64_t word = atomic_load(&pool->word);
    while (word_has_work(word)) {
        if (!atomic_compare_exchange_weak(&pool->word, &word, word + 1)) {
            continue;
        }
        pool->fn(pool->ctx, (uint32_t)(word & 0xfffff));
        atomic_fetch_add(&pool->n_done, 1);
        word = atomic_load(&pool->word);
    }
}

static void sleep_until_work(struct esp_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->n_asleep, 1);
    while (!atomic_load(&pool->stop) && !word_has_work(atomic_load(&pool->word))) {
        pthread_cond_wait(&pool->wake, &pool->lock);
    }
    atomic_fetch_sub(&pool->n_asleep, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *arg)
{
    struct esp_pool *pool = arg;
    while (!atomic_load(&pool->stop)) {
        work(pool);
        int round = 0;
        while (round < SPIN_ROUNDS && !word_has_work(atomic_load_explicit(&pool->word, memory_order_relaxed)) &&
               !atomic_load_explicit(&pool->stop, memory_order_relaxed)) {
            spin_wait();
            round++;
        }
        if (round == SPIN_ROUNDS) {
            sleep_until_work(pool);
        }
    }
    return NULL;
}

size_t esp_pool_bytes(int n_threads)
{
    return sizeof(struct esp_pool) + (size_t)n_threads * sizeof(pthread_t) + 64;
}

esp_status esp_pool_create(int n_threads, struct esp_pool **ret_pool, struct esp_err *err)
{
    if (n_threads < 1 || n_threads > ESP_POOL_THREADS_MAX) {
        return esp_fail(err, ESP_EINVAL, "%d compute threads; 1 to %d are possible", n_threads, ESP_POOL_THREADS_MAX);
    }
    struct esp_pool *pool = esp_pages_map(ESP_TAG_ACTIVATIONS, esp_pool_bytes(n_threads));
    if (pool == NULL) {
        return esp_fail(err, ESP_ENOMEM, "no memory for the thread pool");
    }
    pool->n_threads = n_threads;
    pool->lock_made = pthread_mutex_init(&pool->lock, NULL) == 0;
    pool->wake_made = pthread_cond_init(&pool->wake, NULL) == 0;
    bool ok = pool->lock_made && pool->wake_made;
    while (ok && pool->n_workers < n_threads - 1) {
        ok = pthread_create(&pool->workers[pool->n_workers], NULL, worker_main, pool) == 0;
        pool->n_workers += ok;
    }
    if (!ok) {
        esp_pool_destroy(pool);
        return esp_fail(err, ESP_ENOMEM, "cannot start %d compute threads", n_threads - 1);
    }
    *ret_pool = pool;
    return ESP_OK;
}

void esp_pool_destroy(struct esp_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    atomic_store(&pool->stop, true);
    if (pool->lock_made && pool->wake_made) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    for (int i = 0; i < pool->n_workers; i++) {
        pthread_join(pool->workers[i], NULL);
    }
    if (pool->wake_made) {
        pthread_cond_destroy(&pool->wake);
    }
    if (pool->lock_made) {
        pthread_mutex_destroy(&pool->lock);
    }
    esp_pages_unmap(ESP_TAG_ACTIVATIONS, pool, esp_pool_bytes(pool->n_threads));
}

int esp_pool_threads(const struct esp_pool *pool)
{
    return pool->n_threads;
}

void esp_pool_run(struct esp_pool *pool, esp_pool_fn *fn, void *ctx, uint32_t n_chunks)
{
    assert(n_chunks <= ESP_POOL_CHUNKS_MAX);
    if (n_chunks <= 1 || pool->n_workers == 0) {
        for (uint32_t chunk = 0; chunk < n_chunks; chunk++) {
            fn(ctx, chunk);
        }
        return;
    }
    pool->fn = fn;
    pool->ctx = ctx;
    atomic_store_explicit(&pool->n_done, 0, memory_order_relaxed);
    uint64_t generation = (atomic_load_explicit(&pool->word, memory_order_relaxed) >> 40) + 1;
    atomic_store(&pool->word, generation << 40 | (uint64_t)n_chunks << 20);
    if (atomic_load(&pool->n_asleep) != 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    work(pool);
    int round = 0;
    while (atomic_load_explicit(&pool->n_done, memory_order_acquire) != n_chunks) {
        if (++round > SPIN_ROUNDS_CALLER) {
            sched_yield();
        } else {
            spin_wait();
        }
    }
}
