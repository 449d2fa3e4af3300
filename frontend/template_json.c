/* JSON in and out of the renderer: the context becomes values, and the filter tojson makes text of values.
 *
 * tojson writes what Python's json.dumps does: order of keys kept, ", " and ": " unless told otherwise, floats
 * as repr, non-ASCII as it is unless ensure_ascii is set; no HTML escaping. All of its text counts as user text
 * when any string in the value does. Thread: the rendering's owner.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/template_internal.h"

/* ---- In ---------------------------------------------------------------------------------------- */

static bool object_from_json(struct tpl_run *run, const json_t *json, bool user, unsigned depth, struct tpl_value *ret)
{
    struct tpl_value object;
    size_t n = json_object_size(json);
    if (!esp_tpl_dict(run, TPL_DICT, &object)) {
        return false;
    }
    struct tpl_dict *dict = object.dict;
    dict->pairs = esp_tpl_alloc(run, n, sizeof *dict->pairs);
    if (dict->pairs == NULL) {
        return false;
    }
    dict->room = n;
    const char *key;
    json_t *value;
    json_t *borrowed = (json_t *)(uintptr_t)json; /* the macro wants it writable, and writes nothing */
    json_object_foreach(borrowed, key, value)
    {
        struct tpl_pair *pair = &dict->pairs[dict->n++];
        if (!esp_tpl_str_new(run, key, strlen(key), user, &pair->key) ||
            !esp_tpl_from_json(run, value, user, depth + 1, &pair->value)) {
            return false;
        }
    }
    *ret = object;
    return true;
}

bool esp_tpl_from_json(struct tpl_run *run, const json_t *json, bool user, unsigned depth, struct tpl_value *ret)
{
    if (depth > TPL_VALUE_DEPTH_MAX) {
        return esp_tpl_fail(run, ESP_ELIMIT, "the context is nested too deeply");
    }
    switch (json_typeof(json)) {
    case JSON_OBJECT: return object_from_json(run, json, user, depth, ret);
    case JSON_STRING: return esp_tpl_str_new(run, json_string_value(json), json_string_length(json), user, ret);
    case JSON_INTEGER: *ret = esp_tpl_int(json_integer_value(json)); return true;
    case JSON_REAL: *ret = esp_tpl_real(json_real_value(json)); return true;
    case JSON_TRUE:
    case JSON_FALSE: *ret = esp_tpl_bool(json_is_true(json)); return true;
    case JSON_NULL: *ret = esp_tpl_none(); return true;
    case JSON_ARRAY: break;
    }
    struct tpl_value list;
    if (!esp_tpl_list(run, TPL_LIST, json_array_size(json), &list)) {
        return false;
    }
    for (size_t idx = 0; idx < list.list->n; idx++) {
        if (!esp_tpl_from_json(run, json_array_get(json, idx), user, depth + 1, &list.list->items[idx])) {
            return false;
        }
    }
    *ret = list;
    return true;
}

/* ---- Out --------------------------------------------------------------------------------------- */

struct json_writer {
    struct tpl_run *run;
    struct tpl_out out;
    const struct tpl_str *item_separator, *key_separator, *indent; /* indent NULL: one line */
    bool ensure_ascii, sort_keys, user;
};

static bool put(struct json_writer *writer, const char *text)
{
    return esp_tpl_out_text(writer->run, &writer->out, text, writer->user);
}

static bool put_str(struct json_writer *writer, const struct tpl_str *str)
{
    return esp_tpl_out_add(writer->run, &writer->out, str->data, str->n, NULL, writer->user);
}

static bool new_line(struct json_writer *writer, unsigned level)
{
    if (writer->indent == NULL) {
        return true;
    }
    bool ok = put(writer, "\n");
    for (unsigned idx = 0; ok && idx < level; idx++) {
        ok = put_str(writer, writer->indent);
    }
    return ok;
}

