/* Counters and the histograms of the engine, and the snapshot of them that other threads read.
 *
 * The engine counts in its own copy without a lock and publishes the whole struct once a step, so a
 * reader waits for a copy of a few kilobytes and never for a step. Thread: the engine's; read: any.
 */
#ifndef ESP_RUNTIME_STATS_H
#define ESP_RUNTIME_STATS_H

#include <pthread.h>

#include "runtime/histogram.h"

struct esp_stats {
    struct esp_metrics now; /* the engine's */
    struct esp_metrics seen; /* guarded by lock */
    pthread_mutex_t lock;
    bool ready;
};

void esp_stats_init(struct esp_stats *stats);
void esp_stats_finish(struct esp_stats *stats); /* zeroed is fine */
void esp_stats_publish(struct esp_stats *stats);
void esp_stats_read(struct esp_stats *stats, struct esp_metrics *ret_metrics);

#endif
