/* Reads a vocabulary from GGUF metadata, believing nothing: types and lengths of every array, ids below the
 * count, no text twice.
 *
 * Errors carry the key in err->place. What real files get wrong without harm (a padding id past the end,
 * bytes without a token) becomes a warning. Thread: the loader's.
 */
#include <math.h>
#include <string.h>

#include "runtime/tokenizer_impl.h"

#define KEY(name) "tokenizer.ggml." name

static esp_status fail_key(struct esp_err *err, const char *key, const char *what, uint64_t idx)
{
    esp_fail(err, ESP_EINVAL, "%s: %s %llu", key, what, (unsigned long long)idx);
    esp_err_place(err, "%s", key);
    return ESP_EINVAL;
}

static esp_status no_memory(struct esp_err *err)
{
    return esp_fail(err, ESP_ENOMEM, "out of memory for the vocabulary");
}

static bool is_string(const struct esp_gguf_string *text, const char *other)
{
    return text->n_bytes == strlen(other) && memcmp(text->data, other, text->n_bytes) == 0;
}

static esp_status read_kind(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    struct esp_gguf_string model;
    esp_status status = esp_gguf_get_string(gguf, KEY("model"), &model, err);
    if (status != ESP_OK) {
        return status;
    }
    if (model.data == NULL) {
        esp_fail(err, ESP_EINVAL, "the file has no vocabulary (no " KEY("model") ")");
    } else if (is_string(&model, "gpt2")) {
        tok->kind = ESP_TOKENIZER_BPE;
        return ESP_OK;
    } else if (is_string(&model, "llama")) {
        tok->kind = ESP_TOKENIZER_SPM;
        return ESP_OK;
    } else if (is_string(&model, "bert")) {
        tok->kind = ESP_TOKENIZER_WPM;
        return ESP_OK;
    } else {
        esp_fail(err, ESP_EUNSUPPORTED, "tokenizer model \"%.*s\" is not supported (gpt2, llama and bert are)",
                 (int)(model.n_bytes < 64 ? model.n_bytes : 64), model.data);
    }
    esp_err_place(err, KEY("model"));
    return model.data == NULL ? ESP_EINVAL : ESP_EUNSUPPORTED;
}

static esp_status read_tokens(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_find(gguf, KEY("tokens"));
    if (kv == NULL || kv->type != ESP_GGUF_ARRAY || kv->item_type != ESP_GGUF_STRING) {
        return fail_key(err, KEY("tokens"), "must be an array of strings; items:", kv == NULL ? 0 : kv->n);
    }
    if (kv->n == 0 || kv->n > ESP_TOKENIZER_TOKENS_MAX || kv->n_bytes > ESP_TOKENIZER_TEXT_BYTES_MAX) {
        return fail_key(err, KEY("tokens"), "too few or too many tokens:", kv->n);
    }
    tok->n_tokens = (uint32_t)kv->n;
    tok->text = esp_malloc(ESP_TAG_VOCAB, kv->n_bytes); /* more than the texts: each has a length in front */
    tok->text_at = esp_malloc(ESP_TAG_VOCAB, (kv->n + 1) * sizeof *tok->text_at);
    tok->types = esp_malloc(ESP_TAG_VOCAB, kv->n);
    tok->flags = esp_calloc(ESP_TAG_VOCAB, kv->n, 1);
    if (tok->text == NULL || tok->text_at == NULL || tok->types == NULL || tok->flags == NULL) {
        return no_memory(err);
    }
    struct esp_gguf_string_iter iter = esp_gguf_strings(kv);
    uint32_t at = 0;
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        struct esp_gguf_string text;
        if (!esp_gguf_next_string(&iter, &text)) {
            return fail_key(err, KEY("tokens"), "the list ends at item", id);
        }
        tok->text_at[id] = at;
        if (text.n_bytes > 0) {
            memcpy(tok->text + at, text.data, text.n_bytes);
        }
        at += (uint32_t)text.n_bytes;
    }
    tok->text_at[tok->n_tokens] = at;
    return ESP_OK;
}

static bool is_integer(enum esp_gguf_type type)
{
    return type == ESP_GGUF_U8 || type == ESP_GGUF_I8 || type == ESP_GGUF_U16 || type == ESP_GGUF_I16 ||
           type == ESP_GGUF_U32 || type == ESP_GGUF_I32 || type == ESP_GGUF_U64 || type == ESP_GGUF_I64;
}

