/* Regions to expressions. See regions.h.
 *
 *   {"seq":[{"free":{"until":["<t>"],"tokens":9}},{"text":"<t>"},{"schema":S}]}
 *      BUDGET(ANY* but not ANY*·<t>·ANY*, 9) · <t> · CALL n
 *
 * Recursion follows nesting, at most PARTS_DEPTH_MAX deep. Thread: the owner's.
 */
#include "grammar/regions.h"

#include <stdio.h>
#include <string.h>

#include "grammar/cfg.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/trie.h"
#include "grammar/vec.h"

#define PARTS_DEPTH_MAX 40u
#define JSON_DEPTH_MAX (ESP_GRAMMAR_DEPTH_MAX + 2 * PARTS_DEPTH_MAX)
#define COUNT_MAX 1000000u

struct regions {
    struct esp_grammar *g;
    struct esp_exprs *x;
    struct esp_arena arena;
    struct esp_err *err;
    const struct esp_grammar_options *options;
    struct esp_bytesmap names; /* of tokens looked up before */
    unsigned depth;
    bool have_schema, escapes_any;
};

static esp_status refuse(struct regions *r, esp_status status, const struct esp_jv *at, const char *what)
{
    char pointer[sizeof r->err->place];
    esp_fail(r->err, status, "%s", what);
    esp_jv_pointer(at, pointer, sizeof pointer);
    esp_err_place(r->err, "%s", pointer);
    if (at->key != NULL) {
        char key[sizeof r->err->keyword];
        size_t n = at->key_bytes < sizeof key ? at->key_bytes : sizeof key - 1;
        memcpy(key, at->key, n);
        key[n] = '\0';
        esp_err_keyword(r->err, key);
    }
    return status;
}

/* Puts the pointer of a part before the place that its own compiler named. */
static esp_status refused_inside(struct regions *r, esp_status status, const struct esp_jv *at)
{
    char pointer[sizeof r->err->place], place[2 * sizeof pointer];
    esp_jv_pointer(at, pointer, sizeof pointer);
    snprintf(place, sizeof place, "%s%s", pointer, r->err->place);
    esp_err_place(r->err, "%s", place);
    return status;
}

/* A whole number; *ret_value is unchanged when the member is absent. */
static esp_status read_count(struct regions *r, const struct esp_jv *object, const char *key, uint32_t *ret_value)
{
    const struct esp_jv *v = esp_jv_find(object, key);
    uint32_t value = 0;
    bool ok = v == NULL || (v->type == ESP_JV_NUMBER && v->n_bytes <= 7);
    for (uint32_t at = 0; v != NULL && ok && at < v->n_bytes; at++) {
        ok = v->text[at] >= '0' && v->text[at] <= '9';
        value = value * 10 + (uint32_t)(v->text[at] - '0');
    }
    if (!ok || value > COUNT_MAX) {
        return refuse(r, ESP_EINVAL, v, "must be a whole number, at most 1000000");
    }
    if (v != NULL) {
        *ret_value = value;
    }
    return ESP_OK;
}

static esp_status build_part(struct regions *r, const struct esp_jv *part, uint32_t *ret_id);

static esp_status build_list(struct regions *r, const struct esp_jv *v, uint32_t **ret_ids)
{
    if (v->type != ESP_JV_ARRAY || v->n == 0) {
        return refuse(r, ESP_EINVAL, v, "must be an array with at least one part");
    }
    uint32_t *ids = esp_arena_alloc(&r->arena, v->n, sizeof *ids);
    esp_status status = ids == NULL ? ESP_ENOMEM : ESP_OK;
    for (const struct esp_jv *part = v->child; part != NULL && status == ESP_OK; part = part->next) {
        status = build_part(r, part, &ids[part->index]);
    }
    if (status == ESP_OK) {
        *ret_ids = ids;
    }
    return status;
}

static esp_status build_seq(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    uint32_t *ids, id = ESP_EXPR_EPS;
    (void)part;
    esp_status status = build_list(r, v, &ids);
    for (uint32_t at = status == ESP_OK ? v->n : 0; at-- > 0;) {
        id = esp_expr_cat(r->x, ids[at], id);
    }
    *ret_id = id;
    return status;
}

