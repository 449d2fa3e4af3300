/* Template text to tokens, with Jinja's rules of white space.
 *
 * The environment is the one chat templates are written for: trim_blocks (the newline after a block or comment
 * goes), lstrip_blocks (so does the indentation before one that stands first in its line), and one newline at the
 * end of the text is dropped. "-" strips all white space on its side, "+" turns the automatic stripping off.
 * Newlines of any kind become \n first. Knows nothing of the grammar but the balance of brackets, which decides
 * whether "}}" ends an expression. Thread: the compiler's.
 */
#include <string.h>

#include "frontend/template_internal.h"

#define BRACKETS_MAX 256

struct lexer {
    struct esp_arena *arena;
    struct esp_err *err;
    const char *text;
    size_t n, at;
    uint32_t line;
    bool line_start; /* the last tag took the newline before `at` with it */
    struct tpl_tokens tokens;
    char brackets[BRACKETS_MAX]; /* the closing ones that are awaited */
    unsigned n_brackets;
};

static bool lex_fail(struct lexer *lexer, const char *message, char c)
{
    esp_fail(lexer->err, ESP_EINVAL, message, c);
    if (lexer->err != NULL) {
        lexer->err->offset = lexer->line;
    }
    return false;
}

static bool push(struct lexer *lexer, enum tpl_token_kind kind, size_t from, size_t n)
{
    struct tpl_tokens *tokens = &lexer->tokens;
    if (tokens->n == tokens->room) {
        size_t room = tokens->room == 0 ? 64 : tokens->room * 2;
        struct tpl_token *list = esp_arena_alloc(lexer->arena, room, sizeof *list);
        if (list == NULL) {
            esp_fail(lexer->err, ESP_ELIMIT, "the template is too large");
            return false;
        }
        if (tokens->n > 0) {
            memcpy(list, tokens->list, tokens->n * sizeof *list);
        }
        tokens->list = list;
        tokens->room = room;
    }
    tokens->list[tokens->n++] = (struct tpl_token){kind, lexer->line, lexer->text + from, n};
    return true;
}

static void advance(struct lexer *lexer, size_t to)
{
    for (; lexer->at < to; lexer->at++) {
        lexer->line += lexer->text[lexer->at] == '\n';
    }
}

static bool looking_at(const struct lexer *lexer, size_t at, const char *what)
{
    size_t n = strlen(what);
    return lexer->n - at >= n && memcmp(lexer->text + at, what, n) == 0;
}

/* First offset at or after `at` that is no white space. */
static size_t skip_space(const struct lexer *lexer, size_t at)
{
    struct tpl_str str = {.data = lexer->text, .n = lexer->n};
    while (at < lexer->n) {
        size_t next = at;
        if (!esp_tpl_is_space(esp_tpl_str_next(&str, &next))) {
            break;
        }
        at = next;
    }
    return at;
}

/* End of text[from, to) without the white space at its end. */
static size_t strip_end(const struct lexer *lexer, size_t from, size_t to)
{
    struct tpl_str str = {.data = lexer->text, .n = lexer->n};
    while (to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)lexer->text[start] & 0xc0) == 0x80) {
            start--;
        }
        size_t next = start;
        if (!esp_tpl_is_space(esp_tpl_str_next(&str, &next))) {
            break;
        }
        to = start;
    }
    return to;
}

/* The text before a tag, stripped as the tag's sign and kind ask. */
static bool push_data(struct lexer *lexer, size_t end, char sign, bool is_variable)
{
    size_t from = lexer->at, to = end;
    if (sign == '-') {
        to = strip_end(lexer, from, end);
    } else if (sign != '+' && !is_variable) {
        size_t line = end;
        while (line > from && lexer->text[line - 1] != '\n') {
            line--;
        }
        if ((line > from || lexer->line_start) && strip_end(lexer, line, end) == line) {
            to = line;
        }
    }
    bool ok = to == from || push(lexer, TPL_T_DATA, from, to - from);
    advance(lexer, end);
    return ok;
}

