/* Leaves of Lark: strings and ranges of characters, patterns, tokens in angle brackets. See lark.h.
 * Thread: the owner's. */
#include <string.h>

#include "grammar/gbnf.h"
#include "grammar/lark.h"
#include "grammar/regex.h"
#include "runtime/base/utf8.h"

#define TOKEN_RANGES_MAX 256u

/* ---- Strings ----------------------------------------------------------------------------------- */

static esp_status read_hex(struct esp_lark *in, unsigned n_digits, uint32_t *ret_cp)
{
    uint32_t cp = 0;
    for (unsigned idx = 0; idx < n_digits; idx++, in->at++) {
        int c = esp_lark_peek(in), lower = c | 0x20;
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0 || c < 0) {
            return esp_lark_fail(in, ESP_EINVAL, "a hexadecimal digit was expected");
        }
        cp = cp << 4 | (uint32_t)digit;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        return esp_lark_fail(in, ESP_EINVAL, "no character has this number");
    }
    *ret_cp = cp;
    return ESP_OK;
}

static esp_status read_char(struct esp_lark *in, uint32_t *ret_cp)
{
    static const char from[] = "nrtfbv\"\\/'", to[] = "\n\r\t\f\b\v\"\\/'";
    int c = esp_lark_peek(in);
    if (c < 0 || c == '\n') {
        return esp_lark_fail(in, ESP_EINVAL, "the end of the string is missing");
    }
    if (c != '\\') {
        in->at += (size_t)esp_utf8_decode(in->text + in->at, in->n - in->at, ret_cp);
        return ESP_OK;
    }
    in->at++;
    c = esp_lark_peek(in);
    if (c == 'x' || c == 'u' || c == 'U') {
        in->at++;
        return read_hex(in, c == 'x' ? 2 : c == 'u' ? 4 : 8, ret_cp);
    }
    const char *simple = c <= 0 ? NULL : strchr(from, c);
    if (simple == NULL) {
        return esp_lark_fail(in, ESP_EINVAL, "unknown escape");
    }
    *ret_cp = (uint32_t)to[simple - from];
    in->at++;
    return ESP_OK;
}

/* The text between quotes, decoded, in the arena. */
static esp_status read_quoted(struct esp_lark *in, char **ret_text, size_t *ret_n)
{
    size_t n = 0, end = ++in->at;
    while (end < in->n && in->text[end] != '"' && in->text[end] != '\n') {
        end += in->text[end] == '\\' ? 2 : 1;
    }
    char *text = esp_arena_alloc(&in->cfg->arena, (end - in->at) + 8, 1);
    esp_status status = text == NULL ? ESP_ENOMEM : ESP_OK;
    while (status == ESP_OK && esp_lark_peek(in) != '"') {
        uint32_t cp = 0;
        status = read_char(in, &cp);
        n += status == ESP_OK ? (size_t)esp_utf8_encode(cp, text + n) : 0;
    }
    in->at += status == ESP_OK;
    *ret_text = text;
    *ret_n = n;
    return status;
}

/* The text with either case of its letters. */
static esp_status fold_text(struct esp_lark *in, size_t begin, const char *text, size_t n, uint32_t *ret_id)
{
    struct esp_exprs *x = in->cfg->x;
    uint32_t id = ESP_EXPR_EPS;
    for (size_t at = n; at-- > 0;) {
        unsigned char c = (unsigned char)text[at];
        if (c >= 0x80) {
            return esp_cfg_fail(in->cfg, ESP_EUNSUPPORTED, begin, "the flag i beside characters beyond ASCII");
        }
        uint32_t one = esp_expr_byte(x, c);
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') {
            one = esp_expr_alt2(x, one, esp_expr_byte(x, c ^ 0x20u));
        }
        id = esp_expr_cat(x, one, id);
    }
    *ret_id = id;
    return ESP_OK;
}

/* "a".."z": after the dots. */
static esp_status read_range(struct esp_lark *in, size_t begin, const char *text, size_t n,
                             struct esp_cfg_node **ret_node)
{
    struct esp_cprange range;
    struct esp_cpset set = {.r = &range, .n = 1};
    char *last;
    size_t n_last = 0;
    if (esp_lark_peek(in) != '"') {
        return esp_lark_fail(in, ESP_EINVAL, "a string was expected after ..");
    }
    esp_status status = read_quoted(in, &last, &n_last);
    if (status != ESP_OK) {
        return status;
    }
    bool single = n > 0 && n_last > 0 && esp_utf8_decode(text, n, &range.first) == (int)n &&
                  esp_utf8_decode(last, n_last, &range.last) == (int)n_last;
    if (!single || range.last < range.first) {
        return esp_cfg_fail(in->cfg, ESP_EINVAL, begin, "a range must go from one character up to another");
    }
    struct esp_cpset clean;
    esp_cpset_init(&clean, &in->cfg->arena);
    esp_cpset_add_set(&clean, &set);
    esp_cpset_normalise(&clean);
    return esp_lark_leaf(in, esp_spell_set(in->cfg->x, ESP_SPELL_RAW, &clean), begin, 1, ret_node);
}

esp_status esp_lark_string(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at, n = 0;
    uint32_t id = ESP_EXPR_EMPTY;
    char *text;
    esp_status status = read_quoted(in, &text, &n);
    if (status != ESP_OK) {
        return status;
    }
    if (esp_lark_take(in, "..")) {
        return read_range(in, begin, text, n, ret_node);
    }
    if (esp_lark_peek(in) == 'i') {
        in->at++;
        status = fold_text(in, begin, text, n, &id);
    } else {
        id = esp_spell_text(in->cfg->x, ESP_SPELL_RAW, text, n, ESP_EXPR_EPS);
    }
    return status == ESP_OK ? esp_lark_leaf(in, id, begin, (uint32_t)n, ret_node) : status;
}

