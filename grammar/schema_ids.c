/* Finding the resources and anchors of a schema document. See schema_ref.h.
 *
 * Only places where a keyword of the draft holds a schema are looked at: an "$id" inside an enum, a default or an
 * unknown keyword names nothing. Walks with a list, not by recursion. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema_read.h"
#include "grammar/schema_ref.h"
#include "grammar/uri.h"
#include "grammar/vec.h"

struct visit {
    const struct esp_jv *v;
    uint32_t resource;
    struct visit *next;
};

static bool is_one_of(const char *key, const char *const *names)
{
    while (*names != NULL && strcmp(key, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

static bool holds_schemas(const char *key)
{
    static const char *const names[] = {"additionalItems", "additionalProperties", "allOf", "anyOf", "contains",
                                        "contentSchema", "else", "if", "items", "not", "oneOf", "prefixItems",
                                        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", NULL};
    return is_one_of(key, names);
}

static bool holds_map(const char *key)
{
    static const char *const names[] = {"$defs",      "definitions", "dependencies", "dependentSchemas",
                                        "patternProperties", "properties",  NULL};
    return is_one_of(key, names);
}

enum esp_schema_below esp_schema_below(const struct esp_schema *s, const struct esp_jv *member)
{
    if (!esp_schema_known(s, member)) {
        return ESP_BELOW_NOTHING;
    }
    return holds_schemas(member->key) ? ESP_BELOW_SCHEMAS : holds_map(member->key) ? ESP_BELOW_MAP : ESP_BELOW_NOTHING;
}

static esp_status push(struct esp_schema *s, struct visit **stack, const struct esp_jv *v, uint32_t resource)
{
    if (v->type != ESP_JV_OBJECT) {
        return ESP_OK;
    }
    struct visit *visit = esp_arena_alloc(&s->arena, 1, sizeof *visit);
    if (visit == NULL) {
        return esp_schema_memory(s);
    }
    *visit = (struct visit){v, resource, *stack};
    *stack = visit;
    return ESP_OK;
}

static esp_status push_below(struct esp_schema *s, struct visit **stack, const struct esp_jv *v, uint32_t resource)
{
    esp_status status = ESP_OK;
    for (const struct esp_jv *member = v->child; member != NULL && status == ESP_OK; member = member->next) {
        enum esp_schema_below below = esp_schema_below(s, member);
        bool one = below == ESP_BELOW_SCHEMAS;
        if (below == ESP_BELOW_NOTHING) {
            continue;
        }
        if (one && member->type == ESP_JV_OBJECT) {
            status = push(s, stack, member, resource);
        } else if (member->type == (one ? ESP_JV_ARRAY : ESP_JV_OBJECT)) {
            for (const struct esp_jv *child = member->child; child != NULL && status == ESP_OK; child = child->next) {
                status = push(s, stack, child, resource);
            }
        }
    }
    return status;
}

/* ---- What a schema says about itself ------------------------------------------------------------ */

static const struct esp_jv *string_member(const struct esp_schema *s, const struct esp_jv *v, const char *key)
{
    const struct esp_jv *member = esp_jv_find(v, key);
    return member != NULL && member->type == ESP_JV_STRING && esp_schema_known(s, member) ? member : NULL;
}

/* Up to draft-07 a $ref hides an identifier beside it. */
static const struct esp_jv *own_id(const struct esp_schema *s, const struct esp_jv *v, bool *ret_guessed)
{
    bool old = s->draft_given && (s->draft & (ESP_DRAFT2019 | ESP_DRAFT2020)) == 0;
    const struct esp_jv *id = string_member(s, v, "$id");
    *ret_guessed = id == NULL && !s->draft_given;
    id = id != NULL ? id : string_member(s, v, "id");
    return id == NULL || (old && string_member(s, v, "$ref") != NULL) ? NULL : id;
}

const struct esp_anchor *esp_refs_anchor(const struct esp_refs *refs, uint32_t resource, const char *name, size_t n)
{
    char key[4 + 200];
    if (n > sizeof key - 4) {
        return NULL;
    }
    memcpy(key, &resource, 4);
    memcpy(key + 4, name, n);
    uint32_t at = esp_bytesmap_get(&refs->by_anchor, key, n + 4);
    return at == ESP_MAP_NONE ? NULL : &refs->anchors[at];
}

