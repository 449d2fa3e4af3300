/* Expressions: storage, hash-consing and the constructors that keep them in normal form.
 *
 * Normal form: CAT leans right and has no EPS; ALT and AND are flat, sorted, without repeats; the
 * one-byte members of an ALT are one SET; an ALT with Σ* is Σ*. Nothing here recurses.
 * Thread: the owner's. Derivatives are in deriv.c, emptiness of AND and LEN in live.c.
 */
#include "grammar/expr.h"

#include <stdlib.h>

#include "grammar/live.h"
#include "grammar/vec.h"
#include "runtime/base/rng.h"

esp_status esp_exprs_fail(struct esp_exprs *x, esp_status status)
{
    if (x->failed == ESP_OK) {
        x->failed = status;
    }
    return x->failed;
}

bool esp_exprs_push(struct esp_exprs *x, uint32_t value)
{
    if (!esp_vec_grow(&x->scratch, &x->scratch_cap, (uint64_t)x->n_scratch + 1)) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return false;
    }
    x->scratch[x->n_scratch++] = value;
    return true;
}

void esp_exprs_init(struct esp_exprs *x, const struct esp_byteset *alphabet, uint64_t fuel, size_t cap_bytes)
{
    *x = (struct esp_exprs){.fuel = fuel};
    if (alphabet != NULL) {
        x->alphabet = *alphabet;
    } else {
        esp_byteset_add(&x->alphabet, 0, 255);
    }
    esp_arena_init(&x->arena, ESP_TAG_GRAMMAR, cap_bytes);
    esp_nums_init(&x->nums);
    if (!esp_vec_grow(&x->exprs, &x->exprs_cap, 64) || !esp_vec_grow(&x->rows, &x->rows_cap, 16)) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return;
    }
    x->exprs[ESP_EXPR_EMPTY] = (struct esp_expr){.op = ESP_X_EMPTY};
    x->exprs[ESP_EXPR_EPS] = (struct esp_expr){.op = ESP_X_EPS, .flags = ESP_EXPR_NULLABLE};
    x->n_exprs = 2;
    x->rows[0] = NULL;
    x->n_rows = 1;
}

void esp_exprs_finish(struct esp_exprs *x)
{
    esp_free(x->exprs);
    esp_free(x->table);
    esp_free(x->lists);
    esp_free(x->rows);
    esp_free(x->scratch);
    esp_nums_finish(&x->nums);
    esp_arena_finish(&x->arena);
    *x = (struct esp_exprs){0};
}

size_t esp_exprs_bytes(const struct esp_exprs *x)
{
    return (size_t)x->exprs_cap * sizeof *x->exprs + (size_t)x->table_cap * 4 + (size_t)x->lists_cap * 4 +
           (size_t)x->rows_cap * sizeof *x->rows + (size_t)x->scratch_cap * 4 + x->arena.used_bytes +
           esp_nums_bytes(&x->nums);
}

/* ---- Hash-consing ----------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return esp_rng_mix(hash ^ (value + 0x9e3779b97f4a7c15u));
}

/* SET, ALT, AND and TOKEN keep what they are made of in lists. */
static bool is_list(const struct esp_expr *e)
{
    return e->op == ESP_X_SET || e->op == ESP_X_ALT || e->op == ESP_X_AND || e->op == ESP_X_TOKEN;
}

static uint64_t hash_expr(const struct esp_exprs *x, const struct esp_expr *e)
{
    uint64_t hash = mix(e->op, (uint64_t)e->c << 32 | e->d);
    if (is_list(e)) {
        for (uint32_t idx = 0; idx < e->b; idx++) {
            hash = mix(hash, x->lists[e->a + idx]);
        }
        return hash;
    }
    return mix(hash, (uint64_t)e->a << 32 | e->b);
}

static bool equal_expr(const struct esp_exprs *x, const struct esp_expr *e, const struct esp_expr *f)
{
    if (e->op != f->op || e->b != f->b || e->c != f->c || e->d != f->d) {
        return false;
    }
    if (is_list(e)) {
        return memcmp(&x->lists[e->a], &x->lists[f->a], (size_t)e->b * 4) == 0;
    }
    return e->a == f->a;
}

