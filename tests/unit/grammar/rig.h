/* What tests of grammars share: small vocabularies, compiling a text, trying a text, walking at random.
 * Header only; each test program has its own copy. */
#ifndef ESP_TESTS_UNIT_GRAMMAR_RIG_H
#define ESP_TESTS_UNIT_GRAMMAR_RIG_H

#include "grammar/grammar.h"
#include "grammar/trie.h"
#include "tests/esptest.h"

#define RIG_END 256u

/* Every byte, an end token, and some longer tokens that cross the borders of JSON's parts. */
static inline struct esp_trie *rig_trie(void)
{
    static const char *const longer[] = {"\":",  "\",\"", "},", "\"}",  "}]",   "[{",     "{\"",  "null",  "true",
                                         "12",   "0.",    "e1", "ab",   "abc",  "a\"",    "\\n",  "\\u00", "  ",
                                         "\n  ", "é",     "éa", "\xC3", "\xA9", "xyz",    "\",",  "\":\"", "\":1,\"",
                                         "1,",   ",\"",   "a",  "9]",   "-1",   "\"x\"y", "\"\n", "\"\\q", "\"a\xFF"};
    enum { N_LONGER = sizeof longer / sizeof longer[0] };
    static uint8_t bytes[256];
    struct esp_trie_token tokens[257 + N_LONGER];
    for (unsigned byte = 0; byte < 256; byte++) {
        bytes[byte] = (uint8_t)byte;
        tokens[byte] = (struct esp_trie_token){&bytes[byte], 1, ESP_ROLE_TEXT};
    }
    tokens[RIG_END] = (struct esp_trie_token){"</s>", 4, ESP_ROLE_END};
    for (unsigned idx = 0; idx < N_LONGER; idx++) {
        tokens[257 + idx] = (struct esp_trie_token){longer[idx], (uint32_t)strlen(longer[idx]), ESP_ROLE_TEXT};
    }
    struct esp_trie *trie = NULL;
    esp_trie_create(tokens, 257 + N_LONGER, &trie, NULL);
    return trie;
}

static inline esp_status rig_compile(const struct esp_trie *trie, enum esp_grammar_kind kind, const char *text,
                                     uint64_t fuel, struct esp_grammar **ret, struct esp_err *err)
{
    struct esp_grammar_spec spec = {.kind = kind, .text = text, .n_bytes = strlen(text), .options = {.fuel = fuel}};
    return esp_grammar_compile(trie, &spec, ret, err);
}

/* Is the text allowed, byte by byte, with an end after it? */
static inline bool rig_accepts(struct esp_grammar *grammar, const char *text, size_t n_bytes)
{
    struct esp_matcher *matcher;
    if (esp_matcher_create(grammar, &matcher) != ESP_OK) {
        return false;
    }
    bool ok = true;
    for (size_t at = 0; at < n_bytes && ok; at++) {
        ok = esp_matcher_accept(matcher, (unsigned char)text[at]) == ESP_OK;
    }
    ok = ok && esp_matcher_complete(matcher);
    esp_matcher_destroy(matcher);
    return ok;
}

/* Takes up to n random allowed tokens; every mask must equal the oracle's and be non-empty before the end. */
static inline void rig_walk(struct esp_grammar *grammar, const struct esp_trie *trie, int n, const char *what)
{
    uint64_t oracle[8];
    struct esp_matcher *matcher;
    REQUIRE(esp_mask_words(esp_trie_n_tokens(trie)) <= 8, "room");
    REQUIRE(esp_matcher_create(grammar, &matcher) == ESP_OK, "create");
    for (int step = 0; step < n && !esp_matcher_ended(matcher); step++) {
        const uint64_t *mask = esp_matcher_mask(matcher);
        uint32_t allowed[512], n_allowed = 0;
        CHECK(mask != NULL && esp_matcher_mask_oracle(matcher, oracle) == ESP_OK, "mask of %.300s", what);
        if (mask == NULL) {
            break;
        }
        CHECK(memcmp(mask, oracle, esp_mask_words(esp_trie_n_tokens(trie)) * 8) == 0, "step %d of %.300s", step, what);
        for (uint32_t token = 0; token < esp_trie_n_tokens(trie); token++) {
            if (esp_mask_has(mask, token)) {
                allowed[n_allowed++] = token;
            }
        }
        CHECK(n_allowed > 0, "dead end at step %d of %.300s", step, what);
        if (n_allowed == 0) {
            break;
        }
        uint32_t token = allowed[esp_rng_below(&esp_test_state.rng, n_allowed)];
        CHECK(esp_matcher_accept(matcher, token) == ESP_OK, "allowed token %u refused in %.300s", token, what);
    }
    esp_matcher_destroy(matcher);
}

#endif