static esp_status add_anchor(struct esp_schema *s, uint32_t resource, const char *name, size_t n, bool dynamic,
                             const struct esp_jv *target)
{
    struct esp_refs *refs = s->refs;
    const struct esp_anchor *old = esp_refs_anchor(refs, resource, name, n);
    if (old != NULL || n > 200) {
        return ESP_OK; /* the first one counts; longer names are never looked up */
    }
    char *key = esp_arena_alloc(&s->arena, n + 4, 1);
    if (key == NULL || !esp_vec_grow(&refs->anchors, &refs->anchors_cap, (uint64_t)refs->n_anchors + 1)) {
        return esp_schema_memory(s);
    }
    memcpy(key, &resource, 4);
    memcpy(key + 4, name, n);
    refs->anchors[refs->n_anchors] = (struct esp_anchor){target, resource, dynamic};
    return esp_bytesmap_put(&refs->by_anchor, key, n + 4, refs->n_anchors++) == ESP_OK ? ESP_OK : esp_schema_memory(s);
}

static esp_status add_anchors(struct esp_schema *s, const struct esp_jv *v, uint32_t resource)
{
    bool guessed;
    const struct esp_jv *id = own_id(s, v, &guessed), *name = string_member(s, v, "$dynamicAnchor");
    esp_status status = ESP_OK;
    if (name != NULL) {
        status = add_anchor(s, resource, name->text, name->n_bytes, true, v);
    }
    name = string_member(s, v, "$anchor");
    if (name != NULL && status == ESP_OK) {
        status = add_anchor(s, resource, name->text, name->n_bytes, false, v);
    }
    size_t hash = id == NULL ? 0 : esp_uri_before_fragment(id->text, id->n_bytes);
    if (id != NULL && hash + 1 < id->n_bytes && status == ESP_OK) {
        status = add_anchor(s, resource, id->text + hash + 1, id->n_bytes - hash - 1, false, v);
    }
    return status;
}

static esp_status add_resource(struct esp_schema *s, const struct esp_jv *root, const char *uri, uint32_t parent,
                               bool guessed)
{
    struct esp_refs *refs = s->refs;
    const struct esp_jv *recursive = esp_jv_find(root, "$recursiveAnchor");
    if (!esp_vec_grow(&refs->resources, &refs->resources_cap, (uint64_t)refs->n_resources + 1)) {
        return esp_schema_memory(s);
    }
    uint32_t idx = refs->n_resources++;
    refs->resources[idx] = (struct esp_resource){.root = root, .uri = uri, .parent = parent, .guessed = guessed};
    refs->resources[idx].recursive =
        recursive != NULL && recursive->type == ESP_JV_TRUE && esp_schema_known(s, recursive);
    if (esp_bytesmap_get(&refs->by_uri, uri, strlen(uri)) == ESP_MAP_NONE &&
        esp_bytesmap_put(&refs->by_uri, uri, strlen(uri), idx) != ESP_OK) {
        return esp_schema_memory(s);
    }
    return ESP_OK;
}

/* The resource that v is in: a new one when it has an identifier that is more than a fragment. */
static esp_status enter(struct esp_schema *s, const struct esp_jv *v, uint32_t *resource)
{
    bool guessed;
    const struct esp_jv *id = own_id(s, v, &guessed);
    if (id == NULL || esp_uri_before_fragment(id->text, id->n_bytes) == 0) {
        return ESP_OK;
    }
    char *uri = esp_uri_resolve(&s->arena, s->refs->resources[*resource].uri, id->text, id->n_bytes);
    uint32_t parent = *resource;
    if (uri == NULL) {
        return esp_schema_memory(s);
    }
    *resource = s->refs->n_resources;
    return add_resource(s, v, uri, parent, guessed);
}

esp_status esp_refs_add_document(struct esp_schema *s, const struct esp_jv *root, const char *uri)
{
    bool guessed;
    struct visit *stack = NULL;
    uint32_t document = s->refs->n_resources;
    const struct esp_jv *id = root->type == ESP_JV_OBJECT ? own_id(s, root, &guessed) : NULL;
    const char *own_uri = id == NULL ? uri : esp_uri_resolve(&s->arena, uri, id->text, id->n_bytes);
    esp_status status = own_uri == NULL ? esp_schema_memory(s) : add_resource(s, root, own_uri, document, false);
    if (status == ESP_OK) {
        status = push(s, &stack, root, document);
    }
    while (stack != NULL && status == ESP_OK) {
        struct visit visit = *stack;
        stack = visit.next;
        if (visit.v != root) {
            status = enter(s, visit.v, &visit.resource);
        }
        if (status == ESP_OK) {
            status = add_anchors(s, visit.v, visit.resource);
        }
        if (status == ESP_OK) {
            status = push_below(s, &stack, visit.v, visit.resource);
        }
    }
    return status;
}
