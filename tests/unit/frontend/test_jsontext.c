/* Slices of JSON source against a parser, on written and on random documents. */
#include "frontend/jsontext.h"

#include "runtime/espalier.h"
#include "tests/esptest.h"

const char *esp_token_bytes(const esp_vocab *vocab, uint32_t id, bool control, size_t *ret_n_bytes)
{
    return NULL;
}

static void check_slice(const char *text, const char *const *path, size_t n_path, const char *want)
{
    size_t n = 0;
    const char *got = esp_jsontext_find(text, strlen(text), path, n_path, &n);
    if (want == NULL) {
        CHECK(got == NULL, "found %.*s in %s", (int)n, got == NULL ? "" : got, text);
    } else {
        CHECK(got != NULL && n == strlen(want) && memcmp(got, want, n) == 0, "%.*s, not %s", (int)n,
              got == NULL ? "" : got, want);
    }
}

static void test_slices(void)
{
    const char *const a[] = {"a"}, *const ab[] = {"a", "b"}, *const quote[] = {"q\"\\\n\xc3\xa9\xf0\x9f\x98\x80"};
    check_slice("{\"a\":1.0}", a, 1, "1.0");
    check_slice(" { \"x\" : [1,{\"a\":2}] , \"a\" : 1e+2 } ", a, 1, "1e+2");
    check_slice("{\"x\":{\"a\":3},\"a\":{\"b\" : {\"c\":[ 1.0 ,\"}\" ]} }}", ab, 2, "{\"c\":[ 1.0 ,\"}\" ]}");
    check_slice("{\"a\":\"b\\\"}\",\"z\":1}", a, 1, "\"b\\\"}\"");
    check_slice("{\"\\u0061\":true}", a, 1, "true");
    check_slice("{\"q\\\"\\\\\\n\\u00e9\\ud83d\\ude00\":null}", quote, 1, "null");
    check_slice("{\"b\":1}", a, 1, NULL);
    check_slice("{\"a\":[{\"b\":1}]}", ab, 2, NULL);
    check_slice("{}", a, 1, NULL);
    check_slice("[]", a, 1, NULL);
    check_slice("{\"aa\":1,\"\":2}", a, 1, NULL);
    check_slice("{\"a\":[]}", a, 1, "[]");
    const char *const item[] = {"a", "2", "b"};
    check_slice("{\"a\":[ [1,2] ,{\"b\":1}, { \"b\" : 2.0}]}", item, 3, "2.0");
    check_slice("{\"a\":[1, \"]\" , 3]}", item, 2, "3");
    check_slice("{\"a\":[1,2]}", item, 2, NULL);
    check_slice("{\"a\":{\"2\":[5]}}", item, 2, "[5]");
}

/* Random JSON text with spaces and spellings; returns its length. Depth is bounded by the caller's count. */
static void random_value(struct esp_rng *rng, struct esp_buf *buf, int depth)
{
    static const char *const scalars[] = {"1.0",  "-0",   "1e5",  "\"a\\\"]}\"", "\"\\u00e9\"",
                                          "true", "null", "\"\"", "12345678901"};
    uint64_t kind = esp_rng_below(rng, depth > 0 ? 4 : 2);
    if (kind < 2) {
        esp_buf_str(buf, scalars[esp_rng_below(rng, 9)]);
        return;
    }
    uint64_t n = esp_rng_below(rng, 4);
    esp_buf_str(buf, kind == 2 ? "[ " : "{ ");
    for (uint64_t idx = 0; idx < n; idx++) {
        if (kind == 3) {
            esp_buf_printf(buf, "\"%sk%d\" :", esp_rng_below(rng, 2) != 0 ? "\\u006b" : "k", (int)idx);
        }
        random_value(rng, buf, depth - 1);
        esp_buf_str(buf, idx + 1 < n ? " , " : "\n");
    }
    esp_buf_char(buf, kind == 2 ? ']' : '}');
}

