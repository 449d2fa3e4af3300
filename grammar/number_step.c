/* Numbers that are multiples of something, or of nothing in a list. See number.h.
 *
 *   grid       the values asked for are multiples of a step, at most so many digits long
 *   between    the first of them at or above the lower end is found by division; those that are multiples to be
 *              avoided are passed over. Of r divisors above one, at most ESP_NUM_NOT_MAX, more than 40 numbers in a
 *              row never each have one (Jacobsthal's function), so that a short search settles it
 *   exponent   D·10^t is a multiple of M = 2^a 5^b M' just when M' divides D and t ≥ max(a − v2(D), b − v5(D))
 *
 * Everything is exact. Thread: any, plain data.
 */
#include <string.h>

#include "grammar/bignum.h"
#include "grammar/number_in.h"

#define SEARCH_MAX 64

static const struct esp_decimal one = {.digits = "1", .n = 1, .exp = 1};

/* The power of ten of the last digit. */
static int64_t low_of(const struct esp_decimal *d)
{
    return d->exp - (int64_t)d->n;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How often `prime` divides a, at most `most` times; a is divided. */
static uint32_t strip(struct esp_big *a, uint32_t prime, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && a->n > 0) {
        struct esp_big part = *a;
        if (esp_big_div_small(&part, prime) != 0) {
            break;
        }
        *a = part;
        n++;
    }
    return n;
}

/* The least E that makes d·10^E a multiple of m; above ESP_NUM_FAR when none does. d is not zero. */
static int64_t least_exponent(const struct esp_decimal *d, const struct esp_decimal *m)
{
    struct esp_big digits, factor, rest;
    esp_big_digits(&factor, m->digits, m->n, 0);
    int64_t twos = strip(&factor, 2, UINT32_MAX), fives = strip(&factor, 5, UINT32_MAX);
    esp_big_digits(&digits, d->digits, d->n, 0);
    esp_big_divide(&digits, &factor, NULL, &rest);
    if (rest.n > 0) {
        return ESP_NUM_FAR + 1;
    }
    twos -= strip(&digits, 2, (uint32_t)twos);
    fives -= strip(&digits, 5, (uint32_t)fives);
    /* What is left over after stripping as much as m has may hold more: then t may be negative. */
    int64_t spare_twos = twos > 0 ? 0 : strip(&digits, 2, UINT32_MAX);
    int64_t spare_fives = fives > 0 ? 0 : strip(&digits, 5, UINT32_MAX);
    return larger(twos - spare_twos, fives - spare_fives) + low_of(m) - low_of(d);
}

static bool is_multiple(const struct esp_decimal *d, const struct esp_decimal *m)
{
    return d->n == 0 || least_exponent(d, m) <= 0;
}

bool esp_num_step_has(const struct esp_bounds *b, const struct esp_decimal *value)
{
    bool has = b->step.n == 0 || is_multiple(value, &b->step);
    for (uint32_t idx = 0; idx < b->n_not && has; idx++) {
        has = !is_multiple(value, &b->not_of[idx]);
    }
    return has;
}

/* ---- Values between two ends -------------------------------------------------------------------- */

struct range {
    struct esp_decimal lo, hi;
    bool lo_open, hi_open;
};

/* The common multiple of the step and 10^grid, as digits and a power of ten. */
static int64_t step_on_grid(const struct esp_decimal *step, int64_t grid, struct esp_big *ret_digits)
{
    if (step->n == 0) {
        esp_big_set(ret_digits, 1);
        return grid;
    }
    esp_big_digits(ret_digits, step->digits, step->n, 0);
    if (grid <= low_of(step)) {
        return low_of(step);
    }
    uint32_t most = (uint32_t)smaller(grid - low_of(step), 4 * ESP_BIG_DIGITS_MAX);
    strip(ret_digits, 2, most);
    strip(ret_digits, 5, most);
    return grid;
}

static void scaled(struct esp_big *ret, const struct esp_decimal *d, int64_t unit)
{
    esp_big_digits(ret, d->digits, d->n, d->n == 0 ? 0 : (uint32_t)(low_of(d) - unit));
}

