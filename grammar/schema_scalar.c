/* Numbers and strings of an alternative as expressions. See schema.h. Thread: the owner's. */
#include <stdlib.h>
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema.h"
#include "runtime/base/utf8.h"

static esp_status add_expr(struct esp_schema *s, uint32_t expr)
{
    if (s->x->failed != ESP_OK) {
        return esp_schema_fail(s, s->x->failed, s->root,
                               s->x->failed == ESP_ELIMIT ? "is too complex" : "needs too much memory");
    }
    if (expr == ESP_EXPR_EMPTY) {
        return ESP_OK;
    }
    struct esp_atom *atom = esp_schema_atom(s, ESP_ATOM_EXPR);
    if (atom == NULL) {
        return esp_schema_memory(s);
    }
    atom->expr = expr;
    return ESP_OK;
}

/* ---- Numbers ----------------------------------------------------------------------------------- */

static uint32_t free_number(struct esp_schema *s, uint32_t *slot, const char *regex)
{
    if (*slot == 0) {
        esp_regex_compile(s->x, ESP_SPELL_RAW, false, regex, strlen(regex), slot, NULL);
    }
    return *slot;
}

static uint32_t unbounded(struct esp_schema *s, bool integer)
{
    if (!integer) {
        return free_number(s, &s->number_any, "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?");
    }
    if (s->draft == ESP_DRAFT4) {
        return free_number(s, &s->integer_plain, "-?(0|[1-9][0-9]*)");
    }
    return free_number(s, &s->integer_any, "-?(0|[1-9][0-9]*)(\\.0+)?([eE](\\+?[0-9]+|-0+))?");
}

static uint32_t bounded(struct esp_schema *s, const struct esp_bounds *bounds)
{
    uint32_t id;
    esp_status status = esp_nums_add_bounds(&s->x->nums, bounds, &id);
    if (status != ESP_OK) {
        esp_exprs_fail(s->x, status);
        return ESP_EXPR_EMPTY;
    }
    return esp_expr_num(s->x, id, "", 0);
}

static void narrow(struct esp_bounds *b, const struct esp_bounds *leaf)
{
    if (leaf->has_lo) {
        int order = b->has_lo ? esp_decimal_compare(&leaf->lo, &b->lo) : 1;
        if (order >= 0) {
            b->lo_open = leaf->lo_open || (order == 0 && b->lo_open);
            b->lo = leaf->lo;
            b->has_lo = true;
        }
    }
    if (leaf->has_hi) {
        int order = b->has_hi ? esp_decimal_compare(&leaf->hi, &b->hi) : -1;
        if (order <= 0) {
            b->hi_open = leaf->hi_open || (order == 0 && b->hi_open);
            b->hi = leaf->hi;
            b->has_hi = true;
        }
    }
}

/* Brings the multiples of a leaf together with those of the ones before it. */
static esp_status join_steps(struct esp_schema *s, struct esp_bounds *b, const struct esp_bounds *leaf)
{
    if (leaf->step.n > 0) {
        esp_status status = b->step.n == 0 ? ESP_OK : esp_num_lcm(&s->arena, &b->step, &leaf->step, &b->step);
        if (status != ESP_OK) {
            return status;
        }
        b->step = b->step.n == 0 ? leaf->step : b->step;
    }
    if (leaf->n_not > 0) {
        struct esp_decimal *all = esp_arena_alloc(&s->arena, (size_t)b->n_not + leaf->n_not, sizeof *all);
        if (all == NULL) {
            return ESP_ENOMEM;
        }
        if (b->n_not > 0) {
            memcpy(all, b->not_of, b->n_not * sizeof *all);
        }
        memcpy(all + b->n_not, leaf->not_of, leaf->n_not * sizeof *all);
        b->not_of = all;
        b->n_not += leaf->n_not;
    }
    return ESP_OK;
}

static esp_status add_number_value(struct esp_schema *s, const struct esp_bounds *all, const struct esp_jv *v)
{
    struct esp_bounds point = {.has_lo = true, .has_hi = true, .integer = all->integer, .plain = all->plain};
    char *room = esp_arena_alloc(&s->arena, (size_t)v->n_bytes + 1, 1);
    if (room == NULL) {
        return esp_schema_memory(s);
    }
    esp_decimal_parse(v->text, v->n_bytes, room, &point.lo);
    point.hi = point.lo;
    if (!esp_num_inside(all, &point.lo)) {
        return ESP_OK;
    }
    /* draft-04: 1.0 is no integer, whatever its value. */
    if (all->plain && strpbrk(v->text, ".eE") != NULL) {
        return ESP_OK;
    }
    return add_expr(s, bounded(s, &point));
}

