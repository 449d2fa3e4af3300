/* Tokenizers on small vocabularies made for each question: which merge comes first, what special tokens win,
 * what never becomes a control token, what turns back into which bytes.
 */
#include "tests/unit/runtime/vocabkit.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static const char *const merges[] = {"a a", "a b", "ab c", "x y", "xy z", "S T", "ST O", "STO P"};
static const struct kit_token bpe_extra[] = {
    {"aa", 1, 0},        {"ab", 1, 0},     {"abc", 1, 0},     {"xyz", 1, 0},          {"STO", 1, 0}, {"<s>", 3, 0},
    {"<s><user>", 3, 0}, {"<user>", 4, 0}, {"<user><", 4, 0}, {"\xE2\x82\xAC", 4, 0}, {"", 1, 0},
    {"hidden", 5, 0},    {"STOP", 3, 0},
};
enum { AA = 256, AB, ABC, XYZ, STO, BOS, BOS_USER, USER, USER_LT, EURO };

static struct esp_tokenizer *small_bpe(const char *pre)
{
    struct kit kit;
    kit_init(&kit);
    kit_bpe(&kit, pre, bpe_extra, N(bpe_extra), merges, N(merges));
    kit_u32(&kit, KIT_KEY("bos_token_id"), BOS);
    return kit_make(&kit);
}

static void check_ids(const struct esp_tokenizer *tok, const char *text, bool control, const char *want)
{
    const char *got = kit_ids(tok, text, control);
    CHECK(strcmp(got, want) == 0, "%s: %s, not %s", text, got, want);
}

static void test_bpe_merges(void)
{
    struct esp_tokenizer *tok = small_bpe("gpt-2");
    REQUIRE(tok != NULL, "open");
    check_ids(tok, "", false, "");
    check_ids(tok, "a", false, "97");
    check_ids(tok, "aaa", false, "256 97");       /* leftmost of equals */
    check_ids(tok, "aaab", false, "256 257");     /* a a again, then a b: the first rank is used up */
    check_ids(tok, "aab", false, "256 98");       /* a a comes before a b */
    check_ids(tok, "abc", false, "258");
    check_ids(tok, "xyz", false, "259");          /* through xy, which is no token */
    check_ids(tok, "xy", false, "120 121");       /* xy falls apart again */
    check_ids(tok, "xyab", false, "120 121 257");
    check_ids(tok, "STOP", false, "83 84 79 80"); /* merging never makes the control token */
    check_ids(tok, "STO", false, "260");
    check_ids(tok, "\xE2\x82\xAC", false, "265"); /* user-defined: literal */
    check_ids(tok, "hidden", true, "104 105 100 100 101 110");
    check_ids(tok, "\xFF", false, "INVALID");
    esp_tokenizer_destroy(tok);
}

static void test_ignore_merges(void)
{
    struct esp_tokenizer *tok = small_bpe("llama-bpe");
    REQUIRE(tok != NULL, "open");
    CHECK(esp_tokenizer_adds_bos(tok), "llama-bpe adds BOS when the file does not say");
    check_ids(tok, "aab", false, "256 98");
    check_ids(tok, "xyz", false, "259");
    check_ids(tok, "hidden", false, "104 105 100 100 101 110"); /* an unused token is not taken whole */
    check_ids(tok, "STOP", false, "83 84 79 80"); /* nor a control token */
    esp_tokenizer_destroy(tok);
}

static void test_special_longest(void)
{
    struct esp_tokenizer *tok = small_bpe("gpt-2");
    REQUIRE(tok != NULL, "open");
    check_ids(tok, "<s>", true, "261");
    check_ids(tok, "<s><s>", true, "261 261");
    check_ids(tok, "<s><user>", true, "262");
    check_ids(tok, "<s><user>", false, "60 115 62 263"); /* the longest one allowed, not the longest one */
    check_ids(tok, "<s><user", true, "261 60 117 115 101 114");
    check_ids(tok, "<user><s>", true, "264 115 62");  /* leftmost wins over what it destroys */
    check_ids(tok, "<user>", false, "263");
    check_ids(tok, "<<user>", false, "60 263");
    esp_tokenizer_destroy(tok);
}

