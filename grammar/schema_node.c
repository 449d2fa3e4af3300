/* Nodes: conjunctions of schemas, found again by what they are made of, and multiplied out to alternatives.
 *
 *   todo [A, …]   done []          take A: its own assertions go to done, its applicators to the front
 *                                  of todo ($ref → target, allOf → all, anyOf → one copy per branch)
 *   todo []       done [leaf …]    an alternative: schema_atom.c makes typed atoms of it
 *
 * A schema met again on its own way in ($ref circles without a value between) is refused; met again beside
 * itself it adds nothing. Thread: the owner's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/schema.h"
#include "grammar/vec.h"

esp_status esp_schema_fail(struct esp_schema *s, esp_status status, const struct esp_jv *at, const char *fmt, ...)
{
    char what[400], pointer[240], keyword[60] = "";
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    esp_jv_pointer(at, pointer, sizeof pointer);
    const struct esp_jv *named = at;
    while (named != NULL && named->key == NULL) {
        named = named->parent;
    }
    if (named != NULL) {
        snprintf(keyword, sizeof keyword, "%s", named->key);
    }
    esp_fail(s->err, status, "%s%s%s", keyword[0] == '\0' ? "the schema" : keyword, " ", what);
    esp_err_place(s->err, "%s", pointer);
    esp_err_keyword(s->err, keyword);
    return status;
}

esp_status esp_schema_memory(struct esp_schema *s)
{
    return esp_fail(s->err, ESP_ENOMEM, "out of memory for the schema");
}

static void add_json_text(struct esp_buf *buf, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            esp_buf_char(buf, '\\');
            esp_buf_char(buf, *c);
        } else if ((unsigned char)*c < 0x20) {
            esp_buf_printf(buf, "\\u%04x", (unsigned)(unsigned char)*c);
        } else {
            esp_buf_char(buf, *c);
        }
    }
}

void esp_schema_warn(struct esp_schema *s, const char *code, const struct esp_jv *at, const char *fmt, ...)
{
    char what[400], pointer[240];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    esp_jv_pointer(at, pointer, sizeof pointer);
    if (s->warnings->n > 1) {
        esp_buf_char(s->warnings, ',');
    }
    esp_buf_printf(s->warnings, "{\"code\":\"%s\",\"param\":\"", code);
    add_json_text(s->warnings, pointer);
    esp_buf_str(s->warnings, "\",\"message\":\"");
    add_json_text(s->warnings, what);
    esp_buf_str(s->warnings, "\"}");
}

esp_status esp_schema_node(struct esp_schema *s, const struct esp_item *items, uint32_t n, uint32_t *ret_node)
{
    struct esp_item unique[ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n_unique = 0;
    for (uint32_t idx = 0; idx < n; idx++) {
        uint32_t at = 0;
        while (at < n_unique && (unique[at].v != items[idx].v || unique[at].kind != items[idx].kind)) {
            at++;
        }
        if (at < n_unique) {
            continue;
        }
        if (n_unique == ESP_SCHEMA_CONJUNCTS_MAX) {
            return esp_schema_fail(s, ESP_ELIMIT, items[idx].v, "is combined with too many other schemas");
        }
        unique[n_unique++] = items[idx];
    }
    uint32_t id = esp_bytesmap_get(&s->node_map, unique, n_unique * sizeof unique[0]);
    if (id != ESP_MAP_NONE) {
        *ret_node = id;
        return ESP_OK;
    }
    struct esp_item *copy = esp_arena_alloc(&s->arena, (size_t)n_unique + 1, sizeof *copy);
    if (copy == NULL || !esp_vec_grow(&s->nodes, &s->nodes_cap, (uint64_t)s->n_nodes + 1)) {
        return esp_schema_memory(s);
    }
    if (s->n_nodes >= ESP_SCHEMA_NODES_MAX) {
        return esp_schema_fail(s, ESP_ELIMIT, n > 0 ? items[0].v : s->root, "makes too many combinations of schemas");
    }
    if (n_unique > 0) {
        memcpy(copy, unique, n_unique * sizeof *copy);
    }
    if (esp_bytesmap_put(&s->node_map, copy, n_unique * sizeof *copy, s->n_nodes) != ESP_OK) {
        return esp_schema_memory(s);
    }
    s->nodes[s->n_nodes] = (struct esp_node){.items = copy, .n_items = n_unique};
    *ret_node = s->n_nodes++;
    return ESP_OK;
}

void esp_schema_why(struct esp_schema *s, const struct esp_jv *at, const char *why)
{
    struct esp_node *node = &s->nodes[s->current];
    node->why_at = at;
    node->why = why;
}

/* ---- Multiplying out --------------------------------------------------------------------------- */

