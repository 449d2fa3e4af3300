/* The expression half of the template parser: recursive descent with Jinja's levels of binding.
 *
 *   cond < or < and < not < comparison < + - < ~ < * / // % < ** < sign, postfix, filters and tests
 *
 * A sign binds tighter than ** and than a filter (`-1 | abs` is 1). Nesting is limited twice: the parser's own
 * recursion, and the depth of the tree that chains of operators build without recursion. Literals are read
 * in template_literal.c. Thread: the compiler's.
 */
#include <string.h>

#include "frontend/template_internal.h"

#define NEST_MAX 100u

static struct tpl_node *parse_or(struct tpl_parser *parser);

static bool nest(struct tpl_parser *parser)
{
    if (++parser->depth > NEST_MAX) {
        esp_tpl_syntax(parser, "expressions are nested too deeply");
        return false;
    }
    return true;
}

static struct tpl_node *op_node(struct tpl_parser *parser, enum tpl_node_kind kind, enum tpl_op op, struct tpl_node *a,
                                struct tpl_node *b)
{
    struct tpl_node *node = a == NULL ? NULL : esp_tpl_node(parser, kind, a, b, NULL);
    if (node != NULL) {
        node->op = op;
    }
    return node;
}

/* ---- Primary expressions ----------------------------------------------------------------------- */

static struct tpl_node *parse_name(struct tpl_parser *parser)
{
    static const struct {
        const char *name;
        struct tpl_value value;
    } constants[] = {
        {"true", {.kind = TPL_BOOL, .truth = true}},
        {"True", {.kind = TPL_BOOL, .truth = true}},
        {"false", {.kind = TPL_BOOL, .truth = false}},
        {"False", {.kind = TPL_BOOL, .truth = false}},
        {"none", {.kind = TPL_NONE}},
        {"None", {.kind = TPL_NONE}},
    };
    for (size_t idx = 0; idx < sizeof constants / sizeof constants[0]; idx++) {
        if (esp_tpl_skip_name(parser, constants[idx].name)) {
            return esp_tpl_const_node(parser, constants[idx].value);
        }
    }
    struct tpl_node *node = esp_tpl_node(parser, TPL_N_NAME, NULL, NULL, NULL);
    if (node == NULL || !esp_tpl_symbol(parser, parser->token->text, parser->token->n, &node->sym)) {
        return NULL;
    }
    if (parser->macro != NULL) {
        parser->macro->flag |= node->sym == TPL_SYM_VARARGS || node->sym == TPL_SYM_KWARGS;
        parser->macro->takes_caller |= node->sym == TPL_SYM_CALLER;
    }
    parser->token++;
    return node;
}

static struct tpl_node *parse_list(struct tpl_parser *parser)
{
    struct tpl_node *first = NULL, *last = NULL;
    parser->token++;
    while (!esp_tpl_is_op(parser, "]")) {
        if (first != NULL && !esp_tpl_expect_op(parser, ",")) {
            return NULL;
        }
        if (esp_tpl_is_op(parser, "]")) {
            break;
        }
        struct tpl_node *item = esp_tpl_parse_expr(parser);
        if (item == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, item);
    }
    parser->token++;
    return esp_tpl_node(parser, TPL_N_LIST, first, NULL, NULL);
}

static struct tpl_node *parse_dict(struct tpl_parser *parser)
{
    struct tpl_node *first = NULL, *last = NULL;
    parser->token++;
    while (!esp_tpl_is_op(parser, "}")) {
        if (first != NULL && !esp_tpl_expect_op(parser, ",")) {
            return NULL;
        }
        if (esp_tpl_is_op(parser, "}")) {
            break;
        }
        struct tpl_node *key = esp_tpl_parse_expr(parser);
        struct tpl_node *value = key != NULL && esp_tpl_expect_op(parser, ":") ? esp_tpl_parse_expr(parser) : NULL;
        struct tpl_node *pair = value != NULL ? esp_tpl_node(parser, TPL_N_PAIR, key, value, NULL) : NULL;
        if (pair == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, pair);
    }
    parser->token++;
    return esp_tpl_node(parser, TPL_N_DICT, first, NULL, NULL);
}

static struct tpl_node *parse_parens(struct tpl_parser *parser)
{
    parser->token++;
    struct tpl_node *node = esp_tpl_is_op(parser, ")") ? esp_tpl_node(parser, TPL_N_TUPLE, NULL, NULL, NULL)
                                                       : esp_tpl_parse_tuple(parser, true, false);
    return node != NULL && esp_tpl_expect_op(parser, ")") ? node : NULL;
}

