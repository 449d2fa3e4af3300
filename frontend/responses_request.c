/* Requests of the Responses API as chat requests.
 *
 *   instructions                     a system message
 *   previous_response_id             the items of the stored answers that this one goes on from
 *   message                          a message
 *   reasoning, message, function_call of the assistant, in a row    one message of the assistant
 *   function_call_output             a message of role tool
 *
 * Calls of tools that are no functions mean nothing here: such tools and items are skipped and named in the warnings.
 * Images and files are refused. Thread: a work thread.
 */
#include "frontend/responses.h"

#include <string.h>

#include "frontend/http.h"
#include "runtime/base/json.h"

#define TEXT_BYTES_MAX (64u * 1024u * 1024u)
#define CHAIN_MAX 4096u

/* The assistant's message on its way. */
struct turn {
    struct esp_responses *responses;
    bool open, has_reasoning;
    struct esp_buf text, reasoning;
    json_t *calls; /* NULL until there is one; owned */
    const char *where; /* of the items: "input", or the id of a stored answer */
    size_t idx;
};

static const char *string_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static bool is(const char *text, const char *other)
{
    return text != NULL && strcmp(text, other) == 0;
}

static esp_status refuse(struct turn *turn, const char *message, const char *member)
{
    return esp_adapt_refuse(&turn->responses->adapt, message, "%s[%zu]%s", turn->where, turn->idx, member);
}

/* ---- Items -------------------------------------------------------------------------------------- */

static json_t *text_message(const char *role, const struct esp_buf *text)
{
    return json_pack("{s:s,s:s%}", "role", role, "content", text->n == 0 ? "" : text->data, text->n);
}

static esp_status flush(struct turn *turn)
{
    if (!turn->open) {
        return ESP_OK;
    }
    json_t *message = text_message("assistant", &turn->text);
    if (turn->has_reasoning) {
        json_object_set_new(message, "reasoning_content",
                            json_stringn(turn->reasoning.n == 0 ? "" : turn->reasoning.data, turn->reasoning.n));
    }
    if (turn->calls != NULL) {
        json_object_set_new(message, "tool_calls", turn->calls);
    }
    turn->calls = NULL;
    turn->open = turn->has_reasoning = false;
    esp_buf_clear(&turn->text);
    esp_buf_clear(&turn->reasoning);
    return esp_adapt_message(&turn->responses->adapt, message);
}

/* Appends a string, or the texts of parts. */
static esp_status add_texts(struct turn *turn, const json_t *value, const char *member, struct esp_buf *text)
{
    if (json_is_string(value)) {
        esp_buf_add(text, json_string_value(value), json_string_length(value));
        return ESP_OK;
    }
    if (!json_is_array(value)) {
        return refuse(turn, "a string or an array of parts is needed", member);
    }
    for (size_t idx = 0; idx < json_array_size(value); idx++) {
        const json_t *part = json_array_get(value, idx);
        const char *type = string_of(part, "type");
        const json_t *piece = json_object_get(part, is(type, "refusal") ? "refusal" : "text");
        bool known = is(type, "input_text") || is(type, "output_text") || is(type, "text") || is(type, "refusal") ||
                     is(type, "summary_text") || is(type, "reasoning_text");
        if (!known || !json_is_string(piece)) {
            return refuse(turn, "only parts of text are supported", member);
        }
        esp_buf_add(text, json_string_value(piece), json_string_length(piece));
    }
    return ESP_OK;
}

static esp_status add_message(struct turn *turn, const json_t *item)
{
    const char *role = string_of(item, "role");
    const json_t *content = json_object_get(item, "content");
    if (is(role, "assistant")) {
        turn->open = true;
        return add_texts(turn, content, ".content", &turn->text);
    }
    if (!is(role, "user") && !is(role, "system") && !is(role, "developer")) {
        return refuse(turn, "the role must be user, assistant, system or developer", ".role");
    }
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    esp_status status = flush(turn);
    if (status == ESP_OK) {
        status = add_texts(turn, content, ".content", &text);
    }
    if (status == ESP_OK) {
        status = esp_adapt_message(&turn->responses->adapt, text_message(role, &text));
    }
    esp_buf_finish(&text);
    return status;
}

