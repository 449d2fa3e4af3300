/* The walker: every invariant of the pool and the tree, from the table itself.
 *
 * It believes no counter and no link: each page is looked at on its own (its state, its place in the
 * index, among its siblings, under its parent), then each list from head to tail, then the totals are
 * compared. Loops are bounded by n_pages, so that a broken link gives a reason and not an endless walk.
 * Allocates nothing, changes nothing. Thread: the engine's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "radix/internal.h"

struct walk {
    const struct esp_tree *tree;
    char *reason;
    size_t reason_bytes;
    uint32_t n_in_state[ESP_PAGE_STATES];
    uint32_t n_nodes, n_linked; /* in the tree by state; reached as somebody's child */
    uint32_t n_referenced;
    uint32_t n_on_list[ESP_TREE_LISTS]; /* by what the nodes say */
    uint64_t n_in_spaces;               /* by what the namespaces say */
    uint32_t n_pinned, n_pin_ends;      /* nodes under a pin, and those where one ends */
};

__attribute__((format(printf, 2, 3))) static bool broken(const struct walk *walk, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(walk->reason, walk->reason_bytes, fmt, args);
    va_end(args);
    return false;
}

static bool is_node(const struct esp_tree *tree, uint32_t idx)
{
    return idx < tree->n_pages &&
           (tree->nodes[idx].state == ESP_PAGE_PENDING || tree->nodes[idx].state == ESP_PAGE_CACHED);
}

/* Which list a page must be on, from its state alone. */
static uint8_t list_wanted(const struct esp_tree_node *node)
{
    if (node->state == ESP_PAGE_FREE) {
        return ESP_TREE_LIST_FREE;
    }
    bool is_evictable = node->state == ESP_PAGE_CACHED && node->refs == 0;
    return is_evictable ? esp_tree_class_in_force(node) : ESP_TREE_LIST_NONE;
}

static bool check_state(const struct walk *walk, uint32_t idx)
{
    const struct esp_tree_node *node = &walk->tree->nodes[idx];
    if (node->state >= ESP_PAGE_STATES) {
        return broken(walk, "page %u: state %u does not exist", idx, node->state);
    }
    if (node->class >= ESP_CLASSES) {
        return broken(walk, "page %u: class %u does not exist", idx, node->class);
    }
    if (node->list != list_wanted(node)) {
        return broken(walk, "page %u: on list %u, belongs on %u", idx, node->list, list_wanted(node));
    }
    if (!is_node(walk->tree, idx)) {
        return (node->refs == 0 && node->n_children == 0 && node->pins == 0) ||
               broken(walk, "page %u: %s, yet with references or children", idx,
                      esp_page_state_name((enum esp_page_state)node->state));
    }
    if (node->state == ESP_PAGE_PENDING && node->refs == 0) {
        return broken(walk, "node %u: pending without references", idx);
    }
    return true;
}

/* Upward: namespace, parent, depth, hash, states. */
static bool check_place(const struct walk *walk, uint32_t idx)
{
    const struct esp_tree *tree = walk->tree;
    const struct esp_tree_node *node = &tree->nodes[idx];
    if (node->ns >= tree->n_spaces) {
        return broken(walk, "node %u: namespace slot %u is not in use", idx, node->ns);
    }
    struct esp_tree_hash hash = tree->spaces[node->ns].hash;
    uint32_t depth = 0;
    if (node->parent != ESP_TREE_NIL) {
        if (!is_node(tree, node->parent)) {
            return broken(walk, "node %u: parent %u is not in the tree", idx, node->parent);
        }
        const struct esp_tree_node *parent = &tree->nodes[node->parent];
        if (parent->ns != node->ns) {
            return broken(walk, "node %u: parent %u is of another namespace", idx, node->parent);
        }
        if (parent->state == ESP_PAGE_PENDING && node->state == ESP_PAGE_CACHED) {
            return broken(walk, "node %u: cached below pending %u", idx, node->parent);
        }
        hash = parent->hash;
        depth = parent->depth;
    }
    if (node->depth != depth + 1) {
        return broken(walk, "node %u: depth %u below depth %u", idx, node->depth, depth);
    }
    hash = esp_tree_hash_page(tree, hash, node->tokens);
    if (hash.low != node->hash.low || hash.high != node->hash.high) {
        return broken(walk, "node %u: hash is not that of its path", idx);
    }
    uint64_t n_rejected = 0;
    uint32_t found = esp_tree_find_child(tree, node->ns, node->parent, hash, node->tokens, &n_rejected);
    if (found == ESP_TREE_NIL) {
        return broken(walk, "node %u: not found by its hash", idx);
    }
    return found == idx || broken(walk, "node %u: sibling %u holds the same tokens", idx, found);
}

