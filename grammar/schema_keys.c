/* Object atoms: which keys there may be, and the node of the values of each.
 *
 *   declared keys       in their order; a pattern that matches one adds its schema to the key's conjunction
 *   other keys          told apart by the patterns that match them: a cell for each set of patterns
 *
 *   patterns ^a, z$     cells: both   ^a not z$   z$ not ^a   neither (additionalProperties)
 *
 * propertyNames is a condition on strings: its enum declares keys, everything else narrows the cells.
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema_keys.h"

/* ---- What keys must satisfy -------------------------------------------------------------------- */

esp_status esp_keys_pattern(struct esp_schema *s, const struct esp_jv *v, uint32_t *ret_expr)
{
    struct esp_err err = {0};
    esp_status status = esp_regex_compile(s->x, s->spelling, true, v->key, v->key_bytes, ret_expr, &err);
    return status == ESP_OK ? status : esp_schema_fail(s, status, v, "%s", err.message);
}

static esp_status gather_patterns(struct esp_key_set *k)
{
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < k->n; idx++) {
        const struct esp_jv *patterns = k->leaves[idx]->patterns;
        for (const struct esp_jv *v = patterns == NULL ? NULL : patterns->child; v != NULL; v = v->next) {
            if (k->n_patterns == ESP_SCHEMA_PATTERNS_MAX) {
                return esp_schema_fail(k->s, ESP_ELIMIT, patterns, "has too many patterns for one object");
            }
            k->patterns[k->n_patterns].v = v;
            status = esp_keys_pattern(k->s, v, &k->patterns[k->n_patterns++].expr);
            if (status != ESP_OK) {
                return status;
            }
        }
    }
    return status;
}

uint32_t esp_keys_without(struct esp_schema *s, uint32_t id, uint32_t other)
{
    uint32_t rest = id == ESP_EXPR_EMPTY ? id : esp_expr_not(s->x, id, other);
    esp_schema_live(s, rest);
    return s->x->exprs[rest].flags & ESP_EXPR_DEAD ? ESP_EXPR_EMPTY : rest;
}

uint32_t esp_keys_both(struct esp_schema *s, uint32_t a, uint32_t b)
{
    return a == ESP_EXPR_EMPTY || b == ESP_EXPR_EMPTY ? ESP_EXPR_EMPTY : esp_schema_both(s, a, b);
}

esp_status esp_keys_check(const struct esp_key_set *k)
{
    return k->s->x->failed == ESP_OK ? ESP_OK
                                     : esp_schema_fail(k->s, k->s->x->failed, k->leaves[0]->self,
                                                       "has conditions on keys that are too complex together");
}

static esp_status gather_names(struct esp_key_set *k)
{
    struct esp_schema *s = k->s;
    k->names = esp_spell_any(s->x, s->spelling);
    for (uint32_t idx = 0; idx < k->n; idx++) {
        const struct esp_jv *v = k->leaves[idx]->names;
        uint32_t one;
        if (v == NULL || v->type == ESP_JV_TRUE) {
            continue;
        }
        k->names_at = v;
        esp_status status = esp_schema_contents(s, (struct esp_item){v, ESP_ITEM_SCHEMA}, &one);
        if (status != ESP_OK) {
            return status;
        }
        k->names = esp_keys_both(s, k->names, one);
    }
    return esp_keys_check(k);
}

/* ---- Declared keys ----------------------------------------------------------------------------- */

static esp_status add_name(struct esp_key_set *k, const char *name, uint32_t n_bytes, bool required)
{
    uint32_t at = esp_bytesmap_get(&k->map, name, n_bytes);
    if (at != ESP_MAP_NONE) {
        k->props[at].required = k->props[at].required || required;
        return ESP_OK;
    }
    if (k->n_props == k->props_cap) {
        uint32_t cap = k->props_cap == 0 ? 16 : k->props_cap * 2;
        struct esp_prop *props = esp_arena_alloc(&k->s->arena, cap, sizeof *props);
        if (props == NULL) {
            return esp_schema_memory(k->s);
        }
        if (k->n_props > 0) {
            memcpy(props, k->props, k->n_props * sizeof *props);
        }
        k->props = props;
        k->props_cap = cap;
    }
    k->props[k->n_props] = (struct esp_prop){.name = name, .n_bytes = n_bytes, .required = required};
    return esp_bytesmap_put(&k->map, name, n_bytes, k->n_props++) == ESP_OK ? ESP_OK : esp_schema_memory(k->s);
}

