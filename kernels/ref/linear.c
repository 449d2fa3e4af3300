/* Reference for quantising inputs and for linear. Speed is no aim; fma is the library's.
 *
 * Thread: any, see kernels/cpu/level.h.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/format.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

static void quantise_group(const float *x, int8_t *q, float *ret_d, int32_t ret_sums[2])
{
    float amax = 0;
    for (int i = 0; i < 32; i++) {
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    }
    bool zero = amax < ESP_QUANT_AMAX_MIN;
    float factor = zero ? 0 : 127.0f / amax;
    *ret_d = zero ? 0 : amax / 127.0f;
    ret_sums[0] = ret_sums[1] = 0;
    for (int i = 0; i < 32; i++) {
        float scaled = x[i] * factor;
        scaled = scaled < 127.0f ? scaled : 127.0f; /* also catches NaN */
        scaled = scaled > -127.0f ? scaled : -127.0f;
        q[i] = (int8_t)rintf(scaled);
        ret_sums[i / 16] += q[i];
    }
}

void esp_ref_quantise(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t row,
                      uint32_t row_end)
{
    size_t n_in = args->weight[0]->n_in;
    for (size_t r = row; r < row_end; r++) {
        for (size_t g = 0; g < n_in / 32; g++) {
            size_t at = r * n_in + g * 32;
            quantise_group(args->x + at, quant->q + at, &quant->d[at / 32], &quant->s16[at / 16]);
        }
    }
}

/* acc after one weight group: n values of q against n of x. */
static float add_group(float acc, const struct esp_block *block, uint32_t g, uint32_t n, bool has_min,
                       const int8_t *x, float d_x)
{
    int32_t isum = 0, sum_x = 0;
    for (uint32_t i = 0; i < n; i++) {
        isum += block->q[g * n + i] * x[i];
        sum_x += x[i];
    }
    acc = fmaf((block->d * (float)block->s[g]) * d_x, (float)isum, acc);
    if (has_min) {
        acc = fmaf(-(block->dmin * (float)block->m[g]), d_x * (float)sum_x, acc);
    }
    return acc;
}

static float dot_blocks(const struct esp_weight *w, const uint8_t *src, const int8_t *x, const float *d_x)
{
    const struct esp_format *format = esp_format(w->type);
    const struct esp_type_info *info = esp_type_info(w->type);
    struct esp_block block;
    float acc = 0;
    for (uint32_t at = 0; at < w->n_in; at += info->block, src += info->bytes) {
        esp_block_decode(w->type, src, &block);
        for (uint32_t g = 0; g < info->block / format->group; g++) {
            uint32_t i = at + g * format->group;
            acc = add_group(acc, &block, g, format->group, format->has_min, x + i, d_x[i / 32]);
        }
    }
    return acc;
}

static float dot_floats(const struct esp_weight *w, const uint8_t *src, const float *x)
{
    uint32_t bytes = esp_type_info(w->type)->bytes;
    float acc = 0;
    for (uint32_t k = 0; k < w->n_in; k++) {
        float value;
        esp_dequantize(w->type, src + (size_t)k * bytes, 1, &value);
        acc = fmaf(value, x[k], acc);
    }
    return acc;
}

/* Output `out` of row r before bias and flags. */
static float dot(const struct esp_weight *w, const struct esp_quant *quant, const float *x, size_t out, size_t r)
{
    const struct esp_type_info *info = esp_type_info(w->type);
    const uint8_t *src = (const uint8_t *)w->data + out * (w->n_in / info->block) * info->bytes;
    size_t x_at = r * w->n_in;
    return esp_format(w->type)->group == 0 ? dot_floats(w, src, x + x_at)
                                           : dot_blocks(w, src, quant->q + x_at, quant->d + x_at / 32);
}

void esp_ref_linear(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t weight_idx,
                    uint32_t panel, uint32_t panel_end)
{
    const struct esp_weight *w = args->weight[weight_idx];
    uint32_t out_end = panel_end * ESP_PANEL < w->n_out ? panel_end * ESP_PANEL : w->n_out;
    for (uint32_t out = panel * ESP_PANEL; out < out_end; out++) {
        for (size_t r = 0; r < args->n_rows; r++) {
            float acc = dot(w, quant, args->x, out, r);
            float *y = &args->y[weight_idx][r * w->n_out + out];
            if ((args->flags & ESP_LINEAR_GLU) != 0) {
                float gate = args->act == ESP_ACT_SILU ? esp_siluf(acc) : esp_gelu_tanhf(acc);
                *y = gate * dot(args->weight[1], quant, args->x, out, r);
                continue;
            }
            if (args->bias[weight_idx] != NULL) {
                acc = acc + args->bias[weight_idx][out];
            }
            *y = (args->flags & ESP_LINEAR_ADD) != 0 ? *y + acc : acc;
        }
    }
}
