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
    sched->deadline_ns = INT64_MAX;
    sched->running = esp_calloc(ESP_TAG_ENGINE, n, sizeof(struct esp_seq *));
    sched->order = esp_calloc(ESP_TAG_ENGINE, n, sizeof(struct esp_seq *));
    sched->plan.items = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.items);
    sched->plan.copy_src = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.copy_src);
    sched->plan.copy_dst = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.copy_dst);
    sched->plan.copy_nodes = esp_calloc(ESP_TAG_ENGINE, n, sizeof *sched->plan.copy_nodes);
    if (esp_fair_init(&sched->fair) != ESP_OK || sched->running == NULL || sched->order == NULL ||
        sched->plan.items == NULL || sched->plan.copy_src == NULL || sched->plan.copy_dst == NULL ||
        sched->plan.copy_nodes == NULL) {
        esp_sched_finish(sched);
        return ESP_ENOMEM;
    }
    return ESP_OK;
}

void esp_sched_finish(struct esp_sched *sched)
{
    esp_fair_finish(&sched->fair);
    esp_free(sched->running);
    esp_free(sched->order);
    esp_free(sched->plan.items);
    esp_free(sched->plan.copy_src);
    esp_free(sched->plan.copy_dst);
    esp_free(sched->plan.copy_nodes);
    memset(sched, 0, sizeof *sched);
}

void esp_sched_add(struct esp_sched *sched, struct esp_seq *seq)
{
    int64_t deadline_ns = seq->job->deadline_ns;
    sched->deadline_ns = deadline_ns < sched->deadline_ns ? deadline_ns : sched->deadline_ns;
    esp_fair_add(&sched->fair, seq);
}

static void stop_running(struct esp_sched *sched, struct esp_seq *seq)
{
    uint32_t at = 0;
    while (sched->running[at] != seq) {
        at++;
    }
    sched->n_running--;
    memmove(sched->running + at, sched->running + at + 1, (sched->n_running - at) * sizeof(struct esp_seq *));
}

void esp_sched_remove(struct esp_sched *sched, struct esp_seq *seq, enum esp_evict_class class)
{
    if (seq->state == ESP_SEQ_QUEUED) {
        esp_fair_take(&sched->fair, seq);
    } else {
        stop_running(sched, seq);
    }
    esp_fair_forget(&sched->fair, seq);
    esp_lease_drop(&sched->lease, seq, class);
    esp_seq_move(seq, ESP_SEQ_DONE);
}

static void preempt(struct esp_sched *sched, struct esp_seq *victim)
{
    stop_running(sched, victim);
    esp_lease_drop(&sched->lease, victim, ESP_CLASS_NORMAL);
    esp_seq_move(victim, ESP_SEQ_QUEUED);
    esp_fair_add(&sched->fair, victim);
    sched->counts.preemptions++;
}

bool esp_sched_preempt_other(struct esp_sched *sched, const struct esp_seq *seq)
{
    uint32_t n = sched->n_running;
    if (n > 0 && sched->running[n - 1] == seq) {
        n--;
    }
    if (n == 0) {
        return false;
    }
    preempt(sched, sched->running[n - 1]);
    return true;
}

bool esp_sched_preempt(struct esp_sched *sched)
{
    return esp_sched_preempt_other(sched, NULL);
}

/* Is a the cheaper one to lose of two that `seq` may preempt? */
static bool cheaper(const struct esp_fair *fair, const struct esp_seq *seq, const struct esp_seq *a,
                    const struct esp_seq *b)
{
    if (esp_fair_is_idle(a) != esp_fair_is_idle(b)) {
        return esp_fair_is_idle(a);
    }
    bool a_below = esp_fair_outranks(fair, seq, a), b_below = esp_fair_outranks(fair, seq, b);
    if (a_below != b_below) {
        return a_below;
    }
    if (a->job->priority != b->job->priority) {
        return a->job->priority < b->job->priority;
    }
    return a->n_computed != b->n_computed ? a->n_computed < b->n_computed : a->admission > b->admission;
}

/* The cheapest running one that has no rows in this step yet and that seq outranks; later_too: or that was admitted
 * later and does not outrank it. */
static struct esp_seq *victim_of(struct esp_sched *sched, const struct esp_seq *seq, bool later_too)
{
    const struct esp_fair *fair = &sched->fair;
    struct esp_seq *best = NULL;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        struct esp_seq *other = sched->running[i];
        if (other == seq || other->planned_step == sched->n_steps) {
            continue;
        }
        bool may = esp_fair_outranks(fair, seq, other) ||
                   (later_too && other->admission > seq->admission && !esp_fair_outranks(fair, other, seq));
        if (may && (best == NULL || cheaper(fair, seq, other, best))) {
            best = other;
        }
    }
    return best;
}

