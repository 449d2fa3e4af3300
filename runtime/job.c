/* Checks and copies a request. See job.h. */
#include "runtime/job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/fair.h"

#define JOB_BYTES_MAX ((size_t)1 << 32)

static esp_status invalid(struct esp_err *err, const char *place, const char *what)
{
    esp_fail(err, ESP_EINVAL, "%s %s", place, what);
    esp_err_place(err, "%s", place);
    return ESP_EINVAL;
}

static bool within(float value, float min, float max)
{
    return isfinite(value) && value >= min && value <= max;
}

static esp_status check_sampling(const struct esp_sampling *s, uint32_t n_vocab, struct esp_err *err)
{
    const struct {
        const char *name;
        float value, min, max;
    } ranges[] = {
        {"temperature", s->temperature, 0, 1000},
        {"top_p", s->top_p, 0, 1},
        {"min_p", s->min_p, 0, 1},
        {"repetition_penalty", s->repetition_penalty, 1e-3f, 1e3f},
        {"presence_penalty", s->presence_penalty, -100, 100},
        {"frequency_penalty", s->frequency_penalty, -100, 100},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (!within(ranges[i].value, ranges[i].min, ranges[i].max)) {
            return invalid(err, ranges[i].name, "is out of range");
        }
    }
    if (s->n_top_logprobs > ESP_TOP_LOGPROBS_MAX) {
        return invalid(err, "n_top_logprobs", "is above 20");
    }
    if (s->n_bias > ESP_JOB_BIAS_MAX || (s->n_bias > 0 && (s->bias == NULL || s->bias_ids == NULL))) {
        return invalid(err, "n_bias", "is above 1024, or the arrays are missing");
    }
    for (uint32_t i = 0; i < s->n_bias; i++) {
        if (s->bias_ids[i] >= n_vocab || !isfinite(s->bias[i])) {
            return invalid(err, "bias", "names an id outside the vocabulary, or is not finite");
        }
    }
    return ESP_OK;
}

/* What concerns the cache. */
static esp_status check_kept(const struct esp_request *r, struct esp_err *err)
{
    if (r->cache_salt != NULL && r->cache_salt_bytes > ESP_JOB_SALT_BYTES_MAX) {
        return invalid(err, "cache_salt", "is longer than 1024 bytes");
    }
    if (r->cache_key != NULL && r->cache_key_bytes > ESP_JOB_SALT_BYTES_MAX) {
        return invalid(err, "cache_key", "is longer than 1024 bytes");
    }
    if (r->session != NULL && r->session_bytes > ESP_JOB_SALT_BYTES_MAX) {
        return invalid(err, "session", "is longer than 1024 bytes");
    }
    if (r->n_pins > ESP_PINS_MAX || (r->n_pins > 0 && r->pins == NULL)) {
        return invalid(err, "n_pins", "is above 16, or the array is missing");
    }
    for (uint32_t i = 0; i < r->n_pins; i++) {
        const struct esp_pin *pin = &r->pins[i];
        if (pin->n_tokens > r->n_tokens || pin->ttl_ns < 1 || (i > 0 && pin->n_tokens < r->pins[i - 1].n_tokens)) {
            return invalid(err, "pins", "must lie within the prompt, in order, with a time of at least 1");
        }
    }
    return ESP_OK;
}

/* tokens: the prompt of one branch, n of it from place `from` on. */
static esp_status check_tokens(const uint32_t *tokens, uint32_t n, uint32_t from, const struct esp_job_limits *limits,
                               const char *place, struct esp_err *err)
{
    esp_status status = ESP_OK;
    for (uint32_t i = 0; i < n && status == ESP_OK; i++) {
        if (tokens[i] >= limits->n_vocab) {
            status = esp_fail(err, ESP_EINVAL, "token %u at position %u is outside the vocabulary of %u", tokens[i],
                              from + i, limits->n_vocab);
        }
    }
    uint64_t n_all = (uint64_t)from + n;
    if (status == ESP_OK && n_all >= limits->n_ctx) {
        status = esp_fail(err, ESP_ELIMIT, "the prompt has %llu tokens and the context is %u tokens, which must hold "
                          "at least one more", (unsigned long long)n_all, limits->n_ctx);
    } else if (status == ESP_OK && n_all >= limits->n_pool) {
        status = esp_fail(err, ESP_ELIMIT, "the prompt has %llu tokens and the page pool holds %u tokens, which must "
                          "include at least one more", (unsigned long long)n_all, limits->n_pool);
    }
    if (status != ESP_OK) {
        esp_err_place(err, "%s", place);
    }
    return status;
}

