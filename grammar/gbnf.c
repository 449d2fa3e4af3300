/* The reader of GBNF. See gbnf.h. Groups nest at most ESP_CFG_DEPTH_MAX deep. Thread: the owner's. */
#include "grammar/gbnf.h"

#include <string.h>

#include "runtime/base/utf8.h"

struct reader {
    struct esp_cfg *cfg;
    const char *text;
    size_t n, at;
    unsigned depth;
};

static int peek(const struct reader *in)
{
    return in->at < in->n ? (unsigned char)in->text[in->at] : -1;
}

static bool is_name(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Blanks, line breaks and comments. */
static void skip_space(struct reader *in)
{
    for (int c = peek(in); c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#'; c = peek(in)) {
        while (c == '#' && in->at < in->n && in->text[in->at] != '\n') {
            in->at++;
        }
        in->at += in->at < in->n;
    }
}

static size_t name_bytes(const struct reader *in)
{
    size_t end = in->at;
    while (end < in->n && is_name((unsigned char)in->text[end])) {
        end++;
    }
    return end - in->at;
}

/* Does a rule begin here: a name and ::= after it? */
static bool at_rule(const struct reader *in)
{
    struct reader ahead = *in;
    size_t n = name_bytes(in);
    ahead.at += n;
    skip_space(&ahead);
    return n > 0 && ahead.n - ahead.at >= 3 && memcmp(ahead.text + ahead.at, "::=", 3) == 0;
}

static esp_status fail(struct reader *in, const char *what)
{
    return esp_cfg_fail(in->cfg, ESP_EINVAL, in->at, "%s", what);
}

static esp_status new_node(struct reader *in, enum esp_cfg_op op, uint32_t value, size_t at,
                           struct esp_cfg_node **ret_node)
{
    *ret_node = esp_cfg_node(in->cfg, op, value, at);
    return *ret_node == NULL ? ESP_ENOMEM : ESP_OK;
}

/* ---- Characters -------------------------------------------------------------------------------- */

static esp_status read_hex(struct reader *in, unsigned n_digits, uint32_t *ret_cp)
{
    uint32_t cp = 0;
    for (unsigned idx = 0; idx < n_digits; idx++, in->at++) {
        int c = peek(in), lower = c | 0x20;
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0 || c < 0) {
            return fail(in, "a hexadecimal digit was expected");
        }
        cp = cp << 4 | (uint32_t)digit;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) {
        return fail(in, "no character has this number");
    }
    *ret_cp = cp;
    return ESP_OK;
}

static esp_status read_char(struct reader *in, uint32_t *ret_cp)
{
    int c = peek(in);
    if (c < 0 || c == '\n') {
        return fail(in, "the end of the literal or class is missing");
    }
    if (c != '\\') {
        in->at += (size_t)esp_utf8_decode(in->text + in->at, in->n - in->at, ret_cp);
        return ESP_OK;
    }
    in->at++;
    c = peek(in);
    switch (c) {
    case 'x': in->at++; return read_hex(in, 2, ret_cp);
    case 'u': in->at++; return read_hex(in, 4, ret_cp);
    case 'U': in->at++; return read_hex(in, 8, ret_cp);
    case 'n': *ret_cp = '\n'; break;
    case 'r': *ret_cp = '\r'; break;
    case 't': *ret_cp = '\t'; break;
    default:
        if (c <= ' ' || c >= 0x7F || (is_name(c) && c != '-' && c != '_')) {
            return fail(in, "unknown escape");
        }
        *ret_cp = (uint32_t)c;
    }
    in->at++;
    return ESP_OK;
}

static esp_status read_literal(struct reader *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at++, n = 0;
    char *text = esp_arena_alloc(&in->cfg->arena, in->n - begin + 4, 1);
    esp_status status = text == NULL ? ESP_ENOMEM : ESP_OK;
    while (status == ESP_OK && peek(in) != '"') {
        uint32_t cp = 0;
        status = read_char(in, &cp);
        n += status == ESP_OK ? (size_t)esp_utf8_encode(cp, text + n) : 0;
    }
    if (status == ESP_OK) {
        in->at++;
        uint32_t id = esp_spell_text(in->cfg->x, ESP_SPELL_RAW, text, n, ESP_EXPR_EPS);
        status = new_node(in, ESP_CFG_EXPR, id, begin, ret_node);
    }
    if (status == ESP_OK) {
        (*ret_node)->lo = (uint32_t)n;
    }
    return status;
}

