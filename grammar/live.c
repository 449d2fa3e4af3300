/* Exploring all states of an expression, to know which are empty and which lengths they have. See live.h. */
#include "grammar/live.h"

#include <string.h>

#include "grammar/vec.h"

struct entry {
    uint32_t group, state;
};
struct group {
    uint32_t n_states, n_cols; /* bits[col * stride + state] */
    bool settled;
    uint32_t stride; /* words */
    uint64_t *bits;
};
struct esp_lens {
    struct esp_map map; /* r << 4 | phase → entry */
    struct entry *entries;
    uint32_t n_entries, entries_cap;
    struct group *groups;
    uint32_t n_groups, groups_cap;
    size_t bytes;
};

struct esp_lens *esp_lens_create(void)
{
    struct esp_lens *lens = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *lens);
    if (lens != NULL) {
        esp_map_init(&lens->map, ESP_TAG_GRAMMAR);
    }
    return lens;
}

void esp_lens_destroy(struct esp_lens *lens)
{
    if (lens == NULL) {
        return;
    }
    for (uint32_t idx = 0; idx < lens->n_groups; idx++) {
        esp_free(lens->groups[idx].bits);
    }
    esp_free(lens->groups);
    esp_free(lens->entries);
    esp_map_finish(&lens->map);
    esp_free(lens);
}

size_t esp_lens_bytes(const struct esp_lens *lens)
{
    return lens == NULL ? 0 : sizeof *lens + lens->bytes + lens->map.room * 12 + (size_t)lens->entries_cap * 8;
}

/* ---- Exploring --------------------------------------------------------------------------------- */

struct states {
    struct esp_map map; /* id << 4 | phase → index */
    uint32_t *ids;      /* [n] */
    uint8_t *phases;    /* [n] */
    uint32_t *edge_at;  /* [n + 1] into edges */
    uint32_t *edges;    /* index << 1 | 1 when the byte completes a character */
    uint32_t n, cap, phases_cap, edge_at_cap, n_edges, edges_cap;
};

static void states_finish(struct states *s)
{
    esp_map_finish(&s->map);
    esp_free(s->ids);
    esp_free(s->phases);
    esp_free(s->edge_at);
    esp_free(s->edges);
}

static esp_status add_state(struct states *s, uint32_t id, unsigned phase, uint32_t *ret_idx)
{
    uint64_t key = (uint64_t)id << 4 | phase;
    *ret_idx = esp_map_get(&s->map, key);
    if (*ret_idx != ESP_MAP_NONE) {
        return ESP_OK;
    }
    if (s->n >= ESP_LIVE_STATES_MAX) {
        return ESP_ELIMIT;
    }
    if (!esp_vec_grow(&s->ids, &s->cap, (uint64_t)s->n + 1) ||
        !esp_vec_grow(&s->phases, &s->phases_cap, (uint64_t)s->n + 1) ||
        !esp_vec_grow(&s->edge_at, &s->edge_at_cap, (uint64_t)s->n + 2) || esp_map_put(&s->map, key, s->n) != ESP_OK) {
        return ESP_ENOMEM;
    }
    s->ids[s->n] = id;
    s->phases[s->n] = (uint8_t)phase;
    *ret_idx = s->n++;
    return ESP_OK;
}

static esp_status add_edges(struct esp_exprs *x, struct states *s, uint32_t at, const struct esp_row *row)
{
    uint32_t last_edge = UINT32_MAX;
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t target, id = row->next[byte];
        if (id == ESP_EXPR_EMPTY) {
            continue;
        }
        unsigned phase = esp_phase_next(s->phases[at], byte);
        esp_status status = add_state(s, id, phase, &target);
        if (status != ESP_OK) {
            return status;
        }
        uint32_t edge = target << 1 | (phase == 0);
        if (edge != last_edge) {
            if (!esp_vec_grow(&s->edges, &s->edges_cap, (uint64_t)s->n_edges + 1)) {
                return ESP_ENOMEM;
            }
            s->edges[s->n_edges++] = last_edge = edge;
        }
    }
    return x->failed;
}

static esp_status explore(struct esp_exprs *x, struct states *s, uint32_t root)
{
    uint32_t idx;
    esp_map_init(&s->map, ESP_TAG_GRAMMAR);
    esp_status status = add_state(s, root, 0, &idx);
    for (uint32_t at = 0; status == ESP_OK && at < s->n; at++) {
        const struct esp_row *row = esp_expr_row(x, s->ids[at]);
        s->edge_at[at] = s->n_edges;
        status = row == NULL ? x->failed : add_edges(x, s, at, row);
        s->edge_at[at + 1] = s->n_edges;
    }
    if (status != ESP_OK) {
        esp_exprs_fail(x, status);
    }
    return status;
}

static bool may_be_dead(const struct esp_expr *e)
{
    return e->op == ESP_X_AND || e->op == ESP_X_NOT;
}

