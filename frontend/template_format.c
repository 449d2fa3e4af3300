/* Python's two ways of formatting: "%s is %d" and "{} is {:>5}".
 *
 * Both end in one description of a field: flags, width, precision, type. Fields of str.format are plain indexes
 * and names; attributes and items inside braces are refused, as they reach into objects. Thread: the
 * rendering's owner.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/template_internal.h"
#include "runtime/base/utf8.h"

#define WIDTH_MAX 10000

struct field {
    uint32_t fill;
    char align; /* '<', '>', '^', '=' or 0 */
    char sign;  /* '+', ' ' or 0 */
    char type;  /* or 0 */
    bool alternate, grouped;
    int width, precision; /* precision -1: none */
};

/* ---- One field --------------------------------------------------------------------------------- */

static bool put_fill(struct tpl_run *run, struct tpl_out *out, uint32_t fill, size_t n)
{
    bool ok = true;
    for (size_t idx = 0; ok && idx < n; idx++) {
        ok = esp_tpl_out_cp(run, out, fill, false);
    }
    return ok;
}

static bool put_text(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str, const struct field *field)
{
    size_t end = field->precision >= 0 ? esp_tpl_str_offset(str, (size_t)field->precision) : str->n;
    struct tpl_str cut = {.data = str->data, .n = end};
    size_t n = esp_tpl_str_count(&cut),
           pad = field->width > 0 && (size_t)field->width > n ? (size_t)field->width - n : 0;
    size_t left = field->align == '>' ? pad : field->align == '^' ? pad / 2 : 0;
    return put_fill(run, out, field->fill, left) && esp_tpl_out_part(run, out, str, 0, end) &&
           put_fill(run, out, field->fill, pad - left);
}

/* Commas between groups of three digits of the whole part. */
static void group_digits(const char *digits, char *out, size_t room)
{
    size_t whole = strspn(digits, "0123456789"), n = 0;
    for (size_t idx = 0; digits[idx] != '\0' && n < room - 2; idx++) {
        if (idx > 0 && idx < whole && (whole - idx) % 3 == 0) {
            out[n++] = ',';
        }
        out[n++] = digits[idx];
    }
    out[n] = '\0';
}

/* digits: without sign; prefix: "", "-", "+0x", … Zero padding goes between the two. */
static bool put_number(struct tpl_run *run, struct tpl_out *out, const char *prefix, const char *digits,
                       const struct field *field)
{
    char grouped[512];
    if (field->grouped) {
        group_digits(digits, grouped, sizeof grouped);
        digits = grouped;
    }
    size_t n = strlen(prefix) + strlen(digits);
    size_t pad = field->width > 0 && (size_t)field->width > n ? (size_t)field->width - n : 0;
    char align = field->align == 0 ? '>' : field->align;
    size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0, middle = align == '=' ? pad : 0;
    return put_fill(run, out, field->fill, left) && esp_tpl_out_text(run, out, prefix, false) &&
           put_fill(run, out, field->fill, middle) && esp_tpl_out_text(run, out, digits, false) &&
           put_fill(run, out, field->fill, pad - left - middle);
}

static void binary_digits(uint64_t magnitude, char *out)
{
    size_t n = 0;
    for (int bit = 63; bit >= 0; bit--) {
        if (n > 0 || bit == 0 || (magnitude >> bit & 1) != 0) {
            out[n++] = (char)('0' + (magnitude >> bit & 1));
        }
    }
    out[n] = '\0';
}

