/* Statements: output, branches, loops, assignments, macros, and the scopes between which names are looked up.
 *
 * A scope is made for each round of a loop, each macro call and each block that captures its text; an if makes
 * none. A name is looked for from the innermost scope outwards, then among the globals, which are filled from the
 * context when first asked for. A macro keeps the scope it was defined in. Thread: the rendering's owner.
 */
#include <string.h>

#include "frontend/template_internal.h"

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAIL };

static enum flow exec_body(struct tpl_run *run, const struct tpl_node *body);

/* ---- Scopes ------------------------------------------------------------------------------------ */

static bool find_global(struct tpl_run *run, uint32_t sym, struct tpl_value *ret)
{
    struct tpl_value *cell = &run->globals[sym];
    const struct tpl_str *name = run->tmpl->symbols[sym];
    if (cell->kind != TPL_UNSET) {
        *ret = *cell;
        return true;
    }
    const json_t *json = json_object_getn(run->context, name->data, name->n);
    const struct tpl_builtin *function = esp_tpl_find_function(name->data, name->n);
    if (json != NULL) {
        /* The texts of the model's own control tokens are the template's, though they come with the context. */
        bool is_token = esp_tpl_str_is(name, "bos_token") || esp_tpl_str_is(name, "eos_token") ||
                        esp_tpl_str_is(name, "pad_token") || esp_tpl_str_is(name, "unk_token");
        if (!esp_tpl_from_json(run, json, !is_token, 0, cell)) {
            return false;
        }
    } else if (function != NULL) {
        *cell = (struct tpl_value){.kind = TPL_FUNCTION, .function = function};
    } else {
        struct tpl_undef *undef = esp_tpl_alloc(run, 1, sizeof *undef);
        if (undef == NULL) {
            return false;
        }
        undef->name = name;
        *cell = (struct tpl_value){.kind = TPL_UNDEF, .undef = undef};
    }
    *ret = *cell;
    return true;
}

static struct tpl_binding *find_binding(const struct tpl_scope *scope, uint32_t sym)
{
    struct tpl_binding *binding = scope->bindings;
    while (binding != NULL && binding->sym != sym) {
        binding = binding->next;
    }
    return binding;
}

bool esp_tpl_lookup(struct tpl_run *run, uint32_t sym, struct tpl_value *ret)
{
    size_t n_looked = 0;
    for (const struct tpl_scope *scope = run->scope; scope != NULL; scope = scope->parent) {
        const struct tpl_binding *binding = find_binding(scope, sym);
        if (binding != NULL) {
            *ret = binding->value;
            return esp_tpl_charge(run, n_looked);
        }
        n_looked += 8;
    }
    return esp_tpl_charge(run, n_looked) && find_global(run, sym, ret);
}

static bool assign(struct tpl_run *run, uint32_t sym, const struct tpl_value *value)
{
    if (run->scope == NULL) {
        run->globals[sym] = *value;
        return true;
    }
    struct tpl_binding *binding = find_binding(run->scope, sym);
    if (binding == NULL) {
        binding = esp_tpl_alloc(run, 1, sizeof *binding);
        if (binding == NULL) {
            return false;
        }
        *binding = (struct tpl_binding){.sym = sym, .next = run->scope->bindings};
        run->scope->bindings = binding;
    }
    binding->value = *value;
    return true;
}

/* Enters a new scope inside parent; the caller puts the old one back. */
static bool push_scope(struct tpl_run *run, struct tpl_scope *parent)
{
    struct tpl_scope *scope = esp_tpl_alloc(run, 1, sizeof *scope);
    if (scope == NULL) {
        return false;
    }
    scope->parent = parent;
    run->scope = scope;
    return true;
}

