/* Numbers inside bounds as expressions: the text written so far, or what it amounts to.
 *
 *   0 … 65535   6    tight: 65535 begins with it         state by its text
 *               12   1200 and 12000 fit, whatever follows      [0-9]{0,3}(\.[0-9]+)?
 *   ≥ 0         5    free                                [0-9]*(\.[0-9]+)?([eE][+-]?[0-9]+)?
 *   multiple of 7, unbounded: 12345 leaves the same rest as 11    state by the smaller text
 *
 * So the states of a number are few: the prefixes of its bounds and what branches off from them, and the walk of
 * all tokens of three digits meets the same ones again and again. Thread: the owner's, or under the store's lock.
 */
#include <string.h>

#include "grammar/bignum.h"
#include "grammar/expr.h"
#include "grammar/number_in.h"

enum side { SIDE_OUT, SIDE_IN, SIDE_BOTH };

/* Do all numbers from digits·10^j up to the next one lie inside? */
static enum side side_of(const struct esp_num_mag *m, const struct esp_num_prefix *p, int64_t j)
{
    char up[ESP_NUM_DIGITS_MAX + 2];
    struct esp_decimal above = esp_num_next_above(p, up), d = {.digits = p->sig, .n = p->n_sig, .exp = p->n_sig + j};
    while (d.n > 0 && d.digits[d.n - 1] == '0') {
        d.n--;
    }
    d.exp = d.n == 0 ? 0 : d.exp;
    above.exp += j;
    int low = esp_decimal_compare_abs(&d, &m->lo), low_above = esp_decimal_compare_abs(&above, &m->lo);
    int high = m->has_hi ? esp_decimal_compare_abs(&d, &m->hi) : -1;
    int high_above = m->has_hi ? esp_decimal_compare_abs(&above, &m->hi) : -1;
    if (low_above <= 0 || high > 0 || (high == 0 && m->hi_open)) {
        return SIDE_OUT;
    }
    return low >= m->lo_open && high_above <= 0 ? SIDE_IN : SIDE_BOTH;
}

/* How many more digits before the point keep it inside, when each number of them decides: *ret_last may be INF. */
static bool digits_inside(const struct esp_num_mag *m, const struct esp_num_prefix *p, uint32_t *ret_first,
                          uint32_t *ret_last)
{
    int64_t end = m->has_hi ? m->hi.exp - p->n_sig : m->lo.exp - p->n_sig + 1;
    bool found = false;
    for (int64_t j = 0; j <= (end > 0 ? end : 0); j++) {
        enum side side = side_of(m, p, j);
        if (side == SIDE_BOTH || (side == SIDE_OUT && found)) {
            return side == SIDE_OUT;
        }
        if (side == SIDE_IN) {
            *ret_first = found ? *ret_first : (uint32_t)j;
            *ret_last = m->has_hi ? (uint32_t)j : ESP_EXPR_INF;
            found = true;
        }
    }
    return found;
}

static uint32_t digits(struct esp_exprs *x, uint32_t lo, uint32_t hi)
{
    return esp_expr_rep(x, esp_expr_range(x, '0', '9'), lo, hi);
}

/* The rest of a fraction that no digit can spoil: `begun` when it has a digit already. */
static uint32_t fraction(struct esp_exprs *x, const struct esp_bounds *b, bool begun)
{
    uint32_t digit = b->integer ? esp_expr_byte(x, '0') : esp_expr_range(x, '0', '9');
    return esp_expr_rep(x, digit, begun ? 0 : 1, ESP_EXPR_INF);
}

static uint32_t any_exponent(struct esp_exprs *x)
{
    struct esp_byteset e = {{0}}, sign = {{0}};
    esp_byteset_add(&e, 'e', 'e');
    esp_byteset_add(&e, 'E', 'E');
    esp_byteset_add(&sign, '+', '+');
    esp_byteset_add(&sign, '-', '-');
    uint32_t power = esp_expr_cat(x, esp_expr_opt(x, esp_expr_set(x, &sign)), digits(x, 1, ESP_EXPR_INF));
    return esp_expr_opt(x, esp_expr_cat(x, esp_expr_set(x, &e), power));
}

