/* Attributes, items and slices, in the order in which Jinja's sandbox looks for them.
 *
 * `a.b` is a method or attribute first and an item second; `a['b']` the other way round. What is not there is an
 * undefined value that remembers why; what Python has but the sandbox forbids (methods that change their
 * object, names with two underscores) is one that fails as unsafe. Thread: the rendering's owner.
 */
#include <string.h>

#include "frontend/template_internal.h"

static bool missing(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_str *name, bool unsafe,
                    struct tpl_value *ret)
{
    struct tpl_undef *undef = esp_tpl_alloc(run, 1, sizeof *undef);
    if (undef == NULL) {
        return false;
    }
    *undef = (struct tpl_undef){.owner = esp_tpl_type(owner), .name = name, .unsafe = unsafe};
    *ret = (struct tpl_value){.kind = TPL_UNDEF, .undef = undef};
    return true;
}

static bool bind_method(struct tpl_run *run, const struct tpl_value *self, const struct tpl_builtin *function,
                        struct tpl_value *ret)
{
    struct tpl_method *method = esp_tpl_alloc(run, 1, sizeof *method);
    if (method == NULL) {
        return false;
    }
    *method = (struct tpl_method){*self, function};
    *ret = (struct tpl_value){.kind = TPL_METHOD, .method = method};
    return true;
}

static bool loop_neighbour(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_str *name, bool there,
                           size_t idx, struct tpl_value *ret)
{
    if (!there) {
        return missing(run, owner, name, false, ret);
    }
    *ret = owner->loop->items->items[idx];
    return true;
}

/* Attributes of the variable loop. *ret_found is false for a name that is none. */
static bool loop_attr(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_str *name,
                      struct tpl_value *ret, bool *ret_found)
{
    const struct tpl_loop *loop = owner->loop;
    int64_t idx = (int64_t)loop->idx, n = (int64_t)loop->items->n;
    const struct {
        const char *name;
        struct tpl_value value;
    } rows[] = {
        {"index", esp_tpl_int(idx + 1)},      {"index0", esp_tpl_int(idx)},
        {"revindex", esp_tpl_int(n - idx)},   {"revindex0", esp_tpl_int(n - idx - 1)},
        {"first", esp_tpl_bool(idx == 0)},    {"last", esp_tpl_bool(idx + 1 == n)},
        {"length", esp_tpl_int(n)},           {"depth", esp_tpl_int((int64_t)loop->level + 1)},
        {"depth0", esp_tpl_int(loop->level)},
    };
    *ret_found = true;
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        if (esp_tpl_str_is(name, rows[row].name)) {
            *ret = rows[row].value;
            return true;
        }
    }
    if (esp_tpl_str_is(name, "previtem")) {
        return loop_neighbour(run, owner, name, idx > 0, loop->idx - 1, ret);
    }
    if (esp_tpl_str_is(name, "nextitem")) {
        return loop_neighbour(run, owner, name, idx + 1 < n, loop->idx + 1, ret);
    }
    *ret_found = false;
    return true;
}

static bool macro_attr(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_str *name,
                       struct tpl_value *ret, bool *ret_found)
{
    const struct tpl_node *node = owner->macro->node;
    *ret_found = true;
    if (esp_tpl_str_is(name, "name")) {
        *ret = (struct tpl_value){.kind = TPL_STR, .str = run->tmpl->symbols[node->sym]};
        return true;
    }
    *ret_found = esp_tpl_str_is(name, "arguments");
    if (!*ret_found) {
        return true;
    }
    size_t n = 0;
    for (const struct tpl_node *param = node->a; param != NULL; param = param->next) {
        n++;
    }
    if (!esp_tpl_list(run, TPL_TUPLE, n, ret)) {
        return false;
    }
    n = 0;
    for (const struct tpl_node *param = node->a; param != NULL; param = param->next) {
        ret->list->items[n++] = (struct tpl_value){.kind = TPL_STR, .str = run->tmpl->symbols[param->sym]};
    }
    return true;
}

