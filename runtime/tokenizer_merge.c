/* The merge loop: a binary heap of candidate pairs over a linked list of symbols.
 *
 * A candidate remembers the lengths of both halves. It is stale when its left symbol is gone or either
 * length has changed: the text from a fixed start with two fixed lengths is one pair and no other.
 * Thread: the owner's. All counts fit 32 bits because pieces are below 4 GiB.
 */
#include "runtime/tokenizer_merge.h"

#include <assert.h>

#include "runtime/base/alloc.h"

struct esp_merge_pair {
    uint32_t order, left;
    uint32_t left_bytes, right_bytes;
    uint32_t sym;
};

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
    merge->symbols[idx] = (struct esp_merge_symbol){sym, at, n_bytes, idx == 0 ? ESP_MERGE_NONE : idx - 1, ESP_MERGE_NONE};
    if (idx > 0) {
        merge->symbols[idx - 1].next = idx;
    }
    return ESP_OK;
}

static bool before(const struct esp_merge_pair *a, const struct esp_merge_pair *b)
{
    return a->order != b->order ? a->order < b->order : a->left < b->left;
}

static void sift_up(struct esp_merge *merge, size_t idx)
{
    struct esp_merge_pair pair = merge->heap[idx];
    for (; idx > 0 && before(&pair, &merge->heap[(idx - 1) / 2]); idx = (idx - 1) / 2) {
        merge->heap[idx] = merge->heap[(idx - 1) / 2];
        merge->n_sifts++;
    }
    merge->heap[idx] = pair;
}

static void sift_down(struct esp_merge *merge, size_t idx)
{
    struct esp_merge_pair pair = merge->heap[idx];
    for (;;) {
        size_t child = idx * 2 + 1;
        if (child >= merge->n_heap) {
            break;
        }
        if (child + 1 < merge->n_heap && before(&merge->heap[child + 1], &merge->heap[child])) {
            child++;
        }
        if (!before(&merge->heap[child], &pair)) {
            break;
        }
        merge->heap[idx] = merge->heap[child];
        merge->n_sifts++;
        idx = child;
    }
    merge->heap[idx] = pair;
}

/* Appends the pair that starts at left, if it joins; the caller restores the heap order. */
static esp_status add_pair(struct esp_merge *merge, uint32_t left, esp_merge_lookup *lookup, void *ctx, bool *ret_added)
{
    const struct esp_merge_symbol *a = &merge->symbols[left];
    *ret_added = false;
    if (a->next == ESP_MERGE_NONE) {
        return ESP_OK;
    }
    const struct esp_merge_symbol *b = &merge->symbols[a->next];
    uint32_t order, sym;
    merge->n_lookups++;
    if (!lookup(ctx, a, b, &order, &sym)) {
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
    merge->heap[merge->n_heap++] = (struct esp_merge_pair){order, left, a->n_bytes, b->n_bytes, sym};
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

static void join(struct esp_merge *merge, uint32_t left, uint32_t sym)
{
    struct esp_merge_symbol *a = &merge->symbols[left];
    struct esp_merge_symbol *b = &merge->symbols[a->next];
    a->sym = sym;
    a->n_bytes += b->n_bytes;
    a->next = b->next;
    b->n_bytes = 0;
    if (a->next != ESP_MERGE_NONE) {
        merge->symbols[a->next].prev = left;
    }
}

esp_status esp_merge_run(struct esp_merge *merge, esp_merge_lookup *lookup, void *ctx)
{
    for (uint32_t idx = 0; idx + 1 < merge->n; idx++) {
        bool added;
        esp_status status = add_pair(merge, idx, lookup, ctx, &added);
        if (status != ESP_OK) {
            return status;
        }
    }
    for (size_t idx = merge->n_heap / 2; idx-- > 0;) {
        sift_down(merge, idx);
    }
    while (merge->n_heap > 0) {
        struct esp_merge_pair pair = merge->heap[0];
        merge->heap[0] = merge->heap[--merge->n_heap];
        if (merge->n_heap > 0) {
            sift_down(merge, 0);
        }
        const struct esp_merge_symbol *a = &merge->symbols[pair.left];
        if (a->n_bytes != pair.left_bytes || a->next == ESP_MERGE_NONE ||
            merge->symbols[a->next].n_bytes != pair.right_bytes) {
            continue;
        }
        join(merge, pair.left, pair.sym);
        esp_status status = push_pair(merge, pair.left, lookup, ctx);
        if (status == ESP_OK && a->prev != ESP_MERGE_NONE) {
            status = push_pair(merge, a->prev, lookup, ctx);
        }
        if (status != ESP_OK) {
            return status;
        }
    }
    return ESP_OK;
}
