/* Sixteen f32 lanes as an array: the form of kernels/cpu/vec.h for any CPU.
 *
 * Include vec.h, not this. min and max give the second argument when the comparison is false, as the
 * vector instructions do. Thread: any, pure functions.
 */
#ifndef ESP_KERNELS_CPU_VEC_SCALAR_H
#define ESP_KERNELS_CPU_VEC_SCALAR_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/inline.h"

struct v16_array {
    float v[16];
};
#define v16 struct v16_array

#define ESP_LANES(expr)                                                                                      \
    v16 r;                                                                                                   \
    for (int i = 0; i < 16; i++) {                                                                           \
        r.v[i] = (expr);                                                                                     \
    }                                                                                                        \
    return r

ESP_VEC_INLINE v16 v16_set1(float f)
{
    ESP_LANES(f);
}
ESP_VEC_INLINE v16 v16_load(const float *p)
{
    ESP_LANES(p[i]);
}
ESP_VEC_INLINE v16 v16_load_n(const float *p, uint32_t n)
{
    ESP_LANES((uint32_t)i < n ? p[i] : 0);
}
ESP_VEC_INLINE void v16_store(float *p, v16 a)
{
    memcpy(p, a.v, sizeof a.v);
}
ESP_VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    ESP_LANES(a.v[i] - b.v[i]);
}
ESP_VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    ESP_LANES(a.v[i] * b.v[i]);
}
ESP_VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    ESP_LANES(__builtin_fmaf(a.v[i], b.v[i], c.v[i]));
}
ESP_VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    ESP_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]);
}
ESP_VEC_INLINE v16 v16_min(v16 a, v16 b)
{
    ESP_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]);
}
ESP_VEC_INLINE uint32_t v16_less_bits(v16 a, v16 b)
{
    uint32_t bits = 0;
    for (int i = 0; i < 16; i++) {
        bits |= (uint32_t)(a.v[i] < b.v[i]) << i;
    }
    return bits;
}
ESP_VEC_INLINE v16 v16_select(uint32_t bits, v16 a, v16 b)
{
    ESP_LANES((bits >> i & 1) != 0 ? a.v[i] : b.v[i]);
}
ESP_VEC_INLINE v16 v16_scale_by_bits(v16 p, v16 shifted)
{
    for (int i = 0; i < 16; i++) {
        uint32_t bits, exponent;
        memcpy(&bits, &p.v[i], sizeof bits);
        memcpy(&exponent, &shifted.v[i], sizeof exponent);
        bits += exponent << 23;
        memcpy(&p.v[i], &bits, sizeof bits);
    }
    return p;
}
ESP_VEC_INLINE float v16_hmax(v16 a)
{
    float m = a.v[0];
    for (int i = 1; i < 16; i++) {
        m = a.v[i] > m ? a.v[i] : m;
    }
    return m;
}
/* Adds the lanes to eight doubles: lane i and i + 8 go to sums[i], in this order. */
ESP_VEC_INLINE void v16_add_to_f64(v16 a, double sums[8])
{
    for (int i = 0; i < 8; i++) {
        sums[i] += (double)a.v[i];
        sums[i] += (double)a.v[i + 8];
    }
}

#undef ESP_LANES
#endif
