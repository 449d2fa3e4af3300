/* The listening socket and the HTTP library's daemon: TCP or a Unix socket, with or without TLS.
 *
 * A host that begins with / or ends in .sock is a Unix socket. A socket file that nobody answers on is left from
 * an earlier run and is replaced; one that somebody answers on is not. The file is removed at the end. The handlers
 * are http.c's. Thread: main, before and after everything else.
 */
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "frontend/http.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"

#define POOL_BYTES (80u * 1024u) /* per connection: the head, and room for the answer's head */
#define IO_TIMEOUT_S 12u         /* idle, or a reader that does not read; above ESP_HTTP_SLOW_NS, which answers 408 */
#define BACKLOG 1024u
#define PEM_BYTES_MAX (1024u * 1024u)
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct pems {
    struct esp_buf cert, key;
};

static bool is_unix_path(const char *host)
{
    size_t n = strlen(host);
    return host[0] == '/' || (n > 5 && strcmp(host + n - 5, ".sock") == 0);
}

static esp_status resolve(const struct esp_options *options, struct sockaddr_storage *ret_address, struct esp_err *err)
{
    char port[8];
    snprintf(port, sizeof port, "%u", options->port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(options->host, port, &hints, &found);
    if (rc != 0 || found == NULL) {
        return esp_fail(err, ESP_EINVAL, "--host %s: %s", options->host, gai_strerror(rc));
    }
    memcpy(ret_address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return ESP_OK;
}

/* ---- Unix sockets ------------------------------------------------------------------------------- */

/* Removes a socket that nobody listens on any more. False: there is something that must stay. */
static bool clear_path(const struct sockaddr_un *address)
{
    struct stat info;
    if (lstat(address->sun_path, &info) != 0) {
        return errno == ENOENT;
    }
    if (!S_ISSOCK(info.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool dead = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    if (fd >= 0) {
        close(fd);
    }
    return dead && unlink(address->sun_path) == 0;
}

static esp_status open_unix(const char *path, int *ret_fd, struct esp_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        return esp_fail(err, ESP_EINVAL, "--host %s: the path of a socket has at most %zu bytes", path,
                        sizeof address.sun_path - 1);
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (!clear_path(&address)) {
        return esp_fail(err, ESP_EIO, "--host %s: the path is taken", path);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof address) != 0 || listen(fd, (int)BACKLOG) != 0) {
        esp_fail(err, ESP_EIO, "--host %s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return ESP_EIO;
    }
    *ret_fd = fd;
    return ESP_OK;
}

/* ---- TLS ---------------------------------------------------------------------------------------- */

static esp_status read_pem(const char *option, const char *path, struct esp_buf *buf, struct esp_err *err)
{
    esp_status status = esp_file_read(path, buf, err);
    if (status == ESP_OK && (buf->n == 0 || memchr(buf->data, '\0', buf->n) != NULL)) {
        status = esp_fail(err, ESP_EINVAL, "%s %s: not a PEM file", option, path);
    }
    return status;
}

static esp_status read_pems(const struct esp_options *options, struct pems *pems, struct esp_err *err)
{
    if ((options->tls_cert == NULL) != (options->tls_key == NULL)) {
        return esp_fail(err, ESP_EINVAL, "--tls-cert and --tls-key go together");
    }
    if (options->tls_cert == NULL) {
        return ESP_OK;
    }
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        return esp_fail(err, ESP_EUNSUPPORTED, "--tls-cert: the HTTP library of this build has no TLS");
    }
    esp_status status = read_pem("--tls-cert", options->tls_cert, &pems->cert, err);
    return status == ESP_OK ? read_pem("--tls-key", options->tls_key, &pems->key, err) : status;
}

/* ---- The daemon --------------------------------------------------------------------------------- */

/* The library's own words. While it starts they say why it could not; later they matter only to someone who
 * looks for a fault. */
static void library_log(void *ctx, const char *fmt, va_list args)
{
    struct esp_server *server = ctx;
    char text[256];
    vsnprintf(text, sizeof text, fmt, args);
    text[strcspn(text, "\n")] = '\0';
    if (server->daemon == NULL) {
        snprintf(server->start_note, sizeof server->start_note, "%.150s", text);
    }
    esp_log(ESP_LOG_DEBUG, "http", "%s", text);
}

static void start_daemon(struct esp_server *server, const struct sockaddr_storage *address, const struct pems *pems,
                         int fd)
{
    struct MHD_OptionItem where = {MHD_OPTION_SOCK_ADDR, 0, (void *)(uintptr_t)address};
    if (fd >= 0) {
        where = (struct MHD_OptionItem){MHD_OPTION_LISTEN_SOCKET, fd, NULL};
    }
    struct MHD_OptionItem options[] = {
        where,
        {MHD_OPTION_END, 0, NULL},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, pems->key.data},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    if (server->tls) {
        options[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_CERT, 0, pems->cert.data};
    }
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | MHD_USE_ITC |
                     (address->ss_family == AF_INET6 ? MHD_USE_IPv6 : 0u) | (server->tls ? MHD_USE_TLS : 0u);
    server->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, esp_http_handle, server, MHD_OPTION_EXTERNAL_LOGGER, library_log, server,
        MHD_OPTION_NOTIFY_COMPLETED, esp_http_completed, server, MHD_OPTION_NOTIFY_CONNECTION, esp_http_connection,
        server, MHD_OPTION_THREAD_POOL_SIZE, ESP_HTTP_IO_THREADS, MHD_OPTION_CONNECTION_LIMIT,
        ESP_HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, IO_TIMEOUT_S, MHD_OPTION_LISTEN_BACKLOG_SIZE, BACKLOG, MHD_OPTION_ARRAY,
        options, MHD_OPTION_END);
}

static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max < 65536 ? files.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

esp_status esp_listen_start(struct esp_server *server, struct esp_err *err)
{
    const struct esp_options *options = server->options;
    struct sockaddr_storage address = {.ss_family = AF_UNIX};
    struct pems pems;
    int fd = -1;
    bool is_unix = is_unix_path(options->host);
    esp_buf_init(&pems.cert, ESP_TAG_HTTP, PEM_BYTES_MAX);
    esp_buf_init(&pems.key, ESP_TAG_HTTP, PEM_BYTES_MAX);
    server->tls = options->tls_cert != NULL;
    raise_file_limit();
    esp_status status = read_pems(options, &pems, err);
    if (status == ESP_OK) {
        status = is_unix ? open_unix(options->host, &fd, err) : resolve(options, &address, err);
    }
    if (status == ESP_OK) {
        server->owns_path = is_unix;
        start_daemon(server, &address, &pems, fd);
        if (server->daemon == NULL) {
            status = esp_fail(err, ESP_EIO, "cannot listen on %s port %u%s%s", options->host, options->port,
                              server->start_note[0] != '\0' ? ": " : "", server->start_note);
        }
    }
    if (status == ESP_OK) {
        const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
        server->port = info == NULL ? (int)options->port : info->port;
    }
    esp_buf_finish(&pems.cert); /* the library has read them */
    esp_buf_finish(&pems.key);
    return status;
}

void esp_listen_stop(struct esp_server *server)
{
    if (server->owns_path) {
        unlink(server->options->host);
        server->owns_path = false;
    }
}

void esp_listen_url(const struct esp_server *server, char *out, size_t room)
{
    const char *host = server->options->host;
    bool v6 = strchr(host, ':') != NULL;
    if (server->owns_path) {
        snprintf(out, room, "unix:%s", host);
    } else {
        snprintf(out, room, "%s://%s%s%s:%d", server->tls ? "https" : "http", v6 ? "[" : "", host, v6 ? "]" : "",
                 server->port);
    }
}
