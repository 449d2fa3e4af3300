/* Evaluation of expressions.
 *
 * One function per kind of node, found in a table. Recursion follows the tree, whose depth is limited when it is
 * compiled, and macro calls, which are counted; esp_tpl_enter checks the sum. Every evaluation is a step, and work
 * on long strings and lists is charged as steps too, so no template runs for ever. Thread: the rendering's owner.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "frontend/template_internal.h"

/* ---- The run ----------------------------------------------------------------------------------- */

bool esp_tpl_fail(struct tpl_run *run, esp_status code, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    esp_fail(run->err, code, "line %u of the template: %s", run->line, text);
    run->err->offset = run->line;
    return false;
}

bool esp_tpl_undefined(struct tpl_run *run, const struct tpl_value *value)
{
    const struct tpl_undef *undef = value->undef;
    int n = (int)(undef->name->n < 100 ? undef->name->n : 100);
    if (undef->unsafe) {
        return esp_tpl_fail(run, ESP_EINVAL, "access to attribute '%.*s' of '%s' object is unsafe", n,
                            undef->name->data, undef->owner);
    }
    if (undef->owner == NULL) {
        return esp_tpl_fail(run, ESP_EINVAL, "'%.*s' is undefined", n, undef->name->data);
    }
    return esp_tpl_fail(run, ESP_EINVAL, "'%s object' has no attribute '%.*s'", undef->owner, n, undef->name->data);
}

void *esp_tpl_alloc(struct tpl_run *run, size_t n, size_t size)
{
    void *ptr = esp_arena_alloc(&run->arena, n == 0 ? 1 : n, size);
    if (ptr == NULL) {
        bool full = run->arena.used_bytes > TPL_RUN_BYTES_MAX / 2 || (size > 0 && n > TPL_RUN_BYTES_MAX / size / 2);
        esp_tpl_fail(run, full ? ESP_ELIMIT : ESP_ENOMEM,
                     full ? "the template needs too much memory" : "out of memory");
    }
    return ptr;
}

bool esp_tpl_charge(struct tpl_run *run, size_t n_bytes)
{
    run->n_steps += n_bytes / 64;
    return run->n_steps <= ESP_RENDER_STEPS_MAX || esp_tpl_fail(run, ESP_ELIMIT, "the template takes too many steps");
}

bool esp_tpl_enter(struct tpl_run *run)
{
    if (++run->n_frames > TPL_FRAMES_MAX) {
        return esp_tpl_fail(run, ESP_ELIMIT, "the template recurses too deeply");
    }
    run->n_steps++;
    return esp_tpl_charge(run, 0);
}

void esp_tpl_leave(struct tpl_run *run)
{
    run->n_frames--;
}

/* ---- Arithmetic -------------------------------------------------------------------------------- */

static bool type_error(struct tpl_run *run, enum tpl_op op, const struct tpl_value *a, const struct tpl_value *b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (a->kind == TPL_UNDEF || b->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, a->kind == TPL_UNDEF ? a : b);
    }
    return esp_tpl_fail(run, ESP_EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'", names[op],
                        esp_tpl_type(a), esp_tpl_type(b));
}

static bool power(struct tpl_run *run, int64_t base, int64_t exponent, struct tpl_value *ret)
{
    if (exponent < 0) {
        if (base == 0) {
            return esp_tpl_fail(run, ESP_EINVAL, "0 cannot be raised to a negative power");
        }
        *ret = esp_tpl_real(pow((double)base, (double)exponent));
        return true;
    }
    int64_t result = 1;
    if (base == 0 || base == 1 || base == -1) {
        *ret = esp_tpl_int(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
        return true;
    }
    for (; exponent > 0; exponent--) { /* overflows after at most 63 rounds */
        if (__builtin_mul_overflow(result, base, &result)) {
            return esp_tpl_fail(run, ESP_ELIMIT, "the integer is too large");
        }
    }
    *ret = esp_tpl_int(result);
    return true;
}

static bool integer_arithmetic(struct tpl_run *run, enum tpl_op op, int64_t a, int64_t b, struct tpl_value *ret)
{
    int64_t result = 0;
    bool over = false;
    switch (op) {
    case TPL_ADD: over = __builtin_add_overflow(a, b, &result); break;
    case TPL_SUB: over = __builtin_sub_overflow(a, b, &result); break;
    case TPL_MUL: over = __builtin_mul_overflow(a, b, &result); break;
    case TPL_POW: return power(run, a, b, ret);
    default:
        if (b == 0) {
            return esp_tpl_fail(run, ESP_EINVAL, "division by zero");
        }
        if (op == TPL_DIV) {
            *ret = esp_tpl_real((double)a / (double)b);
            return true;
        }
        if (b == -1) { /* INT64_MIN / -1 */
            over = op == TPL_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &result);
        } else { /* towards minus infinity, the rest with the divisor's sign */
            bool uneven = a % b != 0 && (a < 0) != (b < 0);
            result = op == TPL_FLOORDIV ? a / b - uneven : a % b + (uneven ? b : 0);
        }
    }
    *ret = esp_tpl_int(result);
    return !over || esp_tpl_fail(run, ESP_ELIMIT, "the integer is too large");
}

