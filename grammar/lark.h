/* Grammars in the Lark language, the part of it that suits constrained decoding, as rules.
 *
 *   start: item ("," item)*            rules begin with a small letter, terminals with a capital one
 *   item: NAME "=" value | <|tool|> %json {"type": "object"}
 *   value: /[0-9]+/ | "yes"i | "a".."f" ~ 1..3 | (WORD){2,4} | [WORD]
 *   NAME: /[a-z_]+/ & ~"if"            & and ~ in terminals; ~ n and ~ n..m repeat
 *   %import common (WORD, WS)
 *   %ignore WS                         may follow every terminal that a rule names or spells
 *
 * What is allowed are texts: there is no longest match of terminals. Patterns are those of regex.h with the flags
 * i (a to z), s and u. Refused with line and column: templates, priorities, attributes of rules, %declare, %extend,
 * %override, imports of files. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_LARK_H
#define ESP_GRAMMAR_LARK_H

#include "grammar/cfg.h"

/* Reads the text into cfg's rules; *ret_root is the rule `start`. */
esp_status esp_lark_read(struct esp_cfg *cfg, uint32_t *ret_root);

/* ---- Inside of the reader ---------------------------------------------------------------------- */

struct esp_lark {
    struct esp_cfg *cfg;
    const char *text;
    size_t n, at;
    unsigned depth;
    bool terminal;                /* reading the definition of one */
    uint32_t ignore;              /* the rule of what may follow a terminal */
    struct esp_cfg_node *ignored; /* its alternatives so far */
};

int esp_lark_peek(const struct esp_lark *in); /* −1 at the end */
/* Blanks, line breaks and comments; blanks alone with `line`. */
void esp_lark_space(struct esp_lark *in, bool line);
bool esp_lark_take(struct esp_lark *in, const char *word); /* exactly here */
size_t esp_lark_name_bytes(const struct esp_lark *in);
esp_status esp_lark_fail(struct esp_lark *in, esp_status status, const char *what);
esp_status esp_lark_number(struct esp_lark *in, uint32_t *ret_value);
esp_status esp_lark_leaf(struct esp_lark *in, uint32_t expr, size_t at, uint32_t weight,
                         struct esp_cfg_node **ret_node);

/* lark_leaf.c: a string or range, a pattern, a token in < >. */
esp_status esp_lark_string(struct esp_lark *in, struct esp_cfg_node **ret_node);
esp_status esp_lark_pattern(struct esp_lark *in, struct esp_cfg_node **ret_node);
esp_status esp_lark_token(struct esp_lark *in, struct esp_cfg_node **ret_node);
/* lark_more.c: %json and %regex with the value after them; the rest of %import. */
esp_status esp_lark_json(struct esp_lark *in, struct esp_cfg_node **ret_node);
esp_status esp_lark_regex(struct esp_lark *in, struct esp_cfg_node **ret_node);
esp_status esp_lark_import(struct esp_lark *in);

#endif