static bool put_integer(struct tpl_run *run, struct tpl_out *out, int64_t value, const struct field *field)
{
    char digits[80], prefix[8];
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const char *radix = "";
    if (field->type == 'x' || field->type == 'X') {
        snprintf(digits, sizeof digits, field->type == 'x' ? "%" PRIx64 : "%" PRIX64, magnitude);
        radix = field->type == 'x' ? "0x" : "0X";
    } else if (field->type == 'o') {
        snprintf(digits, sizeof digits, "%" PRIo64, magnitude);
        radix = "0o";
    } else if (field->type == 'b') {
        binary_digits(magnitude, digits);
        radix = "0b";
    } else {
        snprintf(digits, sizeof digits, "%0*" PRIu64,
                 field->precision > 0 && field->precision < 60 ? field->precision : 1, magnitude);
    }
    char sign[2] = {value < 0 ? '-' : field->sign, '\0'};
    snprintf(prefix, sizeof prefix, "%s%s", sign, field->alternate ? radix : "");
    return put_number(run, out, prefix, digits, field);
}

static bool put_real(struct tpl_run *run, struct tpl_out *out, double value, const struct field *field)
{
    char digits[512], format[8] = "%.*f", sign[2] = {signbit(value) ? '-' : field->sign, '\0'};
    int precision = field->precision < 0 ? 6 : field->precision;
    bool percent = field->type == '%';
    if (field->precision > 100) {
        return esp_tpl_fail(run, ESP_ELIMIT, "the precision of a field is too large");
    }
    format[3] = percent ? 'f' : field->type;
    if (field->type == 0) {
        esp_tpl_real_text(fabs(value), digits);
    } else {
        snprintf(digits, sizeof digits, format, precision, fabs(percent ? value * 100 : value));
        size_t n = strlen(digits);
        snprintf(digits + n, sizeof digits - n, "%s", percent ? "%" : "");
    }
    return put_number(run, out, sign, digits, field);
}

static bool put_value(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value,
                      const struct field *field)
{
    int64_t integer;
    struct tpl_value text;
    bool real_type = field->type != 0 && strchr("eEfFgG%", field->type) != NULL;
    if (esp_tpl_as_int(value, &integer) && !real_type && (value->kind == TPL_INT || field->type != 0)) {
        return put_integer(run, out, integer, field);
    }
    if (esp_tpl_is_number(value) && value->kind != TPL_BOOL) {
        return put_real(run, out, esp_tpl_number(value), field);
    }
    if (field->type != 0 && field->type != 's') {
        return esp_tpl_fail(run, ESP_EINVAL, "the format '%c' does not fit a value of type %s", field->type,
                            esp_tpl_type(value));
    }
    return esp_tpl_str(run, value, &text) && put_text(run, out, text.str, field);
}

/* ---- Percent ----------------------------------------------------------------------------------- */

struct percent {
    struct tpl_run *run;
    const struct tpl_str *format;
    const struct tpl_value *values;
    size_t at, n_used;
};

static bool next_value(struct percent *percent, struct tpl_value *ret)
{
    const struct tpl_value *values = percent->values;
    bool is_tuple = values->kind == TPL_TUPLE;
    if (percent->n_used >= (is_tuple ? values->list->n : 1)) {
        return esp_tpl_fail(percent->run, ESP_EINVAL, "not enough arguments for format string");
    }
    *ret = is_tuple ? values->list->items[percent->n_used] : *values;
    percent->n_used++;
    return true;
}

static char peek(const struct tpl_str *str, size_t at)
{
    return at < str->n ? str->data[at] : '\0';
}

/* A number in the format, or a star that takes it from the values. */
static bool read_size(struct percent *percent, int *ret)
{
    int64_t value = 0;
    if (peek(percent->format, percent->at) == '*') {
        struct tpl_value given;
        percent->at++;
        if (!next_value(percent, &given) || !esp_tpl_arg_int(percent->run, &given, 0, &value)) {
            return false;
        }
    }
    while (peek(percent->format, percent->at) >= '0' && peek(percent->format, percent->at) <= '9' &&
           value <= WIDTH_MAX) {
        value = value * 10 + (percent->format->data[percent->at++] - '0');
    }
    if (value > WIDTH_MAX || value < -WIDTH_MAX) {
        return esp_tpl_fail(percent->run, ESP_ELIMIT, "a field is wider than %d", WIDTH_MAX);
    }
    *ret = (int)value;
    return true;
}

