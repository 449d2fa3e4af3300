/* A stand-in for the grammar library: grammars that are only their text. Included by one test file each.
 *
 * "fail…" does not compile; "slow…" waits until fake_release is set; "size=N" takes N bytes. The trie remembers
 * what it was made of.
 */
#ifndef ESP_TESTS_FAKEGRAMMAR_H
#define ESP_TESTS_FAKEGRAMMAR_H

#include <stdatomic.h>

#include "runtime/vocab.h"
#include "tests/esptest.h"

struct esp_grammar {
    atomic_int refs;
    size_t n_bytes;
    struct esp_grammar_options options;
};
struct esp_trie {
    uint32_t n_tokens;
    struct esp_trie_token tokens[1024];
};

static atomic_int fake_compiled, fake_compiling, fake_live, fake_tries;
static atomic_bool fake_release;

esp_status esp_grammar_compile(const struct esp_trie *trie, const struct esp_grammar_spec *spec,
                               struct esp_grammar **ret_grammar, struct esp_err *err)
{
    fake_compiled++;
    fake_compiling++;
    for (int ms = 0; strncmp(spec->text, "slow", 4) == 0 && !fake_release && ms < 10000; ms++) {
        usleep(1000);
    }
    fake_compiling--;
    if (strstr(spec->text, "fail") != NULL) {
        esp_fail(err, ESP_EUNSUPPORTED, "fake");
        esp_err_place(err, "/a");
        return ESP_EUNSUPPORTED;
    }
    struct esp_grammar *grammar = calloc(1, sizeof *grammar);
    const char *size = strstr(spec->text, "size=");
    grammar->refs = 1;
    grammar->n_bytes = size == NULL ? 100 : strtoul(size + 5, NULL, 10);
    grammar->options = spec->options;
    fake_live++;
    *ret_grammar = grammar;
    return ESP_OK;
}

struct esp_grammar *esp_grammar_ref(struct esp_grammar *grammar)
{
    grammar->refs++;
    return grammar;
}

void esp_grammar_unref(struct esp_grammar *grammar)
{
    if (grammar != NULL && --grammar->refs == 0) {
        fake_live--;
        free(grammar);
    }
}

size_t esp_grammar_bytes(const struct esp_grammar *grammar)
{
    return grammar->n_bytes;
}

esp_status esp_trie_create(const struct esp_trie_token *tokens, uint32_t n_tokens, struct esp_trie **ret_trie,
                           struct esp_err *err)
{
    struct esp_trie *trie = calloc(1, sizeof *trie);
    trie->n_tokens = n_tokens;
    memcpy(trie->tokens, tokens, n_tokens * sizeof *tokens);
    fake_tries++;
    *ret_trie = trie;
    return ESP_OK;
}

void esp_trie_destroy(struct esp_trie *trie)
{
    free(trie);
}

#endif