struct esp_seq *esp_sched_expired(struct esp_sched *sched)
{
    struct esp_seq *found = NULL;
    int64_t next_ns = INT64_MAX;
    if (sched->now_ns < sched->deadline_ns) {
        return NULL;
    }
    for (uint32_t i = 0; i < sched->n_running && found == NULL; i++) {
        struct esp_seq *seq = sched->running[i];
        found = seq->job->deadline_ns <= sched->now_ns ? seq : NULL;
        next_ns = seq->job->deadline_ns < next_ns ? seq->job->deadline_ns : next_ns;
    }
    for (uint32_t i = 0; i < sched->fair.n_tenants && found == NULL; i++) {
        for (struct esp_seq *seq = sched->fair.tenants[i].head; seq != NULL && found == NULL; seq = seq->next) {
            found = seq->job->deadline_ns <= sched->now_ns ? seq : NULL;
            next_ns = seq->job->deadline_ns < next_ns ? seq->job->deadline_ns : next_ns;
        }
    }
    if (found == NULL) {
        sched->deadline_ns = next_ns;
    }
    return found;
}

/* ---- Admission ---------------------------------------------------------------------------------- */

/* Pages for all known tokens and the next one, of which it has n_pages. */
static uint32_t pages_wanted(const struct esp_seq *seq, uint32_t n_has)
{
    uint32_t n_tokens = seq->n_tokens < seq->n_cap ? seq->n_tokens + 1 : seq->n_tokens;
    uint32_t n_pages = esp_pages_for(n_tokens);
    return n_pages > n_has ? n_pages - n_has : 0;
}

enum fit { FITS, NO_ROOM, ONLY_IN_SESSIONS };

static enum fit fit_of(struct esp_sched *sched, struct esp_seq *seq)
{
    const struct esp_tree *tree = sched->lease.tree;
    if (sched->n_running == 0) {
        return FITS;
    }
    if (sched->n_running == sched->config.n_batch_max) {
        return NO_ROOM;
    }
    struct esp_lease_view view;
    esp_lease_peek(&sched->lease, seq, &view);
    uint64_t n_pages = pages_wanted(seq, view.n_tokens / ESP_TREE_PAGE_TOKENS);
    bool others_work = false; /* idle work does not, while this one waits */
    for (uint32_t i = 0; i < sched->n_running; i++) {
        others_work = others_work || !esp_fair_is_idle(sched->running[i]);
        /* One page more for each, so that the next border of a page is no reason to preempt. */
        n_pages += pages_wanted(sched->running[i], sched->running[i]->n_pages) + 1;
    }
    if (n_pages + view.n_unreferenced > esp_tree_available(tree)) {
        return NO_ROOM;
    }
    bool continues = view.class >= ESP_CLASS_RETURN;
    bool has_waited = sched->now_ns - seq->job->submit_ns >= ESP_SCHED_SESSION_WAIT_NS;
    bool may_wait = others_work && !continues && !has_waited && !esp_fair_is_owed(&sched->fair, seq);
    if (esp_fair_is_idle(seq) || may_wait) {
        uint64_t n_own = continues ? 0 : view.n_unreferenced;
        return n_pages + n_own > esp_tree_available_below(tree, ESP_CLASS_RETURN) ? ONLY_IN_SESSIONS : FITS;
    }
    return FITS;
}

static enum fit make_room(struct esp_sched *sched, struct esp_seq *seq)
{
    enum fit fit = fit_of(sched, seq);
    while (fit == NO_ROOM) {
        struct esp_seq *victim = victim_of(sched, seq, false);
        if (victim == NULL) {
            break;
        }
        preempt(sched, victim);
        fit = fit_of(sched, seq);
    }
    return fit;
}

/* Once a request. Other namespaces are looked into only when nothing was found, and only some. */
static void explain(struct esp_sched *sched, struct esp_seq *seq)
{
    enum { SPACES_MAX = 32 };
    struct esp_job *job = seq->job;
    struct esp_tree_why why;
    esp_lease_explain(&sched->lease, seq, 0, &why);
    if (why.n_found < ESP_TREE_PAGE_TOKENS && why.n_evicted == 0) {
        esp_lease_explain(&sched->lease, seq, SPACES_MAX, &why);
    }
    uint32_t n_pages = why.n_found / ESP_TREE_PAGE_TOKENS;
    job->n_reusable = why.n_evicted > 0 ? n_pages * ESP_TREE_PAGE_TOKENS + why.n_evicted : why.n_found;
    esp_explain_fill(&why, seq->tokens, seq->n_tokens, 0, sched->now_ns, &job->why);
}

