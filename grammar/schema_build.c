/* From nodes to expressions, and the whole compile of a schema.
 *
 * First every reachable node is expanded, then nodes that have no value at all are found: a node is
 * productive when one of its atoms is, an array atom when its first `min` items are, an object atom when its
 * required keys are. Calls of other nodes become EMPTY and vanish in the constructors.
 *
 *   { members }    objects.c knows which keys may follow which
 *
 * Thread: the owner's.
 */
#include <string.h>

#include "grammar/objects.h"
#include "grammar/schema_read.h"
#include "grammar/vec.h"

/* ---- Productive nodes -------------------------------------------------------------------------- */

/* Can there be members with keys that are not declared? */
static bool others(const struct esp_schema *s, const struct esp_atom *atom)
{
    bool any = atom->additional != ESP_NODE_NONE && s->nodes[atom->additional].productive;
    for (uint32_t idx = 0; idx < atom->n_cells; idx++) {
        any = any || s->nodes[atom->cells[idx].node].productive;
    }
    return any;
}

static bool unique_productive(const struct esp_schema *s, const struct esp_atom *atom)
{
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < atom->n_unique; idx++) {
        n += s->nodes[atom->unique[idx]].productive;
    }
    return n >= atom->min;
}

static bool array_productive(const struct esp_schema *s, const struct esp_atom *atom)
{
    if (atom->counts != NULL) {
        return esp_schema_counts_live(s, atom->counts);
    }
    if (atom->unique != NULL) {
        return unique_productive(s, atom);
    }
    for (uint32_t idx = 0; idx < atom->min && idx < atom->n_prefix; idx++) {
        if (!s->nodes[atom->prefix[idx]].productive) {
            return false;
        }
    }
    return atom->min <= atom->n_prefix || s->nodes[atom->rest].productive;
}

static bool object_productive(const struct esp_schema *s, const struct esp_atom *atom)
{
    uint32_t n_needed = atom->n_lasts, n_possible = atom->n_lasts;
    for (uint32_t idx = 0; idx < atom->n_lasts; idx++) {
        if (!s->nodes[atom->lasts[idx].node].productive) {
            return false;
        }
    }
    for (uint32_t idx = 0; idx < atom->n_props; idx++) {
        bool productive = s->nodes[atom->props[idx].node].productive;
        if (atom->props[idx].required && !productive) {
            return false;
        }
        n_needed += atom->props[idx].required;
        n_possible += productive;
    }
    return n_needed <= atom->max && (n_possible >= atom->min || others(s, atom));
}

static bool atom_productive(const struct esp_schema *s, const struct esp_atom *atom)
{
    switch (atom->kind) {
    case ESP_ATOM_EXPR: return atom->expr != ESP_EXPR_EMPTY;
    case ESP_ATOM_ARRAY: return array_productive(s, atom);
    default: return object_productive(s, atom);
    }
}

/* Two members with keys that are not declared may be equal (nothing remembers them), so that a number of members
 * that hangs on several of them cannot be promised. */
static esp_status check_counts(struct esp_schema *s, const struct esp_node *node)
{
    for (const struct esp_atom *atom = node->atoms; atom != NULL; atom = atom->next) {
        uint32_t n_needed = 0;
        if (atom->kind != ESP_ATOM_OBJECT || atom->min < 2 || !others(s, atom)) {
            continue;
        }
        for (uint32_t idx = 0; idx < atom->n_props; idx++) {
            n_needed += atom->props[idx].required;
        }
        if (atom->min > n_needed + (atom->n_lasts > 1 ? atom->n_lasts : 1)) {
            esp_status status = esp_schema_fail(s, ESP_EUNSUPPORTED, atom->min_at,
                                                "needs more than one key that is not declared, and those may be equal");
            esp_err_hint(s->err, "declare the keys, or set additionalProperties to false");
            return status;
        }
    }
    return ESP_OK;
}

