/* The statement half of the template parser.
 *
 * Tokens to a tree of blocks. Bodies nest by recursion with a checked depth; the depth of every node is known
 * when it is made, so the evaluator's recursion is bounded by the tree's. Tags that Jinja has and chat
 * templates never use (include, import, extends, …) are refused by name. Thread: the compiler's.
 */
#include <string.h>

#include "frontend/template_internal.h"

/* ---- Targets of assignments -------------------------------------------------------------------- */

static struct tpl_node *parse_target(struct tpl_parser *parser, bool with_namespace);

static struct tpl_node *parse_one_target(struct tpl_parser *parser, bool with_namespace)
{
    if (esp_tpl_skip_op(parser, "(")) {
        if (++parser->depth > 50) {
            return esp_tpl_syntax(parser, "targets are nested too deeply");
        }
        struct tpl_node *inner = parse_target(parser, false);
        parser->depth--;
        return inner != NULL && esp_tpl_expect_op(parser, ")") ? inner : NULL;
    }
    if (parser->token->kind != TPL_T_NAME) {
        return esp_tpl_unexpected(parser, "a name to assign to");
    }
    struct tpl_node *name = esp_tpl_node(parser, TPL_N_NAME, NULL, NULL, NULL);
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t idx = 0; idx < sizeof constants / sizeof constants[0]; idx++) {
        if (esp_tpl_is_name(parser, constants[idx])) {
            return esp_tpl_syntax(parser, "cannot assign to %s", constants[idx]);
        }
    }
    if (name == NULL || !esp_tpl_symbol(parser, parser->token->text, parser->token->n, &name->sym)) {
        return NULL;
    }
    parser->token++;
    if (!with_namespace || !esp_tpl_skip_op(parser, ".")) {
        return name;
    }
    if (parser->token->kind != TPL_T_NAME) {
        return esp_tpl_unexpected(parser, "the name of an attribute");
    }
    struct tpl_node *attr = esp_tpl_node(parser, TPL_N_ATTR, name, NULL, NULL);
    const struct tpl_str *text = esp_tpl_token_str(parser, parser->token);
    if (attr == NULL || text == NULL) {
        return NULL;
    }
    attr->value = (struct tpl_value){.kind = TPL_STR, .str = text};
    parser->token++;
    return attr;
}

static struct tpl_node *parse_target(struct tpl_parser *parser, bool with_namespace)
{
    struct tpl_node *first = NULL, *last = NULL;
    bool is_tuple = false;
    do {
        if (first != NULL && parser->token->kind != TPL_T_NAME && !esp_tpl_is_op(parser, "(")) {
            break;
        }
        struct tpl_node *target = parse_one_target(parser, with_namespace);
        if (target == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, target);
        is_tuple = is_tuple || esp_tpl_is_op(parser, ",");
    } while (esp_tpl_skip_op(parser, ","));
    return is_tuple ? esp_tpl_node(parser, TPL_N_TUPLE, first, NULL, NULL) : first;
}

static bool names_loop(const struct tpl_node *target)
{
    if (target->kind != TPL_N_TUPLE) {
        return target->kind == TPL_N_NAME && target->sym == TPL_SYM_LOOP;
    }
    for (const struct tpl_node *part = target->a; part != NULL; part = part->next) {
        if (names_loop(part)) { /* depth: TPL_NODE_DEPTH_MAX */
            return true;
        }
    }
    return false;
}

/* ---- Statements -------------------------------------------------------------------------------- */

/* Parses statements up to a tag named in `ends` (a list with NULL at its end; NULL = the end of the template),
 * and leaves the token at that name. *ret_body is NULL for an empty body. */
static bool parse_body(struct tpl_parser *parser, const char *const *ends, const char *what,
                       struct tpl_node **ret_body);

static bool end_tag(struct tpl_parser *parser)
{
    if (parser->token->kind != TPL_T_BLOCK_END) {
        esp_tpl_unexpected(parser, "the end of the tag");
        return false;
    }
    parser->token++;
    return true;
}

/* The body of a block that ends with the tag `end`, whose tag is taken too. */
static bool parse_block(struct tpl_parser *parser, const char *end, struct tpl_node **ret_body)
{
    const char *const ends[] = {end, NULL};
    if (!end_tag(parser) || !parse_body(parser, ends, end, ret_body)) {
        return false;
    }
    parser->token++;
    return true;
}

