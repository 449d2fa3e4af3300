/* Making object atoms: what schema_keys.c and schema_witness.c share.
 *
 *   declared keys       in their order, each with the patterns that match it
 *   other keys          told apart by the patterns that match them: a cell for each set of patterns
 *   witnesses           "some member with such a key has such a value": each is placed at a declared key
 *                       or in a cell, and every way to place them all makes an atom
 *
 * Everything lives in the arena of the compile. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_SCHEMA_KEYS_H
#define ESP_GRAMMAR_SCHEMA_KEYS_H

#include "grammar/schema.h"

struct esp_key_pattern {
    const struct esp_jv *v; /* member of some patternProperties */
    uint32_t expr;
};

struct esp_key_cell {
    uint32_t key, node;
    uint64_t matched;
};
struct esp_wanted { /* a witness, and which keys may be its */
    const struct esp_witness *w;
    uint32_t keys;
};

struct esp_key_set {
    struct esp_conj *c;
    struct esp_schema *s;
    struct esp_leaf *const *leaves;
    uint32_t n;
    const struct esp_jv *value; /* the value being made an atom, or NULL */
    struct esp_key_pattern patterns[ESP_SCHEMA_PATTERNS_MAX];
    uint32_t n_patterns;
    uint32_t names;                /* what propertyNames allows */
    const struct esp_jv *names_at; /* one of them, or NULL */
    struct esp_prop *props;
    uint64_t *matched; /* [n_props] the patterns that match each */
    uint32_t n_props, props_cap;
    struct esp_bytesmap map; /* name → prop */
    struct esp_length length;
    struct esp_key_cell *cells; /* keys that are not declared */
    uint32_t n_cells;
    struct esp_wanted *wanted;
    uint32_t n_wanted;
};

/* The expression of keys that the pattern, which is v's key, matches. */
esp_status esp_keys_pattern(struct esp_schema *s, const struct esp_jv *v, uint32_t *ret_expr);
/* Sets of keys; EMPTY when none is left. */
uint32_t esp_keys_without(struct esp_schema *s, uint32_t id, uint32_t other);
uint32_t esp_keys_both(struct esp_schema *s, uint32_t a, uint32_t b);
/* The node of the values of a key that these patterns match; name NULL: one that nothing declares. */
esp_status esp_keys_node(struct esp_key_set *k, const char *name, uint32_t n_bytes, uint64_t matched,
                         const struct esp_witness *const *extra, uint32_t n_extra, uint32_t *ret_node);
/* An atom of the cells and these declared keys. NULL when out of memory. */
struct esp_atom *esp_keys_atom(struct esp_key_set *k, struct esp_prop *props);
/* Did the expressions become too much? */
esp_status esp_keys_check(const struct esp_key_set *k);

/* schema_witness.c */
esp_status esp_keys_witnesses(struct esp_key_set *k);
esp_status esp_keys_witness_atoms(struct esp_key_set *k);

#endif
