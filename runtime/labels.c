/* See labels.h. */
#include "runtime/labels.h"

#include <math.h>
#include <string.h>

#define NONE UINT32_MAX

static uint32_t child_of(const struct esp_labels *labels, uint32_t node, uint32_t token)
{
    uint32_t child = labels->nodes[node].first_child;
    while (child != NONE && labels->nodes[child].token != token) {
        child = labels->nodes[child].sibling;
    }
    return child;
}

static void add(struct esp_labels *labels, uint32_t idx, const struct esp_label *label)
{
    uint32_t node = 0;
    for (uint32_t i = 0; i < label->n_tokens; i++) {
        uint32_t child = child_of(labels, node, label->tokens[i]);
        if (child == NONE) {
            child = labels->n_nodes++;
            labels->nodes[child] = (struct esp_label_node){.token = label->tokens[i],
                                                           .parent = node,
                                                           .first_child = NONE,
                                                           .sibling = labels->nodes[node].first_child,
                                                           .depth = i + 1};
            labels->nodes[node].first_child = child;
        }
        node = child;
    }
    labels->label_nodes[idx] = node;
    labels->depth_max = label->n_tokens > labels->depth_max ? label->n_tokens : labels->depth_max;
}

static bool make_room(struct esp_arena *arena, struct esp_labels *labels, uint32_t n_prompt, uint32_t n_vocab_rows)
{
    labels->table_len = (n_prompt + labels->depth_max) / 16 + 2;
    labels->path_tokens = esp_arena_alloc(arena, (size_t)ESP_LABEL_PATHS_AT_ONCE * labels->depth_max, sizeof(uint32_t));
    labels->page_tables = esp_arena_alloc(arena, (size_t)ESP_LABEL_PATHS_AT_ONCE * labels->table_len, sizeof(uint32_t));
    labels->row = esp_arena_alloc(arena, n_vocab_rows, sizeof(float));
    labels->scores = esp_arena_alloc(arena, labels->n_labels, sizeof *labels->scores);
    return labels->path_tokens != NULL && labels->page_tables != NULL && labels->row != NULL && labels->scores != NULL;
}

esp_status esp_labels_create(struct esp_arena *arena, const struct esp_label *given, uint32_t n_labels,
                             uint32_t n_prompt, uint32_t n_vocab_rows, struct esp_labels **ret_labels)
{
    size_t n_nodes_max = 1;
    for (uint32_t i = 0; i < n_labels; i++) {
        n_nodes_max += given[i].n_tokens;
    }
    struct esp_labels *labels = esp_arena_alloc(arena, 1, sizeof *labels);
    if (labels == NULL) {
        return ESP_ENOMEM;
    }
    memset(labels, 0, sizeof *labels);
    labels->n_labels = n_labels;
    labels->nodes = esp_arena_alloc(arena, n_nodes_max, sizeof *labels->nodes);
    labels->label_nodes = esp_arena_alloc(arena, n_labels, sizeof(uint32_t));
    labels->leaves = esp_arena_alloc(arena, n_labels, sizeof(uint32_t));
    if (labels->nodes == NULL || labels->label_nodes == NULL || labels->leaves == NULL) {
        return ESP_ENOMEM;
    }
    labels->nodes[labels->n_nodes++] = (struct esp_label_node){.parent = NONE, .first_child = NONE, .sibling = NONE};
    for (uint32_t i = 0; i < n_labels; i++) {
        add(labels, i, &given[i]);
    }
    for (uint32_t i = 1; i < labels->n_nodes; i++) {
        if (labels->nodes[i].first_child == NONE) {
            labels->leaves[labels->n_leaves++] = i;
        }
    }
    *ret_labels = labels;
    return make_room(arena, labels, n_prompt, n_vocab_rows) ? ESP_OK : ESP_ENOMEM;
}

void esp_labels_look(struct esp_labels *labels, uint32_t node, const float *logits, uint32_t n_vocab,
                     bool (*is_end)(const void *ctx, uint32_t token), const void *ctx)
{
    struct esp_label_node *at = &labels->nodes[node];
    float top = -INFINITY;
    double sum = 0, ends = 0;
    bool any_end = false;
    for (uint32_t i = 0; i < n_vocab; i++) {
        top = logits[i] > top ? logits[i] : top;
    }
    for (uint32_t i = 0; i < n_vocab; i++) {
        double share = exp((double)logits[i] - (double)top);
        sum += share;
        if (is_end(ctx, i)) {
            ends += share;
            any_end = true;
        }
    }
    double log_sum = log(sum) + (double)top;
    at->seen = true;
    at->end_logprob = any_end ? log(ends) + (double)top - log_sum : 0;
    for (uint32_t child = at->first_child; child != NONE; child = labels->nodes[child].sibling) {
        struct esp_label_node *below = &labels->nodes[child];
        below->logprob = at->logprob + (double)logits[below->token] - log_sum;
    }
}

void esp_labels_path(const struct esp_labels *labels, uint32_t leaf, uint32_t *ret_nodes)
{
    for (uint32_t node = leaf; node != 0; node = labels->nodes[node].parent) {
        ret_nodes[labels->nodes[node].depth - 1] = node;
    }
}

void esp_labels_finish(struct esp_labels *labels)
{
    double top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < labels->n_labels; i++) {
        const struct esp_label_node *node = &labels->nodes[labels->label_nodes[i]];
        labels->scores[i].logprob = node->logprob + node->end_logprob;
        top = labels->scores[i].logprob > top ? labels->scores[i].logprob : top;
    }
    for (uint32_t i = 0; i < labels->n_labels; i++) {
        sum += exp(labels->scores[i].logprob - top);
    }
    for (uint32_t i = 0; i < labels->n_labels; i++) {
        labels->scores[i].probability = exp(labels->scores[i].logprob - top) / sum;
    }
    labels->done = true;
}
