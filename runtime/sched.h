/* What the next step computes: a decision over queues, free pages and the tree, with no device in sight.
 *
 *   queue (by arrival) ──admit──► running (by arrival, at most n_batch_max) ──plan──► items, copies
 *        ▲                              │
 *        └──────── preempt ◄────────────┘ always the latest arrival, and only while pages are short
 *
 * One step has one row for each decoding sequence and at most prefill_chunk rows of prompts, given out in
 * order of arrival. Only the head of the queue may be admitted, so nobody overtakes.
 *
 * Progress. Take the running sequence A that arrived first (the queue holds only later ones, because
 * admission is in order and preempted sequences go back to their place). A is planned first; nobody
 * is preempted for the sake of a later arrival, so A never is; when pages are short all others can be
 * preempted, and A alone fits the pool (checked at submit). A cannot be held by a twin either: what it
 * waits for was planned earlier in this step, and A is first. So A runs at least one row in every step
 * in which its events can be queued, and ends; then the next one is first. The work of a preempted sequence
 * is bounded too: it is admitted again only when all pages for its known tokens are there beside those
 * that the running ones still need.
 * Thread: the engine's.
 */
#ifndef ESP_RUNTIME_SCHED_H
#define ESP_RUNTIME_SCHED_H

#include "runtime/lease.h"

struct esp_plan_item { /* rows [from, from + n) of one sequence */
    struct esp_seq *seq;
    uint32_t from, n;
    uint32_t n_announced;
    bool wants_logits; /* of its last row */
};

struct esp_plan {
    struct esp_plan_item *items; /* [n_batch_max] */
    struct esp_page_id *copy_src, *copy_dst; /* [n_batch_max]; no page is in both */
    struct esp_node_id *copy_nodes;          /* [n_batch_max] leased: the nodes of copy_src */
    uint32_t n_items, n_copies, n_rows;
};

struct esp_sched_config {
    uint32_t n_batch_max, prefill_chunk;
};

struct esp_sched_counts { /* rows and events since create */
    uint64_t computed, cached, recomputed; /* prompt tokens, see espalier.h */
    uint64_t preemptions;
    uint64_t jobs_admitted; /* for the first time */
};

struct esp_sched {
    struct esp_lease_ctx lease;
    struct esp_sched_config config;
    struct esp_seq *head, *tail; /* the queue */
    struct esp_seq **running;    /* [n_batch_max] */
    uint32_t n_running;
    struct esp_plan plan;
    struct esp_sched_counts counts;
    int64_t now_ns; /* of this step */
};

esp_status esp_sched_init(struct esp_sched *sched, const struct esp_lease_ctx *lease,
                          const struct esp_sched_config *config);
void esp_sched_finish(struct esp_sched *sched); /* zeroed is fine */
void esp_sched_add(struct esp_sched *sched, struct esp_seq *seq);
/* Takes a sequence out, wherever it is, and gives its pages back; its state becomes DONE. class: of the pages that
 * hold generated tokens (those of the prompt stay NORMAL). */
void esp_sched_remove(struct esp_sched *sched, struct esp_seq *seq, enum esp_evict_class class);
/* From the queue to running, as far as there is room. Comes before plan, so that the caller can set `blocked` of
 * everything that runs in between: what it was when a sequence was preempted says nothing. */
void esp_sched_admit(struct esp_sched *sched);
/* Fills sched->plan. Pages are reserved and announced; `blocked` of running sequences is up to date. The sources of
 * copies are leased until esp_sched_end_copies. */
void esp_sched_plan(struct esp_sched *sched);
/* The copies of the plan are made, or will never be: their sources may be evicted again. */
void esp_sched_end_copies(struct esp_sched *sched);
/* Gives pages back by preempting the latest arrival. False: nothing runs. */
bool esp_sched_preempt(struct esp_sched *sched);
uint32_t esp_sched_running_jobs(const struct esp_sched *sched);

#endif
