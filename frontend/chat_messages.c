/* Messages as the template shall see them: contents as one string, calls as objects, names where they are missing.
 *
 * A template that knows no tools gets them in words: the list at the end of the system message, calls in the
 * assistant's text, results as a user's text. Everything it is given there is text, never control tokens.
 * A half-written call (arguments that are no JSON object) is handed on as it is.
 */
#include <string.h>

#include "frontend/chat_internal.h"
#include "frontend/jsontext.h"

static const char list_head[] =
    "# Tools\n\nYou may call one or more of these functions, described as JSON, one a line:\n<tools>\n";
static const char list_tail[] =
    "</tools>\n\nTo call a function, answer with its name and arguments as JSON between these tags:\n"
    "<tool_call>\n{\"name\": \"<function name>\", \"arguments\": {<arguments>}}\n</tool_call>";

static esp_status refuse(struct esp_err *err, const char *message, const char *fmt, size_t idx, size_t part)
{
    char place[128];
    snprintf(place, sizeof place, fmt, idx, part);
    esp_fail(err, ESP_EINVAL, "%s: %s", place, message);
    esp_err_place(err, "%s", place);
    return ESP_EINVAL;
}

static esp_status no_memory(struct esp_err *err)
{
    return esp_fail(err, ESP_ENOMEM, "out of memory");
}

/* The text parts of a content array, joined; owned. */
static esp_status join_parts(const json_t *parts, size_t message_idx, json_t **ret_text, struct esp_err *err)
{
    struct esp_buf text;
    esp_status status = ESP_OK;
    esp_buf_init(&text, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    for (size_t idx = 0; status == ESP_OK && idx < json_array_size(parts); idx++) {
        const json_t *part = json_array_get(parts, idx);
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *piece = json_object_get(part, "text");
        if (type == NULL || strcmp(type, "text") != 0) {
            status = refuse(err, "only parts of type text are supported", "messages[%zu].content[%zu].type",
                            message_idx, idx);
        } else if (!json_is_string(piece)) {
            status = refuse(err, "a string is needed", "messages[%zu].content[%zu].text", message_idx, idx);
        } else {
            esp_buf_add(&text, json_string_value(piece), json_string_length(piece));
        }
    }
    json_t *joined = status == ESP_OK && !text.failed ? json_stringn(text.n == 0 ? "" : text.data, text.n) : NULL;
    esp_buf_finish(&text);
    if (status != ESP_OK) {
        return status;
    }
    *ret_text = joined;
    return joined != NULL ? ESP_OK : no_memory(err);
}

static esp_status read_content(const json_t *message, const char *role, size_t idx, json_t **ret_text,
                               struct esp_err *err)
{
    const json_t *content = json_object_get(message, "content");
    if (json_is_array(content)) {
        return join_parts(content, idx, ret_text, err);
    }
    bool absent = content == NULL || json_is_null(content);
    if (absent && strcmp(role, "assistant") != 0 && strcmp(role, "tool") != 0) {
        return refuse(err, "the content is missing", "messages[%zu].content", idx, 0);
    }
    if (!absent && !json_is_string(content)) {
        return refuse(err, "a string or an array of parts is needed", "messages[%zu].content", idx, 0);
    }
    *ret_text = absent ? json_string("") : json_incref((json_t *)(uintptr_t)content);
    return *ret_text != NULL ? ESP_OK : no_memory(err);
}

static bool is_role(const char *role)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t idx = 0; idx < sizeof roles / sizeof roles[0]; idx++) {
        if (strcmp(role, roles[idx]) == 0) {
            return true;
        }
    }
    return false;
}

static void dump(struct esp_buf *buf, const json_t *value)
{
    size_t n = json_dumpb(value, NULL, 0, JSON_ENCODE_ANY);
    char *at = esp_buf_reserve(buf, n);
    if (at != NULL && json_dumpb(value, at, n, JSON_ENCODE_ANY) == n) {
        buf->n += n;
        at[n] = '\0';
    } else {
        buf->failed = true;
    }
}

/* ---- Calls -------------------------------------------------------------------------------------- */

/* Appends JSON text with ", " and ": " between its tokens, and every token as it was spelled. */
static void respace(struct esp_buf *buf, const char *text, size_t n_bytes)
{
    bool in_string = false;
    for (size_t at = 0; at < n_bytes; at++) {
        char c = text[at];
        if (in_string || strchr(" \t\r\n", c) == NULL) {
            esp_buf_char(buf, c);
        }
        if (in_string && c == '\\' && at + 1 < n_bytes) {
            esp_buf_char(buf, text[++at]);
        } else if (c == '"') {
            in_string = !in_string;
        } else if (!in_string && (c == ',' || c == ':')) {
            esp_buf_char(buf, ' ');
        }
    }
}

