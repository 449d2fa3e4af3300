/* Questions of the scheduler, answered without taking anything: what a lease would cost, what stands in which class.
 * Thread: the engine's.
 */
#include <assert.h>

#include "radix/internal.h"

uint32_t esp_tree_unreferenced(const struct esp_tree *tree, struct esp_node_id node, enum esp_evict_class *ret_class)
{
    uint32_t n = 0;
    assert(esp_tree_node_alive(tree, node));
    const struct esp_tree_node *last = &tree->nodes[node.v];
    *ret_class = last->shared && last->class > ESP_CLASS_NORMAL ? ESP_CLASS_NORMAL : (enum esp_evict_class)last->class;
    /* References are closed upward: above a referenced node all are. */
    for (uint32_t idx = node.v; idx != ESP_TREE_NIL && tree->nodes[idx].refs == 0; idx = tree->nodes[idx].parent) {
        n++;
    }
    return n;
}

uint32_t esp_tree_available_below(const struct esp_tree *tree, enum esp_evict_class class)
{
    uint32_t n = tree->lists[ESP_TREE_LIST_FREE].n;
    for (int below = 0; below < (int)class; below++) {
        n += tree->lists[below].n;
    }
    return n;
}
