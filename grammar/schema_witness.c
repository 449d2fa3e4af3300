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

/* One place for each witness: a declared key or, from n_props on, a cell. The last members of the object have the
 * keys that are not declared, so that no later member of the same name can take a value back. Two witnesses in one
 * cell are one member, or two with different keys:
 *
 *   MERGED one key that both may have | FIRST w1's key is none of w2's | SECOND w2's is none of w1's, w1's is both's
 *
 * What is missing, two different keys that each could have had, is covered by MERGED when one of the witnesses asks
 * nothing of the value. Otherwise it is refused. */
enum mode { MERGED, FIRST, SECOND, MODES };
struct places {
    uint32_t *at; /* [n_wanted] */
    const struct esp_witness **extra;
    struct esp_prop *props;
    struct esp_cell *lasts; /* [2 · n_wanted] */
    uint32_t n_lasts;
    enum mode mode;
    bool fits, pair; /* pair: two witnesses share a cell, so that modes differ */
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

/* A last member with one of these keys, and a value that these witnesses ask for. */
static esp_status add_last(struct esp_key_set *k, struct places *p, uint32_t key, uint64_t matched,
                           const struct esp_witness *const *extra, uint32_t n_extra)
{
    uint32_t node;
    esp_status status = esp_keys_node(k, NULL, 0, matched, extra, n_extra, &node);
    p->fits = p->fits && status == ESP_OK && key != ESP_EXPR_EMPTY && !esp_schema_false(k->s, node);
    p->lasts[p->n_lasts++] = (struct esp_cell){key, node};
    return status;
}

static bool asks_nothing(const struct esp_witness *w)
{
    const struct esp_jv *v = w->item.v;
    bool empty = v->type == ESP_JV_TRUE || (v->type == ESP_JV_OBJECT && v->n == 0);
    return w->item.kind == ESP_ITEM_SCHEMA ? empty : w->item.kind == ESP_ITEM_NOT && v->type == ESP_JV_FALSE;
}

/* Two witnesses a and b in one cell. */
static esp_status place_pair(struct esp_key_set *k, struct places *p, const struct esp_key_cell *cell,
                             const struct esp_wanted *a, const struct esp_wanted *b)
{
    struct esp_schema *s = k->s;
    uint32_t of_a = esp_keys_both(s, cell->key, a->keys), of_b = esp_keys_both(s, cell->key, b->keys);
    uint32_t shared = esp_keys_both(s, of_a, b->keys), n_required = 0;
    esp_status status;
    p->pair = true;
    if (p->mode == MERGED) {
        for (uint32_t idx = 0; idx < k->n_props; idx++) {
            n_required += p->props[idx].required;
        }
        bool covered = asks_nothing(a->w) || asks_nothing(b->w) || shared == ESP_EXPR_EMPTY ||
                       (a->w->item.v == b->w->item.v && a->w->item.kind == b->w->item.kind) ||
                       k->length.max < n_required + 2;
        if (p->fits && !covered) {
            return esp_schema_fail(s, ESP_EUNSUPPORTED, k->leaves[0]->self,
                                   "needs two keys that are not declared and that may be equal");
        }
        const struct esp_witness *two[2] = {a->w, b->w};
        return add_last(k, p, shared, cell->matched, two, 2);
    }
    uint32_t first = p->mode == FIRST ? esp_keys_without(s, of_a, b->keys) : shared;
    uint32_t second = p->mode == FIRST ? of_b : esp_keys_without(s, of_b, a->keys);
    status = add_last(k, p, first, cell->matched, &a->w, 1);
    return status == ESP_OK ? add_last(k, p, second, cell->matched, &b->w, 1) : status;
}

static esp_status place_last(struct esp_key_set *k, struct places *p, uint32_t place)
{
    const struct esp_key_cell *cell = &k->cells[place - k->n_props];
    const struct esp_wanted *here[2] = {NULL, NULL};
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < k->n_wanted; idx++) {
        if (p->at[idx] == place) {
            here[n < 2 ? n : 1] = &k->wanted[idx];
            n++;
        }
    }
    if (n == 1) {
        return add_last(k, p, esp_keys_both(k->s, cell->key, here[0]->keys), cell->matched, &here[0]->w, 1);
    }
    if (n > 2 || p->pair) {
        return esp_schema_fail(k->s, ESP_EUNSUPPORTED, k->leaves[0]->self,
                               "needs several keys that are not declared and that may be equal");
    }
    return place_pair(k, p, cell, here[0], here[1]);
}

