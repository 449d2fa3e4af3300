/* The scheduler on a desk: tree, leases and queues with no device and no thread, and a clock that is turned by hand.
 *
 *   desk_add ──► queue ──► desk_plan ──► desk_compute ──► …
 *
 * desk_compute plays the device: it declares what was planned as written and adds a token where logits were wanted.
 * Thread: the test's.
 */
#ifndef ESP_TESTS_DESK_H
#define ESP_TESTS_DESK_H

#include "runtime/sched.h"

#define DESK_VOCAB 50000

struct desk {
    struct esp_tree *tree;
    struct esp_sched sched;
    uint32_t n_limit; /* tokens of a timeline */
    uint64_t arrival;
    int64_t now_ns;
};

struct desk_work {
    const char *tenant; /* NULL = nameless */
    int priority;
    int64_t timeout_ns;
    uint32_t n_max;
    bool idle;
};

bool desk_init(struct desk *desk, uint32_t n_pages, uint32_t n_batch_max, uint32_t chunk);
/* Everything must have been removed. */
void desk_finish(struct desk *desk);
/* Returns the job of one branch, queued; owned by the caller, who removes it. NULL when it is refused. */
struct esp_job *desk_add(struct desk *desk, const uint32_t *tokens, uint32_t n_tokens, const struct desk_work *work);
const struct esp_plan *desk_plan(struct desk *desk);
void desk_compute(struct desk *desk);
/* Takes the job's sequence out and frees the job. */
void desk_end(struct desk *desk, struct esp_job *job, enum esp_evict_class class);

#endif
