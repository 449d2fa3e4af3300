/* The watcher: sees clients hang up while their connection is suspended, cuts off slow requests, pings.
 *
 * Each socket is in a second epoll set that reports only the peer's end of sending, once. A client that has
 * closed its side is taken as gone: what it asked for is cancelled. A tick a second, only while there are
 * connections, looks for requests whose head or body takes too long; the head's clock starts with its first
 * byte (the kernel counts them), so a kept-alive connection may idle until the I/O layer's own timeout.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frontend/generate.h"
#include "frontend/http.h"

enum phase { PHASE_HEAD, PHASE_BODY, PHASE_LINGER, PHASE_BUSY };

struct esp_conn {
    struct esp_conn *prev, *next;
    uint64_t serial;
    int fd;
    enum phase phase;
    bool hung_up, cut, cancelled;
    int64_t since_ns;    /* head: first byte, 0 before; body: its start; linger: last byte */
    uint64_t base_bytes; /* head: received before it; body: received of it */
    struct esp_exchange *exchange;
};

static uint64_t received_bytes(int fd)
{
    struct tcp_info info;
    memset(&info, 0, sizeof info);
    socklen_t n = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 ? info.tcpi_bytes_received : 0;
}

static void wake_watcher(struct esp_server *server)
{
    uint64_t one = 1;
    ssize_t n = write(server->watch_wake, &one, sizeof one);
    (void)n; /* a full counter wakes as well */
}

struct esp_conn *esp_watch_open(struct esp_server *server, int fd)
{
    struct esp_conn *conn = esp_calloc(ESP_TAG_HTTP, 1, sizeof *conn);
    if (conn == NULL) {
        return NULL;
    }
    conn->fd = fd;
    pthread_mutex_lock(&server->conns_lock);
    conn->serial = ++server->next_serial;
    conn->next = server->conns;
    if (conn->next != NULL) {
        conn->next->prev = conn;
    }
    server->conns = conn;
    bool first = conn->next == NULL;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = conn->serial};
    epoll_ctl(server->watch_epoll, EPOLL_CTL_ADD, fd, &event);
    pthread_mutex_unlock(&server->conns_lock);
    if (first) {
        wake_watcher(server);
    }
    return conn;
}

void esp_watch_close(struct esp_server *server, struct esp_conn *conn)
{
    pthread_mutex_lock(&server->conns_lock);
    epoll_ctl(server->watch_epoll, EPOLL_CTL_DEL, conn->fd, NULL);
    if (conn->prev != NULL) {
        conn->prev->next = conn->next;
    } else {
        server->conns = conn->next;
    }
    if (conn->next != NULL) {
        conn->next->prev = conn->prev;
    }
    pthread_mutex_unlock(&server->conns_lock);
    esp_free(conn);
}

void esp_watch_begin(struct esp_server *server, struct esp_conn *conn, struct esp_exchange *exchange)
{
    pthread_mutex_lock(&server->conns_lock);
    conn->exchange = exchange;
    conn->phase = PHASE_BODY;
    conn->since_ns = esp_clock_now(&server->clock);
    conn->base_bytes = 0;
    pthread_mutex_unlock(&server->conns_lock);
}

void esp_watch_received(struct esp_server *server, struct esp_conn *conn, uint64_t n_bytes)
{
    pthread_mutex_lock(&server->conns_lock);
    conn->base_bytes += n_bytes;
    if (conn->phase == PHASE_LINGER) {
        conn->since_ns = esp_clock_now(&server->clock);
    }
    pthread_mutex_unlock(&server->conns_lock);
}

void esp_watch_linger(struct esp_server *server, struct esp_conn *conn)
{
    pthread_mutex_lock(&server->conns_lock);
    conn->phase = PHASE_LINGER;
    conn->since_ns = esp_clock_now(&server->clock);
    pthread_mutex_unlock(&server->conns_lock);
}

void esp_watch_all_read(struct esp_server *server, struct esp_conn *conn)
{
    pthread_mutex_lock(&server->conns_lock);
    conn->phase = PHASE_BUSY;
    pthread_mutex_unlock(&server->conns_lock);
}

void esp_watch_end(struct esp_server *server, struct esp_conn *conn)
{
    pthread_mutex_lock(&server->conns_lock);
    conn->exchange = NULL;
    conn->phase = PHASE_HEAD;
    conn->since_ns = 0;
    conn->base_bytes = received_bytes(conn->fd);
    pthread_mutex_unlock(&server->conns_lock);
}

bool esp_watch_hung_up(struct esp_server *server, const struct esp_exchange *exchange)
{
    bool hung_up = false;
    pthread_mutex_lock(&server->conns_lock);
    for (const struct esp_conn *conn = server->conns; conn != NULL; conn = conn->next) {
        hung_up = hung_up || (conn->exchange == exchange && conn->hung_up);
    }
    pthread_mutex_unlock(&server->conns_lock);
    return hung_up;
}

void esp_watch_cancel_all(struct esp_server *server)
{
    for (;;) {
        struct esp_exchange *exchange = NULL;
        pthread_mutex_lock(&server->conns_lock);
        for (struct esp_conn *conn = server->conns; conn != NULL && exchange == NULL; conn = conn->next) {
            if (conn->exchange != NULL && !conn->cancelled) {
                conn->cancelled = true;
                exchange = conn->exchange;
                esp_exchange_ref(exchange);
            }
        }
        pthread_mutex_unlock(&server->conns_lock);
        if (exchange == NULL) {
            return;
        }
        pthread_mutex_lock(&exchange->lock);
        struct esp_generation *gen = exchange->gen;
        pthread_mutex_unlock(&exchange->lock);
        if (gen != NULL) {
            esp_generation_cancel(gen);
        }
        esp_exchange_unref(exchange);
    }
}