static esp_status read_types(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_find(gguf, KEY("token_type"));
    memset(tok->types, ESP_TOKEN_NORMAL, tok->n_tokens);
    if (kv == NULL) {
        return ESP_OK;
    }
    if (kv->type != ESP_GGUF_ARRAY || !is_integer(kv->item_type)) {
        return fail_key(err, KEY("token_type"), "must be an array of integers; items:", kv->n);
    }
    if (kv->n != tok->n_tokens) {
        return fail_key(err, KEY("token_type"), "must be as long as " KEY("tokens") ", but has items:", kv->n);
    }
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        int64_t type = esp_gguf_array_int(kv, id);
        if (type < 0 || type > ESP_TOKEN_BYTE) {
            return fail_key(err, KEY("token_type"), "unknown type at item", id);
        }
        tok->types[id] = type == 0 ? ESP_TOKEN_NORMAL : (uint8_t)type; /* 0 = undefined */
    }
    return ESP_OK;
}

/* Scores as unsigned numbers in the opposite order, so that the best pair is the lowest. */
static uint32_t score_order(float score)
{
    uint32_t bits;
    float plus_zero = score + 0.0f; /* -0 and 0 are one score */
    memcpy(&bits, &plus_zero, sizeof bits);
    return (bits & 0x80000000u) != 0 ? bits : 0x7FFFFFFFu - bits;
}

static esp_status read_scores(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_find(gguf, KEY("scores"));
    if (kv == NULL && tok->kind != ESP_TOKENIZER_SPM) {
        return ESP_OK;
    }
    if (kv == NULL || kv->type != ESP_GGUF_ARRAY || kv->item_type != ESP_GGUF_F32) {
        return fail_key(err, KEY("scores"), "must be an array of 32-bit floats; items:", kv == NULL ? 0 : kv->n);
    }
    if (kv->n != tok->n_tokens) {
        return fail_key(err, KEY("scores"), "must be as long as " KEY("tokens") ", but has items:", kv->n);
    }
    if (tok->kind != ESP_TOKENIZER_SPM) {
        return ESP_OK;
    }
    tok->order = esp_malloc(ESP_TAG_VOCAB, tok->n_tokens * sizeof *tok->order);
    if (tok->order == NULL) {
        return no_memory(err);
    }
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        double score = esp_gguf_array_float(kv, id);
        if (isnan(score)) {
            return fail_key(err, KEY("scores"), "not a number at item", id);
        }
        tok->order[id] = score_order((float)score);
    }
    return ESP_OK;
}

/* An id that is used must be one; lenient ids past the end are dropped with a warning. */
static esp_status read_id(struct esp_tokenizer *tok, const struct esp_gguf *gguf, const char *key, bool lenient,
                          uint32_t *ret_id, struct esp_err *err)
{
    uint32_t id;
    esp_status status = esp_gguf_get_u32(gguf, key, ESP_TOKEN_NONE, &id, err);
    if (status != ESP_OK) {
        return status;
    }
    if (id >= tok->n_tokens && esp_gguf_find(gguf, key) != NULL) {
        if (!lenient) {
            return fail_key(err, key, "no such token:", id);
        }
        esp_buf_printf(&tok->warnings, "%s: no such token: %u\n", key, (unsigned)id);
        id = ESP_TOKEN_NONE;
    }
    *ret_id = id;
    return ESP_OK;
}

static void mark_end(struct esp_tokenizer *tok, uint32_t id)
{
    if (id != ESP_TOKEN_NONE) {
        tok->flags[id] |= ESP_FLAG_END;
    }
}

static esp_status read_ids(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    uint32_t eot = ESP_TOKEN_NONE, eom = ESP_TOKEN_NONE, cls = ESP_TOKEN_NONE, unused;
    const struct {
        const char *key;
        uint32_t *id;
        bool lenient; /* not needed here: a file may have it wrong */
    } ids[] = {
        {KEY("bos_token_id"), &tok->bos, false},         {KEY("eos_token_id"), &tok->eos, false},
        {KEY("unknown_token_id"), &tok->unk, false},     {KEY("eot_token_id"), &eot, false},
        {KEY("eom_token_id"), &eom, false},              {KEY("cls_token_id"), &cls, false},
        {KEY("padding_token_id"), &unused, true},        {KEY("mask_token_id"), &unused, true},
        {KEY("seperator_token_id"), &unused, true},
    };
    for (size_t idx = 0; idx < sizeof ids / sizeof ids[0]; idx++) {
        esp_status status = read_id(tok, gguf, ids[idx].key, ids[idx].lenient, ids[idx].id, err);
        if (status != ESP_OK) {
            return status;
        }
    }
    if (tok->kind == ESP_TOKENIZER_SPM && tok->n_tokens > 2) {
        tok->bos = tok->bos == ESP_TOKEN_NONE ? 1 : tok->bos;
        tok->eos = tok->eos == ESP_TOKEN_NONE ? 2 : tok->eos;
    }
    if (tok->kind == ESP_TOKENIZER_WPM && tok->bos == ESP_TOKEN_NONE) {
        tok->bos = cls;
    }
    mark_end(tok, tok->kind == ESP_TOKENIZER_WPM ? ESP_TOKEN_NONE : tok->eos);
    mark_end(tok, eot);
    mark_end(tok, eom);
    return ESP_OK;
}

