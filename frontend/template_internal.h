/* The inside of the template renderer: values, the syntax tree, a running rendering. For template_*.c only.
 *
 *   text ─lex─► tokens ─parse─► tree (in the template's arena, read-only)
 *   context JSON ─► values ─┐
 *   tree ──────────────eval─┴─► output: bytes, each marked as template text or as user text
 *
 * A string knows the origin of each of its bytes: `user` for the whole, or `marks` [n] when mixed. Everything
 * made while rendering lives in the run's arena and goes with it, so nothing is freed alone. Functions return
 * false after esp_tpl_fail. Strings are always valid UTF-8. Thread: the rendering's owner.
 */
#ifndef ESP_FRONTEND_TEMPLATE_INTERNAL_H
#define ESP_FRONTEND_TEMPLATE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "frontend/template.h"
#include "runtime/base/arena.h"
#include "runtime/base/map.h"

#define TPL_NODE_DEPTH_MAX 200u                  /* of the tree */
#define TPL_FRAMES_MAX 2000u                     /* nested evaluations, whatever calls whatever */
#define TPL_VALUE_DEPTH_MAX 200u                 /* nesting of lists and dicts that are walked */
#define TPL_TREE_BYTES_MAX (64u * 1024u * 1024u) /* arena of a compiled template */
#define TPL_RUN_BYTES_MAX (256u * 1024u * 1024u) /* arena of a rendering */
#define TPL_RANGE_MAX 100000                     /* as Jinja's sandbox */
#define TPL_ARGS_MAX 255u
#define TPL_PARAMS_MAX 6u /* of a built-in filter, test, function or method */

/* ---- Values ------------------------------------------------------------------------------------ */

enum tpl_kind {
    TPL_UNSET, /* no value at all: an argument that was not given */
    TPL_UNDEF,
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STR,
    TPL_LIST,
    TPL_TUPLE,
    TPL_RANGE,
    TPL_GENERATOR, /* can be walked once */
    TPL_VIEW,      /* keys(), values(), items() */
    TPL_DICT,
    TPL_NAMESPACE,
    TPL_MACRO,
    TPL_FUNCTION,
    TPL_METHOD,
    TPL_LOOP,
    TPL_CYCLER,
    TPL_JOINER
};

struct tpl_str {
    const char *data;
    const uint8_t *marks; /* [n] 1 = user text; NULL: `user` holds for every byte */
    size_t n;
    bool user;
    bool markup; /* made by the filters safe and escape: what is added to it with + gets escaped */
};

struct tpl_value {
    enum tpl_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        const struct tpl_str *str;
        struct tpl_list *list; /* LIST, TUPLE, RANGE, GENERATOR, VIEW */
        struct tpl_dict *dict; /* DICT, NAMESPACE */
        const struct tpl_undef *undef;
        struct tpl_macro *macro;
        const struct tpl_builtin *function;
        const struct tpl_method *method;
        struct tpl_loop *loop;
        struct tpl_cycler *cycler; /* CYCLER, JOINER */
    };
};

struct tpl_list {
    struct tpl_value *items; /* [n] */
    size_t n;
    bool used_up; /* GENERATOR: was walked */
};

struct tpl_pair {
    struct tpl_value key, value;
};
struct tpl_dict {
    struct tpl_pair *pairs; /* [n], in order of insertion */
    size_t n, room;
};

struct tpl_undef {
    const char *owner; /* type of the object that lacks it, or NULL for a variable */
    const struct tpl_str *name;
    bool unsafe; /* exists in Python, but the sandbox forbids it */
};

struct tpl_macro {
    const struct tpl_node *node;
    struct tpl_scope *scope; /* where it was defined */
};

struct tpl_method {
    struct tpl_value self;
    const struct tpl_builtin *function;
};

struct tpl_loop {
    const struct tpl_node *node;
    struct tpl_scope *scope; /* around the loop */
    struct tpl_list *items;
    size_t idx;
    unsigned level;           /* of recursive loops */
    struct tpl_value changed; /* last arguments of loop.changed */
};

