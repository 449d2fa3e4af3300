/* libmicrohttpd glue: reads requests within their limits, hands them to work threads, sends the answers.
 *
 * The access handler is called with the head, with each piece of the body, at its end, and again whenever a
 * suspended connection was woken. A refusal that is known early waits for the end of the body (and drops it), so
 * that the client reads its answer instead of a reset; only a body that is too large is answered at once.
 * Thread: the I/O threads, except start and stop.
 */
#include "frontend/http.h"

#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "frontend/generate.h"
#include "frontend/responses.h"

#define WORK_CAP 8192u

/* ---- Sending ------------------------------------------------------------------------------------ */

static ssize_t read_stream(void *ctx, uint64_t pos, char *buf, size_t room)
{
    struct esp_exchange *exchange = ctx;
    pthread_mutex_lock(&exchange->lock);
    struct esp_buf *out = &exchange->out;
    size_t n = out->n - exchange->out_at;
    ssize_t result = 0;
    if (exchange->gone || exchange->broken) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        n = n < room ? n : room;
        memcpy(buf, out->data + exchange->out_at, n);
        exchange->out_at += n;
        if (exchange->out_at == out->n) {
            esp_buf_clear(out);
            exchange->out_at = 0;
        }
        result = (ssize_t)n;
    } else if (exchange->ended) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        exchange->suspended = true;
        MHD_suspend_connection(exchange->mhd);
    }
    pthread_mutex_unlock(&exchange->lock);
    return result;
}

static void free_stream(void *ctx)
{
    esp_exchange_unref(ctx);
}

