/* Configurations: closure over calls and finished values, steps, counters cut down. See machine.h. */
#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/live.h"
#include "grammar/vec.h"
#include "runtime/base/rng.h"

#define CLAMP_MEMBERS_MAX 64 /* wider alternatives are left as they are */

struct esp_pending { /* a call found in a closure */
    uint32_t node;
    struct esp_thread cont;
};

esp_status esp_store_create(const struct esp_exprs *base, const uint32_t *starts, const struct esp_trie *trie,
                            struct esp_store **ret_store)
{
    struct esp_store *store = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *store);
    if (store == NULL) {
        return ESP_ENOMEM;
    }
    pthread_mutex_init(&store->lock, NULL);
    store->n_refs = 1;
    store->stamp = 1; /* of no empty place in seen */
    store->starts = starts;
    store->trie = trie;
    esp_arena_init(&store->arena, ESP_TAG_GRAMMAR, SIZE_MAX / 2);
    if (esp_exprs_copy(&store->x, base, SIZE_MAX / 2) != ESP_OK ||
        !esp_vec_grow(&store->confs, &store->confs_cap, 16) || !esp_vec_grow(&store->masks, &store->masks_cap, 16) ||
        !esp_vec_grow(&store->stack, &store->stack_cap, (uint64_t)trie->all.depth_max + 2)) {
        esp_store_destroy(store);
        return ESP_ENOMEM;
    }
    store->confs[ESP_CONF_DEAD] = (struct esp_conf){.clamped = ESP_CONF_DEAD};
    store->confs[ESP_CONF_BOTTOM] = (struct esp_conf){.clamped = ESP_CONF_BOTTOM};
    store->n_confs = 2;
    store->masks[0] = (struct esp_mask){0};
    store->n_masks = 1;
    *ret_store = store;
    return ESP_OK;
}

void esp_store_destroy(struct esp_store *store)
{
    if (store == NULL) {
        return;
    }
    for (uint32_t idx = 1; idx < store->n_masks; idx++) {
        esp_free(store->masks[idx].bits);
    }
    esp_exprs_finish(&store->x);
    esp_arena_finish(&store->arena);
    esp_free(store->threads);
    esp_free(store->confs);
    esp_free(store->table);
    esp_free(store->work);
    esp_free(store->pending);
    esp_free(store->seen);
    esp_free(store->masks);
    esp_free(store->stack);
    pthread_mutex_destroy(&store->lock);
    esp_free(store);
}

size_t esp_store_bytes(const struct esp_store *store)
{
    return sizeof *store + esp_exprs_bytes(&store->x) + store->arena.used_bytes + (size_t)store->threads_cap * 8 +
           (size_t)store->confs_cap * sizeof *store->confs + (size_t)store->table_cap * 4 +
           (size_t)store->work_cap * 8 + (size_t)store->seen_cap * sizeof *store->seen +
           (size_t)store->masks_cap * sizeof *store->masks + store->mask_bytes;
}

bool esp_store_full(const struct esp_store *store)
{
    return esp_store_bytes(store) - store->mask_bytes > ESP_STORE_BYTES_MAX;
}

/* ---- Closure ----------------------------------------------------------------------------------- */

static void add_pending(struct esp_store *s, uint32_t node, uint32_t cont, uint32_t parent)
{
    if (!esp_vec_grow(&s->pending, &s->pending_cap, (uint64_t)s->n_pending + 1)) {
        esp_exprs_fail(&s->x, ESP_ENOMEM);
        return;
    }
    s->pending[s->n_pending++] = (struct esp_pending){node, {cont, parent}};
}

/* A finished value goes on where its parents say. */
static void pop(struct esp_store *s, uint32_t parent)
{
    if (parent == ESP_CONF_BOTTOM) {
        return;
    }
    for (uint32_t idx = 0; idx < s->confs[parent].n; idx++) {
        struct esp_thread thread = s->threads[s->confs[parent].at + idx];
        esp_work_add(s, thread.expr, thread.parent);
    }
}

