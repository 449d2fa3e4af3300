/* Rules on the frame machine: ambiguity and recursion leave states of a bounded size; places of mistakes. */
#include "grammar/matcher.h"
#include "tests/unit/grammar/rig.h"

struct growth {
    uint32_t threads;           /* of the last configuration */
    uint32_t confs, confs_half; /* made in all, and after half of the text */
};

/* Takes `n` bytes, `piece` over and over. */
static struct growth grow(const struct esp_trie *trie, const char *text, const char *piece, uint32_t n)
{
    struct growth growth = {0};
    struct esp_grammar *grammar = NULL;
    struct esp_matcher *m = NULL;
    struct esp_err err = {0};
    if (rig_compile(trie, ESP_GRAMMAR_GBNF, text, 0, &grammar, &err) != ESP_OK ||
        esp_matcher_create(grammar, &m) != ESP_OK) {
        CHECK(false, "%s: %s", text, err.message);
        esp_grammar_unref(grammar);
        return growth;
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        CHECK(esp_matcher_accept(m, (unsigned char)piece[idx % strlen(piece)]) == ESP_OK, "byte %u of %s", idx, text);
        growth.confs_half = idx == n / 2 ? m->store->n_confs : growth.confs_half;
    }
    growth.confs = m->store->n_confs;
    growth.threads = m->store->confs[m->confs[m->n]].n;
    esp_matcher_destroy(m);
    esp_grammar_unref(grammar);
    return growth;
}

static void test_ambiguity(void)
{
    static const struct {
        const char *text, *piece;
    } cases[] = {
        {"root ::= root \"+\" root | [0-9]", "1+"},
        {"root ::= e\ne ::= e \"+\" e | e \"*\" e | \"-\" e | \"(\" e \")\" | [0-9]+", "1+-2*"},
        {"root ::= add | mul | [0-9]\nadd ::= root \"+\" root\nmul ::= root \"*\" root", "1+2*"},
        {"root ::= root root | \"a\" | \"aa\"", "a"},
        {"root ::= two \"c\"\ntwo ::= [ab] two*", "ab"},
        {"root ::= \"a\" root | \"a\" | \"aa\" root", "a"},
        {"root ::= item (\",\" item)*\nitem ::= list | [0-9]\nlist ::= item \";\" item", "1,2;3;"},
        {"ws ::= (\" \" ws)?\nroot ::= ws (\"x\" ws)*", "x   "},
    };
    struct esp_trie *trie = rig_trie();
    for (size_t idx = 0; idx < sizeof cases / sizeof cases[0]; idx++) {
        struct growth growth = grow(trie, cases[idx].text, cases[idx].piece, 400);
        CHECK(growth.threads <= 16 && growth.confs == growth.confs_half,
              "%s: %u threads, %u configurations, %u at half", cases[idx].text, growth.threads, growth.confs,
              growth.confs_half);
    }
    esp_trie_destroy(trie);
}

/* What needs a stack has one: a frame a level, and no more. Worse ambiguity keeps a thread a place, not one a reading.
 */
static void test_nesting(void)
{
    static const struct {
        const char *text, *piece;
    } cases[] = {
        {"root ::= \"(\" root \")\" | \"x\"", "("},
        {"root ::= root \"]\" | \"[\" root \"]\" | \"[x\"", "["},
        {"root ::= e\ne ::= e \"+\" e | \"(\" e \")\" | [0-9]", "1+("},
        {"root ::= root root | root root root | \"a\"", "a"},
        {"root ::= (([a]*)*)* | (\"a\" | \"aa\" | root)+", "a"},
        {"root ::= \"a\" root \"a\" | \"a\"", "a"},
    };
    struct esp_trie *trie = rig_trie();
    for (size_t idx = 0; idx < sizeof cases / sizeof cases[0]; idx++) {
        struct growth growth = grow(trie, cases[idx].text, cases[idx].piece, 400);
        CHECK(growth.threads <= 4 * 400 && growth.confs < 4 * 400, "%s: %u threads, %u configurations", cases[idx].text,
              growth.threads, growth.confs);
    }
    esp_trie_destroy(trie);
}

