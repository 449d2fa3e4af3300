/* Nodes: conjunctions of schemas, found again by what they are made of, and multiplied out to alternatives
 * (schema_expand.h says how; schema_branch.c does what forks).
 *
 * A schema met again on its own way in ($ref circles without a value between) is refused; met again beside
 * itself it adds nothing; met beside its own denial it leaves nothing. Thread: the owner's.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grammar/schema_expand.h"
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
    if (s->bare) {
        return;
    }
    struct esp_node *node = &s->nodes[s->current];
    node->why_at = at;
    node->why = why;
}

/* ---- Multiplying out --------------------------------------------------------------------------- */

esp_status esp_schema_todo(struct esp_schema *s, struct esp_partial *p, struct esp_item item, const struct esp_via *via)
{
    struct esp_todo *todo = esp_arena_alloc(&s->arena, 1, sizeof *todo);
    if (todo == NULL) {
        return esp_schema_memory(s);
    }
    *todo = (struct esp_todo){item, via, p->todo};
    p->todo = todo;
    return ESP_OK;
}

bool esp_schema_is_done(const struct esp_partial *p, const struct esp_jv *v, uint64_t kind)
{
    for (uint32_t idx = 0; idx < p->n_done; idx++) {
        if (p->done[idx].v == v && p->done[idx].kind == kind) {
            return true;
        }
    }
    return false;
}

esp_status esp_schema_done(struct esp_schema *s, struct esp_partial *p, struct esp_item item)
{
    if (esp_schema_is_done(p, item.v, item.kind)) {
        return ESP_OK;
    }
    if (p->n_done == ESP_SCHEMA_CONJUNCTS_MAX) {
        return esp_schema_fail(s, ESP_ELIMIT, item.v, "is combined with too many other schemas");
    }
    p->done[p->n_done++] = item;
    if (item.kind == ESP_ITEM_LEAF) {
        const struct esp_leaf *leaf = item.v->extra;
        if ((p->types & leaf->types) == 0 && p->types != 0) {
            esp_schema_why(s, leaf->self, "has no type that everything beside it allows");
        }
        p->types &= leaf->types;
        p->dead = p->types == 0;
    }
    return ESP_OK;
}

esp_status esp_schema_via(struct esp_schema *s, const struct esp_jv *v, const struct esp_via *up, bool mute,
                          struct esp_via **ret_via)
{
    for (const struct esp_via *via = up; via != NULL; via = via->up) {
        if (via->v == v) {
            return esp_schema_fail(s, ESP_EINVAL, v, "refers to itself without a value in between");
        }
    }
    struct esp_via *via = esp_arena_alloc(&s->arena, 1, sizeof *via);
    if (via == NULL) {
        return esp_schema_memory(s);
    }
    *via = (struct esp_via){.v = v, .up = up, .mute = mute};
    *ret_via = via;
    return ESP_OK;
}

/* All members, last first, so that the first one is done first. */
static esp_status add_all(struct esp_schema *s, struct esp_partial *p, const struct esp_jv *all_of,
                          const struct esp_via *via)
{
    const struct esp_jv *members[ESP_SCHEMA_CONJUNCTS_MAX];
    uint32_t n = 0;
    esp_status status = ESP_OK;
    for (const struct esp_jv *child = all_of->child; child != NULL; child = child->next) {
        if (n == ESP_SCHEMA_CONJUNCTS_MAX) {
            return esp_schema_fail(s, ESP_ELIMIT, all_of, "has too many members");
        }
        members[n++] = child;
    }
    while (n > 0 && status == ESP_OK) {
        status = esp_schema_todo(s, p, (struct esp_item){members[--n], ESP_ITEM_SCHEMA}, via);
    }
    return status;
}

