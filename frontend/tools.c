/* Reading tools, tool_choice and parallel_tool_calls. What is no function is skipped with a warning. */
#include "frontend/tools.h"

#include <string.h>

#include "frontend/jsontext.h"
#include "runtime/base/json.h"

#define NAME_BYTES_MAX 64u

struct reader {
    const struct esp_request_source *source;
    struct esp_arena *arena;
    struct esp_tools *tools;
    struct esp_buf *warnings;
    struct esp_err *err;
};

static esp_status refuse(struct reader *reader, const char *place, const char *message)
{
    esp_fail(reader->err, ESP_EINVAL, "%s: %s", place, message);
    esp_err_place(reader->err, "%s", place);
    return ESP_EINVAL;
}

static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n > 0 && n <= NAME_BYTES_MAX && name[n] == '\0';
}

const struct esp_tool *esp_tools_find(const struct esp_tools *tools, const char *name, size_t n_bytes)
{
    for (uint32_t idx = 0; idx < tools->n; idx++) {
        const struct esp_tool *tool = &tools->items[idx];
        if (tool->allowed && strlen(tool->name) == n_bytes && memcmp(tool->name, name, n_bytes) == 0) {
            return tool;
        }
    }
    return NULL;
}

const struct esp_tool_arg *esp_tool_arg(const struct esp_tool *tool, const char *name, size_t n_bytes)
{
    for (uint32_t idx = 0; idx < tool->n_args; idx++) {
        if (strlen(tool->args[idx].name) == n_bytes && memcmp(tool->args[idx].name, name, n_bytes) == 0) {
            return &tool->args[idx];
        }
    }
    return NULL;
}

/* ---- Schemas ------------------------------------------------------------------------------------ */

static bool all_strings(const json_t *list, bool *ret_some)
{
    size_t n = 0;
    for (size_t idx = 0; idx < json_array_size(list); idx++) {
        n += json_is_string(json_array_get(list, idx));
    }
    *ret_some = n > 0;
    return n == json_array_size(list);
}

static enum esp_arg_kind kind_of(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    const json_t *value = json_object_get(schema, "const");
    bool some = false;
    if (value != NULL) {
        return json_is_string(value) ? ESP_ARG_STRING : ESP_ARG_OTHER;
    }
    if (json_is_array(values)) {
        bool all = all_strings(values, &some);
        return all ? ESP_ARG_STRING : some ? ESP_ARG_EITHER : ESP_ARG_OTHER;
    }
    if (json_is_string(type)) {
        return strcmp(json_string_value(type), "string") == 0 ? ESP_ARG_STRING : ESP_ARG_OTHER;
    }
    for (size_t idx = 0; idx < json_array_size(type); idx++) {
        const char *name = json_string_value(json_array_get(type, idx));
        some = some || (name != NULL && strcmp(name, "string") == 0);
    }
    return json_is_array(type) && !some ? ESP_ARG_OTHER : ESP_ARG_EITHER;
}

