/* Numbers and strings of templates, as Python reads them.
 *
 * Integers fit 64 bits or are refused; underscores between digits and the prefixes 0x, 0o and 0b are known.
 * Escapes of strings are those of Python's literals but \N{…}, which is kept as it is; a lone surrogate becomes
 * U+FFFD, so that every string stays UTF-8. Thread: the compiler's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/template_internal.h"
#include "runtime/base/utf8.h"

struct tpl_node *esp_tpl_const_node(struct tpl_parser *parser, struct tpl_value value)
{
    struct tpl_node *node = esp_tpl_node(parser, TPL_N_CONST, NULL, NULL, NULL);
    if (node != NULL) {
        node->value = value;
    }
    return node;
}

struct tpl_node *esp_tpl_parse_number(struct tpl_parser *parser)
{
    const struct tpl_token *token = parser->token;
    char digits[64];
    size_t n = 0;
    for (size_t idx = 0; idx < token->n && n < sizeof digits - 1; idx++) {
        if (token->text[idx] != '_') {
            digits[n++] = token->text[idx];
        }
    }
    digits[n] = '\0';
    parser->token++;
    if (token->kind == TPL_T_FLOAT) {
        return esp_tpl_const_node(parser, esp_tpl_real(strtod(digits, NULL)));
    }
    char second = n > 1 ? (char)(digits[1] | 0x20) : 0;
    int base = second == 'x' ? 16 : second == 'o' ? 8 : second == 'b' ? 2 : 10;
    errno = 0;
    char *end;
    const char *first = base == 10 ? digits : digits + 2;
    long long value = strtoll(first, &end, base);
    if (errno != 0 || end == first || *end != '\0') {
        return esp_tpl_syntax(parser, "the integer %s is malformed or too large", digits);
    }
    return esp_tpl_const_node(parser, esp_tpl_int(value));
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* \xHH, \uHHHH, \UHHHHHHHH: text points after the letter. Returns the digits used, 0 when malformed. */
static size_t read_hex(const char *text, const char *end, size_t n_digits, uint32_t *ret_cp)
{
    uint32_t cp = 0;
    for (size_t idx = 0; idx < n_digits; idx++) {
        int digit = text + idx < end ? hex_value(text[idx]) : -1;
        if (digit < 0) {
            return 0;
        }
        cp = cp << 4 | (uint32_t)digit;
    }
    *ret_cp = cp;
    return n_digits;
}

/* Up to three octal digits; returns how many. */
static size_t read_octal(const char *text, const char *end, uint32_t *ret_cp)
{
    size_t n = 0;
    for (; n < 3 && text + n < end && text[n] >= '0' && text[n] <= '7'; n++) {
        *ret_cp = *ret_cp * 8 + (uint32_t)(text[n] - '0');
    }
    return n;
}

/* One escape, text pointing after the backslash. Writes to out and returns the bytes read, 0 on an error. */
static size_t unescape(const char *text, const char *end, char *out, size_t *ret_n_out)
{
    static const char from[] = "ntrbfva\\'\"", to[] = "\n\t\r\b\f\v\a\\'\"";
    const char *plain = memchr(from, text[0], sizeof from - 1);
    uint32_t cp = 0;
    size_t used = 0;
    if (plain != NULL) {
        out[0] = to[plain - from];
        *ret_n_out = 1;
        return 1;
    }
    if (text[0] == '\n') {
        *ret_n_out = 0;
        return 1;
    }
    bool is_hex = text[0] == 'x' || text[0] == 'u' || text[0] == 'U';
    used = is_hex ? 1 + read_hex(text + 1, end,
                                 text[0] == 'x'   ? 2
                                 : text[0] == 'u' ? 4
                                                  : 8,
                                 &cp)
                  : read_octal(text, end, &cp);
    if (is_hex && (used == 1 || cp > 0x10ffff)) {
        return 0;
    }
    if (used == 0) { /* not an escape: the backslash stays */
        out[0] = '\\';
        *ret_n_out = 1;
        return SIZE_MAX;
    }
    int n = esp_utf8_encode(cp, out);
    *ret_n_out = (size_t)(n > 0 ? n : esp_utf8_encode(0xfffd, out)); /* a lone surrogate */
    return used;
}

/* Adjacent string literals are one string. */
struct tpl_node *esp_tpl_parse_string(struct tpl_parser *parser)
{
    size_t n_max = 0;
    for (const struct tpl_token *at = parser->token; at->kind == TPL_T_STRING; at++) {
        n_max += at->n;
    }
    /* An escape is at least as long as what it stands for, except \ooo, which gives two bytes for two or more. */
    char *data = esp_arena_alloc(&parser->tmpl->arena, n_max + 1, 1);
    struct tpl_str *str = esp_arena_alloc(&parser->tmpl->arena, 1, sizeof *str);
    if (data == NULL || str == NULL) {
        return esp_tpl_syntax(parser, "the template is too large");
    }
    size_t n = 0;
    for (; parser->token->kind == TPL_T_STRING; parser->token++) {
        const char *text = parser->token->text + 1, *end = parser->token->text + parser->token->n - 1;
        while (text < end) {
            if (*text != '\\') {
                data[n++] = *text++;
                continue;
            }
            char out[4];
            size_t n_out = 0, used = unescape(text + 1, end, out, &n_out);
            if (used == 0) {
                return esp_tpl_syntax(parser, "a malformed escape in a string");
            }
            memcpy(data + n, out, n_out);
            n += n_out;
            text += used == SIZE_MAX ? 1 : 1 + used;
        }
    }
    *str = (struct tpl_str){.data = data, .n = n};
    return esp_tpl_const_node(parser, (struct tpl_value){.kind = TPL_STR, .str = str});
}
