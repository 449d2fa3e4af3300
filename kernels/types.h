/* Tensor types as GGUF numbers them, and 16-bit float conversion.
 *
 * A quantised type stores `block` values in `bytes` bytes; rows are whole numbers of blocks.
 * Source of the numbers: the GGUF specification (docs/gguf.md in ggml). Thread: none, constants.
 */
#ifndef ESP_KERNELS_TYPES_H
#define ESP_KERNELS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum esp_type {
    ESP_TYPE_F32 = 0,
    ESP_TYPE_F16 = 1,
    ESP_TYPE_Q4_0 = 2,
    ESP_TYPE_Q4_1 = 3,
    ESP_TYPE_Q5_0 = 6,
    ESP_TYPE_Q5_1 = 7,
    ESP_TYPE_Q8_0 = 8,
    ESP_TYPE_Q2_K = 10,
    ESP_TYPE_Q3_K = 11,
    ESP_TYPE_Q4_K = 12,
    ESP_TYPE_Q5_K = 13,
    ESP_TYPE_Q6_K = 14,
    ESP_TYPE_BF16 = 30,
    ESP_TYPE_COUNT = 43 /* one past the largest number the table knows */
};

struct esp_type_info {
    const char *name; /* "Q4_K"; NULL for a number that may not occur in a file */
    uint32_t block;   /* values in a block */
    uint32_t bytes;   /* bytes of a block */
    bool runs;        /* kernels exist for it; the others can only be inspected */
};

/* NULL for numbers that are unknown, removed, or for dot products only. Covers every type of the
 * GGUF specification, also those that cannot run here. */
const struct esp_type_info *esp_type_info(uint32_t type);

/* Decodes n_values (a multiple of the block) to f32: the plain meaning of the format. Only types
 * with runs == true. */
void esp_dequantize(enum esp_type type, const void *src, size_t n_values, float *dst);

/* IEEE half precision, round to nearest even; NaN stays NaN. */
float esp_f16_to_f32(uint16_t h);
uint16_t esp_f16_from_f32(float f);

#endif
