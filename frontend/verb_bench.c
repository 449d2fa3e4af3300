/* `espalier bench`: prefill and decode speed, time to first token, memory, on random tokens.
 *
 *   prefill   one sequence of --prompt tokens, up to its first token
 *   decode    --batch sequences; tokens per second from the moment when all of them are past their prompts
 *   shared    --batch sequences on one prefix of --shared tokens, from the cold start of the prefix
 *
 * Each is run --repeat times with new tokens and an empty cache, after one short warm-up; medians are reported.
 * Answers run past end tokens. Thread: main; the engine has its own.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/options.h"
#include "frontend/output.h"
#include "frontend/peak.h"
#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/rng.h"

#define PAGE_TOKENS 16u

struct bench {
    const struct esp_options *options;
    esp_engine *engine;
    const esp_vocab *vocab;
    struct esp_engine_info info;
    struct esp_rng rng;
    struct esp_clock clock;
};

struct work {
    const char *name;
    uint32_t batch, prompt, generate, shared;
};

/* One run of a work. */
struct run {
    double tokens_per_s, total_s, ttft_s;
};

static int fail(const struct esp_err *err)
{
    fprintf(stderr, "espalier: %s\n", err->message);
    return ESP_EXIT_FAILED;
}

/* A token of running text: no control token. */
static uint32_t random_token(struct bench *bench)
{
    for (int tries = 0; tries < 1000; tries++) {
        uint32_t id = (uint32_t)esp_rng_below(&bench->rng, esp_vocab_n_tokens(bench->vocab));
        size_t n = 0;
        if (!esp_vocab_is_end(bench->vocab, id) && esp_token_bytes(bench->vocab, id, false, &n) != NULL && n > 0) {
            return id;
        }
    }
    return 0;
}

/* started: [batch], each request's own flag comes back with its events. */
static esp_status submit_all(struct bench *bench, const struct work *work, bool *started, struct esp_err *err)
{
    size_t n = (size_t)work->shared + work->prompt;
    uint32_t *tokens = esp_calloc(ESP_TAG_MISC, n, sizeof *tokens);
    esp_status status = tokens != NULL ? ESP_OK : esp_fail(err, ESP_ENOMEM, "out of memory");
    for (size_t idx = 0; status == ESP_OK && idx < work->shared; idx++) {
        tokens[idx] = random_token(bench);
    }
    for (uint32_t seq = 0; status == ESP_OK && seq < work->batch; seq++) {
        for (size_t idx = work->shared; idx < n; idx++) {
            tokens[idx] = random_token(bench);
        }
        struct esp_request request = {.tokens = tokens,
                                      .n_tokens = (uint32_t)n,
                                      .n_max = work->generate,
                                      .n = 1,
                                      .sampling = esp_sampling_default(),
                                      .ignore_end = true,
                                      .user = &started[seq]};
        esp_request_id id;
        request.sampling.temperature = 0;
        status = esp_submit(bench->engine, &request, &id, err);
    }
    esp_free(tokens);
    return status;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* What the events of one run tell. */
struct tally {
    uint32_t n_done, n_started;
    uint64_t n_tokens, n_late; /* late: after all sequences had started */
    int64_t all_started_ns, end_ns;
    double *ttft_s; /* [batch] */
};

static esp_status take_event(struct bench *bench, const struct work *work, const struct esp_event *event,
                             struct tally *tally, struct esp_err *err)
{
    int64_t now_ns = esp_clock_now(&bench->clock);
    bool *started = event->user;
    if (event->kind == ESP_EVENT_TOKEN) {
        tally->n_tokens++;
        tally->n_late += tally->n_started == work->batch;
        if (!*started) {
            *started = true;
            tally->n_started++;
            tally->all_started_ns = now_ns;
        }
        return ESP_OK;
    }
    if (event->finish == ESP_FINISH_ERROR || event->finish == ESP_FINISH_CANCELLED) {
        return esp_fail(err, ESP_EINTERNAL, "%s: %s", work->name, event->error);
    }
    tally->ttft_s[tally->n_done++] = (double)event->ttft_ns / 1e9;
    tally->end_ns = now_ns;
    return ESP_OK;
}

static esp_status run_once(struct bench *bench, const struct work *work, struct run *ret_run, struct esp_err *err)
{
    struct tally tally = {.ttft_s = esp_calloc(ESP_TAG_MISC, work->batch, sizeof *tally.ttft_s)};
    bool *started = esp_calloc(ESP_TAG_MISC, work->batch, sizeof *started);
    esp_status status = ESP_OK;
    if (tally.ttft_s == NULL || started == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "out of memory");
        goto end;
    }
    esp_cache_flush(bench->engine);
    int64_t begin_ns = esp_clock_now(&bench->clock);
    status = submit_all(bench, work, started, err);
    while (status == ESP_OK && tally.n_done < work->batch) {
        struct esp_event event;
        if (esp_poll(bench->engine, -1, &event)) {
            status = take_event(bench, work, &event, &tally, err);
        }
    }
    if (status == ESP_OK) {
        struct run run = {.total_s = (double)(tally.end_ns - begin_ns) / 1e9,
                          .ttft_s = median(tally.ttft_s, work->batch)};
        bool is_decode = strcmp(work->name, "decode") == 0, is_prefill = strcmp(work->name, "prefill") == 0;
        double n = is_prefill ? work->prompt : is_decode ? (double)tally.n_late : (double)tally.n_tokens;
        double span_s = is_decode ? (double)(tally.end_ns - tally.all_started_ns) / 1e9 : run.total_s;
        run.tokens_per_s = span_s > 0 ? n / span_s : 0;
        *ret_run = run;
    }
end:
    esp_free(tally.ttft_s);
    esp_free(started);
    return status;
}

