/* Compiling, and the life of a grammar: base expressions, the current store, warnings.
 *
 * The base is immutable after compile; each store copies it and grows lazily. A full store is replaced by
 * a fresh one; matchers on the old one move over when they next look. Thread: any.
 */
#include "grammar/matcher.h"
#include "grammar/objects.h"

#include <string.h>

#include "grammar/gbnf.h"
#include "grammar/lark.h"
#include "grammar/regex.h"
#include "grammar/regions.h"
#include "grammar/schema.h"
#include "runtime/base/utf8.h"

#define COMPILE_BYTES_MAX (256u * 1024 * 1024)
#define WEAK_MAX 24 /* keywords that lenient leaves out */
#define EXPLAIN_BYTES_MAX (8u * 1024 * 1024)
#define WARNINGS_BYTES_MAX (64u * 1024)

static esp_status one_start(struct esp_grammar *g, uint32_t expr)
{
    g->starts = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *g->starts);
    if (g->starts == NULL) {
        return ESP_ENOMEM;
    }
    g->starts[0] = expr;
    g->n_starts = 1;
    return ESP_OK;
}

static esp_status compile_regex(struct esp_grammar *g, const struct esp_grammar_spec *spec, struct esp_err *err)
{
    uint32_t expr;
    if (spec->n_bytes > 0 && memchr(spec->text, '\0', spec->n_bytes) != NULL) {
        return esp_fail(err, ESP_EINVAL, "a regex must not hold a NUL; write \\x00 to match one");
    }
    esp_status status = esp_regex_compile(&g->base, ESP_SPELL_RAW, false, spec->text, spec->n_bytes, &expr, err);
    return status == ESP_OK ? one_start(g, expr) : status;
}

static esp_status compile_choice(struct esp_grammar *g, const struct esp_grammar_spec *spec, struct esp_err *err)
{
    struct esp_arena arena;
    struct esp_jv *root;
    uint32_t id = ESP_EXPR_EMPTY;
    esp_arena_init(&arena, ESP_TAG_GRAMMAR, COMPILE_BYTES_MAX);
    esp_status status = esp_jv_parse(&arena, spec->text, spec->n_bytes, &root, err);
    if (status == ESP_OK) {
        status = esp_choice_build(&g->base, &arena, root, &id, err);
    }
    if (status == ESP_OK) {
        status = one_start(g, id);
    }
    esp_arena_finish(&arena);
    return status;
}

static esp_status compile_rules(struct esp_grammar *g, const struct esp_grammar_spec *spec,
                                esp_status (*read)(struct esp_cfg *cfg, uint32_t *ret_root), struct esp_err *err)
{
    struct esp_cfg cfg;
    uint32_t root = 0, node, id = ESP_EXPR_EMPTY;
    esp_cfg_init(&cfg, g, spec, err);
    size_t valid = spec->n_bytes == 0 ? 0 : esp_utf8_valid(spec->text, spec->n_bytes);
    esp_status status = valid == spec->n_bytes ? ESP_OK : esp_cfg_fail(&cfg, ESP_EINVAL, valid, "not valid UTF-8");
    if (status == ESP_OK) {
        status = esp_grammar_add_node(g, ESP_EXPR_EMPTY, &node); /* node 0, the whole */
    }
    if (status == ESP_OK) {
        status = read(&cfg, &root);
    }
    if (status == ESP_OK) {
        status = esp_cfg_compile(&cfg, root, &id);
    }
    if (status == ESP_OK) {
        g->starts[0] = id;
    }
    esp_cfg_finish(&cfg);
    return status;
}

