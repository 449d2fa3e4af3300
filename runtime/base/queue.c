/* Mutex and condition variable around a ring. */
#include "runtime/base/queue.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/cond.h"

esp_status esp_queue_init(struct esp_queue *queue, size_t item_bytes, size_t cap)
{
    memset(queue, 0, sizeof *queue);
    queue->items = esp_calloc(ESP_TAG_ENGINE, cap, item_bytes);
    if (queue->items == NULL) {
        return ESP_ENOMEM;
    }
    queue->item_bytes = item_bytes;
    queue->cap = cap;
    pthread_mutex_init(&queue->lock, NULL);
    esp_cond_init(&queue->some);
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

bool esp_queue_pop(struct esp_queue *queue, int64_t timeout_ns, void *ret_item)
{
    int64_t until_ns = esp_cond_until(timeout_ns);
    pthread_mutex_lock(&queue->lock);
    while (queue->n == 0 && !queue->closed && esp_cond_wait(&queue->some, &queue->lock, until_ns)) {
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

void esp_queue_close(struct esp_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->some);
    pthread_mutex_unlock(&queue->lock);
}
