/* Filters on single values: texts and defaults. Those on numbers and sequences are in files of their own.
 *
 * Names, parameters and results are Jinja's; where Jinja first turns its argument into a string, so does this.
 * Marks of origin follow the text through each filter. Thread: the rendering's owner.
 */
#include <ctype.h>
#include <string.h>

#include "frontend/template_internal.h"

/* ---- Cases and cutting ------------------------------------------------------------------------- */

static bool case_filter(struct tpl_run *run, const struct tpl_call *call, enum tpl_case how, struct tpl_value *ret)
{
    struct tpl_value text;
    return esp_tpl_str(run, &call->self, &text) && esp_tpl_str_case(run, text.str, how, ret);
}

static bool f_upper(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return case_filter(run, call, TPL_CASE_UPPER, ret);
}

static bool f_lower(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return case_filter(run, call, TPL_CASE_LOWER, ret);
}

static bool f_title(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return case_filter(run, call, TPL_CASE_TITLE_FILTER, ret);
}

static bool f_capitalize(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return case_filter(run, call, TPL_CASE_CAPITAL, ret);
}

static bool f_trim(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    const struct tpl_str *chars = NULL;
    return esp_tpl_str(run, &call->self, &text) &&
           esp_tpl_arg_str(run, &call->arg[0], "the characters to trim", &chars) &&
           esp_tpl_str_strip(run, text.str, chars, TPL_STRIP_BOTH, ret);
}

static bool f_replace(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text, from, to;
    int64_t n_max;
    return esp_tpl_str(run, &call->self, &text) && esp_tpl_str(run, &call->arg[0], &from) &&
           esp_tpl_str(run, &call->arg[1], &to) && esp_tpl_arg_int(run, &call->arg[2], -1, &n_max) &&
           esp_tpl_str_replace(run, text.str, from.str, to.str, n_max, ret);
}

static bool f_center(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    int64_t width;
    return esp_tpl_str(run, &call->self, &text) && esp_tpl_arg_int(run, &call->arg[0], 80, &width) &&
           esp_tpl_str_pad(run, text.str, width, 0, ret);
}

static bool f_truncate(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text, cut;
    int64_t length, leeway;
    static const struct tpl_str dots = {.data = "...", .n = 3};
    const struct tpl_str *end = &dots;
    if (!esp_tpl_str(run, &call->self, &text) || !esp_tpl_arg_int(run, &call->arg[0], 255, &length) ||
        !esp_tpl_arg_str(run, &call->arg[2], "the end", &end) || !esp_tpl_arg_int(run, &call->arg[3], 5, &leeway)) {
        return false;
    }
    int64_t n = (int64_t)esp_tpl_str_count(text.str), n_end = (int64_t)esp_tpl_str_count(end);
    if (length < n_end || leeway < 0) {
        return esp_tpl_fail(run, ESP_EINVAL, "truncate: the length must be at least that of the end");
    }
    if (n - length <= leeway) {
        *ret = text;
        return true;
    }
    size_t at = esp_tpl_str_offset(text.str, (size_t)(length - n_end));
    if (!esp_tpl_truth(&call->arg[1])) {
        size_t space = at;
        while (space > 0 && text.str->data[space - 1] != ' ') {
            space--;
        }
        at = space > 0 ? space - 1 : at;
    }
    struct tpl_out out = {0};
    return esp_tpl_str_part(run, text.str, 0, at, &cut) && esp_tpl_out_str(run, &out, cut.str) &&
           esp_tpl_out_str(run, &out, end) && esp_tpl_out_value(run, &out, ret);
}