static bool begins_with(const struct esp_exprs *x, uint32_t id, uint32_t head)
{
    return id == head || (x->exprs[id].op == ESP_X_CAT && x->exprs[id].a == head);
}

/* A call that is followed by `cont` and then by what the parents say. r* and then r*… is r*… alone, so that
 * repeats inside of repeats pile up no frames. */
static void push_call(struct esp_store *s, uint32_t node, uint32_t cont, uint32_t parent)
{
    const struct esp_expr *e = &s->x.exprs[cont];
    uint32_t n = s->confs[parent].n, at = s->confs[parent].at, n_same = 0;
    bool star = e->op == ESP_X_REP && e->c == 0 && e->d == ESP_EXPR_INF;
    for (uint32_t idx = 0; idx < n && star; idx++) {
        struct esp_thread up = s->threads[at + idx];
        if (begins_with(&s->x, up.expr, cont)) {
            add_pending(s, node, up.expr, up.parent);
            n_same++;
        }
    }
    if (n_same == 0) {
        add_pending(s, node, cont, parent);
    } else if (n_same < n) {
        struct esp_thread *rest = esp_malloc(ESP_TAG_GRAMMAR, n * sizeof *rest);
        uint32_t n_rest = 0;
        if (rest == NULL) {
            esp_exprs_fail(&s->x, ESP_ENOMEM);
            return;
        }
        for (uint32_t idx = 0; idx < n; idx++) {
            struct esp_thread up = s->threads[at + idx];
            rest[n_rest] = up;
            n_rest += !begins_with(&s->x, up.expr, cont);
        }
        add_pending(s, node, cont, esp_conf_intern(s, rest, n_rest));
        esp_free(rest);
    }
}

static void note_calls(struct esp_store *s, struct esp_thread thread)
{
    uint32_t mark = s->x.n_scratch;
    if ((s->x.exprs[thread.expr].flags & ESP_EXPR_CALLS) == 0) {
        return;
    }
    esp_expr_calls(&s->x, thread.expr);
    for (uint32_t at = mark; at + 1 < s->x.n_scratch; at += 2) {
        uint32_t node = s->x.scratch[at], cont = s->x.scratch[at + 1];
        if (cont == ESP_EXPR_EPS && thread.parent != ESP_CONF_BOTTOM) {
            /* Nothing follows the call: the child returns straight to the grandparents. */
            for (uint32_t idx = 0; idx < s->confs[thread.parent].n; idx++) {
                struct esp_thread up = s->threads[s->confs[thread.parent].at + idx];
                add_pending(s, node, up.expr, up.parent);
            }
        } else {
            push_call(s, node, cont, thread.parent);
        }
    }
    s->x.n_scratch = mark;
}

static int compare_pending(const void *a, const void *b)
{
    const struct esp_pending *x = a, *y = b;
    if (x->node != y->node) {
        return x->node < y->node ? -1 : 1;
    }
    return esp_thread_compare(&x->cont, &y->cont);
}

/* Starts the children that were called since the last time: one thread a node. */
static void start_pending(struct esp_store *s)
{
    struct esp_thread few[16];
    uint32_t begin = 0;
    qsort(s->pending, s->n_pending, sizeof *s->pending, compare_pending);
    while (begin < s->n_pending && s->x.failed == ESP_OK) {
        uint32_t node = s->pending[begin].node, end = begin;
        while (end < s->n_pending && s->pending[end].node == node) {
            end++;
        }
        uint32_t n = end - begin;
        struct esp_thread *conts = n <= 16 ? few : esp_malloc(ESP_TAG_GRAMMAR, n * sizeof *conts);
        if (conts == NULL) {
            esp_exprs_fail(&s->x, ESP_ENOMEM);
            return;
        }
        for (uint32_t idx = 0; idx < n; idx++) {
            conts[idx] = s->pending[begin + idx].cont;
        }
        uint32_t parent = esp_conf_intern(s, conts, n);
        if (conts != few) {
            esp_free(conts);
        }
        esp_work_add(s, s->starts[node], parent);
        begin = end;
    }
    s->n_pending = 0;
}