static void start(struct esp_sched *sched, struct esp_seq *seq)
{
    struct esp_job *job = seq->job;
    esp_fair_take(&sched->fair, seq);
    if (!job->admitted && !job->idle) {
        explain(sched, seq);
    }
    esp_lease_adopt(&sched->lease, seq);
    seq->admission = ++sched->n_admitted;
    sched->running[sched->n_running++] = seq;
    esp_seq_move(seq, ESP_SEQ_PREFILL);
    if (!job->admitted) {
        job->admitted = true;
        job->waiting = false;
        job->admit_ns = sched->now_ns;
        sched->counts.jobs_admitted += !job->idle;
        esp_fair_learn(&sched->fair, seq);
    }
}

/* With all places taken there is nothing to look for unless somebody who waits may outrank somebody who runs. */
static bool may_admit(const struct esp_sched *sched)
{
    const struct esp_fair *fair = &sched->fair;
    if (sched->n_running < sched->config.n_batch_max || fair->n_prioritized > 0) {
        return true;
    }
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (uint32_t i = 0; i < fair->n_tenants && fair->n_queued > 0; i++) {
        const struct esp_tenant *tenant = &fair->tenants[i];
        bool waits = tenant->head != NULL && i != ESP_TENANT_IDLE;
        least = waits && tenant->served < least ? tenant->served : least;
    }
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct esp_seq *seq = sched->running[i];
        int64_t served = esp_fair_is_idle(seq) ? INT64_MAX : fair->tenants[seq->tenant].served;
        most = served > most ? served : most;
    }
    return least != INT64_MAX && most >= least + ESP_FAIR_QUANTUM;
}

void esp_sched_admit(struct esp_sched *sched)
{
    bool returning_only = false;
    sched->n_steps++;
    esp_fair_begin(&sched->fair, sched->now_ns);
    while (may_admit(sched)) {
        struct esp_seq *seq = esp_fair_next(&sched->fair, &sched->lease, returning_only);
        if (seq == NULL) {
            return;
        }
        enum fit fit = make_room(sched, seq);
        if (fit == FITS) {
            start(sched, seq);
        } else if (fit == ONLY_IN_SESSIONS && !returning_only) {
            returning_only = true; /* those whose sessions they are need not wait */
        } else {
            return;
        }
    }
}

/* ---- The plan ----------------------------------------------------------------------------------- */

static bool reserve(struct esp_sched *sched, struct esp_seq *seq, uint32_t n_pages)
{
    while (esp_lease_reserve(&sched->lease, seq, n_pages) != ESP_OK) {
        struct esp_seq *victim = victim_of(sched, seq, true);
        if (victim == NULL) {
            return false; /* keep what there is and wait for others to end */
        }
        preempt(sched, victim);
    }
    return true;
}

/* Tokens [from, to) of a prompt get rows now; what lies between *counted and from was found. Each is counted once. */
static uint32_t count_part(struct esp_sched *sched, uint32_t from, uint32_t to, uint32_t end, uint32_t *counted)
{
    uint32_t n_cached = 0;
    from = from < end ? from : end;
    to = to < end ? to : end;
    if (from > *counted) {
        n_cached = from - *counted;
        sched->counts.cached += n_cached;
        *counted = from;
    }
    if (to > *counted) {
        sched->counts.computed += to - *counted;
        *counted = to;
    }
    return n_cached;
}

/* Tokens that all branches have in common are the job's, those behind them the branch's; rows below n_high are run
 * again. */
static void count(struct esp_sched *sched, struct esp_seq *seq, uint32_t from, uint32_t to)
{
    struct esp_job *job = seq->job;
    if (job->idle) {
        sched->counts.idle += to - from;
        return;
    }
    job->n_cached += count_part(sched, from, to, job->n_prompt, &job->n_counted);
    seq->n_cached_suffix += count_part(sched, from, to, seq->n_prompt, &seq->n_counted);
    uint32_t known_to = seq->n_high < to ? seq->n_high : to;
    if (known_to > from) {
        sched->counts.recomputed += known_to - from;
    }
    esp_fair_charge(&sched->fair, seq, to - (known_to > from ? known_to : from));
    seq->n_high = seq->n_high < to ? to : seq->n_high;
}

