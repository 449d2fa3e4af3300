/* Array atoms: the node of each item, how many items, and how many of them satisfy what is counted.
 *
 *   nothing counted    prefix nodes, a node for the rest, least and greatest number of items
 *   counted            a graph; a state is (items so far, counts), an edge is one item of one kind
 *
 *   contains C, twice at most     (0,0) ──¬C──► (1,0) …      an item that is not counted need not deny C
 *                                   └───C──► (1,1) …         where only a least number is asked for
 *
 * The numbers of a state stop growing where more makes no difference. "At most none" is no counting: every item
 * denies C. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema.h"
#include "grammar/vec.h"

#define COUNTERS_MAX 6u
#define STATES_MAX 20000u
#define EDGES_MAX 100000u
#define ITEMS_MAX (5 * ESP_SCHEMA_CONJUNCTS_MAX + COUNTERS_MAX + 1)

struct array {
    struct esp_conj *c;
    uint32_t min, max, n_prefix;
    const struct esp_jv *min_at;
    struct esp_counter counters[COUNTERS_MAX];
    uint32_t n_counters;
    uint32_t *nodes; /* [(n_prefix + 1) << n_counters] by place and set of counters */
    uint32_t n_top;  /* items beyond which their number makes no difference */
    struct esp_counts *counts;
    uint32_t (*places)[1 + COUNTERS_MAX]; /* [n_states] items so far, counts */
    uint32_t places_cap;
    struct esp_bytesmap map; /* place → state */
};

static const struct esp_jv *member(const struct esp_jv *array, uint32_t index)
{
    const struct esp_jv *child = array == NULL ? NULL : array->child;
    while (child != NULL && index > 0) {
        child = child->next;
        index--;
    }
    return child;
}

static struct esp_item deny(struct esp_item item)
{
    static const uint64_t opposite[] = {[ESP_ITEM_SCHEMA] = ESP_ITEM_NOT,
                                        [ESP_ITEM_NOT] = ESP_ITEM_SCHEMA,
                                        [ESP_ITEM_CONST] = ESP_ITEM_UNEQUAL,
                                        [ESP_ITEM_UNEQUAL] = ESP_ITEM_CONST};
    return (struct esp_item){item.v, opposite[item.kind]};
}

/* ---- What is counted ---------------------------------------------------------------------------- */

static esp_status add_counter(struct array *a, const struct esp_counter *counter)
{
    if ((counter->min == 0 && counter->max == ESP_EXPR_INF) || counter->max == 0) {
        return ESP_OK; /* says nothing, or is said of every item */
    }
    if (a->n_counters == COUNTERS_MAX) {
        return esp_schema_fail(a->c->s, ESP_ELIMIT, counter->at, "is combined with too many other counts of items");
    }
    a->counters[a->n_counters++] = *counter;
    return ESP_OK;
}

/* Does the leaf count items by contains? */
static bool leaf_contains(const struct esp_leaf *leaf, struct esp_counter *ret)
{
    if (leaf->contains != NULL) {
        *ret = (struct esp_counter){
            {leaf->contains, ESP_ITEM_SCHEMA}, 0, leaf->contains_min, leaf->contains_max, leaf->contains};
    }
    return leaf->contains != NULL;
}

static esp_status gather_counters(struct array *a)
{
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < a->c->n && status == ESP_OK; idx++) {
        struct esp_counter counter;
        if (leaf_contains(a->c->leaves[idx], &counter)) {
            status = add_counter(a, &counter);
        }
        if (a->c->leaves[idx]->counter != NULL && status == ESP_OK) {
            status = add_counter(a, a->c->leaves[idx]->counter);
        }
    }
    return status;
}

/* ---- Nodes of items ----------------------------------------------------------------------------- */

static void leaf_items(const struct esp_leaf *leaf, uint32_t index, struct esp_item *items, uint32_t *n)
{
    struct esp_counter counter;
    const struct esp_jv *v = member(leaf->prefix, index);
    v = v != NULL ? v : leaf->items;
    if (v != NULL) {
        items[(*n)++] = (struct esp_item){v, ESP_ITEM_SCHEMA};
    }
    if (leaf->part != NULL && leaf->part->name == NULL && leaf->part->index == index) {
        items[(*n)++] = leaf->part->item;
    }
    if (leaf_contains(leaf, &counter) && counter.max == 0) {
        items[(*n)++] = deny(counter.item);
    }
    if (leaf->counter != NULL && leaf->counter->max == 0 && leaf->counter->from <= index) {
        items[(*n)++] = deny(leaf->counter->item);
    }
}

