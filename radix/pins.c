/* Pins: paths that stay in the tree until a time.
 *
 *   root ─► a(2) ─► b(2) ─┬─► c(1) ● pin 0            a number is the pins through a node; a node with any
 *                         └─► d(1) ─► e(1) ● pin 1    is of class PINNED, and so are its ancestors
 *
 * Invariants: n_pinned + n_pin_reserved ≤ n_pin_pages_max; a node's pins = its own pin + those of its children.
 * One node has at most one pin; pinning it again keeps the longer time. Thread: the engine's. Expiry walks the
 * table, and only when the earliest time has come.
 */
#include <assert.h>

#include "radix/internal.h"

void esp_tree_pins_init(struct esp_tree *tree)
{
    for (uint32_t at = 0; at < ESP_TREE_PINS_MAX; at++) {
        tree->pins[at].node = ESP_TREE_NIL;
    }
    tree->pins_due_ns = INT64_MAX;
}

uint32_t esp_tree_unpinned(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_pages)
{
    struct esp_match match;
    esp_tree_match(tree, ns, tokens, n_pages * ESP_TREE_PAGE_TOKENS, &match);
    uint32_t idx = match.last.v;
    while (idx != ESP_TREE_NIL && tree->nodes[idx].pins == 0) {
        idx = tree->nodes[idx].parent;
    }
    return n_pages - (idx == ESP_TREE_NIL ? 0 : tree->nodes[idx].depth);
}

static bool has_budget(const struct esp_tree *tree, uint32_t n_pages)
{
    return (uint64_t)tree->n_pinned + tree->n_pin_reserved + n_pages <= tree->n_pin_pages_max;
}

bool esp_tree_pin_reserve(struct esp_tree *tree, uint32_t n_pages)
{
    if (!has_budget(tree, n_pages)) {
        return false;
    }
    tree->n_pin_reserved += n_pages;
    return true;
}

void esp_tree_pin_return(struct esp_tree *tree, uint32_t n_pages)
{
    assert(n_pages <= tree->n_pin_reserved);
    tree->n_pin_reserved -= n_pages;
}

static int64_t later(int64_t now_ns, int64_t ttl_ns)
{
    return ttl_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + ttl_ns;
}

static void start_time(struct esp_tree *tree, struct esp_tree_pin *pin)
{
    pin->until_ns = later(tree->now_ns, pin->ttl_ns);
    tree->pins_due_ns = pin->until_ns < tree->pins_due_ns ? pin->until_ns : tree->pins_due_ns;
}

void esp_tree_pin_used(struct esp_tree *tree, uint32_t idx)
{
    start_time(tree, &tree->pins[tree->nodes[idx].pin - 1]);
}

static uint32_t n_new_on_path(const struct esp_tree *tree, uint32_t idx)
{
    uint32_t n = 0;
    for (; idx != ESP_TREE_NIL && tree->nodes[idx].pins == 0; idx = tree->nodes[idx].parent) {
        n++;
    }
    return n;
}

int64_t esp_tree_pin(struct esp_tree *tree, struct esp_node_id node, int64_t ttl_ns, uint32_t n_reserved)
{
    assert(esp_tree_node_alive(tree, node) && tree->nodes[node.v].refs > 0 && ttl_ns > 0);
    assert(tree->nodes[node.v].state == ESP_PAGE_CACHED);
    esp_tree_pin_return(tree, n_reserved);
    uint32_t at = tree->nodes[node.v].pin;
    if (at != 0) {
        struct esp_tree_pin *pin = &tree->pins[at - 1];
        pin->ttl_ns = ttl_ns > pin->ttl_ns ? ttl_ns : pin->ttl_ns;
        start_time(tree, pin);
        return 0;
    }
    uint32_t n_new = n_new_on_path(tree, node.v);
    if (tree->n_pins == ESP_TREE_PINS_MAX || !has_budget(tree, n_new)) {
        return ESP_EBUSY;
    }
    while (tree->pins[at].node != ESP_TREE_NIL) {
        at++;
    }
    tree->pins[at] = (struct esp_tree_pin){.node = node.v, .ttl_ns = ttl_ns};
    start_time(tree, &tree->pins[at]);
    tree->nodes[node.v].pin = at + 1;
    tree->n_pins++;
    tree->n_pinned += n_new;
    for (uint32_t idx = node.v; idx != ESP_TREE_NIL; idx = tree->nodes[idx].parent) {
        tree->nodes[idx].pins++;
    }
    return n_new;
}

static void unpin(struct esp_tree *tree, struct esp_tree_pin *pin)
{
    tree->nodes[pin->node].pin = 0;
    for (uint32_t idx = pin->node; idx != ESP_TREE_NIL; idx = tree->nodes[idx].parent) {
        struct esp_tree_node *node = &tree->nodes[idx];
        tree->n_pinned -= --node->pins == 0;
        if (node->list == ESP_CLASS_PINNED && esp_tree_class_in_force(node) != ESP_CLASS_PINNED) {
            esp_tree_evictable_remove(tree, idx);
            esp_tree_evictable_add(tree, idx);
        }
        esp_tree_touch(tree, idx); /* the lists stay in order of last use; it was of use until now */
    }
    pin->node = ESP_TREE_NIL;
    tree->n_pins--;
}

void esp_tree_expire_pins(struct esp_tree *tree, int64_t now_ns)
{
    tree->pins_due_ns = INT64_MAX;
    for (uint32_t at = 0; at < ESP_TREE_PINS_MAX && tree->n_pins > 0; at++) {
        struct esp_tree_pin *pin = &tree->pins[at];
        if (pin->node == ESP_TREE_NIL) {
            continue;
        }
        if (pin->until_ns <= now_ns) {
            unpin(tree, pin);
        } else if (pin->until_ns < tree->pins_due_ns) {
            tree->pins_due_ns = pin->until_ns;
        }
    }
}
