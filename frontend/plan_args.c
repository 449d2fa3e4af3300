/* Tagged arguments as regions: each declared argument in its order, the optional ones or not.
 *
 * A string without quotes is any text without its end mark, or one of its enum's; what else its schema says of it
 * cannot be kept in this notation, which a warning names. Keywords beside properties cannot either: refused.
 */
#include <string.h>

#include "frontend/jsontext.h"
#include "frontend/plan_internal.h"
#include "runtime/base/json.h"

static void comma(struct esp_buf *buf, bool *first)
{
    esp_buf_add(buf, ",", !*first);
    *first = false;
}

static esp_status refuse(const struct esp_tool *tool, const char *keyword, struct esp_err *err)
{
    esp_fail(err, ESP_EUNSUPPORTED,
             "tools[%u].function.parameters: '%s' cannot be kept in the notation that this model's template has for "
             "calls",
             tool->request_idx, keyword);
    esp_err_place(err, "tools[%u].function.parameters.%s", tool->request_idx, keyword);
    return ESP_EUNSUPPORTED;
}

static esp_status check_root(const struct esp_tool *tool, const json_t *schema, struct esp_err *err)
{
    static const char *const known[] = {"type",    "properties",  "required", "additionalProperties",
                                        "title",   "$id",         "$defs",    "definitions",
                                        "$schema", "description", "$comment", "examples",
                                        "default"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        bool fine = false;
        for (size_t idx = 0; idx < sizeof known / sizeof known[0] && !fine; idx++) {
            fine = strcmp(known[idx], key) == 0;
        }
        if (!fine) {
            return refuse(tool, key, err);
        }
    }
    return ESP_OK;
}

/* The source of an argument's schema, with the definitions of the whole beside it. */
static void write_schema(const struct esp_tool *tool, const struct esp_tool_arg *arg, const char *whitespace,
                         struct esp_buf *buf)
{
    static const char *const names[] = {"$defs", "definitions"};
    size_t at = 1;
    esp_buf_str(buf, "{\"schema\":");
    if (arg->schema_bytes < 2 || arg->schema[0] != '{' || memmem(arg->schema, arg->schema_bytes, "$ref", 4) == NULL) {
        esp_buf_add(buf, arg->schema, arg->schema_bytes);
    } else {
        esp_buf_char(buf, '{');
        for (int idx = 0; idx < 2; idx++) {
            size_t n = 0;
            const char *const path[] = {names[idx]};
            const char *text = esp_jsontext_find(tool->schema, tool->schema_bytes, path, 1, &n);
            size_t n_own = 0;
            if (text != NULL && esp_jsontext_find(arg->schema, arg->schema_bytes, path, 1, &n_own) == NULL) {
                esp_buf_printf(buf, "\"%s\":", names[idx]);
                esp_buf_add(buf, text, n);
                esp_buf_char(buf, ',');
            }
        }
        esp_buf_add(buf, arg->schema + at, arg->schema_bytes - at);
    }
    esp_buf_printf(buf, ",\"options\":{\"whitespace\":\"%s\"}}", whitespace);
}

static void write_words(const json_t *values, struct esp_buf *buf)
{
    esp_buf_str(buf, "{\"choice\":[");
    for (size_t idx = 0; idx < json_array_size(values); idx++) {
        const json_t *value = json_array_get(values, idx);
        esp_buf_add(buf, ",", idx > 0);
        esp_jsontext_quote(buf, json_string_value(value), json_string_length(value));
    }
    esp_buf_str(buf, "]}");
}

static void write_string(const struct esp_form *form, const struct esp_tool *tool, const struct esp_tool_arg *arg,
                         const json_t *schema, struct esp_buf *buf, struct esp_params *params)
{
    static const char *const lost[] = {"pattern", "minLength", "maxLength", "format", "allOf",
                                       "anyOf",   "oneOf",     "not",       "$ref"};
    const json_t *values = json_object_get(schema, "enum"), *value = json_object_get(schema, "const");
    if (arg->kind == ESP_ARG_STRING && (value != NULL || json_array_size(values) > 0)) {
        json_t *one = value != NULL ? json_pack("[O]", value) : NULL;
        write_words(one != NULL ? one : values, buf);
        json_decref(one);
        return;
    }
    for (size_t idx = 0; idx < sizeof lost / sizeof lost[0]; idx++) {
        if (json_object_get(schema, lost[idx]) != NULL) {
            char place[160];
            snprintf(place, sizeof place, "tools[%u].function.parameters.properties.%.80s", tool->request_idx,
                     arg->name);
            esp_request_warn(&params->warnings, "schema_widened", place,
                             "this model's template writes strings without quotes: any text is allowed here");
            break;
        }
    }
    esp_region_free(buf, &form->tagged.end[ESP_VALUE_STRING], 1, -1);
}