static esp_status add_call(struct turn *turn, const json_t *item)
{
    const char *id = string_of(item, "call_id"), *name = string_of(item, "name");
    bool custom = is(string_of(item, "type"), "custom_tool_call");
    const json_t *input = json_object_get(item, custom ? "input" : "arguments");
    if (id == NULL || name == NULL || !json_is_string(input)) {
        return refuse(turn, "a call has call_id, name and arguments", "");
    }
    json_t *arguments = json_incref((json_t *)(uintptr_t)input);
    if (custom) {
        struct esp_buf text;
        json_t *object = json_pack("{s:o}", "input", arguments);
        esp_buf_init(&text, ESP_TAG_HTTP, TEXT_BYTES_MAX);
        esp_jsontext_write(&text, object);
        json_decref(object);
        arguments = json_stringn(text.n == 0 ? "" : text.data, text.n);
        esp_buf_finish(&text);
    }
    turn->open = true;
    turn->calls = turn->calls == NULL ? json_array() : turn->calls;
    json_t *call = json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", id, "type", "function", "function", "name", name,
                             "arguments", arguments);
    return json_array_append_new(turn->calls, call) == 0
               ? ESP_OK
               : esp_fail(&turn->responses->adapt.err, ESP_ENOMEM, "out of memory");
}

