/* Regular expressions: a recursive-descent reader with a checked depth, and the way to expressions.
 *
 *   text ──parse──► tree in an arena ──build──► expression
 *
 * Look-around, and anchors that are not at the ends, go to regex_look.c.
 * Anchors: the language searched for is Σ* p Σ*. `build` carries two flags down the tree, whether a node
 * stands at the left and at the right end; an end puts Σ* beside itself unless an anchor stands there.
 * Thread: the owner's of the expressions.
 */
#include "grammar/regex.h"

#include <string.h>

#include "grammar/regex_tree.h"
#include "runtime/base/utf8.h"

static esp_status parse_alt(struct esp_regex_reader *in, unsigned depth, struct esp_regex_node **ret);

static struct esp_regex_node *new_node(struct esp_regex_reader *in, enum esp_regex_kind kind)
{
    struct esp_regex_node *node = esp_arena_alloc(in->arena, 1, sizeof *node);
    if (node != NULL) {
        node->kind = kind;
        node->looks = kind == ESP_RE_LOOK || kind == ESP_RE_BORDER;
        node->anchored = node->looks || kind == ESP_RE_BEGIN || kind == ESP_RE_END;
    }
    return node;
}

static void add_child(struct esp_regex_node *node, struct esp_regex_node *child)
{
    node->anchored = node->anchored || child->anchored;
    node->looks = node->looks || child->looks;
    if (node->last == NULL) {
        node->child = child;
    } else {
        node->last->next = child;
    }
    node->last = child;
}

static bool is_name_char(unsigned char c, bool first)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c >= 0x80;
    return letter || (!first && c >= '0' && c <= '9');
}

/* After (?< of a named group. */
static esp_status parse_group_name(struct esp_regex_reader *in)
{
    size_t begin = in->at;
    while (in->at < in->n && in->text[in->at] != '>') {
        if (!is_name_char((unsigned char)in->text[in->at], in->at == begin)) {
            return esp_regex_fail(in, ESP_EINVAL, "bad group name");
        }
        in->at++;
    }
    if (in->at == begin || !esp_regex_take(in, '>')) {
        return esp_regex_fail(in, ESP_EINVAL, "group name without end");
    }
    return ESP_OK;
}

/* (?: (?<name> (?= (?! (?<= (?<! and what is refused after (?. *ret_look is set for the last four. */
static esp_status parse_group_head(struct esp_regex_reader *in, struct esp_regex_node **ret_look)
{
    if (!esp_regex_take(in, '?') || esp_regex_take(in, ':')) {
        return ESP_OK;
    }
    char c = esp_regex_peek(in), after = in->at + 1 < in->n ? in->text[in->at + 1] : '\0';
    bool behind = c == '<' && (after == '=' || after == '!');
    c = behind ? after : c;
    if (c == '=' || c == '!') {
        in->at += behind ? 2 : 1;
        *ret_look = new_node(in, ESP_RE_LOOK);
        if (*ret_look == NULL) {
            return ESP_ENOMEM;
        }
        (*ret_look)->negative = c == '!';
        (*ret_look)->behind = behind;
        return ESP_OK;
    }
    if (!esp_regex_take(in, '<')) {
        return esp_regex_fail(in, ESP_EUNSUPPORTED, "group of kind (?%c is not supported", c == '\0' ? ' ' : c);
    }
    return parse_group_name(in);
}

static esp_status parse_set(struct esp_regex_reader *in, struct esp_regex_node **ret)
{
    struct esp_regex_node *node = new_node(in, ESP_RE_SET);
    if (node == NULL) {
        return ESP_ENOMEM;
    }
    esp_cpset_init(&node->set, in->arena);
    *ret = node;
    char c = esp_regex_peek(in);
    if (c == '[') {
        in->at++;
        return esp_regex_class(in, &node->set);
    }
    if (c == '\\') {
        in->at++;
        return esp_regex_escape(in, &node->set);
    }
    if (c == '.') {
        in->at++;
        esp_regex_dot(in, &node->set);
        return ESP_OK;
    }
    uint32_t cp;
    esp_status status = esp_regex_char(in, &cp);
    esp_cpset_add(&node->set, cp, cp);
    return status == ESP_OK ? esp_regex_fold(in, &node->set) : status;
}

