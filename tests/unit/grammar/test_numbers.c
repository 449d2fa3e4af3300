/* Number prefixes against brute force: every short text, with values that a double holds exactly enough to order. */
#include "grammar/number.h"
#include "tests/esptest.h"

static const char alphabet[] = "0123456789-.e";
enum { N_ALPHABET = sizeof alphabet - 1, LONGEST = 4 };

static struct esp_decimal decimal(const char *text, char *room)
{
    struct esp_decimal d = {0};
    CHECK(esp_decimal_parse(text, strlen(text), room, &d), "%s", text);
    return d;
}

/* What a complete text must satisfy, by way of a double; values are multiples of 0.001 or far from the bounds. */
static bool expected(const struct esp_bounds *b, double lo, double hi, const char *text)
{
    char room[16];
    struct esp_decimal d;
    if (!esp_decimal_parse(text, strlen(text), room, &d)) {
        return false;
    }
    double value = strtod(text, NULL);
    bool above = !b->has_lo || value > lo || (!b->lo_open && value == lo);
    bool below = !b->has_hi || value < hi || (!b->hi_open && value == hi);
    return above && below && (!b->integer || value == (double)(long long)value || value > 1e15 || value < -1e15);
}

static void check_texts(const struct esp_bounds *b, double lo, double hi)
{
    char text[LONGEST + 1] = "";
    long n = 1;
    for (int len = 1; len <= LONGEST; len++) {
        n *= N_ALPHABET;
        for (long code = 0; code < n; code++) {
            long rest = code;
            for (int at = 0; at < len; at++, rest /= N_ALPHABET) {
                text[at] = alphabet[rest % N_ALPHABET];
            }
            text[len] = '\0';
            bool complete = esp_num_complete(b, text, (uint32_t)len), want = expected(b, lo, hi, text);
            CHECK(complete == want, "%s in %g … %g (integer %d): complete %d", text, lo, hi, b->integer, complete);
            /* Every value has its plain spelling: all prefixes of it are live. */
            for (int at = 1; at <= len && complete && strchr(text, 'e') == NULL; at++) {
                CHECK(esp_num_live(b, text, (uint32_t)at), "%s is complete, its prefix of %d is dead", text, at);
            }
        }
    }
}

/* From a live prefix some way of live steps must lead to a complete text. */
static void check_walks(const struct esp_bounds *b)
{
    for (int round = 0; round < 60; round++) {
        char text[ESP_NUM_TEXT_MAX + 2];
        uint32_t n = 0;
        while (n < ESP_NUM_TEXT_MAX) {
            char next[N_ALPHABET];
            uint64_t n_next = 0;
            for (int idx = 0; idx < N_ALPHABET; idx++) {
                text[n] = alphabet[idx];
                if (esp_num_live(b, text, n + 1)) {
                    next[n_next++] = alphabet[idx];
                }
            }
            if (n_next == 0) {
                break;
            }
            text[n++] = next[esp_rng_below(&esp_test_state.rng, n_next)];
        }
        CHECK(n > 0 && esp_num_complete(b, text, n), "stuck after %.*s (integer %d, open %d %d, bounds %d %d)", (int)n,
              text, b->integer, b->lo_open, b->hi_open, b->has_lo, b->has_hi);
    }
}

static void test_brute_force(void)
{
    static const struct {
        const char *lo, *hi;
        bool lo_open, hi_open;
    } rows[] = {{"1", "4", false, false},      {"0", NULL, true, false},   {"0.25", "7.5", false, false},
                {"-3", "12", false, true},     {"100", "200", true, true}, {NULL, "-5", false, false},
                {"-0.5", "0.5", true, false},  {"99", "99", false, false}, {"0", "0", false, false},
                {"15.5", "16.5", false, false}};
    for (size_t idx = 0; idx < 2 * sizeof rows / sizeof rows[0]; idx++) {
        char rooms[2][8];
        struct esp_nums nums;
        struct esp_bounds b = {.integer = idx % 2, .lo_open = rows[idx / 2].lo_open, .hi_open = rows[idx / 2].hi_open};
        b.has_lo = rows[idx / 2].lo != NULL;
        b.has_hi = rows[idx / 2].hi != NULL;
        b.lo = b.has_lo ? decimal(rows[idx / 2].lo, rooms[0]) : (struct esp_decimal){0};
        b.hi = b.has_hi ? decimal(rows[idx / 2].hi, rooms[1]) : (struct esp_decimal){0};
        double lo = b.has_lo ? strtod(rows[idx / 2].lo, NULL) : 0, hi = b.has_hi ? strtod(rows[idx / 2].hi, NULL) : 0;
        uint32_t id;
        esp_nums_init(&nums);
        REQUIRE(esp_nums_add_bounds(&nums, &b, &id) == ESP_OK, "bounds");
        struct esp_bounds rounded = nums.bounds[id];
        bool lo_open = b.lo_open, hi_open = b.hi_open;
        if (esp_num_live(&rounded, "", 0)) {
            check_walks(&rounded);
        }
        /* The bounds as they were given decide what is expected; rounded ones must say the same. */
        b = rounded;
        if (!b.integer) {
            b.lo_open = lo_open;
            b.hi_open = hi_open;
            check_texts(&b, lo, hi);
        } else {
            double first = lo, last = hi;
            if (b.has_lo) {
                first = lo == (double)(long long)lo ? lo + lo_open : (double)(long long)(lo + (lo > 0));
            }
            if (b.has_hi) {
                last = hi == (double)(long long)hi ? hi - hi_open : (double)(long long)(hi - (hi < 0));
            }
            check_texts(&b, first, last);
        }
        esp_nums_finish(&nums);
    }
}

static void test_decimals(void)
{
    static const char *const ordered[] = {"-1e400",
                                          "-12",
                                          "-0.5",
                                          "0",
                                          "1e-400",
                                          "0.1",
                                          "1",
                                          "1.5",
                                          "12",
                                          "1e3",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "1e400"};
    for (size_t a = 0; a < sizeof ordered / sizeof ordered[0]; a++) {
        for (size_t b = 0; b < sizeof ordered / sizeof ordered[0]; b++) {
            char rooms[2][32];
            struct esp_decimal x = decimal(ordered[a], rooms[0]), y = decimal(ordered[b], rooms[1]);
            int want = a < b ? -1 : a > b;
            CHECK(esp_decimal_compare(&x, &y) == want, "%s against %s", ordered[a], ordered[b]);
        }
    }
    static const char *const bad[] = {"", "-", "01", "1.", ".5", "1e", "1e+", "+1", "1 ", "0x1", "--1", "1e1.5"};
    for (size_t idx = 0; idx < sizeof bad / sizeof bad[0]; idx++) {
        char room[16];
        struct esp_decimal d;
        CHECK(!esp_decimal_parse(bad[idx], strlen(bad[idx]), room, &d), "\"%s\" is no number", bad[idx]);
    }
}

ESP_TEST_MAIN(T(test_brute_force), T(test_decimals))