static esp_status read_pretok(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    struct esp_gguf_string name;
    esp_status status = esp_gguf_get_string(gguf, KEY("pre"), &name, err);
    if (status != ESP_OK) {
        return status;
    }
    if (name.data == NULL || is_string(&name, "default")) {
        esp_buf_str(&tok->warnings, "no pre-tokenizer is named (" KEY("pre") "): the default one is used, and text may "
                                    "be split otherwise than the model was trained on\n");
        name = (struct esp_gguf_string){"default", strlen("default")};
    }
    const struct esp_pretok_row *row = esp_pretok_find(name.data, name.n_bytes);
    if (row == NULL) {
        esp_fail(err, ESP_EUNSUPPORTED, "pre-tokenizer \"%.*s\" is not known",
                 (int)(name.n_bytes < 64 ? name.n_bytes : 64), name.data);
        esp_err_place(err, KEY("pre"));
        return ESP_EUNSUPPORTED;
    }
    tok->nfc = row->nfc;
    tok->ignore_merges = row->ignore_merges;
    tok->add_bos = row->add_bos;
    return esp_pretok_create(row, &tok->pretok, err);
}

static esp_status read_flags(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    bool spm = tok->kind == ESP_TOKENIZER_SPM;
    bool add_bos = tok->kind == ESP_TOKENIZER_BPE ? tok->add_bos : true;
    esp_status status = esp_gguf_get_bool(gguf, KEY("add_bos_token"), add_bos, &tok->add_bos, err);
    if (status == ESP_OK) {
        status = esp_gguf_get_bool(gguf, KEY("add_space_prefix"), spm, &tok->add_space_prefix, err);
        tok->add_space_prefix = tok->add_space_prefix && spm;
    }
    if (status == ESP_OK) {
        status = esp_gguf_get_bool(gguf, KEY("normalizer.lowercase"), true, &tok->lowercase, err);
    }
    if (status == ESP_OK) {
        status = esp_gguf_get_bool(gguf, KEY("normalizer.strip_accents"), tok->lowercase, &tok->strip_accents, err);
    }
    tok->add_bos = tok->add_bos && tok->bos != ESP_TOKEN_NONE;
    return status;
}

/* Phi-3's own tokenizer drops white space after its control tokens; its GGUF files say so only by name. */
static void mark_strips(struct esp_tokenizer *tok, const struct esp_gguf *gguf)
{
    static const char *const keeps[] = {"<unk>", "<s>", "<|endoftext|>"};
    struct esp_gguf_string name;
    if (esp_gguf_get_string(gguf, "general.name", &name, NULL) != ESP_OK || name.data == NULL ||
        tok->kind != ESP_TOKENIZER_SPM) {
        return;
    }
    if (memmem(name.data, name.n_bytes, "Phi3", 4) == NULL && memmem(name.data, name.n_bytes, "Phi-3", 5) == NULL &&
        memmem(name.data, name.n_bytes, "phi3", 4) == NULL && memmem(name.data, name.n_bytes, "phi-3", 5) == NULL) {
        return;
    }
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        bool strips = tok->types[id] == ESP_TOKEN_CONTROL || tok->types[id] == ESP_TOKEN_USER;
        for (size_t idx = 0; strips && idx < sizeof keeps / sizeof keeps[0]; idx++) {
            struct esp_gguf_string text;
            text.data = esp_token_text(tok, id, &text.n_bytes);
            strips = !is_string(&text, keeps[idx]);
        }
        tok->flags[id] |= strips ? ESP_FLAG_STRIP_RIGHT : 0;
    }
}

