/* The activations of gated layers, sixteen values at a time, in the steps of kernels/ref/math.h.
 *
 * Thread: any, pure functions.
 */
#ifndef ESP_KERNELS_X86_ACT_H
#define ESP_KERNELS_X86_ACT_H

#include "kernels/cpu/vec.h"
#include "kernels/ops.h"

ESP_VEC_INLINE v16 v16_silu(v16 x)
{
    v16 e = v16_exp(v16_sub(v16_set1(-0.0f), x));
    return v16_div(x, v16_add(v16_set1(1), e));
}

ESP_VEC_INLINE v16 v16_gelu_tanh(v16 x)
{
    v16 cube = v16_mul(v16_set1(ESP_GELU_CUBE), v16_mul(v16_mul(x, x), x));
    v16 e = v16_exp(v16_mul(v16_set1(ESP_GELU_SCALE), v16_add(x, cube)));
    return v16_div(x, v16_add(v16_set1(1), e));
}

ESP_VEC_INLINE v16 v16_act(enum esp_act act, v16 x)
{
    return act == ESP_ACT_SILU ? v16_silu(x) : v16_gelu_tanh(x);
}

#endif
