/* The one constraint of a request, from any of the fields that can carry it.
 *
 *   response_format {json_object | json_schema}     structured_outputs {json, regex, choice, grammar, options}
 *   regex, choice, grammar, lark
 *
 * A schema is handed on as the exact source text of the body, so that key order and the spelling of numbers
 * survive. Two constraints in one request are refused with both names. Compiles nothing.
 */
#include <stdio.h>
#include <string.h>

#include "frontend/jsontext.h"
#include "frontend/request.h"
#include "runtime/base/json.h"

struct finder {
    const struct esp_request_source *source;
    struct esp_arena *arena;
    struct esp_constraint found;
    const json_t *options; /* of the grammar, or NULL */
    struct esp_buf *warnings;
    struct esp_err *err;
};

static esp_status refuse(struct finder *finder, const char *param, const char *message)
{
    esp_fail(finder->err, ESP_EINVAL, "%s", message);
    esp_err_place(finder->err, "%s", param);
    return ESP_EINVAL;
}

static esp_status take(struct finder *finder, const char *kind, const char *param, const char *text, size_t n_bytes)
{
    struct esp_constraint *found = &finder->found;
    if (found->kind != NULL) {
        esp_fail(finder->err, ESP_EINVAL, "'%s' and '%s' both constrain the answer: give one", found->param, param);
        esp_err_place(finder->err, "%s", param);
        return ESP_EINVAL;
    }
    char *copy = esp_arena_strndup(finder->arena, text, n_bytes);
    if (copy == NULL) {
        esp_fail(finder->err, ESP_ELIMIT, "the constraint is too large");
        esp_err_place(finder->err, "%s", param);
        return ESP_ELIMIT;
    }
    *found = (struct esp_constraint){.kind = kind, .param = param, .text = copy, .n_bytes = n_bytes};
    return ESP_OK;
}

/* The source text of the value under path. */
static esp_status take_source(struct finder *finder, const char *kind, const char *param, const char *const *path,
                              size_t n_path)
{
    size_t n_bytes = 0;
    const char *text = esp_jsontext_find(finder->source->text, finder->source->n_bytes, path, n_path, &n_bytes);
    if (text == NULL) {
        esp_fail(finder->err, ESP_EINTERNAL, "the source of '%s' was not found", param);
        return ESP_EINTERNAL;
    }
    return take(finder, kind, param, text, n_bytes);
}

static esp_status take_string(struct finder *finder, const json_t *value, const char *kind, const char *param)
{
    if (!json_is_string(value)) {
        esp_fail(finder->err, ESP_EINVAL, "'%s' must be a string, not %s", param, esp_json_type_name(value));
        esp_err_place(finder->err, "%s", param);
        return ESP_EINVAL;
    }
    if (memchr(json_string_value(value), '\0', json_string_length(value)) != NULL) {
        return refuse(finder, param, "a pattern or grammar must not hold a NUL");
    }
    return take(finder, kind, param, json_string_value(value), json_string_length(value));
}

static esp_status take_choice(struct finder *finder, const json_t *value, const char *param, const char *const *path,
                              size_t n_path)
{
    bool fine = json_is_array(value) && json_array_size(value) > 0;
    for (size_t idx = 0; idx < json_array_size(value) && fine; idx++) {
        fine = json_is_string(json_array_get(value, idx));
    }
    return fine ? take_source(finder, "choice", param, path, n_path)
                : refuse(finder, param, "'choice' must be an array of at least one string");
}

static esp_status take_options(struct finder *finder, const json_t *options, const char *param)
{
    if (options == NULL || json_is_null(options)) {
        return ESP_OK;
    }
    if (!json_is_object(options)) {
        return refuse(finder, param, "the options of a constraint must be an object");
    }
    finder->options = options;
    return ESP_OK;
}

static esp_status from_json_schema(struct finder *finder, const json_t *spec)
{
    static const char *const path[] = {"response_format", "json_schema", "schema"};
    if (!json_is_object(spec)) {
        return refuse(finder, "response_format.json_schema",
                      "'response_format.json_schema' must be an object with a schema");
    }
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)spec, name, value)
    {
        static const char *const known[] = {"name", "description", "strict", "schema", "options"};
        bool is_known = false;
        for (size_t idx = 0; idx < sizeof known / sizeof known[0]; idx++) {
            is_known = is_known || strcmp(name, known[idx]) == 0;
        }
        if (!is_known) {
            esp_request_warn(finder->warnings, "unknown_field", "response_format.json_schema",
                             "a field of it is not known");
        }
    }
    bool strict = false;
    const char *text = NULL;
    if (esp_json_bool(spec, "strict", false, &strict, finder->err) != ESP_OK) {
        esp_err_place(finder->err, "response_format.json_schema.strict");
        return ESP_EINVAL;
    }
    if (esp_json_string(spec, "name", &text, finder->err) != ESP_OK) {
        esp_err_place(finder->err, "response_format.json_schema.name");
        return ESP_EINVAL;
    }
    const json_t *schema = json_object_get(spec, "schema");
    if (schema == NULL || json_is_null(schema)) {
        return refuse(finder, "response_format.json_schema.schema", "'response_format.json_schema.schema' is missing");
    }
    esp_status status = take_options(finder, json_object_get(spec, "options"), "response_format.json_schema.options");
    return status != ESP_OK ? status : take_source(finder, "schema", "response_format.json_schema.schema", path, 3);
}

