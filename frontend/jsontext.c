/* The slice finder walks text that a parser has accepted, without recursion: a value is skipped by counting
 * brackets outside strings. It still never reads past the end, whatever it is given. */
#include "frontend/jsontext.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/answer.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"

#define WRITE_DEPTH_MAX 128

json_t *esp_jsontext_parse(const char *text, size_t n_bytes, struct esp_err *err)
{
    size_t n_values = 1;
    bool in_string = false;
    for (size_t at = 0; at < n_bytes; at++) {
        char c = text[at];
        if (c == '"') {
            in_string = !in_string;
        } else if (c == '\\' && in_string) {
            at++;
        } else if (c == ',' && !in_string) {
            n_values++;
        }
    }
    if (n_values > ESP_JSON_VALUES_MAX) {
        esp_fail(err, ESP_EINVAL, "the body has more than %u values", ESP_JSON_VALUES_MAX);
        return NULL;
    }
    json_t *value = esp_json_parse(text, n_bytes, err);
    if (value != NULL && !json_is_object(value)) {
        esp_fail(err, ESP_EINVAL, "the body must be a JSON object, not %s", esp_json_type_name(value));
        json_decref(value);
        return NULL;
    }
    return value;
}

static size_t skip_space(const char *text, size_t n_bytes, size_t at)
{
    while (at < n_bytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r')) {
        at++;
    }
    return at;
}

/* From an opening quote to behind the closing one. */
static size_t skip_string(const char *text, size_t n_bytes, size_t at)
{
    for (at++; at < n_bytes && text[at] != '"'; at++) {
        at += text[at] == '\\';
    }
    return at < n_bytes ? at + 1 : n_bytes;
}

static size_t skip_value(const char *text, size_t n_bytes, size_t at)
{
    size_t depth = 0;
    while (at < n_bytes) {
        char c = text[at];
        if (c == '"') {
            at = skip_string(text, n_bytes, at);
        } else if (c == '{' || c == '[') {
            depth++;
            at++;
            continue;
        } else if (c == '}' || c == ']') {
            depth--;
            at++;
        } else if (depth > 0) {
            at++;
            continue;
        } else {
            while (at < n_bytes && memchr(" \t\r\n,}]", text[at], 7) == NULL) {
                at++;
            }
        }
        if (depth == 0) {
            return at;
        }
    }
    return n_bytes;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static uint32_t hex_unit(const char *text, size_t n_bytes)
{
    uint32_t unit = 0;
    for (size_t idx = 0; idx < 4; idx++) {
        int digit = idx < n_bytes ? hex_digit(text[idx]) : -1;
        if (digit < 0) {
            return 0xffffffffu;
        }
        unit = unit << 4 | (uint32_t)digit;
    }
    return unit;
}

/* The bytes that the escape at text[*at] (a backslash) stands for; moves *at behind it. */
static int unescape(const char *text, size_t n_bytes, size_t *at, char out[4])
{
    char c = *at + 1 < n_bytes ? text[*at + 1] : '\0';
    const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t";
    const char *found = c == '\0' ? NULL : strchr(from, c);
    *at += 2;
    if (found != NULL) {
        out[0] = to[found - from];
        return 1;
    }
    if (*at > n_bytes) {
        *at = n_bytes;
        return 0;
    }
    uint32_t cp = hex_unit(text + *at, n_bytes - *at);
    *at = *at + 4 < n_bytes ? *at + 4 : n_bytes;
    if (cp >= 0xd800 && cp < 0xdc00 && *at + 6 <= n_bytes && text[*at] == '\\') {
        uint32_t low = hex_unit(text + *at + 2, n_bytes - *at - 2);
        if (low >= 0xdc00 && low < 0xe000) {
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
            *at += 6;
        }
    }
    return esp_utf8_encode(cp, out);
}

/* Does the string between the quotes spell key? */
static bool key_is(const char *text, size_t n_bytes, const char *key)
{
    size_t n_key = strlen(key), n_seen = 0;
    for (size_t at = 0; at < n_bytes;) {
        char bytes[4] = {text[at]};
        int n = 1;
        if (text[at] == '\\') {
            n = unescape(text, n_bytes, &at, bytes);
        } else {
            at++;
        }
        if (n_seen + (size_t)n > n_key || memcmp(key + n_seen, bytes, (size_t)n) != 0) {
            return false;
        }
        n_seen += (size_t)n;
    }
    return n_seen == n_key;
}

/* In the object at text[at], the position of the value of key, or n_bytes. */
static size_t find_key(const char *text, size_t n_bytes, size_t at, const char *key)
{
    at = skip_space(text, n_bytes, at + 1);
    while (at < n_bytes && text[at] == '"') {
        size_t behind = skip_string(text, n_bytes, at);
        bool found = behind >= at + 2 && key_is(text + at + 1, behind - at - 2, key);
        at = skip_space(text, n_bytes, behind);
        if (at >= n_bytes || text[at] != ':') {
            return n_bytes;
        }
        at = skip_space(text, n_bytes, at + 1);
        if (found) {
            return at;
        }
        at = skip_space(text, n_bytes, skip_value(text, n_bytes, at));
        if (at >= n_bytes || text[at] != ',') {
            return n_bytes;
        }
        at = skip_space(text, n_bytes, at + 1);
    }
    return n_bytes;
}

/* In the array at text[at], the position of the item with this number, or n_bytes. */
static size_t find_item(const char *text, size_t n_bytes, size_t at, const char *number)
{
    char *behind = NULL;
    unsigned long left = strtoul(number, &behind, 10);
    if (number[0] < '0' || number[0] > '9' || *behind != '\0') {
        return n_bytes;
    }
    at = skip_space(text, n_bytes, at + 1);
    while (at < n_bytes && text[at] != ']') {
        if (left-- == 0) {
            return at;
        }
        at = skip_space(text, n_bytes, skip_value(text, n_bytes, at));
        if (at >= n_bytes || text[at] != ',') {
            return n_bytes;
        }
        at = skip_space(text, n_bytes, at + 1);
    }
    return n_bytes;
}

const char *esp_jsontext_find(const char *text, size_t n_bytes, const char *const *path, size_t n_path,
                              size_t *ret_n_bytes)
{
    size_t at = skip_space(text, n_bytes, 0);
    for (size_t idx = 0; idx < n_path; idx++) {
        if (at >= n_bytes || (text[at] != '{' && text[at] != '[')) {
            return NULL;
        }
        at = text[at] == '{' ? find_key(text, n_bytes, at, path[idx]) : find_item(text, n_bytes, at, path[idx]);
    }
    if (at >= n_bytes) {
        return NULL;
    }
    *ret_n_bytes = skip_value(text, n_bytes, at) - at;
    return text + at;
}

bool esp_jsontext_next(const char *text, size_t n_bytes, size_t *at, const char **ret_item, size_t *ret_n_bytes)
{
    size_t from = skip_space(text, n_bytes, *at + 1); /* behind [ or a comma */
    if (*at >= n_bytes || (text[*at] != '[' && text[*at] != ',') || from >= n_bytes || text[from] == ']') {
        return false;
    }
    size_t behind = skip_value(text, n_bytes, from);
    *ret_item = text + from;
    *ret_n_bytes = behind - from;
    *at = skip_space(text, n_bytes, behind);
    return true;
}

static void write_real(struct esp_buf *buf, double value)
{
    char text[40];
    int digits = 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits++, value);
    } while (digits <= 17 && strtod(text, NULL) != value);
    bool is_real = strpbrk(text, ".e") != NULL;
    esp_buf_printf(buf, "%s%s", text, is_real ? "" : ".0");
}