static bool real_arithmetic(struct tpl_run *run, enum tpl_op op, double a, double b, struct tpl_value *ret)
{
    double result = 0;
    if ((op == TPL_DIV || op == TPL_FLOORDIV || op == TPL_MOD) && b == 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "division by zero");
    }
    switch (op) {
    case TPL_ADD: result = a + b; break;
    case TPL_SUB: result = a - b; break;
    case TPL_MUL: result = a * b; break;
    case TPL_DIV: result = a / b; break;
    case TPL_FLOORDIV: result = floor(a / b); break;
    case TPL_POW: result = pow(a, b); break;
    default: result = fmod(a, b); result += result != 0 && (result < 0) != (b < 0) ? b : 0;
    }
    *ret = esp_tpl_real(result);
    return true;
}

static bool repeat(struct tpl_run *run, const struct tpl_value *box, int64_t times, struct tpl_value *ret)
{
    times = times < 0 ? 0 : times;
    if (box->kind == TPL_STR) {
        struct tpl_out out = {0};
        for (int64_t idx = 0; box->str->n > 0 && idx < times; idx++) {
            if (!esp_tpl_charge(run, 64) || !esp_tpl_out_str(run, &out, box->str)) {
                return false;
            }
        }
        return esp_tpl_out_value(run, &out, ret);
    }
    size_t n = box->list->n, total;
    if (__builtin_mul_overflow(n, (size_t)times, &total) || total > TPL_RUN_BYTES_MAX / sizeof(struct tpl_value)) {
        return esp_tpl_fail(run, ESP_ELIMIT, "the list is too long");
    }
    struct tpl_value list;
    if (!esp_tpl_charge(run, total * 16) || !esp_tpl_list(run, box->kind, total, &list)) {
        return false;
    }
    for (size_t idx = 0; idx < total; idx++) {
        list.list->items[idx] = box->list->items[idx % n];
    }
    *ret = list;
    return true;
}

static bool join_lists(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, struct tpl_value *ret)
{
    struct tpl_value list;
    size_t n = a->list->n;
    if (!esp_tpl_charge(run, (n + b->list->n) * 16) || !esp_tpl_list(run, a->kind, n + b->list->n, &list)) {
        return false;
    }
    memcpy(list.list->items, a->list->items, n * sizeof *a->list->items);
    memcpy(list.list->items + n, b->list->items, b->list->n * sizeof *b->list->items);
    *ret = list;
    return true;
}

static bool is_sequence(const struct tpl_value *value)
{
    return value->kind == TPL_STR || value->kind == TPL_LIST || value->kind == TPL_TUPLE;
}

/* Markup and plain text add up to markup, the plain part escaped. */
static bool add_strings(struct tpl_run *run, const struct tpl_str *a, const struct tpl_str *b, struct tpl_value *ret)
{
    struct tpl_out out = {0};
    bool markup = a->markup || b->markup;
    bool ok = (markup && !a->markup ? esp_tpl_out_escaped(run, &out, a) : esp_tpl_out_str(run, &out, a)) &&
              (markup && !b->markup ? esp_tpl_out_escaped(run, &out, b) : esp_tpl_out_str(run, &out, b)) &&
              esp_tpl_out_value(run, &out, ret);
    return ok && (!markup || esp_tpl_str_markup(run, ret->str, ret));
}

static bool add_sequences(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b,
                          struct tpl_value *ret)
{
    return a->kind == TPL_STR ? add_strings(run, a->str, b->str, ret) : join_lists(run, a, b, ret);
}

