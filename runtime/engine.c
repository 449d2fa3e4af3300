/* The engine's life and its step: letters, plan, forward pass, tokens, news for the poller.
 *
 * One step is whole: every page that it announces is written and published, or out of the tree, before it ends.
 * News leaves last, after pages were given back and counters published, so a client that has seen the
 * end of its request sees no trace of it in the metrics. Thread: the engine's.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine_impl.h"

/* Half of the pool, as long as a request of the full context still fits beside it. */
static uint32_t pin_budget(const struct esp_engine_parts *parts)
{
    uint32_t n_request = esp_pages_for(parts->n_ctx);
    uint32_t n_left = parts->n_pages > n_request ? parts->n_pages - n_request : 0;
    return n_left < parts->n_pages / 2 ? n_left : parts->n_pages / 2;
}

#define CLOSE_NS ((int64_t)5000000000) /* for what still has to be saved */

static esp_status create_tree(struct esp_engine *engine, const struct esp_engine_parts *parts, struct esp_err *err)
{
    struct esp_tree_config config = {
        .n_pages = parts->n_pages,
        .n_pin_pages_max = pin_budget(parts),
        .seed = parts->tree_seed,
        .hash_bits = parts->tree_hash_bits,
    };
    esp_status status = esp_tree_create(&config, &engine->tree, err);
    if (status != ESP_OK) {
        return status;
    }
    struct esp_lease_ctx lease = {engine->tree, engine->arch, strlen(engine->arch), parts->cache_off, &engine->store};
    struct esp_sched_config sched = {parts->n_batch_max, parts->prefill_chunk};
    status = esp_sched_init(&engine->sched, &lease, &sched);
    return status == ESP_OK ? status : esp_fail(err, status, "no memory for the plan of a step");
}

static esp_status create_device_parts(struct esp_engine *engine, const struct esp_engine_parts *parts,
                                      struct esp_err *err)
{
    struct esp_model *model = parts->model;
    uint32_t n_rows_max = parts->prefill_chunk + parts->n_batch_max;
    struct esp_kv_geom geom = esp_model_kv_geom(&model->hp);
    esp_status status =
        model->ops->alloc(model->dev, ESP_TAG_KV, esp_kv_page_bytes(&geom) * parts->n_pages, &engine->kv);
    if (status != ESP_OK) {
        return esp_fail(err, status, "the device has no memory for %u pages of keys and values", parts->n_pages);
    }
    status = esp_forward_create(model, engine->kv, n_rows_max, parts->n_batch_max, &engine->forward, err);
    if (status != ESP_OK) {
        return status;
    }
    status = esp_batch_init(&engine->arrays, n_rows_max, parts->n_batch_max);
    return status == ESP_OK ? status : esp_fail(err, status, "no memory for a batch of %u rows", n_rows_max);
}

static void wake(void *ctx)
{
    esp_inbox_ring(&((struct esp_engine *)ctx)->inbox);
}

static esp_status create_store(struct esp_engine *engine, const struct esp_engine_parts *parts, struct esp_err *err)
{
    struct esp_kv_geom geom = esp_model_kv_geom(&engine->model->hp);
    struct esp_keep store = {.tree = engine->tree,
                              .ops = engine->model->ops,
                              .dev = engine->model->dev,
                              .kv = engine->kv,
                              .page_bytes = esp_kv_page_bytes(&geom),
                              .n_pages_max = esp_pages_for(parts->n_ctx)};
    if (engine->pagefile != NULL) {
        struct esp_tier_config config = {.file = engine->pagefile,
                                         .page_bytes = (uint32_t)store.page_bytes,
                                         .n_pages_max = store.n_pages_max,
                                         .clock = parts->tier_threaded ? esp_clock_wall() : parts->clock,
                                         .threaded = parts->tier_threaded,
                                         .wake = wake,
                                         .ctx = engine};
        engine->pagefile = NULL; /* taken */
        esp_status status = esp_tier_create(&config, &store.tier, err);
        if (status != ESP_OK) {
            return status;
        }
    }
    return esp_keep_init(&engine->store, &store, err);
}

