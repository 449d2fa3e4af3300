/* Values of the renderer with Python's ideas of truth, equality, order and containment.
 *
 * Numbers compare across bool, int and float; lists and tuples never equal each other; a dict keeps the order
 * of insertion and finds its keys by equality. Recursion into values stops at TPL_VALUE_DEPTH_MAX.
 * Printing is in template_repr.c. Thread: the rendering's owner.
 */
#include <string.h>

#include "frontend/template_internal.h"

const char *esp_tpl_type(const struct tpl_value *value)
{
    static const char *const names[] = {
        [TPL_UNSET] = "nothing",
        [TPL_UNDEF] = "Undefined",
        [TPL_NONE] = "NoneType",
        [TPL_BOOL] = "bool",
        [TPL_INT] = "int",
        [TPL_FLOAT] = "float",
        [TPL_STR] = "str",
        [TPL_LIST] = "list",
        [TPL_TUPLE] = "tuple",
        [TPL_RANGE] = "range",
        [TPL_GENERATOR] = "generator",
        [TPL_VIEW] = "dict view",
        [TPL_DICT] = "dict",
        [TPL_NAMESPACE] = "Namespace",
        [TPL_MACRO] = "Macro",
        [TPL_FUNCTION] = "function",
        [TPL_METHOD] = "method",
        [TPL_LOOP] = "LoopContext",
        [TPL_CYCLER] = "Cycler",
        [TPL_JOINER] = "Joiner",
    };
    return names[value->kind];
}

bool esp_tpl_truth(const struct tpl_value *value)
{
    switch (value->kind) {
    case TPL_UNSET:
    case TPL_UNDEF:
    case TPL_NONE: return false;
    case TPL_BOOL: return value->truth;
    case TPL_INT: return value->integer != 0;
    case TPL_FLOAT: return value->real != 0;
    case TPL_STR: return value->str->n > 0;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_VIEW: return value->list->n > 0;
    case TPL_DICT: return value->dict->n > 0;
    default: return true;
    }
}

bool esp_tpl_is_number(const struct tpl_value *value)
{
    return value->kind == TPL_BOOL || value->kind == TPL_INT || value->kind == TPL_FLOAT;
}

double esp_tpl_number(const struct tpl_value *value)
{
    return value->kind == TPL_FLOAT  ? value->real
           : value->kind == TPL_BOOL ? (double)value->truth
                                     : (double)value->integer;
}

bool esp_tpl_as_int(const struct tpl_value *value, int64_t *ret)
{
    if (value->kind != TPL_INT && value->kind != TPL_BOOL) {
        return false;
    }
    *ret = value->kind == TPL_BOOL ? value->truth : value->integer;
    return true;
}

/* ---- Equality and order ------------------------------------------------------------------------ */

static int compare_numbers(const struct tpl_value *a, const struct tpl_value *b)
{
    int64_t x, y;
    if (esp_tpl_as_int(a, &x) && esp_tpl_as_int(b, &y)) {
        return (x > y) - (x < y);
    }
    double p = esp_tpl_number(a), q = esp_tpl_number(b);
    return p == q ? 0 : p < q ? -1 : 1;
}