/* begin KEY mid VALUE end */
static void write_arg(const struct esp_form *form, const struct esp_tool *tool, const struct esp_tool_arg *arg,
                      struct esp_buf *buf, struct esp_params *params)
{
    const struct esp_tagged *tagged = &form->tagged;
    bool raw = arg->kind != ESP_ARG_OTHER && !tagged->quoted, first = true;
    int kind = raw ? ESP_VALUE_STRING : ESP_VALUE_OTHER;
    json_t *schema = json_loadb(arg->schema, arg->schema_bytes, JSON_DECODE_ANY, NULL);
    const char *type = json_string_value(json_object_get(schema, "type"));
    esp_buf_str(buf, "{\"seq\":[");
    esp_region_lit(buf, &tagged->begin, &first);
    comma(buf, &first);
    esp_region_text(buf, arg->name, strlen(arg->name));
    esp_region_lit(buf, &tagged->mid[kind], &first);
    comma(buf, &first);
    if (raw) {
        write_string(form, tool, arg, schema, buf, params);
    } else if (tagged->python && type != NULL && strcmp(type, "boolean") == 0) {
        esp_buf_str(buf, "{\"choice\":[\"True\",\"False\"]}");
    } else if (tagged->python && type != NULL && strcmp(type, "null") == 0) {
        esp_region_text(buf, "None", 4);
    } else {
        write_schema(tool, arg, form->whitespace, buf);
    }
    esp_region_lit(buf, &tagged->end[kind], &first);
    esp_buf_str(buf, "]}");
    json_decref(schema);
}

/* The arguments after one that is there: the optional ones may be missing. */
static void write_following(const struct esp_form *form, const struct esp_tool *tool, uint32_t from,
                            struct esp_buf *buf, bool *first, struct esp_params *params)
{
    for (uint32_t idx = from; idx < tool->n_args; idx++) {
        bool inner = true;
        comma(buf, first);
        esp_buf_str(buf, tool->args[idx].required ? "{\"seq\":[" : "{\"repeat\":{\"seq\":[");
        esp_region_lit(buf, &form->tagged.sep, &inner);
        comma(buf, &inner);
        write_arg(form, tool, &tool->args[idx], buf, params);
        esp_buf_str(buf, tool->args[idx].required ? "]}" : "]},\"max\":1}");
    }
}

static void write_none(const struct esp_tagged *tagged, struct esp_buf *buf)
{
    bool first = true;
    esp_buf_str(buf, "{\"seq\":[");
    esp_region_lit(buf, &tagged->none, &first);
    if (first) {
        esp_buf_str(buf, "{\"text\":\"\"}");
    }
    esp_buf_str(buf, "]}");
}

esp_status esp_plan_tagged(const struct esp_form *form, const struct esp_tool *tool, struct esp_buf *buf,
                           struct esp_params *params, struct esp_err *err)
{
    json_t *schema = json_loadb(tool->schema, tool->schema_bytes, 0, NULL);
    esp_status status = check_root(tool, schema, err);
    bool first = true, may_end = true;
    json_decref(schema);
    if (status != ESP_OK) {
        return status;
    }
    /* One alternative for each argument that can be the first one. */
    esp_buf_str(buf, "{\"any\":[");
    for (uint32_t idx = 0; idx < tool->n_args && may_end; idx++) {
        bool inner = true;
        size_t n_warnings = params->warnings.n;
        comma(buf, &first);
        esp_buf_str(buf, "{\"seq\":[");
        esp_region_lit(buf, &form->tagged.open, &inner);
        comma(buf, &inner);
        write_arg(form, tool, &tool->args[idx], buf, params);
        write_following(form, tool, idx + 1, buf, &inner, params);
        esp_region_lit(buf, &form->tagged.close, &inner);
        esp_buf_str(buf, "]}");
        params->warnings.n = idx == 0 ? params->warnings.n : n_warnings; /* each is said once */
        may_end = !tool->args[idx].required;
    }
    if (may_end) {
        comma(buf, &first);
        write_none(&form->tagged, buf);
    }
    esp_buf_str(buf, "]}");
    return ESP_OK;
}
