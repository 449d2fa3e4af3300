/* Every row of the pre-tokenizer table compiles, cuts without losing a byte, and takes long texts of the kinds
 * that make patterns slow. What known names do with telling texts is written out.
 */
#include "runtime/pretok.h"
#include "tests/esptest.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))

/* The pieces of a text joined with |, or the name of the status. */
static const char *cut(const char *name, const char *text)
{
    static char out[4096];
    struct esp_err err = {0};
    struct esp_pretok *pretok = NULL;
    struct esp_pretok_run *run = NULL;
    const struct esp_pretok_row *row = esp_pretok_find(name, strlen(name));
    esp_status status = row == NULL ? ESP_ENOTFOUND : esp_pretok_create(row, &pretok, &err);
    status = status != ESP_OK ? status : esp_pretok_run_create(pretok, &run, &err);
    const uint32_t *ends;
    size_t n = 0, start = 0;
    status = status != ESP_OK ? status : esp_pretok_split(run, text, strlen(text), &ends, &n, &err);
    char *at = out;
    *at = '\0';
    for (size_t idx = 0; idx < n; idx++) {
        at += snprintf(at, sizeof out - (size_t)(at - out), idx == 0 ? "%.*s" : "|%.*s", (int)(ends[idx] - start),
                       text + start);
        start = ends[idx];
    }
    if (status != ESP_OK) {
        snprintf(out, sizeof out, "%s %s", esp_status_name(status), err.message);
    }
    esp_pretok_run_destroy(run);
    esp_pretok_destroy(pretok);
    return out;
}

static void test_known(void)
{
    static const struct {
        const char *name, *text, *want;
    } cases[] = {
        {"llama-bpe", "12345678 it's IT'S", "123|456|78| it|'s| IT|'S"},
        {"llama3", "foo   bar\t\tbaz\r\n\r\n  x", "foo|  | bar|\t|\tbaz|\r\n\r\n| | x"},
        {"qwen2", "12345678 it's IT'S", "1|2|3|4|5|6|7|8| it|'s| IT|'S"},
        {"gpt-2", "12345678 it's IT'S", "12345678| it|'s| IT|'|S"},
        {"gpt-2", "foo   bar\t\tbaz", "foo|  | bar|\t|\t|baz"},
        {"smollm", "a12 34", "a|1|2| |3|4"},
        {"starcoder", "3.14e10", "3|.|1|4|e|1|0"},
        {"falcon", "1234567 a.b", "123|456|7| a|.|b"},
        {"gpt-4o", "HTTPServer it's camelCase/\n", "HTTPServer| it's| camel|Case|/\n"},
        {"tekken", "it's 12", "it|'s| |1|2"},
        {"tiny_aya", "1234567 12 123456", "1|234|567| |12| |123|456"},
        {"tiny_aya", "1234a 1234", "123|4|a| |1|234"},
        {"deepseek-llm", "a   ", "a|   "},
        {"deepseek-llm", "a   1  2", "a|   |1|  |2"},
        {"deepseek-v3", "12345 (abc) \xE4\xBD\xA0\xE5\xA5\xBD!", "123|45| (|abc|)| |\xE4\xBD\xA0\xE5\xA5\xBD|!"},
        {"bloom", "Hello, world", "Hello|,| world"},
        {"seed-coder", "a!\n1", "a|!|\n|1"},
        {"bailingmoe", "a\n\nb \n", "a|\n\n|b| \n"},
        {"kimi-k2", "\xE4\xBD\xA0\xE5\xA5\xBD" "abc DEFg", "\xE4\xBD\xA0\xE5\xA5\xBD|abc| DEFg"},
        {"default", "12345 a, b", "123|45| a|,| b"},
        {"gpt-2", "a\xE1\xA0\x8E" "b", "a|\xE1\xA0\x8E|b"},   /* U+180E is no space */
        {"gpt-2", "a \xE1\xA0\x8E", "a| \xE1\xA0\x8E"},
        {"gpt-2", "a\xC2\xA0\xC2\xA0" "b", "a|\xC2\xA0|\xC2\xA0|b"},
        {"llama-bpe", "'\xC5\xBF", "'\xC5\xBF"}, /* a long s folds to s */
        {"no-such-name", "a", "NOT_FOUND "},
        {"gpt", "a", "NOT_FOUND "},
        {"gpt-2 mpt", "a", "NOT_FOUND "},
        {"", "a", "NOT_FOUND "},
        {"qwen2", "", ""},
    };
    for (size_t idx = 0; idx < N(cases); idx++) {
        const char *got = cut(cases[idx].name, cases[idx].text);
        CHECK(strcmp(got, cases[idx].want) == 0, "%s: %s → %s, not %s", cases[idx].name, cases[idx].text, got,
              cases[idx].want);
    }
}