static struct tpl_node *parse_primary(struct tpl_parser *parser)
{
    switch (parser->token->kind) {
    case TPL_T_NAME: return parse_name(parser);
    case TPL_T_STRING: return esp_tpl_parse_string(parser);
    case TPL_T_INTEGER:
    case TPL_T_FLOAT: return esp_tpl_parse_number(parser);
    default: break;
    }
    if (esp_tpl_is_op(parser, "(")) {
        return parse_parens(parser);
    }
    if (esp_tpl_is_op(parser, "[")) {
        return parse_list(parser);
    }
    return esp_tpl_is_op(parser, "{") ? parse_dict(parser) : esp_tpl_unexpected(parser, "an expression");
}

/* ---- Postfix ----------------------------------------------------------------------------------- */

/* One index between brackets: an expression or a slice. */
static struct tpl_node *parse_index(struct tpl_parser *parser)
{
    struct tpl_node *part[3] = {NULL, NULL, NULL};
    bool is_slice = false;
    for (int idx = 0; idx < 3; idx++) {
        bool absent = esp_tpl_is_op(parser, ":") || esp_tpl_is_op(parser, "]") || esp_tpl_is_op(parser, ",");
        if (!absent || (idx == 0 && !esp_tpl_is_op(parser, ":"))) {
            part[idx] = esp_tpl_parse_expr(parser);
            if (part[idx] == NULL) {
                return NULL;
            }
        }
        if (idx == 2 || !esp_tpl_skip_op(parser, ":")) {
            break;
        }
        is_slice = true;
    }
    return is_slice ? esp_tpl_node(parser, TPL_N_SLICE, part[0], part[1], part[2]) : part[0];
}

static struct tpl_node *parse_subscript(struct tpl_parser *parser, struct tpl_node *node)
{
    if (esp_tpl_skip_op(parser, "[")) {
        struct tpl_node *first = NULL, *last = NULL;
        do {
            struct tpl_node *index = parse_index(parser);
            if (index == NULL) {
                return NULL;
            }
            esp_tpl_append(&first, &last, index);
        } while (esp_tpl_skip_op(parser, ","));
        if (!esp_tpl_expect_op(parser, "]")) {
            return NULL;
        }
        struct tpl_node *key = first == last ? first : esp_tpl_node(parser, TPL_N_TUPLE, first, NULL, NULL);
        return key != NULL ? esp_tpl_node(parser, TPL_N_ITEM, node, key, NULL) : NULL;
    }
    parser->token++;
    if (parser->token->kind == TPL_T_INTEGER) {
        struct tpl_node *key = esp_tpl_parse_number(parser);
        return key != NULL ? esp_tpl_node(parser, TPL_N_ITEM, node, key, NULL) : NULL;
    }
    if (parser->token->kind != TPL_T_NAME) {
        return esp_tpl_unexpected(parser, "a name or number");
    }
    const struct tpl_str *name = esp_tpl_token_str(parser, parser->token);
    struct tpl_node *attr = name != NULL ? esp_tpl_node(parser, TPL_N_ATTR, node, NULL, NULL) : NULL;
    if (attr != NULL) {
        attr->value = (struct tpl_value){.kind = TPL_STR, .str = name};
        parser->token++;
    }
    return attr;
}

static struct tpl_node *parse_argument(struct tpl_parser *parser)
{
    enum tpl_node_kind kind = esp_tpl_skip_op(parser, "*")    ? TPL_N_STAR
                              : esp_tpl_skip_op(parser, "**") ? TPL_N_STARSTAR
                                                              : TPL_N_KWARG;
    const struct tpl_token *next = parser->token + 1;
    bool named = kind == TPL_N_KWARG && parser->token->kind == TPL_T_NAME && next->kind == TPL_T_OP && next->n == 1 &&
                 next->text[0] == '=';
    const struct tpl_str *name = NULL;
    if (named) {
        name = esp_tpl_token_str(parser, parser->token);
        if (name == NULL) {
            return NULL;
        }
        parser->token += 2;
    }
    struct tpl_node *value = esp_tpl_parse_expr(parser);
    if (value == NULL || (kind == TPL_N_KWARG && !named)) {
        return value;
    }
    struct tpl_node *node = esp_tpl_node(parser, kind, value, NULL, NULL);
    if (node != NULL && named) {
        node->value = (struct tpl_value){.kind = TPL_STR, .str = name};
    }
    return node;
}

