/* POST /v1/cache/explain: what of a chat request is cached, message by message, and why no more of it.
 *
 * A message's tokens are those by which the prompt grows when the conversation is rendered up to it, as far as the
 * whole prompt agrees; what the template adds at the end belongs to no message. Runs nothing. Thread: a work thread.
 */
#include "frontend/explain.h"

#include <string.h>

#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"

#define MESSAGES_MAX 512u

const char *esp_explain_cause(enum esp_cause cause)
{
    static const char *const names[] = {"hit", "never_seen", "evicted", "other_namespace", "pending"};
    return names[cause];
}

static const char *text_of(const esp_vocab *vocab, uint32_t token, size_t *ret_n_bytes)
{
    *ret_n_bytes = 0;
    const char *text = esp_token_bytes(vocab, token, true, ret_n_bytes);
    return text == NULL ? "" : text;
}

static void write_token(struct esp_buf *buf, const esp_vocab *vocab, uint32_t token)
{
    size_t n_bytes = 0;
    const char *text = text_of(vocab, token, &n_bytes);
    esp_buf_printf(buf, "{\"id\":%u,\"text\":", token);
    esp_jsontext_quote(buf, text, n_bytes);
    esp_buf_char(buf, '}');
}

void esp_explain_diverges(struct esp_buf *buf, const esp_vocab *vocab, const struct esp_explanation *why)
{
    if (why->have == ESP_TOKEN_NONE) {
        esp_buf_str(buf, "\"diverges\":null");
        return;
    }
    esp_buf_printf(buf, "\"diverges\":{\"at\":%u,\"have\":", why->n_cached);
    write_token(buf, vocab, why->have);
    esp_buf_str(buf, ",\"want\":");
    write_token(buf, vocab, why->want);
    esp_buf_char(buf, '}');
}

/* The text without its white space, cut to room. */
static size_t squeeze(const char *text, size_t n_bytes, char *out, size_t room)
{
    size_t n = 0;
    for (size_t idx = 0; idx < n_bytes && n < room; idx++) {
        if (text[idx] != ' ' && text[idx] != '\t' && text[idx] != '\r' && text[idx] != '\n') {
            out[n++] = text[idx];
        }
    }
    return n;
}

/* The two tokens differ, and their texts only in how they are cut or spaced: without white space one begins the other.
 * Then the same text was rendered or tokenized otherwise, as far as one token can tell. */
static bool is_drift(const esp_vocab *vocab, const struct esp_explanation *why)
{
    if (why->have == ESP_TOKEN_NONE) {
        return false;
    }
    char have[128], want[128];
    size_t n_have = 0, n_want = 0;
    const char *text = text_of(vocab, why->have, &n_have);
    n_have = squeeze(text, n_have, have, sizeof have);
    text = text_of(vocab, why->want, &n_want);
    n_want = squeeze(text, n_want, want, sizeof want);
    return memcmp(have, want, n_have < n_want ? n_have : n_want) == 0;
}

/* Where in the prompt's tokens message idx ends. */
static esp_status end_of(struct esp_exchange *exchange, const json_t *request, size_t idx,
                         const struct esp_prompt *prompt, uint32_t *ret_end, struct esp_err *err)
{
    struct esp_prompt part;
    json_t *copy = json_copy((json_t *)(uintptr_t)request);
    json_t *messages = json_array();
    for (size_t at = 0; at <= idx; at++) {
        json_array_append(messages, json_array_get(json_object_get(request, "messages"), at));
    }
    json_object_set_new(copy, "messages", messages);
    json_object_set_new(copy, "add_generation_prompt", json_false());
    esp_prompt_init(&part);
    esp_status status = esp_chat_prompt(esp_exchange_chat(exchange), copy, &part, err);
    const uint32_t *ids = (const uint32_t *)(const void *)prompt->ids.data;
    const uint32_t *own = (const uint32_t *)(const void *)part.ids.data;
    uint32_t n = 0;
    while (status == ESP_OK && n < esp_prompt_n_tokens(prompt) && n < esp_prompt_n_tokens(&part) && ids[n] == own[n]) {
        n++;
    }
    esp_prompt_finish(&part);
    json_decref(copy);
    *ret_end = n;
    return status;
}

/* "messages":[…]; *ret_message: the one in which the cached part ends, or their number. A template that refuses part
 * of a conversation ends the list there. */