static void test_names_once(void)
{
    for (size_t idx = 0; esp_pretok_row_at(idx) != NULL; idx++) {
        char names[512];
        snprintf(names, sizeof names, "%s", esp_pretok_row_at(idx)->names);
        char *rest = NULL;
        for (char *name = strtok_r(names, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
            CHECK(esp_pretok_find(name, strlen(name)) == esp_pretok_row_at(idx), "%s is in two rows", name);
        }
    }
}

enum { LONG_BYTES = 100000 };

/* Texts on which a careless pattern takes quadratic time or unbounded stack: at this length a quadratic one runs
 * into the match limit or the test's time limit. */
static size_t fill_long(char *text, int kind)
{
    static const char *const units[] = {
        "a", "A", " ", "\n", "1", "'", ".", "\xCC\x81", "\xE4\xBD\xA0", "aA", " \n", "1a", "\xE0\xA4\x95 ", "\t ", "_",
        "\xD9\xA1", "/"};
    static const char *const ends[] = {"", "x", "1", "\n", "\xE4\xBD\xA0"};
    const char *unit = units[kind % (int)N(units)], *end = ends[kind / (int)N(units)];
    size_t n_unit = strlen(unit), n = 0;
    for (; n + n_unit <= LONG_BYTES; n += n_unit) {
        memcpy(text + n, unit, n_unit);
    }
    memcpy(text + n, end, strlen(end));
    return n + strlen(end);
}

static void test_long_texts(void)
{
    static char text[LONG_BYTES + 16];
    for (size_t idx = 0; esp_pretok_row_at(idx) != NULL; idx++) {
        const struct esp_pretok_row *row = esp_pretok_row_at(idx);
        struct esp_err err = {0};
        struct esp_pretok *pretok;
        struct esp_pretok_run *run;
        REQUIRE(esp_pretok_create(row, &pretok, &err) == ESP_OK, "%s: %s", row->names, err.message);
        REQUIRE(esp_pretok_run_create(pretok, &run, &err) == ESP_OK, "%s: %s", row->names, err.message);
        for (int kind = 0; kind < 17 * 5; kind++) {
            size_t n_bytes = fill_long(text, kind), n = 0, start = 0;
            const uint32_t *ends;
            esp_status status = esp_pretok_split(run, text, n_bytes, &ends, &n, &err);
            CHECK(status == ESP_OK, "%s, text %d: %s", row->names, kind, err.message);
            for (size_t piece = 0; status == ESP_OK && piece < n; piece++) {
                CHECK(ends[piece] > start, "%s, text %d: an empty piece", row->names, kind);
                start = ends[piece];
            }
            CHECK(status != ESP_OK || start == n_bytes, "%s, text %d: %zu bytes of %zu", row->names, kind, start,
                  n_bytes);
        }
        esp_pretok_run_destroy(run);
        esp_pretok_destroy(pretok);
    }
}

ESP_TEST_MAIN(T(test_known), T(test_names_once), T(test_long_texts))
