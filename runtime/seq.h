/* One branch of one request: its timeline of tokens, the pages under it, and the state it is in.
 *
 *             submit
 *               │            admitted            prompt computed
 *               ▼          ┌──────────► PREFILL ──────────────► DECODE
 *            QUEUED ───────┤               ▲ │ a twin is writing    │
 *               ▲          │               │ ▼ what comes next      │
 *               │          └──────────── HOLD                       │
 *               └── preempted, from any of the three ◄──────────────┘
 *            every state ──► DONE (end token, length, cancel, error)
 *
 *   tokens  [ prompt …………………………… | generated …… ]      n_tokens of n_cap known
 *            ◄── n_computed: K and V exist ──►
 *   pages   [ tree nodes, leased: n_node | private: … n_pages )
 *
 * Invariants: n_computed ≤ n_tokens; 16·n_node ≤ n_computed between steps; pages [n_node, n_pages) are
 * this sequence's private ones; QUEUED and DONE own no page. Thread: the engine's, but for the outbox,
 * which the lock of events.h guards.
 */
#ifndef ESP_RUNTIME_SEQ_H
#define ESP_RUNTIME_SEQ_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/grammar.h"
#include "radix/tree.h"
#include "runtime/espalier.h"

enum esp_seq_state { ESP_SEQ_QUEUED, ESP_SEQ_HOLD, ESP_SEQ_PREFILL, ESP_SEQ_DECODE, ESP_SEQ_DONE, ESP_SEQ_STATES };
const char *esp_seq_state_name(enum esp_seq_state state);

struct esp_job;

/* Events of one sequence that wait for the poller: a ring of tokens and a place for the one DONE. */
struct esp_outbox {
    uint8_t *ring; /* [cap] records of stride bytes, see events.c */
    uint32_t cap, stride, head, n;
    bool done;   /* the DONE event may be taken after the tokens */
    bool listed; /* in the list of sequences with events */
    struct esp_seq *next;
};

struct esp_seq {
    struct esp_job *job;
    uint32_t branch;
    uint64_t arrival; /* order of service; unique */
    enum esp_seq_state state;
    bool asked;   /* the page file, for what the tree does not have */
    bool blocked; /* its outbox was full when the step began */

    uint32_t *tokens; /* [n_cap] */
    uint32_t n_prompt, n_cap; /* prompt alone; with generated tokens at most */
    uint32_t n_tokens;
    uint32_t n_computed;
    uint32_t n_high; /* most that n_computed has ever been: what lies below and is run again is recomputed */

    struct esp_page_id *pages;
    uint32_t n_pages, n_node;
    struct esp_node_id node; /* deepest leased node; ESP_NODE_NONE when n_node == 0 */

    struct esp_grammar *grammar; /* or NULL; a reference of its own */
    struct esp_matcher *matcher; /* NULL without a grammar; survives preemption */
    struct esp_seq *prev, *next; /* its tenant's queue of waiting sequences, by arrival */

    /* fair.h's: its turn */
    bool known;             /* counted as live in its tenant */
    bool returning;         /* the pages that it waits for were left for it by a tool call */
    uint32_t tenant;        /* slot */
    uint32_t n_peeked;      /* tokens that the tree had for it when it was last looked up … */
    int64_t peeked_ns;      /* … then; INT64_MIN = not since it came */
    int64_t served_before;  /* its tenant's counter when it came */
    uint64_t planned_step;  /* the last step that it has rows in */
    uint64_t admission;     /* order in which the running ones were admitted */
    struct esp_seq *next_done;   /* finished in this step */

    int64_t first_token_ns, last_token_ns;
    struct esp_outbox outbox;
    struct esp_tree_turn turn; /* what became of the pages, for esp_turn_over; node NONE: nothing */
    /* what DONE says */
    enum esp_finish finish;
    uint32_t n_generated, n_cached;
    uint32_t n_counted, n_cached_suffix; /* of its own part of the prompt: counted so far; not computed */
    int64_t queue_ns, ttft_ns, total_ns;
    char error[256];
};

static inline uint32_t esp_pages_for(uint32_t n_tokens)
{
    return n_tokens / ESP_TREE_PAGE_TOKENS + (n_tokens % ESP_TREE_PAGE_TOKENS != 0);
}

/* Tokens that get rows before the sequence decodes: all it knows, of idle work only whole pages. */
uint32_t esp_seq_goal(const struct esp_seq *seq);

bool esp_seq_may_move(enum esp_seq_state from, enum esp_seq_state to);
/* Asserts that the move is allowed. */
void esp_seq_move(struct esp_seq *seq, enum esp_seq_state to);

#endif
