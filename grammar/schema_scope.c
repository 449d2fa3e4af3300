/* Dynamic scopes: what $dynamicRef and $recursiveRef mean, place by place. See schema_ref.h.
 *
 *   names declared once in all resources     mean the same in every scope: left out here
 *   the others                               a scope says which declaring resource was entered first
 *
 *   resource in scope A        tree of the document
 *   resource in scope B        copy of the tree; resources inside it are instances, too
 *
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema_ref.h"
#include "grammar/vec.h"

/* ---- Names -------------------------------------------------------------------------------------- */

/* Does the resource declare the name dynamically? NULL is $recursiveAnchor. */
static bool declares(const struct esp_refs *refs, uint32_t resource, const struct esp_jv *name)
{
    if (name == NULL) {
        return refs->resources[resource].recursive;
    }
    const struct esp_anchor *anchor = esp_refs_anchor(refs, resource, name->text, name->n_bytes);
    return anchor != NULL && anchor->dynamic;
}

static bool same_name(const struct esp_jv *a, const struct esp_jv *b)
{
    return a == b || (a != NULL && b != NULL && a->n_bytes == b->n_bytes && memcmp(a->text, b->text, a->n_bytes) == 0);
}

static esp_status add_name(struct esp_schema *s, const struct esp_jv *name)
{
    struct esp_refs *refs = s->refs;
    uint32_t n_declared = 0;
    for (uint32_t idx = 0; idx < refs->n_names; idx++) {
        if (same_name(refs->names[idx], name)) {
            return ESP_OK;
        }
    }
    for (uint32_t idx = 0; idx < refs->n_resources; idx++) {
        n_declared += declares(refs, idx, name);
    }
    if (n_declared < 2) {
        return ESP_OK;
    }
    if (refs->n_names == ESP_REFS_NAMES_MAX) {
        return esp_schema_fail(s, ESP_ELIMIT, name, "is one of too many names declared dynamically");
    }
    refs->names[refs->n_names++] = name;
    return ESP_OK;
}

static esp_status find_names(struct esp_schema *s)
{
    struct esp_refs *refs = s->refs;
    esp_status status = ESP_OK;
    bool recursive = false;
    for (uint32_t idx = 0; idx < refs->n_anchors && status == ESP_OK; idx++) {
        if (refs->anchors[idx].dynamic) {
            status = add_name(s, esp_jv_find(refs->anchors[idx].target, "$dynamicAnchor"));
        }
    }
    for (uint32_t idx = 0; idx < refs->n_resources; idx++) {
        recursive = recursive || refs->resources[idx].recursive;
    }
    return status == ESP_OK && recursive ? add_name(s, NULL) : status;
}

/* ---- Scopes ------------------------------------------------------------------------------------- */

static esp_status intern(struct esp_schema *s, const uint32_t *scope, uint32_t *ret_scope)
{
    struct esp_refs *refs = s->refs;
    size_t n_bytes = refs->n_names * sizeof *scope;
    uint32_t id = esp_bytesmap_get(&refs->by_scope, scope, n_bytes);
    if (id == ESP_MAP_NONE) {
        uint32_t *copy = esp_arena_alloc(&s->arena, (size_t)refs->n_names + 1, sizeof *copy);
        if (copy == NULL || !esp_vec_grow(&refs->scopes, &refs->scopes_cap, (uint64_t)refs->n_scopes + 1)) {
            return esp_schema_memory(s);
        }
        memcpy(copy, scope, n_bytes);
        id = refs->n_scopes++;
        refs->scopes[id] = copy;
        if (esp_bytesmap_put(&refs->by_scope, copy, n_bytes, id) != ESP_OK) {
            return esp_schema_memory(s);
        }
    }
    *ret_scope = id;
    return ESP_OK;
}

esp_status esp_refs_enter(struct esp_schema *s, uint32_t scope, uint32_t resource, uint32_t *ret_scope)
{
    uint32_t next[ESP_REFS_NAMES_MAX + 1];
    const struct esp_refs *refs = s->refs;
    for (uint32_t idx = 0; idx < refs->n_names; idx++) {
        next[idx] = refs->scopes[scope][idx];
        if (next[idx] == ESP_MAP_NONE && declares(refs, resource, refs->names[idx])) {
            next[idx] = resource;
        }
    }
    return intern(s, next, ret_scope);
}

/* ---- Instances ---------------------------------------------------------------------------------- */

static uint64_t resource_key(uint32_t resource, uint32_t scope)
{
    return (uint64_t)resource << 32 | scope;
}

