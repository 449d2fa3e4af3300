/* The server's own header: connections, exchanges, routes. Nothing outside the server includes it.
 *
 *   I/O threads (libmicrohttpd)      work threads            dispatcher          watcher
 *   read, route, check limits ─────► parse, template, ─────► engine events ──┐   hang-ups, slow
 *   send what is in `out` ◄────┐     compile, submit         to answers      │   requests, pings
 *                              └───────── exchange (one request and its answer) ◄┘
 *
 * An exchange is shared by reference count: one for its connection, one for the work in hand, one for each
 * submitted run. While others work on it its connection is suspended; whoever has something to send wakes it.
 * Lock order: conns_lock before an exchange's lock. Engine calls are made without an exchange's lock held.
 */
#ifndef ESP_FRONTEND_HTTP_H
#define ESP_FRONTEND_HTTP_H

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>

#include "frontend/chat.h"
#include "frontend/options.h"
#include "runtime/base/buf.h"
#include "runtime/base/clock.h"
#include "runtime/base/queue.h"
#include "runtime/espalier.h"

#define ESP_HTTP_HEADER_BYTES_MAX (64u * 1024u)
#define ESP_HTTP_BODIES_BYTES_MAX (256ull * 1024u * 1024u) /* all bodies in memory at one moment */
#define ESP_HTTP_ANSWER_BYTES_MAX (64u * 1024u * 1024u)    /* one whole answer */
#define ESP_HTTP_BACKLOG_BYTES_MAX (4u * 1024u * 1024u)    /* of a stream, waiting for a slow reader */
#define ESP_HTTP_CONNECTIONS_MAX 4096u
#define ESP_HTTP_IO_THREADS 2u
#define ESP_HTTP_WORK_THREADS 4u
#define ESP_HTTP_SLOW_NS 10000000000ll  /* for a request's head; for its body, plus its size at the rate below */
#define ESP_HTTP_BODY_BYTES_PER_S 65536 /* slower uploads are cut off */
#define ESP_HTTP_LINGER_BYTES_MAX (256ull * 1024u * 1024u) /* of a refused body that are read and dropped */
#define ESP_HTTP_LINGER_NS 2000000000ll                    /* longest pause in them */
#define ESP_HTTP_PING_NS 10000000000ll                     /* a silent stream gets a comment this often */
#define ESP_HTTP_DRAIN_NS 10000000000ll                    /* running requests may finish this long after SIGTERM */

enum esp_server_state { ESP_SERVER_LOADING, ESP_SERVER_OK, ESP_SERVER_DRAINING };

struct esp_exchange;
struct esp_conn;
struct esp_keys;
struct esp_kept;

struct esp_server {
    const struct esp_options *options;
    char model_name[128];
    int64_t created_s;
    struct esp_kept *store; /* of the Responses API */
    struct MHD_Daemon *daemon;
    int port;
    bool tls, owns_path;  /* owns_path: the host is a Unix socket that is there */
    char start_note[160]; /* what the HTTP library said before it could start */
    struct esp_clock clock;

    pthread_mutex_t lock; /* of the fields in this block */
    enum esp_server_state state;
    struct esp_keys *keys; /* NULL: everyone may ask */
    esp_engine *engine;    /* set once, with state OK */
    struct esp_chat *chat;
    uint64_t bodies_bytes;
    uint32_t n_exchanges; /* that have a connection */
    uint32_t n_alive;     /* that someone holds: a connection, a work thread, a run */
    bool dispatch_stopping;

    pthread_mutex_t conns_lock; /* of the list and of what hangs on it */
    struct esp_conn *conns;
    uint64_t next_serial;
    int watch_epoll, watch_wake;
    bool stopping;

    struct esp_queue work; /* of struct esp_exchange * */
    pthread_t workers[ESP_HTTP_WORK_THREADS], watcher, dispatcher;
    uint32_t n_workers;
    bool has_watcher, has_dispatcher;
};

esp_status esp_server_start(struct esp_server *server, const struct esp_options *options, struct esp_err *err);
/* The model is there: takes neither; both must outlive esp_server_stop. Starts the dispatcher. */
esp_status esp_server_attach(struct esp_server *server, esp_engine *engine, struct esp_chat *chat, struct esp_err *err);
/* No new connections; running requests finish within drain_ns, then they are cancelled; at once when
 * stop_fd becomes readable. */
