/* A scripted engine behind espalier.h: tests of the server without a model.
 *
 * The "model" is a JSON file, read again at every submit: {"tokens":[hex…],"repeat","delay_us","start_ms",
 * "fail_after","echo_grammar","load_ms","n_ctx","n_batch","n_queue","skew"}. Every request answers with the script's
 * tokens, and its branch i from the token i · skew on. Pages are counted as the real engine does: a running
 * request leases ceil(tokens / 16) of them until it ends or is cancelled. Cached tokens are those of the longest
 * prompt seen in the same namespace.
 * Limits of this fake: prompts and requests it remembers. Tests only.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "runtime/base/clock.h"
#include "runtime/base/cond.h"
#include "tests/e2e/fake_engine.h"

#define REQUESTS_MAX 4096u
#define EVENTS_MAX 65536u
#define PAGE 16u
#define PAGES_TOTAL 8192u
#define SEEN_MAX 64u

struct fake_request {
    bool used, running;
    esp_request_id id;
    struct esp_request request;
    struct fake_script script;
    uint32_t *prompt, n_cached, n_sent[64], n_open;
    bool done[64];
    int64_t next_ns, begin_ns, first_ns;
};

struct esp_engine {
    const char *path;
    esp_vocab vocab;
    struct fake_script config;
    pthread_mutex_t lock;
    pthread_cond_t some, work;
    struct fake_request requests[REQUESTS_MAX];
    struct esp_event events[EVENTS_MAX];
    uint32_t head, n_events;
    bool woken, closing;
    uint64_t next_id;
    struct esp_metrics metrics;
    struct {
        uint32_t *ids, n;
        char salt[64];
    } seen[SEEN_MAX];
    uint32_t n_seen;
    pthread_t thread;
};

static int64_t now_ns(void)
{
    struct esp_clock clock = esp_clock_monotonic();
    return esp_clock_now(&clock);
}

static void push(struct esp_engine *engine, const struct esp_event *event)
{
    while (engine->n_events == EVENTS_MAX && !engine->closing) { /* back-pressure, as the real one */
        pthread_cond_wait(&engine->work, &engine->lock);
    }
    if (engine->n_events < EVENTS_MAX) {
        engine->events[(engine->head + engine->n_events++) % EVENTS_MAX] = *event;
        pthread_cond_signal(&engine->some);
    }
}

static void free_request(struct fake_request *r)
{
    esp_free(r->prompt);
    esp_free(r->script.tokens);
    esp_grammar_unref(r->request.grammar);
    r->used = false;
}

static void finish(struct esp_engine *engine, struct fake_request *r, uint32_t branch, enum esp_finish how)
{
    if (r->done[branch]) {
        return;
    }
    r->done[branch] = true;
    r->n_open--;
    struct esp_event event = {.kind = ESP_EVENT_DONE,
                              .id = r->id,
                              .branch = branch,
                              .user = r->request.user,
                              .finish = how,
                              .n_prompt = r->request.n_tokens,
                              .n_cached = r->n_cached,
                              .n_generated = r->n_sent[branch]};
    snprintf(event.error, sizeof event.error, "%s", how == ESP_FINISH_ERROR ? "the script says so" : "");
    engine->metrics.requests_finished[how] += r->n_open == 0;
    push(engine, &event);
    if (r->n_open == 0) {
        free_request(r);
    }
}

/* The token of a branch at a position, or FAKE_END. */
static uint32_t token_at(const struct fake_request *r, uint32_t at)
{
    if (r->script.echo_grammar && r->request.grammar != NULL) {
        return at < r->request.grammar->n_bytes ? (unsigned char)r->request.grammar->text[at] : FAKE_END;
    }
    if (at < r->script.n_tokens || (r->script.repeat && r->script.n_tokens > 0)) {
        return r->script.tokens[at % r->script.n_tokens];
    }
    return FAKE_END;
}

