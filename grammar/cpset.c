/* Sets of code points and their spelling. See cpset.h.
 *
 * A range of numbers of fixed length in some base (UTF-8 tails in base 64, hexadecimal in 16, surrogate
 * pairs in 1,024) splits into at most 2·digits − 1 products of digit ranges; `split` does it for all three.
 * Recursion is bounded by four digits.
 */
#include "grammar/cpset.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/map.h"
#include "runtime/base/utf8.h"

#define CP_MAX 0x10FFFFu

void esp_cpset_init(struct esp_cpset *set, struct esp_arena *arena)
{
    *set = (struct esp_cpset){.arena = arena};
}

void esp_cpset_add(struct esp_cpset *set, uint32_t first, uint32_t last)
{
    if (set->n == set->cap) {
        uint32_t cap = set->cap == 0 ? 8 : set->cap * 2;
        struct esp_cprange *r = esp_arena_alloc(set->arena, cap, sizeof *r);
        if (r == NULL) {
            set->failed = true;
            return;
        }
        if (set->n > 0) {
            memcpy(r, set->r, set->n * sizeof *r);
        }
        set->r = r;
        set->cap = cap;
    }
    set->r[set->n++] = (struct esp_cprange){first, last};
}

void esp_cpset_add_set(struct esp_cpset *set, const struct esp_cpset *other)
{
    for (uint32_t idx = 0; idx < other->n; idx++) {
        esp_cpset_add(set, other->r[idx].first, other->r[idx].last);
    }
}

static int compare_ranges(const void *a, const void *b)
{
    uint32_t x = ((const struct esp_cprange *)a)->first, y = ((const struct esp_cprange *)b)->first;
    return x < y ? -1 : x > y;
}

void esp_cpset_negate(struct esp_cpset *set)
{
    struct esp_cpset out;
    uint32_t next = 0;
    esp_cpset_init(&out, set->arena);
    for (uint32_t idx = 0; idx < set->n; idx++) {
        if (set->r[idx].first > next) {
            esp_cpset_add(&out, next, set->r[idx].first - 1);
        }
        next = set->r[idx].last + 1;
    }
    if (next <= CP_MAX) {
        esp_cpset_add(&out, next, CP_MAX);
    }
    out.failed = out.failed || set->failed;
    *set = out;
    esp_cpset_normalise(set);
}

void esp_cpset_normalise(struct esp_cpset *set)
{
    if (set->n == 0) {
        return;
    }
    qsort(set->r, set->n, sizeof *set->r, compare_ranges);
    struct esp_cpset out;
    esp_cpset_init(&out, set->arena);
    for (uint32_t idx = 0; idx < set->n;) {
        uint32_t first = set->r[idx].first, last = set->r[idx].last;
        for (idx++; idx < set->n && set->r[idx].first <= last + 1; idx++) {
            last = set->r[idx].last > last ? set->r[idx].last : last;
        }
        if (first < 0xD800 && last >= 0xD800) {
            esp_cpset_add(&out, first, 0xD7FF);
            first = 0xE000;
        }
        first = first >= 0xD800 && first < 0xE000 ? 0xE000 : first;
        last = last >= 0xD800 && last < 0xE000 ? 0xD7FF : last;
        if (first <= last) {
            esp_cpset_add(&out, first, last);
        }
    }
    out.failed = out.failed || set->failed;
    *set = out;
}

/* ---- Numbers of fixed length ------------------------------------------------------------------- */

enum digits { DIGITS_UTF8_TAIL, DIGITS_HEX, DIGITS_SURROGATE };

static uint32_t split(struct esp_exprs *x, enum digits kind, unsigned lead, unsigned n, uint32_t a, uint32_t b);

/* Digits first … last, the leading ones of a number of n. */
static uint32_t digit_range(struct esp_exprs *x, enum digits kind, unsigned lead, unsigned n, uint32_t first,
                            uint32_t last)
{
    struct esp_byteset set = {{0}};
    switch (kind) {
    case DIGITS_UTF8_TAIL: return esp_expr_range(x, lead + first, lead + last);
    case DIGITS_SURROGATE:
        first += n == 2 ? 0xD800 : 0xDC00;
        last += n == 2 ? 0xD800 : 0xDC00;
        return esp_expr_cat(x, esp_expr_text(x, "\\u"), split(x, DIGITS_HEX, 0, 4, first, last));
    default:
        for (uint32_t digit = first; digit <= last; digit++) {
            unsigned lower = (unsigned char)"0123456789abcdef"[digit], upper = (unsigned char)"0123456789ABCDEF"[digit];
            esp_byteset_add(&set, lower, lower);
            esp_byteset_add(&set, upper, upper);
        }
        return esp_expr_set(x, &set);
    }
}

