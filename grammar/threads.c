/* Sets of threads: found again by content, and put together in `work`. See machine.h.
 *
 * Work takes each thread once: what was seen since it was last cleared is kept in a table by hash. Thread: any,
 * under the store's lock.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/machine.h"
#include "grammar/vec.h"
#include "runtime/base/rng.h"

int esp_thread_compare(const void *a, const void *b)
{
    const struct esp_thread *x = a, *y = b;
    if (x->expr != y->expr) {
        return x->expr < y->expr ? -1 : 1;
    }
    return x->parent < y->parent ? -1 : x->parent > y->parent;
}

static uint64_t hash_threads(const struct esp_thread *threads, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t idx = 0; idx < n; idx++) {
        hash = esp_rng_mix(hash ^ ((uint64_t)threads[idx].expr << 32 | threads[idx].parent));
    }
    return hash;
}

static bool rehash(struct esp_store *s, uint32_t cap)
{
    uint32_t *table = esp_calloc(ESP_TAG_GRAMMAR, cap, sizeof *table);
    if (table == NULL) {
        esp_exprs_fail(&s->x, ESP_ENOMEM);
        return false;
    }
    for (uint32_t id = 2; id < s->n_confs; id++) {
        uint64_t at = hash_threads(s->threads + s->confs[id].at, s->confs[id].n) & (cap - 1);
        while (table[at] != 0) {
            at = (at + 1) & (cap - 1);
        }
        table[at] = id;
    }
    esp_free(s->table);
    s->table = table;
    s->table_cap = cap;
    return true;
}

/* Sorts and drops repeats; returns how many are left. */
static uint32_t put_in_order(struct esp_thread *threads, uint32_t n)
{
    uint32_t n_out = n > 0;
    if (n < 2) {
        return n;
    }
    qsort(threads, n, sizeof *threads, esp_thread_compare);
    for (uint32_t idx = 1; idx < n; idx++) {
        if (esp_thread_compare(&threads[n_out - 1], &threads[idx]) != 0) {
            threads[n_out++] = threads[idx];
        }
    }
    return n_out;
}

/* The configuration of threads[0 … n), which are put in order first. */
uint32_t esp_conf_intern(struct esp_store *s, struct esp_thread *threads, uint32_t n)
{
    if (n == 0 || s->x.failed != ESP_OK) {
        return ESP_CONF_DEAD;
    }
    n = put_in_order(threads, n);
    if ((uint64_t)s->n_confs * 4 >= (uint64_t)s->table_cap * 3 &&
        !rehash(s, s->table_cap == 0 ? 64 : s->table_cap * 2)) {
        return ESP_CONF_DEAD;
    }
    uint64_t at = hash_threads(threads, n) & (s->table_cap - 1);
    for (; s->table[at] != 0; at = (at + 1) & (s->table_cap - 1)) {
        const struct esp_conf *conf = &s->confs[s->table[at]];
        if (conf->n == n && memcmp(s->threads + conf->at, threads, n * sizeof *threads) == 0) {
            return s->table[at];
        }
    }
    if (!esp_vec_grow(&s->threads, &s->threads_cap, (uint64_t)s->n_threads + n) ||
        !esp_vec_grow(&s->confs, &s->confs_cap, (uint64_t)s->n_confs + 1)) {
        esp_exprs_fail(&s->x, ESP_ENOMEM);
        return ESP_CONF_DEAD;
    }
    struct esp_conf conf = {.at = s->n_threads, .n = n, .clamped = ESP_CONF_UNKNOWN};
    for (uint32_t idx = 0; idx < n; idx++) {
        conf.complete |= threads[idx].expr == ESP_EXPR_EPS && threads[idx].parent == ESP_CONF_BOTTOM;
        conf.tokens = conf.tokens || (s->x.exprs[threads[idx].expr].flags & ESP_EXPR_TOKENS) != 0;
    }
    memcpy(s->threads + s->n_threads, threads, n * sizeof *threads);
    s->n_threads += n;
    s->table[at] = s->n_confs;
    s->confs[s->n_confs] = conf;
    return s->n_confs++;
}

/* Makes the table of seen threads larger, or empty when there is none. */
static bool grow_seen(struct esp_store *s)
{
    uint32_t cap = s->seen_cap == 0 ? 64 : s->seen_cap * 2;
    struct esp_seen *seen = esp_calloc(ESP_TAG_GRAMMAR, cap, sizeof *seen);
    if (seen == NULL) {
        esp_exprs_fail(&s->x, ESP_ENOMEM);
        return false;
    }
    for (uint32_t idx = 0; idx < s->seen_cap; idx++) {
        if (s->seen[idx].stamp == s->stamp) {
            uint64_t at = hash_threads(&s->seen[idx].thread, 1) & (cap - 1);
            while (seen[at].stamp != 0) {
                at = (at + 1) & (cap - 1);
            }
            seen[at] = s->seen[idx];
        }
    }
    esp_free(s->seen);
    s->seen = seen;
    s->seen_cap = cap;
    return true;
}

/* Notes a thread of this closure; false when it was there, or on failure. */
static bool first_seen(struct esp_store *s, struct esp_thread thread)
{
    if ((uint64_t)s->n_seen * 2 >= s->seen_cap && !grow_seen(s)) {
        return false;
    }
    uint64_t at = hash_threads(&thread, 1) & (s->seen_cap - 1);
    for (; s->seen[at].stamp == s->stamp; at = (at + 1) & (s->seen_cap - 1)) {
        if (esp_thread_compare(&s->seen[at].thread, &thread) == 0) {
            return false;
        }
    }
    s->seen[at] = (struct esp_seen){thread, s->stamp};
    s->n_seen++;
    return true;
}

/* Work begins anew: nothing was seen. */
void esp_work_clear(struct esp_store *s)
{
    s->n_work = s->n_seen = 0;
    if (++s->stamp == 0) {
        memset(s->seen, 0, (size_t)s->seen_cap * sizeof *s->seen);
        s->stamp = 1;
    }
}

void esp_work_add(struct esp_store *s, uint32_t expr, uint32_t parent)
{
    if (!first_seen(s, (struct esp_thread){expr, parent})) {
        return;
    }
    if (s->n_work >= ESP_CONF_THREADS_MAX) {
        esp_exprs_fail(&s->x, ESP_ELIMIT);
        return;
    }
    if (!esp_vec_grow(&s->work, &s->work_cap, (uint64_t)s->n_work + 1)) {
        esp_exprs_fail(&s->x, ESP_ENOMEM);
        return;
    }
    s->work[s->n_work++] = (struct esp_thread){expr, parent};
}

/* The configuration of the threads in work, which is emptied. */
uint32_t esp_work_take(struct esp_store *s)
{
    uint32_t conf = esp_conf_intern(s, s->work, s->n_work);
    esp_work_clear(s);
    return conf;
}
