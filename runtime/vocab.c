/* esp_vocab: the vocabulary part of espalier.h over the tokenizer, and the trie of token bytes for grammars.
 *
 * Strings of the file are copied into an arena at open. The trie waits for the first grammar, because many users of
 * a vocabulary never need it. Public calls check their arguments. Thread: any.
 */
#include "runtime/vocab.h"

#include <pthread.h>
#include <string.h>

#include "runtime/base/arena.h"
#include "runtime/base/log.h"
#include "runtime/tokenizer.h"

#define META_BYTES_MAX ((size_t)64 << 20)
#define IDS_BYTES_MAX ((size_t)1 << 30)
#define TEXT_BYTES_MAX ((size_t)1 << 30)

struct meta {
    const char *key, *value;
};

struct esp_vocab {
    struct esp_tokenizer *tokenizer;
    struct esp_arena arena; /* metas and their texts */
    struct meta *metas;     /* [n_metas] */
    size_t n_metas;
    struct esp_grammar_cache *grammars;
    struct lazy_trie *lazy;
};

/* What changes after open: apart, so that a const vocabulary stays const. */
struct lazy_trie {
    pthread_mutex_t lock;
    struct esp_trie *trie;
};

static esp_status read_metas(esp_vocab *vocab, const struct esp_gguf *gguf)
{
    size_t n_kv = esp_gguf_n_kv(gguf);
    vocab->metas = esp_arena_alloc(&vocab->arena, n_kv + 1, sizeof *vocab->metas);
    for (size_t idx = 0; vocab->metas != NULL && idx < n_kv; idx++) {
        const struct esp_gguf_kv *kv = esp_gguf_kv_at(gguf, idx);
        if (kv->type != ESP_GGUF_STRING) {
            continue;
        }
        char *key = esp_arena_strndup(&vocab->arena, kv->key.data, kv->key.n_bytes);
        struct esp_gguf_string text = {NULL, 0};
        if (key == NULL || esp_gguf_get_string(gguf, key, &text, NULL) != ESP_OK) {
            return ESP_ENOMEM;
        }
        char *value = esp_arena_strndup(&vocab->arena, text.data, text.n_bytes);
        if (value == NULL) {
            return ESP_ENOMEM;
        }
        vocab->metas[vocab->n_metas++] = (struct meta){key, value};
    }
    return vocab->metas == NULL ? ESP_ENOMEM : ESP_OK;
}

static struct lazy_trie *lazy_create(void)
{
    struct lazy_trie *lazy = esp_calloc(ESP_TAG_VOCAB, 1, sizeof *lazy);
    if (lazy != NULL && pthread_mutex_init(&lazy->lock, NULL) != 0) {
        esp_free(lazy);
        return NULL;
    }
    return lazy;
}

esp_status esp_vocab_from_gguf(const struct esp_gguf *gguf, esp_vocab **ret_vocab, struct esp_err *err)
{
    esp_vocab *vocab = esp_calloc(ESP_TAG_VOCAB, 1, sizeof *vocab);
    if (vocab == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for the vocabulary");
    }
    esp_arena_init(&vocab->arena, ESP_TAG_VOCAB, META_BYTES_MAX);
    esp_status status = esp_tokenizer_create(gguf, &vocab->tokenizer, err);
    if (status == ESP_OK) {
        vocab->lazy = lazy_create();
        status = vocab->lazy == NULL ? ESP_ENOMEM : read_metas(vocab, gguf);
        status = status != ESP_OK ? status : esp_grammar_cache_create(ESP_GRAMMAR_CACHE_BYTES_MAX, &vocab->grammars);
        if (status != ESP_OK) {
            esp_fail(err, status, "out of memory for the vocabulary");
        }
    }
    if (status != ESP_OK) {
        esp_vocab_close(vocab);
        return status;
    }
    const char *warnings = esp_tokenizer_warnings(vocab->tokenizer);
    if (warnings[0] != '\0') {
        esp_log(ESP_LOG_WARN, "vocab", "%.*s", (int)strlen(warnings) - 1, warnings); /* without the last newline */
    }
    *ret_vocab = vocab;
    return ESP_OK;
}