void esp_http_raw_answer(int fd, const struct esp_exchange *exchange, int status, const char *code,
                         const char *message)
{
    struct esp_buf body, answer;
    esp_buf_init(&body, ESP_TAG_HTTP, 4096);
    esp_buf_init(&answer, ESP_TAG_HTTP, 8192);
    esp_error_json(&body, exchange, status, NULL, code, message);
    esp_buf_printf(
        &answer, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
        status, status == 413 ? "Content Too Large" : "Request Timeout", body.n);
    esp_buf_add(&answer, body.data, body.n);
    if (!answer.failed) {
        ssize_t n = send(fd, answer.data, answer.n, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)n; /* a client that cannot take it is closed all the same */
    }
    esp_buf_finish(&body);
    esp_buf_finish(&answer);
}

static void hang_up(struct esp_server *server, uint64_t serial)
{
    struct esp_exchange *exchange = NULL;
    pthread_mutex_lock(&server->conns_lock);
    for (struct esp_conn *conn = server->conns; conn != NULL; conn = conn->next) {
        if (conn->serial == serial) {
            conn->hung_up = true;
            exchange = conn->exchange;
        }
    }
    if (exchange != NULL) {
        esp_exchange_ref(exchange);
    }
    pthread_mutex_unlock(&server->conns_lock);
    if (exchange != NULL) {
        esp_exchange_hang_up(exchange);
        esp_exchange_unref(exchange);
    }
}

/* Is the request of this connection too slow by now? Under conns_lock. */
static bool too_slow(struct esp_conn *conn, int64_t now_ns)
{
    if (conn->phase == PHASE_BUSY || conn->cut) {
        return false;
    }
    if (conn->phase == PHASE_LINGER) {
        return now_ns - conn->since_ns > ESP_HTTP_LINGER_NS;
    }
    if (conn->phase == PHASE_BODY) {
        int64_t allowed = ESP_HTTP_SLOW_NS + (int64_t)(conn->base_bytes * 1000000000u / ESP_HTTP_BODY_BYTES_PER_S);
        return now_ns - conn->since_ns > allowed;
    }
    if (conn->since_ns == 0) {
        conn->since_ns = received_bytes(conn->fd) > conn->base_bytes ? now_ns : 0;
        return false;
    }
    return now_ns - conn->since_ns > ESP_HTTP_SLOW_NS;
}

/* A silent stream gets a comment, so that proxies on the way do not take it for dead. */
static void ping(struct esp_exchange *exchange, int64_t now_ns)
{
    static const char comment[] = ": waiting\n\n", event[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    const char *text = exchange->anthropic ? event : comment;
    pthread_mutex_lock(&exchange->lock);
    /* The head of an answer, `stream` too, is settled once it is ready. */
    bool due = exchange->ready && exchange->stream && !exchange->ended && !exchange->gone &&
               now_ns - exchange->last_out_ns > ESP_HTTP_PING_NS;
    pthread_mutex_unlock(&exchange->lock);
    if (due) {
        esp_exchange_send(exchange, text, strlen(text));
    }
}

static void tick(struct esp_server *server)
{
    int64_t now_ns = esp_clock_now(&server->clock);
    pthread_mutex_lock(&server->conns_lock);
    for (struct esp_conn *conn = server->conns; conn != NULL; conn = conn->next) {
        if (too_slow(conn, now_ns)) {
            conn->cut = true;
            if (conn->phase != PHASE_LINGER && !server->tls) {
                esp_http_raw_answer(conn->fd, conn->exchange, 408, "timeout", "the request took too long to arrive");
            }
            shutdown(conn->fd, SHUT_RDWR);
        } else if (conn->phase == PHASE_BUSY && conn->exchange != NULL) {
            ping(conn->exchange, now_ns);
        }
    }
    pthread_mutex_unlock(&server->conns_lock);
}

static void *watch(void *ctx)
{
    struct esp_server *server = ctx;
    struct epoll_event events[64];
    for (;;) {
        pthread_mutex_lock(&server->conns_lock);
        bool stopping = server->stopping, idle = server->conns == NULL;
        pthread_mutex_unlock(&server->conns_lock);
        if (stopping) {
            return NULL;
        }
        int n = epoll_wait(server->watch_epoll, events, 64, idle ? -1 : 1000);
        for (int idx = 0; idx < n; idx++) {
            if (events[idx].data.u64 == 0) {
                uint64_t count;
                ssize_t got = read(server->watch_wake, &count, sizeof count);
                (void)got;
            } else {
                hang_up(server, events[idx].data.u64);
            }
        }
        tick(server);
    }
}

esp_status esp_watch_start(struct esp_server *server, struct esp_err *err)
{
    server->watch_epoll = epoll_create1(EPOLL_CLOEXEC);
    server->watch_wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};
    if (server->watch_epoll < 0 || server->watch_wake < 0 ||
        epoll_ctl(server->watch_epoll, EPOLL_CTL_ADD, server->watch_wake, &event) != 0 ||
        pthread_create(&server->watcher, NULL, watch, server) != 0) {
        return esp_fail(err, ESP_EIO, "cannot start the connection watcher");
    }
    server->has_watcher = true;
    return ESP_OK;
}

void esp_watch_stop(struct esp_server *server)
{
    if (server->has_watcher) {
        pthread_mutex_lock(&server->conns_lock);
        server->stopping = true;
        pthread_mutex_unlock(&server->conns_lock);
        wake_watcher(server);
        pthread_join(server->watcher, NULL);
        server->has_watcher = false;
    }
    if (server->watch_epoll >= 0) {
        close(server->watch_epoll);
    }
    if (server->watch_wake >= 0) {
        close(server->watch_wake);
    }
}