/* Arguments between parentheses; *ret_first is NULL for none. */
static bool parse_arguments(struct tpl_parser *parser, struct tpl_node **ret_first)
{
    struct tpl_node *first = NULL, *last = NULL;
    bool after_named = false;
    unsigned n = 0;
    if (!esp_tpl_expect_op(parser, "(")) {
        return false;
    }
    while (!esp_tpl_is_op(parser, ")")) {
        if (first != NULL && !esp_tpl_expect_op(parser, ",")) {
            return false;
        }
        if (esp_tpl_is_op(parser, ")")) {
            break;
        }
        struct tpl_node *argument = parse_argument(parser);
        if (argument == NULL) {
            return false;
        }
        bool named = argument->kind == TPL_N_KWARG || argument->kind == TPL_N_STARSTAR;
        if ((after_named && !named && argument->kind != TPL_N_STAR) || ++n > TPL_ARGS_MAX) {
            esp_tpl_syntax(parser, "invalid arguments of a call");
            return false;
        }
        after_named = after_named || named;
        esp_tpl_append(&first, &last, argument);
    }
    parser->token++;
    *ret_first = first;
    return true;
}

static struct tpl_node *parse_call(struct tpl_parser *parser, struct tpl_node *callee)
{
    struct tpl_node *arguments = NULL;
    return parse_arguments(parser, &arguments) ? esp_tpl_node(parser, TPL_N_CALL, callee, arguments, NULL) : NULL;
}

