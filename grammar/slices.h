/* Slices: the tokens made of one class of characters, as masks, kept with the vocabulary for all grammars.
 *
 *   class [a-z0-9-]   all ──► bits of every token of the class
 *                     by length ──► their ids, shorter ones first; at[n] = how many have at most n characters
 *
 * The most recently used classes are kept, at most ESP_SLICES_MAX. Thread: any, own lock.
 */
#ifndef ESP_GRAMMAR_SLICES_H
#define ESP_GRAMMAR_SLICES_H

#include "grammar/trie.h"

#define ESP_SLICES_MAX 24u

/* ascii, utf8: whole characters above U+007F belong to the class too. */
struct esp_class {
    uint64_t ascii[2];
    bool utf8;
};

struct esp_slices;
esp_status esp_slices_create(const struct esp_trie *trie, struct esp_slices **ret_slices);
void esp_slices_destroy(struct esp_slices *slices); /* NULL is fine */

/* Makes mask the tokens of the class with at most n_chars characters. */
esp_status esp_slices_take(const struct esp_trie *trie, const struct esp_class *class, uint32_t n_chars,
                           uint64_t *mask);

#endif
