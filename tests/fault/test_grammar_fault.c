/* Every allocation of a compile, a walk and a fork fails once: a clear status, no leak, no broken state. */
#include "runtime/base/alloc.h"
#include "tests/unit/grammar/rig.h"

static const char schema[] =
    "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12},"
    "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},\"required\":[\"v\"]}},"
    "\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"pattern\":\"^[a-c]+$\",\"maxLength\":6},"
    "\"e\":{\"enum\":[\"x\",1,null]},\"n\":{\"$ref\":\"#/$defs/n\"},"
    "\"u\":{\"items\":{\"enum\":[1,2]},\"uniqueItems\":true}},\"required\":[\"s\"],\"format\":\"nothing\","
    "\"not\":{\"properties\":{\"n\":{\"required\":[\"w\"]}},\"patternProperties\":{\"^y\":true},\"required\":[\"n\"]},"
    "\"oneOf\":[{\"required\":[\"e\"]},{\"properties\":{\"u\":{\"minItems\":1}},"
    "\"required\":[\"u\"]}],\"unevaluatedProperties\":{\"contains\":{\"const\":1}}}";

/* Compiles, takes tokens, asks for masks, forks. */
static esp_status work(const struct esp_trie *trie)
{
    static const char text[] = "{\"s\":\"ab\",\"e\":1,\"n\":{\"v\":12,\"next\":null}}";
    struct esp_grammar *grammar = NULL;
    struct esp_matcher *matcher = NULL, *fork = NULL;
    esp_status status = rig_compile(trie, ESP_GRAMMAR_SCHEMA, schema, 0, &grammar, NULL);
    if (status == ESP_OK) {
        status = esp_matcher_create(grammar, &matcher);
    }
    for (size_t at = 0; at + 1 < sizeof text && status == ESP_OK; at++) {
        status = esp_matcher_mask(matcher) == NULL ? ESP_ENOMEM : esp_matcher_accept(matcher, (unsigned char)text[at]);
        if (at == 9 && status == ESP_OK) {
            status = esp_matcher_fork(matcher, &fork);
        }
    }
    if (status == ESP_OK) {
        status = esp_matcher_complete(matcher) ? esp_matcher_accept(matcher, RIG_END) : ESP_EINTERNAL;
    }
    esp_matcher_destroy(fork);
    esp_matcher_destroy(matcher);
    esp_grammar_unref(grammar);
    return status;
}

static void test_every_allocation(void)
{
    uint64_t live = esp_alloc_live();
    bool fired = true;
    uint64_t n = 0;
    while (fired && n < 20000) {
        n++;
        struct esp_trie *trie = rig_trie(); /* keeps slices it made, so each round has its own */
        esp_alloc_fail_at(n);
        esp_status status = work(trie);
        fired = esp_alloc_fail_at(0);
        CHECK(status == ESP_OK || status == ESP_ENOMEM, "allocation %llu: %s", (unsigned long long)n,
              esp_status_name(status));
        CHECK(fired || status == ESP_OK, "no fault, but %s", esp_status_name(status));
        esp_trie_destroy(trie);
        CHECK(esp_alloc_live() == live, "allocation %llu: %lld blocks leaked", (unsigned long long)n,
              (long long)(esp_alloc_live() - live));
    }
    CHECK(!fired && n > 50, "%llu allocations", (unsigned long long)n);
}

static void test_trie(void)
{
    uint64_t live = esp_alloc_live();
    for (uint64_t n = 1; n < 200; n++) {
        esp_alloc_fail_at(n);
        struct esp_trie *trie = rig_trie();
        bool fired = esp_alloc_fail_at(0);
        CHECK(fired == (trie == NULL), "allocation %llu", (unsigned long long)n);
        esp_trie_destroy(trie);
        CHECK(esp_alloc_live() == live, "allocation %llu leaked", (unsigned long long)n);
        if (!fired) {
            return;
        }
    }
}

ESP_TEST_MAIN(T(test_every_allocation), T(test_trie))
