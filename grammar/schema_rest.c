/* unevaluatedProperties and unevaluatedItems: in a finished alternative it is plain which schemas hold, and so what
 * they evaluate; what is left over is like additionalProperties and the items after a prefix.
 *
 *   {unevaluatedProperties: false,
 *    anyOf: [{properties: {a}}, …]}     way in of the branch: root ► branch      a counts for the root
 *                                       not under the root, or inside of a not   does not count
 *
 * Items that satisfy a contains in scope are evaluated, too: the others must satisfy unevaluatedItems, so each
 * satisfies one of them. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema_expand.h"
#include "grammar/vec.h"

/* Is the leaf's schema below `top` on this way in, with no `not` between? */
static bool counts_for(const struct esp_via *via, const struct esp_jv *top)
{
    for (; via != NULL; via = via->up) {
        if (via->v == top) {
            return true;
        }
        if (via->mute) {
            return false;
        }
    }
    return false;
}

/* ---- One of several schemas -------------------------------------------------------------------- */

/* A new value as the last member of parent. Latches: a NULL parent gives NULL. */
static struct esp_jv *add(struct esp_schema *s, struct esp_jv *parent, const struct esp_jv *from)
{
    struct esp_jv *v = parent == NULL ? NULL : esp_arena_alloc(&s->arena, 1, sizeof *v);
    if (v == NULL) {
        return NULL;
    }
    *v = *from;
    v->extra = NULL;
    v->next = NULL;
    v->parent = parent;
    v->index = parent->n++;
    *(parent->child == NULL ? &parent->child : &parent->last->next) = v;
    parent->last = v;
    return v;
}

/* {anyOf: schemas}, the same one for the same schemas, in the place of the first. */
static esp_status either(struct esp_schema *s, const struct esp_jv *const *schemas, uint32_t n,
                         const struct esp_jv **ret)
{
    uint32_t known = esp_bytesmap_get(&s->either_map, schemas, n * sizeof schemas[0]);
    if (known != ESP_MAP_NONE) {
        *ret = s->eithers[known];
        return ESP_OK;
    }
    const struct esp_jv list = {.type = ESP_JV_ARRAY, .key = "anyOf", .key_bytes = 5};
    struct esp_jv *made = esp_arena_alloc(&s->arena, 1, sizeof *made);
    const struct esp_jv **key = esp_arena_alloc(&s->arena, n, sizeof *key);
    if (made == NULL || key == NULL || !esp_vec_grow(&s->eithers, &s->eithers_cap, (uint64_t)s->n_eithers + 1)) {
        return esp_schema_memory(s);
    }
    *made = *schemas[0];
    made->type = ESP_JV_OBJECT;
    made->n = 0;
    made->child = made->last = made->next = NULL;
    made->extra = NULL;
    struct esp_jv *any_of = add(s, made, &list);
    struct esp_jv *last = any_of;
    for (uint32_t idx = 0; idx < n && last != NULL; idx++) {
        last = add(s, any_of, schemas[idx]); /* the members keep their place in the source */
        if (last != NULL) {
            last->key = NULL;
            last->key_bytes = 0;
        }
    }
    memcpy(key, schemas, n * sizeof *key);
    s->eithers[s->n_eithers] = made;
    *ret = made;
    if (last == NULL || esp_bytesmap_put(&s->either_map, key, n * sizeof *key, s->n_eithers++) != ESP_OK) {
        return esp_schema_memory(s);
    }
    return ESP_OK;
}

/* ---- What is left over ------------------------------------------------------------------------- */

static esp_status rest_of_items(struct esp_schema *s, struct esp_unevaluated *u)
{
    const struct esp_jv *schemas[ESP_SCHEMA_CONJUNCTS_MAX + 1];
    uint32_t n = 0;
    bool marks = s->draft == ESP_DRAFT2020; /* since then contains evaluates */
    for (uint32_t idx = 0; idx < u->n_seen && marks; idx++) {
        if (u->seen[idx]->contains != NULL && n < ESP_SCHEMA_CONJUNCTS_MAX) {
            schemas[n++] = u->seen[idx]->contains;
        }
    }
    schemas[n++] = u->leaf->rest_items;
    u->item = schemas[0];
    return n == 1 ? ESP_OK : either(s, schemas, n, &u->item);
}

/* What the leaves in scope evaluate. */
static esp_status find_rest(struct esp_schema *s, const struct esp_partial *p, struct esp_unevaluated *u)
{
    uint32_t n = 0;
    for (const struct esp_seen *seen = p->seen; seen != NULL; seen = seen->next) {
        n++;
    }
    u->seen = esp_arena_alloc(&s->arena, (size_t)n + 1, sizeof *u->seen);
    if (u->seen == NULL) {
        return esp_schema_memory(s);
    }
    for (const struct esp_seen *seen = p->seen; seen != NULL; seen = seen->next) {
        const struct esp_leaf *leaf = seen->leaf;
        if (!counts_for(seen->via, u->leaf->self)) {
            continue;
        }
        bool other = leaf != u->leaf;
        u->seen[u->n_seen++] = leaf;
        u->all_members = u->all_members || leaf->additional != NULL || (other && leaf->rest_members != NULL);
        u->all_items = u->all_items || leaf->items != NULL || (other && leaf->rest_items != NULL);
        if (leaf->prefix != NULL && leaf->prefix->n > u->n_items) {
            u->n_items = leaf->prefix->n;
        }
    }
    return u->leaf->rest_items != NULL ? rest_of_items(s, u) : ESP_OK;
}

esp_status esp_schema_finish(struct esp_schema *s, const struct esp_partial *p)
{
    struct esp_unevaluated found[ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n = 0;
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < p->n_done && p->seen != NULL && status == ESP_OK; idx++) {
        const struct esp_leaf *leaf = p->done[idx].kind == ESP_ITEM_LEAF ? p->done[idx].v->extra : NULL;
        if (leaf != NULL && (leaf->rest_members != NULL || leaf->rest_items != NULL)) {
            found[n] = (struct esp_unevaluated){.leaf = leaf};
            status = find_rest(s, p, &found[n++]);
        }
    }
    return status == ESP_OK ? esp_schema_atoms(s, p->done, p->n_done, found, n) : status;
}
