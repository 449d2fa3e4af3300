/* What number.c and number_step.c share: magnitudes and prefixes. Inside of numbers. Thread: any, plain data. */
#ifndef ESP_GRAMMAR_NUMBER_IN_H
#define ESP_GRAMMAR_NUMBER_IN_H

#include "grammar/number.h"

#define ESP_NUM_FAR INT64_C(4000000000000000000)

/* The magnitudes of one sign that lie inside some bounds. */
struct esp_num_mag {
    struct esp_decimal lo, hi;
    bool has_hi, lo_open, hi_open, integer, fraction;
};

/* A prefix, taken apart. */
struct esp_num_prefix {
    bool neg, dot, exp, exp_neg, exp_sign;
    uint32_t n_int, n_frac, n_exp; /* digits written */
    int64_t exp_value;
    uint32_t n_sig; /* digits without leading zeros */
    char sig[ESP_NUM_DIGITS_MAX + 2];
};

/* False when there are none. */
bool esp_num_mag_of(const struct esp_bounds *bounds, bool neg, struct esp_num_mag *ret);
bool esp_num_mag_has(const struct esp_num_mag *m, const struct esp_decimal *value);
bool esp_num_parse(const char *text, uint32_t n, struct esp_num_prefix *p);
/* The mantissa as a decimal; digits borrowed from p. */
struct esp_decimal esp_num_mantissa(const struct esp_num_prefix *p);
/* The range of exponents E with d·10^E inside; false when there is none. */
bool esp_num_exponents(const struct esp_num_mag *m, const struct esp_decimal *d, int64_t *ret_lo, int64_t *ret_hi);
/* Is the exponent written so far (complete) inside lo … hi, or can its digits grow into that? */
bool esp_num_exponent_live(const struct esp_num_prefix *p, int64_t lo, int64_t hi, bool complete);
/* The digits of p plus one in the last place, written to `up` [ESP_NUM_DIGITS_MAX + 2]. */
struct esp_decimal esp_num_next_above(const struct esp_num_prefix *p, char *up);

/* May an exponent follow? Only after one digit that is not zero, and a fraction, or after zero. */
static inline bool esp_num_normalised(const struct esp_num_prefix *p)
{
    return p->n_sig == 0 || (p->n_int == 1 && p->n_sig == p->n_int + p->n_frac);
}

/* number_step.c: the same questions for bounds with multiples. */
static inline bool esp_num_has_step(const struct esp_bounds *b)
{
    return b->step.n > 0 || b->n_not > 0;
}
bool esp_num_step_has(const struct esp_bounds *b, const struct esp_decimal *value);
bool esp_num_step_complete(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p);
bool esp_num_step_live(const struct esp_bounds *b, const struct esp_num_mag *m, const struct esp_num_prefix *p);
/* Copies the multiples of bounds that have some. ESP_ELIMIT when there are too many digits for exact arithmetic. */
esp_status esp_num_step_prepare(struct esp_nums *nums, struct esp_bounds *b);

#endif
