/* Masks: which tokens may come next. Cheapest first:
 *
 *   1. the mask of an equal configuration (counters cut down to what a token can see)
 *   2. inside a string: the ready-made slice of safe tokens, and a walk of the few other tokens
 *   3. inside a counted or repeated class: the slice of that class, and a walk of the tokens that leave it
 *   4. a walk of the whole trie; a subtree of safe characters is taken whole when they lead back
 *
 * Masks live in one list, least recently used last, under ESP_MASKS_BYTES_MAX; a pinned one stays.
 * Where the vocabulary lacks single bytes, a token also has to lead to where tokens can finish.
 * Thread: any, under the store's lock.
 */
#include "grammar/machine.h"

#include <string.h>

#include "grammar/live.h"
#include "grammar/objects.h"
#include "grammar/vec.h"
#include "grammar/zone.h"

enum { LIVE_UNKNOWN, LIVE_YES, LIVE_NO, LIVE_VISITED };
#define WAYS_MAX 64u        /* wider alternatives are not looked through */
#define LIVE_SEARCH_MAX 4000u /* configurations looked at before a state counts as live */

static void fill(uint64_t *mask, const struct esp_tree *tree, uint32_t first, uint32_t last)
{
    for (uint32_t at = first; at < last; at++) {
        esp_mask_set(mask, tree->order[at]);
    }
}

/* Sets every token of the tree that conf can take. */
static void walk(struct esp_store *s, const struct esp_tree *tree, uint32_t conf, uint64_t *mask)
{
    s->stack[0] = conf;
    for (uint32_t at = 0; at < tree->n;) {
        const struct esp_tree_node *node = &tree->nodes[at];
        uint32_t now = esp_conf_step(s, s->stack[node->depth], node->byte);
        if (now == ESP_CONF_DEAD) {
            if (s->x.failed != ESP_OK) {
                return;
            }
            at = node->next;
            continue;
        }
        if ((node->flags & ESP_TREE_SAFE) && node->next > at + 1 && esp_conf_closed(s, now)) {
            fill(mask, tree, node->tokens, tree->nodes[node->next].tokens);
            at = node->next;
            continue;
        }
        if (tree->nodes[at + 1].tokens > node->tokens) {
            fill(mask, tree, node->tokens, tree->nodes[at + 1].tokens);
        }
        s->stack[node->depth + 1] = now;
        at++;
    }
}

/* The same inside a zone: tokens of its class alone are not looked at, they are set already. */
static void walk_zone(struct esp_store *s, const struct esp_zone *zone, uint32_t conf, uint64_t *mask)
{
    const struct esp_tree *tree = &s->trie->all;
    const uint64_t *in = zone->class.ascii, *out = zone->out.ascii;
    unsigned leaves = (zone->class.utf8 ? ESP_TREE_BROKEN : 0) | (zone->out.utf8 ? ESP_TREE_HIGH : 0);
    uint32_t run = 0; /* so many bytes of the path are of the class */
    s->stack[0] = conf;
    for (uint32_t at = 0; at < tree->n;) {
        const struct esp_tree_node *node = &tree->nodes[at];
        const uint64_t *below = tree->below[at].ascii;
        unsigned byte = node->byte;
        run = node->depth < run ? node->depth : run;
        if (run == node->depth && (byte < 0x80 ? in[byte >> 6] >> (byte & 63) & 1 : zone->class.utf8)) {
            run++;
            if (((below[0] & out[0]) | (below[1] & out[1])) == 0 && (node->flags & leaves) == 0) {
                at = node->next;
                continue;
            }
        }
        uint32_t now = esp_conf_step(s, s->stack[node->depth], byte);
        if (now == ESP_CONF_DEAD) {
            if (s->x.failed != ESP_OK) {
                return;
            }
            at = node->next;
            continue;
        }
        if (tree->nodes[at + 1].tokens > node->tokens) {
            fill(mask, tree, node->tokens, tree->nodes[at + 1].tokens);
        }
        s->stack[node->depth + 1] = now;
        at++;
    }
}

