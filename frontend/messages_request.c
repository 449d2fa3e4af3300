/* Requests of the Messages API as chat requests.
 *
 *   system, text blocks             a message; blocks are joined as they are
 *   thinking                        reasoning_content of the assistant's message
 *   tool_use                        a tool call; its input keeps its source text
 *   tool_result                     a message of role tool, in the place of the block
 *
 * cache_control of a block goes on to the part or message it ends; prefixes are cached without being told, too. Tools
 * that run on the vendor's servers and
 * signed or encrypted blocks mean nothing here: they are skipped and named in the warnings. Images are refused.
 * Thread: a work thread.
 */
#include "frontend/messages.h"

#include <string.h>

#include "frontend/http.h"
#include "runtime/base/json.h"

#define TEXT_BYTES_MAX (64u * 1024u * 1024u)
#define BILLING_PREFIX "x-anthropic-billing-header:"

/* One message on its way. */
struct turn {
    struct esp_adapt *adapt;
    const char *role;
    size_t idx;
    struct esp_buf text, thinking;
    bool has_thinking;
    json_t *calls, *parts; /* NULL until there is one; owned. parts: texts that end with a mark, before text */
    const json_t *mark;    /* of the message's end; borrowed */
};

static const char *string_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static bool is(const char *text, const char *other)
{
    return text != NULL && strcmp(text, other) == 0;
}

/* Where the caller wants the prompt to be cached up to. */
static const json_t *mark_of(const json_t *block)
{
    const json_t *mark = json_object_get(block, "cache_control");
    return json_is_null(mark) ? NULL : mark;
}

/* ---- Text --------------------------------------------------------------------------------------- */

/* The text of a text block, of a document that is plain text, or NULL. */
static const json_t *text_of(const json_t *block)
{
    const char *type = string_of(block, "type");
    const json_t *source = json_object_get(block, "source");
    if (is(type, "text")) {
        return json_object_get(block, "text");
    }
    return is(type, "document") && is(string_of(source, "type"), "text") ? json_object_get(source, "data") : NULL;
}

/* Appends a string, or the texts of blocks. where: of the value, for errors. */
static esp_status add_texts(struct esp_adapt *adapt, const json_t *value, const char *where, struct esp_buf *text)
{
    if (json_is_string(value)) {
        esp_buf_add(text, json_string_value(value), json_string_length(value));
        return ESP_OK;
    }
    if (!json_is_array(value)) {
        return esp_adapt_refuse(adapt, "a string or an array of blocks is needed", "%s", where);
    }
    for (size_t idx = 0; idx < json_array_size(value); idx++) {
        const json_t *piece = text_of(json_array_get(value, idx));
        if (!json_is_string(piece)) {
            return esp_adapt_refuse(adapt, "only blocks of text are supported", "%s[%zu]", where, idx);
        }
        esp_buf_add(text, json_string_value(piece), json_string_length(piece));
    }
    return ESP_OK;
}

static json_t *text_message(const char *role, const struct esp_buf *text)
{
    return json_pack("{s:s,s:s%}", "role", role, "content", text->n == 0 ? "" : text->data, text->n);
}

/* ---- Blocks ------------------------------------------------------------------------------------- */

/* The text so far becomes a part, with its cache_control when there is one. */
static void cut_part(struct turn *turn, const json_t *mark)
{
    json_t *part = json_pack("{s:s,s:s%}", "type", "text", "text", turn->text.n == 0 ? "" : turn->text.data,
                             turn->text.n);
    if (mark != NULL) {
        json_object_set(part, "cache_control", (json_t *)(uintptr_t)mark);
    }
    turn->parts = turn->parts == NULL ? json_array() : turn->parts;
    json_array_append_new(turn->parts, part);
    esp_buf_clear(&turn->text);
}

