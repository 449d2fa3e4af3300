/* Who goes first: last uses, the class lists, eviction.
 *
 *   lists[TAIL]     oldest ─► … ─► newest      every unreferenced node is on one list; a child stands
 *   lists[NORMAL]   oldest ─► … ─► newest      before its parent, and never in a higher class than
 *   lists[RETURN]   oldest ─► … ─► newest      it, so the first head found from above is a leaf;
 *   lists[PINNED]   oldest ─► … ─► newest      from this one nothing is ever taken
 *
 * Evicting a leaf takes constant time. When the leaf kept its parent in a higher class than the parent
 * asks for, the parent moves down now, and so on upward; the lists below are empty at that moment
 * (otherwise the leaf would not have been next), so appending keeps them in order. Each such move was
 * paid for by the release that put the node up. Thread: the engine's. Never evicts a referenced node.
 */
#include <assert.h>

#include "radix/internal.h"

uint8_t esp_tree_class_in_force(const struct esp_tree_node *node)
{
    uint8_t class = ESP_CLASS_PINNED;
    if (node->pins > 0) {
        return class;
    }
    while (class > node->class && node->n_children_in[class] == 0) {
        class--;
    }
    return class;
}

void esp_tree_evictable_add(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    assert(node->state == ESP_PAGE_CACHED && node->refs == 0);
    esp_tree_list_add(tree, esp_tree_class_in_force(node), idx);
    if (node->parent != ESP_TREE_NIL) {
        tree->nodes[node->parent].n_children_in[node->list]++;
    }
}

void esp_tree_evictable_remove(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    assert(node->list < ESP_CLASSES);
    if (node->parent != ESP_TREE_NIL) {
        tree->nodes[node->parent].n_children_in[node->list]--;
    }
    esp_tree_list_remove(tree, idx);
}

/* Moves a node to the front of its siblings, which stand in order of last use. */
static void sibling_to_front(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    if (node->sibling_prev == ESP_TREE_NIL) {
        return;
    }
    uint32_t *head = node->parent == ESP_TREE_NIL ? &tree->spaces[node->ns].child_head
                                                  : &tree->nodes[node->parent].child_head;
    tree->nodes[node->sibling_prev].sibling_next = node->sibling_next;
    if (node->sibling_next != ESP_TREE_NIL) {
        tree->nodes[node->sibling_next].sibling_prev = node->sibling_prev;
    }
    node->sibling_prev = ESP_TREE_NIL;
    node->sibling_next = *head;
    tree->nodes[*head].sibling_prev = idx;
    *head = idx;
}

void esp_tree_touch(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    node->use_seq = ++tree->use_seq;
    node->used_ns = tree->now_ns;
    sibling_to_front(tree, idx);
    if (node->list < ESP_CLASSES) {
        uint8_t list = node->list;
        esp_tree_list_remove(tree, idx);
        esp_tree_list_add(tree, list, idx);
    }
}

/* After a child left: down to the class that is still asked for, and the ancestors with it. */
static void settle(struct esp_tree *tree, uint32_t idx)
{
    while (idx != ESP_TREE_NIL) {
        struct esp_tree_node *node = &tree->nodes[idx];
        if (node->list >= ESP_CLASSES || node->list == esp_tree_class_in_force(node)) {
            return;
        }
        esp_tree_evictable_remove(tree, idx);
        esp_tree_evictable_add(tree, idx);
        idx = node->parent;
    }
}

static void evict_next(struct esp_tree *tree)
{
    int class = 0;
    while (tree->lists[class].n == 0) {
        class++;
        assert(class < ESP_CLASS_PINNED);
    }
    uint32_t idx = tree->lists[class].head;
    uint32_t parent = tree->nodes[idx].parent;
    esp_tree_evictable_remove(tree, idx);
    esp_tree_ghost_add(tree, idx);
    esp_tree_leave(tree, idx);
    settle(tree, parent);
}

void esp_tree_evict(struct esp_tree *tree, uint32_t n)
{
    for (uint32_t idx = 0; idx < n; idx++) {
        evict_next(tree);
    }
    tree->evicted_total += n;
}

uint32_t esp_tree_flush(struct esp_tree *tree)
{
    esp_tree_expire_pins(tree, INT64_MAX);
    uint32_t n = esp_tree_available(tree) - tree->lists[ESP_TREE_LIST_FREE].n;
    for (uint32_t idx = 0; idx < n; idx++) {
        evict_next(tree);
    }
    return n;
}

void esp_tree_set_now(struct esp_tree *tree, int64_t now_ns)
{
    if (now_ns > tree->now_ns) {
        tree->now_ns = now_ns;
        if (now_ns >= tree->pins_due_ns) {
            esp_tree_expire_pins(tree, now_ns);
        }
        esp_tree_expire_returns(tree);
    }
}