uint64_t esp_engine_bytes(uint64_t n_slots, uint32_t n_batch_max)
{
    size_t per_seq = sizeof(struct esp_sample_row) + 3 * sizeof(struct esp_seq *) + sizeof(struct esp_plan_item) +
                     2 * sizeof(struct esp_page_id) + sizeof(struct esp_node_id);
    return sizeof(struct esp_engine) + esp_fair_bytes() + n_slots * sizeof(struct esp_slot) +
           (uint64_t)n_batch_max * per_seq;
}

static esp_status create_host_parts(struct esp_engine *engine, const struct esp_engine_parts *parts,
                                    struct esp_err *err)
{
    engine->n_queue_max = parts->n_queue_max;
    engine->n_slots = parts->n_queue_max + ESP_ENGINE_RESERVE(parts->n_queue_max) + 2 * parts->n_batch_max;
    engine->slots = esp_calloc(ESP_TAG_ENGINE, engine->n_slots, sizeof *engine->slots);
    engine->rows = esp_calloc(ESP_TAG_ENGINE, parts->n_batch_max, sizeof *engine->rows);
    engine->row_seqs = esp_calloc(ESP_TAG_ENGINE, parts->n_batch_max, sizeof(struct esp_seq *));
    if (engine->slots == NULL || engine->rows == NULL || engine->row_seqs == NULL) {
        return esp_fail(err, ESP_ENOMEM, "no memory for %u request slots", engine->n_slots);
    }
    esp_inbox_init(&engine->inbox);
    esp_events_init(&engine->events);
    esp_stats_init(&engine->stats);
    pthread_mutex_init(&engine->slots_lock, NULL);
    return ESP_OK;
}

static void fill_info(struct esp_engine *engine, const struct esp_engine_parts *parts)
{
    const struct esp_hparams *hp = &parts->model->hp;
    struct esp_engine_info *info = &engine->info;
    *info = parts->info;
    snprintf(engine->arch, sizeof engine->arch, "%s", hp->arch);
    snprintf(engine->name, sizeof engine->name, "%s", info->name == NULL ? "" : info->name);
    snprintf(engine->level, sizeof engine->level, "%s", parts->model->ops->level(parts->model->dev));
    info->arch = engine->arch;
    info->name = engine->name;
    info->level = engine->level;
    info->device = parts->model->ops->name;
    info->n_ctx = parts->n_ctx;
    info->n_ctx_model = hp->n_ctx_train;
    info->n_vocab = hp->n_vocab; /* the width of logits */
    info->n_layer = hp->n_layer;
    info->n_embd = hp->n_embd;
    info->n_pages = parts->n_pages;
    info->page_tokens = ESP_TREE_PAGE_TOKENS;
}

static void destroy_parts(struct esp_engine *engine)
{
    esp_keep_finish(&engine->store); /* its thread rings the inbox */
    esp_pagefile_close(engine->pagefile);
    for (uint32_t i = 0; engine->slots != NULL && i < engine->n_slots; i++) {
        esp_job_destroy(engine->slots[i].job);
    }
    esp_job_destroy(engine->polled);
    if (engine->inbox.ready) {
        pthread_mutex_destroy(&engine->slots_lock);
    }
    esp_stats_finish(&engine->stats);
    esp_events_finish(&engine->events);
    esp_inbox_finish(&engine->inbox);
    esp_free(engine->row_seqs);
    esp_free(engine->rows);
    esp_free(engine->slots);
    esp_batch_finish(&engine->arrays);
    esp_forward_destroy(engine->forward);
    esp_sched_finish(&engine->sched);
    esp_tree_destroy(engine->tree);
    esp_free(engine);
}

