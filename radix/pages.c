/* The page pool: states, counts, the free list, private pages.
 *
 * Invariant: n_in_state counts every page once; a page is on the free list exactly when its state is
 * free. Pages are handed out last freed first, since their KV is most likely still in a CPU cache.
 * Thread: the engine's. Does not choose whom to evict; evict.c does.
 */
#include <assert.h>

#include "radix/internal.h"

const char *esp_page_state_name(enum esp_page_state state)
{
    static const char *const names[ESP_PAGE_STATES] = {"free", "private", "pending", "cached"};
    assert(state < ESP_PAGE_STATES);
    return names[state];
}

void esp_tree_list_add(struct esp_tree *tree, uint8_t list, uint32_t idx)
{
    struct esp_tree_list *at = &tree->lists[list];
    struct esp_tree_node *node = &tree->nodes[idx];
    assert(node->list == ESP_TREE_LIST_NONE);
    node->list = list;
    node->list_prev = at->tail;
    node->list_next = ESP_TREE_NIL;
    if (at->tail == ESP_TREE_NIL) {
        at->head = idx;
    } else {
        tree->nodes[at->tail].list_next = idx;
    }
    at->tail = idx;
    at->n++;
}

void esp_tree_list_remove(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    assert(node->list < ESP_TREE_LISTS);
    struct esp_tree_list *at = &tree->lists[node->list];
    if (node->list_prev == ESP_TREE_NIL) {
        at->head = node->list_next;
    } else {
        tree->nodes[node->list_prev].list_next = node->list_next;
    }
    if (node->list_next == ESP_TREE_NIL) {
        at->tail = node->list_prev;
    } else {
        tree->nodes[node->list_next].list_prev = node->list_prev;
    }
    at->n--;
    node->list = ESP_TREE_LIST_NONE;
}

void esp_tree_page_set(struct esp_tree *tree, uint32_t idx, enum esp_page_state state)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    tree->n_in_state[node->state]--;
    tree->n_in_state[state]++;
    node->state = (uint8_t)state;
}

void esp_tree_page_free(struct esp_tree *tree, uint32_t idx)
{
    esp_tree_page_set(tree, idx, ESP_PAGE_FREE);
    esp_tree_list_add(tree, ESP_TREE_LIST_FREE, idx);
}

uint32_t esp_tree_available(const struct esp_tree *tree)
{
    uint32_t n = tree->lists[ESP_TREE_LIST_FREE].n;
    for (int class = 0; class < ESP_CLASS_PINNED; class++) {
        n += tree->lists[class].n;
    }
    return n;
}

esp_status esp_tree_alloc(struct esp_tree *tree, uint32_t n, struct esp_page_id *ret_pages)
{
    if (n > esp_tree_available(tree)) {
        return ESP_EBUSY;
    }
    struct esp_tree_list *free_list = &tree->lists[ESP_TREE_LIST_FREE];
    if (n > free_list->n) {
        esp_tree_evict(tree, n - free_list->n);
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        uint32_t page = free_list->tail;
        esp_tree_list_remove(tree, page);
        esp_tree_page_set(tree, page, ESP_PAGE_PRIVATE);
        ret_pages[idx].v = page;
    }
    return ESP_OK;
}

void esp_tree_free_private(struct esp_tree *tree, const struct esp_page_id *pages, uint32_t n)
{
    for (uint32_t idx = 0; idx < n; idx++) {
        assert(pages[idx].v < tree->n_pages);
        assert(tree->nodes[pages[idx].v].state == ESP_PAGE_PRIVATE);
        esp_tree_page_free(tree, pages[idx].v);
    }
}

void esp_tree_get_stats(const struct esp_tree *tree, struct esp_tree_stats *ret_stats)
{
    *ret_stats = (struct esp_tree_stats){
        .n_pages = tree->n_pages,
        .leased = tree->n_referenced + tree->n_in_state[ESP_PAGE_PRIVATE],
        .pinned = tree->n_pinned,
        .n_pins = tree->n_pins,
        .evicted_total = tree->evicted_total,
        .hash_rejected_total = tree->hash_rejected_total,
    };
    for (int state = 0; state < ESP_PAGE_STATES; state++) {
        ret_stats->pages[state] = tree->n_in_state[state];
    }
}
