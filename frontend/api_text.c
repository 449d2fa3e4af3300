/* /tokenize, /detokenize, /apply-template, /v1/schema/check: what a request would be turned into. */
#include <string.h>
#include <time.h>

#include "frontend/answer.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"
#include "frontend/request.h"
#include "runtime/base/arena.h"
#include "runtime/base/json.h"
#include "runtime/vocab.h"

#define CHECK_BYTES_MAX (4u * 1024u * 1024u)

static void write_ids(struct esp_buf *buf, const char *name, const uint32_t *ids, size_t n_ids)
{
    esp_buf_printf(buf, "\"%s\":[", name);
    for (size_t idx = 0; idx < n_ids; idx++) {
        esp_buf_printf(buf, idx > 0 ? ",%u" : "%u", ids[idx]);
    }
    esp_buf_char(buf, ']');
}

/* The name of the first of two fields that is there; `one` when none is. */
static const char *either(const json_t *request, const char *one, const char *other)
{
    return json_object_get(request, one) == NULL && json_object_get(request, other) != NULL ? other : one;
}

static void tokenize(struct esp_exchange *exchange, const json_t *text, const char *name, bool special)
{
    const esp_vocab *vocab = esp_engine_vocab(esp_exchange_engine(exchange));
    struct esp_span span = {json_string_value(text), json_string_length(text), special};
    struct esp_err err = {0};
    size_t cap = span.n_bytes + 16;
    uint32_t *ids = esp_calloc(ESP_TAG_HTTP, cap, sizeof *ids);
    int64_t n =
        ids == NULL ? esp_fail(&err, ESP_ENOMEM, "out of memory") : esp_tokenize(vocab, &span, 1, ids, cap, &err);
    if (n > (int64_t)cap) {
        esp_free(ids);
        cap = (size_t)n;
        ids = esp_calloc(ESP_TAG_HTTP, cap, sizeof *ids);
        n = ids == NULL ? esp_fail(&err, ESP_ENOMEM, "out of memory") : esp_tokenize(vocab, &span, 1, ids, cap, &err);
    }
    if (n < 0) {
        esp_exchange_fail_err(exchange, &err, name);
    } else {
        esp_buf_char(&exchange->out, '{');
        write_ids(&exchange->out, "ids", ids, (size_t)n);
        esp_buf_char(&exchange->out, ',');
        write_ids(&exchange->out, "tokens", ids, (size_t)n);
        esp_buf_printf(&exchange->out, ",\"count\":%lld}", (long long)n);
    }
    esp_free(ids);
}

void esp_api_tokenize(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    const char *name = either(request, "text", "content");
    const json_t *text = json_object_get(request, name);
    struct esp_err err = {0};
    bool special = false;
    if (!json_is_string(text)) {
        esp_exchange_fail(exchange, 400, name, "invalid_value", "'%s' must be a string, not %s", name,
                          esp_json_type_name(text));
    } else if (esp_json_bool(request, "special", false, &special, &err) != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, "special");
    } else {
        tokenize(exchange, text, name, special);
    }
    json_decref(request);
}

static void detokenize(struct esp_exchange *exchange, const uint32_t *ids, size_t n_ids)
{
    const esp_vocab *vocab = esp_engine_vocab(esp_exchange_engine(exchange));
    int64_t n_bytes = esp_detokenize(vocab, ids, n_ids, true, NULL, 0);
    char *text = n_bytes < 0 ? NULL : esp_malloc(ESP_TAG_HTTP, (size_t)n_bytes + 1);
    if (text == NULL || esp_detokenize(vocab, ids, n_ids, true, text, (size_t)n_bytes) != n_bytes) {
        esp_exchange_fail(exchange, 500, NULL, "internal_error", "the ids cannot be turned to text");
    } else {
        esp_buf_str(&exchange->out, "{\"text\":");
        esp_jsontext_quote(&exchange->out, text, (size_t)n_bytes);
        esp_buf_char(&exchange->out, '}');
    }
    esp_free(text);
}

