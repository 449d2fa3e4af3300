/* %json, %regex and %import of Lark. See lark.h. Thread: the owner's. */
#include <string.h>

#include "grammar/jtext.h"
#include "grammar/lark.h"
#include "grammar/regex.h"
#include "grammar/regions.h"
#include "runtime/base/utf8.h"

#define CHUNKS_MAX 20000u

/* The bytes of the JSON value that begins here, found by its brackets; the reader is left after it. */
static esp_status take_object(struct esp_lark *in, size_t *ret_begin, size_t *ret_n)
{
    size_t depth = 0;
    bool quoted = false;
    esp_lark_space(in, false);
    *ret_begin = in->at;
    if (esp_lark_peek(in) != '{') {
        return esp_lark_fail(in, ESP_EINVAL, "a JSON object was expected");
    }
    do {
        int c = esp_lark_peek(in);
        if (c < 0) {
            return esp_lark_fail(in, ESP_EINVAL, "the end of the JSON object is missing");
        }
        if (quoted && c == '\\') {
            in->at++;
        }
        quoted = quoted != (c == '"');
        depth += !quoted && (c == '{' || c == '[');
        depth -= !quoted && (c == '}' || c == ']');
        in->at++;
    } while (depth > 0);
    in->at = in->at > in->n ? in->n : in->at;
    *ret_n = in->at - *ret_begin;
    return ESP_OK;
}

/* What went wrong in the value, at its place in the grammar. */
static esp_status refused_inside(struct esp_lark *in, esp_status status, size_t begin, const struct esp_err *err)
{
    return err->code == ESP_OK ? status
                               : esp_cfg_fail(in->cfg, status, begin, "%s%s%.200s", err->place,
                                              err->place[0] == '\0' ? "" : ": ", err->message);
}

esp_status esp_lark_json(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    struct esp_err err = {0};
    size_t begin = 0, n = 0;
    uint32_t id = ESP_EXPR_EMPTY;
    esp_status status = take_object(in, &begin, &n);
    if (status != ESP_OK) {
        return status;
    }
    status = esp_schema_part(in->cfg->g, in->cfg->options, in->text + begin, n, &id, &err);
    return status == ESP_OK ? esp_lark_leaf(in, id, begin, 1, ret_node) : refused_inside(in, status, begin, &err);
}

/* ---- %regex: parts of a text ------------------------------------------------------------------- */

struct chunk {
    const char *text;
    size_t n;
};
struct chunks {
    struct chunk *list;
    uint32_t n, cap;
};