static esp_status build_any(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    uint32_t *ids;
    (void)part;
    esp_status status = build_list(r, v, &ids);
    if (status == ESP_OK) {
        *ret_id = esp_expr_alt(r->x, ids, v->n);
    }
    return status;
}

static esp_status build_repeat(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    uint32_t id = 0, min = 0, max = ESP_EXPR_INF;
    esp_status status = read_count(r, part, "min", &min);
    if (status == ESP_OK) {
        status = read_count(r, part, "max", &max);
    }
    if (status == ESP_OK && min > max) {
        status = refuse(r, ESP_EINVAL, esp_jv_find(part, "max"), "is less than min");
    }
    if (status == ESP_OK) {
        status = build_part(r, v, &id);
    }
    if (status == ESP_OK) {
        *ret_id = esp_expr_rep(r->x, id, min, max);
    }
    return status;
}

static esp_status build_text(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    (void)part;
    if (v->type != ESP_JV_STRING) {
        return refuse(r, ESP_EINVAL, v, "must be a string");
    }
    *ret_id = esp_spell_text(r->x, ESP_SPELL_RAW, v->text, v->n_bytes, ESP_EXPR_EPS);
    return *ret_id == ESP_EXPR_EMPTY && r->x->failed == ESP_OK
               ? refuse(r, ESP_EUNSAT, v, "the vocabulary cannot spell this text")
               : ESP_OK;
}

/* The token that a name or an id means. */
static esp_status find_token(struct regions *r, const struct esp_jv *v, uint32_t *ret_token)
{
    const struct esp_trie *trie = r->g->trie;
    uint32_t token = UINT32_MAX;
    if (v->type == ESP_JV_STRING) {
        token = esp_bytesmap_get(&r->names, v->text, v->n_bytes);
        if (token == ESP_MAP_NONE) {
            token = esp_trie_find(trie, v->text, v->n_bytes);
            if (token != UINT32_MAX && esp_bytesmap_put(&r->names, v->text, v->n_bytes, token) != ESP_OK) {
                return ESP_ENOMEM;
            }
        }
    } else if (v->type == ESP_JV_NUMBER && v->n_bytes <= 9 && strspn(v->text, "0123456789") >= v->n_bytes) {
        token = 0;
        for (uint32_t at = 0; at < v->n_bytes; at++) {
            token = token * 10 + (uint32_t)(v->text[at] - '0');
        }
    } else {
        return refuse(r, ESP_EINVAL, v, "must be the name or the id of a token");
    }
    if (token >= trie->n_tokens) {
        return refuse(r, ESP_EINVAL, v, "the vocabulary has no such token");
    }
    if (trie->roles[token] == ESP_ROLE_END) {
        return refuse(r, ESP_EINVAL, v, "ends every answer and comes by itself when all is complete");
    }
    *ret_token = token;
    return ESP_OK;
}

static uint32_t token_bytes(struct regions *r, uint32_t token)
{
    uint32_t n, id = ESP_EXPR_EPS;
    const uint8_t *bytes = esp_trie_token(r->g->trie, token, &n);
    while (n > 0) {
        id = esp_expr_cat(r->x, esp_expr_byte(r->x, bytes[--n]), id);
    }
    return id;
}

static esp_status build_token(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    uint32_t token = 0;
    (void)part;
    esp_status status = find_token(r, v, &token);
    if (status != ESP_OK) {
        return status;
    }
    uint32_t pair[2] = {token, token};
    bool whole = r->g->trie->roles[token] == ESP_ROLE_CONTROL;
    *ret_id = whole ? esp_expr_token(r->x, pair, 1) : token_bytes(r, token);
    return ESP_OK;
}

/* ---- Schemas, patterns, choices ---------------------------------------------------------------- */

