/* Ways: what anyOf, oneOf, if, not and unequal values multiply a partial alternative into.
 *
 *   anyOf A B        A | B
 *   oneOf A B C      A ∧ ¬B ∧ ¬C | …      only those branches are denied that overlap with the one taken
 *   if I then T      ¬I | I ∧ T
 *   not S            the ways of schema_not.c, and each applicator of S denied:
 *     ¬$ref R = ¬R     ¬allOf = ¬A | ¬B     ¬anyOf = ¬A ∧ ¬B     ¬oneOf = none of them | two of them
 *
 * Whether two branches overlap is found out in a first pass, in which oneOf is taken for anyOf: every pair makes a
 * node, and a node without any value means that neither needs to be denied. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema_expand.h"
#include "grammar/schema_ref.h"
#include "grammar/vec.h"

#define SOME_OF_MAX 12u

/* A copy to which more is added; NULL once failed. */
static struct esp_partial *add_copy(struct esp_fork *f)
{
    struct esp_partial *copy = f->status == ESP_OK ? esp_arena_alloc(&f->s->arena, 1, sizeof *copy) : NULL;
    if (copy == NULL) {
        f->status = f->status == ESP_OK ? esp_schema_memory(f->s) : f->status;
        return NULL;
    }
    if (++*f->n_alternatives > ESP_SCHEMA_ALTERNATIVES_MAX) {
        f->status = esp_schema_fail(f->s, ESP_ELIMIT, f->at, "makes too many alternatives");
        return NULL;
    }
    *copy = *f->from;
    copy->next = NULL;
    *f->link = copy;
    f->link = &copy->next;
    return copy;
}

static void add(struct esp_fork *f, struct esp_partial *copy, const struct esp_jv *v, uint64_t kind,
                const struct esp_via *via)
{
    if (copy != NULL && v != NULL && f->status == ESP_OK) {
        f->status = esp_schema_todo(f->s, copy, (struct esp_item){v, kind}, via);
    }
}

/* ---- oneOf ------------------------------------------------------------------------------------- */

struct pair {
    const struct esp_jv *a, *b;
};

/* Has it been found that both branches fit some value? */
static bool overlap(const struct esp_schema *s, const struct esp_jv *a, const struct esp_jv *b)
{
    struct pair pair = a->index < b->index ? (struct pair){a, b} : (struct pair){b, a};
    uint32_t at = esp_bytesmap_get(&s->overlap_map, &pair, sizeof pair);
    return at == ESP_MAP_NONE || s->overlaps[at].both;
}

/* First pass: a node for what fits both, beside the schema's own assertions. */
static esp_status note_pair(struct esp_schema *s, const struct esp_jv *self, const struct esp_jv *a,
                            const struct esp_jv *b)
{
    struct pair pair = {a, b};
    struct esp_item items[3] = {{self, ESP_ITEM_LEAF}, {a, ESP_ITEM_SCHEMA}, {b, ESP_ITEM_SCHEMA}};
    struct esp_schema_overlap o = {0};
    if (esp_bytesmap_get(&s->overlap_map, &pair, sizeof pair) != ESP_MAP_NONE) {
        return ESP_OK;
    }
    esp_status status = esp_schema_node(s, items, 3, &o.node);
    if (status != ESP_OK) {
        return status;
    }
    struct pair *key = esp_arena_alloc(&s->arena, 1, sizeof *key);
    if (key == NULL || !esp_vec_grow(&s->overlaps, &s->overlaps_cap, (uint64_t)s->n_overlaps + 1)) {
        return esp_schema_memory(s);
    }
    *key = pair;
    s->overlaps[s->n_overlaps] = o;
    return esp_bytesmap_put(&s->overlap_map, key, sizeof *key, s->n_overlaps++) == ESP_OK ? ESP_OK
                                                                                          : esp_schema_memory(s);
}