static void add_headers(struct esp_exchange *exchange, struct MHD_Response *response)
{
    char number[24];
    MHD_add_response_header(response, "Content-Type", exchange->content_type);
    MHD_add_response_header(response, exchange->anthropic ? "Request-Id" : "X-Request-Id", exchange->request_id);
    if (exchange->stream) {
        MHD_add_response_header(response, "Cache-Control", "no-cache");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    if (exchange->retry_after_ms > 0) {
        snprintf(number, sizeof number, "%u", (exchange->retry_after_ms + 999) / 1000);
        MHD_add_response_header(response, "Retry-After", number);
        snprintf(number, sizeof number, "%u", exchange->retry_after_ms);
        MHD_add_response_header(response, "Retry-After-Ms", number);
    }
    if (exchange->status == 401) {
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    }
    if (exchange->allow != NULL) {
        MHD_add_response_header(response, "Allow", exchange->allow);
    }
    if (exchange->close) {
        MHD_add_response_header(response, "Connection", "close");
    }
    if (exchange->origin[0] != '\0') {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", exchange->origin);
        MHD_add_response_header(response, "Access-Control-Expose-Headers",
                                "x-request-id, request-id, retry-after, retry-after-ms");
        MHD_add_response_header(response, "Vary", "Origin");
        if (strcmp(exchange->method, "OPTIONS") == 0) {
            MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
            MHD_add_response_header(
                response, "Access-Control-Allow-Headers",
                "authorization, content-type, x-api-key, x-request-id, openai-beta, openai-organization, "
                "openai-project, idempotency-key, anthropic-version, anthropic-beta, "
                "anthropic-dangerous-direct-browser-access, x-stainless-arch, x-stainless-lang, "
                "x-stainless-os, x-stainless-package-version, x-stainless-retry-count, "
                "x-stainless-runtime, x-stainless-runtime-version, x-stainless-timeout, "
                "x-stainless-async, x-stainless-helper-method, x-stainless-poll-helper");
            MHD_add_response_header(response, "Access-Control-Max-Age", "600");
        }
    }
}

static enum MHD_Result send_answer(struct esp_exchange *exchange, struct MHD_Connection *mhd)
{
    struct MHD_Response *response;
    if (exchange->stream) {
        esp_exchange_ref(exchange);
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, exchange, free_stream);
        if (response == NULL) {
            esp_exchange_unref(exchange);
        }
    } else {
        if (exchange->out.failed) {
            bool asked = exchange->gen == NULL; /* a request whose answer can only be that large */
            esp_exchange_fail(exchange, asked ? 400 : 500, NULL, asked ? "limit_exceeded" : "internal_error",
                              "the answer does not fit its limit of %u bytes", ESP_HTTP_ANSWER_BYTES_MAX);
        }
        response = MHD_create_response_from_buffer(exchange->out.n, exchange->out.data, MHD_RESPMEM_PERSISTENT);
    }
    if (response == NULL) {
        return MHD_NO;
    }
    add_headers(exchange, response);
    enum MHD_Result result = MHD_queue_response(mhd, (unsigned)exchange->status, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- Reading ------------------------------------------------------------------------------------ */

struct head {
    size_t n_bytes;
    uint32_t n_hosts, n_lengths;
};

static enum MHD_Result add_header(void *ctx, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct head *head = ctx;
    head->n_bytes += strlen(key) + 4 + (value == NULL ? 0 : strlen(value));
    head->n_hosts += strcasecmp(key, "Host") == 0;
    head->n_lengths += strcasecmp(key, "Content-Length") == 0;
    return MHD_YES;
}

static const char *header(struct MHD_Connection *mhd, const char *name)
{
    return MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, name);
}

static bool is_request_id(const char *text)
{
    size_t n = strlen(text);
    for (size_t idx = 0; idx < n; idx++) {
        if (text[idx] < 0x21 || text[idx] > 0x7e) {
            return false;
        }
    }
    return n > 0 && n <= 128;
}

static void set_request_id(struct esp_exchange *exchange, const char *given)
{
    if (given != NULL && is_request_id(given)) {
        snprintf(exchange->request_id, sizeof exchange->request_id, "%s", given);
        return;
    }
    uint64_t bits[2] = {0};
    ssize_t n = getrandom(bits, sizeof bits, 0);
    (void)n; /* small reads do not fail */
    snprintf(exchange->request_id, sizeof exchange->request_id, "req_%016llx%016llx", (unsigned long long)bits[0],
             (unsigned long long)bits[1]);
}

/* Takes room for a body from the common budget. */
static bool reserve(struct esp_exchange *exchange, uint64_t n_bytes)
{
    struct esp_server *server = exchange->server;
    pthread_mutex_lock(&server->lock);
    bool fits = server->bodies_bytes + n_bytes <= ESP_HTTP_BODIES_BYTES_MAX;
    if (fits) {
        server->bodies_bytes += n_bytes;
        exchange->reserved_bytes += n_bytes;
    }
    pthread_mutex_unlock(&server->lock);
    return fits;
}

/* Checks what the head tells about the body. False: answer now, do not read it. */
static bool head_allows_body(struct esp_exchange *exchange, struct MHD_Connection *mhd)
{
    const char *length = header(mhd, "Content-Length");
    if (length == NULL) {
        return true;
    }
    if (header(mhd, "Transfer-Encoding") != NULL) {
        esp_exchange_fail(exchange, 400, NULL, "bad_request",
                          "a request has Content-Length or Transfer-Encoding, not both");
        return false;
    }
    uint64_t n_bytes = strtoull(length, NULL, 10);
    if (n_bytes > exchange->body.cap_bytes) {
        esp_exchange_fail(exchange, 413, NULL, "body_too_large", "the body has %llu bytes; at most %zu are taken",
                          (unsigned long long)n_bytes, exchange->body.cap_bytes);
        return false;
    }
    if (!reserve(exchange, n_bytes)) {
        esp_exchange_fail(exchange, 429, NULL, "busy", "too many large requests at this moment");
        return false;
    }
    return true;
}

static void read_head(struct esp_exchange *exchange, struct MHD_Connection *mhd, const char *url, const char *version)
{
    set_request_id(exchange, header(mhd, "X-Request-Id"));
    const char *origin = header(mhd, "Origin");
    if (origin != NULL && strlen(origin) < sizeof exchange->origin &&
        esp_route_origin_allowed(exchange->server, origin)) {
        snprintf(exchange->origin, sizeof exchange->origin, "%s", origin);
    }
    struct head head = {0};
    MHD_get_connection_values(mhd, MHD_HEADER_KIND, add_header, &head);
    /* Two lengths may be read as two requests by a proxy on the way. */
    if (head.n_lengths > 1 || head.n_hosts > 1 || (head.n_hosts == 0 && strcmp(version, "HTTP/1.1") == 0)) {
        esp_exchange_fail(exchange, 400, NULL, "bad_request", "a request has one Host and at most one Content-Length");
        exchange->refused = true;
        exchange->malformed = true;
        return;
    }
    if (head.n_bytes > ESP_HTTP_HEADER_BYTES_MAX) {
        esp_exchange_fail(exchange, 431, NULL, "headers_too_large", "the headers have more than %u bytes",
                          ESP_HTTP_HEADER_BYTES_MAX);
        exchange->refused = true;
        return;
    }
    const char *limit = MHD_lookup_connection_value(mhd, MHD_GET_ARGUMENT_KIND, "limit");
    unsigned long long n_limit = limit == NULL ? 0 : strtoull(limit, NULL, 10);
    exchange->limit = n_limit > 1000000 ? 1000000 : (uint32_t)n_limit;
    if (strlen(url) >= sizeof exchange->path) {
        esp_exchange_fail(exchange, 404, NULL, "not_found", "no such route");
        exchange->refused = true;
        return;
    }
    esp_route_find(exchange);
    exchange->refused = exchange->refused || exchange->route == NULL;
}

/* Answers 413 while the body is still coming, where the library takes no answer: straight to the socket. What
 * the client still sends is read and dropped for a while, so that it gets to read the answer. Under TLS the answer
 * comes at the end of the body. */
static void turn_away(struct esp_exchange *exchange, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    exchange->refused = true;
    exchange->turned_away = true;
    esp_buf_finish(&exchange->body);
    esp_exchange_fail(exchange, 413, NULL, "body_too_large", "the body is larger than the limit");
    if (info != NULL && !exchange->server->tls) {
        esp_http_raw_answer(info->connect_fd, exchange, 413, "body_too_large", "the body is larger than the limit");
        shutdown(info->connect_fd, SHUT_WR);
    }
    esp_watch_linger(exchange->server, exchange->conn);
}

/* The first call for a request. */
static enum MHD_Result begin(struct esp_server *server, struct MHD_Connection *mhd, const char *url, const char *method,
                             const char *version, void **slot)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct esp_exchange *exchange = esp_exchange_create(server, mhd);
    if (exchange == NULL || info == NULL || info->socket_context == NULL) {
        esp_exchange_unref(exchange);
        return MHD_NO;
    }
    *slot = exchange;
    exchange->conn = info->socket_context;
    snprintf(exchange->method, sizeof exchange->method, "%s", method);
    snprintf(exchange->path, sizeof exchange->path, "%s", url);
    exchange->anthropic = strncmp(url, "/v1/messages", strlen("/v1/messages")) == 0;
    pthread_mutex_lock(&server->lock);
    server->n_exchanges++;
    pthread_mutex_unlock(&server->lock);
    esp_watch_begin(server, exchange->conn, exchange);
    const char *key = header(mhd, "Authorization");
    exchange->key = key != NULL && strncasecmp(key, "Bearer ", 7) == 0 ? key + 7 : header(mhd, "X-Api-Key");
    read_head(exchange, mhd, url, version);
    exchange->key = NULL; /* borrowed from the connection */
    if (exchange->malformed) {
        exchange->close = true; /* nobody can tell where this request ends */
        return send_answer(exchange, mhd);
    }
    if (!exchange->refused && !head_allows_body(exchange, mhd)) {
        exchange->refused = true;
        if (exchange->status == 413 && header(mhd, "Expect") == NULL) {
            turn_away(exchange, mhd);
        } else if (exchange->status != 429) {
            exchange->close = true;
            return strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0 ? send_answer(exchange, mhd) : MHD_YES;
        }
    }
    return MHD_YES;
}