static esp_status add_instance(struct esp_schema *s, uint32_t resource, uint32_t scope, const struct esp_jv *root)
{
    struct esp_refs *refs = s->refs;
    if (refs->n_instances == ESP_REFS_INSTANCES_MAX) {
        return esp_schema_fail(s, ESP_ELIMIT, refs->resources[resource].root,
                               "is entered in too many dynamic scopes, or there are too many identifiers");
    }
    if (!esp_vec_grow(&refs->instances, &refs->instances_cap, (uint64_t)refs->n_instances + 1)) {
        return esp_schema_memory(s);
    }
    uint32_t idx = refs->n_instances++;
    refs->instances[idx] = (struct esp_instance){resource, scope, root};
    uint64_t key = resource_key(resource, scope);
    if (esp_map_put(&refs->by_root, (uintptr_t)root, idx) != ESP_OK ||
        (esp_map_get(&refs->by_resource, key) == ESP_MAP_NONE &&
         esp_map_put(&refs->by_resource, key, idx) != ESP_OK)) {
        return esp_schema_memory(s);
    }
    return ESP_OK;
}

const struct esp_instance *esp_refs_around(const struct esp_refs *refs, const struct esp_jv *v)
{
    for (; v != NULL; v = v->parent) {
        uint32_t idx = esp_map_get(&refs->by_root, (uintptr_t)v);
        if (idx != ESP_MAP_NONE) {
            return &refs->instances[idx];
        }
    }
    return &refs->instances[0];
}

esp_status esp_refs_make_scopes(struct esp_schema *s)
{
    struct esp_refs *refs = s->refs;
    uint32_t none[ESP_REFS_NAMES_MAX + 1], empty, *entered;
    esp_status status = find_names(s);
    memset(none, 0xFF, sizeof none);
    entered = esp_arena_alloc(&s->arena, (size_t)refs->n_resources + 1, sizeof *entered);
    if (status == ESP_OK) {
        status = entered == NULL ? esp_schema_memory(s) : intern(s, none, &empty);
    }
    for (uint32_t idx = 0; idx < refs->n_resources && status == ESP_OK; idx++) {
        uint32_t parent = refs->resources[idx].parent;
        status = esp_refs_enter(s, parent == idx ? empty : entered[parent], idx, &entered[idx]);
        if (status == ESP_OK) {
            status = add_instance(s, idx, entered[idx], refs->resources[idx].root);
        }
    }
    return status;
}

/* A value without what hangs on it: below `parent`, or beside the original's parent when that is NULL. */
static struct esp_jv *copy_one(struct esp_schema *s, const struct esp_jv *v, struct esp_jv *parent)
{
    struct esp_jv *copy = esp_arena_alloc(&s->arena, 1, sizeof *copy);
    if (copy != NULL) {
        *copy = *v;
        copy->child = copy->last = copy->next = NULL;
        copy->extra = NULL;
        if (parent != NULL) {
            copy->parent = parent;
            *(parent->child == NULL ? &parent->child : &parent->last->next) = copy;
            parent->last = copy;
        }
    }
    return copy;
}

/* The resource whose root in the document is v; ESP_MAP_NONE when it is none. */
static uint32_t rooted_at(const struct esp_refs *refs, const struct esp_jv *v)
{
    uint32_t idx = esp_map_get(&refs->by_root, (uintptr_t)v);
    return idx == ESP_MAP_NONE ? idx : refs->instances[idx].resource;
}

/* Registers the copy of v when v is a resource. */
static esp_status note_copy(struct esp_schema *s, const struct esp_jv *v, struct esp_jv *copy, uint32_t scope,
                            bool first)
{
    uint32_t resource = rooted_at(s->refs, v);
    if (copy == NULL) {
        return esp_schema_memory(s);
    }
    if (s->x->fuel < 10) {
        return esp_schema_fail(s, ESP_ELIMIT, s->root, "needs more steps than a compile may take");
    }
    s->x->fuel -= 10;
    if (resource == ESP_MAP_NONE) {
        return ESP_OK;
    }
    if (!first) {
        esp_status status = esp_refs_enter(s, esp_refs_around(s->refs, copy)->scope, resource, &scope);
        if (status != ESP_OK) {
            return status;
        }
    }
    return add_instance(s, resource, scope, copy);
}

static esp_status copy_tree(struct esp_schema *s, uint32_t resource, uint32_t scope, const struct esp_jv **ret_root)
{
    const struct esp_jv *from = s->refs->resources[resource].root, *root = from;
    struct esp_jv *to = copy_one(s, from, NULL);
    esp_status status = note_copy(s, from, to, scope, true);
    *ret_root = to;
    while (status == ESP_OK) {
        if (from->child != NULL) { /* down, along or up, in both trees */
            from = from->child;
        } else {
            while (from != root && from->next == NULL) {
                from = from->parent;
                to = to->parent;
            }
            if (from == root) {
                break;
            }
            from = from->next;
            to = to->parent;
        }
        to = copy_one(s, from, to);
        status = note_copy(s, from, to, 0, false);
    }
    return status;
}

esp_status esp_refs_instance(struct esp_schema *s, uint32_t resource, uint32_t scope, const struct esp_jv **ret_root)
{
    uint32_t idx = esp_map_get(&s->refs->by_resource, resource_key(resource, scope));
    if (idx == ESP_MAP_NONE) {
        return copy_tree(s, resource, scope, ret_root);
    }
    *ret_root = s->refs->instances[idx].root;
    return ESP_OK;
}
