/* What the integer kernels of both x86 levels share: the input of a tile, and how tiles are stored.
 *
 * A tile is one panel (16 outputs) times up to 12 rows of input. Its float sums are added in the order
 * of kernels/ops.h, one SIMD lane an output, so a row has the same bits in any tile.
 * Thread: any, pure functions but for the output.
 */
#ifndef ESP_KERNELS_X86_TILE_H
#define ESP_KERNELS_X86_TILE_H

#include "kernels/cpu/vec.h"
#include "kernels/x86/act.h"
#include "kernels/x86/panel.h"
#include "kernels/x86/x86.h"

/* The first row of a tile; all its rows are in one row block. */
struct esp_tile_x {
    const int8_t *q;
    const float *d;
    const void *side;
};

ESP_VEC_INLINE struct esp_tile_x esp_tile_x(const struct esp_quant *quant, uint32_t weight_idx,
                                            const struct esp_weight *w, uint32_t row)
{
    size_t at = (size_t)(row / ESP_ROW_BLOCK) * (w->n_in / 32) * ESP_ROW_BLOCK, in_block = row % ESP_ROW_BLOCK;
    size_t per = esp_format(w->type)->group == 16 ? 2 : 1;
    struct esp_tile_x x = {
        .q = quant->q + (at + in_block) * 32,
        .d = quant->d + at + in_block,
        .side = (const int32_t *)quant->side[weight_idx] + at * per + in_block,
    };
    return x;
}

/* Puts the sums of 16 outputs of one row in place; n_out counts those that exist. */
ESP_VEC_INLINE void esp_tile_store(const struct esp_linear_args *args, uint32_t weight_idx, uint32_t row,
                                   uint32_t panel, const float *sums)
{
    uint32_t n_out = args->weight[weight_idx]->n_out, out = panel * ESP_PANEL, n = n_out - out;
    float *y = args->y[weight_idx] + (size_t)row * n_out + out;
    const float *bias = args->bias[weight_idx];
    bool add = (args->flags & ESP_LINEAR_ADD) != 0;
    if (n >= ESP_PANEL) {
        v16 v = v16_load(sums);
        v = bias != NULL ? v16_add(v, v16_load(bias + out)) : v;
        v16_store(y, add ? v16_add(v16_load(y), v) : v);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        float v = bias != NULL ? sums[i] + bias[out + i] : sums[i];
        y[i] = add ? y[i] + v : v;
    }
}

/* The same for 16 outputs of gate and up of one row, with ESP_LINEAR_GLU. */
ESP_VEC_INLINE void esp_tile_store_glu(const struct esp_linear_args *args, uint32_t row, uint32_t panel,
                                       const float *gate, const float *up)
{
    uint32_t n_out = args->weight[0]->n_out, out = panel * ESP_PANEL, n = n_out - out;
    float *y = args->y[0] + (size_t)row * n_out + out;
    v16 v = v16_mul(v16_act(args->act, v16_load(gate)), v16_load(up));
    if (n >= ESP_PANEL) {
        v16_store(y, v);
    } else {
        v16_store_n(y, v, n);
    }
}

/* From the gate's panel to the panel of up. */
static inline size_t esp_tile_glu_step(const struct esp_linear_args *args)
{
    return (size_t)((uintptr_t)args->weight[1]->data - (uintptr_t)args->weight[0]->data);
}

#endif