/* False when there is no such option, or not with this value. */
static bool read_option(const struct esp_jv *o, struct esp_grammar_options *options)
{
    static const char *const names[] = {"order", "whitespace", "escapes", "formats"};
    static const char *const values[][3] = {
        {"declared", "any"}, {"compact", "line", "pretty"}, {"short", "any"}, {"assert", "annotate"}};
    for (int idx = 0; idx < 4; idx++) {
        for (int value = 0; value < 3 && values[idx][value] != NULL; value++) {
            if (o != esp_jv_find(o->parent, names[idx]) || !esp_jv_is(o, values[idx][value])) {
                continue;
            }
            options->order_any = idx == 0 ? value == 1 : options->order_any;
            options->whitespace = idx == 1 ? (enum esp_grammar_whitespace)value : options->whitespace;
            options->escapes_any = idx == 2 ? value == 1 : options->escapes_any;
            options->formats_annotate = idx == 3 ? value == 1 : options->formats_annotate;
            return true;
        }
    }
    if (o == esp_jv_find(o->parent, "lenient") && (o->type == ESP_JV_TRUE || o->type == ESP_JV_FALSE)) {
        options->lenient = o->type == ESP_JV_TRUE;
        return true;
    }
    return false;
}

static esp_status read_options(struct regions *r, const struct esp_jv *v, struct esp_grammar_options *options)
{
    if (v != NULL && v->type != ESP_JV_OBJECT) {
        return refuse(r, ESP_EINVAL, v, "must be an object");
    }
    for (const struct esp_jv *o = v == NULL ? NULL : v->child; o != NULL; o = o->next) {
        if (!read_option(o, options)) {
            return refuse(r, ESP_EINVAL, o, "no option of this name, or not with this value");
        }
    }
    return ESP_OK;
}

esp_status esp_schema_part(struct esp_grammar *g, const struct esp_grammar_options *options, const char *text,
                           size_t n_bytes, uint32_t *ret_id, struct esp_err *err)
{
    uint32_t *starts = NULL, n_starts = 0, base = g->n_starts;
    g->base.node_base = base;
    esp_status status =
        esp_schema_compile(&g->base, g->lens, options, text, n_bytes, &g->warnings, &starts, &n_starts, err);
    g->base.node_base = 0;
    if (status == ESP_OK && !esp_vec_grow(&g->starts, &g->starts_cap, (uint64_t)base + n_starts)) {
        status = ESP_ENOMEM;
    }
    if (status == ESP_OK) {
        memcpy(g->starts + base, starts, (size_t)n_starts * sizeof *starts);
        g->n_starts = base + n_starts;
        *ret_id = esp_expr_call(&g->base, base);
    }
    esp_free(starts);
    return status;
}

static esp_status build_schema(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    struct esp_grammar_options options = *r->options;
    esp_status status = read_options(r, esp_jv_find(part, "options"), &options);
    if (status == ESP_OK && options.order_any) {
        status = refuse(r, ESP_EUNSUPPORTED, part, "the option \"order\":\"any\" is not supported");
    }
    if (status == ESP_OK && r->have_schema && options.escapes_any != r->escapes_any) {
        status = refuse(r, ESP_EUNSUPPORTED, part, "the option \"escapes\" must be the same for all schemas");
    }
    if (status != ESP_OK) {
        return status;
    }
    bool source = v->type == ESP_JV_STRING; /* the schema's text inside of a string */
    r->have_schema = true;
    r->escapes_any = options.escapes_any;
    status = esp_schema_part(r->g, &options, source ? v->text : v->source, source ? v->n_bytes : v->source_bytes,
                             ret_id, r->err);
    return status == ESP_OK || r->err->code == ESP_OK ? status : refused_inside(r, status, v);
}

static esp_status build_regex(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    (void)part;
    if (v->type != ESP_JV_STRING || (v->n_bytes > 0 && memchr(v->text, '\0', v->n_bytes) != NULL)) {
        return refuse(r, ESP_EINVAL, v, "must be a string without NUL");
    }
    esp_status status = esp_regex_compile(r->x, ESP_SPELL_RAW, false, v->text, v->n_bytes, ret_id, r->err);
    return status == ESP_OK ? status : refused_inside(r, status, v);
}