/* Numbers a … b written with n digits; `lead` is added to the first digit of UTF-8. */
static uint32_t split(struct esp_exprs *x, enum digits kind, unsigned lead, unsigned n, uint32_t a, uint32_t b)
{
    static const uint32_t bases[] = {64, 16, 1024};
    uint32_t span = 1, parts[3] = {0, 0, 0};
    if (n == 0) {
        return ESP_EXPR_EPS;
    }
    for (unsigned digit = 1; digit < n; digit++) {
        span *= bases[kind];
    }
    uint32_t da = a / span, db = b / span;
    if (da == db) {
        return esp_expr_cat(x, digit_range(x, kind, lead, n, da, da), split(x, kind, 0x80, n - 1, a % span, b % span));
    }
    if (a % span != 0) {
        parts[0] =
            esp_expr_cat(x, digit_range(x, kind, lead, n, da, da), split(x, kind, 0x80, n - 1, a % span, span - 1));
        da++;
    }
    if (b % span != span - 1) {
        parts[1] = esp_expr_cat(x, digit_range(x, kind, lead, n, db, db), split(x, kind, 0x80, n - 1, 0, b % span));
        if (db == 0) {
            return esp_expr_alt(x, parts, 2);
        }
        db--;
    }
    if (da <= db) {
        parts[2] = esp_expr_cat(x, digit_range(x, kind, lead, n, da, db), split(x, kind, 0x80, n - 1, 0, span - 1));
    }
    return esp_expr_alt(x, parts, 3);
}

static uint32_t cut(uint32_t value, uint32_t first, uint32_t last)
{
    return value < first ? first : value > last ? last : value;
}

static void utf8_range(struct esp_exprs *x, uint32_t first, uint32_t last)
{
    static const struct {
        uint32_t first, last;
        unsigned n, lead;
    } lengths[] = {{0, 0x7F, 1, 0}, {0x80, 0x7FF, 2, 0xC0}, {0x800, 0xFFFF, 3, 0xE0}, {0x10000, CP_MAX, 4, 0xF0}};
    for (unsigned idx = 0; idx < 4; idx++) {
        uint32_t a = lengths[idx].first, b = lengths[idx].last;
        if (first <= b && last >= a) {
            a = cut(first, a, b);
            b = cut(last, a, b);
            esp_exprs_push(x, lengths[idx].n == 1
                                  ? esp_expr_range(x, a, b)
                                  : split(x, DIGITS_UTF8_TAIL, lengths[idx].lead, lengths[idx].n, a, b));
        }
    }
}

/* ---- Characters -------------------------------------------------------------------------------- */

static char short_escape(uint32_t cp)
{
    static const char from[] = "\"\\/\b\f\n\r\t", to[] = "\"\\/bfnrt";
    const char *at = cp == 0 || cp > 0x7F ? NULL : strchr(from, (int)cp);
    return at == NULL ? '\0' : to[at - from];
}

/* Escapes of the characters of [first, last], pushed to scratch. */
static void escape_range(struct esp_exprs *x, enum esp_spelling spelling, uint32_t first, uint32_t last)
{
    uint32_t back = esp_expr_byte(x, '\\'), u = esp_expr_text(x, "\\u");
    for (uint32_t cp = first; cp <= last && cp < 0x80; cp++) {
        char c = short_escape(cp);
        if (c != '\0') {
            esp_exprs_push(x, esp_expr_cat(x, back, esp_expr_byte(x, (unsigned char)c)));
        } else if (cp < 0x20 && spelling == ESP_SPELL_JSON) {
            esp_exprs_push(x, esp_expr_cat(x, u, split(x, DIGITS_HEX, 0, 4, cp, cp)));
        }
    }
    if (spelling == ESP_SPELL_JSON_ANY) {
        if (first <= 0xFFFF) {
            uint32_t end = last > 0xFFFF ? 0xFFFF : last;
            esp_exprs_push(x, esp_expr_cat(x, u, split(x, DIGITS_HEX, 0, 4, first, end)));
        }
        if (last >= 0x10000) {
            uint32_t begin = first > 0x10000 ? first : 0x10000;
            esp_exprs_push(x, split(x, DIGITS_SURROGATE, 0, 2, begin - 0x10000, last - 0x10000));
        }
    }
}

