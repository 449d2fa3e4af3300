/* Sampling, stop strings, logprobs, counts: the table of ranges in code. */
#include "frontend/request.h"

#include <math.h>
#include <string.h>

#include "runtime/base/json.h"

static esp_status bad(struct esp_err *err, const char *param, const char *message)
{
    esp_fail(err, ESP_EINVAL, "%s", message);
    esp_err_place(err, "%s", param);
    return ESP_EINVAL;
}

static const json_t *given(const json_t *request, const char *name)
{
    const json_t *value = json_object_get(request, name);
    return json_is_null(value) ? NULL : value;
}

/* One row a number that goes straight to the sampler. */
static const struct {
    const char *name;
    double min, max, fallback;
    size_t at;
} numbers[] = {
    {"temperature", 0, 2, 1, offsetof(struct esp_sampling, temperature)},
    {"top_p", 0, 1, 1, offsetof(struct esp_sampling, top_p)},
    {"min_p", 0, 1, 0, offsetof(struct esp_sampling, min_p)},
    {"presence_penalty", -2, 2, 0, offsetof(struct esp_sampling, presence_penalty)},
    {"frequency_penalty", -2, 2, 0, offsetof(struct esp_sampling, frequency_penalty)},
    {"repetition_penalty", 0, 2, 1, offsetof(struct esp_sampling, repetition_penalty)},
};

static esp_status parse_numbers(const struct esp_request_source *source, struct esp_sampling *sampling,
                                struct esp_err *err)
{
    for (size_t idx = 0; idx < sizeof numbers / sizeof numbers[0]; idx++) {
        double value = 0;
        esp_status status = esp_json_number(source->json, numbers[idx].name, numbers[idx].min, numbers[idx].max,
                                            numbers[idx].fallback, &value, err);
        if (status != ESP_OK) {
            return status;
        }
        float single = (float)value;
        memcpy((char *)sampling + numbers[idx].at, &single, sizeof single);
    }
    if (sampling->repetition_penalty < 0.01f) {
        return bad(err, "repetition_penalty", "'repetition_penalty' must be from 0.01 to 2");
    }
    int64_t top_k = 0, seed = 0;
    esp_status status = esp_json_int(source->json, "top_k", -1, UINT32_MAX, 0, &top_k, err);
    if (status == ESP_OK) {
        status = esp_json_int(source->json, "seed", INT64_MIN, INT64_MAX, (int64_t)source->random_seed, &seed, err);
    }
    sampling->top_k = top_k < 0 ? 0 : (uint32_t)top_k;
    sampling->seed = (uint64_t)seed;
    return status;
}

static esp_status parse_counts(const struct esp_request_source *source, struct esp_params *params, struct esp_err *err)
{
    bool chat = source->api == ESP_API_CHAT;
    const char *name =
        chat && given(source->json, "max_completion_tokens") != NULL ? "max_completion_tokens" : "max_tokens";
    int64_t n_max = 0, other = 0, n = 0, best_of = 0;
    /* Completions end after 16 tokens unless told otherwise, as their clients expect. */
    esp_status status = esp_json_int(source->json, name, 1, INT64_MAX, chat ? UINT32_MAX : 16, &n_max, err);
    if (status == ESP_OK && chat) {
        status = esp_json_int(source->json, "max_tokens", 1, INT64_MAX, n_max, &other, err);
        if (status == ESP_OK && other != n_max) {
            return bad(err, "max_tokens", "'max_tokens' and 'max_completion_tokens' differ: give one");
        }
    }
    if (status == ESP_OK) {
        status = esp_json_int(source->json, "n", 1, 64, 1, &n, err);
    }
    if (status == ESP_OK && !chat) {
        status = esp_json_int(source->json, "best_of", 1, 64, n, &best_of, err);
        if (status == ESP_OK && best_of != n) {
            return bad(err, "best_of", "'best_of' other than 'n' is not supported");
        }
    }
    params->n_max = n_max > UINT32_MAX ? UINT32_MAX : (uint32_t)n_max;
    params->n = (uint32_t)n;
    return status;
}