struct below { /* what a list of children adds up to */
    uint32_t n;
    uint32_t n_on_list[ESP_CLASSES];
    uint64_t refs;
    uint32_t pins;
    bool shared, used; /* some child by two sessions; by any */
};

/* The children of a node, or of a namespace's root (parent NIL): links both ways, order of last use. */
static bool check_children(struct walk *walk, uint32_t ns, uint32_t parent, uint32_t head, struct below *below)
{
    const struct esp_tree *tree = walk->tree;
    uint32_t prev = ESP_TREE_NIL;
    for (uint32_t idx = head; idx != ESP_TREE_NIL; prev = idx, idx = tree->nodes[idx].sibling_next) {
        if (!is_node(tree, idx)) {
            return broken(walk, "child %u of %u: not in the tree", idx, parent);
        }
        const struct esp_tree_node *node = &tree->nodes[idx];
        if (node->parent != parent || node->ns != ns) {
            return broken(walk, "child %u of %u: has another parent", idx, parent);
        }
        if (node->sibling_prev != prev) {
            return broken(walk, "child %u of %u: sibling link back is wrong", idx, parent);
        }
        if (prev != ESP_TREE_NIL && tree->nodes[prev].use_seq <= node->use_seq) {
            return broken(walk, "child %u of %u: siblings out of order of last use", idx, parent);
        }
        below->n++;
        below->refs += node->refs;
        below->pins += node->pins;
        below->shared = below->shared || node->shared;
        below->used = below->used || node->session != ESP_TREE_SESSION_NONE;
        if (node->list < ESP_CLASSES) {
            below->n_on_list[node->list]++;
        }
        if (++walk->n_linked > tree->n_pages) {
            return broken(walk, "child %u of %u: children run in a circle", idx, parent);
        }
    }
    return true;
}

static bool check_pin(struct walk *walk, uint32_t idx, const struct below *below)
{
    const struct esp_tree *tree = walk->tree;
    const struct esp_tree_node *node = &tree->nodes[idx];
    if (node->pin > ESP_TREE_PINS_MAX || (node->pin != 0 && tree->pins[node->pin - 1].node != idx)) {
        return broken(walk, "node %u: its pin %u is not its own", idx, node->pin);
    }
    if (node->pins != below->pins + (node->pin != 0)) {
        return broken(walk, "node %u: %u pins, own and children's are %u", idx, node->pins,
                      below->pins + (node->pin != 0));
    }
    if (node->pins > 0 && node->state != ESP_PAGE_CACHED) {
        return broken(walk, "node %u: pinned and not written", idx);
    }
    walk->n_pinned += node->pins > 0;
    walk->n_pin_ends += node->pin != 0;
    return true;
}

static bool check_below(struct walk *walk, uint32_t idx)
{
    const struct esp_tree_node *node = &walk->tree->nodes[idx];
    struct below below = {0};
    if (!check_children(walk, node->ns, idx, node->child_head, &below)) {
        return false;
    }
    if (below.n != node->n_children) {
        return broken(walk, "node %u: %u children, counted %u", idx, node->n_children, below.n);
    }
    if (memcmp(below.n_on_list, node->n_children_in, sizeof below.n_on_list) != 0) {
        return broken(walk, "node %u: children per class miscounted", idx);
    }
    if ((below.shared && !node->shared) || ((below.used || node->shared) && node->session == ESP_TREE_SESSION_NONE)) {
        return broken(walk, "node %u: used by fewer sessions than what is below it", idx);
    }
    if (!check_pin(walk, idx, &below)) {
        return false;
    }
    return below.refs <= node->refs ||
           broken(walk, "node %u: %u references, its children have %llu", idx, node->refs,
                  (unsigned long long)below.refs);
}