static bool join_indented(struct tpl_run *run, const struct tpl_list *lines, const struct tpl_str *indent, bool first,
                          bool blank, struct tpl_value *ret)
{
    struct tpl_out out = {0};
    for (size_t idx = 0; idx < lines->n; idx++) {
        const struct tpl_str *line = lines->items[idx].str;
        bool indented = idx == 0 ? first : blank || line->n > 0;
        if ((idx > 0 && !esp_tpl_out_text(run, &out, "\n", false)) ||
            (indented && !esp_tpl_out_str(run, &out, indent)) || !esp_tpl_out_str(run, &out, line)) {
            return false;
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

static bool f_indent(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    static const struct tpl_str empty = {.data = "", .n = 0};
    struct tpl_value text, lines, indent = call->arg[0];
    struct tpl_out whole = {0};
    int64_t width = 4;
    if (indent.kind != TPL_STR &&
        (!esp_tpl_arg_int(run, &indent, 4, &width) || !esp_tpl_str_pad(run, &empty, width, -1, &indent))) {
        return false;
    }
    /* Jinja adds a newline first, so that the last line is kept when it is empty. */
    return esp_tpl_print(run, &whole, &call->self) && esp_tpl_out_text(run, &whole, "\n", false) &&
           esp_tpl_out_value(run, &whole, &text) && esp_tpl_str_lines(run, text.str, false, &lines) &&
           join_indented(run, lines.list, indent.str, esp_tpl_truth(&call->arg[1]), esp_tpl_truth(&call->arg[2]), ret);
}

/* One word with the blanks before it, on the line or on a new one. Moves *at and the line's length. */
static bool wrap_word(struct tpl_run *run, const struct tpl_str *str, int64_t width, struct tpl_out *out, size_t *at,
                      int64_t *n_line)
{
    size_t space = *at, end;
    while (space < str->n && str->data[space] == ' ') {
        space++;
    }
    for (end = space; end < str->n && str->data[end] != ' ' && str->data[end] != '\n'; end++) {
    }
    struct tpl_str word = {.data = str->data + space, .n = end - space};
    int64_t n_word = (int64_t)esp_tpl_str_count(&word), n_space = (int64_t)(space - *at);
    bool wraps = *n_line > 0 && *n_line + n_space + n_word > width;
    bool ok = wraps ? esp_tpl_out_text(run, out, "\n", false) : esp_tpl_out_part(run, out, str, *at, space);
    *n_line = wraps ? n_word : *n_line + n_space + n_word;
    *at = end;
    return ok && esp_tpl_charge(run, 64) && esp_tpl_out_part(run, out, str, space, end);
}

static bool f_wordwrap(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    struct tpl_out out = {0};
    int64_t width, n_line = 0;
    if (!esp_tpl_str(run, &call->self, &text) || !esp_tpl_arg_int(run, &call->arg[0], 79, &width)) {
        return false;
    }
    for (size_t at = 0; at < text.str->n;) {
        if (!wrap_word(run, text.str, width, &out, &at, &n_line)) {
            return false;
        }
        if (at < text.str->n && text.str->data[at] == '\n') {
            n_line = 0;
            at++;
            if (!esp_tpl_out_part(run, &out, text.str, at - 1, at)) {
                return false;
            }
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

static bool f_wordcount(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    int64_t n = 0;
    bool inside = false;
    if (!esp_tpl_str(run, &call->self, &text)) {
        return false;
    }
    for (size_t at = 0; at < text.str->n;) {
        uint32_t cp = esp_tpl_str_next(text.str, &at);
        bool is_word = esp_tpl_is_letter(cp) || (cp >= '0' && cp <= '9') || cp == '_';
        n += is_word && !inside;
        inside = is_word;
    }
    *ret = esp_tpl_int(n);
    return esp_tpl_charge(run, text.str->n);
}

/* ---- Markup ------------------------------------------------------------------------------------ */

static const struct {
    char plain;
    const char *entity;
} entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}, {'"', "&quot;"}};

bool esp_tpl_out_escaped(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str)
{
    for (size_t at = 0; at < str->n; at++) {
        const char *entity = NULL;
        for (int idx = 0; idx < 5; idx++) {
            entity = str->data[at] == entities[idx].plain && entity == NULL ? entities[idx].entity : entity;
        }
        bool user = str->marks != NULL ? str->marks[at] != 0 : str->user;
        if (!(entity != NULL ? esp_tpl_out_text(run, out, entity, user)
                             : esp_tpl_out_part(run, out, str, at, at + 1))) {
            return false;
        }
    }
    return esp_tpl_charge(run, str->n * 8);
}

bool esp_tpl_str_markup(struct tpl_run *run, const struct tpl_str *str, struct tpl_value *ret)
{
    struct tpl_str *marked = esp_tpl_alloc(run, 1, sizeof *marked);
    if (marked == NULL) {
        return false;
    }
    *marked = *str;
    marked->markup = true;
    *ret = (struct tpl_value){.kind = TPL_STR, .str = marked};
    return true;
}

static bool f_safe(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    return esp_tpl_str(run, &call->self, &text) && esp_tpl_str_markup(run, text.str, ret);
}

static bool f_forceescape(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    struct tpl_out out = {0};
    return esp_tpl_str(run, &call->self, &text) && esp_tpl_out_escaped(run, &out, text.str) &&
           esp_tpl_out_value(run, &out, &text) && esp_tpl_str_markup(run, text.str, ret);
}

static bool f_escape(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    bool done = call->self.kind == TPL_STR && call->self.str->markup;
    *ret = call->self;
    return done || f_forceescape(run, call, ret);
}

/* The entity that begins at a byte: its length, and what it stands for in *c. 0: none. */
static size_t entity_at(const struct tpl_str *str, size_t at, char *c)
{
    for (size_t idx = 0; str->data[at] == '&' && idx < sizeof entities / sizeof entities[0]; idx++) {
        size_t n = strlen(entities[idx].entity);
        if (str->n - at >= n && memcmp(str->data + at, entities[idx].entity, n) == 0) {
            *c = entities[idx].plain;
            return n;
        }
    }
    return 0;
}

/* The text without tags and comments, entities turned back. */
static bool drop_tags(struct tpl_run *run, const struct tpl_str *str, struct tpl_value *ret)
{
    static const struct tpl_str comment_end = {.data = "-->", .n = 3}, tag_end = {.data = ">", .n = 1};
    struct tpl_out out = {0};
    for (size_t at = 0; at < str->n;) {
        bool comment = str->n - at >= 4 && memcmp(str->data + at, "<!--", 4) == 0;
        size_t end = SIZE_MAX;
        if (str->data[at] == '<') {
            end = esp_tpl_str_find(str, comment ? &comment_end : &tag_end, at);
            if (!esp_tpl_charge(run, str->n - at)) {
                return false;
            }
        }
        if (end != SIZE_MAX) {
            at = end + (comment ? 3 : 1);
            continue;
        }
        char c = str->data[at];
        size_t n_entity = entity_at(str, at, &c);
        bool user = str->marks != NULL ? str->marks[at] != 0 : str->user;
        if (!esp_tpl_out_add(run, &out, &c, 1, NULL, user)) {
            return false;
        }
        at += n_entity > 0 ? n_entity : 1;
    }
    return esp_tpl_out_value(run, &out, ret);
}

/* Without tags and comments, white space in single blanks. */
static bool f_striptags(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text, plain;
    struct tpl_out joined = {0};
    if (!esp_tpl_str(run, &call->self, &text) || !drop_tags(run, text.str, &plain)) {
        return false;
    }
    for (size_t at = 0; at < plain.str->n;) {
        size_t from = at;
        bool space = esp_tpl_is_space(esp_tpl_str_next(plain.str, &at));
        bool again = space && (joined.n == 0 || joined.data[joined.n - 1] == ' ');
        if (!again && !(space ? esp_tpl_out_text(run, &joined, " ", false)
                              : esp_tpl_out_part(run, &joined, plain.str, from, at))) {
            return false;
        }
    }
    joined.n -= joined.n > 0 && joined.data[joined.n - 1] == ' ';
    return esp_tpl_out_value(run, &joined, ret);
}

static bool f_urlencode(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    struct tpl_out out = {0};
    if (call->self.kind == TPL_DICT || call->self.kind == TPL_LIST) {
        return esp_tpl_fail(run, ESP_EUNSUPPORTED, "urlencode is supported for strings only");
    }
    if (!esp_tpl_str(run, &call->self, &text)) {
        return false;
    }
    for (size_t at = 0; at < text.str->n; at++) {
        unsigned char c = (unsigned char)text.str->data[at];
        char hex[4];
        bool plain = c < 0x80 && (isalnum(c) || strchr("_.-~/", c) != NULL) && c != 0;
        snprintf(hex, sizeof hex, "%%%02X", c);
        bool user = text.str->marks != NULL ? text.str->marks[at] != 0 : text.str->user;
        if (!esp_tpl_charge(run, 8) ||
            !(plain ? esp_tpl_out_part(run, &out, text.str, at, at + 1) : esp_tpl_out_text(run, &out, hex, user))) {
            return false;
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

/* ---- Others ------------------------------------------------------------------------------------ */

static bool f_string(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    return esp_tpl_str(run, &call->self, ret);
}

static bool f_default(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    bool replaced = call->self.kind == TPL_UNDEF || (esp_tpl_truth(&call->arg[1]) && !esp_tpl_truth(&call->self));
    if (!replaced) {
        *ret = call->self;
        return true;
    }
    if (call->arg[0].kind != TPL_UNSET) {
        *ret = call->arg[0];
        return true;
    }
    return esp_tpl_str_new(run, "", 0, false, ret);
}

static bool f_length(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    size_t n;
    if (!esp_tpl_length(run, &call->self, &n)) {
        return false;
    }
    *ret = esp_tpl_int((int64_t)n);
    return true;
}

static bool f_format(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text, values;
    if (!esp_tpl_str(run, &call->self, &text)) {
        return false;
    }
    if (call->args->n_kw > 0) {
        if (call->args->n > 0) {
            return esp_tpl_fail(run, ESP_EINVAL, "format cannot take both positional and keyword arguments");
        }
        if (!esp_tpl_dict(run, TPL_DICT, &values)) {
            return false;
        }
        for (size_t idx = 0; idx < call->args->n_kw; idx++) {
            struct tpl_value key = {.kind = TPL_STR, .str = call->args->kw[idx].name};
            if (!esp_tpl_dict_put(run, values.dict, &key, &call->args->kw[idx].value)) {
                return false;
            }
        }
    } else {
        if (!esp_tpl_list(run, TPL_TUPLE, call->args->n, &values)) {
            return false;
        }
        for (size_t idx = 0; idx < call->args->n; idx++) {
            values.list->items[idx] = call->args->list[idx];
        }
    }
    return esp_tpl_format_percent(run, text.str, &values, ret);
}

/* An attribute, never an item. */
static bool f_attr(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value name, nothing;
    if (!esp_tpl_str(run, &call->arg[0], &name)) {
        return false;
    }
    bool is_dict = call->self.kind == TPL_DICT && esp_tpl_find_method(TPL_DICT, name.str->data, name.str->n) == NULL;
    if (is_dict) {
        return esp_tpl_dict(run, TPL_DICT, &nothing) && esp_tpl_attr(run, &nothing, name.str, ret);
    }
    return esp_tpl_attr(run, &call->self, name.str, ret);
}

const struct tpl_builtin *esp_tpl_find_filter(const char *name, size_t n)
{
    static const struct tpl_builtin rows[] = {
        {"attr", "name", 1, f_attr},
        {"capitalize", "", 0, f_capitalize},
        {"center", "width", 0, f_center},
        {"count", "", 0, f_length},
        {"d", "default_value,boolean", 0, f_default},
        {"default", "default_value,boolean", 0, f_default},
        {"e", "", 0, f_escape},
        {"escape", "", 0, f_escape},
        {"forceescape", "", 0, f_forceescape},
        {"format", NULL, 0, f_format},
        {"indent", "width,first,blank", 0, f_indent},
        {"length", "", 0, f_length},
        {"lower", "", 0, f_lower},
        {"replace", "old,new,count", 2, f_replace},
        {"safe", "", 0, f_safe},
        {"string", "", 0, f_string},
        {"striptags", "", 0, f_striptags},
        {"title", "", 0, f_title},
        {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, esp_tpl_filter_tojson},
        {"trim", "chars", 0, f_trim},
        {"truncate", "length,killwords,end,leeway", 0, f_truncate},
        {"upper", "", 0, f_upper},
        {"urlencode", "", 0, f_urlencode},
        {"wordcount", "", 0, f_wordcount},
        {"wordwrap", "width", 0, f_wordwrap},
    };
    const struct tpl_builtin *row = esp_tpl_find_in(rows, sizeof rows / sizeof rows[0], name, n);
    row = row != NULL ? row : esp_tpl_find_number_filter(name, n);
    return row != NULL ? row : esp_tpl_find_seq_filter(name, n);
}