/* Chat: logprobs true and top_logprobs; completions: logprobs is the number. */
static esp_status parse_logprobs(const struct esp_request_source *source, struct esp_sampling *sampling,
                                 struct esp_err *err)
{
    int64_t n_top = 0;
    esp_status status;
    if (source->api == ESP_API_COMPLETIONS) {
        const json_t *value = given(source->json, "logprobs");
        if (json_is_false(value)) {
            return ESP_OK; /* some clients send the chat form of "no" */
        }
        status = esp_json_int(source->json, "logprobs", 0, ESP_TOP_LOGPROBS_MAX, 0, &n_top, err);
        sampling->logprobs = value != NULL;
    } else {
        status = esp_json_bool(source->json, "logprobs", false, &sampling->logprobs, err);
        if (status == ESP_OK) {
            status = esp_json_int(source->json, "top_logprobs", 0, ESP_TOP_LOGPROBS_MAX, 0, &n_top, err);
        }
        if (status == ESP_OK && given(source->json, "top_logprobs") != NULL && !sampling->logprobs) {
            return bad(err, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
        }
    }
    sampling->n_top_logprobs = (uint32_t)n_top;
    return status;
}

static esp_status add_stop(struct esp_params *params, const json_t *value, struct esp_arena *arena, struct esp_err *err)
{
    if (!json_is_string(value)) {
        return bad(err, "stop", "'stop' must be a string or an array of strings");
    }
    const char *text = json_string_value(value);
    size_t n_bytes = json_string_length(value);
    if (n_bytes == 0 || n_bytes > ESP_STOP_BYTES_MAX || memchr(text, '\0', n_bytes) != NULL) {
        esp_fail(err, ESP_EINVAL, "a stop string must have from 1 to %u bytes and no NUL", ESP_STOP_BYTES_MAX);
        esp_err_place(err, "stop");
        return ESP_EINVAL;
    }
    char *copy = esp_arena_strndup(arena, text, n_bytes);
    if (copy == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    params->stops[params->n_stops++] = copy;
    return ESP_OK;
}

static esp_status parse_stop(const struct esp_request_source *source, struct esp_arena *arena,
                             struct esp_params *params, struct esp_err *err)
{
    const json_t *stop = given(source->json, "stop");
    if (stop == NULL) {
        return ESP_OK;
    }
    if (!json_is_array(stop)) {
        return add_stop(params, stop, arena, err);
    }
    if (json_array_size(stop) > ESP_STOPS_MAX) {
        esp_fail(err, ESP_EINVAL, "'stop' takes at most %d strings", ESP_STOPS_MAX);
        esp_err_place(err, "stop");
        return ESP_EINVAL;
    }
    esp_status status = ESP_OK;
    for (size_t idx = 0; idx < json_array_size(stop) && status == ESP_OK; idx++) {
        status = add_stop(params, json_array_get(stop, idx), arena, err);
    }
    return status;
}

/* A token id as a JSON key: digits only. */
static bool parse_id(const char *text, uint32_t n_vocab, uint32_t *ret_id)
{
    uint64_t id = 0;
    size_t n = strlen(text);
    for (size_t idx = 0; idx < n; idx++) {
        if (text[idx] < '0' || text[idx] > '9' || idx >= 10) {
            return false;
        }
        id = id * 10 + (uint64_t)(text[idx] - '0');
    }
    *ret_id = (uint32_t)id;
    return n > 0 && id < n_vocab;
}

static esp_status parse_bias(const struct esp_request_source *source, struct esp_arena *arena,
                             struct esp_sampling *sampling, struct esp_err *err)
{
    json_t *map = json_object_get(source->json, "logit_bias");
    if (map == NULL || json_is_null(map)) {
        return ESP_OK;
    }
    if (!json_is_object(map) || json_object_size(map) > ESP_BIAS_MAX) {
        return bad(err, "logit_bias", "'logit_bias' must be an object of at most 1024 token ids");
    }
    size_t n = json_object_size(map);
    uint32_t *ids = esp_arena_alloc(arena, n + 1, sizeof *ids);
    float *values = esp_arena_alloc(arena, n + 1, sizeof *values);
    if (ids == NULL || values == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    const char *key;
    json_t *value;
    json_object_foreach(map, key, value)
    {
        double number = json_number_value(value);
        if (!parse_id(key, source->n_vocab, &ids[sampling->n_bias])) {
            return bad(err, "logit_bias", "the keys of 'logit_bias' must be token ids of the vocabulary");
        }
        if (!json_is_number(value) || !(number >= -100 && number <= 100)) {
            return bad(err, "logit_bias", "the values of 'logit_bias' must be numbers from -100 to 100");
        }
        values[sampling->n_bias++] = (float)number;
    }
    sampling->bias_ids = ids;
    sampling->bias = values;
    return ESP_OK;
}

static esp_status parse_stream(const struct esp_request_source *source, struct esp_params *params, struct esp_err *err)
{
    esp_status status = esp_json_bool(source->json, "stream", false, &params->stream, err);
    const json_t *options = given(source->json, "stream_options");
    if (status != ESP_OK || options == NULL) {
        return status;
    }
    if (!json_is_object(options)) {
        return bad(err, "stream_options", "'stream_options' must be an object");
    }
    if (!params->stream) {
        return bad(err, "stream_options", "'stream_options' needs 'stream': true");
    }
    status = esp_json_bool(options, "include_usage", false, &params->include_usage, err);
    if (status != ESP_OK) {
        esp_err_place(err, "stream_options.include_usage");
    }
    return status;
}

static esp_status parse_salt(const struct esp_request_source *source, struct esp_arena *arena,
                             struct esp_params *params, struct esp_err *err)
{
    const char *salt = NULL;
    esp_status status = esp_json_string(source->json, "cache_salt", &salt, err);
    if (status != ESP_OK || salt == NULL) {
        return status;
    }
    size_t n_bytes = json_string_length(json_object_get(source->json, "cache_salt"));
    if (n_bytes == 0 || n_bytes > ESP_SALT_BYTES_MAX) {
        return bad(err, "cache_salt", "'cache_salt' must have from 1 to 1024 bytes");
    }
    params->cache_salt = esp_arena_strndup(arena, salt, n_bytes);
    params->cache_salt_bytes = n_bytes;
    return params->cache_salt == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
}

static esp_status parse_rest(const struct esp_request_source *source, struct esp_params *params, struct esp_err *err)
{
    esp_status status = esp_json_bool(source->json, "ignore_eos", false, &params->ignore_end, err);
    if (status == ESP_OK) {
        status = esp_json_bool(source->json, "choice_scores", false, &params->choice_scores, err);
    }
    if (status == ESP_OK && source->api == ESP_API_COMPLETIONS) {
        status = esp_json_bool(source->json, "echo", false, &params->echo, err);
    }
    if (status == ESP_OK && params->echo && params->sampling.logprobs) {
        return bad(err, "echo", "'echo' together with 'logprobs' is not supported");
    }
    if (status == ESP_OK && params->ignore_end && params->constraint.kind != NULL) {
        return bad(err, "ignore_eos", "'ignore_eos' cannot be used with a constrained answer");
    }
    return status;
}

esp_status esp_request_parse(const struct esp_request_source *source, struct esp_arena *arena,
                             struct esp_params *ret_params, struct esp_err *err)
{
    struct esp_params *params = ret_params;
    *params = (struct esp_params){.sampling = esp_sampling_default()};
    esp_buf_init(&params->warnings, ESP_TAG_HTTP, 256u * 1024u);
    esp_status status = parse_numbers(source, &params->sampling, err);
    if (status == ESP_OK) {
        status = parse_counts(source, params, err);
    }
    if (status == ESP_OK) {
        status = parse_logprobs(source, &params->sampling, err);
    }
    if (status == ESP_OK) {
        status = parse_stop(source, arena, params, err);
    }
    if (status == ESP_OK) {
        status = parse_bias(source, arena, &params->sampling, err);
    }
    if (status == ESP_OK) {
        status = parse_stream(source, params, err);
    }
    if (status == ESP_OK) {
        status = parse_salt(source, arena, params, err);
    }
    if (status == ESP_OK) {
        status = esp_cache_fields_parse(source->json, arena, &params->cache, err);
    }
    if (status == ESP_OK) {
        status = esp_request_order(source, arena, params, err);
    }
    if (status == ESP_OK) {
        status = esp_request_fields(source, &params->warnings, err);
    }
    if (status == ESP_OK) {
        status = esp_request_constraint(source, arena, &params->constraint, &params->warnings, err);
    }
    return status == ESP_OK ? parse_rest(source, params, err) : status;
}
