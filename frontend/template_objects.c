/* Methods of everything but strings, the global functions, and the table look-ups that all built-ins share.
 *
 * Knows which methods the sandbox forbids. Time comes in with the run; randomness is a counter, so that a
 * rendering is a function of its inputs. Thread: the rendering's owner.
 */
#include <string.h>
#include <time.h>

#include "frontend/template_internal.h"
#include "runtime/base/rng.h"
#include "runtime/base/utf8.h"

#define ROWS(rows) rows, sizeof rows / sizeof rows[0]

/* ---- Shared ------------------------------------------------------------------------------------ */

const struct tpl_builtin *esp_tpl_find_in(const struct tpl_builtin *rows, size_t n_rows, const char *name, size_t n)
{
    for (size_t idx = 0; idx < n_rows; idx++) {
        if (strlen(rows[idx].name) == n && memcmp(rows[idx].name, name, n) == 0) {
            return &rows[idx];
        }
    }
    return NULL;
}

bool esp_tpl_arg_int(struct tpl_run *run, const struct tpl_value *arg, int64_t fallback, int64_t *ret)
{
    if (arg->kind == TPL_UNSET || arg->kind == TPL_NONE) {
        *ret = fallback;
        return true;
    }
    if (arg->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, arg);
    }
    return esp_tpl_as_int(arg, ret) ||
           esp_tpl_fail(run, ESP_EINVAL, "'%s' object cannot be interpreted as an integer", esp_tpl_type(arg));
}

/* Leaves *ret alone when the argument is absent or None. */
bool esp_tpl_arg_str(struct tpl_run *run, const struct tpl_value *arg, const char *what, const struct tpl_str **ret)
{
    if (arg->kind == TPL_UNSET || arg->kind == TPL_NONE) {
        return true;
    }
    if (arg->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, arg);
    }
    if (arg->kind != TPL_STR) {
        return esp_tpl_fail(run, ESP_EINVAL, "%s must be str, not %s", what, esp_tpl_type(arg));
    }
    *ret = arg->str;
    return true;
}

/* ---- Dicts and lists --------------------------------------------------------------------------- */

static bool dict_get(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    bool found;
    *ret = call->arg[1].kind == TPL_UNSET ? esp_tpl_none() : call->arg[1];
    return esp_tpl_dict_find(run, call->self.dict, &call->arg[0], ret, &found);
}

/* what: 0 keys, 1 values, 2 both as tuples */
static bool dict_view(struct tpl_run *run, const struct tpl_dict *dict, int what, struct tpl_value *ret)
{
    struct tpl_value view;
    if (!esp_tpl_charge(run, dict->n * 16) || !esp_tpl_list(run, TPL_VIEW, dict->n, &view)) {
        return false;
    }
    for (size_t idx = 0; idx < dict->n; idx++) {
        struct tpl_value *item = &view.list->items[idx];
        *item = what == 0 ? dict->pairs[idx].key : dict->pairs[idx].value;
        if (what == 2) {
            if (!esp_tpl_list(run, TPL_TUPLE, 2, item)) {
                return false;
            }
            item->list->items[0] = dict->pairs[idx].key;
            item->list->items[1] = dict->pairs[idx].value;
        }
    }
    *ret = view;
    return true;
}

static bool dict_keys(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return dict_view(run, call->self.dict, 0, ret);
}

static bool dict_values(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return dict_view(run, call->self.dict, 1, ret);
}

static bool dict_items(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return dict_view(run, call->self.dict, 2, ret);
}

/* Nothing ever changes a list or dict, so a copy is the same. */
static bool copy(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    *ret = call->self;
    return true;
}

static bool list_count(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t n = 0;
    for (size_t idx = 0; idx < call->self.list->n; idx++) {
        bool equal;
        if (!esp_tpl_equal(run, &call->self.list->items[idx], &call->arg[0], &equal)) {
            return false;
        }
        n += equal;
    }
    *ret = esp_tpl_int(n);
    return true;
}

static bool list_index(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    for (size_t idx = 0; idx < call->self.list->n; idx++) {
        bool equal;
        if (!esp_tpl_equal(run, &call->self.list->items[idx], &call->arg[0], &equal)) {
            return false;
        }
        if (equal) {
            *ret = esp_tpl_int((int64_t)idx);
            return true;
        }
    }
    return esp_tpl_fail(run, ESP_EINVAL, "the value is not in the list");
}

/* ---- Loops and cyclers ------------------------------------------------------------------------- */

static bool loop_cycle(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    if (call->args->n == 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "no items for cycling given");
    }
    *ret = call->args->list[call->self.loop->idx % call->args->n];
    return true;
}

