/* The labels of a request that asks how likely each of them is as the answer: a trie of their tokens.
 *
 *   "P1" = [ P | 1 ]      root ──P──► ● ──1──► ■ end          ■ a label ends here
 *   "P2" = [ P | 2 ]                  └──2──► ■ end           a path leads to each leaf; a label that
 *   "none"                root ──none──► ■ end                 begins another one lies on its path
 *
 * score(label) = Σ log p(token | prompt, tokens before) + log p(end | prompt, label), where p is the softmax over all
 * ids that may be drawn, without masks, biases, penalties or temperature, and end stands for any end token (no
 * term when the vocabulary has none). probability(label) = exp(score) / Σ exp(score of all labels). Sums are made in
 * double. Each node's logits are looked at once. Labels that are equal share a node and their score.
 * Thread: the client's while it is made, then the engine's. Runs nothing; score.c does.
 */
#ifndef ESP_RUNTIME_LABELS_H
#define ESP_RUNTIME_LABELS_H

#include "runtime/base/arena.h"
#include "runtime/espalier.h"

#define ESP_LABEL_PATHS_AT_ONCE 32u

struct esp_label_node {
    uint32_t token, parent, first_child, sibling; /* UINT32_MAX: none */
    uint32_t depth;                               /* tokens from the root */
    bool seen;                                    /* its logits have been looked at, or will be in this pass */
    double logprob, end_logprob;                  /* of the tokens down to here; of an end after them */
};

struct esp_labels {
    struct esp_label_node *nodes; /* [n_nodes] node 0 is the root */
    uint32_t *label_nodes;        /* [n_labels] where each ends */
    uint32_t *leaves;             /* [n_leaves] */
    uint32_t n_nodes, n_labels, n_leaves, depth_max;
    uint32_t *path_tokens;        /* [ESP_LABEL_PATHS_AT_ONCE, depth_max] */
    uint32_t *page_tables;        /* [ESP_LABEL_PATHS_AT_ONCE, table_len] */
    uint32_t table_len;
    float *row;                   /* [n_vocab_rows] one row of logits */
    struct esp_label_score *scores; /* [n_labels] */
    bool done;
};

/* All of it in the arena. The labels have been checked. ESP_ENOMEM. */
esp_status esp_labels_create(struct esp_arena *arena, const struct esp_label *labels, uint32_t n_labels,
                             uint32_t n_prompt, uint32_t n_vocab_rows, struct esp_labels **ret_labels);
/* One row of logits, of the position behind `node`: sets logprob of its children and end_logprob of itself. is_end may
 * hold for none of the n_vocab ids. */
void esp_labels_look(struct esp_labels *labels, uint32_t node, const float *logits, uint32_t n_vocab,
                     bool (*is_end)(const void *ctx, uint32_t token), const void *ctx);
/* The tokens down to a leaf, root side first. */
void esp_labels_path(const struct esp_labels *labels, uint32_t leaf, uint32_t *ret_nodes);
/* Every node has been looked at: fills scores. */
void esp_labels_finish(struct esp_labels *labels);

#endif
