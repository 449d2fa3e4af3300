/* Tenants: who has had how much of the engine, and whose request is next. Pure bookkeeping over queues.
 *
 *   tenant A  served 9,100 ──► seq ─► seq ─► seq      a queue each, by arrival
 *   tenant B  served 8,900 ──► seq
 *   tenant C  served 8,950     (something runs, nothing waits)
 *
 * `served` counts the rows that were computed for a tenant: what the cache gave costs nothing, and what
 * pressure made the engine compute again is not charged. The one that has had least among those who wait
 * is the floor; a tenant's deficit is floor + ESP_FAIR_QUANTUM − served, and while it is positive the tenant's
 * requests stand in one pool with those of the others who have one left. Out of that pool goes first whose
 * prompt needs the fewest rows (the longest cached prefix), corrected by age and priority:
 *
 *   score = rows needed − rows its tenant was given since it came / ESP_FAIR_AGE − ESP_FAIR_LEVEL · priority
 *
 * So a request is passed over by at most ESP_FAIR_AGE times its own rows of work that came later: nothing
 * starves, and a priority is a head start inside its tenant, never a claim on the share of another.
 * A tenant that has had a quantum less than another outranks it: its request may take the other's place.
 * Counters of live tenants stay within ESP_FAIR_CREDIT of the highest one, so nobody saves up more than that.
 * Thread: the engine's.
 */
#ifndef ESP_RUNTIME_FAIR_H
#define ESP_RUNTIME_FAIR_H

#include "runtime/lease.h"

#define ESP_TENANTS_MAX 512        /* with something queued or running; the others share the first one */
#define ESP_FAIR_QUANTUM 512       /* rows */
#define ESP_FAIR_CREDIT 8192       /* rows */
#define ESP_FAIR_AGE 8             /* rows given to a tenant that weigh as much as one row needed */
#define ESP_FAIR_LEVEL 4096        /* rows needed that one level of priority outweighs */
#define ESP_FAIR_SCAN_MAX 512u     /* waiting requests of a tenant that are looked at, first come first */
#define ESP_FAIR_PEEK_PAGES 512u   /* pages that are looked up for waiting requests in one step */
#define ESP_FAIR_RECENT_NS 30000000000ll

struct esp_tenant {
    uint64_t key; /* of the name; 0 = free slot, or the one for those without a name */
    int64_t served;
    int64_t used_ns;        /* when its last request came */
    uint32_t typical_rows;  /* that its prompts need, smoothed; 0 = none came yet */
    uint32_t n_live;        /* sequences queued or running */
    struct esp_seq *head, *tail;
};

struct esp_fair {
    struct esp_tenant *tenants; /* [ESP_TENANTS_MAX] slot 0: without a name, slot 1: idle work; neither is recycled */
    uint32_t n_tenants;         /* slots ever used: the first ones */
    uint32_t n_queued;          /* idle work not counted */
    uint32_t n_prioritized;     /* live sequences with a priority other than 0 */
    uint32_t n_peek_pages;      /* that may still be looked up in this step */
    int64_t now_ns;
};
#define ESP_TENANT_NAMELESS 0
#define ESP_TENANT_IDLE 1

esp_status esp_fair_init(struct esp_fair *fair);
void esp_fair_finish(struct esp_fair *fair); /* zeroed is fine */
uint64_t esp_fair_bytes(void);
/* The key under which a request is counted; never 0. */
uint64_t esp_fair_key(const void *name, size_t n_bytes);

/* A step begins. */
void esp_fair_begin(struct esp_fair *fair, int64_t now_ns);
/* A sequence comes to its tenant's queue, for the first time or again; leaves it to run; is done with the engine. */
void esp_fair_add(struct esp_fair *fair, struct esp_seq *seq);
void esp_fair_take(struct esp_fair *fair, struct esp_seq *seq);
void esp_fair_forget(struct esp_fair *fair, struct esp_seq *seq);
/* n rows are computed for it. */
void esp_fair_charge(struct esp_fair *fair, struct esp_seq *seq, uint32_t n);
/* What its prompt needed when it was admitted. */
void esp_fair_learn(struct esp_fair *fair, const struct esp_seq *seq);

/* The waiting sequence whose turn it is, or NULL. returning_only: those whose prefix a tool call has left for them.
 * Idle work is next when nothing else waits. Looks up cached prefixes, within the step's budget. */
struct esp_seq *esp_fair_next(struct esp_fair *fair, const struct esp_lease_ctx *lease, bool returning_only);
/* Whether `seq` may take the place of `other`, which runs. */
bool esp_fair_outranks(const struct esp_fair *fair, const struct esp_seq *seq, const struct esp_seq *other);
/* Whether some other tenant has had a quantum more than this one's. */
bool esp_fair_is_owed(const struct esp_fair *fair, const struct esp_seq *seq);
/* Rows that a step may have when this tenant takes part in it, so that one who is owed service and comes while it runs
 * waits for about half the time that his own prompt takes; at least 16, UINT32_MAX when nobody is. */
uint32_t esp_fair_step_rows(const struct esp_fair *fair, uint32_t tenant);
static inline bool esp_fair_is_idle(const struct esp_seq *seq)
{
    return seq->tenant == ESP_TENANT_IDLE;
}

#endif
