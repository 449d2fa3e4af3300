/* The scripted engine's vocabulary: one token a byte, four control tokens, and the pieces of the scripts.
 *
 * Grammars are not compiled: a schema with "unsupported" as a key is refused with a pointer, gbnf and lark are
 * refused, and what is taken is kept as text, so that a script can echo it and a test can see that it
 * arrived as it was written. Tests only.
 */
#include <jansson.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/file.h"
#include "runtime/vocab.h"
#include "tests/e2e/fake_engine.h"

static char byte_text[256];

uint32_t fake_piece(esp_vocab *vocab, const char *bytes, size_t n)
{
    uint32_t id = ESP_TOKEN_NONE;
    if (n == 1) {
        return (unsigned char)bytes[0];
    }
    pthread_mutex_lock(&vocab->lock);
    for (uint32_t idx = 0; idx < vocab->n_pieces && id == ESP_TOKEN_NONE; idx++) {
        if (vocab->pieces[idx].n == n && memcmp(vocab->pieces[idx].bytes, bytes, n) == 0) {
            id = FAKE_FIRST_PIECE + idx;
        }
    }
    if (id == ESP_TOKEN_NONE && vocab->n_pieces < FAKE_PIECES) {
        vocab->pieces[vocab->n_pieces].bytes = esp_strndup(ESP_TAG_VOCAB, bytes, n);
        vocab->pieces[vocab->n_pieces].n = n;
        id = FAKE_FIRST_PIECE + vocab->n_pieces++;
    }
    pthread_mutex_unlock(&vocab->lock);
    return id;
}

static size_t unhex(const char *text, char *out, size_t room)
{
    size_t n = 0;
    for (; text[2 * n] != '\0' && text[2 * n + 1] != '\0' && n < room; n++) {
        unsigned value = 0;
        sscanf(text + 2 * n, "%2x", &value);
        out[n] = (char)value;
    }
    return n;
}

