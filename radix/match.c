/* Finding the longest known prefix of a prompt.
 *
 *   chain[0] = H(namespace)     chain[i + 1] = H(chain[i], 16 tokens)     H = XXH3-128 with a seed
 *
 * The chain depends on the prompt alone, so a block of hashes is computed first, the memory they lead
 * to is asked for, and only then looked at: the waits for memory overlap. Thread: the engine's. Takes no
 * references, accepts nothing on the strength of a hash (index.c).
 */
#include "radix/internal.h"

enum { BLOCK = 16 }; /* pages hashed ahead */

/* Hashes n pages from *chain on and asks the memory for the first candidate of each. */
static void hash_ahead(const struct esp_tree *tree, struct esp_tree_hash *chain, const uint32_t *tokens, uint32_t n,
                       struct esp_tree_hash *ret_hashes)
{
    for (uint32_t idx = 0; idx < n; idx++) {
        *chain = esp_tree_hash_page(tree, *chain, tokens + (size_t)idx * ESP_TREE_PAGE_TOKENS);
        ret_hashes[idx] = *chain;
        __builtin_prefetch(&tree->cells[(uint32_t)chain->low & tree->cell_mask]);
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        /* Mostly the right one; looking further here would cost more in mispredicted branches. */
        uint32_t first = tree->cells[(uint32_t)ret_hashes[idx].low & tree->cell_mask].idx;
        const struct esp_tree_node *node = &tree->nodes[first == ESP_TREE_NIL ? 0 : first];
        __builtin_prefetch(node->tokens);
        __builtin_prefetch(&node->hash);
    }
}

/* The deepest node whose whole path equals the first pages; fills n_pages and n_cached. */
static uint32_t find_pages(struct esp_tree *tree, uint32_t slot, const uint32_t *tokens, uint32_t n_pages_max,
                           struct esp_match *match)
{
    struct esp_tree_hash chain = tree->spaces[slot].hash;
    struct esp_tree_hash hashes[BLOCK];
    uint32_t last = ESP_TREE_NIL;
    while (match->n_pages < n_pages_max) {
        uint32_t n = n_pages_max - match->n_pages < BLOCK ? n_pages_max - match->n_pages : BLOCK;
        const uint32_t *at = tokens + (size_t)match->n_pages * ESP_TREE_PAGE_TOKENS;
        hash_ahead(tree, &chain, at, n, hashes);
        for (uint32_t idx = 0; idx < n; idx++, at += ESP_TREE_PAGE_TOKENS) {
            uint32_t next = esp_tree_find_child(tree, slot, last, hashes[idx], at, &tree->hash_rejected_total);
            if (next == ESP_TREE_NIL) {
                return last;
            }
            last = next;
            match->n_pages++;
            match->n_cached += tree->nodes[next].state == ESP_PAGE_CACHED;
        }
    }
    return last;
}

static uint32_t n_shared(const uint32_t *left, const uint32_t *right, uint32_t n_max)
{
    uint32_t n = 0;
    while (n < n_max && left[n] == right[n]) {
        n++;
    }
    return n;
}

/* Among the most recently used children: the cached one that shares the most of the next tokens. */
static uint32_t find_partial(const struct esp_tree *tree, uint32_t child, const uint32_t *tokens, uint32_t n_tokens,
                             struct esp_match *match)
{
    uint32_t best = ESP_TREE_NIL;
    uint32_t n_max = n_tokens < ESP_TREE_PAGE_TOKENS ? n_tokens : ESP_TREE_PAGE_TOKENS;
    for (uint32_t n_seen = 0; child != ESP_TREE_NIL && n_seen < ESP_TREE_COPY_SCAN_MAX; n_seen++) {
        const struct esp_tree_node *node = &tree->nodes[child];
        uint32_t n = node->state == ESP_PAGE_CACHED ? n_shared(node->tokens, tokens, n_max) : 0;
        if (n > match->n_copy_tokens) {
            match->n_copy_tokens = n;
            best = child;
            if (n == n_max) {
                break;
            }
        }
        child = node->sibling_next;
    }
    return best;
}

void esp_tree_match(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_tokens_max,
                    struct esp_match *ret_match)
{
    *ret_match = (struct esp_match){.last = ESP_NODE_NONE, .copy_page = ESP_PAGE_NONE, .copy_node = ESP_NODE_NONE};
    const struct esp_tree_ns *space = esp_tree_ns_slot(tree, ns);
    if (space == NULL) {
        return;
    }
    uint32_t slot = (uint32_t)(space - tree->spaces);
    uint32_t last = find_pages(tree, slot, tokens, n_tokens_max / ESP_TREE_PAGE_TOKENS, ret_match);
    if (ret_match->n_cached == ret_match->n_pages) {
        uint32_t used = ret_match->n_pages * ESP_TREE_PAGE_TOKENS;
        uint32_t child = last == ESP_TREE_NIL ? space->child_head : tree->nodes[last].child_head;
        uint32_t copy = find_partial(tree, child, tokens + used, n_tokens_max - used, ret_match);
        if (copy != ESP_TREE_NIL) {
            ret_match->copy_page.v = copy;
            ret_match->copy_node = (struct esp_node_id){copy, tree->nodes[copy].generation};
            esp_tree_touch(tree, copy);
        }
    }
    if (last != ESP_TREE_NIL) {
        ret_match->last = (struct esp_node_id){last, tree->nodes[last].generation};
    }
    for (; last != ESP_TREE_NIL; last = tree->nodes[last].parent) {
        esp_tree_touch(tree, last);
    }
}
