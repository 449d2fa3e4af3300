/* Integer linear for AVX2: half a panel (8 outputs) times up to four rows of input.
 *
 * vpmaddubsw adds pairs of products to 16 bits with saturation, so as many of them are added in 16 bits
 * as cannot overflow, then widened: with x within ±127, eight of 4-bit values (30,480), four of 5 bits
 * (31,496), two of 6 bits (32,004). For 8 bits, |w| · sign(x, w) stays at 32,512 in one.
 * Thread: any, see kernels/cpu/level.h.
 */
#include "kernels/x86/tile.h"

#define N_TILE_MAX 4
#define PREFETCH_BYTES 4096

/* Eight outputs of a group of 32 values: w[s] holds four values of each. 8-bit values are signed. */
ESP_VEC_INLINE void unpack(const uint8_t *p, const int half, const int bits, __m256i w[8])
{
    const __m256i mask = _mm256_set1_epi8(15);
    ESP_UNROLL
    for (int s = 0; bits == 8 && s < 8; s++) {
        __m256i v = _mm256_load_si256((const __m256i *)(const void *)(p + 64 * s + 32 * half));
        w[s] = _mm256_xor_si256(v, _mm256_set1_epi8(-128));
    }
    ESP_UNROLL
    for (int j = 0; bits < 8 && j < 4; j++) {
        __m256i v = _mm256_load_si256((const __m256i *)(const void *)(p + 64 * j + 32 * half));
        w[j] = _mm256_and_si256(v, mask);
        w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(v, 4), mask);
    }
    const __m256i byte_of_lane = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2,
                                                  2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit_of_lane = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    ESP_UNROLL
    for (int bit = 4; bits < 8 && bit < bits; bit++) {
        ESP_UNROLL
        for (int s = 0; s < 8; s++) {
            int32_t places;
            memcpy(&places, p + 256 + 64 * (bit - 4) + 8 * s + 4 * half, sizeof places);
            __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32(places), byte_of_lane);
            v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit_of_lane), bit_of_lane);
            w[s] = _mm256_or_si256(w[s], _mm256_and_si256(v, _mm256_set1_epi8((char)(1 << bit))));
        }
    }
}

ESP_VEC_INLINE __m256i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
}

/* Exact sums of n steps of four products, one an output. */
ESP_VEC_INLINE __m256i dot(const __m256i *w, const int8_t *q, const int bits, const int n_steps)
{
    const __m256i ones = _mm256_set1_epi16(1);
    const int n_short = bits == 4 ? 8 : bits == 5 ? 4 : bits == 6 ? 2 : 1;
    __m256i sum = _mm256_setzero_si256(), part = sum;
    ESP_UNROLL
    for (int k = 0; k < n_steps; k++) {
        __m256i x = broadcast4(q + 4 * k), v;
        if (bits == 8) {
            v = _mm256_maddubs_epi16(_mm256_abs_epi8(w[k]), _mm256_sign_epi8(x, w[k]));
        } else {
            v = _mm256_maddubs_epi16(w[k], x);
        }
        part = k % n_short == 0 ? v : _mm256_add_epi16(part, v);
        if (k % n_short == n_short - 1 || k == n_steps - 1) {
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(part, ones));
        }
    }
    return sum;
}

struct group_scales {
    __m256 scale[2], min[2];
};

ESP_VEC_INLINE __m256 load8_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

ESP_VEC_INLINE __m256 load8_codes(const uint8_t *p, const bool is_signed)
{
    __m128i v = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return _mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v));
}

/* Scales of the one or two weight groups in group g of 32 inputs; scales points at the half's first. */
ESP_VEC_INLINE struct group_scales load_scales(const uint8_t *scales, uint32_t g, const int half, const int group,
                                               const bool has_min, const bool has_codes)
{
    const size_t parts = has_min ? 2 : 1;
    struct group_scales s;
    if (!has_codes) {
        const uint8_t *p = scales + (size_t)g * 32 * parts + 16 * half;
        s.scale[0] = s.scale[1] = load8_f16(p);
        s.min[0] = s.min[1] = has_min ? load8_f16(p + 32) : _mm256_setzero_ps();
        return s;
    }
    const uint8_t *p = scales + g / 8 * (parts * 32 + parts * 16 * (256 / (size_t)group));
    __m256 d = load8_f16(p + 16 * half), dmin = _mm256_setzero_ps();
    if (has_min) {
        dmin = _mm256_xor_ps(_mm256_set1_ps(-0.0f), load8_f16(p + 32 + 16 * half));
    }
    const uint8_t *codes = p + 32 * parts + 16 * parts * (g % 8 * (32 / (size_t)group)) + 8 * half;
    ESP_UNROLL
    for (int h = 0; h < 32 / group; h++) {
        s.scale[h] = _mm256_mul_ps(d, load8_codes(codes, !has_min));
        s.min[h] = has_min ? _mm256_mul_ps(dmin, load8_codes(codes + 16, false)) : dmin;
        codes += 16 * parts;
    }
    return s;
}

