/* Rules to expressions. See cfg.h.
 *
 * Rules are lowered callees first. A rule that is called while it is on the way down becomes a node; so does one
 * too large to be put in again and again. Recursion follows the nesting of one rule, which readers limit to
 * ESP_CFG_DEPTH_MAX; from rule to rule there is an explicit stack. Thread: the owner's.
 */
#include "grammar/cfg.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/live.h"
#include "grammar/vec.h"

#define WEIGHT_MAX 400u /* heavier rules are called, not put in */

void esp_cfg_init(struct esp_cfg *cfg, struct esp_grammar *g, const struct esp_grammar_spec *spec, struct esp_err *err)
{
    *cfg = (struct esp_cfg){.g = g,
                            .x = &g->base,
                            .options = &spec->options,
                            .err = err,
                            .text = spec->text,
                            .n_bytes = spec->n_bytes};
    esp_arena_init(&cfg->arena, ESP_TAG_GRAMMAR, (size_t)256 << 20);
    esp_bytesmap_init(&cfg->names, ESP_TAG_GRAMMAR);
}

void esp_cfg_finish(struct esp_cfg *cfg)
{
    esp_free(cfg->rules);
    esp_free(cfg->order);
    esp_bytesmap_finish(&cfg->names);
    esp_arena_finish(&cfg->arena);
}

esp_status esp_cfg_fail(struct esp_cfg *cfg, esp_status status, size_t at, const char *fmt, ...)
{
    char what[256];
    unsigned line = 1, column = 1;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    for (size_t idx = 0; idx < at && idx < cfg->n_bytes; idx++) {
        bool tail = ((unsigned char)cfg->text[idx] & 0xC0) == 0x80; /* columns count characters */
        column = cfg->text[idx] == '\n' ? 1 : column + !tail;
        line += cfg->text[idx] == '\n';
    }
    esp_fail(cfg->err, status, "line %u, column %u: %s", line, column, what);
    if (cfg->err != NULL) {
        cfg->err->offset = at;
    }
    return status;
}

esp_status esp_cfg_rule(struct esp_cfg *cfg, const char *name, size_t name_bytes, uint32_t *ret_rule)
{
    uint32_t idx = esp_bytesmap_get(&cfg->names, name, name_bytes);
    if (idx != ESP_MAP_NONE) {
        *ret_rule = idx;
        return ESP_OK;
    }
    size_t at = (size_t)(name - cfg->text);
    if (cfg->n_rules >= ESP_CFG_RULES_MAX) {
        return esp_cfg_fail(cfg, ESP_ELIMIT, at, "more than %u rules", ESP_CFG_RULES_MAX);
    }
    if (!esp_vec_grow(&cfg->rules, &cfg->rules_cap, (uint64_t)cfg->n_rules + 1) ||
        esp_bytesmap_put(&cfg->names, name, name_bytes, cfg->n_rules) != ESP_OK) {
        return ESP_ENOMEM;
    }
    cfg->rules[cfg->n_rules] = (struct esp_cfg_rule){.name = name, .name_bytes = (uint32_t)name_bytes, .at = at};
    *ret_rule = cfg->n_rules++;
    return ESP_OK;
}

struct esp_cfg_node *esp_cfg_node(struct esp_cfg *cfg, enum esp_cfg_op op, uint32_t value, size_t at)
{
    struct esp_cfg_node *node = esp_arena_alloc(&cfg->arena, 1, sizeof *node);
    if (node != NULL) {
        *node = (struct esp_cfg_node){.op = op, .value = value, .at = at};
    }
    return node;
}

void esp_cfg_append(struct esp_cfg_node *parent, struct esp_cfg_node *child)
{
    if (parent->last == NULL) {
        parent->child = child;
    } else {
        parent->last->next = child;
    }
    parent->last = child;
}

esp_status esp_grammar_add_node(struct esp_grammar *g, uint32_t start, uint32_t *ret_node)
{
    if (!esp_vec_grow(&g->starts, &g->starts_cap, (uint64_t)g->n_starts + 1)) {
        return ESP_ENOMEM;
    }
    g->starts[g->n_starts] = start;
    *ret_node = g->n_starts++;
    return ESP_OK;
}

/* ---- From rule to rule ------------------------------------------------------------------------- */

struct visit { /* a rule on the way down, and the references of it that are still to be seen */
    uint32_t rule;
    uint32_t first, next, end; /* in refs */
};
struct walk {
    struct visit *stack;
    struct esp_cfg_node const **refs;
    uint32_t n, stack_cap, n_refs, refs_cap;
};