void esp_api_detokenize(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    const char *name = either(request, "ids", "tokens");
    const json_t *array = json_object_get(request, name);
    uint32_t n_vocab = esp_vocab_n_tokens(esp_engine_vocab(esp_exchange_engine(exchange)));
    size_t n_ids = json_array_size(array);
    bool fine = json_is_array(array);
    uint32_t *ids = esp_calloc(ESP_TAG_HTTP, n_ids, sizeof *ids);
    for (size_t idx = 0; idx < n_ids && fine && ids != NULL; idx++) {
        const json_t *value = json_array_get(array, idx);
        json_int_t id = json_integer_value(value);
        fine = json_is_integer(value) && id >= 0 && id < (json_int_t)n_vocab;
        ids[idx] = (uint32_t)id;
    }
    if (ids == NULL) {
        esp_exchange_fail(exchange, 500, NULL, "internal_error", "out of memory");
    } else if (!fine) {
        esp_exchange_fail(exchange, 400, name, "invalid_value", "'%s' must be an array of token ids below %u",
                          name, n_vocab);
    } else {
        detokenize(exchange, ids, n_ids);
    }
    esp_free(ids);
    json_decref(request);
}

void esp_api_template(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    struct esp_prompt prompt;
    struct esp_err err = {0};
    esp_prompt_init(&prompt);
    if (esp_chat_prompt(esp_exchange_chat(exchange), request, &prompt, &err) != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, "messages");
    } else {
        struct esp_buf *out = &exchange->out;
        size_t n_spans = 0;
        const struct esp_span *spans = esp_rendered_spans(&prompt.rendered, &n_spans);
        esp_buf_str(out, "{\"prompt\":");
        esp_jsontext_quote(out, prompt.rendered.text.n == 0 ? "" : prompt.rendered.text.data, prompt.rendered.text.n);
        esp_buf_char(out, ',');
        write_ids(out, "ids", (const uint32_t *)(const void *)prompt.ids.data, esp_prompt_n_tokens(&prompt));
        esp_buf_str(out, ",\"segments\":[");
        for (size_t idx = 0; idx < n_spans; idx++) {
            esp_buf_str(out, idx > 0 ? ",{\"text\":" : "{\"text\":");
            esp_jsontext_quote(out, spans[idx].text, spans[idx].n_bytes);
            esp_buf_printf(out, ",\"control\":%s}", spans[idx].control ? "true" : "false");
        }
        esp_buf_str(out, "]}");
    }
    esp_prompt_finish(&prompt);
    json_decref(request);
}

/* ---- Schema check ------------------------------------------------------------------------------- */

static void write_member(struct esp_buf *buf, const char *name, const char *text)
{
    esp_buf_printf(buf, ",\"%s\":", name);
    if (text[0] == '\0') {
        esp_buf_str(buf, "null");
    } else {
        esp_jsontext_quote_str(buf, text);
    }
}

/* Adds ,"explain":[…] */
static void write_explain(struct esp_exchange *exchange, const struct esp_constraint *constraint)
{
    const struct esp_trie *trie;
    struct esp_grammar_spec spec = {.text = constraint->text, .n_bytes = constraint->n_bytes};
    esp_buf_str(&exchange->out, ",\"explain\":");
    const esp_vocab *vocab = esp_engine_vocab(esp_exchange_engine(exchange));
    if (strcmp(constraint->kind, "schema") != 0 || esp_vocab_trie(vocab, &trie, NULL) != ESP_OK ||
        esp_grammar_options_parse(constraint->options, &spec.options, NULL) != ESP_OK) {
        esp_buf_str(&exchange->out, "[]");
        return;
    }
    esp_grammar_explain(trie, &spec, &exchange->out, NULL);
}