/* "(name)" after the percent sign: the value of that key. */
static bool read_key(struct percent *percent, struct tpl_value *ret, bool *ret_found)
{
    static const struct tpl_str close = {.data = ")", .n = 1};
    *ret_found = peek(percent->format, percent->at) == '(';
    if (!*ret_found) {
        return true;
    }
    size_t end = esp_tpl_str_find(percent->format, &close, percent->at);
    struct tpl_value key;
    if (end == SIZE_MAX || percent->values->kind != TPL_DICT) {
        return esp_tpl_fail(percent->run, ESP_EINVAL, "format requires a mapping");
    }
    bool found;
    if (!esp_tpl_str_part(percent->run, percent->format, percent->at + 1, end, &key) ||
        !esp_tpl_dict_find(percent->run, percent->values->dict, &key, ret, &found)) {
        return false;
    }
    percent->at = end + 1;
    return found || esp_tpl_fail(percent->run, ESP_EINVAL, "a key of the format string is missing");
}

static bool read_flags(struct percent *percent, struct field *field)
{
    bool left = false, zero = false;
    for (;; percent->at++) {
        char c = peek(percent->format, percent->at);
        if (c == '-') {
            left = true;
        } else if (c == '0') {
            zero = true;
        } else if (c == '+' || (c == ' ' && field->sign == 0)) {
            field->sign = c;
        } else if (c == '#') {
            field->alternate = true;
        } else {
            break;
        }
    }
    if (!read_size(percent, &field->width)) {
        return false;
    }
    if (field->width < 0) {
        left = true;
        field->width = -field->width;
    }
    field->fill = zero && !left ? '0' : ' ';
    field->align = left ? '<' : zero ? '=' : '>';
    if (peek(percent->format, percent->at) == '.') {
        percent->at++;
        return read_size(percent, &field->precision);
    }
    return true;
}

/* A value under %d, %x, %f and their kin. */
static bool put_converted(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value, struct field *field,
                          char c)
{
    struct tpl_value number = *value;
    if (value->kind == TPL_UNDEF) {
        return esp_tpl_undefined(run, value);
    }
    if (!esp_tpl_is_number(value)) {
        return esp_tpl_fail(run, ESP_EINVAL, "%%%c format: a number is required, not %s", c, esp_tpl_type(value));
    }
    if (strchr("diuxXo", c) != NULL && value->kind == TPL_FLOAT) {
        if (!(fabs(value->real) < 9.2e18)) {
            return esp_tpl_fail(run, ESP_ELIMIT, "the integer is too large");
        }
        number = esp_tpl_int((int64_t)value->real);
    }
    field->type = c == 'i' || c == 'u' ? 'd' : c;
    return put_value(run, out, &number, field);
}

static bool put_conversion(struct percent *percent, struct tpl_out *out, const struct tpl_value *value,
                           struct field *field, char c)
{
    struct tpl_run *run = percent->run;
    struct tpl_value text = *value;
    struct tpl_out repr = {0};
    field->type = c;
    if (c == 's' || c == 'r' || c == 'a') {
        bool ok = c == 's' ? esp_tpl_str(run, value, &text)
                           : esp_tpl_repr(run, &repr, value, 0) && esp_tpl_out_value(run, &repr, &text);
        field->fill = ' ';
        field->align = field->align == '=' ? '>' : field->align;
        return ok && put_text(run, out, text.str, field);
    }
    if (c != 0 && strchr("diuxXoeEfFgG", c) != NULL) {
        return put_converted(run, out, value, field, c);
    }
    return esp_tpl_fail(run, ESP_EINVAL, "unsupported format character '%c'", c);
}