static bool assign_target(struct tpl_run *run, const struct tpl_node *target, const struct tpl_value *value)
{
    if (target->kind == TPL_N_NAME) {
        return assign(run, target->sym, value);
    }
    if (target->kind == TPL_N_ATTR) {
        struct tpl_value owner, key = target->value;
        if (!esp_tpl_eval(run, target->a, &owner)) {
            return false;
        }
        return owner.kind == TPL_NAMESPACE
                   ? esp_tpl_dict_put(run, owner.dict, &key, value)
                   : esp_tpl_fail(run, ESP_EINVAL, "cannot assign attribute on non-namespace object");
    }
    struct tpl_list *items;
    size_t n = 0, idx = 0;
    if (!esp_tpl_items(run, value, &items)) {
        return false;
    }
    for (const struct tpl_node *part = target->a; part != NULL; part = part->next) {
        n++;
    }
    if (items->n != n) {
        return esp_tpl_fail(run, ESP_EINVAL, "cannot unpack %zu values into %zu names", items->n, n);
    }
    for (const struct tpl_node *part = target->a; part != NULL; part = part->next) {
        if (!assign_target(run, part, &items->items[idx++])) { /* depth: that of the tree */
            return false;
        }
    }
    return true;
}

/* ---- Captured text ----------------------------------------------------------------------------- */

/* Runs a body in the current scope with its output going to a string. */
static enum flow capture(struct tpl_run *run, const struct tpl_node *body, struct tpl_value *ret)
{
    struct tpl_out out = {0}, *outer = run->out;
    run->out = &out;
    enum flow flow = exec_body(run, body);
    run->out = outer;
    return flow != FLOW_FAIL && !esp_tpl_out_value(run, &out, ret) ? FLOW_FAIL : flow;
}

static enum flow capture_scoped(struct tpl_run *run, const struct tpl_node *body, struct tpl_value *ret)
{
    struct tpl_scope *outer = run->scope;
    enum flow flow = push_scope(run, outer) ? capture(run, body, ret) : FLOW_FAIL;
    run->scope = outer;
    return flow;
}

static enum flow exec_setblock(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_value text;
    enum flow flow = capture_scoped(run, node->c, &text);
    if (flow == FLOW_FAIL || (node->b != NULL && !esp_tpl_eval_filters(run, node->b, &text, &text))) {
        return FLOW_FAIL;
    }
    return assign_target(run, node->a, &text) ? flow : FLOW_FAIL;
}

static enum flow exec_filtered(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_value text;
    enum flow flow = capture_scoped(run, node->c, &text);
    bool ok =
        flow != FLOW_FAIL && esp_tpl_eval_filters(run, node->b, &text, &text) && esp_tpl_print(run, run->out, &text);
    return ok ? flow : FLOW_FAIL;
}

/* ---- Macros ------------------------------------------------------------------------------------ */

/* Binds what the call gives to the parameters in the new scope; what is left over goes to varargs and kwargs. */
static bool bind_params(struct tpl_run *run, const struct tpl_node *node, const struct tpl_args *args)
{
    size_t n_used = 0;
    for (const struct tpl_node *param = node->a; param != NULL; param = param->next) {
        const struct tpl_str *name = run->tmpl->symbols[param->sym];
        struct tpl_value value = {.kind = TPL_UNSET};
        if (n_used < args->n) {
            value = args->list[n_used++];
        }
        for (size_t idx = 0; value.kind == TPL_UNSET && idx < args->n_kw; idx++) {
            const struct tpl_str *given = args->kw[idx].name;
            if (given->n == name->n && memcmp(given->data, name->data, name->n) == 0) {
                value = args->kw[idx].value;
            }
        }
        if (value.kind == TPL_UNSET && param->a != NULL) {
            if (!esp_tpl_eval(run, param->a, &value)) {
                return false;
            }
        } else if (value.kind == TPL_UNSET) {
            struct tpl_undef *undef = esp_tpl_alloc(run, 1, sizeof *undef);
            if (undef == NULL) {
                return false;
            }
            undef->name = name;
            value = (struct tpl_value){.kind = TPL_UNDEF, .undef = undef};
        }
        if (!assign(run, param->sym, &value)) {
            return false;
        }
    }
    return true;
}