static void test_spans(void)
{
    static const struct {
        struct esp_span spans[4];
        size_t n;
        const char *want;
    } cases[] = {
        {{{"<s>", 3, true}, {"<s>", 3, false}}, 2, "261 60 115 62"},
        {{{"<s", 2, true}, {">", 1, false}}, 2, "60 115 62"},
        {{{"<s", 2, false}, {">", 1, true}}, 2, "60 115 62"},
        {{{"<s", 2, true}, {">", 1, true}}, 2, "261"},
        {{{"<s", 2, true}, {"", 0, false}, {">", 1, true}}, 3, "261"},
        {{{"<us", 3, false}, {"er>", 3, true}}, 2, "263"}, /* user-defined: anywhere */
        {{{"<s><us", 6, true}, {"er>", 3, false}}, 2, "261 263"},
        {{{"a", 1, false}, {"b", 1, true}, {"c", 1, false}}, 3, "258"}, /* one text */
        {{{"\xE2", 1, false}, {"\x82\xAC", 2, true}}, 2, "265"},
        {{{"<s>", 3, false}, {"<s>", 3, true}, {"<s>", 3, false}, {"<s>", 3, true}}, 4, "60 115 62 261 60 115 62 261"},
        {{{NULL, 0, true}}, 1, ""},
        {{{NULL, 0, true}}, 0, ""},
    };
    struct esp_tokenizer *tok = small_bpe("gpt-2");
    REQUIRE(tok != NULL, "open");
    for (size_t idx = 0; idx < N(cases); idx++) {
        const char *got = kit_ids_of_spans(tok, cases[idx].spans, cases[idx].n);
        CHECK(strcmp(got, cases[idx].want) == 0, "case %zu: %s, not %s", idx, got, cases[idx].want);
    }
    esp_tokenizer_destroy(tok);
}

static void test_invalid_utf8(void)
{
    struct esp_tokenizer *tok = small_bpe("gpt-2");
    REQUIRE(tok != NULL, "open");
    struct esp_span spans[] = {{"abc", 3, false}, {"d\xC3(", 3, false}};
    struct esp_buf ids;
    struct esp_err err = {0};
    uint32_t before = 7;
    esp_buf_init(&ids, ESP_TAG_MISC, 1 << 20);
    esp_buf_add(&ids, &before, 4);
    CHECK(esp_tokenizer_encode(tok, spans, 2, &ids, &err) == ESP_EINVAL, "status");
    CHECK(err.offset == 4 && ids.n == 4, "offset %llu, ids %zu", (unsigned long long)err.offset, ids.n);
    esp_buf_finish(&ids);
    esp_tokenizer_destroy(tok);
}

#define LL "\xE2\x96\x81"
static const struct kit_token spm_extra[] = {
    {LL, 1, -10},    {"a", 1, -20},      {"b", 1, -21}, {"ab", 1, -3},     {"ba", 1, -3}, {LL "a", 1, -5},
    {"aba", 1, -30}, {"<user>", 4, -50}, {"<", 1, -1},  {"s", 1, -1},      {">", 1, -1},  {"<s", 1, -1},
    {"0", 1, -2},    {"\xC3\xA9", 1, -2},
};
enum { S_LL = 259, S_A, S_B, S_AB, S_BA, S_LLA, S_ABA, S_USER, S_LT, S_S, S_GT, S_LTS, S_0, S_EE };

static void test_spm(void)
{
    struct kit kit;
    kit_init(&kit);
    kit_spm(&kit, spm_extra, N(spm_extra));
    struct esp_tokenizer *tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    CHECK(esp_tokenizer_bos(tok) == 1 && esp_tokenizer_eos(tok) == 2 && esp_tokenizer_adds_bos(tok), "defaults");
    CHECK(esp_tokenizer_is_end(tok, 2) && !esp_tokenizer_is_end(tok, 1), "end set");
    check_ids(tok, "", false, "");
    check_ids(tok, "b", false, "259 261");
    check_ids(tok, "a", false, "264");
    check_ids(tok, "aba", false, "259 265");        /* ab before ▁a; equal scores leftmost; then ab a */
    check_ids(tok, "bab", false, "259 263 261");
    check_ids(tok, " b", false, "259 259 261");
    check_ids(tok, "c", false, "259 102");          /* <0x63> */
    check_ids(tok, "\xE4\xBD\xA0", false, "259 231 192 163");
    check_ids(tok, "<s>", false, "259 270 269");    /* pieces only: <s> is control */
    check_ids(tok, "<s>", true, "1");
    check_ids(tok, "a<user>a", false, "264 266 264"); /* the prefix comes back after a special token */
    check_ids(tok, "<0x61>", false, "259 267 271 123 57 52 269"); /* byte names are no text */
    esp_tokenizer_destroy(tok);
    kit_init(&kit);
    kit_spm(&kit, spm_extra, N(spm_extra));
    kit_bool(&kit, KIT_KEY("add_space_prefix"), false);
    kit_bool(&kit, KIT_KEY("add_bos_token"), false);
    tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    check_ids(tok, "aba b", false, "265 259 261");
    CHECK(!esp_tokenizer_adds_bos(tok), "the file says");
    esp_tokenizer_destroy(tok);
}

