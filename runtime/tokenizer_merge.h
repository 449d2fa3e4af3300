/* Pair merging for BPE and SPM: best pair first, leftmost on a tie, in n log n.
 *
 *   symbols  [H][e][l][l][o]    a linked list over one piece of text, so that a join costs O(1)
 *   heap     order << 32 | left candidate pairs; what became stale is recognised when it is popped
 *
 * Each join makes at most two new candidates, so a piece of n characters costs at most 3n look-ups and
 * 3n heap entries, however long it is. n_lookups and n_sifts count the work, for tests.
 * Thread: the owner's. Knows nothing of vocabularies: a callback says what joins.
 */
#ifndef ESP_RUNTIME_TOKENIZER_MERGE_H
#define ESP_RUNTIME_TOKENIZER_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

#define ESP_MERGE_NONE UINT32_MAX

struct esp_merge_symbol {
    uint32_t sym;         /* the caller's name for this text: equal texts, equal names */
    uint32_t at, n_bytes; /* in the piece; n_bytes 0 = joined into a neighbour */
    uint32_t prev, next;  /* ESP_MERGE_NONE at the ends */
    uint32_t pair_order, pair_sym; /* of this one and next; pair_sym ESP_MERGE_NONE = they do not join */
};

/* Whether left and right join, how early (lower first), and the symbol they make (not ESP_MERGE_NONE). */
typedef bool esp_merge_lookup(void *ctx, const struct esp_merge_symbol *left, const struct esp_merge_symbol *right,
                              uint32_t *ret_order, uint32_t *ret_sym);

struct esp_merge {
    struct esp_merge_symbol *symbols; /* [n]; the first one is never joined away */
    uint32_t n, room;
    uint64_t *heap; /* [n_heap], four children a node */
    size_t n_heap, heap_room;
    uint64_t n_lookups, n_sifts;
};

void esp_merge_init(struct esp_merge *merge);
void esp_merge_finish(struct esp_merge *merge); /* zeroed is fine */
void esp_merge_clear(struct esp_merge *merge);  /* keeps memory and counters */
esp_status esp_merge_add(struct esp_merge *merge, uint32_t sym, uint32_t at, uint32_t n_bytes);
/* Joins until nothing joins. The result is the list from symbols[0] along next. */
esp_status esp_merge_run(struct esp_merge *merge, esp_merge_lookup *lookup, void *ctx);

#endif
