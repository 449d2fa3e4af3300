/* Sixteen f32 lanes: one AVX-512 register, two AVX2 registers, or an array.
 *
 * The files that use this are compiled once per level; the compiler's flags choose the form, and
 * ESP_LEVEL_NAME gives each level's functions their own names. All forms compute the same bits.
 * Everything is static, so that no wide instruction leaks into code that any CPU may run.
 * Thread: any, pure functions. Does not hold integer dot products: each level has its own.
 */
#ifndef ESP_KERNELS_CPU_VEC_H
#define ESP_KERNELS_CPU_VEC_H

#include "kernels/cpu/inline.h"
#include "kernels/ref/math.h"

#if defined(__AVX512F__)
#include "kernels/cpu/vec_avx512.h"
#define ESP_LEVEL_NAME(name) name##_avx512
#elif defined(__AVX2__)
#include "kernels/cpu/vec_avx2.h"
#define ESP_LEVEL_NAME(name) name##_avx2
#else
#include "kernels/cpu/vec_scalar.h"
#define ESP_LEVEL_NAME(name) name##_scalar
#endif

ESP_VEC_INLINE v16 v16_exp(v16 x)
{
    v16 clamped = v16_max(x, v16_set1(ESP_EXP_LOW));
    clamped = v16_min(clamped, v16_set1(ESP_EXP_HIGH));
    v16 shifted = v16_fma(clamped, v16_set1(ESP_EXP_LOG2E), v16_set1(ESP_EXP_ROUND));
    v16 n = v16_sub(shifted, v16_set1(ESP_EXP_ROUND));
    v16 r = v16_fma(n, v16_set1(-ESP_EXP_LN2_HIGH), clamped);
    r = v16_fma(n, v16_set1(-ESP_EXP_LN2_LOW), r);
    v16 p = v16_fma(v16_set1(ESP_EXP_C6), r, v16_set1(ESP_EXP_C5));
    p = v16_fma(p, r, v16_set1(ESP_EXP_C4));
    p = v16_fma(p, r, v16_set1(ESP_EXP_C3));
    p = v16_fma(p, r, v16_set1(ESP_EXP_C2));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_fma(p, r, v16_set1(1.0f));
    p = v16_scale_by_bits(p, shifted);
    return v16_select(v16_less_bits(x, v16_set1(ESP_EXP_LOW)), v16_set1(0.0f), p);
}

#endif
