/* Byte-level BPE: pieces of a pre-tokenizer, bytes as symbols, merges by rank.
 *
 * Loading gives every text that merges name a symbol number and every merge "left right" an entry in one hash
 * map. Encoding looks up pairs of symbol numbers only. A piece that is a token is taken whole where the
 * model says so. A byte without a token is dropped, as the reference tokenizers do (warned about at load).
 * Thread: read-only after load; an encode belongs to one call.
 */
#include <string.h>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer_impl.h"
#include "runtime/unicode.h"

#define KEY_MERGES "tokenizer.ggml.merges"

/* Symbols that are no tokens: their texts go to one block, so that map keys stay where they are. */
struct interner {
    struct esp_tokenizer *tok;
    char *extra;
    size_t n, room;
    uint32_t n_syms;
};

static esp_status fail_merge(struct esp_err *err, const char *what, uint64_t idx)
{
    esp_fail(err, ESP_EINVAL, KEY_MERGES ": %s %llu", what, (unsigned long long)idx);
    esp_err_place(err, KEY_MERGES);
    return ESP_EINVAL;
}

/* The number of a text; a new one when no token and no earlier merge has it. */
static esp_status intern(struct interner *interner, const char *text, size_t n_bytes, uint32_t *ret_sym)
{
    uint32_t sym = esp_bytesmap_get(&interner->tok->syms, text, n_bytes);
    if (sym == ESP_MAP_NONE) {
        if (n_bytes > interner->room - interner->n) {
            return ESP_EINTERNAL;
        }
        char *key = interner->extra + interner->n;
        memcpy(key, text, n_bytes);
        interner->n += n_bytes;
        sym = interner->n_syms++;
        esp_status status = esp_bytesmap_put(&interner->tok->syms, key, n_bytes, sym);
        if (status != ESP_OK) {
            return status;
        }
    }
    *ret_sym = sym;
    return ESP_OK;
}

static esp_status load_bytes(struct interner *interner)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[4];
        int n = esp_utf8_encode(esp_alphabet_char((uint8_t)byte), text);
        esp_status status = intern(interner, text, (size_t)n, &interner->tok->byte_sym[byte]);
        if (status != ESP_OK) {
            return status;
        }
    }
    return ESP_OK;
}

/* joined is scratch of at least the merge's own length. */
static esp_status load_merge(struct interner *interner, const struct esp_gguf_string *merge, uint32_t rank,
                             char *joined, struct esp_err *err)
{
    /* The first byte may itself be a space, so the separator is looked for behind it. */
    const char *space = merge->n_bytes < 3 ? NULL : memchr(merge->data + 1, ' ', merge->n_bytes - 2);
    if (space == NULL) {
        return fail_merge(err, "not two texts with a space between them at item", rank);
    }
    size_t n_left = (size_t)(space - merge->data), n_right = merge->n_bytes - n_left - 1;
    memcpy(joined, merge->data, n_left);
    memcpy(joined + n_left, space + 1, n_right);
    uint32_t left, right, made;
    esp_status status = intern(interner, joined, n_left, &left);
    status = status != ESP_OK ? status : intern(interner, joined + n_left, n_right, &right);
    status = status != ESP_OK ? status : intern(interner, joined, n_left + n_right, &made);
    if (status != ESP_OK) {
        return status;
    }
    interner->tok->merge_sym[rank] = made;
    uint64_t pair = (uint64_t)left << 32 | right;
    if (esp_map_get(&interner->tok->merges, pair) != ESP_MAP_NONE) {
        return ESP_OK; /* the earlier rank counts */
    }
    return esp_map_put(&interner->tok->merges, pair, rank);
}

static esp_status load_merges(struct interner *interner, const struct esp_gguf_kv *kv, struct esp_err *err)
{
    struct esp_tokenizer *tok = interner->tok;
    tok->merge_sym = esp_malloc(ESP_TAG_VOCAB, kv->n * sizeof *tok->merge_sym);
    char *joined = esp_malloc(ESP_TAG_VOCAB, kv->n_bytes + 1);
    esp_status status = tok->merge_sym == NULL || joined == NULL ? ESP_ENOMEM : esp_map_reserve(&tok->merges, kv->n);
    struct esp_gguf_string_iter iter = esp_gguf_strings(kv);
    struct esp_gguf_string merge;
    for (uint32_t rank = 0; status == ESP_OK && rank < kv->n; rank++) {
        if (!esp_gguf_next_string(&iter, &merge)) {
            status = fail_merge(err, "the list ends at item", rank);
        } else {
            status = load_merge(interner, &merge, rank, joined, err);
        }
    }
    esp_free(joined);
    return status;
}