/* Texts that plain text may become, and the check that no text is there twice. */
static esp_status map_tokens(struct esp_tokenizer *tok, struct esp_err *err)
{
    struct esp_bytesmap all; /* the check covers the tokens that syms leaves out, too */
    esp_bytesmap_init(&all, ESP_TAG_VOCAB);
    esp_status status = esp_bytesmap_reserve(&all, tok->n_tokens);
    if (status == ESP_OK) {
        status = esp_bytesmap_reserve(&tok->syms, tok->n_tokens);
    }
    for (uint32_t id = 0; status == ESP_OK && id < tok->n_tokens; id++) {
        size_t n;
        const char *text = esp_token_text(tok, id, &n);
        if (n == 0) {
            continue; /* an empty token can be read back, never made */
        }
        size_t before = all.n;
        status = esp_bytesmap_put(&all, text, n, id);
        if (status == ESP_OK && all.n == before) {
            status = fail_key(err, KEY("tokens"), "the same text as an earlier one at item", id);
        }
        if (status == ESP_OK && (tok->types[id] == ESP_TOKEN_NORMAL || tok->types[id] == ESP_TOKEN_USER)) {
            status = esp_bytesmap_put(&tok->syms, text, n, id);
            tok->sym_bytes_max = n > tok->sym_bytes_max ? (uint32_t)n : tok->sym_bytes_max;
        }
    }
    esp_bytesmap_finish(&all);
    return status == ESP_ENOMEM ? no_memory(err) : status;
}

/* Bytes of UTF-8 that no token spells; 0xC0, 0xC1 and those beyond 0xF4 are never in it. */
static bool misses_byte(const struct esp_tokenizer *tok, unsigned byte)
{
    return tok->byte_token[byte] == ESP_TOKEN_NONE && byte <= 0xF4 && byte != 0xC0 && byte != 0xC1;
}

/* Says which, runs of them as a range. */
static void warn_missing_bytes(struct esp_tokenizer *tok)
{
    unsigned n_missing = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        n_missing += misses_byte(tok, byte);
    }
    if (n_missing == 0 || tok->kind == ESP_TOKENIZER_WPM) {
        return;
    }
    esp_buf_printf(&tok->warnings, "%u byte%s no token and %s lost from text:", n_missing,
                   n_missing == 1 ? " has" : "s have", n_missing == 1 ? "is" : "are");
    for (unsigned byte = 0, last; byte < 256; byte = last + 1) {
        last = byte;
        if (!misses_byte(tok, byte)) {
            continue;
        }
        while (last < 255 && misses_byte(tok, last + 1)) {
            last++;
        }
        esp_buf_printf(&tok->warnings, last == byte ? " %02X" : " %02X-%02X", byte, last);
    }
    esp_buf_char(&tok->warnings, '\n');
}

/* The token of each single byte: <0xXX> of SPM, the stand-in character of byte-level BPE. */
static void map_bytes(struct esp_tokenizer *tok)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        tok->byte_token[byte] = ESP_TOKEN_NONE;
    }
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        size_t n = tok->bytes_at[id + 1] - tok->bytes_at[id];
        enum esp_token_type wanted = tok->kind == ESP_TOKENIZER_SPM ? ESP_TOKEN_BYTE : ESP_TOKEN_NORMAL;
        if (n == 1 && tok->types[id] == wanted) {
            tok->byte_token[(uint8_t)tok->bytes[tok->bytes_at[id]]] = id;
        }
    }
    warn_missing_bytes(tok);
}

esp_status esp_tokenizer_load(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err)
{
    esp_status status = read_kind(tok, gguf, err);
    status = status != ESP_OK ? status : read_tokens(tok, gguf, err);
    status = status != ESP_OK ? status : read_types(tok, gguf, err);
    status = status != ESP_OK ? status : read_scores(tok, gguf, err);
    status = status != ESP_OK ? status : read_ids(tok, gguf, err);
    if (status == ESP_OK && tok->kind == ESP_TOKENIZER_BPE) {
        status = read_pretok(tok, gguf, err);
    }
    status = status != ESP_OK ? status : read_flags(tok, gguf, err);
    status = status != ESP_OK ? status : map_tokens(tok, err);
    if (status != ESP_OK) {
        return status;
    }
    if (esp_tokenizer_make_bytes(tok) != ESP_OK) {
        return no_memory(err);
    }
    map_bytes(tok);
    mark_strips(tok, gguf);
    esp_specials_mark_ends(tok);
    if (esp_specials_create(tok) != ESP_OK) {
        return no_memory(err);
    }
    return tok->kind == ESP_TOKENIZER_BPE ? esp_bpe_load(tok, gguf, err) : ESP_OK;
}
