/* Norm, gated activation and quantising of inputs, sixteen values at a time.
 *
 * Compiled once per level (kernels/cpu/vec.h). Thread: any, see kernels/cpu/level.h.
 */
#include <math.h>

#include "kernels/cpu/vec.h"
#include "kernels/format.h"
#include "kernels/x86/act.h"
#include "kernels/x86/x86.h"

static float sum_of_squares(const float *x, uint32_t dim)
{
    v16 sum = v16_set1(0);
    uint32_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        v16 v = v16_load(x + i);
        sum = v16_fma(v, v, sum);
    }
    if (i < dim) {
        v16 v = v16_load_n(x + i, dim - i);
        sum = v16_fma(v, v, sum);
    }
    return v16_sum(sum);
}

void ESP_LEVEL_NAME(esp_x86_norm)(const struct esp_norm_args *args, uint32_t row, uint32_t row_end)
{
    bool add = (args->flags & ESP_NORM_ADD) != 0;
    for (size_t r = row; r < row_end; r++) {
        const float *x = args->x + r * args->dim;
        float *y = args->y + r * args->dim;
        float factor = 1.0f / sqrtf(sum_of_squares(x, args->dim) / (float)args->dim + args->eps);
        uint32_t i = 0;
        for (; i + 16 <= args->dim; i += 16) {
            v16 v = v16_mul(v16_mul(v16_load(x + i), v16_set1(factor)), v16_load(args->w + i));
            v16_store(y + i, add ? v16_add(v16_load(y + i), v) : v);
        }
        for (; i < args->dim; i++) {
            float v = (x[i] * factor) * args->w[i];
            y[i] = add ? y[i] + v : v;
        }
    }
}

void ESP_LEVEL_NAME(esp_x86_glu)(const struct esp_glu_args *args, uint32_t row, uint32_t row_end)
{
    size_t i = (size_t)row * args->dim, end = (size_t)row_end * args->dim;
    for (; i < end; i += 16) {
        uint32_t n = end - i < 16 ? (uint32_t)(end - i) : 16;
        v16 gate = n == 16 ? v16_load(args->gate + i) : v16_load_n(args->gate + i, n);
        v16 up = n == 16 ? v16_load(args->up + i) : v16_load_n(args->up + i, n);
        v16 y = v16_mul(v16_act(args->act, gate), up);
        if (n == 16) {
            v16_store(args->out + i, y);
        } else {
            v16_store_n(args->out + i, y, n);
        }
    }
}

struct group_sums {
    float d;
    int32_t half[2]; /* or the whole sum in the first */
};

static struct group_sums quantise_group(const float *x, int8_t *q, bool halves)
{
    v16 a = v16_load(x), b = v16_load(x + 16);
    float amax = v16_hmax(v16_max(v16_abs(b), v16_max(v16_abs(a), v16_set1(0))));
    bool zero = amax < ESP_QUANT_AMAX_MIN;
    v16 factor = v16_set1(zero ? 0 : 127.0f / amax);
    v16 low = v16_set1(-127), high = v16_set1(127);
    a = v16_round(v16_max(v16_min(v16_mul(a, factor), high), low));
    b = v16_round(v16_max(v16_min(v16_mul(b, factor), high), low));
    v16_store_i8(q, a);
    v16_store_i8(q + 16, b);
    struct group_sums sums = {.d = zero ? 0 : amax / 127.0f};
    sums.half[0] = (int32_t)v16_sum(halves ? a : v16_add(a, b)); /* small integers: exact in any order */
    sums.half[1] = halves ? (int32_t)v16_sum(b) : 0;
    return sums;
}

/* What the kernel of a weight's type adds for this group; a type of whole groups takes the sum of both halves. */
ESP_VEC_INLINE void set_side(const struct esp_format *f, void *side, size_t group, size_t row,
                             const struct group_sums *sums)
{
    float *floats = side;
    int32_t *ints = side;
    size_t n_halves = f->group == 16 ? 2 : 1;
    for (size_t h = 0; h < n_halves; h++) {
        size_t at = (group * n_halves + h) * ESP_ROW_BLOCK + row;
        int32_t sum = n_halves == 2 ? sums->half[h] : sums->half[0] + sums->half[1];
        if (f->has_min) {
            floats[at] = sums->d * (float)sum;
        } else {
            ints[at] = -(int32_t)f->zero * sum;
        }
    }
}

void ESP_LEVEL_NAME(esp_x86_quantise)(const struct esp_linear_args *args, const struct esp_quant *quant,
                                      uint32_t row, uint32_t row_end)
{
    size_t n_in = args->weight[0]->n_in, n_groups = n_in / 32;
    const struct esp_format *formats[ESP_LINEAR_FAN_OUT];
    bool halves = false;
    for (uint32_t w = 0; w < args->n_weights; w++) {
        formats[w] = esp_format(args->weight[w]->type);
        halves = halves || formats[w]->group == 16;
    }
    for (size_t r = row; r < row_end; r++) {
        size_t block_at = r / ESP_ROW_BLOCK * n_groups;
        for (size_t g = 0; g < n_groups; g++) {
            size_t at = (block_at + g) * ESP_ROW_BLOCK + r % ESP_ROW_BLOCK;
            struct group_sums sums = quantise_group(args->x + r * n_in + g * 32, quant->q + at * 32, halves);
            quant->d[at] = sums.d;
            for (uint32_t w = 0; w < args->n_weights; w++) {
                if (formats[w]->group != 0) {
                    set_side(formats[w], quant->side[w], block_at + g, r % ESP_ROW_BLOCK, &sums);
                }
            }
        }
    }
}