void esp_server_stop(struct esp_server *server, int stop_fd, int64_t drain_ns);

enum esp_server_state esp_server_state_now(struct esp_server *server);

/* ---- Watcher: frontend/http_watch.c ------------------------------------------------------------- */

esp_status esp_watch_start(struct esp_server *server, struct esp_err *err);
void esp_watch_stop(struct esp_server *server);
/* A connection's life: opened, one exchange after the other, closed. */
struct esp_conn *esp_watch_open(struct esp_server *server, int fd);
void esp_watch_close(struct esp_server *server, struct esp_conn *conn);
void esp_watch_begin(struct esp_server *server, struct esp_conn *conn, struct esp_exchange *exchange);
void esp_watch_received(struct esp_server *server, struct esp_conn *conn, uint64_t n_bytes);
void esp_watch_linger(struct esp_server *server, struct esp_conn *conn); /* the rest of the body is dropped */
void esp_watch_all_read(struct esp_server *server, struct esp_conn *conn);
void esp_watch_end(struct esp_server *server, struct esp_conn *conn);
/* Has the client of this exchange closed its side? */
bool esp_watch_hung_up(struct esp_server *server, const struct esp_exchange *exchange);
/* Cancels every generation; their answers end with an error. */
void esp_watch_cancel_all(struct esp_server *server);
/* Writes an error straight to a socket (not under TLS) whose request is still being read; the connection must
 * close. exchange NULL: the head was not read yet. */
void esp_http_raw_answer(int fd, const struct esp_exchange *exchange, int status, const char *code,
                         const char *message);

/* ---- Listening: frontend/listen.c, keys: frontend/keys.c ------------------------------------------ */

esp_status esp_listen_start(struct esp_server *server, struct esp_err *err);
void esp_listen_stop(struct esp_server *server);
/* "http://127.0.0.1:8080", "https://…", "unix:/path" */
void esp_listen_url(const struct esp_server *server, char *out, size_t room);
/* The HTTP library's callbacks, in http.c. */
enum MHD_Result esp_http_handle(void *ctx, struct MHD_Connection *mhd, const char *url, const char *method,
                                const char *version, const char *data, size_t *n_bytes, void **slot);
void esp_http_completed(void *ctx, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode code);
void esp_http_connection(void *ctx, struct MHD_Connection *mhd, void **slot, enum MHD_ConnectionNotificationCode code);

/* Reads --api-key-file, at the start and again on SIGHUP; on failure the keys stay as they are. */
esp_status esp_keys_load(struct esp_server *server, struct esp_err *err);
void esp_keys_destroy(struct esp_keys *keys); /* NULL is fine */
bool esp_keys_allow(struct esp_server *server, const char *given); /* given may be NULL */

/* ---- Exchanges: frontend/exchange.c ------------------------------------------------------------- */

struct esp_route;
struct esp_generation;

struct esp_exchange {
    struct esp_server *server;
    pthread_mutex_t lock;
    int n_refs;
    /* Under the lock. */
    struct MHD_Connection *mhd;  /* NULL when the connection is through with it */
    bool suspended, ready, gone; /* ready: head and body, or the stream's head, may be sent */
    bool ended, broken;          /* stream: nothing follows; cut off */
    struct esp_buf out;          /* the body; of a stream: what waits to be sent, from out_at on */
    size_t out_at;
    int64_t last_out_ns;
    struct esp_generation *gen; /* owned; set before the first submit */
    /* Set by the I/O thread before others see it. */
    struct esp_conn *conn;
    const struct esp_route *route;
    char method[16], path[256], request_id[136], origin[128];
    uint32_t limit; /* ?limit= */
    struct esp_buf body;
    uint64_t reserved_bytes, read_bytes;
    const char *key; /* during routing */
    char *tenant;    /* owned: the API key that was accepted; NULL where none is asked for */
    bool anthropic;  /* headers and errors are in the shape of the Messages API */
    bool started, handed, refused, malformed, turned_away; /* handed: a work thread has or had it */
    int64_t begin_ns;
    /* The head of the answer: set before ready. */
    int status;
    bool stream, close;
    const char *content_type; /* static */
    const char *allow;        /* static; for 405 and OPTIONS */
    uint32_t retry_after_ms;
};

