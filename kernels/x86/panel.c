/* Packing weights into panels, and reading single rows back out of them.
 *
 * Packing decodes a block of each of the 16 rows into the common form and deals its bytes out four at a
 * time; it runs once, at load, on all threads. Reading a row serves the token embedding, which shares
 * its matrix with the output head in many models. Plain C: any x86-64 runs it.
 */
#include "kernels/x86/panel.h"

#include <string.h>

size_t esp_panel_weight_bytes(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    return esp_panel_shape(type, n_in).bytes * ((n_out + (size_t)ESP_PANEL - 1) / ESP_PANEL);
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void store32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static void store16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Bit `bit` of each of four bytes, as four bits. */
static uint64_t bits_of_bytes(uint32_t bytes, int bit)
{
    uint32_t b = bytes >> bit & 0x01010101u;
    return (b | b >> 7 | b >> 14 | b >> 21) & 15;
}

/* q: 32 values of each of 16 rows, not negative. */
static void pack_group(uint8_t (*q)[ESP_BLOCK_MAX], uint32_t at, int bits, uint8_t *dst)
{
    if (bits == 8) {
        for (int s = 0; s < 8; s++) {
            for (int r = 0; r < 16; r++) {
                store32(dst + 64 * s + 4 * r, load32(q[r] + at + 4 * s));
            }
        }
        return;
    }
    for (int j = 0; j < 4; j++) {
        for (int r = 0; r < 16; r++) {
            uint32_t low = load32(q[r] + at + 4 * j) & 0x0f0f0f0fu;
            uint32_t high = load32(q[r] + at + 16 + 4 * j) & 0x0f0f0f0fu;
            store32(dst + 64 * j + 4 * r, low | high << 4);
        }
    }
    for (int bit = 4; bit < bits; bit++) {
        for (int s = 0; s < 8; s++) {
            uint64_t word = 0;
            for (int r = 0; r < 16; r++) {
                word |= bits_of_bytes(load32(q[r] + at + 4 * s), bit) << (4 * r);
            }
            memcpy(dst + 256 + 64 * (bit - 4) + 8 * s, &word, sizeof word);
        }
    }
}

/* The scales of one block of each row. */
static void pack_scales(const struct esp_format *f, const struct esp_block *blocks, uint8_t *dst)
{
    for (int r = 0; r < ESP_PANEL; r++) {
        const struct esp_block *b = &blocks[r];
        store16(dst + 2 * r, esp_f16_from_f32(b->d));
        if (f->has_min) {
            store16(dst + 32 + 2 * r, esp_f16_from_f32(f->has_codes ? b->dmin : -b->dmin));
        }
        int parts = f->has_min ? 2 : 1;
        for (int g = 0; f->has_codes && g < 256 / f->group; g++) {
            uint8_t *codes = dst + 32 * parts + 16 * parts * g;
            codes[r] = (uint8_t)b->s[g];
            if (f->has_min) {
                codes[16 + r] = (uint8_t)b->m[g];
            }
        }
    }
}

/* Decodes the block at value `at` of each row of a panel; rows past n_out are zero. */
static void load_blocks(enum esp_type type, uint32_t n_rows, const uint8_t *src, size_t row_bytes, size_t at_bytes,
                        struct esp_block *blocks, uint8_t (*q)[ESP_BLOCK_MAX])
{
    const struct esp_format *f = esp_format(type);
    uint32_t n = esp_type_info(type)->block;
    for (uint32_t r = 0; r < ESP_PANEL; r++) {
        if (r < n_rows) {
            esp_block_decode(type, src + r * row_bytes + at_bytes, &blocks[r]);
        } else {
            memset(&blocks[r], 0, sizeof blocks[r]);
        }
        for (uint32_t i = 0; i < n; i++) {
            q[r][i] = (uint8_t)(blocks[r].q[i] + f->zero);
        }
    }
}

static void pack_quantised(enum esp_type type, uint32_t n_rows, uint32_t n_in, const uint8_t *src, uint8_t *dst)
{
    const struct esp_type_info *info = esp_type_info(type);
    const struct esp_format *f = esp_format(type);
    struct esp_panel_shape shape = esp_panel_shape(type, n_in);
    size_t row_bytes = (size_t)(n_in / info->block) * info->bytes;
    struct esp_block blocks[ESP_PANEL];
    uint8_t q[ESP_PANEL][ESP_BLOCK_MAX];
    for (uint32_t b = 0; b < n_in / info->block; b++) {
        load_blocks(type, n_rows, src, row_bytes, (size_t)b * info->bytes, blocks, q);
        pack_scales(f, blocks, dst + shape.scales_at + b * shape.scale_bytes);
        for (uint32_t at = 0; at < info->block; at += 32) {
            pack_group(q, at, f->bits, dst + (b * (info->block / 32) + at / 32) * shape.group_bytes);
        }
    }
}

static void pack_floats(enum esp_type type, uint32_t n_rows, uint32_t n_in, const uint8_t *src, uint8_t *dst)
{
    size_t bytes = esp_type_info(type)->bytes;
    memset(dst, 0, bytes * ESP_PANEL * n_in);
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t k = 0; k < n_in; k++) {
            memcpy(dst + (k * ESP_PANEL + r) * bytes, src + (r * n_in + k) * bytes, bytes);
        }
    }
}

