/* Counters as Prometheus text. The names are fixed; dashboards and checks use them. */
#include <string.h>

#include "frontend/http.h"
#include "frontend/jsontext.h"

static void head(struct esp_buf *buf, const char *name, const char *type, const char *help)
{
    esp_buf_printf(buf, "# HELP espalier_%s %s\n# TYPE espalier_%s %s\n", name, help, name, type);
}

static void plain(struct esp_buf *buf, const char *name, const char *type, const char *help, uint64_t value)
{
    head(buf, name, type, help);
    esp_buf_printf(buf, "espalier_%s %llu\n", name, (unsigned long long)value);
}

static void labelled(struct esp_buf *buf, const char *name, const char *label, const char *const *values,
                     const uint64_t *counts, size_t n)
{
    for (size_t idx = 0; idx < n; idx++) {
        esp_buf_printf(buf, "espalier_%s{%s=\"%s\"} %llu\n", name, label, values[idx], (unsigned long long)counts[idx]);
    }
}

/* Buckets are given cumulative: bucket i counts the values up to first · 2^i, the last one all. */
static void histogram(struct esp_buf *buf, const char *name, const char *help, const struct esp_histogram *h)
{
    head(buf, name, "histogram", help);
    double upper = h->first_s;
    for (int idx = 0; idx < ESP_HISTOGRAM_BUCKETS; idx++) {
        esp_buf_printf(buf, "espalier_%s_bucket{le=\"%.9g\"} %llu\n", name, upper, (unsigned long long)h->bucket[idx]);
        upper *= 2;
    }
    esp_buf_printf(buf, "espalier_%s_bucket{le=\"+Inf\"} %llu\nespalier_%s_sum %.9g\nespalier_%s_count %llu\n", name,
                   (unsigned long long)h->n, name, h->sum_s, name, (unsigned long long)h->n);
}

void esp_metrics_write(struct esp_buf *buf, const struct esp_metrics *m, const struct esp_engine_info *info)
{
    static const char *const sources[] = {"computed", "cached", "recomputed"};
    static const char *const states[] = {"running", "waiting"};
    static const char *const finishes[] = {"stop", "length", "cancelled", "error", "timeout"};
    static const char *const kinds[] = {"free", "private", "pending", "cached", "host", "disk"};
    const uint64_t prompt[] = {m->prompt_tokens_computed, m->prompt_tokens_cached, m->prompt_tokens_recomputed};
    const uint64_t requests[] = {m->requests_running, m->requests_waiting};
    head(buf, "prompt_tokens_total", "counter", "Prompt tokens by where they came from.");
    labelled(buf, "prompt_tokens_total", "source", sources, prompt, 3);
    plain(buf, "prompt_tokens_reusable_total", "counter",
          "Prompt tokens that a cache without a limit would have had, as far as is remembered.",
          m->prompt_tokens_reusable);
    uint64_t n_prompt = m->prompt_tokens_computed + m->prompt_tokens_cached;
    head(buf, "cache_hit_ceiling", "gauge", "These as a share of all prompt tokens.");
    esp_buf_printf(buf, "espalier_cache_hit_ceiling %.6g\n",
                   n_prompt == 0 ? 0.0 : (double)m->prompt_tokens_reusable / (double)n_prompt);
    plain(buf, "idle_prefill_tokens_total", "counter", "Prompt tokens computed while nothing else was to do.",
          m->idle_prefill_tokens);
    plain(buf, "generation_tokens_total", "counter", "Tokens generated.", m->generation_tokens);
    head(buf, "requests", "gauge", "Requests in the engine now.");
    labelled(buf, "requests", "state", states, requests, 2);
    head(buf, "requests_total", "counter", "Requests that ended, by how.");
    labelled(buf, "requests_total", "finish", finishes, m->requests_finished, ESP_FINISHES);
    head(buf, "kv_pages", "gauge", "Pages of the KV cache by state.");
    labelled(buf, "kv_pages", "state", kinds, m->kv_pages, ESP_PAGE_KINDS);
    plain(buf, "kv_pages_total", "gauge", "Pages of the KV cache on the device.", m->kv_pages_total);
    plain(buf, "kv_pages_leased", "gauge", "Pages that a request refers to now.", m->kv_pages_leased);
    plain(buf, "kv_saved_pages_total", "counter", "Pages sent to the page file.", m->kv_pages_saved);
    plain(buf, "kv_restored_pages_total", "counter", "Pages that came back from it.", m->kv_pages_restored);
    plain(buf, "kv_pages_pinned", "gauge", "Pages that pins hold now.", m->kv_pages_pinned);
    plain(buf, "cache_pins", "gauge", "Pins now.", m->pins);
    const uint64_t pins[] = {m->pins_granted, m->pins_refused};
    static const char *const answers[] = {"granted", "refused"};
    head(buf, "cache_pins_total", "counter", "Pins asked for, by the answer.");
    labelled(buf, "cache_pins_total", "answer", answers, pins, 2);
    plain(buf, "kv_evicted_pages_total", "counter", "Pages dropped to make room.", m->kv_evicted_pages);
    plain(buf, "preemptions_total", "counter", "Requests paused for lack of pages.", m->preemptions);
    histogram(buf, "ttft_seconds", "From submit to the first token.", &m->ttft);
    histogram(buf, "inter_token_seconds", "Between two tokens of an answer.", &m->inter_token);
    histogram(buf, "mask_seconds", "Making one grammar mask.", &m->mask);
    histogram(buf, "compile_seconds", "Compiling one grammar.", &m->compile);
    histogram(buf, "step_seconds", "One step of the engine.", &m->step);
    head(buf, "build_info", "gauge", "What runs here.");
    esp_buf_printf(buf, "espalier_build_info{version=\"%s\",device=\"%s\",level=\"%s\"} 1\n", ESP_VERSION, info->device,
                   info->level);
}
