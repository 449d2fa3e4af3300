/* Worker threads of the CPU backend: one job at a time, cut into chunks that are claimed.
 *
 * The caller works too. A chunk belongs to whoever claims it, so a worker whose CPU was taken away
 * holds up one chunk at most, and a worker that is late holds up nothing. Between the jobs of a step
 * workers spin for some tens of microseconds; then they sleep, so that an idle process uses no CPU.
 * Nothing is allocated after create. Thread: `run` from one thread at a time.
 */
#ifndef ESP_KERNELS_CPU_POOL_H
#define ESP_KERNELS_CPU_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

#define ESP_POOL_THREADS_MAX 256
#define ESP_POOL_CHUNKS_MAX 0xfffff /* of one job */

struct esp_pool;

/* One chunk of a job. Chunks run in any order and at the same time. */
typedef void esp_pool_fn(void *ctx, uint32_t chunk);

/* n_threads counts the caller. */
esp_status esp_pool_create(int n_threads, struct esp_pool **ret_pool, struct esp_err *err);
void esp_pool_destroy(struct esp_pool *pool); /* NULL is fine */
int esp_pool_threads(const struct esp_pool *pool);
size_t esp_pool_bytes(int n_threads);

/* Returns when all chunks have run. n_chunks is at most ESP_POOL_CHUNKS_MAX. */
void esp_pool_run(struct esp_pool *pool, esp_pool_fn *fn, void *ctx, uint32_t n_chunks);

#endif
