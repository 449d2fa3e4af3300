/* The same counters under the names that usual dashboards for vLLM ask for. Values and units are those of metrics.c;
 * what this server does not measure is left out. Thread: any.
 */
#include "frontend/http.h"
#include "frontend/jsontext.h"

static void open_name(struct esp_buf *buf, const char *name, const char *suffix, const struct esp_engine_info *info)
{
    esp_buf_printf(buf, "vllm:%s%s{model_name=", name, suffix);
    esp_jsontext_quote_str(buf, info->name);
}

static void value(struct esp_buf *buf, const struct esp_engine_info *info, const char *name, const char *type, double n)
{
    esp_buf_printf(buf, "# TYPE vllm:%s %s\n", name, type);
    open_name(buf, name, "", info);
    esp_buf_printf(buf, "} %.15g\n", n);
}

static void histogram(struct esp_buf *buf, const struct esp_engine_info *info, const char *name,
                      const struct esp_histogram *h)
{
    double upper = h->first_s;
    esp_buf_printf(buf, "# TYPE vllm:%s histogram\n", name);
    for (int idx = 0; idx < ESP_HISTOGRAM_BUCKETS; idx++, upper *= 2) {
        open_name(buf, name, "_bucket", info);
        esp_buf_printf(buf, ",le=\"%.9g\"} %llu\n", upper, (unsigned long long)h->bucket[idx]);
    }
    open_name(buf, name, "_bucket", info);
    esp_buf_printf(buf, ",le=\"+Inf\"} %llu\n", (unsigned long long)h->n);
    open_name(buf, name, "_sum", info);
    esp_buf_printf(buf, "} %.9g\n", h->sum_s);
    open_name(buf, name, "_count", info);
    esp_buf_printf(buf, "} %llu\n", (unsigned long long)h->n);
}

void esp_metrics_alias(struct esp_buf *buf, const struct esp_metrics *m, const struct esp_engine_info *info)
{
    uint64_t n_prompt = m->prompt_tokens_computed + m->prompt_tokens_cached;
    double used = m->kv_pages_total == 0 ? 0 : (double)m->kv_pages_leased / (double)m->kv_pages_total;
    value(buf, info, "num_requests_running", "gauge", (double)m->requests_running);
    value(buf, info, "num_requests_waiting", "gauge", (double)m->requests_waiting);
    value(buf, info, "kv_cache_usage_perc", "gauge", used); /* a share from 0 to 1 in spite of its name */
    value(buf, info, "prefix_cache_queries_total", "counter", (double)n_prompt);
    value(buf, info, "prefix_cache_hits_total", "counter", (double)m->prompt_tokens_cached);
    value(buf, info, "prompt_tokens_total", "counter", (double)n_prompt);
    value(buf, info, "generation_tokens_total", "counter", (double)m->generation_tokens);
    value(buf, info, "num_preemptions_total", "counter", (double)m->preemptions);
    esp_buf_str(buf, "# TYPE vllm:request_success_total counter\n");
    for (int idx = 0; idx < 2; idx++) {
        open_name(buf, "request_success_total", "", info);
        esp_buf_printf(buf, ",finished_reason=\"%s\"} %llu\n", idx == ESP_FINISH_STOP ? "stop" : "length",
                       (unsigned long long)m->requests_finished[idx]);
    }
    histogram(buf, info, "time_to_first_token_seconds", &m->ttft);
    histogram(buf, info, "inter_token_latency_seconds", &m->inter_token);
}
