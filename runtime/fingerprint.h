/* A number for everything that keys and values depend on but tokens and namespace: the whole model file, and the
 * program that computes, since another build may round otherwise. Equal numbers, equal bits. Thread: any. */
#ifndef ESP_RUNTIME_FINGERPRINT_H
#define ESP_RUNTIME_FINGERPRINT_H

#include "runtime/gguf.h"

/* Reads every tensor once, as loading does. */
void esp_fingerprint(const struct esp_gguf *gguf, uint64_t ret_print[2]);
/* Mixes in what else counts (device, level). */
void esp_fingerprint_add(uint64_t print[2], const void *data, size_t n_bytes);

#endif
