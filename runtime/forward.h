/* The forward pass: one batch of rows through all layers, about ten operations a layer.
 *
 * A row is one token of one sequence. Prefill chunks and decode rows share a batch; rows of one sequence
 * come in order of position, and all rows of a chunk stand together. The page of every row's position
 * must be the sequence's own to write. K and V of all rows are written before attention reads.
 * Scratch is allocated once; a pass allocates nothing. Thread: the engine's.
 */
#ifndef ESP_RUNTIME_FORWARD_H
#define ESP_RUNTIME_FORWARD_H

#include "runtime/model.h"

struct esp_batch {
    uint32_t n_rows;
    const uint32_t *ids;          /* [n_rows] */
    const uint32_t *pos;          /* [n_rows] */
    const uint32_t *row_seq;      /* [n_rows] index into pages */
    const uint32_t *row_page;     /* [n_rows] page that holds pos */
    const uint32_t *const *pages; /* [n_seqs] page tables, pages[s][i] holds positions 16·i … */
    uint32_t n_seqs;
    const uint32_t *logit_rows; /* [n_logits] rows whose logits are wanted, ascending */
    uint32_t n_logits;
    bool hidden; /* the output of the final norm is wanted instead of logits */
};

struct esp_forward;
/* Exact device bytes that create will take: returns those of the activations, *ret_logit_bytes (may be NULL)
 * gets those of the logits of n_logits_max rows; create takes the sum of the two. */
uint64_t esp_forward_bytes(const struct esp_hparams *hp, uint32_t n_rows_max, uint32_t n_logits_max,
                           uint64_t *ret_logit_bytes);
/* kv: the page pool, esp_kv_page_bytes × n_pages of device memory. */
esp_status esp_forward_create(const struct esp_model *model, void *kv, uint32_t n_rows_max, uint32_t n_logits_max,
                              struct esp_forward **ret_forward, struct esp_err *err);
void esp_forward_destroy(struct esp_forward *forward); /* NULL is fine */
/* *ret_logits: [n_logits, n_vocab] on the device, or [n_logits, n_embd] with hidden; borrowed until the next run. */
esp_status esp_forward_run(struct esp_forward *forward, const struct esp_batch *batch, const float **ret_logits);

#endif
