/* The list of sequences with events and their rings. See events.h.
 *
 * A record of a ring: token, logprob, n_top, then n_top ids, then n_top logprobs, all 4 bytes wide. */
#include "runtime/events.h"

#include <assert.h>
#include <string.h>

#include "runtime/base/cond.h"

esp_status esp_events_init(struct esp_events *events)
{
    memset(events, 0, sizeof *events);
    pthread_mutex_init(&events->lock, NULL);
    esp_cond_init(&events->some);
    events->ready = true;
    return ESP_OK;
}

void esp_events_finish(struct esp_events *events)
{
    if (events->ready) {
        pthread_mutex_destroy(&events->lock);
        pthread_cond_destroy(&events->some);
        events->ready = false;
    }
}

void esp_events_mark_blocked(struct esp_events *events, struct esp_seq *const *seqs, uint32_t n)
{
    pthread_mutex_lock(&events->lock);
    for (uint32_t i = 0; i < n; i++) {
        seqs[i]->blocked = seqs[i]->outbox.n == seqs[i]->outbox.cap;
    }
    pthread_mutex_unlock(&events->lock);
}

static void append(struct esp_events *events, struct esp_seq *seq)
{
    if (seq->outbox.listed) {
        return;
    }
    seq->outbox.listed = true;
    seq->outbox.next = NULL;
    if (events->tail == NULL) {
        events->head = seq;
    } else {
        events->tail->outbox.next = seq;
    }
    events->tail = seq;
}

void esp_events_push_token(struct esp_events *events, struct esp_seq *seq, const struct esp_sample_row *row)
{
    struct esp_outbox *box = &seq->outbox;
    pthread_mutex_lock(&events->lock);
    assert(box->n < box->cap);
    uint8_t *at = box->ring + (size_t)((box->head + box->n) % box->cap) * box->stride;
    memcpy(at, &row->token, 4);
    memcpy(at + 4, &row->logprob, 4);
    memcpy(at + 8, &row->n_top, 4);
    memcpy(at + 12, row->top_id, (size_t)row->n_top * 4);
    memcpy(at + 12 + (size_t)row->n_top * 4, row->top_logprob, (size_t)row->n_top * 4);
    box->n++;
    append(events, seq);
    pthread_cond_signal(&events->some);
    pthread_mutex_unlock(&events->lock);
}

void esp_events_push_done(struct esp_events *events, struct esp_seq *seq)
{
    pthread_mutex_lock(&events->lock);
    seq->outbox.done = true;
    append(events, seq);
    pthread_cond_signal(&events->some);
    pthread_mutex_unlock(&events->lock);
}

static void fill_token(struct esp_outbox *box, struct esp_event *event)
{
    const uint8_t *at = box->ring + (size_t)box->head * box->stride;
    event->kind = ESP_EVENT_TOKEN;
    memcpy(&event->token, at, 4);
    memcpy(&event->logprob, at + 4, 4);
    memcpy(&event->n_top, at + 8, 4);
    memcpy(event->top_id, at + 12, (size_t)event->n_top * 4);
    memcpy(event->top_logprob, at + 12 + (size_t)event->n_top * 4, (size_t)event->n_top * 4);
    box->head = (box->head + 1) % box->cap;
    box->n--;
}

static void fill_done(const struct esp_seq *seq, struct esp_event *event)
{
    event->kind = ESP_EVENT_DONE;
    event->finish = seq->finish;
    event->n_prompt = seq->n_prompt;
    event->n_cached = seq->n_cached;
    event->n_cached_suffix = seq->n_cached_suffix;
    event->n_generated = seq->n_generated;
    event->n_written = seq->job->n_written;
    event->n_refused = seq->job->n_refused;
    event->why = seq->job->why;
    event->queue_ns = seq->queue_ns;
    event->ttft_ns = seq->ttft_ns;
    event->total_ns = seq->total_ns;
    event->scores = seq->branch == 0 && seq->job->labels != NULL && seq->job->labels->done ? seq->job->labels->scores
                                                                                         : NULL;
    memcpy(event->error, seq->error, sizeof event->error);
}

bool esp_events_take(struct esp_events *events, int64_t timeout_ns, struct esp_event *ret_event, bool *ret_room,
                     struct esp_job **ret_job)
{
    int64_t until_ns = esp_cond_until(timeout_ns);
    pthread_mutex_lock(&events->lock);
    while (events->head == NULL && !events->woken && esp_cond_wait(&events->some, &events->lock, until_ns)) {
    }
    struct esp_seq *seq = events->head;
    if (events->woken || seq == NULL) {
        events->woken = false;
        pthread_mutex_unlock(&events->lock);
        return false;
    }
    struct esp_outbox *box = &seq->outbox;
    events->head = box->next;
    if (events->head == NULL) {
        events->tail = NULL;
    }
    box->listed = false;
    memset(ret_event, 0, sizeof *ret_event);
    ret_event->id = seq->job->id;
    ret_event->branch = seq->branch;
    ret_event->user = seq->job->user;
    *ret_room = box->n == box->cap;
    *ret_job = NULL;
    if (box->n > 0) {
        fill_token(box, ret_event);
        if (box->n > 0 || box->done) {
            append(events, seq);
        }
    } else {
        assert(box->done);
        fill_done(seq, ret_event);
        seq->job->n_polled++;
        if (seq->job->n_polled == seq->job->n_branches) {
            *ret_job = seq->job;
        }
    }
    pthread_mutex_unlock(&events->lock);
    return true;
}

void esp_events_wake(struct esp_events *events)
{
    pthread_mutex_lock(&events->lock);
    events->woken = true;
    pthread_cond_broadcast(&events->some);
    pthread_mutex_unlock(&events->lock);
}