/* Keys that an enum or const of propertyNames spells out. */
static esp_status declare_named(struct esp_key_set *k, const struct esp_jv *names)
{
    esp_status status = ESP_OK;
    if (names == NULL || names->type != ESP_JV_OBJECT || names->extra == NULL) {
        return ESP_OK;
    }
    const struct esp_leaf *leaf = names->extra; /* read by gather_names */
    const struct esp_jv *v = leaf->values == NULL ? NULL : leaf->values->child;
    for (; v != NULL && status == ESP_OK; v = v->next) {
        status = v->type == ESP_JV_STRING ? add_name(k, v->text, v->n_bytes, false) : ESP_OK;
    }
    v = leaf->constant;
    return status == ESP_OK && v != NULL && v->type == ESP_JV_STRING ? add_name(k, v->text, v->n_bytes, false) : status;
}

static esp_status add_members(struct esp_key_set *k, const struct esp_jv *object, bool required)
{
    esp_status status = ESP_OK;
    const struct esp_jv *v = object == NULL ? NULL : object->child;
    for (; v != NULL && status == ESP_OK; v = v->next) {
        status = add_name(k, v->key, v->key_bytes, required);
    }
    return status;
}

static esp_status declare_parts(struct esp_key_set *k)
{
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < k->n && status == ESP_OK; idx++) {
        const struct esp_part *part = k->leaves[idx]->part;
        if (part != NULL && part->name != NULL && (part->required || k->value == NULL)) {
            status = add_name(k, part->name, part->n_bytes, part->required);
        }
    }
    return status;
}

static esp_status declare(struct esp_key_set *k)
{
    const struct esp_jv *v;
    esp_status status = add_members(k, k->value, true);
    for (uint32_t idx = 0; idx < k->n && k->value == NULL && status == ESP_OK; idx++) {
        status = add_members(k, k->leaves[idx]->properties, false);
    }
    for (uint32_t idx = 0; idx < k->n; idx++) {
        v = k->leaves[idx]->required == NULL ? NULL : k->leaves[idx]->required->child;
        for (; v != NULL && status == ESP_OK; v = v->next) {
            status = add_name(k, v->text, v->n_bytes, true);
        }
    }
    if (status == ESP_OK) {
        status = declare_parts(k);
    }
    for (uint32_t idx = 0; idx < k->n && k->value == NULL && status == ESP_OK; idx++) {
        status = declare_named(k, k->leaves[idx]->names);
    }
    return status;
}