static bool parts_are_sound(const struct esp_engine_parts *parts)
{
    return parts->n_pages > 0 && parts->n_pages < UINT32_MAX / ESP_TREE_PAGE_TOKENS && parts->n_ctx > 0 &&
           parts->n_batch_max > 0 && parts->n_batch_max <= ESP_ENGINE_BATCH_MAX && parts->prefill_chunk > 0 &&
           parts->prefill_chunk <= ESP_ENGINE_CHUNK_MAX && parts->n_queue_max > 0 &&
           parts->n_queue_max <= ESP_ENGINE_QUEUE_MAX;
}

esp_status esp_engine_create(const struct esp_engine_parts *parts, esp_engine **ret_engine, struct esp_err *err)
{
    if (!parts_are_sound(parts)) {
        esp_pagefile_close(parts->pagefile);
        return esp_fail(err, ESP_EINVAL, "a size of the engine is zero or above its limit");
    }
    struct esp_engine *engine = esp_calloc(ESP_TAG_ENGINE, 1, sizeof *engine);
    if (engine == NULL) {
        esp_pagefile_close(parts->pagefile);
        return esp_fail(err, ESP_ENOMEM, "no memory for the engine");
    }
    engine->pagefile = parts->pagefile;
    const struct esp_hparams *hp = &parts->model->hp;
    engine->end_token = parts->end_token;
    engine->n_vocab = hp->n_vocab;
    if (parts->vocab != NULL && esp_vocab_n_tokens(parts->vocab) < engine->n_vocab) {
        engine->n_vocab = esp_vocab_n_tokens(parts->vocab);
    }
    engine->clock = parts->clock;
    engine->model = parts->model;
    engine->limits = (struct esp_job_limits){parts->n_ctx, parts->n_pages * ESP_TREE_PAGE_TOKENS, engine->n_vocab,
                                              hp->n_vocab};
    fill_info(engine, parts);
    esp_status status = create_host_parts(engine, parts, err);
    status = status == ESP_OK ? create_tree(engine, parts, err) : status;
    status = status == ESP_OK ? create_device_parts(engine, parts, err) : status;
    status = status == ESP_OK ? create_store(engine, parts, err) : status;
    if (status != ESP_OK) {
        destroy_parts(engine);
        return status;
    }
    engine->model->ops->seal(engine->model->dev);
    engine->vocab = parts->vocab;
    esp_engine_publish_stats(engine);
    *ret_engine = engine;
    return ESP_OK;
}

void esp_engine_close(esp_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    if (engine->threaded) {
        atomic_store(&engine->closing, true);
        esp_inbox_ring(&engine->inbox);
        pthread_join(engine->thread, NULL);
    }
    esp_keep_drain(&engine->store, CLOSE_NS);
    struct esp_model *model = engine->model;
    const struct esp_ops *ops = model->ops;
    struct esp_dev *dev = model->dev;
    esp_vocab *vocab = engine->vocab;
    destroy_parts(engine);
    esp_model_destroy(model);
    ops->dev_close(dev);
    esp_vocab_close(vocab);
}

const struct esp_tree *esp_engine_tree(const esp_engine *engine)
{
    return engine->tree;
}

void esp_engine_publish_stats(struct esp_engine *engine)
{
    struct esp_metrics *m = &engine->stats.now;
    const struct esp_sched_counts *counts = &engine->sched.counts;
    struct esp_tree_stats tree;
    esp_tree_get_stats(engine->tree, &tree);
    m->prompt_tokens_computed = counts->computed;
    m->prompt_tokens_cached = counts->cached;
    m->prompt_tokens_recomputed = counts->recomputed;
    m->idle_prefill_tokens = counts->idle;
    m->preemptions = counts->preemptions;
    m->requests_running = esp_sched_running_jobs(&engine->sched);
    m->requests_waiting = engine->n_jobs - m->requests_running;
    m->kv_pages[ESP_PAGES_FREE] = tree.pages[ESP_PAGE_FREE];
    m->kv_pages[ESP_PAGES_PRIVATE] = tree.pages[ESP_PAGE_PRIVATE];
    m->kv_pages[ESP_PAGES_PENDING] = tree.pages[ESP_PAGE_PENDING];
    m->kv_pages[ESP_PAGES_CACHED] = tree.pages[ESP_PAGE_CACHED];
    m->kv_pages[ESP_PAGES_DISK] = engine->store.tier == NULL ? 0 : esp_tier_n_stored(engine->store.tier);
    m->kv_pages_saved = engine->store.n_saved;
    m->kv_pages_restored = engine->store.n_restored;
    m->kv_pages_total = tree.n_pages;
    m->kv_pages_leased = tree.leased;
    m->kv_pages_pinned = tree.pinned;
    m->pins = tree.n_pins;
    m->kv_evicted_pages = tree.evicted_total;
    esp_stats_publish(&engine->stats);
}