/* The characters of [first, last] that may stand in a JSON string as they are. */
static void plain_range(struct esp_exprs *x, uint32_t first, uint32_t last)
{
    static const struct esp_cprange safe[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, CP_MAX}};
    for (unsigned idx = 0; idx < 3; idx++) {
        if (first <= safe[idx].last && last >= safe[idx].first) {
            utf8_range(x, cut(first, safe[idx].first, safe[idx].last), cut(last, safe[idx].first, safe[idx].last));
        }
    }
}

uint32_t esp_spell_set(struct esp_exprs *x, enum esp_spelling spelling, const struct esp_cpset *set)
{
    uint32_t mark = x->n_scratch;
    if (set->failed) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    for (uint32_t idx = 0; idx < set->n; idx++) {
        if (spelling == ESP_SPELL_RAW) {
            utf8_range(x, set->r[idx].first, set->r[idx].last);
        } else {
            plain_range(x, set->r[idx].first, set->r[idx].last);
            escape_range(x, spelling, set->r[idx].first, set->r[idx].last);
        }
    }
    uint32_t id = esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

uint32_t esp_spell_char(struct esp_exprs *x, enum esp_spelling spelling, uint32_t cp)
{
    struct esp_cprange range = {cp, cp};
    struct esp_cpset set = {.r = &range, .n = 1};
    return esp_spell_set(x, spelling, &set);
}

uint32_t esp_spell_text(struct esp_exprs *x, enum esp_spelling spelling, const char *text, size_t n_bytes,
                        uint32_t tail)
{
    uint32_t cp, id = tail;
    for (size_t end = n_bytes; end > 0 && x->failed == ESP_OK;) {
        size_t at = end - 1;
        while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) {
            at--;
        }
        if (esp_utf8_decode(text + at, end - at, &cp) <= 0) {
            esp_exprs_fail(x, ESP_EINVAL);
            return ESP_EXPR_EMPTY;
        }
        id = esp_expr_cat(x, esp_spell_char(x, spelling, cp), id);
        end = at;
    }
    return id;
}

uint32_t esp_spell_any(struct esp_exprs *x, enum esp_spelling spelling)
{
    uint32_t *slot = spelling == ESP_SPELL_RAW ? &x->raw_any : &x->json_any;
    if (*slot == 0) {
        struct esp_cprange ranges[2] = {{0, 0xD7FF}, {0xE000, CP_MAX}};
        struct esp_cpset all = {.r = ranges, .n = 2};
        uint32_t id = esp_expr_rep(x, esp_spell_set(x, spelling, &all), 0, ESP_EXPR_INF);
        *slot = id;
    }
    return *slot;
}

/* ---- Sets of words, and every text but them ---------------------------------------------------------------------- */

static int compare_words(const void *a, const void *b)
{
    const struct esp_spell_word *x = a, *y = b;
    size_t n = x->n_bytes < y->n_bytes ? x->n_bytes : y->n_bytes;
    int order = n == 0 ? 0 : memcmp(x->text, y->text, n);
    return order != 0 ? order : x->n_bytes < y->n_bytes ? -1 : x->n_bytes > y->n_bytes;
}

/* Sorted words share prefixes with their neighbours, so the trie is walked from the last word to the
 * first: level[d] is what the words seen so far make of their common prefix of d characters. */
struct level {
    struct esp_cpset taken; /* next characters that have a branch of their own */
    uint32_t branches;      /* those branches */
    bool word;              /* the prefix is itself a word */
};

struct spell {
    struct esp_exprs *x;
    enum esp_spelling spelling;
    bool others;
    uint32_t any_tail, tail;
    struct esp_bytesmap *rests; /* characters taken → the others and what follows them: levels look alike */
};

/* Any other character than the taken ones, and then anything. */
static uint32_t other_chars(const struct spell *s, struct esp_cpset *taken)
{
    esp_cpset_normalise(taken);
    uint32_t id = esp_bytesmap_get(s->rests, taken->r, taken->n * sizeof *taken->r);
    if (id == ESP_MAP_NONE) {
        struct esp_cpset rest;
        esp_cpset_init(&rest, taken->arena);
        esp_cpset_add_set(&rest, taken);
        esp_cpset_normalise(&rest);
        esp_cpset_negate(&rest);
        id = esp_expr_cat(s->x, esp_spell_set(s->x, s->spelling, &rest), s->any_tail);
        if (esp_bytesmap_put(s->rests, taken->r, taken->n * sizeof *taken->r, id) != ESP_OK) {
            esp_exprs_fail(s->x, ESP_ENOMEM);
        }
    }
    return id;
}

