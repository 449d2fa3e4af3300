/* The merge loop: a heap of candidate pairs over a linked list of symbols.
 *
 * A symbol knows the order of the pair it makes with its right neighbour. A heap entry is stale when that
 * is no longer the order it was pushed with; if an equal order came back, the entry is as good as the new
 * one. Entries are eight bytes and nodes have four children, so that a million of them stay near the cache.
 * Thread: the owner's. All counts fit 32 bits because pieces are below 4 GiB.
 */
#include "runtime/tokenizer_merge.h"

#include <assert.h>

#include "runtime/base/alloc.h"

#define CHILDREN 4

void esp_merge_init(struct esp_merge *merge)
{
    *merge = (struct esp_merge){0};
}

void esp_merge_finish(struct esp_merge *merge)
{
    esp_free(merge->symbols);
    esp_free(merge->heap);
    *merge = (struct esp_merge){0};
}

void esp_merge_clear(struct esp_merge *merge)
{
    merge->n = 0;
    merge->n_heap = 0;
}

esp_status esp_merge_add(struct esp_merge *merge, uint32_t sym, uint32_t at, uint32_t n_bytes)
{
    assert(n_bytes > 0);
    if (merge->n == merge->room) {
        if (merge->room > UINT32_MAX / 4) {
            return ESP_ELIMIT;
        }
        uint32_t room = merge->room == 0 ? 64 : merge->room * 2;
        void *symbols = esp_realloc(ESP_TAG_VOCAB, merge->symbols, (size_t)room * sizeof *merge->symbols);
        if (symbols == NULL) {
            return ESP_ENOMEM;
        }
        merge->symbols = symbols;
        merge->room = room;
    }
    uint32_t idx = merge->n++;
    merge->symbols[idx] = (struct esp_merge_symbol){
        .sym = sym, .at = at, .n_bytes = n_bytes, .prev = idx == 0 ? ESP_MERGE_NONE : idx - 1, .next = ESP_MERGE_NONE};
    if (idx > 0) {
        merge->symbols[idx - 1].next = idx;
    }
    return ESP_OK;
}

static void sift_up(struct esp_merge *merge, size_t idx)
{
    uint64_t key = merge->heap[idx];
    for (; idx > 0 && key < merge->heap[(idx - 1) / CHILDREN]; idx = (idx - 1) / CHILDREN) {
        merge->heap[idx] = merge->heap[(idx - 1) / CHILDREN];
        merge->n_sifts++;
    }
    merge->heap[idx] = key;
}

static void sift_down(struct esp_merge *merge, size_t idx)
{
    uint64_t key = merge->heap[idx];
    for (;;) {
        size_t child = idx * CHILDREN + 1, best = child;
        if (child >= merge->n_heap) {
            break;
        }
        size_t end = child + CHILDREN < merge->n_heap ? child + CHILDREN : merge->n_heap;
        for (child++; child < end; child++) {
            best = merge->heap[child] < merge->heap[best] ? child : best;
        }
        if (merge->heap[best] >= key) {
            break;
        }
        merge->heap[idx] = merge->heap[best];
        merge->n_sifts++;
        idx = best;
    }
    merge->heap[idx] = key;
}

/* Looks up the pair that starts at left and appends it to the heap, if it joins; the caller restores the
 * heap's order. */
static esp_status add_pair(struct esp_merge *merge, uint32_t left, esp_merge_lookup *lookup, void *ctx, bool *ret_added)
{
    struct esp_merge_symbol *a = &merge->symbols[left];
    *ret_added = false;
    a->pair_sym = ESP_MERGE_NONE;
    if (a->next == ESP_MERGE_NONE) {
        return ESP_OK;
    }
    uint32_t order, sym;
    merge->n_lookups++;
    if (!lookup(ctx, a, &merge->symbols[a->next], &order, &sym)) {
        return ESP_OK;
    }
    if (merge->n_heap == merge->heap_room) {
        size_t room = merge->heap_room == 0 ? 64 : merge->heap_room * 2;
        void *heap = esp_realloc(ESP_TAG_VOCAB, merge->heap, room * sizeof *merge->heap);
        if (heap == NULL) {
            return ESP_ENOMEM;
        }
        merge->heap = heap;
        merge->heap_room = room;
    }
    a->pair_order = order;
    a->pair_sym = sym;
    merge->heap[merge->n_heap++] = (uint64_t)order << 32 | left;
    *ret_added = true;
    return ESP_OK;
}

static esp_status push_pair(struct esp_merge *merge, uint32_t left, esp_merge_lookup *lookup, void *ctx)
{
    bool added;
    esp_status status = add_pair(merge, left, lookup, ctx, &added);
    if (added) {
        sift_up(merge, merge->n_heap - 1);
    }
    return status;
}

static void join(struct esp_merge *merge, uint32_t left)
{
    struct esp_merge_symbol *a = &merge->symbols[left];
    struct esp_merge_symbol *b = &merge->symbols[a->next];
    a->sym = a->pair_sym;
    a->n_bytes += b->n_bytes;
    a->next = b->next;
    b->n_bytes = 0;
    b->pair_sym = ESP_MERGE_NONE;
    if (a->next != ESP_MERGE_NONE) {
        merge->symbols[a->next].prev = left;
    }
}

static esp_status fill_heap(struct esp_merge *merge, esp_merge_lookup *lookup, void *ctx)
{
    for (uint32_t idx = 0; idx < merge->n; idx++) {
        bool added;
        esp_status status = add_pair(merge, idx, lookup, ctx, &added);
        if (status != ESP_OK) {
            return status;
        }
    }
    for (size_t idx = merge->n_heap / CHILDREN + 1; idx-- > 0;) {
        if (idx < merge->n_heap) {
            sift_down(merge, idx);
        }
    }
    return ESP_OK;
}

esp_status esp_merge_run(struct esp_merge *merge, esp_merge_lookup *lookup, void *ctx)
{
    esp_status status = fill_heap(merge, lookup, ctx);
    while (status == ESP_OK && merge->n_heap > 0) {
        uint32_t order = (uint32_t)(merge->heap[0] >> 32), left = (uint32_t)merge->heap[0];
        merge->heap[0] = merge->heap[--merge->n_heap];
        if (merge->n_heap > 0) {
            sift_down(merge, 0);
        }
        const struct esp_merge_symbol *a = &merge->symbols[left];
        if (a->pair_sym == ESP_MERGE_NONE || a->pair_order != order) {
            continue;
        }
        join(merge, left);
        status = push_pair(merge, left, lookup, ctx);
        if (status == ESP_OK && a->prev != ESP_MERGE_NONE) {
            status = push_pair(merge, a->prev, lookup, ctx);
        }
    }
    return status;
}