void esp_engine_end_seq(struct esp_engine *engine, struct esp_seq *seq, enum esp_finish finish, const char *error)
{
    struct esp_job *job = seq->job;
    bool complete = finish == ESP_FINISH_STOP || finish == ESP_FINISH_LENGTH;
    enum esp_evict_class class = job->comes_back || job->idle ? ESP_CLASS_RETURN : ESP_CLASS_TAIL;
    esp_sched_remove(&engine->sched, seq, complete ? class : ESP_CLASS_NORMAL);
    esp_engine_end_turn(engine, seq);
    esp_matcher_destroy(seq->matcher);
    seq->matcher = NULL;
    int64_t now_ns = esp_clock_now(&engine->clock);
    seq->finish = finish;
    seq->n_cached = job->n_cached;
    seq->queue_ns = (job->admitted ? job->admit_ns : now_ns) - job->submit_ns;
    seq->ttft_ns = (seq->first_token_ns != 0 ? seq->first_token_ns : now_ns) - job->submit_ns;
    seq->total_ns = now_ns - job->submit_ns;
    snprintf(seq->error, sizeof seq->error, "%s", error == NULL ? "" : error);
    seq->next_done = engine->done;
    engine->done = seq;
    job->finish = job->n_done == 0 || finish > job->finish ? finish : job->finish;
    job->n_done++;
    if (job->n_done == job->n_branches && job->idle) {
        atomic_fetch_sub(&engine->n_idle, 1);
    } else if (job->n_done == job->n_branches) {
        esp_lease_forget_pins(&engine->sched.lease, job);
        engine->stats.now.requests_finished[job->finish]++;
        engine->stats.now.prompt_tokens_reusable += job->n_reusable > job->n_cached ? job->n_reusable : job->n_cached;
        engine->n_jobs--;
        if (!job->admitted) {
            job->waiting = false;
            atomic_fetch_sub(&engine->n_unadmitted, 1);
        }
    }
}

static void receive_job(struct esp_engine *engine, struct esp_job *job)
{
    job->received = true;
    esp_lease_wants_pins(&engine->sched.lease, &job->seqs[0]);
    for (uint32_t i = 0; i < job->n_pins; i++) {
        job->n_refused += job->pins[i].open ? 0 : job->pins[i].n_pages * ESP_TREE_PAGE_TOKENS;
        engine->stats.now.pins_granted += job->pins[i].open;
        engine->stats.now.pins_refused += !job->pins[i].open;
    }
    engine->n_jobs += !job->idle;
    for (uint32_t i = 0; i < job->n_branches; i++) {
        job->seqs[i].arrival = engine->arrival_next++;
        esp_sched_add(&engine->sched, &job->seqs[i]);
    }
}

static bool receive(struct esp_engine *engine)
{
    struct esp_msg *msg = esp_inbox_take(&engine->inbox);
    bool any = msg != NULL;
    while (msg != NULL) {
        struct esp_msg *next = msg->next; /* an answered question is gone */
        if (msg->kind == ESP_MSG_JOB) {
            receive_job(engine, (struct esp_job *)msg);
        } else {
            esp_engine_answer(engine, (struct esp_question *)msg);
        }
        msg = next;
    }
    return any;
}

