/* JSON numbers inside exact bounds, as states of an automaton over their text.
 *
 * A state is the text written so far. It is live when some completion is a value inside the bounds:
 *   plain       digits and a fraction can still reach the interval
 *   normalised  one non-zero digit, a fraction, and then an exponent (d.ddd e±x)
 *   exponent    after the e: some power of ten brings the mantissa into the interval, exactly
 * So every value is reachable, exponents and −0 work where the range allows the value, and a prefix such
 * as "10" under maximum 4 is refused although 10e-1 would fit: it would tempt a model into endless digits.
 * Under multiples (step, not_of) a prefix is live when a value that fits them lies between what its digits can
 * grow to, which long division tells; d·10^E is a multiple from some E on, or never.
 * Everything is digit arithmetic on text. Thread: the owner's, or under the store's lock.
 */
#ifndef ESP_GRAMMAR_NUMBER_H
#define ESP_GRAMMAR_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/decimal.h"
#include "runtime/base/arena.h"
#include "runtime/base/map.h"
#include "runtime/base/status.h"

#define ESP_NUM_BOUND_DIGITS_MAX 128
#define ESP_NUM_DIGITS_MAX 400 /* written digits of a mantissa */
#define ESP_NUM_EXP_DIGITS_MAX 18
#define ESP_NUM_NOT_MAX 8        /* multiples to avoid in one number */
#define ESP_NUM_STEP_EXP_MAX 400 /* powers of ten of multiples and of bounds beside them */
#define ESP_NUM_TEXT_MAX (ESP_NUM_DIGITS_MAX + ESP_NUM_EXP_DIGITS_MAX + 8)

struct esp_bounds {
    bool has_lo, has_hi, lo_open, hi_open;
    bool integer;              /* the value is an integer */
    bool fraction;             /* the value is none */
    bool plain;                /* draft-04 integers: digits only, no fraction, no exponent */
    struct esp_decimal lo, hi; /* digits borrowed */
    struct esp_decimal step;   /* above zero: the value is a multiple of it */
    const struct esp_decimal *not_of; /* [n_not] above zero: the value is a multiple of none of them */
    uint32_t n_not;
};

struct esp_nums {
    struct esp_bounds *bounds;
    uint32_t n_bounds, bounds_cap;
    const char **texts;
    uint32_t *text_bytes;
    uint32_t n_texts, texts_cap, text_bytes_cap;
    struct esp_bytesmap map;
    struct esp_arena arena;
};

void esp_nums_init(struct esp_nums *nums);
void esp_nums_finish(struct esp_nums *nums);                                  /* zeroed is fine */
esp_status esp_nums_copy(struct esp_nums *nums, const struct esp_nums *from); /* into an initialised one */
size_t esp_nums_bytes(const struct esp_nums *nums);
/* Copies the bounds' digits. ESP_ELIMIT when a bound has too many digits. */
esp_status esp_nums_add_bounds(struct esp_nums *nums, const struct esp_bounds *bounds, uint32_t *ret_id);
esp_status esp_nums_add_text(struct esp_nums *nums, const char *text, uint32_t n_bytes, uint32_t *ret_id);

/* Whether text can be completed, and whether it is complete, inside the bounds. */
bool esp_num_live(const struct esp_bounds *bounds, const char *text, uint32_t n_bytes);
bool esp_num_complete(const struct esp_bounds *bounds, const char *text, uint32_t n_bytes);
/* The least common multiple of two steps, digits in the arena. ESP_ELIMIT when it has too many digits. */
esp_status esp_num_lcm(struct esp_arena *arena, const struct esp_decimal *a, const struct esp_decimal *b,
                       struct esp_decimal *ret);
/* Whether a value lies inside the bounds (type integer and multiples included). */
bool esp_num_inside(const struct esp_bounds *bounds, const struct esp_decimal *value);

#endif