static const struct kit_token wpm_extra[] = {
    {LL "un", 1, 0}, {"aff", 1, 0},    {"able", 1, 0}, {LL "a", 1, 0}, {"a", 1, 0}, {LL ",", 1, 0},
    {LL "\xE4\xBD\xA0", 1, 0}, {LL "strasse", 1, 0}, {LL "aa", 1, 0},
};
enum { W_UN = 4, W_AFF, W_ABLE, W_A, W_SUB_A, W_COMMA, W_YOU, W_STREET, W_AA };

static void test_wordpiece(void)
{
    struct kit kit;
    kit_init(&kit);
    kit_wpm(&kit, wpm_extra, N(wpm_extra));
    struct esp_tokenizer *tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    CHECK(esp_tokenizer_bos(tok) == 2, "CLS");
    check_ids(tok, "unaffable", false, "4 5 6");
    check_ids(tok, "UNAFF\xC3\x81" "BLE", false, "4 5 6");  /* Á: lower case, accent stripped */
    check_ids(tok, "un affable", false, "4 1");           /* affable does not begin a word */
    check_ids(tok, "unaffx a", false, "1 7");             /* one part missing: the whole word */
    check_ids(tok, "a,a", false, "7 9 7");
    check_ids(tok, "a\xE4\xBD\xA0" "a", false, "7 10 7");
    check_ids(tok, "a\x01" "a\xE2\x80\x8B \xEF\xBF\xBD", false, "12"); /* control and format characters vanish */
    check_ids(tok, "[CLS]", false, "1 1 1");              /* cut at punctuation, never the control token */
    check_ids(tok, "[CLS]a", true, "2 7");
    char word[256] = "";
    memset(word, 'a', 100);
    CHECK(strncmp(kit_ids(tok, word, false), "12 8 8", 6) == 0, "100 characters: %s", kit_ids(tok, word, false));
    memset(word, 'a', 101);
    check_ids(tok, word, false, "1");
    esp_tokenizer_destroy(tok);
}

static void check_text(const struct esp_tokenizer *tok, const uint32_t *ids, size_t n, bool control, const char *want)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, 1 << 20);
    CHECK(esp_tokenizer_decode(tok, ids, n, control, &text) == ESP_OK, "decode");
    CHECK(text.n == strlen(want) && (text.n == 0 || memcmp(text.data, want, text.n) == 0), "%.*s, not %s", (int)text.n,
          text.data, want);
    esp_buf_finish(&text);
}
#define CHECK_TEXT(tok, control, want, ...)                                                                  \
    do {                                                                                                     \
        static const uint32_t ids_[] = {__VA_ARGS__};                                                        \
        check_text(tok, ids_, N(ids_), control, want);                                                       \
    } while (0)

static void test_decode(void)
{
    struct esp_tokenizer *tok = small_bpe("gpt-2");
    REQUIRE(tok != NULL, "open");
    CHECK_TEXT(tok, false, "abcxyz", ABC, XYZ);
    CHECK_TEXT(tok, false, "\xC3\xBC", 0xC3, 0xBC);
    CHECK_TEXT(tok, false, "\xE2\x82\xAC <user>", EURO, 32, USER);
    CHECK_TEXT(tok, false, "a", BOS, 97);
    CHECK_TEXT(tok, true, "<s>a", BOS, 97);
    size_t n = 9;
    CHECK(esp_tokenizer_bytes(tok, 9999, true, &n) == NULL && n == 0, "unknown id");
    CHECK(esp_tokenizer_bytes(tok, BOS, false, &n) != NULL && n == 0, "control tokens are hidden");
    CHECK(esp_tokenizer_bytes(tok, 0xFF, false, &n)[0] == '\xFF' && n == 1, "a byte");
    uint32_t bad = 9999;
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, 100);
    CHECK(esp_tokenizer_decode(tok, &bad, 1, true, &text) == ESP_EINVAL, "unknown id");
    esp_buf_finish(&text);
    esp_tokenizer_destroy(tok);

    struct kit kit;
    kit_init(&kit);
    kit_spm(&kit, spm_extra, N(spm_extra));
    tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    CHECK_TEXT(tok, false, "a a", S_LLA, S_LLA);
    CHECK_TEXT(tok, false, " a", S_LL, S_LLA);
    CHECK_TEXT(tok, false, "a<user>a", S_LLA, S_USER, S_LLA);
    CHECK_TEXT(tok, true, "<s>a b", 1, S_LLA, S_LL, S_B);
    CHECK_TEXT(tok, false, "\xC3\xA9\n", 3 + 0xC3, 3 + 0xA9, 3 + 10);
    esp_tokenizer_destroy(tok);

    kit_init(&kit);
    kit_wpm(&kit, wpm_extra, N(wpm_extra));
    tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    CHECK_TEXT(tok, false, "unaffable, a", W_UN, W_AFF, W_ABLE, W_COMMA, W_A);
    CHECK_TEXT(tok, true, "[CLS] a", 2, W_A);
    esp_tokenizer_destroy(tok);
}