static esp_status collect_refs(struct walk *w, const struct esp_cfg_node *node)
{
    if (node->op == ESP_CFG_REF) {
        if (!esp_vec_grow(&w->refs, &w->refs_cap, (uint64_t)w->n_refs + 1)) {
            return ESP_ENOMEM;
        }
        w->refs[w->n_refs++] = node;
    }
    for (const struct esp_cfg_node *child = node->child; child != NULL; child = child->next) {
        esp_status status = collect_refs(w, child);
        if (status != ESP_OK) {
            return status;
        }
    }
    return ESP_OK;
}

static esp_status enter_rule(struct esp_cfg *cfg, struct walk *w, uint32_t rule)
{
    if (!esp_vec_grow(&w->stack, &w->stack_cap, (uint64_t)w->n + 1)) {
        return ESP_ENOMEM;
    }
    struct visit visit = {.rule = rule, .first = w->n_refs, .next = w->n_refs};
    esp_status status = collect_refs(w, cfg->rules[rule].body);
    visit.end = w->n_refs;
    w->stack[w->n++] = visit;
    cfg->rules[rule].mark = 1;
    return status;
}

/* One reference of the innermost rule. */
static esp_status follow(struct esp_cfg *cfg, struct walk *w, const struct esp_cfg_node *ref)
{
    struct esp_cfg_rule *rule = &cfg->rules[ref->value];
    if (rule->mark == 0) {
        return enter_rule(cfg, w, ref->value);
    }
    if (rule->mark == 1 && rule->terminal) {
        return esp_cfg_fail(cfg, ESP_EINVAL, ref->at, "the terminal %.*s calls itself", (int)rule->name_bytes,
                            rule->name);
    }
    if (rule->mark == 1 && !rule->called) {
        rule->called = true;
        return esp_grammar_add_node(cfg->g, ESP_EXPR_EMPTY, &rule->node);
    }
    return ESP_OK;
}

/* Puts the rules that root needs in order, callees first, and finds those that call themselves. */
static esp_status put_in_order(struct esp_cfg *cfg, uint32_t root)
{
    struct walk w = {0};
    esp_status status = enter_rule(cfg, &w, root);
    while (w.n > 0 && status == ESP_OK) {
        struct visit *top = &w.stack[w.n - 1];
        if (top->next < top->end) {
            status = follow(cfg, &w, w.refs[top->next++]);
            continue;
        }
        status = esp_vec_grow(&cfg->order, &cfg->order_cap, (uint64_t)cfg->n_order + 1) ? ESP_OK : ESP_ENOMEM;
        if (status == ESP_OK) {
            cfg->rules[top->rule].mark = 2;
            cfg->order[cfg->n_order++] = top->rule;
            w.n_refs = top->first;
            w.n--;
        }
    }
    esp_free(w.stack);
    esp_free(w.refs);
    return status;
}

/* ---- The empty text ---------------------------------------------------------------------------- */

static bool may_be_empty(const struct esp_cfg *cfg, const struct esp_cfg_node *node)
{
    bool all = true, any = false;
    for (const struct esp_cfg_node *child = node->child; child != NULL; child = child->next) {
        bool empty = may_be_empty(cfg, child);
        all = all && empty;
        any = any || empty;
    }
    switch (node->op) {
    case ESP_CFG_EXPR: return esp_expr_nullable(cfg->x, node->value);
    case ESP_CFG_REF: return cfg->rules[node->value].nullable;
    case ESP_CFG_ALT: return any;
    case ESP_CFG_REP: return node->lo == 0 || all;
    case ESP_CFG_NOT: return !all;
    default: return all;
    }
}

/* Terminals do not call themselves, so that callees first gives their answer at once; rules settle in passes. */
static esp_status find_nullable(struct esp_cfg *cfg)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t at = 0; at < cfg->n_order; at++) {
            struct esp_cfg_rule *rule = &cfg->rules[cfg->order[at]];
            bool nullable = rule->nullable || may_be_empty(cfg, rule->body);
            changed = changed || nullable != rule->nullable;
            rule->nullable = nullable;
        }
        if (cfg->x->fuel < cfg->n_order) {
            return ESP_ELIMIT;
        }
        cfg->x->fuel -= cfg->n_order;
    }
    return ESP_OK;
}

/* ---- Expressions ------------------------------------------------------------------------------- */

static uint32_t use_rule(struct esp_cfg *cfg, const struct esp_cfg_rule *rule)
{
    uint32_t id = rule->expr;
    if (rule->called) {
        id = esp_expr_call(cfg->x, rule->node);
        id = rule->nullable ? esp_expr_opt(cfg->x, id) : id;
    }
    return id;
}

static uint32_t lower(struct esp_cfg *cfg, const struct esp_cfg_node *node);

