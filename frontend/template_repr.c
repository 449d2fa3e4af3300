/* Values as text: what {{ x }} prints (Python's str) and how they look inside lists and dicts (Python's repr).
 *
 * The brackets and quotes of a printed list count as template text only if nothing inside comes from a user.
 * Thread: the rendering's owner.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/template_internal.h"

/* How repr shows a character that it does not show as it is; empty for the others. */
static void escape_of(uint32_t cp, char quote, char escape[16])
{
    escape[0] = '\0';
    if (cp == '\n' || cp == '\r' || cp == '\t') {
        snprintf(escape, 16, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
    } else if (cp == '\\' || cp == (uint32_t)quote) {
        snprintf(escape, 16, "\\%c", (char)cp);
    } else if (!esp_tpl_is_printable(cp)) {
        snprintf(escape, 16, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
}

static bool repr_string(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str)
{
    bool user = esp_tpl_str_user(str);
    bool single = memchr(str->data, '\'', str->n) != NULL, twice = memchr(str->data, '"', str->n) != NULL;
    char quote = single && !twice ? '"' : '\'';
    bool ok = esp_tpl_out_cp(run, out, (uint32_t)quote, user);
    for (size_t at = 0; ok && at < str->n;) {
        char escape[16];
        size_t from = at;
        escape_of(esp_tpl_str_next(str, &at), quote, escape);
        ok = escape[0] != '\0' ? esp_tpl_out_text(run, out, escape, user) : esp_tpl_out_part(run, out, str, from, at);
    }
    return ok && esp_tpl_out_cp(run, out, (uint32_t)quote, user);
}

static bool repr_list(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value, unsigned depth)
{
    bool user = esp_tpl_user(value, depth), tuple = value->kind == TPL_TUPLE;
    const struct tpl_list *list = value->list;
    bool ok = esp_tpl_out_text(run, out, value->kind == TPL_VIEW ? "dict_view([" : tuple ? "(" : "[", user);
    for (size_t idx = 0; ok && idx < list->n; idx++) {
        ok = (idx == 0 || esp_tpl_out_text(run, out, ", ", user)) &&
             esp_tpl_repr(run, out, &list->items[idx], depth + 1);
    }
    const char *end = value->kind == TPL_VIEW ? "])" : !tuple ? "]" : list->n == 1 ? ",)" : ")";
    return ok && esp_tpl_out_text(run, out, end, user);
}

static bool repr_dict(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value, unsigned depth)
{
    bool user = esp_tpl_user(value, depth);
    const struct tpl_dict *dict = value->dict;
    bool ok = esp_tpl_out_text(run, out, "{", user);
    for (size_t idx = 0; ok && idx < dict->n; idx++) {
        ok = (idx == 0 || esp_tpl_out_text(run, out, ", ", user)) &&
             esp_tpl_repr(run, out, &dict->pairs[idx].key, depth + 1) && esp_tpl_out_text(run, out, ": ", user) &&
             esp_tpl_repr(run, out, &dict->pairs[idx].value, depth + 1);
    }
    return ok && esp_tpl_out_text(run, out, "}", user);
}

static bool repr_object(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value)
{
    char text[64];
    snprintf(text, sizeof text, "<%s object>", esp_tpl_type(value));
    return esp_tpl_out_text(run, out, text, false);
}

static bool repr_range(struct tpl_run *run, struct tpl_out *out, const struct tpl_list *list)
{
    char text[96];
    int64_t first = list->n > 0 ? list->items[0].integer : 0, step = list->n > 1 ? list->items[1].integer - first : 1;
    int64_t end = list->n > 0 ? list->items[list->n - 1].integer + (step > 0 ? 1 : -1) : 0;
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, first, end);
    snprintf(text + n, sizeof text - (size_t)n, step == 1 ? ")" : ", %" PRId64 ")", step);
    return esp_tpl_out_text(run, out, text, false);
}

bool esp_tpl_repr(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value, unsigned depth)
{
    char text[TPL_REAL_BYTES];
    if (depth > TPL_VALUE_DEPTH_MAX) {
        return esp_tpl_fail(run, ESP_ELIMIT, "values are nested too deeply");
    }
    switch (value->kind) {
    case TPL_UNDEF: return esp_tpl_out_text(run, out, "Undefined", false);
    case TPL_NONE: return esp_tpl_out_text(run, out, "None", false);
    case TPL_BOOL: return esp_tpl_out_text(run, out, value->truth ? "True" : "False", false);
    case TPL_INT:
        snprintf(text, sizeof text, "%" PRId64, value->integer);
        return esp_tpl_out_text(run, out, text, false);
    case TPL_FLOAT: esp_tpl_real_text(value->real, text); return esp_tpl_out_text(run, out, text, false);
    case TPL_STR: return repr_string(run, out, value->str);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_VIEW: return repr_list(run, out, value, depth);
    case TPL_RANGE: return repr_range(run, out, value->list);
    case TPL_DICT: return repr_dict(run, out, value, depth);
    default: return repr_object(run, out, value);
    }
}

bool esp_tpl_print(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value)
{
    return value->kind == TPL_STR     ? esp_tpl_out_str(run, out, value->str)
           : value->kind == TPL_UNDEF ? true
                                      : esp_tpl_repr(run, out, value, 0);
}

bool esp_tpl_str(struct tpl_run *run, const struct tpl_value *value, struct tpl_value *ret)
{
    if (value->kind == TPL_STR) {
        *ret = *value;
        return true;
    }
    struct tpl_out out = {0};
    return esp_tpl_print(run, &out, value) && esp_tpl_out_value(run, &out, ret);
}
