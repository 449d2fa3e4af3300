/* The two leaves that see tokens and not only bytes: sets of tokens taken whole, and budgets of tokens.
 *
 *   TOKEN {5, 9-12}    its derivative by the token 9 is ""; by any byte it is nothing
 *   BUDGET r, n        bytes lead on in r; the end of a token costs one; with none left it is over, but for the
 *                      rest of a character that was begun:  n = 2  ─token─►  n = 1  ─token─►  ""
 *
 * A token that ends where the budget begins costs nothing, and neither does one that goes on behind its end.
 * For masks only "some left" and "none left" differ (machine.c cuts the number down).
 * Thread: the owner's, or under the store's lock.
 */
#include "grammar/expr.h"

uint32_t esp_expr_token(struct esp_exprs *x, const uint32_t *pairs, uint32_t n_pairs)
{
    uint32_t at = x->n_lists;
    if (n_pairs == 0 || !esp_exprs_list(x, pairs, n_pairs * 2)) {
        return ESP_EXPR_EMPTY;
    }
    return esp_expr_intern(
        x, (struct esp_expr){
               .op = ESP_X_TOKEN, .flags = ESP_EXPR_TOKENS | ESP_EXPR_NO_TEXT, .height = 1, .a = at, .b = n_pairs * 2});
}

uint32_t esp_expr_budget(struct esp_exprs *x, uint32_t r, uint32_t n_tokens, bool begun)
{
    const struct esp_expr *e = &x->exprs[r];
    if (n_tokens == ESP_EXPR_INF || r == ESP_EXPR_EMPTY || r == ESP_EXPR_EPS) {
        return r;
    }
    if (n_tokens == 0 && (e->flags & ESP_EXPR_NULLABLE) != 0) {
        return ESP_EXPR_EPS;
    }
    x->budgets = true;
    unsigned flags = (e->flags & (ESP_EXPR_NULLABLE | ESP_EXPR_FIRSTS)) | ESP_EXPR_NO_TEXT;
    return esp_expr_intern(x, (struct esp_expr){.op = ESP_X_BUDGET,
                                                .flags = (uint8_t)flags,
                                                .height = (uint16_t)(e->height + 1),
                                                .a = r,
                                                .b = n_tokens,
                                                .c = begun});
}

static uint32_t tick_alt(struct esp_exprs *x, uint32_t id)
{
    struct esp_expr e = x->exprs[id];
    uint32_t mark = x->n_scratch;
    bool same = true;
    for (uint32_t idx = 0; idx < e.b; idx++) {
        uint32_t member = x->lists[e.a + idx], ticked = esp_expr_tick(x, member);
        same = same && member == ticked;
        esp_exprs_push(x, ticked);
    }
    uint32_t result = same || x->failed != ESP_OK ? id : esp_expr_alt(x, x->scratch + mark, e.b);
    x->n_scratch = mark;
    return result;
}

/* Only what comes first was begun. Recursion follows heads, which ESP_EXPR_HEIGHT_MAX limits. */
uint32_t esp_expr_tick(struct esp_exprs *x, uint32_t id)
{
    struct esp_expr e = x->exprs[id];
    if ((e.flags & ESP_EXPR_NO_TEXT) == 0) {
        return id;
    }
    switch (e.op) {
    case ESP_X_BUDGET: return e.c != 0 && e.b > 0 ? esp_expr_budget(x, e.a, e.b - 1, true) : id;
    case ESP_X_ALT: return tick_alt(x, id);
    case ESP_X_CAT: {
        uint32_t head = esp_expr_tick(x, e.a);
        return head == e.a ? id : esp_expr_cat(x, head, e.b);
    }
    default: return id;
    }
}

void esp_expr_tokens(struct esp_exprs *x, uint32_t id)
{
    while (x->exprs[id].op == ESP_X_CAT) {
        esp_expr_tokens(x, x->exprs[id].a);
        if (!esp_expr_nullable(x, x->exprs[id].a)) {
            return;
        }
        id = x->exprs[id].b;
    }
    const struct esp_expr e = x->exprs[id];
    if ((e.flags & ESP_EXPR_TOKENS) == 0) {
        return;
    }
    switch (e.op) {
    case ESP_X_TOKEN:
        for (uint32_t at = 0; at < e.b; at++) {
            esp_exprs_push(x, x->lists[e.a + at]);
        }
        break;
    case ESP_X_ALT:
        for (uint32_t idx = 0; idx < e.b; idx++) {
            esp_expr_tokens(x, x->lists[e.a + idx]);
        }
        break;
    case ESP_X_REP: esp_expr_tokens(x, e.a); break;
    default: break;
    }
}