esp_status esp_vocab_open(const char *path, esp_vocab **ret_vocab, struct esp_err *err)
{
    if (path == NULL || ret_vocab == NULL) {
        return esp_fail(err, ESP_EINVAL, "no path, or nowhere to put the vocabulary");
    }
    struct esp_gguf *gguf;
    esp_status status = esp_gguf_open(path, &gguf, err);
    if (status != ESP_OK) {
        return status;
    }
    status = esp_vocab_from_gguf(gguf, ret_vocab, err);
    esp_gguf_close(gguf);
    return status;
}

void esp_vocab_close(esp_vocab *vocab)
{
    if (vocab == NULL) {
        return;
    }
    esp_grammar_cache_destroy(vocab->grammars); /* grammars belong to the trie */
    if (vocab->lazy != NULL) {
        esp_trie_destroy(vocab->lazy->trie);
        pthread_mutex_destroy(&vocab->lazy->lock);
        esp_free(vocab->lazy);
    }
    esp_tokenizer_destroy(vocab->tokenizer);
    esp_arena_finish(&vocab->arena);
    esp_free(vocab);
}

uint32_t esp_vocab_n_tokens(const esp_vocab *vocab)
{
    return vocab == NULL ? 0 : esp_tokenizer_n_tokens(vocab->tokenizer);
}

int64_t esp_tokenize(const esp_vocab *vocab, const struct esp_span *spans, size_t n_spans, uint32_t *ids, size_t cap,
                     struct esp_err *err)
{
    if (vocab == NULL || (spans == NULL && n_spans > 0) || (ids == NULL && cap > 0)) {
        return esp_fail(err, ESP_EINVAL, "a missing argument");
    }
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_VOCAB, IDS_BYTES_MAX);
    int64_t result = esp_tokenizer_encode(vocab->tokenizer, spans, n_spans, &buf, err);
    if (result == ESP_OK) {
        size_t n = buf.n / sizeof *ids, n_copied = n < cap ? n : cap;
        if (n_copied > 0) {
            memcpy(ids, buf.data, n_copied * sizeof *ids);
        }
        result = (int64_t)n;
    }
    esp_buf_finish(&buf);
    return result;
}

const char *esp_token_bytes(const esp_vocab *vocab, uint32_t id, bool control, size_t *ret_n_bytes)
{
    return esp_tokenizer_bytes(vocab->tokenizer, id, control, ret_n_bytes);
}

int64_t esp_detokenize(const esp_vocab *vocab, const uint32_t *ids, size_t n_ids, bool control, char *text, size_t cap)
{
    if (vocab == NULL || (ids == NULL && n_ids > 0) || (text == NULL && cap > 0)) {
        return ESP_EINVAL;
    }
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_VOCAB, TEXT_BYTES_MAX);
    int64_t result = esp_tokenizer_decode(vocab->tokenizer, ids, n_ids, control, &buf);
    if (result == ESP_OK) {
        size_t n_copied = buf.n < cap ? buf.n : cap;
        if (n_copied > 0) {
            memcpy(text, buf.data, n_copied);
        }
        result = (int64_t)buf.n;
    }
    esp_buf_finish(&buf);
    return result;
}

uint32_t esp_vocab_bos(const esp_vocab *vocab)
{
    return esp_tokenizer_bos(vocab->tokenizer);
}

uint32_t esp_vocab_eos(const esp_vocab *vocab)
{
    return esp_tokenizer_eos(vocab->tokenizer);
}

bool esp_vocab_adds_bos(const esp_vocab *vocab)
{
    return esp_tokenizer_adds_bos(vocab->tokenizer);
}

bool esp_vocab_is_end(const esp_vocab *vocab, uint32_t id)
{
    return esp_tokenizer_is_end(vocab->tokenizer, id);
}

const char *esp_vocab_meta(const esp_vocab *vocab, const char *key)
{
    for (size_t idx = 0; vocab != NULL && key != NULL && idx < vocab->n_metas; idx++) {
        if (strcmp(vocab->metas[idx].key, key) == 0) {
            return vocab->metas[idx].value;
        }
    }
    return NULL;
}