void esp_panel_pack(enum esp_type type, uint32_t n_out, uint32_t n_in, const void *src, void *dst, uint32_t panel,
                    uint32_t panel_end)
{
    const struct esp_type_info *info = esp_type_info(type);
    size_t row_bytes = (size_t)(n_in / info->block) * info->bytes;
    size_t panel_bytes = esp_panel_shape(type, n_in).bytes;
    for (; panel < panel_end; panel++) {
        uint32_t left = n_out - panel * ESP_PANEL;
        const uint8_t *from = (const uint8_t *)src + (size_t)panel * ESP_PANEL * row_bytes;
        uint8_t *to = (uint8_t *)dst + panel * panel_bytes;
        if (esp_format(type)->group == 0) {
            pack_floats(type, left < ESP_PANEL ? left : ESP_PANEL, n_in, from, to);
        } else {
            pack_quantised(type, left < ESP_PANEL ? left : ESP_PANEL, n_in, from, to);
        }
    }
}

/* The 32 values of row r in a group. */
static void unpack_group(const uint8_t *group, int bits, uint32_t r, uint8_t *q)
{
    if (bits == 8) {
        for (int s = 0; s < 8; s++) {
            memcpy(q + 4 * s, group + 64 * s + 4 * r, 4);
        }
        return;
    }
    for (int j = 0; j < 4; j++) {
        uint32_t v = load32(group + 64 * j + 4 * r);
        store32(q + 4 * j, v & 0x0f0f0f0fu);
        store32(q + 16 + 4 * j, v >> 4 & 0x0f0f0f0fu);
    }
    for (int bit = 4; bit < bits; bit++) {
        for (int i = 0; i < 32; i++) {
            const uint8_t *word = group + 256 + 64 * (bit - 4) + 8 * (i / 4);
            uint32_t place = 4 * r + (uint32_t)i % 4;
            q[i] = (uint8_t)(q[i] | (word[place / 8] >> (place % 8) & 1) << bit);
        }
    }
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return esp_f16_to_f32(h);
}

/* Scale and minimum of the weight group at value `at` of row r. */
static float scale_at(const struct esp_format *f, const struct esp_panel_shape *shape, const uint8_t *panel,
                      uint32_t at, uint32_t r, float *ret_min)
{
    size_t parts = f->has_min ? 2 : 1;
    const uint8_t *scales = panel + shape->scales_at + (f->has_codes ? at / 256 : at / 32) * shape->scale_bytes;
    float d = half_at(scales + 2 * r), m = f->has_min ? half_at(scales + 32 + 2 * r) : 0;
    if (!f->has_codes) {
        *ret_min = m;
        return d;
    }
    const uint8_t *codes = scales + 32 * parts + 16 * parts * (at % 256 / f->group);
    *ret_min = f->has_min ? -(m * (float)codes[16 + r]) : 0;
    return d * (f->has_min ? (float)codes[r] : (float)(int8_t)codes[r]);
}

static void embed_quantised(const struct esp_weight *w, const uint8_t *panel, uint32_t r, float factor, float *x)
{
    const struct esp_format *f = esp_format(w->type);
    struct esp_panel_shape shape = esp_panel_shape(w->type, w->n_in);
    uint8_t q[32];
    for (uint32_t at = 0; at < w->n_in; at += f->group) {
        float min, scale = scale_at(f, &shape, panel, at, r, &min);
        if (at % 32 == 0) {
            unpack_group(panel + at / 32 * shape.group_bytes, f->bits, r, q);
        }
        for (uint32_t i = 0; i < f->group; i++) {
            float v = scale * (float)(q[at % 32 + i] - f->zero);
            x[at + i] = (f->has_min ? v + min : v) * factor;
        }
    }
}

void esp_panel_embed(const struct esp_embed_args *args, uint32_t row, uint32_t row_end)
{
    const struct esp_weight *w = args->weight;
    size_t panel_bytes = esp_panel_shape(w->type, w->n_in).bytes;
    size_t bytes = esp_type_info(w->type)->bytes;
    for (size_t i = row; i < row_end; i++) {
        const uint8_t *panel = (const uint8_t *)w->data + args->ids[i] / ESP_PANEL * panel_bytes;
        uint32_t r = args->ids[i] % ESP_PANEL;
        float *x = args->x + i * w->n_in;
        if (esp_format(w->type)->group != 0) {
            embed_quantised(w, panel, r, args->scale, x);
            continue;
        }
        for (uint32_t k = 0; k < w->n_in; k++) {
            esp_dequantize(w->type, panel + (k * ESP_PANEL + r) * bytes, 1, &x[k]);
            x[k] = x[k] * args->scale;
        }
    }
}
