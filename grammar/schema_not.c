/* Denying: the ways in which a value can break a schema's own assertions.
 *
 *   not {type: object, required: [a], properties: {b: S}, additionalProperties: T}
 *     = no object  |  an object without a  |  an object with b: not S  |  an object with another key: not T
 *
 * Each way is a leaf that asserts, so that everything after this file knows conjunctions and unions only.
 * The leaves are made once for each schema and kept, because nodes are found again by what they are made of.
 * A denied leaf hangs at the place of the keyword that it denies, for messages. Applicators are denied in
 * schema_branch.c. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema.h"

#define NUMBERS (ESP_TYPE_INTEGER | ESP_TYPE_FRACTION)

struct denial {
    struct esp_schema *s;
    struct esp_choice *first, **link;
    esp_status status;
};

/* One more way: a single item. */
static void add_way(struct denial *d, struct esp_item item)
{
    struct esp_choice *choice = esp_arena_alloc(&d->s->arena, 1, sizeof *choice);
    struct esp_item *items = esp_arena_alloc(&d->s->arena, 1, sizeof *items);
    if (choice == NULL || items == NULL) {
        d->status = esp_schema_memory(d->s);
        return;
    }
    *items = item;
    *choice = (struct esp_choice){items, 1, NULL};
    *d->link = choice;
    d->link = &choice->next;
}

/* One more way: a leaf about values of these types, which the caller fills. NULL once failed. */
static struct esp_leaf *add_leaf(struct denial *d, const struct esp_jv *at, uint32_t types)
{
    struct esp_leaf *leaf = esp_arena_alloc(&d->s->arena, 1, sizeof *leaf);
    struct esp_jv *self = esp_arena_alloc(&d->s->arena, 1, sizeof *self);
    if (leaf == NULL || self == NULL || d->status != ESP_OK) {
        d->status = d->status == ESP_OK ? esp_schema_memory(d->s) : d->status;
        return NULL;
    }
    *self = *at;
    self->extra = leaf;
    esp_schema_leaf_init(leaf, self);
    leaf->types = types;
    add_way(d, (struct esp_item){self, ESP_ITEM_LEAF});
    return d->status == ESP_OK ? leaf : NULL;
}

/* Nothing can break it. */
static bool is_true(const struct esp_jv *v)
{
    return v->type == ESP_JV_TRUE || (v->type == ESP_JV_OBJECT && v->n == 0);
}

static void deny_range(struct denial *d, const struct esp_leaf *leaf, uint32_t types, uint32_t min, uint32_t max,
                       size_t min_offset, size_t max_offset)
{
    struct esp_leaf *below = min > 0 ? add_leaf(d, leaf->self, types) : NULL;
    if (below != NULL) {
        *(uint32_t *)((char *)below + max_offset) = min - 1;
    }
    struct esp_leaf *above = max < ESP_EXPR_INF ? add_leaf(d, leaf->self, types) : NULL;
    if (above != NULL) {
        *(uint32_t *)((char *)above + min_offset) = max + 1;
    }
}

/* ---- Numbers and strings ------------------------------------------------------------------------ */

static void deny_numbers(struct denial *d, const struct esp_leaf *leaf)
{
    const struct esp_bounds *b = &leaf->bounds;
    struct esp_leaf *below = b->has_lo ? add_leaf(d, leaf->min_at, NUMBERS) : NULL;
    if (below != NULL) {
        below->bounds = (struct esp_bounds){.has_hi = true, .hi = b->lo, .hi_open = !b->lo_open};
        below->max_at = leaf->min_at;
    }
    struct esp_leaf *above = b->has_hi ? add_leaf(d, leaf->max_at, NUMBERS) : NULL;
    if (above != NULL) {
        above->bounds = (struct esp_bounds){.has_lo = true, .lo = b->hi, .lo_open = !b->hi_open};
        above->min_at = leaf->max_at;
    }
    struct esp_leaf *beside = b->step.n > 0 ? add_leaf(d, leaf->self, NUMBERS) : NULL;
    if (beside != NULL) {
        beside->bounds = (struct esp_bounds){.not_of = &leaf->bounds.step, .n_not = 1};
    }
}

static void deny_contents(struct denial *d, const struct esp_leaf *leaf, uint32_t contents)
{
    struct esp_exprs *x = d->s->x;
    uint32_t others = esp_expr_not(x, esp_spell_any(x, d->s->spelling), contents);
    esp_schema_live(d->s, others);
    if (x->failed != ESP_OK) {
        d->status = esp_schema_fail(d->s, x->failed, leaf->self, "is too complex to be denied");
    } else if (others != ESP_EXPR_EMPTY && (x->exprs[others].flags & ESP_EXPR_DEAD) == 0) {
        struct esp_leaf *other = add_leaf(d, leaf->self, ESP_TYPE_STRING);
        if (other != NULL) {
            other->pattern = others;
        }
    }
}