static enum MHD_Result take_body(struct esp_exchange *exchange, struct MHD_Connection *mhd, const char *data,
                                 size_t *n_bytes)
{
    esp_watch_received(exchange->server, exchange->conn, *n_bytes);
    exchange->read_bytes += *n_bytes;
    bool fits = exchange->read_bytes <= exchange->body.cap_bytes;
    if (fits && !exchange->refused && exchange->read_bytes > exchange->reserved_bytes) {
        fits = reserve(exchange, exchange->read_bytes - exchange->reserved_bytes);
    }
    if (fits && !exchange->refused) {
        fits = esp_buf_add(&exchange->body, data, *n_bytes);
    }
    if (!fits && !exchange->turned_away) {
        turn_away(exchange, mhd);
    }
    if (exchange->read_bytes > ESP_HTTP_LINGER_BYTES_MAX) {
        return MHD_NO;
    }
    *n_bytes = 0;
    return MHD_YES;
}

/* The whole request is here: answer it, or hand it to the work threads and suspend the connection. */
static enum MHD_Result start_work(struct esp_exchange *exchange, struct MHD_Connection *mhd)
{
    if (exchange->turned_away && !exchange->server->tls) {
        return MHD_NO;
    }
    exchange->close = exchange->close || exchange->turned_away;
    exchange->started = true;
    esp_watch_all_read(exchange->server, exchange->conn);
    enum esp_server_state state = esp_server_state_now(exchange->server);
    bool now = exchange->refused;
    if (!now && (exchange->route->flags & ESP_ROUTE_ENGINE) != 0 && state != ESP_SERVER_OK) {
        bool loading = state == ESP_SERVER_LOADING;
        esp_exchange_fail(exchange, 503, NULL, loading ? "loading" : "draining", "%s",
                          loading ? "the model is being loaded" : "the server is stopping");
        now = true;
    }
    if (!now && (exchange->route->flags & ESP_ROUTE_FAST) != 0) {
        exchange->route->run(exchange);
        now = true;
    }
    if (now) {
        return send_answer(exchange, mhd);
    }
    esp_exchange_ref(exchange);
    pthread_mutex_lock(&exchange->lock);
    bool queued = esp_queue_push(&exchange->server->work, &exchange) == ESP_OK;
    exchange->handed = queued;
    if (queued) {
        exchange->suspended = true;
        MHD_suspend_connection(mhd);
    }
    pthread_mutex_unlock(&exchange->lock);
    if (!queued) {
        esp_exchange_unref(exchange);
        esp_exchange_fail(exchange, 429, NULL, "queue_full", "too many requests are waiting");
        return send_answer(exchange, mhd);
    }
    return MHD_YES;
}