/* The arguments of a past call for a template: an object, or a string where it wants one or where they are broken. */
static json_t *call_arguments(const struct esp_chat *chat, const json_t *arguments)
{
    if (!json_is_string(arguments)) {
        return json_is_object(arguments) ? json_copy((json_t *)(uintptr_t)arguments) : json_object();
    }
    const char *text = json_string_value(arguments);
    size_t n_bytes = json_string_length(arguments);
    json_t *parsed = n_bytes == 0 ? json_object() : json_loadb(text, n_bytes, 0, NULL);
    if (!json_is_object(parsed)) {
        json_decref(parsed);
        return chat->form.takes_text ? json_copy((json_t *)(uintptr_t)arguments)
                                     : json_pack("{s:O}", "arguments", arguments);
    }
    if (!chat->form.string_args) {
        return parsed;
    }
    struct esp_buf spaced;
    json_decref(parsed);
    esp_buf_init(&spaced, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    respace(&spaced, n_bytes == 0 ? "{}" : text, n_bytes == 0 ? 2 : n_bytes);
    json_t *result = spaced.failed ? NULL : json_stringn(spaced.data, spaced.n);
    esp_buf_finish(&spaced);
    return result;
}

static esp_status check_call(const json_t *call, size_t idx, size_t part, struct esp_err *err)
{
    const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name"))) {
        return refuse(err, "a string is needed", "messages[%zu].tool_calls[%zu].function.name", idx, part);
    }
    bool fine = arguments == NULL || json_is_null(arguments) || json_is_string(arguments) || json_is_object(arguments);
    return fine ? ESP_OK
                : refuse(err, "a string with JSON is needed", "messages[%zu].tool_calls[%zu].function.arguments", idx,
                         part);
}

static esp_status check_calls(const json_t *calls, size_t idx, struct esp_err *err)
{
    esp_status status = ESP_OK;
    if (calls == NULL || json_is_null(calls)) {
        return ESP_OK;
    }
    if (!json_is_array(calls)) {
        return refuse(err, "an array is needed", "messages[%zu].tool_calls", idx, 0);
    }
    for (size_t part = 0; part < json_array_size(calls) && status == ESP_OK; part++) {
        status = check_call(json_array_get(calls, part), idx, part, err);
    }
    return status;
}

/* For templates that print calls: copies with arguments as the template wants them. */
static json_t *native_calls(const struct esp_chat *chat, const json_t *calls)
{
    json_t *list = json_array();
    for (size_t idx = 0; idx < json_array_size(calls); idx++) {
        json_t *call = json_copy(json_array_get(calls, idx));
        json_t *function = json_copy(json_object_get(call, "function"));
        json_object_set_new(function, "arguments", call_arguments(chat, json_object_get(function, "arguments")));
        json_object_set_new(call, "function", function);
        if (json_object_get(call, "type") == NULL) {
            json_object_set_new(call, "type", json_string("function"));
        }
        json_array_append_new(list, call);
    }
    return list;
}

