/* Tokenizer objects, and the order of work of an encode: join the spans, check UTF-8, cut out special tokens,
 * hand the pieces between them to the kind's own encoder.
 *
 * What spans allow is one number per position: how many bytes from here on lie in spans with control set.
 * Read-only after create; everything that an encode changes is on its own stack and heap. Thread: any.
 */
#include "runtime/tokenizer.h"

#include <string.h>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer_impl.h"
#include "runtime/unicode.h"

#define WARNINGS_BYTES_MAX 4096

esp_status esp_tokenizer_create(const struct esp_gguf *gguf, struct esp_tokenizer **ret_tokenizer, struct esp_err *err)
{
    struct esp_tokenizer *tok = esp_calloc(ESP_TAG_VOCAB, 1, sizeof *tok);
    if (tok == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for the vocabulary");
    }
    esp_bytesmap_init(&tok->syms, ESP_TAG_VOCAB);
    esp_map_init(&tok->merges, ESP_TAG_VOCAB);
    esp_buf_init(&tok->warnings, ESP_TAG_VOCAB, WARNINGS_BYTES_MAX);
    tok->bos = tok->eos = tok->unk = ESP_TOKEN_NONE;
    esp_status status = esp_tokenizer_load(tok, gguf, err);
    if (status != ESP_OK) {
        esp_tokenizer_destroy(tok);
        return status;
    }
    *ret_tokenizer = tok;
    return ESP_OK;
}

void esp_tokenizer_destroy(struct esp_tokenizer *tokenizer)
{
    if (tokenizer == NULL) {
        return;
    }
    esp_free(tokenizer->text);
    esp_free(tokenizer->text_at);
    esp_free(tokenizer->bytes);
    esp_free(tokenizer->bytes_at);
    esp_free(tokenizer->types);
    esp_free(tokenizer->flags);
    esp_free(tokenizer->order);
    esp_bytesmap_finish(&tokenizer->syms);
    esp_free(tokenizer->specials.ids);
    esp_map_finish(&tokenizer->merges);
    esp_free(tokenizer->merge_sym);
    esp_free(tokenizer->extra);
    esp_pretok_destroy(tokenizer->pretok);
    esp_buf_finish(&tokenizer->warnings);
    esp_free(tokenizer);
}

static esp_status encode_piece(struct esp_encode *enc, const char *text, size_t n_bytes)
{
    if (n_bytes == 0) {
        return ESP_OK;
    }
    switch (enc->tok->kind) {
    case ESP_TOKENIZER_BPE: return esp_bpe_encode(enc, text, n_bytes);
    case ESP_TOKENIZER_SPM: return esp_spm_encode(enc, text, n_bytes);
    case ESP_TOKENIZER_WPM: return esp_wpm_encode(enc, text, n_bytes);
    }
    return ESP_EINTERNAL;
}

static size_t skip_spaces(const char *text, size_t n_bytes, size_t at)
{
    while (at < n_bytes) {
        uint32_t cp;
        int n = esp_utf8_decode(text + at, n_bytes - at, &cp);
        if (n <= 0 || !esp_unicode_is_space(cp)) {
            break;
        }
        at += (size_t)n;
    }
    return at;
}

/* Where the spans lie in the joined text. */
struct reach {
    const struct esp_span *spans;
    size_t n_spans;
    size_t idx, end; /* the first span that ends behind the position, and where it ends */
    size_t run_end;  /* end of the run of allowing spans around it; 0 = not known */
};

/* Bytes from at on that lie in spans with control set, without a gap. Positions must not go back. */
static size_t control_reach(struct reach *reach, size_t at)
{
    while (reach->idx < reach->n_spans && reach->end <= at) {
        reach->idx++;
        reach->end += reach->idx < reach->n_spans ? reach->spans[reach->idx].n_bytes : 0;
    }
    if (reach->idx >= reach->n_spans || !reach->spans[reach->idx].control) {
        return 0;
    }
    if (reach->run_end <= at) {
        reach->run_end = reach->end;
        for (size_t idx = reach->idx + 1; idx < reach->n_spans; idx++) {
            if (!reach->spans[idx].control && reach->spans[idx].n_bytes > 0) {
                break;
            }
            reach->run_end += reach->spans[idx].n_bytes;
        }
    }
    return reach->run_end - at;
}

static esp_status encode_text(struct esp_encode *enc, struct reach *reach, const char *text, size_t n_bytes)
{
    const struct esp_tokenizer *tok = enc->tok;
    size_t start = 0;
    for (size_t at = 0; at < n_bytes;) {
        size_t n_match;
        uint32_t id = ESP_TOKEN_NONE;
        if (tok->specials.starts[(uint8_t)text[at]]) {
            id = esp_specials_match(tok, text + at, n_bytes - at, control_reach(reach, at), &n_match);
        }
        if (id == ESP_TOKEN_NONE) {
            at++;
            continue;
        }
        esp_status status = encode_piece(enc, text + start, at - start);
        if (status != ESP_OK) {
            return status;
        }
        esp_encode_id(enc, id);
        at += n_match;
        if ((tok->flags[id] & ESP_FLAG_STRIP_RIGHT) != 0) {
            at = skip_spaces(text, n_bytes, at);
        }
        start = at;
    }
    return encode_piece(enc, text + start, n_bytes - start);
}