static uint32_t add_item(struct esp_sched *sched, struct esp_seq *seq, uint32_t to)
{
    struct esp_plan *plan = &sched->plan;
    uint32_t from = seq->n_computed;
    seq->planned_step = sched->n_steps;
    count(sched, seq, from, to);
    plan->items[plan->n_items++] = (struct esp_plan_item){
        .seq = seq,
        .from = from,
        .n = to - from,
        .n_announced = esp_lease_announce(&sched->lease, seq, to),
        .wants_logits = to == seq->n_tokens && !seq->job->idle,
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
    /* A twin is writing what comes next, or the page file is bringing it. */
    bool waits = esp_lease_adopt(&sched->lease, seq) ||
                 (sched->lease.store != NULL &&
                  esp_keep_holds(sched->lease.store, &sched->lease, seq, sched->now_ns));
    enum esp_seq_state state = waits ? ESP_SEQ_HOLD : ESP_SEQ_PREFILL;
    if (seq->state != state) {
        esp_seq_move(seq, state);
    }
    if (waits) {
        return 0;
    }
    uint32_t goal = esp_seq_goal(seq);
    uint32_t left = goal > seq->n_computed ? goal - seq->n_computed : 0;
    if (left == 0 || !reserve(sched, seq, esp_pages_for(seq->n_computed + (left < budget ? left : budget)))) {
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
    to = to < goal ? to : goal;
    to = to - seq->n_computed < budget ? to : seq->n_computed + budget;
    return add_item(sched, seq, to);
}

/* The counter of the least served tenant whose prompt is being computed: who has had a quantum more stands still. */
static int64_t express_floor(const struct esp_sched *sched)
{
    int64_t floor = INT64_MAX - ESP_FAIR_QUANTUM;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct esp_seq *seq = sched->running[i];
        int64_t served = sched->fair.tenants[seq->tenant].served;
        if (seq->state != ESP_SEQ_DECODE && !seq->blocked && !esp_fair_is_idle(seq) && served < floor) {
            floor = served;
        }
    }
    return floor;
}

/* Who takes part in this step, in order; idle work comes last. */
static uint32_t make_order(struct esp_sched *sched)
{
    uint32_t n = 0, n_running = sched->n_running, from = 0;
    int64_t floor = express_floor(sched);
    while (from < n_running && sched->running[from]->admission < sched->turn) {
        from++;
    }
    for (int idle = 0; idle < 2; idle++) {
        for (uint32_t i = 0; i < n_running; i++) {
            struct esp_seq *seq = sched->running[(from + i) % n_running];
            bool left_out = seq->blocked || esp_fair_is_idle(seq) != (idle == 1) ||
                            (idle == 0 && sched->fair.tenants[seq->tenant].served >= floor + ESP_FAIR_QUANTUM);
            if (!left_out) {
                sched->order[n++] = seq;
            }
        }
    }
    sched->turn = 0;
    return n;
}

void esp_sched_plan(struct esp_sched *sched)
{
    struct esp_plan *plan = &sched->plan;
    plan->n_items = 0;
    plan->n_copies = 0;
    plan->n_rows = 0;
    uint32_t budget = sched->config.prefill_chunk;
    uint32_t n_order = make_order(sched);
    for (uint32_t i = 0; i < n_order; i++) {
        struct esp_seq *seq = sched->order[i];
        if (seq->state == ESP_SEQ_QUEUED) {
            continue; /* preempted by one before it */
        }
        uint32_t n_rows_max = esp_fair_step_rows(&sched->fair, seq->tenant);
        if (esp_fair_is_idle(seq)) {
            bool others_wait = budget < sched->config.prefill_chunk || sched->fair.n_queued > 0;
            n_rows_max = others_wait ? 0 : plan->n_rows + ESP_SCHED_IDLE_ROWS;
        }
        if (plan->n_rows >= n_rows_max) {
            bool first = sched->turn == 0 && !esp_fair_is_idle(seq);
            sched->turn = first ? seq->admission : sched->turn; /* it comes first in the next step */
            continue;
        }
        uint32_t room = n_rows_max - plan->n_rows;
        if (seq->state != ESP_SEQ_DECODE) {
            budget -= plan_prefill(sched, seq, budget < room ? budget : room);
        } else if (reserve(sched, seq, esp_pages_for(seq->n_tokens))) {
            add_item(sched, seq, seq->n_tokens);
        }
    }
}

void esp_sched_end_copies(struct esp_sched *sched)
{
    for (uint32_t i = 0; i < sched->plan.n_copies; i++) {
        esp_tree_release_unchanged(sched->lease.tree, sched->plan.copy_nodes[i]);
    }
    sched->plan.n_copies = 0;
}

uint32_t esp_sched_running_jobs(const struct esp_sched *sched)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < sched->n_running; i++) {
        const struct esp_job *job = sched->running[i]->job;
        bool seen = job->idle;
        for (uint32_t j = 0; j < i && !seen && job->n_branches > 1; j++) {
            seen = sched->running[j]->job == job;
        }
        n += !seen;
    }
    return n;
}
