/* Regular expressions against PCRE2: random patterns and texts, full match and search. Every mask on the way is
 * also compared with the token-by-token oracle. PCRE2 runs with JavaScript's meaning of what both know. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tests/unit/grammar/rig.h"

static uint64_t below(uint64_t n)
{
    return esp_rng_below(&esp_test_state.rng, n);
}

struct text {
    char data[512];
    size_t n;
};

static void add(struct text *t, const char *part)
{
    size_t n = strlen(part);
    if (t->n + n < sizeof t->data - 1) {
        memcpy(t->data + t->n, part, n);
        t->n += n;
        t->data[t->n] = '\0';
    }
}

static void add_atom(struct text *t, int depth);

static void add_alternatives(struct text *t, int depth)
{
    int n_alternatives = 1 + (int)below(3) / 2;
    for (int idx = 0; idx < n_alternatives; idx++) {
        add(t, idx > 0 ? "|" : "");
        for (int n = (int)below(4); n >= 0; n--) {
            add_atom(t, depth);
        }
    }
}

static void add_atom(struct text *t, int depth)
{
    static const char *const atoms[] = {"a",   "b",   "c",   "é",     "[ab]", "[^a]", "[a-c]",
                                        "\\d", "\\w", "\\.", "[b-é]", "1",    "\\n",  "[^\\d]"};
    static const char *const repeats[] = {"*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{0}"};
    if (depth < 3 && below(4) == 0) {
        add(t, below(2) ? "(" : "(?:");
        add_alternatives(t, depth + 1);
        add(t, ")");
    } else {
        add(t, atoms[below(sizeof atoms / sizeof atoms[0])]);
    }
    if (below(3) == 0) {
        add(t, repeats[below(sizeof repeats / sizeof repeats[0])]);
    }
}

static void random_text(struct text *t)
{
    static const char *const parts[] = {"a", "b", "c", "é", "1", ".", "\n", "d", "ab", "😀"};
    t->n = 0;
    t->data[0] = '\0';
    for (uint64_t n = below(7); n > 0; n--) {
        add(t, parts[below(sizeof parts / sizeof parts[0])]);
    }
}

static pcre2_code *compile_pcre2(const char *pattern, bool search)
{
    int code;
    size_t offset;
    uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | (search ? 0 : PCRE2_ANCHORED | PCRE2_ENDANCHORED);
    return pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &offset, NULL);
}

static bool match_pcre2(const pcre2_code *re, const struct text *t)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
    int n = pcre2_match(re, (PCRE2_SPTR)t->data, t->n, 0, 0, data, NULL);
    pcre2_match_data_free(data);
    return n > 0;
}

static void test_full_match(void)
{
    struct esp_trie *trie = rig_trie();
    int n_matched = 0, n_tried = 0;
    for (int round = 0; round < 1500; round++) {
        struct text pattern = {.n = 0}, t;
        struct esp_grammar *grammar;
        struct esp_err err = {0};
        add_alternatives(&pattern, 0);
        pcre2_code *re = compile_pcre2(pattern.data, false);
        if (re == NULL) {
            continue;
        }
        esp_status status = rig_compile(trie, ESP_GRAMMAR_REGEX, pattern.data, 0, &grammar, &err);
        CHECK(status == ESP_OK || status == ESP_EUNSAT, "%s: %s", pattern.data, err.message);
        for (int idx = 0; idx < 12 && status == ESP_OK; idx++) {
            random_text(&t);
            bool want = match_pcre2(re, &t);
            CHECK(rig_accepts(grammar, t.data, t.n) == want, "/%s/ on \"%s\": PCRE2 says %d", pattern.data, t.data,
                  want);
            n_matched += want;
            n_tried++;
        }
        if (status == ESP_OK) {
            rig_walk(grammar, trie, 8, pattern.data);
            esp_grammar_unref(grammar);
        }
        pcre2_code_free(re);
    }
    CHECK(n_matched > n_tried / 50, "only %d of %d texts match: the test proves little", n_matched, n_tried);
    esp_trie_destroy(trie);
}

static void quote(const struct text *from, struct text *out)
{
    out->n = 0;
    for (size_t at = 0; at < from->n; at++) {
        char one[3] = {from->data[at] == '\n' ? 'n' : from->data[at], '\0', '\0'};
        if (from->data[at] == '\n' || from->data[at] == '\\') {
            add(out, "\\");
        }
        add(out, one);
    }
}

static void test_search(void)
{
    static const char *const begins[] = {"", "^", ""}, *const ends[] = {"", "$", ""};
    struct esp_trie *trie = rig_trie();
    for (int round = 0; round < 800; round++) {
        struct text pattern = {.n = 0}, escaped, t, spelled;
        struct esp_grammar *grammar;
        char schema[1200];
        add(&pattern, begins[below(3)]);
        add(&pattern, "(");
        add_alternatives(&pattern, 1);
        add(&pattern, ")");
        add(&pattern, ends[below(3)]);
        pcre2_code *re = compile_pcre2(pattern.data, true);
        if (re == NULL) {
            continue;
        }
        quote(&pattern, &escaped);
        unsigned min = (unsigned)below(3), max = min + (unsigned)below(6);
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"%s\",\"minLength\":%u,\"maxLength\":%u}",
                 escaped.data, min, max);
        if (rig_compile(trie, ESP_GRAMMAR_SCHEMA, schema, 0, &grammar, NULL) == ESP_OK) {
            for (int idx = 0; idx < 12; idx++) {
                char text[1200];
                random_text(&t);
                unsigned n_chars = 0;
                for (size_t at = 0; at < t.n; at++) {
                    n_chars += ((unsigned char)t.data[at] & 0xC0) != 0x80;
                }
                quote(&t, &spelled);
                snprintf(text, sizeof text, "\"%s\"", t.n == 0 ? "" : spelled.data);
                bool want = n_chars >= min && n_chars <= max && match_pcre2(re, &t);
                CHECK(rig_accepts(grammar, text, strlen(text)) == want, "%s on %s: want %d", schema, text, want);
            }
            rig_walk(grammar, trie, 8, schema);
            esp_grammar_unref(grammar);
        }
        pcre2_code_free(re);
    }
    esp_trie_destroy(trie);
}

ESP_TEST_MAIN(T(test_full_match), T(test_search))
