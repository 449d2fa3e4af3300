/* The type table, 16-bit floats over all their values, and the decoders against recorded blocks. */
#include <jansson.h>
#include <math.h>

#include "kernels/format.h"
#include "kernels/types.h"
#include "tests/esptest.h"

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void test_table(void)
{
    int n_types = 0, n_run = 0;
    for (uint32_t type = 0; type < ESP_TYPE_COUNT + 10; type++) {
        const struct esp_type_info *info = esp_type_info(type);
        n_types += info != NULL;
        n_run += info != NULL && info->runs;
        if (info != NULL && info->runs && info->block > 1) {
            CHECK(esp_format(type)->group != 0, "%s", info->name);
        }
    }
    CHECK(n_types == 33, "%d", n_types);
    CHECK(n_run == 13, "%d", n_run);
    CHECK(esp_type_info(9) == NULL && esp_type_info(15) == NULL && esp_type_info(UINT32_MAX) == NULL);
    CHECK(esp_type_info(ESP_TYPE_Q6_K)->bytes == 210);
}

static void test_f16_exhaustive(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
        float f = esp_f16_to_f32((uint16_t)h);
        if (exponent == 31) {
            CHECK(mantissa == 0 ? isinf(f) : isnan(f), "%x", h);
            CHECK((esp_f16_from_f32(f) | (mantissa == 0 ? 0 : 0x200)) == (h | (mantissa == 0 ? 0 : 0x200)), "%x", h);
            continue;
        }
        double want = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
        CHECK((double)f == ((h & 0x8000) != 0 ? -want : want), "%x", h);
        CHECK(esp_f16_from_f32(f) == h, "%x", h);
        /* half-way to the next value goes to the even one, a little more goes up */
        if (h < 0x7bff) {
            float next = esp_f16_to_f32((uint16_t)(h + 1)), middle = (float)(((double)f + (double)next) / 2);
            CHECK(esp_f16_from_f32(middle) == (h & 1 ? h + 1 : h), "%x", h);
            CHECK(esp_f16_from_f32(of_bits(bits_of(middle) + 1)) == h + 1, "%x", h);
            CHECK(esp_f16_from_f32(of_bits(bits_of(middle) - 1)) == h, "%x", h);
        }
    }
    CHECK(esp_f16_from_f32(65519.0f) == 0x7bff);
    CHECK(esp_f16_from_f32(65520.0f) == 0x7c00);
    CHECK(esp_f16_from_f32(-1e30f) == 0xfc00);
    CHECK(esp_f16_from_f32(0x1p-25f) == 0 && esp_f16_from_f32(0x1.000002p-25f) == 1);
}

static size_t unhex(const char *hex, uint8_t *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (uint8_t)byte;
    }
    return n;
}

static void check_golden(const json_t *row, int *n_rows)
{
    static uint8_t data[65536], want[65536];
    static float got[4096];
    uint32_t type = (uint32_t)json_integer_value(json_object_get(row, "type"));
    const struct esp_type_info *info = esp_type_info(type);
    REQUIRE(info != NULL, "type %u", type);
    CHECK(info->block == json_integer_value(json_object_get(row, "block")), "%s", info->name);
    CHECK(info->bytes == json_integer_value(json_object_get(row, "bytes")), "%s", info->name);
    if (!info->runs) {
        return;
    }
    size_t n = (size_t)json_integer_value(json_object_get(row, "n"));
    size_t n_data = unhex(json_string_value(json_object_get(row, "data")), data);
    unhex(json_string_value(json_object_get(row, "f32")), want);
    REQUIRE(n <= 4096 && n_data == n / info->block * info->bytes, "%s", info->name);
    esp_dequantize(type, data, n, got);
    for (size_t i = 0; i < n; i++) {
        float w;
        memcpy(&w, want + 4 * i, 4);
        CHECK(bits_of(w) == bits_of(got[i]) || (isnan(w) && isnan(got[i])) || (w == 0 && got[i] == 0),
              "%s value %zu: %a, want %a", info->name, i, (double)got[i], (double)w);
    }
    (*n_rows)++;
}

static void test_goldens(void)
{
    const char *path = esp_test_shared("data/quant/quant_goldens.jsonl");
    if (path == NULL) {
        return;
    }
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL, "%s", path);
    int n_rows = 0;
    json_error_t error;
    for (json_t *row; (row = json_loadf(file, JSON_DISABLE_EOF_CHECK, &error)) != NULL; json_decref(row)) {
        check_golden(row, &n_rows);
    }
    fclose(file);
    CHECK(n_rows == 24, "%d rows", n_rows);
}

ESP_TEST_MAIN(T(test_table), T(test_f16_exhaustive), T(test_goldens))
