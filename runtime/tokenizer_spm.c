/* SPM: characters joined by the best score, bytes for what has no token.
 *
 * The whole piece is one word: a space is written U+2581 and may be anywhere in a token. Texts in the merge
 * list lie side by side, so a pair is looked up as one stretch of the piece. Thread: the call's.
 */
#include <string.h>

#include "runtime/tokenizer_impl.h"

#define LOW_LINE "\xE2\x96\x81" /* U+2581 */

struct spm_ctx {
    const struct esp_tokenizer *tok;
    const char *text;
};

static bool lookup(void *ctx, const struct esp_merge_symbol *left, const struct esp_merge_symbol *right,
                   uint32_t *ret_order, uint32_t *ret_sym)
{
    const struct spm_ctx *spm = ctx;
    uint32_t n_bytes = left->n_bytes + right->n_bytes;
    if (n_bytes > spm->tok->sym_bytes_max) {
        return false;
    }
    uint32_t id = esp_bytesmap_get(&spm->tok->syms, spm->text + left->at, n_bytes);
    if (id == ESP_MAP_NONE) {
        return false;
    }
    *ret_order = spm->tok->order[id];
    *ret_sym = id;
    return true;
}

static void write_spaces(struct esp_buf *out, const char *text, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        const char *space = memchr(text + at, ' ', n_bytes - at);
        size_t n = space == NULL ? n_bytes - at : (size_t)(space - text) - at;
        esp_buf_add(out, text + at, n);
        at += n;
        if (space != NULL) {
            esp_buf_add(out, LOW_LINE, 3);
            at++;
        }
    }
}

/* Bytes in the first character of valid UTF-8. */
static uint32_t char_bytes(char c)
{
    uint8_t lead = (uint8_t)c;
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

static void emit_bytes(struct esp_encode *enc, const char *bytes, uint32_t n_bytes)
{
    const struct esp_tokenizer *tok = enc->tok;
    for (uint32_t idx = 0; idx < n_bytes; idx++) {
        uint32_t id = tok->byte_token[(uint8_t)bytes[idx]];
        if (id == ESP_TOKEN_NONE) {
            id = tok->unk;
        }
        if (id != ESP_TOKEN_NONE) {
            esp_encode_id(enc, id);
        }
    }
}

esp_status esp_spm_encode(struct esp_encode *enc, const char *text, size_t n_bytes)
{
    struct esp_buf *spaced = &enc->scratch;
    esp_buf_clear(spaced);
    if (enc->tok->add_space_prefix) {
        esp_buf_add(spaced, LOW_LINE, 3);
    }
    write_spaces(spaced, text, n_bytes);
    if (spaced->failed) {
        return ESP_ENOMEM;
    }
    esp_merge_clear(&enc->merge);
    esp_status status = ESP_OK;
    for (size_t at = 0; status == ESP_OK && at < spaced->n;) {
        uint32_t n = char_bytes(spaced->data[at]);
        uint32_t id = esp_bytesmap_get(&enc->tok->syms, spaced->data + at, n);
        status = esp_merge_add(&enc->merge, id, (uint32_t)at, n);
        at += n;
    }
    struct spm_ctx ctx = {enc->tok, spaced->data};
    status = status == ESP_OK ? esp_merge_run(&enc->merge, lookup, &ctx) : status;
    for (uint32_t idx = 0; status == ESP_OK && idx != ESP_MERGE_NONE; idx = enc->merge.symbols[idx].next) {
        const struct esp_merge_symbol *symbol = &enc->merge.symbols[idx];
        if (symbol->sym != ESP_MAP_NONE) {
            esp_encode_id(enc, symbol->sym);
        } else {
            emit_bytes(enc, spaced->data + symbol->at, symbol->n_bytes);
        }
    }
    return status;
}
