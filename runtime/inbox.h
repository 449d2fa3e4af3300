/* The engine's letter box: messages in order, and a bell.
 *
 * A message is a field of what it announces (a job, or a question on the asker's stack), so pushing
 * never fails and never allocates; the number of jobs is bounded by the engine's slots and a thread
 * asks one question at a time. The bell wakes the engine for news that is no message: a cancel, or
 * room in a full outbox. Thread: any; take and wait are the engine's.
 */
#ifndef ESP_RUNTIME_INBOX_H
#define ESP_RUNTIME_INBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

enum esp_msg_kind { ESP_MSG_JOB, ESP_MSG_FLUSH, ESP_MSG_DUMP, ESP_MSG_ROWS, ESP_MSG_EXPLAIN };

struct esp_msg {
    enum esp_msg_kind kind;
    bool answered; /* questions: guarded by the inbox's lock */
    struct esp_msg *next;
};

struct esp_inbox {
    pthread_mutex_t lock;
    pthread_cond_t bell, answer;
    struct esp_msg *head, *tail;
    bool rung, ready;
};

esp_status esp_inbox_init(struct esp_inbox *inbox);
void esp_inbox_finish(struct esp_inbox *inbox); /* zeroed is fine; no thread may be waiting */
void esp_inbox_push(struct esp_inbox *inbox, struct esp_msg *msg);
void esp_inbox_ring(struct esp_inbox *inbox);
/* Everything that came, oldest first, and NULL for nothing; silences the bell. */
struct esp_msg *esp_inbox_take(struct esp_inbox *inbox);
/* Sleeps until a message comes, the bell rings or the time is over (negative = never); a bell since the last take
 * returns at once. */
void esp_inbox_wait(struct esp_inbox *inbox, int64_t timeout_ns);
/* A question has been answered; its asker may go on and msg must not be touched again. */
void esp_inbox_answer(struct esp_inbox *inbox, struct esp_msg *msg);
void esp_inbox_wait_answer(struct esp_inbox *inbox, struct esp_msg *msg);

#endif