/* Passes until nothing changes; chains of nodes mostly point forward, so the passes go backward. */
static esp_status find_productive(struct esp_schema *s)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t id = s->n_nodes; id-- > 0;) {
            struct esp_node *node = &s->nodes[id];
            for (const struct esp_atom *atom = node->atoms; atom != NULL && !node->productive; atom = atom->next) {
                node->productive = atom_productive(s, atom);
                changed = changed || node->productive;
            }
        }
        if (s->x->fuel < s->n_nodes) {
            return esp_schema_fail(s, ESP_ELIMIT, s->root, "needs more steps than a compile may take");
        }
        s->x->fuel -= s->n_nodes;
    }
    return ESP_OK;
}

/* ---- Expressions ------------------------------------------------------------------------------- */

struct punctuation {
    uint32_t open_array, close_array, open_object, close_object, comma, colon;
};

static uint32_t space(struct esp_exprs *x, enum esp_grammar_whitespace ws, bool line_break)
{
    uint32_t one = esp_expr_byte(x, ' ');
    if (ws == ESP_WS_COMPACT || (ws == ESP_WS_LINE && line_break)) {
        return ESP_EXPR_EPS;
    }
    if (!line_break) {
        return esp_expr_opt(x, one);
    }
    uint32_t indent = esp_expr_alt2(x, esp_expr_rep(x, one, 0, 64), esp_expr_rep(x, esp_expr_byte(x, '\t'), 0, 16));
    return esp_expr_opt(x, esp_expr_cat(x, esp_expr_byte(x, '\n'), indent));
}

static struct punctuation make_punctuation(struct esp_exprs *x, enum esp_grammar_whitespace ws)
{
    struct punctuation p;
    uint32_t around = space(x, ws, true);
    uint32_t after_comma =
        ws == ESP_WS_COMPACT ? ESP_EXPR_EPS : esp_expr_alt2(x, esp_expr_opt(x, esp_expr_byte(x, ' ')), around);
    p.open_array = esp_expr_cat(x, esp_expr_byte(x, '['), around);
    p.close_array = esp_expr_cat(x, around, esp_expr_byte(x, ']'));
    p.open_object = esp_expr_cat(x, esp_expr_byte(x, '{'), around);
    p.close_object = esp_expr_cat(x, around, esp_expr_byte(x, '}'));
    p.comma = esp_expr_cat(x, esp_expr_byte(x, ','), after_comma);
    p.colon = esp_expr_cat(x, esp_expr_byte(x, ':'), space(x, ws, false));
    return p;
}

static uint32_t call(struct esp_schema *s, uint32_t node)
{
    return node != ESP_NODE_NONE && s->nodes[node].productive ? esp_expr_call(s->x, node) : ESP_EXPR_EMPTY;
}

