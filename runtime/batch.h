/* A plan turned into the arrays that the forward pass reads. All memory is taken at init.
 *
 *   items   seq 0: rows [512, 1024)   seq 1: row [90, 91)   …
 *   arrays  ids, pos, row_seq, row_page: one entry a row, item after item; pages: one table an item
 *
 * Thread: the engine's. Page tables are borrowed from the sequences until the pass is over.
 */
#ifndef ESP_RUNTIME_BATCH_H
#define ESP_RUNTIME_BATCH_H

#include "runtime/forward.h"
#include "runtime/sched.h"

struct esp_batch_arrays {
    uint32_t *ids, *pos, *row_seq, *row_page; /* [n_rows_max] */
    const uint32_t **pages;                   /* [n_seqs_max] */
    uint32_t *logit_rows;                     /* [n_logits_max] */
    struct esp_seq **logit_seqs;              /* [n_seqs_max] whose row each logit row is */
    struct esp_batch batch;
    uint32_t n_rows_max;
};

esp_status esp_batch_init(struct esp_batch_arrays *arrays, uint32_t n_rows_max, uint32_t n_seqs_max);
void esp_batch_finish(struct esp_batch_arrays *arrays); /* zeroed is fine */
uint64_t esp_batch_bytes(uint32_t n_rows_max, uint32_t n_seqs_max);
/* By hand: nothing yet; n rows of a page table from position `from` on; logits of the row that comes i rows later. */
void esp_batch_begin(struct esp_batch_arrays *arrays);
void esp_batch_add(struct esp_batch_arrays *arrays, const uint32_t *tokens, const struct esp_page_id *pages,
                   uint32_t from, uint32_t n);
void esp_batch_want(struct esp_batch_arrays *arrays, uint32_t i);
uint32_t esp_batch_room(const struct esp_batch_arrays *arrays); /* rows that can still be added */
void esp_batch_fill(struct esp_batch_arrays *arrays, const struct esp_plan *plan);
/* One run of rows [from, from + n) of a timeline outside the cache, with logits of every row. */
void esp_batch_fill_alone(struct esp_batch_arrays *arrays, const uint32_t *tokens, const struct esp_page_id *pages,
                          uint32_t from, uint32_t n);

#endif