static bool rehash(struct esp_exprs *x, uint32_t cap)
{
    uint32_t *table = esp_calloc(ESP_TAG_GRAMMAR, cap, sizeof *table);
    if (table == NULL) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return false;
    }
    for (uint32_t id = 2; id < x->n_exprs; id++) {
        uint64_t at = hash_expr(x, &x->exprs[id]) & (cap - 1);
        while (table[at] != 0) {
            at = (at + 1) & (cap - 1);
        }
        table[at] = id;
    }
    esp_free(x->table);
    x->table = table;
    x->table_cap = cap;
    return true;
}

uint32_t esp_expr_intern(struct esp_exprs *x, struct esp_expr e)
{
    bool list = is_list(&e);
    if (x->failed != ESP_OK) {
        return ESP_EXPR_EMPTY;
    }
    if (x->fuel == 0 || e.height > ESP_EXPR_HEIGHT_MAX || x->n_exprs >= ESP_EXPRS_MAX) {
        esp_exprs_fail(x, ESP_ELIMIT);
        return ESP_EXPR_EMPTY;
    }
    x->fuel--;
    if ((uint64_t)x->n_exprs * 4 >= (uint64_t)x->table_cap * 3 &&
        !rehash(x, x->table_cap == 0 ? 256 : x->table_cap * 2)) {
        return ESP_EXPR_EMPTY;
    }
    uint64_t at = hash_expr(x, &e) & (x->table_cap - 1);
    while (x->table[at] != 0) {
        if (equal_expr(x, &x->exprs[x->table[at]], &e)) {
            if (list) {
                x->n_lists = e.a;
            }
            return x->table[at];
        }
        at = (at + 1) & (x->table_cap - 1);
    }
    if (!esp_vec_grow(&x->exprs, &x->exprs_cap, (uint64_t)x->n_exprs + 1)) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    x->table[at] = x->n_exprs;
    x->exprs[x->n_exprs] = e;
    return x->n_exprs++;
}

esp_status esp_exprs_copy(struct esp_exprs *x, const struct esp_exprs *from, size_t cap_bytes)
{
    *x = (struct esp_exprs){.fuel = UINT64_MAX,
                            .lens = from->lens,
                            .objects = from->objects,
                            .alphabet = from->alphabet,
                            .json_any = from->json_any,
                            .raw_any = from->raw_any,
                            .budgets = from->budgets};
    esp_arena_init(&x->arena, ESP_TAG_GRAMMAR, cap_bytes);
    esp_nums_init(&x->nums);
    if (!esp_vec_grow(&x->exprs, &x->exprs_cap, from->n_exprs) ||
        !esp_vec_grow(&x->lists, &x->lists_cap, (uint64_t)from->n_lists + 1) ||
        !esp_vec_grow(&x->rows, &x->rows_cap, 16) || esp_nums_copy(&x->nums, &from->nums) != ESP_OK) {
        return esp_exprs_fail(x, ESP_ENOMEM);
    }
    memcpy(x->exprs, from->exprs, (size_t)from->n_exprs * sizeof *x->exprs);
    if (from->n_lists > 0) {
        memcpy(x->lists, from->lists, (size_t)from->n_lists * sizeof *x->lists);
    }
    x->n_exprs = from->n_exprs;
    x->n_lists = from->n_lists;
    x->rows[0] = NULL;
    x->n_rows = 1;
    for (uint32_t id = 0; id < x->n_exprs; id++) {
        x->exprs[id].row = 0;
    }
    uint32_t cap = 256;
    while ((uint64_t)cap * 3 < (uint64_t)x->n_exprs * 5) {
        cap *= 2;
    }
    rehash(x, cap);
    return x->failed;
}

/* ---- Constructors ----------------------------------------------------------------------------- */

