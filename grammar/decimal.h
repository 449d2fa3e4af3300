/* Exact decimal numbers as JSON spells them: sign, significant digits, power of ten. No double anywhere.
 *
 *   value = ± 0.DIGITS · 10^exp      no leading and no trailing zero in DIGITS; zero has no digits
 *
 * Digits are borrowed from a buffer of the caller. Exponents saturate at ±ESP_DECIMAL_EXP_MAX, far beyond
 * anything that fits the text limits. Thread: any, plain data.
 */
#ifndef ESP_GRAMMAR_DECIMAL_H
#define ESP_GRAMMAR_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ESP_DECIMAL_EXP_MAX 1000000000000000

struct esp_decimal {
    bool neg; /* never set for zero */
    uint32_t n;
    const char *digits; /* [n], '0' to '9' */
    int64_t exp;
};

/* Reads a complete JSON number. digits_room must hold n_bytes. False when the text is no JSON number. */
bool esp_decimal_parse(const char *text, size_t n_bytes, char *digits_room, struct esp_decimal *ret);
int esp_decimal_compare(const struct esp_decimal *a, const struct esp_decimal *b); /* −1, 0, 1 */
/* Compares |a| and |b|. */
int esp_decimal_compare_abs(const struct esp_decimal *a, const struct esp_decimal *b);
bool esp_decimal_is_integer(const struct esp_decimal *a);
/* A number that fits 0 … max as an unsigned; false for others (also fractions and negatives). */
bool esp_decimal_uint(const struct esp_decimal *a, uint64_t max, uint64_t *ret);

#endif
