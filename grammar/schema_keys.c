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
#include "grammar/schema.h"

struct pattern {
    const struct esp_jv *v; /* member of some patternProperties */
    uint32_t expr;
};

struct conj {
    struct esp_schema *s;
    struct esp_leaf *const *leaves;
    uint32_t n;
    const struct esp_jv *value; /* the value being made an atom, or NULL */
    struct pattern patterns[ESP_SCHEMA_PATTERNS_MAX];
    uint32_t n_patterns;
    uint32_t names;                /* what propertyNames allows, 0 = everything */
    const struct esp_jv *names_at; /* one of them */
    struct esp_prop *props;
    uint32_t n_props, props_cap;
    struct esp_bytesmap map; /* name → prop */
};

/* ---- What keys must satisfy -------------------------------------------------------------------- */

static esp_status gather_patterns(struct conj *c)
{
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_jv *patterns = c->leaves[idx]->patterns;
        for (const struct esp_jv *v = patterns == NULL ? NULL : patterns->child; v != NULL; v = v->next) {
            struct esp_err err = {0};
            uint32_t expr = ESP_EXPR_EMPTY;
            if (c->n_patterns == ESP_SCHEMA_PATTERNS_MAX) {
                return esp_schema_fail(c->s, ESP_EUNSUPPORTED, patterns, "has too many patterns for one object");
            }
            esp_status status =
                esp_regex_compile(c->s->x, c->s->spelling, true, v->key, v->key_bytes, &expr, &err);
            if (status != ESP_OK) {
                return esp_schema_fail(c->s, status, v, "%s", err.message);
            }
            c->patterns[c->n_patterns++] = (struct pattern){v, expr};
        }
    }
    return ESP_OK;
}

static uint32_t both(struct esp_schema *s, uint32_t a, uint32_t b)
{
    uint32_t ids[2] = {a, b};
    uint32_t id = esp_expr_and(s->x, ids, 2);
    esp_live_and(s->x, id);
    return s->x->exprs[id].flags & ESP_EXPR_DEAD ? ESP_EXPR_EMPTY : id;
}

/* Those of id that are among the values; no value at all is no condition for a const. */
static uint32_t among(struct esp_schema *s, uint32_t id, const struct esp_jv *v, bool list)
{
    uint32_t words = ESP_EXPR_EMPTY;
    if (v == NULL && !list) {
        return id;
    }
    for (; v != NULL; v = list ? v->next : NULL) {
        if (v->type == ESP_JV_STRING) {
            uint32_t one = esp_spell_text(s->x, s->spelling, v->text, v->n_bytes, ESP_EXPR_EPS);
            words = esp_expr_alt2(s->x, words, one);
        }
    }
    return words == ESP_EXPR_EMPTY || id == ESP_EXPR_EMPTY ? ESP_EXPR_EMPTY : both(s, id, words);
}

/* The strings of one propertyNames, as contents. */
static uint32_t strings_of(struct esp_schema *s, const struct esp_leaf *leaf)
{
    uint32_t id = esp_spell_any(s->x, s->spelling);
    if ((leaf->types & ESP_TYPE_STRING) == 0 || leaf->min_chars > leaf->max_chars) {
        return ESP_EXPR_EMPTY;
    }
    if (leaf->pattern != 0) {
        id = both(s, id, leaf->pattern);
    }
    if (leaf->format != 0) {
        id = both(s, id, leaf->format);
    }
    if (id != ESP_EXPR_EMPTY && (leaf->min_chars > 0 || leaf->max_chars < ESP_EXPR_INF)) {
        esp_live_len(s->x, s->lens, id, leaf->min_chars, leaf->max_chars);
        id = esp_expr_len(s->x, id, 0, leaf->min_chars, leaf->max_chars);
    }
    id = among(s, id, leaf->constant, false);
    id = leaf->values == NULL ? id : among(s, id, leaf->values->child, true);
    return id;
}

static esp_status gather_names(struct conj *c)
{
    struct esp_schema *s = c->s;
    uint32_t names = esp_spell_any(s->x, s->spelling);
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_jv *v = c->leaves[idx]->names;
        struct esp_leaf *leaf;
        if (v == NULL || v->type == ESP_JV_TRUE) {
            continue;
        }
        c->names_at = v;
        uint32_t one = ESP_EXPR_EMPTY;
        if (v->type == ESP_JV_OBJECT) {
            esp_status status = esp_schema_read(s, v, &leaf);
            if (status != ESP_OK) {
                return status;
            }
            if (leaf->n_applicators > 0) {
                return esp_schema_fail(s, ESP_EUNSUPPORTED, v, "is supported without $ref, allOf, anyOf and oneOf");
            }
            one = strings_of(s, leaf);
        }
        names = names == ESP_EXPR_EMPTY || one == ESP_EXPR_EMPTY ? ESP_EXPR_EMPTY : both(s, names, one);
    }
    c->names = names;
    return s->x->failed == ESP_OK ? ESP_OK : esp_schema_fail(s, s->x->failed, s->root, "is too complex");
}

/* ---- Declared keys ----------------------------------------------------------------------------- */

