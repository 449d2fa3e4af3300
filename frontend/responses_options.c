/* What a request of the Responses API says besides its input: format, tools, logprobs; and how the answer repeats it.
 *
 * Schemas go on as they were written. Thread: a work thread.
 */
#include <string.h>

#include "frontend/http.h"
#include "frontend/responses.h"
#include "runtime/base/json.h"


static const char *string_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static bool is(const char *text, const char *other)
{
    return text != NULL && strcmp(text, other) == 0;
}

static const json_t *given(const struct esp_adapt *adapt, const char *name)
{
    const json_t *value = json_object_get(adapt->request, name);
    return json_is_null(value) ? NULL : value;
}

/* text: {format: {type, name, schema, strict}} */
static esp_status add_format(struct esp_adapt *adapt)
{
    static const char *const path[] = {"text", "format", "schema"};
    const json_t *text = given(adapt, "text"), *format = json_object_get(text, "format");
    const char *type = string_of(format, "type");
    if (text != NULL && !json_is_object(text)) {
        return esp_adapt_refuse(adapt, "an object is needed", "text");
    }
    if (format == NULL || json_is_null(format) || is(type, "text")) {
        return ESP_OK;
    }
    if (is(type, "json_object")) {
        esp_adapt_value(adapt, "response_format", format);
        return ESP_OK;
    }
    size_t n_schema = 0;
    const char *schema = esp_jsontext_find(adapt->text, adapt->n_bytes, path, 3, &n_schema);
    if (!is(type, "json_schema") || schema == NULL) {
        return esp_adapt_refuse(adapt, "the type must be text, json_object, or json_schema with a schema",
                                "text.format");
    }
    struct esp_buf *out = &adapt->members;
    static const char *const members[] = {"name", "description", "strict", "options"};
    esp_buf_str(out, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":");
    esp_buf_add(out, schema, n_schema);
    for (size_t idx = 0; idx < sizeof members / sizeof members[0]; idx++) {
        esp_adapt_value(adapt, members[idx], json_object_get(format, members[idx]));
    }
    esp_buf_str(out, "}}");
    return ESP_OK;
}

/* A flat function to a nested one. */
static esp_status add_tool(struct esp_adapt *adapt, const json_t *tool, size_t idx, const char *source, size_t n_source,
                           struct esp_buf *out)
{
    static const char *const path[] = {"parameters"};
    static const char *const members[] = {"description", "strict"};
    size_t n_schema = 0;
    const char *schema = esp_jsontext_find(source, n_source, path, 1, &n_schema);
    const char *name = string_of(tool, "name"), *type = string_of(tool, "type");
    if (type == NULL) {
        return esp_adapt_refuse(adapt, "a tool has a type", "tools[%zu].type", idx);
    }
    if (strcmp(type, "function") != 0) {
        esp_adapt_warn(adapt, "ignored_tool", "only functions can be called here", "tools[%zu].type", idx);
        return ESP_OK;
    }
    if (name == NULL) {
        return esp_adapt_refuse(adapt, "a function has a name", "tools[%zu].name", idx);
    }
    esp_buf_str(out, out->n > 1 ? ",{\"type\":\"function\",\"function\":{\"name\":"
                                : "{\"type\":\"function\",\"function\":{\"name\":");
    esp_jsontext_quote_str(out, name);
    for (size_t at = 0; at < sizeof members / sizeof members[0]; at++) {
        const json_t *value = json_object_get(tool, members[at]);
        if (value != NULL && !json_is_null(value)) {
            esp_buf_printf(out, ",\"%s\":", members[at]);
            esp_jsontext_write(out, value);
        }
    }
    if (schema != NULL && strncmp(schema, "null", n_schema) != 0) {
        esp_buf_str(out, ",\"parameters\":");
        esp_buf_add(out, schema, n_schema);
    }
    esp_buf_str(out, "}}");
    return ESP_OK;
}

static json_t *nested(const char *name)
{
    return json_pack("{s:s,s:{s:s}}", "type", "function", "function", "name", name);
}

/* {type: allowed_tools, mode, tools: [{type: function, name}]} */
static esp_status add_allowed(struct esp_adapt *adapt, const json_t *choice)
{
    json_t *list = json_array();
    const json_t *tools = json_object_get(choice, "tools"), *mode = json_object_get(choice, "mode");
    esp_status status = json_is_array(tools) && json_is_string(mode)
                            ? ESP_OK
                            : esp_adapt_refuse(adapt, "allowed_tools has a mode and tools", "tool_choice");
    for (size_t idx = 0; status == ESP_OK && idx < json_array_size(tools); idx++) {
        const json_t *tool = json_array_get(tools, idx);
        if (is(string_of(tool, "type"), "function") && string_of(tool, "name") != NULL) {
            json_array_append_new(list, nested(string_of(tool, "name")));
        } else {
            esp_adapt_warn(adapt, "ignored_tool", "only functions can be called here", "tool_choice.tools[%zu]", idx);
        }
    }
    if (status == ESP_OK) {
        json_t *value = json_pack("{s:s,s:{s:O,s:O}}", "type", "allowed_tools", "allowed_tools", "mode", mode, "tools",
                                  list);
        esp_adapt_value(adapt, "tool_choice", value);
        json_decref(value);
    }
    json_decref(list);
    return status;
}