static esp_status check_branches(const struct esp_job_spec *spec, const struct esp_job_limits *limits,
                                 struct esp_err *err)
{
    esp_status status = ESP_OK;
    if (spec->branches == NULL) {
        return ESP_OK;
    }
    if (spec->n_branches == 0 || spec->n_branches > ESP_JOB_BRANCHES_MAX) {
        return invalid(err, "branches", "are not 1 to 64");
    }
    for (uint32_t i = 0; i < spec->n_branches && status == ESP_OK; i++) {
        const struct esp_branch *branch = &spec->branches[i];
        char place[48];
        snprintf(place, sizeof place, "branches[%u].suffix", i);
        if (branch->n_suffix > 0 && branch->suffix == NULL) {
            return invalid(err, place, "is missing");
        }
        status = check_tokens(branch->suffix, branch->n_suffix, spec->request->n_tokens, limits, place, err);
    }
    return status;
}

static esp_status check_labels(const struct esp_job_spec *spec, const struct esp_job_limits *limits,
                               struct esp_err *err)
{
    const struct esp_request *r = spec->request;
    uint32_t n_prompt = r->n_tokens + (spec->branches == NULL ? 0 : spec->branches[0].n_suffix); /* that is scored */
    uint32_t n_room = limits->n_ctx < limits->n_pool ? limits->n_ctx : limits->n_pool;
    if (r->n_labels > ESP_LABELS_MAX || (r->n_labels > 0 && r->labels == NULL)) {
        return invalid(err, "n_labels", "is above 1024, or the array is missing");
    }
    for (uint32_t i = 0; i < r->n_labels; i++) {
        const struct esp_label *label = &r->labels[i];
        if (label->tokens == NULL || label->n_tokens == 0 || label->n_tokens > ESP_LABEL_TOKENS_MAX) {
            return invalid(err, "labels", "must have 1 to 256 tokens each");
        }
        for (uint32_t token = 0; token < label->n_tokens; token++) {
            if (label->tokens[token] >= limits->n_vocab) {
                return invalid(err, "labels", "have a token outside the vocabulary");
            }
        }
        /* Beside the prompt a path of its own needs the last page of it again, and its tokens. */
        if (n_prompt + label->n_tokens + 2 * ESP_TREE_PAGE_TOKENS > n_room) {
            esp_fail(err, ESP_ELIMIT, "a prompt of %u tokens and a label of %u do not fit the context of %u, with room "
                     "for two pages", n_prompt, label->n_tokens, n_room);
            esp_err_place(err, "labels");
            return ESP_ELIMIT;
        }
    }
    return ESP_OK;
}

static esp_status check_order(const struct esp_request *r, struct esp_err *err)
{
    if (r->priority < -ESP_JOB_PRIORITY_MAX || r->priority > ESP_JOB_PRIORITY_MAX) {
        return invalid(err, "priority", "is outside -100 to 100");
    }
    return r->timeout_ns < 0 ? invalid(err, "timeout_ns", "is negative") : ESP_OK;
}