static enum esp_token_role role_of(const struct esp_tokenizer *tokenizer, uint32_t id)
{
    if (esp_tokenizer_is_end(tokenizer, id)) {
        return ESP_ROLE_END;
    }
    enum esp_token_type type = esp_tokenizer_type(tokenizer, id);
    bool hidden = type == ESP_TOKEN_CONTROL || type == ESP_TOKEN_UNKNOWN || type == ESP_TOKEN_UNUSED;
    return hidden ? ESP_ROLE_CONTROL : ESP_ROLE_TEXT;
}

static esp_status build_trie(const struct esp_tokenizer *tokenizer, struct esp_trie **ret_trie, struct esp_err *err)
{
    uint32_t n_tokens = esp_tokenizer_n_tokens(tokenizer);
    struct esp_trie_token *tokens = esp_malloc(ESP_TAG_VOCAB, n_tokens * sizeof *tokens);
    if (tokens == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for the token trie");
    }
    for (uint32_t id = 0; id < n_tokens; id++) {
        size_t n_bytes;
        tokens[id].role = role_of(tokenizer, id);
        tokens[id].bytes = esp_tokenizer_bytes(tokenizer, id, tokens[id].role != ESP_ROLE_TEXT, &n_bytes);
        tokens[id].n_bytes = (uint32_t)n_bytes;
    }
    esp_status status = esp_trie_create(tokens, n_tokens, ret_trie, err);
    esp_free(tokens);
    return status;
}

esp_status esp_vocab_trie(const esp_vocab *vocab, const struct esp_trie **ret_trie, struct esp_err *err)
{
    struct lazy_trie *lazy = vocab->lazy;
    esp_status status = ESP_OK;
    pthread_mutex_lock(&lazy->lock);
    if (lazy->trie == NULL) {
        status = build_trie(vocab->tokenizer, &lazy->trie, err);
    }
    if (status == ESP_OK) {
        *ret_trie = lazy->trie;
    }
    pthread_mutex_unlock(&lazy->lock);
    return status;
}

static bool kind_of(const char *name, enum esp_grammar_kind *ret_kind)
{
    static const struct {
        const char *name;
        enum esp_grammar_kind kind;
    } kinds[] = {{"schema", ESP_GRAMMAR_SCHEMA}, {"regex", ESP_GRAMMAR_REGEX}, {"choice", ESP_GRAMMAR_CHOICE},
                 {"json", ESP_GRAMMAR_JSON},     {"gbnf", ESP_GRAMMAR_GBNF},   {"grammar", ESP_GRAMMAR_GBNF},
                 {"lark", ESP_GRAMMAR_LARK},     {"regions", ESP_GRAMMAR_REGIONS}};
    for (size_t idx = 0; idx < sizeof kinds / sizeof kinds[0]; idx++) {
        if (strcmp(kinds[idx].name, name) == 0) {
            *ret_kind = kinds[idx].kind;
            return true;
        }
    }
    return false;
}

esp_status esp_vocab_grammar(const esp_vocab *vocab, const char *kind, const char *text, size_t n_bytes,
                             const char *options, esp_grammar **ret_grammar, struct esp_err *err)
{
    if (vocab == NULL || kind == NULL || ret_grammar == NULL || (text == NULL && n_bytes > 0)) {
        return esp_fail(err, ESP_EINVAL, "a missing argument");
    }
    struct esp_grammar_spec spec = {.text = text == NULL ? "" : text, .n_bytes = n_bytes};
    if (!kind_of(kind, &spec.kind)) {
        return esp_fail(err, ESP_EINVAL, "unknown kind of grammar \"%.64s\"", kind);
    }
    if (spec.kind == ESP_GRAMMAR_JSON) {
        spec.n_bytes = 0;
    }
    esp_status status = esp_grammar_options_parse(options, &spec.options, err);
    const struct esp_trie *trie = NULL;
    if (status == ESP_OK) {
        status = esp_vocab_trie(vocab, &trie, err);
    }
    return status != ESP_OK ? status : esp_grammar_cache_get(vocab->grammars, trie, &spec, ret_grammar, err);
}

struct esp_grammar_cache_stats esp_vocab_grammar_stats(const esp_vocab *vocab)
{
    return esp_grammar_cache_stats(vocab->grammars);
}
