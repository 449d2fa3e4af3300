/* The fields of a request that concern the cache, but for the marks. See cache_fields.h. */
#include "frontend/cache_fields.h"

#include <string.h>

#include "runtime/base/json.h"

#define NAME_BYTES_MAX 1024u

static esp_status bad(struct esp_err *err, const char *param, const char *message)
{
    esp_fail(err, ESP_EINVAL, "'%s' %s", param, message);
    esp_err_place(err, "%s", param);
    return ESP_EINVAL;
}

static esp_status parse_name(const json_t *request, const char *field, struct esp_arena *arena, const char **ret_name,
                             size_t *ret_n_bytes, struct esp_err *err)
{
    const char *name = NULL;
    esp_status status = esp_json_string(request, field, &name, err);
    if (status != ESP_OK || name == NULL) {
        return status;
    }
    size_t n_bytes = json_string_length(json_object_get(request, field));
    if (n_bytes == 0 || n_bytes > NAME_BYTES_MAX) {
        return bad(err, field, "must have from 1 to 1024 bytes");
    }
    *ret_name = esp_arena_strndup(arena, name, n_bytes);
    *ret_n_bytes = n_bytes;
    return *ret_name == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
}

esp_status esp_cache_ttl(const json_t *ttl, int64_t *ret_ns)
{
    static const struct {
        char unit;
        int64_t s;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    int64_t n = 0, s = 0;
    if (ttl == NULL || json_is_null(ttl)) {
        return ESP_OK;
    }
    if (json_is_integer(ttl)) {
        n = json_integer_value(ttl);
        s = 1;
    } else if (json_is_string(ttl)) {
        const char *at = json_string_value(ttl);
        for (int digits = 0; *at >= '0' && *at <= '9' && digits < 6; at++, digits++) {
            n = n * 10 + (*at - '0');
        }
        for (size_t idx = 0; idx < sizeof units / sizeof units[0]; idx++) {
            s = at[0] == units[idx].unit && at[1] == '\0' ? units[idx].s : s;
        }
    }
    if (n < 1 || s < 1 || n > ESP_CACHE_TTL_S_MAX / s) {
        return ESP_EINVAL;
    }
    *ret_ns = n * s * 1000000000;
    return ESP_OK;
}

static esp_status parse_options(const json_t *request, struct esp_cache_fields *fields, struct esp_err *err)
{
    const json_t *options = json_object_get(request, "prompt_cache_options");
    if (options == NULL || json_is_null(options)) {
        return ESP_OK;
    }
    if (!json_is_object(options)) {
        return bad(err, "prompt_cache_options", "must be an object");
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)options, key, value)
    {
        if (strcmp(key, "mode") != 0 && strcmp(key, "ttl") != 0) {
            return bad(err, "prompt_cache_options", "has the fields 'mode' and 'ttl' only");
        }
    }
    const json_t *mode = json_object_get(options, "mode");
    const char *name = json_is_string(mode) ? json_string_value(mode) : mode == NULL ? "implicit" : "";
    fields->pins_all = strcmp(name, "implicit") == 0 && json_object_size(options) > 0;
    if (!fields->pins_all && strcmp(name, "explicit") != 0 && json_object_size(options) > 0) {
        return bad(err, "prompt_cache_options.mode", "must be \"implicit\" or \"explicit\"");
    }
    if (esp_cache_ttl(json_object_get(options, "ttl"), &fields->ttl_ns) != ESP_OK) {
        return bad(err, "prompt_cache_options.ttl", ESP_CACHE_TTL_FORM);
    }
    return ESP_OK;
}

esp_status esp_cache_fields_parse(const json_t *request, struct esp_arena *arena, struct esp_cache_fields *ret_fields,
                                  struct esp_err *err)
{
    struct esp_cache_fields *fields = ret_fields;
    *fields = (struct esp_cache_fields){.ttl_ns = ESP_CACHE_TTL_NS};
    esp_status status = parse_name(request, "prompt_cache_key", arena, &fields->key, &fields->key_bytes, err);
    if (status == ESP_OK) {
        status = parse_name(request, "session_id", arena, &fields->session, &fields->session_bytes, err);
    }
    const json_t *done = json_object_get(request, "done");
    if (status == ESP_OK && done != NULL && !json_is_null(done)) {
        if (!json_is_boolean(done)) {
            return bad(err, "done", "must be true or false");
        }
        fields->done = json_is_true(done) ? ESP_DONE_TRUE : ESP_DONE_FALSE;
    }
    return status == ESP_OK ? parse_options(request, fields, err) : status;
}