/* A list of items on the stack; its room is that of a node and some for repeats. */
struct list {
    struct esp_item items[4 * ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n;
};

static void add_item(struct list *list, const struct esp_jv *v, uint64_t kind)
{
    struct esp_item item = {v, kind};
    for (uint32_t idx = 0; idx < list->n; idx++) {
        if (list->items[idx].v == v && list->items[idx].kind == kind) {
            return;
        }
    }
    if (list->n < sizeof list->items / sizeof list->items[0]) {
        list->items[list->n++] = item; /* more than fit here are too many for a node */
    }
}

static bool is_part(const struct esp_part *part, const char *key, uint32_t n_bytes)
{
    return part != NULL && part->name != NULL && part->n_bytes == n_bytes && memcmp(part->name, key, n_bytes) == 0;
}

/* Does a leaf that counts declare the key, or match it? */
static bool is_evaluated(const struct esp_key_set *k, const struct esp_unevaluated *u, const char *key,
                         uint32_t n_bytes, uint64_t matched)
{
    bool known = u->all_members;
    for (uint32_t idx = 0; idx < u->n_seen && !known; idx++) {
        const struct esp_leaf *leaf = u->seen[idx];
        known = key != NULL && leaf->properties != NULL && esp_jv_get(leaf->properties, key, n_bytes) != NULL;
        for (uint32_t at = 0; at < k->n_patterns && !known; at++) {
            known = (matched >> at & 1) && k->patterns[at].v->parent == leaf->patterns;
        }
    }
    return known;
}

/* What one leaf asks of the values of a key. */
static void leaf_items(const struct esp_key_set *k, const struct esp_leaf *leaf, const char *key, uint32_t n_bytes,
                       uint64_t matched, struct list *list)
{
    const struct esp_jv *v =
        leaf->properties != NULL && key != NULL ? esp_jv_get(leaf->properties, key, n_bytes) : NULL;
    bool known = v != NULL;
    if (known) {
        add_item(list, v, ESP_ITEM_SCHEMA);
    }
    for (uint32_t at = 0; at < k->n_patterns; at++) {
        if ((matched >> at & 1) && k->patterns[at].v->parent == leaf->patterns) {
            add_item(list, k->patterns[at].v, ESP_ITEM_SCHEMA);
            known = true;
        }
    }
    if (!known && leaf->additional != NULL) {
        add_item(list, leaf->additional, ESP_ITEM_SCHEMA);
    }
    if (key != NULL && is_part(leaf->part, key, n_bytes)) {
        add_item(list, leaf->part->item.v, leaf->part->item.kind);
    }
}

/* What the values of a key must satisfy that the patterns in `matched` match; key NULL: one that nothing declares. */
static void key_items(const struct esp_key_set *k, const char *key, uint32_t n_bytes, uint64_t matched,
                      struct list *list)
{
    list->n = 0;
    for (uint32_t idx = 0; idx < k->n; idx++) {
        leaf_items(k, k->leaves[idx], key, n_bytes, matched, list);
    }
    for (uint32_t idx = 0; idx < k->c->n_unevaluated; idx++) {
        const struct esp_unevaluated *u = &k->c->unevaluated[idx];
        if (u->leaf->rest_members != NULL && !is_evaluated(k, u, key, n_bytes, matched)) {
            add_item(list, u->leaf->rest_members, ESP_ITEM_SCHEMA);
        }
    }
    if (k->value != NULL && key != NULL) {
        add_item(list, esp_jv_get(k->value, key, n_bytes), ESP_ITEM_CONST);
    }
}

esp_status esp_keys_node(struct esp_key_set *k, const char *key, uint32_t n_bytes, uint64_t matched,
                         const struct esp_witness *const *extra, uint32_t n_extra, uint32_t *ret_node)
{
    struct list list;
    key_items(k, key, n_bytes, matched, &list);
    for (uint32_t idx = 0; idx < n_extra; idx++) {
        add_item(&list, extra[idx]->item.v, extra[idx]->item.kind);
    }
    return esp_schema_node(k->s, list.items, list.n, ret_node);
}

/* Nodes of the declared keys; drops those that propertyNames forbids. *ret_fits is cleared when one is required. */
static esp_status declared_nodes(struct esp_key_set *k, bool *ret_fits)
{
    uint32_t n = 0;
    esp_status status = ESP_OK;
    k->matched = esp_arena_alloc(&k->s->arena, (size_t)k->n_props + 1, sizeof *k->matched);
    if (k->matched == NULL) {
        return esp_schema_memory(k->s);
    }
    for (uint32_t idx = 0; idx < k->n_props && status == ESP_OK; idx++) {
        struct esp_prop prop = k->props[idx];
        uint64_t matched = 0;
        for (uint32_t at = 0; at < k->n_patterns; at++) {
            matched |= (uint64_t)esp_schema_accepts(k->s, k->patterns[at].expr, prop.name, prop.n_bytes) << at;
        }
        if (k->names_at != NULL && !esp_schema_accepts(k->s, k->names, prop.name, prop.n_bytes)) {
            if (prop.required) {
                esp_schema_why(k->s, k->names_at, "forbids a key that must be there");
                *ret_fits = false;
            }
            continue;
        }
        status = esp_keys_node(k, prop.name, prop.n_bytes, matched, NULL, 0, &prop.node);
        if (prop.required && status == ESP_OK && esp_schema_false(k->s, prop.node)) {
            esp_schema_why(k->s, k->leaves[0]->self, "forbids a key that must be there");
            *ret_fits = false;
        }
        k->matched[n] = matched;
        k->props[n++] = prop;
    }
    k->n_props = n;
    return status;
}

/* ---- Other keys -------------------------------------------------------------------------------- */

/* Splits the cells by a pattern: those keys that it matches, and those that it does not. After the last pattern
 * cells of keys whose values are plainly impossible need not be told apart any more. */
static esp_status split_cells(struct esp_key_set *k, uint32_t pattern)
{
    struct esp_schema *s = k->s;
    uint32_t n = k->n_cells, n_out = 0, node, expr = k->patterns[pattern].expr;
    bool last = pattern + 1 == k->n_patterns;
    struct esp_key_cell *out = esp_arena_alloc(&s->arena, 2 * (size_t)n + 1, sizeof *out);
    if (out == NULL) {
        return esp_schema_memory(s);
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        struct esp_key_cell in = k->cells[idx], rest = in;
        esp_status status = last ? esp_keys_node(k, NULL, 0, rest.matched, NULL, 0, &node) : ESP_OK;
        if (status != ESP_OK) {
            return status;
        }
        in.key = esp_keys_both(s, in.key, expr);
        in.matched |= (uint64_t)1 << pattern;
        if (in.key != ESP_EXPR_EMPTY) {
            out[n_out++] = in;
        }
        if (last && esp_schema_false(s, node)) {
            continue;
        }
        rest.key = in.key != ESP_EXPR_EMPTY ? esp_keys_without(s, rest.key, expr) : rest.key;
        if (rest.key != ESP_EXPR_EMPTY) {
            out[n_out++] = rest;
        }
    }
    if (n_out > ESP_SCHEMA_CELLS_MAX) {
        return esp_schema_fail(s, ESP_ELIMIT, k->patterns[pattern].v, "makes too many kinds of keys");
    }
    k->cells = out;
    k->n_cells = n_out;
    return esp_keys_check(k);
}

/* Takes the declared keys out of the cell that they would be in. */
static void take_declared(struct esp_key_set *k, struct esp_key_cell *cell, struct esp_spell_word *words)
{
    struct esp_schema *s = k->s;
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < k->n_props; idx++) {
        if (k->matched[idx] == cell->matched) {
            words[n++] = (struct esp_spell_word){k->props[idx].name, k->props[idx].n_bytes};
        }
    }
    if (n > 0) {
        uint32_t declared = esp_spell_words(s->x, s->spelling, &s->arena, words, n, false, ESP_EXPR_EPS);
        cell->key = esp_keys_without(s, cell->key, declared);
    }
}

