/* Generations: creating, submitting, cancelling, and counting what the engine reports.
 *
 * The dispatcher and the work thread meet under the generation's lock: until `started` the work thread
 * answers (a refused submit is a plain error), afterwards the dispatcher does. Engine calls are made outside
 * the lock. Does not know how text is framed.
 */
#include "frontend/generate.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "frontend/http.h"

#define ARENA_BYTES_MAX (64u * 1024u * 1024u)

static uint64_t random_u64(void)
{
    uint64_t bits = 0;
    ssize_t n = getrandom(&bits, sizeof bits, 0);
    (void)n; /* small reads do not fail */
    return bits;
}

bool esp_model_fits(struct esp_exchange *exchange, const json_t *request)
{
    const json_t *model = json_object_get(request, "model");
    if (model == NULL || json_is_null(model)) {
        return true;
    }
    if (!json_is_string(model)) {
        esp_exchange_fail(exchange, 400, "model", "invalid_value", "'model' must be a string");
        return false;
    }
    const struct esp_server *server = exchange->server;
    if (server->options->strict_model && strcmp(json_string_value(model), server->model_name) != 0) {
        esp_exchange_fail(exchange, 404, "model", "model_not_found", "this server has the model '%s' only",
                          server->model_name);
        return false;
    }
    return true;
}

static struct esp_request_source source_of(const struct esp_generation *gen, unsigned api_bit, const json_t *request,
                                           const char *text, size_t n_bytes)
{
    return (struct esp_request_source){.json = request,
                                       .text = text,
                                       .n_bytes = n_bytes,
                                       .n_vocab = esp_vocab_n_tokens(gen->vocab),
                                       .api = api_bit,
                                       .strict_fields = gen->exchange->server->options->strict_fields,
                                       .lenient = gen->exchange->server->options->lenient_schema,
                                       .random_seed = random_u64()};
}

static bool parse(struct esp_generation *gen, const struct esp_request_source *source)
{
    struct esp_err err = {0};
    if (esp_request_parse(source, &gen->arena, &gen->params, &err) != ESP_OK) {
        esp_exchange_fail_err(gen->exchange, &err, NULL);
        return false;
    }
    return true;
}