/* The escape of a character, empty for one that stands as it is. */
static void escape_of(uint32_t cp, bool ensure_ascii, char escape[16])
{
    static const char special[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *known = cp < 0x80 && cp > 0 ? strchr(special, (int)cp) : NULL;
    escape[0] = '\0';
    if (known != NULL) {
        snprintf(escape, 16, "\\%c", letters[known - special]);
    } else if (cp < 0x20 || (ensure_ascii && cp > 0x7e && cp < 0x10000)) {
        snprintf(escape, 16, "\\u%04x", cp);
    } else if (ensure_ascii && cp > 0xffff) {
        uint32_t rest = cp - 0x10000;
        snprintf(escape, 16, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    }
}

static bool write_string(struct json_writer *writer, const struct tpl_str *str)
{
    bool ok = put(writer, "\"");
    size_t plain = 0; /* start of what needs no escape */
    for (size_t at = 0; ok && at < str->n;) {
        char escape[16];
        size_t from = at;
        escape_of(esp_tpl_str_next(str, &at), writer->ensure_ascii, escape);
        if (escape[0] != '\0') {
            ok = esp_tpl_out_add(writer->run, &writer->out, str->data + plain, from - plain, NULL, writer->user) &&
                 put(writer, escape);
            plain = at;
        }
    }
    return ok && esp_tpl_out_add(writer->run, &writer->out, str->data + plain, str->n - plain, NULL, writer->user) &&
           put(writer, "\"");
}

static bool write_value(struct json_writer *writer, const struct tpl_value *value, unsigned depth);

static bool write_scalar(struct json_writer *writer, const struct tpl_value *value)
{
    char text[TPL_REAL_BYTES];
    switch (value->kind) {
    case TPL_NONE: return put(writer, "null");
    case TPL_BOOL: return put(writer, value->truth ? "true" : "false");
    case TPL_INT: snprintf(text, sizeof text, "%" PRId64, value->integer); return put(writer, text);
    case TPL_FLOAT:
        esp_tpl_real_text(value->real, text);
        return put(writer, strcmp(text, "inf") == 0    ? "Infinity"
                           : strcmp(text, "-inf") == 0 ? "-Infinity"
                           : strcmp(text, "nan") == 0  ? "NaN"
                                                       : text);
    default:
        return esp_tpl_fail(writer->run, ESP_EINVAL, "object of type %s is not JSON serializable", esp_tpl_type(value));
    }
}

static bool write_key(struct json_writer *writer, const struct tpl_value *key)
{
    if (key->kind == TPL_STR) {
        return write_string(writer, key->str);
    }
    if (key->kind > TPL_FLOAT || key->kind < TPL_NONE) {
        return esp_tpl_fail(writer->run, ESP_EINVAL, "a key of type %s is not JSON serializable", esp_tpl_type(key));
    }
    return put(writer, "\"") && write_scalar(writer, key) && put(writer, "\"");
}

static bool write_pairs(struct json_writer *writer, const struct tpl_value *keys, const struct tpl_value *values,
                        size_t n, unsigned depth)
{
    bool ok = put(writer, "{");
    for (size_t idx = 0; ok && idx < n; idx++) {
        ok = (idx == 0 || put_str(writer, writer->item_separator)) && new_line(writer, depth + 1) &&
             write_key(writer, &keys[idx]) && put_str(writer, writer->key_separator) &&
             write_value(writer, &values[idx], depth + 1);
    }
    return ok && (n == 0 || new_line(writer, depth)) && put(writer, "}");
}

static bool write_dict(struct json_writer *writer, const struct tpl_dict *dict, unsigned depth)
{
    size_t n = dict->n;
    struct tpl_value *keys = esp_tpl_alloc(writer->run, n, 2 * sizeof *keys);
    if (keys == NULL) {
        return false;
    }
    struct tpl_value *values = keys + n;
    for (size_t idx = 0; idx < n; idx++) {
        keys[idx] = dict->pairs[idx].key;
        values[idx] = dict->pairs[idx].value;
    }
    if (writer->sort_keys &&
        (!esp_tpl_sort(writer->run, values, keys, n, false) || !esp_tpl_sort(writer->run, keys, keys, n, false))) {
        return false;
    }
    return write_pairs(writer, keys, values, n, depth);
}

static bool write_list(struct json_writer *writer, const struct tpl_list *list, unsigned depth)
{
    bool ok = put(writer, "[");
    for (size_t idx = 0; ok && idx < list->n; idx++) {
        ok = (idx == 0 || put_str(writer, writer->item_separator)) && new_line(writer, depth + 1) &&
             write_value(writer, &list->items[idx], depth + 1);
    }
    return ok && (list->n == 0 || new_line(writer, depth)) && put(writer, "]");
}

static bool write_value(struct json_writer *writer, const struct tpl_value *value, unsigned depth)
{
    if (depth > TPL_VALUE_DEPTH_MAX) {
        return esp_tpl_fail(writer->run, ESP_ELIMIT, "values are nested too deeply");
    }
    switch (value->kind) {
    case TPL_STR: return write_string(writer, value->str);
    case TPL_DICT: return write_dict(writer, value->dict, depth);
    case TPL_LIST:
    case TPL_TUPLE: return write_list(writer, value->list, depth);
    default: return write_scalar(writer, value);
    }
}

/* indent: a number of spaces or the text itself. */
static bool read_indent(struct json_writer *writer, const struct tpl_value *indent)
{
    int64_t n;
    if (indent->kind == TPL_STR) {
        writer->indent = indent->str;
        return true;
    }
    if (indent->kind == TPL_UNSET || indent->kind == TPL_NONE) {
        return true;
    }
    if (!esp_tpl_as_int(indent, &n) || n > 64) {
        return esp_tpl_fail(writer->run, ESP_EINVAL, "indent must be a string or a number up to 64");
    }
    struct tpl_str empty = {.data = "", .n = 0};
    struct tpl_value text;
    if (!esp_tpl_str_pad(writer->run, &empty, n, -1, &text)) {
        return false;
    }
    writer->indent = text.str;
    return true;
}

bool esp_tpl_filter_tojson(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    static const struct tpl_str comma = {.data = ", ", .n = 2}, bare_comma = {.data = ",", .n = 1},
                                colon = {.data = ": ", .n = 2};
    struct json_writer writer = {.run = run, .key_separator = &colon, .user = esp_tpl_user(&call->self, 0)};
    writer.ensure_ascii = esp_tpl_truth(&call->arg[0]);
    writer.sort_keys = esp_tpl_truth(&call->arg[3]);
    if (!read_indent(&writer, &call->arg[1])) {
        return false;
    }
    writer.item_separator = writer.indent != NULL ? &bare_comma : &comma;
    const struct tpl_value *separators = &call->arg[2];
    if (separators->kind == TPL_TUPLE || separators->kind == TPL_LIST) {
        const struct tpl_list *list = separators->list;
        if (list->n != 2 || list->items[0].kind != TPL_STR || list->items[1].kind != TPL_STR) {
            return esp_tpl_fail(run, ESP_EINVAL, "separators must be two strings");
        }
        writer.item_separator = list->items[0].str;
        writer.key_separator = list->items[1].str;
    }
    return write_value(&writer, &call->self, 0) && esp_tpl_out_value(run, &writer.out, ret);
}