static esp_status add_name(struct conj *c, const char *name, uint32_t n_bytes, bool required)
{
    uint32_t at = esp_bytesmap_get(&c->map, name, n_bytes);
    if (at != ESP_MAP_NONE) {
        c->props[at].required = c->props[at].required || required;
        return ESP_OK;
    }
    if (c->n_props == c->props_cap) {
        uint32_t cap = c->props_cap == 0 ? 16 : c->props_cap * 2;
        struct esp_prop *props = esp_arena_alloc(&c->s->arena, cap, sizeof *props);
        if (props == NULL) {
            return esp_schema_memory(c->s);
        }
        if (c->n_props > 0) {
            memcpy(props, c->props, c->n_props * sizeof *props);
        }
        c->props = props;
        c->props_cap = cap;
    }
    c->props[c->n_props] = (struct esp_prop){.name = name, .n_bytes = n_bytes, .required = required};
    return esp_bytesmap_put(&c->map, name, n_bytes, c->n_props++) == ESP_OK ? ESP_OK : esp_schema_memory(c->s);
}

/* Keys that an enum or const of propertyNames spells out. */
static esp_status declare_named(struct conj *c, const struct esp_jv *names)
{
    esp_status status = ESP_OK;
    if (names == NULL || names->type != ESP_JV_OBJECT) {
        return ESP_OK;
    }
    const struct esp_leaf *leaf = names->extra; /* read by gather_names */
    const struct esp_jv *v = leaf->values == NULL ? NULL : leaf->values->child;
    for (; v != NULL && status == ESP_OK; v = v->next) {
        status = v->type == ESP_JV_STRING ? add_name(c, v->text, v->n_bytes, false) : ESP_OK;
    }
    v = leaf->constant;
    return status == ESP_OK && v != NULL && v->type == ESP_JV_STRING ? add_name(c, v->text, v->n_bytes, false) : status;
}

static esp_status add_members(struct conj *c, const struct esp_jv *object, bool required)
{
    esp_status status = ESP_OK;
    const struct esp_jv *v = object == NULL ? NULL : object->child;
    for (; v != NULL && status == ESP_OK; v = v->next) {
        status = add_name(c, v->key, v->key_bytes, required);
    }
    return status;
}

static esp_status declare(struct conj *c)
{
    const struct esp_jv *v;
    esp_status status = add_members(c, c->value, true);
    for (uint32_t idx = 0; idx < c->n && c->value == NULL && status == ESP_OK; idx++) {
        status = add_members(c, c->leaves[idx]->properties, false);
    }
    for (uint32_t idx = 0; idx < c->n; idx++) {
        v = c->leaves[idx]->required == NULL ? NULL : c->leaves[idx]->required->child;
        for (; v != NULL && status == ESP_OK; v = v->next) {
            status = add_name(c, v->text, v->n_bytes, true);
        }
    }
    for (uint32_t idx = 0; idx < c->n && c->value == NULL && status == ESP_OK; idx++) {
        status = declare_named(c, c->leaves[idx]->names);
    }
    return status;
}

/* The node of the values of a key that the patterns in `matched` match; key NULL: one that nothing declares. */
static esp_status key_node(struct conj *c, const char *key, uint32_t n_bytes, uint32_t matched, uint32_t *ret_node)
{
    struct esp_item items[ESP_SCHEMA_CONJUNCTS_MAX + ESP_SCHEMA_PATTERNS_MAX + 1];
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_leaf *leaf = c->leaves[idx];
        const struct esp_jv *v = NULL;
        if (leaf->properties != NULL && key != NULL) {
            v = esp_jv_get(leaf->properties, key, n_bytes);
        }
        bool known = v != NULL;
        if (known) {
            items[n++] = (struct esp_item){v, ESP_ITEM_SCHEMA};
        }
        for (uint32_t at = 0; at < c->n_patterns; at++) {
            if ((matched >> at & 1) && c->patterns[at].v->parent == leaf->patterns) {
                items[n++] = (struct esp_item){c->patterns[at].v, ESP_ITEM_SCHEMA};
                known = true;
            }
        }
        if (!known && leaf->additional != NULL) {
            items[n++] = (struct esp_item){leaf->additional, ESP_ITEM_SCHEMA};
        }
    }
    if (c->value != NULL && key != NULL) {
        items[n++] = (struct esp_item){esp_jv_get(c->value, key, n_bytes), ESP_ITEM_CONST};
    }
    return esp_schema_node(c->s, items, n, ret_node);
}

/* Nodes of the declared keys; drops those that propertyNames forbids. *ret_fits is cleared when one is required. */
static esp_status declared_nodes(struct conj *c, bool *ret_fits)
{
    uint32_t n = 0;
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < c->n_props && status == ESP_OK; idx++) {
        struct esp_prop prop = c->props[idx];
        uint32_t matched = 0;
        for (uint32_t at = 0; at < c->n_patterns; at++) {
            matched |= (uint32_t)esp_schema_accepts(c->s, c->patterns[at].expr, prop.name, prop.n_bytes) << at;
        }
        if (c->names_at != NULL && !esp_schema_accepts(c->s, c->names, prop.name, prop.n_bytes)) {
            if (prop.required) {
                esp_schema_why(c->s, c->names_at, "forbids a key that must be there");
                *ret_fits = false;
            }
            continue;
        }
        status = key_node(c, prop.name, prop.n_bytes, matched, &prop.node);
        c->props[n++] = prop;
    }
    c->n_props = n;
    return status;
}