static struct tpl_node *parse_if(struct tpl_parser *parser)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last_ends[] = {"endif", NULL};
    struct tpl_node *first = NULL, *last = NULL, *otherwise = NULL;
    bool soft = parser->soft;
    parser->soft = true;
    do {
        struct tpl_node *test = esp_tpl_parse_tuple(parser, false, false), *body = NULL;
        if (test == NULL || !end_tag(parser) || !parse_body(parser, ends, "endif", &body)) {
            return NULL;
        }
        struct tpl_node *branch = esp_tpl_node(parser, TPL_N_BRANCH, test, body, NULL);
        if (branch == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, branch);
    } while (esp_tpl_skip_name(parser, "elif"));
    if (esp_tpl_skip_name(parser, "else") &&
        (!end_tag(parser) || !parse_body(parser, last_ends, "endif", &otherwise))) {
        return NULL;
    }
    parser->token++;
    parser->soft = soft;
    return esp_tpl_node(parser, TPL_N_IF, first, otherwise, NULL);
}

static struct tpl_node *parse_for(struct tpl_parser *parser)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    static const char *const last_ends[] = {"endfor", NULL};
    struct tpl_node *target = parse_target(parser, false), *condition = NULL, *body = NULL, *otherwise = NULL;
    if (target == NULL) {
        return NULL;
    }
    if (names_loop(target)) {
        return esp_tpl_syntax(parser, "cannot assign to the special variable loop");
    }
    if (!esp_tpl_skip_name(parser, "in")) {
        return esp_tpl_unexpected(parser, "'in'");
    }
    struct tpl_node *iterable = esp_tpl_parse_tuple(parser, false, true);
    if (iterable != NULL && esp_tpl_skip_name(parser, "if")) {
        condition = esp_tpl_parse_expr(parser);
        iterable = condition != NULL ? iterable : NULL;
    }
    bool recursive = esp_tpl_skip_name(parser, "recursive");
    bool soft = parser->soft;
    parser->soft = false;
    parser->n_loops++;
    if (iterable == NULL || !end_tag(parser) || !parse_body(parser, ends, "endfor", &body)) {
        return NULL;
    }
    parser->n_loops--;
    if (esp_tpl_skip_name(parser, "else") &&
        (!end_tag(parser) || !parse_body(parser, last_ends, "endfor", &otherwise))) {
        return NULL;
    }
    parser->token++;
    parser->soft = soft;
    struct tpl_node *node = esp_tpl_node(parser, TPL_N_FOR, target, iterable, body);
    if (node == NULL) {
        return NULL;
    }
    node->d = otherwise;
    node->e = condition;
    node->flag = recursive;
    return esp_tpl_settle(parser, node) ? node : NULL;
}

static struct tpl_node *parse_set(struct tpl_parser *parser)
{
    struct tpl_node *target = parse_target(parser, true), *value = NULL, *body = NULL;
    if (target == NULL) {
        return NULL;
    }
    if (esp_tpl_skip_op(parser, "=")) {
        value = esp_tpl_parse_tuple(parser, true, false);
        return value != NULL ? esp_tpl_node(parser, TPL_N_SET, target, value, NULL) : NULL;
    }
    if (esp_tpl_skip_op(parser, "|")) {
        value = esp_tpl_parse_filters(parser);
        if (value == NULL) {
            return NULL;
        }
    }
    return parse_block(parser, "endset", &body) ? esp_tpl_node(parser, TPL_N_SETBLOCK, target, value, body) : NULL;
}

/* "(a, b=1)" of a macro or call block. */
static bool parse_params(struct tpl_parser *parser, struct tpl_node **ret_first)
{
    struct tpl_node *first = NULL, *last = NULL;
    if (!esp_tpl_expect_op(parser, "(")) {
        return false;
    }
    while (!esp_tpl_is_op(parser, ")")) {
        if (first != NULL && !esp_tpl_expect_op(parser, ",")) {
            return false;
        }
        struct tpl_node *name = parse_one_target(parser, false);
        if (name == NULL || name->kind != TPL_N_NAME) {
            esp_tpl_syntax(parser, "a parameter must be a name");
            return false;
        }
        struct tpl_node *preset = NULL;
        if (esp_tpl_skip_op(parser, "=")) {
            preset = esp_tpl_parse_expr(parser);
            if (preset == NULL) {
                return false;
            }
        } else if (last != NULL && last->a != NULL) {
            esp_tpl_syntax(parser, "a parameter without default follows one with a default");
            return false;
        }
        struct tpl_node *param = esp_tpl_node(parser, TPL_N_PARAM, preset, NULL, NULL);
        if (param == NULL) {
            return false;
        }
        param->sym = name->sym;
        esp_tpl_append(&first, &last, param);
    }
    parser->token++;
    *ret_first = first;
    return true;
}