struct tpl_cycler {
    struct tpl_list *items; /* joiner: the separator */
    size_t idx;
};

struct tpl_kwarg {
    const struct tpl_str *name;
    struct tpl_value value;
};
struct tpl_args {
    struct tpl_value *list; /* [n] */
    struct tpl_kwarg *kw;   /* [n_kw] */
    size_t n, n_kw;
};

/* A filter, test, function or method. With `params` ("a,b,c") the arguments come bound in arg[], TPL_UNSET
 * where not given; with NULL as they are in args. */
struct tpl_call {
    struct tpl_value self;
    struct tpl_value arg[TPL_PARAMS_MAX];
    const struct tpl_args *args;
};
struct tpl_run;
struct tpl_builtin {
    const char *name, *params;
    unsigned n_needed;
    bool (*run)(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret);
};

/* ---- The tree ---------------------------------------------------------------------------------- */

enum tpl_node_kind {
    /* expressions */
    TPL_N_CONST, /* value */
    TPL_N_NAME,  /* sym */
    TPL_N_LIST,  /* a = items */
    TPL_N_TUPLE, /* a = items */
    TPL_N_DICT,  /* a = pairs */
    TPL_N_PAIR,  /* a key, b value (only inside DICT) */
    TPL_N_NEG,
    TPL_N_POS,
    TPL_N_NOT,
    TPL_N_AND,
    TPL_N_OR,
    TPL_N_BINARY,   /* op, a, b */
    TPL_N_CONCAT,   /* a = operands */
    TPL_N_COMPARE,  /* a, b = list of CMP */
    TPL_N_CMP,      /* op, a (only inside COMPARE) */
    TPL_N_COND,     /* a test, b then, c else or NULL */
    TPL_N_ATTR,     /* a . value (a string) */
    TPL_N_ITEM,     /* a [ b ] */
    TPL_N_SLICE,    /* a : b : c, each or NULL (only as b of ITEM) */
    TPL_N_CALL,     /* a ( b = arguments ) */
    TPL_N_KWARG,    /* value name, a (only as argument) */
    TPL_N_STAR,     /* * a */
    TPL_N_STARSTAR, /* ** a */
    TPL_N_FILTER,   /* a (NULL: the block's text) | value name ( b ) */
    TPL_N_TEST,     /* a is value name ( b ) */
    /* statements */
    TPL_N_TEXT,      /* value */
    TPL_N_PRINT,     /* a */
    TPL_N_IF,        /* a = BRANCHes, b = else body */
    TPL_N_BRANCH,    /* a test, b body */
    TPL_N_FOR,       /* a target, b iterable, c body, d else; e condition or NULL */
    TPL_N_SET,       /* a target, b value */
    TPL_N_SETBLOCK,  /* a target, b filters or NULL, c body */
    TPL_N_MACRO,     /* sym, a = PARAMs, c body */
    TPL_N_PARAM,     /* sym, a default or NULL */
    TPL_N_CALLBLOCK, /* a = CALL, b = MACRO of the body */
    TPL_N_FILTERED,  /* b filters, c body */
    TPL_N_WITH,      /* a = SETs, c body */
    TPL_N_SCOPED,    /* c body: generation, block (flag: sees only the outermost scope) */
    TPL_N_BREAK,
    TPL_N_CONTINUE,
    TPL_N_KINDS
};

enum tpl_op {
    TPL_ADD,
    TPL_SUB,
    TPL_MUL,
    TPL_DIV,
    TPL_FLOORDIV,
    TPL_MOD,
    TPL_POW,
    TPL_EQ,
    TPL_NE,
    TPL_LT,
    TPL_LE,
    TPL_GT,
    TPL_GE,
    TPL_IN,
    TPL_NOT_IN
};

struct tpl_node {
    enum tpl_node_kind kind;
    enum tpl_op op;
    uint32_t line, sym;
    uint16_t depth;
    bool flag;                         /* FOR: recursive; MACRO: takes extra arguments; SCOPED: block */
    bool takes_caller;                 /* MACRO: uses caller */
    const struct tpl_builtin *builtin; /* FILTER, TEST; NULL = unknown */
    struct tpl_node *a, *b, *c, *d, *e;
    struct tpl_node *next; /* in a list */
    struct tpl_value value;
};