/* ---- Reporting --------------------------------------------------------------------------------- */

static uint64_t plan_bytes(const struct esp_engine_info *info)
{
    return info->plan_weights_bytes + info->plan_kv_bytes + info->plan_activation_bytes + info->plan_logit_bytes +
           info->plan_other_bytes;
}

static json_t *spread_json(double *values, size_t n)
{
    double middle = median(values, n); /* sorts */
    return json_pack("{s:f,s:f,s:f}", "median", middle, "min", values[0], "max", values[n - 1]);
}

static bool report(const struct bench *bench, const struct work *work, double *rates, double *totals, double *ttfts)
{
    size_t n = bench->options->repeat;
    const char *slash = strrchr(bench->options->model, '/');
    const char *model = slash != NULL ? slash + 1 : bench->options->model;
    uint32_t n_generate = strcmp(work->name, "prefill") == 0 ? 0 : work->generate;
    json_t *rate = spread_json(rates, n), *total = spread_json(totals, n);
    double ttft_ms = median(ttfts, n) * 1e3;
    bool ok;
    if (!bench->options->json) {
        ok = printf("%-8s batch %-4u prompt %-6u generate %-6u shared %-6u %10.1f tokens/s  %8.3f s  first token %8.1f "
                    "ms\n",
                    work->name, work->batch, work->prompt, n_generate, work->shared, rates[n / 2], totals[n / 2],
                    ttft_ms) > 0;
        json_decref(rate);
        json_decref(total);
        return esp_output_flush("bench") && ok;
    }
    json_t *row = json_pack(
        "{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:f,s:I,s:I}", "work", work->name, "model", model, "device",
        bench->info.device, "level", bench->info.level, "threads", (json_int_t)bench->info.n_threads, "batch",
        (json_int_t)work->batch, "prompt", (json_int_t)work->prompt, "generate", (json_int_t)n_generate, "shared",
        (json_int_t)work->shared, "tokens_per_s", rate, "total_s", total, "ttft_ms", ttft_ms, "peak_bytes",
        (json_int_t)esp_peak_bytes(), "plan_bytes", (json_int_t)plan_bytes(&bench->info));
    ok = row != NULL && json_dumpf(row, stdout, JSON_COMPACT | JSON_REAL_PRECISION(7)) == 0 && putchar('\n') != EOF;
    json_decref(row);
    return esp_output_flush("bench") && ok;
}