/* Python's getattr. */
static bool python_attr(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_str *name,
                        struct tpl_value *ret, bool *ret_found)
{
    *ret_found = true;
    if (owner->kind == TPL_NAMESPACE) {
        const struct tpl_value *value = esp_tpl_dict_text(owner->dict, name);
        *ret_found = value != NULL;
        if (value != NULL) {
            *ret = *value;
        }
        return esp_tpl_charge(run, owner->dict->n * 16);
    }
    const struct tpl_builtin *method = esp_tpl_find_method(owner->kind, name->data, name->n);
    if (method != NULL) {
        return bind_method(run, owner, method, ret);
    }
    if (owner->kind == TPL_LOOP) {
        return loop_attr(run, owner, name, ret, ret_found);
    }
    if (owner->kind == TPL_MACRO) {
        return macro_attr(run, owner, name, ret, ret_found);
    }
    bool hidden = name->n >= 2 && memcmp(name->data, "__", 2) == 0;
    if (hidden || esp_tpl_is_unsafe(owner->kind, name)) {
        return missing(run, owner, name, true, ret);
    }
    *ret_found = false;
    return true;
}

/* The character at a position, which may count from the end. */
static bool character(struct tpl_run *run, const struct tpl_str *str, int64_t idx, struct tpl_value *ret,
                      bool *ret_found)
{
    int64_t n = (int64_t)esp_tpl_str_count(str);
    idx += idx < 0 ? n : 0;
    *ret_found = idx >= 0 && idx < n;
    if (!esp_tpl_charge(run, str->n)) {
        return false;
    }
    if (!*ret_found) {
        return true;
    }
    size_t from = esp_tpl_str_offset(str, (size_t)idx), to = from;
    esp_tpl_str_next(str, &to);
    return esp_tpl_str_part(run, str, from, to, ret);
}

/* Python's obj[key]; *ret_found is false where Python raises a lookup or type error. */
static bool python_item(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_value *key,
                        struct tpl_value *ret, bool *ret_found)
{
    int64_t idx;
    *ret_found = false;
    if (owner->kind == TPL_DICT || owner->kind == TPL_NAMESPACE) {
        bool hashable = key->kind != TPL_LIST && key->kind != TPL_DICT;
        return !hashable || esp_tpl_dict_find(run, owner->dict, key, ret, ret_found);
    }
    if (!esp_tpl_as_int(key, &idx)) {
        return true;
    }
    if (owner->kind == TPL_STR) {
        return character(run, owner->str, idx, ret, ret_found);
    }
    if (owner->kind == TPL_LIST || owner->kind == TPL_TUPLE || owner->kind == TPL_RANGE) {
        int64_t n = (int64_t)owner->list->n;
        idx += idx < 0 ? n : 0;
        *ret_found = idx >= 0 && idx < n;
        if (*ret_found) {
            *ret = owner->list->items[idx];
        }
    }
    return true;
}

bool esp_tpl_attr(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_str *name, struct tpl_value *ret)
{
    bool found = false;
    struct tpl_value key = {.kind = TPL_STR, .str = name};
    if (owner->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, owner);
    }
    if (!python_attr(run, owner, name, ret, &found)) {
        return false;
    }
    if (!found && !python_item(run, owner, &key, ret, &found)) {
        return false;
    }
    return found || missing(run, owner, name, false, ret);
}

bool esp_tpl_item(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_value *key,
                  struct tpl_value *ret)
{
    bool found = false;
    if (owner->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, owner);
    }
    if (!python_item(run, owner, key, ret, &found)) {
        return false;
    }
    if (!found && key->kind == TPL_STR && !python_attr(run, owner, key->str, ret, &found)) {
        return false;
    }
    if (found) {
        return true;
    }
    struct tpl_value name;
    return esp_tpl_str(run, key, &name) && missing(run, owner, name.str, false, ret);
}

