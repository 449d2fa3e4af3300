/* Mutex and condition variable around a ring. */
#include "runtime/base/queue.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "runtime/base/alloc.h"

esp_status esp_queue_init(struct esp_queue *queue, size_t item_bytes, size_t cap)
{
    memset(queue, 0, sizeof *queue);
    queue->items = esp_calloc(ESP_TAG_ENGINE, cap, item_bytes);
    if (queue->items == NULL) {
        return ESP_ENOMEM;
    }
    queue->item_bytes = item_bytes;
    queue->cap = cap;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->some, &attr);
    pthread_condattr_destroy(&attr);
    queue->ready = true;
    return ESP_OK;
}

void esp_queue_finish(struct esp_queue *queue)
{
    if (queue->ready) {
        pthread_mutex_destroy(&queue->lock);
        pthread_cond_destroy(&queue->some);
    }
    esp_free(queue->items);
    memset(queue, 0, sizeof *queue);
}

esp_status esp_queue_push(struct esp_queue *queue, const void *item)
{
    pthread_mutex_lock(&queue->lock);
    esp_status status = ESP_OK;
    if (queue->closed) {
        status = ESP_ESTATE;
    } else if (queue->n == queue->cap) {
        status = ESP_EBUSY;
    } else {
        size_t at = (queue->head + queue->n) % queue->cap;
        memcpy(queue->items + at * queue->item_bytes, item, queue->item_bytes);
        queue->n++;
        pthread_cond_signal(&queue->some);
    }
    pthread_mutex_unlock(&queue->lock);
    return status;
}

static void wait_for_item(struct esp_queue *queue, int64_t timeout_ns)
{
    if (timeout_ns < 0) {
        while (queue->n == 0 && !queue->closed) {
            pthread_cond_wait(&queue->some, &queue->lock);
        }
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ns / 1000000000;
    until.tv_nsec += timeout_ns % 1000000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    while (queue->n == 0 && !queue->closed) {
        if (pthread_cond_timedwait(&queue->some, &queue->lock, &until) == ETIMEDOUT) {
            return;
        }
    }
}

bool esp_queue_pop(struct esp_queue *queue, int64_t timeout_ns, void *ret_item)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->n == 0 && timeout_ns != 0) {
        wait_for_item(queue, timeout_ns);
    }
    bool got = queue->n > 0;
    if (got) {
        memcpy(ret_item, queue->items + queue->head * queue->item_bytes, queue->item_bytes);
        queue->head = (queue->head + 1) % queue->cap;
        queue->n--;
    }
    pthread_mutex_unlock(&queue->lock);
    return got;
}

size_t esp_queue_count(struct esp_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    size_t n = queue->n;
    pthread_mutex_unlock(&queue->lock);
    return n;
}

void esp_queue_close(struct esp_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->some);
    pthread_mutex_unlock(&queue->lock);
}
