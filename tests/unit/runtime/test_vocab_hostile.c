/* Vocabularies that lie: each is refused with the key that is wrong, or taken with a warning, and never crashes.
 * Also: what happens when the Nth allocation fails.
 */
#include "tests/unit/runtime/vocabkit.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))
#define TOKENS KIT_KEY("tokens")
#define TYPES KIT_KEY("token_type")
#define SCORES KIT_KEY("scores")
#define MERGES KIT_KEY("merges")

static const char *const three[] = {"a", "b", "ab"};
static const char *const good_merge[] = {"a b"};

enum flaw {
    NO_MODEL, MODEL_T5, MODEL_NUMBER, NO_TOKENS, TOKENS_NUMBER, TOKENS_INTS, TOKENS_EMPTY, TOKENS_TWICE,
    TYPES_SHORT, TYPES_LONG, TYPES_BYTES, TYPES_STRINGS, TYPES_RANGE, TYPES_NEGATIVE, TYPES_TEXT,
    NO_SCORES, SCORES_SHORT, SCORES_INTS, SCORES_NAN,
    NO_MERGES, MERGES_INTS, MERGE_NO_SPACE, MERGE_NO_RIGHT, MERGE_NO_LEFT, MERGE_EMPTY,
    BOS_RANGE, EOS_RANGE, EOS_HUGE, EOT_RANGE, UNK_TEXT, PRE_UNKNOWN, PRE_EMPTY, PRE_NUMBER, ADD_BOS_NUMBER,
    FLAWS
};

static void put_ints(struct kit *kit, const char *key, uint32_t type, size_t n, int64_t value, size_t n_bytes)
{
    kit_array(kit, key, type, n);
    for (size_t idx = 0; idx < n; idx++) {
        kit_u64(kit, (uint64_t)value, n_bytes);
    }
}

static void put_model(struct kit *kit, enum flaw flaw)
{
    bool spm = flaw >= NO_SCORES && flaw <= SCORES_NAN;
    if (flaw == MODEL_NUMBER) {
        kit_u32(kit, KIT_KEY("model"), 5);
    } else if (flaw != NO_MODEL) {
        kit_str(kit, KIT_KEY("model"), flaw == MODEL_T5 ? "t5" : spm ? "llama" : "gpt2");
    }
    if (flaw == PRE_NUMBER) {
        kit_u32(kit, KIT_KEY("pre"), 5);
    } else {
        kit_str(kit, KIT_KEY("pre"), flaw == PRE_UNKNOWN ? "gpt-2x" : flaw == PRE_EMPTY ? "" : "gpt-2");
    }
}

static void put_tokens(struct kit *kit, enum flaw flaw)
{
    static const char *const twice[] = {"a", "b", "a"};
    switch (flaw) {
    case NO_TOKENS: break;
    case TOKENS_NUMBER: kit_u32(kit, TOKENS, 5); break;
    case TOKENS_INTS: put_ints(kit, TOKENS, ESP_GGUF_I32, 3, 1, 4); break;
    case TOKENS_EMPTY: kit_strings(kit, TOKENS, three, 0); break;
    case TOKENS_TWICE: kit_strings(kit, TOKENS, twice, 3); break;
    default: kit_strings(kit, TOKENS, three, 3); break;
    }
}

static void put_types(struct kit *kit, enum flaw flaw)
{
    switch (flaw) {
    case TYPES_SHORT: put_ints(kit, TYPES, ESP_GGUF_I32, 2, 1, 4); break;
    case TYPES_LONG: put_ints(kit, TYPES, ESP_GGUF_I32, 4, 1, 4); break;
    case TYPES_BYTES: put_ints(kit, TYPES, ESP_GGUF_U8, 3, 7, 1); break;
    case TYPES_STRINGS: kit_strings(kit, TYPES, three, 3); break;
    case TYPES_RANGE: put_ints(kit, TYPES, ESP_GGUF_U64, 3, INT64_MAX, 8); break;
    case TYPES_NEGATIVE: put_ints(kit, TYPES, ESP_GGUF_I32, 3, -1, 4); break;
    case TYPES_TEXT: kit_str(kit, TYPES, "x"); break;
    default: put_ints(kit, TYPES, ESP_GGUF_I32, 3, 1, 4); break;
    }
}

static void put_scores(struct kit *kit, enum flaw flaw)
{
    uint32_t nan_bits = 0x7FC00000u;
    switch (flaw) {
    case NO_SCORES: break;
    case SCORES_SHORT: put_ints(kit, SCORES, ESP_GGUF_F32, 2, 0, 4); break;
    case SCORES_INTS: put_ints(kit, SCORES, ESP_GGUF_I32, 3, 0, 4); break;
    case SCORES_NAN: put_ints(kit, SCORES, ESP_GGUF_F32, 3, nan_bits, 4); break;
    default: put_ints(kit, SCORES, ESP_GGUF_F32, 3, 0, 4); break;
    }
}

