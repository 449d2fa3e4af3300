/* Tables of keys and the steps of their states. See objects.h. */
#include "grammar/objects.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/vec.h"
#include "runtime/base/utf8.h"

#define NO_KEY UINT32_MAX

struct node {
    uint32_t cp;             /* the character that led here */
    uint32_t child, sibling; /* 0 = none; siblings in the order of their characters */
    uint32_t key;            /* the key that ends here, or NO_KEY */
    bool ends;               /* a key ends here, perhaps one that cannot be written */
    uint32_t begin, end;     /* keys of the subtree: sorted[begin … end) */
};
struct object {
    struct esp_members m; /* keys in the arena */
    struct node *nodes;
    uint32_t n_nodes, nodes_cap;
    uint32_t *sorted; /* [n_keys] keys by their text */
    uint32_t *place;  /* [n_keys] where each is in sorted */
    uint32_t *needed; /* [n_keys + 1] how many required keys come at or after */
    uint32_t *limit;  /* [n_keys + 1] the first required key at or after, n_keys when there is none */
    uint32_t free;    /* any text, the closing quote and what follows it in a member that is not declared */
};
struct esp_objects {
    struct object *items;
    uint32_t n, cap;
    struct esp_unique *uniques;
    uint32_t n_uniques, uniques_cap;
    struct esp_arena arena;
    size_t bytes;
};

struct esp_objects *esp_objects_create(void)
{
    struct esp_objects *objects = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *objects);
    if (objects != NULL) {
        esp_arena_init(&objects->arena, ESP_TAG_GRAMMAR, SIZE_MAX / 2);
    }
    return objects;
}

void esp_objects_destroy(struct esp_objects *objects)
{
    if (objects == NULL) {
        return;
    }
    for (uint32_t idx = 0; idx < objects->n; idx++) {
        esp_free(objects->items[idx].nodes);
    }
    esp_free(objects->items);
    esp_free(objects->uniques);
    esp_arena_finish(&objects->arena);
    esp_free(objects);
}

size_t esp_objects_bytes(const struct esp_objects *objects)
{
    return objects == NULL ? 0
                           : sizeof *objects + objects->arena.used_bytes + objects->bytes +
                                 (size_t)objects->cap * sizeof *objects->items +
                                 (size_t)objects->uniques_cap * sizeof *objects->uniques;
}

const struct esp_key *esp_objects_keys(const struct esp_objects *objects, uint32_t object, uint32_t *ret_n)
{
    *ret_n = objects->items[object].m.n_keys;
    return objects->items[object].m.keys;
}

bool esp_objects_add_unique(struct esp_objects *objects, const struct esp_unique *unique, uint32_t *ret_array)
{
    size_t n_bytes = unique->n * sizeof *unique->values;
    uint32_t *values = esp_arena_alloc(&objects->arena, (size_t)unique->n + 1, sizeof *values);
    if (values == NULL || !esp_vec_grow(&objects->uniques, &objects->uniques_cap, (uint64_t)objects->n_uniques + 1)) {
        return false;
    }
    if (n_bytes > 0) {
        memcpy(values, unique->values, n_bytes);
    }
    objects->uniques[objects->n_uniques] = *unique;
    objects->uniques[objects->n_uniques].values = values;
    *ret_array = objects->n_uniques++;
    return true;
}

const struct esp_unique *esp_objects_unique(const struct esp_objects *objects, uint32_t array)
{
    return &objects->uniques[array];
}

/* ---- Building ---------------------------------------------------------------------------------- */

struct sorted_key {
    const char *name;
    uint32_t n_bytes, key;
};

