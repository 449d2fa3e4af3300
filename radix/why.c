/* Why a prompt was not found any further: what stands in its place, what was here before, what others have.
 *
 *   prompt   [ page ][ page ][ page ][ page ][ page ]…
 *             found   found  │ not here: its path's hash is among the ghosts → evicted, then
 *                            │ a sibling holds other tokens → the first token that differs
 *                            └ the same pages below another namespace → another one's
 *
 * A ghost is the hash of a path that left the tree, with the time; it has four places where it may be, and where
 * all are taken the oldest gives way. So some are forgotten, but what is told was here.
 * Thread: the engine's. Changes nothing but the ghosts.
 */
#include <assert.h>

#include "radix/internal.h"

#define GHOST_WAYS 4u

uint32_t esp_tree_ghosts_for(uint32_t n_pages)
{
    uint32_t n = 1024;
    while (n < ESP_TREE_GHOSTS_MAX && n < 4 * (uint64_t)n_pages) {
        n *= 2;
    }
    return n;
}

/* The places where the ghost of a path may be. */
static struct esp_tree_ghost *set_of(const struct esp_tree *tree, struct esp_tree_hash hash)
{
    return &tree->ghosts[(uint32_t)(hash.low ^ hash.high >> 32) & tree->ghost_mask & ~(GHOST_WAYS - 1)];
}

static bool is_of(const struct esp_tree_ghost *ghost, struct esp_tree_hash hash)
{
    return ghost->used && ghost->hash.low == hash.low && ghost->hash.high == hash.high;
}

void esp_tree_ghost_add(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_hash hash = tree->nodes[idx].hash;
    struct esp_tree_ghost *set = set_of(tree, hash), *place = set;
    for (uint32_t way = 0; way < GHOST_WAYS; way++) { /* its own, else a free one, else the oldest */
        if (is_of(&set[way], hash)) {
            place = &set[way];
            break;
        }
        if (place->used && (!set[way].used || set[way].left_ns < place->left_ns)) {
            place = &set[way];
        }
    }
    *place = (struct esp_tree_ghost){hash, tree->now_ns, true};
}

static bool is_ghost(const struct esp_tree *tree, struct esp_tree_hash hash, int64_t *ret_left_ns)
{
    const struct esp_tree_ghost *set = set_of(tree, hash);
    for (uint32_t way = 0; way < GHOST_WAYS; way++) {
        if (is_of(&set[way], hash)) {
            *ret_left_ns = set[way].left_ns;
            return true;
        }
    }
    return false;
}

/* Whole pages behind the found ones that were here once, up to the first that was not. */
static void look_for_ghosts(const struct esp_tree *tree, struct esp_tree_hash hash, const uint32_t *tokens,
                            uint32_t n_pages_max, struct esp_tree_why *why)
{
    uint32_t n = 0;
    int64_t left_ns = 0;
    for (; n < n_pages_max; n++, tokens += ESP_TREE_PAGE_TOKENS) {
        hash = esp_tree_hash_page(tree, hash, tokens);
        if (!is_ghost(tree, hash, &left_ns)) {
            break;
        }
        if (n == 0) {
            why->evicted_ns = left_ns;
        }
    }
    why->n_evicted = n * ESP_TREE_PAGE_TOKENS;
}

/* The token that the tree holds where the prompt goes on otherwise: that of the child which shares the most. */
static void look_for_sibling(const struct esp_tree *tree, uint32_t child, const struct esp_match *match,
                             const uint32_t *tokens, uint32_t n_tokens, struct esp_tree_why *why)
{
    uint32_t n_shared = match->n_copy_tokens;
    child = n_shared > 0 ? match->copy_page.v : child;
    if (child == ESP_TREE_NIL || n_shared >= n_tokens || n_shared >= ESP_TREE_PAGE_TOKENS) {
        return;
    }
    why->diverges = tree->nodes[child].tokens[n_shared] != tokens[n_shared];
    why->have = tree->nodes[child].tokens[n_shared];
}

static uint32_t pages_below(const struct esp_tree *tree, uint32_t slot, const uint32_t *tokens, uint32_t n_pages_max)
{
    struct esp_tree_hash hash = tree->spaces[slot].hash;
    uint32_t n = 0, last = ESP_TREE_NIL;
    uint64_t n_rejected = 0;
    for (; n < n_pages_max; n++, tokens += ESP_TREE_PAGE_TOKENS) {
        hash = esp_tree_hash_page(tree, hash, tokens);
        last = esp_tree_find_child(tree, slot, last, hash, tokens, &n_rejected);
        if (last == ESP_TREE_NIL) {
            break;
        }
    }
    return n;
}

void esp_tree_explain(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_tokens_max,
                      uint32_t n_spaces_max, struct esp_tree_why *ret_why)
{
    struct esp_match match;
    const struct esp_tree_ns *space = esp_tree_ns_slot(tree, ns);
    *ret_why = (struct esp_tree_why){.have = UINT32_MAX};
    if (space == NULL) {
        return;
    }
    esp_tree_match(tree, ns, tokens, n_tokens_max, &match);
    uint32_t last = match.last.v, n_found = match.n_pages * ESP_TREE_PAGE_TOKENS;
    uint32_t n_pages_max = n_tokens_max / ESP_TREE_PAGE_TOKENS;
    ret_why->n_found = n_found + match.n_copy_tokens;
    ret_why->n_wanted = n_pages_max * ESP_TREE_PAGE_TOKENS;
    look_for_ghosts(tree, last == ESP_TREE_NIL ? space->hash : tree->nodes[last].hash, tokens + n_found,
                    n_pages_max - match.n_pages, ret_why);
    look_for_sibling(tree, last == ESP_TREE_NIL ? space->child_head : tree->nodes[last].child_head, &match,
                     tokens + n_found, n_tokens_max - n_found, ret_why);
    uint32_t slot = (uint32_t)(space - tree->spaces);
    for (uint32_t other = 0; other < tree->n_spaces && other < n_spaces_max; other++) {
        uint32_t n = other == slot ? 0 : pages_below(tree, other, tokens, n_pages_max) * ESP_TREE_PAGE_TOKENS;
        ret_why->n_elsewhere = n > ret_why->n_elsewhere ? n : ret_why->n_elsewhere;
    }
}
