/* See desk.h. */
#include "tests/sim/desk.h"

#include <string.h>

bool desk_init(struct desk *desk, uint32_t n_pages, uint32_t n_batch_max, uint32_t chunk)
{
    memset(desk, 0, sizeof *desk);
    desk->n_limit = n_pages * ESP_TREE_PAGE_TOKENS;
    struct esp_tree_config tree = {.n_pages = n_pages, .seed = 1, .hash_bits = 128};
    if (esp_tree_create(&tree, &desk->tree, NULL) != ESP_OK) {
        return false;
    }
    struct esp_lease_ctx lease = {.tree = desk->tree, .model_id = "m", .model_id_bytes = 1};
    struct esp_sched_config config = {n_batch_max, chunk};
    return esp_sched_init(&desk->sched, &lease, &config) == ESP_OK;
}

void desk_finish(struct desk *desk)
{
    esp_sched_finish(&desk->sched);
    esp_tree_destroy(desk->tree);
}

struct esp_job *desk_add(struct desk *desk, const uint32_t *tokens, uint32_t n_tokens, const struct desk_work *work)
{
    struct esp_request request = {.tokens = tokens, .n_tokens = n_tokens, .n_max = work->n_max, .n = 1,
                                  .sampling = esp_sampling_default(), .priority = work->priority,
                                  .tenant = work->tenant,
                                  .tenant_bytes = work->tenant == NULL ? 0 : strlen(work->tenant)};
    struct esp_job_limits limits = {desk->n_limit, desk->n_limit, DESK_VOCAB, DESK_VOCAB};
    struct esp_job_spec spec = {.request = &request, .idle = work->idle};
    struct esp_job *job = NULL;
    if (esp_job_create(&spec, &limits, &job, NULL) != ESP_OK) {
        return NULL;
    }
    job->submit_ns = desk->now_ns;
    job->deadline_ns = work->timeout_ns == 0 ? INT64_MAX : desk->now_ns + work->timeout_ns;
    job->seqs[0].arrival = desk->arrival++;
    esp_sched_add(&desk->sched, &job->seqs[0]);
    return job;
}

const struct esp_plan *desk_plan(struct desk *desk)
{
    desk->sched.now_ns = desk->now_ns;
    esp_tree_set_now(desk->tree, desk->now_ns);
    esp_sched_admit(&desk->sched);
    esp_sched_plan(&desk->sched);
    return &desk->sched.plan;
}

void desk_compute(struct desk *desk)
{
    const struct esp_plan *plan = &desk->sched.plan;
    esp_sched_end_copies(&desk->sched);
    for (uint32_t i = 0; i < plan->n_items; i++) {
        plan->items[i].seq->n_computed = plan->items[i].from + plan->items[i].n;
        esp_lease_publish(&desk->sched.lease, plan->items[i].seq, plan->items[i].n_announced);
    }
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct esp_seq *seq = plan->items[i].seq;
        esp_lease_enter(&desk->sched.lease, seq);
        if (plan->items[i].wants_logits) {
            if (seq->state == ESP_SEQ_PREFILL) {
                esp_seq_move(seq, ESP_SEQ_DECODE);
            }
            seq->tokens[seq->n_tokens] = (uint32_t)(seq->arrival * 7 + seq->n_tokens) % DESK_VOCAB;
            seq->n_tokens++;
        }
    }
}

void desk_end(struct desk *desk, struct esp_job *job, enum esp_evict_class class)
{
    if (job->seqs[0].state != ESP_SEQ_DONE) {
        esp_sched_remove(&desk->sched, &job->seqs[0], class);
    }
    esp_job_destroy(job);
}