static void deny_strings(struct denial *d, const struct esp_leaf *leaf)
{
    if (leaf->never_text) {
        add_leaf(d, leaf->self, ESP_TYPE_STRING);
    }
    if (leaf->pattern != 0) {
        deny_contents(d, leaf, leaf->pattern);
    }
    if (leaf->format != 0) {
        deny_contents(d, leaf, leaf->format);
    }
}

/* ---- Arrays ------------------------------------------------------------------------------------- */

static void deny_part(struct denial *d, const struct esp_jv *at, struct esp_part part, uint32_t types)
{
    struct esp_leaf *leaf = add_leaf(d, at, types);
    struct esp_part *copy = esp_arena_alloc(&d->s->arena, 1, sizeof *copy);
    if (leaf == NULL || copy == NULL) {
        d->status = d->status == ESP_OK ? esp_schema_memory(d->s) : d->status;
        return;
    }
    *copy = part;
    leaf->part = copy;
    if (types == ESP_TYPE_ARRAY) {
        leaf->min_items = part.index + 1;
    }
}

static void deny_counter(struct denial *d, struct esp_counter counter)
{
    struct esp_leaf *leaf = add_leaf(d, counter.at, ESP_TYPE_ARRAY);
    struct esp_counter *copy = esp_arena_alloc(&d->s->arena, 1, sizeof *copy);
    if (leaf == NULL || copy == NULL) {
        d->status = d->status == ESP_OK ? esp_schema_memory(d->s) : d->status;
        return;
    }
    *copy = counter;
    leaf->counter = copy;
}

static void deny_arrays(struct denial *d, const struct esp_leaf *leaf)
{
    uint32_t n_prefix = leaf->prefix == NULL ? 0 : leaf->prefix->n;
    for (const struct esp_jv *v = n_prefix == 0 ? NULL : leaf->prefix->child; v != NULL; v = v->next) {
        if (!is_true(v)) {
            deny_part(d, v, (struct esp_part){.item = {v, ESP_ITEM_NOT}, .index = v->index}, ESP_TYPE_ARRAY);
        }
    }
    if (leaf->items != NULL && !is_true(leaf->items)) {
        deny_counter(d, (struct esp_counter){{leaf->items, ESP_ITEM_NOT}, n_prefix, 1, ESP_EXPR_INF, leaf->items});
    }
    if (leaf->contains == NULL) {
        return;
    }
    struct esp_item what = {leaf->contains, ESP_ITEM_SCHEMA};
    if (leaf->contains_min > 0) {
        deny_counter(d, (struct esp_counter){what, 0, 0, leaf->contains_min - 1, leaf->contains});
    }
    if (leaf->contains_max < ESP_EXPR_INF) {
        deny_counter(d, (struct esp_counter){what, 0, leaf->contains_max + 1, ESP_EXPR_INF, leaf->contains});
    }
}

/* ---- Objects ------------------------------------------------------------------------------------ */

static void deny_witness(struct denial *d, const struct esp_jv *at, struct esp_witness witness)
{
    struct esp_leaf *leaf = add_leaf(d, at, ESP_TYPE_OBJECT);
    struct esp_witness *copy = esp_arena_alloc(&d->s->arena, 1, sizeof *copy);
    if (leaf == NULL || copy == NULL) {
        d->status = d->status == ESP_OK ? esp_schema_memory(d->s) : d->status;
        return;
    }
    *copy = witness;
    leaf->witness = copy;
}

static void deny_objects(struct denial *d, const struct esp_leaf *leaf)
{
    static const struct esp_jv never = {.type = ESP_JV_FALSE};
    const struct esp_jv *v = leaf->required == NULL ? NULL : leaf->required->child;
    for (; v != NULL; v = v->next) {
        deny_part(d, leaf->required,
                  (struct esp_part){.item = {&never, ESP_ITEM_SCHEMA}, .name = v->text, .n_bytes = v->n_bytes},
                  ESP_TYPE_OBJECT);
    }
    for (v = leaf->properties == NULL ? NULL : leaf->properties->child; v != NULL; v = v->next) {
        struct esp_part part = {.item = {v, ESP_ITEM_NOT}, .name = v->key, .n_bytes = v->key_bytes, .required = true};
        if (!is_true(v)) {
            deny_part(d, v, part, ESP_TYPE_OBJECT);
        }
    }
    for (v = leaf->patterns == NULL ? NULL : leaf->patterns->child; v != NULL; v = v->next) {
        if (!is_true(v)) {
            deny_witness(d, v, (struct esp_witness){.pattern = v, .item = {v, ESP_ITEM_NOT}});
        }
    }
    if (leaf->additional != NULL && !is_true(leaf->additional)) {
        deny_witness(d, leaf->additional, (struct esp_witness){.of = leaf, .item = {leaf->additional, ESP_ITEM_NOT}});
    }
    if (leaf->names != NULL && !is_true(leaf->names)) {
        static const struct esp_jv any = {.type = ESP_JV_TRUE};
        deny_witness(d, leaf->names, (struct esp_witness){.names = leaf->names, .item = {&any, ESP_ITEM_SCHEMA}});
    }
}

