/* Unsigned whole numbers of a fixed room, for exact questions about multiples. No allocation.
 *
 *   value = Σ w[i] · 2^(32·i)      n words, the last one not zero; zero has none
 *
 * What does not fit is latched in `over` by the operation that made it; callers keep to ESP_BIG_DIGITS_MAX.
 * Thread: any, plain data.
 */
#ifndef ESP_GRAMMAR_BIGNUM_H
#define ESP_GRAMMAR_BIGNUM_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/decimal.h"

#define ESP_BIG_WORDS 224
#define ESP_BIG_DIGITS_MAX 2100 /* decimal digits that always fit */

struct esp_big {
    uint32_t n;
    bool over;
    uint32_t w[ESP_BIG_WORDS];
};

void esp_big_set(struct esp_big *a, uint32_t value);
/* The digits as a whole number, and n_zeros zeros after them. */
void esp_big_digits(struct esp_big *a, const char *digits, uint32_t n, uint32_t n_zeros);
/* Writes at most cap digits, none for zero, and returns how many there are. */
uint32_t esp_big_print(const struct esp_big *a, char *digits, uint32_t cap);
int esp_big_compare(const struct esp_big *a, const struct esp_big *b);
void esp_big_add(struct esp_big *a, const struct esp_big *b);
void esp_big_subtract(struct esp_big *a, const struct esp_big *b); /* a ≥ b */
void esp_big_mul_small(struct esp_big *a, uint32_t factor);
void esp_big_mul(const struct esp_big *a, const struct esp_big *b, struct esp_big *ret);
uint32_t esp_big_div_small(struct esp_big *a, uint32_t divisor); /* returns the remainder */
/* a = quotient · b + remainder; b is not zero; quotient may be NULL. */
void esp_big_divide(const struct esp_big *a, const struct esp_big *b, struct esp_big *quotient,
                    struct esp_big *remainder);
void esp_big_gcd(struct esp_big *a, struct esp_big *b); /* into a; b is used up */

#endif