/* What follows a percent sign, up to its letter. */
static bool put_percent(struct percent *percent, struct tpl_out *out)
{
    struct field field = {.precision = -1};
    struct tpl_value value;
    bool found;
    if (!read_key(percent, &value, &found) || !read_flags(percent, &field)) {
        return false;
    }
    char c = peek(percent->format, percent->at++);
    if (c == '%') {
        return esp_tpl_out_text(percent->run, out, "%", false);
    }
    return (found || next_value(percent, &value)) && put_conversion(percent, out, &value, &field, c);
}

bool esp_tpl_format_percent(struct tpl_run *run, const struct tpl_str *format, const struct tpl_value *values,
                            struct tpl_value *ret)
{
    struct percent percent = {.run = run, .format = format, .values = values};
    struct tpl_out out = {0};
    while (percent.at < format->n) {
        const char *sign = memchr(format->data + percent.at, '%', format->n - percent.at);
        size_t plain = sign != NULL ? (size_t)(sign - format->data) : format->n;
        if (!esp_tpl_out_part(run, &out, format, percent.at, plain)) {
            return false;
        }
        percent.at = plain + 1;
        if (sign == NULL) {
            break;
        }
        if (!put_percent(&percent, &out)) {
            return false;
        }
    }
    size_t n_given = values->kind == TPL_TUPLE ? values->list->n : values->kind == TPL_DICT ? 0 : 1;
    if (percent.n_used < n_given) {
        return esp_tpl_fail(run, ESP_EINVAL, "not all arguments converted during string formatting");
    }
    return esp_tpl_out_value(run, &out, ret);
}

/* ---- Braces ------------------------------------------------------------------------------------ */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* Digits as a number; one that is too large ends above WIDTH_MAX. */
static int spec_number(const struct tpl_str *spec, size_t *at)
{
    int value = 0;
    for (; peek(spec, *at) >= '0' && peek(spec, *at) <= '9' && value <= WIDTH_MAX; ++*at) {
        value = value * 10 + (spec->data[*at] - '0');
    }
    return value;
}

/* "[[fill]align][sign][#][0]" */
static size_t spec_front(const struct tpl_str *spec, struct field *field)
{
    size_t at = 0, after = 0;
    uint32_t first = spec->n > 0 ? esp_tpl_str_next(spec, &after) : 0;
    if (spec->n > after && is_align(spec->data[after])) {
        field->fill = first;
        field->align = spec->data[after];
        at = after + 1;
    } else if (spec->n > 0 && is_align(spec->data[0])) {
        field->align = spec->data[0];
        at = 1;
    }
    char c = peek(spec, at);
    if (c == '+' || c == '-' || c == ' ') {
        field->sign = c == '-' ? 0 : c;
        at++;
    }
    field->alternate = peek(spec, at) == '#';
    at += field->alternate;
    if (peek(spec, at) == '0' && field->align == 0) {
        field->fill = '0';
        field->align = '=';
    }
    return at;
}

/* The front, then "[width][,][.precision][type]". */
static bool parse_spec(struct tpl_run *run, const struct tpl_str *spec, struct field *ret_field)
{
    struct field field = {.fill = ' ', .precision = -1};
    size_t at = spec_front(spec, &field);
    field.width = spec_number(spec, &at);
    field.grouped = peek(spec, at) == ',';
    at += field.grouped;
    if (peek(spec, at) == '.') {
        at++;
        field.precision = spec_number(spec, &at);
    }
    if (at < spec->n && spec->data[at] != '\0' && strchr("sdxXobeEfFgG%", spec->data[at]) != NULL) {
        field.type = spec->data[at++];
    }
    if (at != spec->n || field.width > WIDTH_MAX || field.precision > WIDTH_MAX) {
        return esp_tpl_fail(run, ESP_EINVAL, "invalid format specifier");
    }
    *ret_field = field;
    return true;
}

