/* Rules without any text: found by a least fixpoint, and every call of them dropped. See cfg.h.
 *
 * A node has a text when its expression has one in which every call is of a node that has. What was seen of an
 * expression in a pass is remembered, so that shared ones are looked at once. Recursion follows the height of
 * expressions; sequences are walked in loops. Thread: the owner's.
 */
#include <string.h>

#include "grammar/cfg.h"

enum { NOT_SEEN, HAS_TEXT, HAS_NONE };

struct prune {
    struct esp_grammar *g;
    struct esp_exprs *x;
    uint32_t first, n_known; /* expressions below n_known have a place in the tables */
    uint8_t *alive;          /* [g->n_starts − first] */
    uint8_t *seen;           /* [n_known] */
    uint32_t *becomes;       /* [n_known], 0 = not rewritten yet, else the new expression + 1 */
};

static bool has_text(struct prune *p, uint32_t id);

static bool cat_has_text(struct prune *p, uint32_t id)
{
    bool text = true;
    for (; p->x->exprs[id].op == ESP_X_CAT && text; id = p->x->exprs[id].b) {
        text = has_text(p, p->x->exprs[id].a);
    }
    return text && has_text(p, id);
}

static bool has_text(struct prune *p, uint32_t id)
{
    struct esp_expr e = p->x->exprs[id];
    bool text = e.op != ESP_X_EMPTY;
    if ((e.flags & ESP_EXPR_NO_TEXT) == 0 || p->seen[id] != NOT_SEEN) {
        return p->seen[id] == NOT_SEEN ? text : p->seen[id] == HAS_TEXT;
    }
    switch (e.op) {
    case ESP_X_CALL: text = e.a < p->first || p->alive[e.a - p->first]; break;
    case ESP_X_REP: text = e.c == 0 || has_text(p, e.a); break;
    case ESP_X_ALT:
        text = false;
        for (uint32_t idx = 0; idx < e.b && !text; idx++) {
            text = has_text(p, p->x->lists[e.a + idx]);
        }
        break;
    case ESP_X_CAT: text = cat_has_text(p, id); break;
    default: break;
    }
    p->seen[id] = text ? HAS_TEXT : HAS_NONE;
    return text;
}

static esp_status find_alive(struct prune *p, uint32_t *ret_n_dead)
{
    uint32_t n = p->g->n_starts - p->first, n_dead = n;
    for (bool changed = true; changed;) {
        changed = false;
        memset(p->seen, 0, p->n_known);
        for (uint32_t at = 0; at < n; at++) {
            if (!p->alive[at] && has_text(p, p->g->starts[p->first + at])) {
                p->alive[at] = 1;
                changed = true;
                n_dead--;
            }
        }
        if (p->x->fuel < p->n_known) {
            return ESP_ELIMIT;
        }
        p->x->fuel -= p->n_known;
    }
    *ret_n_dead = n_dead;
    return ESP_OK;
}

static uint32_t rewrite(struct prune *p, uint32_t id);

static uint32_t rewrite_cat(struct prune *p, uint32_t id)
{
    struct esp_exprs *x = p->x;
    uint32_t mark = x->n_scratch;
    for (; x->exprs[id].op == ESP_X_CAT; id = x->exprs[id].b) {
        esp_exprs_push(x, rewrite(p, x->exprs[id].a));
    }
    id = rewrite(p, id);
    for (uint32_t at = x->n_scratch; at-- > mark && x->failed == ESP_OK;) {
        id = esp_expr_cat(x, x->scratch[at], id);
    }
    x->n_scratch = mark;
    return id;
}

static uint32_t rewrite(struct prune *p, uint32_t id)
{
    struct esp_exprs *x = p->x;
    struct esp_expr e = x->exprs[id];
    uint32_t mark = x->n_scratch, now = id;
    if ((e.flags & ESP_EXPR_NO_TEXT) == 0 || x->failed != ESP_OK || p->becomes[id] != 0) {
        return (e.flags & ESP_EXPR_NO_TEXT) == 0 || p->becomes[id] == 0 ? id : p->becomes[id] - 1;
    }
    switch (e.op) {
    case ESP_X_CALL: now = e.a < p->first || p->alive[e.a - p->first] ? id : ESP_EXPR_EMPTY; break;
    case ESP_X_REP: now = esp_expr_rep(x, rewrite(p, e.a), e.c, e.d); break;
    case ESP_X_ALT:
        for (uint32_t idx = 0; idx < e.b; idx++) {
            esp_exprs_push(x, rewrite(p, x->lists[e.a + idx]));
        }
        now = x->failed != ESP_OK ? id : esp_expr_alt(x, x->scratch + mark, e.b);
        break;
    case ESP_X_CAT: now = rewrite_cat(p, id); break;
    default: break;
    }
    x->n_scratch = mark;
    p->becomes[id] = now + 1;
    return now;
}

esp_status esp_cfg_prune(struct esp_grammar *g, uint32_t first, uint32_t *id)
{
    struct prune p = {.g = g, .x = &g->base, .first = first, .n_known = g->base.n_exprs};
    uint32_t n_dead = 0;
    esp_status status = ESP_ENOMEM;
    p.alive = esp_calloc(ESP_TAG_GRAMMAR, (size_t)(g->n_starts - first) + 1, 1);
    p.seen = esp_calloc(ESP_TAG_GRAMMAR, p.n_known, 1);
    p.becomes = esp_calloc(ESP_TAG_GRAMMAR, p.n_known, sizeof *p.becomes);
    if (p.alive != NULL && p.seen != NULL && p.becomes != NULL) {
        status = find_alive(&p, &n_dead);
    }
    if (status == ESP_OK && n_dead > 0) {
        for (uint32_t node = first; node < g->n_starts; node++) {
            g->starts[node] = rewrite(&p, g->starts[node]);
        }
        *id = rewrite(&p, *id);
        status = g->base.failed;
    }
    esp_free(p.alive);
    esp_free(p.seen);
    esp_free(p.becomes);
    return status;
}