/* First what a page says by itself, then its place, then what hangs below: the reason given is then
 * nearest to the fault. */
static bool check_pages(struct walk *walk)
{
    const struct esp_tree *tree = walk->tree;
    for (uint32_t idx = 0; idx < tree->n_pages; idx++) {
        if (!check_state(walk, idx)) {
            return false;
        }
        const struct esp_tree_node *node = &tree->nodes[idx];
        walk->n_in_state[node->state]++;
        if (node->list < ESP_TREE_LISTS) {
            walk->n_on_list[node->list]++;
        }
        walk->n_nodes += is_node(tree, idx);
        walk->n_referenced += is_node(tree, idx) && node->refs > 0;
    }
    for (uint32_t idx = 0; idx < tree->n_pages; idx++) {
        if (is_node(tree, idx) && !check_place(walk, idx)) {
            return false;
        }
    }
    for (uint32_t idx = 0; idx < tree->n_pages; idx++) {
        if (is_node(tree, idx) && !check_below(walk, idx)) {
            return false;
        }
    }
    return true;
}

/* Links both ways make each entry distinct; the count makes the list complete. */
static bool check_list(const struct walk *walk, uint8_t list)
{
    const struct esp_tree *tree = walk->tree;
    uint32_t n = 0, prev = ESP_TREE_NIL;
    for (uint32_t idx = tree->lists[list].head; idx != ESP_TREE_NIL; prev = idx, idx = tree->nodes[idx].list_next) {
        if (idx >= tree->n_pages || tree->nodes[idx].list != list) {
            return broken(walk, "list %u: page %u is of another list", list, idx);
        }
        const struct esp_tree_node *node = &tree->nodes[idx];
        if (node->list_prev != prev) {
            return broken(walk, "list %u: link back of page %u is wrong", list, idx);
        }
        if (list < ESP_CLASSES && prev != ESP_TREE_NIL && tree->nodes[prev].use_seq >= node->use_seq) {
            return broken(walk, "list %u: page %u out of order of last use", list, idx);
        }
        if (list < ESP_CLASSES && node->parent != ESP_TREE_NIL &&
            tree->nodes[node->parent].use_seq <= node->use_seq) {
            return broken(walk, "list %u: page %u used after its parent", list, idx);
        }
        n++;
    }
    if (tree->lists[list].tail != prev) {
        return broken(walk, "list %u: wrong tail", list);
    }
    return (n == tree->lists[list].n && n == walk->n_on_list[list]) ||
           broken(walk, "list %u: holds %u, says %u, nodes say %u", list, n, tree->lists[list].n,
                  walk->n_on_list[list]);
}

static bool check_space(struct walk *walk, uint32_t slot)
{
    const struct esp_tree_ns *space = &walk->tree->spaces[slot];
    struct esp_tree_hash hash = esp_tree_hash_bytes(walk->tree, space->bytes, space->n_bytes);
    if (hash.low != space->hash.low || hash.high != space->hash.high) {
        return broken(walk, "namespace slot %u: hash is not that of its bytes", slot);
    }
    uint32_t found = esp_tree_ns_find(walk->tree, space->bytes, space->n_bytes, space->hash);
    if (found != slot) {
        return broken(walk, "namespace slot %u: its bytes lead elsewhere", slot);
    }
    struct below below = {0};
    if (!check_children(walk, slot, ESP_TREE_NIL, space->child_head, &below)) {
        return false;
    }
    walk->n_in_spaces += space->n_nodes;
    return (space->n_nodes == 0) == (below.n == 0) ||
           broken(walk, "namespace slot %u: says %u nodes, its root has %u children", slot, space->n_nodes, below.n);
}

/* Comes first: what follows looks nodes up, which ends at an empty cell. Every entry is a node under its
 * own tag; with check_place this makes entries and nodes the same set. */
