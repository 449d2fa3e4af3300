/* Strings of the renderer: building, cutting, stripping, replacing, and the origin of every byte.
 *
 * A string or an output is uniform (all bytes from the template, or all from a user) until bytes of the other
 * origin come; from then on `marks` says it byte by byte. Whatever cuts or joins strings carries the marks
 * along, so user text stays user text however often it is handled. Offsets are bytes; positions that templates
 * see are code points. Thread: the rendering's owner.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/template_internal.h"
#include "runtime/base/utf8.h"

/* ---- Writing ----------------------------------------------------------------------------------- */

static bool out_grow(struct tpl_run *run, struct tpl_out *out, size_t n)
{
    if (n > ESP_RENDER_BYTES_MAX - out->n) {
        return esp_tpl_fail(run, ESP_ELIMIT, "the text grows beyond %u bytes", ESP_RENDER_BYTES_MAX);
    }
    if (out->n + n <= out->room) {
        return true;
    }
    size_t room = out->room < 64 ? 64 : out->room * 2;
    room = room < out->n + n ? out->n + n : room;
    char *data = esp_tpl_alloc(run, room, 1);
    uint8_t *marks = out->marks != NULL ? esp_tpl_alloc(run, room, 1) : NULL;
    if (data == NULL || (out->marks != NULL && marks == NULL)) {
        return false;
    }
    if (out->n > 0) {
        memcpy(data, out->data, out->n);
    }
    if (marks != NULL) {
        memcpy(marks, out->marks, out->n);
    }
    out->data = data;
    out->marks = marks;
    out->room = room;
    return true;
}

bool esp_tpl_out_add(struct tpl_run *run, struct tpl_out *out, const char *data, size_t n, const uint8_t *marks,
                     bool user)
{
    if (n == 0) {
        return true;
    }
    if (!esp_tpl_charge(run, n) || !out_grow(run, out, n)) {
        return false;
    }
    if (out->n == 0) {
        out->user = user;
    }
    if (out->marks == NULL && (marks != NULL || user != out->user)) {
        out->marks = esp_tpl_alloc(run, out->room, 1);
        if (out->marks == NULL) {
            return false;
        }
        memset(out->marks, out->user, out->n);
    }
    memcpy(out->data + out->n, data, n);
    if (marks != NULL) {
        memcpy(out->marks + out->n, marks, n);
    } else if (out->marks != NULL) {
        memset(out->marks + out->n, user, n);
    }
    out->n += n;
    return true;
}

bool esp_tpl_out_part(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str, size_t from, size_t to)
{
    return esp_tpl_out_add(run, out, str->data + from, to - from, str->marks != NULL ? str->marks + from : NULL,
                           str->user);
}

bool esp_tpl_out_str(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str)
{
    return esp_tpl_out_part(run, out, str, 0, str->n);
}

bool esp_tpl_out_text(struct tpl_run *run, struct tpl_out *out, const char *text, bool user)
{
    return esp_tpl_out_add(run, out, text, strlen(text), NULL, user);
}

bool esp_tpl_out_cp(struct tpl_run *run, struct tpl_out *out, uint32_t cp, bool user)
{
    char bytes[4];
    int n = esp_utf8_encode(cp, bytes);
    return esp_tpl_out_add(run, out, bytes, (size_t)n, NULL, user);
}

bool esp_tpl_out_value(struct tpl_run *run, const struct tpl_out *out, struct tpl_value *ret)
{
    struct tpl_str *str = esp_tpl_alloc(run, 1, sizeof *str);
    if (str == NULL) {
        return false;
    }
    *str = (struct tpl_str){.data = out->n > 0 ? out->data : "", .marks = out->marks, .n = out->n, .user = out->user};
    *ret = (struct tpl_value){.kind = TPL_STR, .str = str};
    return true;
}

bool esp_tpl_str_new(struct tpl_run *run, const char *data, size_t n, bool user, struct tpl_value *ret)
{
    struct tpl_str *str = esp_tpl_alloc(run, 1, sizeof *str);
    if (str == NULL) {
        return false;
    }
    *str = (struct tpl_str){.data = data, .n = n, .user = user};
    *ret = (struct tpl_value){.kind = TPL_STR, .str = str};
    return true;
}