static int compare_keys(const void *a, const void *b)
{
    const struct sorted_key *x = a, *y = b;
    uint32_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    int order = n == 0 ? 0 : memcmp(x->name, y->name, n);
    return order != 0 ? order : x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* The child of `at` for cp: the last child, or a new one after it. 0 when out of memory. */
static uint32_t child_for(struct object *o, uint32_t at, uint32_t cp, uint32_t *last_child)
{
    uint32_t last = last_child[at];
    if (last != 0 && o->nodes[last].cp == cp) {
        return last;
    }
    if (!esp_vec_grow(&o->nodes, &o->nodes_cap, (uint64_t)o->n_nodes + 1)) {
        return 0;
    }
    o->nodes[o->n_nodes] = (struct node){.cp = cp, .key = NO_KEY, .begin = UINT32_MAX};
    if (last == 0) {
        o->nodes[at].child = o->n_nodes;
    } else {
        o->nodes[last].sibling = o->n_nodes;
    }
    last_child[at] = o->n_nodes;
    return o->n_nodes++;
}

/* Adds a key, number `idx` of those that can be written; false when out of memory. */
static bool add_path(struct object *o, const struct sorted_key *key, uint32_t idx, uint32_t *last_child)
{
    uint32_t at = 0, cp;
    for (uint32_t pos = 0;;) {
        struct node *node = &o->nodes[at];
        if (key->key != NO_KEY) {
            node->begin = idx < node->begin ? idx : node->begin;
            node->end = idx + 1;
        }
        if (pos == key->n_bytes) {
            node->key = key->key;
            node->ends = true;
            return true;
        }
        int used = esp_utf8_decode(key->name + pos, key->n_bytes - pos, &cp);
        at = child_for(o, at, cp, last_child);
        if (at == 0 || used <= 0) {
            return false;
        }
        pos += (uint32_t)used;
    }
}

/* sorted: all keys, those that cannot be written without a number. */
static bool build_trie(struct object *o, struct esp_arena *arena, struct sorted_key *sorted, uint32_t n_sorted)
{
    uint64_t n_bytes = 1;
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < n_sorted; idx++) {
        n_bytes += sorted[idx].n_bytes;
    }
    uint32_t *last_child = esp_calloc(ESP_TAG_GRAMMAR, n_bytes, sizeof *last_child);
    o->sorted = esp_arena_alloc(arena, (size_t)o->m.n_keys + 1, sizeof *o->sorted);
    o->place = esp_arena_alloc(arena, (size_t)o->m.n_keys + 1, sizeof *o->place);
    bool ok = last_child != NULL && o->sorted != NULL && o->place != NULL && esp_vec_grow(&o->nodes, &o->nodes_cap, 1);
    if (ok) {
        o->nodes[0] = (struct node){.key = NO_KEY, .begin = UINT32_MAX};
        o->n_nodes = 1;
        qsort(sorted, n_sorted, sizeof *sorted, compare_keys);
    }
    for (uint32_t idx = 0; ok && idx < n_sorted; idx++) {
        if (sorted[idx].key != NO_KEY) {
            o->sorted[n] = sorted[idx].key;
            o->place[sorted[idx].key] = n;
        }
        ok = add_path(o, &sorted[idx], n, last_child);
        n += sorted[idx].key != NO_KEY;
    }
    esp_free(last_child);
    return ok;
}

static bool count_needed(struct object *o, struct esp_arena *arena)
{
    uint32_t n = o->m.n_keys;
    o->needed = esp_arena_alloc(arena, (size_t)n + 1, sizeof *o->needed);
    o->limit = esp_arena_alloc(arena, (size_t)n + 1, sizeof *o->limit);
    if (o->needed == NULL || o->limit == NULL) {
        return false;
    }
    o->needed[n] = o->m.n_last;
    o->limit[n] = n;
    for (uint32_t idx = n; idx-- > 0;) {
        o->needed[idx] = o->needed[idx + 1] + o->m.keys[idx].required;
        o->limit[idx] = o->m.keys[idx].required ? idx : o->limit[idx + 1];
    }
    return true;
}

/* Is there a spelling of the key? Nearly all are plain characters. */
static bool spellable(struct esp_exprs *x, enum esp_spelling spelling, const struct esp_key *key)
{
    for (uint32_t at = 0; at < key->n_bytes; at++) {
        unsigned char c = (unsigned char)key->name[at];
        if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\' || !esp_byteset_has(&x->alphabet, c)) {
            return esp_spell_text(x, spelling, key->name, key->n_bytes, ESP_EXPR_EPS) != ESP_EXPR_EMPTY;
        }
    }
    return true;
}

/* Copies the keys that can be written, and lists all of them. False when out of memory; *ret_fits: no required key
 * is missing. */