/* Follows calls and finished values of the threads in work; those that take something next are left there. */
static void close_work(struct esp_store *s)
{
    uint32_t n_kept = 0, at = 0;
    s->n_pending = 0;
    for (;;) {
        s->x.fuel -= s->x.fuel < s->n_work ? s->x.fuel : s->n_work; /* none left fails in the next derivative */
        for (; at < s->n_work && s->x.failed == ESP_OK; at++) {
            struct esp_thread thread = s->work[at];
            const struct esp_expr *e = &s->x.exprs[thread.expr];
            bool keep = (e->flags & (ESP_EXPR_BYTES | ESP_EXPR_TOKENS)) != 0 ||
                        (thread.expr == ESP_EXPR_EPS && thread.parent == ESP_CONF_BOTTOM);
            if (e->flags & ESP_EXPR_NULLABLE) {
                if (thread.expr != ESP_EXPR_EPS && thread.parent == ESP_CONF_BOTTOM) {
                    esp_work_add(s, ESP_EXPR_EPS, ESP_CONF_BOTTOM);
                }
                pop(s, thread.parent);
            }
            note_calls(s, thread);
            if (keep) {
                s->work[n_kept++] = thread;
            }
        }
        if (s->n_pending == 0 || s->x.failed != ESP_OK) {
            break;
        }
        start_pending(s);
    }
    s->n_work = n_kept;
}

uint32_t esp_conf_start(struct esp_store *s, uint32_t node)
{
    esp_work_clear(s);
    esp_work_add(s, s->starts[node], ESP_CONF_BOTTOM);
    close_work(s);
    return esp_work_take(s);
}

/* As esp_conf_step, without remembering the step. */
static uint32_t step_once(struct esp_store *s, uint32_t conf, unsigned symbol)
{
    uint32_t n = s->confs[conf].n, at = s->confs[conf].at;
    esp_work_clear(s);
    for (uint32_t idx = 0; idx < n; idx++) {
        struct esp_thread thread = s->threads[at + idx];
        uint32_t expr = symbol < ESP_SYMBOL_TOKEN ? esp_expr_step(&s->x, thread.expr, symbol)
                                                  : esp_expr_deriv(&s->x, thread.expr, symbol);
        if (expr != ESP_EXPR_EMPTY) {
            esp_work_add(s, expr, thread.parent);
        }
    }
    close_work(s);
    return esp_work_take(s);
}

uint32_t esp_conf_step(struct esp_store *s, uint32_t conf, unsigned byte)
{
    if (conf == ESP_CONF_DEAD) {
        return ESP_CONF_DEAD;
    }
    uint32_t *next = s->confs[conf].next;
    if (next == NULL) {
        next = esp_arena_alloc(&s->arena, 256 + 8, sizeof *next);
        if (next == NULL) {
            esp_exprs_fail(&s->x, ESP_ENOMEM);
            return ESP_CONF_DEAD;
        }
        memset(next, 0xFF, 256 * sizeof *next);
        for (uint32_t idx = 0; idx < s->confs[conf].n; idx++) {
            esp_expr_row(&s->x, s->threads[s->confs[conf].at + idx].expr);
        }
        s->confs[conf].next = next;
    }
    if (next[byte] == ESP_CONF_UNKNOWN) {
        next[byte] = step_once(s, conf, byte);
    }
    return next[byte];
}