/* depth: the parser's limit holds for every value that came from outside, and what is built around one is flat. */
static void write_value(struct esp_buf *buf, const json_t *value, int depth)
{
    assert(depth < WRITE_DEPTH_MAX);
    const char *key;
    json_t *member;
    size_t idx = 0;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        json_object_foreach((json_t *)(uintptr_t)value, key, member)
        {
            esp_buf_char(buf, idx++ > 0 ? ',' : '{');
            esp_jsontext_quote_str(buf, key);
            esp_buf_char(buf, ':');
            write_value(buf, member, depth + 1);
        }
        esp_buf_str(buf, idx == 0 ? "{}" : "}");
        break;
    case JSON_ARRAY:
        for (; idx < json_array_size(value); idx++) {
            esp_buf_char(buf, idx > 0 ? ',' : '[');
            write_value(buf, json_array_get(value, idx), depth + 1);
        }
        esp_buf_str(buf, idx == 0 ? "[]" : "]");
        break;
    case JSON_STRING: esp_jsontext_quote(buf, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER: esp_buf_printf(buf, "%lld", (long long)json_integer_value(value)); break;
    case JSON_REAL: write_real(buf, json_real_value(value)); break;
    default: esp_buf_str(buf, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null"); break;
    }
}

void esp_jsontext_write(struct esp_buf *buf, const json_t *value)
{
    write_value(buf, value, 0);
}

void esp_jsontext_quote(struct esp_buf *buf, const char *text, size_t n_bytes)
{
    esp_buf_char(buf, '"');
    size_t from = 0, at = 0;
    while (at < n_bytes) {
        unsigned char c = (unsigned char)text[at];
        if (c >= 0x20 && c != '"' && c != '\\') {
            at++;
            continue;
        }
        esp_answer_clean(text + from, at - from, buf);
        if (c == '"' || c == '\\') {
            esp_buf_printf(buf, "\\%c", c);
        } else if (c == '\n') {
            esp_buf_str(buf, "\\n");
        } else if (c == '\t') {
            esp_buf_str(buf, "\\t");
        } else if (c == '\r') {
            esp_buf_str(buf, "\\r");
        } else {
            esp_buf_printf(buf, "\\u%04x", c);
        }
        from = ++at;
    }
    esp_answer_clean(text + from, n_bytes - from, buf);
    esp_buf_char(buf, '"');
}

void esp_jsontext_quote_str(struct esp_buf *buf, const char *text)
{
    esp_jsontext_quote(buf, text, strlen(text));
}
