/* exp, SiLU and GELU in one fixed sequence of f32 operations, the same at every CPU level.
 *
 * exp(x) = 2^n · p(r), n = rint(x · log2 e), r = x − n · ln 2 in two parts, p a polynomial of degree 6
 * (coefficients 1/k!, relative error below 2e-7 for |r| ≤ ln 2 / 2). Below −87 the result is 0, above
 * 88 that of 88. n is found by adding 1.5 · 2^23, which leaves it in the low bits of the sum, so that
 * no conversion to integer can trap or differ. Vector code runs the same steps lane by lane.
 * Thread: any, pure functions.
 */
#ifndef ESP_KERNELS_REF_MATH_H
#define ESP_KERNELS_REF_MATH_H

#include <stdint.h>
#include <string.h>

#define ESP_EXP_LOW (-87.0f)
#define ESP_EXP_HIGH 88.0f
#define ESP_EXP_LOG2E 0x1.715476p+0f
#define ESP_EXP_ROUND 0x1.8p+23f
#define ESP_EXP_LN2_HIGH 0x1.62e4p-1f
#define ESP_EXP_LN2_LOW 0x1.7f7d1cp-20f
#define ESP_EXP_C6 0x1.6c16c2p-10f
#define ESP_EXP_C5 0x1.111112p-7f
#define ESP_EXP_C4 0x1.555556p-5f
#define ESP_EXP_C3 0x1.555556p-3f
#define ESP_EXP_C2 0.5f

#define ESP_GELU_SCALE (-1.5957691216f) /* −2 · sqrt(2 / π) */
#define ESP_GELU_CUBE 0.044715f

static inline float esp_expf(float x)
{
    float clamped = x > ESP_EXP_LOW ? x : ESP_EXP_LOW;
    clamped = clamped < ESP_EXP_HIGH ? clamped : ESP_EXP_HIGH;
    float shifted = __builtin_fmaf(clamped, ESP_EXP_LOG2E, ESP_EXP_ROUND);
    float n = shifted - ESP_EXP_ROUND;
    float r = __builtin_fmaf(n, -ESP_EXP_LN2_HIGH, clamped);
    r = __builtin_fmaf(n, -ESP_EXP_LN2_LOW, r);
    float p = __builtin_fmaf(ESP_EXP_C6, r, ESP_EXP_C5);
    p = __builtin_fmaf(p, r, ESP_EXP_C4);
    p = __builtin_fmaf(p, r, ESP_EXP_C3);
    p = __builtin_fmaf(p, r, ESP_EXP_C2);
    p = __builtin_fmaf(p, r, 1.0f);
    p = __builtin_fmaf(p, r, 1.0f);
    uint32_t bits, exponent;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&exponent, &shifted, sizeof exponent);
    bits += exponent << 23;
    memcpy(&p, &bits, sizeof p);
    return x < ESP_EXP_LOW ? 0.0f : p;
}

static inline float esp_siluf(float x)
{
    return x / (1.0f + esp_expf(-x));
}

/* 0.5·x·(1 + tanh(u)) = x / (1 + exp(−2u)), u = sqrt(2/π) · (x + 0.044715·x³) */
static inline float esp_gelu_tanhf(float x)
{
    float inner = x + ESP_GELU_CUBE * ((x * x) * x);
    return x / (1.0f + esp_expf(ESP_GELU_SCALE * inner));
}

/* sixteen lane sums added 8+8, 4+4, 2+2, 1+1 */
static inline float esp_sum_lanes(const float lanes[16])
{
    float eight[8], four[4];
    for (int i = 0; i < 8; i++) {
        eight[i] = lanes[i] + lanes[i + 8];
    }
    for (int i = 0; i < 4; i++) {
        four[i] = eight[i] + eight[i + 4];
    }
    return (four[0] + four[2]) + (four[1] + four[3]);
}

#endif