static esp_status check(const struct esp_job_spec *spec, const struct esp_job_limits *limits, struct esp_err *err)
{
    const struct esp_request *r = spec->request;
    if (r->tokens == NULL || r->n_tokens == 0) {
        return invalid(err, "tokens", "is empty");
    }
    if (r->n_max == 0 && !spec->idle) {
        return invalid(err, "n_max", "is 0");
    }
    if (spec->branches == NULL && !spec->idle && (r->n == 0 || r->n > ESP_JOB_BRANCHES_MAX)) {
        return invalid(err, "n", "is outside 1 to 64");
    }
    esp_status status = check_kept(r, err);
    status = status == ESP_OK ? check_order(r, err) : status;
    status = status == ESP_OK ? check_tokens(r->tokens, r->n_tokens, 0, limits, "tokens", err) : status;
    status = status == ESP_OK ? check_branches(spec, limits, err) : status;
    status = status == ESP_OK ? check_labels(spec, limits, err) : status;
    return status == ESP_OK ? check_sampling(&r->sampling, limits->n_vocab, err) : status;
}

static void *copy(struct esp_arena *arena, const void *src, size_t n_bytes)
{
    void *dst = esp_arena_alloc(arena, n_bytes + 1, 1);
    if (dst != NULL && n_bytes > 0) {
        memcpy(dst, src, n_bytes);
    }
    return dst;
}

static bool copy_kept(struct esp_job *job, const struct esp_request *r)
{
    bool ok = true;
    if (r->cache_salt != NULL) {
        job->salt = copy(&job->arena, r->cache_salt, r->cache_salt_bytes);
        job->salt_bytes = r->cache_salt_bytes;
        ok = job->salt != NULL;
    }
    if (r->cache_key != NULL) {
        job->key = copy(&job->arena, r->cache_key, r->cache_key_bytes);
        job->key_bytes = r->cache_key_bytes;
        ok = ok && job->key != NULL;
    }
    job->session = r->session == NULL ? ESP_TREE_SESSION_NONE : esp_tree_named_session(r->session, r->session_bytes);
    job->comes_back = r->comes_back;
    bool keeps_prompt = r->n_head == 0 && r->session == NULL;
    job->n_head = (keeps_prompt || r->n_head > r->n_tokens ? r->n_tokens : r->n_head) / ESP_TREE_PAGE_TOKENS;
    job->pins = esp_arena_alloc(&job->arena, r->n_pins + 1, sizeof *job->pins);
    job->n_pins = job->pins == NULL ? 0 : r->n_pins;
    for (uint32_t i = 0; i < job->n_pins; i++) {
        job->pins[i] = (struct esp_job_pin){.n_pages = r->pins[i].n_tokens / ESP_TREE_PAGE_TOKENS,
                                            .ttl_ns = r->pins[i].ttl_ns};
    }
    return ok && job->pins != NULL;
}

static bool copy_options(struct esp_job *job, const struct esp_request *r)
{
    const struct esp_sampling *s = &r->sampling;
    job->sampling = *s;
    if (s->n_bias > 0) {
        job->sampling.bias_ids = copy(&job->arena, s->bias_ids, s->n_bias * sizeof *s->bias_ids);
        job->sampling.bias = copy(&job->arena, s->bias, s->n_bias * sizeof *s->bias);
        if (job->sampling.bias_ids == NULL || job->sampling.bias == NULL) {
            return false;
        }
    }
    return copy_kept(job, r);
}

