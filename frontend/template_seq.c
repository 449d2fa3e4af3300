/* Filters on sequences and mappings.
 *
 * What is a generator in Jinja is one here too: it can be walked once, has no length and is no JSON. Its items
 * are made at once. Attributes may be paths ("a.b.0"). Thread: the rendering's owner.
 */
#include <string.h>

#include "frontend/template_internal.h"
#include "runtime/base/rng.h"

/* ---- Attribute paths --------------------------------------------------------------------------- */

static bool path_part(struct tpl_run *run, const struct tpl_str *path, size_t from, size_t to, struct tpl_value *ret)
{
    int64_t number = 0;
    bool digits = to > from && to - from < 10;
    for (size_t at = from; digits && at < to; at++) {
        digits = path->data[at] >= '0' && path->data[at] <= '9';
        number = number * 10 + (path->data[at] - '0');
    }
    if (digits) {
        *ret = esp_tpl_int(number);
        return true;
    }
    return esp_tpl_str_part(run, path, from, to, ret);
}

/* item.attribute; fallback stands for what is undefined unless it is TPL_UNSET. */
static bool get_path(struct tpl_run *run, const struct tpl_value *item, const struct tpl_value *attribute,
                     const struct tpl_value *fallback, struct tpl_value *ret)
{
    struct tpl_value value = *item;
    if (attribute->kind != TPL_STR) {
        if (attribute->kind != TPL_UNSET && attribute->kind != TPL_NONE &&
            !esp_tpl_item(run, item, attribute, &value)) {
            return false;
        }
    } else {
        const struct tpl_str *path = attribute->str;
        for (size_t from = 0; from <= path->n;) {
            const char *dot = memchr(path->data + from, '.', path->n - from);
            size_t to = dot != NULL ? (size_t)(dot - path->data) : path->n;
            struct tpl_value part, next;
            if (!path_part(run, path, from, to, &part) || !esp_tpl_item(run, &value, &part, &next)) {
                return false;
            }
            value = next;
            if (value.kind == TPL_UNDEF && fallback->kind != TPL_UNSET) {
                value = *fallback;
            }
            from = to + 1;
        }
    }
    *ret = value;
    return true;
}

/* The key that an item is sorted or told apart by. */
static bool item_key(struct tpl_run *run, const struct tpl_value *item, const struct tpl_value *attribute,
                     bool case_sensitive, struct tpl_value *ret)
{
    struct tpl_value unset = {.kind = TPL_UNSET};
    if (!get_path(run, item, attribute, &unset, ret)) {
        return false;
    }
    return case_sensitive || ret->kind != TPL_STR || esp_tpl_str_case(run, ret->str, TPL_CASE_LOWER, ret);
}

static bool all_keys(struct tpl_run *run, const struct tpl_list *items, const struct tpl_value *attribute,
                     bool case_sensitive, struct tpl_value **ret)
{
    struct tpl_value *keys = esp_tpl_alloc(run, items->n, sizeof *keys);
    if (keys == NULL) {
        return false;
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        if (!item_key(run, &items->items[idx], attribute, case_sensitive, &keys[idx])) {
            return false;
        }
    }
    *ret = keys;
    return true;
}

static bool copy_list(struct tpl_run *run, const struct tpl_list *items, enum tpl_kind kind, struct tpl_value *ret)
{
    struct tpl_value list;
    if (!esp_tpl_charge(run, items->n * 16) || !esp_tpl_list(run, kind, items->n, &list)) {
        return false;
    }
    if (items->n > 0) {
        memcpy(list.list->items, items->items, items->n * sizeof *items->items);
    }
    *ret = list;
    return true;
}

/* An undefined value for "no such item". */
static bool nothing(struct tpl_value *ret)
{
    static const struct tpl_str name = {.data = "the item of an empty sequence", .n = 29};
    static const struct tpl_undef undef = {.name = &name};
    *ret = (struct tpl_value){.kind = TPL_UNDEF, .undef = &undef};
    return true;
}

/* ---- Single items, joining, copying ------------------------------------------------------------ */