static bool is_param(const struct tpl_run *run, const struct tpl_node *node, const struct tpl_str *name)
{
    for (const struct tpl_node *param = node->a; param != NULL; param = param->next) {
        const struct tpl_str *own = run->tmpl->symbols[param->sym];
        if (own->n == name->n && memcmp(own->data, name->data, name->n) == 0) {
            return true;
        }
    }
    return false;
}

/* A keyword that is no parameter: the caller of a call block, one for kwargs, or a mistake. */
static bool take_keyword(struct tpl_run *run, const struct tpl_node *node, const struct tpl_kwarg *kw,
                         struct tpl_dict *named, struct tpl_value *caller)
{
    struct tpl_value key = {.kind = TPL_STR, .str = kw->name};
    if (is_param(run, node, kw->name)) {
        return true;
    }
    if (esp_tpl_str_is(kw->name, "caller") && node->takes_caller) {
        *caller = kw->value;
        return true;
    }
    return node->flag ? esp_tpl_dict_put(run, named, &key, &kw->value)
                      : esp_tpl_fail(run, ESP_EINVAL, "the macro takes no keyword argument '%.*s'",
                                     (int)(kw->name->n < 100 ? kw->name->n : 100), kw->name->data);
}

static bool bind_rest(struct tpl_run *run, const struct tpl_node *node, const struct tpl_args *args)
{
    struct tpl_value extra, named, caller = {.kind = TPL_UNSET};
    size_t n_params = 0;
    for (const struct tpl_node *param = node->a; param != NULL; param = param->next) {
        n_params++;
    }
    size_t n_extra = args->n > n_params ? args->n - n_params : 0;
    if (n_extra > 0 && !node->flag) {
        return esp_tpl_fail(run, ESP_EINVAL, "the macro takes not more than %zu argument(s)", n_params);
    }
    if (!esp_tpl_list(run, TPL_TUPLE, n_extra, &extra) || !esp_tpl_dict(run, TPL_DICT, &named)) {
        return false;
    }
    for (size_t idx = 0; idx < n_extra; idx++) {
        extra.list->items[idx] = args->list[n_params + idx];
    }
    for (size_t idx = 0; idx < args->n_kw; idx++) {
        if (!take_keyword(run, node, &args->kw[idx], named.dict, &caller)) {
            return false;
        }
    }
    bool ok = !node->flag || (assign(run, TPL_SYM_VARARGS, &extra) && assign(run, TPL_SYM_KWARGS, &named));
    return ok && (caller.kind == TPL_UNSET || assign(run, TPL_SYM_CALLER, &caller));
}

bool esp_tpl_call_macro(struct tpl_run *run, const struct tpl_macro *macro, const struct tpl_args *args,
                        struct tpl_value *ret)
{
    struct tpl_scope *outer = run->scope;
    if (run->n_calls >= ESP_RENDER_DEPTH_MAX) {
        return esp_tpl_fail(run, ESP_ELIMIT, "macros call each other more than %u deep", ESP_RENDER_DEPTH_MAX);
    }
    run->n_calls++;
    bool ok = push_scope(run, macro->scope) && bind_params(run, macro->node, args) &&
              bind_rest(run, macro->node, args) && capture(run, macro->node->c, ret) != FLOW_FAIL;
    run->n_calls--;
    run->scope = outer;
    return ok;
}

static bool make_macro(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_macro *macro = esp_tpl_alloc(run, 1, sizeof *macro);
    if (macro == NULL) {
        return false;
    }
    *macro = (struct tpl_macro){node, run->scope};
    *ret = (struct tpl_value){.kind = TPL_MACRO, .macro = macro};
    return true;
}

static enum flow exec_macro(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_value macro;
    return make_macro(run, node, &macro) && assign(run, node->sym, &macro) ? FLOW_NEXT : FLOW_FAIL;
}

