/* See fair.h. */
#include "runtime/fair.h"

#include <assert.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define STEP_ROWS_MIN 16u

esp_status esp_fair_init(struct esp_fair *fair)
{
    memset(fair, 0, sizeof *fair);
    fair->tenants = esp_calloc(ESP_TAG_ENGINE, ESP_TENANTS_MAX, sizeof *fair->tenants);
    fair->n_tenants = 2;
    return fair->tenants == NULL ? ESP_ENOMEM : ESP_OK;
}

void esp_fair_finish(struct esp_fair *fair)
{
    esp_free(fair->tenants);
    memset(fair, 0, sizeof *fair);
}

uint64_t esp_fair_bytes(void)
{
    return ESP_TENANTS_MAX * sizeof(struct esp_tenant);
}

uint64_t esp_fair_key(const void *name, size_t n_bytes)
{
    uint64_t key = XXH3_64bits(name, n_bytes);
    return key == 0 ? 1 : key;
}

/* The highest counter of those with something queued or running; false when there is none. */
static bool highest(const struct esp_fair *fair, int64_t *ret_served)
{
    bool any = false;
    for (uint32_t i = 0; i < fair->n_tenants; i++) {
        const struct esp_tenant *tenant = &fair->tenants[i];
        if (i != ESP_TENANT_IDLE && tenant->n_live > 0 && (!any || tenant->served > *ret_served)) {
            *ret_served = tenant->served;
            any = true;
        }
    }
    return any;
}

void esp_fair_begin(struct esp_fair *fair, int64_t now_ns)
{
    int64_t top = 0;
    fair->now_ns = now_ns;
    fair->n_peek_pages = ESP_FAIR_PEEK_PAGES;
    if (fair->n_tenants == ESP_TENANT_IDLE + 1 || !highest(fair, &top)) {
        return;
    }
    for (uint32_t i = 0; i < fair->n_tenants; i++) {
        struct esp_tenant *tenant = &fair->tenants[i];
        if (tenant->n_live > 0 && tenant->served < top - ESP_FAIR_CREDIT) {
            tenant->served = top - ESP_FAIR_CREDIT;
        }
    }
}

bool esp_fair_is_owed(const struct esp_fair *fair, const struct esp_seq *seq)
{
    int64_t top = 0;
    return !esp_fair_is_idle(seq) && highest(fair, &top) && fair->tenants[seq->tenant].served + ESP_FAIR_QUANTUM <= top;
}

/* Who comes back has neither saved up nor owes more than the credit. */
static void wake(struct esp_fair *fair, uint32_t idx)
{
    struct esp_tenant *tenant = &fair->tenants[idx];
    int64_t top = 0;
    if (tenant->n_live > 0 || !highest(fair, &top)) {
        return;
    }
    tenant->served = tenant->served < top - ESP_FAIR_CREDIT ? top - ESP_FAIR_CREDIT : tenant->served;
    tenant->served = tenant->served > top ? top : tenant->served;
}

/* Its slot, a free one, or that of the tenant who has been away longest; when all are live, the nameless one's. */
static uint32_t slot_of(struct esp_fair *fair, uint64_t key)
{
    uint32_t oldest = ESP_TENANT_NAMELESS;
    if (key == 0) {
        return ESP_TENANT_NAMELESS;
    }
    for (uint32_t i = ESP_TENANT_IDLE + 1; i < fair->n_tenants; i++) {
        const struct esp_tenant *tenant = &fair->tenants[i];
        if (tenant->key == key) {
            return i;
        }
        if (tenant->n_live == 0 && (oldest == ESP_TENANT_NAMELESS || tenant->used_ns < fair->tenants[oldest].used_ns)) {
            oldest = i;
        }
    }
    if (fair->n_tenants < ESP_TENANTS_MAX) {
        oldest = fair->n_tenants++;
    }
    if (oldest != ESP_TENANT_NAMELESS) {
        fair->tenants[oldest] = (struct esp_tenant){.key = key};
    }
    return oldest;
}

static void enqueue(struct esp_tenant *tenant, struct esp_seq *seq)
{
    struct esp_seq *after = tenant->tail;
    while (after != NULL && after->arrival > seq->arrival) {
        after = after->prev;
    }
    struct esp_seq *before = after == NULL ? tenant->head : after->next;
    seq->prev = after;
    seq->next = before;
    *(after == NULL ? &tenant->head : &after->next) = seq;
    *(before == NULL ? &tenant->tail : &before->prev) = seq;
}

void esp_fair_add(struct esp_fair *fair, struct esp_seq *seq)
{
    if (!seq->known) {
        seq->known = true;
        seq->tenant = seq->job->idle ? ESP_TENANT_IDLE : slot_of(fair, seq->job->tenant);
        wake(fair, seq->tenant);
        struct esp_tenant *tenant = &fair->tenants[seq->tenant];
        tenant->n_live++;
        tenant->used_ns = fair->now_ns;
        seq->served_before = tenant->served;
        fair->n_prioritized += seq->job->priority != 0;
    }
    seq->n_peeked = 0;
    seq->returning = false;
    seq->peeked_ns = INT64_MIN;
    enqueue(&fair->tenants[seq->tenant], seq);
    fair->n_queued += !esp_fair_is_idle(seq);
}

void esp_fair_take(struct esp_fair *fair, struct esp_seq *seq)
{
    struct esp_tenant *tenant = &fair->tenants[seq->tenant];
    *(seq->prev == NULL ? &tenant->head : &seq->prev->next) = seq->next;
    *(seq->next == NULL ? &tenant->tail : &seq->next->prev) = seq->prev;
    seq->prev = NULL;
    seq->next = NULL;
    fair->n_queued -= !esp_fair_is_idle(seq);
}

