/* uniqueItems where an item can be one of a list of values only: enum, const, true, false and null, also through
 * references and applicators. Each value is a node ("an item, and equal to v"); values that the rest of the schema
 * does not allow turn out to have no value. The states of the array are in unique.c.
 *
 *   {items: {enum: [1, 1.0, "a", null], type: [string, number]}}     nodes: = 1 (once), = "a", = null (no value)
 *
 * Other items could be told apart only by remembering them, which nothing does: refused, unless there is at most one.
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema.h"
#include "grammar/unique.h"

#define DEPTH_MAX 8 /* of references and applicators on the way to a list */

struct values {
    struct esp_schema *s;
    const struct esp_jv *v[ESP_UNIQUE_VALUES_MAX];
    uint32_t n;
    bool full;
    esp_status status;
};

static void add_value(struct values *out, const struct esp_jv *v)
{
    for (uint32_t idx = 0; idx < out->n; idx++) {
        if (esp_jv_equal(out->v[idx], v)) {
            return;
        }
    }
    out->full = out->full || out->n == ESP_UNIQUE_VALUES_MAX;
    if (!out->full) {
        out->v[out->n++] = v;
    }
}

static bool find_values(struct values *out, const struct esp_jv *schema, unsigned depth);

/* Does an applicator say which values there are? All branches of anyOf must, one member of allOf is enough. */
static bool find_applied(struct values *out, const struct esp_jv *v, unsigned depth)
{
    if (v->type == ESP_JV_STRING) {
        const struct esp_jv *target;
        out->status = esp_schema_resolve(out->s, v, &target);
        return out->status == ESP_OK && find_values(out, target, depth + 1);
    }
    if (v->type != ESP_JV_ARRAY) {
        return false;
    }
    bool all = strcmp(v->key, "allOf") != 0, found = all;
    uint32_t mark = out->n;
    for (const struct esp_jv *child = v->child; child != NULL && found == all; child = child->next) {
        found = find_values(out, child, depth + 1);
    }
    out->n = found ? out->n : mark;
    return found;
}

/* Recursion is bounded by DEPTH_MAX. */
static bool find_values(struct values *out, const struct esp_jv *schema, unsigned depth)
{
    static const struct esp_jv words[] = {{.type = ESP_JV_NULL}, {.type = ESP_JV_TRUE}, {.type = ESP_JV_FALSE}};
    struct esp_leaf *leaf;
    if (schema->type != ESP_JV_OBJECT || depth > DEPTH_MAX || out->status != ESP_OK) {
        return schema->type == ESP_JV_FALSE;
    }
    out->status = esp_schema_read(out->s, schema, &leaf);
    if (out->status != ESP_OK) {
        return false;
    }
    if (leaf->constant != NULL) {
        add_value(out, leaf->constant);
        return true;
    }
    for (const struct esp_jv *v = leaf->values == NULL ? NULL : leaf->values->child; v != NULL; v = v->next) {
        add_value(out, v);
    }
    bool found = leaf->values != NULL;
    if (!found && (leaf->types & ~(uint32_t)(ESP_TYPE_NULL | ESP_TYPE_BOOLEAN)) == 0) {
        found = true;
        for (size_t idx = 0; idx < sizeof words / sizeof words[0]; idx++) {
            add_value(out, &words[idx]);
        }
    }
    for (uint32_t idx = 0; idx < leaf->n_applicators && !found && out->status == ESP_OK; idx++) {
        found = find_applied(out, leaf->applicators[idx], depth);
    }
    return found;
}

/* The atom of distinct items, each of which satisfies the n items given. *ret_done is set when there is one. */
static esp_status add_atom(struct esp_conj *c, const struct esp_length *length, const struct values *values,
                           const struct esp_item *items, uint32_t n)
{
    struct esp_schema *s = c->s;
    struct esp_atom *atom = esp_schema_atom(s, ESP_ATOM_ARRAY);
    uint32_t *nodes = esp_arena_alloc(&s->arena, (size_t)values->n + 1, sizeof *nodes);
    struct esp_item *each = esp_arena_alloc(&s->arena, (size_t)n + 1, sizeof *each);
    if (atom == NULL || nodes == NULL || each == NULL) {
        return esp_schema_memory(s);
    }
    *atom = (struct esp_atom){.kind = ESP_ATOM_ARRAY, .min = length->min, .max = length->max, .rest = ESP_NODE_NONE};
    atom->unique = nodes;
    atom->n_unique = values->n;
    if (n > 0) {
        memcpy(each, items, n * sizeof *each);
    }
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < values->n && status == ESP_OK; idx++) {
        each[n] = (struct esp_item){values->v[idx], ESP_ITEM_CONST};
        status = esp_schema_node(s, each, n + 1, &nodes[idx]);
    }
    return status;
}

esp_status esp_schema_unique(struct esp_conj *c, const struct esp_jv *at, const struct esp_length *length,
                             const struct esp_item *items, uint32_t n)
{
    struct esp_schema *s = c->s;
    struct values *values = esp_arena_alloc(&s->arena, 1, sizeof *values);
    bool found = false;
    if (values == NULL) {
        return esp_schema_memory(s);
    }
    values->s = s;
    for (uint32_t idx = 0; idx < n && !found && values->status == ESP_OK; idx++) {
        found = items[idx].kind == ESP_ITEM_SCHEMA && find_values(values, items[idx].v, 0);
    }
    if (values->status != ESP_OK) {
        return values->status;
    }
    if (!found) {
        esp_status status = esp_schema_fail(s, ESP_EUNSUPPORTED, at,
                                            "is supported only for items that are values of an enum, and without a "
                                            "prefix or contains");
        esp_err_hint(s->err, "list the values of the items in an enum, or drop uniqueItems and check afterwards");
        return status;
    }
    if (values->full) {
        return esp_schema_fail(s, ESP_ELIMIT, at, "has items of more than %u values", ESP_UNIQUE_VALUES_MAX);
    }
    esp_schema_why(s, at, "needs more items than there are different ones");
    return add_atom(c, length, values, items, n);
}
