/* See rig.h. */
#include "tests/sim/rig.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/engine_impl.h"

esp_status rig_trie(struct esp_trie **ret_trie)
{
    static const char *const texts[ESP_HASH_VOCAB] = {
        "0", "1", "2", "", "4", "5", "12", "7", "a", "b", "c", "ab", "abc", "{", "}", "\"", ":", ",", "true", "false",
        "[", "]", "-", "d", "e", "\":", "{\"", "n", "ok",
    };
    struct esp_trie_token tokens[ESP_HASH_VOCAB];
    for (uint32_t i = 0; i < ESP_HASH_VOCAB; i++) {
        tokens[i] = (struct esp_trie_token){texts[i], (uint32_t)strlen(texts[i]),
                                            i == RIG_END_TOKEN ? ESP_ROLE_END : ESP_ROLE_TEXT};
    }
    return esp_trie_create(tokens, ESP_HASH_VOCAB, ret_trie, NULL);
}

struct esp_grammar *rig_grammar(const struct esp_trie *trie, enum esp_grammar_kind kind, const char *text)
{
    struct esp_grammar_spec spec = {.kind = kind, .text = text, .n_bytes = strlen(text)};
    struct esp_grammar *grammar = NULL;
    return esp_grammar_compile(trie, &spec, &grammar, NULL) == ESP_OK ? grammar : NULL;
}

static int64_t rig_now(void *ctx)
{
    struct rig *rig = ctx;
    return rig->now_ns += 1000;
}