/* What is still to do, as a linked list so that copies share their tails; `via` is the way in. */
struct todo {
    struct esp_item item;
    const struct via *via;
    const struct todo *next;
};
struct via {
    const struct esp_jv *v;
    const struct via *up;
};
struct partial {
    struct esp_item done[ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n_done;
    const struct todo *todo;
    struct partial *next; /* stack */
};

static esp_status push_todo(struct esp_schema *s, const struct todo **list, struct esp_item item, const struct via *via)
{
    struct todo *todo = esp_arena_alloc(&s->arena, 1, sizeof *todo);
    if (todo == NULL) {
        return esp_schema_memory(s);
    }
    *todo = (struct todo){item, via, *list};
    *list = todo;
    return ESP_OK;
}

static esp_status add_done(struct esp_schema *s, struct partial *p, const struct esp_jv *v, uint64_t kind)
{
    if (p->n_done == ESP_SCHEMA_CONJUNCTS_MAX) {
        return esp_schema_fail(s, ESP_ELIMIT, v, "is combined with too many other schemas");
    }
    p->done[p->n_done++] = (struct esp_item){v, kind};
    return ESP_OK;
}

/* Branches that must not overlap for a oneOf to be a union: every pair, beside the schema's own assertions. */
static esp_status note_disjoint(struct esp_schema *s, const struct esp_jv *self, const struct esp_jv *one_of)
{
    for (const struct esp_jv *a = one_of->child; a != NULL; a = a->next) {
        for (const struct esp_jv *b = a->next; b != NULL; b = b->next) {
            struct esp_item pair[3] = {{self, ESP_ITEM_LEAF}, {a, ESP_ITEM_SCHEMA}, {b, ESP_ITEM_SCHEMA}};
            uint32_t node;
            esp_status status = esp_schema_node(s, pair, 3, &node);
            if (status != ESP_OK) {
                return status;
            }
            if (!esp_vec_grow(&s->disjoint, &s->disjoint_cap, (uint64_t)s->n_disjoint + 1)) {
                return esp_schema_memory(s);
            }
            s->disjoint[s->n_disjoint++] = (struct esp_schema_disjoint){node, one_of};
        }
    }
    return ESP_OK;
}

/* Puts the branches of anyOf or oneOf as copies of p on the stack. */
static esp_status branch(struct esp_schema *s, struct partial *p, const struct esp_jv *any, const struct via *via,
                         struct partial **stack, uint32_t *n_alternatives)
{
    struct partial *first = NULL, **link = &first;
    for (const struct esp_jv *child = any->child; child != NULL; child = child->next) {
        struct partial *copy = esp_arena_alloc(&s->arena, 1, sizeof *copy);
        if (copy == NULL) {
            return esp_schema_memory(s);
        }
        if (++*n_alternatives > ESP_SCHEMA_ALTERNATIVES_MAX) {
            return esp_schema_fail(s, ESP_ELIMIT, any, "makes too many alternatives");
        }
        *copy = *p;
        esp_status status = push_todo(s, &copy->todo, (struct esp_item){child, ESP_ITEM_SCHEMA}, via);
        if (status != ESP_OK) {
            return status;
        }
        *link = copy;
        link = &copy->next;
    }
    *link = *stack;
    *stack = first;
    return ESP_OK;
}

/* Applicators of a leaf, last first, so that the first one is done first. *ret_branch: the first anyOf or oneOf,
 * with what comes after it left in todo. */
static esp_status add_applicators(struct esp_schema *s, struct partial *p, const struct esp_leaf *leaf,
                                  const struct via *via)
{
    esp_status status = ESP_OK;
    for (uint32_t idx = leaf->n_applicators; idx-- > 0 && status == ESP_OK;) {
        const struct esp_jv *v = leaf->applicators[idx];
        if (esp_jv_is(v, v->text) && v->type == ESP_JV_STRING) { /* $ref */
            const struct esp_jv *target;
            status = esp_schema_resolve(s, v, &target);
            if (status == ESP_OK) {
                status = push_todo(s, &p->todo, (struct esp_item){target, ESP_ITEM_SCHEMA}, via);
            }
        } else if (strcmp(v->key, "allOf") == 0) {
            const struct esp_jv *members[ESP_SCHEMA_CONJUNCTS_MAX];
            uint32_t n = 0;
            for (const struct esp_jv *child = v->child; child != NULL; child = child->next) {
                if (n == ESP_SCHEMA_CONJUNCTS_MAX) {
                    return esp_schema_fail(s, ESP_ELIMIT, v, "has too many members");
                }
                members[n++] = child;
            }
            while (n > 0 && status == ESP_OK) {
                status = push_todo(s, &p->todo, (struct esp_item){members[--n], ESP_ITEM_SCHEMA}, via);
            }
        } else { /* anyOf, oneOf: the array itself stands in todo until its turn comes */
            status = push_todo(s, &p->todo, (struct esp_item){v, ESP_ITEM_SCHEMA}, via);
        }
    }
    return status;
}

static bool has_leaf(const struct partial *p, const struct esp_jv *v)
{
    for (uint32_t idx = 0; idx < p->n_done; idx++) {
        if (p->done[idx].v == v && p->done[idx].kind == ESP_ITEM_LEAF) {
            return true;
        }
    }
    return false;
}

/* Takes one schema into p. *ret_alive is cleared when it allows nothing. */
static esp_status take_schema(struct esp_schema *s, struct partial *p, const struct esp_jv *v, const struct via *up,
                              bool *ret_alive)
{
    struct esp_leaf *leaf;
    for (const struct via *via = up; via != NULL; via = via->up) {
        if (via->v == v) {
            return esp_schema_fail(s, ESP_EINVAL, v, "refers to itself without a value in between");
        }
    }
    if (v->type == ESP_JV_TRUE || v->type == ESP_JV_FALSE) {
        *ret_alive = v->type == ESP_JV_TRUE;
        if (!*ret_alive) {
            esp_schema_why(s, v, "allows nothing");
        }
        return ESP_OK;
    }
    if (has_leaf(p, v)) {
        return ESP_OK;
    }
    esp_status status = esp_schema_read(s, v, &leaf);
    if (status != ESP_OK) {
        return status;
    }
    struct via *via = esp_arena_alloc(&s->arena, 1, sizeof *via);
    if (via == NULL) {
        return esp_schema_memory(s);
    }
    *via = (struct via){v, up};
    status = add_done(s, p, v, ESP_ITEM_LEAF);
    return status == ESP_OK ? add_applicators(s, p, leaf, via) : status;
}

/* Works on p until it is finished, dead, or split into branches on the stack. */
static esp_status advance(struct esp_schema *s, struct partial *p, struct partial **stack, uint32_t *n_alternatives)
{
    bool alive = true;
    esp_status status = ESP_OK;
    while (p->todo != NULL && alive && status == ESP_OK) {
        struct todo todo = *p->todo;
        p->todo = todo.next;
        if (todo.item.kind != ESP_ITEM_SCHEMA) {
            status = add_done(s, p, todo.item.v, todo.item.kind);
        } else if (todo.item.v->type == ESP_JV_ARRAY) { /* anyOf, oneOf */
            if (strcmp(todo.item.v->key, "oneOf") == 0) {
                status = note_disjoint(s, todo.via->v, todo.item.v);
            }
            return status == ESP_OK ? branch(s, p, todo.item.v, todo.via, stack, n_alternatives) : status;
        } else {
            status = take_schema(s, p, todo.item.v, todo.via, &alive);
        }
    }
    return status == ESP_OK && alive ? esp_schema_atoms(s, p->done, p->n_done) : status;
}

esp_status esp_schema_expand(struct esp_schema *s, uint32_t node)
{
    struct partial *stack = esp_arena_alloc(&s->arena, 1, sizeof *stack);
    uint32_t n_alternatives = 0;
    esp_status status = stack == NULL ? esp_schema_memory(s) : ESP_OK;
    s->current = node;
    for (uint32_t idx = s->nodes[node].n_items; idx-- > 0 && status == ESP_OK;) {
        status = push_todo(s, &stack->todo, s->nodes[node].items[idx], NULL);
    }
    while (stack != NULL && status == ESP_OK) {
        struct partial *p = stack;
        stack = p->next;
        if (s->x->fuel < 100) {
            return esp_schema_fail(s, ESP_ELIMIT, s->root, "needs more steps than a compile may take");
        }
        s->x->fuel -= 100;
        status = advance(s, p, &stack, &n_alternatives);
    }
    return status;
}
