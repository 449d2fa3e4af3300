/* Calls: arguments, built-in filters and tests, functions, methods, macros.
 *
 * Arguments are evaluated once, then bound to the parameter names of what is called. A filter on a block's text
 * is the same node with the text in place of its target. Thread: the rendering's owner.
 */
#include <string.h>

#include "frontend/template_internal.h"

static bool add_starred(struct tpl_run *run, const struct tpl_value *value, struct tpl_args *args, size_t room)
{
    struct tpl_list *items;
    if (!esp_tpl_items(run, value, &items)) {
        return false;
    }
    if (items->n > room - args->n) {
        return esp_tpl_fail(run, ESP_ELIMIT, "a call has more than %u arguments", TPL_ARGS_MAX);
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        args->list[args->n++] = items->items[idx];
    }
    return true;
}

static bool add_double_starred(struct tpl_run *run, const struct tpl_value *value, struct tpl_args *args, size_t room)
{
    if (value->kind != TPL_DICT) {
        return esp_tpl_fail(run, ESP_EINVAL, "the argument after ** must be a mapping, not %s", esp_tpl_type(value));
    }
    if (value->dict->n > room - args->n_kw) {
        return esp_tpl_fail(run, ESP_ELIMIT, "a call has more than %u arguments", TPL_ARGS_MAX);
    }
    for (size_t idx = 0; idx < value->dict->n; idx++) {
        const struct tpl_pair *pair = &value->dict->pairs[idx];
        if (pair->key.kind != TPL_STR) {
            return esp_tpl_fail(run, ESP_EINVAL, "keywords must be strings");
        }
        args->kw[args->n_kw++] = (struct tpl_kwarg){pair->key.str, pair->value};
    }
    return true;
}

/* Room for the arguments of a call; a star may bring up to the limit. */
static bool args_room(struct tpl_run *run, const struct tpl_node *first, struct tpl_args *args, size_t *ret_n,
                      size_t *ret_n_kw)
{
    size_t n = 0, n_kw = 0;
    bool star = false, double_star = false;
    for (const struct tpl_node *at = first; at != NULL; at = at->next) {
        star = star || at->kind == TPL_N_STAR;
        double_star = double_star || at->kind == TPL_N_STARSTAR;
        n_kw += at->kind == TPL_N_KWARG;
        n += at->kind != TPL_N_KWARG;
    }
    n = star ? TPL_ARGS_MAX : n;
    n_kw = double_star ? TPL_ARGS_MAX : n_kw;
    args->list = n > 0 ? esp_tpl_alloc(run, n, sizeof *args->list) : NULL;
    args->kw = n_kw > 0 ? esp_tpl_alloc(run, n_kw, sizeof *args->kw) : NULL;
    *ret_n = n;
    *ret_n_kw = n_kw;
    return (n == 0 || args->list != NULL) && (n_kw == 0 || args->kw != NULL);
}

static bool add_arg(struct tpl_run *run, const struct tpl_node *node, const struct tpl_value *value,
                    struct tpl_args *args, size_t n, size_t n_kw)
{
    if (node->kind == TPL_N_STAR) {
        return add_starred(run, value, args, n);
    }
    if (node->kind == TPL_N_STARSTAR) {
        return add_double_starred(run, value, args, n_kw);
    }
    bool named = node->kind == TPL_N_KWARG;
    if (named ? args->n_kw == n_kw : args->n == n) {
        return esp_tpl_fail(run, ESP_ELIMIT, "a call has more than %u arguments", TPL_ARGS_MAX);
    }
    if (named) {
        args->kw[args->n_kw++] = (struct tpl_kwarg){node->value.str, *value};
    } else {
        args->list[args->n++] = *value;
    }
    return true;
}

static bool eval_args(struct tpl_run *run, const struct tpl_node *first, struct tpl_args *ret_args)
{
    struct tpl_args args = {0};
    size_t n, n_kw;
    if (!args_room(run, first, &args, &n, &n_kw)) {
        return false;
    }
    for (const struct tpl_node *at = first; at != NULL; at = at->next) {
        struct tpl_value value;
        bool wraps = at->kind == TPL_N_KWARG || at->kind == TPL_N_STAR || at->kind == TPL_N_STARSTAR;
        if (!esp_tpl_eval(run, wraps ? at->a : at, &value) || !add_arg(run, at, &value, &args, n, n_kw)) {
            return false;
        }
    }
    *ret_args = args;
    return true;
}

/* Index of the parameter with this name in "a,b,c", or -1; name NULL: the number of parameters. */
static int param_index(const char *params, const struct tpl_str *name)
{
    int idx = 0;
    for (const char *at = params; *at != '\0'; idx++) {
        size_t n = strcspn(at, ",");
        if (name != NULL && name->n == n && memcmp(name->data, at, n) == 0) {
            return idx;
        }
        at += n + (at[n] == ',');
    }
    return name == NULL ? idx : -1;
}

