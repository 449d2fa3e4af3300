/* Rotation of Q and K, and writing K and V into their pages, sixteen values at a time.
 *
 * A position is one lane of every vector of its page's K, and every other word of V, so both are made
 * integers whole and then dealt out. Compiled once per level (kernels/cpu/vec.h).
 * Thread: any, see kernels/cpu/level.h.
 */
#include "kernels/x86/words.h"
#include "kernels/x86/x86.h"

#define DIM_MAX 256

static void rotate_pair(float *a, float *b, float c, float s)
{
    float ac = *a * c, bs = *b * s, as = *a * s, bc = *b * c;
    *a = ac - bs;
    *b = as + bc;
}

/* cos and sin [n_rot / 2], apart */
static void rotate(float *head, const float *cos, const float *sin, enum esp_rope_kind kind, uint32_t n_rot)
{
    uint32_t half = n_rot / 2, i = 0;
    if (kind == ESP_ROPE_NORM) {
        for (; i < half; i++) {
            rotate_pair(head + 2 * i, head + 2 * i + 1, cos[i], sin[i]);
        }
        return;
    }
    for (; kind == ESP_ROPE_NEOX && i + 16 <= half; i += 16) {
        v16 a = v16_load(head + i), b = v16_load(head + half + i), c = v16_load(cos + i), s = v16_load(sin + i);
        v16_store(head + i, v16_sub(v16_mul(a, c), v16_mul(b, s)));
        v16_store(head + half + i, v16_add(v16_mul(a, s), v16_mul(b, c)));
    }
    for (; kind == ESP_ROPE_NEOX && i < half; i++) {
        rotate_pair(head + i, head + half + i, cos[i], sin[i]);
    }
}

static void write_page(const struct esp_rope_kv_args *args, size_t row)
{
    const struct esp_kv_geom *geom = &args->geom;
    const size_t dim = geom->head_dim, slot = args->pos[row] % ESP_PAGE_TOKENS;
    for (uint32_t h = 0; h < geom->n_head_kv; h++) {
        struct esp_kv_head to = esp_kv_head_at(args->kv, geom, args->layer, args->page[row], h);
        size_t at = (row * geom->n_head_kv + h) * dim;
        int16_t words[DIM_MAX];
        to.dk[slot] = esp_words_of_key(args->k + at, geom->head_dim, words);
        for (size_t d = 0; d < dim; d += 2) {
            memcpy(to.k + esp_kv_k_idx(slot, d), words + d, 2 * sizeof *words);
        }
        to.dv[slot] = esp_words_of_value(args->v + at, geom->head_dim, words);
        for (size_t d = 0; d < dim; d++) {
            to.v[esp_kv_v_idx(dim, slot, d)] = words[d];
        }
    }
}

void ESP_LEVEL_NAME(esp_x86_rope_kv)(const struct esp_rope_kv_args *args, uint32_t row, uint32_t row_end)
{
    const struct esp_kv_geom *geom = &args->geom;
    float cos[DIM_MAX / 2], sin[DIM_MAX / 2];
    for (size_t r = row; r < row_end; r++) {
        for (uint32_t i = 0; args->kind != ESP_ROPE_NONE && i < args->n_rot / 2; i++) {
            cos[i] = args->cos_sin[r * args->n_rot + 2 * i];
            sin[i] = args->cos_sin[r * args->n_rot + 2 * i + 1];
        }
        for (size_t h = 0; h < args->n_head; h++) {
            rotate(args->q + (r * args->n_head + h) * geom->head_dim, cos, sin, args->kind, args->n_rot);
        }
        for (size_t h = 0; h < geom->n_head_kv; h++) {
            rotate(args->k + (r * geom->n_head_kv + h) * geom->head_dim, cos, sin, args->kind, args->n_rot);
        }
        write_page(args, r);
    }
}