static enum flow exec_callblock(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_value caller, text;
    bool ok = make_macro(run, node->b, &caller) && esp_tpl_eval_call_with(run, node->a, &caller, &text) &&
              esp_tpl_print(run, run->out, &text);
    return ok ? FLOW_NEXT : FLOW_FAIL;
}

/* ---- Loops ------------------------------------------------------------------------------------- */

/* The items that the loop's condition lets through. */
static bool filter_items(struct tpl_run *run, const struct tpl_node *node, struct tpl_list **items)
{
    struct tpl_scope *outer = run->scope;
    struct tpl_value kept, test;
    size_t n = 0;
    if (!esp_tpl_list(run, TPL_LIST, (*items)->n, &kept)) {
        return false;
    }
    bool ok = push_scope(run, outer);
    for (size_t idx = 0; ok && idx < (*items)->n; idx++) {
        ok = assign_target(run, node->a, &(*items)->items[idx]) && esp_tpl_eval(run, node->e, &test);
        if (ok && esp_tpl_truth(&test)) {
            kept.list->items[n++] = (*items)->items[idx];
        }
    }
    run->scope = outer;
    kept.list->n = n;
    *items = kept.list;
    return ok;
}

static enum flow run_loop(struct tpl_run *run, const struct tpl_node *node, struct tpl_loop *loop)
{
    struct tpl_value self = {.kind = TPL_LOOP, .loop = loop};
    enum flow flow = FLOW_NEXT;
    struct tpl_scope *outer = run->scope;
    for (loop->idx = 0; loop->idx < loop->items->n; loop->idx++) {
        bool ok = push_scope(run, loop->scope) && assign(run, TPL_SYM_LOOP, &self) &&
                  assign_target(run, node->a, &loop->items->items[loop->idx]);
        flow = ok ? exec_body(run, node->c) : FLOW_FAIL;
        run->scope = outer;
        if (flow == FLOW_FAIL) {
            return flow;
        }
        if (flow == FLOW_BREAK) {
            break;
        }
    }
    return FLOW_NEXT;
}

static enum flow exec_for_over(struct tpl_run *run, const struct tpl_node *node, const struct tpl_value *iterable,
                               struct tpl_scope *scope, unsigned level)
{
    struct tpl_list *items;
    struct tpl_loop *loop = esp_tpl_alloc(run, 1, sizeof *loop);
    if (loop == NULL || !esp_tpl_items(run, iterable, &items) ||
        (node->e != NULL && !filter_items(run, node, &items))) {
        return FLOW_FAIL;
    }
    *loop = (struct tpl_loop){.node = node, .scope = scope, .items = items, .level = level};
    if (items->n > 0) {
        return run_loop(run, node, loop);
    }
    struct tpl_scope *outer = run->scope;
    enum flow flow = node->d == NULL ? FLOW_NEXT : push_scope(run, scope) ? exec_body(run, node->d) : FLOW_FAIL;
    run->scope = outer;
    return flow;
}

static enum flow exec_for(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_value iterable;
    if (!esp_tpl_eval(run, node->b, &iterable)) {
        return FLOW_FAIL;
    }
    run->line = node->line;
    return exec_for_over(run, node, &iterable, run->scope, 0);
}

bool esp_tpl_call_loop(struct tpl_run *run, const struct tpl_loop *loop, const struct tpl_args *args,
                       struct tpl_value *ret)
{
    if (!loop->node->flag || args->n != 1 || args->n_kw > 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "only a recursive loop can be called, with one argument");
    }
    if (run->n_calls >= ESP_RENDER_DEPTH_MAX) {
        return esp_tpl_fail(run, ESP_ELIMIT, "a loop calls itself more than %u deep", ESP_RENDER_DEPTH_MAX);
    }
    run->n_calls++;
    struct tpl_out out = {0}, *outer = run->out;
    run->out = &out;
    enum flow flow = exec_for_over(run, loop->node, &args->list[0], loop->scope, loop->level + 1);
    run->out = outer;
    run->n_calls--;
    return flow != FLOW_FAIL && esp_tpl_out_value(run, &out, ret);
}