__attribute__((format(printf, 2, 3))) static void wrong(struct rig *rig, const char *fmt, ...)
{
    if (rig->failure[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(rig->failure, sizeof rig->failure, fmt, args);
        va_end(args);
    }
}

bool rig_init(struct rig *rig, const struct rig_config *config)
{
    memset(rig, 0, sizeof *rig);
    rig->n_ctx = config->n_ctx;
    rig->n_pool = config->n_pages * ESP_PAGE_TOKENS;
    rig->end_token = config->end_token;
    if (esp_hash_model_create(ESP_HASH_VOCAB, config->prefill_chunk + config->n_batch_max, &rig->model) != ESP_OK) {
        return false;
    }
    struct esp_engine_parts parts = {
        .model = rig->model,
        .end_token = config->end_token,
        .clock = {rig_now, rig},
        .tree_seed = config->tree_seed,
        .tree_hash_bits = config->hash_bits == 0 ? 128 : config->hash_bits,
        .n_pages = config->n_pages,
        .n_ctx = config->n_ctx,
        .n_batch_max = config->n_batch_max,
        .prefill_chunk = config->prefill_chunk,
        .n_queue_max = config->n_queue_max,
        .cache_off = config->cache_off,
    };
    parts.tier_threaded = rig->threaded = config->tier_threaded;
    if (config->pagefile != NULL) {
        struct esp_kv_geom geom = esp_model_kv_geom(&rig->model->hp);
        struct esp_pagefile_config file = {.path = config->pagefile,
                                           .n_bytes_max = 4 << 20,
                                           .page_bytes = (uint32_t)esp_kv_page_bytes(&geom),
                                           .serial = config->pagefile_serial,
                                           .hash_bits = parts.tree_hash_bits,
                                           .io = config->pagefile_io};
        esp_pagefile_open(&file, &parts.pagefile, NULL); /* without one, when that fails */
    }
    if (esp_engine_create(&parts, &rig->engine, NULL) != ESP_OK) {
        esp_hash_model_destroy(rig->model);
        return false;
    }
    return true;
}

void rig_finish(struct rig *rig)
{
    esp_engine_close(rig->engine);
    for (uint32_t i = 0; i < rig->n_requests; i++) {
        free(rig->requests[i]);
    }
    free(rig->requests);
}

static esp_status submit(struct rig *rig, struct rig_request *kept, const struct esp_request *r, struct esp_err *err)
{
    struct esp_branch branches[RIG_BRANCHES_MAX];
    for (uint32_t i = 0; i < kept->n && i < RIG_BRANCHES_MAX; i++) {
        branches[i] = (struct esp_branch){kept->fork[i].suffix, kept->fork[i].n_suffix, kept->fork[i].n_max,
                                          kept->fork[i].grammar};
    }
    return kept->forked ? esp_fork(rig->engine, r, branches, kept->n, &kept->id, err)
                        : esp_submit(rig->engine, r, &kept->id, err);
}

struct rig_request *rig_submit(struct rig *rig, const struct rig_request *request, esp_status *ret_status,
                               struct esp_err *err)
{
    struct rig_request *kept = malloc(sizeof *kept);
    *kept = *request;
    struct esp_request r = {
        .tokens = kept->prompt,
        .n_tokens = kept->n_prompt,
        .n_max = kept->n_max,
        .n = kept->n,
        .sampling = esp_sampling_default(),
        .grammar = kept->grammar,
        .comes_back = kept->comes_back,
        .pins = &kept->pin,
        .n_pins = kept->pin.n_tokens > 0,
        .cache_salt = kept->salt,
        .cache_salt_bytes = kept->salt == NULL ? 0 : strlen(kept->salt),
        .labels = kept->labels,
        .n_labels = kept->n_labels,
        .tenant = kept->tenant,
        .tenant_bytes = kept->tenant == NULL ? 0 : strlen(kept->tenant),
        .priority = kept->priority,
        .user = kept,
    };
    r.sampling.temperature = kept->temperature;
    r.sampling.seed = kept->seed;
    r.sampling.logprobs = true;
    r.sampling.n_top_logprobs = (uint32_t)(kept->seed % 3);
    *ret_status = submit(rig, kept, &r, err);
    if (*ret_status != ESP_OK) {
        free(kept);
        return NULL;
    }
    if (rig->n_requests == rig->room) {
        rig->room = rig->room == 0 ? 64 : rig->room * 2;
        rig->requests = realloc(rig->requests, rig->room * sizeof(struct rig_request *));
    }
    rig->requests[rig->n_requests++] = kept;
    rig->n_open += kept->n;
    return kept;
}

void rig_cancel(struct rig *rig, struct rig_request *request)
{
    request->cancelled = true;
    esp_cancel(rig->engine, request->id);
}

void rig_preempt(struct rig *rig)
{
    while (esp_sched_preempt(&rig->engine->sched)) {
    }
}

void rig_stop(struct rig *rig, struct rig_request *request, uint32_t branch)
{
    if (branch < request->n) {
        request->branch[branch].stopped = true;
    }
    esp_stop(rig->engine, request->id, branch);
}

static uint32_t prompt_of(const struct rig_request *request, uint32_t branch)
{
    return request->n_prompt + (request->forked ? request->fork[branch].n_suffix : 0);
}

static uint32_t max_of(const struct rig_request *request, uint32_t branch)
{
    uint32_t n_max = request->forked ? request->fork[branch].n_max : 0;
    return n_max == 0 ? request->n_max : n_max;
}

static struct esp_grammar *grammar_of(const struct rig_request *request, uint32_t branch)
{
    return request->forked ? request->fork[branch].grammar : request->grammar;
}

/* The next token of a branch of which the tokens of ref are known. */
static struct esp_sample_row draw_alone(const struct esp_hash_ref *ref, const struct rig_request *request,
                                        uint32_t branch, uint32_t n, struct esp_matcher *matcher)
{
    float logits[ESP_HASH_VOCAB];
    esp_hash_ref_logits(ref, ESP_HASH_VOCAB, logits);
    struct esp_sample_row row = {.logits = logits, .temperature = request->temperature,
                                 .seed = request->seed + branch, .pos = prompt_of(request, branch) + n,
                                 .history = request->branch[branch].tokens, .n_history = n,
                                 .mask = matcher == NULL ? NULL : esp_matcher_mask(matcher)};
    esp_hash_sample_row(&row, ESP_HASH_VOCAB);
    row.logits = NULL;
    return row;
}

/* Computes the branch alone, as far as it came; returns how it would have ended, or CANCELLED when it goes on. */
static enum esp_finish compute_alone(const struct rig *rig, const struct rig_request *request, uint32_t branch,
                                     struct esp_matcher *matcher, struct rig_branch *ret_alone)
{
    uint32_t limit = rig->n_ctx < rig->n_pool ? rig->n_ctx : rig->n_pool;
    uint32_t room = limit - prompt_of(request, branch);
    uint32_t n_max = max_of(request, branch) < room ? max_of(request, branch) : room;
    struct esp_hash_ref ref = {0};
    ret_alone->n = 0;
    ret_alone->logprob_sum = 0;
    for (uint32_t i = 0; i < request->n_prompt; i++) {
        esp_hash_ref_feed(&ref, request->prompt[i]);
    }
    for (uint32_t i = request->n_prompt; i < prompt_of(request, branch); i++) {
        esp_hash_ref_feed(&ref, request->fork[branch].suffix[i - request->n_prompt]);
    }
    while (ret_alone->n < n_max) {
        if (matcher != NULL && (esp_matcher_mask(matcher)[0] & (((uint64_t)1 << ESP_HASH_VOCAB) - 1)) == 0) {
            return esp_matcher_complete(matcher) ? ESP_FINISH_STOP : ESP_FINISH_ERROR;
        }
        struct esp_sample_row row = draw_alone(&ref, request, branch, ret_alone->n, matcher);
        if (row.token == (matcher == NULL ? rig->end_token : request->end_token)) {
            return ESP_FINISH_STOP;
        }
        if (ret_alone->n == request->branch[branch].n) {
            return ESP_FINISH_CANCELLED;
        }
        ret_alone->logprob_sum += row.logprob;
        ret_alone->tokens[ret_alone->n++] = row.token;
        if (matcher != NULL) {
            esp_matcher_accept(matcher, row.token);
        }
        esp_hash_ref_feed(&ref, row.token);
    }
    return ESP_FINISH_LENGTH;
}

static void compare(struct rig *rig, const struct rig_request *request, uint32_t branch)
{
    const struct rig_branch *got = &request->branch[branch];
    static struct rig_branch alone;
    struct esp_matcher *matcher = NULL;
    struct esp_grammar *grammar = grammar_of(request, branch);
    if (grammar != NULL && esp_matcher_create(grammar, &matcher) != ESP_OK) {
        wrong(rig, "no matcher to compare with");
        return;
    }
    enum esp_finish finish = compute_alone(rig, request, branch, matcher, &alone);
    esp_matcher_destroy(matcher);
    if (alone.n != got->n || alone.logprob_sum != got->logprob_sum ||
        memcmp(alone.tokens, got->tokens, got->n * sizeof got->tokens[0]) != 0) {
        wrong(rig, "request %llx branch %u: %u tokens (%u …), alone %u (%u …)", (unsigned long long)request->id, branch,
              got->n, got->tokens[0], alone.n, alone.tokens[0]);
    }
    if (got->last.finish != finish && !(request->cancelled && got->last.finish == ESP_FINISH_CANCELLED) &&
        !(got->stopped && got->last.finish == ESP_FINISH_STOP)) {
        wrong(rig, "request %llx branch %u: finish %d, alone %d (%s)", (unsigned long long)request->id, branch,
              (int)got->last.finish, (int)finish, got->last.error);
    }
}

static double log_softmax(const float *logits, uint32_t token)
{
    double sum = 0; /* the logits of the hash device are small */
    for (uint32_t i = ESP_HASH_VOCAB; i-- > 0;) {
        sum += exp((double)logits[i]);
    }
    return (double)logits[token] - log(sum);
}

/* What the label's tokens and an end are worth, from the tokens alone. */
static double score_alone(const struct rig *rig, const struct rig_request *request, const struct esp_label *label)
{
    float logits[ESP_HASH_VOCAB];
    struct esp_hash_ref ref = {0};
    double score = 0;
    for (uint32_t i = 0; i < prompt_of(request, 0); i++) {
        esp_hash_ref_feed(&ref, i < request->n_prompt ? request->prompt[i]
                                                      : request->fork[0].suffix[i - request->n_prompt]);
    }
    for (uint32_t i = 0; i < label->n_tokens; i++) {
        esp_hash_ref_logits(&ref, ESP_HASH_VOCAB, logits);
        score += log_softmax(logits, label->tokens[i]);
        esp_hash_ref_feed(&ref, label->tokens[i]);
    }
    esp_hash_ref_logits(&ref, ESP_HASH_VOCAB, logits);
    return rig->end_token == ESP_TOKEN_NONE ? score : score + log_softmax(logits, rig->end_token);
}

static void compare_scores(struct rig *rig, const struct rig_request *request, const struct esp_event *event)
{
    double sum = 0, sum_alone = 0;
    if (event->scores == NULL) {
        if (event->finish != ESP_FINISH_CANCELLED && event->finish != ESP_FINISH_ERROR) {
            wrong(rig, "request %llx: no scores", (unsigned long long)event->id);
        }
        return;
    }
    for (uint32_t i = 0; i < request->n_labels; i++) {
        double alone = score_alone(rig, request, &request->labels[i]);
        sum += event->scores[i].probability;
        sum_alone += exp(alone);
        if (fabs(event->scores[i].logprob - alone) > 1e-9) {
            wrong(rig, "request %llx, label %u: score %.12f, alone %.12f", (unsigned long long)event->id, i,
                  event->scores[i].logprob, alone);
        }
    }
    for (uint32_t i = 0; i < request->n_labels; i++) {
        double alone = exp(score_alone(rig, request, &request->labels[i])) / sum_alone;
        if (fabs(event->scores[i].probability - alone) > 1e-9 || fabs(sum - 1) > 1e-9) {
            wrong(rig, "request %llx, label %u: probability %.12f, alone %.12f", (unsigned long long)event->id, i,
                  event->scores[i].probability, alone);
        }
    }
}

static void take_event(struct rig *rig, const struct esp_event *event)
{
    struct rig_request *request = event->user;
    struct rig_branch *branch = &request->branch[event->branch];
    if (event->id != request->id || event->branch >= request->n || branch->done) {
        wrong(rig, "an event of request %llx came after its end or to another", (unsigned long long)event->id);
        return;
    }
    if (event->kind == ESP_EVENT_TOKEN) {
        if (branch->n == RIG_TOKENS_MAX || event->n_top != request->seed % 3) {
            wrong(rig, "request %llx: too many tokens, or not as many alternatives as asked for",
                  (unsigned long long)event->id);
            return;
        }
        branch->tokens[branch->n++] = event->token;
        branch->logprob_sum += event->logprob;
        return;
    }
    branch->done = true;
    branch->last = *event;
    rig->n_open--;
    if (event->n_prompt != prompt_of(request, event->branch) || event->n_generated != branch->n ||
        event->n_cached + event->n_cached_suffix >= event->n_prompt + request->forked) {
        wrong(rig, "request %llx: prompt %u, cached %u, generated %u of %u", (unsigned long long)event->id,
              event->n_prompt, event->n_cached, event->n_generated, branch->n);
    }
    compare(rig, request, event->branch);
    if (request->n_labels > 0 && event->branch == 0) {
        compare_scores(rig, request, event);
    }
}

bool rig_poll(struct rig *rig, uint32_t n)
{
    struct esp_event event;
    bool any = false;
    while (n-- > 0 && esp_poll(rig->engine, 0, &event)) {
        take_event(rig, &event);
        any = true;
    }
    return any;
}

bool rig_step(struct rig *rig, uint32_t n_polls)
{
    char reason[256];
    bool any = esp_engine_step(rig->engine);
    rig->n_steps++;
    if (!esp_tree_check(esp_engine_tree(rig->engine), reason, sizeof reason)) {
        wrong(rig, "after step %llu: %s", (unsigned long long)rig->n_steps, reason);
    }
    struct esp_metrics metrics;
    esp_get_metrics(rig->engine, &metrics);
    if (metrics.kv_pages[ESP_PAGES_PENDING] != 0) {
        wrong(rig, "a page is pending between steps");
    }
    return rig_poll(rig, n_polls) || any;
}

bool rig_drain(struct rig *rig)
{
    uint32_t n_idle = 0;
    while (rig->n_open > 0 && rig->failure[0] == '\0') {
        bool stands = !rig_step(rig, 1000) && rig->n_open > 0;
        n_idle = stands ? n_idle + 1 : 0;
        if (stands && rig->threaded && n_idle < 10000) {
            usleep(100); /* for the page file's thread, which lives in real time */
        } else if (stands) {
            wrong(rig, "the engine stands still with %u branches open", rig->n_open);
        }
    }
    while (rig->failure[0] == '\0' && rig_step(rig, 1000)) { /* idle work has no events */
    }
    return rig->failure[0] == '\0';
}

void rig_check_idle(struct rig *rig)
{
    struct esp_metrics m;
    esp_get_metrics(rig->engine, &m);
    if (m.kv_pages_leased != 0 || m.kv_pages[ESP_PAGES_PRIVATE] != 0 || m.kv_pages[ESP_PAGES_PENDING] != 0 ||
        m.requests_running != 0 || m.requests_waiting != 0) {
        wrong(rig, "idle, but %llu leased, %llu private, %llu pending, %llu running, %llu waiting",
              (unsigned long long)m.kv_pages_leased, (unsigned long long)m.kv_pages[ESP_PAGES_PRIVATE],
              (unsigned long long)m.kv_pages[ESP_PAGES_PENDING], (unsigned long long)m.requests_running,
              (unsigned long long)m.requests_waiting);
    }
    if (m.kv_pages[ESP_PAGES_FREE] + m.kv_pages[ESP_PAGES_CACHED] != m.kv_pages_total) {
        wrong(rig, "pages are missing");
    }
    uint64_t n_prompt = 0, n_prompt_cancelled = 0, n_cached = 0, n_generated = 0;
    for (uint32_t i = 0; i < rig->n_requests; i++) {
        const struct rig_request *request = rig->requests[i];
        uint64_t *n_prompts = request->cancelled ? &n_prompt_cancelled : &n_prompt;
        *n_prompts += request->n_prompt;
        uint32_t cached = 0;
        for (uint32_t b = 0; b < request->n; b++) {
            cached = request->branch[b].last.n_cached > cached ? request->branch[b].last.n_cached : cached;
            n_generated += request->branch[b].n;
            *n_prompts += prompt_of(request, b) - request->n_prompt;
            n_cached += request->branch[b].last.n_cached_suffix;
        }
        n_cached += cached;
    }
    uint64_t counted = m.prompt_tokens_computed + m.prompt_tokens_cached;
    if (counted < n_prompt || counted > n_prompt + n_prompt_cancelled || m.prompt_tokens_cached != n_cached ||
        m.generation_tokens != n_generated) {
        wrong(rig, "counters: computed %llu, cached %llu (events say %llu), prompts %llu and %llu cancelled",
              (unsigned long long)m.prompt_tokens_computed, (unsigned long long)m.prompt_tokens_cached,
              (unsigned long long)n_cached, (unsigned long long)n_prompt, (unsigned long long)n_prompt_cancelled);
    }
}
