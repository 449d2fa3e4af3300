/* How much memory there is, and the plan of who gets how much, made before anything large is taken.
 *
 *   weights | K and V pages | activations | logits | other (program, vocabulary, tree, tables, device scratch)
 *
 * Sizes are exact: each part's owner is asked, with the numbers that it will be created with.
 * Thread: the one that opens the engine.
 */
#ifndef ESP_RUNTIME_MEMORY_H
#define ESP_RUNTIME_MEMORY_H

#include "runtime/espalier.h"
#include "runtime/model.h"

/* Bytes that this process may still take: the kernel's MemAvailable, or what is left of the limit of the
 * control group (v2 or v1) when that is less; UINT64_MAX when neither can be read. root is "" but in tests,
 * where proc and sys lie below it. */
uint64_t esp_memory_available(const char *root);

/* Bytes of the program itself and its libraries that are in memory; 0 when that cannot be read. */
uint64_t esp_memory_program(const char *root);

struct esp_memory_plan {
    struct esp_dev_config dev;
    uint32_t n_ctx, n_pages, n_batch_max, prefill_chunk, n_queue_max;
    uint64_t weights_bytes, kv_bytes, activation_bytes, logit_bytes, other_bytes;
};
/* Chooses what config leaves open. taken_bytes: what program and vocabulary have taken
 * already (part of other).
 * ESP_EINVAL for sizes out of range, ESP_ENOMEM with the shortfall when the rest does not fit in
 * available_bytes. */
esp_status esp_memory_plan_make(const struct esp_config *config, const struct esp_gguf *gguf,
                                const struct esp_hparams *hp, const struct esp_ops *ops, uint64_t taken_bytes,
                                uint64_t available_bytes, struct esp_memory_plan *ret_plan, struct esp_err *err);

#endif