/* Parameters and body of a macro whose node exists already, so that the body can mark what it uses. */
static struct tpl_node *parse_macro_rest(struct tpl_parser *parser, struct tpl_node *node, bool has_params,
                                         const char *end)
{
    struct tpl_node *outer = parser->macro;
    unsigned n_loops = parser->n_loops;
    bool soft = parser->soft;
    parser->macro = node;
    parser->n_loops = 0;
    parser->soft = false;
    if ((has_params && !parse_params(parser, &node->a)) || !parse_block(parser, end, &node->c)) {
        return NULL;
    }
    parser->macro = outer;
    parser->n_loops = n_loops;
    parser->soft = soft;
    return esp_tpl_settle(parser, node) ? node : NULL;
}

static struct tpl_node *parse_macro(struct tpl_parser *parser)
{
    if (parser->token->kind != TPL_T_NAME) {
        return esp_tpl_unexpected(parser, "the name of a macro");
    }
    struct tpl_node *node = esp_tpl_node(parser, TPL_N_MACRO, NULL, NULL, NULL);
    if (node == NULL || !esp_tpl_symbol(parser, parser->token->text, parser->token->n, &node->sym)) {
        return NULL;
    }
    parser->token++;
    return parse_macro_rest(parser, node, true, "endmacro");
}

static struct tpl_node *parse_callblock(struct tpl_parser *parser)
{
    struct tpl_node *body = esp_tpl_node(parser, TPL_N_MACRO, NULL, NULL, NULL);
    if (body == NULL) {
        return NULL;
    }
    body->sym = TPL_SYM_CALLER;
    if (esp_tpl_is_op(parser, "(") && !parse_params(parser, &body->a)) {
        return NULL;
    }
    struct tpl_node *call = esp_tpl_parse_unary(parser);
    if (call == NULL) {
        return NULL;
    }
    if (call->kind != TPL_N_CALL) {
        return esp_tpl_syntax(parser, "expected a call");
    }
    return parse_macro_rest(parser, body, false, "endcall") != NULL
               ? esp_tpl_node(parser, TPL_N_CALLBLOCK, call, body, NULL)
               : NULL;
}

static struct tpl_node *parse_with(struct tpl_parser *parser)
{
    struct tpl_node *first = NULL, *last = NULL, *body = NULL;
    while (parser->token->kind != TPL_T_BLOCK_END) {
        if (first != NULL && !esp_tpl_expect_op(parser, ",")) {
            return NULL;
        }
        struct tpl_node *target = parse_one_target(parser, false);
        struct tpl_node *value = target != NULL && esp_tpl_expect_op(parser, "=") ? esp_tpl_parse_expr(parser) : NULL;
        struct tpl_node *set = value != NULL ? esp_tpl_node(parser, TPL_N_SET, target, value, NULL) : NULL;
        if (set == NULL) {
            return NULL;
        }
        esp_tpl_append(&first, &last, set);
    }
    return parse_block(parser, "endwith", &body) ? esp_tpl_node(parser, TPL_N_WITH, first, NULL, body) : NULL;
}

static struct tpl_node *parse_filtered(struct tpl_parser *parser)
{
    struct tpl_node *filters = esp_tpl_parse_filters(parser), *body = NULL;
    return filters != NULL && parse_block(parser, "endfilter", &body)
               ? esp_tpl_node(parser, TPL_N_FILTERED, NULL, filters, body)
               : NULL;
}

static struct tpl_node *parse_generation(struct tpl_parser *parser)
{
    struct tpl_node *body = NULL;
    return parse_block(parser, "endgeneration", &body) ? esp_tpl_node(parser, TPL_N_SCOPED, NULL, NULL, body) : NULL;
}

static struct tpl_node *parse_named_block(struct tpl_parser *parser)
{
    struct tpl_node *body = NULL;
    if (parser->token->kind != TPL_T_NAME) {
        return esp_tpl_unexpected(parser, "the name of a block");
    }
    const struct tpl_token *name = parser->token++;
    if (!parse_block(parser, "endblock", &body)) {
        return NULL;
    }
    if (parser->token->kind == TPL_T_NAME && parser->token->n == name->n &&
        memcmp(parser->token->text, name->text, name->n) == 0) {
        parser->token++;
    }
    struct tpl_node *node = esp_tpl_node(parser, TPL_N_SCOPED, NULL, NULL, body);
    if (node != NULL) {
        node->flag = true;
    }
    return node;
}

static struct tpl_node *parse_print(struct tpl_parser *parser)
{
    struct tpl_node *value = esp_tpl_parse_tuple(parser, true, false);
    return value != NULL ? esp_tpl_node(parser, TPL_N_PRINT, value, NULL, NULL) : NULL;
}

