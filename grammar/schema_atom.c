/* Atoms: one alternative (a conjunction of leaves, perhaps with a value to equal) as typed pieces.
 *
 * An array atom has nodes for its items, an object atom nodes for its keys; each such node is again a
 * conjunction, gathered from all leaves. Values of enum and const take the same way: an item CONST in the
 * conjunction says what a part must equal, so an array or object value is checked against everything beside it.
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema.h"

struct esp_atom *esp_schema_atom(struct esp_schema *s, enum esp_atom_kind kind)
{
    struct esp_atom *atom = esp_arena_alloc(&s->arena, 1, sizeof *atom);
    if (atom != NULL) {
        atom->kind = kind;
        struct esp_atom **link = &s->nodes[s->current].atoms;
        while (*link != NULL) {
            link = &(*link)->next;
        }
        *link = atom;
    }
    return atom;
}

static esp_status add_expr(struct esp_conj *c, uint32_t expr)
{
    struct esp_atom *atom = esp_schema_atom(c->s, ESP_ATOM_EXPR);
    if (atom == NULL) {
        return esp_schema_memory(c->s);
    }
    atom->expr = expr;
    return ESP_OK;
}

static esp_status add_word(struct esp_conj *c, const char *word)
{
    return add_expr(c, esp_expr_text(c->s->x, word));
}

/* ---- Values ------------------------------------------------------------------------------------ */

static bool allowed_by(const struct esp_leaf *leaf, const struct esp_jv *value)
{
    bool found = leaf->values == NULL;
    for (const struct esp_jv *v = found ? NULL : leaf->values->child; v != NULL && !found; v = v->next) {
        found = esp_jv_equal(v, value);
    }
    return found && (leaf->constant == NULL || esp_jv_equal(leaf->constant, value));
}

static bool is_excluded(const struct esp_conj *c, const struct esp_jv *value)
{
    for (uint32_t idx = 0; idx < c->n_excluded; idx++) {
        if (esp_jv_equal(c->excluded[idx], value)) {
            return true;
        }
    }
    return false;
}

/* By everything but the list that the value was taken from. */
static bool allowed(const struct esp_conj *c, const struct esp_jv *source, const struct esp_jv *value,
                    const struct esp_item *items, uint32_t n)
{
    for (uint32_t idx = 0; idx < c->n; idx++) {
        if (c->leaves[idx]->values != source && !allowed_by(c->leaves[idx], value)) {
            return false;
        }
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        if (items[idx].kind == ESP_ITEM_CONST && !esp_jv_equal(items[idx].v, value)) {
            return false;
        }
    }
    return !is_excluded(c, value);
}

/* Values of the first enum, const or CONST item that all the others allow too. */
struct values {
    const struct esp_jv **numbers, **strings;
    uint32_t n_numbers, n_strings;
};

static esp_status add_value(struct esp_conj *c, const struct esp_jv *value, struct values *out)
{
    c->value = value;
    switch (value->type) {
    case ESP_JV_NULL: return c->types & ESP_TYPE_NULL ? add_word(c, "null") : ESP_OK;
    case ESP_JV_TRUE: return c->types & ESP_TYPE_BOOLEAN ? add_word(c, "true") : ESP_OK;
    case ESP_JV_FALSE: return c->types & ESP_TYPE_BOOLEAN ? add_word(c, "false") : ESP_OK;
    case ESP_JV_NUMBER: out->numbers[out->n_numbers++] = value; return ESP_OK;
    case ESP_JV_STRING: out->strings[out->n_strings++] = value; return ESP_OK;
    case ESP_JV_ARRAY: return c->types & ESP_TYPE_ARRAY ? esp_schema_array(c) : ESP_OK;
    default: return c->types & ESP_TYPE_OBJECT ? esp_schema_object(c) : ESP_OK;
    }
}

static esp_status add_values(struct esp_conj *c, const struct esp_jv *source, bool list, const struct esp_item *items,
                             uint32_t n)
{
    struct esp_schema *s = c->s;
    uint32_t n_values = list ? source->n : 1;
    struct values out = {esp_arena_alloc(&s->arena, (size_t)n_values + 1, sizeof *out.numbers),
                         esp_arena_alloc(&s->arena, (size_t)n_values + 1, sizeof *out.strings), 0, 0};
    esp_status status = out.numbers == NULL || out.strings == NULL ? esp_schema_memory(s) : ESP_OK;
    if (n_values == 0) {
        esp_schema_why(s, source, "lists no value");
    } else {
        esp_schema_why(s, source, "has no value that everything beside it allows");
    }
    const struct esp_jv *value = list ? source->child : source;
    for (uint32_t idx = 0; idx < n_values && status == ESP_OK; idx++, value = value->next) {
        if (allowed(c, source, value, items, n)) {
            status = add_value(c, value, &out);
        }
    }
    if (status == ESP_OK && out.n_numbers > 0) {
        status = esp_schema_numbers(c, out.numbers, out.n_numbers);
    }
    if (status == ESP_OK && out.n_strings > 0 && (c->types & ESP_TYPE_STRING)) {
        status = esp_schema_strings(c, out.strings, out.n_strings);
    }
    return status;
}

