/* Tests: what may follow `is`, and be named in select and its kin.
 *
 * An undefined value is iterable and a sequence, as in Jinja; a bool is a number but no integer. Thread: any.
 */
#include "frontend/template_internal.h"

static bool answer(struct tpl_value *ret, bool truth)
{
    *ret = esp_tpl_bool(truth);
    return true;
}

static bool t_defined(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind != TPL_UNDEF);
}

static bool t_undefined(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_UNDEF);
}

static bool t_none(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_NONE);
}

static bool t_string(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_STR);
}

static bool t_number(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, esp_tpl_is_number(&call->self));
}

static bool t_integer(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_INT);
}

static bool t_float(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_FLOAT);
}

static bool t_boolean(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_BOOL);
}

static bool t_true(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_BOOL && call->self.truth);
}

static bool t_false(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_BOOL && !call->self.truth);
}

static bool t_mapping(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind == TPL_DICT);
}

static bool is_walkable(enum tpl_kind kind)
{
    return kind == TPL_UNDEF || kind == TPL_STR || (kind >= TPL_LIST && kind <= TPL_DICT);
}

static bool t_iterable(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, is_walkable(call->self.kind) || call->self.kind == TPL_LOOP);
}

static bool t_sequence(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, is_walkable(call->self.kind) && call->self.kind != TPL_GENERATOR && call->self.kind != TPL_VIEW);
}

static bool t_callable(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return answer(ret, call->self.kind >= TPL_MACRO && call->self.kind != TPL_CYCLER);
}

static bool remainder_of(struct tpl_run *run, const struct tpl_call *call, int64_t divisor, int64_t *ret_rest)
{
    int64_t value;
    if (!esp_tpl_as_int(&call->self, &value)) {
        return call->self.kind == TPL_UNDEF
                   ? esp_tpl_undefined(run, &call->self)
                   : esp_tpl_fail(run, ESP_EINVAL, "an integer is needed, not %s", esp_tpl_type(&call->self));
    }
    if (divisor == 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "division by zero");
    }
    *ret_rest = divisor == -1 ? 0 : value % divisor;
    return true;
}

static bool t_odd(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t rest = 0;
    return remainder_of(run, call, 2, &rest) && answer(ret, rest != 0);
}

static bool t_even(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t rest = 0;
    return remainder_of(run, call, 2, &rest) && answer(ret, rest == 0);
}

static bool t_divisibleby(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t divisor, rest = 0;
    return esp_tpl_arg_int(run, &call->arg[0], 0, &divisor) && remainder_of(run, call, divisor, &rest) &&
           answer(ret, rest == 0);
}

static bool cased(struct tpl_run *run, const struct tpl_call *call, const char *method, struct tpl_value *ret)
{
    struct tpl_value text;
    struct tpl_args none = {0};
    return esp_tpl_str(run, &call->self, &text) &&
           esp_tpl_invoke(run, esp_tpl_find_str_method(method, 7), &text, &none, ret);
}

static bool t_lower(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return cased(run, call, "islower", ret);
}

static bool t_upper(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return cased(run, call, "isupper", ret);
}

static bool t_eq(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    bool equal;
    return esp_tpl_equal(run, &call->self, &call->arg[0], &equal) && answer(ret, equal);
}

static bool t_ne(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    bool equal;
    return esp_tpl_equal(run, &call->self, &call->arg[0], &equal) && answer(ret, !equal);
}

static bool t_gt(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int order;
    return esp_tpl_order(run, &call->self, &call->arg[0], ">", &order) && answer(ret, order > 0);
}

static bool t_ge(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int order;
    return esp_tpl_order(run, &call->self, &call->arg[0], ">=", &order) && answer(ret, order >= 0);
}

static bool t_lt(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int order;
    return esp_tpl_order(run, &call->self, &call->arg[0], "<", &order) && answer(ret, order < 0);
}

static bool t_le(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int order;
    return esp_tpl_order(run, &call->self, &call->arg[0], "<=", &order) && answer(ret, order <= 0);
}

static bool t_in(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    bool inside;
    return esp_tpl_contains(run, &call->arg[0], &call->self, &inside) && answer(ret, inside);
}

static bool t_sameas(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_value *a = &call->self, *b = &call->arg[0];
    bool same = a->kind == b->kind;
    if (same && a->kind >= TPL_STR) {
        same = a->list == b->list; /* all of the union's pointers are alike */
    } else if (same && a->kind != TPL_NONE && a->kind != TPL_UNDEF) {
        return t_eq(run, call, ret);
    }
    return answer(ret, same);
}

static bool t_filter(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_value *name = &call->self;
    return answer(ret, name->kind == TPL_STR && esp_tpl_find_filter(name->str->data, name->str->n) != NULL);
}

static bool t_test(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_value *name = &call->self;
    return answer(ret, name->kind == TPL_STR && esp_tpl_find_test(name->str->data, name->str->n) != NULL);
}

const struct tpl_builtin *esp_tpl_find_test(const char *name, size_t n)
{
    static const struct tpl_builtin rows[] = {
        {"defined", "", 0, t_defined},
        {"undefined", "", 0, t_undefined},
        {"none", "", 0, t_none},
        {"string", "", 0, t_string},
        {"number", "", 0, t_number},
        {"integer", "", 0, t_integer},
        {"float", "", 0, t_float},
        {"boolean", "", 0, t_boolean},
        {"true", "", 0, t_true},
        {"false", "", 0, t_false},
        {"mapping", "", 0, t_mapping},
        {"iterable", "", 0, t_iterable},
        {"sequence", "", 0, t_sequence},
        {"callable", "", 0, t_callable},
        {"odd", "", 0, t_odd},
        {"even", "", 0, t_even},
        {"divisibleby", "num", 1, t_divisibleby},
        {"lower", "", 0, t_lower},
        {"upper", "", 0, t_upper},
        {"eq", "other", 1, t_eq},
        {"equalto", "other", 1, t_eq},
        {"==", "other", 1, t_eq},
        {"ne", "other", 1, t_ne},
        {"!=", "other", 1, t_ne},
        {"gt", "other", 1, t_gt},
        {">", "other", 1, t_gt},
        {"greaterthan", "other", 1, t_gt},
        {"ge", "other", 1, t_ge},
        {">=", "other", 1, t_ge},
        {"lt", "other", 1, t_lt},
        {"<", "other", 1, t_lt},
        {"lessthan", "other", 1, t_lt},
        {"le", "other", 1, t_le},
        {"<=", "other", 1, t_le},
        {"in", "seq", 1, t_in},
        {"sameas", "other", 1, t_sameas},
        {"filter", "", 0, t_filter},
        {"test", "", 0, t_test},
    };
    return esp_tpl_find_in(rows, sizeof rows / sizeof rows[0], name, n);
}