static uint32_t close_level(const struct spell *s, struct level *level)
{
    uint32_t ids[3] = {level->branches, ESP_EXPR_EMPTY, level->word != s->others ? s->tail : ESP_EXPR_EMPTY};
    if (s->others) {
        ids[1] = other_chars(s, &level->taken);
    }
    return esp_expr_alt(s->x, ids, 3);
}

static uint32_t decode_word(const struct esp_spell_word *word, uint32_t *cps)
{
    uint32_t n = 0;
    for (size_t at = 0; at < word->n_bytes; n++) {
        int used = esp_utf8_decode(word->text + at, word->n_bytes - at, &cps[n]);
        if (used <= 0) {
            return n;
        }
        at += (size_t)used;
    }
    return n;
}

/* Walks the sorted words, closing the branch of each word when the next one leaves it. */
static void walk_words(const struct spell *s, const struct esp_spell_word *sorted, uint32_t n_words, uint32_t *cps[2],
                       struct level *levels)
{
    struct esp_arena *arena = levels[0].taken.arena;
    uint32_t n_now = 0;
    for (uint32_t idx = 0; idx <= n_words; idx++) {
        uint32_t *now = cps[idx % 2], *next = cps[(idx + 1) % 2];
        uint32_t n_next = idx < n_words ? decode_word(&sorted[idx], next) : 0, common = 0;
        while (common < n_now && common < n_next && now[common] == next[common]) {
            common++;
        }
        for (; n_now > common; n_now--) {
            uint32_t below = close_level(s, &levels[n_now]);
            struct level *up = &levels[n_now - 1];
            uint32_t branch = esp_expr_cat(s->x, esp_spell_char(s->x, s->spelling, now[n_now - 1]), below);
            up->branches = esp_expr_alt2(s->x, up->branches, branch);
        }
        for (; n_now < n_next; n_now++) {
            esp_cpset_add(&levels[n_now].taken, next[n_now], next[n_now]);
            levels[n_now + 1] = (struct level){.branches = ESP_EXPR_EMPTY};
            esp_cpset_init(&levels[n_now + 1].taken, arena);
        }
        levels[n_now].word = levels[n_now].word || idx < n_words;
    }
}

uint32_t esp_spell_words(struct esp_exprs *x, enum esp_spelling spelling, struct esp_arena *arena,
                         const struct esp_spell_word *words, uint32_t n_words, bool others, uint32_t tail)
{
    struct esp_bytesmap rests;
    struct spell s = {x, spelling, others, ESP_EXPR_EMPTY, tail, &rests};
    s.any_tail = others ? esp_expr_cat(x, esp_spell_any(x, spelling), tail) : ESP_EXPR_EMPTY;
    size_t longest = 0;
    for (uint32_t idx = 0; idx < n_words; idx++) {
        longest = words[idx].n_bytes > longest ? words[idx].n_bytes : longest;
    }
    struct esp_spell_word *sorted = esp_arena_alloc(arena, n_words + 1, sizeof *sorted);
    uint32_t *cps[2] = {esp_arena_alloc(arena, longest + 1, 4), esp_arena_alloc(arena, longest + 1, 4)};
    struct level *levels = esp_arena_alloc(arena, longest + 2, sizeof *levels);
    if (sorted == NULL || cps[0] == NULL || cps[1] == NULL || levels == NULL) {
        esp_exprs_fail(x, ESP_ENOMEM);
        return ESP_EXPR_EMPTY;
    }
    if (n_words > 0) {
        memcpy(sorted, words, n_words * sizeof *words);
        qsort(sorted, n_words, sizeof *sorted, compare_words);
    }
    esp_cpset_init(&levels[0].taken, arena);
    esp_bytesmap_init(&rests, ESP_TAG_GRAMMAR);
    walk_words(&s, sorted, n_words, cps, levels);
    uint32_t id = close_level(&s, &levels[0]);
    esp_bytesmap_finish(&rests);
    return id;
}
