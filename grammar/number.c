/* Liveness and completeness of number prefixes. The reasoning is in number.h.
 *
 * Inside: the sign is split off first, so that everything below works on magnitudes, an interval
 * [lo, hi] of non-negative decimals. D is the run of digits written, J a power of ten: a prefix reaches
 * the interval when some D·10^J … (D+1)·10^J meets it.
 */
#include "grammar/number.h"

#include <string.h>

#include "grammar/number_in.h"
#include "grammar/vec.h"

#define FAR ESP_NUM_FAR

void esp_nums_init(struct esp_nums *nums)
{
    *nums = (struct esp_nums){0};
    esp_bytesmap_init(&nums->map, ESP_TAG_GRAMMAR);
    esp_arena_init(&nums->arena, ESP_TAG_GRAMMAR, SIZE_MAX / 2);
}

void esp_nums_finish(struct esp_nums *nums)
{
    esp_free(nums->bounds);
    esp_free(nums->texts);
    esp_free(nums->text_bytes);
    esp_bytesmap_finish(&nums->map);
    esp_arena_finish(&nums->arena);
    *nums = (struct esp_nums){0};
}

size_t esp_nums_bytes(const struct esp_nums *nums)
{
    return (size_t)nums->bounds_cap * sizeof *nums->bounds + (size_t)nums->texts_cap * sizeof *nums->texts +
           (size_t)nums->text_bytes_cap * 4 + nums->map.room * 24 + nums->arena.used_bytes;
}

static bool copy_digits(struct esp_nums *nums, struct esp_decimal *d)
{
    const char *copy = esp_arena_strndup(&nums->arena, d->digits, d->n);
    d->digits = copy;
    return copy != NULL;
}

/* ±1 on the whole number of `n` digits at `digits`; up may carry into digits[-1]. */
static void step_digits(char *digits, uint32_t n, bool up)
{
    uint32_t at = n;
    while (at > 0 && digits[at - 1] == (up ? '9' : '0')) {
        digits[--at] = up ? '0' : '9';
    }
    if (at > 0) {
        digits[at - 1] = (char)(digits[at - 1] + (up ? 1 : -1));
    } else {
        digits[-1] = '1';
    }
}

/* Moves a bound of an integer to the nearest integer inside. `lower`: it is the lower bound. */
static esp_status round_bound(struct esp_nums *nums, struct esp_decimal *d, bool open, bool lower)
{
    bool exact = esp_decimal_is_integer(d);
    if (exact && !open) {
        return ESP_OK;
    }
    bool neg = d->n == 0 ? !lower : d->neg;
    bool up = neg != lower; /* away from zero */
    int64_t n = d->exp > 0 ? d->exp : 0;
    if (n > ESP_NUM_DIGITS_MAX) {
        return ESP_ELIMIT;
    }
    char *digits = esp_arena_alloc(&nums->arena, (size_t)n + 2, 1);
    if (digits == NULL) {
        return ESP_ENOMEM;
    }
    memset(digits, '0', (size_t)n + 1);
    memcpy(digits + 1, d->digits, (size_t)(d->n < n ? d->n : n));
    if (up || exact) {
        step_digits(digits + 1, (uint32_t)n, up);
    }
    char room[ESP_NUM_DIGITS_MAX + 4];
    struct esp_decimal r = {0};
    uint32_t skip = 0;
    while (skip < n && digits[skip] == '0') {
        skip++;
    }
    esp_decimal_parse(digits + skip, (size_t)n + 1 - skip, room, &r);
    if (r.n > 0) {
        memcpy(digits, r.digits, r.n);
    }
    r.digits = digits;
    r.neg = neg && r.n > 0;
    *d = r;
    return ESP_OK;
}

static esp_status round_bounds(struct esp_nums *nums, struct esp_bounds *b)
{
    esp_status status = ESP_OK;
    if (b->has_lo) {
        status = round_bound(nums, &b->lo, b->lo_open, true);
        b->lo_open = false;
    }
    if (b->has_hi && status == ESP_OK) {
        status = round_bound(nums, &b->hi, b->hi_open, false);
        b->hi_open = false;
    }
    return status;
}

