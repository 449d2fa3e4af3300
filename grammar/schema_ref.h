/* Where schemas are named: resources, anchors and dynamic scopes. Inside of the schema compiler.
 *
 *   resource   a schema with an identifier of its own (or the document); URI → resource
 *   anchor     (resource, name) → schema; $anchor, $dynamicAnchor, and fragments in older identifiers
 *   scope      for each name that several resources declare dynamically: which of them was entered first
 *   instance   a resource in a scope. $dynamicRef means something else in another scope, so each scope that a
 *              resource is entered in gets a copy of its tree, and a schema's address tells its scope
 *
 * Documents without such names have one scope and no copies. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_SCHEMA_REF_H
#define ESP_GRAMMAR_SCHEMA_REF_H

#include "grammar/schema.h"

#define ESP_REFS_NAMES_MAX 16u /* dynamic names that need a scope */
#define ESP_REFS_INSTANCES_MAX 2000u

struct esp_resource {
    const struct esp_jv *root; /* in the document itself */
    const char *uri;           /* absolute as far as the document says, without fragment */
    uint32_t parent;           /* the resource around it; its own index for a document */
    bool guessed;              /* by "id" in a schema that names no draft: fragments alone still mean the document */
    bool recursive;            /* $recursiveAnchor */
};
struct esp_anchor {
    const struct esp_jv *target;
    uint32_t resource;
    bool dynamic;
};
struct esp_instance {
    uint32_t resource, scope;
    const struct esp_jv *root;
};
struct esp_refs {
    struct esp_resource *resources;
    uint32_t n_resources, resources_cap;
    struct esp_anchor *anchors;
    uint32_t n_anchors, anchors_cap;
    struct esp_bytesmap by_uri, by_anchor; /* to indices; anchors: 4 bytes of resource, name */
    const struct esp_jv *names[ESP_REFS_NAMES_MAX];  /* a declaration of each name; NULL: $recursiveAnchor */
    uint32_t n_names;
    uint32_t **scopes; /* [n_names] resources, or ESP_MAP_NONE */
    uint32_t n_scopes, scopes_cap;
    struct esp_bytesmap by_scope;
    struct esp_instance *instances;
    uint32_t n_instances, instances_cap;
    struct esp_map by_root;     /* address of an instance's root → instance */
    struct esp_map by_resource; /* resource << 32 | scope → instance */
};

/* schema_ids.c: finds everything named in a tree; `uri` is its own, "" for the document. */
esp_status esp_refs_add_document(struct esp_schema *s, const struct esp_jv *root, const char *uri);
const struct esp_anchor *esp_refs_anchor(const struct esp_refs *refs, uint32_t resource, const char *name, size_t n);
/* schema_scope.c: the scopes of the document's own places, once all is found. */
esp_status esp_refs_make_scopes(struct esp_schema *s);
/* The scope after a resource is entered. */
esp_status esp_refs_enter(struct esp_schema *s, uint32_t scope, uint32_t resource, uint32_t *ret_scope);
/* The tree of a resource in a scope, copied when it is new. */
esp_status esp_refs_instance(struct esp_schema *s, uint32_t resource, uint32_t scope, const struct esp_jv **ret_root);
/* The instance that holds v. */
const struct esp_instance *esp_refs_around(const struct esp_refs *refs, const struct esp_jv *v);

#endif