/* The argument that a field names: "", "0" or "name". */
static bool field_value(struct tpl_run *run, const struct tpl_str *name, const struct tpl_args *args, size_t *n_auto,
                        struct tpl_value *ret)
{
    size_t idx = 0;
    bool digits = name->n < 6;
    for (size_t at = 0; digits && at < name->n; at++) {
        digits = name->data[at] >= '0' && name->data[at] <= '9';
        idx = idx * 10 + (size_t)(name->data[at] - '0');
    }
    if (digits) {
        idx = name->n == 0 ? (*n_auto)++ : idx;
        if (idx >= args->n) {
            return esp_tpl_fail(run, ESP_EINVAL, "format: argument %zu is missing", idx);
        }
        *ret = args->list[idx];
        return true;
    }
    if (memchr(name->data, '.', name->n) != NULL || memchr(name->data, '[', name->n) != NULL) {
        return esp_tpl_fail(run, ESP_EINVAL, "format: attributes and items of arguments are not allowed");
    }
    for (size_t kw = 0; kw < args->n_kw; kw++) {
        if (args->kw[kw].name->n == name->n && memcmp(args->kw[kw].name->data, name->data, name->n) == 0) {
            *ret = args->kw[kw].value;
            return true;
        }
    }
    return esp_tpl_fail(run, ESP_EINVAL, "format: argument '%.*s' is missing", (int)(name->n < 60 ? name->n : 60),
                        name->data);
}

/* inside: the text between the braces, "name!r:spec". */
static bool put_braces(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *inside,
                       const struct tpl_args *args, size_t *n_auto)
{
    const char *colon = memchr(inside->data, ':', inside->n);
    size_t end = colon != NULL ? (size_t)(colon - inside->data) : inside->n;
    struct tpl_str spec = {.data = inside->data + end + (colon != NULL), .n = inside->n - end - (colon != NULL)};
    bool as_repr = end >= 2 && inside->data[end - 2] == '!' && inside->data[end - 1] == 'r';
    bool as_str = end >= 2 && inside->data[end - 2] == '!' && inside->data[end - 1] == 's';
    struct tpl_str name = {.data = inside->data, .n = end - (as_repr || as_str ? 2 : 0)};
    struct tpl_value value;
    struct tpl_out repr = {0};
    struct field field;
    if (!parse_spec(run, &spec, &field) || !field_value(run, &name, args, n_auto, &value)) {
        return false;
    }
    if (as_repr && (!esp_tpl_repr(run, &repr, &value, 0) || !esp_tpl_out_value(run, &repr, &value))) {
        return false;
    }
    return (!as_str || esp_tpl_str(run, &value, &value)) && put_value(run, out, &value, &field);
}

bool esp_tpl_format_braces(struct tpl_run *run, const struct tpl_str *format, const struct tpl_args *args,
                           struct tpl_value *ret)
{
    struct tpl_out out = {0};
    size_t n_auto = 0;
    for (size_t at = 0; at < format->n;) {
        char c = format->data[at];
        size_t end = at + 1;
        bool ok;
        if ((c == '{' || c == '}') && peek(format, at + 1) == c) {
            ok = esp_tpl_out_part(run, &out, format, at, at + 1);
            end = at + 2;
        } else if (c == '{') {
            static const struct tpl_str close = {.data = "}", .n = 1};
            size_t found = esp_tpl_str_find(format, &close, at);
            struct tpl_value inside;
            if (found == SIZE_MAX) {
                return esp_tpl_fail(run, ESP_EINVAL, "expected '}' before end of string");
            }
            ok = esp_tpl_str_part(run, format, at + 1, found, &inside) &&
                 put_braces(run, &out, inside.str, args, &n_auto);
            end = found + 1;
        } else if (c == '}') {
            return esp_tpl_fail(run, ESP_EINVAL, "single '}' encountered in format string");
        } else {
            while (end < format->n && format->data[end] != '{' && format->data[end] != '}') {
                end++;
            }
            ok = esp_tpl_out_part(run, &out, format, at, end);
        }
        if (!ok) {
            return false;
        }
        at = end;
    }
    return esp_tpl_out_value(run, &out, ret);
}
