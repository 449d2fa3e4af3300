/* Methods of strings, lists, dicts, loops and cyclers: the ones of Python that the sandbox allows.
 *
 * Strings are immutable and so are lists and dicts here: methods that would change their object are known only
 * as unsafe. Positions are code points. Thread: the rendering's owner.
 */
#include <string.h>

#include "frontend/template_internal.h"

#define ROWS(rows) rows, sizeof rows / sizeof rows[0]

/* ---- Splitting and joining --------------------------------------------------------------------- */

struct pieces {
    struct tpl_value *items;
    size_t n, room;
};

static bool add_piece(struct tpl_run *run, struct pieces *pieces, const struct tpl_str *str, size_t from, size_t to)
{
    if (pieces->n == pieces->room) {
        size_t room = pieces->room < 4 ? 4 : pieces->room * 2;
        struct tpl_value *items = esp_tpl_alloc(run, room, sizeof *items);
        if (items == NULL) {
            return false;
        }
        if (pieces->n > 0) {
            memcpy(items, pieces->items, pieces->n * sizeof *items);
        }
        pieces->items = items;
        pieces->room = room;
    }
    return esp_tpl_charge(run, 32) && esp_tpl_str_part(run, str, from, to, &pieces->items[pieces->n++]);
}

static bool pieces_list(struct tpl_run *run, const struct pieces *pieces, bool reversed, struct tpl_value *ret)
{
    struct tpl_value list;
    if (!esp_tpl_list(run, TPL_LIST, pieces->n, &list)) {
        return false;
    }
    for (size_t idx = 0; idx < pieces->n; idx++) {
        list.list->items[idx] = pieces->items[reversed ? pieces->n - 1 - idx : idx];
    }
    *ret = list;
    return true;
}

/* At white space, in runs; n_max < 0 = no limit. What is left after the last split keeps its inner space. */
static bool split_space(struct tpl_run *run, const struct tpl_str *str, int64_t n_max, struct tpl_value *ret)
{
    struct pieces pieces = {0};
    size_t at = 0;
    while (at < str->n) {
        size_t next = at;
        if (esp_tpl_is_space(esp_tpl_str_next(str, &next))) {
            at = next;
            continue;
        }
        size_t from = at, to = str->n;
        if (n_max-- == 0) {
            struct tpl_value rest;
            if (!esp_tpl_str_part(run, str, from, to, &rest) ||
                !esp_tpl_str_strip(run, rest.str, NULL, TPL_STRIP_RIGHT, &rest) ||
                !add_piece(run, &pieces, rest.str, 0, rest.str->n)) {
                return false;
            }
            break;
        }
        while (at < str->n) {
            next = at;
            if (esp_tpl_is_space(esp_tpl_str_next(str, &next))) {
                to = at;
                break;
            }
            at = next;
        }
        if (!add_piece(run, &pieces, str, from, to)) {
            return false;
        }
    }
    return esp_tpl_charge(run, str->n) && pieces_list(run, &pieces, false, ret);
}

static size_t find_last(const struct tpl_str *str, const struct tpl_str *needle, size_t end)
{
    for (size_t at = end >= needle->n ? end - needle->n + 1 : 0; at > 0; at--) {
        if (memcmp(str->data + at - 1, needle->data, needle->n) == 0) {
            return at - 1;
        }
    }
    return SIZE_MAX;
}

static bool split_at(struct tpl_run *run, const struct tpl_str *str, const struct tpl_str *separator, int64_t n_max,
                     bool from_right, struct tpl_value *ret)
{
    struct pieces pieces = {0};
    size_t from = 0, to = str->n;
    if (separator->n == 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "empty separator");
    }
    if (!esp_tpl_charge(run, str->n)) {
        return false;
    }
    while (n_max-- != 0) {
        size_t found = from_right ? find_last(str, separator, to) : esp_tpl_str_find(str, separator, from);
        if (found == SIZE_MAX) {
            break;
        }
        if (!add_piece(run, &pieces, str, from_right ? found + separator->n : from, from_right ? to : found)) {
            return false;
        }
        from = from_right ? 0 : found + separator->n;
        to = from_right ? found : str->n;
    }
    return add_piece(run, &pieces, str, from, to) && pieces_list(run, &pieces, from_right, ret);
}

static bool split_any(struct tpl_run *run, const struct tpl_call *call, bool from_right, struct tpl_value *ret)
{
    int64_t n_max;
    const struct tpl_str *separator = NULL;
    if (!esp_tpl_arg_int(run, &call->arg[1], -1, &n_max) ||
        !esp_tpl_arg_str(run, &call->arg[0], "the separator", &separator)) {
        return false;
    }
    if (separator != NULL) {
        return split_at(run, call->self.str, separator, n_max, from_right, ret);
    }
    if (from_right && n_max >= 0) {
        return esp_tpl_fail(run, ESP_EUNSUPPORTED, "rsplit at white space with a limit is not supported");
    }
    return split_space(run, call->self.str, n_max, ret);
}