enum { /* symbols that have a meaning, in this order at the front of every symbol table */
       TPL_SYM_LOOP,
       TPL_SYM_CALLER,
       TPL_SYM_VARARGS,
       TPL_SYM_KWARGS,
       TPL_SYM_FIXED
};

struct esp_template {
    struct esp_arena arena;
    struct tpl_node *body;
    const struct tpl_str **symbols; /* [n_symbols] */
    uint32_t n_symbols, room_symbols;
};

/* ---- Tokens ------------------------------------------------------------------------------------ */

enum tpl_token_kind {
    TPL_T_END,
    TPL_T_DATA,
    TPL_T_VAR_BEGIN,
    TPL_T_VAR_END,
    TPL_T_BLOCK_BEGIN,
    TPL_T_BLOCK_END,
    TPL_T_NAME,
    TPL_T_STRING, /* with its quotes */
    TPL_T_INTEGER,
    TPL_T_FLOAT,
    TPL_T_OP
};
struct tpl_token {
    enum tpl_token_kind kind;
    uint32_t line;
    const char *text;
    size_t n;
};
struct tpl_tokens {
    struct tpl_token *list; /* [n], the last one is TPL_T_END */
    size_t n, room;
};
/* Borrows the text until the tokens are parsed; both live in the arena. */
esp_status esp_tpl_lex(struct esp_arena *arena, const char *text, size_t n_bytes, struct tpl_tokens *ret_tokens,
                       struct esp_err *err);

struct tpl_parser {
    struct esp_template *tmpl;
    struct esp_err *err;
    const struct tpl_token *token;
    struct esp_bytesmap symbols;
    unsigned depth;
    unsigned n_loops;       /* around, within the same macro */
    bool soft;              /* directly inside an if: unknown filters fail only when reached */
    struct tpl_node *macro; /* being parsed */
};
esp_status esp_tpl_parse(struct tpl_parser *parser, struct tpl_node **ret_body);

/* Shared by the two halves of the parser. They return NULL or false after a failure. */
struct tpl_node *esp_tpl_node(struct tpl_parser *parser, enum tpl_node_kind kind, struct tpl_node *a,
                              struct tpl_node *b, struct tpl_node *c);