bool esp_tpl_str_part(struct tpl_run *run, const struct tpl_str *str, size_t from, size_t to, struct tpl_value *ret)
{
    struct tpl_str *part = esp_tpl_alloc(run, 1, sizeof *part);
    if (part == NULL) {
        return false;
    }
    *part = (struct tpl_str){.data = str->data + from,
                             .marks = str->marks != NULL ? str->marks + from : NULL,
                             .n = to - from,
                             .user = str->user,
                             .markup = str->markup};
    *ret = (struct tpl_value){.kind = TPL_STR, .str = part};
    return true;
}

/* ---- Looking ----------------------------------------------------------------------------------- */

bool esp_tpl_str_user(const struct tpl_str *str)
{
    return str->marks != NULL ? memchr(str->marks, 1, str->n) != NULL : str->user;
}

bool esp_tpl_str_is(const struct tpl_str *str, const char *text)
{
    return str->n == strlen(text) && memcmp(str->data, text, str->n) == 0;
}

size_t esp_tpl_str_count(const struct tpl_str *str)
{
    size_t n = 0;
    for (size_t idx = 0; idx < str->n; idx++) {
        n += ((unsigned char)str->data[idx] & 0xc0) != 0x80;
    }
    return n;
}

size_t esp_tpl_str_offset(const struct tpl_str *str, size_t n_cps)
{
    size_t at = 0;
    while (at < str->n && n_cps > 0) {
        at++;
        while (at < str->n && ((unsigned char)str->data[at] & 0xc0) == 0x80) {
            at++;
        }
        n_cps--;
    }
    return at;
}

uint32_t esp_tpl_str_next(const struct tpl_str *str, size_t *offset)
{
    uint32_t cp = 0xfffd;
    int n = esp_utf8_decode(str->data + *offset, str->n - *offset, &cp);
    *offset += n > 0 ? (size_t)n : 1;
    return cp;
}

size_t esp_tpl_str_find(const struct tpl_str *str, const struct tpl_str *needle, size_t from)
{
    if (from > str->n || needle->n > str->n - from) {
        return SIZE_MAX;
    }
    if (needle->n == 0) {
        return from;
    }
    const char *at = memmem(str->data + from, str->n - from, needle->data, needle->n);
    return at != NULL ? (size_t)(at - str->data) : SIZE_MAX;
}

/* ---- Making others ----------------------------------------------------------------------------- */

static bool strips(uint32_t cp, const struct tpl_str *chars)
{
    if (chars == NULL) {
        return esp_tpl_is_space(cp);
    }
    for (size_t at = 0; at < chars->n;) {
        if (esp_tpl_str_next(chars, &at) == cp) {
            return true;
        }
    }
    return false;
}

bool esp_tpl_str_strip(struct tpl_run *run, const struct tpl_str *str, const struct tpl_str *chars, int sides,
                       struct tpl_value *ret)
{
    size_t from = 0, to = str->n;
    while ((sides & TPL_STRIP_LEFT) != 0 && from < to) {
        size_t next = from;
        if (!strips(esp_tpl_str_next(str, &next), chars)) {
            break;
        }
        from = next;
    }
    while ((sides & TPL_STRIP_RIGHT) != 0 && to > from) {
        size_t last = to - 1;
        while (last > from && ((unsigned char)str->data[last] & 0xc0) == 0x80) {
            last--;
        }
        size_t next = last;
        if (!strips(esp_tpl_str_next(str, &next), chars)) {
            break;
        }
        to = last;
    }
    size_t n_looked = (str->n - (to - from)) * (chars != NULL ? chars->n + 1 : 1);
    return esp_tpl_charge(run, n_looked) && esp_tpl_str_part(run, str, from, to, ret);
}

bool esp_tpl_str_replace(struct tpl_run *run, const struct tpl_str *str, const struct tpl_str *from,
                         const struct tpl_str *to, int64_t n_max, struct tpl_value *ret)
{
    struct tpl_out out = {0};
    size_t at = 0;
    if (!esp_tpl_charge(run, str->n)) {
        return false;
    }
    while (n_max != 0) {
        size_t found = esp_tpl_str_find(str, from, at);
        if (found == SIZE_MAX) {
            break;
        }
        if (!esp_tpl_out_part(run, &out, str, at, found) || !esp_tpl_out_str(run, &out, to)) {
            return false;
        }
        n_max--;
        at = found + from->n;
        if (from->n == 0) { /* between any two characters */
            size_t next = at;
            if (at == str->n) {
                return esp_tpl_out_value(run, &out, ret);
            }
            esp_tpl_str_next(str, &next);
            if (!esp_tpl_charge(run, 64) || !esp_tpl_out_part(run, &out, str, at, next)) {
                return false;
            }
            at = next;
        }
    }
    return esp_tpl_out_part(run, &out, str, at, str->n) && esp_tpl_out_value(run, &out, ret);
}