/* Does one of the ways go on whatever safe characters come? A key that is not declared always does. */
static bool takes_all(struct esp_exprs *x, uint32_t id)
{
    uint32_t n = x->exprs[id].op == ESP_X_ALT ? x->exprs[id].b : 1;
    for (uint32_t idx = 0; idx < n && n <= WAYS_MAX; idx++) {
        uint32_t one = x->exprs[id].op == ESP_X_ALT ? x->lists[x->exprs[id].a + idx] : id;
        const struct esp_expr *e = &x->exprs[one], *head = e->op == ESP_X_CAT ? &x->exprs[e->a] : e;
        if (head->op == ESP_X_KEYS ? esp_keys_free(x, head) != ESP_EXPR_EMPTY
                                   : (e->flags & ESP_EXPR_BYTES) != 0 && esp_live_closed(x, one)) {
            return true;
        }
    }
    return false;
}

/* How many safe characters a state of one way takes, no more and whatever they are; 0 = not known. */
static uint32_t safe_run(struct esp_exprs *x, uint32_t id)
{
    struct esp_expr e = x->exprs[id];
    if (e.op == ESP_X_CAT) {
        e = x->exprs[e.a];
    }
    if (e.op == ESP_X_LEN && e.b == 0 && esp_live_closed(x, e.a) && esp_expr_nullable(x, e.a)) {
        return e.d;
    }
    return 0;
}

/* False when the state has no zone, and the mask is still empty. */
static bool build_zone(struct esp_store *s, uint32_t conf, uint64_t *mask)
{
    struct esp_zone zone;
    if (!esp_zone_find(s, conf, &zone)) {
        return false;
    }
    if (esp_slices_take(s->trie, &zone.class, zone.n_chars, mask) != ESP_OK) {
        esp_exprs_fail(&s->x, ESP_ENOMEM);
        return true;
    }
    walk_zone(s, &zone, conf, mask);
    if (zone.capped) {
        walk(s, &s->trie->longs, conf, mask);
    }
    return true;
}

/* The tokens that may be taken whole. */
static void add_whole(struct esp_store *s, uint32_t conf, uint64_t *mask)
{
    uint32_t mark = s->x.n_scratch;
    for (uint32_t idx = 0; idx < s->confs[conf].n; idx++) {
        esp_expr_tokens(&s->x, s->threads[s->confs[conf].at + idx].expr);
    }
    for (uint32_t at = mark; at + 1 < s->x.n_scratch; at += 2) {
        for (uint32_t token = s->x.scratch[at]; token <= s->x.scratch[at + 1]; token++) {
            esp_mask_set(mask, token);
        }
    }
    s->x.n_scratch = mark;
}

/* Takes away the tokens after which no tokens can finish. */
static void drop_stuck(struct esp_store *s, uint32_t conf, uint64_t *mask)
{
    for (uint32_t token = 0; token < s->trie->n_tokens; token++) {
        if (esp_mask_has(mask, token) && s->trie->roles[token] != ESP_ROLE_END &&
            !esp_store_live(s, esp_conf_take(s, conf, token))) {
            mask[token / 64] &= ~((uint64_t)1 << (token % 64));
        }
    }
}

static void build(struct esp_store *s, uint32_t conf, uint64_t *mask)
{
    const struct esp_trie *trie = s->trie;
    size_t words = esp_mask_words(trie->n_tokens);
    uint32_t run = s->confs[conf].n == 1 ? safe_run(&s->x, s->threads[s->confs[conf].at].expr) : 0;
    for (uint32_t idx = 0; idx < s->confs[conf].n && run != ESP_EXPR_INF; idx++) {
        run = takes_all(&s->x, s->threads[s->confs[conf].at + idx].expr) ? ESP_EXPR_INF : run;
    }
    if (run > 0) {
        uint32_t slice = run < trie->n_slices ? run : trie->n_slices;
        memcpy(mask, trie->slices + slice * words, words * sizeof *mask);
        walk(s, &trie->rest, esp_conf_clamp(s, conf, trie->rest.depth_max), mask);
    } else if (!build_zone(s, conf, mask)) {
        walk(s, &trie->all, conf, mask);
    }
    if (s->confs[conf].complete) {
        for (uint32_t idx = 0; idx < trie->n_ends; idx++) {
            esp_mask_set(mask, trie->ends[idx]);
        }
    }
    if (s->confs[conf].tokens) {
        add_whole(s, conf, mask);
    }
    if (!trie->byte_complete) {
        drop_stuck(s, conf, mask);
    }
}

