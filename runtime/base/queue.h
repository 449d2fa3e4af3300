/* Bounded queue of fixed-size items between threads: many producers, many consumers, FIFO.
 *
 * A full queue refuses (ESP_EBUSY) rather than waits, so a slow consumer shows as back-pressure.
 * All memory is taken at init. Closing wakes every waiter; what was queued can still be popped.
 */
#ifndef ESP_BASE_QUEUE_H
#define ESP_BASE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

struct esp_queue {
    pthread_mutex_t lock;
    pthread_cond_t some;
    char *items;
    size_t item_bytes, cap, head, n;
    bool closed, ready;
};

esp_status esp_queue_init(struct esp_queue *queue, size_t item_bytes, size_t cap);
void esp_queue_finish(struct esp_queue *queue); /* zeroed is fine; no thread may be waiting */
/* ESP_EBUSY when full, ESP_ESTATE when closed. */
esp_status esp_queue_push(struct esp_queue *queue, const void *item);
/* Waits up to timeout_ns (0 = do not wait, negative = for ever). False: nothing came. */
bool esp_queue_pop(struct esp_queue *queue, int64_t timeout_ns, void *ret_item);
void esp_queue_close(struct esp_queue *queue);

#endif
