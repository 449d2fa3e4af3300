/* Unicode: every character against checksums of Python's unicodedata (tests/golden/make_unicode_tables.py --sums),
 * and long runs of marks against the rule itself.
 */
#include "runtime/unicode.h"
#include "runtime/base/utf8.h"
#include "tests/esptest.h"

#define FNV_START 0xCBF29CE484222325u
#define CP_MAX 0x10FFFFu

static uint64_t fnv(const char *data, size_t n_bytes, uint64_t value)
{
    for (size_t idx = 0; idx < n_bytes; idx++) {
        value = (value ^ (uint8_t)data[idx]) * 0x100000001B3u;
    }
    return value;
}

static uint64_t sum_of_form(bool compose)
{
    struct esp_buf out;
    uint64_t value = FNV_START;
    esp_buf_init(&out, ESP_TAG_MISC, 1024);
    for (uint32_t cp = 0; cp <= CP_MAX; cp++) {
        char text[16] = "a";
        int n = esp_utf8_encode(cp, text + 1);
        if (n == 0) {
            continue; /* surrogates */
        }
        memcpy(text + 1 + n, "\xCC\x81\xCC\xA3" "b", 5);
        esp_buf_clear(&out);
        CHECK(esp_unicode_normalize(text, 6 + (size_t)n, compose, &out) == ESP_OK, "U+%04X", cp);
        value = fnv(out.data, out.n, value);
    }
    esp_buf_finish(&out);
    return value;
}

static void test_all_characters(void)
{
    uint64_t nfc = sum_of_form(true), nfd = sum_of_form(false), lower = FNV_START, classes = FNV_START;
    for (uint32_t cp = 0; cp <= CP_MAX; cp++) {
        char text[4];
        if (esp_utf8_encode(cp, text) == 0) {
            continue;
        }
        lower = fnv(text, (size_t)esp_utf8_encode(esp_unicode_lower(cp), text), lower);
        int mark = esp_unicode_is_mark(cp), punctuation = esp_unicode_is_punctuation(cp);
        char bits = (char)(mark + 2 * punctuation + 4 * esp_unicode_is_control(cp));
        classes = fnv(&bits, 1, classes);
    }
    CHECK(nfc == 0xb2fa115040c3aa78u, "NFC %llx", (unsigned long long)nfc);
    CHECK(nfd == 0xf8b4c2d923a644f7u, "NFD %llx", (unsigned long long)nfd);
    CHECK(lower == 0xd90fc57645cb6ee2u, "lower %llx", (unsigned long long)lower);
    CHECK(classes == 0xbffd453a8853aad5u, "classes %llx", (unsigned long long)classes);
}

static void check_form(const char *text, bool compose, const char *want)
{
    struct esp_buf out;
    esp_buf_init(&out, ESP_TAG_MISC, 1024);
    CHECK(esp_unicode_normalize(text, strlen(text), compose, &out) == ESP_OK, "%s", text);
    CHECK(out.n == strlen(want) && (out.n == 0 || memcmp(out.data, want, out.n) == 0), "%s → %s, not %s", text,
          out.data, want);
    esp_buf_finish(&out);
}

static void test_known(void)
{
    check_form("", true, "");
    check_form("e\xCC\x81", true, "\xC3\xA9");
    check_form("\xC3\xA9", false, "e\xCC\x81");
    check_form("\xCC\x81" "e", true, "\xCC\x81" "e");                               /* a mark with nothing before it */
    check_form("a\xCC\x81\xCC\xA3", true, "\xE1\xBA\xA1\xCC\x81");                  /* the lower mark first */
    check_form("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", true, "\xED\x95\x9C");       /* Hangul */
    check_form("\xED\x95\x9C", false, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB");
    check_form("\xED\x95\x98\xE1\x86\xAB", true, "\xED\x95\x9C");                   /* LV + T */
    check_form("\xE2\x84\xAA", true, "K");                                          /* the Kelvin sign is a K */
    check_form("\xE0\xA4\x95\xE0\xA4\xBC", true, "\xE0\xA4\x95\xE0\xA4\xBC");       /* excluded from composition */
    check_form("\xE0\xA7\x87\xE0\xA6\xBE", true, "\xE0\xA7\x8B");                   /* two starters compose */
    check_form("a\xCC\x83\xCC\x81\xCC\x84", true, "\xC3\xA3\xCC\x81\xCC\x84");      /* same class: order stays */
    struct esp_buf out;
    esp_buf_init(&out, ESP_TAG_MISC, 1024);
    CHECK(esp_unicode_normalize("a\xC3(", 3, true, &out) == ESP_EINVAL, "not UTF-8");
    esp_buf_finish(&out);
    CHECK(esp_unicode_is_space(0x3000) && esp_unicode_is_space(0x85) && !esp_unicode_is_space(0x180E), "white space");
}

/* Marks of three classes in random order: stably sorted, whether the run is short or long. */
static void test_runs_of_marks(void)
{
    static const char *const marks[] = {"\xCC\x81", "\xCC\xA3", "\xCC\xB4"}; /* 230, 220, 1 */
    static const int in_order[] = {2, 1, 0};
    static char text[40001], want[40001];
    for (int run = 0; run < 200; run++) {
        size_t n = run == 0 ? 20000 : esp_rng_below(&esp_test_state.rng, 80), counts[3] = {0};
        for (size_t idx = 0; idx < n; idx++) {
            size_t which = esp_rng_below(&esp_test_state.rng, 3);
            memcpy(text + idx * 2, marks[which], 2);
            counts[which]++;
        }
        size_t at = 0;
        for (int idx = 0; idx < 3; idx++) {
            for (size_t count = counts[in_order[idx]]; count > 0; count--, at += 2) {
                memcpy(want + at, marks[in_order[idx]], 2);
            }
        }
        struct esp_buf out;
        esp_buf_init(&out, ESP_TAG_MISC, 1 << 20);
        CHECK(esp_unicode_normalize(text, n * 2, false, &out) == ESP_OK, "run %d", run);
        CHECK(out.n == n * 2 && (n == 0 || memcmp(out.data, want, n * 2) == 0), "run %d of %zu marks", run, n);
        esp_buf_finish(&out);
    }
}

ESP_TEST_MAIN(T(test_all_characters), T(test_known), T(test_runs_of_marks))
