/* Members of objects, as states of an automaton: which keys were passed, and how much of one is written.
 *
 *   keys in declared order   0 a   1 ab   2 b (required)   3 c
 *   trie of their characters         ·──a──(0)──b──(1)
 *                                    └──b──(2)
 *   state (at, from, count)  at: a node of the trie inside a key, or ESP_KEYS_REST between members;
 *                            from: keys before it are over; count: members so far, while counts matter
 *   state (at, OTHER)        inside a key that is not declared, as long as it spells the beginning of one that is
 *
 * A state stands for what an alternative of all the keys that may follow would say, and costs the same for
 * three keys as for three thousand. A key may follow when no required key lies between, and when the least and
 * the greatest number of members can still be met. Keys that are not declared come last.
 * Tables are written while a schema is compiled and read-only afterwards. Thread: any for reading.
 */
#ifndef ESP_GRAMMAR_OBJECTS_H
#define ESP_GRAMMAR_OBJECTS_H

#include "grammar/cpset.h"
#include "grammar/unique.h"

enum { ESP_KEYS_REST = 0 };
#define ESP_KEYS_OTHER UINT32_MAX /* as `from` */

struct esp_key {
    const char *name; /* copied by add */
    uint32_t n_bytes;
    bool required;
    uint32_t after; /* what follows the closing quote: colon and value */
};
struct esp_members {
    const struct esp_key *keys; /* distinct; borrowed by add */
    uint32_t n_keys;
    uint32_t min, max; /* members; max may be ESP_EXPR_INF */
    uint32_t comma, close;
    /* Members with other keys: any of those, by what follows the closing quote; or as an expression of the whole
     * member. EMPTY when there are none. */
    uint32_t other_after, other;
    uint32_t last, n_last; /* so many members, with commas between, that must come last; EMPTY when there are none */
    enum esp_spelling spelling;
};

struct esp_objects;
struct esp_objects *esp_objects_create(void);
void esp_objects_destroy(struct esp_objects *objects); /* NULL is fine */
size_t esp_objects_bytes(const struct esp_objects *objects);

/* The expression of the members and the closing bracket, EMPTY when no object fits. Failures latch in x. */
uint32_t esp_objects_add(struct esp_exprs *x, const struct esp_members *members);

/* Inside of expressions. */
uint32_t esp_keys_deriv(struct esp_exprs *x, const struct esp_expr *e, unsigned byte);
uint32_t esp_keys_expand(struct esp_exprs *x, const struct esp_expr *e); /* of a state between members */
void esp_keys_bytes(const struct esp_exprs *x, const struct esp_expr *e, struct esp_byteset *ret_set);
/* Inside a key that is not declared: what is left once it differs from all that are; else EMPTY. */
uint32_t esp_keys_free(const struct esp_exprs *x, const struct esp_expr *e);
/* Arrays of distinct items (unique.h) are kept here, too. False when out of memory. */
bool esp_objects_add_unique(struct esp_objects *objects, const struct esp_unique *unique, uint32_t *ret_array);
const struct esp_unique *esp_objects_unique(const struct esp_objects *objects, uint32_t array);
/* Names of the keys, for people. */
const struct esp_key *esp_objects_keys(const struct esp_objects *objects, uint32_t object, uint32_t *ret_n);

#endif