/* For the others: text and calls as one text, in the form in which they are generated. */
static json_t *written_calls(const json_t *content, const json_t *calls)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    esp_buf_add(&buf, json_string_value(content), json_string_length(content));
    for (size_t idx = 0; idx < json_array_size(calls); idx++) {
        const json_t *function = json_object_get(json_array_get(calls, idx), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        esp_buf_str(&buf, buf.n > 0 ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        esp_jsontext_quote_str(&buf, json_string_value(json_object_get(function, "name")));
        esp_buf_str(&buf, ", \"arguments\": ");
        if (json_is_string(arguments) && json_string_length(arguments) > 0) {
            respace(&buf, json_string_value(arguments), json_string_length(arguments));
        } else if (json_is_object(arguments)) {
            dump(&buf, arguments);
        } else {
            esp_buf_str(&buf, "{}");
        }
        esp_buf_str(&buf, "}\n</tool_call>");
    }
    json_t *text = buf.failed ? NULL : json_stringn(buf.n == 0 ? "" : buf.data, buf.n);
    esp_buf_finish(&buf);
    return text;
}

/* ---- Results ------------------------------------------------------------------------------------ */

/* The name of the function that a result answers, from the calls before it; NULL when there is none. */
static const json_t *called_name(const json_t *list, const char *id)
{
    for (size_t idx = json_array_size(list); idx-- > 0 && id != NULL;) {
        const json_t *calls = json_object_get(json_array_get(list, idx), "tool_calls");
        for (size_t part = 0; part < json_array_size(calls); part++) {
            const json_t *call = json_array_get(calls, part);
            const char *have = json_string_value(json_object_get(call, "id"));
            if (have != NULL && strcmp(have, id) == 0) {
                return json_object_get(json_object_get(call, "function"), "name");
            }
        }
    }
    return NULL;
}

/* A result as text of the user; several in a row become one message. */
static bool add_written_result(json_t *list, const json_t *content, bool follows)
{
    struct esp_buf buf;
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    const json_t *before = follows ? json_object_get(last, "content") : NULL;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    if (before != NULL) {
        esp_buf_add(&buf, json_string_value(before), json_string_length(before));
        esp_buf_char(&buf, '\n');
    }
    esp_buf_str(&buf, "<tool_response>\n");
    esp_buf_add(&buf, json_string_value(content), json_string_length(content));
    esp_buf_str(&buf, "\n</tool_response>");
    json_t *text = buf.failed ? NULL : json_stringn(buf.data, buf.n);
    esp_buf_finish(&buf);
    if (before != NULL) {
        return json_object_set_new(last, "content", text) == 0;
    }
    return json_array_append_new(list, json_pack("{s:s,s:o}", "role", "user", "content", text)) == 0;
}

/* ---- The list of messages ----------------------------------------------------------------------- */

static bool set_reasoning(json_t *copied, const json_t *message)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    json_t *given = NULL;
    for (int idx = 0; idx < 3 && given == NULL; idx++) {
        json_t *value = json_object_get(message, names[idx]);
        given = json_is_string(value) && json_string_length(value) > 0 ? value : NULL;
    }
    bool ok = true;
    for (int idx = 0; idx < 3; idx++) {
        json_object_del(copied, names[idx]);
        ok = (given == NULL || json_object_set(copied, names[idx], given) == 0) && ok;
    }
    return ok;
}

static bool add_assistant(const struct esp_chat *chat, json_t *list, json_t *copied, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    bool ok = set_reasoning(copied, message);
    json_object_del(copied, "tool_calls");
    if (json_array_size(calls) > 0) {
        if (chat->form.shows_calls) {
            ok = json_object_set_new(copied, "tool_calls", native_calls(chat, calls)) == 0 && ok;
        } else {
            ok =
                json_object_set_new(copied, "content", written_calls(json_object_get(copied, "content"), calls)) == 0 &&
                ok;
        }
    }
    return json_array_append(list, copied) == 0 && ok;
}

static bool add_result(const struct esp_chat *chat, json_t *list, json_t *copied, const json_t *message, bool follows)
{
    if (!chat->form.shows_results) {
        return add_written_result(list, json_object_get(copied, "content"), follows);
    }
    const json_t *name = called_name(list, json_string_value(json_object_get(message, "tool_call_id")));
    if (!json_is_string(json_object_get(copied, "name")) && name != NULL) {
        json_object_set(copied, "name", (json_t *)(uintptr_t)name);
    }
    return json_array_append(list, copied) == 0;
}

/* A message whose content and role are as they should be. */
static bool add_copy(const struct esp_chat *chat, json_t *list, json_t *copied, const json_t *messages, size_t idx)
{
    const json_t *message = json_array_get(messages, idx), *before = idx > 0 ? json_array_get(messages, idx - 1) : NULL;
    const char *role = json_string_value(json_object_get(message, "role"));
    const char *role_before = json_string_value(json_object_get(before, "role"));
    if (strcmp(role, "assistant") == 0) {
        return add_assistant(chat, list, copied, message);
    }
    if (strcmp(role, "tool") == 0) {
        return add_result(chat, list, copied, message, role_before != NULL && strcmp(role_before, "tool") == 0);
    }
    bool as_system = strcmp(role, "developer") == 0 && !chat->knows_developer;
    return (!as_system || json_object_set_new(copied, "role", json_string("system")) == 0) &&
           json_array_append(list, copied) == 0;
}

static esp_status add_message(const struct esp_chat *chat, json_t *list, const json_t *messages, size_t idx,
                              struct esp_err *err)
{
    const json_t *message = json_array_get(messages, idx);
    if (!json_is_object(message)) {
        return refuse(err, "an object is needed", "messages[%zu]", idx, 0);
    }
    const char *role = json_string_value(json_object_get(message, "role"));
    if (role == NULL || !is_role(role)) {
        return refuse(err, "the role must be system, developer, user, assistant or tool", "messages[%zu].role", idx, 0);
    }
    json_t *text = NULL;
    esp_status status = read_content(message, role, idx, &text, err);
    if (status == ESP_OK && strcmp(role, "assistant") == 0) {
        status = check_calls(json_object_get(message, "tool_calls"), idx, err);
    }
    if (status != ESP_OK) {
        json_decref(text);
        return status;
    }
    json_t *copied = json_copy((json_t *)(uintptr_t)message);
    bool ok = json_object_set_new(copied, "content", text) == 0 && add_copy(chat, list, copied, messages, idx);
    json_decref(copied);
    return ok ? ESP_OK : no_memory(err);
}