/* Appends what is forced to the prompt, and keeps what the answer will be remembered with. */
static esp_status remember_prompt(struct esp_generation *gen, const struct esp_chat *chat, struct esp_prompt *prompt,
                                  struct esp_err *err)
{
    const struct esp_buf *text = &prompt->rendered.text;
    gen->chat = chat;
    gen->key = prompt->key;
    gen->lead_bytes = text->n - prompt->lead_at;
    gen->lead = esp_arena_strndup(&gen->arena, text->data + prompt->lead_at, gen->lead_bytes);
    if (gen->lead == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    if (gen->plan.forced.n == 0) {
        return ESP_OK;
    }
    uint32_t n_before = esp_prompt_n_tokens(prompt), last = 0;
    memcpy(&last, prompt->ids.data + prompt->ids.n - sizeof last, sizeof last);
    esp_status status = esp_chat_append(chat, &gen->plan.forced, prompt, err);
    const uint32_t *ids = (const uint32_t *)(const void *)prompt->ids.data;
    if (status != ESP_OK || esp_prompt_n_tokens(prompt) <= n_before || ids[n_before - 1] != last) {
        gen->chat = NULL; /* tokens across the border: it cannot be put together again */
        return status;
    }
    gen->n_forced_ids = esp_prompt_n_tokens(prompt) - n_before;
    uint32_t *copy = esp_arena_alloc(&gen->arena, gen->n_forced_ids, sizeof *copy);
    if (copy == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    memcpy(copy, ids + n_before, gen->n_forced_ids * sizeof *copy);
    gen->forced_ids = copy;
    return ESP_OK;
}

esp_status esp_generation_plan(struct esp_generation *gen, const struct esp_chat *chat, const json_t *request,
                               const char *text, size_t n_bytes, struct esp_prompt *prompt, struct esp_err *err)
{
    struct esp_request_source source = source_of(gen, ESP_API_CHAT, request, text, n_bytes);
    esp_status status = esp_plan_make(chat, &source, prompt, &gen->arena, &gen->params, &gen->plan, err);
    return status == ESP_OK ? remember_prompt(gen, chat, prompt, err) : status;
}

struct esp_generation *esp_generation_create(struct esp_exchange *exchange, const struct esp_gen_api *api,
                                             void *state, unsigned api_bit, const json_t *request, const char *text,
                                             size_t n_bytes)
{
    struct esp_generation *gen = esp_calloc(ESP_TAG_HTTP, 1, sizeof *gen);
    if (gen == NULL || pthread_mutex_init(&gen->lock, NULL) != 0) {
        esp_free(gen);
        if (api->drop != NULL) {
            api->drop(state);
        }
        esp_exchange_fail(exchange, 500, NULL, "internal_error", "out of memory");
        return NULL;
    }
    gen->exchange = exchange;
    gen->api = api;
    gen->state = state;
    gen->vocab = esp_engine_vocab(esp_exchange_engine(exchange));
    gen->created_s = (int64_t)time(NULL);
    snprintf(gen->id, sizeof gen->id, "%s%016llx%08llx", api->id_prefix, (unsigned long long)random_u64(),
             (unsigned long long)(random_u64() & 0xffffffffu));
    esp_arena_init(&gen->arena, ESP_TAG_HTTP, ARENA_BYTES_MAX);
    pthread_mutex_lock(&exchange->lock);
    exchange->gen = gen;
    pthread_mutex_unlock(&exchange->lock);
    struct esp_request_source source = source_of(gen, api_bit, request, text, n_bytes);
    if (!esp_model_fits(exchange, request) || !parse(gen, &source)) {
        return NULL;
    }
    gen->runs = esp_arena_alloc(&gen->arena, ESP_PROMPTS_MAX, sizeof *gen->runs);
    if (gen->runs == NULL) {
        esp_exchange_fail(exchange, 500, NULL, "internal_error", "out of memory");
        return NULL;
    }
    return gen;
}

void esp_generation_destroy(struct esp_generation *gen)
{
    if (gen == NULL) {
        return;
    }
    for (uint32_t idx = 0; idx < gen->n_choices; idx++) {
        esp_choice_finish(&gen->choices[idx]);
    }
    if (gen->api->drop != NULL) {
        gen->api->drop(gen->state);
    }
    esp_grammar_unref(gen->grammar);
    esp_fork_finish(gen);
    esp_buf_finish(&gen->params.warnings);
    esp_arena_finish(&gen->arena);
    pthread_mutex_destroy(&gen->lock);
    esp_free(gen);
}

esp_status esp_generation_marks(struct esp_generation *gen, const struct esp_cache_marks *marks, struct esp_err *err)
{
    struct esp_cache_marks *copy = esp_arena_alloc(&gen->arena, 1, sizeof *copy);
    if (copy == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    *copy = *marks;
    gen->runs[gen->n_runs - 1].marks = copy;
    if (marks->n_lost > 0) {
        esp_request_warn(&gen->params.warnings, "cache_mark_not_placed", "messages",
                         "the template does not show where a marked part ends, so nothing was pinned for it");
    }
    return ESP_OK;
}

esp_status esp_generation_prompt(struct esp_generation *gen, const uint32_t *ids, uint32_t n_ids, struct esp_err *err)
{
    const char *param = gen->api->prompt_param;
    if (gen->n_runs == ESP_PROMPTS_MAX || (gen->n_runs + 1) * gen->params.n > ESP_CHOICES_MAX) {
        esp_fail(err, ESP_ELIMIT, "more than %u answers in one request", ESP_CHOICES_MAX);
    } else if (n_ids == 0) {
        esp_fail(err, ESP_EINVAL, "the prompt has no tokens");
    } else {
        uint32_t *copy = esp_arena_alloc(&gen->arena, n_ids, sizeof *copy);
        if (copy != NULL) {
            memcpy(copy, ids, n_ids * sizeof *copy);
            struct esp_run *run = &gen->runs[gen->n_runs];
            *run = (struct esp_run){.gen = gen, .ids = copy, .n_ids = n_ids, .prompt_idx = gen->n_runs};
            pthread_mutex_lock(&gen->lock);
            gen->n_runs++;
            pthread_mutex_unlock(&gen->lock);
            return ESP_OK;
        }
        esp_fail(err, ESP_ELIMIT, "the prompts do not fit %u bytes", ARENA_BYTES_MAX);
    }
    esp_err_place(err, "%s", param);
    return ESP_EINVAL;
}

static bool make_choices(struct esp_generation *gen)
{
    uint32_t n = gen->n_runs * gen->params.n;
    struct esp_choice *choices = esp_arena_alloc(&gen->arena, n, sizeof *choices);
    if (choices == NULL) {
        return false;
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        esp_choice_init(&choices[idx], gen, idx);
    }
    pthread_mutex_lock(&gen->lock); /* a client that hangs up now has its figures logged */
    gen->choices = choices;
    gen->n_choices = n;
    pthread_mutex_unlock(&gen->lock);
    return true;
}

void esp_grammar_code(const struct esp_err *err, char *ret_code, size_t room)
{
    snprintf(ret_code, room, "grammar_%s", esp_status_name(err->code));
    for (char *at = ret_code; *at != '\0'; at++) {
        *at = *at >= 'A' && *at <= 'Z' ? (char)(*at + 'a' - 'A') : *at;
    }
}

/* A refusal names the field, the place inside it, and the keyword. */
static void refuse_grammar(struct esp_generation *gen, struct esp_err *err)
{
    char param[320], field[64], code[48];
    snprintf(field, sizeof field, "%s", gen->params.constraint.param);
    if (strcmp(gen->params.constraint.kind, "regions") == 0) {
        esp_plan_blame(gen->vocab, &gen->plan, err, field, sizeof field);
    }
    bool inside = err->place[0] == '/';
    snprintf(param, sizeof param, "%s%s", field, inside ? err->place : "");
    esp_grammar_code(err, code, sizeof code);
    int status = err->code == ESP_ENOMEM || err->code == ESP_EINTERNAL ? 500 : 400;
    esp_exchange_fail(gen->exchange, status, param, code, "%s%s%s%s%s%s%s%s", err->message, inside ? " at " : "",
                      inside ? err->place : "", err->keyword[0] != '\0' ? " (keyword " : "", err->keyword,
                      err->keyword[0] != '\0' ? ")" : "", err->hint[0] != '\0' ? "; " : "", err->hint);
}

static bool compile(struct esp_generation *gen)
{
    const struct esp_constraint *constraint = &gen->params.constraint;
    if (constraint->kind == NULL) {
        return true;
    }
    struct esp_err err = {0};
    if (esp_vocab_grammar(gen->vocab, constraint->kind, constraint->text, constraint->n_bytes, constraint->options,
                          &gen->grammar, &err) != ESP_OK) {
        refuse_grammar(gen, &err);
        return false;
    }
    const char *items = esp_grammar_warnings(gen->grammar);
    size_t n = items == NULL ? 0 : strlen(items);
    if (n > 2) { /* more than "[]" */
        struct esp_buf *warnings = &gen->params.warnings;
        esp_buf_add(warnings, ",", warnings->n > 0);
        esp_buf_add(warnings, items + 1, n - 2);
    }
    return true;
}

static esp_status submit(struct esp_run *run, struct esp_err *err)
{
    struct esp_generation *gen = run->gen;
    const struct esp_params *params = &gen->params;
    struct esp_request request = {.tokens = run->ids,
                                  .n_tokens = run->n_ids,
                                  .n_max = params->n_max,
                                  .n = params->n,
                                  .sampling = params->sampling,
                                  .grammar = gen->grammar,
                                  .cache_salt = params->cache_salt,
                                  .cache_salt_bytes = params->cache_salt_bytes,
                                  .cache_key = params->cache.key,
                                  .cache_key_bytes = params->cache.key_bytes,
                                  .session = params->cache.session,
                                  .session_bytes = params->cache.session_bytes,
                                  .comes_back = params->cache.done == ESP_DONE_FALSE,
                                  .ignore_end = params->ignore_end,
                                  .tenant = params->tenant,
                                  .tenant_bytes = params->tenant_bytes,
                                  .priority = params->priority,
                                  .timeout_ns = params->timeout_ns,
                                  .user = run};
    struct esp_pin whole = {run->n_ids, params->cache.ttl_ns};
    if (run->marks == NULL && params->cache.pins_all) { /* completions: there is nothing to mark */
        request.pins = &whole;
        request.n_pins = 1;
    }
    if (run->marks != NULL) {
        request.n_head = run->marks->n_head;
        request.pins = run->marks->pins;
        request.n_pins = run->marks->n_pins;
    }
    if (gen->scores != NULL) {
        request.labels = gen->scores->labels;
        request.n_labels = gen->scores->n;
    }
    if (gen->exchange->tenant != NULL) {
        request.tenant = gen->exchange->tenant;
        request.tenant_bytes = strlen(gen->exchange->tenant);
    }
    request.sampling.seed += (uint64_t)run->prompt_idx * params->n;
    esp_exchange_ref(gen->exchange);
    esp_request_id id = 0;
    esp_status status = gen->n_fork > 0 ? esp_fork_submit(gen, &request, &id, err)
                                        : esp_submit(esp_exchange_engine(gen->exchange), &request, &id, err);
    if (status != ESP_OK) {
        esp_exchange_unref(gen->exchange);
        return status;
    }
    pthread_mutex_lock(&gen->lock);
    run->id = id;
    run->submitted = true;
    bool cancelled = run->cancelled;
    pthread_mutex_unlock(&gen->lock);
    if (cancelled) {
        esp_cancel(esp_exchange_engine(gen->exchange), id);
    }
    return ESP_OK;
}

/* A run has all its branches done, or everything was submitted. The last one to close answers. */
static void close_one(struct esp_generation *gen)
{
    gen->n_runs_open--;
    if (gen->n_runs_open == 0 && gen->started) {
        esp_generation_answer(gen);
    }
}

static void refuse_submit(struct esp_generation *gen, const struct esp_err *err)
{
    pthread_mutex_lock(&gen->lock);
    gen->failed = true; /* events of runs that were submitted are only counted */
    pthread_mutex_unlock(&gen->lock);
    esp_generation_cancel(gen);
    if (err->code == ESP_ELIMIT) {
        esp_exchange_fail(gen->exchange, 400, gen->api->prompt_param, "context_length_exceeded", "%s", err->message);
    } else {
        esp_exchange_fail_err(gen->exchange, err, gen->api->prompt_param);
    }
    if (err->code == ESP_EBUSY) {
        gen->exchange->retry_after_ms = (uint32_t)(esp_retry_after_ns(esp_exchange_engine(gen->exchange)) / 1000000);
    }
}

/* A client that hangs up after this is seen by the cancelling of runs, all of which exist by now. */
static bool client_gone(struct esp_exchange *exchange)
{
    if (esp_watch_hung_up(exchange->server, exchange)) {
        esp_exchange_hang_up(exchange);
    }
    pthread_mutex_lock(&exchange->lock);
    bool gone = exchange->gone;
    pthread_mutex_unlock(&exchange->lock);
    return gone;
}

void esp_generation_start(struct esp_generation *gen)
{
    struct esp_exchange *exchange = gen->exchange;
    struct esp_err err = {0};
    if (esp_scores_make(gen, &err) != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, "choice_scores");
        return;
    }
    if (!compile(gen) || !esp_fork_compile(gen)) {
        return;
    }
    if (!make_choices(gen)) {
        esp_exchange_fail(exchange, 500, NULL, "internal_error", "out of memory");
        return;
    }
    if (gen->params.stream) {
        exchange->stream = true;
        exchange->content_type = "text/event-stream";
    }
    esp_generation_first(gen);
    if (client_gone(exchange)) {
        esp_exchange_fail(exchange, 503, NULL, "cancelled", "the client is gone"); /* nobody reads this */
        return;
    }
    gen->n_runs_open = gen->n_runs + 1;
    for (uint32_t idx = 0; idx < gen->n_runs; idx++) {
        if (submit(&gen->runs[idx], &err) != ESP_OK) {
            refuse_submit(gen, &err);
            return;
        }
    }
    pthread_mutex_lock(&gen->lock);
    gen->started = true;
    pthread_mutex_unlock(&gen->lock);
    if (gen->params.stream) {
        esp_exchange_ready(exchange);
    }
    pthread_mutex_lock(&gen->lock);
    close_one(gen);
    pthread_mutex_unlock(&gen->lock);
}

bool esp_generation_owns_answer(const struct esp_generation *gen)
{
    return gen->started; /* asked by the work thread, which set it */
}

void esp_generation_cancel(struct esp_generation *gen)
{
    pthread_mutex_lock(&gen->lock);
    uint32_t n_runs = gen->n_runs;
    pthread_mutex_unlock(&gen->lock);
    for (uint32_t idx = 0; idx < n_runs; idx++) {
        struct esp_run *run = &gen->runs[idx];
        pthread_mutex_lock(&gen->lock);
        bool now = run->submitted && !run->cancelled && run->n_done < gen->params.n;
        run->cancelled = true;
        esp_request_id id = run->id;
        pthread_mutex_unlock(&gen->lock);
        if (now) {
            esp_cancel(esp_exchange_engine(gen->exchange), id);
        }
    }
}

static void branch_done(struct esp_run *run, struct esp_choice *choice, const struct esp_event *event)
{
    struct esp_generation *gen = run->gen;
    run->n_done++;
    run->n_cached += (event->branch == 0 ? event->n_cached : 0) + event->n_cached_suffix;
    esp_scores_take(run, event->scores);
    if (event->branch == 0) {
        run->why = event->why;
    }
    run->n_written = event->n_written;
    run->n_refused = event->n_refused;
    if (choice->finish != NULL || gen->failed) {
        return;
    }
    switch (event->finish) {
    case ESP_FINISH_STOP: esp_choice_done(choice, "stop"); break;
    case ESP_FINISH_LENGTH: esp_choice_done(choice, "length"); break;
    case ESP_FINISH_TIMEOUT: esp_generation_error(gen, 504, event->error); break;
    case ESP_FINISH_CANCELLED: esp_generation_error(gen, 503, "the request was cancelled"); break;
    default: esp_generation_error(gen, 500, event->error); break;
    }
}

/* Whether the conversation goes on, once every branch of the run has been read: what the client says, else whether a
 * tool was called. */
static bool comes_back(const struct esp_run *run)
{
    const struct esp_generation *gen = run->gen;
    bool called = false;
    for (uint32_t idx = 0; idx < gen->params.n; idx++) {
        called = called || gen->choices[run->prompt_idx * gen->params.n + idx].turn.n_calls > 0;
    }
    return gen->params.cache.done == ESP_DONE_UNSAID ? called : gen->params.cache.done == ESP_DONE_FALSE;
}

void esp_generation_event(struct esp_run *run, const struct esp_event *event)
{
    struct esp_generation *gen = run->gen;
    struct esp_exchange *exchange = gen->exchange;
    pthread_mutex_lock(&gen->lock);
    struct esp_choice *choice = &gen->choices[run->prompt_idx * gen->params.n + event->branch];
    bool stopped = false;
    if (event->kind == ESP_EVENT_DONE) {
        branch_done(run, choice, event);
    } else if (choice->finish == NULL && !gen->failed) {
        if (gen->first_ns == 0) {
            gen->first_ns = esp_clock_now(&exchange->server->clock);
        }
        esp_choice_token(choice, event);
        stopped = choice->finish != NULL;
    }
    bool last = event->kind == ESP_EVENT_DONE && run->n_done == gen->params.n;
    bool failed = gen->failed;
    bool returns = last && comes_back(run);
    if (last) {
        close_one(gen);
    }
    pthread_mutex_unlock(&gen->lock);
    if (last) {
        esp_turn_over(esp_exchange_engine(exchange), event->id, returns);
    }
    if (stopped) { /* by a stop string: the engine need not go on with this branch */
        esp_stop(esp_exchange_engine(exchange), event->id, event->branch);
    }
    if (failed) {
        esp_generation_cancel(gen);
    }
    if (last) {
        esp_exchange_unref(exchange);
    }
}

void esp_generation_figures(struct esp_generation *gen, struct esp_figures *ret_figures)
{
    pthread_mutex_lock(&gen->lock);
    struct esp_figures figures = {.finish = "cancelled", .ttft_ns = -1};
    esp_generation_usage(gen, &figures.usage);
    if (gen->n_runs > 0) {
        figures.why = gen->runs[0].why;
    }
    if (gen->failed) {
        figures.finish = "error";
    } else if (gen->n_choices > 0 && gen->choices[0].finish != NULL) {
        figures.finish = gen->choices[0].finish;
    }
    if (gen->first_ns != 0) {
        figures.ttft_ns = gen->first_ns - gen->exchange->begin_ns;
    }
    pthread_mutex_unlock(&gen->lock);
    *ret_figures = figures;
}