/* Every key of every object down one random path: the slice, parsed, equals the parser's value. */
static void test_random(void)
{
    for (int round = 0; round < 3000; round++) {
        struct esp_buf text;
        esp_buf_init(&text, ESP_TAG_MISC, 1 << 20);
        random_value(&esp_test_state.rng, &text, 5);
        json_t *root = json_loadb(text.data, text.n, JSON_DECODE_ANY, NULL);
        REQUIRE(root != NULL, "the generator wrote %s", text.data);
        const char *path[8];
        size_t n_path = 0;
        for (json_t *at = root; json_is_object(at) && json_object_size(at) > 0 && n_path < 8;) {
            void *iter = json_object_iter(at);
            for (uint64_t skip = esp_rng_below(&esp_test_state.rng, json_object_size(at)); skip > 0; skip--) {
                iter = json_object_iter_next(at, iter);
            }
            path[n_path++] = json_object_iter_key(iter);
            at = json_object_iter_value(iter);
            size_t n = 0;
            const char *slice = esp_jsontext_find(text.data, text.n, path, n_path, &n);
            json_t *parsed = slice == NULL ? NULL : json_loadb(slice, n, JSON_DECODE_ANY, NULL);
            CHECK(parsed != NULL && json_equal(parsed, at), "round %d: wrong slice of %s", round, text.data);
            json_decref(parsed);
        }
        json_decref(root);
        esp_buf_finish(&text);
    }
}

/* Cut and damaged text must never be read past its end (a sanitizer watches), nor loop. */
static void test_damaged(void)
{
    const char *const path[] = {"a", "b"};
    for (int round = 0; round < 20000; round++) {
        static const char base[] = "{\"x\\u0061\":[1,{\"a\":\"\\\"\"}],\"a\":{\"\\ud83d\\ude00\":1,\"b\":[1.0,\"}\"]}}";
        size_t n = esp_rng_below(&esp_test_state.rng, sizeof base);
        char *text = malloc(n == 0 ? 1 : n);
        REQUIRE(text != NULL, "memory");
        memcpy(text, base, n);
        if (n > 0) {
            text[esp_rng_below(&esp_test_state.rng, n)] = "\"\\{}[]:,u0"[esp_rng_below(&esp_test_state.rng, 10)];
        }
        size_t n_slice = 0;
        const char *slice = esp_jsontext_find(text, n, path, 2, &n_slice);
        CHECK(slice == NULL || (slice >= text && slice + n_slice <= text + n), "slice outside the text");
        free(text);
    }
}

static void test_quote(void)
{
    for (int round = 0; round < 5000; round++) {
        char text[24];
        size_t n = esp_rng_below(&esp_test_state.rng, sizeof text);
        for (size_t idx = 0; idx < n; idx++) {
            text[idx] = (char)esp_rng_below(&esp_test_state.rng, 128);
        }
        struct esp_buf out;
        esp_buf_init(&out, ESP_TAG_MISC, 4096);
        esp_jsontext_quote(&out, text, n);
        json_t *back = json_loadb(out.data, out.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        CHECK(json_string_length(back) == n && memcmp(json_string_value(back), text, n) == 0, "%s", out.data);
        json_decref(back);
        esp_buf_finish(&out);
    }
    struct esp_buf out;
    esp_buf_init(&out, ESP_TAG_MISC, 4096);
    esp_jsontext_quote(&out, "\xff\xf0\x9f\"", 4);
    CHECK(strcmp(out.data, "\"\xef\xbf\xbd\xef\xbf\xbd\\\"\"") == 0, "%s", out.data);
    esp_buf_finish(&out);
}

static void test_parse_limits(void)
{
    struct esp_err err;
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, 8u << 20);
    esp_buf_str(&text, "{\"a\":[0");
    for (unsigned idx = 0; idx < ESP_JSON_VALUES_MAX; idx++) {
        esp_buf_str(&text, ",0");
    }
    esp_buf_str(&text, "]}");
    CHECK(esp_jsontext_parse(text.data, text.n, &err) == NULL, "a million values were taken");
    esp_buf_finish(&text);
    static const char *const bad[] = {"",
                                      "[]",
                                      "1",
                                      "{\"a\":1,\"a\":2}",
                                      "{\"a\":9223372036854775808}",
                                      "{\"a\":\"\xff\"}",
                                      "{\"a\":1e999}",
                                      "{\"a\":1}x",
                                      "{\"a\":'1'}",
                                      "nul"};
    for (size_t idx = 0; idx < sizeof bad / sizeof bad[0]; idx++) {
        json_t *value = esp_jsontext_parse(bad[idx], strlen(bad[idx]), &err);
        CHECK(value == NULL, "%s was taken", bad[idx]);
        json_decref(value);
    }
    json_t *value = esp_jsontext_parse("{\"a\":\",,\\\",\\\\\"}", 15, &err);
    CHECK(value != NULL, "%s", err.message);
    json_decref(value);
}

ESP_TEST_MAIN(T(test_slices), T(test_random), T(test_damaged), T(test_quote), T(test_parse_limits))
