/* The table of routes, and which web pages may call.
 *
 * /health and OPTIONS need no key.
 * Thread: the I/O threads, read-only after start.
 */
#include <string.h>

#include "frontend/http.h"

static const struct esp_route routes[] = {
    {"POST", "/v1/chat/completions", esp_api_chat, ESP_ROUTE_ENGINE},
    {"POST", "/v1/completions", esp_api_completions, ESP_ROUTE_ENGINE},
    {"POST", "/v1/embeddings", esp_api_embeddings, ESP_ROUTE_ENGINE},
    {"POST", "/v1/messages", esp_api_messages, ESP_ROUTE_ENGINE},
    {"POST", "/v1/messages/count_tokens", esp_api_count_tokens, ESP_ROUTE_ENGINE},
    {"POST", "/v1/responses", esp_api_responses, ESP_ROUTE_ENGINE},
    {"POST", "/v1/responses/input_tokens", esp_api_response_tokens, ESP_ROUTE_ENGINE},
    {"GET", "/v1/responses/", esp_api_response_get, 0},
    {"DELETE", "/v1/responses/", esp_api_response_delete, 0},
    {"GET", "/v1/models", esp_api_models, ESP_ROUTE_FAST},
    {"GET", "/v1/models/", esp_api_model, ESP_ROUTE_FAST},
    {"POST", "/tokenize", esp_api_tokenize, ESP_ROUTE_ENGINE},
    {"POST", "/detokenize", esp_api_detokenize, ESP_ROUTE_ENGINE},
    {"POST", "/apply-template", esp_api_template, ESP_ROUTE_ENGINE},
    {"POST", "/v1/schema/check", esp_api_schema_check, ESP_ROUTE_ENGINE},
    {"GET", "/v1/cache", esp_api_cache_dump, ESP_ROUTE_ENGINE},
    {"DELETE", "/v1/cache", esp_api_cache_flush, ESP_ROUTE_ENGINE},
    {"POST", "/v1/cache/explain", esp_api_cache_explain, ESP_ROUTE_ENGINE},
    {"GET", "/health", esp_api_health, ESP_ROUTE_FAST | ESP_ROUTE_OPEN},
    {"GET", "/openapi.json", esp_api_openapi, ESP_ROUTE_FAST | ESP_ROUTE_OPEN},
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
    if (!open && !esp_keys_allow(exchange->server, exchange->key)) {
        esp_exchange_fail(exchange, 401, NULL, "invalid_api_key", "the API key is missing or not accepted");
        return;
    }
    if (exchange->server->options->api_key_file != NULL && exchange->key != NULL) {
        exchange->tenant = esp_strndup(ESP_TAG_HTTP, exchange->key, strlen(exchange->key));
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
