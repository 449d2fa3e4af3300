/* The table of tensor types, 16-bit floats, and plain decoding.
 *
 * The table lists every type that may occur in a file, so that any file can be inspected; `runs`
 * marks those that kernels exist for. Conversions work on bits and agree with the F16C instructions
 * for every input. Thread: any, constants and pure functions.
 */
#include "kernels/types.h"

#include <assert.h>
#include <string.h>

#include "kernels/format.h"

#define PLAIN(name_, bytes_, runs_) {.name = name_, .block = 1, .bytes = bytes_, .runs = runs_}

static const struct esp_type_info types[ESP_TYPE_COUNT] = {
    [0] = PLAIN("F32", 4, true),
    [1] = PLAIN("F16", 2, true),
    [2] = {"Q4_0", 32, 18, true},
    [3] = {"Q4_1", 32, 20, true},
    [6] = {"Q5_0", 32, 22, true},
    [7] = {"Q5_1", 32, 24, true},
    [8] = {"Q8_0", 32, 34, true},
    [10] = {"Q2_K", 256, 84, true},
    [11] = {"Q3_K", 256, 110, true},
    [12] = {"Q4_K", 256, 144, true},
    [13] = {"Q5_K", 256, 176, true},
    [14] = {"Q6_K", 256, 210, true},
    [16] = {"IQ2_XXS", 256, 66, false},
    [17] = {"IQ2_XS", 256, 74, false},
    [18] = {"IQ3_XXS", 256, 98, false},
    [19] = {"IQ1_S", 256, 50, false},
    [20] = {"IQ4_NL", 32, 18, false},
    [21] = {"IQ3_S", 256, 110, false},
    [22] = {"IQ2_S", 256, 82, false},
    [23] = {"IQ4_XS", 256, 136, false},
    [24] = PLAIN("I8", 1, false),
    [25] = PLAIN("I16", 2, false),
    [26] = PLAIN("I32", 4, false),
    [27] = PLAIN("I64", 8, false),
    [28] = PLAIN("F64", 8, false),
    [29] = {"IQ1_M", 256, 56, false},
    [30] = PLAIN("BF16", 2, true),
    [34] = {"TQ1_0", 256, 54, false},
    [35] = {"TQ2_0", 256, 66, false},
    [39] = {"MXFP4", 32, 17, false},
    [40] = {"NVFP4", 64, 36, false},
    [41] = {"Q1_0", 128, 18, false},
    [42] = {"Q2_0", 64, 18, false},
};

const struct esp_type_info *esp_type_info(uint32_t type)
{
    return type < ESP_TYPE_COUNT && types[type].name != NULL ? &types[type] : NULL;
}

static float f32_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float esp_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) {
        uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
        return f32_of_bits(sign | 0x7f800000 | quiet | mantissa << 13);
    }
    if (exponent == 0) {
        float f = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -f : f;
    }
    return f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t esp_f16_from_f32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    }
    if (magnitude >= 0x477ff000) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    }
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24, rounded by one float addition */
        float rounded = f32_of_bits(magnitude) + 0.5f;
        memcpy(&bits, &rounded, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | ((magnitude + 0xfff + odd - (112u << 23)) >> 13));
}

static void decode_blocks(enum esp_type type, const uint8_t *src, size_t n_values, float *dst)
{
    const struct esp_format *format = esp_format(type);
    const struct esp_type_info *info = &types[type];
    struct esp_block block;
    for (size_t at = 0; at < n_values; at += info->block, src += info->bytes) {
        esp_block_decode(type, src, &block);
        for (uint32_t i = 0; i < info->block; i++) {
            uint32_t g = i / format->group;
            float v = (block.d * (float)block.s[g]) * (float)block.q[i];
            dst[at + i] = format->has_min ? v + -(block.dmin * (float)block.m[g]) : v;
        }
    }
}

void esp_dequantize(enum esp_type type, const void *src, size_t n_values, float *dst)
{
    assert(esp_type_info(type) != NULL && types[type].runs && n_values % types[type].block == 0);
    if (n_values == 0) {
        return;
    }
    if (type == ESP_TYPE_F32) {
        memcpy(dst, src, n_values * sizeof *dst);
        return;
    }
    if (type != ESP_TYPE_F16 && type != ESP_TYPE_BF16) {
        decode_blocks(type, src, n_values, dst);
        return;
    }
    for (size_t i = 0; i < n_values; i++) {
        uint16_t bits;
        memcpy(&bits, (const uint8_t *)src + 2 * i, sizeof bits);
        dst[i] = type == ESP_TYPE_F16 ? esp_f16_to_f32(bits) : f32_of_bits((uint32_t)bits << 16);
    }
}
