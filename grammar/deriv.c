/* Derivatives: what is left of an expression after one byte, and the rows that remember it.
 *
 * Recursion follows nesting only (members of ALT, heads of CAT, bodies of REP), which the constructors
 * limit to ESP_EXPR_HEIGHT_MAX; sequences are walked in loops. A row is filled a class of bytes at a
 * time: bytes that no set in front tells apart share one derivative.
 * Thread: the owner's, or under the store's lock.
 */
#include "grammar/expr.h"

#include <string.h>

#include "grammar/live.h"
#include "grammar/objects.h"
#include "grammar/vec.h"

/* Phases of the reader of JSON strings. */
enum {
    PHASE_BORDER,
    PHASE_TAIL1, /* continuation bytes to come */
    PHASE_TAIL2,
    PHASE_TAIL3,
    PHASE_ESCAPE, /* after \ */
    PHASE_HEX4,   /* after \u */
    PHASE_HEX3,
    PHASE_HEX2,
    PHASE_HEX1,
    PHASE_HEX3_D, /* after \ud: a surrogate or not */
    PHASE_HIGH2,  /* after \ud8 … \udb */
    PHASE_HIGH1,
    PHASE_LOW_ESCAPE, /* a low surrogate must follow */
    PHASE_LOW_U
};

static bool is_high_surrogate_digit(unsigned byte)
{
    return byte == '8' || byte == '9' || (byte | 0x20) == 'a' || (byte | 0x20) == 'b';
}

unsigned esp_phase_next(unsigned phase, unsigned byte)
{
    static const unsigned char next[] = {
        [PHASE_TAIL1] = PHASE_BORDER, [PHASE_TAIL2] = PHASE_TAIL1,      [PHASE_TAIL3] = PHASE_TAIL2,
        [PHASE_HEX3] = PHASE_HEX2,    [PHASE_HEX2] = PHASE_HEX1,        [PHASE_HEX1] = PHASE_BORDER,
        [PHASE_HIGH2] = PHASE_HIGH1,  [PHASE_HIGH1] = PHASE_LOW_ESCAPE, [PHASE_LOW_ESCAPE] = PHASE_LOW_U,
        [PHASE_LOW_U] = PHASE_HEX4};
    static const unsigned char leads[4] = {PHASE_TAIL1, PHASE_TAIL1, PHASE_TAIL2, PHASE_TAIL3}; /* C, D, E, F */
    switch (phase) {
    case PHASE_BORDER: return byte == '\\' ? PHASE_ESCAPE : byte < 0xC0 ? PHASE_BORDER : leads[(byte >> 4) - 12];
    case PHASE_ESCAPE: return byte == 'u' ? PHASE_HEX4 : PHASE_BORDER;
    case PHASE_HEX4: return (byte | 0x20) == 'd' ? PHASE_HEX3_D : PHASE_HEX3;
    case PHASE_HEX3_D: return is_high_surrogate_digit(byte) ? PHASE_HIGH2 : PHASE_HEX2;
    default: return next[phase];
    }
}

static uint32_t deriv_cat(struct esp_exprs *x, uint32_t id, unsigned byte)
{
    uint32_t mark = x->n_scratch;
    for (;;) {
        struct esp_expr e = x->exprs[id];
        if (e.op != ESP_X_CAT) {
            esp_exprs_push(x, esp_expr_deriv(x, id, byte));
            break;
        }
        uint32_t d = esp_expr_deriv(x, e.a, byte);
        if (d != ESP_EXPR_EMPTY) {
            esp_exprs_push(x, esp_expr_cat(x, d, e.b));
        }
        if (!esp_expr_nullable(x, e.a) || x->failed != ESP_OK) {
            break;
        }
        id = e.b;
    }
    uint32_t n = x->n_scratch - mark;
    uint32_t result = n == 1 ? x->scratch[mark] : esp_expr_alt(x, x->scratch + mark, n);
    x->n_scratch = mark;
    return result;
}