/* Digits before the point are being written. */
static uint32_t free_integer(struct esp_exprs *x, const struct esp_bounds *b, const struct esp_num_mag *m,
                             const struct esp_num_prefix *p)
{
    uint32_t first = 0, last = 0, tail = ESP_EXPR_EPS;
    if (p->n_sig == 0 || !digits_inside(m, p, &first, &last)) {
        return ESP_EXPR_EMPTY;
    }
    if (!b->plain) {
        tail = esp_expr_opt(x, esp_expr_cat(x, esp_expr_byte(x, '.'), fraction(x, b, false)));
    }
    if (p->n_int == 1 && !b->plain) { /* an exponent may follow, which must be free, too */
        if (m->lo.n > 0 || m->has_hi || b->integer) {
            return ESP_EXPR_EMPTY;
        }
        tail = esp_expr_cat(x, tail, any_exponent(x));
    }
    return esp_expr_cat(x, digits(x, first, last), tail);
}

/* Do the digits, as those of a mantissa, differ from the bound's already? */
static bool diverged(const struct esp_num_prefix *p, const struct esp_decimal *bound)
{
    for (uint32_t at = 0; at < p->n_sig; at++) {
        if (p->sig[at] != (at < bound->n ? bound->digits[at] : '0')) {
            return true;
        }
    }
    return false;
}

/* A fraction of a mantissa that an exponent may follow. Once its digits differ from those of the bounds, the powers
 * of ten that bring it inside are the same whatever digits follow. */
static uint32_t free_mantissa(struct esp_exprs *x, const struct esp_num_mag *m, const struct esp_num_prefix *p,
                              enum side side, uint32_t exponent)
{
    bool apart = (m->lo.n == 0 || diverged(p, &m->lo)) && (!m->has_hi || diverged(p, &m->hi));
    if (m->lo.n == 0 && !m->has_hi && side == SIDE_IN) {
        return esp_expr_cat(x, digits(x, p->n_frac == 0, ESP_EXPR_INF), any_exponent(x));
    }
    if (p->n_frac == 0 || side == SIDE_BOTH || !apart) {
        return ESP_EXPR_EMPTY;
    }
    struct esp_byteset e = {{0}};
    esp_byteset_add(&e, 'e', 'e');
    esp_byteset_add(&e, 'E', 'E');
    uint32_t with = esp_expr_cat(x, esp_expr_set(x, &e), exponent);
    if (side == SIDE_OUT) { /* an exponent must come: no endless digits before it */
        return esp_expr_cat(x, digits(x, 0, 17), with);
    }
    return esp_expr_cat(x, digits(x, 0, ESP_EXPR_INF), esp_expr_opt(x, with));
}

/* After the point. */
static uint32_t free_fraction(struct esp_exprs *x, const struct esp_bounds *b, const struct esp_num_mag *m,
                              const struct esp_num_prefix *p, uint32_t exponent)
{
    enum side side = side_of(m, p, -(int64_t)p->n_frac);
    bool plain = p->n_sig == 0 || !esp_num_normalised(p);
    if (b->integer) {
        struct esp_decimal d = esp_num_mantissa(p);
        return plain && esp_num_mag_has(m, &d) ? fraction(x, b, p->n_frac > 0) : ESP_EXPR_EMPTY;
    }
    if (plain) {
        return side == SIDE_IN && p->n_sig > 0 ? fraction(x, b, p->n_frac > 0) : ESP_EXPR_EMPTY;
    }
    return free_mantissa(x, m, p, side, exponent);
}

/* ---- Multiples ---------------------------------------------------------------------------------- */

/* Brings the multiples of d among the whole numbers into `all`. False when they are too long to be worth it. */
static bool join_period(const struct esp_decimal *d, struct esp_big *all)
{
    struct esp_big next, divisor, rest, product;
    int64_t low = d->exp - (int64_t)d->n, zeros = low > 0 ? low : 0;
    if (d->n == 0 || d->n + zeros > 18) {
        return d->n == 0;
    }
    /* digits·10^low: what is left of the digits when they and 10^−low share nothing */
    esp_big_digits(&next, d->digits, d->n, (uint32_t)zeros);
    for (; low < 0; low++) {
        for (uint32_t prime = 2; prime <= 5; prime += 3) {
            struct esp_big part = next;
            next = esp_big_div_small(&part, prime) == 0 ? part : next;
        }
    }
    divisor = *all;
    rest = next;
    esp_big_gcd(&divisor, &rest);
    esp_big_divide(all, &divisor, &product, &rest);
    esp_big_mul(&product, &next, all);
    return true;
}

/* The least whole number that all multiples share. */
static bool period(const struct esp_bounds *b, struct esp_big *ret)
{
    esp_big_set(ret, 1);
    bool fits = join_period(&b->step, ret);
    for (uint32_t idx = 0; idx < b->n_not && fits; idx++) {
        fits = join_period(&b->not_of[idx], ret);
    }
    return fits && ret->n <= 2;
}

