/* The vocabulary object from inside: for the engine, the grammar verb and tests.
 *
 * An esp_vocab is a tokenizer, the strings of the model file, the token trie for grammars (built at first use)
 * and a cache of compiled grammars. Thread: any; what changes after open is behind its own locks.
 */
#ifndef ESP_RUNTIME_VOCAB_H
#define ESP_RUNTIME_VOCAB_H

#include "grammar/grammar.h"
#include "runtime/espalier.h"
#include "runtime/gguf.h"

/* Copies what it needs: the file may be closed afterwards. */
esp_status esp_vocab_from_gguf(const struct esp_gguf *gguf, esp_vocab **ret_vocab, struct esp_err *err);
/* Built by the first caller, then shared; borrowed until the vocabulary is closed. */
esp_status esp_vocab_trie(const esp_vocab *vocab, const struct esp_trie **ret_trie, struct esp_err *err);

/* The options of `grammar check` from JSON text; NULL or empty text gives the defaults. An unknown option or value is
 * ESP_EINVAL with its name in err->keyword. */
esp_status esp_grammar_options_parse(const char *text, struct esp_grammar_options *ret_options, struct esp_err *err);

#define ESP_GRAMMAR_CACHE_BYTES_MAX ((size_t)64 << 20)
#define ESP_GRAMMAR_CACHE_N_MAX 1024
struct esp_grammar_cache;
esp_status esp_grammar_cache_create(size_t bytes_max, struct esp_grammar_cache **ret_cache);
void esp_grammar_cache_destroy(struct esp_grammar_cache *cache); /* NULL is fine; nothing may be compiling */
/* The grammar of spec, compiled once for equal specs, also when they come at the same moment: the others wait for
 * the first, and share its error. A compile holds no lock. *ret_grammar is the caller's reference. */
esp_status esp_grammar_cache_get(struct esp_grammar_cache *cache, const struct esp_trie *trie,
                                 const struct esp_grammar_spec *spec, struct esp_grammar **ret_grammar,
                                 struct esp_err *err);
struct esp_grammar_cache_stats {
    uint64_t n_compiled, n_hits;
    size_t n_kept, kept_bytes;
    struct esp_histogram compile; /* time from text to grammar or error */
};
struct esp_grammar_cache_stats esp_grammar_cache_stats(struct esp_grammar_cache *cache);
struct esp_grammar_cache_stats esp_vocab_grammar_stats(const esp_vocab *vocab);

#endif