static void fork_one_of(struct esp_fork *f, const struct esp_jv *one_of, const struct esp_via *via)
{
    for (const struct esp_jv *child = one_of->child; child != NULL && f->status == ESP_OK; child = child->next) {
        struct esp_partial *copy = add_copy(f);
        for (const struct esp_jv *other = one_of->child; other != NULL && f->status == ESP_OK; other = other->next) {
            if (f->s->exact) {
                add(f, other != child && overlap(f->s, child, other) ? copy : NULL, other, ESP_ITEM_NOT, via);
            } else if (other->index > child->index) {
                f->status = note_pair(f->s, via->v, child, other);
            }
        }
        add(f, copy, child, ESP_ITEM_SCHEMA, via);
    }
}

/* ---- anyOf and if ------------------------------------------------------------------------------ */

/* Where it counts what is evaluated, all branches that hold do so: a way for every set of branches that may. Those
 * of a set need not deny the others, as more of them only evaluate more. */
static void fork_some_of(struct esp_fork *f, const struct esp_jv *any_of, const struct esp_via *via)
{
    if (any_of->n > SOME_OF_MAX) {
        f->status = esp_schema_fail(f->s, ESP_ELIMIT, any_of, "has too many branches beside unevaluated ones");
    }
    for (uint32_t set = 1; set >> any_of->n == 0 && f->status == ESP_OK; set++) {
        struct esp_partial *copy = add_copy(f);
        for (const struct esp_jv *child = any_of->child; child != NULL; child = child->next) {
            add(f, set >> child->index & 1 ? copy : NULL, child, ESP_ITEM_SCHEMA, via);
        }
    }
}

static void fork_any_of(struct esp_fork *f, const struct esp_jv *any_of, const struct esp_via *via)
{
    if (via->counts) {
        fork_some_of(f, any_of, via);
        return;
    }
    for (const struct esp_jv *child = any_of->child; child != NULL && f->status == ESP_OK; child = child->next) {
        add(f, add_copy(f), child, ESP_ITEM_SCHEMA, via);
    }
}

static void fork_if(struct esp_fork *f, const struct esp_jv *v, const struct esp_via *via)
{
    const struct esp_jv *then = esp_jv_find(via->v, "then"), *otherwise = esp_jv_find(via->v, "else");
    struct esp_partial *copy = add_copy(f); /* I ∧ T */
    add(f, copy, then, ESP_ITEM_SCHEMA, via);
    add(f, copy, v, ESP_ITEM_SCHEMA, via);
    copy = add_copy(f); /* ¬I ∧ E */
    add(f, copy, otherwise, ESP_ITEM_SCHEMA, via);
    add(f, copy, v, ESP_ITEM_NOT, via);
}

/* ---- not --------------------------------------------------------------------------------------- */

static const struct esp_leaf *done_leaf(const struct esp_partial *p, uint32_t idx)
{
    return p->done[idx].kind == ESP_ITEM_LEAF ? p->done[idx].v->extra : NULL;
}

static bool is_forbidden(const struct esp_part *part)
{
    return part->item.kind == ESP_ITEM_SCHEMA && part->item.v->type == ESP_JV_FALSE;
}

/* The condition on one member that the way is, or NULL. */
static const struct esp_part *way_member(const struct esp_choice *choice)
{
    const struct esp_leaf *leaf = choice->items[0].kind == ESP_ITEM_LEAF ? choice->items[0].v->extra : NULL;
    return leaf != NULL && leaf->part != NULL && leaf->part->name != NULL ? leaf->part : NULL;
}

static bool same_member(const struct esp_part *a, const struct esp_part *b)
{
    return b != NULL && b->name != NULL && a->n_bytes == b->n_bytes && memcmp(a->name, b->name, a->n_bytes) == 0;
}

static bool requires(const struct esp_leaf *leaf, const struct esp_part *part)
{
    const struct esp_jv *v = leaf->required == NULL ? NULL : leaf->required->child;
    while (v != NULL && (v->n_bytes != part->n_bytes || memcmp(v->text, part->name, v->n_bytes) != 0)) {
        v = v->next;
    }
    return v != NULL || (same_member(part, leaf->part) && leaf->part->required);
}

/* Recursion is bounded by the depth that the parser allows. */
static bool mentions_ref(const struct esp_jv *v)
{
    for (const struct esp_jv *child = v->child; child != NULL; child = child->next) {
        if ((v->type == ESP_JV_OBJECT && child->key[0] == '$') || mentions_ref(child)) {
            return true;
        }
    }
    return false;
}

