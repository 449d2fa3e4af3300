/* POST /v1/embeddings: texts or token ids to vectors of length 1.
 *
 * The text of control tokens stays text here; BOS comes first where the model adds one. `dimensions` keeps the first
 * numbers of a vector and gives the rest length 1 again. Each input runs alone, outside the cache.
 * Thread: a work thread.
 */
#include <math.h>
#include <string.h>

#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"
#include "runtime/base/json.h"

#define INPUTS_MAX 2048u

struct embedder {
    struct esp_exchange *exchange;
    struct esp_engine_info info;
    enum esp_pooling pooling;
    bool base64;
    uint32_t n_dims;
    uint64_t n_tokens; /* of all inputs so far */
    float *vector;     /* [n_embd] */
    struct esp_buf ids; /* of uint32_t */
    struct esp_err err;
};

static esp_status bad(struct embedder *e, const char *param, const char *message)
{
    esp_fail(&e->err, ESP_EINVAL, "%s", message);
    esp_err_place(&e->err, "%s", param);
    return ESP_EINVAL;
}

static esp_status read_fields(struct embedder *e, const json_t *request)
{
    const char *format = NULL, *pooling = NULL;
    int64_t n_dims = 0;
    esp_status status = esp_json_string(request, "encoding_format", &format, &e->err);
    if (status == ESP_OK) {
        status = esp_json_string(request, "pooling", &pooling, &e->err);
    }
    if (status == ESP_OK) {
        status = esp_json_int(request, "dimensions", 1, e->info.n_embd, e->info.n_embd, &n_dims, &e->err);
    }
    if (status != ESP_OK) {
        return status;
    }
    if (format != NULL && strcmp(format, "float") != 0 && strcmp(format, "base64") != 0) {
        return bad(e, "encoding_format", "'encoding_format' must be float or base64");
    }
    if (pooling != NULL && strcmp(pooling, "mean") != 0 && strcmp(pooling, "last") != 0) {
        return bad(e, "pooling", "'pooling' must be mean or last");
    }
    e->base64 = format != NULL && strcmp(format, "base64") == 0;
    e->pooling = pooling != NULL && strcmp(pooling, "last") == 0 ? ESP_POOL_LAST : ESP_POOL_MEAN;
    e->n_dims = (uint32_t)n_dims;
    return ESP_OK;
}

static esp_status take_text(struct embedder *e, const json_t *text)
{
    const esp_vocab *vocab = esp_engine_vocab(esp_exchange_engine(e->exchange));
    struct esp_span span = {json_string_value(text), json_string_length(text), false};
    uint32_t bos = esp_vocab_bos(vocab);
    size_t n_bos = esp_vocab_adds_bos(vocab) && bos != ESP_TOKEN_NONE;
    size_t cap = span.n_bytes / 3 + 16;
    for (;;) {
        esp_buf_clear(&e->ids);
        uint32_t *ids = esp_buf_reserve(&e->ids, (cap + n_bos) * sizeof *ids);
        if (ids == NULL) {
            return esp_fail(&e->err, ESP_ELIMIT, "the input has too many tokens");
        }
        int64_t n = esp_tokenize(vocab, &span, 1, ids + n_bos, cap, &e->err);
        if (n < 0) {
            return (esp_status)n;
        }
        if ((size_t)n <= cap) {
            ids[0] = n_bos > 0 ? bos : ids[0];
            e->ids.n = ((size_t)n + n_bos) * sizeof *ids;
            return span.n_bytes > 0 ? ESP_OK : bad(e, "input", "an input has no text");
        }
        cap = (size_t)n;
    }
}

static esp_status take_ids(struct embedder *e, const json_t *array)
{
    esp_buf_clear(&e->ids);
    for (size_t idx = 0; idx < json_array_size(array); idx++) {
        const json_t *value = json_array_get(array, idx);
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= (json_int_t)e->info.n_vocab) {
            return bad(e, "input", "an input of ids must be an array of token ids of the vocabulary");
        }
        uint32_t token = (uint32_t)id;
        esp_buf_add(&e->ids, &token, sizeof token);
    }
    if (e->ids.failed) {
        return esp_fail(&e->err, ESP_ELIMIT, "the input has too many tokens");
    }
    return e->ids.n > 0 ? ESP_OK : bad(e, "input", "an input has no tokens");
}

/* The first n_dims numbers, of length 1 together. A vector of zeros stays one. */
static void normalise(float *vector, uint32_t n_dims)
{
    double sum = 0;
    for (uint32_t idx = 0; idx < n_dims; idx++) {
        sum += (double)vector[idx] * (double)vector[idx];
    }
    double scale = sum > 0 ? 1.0 / sqrt(sum) : 0;
    for (uint32_t idx = 0; idx < n_dims; idx++) {
        vector[idx] = (float)(vector[idx] * scale);
    }
}