/* One text from spans; a single span is used where it lies. */
static esp_status join_spans(const struct esp_span *spans, size_t n_spans, struct esp_buf *joined,
                             const char **ret_text, size_t *ret_n_bytes, struct esp_err *err)
{
    size_t n_bytes = 0;
    for (size_t idx = 0; idx < n_spans; idx++) {
        if (spans[idx].n_bytes > ESP_TOKENIZER_INPUT_BYTES_MAX - n_bytes) {
            return esp_fail(err, ESP_ELIMIT, "more than %zu bytes of text to tokenize", ESP_TOKENIZER_INPUT_BYTES_MAX);
        }
        n_bytes += spans[idx].n_bytes;
    }
    *ret_n_bytes = n_bytes;
    *ret_text = n_spans == 1 && n_bytes > 0 ? spans[0].text : "";
    if (n_spans < 2 || n_bytes == 0) {
        return ESP_OK;
    }
    for (size_t idx = 0; idx < n_spans; idx++) {
        if (spans[idx].n_bytes > 0) {
            esp_buf_add(joined, spans[idx].text, spans[idx].n_bytes);
        }
    }
    *ret_text = joined->data;
    return joined->failed ? esp_fail(err, ESP_ENOMEM, "out of memory for the text") : ESP_OK;
}

esp_status esp_tokenizer_encode(const struct esp_tokenizer *tokenizer, const struct esp_span *spans, size_t n_spans,
                                struct esp_buf *ids, struct esp_err *err)
{
    struct esp_buf joined;
    esp_buf_init(&joined, ESP_TAG_VOCAB, ESP_TOKENIZER_INPUT_BYTES_MAX + 1);
    const char *text = "";
    size_t n_bytes = 0;
    esp_status status = join_spans(spans, n_spans, &joined, &text, &n_bytes, err);
    size_t n_valid = status == ESP_OK ? esp_utf8_valid(text, n_bytes) : 0;
    if (status == ESP_OK && n_valid < n_bytes) {
        status = esp_fail(err, ESP_EINVAL, "the text is not UTF-8 at byte %zu", n_valid);
        if (err != NULL) {
            err->offset = n_valid;
        }
    }
    struct esp_encode enc = {.tok = tokenizer, .ids = ids, .err = err};
    esp_merge_init(&enc.merge);
    esp_buf_init(&enc.scratch, ESP_TAG_VOCAB, ESP_TOKENIZER_INPUT_BYTES_MAX * 4);
    esp_buf_init(&enc.word, ESP_TAG_VOCAB, ESP_TOKENIZER_INPUT_BYTES_MAX);
    size_t n_before = ids->n;
    if (status == ESP_OK) {
        struct reach reach = {.spans = spans, .n_spans = n_spans, .end = n_spans > 0 ? spans[0].n_bytes : 0};
        status = encode_text(&enc, &reach, text, n_bytes);
        if (status == ESP_OK && ids->failed) {
            status = ESP_ENOMEM;
        }
        if (status == ESP_ENOMEM) {
            esp_fail(err, status, "out of memory for tokenizing");
        }
    }
    if (status != ESP_OK && !ids->failed) {
        ids->n = n_before;
    }
    esp_merge_finish(&enc.merge);
    esp_pretok_run_destroy(enc.run);
    esp_buf_finish(&enc.scratch);
    esp_buf_finish(&enc.word);
    esp_buf_finish(&joined);
    return status;
}

uint32_t esp_tokenizer_n_tokens(const struct esp_tokenizer *tokenizer)
{
    return tokenizer->n_tokens;
}

enum esp_token_type esp_tokenizer_type(const struct esp_tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->n_tokens ? (enum esp_token_type)tokenizer->types[id] : ESP_TOKEN_UNUSED;
}

uint32_t esp_tokenizer_bos(const struct esp_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

uint32_t esp_tokenizer_eos(const struct esp_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool esp_tokenizer_adds_bos(const struct esp_tokenizer *tokenizer)
{
    return tokenizer->add_bos;
}

bool esp_tokenizer_is_end(const struct esp_tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->n_tokens && (tokenizer->flags[id] & ESP_FLAG_END) != 0;
}

const char *esp_tokenizer_warnings(const struct esp_tokenizer *tokenizer)
{
    return tokenizer->warnings.data == NULL ? "" : tokenizer->warnings.data;
}