/* Is the word one of the excluded values? */
static bool word_excluded(const struct esp_conj *c, enum esp_jv_type type)
{
    const struct esp_jv word = {.type = type};
    return is_excluded(c, &word);
}

static esp_status add_boolean(struct esp_conj *c)
{
    uint32_t yes = word_excluded(c, ESP_JV_TRUE) ? ESP_EXPR_EMPTY : esp_expr_text(c->s->x, "true");
    uint32_t no = word_excluded(c, ESP_JV_FALSE) ? ESP_EXPR_EMPTY : esp_expr_text(c->s->x, "false");
    return add_expr(c, esp_expr_alt2(c->s->x, yes, no));
}

static esp_status add_types(struct esp_conj *c)
{
    esp_status status = ESP_OK;
    if ((c->types & ESP_TYPE_NULL) && !word_excluded(c, ESP_JV_NULL)) {
        status = add_word(c, "null");
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_BOOLEAN)) {
        status = add_boolean(c);
    }
    if (status == ESP_OK && (c->types & (ESP_TYPE_INTEGER | ESP_TYPE_FRACTION))) {
        status = esp_schema_numbers(c, NULL, 0);
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_STRING)) {
        status = esp_schema_strings(c, NULL, 0);
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_ARRAY)) {
        status = esp_schema_array(c);
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_OBJECT)) {
        status = esp_schema_object(c);
    }
    return status;
}

static esp_status exclude(struct esp_conj *c, const struct esp_jv *v)
{
    if (c->n_excluded == c->excluded_cap) {
        uint32_t cap = c->excluded_cap == 0 ? 8 : c->excluded_cap * 2;
        const struct esp_jv **grown = esp_arena_alloc(&c->s->arena, cap, sizeof *grown);
        if (grown == NULL) {
            return esp_schema_memory(c->s);
        }
        if (c->n_excluded > 0) {
            memcpy(grown, c->excluded, c->n_excluded * sizeof *grown);
        }
        c->excluded = grown;
        c->excluded_cap = cap;
    }
    c->excluded[c->n_excluded++] = v;
    return ESP_OK;
}

/* Values to differ from; arrays and objects among them were multiplied out before. */
static esp_status exclude_item(struct esp_conj *c, const struct esp_item *item)
{
    if (item->kind == ESP_ITEM_UNEQUAL) {
        return exclude(c, item->v);
    }
    esp_status status = ESP_OK;
    for (const struct esp_jv *v = item->v->child; v != NULL && status == ESP_OK; v = v->next) {
        status = v->type == ESP_JV_ARRAY || v->type == ESP_JV_OBJECT ? ESP_OK : exclude(c, v);
    }
    return status;
}

esp_status esp_schema_atoms(struct esp_schema *s, const struct esp_item *items, uint32_t n,
                            const struct esp_unevaluated *unevaluated, uint32_t n_unevaluated)
{
    struct esp_conj c = {.s = s, .types = ESP_TYPE_ALL, .unevaluated = unevaluated, .n_unevaluated = n_unevaluated};
    const struct esp_jv *source = NULL;
    bool list = false;
    for (uint32_t idx = 0; idx < n; idx++) {
        if (items[idx].kind == ESP_ITEM_CONST) {
            source = items[idx].v;
            list = false;
        }
        if (items[idx].kind == ESP_ITEM_UNEQUAL || items[idx].kind == ESP_ITEM_UNLISTED) {
            esp_status status = exclude_item(&c, &items[idx]);
            if (status != ESP_OK) {
                return status;
            }
        }
        if (items[idx].kind != ESP_ITEM_LEAF) {
            continue;
        }
        struct esp_leaf *leaf = items[idx].v->extra;
        c.leaves[c.n++] = leaf;
        c.types &= leaf->types;
        if (source == NULL && (leaf->constant != NULL || leaf->values != NULL)) {
            list = leaf->constant == NULL;
            source = list ? leaf->values : leaf->constant;
        }
    }
    if (s->bare) {
        c.types &= ESP_TYPE_STRING;
    }
    return source != NULL ? add_values(&c, source, list, items, n) : add_types(&c);
}