static int64_t number(const json_t *root, const char *name, int64_t fallback)
{
    const json_t *value = json_object_get(root, name);
    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

bool fake_script_read(const char *path, esp_vocab *vocab, struct fake_script *ret_script, struct esp_err *err)
{
    json_t *root = json_load_file(path, 0, NULL);
    if (!json_is_object(root)) {
        json_decref(root);
        esp_fail(err, ESP_EINVAL, "%s is no script", path);
        return false;
    }
    const json_t *tokens = json_object_get(root, "tokens");
    size_t n = json_array_size(tokens);
    *ret_script = (struct fake_script){
        .tokens = esp_calloc(ESP_TAG_ENGINE, n + 1, sizeof(uint32_t)),
        .repeat = json_is_true(json_object_get(root, "repeat")),
        .echo_grammar = json_is_true(json_object_get(root, "echo_grammar")),
        .delay_ns = number(root, "delay_us", 0) * 1000,
        .start_ns = number(root, "start_ms", 0) * 1000000,
        .fail_after = number(root, "fail_after", -1),
        .load_ms = number(root, "load_ms", 0),
        .n_ctx = (uint32_t)number(root, "n_ctx", 4096),
        .n_batch = (uint32_t)number(root, "n_batch", 64),
        .n_queue = (uint32_t)number(root, "n_queue", 1024),
        .skew = (uint32_t)number(root, "skew", 0),
    };
    for (size_t idx = 0; idx < n; idx++) {
        char bytes[4096];
        const char *hex = json_string_value(json_array_get(tokens, idx));
        size_t n_bytes = unhex(hex == NULL ? "" : hex, bytes, sizeof bytes);
        ret_script->tokens[ret_script->n_tokens++] = fake_piece(vocab, bytes, n_bytes);
    }
    json_decref(root);
    return true;
}

uint32_t esp_vocab_n_tokens(const esp_vocab *vocab)
{
    return FAKE_VOCAB;
}

static bool control_at(const char *text, size_t n, size_t *ret_n, uint32_t *ret_id)
{
    static const char *const names[] = {"<|im_end|>", "<|bos|>", "<|im_start|>", "<|other|>"};
    for (uint32_t idx = 0; idx < 4; idx++) {
        size_t len = strlen(names[idx]);
        if (n >= len && memcmp(text, names[idx], len) == 0) {
            *ret_n = len;
            *ret_id = FAKE_END + idx;
            return true;
        }
    }
    return false;
}

int64_t esp_tokenize(const esp_vocab *vocab, const struct esp_span *spans, size_t n_spans, uint32_t *ids, size_t cap,
                     struct esp_err *err)
{
    size_t n = 0;
    for (size_t idx = 0; idx < n_spans; idx++) {
        for (size_t at = 0; at < spans[idx].n_bytes;) {
            size_t used = 1;
            uint32_t id = (unsigned char)spans[idx].text[at];
            if (spans[idx].control) {
                control_at(spans[idx].text + at, spans[idx].n_bytes - at, &used, &id);
            }
            if (n < cap) {
                ids[n] = id;
            }
            n++;
            at += used;
        }
    }
    return (int64_t)n;
}

const char *esp_token_bytes(const esp_vocab *vocab, uint32_t id, bool control, size_t *ret_n_bytes)
{
    static const char *const names[] = {"<|im_end|>", "<|bos|>", "<|im_start|>", "<|other|>"};
    *ret_n_bytes = 0;
    if (id < 256) {
        byte_text[id] = (char)id;
        *ret_n_bytes = 1;
        return &byte_text[id];
    }
    if (id < 260 && control) {
        *ret_n_bytes = strlen(names[id - 256]);
        return names[id - 256];
    }
    if (id >= FAKE_FIRST_PIECE && id - FAKE_FIRST_PIECE < vocab->n_pieces) {
        *ret_n_bytes = vocab->pieces[id - FAKE_FIRST_PIECE].n;
        return vocab->pieces[id - FAKE_FIRST_PIECE].bytes;
    }
    return id < FAKE_VOCAB ? "" : NULL;
}

int64_t esp_detokenize(const esp_vocab *vocab, const uint32_t *ids, size_t n_ids, bool control, char *text, size_t cap)
{
    size_t n = 0;
    for (size_t idx = 0; idx < n_ids; idx++) {
        size_t n_bytes = 0;
        const char *bytes = esp_token_bytes(vocab, ids[idx], control, &n_bytes);
        if (n + n_bytes <= cap && n_bytes > 0) {
            memcpy(text + n, bytes, n_bytes);
        }
        n += n_bytes;
    }
    return (int64_t)n;
}

uint32_t esp_vocab_bos(const esp_vocab *vocab)
{
    return FAKE_BOS;
}

uint32_t esp_vocab_eos(const esp_vocab *vocab)
{
    return FAKE_END;
}

bool esp_vocab_adds_bos(const esp_vocab *vocab)
{
    return true;
}

bool esp_vocab_is_end(const esp_vocab *vocab, uint32_t id)
{
    return id == FAKE_END;
}

const char *esp_vocab_meta(const esp_vocab *vocab, const char *key)
{
    return strcmp(key, "tokenizer.chat_template") != 0
               ? NULL
               : "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
}

/* Of all that is no schema: what begins with a group is wrong here. */
static bool bad_pattern(const char *kind, const char *text, size_t n_bytes)
{
    if (strcmp(kind, "gbnf") == 0 || strcmp(kind, "lark") == 0) {
        return n_bytes == 0 || memchr(text, '(', n_bytes) != NULL;
    }
    return strcmp(kind, "regex") == 0 && (n_bytes == 0 || memchr(text, '\0', n_bytes) != NULL || text[0] == '(');
}

esp_status esp_vocab_grammar(const esp_vocab *vocab, const char *kind, const char *text, size_t n_bytes,
                             const char *options, esp_grammar **ret_grammar, struct esp_err *err)
{
    if (bad_pattern(kind, text, n_bytes)) {
        return esp_fail(err, ESP_EINVAL, "bad %s", kind);
    }
    if (strcmp(kind, "schema") == 0) {
        json_t *schema = json_loadb(text, n_bytes, JSON_DECODE_ANY, NULL);
        bool fine = json_is_object(schema) || json_is_boolean(schema);
        bool unsupported = json_object_get(schema, "unsupported") != NULL;
        json_decref(schema);
        if (!fine || unsupported) {
            esp_fail(err, fine ? ESP_EUNSUPPORTED : ESP_EINVAL, "this schema cannot be honoured");
            esp_err_place(err, "%s", unsupported ? "/unsupported" : "");
            esp_err_keyword(err, unsupported ? "unsupported" : "");
            return err->code;
        }
    }
    esp_grammar *grammar = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *grammar + n_bytes + 1);
    grammar->n_refs = 1;
    grammar->n_bytes = n_bytes;
    memcpy(grammar->text, text, n_bytes);
    *ret_grammar = grammar;
    return ESP_OK;
}

void esp_grammar_unref(esp_grammar *grammar)
{
    if (grammar != NULL && __atomic_sub_fetch(&grammar->n_refs, 1, __ATOMIC_ACQ_REL) == 0) {
        esp_free(grammar);
    }
}

const char *esp_grammar_warnings(const esp_grammar *grammar)
{
    return strstr(grammar->text, "\"odd\"") == NULL
               ? "[]"
               : "[{\"code\":\"unknown_format\",\"param\":\"/format\",\"message\":\"odd is no known format\"}]";
}

esp_status esp_vocab_trie(const esp_vocab *vocab, const struct esp_trie **ret_trie, struct esp_err *err)
{
    *ret_trie = NULL;
    return ESP_OK;
}

esp_status esp_grammar_options_parse(const char *text, struct esp_grammar_options *ret_options, struct esp_err *err)
{
    return ESP_OK;
}

esp_status esp_grammar_explain(const struct esp_trie *trie, const struct esp_grammar_spec *spec, struct esp_buf *buf,
                               struct esp_err *err)
{
    esp_buf_str(buf, "[]");
    return ESP_OK;
}