static int compare_points(const void *a, const void *b)
{
    return esp_decimal_compare(a, b);
}

/* The numbers inside b and between the excluded values. */
static uint32_t apart(const struct esp_conj *c, const struct esp_bounds *b)
{
    struct esp_schema *s = c->s;
    struct esp_decimal *points = esp_arena_alloc(&s->arena, (size_t)c->n_excluded + 1, sizeof *points);
    uint32_t n = 0, mark = s->x->n_scratch;
    for (uint32_t idx = 0; points != NULL && idx < c->n_excluded; idx++) {
        const struct esp_jv *v = c->excluded[idx];
        char *room = v->type == ESP_JV_NUMBER ? esp_arena_alloc(&s->arena, (size_t)v->n_bytes + 1, 1) : NULL;
        if (room != NULL && esp_decimal_parse(v->text, v->n_bytes, room, &points[n])) {
            n += esp_num_inside(b, &points[n]);
        }
    }
    if (points == NULL || n == 0) {
        return bounded(s, b);
    }
    qsort(points, n, sizeof *points, compare_points);
    struct esp_bounds part = *b;
    for (uint32_t idx = 0; idx <= n; idx++) {
        part.has_hi = idx < n || b->has_hi;
        part.hi_open = idx < n || b->hi_open;
        part.hi = idx < n ? points[idx] : b->hi;
        esp_exprs_push(s->x, bounded(s, &part));
        part.has_lo = part.lo_open = true;
        part.lo = part.hi;
    }
    uint32_t id = esp_expr_alt(s->x, s->x->scratch + mark, s->x->n_scratch - mark);
    s->x->n_scratch = mark;
    return id;
}

static bool excludes(const struct esp_conj *c, enum esp_jv_type type)
{
    for (uint32_t idx = 0; idx < c->n_excluded; idx++) {
        if (c->excluded[idx]->type == type) {
            return true;
        }
    }
    return false;
}

/* The bounds of all leaves together, and a keyword that gave one. */
static esp_status gather_bounds(const struct esp_conj *c, struct esp_bounds *b, const struct esp_jv **ret_at)
{
    *ret_at = NULL;
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_leaf *leaf = c->leaves[idx];
        narrow(b, &leaf->bounds);
        esp_status status = join_steps(c->s, b, &leaf->bounds);
        if (status != ESP_OK) {
            return esp_schema_fail(c->s, status, leaf->self, "has multiples with too many digits together");
        }
        *ret_at = leaf->min_at != NULL ? leaf->min_at : *ret_at;
    }
    b->integer = (c->types & ESP_TYPE_FRACTION) == 0;
    b->fraction = (c->types & ESP_TYPE_INTEGER) == 0;
    b->plain = b->integer && c->s->draft == ESP_DRAFT4;
    return ESP_OK;
}

static bool is_whole(const struct esp_bounds *b)
{
    return !b->has_lo && !b->has_hi && !b->fraction && b->step.n == 0 && b->n_not == 0;
}

esp_status esp_schema_numbers(const struct esp_conj *c, const struct esp_jv *const *values, uint32_t n_values)
{
    struct esp_schema *s = c->s;
    struct esp_bounds b = {0};
    const struct esp_jv *min_at;
    if ((c->types & (ESP_TYPE_INTEGER | ESP_TYPE_FRACTION)) == 0) {
        return ESP_OK;
    }
    esp_status status = gather_bounds(c, &b, &min_at);
    if (status != ESP_OK) {
        return status;
    }
    if (values != NULL) {
        for (uint32_t idx = 0; idx < n_values && status == ESP_OK; idx++) {
            status = add_number_value(s, &b, values[idx]);
        }
        return status;
    }
    if (is_whole(&b) && !excludes(c, ESP_JV_NUMBER)) {
        return add_expr(s, unbounded(s, b.integer));
    }
    uint32_t id = apart(c, &b);
    if (id == ESP_EXPR_EMPTY && min_at != NULL) {
        esp_schema_why(
            s, min_at,
            b.integer
                ? "leaves no integer below the upper bound (minimum/exclusiveMinimum against maximum/exclusiveMaximum)"
                : "leaves no number below the upper bound (minimum/exclusiveMinimum against maximum/exclusiveMaximum)");
    }
    return add_expr(s, id);
}

