/* Regions: what each part allows, control tokens, budgets and free text; every mask on the way equals the oracle's. */
#include "tests/unit/grammar/rig.h"

enum { THINK = 257, CALL, END, TOOL_TEXT, LONGER };
static const char *const longer[] = {
    "<tool", "_call>", "l>{", "hello", " <t", "<", "é", "\xC3", "a<tool_call>{\"a\":", "ool_call>1"};
enum { N_LONGER = sizeof longer / sizeof longer[0], N_TOKENS = LONGER + N_LONGER };

/* Every byte but those in `without`, two control tokens, an end, a user-defined token, some longer ones. */
static struct esp_trie *make_trie(const char *without)
{
    static uint8_t bytes[256];
    struct esp_trie_token tokens[N_TOKENS];
    for (unsigned byte = 0; byte < 257; byte++) {
        bool left_out = byte > 0 && byte < 256 && strchr(without, (int)byte) != NULL;
        bytes[byte & 255] = (uint8_t)byte;
        tokens[byte] = (struct esp_trie_token){&bytes[byte & 255], left_out || byte == 256 ? 0 : 1, ESP_ROLE_TEXT};
    }
    bytes[0] = 0;
    tokens[THINK] = (struct esp_trie_token){"<think>", 7, ESP_ROLE_CONTROL};
    tokens[CALL] = (struct esp_trie_token){"<|call|>", 8, ESP_ROLE_CONTROL};
    tokens[END] = (struct esp_trie_token){"</s>", 4, ESP_ROLE_END};
    tokens[TOOL_TEXT] = (struct esp_trie_token){"<tool_call>", 11, ESP_ROLE_TEXT};
    for (unsigned idx = 0; idx < N_LONGER; idx++) {
        tokens[LONGER + idx] = (struct esp_trie_token){longer[idx], (uint32_t)strlen(longer[idx]), ESP_ROLE_TEXT};
    }
    struct esp_trie *trie = NULL;
    esp_trie_create(tokens, N_TOKENS, &trie, NULL);
    return trie;
}

static struct esp_grammar *compile(const struct esp_trie *trie, const char *text)
{
    struct esp_err err = {0};
    struct esp_grammar *grammar = NULL;
    rig_compile(trie, ESP_GRAMMAR_REGIONS, text, 0, &grammar, &err);
    CHECK(grammar != NULL, "%s: %s at %s", text, err.message, err.place);
    return grammar;
}

/* Takes a text in which {think}, {call}, {tool} and {end} are tokens and all else bytes, or the longest tokens
 * that fit. Every mask must equal the oracle's. */
static bool takes(struct esp_grammar *grammar, const char *text, bool longest)
{
    static const struct {
        const char *name;
        uint32_t token;
    } names[] = {{"{think}", THINK}, {"{call}", CALL}, {"{end}", END}, {"{tool}", TOOL_TEXT}};
    struct esp_matcher *m;
    uint64_t oracle[8];
    bool ok = true;
    if (grammar == NULL || esp_matcher_create(grammar, &m) != ESP_OK) {
        CHECK(false, "no matcher for %s", text);
        return false;
    }
    for (size_t at = 0; ok;) {
        const uint64_t *mask = esp_matcher_mask(m);
        CHECK(mask != NULL && esp_matcher_mask_oracle(m, oracle) == ESP_OK, "mask");
        CHECK(memcmp(mask, oracle, esp_mask_words(N_TOKENS) * 8) == 0, "mask at byte %zu of %s", at, text);
        if (text[at] == '\0') {
            break;
        }
        uint32_t token = (unsigned char)text[at];
        size_t n = 1;
        for (size_t idx = 0; idx < 4; idx++) {
            if (strncmp(text + at, names[idx].name, strlen(names[idx].name)) == 0) {
                token = names[idx].token;
                n = strlen(names[idx].name);
            }
        }
        for (uint32_t idx = 0; idx < N_LONGER && longest; idx++) {
            if (strlen(longer[idx]) > n && strncmp(text + at, longer[idx], strlen(longer[idx])) == 0) {
                token = LONGER + idx;
                n = strlen(longer[idx]);
            }
        }
        ok = esp_mask_has(mask, token);
        CHECK((esp_matcher_accept(m, token) == ESP_OK) == ok, "accept and mask at byte %zu of %s", at, text);
        at += n;
    }
    ok = ok && (esp_matcher_complete(m) || esp_matcher_ended(m));
    esp_matcher_destroy(m);
    return ok;
}

