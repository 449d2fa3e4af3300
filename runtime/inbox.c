/* Mutex, two condition variables and a list. See inbox.h. */
#include "runtime/inbox.h"

#include <stddef.h>
#include <string.h>

#include "runtime/base/cond.h"

esp_status esp_inbox_init(struct esp_inbox *inbox)
{
    memset(inbox, 0, sizeof *inbox);
    pthread_mutex_init(&inbox->lock, NULL);
    esp_cond_init(&inbox->bell);
    pthread_cond_init(&inbox->answer, NULL);
    inbox->ready = true;
    return ESP_OK;
}

void esp_inbox_finish(struct esp_inbox *inbox)
{
    if (inbox->ready) {
        pthread_mutex_destroy(&inbox->lock);
        pthread_cond_destroy(&inbox->bell);
        pthread_cond_destroy(&inbox->answer);
        inbox->ready = false;
    }
}

void esp_inbox_push(struct esp_inbox *inbox, struct esp_msg *msg)
{
    msg->next = NULL;
    msg->answered = false;
    pthread_mutex_lock(&inbox->lock);
    if (inbox->tail == NULL) {
        inbox->head = msg;
    } else {
        inbox->tail->next = msg;
    }
    inbox->tail = msg;
    inbox->rung = true;
    pthread_cond_signal(&inbox->bell);
    pthread_mutex_unlock(&inbox->lock);
}

void esp_inbox_ring(struct esp_inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->rung = true;
    pthread_cond_signal(&inbox->bell);
    pthread_mutex_unlock(&inbox->lock);
}

struct esp_msg *esp_inbox_take(struct esp_inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    struct esp_msg *first = inbox->head;
    inbox->head = NULL;
    inbox->tail = NULL;
    inbox->rung = false;
    pthread_mutex_unlock(&inbox->lock);
    return first;
}

void esp_inbox_wait(struct esp_inbox *inbox, int64_t timeout_ns)
{
    int64_t until_ns = esp_cond_until(timeout_ns);
    pthread_mutex_lock(&inbox->lock);
    while (!inbox->rung && esp_cond_wait(&inbox->bell, &inbox->lock, until_ns)) {
    }
    pthread_mutex_unlock(&inbox->lock);
}

void esp_inbox_answer(struct esp_inbox *inbox, struct esp_msg *msg)
{
    pthread_mutex_lock(&inbox->lock);
    msg->answered = true;
    pthread_cond_broadcast(&inbox->answer);
    pthread_mutex_unlock(&inbox->lock);
}

void esp_inbox_wait_answer(struct esp_inbox *inbox, struct esp_msg *msg)
{
    pthread_mutex_lock(&inbox->lock);
    while (!msg->answered) {
        pthread_cond_wait(&inbox->answer, &inbox->lock);
    }
    pthread_mutex_unlock(&inbox->lock);
}
