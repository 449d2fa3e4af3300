/* Why the cache has no more of a prompt: for each request when it is admitted, and for questions that run nothing.
 *
 * Thread: the asking half is any, the rest the engine's. What a miss means for a conversation is the client's to tell;
 * here are tokens only.
 */
#include <string.h>

#include "runtime/engine_impl.h"

#define SPACES_OF_A_QUESTION ESP_TREE_NAMESPACES_MAX

static enum esp_cause cause_of(const struct esp_tree_why *why, uint32_t n_pending)
{
    if (why->n_found >= why->n_wanted) {
        return ESP_CAUSE_HIT;
    }
    if (n_pending > why->n_found) {
        return ESP_CAUSE_PENDING;
    }
    if (why->n_evicted > 0) {
        return ESP_CAUSE_EVICTED;
    }
    return why->n_elsewhere > why->n_found ? ESP_CAUSE_OTHER_NAMESPACE : ESP_CAUSE_NEVER_SEEN;
}

void esp_explain_fill(const struct esp_tree_why *why, const uint32_t *tokens, uint32_t n_tokens, uint32_t n_pending,
                      int64_t now_ns, struct esp_explanation *ret_explanation)
{
    *ret_explanation = (struct esp_explanation){
        .cause = cause_of(why, n_pending),
        .n_prompt = n_tokens,
        .n_cached = why->n_found,
        .n_evicted = why->n_evicted,
        .n_elsewhere = why->n_elsewhere,
        .n_pending = n_pending > why->n_found ? n_pending - why->n_found : 0,
        .evicted_ago_ns = why->n_evicted > 0 ? now_ns - why->evicted_ns : 0,
        .have = why->diverges ? why->have : ESP_TOKEN_NONE,
        .want = why->diverges ? tokens[why->n_found] : ESP_TOKEN_NONE,
    };
}

static bool same_name(const void *a, size_t n_a, const void *b, size_t n_b)
{
    return (a == NULL) == (b == NULL) && n_a == n_b && (a == NULL || memcmp(a, b, n_a) == 0);
}

/* Tokens that a sequence in the engine has in common with the prompt, when its pages would be shared. */
static uint32_t n_common(const struct esp_seq *seq, const struct esp_request *request)
{
    const struct esp_job *job = seq->job;
    uint32_t n = 0;
    if (job->no_share || !same_name(job->salt, job->salt_bytes, request->cache_salt, request->cache_salt_bytes) ||
        !same_name(job->key, job->key_bytes, request->cache_key, request->cache_key_bytes)) {
        return 0;
    }
    while (n < seq->n_tokens && n < request->n_tokens && seq->tokens[n] == request->tokens[n]) {
        n++;
    }
    return n;
}

static uint32_t longest_in_work(const struct esp_engine *engine, const struct esp_request *request)
{
    const struct esp_sched *sched = &engine->sched;
    uint32_t best = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        uint32_t n = n_common(sched->running[i], request);
        best = n > best ? n : best;
    }
    for (uint32_t i = 0; i < sched->fair.n_tenants; i++) {
        for (const struct esp_seq *seq = sched->fair.tenants[i].head; seq != NULL; seq = seq->next) {
            uint32_t n = n_common(seq, request);
            best = n > best ? n : best;
        }
    }
    return best < request->n_tokens ? best : request->n_tokens - 1;
}

void esp_engine_explain(struct esp_engine *engine, struct esp_question *q)
{
    const struct esp_request *r = q->request;
    struct esp_job job = {.salt = r->cache_salt, .salt_bytes = r->cache_salt_bytes, .key = r->cache_key,
                          .key_bytes = r->cache_key_bytes};
    struct esp_seq seq = {.job = &job, .node = ESP_NODE_NONE, .n_tokens = r->n_tokens};
    struct esp_tree_why why;
    memcpy(&seq.tokens, &r->tokens, sizeof seq.tokens); /* nothing writes to them */
    esp_lease_explain(&engine->sched.lease, &seq, SPACES_OF_A_QUESTION, &why);
    esp_explain_fill(&why, r->tokens, r->n_tokens, longest_in_work(engine, r), esp_clock_now(&engine->clock),
                     q->explanation);
}

esp_status esp_explain(esp_engine *engine, const struct esp_request *request, struct esp_explanation *ret_explanation,
                       struct esp_err *err)
{
    if (request->tokens == NULL || request->n_tokens == 0) {
        return esp_fail(err, ESP_EINVAL, "no tokens");
    }
    struct esp_question question = {.msg.kind = ESP_MSG_EXPLAIN, .request = request, .explanation = ret_explanation};
    esp_engine_ask(engine, &question);
    return question.status;
}
