/* JSON Schema to expressions, in three steps. Inside of grammar/, used by grammar.c only.
 *
 *   read    one schema object → struct esp_leaf: its own assertions parsed, its in-place applicators listed
 *   node    a node is a conjunction of schemas ("what must this value satisfy"); expanding it multiplies out
 *           anyOf and follows $ref, giving alternatives; each gives typed atoms that name other nodes
 *   build   nodes without any value are found (least fixpoint) and left out; atoms become expressions
 *
 *   {"$ref":"#/d","minLength":2}   node = [leaf of itself, leaf of #/d]   atom string{2,…}
 *
 * A keyword beside another is always a conjunction. What is not honoured exactly is refused with its
 * pointer. Recursive schemas are nodes that name each other. Nothing recurses on user depth.
 * Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_SCHEMA_H
#define ESP_GRAMMAR_SCHEMA_H

#include "grammar/cpset.h"
#include "grammar/grammar.h"
#include "grammar/jtext.h"
#include "grammar/live.h"

enum { /* drafts */
       ESP_DRAFT4 = 1,
       ESP_DRAFT6 = 2,
       ESP_DRAFT7 = 4,
       ESP_DRAFT2019 = 8,
       ESP_DRAFT2020 = 16,
       ESP_DRAFT_ANY = 31
};
enum { /* types; a number that is an integer has its own bit */
       ESP_TYPE_NULL = 1,
       ESP_TYPE_BOOLEAN = 2,
       ESP_TYPE_INTEGER = 4,
       ESP_TYPE_FRACTION = 8,
       ESP_TYPE_STRING = 16,
       ESP_TYPE_ARRAY = 32,
       ESP_TYPE_OBJECT = 64,
       ESP_TYPE_ALL = 127
};
#define ESP_SCHEMA_NODES_MAX 50000u
#define ESP_SCHEMA_ALTERNATIVES_MAX 4096u
#define ESP_SCHEMA_CONJUNCTS_MAX 64u
#define ESP_SCHEMA_FORMATS_MAX 32
#define ESP_SCHEMA_PATTERNS_MAX 64u /* patternProperties that meet in one object */
#define ESP_SCHEMA_CELLS_MAX 256u   /* kinds of keys that they make */
#define ESP_NODE_NONE UINT32_MAX

/* What a value must satisfy. A leaf is named by its schema, whose `extra` it is. */
enum esp_item_kind {
    ESP_ITEM_SCHEMA,   /* a schema not yet expanded; in todo also the array of an anyOf or oneOf */
    ESP_ITEM_LEAF,     /* a leaf's own assertions */
    ESP_ITEM_CONST,    /* equal to a value */
    ESP_ITEM_NOT,      /* not valid by a schema */
    ESP_ITEM_UNEQUAL,  /* not equal to a value */
    ESP_ITEM_UNLISTED, /* not equal to any member of an array */
    ESP_ITEM_IF        /* in todo: an if with its then and else */
};
struct esp_item {
    const struct esp_jv *v;
    uint64_t kind;
};
/* A condition on one member (name) or one item (index). */
struct esp_part {
    struct esp_item item;
    const char *name;
    uint32_t n_bytes, index;
    bool required;
};
/* So many items from `from` on satisfy `item`. */
struct esp_counter {
    struct esp_item item;
    uint32_t from, min, max;
    const struct esp_jv *at;
};
/* Some member has a key of a kind, and a value that satisfies `item`. The kind: matched by the pattern that is the
 * key of `pattern`; not a string of `names`; or, both NULL, neither declared nor matched in `of`. */
struct esp_witness {
    const struct esp_jv *pattern, *names;
    const struct esp_leaf *of;
    struct esp_item item;
};
/* One way to deny a schema: all of these together. */
struct esp_choice {
    const struct esp_item *items;
    uint32_t n;
    struct esp_choice *next;
};

struct esp_leaf { /* one schema's own assertions */
    const struct esp_jv *self;
    uint32_t types;
    const struct esp_jv *properties, *required, *additional;
    const struct esp_jv *patterns, *names; /* patternProperties, propertyNames */
    const struct esp_jv *items, *prefix; /* items: for the rest; prefix: array of schemas */
    const struct esp_jv *values;         /* enum array, or NULL */
    const struct esp_jv *constant;
    uint32_t min_items, max_items, min_chars, max_chars, min_members, max_members;
    struct esp_bounds bounds;
    uint32_t pattern, format; /* expressions over string contents, 0 = none */
    bool never_text;            /* pattern matches no text */
    const struct esp_jv **applicators;
    uint32_t n_applicators;
    bool ref_only; /* $ref hides its siblings (up to draft-07) */
    const struct esp_jv *condition; /* an if without then and else: says what is evaluated, and nothing more */
    const struct esp_jv *rest_members, *rest_items; /* unevaluatedProperties, unevaluatedItems */
    const struct esp_jv *unique; /* uniqueItems, when true */
    const struct esp_jv *contains;
    uint32_t contains_min, contains_max;
    /* Of leaves that deny something (schema_not.c) only: */
    const struct esp_part *part;
    const struct esp_counter *counter;
    const struct esp_witness *witness;
    struct esp_choice *denials; /* what denies this leaf's own assertions, once asked for */
    bool denied;
    /* where things were said, for messages */
    const struct esp_jv *min_at, *max_at, *min_members_at;
};