static struct tpl_node *parse_postfix(struct tpl_parser *parser, struct tpl_node *node)
{
    while (node != NULL) {
        if (esp_tpl_is_op(parser, ".") || esp_tpl_is_op(parser, "[")) {
            node = parse_subscript(parser, node);
        } else if (esp_tpl_is_op(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            break;
        }
    }
    return node;
}

/* At the name of a filter. Unknown ones are refused here, unless an if may keep them from being reached. */
static struct tpl_node *parse_one_filter(struct tpl_parser *parser, struct tpl_node *target)
{
    const struct tpl_token *name = parser->token;
    if (name->kind != TPL_T_NAME) {
        return esp_tpl_unexpected(parser, "the name of a filter");
    }
    parser->token++;
    struct tpl_node *arguments = NULL;
    if (esp_tpl_is_op(parser, "(") && !parse_arguments(parser, &arguments)) {
        return NULL;
    }
    const struct tpl_builtin *builtin = esp_tpl_find_filter(name->text, name->n);
    if (builtin == NULL && !parser->soft) {
        return esp_tpl_syntax(parser, "no filter named '%.*s'", (int)(name->n < 64 ? name->n : 64), name->text);
    }
    struct tpl_node *node = esp_tpl_node(parser, TPL_N_FILTER, target, arguments, NULL);
    const struct tpl_str *text = esp_tpl_token_str(parser, name);
    if (node == NULL || text == NULL) {
        return NULL;
    }
    node->builtin = builtin;
    node->value = (struct tpl_value){.kind = TPL_STR, .str = text};
    return node;
}

struct tpl_node *esp_tpl_parse_filters(struct tpl_parser *parser)
{
    struct tpl_node *node = parse_one_filter(parser, NULL);
    while (node != NULL && esp_tpl_skip_op(parser, "|")) {
        node = parse_one_filter(parser, node);
    }
    return node;
}

/* Whether a test's argument may follow without parentheses: `9 is divisibleby 3`. */
static bool at_test_argument(const struct tpl_parser *parser)
{
    switch (parser->token->kind) {
    case TPL_T_NAME:
        return !esp_tpl_is_name(parser, "else") && !esp_tpl_is_name(parser, "or") && !esp_tpl_is_name(parser, "and") &&
               !esp_tpl_is_name(parser, "if") && !esp_tpl_is_name(parser, "not") && !esp_tpl_is_name(parser, "in");
    case TPL_T_STRING:
    case TPL_T_INTEGER:
    case TPL_T_FLOAT: return true;
    default: return esp_tpl_is_op(parser, "[") || esp_tpl_is_op(parser, "{");
    }
}

static struct tpl_node *parse_test(struct tpl_parser *parser, struct tpl_node *target)
{
    bool negated = esp_tpl_skip_name(parser, "not");
    const struct tpl_token *name = parser->token;
    if (name->kind != TPL_T_NAME) {
        return esp_tpl_unexpected(parser, "the name of a test");
    }
    parser->token++;
    struct tpl_node *arguments = NULL;
    if (esp_tpl_is_op(parser, "(")) {
        if (!parse_arguments(parser, &arguments)) {
            return NULL;
        }
    } else if (at_test_argument(parser)) {
        if (esp_tpl_is_name(parser, "is")) {
            return esp_tpl_syntax(parser, "tests cannot be chained with is");
        }
        arguments = parse_postfix(parser, parse_primary(parser));
        if (arguments == NULL) {
            return NULL;
        }
    }
    const struct tpl_builtin *builtin = esp_tpl_find_test(name->text, name->n);
    if (builtin == NULL && !parser->soft) {
        return esp_tpl_syntax(parser, "no test named '%.*s'", (int)(name->n < 64 ? name->n : 64), name->text);
    }
    struct tpl_node *node = esp_tpl_node(parser, TPL_N_TEST, target, arguments, NULL);
    const struct tpl_str *text = esp_tpl_token_str(parser, name);
    if (node == NULL || text == NULL) {
        return NULL;
    }
    node->builtin = builtin;
    node->value = (struct tpl_value){.kind = TPL_STR, .str = text};
    return negated ? esp_tpl_node(parser, TPL_N_NOT, node, NULL, NULL) : node;
}

static struct tpl_node *parse_signed(struct tpl_parser *parser)
{
    bool minus = esp_tpl_is_op(parser, "-");
    if (!minus && !esp_tpl_is_op(parser, "+")) {
        return parse_postfix(parser, parse_primary(parser));
    }
    parser->token++;
    struct tpl_node *inner = nest(parser) ? parse_signed(parser) : NULL;
    parser->depth--;
    return inner != NULL ? esp_tpl_node(parser, minus ? TPL_N_NEG : TPL_N_POS, inner, NULL, NULL) : NULL;
}

struct tpl_node *esp_tpl_parse_unary(struct tpl_parser *parser)
{
    struct tpl_node *node = parse_postfix(parser, parse_signed(parser));
    while (node != NULL) {
        if (esp_tpl_skip_op(parser, "|")) {
            node = parse_one_filter(parser, node);
        } else if (esp_tpl_skip_name(parser, "is")) {
            node = parse_test(parser, node);
        } else if (esp_tpl_is_op(parser, "(")) {
            node = parse_call(parser, node);
        } else {
            break;
        }
    }
    return node;
}

/* ---- Operators --------------------------------------------------------------------------------- */

static struct tpl_node *parse_power(struct tpl_parser *parser)
{
    struct tpl_node *left = esp_tpl_parse_unary(parser);
    while (left != NULL && esp_tpl_skip_op(parser, "**")) {
        struct tpl_node *right = esp_tpl_parse_unary(parser);
        left = right != NULL ? op_node(parser, TPL_N_BINARY, TPL_POW, left, right) : NULL;
    }
    return left;
}

static struct tpl_node *parse_product(struct tpl_parser *parser)
{
    static const char *const ops[] = {"*", "/", "//", "%"};
    static const enum tpl_op codes[] = {TPL_MUL, TPL_DIV, TPL_FLOORDIV, TPL_MOD};
    struct tpl_node *left = parse_power(parser);
    for (int idx = 0; left != NULL && idx < 4;) {
        if (!esp_tpl_skip_op(parser, ops[idx])) {
            idx++;
            continue;
        }
        struct tpl_node *right = parse_power(parser);
        left = right != NULL ? op_node(parser, TPL_N_BINARY, codes[idx], left, right) : NULL;
        idx = 0;
    }
    return left;
}

static struct tpl_node *parse_concat(struct tpl_parser *parser)
{
    struct tpl_node *first = NULL, *last = NULL;
    do {
        struct tpl_node *operand = parse_product(parser);
        if (operand == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, operand);
    } while (esp_tpl_skip_op(parser, "~"));
    return first == last ? first : esp_tpl_node(parser, TPL_N_CONCAT, first, NULL, NULL);
}

static struct tpl_node *parse_sum(struct tpl_parser *parser)
{
    struct tpl_node *left = parse_concat(parser);
    while (left != NULL && (esp_tpl_is_op(parser, "+") || esp_tpl_is_op(parser, "-"))) {
        enum tpl_op op = esp_tpl_is_op(parser, "+") ? TPL_ADD : TPL_SUB;
        parser->token++;
        struct tpl_node *right = parse_concat(parser);
        left = right != NULL ? op_node(parser, TPL_N_BINARY, op, left, right) : NULL;
    }
    return left;
}

static bool take_comparison(struct tpl_parser *parser, enum tpl_op *ret_op)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int idx = 0; idx < 6; idx++) {
        if (esp_tpl_skip_op(parser, ops[idx])) {
            *ret_op = (enum tpl_op)(TPL_EQ + idx);
            return true;
        }
    }
    const struct tpl_token *next = parser->token + 1;
    bool negated =
        esp_tpl_is_name(parser, "not") && next->kind == TPL_T_NAME && next->n == 2 && memcmp(next->text, "in", 2) == 0;
    parser->token += negated;
    *ret_op = negated ? TPL_NOT_IN : TPL_IN;
    return esp_tpl_skip_name(parser, "in");
}