static const char word_chars[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/* Of a character: part of a word, white space, or something else. Beyond ASCII all is taken as words but spaces. */
static int class_of(uint32_t cp)
{
    static const uint32_t spaces[][2] = {{9, 13},          {' ', ' '},       {0x85, 0x85},     {0xA0, 0xA0},
                                         {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                                         {0x205F, 0x205F}, {0x3000, 0x3000}};
    bool space = false, word = cp >= 0x80 || cp == '_' || (cp != 0 && strchr(word_chars, (int)cp) != NULL);
    for (size_t idx = 0; idx < sizeof spaces / sizeof spaces[0]; idx++) {
        space = space || (cp >= spaces[idx][0] && cp <= spaces[idx][1]);
    }
    return space ? 0 : word ? 1 : 2;
}

/* Cuts a text into characters, or into runs of one class. False when there are too many. */
static bool cut_text(struct chunks *chunks, const char *text, size_t n, bool words)
{
    int before = -1;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        size_t used = (size_t)esp_utf8_decode(text + at, n - at, &cp);
        int now = class_of(cp);
        if (words && now == before) {
            chunks->list[chunks->n - 1].n += used;
        } else if (chunks->n == chunks->cap) {
            return false;
        } else {
            chunks->list[chunks->n++] = (struct chunk){text + at, used};
        }
        before = now;
        at += used;
    }
    return true;
}

/* Any run of neighbouring chunks, none too. */
static uint32_t runs_of(struct esp_exprs *x, const struct chunks *chunks)
{
    uint32_t mark = x->n_scratch, rest = ESP_EXPR_EPS;
    esp_exprs_push(x, rest);
    for (uint32_t at = chunks->n; at-- > 0 && x->failed == ESP_OK;) {
        rest = esp_expr_opt(x, esp_spell_text(x, ESP_SPELL_RAW, chunks->list[at].text, chunks->list[at].n, rest));
        esp_exprs_push(x, rest);
    }
    uint32_t id = x->failed != ESP_OK ? ESP_EXPR_EMPTY : esp_expr_alt(x, x->scratch + mark, x->n_scratch - mark);
    x->n_scratch = mark;
    return id;
}

static esp_status cut_value(struct esp_lark *in, const struct esp_jv *v, size_t begin, struct chunks *chunks)
{
    bool fits = true;
    chunks->cap = CHUNKS_MAX;
    chunks->list = esp_arena_alloc(&in->cfg->arena, CHUNKS_MAX, sizeof *chunks->list);
    if (chunks->list == NULL) {
        return ESP_ENOMEM;
    }
    bool words = v == esp_jv_find(v->parent, "substring_words");
    if (v->type == ESP_JV_STRING && (words || v == esp_jv_find(v->parent, "substring_chars"))) {
        fits = cut_text(chunks, v->text, v->n_bytes, words);
    } else if (v->type == ESP_JV_ARRAY && v == esp_jv_find(v->parent, "substring_chunks")) {
        for (const struct esp_jv *m = v->child; m != NULL && fits; m = m->next) {
            if (m->type != ESP_JV_STRING) {
                return esp_cfg_fail(in->cfg, ESP_EINVAL, begin, "substring_chunks must be an array of strings");
            }
            fits = chunks->n < chunks->cap;
            chunks->list[fits ? chunks->n++ : 0] = (struct chunk){m->text, m->n_bytes};
        }
    } else {
        return esp_cfg_fail(in->cfg, ESP_EUNSUPPORTED, begin,
                            "%%regex takes one of substring_chars, substring_words and substring_chunks");
    }
    return fits ? ESP_OK : esp_cfg_fail(in->cfg, ESP_ELIMIT, begin, "more than %u chunks", CHUNKS_MAX);
}

esp_status esp_lark_regex(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    struct esp_err err = {0};
    struct esp_jv *root;
    struct chunks chunks = {0};
    size_t begin = 0, n = 0;
    esp_lark_take(in, "%regex");
    esp_status status = take_object(in, &begin, &n);
    if (status != ESP_OK) {
        return status;
    }
    status = esp_jv_parse(&in->cfg->arena, in->text + begin, n, &root, &err);
    if (status != ESP_OK) {
        return refused_inside(in, status, begin, &err);
    }
    if (root->n != 1) {
        return esp_cfg_fail(in->cfg, ESP_EUNSUPPORTED, begin,
                            "%%regex takes one of substring_chars, substring_words and substring_chunks");
    }
    status = cut_value(in, root->child, begin, &chunks);
    return status == ESP_OK ? esp_lark_leaf(in, runs_of(in->cfg->x, &chunks), begin, (uint32_t)n, ret_node) : status;
}

/* ---- %import common ---------------------------------------------------------------------------- */

static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[a-fA-F0-9]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[-+]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][-+]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[-+]?([0-9]+[eE][-+]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?)"},
    {"NUMBER", "[0-9]+([eE][-+]?[0-9]+)?|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[-+]?([0-9]+([eE][-+]?[0-9]+)?|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"C_COMMENT", "\\/\\*([^*]|\\*+[^*/])*\\*+\\/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/* One name of the library, under its own or another name. */
static esp_status import_one(struct esp_lark *in, bool may_rename)
{
    size_t begin = in->at, n = esp_lark_name_bytes(in), idx = 0;
    const char *name = in->text + begin;
    while (idx < sizeof common / sizeof common[0] &&
           (strlen(common[idx].name) != n || memcmp(common[idx].name, name, n) != 0)) {
        idx++;
    }
    if (idx == sizeof common / sizeof common[0]) {
        return esp_lark_fail(in, n == 0 ? ESP_EINVAL : ESP_EUNSUPPORTED, "no name of the common library");
    }
    in->at += n;
    esp_lark_space(in, true);
    if (may_rename && esp_lark_take(in, "->")) {
        esp_lark_space(in, true);
        name = in->text + in->at;
        n = esp_lark_name_bytes(in);
        if (n == 0) {
            return esp_lark_fail(in, ESP_EINVAL, "a name was expected after ->");
        }
        in->at += n;
    }
    struct esp_cfg_node *leaf;
    uint32_t rule = 0, id = ESP_EXPR_EMPTY;
    esp_status status = esp_cfg_rule(in->cfg, name, n, &rule);
    if (status == ESP_OK && in->cfg->rules[rule].body != NULL) {
        return esp_cfg_fail(in->cfg, ESP_EINVAL, begin, "this name is defined twice");
    }
    if (status == ESP_OK) {
        status = esp_regex_compile_flags(in->cfg->x, 0, common[idx].pattern, strlen(common[idx].pattern), &id, NULL);
    }
    status = status == ESP_OK ? esp_lark_leaf(in, id, begin, 4, &leaf) : status;
    if (status == ESP_OK) {
        in->cfg->rules[rule].body = leaf;
        in->cfg->rules[rule].terminal = true;
    }
    return status;
}

esp_status esp_lark_import(struct esp_lark *in)
{
    esp_lark_space(in, true);
    if (!esp_lark_take(in, "common")) {
        return esp_lark_fail(in, ESP_EUNSUPPORTED, "only the library common can be imported");
    }
    if (esp_lark_take(in, ".")) {
        return import_one(in, true);
    }
    esp_lark_space(in, true);
    if (!esp_lark_take(in, "(")) {
        return esp_lark_fail(in, ESP_EINVAL, "a . or ( was expected");
    }
    esp_status status;
    do {
        esp_lark_space(in, false);
        status = import_one(in, false);
        esp_lark_space(in, false);
    } while (status == ESP_OK && esp_lark_take(in, ","));
    if (status == ESP_OK && !esp_lark_take(in, ")")) {
        status = esp_lark_fail(in, ESP_EINVAL, "a ) was expected");
    }
    return status;
}