static void test_language(void)
{
    static const struct {
        const char *grammar, *accept[6], *reject[7];
    } cases[] = {
        {"{\"text\":\"ab\"}", {"ab", "ab{end}"}, {"a", "abc", "", "{end}"}},
        {"{\"seq\":[{\"text\":\"a\"},{\"any\":[{\"text\":\"b\"},{\"regex\":\"[0-9]+\"}]}]}",
         {"ab", "a12"},
         {"a", "a1b"}},
        {"{\"repeat\":{\"choice\":[\"x\",\"yy\"]},\"min\":1,\"max\":3}", {"x", "xyy", "yyxx"}, {"", "xxxx", "y"}},
        {"{\"seq\":[{\"token\":\"<think>\"},{\"text\":\"t\"},{\"token\":258}]}",
         {"{think}t{call}"},
         {"<think>t{call}", "{think}t<|call|>", "{call}t{call}", "t{call}", "{think}t"}},
        {"{\"seq\":[{\"token\":\"<tool_call>\"},{\"text\":\"1\"}]}", {"{tool}1", "<tool_call>1"}, {"{tool}", "1"}},
        {"{\"seq\":[{\"text\":\"<tool_call>\"},{\"text\":\"1\"}]}", {"{tool}1", "<tool_call>1"}, {"{think}1"}},
        {"{\"seq\":[{\"schema\":{\"type\":\"integer\",\"minimum\":3,\"maximum\":5}},{\"text\":\";\"},{\"schema\":"
         "\"{\\\"type\\\":\\\"array\\\",\\\"items\\\":{\\\"$ref\\\":\\\"#\\\"}}\"},{\"schema\":{\"const\":true}}]}",
         {"3;[]true", "5;[[],[]]true"},
         {"6;[]true", "3;[1]true", "3;[]", "3;[]false"}},
        {"{\"free\":{\"until\":[\"<tool_call>\"]}}",
         {"", "hello <tool_cal", "é<<tool"},
         {"a<tool_call>", "{tool}", "\xC3", "{call}"}},
        {"{\"seq\":[{\"free\":{\"until\":[\"<tool_call>\",{\"token\":\"<|call|>\"}]}},{\"any\":[{\"seq\":[{\"text\":\"<"
         "tool_call>\"},"
         "{\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},\"additionalProperties\":false}}]"
         "},{\"token\":258}]}]}",
         {"hello<tool_call>{}", "{call}", "<tool{tool}{\"a\":null}", "a<<tool_call>{}", "x{call}"},
         {"<tool_call>{}x", "hello", "{call}{call}", "x{think}", "a<tool_call>"}},
        {"{\"seq\":[{\"free\":{\"until\":[\"aa\"]}},{\"text\":\"aa\"}]}", {"aa", "baa", "aaa"}, {"a", "aaaa", "aab"}},
        {"{\"any\":[{\"free\":{}},{\"token\":\"<think>\"}]}", {"any text", "", "{think}"}, {"{think}a", "a{think}"}},
        {"{\"seq\":[{\"repeat\":{\"seq\":[{\"text\":\"<\"},{\"free\":{\"until\":[\"<\"]}}]}},{\"token\":257}]}",
         {"<a<b{think}", "{think}", "<<<{think}"},
         {"a{think}", "<a"}},
    };
    struct esp_trie *whole = make_trie(""), *lacking = make_trie("_<o");
    for (size_t idx = 0; idx < sizeof cases / sizeof cases[0]; idx++) {
        for (int round = 0; round < 2; round++) {
            struct esp_grammar *grammar = compile(whole, cases[idx].grammar);
            for (const char *const *text = cases[idx].accept; *text != NULL; text++) {
                CHECK(takes(grammar, *text, round == 1), "%s must take %s", cases[idx].grammar, *text);
            }
            for (const char *const *text = cases[idx].reject; *text != NULL; text++) {
                CHECK(!takes(grammar, *text, round == 1), "%s must not take %s", cases[idx].grammar, *text);
            }
            for (int walk = 0; walk < 10; walk++) {
                rig_walk(grammar, whole, 20, cases[idx].grammar);
            }
            esp_grammar_unref(grammar);
        }
        struct esp_grammar *grammar;
        if (rig_compile(lacking, ESP_GRAMMAR_REGIONS, cases[idx].grammar, 0, &grammar, NULL) == ESP_OK) {
            for (int walk = 0; walk < 10; walk++) {
                rig_walk(grammar, lacking, 15, cases[idx].grammar);
            }
            esp_grammar_unref(grammar);
        }
    }
    esp_trie_destroy(lacking);
    esp_trie_destroy(whole);
}

