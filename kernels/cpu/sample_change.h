/* Penalties and biases: the sparse list of tokens whose logit differs from what the model gave.
 *
 * The list lies in the caller's scratch, ascending by id, each id once. Thread: any.
 */
#ifndef ESP_KERNELS_CPU_SAMPLE_CHANGE_H
#define ESP_KERNELS_CPU_SAMPLE_CHANGE_H

#include "kernels/cpu/level.h"

/* Returns the length of scratch->ids and scratch->values. Ids outside the vocabulary are left out. Needs
 * scratch->cap ≥ n_history + n_bias. */
uint32_t esp_sample_changes(const struct esp_sample_row *row, uint32_t n_vocab,
                            const struct esp_sample_scratch *scratch);

#endif