static esp_status compile_kind(struct esp_grammar *g, const struct esp_grammar_spec *spec, struct esp_err *err)
{
    static const char any_object[] = "{\"type\":\"object\"}";
    if (spec->options.order_any) {
        esp_status status = esp_fail(err, ESP_EUNSUPPORTED, "the option \"order\":\"any\" is not supported");
        esp_err_place(err, "order");
        return status;
    }
    switch (spec->kind) {
    case ESP_GRAMMAR_SCHEMA:
        return esp_schema_compile(&g->base, g->lens, &spec->options, spec->text, spec->n_bytes, &g->warnings,
                                  &g->starts, &g->n_starts, err);
    case ESP_GRAMMAR_JSON:
        return esp_schema_compile(&g->base, g->lens, &spec->options, any_object, sizeof any_object - 1, &g->warnings,
                                  &g->starts, &g->n_starts, err);
    case ESP_GRAMMAR_REGEX: return compile_regex(g, spec, err);
    case ESP_GRAMMAR_CHOICE: return compile_choice(g, spec, err);
    case ESP_GRAMMAR_GBNF: return compile_rules(g, spec, esp_gbnf_read, err);
    case ESP_GRAMMAR_LARK: return compile_rules(g, spec, esp_lark_read, err);
    case ESP_GRAMMAR_REGIONS: return esp_regions_compile(g, spec, err);
    }
    return esp_fail(err, ESP_EINVAL, "unknown kind of grammar");
}

/* Is there a text, and can the vocabulary spell it? */
static esp_status check_start(struct esp_grammar *g, struct esp_err *err)
{
    struct esp_store *store = g->store;
    uint32_t start = esp_conf_start(store, 0);
    if (store->x.failed != ESP_OK) {
        return store->x.failed;
    }
    if (start == ESP_CONF_DEAD) {
        return esp_fail(err, ESP_EUNSAT, "no text can satisfy the grammar");
    }
    if (!esp_store_live(store, start)) {
        return store->x.failed != ESP_OK
                   ? store->x.failed
                   : esp_fail(err, ESP_EUNSAT, "the vocabulary cannot spell any text of the grammar");
    }
    return ESP_OK;
}

static void grammar_destroy(struct esp_grammar *g)
{
    esp_store_destroy(g->store);
    esp_objects_destroy(g->base.objects);
    esp_exprs_finish(&g->base);
    esp_lens_destroy(g->lens);
    esp_free(g->starts);
    esp_buf_finish(&g->warnings);
    pthread_mutex_destroy(&g->lock);
    esp_free(g);
}

static esp_status check_spec(const struct esp_grammar_spec *spec, struct esp_err *err)
{
    if (spec->text == NULL && spec->n_bytes > 0) {
        return esp_fail(err, ESP_EINVAL, "a grammar without text");
    }
    size_t bytes_max = spec->kind == ESP_GRAMMAR_REGIONS ? ESP_GRAMMAR_REGIONS_BYTES_MAX : ESP_GRAMMAR_TEXT_BYTES_MAX;
    if (spec->n_bytes > bytes_max) {
        return esp_fail(err, ESP_ELIMIT, "a grammar of %zu bytes; at most %zu are taken", spec->n_bytes, bytes_max);
    }
    return ESP_OK;
}

static esp_status compile_once(const struct esp_trie *trie, const struct esp_grammar_spec *spec,
                               struct esp_grammar **ret_grammar, struct esp_err *err)
{
    struct esp_err own = {0};
    esp_status status;
    struct esp_grammar *g = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *g);
    if (g == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for the grammar");
    }
    pthread_mutex_init(&g->lock, NULL);
    atomic_init(&g->n_refs, 1);
    g->trie = trie;
    esp_buf_init(&g->warnings, ESP_TAG_GRAMMAR, WARNINGS_BYTES_MAX);
    esp_buf_char(&g->warnings, '[');
    esp_exprs_init(&g->base, &trie->alphabet, spec->options.fuel != 0 ? spec->options.fuel : ESP_GRAMMAR_FUEL,
                   COMPILE_BYTES_MAX);
    g->lens = esp_lens_create();
    g->base.lens = g->lens;
    g->base.objects = esp_objects_create();
    status = g->lens == NULL || g->base.objects == NULL ? ESP_ENOMEM : g->base.failed;
    if (status == ESP_OK) {
        status = compile_kind(g, spec, &own);
    }
    if (status == ESP_OK) {
        status = g->base.failed;
    }
    if (status == ESP_OK) {
        esp_buf_char(&g->warnings, ']');
        status = esp_store_create(&g->base, g->starts, trie, &g->store);
    }
    if (status == ESP_OK) {
        status = check_start(g, &own);
    }
    if (status != ESP_OK) {
        if (own.code == ESP_OK) {
            esp_fail(&own, status,
                     status == ESP_ELIMIT ? "the grammar is too large or too complex"
                                          : "out of memory for the grammar");
        }
        if (err != NULL) {
            *err = own;
        }
        grammar_destroy(g);
        return status;
    }
    esp_arena_finish(&g->base.arena); /* rows of the compile; stores make their own */
    for (uint32_t id = 0; id < g->base.n_exprs; id++) {
        g->base.exprs[id].row = 0;
    }
    *ret_grammar = g;
    return ESP_OK;
}