/* The end of a tag whose closing text begins at `at`: what it takes with it. Sets line_start. */
static size_t close_tag(struct lexer *lexer, size_t at, const char *close, bool trims)
{
    size_t end;
    if (lexer->text[at] == '-') {
        end = skip_space(lexer, at + 1 + strlen(close));
    } else if (lexer->text[at] == '+') {
        end = at + 1 + strlen(close);
    } else {
        end = at + strlen(close);
        end += trims && end < lexer->n && lexer->text[end] == '\n';
    }
    lexer->line_start = lexer->text[end - 1] == '\n';
    return end;
}

static bool lex_comment(struct lexer *lexer)
{
    size_t at = lexer->at + 2;
    for (; at < lexer->n; at++) {
        bool sign = (lexer->text[at] == '-' || lexer->text[at] == '+') && looking_at(lexer, at + 1, "#}");
        if (sign || looking_at(lexer, at, "#}")) {
            advance(lexer, close_tag(lexer, at, "#}", true));
            return true;
        }
    }
    return lex_fail(lexer, "missing end of comment", 0);
}

/* The inside of a {% raw %} block whose opening tag ends before `at`; its text is data. */
static bool lex_raw(struct lexer *lexer, size_t at)
{
    advance(lexer, at);
    lexer->line_start = lexer->text[at - 1] == '\n';
    for (size_t open = at; open < lexer->n; open++) {
        if (!looking_at(lexer, open, "{%")) {
            continue;
        }
        size_t inner = open + 2;
        char sign = inner < lexer->n ? lexer->text[inner] : 0;
        inner += sign == '-' || sign == '+';
        inner = skip_space(lexer, inner);
        if (!looking_at(lexer, inner, "endraw")) {
            continue;
        }
        inner = skip_space(lexer, inner + 6);
        bool signed_end = inner < lexer->n && (lexer->text[inner] == '-' || lexer->text[inner] == '+');
        if (looking_at(lexer, inner + signed_end, "%}")) {
            if (!push_data(lexer, open, sign, false)) {
                return false;
            }
            advance(lexer, close_tag(lexer, inner, "%}", true));
            return true;
        }
    }
    return lex_fail(lexer, "missing end of raw block", 0);
}

/* Whether a raw block opens at `at` ("{%"); then *ret_end is the offset after its tag. */
static bool opens_raw(const struct lexer *lexer, size_t at, size_t *ret_end)
{
    at += 2;
    at += at < lexer->n && (lexer->text[at] == '-' || lexer->text[at] == '+');
    at = skip_space(lexer, at);
    if (!looking_at(lexer, at, "raw")) {
        return false;
    }
    at = skip_space(lexer, at + 3);
    if (looking_at(lexer, at, "-%}")) {
        *ret_end = skip_space(lexer, at + 3);
        return true;
    }
    *ret_end = at + 2;
    return looking_at(lexer, at, "%}");
}

/* ---- Expressions ------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

/* Digits with single underscores between them; returns their end, or `at` when there is none. */
static size_t skip_digits(const struct lexer *lexer, size_t at)
{
    size_t end = at;
    while (end < lexer->n && (is_digit(lexer->text[end]) || (lexer->text[end] == '_' && end > at &&
                                                             end + 1 < lexer->n && is_digit(lexer->text[end + 1])))) {
        end++;
    }
    return end;
}

static size_t skip_radix(const struct lexer *lexer, size_t at)
{
    char radix = (char)(lexer->text[at + 1] | 0x20);
    size_t end = at + 2;
    for (; end < lexer->n; end++) {
        char c = (char)(lexer->text[end] | 0x20);
        bool fits = radix == 'x' ? is_digit(lexer->text[end]) || (c >= 'a' && c <= 'f')
                                 : lexer->text[end] >= '0' && lexer->text[end] <= (radix == 'b' ? '1' : '7');
        if (!fits && lexer->text[end] != '_') {
            break;
        }
    }
    return end;
}

