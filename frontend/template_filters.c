/* Filters on single values: texts, numbers, defaults. Those on sequences are in template_seq.c.
 *
 * Names, parameters and results are Jinja's; where Jinja first turns its argument into a string, so does this.
 * Marks of origin follow the text through each filter. Thread: the rendering's owner.
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
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

static bool f_indent(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    static const struct tpl_str empty = {.data = "", .n = 0};
    struct tpl_value text, lines, indent = call->arg[0];
    struct tpl_out whole = {0}, out = {0};
    bool first = esp_tpl_truth(&call->arg[1]), blank = esp_tpl_truth(&call->arg[2]);
    int64_t width = 4;
    if (indent.kind != TPL_STR &&
        (!esp_tpl_arg_int(run, &indent, 4, &width) || !esp_tpl_str_pad(run, &empty, width, -1, &indent))) {
        return false;
    }
    /* Jinja adds a newline first, so that the last line is kept when it is empty. */
    if (!esp_tpl_print(run, &whole, &call->self) || !esp_tpl_out_text(run, &whole, "\n", false) ||
        !esp_tpl_out_value(run, &whole, &text) || !esp_tpl_str_lines(run, text.str, false, &lines)) {
        return false;
    }
    for (size_t idx = 0; idx < lines.list->n; idx++) {
        const struct tpl_str *line = lines.list->items[idx].str;
        bool indented = idx == 0 ? first : blank || line->n > 0;
        if ((idx > 0 && !esp_tpl_out_text(run, &out, "\n", false)) ||
            (indented && !esp_tpl_out_str(run, &out, indent.str)) || !esp_tpl_out_str(run, &out, line)) {
            return false;
        }
    }
    return esp_tpl_out_value(run, &out, ret);
}