esp_status esp_choice_build(struct esp_exprs *x, struct esp_arena *arena, const struct esp_jv *list, uint32_t *ret_id,
                            struct esp_err *err)
{
    uint32_t n = 0;
    if (list->type != ESP_JV_ARRAY) {
        return esp_fail(err, ESP_EINVAL, "choice must be an array of strings, is %s", esp_jv_type_name(list));
    }
    struct esp_spell_word *words = esp_arena_alloc(arena, (size_t)list->n + 1, sizeof *words);
    if (words == NULL) {
        return ESP_ENOMEM;
    }
    for (const struct esp_jv *v = list->child; v != NULL; v = v->next) {
        if (v->type != ESP_JV_STRING) {
            esp_status status = esp_fail(err, ESP_EINVAL, "choice must be an array of strings, member %u is %s",
                                         v->index, esp_jv_type_name(v));
            esp_err_place(err, "/%u", v->index);
            return status;
        }
        words[n++] = (struct esp_spell_word){v->text, v->n_bytes};
    }
    *ret_id = esp_spell_words(x, ESP_SPELL_RAW, arena, words, n, false, ESP_EXPR_EPS);
    return ESP_OK;
}

static esp_status build_choice(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    (void)part;
    esp_status status = esp_choice_build(r->x, &r->arena, v, ret_id, r->err);
    return status == ESP_OK || r->err->code == ESP_OK ? status : refused_inside(r, status, v);
}

/* ---- Free text --------------------------------------------------------------------------------- */

/* Any text that holds none of the words. */
static uint32_t free_text(struct esp_exprs *x, const struct esp_jv *const *words, uint32_t n_words)
{
    uint32_t any = esp_spell_any(x, ESP_SPELL_RAW), held = ESP_EXPR_EMPTY;
    for (uint32_t idx = 0; idx < n_words; idx++) {
        uint32_t word = esp_spell_text(x, ESP_SPELL_RAW, words[idx]->text, words[idx]->n_bytes, any);
        held = esp_expr_alt2(x, held, word);
    }
    uint32_t id = esp_expr_not(x, any, esp_expr_cat(x, any, held));
    esp_live_and(x, id);
    return id;
}

/* A token that spells text is a word; a control token is in no text anyway. */
static esp_status read_until(struct regions *r, const struct esp_jv *v, const struct esp_jv **words, uint32_t *n_words)
{
    uint32_t token = 0;
    const struct esp_jv *name = v->type == ESP_JV_OBJECT && v->n == 1 ? esp_jv_find(v, "token") : NULL;
    if (v->type == ESP_JV_STRING && v->n_bytes > 0) {
        words[(*n_words)++] = v;
        return ESP_OK;
    }
    if (name == NULL) {
        return refuse(r, ESP_EINVAL, v, "must be a text that is not empty, or {\"token\":…}");
    }
    esp_status status = find_token(r, name, &token);
    if (status != ESP_OK || r->g->trie->roles[token] == ESP_ROLE_CONTROL) {
        return status;
    }
    struct esp_jv *word = esp_arena_alloc(&r->arena, 1, sizeof *word);
    if (word == NULL) {
        return ESP_ENOMEM;
    }
    word->text = (const char *)esp_trie_token(r->g->trie, token, &word->n_bytes);
    words[(*n_words)++] = word;
    return ESP_OK;
}

static esp_status build_free(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id)
{
    uint32_t n_words = 0, n_tokens = ESP_EXPR_INF;
    (void)part;
    if (v->type != ESP_JV_OBJECT) {
        return refuse(r, ESP_EINVAL, v, "must be an object with \"until\" and \"tokens\"");
    }
    for (const struct esp_jv *m = v->child; m != NULL; m = m->next) {
        if (m != esp_jv_find(v, "until") && m != esp_jv_find(v, "tokens")) {
            return refuse(r, ESP_EINVAL, m, "no member of this name");
        }
    }
    const struct esp_jv *until = esp_jv_find(v, "until");
    if (until != NULL && until->type != ESP_JV_ARRAY) {
        return refuse(r, ESP_EINVAL, until, "must be an array");
    }
    const struct esp_jv **words = esp_arena_alloc(&r->arena, (until == NULL ? 0 : until->n) + 1u, sizeof *words);
    esp_status status = words == NULL ? ESP_ENOMEM : read_count(r, v, "tokens", &n_tokens);
    for (const struct esp_jv *u = until == NULL ? NULL : until->child; u != NULL && status == ESP_OK; u = u->next) {
        status = read_until(r, u, words, &n_words);
    }
    if (status == ESP_OK) {
        *ret_id = esp_expr_budget(r->x, free_text(r->x, words, n_words), n_tokens, false);
    }
    return status;
}

