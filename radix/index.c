/* The index: from the hash of a path to the node at its end.
 *
 *   cells   [tag idx][tag idx][ – ][tag idx][ – ] …    open addressing, linear probing, at most half full
 *
 * A cell keeps the low 32 bits of the hash, so a neighbour is passed over without reading its node, and its
 * home cell is known when a removal closes the gap behind it. A hash only finds candidates; accepted is a
 * node of this namespace whose parent is the node we came from and whose 16 tokens are equal, which by
 * induction makes the whole path equal. Thread: the engine's.
 */
#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "radix/internal.h"

struct esp_tree_hash esp_tree_hash_bytes(const struct esp_tree *tree, const void *data, size_t n_bytes)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(data, n_bytes, tree->seed);
    return (struct esp_tree_hash){hash.low64 & tree->hash_mask.low, hash.high64 & tree->hash_mask.high};
}

struct esp_tree_hash esp_tree_hash_page(const struct esp_tree *tree, struct esp_tree_hash parent,
                                        const uint32_t tokens[ESP_TREE_PAGE_TOKENS])
{
    struct {
        struct esp_tree_hash parent;
        uint32_t tokens[ESP_TREE_PAGE_TOKENS];
    } input = {.parent = parent};
    memcpy(input.tokens, tokens, sizeof input.tokens);
    return esp_tree_hash_bytes(tree, &input, sizeof input);
}

uint32_t esp_tree_find_child(const struct esp_tree *tree, uint32_t ns, uint32_t parent, struct esp_tree_hash hash,
                             const uint32_t tokens[ESP_TREE_PAGE_TOKENS], uint64_t *n_rejected)
{
    uint32_t at = (uint32_t)hash.low & tree->cell_mask;
    for (; tree->cells[at].idx != ESP_TREE_NIL; at = (at + 1) & tree->cell_mask) {
        if (tree->cells[at].tag != (uint32_t)hash.low) {
            continue;
        }
        const struct esp_tree_node *node = &tree->nodes[tree->cells[at].idx];
        if (node->hash.low != hash.low || node->hash.high != hash.high) {
            continue;
        }
        if (node->parent == parent && node->ns == ns && esp_tree_same_tokens(node->tokens, tokens)) {
            break;
        }
        ++*n_rejected;
    }
    return tree->cells[at].idx;
}

void esp_tree_index_add(struct esp_tree *tree, uint32_t idx)
{
    uint32_t tag = (uint32_t)tree->nodes[idx].hash.low;
    uint32_t at = tag & tree->cell_mask;
    while (tree->cells[at].idx != ESP_TREE_NIL) {
        at = (at + 1) & tree->cell_mask;
    }
    tree->cells[at] = (struct esp_tree_cell){tag, idx};
}

void esp_tree_index_remove(struct esp_tree *tree, uint32_t idx)
{
    const uint32_t mask = tree->cell_mask;
    uint32_t hole = (uint32_t)tree->nodes[idx].hash.low & mask;
    while (tree->cells[hole].idx != idx) {
        assert(tree->cells[hole].idx != ESP_TREE_NIL);
        hole = (hole + 1) & mask;
    }
    /* Whoever would not be found past the hole, because he lives at it or before, moves into it. */
    for (uint32_t at = (hole + 1) & mask; tree->cells[at].idx != ESP_TREE_NIL; at = (at + 1) & mask) {
        uint32_t home = tree->cells[at].tag & mask;
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            tree->cells[hole] = tree->cells[at];
            hole = at;
        }
    }
    tree->cells[hole].idx = ESP_TREE_NIL;
}
