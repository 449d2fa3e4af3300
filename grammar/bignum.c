/* Long arithmetic as on paper. See bignum.h. Division is Knuth's algorithm D (TAOCP 4.3.1). */
#include "grammar/bignum.h"

#include <string.h>

static void trim(struct esp_big *a)
{
    while (a->n > 0 && a->w[a->n - 1] == 0) {
        a->n--;
    }
}

static void push(struct esp_big *a, uint32_t word)
{
    if (a->n == ESP_BIG_WORDS) {
        a->over = true;
    } else {
        a->w[a->n++] = word;
    }
}

void esp_big_set(struct esp_big *a, uint32_t value)
{
    a->n = value != 0;
    a->over = false;
    a->w[0] = value;
}

/* a · factor + more */
static void mul_add(struct esp_big *a, uint32_t factor, uint32_t more)
{
    uint64_t carry = more;
    for (uint32_t idx = 0; idx < a->n; idx++) {
        carry += (uint64_t)a->w[idx] * factor;
        a->w[idx] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0) {
        push(a, (uint32_t)carry);
    }
    trim(a);
}

void esp_big_mul_small(struct esp_big *a, uint32_t factor)
{
    mul_add(a, factor, 0);
}

void esp_big_digits(struct esp_big *a, const char *digits, uint32_t n, uint32_t n_zeros)
{
    esp_big_set(a, 0);
    for (uint32_t at = 0; at < n;) {
        uint32_t part = 0, scale = 1;
        for (; at < n && scale < 1000000000; at++, scale *= 10) {
            part = part * 10 + (uint32_t)(digits[at] - '0');
        }
        mul_add(a, scale, part);
    }
    for (; n_zeros >= 9; n_zeros -= 9) {
        mul_add(a, 1000000000, 0);
    }
    for (; n_zeros > 0; n_zeros--) {
        mul_add(a, 10, 0);
    }
}

uint32_t esp_big_print(const struct esp_big *a, char *digits, uint32_t cap)
{
    struct esp_big rest = *a;
    uint32_t n = 0;
    while (rest.n > 0 && n < cap) {
        digits[n++] = (char)('0' + esp_big_div_small(&rest, 10));
    }
    for (uint32_t at = 0; at < n / 2; at++) {
        char c = digits[at];
        digits[at] = digits[n - 1 - at];
        digits[n - 1 - at] = c;
    }
    return rest.n > 0 ? cap + 1 : n;
}

int esp_big_compare(const struct esp_big *a, const struct esp_big *b)
{
    if (a->n != b->n) {
        return a->n < b->n ? -1 : 1;
    }
    for (uint32_t idx = a->n; idx-- > 0;) {
        if (a->w[idx] != b->w[idx]) {
            return a->w[idx] < b->w[idx] ? -1 : 1;
        }
    }
    return 0;
}

void esp_big_add(struct esp_big *a, const struct esp_big *b)
{
    uint64_t carry = 0;
    a->over = a->over || b->over;
    while (a->n < b->n) {
        a->w[a->n++] = 0;
    }
    for (uint32_t idx = 0; idx < a->n; idx++) {
        carry += (uint64_t)a->w[idx] + (idx < b->n ? b->w[idx] : 0);
        a->w[idx] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry != 0) {
        push(a, (uint32_t)carry);
    }
}

void esp_big_subtract(struct esp_big *a, const struct esp_big *b)
{
    int64_t borrow = 0;
    for (uint32_t idx = 0; idx < a->n; idx++) {
        borrow += (int64_t)a->w[idx] - (idx < b->n ? (int64_t)b->w[idx] : 0);
        a->w[idx] = (uint32_t)borrow;
        borrow >>= 32;
    }
    trim(a);
}

void esp_big_mul(const struct esp_big *a, const struct esp_big *b, struct esp_big *ret)
{
    esp_big_set(ret, 0);
    ret->over = a->over || b->over || a->n + b->n > ESP_BIG_WORDS;
    if (ret->over) {
        return;
    }
    ret->n = a->n + b->n;
    memset(ret->w, 0, ret->n * sizeof ret->w[0]);
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->n; j++) {
            carry += (uint64_t)a->w[i] * b->w[j] + ret->w[i + j];
            ret->w[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        ret->w[i + b->n] = (uint32_t)carry;
    }
    trim(ret);
}