static void put_merges(struct kit *kit, enum flaw flaw)
{
    static const char *const bad[] = {"ab", "ab ", " b", ""};
    switch (flaw) {
    case NO_MERGES: break;
    case MERGES_INTS: put_ints(kit, MERGES, ESP_GGUF_I32, 3, 1, 4); break;
    case MERGE_NO_SPACE:
    case MERGE_NO_RIGHT:
    case MERGE_NO_LEFT:
    case MERGE_EMPTY: kit_strings(kit, MERGES, &bad[flaw - MERGE_NO_SPACE], 1); break;
    default: kit_strings(kit, MERGES, good_merge, 1); break;
    }
}

static void put_ids(struct kit *kit, enum flaw flaw)
{
    kit_u32(kit, KIT_KEY("bos_token_id"), flaw == BOS_RANGE ? 3 : 0);
    kit_u32(kit, KIT_KEY("eos_token_id"), flaw == EOS_RANGE ? 99 : flaw == EOS_HUGE ? UINT32_MAX : 1);
    kit_u32(kit, KIT_KEY("eot_token_id"), flaw == EOT_RANGE ? 3 : 2);
    if (flaw == UNK_TEXT) {
        kit_str(kit, KIT_KEY("unknown_token_id"), "x");
    }
    if (flaw == ADD_BOS_NUMBER) {
        kit_u32(kit, KIT_KEY("add_bos_token"), 1);
    }
}

static esp_status open_flawed(enum flaw flaw, struct esp_tokenizer **ret_tok, struct esp_err *err)
{
    struct kit kit;
    kit_init(&kit);
    put_model(&kit, flaw);
    put_tokens(&kit, flaw);
    put_types(&kit, flaw);
    put_scores(&kit, flaw);
    put_merges(&kit, flaw);
    put_ids(&kit, flaw);
    esp_status status = kit_open(&kit, ret_tok, err);
    esp_buf_finish(&kit.kvs);
    return status;
}

/* B200: types that are not what they say; B206: ids outside; B208: a t5 vocabulary, whose table is never read;
 * B190: a pre-tokenizer that is not known. */
static void test_flaws(void)
{
    static const char *const places[FLAWS] = {
        [NO_MODEL] = "model", [MODEL_T5] = "model", [MODEL_NUMBER] = "model", [NO_TOKENS] = "tokens",
        [TOKENS_NUMBER] = "tokens", [TOKENS_INTS] = "tokens", [TOKENS_EMPTY] = "tokens", [TOKENS_TWICE] = "tokens",
        [TYPES_SHORT] = "token_type", [TYPES_LONG] = "token_type", [TYPES_BYTES] = "token_type",
        [TYPES_STRINGS] = "token_type", [TYPES_RANGE] = "token_type", [TYPES_NEGATIVE] = "token_type",
        [TYPES_TEXT] = "token_type", [NO_SCORES] = "scores", [SCORES_SHORT] = "scores", [SCORES_INTS] = "scores",
        [SCORES_NAN] = "scores", [NO_MERGES] = "merges", [MERGES_INTS] = "merges", [MERGE_NO_SPACE] = "merges",
        [MERGE_NO_RIGHT] = "merges", [MERGE_NO_LEFT] = "merges", [MERGE_EMPTY] = "merges",
        [BOS_RANGE] = "bos_token_id", [EOS_RANGE] = "eos_token_id", [EOS_HUGE] = "eos_token_id",
        [EOT_RANGE] = "eot_token_id", [UNK_TEXT] = "unknown_token_id", [PRE_UNKNOWN] = "pre", [PRE_EMPTY] = "pre",
        [PRE_NUMBER] = "pre", [ADD_BOS_NUMBER] = "add_bos_token",
    };
    for (int flaw = 0; flaw < FLAWS; flaw++) {
        struct esp_err err = {0};
        struct esp_tokenizer *tok = NULL;
        char place[64];
        snprintf(place, sizeof place, KIT_KEY("%s"), places[flaw]);
        esp_status want = flaw == MODEL_T5 || flaw == PRE_UNKNOWN || flaw == PRE_EMPTY ? ESP_EUNSUPPORTED : ESP_EINVAL;
        esp_status status = open_flawed((enum flaw)flaw, &tok, &err);
        CHECK(status == want && tok == NULL, "flaw %d: %s %s", flaw, esp_status_name(status), err.message);
        CHECK(strcmp(err.place, place) == 0 && strstr(err.message, places[flaw]) != NULL, "flaw %d: %s at %s", flaw,
              err.message, err.place);
    }
    struct esp_err err = {0};
    struct esp_tokenizer *tok = NULL;
    CHECK(open_flawed(FLAWS, &tok, &err) == ESP_OK, "without a flaw it opens: %s", err.message);
    esp_tokenizer_destroy(tok);
}

