/* Random texts in random spans through tokenizers of all kinds, and vocabularies with random bytes changed.
 *
 * Texts: ids stay below the count, no control token comes out of spans that forbid them, bytes that are not UTF-8
 * are refused, and where every byte has a token the ids turn back into the text. Vocabularies: whatever the
 * file says, it is refused or it works. ESPALIER_FUZZ_RUNS=N changes the number of runs.
 */
#include "tests/unit/runtime/vocabkit.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

static const char *const merges[] = {"a b", "ab c", "a a", "aa aa", "\xC4\xA0 a", "x y", "< s"};
static const struct kit_token bpe_extra[] = {{"ab", 1, 0},     {"abc", 1, 0},    {"aa", 1, 0},  {"aaaa", 1, 0},
                                             {"<s>", 3, 0},    {"<|im_end|>", 3, 0}, {"<user>", 4, 0}, {"  ", 4, 0},
                                             {"\xC4\xA0" "a", 1, 0}};
#define LL "\xE2\x96\x81"
static const struct kit_token spm_extra[] = {{LL, 1, -1},    {"a", 1, -2},  {"ab", 1, -3},     {LL "a", 1, -3},
                                             {LL LL, 1, -3}, {"aa", 1, -3}, {"<user>", 4, 0}, {"\xC3\xA9", 1, -9}};
static const struct kit_token wpm_extra[] = {{LL "a", 1, 0}, {"a", 1, 0}, {LL "ab", 1, 0}, {"b", 1, 0}, {LL ".", 1, 0}};
static const char *const pres[] = {"gpt-2", "llama-bpe", "qwen2", "gpt-4o", "deepseek-llm", "falcon", "kimi-k2",
                                   "tiny_aya", "smollm", "default"};

static int n_runs(int fallback)
{
    const char *text = getenv("ESPALIER_FUZZ_RUNS");
    return text == NULL ? fallback : atoi(text);
}

static void make_kit(struct kit *kit, int kind)
{
    kit_init(kit);
    if (kind < (int)N(pres)) {
        kit_bpe(kit, pres[kind], bpe_extra, N(bpe_extra), merges, N(merges));
    } else if (kind == (int)N(pres)) {
        kit_spm(kit, spm_extra, N(spm_extra));
    } else {
        kit_wpm(kit, wpm_extra, N(wpm_extra));
    }
}
enum { N_KINDS = 12 };

