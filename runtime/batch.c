/* See batch.h. */
#include "runtime/batch.h"

#include <string.h>

esp_status esp_batch_init(struct esp_batch_arrays *arrays, uint32_t n_rows_max, uint32_t n_seqs_max)
{
    memset(arrays, 0, sizeof *arrays);
    arrays->n_rows_max = n_rows_max;
    arrays->ids = esp_calloc(ESP_TAG_ENGINE, n_rows_max, sizeof(uint32_t));
    arrays->pos = esp_calloc(ESP_TAG_ENGINE, n_rows_max, sizeof(uint32_t));
    arrays->row_seq = esp_calloc(ESP_TAG_ENGINE, n_rows_max, sizeof(uint32_t));
    arrays->row_page = esp_calloc(ESP_TAG_ENGINE, n_rows_max, sizeof(uint32_t));
    arrays->pages = esp_calloc(ESP_TAG_ENGINE, n_seqs_max, sizeof(uint32_t *));
    arrays->logit_rows = esp_calloc(ESP_TAG_ENGINE, n_seqs_max, sizeof(uint32_t));
    arrays->logit_seqs = esp_calloc(ESP_TAG_ENGINE, n_seqs_max, sizeof(struct esp_seq *));
    if (arrays->ids == NULL || arrays->pos == NULL || arrays->row_seq == NULL || arrays->row_page == NULL ||
        arrays->pages == NULL || arrays->logit_rows == NULL || arrays->logit_seqs == NULL) {
        esp_batch_finish(arrays);
        return ESP_ENOMEM;
    }
    return ESP_OK;
}

void esp_batch_finish(struct esp_batch_arrays *arrays)
{
    esp_free(arrays->ids);
    esp_free(arrays->pos);
    esp_free(arrays->row_seq);
    esp_free(arrays->row_page);
    esp_free(arrays->pages);
    esp_free(arrays->logit_rows);
    esp_free(arrays->logit_seqs);
    memset(arrays, 0, sizeof *arrays);
}

uint64_t esp_batch_bytes(uint32_t n_rows_max, uint32_t n_seqs_max)
{
    return (uint64_t)n_rows_max * 4 * sizeof(uint32_t) + (uint64_t)n_seqs_max * (2 * sizeof(void *) + sizeof(uint32_t));
}

void esp_batch_add(struct esp_batch_arrays *arrays, const uint32_t *tokens, const struct esp_page_id *pages,
                   uint32_t from, uint32_t n)
{
    struct esp_batch *batch = &arrays->batch;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = batch->n_rows++;
        uint32_t pos = from + i;
        arrays->ids[row] = tokens[i];
        arrays->pos[row] = pos;
        arrays->row_seq[row] = batch->n_seqs;
        arrays->row_page[row] = pages[pos / ESP_PAGE_TOKENS].v;
    }
    arrays->pages[batch->n_seqs++] = &pages[0].v;
}

void esp_batch_begin(struct esp_batch_arrays *arrays)
{
    arrays->batch = (struct esp_batch){
        .ids = arrays->ids,
        .pos = arrays->pos,
        .row_seq = arrays->row_seq,
        .row_page = arrays->row_page,
        .pages = arrays->pages,
        .logit_rows = arrays->logit_rows,
    };
}

void esp_batch_want(struct esp_batch_arrays *arrays, uint32_t i)
{
    arrays->logit_rows[arrays->batch.n_logits++] = arrays->batch.n_rows + i;
}

uint32_t esp_batch_room(const struct esp_batch_arrays *arrays)
{
    return arrays->n_rows_max - arrays->batch.n_rows;
}

void esp_batch_fill(struct esp_batch_arrays *arrays, const struct esp_plan *plan)
{
    struct esp_batch *batch = &arrays->batch;
    esp_batch_begin(arrays);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct esp_plan_item *item = &plan->items[i];
        esp_batch_add(arrays, item->seq->tokens + item->from, item->seq->pages, item->from, item->n);
        if (item->wants_logits) {
            arrays->logit_seqs[batch->n_logits] = item->seq;
            arrays->logit_rows[batch->n_logits++] = batch->n_rows - 1;
        }
    }
}

void esp_batch_fill_alone(struct esp_batch_arrays *arrays, const uint32_t *tokens, const struct esp_page_id *pages,
                          uint32_t from, uint32_t n)
{
    esp_batch_begin(arrays);
    esp_batch_add(arrays, tokens + from, pages, from, n);
    for (uint32_t i = 0; i < n; i++) {
        arrays->logit_rows[i] = i;
    }
    arrays->batch.n_logits = n;
}