static struct tpl_node *parse_jump(struct tpl_parser *parser, enum tpl_node_kind kind, const char *name)
{
    return parser->n_loops > 0 ? esp_tpl_node(parser, kind, NULL, NULL, NULL)
                               : esp_tpl_syntax(parser, "'%s' outside of a loop", name);
}

static struct tpl_node *parse_statement(struct tpl_parser *parser)
{
    static const struct {
        const char *name;
        struct tpl_node *(*parse)(struct tpl_parser *parser);
    } tags[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_callblock},
        {"with", parse_with},
        {"filter", parse_filtered},
        {"generation", parse_generation},
        {"block", parse_named_block},
        {"print", parse_print},
    };
    static const char *const refused[] = {"include", "import", "from", "extends", "autoescape", "trans", "do"};
    for (size_t idx = 0; idx < sizeof tags / sizeof tags[0]; idx++) {
        if (esp_tpl_skip_name(parser, tags[idx].name)) {
            return tags[idx].parse(parser);
        }
    }
    if (esp_tpl_skip_name(parser, "break")) {
        return parse_jump(parser, TPL_N_BREAK, "break");
    }
    if (esp_tpl_skip_name(parser, "continue")) {
        return parse_jump(parser, TPL_N_CONTINUE, "continue");
    }
    for (size_t idx = 0; idx < sizeof refused / sizeof refused[0]; idx++) {
        if (esp_tpl_is_name(parser, refused[idx])) {
            return esp_tpl_syntax(parser, "the tag '%s' is not supported in chat templates", refused[idx]);
        }
    }
    const struct tpl_token *token = parser->token;
    return token->kind == TPL_T_NAME
               ? esp_tpl_syntax(parser, "unknown tag '%.*s'", (int)(token->n < 40 ? token->n : 40), token->text)
               : esp_tpl_unexpected(parser, "the name of a tag");
}

static struct tpl_node *parse_output(struct tpl_parser *parser)
{
    if (parser->token->kind == TPL_T_DATA) {
        const struct tpl_str *text = esp_tpl_token_str(parser, parser->token);
        struct tpl_node *node = text != NULL ? esp_tpl_node(parser, TPL_N_TEXT, NULL, NULL, NULL) : NULL;
        if (node != NULL) {
            node->value = (struct tpl_value){.kind = TPL_STR, .str = text};
            parser->token++;
        }
        return node;
    }
    parser->token++;
    struct tpl_node *node = parse_print(parser);
    if (node != NULL && parser->token->kind != TPL_T_VAR_END) {
        return esp_tpl_unexpected(parser, "the end of the expression");
    }
    parser->token++;
    return node;
}

static bool at_end_name(const struct tpl_parser *parser, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++) {
        if (esp_tpl_is_name(parser, *ends)) {
            return true;
        }
    }
    return false;
}

static bool parse_body(struct tpl_parser *parser, const char *const *ends, const char *what, struct tpl_node **ret_body)
{
    struct tpl_node *first = NULL, *last = NULL;
    if (++parser->depth > 100) {
        esp_tpl_syntax(parser, "blocks are nested too deeply");
        return false;
    }
    while (parser->token->kind != TPL_T_END) {
        struct tpl_node *node;
        if (parser->token->kind == TPL_T_BLOCK_BEGIN) {
            parser->token++;
            if (at_end_name(parser, ends)) {
                parser->depth--;
                *ret_body = first;
                return true;
            }
            node = parse_statement(parser);
            if (node != NULL && !end_tag(parser)) {
                return false;
            }
        } else {
            node = parse_output(parser);
        }
        if (node == NULL) {
            return false;
        }
        esp_tpl_append(&first, &last, node);
    }
    if (ends != NULL) {
        esp_tpl_syntax(parser, "unexpected end of template; '%s' is missing", what);
        return false;
    }
    parser->depth--;
    *ret_body = first;
    return true;
}

esp_status esp_tpl_parse(struct tpl_parser *parser, struct tpl_node **ret_body)
{
    static const char *const fixed[TPL_SYM_FIXED] = {"loop", "caller", "varargs", "kwargs"};
    uint32_t sym;
    for (int idx = 0; idx < TPL_SYM_FIXED; idx++) {
        if (!esp_tpl_symbol(parser, fixed[idx], strlen(fixed[idx]), &sym)) {
            return parser->err->code;
        }
    }
    struct tpl_node *body = NULL;
    if (!parse_body(parser, NULL, "", &body)) {
        return parser->err->code != ESP_OK ? parser->err->code : esp_fail(parser->err, ESP_EINTERNAL, "parser failed");
    }
    *ret_body = body;
    return ESP_OK;
}
