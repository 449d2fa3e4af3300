/* Hash-consed expressions over bytes: every grammar is a set of these, and every automaton state is one.
 *
 *   EMPTY nothing   EPS ""   SET one byte   CAT a·b   ALT a|b|…   REP a{lo,hi}   AND a∧b∧…
 *   CALL n     the value of node n (a rule of its own; the frame machine pushes)
 *   LEN r      r, as the text of a JSON string, with lo to hi code points; counters stay numbers
 *   NUM t      a JSON number inside exact bounds, of which t was written so far
 *   NOT a b    what a allows and b does not
 *   KEYS       members of an object: which keys may still come, how much of one is written (objects.h)
 *   UNIQUE     items of an array that are all different: which values are taken (unique.h)
 *   TOKEN s    one token out of a set, taken as a whole: the only way to a control token (edges.c)
 *   BUDGET r   r, inside of which at most n more tokens may end (edges.c)
 *
 * Equal expressions have equal ids, so a state is found again by its id. The next state on a byte is the
 * derivative; a state that is asked often gets a row of 256 answers. No expression but EMPTY has an empty
 * language: constructors return EMPTY instead (AND, NOT and LEN through the tables of live.c).
 * A failure (memory, fuel, height) latches `failed`; ids returned after it mean nothing.
 * Thread: the owner's, or under the store's lock.
 */
#ifndef ESP_GRAMMAR_EXPR_H
#define ESP_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stdint.h>

#include "grammar/number.h"
#include "runtime/base/arena.h"
#include "runtime/base/map.h"
#include "runtime/base/status.h"

enum esp_expr_op {
    ESP_X_EMPTY,
    ESP_X_EPS,
    ESP_X_SET,
    ESP_X_CAT,
    ESP_X_ALT,
    ESP_X_REP,
    ESP_X_AND,
    ESP_X_CALL,
    ESP_X_LEN,
    ESP_X_NUM,
    ESP_X_KEYS,
    ESP_X_NOT,
    ESP_X_TOKEN,
    ESP_X_BUDGET,
    ESP_X_UNIQUE
};

enum { ESP_EXPR_EMPTY = 0, ESP_EXPR_EPS = 1 }; /* ids */
#define ESP_EXPR_INF UINT32_MAX
#define ESP_EXPR_HEIGHT_MAX 1000
#define ESP_EXPRS_MAX (1u << 22)
#define ESP_EXPR_AND_MAX 32

enum {
    ESP_EXPR_NULLABLE = 1,
    ESP_EXPR_CALLS = 2,  /* a call may come first */
    ESP_EXPR_DEAD = 4,   /* an AND or NOT that was proved empty */
    ESP_EXPR_CLOSED = 8, /* every safe character leads back here (see live.c) */
    ESP_EXPR_OPEN = 16,  /* known not to be closed */
    ESP_EXPR_BYTES = 32, /* a byte may come first */
    ESP_EXPR_TOKENS = 64, /* a TOKEN may come first */
    ESP_EXPR_NO_TEXT = 128 /* a CALL, TOKEN or BUDGET is somewhere inside: Σ* does not stand for it */
};
#define ESP_EXPR_FIRSTS (ESP_EXPR_CALLS | ESP_EXPR_BYTES | ESP_EXPR_TOKENS)

struct esp_expr {
    uint8_t op, flags;
    uint16_t height;
    /* SET a=list (8 words)  CAT a,b  ALT/AND a=list b=count  REP a c=lo d=hi  CALL a=node  LEN a b=phase c=lo d=hi
     * NUM a=bounds b=text  KEYS a=object b=at c=from d=count  NOT a=base b
     * UNIQUE a=array b=set
     * TOKEN a=list b=count (pairs first, last)  BUDGET a b=tokens left c=1 once a byte of it was taken */
    uint32_t a, b, c, d;
    uint32_t row; /* index into rows, 0 = none */
};

struct esp_call {
    uint32_t node, cont;
};
struct esp_row {
    uint32_t next[256];
    uint32_t n_calls;
    struct esp_call *calls; /* [n_calls], in the arena */
};
struct esp_byteset {
    uint64_t w[4];
};

struct esp_lens;    /* live.h */
struct esp_objects; /* objects.h */

struct esp_exprs {
    struct esp_expr *exprs;
    uint32_t n_exprs, exprs_cap;
    uint32_t *table; /* hash table of ids, 0 = empty cell */
    uint32_t table_cap;
    uint32_t *lists;
    uint32_t n_lists, lists_cap;
    struct esp_row **rows;
    uint32_t n_rows, rows_cap;
    uint32_t *scratch;
    uint32_t n_scratch, scratch_cap;
    struct esp_nums nums;
    const struct esp_lens *lens; /* borrowed; NULL = none */
    struct esp_objects *objects; /* likewise; written at compile only */
    struct esp_arena arena;      /* rows, calls */
    struct esp_byteset alphabet; /* bytes that some token spells; others are in no set */
    uint32_t json_any, raw_any;  /* Σ* inside a JSON string and as plain text; 0 until made */
    uint32_t node_base;          /* added to the nodes of CALLs: a schema's own count from 0 */
    bool budgets;                /* some BUDGET was made */
    uint64_t fuel;
    esp_status failed;
};