static esp_status measure(struct bench *bench, const struct work *work, struct esp_err *err)
{
    size_t n = bench->options->repeat;
    double *values = esp_calloc(ESP_TAG_MISC, n, 3 * sizeof *values);
    esp_status status = values != NULL ? ESP_OK : esp_fail(err, ESP_ENOMEM, "out of memory");
    for (size_t idx = 0; status == ESP_OK && idx < n; idx++) {
        struct run run;
        status = run_once(bench, work, &run, err);
        if (status == ESP_OK) {
            values[idx] = run.tokens_per_s;
            values[n + idx] = run.total_s;
            values[2 * n + idx] = run.ttft_s;
        }
    }
    if (status == ESP_OK && !report(bench, work, values, values + n, values + 2 * n)) {
        status = ESP_EIO; /* has been told: no message */
    }
    esp_free(values);
    return status;
}

static esp_status measure_all(struct bench *bench, struct esp_err *err)
{
    const struct esp_options *options = bench->options;
    const struct work warm_up = {"warm-up", 1, options->bench_prompt < 64 ? options->bench_prompt : 64, 2, 0};
    const struct work works[] = {
        {"prefill", 1, options->bench_prompt, 1, 0},
        {"decode", options->bench_batch, options->bench_prompt, options->bench_generate, 0},
        {"shared", options->bench_batch, options->bench_prompt, options->bench_generate, options->bench_shared},
    };
    struct run ignored;
    esp_status status = run_once(bench, &warm_up, &ignored, err);
    for (size_t idx = 0; status == ESP_OK && idx < (options->bench_shared > 0 ? 3 : 2); idx++) {
        status = measure(bench, &works[idx], err);
    }
    if (status == ESP_OK && !options->json) {
        printf("memory: peak %.1f MiB, plan %.1f MiB; %s %s, %u threads\n", (double)esp_peak_bytes() / 0x1p20,
               (double)plan_bytes(&bench->info) / 0x1p20, bench->info.device, bench->info.level, bench->info.n_threads);
    }
    return status;
}

int esp_verb_bench(const struct esp_options *options)
{
    struct bench bench = {.options = options, .rng = {.state = options->seed}, .clock = esp_clock_monotonic()};
    struct esp_config config = esp_options_engine(options);
    struct esp_err err = {0};
    uint64_t n_longest = (uint64_t)options->bench_prompt + options->bench_generate + options->bench_shared;
    if (config.n_batch_max == ESP_AUTO) {
        config.n_batch_max = options->bench_batch;
    }
    /* What the works need and no more, so that the plan tells what such a load takes: the full pages of the shared
     * prefix once, and what follows them for each sequence. */
    uint64_t n_prefix_pages = options->bench_shared / PAGE_TOKENS;
    uint64_t n_own_pages = (n_longest + PAGE_TOKENS - 1) / PAGE_TOKENS - n_prefix_pages;
    config.kv_tokens = (n_prefix_pages + options->bench_batch * n_own_pages + 2) * PAGE_TOKENS;
    if (config.n_queue_max == ESP_AUTO) {
        config.n_queue_max = 1024;
    }
    if (esp_engine_open(&config, &bench.engine, &err) != ESP_OK) {
        return fail(&err);
    }
    bench.vocab = esp_engine_vocab(bench.engine);
    esp_engine_get_info(bench.engine, &bench.info);
    esp_status status = ESP_OK;
    if (n_longest > bench.info.n_ctx) {
        status = esp_fail(&err, ESP_ELIMIT, "prompt, shared and generated tokens are %llu; the context has %u (--ctx)",
                          (unsigned long long)n_longest, bench.info.n_ctx);
    }
    status = status == ESP_OK ? measure_all(&bench, &err) : status;
    esp_engine_close(bench.engine);
    if (status != ESP_OK && err.message[0] == '\0') {
        return ESP_EXIT_FAILED; /* standard output's failure has been told */
    }
    return status == ESP_OK ? ESP_EXIT_DONE : fail(&err);
}