esp_status esp_grammar_compile(const struct esp_trie *trie, const struct esp_grammar_spec *spec,
                               struct esp_grammar **ret_grammar, struct esp_err *err)
{
    struct esp_err errs[WEAK_MAX + 1];
    struct esp_grammar_weak weak[WEAK_MAX];
    struct esp_grammar_spec mine = *spec;
    esp_status status = check_spec(spec, err);
    for (int n = 0; status == ESP_OK; n++) {
        errs[n] = (struct esp_err){0};
        esp_status tried = compile_once(trie, &mine, ret_grammar, &errs[n]);
        bool refused = tried == ESP_EUNSUPPORTED || tried == ESP_ELIMIT;
        if (!refused || !spec->options.lenient || spec->kind != ESP_GRAMMAR_SCHEMA || n == WEAK_MAX) {
            if (tried != ESP_OK && err != NULL) {
                *err = errs[n];
            }
            return tried;
        }
        weak[n] = (struct esp_grammar_weak){errs[n].place, errs[n].message, NULL};
        if (n > 0) {
            weak[n - 1].next = &weak[n];
        }
        mine.options.weak = weak;
    }
    return status;
}

esp_status esp_grammar_explain(const struct esp_trie *trie, const struct esp_grammar_spec *spec, struct esp_buf *buf,
                               struct esp_err *err)
{
    struct esp_buf own;
    struct esp_grammar_spec mine = *spec;
    struct esp_grammar *grammar = NULL;
    esp_buf_init(&own, ESP_TAG_GRAMMAR, EXPLAIN_BYTES_MAX);
    mine.options.explain = &own;
    esp_status status = esp_grammar_compile(trie, &mine, &grammar, err);
    esp_buf_str(buf, own.n == 0 || own.failed ? "[]" : own.data);
    esp_grammar_unref(grammar);
    esp_buf_finish(&own);
    return status;
}

struct esp_grammar *esp_grammar_ref(struct esp_grammar *grammar)
{
    atomic_fetch_add(&grammar->n_refs, 1);
    return grammar;
}

const struct esp_trie *esp_grammar_trie(const struct esp_grammar *grammar)
{
    return grammar->trie;
}

void esp_grammar_unref(struct esp_grammar *grammar)
{
    if (grammar != NULL && atomic_fetch_sub(&grammar->n_refs, 1) == 1) {
        grammar_destroy(grammar);
    }
}

size_t esp_grammar_bytes(const struct esp_grammar *grammar)
{
    struct esp_store *store = grammar->store;
    pthread_mutex_lock(&store->lock);
    size_t bytes = esp_store_bytes(store);
    pthread_mutex_unlock(&store->lock);
    return sizeof *grammar + esp_exprs_bytes(&grammar->base) + esp_lens_bytes(grammar->lens) +
           esp_objects_bytes(grammar->base.objects) +
           (size_t)grammar->n_starts * sizeof *grammar->starts + bytes;
}

const char *esp_grammar_warnings(const struct esp_grammar *grammar)
{
    return grammar->warnings.failed ? "[]" : grammar->warnings.data;
}