static esp_status read_class(struct reader *in, struct esp_cfg_node **ret_node)
{
    struct esp_cpset set;
    size_t begin = in->at++;
    esp_cpset_init(&set, &in->cfg->arena);
    bool negated = peek(in) == '^';
    in->at += negated;
    if (peek(in) == ']') {
        return fail(in, "an empty class");
    }
    while (peek(in) != ']') {
        uint32_t first = 0, last;
        esp_status status = read_char(in, &first);
        last = first;
        if (status == ESP_OK && peek(in) == '-' && in->at + 1 < in->n && in->text[in->at + 1] != ']') {
            in->at++;
            status = read_char(in, &last);
        }
        if (status != ESP_OK) {
            return status;
        }
        if (last < first) {
            return fail(in, "a range that ends before it begins");
        }
        esp_cpset_add(&set, first, last);
    }
    in->at++;
    esp_cpset_normalise(&set);
    if (negated) {
        esp_cpset_negate(&set);
    }
    return set.failed ? ESP_ENOMEM
                      : new_node(in, ESP_CFG_EXPR, esp_spell_set(in->cfg->x, ESP_SPELL_RAW, &set), begin, ret_node);
}

static esp_status read_any(struct reader *in, struct esp_cfg_node **ret_node)
{
    struct esp_cprange ranges[2] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};
    struct esp_cpset all = {.r = ranges, .n = 2};
    in->at++;
    return new_node(in, ESP_CFG_EXPR, esp_spell_set(in->cfg->x, ESP_SPELL_RAW, &all), in->at - 1, ret_node);
}

/* ---- Tokens ------------------------------------------------------------------------------------ */

static esp_status read_token(struct reader *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at;
    uint32_t token = 0;
    bool others = peek(in) == '!';
    in->at += others;
    size_t name = in->at;
    if (peek(in) != '<') {
        return fail(in, "a token in < > was expected after !");
    }
    while (peek(in) >= 0 && peek(in) != '>' && peek(in) != '\n') {
        in->at++;
    }
    if (peek(in) != '>') {
        return fail(in, "the > of a token is missing");
    }
    in->at++;
    esp_status status = esp_cfg_find_token(in->cfg, name, in->text + name, in->at - name, &token);
    uint32_t pair[2] = {token, token};
    return status == ESP_OK ? esp_cfg_token_node(in->cfg, begin, pair, 1, others, ret_node) : status;
}

/* ---- Items, sequences, alternatives ------------------------------------------------------------ */

static esp_status read_alternatives(struct reader *in, struct esp_cfg_node **ret_node);

static esp_status read_group(struct reader *in, struct esp_cfg_node **ret_node)
{
    in->at++;
    if (++in->depth > ESP_CFG_DEPTH_MAX) {
        return esp_cfg_fail(in->cfg, ESP_ELIMIT, in->at, "groups nest deeper than %u", ESP_CFG_DEPTH_MAX);
    }
    esp_status status = read_alternatives(in, ret_node);
    in->depth--;
    if (status == ESP_OK && peek(in) != ')') {
        return fail(in, peek(in) < 0 ? "a ) is missing" : "a ) or an item was expected");
    }
    in->at++;
    return status;
}

static esp_status read_name(struct reader *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at, n = name_bytes(in);
    uint32_t rule = 0;
    in->at += n;
    esp_status status = esp_cfg_rule(in->cfg, in->text + begin, n, &rule);
    return status == ESP_OK ? new_node(in, ESP_CFG_REF, rule, begin, ret_node) : status;
}

/* *ret_node is NULL when no item begins here. */
static esp_status read_item(struct reader *in, struct esp_cfg_node **ret_node)
{
    int c = peek(in);
    *ret_node = NULL;
    switch (c) {
    case '"': return read_literal(in, ret_node);
    case '[': return read_class(in, ret_node);
    case '(': return read_group(in, ret_node);
    case '.': return read_any(in, ret_node);
    case '<':
    case '!': return read_token(in, ret_node);
    default: return is_name(c) && !at_rule(in) ? read_name(in, ret_node) : ESP_OK;
    }
}

static esp_status read_number(struct reader *in, uint32_t *ret_value)
{
    uint64_t value = 0;
    if (peek(in) < '0' || peek(in) > '9') {
        return fail(in, "a number was expected");
    }
    for (; peek(in) >= '0' && peek(in) <= '9'; in->at++) {
        value = value * 10 + (uint64_t)(peek(in) - '0');
        if (value > ESP_CFG_COUNT_MAX) {
            return esp_cfg_fail(in->cfg, ESP_ELIMIT, in->at, "repeats more than %u times", ESP_CFG_COUNT_MAX);
        }
    }
    skip_space(in);
    *ret_value = (uint32_t)value;
    return ESP_OK;
}

