/* Integer linear for AVX-512 VNNI: 64 multiply-adds an instruction, nothing else in the inner loop.
 *
 * One panel vector holds four values of each of 16 outputs; the input's four values are broadcast from
 * memory. A tile is two panels times up to six rows: every weight vector meets all rows and every
 * broadcast both panels before the next, because loads of 64 bytes are scarcer than multiplications;
 * 12 integer and 12 float sums fill the registers. Zero points are in the start value of the integer
 * sum. For many rows two panels are unpacked once, a block of groups that stays in the L1 cache at a
 * time, and all rows run over it; the float sums wait in memory between blocks, which changes no bit.
 * Thread: any, see kernels/cpu/level.h.
 */
#include "kernels/x86/tile.h"

#define N_PANELS_MAX 2
#define N_SUMS_MAX 12
#define AHEAD_BYTES 4096
#define AHEAD_BYTES_MAX 65536
#define N_ROWS_MANY 48 /* from here on unpacking once pays */
#define N_ROWS_WIDE 192 /* rows whose sums wait in memory; whole tiles */
#define N_GROUPS_WIDE 18
#define N_ROWS_TILE 6

ESP_VEC_INLINE __m512i load_bits(const uint8_t *p)
{
    return _mm512_load_si512((const void *)p);
}

