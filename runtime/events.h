/* Events on their way to the polling thread: nothing is lost, nothing is unbounded, nothing waits.
 *
 *   list of sequences with events ──► seq ──► seq ──► seq      the poller takes one event of the first
 *                                      │ ring of ≤ 64 tokens     and moves it to the end, so a chatty
 *                                      └ one place for DONE      sequence cannot hide a quiet one
 *
 * A sequence whose ring is full is not scheduled until the poller has taken something: back-pressure on
 * it alone. The place for DONE is its own, so finishing never waits. All memory came with the job.
 * Thread: pushes are the engine's, takes the poller's; one lock.
 */
#ifndef ESP_RUNTIME_EVENTS_H
#define ESP_RUNTIME_EVENTS_H

#include <pthread.h>

#include "kernels/ops.h"
#include "runtime/job.h"

struct esp_events {
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct esp_seq *head, *tail;
    bool woken, ready;
};

esp_status esp_events_init(struct esp_events *events);
void esp_events_finish(struct esp_events *events); /* zeroed is fine */
/* Sets `blocked` of each sequence whose ring has no room. */
void esp_events_mark_blocked(struct esp_events *events, struct esp_seq *const *seqs, uint32_t n);
/* The sampled token of a row. There is room: the caller has seen that it is not blocked. */
void esp_events_push_token(struct esp_events *events, struct esp_seq *seq, const struct esp_sample_row *row);
/* seq's finish fields are filled. After the last branch's DONE the job belongs to the poller. */
void esp_events_push_done(struct esp_events *events, struct esp_seq *seq);

/* Waits up to timeout_ns (negative = for ever). False: nothing came, or esp_events_wake was called.
 * *ret_room: the engine should look again at a sequence that was blocked. *ret_job: the job whose last
 * event this was, now the caller's to destroy; else NULL. */
bool esp_events_take(struct esp_events *events, int64_t timeout_ns, struct esp_event *ret_event, bool *ret_room,
                     struct esp_job **ret_job);
void esp_events_wake(struct esp_events *events);

#endif