static uint32_t deriv_list(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    uint32_t mark = x->n_scratch;
    for (uint32_t idx = 0; idx < e->b; idx++) {
        uint32_t d = esp_expr_deriv(x, x->lists[e->a + idx], byte);
        if (d != ESP_EXPR_EMPTY) {
            esp_exprs_push(x, d);
        } else if (e->op == ESP_X_AND) {
            x->n_scratch = mark;
            return ESP_EXPR_EMPTY;
        }
    }
    uint32_t n = x->n_scratch - mark, result;
    if (n <= 1) {
        result = n == 0 ? ESP_EXPR_EMPTY : x->scratch[mark];
    } else {
        result = e->op == ESP_X_AND ? esp_expr_and(x, x->scratch + mark, n) : esp_expr_alt(x, x->scratch + mark, n);
    }
    x->n_scratch = mark;
    return result;
}

static uint32_t deriv_len(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    uint32_t d = esp_expr_deriv(x, e->a, byte), lo = e->c, hi = e->d;
    if (d == ESP_EXPR_EMPTY) {
        return ESP_EXPR_EMPTY;
    }
    unsigned phase = esp_phase_next(e->b, byte);
    if (phase == PHASE_BORDER) {
        if (hi == 0) {
            return ESP_EXPR_EMPTY;
        }
        lo -= lo > 0;
        hi -= hi != ESP_EXPR_INF;
    }
    return esp_expr_len(x, d, phase, lo, hi);
}

static uint32_t deriv_num(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    char text[ESP_NUM_TEXT_MAX + 1];
    uint32_t n = x->nums.text_bytes[e->b];
    if (n >= ESP_NUM_TEXT_MAX || byte == 0 || strchr("0123456789+-.eE", (int)byte) == NULL) {
        return ESP_EXPR_EMPTY;
    }
    memcpy(text, x->nums.texts[e->b], n);
    text[n] = (char)byte;
    return esp_expr_num(x, e->a, text, n + 1);
}

static uint32_t deriv_not(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    uint32_t base = esp_expr_deriv(x, e->a, byte);
    return base == ESP_EXPR_EMPTY ? base : esp_expr_not(x, base, esp_expr_deriv(x, e->b, byte));
}

static bool has_token(const struct esp_exprs *x, const struct esp_expr *e, unsigned symbol)
{
    for (uint32_t at = 0; at < e->b && symbol >= ESP_SYMBOL_TOKEN; at += 2) {
        uint32_t token = symbol - ESP_SYMBOL_TOKEN;
        if (token >= x->lists[e->a + at] && token <= x->lists[e->a + at + 1]) {
            return true;
        }
    }
    return false;
}

static uint32_t deriv_rep(struct esp_exprs *x, const struct esp_expr *e, unsigned symbol)
{
    uint32_t d = esp_expr_deriv(x, e->a, symbol);
    if (d == ESP_EXPR_EMPTY) {
        return ESP_EXPR_EMPTY;
    }
    uint32_t hi = e->d == ESP_EXPR_INF ? e->d : e->d - 1;
    return esp_expr_cat(x, d, esp_expr_rep(x, e->a, e->c > 0 ? e->c - 1 : 0, hi));
}

/* Of the leaves that only bytes lead on in. */
static uint32_t deriv_bytes(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    switch (e->op) {
    case ESP_X_SET: {
        uint32_t word = x->lists[e->a + (byte >> 5)];
        return word >> (byte & 31) & 1 ? ESP_EXPR_EPS : ESP_EXPR_EMPTY;
    }
    case ESP_X_LEN: return deriv_len(x, e, byte);
    case ESP_X_NUM: return deriv_num(x, e, byte);
    case ESP_X_KEYS: return esp_keys_deriv(x, e, byte);
    case ESP_X_UNIQUE: return esp_expr_deriv(x, esp_unique_expand(x, e), byte);
    case ESP_X_NOT: return deriv_not(x, e, byte);
    default: return ESP_EXPR_EMPTY;
    }
}

/* Each number of tokens left is an expression of its own; what it counts is the same, and keeps a row. */
static uint32_t deriv_budget(struct esp_exprs *x, const struct esp_expr *e, unsigned symbol)
{
    const struct esp_row *row = symbol < ESP_SYMBOL_TOKEN ? esp_expr_row(x, e->a) : NULL;
    return esp_expr_budget(x, row != NULL ? row->next[symbol] : esp_expr_deriv(x, e->a, symbol), e->b, true);
}