/* The multiples to be avoided as whole numbers of the unit, which is lowered first to hold them. */
static int64_t avoided(const struct esp_bounds *b, int64_t unit, struct esp_big *avoid)
{
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        unit = smaller(unit, low_of(&b->not_of[idx]));
    }
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        scaled(&avoid[idx], &b->not_of[idx], unit);
    }
    return unit;
}

static bool is_avoided(const struct esp_big *value, const struct esp_big *avoid, uint32_t n)
{
    struct esp_big rest = {.n = 1};
    for (uint32_t at = 0; at < n && rest.n > 0; at++) {
        esp_big_divide(value, &avoid[at], NULL, &rest);
    }
    return rest.n == 0;
}

/* Does a multiple of the step on the grid, and of nothing to be avoided, lie in the range? */
static bool exists(const struct esp_bounds *b, const struct range *r, int64_t grid)
{
    struct esp_big step, value, hi, count, rest, avoid[ESP_NUM_NOT_MAX];
    int64_t step_low = step_on_grid(&b->step, grid, &step), unit = smaller(step_low, low_of(&r->lo));
    unit = avoided(b, smaller(unit, low_of(&r->hi)), avoid);
    for (; step_low > unit; step_low--) {
        esp_big_mul_small(&step, 10);
    }
    scaled(&value, &r->lo, unit);
    scaled(&hi, &r->hi, unit);
    esp_big_divide(&value, &step, &count, &rest);
    esp_big_mul(&count, &step, &value);
    if (rest.n > 0 || r->lo_open) {
        esp_big_add(&value, &step);
    }
    for (int idx = 0; idx < SEARCH_MAX && !value.over; idx++) {
        int order = esp_big_compare(&value, &hi);
        if (order > 0 || (order == 0 && r->hi_open)) {
            return false;
        }
        if (!is_avoided(&value, avoid, b->n_not)) {
            return true;
        }
        esp_big_add(&value, &step);
    }
    return false;
}

/* The values whose digits begin with those of p, times 10^j, and inside m. False when there are none. */
static bool range_of(const struct esp_num_mag *m, const struct esp_num_prefix *p, int64_t j, char *up,
                     struct range *ret)
{
    struct esp_decimal d = {.digits = p->sig, .n = p->n_sig, .exp = p->n_sig + j};
    struct esp_decimal above = esp_num_next_above(p, up);
    while (d.n > 0 && d.digits[d.n - 1] == '0') {
        d.n--;
    }
    d.exp = d.n == 0 ? 0 : d.exp;
    above.exp += j;
    struct range r = {.lo = d, .hi = above, .hi_open = true};
    int order = esp_decimal_compare_abs(&m->lo, &d);
    if (order >= 0) {
        r.lo = m->lo;
        r.lo_open = m->lo_open;
    }
    if (m->has_hi && esp_decimal_compare_abs(&m->hi, &above) < 0) {
        r.hi = m->hi;
        r.hi_open = m->hi_open;
    }
    order = esp_decimal_compare_abs(&r.lo, &r.hi);
    *ret = r;
    return order < 0 || (order == 0 && !r.lo_open && !r.hi_open);
}

/* ---- Digits alone ------------------------------------------------------------------------------- */

/* Where no step gives a grid: finer than everything that is given, but no more digits than may be written. */
static int64_t fine_grid(const struct esp_bounds *b, const struct range *r, int64_t n_digits)
{
    int64_t low = smaller(low_of(&r->lo), low_of(&r->hi));
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        low = smaller(low, low_of(&b->not_of[idx]));
    }
    return larger(low - 2, n_digits - ESP_NUM_DIGITS_MAX);
}

/* Can j more digits before the point (or the last written one's place 10^j behind it), and a fraction, do? */
static bool plain_at(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p, int64_t j)
{
    char up[ESP_NUM_DIGITS_MAX + 2];
    struct range r;
    int64_t n_digits = p->n_int + larger(j, 0), n_fraction = b->step.n > 0 ? larger(-low_of(&b->step), 0) : 0;
    if (n_digits + n_fraction > ESP_NUM_DIGITS_MAX || !range_of(m, p, j, up, &r)) {
        return false;
    }
    return exists(b, &r, b->step.n > 0 ? low_of(&b->step) : fine_grid(b, &r, n_digits));
}