/* B191: what ends an answer: the file's eos and eot, and the tokens that are known to. */
static void test_end_tokens(void)
{
    static const struct kit_token extra[] = {{"<|im_end|>", 3, 0}, {"<|end|>", 3, 0},  {"<|return|>", 3, 0},
                                             {"<|call|>", 3, 0},   {"</s>", 4, 0},     {"<|eot_id|>", 1, 0},
                                             {"<|eom_id|>", 4, 0}, {"[special]", 3, 0}};
    static const bool want[] = {true, false, true, true, false, false, true, true};
    struct kit kit;
    kit_init(&kit);
    kit_bpe(&kit, "gpt-2", extra, N(extra), NULL, 0);
    kit_u32(&kit, KIT_KEY("eot_token_id"), 256 + 7);
    kit_u32(&kit, KIT_KEY("eos_token_id"), 97);
    struct esp_tokenizer *tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    for (uint32_t idx = 0; idx < N(want); idx++) {
        CHECK(esp_tokenizer_is_end(tok, 256 + idx) == want[idx], "%s", extra[idx].text);
    }
    CHECK(esp_tokenizer_is_end(tok, 97) && esp_tokenizer_eos(tok) == 97, "the file's own");
    CHECK(esp_tokenizer_bos(tok) == ESP_TOKEN_NONE, "no BOS is named");
    CHECK(!esp_tokenizer_is_end(tok, UINT32_MAX), "no token");
    esp_tokenizer_destroy(tok);
    kit_init(&kit); /* without its two companions <|end|> does end an answer */
    kit_bpe(&kit, "gpt-2", extra, 2, NULL, 0);
    tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    CHECK(esp_tokenizer_is_end(tok, 257), "<|end|>");
    esp_tokenizer_destroy(tok);
}

static void test_phi3_strips(void)
{
    static const struct kit_token extra[] = {{LL, 1, -1}, {"a", 1, -2}, {"<|user|>", 3, 0}, {"<|endoftext|>", 3, 0}};
    for (int phi = 0; phi < 2; phi++) {
        struct kit kit;
        kit_init(&kit);
        kit_str(&kit, "general.name", phi ? "Phi-3 mini" : "other");
        kit_spm(&kit, extra, N(extra));
        struct esp_tokenizer *tok = kit_make(&kit);
        REQUIRE(tok != NULL, "open");
        check_ids(tok, "<|user|> \n a", true, phi ? "261 259 260" : "261 259 259 13 259 260");
        check_ids(tok, "<|endoftext|> a", true, "262 259 259 260");
        check_ids(tok, "<|user|> ", true, phi ? "261" : "261 259 259");
        esp_tokenizer_destroy(tok);
    }
}

static void test_missing_bytes(void)
{
    static const char *const tokens[] = {"a", "b", "ab"}, *const ab[] = {"a b"};
    struct kit kit;
    kit_init(&kit);
    kit_str(&kit, KIT_KEY("model"), "gpt2");
    kit_strings(&kit, KIT_KEY("tokens"), tokens, 3);
    kit_strings(&kit, KIT_KEY("merges"), ab, 1);
    struct esp_tokenizer *tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    check_ids(tok, "abxa", false, "2 0"); /* x has no token and is dropped */
    static const char warning[] = "241 bytes have no token and are lost from text: 00-60 63-BF C2-F4\n";
    CHECK(strstr(esp_tokenizer_warnings(tok), warning) != NULL, "%s", esp_tokenizer_warnings(tok));
    CHECK(strstr(esp_tokenizer_warnings(tok), "pre-tokenizer") != NULL, "%s", esp_tokenizer_warnings(tok));
    esp_tokenizer_destroy(tok);
}

ESP_TEST_MAIN(T(test_bpe_merges), T(test_ignore_merges), T(test_special_longest), T(test_spans), T(test_invalid_utf8),
              T(test_spm), T(test_wordpiece), T(test_decode), T(test_end_tokens), T(test_phi3_strips),
              T(test_missing_bytes))