esp_status esp_schema_deny(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_choice **ret_choices)
{
    struct denial d = {.s = s, .link = &d.first};
    const struct esp_jv *rest = leaf->rest_members != NULL ? leaf->rest_members : leaf->rest_items;
    if (leaf->unique != NULL) {
        return esp_schema_fail(s, ESP_EUNSUPPORTED, leaf->unique,
                               "is not supported where it is denied (not, if, oneOf)");
    }
    if (rest != NULL && rest->type != ESP_JV_TRUE) {
        return esp_schema_fail(s, ESP_EUNSUPPORTED, rest, "is not supported where it is denied (not, if, oneOf)");
    }
    if (!leaf->denied) {
        if (leaf->types != ESP_TYPE_ALL) {
            add_leaf(&d, leaf->self, ESP_TYPE_ALL & ~leaf->types);
        }
        if (leaf->values != NULL) {
            add_way(&d, (struct esp_item){leaf->values, ESP_ITEM_UNLISTED});
        }
        if (leaf->constant != NULL) {
            add_way(&d, (struct esp_item){leaf->constant, ESP_ITEM_UNEQUAL});
        }
        deny_numbers(&d, leaf);
        deny_strings(&d, leaf);
        deny_range(&d, leaf, ESP_TYPE_STRING, leaf->min_chars, leaf->max_chars, offsetof(struct esp_leaf, min_chars),
                   offsetof(struct esp_leaf, max_chars));
        deny_arrays(&d, leaf);
        deny_range(&d, leaf, ESP_TYPE_ARRAY, leaf->min_items, leaf->max_items, offsetof(struct esp_leaf, min_items),
                   offsetof(struct esp_leaf, max_items));
        deny_objects(&d, leaf);
        deny_range(&d, leaf, ESP_TYPE_OBJECT, leaf->min_members, leaf->max_members,
                   offsetof(struct esp_leaf, min_members), offsetof(struct esp_leaf, max_members));
        leaf->denials = d.first;
        leaf->denied = d.status == ESP_OK;
    }
    *ret_choices = leaf->denials;
    return d.status;
}

/* ---- Values ------------------------------------------------------------------------------------- */

static void differ_object(struct denial *d, const struct esp_jv *value)
{
    static const struct esp_jv never = {.type = ESP_JV_FALSE}, any = {.type = ESP_JV_TRUE};
    for (const struct esp_jv *v = value->child; v != NULL; v = v->next) {
        struct esp_part without = {.item = {&never, ESP_ITEM_SCHEMA}, .name = v->key, .n_bytes = v->key_bytes};
        struct esp_part other = {
            .item = {v, ESP_ITEM_UNEQUAL}, .name = v->key, .n_bytes = v->key_bytes, .required = true};
        deny_part(d, value, without, ESP_TYPE_OBJECT);
        deny_part(d, v, other, ESP_TYPE_OBJECT);
    }
    /* A key more: one that is not declared by this leaf. */
    struct esp_leaf *keys = esp_arena_alloc(&d->s->arena, 1, sizeof *keys);
    if (keys == NULL) {
        d->status = esp_schema_memory(d->s);
        return;
    }
    esp_schema_leaf_init(keys, value);
    keys->properties = value;
    deny_witness(d, value, (struct esp_witness){.of = keys, .item = {&any, ESP_ITEM_SCHEMA}});
}

esp_status esp_schema_differ(struct esp_schema *s, const struct esp_jv *value, const struct esp_choice **ret_choices)
{
    struct denial d = {.s = s, .link = &d.first};
    uint32_t type = value->type == ESP_JV_ARRAY ? ESP_TYPE_ARRAY : ESP_TYPE_OBJECT;
    add_leaf(&d, value, ESP_TYPE_ALL & ~type);
    if (value->type == ESP_JV_ARRAY) {
        struct esp_leaf same = {.self = value};
        deny_range(&d, &same, type, value->n, value->n, offsetof(struct esp_leaf, min_items),
                   offsetof(struct esp_leaf, max_items));
        for (const struct esp_jv *v = value->child; v != NULL; v = v->next) {
            deny_part(&d, v, (struct esp_part){.item = {v, ESP_ITEM_UNEQUAL}, .index = v->index}, type);
        }
    } else {
        differ_object(&d, value);
    }
    *ret_choices = d.first;
    return d.status;
}
