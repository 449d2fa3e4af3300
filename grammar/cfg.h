/* Context-free grammars: rules as trees, made by a reader (GBNF, Lark), and their way to expressions.
 *
 *   text ─reader─► rules ─┬─ rules that call themselves become nodes, the others are put in where they are used
 *                         ├─ A = A x | B becomes B x*, A = x A | B becomes x* B (no frame a repeat)
 *                         ├─ left recursion over several rules is solved as a system (cfg_left.c)
 *                         └─ rules without any text are dropped
 *
 * A CALL of a node stands for its texts but the empty one; where a rule may be empty, the call is optional. So a
 * call always takes something, and following calls ends.
 * Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_CFG_H
#define ESP_GRAMMAR_CFG_H

#include "grammar/cpset.h"
#include "grammar/matcher.h"
#include "runtime/base/map.h"

#define ESP_CFG_DEPTH_MAX 100u /* nesting of a rule */
#define ESP_CFG_RULES_MAX 50000u
#define ESP_CFG_COUNT_MAX 1000000u /* of a repeat */

enum esp_cfg_op {
    ESP_CFG_EXPR, /* value: an expression */
    ESP_CFG_SEQ,  /* children */
    ESP_CFG_ALT,  /* children */
    ESP_CFG_REP,  /* one child, lo to hi times */
    ESP_CFG_REF,  /* value: a rule */
    ESP_CFG_AND,  /* children, terminals only */
    ESP_CFG_NOT   /* one child, terminals only */
};
struct esp_cfg_node {
    enum esp_cfg_op op;
    uint32_t value, lo, hi;
    size_t at; /* in the source */
    struct esp_cfg_node *child, *last, *next;
};
struct esp_cfg_rule {
    const char *name;
    uint32_t name_bytes;
    size_t at; /* where it was first named */
    struct esp_cfg_node *body;
    bool terminal; /* always put in */
    /* of the lowering */
    uint8_t mark;          /* 0 new, 1 on the way down, 2 done */
    bool nullable, called; /* called: it is a node */
    uint32_t node, expr, weight;
};
struct esp_cfg {
    struct esp_grammar *g;
    struct esp_exprs *x;
    struct esp_arena arena;
    const struct esp_grammar_options *options;
    struct esp_err *err;
    const char *text;
    size_t n_bytes;
    struct esp_cfg_rule *rules;
    uint32_t n_rules, rules_cap;
    struct esp_bytesmap names;
    uint32_t *order; /* rules, callees first */
    uint32_t n_order, order_cap;
};

void esp_cfg_init(struct esp_cfg *cfg, struct esp_grammar *g, const struct esp_grammar_spec *spec, struct esp_err *err);
void esp_cfg_finish(struct esp_cfg *cfg);
/* Records the line and column of a place, and what is wrong there. */
esp_status esp_cfg_fail(struct esp_cfg *cfg, esp_status status, size_t at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The rule of this name, made when it is new; the name is borrowed from the text. */
esp_status esp_cfg_rule(struct esp_cfg *cfg, const char *name, size_t name_bytes, uint32_t *ret_rule);
/* NULL when out of memory. */
struct esp_cfg_node *esp_cfg_node(struct esp_cfg *cfg, enum esp_cfg_op op, uint32_t value, size_t at);
void esp_cfg_append(struct esp_cfg_node *parent, struct esp_cfg_node *child);
/* Appends the grammar's nodes to g->starts; *ret_id is all its texts. */
esp_status esp_cfg_compile(struct esp_cfg *cfg, uint32_t root, uint32_t *ret_id);

/* Room for one more node. */
esp_status esp_grammar_add_node(struct esp_grammar *g, uint32_t start, uint32_t *ret_node);

/* cfg_left.c: expressions with calls. */
/* What remains without the empty text. */
uint32_t esp_cfg_not_empty(struct esp_exprs *x, uint32_t id);
/* Takes a node's calls of itself out of its first and its last places. */
uint32_t esp_cfg_unwind(struct esp_exprs *x, uint32_t node, uint32_t id);
/* Solves left recursion over several nodes first … g->n_starts. */
esp_status esp_cfg_solve_left(struct esp_grammar *g, uint32_t first);
/* Drops calls of nodes without any text, in all nodes from `first` and in *id. */
esp_status esp_cfg_prune(struct esp_grammar *g, uint32_t first, uint32_t *id);
bool esp_cfg_calls(struct esp_exprs *x, uint32_t id, uint32_t node); /* anywhere inside */

#endif
