/* Where K and V of a head lie in a page, and the limits of their integers (the rules are in kernels/ops.h).
 *
 *   head of a layer of a page, 16 positions
 *   ┌ K [head_dim / 2][16][2] i16 ┐┌ V [8][head_dim][2] i16 ┐┌ d_k [16] f32 ┐┌ d_v [16] f32 ┐
 *     two dimensions of all 16       two positions of all       one a position
 *     positions: 64 bytes            dimensions
 *
 * So one vector instruction multiplies two neighbours and adds them to a 32-bit sum, for K and for V alike.
 * Thread: any, pure functions.
 */
#ifndef ESP_KERNELS_CPU_KV_H
#define ESP_KERNELS_CPU_KV_H

#include "kernels/ops.h"

#define ESP_KV_KEY_MAX 32767.0f    /* the length of a key or query as integers */
#define ESP_KV_VALUE_MAX 2047.0f   /* the largest of a value as integers */
#define ESP_KV_WEIGHT_MAX 8191.0f  /* the largest weight of a span */
#define ESP_KV_POSITIONS 128u      /* whose sum of weight times value fits 32 bits */
#define ESP_KV_LENGTH_MIN 0x1p-60f /* a shorter key or query is zero */
#define ESP_KV_AMAX_MIN 0x1p-100f  /* a smaller value, or largest weight, is zero */

struct esp_kv_head {
    int16_t *k, *v;
    float *dk, *dv;
};

/* Bytes of a head in a layer of a page. */
static inline size_t esp_kv_head_bytes(const struct esp_kv_geom *geom)
{
    return esp_kv_layer_bytes(geom) / geom->n_head_kv;
}

/* The parts of the head that begins at `at`. */
static inline struct esp_kv_head esp_kv_head_parts(const void *at, size_t head_dim)
{
    int16_t *k = (int16_t *)(uintptr_t)at;
    float *dk = (float *)(void *)(k + 2 * head_dim * ESP_PAGE_TOKENS);
    return (struct esp_kv_head){k, k + head_dim * ESP_PAGE_TOKENS, dk, dk + ESP_PAGE_TOKENS};
}

static inline struct esp_kv_head esp_kv_head_at(const void *kv, const struct esp_kv_geom *geom, uint32_t layer,
                                                uint32_t page, uint32_t head)
{
    return esp_kv_head_parts((const uint8_t *)kv + page * esp_kv_page_bytes(geom) +
                                 layer * esp_kv_layer_bytes(geom) + head * esp_kv_head_bytes(geom),
                             geom->head_dim);
}

/* Index of dimension d of the position in a slot, in k and in v. */
static inline size_t esp_kv_k_idx(size_t slot, size_t d)
{
    return (d / 2 * ESP_PAGE_TOKENS + slot) * 2 + d % 2;
}
static inline size_t esp_kv_v_idx(size_t head_dim, size_t slot, size_t d)
{
    return (slot / 2 * head_dim + d) * 2 + slot % 2;
}

#endif
