/* The common form of every quantised type, and what a block of a file looks like in it.
 *
 * Every block type is cut into groups of 16 or 32 values, and a value is
 *     w = (d · s[g]) · q + (−dmin · m[g])
 * with small integers q, s, m and two floats per block. d·s and dmin·m are exact in f32 for every
 * type. The reference multiplies in this form, the packers of the CPU levels read it, and
 * esp_dequantize evaluates it. Source of the layouts: the block descriptions of the GGUF formats.
 * Thread: any, pure functions. Does not check lengths: callers pass whole blocks.
 */
#ifndef ESP_KERNELS_FORMAT_H
#define ESP_KERNELS_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/types.h"

#define ESP_BLOCK_MAX 256 /* values of the largest block */

struct esp_block {
    float d, dmin;
    int16_t s[16], m[16]; /* per group; m only where the format has a minimum */
    int8_t q[ESP_BLOCK_MAX];
};

struct esp_format {
    uint8_t group; /* 16 or 32 values; 0: not a quantised type that runs here */
    uint8_t bits;  /* of q + zero, as kernels store it: 4, 5, 6 or 8 */
    uint8_t zero;  /* q + zero is not negative */
    bool has_min;
    bool has_codes; /* scales are small integers under one d a block (K-quants) */
};

const struct esp_format *esp_format(enum esp_type type);

void esp_block_decode(enum esp_type type, const uint8_t *src, struct esp_block *ret_block);

#endif
