/* The detokenizing stream against a naive search over the whole text, for random splits into tokens. */
#include "frontend/answer.h"

#include "runtime/base/utf8.h"
#include "tests/esptest.h"

/* The vocabulary of this test: token i is the i-th piece. */
static const char *pieces[64];
static size_t piece_bytes[64];

const char *esp_token_bytes(const esp_vocab *vocab, uint32_t id, bool control, size_t *ret_n_bytes)
{
    if (id >= 64 || pieces[id] == NULL) {
        *ret_n_bytes = 0;
        return NULL;
    }
    *ret_n_bytes = piece_bytes[id];
    return pieces[id];
}

/* The first position where a stop is complete decides; of several the longest. */
static size_t naive_cut(const char *text, size_t n, const char *const *stops, uint32_t n_stops, bool *ret_stopped)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (uint32_t idx = 0; idx < n_stops; idx++) {
            size_t len = strlen(stops[idx]);
            if (len <= end && memcmp(text + end - len, stops[idx], len) == 0 && len > longest) {
                longest = len;
            }
        }
        if (longest > 0) {
            *ret_stopped = true;
            return end - longest;
        }
    }
    *ret_stopped = false;
    return n;
}

static size_t random_text(struct esp_rng *rng, char *text, size_t cap, const char *const *parts, size_t n_parts)
{
    size_t n = 0;
    for (uint64_t left = esp_rng_below(rng, 12); left > 0; left--) {
        const char *part = parts[esp_rng_below(rng, n_parts)];
        size_t len = strlen(part);
        if (n + len > cap) {
            break;
        }
        memcpy(text + n, part, len);
        n += len;
    }
    return n;
}

/* Feeds text in random pieces; everything sent must be valid UTF-8 at each moment. */
static void feed(struct esp_answer *answer, struct esp_rng *rng, const char *text, size_t n, struct esp_buf *out)
{
    uint32_t token = 0;
    for (size_t at = 0; at < n;) {
        size_t len = 1 + esp_rng_below(rng, 4);
        len = len < n - at ? len : n - at;
        pieces[token % 64] = text + at;
        piece_bytes[token % 64] = len;
        bool stopped = esp_answer_add(answer, token % 64, out);
        CHECK(esp_utf8_valid(out->data == NULL ? "" : out->data, out->n) == out->n, "half a character was sent");
        if (stopped) {
            return;
        }
        at += len;
        token++;
    }
    esp_answer_end(answer, out);
}

static void test_random_splits(void)
{
    static const char *const parts[] = {
        "a",        "b",    "ab",       "aab",  "User:", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80",
        "\xf0\x9f", "\x80", "\xe4\xbd", "\xff", "STOP",  "ST", "is",       " "};
    static const char *const stop_parts[] = {
        "a", "ab", "aab", "ba", "User:\n", "STOP", "\xc3\xa9", "is", "\xf0\x9f\x98\x80", "TOP"};
    struct esp_rng *rng = &esp_test_state.rng;
    for (int round = 0; round < 20000; round++) {
        char text[128];
        size_t n = random_text(rng, text, sizeof text, parts, sizeof parts / sizeof parts[0]);
        const char *stops[3];
        uint32_t n_stops = (uint32_t)esp_rng_below(rng, 4);
        for (uint32_t idx = 0; idx < n_stops; idx++) {
            stops[idx] = stop_parts[esp_rng_below(rng, sizeof stop_parts / sizeof stop_parts[0])];
        }
        bool want_stopped = false;
        size_t cut = naive_cut(text, n, stops, n_stops, &want_stopped);
        struct esp_buf want, got;
        esp_buf_init(&want, ESP_TAG_MISC, 4096);
        esp_buf_init(&got, ESP_TAG_MISC, 4096);
        esp_answer_clean(text, cut, &want);
        struct esp_answer answer;
        esp_answer_init(&answer, NULL, stops, n_stops);
        feed(&answer, rng, text, n, &got);
        CHECK(answer.stopped == want_stopped, "round %d: stopped %d", round, answer.stopped);
        CHECK(answer.out_bytes == cut, "round %d: %llu bytes, not %zu", round, (unsigned long long)answer.out_bytes,
              cut);
        CHECK(got.n == want.n && (got.n == 0 || memcmp(got.data, want.data, got.n) == 0), "round %d: text differs",
              round);
        esp_answer_finish(&answer);
        esp_buf_finish(&got);
        esp_buf_finish(&want);
    }
}

static void check_clean(const char *bytes, const char *want)
{
    struct esp_buf out;
    esp_buf_init(&out, ESP_TAG_MISC, 4096);
    esp_answer_clean(bytes, strlen(bytes), &out);
    CHECK(out.n == strlen(want) && memcmp(out.data, want, out.n) == 0, "got %s for %s", out.data, want);
    esp_buf_finish(&out);
}

static void test_replacement(void)
{
    /* One mark per maximal part of a character, as Python's decoder and the Unicode recommendation have it. */
    check_clean("a\xf0\x9fU", "a\xef\xbf\xbdU");
    check_clean("\xf0\x9f", "\xef\xbf\xbd");
    check_clean("\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd");
    check_clean("\xe0\x80", "\xef\xbf\xbd\xef\xbf\xbd");
    check_clean("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    check_clean("\xc3\xa9", "\xc3\xa9");
}

static void test_stop_order(void)
{
    static const char *const one[] = {"a", "is"}, *const other[] = {"is", "a"};
    for (int turn = 0; turn < 2; turn++) {
        struct esp_answer answer;
        struct esp_buf out;
        esp_buf_init(&out, ESP_TAG_MISC, 4096);
        esp_answer_init(&answer, NULL, turn == 0 ? one : other, 2);
        CHECK(!esp_answer_add_bytes(&answer, "Ticket", 6, &out), "stopped too early");
        CHECK(esp_answer_add_bytes(&answer, " is a", 5, &out), "did not stop");
        CHECK(esp_answer_add_bytes(&answer, "more", 4, &out), "went on after the stop");
        CHECK(out.n == 7 && memcmp(out.data, "Ticket ", 7) == 0, "text %s", out.data);
        esp_answer_finish(&answer);
        esp_buf_finish(&out);
    }
}

ESP_TEST_MAIN(T(test_random_splits), T(test_replacement), T(test_stop_order))