static esp_status other_cells(struct esp_key_set *k)
{
    struct esp_schema *s = k->s;
    struct esp_spell_word *words = esp_arena_alloc(&s->arena, (size_t)k->n_props + 1, sizeof *words);
    k->cells = esp_arena_alloc(&s->arena, 1, sizeof *k->cells);
    if (words == NULL || k->cells == NULL) {
        return esp_schema_memory(s);
    }
    k->cells[0].key = k->names;
    k->n_cells = k->names != ESP_EXPR_EMPTY;
    esp_status status = ESP_OK;
    for (uint32_t at = 0; at < k->n_patterns && status == ESP_OK; at++) {
        status = split_cells(k, at);
    }
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < k->n_cells && status == ESP_OK; idx++) {
        struct esp_key_cell cell = k->cells[idx];
        take_declared(k, &cell, words);
        status = esp_keys_node(k, NULL, 0, cell.matched, NULL, 0, &cell.node);
        if (cell.key != ESP_EXPR_EMPTY) {
            k->cells[n++] = cell;
        }
    }
    k->n_cells = n;
    return status == ESP_OK ? esp_keys_check(k) : status;
}

/* ---- The atom ---------------------------------------------------------------------------------- */

/* How many members the object may have. False when no number is left. */
static bool object_length(struct esp_key_set *k)
{
    struct esp_length length = {0, ESP_EXPR_INF, NULL};
    for (uint32_t idx = 0; idx < k->n; idx++) {
        const struct esp_leaf *leaf = k->leaves[idx];
        if (leaf->min_members > length.min) {
            length.min = leaf->min_members;
            length.min_at = leaf->min_members_at != NULL ? leaf->min_members_at : leaf->self;
        }
        length.max = leaf->max_members < length.max ? leaf->max_members : length.max;
    }
    if (length.min > length.max) {
        esp_schema_why(k->s, length.min_at, "is above maxProperties");
        return false;
    }
    if (k->value != NULL && (k->value->n < length.min || k->value->n > length.max)) {
        esp_schema_why(k->s, k->value, "has a number of members that the schema beside it does not allow");
        return false;
    }
    k->length = length;
    return true;
}