/* What item `index` (past every prefix the index does not matter) must satisfy when these counters count it. */
static uint32_t item_items(const struct array *a, uint32_t index, uint32_t counted, struct esp_item *items)
{
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < a->c->n; idx++) {
        leaf_items(a->c->leaves[idx], index, items, &n);
    }
    for (uint32_t idx = 0; idx < a->n_counters; idx++) {
        const struct esp_counter *counter = &a->counters[idx];
        if (counted >> idx & 1) {
            items[n++] = counter->item;
        } else if (counter->max != ESP_EXPR_INF && counter->from <= index) {
            items[n++] = deny(counter->item);
        }
    }
    for (uint32_t idx = 0; idx < a->c->n_unevaluated; idx++) {
        const struct esp_unevaluated *u = &a->c->unevaluated[idx];
        if (u->leaf->rest_items != NULL && !u->all_items && index >= u->n_items) {
            items[n++] = (struct esp_item){u->item, ESP_ITEM_SCHEMA};
        }
    }
    const struct esp_jv *value = member(a->c->value, index);
    if (value != NULL) {
        items[n++] = (struct esp_item){value, ESP_ITEM_CONST};
    }
    return n;
}

static esp_status item_node(struct array *a, uint32_t index, uint32_t counted, uint32_t *ret_node)
{
    struct esp_item items[ITEMS_MAX];
    uint32_t n = item_items(a, index, counted, items);
    return esp_schema_node(a->c->s, items, n, ret_node);
}

/* Items from the first on that the leaf tells apart. */
static uint32_t leaf_prefix(const struct esp_leaf *leaf)
{
    uint32_t n = leaf->prefix != NULL ? leaf->prefix->n : 0;
    if (leaf->part != NULL && leaf->part->name == NULL && leaf->part->index >= n) {
        n = leaf->part->index + 1;
    }
    return leaf->counter != NULL && leaf->counter->from > n ? leaf->counter->from : n;
}

/* How long the array may be, and how many items have a schema of their own. False when no length is left. */
static bool array_length(struct array *a)
{
    struct esp_conj *c = a->c;
    uint32_t n_prefix = 0;
    a->max = ESP_EXPR_INF;
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_leaf *leaf = c->leaves[idx];
        if (leaf->min_items > a->min) {
            a->min = leaf->min_items;
            a->min_at = leaf->self;
        }
        if (leaf->contains != NULL && leaf->contains_min > leaf->contains_max) {
            esp_schema_why(c->s, leaf->contains, "has minContains above maxContains");
            return false;
        }
        uint32_t own = leaf_prefix(leaf);
        a->max = leaf->max_items < a->max ? leaf->max_items : a->max;
        n_prefix = own > n_prefix ? own : n_prefix;
    }
    if (c->value != NULL) {
        if (c->value->n < a->min || c->value->n > a->max) {
            esp_schema_why(c->s, c->value, "has a length that the schema beside it does not allow");
            return false;
        }
        a->min = a->max = n_prefix = c->value->n;
    }
    if (a->min > a->max) {
        esp_schema_why(c->s, a->min_at, "has minItems above maxItems");
        return false;
    }
    a->n_prefix = n_prefix < a->max ? n_prefix : a->max;
    return true;
}

/* ---- The graph of counts ------------------------------------------------------------------------ */

static esp_status add_state(struct array *a, const uint32_t *place, uint32_t *ret_state)
{
    struct esp_counts *g = a->counts;
    size_t n_bytes = (1 + a->n_counters) * sizeof *place;
    *ret_state = esp_bytesmap_get(&a->map, place, n_bytes);
    if (*ret_state != ESP_MAP_NONE) {
        return ESP_OK;
    }
    if (g->n_states == STATES_MAX) {
        return esp_schema_fail(a->c->s, ESP_ELIMIT, a->counters[0].at, "counts too many items");
    }
    char *key = esp_arena_strndup(&a->c->s->arena, (const char *)place, n_bytes);
    if (key == NULL || !esp_vec_grow(&g->states, &g->states_cap, (uint64_t)g->n_states + 1) ||
        !esp_vec_grow(&a->places, &a->places_cap, (uint64_t)g->n_states + 1) ||
        esp_bytesmap_put(&a->map, key, n_bytes, g->n_states) != ESP_OK) {
        return esp_schema_memory(a->c->s);
    }
    bool close = place[0] >= a->min;
    for (uint32_t idx = 0; idx < a->n_counters; idx++) {
        close = close && place[1 + idx] >= a->counters[idx].min;
    }
    g->states[g->n_states] = (struct esp_count_state){.close = close};
    memcpy(a->places[g->n_states], place, n_bytes);
    *ret_state = g->n_states++;
    return ESP_OK;
}