/* sums [n_rows][16], of which this half's eight are written. */
ESP_VEC_INLINE void half_tile(const uint8_t *panel, uint32_t n_in, const struct esp_tile_x *x, float *sums,
                              const int half, const int bits, const int group, const bool has_min,
                              const bool has_codes, const int n_rows)
{
    const size_t group_bytes = bits == 8 ? 512 : 256 + 64 * (size_t)(bits - 4);
    const uint32_t n_groups = n_in / 32;
    const int n_halves = 32 / group, n_steps = group / 4;
    const uint8_t *scales = panel + group_bytes * n_groups;
    const float *side = x->side;
    __m256 acc[N_TILE_MAX];
    ESP_UNROLL
    for (int r = 0; r < n_rows; r++) {
        acc[r] = _mm256_setzero_ps();
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint8_t *p = panel + g * group_bytes;
        __m256i w[8];
        unpack(p, half, bits, w);
        ESP_UNROLL
        for (size_t line = 0; half == 0 && line < group_bytes; line += 64) {
            _mm_prefetch((const char *)p + line + PREFETCH_BYTES, _MM_HINT_T0);
        }
        struct group_scales s = load_scales(scales, g, half, group, has_min, has_codes);
        ESP_UNROLL
        for (int r = 0; r < n_rows; r++) {
            const size_t at = (size_t)g * ESP_ROW_BLOCK + (size_t)r;
            __m256 d = _mm256_set1_ps(x->d[at]);
            ESP_UNROLL
            for (int h = 0; h < n_halves; h++) {
                const size_t row = ((size_t)g * (size_t)n_halves + (size_t)h) * ESP_ROW_BLOCK + (size_t)r;
                __m256i isum = dot(w + h * n_steps, x->q + at * 32 + h * group, bits, n_steps);
                if (!has_min && bits != 8) {
                    isum = _mm256_add_epi32(isum, broadcast4(side + row));
                }
                acc[r] = _mm256_fmadd_ps(_mm256_mul_ps(s.scale[h], d), _mm256_cvtepi32_ps(isum), acc[r]);
                if (has_min) {
                    acc[r] = _mm256_fmadd_ps(s.min[h], _mm256_set1_ps(side[row]), acc[r]);
                }
            }
        }
    }
    ESP_UNROLL
    for (int r = 0; r < n_rows; r++) {
        _mm256_storeu_ps(sums + 16 * r + 8 * half, acc[r]);
    }
}

typedef void tile_fn(const uint8_t *panel, uint32_t n_in, const struct esp_tile_x *x, float *sums);

#define TILE(name, rows, bits, group, has_min, has_codes)                                                    \
    static void tile_##name##_##rows(const uint8_t *panel, uint32_t n_in, const struct esp_tile_x *x,        \
                                     float *sums)                                                            \
    {                                                                                                        \
        half_tile(panel, n_in, x, sums, 0, bits, group, has_min, has_codes, rows);                           \
        half_tile(panel, n_in, x, sums, 1, bits, group, has_min, has_codes, rows);                           \
    }
#define TILES(name, bits, group, has_min, has_codes)                                                         \
    TILE(name, 1, bits, group, has_min, has_codes)                                                           \
    TILE(name, 2, bits, group, has_min, has_codes)                                                           \
    TILE(name, 4, bits, group, has_min, has_codes)

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

#define ROW(name) {tile_##name##_1, tile_##name##_2, tile_##name##_4}
static tile_fn *const tiles[ESP_TYPE_COUNT][3] = {
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
    const bool glu = (args->flags & ESP_LINEAR_GLU) != 0;
    _Alignas(64) float sums[2][N_TILE_MAX * 16];
    for (uint32_t p = panel; p < panel_end; p++) {
        const uint8_t *data = (const uint8_t *)w->data + p * panel_bytes;
        for (uint32_t row = 0; row < args->n_rows;) {
            uint32_t left = args->n_rows - row, n_rows = left < N_TILE_MAX ? left : N_TILE_MAX;
            tile_fn *fn = tiles[w->type][n_rows <= 2 ? n_rows - 1 : 2];
            struct esp_tile_x x = esp_tile_x(quant, weight_idx, w, row);
            fn(data, w->n_in, &x, sums[0]);
            if (glu) {
                fn(data + esp_tile_glu_step(args), w->n_in, &x, sums[1]);
            }
            for (uint32_t r = 0; r < n_rows; r++) {
                if (glu) {
                    esp_tile_store_glu(args, row + r, p, sums[0] + 16 * r, sums[1] + 16 * r);
                } else {
                    esp_tile_store(args, weight_idx, row + r, p, sums[0] + 16 * r);
                }
            }
            row += n_rows;
        }
    }
}