static void step_branch(struct esp_engine *engine, struct fake_request *r, uint32_t branch)
{
    uint32_t at = r->n_sent[branch], token = token_at(r, at + branch * r->script.skew);
    if (r->script.fail_after >= 0 && at >= (uint32_t)r->script.fail_after) {
        finish(engine, r, branch, ESP_FINISH_ERROR);
    } else if (at >= r->request.n_max || r->request.n_tokens + at >= engine->config.n_ctx) {
        finish(engine, r, branch, ESP_FINISH_LENGTH);
    } else if (token == FAKE_END) {
        finish(engine, r, branch, ESP_FINISH_STOP);
    } else {
        struct esp_event event = {.kind = ESP_EVENT_TOKEN,
                                  .id = r->id,
                                  .branch = branch,
                                  .user = r->request.user,
                                  .token = token,
                                  .logprob = -0.125f * (float)(at + 1)};
        if (r->request.sampling.logprobs) {
            event.n_top = r->request.sampling.n_top_logprobs;
            for (uint32_t idx = 0; idx < event.n_top; idx++) {
                event.top_id[idx] = idx == 0 ? token : (uint32_t)'A' + idx;
                event.top_logprob[idx] = event.logprob - (float)idx;
            }
        }
        r->n_sent[branch]++;
        engine->metrics.generation_tokens++;
        push(engine, &event);
    }
}

static uint32_t count_running(const struct esp_engine *engine)
{
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < REQUESTS_MAX; idx++) {
        n += engine->requests[idx].used && engine->requests[idx].running;
    }
    return n;
}

/* Starts waiting requests, steps the due ones. Returns when something is due next, or -1. */
static int64_t step(struct esp_engine *engine, int64_t now)
{
    int64_t next = -1;
    uint32_t n_running = count_running(engine);
    for (uint32_t idx = 0; idx < REQUESTS_MAX; idx++) {
        struct fake_request *r = &engine->requests[idx];
        if (r->used && !r->running && n_running < engine->config.n_batch) {
            r->running = true;
            r->next_ns = now + r->script.start_ns;
            n_running++;
        }
        if (!r->used || !r->running) {
            continue;
        }
        if (r->next_ns <= now) {
            r->next_ns = now + r->script.delay_ns;
            for (uint32_t branch = 0; branch < r->request.n && r->used; branch++) {
                if (!r->done[branch]) {
                    step_branch(engine, r, branch);
                }
            }
        }
        if (r->used && (next < 0 || r->next_ns < next)) {
            next = r->next_ns;
        }
    }
    return next;
}