/* The place after one more item that these counters count. False when there is no such item. */
static bool next_place(const struct array *a, const uint32_t *place, uint32_t counted, uint32_t *ret)
{
    if (place[0] >= a->max) {
        return false;
    }
    ret[0] = place[0] < a->n_top ? place[0] + 1 : place[0];
    for (uint32_t idx = 0; idx < a->n_counters; idx++) {
        const struct esp_counter *counter = &a->counters[idx];
        uint32_t count = place[1 + idx], top = counter->max == ESP_EXPR_INF ? counter->min : counter->max;
        ret[1 + idx] = count;
        if ((counted >> idx & 1) == 0) {
            continue;
        }
        if (counter->from > place[0] || count == top) {
            return false; /* not counted here, too many, or enough */
        }
        ret[1 + idx] = count + 1;
    }
    return true;
}

static esp_status add_edge(struct array *a, const uint32_t *place, uint32_t counted)
{
    struct esp_counts *g = a->counts;
    uint32_t next[1 + COUNTERS_MAX], to;
    if (!next_place(a, place, counted, next)) {
        return ESP_OK;
    }
    uint32_t index = place[0] < a->n_prefix ? place[0] : a->n_prefix;
    uint32_t *node = &a->nodes[(index << a->n_counters) + counted];
    esp_status status = *node == ESP_NODE_NONE ? item_node(a, index, counted, node) : ESP_OK;
    if (status != ESP_OK || esp_schema_false(a->c->s, *node)) {
        return status;
    }
    status = add_state(a, next, &to);
    if (status != ESP_OK) {
        return status;
    }
    if (g->n_edges == EDGES_MAX) {
        return esp_schema_fail(a->c->s, ESP_ELIMIT, a->counters[0].at, "counts too many items");
    }
    if (!esp_vec_grow(&g->edges, &g->edges_cap, (uint64_t)g->n_edges + 1)) {
        return esp_schema_memory(a->c->s);
    }
    g->edges[g->n_edges++] = (struct esp_count_edge){*node, to};
    return ESP_OK;
}

static esp_status explore(struct array *a)
{
    struct esp_counts *g = a->counts;
    uint32_t place[1 + COUNTERS_MAX] = {0}, state;
    esp_status status = add_state(a, place, &state);
    for (uint32_t at = 0; at < g->n_states && status == ESP_OK; at++) {
        memcpy(place, a->places[at], sizeof place);
        g->states[at].first = g->n_edges;
        for (uint32_t counted = 0; counted >> a->n_counters == 0 && status == ESP_OK; counted++) {
            status = add_edge(a, place, counted);
        }
        g->states[at].n = g->n_edges - g->states[at].first;
    }
    return status;
}

/* Into the arena, so that nothing is left to free with the atom. */
static bool keep(struct esp_schema *s, struct esp_counts *g)
{
    struct esp_count_state *states = esp_arena_alloc(&s->arena, (size_t)g->n_states + 1, sizeof *states);
    struct esp_count_edge *edges = esp_arena_alloc(&s->arena, (size_t)g->n_edges + 1, sizeof *edges);
    bool ok = states != NULL && edges != NULL;
    if (ok && g->n_states > 0) {
        memcpy(states, g->states, g->n_states * sizeof *states);
    }
    if (ok && g->n_edges > 0) {
        memcpy(edges, g->edges, g->n_edges * sizeof *edges);
    }
    esp_free(g->states);
    esp_free(g->edges);
    g->states = states;
    g->edges = edges;
    return ok;
}

