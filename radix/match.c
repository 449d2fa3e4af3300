/* Finding the longest known prefix of a prompt.
 *
 * From page to page the most recently used child is tried first; where it holds other tokens the hash of
 * the path leads to the right one among however many there are. Either way a node is accepted only if
 * its 16 tokens are the next ones and its parent is the node we came from, so the whole path is equal.
 * Thread: the engine's. Takes no references.
 */
#include <assert.h>
#include <string.h>

#include "radix/internal.h"

/* The child of `last` (NIL: of the root) that holds these tokens. Mostly it is the most recently used one;
 * only at a fork does the hash have to find it. */
static uint32_t next_page(struct esp_tree *tree, uint32_t slot, uint32_t last, const uint32_t *tokens)
{
    uint32_t child = last == ESP_TREE_NIL ? tree->spaces[slot].child_head : tree->nodes[last].child_head;
    if (child == ESP_TREE_NIL || esp_tree_same_tokens(tree->nodes[child].tokens, tokens)) {
        return child;
    }
    struct esp_tree_hash above = last == ESP_TREE_NIL ? tree->spaces[slot].hash : tree->nodes[last].hash;
    return esp_tree_find_child(tree, slot, last, esp_tree_hash_page(tree, above, tokens), tokens,
                               &tree->hash_rejected_total);
}

/* A long path is a chain of memory accesses, each waiting for the one before, unless the nodes that follow are on
 * their way already. *behind: the node ESP_TREE_AHEAD levels above, then this one. */
static void fetch_ahead(struct esp_tree *tree, uint32_t idx, uint32_t *behind)
{
    uint32_t ahead = tree->nodes[idx].ahead;
    if (ahead < tree->n_pages) {
        __builtin_prefetch(tree->nodes[ahead].tokens);
        __builtin_prefetch(&tree->nodes[ahead].hash);
    }
    if (*behind != ESP_TREE_NIL && tree->nodes[*behind].ahead != idx) {
        tree->nodes[*behind].ahead = idx;
    }
    *behind = idx;
}

/* The deepest node whose whole path equals the first pages, from `last` on; adds to n_pages and n_cached. */
static uint32_t find_pages(struct esp_tree *tree, uint32_t slot, uint32_t last, const uint32_t *tokens,
                           uint32_t n_pages_max, struct esp_match *match)
{
    uint32_t behind[ESP_TREE_AHEAD];
    memset(behind, 0xff, sizeof behind);
    tokens += (size_t)match->n_pages * ESP_TREE_PAGE_TOKENS;
    for (; match->n_pages < n_pages_max; match->n_pages++, tokens += ESP_TREE_PAGE_TOKENS) {
        uint32_t next = next_page(tree, slot, last, tokens);
        if (next == ESP_TREE_NIL) {
            break;
        }
        fetch_ahead(tree, next, &behind[match->n_pages % ESP_TREE_AHEAD]);
        last = next;
        match->n_cached += tree->nodes[next].state == ESP_PAGE_CACHED;
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

void esp_tree_match_from(struct esp_tree *tree, struct esp_ns_id ns, struct esp_node_id from, const uint32_t *tokens,
                         uint32_t n_tokens_max, struct esp_match *ret_match)
{
    *ret_match = (struct esp_match){.last = ESP_NODE_NONE, .copy_page = ESP_PAGE_NONE};
    const struct esp_tree_ns *space = esp_tree_ns_slot(tree, ns);
    if (space == NULL) {
        return;
    }
    uint32_t slot = (uint32_t)(space - tree->spaces);
    if (from.v != ESP_TREE_NIL) {
        assert(esp_tree_node_alive(tree, from) && tree->nodes[from.v].state == ESP_PAGE_CACHED);
        ret_match->n_pages = ret_match->n_cached = tree->nodes[from.v].depth;
    }
    uint32_t last = find_pages(tree, slot, from.v, tokens, n_tokens_max / ESP_TREE_PAGE_TOKENS, ret_match);
    uint32_t used = ret_match->n_pages * ESP_TREE_PAGE_TOKENS;
    if (ret_match->n_cached == ret_match->n_pages && used < n_tokens_max) {
        uint32_t child = last == ESP_TREE_NIL ? space->child_head : tree->nodes[last].child_head;
        ret_match->copy_page.v = find_partial(tree, child, tokens + used, n_tokens_max - used, ret_match);
    }
    ret_match->last = esp_tree_id(tree, last);
}

void esp_tree_match(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_tokens_max,
                    struct esp_match *ret_match)
{
    esp_tree_match_from(tree, ns, ESP_NODE_NONE, tokens, n_tokens_max, ret_match);
}