/* Step s of a group: four values of each of 16 outputs. */
ESP_VEC_INLINE __m512i unpack_step(const uint8_t *p, const int bits, const int s)
{
    if (bits == 8) {
        return load_bits(p + 64 * s);
    }
    __m512i v = load_bits(p + 64 * (s % 4));
    v = _mm512_and_si512(s < 4 ? v : _mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
    ESP_UNROLL
    for (int bit = 4; bit < bits; bit++) {
        uint64_t places;
        memcpy(&places, p + 256 + 64 * (bit - 4) + 8 * s, sizeof places);
        v = _mm512_mask_add_epi8(v, places, v, _mm512_set1_epi8((char)(1 << bit)));
    }
    return v;
}

ESP_VEC_INLINE __m512i broadcast4(const void *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

struct group_scales {
    v16 scale, min;
};

/* Scales of weight group h of the one or two in group g of 32 inputs. */
ESP_VEC_INLINE struct group_scales load_scales(const uint8_t *scales, uint32_t g, const int h, const int group,
                                               const bool has_min, const bool has_codes)
{
    const size_t parts = has_min ? 2 : 1, n_codes = 256 / (size_t)group;
    struct group_scales s = {.min = v16_set1(0)};
    const uint8_t *p = scales + (has_codes ? g / 8 * parts * (32 + 16 * n_codes) : (size_t)g * 32 * parts);
    s.scale = v16_load_f16((const uint16_t *)(const void *)p);
    if (has_min) {
        s.min = v16_load_f16((const uint16_t *)(const void *)(p + 32));
    }
    if (has_codes) {
        const uint8_t *codes = p + 32 * parts + 16 * parts * (g % 8 * (32 / (size_t)group) + (size_t)h);
        s.scale = v16_mul(s.scale, has_min ? v16_load_u8(codes) : v16_load_i8(codes));
        s.min = has_min ? v16_mul(v16_sub(v16_set1(-0.0f), s.min), v16_load_u8(codes + 16)) : s.min;
    }
    return s;
}

/* Integer sums of one weight group, steps [first, end), for n_panels × n_rows. Small tiles have several sums each,
 * so that enough independent ones are under way; integers add up to the same in any order. */
ESP_VEC_INLINE void dot(const uint8_t *p, size_t panel_bytes, const int8_t *q, const int32_t *start, const int bits,
                        const int first, const int end, const int n_panels, const int n_rows, __m512i *isum)
{
    const int n = n_panels * n_rows, n_parts = n == 1 ? 4 : n <= 4 ? 2 : 1;
    __m512i part[N_SUMS_MAX];
    ESP_UNROLL
    for (int i = 0; i < n * n_parts; i++) {
        part[i] = start != NULL && i < n ? broadcast4(start + i % n_rows) : _mm512_setzero_si512();
    }
    ESP_UNROLL
    for (int s = first; s < end; s++) {
        const int step = end - first == 8 ? s / 2 + s % 2 * 4 : s; /* low and high nibbles of a vector in turn */
        __m512i w[N_PANELS_MAX];
        ESP_UNROLL
        for (int k = 0; k < n_panels; k++) {
            w[k] = unpack_step(p + (size_t)k * panel_bytes, bits, step);
        }
        ESP_UNROLL
        for (int r = 0; r < n_rows; r++) {
            __m512i x = broadcast4(q + 32 * r + 4 * step);
            ESP_UNROLL
            for (int k = 0; k < n_panels; k++) {
                const int at = (s % n_parts) * n + k * n_rows + r;
                part[at] = _mm512_dpbusd_epi32(part[at], w[k], x);
            }
        }
    }
    ESP_UNROLL
    for (int i = 0; i < n; i++) {
        isum[i] = part[i];
        ESP_UNROLL
        for (int k = 1; k < n_parts; k++) {
            isum[i] = _mm512_add_epi32(isum[i], part[k * n + i]);
        }
    }
}

ESP_VEC_INLINE void prefetch(const uint8_t *p, const size_t bytes)
{
    ESP_UNROLL
    for (size_t line = 0; line < bytes; line += 64) {
        _mm_prefetch((const char *)p + line, _MM_HINT_T0);
    }
}

/* sums [n_panels][n_rows][16]; ahead: from a place to the one to fetch meanwhile. The parts of the format and the
 * size are constants wherever this is inlined. */
ESP_VEC_INLINE void tile(const uint8_t *panel, size_t panel_bytes, size_t ahead, uint32_t n_in,
                         const struct esp_tile_x *x, float *sums, const int bits, const int group,
                         const bool has_min, const bool has_codes, const int n_panels, const int n_rows)
{
    const size_t group_bytes = bits == 8 ? 512 : 256 + 64 * (size_t)(bits - 4);
    const uint32_t n_groups = n_in / 32;
    const int n_halves = 32 / group, n_steps = group / 4;
    const uint8_t *scales = panel + group_bytes * n_groups, *side = x->side;
    const int8_t *q = x->q;
    const float *d = x->d;
    v16 acc[N_SUMS_MAX];
    ESP_UNROLL
    for (int i = 0; i < n_panels * n_rows; i++) {
        acc[i] = v16_set1(0);
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        ESP_UNROLL
        for (int h = 0; h < n_halves; h++) {
            __m512i isum[N_SUMS_MAX];
            dot(panel, panel_bytes, q, has_min ? NULL : (const int32_t *)(const void *)side, bits, h * n_steps,
                (h + 1) * n_steps, n_panels, n_rows, isum);
            ESP_UNROLL
            for (int k = 0; k < n_panels; k++) {
                struct group_scales s = load_scales(scales + (size_t)k * panel_bytes, g, h, group, has_min, has_codes);
                ESP_UNROLL
                for (int r = 0; r < n_rows; r++) {
                    v16 *sum = &acc[k * n_rows + r];
                    *sum = v16_fma(v16_mul(s.scale, v16_set1(d[r])), _mm512_cvtepi32_ps(isum[k * n_rows + r]), *sum);
                    if (has_min) {
                        *sum = v16_fma(s.min, v16_set1(((const float *)(const void *)side)[r]), *sum);
                    }
                }
            }
            side += ESP_ROW_BLOCK * sizeof(float);
        }
        ESP_UNROLL
        for (int k = 0; k < n_panels && n_rows <= 4; k++) {
            prefetch(panel + (size_t)k * panel_bytes + ahead, group_bytes);
            if (!has_codes) {
                prefetch(scales + (size_t)k * panel_bytes + ahead + (size_t)g * (has_min ? 64 : 32), 64);
            }
        }
        panel += group_bytes;
        q += (size_t)ESP_ROW_BLOCK * 32;
        d += ESP_ROW_BLOCK;
    }
    ESP_UNROLL
    for (int i = 0; i < n_panels * n_rows; i++) {
        v16_store(sums + 16 * i, acc[i]);
    }
}

/* Two panels of a block of groups: bytes as they are multiplied, scales in f32 for the one or two weight groups. */
struct wide {
    _Alignas(64) uint8_t w[N_GROUPS_WIDE][8][2][64];
    _Alignas(64) float scale[N_GROUPS_WIDE][2][2][16];
    _Alignas(64) float min[N_GROUPS_WIDE][2][2][16];
};

/* Groups [from, end) of two panels. */
ESP_VEC_INLINE void widen(const uint8_t *panel, size_t panel_bytes, uint32_t n_in, uint32_t from, uint32_t end,
                          struct wide *wide, const int bits, const int group, const bool has_min,
                          const bool has_codes)
{
    const size_t group_bytes = bits == 8 ? 512 : 256 + 64 * (size_t)(bits - 4);
    for (size_t k = 0; k < 2; k++, panel += panel_bytes) {
        for (uint32_t g = from; g < end; g++) {
            ESP_UNROLL
            for (int s = 0; s < 8; s++) {
                _mm512_store_si512(wide->w[g - from][s][k], unpack_step(panel + g * group_bytes, bits, s));
            }
            ESP_UNROLL
            for (int h = 0; h < 32 / group; h++) {
                struct group_scales scales =
                    load_scales(panel + group_bytes * (n_in / 32), g, h, group, has_min, has_codes);
                v16_store(wide->scale[g - from][h][k], scales.scale);
                v16_store(wide->min[g - from][h][k], scales.min);
            }
        }
    }
}

/* Adds n_groups groups to the sums [N_ROWS_TILE][2][16] of a tile, or begins them; x is that of the first group. */
ESP_VEC_INLINE void tile_wide(const struct wide *wide, uint32_t n_groups, const struct esp_tile_x *x, float *sums,
                              bool begin, const int group, const bool has_min)
{
    const int n_halves = 32 / group, n_steps = group / 4;
    const uint8_t *side = x->side, *w = wide->w[0][0][0];
    const int8_t *q = x->q;
    const float *d = x->d;
    v16 acc[2 * N_ROWS_TILE];
    ESP_UNROLL
    for (int i = 0; i < 2 * N_ROWS_TILE; i++) {
        acc[i] = begin ? v16_set1(0) : v16_load(sums + 16 * i);
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        ESP_UNROLL
        for (int h = 0; h < n_halves; h++) {
            __m512i isum[2 * N_ROWS_TILE];
            ESP_UNROLL
            for (int i = 0; i < 2 * N_ROWS_TILE; i++) {
                isum[i] = has_min ? _mm512_setzero_si512() : broadcast4(side + 4 * (i / 2));
            }
            ESP_UNROLL
            for (int s = h * n_steps; s < (h + 1) * n_steps; s++) {
                __m512i low = load_bits(w + 128 * s), high = load_bits(w + 128 * s + 64);
                ESP_UNROLL
                for (int r = 0; r < N_ROWS_TILE; r++) {
                    __m512i values = broadcast4(q + 32 * r + 4 * s);
                    isum[2 * r] = _mm512_dpbusd_epi32(isum[2 * r], low, values);
                    isum[2 * r + 1] = _mm512_dpbusd_epi32(isum[2 * r + 1], high, values);
                }
            }
            ESP_UNROLL
            for (int i = 0; i < 2 * N_ROWS_TILE; i++) {
                v16 factor = v16_mul(v16_load(wide->scale[g][h][i % 2]), v16_set1(d[i / 2]));
                acc[i] = v16_fma(factor, _mm512_cvtepi32_ps(isum[i]), acc[i]);
                if (has_min) {
                    v16 sum = v16_set1(((const float *)(const void *)side)[i / 2]);
                    acc[i] = v16_fma(v16_load(wide->min[g][h][i % 2]), sum, acc[i]);
                }
            }
            side += ESP_ROW_BLOCK * sizeof(float);
        }
        w += 8 * 128;
        q += (size_t)ESP_ROW_BLOCK * 32;
        d += ESP_ROW_BLOCK;
    }
    ESP_UNROLL
    for (int i = 0; i < 2 * N_ROWS_TILE; i++) {
        v16_store(sums + 16 * i, acc[i]);
    }
}

typedef void tile_fn(const uint8_t *panel, size_t panel_bytes, size_t ahead, uint32_t n_in,
                     const struct esp_tile_x *x, float *sums);

typedef void widen_fn(const uint8_t *panel, size_t panel_bytes, uint32_t n_in, uint32_t from, uint32_t end,
                      struct wide *wide);
typedef void tile_wide_fn(const struct wide *wide, uint32_t n_groups, const struct esp_tile_x *x, float *sums,
                          bool begin);

#define TILE(name, panels, rows, bits, group, has_min, has_codes)                                            \
    static void tile_##name##_##panels##_##rows(const uint8_t *panel, size_t panel_bytes, size_t ahead,      \
                                                uint32_t n_in, const struct esp_tile_x *x, float *sums)      \
    {                                                                                                        \
        tile(panel, panel_bytes, ahead, n_in, x, sums, bits, group, has_min, has_codes, panels, rows);              \
    }
#define TILES(name, bits, group, has_min, has_codes)                                                         \
    static void widen_##name(const uint8_t *panel, size_t panel_bytes, uint32_t n_in, uint32_t from,         \
                             uint32_t end, struct wide *wide)                                                \
    {                                                                                                        \
        widen(panel, panel_bytes, n_in, from, end, wide, bits, group, has_min, has_codes);                   \
    }                                                                                                        \
    TILE(name, 1, 1, bits, group, has_min, has_codes)                                                        \
    TILE(name, 1, 2, bits, group, has_min, has_codes)                                                        \
    TILE(name, 1, 4, bits, group, has_min, has_codes)                                                        \
    TILE(name, 1, 6, bits, group, has_min, has_codes)                                                        \
    TILE(name, 2, 1, bits, group, has_min, has_codes)                                                        \
    TILE(name, 2, 2, bits, group, has_min, has_codes)                                                        \
    TILE(name, 2, 3, bits, group, has_min, has_codes)                                                        \
    TILE(name, 2, 4, bits, group, has_min, has_codes)                                                        \
    TILE(name, 2, 6, bits, group, has_min, has_codes)

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