/* Bytes that mean something here are frequent; some texts are raw bytes. */
static size_t random_text(struct esp_rng *rng, char *text, size_t cap)
{
    static const char *const parts[] = {"a",  "b",      "c",         " ",      "  ",       "\n",           "1",
                                        "<s>", "<|im_end|>", "<user>", "<", "\xC3\xA9", "e\xCC\x81", "\xE4\xBD\xA0",
                                        LL,   "'s",     "\xF0\x9F\x98\x80", ".", "aaaa", "\t", "\xED\x95\x9C", "A"};
    bool raw = esp_rng_below(rng, 8) == 0;
    size_t n = 0, n_parts = esp_rng_below(rng, 40);
    for (size_t idx = 0; idx < n_parts && n + 12 < cap; idx++) {
        if (raw || esp_rng_below(rng, 200) == 0) {
            text[n++] = (char)esp_rng_next(rng);
        } else {
            const char *part = parts[esp_rng_below(rng, N(parts))];
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
    }
    return n;
}

static size_t random_spans(struct esp_rng *rng, const char *text, size_t n_bytes, bool control, struct esp_span *spans,
                           size_t cap)
{
    size_t n = 0, at = 0;
    while (at < n_bytes) {
        size_t take = n + 1 == cap ? n_bytes - at : esp_rng_below(rng, n_bytes - at + 1);
        spans[n++] = (struct esp_span){text + at, take, control && esp_rng_below(rng, 2) == 0};
        at += take;
        if (n == cap) {
            break;
        }
    }
    return n;
}

static void check_ids(const struct esp_tokenizer *tok, const uint32_t *ids, size_t n, bool control)
{
    for (size_t idx = 0; idx < n; idx++) {
        /* What no token covers becomes the one that the file calls unknown, whatever its type. */
        bool allowed = control || ids[idx] == tok->unk;
        bool known = ids[idx] < esp_tokenizer_n_tokens(tok);
        CHECK(known && (allowed || esp_tokenizer_type(tok, ids[idx]) != ESP_TOKEN_CONTROL), "id %u", ids[idx]);
    }
}

static void check_text(const struct esp_tokenizer *tok, struct esp_rng *rng, bool exact)
{
    char text[512];
    struct esp_span spans[6], whole = {text, random_text(rng, text, sizeof text), false};
    bool control = esp_rng_below(rng, 2) == 0;
    size_t n_spans = random_spans(rng, text, whole.n_bytes, control, spans, N(spans));
    struct esp_buf ids, again, back;
    struct esp_err err = {0};
    esp_buf_init(&ids, ESP_TAG_MISC, 1 << 20);
    esp_buf_init(&again, ESP_TAG_MISC, 1 << 20);
    esp_buf_init(&back, ESP_TAG_MISC, 1 << 20);
    esp_status status = esp_tokenizer_encode(tok, spans, n_spans, &ids, &err);
    size_t n_valid = esp_utf8_valid(text, whole.n_bytes);
    CHECK((status == ESP_OK) == (n_valid == whole.n_bytes), "%s", err.message);
    CHECK(status == ESP_OK || (status == ESP_EINVAL && err.offset == n_valid), "offset %llu, not %zu",
          (unsigned long long)err.offset, n_valid);
    const uint32_t *values = (const void *)ids.data;
    check_ids(tok, values, ids.n / 4, control);
    if (status == ESP_OK) {
        CHECK(esp_tokenizer_decode(tok, values, ids.n / 4, true, &back) == ESP_OK, "decode");
    }
    if (status == ESP_OK && exact) {
        CHECK(back.n == whole.n_bytes && (back.n == 0 || memcmp(back.data, text, back.n) == 0), "%.*s → %.*s",
              (int)whole.n_bytes, text, (int)back.n, back.data);
    }
    if (status == ESP_OK && !control) { /* where spans end does not matter when all say the same */
        esp_tokenizer_encode(tok, &whole, 1, &again, &err);
        CHECK(ids.n == again.n && (ids.n == 0 || memcmp(ids.data, again.data, ids.n) == 0), "%.*s", (int)whole.n_bytes,
              text);
    }
    esp_buf_finish(&ids);
    esp_buf_finish(&again);
    esp_buf_finish(&back);
}

static void test_texts(void)
{
    int runs = n_runs(2000);
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct kit kit;
        make_kit(&kit, kind);
        struct esp_tokenizer *tok = kit_make(&kit);
        REQUIRE(tok != NULL, "kind %d", kind);
        /* qwen2 normalises, SPM turns U+2581 into a space, WordPiece loses case and spaces. */
        bool exact = kind < (int)N(pres) && strcmp(pres[kind], "qwen2") != 0;
        for (int run = 0; run < runs; run++) {
            check_text(tok, &esp_test_state.rng, exact);
        }
        esp_tokenizer_destroy(tok);
    }
}

static void test_files(void)
{
    int runs = n_runs(300);
    int n_opened = 0;
    for (int run = 0; run < runs * N_KINDS; run++) {
        struct esp_rng *rng = &esp_test_state.rng;
        struct kit kit;
        make_kit(&kit, run % N_KINDS);
        size_t n_changes = 1 + esp_rng_below(rng, 4);
        for (size_t idx = 0; idx < n_changes; idx++) {
            size_t at = esp_rng_below(rng, kit.kvs.n);
            kit.kvs.data[at] = (char)(esp_rng_below(rng, 2) == 0 ? esp_rng_next(rng) : (uint64_t)kit.kvs.data[at] ^ 1);
        }
        struct esp_tokenizer *tok = NULL;
        struct esp_err err = {0};
        esp_status status = kit_open(&kit, &tok, &err);
        CHECK(status == ESP_OK || err.message[0] != '\0', "an error without a message");
        for (int text = 0; status == ESP_OK && text < 5; text++) {
            check_text(tok, rng, false);
        }
        n_opened += status == ESP_OK;
        esp_tokenizer_destroy(tok);
        esp_buf_finish(&kit.kvs);
    }
    CHECK(n_opened > 0 && n_opened < runs * N_KINDS, "%d of %d files opened", n_opened, runs * N_KINDS);
}

ESP_TEST_MAIN(T(test_texts), T(test_files))
