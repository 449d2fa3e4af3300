/* `espalier tree [--url U] --format text|dot|svg|json`: the radix tree of a running server.
 *
 * One GET of /v1/cache over plain HTTP; the picture is made here, so the server does no more than list its nodes.
 * Thread: main. Speaks no TLS: for a server that does, fetch /v1/cache by other means and read the JSON.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frontend/options.h"
#include "frontend/output.h"
#include "frontend/tree_picture.h"

#define ANSWER_BYTES_MAX ((size_t)1 << 30)
#define PICTURE_BYTES_MAX ((size_t)1 << 30)
#define NODES 100000

struct address {
    char host[256], port[8];
};

static bool parse_url(const char *url, struct address *ret_address)
{
    const char *at = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    size_t n_host = strcspn(at, ":/");
    if (strstr(at, "://") != NULL || n_host == 0 || n_host >= sizeof ret_address->host) {
        return false;
    }
    memcpy(ret_address->host, at, n_host);
    ret_address->host[n_host] = '\0';
    at += n_host;
    size_t n_port = *at == ':' ? strcspn(at + 1, "/") : 0;
    if (n_port >= sizeof ret_address->port || (*at == ':' && n_port == 0)) {
        return false;
    }
    snprintf(ret_address->port, sizeof ret_address->port, "%.*s", n_port == 0 ? 2 : (int)n_port,
             n_port == 0 ? "80" : at + 1);
    return true;
}

static int connect_to(const struct address *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
    if (getaddrinfo(address->host, address->port, &hints, &all) != 0) {
        errno = EHOSTUNREACH;
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *one = all; one != NULL && fd < 0; one = one->ai_next) {
        fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
        if (fd >= 0 && connect(fd, one->ai_addr, one->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(all);
    return fd;
}

/* The first key of the file, or nothing. */
static esp_status add_key(const char *path, struct esp_buf *request, struct esp_err *err)
{
    char line[1024];
    FILE *file = path == NULL ? NULL : fopen(path, "re");
    if (path == NULL) {
        return ESP_OK;
    }
    if (file == NULL || fgets(line, sizeof line, file) == NULL) {
        if (file != NULL) {
            fclose(file);
        }
        return esp_fail(err, ESP_EIO, "%s: no key can be read", path);
    }
    fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    esp_buf_printf(request, "Authorization: Bearer %s\r\n", line);
    return ESP_OK;
}

static bool exchange(int fd, const struct esp_buf *request, struct esp_buf *answer)
{
    char piece[65536];
    for (size_t at = 0; at < request->n;) {
        ssize_t n = send(fd, request->data + at, request->n - at, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        at += (size_t)n;
    }
    for (ssize_t n; (n = recv(fd, piece, sizeof piece, 0)) != 0;) {
        if (n < 0 || !esp_buf_add(answer, piece, (size_t)n)) {
            return false;
        }
    }
    return true;
}

/* The body of the answer; borrowed from it. */
static esp_status body_of(const struct esp_buf *answer, const char **ret_body, struct esp_err *err)
{
    int status = 0;
    const char *end = answer->n == 0 ? NULL : memmem(answer->data, answer->n, "\r\n\r\n", 4);
    if (end == NULL || sscanf(answer->data, "HTTP/1.1 %d", &status) != 1) {
        return esp_fail(err, ESP_EIO, "the answer is no HTTP");
    }
    if (status != 200) {
        return esp_fail(err, ESP_EIO, "status %d: %.300s", status, end + 4);
    }
    *ret_body = end + 4;
    return ESP_OK;
}

static esp_status fetch(const struct esp_options *options, struct esp_buf *answer, const char **ret_body,
                        struct esp_err *err)
{
    struct address address;
    struct esp_buf request;
    if (!parse_url(options->url, &address)) {
        return esp_fail(err, ESP_EINVAL, "%s: http://HOST:PORT is needed", options->url);
    }
    esp_buf_init(&request, ESP_TAG_MISC, 8192);
    esp_buf_printf(&request, "GET /v1/cache?limit=%d HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", NODES,
                   address.host);
    esp_status status = add_key(options->api_key_file, &request, err);
    esp_buf_str(&request, "\r\n");
    int fd = status == ESP_OK ? connect_to(&address) : -1;
    if (status == ESP_OK && fd < 0) {
        status = esp_fail(err, ESP_EIO, "%s: %s", options->url, strerror(errno));
    } else if (status == ESP_OK && !exchange(fd, &request, answer)) {
        status = esp_fail(err, ESP_EIO, "%s: the connection broke", options->url);
    }
    if (fd >= 0) {
        close(fd);
    }
    esp_buf_finish(&request);
    return status == ESP_OK ? body_of(answer, ret_body, err) : status;
}

static esp_status draw(const char *format, const char *body, struct esp_buf *picture, struct esp_err *err)
{
    if (strcmp(format, "json") == 0) {
        esp_buf_str(picture, body);
        esp_buf_char(picture, '\n');
        return picture->failed ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
    }
    json_t *tree = json_loads(body, 0, NULL);
    esp_status status = tree == NULL                   ? esp_fail(err, ESP_EIO, "the answer is no JSON")
                        : strcmp(format, "dot") == 0 ? esp_tree_dot(tree, picture, err)
                        : strcmp(format, "svg") == 0 ? esp_tree_svg(tree, picture, err)
                                                     : esp_tree_text(tree, picture, err);
    json_decref(tree);
    return status;
}

int esp_verb_tree(const struct esp_options *options)
{
    struct esp_err err = {0};
    struct esp_buf answer, picture;
    const char *body = NULL;
    esp_buf_init(&answer, ESP_TAG_MISC, ANSWER_BYTES_MAX);
    esp_buf_init(&picture, ESP_TAG_MISC, PICTURE_BYTES_MAX);
    esp_status status = fetch(options, &answer, &body, &err);
    status = status == ESP_OK ? draw(options->format, body, &picture, &err) : status;
    int ret = ESP_EXIT_DONE;
    if (status != ESP_OK) {
        fprintf(stderr, "espalier tree: %s\n", err.message);
        ret = status == ESP_EINVAL ? ESP_EXIT_USAGE : ESP_EXIT_FAILED;
    } else if (!esp_output_write("tree", picture.data, picture.n)) {
        ret = ESP_EXIT_FAILED;
    }
    esp_buf_finish(&picture);
    esp_buf_finish(&answer);
    return ret;
}
