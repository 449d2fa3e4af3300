/* Decoders of the quantised block formats into the common form of format.h.
 *
 * One short function a format; the numbers in them are the byte offsets of the format. 16-bit floats
 * are read byte by byte, because blocks are not aligned. Thread: any, pure functions.
 */
#include "kernels/format.h"

#include <assert.h>
#include <string.h>

static const struct esp_format formats[ESP_TYPE_COUNT] = {
    [ESP_TYPE_Q4_0] = {.group = 32, .bits = 4, .zero = 8},
    [ESP_TYPE_Q4_1] = {.group = 32, .bits = 4, .has_min = true},
    [ESP_TYPE_Q5_0] = {.group = 32, .bits = 5, .zero = 16},
    [ESP_TYPE_Q5_1] = {.group = 32, .bits = 5, .has_min = true},
    [ESP_TYPE_Q8_0] = {.group = 32, .bits = 8, .zero = 128},
    [ESP_TYPE_Q2_K] = {.group = 16, .bits = 4, .has_min = true, .has_codes = true},
    [ESP_TYPE_Q3_K] = {.group = 16, .bits = 4, .zero = 4, .has_codes = true},
    [ESP_TYPE_Q4_K] = {.group = 32, .bits = 4, .has_min = true, .has_codes = true},
    [ESP_TYPE_Q5_K] = {.group = 32, .bits = 5, .has_min = true, .has_codes = true},
    [ESP_TYPE_Q6_K] = {.group = 16, .bits = 6, .zero = 32, .has_codes = true},
};

const struct esp_format *esp_format(enum esp_type type)
{
    assert((unsigned)type < ESP_TYPE_COUNT);
    return &formats[type];
}

static float half_at(const uint8_t *p)
{
    return esp_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static void nibbles(const uint8_t *p, int8_t *q, int zero)
{
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)((p[i] & 15) - zero);
        q[i + 16] = (int8_t)((p[i] >> 4) - zero);
    }
}

static void fifth_bits(const uint8_t *p, int8_t *q)
{
    uint32_t high = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    for (int i = 0; i < 32; i++) {
        q[i] = (int8_t)(q[i] + (int)((high >> i & 1) << 4));
    }
}

static void decode_small(enum esp_type type, const uint8_t *p, struct esp_block *b)
{
    b->d = half_at(p);
    b->dmin = 0;
    b->s[0] = b->m[0] = 1;
    switch (type) {
    case ESP_TYPE_Q4_0:
        nibbles(p + 2, b->q, 8);
        break;
    case ESP_TYPE_Q4_1:
        b->dmin = -half_at(p + 2);
        nibbles(p + 4, b->q, 0);
        break;
    case ESP_TYPE_Q5_0:
        nibbles(p + 6, b->q, 16);
        fifth_bits(p + 2, b->q);
        break;
    case ESP_TYPE_Q5_1:
        b->dmin = -half_at(p + 2);
        nibbles(p + 8, b->q, 0);
        fifth_bits(p + 4, b->q);
        break;
    default:
        memcpy(b->q, p + 2, 32);
        break;
    }
}

/* Two-bit values of Q2_K and Q3_K: byte l of each half holds l, l+32, l+64, l+96 from low bits to high. */
static void two_bits(const uint8_t *p, int8_t *q)
{
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 4; k++) {
            for (int l = 0; l < 32; l++) {
                q[half * 128 + k * 32 + l] = (int8_t)(p[half * 32 + l] >> (2 * k) & 3);
            }
        }
    }
}

static void decode_q2_k(const uint8_t *p, struct esp_block *b)
{
    b->d = half_at(p + 80);
    b->dmin = half_at(p + 82);
    for (int g = 0; g < 16; g++) {
        b->s[g] = p[g] & 15;
        b->m[g] = p[g] >> 4;
    }
    two_bits(p + 16, b->q);
}

static void decode_q3_k(const uint8_t *p, struct esp_block *b)
{
    const uint8_t *s = p + 96;
    b->d = half_at(p + 108);
    b->dmin = 0;
    for (int g = 0; g < 16; g++) {
        int low = s[g & 7] >> (4 * (g >> 3)) & 15;
        int high = s[8 + (g & 3)] >> (2 * (g >> 2)) & 3;
        b->s[g] = (int16_t)((low | high << 4) - 32);
    }
    two_bits(p + 32, b->q);
    for (int g = 0; g < 8; g++) {
        for (int l = 0; l < 32; l++) {
            b->q[32 * g + l] = (int8_t)(b->q[32 * g + l] - ((p[l] >> g & 1) ^ 1) * 4);
        }
    }
}

/* Eight 6-bit scales and eight 6-bit minima in 12 bytes. */
static void scales_6bit(const uint8_t *p, struct esp_block *b)
{
    for (int g = 0; g < 4; g++) {
        b->s[g] = p[g] & 63;
        b->m[g] = p[g + 4] & 63;
        b->s[g + 4] = (int16_t)((p[g + 8] & 15) | p[g] >> 6 << 4);
        b->m[g + 4] = (int16_t)(p[g + 8] >> 4 | p[g + 4] >> 6 << 4);
    }
}

static void decode_q45_k(const uint8_t *p, const uint8_t *high, const uint8_t *low, struct esp_block *b)
{
    b->d = half_at(p);
    b->dmin = half_at(p + 2);
    scales_6bit(p + 4, b);
    for (int k = 0; k < 4; k++) {
        for (int l = 0; l < 32; l++) {
            b->q[64 * k + l] = (int8_t)(low[32 * k + l] & 15);
            b->q[64 * k + 32 + l] = (int8_t)(low[32 * k + l] >> 4);
        }
    }
    for (int g = 0; high != NULL && g < 8; g++) {
        for (int l = 0; l < 32; l++) {
            b->q[32 * g + l] = (int8_t)(b->q[32 * g + l] | (high[l] >> g & 1) << 4);
        }
    }
}

static void decode_q6_k(const uint8_t *p, struct esp_block *b)
{
    b->d = half_at(p + 208);
    b->dmin = 0;
    for (int g = 0; g < 16; g++) {
        b->s[g] = (int8_t)p[192 + g];
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *low = p + 64 * half, *high = p + 128 + 32 * half;
        int8_t *q = b->q + 128 * half;
        for (int l = 0; l < 32; l++) {
            q[l] = (int8_t)(((low[l] & 15) | (high[l] & 3) << 4) - 32);
            q[l + 32] = (int8_t)(((low[l + 32] & 15) | (high[l] >> 2 & 3) << 4) - 32);
            q[l + 64] = (int8_t)((low[l] >> 4 | (high[l] >> 4 & 3) << 4) - 32);
            q[l + 96] = (int8_t)((low[l + 32] >> 4 | high[l] >> 6 << 4) - 32);
        }
    }
}

void esp_block_decode(enum esp_type type, const uint8_t *src, struct esp_block *ret_block)
{
    assert(esp_format(type)->group != 0);
    switch (type) {
    case ESP_TYPE_Q2_K:
        decode_q2_k(src, ret_block);
        break;
    case ESP_TYPE_Q3_K:
        decode_q3_k(src, ret_block);
        break;
    case ESP_TYPE_Q4_K:
        decode_q45_k(src, NULL, src + 16, ret_block);
        break;
    case ESP_TYPE_Q5_K:
        decode_q45_k(src, src + 16, src + 48, ret_block);
        break;
    case ESP_TYPE_Q6_K:
        decode_q6_k(src, ret_block);
        break;
    default:
        decode_small(type, src, ret_block);
        break;
    }
}