/* ---- The cache --------------------------------------------------------------------------------- */

static void unlink_mask(struct esp_store *s, uint32_t idx)
{
    struct esp_mask *m = &s->masks[idx];
    s->masks[m->newer].older = m->older;
    s->masks[m->older].newer = m->newer;
}

static void link_newest(struct esp_store *s, uint32_t idx)
{
    struct esp_mask *m = &s->masks[idx], *head = &s->masks[0];
    m->newer = 0;
    m->older = head->older;
    s->masks[head->older].newer = idx;
    head->older = idx;
}

/* The least recently used mask that nobody holds, taken out of the list; 0 when all are held. */
static uint32_t evict(struct esp_store *s)
{
    for (uint32_t idx = s->masks[0].newer; idx != 0; idx = s->masks[idx].newer) {
        if (s->masks[idx].n_pins == 0) {
            unlink_mask(s, idx);
            s->confs[s->masks[idx].conf].mask = 0;
            return idx;
        }
    }
    return 0;
}

static uint32_t take_slot(struct esp_store *s)
{
    size_t bytes = esp_mask_words(s->trie->n_tokens) * sizeof(uint64_t);
    uint32_t idx = s->mask_bytes + bytes > ESP_MASKS_BYTES_MAX ? evict(s) : 0;
    if (idx != 0) {
        memset(s->masks[idx].bits, 0, bytes);
        return idx;
    }
    if (!esp_vec_grow(&s->masks, &s->masks_cap, (uint64_t)s->n_masks + 1)) {
        return 0;
    }
    uint64_t *bits = esp_calloc(ESP_TAG_GRAMMAR, 1, bytes);
    if (bits == NULL) {
        return 0;
    }
    s->mask_bytes += bytes;
    s->masks[s->n_masks] = (struct esp_mask){.bits = bits};
    return s->n_masks++;
}

uint32_t esp_store_mask(struct esp_store *s, uint32_t conf)
{
    if (s->confs[conf].clamped == ESP_CONF_UNKNOWN) {
        /* Whether tokens can finish may hang on the exact counters. */
        uint32_t clamped = s->trie->byte_complete ? esp_conf_clamp(s, conf, s->trie->all.depth_max) : conf;
        s->confs[conf].clamped = clamped;
        s->confs[clamped].clamped = clamped;
    }
    conf = s->confs[conf].clamped;
    uint32_t idx = s->confs[conf].mask;
    if (idx != 0) {
        unlink_mask(s, idx);
    } else {
        idx = take_slot(s);
        if (idx == 0) {
            esp_exprs_fail(&s->x, ESP_ENOMEM);
            return 0;
        }
        build(s, conf, s->masks[idx].bits);
        s->masks[idx].conf = conf;
        s->masks[idx].n_pins = 0;
        s->confs[conf].mask = idx;
    }
    link_newest(s, idx);
    if (s->x.failed != ESP_OK) {
        return 0;
    }
    s->masks[idx].n_pins++;
    return idx;
}

void esp_store_unpin(struct esp_store *s, uint32_t mask)
{
    if (mask != 0) {
        s->masks[mask].n_pins--;
    }
}

/* ---- Can tokens finish it? --------------------------------------------------------------------- */

struct search {
    uint32_t *confs, *from; /* visited, and the position each was reached from */
    uint32_t n, confs_cap, from_cap;
};

