/* Arrays of distinct items from a list of values, as states of an automaton: which values are taken.
 *
 *   values a b c     state {}  ──a──►  {a}  ──c──►  {a, c}  ──►  ]
 *
 * A state stands between two items; its set of bits is a text of the number tables (number.h), so that equal sets
 * are equal states. Tables are written while a schema is compiled. Thread: any for reading.
 */
#ifndef ESP_GRAMMAR_UNIQUE_H
#define ESP_GRAMMAR_UNIQUE_H

#include "grammar/expr.h"

#define ESP_UNIQUE_VALUES_MAX 512u

struct esp_unique {
    const uint32_t *values; /* [n] expressions; copied by add */
    uint32_t n, min, max;   /* items */
    uint32_t comma, close;
};

/* The expression of the items and the closing bracket, EMPTY when there are not enough values. */
uint32_t esp_unique_add(struct esp_exprs *x, const struct esp_unique *unique);
/* What may come in a state: the end, or a comma and another value. */
uint32_t esp_unique_expand(struct esp_exprs *x, const struct esp_expr *e);

#endif