static bool check_index(const struct walk *walk)
{
    const struct esp_tree *tree = walk->tree;
    uint32_t n_entries = 0, n_nodes = 0;
    for (uint32_t at = 0; at <= tree->cell_mask; at++) {
        uint32_t idx = tree->cells[at].idx;
        if (idx == ESP_TREE_NIL) {
            continue;
        }
        if (!is_node(tree, idx)) {
            return broken(walk, "cell %u: page %u is not in the tree", at, idx);
        }
        if (tree->cells[at].tag != (uint32_t)tree->nodes[idx].hash.low) {
            return broken(walk, "cell %u: not the tag of node %u", at, idx);
        }
        n_entries++;
    }
    for (uint32_t idx = 0; idx < tree->n_pages; idx++) {
        n_nodes += is_node(tree, idx);
    }
    return n_entries == n_nodes || broken(walk, "%u entries in the index for %u nodes", n_entries, n_nodes);
}

/* Each namespace is in the chain of its bucket, once, and chains end. */
static bool check_space_buckets(const struct walk *walk)
{
    const struct esp_tree *tree = walk->tree;
    for (uint32_t slot = 0; slot < tree->n_spaces; slot++) {
        uint32_t bucket = tree->spaces[slot].hash.low & (ESP_TREE_NS_BUCKETS - 1), n = 0, n_found = 0;
        for (uint32_t at = tree->space_buckets[bucket]; at != ESP_TREE_NIL; at = tree->spaces[at].bucket_next) {
            if (at >= tree->n_spaces || ++n > tree->n_spaces) {
                return broken(walk, "namespace bucket %u: wrong chain at slot %u", bucket, at);
            }
            n_found += at == slot;
        }
        if (n_found != 1) {
            return broken(walk, "namespace slot %u: %u times in its bucket", slot, n_found);
        }
    }
    return true;
}

static bool check_totals(const struct walk *walk)
{
    const struct esp_tree *tree = walk->tree;
    for (int state = 0; state < ESP_PAGE_STATES; state++) {
        if (walk->n_in_state[state] != tree->n_in_state[state]) {
            return broken(walk, "%u pages are %s, counted %u", walk->n_in_state[state],
                          esp_page_state_name((enum esp_page_state)state), tree->n_in_state[state]);
        }
    }
    if (walk->n_referenced != tree->n_referenced) {
        return broken(walk, "%u nodes are referenced, counted %u", walk->n_referenced, tree->n_referenced);
    }
    if (walk->n_pinned != tree->n_pinned || walk->n_pin_ends != tree->n_pins) {
        return broken(walk, "%u nodes under %u pins, counted %u under %u", walk->n_pinned, walk->n_pin_ends,
                      tree->n_pinned, tree->n_pins);
    }
    if ((uint64_t)tree->n_pinned + tree->n_pin_reserved > tree->n_pin_pages_max) {
        return broken(walk, "%u pages pinned and %u promised, the budget is %u", tree->n_pinned, tree->n_pin_reserved,
                      tree->n_pin_pages_max);
    }
    if (walk->n_in_spaces != walk->n_nodes) {
        return broken(walk, "%u nodes, namespaces count %llu", walk->n_nodes, (unsigned long long)walk->n_in_spaces);
    }
    return walk->n_linked == walk->n_nodes ||
           broken(walk, "%u nodes, but %u are somebody's child", walk->n_nodes, walk->n_linked);
}

bool esp_tree_check(const struct esp_tree *tree, char *ret_reason, size_t reason_bytes)
{
    struct walk walk = {.tree = tree, .reason = ret_reason, .reason_bytes = reason_bytes};
    if (!check_index(&walk) || !check_space_buckets(&walk) || !check_pages(&walk)) {
        return false;
    }
    for (uint32_t slot = 0; slot < tree->n_spaces; slot++) {
        if (!check_space(&walk, slot)) {
            return false;
        }
    }
    for (uint8_t list = 0; list < ESP_TREE_LISTS; list++) {
        if (!check_list(&walk, list)) {
            return false;
        }
    }
    return check_totals(&walk);
}