/* What was gathered becomes a message. */
static esp_status flush(struct turn *turn)
{
    if (turn->text.n == 0 && turn->calls == NULL && turn->parts == NULL && !turn->has_thinking) {
        return ESP_OK;
    }
    json_t *message = text_message(turn->role, &turn->text);
    if (turn->parts != NULL) {
        if (turn->text.n > 0) {
            cut_part(turn, NULL);
        }
        json_object_set_new(message, "content", turn->parts);
        turn->parts = NULL;
    }
    if (turn->mark != NULL) {
        json_object_set(message, "cache_control", (json_t *)(uintptr_t)turn->mark);
        turn->mark = NULL;
    }
    if (turn->has_thinking) {
        json_object_set_new(message, "reasoning_content",
                            json_stringn(turn->thinking.n == 0 ? "" : turn->thinking.data, turn->thinking.n));
    }
    if (turn->calls != NULL) {
        json_object_set_new(message, "tool_calls", turn->calls);
        turn->calls = NULL;
    }
    esp_buf_clear(&turn->text);
    esp_buf_clear(&turn->thinking);
    turn->has_thinking = false;
    return esp_adapt_message(turn->adapt, message);
}

static esp_status add_tool_use(struct turn *turn, const json_t *block, size_t at, const char *source, size_t n_source)
{
    static const char *const path[] = {"input"};
    const char *id = string_of(block, "id"), *name = string_of(block, "name");
    size_t n_input = 0;
    const char *input = esp_jsontext_find(source, n_source, path, 1, &n_input);
    if (strcmp(turn->role, "assistant") != 0 || id == NULL || name == NULL || input == NULL || input[0] != '{') {
        return esp_adapt_refuse(turn->adapt, "a tool_use block is the assistant's, with id, name and an input object",
                                "messages[%zu].content[%zu]", turn->idx, at);
    }
    turn->calls = turn->calls == NULL ? json_array() : turn->calls;
    json_t *call = json_pack("{s:s,s:s,s:{s:s,s:s%}}", "id", id, "type", "function", "function", "name", name,
                             "arguments", input, n_input);
    return json_array_append_new(turn->calls, call) == 0 ? ESP_OK
                                                         : esp_fail(&turn->adapt->err, ESP_ENOMEM, "out of memory");
}

static esp_status add_tool_result(struct turn *turn, const json_t *block, size_t at)
{
    const char *id = string_of(block, "tool_use_id");
    const json_t *content = json_object_get(block, "content");
    char where[80];
    snprintf(where, sizeof where, "messages[%zu].content[%zu].content", turn->idx, at);
    if (strcmp(turn->role, "user") != 0 || id == NULL) {
        return esp_adapt_refuse(turn->adapt, "a tool_result block is the user's, with a tool_use_id",
                                "messages[%zu].content[%zu]", turn->idx, at);
    }
    esp_status status = flush(turn);
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    if (status == ESP_OK && content != NULL && !json_is_null(content)) {
        status = add_texts(turn->adapt, content, where, &text);
    }
    if (status == ESP_OK) {
        json_t *message = text_message("tool", &text);
        json_object_set_new(message, "tool_call_id", json_string(id));
        if (mark_of(block) != NULL) {
            json_object_set(message, "cache_control", (json_t *)(uintptr_t)mark_of(block));
        }
        if (json_is_true(json_object_get(block, "is_error"))) {
            json_object_set_new(message, "is_error", json_true());
        }
        status = esp_adapt_message(turn->adapt, message);
    }
    esp_buf_finish(&text);
    return status;
}

static esp_status add_thinking(struct turn *turn, const json_t *block, size_t at)
{
    const json_t *text = json_object_get(block, "thinking");
    if (strcmp(turn->role, "assistant") != 0 || !json_is_string(text)) {
        return esp_adapt_refuse(turn->adapt, "a thinking block is the assistant's, with a text",
                                "messages[%zu].content[%zu]", turn->idx, at);
    }
    turn->has_thinking = true;
    esp_buf_add(&turn->thinking, json_string_value(text), json_string_length(text));
    return ESP_OK;
}

