/* UTF-8 and strict JSON getters. */
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "tests/esptest.h"

static void test_utf8_round_trip(void)
{
    for (uint32_t cp = 0; cp <= 0x110000; cp++) {
        char text[4];
        int n = esp_utf8_encode(cp, text);
        bool legal = cp <= 0x10ffff && (cp < 0xd800 || cp > 0xdfff);
        CHECK((n > 0) == legal, "U+%x", cp);
        uint32_t back = 0;
        for (int cut = 1; cut < n; cut++) {
            CHECK(esp_utf8_decode(text, (size_t)cut, &back) == 0, "U+%x cut at %d", cp, cut);
            CHECK(esp_utf8_complete(text, (size_t)cut) == 0, "held back");
        }
        CHECK(n == 0 || (esp_utf8_decode(text, (size_t)n, &back) == n && back == cp), "U+%x back", cp);
    }
}

static void test_utf8_invalid(void)
{
    static const char *const bad[] = {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"};
    for (size_t idx = 0; idx < sizeof bad / sizeof bad[0]; idx++) {
        uint32_t cp;
        CHECK(esp_utf8_decode(bad[idx], strlen(bad[idx]), &cp) == -1, "case %zu", idx);
        CHECK(esp_utf8_complete(bad[idx], strlen(bad[idx])) == strlen(bad[idx]), "never held back, case %zu", idx);
    }
    CHECK(esp_utf8_valid("ab\xffz", 4) == 2, "offset of the first bad byte");
}

static void test_json(void)
{
    struct esp_err err;
    static const char text[] = "{\"n\":3.0,\"b\":true,\"s\":\"1\",\"z\":null}";
    json_t *obj = esp_json_parse(text, sizeof text - 1, &err);
    REQUIRE(obj != NULL, "%s", err.message);
    int64_t n = -1;
    CHECK(esp_json_int(obj, "n", 0, 5, 9, &n, &err) == ESP_OK && n == 3, "3.0 is an integer");
    CHECK(esp_json_int(obj, "z", 0, 5, 9, &n, &err) == ESP_OK && n == 9, "null is absent");
    n = 7;
    CHECK(esp_json_int(obj, "b", 0, 5, 9, &n, &err) == ESP_EINVAL && n == 7, "a bool is no number");
    CHECK(esp_json_int(obj, "s", 0, 5, 9, &n, &err) == ESP_EINVAL && strcmp(err.place, "s") == 0, "nor is a string");
    CHECK(esp_json_int(obj, "n", 4, 5, 9, &n, &err) == ESP_EINVAL && n == 7, "range");
    json_decref(obj);
    CHECK(esp_json_parse("{\"a\":1,\"a\":2}", 13, &err) == NULL, "duplicate keys");
    char deep[200];
    memset(deep, '[', sizeof deep);
    CHECK(esp_json_parse(deep, sizeof deep, &err) == NULL && strstr(err.message, "deeper") != NULL, "%s", err.message);
}

ESP_TEST_MAIN(T(test_utf8_round_trip), T(test_utf8_invalid), T(test_json))
