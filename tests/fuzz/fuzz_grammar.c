/* Hostile grammar texts: mutated schemas, regexes, rules and regions must compile or be refused, within fuel, and what
 * compiles must walk without a dead end and with masks equal to the oracle's. */
#include "tests/unit/grammar/rig.h"

static const char *const seeds[] = {
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":400},\"b\":{\"$ref\":"
    "\"#\"}}}",
    "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^a[b-d]{1,3}$\",\"maxLength\":3},{\"type\":\"null\"},{\"enum\":[1,"
    "\"x\",[],{}]}]}",
    "{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{}],\"items\":{\"type\":\"number\",\"exclusiveMinimum\":-0.5},"
    "\"minItems\":1,\"maxItems\":4}",
    "{\"$defs\":{\"x\":{\"allOf\":[{\"type\":[\"string\",\"array\"]},{\"minLength\":2,\"minItems\":1}]}},\"$ref\":\"#/"
    "$defs/x\"}",
    "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"]},{\"type\":"
    "\"boolean\"}]}",
    "{\"type\":\"string\",\"format\":\"date-time\",\"minLength\":1}",
    "{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":false},\"required\":[\"c\"],\"additionalProperties\":{"
    "\"type\":\"integer\"}}",
    "{\"not\":{\"type\":[\"string\",\"array\"],\"properties\":{\"a\":{\"minimum\":2}},\"additionalProperties\":false,"
    "\"required\":[\"b\"]}}",
    "{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2},{\"required\":[\"a\"]},{\"properties\":{\"a\":{\"enum\":[1,"
    "[2],{}]}}}]}",
    "{\"if\":{\"items\":{\"type\":\"null\"}},\"then\":{\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":3},"
    "\"else\":{\"maxItems\":2}}",
    "{\"anyOf\":[{\"properties\":{\"a\":true}},{\"patternProperties\":{\"^b\":{}}}],\"unevaluatedProperties\":false,"
    "\"unevaluatedItems\":{\"type\":\"null\"},\"prefixItems\":[true]}",
    "{\"type\":\"array\",\"items\":{\"enum\":[1,1.0,\"a\",[],{}]},\"uniqueItems\":true,\"minItems\":2}",
    "{\"propertyNames\":{\"anyOf\":[{\"pattern\":\"a\"},{\"const\":\"b\"}]},\"not\":{\"propertyNames\":{\"maxLength\":"
    "1},"
    "\"patternProperties\":{\"c\":false}}}",
};
static const char *const regexes[] = {"(a|b)*c{2,5}[^x-z]", "^\\d+(\\.\\d{1,2})?$", "([x]*)*",   "(a{1,20}){1,20}b?",
                                      "[\\w-]+@\\p{Any}",   "(((a?)?)?)*",          "a{0,9999}", "(?:x+x+)+y"};
static const char *const pieces[] = {
    "{",  "}",   "[",       "]",           "\"", ",", ":", "0",   "9", "-", "1e9", "null", "\\",   "type", "$ref",
    "#/", "not", "minimum", "99999999999", "(",  ")", "*", "{3}", "|", "^", "$",   "é",    "\xFF", "?"};

static const char *const gbnfs[] = {
    "root ::= (expr \"=\" term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= [a-z]+ | \"(\" expr \")\" | "
    "[0-9]{1,3}",
    "root ::= root \"+\" root | root root | \"-\" root | \"(\" root \")\" | [0-9]",
    "root ::= a | \"{\" root \"}\"\na ::= b \"x\" | \"y\"\nb ::= a? \"z\" | root b",
    "root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\" | [^ab]",
    "root ::= ([x]*)* (([y]?)+){2,5} (\"a\"{1,20}){1,20}\nu ::= u u u | .",
    "root ::= !<[97]>{0,2} <[98]> [\\u00e9-\\uffff]? \"\\x41\"",
};
static const char *const larks[] = {
    "start: item (\",\" item)*\nitem: NAME \"=\" /[0-9]{1,4}/ | \"yes\"i | %json {\"type\":\"boolean\"}\nNAME: "
    "/[a-z]+/ & ~\"if\"\n%ignore / /",
    "start: start \"+\" start | \"(\" start \")\" | N -> n\nN: \"0\"..\"9\"~1..3\n%import common.WS\n%ignore WS",
    "?start: a b?\na: (b | \"x\"){2,3}\nb: [a] \"y\" | <[98]> | A\nA: ~(/.*a.*/ | B)\nB: \"bb\" | /c+/",
    "start: %regex {\"substring_chars\":\"abcab\"} S\nS: /a|\\w{2}/s\n%llguidance {}",
};
static const char *const regions[] = {
    "{\"seq\":[{\"free\":{\"until\":[\"<t>\",\"{\"],\"tokens\":3}},{\"any\":[{\"text\":\"<t>\"},{\"schema\":{\"type\":"
    "\"object\"}}]}]}",
    "{\"repeat\":{\"seq\":[{\"choice\":[\"a\",\"ab\"]},{\"regex\":\"b*c?\"},{\"token\":97}]},\"min\":1,\"max\":4}",
};

static uint64_t below(uint64_t n)
{
    return esp_rng_below(&esp_test_state.rng, n);
}

/* Deletes, doubles or inserts at random places. */
static void mutate(char *text, size_t room)
{
    for (uint64_t n = below(4); n > 0; n--) {
        size_t len = strlen(text), at = below(len + 1), span = below(6);
        const char *piece = pieces[below(sizeof pieces / sizeof pieces[0])];
        if (below(2) == 0 && at + span <= len) {
            memmove(text + at, text + at + span, len - at - span + 1);
        } else if (len + strlen(piece) + 1 < room) {
            memmove(text + at + strlen(piece), text + at, len - at + 1);
            memcpy(text + at, piece, strlen(piece));
        }
    }
}

