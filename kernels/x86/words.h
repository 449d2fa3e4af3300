/* Integers of K, V, queries and weights: sixteen pairs of 16 bits, multiplied and added to sixteen 32-bit sums.
 *
 * One AVX-512 register or two of AVX2, as kernels/cpu/vec.h has floats; sums are exact modulo 2^32, so both
 * levels and any order give the same. Thread: any, pure functions.
 */
#ifndef ESP_KERNELS_X86_WORDS_H
#define ESP_KERNELS_X86_WORDS_H

#include "kernels/cpu/kv.h"
#include "kernels/cpu/vec.h"

#if defined(__AVX512F__)

#define w16 __m512i

ESP_VEC_INLINE w16 w16_zero(void)
{
    return _mm512_setzero_si512();
}
ESP_VEC_INLINE w16 w16_load(const int16_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}
/* The pair at p, sixteen times. */
ESP_VEC_INLINE w16 w16_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}
/* As an instruction by hand: gcc 12 copies the sums of the intrinsic to memory and back. */
ESP_VEC_INLINE w16 w16_dot(w16 sum, w16 a, w16 b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
ESP_VEC_INLINE w16 w16_add(w16 a, w16 b)
{
    return _mm512_add_epi32(a, b);
}
ESP_VEC_INLINE v16 w16_to_f32(w16 a)
{
    return _mm512_cvtepi32_ps(a);
}
/* Rounds to the nearest integers, ties to even, which must fit 16 bits. */
ESP_VEC_INLINE void v16_store_i16(int16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a)));
}

#elif defined(__AVX2__)

struct w16_pair_of {
    __m256i lo, hi;
};
#define w16 struct w16_pair_of

ESP_VEC_INLINE w16 w16_zero(void)
{
    return (w16){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
ESP_VEC_INLINE w16 w16_load(const int16_t *p)
{
    return (w16){_mm256_loadu_si256((const __m256i *)(const void *)p),
                 _mm256_loadu_si256((const __m256i *)(const void *)(p + 16))};
}
ESP_VEC_INLINE w16 w16_pair(const int16_t *p)
{
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    __m256i v = _mm256_set1_epi32(pair);
    return (w16){v, v};
}
ESP_VEC_INLINE w16 w16_dot(w16 sum, w16 a, w16 b)
{
    return (w16){_mm256_add_epi32(sum.lo, _mm256_madd_epi16(a.lo, b.lo)),
                 _mm256_add_epi32(sum.hi, _mm256_madd_epi16(a.hi, b.hi))};
}
ESP_VEC_INLINE w16 w16_add(w16 a, w16 b)
{
    return (w16){_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
ESP_VEC_INLINE v16 w16_to_f32(w16 a)
{
    return ESP_BOTH(_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi));
}
ESP_VEC_INLINE void v16_store_i16(int16_t *p, v16 a)
{
    __m256i words = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(words, 0xd8));
}

#endif

/* A key or query of `dim` numbers as integers; returns its scale. */
ESP_VEC_INLINE float esp_words_of_key(const float *x, uint32_t dim, int16_t *out)
{
    v16 sum = v16_set1(0);
    for (uint32_t d = 0; d < dim; d += 16) {
        v16 v = v16_load(x + d);
        sum = v16_fma(v, v, sum);
    }
    float length = __builtin_sqrtf(v16_sum(sum));
    bool zero = length < ESP_KV_LENGTH_MIN;
    v16 factor = v16_set1(ESP_KV_KEY_MAX / length), high = v16_set1(ESP_KV_KEY_MAX);
    v16 low = v16_set1(-ESP_KV_KEY_MAX);
    for (uint32_t d = 0; d < dim; d += 16) {
        v16 v = v16_max(v16_min(v16_mul(v16_load(x + d), factor), high), low);
        v16_store_i16(out + d, zero ? v16_set1(0) : v);
    }
    return zero ? 0 : length / ESP_KV_KEY_MAX;
}

/* A value of `dim` numbers as integers; returns its scale. */
ESP_VEC_INLINE float esp_words_of_value(const float *x, uint32_t dim, int16_t *out)
{
    v16 most = v16_set1(0);
    for (uint32_t d = 0; d < dim; d += 16) {
        most = v16_max(v16_abs(v16_load(x + d)), most);
    }
    float amax = v16_hmax(most);
    bool zero = amax < ESP_KV_AMAX_MIN;
    v16 factor = v16_set1(ESP_KV_VALUE_MAX / amax), high = v16_set1(ESP_KV_VALUE_MAX);
    v16 low = v16_set1(-ESP_KV_VALUE_MAX);
    for (uint32_t d = 0; d < dim; d += 16) {
        v16 v = v16_max(v16_min(v16_mul(v16_load(x + d), factor), high), low);
        v16_store_i16(out + d, zero ? v16_set1(0) : v);
    }
    return zero ? 0 : amax / ESP_KV_VALUE_MAX;
}

#endif
