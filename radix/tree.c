/* Life of nodes: creation, leases, entering and leaving the tree, pending pages.
 *
 * A lease on a node counts one reference on it and on each ancestor, so parent refs ≥ sum of the
 * children's. A pending node has references; without any it leaves
 * at once. Below a pending node nothing is cached. Thread: the engine's. Allocates in create only.
 */
#include <assert.h>
#include <string.h>

#include "radix/internal.h"
#include "runtime/base/alloc.h"

static uint32_t n_cells_for(uint32_t n_pages)
{
    uint32_t n = 16;
    while (n < 2 * n_pages) {
        n *= 2;
    }
    return n;
}

static struct esp_tree_hash mask_of(unsigned bits)
{
    struct esp_tree_hash mask = {UINT64_MAX, UINT64_MAX};
    if (bits <= 64) {
        mask.high = 0;
        mask.low >>= 64 - bits;
    } else {
        mask.high >>= 128 - bits;
    }
    return mask;
}

/* The table and the index are mapped, not taken from the heap: lookups jump about in them, which huge
 * pages make cheaper. */
static size_t node_bytes(uint32_t n_pages)
{
    return (size_t)n_pages * sizeof(struct esp_tree_node);
}

static size_t cell_bytes(uint32_t n_pages)
{
    return (size_t)n_cells_for(n_pages) * sizeof(struct esp_tree_cell);
}

size_t esp_tree_bytes(uint32_t n_pages)
{
    return sizeof(struct esp_tree) + node_bytes(n_pages) + cell_bytes(n_pages) +
           ESP_TREE_NAMESPACES_MAX * sizeof(struct esp_tree_ns) + ESP_TREE_NS_BUCKETS * sizeof(uint32_t) +
           ESP_TREE_PINS_MAX * sizeof(struct esp_tree_pin) +
           esp_tree_ghosts_for(n_pages) * sizeof(struct esp_tree_ghost);
}

static size_t ghost_bytes(const struct esp_tree *tree)
{
    return ((size_t)tree->ghost_mask + 1) * sizeof(struct esp_tree_ghost);
}

static void fill_pool(struct esp_tree *tree)
{
    for (uint32_t idx = tree->n_pages; idx-- > 0;) {
        tree->nodes[idx].list = ESP_TREE_LIST_NONE;
        esp_tree_list_add(tree, ESP_TREE_LIST_FREE, idx);
    }
    tree->n_in_state[ESP_PAGE_FREE] = tree->n_pages;
}

esp_status esp_tree_create(const struct esp_tree_config *config, struct esp_tree **ret_tree, struct esp_err *err)
{
    if (config->n_pages == 0 || config->n_pages > ESP_TREE_PAGES_MAX) {
        return esp_fail(err, ESP_EINVAL, "%u pages: a tree has 1 to %u", config->n_pages, ESP_TREE_PAGES_MAX);
    }
    if (config->hash_bits == 0 || config->hash_bits > 128) {
        return esp_fail(err, ESP_EINVAL, "%u hash bits: 1 to 128 are possible", config->hash_bits);
    }
    struct esp_tree *tree = esp_calloc(ESP_TAG_TREE, 1, sizeof *tree);
    if (tree == NULL) {
        goto fail;
    }
    tree->n_pages = config->n_pages;
    tree->cell_mask = n_cells_for(config->n_pages) - 1;
    tree->seed = config->seed;
    tree->hash_mask = mask_of(config->hash_bits);
    tree->n_pin_pages_max = config->n_pin_pages_max;
    tree->nodes = esp_pages_map(ESP_TAG_TREE, node_bytes(config->n_pages));
    tree->cells = esp_pages_map(ESP_TAG_TREE, cell_bytes(config->n_pages));
    tree->spaces = esp_calloc(ESP_TAG_TREE, ESP_TREE_NAMESPACES_MAX, sizeof *tree->spaces);
    tree->space_buckets = esp_calloc(ESP_TAG_TREE, ESP_TREE_NS_BUCKETS, sizeof *tree->space_buckets);
    tree->ghost_mask = esp_tree_ghosts_for(config->n_pages) - 1;
    tree->ghosts = esp_pages_map(ESP_TAG_TREE, ghost_bytes(tree));
    tree->pins = esp_calloc(ESP_TAG_TREE, ESP_TREE_PINS_MAX, sizeof *tree->pins);
    if (tree->nodes == NULL || tree->cells == NULL || tree->spaces == NULL || tree->space_buckets == NULL ||
        tree->pins == NULL || tree->ghosts == NULL) {
        goto fail;
    }
    esp_tree_pins_init(tree);
    memset(tree->cells, 0xff, cell_bytes(config->n_pages));
    memset(tree->space_buckets, 0xff, ESP_TREE_NS_BUCKETS * sizeof *tree->space_buckets);
    for (int list = 0; list < ESP_TREE_LISTS; list++) {
        tree->lists[list] = (struct esp_tree_list){ESP_TREE_NIL, ESP_TREE_NIL, 0};
    }
    fill_pool(tree);
    *ret_tree = tree;
    return ESP_OK;
fail:
    esp_tree_destroy(tree);
    return esp_fail(err, ESP_ENOMEM, "out of memory for a tree of %u pages", config->n_pages);
}