void esp_fair_forget(struct esp_fair *fair, struct esp_seq *seq)
{
    assert(seq->known && fair->tenants[seq->tenant].n_live > 0);
    fair->tenants[seq->tenant].n_live--;
    fair->n_prioritized -= seq->job->priority != 0;
    seq->known = false;
}

void esp_fair_charge(struct esp_fair *fair, struct esp_seq *seq, uint32_t n)
{
    fair->tenants[seq->tenant].served += n;
}

void esp_fair_learn(struct esp_fair *fair, const struct esp_seq *seq)
{
    struct esp_tenant *tenant = &fair->tenants[seq->tenant];
    uint32_t n = seq->n_tokens - seq->n_computed;
    tenant->typical_rows = tenant->typical_rows == 0 ? n : (3 * tenant->typical_rows + n) / 4;
}

/* A waiting sequence's prefix is looked up when it came, and again now and then: others compute it, or evict it. */
static void peek(struct esp_fair *fair, const struct esp_lease_ctx *lease, struct esp_seq *seq)
{
    enum { STALE_NS = 100000000 };
    if (fair->n_peek_pages == 0 || (seq->peeked_ns != INT64_MIN && fair->now_ns - seq->peeked_ns < STALE_NS)) {
        return;
    }
    struct esp_lease_view view;
    esp_lease_peek(lease, seq, &view);
    seq->n_peeked = view.n_tokens;
    seq->returning = view.class >= ESP_CLASS_RETURN;
    seq->peeked_ns = fair->now_ns;
    uint32_t n_pages = seq->n_peeked / ESP_TREE_PAGE_TOKENS + 1;
    fair->n_peek_pages -= n_pages < fair->n_peek_pages ? n_pages : fair->n_peek_pages;
}

static int64_t score(const struct esp_tenant *tenant, const struct esp_seq *seq)
{
    int64_t n_rows = (int64_t)seq->n_tokens - seq->n_peeked;
    return n_rows - (tenant->served - seq->served_before) / ESP_FAIR_AGE -
           (int64_t)ESP_FAIR_LEVEL * seq->job->priority;
}

struct best {
    struct esp_seq *seq;
    int64_t score;
};

static void best_of(struct esp_fair *fair, const struct esp_lease_ctx *lease, const struct esp_tenant *tenant,
                    bool returning_only, struct best *best)
{
    uint32_t n = 0;
    for (struct esp_seq *seq = tenant->head; seq != NULL && n < ESP_FAIR_SCAN_MAX; seq = seq->next, n++) {
        peek(fair, lease, seq);
        if (returning_only && !seq->returning) {
            continue;
        }
        int64_t value = score(tenant, seq);
        if (best->seq == NULL || value < best->score || (value == best->score && seq->arrival < best->seq->arrival)) {
            *best = (struct best){seq, value};
        }
    }
}

struct esp_seq *esp_fair_next(struct esp_fair *fair, const struct esp_lease_ctx *lease, bool returning_only)
{
    if (fair->n_queued == 0) {
        return returning_only ? NULL : fair->tenants[ESP_TENANT_IDLE].head;
    }
    int64_t floor = INT64_MAX;
    for (uint32_t i = 0; i < fair->n_tenants; i++) {
        const struct esp_tenant *tenant = &fair->tenants[i];
        bool waits = tenant->head != NULL && i != ESP_TENANT_IDLE;
        floor = waits && tenant->served < floor ? tenant->served : floor;
    }
    struct best best = {0};
    for (uint32_t i = 0; i < fair->n_tenants; i++) {
        const struct esp_tenant *tenant = &fair->tenants[i];
        if (tenant->head != NULL && i != ESP_TENANT_IDLE && tenant->served < floor + ESP_FAIR_QUANTUM) {
            best_of(fair, lease, tenant, returning_only, &best);
        }
    }
    return best.seq;
}

bool esp_fair_outranks(const struct esp_fair *fair, const struct esp_seq *seq, const struct esp_seq *other)
{
    if (esp_fair_is_idle(seq) || esp_fair_is_idle(other)) {
        return !esp_fair_is_idle(seq);
    }
    if (seq->tenant != other->tenant) {
        return fair->tenants[seq->tenant].served + ESP_FAIR_QUANTUM <= fair->tenants[other->tenant].served;
    }
    /* The head start of a priority is used up by as many rows as it stands for. */
    int64_t head_start = (int64_t)ESP_FAIR_LEVEL * ESP_FAIR_AGE * ((int64_t)seq->job->priority - other->job->priority);
    return seq->job->priority > other->job->priority && seq->served_before - other->served_before < head_start;
}

uint32_t esp_fair_step_rows(const struct esp_fair *fair, uint32_t idx)
{
    const struct esp_tenant *tenant = &fair->tenants[idx];
    uint32_t n_rows = UINT32_MAX;
    for (uint32_t i = 0; i < fair->n_tenants; i++) {
        const struct esp_tenant *other = &fair->tenants[i];
        if (i == idx || i == ESP_TENANT_IDLE || other->typical_rows == 0 ||
            fair->now_ns - other->used_ns > ESP_FAIR_RECENT_NS) {
            continue;
        }
        bool is_owed = other->served + ESP_FAIR_QUANTUM <= tenant->served;
        uint32_t half = other->typical_rows / 2 < STEP_ROWS_MIN ? STEP_ROWS_MIN : other->typical_rows / 2;
        n_rows = is_owed && half < n_rows ? half : n_rows;
    }
    return n_rows;
}