/* The least number above the lower bound, of two digits or more, that leaves the same rest, as text. Returns its
 * length, or n when the text is as good. */
static uint32_t smaller_text(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p,
                             char *text, uint32_t n)
{
    struct esp_big modulus, value, base, rest, part;
    char low[ESP_NUM_DIGITS_MAX + 2];
    int64_t n_low = m->lo.exp > 1 ? m->lo.exp : 1;
    if (m->has_hi || p->n_int < 2 || n_low + 2 >= p->n_int || !period(b, &modulus)) {
        return n;
    }
    memset(low, '0', (size_t)n_low + 1);
    low[0] = '1'; /* above any bound of n_low digits */
    esp_big_digits(&base, low, (uint32_t)n_low + 1, 0);
    esp_big_digits(&value, p->sig, p->n_sig, 0);
    esp_big_divide(&value, &modulus, NULL, &rest);
    esp_big_divide(&base, &modulus, NULL, &part);
    /* base + (rest − part) mod modulus */
    if (esp_big_compare(&rest, &part) >= 0) {
        esp_big_add(&base, &rest);
    } else {
        esp_big_add(&base, &modulus);
        esp_big_add(&base, &rest);
    }
    esp_big_subtract(&base, &part);
    uint32_t n_digits = esp_big_print(&base, low, ESP_NUM_DIGITS_MAX);
    if (n_digits >= p->n_int) {
        return n;
    }
    memcpy(text + p->neg, low, n_digits);
    return p->neg + n_digits;
}

/* ---- The expression ----------------------------------------------------------------------------- */

static uint32_t by_text(struct esp_exprs *x, uint32_t bounds, const char *text, uint32_t n_bytes)
{
    const struct esp_bounds *b = &x->nums.bounds[bounds];
    unsigned flags = ESP_EXPR_BYTES | (esp_num_complete(b, text, n_bytes) ? ESP_EXPR_NULLABLE : 0);
    uint32_t text_id;
    esp_status status = esp_nums_add_text(&x->nums, text, n_bytes, &text_id);
    if (status != ESP_OK) {
        esp_exprs_fail(x, status);
        return ESP_EXPR_EMPTY;
    }
    return esp_expr_intern(
        x, (struct esp_expr){.op = ESP_X_NUM, .flags = (uint8_t)flags, .height = 1, .a = bounds, .b = text_id});
}

/* What the text amounts to; EMPTY when it must stay itself. */
static uint32_t freed(struct esp_exprs *x, uint32_t bounds, const char *text, uint32_t n_bytes,
                      const struct esp_num_mag *m, const struct esp_num_prefix *p)
{
    const struct esp_bounds b = x->nums.bounds[bounds];
    char with[ESP_NUM_TEXT_MAX + 2];
    if (b.fraction) {
        return ESP_EXPR_EMPTY;
    }
    if (!p->dot) {
        return free_integer(x, &b, m, p);
    }
    uint32_t exponent = ESP_EXPR_EMPTY;
    memcpy(with, text, n_bytes);
    with[n_bytes] = 'e';
    if (p->n_frac > 0 && !b.integer && esp_num_normalised(p) && esp_num_live(&b, with, n_bytes + 1)) {
        exponent = by_text(x, bounds, with, n_bytes + 1);
    }
    return free_fraction(x, &b, m, p, exponent);
}

uint32_t esp_expr_num(struct esp_exprs *x, uint32_t bounds, const char *text, uint32_t n_bytes)
{
    const struct esp_bounds *b = &x->nums.bounds[bounds];
    struct esp_num_prefix p;
    struct esp_num_mag m;
    if (!esp_num_live(b, text, n_bytes)) {
        return ESP_EXPR_EMPTY;
    }
    bool digit = n_bytes > 0 && text[n_bytes - 1] != '-';
    if (!digit || n_bytes >= ESP_NUM_TEXT_MAX || !esp_num_parse(text, n_bytes, &p) || p.exp ||
        !esp_num_mag_of(b, p.neg, &m)) {
        return by_text(x, bounds, text, n_bytes);
    }
    if (esp_num_has_step(b)) {
        char shorter[ESP_NUM_TEXT_MAX + 2];
        memcpy(shorter, text, n_bytes);
        uint32_t n = p.dot ? n_bytes : smaller_text(b, &m, &p, shorter, n_bytes);
        return by_text(x, bounds, shorter, n);
    }
    uint32_t id = freed(x, bounds, text, n_bytes, &m, &p);
    return id != ESP_EXPR_EMPTY ? id : by_text(x, bounds, text, n_bytes);
}