static bool f_wordwrap(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text;
    struct tpl_out out = {0};
    int64_t width;
    if (!esp_tpl_str(run, &call->self, &text) || !esp_tpl_arg_int(run, &call->arg[0], 79, &width)) {
        return false;
    }
    const struct tpl_str *str = text.str;
    int64_t n_line = 0;
    for (size_t at = 0; at < str->n;) {
        size_t space = at, end;
        while (space < str->n && str->data[space] == ' ') {
            space++;
        }
        for (end = space; end < str->n && str->data[end] != ' ' && str->data[end] != '\n'; end++) {
        }
        struct tpl_str word = {.data = str->data + space, .n = end - space};
        int64_t n_word = (int64_t)esp_tpl_str_count(&word), n_space = (int64_t)(space - at);
        bool wraps = n_line > 0 && n_line + n_space + n_word > width;
        bool ok = wraps ? esp_tpl_out_text(run, &out, "\n", false) : esp_tpl_out_part(run, &out, str, at, space);
        if (!ok || !esp_tpl_charge(run, 64) || !esp_tpl_out_part(run, &out, str, space, end)) {
            return false;
        }
        n_line = wraps ? n_word : n_line + n_space + n_word;
        at = end;
        if (at < str->n && str->data[at] == '\n') {
            if (!esp_tpl_out_part(run, &out, str, at, at + 1)) {
                return false;
            }
            n_line = 0;
            at++;
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

/* Without tags and comments, entities turned back, white space in single blanks. */
static bool f_striptags(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    struct tpl_value text, plain;
    struct tpl_out out = {0}, joined = {0};
    if (!esp_tpl_str(run, &call->self, &text) || !esp_tpl_charge(run, text.str->n * 8)) {
        return false;
    }
    const struct tpl_str *str = text.str;
    for (size_t at = 0; at < str->n;) {
        static const struct tpl_str comment_end = {.data = "-->", .n = 3}, tag_end = {.data = ">", .n = 1};
        bool comment = str->n - at >= 4 && memcmp(str->data + at, "<!--", 4) == 0;
        size_t end = str->data[at] == '<' ? esp_tpl_str_find(str, comment ? &comment_end : &tag_end, at) : SIZE_MAX;
        if (end != SIZE_MAX) {
            at = end + (comment ? 3 : 1);
            continue;
        }
        size_t n_entity = 0;
        char c = str->data[at];
        for (size_t idx = 0; c == '&' && idx < sizeof entities / sizeof entities[0]; idx++) {
            size_t n = strlen(entities[idx].entity);
            if (str->n - at >= n && memcmp(str->data + at, entities[idx].entity, n) == 0) {
                n_entity = n;
                c = entities[idx].plain;
                break;
            }
        }
        bool user = str->marks != NULL ? str->marks[at] != 0 : str->user;
        if (!esp_tpl_out_add(run, &out, &c, 1, NULL, user)) {
            return false;
        }
        at += n_entity > 0 ? n_entity : 1;
    }
    if (!esp_tpl_out_value(run, &out, &plain)) {
        return false;
    }
    for (size_t at = 0; at < plain.str->n;) {
        size_t from = at;
        bool space = esp_tpl_is_space(esp_tpl_str_next(plain.str, &at));
        bool again = space && (joined.n == 0 || joined.data[joined.n - 1] == ' ');
        bool ok = again || (space ? esp_tpl_out_text(run, &joined, " ", false)
                                  : esp_tpl_out_part(run, &joined, plain.str, from, at));
        if (!ok) {
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

/* ---- Numbers ----------------------------------------------------------------------------------- */

/* The text of a number without white space around it, copied to out; false when it is too long for one. */
static bool number_text(struct tpl_run *run, const struct tpl_str *str, char *out, size_t room)
{
    struct tpl_value text;
    if (!esp_tpl_str_strip(run, str, NULL, TPL_STRIP_BOTH, &text) || text.str->n == 0 || text.str->n >= room) {
        return false;
    }
    memcpy(out, text.str->data, text.str->n);
    out[text.str->n] = '\0';
    return strlen(out) == text.str->n;
}

static bool parse_real(const char *text, double *ret)
{
    char *end;
    if (text[0] == '\0' || strpbrk(text, "xXpP") != NULL) {
        return false;
    }
    *ret = strtod(text, &end);
    return *end == '\0';
}

static bool parse_integer(const char *text, int64_t base, int64_t *ret)
{
    char *end;
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    char radix = digits[0] == '0' ? (char)tolower((unsigned char)digits[1]) : 0;
    bool prefixed = (base == 16 && radix == 'x') || (base == 8 && radix == 'o') || (base == 2 && radix == 'b');
    digits += prefixed ? 2 : 0;
    if (base < 2 || base > 36 || !isalnum((unsigned char)digits[0])) {
        return false;
    }
    errno = 0;
    long long value = strtoll(digits, &end, (int)base);
    if (errno != 0 || *end != '\0') {
        return false;
    }
    *ret = text[0] == '-' ? -value : value;
    return true;
}

static bool f_int(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    char text[128];
    int64_t base, value;
    double real = NAN;
    if (!esp_tpl_arg_int(run, &call->arg[1], 10, &base)) {
        return false;
    }
    *ret = call->arg[0].kind == TPL_UNSET ? esp_tpl_int(0) : call->arg[0];
    if (esp_tpl_as_int(&call->self, &value)) {
        *ret = esp_tpl_int(value);
        return true;
    }
    if (call->self.kind == TPL_STR && number_text(run, call->self.str, text, sizeof text)) {
        if (parse_integer(text, base, &value)) {
            *ret = esp_tpl_int(value);
            return true;
        }
        if (!parse_real(text, &real)) {
            real = NAN;
        }
    }
    real = call->self.kind == TPL_FLOAT ? call->self.real : real;
    if (real > -9.2e18 && real < 9.2e18) {
        *ret = esp_tpl_int((int64_t)real);
    }
    return true;
}

static bool f_float(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    char text[128];
    double real;
    *ret = call->arg[0].kind == TPL_UNSET ? esp_tpl_real(0) : call->arg[0];
    if (esp_tpl_is_number(&call->self)) {
        *ret = esp_tpl_real(esp_tpl_number(&call->self));
    } else if (call->self.kind == TPL_STR && number_text(run, call->self.str, text, sizeof text) &&
               parse_real(text, &real)) {
        *ret = esp_tpl_real(real);
    }
    return true;
}

static bool needs_number(struct tpl_run *run, const struct tpl_value *value)
{
    return esp_tpl_is_number(value) ||
           (value->kind == TPL_UNDEF
                ? esp_tpl_undefined(run, value)
                : esp_tpl_fail(run, ESP_EINVAL, "a number is needed, not %s", esp_tpl_type(value)));
}

static bool f_abs(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t value;
    if (!needs_number(run, &call->self)) {
        return false;
    }
    if (!esp_tpl_as_int(&call->self, &value)) {
        *ret = esp_tpl_real(fabs(call->self.real));
        return true;
    }
    if (value == INT64_MIN) {
        return esp_tpl_fail(run, ESP_ELIMIT, "the integer is too large");
    }
    *ret = esp_tpl_int(value < 0 ? -value : value);
    return true;
}

static bool f_round(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    int64_t precision;
    const struct tpl_str *method = NULL;
    if (!needs_number(run, &call->self) || !esp_tpl_arg_int(run, &call->arg[0], 0, &precision) ||
        !esp_tpl_arg_str(run, &call->arg[1], "the method", &method)) {
        return false;
    }
    double value = esp_tpl_number(&call->self);
    bool ceils = method != NULL && esp_tpl_str_is(method, "ceil"),
         floors = method != NULL && esp_tpl_str_is(method, "floor");
    if (method != NULL && !ceils && !floors && !esp_tpl_str_is(method, "common")) {
        return esp_tpl_fail(run, ESP_EINVAL, "round: the method must be common, ceil or floor");
    }
    if (precision < -30 || precision > 30) {
        return esp_tpl_fail(run, ESP_EINVAL, "round: the precision must be between -30 and 30");
    }
    double scale = pow(10, (double)precision);
    if (ceils || floors) {
        *ret = esp_tpl_real((ceils ? ceil(value * scale) : floor(value * scale)) / scale);
    } else if (call->self.kind != TPL_FLOAT && precision >= 0) {
        *ret = call->self.kind == TPL_BOOL ? esp_tpl_int(call->self.truth) : call->self;
    } else if (precision < 0 || fabs(value) > 1e15) {
        double rounded = nearbyint(value * scale) / scale;
        *ret = call->self.kind == TPL_FLOAT ? esp_tpl_real(rounded) : esp_tpl_int((int64_t)rounded);
    } else { /* the C library rounds the exact value, as Python does */
        char text[64];
        snprintf(text, sizeof text, "%.*f", (int)precision, value);
        *ret = esp_tpl_real(strtod(text, NULL));
    }
    return true;
}

static bool f_filesizeformat(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret)
{
    static const char *const decimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
    static const char *const binary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
    char text[64];
    if (!needs_number(run, &call->self)) {
        return false;
    }
    bool is_binary = esp_tpl_truth(&call->arg[0]);
    double value = esp_tpl_number(&call->self), base = is_binary ? 1024 : 1000, unit = base;
    if (value == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (value < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(value));
    } else {
        int idx = 0;
        for (; idx < 7 && value >= unit * base; idx++) {
            unit *= base;
        }
        snprintf(text, sizeof text, "%.1f %s", value / unit, is_binary ? binary[idx] : decimal[idx]);
    }
    struct tpl_out out = {0};
    return esp_tpl_out_text(run, &out, text, false) && esp_tpl_out_value(run, &out, ret);
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
        {"abs", "", 0, f_abs},
        {"attr", "name", 1, f_attr},
        {"capitalize", "", 0, f_capitalize},
        {"center", "width", 0, f_center},
        {"count", "", 0, f_length},
        {"d", "default_value,boolean", 0, f_default},
        {"default", "default_value,boolean", 0, f_default},
        {"e", "", 0, f_escape},
        {"escape", "", 0, f_escape},
        {"filesizeformat", "binary", 0, f_filesizeformat},
        {"float", "default", 0, f_float},
        {"forceescape", "", 0, f_forceescape},
        {"format", NULL, 0, f_format},
        {"indent", "width,first,blank", 0, f_indent},
        {"int", "default,base", 0, f_int},
        {"length", "", 0, f_length},
        {"lower", "", 0, f_lower},
        {"replace", "old,new,count", 2, f_replace},
        {"round", "precision,method", 0, f_round},
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
    return row != NULL ? row : esp_tpl_find_seq_filter(name, n);
}