/* ---- Other keys -------------------------------------------------------------------------------- */

static esp_status other_cells(struct conj *c, struct esp_atom *atom)
{
    struct esp_schema *s = c->s;
    uint32_t n_cells = (uint32_t)1 << c->n_patterns;
    struct esp_spell_word *words = esp_arena_alloc(&s->arena, (size_t)c->n_props + 1, sizeof *words);
    atom->cells = esp_arena_alloc(&s->arena, n_cells, sizeof *atom->cells);
    if (words == NULL || atom->cells == NULL) {
        return esp_schema_memory(s);
    }
    for (uint32_t idx = 0; idx < c->n_props; idx++) {
        words[idx] = (struct esp_spell_word){c->props[idx].name, c->props[idx].n_bytes};
    }
    uint32_t others = esp_spell_words(s->x, s->spelling, &s->arena, words, c->n_props, true, ESP_EXPR_EPS);
    others = c->names == ESP_EXPR_EMPTY ? ESP_EXPR_EMPTY : both(s, others, c->names);
    esp_status status = ESP_OK;
    for (uint32_t matched = 0; matched < n_cells && status == ESP_OK && others != ESP_EXPR_EMPTY; matched++) {
        uint32_t key = others, any = esp_spell_any(s->x, s->spelling);
        for (uint32_t at = 0; at < c->n_patterns && key != ESP_EXPR_EMPTY; at++) {
            uint32_t pattern = c->patterns[at].expr;
            pattern = matched >> at & 1 ? pattern : esp_expr_not(s->x, any, pattern);
            key = pattern == ESP_EXPR_EMPTY ? ESP_EXPR_EMPTY : both(s, key, pattern);
        }
        if (s->x->failed != ESP_OK) {
            return esp_schema_fail(s, s->x->failed, s->root, "has patterns of keys that are too complex together");
        }
        if (key != ESP_EXPR_EMPTY) {
            atom->cells[atom->n_cells].key = key;
            status = key_node(c, NULL, 0, matched, &atom->cells[atom->n_cells++].node);
        }
    }
    return status;
}

/* ---- The atom ---------------------------------------------------------------------------------- */

struct length {
    uint32_t min, max;
    const struct esp_jv *min_at;
};

/* How many members the object may have. False when no number is left. */
static bool object_length(struct conj *c, struct length *ret)
{
    struct length length = {0, ESP_EXPR_INF, NULL};
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_leaf *leaf = c->leaves[idx];
        if (leaf->min_members > length.min) {
            length.min = leaf->min_members;
            length.min_at = leaf->min_members_at;
        }
        length.max = leaf->max_members < length.max ? leaf->max_members : length.max;
    }
    if (length.min > length.max) {
        esp_schema_why(c->s, length.min_at, "is above maxProperties");
        return false;
    }
    if (c->value != NULL && (c->value->n < length.min || c->value->n > length.max)) {
        esp_schema_why(c->s, c->value, "has a number of members that the schema beside it does not allow");
        return false;
    }
    *ret = length;
    return true;
}

static esp_status add_atom(struct conj *c, const struct length *length)
{
    struct esp_atom *atom = esp_schema_atom(c->s, ESP_ATOM_OBJECT);
    if (atom == NULL) {
        return esp_schema_memory(c->s);
    }
    *atom = (struct esp_atom){.kind = ESP_ATOM_OBJECT, .min = length->min, .max = length->max};
    atom->min_at = length->min_at;
    atom->props = c->props;
    atom->n_props = c->n_props;
    atom->additional = ESP_NODE_NONE;
    if (c->value != NULL) {
        return ESP_OK;
    }
    return c->n_patterns == 0 && c->names_at == NULL ? key_node(c, NULL, 0, 0, &atom->additional)
                                                     : other_cells(c, atom);
}

esp_status esp_schema_object(struct esp_schema *s, struct esp_leaf *const *leaves, uint32_t n,
                             const struct esp_jv *value)
{
    struct conj c = {.s = s, .leaves = leaves, .n = n, .value = value};
    struct length length = {0, 0, NULL};
    bool fits = object_length(&c, &length);
    esp_bytesmap_init(&c.map, ESP_TAG_GRAMMAR);
    esp_status status = gather_patterns(&c);
    if (status == ESP_OK) {
        status = gather_names(&c);
    }
    if (status == ESP_OK) {
        status = declare(&c);
    }
    if (status == ESP_OK && value != NULL && c.n_props > value->n) {
        esp_schema_why(s, value, "lacks a required key");
        fits = false;
    }
    if (status == ESP_OK && fits) {
        status = declared_nodes(&c, &fits);
    }
    if (status == ESP_OK && fits) {
        status = add_atom(&c, &length);
    }
    esp_bytesmap_finish(&c.map);
    return status;
}