static void end_early(struct esp_engine *engine, struct esp_slot *slot)
{
    struct esp_job *job = slot->job;
    for (uint32_t i = 0; i < job->n_branches; i++) {
        bool stopped = (slot->stopped >> i & 1) != 0;
        if (job->seqs[i].state != ESP_SEQ_DONE && (stopped || slot->cancelled)) {
            esp_engine_end_seq(engine, &job->seqs[i], stopped ? ESP_FINISH_STOP : ESP_FINISH_CANCELLED, NULL);
        }
    }
    slot->cancelled = false;
    slot->stopped = 0;
    atomic_fetch_sub(&engine->n_cancels, 1);
}

static bool receive_cancels(struct esp_engine *engine)
{
    if (atomic_load(&engine->n_cancels) == 0) {
        return false;
    }
    bool any = false;
    pthread_mutex_lock(&engine->slots_lock);
    for (uint32_t i = 0; i < engine->n_slots; i++) {
        struct esp_slot *slot = &engine->slots[i];
        /* A job that is still in the inbox rang the bell after it was looked into: next time. */
        if ((slot->cancelled || slot->stopped != 0) && slot->job->received) {
            end_early(engine, slot);
            any = true;
        }
    }
    pthread_mutex_unlock(&engine->slots_lock);
    return any;
}

static esp_status run_plan(struct esp_engine *engine, const float **ret_logits)
{
    const struct esp_plan *plan = &engine->sched.plan;
    struct esp_model *model = engine->model;
    struct esp_kv_geom geom = esp_model_kv_geom(&model->hp);
    if (plan->n_copies > 0) {
        struct esp_copy_pages_args args = {
            .kv = engine->kv,
            .page_bytes = esp_kv_page_bytes(&geom),
            .src = &plan->copy_src[0].v,
            .dst = &plan->copy_dst[0].v,
            .n = plan->n_copies,
        };
        esp_status status = model->ops->copy_pages(model->dev, &args);
        if (status != ESP_OK) {
            return status;
        }
    }
    esp_batch_fill(&engine->arrays, plan);
    esp_status status = esp_forward_run(engine->forward, &engine->arrays.batch, ret_logits);
    return status == ESP_OK ? model->ops->wait(model->dev) : status;
}

static void commit(struct esp_engine *engine)
{
    const struct esp_plan *plan = &engine->sched.plan;
    const struct esp_lease_ctx *lease = &engine->sched.lease;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        const struct esp_plan_item *item = &plan->items[i];
        item->seq->n_computed = item->from + item->n;
        esp_lease_publish(lease, item->seq, item->n_announced);
    }
    /* Only now: an equal page that another sequence announced in this step is written. */
    for (uint32_t i = 0; i < plan->n_items; i++) {
        esp_lease_enter(lease, plan->items[i].seq);
        esp_lease_pin(lease, plan->items[i].seq);
    }
}

/* Pages that were announced and not written leave the tree with the leases of their writers. */
static void fail_plan(struct esp_engine *engine, esp_status status)
{
    const struct esp_plan *plan = &engine->sched.plan;
    char text[128];
    snprintf(text, sizeof text, "the device failed (%s)", esp_status_name(status));
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct esp_seq *seq = plan->items[i].seq;
        if (seq->state != ESP_SEQ_DONE) {
            esp_engine_end_seq(engine, seq, ESP_FINISH_ERROR, text);
        }
    }
    engine->n_told = 0;
}

static void deliver(struct esp_engine *engine)
{
    esp_engine_publish_stats(engine);
    for (uint32_t i = 0; i < engine->n_told; i++) {
        esp_events_push_token(&engine->events, engine->row_seqs[i], &engine->rows[i]);
    }
    engine->n_told = 0;
    while (engine->done != NULL) {
        struct esp_seq *seq = engine->done;
        engine->done = seq->next_done; /* after its last DONE a job belongs to the poller */
        if (seq->job->idle) {
            esp_engine_free_slot(engine, seq->job);
            esp_job_destroy(seq->job);
        } else {
            esp_events_push_done(&engine->events, seq);
        }
    }
}