static bool f_first(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    if (!esp_tpl_items(run, &call->self, &items)) {
        return false;
    }
    if (items->n == 0) {
        return nothing(ret);
    }
    *ret = items->items[0];
    return true;
}

static bool f_last(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    if (!esp_tpl_items(run, &call->self, &items)) {
        return false;
    }
    if (items->n == 0) {
        return nothing(ret);
    }
    *ret = items->items[items->n - 1];
    return true;
}

static bool f_random(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    if (!esp_tpl_items(run, &call->self, &items)) {
        return false;
    }
    if (items->n == 0) {
        return nothing(ret);
    }
    *ret = items->items[esp_rng_at((uint64_t)run->now_s, run->n_random++) % items->n];
    return true;
}

static bool f_join(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value separator = call->arg[0], unset = {.kind = TPL_UNSET}, item;
    struct tpl_out out = {0};
    bool separated = separator.kind != TPL_UNSET;
    if (!esp_tpl_items(run, &call->self, &items) || (separated && !esp_tpl_str(run, &separator, &separator))) {
        return false;
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        if ((idx > 0 && separated && !esp_tpl_out_str(run, &out, separator.str)) ||
            !get_path(run, &items->items[idx], &call->arg[1], &unset, &item) || !esp_tpl_print(run, &out, &item)) {
            return false;
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

static bool f_list(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    return esp_tpl_items(run, &call->self, &items) && copy_list(run, items, TPL_LIST, ret);
}

static bool f_reverse(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value list, bounds[3] = {{.kind = TPL_UNSET}, {.kind = TPL_UNSET}, {.kind = TPL_INT, .integer = -1}};
    struct tpl_list *items;
    if (call->self.kind == TPL_STR) {
        return esp_tpl_slice(run, &call->self, bounds, ret);
    }
    if (!esp_tpl_items(run, &call->self, &items) || !copy_list(run, items, TPL_GENERATOR, &list)) {
        return false;
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        list.list->items[idx] = items->items[items->n - 1 - idx];
    }
    *ret = list;
    return true;
}

static bool f_items(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    if (call->self.kind == TPL_UNDEF) {
        return esp_tpl_list(run, TPL_GENERATOR, 0, ret);
    }
    const struct tpl_builtin *method = call->self.kind == TPL_DICT ? esp_tpl_find_method(TPL_DICT, "items", 5) : NULL;
    struct tpl_args none = {0};
    if (method == NULL) {
        return esp_tpl_fail(run, ESP_EINVAL, "can only get item pairs from a mapping");
    }
    return esp_tpl_invoke(run, method, &call->self, &none, ret) && copy_list(run, ret->list, TPL_GENERATOR, ret);
}

/* ---- Ordering ---------------------------------------------------------------------------------- */

static bool f_sort(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value list, *keys;
    if (!esp_tpl_items(run, &call->self, &items) || !copy_list(run, items, TPL_LIST, &list) ||
        !all_keys(run, items, &call->arg[2], esp_tpl_truth(&call->arg[1]), &keys) ||
        !esp_tpl_sort(run, list.list->items, keys, items->n, esp_tpl_truth(&call->arg[0]))) {
        return false;
    }
    *ret = list;
    return true;
}

static bool f_dictsort(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value pairs, *keys, position = esp_tpl_int(0);
    struct tpl_args none = {0};
    const struct tpl_builtin *method = esp_tpl_find_method(TPL_DICT, "items", 5);
    if (call->self.kind != TPL_DICT) {
        return call->self.kind == TPL_UNDEF
                   ? esp_tpl_undefined(run, &call->self)
                   : esp_tpl_fail(run, ESP_EINVAL, "dictsort needs a mapping, not %s", esp_tpl_type(&call->self));
    }
    if (call->arg[1].kind == TPL_STR) {
        bool by_value = esp_tpl_str_is(call->arg[1].str, "value");
        if (!by_value && !esp_tpl_str_is(call->arg[1].str, "key")) {
            return esp_tpl_fail(run, ESP_EINVAL, "you can only sort by either 'key' or 'value'");
        }
        position = esp_tpl_int(by_value);
    }
    if (!esp_tpl_invoke(run, method, &call->self, &none, &pairs) || !copy_list(run, pairs.list, TPL_LIST, &pairs) ||
        !all_keys(run, pairs.list, &position, esp_tpl_truth(&call->arg[0]), &keys) ||
        !esp_tpl_sort(run, pairs.list->items, keys, pairs.list->n, esp_tpl_truth(&call->arg[2]))) {
        return false;
    }
    *ret = pairs;
    return true;
}

static bool extreme(struct tpl_run *run, const struct tpl_call *call, bool largest, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value *keys;
    size_t best = 0;
    if (!esp_tpl_items(run, &call->self, &items) ||
        !all_keys(run, items, &call->arg[1], esp_tpl_truth(&call->arg[0]), &keys)) {
        return false;
    }
    if (items->n == 0) {
        return nothing(ret);
    }
    for (size_t idx = 1; idx < items->n; idx++) {
        int order;
        if (!esp_tpl_order(run, &keys[idx], &keys[best], largest ? ">" : "<", &order)) {
            return false;
        }
        best = (largest ? order > 0 : order < 0) ? idx : best;
    }
    *ret = items->items[best];
    return true;
}

static bool f_min(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return extreme(run, call, false, ret);
}

static bool f_max(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return extreme(run, call, true, ret);
}

static bool f_unique(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value list, *keys;
    size_t n = 0;
    if (!esp_tpl_items(run, &call->self, &items) || !copy_list(run, items, TPL_GENERATOR, &list) ||
        !all_keys(run, items, &call->arg[1], esp_tpl_truth(&call->arg[0]), &keys)) {
        return false;
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        bool seen = false;
        for (size_t earlier = 0; !seen && earlier < n; earlier++) {
            if (!esp_tpl_equal(run, &keys[earlier], &keys[idx], &seen)) {
                return false;
            }
        }
        if (!seen) {
            keys[n] = keys[idx];
            list.list->items[n++] = items->items[idx];
        }
    }
    list.list->n = n;
    *ret = list;
    return true;
}

static bool f_sum(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value sum = call->arg[1].kind == TPL_UNSET ? esp_tpl_int(0) : call->arg[1], unset = {.kind = TPL_UNSET},
                     item;
    if (!esp_tpl_items(run, &call->self, &items)) {
        return false;
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        if (!get_path(run, &items->items[idx], &call->arg[0], &unset, &item) ||
            !esp_tpl_arithmetic(run, TPL_ADD, &sum, &item, &sum)) {
            return false;
        }
    }
    *ret = sum;
    return true;
}

/* ---- Mapping and selecting --------------------------------------------------------------------- */

static const struct tpl_value *keyword(const struct tpl_args *args, const char *name)
{
    for (size_t idx = 0; idx < args->n_kw; idx++) {
        if (esp_tpl_str_is(args->kw[idx].name, name)) {
            return &args->kw[idx].value;
        }
    }
    return NULL;
}

/* The built-in named by the argument at `at`; what follows are its own arguments. */
static bool named_builtin(struct tpl_run *run, const struct tpl_args *args, size_t at, bool is_test,
                          const struct tpl_builtin **ret_builtin, struct tpl_args *ret_rest)
{
    const struct tpl_value *name = &args->list[at];
    const struct tpl_builtin *builtin = NULL;
    if (name->kind == TPL_STR) {
        builtin = is_test ? esp_tpl_find_test(name->str->data, name->str->n)
                          : esp_tpl_find_filter(name->str->data, name->str->n);
    }
    if (builtin == NULL) {
        return esp_tpl_fail(run, ESP_EINVAL, "no such %s", is_test ? "test" : "filter");
    }
    *ret_builtin = builtin;
    *ret_rest = (struct tpl_args){args->list + at + 1, args->kw, args->n - at - 1, args->n_kw};
    return true;
}

/* What map, select and their kin walk: nothing, quietly, for whatever is false. */
static bool walk(struct tpl_run *run, const struct tpl_value *value, struct tpl_list **ret)
{
    static struct tpl_list empty;
    if (!esp_tpl_truth(value)) {
        *ret = &empty;
        return true;
    }
    return esp_tpl_items(run, value, ret);
}

static bool f_map(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_value *attribute = keyword(call->args, "attribute"), *given = keyword(call->args, "default");
    struct tpl_value list, fallback = given != NULL ? *given : (struct tpl_value){.kind = TPL_UNSET};
    struct tpl_list *items;
    const struct tpl_builtin *filter = NULL;
    struct tpl_args rest = {0};
    if (!walk(run, &call->self, &items) || !copy_list(run, items, TPL_GENERATOR, &list)) {
        return false;
    }
    if (attribute == NULL || call->args->n > 0) {
        if (call->args->n == 0) {
            return esp_tpl_fail(run, ESP_EINVAL, "map requires a filter argument");
        }
        if (!named_builtin(run, call->args, 0, false, &filter, &rest)) {
            return false;
        }
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        bool ok = filter != NULL ? esp_tpl_invoke(run, filter, &items->items[idx], &rest, &list.list->items[idx])
                                 : get_path(run, &items->items[idx], attribute, &fallback, &list.list->items[idx]);
        if (!ok) {
            return false;
        }
    }
    *ret = list;
    return true;
}

/* select, reject, selectattr, rejectattr: keep the items whose test says `wanted`. */
static bool select_items(struct tpl_run *run, const struct tpl_call *call, bool by_attribute, bool wanted,
                         struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value list, unset = {.kind = TPL_UNSET};
    const struct tpl_builtin *test = NULL;
    struct tpl_args rest = {0};
    size_t n = 0, at = by_attribute;
    if (!walk(run, &call->self, &items) || !copy_list(run, items, TPL_GENERATOR, &list)) {
        return false;
    }
    if (call->args->n < at) {
        return esp_tpl_fail(run, ESP_EINVAL, "missing the name of an attribute");
    }
    if (call->args->n > at && !named_builtin(run, call->args, at, true, &test, &rest)) {
        return false;
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        struct tpl_value value = items->items[idx], answer;
        if (by_attribute && !get_path(run, &items->items[idx], &call->args->list[0], &unset, &value)) {
            return false;
        }
        answer = value;
        if (test != NULL && !esp_tpl_invoke(run, test, &value, &rest, &answer)) {
            return false;
        }
        if (esp_tpl_truth(&answer) == wanted) {
            list.list->items[n++] = items->items[idx];
        }
    }
    list.list->n = n;
    *ret = list;
    return true;
}

static bool f_select(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return select_items(run, call, false, true, ret);
}

static bool f_reject(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return select_items(run, call, false, false, ret);
}

static bool f_selectattr(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return select_items(run, call, true, true, ret);
}

static bool f_rejectattr(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return select_items(run, call, true, false, ret);
}

/* ---- Grouping ---------------------------------------------------------------------------------- */

/* Items [from, to) as a list, filled up to n_want items with `fill` unless that is not given. */
static bool part_of(struct tpl_run *run, const struct tpl_list *items, size_t from, size_t to, size_t n_want,
                    const struct tpl_value *fill, struct tpl_value *ret)
{
    bool fills = fill->kind != TPL_UNSET && fill->kind != TPL_NONE && to - from < n_want;
    size_t n = fills ? n_want : to - from;
    if (!esp_tpl_charge(run, n * 16) || !esp_tpl_list(run, TPL_LIST, n, ret)) {
        return false;
    }
    for (size_t idx = 0; idx < n; idx++) {
        ret->list->items[idx] = from + idx < to ? items->items[from + idx] : *fill;
    }
    return true;
}

static bool f_batch(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value list;
    int64_t size;
    if (!esp_tpl_items(run, &call->self, &items) || !esp_tpl_arg_int(run, &call->arg[0], 0, &size)) {
        return false;
    }
    if (size < 1 || size > TPL_RANGE_MAX) {
        return esp_tpl_fail(run, ESP_EINVAL, "batch needs a size from 1 to %d", TPL_RANGE_MAX);
    }
    size_t step = (size_t)size, n = (items->n + step - 1) / step;
    if (!esp_tpl_list(run, TPL_GENERATOR, n, &list)) {
        return false;
    }
    for (size_t idx = 0; idx < n; idx++) {
        size_t from = idx * step, to = from + step < items->n ? from + step : items->n;
        if (!part_of(run, items, from, to, step, &call->arg[1], &list.list->items[idx])) {
            return false;
        }
    }
    *ret = list;
    return true;
}

static bool f_slice(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value list;
    int64_t slices;
    if (!esp_tpl_items(run, &call->self, &items) || !esp_tpl_arg_int(run, &call->arg[0], 0, &slices)) {
        return false;
    }
    if (slices < 1 || slices > TPL_RANGE_MAX) {
        return esp_tpl_fail(run, ESP_EINVAL, "slice needs a number from 1 to %d", TPL_RANGE_MAX);
    }
    size_t n = (size_t)slices, base = items->n / n, longer = items->n % n, from = 0;
    if (!esp_tpl_list(run, TPL_GENERATOR, n, &list)) {
        return false;
    }
    for (size_t idx = 0; idx < n; idx++) {
        size_t to = from + base + (idx < longer);
        size_t n_want = idx >= longer ? base + 1 : 0;
        if (!part_of(run, items, from, to, n_want, &call->arg[1], &list.list->items[idx])) {
            return false;
        }
        from = to;
    }
    *ret = list;
    return true;
}

static bool f_groupby(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_value sorted, groups, *keys, key, unset = {.kind = TPL_UNSET};
    bool case_sensitive = esp_tpl_truth(&call->arg[2]);
    size_t n_groups = 0;
    if (!esp_tpl_items(run, &call->self, &items) || !copy_list(run, items, TPL_LIST, &sorted) ||
        !all_keys(run, items, &call->arg[0], case_sensitive, &keys) ||
        !esp_tpl_sort(run, sorted.list->items, keys, items->n, false) ||
        !esp_tpl_list(run, TPL_LIST, items->n, &groups) || !esp_tpl_sort(run, keys, keys, items->n, false)) {
        return false;
    }
    for (size_t from = 0, to; from < items->n; from = to) {
        bool equal = true;
        for (to = from + 1; to < items->n; to++) {
            if (!esp_tpl_equal(run, &keys[from], &keys[to], &equal)) {
                return false;
            }
            if (!equal) {
                break;
            }
        }
        struct tpl_value *group = &groups.list->items[n_groups++];
        if (!esp_tpl_list(run, TPL_TUPLE, 2, group) ||
            !get_path(run, &sorted.list->items[from], &call->arg[0], &unset, &key) ||
            !part_of(run, sorted.list, from, to, 0, &unset, &group->list->items[1])) {
            return false;
        }
        group->list->items[0] = key;
    }
    groups.list->n = n_groups;
    *ret = groups;
    return true;
}

const struct tpl_builtin *esp_tpl_find_seq_filter(const char *name, size_t n)
{
    static const struct tpl_builtin rows[] = {
        {"batch", "linecount,fill_with", 1, f_batch},
        {"dictsort", "case_sensitive,by,reverse", 0, f_dictsort},
        {"first", "", 0, f_first},
        {"groupby", "attribute,default,case_sensitive", 1, f_groupby},
        {"items", "", 0, f_items},
        {"join", "d,attribute", 0, f_join},
        {"last", "", 0, f_last},
        {"list", "", 0, f_list},
        {"map", NULL, 0, f_map},
        {"max", "case_sensitive,attribute", 0, f_max},
        {"min", "case_sensitive,attribute", 0, f_min},
        {"random", "", 0, f_random},
        {"reject", NULL, 0, f_reject},
        {"rejectattr", NULL, 0, f_rejectattr},
        {"reverse", "", 0, f_reverse},
        {"select", NULL, 0, f_select},
        {"selectattr", NULL, 0, f_selectattr},
        {"slice", "slices,fill_with", 1, f_slice},
        {"sort", "reverse,case_sensitive,attribute", 0, f_sort},
        {"sum", "attribute,start", 0, f_sum},
        {"unique", "case_sensitive,attribute", 0, f_unique},
    };
    return esp_tpl_find_in(rows, sizeof rows / sizeof rows[0], name, n);
}
