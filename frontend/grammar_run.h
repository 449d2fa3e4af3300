/* Driving a grammar with texts and tokens, mask by mask, and timing each: the working part of `grammar check`.
 *
 * A text is allowed when its tokens are, one by one, and an end token after them. Texts are cut by the
 * vocabulary's tokenizer, or by the longest token that fits for a vocabulary given in the line.
 * Thread: main.
 */
#ifndef ESP_FRONTEND_GRAMMAR_RUN_H
#define ESP_FRONTEND_GRAMMAR_RUN_H

#include <jansson.h>

#include "grammar/grammar.h"
#include "runtime/base/buf.h"
#include "runtime/espalier.h"

struct esp_run {
    struct esp_grammar *grammar;
    const struct esp_trie *trie;
    const esp_vocab *vocab; /* NULL: the longest token that fits */
    bool oracle;
    uint64_t n_masks, n_mask_errors;
    uint64_t *oracle_mask;
    struct esp_buf times; /* int64_t nanoseconds, one a mask */
    struct esp_buf ids;
};

/* Makes the first state, too. The fields of the first block are the caller's. */
esp_status esp_run_init(struct esp_run *run);
void esp_run_finish(struct esp_run *run); /* zeroed is fine */
bool esp_run_text(struct esp_run *run, const char *text, size_t n_bytes);
/* Appends the answer to "feed". */
void esp_run_feed(struct esp_run *run, const json_t *feed, struct esp_buf *out);
/* Appends ,"masks":…,"mask_us":{…}. */
void esp_run_print_times(struct esp_run *run, bool all, struct esp_buf *out);
/* {"tokens":["hex"…],"control":[ids],"end":[ids]} */
esp_status esp_run_vocab(const json_t *vocab, struct esp_trie **ret_trie, struct esp_err *err);

#endif
