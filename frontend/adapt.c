/* Building chat requests from requests of other APIs. See adapt.h. */
#include "frontend/adapt.h"

#include <stdarg.h>
#include <string.h>

#include "frontend/http.h"
#include "frontend/jsontext.h"

#define TOOLS_BYTES_MAX (64u * 1024u * 1024u)
#define BODY_BYTES_MAX (256u * 1024u * 1024u)

bool esp_adapt_init(struct esp_adapt *adapt, struct esp_exchange *exchange, const json_t *request, unsigned api)
{
    *adapt = (struct esp_adapt){
        .exchange = exchange, .request = request, .text = exchange->body.data, .n_bytes = exchange->body.n};
    esp_buf_init(&adapt->members, ESP_TAG_HTTP, BODY_BYTES_MAX);
    esp_buf_init(&adapt->warnings, ESP_TAG_HTTP, 256u * 1024u);
    adapt->messages = json_array();
    struct esp_request_source source = {
        .json = request, .api = api, .strict_fields = exchange->server->options->strict_fields,
        .lenient = exchange->server->options->lenient_schema};
    if (adapt->messages == NULL) {
        esp_fail(&adapt->err, ESP_ENOMEM, "out of memory");
    } else if (esp_request_fields(&source, &adapt->warnings, &adapt->err) == ESP_OK) {
        return true;
    }
    esp_adapt_fail(adapt);
    return false;
}

void esp_adapt_finish(struct esp_adapt *adapt)
{
    json_decref(adapt->messages);
    esp_buf_finish(&adapt->members);
    esp_buf_finish(&adapt->warnings);
}

esp_status esp_adapt_refuse(struct esp_adapt *adapt, const char *message, const char *fmt, ...)
{
    char place[sizeof adapt->err.place];
    va_list args;
    va_start(args, fmt);
    vsnprintf(place, sizeof place, fmt, args);
    va_end(args);
    esp_fail(&adapt->err, ESP_EINVAL, "%s: %s", place, message);
    esp_err_place(&adapt->err, "%s", place);
    return ESP_EINVAL;
}

void esp_adapt_warn(struct esp_adapt *adapt, const char *code, const char *message, const char *fmt, ...)
{
    char place[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(place, sizeof place, fmt, args);
    va_end(args);
    esp_request_warn(&adapt->warnings, code, place, message);
}

void esp_adapt_raw(struct esp_adapt *adapt, const char *name, const char *text, size_t n_bytes)
{
    esp_buf_printf(&adapt->members, ",\"%s\":", name);
    esp_buf_add(&adapt->members, text, n_bytes);
}

void esp_adapt_value(struct esp_adapt *adapt, const char *name, const json_t *value)
{
    if (value != NULL && !json_is_null(value)) {
        esp_buf_printf(&adapt->members, ",\"%s\":", name);
        esp_jsontext_write(&adapt->members, value);
    }
}

void esp_adapt_copy(struct esp_adapt *adapt, const char *name, const char *from)
{
    esp_adapt_value(adapt, name, json_object_get(adapt->request, from));
}

/* Does the message hold a role and a text, and nothing else? */
static bool is_plain(const json_t *message)
{
    return json_object_size(message) == 2 && json_is_string(json_object_get(message, "content"));
}

static json_t *join(const json_t *one, const json_t *other)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, BODY_BYTES_MAX);
    esp_buf_add(&text, json_string_value(one), json_string_length(one));
    esp_buf_str(&text, "\n\n");
    esp_buf_add(&text, json_string_value(other), json_string_length(other));
    json_t *joined = text.failed ? NULL : json_stringn(text.data, text.n);
    esp_buf_finish(&text);
    return joined;
}

esp_status esp_adapt_message(struct esp_adapt *adapt, json_t *message)
{
    size_t n = json_array_size(adapt->messages);
    json_t *last = n > 0 ? json_array_get(adapt->messages, n - 1) : NULL;
    int failed;
    if (message == NULL) {
        return esp_fail(&adapt->err, ESP_ENOMEM, "out of memory");
    }
    if (last != NULL && is_plain(last) && is_plain(message) &&
        json_equal(json_object_get(last, "role"), json_object_get(message, "role"))) {
        failed = json_object_set_new(last, "content",
                                     join(json_object_get(last, "content"), json_object_get(message, "content")));
        json_decref(message);
    } else {
        failed = json_array_append_new(adapt->messages, message);
    }
    return failed == 0 ? ESP_OK : esp_fail(&adapt->err, ESP_ENOMEM, "out of memory");
}