/* Adds what number `from` led to by one token; true when it is live. */
static bool reach(struct esp_store *s, struct search *q, uint32_t from, uint32_t now)
{
    struct esp_conf *conf = &s->confs[now];
    if (now != ESP_CONF_DEAD && (conf->complete || conf->live == LIVE_YES)) {
        conf->live = LIVE_YES;
        return true;
    }
    if (now != ESP_CONF_DEAD && conf->live == LIVE_UNKNOWN) {
        if (!esp_vec_grow(&q->confs, &q->confs_cap, (uint64_t)q->n + 1) ||
            !esp_vec_grow(&q->from, &q->from_cap, (uint64_t)q->n + 1)) {
            esp_exprs_fail(&s->x, ESP_ENOMEM);
            return false;
        }
        conf->live = LIVE_VISITED;
        q->confs[q->n] = now;
        q->from[q->n++] = from;
    }
    return false;
}

/* Tokens taken whole: of each range one, since all of it leads on where one does. */
static bool expand_whole(struct esp_store *s, struct search *q, uint32_t from)
{
    uint32_t mark = s->x.n_scratch, conf = q->confs[from];
    bool live = false;
    for (uint32_t idx = 0; idx < s->confs[conf].n && s->confs[conf].tokens; idx++) {
        esp_expr_tokens(&s->x, s->threads[s->confs[conf].at + idx].expr);
    }
    for (uint32_t at = mark; at + 1 < s->x.n_scratch && !live; at += 2) {
        live = reach(s, q, from, esp_conf_take(s, conf, s->x.scratch[at]));
    }
    s->x.n_scratch = mark;
    return live;
}

/* Adds the configurations one token away from number `at`; true when one of them is live. */
static bool expand(struct esp_store *s, struct search *q, uint32_t at)
{
    const struct esp_tree *tree = &s->trie->all;
    s->stack[0] = q->confs[at];
    for (uint32_t node_at = 0; node_at < tree->n && s->x.failed == ESP_OK;) {
        const struct esp_tree_node *node = &tree->nodes[node_at];
        uint32_t now = esp_conf_step(s, s->stack[node->depth], node->byte);
        if (now == ESP_CONF_DEAD) {
            node_at = node->next;
            continue;
        }
        s->stack[node->depth + 1] = now;
        node_at++;
        if (tree->nodes[node_at].tokens == node->tokens) {
            continue; /* no token ends here */
        }
        if (reach(s, q, at, esp_conf_tick(s, now))) {
            return true;
        }
    }
    return expand_whole(s, q, at);
}

/* Writes down what a search found: the way to the live one is live, or everything seen is dead. */
static void note_search(struct esp_store *s, const struct search *q, bool live, uint32_t found)
{
    for (uint32_t at = 0; at < q->n; at++) {
        s->confs[q->confs[at]].live = live ? LIVE_UNKNOWN : LIVE_NO;
    }
    for (; live && q->n > 0; found = q->from[found]) {
        s->confs[q->confs[found]].live = LIVE_YES;
        if (found == 0) {
            break;
        }
    }
}

bool esp_store_live(struct esp_store *s, uint32_t conf)
{
    struct search q = {0};
    uint32_t found = 0;
    bool live = false;
    if (conf == ESP_CONF_DEAD || s->confs[conf].live == LIVE_NO) {
        return false;
    }
    if (s->trie->byte_complete || s->confs[conf].complete || s->confs[conf].live == LIVE_YES) {
        return true;
    }
    if (!esp_vec_grow(&q.confs, &q.confs_cap, 1) || !esp_vec_grow(&q.from, &q.from_cap, 1)) {
        esp_exprs_fail(&s->x, ESP_ENOMEM);
    } else {
        q.confs[0] = conf;
        q.from[0] = 0;
        q.n = 1;
        s->confs[conf].live = LIVE_VISITED;
    }
    for (uint32_t at = 0; at < q.n && !live && s->x.failed == ESP_OK; at++) {
        live = at >= LIVE_SEARCH_MAX;
        if (!live && expand(s, &q, at)) {
            live = true;
            found = at;
        }
    }
    note_search(s, &q, live, found);
    esp_free(q.confs);
    esp_free(q.from);
    return live;
}
