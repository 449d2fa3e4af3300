/* One line of `grammar check`: a grammar, texts to try, and what came of it.
 *
 * The line is split at its top level by hand, because the schema must reach the compiler as source text and
 * may be deeper or hold larger numbers than a JSON library takes; the other members go through jansson.
 * A line may bring a vocabulary of its own. Thread: main.
 */
#ifndef ESP_FRONTEND_GRAMMAR_CHECK_H
#define ESP_FRONTEND_GRAMMAR_CHECK_H

#include "grammar/grammar.h"
#include "runtime/base/buf.h"
#include "runtime/espalier.h"

struct esp_check {
    const esp_vocab *vocab; /* NULL: only lines with a vocabulary of their own */
    const struct esp_trie *trie;
    bool oracle;
    struct esp_buf out; /* the answer, without its line end */
};

/* Answers one line into check->out. */
void esp_check_line(struct esp_check *check, const char *line, size_t n_bytes);

/* "compile":"ok", or "error" and what is wrong: members of an object. */
void esp_check_print_verdict(struct esp_buf *out, const struct esp_err *err);

#endif
