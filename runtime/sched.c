/* The planning policy. See sched.h. */
#include "runtime/sched.h"

#include <assert.h>
#include <string.h>

esp_status esp_sched_init(struct esp_sched *sched, const struct esp_lease_ctx *lease,
                          const struct esp_sched_config *config)
{
    memset(sched, 0, sizeof *sched);
    sched->lease = *lease;
    sched->config = *config;
    uint32_t n = config->n_batch_max;
    sched->running = esp_calloc(ESP_TAG_ENGINE, n, sizeof(struct esp_seq *));
    sched->plan.items = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.items);
    sched->plan.copy_src = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.copy_src);
    sched->plan.copy_dst = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.copy_dst);
    sched->plan.copy_nodes = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.copy_nodes);
    if (sched->running == NULL || sched->plan.items == NULL || sched->plan.copy_src == NULL ||
        sched->plan.copy_dst == NULL || sched->plan.copy_nodes == NULL) {
        esp_sched_finish(sched);
        return ESP_ENOMEM;
    }
    return ESP_OK;
}

void esp_sched_finish(struct esp_sched *sched)
{
    esp_free(sched->running);
    esp_free(sched->plan.items);
    esp_free(sched->plan.copy_src);
    esp_free(sched->plan.copy_dst);
    esp_free(sched->plan.copy_nodes);
    memset(sched, 0, sizeof *sched);
}

void esp_sched_add(struct esp_sched *sched, struct esp_seq *seq)
{
    struct esp_seq *after = sched->tail;
    while (after != NULL && after->arrival > seq->arrival) {
        after = after->prev;
    }
    struct esp_seq *before = after == NULL ? sched->head : after->next;
    seq->prev = after;
    seq->next = before;
    *(after == NULL ? &sched->head : &after->next) = seq;
    *(before == NULL ? &sched->tail : &before->prev) = seq;
}

static void unqueue(struct esp_sched *sched, struct esp_seq *seq)
{
    *(seq->prev == NULL ? &sched->head : &seq->prev->next) = seq->next;
    *(seq->next == NULL ? &sched->tail : &seq->next->prev) = seq->prev;
    seq->prev = NULL;
    seq->next = NULL;
}

void esp_sched_remove(struct esp_sched *sched, struct esp_seq *seq, enum esp_evict_class class)
{
    if (seq->state == ESP_SEQ_QUEUED) {
        unqueue(sched, seq);
    } else {
        uint32_t at = 0;
        while (sched->running[at] != seq) {
            at++;
        }
        sched->n_running--;
        memmove(sched->running + at, sched->running + at + 1, (sched->n_running - at) * sizeof(struct esp_seq *));
    }
    esp_lease_drop(&sched->lease, seq, class);
    esp_seq_move(seq, ESP_SEQ_DONE);
}

bool esp_sched_preempt(struct esp_sched *sched)
{
    if (sched->n_running == 0) {
        return false;
    }
    struct esp_seq *victim = sched->running[--sched->n_running];
    esp_lease_drop(&sched->lease, victim, ESP_CLASS_NORMAL);
    esp_seq_move(victim, ESP_SEQ_QUEUED);
    esp_sched_add(sched, victim);
    sched->counts.preemptions++;
    return true;
}

/* Pages for all known tokens and the next one. */
static uint32_t pages_wanted(const struct esp_seq *seq)
{
    uint32_t n_tokens = seq->n_tokens < seq->job->n_cap ? seq->n_tokens + 1 : seq->n_tokens;
    uint32_t n_pages = esp_pages_for(n_tokens);
    return n_pages > seq->n_pages ? n_pages - seq->n_pages : 0;
}

void esp_sched_admit(struct esp_sched *sched)
{
    uint64_t promised = 0; /* pages that the running ones still need */
    for (uint32_t i = 0; i < sched->n_running && sched->head != NULL; i++) {
        /* One page more for each, so that the next border of a page is no reason to preempt. */
        promised += pages_wanted(sched->running[i]) + 1;
    }
    while (sched->head != NULL && sched->n_running < sched->config.n_batch_max) {
        struct esp_seq *seq = sched->head;
        esp_lease_adopt(&sched->lease, seq);
        uint64_t wanted = pages_wanted(seq);
        if (sched->n_running > 0 && promised + wanted > esp_tree_available(sched->lease.tree)) {
            esp_lease_drop(&sched->lease, seq, ESP_CLASS_NORMAL);
            return;
        }
        promised += wanted + 1;
        unqueue(sched, seq);
        assert(sched->n_running == 0 || sched->running[sched->n_running - 1]->arrival < seq->arrival);
        sched->running[sched->n_running++] = seq;
        esp_seq_move(seq, ESP_SEQ_PREFILL);
        if (!seq->job->admitted) {
            seq->job->admitted = true;
            seq->job->admit_ns = sched->now_ns;
            sched->counts.jobs_admitted++;
        }
    }
}

