/* Parsing and comparing exact decimals. See decimal.h. */
#include "grammar/decimal.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads [eE][+-]?digits at text[at …n); false when malformed. */
static bool parse_exponent(const char *text, size_t n, size_t at, int64_t *ret)
{
    bool neg = false;
    int64_t value = 0;
    if (at < n && (text[at] == '+' || text[at] == '-')) {
        neg = text[at++] == '-';
    }
    if (at == n) {
        return false;
    }
    for (; at < n; at++) {
        if (!is_digit(text[at])) {
            return false;
        }
        if (value < ESP_DECIMAL_EXP_MAX) {
            value = value * 10 + (text[at] - '0');
        }
    }
    *ret = neg ? -value : value;
    return true;
}

/* Copies digits from text[*at …) to room. */
static void take_digits(const char *text, size_t n, size_t *at, char *room, size_t *n_digits)
{
    while (*at < n && is_digit(text[*at])) {
        room[(*n_digits)++] = text[(*at)++];
    }
}

/* Digits before and after the point; false when malformed. */
static bool parse_mantissa(const char *text, size_t n, size_t *at, char *room, size_t *ret_n_int, size_t *ret_n)
{
    size_t n_digits = 0;
    take_digits(text, n, at, room, &n_digits);
    *ret_n_int = n_digits;
    if (n_digits == 0 || (room[0] == '0' && n_digits > 1)) {
        return false;
    }
    if (*at < n && text[*at] == '.') {
        ++*at;
        take_digits(text, n, at, room, &n_digits);
        if (n_digits == *ret_n_int) {
            return false;
        }
    }
    *ret_n = n_digits;
    return true;
}

bool esp_decimal_parse(const char *text, size_t n, char *room, struct esp_decimal *ret)
{
    struct esp_decimal d = {0};
    size_t at = n > 0 && text[0] == '-', n_int, n_digits, skip = 0;
    int64_t exponent = 0;
    bool neg = at == 1;
    if (!parse_mantissa(text, n, &at, room, &n_int, &n_digits)) {
        return false;
    }
    if (at < n && ((text[at] != 'e' && text[at] != 'E') || !parse_exponent(text, n, at + 1, &exponent))) {
        return false;
    }
    while (skip < n_digits && room[skip] == '0') {
        skip++;
    }
    while (n_digits > skip && room[n_digits - 1] == '0') {
        n_digits--;
    }
    d.digits = room + skip;
    d.n = (uint32_t)(n_digits - skip);
    d.neg = neg && d.n > 0;
    d.exp = d.n == 0 ? 0 : (int64_t)n_int - (int64_t)skip + exponent;
    *ret = d;
    return true;
}

int esp_decimal_compare_abs(const struct esp_decimal *a, const struct esp_decimal *b)
{
    if (a->n == 0 || b->n == 0) {
        return (a->n > 0) - (b->n > 0);
    }
    if (a->exp != b->exp) {
        return a->exp < b->exp ? -1 : 1;
    }
    uint32_t n = a->n < b->n ? a->n : b->n;
    int order = memcmp(a->digits, b->digits, n);
    if (order == 0) {
        order = a->n < b->n ? -1 : a->n > b->n;
    }
    return order < 0 ? -1 : order > 0;
}

int esp_decimal_compare(const struct esp_decimal *a, const struct esp_decimal *b)
{
    if (a->neg != b->neg) {
        return a->neg ? -1 : 1;
    }
    int order = esp_decimal_compare_abs(a, b);
    return a->neg ? -order : order;
}

bool esp_decimal_is_integer(const struct esp_decimal *a)
{
    return a->n == 0 || a->exp >= (int64_t)a->n;
}

bool esp_decimal_uint(const struct esp_decimal *a, uint64_t max, uint64_t *ret)
{
    uint64_t value = 0;
    if (a->neg || !esp_decimal_is_integer(a) || a->exp > 20) {
        return false;
    }
    for (int64_t at = 0; at < a->exp; at++) {
        unsigned digit = at < (int64_t)a->n ? (unsigned)(a->digits[at] - '0') : 0;
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    if (value > max) {
        return false;
    }
    *ret = value;
    return true;
}
