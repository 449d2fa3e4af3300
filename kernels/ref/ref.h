/* The parts of the reference level: plain loops in the order that kernels/ops.h writes down.
 *
 * Weights stay as they are in the file. Thread: any; see kernels/cpu/level.h.
 */
#ifndef ESP_KERNELS_REF_REF_H
#define ESP_KERNELS_REF_REF_H

#include "kernels/cpu/level.h"

void esp_ref_quantise(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t row,
                      uint32_t row_end);
void esp_ref_linear(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t weight_idx,
                    uint32_t panel, uint32_t panel_end);
void esp_ref_rope_kv(const struct esp_rope_kv_args *args, uint32_t row, uint32_t row_end);
void esp_ref_attn(const struct esp_attn_args *args, uint32_t head_kv, uint32_t row, uint32_t row_end);

#endif