static int compare_strings(const struct tpl_str *a, const struct tpl_str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int order = n > 0 ? memcmp(a->data, b->data, n) : 0; /* the order of UTF-8 bytes is that of code points */
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static bool equal_at(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, unsigned depth,
                     bool *ret);

static bool equal_dicts(struct tpl_run *run, const struct tpl_dict *a, const struct tpl_dict *b, unsigned depth,
                        bool *ret)
{
    *ret = a->n == b->n;
    for (size_t idx = 0; *ret && idx < a->n; idx++) {
        struct tpl_value other;
        if (!esp_tpl_dict_find(run, b, &a->pairs[idx].key, &other, ret)) {
            return false;
        }
        if (*ret && !equal_at(run, &a->pairs[idx].value, &other, depth + 1, ret)) {
            return false;
        }
    }
    return true;
}

static bool equal_lists(struct tpl_run *run, const struct tpl_list *a, const struct tpl_list *b, unsigned depth,
                        bool *ret)
{
    *ret = a->n == b->n;
    for (size_t idx = 0; *ret && idx < a->n; idx++) {
        if (!equal_at(run, &a->items[idx], &b->items[idx], depth + 1, ret)) {
            return false;
        }
    }
    return true;
}

static bool equal_at(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, unsigned depth,
                     bool *ret)
{
    if (depth > TPL_VALUE_DEPTH_MAX) {
        return esp_tpl_fail(run, ESP_ELIMIT, "values are nested too deeply");
    }
    if (!esp_tpl_charge(run, 16)) {
        return false;
    }
    if (esp_tpl_is_number(a) && esp_tpl_is_number(b)) {
        bool nan = esp_tpl_number(a) != esp_tpl_number(a) || esp_tpl_number(b) != esp_tpl_number(b);
        *ret = !nan && compare_numbers(a, b) == 0;
        return true;
    }
    if (a->kind != b->kind) {
        *ret = false;
        return true;
    }
    switch (a->kind) {
    case TPL_STR: *ret = compare_strings(a->str, b->str) == 0; return esp_tpl_charge(run, a->str->n);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE: return equal_lists(run, a->list, b->list, depth, ret);
    case TPL_DICT: return equal_dicts(run, a->dict, b->dict, depth, ret);
    case TPL_UNDEF:
    case TPL_NONE: *ret = true; return true;
    default: *ret = memcmp(&a->macro, &b->macro, sizeof a->macro) == 0; return true; /* the same object */
    }
}

bool esp_tpl_equal(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, bool *ret)
{
    return equal_at(run, a, b, 0, ret);
}

static bool order_at(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, const char *op,
                     unsigned depth, int *ret);

/* The first items that differ decide. */
static bool order_lists(struct tpl_run *run, const struct tpl_list *a, const struct tpl_list *b, const char *op,
                        unsigned depth, int *ret)
{
    for (size_t idx = 0; idx < a->n && idx < b->n; idx++) {
        bool equal;
        if (!esp_tpl_equal(run, &a->items[idx], &b->items[idx], &equal)) {
            return false;
        }
        if (!equal) {
            return order_at(run, &a->items[idx], &b->items[idx], op, depth + 1, ret);
        }
    }
    *ret = (a->n > b->n) - (a->n < b->n);
    return true;
}

static bool order_at(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, const char *op,
                     unsigned depth, int *ret)
{
    if (a->kind == TPL_UNDEF || b->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, a->kind == TPL_UNDEF ? a : b);
    }
    if (esp_tpl_is_number(a) && esp_tpl_is_number(b)) {
        *ret = compare_numbers(a, b);
        return true;
    }
    if (a->kind == TPL_STR && b->kind == TPL_STR) {
        *ret = compare_strings(a->str, b->str);
        return esp_tpl_charge(run, a->str->n);
    }
    bool lists = a->kind == b->kind && (a->kind == TPL_LIST || a->kind == TPL_TUPLE);
    if (!lists || depth > TPL_VALUE_DEPTH_MAX) {
        return esp_tpl_fail(run, ESP_EINVAL, "'%s' not supported between instances of '%s' and '%s'", op,
                            esp_tpl_type(a), esp_tpl_type(b));
    }
    return order_lists(run, a->list, b->list, op, depth, ret);
}

bool esp_tpl_order(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, const char *op, int *ret)
{
    return order_at(run, a, b, op, 0, ret);
}

bool esp_tpl_contains(struct tpl_run *run, const struct tpl_value *box, const struct tpl_value *item, bool *ret)
{
    struct tpl_value found;
    switch (box->kind) {
    case TPL_STR:
        if (item->kind != TPL_STR) {
            return item->kind == TPL_UNDEF
                       ? esp_tpl_undefined(run, item)
                       : esp_tpl_fail(run, ESP_EINVAL, "'in <string>' requires string as left operand, not %s",
                                      esp_tpl_type(item));
        }
        *ret = esp_tpl_str_find(box->str, item->str, 0) != SIZE_MAX;
        return esp_tpl_charge(run, box->str->n);
    case TPL_DICT: return esp_tpl_dict_find(run, box->dict, item, &found, ret);
    case TPL_UNDEF: *ret = false; return true;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_GENERATOR:
    case TPL_VIEW: break;
    default: return esp_tpl_fail(run, ESP_EINVAL, "argument of type '%s' is not iterable", esp_tpl_type(box));
    }
    *ret = false;
    for (size_t idx = 0; !*ret && idx < box->list->n; idx++) {
        if (!esp_tpl_equal(run, &box->list->items[idx], item, ret)) {
            return false;
        }
    }
    return true;
}