bool esp_tpl_arithmetic(struct tpl_run *run, enum tpl_op op, const struct tpl_value *a, const struct tpl_value *b,
                        struct tpl_value *ret)
{
    int64_t x, y;
    if (esp_tpl_as_int(a, &x) && esp_tpl_as_int(b, &y)) {
        return integer_arithmetic(run, op, x, y, ret);
    }
    if (esp_tpl_is_number(a) && esp_tpl_is_number(b)) {
        return real_arithmetic(run, op, esp_tpl_number(a), esp_tpl_number(b), ret);
    }
    if (op == TPL_ADD && a->kind == b->kind && is_sequence(a)) {
        return add_sequences(run, a, b, ret);
    }
    const struct tpl_value *box = is_sequence(a) ? a : b, *times = is_sequence(a) ? b : a; /* of a product */
    if (op == TPL_MUL && is_sequence(box) && esp_tpl_as_int(times, &y)) {
        return repeat(run, box, y, ret);
    }
    if (op == TPL_MOD && a->kind == TPL_STR) {
        return esp_tpl_format_percent(run, a->str, b, ret);
    }
    return type_error(run, op, a, b);
}

/* ---- Nodes ------------------------------------------------------------------------------------- */

static bool eval_const(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    *ret = node->value;
    return true;
}

static bool eval_name(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    return esp_tpl_lookup(run, node->sym, ret);
}

static bool eval_list(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    size_t n = 0;
    for (const struct tpl_node *item = node->a; item != NULL; item = item->next) {
        n++;
    }
    struct tpl_value list;
    if (!esp_tpl_list(run, node->kind == TPL_N_LIST ? TPL_LIST : TPL_TUPLE, n, &list)) {
        return false;
    }
    n = 0;
    for (const struct tpl_node *item = node->a; item != NULL; item = item->next) {
        if (!esp_tpl_eval(run, item, &list.list->items[n++])) {
            return false;
        }
    }
    *ret = list;
    return true;
}

static bool eval_dict(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value dict, key, value;
    if (!esp_tpl_dict(run, TPL_DICT, &dict)) {
        return false;
    }
    for (const struct tpl_node *pair = node->a; pair != NULL; pair = pair->next) {
        if (!esp_tpl_eval(run, pair->a, &key) || !esp_tpl_eval(run, pair->b, &value) ||
            !esp_tpl_dict_put(run, dict.dict, &key, &value)) {
            return false;
        }
    }
    *ret = dict;
    return true;
}

static bool eval_sign(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value value, zero = esp_tpl_int(0);
    if (!esp_tpl_eval(run, node->a, &value)) {
        return false;
    }
    if (value.kind == TPL_FLOAT) {
        *ret = esp_tpl_real(node->kind == TPL_N_NEG ? -value.real : value.real);
        return true;
    }
    return esp_tpl_arithmetic(run, node->kind == TPL_N_NEG ? TPL_SUB : TPL_ADD, &zero, &value, ret);
}

static bool eval_not(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value value;
    if (!esp_tpl_eval(run, node->a, &value)) {
        return false;
    }
    *ret = esp_tpl_bool(!esp_tpl_truth(&value));
    return true;
}

static bool eval_logic(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    if (!esp_tpl_eval(run, node->a, ret)) {
        return false;
    }
    bool settled = esp_tpl_truth(ret) == (node->kind == TPL_N_OR);
    return settled || esp_tpl_eval(run, node->b, ret);
}

static bool eval_binary(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value a, b;
    if (!esp_tpl_eval(run, node->a, &a) || !esp_tpl_eval(run, node->b, &b)) {
        return false;
    }
    run->line = node->line;
    return esp_tpl_arithmetic(run, node->op, &a, &b, ret);
}