static esp_status from_response_format(struct finder *finder)
{
    const json_t *format = json_object_get(finder->source->json, "response_format");
    if (format == NULL || json_is_null(format)) {
        return ESP_OK;
    }
    const json_t *type = json_object_get(format, "type");
    if (!json_is_object(format) || !json_is_string(type)) {
        return refuse(finder, json_is_object(format) ? "response_format.type" : "response_format",
                      "'response_format' must be an object with a type: text, json_object or json_schema");
    }
    const char *name = json_string_value(type);
    if (strcmp(name, "text") == 0) {
        return ESP_OK;
    }
    if (strcmp(name, "json_object") == 0) {
        return take(finder, "json", "response_format", "", 0);
    }
    if (strcmp(name, "json_schema") == 0) {
        return from_json_schema(finder, json_object_get(format, "json_schema"));
    }
    return refuse(finder, "response_format.type", "'response_format.type' must be text, json_object or json_schema");
}

static esp_status from_structured_member(struct finder *finder, const char *name, const json_t *value)
{
    static const char *const json_path[] = {"structured_outputs", "json"};
    static const char *const choice_path[] = {"structured_outputs", "choice"};
    if (json_is_null(value)) {
        return ESP_OK;
    }
    if (strcmp(name, "json") == 0) {
        return json_is_string(value) ? take_string(finder, value, "schema", "structured_outputs.json")
                                     : take_source(finder, "schema", "structured_outputs.json", json_path, 2);
    }
    if (strcmp(name, "regex") == 0) {
        return take_string(finder, value, "regex", "structured_outputs.regex");
    }
    if (strcmp(name, "grammar") == 0) {
        return take_string(finder, value, "gbnf", "structured_outputs.grammar");
    }
    if (strcmp(name, "choice") == 0) {
        return take_choice(finder, value, "structured_outputs.choice", choice_path, 2);
    }
    if (strcmp(name, "options") == 0) {
        return take_options(finder, value, "structured_outputs.options");
    }
    return refuse(finder, "structured_outputs",
                  "'structured_outputs' takes json, regex, choice, grammar and options only");
}

static esp_status from_structured(struct finder *finder)
{
    const json_t *outputs = json_object_get(finder->source->json, "structured_outputs");
    if (outputs == NULL || json_is_null(outputs)) {
        return ESP_OK;
    }
    if (!json_is_object(outputs)) {
        return refuse(finder, "structured_outputs", "'structured_outputs' must be an object");
    }
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)outputs, name, value)
    {
        esp_status status = from_structured_member(finder, name, value);
        if (status != ESP_OK) {
            return status;
        }
    }
    return ESP_OK;
}

static esp_status from_own_fields(struct finder *finder)
{
    static const char *const choice_path[] = {"choice"};
    static const struct {
        const char *name, *kind;
    } own[] = {{"regex", "regex"}, {"grammar", "gbnf"}, {"lark", "lark"}};
    for (size_t idx = 0; idx < sizeof own / sizeof own[0]; idx++) {
        const json_t *value = json_object_get(finder->source->json, own[idx].name);
        if (value != NULL && !json_is_null(value)) {
            esp_status status = take_string(finder, value, own[idx].kind, own[idx].name);
            if (status != ESP_OK) {
                return status;
            }
        }
    }
    const json_t *choice = json_object_get(finder->source->json, "choice");
    return choice == NULL || json_is_null(choice) ? ESP_OK : take_choice(finder, choice, "choice", choice_path, 1);
}

/* The server's own "lenient" holds for schemas that do not say. */
static esp_status add_lenient(struct finder *finder)
{
    bool schema = finder->found.kind != NULL && strcmp(finder->found.kind, "schema") == 0;
    if (!finder->source->lenient || !schema || json_object_get(finder->options, "lenient") != NULL) {
        return ESP_OK;
    }
    const char *rest = finder->found.options == NULL ? "}" : finder->found.options + 1;
    size_t n = strlen(rest) + sizeof "{\"lenient\":true,";
    char *text = esp_arena_alloc(finder->arena, n, 1);
    if (text == NULL) {
        return esp_fail(finder->err, ESP_ENOMEM, "out of memory");
    }
    snprintf(text, n, "{\"lenient\":true%s%s", rest[0] == '}' ? "" : ",", rest);
    finder->found.options = text;
    return ESP_OK;
}

static esp_status write_options(struct finder *finder)
{
    if (finder->options == NULL) {
        return add_lenient(finder);
    }
    size_t n = json_dumpb(finder->options, NULL, 0, JSON_COMPACT);
    char *text = esp_arena_alloc(finder->arena, n + 1, 1);
    if (text == NULL) {
        return esp_fail(finder->err, ESP_ENOMEM, "out of memory");
    }
    json_dumpb(finder->options, text, n, JSON_COMPACT);
    finder->found.options = text;
    return add_lenient(finder);
}

esp_status esp_request_constraint(const struct esp_request_source *source, struct esp_arena *arena,
                                  struct esp_constraint *ret_constraint, struct esp_buf *warnings, struct esp_err *err)
{
    struct finder finder = {.source = source, .arena = arena, .warnings = warnings, .err = err};
    esp_status status = from_response_format(&finder);
    if (status == ESP_OK) {
        status = from_structured(&finder);
    }
    if (status == ESP_OK) {
        status = from_own_fields(&finder);
    }
    if (status == ESP_OK) {
        status = write_options(&finder);
    }
    if (status == ESP_OK) {
        *ret_constraint = finder.found;
    }
    return status;
}
