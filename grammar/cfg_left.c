/* Recursion at the ends of rules: taken out where one rule calls itself, solved as a system where several do.
 *
 *   A = A q | b                    A = b q*
 *   A = x A | b                    A = x* b
 *   A = A + A | - A | b            A = (- | b +)* b              whoever brackets it: the same texts
 *   A = B x | a   B = A y | b      A = a Taa | b Tba,  Tij: what turns an i into a j  (Tba = x Taa, …)
 *
 * So following calls without taking a byte always ends, and repeats pile up no frames. Expressions are those of
 * expr.h; recursion follows their height, sequences are walked in loops. Thread: the owner's.
 */
#include "grammar/cfg.h"

#include <string.h>

#include "grammar/live.h"
#include "grammar/vec.h"

#define GROUP_MAX 48u /* rules that call each other first */

/* The nodes whose calls are meant. */
struct group {
    uint32_t first, n;
    const uint32_t *parts; /* [n], NULL: all of them */
    uint32_t part;
};

static bool in_group(const struct group *group, uint32_t node)
{
    return node >= group->first && node - group->first < group->n &&
           (group->parts == NULL || group->parts[node - group->first] == group->part);
}

static uint32_t not_empty_cat(struct esp_exprs *x, uint32_t id)
{
    uint32_t mark = x->n_scratch;
    while (x->exprs[id].op == ESP_X_CAT) {
        struct esp_expr e = x->exprs[id];
        esp_exprs_push(x, esp_expr_cat(x, esp_cfg_not_empty(x, e.a), e.b));
        id = e.b;
    }
    esp_exprs_push(x, esp_cfg_not_empty(x, id));
    id = x->failed != ESP_OK ? ESP_EXPR_EMPTY : esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

uint32_t esp_cfg_not_empty(struct esp_exprs *x, uint32_t id)
{
    struct esp_expr e = x->exprs[id];
    uint32_t mark = x->n_scratch;
    if ((e.flags & ESP_EXPR_NULLABLE) == 0 || id == ESP_EXPR_EPS || x->failed != ESP_OK) {
        return id == ESP_EXPR_EPS ? ESP_EXPR_EMPTY : id;
    }
    switch (e.op) {
    case ESP_X_CAT: return not_empty_cat(x, id); /* all of it may be empty */
    case ESP_X_REP:
        return esp_expr_cat(x, esp_cfg_not_empty(x, e.a), esp_expr_rep(x, e.a, 0, e.d == ESP_EXPR_INF ? e.d : e.d - 1));
    case ESP_X_ALT:
        for (uint32_t idx = 0; idx < e.b; idx++) {
            esp_exprs_push(x, esp_cfg_not_empty(x, x->lists[e.a + idx]));
        }
        id = x->failed != ESP_OK ? ESP_EXPR_EMPTY : esp_expr_alt(x, x->scratch + mark, e.b);
        x->n_scratch = mark;
        return id;
    default: esp_live_and(x, esp_expr_not(x, id, ESP_EXPR_EPS)); return esp_expr_not(x, id, ESP_EXPR_EPS);
    }
}

/* ---- First places ------------------------------------------------------------------------------ */

static uint32_t strip(struct esp_exprs *x, uint32_t id, const struct group *group);

static uint32_t strip_cat(struct esp_exprs *x, uint32_t id, const struct group *group)
{
    uint32_t mark = x->n_scratch;
    for (;;) {
        struct esp_expr e = x->exprs[id];
        if (e.op != ESP_X_CAT) {
            esp_exprs_push(x, strip(x, id, group));
            break;
        }
        bool nullable = esp_expr_nullable(x, e.a);
        uint32_t head = strip(x, nullable ? esp_cfg_not_empty(x, e.a) : e.a, group);
        esp_exprs_push(x, esp_expr_cat(x, head, e.b));
        if (!nullable) {
            break;
        }
        id = e.b;
    }
    id = x->failed != ESP_OK ? ESP_EXPR_EMPTY : esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

/* What does not begin with a call of the group. */
static uint32_t strip(struct esp_exprs *x, uint32_t id, const struct group *group)
{
    struct esp_expr e = x->exprs[id];
    uint32_t mark = x->n_scratch;
    if ((e.flags & ESP_EXPR_CALLS) == 0 || x->failed != ESP_OK) {
        return id;
    }
    switch (e.op) {
    case ESP_X_CALL: return in_group(group, e.a) ? ESP_EXPR_EMPTY : id;
    case ESP_X_CAT: return strip_cat(x, id, group);
    case ESP_X_REP: {
        uint32_t some = strip(x, esp_cfg_not_empty(x, e.a), group);
        uint32_t more = esp_expr_rep(x, e.a, e.c > 0 ? e.c - 1 : 0, e.d == ESP_EXPR_INF ? e.d : e.d - 1);
        some = esp_expr_cat(x, some, more);
        return e.c == 0 ? esp_expr_opt(x, some) : some;
    }
    case ESP_X_ALT:
        for (uint32_t idx = 0; idx < e.b; idx++) {
            esp_exprs_push(x, strip(x, x->lists[e.a + idx], group));
        }
        id = x->failed != ESP_OK ? ESP_EXPR_EMPTY : esp_expr_alt(x, x->scratch + mark, e.b);
        x->n_scratch = mark;
        return id;
    default: return id;
    }
}

/* ---- Last places ------------------------------------------------------------------------------- */

/* id = x · node | y, where y may hold calls of the node, but not at its ends that were seen. */
struct tail {
    uint32_t x, y;
};

static struct tail split_tail(struct esp_exprs *x, uint32_t id, uint32_t node)
{
    struct esp_expr e = x->exprs[id];
    uint32_t mark = x->n_scratch;
    struct tail tail = {ESP_EXPR_EMPTY, id};
    if ((e.flags & ESP_EXPR_NO_TEXT) == 0 || x->failed != ESP_OK) {
        return tail;
    }
    if (e.op == ESP_X_CALL && e.a == node) {
        return (struct tail){ESP_EXPR_EPS, ESP_EXPR_EMPTY};
    }
    if (e.op == ESP_X_CAT) {
        uint32_t last = id;
        for (; x->exprs[last].op == ESP_X_CAT; last = x->exprs[last].b) {
            esp_exprs_push(x, x->exprs[last].a);
        }
        struct tail end = split_tail(x, last, node);
        for (uint32_t at = x->n_scratch; end.x != ESP_EXPR_EMPTY && at-- > mark;) {
            end.x = esp_expr_cat(x, x->scratch[at], end.x);
            end.y = esp_expr_cat(x, x->scratch[at], end.y);
        }
        tail = end.x == ESP_EXPR_EMPTY ? tail : end;
    } else if (e.op == ESP_X_ALT) {
        tail.y = ESP_EXPR_EMPTY;
        for (uint32_t idx = 0; idx < e.b; idx++) {
            struct tail member = split_tail(x, x->lists[e.a + idx], node);
            tail.x = esp_expr_alt2(x, tail.x, member.x);
            tail.y = esp_expr_alt2(x, tail.y, member.y);
        }
    }
    x->n_scratch = mark;
    return tail;
}

/* Of a node M = B Q* with B = b1 M | b2 and Q = q1 M | q2: since M Q* is M again, M is (b1 | b2 q2* q1)* b2 q2*. */
uint32_t esp_cfg_unwind(struct esp_exprs *x, uint32_t node, uint32_t id)
{
    struct group self = {node, 1, NULL, 0};
    uint32_t mark = x->n_scratch, after = ESP_EXPR_EMPTY;
    esp_expr_calls(x, id);
    for (uint32_t at = mark; at + 1 < x->n_scratch; at += 2) {
        if (x->scratch[at] == node) {
            after = esp_expr_alt2(x, after, esp_cfg_not_empty(x, x->scratch[at + 1]));
        }
    }
    x->n_scratch = mark;
    struct tail b = split_tail(x, strip(x, id, &self), node), q = split_tail(x, after, node);
    uint32_t star = esp_expr_rep(x, q.y, 0, ESP_EXPR_INF), end = esp_expr_cat(x, b.y, star);
    uint32_t again = esp_expr_alt2(x, b.x, esp_expr_cat(x, end, q.x));
    return esp_expr_cat(x, esp_expr_rep(x, again, 0, ESP_EXPR_INF), end);
}

bool esp_cfg_calls(struct esp_exprs *x, uint32_t id, uint32_t node)
{
    struct esp_map seen;
    uint32_t mark = x->n_scratch;
    bool found = false;
    esp_map_init(&seen, ESP_TAG_GRAMMAR);
    esp_exprs_push(x, id);
    while (x->n_scratch > mark && !found && x->failed == ESP_OK) {
        id = x->scratch[--x->n_scratch];
        struct esp_expr e = x->exprs[id];
        if ((e.flags & ESP_EXPR_NO_TEXT) == 0 || esp_map_get(&seen, id) != ESP_MAP_NONE) {
            continue;
        }
        if (esp_map_put(&seen, id, 0) != ESP_OK) {
            esp_exprs_fail(x, ESP_ENOMEM);
        }
        found = e.op == ESP_X_CALL && e.a == node;
        for (uint32_t idx = 0; e.op == ESP_X_ALT && idx < e.b; idx++) {
            esp_exprs_push(x, x->lists[e.a + idx]);
        }
        if (e.op == ESP_X_CAT || e.op == ESP_X_REP) {
            esp_exprs_push(x, e.a);
        }
        if (e.op == ESP_X_CAT) {
            esp_exprs_push(x, e.b);
        }
    }
    esp_map_finish(&seen);
    x->n_scratch = mark;
    return found;
}

/* ---- Several rules ----------------------------------------------------------------------------- */

struct system {
    struct esp_grammar *g;
    uint32_t n, first_t;
    uint32_t nodes[GROUP_MAX], bases[GROUP_MAX];
    uint32_t after[GROUP_MAX][GROUP_MAX]; /* [k][l]: what follows a k at the beginning of an l */
    uint64_t same[GROUP_MAX];             /* [k]: the l that a k is already */
};

static uint32_t place_of(const struct system *s, uint32_t node)
{
    uint32_t at = 0;
    while (at < s->n && s->nodes[at] != node) {
        at++;
    }
    return at;
}

static void read_system(struct system *s, const struct group *group)
{
    struct esp_exprs *x = &s->g->base;
    for (uint32_t l = 0; l < s->n; l++) {
        uint32_t mark = x->n_scratch, id = s->g->starts[s->nodes[l]];
        s->same[l] |= (uint64_t)1 << l;
        s->bases[l] = strip(x, id, group);
        esp_expr_calls(x, id);
        for (uint32_t at = mark; at + 1 < x->n_scratch; at += 2) {
            uint32_t k = place_of(s, x->scratch[at]), cont = x->scratch[at + 1];
            if (k < s->n) {
                s->same[k] |= esp_expr_nullable(x, cont) ? (uint64_t)1 << l : 0;
                s->after[k][l] = esp_expr_alt2(x, s->after[k][l], esp_cfg_not_empty(x, cont));
            }
        }
        x->n_scratch = mark;
    }
    for (uint32_t via = 0; via < s->n; via++) {
        for (uint32_t k = 0; k < s->n; k++) {
            s->same[k] |= s->same[k] >> via & 1 ? s->same[via] : 0;
        }
    }
}

/* What turns a k into an i. */
static uint32_t turn(const struct system *s, uint32_t k, uint32_t i)
{
    struct esp_exprs *x = &s->g->base;
    uint32_t id = esp_expr_call(x, s->first_t + k * s->n + i);
    return s->same[k] >> i & 1 ? esp_expr_opt(x, id) : id;
}

static uint32_t turn_start(const struct system *s, uint32_t k, uint32_t i)
{
    struct esp_exprs *x = &s->g->base;
    uint32_t id = ESP_EXPR_EMPTY;
    for (uint32_t l = 0; l < s->n; l++) {
        for (uint32_t m = 0; m < s->n && (s->same[k] >> l & 1) != 0; m++) {
            if (s->after[l][m] != ESP_EXPR_EMPTY) {
                id = esp_expr_alt2(x, id, esp_expr_cat(x, s->after[l][m], turn(s, m, i)));
            }
        }
    }
    return id;
}

static esp_status solve(struct system *s, const struct group *group)
{
    struct esp_exprs *x = &s->g->base;
    uint32_t node;
    esp_status status = ESP_OK;
    read_system(s, group);
    s->first_t = s->g->n_starts;
    for (uint32_t at = 0; at < s->n * s->n && status == ESP_OK; at++) {
        status = esp_grammar_add_node(s->g, ESP_EXPR_EMPTY, &node);
    }
    for (uint32_t i = 0; i < s->n && status == ESP_OK; i++) {
        uint32_t id = ESP_EXPR_EMPTY;
        for (uint32_t k = 0; k < s->n; k++) {
            s->g->starts[s->first_t + k * s->n + i] = turn_start(s, k, i);
            id = esp_expr_alt2(x, id, esp_expr_cat(x, s->bases[k], turn(s, k, i)));
        }
        s->g->starts[s->nodes[i]] = id;
    }
    return status != ESP_OK ? status : x->failed;
}

/* ---- Which rules call each other first (Tarjan's strongly connected components) ---------------- */

struct search {
    struct esp_grammar *g;
    uint32_t first, n;
    uint32_t *index, *low, *parts;    /* [n]; index 0: not seen; parts: 0 while not settled */
    uint32_t *edges, *edge_at, *next; /* edges of a node lie in edges from edge_at; [n + 1] */
    uint32_t *open, *path;            /* nodes not settled; nodes on the way down */
    uint32_t n_edges, edges_cap, n_open, n_path, n_seen, n_parts;
};

static esp_status find_edges(struct search *s)
{
    struct esp_exprs *x = &s->g->base;
    for (uint32_t at = 0; at < s->n; at++) {
        uint32_t mark = x->n_scratch;
        s->edge_at[at] = s->next[at] = s->n_edges;
        esp_expr_calls(x, s->g->starts[s->first + at]);
        if (!esp_vec_grow(&s->edges, &s->edges_cap, (uint64_t)s->n_edges + x->n_scratch - mark)) {
            return ESP_ENOMEM;
        }
        for (uint32_t pair = mark; pair + 1 < x->n_scratch; pair += 2) {
            if (x->scratch[pair] >= s->first) {
                s->edges[s->n_edges++] = x->scratch[pair] - s->first;
            }
        }
        x->n_scratch = mark;
    }
    s->edge_at[s->n] = s->n_edges;
    return x->failed;
}

static void see(struct search *s, uint32_t at)
{
    s->index[at] = s->low[at] = ++s->n_seen;
    s->open[s->n_open++] = s->path[s->n_path++] = at;
}

/* All below `at` was seen. */
static void leave(struct search *s, uint32_t at)
{
    s->n_path--;
    if (s->n_path > 0 && s->low[at] < s->low[s->path[s->n_path - 1]]) {
        s->low[s->path[s->n_path - 1]] = s->low[at];
    }
    if (s->low[at] == s->index[at]) {
        s->n_parts++;
        do {
            s->parts[s->open[--s->n_open]] = s->n_parts;
        } while (s->open[s->n_open] != at);
    }
}

static void find_parts(struct search *s)
{
    for (uint32_t root = 0; root < s->n; root++) {
        if (s->index[root] == 0) {
            see(s, root);
        }
        while (s->n_path > 0) {
            uint32_t at = s->path[s->n_path - 1];
            if (s->next[at] == s->edge_at[at + 1]) {
                leave(s, at);
                continue;
            }
            uint32_t to = s->edges[s->next[at]++];
            if (s->index[to] == 0) {
                see(s, to);
            } else if (s->parts[to] == 0 && s->index[to] < s->low[at]) {
                s->low[at] = s->index[to];
            }
        }
    }
}

/* Solves the parts of more than one node, and nodes that call themselves first. */
static esp_status solve_parts(struct search *s)
{
    uint32_t *size = esp_calloc(ESP_TAG_GRAMMAR, (size_t)s->n_parts + 1, sizeof *size);
    struct system *system = esp_malloc(ESP_TAG_GRAMMAR, sizeof *system);
    esp_status status = size == NULL || system == NULL ? ESP_ENOMEM : ESP_OK;
    for (uint32_t at = 0; at < s->n && status == ESP_OK; at++) {
        size[s->parts[at]]++;
        for (uint32_t edge = s->edge_at[at]; edge < s->edge_at[at + 1]; edge++) {
            size[s->parts[at]] += s->edges[edge] == at;
        }
    }
    for (uint32_t at = 0; at < s->n && status == ESP_OK; at++) {
        if (size[s->parts[at]] < 2) {
            continue;
        }
        struct group group = {s->first, s->n, s->parts, s->parts[at]};
        memset(system, 0, sizeof *system);
        system->g = s->g;
        size[s->parts[at]] = 0; /* once */
        for (uint32_t idx = at; idx < s->n && status == ESP_OK; idx++) {
            if (s->parts[idx] == group.part) {
                status = system->n == GROUP_MAX ? ESP_ELIMIT : ESP_OK;
                system->nodes[system->n == GROUP_MAX ? 0 : system->n++] = s->first + idx;
            }
        }
        status = status == ESP_OK ? solve(system, &group) : status;
    }
    esp_free(system);
    esp_free(size);
    return status;
}

esp_status esp_cfg_solve_left(struct esp_grammar *g, uint32_t first)
{
    struct search s = {.g = g, .first = first, .n = g->n_starts - first};
    esp_status status = ESP_ENOMEM;
    uint32_t *room = esp_calloc(ESP_TAG_GRAMMAR, (size_t)s.n * 7 + 2, sizeof *room);
    if (room != NULL) {
        s.index = room;
        s.low = room + s.n;
        s.parts = room + 2 * (size_t)s.n;
        s.open = room + 3 * (size_t)s.n;
        s.path = room + 4 * (size_t)s.n;
        s.next = room + 5 * (size_t)s.n;
        s.edge_at = room + 6 * (size_t)s.n;
        status = find_edges(&s);
    }
    if (status == ESP_OK) {
        find_parts(&s);
        status = solve_parts(&s);
    }
    esp_free(room);
    esp_free(s.edges);
    return status;
}
