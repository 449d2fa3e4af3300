/* Atoms: one alternative (a conjunction of leaves, perhaps with a value to equal) as typed pieces.
 *
 * An array atom has nodes for its items, an object atom nodes for its keys; each such node is again a
 * conjunction, gathered from all leaves. Values of enum and const take the same way: an item CONST in the
 * conjunction says what a part must equal, so an array or object value is checked against everything beside it.
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema.h"

struct conj {
    struct esp_schema *s;
    struct esp_leaf *leaves[ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n;
    const struct esp_jv *value; /* the value being made an atom, or NULL */
    uint32_t types;
};

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

static esp_status add_expr(struct conj *c, uint32_t expr)
{
    struct esp_atom *atom = esp_schema_atom(c->s, ESP_ATOM_EXPR);
    if (atom == NULL) {
        return esp_schema_memory(c->s);
    }
    atom->expr = expr;
    return ESP_OK;
}

static esp_status add_word(struct conj *c, const char *word)
{
    return add_expr(c, esp_expr_text(c->s->x, word));
}

/* ---- Arrays ------------------------------------------------------------------------------------ */

static const struct esp_jv *member(const struct esp_jv *array, uint32_t index)
{
    const struct esp_jv *child = array == NULL ? NULL : array->child;
    while (child != NULL && index > 0) {
        child = child->next;
        index--;
    }
    return child;
}

/* The node of item `index`; past every prefix the index does not matter. */
static esp_status item_node(struct conj *c, uint32_t index, uint32_t *ret_node)
{
    struct esp_item items[ESP_SCHEMA_CONJUNCTS_MAX + 1];
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_leaf *leaf = c->leaves[idx];
        const struct esp_jv *v = member(leaf->prefix, index);
        v = v != NULL ? v : leaf->items;
        if (v != NULL) {
            items[n++] = (struct esp_item){v, ESP_ITEM_SCHEMA};
        }
    }
    const struct esp_jv *value = member(c->value, index);
    if (value != NULL) {
        items[n++] = (struct esp_item){value, ESP_ITEM_CONST};
    }
    return esp_schema_node(c->s, items, n, ret_node);
}

struct length {
    uint32_t min, max, n_prefix;
    const struct esp_jv *min_at;
};

/* How long the array may be, and how many items have a schema of their own. False when no length is left. */
static bool array_length(struct conj *c, struct length *ret)
{
    uint32_t min = 0, max = ESP_EXPR_INF, n_prefix = 0;
    const struct esp_jv *min_at = NULL;
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_leaf *leaf = c->leaves[idx];
        if (leaf->min_items > min) {
            min = leaf->min_items;
            min_at = leaf->self;
        }
        max = leaf->max_items < max ? leaf->max_items : max;
        n_prefix = leaf->prefix != NULL && leaf->prefix->n > n_prefix ? leaf->prefix->n : n_prefix;
    }
    if (c->value != NULL) {
        if (c->value->n < min || c->value->n > max) {
            esp_schema_why(c->s, c->value, "has a length that the schema beside it does not allow");
            return false;
        }
        min = max = n_prefix = c->value->n;
    }
    if (min > max) {
        esp_schema_why(c->s, min_at, "has minItems above maxItems");
        return false;
    }
    *ret = (struct length){min, max, n_prefix < max ? n_prefix : max, min_at};
    return true;
}

static esp_status add_array(struct conj *c)
{
    struct length length;
    if (!array_length(c, &length)) {
        return ESP_OK;
    }
    struct esp_atom *atom = esp_schema_atom(c->s, ESP_ATOM_ARRAY);
    uint32_t n_prefix = length.n_prefix;
    uint32_t *prefix = esp_arena_alloc(&c->s->arena, (size_t)n_prefix + 1, sizeof *prefix);
    if (atom == NULL || prefix == NULL) {
        return esp_schema_memory(c->s);
    }
    *atom = (struct esp_atom){.kind = ESP_ATOM_ARRAY, .prefix = prefix, .n_prefix = n_prefix};
    atom->min = length.min;
    atom->max = length.max;
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < n_prefix && status == ESP_OK; idx++) {
        status = item_node(c, idx, &prefix[idx]);
    }
    atom->rest = ESP_NODE_NONE;
    if (status == ESP_OK && length.max > n_prefix) {
        status = item_node(c, n_prefix, &atom->rest);
    }
    return status;
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