static bool eval_concat(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_out out = {0};
    for (const struct tpl_node *part = node->a; part != NULL; part = part->next) {
        struct tpl_value value;
        if (!esp_tpl_eval(run, part, &value) || !esp_tpl_print(run, &out, &value)) {
            return false;
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

static bool compare(struct tpl_run *run, enum tpl_op op, const struct tpl_value *a, const struct tpl_value *b,
                    bool *ret)
{
    static const char *const names[] = {[TPL_LT] = "<", [TPL_LE] = "<=", [TPL_GT] = ">", [TPL_GE] = ">="};
    int order;
    if (op == TPL_EQ || op == TPL_NE) {
        bool ok = esp_tpl_equal(run, a, b, ret);
        *ret = *ret == (op == TPL_EQ);
        return ok;
    }
    if (op == TPL_IN || op == TPL_NOT_IN) {
        bool ok = esp_tpl_contains(run, b, a, ret);
        *ret = *ret == (op == TPL_IN);
        return ok;
    }
    if (!esp_tpl_order(run, a, b, names[op], &order)) {
        return false;
    }
    *ret = op == TPL_LT ? order < 0 : op == TPL_LE ? order <= 0 : op == TPL_GT ? order > 0 : order >= 0;
    return true;
}

static bool eval_compare(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value left, right;
    bool holds = true;
    if (!esp_tpl_eval(run, node->a, &left)) {
        return false;
    }
    for (const struct tpl_node *part = node->b; holds && part != NULL; part = part->next) {
        bool answer = false;
        if (!esp_tpl_eval(run, part->a, &right)) {
            return false;
        }
        run->line = node->line;
        if (!compare(run, part->op, &left, &right, &answer)) {
            return false;
        }
        holds = answer;
        left = right;
    }
    *ret = esp_tpl_bool(holds);
    return true;
}

static bool eval_cond(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    static const struct tpl_str name = {.data = "the inline if without else", .n = 26};
    static const struct tpl_undef undef = {.name = &name};
    struct tpl_value test;
    if (!esp_tpl_eval(run, node->a, &test)) {
        return false;
    }
    const struct tpl_node *branch = esp_tpl_truth(&test) ? node->b : node->c;
    if (branch == NULL) {
        *ret = (struct tpl_value){.kind = TPL_UNDEF, .undef = &undef};
        return true;
    }
    return esp_tpl_eval(run, branch, ret);
}

static bool eval_attr(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value owner;
    if (!esp_tpl_eval(run, node->a, &owner)) {
        return false;
    }
    run->line = node->line;
    return esp_tpl_attr(run, &owner, node->value.str, ret);
}

static bool eval_item(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value owner, key, bounds[3] = {{.kind = TPL_UNSET}};
    if (!esp_tpl_eval(run, node->a, &owner)) {
        return false;
    }
    if (node->b->kind == TPL_N_SLICE) {
        const struct tpl_node *parts[3] = {node->b->a, node->b->b, node->b->c};
        for (int idx = 0; idx < 3; idx++) {
            if (parts[idx] != NULL && !esp_tpl_eval(run, parts[idx], &bounds[idx])) {
                return false;
            }
        }
        run->line = node->line;
        return esp_tpl_slice(run, &owner, bounds, ret);
    }
    if (!esp_tpl_eval(run, node->b, &key)) {
        return false;
    }
    run->line = node->line;
    return esp_tpl_item(run, &owner, &key, ret);
}

typedef bool evaluator(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret);
static bool (*const evaluators[TPL_N_KINDS])(struct tpl_run *run, const struct tpl_node *node,
                                             struct tpl_value *ret) = {
    [TPL_N_CONST] = eval_const,       [TPL_N_NAME] = eval_name,         [TPL_N_LIST] = eval_list,
    [TPL_N_TUPLE] = eval_list,        [TPL_N_DICT] = eval_dict,         [TPL_N_NEG] = eval_sign,
    [TPL_N_POS] = eval_sign,          [TPL_N_NOT] = eval_not,           [TPL_N_AND] = eval_logic,
    [TPL_N_OR] = eval_logic,          [TPL_N_BINARY] = eval_binary,     [TPL_N_CONCAT] = eval_concat,
    [TPL_N_COMPARE] = eval_compare,   [TPL_N_COND] = eval_cond,         [TPL_N_ATTR] = eval_attr,
    [TPL_N_ITEM] = eval_item,         [TPL_N_CALL] = esp_tpl_eval_call, [TPL_N_FILTER] = esp_tpl_eval_filter,
    [TPL_N_TEST] = esp_tpl_eval_test,
};

bool esp_tpl_eval(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret)
{
    struct tpl_value value = {.kind = TPL_UNSET};
    if (evaluators[node->kind] == NULL) {
        return esp_tpl_fail(run, ESP_EINVAL, "a slice can only stand alone between brackets");
    }
    bool ok = esp_tpl_enter(run) && evaluators[node->kind](run, node, &value);
    esp_tpl_leave(run);
    if (ok) {
        *ret = value;
    }
    return ok;
}
