/* The reader of Lark: statements and what they are made of. See lark.h. Groups nest at most ESP_CFG_DEPTH_MAX deep.
 * Thread: the owner's. */
#include "grammar/lark.h"

#include <string.h>

int esp_lark_peek(const struct esp_lark *in)
{
    return in->at < in->n ? (unsigned char)in->text[in->at] : -1;
}

static bool at_word(const struct esp_lark *in, const char *word)
{
    size_t n = strlen(word);
    return in->n - in->at >= n && memcmp(in->text + in->at, word, n) == 0;
}

bool esp_lark_take(struct esp_lark *in, const char *word)
{
    bool there = at_word(in, word);
    in->at += there ? strlen(word) : 0;
    return there;
}

void esp_lark_space(struct esp_lark *in, bool line)
{
    for (;;) {
        int c = esp_lark_peek(in);
        if (c == ' ' || c == '\t' || (!line && (c == '\n' || c == '\r'))) {
            in->at++;
        } else if (!line && (c == '#' || at_word(in, "//"))) {
            while (in->at < in->n && in->text[in->at] != '\n') {
                in->at++;
            }
        } else {
            return;
        }
    }
}

size_t esp_lark_name_bytes(const struct esp_lark *in)
{
    size_t end = in->at;
    for (; end < in->n; end++) {
        char c = in->text[end], lower = (char)(c | 0x20);
        bool letter = (lower >= 'a' && lower <= 'z') || c == '_';
        bool more = end > in->at && c >= '0' && c <= '9';
        if (!letter && !more) {
            break;
        }
    }
    return end - in->at;
}

/* Terminals have a capital letter first, after any underscores. */
static bool is_terminal(const char *name, size_t n_bytes)
{
    size_t at = 0;
    while (at < n_bytes && name[at] == '_') {
        at++;
    }
    return at < n_bytes && name[at] >= 'A' && name[at] <= 'Z';
}

esp_status esp_lark_fail(struct esp_lark *in, esp_status status, const char *what)
{
    return esp_cfg_fail(in->cfg, status, in->at, "%s", what);
}

static esp_status new_node(struct esp_lark *in, enum esp_cfg_op op, uint32_t value, size_t at,
                           struct esp_cfg_node **ret_node)
{
    *ret_node = esp_cfg_node(in->cfg, op, value, at);
    return *ret_node == NULL ? ESP_ENOMEM : ESP_OK;
}

esp_status esp_lark_leaf(struct esp_lark *in, uint32_t expr, size_t at, uint32_t weight, struct esp_cfg_node **ret_node)
{
    esp_status status = in->cfg->x->failed;
    if (status != ESP_OK) {
        return esp_cfg_fail(in->cfg, status, at, status == ESP_ELIMIT ? "too large or too complex" : "out of memory");
    }
    status = new_node(in, ESP_CFG_EXPR, expr, at, ret_node);
    if (status == ESP_OK) {
        (*ret_node)->lo = weight;
    }
    return status;
}

/* Does a statement begin here: a directive, or a name (with what may stand around it) and a colon? */
static bool at_statement(const struct esp_lark *in)
{
    struct esp_lark ahead = *in;
    if (esp_lark_peek(in) == '%') {
        return !at_word(in, "%json") && !at_word(in, "%regex");
    }
    while (esp_lark_peek(&ahead) == '?' || esp_lark_peek(&ahead) == '!') {
        ahead.at++;
    }
    size_t n = esp_lark_name_bytes(&ahead);
    ahead.at += n;
    if (n > 0 && esp_lark_peek(&ahead) == '[') { /* attributes */
        while (esp_lark_peek(&ahead) >= 0 && esp_lark_peek(&ahead) != ']' && esp_lark_peek(&ahead) != '\n') {
            ahead.at++;
        }
        ahead.at += esp_lark_peek(&ahead) == ']';
    } else if (n > 0 && esp_lark_peek(&ahead) == '.') { /* priority */
        do {
            ahead.at++;
        } while (esp_lark_peek(&ahead) >= '0' && esp_lark_peek(&ahead) <= '9');
    }
    esp_lark_space(&ahead, true);
    return n > 0 && esp_lark_peek(&ahead) == ':';
}