static void write_messages(struct esp_exchange *exchange, const json_t *request, const struct esp_prompt *prompt,
                           uint32_t n_cached, size_t *ret_message)
{
    const json_t *messages = json_object_get(request, "messages");
    size_t n = json_array_size(messages);
    uint32_t from = 0;
    *ret_message = n;
    esp_buf_str(&exchange->out, "\"messages\":[");
    for (size_t idx = 0; idx < n && idx < MESSAGES_MAX; idx++) {
        struct esp_err err = {0};
        uint32_t to = 0;
        if (end_of(exchange, request, idx, prompt, &to, &err) != ESP_OK) {
            break;
        }
        to = to < from ? from : to;
        uint32_t cached = n_cached < from ? 0 : n_cached < to ? n_cached - from : to - from;
        const char *role = json_string_value(json_object_get(json_array_get(messages, idx), "role"));
        esp_buf_printf(&exchange->out, "%s{\"index\":%zu,\"role\":", idx > 0 ? "," : "", idx);
        esp_jsontext_quote_str(&exchange->out, role == NULL ? "" : role);
        esp_buf_printf(&exchange->out, ",\"tokens\":%u,\"cached\":%u}", to - from, cached);
        *ret_message = n_cached >= from && n_cached < to ? idx : *ret_message;
        from = to;
    }
    esp_buf_char(&exchange->out, ']');
}

static void write_detail(struct esp_buf *buf, const struct esp_explanation *why, bool drift)
{
    char text[256];
    uint32_t n_left = why->n_prompt - why->n_cached;
    switch (drift ? ESP_CAUSE_NEVER_SEEN : why->cause) {
    case ESP_CAUSE_HIT:
        snprintf(text, sizeof text, "every whole page is there; %u tokens at the end are computed", n_left);
        break;
    case ESP_CAUSE_EVICTED:
        snprintf(text, sizeof text, "%u more tokens were there until %.1f s ago", why->n_evicted,
                 (double)why->evicted_ago_ns * 1e-9);
        break;
    case ESP_CAUSE_OTHER_NAMESPACE:
        snprintf(text, sizeof text, "%u tokens are there for another cache_salt or prompt_cache_key", why->n_elsewhere);
        break;
    case ESP_CAUSE_PENDING:
        snprintf(text, sizeof text, "%u more tokens belong to a request that is at work", why->n_pending);
        break;
    default:
        snprintf(text, sizeof text, "%s",
                 drift                          ? "the same text was rendered or cut into tokens in another way"
                 : why->have == ESP_TOKEN_NONE ? "what follows is new: nothing is stored behind the cached tokens"
                                               : "something else is stored behind the cached tokens");
        break;
    }
    esp_buf_str(buf, ",\"detail\":");
    esp_jsontext_quote_str(buf, text);
}

static bool explain(struct esp_exchange *exchange, const struct esp_params *params, const struct esp_prompt *prompt,
                    struct esp_explanation *ret_why)
{
    struct esp_err err = {0};
    struct esp_request asked = {.tokens = (const uint32_t *)(const void *)prompt->ids.data,
                                .n_tokens = esp_prompt_n_tokens(prompt),
                                .cache_salt = params->cache_salt,
                                .cache_salt_bytes = params->cache_salt_bytes,
                                .cache_key = params->cache.key,
                                .cache_key_bytes = params->cache.key_bytes};
    if (esp_explain(esp_exchange_engine(exchange), &asked, ret_why, &err) != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, "messages");
        return false;
    }
    return true;
}

static void answer(struct esp_exchange *exchange, const json_t *request, const struct esp_params *params)
{
    const esp_vocab *vocab = esp_engine_vocab(esp_exchange_engine(exchange));
    struct esp_buf *out = &exchange->out;
    struct esp_prompt prompt;
    struct esp_explanation why;
    struct esp_err err = {0};
    esp_prompt_init(&prompt);
    if (esp_chat_prompt(esp_exchange_chat(exchange), request, &prompt, &err) != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, "messages");
    } else if (explain(exchange, params, &prompt, &why)) {
        size_t message = 0, n_messages = json_array_size(json_object_get(request, "messages"));
        esp_buf_printf(out, "{\"prompt_tokens\":%u,\"cached_tokens\":%u,", why.n_prompt, why.n_cached);
        write_messages(exchange, request, &prompt, why.n_cached, &message);
        /* The last message is new anyway: only history can have been there in another form. */
        bool drift = why.cause == ESP_CAUSE_NEVER_SEEN && message + 1 < n_messages && is_drift(vocab, &why);
        esp_buf_char(out, ',');
        esp_explain_diverges(out, vocab, &why);
        esp_buf_printf(out, ",\"cause\":\"%s\"", drift ? "template_drift" : esp_explain_cause(why.cause));
        write_detail(out, &why, drift);
        esp_buf_char(out, '}');
    }
    esp_prompt_finish(&prompt);
}

void esp_api_cache_explain(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    struct esp_arena arena;
    struct esp_params params;
    struct esp_err err = {0};
    struct esp_request_source source = {.json = request, .text = exchange->body.data, .n_bytes = exchange->body.n,
                                        .n_vocab = esp_vocab_n_tokens(esp_engine_vocab(esp_exchange_engine(exchange))),
                                        .api = ESP_API_CHAT,
                                        .strict_fields = exchange->server->options->strict_fields};
    esp_arena_init(&arena, ESP_TAG_HTTP, 4u << 20);
    if (esp_request_parse(&source, &arena, &params, &err) != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, NULL);
    } else {
        answer(exchange, request, &params);
    }
    esp_buf_finish(&params.warnings);
    esp_arena_finish(&arena);
    json_decref(request);
}