static bool copy_keys(struct esp_exprs *x, struct object *o, struct esp_arena *arena, struct sorted_key *sorted,
                      bool *ret_fits)
{
    struct esp_key *keys = esp_arena_alloc(arena, (size_t)o->m.n_keys + 1, sizeof *keys);
    uint32_t n = 0;
    *ret_fits = true;
    if (keys == NULL) {
        return false;
    }
    for (uint32_t idx = 0; idx < o->m.n_keys; idx++) {
        struct esp_key key = o->m.keys[idx];
        sorted[idx] = (struct sorted_key){key.name, key.n_bytes, NO_KEY};
        if (key.after == ESP_EXPR_EMPTY || !spellable(x, o->m.spelling, &key)) {
            *ret_fits = *ret_fits && !key.required;
            continue;
        }
        key.name = esp_arena_strndup(arena, key.name, key.n_bytes);
        if (key.name == NULL) {
            return false;
        }
        sorted[idx].key = n;
        keys[n++] = key;
    }
    o->m.keys = keys;
    o->m.n_keys = n;
    return true;
}

/* All tables of the keys. False when out of memory. */
static bool build_keys(struct esp_exprs *x, struct object *o, struct esp_arena *arena, bool *ret_fits)
{
    uint32_t n_sorted = o->m.n_keys;
    struct sorted_key *sorted = esp_calloc(ESP_TAG_GRAMMAR, (size_t)n_sorted + 1, sizeof *sorted);
    bool ok = sorted != NULL && copy_keys(x, o, arena, sorted, ret_fits) && count_needed(o, arena) &&
              build_trie(o, arena, sorted, n_sorted);
    esp_free(sorted);
    return ok;
}

/* ---- States ------------------------------------------------------------------------------------ */

/* The keys that may come next: an interval of their order. False when there is none. */
static bool next_keys(const struct object *o, uint32_t from, uint32_t count, uint32_t *ret_first, uint32_t *ret_last)
{
    uint32_t n = o->m.n_keys, first = from, last = o->limit[from];
    if (last == n) {
        last = n - 1; /* wraps for no keys; n > from is asked below */
    }
    if (from >= n || count >= o->m.max) {
        return false;
    }
    if (o->needed[from] > 0 && o->m.max - count <= o->needed[from]) {
        first = o->limit[from]; /* no room for optional ones */
    }
    if (o->m.other == ESP_EXPR_EMPTY && o->m.min > count) {
        /* so many keys from there on are still enough */
        uint64_t most = (uint64_t)n + count + o->m.n_last - o->m.min;
        last = most < last ? (uint32_t)most : last;
    }
    *ret_first = first;
    *ret_last = last;
    return first <= last;
}

static bool may_close(const struct object *o, uint32_t from, uint32_t count)
{
    return o->needed[from] == 0 && count >= o->m.min;
}

/* The last members, and the end. */
static uint32_t last_member(struct esp_exprs *x, const struct object *o, uint32_t from, uint32_t count)
{
    uint64_t total = (uint64_t)count + o->m.n_last;
    bool now = o->m.n_last > 0 && o->needed[from] == o->m.n_last && total <= o->m.max && total >= o->m.min;
    return now ? esp_expr_cat(x, o->m.last, o->m.close) : ESP_EXPR_EMPTY;
}

/* Is one of the keys first … last in the subtree? Looks through the smaller of the two. */
static bool in_subtree(const struct object *o, const struct node *node, uint32_t first, uint32_t last)
{
    if (node->end - node->begin <= last - first) {
        for (uint32_t at = node->begin; at < node->end; at++) {
            if (o->sorted[at] >= first && o->sorted[at] <= last) {
                return true;
            }
        }
        return false;
    }
    for (uint32_t key = first; key <= last; key++) {
        if (o->place[key] >= node->begin && o->place[key] < node->end) {
            return true;
        }
    }
    return false;
}

static uint32_t counted(const struct object *o, uint32_t count)
{
    return o->m.max == ESP_EXPR_INF && count > o->m.min ? o->m.min : count;
}

static uint32_t rest(struct esp_exprs *x, uint32_t object, uint32_t from, uint32_t count)
{
    return esp_expr_keys(x, object, ESP_KEYS_REST, from, counted(&x->objects->items[object], count));
}

/* A member: one of the keys that may come next, or another one. */
static uint32_t one_member(struct esp_exprs *x, uint32_t object, uint32_t from, uint32_t count)
{
    const struct object *o = &x->objects->items[object];
    uint32_t ids[3] = {ESP_EXPR_EMPTY, ESP_EXPR_EMPTY, last_member(x, o, from, count)}, first, last;
    if (next_keys(o, from, count, &first, &last)) {
        ids[0] = esp_expr_cat(x, esp_expr_byte(x, '"'), esp_expr_keys(x, object, 1, from, count));
    }
    bool room = o->m.max - count > o->m.n_last; /* the count is never above the greatest */
    if (o->m.other != ESP_EXPR_EMPTY && o->needed[from] == o->m.n_last && room) {
        ids[1] = esp_expr_cat(x, o->m.other, rest(x, object, o->m.n_keys, count + 1));
    }
    return esp_expr_alt(x, ids, 3);
}