/* The same words mean the same, unless they refer to something from different places. */
static bool same_schema(const struct esp_schema *s, const struct esp_jv *a, const struct esp_jv *b)
{
    bool one_place = s->refs != NULL && s->refs->n_resources == 1;
    return a == b || (esp_jv_equal(a, b) && (one_place || !mentions_ref(a)));
}

/* Does what is done already leave nothing of the way? Only what is cheap to see: a key that is required is not
 * missing, and a member that satisfies S, word for word, does not break it. */
static bool way_possible(const struct esp_schema *s, const struct esp_partial *p, const struct esp_choice *choice)
{
    const struct esp_part *part = way_member(choice);
    if (choice->items[0].kind != ESP_ITEM_LEAF) {
        return true;
    }
    bool possible = (((const struct esp_leaf *)choice->items[0].v->extra)->types & p->types) != 0;
    for (uint32_t idx = 0; idx < p->n_done && possible && part != NULL; idx++) {
        const struct esp_leaf *leaf = done_leaf(p, idx);
        if (leaf == NULL) {
            continue;
        }
        if (is_forbidden(part)) {
            possible = !requires(leaf, part);
        } else if (same_member(part, leaf->part) && is_forbidden(leaf->part)) {
            possible = false;
        } else if (leaf->properties != NULL && part->item.kind == ESP_ITEM_NOT) {
            const struct esp_jv *v = esp_jv_get(leaf->properties, part->name, part->n_bytes);
            possible = v == NULL || !same_schema(s, v, part->item.v);
        }
    }
    return possible;
}

/* Does what is done already include one of the ways? Then there is nothing to multiply. */
static bool way_holds(const struct esp_partial *p, const struct esp_choice *choice)
{
    const struct esp_part *part = way_member(choice);
    for (uint32_t idx = 0; idx < p->n_done && part != NULL; idx++) {
        const struct esp_leaf *leaf = done_leaf(p, idx);
        if (leaf != NULL && same_member(part, leaf->part) && part->required == leaf->part->required &&
            part->item.kind == leaf->part->item.kind &&
            (part->item.v == leaf->part->item.v || (is_forbidden(part) && is_forbidden(leaf->part)))) {
            return true;
        }
    }
    return false;
}

static bool any_holds(const struct esp_partial *p, const struct esp_choice *choice)
{
    while (choice != NULL && !way_holds(p, choice)) {
        choice = choice->next;
    }
    return choice != NULL;
}

static void add_ways(struct esp_fork *f, const struct esp_choice *choice, const struct esp_via *via)
{
    for (; choice != NULL && f->status == ESP_OK; choice = choice->next) {
        struct esp_partial *copy = way_possible(f->s, f->from, choice) ? add_copy(f) : NULL;
        for (uint32_t idx = 0; idx < choice->n; idx++) {
            add(f, copy, choice->items[idx].v, choice->items[idx].kind, via);
        }
    }
}

static void deny_one_of(struct esp_fork *f, const struct esp_jv *one_of, const struct esp_via *via)
{
    struct esp_partial *none = add_copy(f);
    for (const struct esp_jv *a = one_of->child; a != NULL && f->status == ESP_OK; a = a->next) {
        add(f, none, a, ESP_ITEM_NOT, via);
        for (const struct esp_jv *b = a->next; b != NULL && f->status == ESP_OK; b = b->next) {
            if (!f->s->exact || overlap(f->s, a, b)) {
                struct esp_partial *two = add_copy(f);
                add(f, two, b, ESP_ITEM_SCHEMA, via);
                add(f, two, a, ESP_ITEM_SCHEMA, via);
            }
        }
    }
}

static void deny_if(struct esp_fork *f, const struct esp_jv *v, const struct esp_via *via)
{
    const struct esp_jv *then = esp_jv_find(v->parent, "then"), *otherwise = esp_jv_find(v->parent, "else");
    struct esp_partial *copy = then != NULL ? add_copy(f) : NULL; /* I ∧ ¬T */
    add(f, copy, then, ESP_ITEM_NOT, via);
    add(f, copy, v, ESP_ITEM_SCHEMA, via);
    copy = otherwise != NULL ? add_copy(f) : NULL; /* ¬I ∧ ¬E */
    add(f, copy, otherwise, ESP_ITEM_NOT, via);
    add(f, copy, v, ESP_ITEM_NOT, via);
}