uint32_t esp_big_div_small(struct esp_big *a, uint32_t divisor)
{
    uint64_t rest = 0;
    for (uint32_t idx = a->n; idx-- > 0;) {
        rest = rest << 32 | a->w[idx];
        a->w[idx] = (uint32_t)(rest / divisor);
        rest %= divisor;
    }
    trim(a);
    return (uint32_t)rest;
}

/* src · 2^shift to dst, n + 1 words. */
static void shift_left(const uint32_t *src, uint32_t n, unsigned shift, uint32_t *dst)
{
    uint32_t carry = 0;
    for (uint32_t idx = 0; idx < n; idx++) {
        uint64_t wide = (uint64_t)src[idx] << shift;
        dst[idx] = (uint32_t)wide | carry;
        carry = (uint32_t)(wide >> 32);
    }
    dst[n] = carry;
}

/* u[0 … n] −= q · v[0 … n − 1]; true when that went below zero. */
static bool subtract(uint32_t *u, const uint32_t *v, uint32_t n, uint64_t q)
{
    uint64_t carry = 0;
    int64_t borrow = 0;
    for (uint32_t idx = 0; idx <= n; idx++) {
        carry += idx < n ? q * v[idx] : 0;
        borrow += (int64_t)u[idx] - (int64_t)(uint32_t)carry;
        u[idx] = (uint32_t)borrow;
        borrow >>= 32;
        carry >>= 32;
    }
    return borrow < 0;
}

static void add_back(uint32_t *u, const uint32_t *v, uint32_t n)
{
    uint64_t carry = 0;
    for (uint32_t idx = 0; idx < n; idx++) {
        carry += (uint64_t)u[idx] + v[idx];
        u[idx] = (uint32_t)carry;
        carry >>= 32;
    }
    u[n] += (uint32_t)carry;
}

/* A digit of the quotient from the three highest words of what is left; at most one too large. */
static uint64_t guess(const uint32_t *u, const uint32_t *v, uint32_t n)
{
    uint64_t top = (uint64_t)u[n] << 32 | u[n - 1], q = top / v[n - 1], r = top % v[n - 1];
    while (q >> 32 != 0 || q * v[n - 2] > (r << 32 | u[n - 2])) {
        q--;
        r += v[n - 1];
        if (r >> 32 != 0) {
            break;
        }
    }
    return q;
}

void esp_big_divide(const struct esp_big *a, const struct esp_big *b, struct esp_big *quotient,
                    struct esp_big *remainder)
{
    uint32_t u[ESP_BIG_WORDS + 2], v[ESP_BIG_WORDS + 1], n = b->n;
    struct esp_big q = {.over = a->over || b->over};
    if (n < 2 || esp_big_compare(a, b) < 0) {
        bool small = esp_big_compare(a, b) < 0;
        uint32_t rest = 0;
        if (!small) {
            q = *a;
            rest = esp_big_div_small(&q, b->w[0]);
        }
        if (small) {
            *remainder = *a;
        } else {
            esp_big_set(remainder, rest);
        }
        if (quotient != NULL) {
            *quotient = q;
        }
        return;
    }
    unsigned shift = (unsigned)__builtin_clz(b->w[n - 1]);
    shift_left(a->w, a->n, shift, u);
    shift_left(b->w, n, shift, v);
    q.n = a->n - n + 1;
    for (uint32_t at = q.n; at-- > 0;) {
        uint64_t digit = guess(u + at, v, n);
        if (subtract(u + at, v, n, digit)) {
            digit--;
            add_back(u + at, v, n);
        }
        q.w[at] = (uint32_t)digit;
    }
    trim(&q);
    esp_big_set(remainder, 0);
    remainder->over = q.over;
    remainder->n = n;
    for (uint32_t idx = 0; idx < n; idx++) {
        remainder->w[idx] = (uint32_t)(((uint64_t)u[idx + 1] << 32 | u[idx]) >> shift);
    }
    trim(remainder);
    if (quotient != NULL) {
        *quotient = q;
    }
}

void esp_big_gcd(struct esp_big *a, struct esp_big *b)
{
    struct esp_big rest;
    while (b->n > 0) {
        esp_big_divide(a, b, NULL, &rest);
        *a = *b;
        *b = rest;
    }
}
