/* One line a request on standard error, as text or as a JSON object. Health checks and scrapes are debug lines. */
#include <string.h>
#include <time.h>

#include "frontend/explain.h"
#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"
#include "runtime/base/log.h"

#define STATUS_GONE 499 /* as proxies log it: the client closed before there was an answer */

static bool is_routine(const struct esp_exchange *exchange)
{
    return strcmp(exchange->path, "/health") == 0 || strcmp(exchange->path, "/metrics") == 0;
}

static void log_json(const struct esp_exchange *exchange, int status, int64_t total_ns,
                     const struct esp_figures *figures)
{
    struct esp_buf line;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    esp_buf_init(&line, ESP_TAG_HTTP, 4096);
    esp_buf_printf(&line,
                   "{\"time\":%lld.%03ld,\"level\":\"info\",\"topic\":\"http\",\"method\":", (long long)now.tv_sec,
                   now.tv_nsec / 1000000);
    esp_jsontext_quote_str(&line, exchange->method);
    esp_buf_str(&line, ",\"path\":");
    esp_jsontext_quote_str(&line, exchange->path);
    esp_buf_str(&line, ",\"request_id\":");
    esp_jsontext_quote_str(&line, exchange->request_id);
    esp_buf_printf(&line, ",\"status\":%d,\"total_ms\":%.1f", status, (double)total_ns / 1e6);
    if (figures != NULL) {
        esp_buf_printf(&line,
                       ",\"prompt_tokens\":%llu,\"cached_tokens\":%llu,\"completion_tokens\":%llu,\"finish\":\"%s\"",
                       (unsigned long long)figures->usage.n_prompt, (unsigned long long)figures->usage.n_cached,
                       (unsigned long long)figures->usage.n_tokens, figures->finish);
        if (figures->why.n_prompt > 0) {
            esp_buf_printf(&line, ",\"cache\":{\"matched\":%u,\"cause\":\"%s\",", figures->why.n_cached,
                           esp_explain_cause(figures->why.cause));
            esp_explain_diverges(&line, esp_engine_vocab(esp_exchange_engine(exchange)), &figures->why);
            if (figures->why.cause == ESP_CAUSE_EVICTED) {
                esp_buf_printf(&line, ",\"evicted_ago_s\":%.1f", (double)figures->why.evicted_ago_ns * 1e-9);
            }
            esp_buf_char(&line, '}');
        }
        if (figures->ttft_ns >= 0) {
            esp_buf_printf(&line, ",\"ttft_ms\":%.1f", (double)figures->ttft_ns / 1e6);
        }
    }
    if (!line.failed) {
        fprintf(stderr, "%s}\n", line.data);
    }
    esp_buf_finish(&line);
}

/* A path may hold anything that can be in a URL: only what prints goes into a text line. */
static void printable(const char *text, char *out, size_t room)
{
    size_t n = 0;
    for (; text[n] != '\0' && n + 1 < room; n++) {
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    }
    out[n] = '\0';
}

static void token_text(const esp_vocab *vocab, uint32_t token, char *out, size_t room)
{
    char text[32] = "";
    size_t n_bytes = 0;
    const char *bytes = esp_token_bytes(vocab, token, true, &n_bytes);
    if (bytes != NULL) {
        snprintf(text, sizeof text, "%.*s", (int)(n_bytes < sizeof text ? n_bytes : sizeof text - 1), bytes);
    }
    printable(text, out, room);
}

/* " miss=evicted@160 evicted_ago=12.3s" and, where other tokens are stored, their texts. */
static void tell_miss(const struct esp_exchange *exchange, const struct esp_explanation *why, char *out, size_t room)
{
    if (why->n_prompt == 0 || why->cause == ESP_CAUSE_HIT) {
        return;
    }
    int n = snprintf(out, room, " miss=%s@%u", esp_explain_cause(why->cause), why->n_cached);
    if (why->cause == ESP_CAUSE_EVICTED) {
        n += snprintf(out + n, room - (size_t)n, " evicted_ago=%.1fs", (double)why->evicted_ago_ns * 1e-9);
    }
    if (why->have != ESP_TOKEN_NONE) {
        char have[32], want[32];
        const esp_vocab *vocab = esp_engine_vocab(esp_exchange_engine(exchange));
        token_text(vocab, why->have, have, sizeof have);
        token_text(vocab, why->want, want, sizeof want);
        snprintf(out + n, room - (size_t)n, " have=\"%s\" want=\"%s\"", have, want);
    }
}

void esp_serve_log(struct esp_exchange *exchange, const char *finish)
{
    /* An answer that others still work on has no status yet: its client went away. */
    pthread_mutex_lock(&exchange->lock);
    int status = exchange->ready || !exchange->handed ? exchange->status : STATUS_GONE;
    struct esp_generation *gen = exchange->gen;
    pthread_mutex_unlock(&exchange->lock);
    struct esp_figures figures = {0};
    bool generated = gen != NULL && (status == 200 || status == STATUS_GONE);
    int64_t total_ns = esp_clock_now(&exchange->server->clock) - exchange->begin_ns;
    if (generated) {
        esp_generation_figures(gen, &figures);
        figures.finish = finish != NULL ? finish : figures.finish;
    }
    if (exchange->server->options->log_json) {
        if (!is_routine(exchange) || status >= 400) {
            log_json(exchange, status, total_ns, generated ? &figures : NULL);
        }
        return;
    }
    char path[128], ttft[32] = "", miss[192] = "";
    printable(exchange->path, path, sizeof path);
    enum esp_log_level level = is_routine(exchange) ? ESP_LOG_DEBUG : ESP_LOG_INFO;
    if (!generated) {
        esp_log(level, "http", "%s %s %d %.1fms id=%s", exchange->method, path, status, (double)total_ns / 1e6,
                exchange->request_id);
        return;
    }
    if (figures.ttft_ns >= 0) {
        snprintf(ttft, sizeof ttft, " ttft=%.1fms", (double)figures.ttft_ns / 1e6);
    }
    tell_miss(exchange, &figures.why, miss, sizeof miss);
    esp_log(level, "http", "%s %s %d %.1fms prompt=%llu cached=%llu%s tokens=%llu%s finish=%s id=%s",
            exchange->method, path, status, (double)total_ns / 1e6, (unsigned long long)figures.usage.n_prompt,
            (unsigned long long)figures.usage.n_cached, miss, (unsigned long long)figures.usage.n_tokens, ttft,
            figures.finish, exchange->request_id);
}