/* The atom with these declared keys. NULL when out of memory. */
struct esp_atom *esp_keys_atom(struct esp_key_set *k, struct esp_prop *props)
{
    struct esp_atom *atom = esp_schema_atom(k->s, ESP_ATOM_OBJECT);
    struct esp_cell *cells = esp_arena_alloc(&k->s->arena, (size_t)k->n_cells + 1, sizeof *cells);
    if (atom == NULL || cells == NULL) {
        return NULL;
    }
    *atom = (struct esp_atom){.kind = ESP_ATOM_OBJECT, .min = k->length.min, .max = k->length.max};
    atom->min_at = k->length.min_at;
    atom->props = props;
    atom->n_props = k->n_props;
    atom->additional = ESP_NODE_NONE;
    atom->cells = cells;
    for (uint32_t idx = 0; idx < k->n_cells; idx++) {
        cells[atom->n_cells++] = (struct esp_cell){k->cells[idx].key, k->cells[idx].node};
    }
    return atom;
}

static esp_status plain_atom(struct esp_key_set *k)
{
    struct esp_atom *atom = esp_keys_atom(k, k->props);
    if (atom == NULL) {
        return esp_schema_memory(k->s);
    }
    bool simple = k->value == NULL && k->n_patterns == 0 && k->names_at == NULL;
    return simple ? esp_keys_node(k, NULL, 0, 0, NULL, 0, &atom->additional) : ESP_OK;
}

static esp_status gather(struct esp_key_set *k)
{
    esp_status status = gather_patterns(k);
    if (status == ESP_OK) {
        status = gather_names(k);
    }
    if (status == ESP_OK) {
        status = esp_keys_witnesses(k);
    }
    return status == ESP_OK ? declare(k) : status;
}

static esp_status make_atoms(struct esp_key_set *k)
{
    bool fits = object_length(k);
    esp_status status = gather(k);
    if (status == ESP_OK && k->value != NULL && k->n_props > k->value->n) {
        esp_schema_why(k->s, k->value, "lacks a required key");
        fits = false;
    }
    if (status == ESP_OK && fits) {
        status = declared_nodes(k, &fits);
    }
    bool others = k->value == NULL && (k->n_patterns > 0 || k->names_at != NULL || k->n_wanted > 0);
    if (status == ESP_OK && fits && others) {
        status = other_cells(k);
    }
    if (status != ESP_OK || !fits) {
        return status;
    }
    return k->n_wanted > 0 ? esp_keys_witness_atoms(k) : plain_atom(k);
}

esp_status esp_schema_object(struct esp_conj *c)
{
    struct esp_key_set k = {.c = c, .s = c->s, .leaves = c->leaves, .n = c->n, .value = c->value};
    esp_bytesmap_init(&k.map, ESP_TAG_GRAMMAR);
    esp_status status = make_atoms(&k);
    esp_bytesmap_finish(&k.map);
    return status;
}