static bool str_split(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return split_any(run, call, false, ret);
}

static bool str_rsplit(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return split_any(run, call, true, ret);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

bool esp_tpl_str_lines(struct tpl_run *run, const struct tpl_str *str, bool keep_ends, struct tpl_value *ret)
{
    struct pieces pieces = {0};
    size_t from = 0;
    for (size_t at = 0; at < str->n;) {
        size_t end = at;
        uint32_t cp = esp_tpl_str_next(str, &at);
        if (!is_line_end(cp)) {
            continue;
        }
        at += cp == '\r' && at < str->n && str->data[at] == '\n';
        if (!add_piece(run, &pieces, str, from, keep_ends ? at : end)) {
            return false;
        }
        from = at;
    }
    return esp_tpl_charge(run, str->n) && (from == str->n || add_piece(run, &pieces, str, from, str->n)) &&
           pieces_list(run, &pieces, false, ret);
}

static bool str_splitlines(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_str_lines(run, call->self.str, esp_tpl_truth(&call->arg[0]), ret);
}

static bool str_join(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_list *items;
    struct tpl_out out = {0};
    if (!esp_tpl_items(run, &call->arg[0], &items)) {
        return false;
    }
    for (size_t idx = 0; idx < items->n; idx++) {
        if (items->items[idx].kind != TPL_STR) {
            return esp_tpl_fail(run, ESP_EINVAL, "sequence item %zu: expected str instance, %s found", idx,
                                esp_tpl_type(&items->items[idx]));
        }
        if ((idx > 0 && !esp_tpl_out_str(run, &out, call->self.str)) ||
            !esp_tpl_out_str(run, &out, items->items[idx].str)) {
            return false;
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

static bool partition(struct tpl_run *run, const struct tpl_call *call, bool from_right, struct tpl_value *ret)
{
    const struct tpl_str *str = call->self.str, *separator = NULL;
    struct tpl_value tuple;
    if (!esp_tpl_arg_str(run, &call->arg[0], "the separator", &separator)) {
        return false;
    }
    if (separator == NULL || separator->n == 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "empty separator");
    }
    size_t found = from_right ? find_last(str, separator, str->n) : esp_tpl_str_find(str, separator, 0);
    size_t from = found != SIZE_MAX ? found
                  : from_right      ? 0
                                    : str->n,
           to = found != SIZE_MAX ? found + separator->n : from;
    if (!esp_tpl_charge(run, str->n) || !esp_tpl_list(run, TPL_TUPLE, 3, &tuple)) {
        return false;
    }
    *ret = tuple;
    return esp_tpl_str_part(run, str, 0, from, &tuple.list->items[0]) &&
           esp_tpl_str_part(run, str, from, to, &tuple.list->items[1]) &&
           esp_tpl_str_part(run, str, to, str->n, &tuple.list->items[2]);
}

static bool str_partition(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return partition(run, call, false, ret);
}

static bool str_rpartition(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return partition(run, call, true, ret);
}

/* ---- Stripping, cases, padding ----------------------------------------------------------------- */

static bool strip(struct tpl_run *run, const struct tpl_call *call, int sides, struct tpl_value *ret)
{
    const struct tpl_str *chars = NULL;
    return esp_tpl_arg_str(run, &call->arg[0], "the characters to strip", &chars) &&
           esp_tpl_str_strip(run, call->self.str, chars, sides, ret);
}

static bool str_strip(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return strip(run, call, TPL_STRIP_BOTH, ret);
}

static bool str_lstrip(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return strip(run, call, TPL_STRIP_LEFT, ret);
}

static bool str_rstrip(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return strip(run, call, TPL_STRIP_RIGHT, ret);
}

static bool str_upper(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_str_case(run, call->self.str, TPL_CASE_UPPER, ret);
}

static bool str_lower(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_str_case(run, call->self.str, TPL_CASE_LOWER, ret);
}

static bool str_title(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_str_case(run, call->self.str, TPL_CASE_TITLE, ret);
}

static bool str_capitalize(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_str_case(run, call->self.str, TPL_CASE_CAPITAL, ret);
}

static bool str_swapcase(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_str_case(run, call->self.str, TPL_CASE_SWAP, ret);
}

static bool pad(struct tpl_run *run, const struct tpl_call *call, int side, struct tpl_value *ret)
{
    int64_t width;
    return esp_tpl_arg_int(run, &call->arg[0], 0, &width) && esp_tpl_str_pad(run, call->self.str, width, side, ret);
}

static bool str_center(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return pad(run, call, 0, ret);
}

static bool str_ljust(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return pad(run, call, -1, ret);
}

static bool str_rjust(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return pad(run, call, 1, ret);
}

static bool str_zfill(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_str *str = call->self.str;
    struct tpl_out out = {0};
    int64_t width;
    if (!esp_tpl_arg_int(run, &call->arg[0], 0, &width)) {
        return false;
    }
    size_t is_signed = str->n > 0 && (str->data[0] == '-' || str->data[0] == '+'), n = esp_tpl_str_count(str);
    bool ok = esp_tpl_out_part(run, &out, str, 0, is_signed);
    for (; ok && width > 0 && n < (uint64_t)width; n++) {
        ok = esp_tpl_charge(run, 64) && esp_tpl_out_text(run, &out, "0", false);
    }
    return ok && esp_tpl_out_part(run, &out, str, is_signed, str->n) && esp_tpl_out_value(run, &out, ret);
}

/* ---- Looking for and replacing ----------------------------------------------------------------- */

static bool affix_matches(const struct tpl_str *str, const struct tpl_str *affix, bool at_end)
{
    return affix->n <= str->n && memcmp(str->data + (at_end ? str->n - affix->n : 0), affix->data, affix->n) == 0;
}

static bool has_affix(struct tpl_run *run, const struct tpl_call *call, bool at_end, struct tpl_value *ret)
{
    const struct tpl_value *affix = &call->arg[0];
    if (affix->kind == TPL_STR) {
        *ret = esp_tpl_bool(affix_matches(call->self.str, affix->str, at_end));
        return true;
    }
    if (affix->kind != TPL_TUPLE) {
        return affix->kind == TPL_UNDEF
                   ? esp_tpl_undefined(run, affix)
                   : esp_tpl_fail(run, ESP_EINVAL, "the first argument must be a str or a tuple of str, not %s",
                                  esp_tpl_type(affix));
    }
    bool any = false;
    for (size_t idx = 0; idx < affix->list->n; idx++) {
        const struct tpl_value *item = &affix->list->items[idx];
        any = any || (item->kind == TPL_STR && affix_matches(call->self.str, item->str, at_end));
    }
    *ret = esp_tpl_bool(any);
    return true;
}

static bool str_startswith(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return has_affix(run, call, false, ret);
}

static bool str_endswith(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return has_affix(run, call, true, ret);
}

static bool str_removeprefix(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_str *str = call->self.str, *affix = NULL;
    if (!esp_tpl_arg_str(run, &call->arg[0], "the prefix", &affix)) {
        return false;
    }
    size_t n = affix != NULL && affix_matches(str, affix, false) ? affix->n : 0;
    return esp_tpl_str_part(run, str, n, str->n, ret);
}

static bool str_removesuffix(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_str *str = call->self.str, *affix = NULL;
    if (!esp_tpl_arg_str(run, &call->arg[0], "the suffix", &affix)) {
        return false;
    }
    size_t n = affix != NULL && affix_matches(str, affix, true) ? affix->n : 0;
    return esp_tpl_str_part(run, str, 0, str->n - n, ret);
}

static bool str_replace(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_str *from = NULL, *to = NULL;
    int64_t n_max;
    if (!esp_tpl_arg_str(run, &call->arg[0], "the text to replace", &from) ||
        !esp_tpl_arg_str(run, &call->arg[1], "the replacement", &to) ||
        !esp_tpl_arg_int(run, &call->arg[2], -1, &n_max)) {
        return false;
    }
    return from != NULL && to != NULL ? esp_tpl_str_replace(run, call->self.str, from, to, n_max, ret)
                                      : esp_tpl_fail(run, ESP_EINVAL, "replace needs two strings");
}

static bool find(struct tpl_run *run, const struct tpl_call *call, bool last, bool must, struct tpl_value *ret)
{
    const struct tpl_str *str = call->self.str, *needle = NULL;
    if (!esp_tpl_arg_str(run, &call->arg[0], "the text to find", &needle)) {
        return false;
    }
    if (needle == NULL) {
        return esp_tpl_fail(run, ESP_EINVAL, "find needs a string");
    }
    size_t found = last ? find_last(str, needle, str->n) : esp_tpl_str_find(str, needle, 0);
    if (found == SIZE_MAX && must) {
        return esp_tpl_fail(run, ESP_EINVAL, "substring not found");
    }
    struct tpl_str before = {.data = str->data, .n = found == SIZE_MAX ? 0 : found};
    *ret = esp_tpl_int(found == SIZE_MAX ? -1 : (int64_t)esp_tpl_str_count(&before));
    return esp_tpl_charge(run, str->n);
}

static bool str_find(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return find(run, call, false, false, ret);
}

static bool str_rfind(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return find(run, call, true, false, ret);
}

static bool str_index(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return find(run, call, false, true, ret);
}

static bool str_rindex(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return find(run, call, true, true, ret);
}

static bool str_count(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    const struct tpl_str *str = call->self.str, *needle = NULL;
    int64_t n = 0;
    if (!esp_tpl_arg_str(run, &call->arg[0], "the text to count", &needle)) {
        return false;
    }
    if (needle == NULL || needle->n == 0) {
        *ret = esp_tpl_int((int64_t)esp_tpl_str_count(str) + 1);
        return true;
    }
    for (size_t at = 0; (at = esp_tpl_str_find(str, needle, at)) != SIZE_MAX; at += needle->n) {
        n++;
    }
    *ret = esp_tpl_int(n);
    return esp_tpl_charge(run, str->n);
}

static bool str_format(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_format_braces(run, call->self.str, call->args, ret);
}

/* ---- Classes of characters --------------------------------------------------------------------- */

static bool is_digit(uint32_t cp)
{
    return cp >= '0' && cp <= '9';
}

static bool is_alnum(uint32_t cp)
{
    return is_digit(cp) || esp_tpl_is_letter(cp);
}

static bool all_are(const struct tpl_call *call, bool (*is)(uint32_t cp), struct tpl_value *ret)
{
    const struct tpl_str *str = call->self.str;
    bool all = str->n > 0;
    for (size_t at = 0; all && at < str->n;) {
        all = is(esp_tpl_str_next(str, &at));
    }
    *ret = esp_tpl_bool(all);
    return true;
}

static bool str_isalpha(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return all_are(call, esp_tpl_is_letter, ret);
}

static bool str_isdigit(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return all_are(call, is_digit, ret);
}

static bool str_isalnum(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return all_are(call, is_alnum, ret);
}

static bool str_isspace(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return all_are(call, esp_tpl_is_space, ret);
}

/* Cased letters exist and all of them have this case. */
static bool all_cased(const struct tpl_str *str, uint32_t (*to_other)(uint32_t cp), uint32_t (*to_this)(uint32_t cp))
{
    bool any = false;
    for (size_t at = 0; at < str->n;) {
        uint32_t cp = esp_tpl_str_next(str, &at);
        if (to_this(cp) != cp) {
            return false;
        }
        any = any || to_other(cp) != cp;
    }
    return any;
}

static bool str_isupper(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    *ret = esp_tpl_bool(all_cased(call->self.str, esp_tpl_lower, esp_tpl_upper));
    return true;
}

static bool str_islower(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    *ret = esp_tpl_bool(all_cased(call->self.str, esp_tpl_upper, esp_tpl_lower));
    return true;
}

const struct tpl_builtin *esp_tpl_find_str_method(const char *name, size_t n)
{
    static const struct tpl_builtin rows[] = {
        {"capitalize", "", 0, str_capitalize},
        {"center", "width", 1, str_center},
        {"count", "sub", 1, str_count},
        {"endswith", "suffix", 1, str_endswith},
        {"find", "sub", 1, str_find},
        {"format", NULL, 0, str_format},
        {"index", "sub", 1, str_index},
        {"isalnum", "", 0, str_isalnum},
        {"isalpha", "", 0, str_isalpha},
        {"isdigit", "", 0, str_isdigit},
        {"islower", "", 0, str_islower},
        {"isspace", "", 0, str_isspace},
        {"isupper", "", 0, str_isupper},
        {"join", "iterable", 1, str_join},
        {"ljust", "width", 1, str_ljust},
        {"lower", "", 0, str_lower},
        {"lstrip", "chars", 0, str_lstrip},
        {"partition", "sep", 1, str_partition},
        {"removeprefix", "prefix", 1, str_removeprefix},
        {"removesuffix", "suffix", 1, str_removesuffix},
        {"replace", "old,new,count", 2, str_replace},
        {"rfind", "sub", 1, str_rfind},
        {"rindex", "sub", 1, str_rindex},
        {"rjust", "width", 1, str_rjust},
        {"rpartition", "sep", 1, str_rpartition},
        {"rsplit", "sep,maxsplit", 0, str_rsplit},
        {"rstrip", "chars", 0, str_rstrip},
        {"split", "sep,maxsplit", 0, str_split},
        {"splitlines", "keepends", 0, str_splitlines},
        {"startswith", "prefix", 1, str_startswith},
        {"strip", "chars", 0, str_strip},
        {"swapcase", "", 0, str_swapcase},
        {"title", "", 0, str_title},
        {"upper", "", 0, str_upper},
        {"zfill", "width", 1, str_zfill},
    };
    return esp_tpl_find_in(ROWS(rows), name, n);
}