uint32_t esp_keys_expand(struct esp_exprs *x, const struct esp_expr *e)
{
    const struct object *o = &x->objects->items[e->a];
    uint32_t comma = o->m.comma, close = may_close(o, e->c, e->d) ? o->m.close : ESP_EXPR_EMPTY;
    return esp_expr_alt2(x, close, esp_expr_cat(x, comma, one_member(x, e->a, e->c, e->d)));
}

/* ---- Keys that are not declared ----------------------------------------------------------------- */

static uint32_t other_state(struct esp_exprs *x, uint32_t object, uint32_t node)
{
    return esp_expr_keys(x, object, node + 1, ESP_KEYS_OTHER, 0);
}

uint32_t esp_keys_free(const struct esp_exprs *x, const struct esp_expr *e)
{
    return e->b != ESP_KEYS_REST && e->c == ESP_KEYS_OTHER ? x->objects->items[e->a].free : ESP_EXPR_EMPTY;
}

/* Characters first … last, of which `byte` is the first byte, and then free text; pushed. */
static void push_gap(struct esp_exprs *x, const struct object *o, unsigned byte, uint32_t first, uint32_t last)
{
    if (first < 0xD800 && last > 0xDFFF) {
        push_gap(x, o, byte, first, 0xD7FF);
        first = 0xE000;
    }
    first = byte >= 0x80 && first < 0x80 ? 0x80 : first;
    if (first > last || (first >= 0xD800 && last <= 0xDFFF)) {
        return;
    }
    struct esp_cprange range = {first, last};
    struct esp_cpset set = {.r = &range, .n = 1};
    uint32_t begun = esp_expr_deriv(x, esp_spell_set(x, o->m.spelling, &set), byte);
    esp_exprs_push(x, esp_expr_cat(x, begun, o->free));
}

