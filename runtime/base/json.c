/* jansson with limits and errors that name the place. */
#include "runtime/base/json.h"

#include <math.h>
#include <string.h>

#define DEPTH_MAX 64

/* jansson's own depth limit is 2048; count nesting first, outside strings, so that the limit is ours. */
static bool depth_ok(const char *text, size_t n_bytes)
{
    int depth = 0;
    bool in_string = false;
    for (size_t at = 0; at < n_bytes; at++) {
        char c = text[at];
        if (in_string) {
            if (c == '\\') {
                at++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > DEPTH_MAX) {
                return false;
            }
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return true;
}

json_t *esp_json_parse(const char *text, size_t n_bytes, struct esp_err *err)
{
    if (!depth_ok(text, n_bytes)) {
        esp_fail(err, ESP_EINVAL, "JSON nested deeper than %d levels", DEPTH_MAX);
        return NULL;
    }
    json_error_t error;
    json_t *value = json_loadb(text, n_bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (value == NULL) {
        esp_fail(err, ESP_EINVAL, "invalid JSON at line %d column %d: %s", error.line, error.column, error.text);
        if (err != NULL && error.position > 0) {
            err->offset = (uint64_t)error.position;
        }
    }
    return value;
}

const char *esp_json_type_name(const json_t *value)
{
    if (value == NULL) {
        return "missing";
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "object";
    case JSON_ARRAY: return "array";
    case JSON_STRING: return "string";
    case JSON_INTEGER: return "integer";
    case JSON_REAL: return "number";
    case JSON_NULL: return "null";
    default: return "boolean";
    }
}

static esp_status wrong_type(struct esp_err *err, const char *name, const char *want, const json_t *value)
{
    esp_fail(err, ESP_EINVAL, "'%s' must be %s, not %s", name, want, esp_json_type_name(value));
    esp_err_place(err, "%s", name);
    return ESP_EINVAL;
}

esp_status esp_json_number(const json_t *obj, const char *name, double min, double max, double fallback,
                           double *ret, struct esp_err *err)
{
    const json_t *value = json_object_get(obj, name);
    if (value == NULL || json_is_null(value)) {
        *ret = fallback;
        return ESP_OK;
    }
    if (!json_is_number(value)) {
        return wrong_type(err, name, "a number", value);
    }
    double number = json_number_value(value);
    if (!(number >= min && number <= max)) {
        esp_fail(err, ESP_EINVAL, "'%s' must be from %g to %g, not %g", name, min, max, number);
        esp_err_place(err, "%s", name);
        return ESP_EINVAL;
    }
    *ret = number;
    return ESP_OK;
}

esp_status esp_json_int(const json_t *obj, const char *name, int64_t min, int64_t max, int64_t fallback,
                        int64_t *ret, struct esp_err *err)
{
    const json_t *value = json_object_get(obj, name);
    if (value == NULL || json_is_null(value)) {
        *ret = fallback;
        return ESP_OK;
    }
    int64_t number = 0;
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (json_is_real(value) && floor(json_real_value(value)) == json_real_value(value) &&
               fabs(json_real_value(value)) < 0x1p53) {
        number = (int64_t)json_real_value(value);
    } else {
        return wrong_type(err, name, "an integer", value);
    }
    if (number < min || number > max) {
        esp_fail(err, ESP_EINVAL, "'%s' must be from %lld to %lld, not %lld", name, (long long)min,
                 (long long)max, (long long)number);
        esp_err_place(err, "%s", name);
        return ESP_EINVAL;
    }
    *ret = number;
    return ESP_OK;
}

esp_status esp_json_bool(const json_t *obj, const char *name, bool fallback, bool *ret, struct esp_err *err)
{
    const json_t *value = json_object_get(obj, name);
    if (value == NULL || json_is_null(value)) {
        *ret = fallback;
        return ESP_OK;
    }
    if (!json_is_boolean(value)) {
        return wrong_type(err, name, "true or false", value);
    }
    *ret = json_is_true(value);
    return ESP_OK;
}

esp_status esp_json_string(const json_t *obj, const char *name, const char **ret, struct esp_err *err)
{
    const json_t *value = json_object_get(obj, name);
    if (value == NULL || json_is_null(value)) {
        *ret = NULL;
        return ESP_OK;
    }
    if (!json_is_string(value)) {
        return wrong_type(err, name, "a string", value);
    }
    *ret = json_string_value(value);
    return ESP_OK;
}
