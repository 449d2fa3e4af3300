/* Sets of code points, and how a text spells them as bytes.
 *
 *   [a-zé]  ──►  ranges 61-7A, E9  ──►  expression over bytes
 *
 * Spelling RAW is UTF-8. JSON is the inside of a JSON string: UTF-8 where JSON allows it, \" \\ \/ \b \f
 * \n \r \t, and \u00XX for the other control characters. JSON_ANY also allows \uXXXX for everything, with
 * surrogate pairs, never half of one. Surrogates are no code points and in no set.
 * Thread: the owner's. Sets live in an arena.
 */
#ifndef ESP_GRAMMAR_CPSET_H
#define ESP_GRAMMAR_CPSET_H

#include "grammar/expr.h"

enum esp_spelling { ESP_SPELL_RAW, ESP_SPELL_JSON, ESP_SPELL_JSON_ANY };

struct esp_cprange {
    uint32_t first, last;
};
struct esp_cpset {
    struct esp_arena *arena;
    struct esp_cprange *r;
    uint32_t n, cap;
    bool failed; /* out of memory */
};

void esp_cpset_init(struct esp_cpset *set, struct esp_arena *arena);
void esp_cpset_add(struct esp_cpset *set, uint32_t first, uint32_t last);
void esp_cpset_add_set(struct esp_cpset *set, const struct esp_cpset *other);
void esp_cpset_normalise(struct esp_cpset *set); /* sorted, merged, no surrogates */
void esp_cpset_negate(struct esp_cpset *set);    /* of a normalised set */

/* One character of a normalised set. */
uint32_t esp_spell_set(struct esp_exprs *x, enum esp_spelling spelling, const struct esp_cpset *set);
uint32_t esp_spell_char(struct esp_exprs *x, enum esp_spelling spelling, uint32_t cp);
/* Exactly this UTF-8 text (valid), followed by `tail`. */
uint32_t esp_spell_text(struct esp_exprs *x, enum esp_spelling spelling, const char *text, size_t n_bytes,
                        uint32_t tail);
/* Any characters: Σ*. */
uint32_t esp_spell_any(struct esp_exprs *x, enum esp_spelling spelling);
struct esp_spell_word {
    const char *text;
    size_t n_bytes;
};
/* One of the words (distinct, valid UTF-8), or with `others` any text but them, followed by `tail`. */
uint32_t esp_spell_words(struct esp_exprs *x, enum esp_spelling spelling, struct esp_arena *arena,
                         const struct esp_spell_word *words, uint32_t n_words, bool others, uint32_t tail);

#endif