/* ---- The others -------------------------------------------------------------------------------- */

static enum flow exec_text(struct tpl_run *run, const struct tpl_node *node)
{
    return esp_tpl_out_str(run, run->out, node->value.str) ? FLOW_NEXT : FLOW_FAIL;
}

static enum flow exec_print(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_value value;
    run->line = node->line;
    return esp_tpl_eval(run, node->a, &value) && esp_tpl_print(run, run->out, &value) ? FLOW_NEXT : FLOW_FAIL;
}

static enum flow exec_if(struct tpl_run *run, const struct tpl_node *node)
{
    for (const struct tpl_node *branch = node->a; branch != NULL; branch = branch->next) {
        struct tpl_value test;
        if (!esp_tpl_eval(run, branch->a, &test)) {
            return FLOW_FAIL;
        }
        if (esp_tpl_truth(&test)) {
            return exec_body(run, branch->b);
        }
    }
    return exec_body(run, node->b);
}

static enum flow exec_set(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_value value;
    run->line = node->line;
    return esp_tpl_eval(run, node->b, &value) && assign_target(run, node->a, &value) ? FLOW_NEXT : FLOW_FAIL;
}

static enum flow exec_with(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_scope *outer = run->scope, *inner;
    bool ok = push_scope(run, outer);
    inner = run->scope;
    for (const struct tpl_node *set = node->a; ok && set != NULL; set = set->next) {
        struct tpl_value value;
        run->scope = outer; /* the values are those from outside */
        ok = esp_tpl_eval(run, set->b, &value);
        run->scope = inner;
        ok = ok && assign_target(run, set->a, &value);
    }
    enum flow flow = ok ? exec_body(run, node->c) : FLOW_FAIL;
    run->scope = outer;
    return flow;
}

static enum flow exec_scoped(struct tpl_run *run, const struct tpl_node *node)
{
    struct tpl_scope *outer = run->scope;
    enum flow flow = push_scope(run, node->flag ? NULL : outer) ? exec_body(run, node->c) : FLOW_FAIL;
    run->scope = outer;
    return flow;
}

static enum flow exec_break(struct tpl_run *run, const struct tpl_node *node)
{
    return FLOW_BREAK;
}

static enum flow exec_continue(struct tpl_run *run, const struct tpl_node *node)
{
    return FLOW_CONTINUE;
}

static enum flow (*const executors[TPL_N_KINDS])(struct tpl_run *run, const struct tpl_node *node) = {
    [TPL_N_TEXT] = exec_text,
    [TPL_N_PRINT] = exec_print,
    [TPL_N_IF] = exec_if,
    [TPL_N_FOR] = exec_for,
    [TPL_N_SET] = exec_set,
    [TPL_N_SETBLOCK] = exec_setblock,
    [TPL_N_MACRO] = exec_macro,
    [TPL_N_CALLBLOCK] = exec_callblock,
    [TPL_N_FILTERED] = exec_filtered,
    [TPL_N_WITH] = exec_with,
    [TPL_N_SCOPED] = exec_scoped,
    [TPL_N_BREAK] = exec_break,
    [TPL_N_CONTINUE] = exec_continue,
};

static enum flow exec_body(struct tpl_run *run, const struct tpl_node *body)
{
    enum flow flow = esp_tpl_enter(run) ? FLOW_NEXT : FLOW_FAIL;
    for (const struct tpl_node *node = body; flow == FLOW_NEXT && node != NULL; node = node->next) {
        run->n_steps++;
        flow = esp_tpl_charge(run, 0) ? executors[node->kind](run, node) : FLOW_FAIL;
    }
    esp_tpl_leave(run);
    return flow;
}

bool esp_tpl_exec(struct tpl_run *run, const struct tpl_node *body)
{
    return exec_body(run, body) != FLOW_FAIL;
}