static esp_status add_counted(struct array *a)
{
    struct esp_schema *s = a->c->s;
    size_t n_nodes = ((size_t)a->n_prefix + 1) << a->n_counters;
    a->counts = esp_arena_alloc(&s->arena, 1, sizeof *a->counts);
    a->nodes = esp_arena_alloc(&s->arena, n_nodes, sizeof *a->nodes);
    if (a->counts == NULL || a->nodes == NULL) {
        return esp_schema_memory(s);
    }
    for (size_t idx = 0; idx < n_nodes; idx++) {
        a->nodes[idx] = ESP_NODE_NONE;
    }
    a->n_top = a->max != ESP_EXPR_INF ? a->max : a->min > a->n_prefix ? a->min : a->n_prefix;
    esp_bytesmap_init(&a->map, ESP_TAG_GRAMMAR);
    esp_status status = explore(a);
    esp_bytesmap_finish(&a->map);
    esp_free(a->places);
    if (!keep(s, a->counts) && status == ESP_OK) {
        status = esp_schema_memory(s);
    }
    struct esp_atom *atom = status == ESP_OK ? esp_schema_atom(s, ESP_ATOM_ARRAY) : NULL;
    if (atom == NULL) {
        return status == ESP_OK ? esp_schema_memory(s) : status;
    }
    *atom = (struct esp_atom){.kind = ESP_ATOM_ARRAY, .counts = a->counts};
    esp_schema_why(s, a->counters[0].at, "counts items that the array cannot have");
    return ESP_OK;
}

bool esp_schema_counts_live(const struct esp_schema *s, struct esp_counts *g)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t at = g->n_states; at-- > 0;) {
            struct esp_count_state *state = &g->states[at];
            bool live = state->live || state->close;
            for (uint32_t edge = state->first; edge < state->first + state->n && !live; edge++) {
                live = g->states[g->edges[edge].to].live && s->nodes[g->edges[edge].node].productive;
            }
            changed = changed || live != state->live;
            state->live = live;
        }
    }
    return g->states[0].live;
}

/* ---- The atom ----------------------------------------------------------------------------------- */

static esp_status add_plain(struct array *a)
{
    struct esp_schema *s = a->c->s;
    struct esp_atom *atom = esp_schema_atom(s, ESP_ATOM_ARRAY);
    uint32_t *prefix = esp_arena_alloc(&s->arena, (size_t)a->n_prefix + 1, sizeof *prefix);
    if (atom == NULL || prefix == NULL) {
        return esp_schema_memory(s);
    }
    *atom = (struct esp_atom){.kind = ESP_ATOM_ARRAY, .prefix = prefix, .n_prefix = a->n_prefix};
    atom->min = a->min;
    atom->max = a->max;
    esp_status status = ESP_OK;
    for (uint32_t idx = 0; idx < a->n_prefix && status == ESP_OK; idx++) {
        status = item_node(a, idx, 0, &prefix[idx]);
    }
    atom->rest = ESP_NODE_NONE;
    if (status == ESP_OK && a->max > a->n_prefix) {
        status = item_node(a, a->n_prefix, 0, &atom->rest);
    }
    return status;
}

/* Are two items of the value equal? */
static bool repeats(const struct esp_jv *value)
{
    for (const struct esp_jv *v = value->child; v != NULL; v = v->next) {
        for (const struct esp_jv *w = v->next; w != NULL; w = w->next) {
            if (esp_jv_equal(v, w)) {
                return true;
            }
        }
    }
    return false;
}

static esp_status add_unique(struct array *a, const struct esp_jv *at)
{
    struct esp_item items[ITEMS_MAX];
    struct esp_length length = {a->min, a->max, a->min_at};
    bool plain = a->n_counters == 0 && a->n_prefix == 0;
    uint32_t n = plain ? item_items(a, 0, 0, items) : 0;
    return esp_schema_unique(a->c, at, &length, items, n);
}

esp_status esp_schema_array(struct esp_conj *c)
{
    struct array a = {.c = c};
    const struct esp_jv *unique = NULL;
    if (!array_length(&a)) {
        return ESP_OK;
    }
    esp_status status = gather_counters(&a);
    for (uint32_t idx = 0; idx < c->n; idx++) {
        unique = c->leaves[idx]->unique != NULL ? c->leaves[idx]->unique : unique;
    }
    if (status != ESP_OK) {
        return status;
    }
    if (unique != NULL && c->value != NULL && repeats(c->value)) {
        esp_schema_why(c->s, unique, "does not hold for the value beside it");
        return ESP_OK;
    }
    if (unique != NULL && c->value == NULL && a.max > 1) {
        return add_unique(&a, unique);
    }
    return a.n_counters > 0 ? add_counted(&a) : add_plain(&a);
}