static esp_status parse_group(struct esp_regex_reader *in, unsigned depth, struct esp_regex_node **ret)
{
    struct esp_regex_node *look = NULL, *inner = NULL;
    in->at++;
    esp_status status = parse_group_head(in, &look);
    if (status == ESP_OK) {
        status = parse_alt(in, depth + 1, &inner);
    }
    if (status == ESP_OK && !esp_regex_take(in, ')')) {
        status = esp_regex_fail(in, ESP_EINVAL, "group without end");
    }
    if (status == ESP_OK && look != NULL) {
        add_child(look, inner);
    }
    *ret = look != NULL ? look : inner;
    return status;
}

static esp_status parse_atom(struct esp_regex_reader *in, unsigned depth, struct esp_regex_node **ret)
{
    char c = esp_regex_peek(in);
    if (c == '^' || c == '$') {
        in->at++;
        *ret = new_node(in, c == '^' ? ESP_RE_BEGIN : ESP_RE_END);
        return *ret == NULL ? ESP_ENOMEM : ESP_OK;
    }
    if (c == '*' || c == '+' || c == '?') {
        return esp_regex_fail(in, ESP_EINVAL, "nothing to repeat");
    }
    if (c == '\\' && in->at + 1 < in->n && (in->text[in->at + 1] | 0x20) == 'b') {
        *ret = new_node(in, ESP_RE_BORDER);
        if (*ret != NULL) {
            (*ret)->negative = in->text[in->at + 1] == 'B';
        }
        in->at += 2;
        return *ret == NULL ? ESP_ENOMEM : ESP_OK;
    }
    return c == '(' ? parse_group(in, depth, ret) : parse_set(in, ret);
}
/* A decimal number of a quantifier; false when there is none. */
static bool parse_count(struct esp_regex_reader *in, uint32_t *ret)
{
    uint64_t value = 0;
    size_t begin = in->at;
    while (in->at < in->n && in->text[in->at] >= '0' && in->text[in->at] <= '9') {
        value = value < UINT32_MAX ? value * 10 + (uint64_t)(in->text[in->at] - '0') : value;
        in->at++;
    }
    *ret = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    return in->at > begin;
}

/* {m} {m,} {m,n}; not one of these: the brace is an ordinary character and nothing is taken. */
static bool parse_braces(struct esp_regex_reader *in, uint32_t *ret_lo, uint32_t *ret_hi, bool *ret_finite)
{
    size_t begin = in->at++;
    *ret_finite = true;
    if (parse_count(in, ret_lo)) {
        *ret_hi = *ret_lo;
        if (esp_regex_take(in, ',')) {
            *ret_finite = parse_count(in, ret_hi);
        }
        if (esp_regex_take(in, '}')) {
            return true;
        }
    }
    in->at = begin;
    return false;
}

/* A quantifier: *ret_there is false, and nothing taken, when there is none. */
static esp_status parse_quantifier(struct esp_regex_reader *in, uint32_t *ret_lo, uint32_t *ret_hi, bool *ret_there)
{
    bool finite = true;
    char c = esp_regex_peek(in);
    *ret_there = c == '*' || c == '+' || c == '?';
    if (*ret_there) {
        in->at++;
        *ret_lo = c == '+';
        *ret_hi = c == '?' ? 1 : ESP_EXPR_INF;
    } else if (c == '{' && parse_braces(in, ret_lo, ret_hi, &finite)) {
        *ret_there = true;
        if (*ret_lo == UINT32_MAX || (finite && *ret_hi == UINT32_MAX)) {
            return esp_regex_fail(in, ESP_ELIMIT, "repeat count is too large");
        }
        *ret_hi = finite ? *ret_hi : ESP_EXPR_INF;
        if (*ret_lo > *ret_hi) {
            return esp_regex_fail(in, ESP_EINVAL, "repeat counts are out of order");
        }
    }
    return ESP_OK;
}