void esp_tree_destroy(struct esp_tree *tree)
{
    if (tree == NULL) {
        return;
    }
    esp_tree_ns_finish(tree);
    esp_free(tree->pins);
    esp_free(tree->space_buckets);
    esp_free(tree->spaces);
    esp_pages_unmap(ESP_TAG_TREE, tree->ghosts, ghost_bytes(tree));
    esp_pages_unmap(ESP_TAG_TREE, tree->cells, cell_bytes(tree->n_pages));
    esp_pages_unmap(ESP_TAG_TREE, tree->nodes, node_bytes(tree->n_pages));
    esp_free(tree);
}

bool esp_tree_node_alive(const struct esp_tree *tree, struct esp_node_id node)
{
    if (node.v >= tree->n_pages || tree->nodes[node.v].generation != node.generation) {
        return false;
    }
    return tree->nodes[node.v].state == ESP_PAGE_PENDING || tree->nodes[node.v].state == ESP_PAGE_CACHED;
}

static struct esp_tree_node *node_of(const struct esp_tree *tree, struct esp_node_id node)
{
    assert(esp_tree_node_alive(tree, node));
    return &tree->nodes[node.v];
}

enum esp_page_state esp_tree_node_state(const struct esp_tree *tree, struct esp_node_id node)
{
    return (enum esp_page_state)node_of(tree, node)->state;
}

struct esp_page_id esp_tree_node_page(const struct esp_tree *tree, struct esp_node_id node)
{
    assert(esp_tree_node_alive(tree, node));
    return (struct esp_page_id){node.v};
}

struct esp_node_id esp_tree_page_node(const struct esp_tree *tree, struct esp_page_id page)
{
    struct esp_node_id node = esp_tree_id(tree, page.v);
    assert(esp_tree_node_alive(tree, node));
    return node;
}

struct esp_node_id esp_tree_node_parent(const struct esp_tree *tree, struct esp_node_id node)
{
    return esp_tree_id(tree, node_of(tree, node)->parent);
}

uint32_t esp_tree_path(const struct esp_tree *tree, struct esp_node_id node, uint32_t n_max,
                       struct esp_page_id *ret_pages, uint32_t *ret_tokens)
{
    uint32_t n = node_of(tree, node)->depth;
    for (uint32_t idx = node.v; idx != ESP_TREE_NIL; idx = tree->nodes[idx].parent) {
        const struct esp_tree_node *at = &tree->nodes[idx];
        if (at->depth <= n_max) {
            ret_pages[at->depth - 1].v = idx;
            memcpy(ret_tokens + (size_t)(at->depth - 1) * ESP_TREE_PAGE_TOKENS, at->tokens, sizeof at->tokens);
        }
    }
    return n < n_max ? n : n_max;
}

bool esp_tree_is_saved(const struct esp_tree *tree, struct esp_page_id page)
{
    return tree->nodes[esp_tree_page_node(tree, page).v].saved;
}

void esp_tree_set_saved(struct esp_tree *tree, struct esp_page_id page)
{
    tree->nodes[esp_tree_page_node(tree, page).v].saved = true;
}

static void ref_add(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    if (node->refs++ == 0) {
        tree->n_referenced++;
        esp_tree_evictable_remove(tree, idx);
        node->class_before = node->class;
        node->class = ESP_CLASS_TAIL;
    }
    if (node->pin != 0) {
        esp_tree_pin_used(tree, idx);
    }
    esp_tree_touch(tree, idx);
}