static bool loop_changed(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value now;
    bool same = false;
    struct tpl_loop *loop = call->self.loop;
    if (!esp_tpl_list(run, TPL_TUPLE, call->args->n, &now)) {
        return false;
    }
    for (size_t idx = 0; idx < call->args->n; idx++) {
        now.list->items[idx] = call->args->list[idx];
    }
    if (loop->changed.kind != TPL_UNSET && !esp_tpl_equal(run, &loop->changed, &now, &same)) {
        return false;
    }
    loop->changed = now;
    *ret = esp_tpl_bool(!same);
    return true;
}

static bool cycler_next(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_cycler *cycler = call->self.cycler;
    *ret = cycler->items->items[cycler->idx];
    cycler->idx = (cycler->idx + 1) % cycler->items->n;
    return true;
}

static bool cycler_reset(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    call->self.cycler->idx = 0;
    *ret = esp_tpl_none();
    return true;
}

const struct tpl_builtin *esp_tpl_find_method(enum tpl_kind kind, const char *name, size_t n)
{
    static const struct tpl_builtin dict_rows[] = {{"get", "key,default", 1, dict_get},
                                                   {"keys", "", 0, dict_keys},
                                                   {"values", "", 0, dict_values},
                                                   {"items", "", 0, dict_items},
                                                   {"copy", "", 0, copy}};
    static const struct tpl_builtin list_rows[] = {
        {"count", "value", 1, list_count}, {"index", "value", 1, list_index}, {"copy", "", 0, copy}};
    static const struct tpl_builtin loop_rows[] = {{"cycle", NULL, 0, loop_cycle}, {"changed", NULL, 0, loop_changed}};
    static const struct tpl_builtin cycler_rows[] = {{"next", "", 0, cycler_next}, {"reset", "", 0, cycler_reset}};
    switch (kind) {
    case TPL_STR: return esp_tpl_find_str_method(name, n);
    case TPL_DICT: return esp_tpl_find_in(ROWS(dict_rows), name, n);
    case TPL_LIST: return esp_tpl_find_in(ROWS(list_rows), name, n);
    case TPL_TUPLE: return esp_tpl_find_in(list_rows, 2, name, n);
    case TPL_LOOP: return esp_tpl_find_in(ROWS(loop_rows), name, n);
    case TPL_CYCLER: return esp_tpl_find_in(ROWS(cycler_rows), name, n);
    default: return NULL;
    }
}