/* An end that is an integer is no fraction; between two ends that differ there are always some. */
static void open_bounds(struct esp_bounds *b)
{
    b->lo_open = b->lo_open || (b->fraction && b->has_lo && esp_decimal_is_integer(&b->lo));
    b->hi_open = b->hi_open || (b->fraction && b->has_hi && esp_decimal_is_integer(&b->hi));
}

esp_status esp_nums_add_bounds(struct esp_nums *nums, const struct esp_bounds *bounds, uint32_t *ret_id)
{
    struct esp_bounds b = *bounds;
    esp_status status = b.integer ? round_bounds(nums, &b) : ESP_OK;
    open_bounds(&b);
    if (status != ESP_OK) {
        return status;
    }
    status = esp_num_has_step(&b) ? esp_num_step_prepare(nums, &b) : ESP_OK;
    if (status != ESP_OK) {
        return status;
    }
    if ((b.has_lo && b.lo.n > ESP_NUM_BOUND_DIGITS_MAX) || (b.has_hi && b.hi.n > ESP_NUM_BOUND_DIGITS_MAX)) {
        return ESP_ELIMIT;
    }
    if (!esp_vec_grow(&nums->bounds, &nums->bounds_cap, (uint64_t)nums->n_bounds + 1) ||
        (b.has_lo && !copy_digits(nums, &b.lo)) || (b.has_hi && !copy_digits(nums, &b.hi))) {
        return ESP_ENOMEM;
    }
    nums->bounds[nums->n_bounds] = b;
    *ret_id = nums->n_bounds++;
    return ESP_OK;
}

esp_status esp_nums_add_text(struct esp_nums *nums, const char *text, uint32_t n_bytes, uint32_t *ret_id)
{
    uint32_t id = esp_bytesmap_get(&nums->map, text, n_bytes);
    if (id != ESP_MAP_NONE) {
        *ret_id = id;
        return ESP_OK;
    }
    const char *copy = esp_arena_strndup(&nums->arena, text, n_bytes);
    if (copy == NULL || !esp_vec_grow(&nums->texts, &nums->texts_cap, (uint64_t)nums->n_texts + 1) ||
        !esp_vec_grow(&nums->text_bytes, &nums->text_bytes_cap, (uint64_t)nums->n_texts + 1) ||
        esp_bytesmap_put(&nums->map, copy, n_bytes, nums->n_texts) != ESP_OK) {
        return ESP_ENOMEM;
    }
    nums->texts[nums->n_texts] = copy;
    nums->text_bytes[nums->n_texts] = n_bytes;
    *ret_id = nums->n_texts++;
    return ESP_OK;
}

esp_status esp_nums_copy(struct esp_nums *nums, const struct esp_nums *from)
{
    uint32_t id;
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < from->n_bounds && status == ESP_OK; idx++) {
        status = esp_nums_add_bounds(nums, &from->bounds[idx], &id);
    }
    for (uint32_t idx = 0; idx < from->n_texts && status == ESP_OK; idx++) {
        status = esp_nums_add_text(nums, from->texts[idx], from->text_bytes[idx], &id);
    }
    return status;
}

/* ---- Magnitudes ------------------------------------------------------------------------------- */

/* Mirrors the bounds of negative numbers, so that lo and hi are about magnitudes. */
static struct esp_num_mag mirror(const struct esp_bounds *b, bool neg, bool *ret_has_lo)
{
    *ret_has_lo = neg ? b->has_hi : b->has_lo;
    if (neg) {
        return (struct esp_num_mag){b->hi, b->lo, b->has_lo, b->hi_open, b->lo_open, b->integer, b->fraction};
    }
    return (struct esp_num_mag){b->lo, b->hi, b->has_hi, b->lo_open, b->hi_open, b->integer, b->fraction};
}