static esp_status read_counts(struct reader *in, uint32_t *ret_lo, uint32_t *ret_hi)
{
    in->at++;
    skip_space(in);
    esp_status status = read_number(in, ret_lo);
    *ret_hi = *ret_lo;
    if (status == ESP_OK && peek(in) == ',') {
        in->at++;
        skip_space(in);
        *ret_hi = ESP_EXPR_INF;
        status = peek(in) == '}' ? ESP_OK : read_number(in, ret_hi);
    }
    if (status == ESP_OK && peek(in) != '}') {
        return fail(in, "a , or } was expected");
    }
    if (status == ESP_OK && *ret_hi < *ret_lo) {
        return fail(in, "counts that end before they begin");
    }
    in->at++;
    return status;
}

/* Puts what repeats the item around it. */
static esp_status read_repeats(struct reader *in, struct esp_cfg_node **item)
{
    for (int c = peek(in); c == '*' || c == '+' || c == '?' || c == '{'; c = peek(in)) {
        uint32_t lo = c == '+', hi = c == '?' ? 1 : ESP_EXPR_INF;
        struct esp_cfg_node *node;
        size_t begin = in->at;
        if (*item == NULL) {
            return fail(in, "nothing to repeat");
        }
        in->at += c != '{';
        esp_status status = c == '{' ? read_counts(in, &lo, &hi) : ESP_OK;
        status = status == ESP_OK ? new_node(in, ESP_CFG_REP, 0, begin, &node) : status;
        if (status != ESP_OK) {
            return status;
        }
        node->lo = lo;
        node->hi = hi;
        esp_cfg_append(node, *item);
        *item = node;
        skip_space(in);
    }
    return ESP_OK;
}

static esp_status read_sequence(struct reader *in, struct esp_cfg_node **ret_node)
{
    struct esp_cfg_node *item;
    esp_status status = new_node(in, ESP_CFG_SEQ, 0, in->at, ret_node);
    while (status == ESP_OK) {
        skip_space(in);
        status = read_item(in, &item);
        if (status == ESP_OK) {
            skip_space(in);
            status = read_repeats(in, &item);
        }
        if (status != ESP_OK || item == NULL) {
            break;
        }
        esp_cfg_append(*ret_node, item);
    }
    return status;
}

static esp_status read_alternatives(struct reader *in, struct esp_cfg_node **ret_node)
{
    struct esp_cfg_node *sequence;
    esp_status status = new_node(in, ESP_CFG_ALT, 0, in->at, ret_node);
    while (status == ESP_OK) {
        status = read_sequence(in, &sequence);
        if (status != ESP_OK) {
            break;
        }
        esp_cfg_append(*ret_node, sequence);
        if (peek(in) != '|') {
            break;
        }
        in->at++;
    }
    return status;
}

static esp_status read_rule(struct reader *in)
{
    size_t begin = in->at;
    uint32_t rule = 0;
    struct esp_cfg_node *body;
    if (!at_rule(in)) {
        return fail(in, is_name(peek(in)) ? "::= was expected after a name" : "the name of a rule was expected");
    }
    size_t n = name_bytes(in);
    esp_status status = esp_cfg_rule(in->cfg, in->text + begin, n, &rule);
    if (status == ESP_OK && in->cfg->rules[rule].body != NULL) {
        return fail(in, "this rule is defined twice");
    }
    in->at += n;
    skip_space(in);
    in->at += 3;
    status = status == ESP_OK ? read_alternatives(in, &body) : status;
    if (status == ESP_OK) {
        in->cfg->rules[rule].body = body;
        if (peek(in) >= 0 && !at_rule(in)) {
            return fail(in, "an item or the next rule was expected");
        }
    }
    return status;
}

esp_status esp_gbnf_read(struct esp_cfg *cfg, uint32_t *ret_root)
{
    struct reader in = {.cfg = cfg, .text = cfg->text, .n = cfg->n_bytes};
    esp_status status = ESP_OK;
    skip_space(&in);
    while (status == ESP_OK && in.at < in.n) {
        status = read_rule(&in);
    }
    if (status != ESP_OK) {
        return status;
    }
    uint32_t root = esp_bytesmap_get(&cfg->names, "root", 4);
    if (root == ESP_MAP_NONE || cfg->rules[root].body == NULL) {
        return esp_cfg_fail(cfg, ESP_EINVAL, root == ESP_MAP_NONE ? cfg->n_bytes : cfg->rules[root].at,
                            "the rule root is missing");
    }
    *ret_root = root;
    return ESP_OK;
}
