/* Sixteen f32 lanes in one AVX-512 register: a form of kernels/cpu/vec.h.
 *
 * Include vec.h, not this. Needs F, BW, VL and DQ. Thread: any, pure functions.
 */
#ifndef ESP_KERNELS_CPU_VEC_AVX512_H
#define ESP_KERNELS_CPU_VEC_AVX512_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/inline.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define v16 __m512

ESP_VEC_INLINE v16 v16_set1(float f)
{
    return _mm512_set1_ps(f);
}
ESP_VEC_INLINE v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
ESP_VEC_INLINE v16 v16_load_n(const float *p, uint32_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
ESP_VEC_INLINE void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
ESP_VEC_INLINE void v16_store_n(float *p, v16 a, uint32_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
ESP_VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
ESP_VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
ESP_VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
ESP_VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
ESP_VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
ESP_VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
ESP_VEC_INLINE v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
ESP_VEC_INLINE v16 v16_abs(v16 a)
{
    return _mm512_abs_ps(a);
}
/* To the nearest integer, ties to even. */
ESP_VEC_INLINE v16 v16_round(v16 a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* Integers within ±127. */
ESP_VEC_INLINE void v16_store_i8(int8_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
}
ESP_VEC_INLINE uint32_t v16_less_bits(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
ESP_VEC_INLINE v16 v16_select(uint32_t bits, v16 a, v16 b)
{
    return _mm512_mask_blend_ps((__mmask16)bits, b, a);
}
ESP_VEC_INLINE v16 v16_scale_by_bits(v16 p, v16 shifted)
{
    __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
}
ESP_VEC_INLINE float v16_sum(v16 a)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
ESP_VEC_INLINE float v16_hmax(v16 a)
{
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
ESP_VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
ESP_VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ESP_VEC_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
ESP_VEC_INLINE v16 v16_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
ESP_VEC_INLINE v16 v16_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
/* Adds the lanes to eight doubles: lane i and i + 8 go to sums[i], in this order. */
ESP_VEC_INLINE void v16_add_to_f64(v16 a, double sums[8])
{
    __m512d s = _mm512_loadu_pd(sums);
    s = _mm512_add_pd(s, _mm512_cvtps_pd(_mm512_castps512_ps256(a)));
    s = _mm512_add_pd(s, _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
    _mm512_storeu_pd(sums, s);
}

#endif
#endif
