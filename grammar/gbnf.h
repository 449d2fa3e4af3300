/* GBNF, the grammar files of llama.cpp, as rules; EBNF in the same spelling is taken too.
 *
 *   root ::= item ("," ws item)* | "none"     # a rule goes on over lines until the next name and ::=
 *   item ::= [a-z_]+ | "\u00e9" | .           classes, escapes \n \r \t \xHH \uHHHH \UHHHHHHHH, any character
 *   ws   ::= " "? [^\n]{0,3} "x"{2} "y"{1,}   counts
 *   call ::= <|tool|> !<|end|>* <[1234]>      a token by name or id, any other token than it
 *
 * Left recursion is fine. Mistakes are told with line and column. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_GBNF_H
#define ESP_GRAMMAR_GBNF_H

#include "grammar/cfg.h"

/* Reads the text into cfg's rules; *ret_root is the rule `root`. */
esp_status esp_gbnf_read(struct esp_cfg *cfg, uint32_t *ret_root);

/* The token that a name in a grammar's text means, from `<` to `>`, or <[id]>. End tokens are refused. */
esp_status esp_cfg_find_token(struct esp_cfg *cfg, size_t at, const char *name, size_t n_bytes, uint32_t *ret_token);
/* A node for any token of the sorted ranges (first, last), or with `others` any other token; end tokens are left out.
 */
esp_status esp_cfg_token_node(struct esp_cfg *cfg, size_t at, const uint32_t *pairs, uint32_t n_pairs, bool others,
                              struct esp_cfg_node **ret_node);

#endif