/* From which power of ten on an interval of one in the last digit surely holds a value. */
static int64_t wide_enough(const struct esp_bounds *b)
{
    int64_t exp = b->step.n > 0 ? b->step.exp : 0;
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        exp = larger(exp, b->not_of[idx].exp);
    }
    return exp + 3;
}

static bool plain_live(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p)
{
    if (p->dot || p->n_sig == 0) {
        return plain_at(b, m, p, -(int64_t)p->n_frac);
    }
    int64_t first = m->lo.n == 0 ? 0 : larger(0, m->lo.exp - p->n_sig - 1);
    int64_t last = larger(first + 2, wide_enough(b));
    if (m->has_hi) {
        last = m->hi.n == 0 ? -1 : m->hi.exp - p->n_sig;
    }
    for (int64_t j = smaller(last, ESP_NUM_DIGITS_MAX); j >= first; j--) { /* the widest is the likeliest */
        if (plain_at(b, m, p, j)) {
            return true;
        }
    }
    return false;
}

/* ---- With an exponent --------------------------------------------------------------------------- */

static bool exponent_live(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p,
                          bool complete)
{
    struct esp_decimal d = esp_num_mantissa(p);
    int64_t lo, hi;
    if (d.n == 0) { /* zero, whatever the exponent, is a multiple of everything */
        return (!complete || p->n_exp > 0) && b->n_not == 0 && esp_num_mag_has(m, &d);
    }
    if (!esp_num_exponents(m, &d, &lo, &hi)) {
        return false;
    }
    lo = b->step.n > 0 ? larger(lo, least_exponent(&d, &b->step)) : lo;
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        hi = smaller(hi, least_exponent(&d, &b->not_of[idx]) - 1);
    }
    return esp_num_exponent_live(p, lo, hi, complete);
}

/* Digits of a mantissa before its exponent. */
static uint32_t mantissa_limit(const struct esp_bounds *b)
{
    uint32_t n = b->step.n;
    n = b->has_lo && b->lo.n > n ? b->lo.n : n;
    n = b->has_hi && b->hi.n > n ? b->hi.n : n;
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        n = b->not_of[idx].n > n ? b->not_of[idx].n : n;
    }
    return n + 17;
}

/* Can more digits and then an exponent do? The value is then a multiple of 10^(j − n_more). */
static bool grows(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p,
                  int64_t n_more)
{
    char up[ESP_NUM_DIGITS_MAX + 2];
    struct range r;
    int64_t lowest = m->lo.n > 0 ? m->lo.exp : b->step.n > 0 ? b->step.exp : m->has_hi ? m->hi.exp : 0;
    int64_t first = lowest - p->n_sig - 2, last = larger(first + 4, 0);
    if (m->has_hi) {
        last = m->hi.n == 0 ? first - 1 : m->hi.exp - p->n_sig;
    } else if (b->step.n > 0) {
        last = larger(last, low_of(&b->step) + n_more + 4 * (int64_t)b->step.n); /* no power of 2 or 5 is left */
        first = b->n_not == 0 ? last : first;
    }
    for (int64_t j = last; j >= first; j--) {
        if (range_of(m, p, j, up, &r) && exists(b, &r, j - n_more)) {
            return true;
        }
    }
    return false;
}

/* ---- The whole ---------------------------------------------------------------------------------- */

bool esp_num_step_complete(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p)
{
    if (p->exp) {
        return exponent_live(b, m, p, true);
    }
    struct esp_decimal d = esp_num_mantissa(p);
    return (!p->dot || p->n_frac > 0) && esp_num_mag_has(m, &d) && esp_num_step_has(b, &d);
}

/* Only an end or an exponent may follow. */
static bool live_at_limit(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p)
{
    struct esp_num_prefix with = *p;
    with.exp = true;
    return esp_num_step_complete(b, m, p) ||
           (!b->plain && (!p->dot || p->n_frac > 0) && esp_num_normalised(p) && exponent_live(b, m, &with, false));
}