/* ---- Slices ------------------------------------------------------------------------------------ */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* One bound of a slice as Python adjusts it; low and high are the limits for the step's direction. */
static bool slice_bound(struct tpl_run *run, const struct tpl_value *bound, int64_t n, int64_t low, int64_t high,
                        int64_t fallback, int64_t *ret)
{
    int64_t value;
    if (bound->kind == TPL_UNSET || bound->kind == TPL_NONE) {
        *ret = fallback;
        return true;
    }
    if (!esp_tpl_as_int(bound, &value)) {
        return bound->kind == TPL_UNDEF ? esp_tpl_undefined(run, bound)
                                        : esp_tpl_fail(run, ESP_EINVAL, "slice indices must be integers or None");
    }
    if (value < 0) {
        value = value < -n ? low : value + n;
    }
    *ret = clamp(value, low, high);
    return true;
}

struct slice {
    int64_t start, step;
    size_t n;
};

static size_t slice_count(int64_t start, int64_t stop, int64_t step)
{
    int64_t span = step > 0 ? stop - start : start - stop, stride = step > 0 ? step : -step;
    return span > 0 ? (size_t)((span + stride - 1) / stride) : 0;
}

static bool resolve_slice(struct tpl_run *run, const struct tpl_value bounds[3], size_t length, struct slice *ret_slice)
{
    int64_t n = (int64_t)length, step = 1, start, stop;
    if (bounds[2].kind != TPL_UNSET && bounds[2].kind != TPL_NONE && !esp_tpl_as_int(&bounds[2], &step)) {
        return esp_tpl_fail(run, ESP_EINVAL, "slice indices must be integers or None");
    }
    if (step == 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "slice step cannot be zero");
    }
    step = clamp(step, -n - 1, n + 1); /* as good as any larger one */
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (!slice_bound(run, &bounds[0], n, low, high, step < 0 ? high : low, &start) ||
        !slice_bound(run, &bounds[1], n, low, high, step < 0 ? low : high, &stop)) {
        return false;
    }
    *ret_slice = (struct slice){start, step, slice_count(start, stop, step)};
    return true;
}

static bool slice_str(struct tpl_run *run, const struct tpl_str *str, const struct tpl_value bounds[3],
                      struct tpl_value *ret)
{
    struct slice slice;
    size_t n = esp_tpl_str_count(str);
    if (!esp_tpl_charge(run, str->n) || !resolve_slice(run, bounds, n, &slice)) {
        return false;
    }
    if (slice.n == 0) {
        return esp_tpl_str_part(run, str, 0, 0, ret);
    }
    if (slice.step == 1) {
        size_t from = esp_tpl_str_offset(str, (size_t)slice.start);
        size_t to = esp_tpl_str_offset(str, (size_t)slice.start + slice.n);
        return esp_tpl_str_part(run, str, from, to, ret);
    }
    struct tpl_out out = {0};
    size_t *offsets = esp_tpl_alloc(run, n + 1, sizeof *offsets);
    if (offsets == NULL) {
        return false;
    }
    for (size_t idx = 0; idx < n; idx++) {
        offsets[idx + 1] = offsets[idx];
        esp_tpl_str_next(str, &offsets[idx + 1]);
    }
    for (size_t idx = 0; idx < slice.n; idx++) {
        size_t at = (size_t)(slice.start + (int64_t)idx * slice.step);
        if (!esp_tpl_out_part(run, &out, str, offsets[at], offsets[at + 1])) {
            return false;
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

bool esp_tpl_slice(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_value bounds[3],
                   struct tpl_value *ret)
{
    struct slice slice;
    struct tpl_value list;
    if (owner->kind == TPL_STR) {
        return slice_str(run, owner->str, bounds, ret);
    }
    if (owner->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, owner);
    }
    if (owner->kind != TPL_LIST && owner->kind != TPL_TUPLE && owner->kind != TPL_RANGE) {
        struct tpl_value *end = esp_tpl_alloc(run, 1, sizeof *end);
        return end != NULL && esp_tpl_str_new(run, "slice", 5, false, end) && missing(run, owner, end->str, false, ret);
    }
    if (!resolve_slice(run, bounds, owner->list->n, &slice) || !esp_tpl_charge(run, slice.n * 16) ||
        !esp_tpl_list(run, owner->kind, slice.n, &list)) {
        return false;
    }
    for (size_t idx = 0; idx < slice.n; idx++) {
        list.list->items[idx] = owner->list->items[slice.start + (int64_t)idx * slice.step];
    }
    *ret = list;
    return true;
}