uint32_t esp_expr_deriv(struct esp_exprs *x, uint32_t id, unsigned symbol)
{
    struct esp_expr e = x->exprs[id];
    if (symbol >= ESP_SYMBOL_TOKEN && (e.flags & ESP_EXPR_TOKENS) == 0) {
        return ESP_EXPR_EMPTY;
    }
    if (x->fuel == 0) {
        esp_exprs_fail(x, ESP_ELIMIT);
        return ESP_EXPR_EMPTY;
    }
    x->fuel--;
    switch (e.op) {
    case ESP_X_CAT: return deriv_cat(x, id, symbol);
    case ESP_X_ALT:
    case ESP_X_AND: return deriv_list(x, &e, symbol);
    case ESP_X_REP: return deriv_rep(x, &e, symbol);
    case ESP_X_TOKEN: return has_token(x, &e, symbol) ? ESP_EXPR_EPS : ESP_EXPR_EMPTY;
    case ESP_X_BUDGET: return deriv_budget(x, &e, symbol);
    default: return deriv_bytes(x, &e, symbol);
    }
}

/* ---- Rows -------------------------------------------------------------------------------------- */

/* Mixes the identity of a set into the signature of its bytes. */
static void sign(uint64_t *signature, const uint32_t *words, uint64_t salt)
{
    for (unsigned word = 0; word < 8; word++) {
        for (uint32_t bits = words[word]; bits != 0; bits &= bits - 1) {
            uint64_t *s = &signature[word * 32 + (unsigned)__builtin_ctz(bits)];
            *s = *s * UINT64_C(0x9e3779b97f4a7c15) + salt;
        }
    }
}

static void sign_range(uint64_t *signature, unsigned first, unsigned last, uint64_t salt)
{
    for (unsigned byte = first; byte <= last; byte++) {
        signature[byte] = signature[byte] * UINT64_C(0x9e3779b97f4a7c15) + salt;
    }
}

static void sign_heads(struct esp_exprs *x, uint32_t id, uint64_t *signature);

static void sign_keys(struct esp_exprs *x, const struct esp_expr *e, uint64_t *signature)
{
    struct esp_byteset set;
    if (e->op == ESP_X_UNIQUE || e->b == ESP_KEYS_REST) {
        sign_heads(x, e->op == ESP_X_UNIQUE ? esp_unique_expand(x, e) : esp_keys_expand(x, e), signature);
        return;
    }
    uint32_t free = esp_keys_free(x, e);
    if (free != ESP_EXPR_EMPTY) {
        sign_heads(x, free, signature);
    }
    esp_keys_bytes(x, e, &set);
    for (unsigned byte = 0; byte < 256; byte++) {
        if (esp_byteset_has(&set, byte)) {
            sign_range(signature, byte, byte, 2000 + byte);
        }
    }
}

static void sign_heads(struct esp_exprs *x, uint32_t id, uint64_t *signature)
{
    while (x->exprs[id].op == ESP_X_CAT) {
        sign_heads(x, x->exprs[id].a, signature);
        if (!esp_expr_nullable(x, x->exprs[id].a)) {
            return;
        }
        id = x->exprs[id].b;
    }
    const struct esp_expr e = x->exprs[id];
    switch (e.op) {
    case ESP_X_SET: sign(signature, &x->lists[e.a], (uint64_t)id * 2 + 1); break;
    case ESP_X_ALT:
    case ESP_X_AND:
        for (uint32_t idx = 0; idx < e.b; idx++) {
            sign_heads(x, x->lists[e.a + idx], signature);
        }
        break;
    case ESP_X_REP:
    case ESP_X_BUDGET: sign_heads(x, e.a, signature); break;
    case ESP_X_LEN:
        sign_heads(x, e.a, signature);
        sign_range(signature, '\\', '\\', 2);
        sign_range(signature, 0xC0, 0xDF, 4);
        sign_range(signature, 0xE0, 0xEF, 6);
        sign_range(signature, 0xF0, 0xFF, 8);
        sign_range(signature, 'u', 'u', 10);
        if (e.b == PHASE_HEX4 || e.b == PHASE_HEX3_D) {
            for (unsigned byte = '0'; byte <= 'f'; byte++) {
                sign_range(signature, byte, byte, 12 + byte);
            }
        }
        break;
    case ESP_X_NUM:
        for (const char *c = "0123456789+-.eE"; *c != '\0'; c++) {
            sign_range(signature, (unsigned char)*c, (unsigned char)*c, 1000 + (unsigned char)*c);
        }
        break;
    case ESP_X_NOT:
        sign_heads(x, e.a, signature);
        sign_heads(x, e.b, signature);
        break;
    case ESP_X_KEYS:
    case ESP_X_UNIQUE: sign_keys(x, &e, signature); break;
    default: break;
    }
}

