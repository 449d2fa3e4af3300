/* The counters and their published snapshot. See stats.h. */
#include "runtime/stats.h"

#include <string.h>

void esp_stats_init(struct esp_stats *stats)
{
    memset(stats, 0, sizeof *stats);
    esp_histogram_init(&stats->now.ttft, 1e-3);
    esp_histogram_init(&stats->now.inter_token, 1e-4);
    esp_histogram_init(&stats->now.mask, 1e-7);
    esp_histogram_init(&stats->now.step, 1e-4);
    pthread_mutex_init(&stats->lock, NULL);
    stats->ready = true;
    stats->seen = stats->now;
}

void esp_stats_finish(struct esp_stats *stats)
{
    if (stats->ready) {
        pthread_mutex_destroy(&stats->lock);
        stats->ready = false;
    }
}

void esp_stats_publish(struct esp_stats *stats)
{
    pthread_mutex_lock(&stats->lock);
    stats->seen = stats->now;
    pthread_mutex_unlock(&stats->lock);
}

void esp_stats_read(struct esp_stats *stats, struct esp_metrics *ret_metrics)
{
    pthread_mutex_lock(&stats->lock);
    *ret_metrics = stats->seen;
    pthread_mutex_unlock(&stats->lock);
}
