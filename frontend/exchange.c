/* One request and its answer: reference counts, waking the connection, errors in OpenAI's shape.
 *
 * Suspend and resume happen under the exchange's lock, so a connection is resumed once for each time it was
 * suspended, and never after its end. Does not know routes or what is generated.
 */
#include <stdarg.h>
#include <string.h>

#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"

struct esp_exchange *esp_exchange_create(struct esp_server *server, struct MHD_Connection *mhd)
{
    struct esp_exchange *exchange = esp_calloc(ESP_TAG_HTTP, 1, sizeof *exchange);
    if (exchange == NULL) {
        return NULL;
    }
    if (pthread_mutex_init(&exchange->lock, NULL) != 0) {
        esp_free(exchange);
        return NULL;
    }
    exchange->server = server;
    exchange->mhd = mhd;
    exchange->n_refs = 1;
    exchange->status = 200;
    exchange->content_type = "application/json";
    exchange->begin_ns = esp_clock_now(&server->clock);
    esp_buf_init(&exchange->out, ESP_TAG_HTTP, ESP_HTTP_ANSWER_BYTES_MAX);
    esp_buf_init(&exchange->body, ESP_TAG_HTTP, server->options->max_body_bytes);
    pthread_mutex_lock(&server->lock);
    server->n_alive++;
    pthread_mutex_unlock(&server->lock);
    return exchange;
}

void esp_exchange_ref(struct esp_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->n_refs++;
    pthread_mutex_unlock(&exchange->lock);
}

void esp_exchange_unref(struct esp_exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    pthread_mutex_lock(&exchange->lock);
    int left = --exchange->n_refs;
    pthread_mutex_unlock(&exchange->lock);
    if (left > 0) {
        return;
    }
    struct esp_server *server = exchange->server;
    esp_generation_destroy(exchange->gen);
    esp_buf_finish(&exchange->out);
    esp_buf_finish(&exchange->body);
    esp_free(exchange->tenant);
    pthread_mutex_destroy(&exchange->lock);
    esp_free(exchange);
    pthread_mutex_lock(&server->lock);
    server->n_alive--;
    pthread_mutex_unlock(&server->lock);
}

/* Under the lock: lets a suspended connection go on. */
static void wake(struct esp_exchange *exchange)
{
    if (exchange->suspended && exchange->mhd != NULL) {
        exchange->suspended = false;
        MHD_resume_connection(exchange->mhd);
    }
}