static bool fill_calls(struct esp_exprs *x, uint32_t id, struct esp_row *row)
{
    uint32_t mark = x->n_scratch;
    if ((x->exprs[id].flags & ESP_EXPR_CALLS) == 0) {
        return true;
    }
    esp_expr_calls(x, id);
    row->n_calls = (x->n_scratch - mark) / 2;
    row->calls = esp_arena_alloc(&x->arena, row->n_calls, sizeof *row->calls);
    if (row->calls != NULL) {
        memcpy(row->calls, x->scratch + mark, (size_t)row->n_calls * sizeof *row->calls);
    } else {
        esp_exprs_fail(x, ESP_ENOMEM);
    }
    x->n_scratch = mark;
    return x->failed == ESP_OK;
}

const struct esp_row *esp_expr_row(struct esp_exprs *x, uint32_t id)
{
    if (x->exprs[id].row != 0) {
        return x->rows[x->exprs[id].row];
    }
    struct esp_row *row = esp_arena_alloc(&x->arena, 1, sizeof *row);
    if (row == NULL) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return NULL;
    }
    uint64_t signature[256] = {0};
    unsigned char reps[256]; /* one byte of each class so far */
    unsigned n_reps = 0;
    sign_heads(x, id, signature);
    for (unsigned byte = 0; byte < 256; byte++) {
        if (signature[byte] == 0) {
            continue; /* in no set: EMPTY */
        }
        unsigned rep = 0;
        while (rep < n_reps && signature[reps[rep]] != signature[byte]) {
            rep++;
        }
        if (rep == n_reps) {
            reps[n_reps++] = (unsigned char)byte;
            row->next[byte] = esp_expr_deriv(x, id, byte);
        } else {
            row->next[byte] = row->next[reps[rep]];
        }
    }
    if (x->failed != ESP_OK || !fill_calls(x, id, row)) {
        return NULL;
    }
    if (!esp_vec_grow(&x->rows, &x->rows_cap, (uint64_t)x->n_rows + 1)) { /* only now: deriving may have made rows */
        esp_exprs_fail(x, ESP_ENOMEM);
        return NULL;
    }
    x->exprs[id].row = x->n_rows;
    x->rows[x->n_rows++] = row;
    return row;
}

uint32_t esp_expr_step(struct esp_exprs *x, uint32_t id, unsigned byte)
{
    uint32_t row = x->exprs[id].row;
    return row != 0 ? x->rows[row]->next[byte] : esp_expr_deriv(x, id, byte);
}

/* ---- Calls ------------------------------------------------------------------------------------- */

/* Appends `rest` to the continuations pushed since mark. */
static void extend(struct esp_exprs *x, uint32_t mark, uint32_t rest)
{
    for (uint32_t at = mark; at < x->n_scratch; at += 2) {
        uint32_t cont = esp_expr_cat(x, x->scratch[at + 1], rest);
        x->scratch[at + 1] = cont;
    }
}

void esp_expr_calls(struct esp_exprs *x, uint32_t id)
{
    for (;;) {
        struct esp_expr e = x->exprs[id];
        uint32_t mark = x->n_scratch;
        if ((e.flags & ESP_EXPR_CALLS) == 0 || x->failed != ESP_OK) {
            return;
        }
        switch (e.op) {
        case ESP_X_CALL:
            esp_exprs_push(x, e.a);
            esp_exprs_push(x, ESP_EXPR_EPS);
            return;
        case ESP_X_ALT:
            for (uint32_t idx = 0; idx < e.b; idx++) {
                esp_expr_calls(x, x->lists[e.a + idx]);
            }
            return;
        case ESP_X_REP:
            esp_expr_calls(x, e.a);
            extend(x, mark, esp_expr_rep(x, e.a, e.c > 0 ? e.c - 1 : 0, e.d == ESP_EXPR_INF ? e.d : e.d - 1));
            return;
        case ESP_X_CAT:
            esp_expr_calls(x, e.a);
            extend(x, mark, e.b);
            if (!esp_expr_nullable(x, e.a)) {
                return;
            }
            id = e.b;
            break;
        default: return;
        }
    }
}