/* Do all threads go the same way on both bytes? Rows are there. */
static bool same_step(const struct esp_store *s, const struct esp_conf *conf, unsigned a, unsigned b)
{
    for (uint32_t idx = 0; idx < conf->n; idx++) {
        const struct esp_expr *e = &s->x.exprs[s->threads[conf->at + idx].expr];
        if (e->row == 0 || s->x.rows[e->row]->next[a] != s->x.rows[e->row]->next[b]) {
            return false;
        }
    }
    return true;
}

struct esp_byteset esp_conf_alive(struct esp_store *s, uint32_t conf)
{
    struct esp_byteset alive = {{0}};
    if (conf == ESP_CONF_DEAD) {
        return alive;
    }
    esp_conf_step(s, conf, 0); /* makes the table */
    uint32_t *next = s->confs[conf].next;
    if (next == NULL || s->x.failed != ESP_OK) {
        return alive;
    }
    if (!s->confs[conf].filled) {
        for (unsigned byte = 0; byte < 256; byte++) {
            if (byte > 0 && same_step(s, &s->confs[conf], byte - 1, byte)) {
                next[byte] = next[byte - 1];
            }
            if (esp_conf_step(s, conf, byte) != ESP_CONF_DEAD) {
                esp_byteset_add(&alive, byte, byte);
            }
        }
        memcpy(next + 256, alive.w, sizeof alive.w);
        s->confs[conf].filled = s->x.failed == ESP_OK;
    }
    memcpy(alive.w, next + 256, sizeof alive.w);
    return alive;
}

static uint32_t run(struct esp_store *s, uint32_t conf, const uint8_t *bytes, uint32_t n_bytes)
{
    for (uint32_t at = 0; at < n_bytes && conf != ESP_CONF_DEAD; at++) {
        const uint32_t *next = s->confs[conf].next;
        conf = next != NULL && next[bytes[at]] != ESP_CONF_UNKNOWN ? next[bytes[at]] : step_once(s, conf, bytes[at]);
    }
    return conf;
}

/* The threads of both. */
static uint32_t merge(struct esp_store *s, uint32_t a, uint32_t b)
{
    if (a == ESP_CONF_DEAD || b == ESP_CONF_DEAD || a == b) {
        return a == ESP_CONF_DEAD ? b : a;
    }
    for (uint32_t idx = 0; idx < s->confs[a].n; idx++) {
        struct esp_thread thread = s->threads[s->confs[a].at + idx];
        esp_work_add(s, thread.expr, thread.parent);
    }
    for (uint32_t idx = 0; idx < s->confs[b].n; idx++) {
        struct esp_thread thread = s->threads[s->confs[b].at + idx];
        esp_work_add(s, thread.expr, thread.parent);
    }
    return esp_work_take(s);
}

/* After the end of a token: what its budgets make of each thread. Threads that stay as they are were closed
 * before and are not closed again. */
uint32_t esp_conf_tick(struct esp_store *s, uint32_t conf)
{
    uint32_t n = s->confs[conf].n, at = s->confs[conf].at, n_same = 0;
    if (!s->x.budgets) {
        return conf;
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        struct esp_thread thread = s->threads[at + idx];
        uint32_t expr = esp_expr_tick(&s->x, thread.expr);
        n_same += expr == thread.expr;
        if (expr != thread.expr) {
            esp_work_add(s, expr, thread.parent);
        }
    }
    if (n_same == n) {
        return conf;
    }
    close_work(s);
    for (uint32_t idx = 0; idx < n && n_same > 0; idx++) {
        struct esp_thread thread = s->threads[at + idx];
        if (esp_expr_tick(&s->x, thread.expr) == thread.expr) {
            esp_work_add(s, thread.expr, thread.parent);
        }
    }
    return esp_work_take(s);
}