static uint32_t lower_list(struct esp_cfg *cfg, const struct esp_cfg_node *node)
{
    struct esp_exprs *x = cfg->x;
    uint32_t mark = x->n_scratch, id = ESP_EXPR_EPS;
    for (const struct esp_cfg_node *child = node->child; child != NULL; child = child->next) {
        esp_exprs_push(x, lower(cfg, child));
    }
    uint32_t n = x->n_scratch - mark;
    if (x->failed != ESP_OK) {
        id = ESP_EXPR_EMPTY;
    } else if (node->op == ESP_CFG_ALT) {
        id = esp_expr_alt(x, x->scratch + mark, n);
    } else if (node->op == ESP_CFG_AND) {
        id = esp_expr_and(x, x->scratch + mark, n);
        esp_live_and(x, id);
        id = esp_expr_and(x, x->scratch + mark, n); /* nothing, when it was found dead */
    } else {
        for (uint32_t at = n; at-- > 0;) {
            id = esp_expr_cat(x, x->scratch[mark + at], id);
        }
    }
    x->n_scratch = mark;
    return id;
}

static uint32_t lower(struct esp_cfg *cfg, const struct esp_cfg_node *node)
{
    struct esp_exprs *x = cfg->x;
    switch (node->op) {
    case ESP_CFG_EXPR: return node->value;
    case ESP_CFG_REF: return use_rule(cfg, &cfg->rules[node->value]);
    case ESP_CFG_REP: return esp_expr_rep(x, lower(cfg, node->child), node->lo, node->hi);
    case ESP_CFG_NOT: {
        uint32_t any = esp_spell_any(x, ESP_SPELL_RAW), inner = lower(cfg, node->child);
        esp_live_and(x, esp_expr_not(x, any, inner));
        return esp_expr_not(x, any, inner);
    }
    default: return lower_list(cfg, node);
    }
}

static uint32_t weigh(const struct esp_cfg *cfg, const struct esp_cfg_node *node)
{
    uint64_t weight = 1 + (node->op == ESP_CFG_EXPR ? node->lo : 0);
    if (node->op == ESP_CFG_REF && !cfg->rules[node->value].called) {
        weight += cfg->rules[node->value].weight;
    }
    for (const struct esp_cfg_node *child = node->child; child != NULL; child = child->next) {
        weight += weigh(cfg, child);
    }
    return weight > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)weight;
}

static esp_status lower_rule(struct esp_cfg *cfg, struct esp_cfg_rule *rule)
{
    struct esp_exprs *x = cfg->x;
    rule->weight = weigh(cfg, rule->body);
    rule->expr = lower(cfg, rule->body);
    if (rule->terminal || x->failed != ESP_OK || (!rule->called && rule->weight <= WEIGHT_MAX)) {
        return x->failed;
    }
    if (!rule->called) {
        esp_status status = esp_grammar_add_node(cfg->g, ESP_EXPR_EMPTY, &rule->node);
        if (status != ESP_OK) {
            return status;
        }
    }
    uint32_t id = esp_cfg_unwind(x, rule->node, esp_cfg_not_empty(x, rule->expr));
    cfg->g->starts[rule->node] = id;
    rule->called = rule->weight > WEIGHT_MAX || esp_cfg_calls(x, id, rule->node);
    rule->expr = rule->nullable ? esp_expr_opt(x, id) : id;
    return x->failed;
}

esp_status esp_cfg_compile(struct esp_cfg *cfg, uint32_t root, uint32_t *ret_id)
{
    uint32_t first = cfg->g->n_starts, id = ESP_EXPR_EMPTY;
    for (uint32_t idx = 0; idx < cfg->n_rules; idx++) {
        if (cfg->rules[idx].body == NULL) {
            return esp_cfg_fail(cfg, ESP_EINVAL, cfg->rules[idx].at, "%.*s is not defined",
                                (int)cfg->rules[idx].name_bytes, cfg->rules[idx].name);
        }
    }
    esp_status status = put_in_order(cfg, root);
    if (status == ESP_OK) {
        status = find_nullable(cfg);
    }
    for (uint32_t at = 0; at < cfg->n_order && status == ESP_OK; at++) {
        status = lower_rule(cfg, &cfg->rules[cfg->order[at]]);
    }
    if (status == ESP_OK) {
        id = use_rule(cfg, &cfg->rules[root]);
        status = esp_cfg_solve_left(cfg->g, first);
    }
    if (status == ESP_OK) {
        status = esp_cfg_prune(cfg->g, first, &id);
    }
    if (status == ESP_OK) {
        *ret_id = id;
    }
    return status;
}
