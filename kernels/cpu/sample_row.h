/* Sampling one row of logits, once per CPU level; every level gives the same result.
 *
 * Thread: any; rows are independent. The contract is struct esp_sample_row in kernels/ops.h.
 */
#ifndef ESP_KERNELS_CPU_SAMPLE_ROW_H
#define ESP_KERNELS_CPU_SAMPLE_ROW_H

#include "kernels/cpu/level.h"

void esp_sample_row_scalar(struct esp_sample_row *row, uint32_t n_vocab, const struct esp_sample_scratch *scratch);
void esp_sample_row_avx2(struct esp_sample_row *row, uint32_t n_vocab, const struct esp_sample_scratch *scratch);
void esp_sample_row_avx512(struct esp_sample_row *row, uint32_t n_vocab, const struct esp_sample_scratch *scratch);

#endif