static void check(struct esp_exchange *exchange, const struct esp_constraint *constraint)
{
    const esp_vocab *vocab = esp_engine_vocab(esp_exchange_engine(exchange));
    struct esp_err err = {0};
    esp_grammar *grammar = NULL;
    int64_t begin_ns = esp_clock_now(&exchange->server->clock);
    esp_status status = esp_vocab_grammar(vocab, constraint->kind, constraint->text, constraint->n_bytes,
                                          constraint->options, &grammar, &err);
    double us = (double)(esp_clock_now(&exchange->server->clock) - begin_ns) / 1e3;
    struct esp_buf *out = &exchange->out;
    const char *warnings = status == ESP_OK ? esp_grammar_warnings(grammar) : NULL;
    if (status == ESP_OK) {
        esp_buf_str(out, "{\"compile\":\"ok\"");
    } else {
        esp_buf_printf(out,
                       "{\"compile\":\"error\",\"error\":{\"code\":\"%s\",\"pointer\":", esp_status_name(err.code));
        esp_jsontext_quote_str(out, err.place);
        write_member(out, "keyword", err.keyword);
        write_member(out, "message", err.message);
        write_member(out, "hint", err.hint);
        esp_buf_char(out, '}');
    }
    esp_buf_printf(out, ",\"warnings\":%s,\"compile_us\":%.3f", warnings == NULL ? "[]" : warnings, us);
    write_explain(exchange, constraint);
    esp_buf_char(out, '}');
    esp_grammar_unref(grammar);
}

/* The grammar of a check request: its fields bear the names of `grammar check`. */
static bool find_constraint(struct esp_exchange *exchange, const json_t *request, struct esp_arena *arena,
                            struct esp_constraint *constraint)
{
    static const struct {
        const char *name, *kind;
    } kinds[] = {{"schema", "schema"}, {"regex", "regex"}, {"grammar", "gbnf"},
                 {"gbnf", "gbnf"},     {"lark", "lark"},   {"choice", "choice"}};
    for (size_t idx = 0; idx < sizeof kinds / sizeof kinds[0]; idx++) {
        const json_t *value = json_object_get(request, kinds[idx].name);
        if (value == NULL) {
            continue;
        }
        bool is_source = idx == 0 || idx == 5;
        if (constraint->kind != NULL || (!is_source && !json_is_string(value))) {
            esp_exchange_fail(
                exchange, 400, kinds[idx].name, "invalid_value",
                "give one of schema, regex, grammar, lark and choice; all but schema and choice are strings");
            return false;
        }
        size_t n_bytes = json_string_length(value);
        const char *text = json_string_value(value);
        if (is_source) {
            text = esp_jsontext_find(exchange->body.data, exchange->body.n, &kinds[idx].name, 1, &n_bytes);
        }
        constraint->kind = kinds[idx].kind;
        constraint->text = text == NULL ? NULL : esp_arena_strndup(arena, text, n_bytes);
        constraint->n_bytes = n_bytes;
    }
    if (constraint->kind == NULL || constraint->text == NULL) {
        esp_exchange_fail(exchange, 400, "schema", "invalid_value",
                          "give one of schema, regex, grammar, lark and choice");
        return false;
    }
    const char *path[] = {"options"};
    size_t n_bytes = 0;
    const char *options = esp_jsontext_find(exchange->body.data, exchange->body.n, path, 1, &n_bytes);
    if (options != NULL && strncmp(options, "null", 4) != 0) {
        constraint->options = esp_arena_strndup(arena, options, n_bytes);
    } else if (exchange->server->options->lenient_schema) {
        constraint->options = "{\"lenient\":true}";
    }
    return true;
}

void esp_api_schema_check(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    struct esp_arena arena;
    struct esp_constraint constraint = {0};
    esp_arena_init(&arena, ESP_TAG_HTTP, CHECK_BYTES_MAX);
    if (find_constraint(exchange, request, &arena, &constraint)) {
        check(exchange, &constraint);
    }
    esp_arena_finish(&arena);
    json_decref(request);
}
