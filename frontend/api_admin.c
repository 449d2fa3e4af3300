/* /health, /metrics, /v1/models, /v1/cache: what the server is and holds. */
#include <string.h>

#include "frontend/http.h"
#include "frontend/jsontext.h"

#define CACHE_NODES_DEFAULT 1000u

void esp_api_health(struct esp_exchange *exchange)
{
    enum esp_server_state state = esp_server_state_now(exchange->server);
    static const char *const names[] = {"loading", "ok", "draining"};
    exchange->status = state == ESP_SERVER_OK ? 200 : 503;
    exchange->retry_after_ms = state == ESP_SERVER_OK ? 0 : 1000;
    esp_buf_printf(&exchange->out, "{\"status\":\"%s\",\"progress\":%d}", names[state],
                   state == ESP_SERVER_LOADING ? 0 : 1);
}

void esp_api_metrics(struct esp_exchange *exchange)
{
    struct esp_metrics metrics;
    struct esp_engine_info info;
    esp_engine *engine = esp_exchange_engine(exchange);
    esp_get_metrics(engine, &metrics);
    esp_engine_get_info(engine, &info);
    exchange->content_type = "text/plain; version=0.0.4; charset=utf-8";
    esp_metrics_write(&exchange->out, &metrics, &info);
    esp_metrics_alias(&exchange->out, &metrics, &info);
}

void esp_api_openapi(struct esp_exchange *exchange)
{
    esp_buf_add(&exchange->out, esp_openapi_text, esp_openapi_bytes);
}

static void write_model(struct esp_exchange *exchange)
{
    struct esp_server *server = exchange->server;
    struct esp_buf *out = &exchange->out;
    esp_engine *engine = esp_exchange_engine(exchange);
    esp_buf_str(out, "{\"id\":");
    esp_jsontext_quote_str(out, server->model_name);
    esp_buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"espalier\"",
                   (long long)server->created_s);
    if (engine != NULL) {
        struct esp_engine_info info;
        esp_engine_get_info(engine, &info);
        esp_buf_printf(out, ",\"context_length\":%u,\"vocab_size\":%u", info.n_ctx, info.n_vocab);
    }
    esp_buf_char(out, '}');
}

void esp_api_models(struct esp_exchange *exchange)
{
    esp_buf_str(&exchange->out, "{\"object\":\"list\",\"data\":[");
    write_model(exchange);
    esp_buf_str(&exchange->out, "]}");
}

void esp_api_model(struct esp_exchange *exchange)
{
    const char *name = exchange->path + strlen("/v1/models/");
    if (strcmp(name, exchange->server->model_name) == 0) {
        write_model(exchange);
    } else {
        esp_exchange_fail(exchange, 404, "model", "model_not_found", "this server has the model '%s' only",
                          exchange->server->model_name);
    }
}

void esp_api_cache_dump(struct esp_exchange *exchange)
{
    char *text = NULL;
    struct esp_err err = {0};
    uint32_t limit = exchange->limit == 0 ? CACHE_NODES_DEFAULT : exchange->limit;
    if (esp_cache_dump(esp_exchange_engine(exchange), limit, &text, &err) != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, NULL);
        return;
    }
    esp_buf_str(&exchange->out, text);
    esp_text_free(text);
}

void esp_api_cache_flush(struct esp_exchange *exchange)
{
    uint32_t n_pages = esp_cache_flush(esp_exchange_engine(exchange));
    esp_buf_printf(&exchange->out, "{\"flushed_pages\":%u}", n_pages);
}
