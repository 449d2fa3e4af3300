/* $ref, $dynamicRef and $recursiveRef: from the text of a reference to the schema it means.
 *
 *   text ──base of the place──► resource, fragment ──► pointer (~0 ~1 %XX) or anchor ──► place in the document
 *        ──scope of the place──► the same place in the instance of its resource (schema_scope.c)
 *
 * Everything is found inside the document; what would have to be fetched is refused. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema_read.h"
#include "grammar/schema_ref.h"
#include "grammar/uri.h"

/* ---- Pointers ----------------------------------------------------------------------------------- */

static int hex(char c)
{
    char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Decodes %XX; false when malformed. */
static bool decode_percent(const char *text, size_t n, char *out, size_t *ret_n)
{
    size_t n_out = 0;
    for (size_t at = 0; at < n; at++) {
        if (text[at] != '%') {
            out[n_out++] = text[at];
            continue;
        }
        if (at + 2 >= n || hex(text[at + 1]) < 0 || hex(text[at + 2]) < 0) {
            return false;
        }
        out[n_out++] = (char)(hex(text[at + 1]) * 16 + hex(text[at + 2]));
        at += 2;
    }
    *ret_n = n_out;
    return true;
}

/* One step of a pointer, in place: ~1 is a slash, ~0 a tilde. */
static size_t decode_step(char *step, size_t n)
{
    size_t n_out = 0;
    for (size_t at = 0; at < n; at++) {
        char c = step[at];
        if (c == '~' && at + 1 < n && (step[at + 1] == '0' || step[at + 1] == '1')) {
            c = step[++at] == '0' ? '~' : '/';
        }
        step[n_out++] = c;
    }
    return n_out;
}

static const struct esp_jv *array_member(const struct esp_jv *array, const char *step, size_t n)
{
    uint64_t index = 0;
    if (n == 0 || n > 9 || (n > 1 && step[0] == '0')) {
        return NULL;
    }
    for (size_t at = 0; at < n; at++) {
        if (step[at] < '0' || step[at] > '9') {
            return NULL;
        }
        index = index * 10 + (uint64_t)(step[at] - '0');
    }
    const struct esp_jv *child = array->child;
    while (child != NULL && index > 0) {
        child = child->next;
        index--;
    }
    return child;
}

/* `pointer` is decoded on the way, so it serves once. */
static const struct esp_jv *follow(const struct esp_jv *at, char *pointer, size_t n)
{
    size_t begin = 0;
    while (at != NULL && begin < n) {
        size_t end = begin + 1;
        while (end < n && pointer[end] != '/') {
            end++;
        }
        size_t n_step = decode_step(pointer + begin + 1, end - begin - 1);
        if (at->type == ESP_JV_OBJECT) {
            at = esp_jv_get(at, pointer + begin + 1, n_step);
        } else {
            at = at->type == ESP_JV_ARRAY ? array_member(at, pointer + begin + 1, n_step) : NULL;
        }
        begin = end;
    }
    return at;
}

const struct esp_jv *esp_schema_at(struct esp_schema *s, const char *pointer)
{
    size_t n = strlen(pointer);
    char *copy = esp_arena_strndup(&s->arena, pointer, n);
    return copy == NULL ? NULL : follow(s->root, copy, n);
}

/* ---- Places in the document --------------------------------------------------------------------- */

struct place {
    const struct esp_jv *target;
    const struct esp_anchor *anchor; /* NULL: named by a pointer */
    uint32_t resource;               /* that the reference names */
};

/* What a fragment means in a resource; target NULL when it means nothing. */
static esp_status find_fragment(struct esp_schema *s, const struct esp_jv *ref, uint32_t resource,
                                struct place *ret_place)
{
    size_t before = esp_uri_before_fragment(ref->text, ref->n_bytes);
    size_t n = before < ref->n_bytes ? ref->n_bytes - before - 1 : 0;
    char *fragment = esp_arena_alloc(&s->arena, n + 1, 1);
    struct place place = {s->refs->resources[resource].root, NULL, resource};
    if (fragment == NULL) {
        return esp_schema_memory(s);
    }
    if (n > 0 && !decode_percent(ref->text + before + 1, n, fragment, &n)) {
        return esp_schema_fail(s, ESP_EINVAL, ref, "\"%.100s\" has a bad %% escape", ref->text);
    }
    if (n > 0 && fragment[0] != '/') {
        place.anchor = esp_refs_anchor(s->refs, resource, fragment, n);
        place.target = place.anchor == NULL ? NULL : place.anchor->target;
    } else {
        place.target = follow(place.target, fragment, n);
    }
    *ret_place = place;
    return ESP_OK;
}

/* A fragment alone. Where an "id" was only guessed to be an identifier the schema around it has the first word. */
static esp_status find_here(struct esp_schema *s, const struct esp_jv *ref, uint32_t resource, struct place *ret_place)
{
    const struct esp_resource *resources = s->refs->resources;
    uint32_t outer = resource;
    while (resources[outer].guessed) {
        outer = resources[outer].parent;
    }
    esp_status status = find_fragment(s, ref, outer, ret_place);
    return status == ESP_OK && ret_place->target == NULL && outer != resource
               ? find_fragment(s, ref, resource, ret_place)
               : status;
}

static esp_status find_place(struct esp_schema *s, const struct esp_jv *ref, uint32_t here, struct place *ret_place)
{
    struct esp_refs *refs = s->refs;
    size_t n = esp_uri_before_fragment(ref->text, ref->n_bytes);
    if (n == 0) {
        return find_here(s, ref, here, ret_place);
    }
    const char *uri = esp_uri_resolve(&s->arena, refs->resources[here].uri, ref->text, n);
    if (uri == NULL) {
        return esp_schema_memory(s);
    }
    uint32_t resource = esp_bytesmap_get(&refs->by_uri, uri, strlen(uri));
    if (resource == ESP_MAP_NONE) {
        return esp_schema_fail(s, ESP_EUNSUPPORTED, ref, "\"%.100s\" is outside this document", ref->text);
    }
    return find_fragment(s, ref, resource, ret_place);
}

/* ---- Dynamic references ------------------------------------------------------------------------- */

/* The declaration that was entered first; the one found when scopes do not differ in the name. */
static void apply_scope(struct esp_schema *s, const struct esp_jv *ref, uint32_t scope, struct place *place)
{
    const struct esp_refs *refs = s->refs;
    bool recursive = strcmp(ref->key, "$recursiveRef") == 0;
    const struct esp_jv *name = recursive ? NULL : esp_jv_find(place->target, "$dynamicAnchor");
    bool dynamic = recursive ? refs->resources[place->resource].recursive
                             : place->anchor != NULL && place->anchor->dynamic && name != NULL;
    for (uint32_t idx = 0; idx < refs->n_names && dynamic; idx++) {
        const struct esp_jv *known = refs->names[idx];
        if (recursive ? known != NULL
                      : known == NULL || known->n_bytes != name->n_bytes ||
                            memcmp(known->text, name->text, name->n_bytes) != 0) {
            continue;
        }
        uint32_t first = refs->scopes[scope][idx];
        if (first == ESP_MAP_NONE) {
            return;
        }
        place->resource = first;
        place->target = recursive ? refs->resources[first].root
                                  : esp_refs_anchor(refs, first, name->text, name->n_bytes)->target;
        return;
    }
}

/* The same place in the instance of its resource for the scope in which it is entered from `scope`. */
static esp_status place_instance(struct esp_schema *s, const struct esp_jv *target, uint32_t scope,
                                 const struct esp_jv **ret_target)
{
    uint32_t steps[ESP_GRAMMAR_DEPTH_MAX + 2], n = 0;
    const struct esp_instance *around = esp_refs_around(s->refs, target);
    uint32_t resource = around->resource;
    const struct esp_jv *root = around->root, *at = target, *to;
    esp_status status = esp_refs_enter(s, scope, resource, &scope);
    if (status == ESP_OK) {
        status = esp_refs_instance(s, resource, scope, &to);
    }
    if (status != ESP_OK) {
        return status;
    }
    for (; to != root && at != root; at = at->parent) {
        steps[n++] = at->index;
    }
    while (n > 0) {
        uint32_t index = steps[--n];
        for (to = to->child; index > 0; index--) {
            to = to->next;
        }
    }
    *ret_target = to == root ? target : to;
    return ESP_OK;
}

/* ---- The whole ---------------------------------------------------------------------------------- */

void esp_schema_refs_finish(struct esp_schema *s)
{
    struct esp_refs *refs = s->refs;
    if (refs != NULL) {
        esp_free(refs->resources);
        esp_free(refs->anchors);
        esp_free(refs->scopes);
        esp_free(refs->instances);
        esp_bytesmap_finish(&refs->by_uri);
        esp_bytesmap_finish(&refs->by_anchor);
        esp_bytesmap_finish(&refs->by_scope);
        esp_map_finish(&refs->by_root);
        esp_map_finish(&refs->by_resource);
    }
}

static esp_status make_refs(struct esp_schema *s)
{
    struct esp_refs *refs = esp_arena_alloc(&s->arena, 1, sizeof *refs);
    if (refs == NULL) {
        return esp_schema_memory(s);
    }
    esp_bytesmap_init(&refs->by_uri, ESP_TAG_GRAMMAR);
    esp_bytesmap_init(&refs->by_anchor, ESP_TAG_GRAMMAR);
    esp_bytesmap_init(&refs->by_scope, ESP_TAG_GRAMMAR);
    esp_map_init(&refs->by_root, ESP_TAG_GRAMMAR);
    esp_map_init(&refs->by_resource, ESP_TAG_GRAMMAR);
    s->refs = refs;
    esp_status status = esp_refs_add_document(s, s->root, "");
    return status == ESP_OK ? esp_refs_make_scopes(s) : status;
}

esp_status esp_schema_resolve(struct esp_schema *s, const struct esp_jv *ref, const struct esp_jv **ret_target)
{
    struct place place;
    esp_status status = s->refs == NULL ? make_refs(s) : ESP_OK;
    if (status != ESP_OK) {
        return status;
    }
    struct esp_instance here = *esp_refs_around(s->refs, ref->parent);
    status = find_place(s, ref, here.resource, &place);
    if (status == ESP_OK && place.target == NULL) {
        status = esp_schema_fail(s, ESP_EINVAL, ref, "\"%.100s\" points to nothing", ref->text);
    }
    if (status != ESP_OK) {
        return status;
    }
    if (strcmp(ref->key, "$ref") != 0) {
        apply_scope(s, ref, here.scope, &place);
    }
    return place_instance(s, place.target, here.scope, ret_target);
}