static esp_status add_tool_choice(struct esp_adapt *adapt)
{
    const json_t *choice = given(adapt, "tool_choice");
    const char *type = string_of(choice, "type"), *name = string_of(choice, "name");
    if (choice == NULL || json_is_string(choice)) {
        esp_adapt_value(adapt, "tool_choice", choice);
        return ESP_OK;
    }
    if (is(type, "allowed_tools")) {
        return add_allowed(adapt, choice);
    }
    if (!is(type, "function") || name == NULL) {
        return esp_adapt_refuse(adapt, "auto, none, required, a function, or allowed_tools is needed", "tool_choice");
    }
    json_t *value = nested(name);
    esp_adapt_value(adapt, "tool_choice", value);
    json_decref(value);
    return ESP_OK;
}

static esp_status add_reasoning(struct esp_adapt *adapt)
{
    const json_t *reasoning = given(adapt, "reasoning");
    if (reasoning != NULL && !json_is_object(reasoning)) {
        return esp_adapt_refuse(adapt, "an object is needed", "reasoning");
    }
    esp_adapt_value(adapt, "reasoning_effort", json_object_get(reasoning, "effort"));
    return ESP_OK;
}

/* Log-probabilities are asked for in `include`. */
static esp_status add_include(struct esp_adapt *adapt)
{
    const json_t *include = given(adapt, "include"), *n_top = given(adapt, "top_logprobs");
    bool wants = false;
    if (include != NULL && !json_is_array(include)) {
        return esp_adapt_refuse(adapt, "an array is needed", "include");
    }
    for (size_t idx = 0; idx < json_array_size(include); idx++) {
        wants = wants || is(json_string_value(json_array_get(include, idx)), "message.output_text.logprobs");
    }
    if (wants) {
        esp_adapt_raw(adapt, "logprobs", "true", strlen("true"));
    }
    if (wants || (n_top != NULL && !(json_is_integer(n_top) && json_integer_value(n_top) == 0))) {
        esp_adapt_value(adapt, "top_logprobs", n_top); /* alone it is refused where it is read */
    }
    return ESP_OK;
}

/* What the answer repeats, with what holds when it was not given. */
static const struct {
    const char *name, *otherwise;
} echoed[] = {
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"max_tool_calls", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"previous_response_id", "null"},
    {"prompt_cache_key", "null"},
    {"reasoning", "{\"effort\":null,\"summary\":null}"},
    {"safety_identifier", "null"},
    {"store", "true"},
    {"temperature", "1.0"},
    {"text", "{\"format\":{\"type\":\"text\"}}"},
    {"tool_choice", "\"auto\""},
    {"tools", "[]"},
    {"top_logprobs", "0"},
    {"top_p", "1.0"},
    {"truncation", "\"disabled\""},
    {"user", "null"},
};

static void echo(struct esp_responses *responses)
{
    for (size_t idx = 0; idx < sizeof echoed / sizeof echoed[0]; idx++) {
        const json_t *value = given(&responses->adapt, echoed[idx].name);
        esp_buf_printf(&responses->echo, ",\"%s\":", echoed[idx].name);
        if (value == NULL) {
            esp_buf_str(&responses->echo, echoed[idx].otherwise);
        } else {
            esp_jsontext_write(&responses->echo, value);
        }
    }
    esp_buf_str(&responses->echo, ",\"background\":false,\"service_tier\":\"default\"");
}

/* Fields that nothing but the echo reads have a type all the same. */
static esp_status check_types(struct esp_adapt *adapt)
{
    const json_t *metadata = given(adapt, "metadata");
    const char *text = NULL;
    static const char *const strings[] = {"prompt_cache_key", "safety_identifier", "user"};
    for (size_t idx = 0; idx < sizeof strings / sizeof strings[0]; idx++) {
        if (esp_json_string(adapt->request, strings[idx], &text, &adapt->err) != ESP_OK) {
            return ESP_EINVAL;
        }
    }
    if (metadata != NULL && !json_is_object(metadata)) {
        return esp_adapt_refuse(adapt, "an object is needed", "metadata");
    }
    return ESP_OK;
}

esp_status esp_responses_options(struct esp_responses *responses)
{
    struct esp_adapt *adapt = &responses->adapt;
    esp_status status = check_types(adapt);
    status = status == ESP_OK ? add_format(adapt) : status;
    status = status == ESP_OK ? esp_adapt_tools(adapt, add_tool) : status;
    status = status == ESP_OK ? add_tool_choice(adapt) : status;
    status = status == ESP_OK ? add_reasoning(adapt) : status;
    status = status == ESP_OK ? add_include(adapt) : status;
    if (status == ESP_OK) {
        echo(responses);
        status = responses->echo.failed ? esp_fail(&adapt->err, ESP_ELIMIT, "the request is too large") : status;
    }
    return status;
}