/* ---- Strings ----------------------------------------------------------------------------------- */

void esp_schema_live(struct esp_schema *s, uint32_t id)
{
    if (id == ESP_EXPR_EMPTY || esp_map_get(&s->explored, id) != ESP_MAP_NONE) {
        return;
    }
    esp_live_and(s->x, id);
    if (esp_map_put(&s->explored, id, 1) != ESP_OK) {
        esp_exprs_fail(s->x, ESP_ENOMEM);
    }
}

uint32_t esp_schema_both(struct esp_schema *s, uint32_t a, uint32_t b)
{
    uint32_t ids[2] = {a, b};
    uint32_t id = esp_expr_and(s->x, ids, 2);
    esp_schema_live(s, id);
    return s->x->exprs[id].flags & ESP_EXPR_DEAD ? ESP_EXPR_EMPTY : id;
}

/* Any string but the excluded values. */
static uint32_t not_excluded(const struct esp_conj *c)
{
    struct esp_schema *s = c->s;
    struct esp_spell_word *words = esp_arena_alloc(&s->arena, (size_t)c->n_excluded + 1, sizeof *words);
    uint32_t n = 0;
    for (uint32_t idx = 0; words != NULL && idx < c->n_excluded; idx++) {
        const struct esp_jv *v = c->excluded[idx];
        bool known = v->type != ESP_JV_STRING;
        for (uint32_t at = 0; at < n && !known; at++) {
            known = words[at].n_bytes == v->n_bytes && memcmp(words[at].text, v->text, v->n_bytes) == 0;
        }
        if (!known) {
            words[n++] = (struct esp_spell_word){v->text, v->n_bytes};
        }
    }
    return words == NULL ? (esp_exprs_fail(s->x, ESP_ENOMEM), ESP_EXPR_EMPTY)
                         : esp_spell_words(s->x, s->spelling, &s->arena, words, n, true, ESP_EXPR_EPS);
}

/* Contents of the string between its quotes, without length: patterns and formats together. */
static uint32_t contents(const struct esp_conj *c, bool with_excluded)
{
    struct esp_schema *s = c->s;
    uint32_t ids[2 * ESP_SCHEMA_CONJUNCTS_MAX + 2], n_ids = 0;
    for (uint32_t idx = 0; idx < c->n; idx++) {
        if (c->leaves[idx]->never_text) {
            return ESP_EXPR_EMPTY;
        }
        if (c->leaves[idx]->pattern != 0) {
            ids[n_ids++] = c->leaves[idx]->pattern;
        }
        if (c->leaves[idx]->format != 0) {
            ids[n_ids++] = c->leaves[idx]->format;
        }
    }
    if (with_excluded && excludes(c, ESP_JV_STRING)) {
        ids[n_ids++] = not_excluded(c);
    }
    uint32_t any = esp_spell_any(s->x, s->spelling);
    if (n_ids == 0) {
        return any;
    }
    uint32_t id = esp_expr_and(s->x, ids, n_ids);
    esp_schema_live(s, id);
    return s->x->exprs[id].flags & ESP_EXPR_DEAD ? ESP_EXPR_EMPTY : id;
}

static uint32_t quoted(struct esp_exprs *x, uint32_t id)
{
    uint32_t quote = esp_expr_byte(x, '"');
    return esp_expr_cat(x, quote, esp_expr_cat(x, id, quote));
}

bool esp_schema_accepts(struct esp_schema *s, uint32_t id, const char *text, uint32_t n_bytes)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt", hex[] = "0123456789abcdef";
    for (uint32_t at = 0; at < n_bytes && id != ESP_EXPR_EMPTY; at++) {
        unsigned char c = (unsigned char)text[at];
        char spelled[8] = {(char)c};
        size_t n = 1;
        const char *simple = c == 0 ? NULL : strchr(from, c);
        if (simple != NULL) {
            spelled[0] = '\\';
            spelled[1] = to[simple - from];
            n = 2;
        } else if (c < 0x20) {
            memcpy(spelled, "\\u00", 4);
            spelled[4] = hex[c >> 4];
            spelled[5] = hex[c & 15];
            n = 6;
        }
        for (size_t idx = 0; idx < n && id != ESP_EXPR_EMPTY; idx++) {
            id = esp_expr_deriv(s->x, id, (unsigned char)spelled[idx]);
        }
    }
    return id != ESP_EXPR_EMPTY && esp_expr_nullable(s->x, id);
}