static struct tpl_node *parse_comparison(struct tpl_parser *parser)
{
    struct tpl_node *left = parse_sum(parser), *first = NULL, *last = NULL;
    enum tpl_op op;
    while (left != NULL && take_comparison(parser, &op)) {
        struct tpl_node *right = parse_sum(parser);
        struct tpl_node *part = right != NULL ? op_node(parser, TPL_N_CMP, op, right, NULL) : NULL;
        if (part == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, part);
    }
    return left == NULL || first == NULL ? left : esp_tpl_node(parser, TPL_N_COMPARE, left, first, NULL);
}

static struct tpl_node *parse_not(struct tpl_parser *parser)
{
    if (!esp_tpl_skip_name(parser, "not")) {
        return parse_comparison(parser);
    }
    struct tpl_node *inner = nest(parser) ? parse_not(parser) : NULL;
    parser->depth--;
    return inner != NULL ? esp_tpl_node(parser, TPL_N_NOT, inner, NULL, NULL) : NULL;
}

static struct tpl_node *parse_and(struct tpl_parser *parser)
{
    struct tpl_node *left = parse_not(parser);
    while (left != NULL && esp_tpl_skip_name(parser, "and")) {
        struct tpl_node *right = parse_not(parser);
        left = right != NULL ? esp_tpl_node(parser, TPL_N_AND, left, right, NULL) : NULL;
    }
    return left;
}

static struct tpl_node *parse_or(struct tpl_parser *parser)
{
    struct tpl_node *left = parse_and(parser);
    while (left != NULL && esp_tpl_skip_name(parser, "or")) {
        struct tpl_node *right = parse_and(parser);
        left = right != NULL ? esp_tpl_node(parser, TPL_N_OR, left, right, NULL) : NULL;
    }
    return left;
}

struct tpl_node *esp_tpl_parse_expr(struct tpl_parser *parser)
{
    struct tpl_node *then = nest(parser) ? parse_or(parser) : NULL;
    while (then != NULL && esp_tpl_skip_name(parser, "if")) {
        bool soft = parser->soft;
        parser->soft = true;
        struct tpl_node *test = parse_or(parser), *otherwise = NULL;
        if (test != NULL && esp_tpl_skip_name(parser, "else")) {
            otherwise = esp_tpl_parse_expr(parser);
            test = otherwise != NULL ? test : NULL;
        }
        parser->soft = soft;
        then = test != NULL ? esp_tpl_node(parser, TPL_N_COND, test, then, otherwise) : NULL;
    }
    parser->depth--;
    return then;
}

/* Where a bare tuple cannot go on. */
static bool at_tuple_end(const struct tpl_parser *parser, bool ends_at_recursive)
{
    return parser->token->kind == TPL_T_VAR_END || parser->token->kind == TPL_T_BLOCK_END ||
           esp_tpl_is_op(parser, ")") ||
           (ends_at_recursive && (esp_tpl_is_name(parser, "recursive") || esp_tpl_is_name(parser, "if")));
}

struct tpl_node *esp_tpl_parse_tuple(struct tpl_parser *parser, bool with_cond, bool ends_at_recursive)
{
    struct tpl_node *first = NULL, *last = NULL;
    bool is_tuple = false;
    do {
        if (first != NULL && at_tuple_end(parser, ends_at_recursive)) {
            break;
        }
        struct tpl_node *item = with_cond ? esp_tpl_parse_expr(parser) : parse_or(parser);
        if (item == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, item);
        is_tuple = is_tuple || esp_tpl_is_op(parser, ",");
    } while (esp_tpl_skip_op(parser, ","));
    return is_tuple ? esp_tpl_node(parser, TPL_N_TUPLE, first, NULL, NULL) : first;
}
