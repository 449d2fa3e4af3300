/* The table of architectures, for the files model*.c only.
 *
 * A row says what the metadata of a file leave open. What a family does not have is not in its row, and
 * a file that has it anyway (a bias, a norm, a router) is refused because its tensor finds no place.
 * Thread: none, constants.
 */
#ifndef ESP_RUNTIME_MODEL_PARTS_H
#define ESP_RUNTIME_MODEL_PARTS_H

#include "runtime/model.h"

struct esp_arch {
    const char *name;
    enum esp_rope_kind rope;
    enum esp_act act;
    bool rope_freqs;        /* a rope_freqs tensor may divide the frequencies (Llama 3) */
    bool qk_norm;           /* RMS norm per head, before rope */
    bool post_norms;        /* norms after attention and FFN, before the residual add */
    bool embed_scaled;      /* embeddings times sqrt(n_embd) */
    uint32_t window_period; /* of its window layers when the file names none; 0 = no window layers */
};

const struct esp_arch *esp_arch_find(const char *name); /* NULL when unknown */

#endif
