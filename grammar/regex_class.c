/* Escapes and classes of regular expressions, as ECMA-262 has them. See regex_class.h. */
#include "grammar/regex_class.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/regex.h"
#include "runtime/base/utf8.h"

esp_status esp_regex_fail(struct esp_regex_reader *in, esp_status status, const char *fmt, ...)
{
    char what[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    esp_fail(in->err, status, "regular expression, byte %zu: %s", in->at, what);
    if (in->err != NULL) {
        in->err->offset = in->at;
    }
    return status;
}

char esp_regex_peek(const struct esp_regex_reader *in)
{
    return in->at < in->n ? in->text[in->at] : '\0';
}

bool esp_regex_take(struct esp_regex_reader *in, char c)
{
    if (in->at < in->n && in->text[in->at] == c) {
        in->at++;
        return true;
    }
    return false;
}

esp_status esp_regex_char(struct esp_regex_reader *in, uint32_t *ret_cp)
{
    int used = esp_utf8_decode(in->text + in->at, in->n - in->at, ret_cp);
    if (used <= 0) {
        return esp_regex_fail(in, ESP_EINVAL, "not valid UTF-8");
    }
    in->at += (size_t)used;
    return ESP_OK;
}

void esp_regex_dot(const struct esp_regex_reader *in, struct esp_cpset *set)
{
    if ((in->flags & ESP_REGEX_DOT_ALL) == 0) {
        esp_cpset_add(set, '\n', '\n');
    }
    if ((in->flags & (ESP_REGEX_DOT_ALL | ESP_REGEX_DOT_LINE)) == 0) {
        esp_cpset_add(set, '\r', '\r');
        esp_cpset_add(set, 0x2028, 0x2029);
    }
    esp_cpset_normalise(set);
    esp_cpset_negate(set);
}

static void add_shorthand(struct esp_cpset *set, char c)
{
    static const struct esp_cprange spaces[] = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                                                {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                                {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    struct esp_cpset own;
    esp_cpset_init(&own, set->arena);
    switch (c | 0x20) {
    case 'd': esp_cpset_add(&own, '0', '9'); break;
    case 'w':
        esp_cpset_add(&own, '0', '9');
        esp_cpset_add(&own, 'A', 'Z');
        esp_cpset_add(&own, '_', '_');
        esp_cpset_add(&own, 'a', 'z');
        break;
    default:
        for (size_t idx = 0; idx < sizeof spaces / sizeof spaces[0]; idx++) {
            esp_cpset_add(&own, spaces[idx].first, spaces[idx].last);
        }
        break;
    }
    esp_cpset_normalise(&own);
    if (c < 'a') {
        esp_cpset_negate(&own);
    }
    esp_cpset_add_set(set, &own);
    set->failed = set->failed || own.failed;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Exactly n hexadecimal digits; takes nothing when they are not there. */
static bool take_hex(struct esp_regex_reader *in, unsigned n, uint32_t *ret)
{
    uint32_t value = 0;
    if (in->n - in->at < n) {
        return false;
    }
    for (unsigned idx = 0; idx < n; idx++) {
        int digit = hex_value(in->text[in->at + idx]);
        if (digit < 0) {
            return false;
        }
        value = value * 16 + (uint32_t)digit;
    }
    in->at += n;
    *ret = value;
    return true;
}

static esp_status take_braced_hex(struct esp_regex_reader *in, uint32_t *ret)
{
    uint32_t value = 0;
    unsigned n = 0;
    while (in->at < in->n && hex_value(in->text[in->at]) >= 0 && value <= 0x10FFFF) {
        value = value * 16 + (uint32_t)hex_value(in->text[in->at++]);
        n++;
    }
    if (n == 0 || value > 0x10FFFF || !esp_regex_take(in, '}')) {
        return esp_regex_fail(in, ESP_EINVAL, "bad \\u{…}");
    }
    *ret = value;
    return ESP_OK;
}

/* After \u or \x. */
static esp_status take_code(struct esp_regex_reader *in, char c, uint32_t *ret)
{
    uint32_t low;
    if (c == 'u' && esp_regex_take(in, '{')) {
        return take_braced_hex(in, ret);
    }
    if (!take_hex(in, c == 'x' ? 2 : 4, ret)) {
        return esp_regex_fail(in, ESP_EINVAL, "bad \\%c escape", c);
    }
    if (*ret >= 0xD800 && *ret < 0xDC00 && in->n - in->at >= 6 && in->text[in->at] == '\\' &&
        in->text[in->at + 1] == 'u') {
        size_t begin = in->at;
        in->at += 2;
        if (take_hex(in, 4, &low) && low >= 0xDC00 && low < 0xE000) {
            *ret = 0x10000 + ((*ret - 0xD800) << 10) + (low - 0xDC00);
            return ESP_OK;
        }
        in->at = begin;
    }
    if (*ret >= 0xD800 && *ret < 0xE000) {
        return esp_regex_fail(in, ESP_EUNSUPPORTED, "half of a surrogate pair is no character");
    }
    return ESP_OK;
}

static esp_status take_property(struct esp_regex_reader *in, char c, struct esp_cpset *set)
{
    struct esp_cpset own;
    size_t begin = in->at + 1, end = begin;
    esp_cpset_init(&own, set->arena);
    while (end < in->n && in->text[end] != '}') {
        end++;
    }
    if (esp_regex_peek(in) != '{' || end >= in->n) {
        return esp_regex_fail(in, ESP_EINVAL, "\\%c needs {…}", c);
    }
    if (!esp_unicode_property(in->text + begin, end - begin, &own)) {
        return esp_regex_fail(in, ESP_EUNSUPPORTED, "Unicode property %.*s is not supported",
                              (int)(end - begin > 40 ? 40 : end - begin), in->text + begin);
    }
    in->at = end + 1;
    esp_cpset_normalise(&own);
    if (c == 'P') {
        esp_cpset_negate(&own);
    }
    esp_cpset_add_set(set, &own);
    set->failed = set->failed || own.failed;
    return ESP_OK;
}

static bool is_letter(char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* After \c: a letter names a control character. */
static esp_status take_control(struct esp_regex_reader *in, uint32_t *ret)
{
    char letter = esp_regex_peek(in);
    if (!is_letter(letter)) {
        return esp_regex_fail(in, ESP_EINVAL, "bad \\c escape");
    }
    in->at++;
    *ret = (uint32_t)letter & 31;
    return ESP_OK;
}

/* The escapes that mean one character. */
static esp_status escaped_char(struct esp_regex_reader *in, char c, uint32_t *ret)
{
    static const char names[] = "nrtfv", values[] = "\n\r\t\f\v";
    const char *at = c == '\0' ? NULL : strchr(names, c);
    char after = esp_regex_peek(in);
    if (at != NULL) {
        *ret = (unsigned char)values[at - names];
        return ESP_OK;
    }
    if (c == '0' && (after < '0' || after > '9')) {
        *ret = 0;
        return ESP_OK;
    }
    if (c >= '0' && c <= '9') {
        return esp_regex_fail(in, ESP_EUNSUPPORTED, "back-references are not supported");
    }
    if (c == 'x' || c == 'u') {
        return take_code(in, c, ret);
    }
    if (c == 'c') {
        return take_control(in, ret);
    }
    if (c != '\0' && strchr("kAZzGK", c) != NULL) {
        return esp_regex_fail(in, ESP_EUNSUPPORTED, "\\%c is not supported", c);
    }
    if (is_letter(c)) {
        return esp_regex_fail(in, ESP_EINVAL, "unknown escape \\%c", c);
    }
    in->at--;
    return esp_regex_char(in, ret);
}

/* One escape, either a set (*ret_is_set) or a character. */
static esp_status take_escape(struct esp_regex_reader *in, struct esp_cpset *set, bool *ret_is_set, uint32_t *ret_cp)
{
    if (in->at >= in->n) {
        return esp_regex_fail(in, ESP_EINVAL, "backslash at the end");
    }
    char c = in->text[in->at++];
    *ret_is_set = c != '\0' && strchr("dDwWsSpP", c) != NULL;
    if (!*ret_is_set) {
        return escaped_char(in, c, ret_cp);
    }
    if (c == 'p' || c == 'P') {
        return take_property(in, c, set);
    }
    add_shorthand(set, c);
    return ESP_OK;
}

esp_status esp_regex_escape(struct esp_regex_reader *in, struct esp_cpset *set)
{
    bool is_set;
    uint32_t cp;
    esp_status status = take_escape(in, set, &is_set, &cp);
    if (status == ESP_OK && !is_set) {
        esp_cpset_add(set, cp, cp);
    }
    esp_cpset_normalise(set);
    return status;
}

/* One member of a class: a character or a set. */
static esp_status class_atom(struct esp_regex_reader *in, struct esp_cpset *set, bool *ret_is_set, uint32_t *ret_cp)
{
    if (esp_regex_peek(in) != '\\' || in->at >= in->n) {
        *ret_is_set = false;
        return esp_regex_char(in, ret_cp);
    }
    in->at++;
    if (esp_regex_take(in, 'b')) {
        *ret_is_set = false;
        *ret_cp = '\b';
        return ESP_OK;
    }
    return take_escape(in, set, ret_is_set, ret_cp);
}

/* A dash that is not the last character of the class. */
static bool dash_follows(const struct esp_regex_reader *in)
{
    return in->at + 1 < in->n && in->text[in->at] == '-' && in->text[in->at + 1] != ']';
}

/* One member or range of a class. */
static esp_status class_member(struct esp_regex_reader *in, struct esp_cpset *set)
{
    bool first_set = false, last_set;
    uint32_t first = 0, last = 0;
    if (in->at >= in->n) {
        return esp_regex_fail(in, ESP_EINVAL, "class without end");
    }
    esp_status status = class_atom(in, set, &first_set, &first);
    bool dash = status == ESP_OK && dash_follows(in);
    last_set = first_set;
    last = first;
    if (dash) {
        in->at++;
        status = class_atom(in, set, &last_set, &last);
    }
    if (status != ESP_OK || (!dash && first_set)) {
        return status;
    }
    if (!first_set && !last_set) {
        if (first > last) {
            return esp_regex_fail(in, ESP_EINVAL, "range of a class is out of order");
        }
        esp_cpset_add(set, first, last);
        return ESP_OK;
    }
    /* [\w-x]: the dash and the character are members of their own. */
    esp_cpset_add(set, '-', '-');
    if (!first_set || !last_set) {
        esp_cpset_add(set, first_set ? last : first, first_set ? last : first);
    }
    return ESP_OK;
}

esp_status esp_regex_class(struct esp_regex_reader *in, struct esp_cpset *set)
{
    bool negated = esp_regex_take(in, '^');
    while (!esp_regex_take(in, ']')) {
        esp_status status = class_member(in, set);
        if (status != ESP_OK) {
            return status;
        }
    }
    esp_cpset_normalise(set);
    esp_status status = esp_regex_fold(in, set);
    if (negated) {
        esp_cpset_negate(set);
    }
    return status;
}

esp_status esp_regex_fold(struct esp_regex_reader *in, struct esp_cpset *set)
{
    for (uint32_t idx = 0, n = (in->flags & ESP_REGEX_FOLD) != 0 ? set->n : 0; idx < n && !set->failed; idx++) {
        struct esp_cprange r = set->r[idx];
        if (r.last >= 0x80) {
            return esp_regex_fail(in, ESP_EUNSUPPORTED, "the flag i beside characters beyond ASCII");
        }
        for (uint32_t cp = r.first; cp <= r.last; cp++) {
            if ((cp | 0x20) >= 'a' && (cp | 0x20) <= 'z') {
                esp_cpset_add(set, cp ^ 0x20, cp ^ 0x20);
            }
        }
    }
    esp_cpset_normalise(set);
    return set->failed ? ESP_ENOMEM : ESP_OK;
}