bool esp_exprs_list(struct esp_exprs *x, const uint32_t *values, uint32_t n)
{
    if (!esp_vec_grow(&x->lists, &x->lists_cap, (uint64_t)x->n_lists + n)) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return false;
    }
    memcpy(x->lists + x->n_lists, values, (size_t)n * sizeof *values);
    x->n_lists += n;
    return true;
}

uint32_t esp_expr_set(struct esp_exprs *x, const struct esp_byteset *set)
{
    struct esp_byteset spelled;
    uint32_t words[8];
    for (int word = 0; word < 4; word++) {
        spelled.w[word] = set->w[word] & x->alphabet.w[word];
    }
    if ((spelled.w[0] | spelled.w[1] | spelled.w[2] | spelled.w[3]) == 0) {
        return ESP_EXPR_EMPTY;
    }
    memcpy(words, spelled.w, sizeof words);
    uint32_t at = x->n_lists;
    if (!esp_exprs_list(x, words, 8)) {
        return ESP_EXPR_EMPTY;
    }
    return esp_expr_intern(
        x, (struct esp_expr){.op = ESP_X_SET, .flags = ESP_EXPR_BYTES, .height = 1, .a = at, .b = 8});
}

struct esp_byteset esp_expr_byteset(const struct esp_exprs *x, uint32_t id)
{
    struct esp_byteset set;
    memcpy(set.w, &x->lists[x->exprs[id].a], sizeof set.w);
    return set;
}

uint32_t esp_expr_range(struct esp_exprs *x, unsigned first, unsigned last)
{
    struct esp_byteset set = {{0}};
    esp_byteset_add(&set, first, last);
    return esp_expr_set(x, &set);
}

uint32_t esp_expr_byte(struct esp_exprs *x, unsigned byte)
{
    return esp_expr_range(x, byte, byte);
}

uint32_t esp_expr_text(struct esp_exprs *x, const char *text)
{
    uint32_t id = ESP_EXPR_EPS;
    for (size_t at = strlen(text); at-- > 0;) {
        id = esp_expr_cat(x, esp_expr_byte(x, (unsigned char)text[at]), id);
    }
    return id;
}

static uint32_t cat_pair(struct esp_exprs *x, uint32_t a, uint32_t b)
{
    if (a == ESP_EXPR_EMPTY || b == ESP_EXPR_EMPTY) {
        return ESP_EXPR_EMPTY;
    }
    if (a == ESP_EXPR_EPS) {
        return b;
    }
    if (b == ESP_EXPR_EPS) {
        return a;
    }
    const struct esp_expr *ea = &x->exprs[a], *eb = &x->exprs[b];
    unsigned flags = (ea->flags & ESP_EXPR_FIRSTS) | ((ea->flags | eb->flags) & ESP_EXPR_NO_TEXT);
    if (ea->flags & ESP_EXPR_NULLABLE) {
        flags |= eb->flags & (ESP_EXPR_FIRSTS | ESP_EXPR_NULLABLE);
    }
    /* b is looked at only when a may be empty, and then in a loop along the chain. */
    unsigned height = ea->height + 1u;
    if (ea->flags & ESP_EXPR_NULLABLE) {
        unsigned below = eb->op == ESP_X_CAT ? eb->height : eb->height + 1u;
        height = below > height ? below : height;
    }
    return esp_expr_intern(
        x, (struct esp_expr){.op = ESP_X_CAT, .flags = (uint8_t)flags, .height = (uint16_t)height, .a = a, .b = b});
}