static esp_status place_all(struct esp_key_set *k, struct places *p)
{
    esp_status status = ESP_OK;
    p->fits = true;
    p->pair = false;
    p->n_lasts = 0;
    if (k->n_props > 0) {
        memcpy(p->props, k->props, k->n_props * sizeof *p->props);
    }
    /* Declared keys first, as they may settle it without a question about the others. */
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t idx = 0; idx < k->n_wanted && p->fits && status == ESP_OK; idx++) {
            bool first = (p->at[idx] < k->n_props) == (turn == 0);
            for (uint32_t before = 0; before < idx; before++) {
                first = first && p->at[before] != p->at[idx];
            }
            if (first) {
                status = turn == 0 ? place_declared(k, p, p->at[idx]) : place_last(k, p, p->at[idx]);
            }
        }
    }
    return status;
}

/* The atom of what is placed. */
static esp_status placed_atom(struct esp_key_set *k, const struct places *p)
{
    struct esp_atom *atom = esp_keys_atom(k, p->props);
    struct esp_cell *lasts = esp_arena_alloc(&k->s->arena, (size_t)p->n_lasts + 1, sizeof *lasts);
    if (atom == NULL || lasts == NULL) {
        return esp_schema_memory(k->s);
    }
    if (p->n_lasts > 0) {
        memcpy(lasts, p->lasts, p->n_lasts * sizeof *lasts);
    }
    atom->lasts = lasts;
    atom->n_lasts = p->n_lasts;
    return ESP_OK;
}

/* Goes on to the next way; false after the last one. */
static bool next_way(const struct esp_key_set *k, struct places *p, uint32_t n_places)
{
    p->mode = p->pair && p->mode + 1 < MODES ? p->mode + 1 : MERGED;
    if (p->mode != MERGED) {
        return true;
    }
    uint32_t at = 0;
    while (at < k->n_wanted && ++p->at[at] == n_places) {
        p->at[at++] = 0;
    }
    return at < k->n_wanted;
}

/* An atom for every way to place the witnesses. */
esp_status esp_keys_witness_atoms(struct esp_key_set *k)
{
    struct esp_schema *s = k->s;
    uint32_t n_places = k->n_props + k->n_cells;
    struct places p = {.at = esp_arena_alloc(&s->arena, k->n_wanted, sizeof *p.at),
                       .extra = esp_arena_alloc(&s->arena, k->n_wanted, sizeof *p.extra),
                       .lasts = esp_arena_alloc(&s->arena, 2 * (size_t)k->n_wanted, sizeof *p.lasts)};
    if (p.at == NULL || p.extra == NULL || p.lasts == NULL) {
        return esp_schema_memory(s);
    }
    memset(p.at, 0, k->n_wanted * sizeof *p.at);
    for (bool more = n_places > 0; more; more = next_way(k, &p, n_places)) {
        p.props = esp_arena_alloc(&s->arena, (size_t)k->n_props + 1, sizeof *p.props);
        if (p.props == NULL) {
            return esp_schema_memory(s);
        }
        if (s->x->fuel < n_places) {
            return esp_schema_fail(s, ESP_ELIMIT, k->leaves[0]->self, "makes too many combinations of keys");
        }
        s->x->fuel -= n_places;
        esp_status status = place_all(k, &p);
        if (status == ESP_OK && p.fits) {
            status = placed_atom(k, &p);
        }
        if (status != ESP_OK) {
            return status;
        }
    }
    return esp_keys_check(k);
}