/* After a byte that may begin several characters (a lead byte, a backslash): those of the keys, and all others. */
static uint32_t other_spelled(struct esp_exprs *x, uint32_t object, const struct node *node, unsigned byte)
{
    const struct object *o = &x->objects->items[object];
    uint32_t mark = x->n_scratch, next = 0;
    for (uint32_t at = node->child; at != 0 && x->failed == ESP_OK; at = o->nodes[at].sibling) {
        uint32_t cp = o->nodes[at].cp, begun = esp_expr_deriv(x, esp_spell_char(x, o->m.spelling, cp), byte);
        esp_exprs_push(x, esp_expr_cat(x, begun, other_state(x, object, at)));
        if (cp > next) {
            push_gap(x, o, byte, next, cp - 1);
        }
        next = cp + 1;
    }
    push_gap(x, o, byte, next, 0x10FFFF);
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

/* May a spelling of the character begin with this byte, which is no plain one? */
static bool may_begin(const struct object *o, uint32_t cp, unsigned byte)
{
    bool escaped = cp < 0x20 || cp == '"' || cp == '\\' || cp == '/';
    return byte == '\\' ? escaped || o->m.spelling == ESP_SPELL_JSON_ANY : byte >= 0x80 && cp >= 0x80;
}

static uint32_t other_deriv(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    const struct object *o = &x->objects->items[e->a];
    const struct node *node = &o->nodes[e->b - 1];
    if (byte == '"') {
        return node->ends ? ESP_EXPR_EMPTY : o->m.other_after;
    }
    bool plain = byte >= 0x20 && byte < 0x80 && byte != '\\', apart = true;
    for (uint32_t at = node->child; at != 0; at = o->nodes[at].sibling) {
        if (plain && o->nodes[at].cp == byte) {
            return other_state(x, e->a, at);
        }
        apart = apart && !may_begin(o, o->nodes[at].cp, byte);
    }
    return apart ? esp_expr_step(x, o->free, byte) : other_spelled(x, e->a, node, byte);
}

/* Inside of a declared key. */
static uint32_t key_deriv(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    const struct object *o = &x->objects->items[e->a];
    uint32_t first, last, mark = x->n_scratch;
    const struct node *node = &o->nodes[e->b - 1];
    if (!next_keys(o, e->c, e->d, &first, &last)) {
        return ESP_EXPR_EMPTY;
    }
    if (byte == '"') {
        bool ends = node->key != NO_KEY && node->key >= first && node->key <= last;
        return !ends ? ESP_EXPR_EMPTY
                     : esp_expr_cat(x, o->m.keys[node->key].after, rest(x, e->a, node->key + 1, e->d + 1));
    }
    bool plain = byte >= 0x20 && byte < 0x80 && byte != '\\'; /* spells itself and nothing else */
    for (uint32_t at = node->child; at != 0 && x->failed == ESP_OK; at = o->nodes[at].sibling) {
        const struct node *child = &o->nodes[at];
        if ((plain && child->cp != byte) || !in_subtree(o, child, first, last)) {
            continue;
        }
        uint32_t begun = esp_expr_deriv(x, esp_spell_char(x, o->m.spelling, child->cp), byte);
        if (begun != ESP_EXPR_EMPTY) {
            esp_exprs_push(x, esp_expr_cat(x, begun, esp_expr_keys(x, e->a, at + 1, e->c, e->d)));
        }
    }
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

uint32_t esp_keys_deriv(struct esp_exprs *x, const struct esp_expr *e, unsigned byte)
{
    if (e->b == ESP_KEYS_REST) {
        return esp_expr_deriv(x, esp_keys_expand(x, e), byte);
    }
    return e->c == ESP_KEYS_OTHER ? other_deriv(x, e, byte) : key_deriv(x, e, byte);
}

void esp_keys_bytes(const struct esp_exprs *x, const struct esp_expr *e, struct esp_byteset *ret_set)
{
    const struct object *o = &x->objects->items[e->a];
    const struct node *node = &o->nodes[e->b - 1];
    memset(ret_set, 0, sizeof *ret_set);
    esp_byteset_add(ret_set, '"', '"');
    esp_byteset_add(ret_set, '\\', '\\');
    for (uint32_t at = node->child; at != 0; at = o->nodes[at].sibling) {
        uint32_t cp = o->nodes[at].cp;
        if (cp < 0x80) {
            esp_byteset_add(ret_set, cp, cp);
        } else {
            esp_byteset_add(ret_set, 0xC2, 0xF4);
        }
    }
}

/* The other members of a new object: any key but the declared ones. */
static void add_others(struct esp_exprs *x, struct object *o, uint32_t object)
{
    uint32_t quote = esp_expr_byte(x, '"'), any = esp_spell_any(x, o->m.spelling);
    o->free = esp_expr_cat(x, any, esp_expr_cat(x, quote, o->m.other_after));
    if (o->free == ESP_EXPR_EMPTY) {
        return;
    }
    bool keys = o->n_nodes > 1 || o->nodes[0].ends;
    bool none = o->nodes[0].ends && any == ESP_EXPR_EPS; /* no character can be written, and "" is declared */
    uint32_t begun = none ? ESP_EXPR_EMPTY : keys ? esp_expr_keys(x, object, 1, ESP_KEYS_OTHER, 0) : o->free;
    o->m.other = esp_expr_cat(x, quote, begun);
}

uint32_t esp_objects_add(struct esp_exprs *x, const struct esp_members *members)
{
    struct esp_objects *objects = x->objects;
    struct object o = {.m = *members};
    bool fits;
    if (objects == NULL || !esp_vec_grow(&objects->items, &objects->cap, (uint64_t)objects->n + 1) ||
        !build_keys(x, &o, &objects->arena, &fits)) {
        esp_free(o.nodes);
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    uint32_t object = objects->n++;
    if (o.m.other_after != ESP_EXPR_EMPTY) {
        add_others(x, &o, object);
    }
    bool enough = o.m.other != ESP_EXPR_EMPTY || o.m.n_keys + o.m.n_last >= o.m.min;
    objects->items[object] = o;
    objects->bytes += (size_t)o.nodes_cap * sizeof *o.nodes;
    if (!fits || !enough || o.needed[0] > o.m.max || o.m.min > o.m.max) {
        return ESP_EXPR_EMPTY;
    }
    uint32_t close = may_close(&o, 0, 0) ? o.m.close : ESP_EXPR_EMPTY;
    return esp_expr_alt2(x, close, one_member(x, object, 0, 0));
}