/* ---- Atoms ------------------------------------------------------------------------------------- */

static esp_status read_alternatives(struct esp_lark *in, struct esp_cfg_node **ret_node);

/* ( … ), or [ … ] for what may be left out. */
static esp_status read_group(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at;
    char close = in->text[in->at++] == '(' ? ')' : ']';
    struct esp_cfg_node *inner;
    if (++in->depth > ESP_CFG_DEPTH_MAX) {
        return esp_lark_fail(in, ESP_ELIMIT, "groups nest too deep");
    }
    esp_status status = read_alternatives(in, &inner);
    in->depth--;
    if (status == ESP_OK && esp_lark_peek(in) != close) {
        return esp_lark_fail(in, ESP_EINVAL, close == ')' ? "a ) is missing" : "a ] is missing");
    }
    in->at++;
    *ret_node = inner;
    if (status == ESP_OK && close == ']') {
        status = new_node(in, ESP_CFG_REP, 0, begin, ret_node);
        if (status == ESP_OK) {
            (*ret_node)->hi = 1;
            esp_cfg_append(*ret_node, inner);
        }
    }
    return status;
}

static esp_status read_name(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    size_t begin = in->at, n = esp_lark_name_bytes(in);
    uint32_t rule = 0;
    if (in->terminal && !is_terminal(in->text + begin, n)) {
        return esp_lark_fail(in, ESP_EINVAL, "a terminal cannot use a rule");
    }
    in->at += n;
    esp_status status = esp_cfg_rule(in->cfg, in->text + begin, n, &rule);
    return status == ESP_OK ? new_node(in, ESP_CFG_REF, rule, begin, ret_node) : status;
}

/* What may be ignored follows what a rule names or spells. */
static esp_status add_ignored(struct esp_lark *in, struct esp_cfg_node **node)
{
    struct esp_cfg_node *both, *ref;
    esp_status status = new_node(in, ESP_CFG_SEQ, 0, (*node)->at, &both);
    if (status == ESP_OK) {
        status = new_node(in, ESP_CFG_REF, in->ignore, (*node)->at, &ref);
    }
    if (status == ESP_OK) {
        esp_cfg_append(both, *node);
        esp_cfg_append(both, ref);
        *node = both;
    }
    return status;
}

static esp_status read_special(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    if (esp_lark_peek(in) != '<' && in->terminal && at_word(in, "%json")) {
        return esp_lark_fail(in, ESP_EUNSUPPORTED, "%json in a terminal; use it in a rule");
    }
    if (esp_lark_peek(in) == '<') {
        return in->terminal ? esp_lark_fail(in, ESP_EUNSUPPORTED, "a token in a terminal; use it in a rule")
                            : esp_lark_token(in, ret_node);
    }
    return esp_lark_take(in, "%json") ? esp_lark_json(in, ret_node) : esp_lark_regex(in, ret_node);
}

/* *ret_node is NULL when none begins here. */
static esp_status read_atom(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    int c = esp_lark_peek(in);
    esp_status status = ESP_OK;
    bool lexeme = true;
    *ret_node = NULL;
    if (c == '(' || c == '[') {
        return read_group(in, ret_node);
    }
    if (c == '"') {
        status = esp_lark_string(in, ret_node);
    } else if (c == '/') {
        status = esp_lark_pattern(in, ret_node);
    } else if (c == '<' || at_word(in, "%json") || at_word(in, "%regex")) {
        status = read_special(in, ret_node);
    } else if (esp_lark_name_bytes(in) > 0 && !at_statement(in)) {
        lexeme = is_terminal(in->text + in->at, esp_lark_name_bytes(in));
        status = read_name(in, ret_node);
    }
    return status == ESP_OK && *ret_node != NULL && lexeme && !in->terminal ? add_ignored(in, ret_node) : status;
}