/* By everything but the list that the value was taken from. */
static bool allowed(const struct conj *c, const struct esp_jv *source, const struct esp_jv *value,
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
    return true;
}

/* Values of the first enum, const or CONST item that all the others allow too. */
struct values {
    const struct esp_jv **numbers, **strings;
    uint32_t n_numbers, n_strings;
};

static esp_status add_value(struct conj *c, const struct esp_jv *value, struct values *out)
{
    c->value = value;
    switch (value->type) {
    case ESP_JV_NULL: return c->types & ESP_TYPE_NULL ? add_word(c, "null") : ESP_OK;
    case ESP_JV_TRUE: return c->types & ESP_TYPE_BOOLEAN ? add_word(c, "true") : ESP_OK;
    case ESP_JV_FALSE: return c->types & ESP_TYPE_BOOLEAN ? add_word(c, "false") : ESP_OK;
    case ESP_JV_NUMBER: out->numbers[out->n_numbers++] = value; return ESP_OK;
    case ESP_JV_STRING: out->strings[out->n_strings++] = value; return ESP_OK;
    case ESP_JV_ARRAY: return c->types & ESP_TYPE_ARRAY ? add_array(c) : ESP_OK;
    default: return c->types & ESP_TYPE_OBJECT ? esp_schema_object(c->s, c->leaves, c->n, c->value) : ESP_OK;
    }
}

static esp_status add_values(struct conj *c, const struct esp_jv *source, bool list, const struct esp_item *items,
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
        status = esp_schema_numbers(s, c->leaves, c->n, c->types, out.numbers, out.n_numbers);
    }
    if (status == ESP_OK && out.n_strings > 0 && (c->types & ESP_TYPE_STRING)) {
        status = esp_schema_strings(s, c->leaves, c->n, out.strings, out.n_strings);
    }
    return status;
}

static esp_status add_types(struct conj *c)
{
    esp_status status = ESP_OK;
    if (c->types & ESP_TYPE_NULL) {
        status = add_word(c, "null");
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_BOOLEAN)) {
        status = add_expr(c, esp_expr_alt2(c->s->x, esp_expr_text(c->s->x, "true"), esp_expr_text(c->s->x, "false")));
    }
    if (status == ESP_OK && (c->types & (ESP_TYPE_INTEGER | ESP_TYPE_FRACTION))) {
        status = esp_schema_numbers(c->s, c->leaves, c->n, c->types, NULL, 0);
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_STRING)) {
        status = esp_schema_strings(c->s, c->leaves, c->n, NULL, 0);
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_ARRAY)) {
        status = add_array(c);
    }
    if (status == ESP_OK && (c->types & ESP_TYPE_OBJECT)) {
        status = esp_schema_object(c->s, c->leaves, c->n, c->value);
    }
    return status;
}

esp_status esp_schema_atoms(struct esp_schema *s, const struct esp_item *items, uint32_t n)
{
    struct conj c = {.s = s, .types = ESP_TYPE_ALL};
    const struct esp_jv *source = NULL;
    bool list = false;
    for (uint32_t idx = 0; idx < n; idx++) {
        if (items[idx].kind == ESP_ITEM_CONST) {
            source = items[idx].v;
            list = false;
            continue;
        }
        struct esp_leaf *leaf = items[idx].v->extra;
        c.leaves[c.n++] = leaf;
        if ((c.types & leaf->types) == 0 && c.types != 0) {
            esp_schema_why(s, leaf->self, "has no type that everything beside it allows");
        }
        c.types &= leaf->types;
        if (source == NULL && (leaf->constant != NULL || leaf->values != NULL)) {
            list = leaf->constant == NULL;
            source = list ? leaf->values : leaf->constant;
        }
    }
    return source != NULL ? add_values(&c, source, list, items, n) : add_types(&c);
}