uint32_t esp_expr_cat(struct esp_exprs *x, uint32_t a, uint32_t b)
{
    uint32_t mark = x->n_scratch;
    if (b == ESP_EXPR_EMPTY) {
        return ESP_EXPR_EMPTY;
    }
    while (x->exprs[a].op == ESP_X_CAT) {
        if (!esp_exprs_push(x, x->exprs[a].a)) {
            return ESP_EXPR_EMPTY;
        }
        a = x->exprs[a].b;
    }
    uint32_t id = cat_pair(x, a, b);
    while (x->n_scratch > mark) {
        id = cat_pair(x, x->scratch[--x->n_scratch], id);
    }
    return id;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void sort_ids(uint32_t *ids, uint32_t n)
{
    uint32_t sorted = 1; /* newer expressions have larger ids, so lists often come in order */
    while (sorted < n && ids[sorted - 1] <= ids[sorted]) {
        sorted++;
    }
    if (sorted >= n) {
        return;
    }
    if (n > 32) {
        qsort(ids, n, sizeof *ids, compare_ids);
        return;
    }
    for (uint32_t idx = 1; idx < n; idx++) {
        uint32_t id = ids[idx], at = idx;
        for (; at > 0 && ids[at - 1] > id; at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
    }
}

static uint32_t unique_ids(uint32_t *ids, uint32_t n)
{
    uint32_t n_out = 0;
    for (uint32_t idx = 0; idx < n; idx++) {
        if (n_out == 0 || ids[n_out - 1] != ids[idx]) {
            ids[n_out++] = ids[idx];
        }
    }
    return n_out;
}

static uint32_t list_expr(struct esp_exprs *x, enum esp_expr_op op, const uint32_t *ids, uint32_t n)
{
    unsigned flags = op == ESP_X_AND ? ESP_EXPR_NULLABLE | ESP_EXPR_BYTES : 0, height = 0;
    for (uint32_t idx = 0; idx < n; idx++) {
        const struct esp_expr *e = &x->exprs[ids[idx]];
        flags = op == ESP_X_AND ? flags & (e->flags | ~(unsigned)ESP_EXPR_NULLABLE)
                                : flags | (e->flags & (ESP_EXPR_NULLABLE | ESP_EXPR_FIRSTS | ESP_EXPR_NO_TEXT));
        height = e->height > height ? e->height : height;
    }
    uint32_t at = x->n_lists;
    if (!esp_exprs_list(x, ids, n)) {
        return ESP_EXPR_EMPTY;
    }
    return esp_expr_intern(x,
                  (struct esp_expr){
                      .op = (uint8_t)op, .flags = (uint8_t)flags, .height = (uint16_t)(height + 1), .a = at, .b = n});
}

/* Copies the members of nested lists of the same op to scratch, byte sets apart. */
static void flatten(struct esp_exprs *x, enum esp_expr_op op, const uint32_t *ids, uint32_t n, struct esp_byteset *set,
                    bool *ret_set)
{
    for (uint32_t idx = 0; idx < n; idx++) {
        const struct esp_expr *e = &x->exprs[ids[idx]];
        if (e->op == op) {
            for (uint32_t inner = 0; inner < e->b; inner++) {
                uint32_t id = x->lists[e->a + inner];
                if (op == ESP_X_ALT && x->exprs[id].op == ESP_X_SET) {
                    struct esp_byteset more = esp_expr_byteset(x, id);
                    for (int w = 0; w < 4; w++) {
                        set->w[w] |= more.w[w];
                    }
                    *ret_set = true;
                } else {
                    esp_exprs_push(x, id);
                }
            }
        } else if (op == ESP_X_ALT && e->op == ESP_X_SET) {
            struct esp_byteset more = esp_expr_byteset(x, ids[idx]);
            for (int w = 0; w < 4; w++) {
                set->w[w] |= more.w[w];
            }
            *ret_set = true;
        } else if (ids[idx] != ESP_EXPR_EMPTY) {
            esp_exprs_push(x, ids[idx]);
        }
    }
}

static uint32_t alt_finish(struct esp_exprs *x, uint32_t mark)
{
    uint32_t *ids = x->scratch + mark, n = x->n_scratch - mark;
    uint32_t any = ESP_EXPR_EMPTY;
    bool nullable = false, text = true;
    sort_ids(ids, n);
    n = unique_ids(ids, n);
    for (uint32_t idx = 0; idx < n; idx++) {
        any = ids[idx] == x->json_any || ids[idx] == x->raw_any ? ids[idx] : any;
        text = text && (x->exprs[ids[idx]].flags & ESP_EXPR_NO_TEXT) == 0;
        nullable = nullable || (ids[idx] != ESP_EXPR_EPS && esp_expr_nullable(x, ids[idx]));
    }
    if (any != ESP_EXPR_EMPTY && text) {
        return any;
    }
    if (n > 1 && ids[0] == ESP_EXPR_EPS && nullable) {
        ids++;
        n--;
    }
    return n == 0 ? ESP_EXPR_EMPTY : n == 1 ? ids[0] : list_expr(x, ESP_X_ALT, ids, n);
}

uint32_t esp_expr_alt(struct esp_exprs *x, const uint32_t *ids, uint32_t n)
{
    uint32_t mark = x->n_scratch;
    struct esp_byteset set = {{0}};
    bool have_set = false;
    if (x->fuel < n) {
        esp_exprs_fail(x, ESP_ELIMIT);
        return ESP_EXPR_EMPTY;
    }
    /* ids may lie in scratch, which moves when it grows: room for everything is made first. */
    uint64_t need = x->n_scratch + 2;
    for (uint32_t idx = 0; idx < n; idx++) {
        need += x->exprs[ids[idx]].op == ESP_X_ALT ? x->exprs[ids[idx]].b : 1;
    }
    bool inside = x->scratch != NULL && ids >= x->scratch && ids < x->scratch + x->scratch_cap;
    ptrdiff_t at = inside ? ids - x->scratch : 0;
    if (!esp_vec_grow(&x->scratch, &x->scratch_cap, need)) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    x->fuel -= need - x->n_scratch - 2;
    flatten(x, ESP_X_ALT, inside ? x->scratch + at : ids, n, &set, &have_set);
    if (have_set) {
        esp_exprs_push(x, esp_expr_set(x, &set));
    }
    uint32_t id = alt_finish(x, mark);
    x->n_scratch = mark;
    return id;
}

uint32_t esp_expr_alt2(struct esp_exprs *x, uint32_t a, uint32_t b)
{
    uint32_t ids[2] = {a, b};
    return esp_expr_alt(x, ids, 2);
}

uint32_t esp_expr_opt(struct esp_exprs *x, uint32_t a)
{
    return esp_expr_alt2(x, ESP_EXPR_EPS, a);
}

uint32_t esp_expr_and(struct esp_exprs *x, const uint32_t *ids, uint32_t n)
{
    uint32_t copy[ESP_EXPR_AND_MAX], n_copy = 0;
    for (uint32_t idx = 0; idx < n; idx++) {
        const struct esp_expr *e = &x->exprs[ids[idx]];
        uint32_t n_inner = e->op == ESP_X_AND ? e->b : 1;
        if (ids[idx] == ESP_EXPR_EMPTY) {
            return ESP_EXPR_EMPTY;
        }
        if (n_copy + n_inner > ESP_EXPR_AND_MAX) {
            esp_exprs_fail(x, ESP_ELIMIT);
            return ESP_EXPR_EMPTY;
        }
        for (uint32_t inner = 0; inner < n_inner; inner++) {
            uint32_t id = e->op == ESP_X_AND ? x->lists[e->a + inner] : ids[idx];
            if (id != x->json_any && id != x->raw_any) {
                copy[n_copy++] = id;
            }
        }
    }
    if (n_copy == 0) {
        return n > 0 ? ids[0] : ESP_EXPR_EMPTY;
    }
    sort_ids(copy, n_copy);
    n_copy = unique_ids(copy, n_copy);
    if (n_copy == 1) {
        return copy[0];
    }
    uint32_t id = list_expr(x, ESP_X_AND, copy, n_copy);
    return x->exprs[id].flags & ESP_EXPR_DEAD ? ESP_EXPR_EMPTY : id;
}

uint32_t esp_expr_rep(struct esp_exprs *x, uint32_t a, uint32_t lo, uint32_t hi)
{
    const struct esp_expr *e = &x->exprs[a];
    if (hi == 0 || a == ESP_EXPR_EPS || (a == ESP_EXPR_EMPTY && lo == 0)) {
        return ESP_EXPR_EPS;
    }
    if (a == ESP_EXPR_EMPTY) {
        return ESP_EXPR_EMPTY;
    }
    if (e->flags & ESP_EXPR_NULLABLE) {
        if (e->op == ESP_X_REP && e->d == ESP_EXPR_INF) {
            return a; /* (r*)* */
        }
        lo = 0;
    }
    if (lo == 1 && hi == 1) {
        return a;
    }
    unsigned flags = e->flags & (ESP_EXPR_FIRSTS | ESP_EXPR_NO_TEXT);
    flags |= lo == 0 ? ESP_EXPR_NULLABLE : 0;
    return esp_expr_intern(
        x,
        (struct esp_expr){
            .op = ESP_X_REP, .flags = (uint8_t)flags, .height = (uint16_t)(e->height + 1), .a = a, .c = lo, .d = hi});
}

uint32_t esp_expr_call(struct esp_exprs *x, uint32_t node)
{
    return esp_expr_intern(x, (struct esp_expr){.op = ESP_X_CALL,
                                       .flags = ESP_EXPR_CALLS | ESP_EXPR_NO_TEXT,
                                       .height = 1,
                                       .a = node + x->node_base});
}

uint32_t esp_expr_len(struct esp_exprs *x, uint32_t r, uint32_t phase, uint32_t lo, uint32_t hi)
{
    if (r == ESP_EXPR_EMPTY || lo > hi || !esp_lens_ask(x, r, phase, lo, hi)) {
        return ESP_EXPR_EMPTY;
    }
    if (lo == 0 && hi == ESP_EXPR_INF) {
        return r;
    }
    const struct esp_expr *e = &x->exprs[r];
    unsigned flags = ESP_EXPR_BYTES;
    flags |= lo == 0 && (e->flags & ESP_EXPR_NULLABLE) != 0 ? ESP_EXPR_NULLABLE : 0;
    return esp_expr_intern(x, (struct esp_expr){.op = ESP_X_LEN,
                                       .flags = (uint8_t)flags,
                                       .height = (uint16_t)(e->height + 1),
                                       .a = r,
                                       .b = phase,
                                       .c = lo,
                                       .d = hi});
}

uint32_t esp_expr_keys(struct esp_exprs *x, uint32_t object, uint32_t at, uint32_t from, uint32_t count)
{
    return esp_expr_intern(
        x, (struct esp_expr){
               .op = ESP_X_KEYS, .flags = ESP_EXPR_BYTES, .height = 1, .a = object, .b = at, .c = from, .d = count});
}

uint32_t esp_expr_unique(struct esp_exprs *x, uint32_t array, uint32_t set)
{
    struct esp_expr e = {.op = ESP_X_UNIQUE, .flags = ESP_EXPR_BYTES, .height = 1, .a = array, .b = set};
    return esp_expr_intern(x, e);
}

uint32_t esp_expr_not(struct esp_exprs *x, uint32_t base, uint32_t r)
{
    if (r == ESP_EXPR_EMPTY || base == r || base == ESP_EXPR_EMPTY) {
        return r == ESP_EXPR_EMPTY ? base : ESP_EXPR_EMPTY;
    }
    const struct esp_expr *eb = &x->exprs[base], *er = &x->exprs[r];
    unsigned height = (eb->height > er->height ? eb->height : er->height) + 1u, flags = ESP_EXPR_BYTES;
    flags |= (eb->flags & ~(unsigned)er->flags) & ESP_EXPR_NULLABLE;
    uint32_t id = esp_expr_intern(
        x, (struct esp_expr){
               .op = ESP_X_NOT, .flags = (uint8_t)flags, .height = (uint16_t)height, .a = base, .b = r});
    return x->exprs[id].flags & ESP_EXPR_DEAD ? ESP_EXPR_EMPTY : id;
}