bool esp_num_step_live(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p)
{
    uint32_t n_digits = p->n_int + p->n_frac, limit = mantissa_limit(b);
    if (p->exp) {
        return exponent_live(b, m, p, false);
    }
    if (n_digits == ESP_NUM_DIGITS_MAX) {
        return live_at_limit(b, m, p);
    }
    if (plain_live(b, m, p)) {
        return true;
    }
    if (b->plain || p->n_int != 1 || p->n_sig != n_digits || n_digits > limit) {
        return false;
    }
    return n_digits < limit ? grows(b, m, p, limit - n_digits) : live_at_limit(b, m, p);
}

/* ---- Preparing ---------------------------------------------------------------------------------- */

esp_status esp_num_lcm(struct esp_arena *arena, const struct esp_decimal *a, const struct esp_decimal *b,
                       struct esp_decimal *ret)
{
    struct esp_big x, y, divisor, rest, product;
    int64_t unit = smaller(low_of(a), low_of(b));
    uint32_t cap = ESP_NUM_BOUND_DIGITS_MAX + ESP_NUM_STEP_EXP_MAX;
    if (larger(a->exp, b->exp) - unit > cap) {
        return ESP_ELIMIT;
    }
    scaled(&x, a, unit);
    scaled(&y, b, unit);
    divisor = x;
    rest = y;
    esp_big_gcd(&divisor, &rest);
    esp_big_divide(&x, &divisor, &product, &rest);
    esp_big_mul(&product, &y, &x);
    char *digits = esp_arena_alloc(arena, (size_t)cap + 1, 1);
    if (digits == NULL) {
        return ESP_ENOMEM;
    }
    uint32_t n = esp_big_print(&x, digits, cap);
    if (n > cap || x.over) {
        return ESP_ELIMIT;
    }
    *ret = (struct esp_decimal){.digits = digits, .n = n, .exp = n + unit};
    while (ret->n > 0 && digits[ret->n - 1] == '0') {
        ret->n--;
    }
    return ESP_OK;
}

static bool fits(const struct esp_decimal *d)
{
    return d->n <= ESP_NUM_BOUND_DIGITS_MAX && d->exp <= ESP_NUM_STEP_EXP_MAX && d->exp >= -ESP_NUM_STEP_EXP_MAX;
}

static bool all_fit(const struct esp_bounds *b)
{
    bool fit = b->n_not <= ESP_NUM_NOT_MAX && fits(&b->step) && (!b->has_lo || fits(&b->lo)) &&
               (!b->has_hi || fits(&b->hi));
    for (uint32_t idx = 0; idx < b->n_not && fit; idx++) {
        fit = fits(&b->not_of[idx]);
    }
    return fit;
}

static bool copy_digits(struct esp_nums *nums, struct esp_decimal *d)
{
    d->digits = esp_arena_strndup(&nums->arena, d->digits, d->n);
    return d->digits != NULL;
}

/* What is to be avoided, one included where the value is no integer, copied. */
static esp_status copy_avoided(struct esp_nums *nums, struct esp_bounds *b)
{
    bool add_one = b->fraction; /* unless an earlier call did */
    struct esp_decimal *not_of = esp_arena_alloc(&nums->arena, (size_t)b->n_not + 2, sizeof *not_of);
    if (not_of == NULL) {
        return ESP_ENOMEM;
    }
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        not_of[idx] = b->not_of[idx];
        add_one = add_one && esp_decimal_compare(&b->not_of[idx], &one) != 0;
    }
    not_of[b->n_not] = one;
    b->not_of = not_of;
    b->n_not += add_one;
    for (uint32_t idx = 0; idx < b->n_not; idx++) {
        if (!copy_digits(nums, &not_of[idx])) {
            return ESP_ENOMEM;
        }
    }
    return ESP_OK;
}

esp_status esp_num_step_prepare(struct esp_nums *nums, struct esp_bounds *b)
{
    esp_status status = copy_avoided(nums, b);
    if (status == ESP_OK && b->integer) {
        status = esp_num_lcm(&nums->arena, b->step.n > 0 ? &b->step : &one, &one, &b->step);
    }
    if (status != ESP_OK) {
        return status;
    }
    if (!all_fit(b)) {
        return ESP_ELIMIT;
    }
    return b->step.n == 0 || copy_digits(nums, &b->step) ? ESP_OK : ESP_ENOMEM;
}