/* ---- Lists and dicts --------------------------------------------------------------------------- */

bool esp_tpl_list(struct tpl_run *run, enum tpl_kind kind, size_t n, struct tpl_value *ret)
{
    struct tpl_list *list = esp_tpl_alloc(run, 1, sizeof *list);
    struct tpl_value *items = list != NULL ? esp_tpl_alloc(run, n, sizeof *items) : NULL;
    if (items == NULL) {
        return false;
    }
    *list = (struct tpl_list){.items = items, .n = n};
    *ret = (struct tpl_value){.kind = kind, .list = list};
    return true;
}

static bool characters(struct tpl_run *run, const struct tpl_str *str, struct tpl_list **ret)
{
    struct tpl_value list;
    size_t n = esp_tpl_str_count(str), at = 0;
    if (!esp_tpl_list(run, TPL_LIST, n, &list)) {
        return false;
    }
    for (size_t idx = 0; idx < n; idx++) {
        size_t from = at;
        esp_tpl_str_next(str, &at);
        if (!esp_tpl_charge(run, 16) || !esp_tpl_str_part(run, str, from, at, &list.list->items[idx])) {
            return false;
        }
    }
    *ret = list.list;
    return true;
}

bool esp_tpl_items(struct tpl_run *run, const struct tpl_value *value, struct tpl_list **ret)
{
    struct tpl_value list;
    switch (value->kind) {
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_VIEW: *ret = value->list; return true;
    case TPL_GENERATOR:
        if (!value->list->used_up) {
            value->list->used_up = true;
            *ret = value->list;
            return true;
        }
        break; /* nothing is left */
    case TPL_UNDEF: break;
    case TPL_STR: return characters(run, value->str, ret);
    case TPL_DICT:
        if (!esp_tpl_list(run, TPL_LIST, value->dict->n, &list)) {
            return false;
        }
        for (size_t idx = 0; idx < value->dict->n; idx++) {
            list.list->items[idx] = value->dict->pairs[idx].key;
        }
        *ret = list.list;
        return true;
    default: return esp_tpl_fail(run, ESP_EINVAL, "'%s' object is not iterable", esp_tpl_type(value));
    }
    if (!esp_tpl_list(run, TPL_LIST, 0, &list)) {
        return false;
    }
    *ret = list.list;
    return true;
}

bool esp_tpl_length(struct tpl_run *run, const struct tpl_value *value, size_t *ret)
{
    switch (value->kind) {
    case TPL_STR: *ret = esp_tpl_str_count(value->str); return esp_tpl_charge(run, value->str->n);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_VIEW: *ret = value->list->n; return true;
    case TPL_DICT: *ret = value->dict->n; return true;
    case TPL_UNDEF: *ret = 0; return true;
    case TPL_LOOP: *ret = value->loop->items->n; return true;
    default: return esp_tpl_fail(run, ESP_EINVAL, "object of type '%s' has no len()", esp_tpl_type(value));
    }
}

bool esp_tpl_dict(struct tpl_run *run, enum tpl_kind kind, struct tpl_value *ret)
{
    struct tpl_dict *dict = esp_tpl_alloc(run, 1, sizeof *dict);
    if (dict == NULL) {
        return false;
    }
    *ret = (struct tpl_value){.kind = kind, .dict = dict};
    return true;
}

static bool find_pair(struct tpl_run *run, const struct tpl_dict *dict, const struct tpl_value *key, size_t *ret_idx)
{
    size_t idx = 0;
    bool hashable = key->kind != TPL_LIST && key->kind != TPL_DICT;
    if (!hashable) {
        return esp_tpl_fail(run, ESP_EINVAL, "unhashable type: '%s'", esp_tpl_type(key));
    }
    if (!esp_tpl_charge(run, dict->n * 16)) {
        return false;
    }
    for (; idx < dict->n; idx++) {
        const struct tpl_value *other = &dict->pairs[idx].key;
        bool equal = false;
        if (other->kind == TPL_STR && key->kind == TPL_STR) {
            equal = other->str->n == key->str->n && memcmp(other->str->data, key->str->data, key->str->n) == 0;
        } else if (!esp_tpl_equal(run, other, key, &equal)) {
            return false;
        }
        if (equal) {
            break;
        }
    }
    *ret_idx = idx;
    return true;
}