bool esp_num_mag_of(const struct esp_bounds *b, bool neg, struct esp_num_mag *ret)
{
    bool has_lo;
    struct esp_num_mag m = mirror(b, neg, &has_lo);
    /* The sign of a bound decides; zero belongs to both signs. */
    if (m.has_hi && m.hi.n > 0 && m.hi.neg != neg) {
        return false;
    }
    if (!has_lo || (m.lo.n > 0 && m.lo.neg != neg)) {
        m.lo = (struct esp_decimal){0};
        m.lo_open = false;
    }
    int order = m.has_hi ? esp_decimal_compare_abs(&m.lo, &m.hi) : -1;
    if (order > 0 || (order == 0 && (m.lo_open || m.hi_open))) {
        return false;
    }
    *ret = m;
    return true;
}

bool esp_num_mag_has(const struct esp_num_mag *m, const struct esp_decimal *v)
{
    int lo = esp_decimal_compare_abs(v, &m->lo);
    int hi = m->has_hi ? esp_decimal_compare_abs(v, &m->hi) : -1;
    return lo >= m->lo_open && (hi < 0 || (hi == 0 && !m->hi_open)) && (!m->integer || esp_decimal_is_integer(v)) &&
           (!m->fraction || !esp_decimal_is_integer(v));
}

bool esp_num_inside(const struct esp_bounds *bounds, const struct esp_decimal *value)
{
    struct esp_num_mag m;
    return esp_num_mag_of(bounds, value->neg, &m) && esp_num_mag_has(&m, value) && esp_num_step_has(bounds, value);
}

/* ---- A prefix, taken apart -------------------------------------------------------------------- */

static bool take_digit(struct esp_num_prefix *p, char c)
{
    if (p->exp) {
        if (++p->n_exp > ESP_NUM_EXP_DIGITS_MAX) {
            return false;
        }
        p->exp_value = p->exp_value * 10 + (c - '0');
        return true;
    }
    if (!p->dot && p->n_int == 1 && p->n_sig == 0) {
        return false; /* 01 */
    }
    p->n_int += !p->dot;
    p->n_frac += p->dot;
    if (p->n_int + p->n_frac > ESP_NUM_DIGITS_MAX) {
        return false;
    }
    if (c != '0' || p->n_sig > 0) {
        p->sig[p->n_sig++] = c;
    }
    return true;
}

static bool take_sign(struct esp_num_prefix *p, char c, bool first)
{
    if (first && c == '-') {
        return p->neg = true;
    }
    if (!p->exp || p->exp_sign || p->n_exp > 0) {
        return false;
    }
    p->exp_neg = c == '-';
    return p->exp_sign = true;
}

static bool take(struct esp_num_prefix *p, char c, bool first)
{
    bool digits = p->n_int > 0 && (!p->dot || p->n_frac > 0);
    switch (c) {
    case '-':
    case '+': return take_sign(p, c, first);
    case '.': return digits && !p->dot && !p->exp && (p->dot = true);
    case 'e':
    case 'E': return digits && !p->exp && (p->exp = true);
    default: return c >= '0' && c <= '9' && take_digit(p, c);
    }
}

bool esp_num_parse(const char *text, uint32_t n, struct esp_num_prefix *p)
{
    memset(p, 0, offsetof(struct esp_num_prefix, sig));
    for (uint32_t at = 0; at < n; at++) {
        if (!take(p, text[at], at == 0)) {
            return false;
        }
    }
    return true;
}

struct esp_decimal esp_num_mantissa(const struct esp_num_prefix *p)
{
    struct esp_decimal d = {.digits = p->sig, .n = p->n_sig, .exp = (int64_t)p->n_sig - p->n_frac};
    while (d.n > 0 && d.digits[d.n - 1] == '0') {
        d.n--;
    }
    if (d.n == 0) {
        d.exp = 0;
    }
    return d;
}

/* ---- Reaching --------------------------------------------------------------------------------- */

/* The largest j with d·10^j ≤ hi. */
static int64_t j_max(const struct esp_num_mag *m, struct esp_decimal d)
{
    if (!m->has_hi) {
        return FAR;
    }
    if (m->hi.n == 0) {
        return -FAR - 1; /* below every j_min: only zero fits */
    }
    int64_t j = m->hi.exp - d.exp;
    d.exp = m->hi.exp;
    int order = esp_decimal_compare_abs(&d, &m->hi);
    return order < 0 || (order == 0 && !m->hi_open) ? j : j - 1;
}

