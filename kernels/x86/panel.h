/* Weights of the x86 levels: panels of 16 output rows side by side.
 *
 * A quantised panel is all its groups of 32 inputs, then all their scales; AVX2 and AVX-512 share it.
 *
 *   group, 4 bits   4 vectors of 64 bytes. Vector j, byte 4r + i: row r; low nibble value 4j + i,
 *                   high nibble value 16 + 4j + i. So a vector holds two steps of four values, j and j + 4.
 *   5th, 6th bit    64 bytes each: 8 words of 64 bits, word s, bit 4r + i: value 4s + i of row r
 *   8 bits          8 vectors: vector s, byte 4r + i: value 4s + i of row r
 *   scales          plain types, per group: f16 d [16], and f16 m [16] where there is a minimum
 *                   K-quants, per 256 inputs: f16 d [16] (dmin [16]), then per group of the type
 *                   (16 or 32 values) a byte s [16] (m [16])
 *
 * Values are stored as q + zero, never negative; what that adds is taken off by the start value of the
 * integer sum. Float types: [n_in][16]. The last panel is filled up with zero rows.
 * Thread: any; a panel is written by one chunk of weight_pack and read by all.
 */
#ifndef ESP_KERNELS_X86_PANEL_H
#define ESP_KERNELS_X86_PANEL_H

#include "kernels/cpu/level.h"
#include "kernels/format.h"

#define ESP_PANEL_LAYOUT 1

struct esp_panel_shape {
    size_t group_bytes;  /* values of a group of 32 inputs; of one input for float types */
    size_t scales_at;    /* offset of the scales in the panel */
    size_t scale_bytes;  /* per group of 32, or per 256 inputs for K-quants */
    size_t bytes;        /* of the panel */
};

static inline struct esp_panel_shape esp_panel_shape(enum esp_type type, uint32_t n_in)
{
    const struct esp_format *f = esp_format(type);
    struct esp_panel_shape shape = {0};
    if (f->group == 0) {
        shape.group_bytes = (size_t)ESP_PANEL * esp_type_info(type)->bytes;
        shape.scales_at = shape.group_bytes * n_in;
    } else {
        shape.group_bytes = f->bits == 8 ? 512 : 256 + 64 * (size_t)(f->bits - 4);
        shape.scales_at = shape.group_bytes * (n_in / 32);
        size_t parts = f->has_min ? 2 : 1;
        shape.scale_bytes = f->has_codes ? parts * 32 + parts * 16 * (256 / f->group) : parts * 32;
    }
    size_t scales = shape.scale_bytes * (f->has_codes ? n_in / 256 : n_in / 32);
    shape.bytes = (shape.scales_at + scales + 63) & ~(size_t)63;
    return shape;
}

size_t esp_panel_weight_bytes(enum esp_type type, uint32_t n_out, uint32_t n_in);
void esp_panel_pack(enum esp_type type, uint32_t n_out, uint32_t n_in, const void *src, void *dst, uint32_t panel,
                    uint32_t panel_end);
void esp_panel_embed(const struct esp_embed_args *args, uint32_t row, uint32_t row_end);

#endif