static esp_status add_applicators(struct esp_schema *s, struct esp_partial *p, const struct esp_leaf *leaf,
                                  const struct esp_via *via)
{
    esp_status status = ESP_OK;
    if (via->counts && leaf->condition != NULL) {
        status = esp_schema_todo(s, p, (struct esp_item){leaf->condition, ESP_ITEM_IF}, via);
    }
    for (uint32_t idx = leaf->n_applicators; idx-- > 0 && status == ESP_OK;) {
        const struct esp_jv *v = leaf->applicators[idx], *target = v;
        if (v->type == ESP_JV_STRING) { /* $ref */
            status = esp_schema_resolve(s, v, &target);
        } else if (v->type == ESP_JV_ARRAY && strcmp(v->key, "allOf") == 0) {
            status = add_all(s, p, v, via);
            continue;
        }
        /* anyOf, oneOf: the array itself stands in todo until its turn comes */
        uint64_t kind = v->type == ESP_JV_STRING || v->type == ESP_JV_ARRAY ? ESP_ITEM_SCHEMA
                        : strcmp(v->key, "not") == 0                        ? ESP_ITEM_NOT
                                                                            : ESP_ITEM_IF;
        if (status == ESP_OK) {
            status = esp_schema_todo(s, p, (struct esp_item){target, kind}, via);
        }
    }
    return status;
}

static esp_status add_seen(struct esp_schema *s, struct esp_partial *p, const struct esp_leaf *leaf,
                           const struct esp_via *via)
{
    struct esp_seen *seen = esp_arena_alloc(&s->arena, 1, sizeof *seen);
    if (seen == NULL) {
        return esp_schema_memory(s);
    }
    *seen = (struct esp_seen){leaf, via, p->seen};
    p->seen = seen;
    return ESP_OK;
}

/* Takes one schema into p, which dies when it allows nothing. */
static esp_status take_schema(struct esp_schema *s, struct esp_partial *p, const struct esp_jv *v,
                              const struct esp_via *up)
{
    struct esp_leaf *leaf;
    struct esp_via *via;
    if (v->type == ESP_JV_TRUE || v->type == ESP_JV_FALSE) {
        p->dead = v->type == ESP_JV_FALSE;
        if (p->dead) {
            esp_schema_why(s, v, "allows nothing");
        }
        return ESP_OK;
    }
    esp_status status = esp_schema_via(s, v, up, false, &via);
    if (status == ESP_OK) {
        status = esp_schema_read(s, v, &leaf);
    }
    if (status != ESP_OK) {
        return status;
    }
    via->counts = (up != NULL && up->counts) || leaf->rest_members != NULL || leaf->rest_items != NULL;
    if (via->counts) {
        status = add_seen(s, p, leaf, via);
    } else if (esp_schema_is_done(p, v, ESP_ITEM_LEAF)) {
        return ESP_OK;
    }
    if (esp_schema_is_done(p, v, ESP_ITEM_NOT)) {
        p->dead = true;
        return status;
    }
    if (status == ESP_OK) {
        status = esp_schema_done(s, p, (struct esp_item){v, ESP_ITEM_LEAF});
    }
    return status == ESP_OK && !p->dead ? add_applicators(s, p, leaf, via) : status;
}

static bool is_scalar(const struct esp_jv *v)
{
    return v->type != ESP_JV_ARRAY && v->type != ESP_JV_OBJECT;
}

/* Values to differ from: scalars in one go by the atoms, the others one by one. */
static esp_status take_unlisted(struct esp_schema *s, struct esp_partial *p, const struct esp_todo *todo)
{
    esp_status status = esp_schema_done(s, p, todo->item);
    for (const struct esp_jv *v = todo->item.v->child; v != NULL && status == ESP_OK; v = v->next) {
        if (!is_scalar(v)) {
            status = esp_schema_todo(s, p, (struct esp_item){v, ESP_ITEM_UNEQUAL}, todo->via);
        }
    }
    return status;
}

/* Does this item split the partial? */
static bool forks(const struct esp_todo *todo)
{
    switch (todo->item.kind) {
    case ESP_ITEM_SCHEMA: return todo->item.v->type == ESP_JV_ARRAY;
    case ESP_ITEM_UNEQUAL: return !is_scalar(todo->item.v);
    default: return todo->item.kind == ESP_ITEM_NOT || todo->item.kind == ESP_ITEM_IF;
    }
}