/* ---- Parts ------------------------------------------------------------------------------------- */

static const struct kind {
    const char *key, *more[2];
    esp_status (*build)(struct regions *r, const struct esp_jv *part, const struct esp_jv *v, uint32_t *ret_id);
} kinds[] = {
    {"seq", {NULL, NULL}, build_seq},         {"any", {NULL, NULL}, build_any},
    {"repeat", {"min", "max"}, build_repeat}, {"text", {NULL, NULL}, build_text},
    {"token", {NULL, NULL}, build_token},     {"schema", {"options", NULL}, build_schema},
    {"regex", {NULL, NULL}, build_regex},     {"choice", {NULL, NULL}, build_choice},
    {"free", {NULL, NULL}, build_free},
};

static const struct kind *find_kind(const struct esp_jv *part)
{
    for (size_t idx = 0; part->type == ESP_JV_OBJECT && idx < sizeof kinds / sizeof kinds[0]; idx++) {
        if (esp_jv_find(part, kinds[idx].key) != NULL) {
            return &kinds[idx];
        }
    }
    return NULL;
}

static esp_status build_part(struct regions *r, const struct esp_jv *part, uint32_t *ret_id)
{
    const struct kind *kind = find_kind(part);
    if (kind == NULL) {
        return refuse(r, ESP_EINVAL, part,
                      "must be an object with seq, any, repeat, text, token, schema, regex, choice or free");
    }
    const struct esp_jv *v = esp_jv_find(part, kind->key);
    for (const struct esp_jv *m = part->child; m != NULL; m = m->next) {
        bool known = m == v;
        for (int idx = 0; idx < 2 && kind->more[idx] != NULL; idx++) {
            known = known || m == esp_jv_find(part, kind->more[idx]);
        }
        if (!known) {
            return refuse(r, ESP_EINVAL, m, "no member of this name in such a part");
        }
    }
    if (++r->depth > PARTS_DEPTH_MAX) {
        return refuse(r, ESP_ELIMIT, part, "nested too deep");
    }
    uint32_t id = ESP_EXPR_EMPTY;
    esp_status status = kind->build(r, part, v, &id);
    r->depth--;
    if (status == ESP_OK && r->x->failed != ESP_OK) {
        status = refuse(r, r->x->failed, part, r->x->failed == ESP_ELIMIT ? "too large or too complex" : "no memory");
    }
    *ret_id = id;
    return status;
}

esp_status esp_regions_compile(struct esp_grammar *g, const struct esp_grammar_spec *spec, struct esp_err *err)
{
    struct regions r = {.g = g, .x = &g->base, .err = err, .options = &spec->options};
    struct esp_jv *root;
    uint32_t id = ESP_EXPR_EMPTY;
    esp_arena_init(&r.arena, ESP_TAG_GRAMMAR, (size_t)512 << 20);
    esp_bytesmap_init(&r.names, ESP_TAG_GRAMMAR);
    esp_status status = esp_jv_parse_large(&r.arena, spec->text, spec->n_bytes, ESP_GRAMMAR_REGIONS_BYTES_MAX,
                                           JSON_DEPTH_MAX, &root, err);
    if (status == ESP_OK) {
        status = esp_grammar_add_node(g, ESP_EXPR_EMPTY, &id); /* node 0, the whole */
    }
    if (status == ESP_OK) {
        status = build_part(&r, root, &id);
    }
    if (status == ESP_OK) {
        g->starts[0] = id;
    }
    esp_bytesmap_finish(&r.names);
    esp_arena_finish(&r.arena);
    return status;
}