static void *run(void *ctx)
{
    struct esp_engine *engine = ctx;
    pthread_mutex_lock(&engine->lock);
    while (!engine->closing) {
        int64_t now = now_ns(), next = step(engine, now);
        if (next < 0 || next > now) {
            esp_cond_wait(&engine->work, &engine->lock, next);
        } else {
            pthread_mutex_unlock(&engine->lock); /* let others in between two steps */
            pthread_mutex_lock(&engine->lock);
        }
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

esp_status esp_engine_open(const struct esp_config *config, esp_engine **ret_engine, struct esp_err *err)
{
    esp_engine *engine = esp_calloc(ESP_TAG_ENGINE, 1, sizeof *engine);
    engine->path = config->model_path;
    pthread_mutex_init(&engine->vocab.lock, NULL);
    pthread_mutex_init(&engine->lock, NULL);
    esp_cond_init(&engine->some);
    esp_cond_init(&engine->work);
    if (!fake_script_read(engine->path, &engine->vocab, &engine->config, err)) {
        esp_free(engine);
        return ESP_EINVAL;
    }
    usleep((useconds_t)engine->config.load_ms * 1000);
    pthread_create(&engine->thread, NULL, run, engine);
    *ret_engine = engine;
    return ESP_OK;
}

void esp_engine_close(esp_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    engine->closing = true;
    pthread_cond_broadcast(&engine->work);
    pthread_cond_broadcast(&engine->some);
    pthread_mutex_unlock(&engine->lock);
    pthread_join(engine->thread, NULL);
    for (uint32_t idx = 0; idx < REQUESTS_MAX; idx++) {
        if (engine->requests[idx].used) {
            free_request(&engine->requests[idx]);
        }
    }
    for (uint32_t idx = 0; idx < engine->vocab.n_pieces; idx++) {
        esp_free(engine->vocab.pieces[idx].bytes);
    }
    for (uint32_t idx = 0; idx < engine->n_seen; idx++) {
        esp_free(engine->seen[idx].ids);
    }
    esp_free(engine->config.tokens);
    esp_free(engine);
}

const esp_vocab *esp_engine_vocab(const esp_engine *engine)
{
    return &engine->vocab;
}

void esp_engine_get_info(const esp_engine *engine, struct esp_engine_info *ret_info)
{
    *ret_info = (struct esp_engine_info){.arch = "fake",
                                         .name = "scripted",
                                         .device = "cpu",
                                         .level = "scalar",
                                         .n_ctx = engine->config.n_ctx,
                                         .n_vocab = FAKE_VOCAB,
                                         .n_embd = FAKE_EMBD,
                                         .n_pages = PAGES_TOTAL,
                                         .page_tokens = PAGE};
}

struct esp_sampling esp_sampling_default(void)
{
    return (struct esp_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

/* Longest common prefix with a prompt of the same namespace; the new prompt is remembered. */
static uint32_t look_up(esp_engine *engine, const struct esp_request *request)
{
    char salt[64] = "";
    snprintf(salt, sizeof salt, "%.*s", (int)request->cache_salt_bytes,
             request->cache_salt == NULL ? "" : (const char *)request->cache_salt);
    uint32_t best = 0;
    for (uint32_t idx = 0; idx < engine->n_seen; idx++) {
        uint32_t n = 0;
        while (n < engine->seen[idx].n && n < request->n_tokens && engine->seen[idx].ids[n] == request->tokens[n]) {
            n++;
        }
        best = strcmp(engine->seen[idx].salt, salt) == 0 && n > best ? n : best;
    }
    if (engine->n_seen < SEEN_MAX) {
        uint32_t *ids = esp_calloc(ESP_TAG_ENGINE, request->n_tokens, sizeof *ids);
        memcpy(ids, request->tokens, request->n_tokens * sizeof *ids);
        engine->seen[engine->n_seen].ids = ids;
        engine->seen[engine->n_seen].n = request->n_tokens;
        snprintf(engine->seen[engine->n_seen++].salt, sizeof salt, "%s", salt);
    }
    return best < request->n_tokens ? best : request->n_tokens - 1;
}

static struct fake_request *free_slot(esp_engine *engine)
{
    uint32_t n_waiting = 0;
    struct fake_request *slot = NULL;
    for (uint32_t idx = 0; idx < REQUESTS_MAX; idx++) {
        n_waiting += engine->requests[idx].used && !engine->requests[idx].running;
        slot = engine->requests[idx].used ? slot : &engine->requests[idx];
    }
    return n_waiting < engine->config.n_queue ? slot : NULL;
}

esp_status esp_submit(esp_engine *engine, const struct esp_request *request, esp_request_id *ret_id,
                      struct esp_err *err)
{
    struct fake_script script;
    if (request->n_tokens >= engine->config.n_ctx) {
        return esp_fail(err, ESP_ELIMIT, "the prompt has %u tokens, the context %u", request->n_tokens,
                        engine->config.n_ctx);
    }
    if (!fake_script_read(engine->path, &engine->vocab, &script, err)) {
        return ESP_EINTERNAL;
    }
    pthread_mutex_lock(&engine->lock);
    struct fake_request *r = free_slot(engine);
    if (r == NULL) {
        pthread_mutex_unlock(&engine->lock);
        esp_free(script.tokens);
        return esp_fail(err, ESP_EBUSY, "the queue is full");
    }
    *r = (struct fake_request){
        .used = true, .id = ++engine->next_id, .request = *request, .script = script, .n_open = request->n};
    r->prompt = esp_calloc(ESP_TAG_ENGINE, request->n_tokens, sizeof *r->prompt);
    memcpy(r->prompt, request->tokens, request->n_tokens * sizeof *r->prompt);
    if (request->grammar != NULL) {
        __atomic_add_fetch(&request->grammar->n_refs, 1, __ATOMIC_ACQ_REL);
    }
    r->n_cached = look_up(engine, request);
    engine->metrics.prompt_tokens_cached += r->n_cached;
    engine->metrics.prompt_tokens_computed += request->n_tokens - r->n_cached;
    *ret_id = r->id;
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    return ESP_OK;
}

/* The scripted engine reads no prompts: the branches of a fork answer like n of them. */
esp_status esp_fork(esp_engine *engine, const struct esp_request *request, const struct esp_branch *branches,
                    uint32_t n_branches, esp_request_id *ret_id, struct esp_err *err)
{
    struct esp_request plain = *request;
    plain.n = n_branches;
    return esp_submit(engine, &plain, ret_id, err);
}

esp_status esp_explain(esp_engine *engine, const struct esp_request *request, struct esp_explanation *ret_explanation,
                       struct esp_err *err)
{
    *ret_explanation = (struct esp_explanation){.cause = ESP_CAUSE_NEVER_SEEN, .n_prompt = request->n_tokens,
                                                .have = ESP_TOKEN_NONE, .want = ESP_TOKEN_NONE};
    return ESP_OK;
}

int64_t esp_retry_after_ns(esp_engine *engine)
{
    return 500000000;
}

void esp_cancel(esp_engine *engine, esp_request_id id)
{
    pthread_mutex_lock(&engine->lock);
    for (uint32_t idx = 0; idx < REQUESTS_MAX; idx++) {
        struct fake_request *r = &engine->requests[idx];
        for (uint32_t branch = 0; branch < 64 && r->used && r->id == id; branch++) {
            if (branch < r->request.n) {
                finish(engine, r, branch, ESP_FINISH_CANCELLED);
            }
        }
    }
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
}

void esp_stop(esp_engine *engine, esp_request_id id, uint32_t branch)
{
    pthread_mutex_lock(&engine->lock);
    for (uint32_t idx = 0; idx < REQUESTS_MAX; idx++) {
        struct fake_request *r = &engine->requests[idx];
        if (r->used && r->id == id && branch < r->request.n) {
            finish(engine, r, branch, ESP_FINISH_STOP);
        }
    }
    pthread_cond_signal(&engine->work);
    pthread_mutex_unlock(&engine->lock);
}

bool esp_poll(esp_engine *engine, int64_t timeout_ns, struct esp_event *ret_event)
{
    int64_t until_ns = esp_cond_until(timeout_ns);
    pthread_mutex_lock(&engine->lock);
    while (engine->n_events == 0 && !engine->woken && esp_cond_wait(&engine->some, &engine->lock, until_ns)) {
    }
    engine->woken = false;
    bool got = engine->n_events > 0;
    if (got) {
        *ret_event = engine->events[engine->head];
        engine->head = (engine->head + 1) % EVENTS_MAX;
        engine->n_events--;
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
    return got;
}

void esp_wake(esp_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->woken = true;
    pthread_cond_signal(&engine->some);
    pthread_mutex_unlock(&engine->lock);
}

/* The vector tells the tokens: their number, their sum, the first, the last, and what was asked for. */
esp_status esp_embed(esp_engine *engine, const uint32_t *tokens, uint32_t n_tokens, enum esp_pooling pooling,
                     float *ret_vector, struct esp_err *err)
{
    if (n_tokens > engine->config.n_ctx) {
        return esp_fail(err, ESP_ELIMIT, "%u tokens, but the context is %u", n_tokens, engine->config.n_ctx);
    }
    float sum = 0;
    for (uint32_t idx = 0; idx < n_tokens; idx++) {
        sum += (float)tokens[idx];
    }
    const float vector[FAKE_EMBD] = {(float)n_tokens, sum, (float)tokens[0], (float)tokens[n_tokens - 1],
                                     pooling == ESP_POOL_MEAN ? 1 : 2};
    memcpy(ret_vector, vector, sizeof vector);
    return ESP_OK;
}

uint32_t esp_cache_flush(esp_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < engine->n_seen; idx++) {
        n += engine->seen[idx].n / PAGE;
        esp_free(engine->seen[idx].ids);
    }
    engine->n_seen = 0;
    pthread_mutex_unlock(&engine->lock);
    return n;
}

esp_status esp_cache_dump(esp_engine *engine, uint32_t limit, char **ret_text, struct esp_err *err)
{
    static const char text[] = "{\"pages\":{\"free\":8192},\"namespaces\":[],\"nodes\":[],\"truncated\":false}";
    *ret_text = esp_strndup(ESP_TAG_ENGINE, text, sizeof text - 1);
    return ESP_OK;
}

void esp_text_free(char *text)
{
    esp_free(text);
}

void esp_get_metrics(esp_engine *engine, struct esp_metrics *ret_metrics)
{
    pthread_mutex_lock(&engine->lock);
    struct esp_metrics m = engine->metrics;
    m.kv_pages_total = PAGES_TOTAL;
    for (uint32_t idx = 0; idx < REQUESTS_MAX; idx++) {
        const struct fake_request *r = &engine->requests[idx];
        m.requests_running += r->used && r->running;
        m.requests_waiting += r->used && !r->running;
        m.kv_pages_leased += r->used ? (r->request.n_tokens + PAGE - 1) / PAGE : 0;
    }
    m.kv_pages[ESP_PAGES_PRIVATE] = m.kv_pages_leased;
    m.kv_pages[ESP_PAGES_FREE] = PAGES_TOTAL - m.kv_pages_leased;
    m.ttft.first_s = m.inter_token.first_s = m.mask.first_s = m.compile.first_s = m.step.first_s = 1e-6;
    pthread_mutex_unlock(&engine->lock);
    *ret_metrics = m;
}

/* The scripted engine keeps no pages, so it does not matter what becomes of them. */
void esp_turn_over(esp_engine *engine, esp_request_id id, bool comes_back)
{
    (void)engine;
    (void)id;
    (void)comes_back;
}