static void test_places(void)
{
    static const struct {
        enum esp_grammar_kind kind;
        const char *text;
        esp_status status;
        const char *place;
    } cases[] = {
        {ESP_GRAMMAR_GBNF, "root ::= \"\u00e9\" )", ESP_EINVAL, "line 1, column 14: "},
        {ESP_GRAMMAR_GBNF, "root ::= a\n\na ::= (\"x\"\n", ESP_EINVAL, "line 4, column 1: "},
        {ESP_GRAMMAR_GBNF, "root ::= a\n# c\n  b", ESP_EINVAL, "line 1, column 10: a is not defined"},
        {ESP_GRAMMAR_GBNF, "root ::= \"a\"{1,\n", ESP_EINVAL, "line 2, column 1: "},
        {ESP_GRAMMAR_GBNF, "root ::= [\\d]", ESP_EINVAL, "line 1, column 12: unknown escape"},
        {ESP_GRAMMAR_GBNF, "root ::= \"a\" | root", ESP_OK, ""},
        {ESP_GRAMMAR_GBNF, "root ::= \"a\" root", ESP_EUNSAT, ""},
        {ESP_GRAMMAR_GBNF, "root ::= <[256]>", ESP_EINVAL, "line 1, column 10: "},
        {ESP_GRAMMAR_LARK, "start: a\na: \"x\n", ESP_EINVAL, "line 2, column 6: "},
        {ESP_GRAMMAR_LARK, "start: A\nA: /x(/\n", ESP_EINVAL, "line 2, column 5: "},
        {ESP_GRAMMAR_LARK, "start: A\nA: /x\\1/\n", ESP_EUNSUPPORTED, "line 2, column "},
        {ESP_GRAMMAR_LARK, "start: %json {\"type\":\"strin\"}", ESP_EINVAL, "line 1, column 14: /type: "},
        {ESP_GRAMMAR_LARK, "start: \"a\"\n%override x: \"b\"", ESP_EUNSUPPORTED, "line 2, column 1: "},
    };
    struct esp_trie *trie = rig_trie();
    for (size_t idx = 0; idx < sizeof cases / sizeof cases[0]; idx++) {
        struct esp_err err = {0};
        struct esp_grammar *grammar = NULL;
        esp_status status = rig_compile(trie, cases[idx].kind, cases[idx].text, 0, &grammar, &err);
        CHECK(status == cases[idx].status && strncmp(err.message, cases[idx].place, strlen(cases[idx].place)) == 0,
              "%s: %s, %s", cases[idx].text, esp_status_name(status), err.message);
        esp_grammar_unref(grammar);
    }
    esp_trie_destroy(trie);
}

/* A token taken whole beside the same token by its bytes: both readings are followed. */
static void test_tokens(void)
{
    struct esp_trie *trie = rig_trie();
    struct esp_grammar *grammar = NULL;
    struct esp_matcher *m = NULL;
    uint32_t abc = esp_trie_find(trie, "abc", 3);
    char text[128];
    snprintf(text, sizeof text, "root ::= <[%u]> \"x\" | \"abc\" \"y\" | !<[%u]>{2} \"z\"", abc, abc);
    REQUIRE(rig_compile(trie, ESP_GRAMMAR_GBNF, text, 0, &grammar, NULL) == ESP_OK, "compile");
    REQUIRE(esp_matcher_create(grammar, &m) == ESP_OK, "create");
    CHECK(esp_matcher_accept(m, abc) == ESP_OK, "whole");
    const uint64_t *mask = esp_matcher_mask(m);
    CHECK(esp_mask_has(mask, 'x') && esp_mask_has(mask, 'y') && !esp_mask_has(mask, 'z'), "both readings");
    CHECK(esp_matcher_rollback(m, 1) == ESP_OK && esp_matcher_accept(m, 'a') == ESP_OK, "by bytes");
    mask = esp_matcher_mask(m);
    CHECK(esp_mask_has(mask, 'b') && esp_mask_has(mask, 'q') && !esp_mask_has(mask, abc), "bytes, or any other token");
    CHECK(!esp_mask_has(mask, RIG_END), "no end");
    esp_matcher_destroy(m);
    for (int round = 0; round < 40; round++) {
        rig_walk(grammar, trie, 5, text);
    }
    esp_grammar_unref(grammar);
    esp_trie_destroy(trie);
}

ESP_TEST_MAIN(T(test_ambiguity), T(test_nesting), T(test_places), T(test_tokens))