/* alphabet: NULL = all bytes. */
void esp_exprs_init(struct esp_exprs *x, const struct esp_byteset *alphabet, uint64_t fuel, size_t cap_bytes);
void esp_exprs_finish(struct esp_exprs *x); /* zeroed is fine */
/* A copy of everything but rows. */
esp_status esp_exprs_copy(struct esp_exprs *x, const struct esp_exprs *from, size_t cap_bytes);
size_t esp_exprs_bytes(const struct esp_exprs *x);

uint32_t esp_expr_set(struct esp_exprs *x, const struct esp_byteset *set);
struct esp_byteset esp_expr_byteset(const struct esp_exprs *x, uint32_t id); /* of a SET */
uint32_t esp_expr_range(struct esp_exprs *x, unsigned first, unsigned last);
uint32_t esp_expr_byte(struct esp_exprs *x, unsigned byte);
uint32_t esp_expr_text(struct esp_exprs *x, const char *text); /* the bytes of a C string */
uint32_t esp_expr_cat(struct esp_exprs *x, uint32_t a, uint32_t b);
uint32_t esp_expr_alt(struct esp_exprs *x, const uint32_t *ids, uint32_t n);
uint32_t esp_expr_alt2(struct esp_exprs *x, uint32_t a, uint32_t b);
uint32_t esp_expr_opt(struct esp_exprs *x, uint32_t a);
uint32_t esp_expr_rep(struct esp_exprs *x, uint32_t a, uint32_t lo, uint32_t hi);
uint32_t esp_expr_and(struct esp_exprs *x, const uint32_t *ids, uint32_t n);
uint32_t esp_expr_call(struct esp_exprs *x, uint32_t node);
/* EMPTY unless some text of r has lo to hi code points (tables must exist when r is not json_any). */
uint32_t esp_expr_len(struct esp_exprs *x, uint32_t r, uint32_t phase, uint32_t lo, uint32_t hi);
uint32_t esp_expr_num(struct esp_exprs *x, uint32_t bounds, const char *text, uint32_t n_bytes);

/* What base allows and r does not; esp_live_and finds out whether that is nothing. */
uint32_t esp_expr_not(struct esp_exprs *x, uint32_t base, uint32_t r);
/* A state of an object's members that some text completes; see objects.h. */
uint32_t esp_expr_keys(struct esp_exprs *x, uint32_t object, uint32_t at, uint32_t from, uint32_t count);
/* A state of an array of distinct items that some text completes; see unique.h. */
uint32_t esp_expr_unique(struct esp_exprs *x, uint32_t array, uint32_t set);

/* edges.c: a set of tokens, as sorted pairs (first, last); EMPTY when there are none. */
uint32_t esp_expr_token(struct esp_exprs *x, const uint32_t *pairs, uint32_t n_pairs);
/* r, of which at most n_tokens tokens may end inside; ESP_EXPR_INF: any number. Where r may not end when they are
 * spent (inside a character), it goes on until it may. */
uint32_t esp_expr_budget(struct esp_exprs *x, uint32_t r, uint32_t n_tokens, bool begun);
/* The same state after the end of a token: budgets that were begun have one token less. */
uint32_t esp_expr_tick(struct esp_exprs *x, uint32_t id);
/* The tokens that may come first: pushed to scratch as pairs (first, last). */
void esp_expr_tokens(struct esp_exprs *x, uint32_t id);

/* For the constructors of other files: finds an equal expression or stores this one. The list of a SET, ALT, AND
 * or TOKEN was just added by esp_exprs_list and is dropped again when an equal one exists. */
uint32_t esp_expr_intern(struct esp_exprs *x, struct esp_expr e);
bool esp_exprs_list(struct esp_exprs *x, const uint32_t *values, uint32_t n);

/* deriv.c. A symbol is a byte, or ESP_SYMBOL_TOKEN + a token taken as a whole. */
#define ESP_SYMBOL_TOKEN 256u
uint32_t esp_expr_deriv(struct esp_exprs *x, uint32_t id, unsigned symbol);
/* The row of a state, made when missing. NULL once failed. */
const struct esp_row *esp_expr_row(struct esp_exprs *x, uint32_t id);
/* Next state, from the row when there is one. */
uint32_t esp_expr_step(struct esp_exprs *x, uint32_t id, unsigned byte);
/* The calls that may come first, with what follows each: pushed to scratch as pairs (node, cont). */
void esp_expr_calls(struct esp_exprs *x, uint32_t id);
/* The phase of the JSON string reader after a byte; 0 is a character border. */
unsigned esp_phase_next(unsigned phase, unsigned byte);

static inline const struct esp_expr *esp_expr_get(const struct esp_exprs *x, uint32_t id)
{
    return &x->exprs[id];
}
static inline bool esp_expr_nullable(const struct esp_exprs *x, uint32_t id)
{
    return (x->exprs[id].flags & ESP_EXPR_NULLABLE) != 0;
}
static inline bool esp_byteset_has(const struct esp_byteset *set, unsigned byte)
{
    return (set->w[byte >> 6] >> (byte & 63) & 1) != 0;
}
static inline void esp_byteset_add(struct esp_byteset *set, unsigned first, unsigned last)
{
    for (unsigned byte = first; byte <= last; byte++) {
        set->w[byte >> 6] |= (uint64_t)1 << (byte & 63);
    }
}
bool esp_exprs_push(struct esp_exprs *x, uint32_t value); /* to scratch */
esp_status esp_exprs_fail(struct esp_exprs *x, esp_status status);

#endif