void esp_adapt_fail(struct esp_adapt *adapt)
{
    esp_exchange_fail_err(adapt->exchange, &adapt->err, NULL);
}

/* The chat request as text and as a value; NULL: the exchange has its answer. Owned. */
static json_t *make_chat(struct esp_adapt *adapt, struct esp_buf *text)
{
    struct esp_err err = {0};
    esp_buf_str(text, "{\"messages\":");
    esp_jsontext_write(text, adapt->messages);
    esp_buf_add(text, adapt->members.data, adapt->members.n);
    esp_buf_char(text, '}');
    if (text->failed || adapt->members.failed) {
        esp_exchange_fail(adapt->exchange, 400, NULL, "limit_exceeded", "the request is too large");
        return NULL;
    }
    json_t *chat = esp_jsontext_parse(text->data, text->n, &err);
    if (chat == NULL) { /* deeper or larger than a request may be, by what was put around it */
        esp_exchange_fail(adapt->exchange, 400, NULL, "limit_exceeded", "%s", err.message);
    }
    return chat;
}

void esp_adapt_run(struct esp_adapt *adapt, const struct esp_gen_api *api, void *state)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, BODY_BYTES_MAX);
    json_t *chat = make_chat(adapt, &text);
    if (chat != NULL) {
        esp_chat_run(adapt->exchange, api, state, chat, text.data, text.n);
    } else {
        api->drop(state);
    }
    json_decref(chat);
    esp_buf_finish(&text);
}

bool esp_adapt_count(struct esp_adapt *adapt, uint32_t *ret_n_tokens)
{
    struct esp_exchange *exchange = adapt->exchange;
    struct esp_buf text;
    struct esp_prompt prompt;
    esp_buf_init(&text, ESP_TAG_HTTP, BODY_BYTES_MAX);
    esp_prompt_init(&prompt);
    json_t *chat = make_chat(adapt, &text);
    bool fine = chat != NULL && esp_chat_prompt(esp_exchange_chat(exchange), chat, &prompt, &adapt->err) == ESP_OK;
    if (fine) {
        *ret_n_tokens = esp_prompt_n_tokens(&prompt);
    } else if (chat != NULL) {
        esp_exchange_fail_err(exchange, &adapt->err, "messages");
    }
    json_decref(chat);
    esp_prompt_finish(&prompt);
    esp_buf_finish(&text);
    return fine;
}

void esp_adapt_write_warnings(const struct esp_buf *first, const struct esp_buf *second, struct esp_buf *buf)
{
    if (first->n + second->n > 0) {
        esp_buf_str(buf, ",\"warnings\":[");
        esp_buf_add(buf, first->data, first->n);
        esp_buf_add(buf, ",", first->n > 0 && second->n > 0);
        esp_buf_add(buf, second->data, second->n);
        esp_buf_char(buf, ']');
    }
}

esp_status esp_adapt_tools(struct esp_adapt *adapt,
                           esp_status (*add_tool)(struct esp_adapt *adapt, const json_t *tool, size_t idx,
                                                  const char *source, size_t n_source, struct esp_buf *out))
{
    static const char *const path[] = {"tools"};
    const json_t *tools = json_object_get(adapt->request, "tools");
    if (tools == NULL || json_is_null(tools)) {
        return ESP_OK;
    }
    size_t n_list = 0, at = 0, n_item = 0;
    const char *item = NULL, *list = esp_jsontext_find(adapt->text, adapt->n_bytes, path, 1, &n_list);
    if (!json_is_array(tools) || list == NULL) {
        return esp_adapt_refuse(adapt, "an array is needed", "tools");
    }
    struct esp_buf out;
    esp_status status = ESP_OK;
    esp_buf_init(&out, ESP_TAG_HTTP, TOOLS_BYTES_MAX);
    esp_buf_char(&out, '[');
    for (size_t idx = 0; status == ESP_OK && esp_jsontext_next(list, n_list, &at, &item, &n_item); idx++) {
        status = add_tool(adapt, json_array_get(tools, idx), idx, item, n_item, &out);
    }
    esp_buf_char(&out, ']');
    if (status == ESP_OK && out.n > 2) {
        esp_adapt_raw(adapt, "tools", out.data, out.n);
    }
    status = status == ESP_OK && out.failed ? esp_fail(&adapt->err, ESP_ELIMIT, "the tools are too large") : status;
    esp_buf_finish(&out);
    return status;
}
