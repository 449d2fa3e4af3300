/* The pages of a sequence: finding a prefix in the tree, leasing it, adding to it, letting go.
 *
 *   adopt     what the tree has of the timeline replaces what the sequence would compute
 *   reserve   private pages for the tokens that the next step writes
 *   announce  full pages of the next step enter the tree as pending, before they are written
 *   publish   … and become cached once the step has written them
 *   enter     full pages that were not announced (of generated tokens) enter as cached
 *   drop      private pages are freed and the lease goes back; what was written stays cached
 *
 * A page is announced in the same step that writes it, and steps are whole: between two steps no page is
 * pending. So a twin waits at most for the rest of a step, holds no lease on a page that may never be
 * written, and when its writer is cancelled or preempted it simply finds what is there and computes the rest.
 * When a step fails its sequences end, and a pending page that nobody leases leaves the tree with them.
 * Thread: the engine's.
 */
#ifndef ESP_RUNTIME_LEASE_H
#define ESP_RUNTIME_LEASE_H

#include "runtime/job.h"
#include "runtime/keep.h"

struct esp_lease_ctx {
    struct esp_tree *tree;
    const void *model_id; /* part of every namespace: what else the keys and values depend on */
    size_t model_id_bytes;
    bool off; /* share and keep nothing */
    struct esp_keep *store; /* NULL: no page file */
};

/* Leases the longest written prefix when it is longer than what the sequence has. Returns whether pages
 * behind it are being written by another sequence right now. */
bool esp_lease_adopt(const struct esp_lease_ctx *ctx, struct esp_seq *seq);
/* What adopt would find, without taking it: tokens in written pages, how many of these pages are evictable now, and
 * the class of the last one. */
struct esp_lease_view {
    uint32_t n_tokens, n_unreferenced;
    enum esp_evict_class class;
};
void esp_lease_peek(const struct esp_lease_ctx *ctx, struct esp_seq *seq, struct esp_lease_view *ret_view);
/* What the tree knows about the rest of the prompt. A namespace that is not shared has nothing. */
void esp_lease_explain(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_spaces_max,
                       struct esp_tree_why *ret_why);
/* After reserve: leases a written page whose first tokens continue the timeline, to be copied over the sequence's
 * page at n_node and then released. Returns the number of tokens that it adds, and 0 when there is none. */
uint32_t esp_lease_tail(const struct esp_lease_ctx *ctx, const struct esp_seq *seq, struct esp_node_id *ret_src);
/* ESP_EBUSY when the pool cannot give so many now; nothing is changed then. */
esp_status esp_lease_reserve(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_pages);
/* Returns the number of pages announced: those that are full when n_tokens positions are written. */
uint32_t esp_lease_announce(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_tokens);
void esp_lease_publish(const struct esp_lease_ctx *ctx, struct esp_seq *seq, uint32_t n_announced);
void esp_lease_enter(const struct esp_lease_ctx *ctx, struct esp_seq *seq);
/* When the engine receives a job: asks for its pins, by its first branch. The answers are in the job's pins: `open` is
 * granted. */
void esp_lease_wants_pins(const struct esp_lease_ctx *ctx, struct esp_seq *seq);
/* Makes those granted pins whose pages are written now. */
void esp_lease_pin(const struct esp_lease_ctx *ctx, struct esp_seq *seq);
/* The job ends: what was granted and never made goes back. */
void esp_lease_forget_pins(const struct esp_lease_ctx *ctx, struct esp_job *job);
/* class: TAIL when the conversation ends (esp_tree_end_turn), RETURN when it comes back, NORMAL when the answer is not
 * complete. The first two leave in seq->turn what esp_lease_correct needs to change it later. */
void esp_lease_drop(const struct esp_lease_ctx *ctx, struct esp_seq *seq, enum esp_evict_class class);

void esp_lease_correct(const struct esp_lease_ctx *ctx, struct esp_tree_turn *turn, bool comes_back);

#endif