/* ---- Repeats ----------------------------------------------------------------------------------- */

esp_status esp_lark_number(struct esp_lark *in, uint32_t *ret_value)
{
    uint32_t value = 0;
    if (esp_lark_peek(in) < '0' || esp_lark_peek(in) > '9') {
        return esp_lark_fail(in, ESP_EINVAL, "a number was expected");
    }
    for (int c = esp_lark_peek(in); c >= '0' && c <= '9'; c = esp_lark_peek(in)) {
        value = value * 10 + (uint32_t)(c - '0');
        if (value > ESP_CFG_COUNT_MAX) {
            return esp_lark_fail(in, ESP_ELIMIT, "repeats more than 1000000 times");
        }
        in->at++;
    }
    esp_lark_space(in, true);
    *ret_value = value;
    return ESP_OK;
}

/* {n} {n,} {,m} {n,m} */
static esp_status read_braces(struct esp_lark *in, uint32_t *lo, uint32_t *hi)
{
    esp_lark_space(in, true);
    esp_status status = esp_lark_peek(in) == ',' ? ESP_OK : esp_lark_number(in, lo);
    *hi = *lo;
    if (status == ESP_OK && esp_lark_take(in, ",")) {
        esp_lark_space(in, true);
        *hi = ESP_EXPR_INF;
        status = esp_lark_peek(in) == '}' ? ESP_OK : esp_lark_number(in, hi);
    }
    if (status == ESP_OK && !esp_lark_take(in, "}")) {
        return esp_lark_fail(in, ESP_EINVAL, "a } was expected");
    }
    return status;
}

/* ~ n and ~ n..m */
static esp_status read_range(struct esp_lark *in, uint32_t *lo, uint32_t *hi)
{
    esp_lark_space(in, true);
    esp_status status = esp_lark_number(in, lo);
    *hi = *lo;
    if (status == ESP_OK && esp_lark_take(in, "..")) {
        esp_lark_space(in, true);
        status = esp_lark_number(in, hi);
    }
    return status;
}

/* A ~ with a number after it repeats; another one denies what follows. */
static bool at_range(const struct esp_lark *in)
{
    struct esp_lark ahead = *in;
    if (esp_lark_peek(in) != '~') {
        return false;
    }
    ahead.at++;
    esp_lark_space(&ahead, true);
    return esp_lark_peek(&ahead) >= '0' && esp_lark_peek(&ahead) <= '9';
}

static esp_status read_repeat(struct esp_lark *in, struct esp_cfg_node **item)
{
    struct esp_lark ahead = *in;
    uint32_t lo = 0, hi = ESP_EXPR_INF;
    esp_status status = ESP_OK;
    esp_lark_space(&ahead, true);
    int c = esp_lark_peek(&ahead);
    size_t begin = ahead.at;
    if (c != '*' && c != '+' && c != '?' && c != '{' && !at_range(&ahead)) {
        return ESP_OK;
    }
    *in = ahead;
    in->at++;
    lo = c == '+';
    hi = c == '?' ? 1 : hi;
    if (c == '{' || c == '~') {
        status = c == '{' ? read_braces(in, &lo, &hi) : read_range(in, &lo, &hi);
    }
    if (status == ESP_OK && hi < lo) {
        return esp_lark_fail(in, ESP_EINVAL, "counts that end before they begin");
    }
    struct esp_cfg_node *node;
    status = status == ESP_OK ? new_node(in, ESP_CFG_REP, 0, begin, &node) : status;
    if (status == ESP_OK) {
        node->lo = lo;
        node->hi = hi;
        esp_cfg_append(node, *item);
        *item = node;
    }
    return status;
}

/* ---- Sequences, conjunctions, alternatives ----------------------------------------------------- */