static esp_status add_block(struct turn *turn, const json_t *block, size_t at, const char *source, size_t n_source)
{
    static const char *const skipped[] = {"redacted_thinking",      "server_tool_use",           "mcp_tool_use",
                                          "web_search_tool_result", "web_fetch_tool_result",     "mcp_tool_result",
                                          "container_upload",       "code_execution_tool_result"};
    const char *type = string_of(block, "type");
    const json_t *text = text_of(block);
    if (json_is_string(text)) {
        esp_buf_add(&turn->text, json_string_value(text), json_string_length(text));
        if (mark_of(block) != NULL) {
            cut_part(turn, mark_of(block));
        }
        return ESP_OK;
    }
    turn->mark = is(type, "tool_result") ? turn->mark : mark_of(block);
    if (is(type, "tool_use")) {
        return add_tool_use(turn, block, at, source, n_source);
    }
    if (is(type, "tool_result")) {
        return add_tool_result(turn, block, at);
    }
    if (is(type, "thinking")) {
        return add_thinking(turn, block, at);
    }
    for (size_t idx = 0; idx < sizeof skipped / sizeof skipped[0]; idx++) {
        if (is(type, skipped[idx])) {
            esp_adapt_warn(turn->adapt, "ignored_block", "a block of this type means nothing here",
                           "messages[%zu].content[%zu].type", turn->idx, at);
            return ESP_OK;
        }
    }
    return esp_adapt_refuse(turn->adapt, "blocks of text, thinking, tool_use and tool_result are supported",
                            "messages[%zu].content[%zu].type", turn->idx, at);
}