/* Woken: the answer is ready, or the client is gone. */
static enum MHD_Result woken(struct esp_exchange *exchange, struct MHD_Connection *mhd)
{
    pthread_mutex_lock(&exchange->lock);
    bool gone = exchange->gone, ready = exchange->ready;
    if (!gone && !ready) {
        exchange->suspended = true;
        MHD_suspend_connection(mhd);
    }
    pthread_mutex_unlock(&exchange->lock);
    if (gone) {
        return MHD_NO;
    }
    return ready ? send_answer(exchange, mhd) : MHD_YES;
}

enum MHD_Result esp_http_handle(void *ctx, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *data, size_t *n_bytes, void **slot)
{
    struct esp_exchange *exchange = *slot;
    if (exchange == NULL) {
        return begin(ctx, mhd, url, method, version, slot);
    }
    if (*n_bytes > 0) {
        return take_body(exchange, mhd, data, n_bytes);
    }
    return exchange->started ? woken(exchange, mhd) : start_work(exchange, mhd);
}

void esp_http_completed(void *ctx, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode code)
{
    struct esp_server *server = ctx;
    struct esp_exchange *exchange = *slot;
    if (exchange == NULL) {
        return;
    }
    *slot = NULL;
    esp_watch_end(server, exchange->conn);
    pthread_mutex_lock(&exchange->lock);
    exchange->mhd = NULL;
    exchange->gone = true;
    pthread_mutex_unlock(&exchange->lock);
    esp_exchange_hang_up(exchange);
    esp_serve_log(exchange, code == MHD_REQUEST_TERMINATED_COMPLETED_OK ? NULL : "cancelled");
    pthread_mutex_lock(&server->lock);
    server->n_exchanges--;
    server->bodies_bytes -= exchange->reserved_bytes;
    pthread_mutex_unlock(&server->lock);
    esp_exchange_unref(exchange);
}

void esp_http_connection(void *ctx, struct MHD_Connection *mhd, void **slot, enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        *slot = info == NULL ? NULL : esp_watch_open(ctx, info->connect_fd);
    } else if (*slot != NULL) {
        esp_watch_close(ctx, *slot);
        *slot = NULL;
    }
}

/* ---- Work threads ------------------------------------------------------------------------------- */

static void *work(void *ctx)
{
    struct esp_server *server = ctx;
    struct esp_exchange *exchange = NULL;
    while (esp_queue_pop(&server->work, -1, &exchange)) {
        exchange->route->run(exchange);
        if (exchange->gen == NULL || !esp_generation_owns_answer(exchange->gen)) {
            esp_exchange_ready(exchange);
        }
        esp_exchange_unref(exchange);
    }
    return NULL;
}

