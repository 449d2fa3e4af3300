/* Multiplying a node out: partial alternatives, shared by schema_node.c and schema_branch.c.
 *
 *   todo [A, …]   done []          take A: its own assertions go to done, its applicators to the front
 *                                  of todo ($ref → target, allOf → all); anyOf, oneOf, if and not fork:
 *                                  one copy of the partial for each way
 *   todo []       done [leaf …]    an alternative: schema_atom.c makes typed atoms of it
 *
 * Lists share their tails between copies; everything lives in the arena. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_SCHEMA_EXPAND_H
#define ESP_GRAMMAR_SCHEMA_EXPAND_H

#include "grammar/schema.h"

struct esp_via { /* the schemas on the way in */
    const struct esp_jv *v;
    const struct esp_via *up;
    bool mute;   /* inside a not: says nothing about what is evaluated */
    bool counts; /* unevaluatedProperties or unevaluatedItems is at v or above */
};
struct esp_todo {
    struct esp_item item;
    const struct esp_via *via;
    const struct esp_todo *next;
};
struct esp_seen { /* leaves that may say what is evaluated, with their way in */
    const struct esp_leaf *leaf;
    const struct esp_via *via;
    const struct esp_seen *next;
};
struct esp_partial {
    struct esp_item done[ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n_done, types; /* types that are still possible */
    const struct esp_todo *todo;
    const struct esp_seen *seen;
    struct esp_partial *next; /* stack */
    bool dead;
};
/* Copies of one partial, in order, to be put on the stack. */
struct esp_fork {
    struct esp_schema *s;
    const struct esp_partial *from;
    struct esp_partial *first, **link;
    uint32_t *n_alternatives;
    const struct esp_jv *at;
    esp_status status;
};

esp_status esp_schema_todo(struct esp_schema *s, struct esp_partial *p, struct esp_item item,
                           const struct esp_via *via);
esp_status esp_schema_done(struct esp_schema *s, struct esp_partial *p, struct esp_item item);
/* The way in to v; refuses a schema that is on it already. */
esp_status esp_schema_via(struct esp_schema *s, const struct esp_jv *v, const struct esp_via *up, bool mute,
                          struct esp_via **ret_via);
bool esp_schema_is_done(const struct esp_partial *p, const struct esp_jv *v, uint64_t kind);

/* schema_branch.c: forks for the anyOf, oneOf, if, not or value that came up in todo. */
esp_status esp_schema_branch(struct esp_schema *s, const struct esp_partial *p, const struct esp_todo *todo,
                             struct esp_fork *fork);
/* schema_rest.c: the atoms of a finished alternative, once it is known what is evaluated. */
esp_status esp_schema_finish(struct esp_schema *s, const struct esp_partial *p);

#endif