static esp_status add_system(struct esp_adapt *adapt)
{
    const json_t *system = json_object_get(adapt->request, "system");
    struct turn turn = {.adapt = adapt, .role = "system"};
    if (system == NULL || json_is_null(system)) {
        return ESP_OK;
    }
    esp_buf_init(&turn.text, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    esp_buf_init(&turn.thinking, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    esp_status status = json_is_array(system) ? ESP_OK : add_texts(adapt, system, "system", &turn.text);
    for (size_t idx = 0; status == ESP_OK && idx < json_array_size(system); idx++) {
        const json_t *block = json_array_get(system, idx), *piece = text_of(block);
        if (!json_is_string(piece)) {
            status = esp_adapt_refuse(adapt, "only blocks of text are supported", "system[%zu]", idx);
        } else if (strncmp(json_string_value(piece), BILLING_PREFIX, strlen(BILLING_PREFIX)) == 0) {
            /* It changes with every request, and would keep everything behind it from being cached. */
            esp_adapt_warn(adapt, "ignored_block", "a block about billing is no part of the prompt", "system[%zu]",
                           idx);
        } else {
            esp_buf_add(&turn.text, json_string_value(piece), json_string_length(piece));
            if (mark_of(block) != NULL) {
                cut_part(&turn, mark_of(block));
            }
        }
    }
    status = status == ESP_OK ? flush(&turn) : status;
    esp_buf_finish(&turn.text);
    esp_buf_finish(&turn.thinking);
    json_decref(turn.parts);
    return status;
}

/* source: of the message. */
static esp_status add_blocks(struct turn *turn, const json_t *content, const char *source, size_t n_source)
{
    static const char *const path[] = {"content"};
    size_t n_list = 0, at = 0, n_item = 0;
    const char *list = esp_jsontext_find(source, n_source, path, 1, &n_list), *item = NULL;
    esp_status status = ESP_OK;
    for (size_t idx = 0; status == ESP_OK && list != NULL && esp_jsontext_next(list, n_list, &at, &item, &n_item);
         idx++) {
        status = add_block(turn, json_array_get(content, idx), idx, item, n_item);
    }
    return status == ESP_OK ? flush(turn) : status;
}

static esp_status add_message(struct esp_adapt *adapt, const json_t *message, size_t idx, const char *source,
                              size_t n_source)
{
    struct turn turn = {.adapt = adapt, .role = string_of(message, "role"), .idx = idx};
    const json_t *content = json_object_get(message, "content");
    if (!is(turn.role, "user") && !is(turn.role, "assistant") && !is(turn.role, "system")) {
        return esp_adapt_refuse(adapt, "the role must be user, assistant or system", "messages[%zu].role", idx);
    }
    if (!json_is_string(content) && !json_is_array(content)) {
        return esp_adapt_refuse(adapt, "a string or an array of blocks is needed", "messages[%zu].content", idx);
    }
    esp_buf_init(&turn.text, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    esp_buf_init(&turn.thinking, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    esp_status status;
    if (json_is_string(content)) {
        esp_buf_add(&turn.text, json_string_value(content), json_string_length(content));
        status = esp_adapt_message(adapt, text_message(turn.role, &turn.text));
    } else {
        status = add_blocks(&turn, content, source, n_source);
    }
    esp_buf_finish(&turn.text);
    esp_buf_finish(&turn.thinking);
    json_decref(turn.calls);
    json_decref(turn.parts);
    return status;
}

static esp_status add_messages(struct esp_adapt *adapt)
{
    static const char *const path[] = {"messages"};
    const json_t *messages = json_object_get(adapt->request, "messages");
    size_t n = json_array_size(messages), n_list = 0, at = 0, n_item = 0;
    const char *item = NULL, *list = esp_jsontext_find(adapt->text, adapt->n_bytes, path, 1, &n_list);
    if (!json_is_array(messages) || n == 0 || list == NULL) {
        return esp_adapt_refuse(adapt, "a non-empty array is needed", "messages");
    }
    esp_status status = ESP_OK;
    for (size_t idx = 0; status == ESP_OK && esp_jsontext_next(list, n_list, &at, &item, &n_item); idx++) {
        status = add_message(adapt, json_array_get(messages, idx), idx, item, n_item);
    }
    if (status == ESP_OK && is(string_of(json_array_get(messages, n - 1), "role"), "assistant")) {
        return esp_adapt_refuse(adapt, "the last message must not be the assistant's: answers are not continued",
                                "messages[%zu].role", n - 1);
    }
    return status;
}

/* ---- Tools -------------------------------------------------------------------------------------- */

static esp_status add_tool(struct esp_adapt *adapt, const json_t *tool, size_t idx, const char *source, size_t n_source,
                           struct esp_buf *out)
{
    static const char *const path[] = {"input_schema"};
    const char *type = string_of(tool, "type"), *name = string_of(tool, "name");
    const json_t *description = json_object_get(tool, "description"), *strict = json_object_get(tool, "strict");
    size_t n_schema = 0;
    const char *schema = esp_jsontext_find(source, n_source, path, 1, &n_schema);
    if (type != NULL && strcmp(type, "custom") != 0) {
        esp_adapt_warn(adapt, "ignored_tool", "only tools that the caller runs can be called here", "tools[%zu].type",
                       idx);
        return ESP_OK;
    }
    if (name == NULL || (description != NULL && !json_is_null(description) && !json_is_string(description))) {
        return esp_adapt_refuse(adapt, "a tool has a name, and its description is a string", "tools[%zu]", idx);
    }
    esp_buf_str(out, out->n > 1 ? ",{\"type\":\"function\",\"function\":{\"name\":"
                                : "{\"type\":\"function\",\"function\":{\"name\":");
    esp_jsontext_quote_str(out, name);
    if (json_is_string(description)) {
        esp_buf_str(out, ",\"description\":");
        esp_jsontext_write(out, description);
    }
    if (schema != NULL) {
        esp_buf_str(out, ",\"parameters\":");
        esp_buf_add(out, schema, n_schema);
    }
    if (json_is_boolean(strict)) {
        esp_buf_printf(out, ",\"strict\":%s", json_is_true(strict) ? "true" : "false");
    }
    esp_buf_str(out, "}}");
    return ESP_OK;
}

static esp_status add_tool_choice(struct esp_adapt *adapt)
{
    const json_t *choice = json_object_get(adapt->request, "tool_choice");
    if (choice == NULL || json_is_null(choice)) {
        return ESP_OK;
    }
    const char *type = string_of(choice, "type"), *name = string_of(choice, "name");
    if (is(type, "auto") || is(type, "none")) {
        json_t *value = json_string(type);
        esp_adapt_value(adapt, "tool_choice", value);
        json_decref(value);
    } else if (is(type, "any")) {
        esp_adapt_raw(adapt, "tool_choice", "\"required\"", strlen("\"required\""));
    } else if (is(type, "tool") && name != NULL) {
        json_t *value = json_pack("{s:s,s:{s:s}}", "type", "function", "function", "name", name);
        esp_adapt_value(adapt, "tool_choice", value);
        json_decref(value);
    } else {
        return esp_adapt_refuse(adapt, "the type must be auto, any, none, or tool with a name", "tool_choice");
    }
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use"))) {
        esp_adapt_raw(adapt, "parallel_tool_calls", "false", strlen("false"));
    }
    return ESP_OK;
}

/* ---- The rest ----------------------------------------------------------------------------------- */

static esp_status add_thinking_mode(struct esp_adapt *adapt)
{
    const json_t *thinking = json_object_get(adapt->request, "thinking");
    if (thinking == NULL || json_is_null(thinking)) {
        return ESP_OK;
    }
    const char *type = string_of(thinking, "type");
    int64_t n_budget = 0;
    if (esp_json_int(thinking, "budget_tokens", 1, INT32_MAX, 0, &n_budget, &adapt->err) != ESP_OK) {
        esp_err_place(&adapt->err, "thinking.budget_tokens");
        return ESP_EINVAL;
    }
    esp_adapt_value(adapt, "reasoning_budget", json_object_get(thinking, "budget_tokens"));
    if (is(type, "disabled")) {
        esp_adapt_raw(adapt, "enable_thinking", "false", strlen("false"));
    } else if (is(type, "enabled") || is(type, "adaptive")) {
        esp_adapt_raw(adapt, "enable_thinking", "true", strlen("true"));
    } else {
        return esp_adapt_refuse(adapt, "the type must be enabled, adaptive or disabled", "thinking.type");
    }
    return ESP_OK;
}

/* output_config.format, or the older output_format. */
static esp_status add_format(struct esp_adapt *adapt)
{
    static const char *const paths[2][3] = {{"output_config", "format", "schema"}, {"output_format", "schema"}};
    static const char *const places[] = {"output_config.format", "output_format"};
    const json_t *config = json_object_get(adapt->request, "output_config");
    esp_adapt_value(adapt, "reasoning_effort", json_object_get(config, "effort"));
    const json_t *formats[2] = {json_object_get(config, "format"), json_object_get(adapt->request, "output_format")};
    for (size_t idx = 0; idx < 2; idx++) {
        size_t n_schema = 0;
        if (formats[idx] == NULL || json_is_null(formats[idx])) {
            continue;
        }
        const char *schema = esp_jsontext_find(adapt->text, adapt->n_bytes, paths[idx], 3 - idx, &n_schema);
        if (!is(string_of(formats[idx], "type"), "json_schema") || schema == NULL) {
            return esp_adapt_refuse(adapt, "the type must be json_schema, with a schema", "%s", places[idx]);
        }
        static const char head[] = "{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"output\",\"strict\":true,"
                                   "\"schema\":";
        esp_adapt_raw(adapt, "response_format", head, sizeof head - 1);
        esp_buf_add(&adapt->members, schema, n_schema);
        esp_buf_str(&adapt->members, "}}");
        return ESP_OK;
    }
    return ESP_OK;
}

static esp_status add_counts(struct esp_adapt *adapt, bool counting)
{
    int64_t n_max = 0;
    const json_t *given = json_object_get(adapt->request, "max_tokens");
    if (esp_json_int(adapt->request, "max_tokens", 1, INT64_MAX, 0, &n_max, &adapt->err) != ESP_OK) {
        return ESP_EINVAL;
    }
    if (!counting && (given == NULL || json_is_null(given))) {
        return esp_adapt_refuse(adapt, "a number is needed", "max_tokens");
    }
    static const char *const same[] = {"model",  "max_tokens", "stream", "temperature", "top_p",
                                       "top_k",  "cache_salt", "seed",   "min_p",
                                       "prompt_cache_key", "prompt_cache_options", "session_id", "done",
                                       "priority", "timeout", "user"};
    for (size_t idx = 0; idx < sizeof same / sizeof same[0]; idx++) {
        esp_adapt_copy(adapt, same[idx], same[idx]);
    }
    esp_adapt_copy(adapt, "stop", "stop_sequences");
    if (json_object_get(adapt->request, "user") == NULL) {
        esp_adapt_value(adapt, "user", json_object_get(json_object_get(adapt->request, "metadata"), "user_id"));
    }
    return ESP_OK;
}

bool esp_messages_convert(struct esp_adapt *adapt, bool counting)
{
    esp_status status = add_counts(adapt, counting);
    status = status == ESP_OK ? add_system(adapt) : status;
    status = status == ESP_OK ? add_messages(adapt) : status;
    status = status == ESP_OK ? esp_adapt_tools(adapt, add_tool) : status;
    status = status == ESP_OK ? add_tool_choice(adapt) : status;
    status = status == ESP_OK ? add_thinking_mode(adapt) : status;
    status = status == ESP_OK ? add_format(adapt) : status;
    if (status != ESP_OK) {
        esp_adapt_fail(adapt);
    }
    return status == ESP_OK;
}