static const char *source_of(struct reader *reader, const char *const *path, size_t n_path, size_t *ret_n)
{
    const struct esp_request_source *source = reader->source;
    const char *text = esp_jsontext_find(source->text, source->n_bytes, path, n_path, ret_n);
    return text == NULL ? NULL : esp_arena_strndup(reader->arena, text, *ret_n);
}

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t idx = 0; idx < json_array_size(list); idx++) {
        const char *item = json_string_value(json_array_get(list, idx));
        if (item != NULL && strcmp(item, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_args(struct reader *reader, struct esp_tool *tool, const json_t *schema)
{
    json_t *properties = json_object_get(schema, "properties");
    size_t n = json_is_object(properties) ? json_object_size(properties) : 0;
    tool->args = esp_arena_alloc(reader->arena, n + 1, sizeof *tool->args);
    const char *name;
    json_t *value;
    if (tool->args == NULL) {
        return false;
    }
    json_object_foreach(properties, name, value)
    {
        const char *path[] = {"properties", name};
        struct esp_tool_arg *arg = &tool->args[tool->n_args];
        const char *text = esp_jsontext_find(tool->schema, tool->schema_bytes, path, 2, &arg->schema_bytes);
        arg->name = esp_arena_strndup(reader->arena, name, strlen(name));
        arg->kind = kind_of(value);
        arg->required = is_required(schema, name);
        arg->schema = text;
        if (arg->name == NULL || text == NULL) {
            return false;
        }
        tool->n_args++;
    }
    return true;
}

/* ---- The list ----------------------------------------------------------------------------------- */

static esp_status read_function(struct reader *reader, const json_t *function, uint32_t idx)
{
    char place[96], number[16];
    struct esp_tool *tool = &reader->tools->items[reader->tools->n];
    const char *name = json_string_value(json_object_get(function, "name"));
    snprintf(number, sizeof number, "%u", idx);
    snprintf(place, sizeof place, "tools[%u].function.name", idx);
    if (name == NULL || !is_name(name)) {
        return refuse(reader, place, "a name of 1 to 64 letters, digits, _ and - is needed");
    }
    for (uint32_t before = 0; before < reader->tools->n; before++) {
        if (strcmp(reader->tools->items[before].name, name) == 0) {
            return refuse(reader, place, "another tool has this name");
        }
    }
    const json_t *schema = json_object_get(function, "parameters"), *strict = json_object_get(function, "strict");
    snprintf(place, sizeof place, "tools[%u].function.strict", idx);
    if (strict != NULL && !json_is_null(strict) && !json_is_boolean(strict)) {
        return refuse(reader, place, "true or false is needed");
    }
    snprintf(place, sizeof place, "tools[%u].function.parameters", idx);
    *tool = (struct esp_tool){.schema = "{}", .schema_bytes = 2, .allowed = true, .request_idx = idx};
    tool->name = esp_arena_strndup(reader->arena, name, strlen(name));
    if (schema != NULL && !json_is_null(schema)) {
        if (!json_is_object(schema)) {
            return refuse(reader, place, "a JSON schema (an object) is needed");
        }
        const char *path[] = {"tools", number, "function", "parameters"};
        tool->has_schema = true;
        tool->schema = source_of(reader, path, 4, &tool->schema_bytes);
    }
    if (tool->name == NULL || tool->schema == NULL || (tool->has_schema && !read_args(reader, tool, schema))) {
        return esp_fail(reader->err, ESP_ELIMIT, "the tools do not fit their limit");
    }
    reader->tools->n++;
    return ESP_OK;
}

static esp_status read_list(struct reader *reader)
{
    const json_t *list = json_object_get(reader->source->json, "tools");
    if (list == NULL || json_is_null(list)) {
        return ESP_OK;
    }
    if (!json_is_array(list) || json_array_size(list) > ESP_TOOLS_MAX) {
        return refuse(reader, "tools", "an array of at most 512 tools is needed");
    }
    esp_status status = ESP_OK;
    reader->tools->items = esp_arena_alloc(reader->arena, json_array_size(list) + 1, sizeof(struct esp_tool));
    if (reader->tools->items == NULL) {
        return esp_fail(reader->err, ESP_ELIMIT, "the tools do not fit their limit");
    }
    for (size_t idx = 0; idx < json_array_size(list) && status == ESP_OK; idx++) {
        const json_t *item = json_array_get(list, idx), *function = json_object_get(item, "function");
        const char *type = json_string_value(json_object_get(item, "type"));
        char place[64];
        if (json_is_object(item) && type != NULL && strcmp(type, "function") != 0) {
            snprintf(place, sizeof place, "tools[%zu].type", idx);
            esp_request_warn(reader->warnings, "tool_skipped", place, "only functions can be called: it was left out");
        } else if (!json_is_object(function)) {
            snprintf(place, sizeof place, "tools[%zu].function", idx);
            status = refuse(reader, place, "an object with the function is needed");
        } else {
            status = read_function(reader, function, (uint32_t)idx);
        }
    }
    return status;
}

/* ---- The choice --------------------------------------------------------------------------------- */

static esp_status allow(struct reader *reader, const json_t *item, const char *place)
{
    const char *name = json_string_value(json_object_get(json_object_get(item, "function"), "name"));
    for (uint32_t idx = 0; idx < reader->tools->n && name != NULL; idx++) {
        if (strcmp(reader->tools->items[idx].name, name) == 0) {
            reader->tools->items[idx].allowed = true;
            return ESP_OK;
        }
    }
    return refuse(reader, place, name == NULL ? "a function with a name is needed" : "there is no tool of this name");
}

static esp_status read_mode(struct reader *reader, const char *mode, const char *place)
{
    struct esp_tools *tools = reader->tools;
    if (mode != NULL && strcmp(mode, "auto") == 0) {
        tools->choice = tools->n > 0 ? ESP_TOOLS_AUTO : ESP_TOOLS_NONE;
    } else if (mode != NULL && strcmp(mode, "required") == 0) {
        tools->choice = ESP_TOOLS_REQUIRED;
    } else if (mode != NULL && strcmp(mode, "none") == 0 && strcmp(place, "tool_choice") == 0) {
        tools->choice = ESP_TOOLS_NONE;
    } else {
        return refuse(reader, place, "auto, required, none, a function or allowed_tools is needed");
    }
    return tools->choice == ESP_TOOLS_REQUIRED && tools->n == 0
               ? refuse(reader, place, "a call is required and there are no tools")
               : ESP_OK;
}

static esp_status read_chosen(struct reader *reader, const json_t *choice)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    for (uint32_t idx = 0; idx < reader->tools->n; idx++) {
        reader->tools->items[idx].allowed = false;
    }
    if (type != NULL && strcmp(type, "function") == 0) {
        reader->tools->choice = ESP_TOOLS_REQUIRED;
        return allow(reader, choice, "tool_choice.function.name");
    }
    if (type == NULL || strcmp(type, "allowed_tools") != 0) {
        return refuse(reader, "tool_choice.type", "function or allowed_tools is needed");
    }
    const json_t *inner = json_object_get(choice, "allowed_tools"), *list = json_object_get(inner, "tools");
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return refuse(reader, "tool_choice.allowed_tools.tools", "an array of at least one function is needed");
    }
    esp_status status = ESP_OK;
    for (size_t idx = 0; idx < json_array_size(list) && status == ESP_OK; idx++) {
        status = allow(reader, json_array_get(list, idx), "tool_choice.allowed_tools.tools");
    }
    const char *mode = json_string_value(json_object_get(inner, "mode"));
    return status != ESP_OK ? status : read_mode(reader, mode, "tool_choice.allowed_tools.mode");
}

static esp_status read_choice(struct reader *reader)
{
    const json_t *choice = json_object_get(reader->source->json, "tool_choice");
    if (choice == NULL || json_is_null(choice)) {
        return read_mode(reader, "auto", "tool_choice");
    }
    return json_is_object(choice) ? read_chosen(reader, choice)
                                  : read_mode(reader, json_string_value(choice), "tool_choice");
}

esp_status esp_tools_read(const struct esp_request_source *source, struct esp_arena *arena, struct esp_tools *ret_tools,
                          struct esp_buf *warnings, struct esp_err *err)
{
    *ret_tools = (struct esp_tools){.parallel = true};
    struct reader reader = {source, arena, ret_tools, warnings, err};
    esp_status status = read_list(&reader);
    if (status == ESP_OK) {
        status = read_choice(&reader);
    }
    if (status == ESP_OK) {
        status = esp_json_bool(source->json, "parallel_tool_calls", true, &ret_tools->parallel, err);
    }
    for (uint32_t idx = 0; idx < ret_tools->n; idx++) {
        ret_tools->n_allowed += ret_tools->items[idx].allowed;
    }
    return status;
}