static uint32_t count_chars(const struct esp_jv *v)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < v->n_bytes; at++) {
        n += ((unsigned char)v->text[at] & 0xC0) != 0x80;
    }
    return n;
}

/* Strings of these contents, or only the contents where nothing else is asked for. */
static esp_status add_contents(struct esp_schema *s, uint32_t id)
{
    if (!s->bare) {
        return add_expr(s, id == ESP_EXPR_EMPTY ? id : quoted(s->x, id));
    }
    s->bare_contents = esp_expr_alt2(s->x, s->bare_contents, id);
    return s->x->failed == ESP_OK ? ESP_OK : add_expr(s, id);
}

static esp_status add_string_values(struct esp_schema *s, uint32_t id, uint32_t min, uint32_t max,
                                    const struct esp_jv *const *values, uint32_t n_values)
{
    struct esp_spell_word *words = esp_arena_alloc(&s->arena, (size_t)n_values + 1, sizeof *words);
    uint32_t n = 0;
    if (words == NULL) {
        return esp_schema_memory(s);
    }
    for (uint32_t idx = 0; idx < n_values; idx++) {
        uint32_t n_chars = count_chars(values[idx]);
        if (n_chars >= min && n_chars <= max &&
            (id == s->x->json_any || esp_schema_accepts(s, id, values[idx]->text, values[idx]->n_bytes))) {
            words[n++] = (struct esp_spell_word){values[idx]->text, values[idx]->n_bytes};
        }
    }
    return add_contents(s, esp_spell_words(s->x, s->spelling, &s->arena, words, n, false, ESP_EXPR_EPS));
}

/* The narrowest lengths of all leaves, and a leaf that says anything about strings. */
static const struct esp_jv *lengths(const struct esp_conj *c, uint32_t *ret_min, uint32_t *ret_max)
{
    const struct esp_jv *at = NULL;
    for (uint32_t idx = 0; idx < c->n; idx++) {
        const struct esp_leaf *leaf = c->leaves[idx];
        *ret_min = leaf->min_chars > *ret_min ? leaf->min_chars : *ret_min;
        *ret_max = leaf->max_chars < *ret_max ? leaf->max_chars : *ret_max;
        if (leaf->min_chars > 0 || leaf->max_chars < ESP_EXPR_INF || leaf->pattern != 0 || leaf->format != 0 ||
            leaf->never_text) {
            at = leaf->self;
        }
    }
    return at;
}

/* With so many characters; a format may have limits of its own. */
static uint32_t limited(struct esp_schema *s, uint32_t id, uint32_t min, uint32_t max)
{
    const struct esp_expr *e = &s->x->exprs[id];
    if (e->op == ESP_X_LEN && e->b == 0) {
        id = e->a;
        min = e->c > min ? e->c : min;
        max = e->d < max ? e->d : max;
    }
    if (min > max) {
        return ESP_EXPR_EMPTY;
    }
    esp_live_len(s->x, s->lens, id, min, max);
    return esp_expr_len(s->x, id, 0, min, max);
}

esp_status esp_schema_strings(const struct esp_conj *c, const struct esp_jv *const *values, uint32_t n_values)
{
    struct esp_schema *s = c->s;
    uint32_t min = 0, max = ESP_EXPR_INF;
    const struct esp_jv *at = lengths(c, &min, &max);
    uint32_t id = contents(c, values == NULL);
    if (values != NULL && id != ESP_EXPR_EMPTY) {
        return add_string_values(s, id, min, max, values, n_values);
    }
    if (id != ESP_EXPR_EMPTY && (min > 0 || max < ESP_EXPR_INF) && min <= max) {
        id = limited(s, id, min, max);
    } else if (min > max) {
        id = ESP_EXPR_EMPTY;
    }
    if (id == ESP_EXPR_EMPTY && at != NULL) {
        esp_schema_why(s, at, "leaves no string (length, pattern and format together)");
    }
    return add_contents(s, id);
}