void esp_live_and(struct esp_exprs *x, uint32_t id)
{
    struct states s = {0};
    bool *live = NULL;
    if (!may_be_dead(&x->exprs[id]) || explore(x, &s, id) != ESP_OK) {
        goto done;
    }
    live = esp_calloc(ESP_TAG_GRAMMAR, s.n, sizeof *live);
    if (live == NULL) {
        esp_exprs_fail(x, ESP_ENOMEM);
        goto done;
    }
    for (bool changed = true; changed && x->fuel > s.n_edges;) {
        changed = false;
        x->fuel -= s.n_edges;
        for (uint32_t at = s.n; at-- > 0;) {
            bool now = live[at] || esp_expr_nullable(x, s.ids[at]);
            for (uint32_t edge = s.edge_at[at]; !now && edge < s.edge_at[at + 1]; edge++) {
                now = live[s.edges[edge] >> 1];
            }
            changed = changed || now != live[at];
            live[at] = now;
        }
    }
    for (uint32_t at = 0; at < s.n; at++) {
        struct esp_expr *e = &x->exprs[s.ids[at]];
        e->row = 0; /* rows were made before the dead were known */
        if (!live[at] && may_be_dead(e)) {
            e->flags |= ESP_EXPR_DEAD;
        }
    }
done:
    esp_free(live);
    states_finish(&s);
}

/* ---- Lengths ----------------------------------------------------------------------------------- */

static bool get_bit(const struct group *g, uint32_t col, uint32_t state)
{
    return g->bits[(size_t)col * g->stride + state / 64] >> (state % 64) & 1;
}

static void set_bit(struct group *g, uint32_t col, uint32_t state)
{
    g->bits[(size_t)col * g->stride + state / 64] |= (uint64_t)1 << (state % 64);
}

/* Column `col` from the one before. Within a column, states inside a character look at states of the same
 * column; a character has at most 12 bytes, so 12 passes settle them. */
static void fill_col(struct esp_exprs *x, const struct states *s, struct group *g, uint32_t col)
{
    for (int pass = 0; pass < 13; pass++) {
        bool changed = false;
        for (uint32_t at = s->n; at-- > 0;) {
            bool now = get_bit(g, col, at) || (col == 0 && s->phases[at] == 0 && esp_expr_nullable(x, s->ids[at]));
            for (uint32_t edge = s->edge_at[at]; !now && edge < s->edge_at[at + 1]; edge++) {
                uint32_t target = s->edges[edge] >> 1;
                bool border = s->edges[edge] & 1;
                now = border ? col > 0 && get_bit(g, col - 1, target) : get_bit(g, col, target);
            }
            if (now && !get_bit(g, col, at)) {
                set_bit(g, col, at);
                changed = true;
            }
        }
        if (!changed) {
            break;
        }
    }
}

static esp_status fill_group(struct esp_exprs *x, const struct states *s, struct group *g, uint64_t n_cols, bool open)
{
    uint32_t cap = 0;
    g->n_states = s->n;
    g->stride = (s->n + 63) / 64;
    for (uint32_t col = 0; col < n_cols; col++) {
        if ((uint64_t)(col + 1) * g->stride * 64 > ESP_LIVE_CELLS_MAX || x->fuel < s->n_edges) {
            return ESP_ELIMIT;
        }
        x->fuel -= s->n_edges;
        if (!esp_vec_room(&g->bits, &cap, (uint64_t)(col + 1) * g->stride, sizeof *g->bits)) {
            return ESP_ENOMEM;
        }
        memset(g->bits + (size_t)col * g->stride, 0, g->stride * sizeof *g->bits);
        fill_col(x, s, g, col);
        g->n_cols = col + 1;
        if (col > 0 && memcmp(g->bits + (size_t)col * g->stride, g->bits + (size_t)(col - 1) * g->stride,
                              g->stride * sizeof *g->bits) == 0) {
            g->settled = true;
            return ESP_OK;
        }
    }
    /* Unsettled (a period) and no upper bound: a length among the last n_states means infinitely many. */
    for (uint32_t back = 1; open && back < s->n && back < g->n_cols; back++) {
        for (uint32_t word = 0; word < g->stride; word++) {
            g->bits[(size_t)(g->n_cols - 1) * g->stride + word] |=
                g->bits[(size_t)(g->n_cols - 1 - back) * g->stride + word];
        }
    }
    return ESP_OK;
}

static esp_status store_group(struct esp_lens *lens, const struct states *s, struct group *g)
{
    if (!esp_vec_grow(&lens->groups, &lens->groups_cap, (uint64_t)lens->n_groups + 1) ||
        !esp_vec_grow(&lens->entries, &lens->entries_cap, (uint64_t)lens->n_entries + s->n)) {
        return ESP_ENOMEM;
    }
    for (uint32_t at = 0; at < s->n; at++) {
        uint64_t key = (uint64_t)s->ids[at] << 4 | s->phases[at];
        uint32_t old = esp_map_get(&lens->map, key);
        if (old != ESP_MAP_NONE) {
            const struct group *has = &lens->groups[lens->entries[old].group];
            if (has->settled || (!g->settled && has->n_cols >= g->n_cols)) {
                continue;
            }
        }
        lens->entries[lens->n_entries] = (struct entry){.group = lens->n_groups, .state = at};
        if (esp_map_put(&lens->map, key, lens->n_entries++) != ESP_OK) {
            return ESP_ENOMEM;
        }
    }
    lens->bytes += (size_t)g->n_cols * g->stride * 8;
    lens->groups[lens->n_groups++] = *g;
    g->bits = NULL;
    return ESP_OK;
}