static void try_text(const struct esp_trie *trie, enum esp_grammar_kind kind, const char *text, int *n_compiled)
{
    struct esp_grammar *grammar;
    struct esp_err err = {0};
    esp_status status = rig_compile(trie, kind, text, 2000000, &grammar, &err);
    if (status == ESP_OK) {
        ++*n_compiled;
        rig_walk(grammar, trie, 12, text);
        esp_grammar_unref(grammar);
        return;
    }
    CHECK(status == ESP_EINVAL || status == ESP_EUNSUPPORTED || status == ESP_EUNSAT || status == ESP_ELIMIT,
          "%s on %.300s", esp_status_name(status), text);
    CHECK(err.message[0] != '\0' && err.code == status, "no message for %.300s", text);
}

static void test_schemas(void)
{
    struct esp_trie *trie = rig_trie();
    int n_compiled = 0;
    for (int round = 0; round < 3000; round++) {
        char text[1024];
        snprintf(text, sizeof text, "%s", seeds[below(sizeof seeds / sizeof seeds[0])]);
        mutate(text, sizeof text);
        try_text(trie, ESP_GRAMMAR_SCHEMA, text, &n_compiled);
    }
    CHECK(n_compiled > 300, "only %d schemas compiled", n_compiled);
    esp_trie_destroy(trie);
}

static void test_regexes(void)
{
    struct esp_trie *trie = rig_trie();
    int n_compiled = 0;
    for (int round = 0; round < 3000; round++) {
        char text[256];
        snprintf(text, sizeof text, "%s", regexes[below(sizeof regexes / sizeof regexes[0])]);
        mutate(text, sizeof text);
        try_text(trie, ESP_GRAMMAR_REGEX, text, &n_compiled);
    }
    CHECK(n_compiled > 300, "only %d regexes compiled", n_compiled);
    esp_trie_destroy(trie);
}

/* Mutated grammars of one kind: all but `least` of `rounds` may be refused. */
static void fuzz_kind(enum esp_grammar_kind kind, const char *const *seeds_of, size_t n_seeds, int rounds, int least)
{
    struct esp_trie *trie = rig_trie();
    int n_compiled = 0;
    for (int round = 0; round < rounds; round++) {
        char text[1024];
        snprintf(text, sizeof text, "%s", seeds_of[below(n_seeds)]);
        mutate(text, sizeof text);
        try_text(trie, kind, text, &n_compiled);
    }
    CHECK(n_compiled > least, "only %d compiled", n_compiled);
    esp_trie_destroy(trie);
}

static void test_gbnf(void)
{
    fuzz_kind(ESP_GRAMMAR_GBNF, gbnfs, sizeof gbnfs / sizeof gbnfs[0], 1500, 300);
}

static void test_lark(void)
{
    fuzz_kind(ESP_GRAMMAR_LARK, larks, sizeof larks / sizeof larks[0], 1500, 200);
}

static void test_regions(void)
{
    fuzz_kind(ESP_GRAMMAR_REGIONS, regions, sizeof regions / sizeof regions[0], 800, 150);
}

/* Rollback and fork: what is taken back must be as if it had never been. */
static void roll_back(enum esp_grammar_kind kind, const char *text)
{
    struct esp_trie *trie = rig_trie();
    struct esp_grammar *grammar;
    REQUIRE(rig_compile(trie, kind, text, 0, &grammar, NULL) == ESP_OK, "compile");
    for (int round = 0; round < 100; round++) {
        struct esp_matcher *m = NULL, *fork = NULL;
        uint64_t before[8], after[8];
        REQUIRE(esp_matcher_create(grammar, &m) == ESP_OK, "create");
        uint32_t n_taken = 0;
        for (uint64_t n = below(20); n > 0; n--) {
            n_taken += esp_matcher_accept(m, (uint32_t)below(esp_trie_n_tokens(trie))) == ESP_OK;
        }
        memcpy(before, esp_matcher_mask(m), esp_mask_words(esp_trie_n_tokens(trie)) * 8);
        REQUIRE(esp_matcher_fork(m, &fork) == ESP_OK, "fork");
        uint32_t n_more = 0;
        for (int n = 0; n < 40; n++) {
            n_more += esp_matcher_accept(m, (uint32_t)below(esp_trie_n_tokens(trie))) == ESP_OK;
        }
        CHECK(esp_matcher_rollback(m, n_taken + n_more + 1) == ESP_EINVAL, "more than was taken");
        CHECK(esp_matcher_rollback(m, n_more) == ESP_OK, "rollback of %u", n_more);
        memcpy(after, esp_matcher_mask(m), esp_mask_words(esp_trie_n_tokens(trie)) * 8);
        CHECK(memcmp(before, after, esp_mask_words(esp_trie_n_tokens(trie)) * 8) == 0, "mask after rollback");
        CHECK(esp_matcher_mask(fork) == esp_matcher_mask(m), "equal states share one mask");
        esp_matcher_destroy(fork);
        esp_matcher_destroy(m);
    }
    esp_grammar_unref(grammar);
    esp_trie_destroy(trie);
}

static void test_rollback(void)
{
    roll_back(ESP_GRAMMAR_SCHEMA, seeds[0]);
    roll_back(ESP_GRAMMAR_GBNF, gbnfs[1]);
    roll_back(ESP_GRAMMAR_GBNF, gbnfs[5]);
    roll_back(ESP_GRAMMAR_LARK, larks[0]);
    roll_back(ESP_GRAMMAR_REGIONS, regions[0]);
}

ESP_TEST_MAIN(T(test_schemas), T(test_regexes), T(test_gbnf), T(test_lark), T(test_regions), T(test_rollback))
