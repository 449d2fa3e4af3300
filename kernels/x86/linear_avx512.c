/* Integer linear for AVX-512 VNNI: 64 multiply-adds an instruction, nothing else in the inner loop.
 *
 * One panel vector holds four values of each of 16 outputs; the input's four values are a broadcast
 * operand from memory. Weights of a group are unpacked once and stay in eight registers while the rows
 * of the tile pass; 12 float sums, a scale and a minimum fill the rest. Zero points are in the start
 * value of the integer sum. Thread: any, see kernels/cpu/level.h.
 */
#include "kernels/x86/tile.h"

#define N_TILE_MAX 12
#define PREFETCH_BYTES 4096

ESP_VEC_INLINE __m512i load_bits(const uint8_t *p)
{
    return _mm512_load_si512((const void *)p);
}

/* Unpacks a group of 32 values of 16 outputs to eight vectors, step by step of four values. */
ESP_VEC_INLINE void unpack(const uint8_t *p, int bits, __m512i w[8])
{
    const __m512i mask = _mm512_set1_epi8(15);
    if (bits == 8) {
        ESP_UNROLL
        for (int s = 0; s < 8; s++) {
            w[s] = load_bits(p + 64 * s);
        }
        return;
    }
    ESP_UNROLL
    for (int j = 0; j < 4; j++) {
        __m512i v = load_bits(p + 64 * j);
        w[j] = _mm512_and_si512(v, mask);
        w[j + 4] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    }
    ESP_UNROLL
    for (int bit = 4; bit < bits; bit++) {
        ESP_UNROLL
        for (int s = 0; s < 8; s++) {
            uint64_t places;
            memcpy(&places, p + 256 + 64 * (bit - 4) + 8 * s, sizeof places);
            w[s] = _mm512_mask_add_epi8(w[s], places, w[s], _mm512_set1_epi8((char)(1 << bit)));
        }
    }
}

ESP_VEC_INLINE __m512i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

struct group_scales {
    v16 scale[2], min[2];
};

/* Scales of the one or two weight groups in group g of 32 inputs. */
ESP_VEC_INLINE struct group_scales load_scales(const uint8_t *scales, uint32_t g, int group, bool has_min,
                                               bool has_codes)
{
    const size_t parts = has_min ? 2 : 1;
    struct group_scales s;
    if (!has_codes) {
        const uint8_t *p = scales + (size_t)g * 32 * parts;
        s.scale[0] = s.scale[1] = v16_load_f16((const uint16_t *)(const void *)p);
        s.min[0] = s.min[1] = has_min ? v16_load_f16((const uint16_t *)(const void *)(p + 32)) : v16_set1(0);
        return s;
    }
    const size_t n_codes = 256 / (size_t)group;
    const uint8_t *p = scales + g / 8 * (parts * 32 + parts * 16 * n_codes);
    v16 d = v16_load_f16((const uint16_t *)(const void *)p), dmin = v16_set1(0);
    if (has_min) {
        dmin = v16_sub(v16_set1(-0.0f), v16_load_f16((const uint16_t *)(const void *)(p + 32)));
    }
    const uint8_t *codes = p + 32 * parts + 16 * parts * (g % 8 * (32 / (size_t)group));
    ESP_UNROLL
    for (int h = 0; h < 32 / group; h++) {
        s.scale[h] = v16_mul(d, has_min ? v16_load_u8(codes) : v16_load_i8(codes));
        s.min[h] = has_min ? v16_mul(dmin, v16_load_u8(codes + 16)) : dmin;
        codes += 16 * parts;
    }
    return s;
}

/* sums [n_rows][16]; the format's parts and n_rows are constants wherever this is inlined. */
ESP_VEC_INLINE void tile(const uint8_t *panel, uint32_t n_in, const struct esp_tile_x *x, float *sums, const int bits,
                         const int group, const bool has_min, const bool has_codes, const int n_rows)
{
    const size_t group_bytes = bits == 8 ? 512 : 256 + 64 * (size_t)(bits - 4);
    const uint32_t n_groups = n_in / 32;
    const int n_halves = 32 / group, n_steps = group / 4;
    const uint8_t *scales = panel + group_bytes * n_groups;
    const size_t block = (size_t)n_groups * ESP_ROW_BLOCK;
    const float *side = x->side;
    v16 acc[N_TILE_MAX];
    ESP_UNROLL
    for (int r = 0; r < n_rows; r++) {
        acc[r] = v16_set1(0);
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint8_t *p = panel + g * group_bytes;
        __m512i w[8];
        unpack(p, bits, w);
        if (n_rows <= 4) {
            ESP_UNROLL
            for (size_t line = 0; line < group_bytes; line += 64) {
                _mm_prefetch((const char *)p + line + PREFETCH_BYTES, _MM_HINT_T0);
            }
        }
        struct group_scales s = load_scales(scales, g, group, has_min, has_codes);
        ESP_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const size_t at = (size_t)(r / ESP_ROW_BLOCK) * block + g * ESP_ROW_BLOCK + (size_t)(r % ESP_ROW_BLOCK);
            const size_t row = (size_t)(r / ESP_ROW_BLOCK) * block * (size_t)n_halves +
                               (size_t)g * (size_t)n_halves * ESP_ROW_BLOCK + (size_t)(r % ESP_ROW_BLOCK);
            const int8_t *q = x->q + at * 32;
            v16 d = v16_set1(x->d[at]);
            ESP_UNROLL
            for (int h = 0; h < n_halves; h++) {
                __m512i isum = has_min ? _mm512_setzero_si512() : broadcast4(side + row + (size_t)h * ESP_ROW_BLOCK);
                ESP_UNROLL
                for (int k = h * n_steps; k < (h + 1) * n_steps; k++) {
                    isum = _mm512_dpbusd_epi32(isum, w[k], broadcast4(q + 4 * k));
                }
                acc[r] = v16_fma(v16_mul(s.scale[h], d), _mm512_cvtepi32_ps(isum), acc[r]);
                if (has_min) {
                    acc[r] = v16_fma(s.min[h], v16_set1(side[row + (size_t)h * ESP_ROW_BLOCK]), acc[r]);
                }
            }
        }
    }
    ESP_UNROLL
    for (int r = 0; r < n_rows; r++) {
        v16_store(sums + 16 * r, acc[r]);
    }
}