void esp_exchange_ready(struct esp_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->ready = true;
    exchange->last_out_ns = esp_clock_now(&exchange->server->clock);
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

/* Under the lock: drops what was sent when that is cheap. */
static void compact(struct esp_exchange *exchange)
{
    struct esp_buf *out = &exchange->out;
    if (exchange->out_at > 0 && exchange->out_at >= out->n / 2) {
        memmove(out->data, out->data + exchange->out_at, out->n - exchange->out_at);
        out->n -= exchange->out_at;
        exchange->out_at = 0;
    }
}

bool esp_exchange_send(struct esp_exchange *exchange, const char *data, size_t n_bytes)
{
    pthread_mutex_lock(&exchange->lock);
    bool fine = !exchange->gone && !exchange->broken && !exchange->ended;
    if (fine) {
        compact(exchange);
        size_t waiting = exchange->out.n - exchange->out_at;
        fine = waiting + n_bytes <= ESP_HTTP_BACKLOG_BYTES_MAX && esp_buf_add(&exchange->out, data, n_bytes);
        exchange->broken = !fine;
        exchange->last_out_ns = esp_clock_now(&exchange->server->clock);
        wake(exchange);
    }
    pthread_mutex_unlock(&exchange->lock);
    return fine;
}

void esp_exchange_end(struct esp_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    exchange->ended = true;
    wake(exchange);
    pthread_mutex_unlock(&exchange->lock);
}

void esp_exchange_hang_up(struct esp_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    struct esp_generation *gen = exchange->gen;
    if (gen != NULL) {
        exchange->gone = true;
        wake(exchange);
    }
    pthread_mutex_unlock(&exchange->lock);
    if (gen != NULL) {
        esp_generation_cancel(gen);
    }
}

static const char *anthropic_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

static const char *openai_type(int status)
{
    switch (status) {
    case 401: return "authentication_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

/* The Messages API has no field for the place: it goes in front of the message. */
static void anthropic_json(struct esp_buf *buf, const struct esp_exchange *exchange, int status, const char *param,
                           const char *message)
{
    char text[1536];
    bool placed = param != NULL && param[0] != '\0' && strncmp(message, param, strlen(param)) != 0;
    snprintf(text, sizeof text, "%s%s%s", placed ? param : "", placed ? ": " : "", message);
    esp_buf_printf(buf, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", anthropic_type(status));
    esp_jsontext_quote_str(buf, text);
    esp_buf_str(buf, "},\"request_id\":");
    esp_jsontext_quote_str(buf, exchange->request_id);
    esp_buf_char(buf, '}');
}

void esp_error_json(struct esp_buf *buf, const struct esp_exchange *exchange, int status, const char *param,
                    const char *code, const char *message)
{
    if (exchange != NULL && exchange->anthropic) {
        anthropic_json(buf, exchange, status, param, message);
        return;
    }
    esp_buf_str(buf, "{\"error\":{\"message\":");
    esp_jsontext_quote_str(buf, message);
    esp_buf_printf(buf, ",\"type\":\"%s\",\"param\":", openai_type(status));
    if (param == NULL || param[0] == '\0') {
        esp_buf_str(buf, "null");
    } else {
        esp_jsontext_quote_str(buf, param);
    }
    esp_buf_str(buf, ",\"code\":");
    if (code == NULL) {
        esp_buf_str(buf, "null");
    } else {
        esp_jsontext_quote_str(buf, code);
    }
    esp_buf_str(buf, "}}");
}

void esp_exchange_fail(struct esp_exchange *exchange, int status, const char *param, const char *code, const char *fmt,
                       ...)
{
    char message[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    exchange->status = status;
    exchange->stream = false;
    exchange->content_type = "application/json";
    if (status == 429 || status == 503) {
        exchange->retry_after_ms = status == 429 ? 500 : 1000;
    }
    esp_buf_clear(&exchange->out);
    exchange->out_at = 0;
    esp_error_json(&exchange->out, exchange, status, param, code, message);
}

static int status_of(esp_status code)
{
    switch (code) {
    case ESP_EINVAL:
    case ESP_EUNSUPPORTED:
    case ESP_ELIMIT:
    case ESP_EUNSAT: return 400;
    case ESP_ENOTFOUND: return 404;
    case ESP_EBUSY: return 429;
    case ESP_ESTATE: return 503;
    default: return 500;
    }
}

static const char *code_of(esp_status code)
{
    switch (code) {
    case ESP_EINVAL: return "invalid_value";
    case ESP_EUNSUPPORTED: return "unsupported";
    case ESP_ELIMIT: return "limit_exceeded";
    case ESP_EUNSAT: return "unsatisfiable";
    case ESP_ENOTFOUND: return "not_found";
    case ESP_EBUSY: return "queue_full";
    case ESP_ESTATE: return "unavailable";
    default: return "internal_error";
    }
}

void esp_exchange_fail_err(struct esp_exchange *exchange, const struct esp_err *err, const char *fallback_param)
{
    const char *param = err->place[0] != '\0' ? err->place : fallback_param;
    esp_exchange_fail(exchange, status_of(err->code), param, code_of(err->code), "%s%s%s", err->message,
                      err->hint[0] != '\0' ? "; " : "", err->hint);
}

json_t *esp_exchange_json(struct esp_exchange *exchange)
{
    struct esp_err err = {0};
    if (exchange->body.n == 0) {
        esp_exchange_fail(exchange, 400, NULL, "invalid_json", "the request needs a JSON body");
        return NULL;
    }
    json_t *value = esp_jsontext_parse(exchange->body.data, exchange->body.n, &err);
    if (value == NULL) {
        esp_exchange_fail(exchange, 400, NULL, "invalid_json", "%s", err.message);
    }
    return value;
}

esp_engine *esp_exchange_engine(const struct esp_exchange *exchange)
{
    struct esp_server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    esp_engine *engine = server->engine;
    pthread_mutex_unlock(&server->lock);
    return engine;
}

const struct esp_chat *esp_exchange_chat(const struct esp_exchange *exchange)
{
    struct esp_server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    const struct esp_chat *chat = server->chat;
    pthread_mutex_unlock(&server->lock);
    return chat;
}