/* End of the fraction and exponent that follow a number's whole part, or `end` when there are none. */
static size_t skip_fraction(const struct lexer *lexer, size_t end)
{
    if (end + 1 < lexer->n && lexer->text[end] == '.' && is_digit(lexer->text[end + 1])) {
        end = skip_digits(lexer, end + 1);
    }
    if (end < lexer->n && (lexer->text[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        exponent += exponent < lexer->n && (lexer->text[exponent] == '+' || lexer->text[exponent] == '-');
        size_t stop = skip_digits(lexer, exponent);
        end = stop > exponent ? stop : end;
    }
    return end;
}

static bool lex_number(struct lexer *lexer)
{
    size_t from = lexer->at, end = skip_digits(lexer, from);
    char second = from + 1 < lexer->n ? (char)(lexer->text[from + 1] | 0x20) : 0;
    if (lexer->text[from] == '0' && (second == 'x' || second == 'b' || second == 'o')) {
        end = skip_radix(lexer, from);
        lexer->at = end;
        return push(lexer, TPL_T_INTEGER, from, end - from);
    }
    bool after_dot = from > 0 && lexer->text[from - 1] == '.'; /* of a.0.1, an item of an item */
    size_t real_end = after_dot ? end : skip_fraction(lexer, end);
    lexer->at = real_end;
    return push(lexer, real_end > end ? TPL_T_FLOAT : TPL_T_INTEGER, from, real_end - from);
}

static bool lex_string(struct lexer *lexer)
{
    size_t from = lexer->at, at = from + 1;
    char quote = lexer->text[from];
    while (at < lexer->n && lexer->text[at] != quote) {
        at += lexer->text[at] == '\\' ? 2 : 1;
    }
    if (at >= lexer->n) {
        return lex_fail(lexer, "a string that begins with %c does not end", quote);
    }
    bool ok = push(lexer, TPL_T_STRING, from, at + 1 - from);
    advance(lexer, at + 1);
    return ok;
}

/* Keeps the balance of brackets, which decides where a tag ends. */
static bool balance(struct lexer *lexer, char c)
{
    static const char opening[] = "([{", closing[] = ")]}";
    const char *open = strchr(opening, c);
    if (open != NULL) {
        if (lexer->n_brackets == BRACKETS_MAX) {
            return lex_fail(lexer, "brackets are nested too deeply", 0);
        }
        lexer->brackets[lexer->n_brackets++] = closing[open - opening];
    } else if (strchr(closing, c) != NULL) {
        if (lexer->n_brackets == 0 || lexer->brackets[lexer->n_brackets - 1] != c) {
            return lex_fail(lexer, "unexpected '%c'", c);
        }
        lexer->n_brackets--;
    }
    return true;
}

static bool lex_operator(struct lexer *lexer)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = lexer->text[lexer->at];
    size_t n = 1;
    for (size_t idx = 0; idx < sizeof two / sizeof two[0]; idx++) {
        n = looking_at(lexer, lexer->at, two[idx]) ? 2 : n;
    }
    if (n == 1 && (c == '\0' || strchr("+-/*%~[](){}><=.:|,;", c) == NULL)) {
        return lex_fail(lexer, "unexpected character '%c'", c);
    }
    if (!balance(lexer, c)) {
        return false;
    }
    bool ok = push(lexer, TPL_T_OP, lexer->at, n);
    lexer->at += n;
    return ok;
}

static bool lex_word(struct lexer *lexer)
{
    size_t end = lexer->at;
    while (end < lexer->n && is_word(lexer->text[end])) {
        end++;
    }
    bool ok = push(lexer, TPL_T_NAME, lexer->at, end - lexer->at);
    lexer->at = end;
    return ok;
}

/* The tokens of one tag up to and with its end. */
static bool lex_inside(struct lexer *lexer, const char *close, enum tpl_token_kind kind)
{
    bool is_block = kind == TPL_T_BLOCK_END;
    lexer->n_brackets = 0;
    for (;;) {
        advance(lexer, skip_space(lexer, lexer->at));
        if (lexer->at >= lexer->n) {
            return lex_fail(lexer, "unexpected end of template inside a tag", 0);
        }
        char c = lexer->text[lexer->at];
        bool sign = (c == '-' || (c == '+' && is_block)) && looking_at(lexer, lexer->at + 1, close);
        if (lexer->n_brackets == 0 && (sign || looking_at(lexer, lexer->at, close))) {
            bool ok = push(lexer, kind, lexer->at, 2);
            advance(lexer, close_tag(lexer, lexer->at, close, is_block));
            return ok;
        }
        bool ok = is_digit(c)             ? lex_number(lexer)
                  : is_word(c)            ? lex_word(lexer)
                  : c == '\'' || c == '"' ? lex_string(lexer)
                                          : lex_operator(lexer);
        if (!ok) {
            return false;
        }
    }
}

/* One tag at `open`, with the text before it. */
static bool lex_tag(struct lexer *lexer, size_t open)
{
    char second = lexer->text[open + 1];
    char sign = open + 2 < lexer->n ? lexer->text[open + 2] : 0;
    bool is_signed = sign == '-' || sign == '+';
    size_t raw_end;
    if (!push_data(lexer, open, sign, second == '{')) {
        return false;
    }
    if (second == '#') {
        return lex_comment(lexer);
    }
    if (second == '%' && opens_raw(lexer, open, &raw_end)) {
        return lex_raw(lexer, raw_end);
    }
    bool is_block = second == '%';
    if (!push(lexer, is_block ? TPL_T_BLOCK_BEGIN : TPL_T_VAR_BEGIN, open, 2)) {
        return false;
    }
    advance(lexer, open + 2 + is_signed);
    return lex_inside(lexer, is_block ? "%}" : "}}", is_block ? TPL_T_BLOCK_END : TPL_T_VAR_END);
}

static bool lex_all(struct lexer *lexer)
{
    lexer->line_start = true;
    while (lexer->at < lexer->n) {
        size_t open = lexer->at;
        while (open < lexer->n &&
               !(lexer->text[open] == '{' && open + 1 < lexer->n &&
                 (lexer->text[open + 1] == '{' || lexer->text[open + 1] == '%' || lexer->text[open + 1] == '#'))) {
            open++;
        }
        if (open == lexer->n) {
            if (!push(lexer, TPL_T_DATA, lexer->at, open - lexer->at)) {
                return false;
            }
            advance(lexer, open);
        } else if (!lex_tag(lexer, open)) {
            return false;
        }
    }
    return push(lexer, TPL_T_END, lexer->n, 0);
}

esp_status esp_tpl_lex(struct esp_arena *arena, const char *text, size_t n_bytes, struct tpl_tokens *ret_tokens,
                       struct esp_err *err)
{
    char *copy = esp_arena_alloc(arena, n_bytes + 1, 1);
    if (copy == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    size_t n = 0;
    for (size_t idx = 0; idx < n_bytes; idx++) {
        bool is_return = text[idx] == '\r';
        copy[n++] = is_return ? '\n' : text[idx];
        idx += is_return && idx + 1 < n_bytes && text[idx + 1] == '\n';
    }
    n -= n > 0 && copy[n - 1] == '\n';
    struct esp_err local;
    struct lexer lexer = {.arena = arena, .err = err != NULL ? err : &local, .text = copy, .n = n, .line = 1};
    lexer.err->code = ESP_OK;
    if (!lex_all(&lexer)) {
        return lexer.err->code;
    }
    *ret_tokens = lexer.tokens;
    return ESP_OK;
}