static bool bind(struct tpl_run *run, const struct tpl_builtin *builtin, struct tpl_call *call)
{
    const struct tpl_args *args = call->args;
    size_t n_params = (size_t)param_index(builtin->params, NULL);
    if (args->n > n_params) {
        return esp_tpl_fail(run, ESP_EINVAL, "%s takes at most %zu arguments (%zu given)", builtin->name, n_params,
                            args->n);
    }
    for (size_t idx = 0; idx < args->n; idx++) {
        call->arg[idx] = args->list[idx];
    }
    for (size_t idx = 0; idx < args->n_kw; idx++) {
        int param = param_index(builtin->params, args->kw[idx].name);
        if (param < 0 || call->arg[param].kind != TPL_UNSET) {
            return esp_tpl_fail(run, ESP_EINVAL, "%s got an unexpected keyword argument", builtin->name);
        }
        call->arg[param] = args->kw[idx].value;
    }
    for (size_t idx = 0; idx < builtin->n_needed; idx++) {
        if (call->arg[idx].kind == TPL_UNSET) {
            return esp_tpl_fail(run, ESP_EINVAL, "%s is called with too few arguments", builtin->name);
        }
    }
    return true;
}

bool esp_tpl_invoke(struct tpl_run *run, const struct tpl_builtin *builtin, const struct tpl_value *self,
                    const struct tpl_args *args, struct tpl_value *ret)
{
    struct tpl_call call = {.self = *self, .args = args};
    run->n_steps++;
    return esp_tpl_charge(run, 0) && (builtin->params == NULL || bind(run, builtin, &call)) &&
           builtin->run(run, &call, ret);
}

static bool call(struct tpl_run *run, const struct tpl_value *callee, const struct tpl_args *args,
                 struct tpl_value *ret)
{
    switch (callee->kind) {
    case TPL_METHOD: return esp_tpl_invoke(run, callee->method->function, &callee->method->self, args, ret);
    case TPL_FUNCTION: return esp_tpl_invoke(run, callee->function, callee, args, ret);
    case TPL_MACRO: return esp_tpl_call_macro(run, callee->macro, args, ret);
    case TPL_LOOP: return esp_tpl_call_loop(run, callee->loop, args, ret);
    case TPL_JOINER:
        if (callee->cycler->idx++ == 0) {
            return esp_tpl_str_new(run, "", 0, false, ret);
        }
        *ret = callee->cycler->items->items[0];
        return true;
    case TPL_UNDEF: return esp_tpl_undefined(run, callee);
    default: return esp_tpl_fail(run, ESP_EINVAL, "'%s' object is not callable", esp_tpl_type(callee));
    }
}

bool esp_tpl_eval_call(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value callee;
    struct tpl_args args;
    if (!esp_tpl_eval(run, node->a, &callee) || !eval_args(run, node->b, &args)) {
        return false;
    }
    run->line = node->line;
    return call(run, &callee, &args, ret);
}

bool esp_tpl_eval_call_with(struct tpl_run *run, const struct tpl_node *node, const struct tpl_value *caller,
                            struct tpl_value *ret)
{
    struct tpl_value callee;
    struct tpl_args args;
    if (!esp_tpl_eval(run, node->a, &callee) || !eval_args(run, node->b, &args)) {
        return false;
    }
    struct tpl_kwarg *kw = esp_tpl_alloc(run, args.n_kw + 1, sizeof *kw);
    if (kw == NULL) {
        return false;
    }
    if (args.n_kw > 0) {
        memcpy(kw, args.kw, args.n_kw * sizeof *kw);
    }
    kw[args.n_kw++] = (struct tpl_kwarg){run->tmpl->symbols[TPL_SYM_CALLER], *caller};
    args.kw = kw;
    run->line = node->line;
    return call(run, &callee, &args, ret);
}

static bool apply(struct tpl_run *run, const struct tpl_node *node, const struct tpl_value *target,
                  struct tpl_value *ret)
{
    struct tpl_args args;
    if (node->builtin == NULL) {
        run->line = node->line;
        return esp_tpl_fail(run, ESP_EINVAL, "no %s named '%.*s'", node->kind == TPL_N_FILTER ? "filter" : "test",
                            (int)(node->value.str->n < 100 ? node->value.str->n : 100), node->value.str->data);
    }
    if (!eval_args(run, node->b, &args)) {
        return false;
    }
    run->line = node->line;
    return esp_tpl_invoke(run, node->builtin, target, &args, ret);
}

bool esp_tpl_eval_filter(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value target;
    return esp_tpl_eval(run, node->a, &target) && apply(run, node, &target, ret);
}

bool esp_tpl_eval_test(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    return esp_tpl_eval_filter(run, node, ret);
}

bool esp_tpl_eval_filters(struct tpl_run *run, const struct tpl_node *chain, const struct tpl_value *text,
                          struct tpl_value *ret)
{
    struct tpl_value target = *text;
    if (!esp_tpl_enter(run)) {
        esp_tpl_leave(run);
        return false;
    }
    bool ok = chain->a == NULL || esp_tpl_eval_filters(run, chain->a, text, &target);
    ok = ok && apply(run, chain, &target, ret);
    esp_tpl_leave(run);
    return ok;
}