/* An atom with its repeat, or denied by a ~ before it. */
static esp_status read_item(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    struct esp_cfg_node *denial;
    size_t begin = in->at;
    bool denied = esp_lark_peek(in) == '~';
    if (denied && !in->terminal) {
        return esp_lark_fail(in, ESP_EUNSUPPORTED, "~ before something is for terminals only");
    }
    in->at += denied;
    if (denied) {
        esp_lark_space(in, false);
    }
    esp_status status = read_atom(in, ret_node);
    if (status == ESP_OK && *ret_node != NULL) {
        status = read_repeat(in, ret_node);
    } else if (status == ESP_OK && denied) {
        return esp_lark_fail(in, ESP_EINVAL, "something to deny was expected after ~");
    }
    if (status == ESP_OK && denied) {
        status = new_node(in, ESP_CFG_NOT, 0, begin, &denial);
        if (status == ESP_OK) {
            esp_cfg_append(denial, *ret_node);
            *ret_node = denial;
        }
    }
    return status;
}

static esp_status read_sequence(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    struct esp_cfg_node *item;
    esp_status status = new_node(in, ESP_CFG_SEQ, 0, in->at, ret_node);
    while (status == ESP_OK) {
        esp_lark_space(in, false);
        status = read_item(in, &item);
        if (status != ESP_OK || item == NULL) {
            break;
        }
        esp_cfg_append(*ret_node, item);
    }
    if (status == ESP_OK && esp_lark_take(in, "->")) { /* an alias names a tree, and there is none */
        esp_lark_space(in, true);
        size_t n = esp_lark_name_bytes(in);
        in->at += n;
        status = n == 0 ? esp_lark_fail(in, ESP_EINVAL, "a name was expected after ->") : ESP_OK;
        esp_lark_space(in, false);
    }
    return status;
}

static esp_status read_conjunction(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    struct esp_cfg_node *both, *next;
    esp_status status = read_sequence(in, ret_node);
    if (status != ESP_OK || esp_lark_peek(in) != '&') {
        return status;
    }
    if (!in->terminal) {
        return esp_lark_fail(in, ESP_EUNSUPPORTED, "& is for terminals only");
    }
    status = new_node(in, ESP_CFG_AND, 0, in->at, &both);
    if (status == ESP_OK) {
        esp_cfg_append(both, *ret_node);
        *ret_node = both;
    }
    while (status == ESP_OK && esp_lark_take(in, "&")) {
        status = read_sequence(in, &next);
        if (status == ESP_OK) {
            esp_cfg_append(both, next);
        }
    }
    return status;
}

static esp_status read_alternatives(struct esp_lark *in, struct esp_cfg_node **ret_node)
{
    struct esp_cfg_node *one;
    esp_status status = new_node(in, ESP_CFG_ALT, 0, in->at, ret_node);
    while (status == ESP_OK) {
        status = read_conjunction(in, &one);
        if (status != ESP_OK) {
            break;
        }
        esp_cfg_append(*ret_node, one);
        if (!esp_lark_take(in, "|")) {
            break;
        }
    }
    return status;
}

/* ---- Statements -------------------------------------------------------------------------------- */

/* At the end of a statement: nothing more, or the next one. */
static esp_status check_end(struct esp_lark *in)
{
    esp_lark_space(in, false);
    return esp_lark_peek(in) < 0 || at_statement(in)
               ? ESP_OK
               : esp_lark_fail(in, ESP_EINVAL, "something that is no part of a definition");
}

