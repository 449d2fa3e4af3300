/* States of arrays of distinct items. See unique.h. */
#include "grammar/unique.h"

#include <string.h>

#include "grammar/objects.h"

#define SET_BYTES (ESP_UNIQUE_VALUES_MAX / 8)

static bool has(const unsigned char *set, uint32_t value)
{
    return (set[value / 8] >> (value % 8) & 1) != 0;
}

/* One more value, and then the state with it. */
static uint32_t one_item(struct esp_exprs *x, uint32_t array, const unsigned char *set)
{
    const struct esp_unique *u = esp_objects_unique(x->objects, array);
    unsigned char next[SET_BYTES];
    uint32_t mark = x->n_scratch, state;
    for (uint32_t idx = 0; idx < u->n && x->failed == ESP_OK; idx++) {
        if (has(set, idx)) {
            continue;
        }
        memcpy(next, set, sizeof next);
        next[idx / 8] |= (unsigned char)(1u << idx % 8);
        esp_status status = esp_nums_add_text(&x->nums, (const char *)next, sizeof next, &state);
        if (status != ESP_OK) {
            esp_exprs_fail(x, status);
        }
        esp_exprs_push(x, esp_expr_cat(x, u->values[idx], esp_expr_unique(x, array, state)));
    }
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

uint32_t esp_unique_expand(struct esp_exprs *x, const struct esp_expr *e)
{
    const struct esp_unique *u = esp_objects_unique(x->objects, e->a);
    unsigned char set[SET_BYTES];
    uint32_t n = 0, close = ESP_EXPR_EMPTY, more = ESP_EXPR_EMPTY;
    memcpy(set, x->nums.texts[e->b], sizeof set);
    for (uint32_t idx = 0; idx < u->n; idx++) {
        n += has(set, idx);
    }
    if (n >= u->min) {
        close = u->close;
    }
    if (n < u->max && n < u->n) {
        more = esp_expr_cat(x, u->comma, one_item(x, e->a, set));
    }
    return esp_expr_alt2(x, close, more);
}

uint32_t esp_unique_add(struct esp_exprs *x, const struct esp_unique *unique)
{
    static const unsigned char none[SET_BYTES];
    uint32_t array;
    if (unique->n < unique->min || unique->min > unique->max) {
        return ESP_EXPR_EMPTY;
    }
    if (!esp_objects_add_unique(x->objects, unique, &array)) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    uint32_t close = unique->min == 0 ? unique->close : ESP_EXPR_EMPTY;
    uint32_t item = unique->max > 0 ? one_item(x, array, none) : ESP_EXPR_EMPTY;
    return esp_expr_alt2(x, close, item);
}