void esp_tree_lease(struct esp_tree *tree, struct esp_node_id node, struct esp_page_id *ret_pages)
{
    esp_tree_lease_down(tree, ESP_NODE_NONE, node, ret_pages);
}

/* The nodes above `from` have the lease's reference already, and being referenced they stand on no list that a
 * touched child could get ahead in. */
void esp_tree_lease_down(struct esp_tree *tree, struct esp_node_id from, struct esp_node_id node,
                         struct esp_page_id *ret_pages)
{
    uint32_t depth = node_of(tree, node)->depth;
    for (uint32_t idx = node.v; idx != from.v; idx = tree->nodes[idx].parent) {
        assert(idx != ESP_TREE_NIL);
        ref_add(tree, idx);
        if (ret_pages != NULL) {
            ret_pages[--depth].v = idx;
        }
    }
}

static void release(struct esp_tree *tree, struct esp_node_id node, enum esp_evict_class class, bool unchanged)
{
    assert(esp_tree_node_alive(tree, node) && class < ESP_CLASS_PINNED);
    uint32_t parent;
    for (uint32_t idx = node.v; idx != ESP_TREE_NIL; idx = parent) {
        struct esp_tree_node *at = &tree->nodes[idx];
        parent = at->parent;
        assert(at->refs > 0);
        uint8_t least = unchanged && at->refs == 1 ? at->class_before : (uint8_t)class;
        if (at->class < least) {
            at->class = least;
        }
        esp_tree_touch(tree, idx);
        if (--at->refs == 0) {
            tree->n_referenced--;
            if (at->state == ESP_PAGE_PENDING) {
                esp_tree_leave(tree, idx);
            } else {
                esp_tree_evictable_add(tree, idx);
            }
        }
    }
}

void esp_tree_release(struct esp_tree *tree, struct esp_node_id node, enum esp_evict_class class)
{
    release(tree, node, class, false);
}

void esp_tree_release_unchanged(struct esp_tree *tree, struct esp_node_id node)
{
    release(tree, node, ESP_CLASS_TAIL, true);
}

static uint32_t *child_head_of(struct esp_tree *tree, uint32_t ns, uint32_t parent)
{
    return parent == ESP_TREE_NIL ? &tree->spaces[ns].child_head : &tree->nodes[parent].child_head;
}

/* Links a private page into the tree as a node with one reference. */
static void enter(struct esp_tree *tree, uint32_t ns, uint32_t parent, struct esp_tree_hash hash, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    uint32_t *head = child_head_of(tree, ns, parent);
    node->hash = hash;
    esp_tree_index_add(tree, idx);
    node->ns = ns;
    node->parent = parent;
    node->depth = 1;
    node->child_head = ESP_TREE_NIL;
    node->sibling_prev = ESP_TREE_NIL;
    node->sibling_next = *head;
    if (*head != ESP_TREE_NIL) {
        tree->nodes[*head].sibling_prev = idx;
    }
    *head = idx;
    if (parent != ESP_TREE_NIL) {
        tree->nodes[parent].n_children++;
        node->depth = tree->nodes[parent].depth + 1;
    }
    tree->spaces[ns].n_nodes++;
    node->class = ESP_CLASS_TAIL;
    node->class_before = ESP_CLASS_TAIL;
    node->session = ESP_TREE_SESSION_NONE;
    node->shared = false;
    node->turn_end = false;
    node->saved = false;
    node->ahead = ESP_TREE_NIL;
    node->refs = 1;
    tree->n_referenced++;
    esp_tree_touch(tree, idx);
}

void esp_tree_leave(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    assert(node->refs == 0 && node->pins == 0 && node->child_head == ESP_TREE_NIL && node->list == ESP_TREE_LIST_NONE);
    esp_tree_index_remove(tree, idx);
    if (node->sibling_prev == ESP_TREE_NIL) {
        *child_head_of(tree, node->ns, node->parent) = node->sibling_next;
    } else {
        tree->nodes[node->sibling_prev].sibling_next = node->sibling_next;
    }
    if (node->sibling_next != ESP_TREE_NIL) {
        tree->nodes[node->sibling_next].sibling_prev = node->sibling_prev;
    }
    if (node->parent != ESP_TREE_NIL) {
        tree->nodes[node->parent].n_children--;
    }
    tree->spaces[node->ns].n_nodes--;
    node->generation++;
    esp_tree_page_free(tree, idx);
}

