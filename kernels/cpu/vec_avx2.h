/* Sixteen f32 lanes in two AVX2 registers: a form of kernels/cpu/vec.h.
 *
 * Include vec.h, not this. Needs AVX2, FMA and F16C. Thread: any, pure functions.
 */
#ifndef ESP_KERNELS_CPU_VEC_AVX2_H
#define ESP_KERNELS_CPU_VEC_AVX2_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/inline.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
#include <immintrin.h>

struct v16_pair {
    __m256 lo, hi;
};
#define v16 struct v16_pair

#define ESP_BOTH(lo_, hi_)                                                                                   \
    (v16)                                                                                                    \
    {                                                                                                        \
        lo_, hi_                                                                                             \
    }

ESP_VEC_INLINE v16 v16_set1(float f)
{
    __m256 v = _mm256_set1_ps(f);
    return ESP_BOTH(v, v);
}
ESP_VEC_INLINE v16 v16_load(const float *p)
{
    return ESP_BOTH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
ESP_VEC_INLINE v16 v16_load_n(const float *p, uint32_t n)
{
    float lanes[16] = {0};
    memcpy(lanes, p, n * sizeof *p);
    return v16_load(lanes);
}
ESP_VEC_INLINE void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}
ESP_VEC_INLINE void v16_store_n(float *p, v16 a, uint32_t n)
{
    float lanes[16];
    v16_store(lanes, a);
    memcpy(p, lanes, n * sizeof *p);
}
ESP_VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    return ESP_BOTH(_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi));
}
ESP_VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    return ESP_BOTH(_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi));
}
ESP_VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    return ESP_BOTH(_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi));
}
ESP_VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    return ESP_BOTH(_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi));
}
ESP_VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return ESP_BOTH(_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi));
}
ESP_VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    return ESP_BOTH(_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi));
}
ESP_VEC_INLINE v16 v16_min(v16 a, v16 b)
{
    return ESP_BOTH(_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi));
}
ESP_VEC_INLINE v16 v16_abs(v16 a)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return ESP_BOTH(_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi));
}
/* To the nearest integer, ties to even. */
ESP_VEC_INLINE v16 v16_round(v16 a)
{
    return ESP_BOTH(_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                    _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* Integers within ±127. */
ESP_VEC_INLINE void v16_store_i8(int8_t *p, v16 a)
{
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
    words = _mm256_permute4x64_epi64(words, 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)(void *)p, bytes);
}
ESP_VEC_INLINE uint32_t v16_less_bits(v16 a, v16 b)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)) |
           (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)) << 8;
}
/* All ones in lane i when bit i is set. */
ESP_VEC_INLINE __m256 v8_mask_of_bits(uint32_t bits)
{
    __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i have = _mm256_and_si256(_mm256_set1_epi32((int)bits), bit);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(have, bit));
}
ESP_VEC_INLINE v16 v16_select(uint32_t bits, v16 a, v16 b)
{
    return ESP_BOTH(_mm256_blendv_ps(b.lo, a.lo, v8_mask_of_bits(bits)),
                    _mm256_blendv_ps(b.hi, a.hi, v8_mask_of_bits(bits >> 8)));
}
ESP_VEC_INLINE __m256 v8_scale_by_bits(__m256 p, __m256 shifted)
{
    __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}
ESP_VEC_INLINE v16 v16_scale_by_bits(v16 p, v16 shifted)
{
    return ESP_BOTH(v8_scale_by_bits(p.lo, shifted.lo), v8_scale_by_bits(p.hi, shifted.hi));
}
ESP_VEC_INLINE float v16_sum(v16 a)
{
    __m256 eight = _mm256_add_ps(a.lo, a.hi);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
ESP_VEC_INLINE float v16_hmax(v16 a)
{
    __m256 eight = _mm256_max_ps(a.lo, a.hi);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
ESP_VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return ESP_BOTH(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8))));
}
ESP_VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *)(void *)(p + 8),
                     _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
ESP_VEC_INLINE __m256 v8_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
ESP_VEC_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return ESP_BOTH(v8_load_bf16(p), v8_load_bf16(p + 8));
}
ESP_VEC_INLINE v16 v16_load_u8(const uint8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return ESP_BOTH(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))));
}
ESP_VEC_INLINE v16 v16_load_i8(const uint8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
    return ESP_BOTH(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))));
}
/* Adds the lanes to eight doubles: lane i and i + 8 go to sums[i], in this order. */
ESP_VEC_INLINE void v16_add_to_f64(v16 a, double sums[8])
{
    for (int half = 0; half < 2; half++) {
        __m256d s = _mm256_loadu_pd(sums + 4 * half);
        __m128 lo = half == 0 ? _mm256_castps256_ps128(a.lo) : _mm256_extractf128_ps(a.lo, 1);
        __m128 hi = half == 0 ? _mm256_castps256_ps128(a.hi) : _mm256_extractf128_ps(a.hi, 1);
        s = _mm256_add_pd(_mm256_add_pd(s, _mm256_cvtps_pd(lo)), _mm256_cvtps_pd(hi));
        _mm256_storeu_pd(sums + 4 * half, s);
    }
}

#endif
#endif