/* ---- Patterns ---------------------------------------------------------------------------------- */

static esp_status read_flags(struct esp_lark *in, unsigned *ret_flags)
{
    *ret_flags = ESP_REGEX_DOT_LINE;
    for (int c = esp_lark_peek(in); c >= 'a' && c <= 'z'; c = esp_lark_peek(in)) {
        if (c != 'i' && c != 's' && c != 'u') {
            return esp_lark_fail(in, ESP_EUNSUPPORTED, "of the flags of a pattern only i, s and u are supported");
        }
        *ret_flags |= c == 'i' ? ESP_REGEX_FOLD : c == 's' ? ESP_REGEX_DOT_ALL : 0;
        in->at++;
    }
    return ESP_OK;
}

esp_status esp_lark_pattern(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at++, first = in->at;
    struct esp_err err = {0};
    unsigned flags;
    uint32_t id = ESP_EXPR_EMPTY;
    while (esp_lark_peek(in) >= 0 && esp_lark_peek(in) != '/' && esp_lark_peek(in) != '\n') {
        in->at += esp_lark_peek(in) == '\\' && in->at + 1 < in->n && in->text[in->at + 1] != '\n' ? 2 : 1;
    }
    size_t n = in->at - first;
    if (esp_lark_peek(in) != '/') {
        return esp_lark_fail(in, ESP_EINVAL, "the / at the end of the pattern is missing");
    }
    in->at++;
    esp_status status = read_flags(in, &flags);
    if (status != ESP_OK) {
        return status;
    }
    status = esp_regex_compile_flags(in->cfg->x, flags, in->text + first, n, &id, &err);
    if (status != ESP_OK) {
        return esp_cfg_fail(in->cfg, status, first + (err.offset < n ? (size_t)err.offset : 0), "%.200s", err.message);
    }
    return esp_lark_leaf(in, id, begin, (uint32_t)n, ret_node);
}

/* ---- Tokens ------------------------------------------------------------------------------------ */

/* After <[ and maybe ^: ids and ranges of ids up to ], or *. */
static esp_status read_ids(struct esp_lark *in, uint32_t *pairs, uint32_t *ret_n)
{
    uint32_t n = 0;
    while (n < TOKEN_RANGES_MAX) {
        esp_status status = esp_lark_number(in, &pairs[2 * n]);
        pairs[2 * n + 1] = pairs[2 * n];
        if (status == ESP_OK && esp_lark_take(in, "-")) {
            status = esp_lark_number(in, &pairs[2 * n + 1]);
        }
        if (status == ESP_OK && (pairs[2 * n + 1] < pairs[2 * n] || pairs[2 * n + 1] >= in->cfg->g->trie->n_tokens)) {
            status = esp_lark_fail(in, ESP_EINVAL, "the vocabulary has no such tokens");
        }
        if (status != ESP_OK) {
            return status;
        }
        n++;
        if (!esp_lark_take(in, ",")) {
            *ret_n = n;
            return ESP_OK;
        }
        esp_lark_space(in, true);
    }
    return esp_lark_fail(in, ESP_ELIMIT, "too many ranges of tokens");
}

static esp_status read_token_set(struct esp_lark *in, size_t begin, struct esp_cfg_node **ret_node)
{
    uint32_t pairs[2 * TOKEN_RANGES_MAX], n = 0;
    bool others = esp_lark_take(in, "^");
    esp_status status = ESP_OK;
    if (!others && esp_lark_take(in, "*")) {
        others = true;
    } else {
        status = read_ids(in, pairs, &n);
    }
    if (status == ESP_OK && !esp_lark_take(in, "]>")) {
        status = esp_lark_fail(in, ESP_EINVAL, "]> was expected");
    }
    for (uint32_t idx = 0; idx < n && status == ESP_OK && !others; idx++) {
        for (uint32_t end = 0; end < in->cfg->g->trie->n_ends; end++) {
            uint32_t token = in->cfg->g->trie->ends[end];
            if (token >= pairs[2 * idx] && token <= pairs[2 * idx + 1]) {
                status = esp_cfg_fail(in->cfg, ESP_EINVAL, begin,
                                      "the token %u ends every answer and comes by itself "
                                      "when all is complete",
                                      token);
            }
        }
    }
    return status == ESP_OK ? esp_cfg_token_node(in->cfg, begin, pairs, n, others, ret_node) : status;
}

esp_status esp_lark_token(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at;
    uint32_t token = 0;
    if (esp_lark_take(in, "<[")) {
        return read_token_set(in, begin, ret_node);
    }
    while (esp_lark_peek(in) >= 0 && esp_lark_peek(in) != '>' && esp_lark_peek(in) != '\n') {
        in->at++;
    }
    if (!esp_lark_take(in, ">")) {
        return esp_lark_fail(in, ESP_EINVAL, "the > of a token is missing");
    }
    esp_status status = esp_cfg_find_token(in->cfg, begin, in->text + begin, in->at - begin, &token);
    uint32_t pair[2] = {token, token};
    return status == ESP_OK ? esp_cfg_token_node(in->cfg, begin, pair, 1, false, ret_node) : status;
}