uint32_t esp_conf_take(struct esp_store *s, uint32_t conf, uint32_t token)
{
    uint32_t n_bytes, next = ESP_CONF_DEAD;
    const uint8_t *bytes = esp_trie_token(s->trie, token, &n_bytes);
    if (s->trie->roles[token] == ESP_ROLE_TEXT && n_bytes > 0) {
        next = run(s, conf, bytes, n_bytes);
    }
    if (s->confs[conf].tokens) {
        next = merge(s, next, step_once(s, conf, ESP_SYMBOL_TOKEN + token));
    }
    return esp_conf_tick(s, next);
}

/* ---- Counters ---------------------------------------------------------------------------------- */

/* A token of n bytes takes at most n characters of a string and n items of a repeat. Beyond that, and
 * beyond where lengths have settled, a count is as good as any other. */
static uint32_t clamp_expr(struct esp_exprs *x, uint32_t id, uint32_t n);

static uint32_t clamp_len(struct esp_exprs *x, uint32_t id, uint32_t n)
{
    struct esp_expr e = x->exprs[id];
    uint32_t settled = esp_lens_settled(x, e.a, e.b);
    uint64_t top = (uint64_t)settled + n + 1;
    if (settled == 0 || (e.c <= top && (e.d <= top || e.d == ESP_EXPR_INF))) {
        return id;
    }
    return esp_expr_len(x, e.a, e.b, e.c > top ? (uint32_t)top : e.c, e.d > top ? ESP_EXPR_INF : e.d);
}

static uint32_t clamp_alt(struct esp_exprs *x, uint32_t id, uint32_t n)
{
    struct esp_expr e = x->exprs[id];
    uint32_t mark = x->n_scratch;
    bool same = true;
    for (uint32_t idx = 0; idx < e.b; idx++) {
        uint32_t member = x->lists[e.a + idx], clamped = clamp_expr(x, member, n);
        same = same && member == clamped;
        esp_exprs_push(x, clamped);
    }
    uint32_t result = same ? id : esp_expr_alt(x, x->scratch + mark, e.b);
    x->n_scratch = mark;
    return result;
}

static uint32_t clamp_expr(struct esp_exprs *x, uint32_t id, uint32_t n)
{
    struct esp_expr e = x->exprs[id];
    uint32_t top = n + 1, head;
    switch (e.op) {
    case ESP_X_CAT: head = clamp_expr(x, e.a, n); return head == e.a ? id : esp_expr_cat(x, head, e.b);
    case ESP_X_LEN: return clamp_len(x, id, n);
    case ESP_X_REP: return esp_expr_rep(x, e.a, e.c > top ? top : e.c, e.d > top ? ESP_EXPR_INF : e.d);
    case ESP_X_BUDGET: return e.b > 0 ? esp_expr_budget(x, e.a, 1, true) : id;
    case ESP_X_ALT: return e.b <= CLAMP_MEMBERS_MAX ? clamp_alt(x, id, n) : id;
    default: return id;
    }
}

uint32_t esp_conf_clamp(struct esp_store *s, uint32_t conf, uint32_t n_bytes)
{
    uint32_t n = s->confs[conf].n, at = s->confs[conf].at;
    bool same = true;
    esp_work_clear(s);
    for (uint32_t idx = 0; idx < n; idx++) {
        struct esp_thread thread = s->threads[at + idx];
        uint32_t expr = clamp_expr(&s->x, thread.expr, n_bytes);
        same = same && expr == thread.expr;
        esp_work_add(s, expr, thread.parent);
    }
    uint32_t result = same ? conf : esp_conf_intern(s, s->work, s->n_work);
    esp_work_clear(s);
    return result;
}

bool esp_conf_closed(struct esp_store *s, uint32_t conf)
{
    if (s->confs[conf].closed == 0) {
        bool closed = false;
        for (uint32_t idx = 0; idx < s->confs[conf].n && !closed; idx++) {
            closed = esp_live_closed(&s->x, s->threads[s->confs[conf].at + idx].expr);
        }
        s->confs[conf].closed = closed ? 1 : 2;
    }
    return s->confs[conf].closed == 1;
}
