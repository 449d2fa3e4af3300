/* The calls of other threads: submit, cancel, poll, metrics. They touch the slots, the inbox, the events
 * and the published counters, each under its own lock, and nothing of the engine thread's. No lock is
 * held while another is taken, but slots_lock may be held while a job ends.
 */
#include <string.h>

#include "runtime/engine_impl.h"
#include "runtime/vocab.h"

struct esp_sampling esp_sampling_default(void)
{
    return (struct esp_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

/* Under slots_lock: may another request of the tenant wait? When the queue is full, one who has less than an eighth of
 * it still finds a place in the reserve, so that nobody's flood shuts the door for others. */
static bool has_place(const struct esp_engine *engine, const struct esp_job *job)
{
    uint32_t n_waiting = atomic_load(&engine->n_unadmitted), n_own = 0;
    if (job->idle) {
        return atomic_load(&engine->n_idle) < ESP_JOB_IDLE_MAX;
    }
    if (n_waiting < engine->n_queue_max) {
        return true;
    }
    for (uint32_t i = 0; i < engine->n_slots; i++) {
        const struct esp_job *other = engine->slots[i].job;
        n_own += other != NULL && other->tenant == job->tenant && atomic_load(&other->waiting);
    }
    return n_own < engine->n_queue_max / 8 && n_waiting < engine->n_queue_max + ESP_ENGINE_RESERVE(engine->n_queue_max);
}

/* Puts the job in a free slot and gives it its id. */
static esp_status take_slot(struct esp_engine *engine, struct esp_job *job, struct esp_err *err)
{
    esp_status status = ESP_EBUSY;
    pthread_mutex_lock(&engine->slots_lock);
    bool may = has_place(engine, job);
    for (uint32_t i = 0; i < engine->n_slots && may; i++) {
        uint32_t at = (engine->slot_next + i) % engine->n_slots;
        struct esp_slot *slot = &engine->slots[at];
        if (slot->job == NULL) {
            engine->slot_next = at + 1;
            slot->generation++;
            slot->cancelled = false;
            slot->stopped = 0;
            slot->job = job;
            job->id = (uint64_t)slot->generation << 32 | at;
            job->waiting = !job->idle;
            atomic_fetch_add(job->idle ? &engine->n_idle : &engine->n_unadmitted, 1);
            status = ESP_OK;
            break;
        }
    }
    pthread_mutex_unlock(&engine->slots_lock);
    if (status != ESP_OK) {
        uint32_t n_max = job->idle ? ESP_JOB_IDLE_MAX : engine->n_queue_max;
        esp_fail(err, status, "the queue of %u waiting requests is full", n_max);
    }
    return status;
}

int64_t esp_retry_after_ns(esp_engine *engine)
{
    const int64_t least_ns = 100000000, most_ns = 60000000000ll;
    /* An eighth of the queue has moved on by then: others were refused too and will come back. */
    int64_t ns = atomic_load(&engine->admit_interval_ns) * (1 + engine->n_queue_max / 8);
    return ns < least_ns ? least_ns : ns > most_ns ? most_ns : ns;
}

void esp_engine_free_slot(struct esp_engine *engine, struct esp_job *job)
{
    struct esp_slot *slot = &engine->slots[(uint32_t)job->id];
    pthread_mutex_lock(&engine->slots_lock);
    if (slot->cancelled || slot->stopped != 0) {
        slot->cancelled = false;
        slot->stopped = 0;
        atomic_fetch_sub(&engine->n_cancels, 1);
    }
    slot->job = NULL;
    pthread_mutex_unlock(&engine->slots_lock);
}

/* The masks of a grammar are those of the vocabulary that it was compiled for, and as wide. */
static esp_status check_grammar(const struct esp_engine *engine, const struct esp_grammar *grammar, struct esp_err *err)
{
    const struct esp_trie *own = NULL;
    const struct esp_trie *trie = grammar == NULL ? NULL : esp_grammar_trie(grammar);
    bool fits = grammar == NULL;
    if (!fits && engine->vocab != NULL) {
        fits = esp_vocab_trie(engine->vocab, &own, NULL) == ESP_OK && own == trie;
    } else if (!fits) {
        fits = esp_trie_n_tokens(trie) >= engine->n_vocab;
    }
    if (fits) {
        return ESP_OK;
    }
    esp_fail(err, ESP_EINVAL, "grammar was compiled for another vocabulary than the engine's own");
    esp_err_place(err, "grammar");
    return ESP_EINVAL;
}

static esp_status submit(struct esp_engine *engine, const struct esp_job_spec *spec, esp_request_id *ret_id,
                         struct esp_err *err)
{
    struct esp_job *job;
    esp_status status = esp_job_create(spec, &engine->limits, &job, err);
    if (status != ESP_OK) {
        return status;
    }
    job->submit_ns = esp_clock_now(&engine->clock);
    if (job->timeout_ns > 0 && job->timeout_ns < INT64_MAX - job->submit_ns) {
        job->deadline_ns = job->submit_ns + job->timeout_ns;
    }
    status = take_slot(engine, job, err);
    if (status != ESP_OK) {
        esp_job_destroy(job);
        return status;
    }
    esp_request_id id = job->id; /* once pushed, the job may end and be gone at any moment */
    job->msg.kind = ESP_MSG_JOB;
    esp_inbox_push(&engine->inbox, &job->msg);
    *ret_id = id;
    return ESP_OK;
}

esp_status esp_submit(esp_engine *engine, const struct esp_request *request, esp_request_id *ret_id,
                      struct esp_err *err)
{
    const struct esp_job_spec spec = {.request = request};
    esp_status status = check_grammar(engine, request->grammar, err);
    return status == ESP_OK ? submit(engine, &spec, ret_id, err) : status;
}

esp_status esp_fork(esp_engine *engine, const struct esp_request *request, const struct esp_branch *branches,
                    uint32_t n_branches, esp_request_id *ret_id, struct esp_err *err)
{
    const struct esp_job_spec spec = {.request = request, .branches = branches, .n_branches = n_branches};
    for (uint32_t i = 0; i < n_branches && n_branches <= ESP_JOB_BRANCHES_MAX; i++) { /* else refused below */
        esp_status status = check_grammar(engine, branches[i].grammar, err);
        if (status != ESP_OK) {
            esp_err_place(err, "branches[%u].grammar", i);
            return status;
        }
    }
    return submit(engine, &spec, ret_id, err);
}

esp_status esp_prefill(esp_engine *engine, const struct esp_request *request, esp_request_id *ret_id,
                       struct esp_err *err)
{
    const struct esp_job_spec spec = {.request = request, .idle = true};
    return submit(engine, &spec, ret_id, err);
}

static void end_early(struct esp_engine *engine, esp_request_id id, bool cancelled, uint64_t stopped)
{
    uint32_t at = (uint32_t)id;
    bool ring = false;
    pthread_mutex_lock(&engine->slots_lock);
    if (at < engine->n_slots) {
        struct esp_slot *slot = &engine->slots[at];
        if (slot->job != NULL && slot->generation == (uint32_t)(id >> 32)) {
            ring = !slot->cancelled && slot->stopped == 0; /* else its bell has rung already */
            slot->cancelled = slot->cancelled || cancelled;
            slot->stopped |= stopped;
            atomic_fetch_add(&engine->n_cancels, ring);
        }
    }
    pthread_mutex_unlock(&engine->slots_lock);
    if (ring) {
        esp_inbox_ring(&engine->inbox);
    }
}

void esp_cancel(esp_engine *engine, esp_request_id id)
{
    end_early(engine, id, true, 0);
}

void esp_stop(esp_engine *engine, esp_request_id id, uint32_t branch)
{
    if (branch < ESP_JOB_BRANCHES_MAX) {
        end_early(engine, id, false, (uint64_t)1 << branch);
    }
}

bool esp_poll(esp_engine *engine, int64_t timeout_ns, struct esp_event *ret_event)
{
    struct esp_job *job = NULL;
    bool room = false;
    if (!esp_events_take(&engine->events, timeout_ns, ret_event, &room, &job)) {
        return false;
    }
    if (job != NULL) {
        esp_engine_free_slot(engine, job);
        esp_job_destroy(engine->polled);
        engine->polled = job;
    }
    if (room) {
        esp_inbox_ring(&engine->inbox);
    }
    return true;
}

void esp_wake(esp_engine *engine)
{
    esp_events_wake(&engine->events);
}

void esp_get_metrics(esp_engine *engine, struct esp_metrics *ret_metrics)
{
    esp_stats_read(&engine->stats, ret_metrics);
    if (engine->vocab != NULL) { /* grammars are compiled in the clients' threads */
        ret_metrics->compile = esp_vocab_grammar_stats(engine->vocab).compile;
    }
}

void esp_engine_get_info(const esp_engine *engine, struct esp_engine_info *ret_info)
{
    *ret_info = engine->info;
}

const esp_vocab *esp_engine_vocab(const esp_engine *engine)
{
    return engine->vocab;
}