static void test_lenient_ids(void)
{
    struct kit kit;
    kit_init(&kit);
    kit_bpe(&kit, "gpt-2", NULL, 0, NULL, 0);
    kit_u32(&kit, KIT_KEY("padding_token_id"), 256);
    kit_u32(&kit, KIT_KEY("mask_token_id"), UINT32_MAX);
    struct esp_tokenizer *tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    const char *warnings = esp_tokenizer_warnings(tok);
    CHECK(strstr(warnings, "padding_token_id: no such token: 256") != NULL, "%s", warnings);
    CHECK(strstr(warnings, "mask_token_id") != NULL, "%s", warnings);
    esp_tokenizer_destroy(tok);
}

/* Tokens that are not UTF-8, hold a NUL, are one byte of a character or very long. */
static void test_odd_tokens(void)
{
    static char long_text[70001];
    memset(long_text, 'q', 70000);
    const struct kit_token extra[] = {{"\xFF\xFE", 1, 0}, {"\xC4", 4, 0}, {long_text, 1, 0}, {"\xF0\x9F", 3, 0}};
    struct kit kit;
    kit_init(&kit);
    kit_spm(&kit, extra, N(extra));
    struct esp_tokenizer *tok = kit_make(&kit);
    REQUIRE(tok != NULL, "open");
    size_t n;
    CHECK(memcmp(esp_tokenizer_bytes(tok, 259, true, &n), "\xFF\xFE", 2) == 0 && n == 2, "raw bytes");
    CHECK(strncmp(kit_ids(tok, long_text, false), "229 153", 7) == 0, "long: %s", kit_ids(tok, long_text, false));
    esp_tokenizer_destroy(tok);
}

/* A special token that ends inside a character must not cut it in two: patterns run on whole UTF-8 only. */
static void test_split_character(void)
{
    static const struct kit_token extra[] = {{"\xC4", 4, 0}};
    for (int kind = 0; kind < 3; kind++) {
        struct kit kit;
        kit_init(&kit);
        if (kind == 0) {
            kit_bpe(&kit, "qwen2", extra, 1, NULL, 0);
        } else if (kind == 1) {
            kit_spm(&kit, extra, 1);
        } else {
            kit_wpm(&kit, extra, 1);
        }
        struct esp_tokenizer *tok = kit_make(&kit);
        REQUIRE(tok != NULL, "open");
        static const char *const want[] = {"97 196 128 32 98 196 128",
                                           "229 153 132 100 199 131 229 153 132 101 199 131", "1 1"};
        const char *got = kit_ids(tok, "a\xC4\x80 b\xC4\x80", false);
        CHECK(strcmp(got, want[kind]) == 0, "%s, not %s", got, want[kind]);
        esp_tokenizer_destroy(tok);
    }
}

static void test_failing_allocations(void)
{
    static const struct kit_token extra[] = {{"ab", 1, 0}, {"<u>", 4, 0}};
    uint64_t n_failed = 0;
    for (int kind = 0; kind < 3; kind++) {
        for (uint64_t n = 1; n < 2000; n++) {
            uint64_t live = esp_alloc_live();
            struct kit kit;
            kit_init(&kit);
            if (kind == 0) {
                kit_bpe(&kit, "qwen2", extra, 2, good_merge, 1);
            } else if (kind == 1) {
                kit_spm(&kit, extra, 2);
            } else {
                kit_wpm(&kit, extra, 2);
            }
            struct esp_gguf *gguf = NULL;
            CHECK(kit_open_gguf(&kit, &gguf, NULL) == ESP_OK, "open");
            esp_buf_finish(&kit.kvs);
            struct esp_tokenizer *tok = NULL;
            struct esp_buf ids;
            struct esp_span spans[] = {{"ab e\xCC\x81", 6, false}, {"<u> 12", 6, true}};
            esp_buf_init(&ids, ESP_TAG_MISC, 1 << 20);
            esp_alloc_fail_at(n);
            esp_status status = esp_tokenizer_create(gguf, &tok, NULL);
            if (status == ESP_OK) {
                status = esp_tokenizer_encode(tok, spans, 2, &ids, NULL);
            }
            bool fired = esp_alloc_fail_at(0);
            CHECK(status == ESP_OK || status == ESP_ENOMEM, "allocation %d: %s", (int)n, esp_status_name(status));
            n_failed += status == ESP_ENOMEM;
            esp_tokenizer_destroy(tok);
            esp_buf_finish(&ids);
            esp_gguf_close(gguf);
            CHECK(esp_alloc_live() == live, "allocation %d leaks %d blocks", (int)n, (int)(esp_alloc_live() - live));
            if (!fired) {
                break;
            }
        }
    }
    CHECK(n_failed > 30, "only %d failures were seen", (int)n_failed);
}

ESP_TEST_MAIN(T(test_flaws), T(test_lenient_ids), T(test_odd_tokens), T(test_split_character),
              T(test_failing_allocations))