static esp_status add_output(struct turn *turn, const json_t *item)
{
    const char *id = string_of(item, "call_id");
    struct esp_buf text;
    if (id == NULL) {
        return refuse(turn, "an output has the call_id of its call", ".call_id");
    }
    esp_buf_init(&text, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    esp_status status = flush(turn);
    if (status == ESP_OK) {
        status = add_texts(turn, json_object_get(item, "output"), ".output", &text);
    }
    if (status == ESP_OK) {
        json_t *message = text_message("tool", &text);
        json_object_set_new(message, "tool_call_id", json_string(id));
        status = esp_adapt_message(&turn->responses->adapt, message);
    }
    esp_buf_finish(&text);
    return status;
}

static esp_status add_reasoning(struct turn *turn, const json_t *item)
{
    const json_t *content = json_object_get(item, "content"), *summary = json_object_get(item, "summary");
    esp_status status = turn->open && (turn->text.n > 0 || turn->calls != NULL) ? flush(turn) : ESP_OK;
    const json_t *text = json_array_size(content) > 0 ? content : summary;
    if (status != ESP_OK || json_array_size(text) == 0) {
        return status; /* encrypted thoughts are not to be read */
    }
    turn->open = turn->has_reasoning = true;
    return add_texts(turn, text, ".content", &turn->reasoning);
}

/* An item of a stored answer by its id, which begins with that of the answer: msg_HEX_3 is of resp_HEX. */
static json_t *referred(struct turn *turn, const char *id)
{
    char response_id[64];
    struct esp_buf response;
    struct esp_err err = {0};
    json_t *found = NULL;
    const char *from = id == NULL ? NULL : strchr(id, '_'), *to = from == NULL ? NULL : strrchr(id, '_');
    if (to == from || to - from >= 48) {
        return NULL;
    }
    snprintf(response_id, sizeof response_id, "resp%.*s", (int)(to - from), from);
    esp_buf_init(&response, ESP_TAG_HTTP, ESP_STORE_BYTES_MAX + 1u);
    if (esp_kept_get(turn->responses->adapt.exchange->server->store, response_id, NULL, NULL, &response)) {
        json_t *answer = esp_json_parse(response.data, response.n, &err);
        const json_t *output = json_object_get(answer, "output");
        for (size_t idx = 0; idx < json_array_size(output) && found == NULL; idx++) {
            json_t *item = json_array_get(output, idx);
            found = is(string_of(item, "id"), id) ? json_incref(item) : NULL;
        }
        json_decref(answer);
    }
    esp_buf_finish(&response);
    return found;
}

static esp_status add_item(struct turn *turn, const json_t *item);

static esp_status add_reference(struct turn *turn, const json_t *item)
{
    json_t *found = referred(turn, string_of(item, "id"));
    if (found == NULL) {
        return refuse(turn, "there is no such item of a stored answer", ".id");
    }
    esp_status status = add_item(turn, found); /* never a reference itself: answers hold none */
    json_decref(found);
    return status;
}

static esp_status add_item(struct turn *turn, const json_t *item)
{
    static const char *const skipped[] = {
        "web_search_call",  "file_search_call",       "computer_call",          "computer_call_output",
        "local_shell_call", "local_shell_call_output", "image_generation_call", "code_interpreter_call",
        "mcp_call",         "mcp_list_tools",         "mcp_approval_request",   "mcp_approval_response",
        "shell_call",       "shell_call_output",      "apply_patch_call",       "apply_patch_call_output",
        "tool_search_call", "tool_search_output",     "compaction"};
    const char *type = string_of(item, "type");
    if (is(type, "message") || (type == NULL && string_of(item, "role") != NULL)) {
        return add_message(turn, item);
    }
    if (is(type, "function_call") || is(type, "custom_tool_call")) {
        return add_call(turn, item);
    }
    if (is(type, "function_call_output") || is(type, "custom_tool_call_output")) {
        return add_output(turn, item);
    }
    if (is(type, "reasoning")) {
        return add_reasoning(turn, item);
    }
    if (is(type, "item_reference") || (type == NULL && string_of(item, "id") != NULL)) {
        return add_reference(turn, item);
    }
    for (size_t idx = 0; idx < sizeof skipped / sizeof skipped[0]; idx++) {
        if (is(type, skipped[idx])) {
            esp_adapt_warn(&turn->responses->adapt, "ignored_item", "an item of this type means nothing here",
                           "%s[%zu].type", turn->where, turn->idx);
            return ESP_OK;
        }
    }
    return refuse(turn, "messages, reasoning, function calls and their outputs are supported", ".type");
}

/* input: a string, or an array of items. */
static esp_status add_items(struct turn *turn, const json_t *input, const char *where)
{
    turn->where = where;
    turn->idx = 0;
    if (json_is_string(input)) {
        json_t *item = json_pack("{s:s,s:O}", "role", "user", "content", input);
        esp_status status = add_message(turn, item);
        json_decref(item);
        return status;
    }
    if (!json_is_array(input)) {
        return esp_adapt_refuse(&turn->responses->adapt, "a string or an array of items is needed", "%s", where);
    }
    esp_status status = ESP_OK;
    for (; status == ESP_OK && turn->idx < json_array_size(input); turn->idx++) {
        status = add_item(turn, json_array_get(input, turn->idx));
    }
    return status;
}

/* ---- What an answer goes on from ---------------------------------------------------------------- */

/* The items of one stored answer: what was asked, what was answered. */
static esp_status add_stored(struct turn *turn, const char *id)
{
    struct esp_adapt *adapt = &turn->responses->adapt;
    struct esp_buf input, response;
    struct esp_err err = {0};
    esp_buf_init(&input, ESP_TAG_HTTP, ESP_STORE_BYTES_MAX + 1u);
    esp_buf_init(&response, ESP_TAG_HTTP, ESP_STORE_BYTES_MAX + 1u);
    esp_status status = ESP_OK;
    if (!esp_kept_get(adapt->exchange->server->store, id, NULL, &input, &response) || input.failed ||
        response.failed) {
        status = esp_adapt_refuse(adapt, "it is not stored any more", "previous_response_id");
    } else {
        json_t *items = esp_json_parse(input.data, input.n, &err);
        json_t *answer = esp_json_parse(response.data, response.n, &err);
        status = add_items(turn, items, id);
        if (status == ESP_OK) {
            status = add_items(turn, json_object_get(answer, "output"), id);
        }
        json_decref(items);
        json_decref(answer);
    }
    esp_buf_finish(&input);
    esp_buf_finish(&response);
    return status;
}

/* From the oldest to the one that is named. */
static esp_status add_previous(struct turn *turn)
{
    struct esp_responses *responses = turn->responses;
    struct esp_adapt *adapt = &responses->adapt;
    const char *named = NULL;
    if (esp_json_string(adapt->request, "previous_response_id", &named, &adapt->err) != ESP_OK) {
        return ESP_EINVAL;
    }
    if (named == NULL) {
        return ESP_OK;
    }
    struct esp_buf chain; /* of char [64] */
    char id[64] = "", previous[64] = "";
    esp_buf_init(&chain, ESP_TAG_HTTP, CHAIN_MAX * sizeof id);
    esp_status status = ESP_OK;
    snprintf(id, sizeof id, "%s", named);
    if (strlen(named) >= sizeof id || !esp_kept_get(adapt->exchange->server->store, id, NULL, NULL, NULL)) {
        status = esp_adapt_refuse(adapt, "there is no such stored answer", "previous_response_id");
    }
    esp_kept_use(adapt->exchange->server->store, id);
    while (status == ESP_OK && id[0] != '\0') {
        esp_buf_add(&chain, id, sizeof id);
        if (chain.failed || !esp_kept_get(adapt->exchange->server->store, id, previous, NULL, NULL)) {
            status = esp_adapt_refuse(adapt, "an answer before it is not stored any more", "previous_response_id");
        }
        memcpy(id, previous, sizeof id);
    }
    for (size_t left = chain.n / sizeof id; status == ESP_OK && left > 0; left--) {
        status = add_stored(turn, chain.data + (left - 1) * sizeof id);
    }
    esp_buf_finish(&chain);
    snprintf(responses->previous, sizeof responses->previous, "%s", named);
    return status;
}

static esp_status add_input(struct esp_responses *responses)
{
    struct esp_adapt *adapt = &responses->adapt;
    struct turn turn = {.responses = responses};
    const json_t *input = json_object_get(adapt->request, "input");
    const char *instructions = NULL;
    esp_status status = esp_json_string(adapt->request, "instructions", &instructions, &adapt->err);
    if (status == ESP_OK && instructions != NULL && instructions[0] != '\0') {
        status = esp_adapt_message(adapt, json_pack("{s:s,s:O}", "role", "system", "content",
                                                    json_object_get(adapt->request, "instructions")));
    }
    esp_buf_init(&turn.text, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    esp_buf_init(&turn.reasoning, ESP_TAG_HTTP, TEXT_BYTES_MAX);
    status = status == ESP_OK ? add_previous(&turn) : status;
    status = status == ESP_OK ? add_items(&turn, input, "input") : status;
    status = status == ESP_OK ? flush(&turn) : status;
    esp_buf_finish(&turn.text);
    esp_buf_finish(&turn.reasoning);
    json_decref(turn.calls);
    if (status == ESP_OK && json_array_size(adapt->messages) == 0) {
        return esp_adapt_refuse(adapt, "at least one item is needed", "input");
    }
    if (json_is_string(input)) {
        esp_buf_str(&responses->input, "[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
                                       "\"text\":");
        esp_jsontext_write(&responses->input, input);
        esp_buf_str(&responses->input, "}]}]");
    } else if (status == ESP_OK) {
        esp_jsontext_write(&responses->input, input);
    }
    return status == ESP_OK && responses->input.failed ? esp_fail(&adapt->err, ESP_ELIMIT, "the input is too large")
                                                       : status;
}

/* ---- Everything --------------------------------------------------------------------------------- */

bool esp_responses_convert(struct esp_responses *responses)
{
    struct esp_adapt *adapt = &responses->adapt;
    static const char *const same[] = {"model", "stream", "temperature", "top_p",      "top_k",
                                       "min_p", "seed",   "stop",        "cache_salt", "parallel_tool_calls",
                                       "prompt_cache_key", "prompt_cache_options", "session_id", "done",
                                       "priority", "timeout", "user", "safety_identifier"};
    esp_status status = esp_json_bool(adapt->request, "store", true, &responses->store, &adapt->err);
    for (size_t idx = 0; idx < sizeof same / sizeof same[0]; idx++) {
        esp_adapt_copy(adapt, same[idx], same[idx]);
    }
    esp_adapt_copy(adapt, "max_completion_tokens", "max_output_tokens");
    status = status == ESP_OK ? add_input(responses) : status;
    status = status == ESP_OK ? esp_responses_options(responses) : status;
    if (status != ESP_OK) {
        esp_adapt_fail(adapt);
    }
    return status == ESP_OK;
}