bool esp_tpl_is_unsafe(enum tpl_kind kind, const struct tpl_str *name)
{
    static const char *const list_names[] = {"append", "clear",   "extend", "insert", "pop",
                                             "remove", "reverse", "sort",   NULL};
    static const char *const dict_names[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    const char *const *at = kind == TPL_LIST ? list_names : kind == TPL_DICT ? dict_names : NULL;
    for (; at != NULL && *at != NULL; at++) {
        if (esp_tpl_str_is(name, *at)) {
            return true;
        }
    }
    return false;
}

/* ---- Global functions -------------------------------------------------------------------------- */

/* Numbers from start on, before stop; false where the difference does not fit. */
static bool range_count(int64_t start, int64_t stop, int64_t step, int64_t *ret_n)
{
    int64_t span;
    if (step == 0 || __builtin_sub_overflow(stop, start, &span) || step == INT64_MIN || span == INT64_MIN) {
        return false;
    }
    span = step > 0 ? span : -span;
    *ret_n = span > 0 ? (span - 1) / (step > 0 ? step : -step) + 1 : 0;
    return true;
}

static bool fn_range(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t a, b, step;
    struct tpl_value list;
    bool one = call->arg[1].kind == TPL_UNSET;
    if (!esp_tpl_arg_int(run, &call->arg[0], 0, &a) || !esp_tpl_arg_int(run, &call->arg[1], 0, &b) ||
        !esp_tpl_arg_int(run, &call->arg[2], 1, &step)) {
        return false;
    }
    int64_t start = one ? 0 : a, stop = one ? a : b, n;
    if (!range_count(start, stop, step, &n)) {
        return esp_tpl_fail(run, ESP_EINVAL, "range() cannot take these arguments");
    }
    if (n > TPL_RANGE_MAX) {
        return esp_tpl_fail(run, ESP_ELIMIT, "a range is larger than %d", TPL_RANGE_MAX);
    }
    if (!esp_tpl_charge(run, (size_t)n * 16) || !esp_tpl_list(run, TPL_RANGE, (size_t)n, &list)) {
        return false;
    }
    for (int64_t idx = 0; idx < n; idx++) {
        list.list->items[idx] = esp_tpl_int(start + idx * step);
    }
    *ret = list;
    return true;
}

static bool fill_dict(struct tpl_run *run, const struct tpl_call *call, enum tpl_kind kind, struct tpl_value *ret)
{
    const struct tpl_args *args = call->args;
    struct tpl_value dict;
    if (!esp_tpl_dict(run, kind, &dict)) {
        return false;
    }
    if (args->n > 1 || (args->n == 1 && args->list[0].kind != TPL_DICT)) {
        return esp_tpl_fail(run, ESP_EINVAL, "expected one mapping and keywords");
    }
    for (size_t idx = 0; args->n == 1 && idx < args->list[0].dict->n; idx++) {
        const struct tpl_pair *pair = &args->list[0].dict->pairs[idx];
        if (!esp_tpl_dict_put(run, dict.dict, &pair->key, &pair->value)) {
            return false;
        }
    }
    for (size_t idx = 0; idx < args->n_kw; idx++) {
        struct tpl_value key = {.kind = TPL_STR, .str = args->kw[idx].name};
        if (!esp_tpl_dict_put(run, dict.dict, &key, &args->kw[idx].value)) {
            return false;
        }
    }
    *ret = dict;
    return true;
}

static bool fn_dict(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return fill_dict(run, call, TPL_DICT, ret);
}

static bool fn_namespace(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return fill_dict(run, call, TPL_NAMESPACE, ret);
}

/* The template's own words to the caller: the message alone, marked by its keyword. */
static bool fn_raise(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    if (!esp_tpl_str(run, &call->arg[0], &text)) {
        return false;
    }
    size_t n = text.str->n < sizeof run->err->message ? text.str->n : sizeof run->err->message - 1;
    n = esp_utf8_complete(text.str->data, n);
    esp_fail(run->err, ESP_EINVAL, "%.*s", (int)n, text.str->data);
    esp_err_keyword(run->err, "raise_exception");
    run->err->offset = run->line;
    return false;
}

static bool fn_strftime(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_str *format = NULL;
    char pattern[256], text[1024];
    if (!esp_tpl_arg_str(run, &call->arg[0], "the format", &format)) {
        return false;
    }
    if (format == NULL || format->n >= sizeof pattern) {
        return esp_tpl_fail(run, ESP_EINVAL, "strftime_now needs a format of less than %zu bytes", sizeof pattern);
    }
    memcpy(pattern, format->data, format->n);
    pattern[format->n] = '\0';
    time_t now = (time_t)run->now_s;
    struct tm tm;
    size_t n = localtime_r(&now, &tm) != NULL ? strftime(text, sizeof text, pattern, &tm) : 0;
    char *copied = esp_arena_strndup(&run->arena, text, n);
    return copied != NULL ? esp_tpl_str_new(run, copied, esp_utf8_valid(copied, n), esp_tpl_str_user(format), ret)
                          : esp_tpl_fail(run, ESP_ENOMEM, "out of memory");
}

static bool make_cycler(struct tpl_run *run, const struct tpl_value *items, size_t n, enum tpl_kind kind,
                        struct tpl_value *ret)
{
    struct tpl_value list;
    struct tpl_cycler *cycler = esp_tpl_alloc(run, 1, sizeof *cycler);
    if (cycler == NULL || !esp_tpl_list(run, TPL_LIST, n, &list)) {
        return false;
    }
    memcpy(list.list->items, items, n * sizeof *items);
    cycler->items = list.list;
    *ret = (struct tpl_value){.kind = kind, .cycler = cycler};
    return true;
}

static bool fn_cycler(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return call->args->n > 0 ? make_cycler(run, call->args->list, call->args->n, TPL_CYCLER, ret)
                             : esp_tpl_fail(run, ESP_EINVAL, "at least one item has to be provided");
}

static bool fn_joiner(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    static const struct tpl_str comma = {.data = ", ", .n = 2};
    struct tpl_value separator = call->arg[0];
    if (separator.kind == TPL_UNSET) {
        separator = (struct tpl_value){.kind = TPL_STR, .str = &comma};
    }
    return make_cycler(run, &separator, 1, TPL_JOINER, ret);
}

static bool fn_lipsum(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_fail(run, ESP_EUNSUPPORTED, "lipsum is not supported in chat templates");
}

const struct tpl_builtin *esp_tpl_find_function(const char *name, size_t n)
{
    static const struct tpl_builtin rows[] = {
        {"range", "start,stop,step", 1, fn_range},
        {"dict", NULL, 0, fn_dict},
        {"namespace", NULL, 0, fn_namespace},
        {"raise_exception", "message", 1, fn_raise},
        {"strftime_now", "format", 1, fn_strftime},
        {"cycler", NULL, 0, fn_cycler},
        {"joiner", "sep", 0, fn_joiner},
        {"lipsum", NULL, 0, fn_lipsum},
    };
    return esp_tpl_find_in(ROWS(rows), name, n);
}
