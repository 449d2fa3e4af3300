/* A device that computes no floats: its keys and values are hashes, its logits a hash of what was read.
 *
 *   embed              row = (token, no state)
 *   layer 0   K, V     hash of (token, position), written to the page that the batch names
 *             attn     state = hash of the rows read through the page table, in order, and the own token
 *   layer 1   K, V     hash of (state, position): a rolling hash of the true prefix when it was written
 *             attn     state = hash of those rows, and the own token
 *   head               logits = hash of (state, id)
 *   sample             highest logit at temperature 0, else drawn by a hash of (logits, seed, position)
 *
 * So a wrong page, a wrong offset, a stale row, a page freed early and used again, a row in the wrong
 * sequence: each changes the next token. esp_hash_ref says what the token must be, from the tokens
 * alone. Runs the real forward pass. Thread: the engine's.
 */
#ifndef ESP_TESTS_HASH_DEVICE_H
#define ESP_TESTS_HASH_DEVICE_H

#include "runtime/model.h"

#define ESP_HASH_VOCAB 29
#define ESP_HASH_CTX_MAX 4096

extern const struct esp_ops esp_hash_ops;

/* An open device and a model of two layers on it; freed by esp_engine_close, or by destroy. */
esp_status esp_hash_model_create(uint32_t n_vocab, uint32_t n_rows_max, struct esp_model **ret_model);
void esp_hash_model_destroy(struct esp_model *model); /* NULL is fine */
/* The n-th operation from now fails with ESP_EIO (0 = none). */
void esp_hash_fail_at(struct esp_dev *dev, uint64_t n);

/* The same computation without pages: feed the tokens in order, then ask. */
struct esp_hash_ref {
    uint64_t fold[2], state;
    uint32_t n_tokens;
};
void esp_hash_ref_feed(struct esp_hash_ref *ref, uint32_t token);
void esp_hash_ref_logits(const struct esp_hash_ref *ref, uint32_t n_vocab, float *logits);
/* Fills the results of a row: what the device's sample does. */
void esp_hash_sample_row(struct esp_sample_row *row, uint32_t n_vocab);

#endif
