/* What a grammar and a matcher are made of. Inside of grammar/, used by grammar.c, matcher.c and dump.c.
 *
 * A matcher is the list of configurations its tokens led to: fork copies it, rollback shortens it. It holds
 * one store; when the grammar has moved to a newer one, the matcher replays its tokens there.
 * Thread: grammars are shared, `lock` guards the current store; a matcher has one owner.
 */
#ifndef ESP_GRAMMAR_MATCHER_H
#define ESP_GRAMMAR_MATCHER_H

#include <stdatomic.h>

#include "grammar/grammar.h"
#include "grammar/live.h"
#include "grammar/machine.h"

struct esp_grammar {
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock; /* guards store and its n_refs */
    const struct esp_trie *trie;
    struct esp_exprs base;
    struct esp_lens *lens;
    uint32_t *starts;
    uint32_t n_starts, starts_cap;
    struct esp_store *store;
    struct esp_buf warnings;
};

struct esp_matcher {
    struct esp_grammar *grammar;
    struct esp_store *store;
    uint32_t *tokens; /* [n] */
    uint32_t *confs;  /* [n + 1] */
    uint32_t n, tokens_cap, confs_cap;
    uint32_t mask; /* held, 0 = none */
    const uint64_t *mask_bits;
    bool ended;
};

#endif