struct esp_exchange *esp_exchange_create(struct esp_server *server, struct MHD_Connection *mhd);
void esp_exchange_ref(struct esp_exchange *exchange);
void esp_exchange_unref(struct esp_exchange *exchange); /* NULL is fine */
/* The answer is complete (or the stream's head is): the connection may send. */
void esp_exchange_ready(struct esp_exchange *exchange);
/* Appends to a stream. False when the client is gone or too slow: the caller cancels. */
bool esp_exchange_send(struct esp_exchange *exchange, const char *data, size_t n_bytes);
void esp_exchange_end(struct esp_exchange *exchange); /* of a stream */
/* The client hung up: cancels what runs for it. Only matters to generations. */
void esp_exchange_hang_up(struct esp_exchange *exchange);
/* Everything before ready: an error in the shape of the API. param and code may be NULL. */
void esp_exchange_fail(struct esp_exchange *exchange, int status, const char *param, const char *code, const char *fmt,
                       ...) __attribute__((format(printf, 5, 6)));
/* Status and code from a library's error; fallback_param when it names no place. */
void esp_exchange_fail_err(struct esp_exchange *exchange, const struct esp_err *err, const char *fallback_param);
/* Appends {"error":{…}} in the shape of the exchange's API; exchange NULL: OpenAI's. */
void esp_error_json(struct esp_buf *buf, const struct esp_exchange *exchange, int status, const char *param,
                    const char *code, const char *message);
/* Parses the body into a JSON object, or fails the exchange and returns NULL. Owned. */
json_t *esp_exchange_json(struct esp_exchange *exchange);
/* Engine and templates; they live as long as the server. Only after the route's check. */
esp_engine *esp_exchange_engine(const struct esp_exchange *exchange);
const struct esp_chat *esp_exchange_chat(const struct esp_exchange *exchange);

/* ---- Routes: frontend/routes.c ------------------------------------------------------------------ */

enum { ESP_ROUTE_FAST = 1, ESP_ROUTE_OPEN = 2, ESP_ROUTE_ENGINE = 4 };
struct esp_route {
    const char *method, *path; /* a path ending in / takes any tail */
    void (*run)(struct esp_exchange *exchange);
    /* FAST: answered in the I/O thread. OPEN: needs no key. ENGINE: 503 until the model is loaded. */
    unsigned flags;
};
/* Finds the route, or fails the exchange with 404, 405 or 401, or answers OPTIONS. */
void esp_route_find(struct esp_exchange *exchange);
bool esp_route_origin_allowed(const struct esp_server *server, const char *origin);

void esp_api_health(struct esp_exchange *exchange);
extern const char esp_openapi_text[]; /* frontend/openapi.json, without spaces */
extern const size_t esp_openapi_bytes;
void esp_api_openapi(struct esp_exchange *exchange);
void esp_api_metrics(struct esp_exchange *exchange);
void esp_api_models(struct esp_exchange *exchange);
void esp_api_model(struct esp_exchange *exchange);
void esp_api_cache_dump(struct esp_exchange *exchange);
void esp_api_cache_explain(struct esp_exchange *exchange);
void esp_api_cache_flush(struct esp_exchange *exchange);
void esp_api_tokenize(struct esp_exchange *exchange);
void esp_api_detokenize(struct esp_exchange *exchange);
void esp_api_template(struct esp_exchange *exchange);
void esp_api_schema_check(struct esp_exchange *exchange);
void esp_api_chat(struct esp_exchange *exchange);
void esp_api_completions(struct esp_exchange *exchange);
void esp_api_embeddings(struct esp_exchange *exchange);
void esp_api_messages(struct esp_exchange *exchange);
void esp_api_count_tokens(struct esp_exchange *exchange);
void esp_api_responses(struct esp_exchange *exchange);
void esp_api_response_tokens(struct esp_exchange *exchange);
void esp_api_response_get(struct esp_exchange *exchange);
void esp_api_response_delete(struct esp_exchange *exchange);

void esp_metrics_write(struct esp_buf *buf, const struct esp_metrics *metrics, const struct esp_engine_info *info);
void esp_metrics_alias(struct esp_buf *buf, const struct esp_metrics *m, const struct esp_engine_info *info);
/* One line a finished exchange, on standard error. */
void esp_serve_log(struct esp_exchange *exchange, const char *finish);

/* ---- Threads that serve exchanges --------------------------------------------------------------- */

esp_status esp_dispatch_start(struct esp_server *server, struct esp_err *err);
void esp_dispatch_stop(struct esp_server *server);

#endif
