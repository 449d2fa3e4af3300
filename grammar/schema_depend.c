/* dependentRequired, dependentSchemas and dependencies, said with the keywords that are understood anyway:
 *
 *   {"a": ["b"]}   allOf [ anyOf [ {properties: {a: {enum: []}}},  {type: object, required: [a, b]} ] ]
 *   {"a": S}       allOf [ anyOf [ {properties: {a: {enum: []}}},  {type: object, required: [a], allOf: [S]} ] ]
 *
 * The first branch is for everything without the key, other types included. The new tree hangs below the
 * keyword, so that messages still point there. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema.h"

/* A new value as the last member of parent. Latches: a NULL parent gives NULL. */
static struct esp_jv *add(struct esp_schema *s, struct esp_jv *parent, enum esp_jv_type type, const char *key,
                          uint32_t key_bytes)
{
    struct esp_jv *v = parent == NULL ? NULL : esp_arena_alloc(&s->arena, 1, sizeof *v);
    if (v == NULL) {
        return NULL;
    }
    *v = (struct esp_jv){.type = type, .key = key, .key_bytes = key_bytes, .parent = parent, .index = parent->n};
    *(parent->child == NULL ? &parent->child : &parent->last->next) = v;
    parent->last = v;
    parent->n++;
    return v;
}

static struct esp_jv *add_named(struct esp_schema *s, struct esp_jv *parent, enum esp_jv_type type, const char *key)
{
    return add(s, parent, type, key, (uint32_t)strlen(key));
}

static bool add_text(struct esp_schema *s, struct esp_jv *parent, const char *key, const char *text, uint32_t n_bytes)
{
    struct esp_jv *v = add(s, parent, ESP_JV_STRING, key, key == NULL ? 0 : (uint32_t)strlen(key));
    if (v != NULL) {
        v->text = text;
        v->n_bytes = n_bytes;
    }
    return v != NULL;
}

/* One dependency as a member of all_of. */
static bool add_dependency(struct esp_schema *s, struct esp_jv *all_of, const struct esp_jv *v)
{
    struct esp_jv *any_of = add_named(s, add(s, all_of, ESP_JV_OBJECT, NULL, 0), ESP_JV_ARRAY, "anyOf");
    struct esp_jv *without = add_named(s, add(s, any_of, ESP_JV_OBJECT, NULL, 0), ESP_JV_OBJECT, "properties");
    struct esp_jv *never = add(s, without, ESP_JV_OBJECT, v->key, v->key_bytes);
    struct esp_jv *with = add(s, any_of, ESP_JV_OBJECT, NULL, 0);
    bool ok = add_named(s, never, ESP_JV_ARRAY, "enum") != NULL && add_text(s, with, "type", "object", 6);
    struct esp_jv *required = add_named(s, with, ESP_JV_ARRAY, "required");
    ok = ok && add_text(s, required, NULL, v->key, v->key_bytes);
    if (v->type != ESP_JV_ARRAY) {
        struct esp_jv *copy = add(s, add_named(s, with, ESP_JV_ARRAY, "allOf"), v->type, NULL, 0);
        if (copy != NULL) { /* the members keep their place in the source, which references go by */
            copy->n = v->n;
            copy->child = v->child;
            copy->last = v->last;
        }
        return ok && copy != NULL;
    }
    for (const struct esp_jv *name = v->child; ok && name != NULL; name = name->next) {
        ok = add_text(s, required, NULL, name->text, name->n_bytes);
    }
    return ok;
}

esp_status esp_schema_depend(struct esp_schema *s, const struct esp_jv *v, const struct esp_jv **ret_all_of)
{
    struct esp_jv *all_of = esp_arena_alloc(&s->arena, 1, sizeof *all_of);
    if (all_of == NULL) {
        return esp_schema_memory(s);
    }
    *all_of = (struct esp_jv){.type = ESP_JV_ARRAY, .key = "allOf", .key_bytes = 5};
    memcpy(&all_of->parent, &v, sizeof v); /* for the pointer of messages only */
    for (const struct esp_jv *dependency = v->child; dependency != NULL; dependency = dependency->next) {
        if (!add_dependency(s, all_of, dependency)) {
            return esp_schema_memory(s);
        }
    }
    *ret_all_of = all_of;
    return ESP_OK;
}
