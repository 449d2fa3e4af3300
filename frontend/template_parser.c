/* What the two halves of the template parser share: errors, nodes, symbols, looking at the next token.
 *
 * The first error of a parse is kept; it names the line. A node's depth is known when it is made, from its
 * children, so a tree that is too deep is refused before anything walks it. Thread: the compiler's.
 */
#include <stdarg.h>
#include <string.h>

#include "frontend/template_internal.h"

struct tpl_node *esp_tpl_syntax(struct tpl_parser *parser, const char *fmt, ...)
{
    if (parser->err->code != ESP_OK) {
        return NULL; /* the first one tells most */
    }
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    esp_fail(parser->err, ESP_EINVAL, "line %u: %s", parser->token->line, text);
    parser->err->offset = parser->token->line;
    return NULL;
}

struct tpl_node *esp_tpl_unexpected(struct tpl_parser *parser, const char *wanted)
{
    const struct tpl_token *token = parser->token;
    if (token->kind == TPL_T_END || token->kind == TPL_T_VAR_END || token->kind == TPL_T_BLOCK_END) {
        return esp_tpl_syntax(parser, "expected %s, got the end of the %s", wanted,
                              token->kind == TPL_T_END ? "template" : "tag");
    }
    return esp_tpl_syntax(parser, "expected %s, got '%.*s'", wanted, (int)(token->n < 40 ? token->n : 40), token->text);
}

static unsigned depth_of(const struct tpl_node *node)
{
    unsigned depth = 0;
    for (; node != NULL; node = node->next) {
        depth = node->depth > depth ? node->depth : depth;
    }
    return depth;
}

bool esp_tpl_settle(struct tpl_parser *parser, struct tpl_node *node)
{
    const struct tpl_node *children[] = {node->a, node->b, node->c, node->d, node->e};
    unsigned depth = 0;
    for (int idx = 0; idx < 5; idx++) {
        unsigned below = depth_of(children[idx]);
        depth = below > depth ? below : depth;
    }
    node->depth = (uint16_t)(depth + 1);
    if (node->depth > TPL_NODE_DEPTH_MAX) {
        esp_tpl_syntax(parser, "the template is nested too deeply");
        return false;
    }
    return true;
}

struct tpl_node *esp_tpl_node(struct tpl_parser *parser, enum tpl_node_kind kind, struct tpl_node *a,
                              struct tpl_node *b, struct tpl_node *c)
{
    struct tpl_node *node = esp_arena_alloc(&parser->tmpl->arena, 1, sizeof *node);
    if (node == NULL) {
        return esp_tpl_syntax(parser, "the template is too large");
    }
    node->kind = kind;
    node->line = parser->token->line;
    node->a = a;
    node->b = b;
    node->c = c;
    return esp_tpl_settle(parser, node) ? node : NULL;
}

void esp_tpl_append(struct tpl_node **first, struct tpl_node **last, struct tpl_node *node)
{
    if (*first == NULL) {
        *first = node;
    } else {
        (*last)->next = node;
    }
    *last = node;
}

bool esp_tpl_is_op(const struct tpl_parser *parser, const char *op)
{
    const struct tpl_token *token = parser->token;
    return token->kind == TPL_T_OP && token->n == strlen(op) && memcmp(token->text, op, token->n) == 0;
}

bool esp_tpl_is_name(const struct tpl_parser *parser, const char *name)
{
    const struct tpl_token *token = parser->token;
    return token->kind == TPL_T_NAME && token->n == strlen(name) && memcmp(token->text, name, token->n) == 0;
}

bool esp_tpl_skip_op(struct tpl_parser *parser, const char *op)
{
    bool there = esp_tpl_is_op(parser, op);
    parser->token += there;
    return there;
}

bool esp_tpl_skip_name(struct tpl_parser *parser, const char *name)
{
    bool there = esp_tpl_is_name(parser, name);
    parser->token += there;
    return there;
}

bool esp_tpl_expect_op(struct tpl_parser *parser, const char *op)
{
    if (!esp_tpl_skip_op(parser, op)) {
        char wanted[8];
        snprintf(wanted, sizeof wanted, "'%s'", op);
        esp_tpl_unexpected(parser, wanted);
        return false;
    }
    return true;
}

const struct tpl_str *esp_tpl_token_str(struct tpl_parser *parser, const struct tpl_token *token)
{
    struct tpl_str *str = esp_arena_alloc(&parser->tmpl->arena, 1, sizeof *str);
    if (str == NULL) {
        esp_tpl_syntax(parser, "the template is too large");
        return NULL;
    }
    *str = (struct tpl_str){.data = token->text, .n = token->n};
    return str;
}

bool esp_tpl_symbol(struct tpl_parser *parser, const char *text, size_t n, uint32_t *ret_sym)
{
    struct esp_template *tmpl = parser->tmpl;
    uint32_t sym = esp_bytesmap_get(&parser->symbols, text, n);
    if (sym != ESP_MAP_NONE) {
        *ret_sym = sym;
        return true;
    }
    if (tmpl->n_symbols == tmpl->room_symbols) {
        uint32_t room = tmpl->room_symbols == 0 ? 32 : tmpl->room_symbols * 2;
        const struct tpl_str **list = esp_arena_alloc(&tmpl->arena, room, sizeof *list);
        if (list == NULL) {
            esp_tpl_syntax(parser, "the template is too large");
            return false;
        }
        if (tmpl->n_symbols > 0) {
            memcpy(list, tmpl->symbols, tmpl->n_symbols * sizeof *list);
        }
        tmpl->symbols = list;
        tmpl->room_symbols = room;
    }
    struct tpl_token token = {.text = text, .n = n};
    const struct tpl_str *name = esp_tpl_token_str(parser, &token);
    if (name == NULL || esp_bytesmap_put(&parser->symbols, text, n, tmpl->n_symbols) != ESP_OK) {
        esp_tpl_syntax(parser, "the template is too large");
        return false;
    }
    *ret_sym = tmpl->n_symbols;
    tmpl->symbols[tmpl->n_symbols++] = name;
    return true;
}