/* What may come in a state: one of its items, and then what the state after it says. */
static uint32_t counted_item(struct esp_schema *s, const struct esp_counts *g, uint32_t state)
{
    struct esp_exprs *x = s->x;
    uint32_t mark = x->n_scratch;
    for (uint32_t idx = g->states[state].first; idx < g->states[state].first + g->states[state].n; idx++) {
        const struct esp_count_edge *edge = &g->edges[idx];
        uint32_t item = g->states[edge->to].live ? call(s, edge->node) : ESP_EXPR_EMPTY;
        esp_exprs_push(x, item == ESP_EXPR_EMPTY ? ESP_EXPR_EMPTY
                                                 : esp_expr_cat(x, item, esp_expr_call(x, g->rule + edge->to)));
    }
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

/* A rule for every state: the array ends, or a comma and an item follow. */
static uint32_t build_counts(struct esp_schema *s, const struct punctuation *p, struct esp_counts *g)
{
    struct esp_exprs *x = s->x;
    g->rule = s->n_nodes + s->n_rules;
    s->n_rules += g->n_states;
    if (!esp_vec_grow(&s->rules, &s->rules_cap, s->n_rules)) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    uint32_t first = ESP_EXPR_EMPTY;
    for (uint32_t state = 0; state < g->n_states && x->failed == ESP_OK; state++) {
        uint32_t close = g->states[state].close ? p->close_array : ESP_EXPR_EMPTY;
        uint32_t item = counted_item(s, g, state);
        s->rules[g->rule - s->n_nodes + state] = esp_expr_alt2(x, close, esp_expr_cat(x, p->comma, item));
        first = state == 0 ? esp_expr_alt2(x, close, item) : first;
    }
    return esp_expr_cat(x, p->open_array, first);
}

/* Distinct items: scalars as they are, other values as calls. */
static uint32_t build_unique(struct esp_schema *s, const struct punctuation *p, const struct esp_atom *atom)
{
    struct esp_exprs *x = s->x;
    uint32_t *values = esp_arena_alloc(&s->arena, (size_t)atom->n_unique + 1, sizeof *values), n = 0;
    if (values == NULL) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    for (uint32_t idx = 0; idx < atom->n_unique; idx++) {
        const struct esp_node *node = &s->nodes[atom->unique[idx]];
        bool scalar = node->atoms != NULL && node->atoms->next == NULL && node->atoms->kind == ESP_ATOM_EXPR;
        if (node->productive) {
            values[n++] = scalar ? node->atoms->expr : call(s, atom->unique[idx]);
        }
    }
    struct esp_unique unique = {values, n, atom->min, atom->max, p->comma, p->close_array};
    return esp_expr_cat(x, p->open_array, esp_unique_add(x, &unique));
}

static uint32_t build_array(struct esp_schema *s, const struct punctuation *p, const struct esp_atom *atom)
{
    struct esp_exprs *x = s->x;
    if (atom->counts != NULL) {
        return build_counts(s, p, atom->counts);
    }
    if (atom->unique != NULL) {
        return build_unique(s, p, atom);
    }
    uint32_t min = atom->min, n = atom->n_prefix, rest_call = call(s, atom->rest), id;
    uint32_t more = esp_expr_cat(x, p->comma, rest_call), min_more = min > n ? min - n : 0;
    uint32_t max_more = rest_call == ESP_EXPR_EMPTY ? 0 : atom->max == ESP_EXPR_INF ? atom->max : atom->max - n;
    if (n == 0) {
        id = ESP_EXPR_EMPTY;
        if (max_more > 0) {
            uint32_t others = esp_expr_rep(x, more, min_more > 0 ? min_more - 1 : 0,
                                           max_more == ESP_EXPR_INF ? max_more : max_more - 1);
            id = esp_expr_cat(x, rest_call, esp_expr_cat(x, others, p->close_array));
        }
    } else {
        id = esp_expr_cat(x, esp_expr_rep(x, more, min_more, max_more), p->close_array);
        for (uint32_t idx = n; idx-- > 0;) {
            id = esp_expr_cat(x, call(s, atom->prefix[idx]), id);
            if (idx > 0) {
                id = esp_expr_cat(x, p->comma, id);
                id = min <= idx ? esp_expr_alt2(x, p->close_array, id) : id;
            }
        }
    }
    return esp_expr_cat(x, p->open_array, min == 0 ? esp_expr_alt2(x, p->close_array, id) : id);
}

/* A key of one of the cells, colon and value. */
static uint32_t cell_member(struct esp_schema *s, const struct punctuation *p, const struct esp_cell *cells, uint32_t n)
{
    struct esp_exprs *x = s->x;
    uint32_t id = ESP_EXPR_EMPTY, quote = esp_expr_byte(x, '"');
    for (uint32_t idx = 0; idx < n; idx++) {
        uint32_t after = esp_expr_cat(x, p->colon, call(s, cells[idx].node));
        uint32_t key = esp_expr_cat(x, cells[idx].key, esp_expr_cat(x, quote, after));
        id = esp_expr_alt2(x, id, key);
    }
    return esp_expr_cat(x, quote, id);
}

static uint32_t last_members(struct esp_schema *s, const struct punctuation *p, const struct esp_atom *atom)
{
    uint32_t id = ESP_EXPR_EMPTY;
    for (uint32_t idx = atom->n_lasts; idx-- > 0;) {
        uint32_t member = cell_member(s, p, &atom->lasts[idx], 1);
        id = idx + 1 == atom->n_lasts ? member : esp_expr_cat(s->x, member, esp_expr_cat(s->x, p->comma, id));
    }
    return id;
}

static uint32_t build_object(struct esp_schema *s, const struct punctuation *p, const struct esp_atom *atom)
{
    struct esp_exprs *x = s->x;
    struct esp_key *keys = esp_arena_alloc(&s->arena, (size_t)atom->n_props + 1, sizeof *keys);
    if (keys == NULL) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    for (uint32_t idx = 0; idx < atom->n_props; idx++) {
        const struct esp_prop *prop = &atom->props[idx];
        uint32_t after = esp_expr_cat(x, p->colon, call(s, prop->node));
        keys[idx] = (struct esp_key){prop->name, prop->n_bytes, prop->required, after};
    }
    struct esp_members members = {
        .keys = keys,
        .n_keys = atom->n_props,
        .min = atom->min,
        .max = atom->max,
        .comma = p->comma,
        .close = p->close_object,
        .other_after = atom->n_cells > 0 ? ESP_EXPR_EMPTY : esp_expr_cat(x, p->colon, call(s, atom->additional)),
        .other = cell_member(s, p, atom->cells, atom->n_cells),
        .last = last_members(s, p, atom),
        .n_last = atom->n_lasts,
        .spelling = s->spelling};
    return esp_expr_cat(x, p->open_object, esp_objects_add(x, &members));
}

static uint32_t build_node(struct esp_schema *s, const struct punctuation *p, const struct esp_node *node)
{
    struct esp_exprs *x = s->x;
    uint32_t mark = x->n_scratch;
    for (const struct esp_atom *atom = node->atoms; atom != NULL && x->failed == ESP_OK; atom = atom->next) {
        if (atom_productive(s, atom)) {
            uint32_t id = atom->kind == ESP_ATOM_EXPR    ? atom->expr
                          : atom->kind == ESP_ATOM_ARRAY ? build_array(s, p, atom)
                                                         : build_object(s, p, atom);
            esp_exprs_push(x, id);
        }
    }
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

/* ---- Verdicts ---------------------------------------------------------------------------------- */

/* A part that an atom cannot do without and that has no value. */
static uint32_t missing_part(const struct esp_schema *s, const struct esp_atom *atom)
{
    if (atom->kind == ESP_ATOM_ARRAY && (atom->counts != NULL || atom->unique != NULL)) {
        return ESP_NODE_NONE;
    }
    if (atom->kind == ESP_ATOM_ARRAY) {
        for (uint32_t idx = 0; idx < atom->n_prefix && idx < atom->min; idx++) {
            if (!s->nodes[atom->prefix[idx]].productive) {
                return atom->prefix[idx];
            }
        }
        return atom->min > atom->n_prefix ? atom->rest : ESP_NODE_NONE;
    }
    for (uint32_t idx = 0; atom->kind == ESP_ATOM_OBJECT && idx < atom->n_props; idx++) {
        if (atom->props[idx].required && !s->nodes[atom->props[idx].node].productive) {
            return atom->props[idx].node;
        }
    }
    return ESP_NODE_NONE;
}

/* Follows the reasons down to the part that has no value. */
static esp_status unsatisfiable(struct esp_schema *s)
{
    uint32_t id = 0;
    for (uint32_t steps = 0; steps < s->n_nodes; steps++) {
        uint32_t below = ESP_NODE_NONE;
        for (const struct esp_atom *a = s->nodes[id].atoms; a != NULL && below == ESP_NODE_NONE; a = a->next) {
            below = missing_part(s, a);
        }
        if (below == ESP_NODE_NONE || below == id) {
            break;
        }
        id = below;
    }
    const struct esp_node *node = &s->nodes[id];
    if (node->why != NULL) {
        return esp_schema_fail(s, ESP_EUNSAT, node->why_at, "%s: no value is valid", node->why);
    }
    return esp_schema_fail(s, ESP_EUNSAT, node->n_items > 0 ? node->items[0].v : s->root, "allows no finite value");
}

/* Marks what can be reached from the root through parts that have values; nothing else is built. */
static void reach(struct esp_schema *s, uint32_t node, uint32_t *list, uint32_t *n)
{
    if (node != ESP_NODE_NONE && s->nodes[node].productive && !s->nodes[node].reached) {
        s->nodes[node].reached = true;
        list[(*n)++] = node;
    }
}

static void reach_atom(struct esp_schema *s, const struct esp_atom *atom, uint32_t *list, uint32_t *n)
{
    for (uint32_t idx = 0; idx < atom->n_prefix; idx++) {
        reach(s, atom->prefix[idx], list, n);
    }
    if (atom->kind == ESP_ATOM_ARRAY && atom->counts != NULL) {
        for (uint32_t idx = 0; idx < atom->counts->n_edges; idx++) {
            reach(s, atom->counts->edges[idx].node, list, n);
        }
    } else if (atom->kind == ESP_ATOM_ARRAY) {
        for (uint32_t idx = 0; idx < atom->n_unique; idx++) {
            reach(s, atom->unique[idx], list, n);
        }
        reach(s, atom->rest, list, n);
    } else if (atom->kind == ESP_ATOM_OBJECT) {
        reach(s, atom->additional, list, n);
    }
    for (uint32_t idx = 0; idx < atom->n_props; idx++) {
        reach(s, atom->props[idx].node, list, n);
    }
    for (uint32_t idx = 0; idx < atom->n_cells; idx++) {
        reach(s, atom->cells[idx].node, list, n);
    }
    for (uint32_t idx = 0; idx < atom->n_lasts; idx++) {
        reach(s, atom->lasts[idx].node, list, n);
    }
}

static esp_status reach_all(struct esp_schema *s)
{
    uint32_t *list = esp_arena_alloc(&s->arena, (size_t)s->n_nodes + 1, sizeof *list), n = 0;
    if (list == NULL) {
        return esp_schema_memory(s);
    }
    reach(s, 0, list, &n);
    for (uint32_t at = 0; at < n; at++) {
        for (const struct esp_atom *atom = s->nodes[list[at]].atoms; atom != NULL; atom = atom->next) {
            if (atom_productive(s, atom)) {
                reach_atom(s, atom, list, &n);
            }
        }
    }
    return ESP_OK;
}

static esp_status expand_all(struct esp_schema *s)
{
    struct esp_item item = {s->root, ESP_ITEM_SCHEMA};
    uint32_t node;
    esp_status status = esp_schema_node(s, &item, 1, &node);
    for (; s->n_expanded < s->n_nodes && status == ESP_OK; s->n_expanded++) {
        status = esp_schema_expand(s, s->n_expanded);
    }
    return status == ESP_OK ? find_productive(s) : status;
}

/* The second pass, when branches of a oneOf turned out to overlap: from the beginning, with denials. */
static esp_status expand_again(struct esp_schema *s)
{
    bool any = false;
    for (uint32_t idx = 0; idx < s->n_overlaps; idx++) {
        s->overlaps[idx].both = s->nodes[s->overlaps[idx].node].productive;
        any = any || s->overlaps[idx].both;
    }
    if (!any) {
        return ESP_OK;
    }
    s->exact = true;
    s->n_nodes = s->n_expanded = 0;
    esp_bytesmap_finish(&s->node_map);
    esp_bytesmap_init(&s->node_map, ESP_TAG_GRAMMAR);
    esp_bytesmap_finish(&s->contents_map);
    esp_bytesmap_init(&s->contents_map, ESP_TAG_GRAMMAR);
    return expand_all(s);
}

/* What can only be said once all nodes are known. */
static esp_status check_nodes(struct esp_schema *s)
{
    if (!s->nodes[0].productive) {
        return unsatisfiable(s);
    }
    esp_status status = reach_all(s);
    for (uint32_t id = 0; id < s->n_nodes && status == ESP_OK; id++) {
        status = s->nodes[id].reached ? check_counts(s, &s->nodes[id]) : ESP_OK;
    }
    return status;
}

static esp_status build_all(struct esp_schema *s, uint32_t **ret_starts, uint32_t *ret_n_starts)
{
    uint32_t *starts = esp_calloc(ESP_TAG_GRAMMAR, s->n_nodes, sizeof *starts), cap = s->n_nodes;
    if (starts == NULL) {
        return esp_schema_memory(s);
    }
    struct punctuation p = make_punctuation(s->x, s->options.whitespace);
    for (uint32_t id = 0; id < s->n_nodes && s->x->failed == ESP_OK; id++) {
        starts[id] = s->nodes[id].reached ? build_node(s, &p, &s->nodes[id]) : ESP_EXPR_EMPTY;
    }
    if (s->x->failed == ESP_OK && !esp_vec_grow(&starts, &cap, (uint64_t)s->n_nodes + s->n_rules)) {
        esp_exprs_fail(s->x, ESP_ENOMEM);
    }
    if (s->x->failed != ESP_OK) {
        esp_free(starts);
        return esp_schema_fail(s, s->x->failed, s->root,
                               s->x->failed == ESP_ELIMIT ? "is too large or too complex" : "needs too much memory");
    }
    if (s->n_rules > 0) {
        memcpy(starts + s->n_nodes, s->rules, s->n_rules * sizeof *starts);
    }
    *ret_starts = starts;
    *ret_n_starts = s->n_nodes + s->n_rules;
    return ESP_OK;
}

esp_status esp_schema_compile(struct esp_exprs *x, struct esp_lens *lens, const struct esp_grammar_options *options,
                              const char *text, size_t n_bytes, struct esp_buf *warnings, uint32_t **ret_starts,
                              uint32_t *ret_n_starts, struct esp_err *err)
{
    struct esp_schema s = {.x = x, .lens = lens, .err = err, .options = *options, .warnings = warnings};
    struct esp_jv *root;
    s.spelling = options->escapes_any ? ESP_SPELL_JSON_ANY : ESP_SPELL_JSON;
    esp_arena_init(&s.arena, ESP_TAG_GRAMMAR, 512u * 1024 * 1024);
    esp_bytesmap_init(&s.node_map, ESP_TAG_GRAMMAR);
    esp_bytesmap_init(&s.overlap_map, ESP_TAG_GRAMMAR);
    esp_bytesmap_init(&s.contents_map, ESP_TAG_GRAMMAR);
    esp_bytesmap_init(&s.either_map, ESP_TAG_GRAMMAR);
    esp_map_init(&s.explored, ESP_TAG_GRAMMAR);
    esp_status status = esp_jv_parse(&s.arena, text, n_bytes, &root, err);
    if (status == ESP_OK) {
        s.root = root;
        if (root->type != ESP_JV_OBJECT && root->type != ESP_JV_TRUE && root->type != ESP_JV_FALSE) {
            status =
                esp_schema_fail(&s, ESP_EINVAL, root, "must be an object or a boolean, is %s", esp_jv_type_name(root));
        }
    }
    if (status == ESP_OK) {
        status = esp_schema_draft(&s);
    }
    if (status == ESP_OK) {
        status = esp_schema_weaken(&s);
    }
    if (status == ESP_OK) {
        status = expand_all(&s);
    }
    if (status == ESP_OK) {
        status = expand_again(&s);
    }
    if (status == ESP_OK) {
        status = check_nodes(&s);
    }
    if (status == ESP_OK) {
        status = build_all(&s, ret_starts, ret_n_starts);
    }
    if (s.options.explain != NULL) {
        esp_buf_clear(s.options.explain); /* of an earlier try */
        esp_schema_explain(&s, s.options.explain);
    }
    esp_free(s.nodes);
    esp_free(s.overlaps);
    esp_free(s.rules);
    esp_free(s.eithers);
    esp_bytesmap_finish(&s.node_map);
    esp_schema_refs_finish(&s);
    esp_bytesmap_finish(&s.overlap_map);
    esp_bytesmap_finish(&s.contents_map);
    esp_bytesmap_finish(&s.either_map);
    esp_map_finish(&s.explored);
    esp_arena_finish(&s.arena);
    return status;
}