static esp_status read_definition(struct esp_lark *in)
{
    struct esp_cfg_node *body;
    uint32_t rule = 0;
    while (esp_lark_peek(in) == '?' || esp_lark_peek(in) == '!') {
        in->at++; /* about trees, and there are none */
    }
    size_t n = esp_lark_name_bytes(in);
    const char *name = in->text + in->at;
    if (n == 0 || !at_statement(in)) {
        return esp_lark_fail(in, ESP_EINVAL, n == 0 ? "a definition was expected" : "a : was expected after the name");
    }
    esp_status status = esp_cfg_rule(in->cfg, name, n, &rule);
    if (status == ESP_OK && in->cfg->rules[rule].body != NULL) {
        return esp_lark_fail(in, ESP_EINVAL, "this name is defined twice");
    }
    in->at += n;
    if (status == ESP_OK && (esp_lark_peek(in) == '[' || esp_lark_peek(in) == '.')) {
        return esp_lark_fail(in, ESP_EUNSUPPORTED, "attributes and priorities are not supported");
    }
    esp_lark_space(in, true);
    in->at++; /* the colon */
    in->terminal = is_terminal(name, n);
    status = status == ESP_OK ? read_alternatives(in, &body) : status;
    if (status == ESP_OK) {
        in->cfg->rules[rule].body = body;
        in->cfg->rules[rule].terminal = in->terminal;
        status = check_end(in);
    }
    return status;
}

static esp_status read_ignore(struct esp_lark *in)
{
    struct esp_cfg_node *body;
    in->terminal = true;
    esp_status status = read_alternatives(in, &body);
    if (status == ESP_OK) {
        esp_cfg_append(in->ignored, body);
        status = check_end(in);
    }
    return status;
}

/* %llguidance {} changes nothing; with something in it, it would. */
static esp_status read_settings(struct esp_lark *in)
{
    esp_lark_space(in, false);
    size_t begin = in->at;
    bool empty = esp_lark_take(in, "{");
    esp_lark_space(in, false);
    if (!empty || !esp_lark_take(in, "}")) {
        in->at = begin;
        return esp_lark_fail(in, ESP_EUNSUPPORTED, "settings other than {} are not supported");
    }
    return check_end(in);
}

static esp_status read_statement(struct esp_lark *in)
{
    if (esp_lark_peek(in) != '%') {
        return read_definition(in);
    }
    if (esp_lark_take(in, "%ignore")) {
        return read_ignore(in);
    }
    if (esp_lark_take(in, "%import")) {
        esp_status status = esp_lark_import(in);
        return status == ESP_OK ? check_end(in) : status;
    }
    return esp_lark_take(in, "%llguidance")
               ? read_settings(in)
               : esp_lark_fail(in, ESP_EUNSUPPORTED, "only %ignore, %import and %llguidance are supported here");
}

esp_status esp_lark_read(struct esp_cfg *cfg, uint32_t *ret_root)
{
    static const char ignore_name[] = "%ignore"; /* no rule can have this name */
    struct esp_lark in = {.cfg = cfg, .text = cfg->text, .n = cfg->n_bytes};
    struct esp_cfg_node *again;
    esp_status status = esp_cfg_rule(cfg, ignore_name, sizeof ignore_name - 1, &in.ignore);
    status = status == ESP_OK ? new_node(&in, ESP_CFG_ALT, 0, 0, &in.ignored) : status;
    status = status == ESP_OK ? new_node(&in, ESP_CFG_REP, 0, 0, &again) : status;
    if (status != ESP_OK) {
        return status;
    }
    again->hi = ESP_EXPR_INF;
    esp_cfg_append(again, in.ignored);
    cfg->rules[in.ignore].body = again;
    cfg->rules[in.ignore].terminal = true;
    esp_lark_space(&in, false);
    while (status == ESP_OK && in.at < in.n) {
        status = read_statement(&in);
    }
    if (status != ESP_OK) {
        return status;
    }
    uint32_t root = esp_bytesmap_get(&cfg->names, "start", 5);
    if (root == ESP_MAP_NONE || cfg->rules[root].body == NULL) {
        return esp_cfg_fail(cfg, ESP_EINVAL, root == ESP_MAP_NONE ? cfg->n_bytes : cfg->rules[root].at,
                            "the rule start is missing");
    }
    *ret_root = root;
    return ESP_OK;
}