#define ROW(name)                                                                                            \
    {                                                                                                        \
        {tile_##name##_1_1, tile_##name##_1_2, tile_##name##_1_4, tile_##name##_1_4, tile_##name##_1_6},     \
            {tile_##name##_2_1, tile_##name##_2_2, tile_##name##_2_3, tile_##name##_2_4, tile_##name##_2_6}, \
    }
#define N_SIZES 5
static const uint32_t sizes[2][N_SIZES] = {{1, 2, 4, 4, 6}, {1, 2, 3, 4, 6}};
static tile_fn *const tiles[ESP_TYPE_COUNT][2][N_SIZES] = {
    [ESP_TYPE_Q4_0] = ROW(q4_0), [ESP_TYPE_Q4_1] = ROW(q4_1), [ESP_TYPE_Q5_0] = ROW(q5_0),
    [ESP_TYPE_Q5_1] = ROW(q5_1), [ESP_TYPE_Q8_0] = ROW(q8_0), [ESP_TYPE_Q2_K] = ROW(q2_k),
    [ESP_TYPE_Q3_K] = ROW(q3_k), [ESP_TYPE_Q4_K] = ROW(q4_k), [ESP_TYPE_Q5_K] = ROW(q5_k),
    [ESP_TYPE_Q6_K] = ROW(q6_k),
};

#define TILE_WIDE(name, group, has_min)                                                                      \
    static void tile_wide_##name(const struct wide *wide, uint32_t n_groups, const struct esp_tile_x *x,     \
                                 float *sums, bool begin)                                                    \
    {                                                                                                        \
        tile_wide(wide, n_groups, x, sums, begin, group, has_min);                                                  \
    }
TILE_WIDE(plain, 32, false)
TILE_WIDE(min, 32, true)
TILE_WIDE(halves, 16, false)
TILE_WIDE(halves_min, 16, true)

static const struct {
    widen_fn *widen;
    tile_wide_fn *tile;
} wides[ESP_TYPE_COUNT] = {
    [ESP_TYPE_Q4_0] = {widen_q4_0, tile_wide_plain}, [ESP_TYPE_Q4_1] = {widen_q4_1, tile_wide_min},
    [ESP_TYPE_Q5_0] = {widen_q5_0, tile_wide_plain}, [ESP_TYPE_Q5_1] = {widen_q5_1, tile_wide_min},
    [ESP_TYPE_Q8_0] = {widen_q8_0, tile_wide_plain}, [ESP_TYPE_Q2_K] = {widen_q2_k, tile_wide_halves_min},
    [ESP_TYPE_Q3_K] = {widen_q3_k, tile_wide_halves}, [ESP_TYPE_Q4_K] = {widen_q4_k, tile_wide_min},
    [ESP_TYPE_Q5_K] = {widen_q5_k, tile_wide_min}, [ESP_TYPE_Q6_K] = {widen_q6_k, tile_wide_halves},
};

/* Where the outputs of panel p of a tile will be written, so that the stores need not wait. */
static void fetch_outputs(const struct esp_linear_args *args, uint32_t weight_idx, uint32_t row, uint32_t p)
{
    size_t n_out = args->weight[weight_idx]->n_out;
    const float *y = args->y[weight_idx] + row * n_out + (size_t)p * ESP_PANEL;
    for (uint32_t r = row; r < args->n_rows && r < row + N_ROWS_TILE; r++, y += n_out) {
        __builtin_prefetch(y, 1);
        __builtin_prefetch(y + ESP_PANEL, 1);
    }
}

/* Two panels that are worked on together: neighbours, or the same of gate and up. */
struct pair {
    const uint8_t *data; /* of the first */
    size_t step;         /* to the second */
    size_t ahead;        /* to what is fetched meanwhile: the panels after these, or less where those are far */
    uint32_t panel;      /* of the first */
    bool glu;
};

static void store_pair(const struct esp_linear_args *args, uint32_t weight_idx, const struct pair *pair, uint32_t row,
                       const float *first, const float *second)
{
    if (pair->glu) {
        esp_tile_store_glu(args, row, pair->panel, first, second);
        return;
    }
    esp_tile_store(args, weight_idx, row, pair->panel, first);
    esp_tile_store(args, weight_idx, row, pair->panel + 1, second);
}

/* Groups [g, end) of a pair, unpacked, for the six rows from `row` on; the last ones are stored. */
static void run_wide(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t weight_idx,
                     const struct pair *pair, const struct wide *wide, uint32_t g, uint32_t end, uint32_t row,
                     float (*sums)[2][16])
{
    const struct esp_weight *w = args->weight[weight_idx];
    const size_t n_halves = esp_format(w->type)->group == 16 ? 2 : 1;
    const bool last = end == w->n_in / 32;
    /* the rows that fill up the last tile are computed from what lies there, and not stored */
    struct esp_tile_x x = esp_tile_x(quant, weight_idx, w, row);
    x.q += (size_t)g * ESP_ROW_BLOCK * 32;
    x.d += (size_t)g * ESP_ROW_BLOCK;
    x.side = (const float *)x.side + g * n_halves * ESP_ROW_BLOCK;
    if (last) {
        fetch_outputs(args, weight_idx, row, pair->panel);
    }
    wides[w->type].tile(wide, end - g, &x, sums[0][0], g == 0);
    for (uint32_t r = 0; last && r < N_ROWS_TILE && row + r < args->n_rows; r++) {
        store_pair(args, weight_idx, pair, row + r, sums[r][0], sums[r][1]);
    }
}

/* A pair for all rows. Sums wait in memory only where the groups are too many to be unpacked at once. */
static void linear_many(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t weight_idx,
                        const struct pair *pair)
{
    const struct esp_weight *w = args->weight[weight_idx];
    const uint32_t n_groups = w->n_in / 32;
    const uint32_t n_blocks = (n_groups + N_GROUPS_WIDE - 1) / N_GROUPS_WIDE;
    const uint32_t n_groups_block = (n_groups + n_blocks - 1) / n_blocks; /* blocks of about one size */
    const bool at_once = n_blocks == 1;
    const uint32_t n_rows_block = at_once ? args->n_rows : N_ROWS_WIDE;
    struct wide wide;
    _Alignas(64) float sums[N_ROWS_WIDE][2][16];
    for (uint32_t row = 0, n; row < args->n_rows; row += n) {
        n = args->n_rows - row < n_rows_block ? args->n_rows - row : n_rows_block;
        for (uint32_t g = 0, end; g < n_groups; g = end) {
            end = n_groups - g < n_groups_block ? n_groups : g + n_groups_block;
            wides[w->type].widen(pair->data, pair->step, w->n_in, g, end, &wide);
            for (uint32_t r = 0; r < n; r += N_ROWS_TILE) {
                run_wide(args, quant, weight_idx, pair, &wide, g, end, row + r, sums + (at_once ? 0 : r));
            }
        }
    }
}

/* One or two panels for all rows, few of them. */
static void linear_few(const struct esp_linear_args *args, const struct esp_quant *quant, uint32_t weight_idx,
                       const struct pair *pair, uint32_t n_panels)
{
    const struct esp_weight *w = args->weight[weight_idx];
    _Alignas(64) float sums[N_SUMS_MAX * 16];
    for (uint32_t row = 0, n_rows; row < args->n_rows; row += n_rows) {
        n_rows = args->n_rows - row < 6 ? args->n_rows - row : 6;
        struct esp_tile_x x = esp_tile_x(quant, weight_idx, w, row);
        uint32_t size = n_rows <= 4 ? n_rows - 1 : 4, n_filled = sizes[n_panels - 1][size];
        /* the rows that fill up a tile are computed from what lies there, and not stored */
        tiles[w->type][n_panels - 1][size](pair->data, pair->step, pair->ahead, w->n_in, &x, sums);
        for (uint32_t r = 0; r < n_rows; r++) {
            if (n_panels == 1) {
                esp_tile_store(args, weight_idx, row + r, pair->panel, sums + 16 * r);
            } else {
                store_pair(args, weight_idx, pair, row + r, sums + 16 * r, sums + 16 * (n_filled + r));
            }
        }
    }
}

void ESP_LEVEL_NAME(esp_x86_linear_int)(const struct esp_linear_args *args, const struct esp_quant *quant,
                                        uint32_t weight_idx, uint32_t panel, uint32_t panel_end)
{
    const struct esp_weight *w = args->weight[weight_idx];
    const size_t panel_bytes = esp_panel_shape(w->type, w->n_in).bytes;
    struct pair pair = {.step = panel_bytes, .glu = (args->flags & ESP_LINEAR_GLU) != 0};
    if (pair.glu) {
        pair.step = esp_tile_glu_step(args);
    }
    pair.ahead = pair.glu ? panel_bytes : 2 * panel_bytes;
    pair.ahead = pair.ahead > AHEAD_BYTES_MAX ? AHEAD_BYTES : pair.ahead;
    for (uint32_t n_panels; panel < panel_end; panel += pair.glu ? 1 : n_panels) {
        n_panels = pair.glu || panel_end - panel >= 2 ? 2 : 1;
        pair.panel = panel;
        pair.data = (const uint8_t *)w->data + panel * panel_bytes;
        if (n_panels == 2 && args->n_rows >= N_ROWS_MANY) {
            linear_many(args, quant, weight_idx, &pair);
        } else {
            linear_few(args, quant, weight_idx, &pair, n_panels);
        }
    }
}