esp_status esp_tree_insert(struct esp_tree *tree, struct esp_ns_id ns, struct esp_node_id parent,
                           const uint32_t tokens[ESP_TREE_PAGE_TOKENS], struct esp_page_id page,
                           enum esp_page_state state, struct esp_node_id *ret_node, bool *ret_existed)
{
    assert(state == ESP_PAGE_PENDING || state == ESP_PAGE_CACHED);
    assert(page.v < tree->n_pages && tree->nodes[page.v].state == ESP_PAGE_PRIVATE);
    const struct esp_tree_ns *space = esp_tree_ns_slot(tree, ns);
    if (space == NULL) {
        return ESP_ESTATE;
    }
    uint32_t slot = (uint32_t)(space - tree->spaces);
    struct esp_tree_hash hash = space->hash;
    if (parent.v != ESP_TREE_NIL) {
        const struct esp_tree_node *above = node_of(tree, parent);
        assert(above->ns == slot && above->refs > 0);
        assert(state == ESP_PAGE_PENDING || above->state == ESP_PAGE_CACHED);
        hash = above->hash;
    }
    hash = esp_tree_hash_page(tree, hash, tokens);
    uint32_t found = esp_tree_find_child(tree, slot, parent.v, hash, tokens, &tree->hash_rejected_total);
    *ret_existed = found != ESP_TREE_NIL;
    if (found != ESP_TREE_NIL) {
        ref_add(tree, found);
        *ret_node = esp_tree_id(tree, found);
        return ESP_OK;
    }
    memcpy(tree->nodes[page.v].tokens, tokens, sizeof tree->nodes[page.v].tokens);
    esp_tree_page_set(tree, page.v, state);
    enter(tree, slot, parent.v, hash, page.v);
    *ret_node = esp_tree_id(tree, page.v);
    return ESP_OK;
}

void esp_tree_publish(struct esp_tree *tree, struct esp_node_id node)
{
    struct esp_tree_node *at = node_of(tree, node);
    assert(at->state == ESP_PAGE_PENDING);
    assert(at->parent == ESP_TREE_NIL || tree->nodes[at->parent].state == ESP_PAGE_CACHED);
    esp_tree_page_set(tree, node.v, ESP_PAGE_CACHED);
}

static void view_of(const struct esp_tree *tree, uint32_t idx, struct esp_node_view *ret_view)
{
    const struct esp_tree_node *node = &tree->nodes[idx];
    *ret_view = (struct esp_node_view){
        .id = esp_tree_id(tree, idx),
        .parent = esp_tree_id(tree, node->parent),
        .ns = esp_tree_ns_id(tree, node->ns),
        .tokens = node->tokens,
        .page = {idx},
        .refs = node->refs,
        .depth = node->depth,
        .n_children = node->n_children,
        .class = (enum esp_evict_class)esp_tree_class_in_force(node),
        .state = (enum esp_page_state)node->state,
        .age_ns = tree->now_ns - node->used_ns,
    };
}

/* The node after idx, depth first, within its namespace. */
static uint32_t next_of(const struct esp_tree *tree, uint32_t idx)
{
    if (tree->nodes[idx].child_head != ESP_TREE_NIL) {
        return tree->nodes[idx].child_head;
    }
    while (idx != ESP_TREE_NIL && tree->nodes[idx].sibling_next == ESP_TREE_NIL) {
        idx = tree->nodes[idx].parent;
    }
    return idx == ESP_TREE_NIL ? ESP_TREE_NIL : tree->nodes[idx].sibling_next;
}

void esp_tree_visit(const struct esp_tree *tree, bool (*visit)(void *ctx, const struct esp_node_view *node),
                    void *ctx)
{
    for (uint32_t slot = 0; slot < tree->n_spaces; slot++) {
        for (uint32_t idx = tree->spaces[slot].child_head; idx != ESP_TREE_NIL; idx = next_of(tree, idx)) {
            struct esp_node_view view;
            view_of(tree, idx, &view);
            if (!visit(ctx, &view)) {
                return;
            }
        }
    }
}
