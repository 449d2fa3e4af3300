/* The x86 levels: one table each, made of files that are compiled once per level.
 *
 * Quantised rows stand in blocks of twelve, group by group, so that a tile of rows needs one pointer:
 *   q [n_rows / 12][n_in / 32][12][32],  d [n_rows / 12][n_in / 32][12],  side [n_rows / 12][n_in / group][12].
 * Thread: any, see kernels/cpu/level.h.
 */
#ifndef ESP_KERNELS_X86_X86_H
#define ESP_KERNELS_X86_X86_H

#include "kernels/cpu/level.h"

#define ESP_ROW_BLOCK ESP_ROW_TILE

extern const struct esp_cpu_level_ops esp_level_avx2;
extern const struct esp_cpu_level_ops esp_level_avx512;

#define ESP_X86_DECLARE(level)                                                                               \
    void esp_x86_quantise_##level(const struct esp_linear_args *args, const struct esp_quant *quant,         \
                                  uint32_t row, uint32_t row_end);                                           \
    void esp_x86_linear_##level(const struct esp_linear_args *args, const struct esp_quant *quant,           \
                                uint32_t weight_idx, uint32_t panel, uint32_t panel_end);                    \
    void esp_x86_linear_int_##level(const struct esp_linear_args *args, const struct esp_quant *quant,       \
                                    uint32_t weight_idx, uint32_t panel, uint32_t panel_end);                \
    void esp_x86_norm_##level(const struct esp_norm_args *args, uint32_t row, uint32_t row_end);             \
    void esp_x86_glu_##level(const struct esp_glu_args *args, uint32_t row, uint32_t row_end);               \
    void esp_x86_rope_kv_##level(const struct esp_rope_kv_args *args, uint32_t row, uint32_t row_end);       \
    void esp_x86_attn_##level(const struct esp_attn_args *args, uint32_t head_kv, uint32_t row,              \
                              uint32_t row_end)
ESP_X86_DECLARE(avx2);
ESP_X86_DECLARE(avx512);

#endif
