/* What the next step computes: a decision over queues, free pages and the tree, with no device in sight.
 *
 *   tenants' queues ──admit──► running (by admission, at most n_batch_max) ──plan──► items, copies
 *        ▲                              │
 *        └──────── preempt ◄────────────┘ for one who outranks it, or while pages are short
 *
 * Who is admitted next is fair.h's: least served tenants, longest cached prefix, age, priority. One whom another
 * tenant has left behind takes the place of the cheapest one of that tenant. A prompt that continues nothing waits
 * (ESP_SCHED_SESSION_WAIT_NS at most) while the pages it needs are those that tool calls will come back to.
 *
 * One step has one row for each decoding sequence and at most prefill_chunk rows of prompts, given out in order of
 * admission. While the prompt of an owed tenant is computed, those who have had a quantum more stand still; and as
 * long as such a tenant is about, steps are short for the others, so that its requests begin soon.
 *
 * Progress. Each step takes the running sequences in an order; whoever comes first may preempt all later
 * ones but those that outrank it, and these may preempt it in their turn, so the last one left has the whole
 * pool, which is enough for one (checked at submit): in every step some sequence that can take events has a row.
 * Charging rows moves the ranks on, and what pressure made the engine run again is not charged, so the loser of
 * a preemption catches up. Work stays bounded: a sequence is admitted again only when all pages for its
 * known tokens are there beside those that the running ones still need.
 * Thread: the engine's.
 */
#ifndef ESP_RUNTIME_SCHED_H
#define ESP_RUNTIME_SCHED_H

#include "runtime/fair.h"

#define ESP_SCHED_SESSION_WAIT_NS 5000000000ll
#define ESP_SCHED_IDLE_ROWS 64u /* of a step that idle work may have */

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
    uint64_t preemptions, idle; /* rows of idle work */
    uint64_t jobs_admitted; /* for the first time */
};

struct esp_sched {
    struct esp_lease_ctx lease;
    struct esp_sched_config config;
    struct esp_fair fair;     /* the queues */
    struct esp_seq **running; /* [n_batch_max] in order of admission */
    struct esp_seq **order;   /* [n_batch_max] of the step being planned */
    uint32_t n_running;
    uint64_t turn;         /* admission of the one that the last step had no room for; 0 = it had for all */
    uint64_t n_steps, n_admitted;
    int64_t deadline_ns;   /* no sequence has an earlier one */
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
/* Gives pages back by preempting the sequence that was admitted last. False: nothing runs. */
bool esp_sched_preempt(struct esp_sched *sched);
bool esp_sched_preempt_other(struct esp_sched *sched, const struct esp_seq *seq); /* not this one */
/* A sequence whose time is over at sched->now_ns, or NULL. */
struct esp_seq *esp_sched_expired(struct esp_sched *sched);
/* explain.c: what the tree says, in the words of espalier.h. n_pending: tokens that some request at work has. */
void esp_explain_fill(const struct esp_tree_why *why, const uint32_t *tokens, uint32_t n_tokens, uint32_t n_pending,
                      int64_t now_ns, struct esp_explanation *ret_explanation);
uint32_t esp_sched_running_jobs(const struct esp_sched *sched);

#endif