/* A budget counts tokens that end inside; then only what follows may come, and the rest of a character. */
static void test_budget(void)
{
    struct esp_trie *trie = make_trie("");
    struct esp_grammar *g =
        compile(trie, "{\"seq\":[{\"token\":\"<think>\"},{\"free\":{\"until\":[\"</think>\"],\"tokens\":3}},"
                      "{\"text\":\"</think>\"},{\"schema\":{\"type\":\"boolean\"}}]}");
    CHECK(takes(g, "{think}abc</think>true", false), "three tokens");
    CHECK(!takes(g, "{think}abcd</think>true", false), "four tokens");
    CHECK(takes(g, "{think}</think>true", false), "none");
    CHECK(takes(g, "{think}hellohello{tool}</think>false", true), "three long ones");
    CHECK(!takes(g, "{think}hellohellohelloa</think>false", true), "three long ones and a short one");
    CHECK(takes(g, "{think}ab\xC3\xA9</think>true", false), "a character is finished");
    CHECK(!takes(g, "{think}abc\xC3\xA9</think>true", false), "none is begun");
    CHECK(takes(g, "{think}a</</think>true", false), "the beginning of the trigger is text too");
    CHECK(!takes(g, "{think}ab</</think>true", false), "and counts");
    esp_grammar_unref(g);
    g = compile(trie, "{\"seq\":[{\"free\":{\"tokens\":0}},{\"text\":\"x\"}]}");
    CHECK(takes(g, "x", false) && !takes(g, "ax", false), "no token at all");
    esp_grammar_unref(g);
    g = compile(trie, "{\"repeat\":{\"seq\":[{\"text\":\"<\"},{\"free\":{\"until\":[\"<\"],\"tokens\":2}}]}}");
    CHECK(takes(g, "<ab<ab<<ab", false) && !takes(g, "<ab<abc", false), "each repeat has its own budget");
    esp_grammar_unref(g);
    esp_trie_destroy(trie);
}

