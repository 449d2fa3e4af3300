/* The table of routes, API keys, and which web pages may call.
 *
 * /health and OPTIONS need no key. Keys are compared in a time that depends on the given key's length only.
 * Thread: the I/O threads, read-only after start.
 */
#include <string.h>

#include "frontend/http.h"
#include "runtime/base/file.h"

static const struct esp_route routes[] = {
    {"POST", "/v1/chat/completions", esp_api_chat, ESP_ROUTE_ENGINE},
    {"POST", "/v1/completions", esp_api_completions, ESP_ROUTE_ENGINE},
    {"GET", "/v1/models", esp_api_models, ESP_ROUTE_FAST},
    {"GET", "/v1/models/", esp_api_model, ESP_ROUTE_FAST},
    {"POST", "/tokenize", esp_api_tokenize, ESP_ROUTE_ENGINE},
    {"POST", "/detokenize", esp_api_detokenize, ESP_ROUTE_ENGINE},
    {"POST", "/apply-template", esp_api_template, ESP_ROUTE_ENGINE},
    {"POST", "/v1/schema/check", esp_api_schema_check, ESP_ROUTE_ENGINE},
    {"GET", "/v1/cache", esp_api_cache_dump, ESP_ROUTE_ENGINE},
    {"DELETE", "/v1/cache", esp_api_cache_flush, ESP_ROUTE_ENGINE},
    {"GET", "/health", esp_api_health, ESP_ROUTE_FAST | ESP_ROUTE_OPEN},
    {"GET", "/metrics", esp_api_metrics, ESP_ROUTE_FAST | ESP_ROUTE_ENGINE},
};
#define N_ROUTES (sizeof routes / sizeof routes[0])

static bool path_matches(const struct esp_route *route, const char *path)
{
    size_t n = strlen(route->path);
    if (route->path[n - 1] == '/') {
        return strncmp(route->path, path, n) == 0 && path[n] != '\0';
    }
    return strcmp(route->path, path) == 0;
}

static bool keys_equal(const char *given, const char *key)
{
    size_t n_given = strlen(given), n_key = strlen(key);
    unsigned diff = n_given != n_key;
    for (size_t idx = 0; idx < n_given; idx++) {
        diff |= (unsigned char)given[idx] ^ (unsigned char)key[idx % n_key];
    }
    return diff == 0;
}

static bool key_known(const struct esp_server *server, const char *given)
{
    bool known = false;
    for (uint32_t idx = 0; given != NULL && idx < server->n_keys; idx++) {
        known |= keys_equal(given, server->keys[idx]);
    }
    return known;
}

esp_status esp_route_keys(struct esp_server *server, const char *path, struct esp_err *err)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, 1u << 20);
    esp_status status = esp_file_read(path, &text, err);
    const char *at = status == ESP_OK && text.n > 0 ? text.data : "";
    while (*at != '\0' && status == ESP_OK) {
        size_t n = strcspn(at, "\r\n");
        size_t n_key = n;
        while (n_key > 0 && (at[n_key - 1] == ' ' || at[n_key - 1] == '\t')) {
            n_key--;
        }
        if (n_key > 0 && at[0] != '#') {
            char *key = server->n_keys < ESP_HTTP_KEYS_MAX ? esp_strndup(ESP_TAG_HTTP, at, n_key) : NULL;
            if (key == NULL) {
                status = esp_fail(err, ESP_ELIMIT, "%s: more than %u keys", path, ESP_HTTP_KEYS_MAX);
                break;
            }
            server->keys[server->n_keys++] = key;
        }
        at += n + (at[n] != '\0');
    }
    esp_buf_finish(&text);
    if (status == ESP_OK && server->n_keys == 0) {
        status = esp_fail(err, ESP_EINVAL, "%s: no API key in this file", path);
    }
    return status;
}

bool esp_route_origin_allowed(const struct esp_server *server, const char *origin)
{
    const char *allowed = server->options->cors_origin;
    if (allowed == NULL) {
        return false;
    }
    return strcmp(allowed, "*") == 0 || strcmp(allowed, origin) == 0;
}

void esp_route_find(struct esp_exchange *exchange)
{
    const char *method = strcmp(exchange->method, "HEAD") == 0 ? "GET" : exchange->method;
    const struct esp_route *other = NULL, *found = NULL;
    for (size_t idx = 0; idx < N_ROUTES; idx++) {
        if (path_matches(&routes[idx], exchange->path)) {
            found = strcmp(routes[idx].method, method) == 0 ? &routes[idx] : found;
            other = &routes[idx];
        }
    }
    if (strcmp(method, "OPTIONS") == 0) {
        exchange->status = 204;
        exchange->allow = "GET, POST, DELETE, OPTIONS";
        return;
    }
    bool open = found != NULL && (found->flags & ESP_ROUTE_OPEN) != 0;
    if (exchange->server->n_keys > 0 && !open && !key_known(exchange->server, exchange->key)) {
        esp_exchange_fail(exchange, 401, NULL, "invalid_api_key", "the API key is missing or not accepted");
        return;
    }
    if (found == NULL && other != NULL) {
        exchange->allow = strcmp(other->path, "/v1/cache") == 0 ? "GET, DELETE" : other->method;
        esp_exchange_fail(exchange, 405, NULL, "method_not_allowed", "%s takes %s, not %s", exchange->path,
                          exchange->allow, exchange->method);
        return;
    }
    if (found == NULL) {
        esp_exchange_fail(exchange, 404, NULL, "not_found", "no such route: %s %s", exchange->method, exchange->path);
        return;
    }
    exchange->route = found;
}