bool esp_tpl_dict_find(struct tpl_run *run, const struct tpl_dict *dict, const struct tpl_value *key,
                       struct tpl_value *ret, bool *ret_found)
{
    size_t idx;
    if (!find_pair(run, dict, key, &idx)) {
        return false;
    }
    *ret_found = idx < dict->n;
    if (*ret_found) {
        *ret = dict->pairs[idx].value;
    }
    return true;
}

const struct tpl_value *esp_tpl_dict_text(const struct tpl_dict *dict, const struct tpl_str *key)
{
    for (size_t idx = 0; idx < dict->n; idx++) {
        const struct tpl_value *other = &dict->pairs[idx].key;
        if (other->kind == TPL_STR && other->str->n == key->n && memcmp(other->str->data, key->data, key->n) == 0) {
            return &dict->pairs[idx].value;
        }
    }
    return NULL;
}

bool esp_tpl_dict_put(struct tpl_run *run, struct tpl_dict *dict, const struct tpl_value *key,
                      const struct tpl_value *value)
{
    size_t idx;
    if (!find_pair(run, dict, key, &idx)) {
        return false;
    }
    if (idx < dict->n) {
        dict->pairs[idx].value = *value;
        return true;
    }
    if (dict->n == dict->room) {
        size_t room = dict->room < 4 ? 4 : dict->room * 2;
        struct tpl_pair *pairs = esp_tpl_alloc(run, room, sizeof *pairs);
        if (pairs == NULL) {
            return false;
        }
        if (dict->n > 0) {
            memcpy(pairs, dict->pairs, dict->n * sizeof *pairs);
        }
        dict->pairs = pairs;
        dict->room = room;
    }
    dict->pairs[dict->n++] = (struct tpl_pair){*key, *value};
    return true;
}

bool esp_tpl_user(const struct tpl_value *value, unsigned depth)
{
    if (depth > TPL_VALUE_DEPTH_MAX) {
        return true;
    }
    switch (value->kind) {
    case TPL_STR: return esp_tpl_str_user(value->str);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_GENERATOR:
    case TPL_VIEW:
        for (size_t idx = 0; idx < value->list->n; idx++) {
            if (esp_tpl_user(&value->list->items[idx], depth + 1)) {
                return true;
            }
        }
        return false;
    case TPL_DICT:
        for (size_t idx = 0; idx < value->dict->n; idx++) {
            if (esp_tpl_user(&value->dict->pairs[idx].key, depth + 1) ||
                esp_tpl_user(&value->dict->pairs[idx].value, depth + 1)) {
                return true;
            }
        }
        return false;
    default: return false;
    }
}

/* ---- Sorting ----------------------------------------------------------------------------------- */

/* Merges two sorted neighbours of order[]; stable, also when reversed, as Python's sort is. */
static bool merge(struct tpl_run *run, const struct tpl_value *keys, size_t *order, size_t *room, size_t from,
                  size_t middle, size_t to, bool reverse)
{
    size_t left = from, right = middle, n = 0;
    while (left < middle && right < to) {
        int sign;
        if (!esp_tpl_charge(run, 16) || !esp_tpl_order(run, &keys[order[right]], &keys[order[left]], "<", &sign)) {
            return false;
        }
        bool take_right = reverse ? sign > 0 : sign < 0;
        room[n++] = take_right ? order[right++] : order[left++];
    }
    while (left < middle) {
        room[n++] = order[left++];
    }
    memcpy(order + from, room, n * sizeof *order);
    return true;
}

bool esp_tpl_sort(struct tpl_run *run, struct tpl_value *items, const struct tpl_value *keys, size_t n, bool reverse)
{
    size_t *order = esp_tpl_alloc(run, n, 2 * sizeof *order);
    struct tpl_value *sorted = esp_tpl_alloc(run, n, sizeof *sorted);
    if (order == NULL || sorted == NULL) {
        return false;
    }
    for (size_t idx = 0; idx < n; idx++) {
        order[idx] = idx;
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from + width < n; from += 2 * width) {
            size_t to = from + 2 * width < n ? from + 2 * width : n;
            if (!merge(run, keys, order, order + n, from, from + width, to, reverse)) {
                return false;
            }
        }
    }
    for (size_t idx = 0; idx < n; idx++) {
        sorted[idx] = items[order[idx]];
    }
    if (n > 0) {
        memcpy(items, sorted, n * sizeof *items);
    }
    return true;
}