/* Base64 of the vector as little-endian f32. */
static void write_base64(struct esp_buf *out, const float *vector, uint32_t n_dims)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)vector;
    size_t n = (size_t)n_dims * sizeof *vector;
    esp_buf_char(out, '"');
    for (size_t at = 0; at < n; at += 3) {
        size_t left = n - at;
        uint32_t bits = (uint32_t)bytes[at] << 16 | (left > 1 ? (uint32_t)bytes[at + 1] << 8 : 0) |
                        (left > 2 ? bytes[at + 2] : 0);
        char quad[4] = {digits[bits >> 18], digits[bits >> 12 & 63], left > 1 ? digits[bits >> 6 & 63] : '=',
                        left > 2 ? digits[bits & 63] : '='};
        esp_buf_add(out, quad, sizeof quad);
    }
    esp_buf_char(out, '"');
}

static esp_status add_one(struct embedder *e, const json_t *input, size_t idx)
{
    struct esp_buf *out = &e->exchange->out;
    esp_status status = json_is_string(input) ? take_text(e, input) : take_ids(e, input);
    const uint32_t *ids = (const uint32_t *)(const void *)e->ids.data;
    uint32_t n_ids = (uint32_t)(e->ids.n / sizeof *ids);
    if (status == ESP_OK) {
        status = esp_embed(esp_exchange_engine(e->exchange), ids, n_ids, e->pooling, e->vector, &e->err);
    }
    if (status != ESP_OK) {
        return status;
    }
    e->n_tokens += n_ids;
    normalise(e->vector, e->n_dims);
    esp_buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", idx > 0 ? "," : "", idx);
    if (e->base64) {
        write_base64(out, e->vector, e->n_dims);
    } else {
        for (uint32_t dim = 0; dim < e->n_dims; dim++) {
            esp_buf_printf(out, "%c%.9g", dim > 0 ? ',' : '[', (double)e->vector[dim]);
        }
        esp_buf_char(out, ']');
    }
    esp_buf_char(out, '}');
    return out->failed ? esp_fail(&e->err, ESP_ELIMIT, "the answer does not fit its limit") : ESP_OK;
}

static bool is_one(const json_t *input)
{
    return json_is_string(input) || (json_is_array(input) && json_is_integer(json_array_get(input, 0)));
}

static esp_status add_all(struct embedder *e, const json_t *input)
{
    struct esp_exchange *exchange = e->exchange;
    if (is_one(input)) {
        return add_one(e, input, 0);
    }
    size_t n = json_array_size(input);
    if (n == 0 || n > INPUTS_MAX) {
        return bad(e, "input", "'input' must be a string, an array of token ids, or an array of up to 2048 of either");
    }
    esp_status status = ESP_OK;
    for (size_t idx = 0; idx < n && status == ESP_OK; idx++) {
        const json_t *one = json_array_get(input, idx);
        if (!json_is_string(one) && !json_is_array(one)) {
            status = bad(e, "input", "every input must be a string or an array of token ids");
        } else if (esp_watch_hung_up(exchange->server, exchange)) {
            status = esp_fail(&e->err, ESP_ESTATE, "the client is gone");
        } else {
            status = add_one(e, one, idx);
        }
    }
    return status;
}

static void embed(struct embedder *e, const json_t *request, struct esp_buf *warnings)
{
    struct esp_exchange *exchange = e->exchange;
    struct esp_request_source source = {.json = request,
                                        .api = ESP_API_EMBEDDINGS,
                                        .strict_fields = exchange->server->options->strict_fields};
    esp_status status = esp_request_fields(&source, warnings, &e->err);
    if (status == ESP_OK) {
        status = read_fields(e, request);
    }
    esp_buf_str(&exchange->out, "{\"object\":\"list\",\"data\":[");
    if (status == ESP_OK) {
        status = add_all(e, json_object_get(request, "input"));
    }
    if (status == ESP_ELIMIT) {
        esp_exchange_fail(exchange, 400, "input", "context_length_exceeded", "%s", e->err.message);
    } else if (status != ESP_OK) {
        esp_exchange_fail_err(exchange, &e->err, "input");
    } else {
        esp_buf_str(&exchange->out, "],\"model\":");
        esp_jsontext_quote_str(&exchange->out, exchange->server->model_name);
        esp_buf_printf(&exchange->out, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}",
                       (unsigned long long)e->n_tokens, (unsigned long long)e->n_tokens);
        if (warnings->n > 0) {
            esp_buf_printf(&exchange->out, ",\"warnings\":[%s]", warnings->data);
        }
        esp_buf_char(&exchange->out, '}');
    }
}

void esp_api_embeddings(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    struct embedder e = {.exchange = exchange};
    struct esp_buf warnings;
    esp_buf_init(&warnings, ESP_TAG_HTTP, 256u * 1024u);
    esp_buf_init(&e.ids, ESP_TAG_HTTP, 64u * 1024u * 1024u);
    esp_engine_get_info(esp_exchange_engine(exchange), &e.info);
    e.vector = esp_calloc(ESP_TAG_HTTP, e.info.n_embd, sizeof *e.vector);
    if (e.vector == NULL) {
        esp_exchange_fail(exchange, 500, NULL, "internal_error", "out of memory");
    } else if (esp_model_fits(exchange, request)) {
        embed(&e, request, &warnings);
    }
    esp_free(e.vector);
    esp_buf_finish(&e.ids);
    esp_buf_finish(&warnings);
    json_decref(request);
}
