/* Tokenizers of GGUF files: byte-level BPE, SPM and WordPiece behind one interface.
 *
 * Order of work: special tokens are cut out first, leftmost-longest (user-defined ones always, control ones
 * only inside spans that allow them), then each piece between them is pre-tokenized and merged.
 * Merging uses a heap over a linked list: n log n however long a piece is.
 * Read-only after create, shared by all threads; PCRE2 match data is per call.
 */
#ifndef ESP_RUNTIME_TOKENIZER_H
#define ESP_RUNTIME_TOKENIZER_H

#include <stdbool.h>

#include "runtime/base/buf.h"
#include "runtime/espalier.h"
#include "runtime/gguf.h"

enum esp_token_type { /* tokenizer.ggml.token_type */
    ESP_TOKEN_NORMAL = 1,
    ESP_TOKEN_UNKNOWN,
    ESP_TOKEN_CONTROL,
    ESP_TOKEN_USER,
    ESP_TOKEN_UNUSED,
    ESP_TOKEN_BYTE
};

struct esp_tokenizer;
/* Copies what it needs; the file may be closed afterwards. */
esp_status esp_tokenizer_create(const struct esp_gguf *gguf, struct esp_tokenizer **ret_tokenizer, struct esp_err *err);
void esp_tokenizer_destroy(struct esp_tokenizer *tokenizer); /* NULL is fine */

/* Appends ids as uint32_t to ids. The spans are one text; control tokens only where span.control is set.
 * Text that is not UTF-8 is ESP_EINVAL with the offset. */
esp_status esp_tokenizer_encode(const struct esp_tokenizer *tokenizer, const struct esp_span *spans, size_t n_spans,
                                struct esp_buf *ids, struct esp_err *err);
/* Bytes of a token in running text; borrowed. Control tokens give their text only with `control`. */
const char *esp_tokenizer_bytes(const struct esp_tokenizer *tokenizer, uint32_t id, bool control,
                                size_t *ret_n_bytes);
esp_status esp_tokenizer_decode(const struct esp_tokenizer *tokenizer, const uint32_t *ids, size_t n_ids,
                                bool control, struct esp_buf *text);

uint32_t esp_tokenizer_n_tokens(const struct esp_tokenizer *tokenizer);
enum esp_token_type esp_tokenizer_type(const struct esp_tokenizer *tokenizer, uint32_t id);
uint32_t esp_tokenizer_bos(const struct esp_tokenizer *tokenizer); /* or ESP_TOKEN_NONE */
uint32_t esp_tokenizer_eos(const struct esp_tokenizer *tokenizer);
bool esp_tokenizer_adds_bos(const struct esp_tokenizer *tokenizer);
bool esp_tokenizer_is_end(const struct esp_tokenizer *tokenizer, uint32_t id);
/* Lines for people: what is unusual about this vocabulary (bytes without a token, unknown pre-tokenizer). */
const char *esp_tokenizer_warnings(const struct esp_tokenizer *tokenizer);

#endif