/* Works on p until it is finished, dead, or split into copies on the stack. */
static esp_status advance(struct esp_schema *s, struct esp_partial *p, struct esp_partial **stack,
                          uint32_t *n_alternatives)
{
    esp_status status = ESP_OK;
    while (p->todo != NULL && !p->dead && status == ESP_OK) {
        struct esp_todo todo = *p->todo;
        p->todo = todo.next;
        if (forks(&todo)) {
            struct esp_fork fork = {.n_alternatives = n_alternatives};
            status = esp_schema_branch(s, p, &todo, &fork);
            if (fork.first != NULL) {
                *fork.link = *stack;
                *stack = fork.first;
            }
            return status;
        }
        if (todo.item.kind == ESP_ITEM_SCHEMA) {
            status = take_schema(s, p, todo.item.v, todo.via);
        } else if (todo.item.kind == ESP_ITEM_UNLISTED) {
            status = take_unlisted(s, p, &todo);
        } else {
            status = esp_schema_done(s, p, todo.item);
        }
    }
    return status == ESP_OK && !p->dead ? esp_schema_finish(s, p) : status;
}

/* Multiplies out a conjunction, which gives atoms to the current node. */
static esp_status expand(struct esp_schema *s, const struct esp_item *items, uint32_t n)
{
    struct esp_partial *stack = esp_arena_alloc(&s->arena, 1, sizeof *stack);
    uint32_t n_alternatives = 0;
    if (stack == NULL) {
        return esp_schema_memory(s);
    }
    esp_status status = ESP_OK;
    stack->types = ESP_TYPE_ALL;
    for (uint32_t idx = n; idx-- > 0 && status == ESP_OK;) {
        status = esp_schema_todo(s, stack, items[idx], NULL);
    }
    while (stack != NULL && status == ESP_OK) {
        struct esp_partial *p = stack;
        stack = p->next;
        if (s->x->fuel < 100) {
            return esp_schema_fail(s, ESP_ELIMIT, s->root, "needs more steps than a compile may take");
        }
        s->x->fuel -= 100;
        status = advance(s, p, &stack, &n_alternatives);
    }
    return status;
}

esp_status esp_schema_expand(struct esp_schema *s, uint32_t node)
{
    s->current = node;
    return expand(s, s->nodes[node].items, s->nodes[node].n_items);
}

esp_status esp_schema_contents(struct esp_schema *s, struct esp_item item, uint32_t *ret_contents)
{
    uint32_t known = esp_bytesmap_get(&s->contents_map, &item, sizeof item);
    if (known != ESP_MAP_NONE) {
        *ret_contents = known;
        return ESP_OK;
    }
    struct esp_item *key = esp_arena_alloc(&s->arena, 1, sizeof *key);
    if (key == NULL) {
        return esp_schema_memory(s);
    }
    *key = item;
    s->bare = true; /* objects and arrays are left out, so that this does not come back here */
    s->bare_contents = ESP_EXPR_EMPTY;
    esp_status status = expand(s, key, 1);
    s->bare = false;
    if (status == ESP_OK && esp_bytesmap_put(&s->contents_map, key, sizeof *key, s->bare_contents) != ESP_OK) {
        status = esp_schema_memory(s);
    }
    if (status == ESP_OK) {
        *ret_contents = s->bare_contents;
    }
    return status;
}

bool esp_schema_false(const struct esp_schema *s, uint32_t node)
{
    const struct esp_item *items = s->nodes[node].items;
    for (uint32_t idx = 0; idx < s->nodes[node].n_items; idx++) {
        if (items[idx].v->type == (items[idx].kind == ESP_ITEM_SCHEMA ? ESP_JV_FALSE : ESP_JV_TRUE) &&
            (items[idx].kind == ESP_ITEM_SCHEMA || items[idx].kind == ESP_ITEM_NOT)) {
            return true;
        }
        for (uint32_t at = 0; at < idx; at++) {
            if (items[at].v == items[idx].v && items[at].kind + items[idx].kind == ESP_ITEM_SCHEMA + ESP_ITEM_NOT) {
                return true;
            }
        }
    }
    return false;
}