static void deny_applicator(struct esp_fork *f, const struct esp_jv *v, const struct esp_via *via)
{
    if (v->type == ESP_JV_STRING) { /* $ref */
        const struct esp_jv *target;
        f->status = esp_schema_resolve(f->s, v, &target);
        if (f->status == ESP_OK) {
            add(f, add_copy(f), target, ESP_ITEM_NOT, via);
        }
    } else if (v->type != ESP_JV_ARRAY) {
        if (strcmp(v->key, "not") == 0) {
            add(f, add_copy(f), v, ESP_ITEM_SCHEMA, via);
        } else {
            deny_if(f, v, via);
        }
    } else if (strcmp(v->key, "allOf") == 0) {
        for (const struct esp_jv *child = v->child; child != NULL && f->status == ESP_OK; child = child->next) {
            add(f, add_copy(f), child, ESP_ITEM_NOT, via);
        }
    } else if (strcmp(v->key, "anyOf") == 0) {
        struct esp_partial *copy = add_copy(f);
        for (const struct esp_jv *child = v->child; child != NULL; child = child->next) {
            add(f, copy, child, ESP_ITEM_NOT, via);
        }
    } else {
        deny_one_of(f, v, via);
    }
}

static void fork_not(struct esp_fork *f, const struct esp_jv *v, const struct esp_via *up)
{
    struct esp_schema *s = f->s;
    const struct esp_choice *choices;
    struct esp_via *via;
    struct esp_leaf *leaf;
    if (v->type == ESP_JV_FALSE) {
        add_copy(f);
        return;
    }
    if (v->type == ESP_JV_TRUE || esp_schema_is_done(f->from, v, ESP_ITEM_LEAF)) {
        return; /* S ∧ ¬S */
    }
    f->status = esp_schema_via(s, v, up, true, &via);
    if (f->status == ESP_OK) {
        f->status = esp_schema_read(s, v, &leaf);
    }
    if (f->status == ESP_OK && (leaf->types & f->from->types) == 0) {
        add_copy(f); /* denied by its type already */
        return;
    }
    if (f->status == ESP_OK) {
        f->status = esp_schema_deny(s, leaf, &choices);
    }
    if (f->status == ESP_OK && any_holds(f->from, choices)) {
        add_copy(f);
        return;
    }
    if (f->status == ESP_OK) {
        add_ways(f, choices, via);
        for (uint32_t idx = 0; idx < leaf->n_applicators && f->status == ESP_OK; idx++) {
            deny_applicator(f, leaf->applicators[idx], via);
        }
    }
    for (struct esp_partial *copy = f->first; copy != NULL && f->status == ESP_OK; copy = copy->next) {
        f->status = esp_schema_done(s, copy, (struct esp_item){v, ESP_ITEM_NOT});
    }
}

static void fork_unequal(struct esp_fork *f, const struct esp_jv *value, const struct esp_via *via)
{
    const struct esp_choice *choices;
    f->status = esp_schema_differ(f->s, value, &choices);
    if (f->status == ESP_OK) {
        add_ways(f, choices, via);
    }
}

esp_status esp_schema_branch(struct esp_schema *s, const struct esp_partial *p, const struct esp_todo *todo,
                             struct esp_fork *f)
{
    const struct esp_jv *v = todo->item.v;
    f->s = s;
    f->from = p;
    f->link = &f->first;
    f->at = v;
    switch (todo->item.kind) {
    case ESP_ITEM_IF: fork_if(f, v, todo->via); break;
    case ESP_ITEM_NOT: fork_not(f, v, todo->via); break;
    case ESP_ITEM_UNEQUAL: fork_unequal(f, v, todo->via); break;
    default:
        if (strcmp(v->key, "oneOf") == 0) {
            fork_one_of(f, v, todo->via);
        } else {
            fork_any_of(f, v, todo->via);
        }
    }
    return f->status;
}