/* ---- Start and stop ----------------------------------------------------------------------------- */

esp_status esp_server_start(struct esp_server *server, const struct esp_options *options, struct esp_err *err)
{
    *server = (struct esp_server){.options = options, .watch_epoll = -1, .watch_wake = -1};
    server->clock = esp_clock_monotonic();
    server->created_s = (int64_t)time(NULL);
    const char *name = options->alias != NULL ? options->alias : strrchr(options->model, '/');
    name = name == NULL ? options->model : name + (options->alias == NULL);
    snprintf(server->model_name, sizeof server->model_name, "%s", name);
    char *suffix = strstr(server->model_name, ".gguf");
    if (options->alias == NULL && suffix != NULL && suffix[5] == '\0') {
        *suffix = '\0';
    }
    pthread_mutex_init(&server->lock, NULL);
    pthread_mutex_init(&server->conns_lock, NULL);
    esp_status status = options->api_key_file == NULL ? ESP_OK : esp_keys_load(server, err);
    server->store = esp_kept_create();
    if (status == ESP_OK && server->store == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    if (status == ESP_OK) {
        status = esp_queue_init(&server->work, sizeof(struct esp_exchange *), WORK_CAP);
    }
    if (status == ESP_OK) {
        status = esp_watch_start(server, err);
    }
    while (status == ESP_OK && server->n_workers < ESP_HTTP_WORK_THREADS) {
        if (pthread_create(&server->workers[server->n_workers], NULL, work, server) != 0) {
            return esp_fail(err, ESP_EIO, "cannot start the work threads");
        }
        server->n_workers++;
    }
    return status == ESP_OK ? esp_listen_start(server, err) : status;
}

esp_status esp_server_attach(struct esp_server *server, esp_engine *engine, struct esp_chat *chat, struct esp_err *err)
{
    pthread_mutex_lock(&server->lock);
    server->engine = engine;
    server->chat = chat;
    pthread_mutex_unlock(&server->lock);
    esp_status status = esp_dispatch_start(server, err);
    pthread_mutex_lock(&server->lock);
    if (status == ESP_OK && server->state == ESP_SERVER_LOADING) {
        server->state = ESP_SERVER_OK;
    }
    pthread_mutex_unlock(&server->lock);
    return status;
}

enum esp_server_state esp_server_state_now(struct esp_server *server)
{
    pthread_mutex_lock(&server->lock);
    enum esp_server_state state = server->state;
    pthread_mutex_unlock(&server->lock);
    return state;
}

/* Waits until no exchange is in hand. */
static void wait_for_exchanges(struct esp_server *server, int stop_fd, int64_t limit_ns)
{
    int64_t until_ns = esp_clock_now(&server->clock) + limit_ns;
    uint32_t n = 1;
    while (n > 0 && esp_clock_now(&server->clock) < until_ns) {
        pthread_mutex_lock(&server->lock);
        n = server->n_exchanges;
        pthread_mutex_unlock(&server->lock);
        struct pollfd stop = {.fd = stop_fd, .events = POLLIN};
        if (n > 0 && poll(&stop, 1, 10) > 0) {
            return;
        }
    }
}

void esp_server_stop(struct esp_server *server, int stop_fd, int64_t drain_ns)
{
    pthread_mutex_lock(&server->lock);
    server->state = ESP_SERVER_DRAINING;
    pthread_mutex_unlock(&server->lock);
    if (server->daemon != NULL) {
        MHD_socket listener = MHD_quiesce_daemon(server->daemon);
        if (listener != MHD_INVALID_SOCKET) {
            close(listener);
        }
        wait_for_exchanges(server, stop_fd, drain_ns);
    }
    esp_dispatch_stop(server); /* cancels what still runs and ends its answers */
    esp_queue_close(&server->work);
    for (uint32_t idx = 0; idx < server->n_workers; idx++) {
        pthread_join(server->workers[idx], NULL);
    }
    if (server->daemon != NULL) {
        wait_for_exchanges(server, -1, 1000000000);
        MHD_stop_daemon(server->daemon);
    }
    esp_watch_stop(server);
    esp_queue_finish(&server->work);
    esp_listen_stop(server);
    esp_kept_destroy(server->store);
    esp_keys_destroy(server->keys);
    pthread_mutex_destroy(&server->conns_lock);
    pthread_mutex_destroy(&server->lock);
}