esp_status esp_chat_messages(const struct esp_chat *chat, const json_t *messages, const struct esp_recall *recall,
                             json_t *list, struct esp_err *err)
{
    esp_status status = ESP_OK;
    for (size_t idx = 0; status == ESP_OK && idx < json_array_size(messages); idx++) {
        status = add_message(chat, list, messages, idx, err);
        bool known = status == ESP_OK && recall != NULL && recall->n_known > 0 && recall->turns[idx] != NULL;
        if (known && !esp_recall_sign(chat, recall, idx, json_array_get(list, json_array_size(list) - 1))) {
            status = no_memory(err);
        }
    }
    return status;
}

/* ---- Tools -------------------------------------------------------------------------------------- */

json_t *esp_chat_functions(const json_t *request)
{
    const json_t *tools = json_object_get(request, "tools");
    json_t *list = json_array();
    for (size_t idx = 0; idx < json_array_size(tools); idx++) {
        const json_t *item = json_array_get(tools, idx), *given = json_object_get(item, "function");
        const char *type = json_string_value(json_object_get(item, "type"));
        if (!json_is_object(given) || (type != NULL && strcmp(type, "function") != 0)) {
            continue;
        }
        json_t *function = json_pack("{s:O}", "name", json_object_get(given, "name"));
        json_t *description = json_object_get(given, "description"), *schema = json_object_get(given, "parameters");
        json_object_set_new(function, "description",
                            json_is_string(description) ? json_incref(description) : json_string(""));
        json_object_set_new(function, "parameters",
                            json_is_object(schema) ? json_incref(schema)
                                                   : json_pack("{s:s,s:{}}", "type", "object", "properties"));
        json_array_append_new(list, json_pack("{s:s,s:o}", "type", "function", "function", function));
    }
    return list;
}

esp_status esp_chat_write_tools(json_t *messages, const json_t *functions, struct esp_err *err)
{
    struct esp_buf buf;
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    bool has_system = role != NULL && strcmp(role, "system") == 0;
    const json_t *content = has_system ? json_object_get(first, "content") : NULL;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    if (json_string_length(content) > 0) {
        esp_buf_add(&buf, json_string_value(content), json_string_length(content));
        esp_buf_str(&buf, "\n\n");
    }
    esp_buf_str(&buf, list_head);
    for (size_t idx = 0; idx < json_array_size(functions); idx++) {
        dump(&buf, json_array_get(functions, idx));
        esp_buf_char(&buf, '\n');
    }
    esp_buf_str(&buf, list_tail);
    json_t *text = buf.failed ? NULL : json_stringn(buf.data, buf.n);
    esp_buf_finish(&buf);
    bool ok = has_system
                  ? json_object_set_new(first, "content", text) == 0
                  : json_array_insert_new(messages, 0, json_pack("{s:s,s:o}", "role", "system", "content", text)) == 0;
    return ok && text != NULL ? ESP_OK : no_memory(err);
}

/* Templates that refuse the role system get its text in front of the user's first. */
esp_status esp_chat_merge_system(json_t *messages, struct esp_err *err)
{
    const char *roles[2] = {NULL, NULL};
    for (size_t idx = 0; idx < 2; idx++) {
        roles[idx] = json_string_value(json_object_get(json_array_get(messages, idx), "role"));
    }
    if (roles[0] == NULL || strcmp(roles[0], "system") != 0 || roles[1] == NULL || strcmp(roles[1], "user") != 0) {
        return ESP_OK;
    }
    const json_t *system = json_object_get(json_array_get(messages, 0), "content");
    json_t *user = json_array_get(messages, 1);
    const json_t *content = json_object_get(user, "content");
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    esp_buf_add(&buf, json_string_value(system), json_string_length(system));
    esp_buf_str(&buf, "\n\n");
    esp_buf_add(&buf, json_string_value(content), json_string_length(content));
    json_t *text = buf.failed ? NULL : json_stringn(buf.data, buf.n);
    esp_buf_finish(&buf);
    bool ok = json_object_set_new(user, "content", text) == 0 && json_array_remove(messages, 0) == 0;
    return ok ? ESP_OK : no_memory(err);
}