esp_status esp_bpe_load(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_find(gguf, KEY_MERGES);
    if (kv == NULL || kv->type != ESP_GGUF_ARRAY || kv->item_type != ESP_GGUF_STRING) {
        return fail_merge(err, "must be an array of strings; items:", kv == NULL ? 0 : kv->n);
    }
    if (kv->n > UINT32_MAX / 4 || kv->n_bytes > ESP_TOKENIZER_TEXT_BYTES_MAX) {
        return fail_merge(err, "too many:", kv->n);
    }
    /* A merge adds at most its left, its right and both together; a byte's stand-in has at most two bytes. */
    struct interner interner = {.tok = tok, .n_syms = tok->n_tokens, .room = kv->n_bytes * 2 + 512};
    interner.extra = tok->extra = esp_malloc(ESP_TAG_VOCAB, interner.room);
    esp_status status = tok->extra == NULL ? ESP_ENOMEM : load_bytes(&interner);
    if (status == ESP_OK) {
        status = load_merges(&interner, kv, err);
    }
    if (status == ESP_ENOMEM) {
        return esp_fail(err, status, "out of memory for the merges of the vocabulary");
    }
    return status;
}

static bool lookup(void *ctx, const struct esp_merge_symbol *left, const struct esp_merge_symbol *right,
                   uint32_t *ret_order, uint32_t *ret_sym)
{
    const struct esp_tokenizer *tok = ctx;
    uint32_t rank = esp_map_get(&tok->merges, (uint64_t)left->sym << 32 | right->sym);
    if (rank == ESP_MAP_NONE) {
        return false;
    }
    *ret_order = rank;
    *ret_sym = tok->merge_sym[rank];
    return true;
}

static void emit(struct esp_encode *enc, const char *piece, const struct esp_merge_symbol *symbol)
{
    const struct esp_tokenizer *tok = enc->tok;
    if (symbol->sym < tok->n_tokens) {
        esp_encode_id(enc, symbol->sym);
        return;
    }
    for (uint32_t idx = 0; idx < symbol->n_bytes; idx++) {
        uint32_t sym = tok->byte_sym[(uint8_t)piece[symbol->at + idx]];
        if (sym < tok->n_tokens) {
            esp_encode_id(enc, sym);
        }
    }
}

/* The token that is this whole piece, or ESP_MAP_NONE. */
static uint32_t whole_piece(struct esp_encode *enc, const char *piece, size_t n_bytes)
{
    if (n_bytes > enc->tok->sym_bytes_max) {
        return ESP_MAP_NONE;
    }
    esp_buf_clear(&enc->word);
    for (size_t idx = 0; idx < n_bytes; idx++) {
        char text[4];
        int n = esp_utf8_encode(esp_alphabet_char((uint8_t)piece[idx]), text);
        esp_buf_add(&enc->word, text, (size_t)n);
    }
    uint32_t sym = enc->word.failed ? ESP_MAP_NONE : esp_bytesmap_get(&enc->tok->syms, enc->word.data, enc->word.n);
    return sym < enc->tok->n_tokens ? sym : ESP_MAP_NONE;
}

static esp_status encode_piece(struct esp_encode *enc, const char *piece, size_t n_bytes)
{
    const struct esp_tokenizer *tok = enc->tok;
    uint32_t whole = tok->ignore_merges ? whole_piece(enc, piece, n_bytes) : ESP_MAP_NONE;
    if (whole != ESP_MAP_NONE) {
        esp_encode_id(enc, whole);
        return ESP_OK;
    }
    esp_merge_clear(&enc->merge);
    esp_status status = ESP_OK;
    for (size_t idx = 0; status == ESP_OK && idx < n_bytes; idx++) {
        status = esp_merge_add(&enc->merge, tok->byte_sym[(uint8_t)piece[idx]], (uint32_t)idx, 1);
    }
    if (status == ESP_OK) {
        status = esp_merge_run(&enc->merge, lookup, (void *)(uintptr_t)tok);
    }
    for (uint32_t idx = 0; status == ESP_OK && idx != ESP_MERGE_NONE; idx = enc->merge.symbols[idx].next) {
        emit(enc, piece, &enc->merge.symbols[idx]);
    }
    return status;
}

esp_status esp_bpe_encode(struct esp_encode *enc, const char *text, size_t n_bytes)
{
    esp_status status = ESP_OK;
    if (enc->tok->nfc) {
        esp_buf_clear(&enc->scratch);
        status = esp_unicode_normalize(text, n_bytes, true, &enc->scratch);
        text = enc->scratch.data;
        n_bytes = enc->scratch.n;
    }
    if (status == ESP_OK && enc->run == NULL) {
        status = esp_pretok_run_create(enc->tok->pretok, &enc->run, enc->err);
    }
    const uint32_t *ends;
    size_t n = 0, start = 0;
    if (status == ESP_OK) {
        status = esp_pretok_split(enc->run, text, n_bytes, &ends, &n, enc->err);
    }
    for (size_t idx = 0; status == ESP_OK && idx < n; idx++) {
        status = encode_piece(enc, text + start, ends[idx] - start);
        start = ends[idx];
    }
    return status;
}