/* Budgets under rollback and fork; states with some budget left share their masks. */
static void test_states(void)
{
    struct esp_trie *trie = make_trie("");
    struct esp_grammar *g = compile(trie, "{\"seq\":[{\"free\":{\"until\":[\"<\"],\"tokens\":5}},{\"text\":\"<\"}]}");
    struct esp_matcher *m, *fork;
    REQUIRE(esp_matcher_create(g, &m) == ESP_OK, "create");
    const uint64_t *first = esp_matcher_mask(m);
    for (int round = 0; round < 50; round++) {
        uint32_t n = (uint32_t)esp_rng_below(&esp_test_state.rng, 5);
        for (uint32_t idx = 0; idx < n; idx++) {
            CHECK(esp_matcher_accept(m, 'a') == ESP_OK && esp_matcher_mask(m) == first, "one mask while some is left");
        }
        REQUIRE(esp_matcher_fork(m, &fork) == ESP_OK, "fork");
        for (uint32_t idx = n; idx < 5; idx++) {
            CHECK(esp_matcher_accept(fork, 'b') == ESP_OK, "token %u of five", idx);
        }
        CHECK(esp_matcher_accept(fork, 'b') == ESP_EINVAL, "the sixth");
        CHECK(!esp_mask_has(esp_matcher_mask(fork), 'b') && esp_mask_has(esp_matcher_mask(fork), '<'),
              "only what follows");
        CHECK(esp_matcher_rollback(fork, 1) == ESP_OK && esp_matcher_accept(fork, 'c') == ESP_OK, "one token back");
        esp_matcher_destroy(fork);
        CHECK(esp_matcher_rollback(m, n) == ESP_OK && esp_matcher_mask(m) == first, "all back");
    }
    esp_matcher_destroy(m);
    esp_grammar_unref(g);
    esp_trie_destroy(trie);
}

static void test_refusals(void)
{
    static const struct {
        const char *text;
        esp_status status;
        const char *place;
    } cases[] = {
        {"{\"seq\":[]}", ESP_EINVAL, "/seq"},
        {"{\"seq\":[{\"text\":1}]}", ESP_EINVAL, "/seq/0/text"},
        {"{\"text\":\"a\",\"min\":1}", ESP_EINVAL, "/min"},
        {"{\"any\":[{\"token\":\"<none>\"}]}", ESP_EINVAL, "/any/0/token"},
        {"{\"token\":\"</s>\"}", ESP_EINVAL, "/token"},
        {"{\"token\":100000}", ESP_EINVAL, "/token"},
        {"{\"token\":-1}", ESP_EINVAL, "/token"},
        {"{\"any\":[{\"schema\":{\"type\":\"x\"}}]}", ESP_EINVAL, "/any/0/schema/type"},
        {"{\"schema\":true,\"options\":{\"white\":1}}", ESP_EINVAL, "/options/white"},
        {"{\"seq\":[{\"schema\":true},{\"schema\":true,\"options\":{\"escapes\":\"any\"}}]}", ESP_EUNSUPPORTED,
         "/seq/1"},
        {"{\"regex\":\"(\"}", ESP_EINVAL, "/regex"},
        {"{\"choice\":[1]}", ESP_EINVAL, "/choice/0"},
        {"{\"free\":{\"until\":[\"\"]}}", ESP_EINVAL, "/free/until/0"},
        {"{\"free\":{\"tokens\":-1}}", ESP_EINVAL, "/free/tokens"},
        {"{\"free\":{\"token\":1}}", ESP_EINVAL, "/free/token"},
        {"{\"repeat\":{\"text\":\"a\"},\"min\":2,\"max\":1}", ESP_EINVAL, "/max"},
        {"[]", ESP_EINVAL, ""},
    };
    struct esp_trie *trie = make_trie("");
    for (size_t idx = 0; idx < sizeof cases / sizeof cases[0]; idx++) {
        struct esp_err err = {0};
        struct esp_grammar *grammar = NULL;
        esp_status status = rig_compile(trie, ESP_GRAMMAR_REGIONS, cases[idx].text, 0, &grammar, &err);
        CHECK(status == cases[idx].status && strcmp(err.place, cases[idx].place) == 0, "%s: %s at %s, %s",
              cases[idx].text, esp_status_name(status), err.place, err.message);
        esp_grammar_unref(grammar);
    }
    esp_trie_destroy(trie);
}

ESP_TEST_MAIN(T(test_language), T(test_budget), T(test_states), T(test_refusals))