static esp_status parse_repeat(struct esp_regex_reader *in, struct esp_regex_node **node)
{
    uint32_t lo = 0, hi = 0;
    bool there;
    esp_status status = parse_quantifier(in, &lo, &hi, &there);
    if (status != ESP_OK || !there) {
        return status;
    }
    esp_regex_take(in, '?'); /* lazy: the same language */
    if ((*node)->anchored && (*node)->kind >= ESP_RE_BEGIN) {
        return esp_regex_fail(in, ESP_EINVAL, "an anchor or a look-around cannot be repeated");
    }
    struct esp_regex_node *rep = new_node(in, ESP_RE_REP);
    if (rep == NULL) {
        return ESP_ENOMEM;
    }
    rep->lo = lo;
    rep->hi = hi;
    add_child(rep, *node);
    *node = rep;
    status = parse_quantifier(in, &lo, &hi, &there);
    return status == ESP_OK && there ? esp_regex_fail(in, ESP_EINVAL, "nothing to repeat") : status;
}

static esp_status parse_cat(struct esp_regex_reader *in, unsigned depth, struct esp_regex_node **ret)
{
    struct esp_regex_node *cat = new_node(in, ESP_RE_CAT);
    esp_status status = cat == NULL ? ESP_ENOMEM : ESP_OK;
    while (status == ESP_OK && in->at < in->n && in->text[in->at] != '|' && in->text[in->at] != ')') {
        struct esp_regex_node *atom = NULL;
        status = parse_atom(in, depth, &atom);
        if (status == ESP_OK) {
            status = parse_repeat(in, &atom);
        }
        if (status == ESP_OK) {
            add_child(cat, atom);
        }
    }
    *ret = cat;
    return status;
}

static esp_status parse_alt(struct esp_regex_reader *in, unsigned depth, struct esp_regex_node **ret)
{
    if (depth > ESP_REGEX_DEPTH_MAX) {
        return esp_regex_fail(in, ESP_ELIMIT, "groups are nested too deep");
    }
    struct esp_regex_node *alt = new_node(in, ESP_RE_ALT);
    esp_status status = alt == NULL ? ESP_ENOMEM : ESP_OK;
    do {
        struct esp_regex_node *cat;
        if (status == ESP_OK) {
            status = parse_cat(in, depth, &cat);
        }
        if (status == ESP_OK) {
            add_child(alt, cat);
        }
    } while (status == ESP_OK && esp_regex_take(in, '|'));
    *ret = alt;
    return status;
}

/* ---- To expressions ---------------------------------------------------------------------------- */

uint32_t esp_regex_unsupported(struct esp_regex_build *b, const char *what)
{
    if (b->status == ESP_OK) {
        b->in->at = 0;
        b->status = esp_regex_fail(b->in, ESP_EUNSUPPORTED, "%s", what);
    }
    return ESP_EXPR_EMPTY;
}

/* id with Σ* where an end stands free. */
static uint32_t ends(struct esp_regex_build *b, uint32_t id, bool left, bool right)
{
    if (right) {
        id = esp_expr_cat(b->x, id, b->around);
    }
    return left ? esp_expr_cat(b->x, b->around, id) : id;
}

static uint32_t build_cat(struct esp_regex_build *b, const struct esp_regex_node *node, bool left, bool right)
{
    if (node->child == NULL) {
        return left || right ? b->around : ESP_EXPR_EPS;
    }
    uint32_t mark = b->x->n_scratch;
    for (const struct esp_regex_node *child = node->child; child != NULL; child = child->next) {
        bool first = child == node->child, last = child->next == NULL;
        esp_exprs_push(b->x, esp_regex_build(b, child, left && first, right && last));
    }
    uint32_t id = ESP_EXPR_EPS;
    while (b->x->n_scratch > mark && b->x->failed == ESP_OK) {
        id = esp_expr_cat(b->x, b->x->scratch[--b->x->n_scratch], id);
    }
    b->x->n_scratch = mark;
    return id;
}

static uint32_t build_alt(struct esp_regex_build *b, const struct esp_regex_node *node, bool left, bool right)
{
    uint32_t mark = b->x->n_scratch;
    for (const struct esp_regex_node *child = node->child; child != NULL; child = child->next) {
        esp_exprs_push(b->x, esp_regex_build(b, child, left, right));
    }
    uint32_t id = esp_expr_alt(b->x, b->x->scratch + mark, b->x->n_scratch - mark);
    b->x->n_scratch = mark;
    return id;
}