/* Sets the node's depth from its children, again after some were added; false when the tree is too deep. */
bool esp_tpl_settle(struct tpl_parser *parser, struct tpl_node *node);
struct tpl_node *esp_tpl_const_node(struct tpl_parser *parser, struct tpl_value value);
struct tpl_node *esp_tpl_parse_number(struct tpl_parser *parser);
struct tpl_node *esp_tpl_parse_string(struct tpl_parser *parser);
struct tpl_node *esp_tpl_syntax(struct tpl_parser *parser, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool esp_tpl_is_op(const struct tpl_parser *parser, const char *op);
bool esp_tpl_is_name(const struct tpl_parser *parser, const char *name);
bool esp_tpl_skip_op(struct tpl_parser *parser, const char *op);     /* true if it was there */
bool esp_tpl_skip_name(struct tpl_parser *parser, const char *name); /* true if it was there */
bool esp_tpl_expect_op(struct tpl_parser *parser, const char *op);
bool esp_tpl_symbol(struct tpl_parser *parser, const char *text, size_t n, uint32_t *ret_sym);
const struct tpl_str *esp_tpl_token_str(struct tpl_parser *parser, const struct tpl_token *token);
struct tpl_node *esp_tpl_unexpected(struct tpl_parser *parser, const char *wanted);
/* An expression or a bare tuple. with_cond: an inline if may follow. */
struct tpl_node *esp_tpl_parse_tuple(struct tpl_parser *parser, bool with_cond, bool ends_at_recursive);
struct tpl_node *esp_tpl_parse_expr(struct tpl_parser *parser);
struct tpl_node *esp_tpl_parse_unary(struct tpl_parser *parser);
/* A chain of filters on the text of a block: begins at a filter's name. */
struct tpl_node *esp_tpl_parse_filters(struct tpl_parser *parser);
/* Appends to a list held by its first node. */
void esp_tpl_append(struct tpl_node **first, struct tpl_node **last, struct tpl_node *node);

/* ---- A rendering ------------------------------------------------------------------------------- */

struct tpl_binding {
    uint32_t sym;
    struct tpl_value value;
    struct tpl_binding *next;
};
struct tpl_scope {
    struct tpl_scope *parent; /* NULL: the outermost, which is run->globals */
    struct tpl_binding *bindings;
};

/* Text being written. Uniform until a second origin comes. */
struct tpl_out {
    char *data;
    uint8_t *marks; /* NULL while uniform */
    size_t n, room;
    bool user;
};

struct tpl_run {
    const struct esp_template *tmpl;
    struct esp_arena arena;
    struct esp_err *err;
    const json_t *context;
    struct tpl_value *globals; /* [n_symbols] TPL_UNSET: not looked up yet */
    struct tpl_scope *scope;   /* NULL = outermost */
    struct tpl_out *out;
    uint64_t n_steps, n_random;
    uint32_t n_frames, n_calls, line;
    int64_t now_s;
};

bool esp_tpl_fail(struct tpl_run *run, esp_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool esp_tpl_undefined(struct tpl_run *run, const struct tpl_value *value); /* fails with what is undefined */
void *esp_tpl_alloc(struct tpl_run *run, size_t n, size_t size);            /* NULL after failing */
bool esp_tpl_charge(struct tpl_run *run, size_t n_bytes);                   /* work in proportion to bytes */
bool esp_tpl_enter(struct tpl_run *run);                                    /* one more frame; leave in any case */
void esp_tpl_leave(struct tpl_run *run);

/* Strings (template_string.c) */
bool esp_tpl_out_add(struct tpl_run *run, struct tpl_out *out, const char *data, size_t n, const uint8_t *marks,
                     bool user);
bool esp_tpl_out_str(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str);
bool esp_tpl_out_part(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str, size_t from, size_t to);
bool esp_tpl_out_text(struct tpl_run *run, struct tpl_out *out, const char *text, bool user);
bool esp_tpl_out_cp(struct tpl_run *run, struct tpl_out *out, uint32_t cp, bool user);
bool esp_tpl_out_value(struct tpl_run *run, const struct tpl_out *out, struct tpl_value *ret);
bool esp_tpl_str_new(struct tpl_run *run, const char *data, size_t n, bool user, struct tpl_value *ret); /* borrows */
bool esp_tpl_str_part(struct tpl_run *run, const struct tpl_str *str, size_t from, size_t to, struct tpl_value *ret);
bool esp_tpl_str_user(const struct tpl_str *str); /* any byte of it */
bool esp_tpl_str_is(const struct tpl_str *str, const char *text);
size_t esp_tpl_str_count(const struct tpl_str *str);                  /* code points */
size_t esp_tpl_str_offset(const struct tpl_str *str, size_t n_cps);   /* byte offset of a code point, at most n */
uint32_t esp_tpl_str_next(const struct tpl_str *str, size_t *offset); /* decodes and moves on */
/* Offset of needle at or after from, or SIZE_MAX. */
size_t esp_tpl_str_find(const struct tpl_str *str, const struct tpl_str *needle, size_t from);
bool esp_tpl_is_space(uint32_t cp);
bool esp_tpl_is_printable(uint32_t cp);
uint32_t esp_tpl_upper(uint32_t cp);
uint32_t esp_tpl_lower(uint32_t cp);
bool esp_tpl_is_letter(uint32_t cp);
enum tpl_case {
    TPL_CASE_UPPER,
    TPL_CASE_LOWER,
    TPL_CASE_SWAP,
    TPL_CASE_CAPITAL,
    TPL_CASE_TITLE,
    TPL_CASE_TITLE_FILTER
};
bool esp_tpl_str_case(struct tpl_run *run, const struct tpl_str *str, enum tpl_case how, struct tpl_value *ret);
enum { TPL_STRIP_LEFT = 1, TPL_STRIP_RIGHT = 2, TPL_STRIP_BOTH = 3 };
/* chars NULL: white space. */
bool esp_tpl_str_strip(struct tpl_run *run, const struct tpl_str *str, const struct tpl_str *chars, int sides,
                       struct tpl_value *ret);
bool esp_tpl_str_replace(struct tpl_run *run, const struct tpl_str *str, const struct tpl_str *from,
                         const struct tpl_str *to, int64_t n_max, struct tpl_value *ret);
/* The lines of a text without (or with) their ends, as a list. */
bool esp_tpl_str_lines(struct tpl_run *run, const struct tpl_str *str, bool keep_ends, struct tpl_value *ret);
/* Appends with & < > " ' as entities. */
bool esp_tpl_out_escaped(struct tpl_run *run, struct tpl_out *out, const struct tpl_str *str);
bool esp_tpl_str_markup(struct tpl_run *run, const struct tpl_str *str, struct tpl_value *ret); /* as it is, marked */
bool esp_tpl_str_pad(struct tpl_run *run, const struct tpl_str *str, int64_t width, int side, struct tpl_value *ret);
/* Shortest digits that read back as the same number, as Python writes them. */
#define TPL_REAL_BYTES 40
void esp_tpl_real_text(double value, char out[TPL_REAL_BYTES]);

/* Values (template_value.c) */
static inline struct tpl_value esp_tpl_none(void)
{
    return (struct tpl_value){.kind = TPL_NONE};
}
static inline struct tpl_value esp_tpl_bool(bool truth)
{
    return (struct tpl_value){.kind = TPL_BOOL, .truth = truth};
}
static inline struct tpl_value esp_tpl_int(int64_t integer)
{
    return (struct tpl_value){.kind = TPL_INT, .integer = integer};
}
static inline struct tpl_value esp_tpl_real(double real)
{
    return (struct tpl_value){.kind = TPL_FLOAT, .real = real};
}
const char *esp_tpl_type(const struct tpl_value *value); /* Python's name of it */
bool esp_tpl_truth(const struct tpl_value *value);
bool esp_tpl_is_number(const struct tpl_value *value); /* bool, int, float */
double esp_tpl_number(const struct tpl_value *value);
bool esp_tpl_as_int(const struct tpl_value *value, int64_t *ret); /* bool or int */
bool esp_tpl_equal(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, bool *ret);
/* Less than zero, zero, greater: for values that Python can order, else fails naming op. */
bool esp_tpl_order(struct tpl_run *run, const struct tpl_value *a, const struct tpl_value *b, const char *op, int *ret);
bool esp_tpl_contains(struct tpl_run *run, const struct tpl_value *box, const struct tpl_value *item, bool *ret);
/* str(value) and repr(value), appended. */
bool esp_tpl_print(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value);
bool esp_tpl_repr(struct tpl_run *run, struct tpl_out *out, const struct tpl_value *value, unsigned depth);
bool esp_tpl_str(struct tpl_run *run, const struct tpl_value *value, struct tpl_value *ret);   /* a string */
bool esp_tpl_list(struct tpl_run *run, enum tpl_kind kind, size_t n, struct tpl_value *ret);   /* items to be filled */
bool esp_tpl_items(struct tpl_run *run, const struct tpl_value *value, struct tpl_list **ret); /* walks anything */
bool esp_tpl_dict(struct tpl_run *run, enum tpl_kind kind, struct tpl_value *ret);
bool esp_tpl_dict_put(struct tpl_run *run, struct tpl_dict *dict, const struct tpl_value *key,
                      const struct tpl_value *value);
bool esp_tpl_dict_find(struct tpl_run *run, const struct tpl_dict *dict, const struct tpl_value *key,
                       struct tpl_value *ret, bool *ret_found);
const struct tpl_value *esp_tpl_dict_text(const struct tpl_dict *dict, const struct tpl_str *key); /* or NULL */
bool esp_tpl_user(const struct tpl_value *value, unsigned depth); /* some user text in it */
bool esp_tpl_length(struct tpl_run *run, const struct tpl_value *value, size_t *ret);
bool esp_tpl_sort(struct tpl_run *run, struct tpl_value *items, const struct tpl_value *keys, size_t n, bool reverse);

/* JSON (template_json.c) */
bool esp_tpl_from_json(struct tpl_run *run, const json_t *json, bool user, unsigned depth, struct tpl_value *ret);
bool esp_tpl_filter_tojson(struct tpl_run *run, const struct tpl_call *call, struct tpl_value *ret);

/* Attributes and items (template_access.c) */
bool esp_tpl_attr(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_str *name,
                  struct tpl_value *ret);
bool esp_tpl_item(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_value *key,
                  struct tpl_value *ret);
bool esp_tpl_slice(struct tpl_run *run, const struct tpl_value *owner, const struct tpl_value bounds[3],
                   struct tpl_value *ret);

/* Evaluation (template_eval.c, template_call.c, template_exec.c) */
bool esp_tpl_eval(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret);
bool esp_tpl_arithmetic(struct tpl_run *run, enum tpl_op op, const struct tpl_value *a, const struct tpl_value *b,
                        struct tpl_value *ret);
bool esp_tpl_eval_call(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret);
bool esp_tpl_eval_call_with(struct tpl_run *run, const struct tpl_node *node, const struct tpl_value *caller,
                            struct tpl_value *ret);
bool esp_tpl_eval_filter(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret);
bool esp_tpl_eval_test(struct tpl_run *run, const struct tpl_node *node, struct tpl_value *ret);
bool esp_tpl_invoke(struct tpl_run *run, const struct tpl_builtin *builtin, const struct tpl_value *self,
                    const struct tpl_args *args, struct tpl_value *ret);
/* The filters of a FILTER chain on a text (set and filter blocks). */
bool esp_tpl_eval_filters(struct tpl_run *run, const struct tpl_node *chain, const struct tpl_value *text,
                          struct tpl_value *ret);
bool esp_tpl_call_macro(struct tpl_run *run, const struct tpl_macro *macro, const struct tpl_args *args,
                        struct tpl_value *ret);
bool esp_tpl_call_loop(struct tpl_run *run, const struct tpl_loop *loop, const struct tpl_args *args,
                       struct tpl_value *ret);
bool esp_tpl_lookup(struct tpl_run *run, uint32_t sym, struct tpl_value *ret);
bool esp_tpl_exec(struct tpl_run *run, const struct tpl_node *body);

/* Built-ins. Unknown names give NULL. */
const struct tpl_builtin *esp_tpl_find_filter(const char *name, size_t n);
const struct tpl_builtin *esp_tpl_find_number_filter(const char *name, size_t n);
const struct tpl_builtin *esp_tpl_find_seq_filter(const char *name, size_t n);
const struct tpl_builtin *esp_tpl_find_test(const char *name, size_t n);
const struct tpl_builtin *esp_tpl_find_function(const char *name, size_t n);
const struct tpl_builtin *esp_tpl_find_str_method(const char *name, size_t n);
const struct tpl_builtin *esp_tpl_find_method(enum tpl_kind kind, const char *name, size_t n);
/* The attribute exists in Python, but changes its object, which the sandbox forbids. */
bool esp_tpl_is_unsafe(enum tpl_kind kind, const struct tpl_str *name);
const struct tpl_builtin *esp_tpl_find_in(const struct tpl_builtin *rows, size_t n_rows, const char *name, size_t n);
/* Typed readers of bound arguments; `fallback` where not given. */
bool esp_tpl_arg_int(struct tpl_run *run, const struct tpl_value *arg, int64_t fallback, int64_t *ret);
bool esp_tpl_arg_str(struct tpl_run *run, const struct tpl_value *arg, const char *what, const struct tpl_str **ret);
/* "%" formatting and str.format. */
bool esp_tpl_format_percent(struct tpl_run *run, const struct tpl_str *format, const struct tpl_value *values,
                            struct tpl_value *ret);
bool esp_tpl_format_braces(struct tpl_run *run, const struct tpl_str *format, const struct tpl_args *args,
                           struct tpl_value *ret);

#endif
