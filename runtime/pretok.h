/* Pre-tokenizers: what cuts a text into pieces before byte-level BPE merges them.
 *
 * One table (pretok_table.c) says for each name of tokenizer.ggml.pre which patterns are applied, one after
 * the other, each to the pieces of the one before; every match and every gap between matches is a
 * piece. Patterns run in PCRE2 (UTF, UCP, JIT) on text whose UTF-8 was checked before.
 * A compiled pre-tokenizer is read-only and shared; a run (match data, JIT stack) belongs to one call.
 */
#ifndef ESP_RUNTIME_PRETOK_H
#define ESP_RUNTIME_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/status.h"

#define ESP_PRETOK_STEPS_MAX 7

struct esp_pretok_row {
    const char *names;                         /* separated by single spaces */
    const char *steps[ESP_PRETOK_STEPS_MAX];   /* patterns, NULL after the last */
    bool ignore_merges; /* a piece that is a token is taken whole */
    bool add_bos;       /* when the file does not say */
    bool nfc;           /* text is normalised first */
};

/* NULL: no such name. */
const struct esp_pretok_row *esp_pretok_find(const char *name, size_t n_bytes);
/* The rows, for tests: idx from 0, NULL after the last. */
const struct esp_pretok_row *esp_pretok_row_at(size_t idx);

struct esp_pretok;
esp_status esp_pretok_create(const struct esp_pretok_row *row, struct esp_pretok **ret_pretok, struct esp_err *err);
void esp_pretok_destroy(struct esp_pretok *pretok); /* NULL is fine */

struct esp_pretok_run;
esp_status esp_pretok_run_create(const struct esp_pretok *pretok, struct esp_pretok_run **ret_run, struct esp_err *err);
void esp_pretok_run_destroy(struct esp_pretok_run *run); /* NULL is fine */
/* *ret_ends: end offset of each piece, in order, the last one n_bytes; borrowed until the next split.
 * text is valid UTF-8, below 4 GiB. A pattern that gives up (match limit, JIT stack) is ESP_ELIMIT. */
esp_status esp_pretok_split(struct esp_pretok_run *run, const char *text, size_t n_bytes, const uint32_t **ret_ends,
                            size_t *ret_n, struct esp_err *err);

#endif