/* unevaluatedProperties and unevaluatedItems of a leaf in one alternative, where it is known what is evaluated. */
struct esp_unevaluated {
    const struct esp_leaf *leaf;
    const struct esp_leaf **seen; /* leaves that evaluate for it */
    uint32_t n_seen;
    bool all_members, all_items; /* nothing is left over */
    uint32_t n_items;            /* so many items from the first on are evaluated */
    const struct esp_jv *item;   /* what the items after them must satisfy */
};

/* One alternative: all leaves together, the value to equal when there is one, scalars to differ from. */
struct esp_conj {
    struct esp_schema *s;
    struct esp_leaf *leaves[ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n, types;
    const struct esp_jv *value;
    const struct esp_jv **excluded;
    uint32_t n_excluded, excluded_cap;
    const struct esp_unevaluated *unevaluated;
    uint32_t n_unevaluated;
};

struct esp_length {
    uint32_t min, max;
    const struct esp_jv *min_at;
};

/* An array some of whose items are counted: states are (items so far, counts), an edge takes one item. */
struct esp_counts {
    struct esp_count_state {
        uint32_t first, n; /* edges */
        bool close, live;
    } *states;
    struct esp_count_edge {
        uint32_t node, to;
    } *edges;
    uint32_t n_states, n_edges, states_cap, edges_cap;
    uint32_t rule; /* the start of state 0 among the starts; those of the others follow */
};

enum esp_atom_kind { ESP_ATOM_EXPR, ESP_ATOM_ARRAY, ESP_ATOM_OBJECT };
struct esp_prop {
    const char *name;
    uint32_t n_bytes, node;
    bool required;
};
struct esp_cell { /* keys that are not declared: those of one kind, and the node of their values */
    uint32_t key, node;
};
struct esp_atom {
    enum esp_atom_kind kind;
    uint32_t expr;
    uint32_t *prefix;                  /* array: nodes */
    uint32_t n_prefix, rest; /* rest: node of further items */
    uint32_t min, max;       /* items or members */
    const uint32_t *unique; /* array of distinct items: a node for each value, instead of prefix and rest */
    uint32_t n_unique;
    struct esp_counts *counts; /* array with counted items, instead of prefix and rest; schema_count.c */
    struct esp_prop *props;
    uint32_t n_props, additional; /* additional: node of other keys */
    struct esp_cell *cells;       /* instead of additional where patterns tell keys apart */
    uint32_t n_cells;
    struct esp_cell *lasts; /* members at the end, with keys that differ from each other */
    uint32_t n_lasts;
    const struct esp_jv *min_at;  /* where the least number of members was said */
    struct esp_atom *next;
};
struct esp_node {
    const struct esp_item *items;
    uint32_t n_items;
    struct esp_atom *atoms;
    bool productive, reached; /* reached: from the root, by what has values */
    const struct esp_jv *why_at; /* the last reason for a missing alternative */
    const char *why;
};

struct esp_schema {
    struct esp_exprs *x;
    struct esp_lens *lens;
    struct esp_arena arena;
    struct esp_err *err;
    struct esp_grammar_options options;
    enum esp_spelling spelling;
    unsigned draft;
    bool draft_given;
    const struct esp_jv *root;
    struct esp_node *nodes;
    uint32_t n_nodes, nodes_cap, n_expanded;
    struct esp_bytesmap node_map;
    struct esp_schema_overlap { /* two branches of a oneOf, and the node of what fits both */
        uint32_t node;
        bool both; /* the node has values */
    } * overlaps;
    uint32_t n_overlaps, overlaps_cap;
    struct esp_bytesmap overlap_map; /* two branches → overlaps */
    bool exact;                      /* the overlaps are known, and branches deny each other */
    uint32_t *rules; /* starts of states of counted arrays; after those of the nodes */
    uint32_t n_rules, rules_cap;
    struct esp_refs *refs; /* schema_ref.h; NULL until a reference is met */
    struct esp_buf *warnings;
    uint32_t current;                                /* node being expanded */
    bool bare;                                       /* only the contents of strings are asked for … */
    uint32_t bare_contents;                          /* … and gathered here */
    struct esp_bytesmap contents_map;                /* item → contents of its strings */
    struct esp_map explored;                         /* expressions whose empty states are known */
    struct esp_bytesmap either_map;                  /* schemas → the made one that is anyOf them */
    const struct esp_jv **eithers;
    uint32_t n_eithers, eithers_cap;
    uint32_t number_any, integer_any, integer_plain; /* expressions, 0 = not made */
    uint32_t formats[ESP_SCHEMA_FORMATS_MAX];        /* by row of formats.c, likewise */
};

/* Compiles a schema: fills starts (node → expression, allocated) with node 0 as the root. */
esp_status esp_schema_compile(struct esp_exprs *x, struct esp_lens *lens, const struct esp_grammar_options *options,
                              const char *text, size_t n_bytes, struct esp_buf *warnings, uint32_t **ret_starts,
                              uint32_t *ret_n_starts, struct esp_err *err);

/* schema_read.c */
esp_status esp_schema_read(struct esp_schema *s, const struct esp_jv *v, struct esp_leaf **ret_leaf);
esp_status esp_schema_draft(struct esp_schema *s);
/* schema_ref.c: the schema that a $ref, $dynamicRef or $recursiveRef means */
esp_status esp_schema_resolve(struct esp_schema *s, const struct esp_jv *ref, const struct esp_jv **ret_target);
void esp_schema_refs_finish(struct esp_schema *s);
void esp_schema_leaf_init(struct esp_leaf *leaf, const struct esp_jv *self);
/* schema_not.c: the ways to deny a leaf's own assertions. */
esp_status esp_schema_deny(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_choice **ret_choices);
/* The ways to differ from an array or object. */
esp_status esp_schema_differ(struct esp_schema *s, const struct esp_jv *value, const struct esp_choice **ret_choices);
/* schema_node.c */
esp_status esp_schema_node(struct esp_schema *s, const struct esp_item *items, uint32_t n, uint32_t *ret_node);
esp_status esp_schema_expand(struct esp_schema *s, uint32_t node);
/* The contents of the strings that satisfy the item, as an expression. */
esp_status esp_schema_contents(struct esp_schema *s, struct esp_item item, uint32_t *ret_contents);
bool esp_schema_false(const struct esp_schema *s, uint32_t node); /* is it plain that it has no value? */
/* schema_atom.c */
esp_status esp_schema_atoms(struct esp_schema *s, const struct esp_item *items, uint32_t n,
                            const struct esp_unevaluated *unevaluated, uint32_t n_unevaluated);
struct esp_atom *esp_schema_atom(struct esp_schema *s, enum esp_atom_kind kind);
void esp_schema_why(struct esp_schema *s, const struct esp_jv *at, const char *why);
/* schema_scalar.c */
esp_status esp_schema_numbers(const struct esp_conj *c, const struct esp_jv *const *values, uint32_t n_values);
esp_status esp_schema_strings(const struct esp_conj *c, const struct esp_jv *const *values, uint32_t n_values);
/* schema_array.c */
esp_status esp_schema_array(struct esp_conj *c);
/* schema_unique.c: an array whose items are distinct and satisfy these; `at` is the keyword. */
esp_status esp_schema_unique(struct esp_conj *c, const struct esp_jv *at, const struct esp_length *length,
                             const struct esp_item *items, uint32_t n);
bool esp_schema_counts_live(const struct esp_schema *s, struct esp_counts *counts);
void esp_schema_live(struct esp_schema *s, uint32_t id); /* esp_live_and, once for each */
uint32_t esp_schema_both(struct esp_schema *s, uint32_t a, uint32_t b); /* EMPTY when there is none */
/* Does an expression over string contents accept this text, spelled the shortest way? */
bool esp_schema_accepts(struct esp_schema *s, uint32_t id, const char *text, uint32_t n_bytes);
/* schema_depend.c: the same as an allOf array; the members are checked already */
esp_status esp_schema_depend(struct esp_schema *s, const struct esp_jv *v, const struct esp_jv **ret_all_of);
/* schema_keys.c */
esp_status esp_schema_object(struct esp_conj *c);
/* formats.c: the expression of a format's strings; 0 when the name is known but not built, UINT32_MAX when
 * the name is unknown. */
uint32_t esp_schema_format(struct esp_schema *s, const struct esp_jv *name);

/* Reports at the pointer of `at`, whose key is the keyword. */
esp_status esp_schema_fail(struct esp_schema *s, esp_status status, const struct esp_jv *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void esp_schema_warn(struct esp_schema *s, const char *code, const struct esp_jv *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
esp_status esp_schema_memory(struct esp_schema *s);

#endif