void esp_live_len(struct esp_exprs *x, struct esp_lens *lens, uint32_t r, uint32_t lo, uint32_t hi)
{
    struct states s = {0};
    struct group g = {0};
    uint32_t known = esp_map_get(&lens->map, (uint64_t)r << 4);
    if (known != ESP_MAP_NONE) {
        const struct group *has = &lens->groups[lens->entries[known].group];
        if (has->settled) {
            return;
        }
    }
    if (explore(x, &s, r) == ESP_OK) {
        bool open = hi == ESP_EXPR_INF;
        esp_status status = fill_group(x, &s, &g, open ? (uint64_t)lo + s.n + 2 : (uint64_t)hi + 2, open);
        if (status == ESP_OK) {
            status = store_group(lens, &s, &g);
        }
        if (status != ESP_OK) {
            esp_exprs_fail(x, status);
        }
    }
    esp_free(g.bits);
    states_finish(&s);
}

static const struct group *find(const struct esp_exprs *x, uint32_t r, uint32_t phase, uint32_t *ret_state)
{
    uint32_t at = x->lens == NULL ? ESP_MAP_NONE : esp_map_get(&x->lens->map, (uint64_t)r << 4 | phase);
    if (at == ESP_MAP_NONE) {
        return NULL;
    }
    *ret_state = x->lens->entries[at].state;
    return &x->lens->groups[x->lens->entries[at].group];
}

bool esp_lens_ask(const struct esp_exprs *x, uint32_t r, uint32_t phase, uint32_t lo, uint32_t hi)
{
    uint32_t state = 0;
    const struct group *g = find(x, r, phase, &state);
    if (g == NULL) {
        return false;
    }
    uint32_t last = g->n_cols - 1;
    for (uint32_t col = lo < last ? lo : last; col <= hi && col <= last; col++) {
        if (get_bit(g, col, state)) {
            return true;
        }
    }
    return false;
}

uint32_t esp_lens_settled(const struct esp_exprs *x, uint32_t r, uint32_t phase)
{
    uint32_t state = 0;
    const struct group *g = find(x, r, phase, &state);
    return g != NULL && g->settled ? g->n_cols : 0;
}

/* ---- Safe characters --------------------------------------------------------------------------- */

/* Do the continuation bytes first … 0xBF (or up to last), n of them in all, lead to r? */
static bool tail_closed(struct esp_exprs *x, uint32_t id, unsigned n, unsigned first, unsigned last, uint32_t r)
{
    if (id == ESP_EXPR_EMPTY) {
        return false;
    }
    const struct esp_row *row = esp_expr_row(x, id);
    for (unsigned byte = first; row != NULL && byte <= last; byte++) {
        if (!esp_byteset_has(&x->alphabet, byte) || (byte > first && row->next[byte] == row->next[byte - 1])) {
            continue;
        }
        if (n == 1 ? row->next[byte] != r : !tail_closed(x, row->next[byte], n - 1, 0x80, 0xBF, r)) {
            return false;
        }
        row = x->rows[x->exprs[id].row];
    }
    return row != NULL;
}

/* The second byte's range after a lead byte of UTF-8. */
static void second_range(unsigned lead, unsigned *ret_first, unsigned *ret_last)
{
    *ret_first = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *ret_last = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

static bool leads_closed(struct esp_exprs *x, const struct esp_row *row, uint32_t r)
{
    unsigned known_first = 0, known_last = 0;
    uint32_t known = ESP_EXPR_EMPTY; /* what the last lead byte led to, closed for that range */
    for (unsigned lead = 0xC2; lead <= 0xF4; lead++) {
        unsigned first, last;
        second_range(lead, &first, &last);
        if (!esp_byteset_has(&x->alphabet, lead) ||
            (row->next[lead] == known && first == known_first && last == known_last)) {
            continue;
        }
        if (!tail_closed(x, row->next[lead], lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3, first, last, r)) {
            return false;
        }
        known = row->next[lead];
        known_first = first;
        known_last = last;
    }
    return true;
}

bool esp_live_closed(struct esp_exprs *x, uint32_t r)
{
    uint8_t flags = x->exprs[r].flags;
    if (flags & (ESP_EXPR_CLOSED | ESP_EXPR_OPEN)) {
        return (flags & ESP_EXPR_CLOSED) != 0;
    }
    const struct esp_row *row = esp_expr_row(x, r);
    bool closed = row != NULL;
    for (unsigned byte = 0x20; closed && byte < 0x80; byte++) {
        closed = byte == '"' || byte == '\\' || !esp_byteset_has(&x->alphabet, byte) || row->next[byte] == r;
    }
    closed = closed && leads_closed(x, row, r);
    x->exprs[r].flags |= closed ? ESP_EXPR_CLOSED : ESP_EXPR_OPEN;
    return closed;
}