static bool reserve(struct esp_sched *sched, struct esp_seq *seq, uint32_t n_pages)
{
    while (esp_lease_reserve(&sched->lease, seq, n_pages) != ESP_OK) {
        if (sched->running[sched->n_running - 1] == seq) {
            return false; /* nobody came later: keep what there is and wait for others to end */
        }
        esp_sched_preempt(sched);
    }
    return true;
}

/* Each prompt token is counted once for its request; rows below n_high are run again. */
static void count(struct esp_sched *sched, struct esp_seq *seq, uint32_t from, uint32_t to)
{
    struct esp_job *job = seq->job;
    uint32_t prompt_from = from < job->n_prompt ? from : job->n_prompt;
    uint32_t prompt_to = to < job->n_prompt ? to : job->n_prompt;
    if (prompt_from > job->n_counted) {
        job->n_cached += prompt_from - job->n_counted;
        sched->counts.cached += prompt_from - job->n_counted;
        job->n_counted = prompt_from;
    }
    if (prompt_to > job->n_counted) {
        sched->counts.computed += prompt_to - job->n_counted;
        job->n_counted = prompt_to;
    }
    if (seq->n_high > from) {
        sched->counts.recomputed += (seq->n_high < to ? seq->n_high : to) - from;
    }
    seq->n_high = seq->n_high < to ? to : seq->n_high;
}

static uint32_t add_item(struct esp_sched *sched, struct esp_seq *seq, uint32_t to)
{
    struct esp_plan *plan = &sched->plan;
    uint32_t from = seq->n_computed;
    count(sched, seq, from, to);
    plan->items[plan->n_items++] = (struct esp_plan_item){
        .seq = seq,
        .from = from,
        .n = to - from,
        .n_announced = esp_lease_announce(&sched->lease, seq, to),
        .wants_logits = to == seq->n_tokens,
    };
    plan->n_rows += to - from;
    return to - from;
}

/* Returns the rows taken from the budget. */
static uint32_t plan_prefill(struct esp_sched *sched, struct esp_seq *seq, uint32_t budget)
{
    if (budget == 0) {
        return 0;
    }
    bool twin_writes = esp_lease_adopt(&sched->lease, seq);
    enum esp_seq_state state = twin_writes ? ESP_SEQ_HOLD : ESP_SEQ_PREFILL;
    if (seq->state != state) {
        esp_seq_move(seq, state);
    }
    if (twin_writes) {
        return 0;
    }
    uint32_t left = seq->n_tokens - seq->n_computed;
    if (!reserve(sched, seq, esp_pages_for(seq->n_computed + (left < budget ? left : budget)))) {
        return 0;
    }
    /* Only now, because making room may have evicted the page that holds the tail. */
    struct esp_plan *plan = &sched->plan;
    uint32_t n_tail = esp_lease_tail(&sched->lease, seq, &plan->copy_nodes[plan->n_copies]);
    if (n_tail > 0) {
        plan->copy_src[plan->n_copies] = esp_tree_node_page(sched->lease.tree, plan->copy_nodes[plan->n_copies]);
        plan->copy_dst[plan->n_copies++] = seq->pages[seq->n_node];
        seq->n_computed += n_tail;
    }
    uint32_t to = seq->n_pages * ESP_TREE_PAGE_TOKENS;
    to = to < seq->n_tokens ? to : seq->n_tokens;
    to = to - seq->n_computed < budget ? to : seq->n_computed + budget;
    return add_item(sched, seq, to);
}

void esp_sched_plan(struct esp_sched *sched)
{
    struct esp_plan *plan = &sched->plan;
    plan->n_items = 0;
    plan->n_copies = 0;
    plan->n_rows = 0;
    uint32_t budget = sched->config.prefill_chunk;
    for (uint32_t i = 0; i < sched->n_running; i++) { /* preempting shortens the list from its end */
        struct esp_seq *seq = sched->running[i];
        if (seq->blocked) {
            continue;
        }
        if (seq->state != ESP_SEQ_DECODE) {
            budget -= plan_prefill(sched, seq, budget);
        } else if (reserve(sched, seq, esp_pages_for(seq->n_tokens))) {
            add_item(sched, seq, seq->n_tokens);
        }
    }
}

void esp_sched_end_copies(struct esp_sched *sched)
{
    for (uint32_t i = 0; i < sched->plan.n_copies; i++) {
        esp_tree_release(sched->lease.tree, sched->plan.copy_nodes[i], ESP_CLASS_NORMAL);
    }
    sched->plan.n_copies = 0;
}

uint32_t esp_sched_running_jobs(const struct esp_sched *sched)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) { /* branches of a job stand together */
        n += i == 0 || sched->running[i - 1]->job != sched->running[i]->job;
    }
    return n;
}
