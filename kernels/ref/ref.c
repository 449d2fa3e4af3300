/* The reference level: norm, glu, embed, packing (a copy), and the table.
 *
 * Thread: any, see kernels/cpu/level.h.
 */
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/sample_row.h"
#include "kernels/format.h"
#include "kernels/ref/math.h"

static size_t row_bytes(enum esp_type type, uint32_t n_in)
{
    const struct esp_type_info *info = esp_type_info(type);
    return (size_t)(n_in / info->block) * info->bytes;
}

static size_t ref_weight_bytes(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    return row_bytes(type, n_in) * n_out;
}

static void ref_pack(enum esp_type type, uint32_t n_out, uint32_t n_in, const void *src, void *dst, uint32_t panel,
                     uint32_t panel_end)
{
    uint32_t out = panel * ESP_PANEL;
    uint32_t out_end = panel_end * ESP_PANEL < n_out ? panel_end * ESP_PANEL : n_out;
    size_t at = row_bytes(type, n_in) * out;
    memcpy((uint8_t *)dst + at, (const uint8_t *)src + at, row_bytes(type, n_in) * (out_end - out));
}

static void ref_embed(const struct esp_embed_args *args, uint32_t row, uint32_t row_end)
{
    const struct esp_weight *w = args->weight;
    for (size_t r = row; r < row_end; r++) {
        float *x = args->x + r * w->n_in;
        esp_dequantize(w->type, (const uint8_t *)w->data + row_bytes(w->type, w->n_in) * args->ids[r], w->n_in, x);
        for (uint32_t i = 0; i < w->n_in; i++) {
            x[i] = x[i] * args->scale;
        }
    }
}

static void ref_norm(const struct esp_norm_args *args, uint32_t row, uint32_t row_end)
{
    for (size_t r = row; r < row_end; r++) {
        const float *x = args->x + r * args->dim;
        float *y = args->y + r * args->dim;
        float lanes[16] = {0};
        for (uint32_t i = 0; i < args->dim; i++) {
            lanes[i % 16] = fmaf(x[i], x[i], lanes[i % 16]);
        }
        float scale = 1.0f / sqrtf(esp_sum_lanes(lanes) / (float)args->dim + args->eps);
        for (uint32_t i = 0; i < args->dim; i++) {
            float v = (x[i] * scale) * args->w[i];
            y[i] = (args->flags & ESP_NORM_ADD) != 0 ? y[i] + v : v;
        }
    }
}

static void ref_glu(const struct esp_glu_args *args, uint32_t row, uint32_t row_end)
{
    size_t end = (size_t)row_end * args->dim;
    for (size_t i = (size_t)row * args->dim; i < end; i++) {
        float gate = args->gate[i];
        float act = args->act == ESP_ACT_SILU ? esp_siluf(gate) : esp_gelu_tanhf(gate);
        args->out[i] = act * args->up[i];
    }
}

const struct esp_cpu_level_ops esp_level_ref = {
    .name = "scalar",
    .layout = 0,
    .weight_bytes = ref_weight_bytes,
    .pack = ref_pack,
    .embed = ref_embed,
    .norm = ref_norm,
    .quantise = esp_ref_quantise,
    .linear = esp_ref_linear,
    .rope_kv = esp_ref_rope_kv,
    .attn = esp_ref_attn,
    .glu = ref_glu,
    .sample = esp_sample_row_scalar,
};