/* Idle work that has all its pages. */
static bool end_idle(struct esp_engine *engine)
{
    bool any = false;
    for (uint32_t i = engine->sched.n_running; i-- > 0 && atomic_load(&engine->n_idle) > 0;) {
        struct esp_seq *seq = engine->sched.running[i];
        if (seq->job->idle && seq->n_computed >= esp_seq_goal(seq)) {
            esp_engine_end_seq(engine, seq, ESP_FINISH_LENGTH, NULL);
            any = true;
        }
    }
    return any;
}

static void compute(struct esp_engine *engine)
{
    const float *logits = NULL;
    esp_status status = run_plan(engine, &logits);
    esp_sched_end_copies(&engine->sched);
    if (status != ESP_OK) {
        fail_plan(engine, status);
        return;
    }
    commit(engine);
    status = esp_engine_sample(engine, logits);
    if (status != ESP_OK) {
        fail_plan(engine, status);
    }
}

static bool end_expired(struct esp_engine *engine, int64_t now_ns)
{
    bool any = false;
    engine->sched.now_ns = now_ns;
    for (struct esp_seq *seq = esp_sched_expired(&engine->sched); seq != NULL;
         seq = esp_sched_expired(&engine->sched)) {
        esp_engine_end_seq(engine, seq, ESP_FINISH_TIMEOUT, "the time that the request had is over");
        any = true;
    }
    return any;
}

int64_t esp_engine_patience_ns(const struct esp_engine *engine)
{
    int64_t deadline_ns = engine->sched.deadline_ns;
    int64_t file_ns = esp_keep_until_ns(&engine->store);
    deadline_ns = file_ns < deadline_ns ? file_ns : deadline_ns;
    if (deadline_ns == INT64_MAX) {
        return -1;
    }
    int64_t now_ns = esp_clock_now(&engine->clock);
    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

/* Places in the queue came free; their pace says when a refused client should come again. */
static void count_admitted(struct esp_engine *engine, uint32_t n)
{
    enum { SMOOTH = 8 };
    if (n == 0) {
        return;
    }
    atomic_fetch_sub(&engine->n_unadmitted, n);
    int64_t now_ns = engine->sched.now_ns;
    int64_t each_ns = engine->admitted_ns == 0 ? 0 : (now_ns - engine->admitted_ns) / n;
    int64_t old_ns = atomic_load(&engine->admit_interval_ns);
    atomic_store(&engine->admit_interval_ns, old_ns + (each_ns - old_ns) / SMOOTH);
    engine->admitted_ns = now_ns;
}

bool esp_engine_step(esp_engine *engine)
{
    int64_t from_ns = esp_clock_now(&engine->clock);
    bool any = receive(engine);
    any = receive_cancels(engine) || any;
    struct esp_sched *sched = &engine->sched;
    esp_tree_set_now(engine->tree, from_ns);
    esp_engine_correct_turns(engine);
    any = end_expired(engine, from_ns) || any;
    uint64_t n_admitted = sched->counts.jobs_admitted;
    esp_sched_admit(sched);
    esp_events_mark_blocked(&engine->events, sched->running, sched->n_running);
    esp_sched_plan(sched);
    count_admitted(engine, (uint32_t)(sched->counts.jobs_admitted - n_admitted));
    any = end_idle(engine) || any;
    if (sched->plan.n_items > 0) {
        esp_engine_publish_stats(engine);
        compute(engine);
        esp_histogram_add(&engine->stats.now.step, esp_clock_now(&engine->clock) - from_ns);
        any = true;
    }
    esp_keep_save(&engine->store);
    any = any || engine->store.moved;
    engine->store.moved = false;
    if (any) {
        deliver(engine);
    }
    return any;
}