/* The smallest j with d·10^j > lo, or ≥ lo when `equal`. */
static int64_t j_min(const struct esp_num_mag *m, struct esp_decimal d, bool equal)
{
    if (m->lo.n == 0) {
        return -FAR;
    }
    int64_t j = m->lo.exp - d.exp;
    d.exp = m->lo.exp;
    int order = esp_decimal_compare_abs(&d, &m->lo);
    return order > 0 || (order == 0 && equal) ? j : j + 1;
}

struct esp_decimal esp_num_next_above(const struct esp_num_prefix *p, char *up)
{
    struct esp_decimal above = {.digits = up, .n = p->n_sig, .exp = p->n_sig};
    memcpy(up, p->sig, p->n_sig);
    while (above.n > 0 && up[above.n - 1] == '9') {
        above.n--;
    }
    if (above.n == 0) {
        up[0] = '1';
        above.n = 1;
        above.exp++;
    } else {
        up[above.n - 1]++;
    }
    return above;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Does some j in [first, last] make D·10^j … (D+1)·10^j meet the interval? D = the digits of p, not zero. */
static bool reaches(const struct esp_num_mag *m, const struct esp_num_prefix *p, int64_t first, int64_t last)
{
    char up[ESP_NUM_DIGITS_MAX + 2];
    struct esp_decimal above = esp_num_next_above(p, up), d = {.digits = p->sig, .n = p->n_sig, .exp = p->n_sig};
    while (d.n > 0 && d.digits[d.n - 1] == '0') {
        d.n--;
    }
    int64_t hi = smaller(j_max(m, d), last);
    int64_t real_first = m->integer ? larger(first, 0) : first;
    if (larger(j_min(m, above, false), real_first) <= hi) {
        return true;
    }
    /* Below j = 0 an interval narrower than one holds an integer only at its lower end. */
    int64_t zeros = (int64_t)p->n_sig - d.n;
    return m->integer && larger(larger(j_min(m, d, true), first), -zeros) <= smaller(hi, -1);
}

bool esp_num_exponents(const struct esp_num_mag *m, const struct esp_decimal *d, int64_t *ret_lo, int64_t *ret_hi)
{
    int64_t lo = j_min(m, *d, !m->lo_open), hi = j_max(m, *d);
    if (m->integer && lo < (int64_t)d->n - d->exp) {
        lo = (int64_t)d->n - d->exp;
    }
    if (m->fraction && hi >= (int64_t)d->n - d->exp) {
        hi = (int64_t)d->n - d->exp - 1;
    }
    *ret_lo = lo;
    *ret_hi = hi;
    return lo <= hi;
}

/* Can the exponent's digits so far (value p->exp_value, n_exp of them) grow into a … b? */
static bool exponent_grows(const struct esp_num_prefix *p, int64_t a, int64_t b)
{
    int64_t value = p->exp_value, span = 1;
    for (uint32_t n = p->n_exp; n <= ESP_NUM_EXP_DIGITS_MAX; n++) {
        if (n > 0 && value <= b && value + span - 1 >= a) {
            return true;
        }
        if (value > FAR / 10 || span > FAR / 10) {
            break;
        }
        value *= 10;
        span *= 10;
    }
    return false;
}

bool esp_num_exponent_live(const struct esp_num_prefix *p, int64_t lo, int64_t hi, bool complete)
{
    if (lo > hi || (complete && p->n_exp == 0)) {
        return false;
    }
    if (complete) {
        int64_t value = p->exp_neg ? -p->exp_value : p->exp_value;
        return lo <= value && value <= hi;
    }
    if (!p->exp_sign && p->n_exp == 0) {
        return true;
    }
    return p->exp_neg ? exponent_grows(p, -hi, -lo) : exponent_grows(p, lo, hi);
}

static bool exp_live(const struct esp_num_mag *m, const struct esp_num_prefix *p, bool complete)
{
    struct esp_decimal d = esp_num_mantissa(p);
    int64_t lo, hi;
    if (d.n == 0) {
        return (!complete || p->n_exp > 0) && esp_num_mag_has(m, &d);
    }
    return esp_num_exponents(m, &d, &lo, &hi) && esp_num_exponent_live(p, lo, hi, complete);
}

/* Can digits alone bring the value inside? */
static bool plain_live(const struct esp_num_mag *m, const struct esp_num_prefix *p)
{
    if (p->n_sig == 0) { /* 0, 0., 0.000 : values from 0 to 10^-n_frac */
        struct esp_decimal zero = {0}, top = {.digits = "1", .n = 1, .exp = 1 - (int64_t)p->n_frac};
        return m->integer ? esp_num_mag_has(m, &zero) : esp_decimal_compare_abs(&top, &m->lo) > 0;
    }
    if (!p->dot) {
        return reaches(m, p, 0, FAR);
    }
    return reaches(m, p, -(int64_t)p->n_frac, -(int64_t)p->n_frac);
}

static uint32_t digits_of(const struct esp_bounds *b)
{
    uint32_t n = b->has_lo ? b->lo.n : 0;
    return b->has_hi && b->hi.n > n ? b->hi.n : n;
}

bool esp_num_complete(const struct esp_bounds *b, const char *text, uint32_t n_bytes)
{
    struct esp_num_prefix p;
    struct esp_num_mag m;
    if (!esp_num_parse(text, n_bytes, &p) || p.n_int == 0 || !esp_num_mag_of(b, p.neg, &m)) {
        return false;
    }
    if (esp_num_has_step(b)) {
        return esp_num_step_complete(b, &m, &p);
    }
    if (p.exp) {
        return exp_live(&m, &p, true);
    }
    struct esp_decimal d = esp_num_mantissa(&p);
    return (!p.dot || p.n_frac > 0) && esp_num_mag_has(&m, &d);
}

/* At the limit of digits only an end or an exponent may follow. */
static bool live_at_limit(const struct esp_bounds *b, const struct esp_num_mag *m, struct esp_num_prefix *p,
                          const char *text, uint32_t n_bytes)
{
    if (esp_num_complete(b, text, n_bytes)) {
        return true;
    }
    p->exp = true;
    return !b->plain && (!p->dot || p->n_frac > 0) && esp_num_normalised(p) && exp_live(m, p, false);
}

/* Before the first digit: some digit must do. */
static bool start_live(const struct esp_bounds *b, bool neg)
{
    char text[3] = "-";
    for (char c = '0'; c <= '9'; c++) {
        text[neg] = c;
        if (esp_num_live(b, text, (uint32_t)neg + 1)) {
            return true;
        }
    }
    return false;
}

static bool mantissa_live(const struct esp_bounds *b, const struct esp_num_mag *m, struct esp_num_prefix *p,
                          const char *text, uint32_t n_bytes)
{
    uint32_t n_digits = p->n_int + p->n_frac, limit = digits_of(b) + 17;
    if (n_digits == ESP_NUM_DIGITS_MAX) {
        return live_at_limit(b, m, p, text, n_bytes);
    }
    if (plain_live(m, p)) {
        return true;
    }
    if (b->plain || p->n_int != 1 || p->n_sig != n_digits || n_digits > limit) {
        return false;
    }
    return n_digits < limit ? reaches(m, p, -FAR, FAR) : live_at_limit(b, m, p, text, n_bytes);
}

bool esp_num_live(const struct esp_bounds *b, const char *text, uint32_t n_bytes)
{
    struct esp_num_prefix p;
    struct esp_num_mag m;
    if (n_bytes == 0) {
        return start_live(b, false) || start_live(b, true);
    }
    if (n_bytes == 1 && text[0] == '-') {
        return start_live(b, true);
    }
    if (!esp_num_parse(text, n_bytes, &p) || !esp_num_mag_of(b, p.neg, &m) || (b->plain && (p.dot || p.exp))) {
        return false;
    }
    if (p.exp && !esp_num_normalised(&p)) {
        return false;
    }
    if (esp_num_has_step(b)) {
        return esp_num_step_live(b, &m, &p);
    }
    return p.exp ? exp_live(&m, &p, false) : mantissa_live(b, &m, &p, text, n_bytes);
}