static bool out_spaces(struct tpl_run *run, struct tpl_out *out, size_t n)
{
    static const char spaces[] = "                                                                ";
    while (n > 0) {
        size_t part = n < sizeof spaces - 1 ? n : sizeof spaces - 1;
        if (!esp_tpl_out_add(run, out, spaces, part, NULL, false)) {
            return false;
        }
        n -= part;
    }
    return true;
}

/* side: 0 = text in the middle, negative = text left, positive = text right. */
bool esp_tpl_str_pad(struct tpl_run *run, const struct tpl_str *str, int64_t width, int side, struct tpl_value *ret)
{
    size_t n = esp_tpl_str_count(str);
    size_t pad = width > 0 && (uint64_t)width > n ? (size_t)width - n : 0;
    size_t left = side < 0 ? 0 : side > 0 ? pad : pad / 2 + (pad & (size_t)width & 1);
    struct tpl_out out = {0};
    return out_spaces(run, &out, left) && esp_tpl_out_str(run, &out, str) && out_spaces(run, &out, pad - left) &&
           esp_tpl_out_value(run, &out, ret);
}

/* How the next character is cased; first: it begins a word, or the text. */
static uint32_t case_of(uint32_t cp, enum tpl_case how, bool first)
{
    switch (how) {
    case TPL_CASE_UPPER: return esp_tpl_upper(cp);
    case TPL_CASE_LOWER: return esp_tpl_lower(cp);
    case TPL_CASE_SWAP: return esp_tpl_upper(cp) != cp ? esp_tpl_upper(cp) : esp_tpl_lower(cp);
    case TPL_CASE_CAPITAL:
    case TPL_CASE_TITLE:
    case TPL_CASE_TITLE_FILTER: break;
    }
    return first ? esp_tpl_upper(cp) : esp_tpl_lower(cp);
}

/* Whether the character after cp begins a word. Python's title() goes by letters, Jinja's filter by spaces, hyphens
 * and opening brackets. */
static bool begins_word(uint32_t cp, enum tpl_case how)
{
    if (how == TPL_CASE_TITLE) {
        return !esp_tpl_is_letter(cp);
    }
    bool opens = cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || esp_tpl_is_space(cp);
    return how == TPL_CASE_TITLE_FILTER && opens;
}

bool esp_tpl_str_case(struct tpl_run *run, const struct tpl_str *str, enum tpl_case how, struct tpl_value *ret)
{
    struct tpl_out out = {0};
    bool first = true;
    for (size_t at = 0; at < str->n;) {
        bool user = str->marks != NULL ? str->marks[at] != 0 : str->user;
        uint32_t cp = esp_tpl_str_next(str, &at);
        uint32_t cased = case_of(cp, how, first);
        bool sharp_s =
            cp == 0xdf && (how == TPL_CASE_UPPER || how == TPL_CASE_SWAP || (first && how != TPL_CASE_LOWER));
        bool ok = sharp_s
                      ? esp_tpl_out_text(run, &out, how == TPL_CASE_UPPER || how == TPL_CASE_SWAP ? "SS" : "Ss", user)
                      : esp_tpl_out_cp(run, &out, cased, user);
        if (!ok) {
            return false;
        }
        first = begins_word(cp, how);
    }
    return esp_tpl_out_value(run, &out, ret);
}

void esp_tpl_real_text(double value, char out[TPL_REAL_BYTES])
{
    if (isnan(value) || isinf(value)) {
        snprintf(out, TPL_REAL_BYTES, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    char digits[TPL_REAL_BYTES];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    const char *sign = digits[0] == '-' ? "-" : "";
    const char *mantissa = digits + (digits[0] == '-');
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1);
    *e = '\0';
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, TPL_REAL_BYTES, "%s%se%c%02d", sign, mantissa, exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    int n_after = (int)strlen(mantissa) - 2 - exponent; /* digits after the point that are needed */
    snprintf(out, TPL_REAL_BYTES, "%.*f", n_after > 1 ? n_after : 1, value);
}