static uint32_t build_rep(struct esp_regex_build *b, const struct esp_regex_node *node, bool left, bool right)
{
    if (!node->anchored) {
        uint32_t once = esp_regex_build(b, node->child, false, false);
        return ends(b, esp_expr_rep(b->x, once, node->lo, node->hi), left, right);
    }
    if (node->hi != 1) {
        return esp_regex_unsupported(b, "an anchor inside a repeat is not supported");
    }
    uint32_t id = esp_regex_build(b, node->child, left, right);
    return node->lo == 1 ? id : esp_expr_alt2(b->x, id, left || right ? b->around : ESP_EXPR_EPS);
}

uint32_t esp_regex_build(struct esp_regex_build *b, const struct esp_regex_node *node, bool left, bool right)
{
    switch (node->kind) {
    case ESP_RE_SET: return ends(b, esp_spell_set(b->x, b->spelling, &node->set), left, right);
    case ESP_RE_CAT: return build_cat(b, node, left, right);
    case ESP_RE_ALT: return build_alt(b, node, left, right);
    case ESP_RE_REP: return build_rep(b, node, left, right);
    case ESP_RE_BEGIN:
        if (!left) {
            return esp_regex_unsupported(b, "^ is only supported at the beginning of a pattern");
        }
        return right ? b->around : ESP_EXPR_EPS;
    case ESP_RE_END:
        if (!right) {
            return esp_regex_unsupported(b, "$ is only supported at the end of a pattern");
        }
        return left ? b->around : ESP_EXPR_EPS;
    default: return left || right ? b->around : ESP_EXPR_EPS;
    }
}

static esp_status compile(struct esp_exprs *x, enum esp_spelling spelling, bool search, struct esp_regex_reader in,
                          uint32_t *ret_id)
{
    struct esp_arena arena;
    struct esp_regex_node *root;
    struct esp_err *err = in.err;
    const char *pattern = in.text;
    size_t n_bytes = in.n;
    in.arena = &arena;
    if (n_bytes > ESP_REGEX_BYTES_MAX) {
        return esp_fail(err, ESP_ELIMIT, "pattern of %zu bytes is too long", n_bytes);
    }
    size_t valid = esp_utf8_valid(pattern, n_bytes);
    if (valid < n_bytes) {
        return esp_fail(err, ESP_EINVAL, "pattern is not valid UTF-8 at byte %zu", valid);
    }
    esp_arena_init(&arena, ESP_TAG_GRAMMAR, 64 * 1024 * 1024);
    esp_status status = parse_alt(&in, 0, &root);
    if (status == ESP_OK && in.at < in.n) {
        status = esp_regex_fail(&in, ESP_EINVAL, "unmatched )");
    }
    if (status == ESP_OK) {
        struct esp_regex_build b = {.x = x, .in = &in, .spelling = spelling, .around = ESP_EXPR_EPS};
        if (search) {
            b.around = esp_spell_any(x, spelling);
        }
        uint32_t id = root->looks ? esp_regex_build_looks(&b, root) : esp_regex_build(&b, root, true, true);
        if (b.status == ESP_EUNSUPPORTED && !root->looks) { /* anchors in the middle */
            b.status = ESP_OK;
            id = esp_regex_build_looks(&b, root);
        }
        status = b.status != ESP_OK ? b.status : x->failed;
        if (status == ESP_OK) {
            *ret_id = id;
        } else if (b.status == ESP_OK) {
            esp_fail(err, status, status == ESP_ELIMIT ? "pattern is too complex" : "out of memory");
        }
    } else if (status == ESP_ENOMEM) {
        esp_fail(err, status, "out of memory");
    }
    esp_arena_finish(&arena);
    return status;
}

esp_status esp_regex_compile(struct esp_exprs *x, enum esp_spelling spelling, bool search, const char *pattern,
                             size_t n_bytes, uint32_t *ret_id, struct esp_err *err)
{
    return compile(x, spelling, search, (struct esp_regex_reader){.text = pattern, .n = n_bytes, .err = err}, ret_id);
}

esp_status esp_regex_compile_flags(struct esp_exprs *x, unsigned flags, const char *pattern, size_t n_bytes,
                                   uint32_t *ret_id, struct esp_err *err)
{
    struct esp_regex_reader in = {.text = pattern, .n = n_bytes, .err = err, .flags = flags};
    return compile(x, ESP_SPELL_RAW, false, in, ret_id);
}