static bool make_branch(struct esp_job *job, struct esp_seq *seq, const struct esp_job_spec *spec,
                        const struct esp_job_limits *limits)
{
    const struct esp_request *r = spec->request;
    const struct esp_branch plain = {.grammar = r->grammar};
    const struct esp_branch *branch = spec->branches == NULL ? &plain : &spec->branches[seq->branch];
    uint32_t room = (limits->n_ctx < limits->n_pool ? limits->n_ctx : limits->n_pool);
    uint32_t n_max = spec->idle ? 1 : branch->n_max == 0 ? r->n_max : branch->n_max;
    struct esp_outbox *outbox = &seq->outbox;
    seq->job = job;
    seq->node = ESP_NODE_NONE;
    seq->n_prompt = r->n_tokens + branch->n_suffix;
    seq->n_cap = seq->n_prompt + (n_max < room - seq->n_prompt ? n_max : room - seq->n_prompt);
    seq->n_counted = r->n_tokens;
    seq->tokens = esp_arena_alloc(&job->arena, seq->n_cap, sizeof *seq->tokens);
    seq->pages = esp_arena_alloc(&job->arena, esp_pages_for(seq->n_cap), sizeof *seq->pages);
    uint32_t n_new = seq->n_cap - seq->n_prompt;
    outbox->cap = n_new < ESP_OUTBOX_TOKENS_MAX ? n_new : ESP_OUTBOX_TOKENS_MAX;
    outbox->stride = 3 * sizeof(uint32_t) + job->sampling.n_top_logprobs * 2 * sizeof(uint32_t);
    outbox->ring = esp_arena_alloc(&job->arena, outbox->cap, outbox->stride);
    if (seq->tokens == NULL || seq->pages == NULL || outbox->ring == NULL) {
        return false;
    }
    memcpy(seq->tokens, r->tokens, r->n_tokens * sizeof *seq->tokens);
    if (branch->n_suffix > 0) {
        memcpy(seq->tokens + r->n_tokens, branch->suffix, branch->n_suffix * sizeof *seq->tokens);
    }
    seq->n_tokens = seq->n_prompt;
    seq->grammar = branch->grammar == NULL || spec->idle ? NULL : esp_grammar_ref(branch->grammar);
    return seq->grammar == NULL || esp_matcher_create(seq->grammar, &seq->matcher) == ESP_OK;
}

static bool make_branches(struct esp_job *job, const struct esp_job_spec *spec, const struct esp_job_limits *limits)
{
    const struct esp_request *r = spec->request;
    job->seqs = esp_arena_alloc(&job->arena, job->n_branches, sizeof *job->seqs);
    if (job->seqs == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < job->n_branches; i++) {
        job->seqs[i].branch = i;
        if (!make_branch(job, &job->seqs[i], spec, limits)) {
            return false;
        }
    }
    return r->n_labels == 0 || spec->idle ||
           esp_labels_create(&job->arena, r->labels, r->n_labels, job->seqs[0].n_prompt, limits->n_vocab_rows,
                             &job->labels) == ESP_OK;
}

esp_status esp_job_create(const struct esp_job_spec *spec, const struct esp_job_limits *limits,
                          struct esp_job **ret_job, struct esp_err *err)
{
    const struct esp_request *request = spec->request;
    esp_status status = check(spec, limits, err);
    if (status != ESP_OK) {
        return status;
    }
    struct esp_job *job = esp_calloc(ESP_TAG_ENGINE, 1, sizeof *job);
    if (job == NULL) {
        return esp_fail(err, ESP_ENOMEM, "no memory for a request");
    }
    esp_arena_init(&job->arena, ESP_TAG_ENGINE, JOB_BYTES_MAX);
    job->user = request->user;
    job->n_prompt = request->n_tokens;
    job->n_branches = spec->idle ? 1 : spec->branches == NULL ? request->n : spec->n_branches;
    job->ignore_end = request->ignore_end;
    job->idle = spec->idle;
    job->priority = request->priority;
    job->tenant = request->tenant == NULL ? 0 : esp_fair_key(request->tenant, request->tenant_bytes);
    job->timeout_ns = request->timeout_ns;
    job->deadline_ns = INT64_MAX;
    if (!copy_options(job, request) || !make_branches(job, spec, limits)) {
        esp_job_destroy(job);
        return esp_fail(err, ESP_ENOMEM, "no memory for a request of %u tokens", request->n_tokens);
    }
    job->n_pins = job->idle ? 0 : job->n_pins;
    *ret_job = job;
    return ESP_OK;
}

void esp_job_destroy(struct esp_job *job)
{
    if (job == NULL) {
        return;
    }
    for (uint32_t i = 0; job->seqs != NULL && i < job->n_branches; i++) {
        esp_matcher_destroy(job->seqs[i].matcher);
        esp_grammar_unref(job->seqs[i].grammar);
    }
    esp_arena_finish(&job->arena);
    esp_free(job);
}