typedef void tile_fn(const uint8_t *panel, uint32_t n_in, const struct esp_tile_x *x, float *sums);

#define TILE(name, rows, bits, group, has_min, has_codes)                                                    \
    static void tile_##name##_##rows(const uint8_t *panel, uint32_t n_in, const struct esp_tile_x *x,        \
                                     float *sums)                                                            \
    {                                                                                                        \
        tile(panel, n_in, x, sums, bits, group, has_min, has_codes, rows);                                   \
    }
#define TILES(name, bits, group, has_min, has_codes)                                                         \
    TILE(name, 1, bits, group, has_min, has_codes)                                                           \
    TILE(name, 2, bits, group, has_min, has_codes)                                                           \
    TILE(name, 3, bits, group, has_min, has_codes)                                                           \
    TILE(name, 4, bits, group, has_min, has_codes)                                                           \
    TILE(name, 8, bits, group, has_min, has_codes)                                                           \
    TILE(name, 12, bits, group, has_min, has_codes)

TILES(q4_0, 4, 32, false, false)
TILES(q4_1, 4, 32, true, false)
TILES(q5_0, 5, 32, false, false)
TILES(q5_1, 5, 32, true, false)
TILES(q8_0, 8, 32, false, false)
TILES(q2_k, 4, 16, true, true)
TILES(q3_k, 4, 16, false, true)
TILES(q4_k, 4, 32, true, true)
TILES(q5_k, 5, 32, true, true)
TILES(q6_k, 6, 16, false, true)

#define ROW(name) {tile_##name##_1, tile_##name##_2, tile_##name##_3, tile_##name##_4, tile_##name##_8, tile_##name##_12}
static tile_fn *const tiles[ESP_TYPE_COUNT][6] = {
    [ESP_TYPE_Q4_0] = ROW(q4_0), [ESP_TYPE_Q4_1] = ROW(q4_1), [ESP_TYPE_Q5_0] = ROW(q5_0),
    [ESP_TYPE_Q5_1] = ROW(q5_1), [ESP_TYPE_Q8_0] = ROW(q8_0), [ESP_TYPE_Q2_K] = ROW(q2_k),
    [ESP_TYPE_Q3_K] = ROW(q3_k), [ESP_TYPE_Q4_K] = ROW(q4_k), [ESP_TYPE_Q5_K] = ROW(q5_k),
    [ESP_TYPE_Q6_K] = ROW(q6_k),
};

void ESP_LEVEL_NAME(esp_x86_linear_int)(const struct esp_linear_args *args, const struct esp_quant *quant,
                                        uint32_t weight_idx, uint32_t panel, uint32_t panel_end)
{
    const struct esp_weight *w = args->weight[weight_idx];
    const size_t panel_bytes = esp_panel_shape(w->type, w->n_in).bytes;
    _Alignas(64) float sums[N_TILE_MAX * 16];
    for (uint32_t row = 0; row < args->n_rows;) {
        uint32_t left = args->n_rows - row, n_rows = left < N_TILE_MAX ? left : N_TILE_MAX;
        /* rows between the sizes of tiles are filled up: what is computed for them is not stored */
        tile_fn *fn = tiles[w->type][n_rows <= 4 ? n_rows - 1 : n_rows <= 8 ? 4 : 5];
        struct esp_tile_x x = esp_tile_x(quant, weight_idx, w, row);
        for (uint32_t p = panel; p < panel_end; p++) {
            fn((const uint8_t *)w->data + p * panel_bytes, w->n_in, &x, sums);
            for (uint32_t r = 0; r < n_rows; r++) {
                esp_tile_store(args, weight_idx, row + r, p, sums + 16 * r);
            }
        }
        row += n_rows;
    }
}
