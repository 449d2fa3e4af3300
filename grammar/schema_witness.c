/* Witnesses: members that an object must have because something is denied.
 *
 *   not {additionalProperties: S}     some member whose key is not declared there, with a value that is no S
 *
 *   declared a, b, cells ^x, rest     atoms: a required ∧ ¬S | b required ∧ ¬S | a last member ^x: ¬S | …
 *
 * The last member of an object has the key that is not declared, so that no later member of the same name can
 * take its value back. Two such members could have the same key, which nothing remembers: refused.
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema_keys.h"

/* ---- Which keys --------------------------------------------------------------------------------- */

/* The keys that a witness may have. */
static esp_status witness_keys(struct esp_key_set *k, const struct esp_witness *w, uint32_t *ret_keys)
{
    struct esp_schema *s = k->s;
    if (w->pattern != NULL) {
        return esp_keys_pattern(s, w->pattern, ret_keys);
    }
    if (w->names != NULL) {
        return esp_schema_contents(s, (struct esp_item){w->names, ESP_ITEM_NOT}, ret_keys);
    }
    const struct esp_jv *declared = w->of->properties, *v = declared == NULL ? NULL : declared->child;
    struct esp_spell_word *words =
        esp_arena_alloc(&s->arena, declared == NULL ? 1 : (size_t)declared->n + 1, sizeof *words);
    uint32_t n = 0;
    if (words == NULL) {
        return esp_schema_memory(s);
    }
    for (; v != NULL; v = v->next) {
        words[n++] = (struct esp_spell_word){v->key, v->key_bytes};
    }
    *ret_keys = esp_spell_words(s->x, s->spelling, &s->arena, words, n, true, ESP_EXPR_EPS);
    for (v = w->of->patterns == NULL ? NULL : w->of->patterns->child; v != NULL; v = v->next) {
        uint32_t expr;
        esp_status status = esp_keys_pattern(s, v, &expr);
        if (status != ESP_OK) {
            return status;
        }
        *ret_keys = esp_keys_without(s, *ret_keys, expr);
    }
    return ESP_OK;
}

esp_status esp_keys_witnesses(struct esp_key_set *k)
{
    esp_status status = ESP_OK;
    k->wanted = esp_arena_alloc(&k->s->arena, (size_t)k->n + 1, sizeof *k->wanted);
    if (k->wanted == NULL) {
        return esp_schema_memory(k->s);
    }
    for (uint32_t idx = 0; idx < k->n && status == ESP_OK; idx++) {
        if (k->leaves[idx]->witness != NULL) {
            struct esp_wanted *wanted = &k->wanted[k->n_wanted++];
            wanted->w = k->leaves[idx]->witness;
            status = witness_keys(k, wanted->w, &wanted->keys);
        }
    }
    return status == ESP_OK ? esp_keys_check(k) : status;
}

/* ---- Placing them ----------------------------------------------------------------------------- */

/* One place for each witness: a declared key or, from n_props on, a cell. The last member of the object has the
 * key that is not declared, so that no later member of the same name can take its value back. */
struct places {
    uint32_t *at; /* [n_wanted] */
    const struct esp_witness **extra;
    struct esp_prop *props;
    struct esp_cell last;
    bool fits;
};

/* The witnesses whose place it is, to p->extra. */
static uint32_t at_place(const struct esp_key_set *k, const struct places *p, uint32_t place)
{
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < k->n_wanted; idx++) {
        if (p->at[idx] == place) {
            p->extra[n++] = k->wanted[idx].w;
        }
    }
    return n;
}

static esp_status place_declared(struct esp_key_set *k, struct places *p, uint32_t place)
{
    struct esp_prop *prop = &p->props[place];
    for (uint32_t idx = 0; idx < k->n_wanted; idx++) {
        if (p->at[idx] == place && !esp_schema_accepts(k->s, k->wanted[idx].keys, prop->name, prop->n_bytes)) {
            p->fits = false;
            return ESP_OK;
        }
    }
    uint32_t n_extra = at_place(k, p, place);
    esp_status status = esp_keys_node(k, prop->name, prop->n_bytes, k->matched[place], p->extra, n_extra, &prop->node);
    p->fits = p->fits && status == ESP_OK && !esp_schema_false(k->s, prop->node);
    prop->required = true;
    return status;
}

static esp_status place_last(struct esp_key_set *k, struct places *p, uint32_t place)
{
    const struct esp_key_cell *cell = &k->cells[place - k->n_props];
    uint32_t key = cell->key, node;
    for (uint32_t idx = 0; idx < k->n_wanted; idx++) {
        key = p->at[idx] == place ? esp_keys_both(k->s, key, k->wanted[idx].keys) : key;
    }
    uint32_t n_extra = at_place(k, p, place);
    esp_status status = esp_keys_node(k, NULL, 0, cell->matched, p->extra, n_extra, &node);
    p->fits = p->fits && status == ESP_OK && key != ESP_EXPR_EMPTY && !esp_schema_false(k->s, node);
    if (p->fits && (p->last.key != 0 || n_extra > 1)) {
        return esp_schema_fail(k->s, ESP_EUNSUPPORTED, k->leaves[0]->self,
                               "needs two keys that are not declared and that may be equal");
    }
    p->last = (struct esp_cell){key, node};
    return status;
}

static esp_status place_all(struct esp_key_set *k, struct places *p)
{
    esp_status status = ESP_OK;
    p->fits = true;
    p->last = (struct esp_cell){0};
    if (k->n_props > 0) {
        memcpy(p->props, k->props, k->n_props * sizeof *p->props);
    }
    for (uint32_t idx = 0; idx < k->n_wanted && p->fits && status == ESP_OK; idx++) {
        bool first = true;
        for (uint32_t before = 0; before < idx; before++) {
            first = first && p->at[before] != p->at[idx];
        }
        if (first) {
            status = p->at[idx] < k->n_props ? place_declared(k, p, p->at[idx]) : place_last(k, p, p->at[idx]);
        }
    }
    return status;
}

/* An atom for every way to place the witnesses. */
esp_status esp_keys_witness_atoms(struct esp_key_set *k)
{
    struct esp_schema *s = k->s;
    uint32_t n_places = k->n_props + k->n_cells, at = 0;
    struct places p = {.at = esp_arena_alloc(&s->arena, k->n_wanted, sizeof *p.at),
                       .extra = esp_arena_alloc(&s->arena, k->n_wanted, sizeof *p.extra)};
    if (p.at == NULL || p.extra == NULL) {
        return esp_schema_memory(s);
    }
    memset(p.at, 0, k->n_wanted * sizeof *p.at);
    while (n_places > 0 && at < k->n_wanted) {
        p.props = esp_arena_alloc(&s->arena, (size_t)k->n_props + 1, sizeof *p.props);
        if (p.props == NULL) {
            return esp_schema_memory(s);
        }
        if (s->x->fuel < n_places) {
            return esp_schema_fail(s, ESP_ELIMIT, k->leaves[0]->self, "makes too many combinations of keys");
        }
        s->x->fuel -= n_places;
        esp_status status = place_all(k, &p);
        if (status != ESP_OK) {
            return status;
        }
        struct esp_atom *atom = p.fits ? esp_keys_atom(k, p.props) : NULL;
        if (p.fits && atom == NULL) {
            return esp_schema_memory(s);
        }
        if (p.fits) {
            atom->last = p.last;
        }
        for (at = 0; at < k->n_wanted && ++p.at[at] == n_places; at++) {
            p.at[at] = 0;
        }
    }
    return esp_keys_check(k);
}
