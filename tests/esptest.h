/* A test program: a table of functions, TAP on stdout, a seed that is printed and can be given.
 *
 *   static void test_add(void) { CHECK(1 + 1 == 2, "sum %d", 1 + 1); }
 *   ESP_TEST_MAIN(T(test_add), T(test_other))
 *
 * usage: test [--seed N] [name …]. A failed CHECK is printed with file and line and the test goes on;
 * REQUIRE leaves the test function.
 */
#ifndef ESP_TESTS_ESPTEST_H
#define ESP_TESTS_ESPTEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/rng.h"

struct esp_test {
    const char *name;
    void (*run)(void);
};

static struct {
    int n_failed; /* checks, in the running test */
    const char *skip;
    uint64_t seed;
    struct esp_rng rng;
} esp_test_state;

#define T(fn) {#fn, fn}

#define ESP_TEST_FAILED(text, ...)                                                                           \
    do {                                                                                                     \
        if (esp_test_state.n_failed++ < 20) {                                                                \
            printf("# %s:%d: %s:", __FILE__, __LINE__, text);                                                \
            printf(" " __VA_ARGS__);                                                                         \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

#define CHECK(cond, ...)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            ESP_TEST_FAILED(#cond, __VA_ARGS__);                                                             \
        }                                                                                                    \
    } while (0)

#define REQUIRE(cond, ...)                                                                                   \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            ESP_TEST_FAILED(#cond, __VA_ARGS__);                                                             \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

static inline void esp_test_skip(const char *why)
{
    esp_test_state.skip = why;
}

/* Path of a file under shared/, or NULL (and the test is marked skipped) when it is not there. */
static inline const char *esp_test_shared(const char *name)
{
    static char paths[8][1024];
    static int next;
    const char *root = getenv("ESPALIER_TEST_SHARED");
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", root == NULL ? "../shared" : root, name);
    if (access(path, R_OK) != 0) {
        esp_test_skip("no shared/ data beside the checkout");
        return NULL;
    }
    return path;
}

/* Path of a model under models/, or NULL (skipped) when it was not fetched. */
static inline const char *esp_test_model(const char *name)
{
    static char paths[4][1024];
    static int next;
    const char *root = getenv("ESPALIER_TEST_MODELS");
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root == NULL ? "models" : root, name);
    if (access(path, R_OK) != 0) {
        esp_test_skip("model file not fetched");
        return NULL;
    }
    return path;
}

static inline int esp_test_main(int argc, char **argv, const struct esp_test *tests, int n_tests)
{
    const char *fixed = getenv("ESPALIER_TEST_SEED");
    uint64_t seed = fixed ? strtoull(fixed, NULL, 0) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 20;
    int first_name = 1;
    if (argc > 2 && strcmp(argv[1], "--seed") == 0) {
        seed = strtoull(argv[2], NULL, 0);
        first_name = 3;
    }
    esp_test_state.seed = seed;
    int n_bad = 0;
    printf("TAP version 13\n1..%d\n# seed %llu\n", n_tests, (unsigned long long)seed);
    for (int idx = 0; idx < n_tests; idx++) {
        bool wanted = first_name >= argc;
        for (int arg = first_name; arg < argc; arg++) {
            wanted = wanted || strcmp(argv[arg], tests[idx].name) == 0;
        }
        esp_test_state.n_failed = 0;
        esp_test_state.skip = wanted ? NULL : "not asked for";
        esp_test_state.rng.state = seed + (uint64_t)idx * 1000003;
        if (wanted) {
            tests[idx].run();
        }
        bool ok = esp_test_state.n_failed == 0;
        n_bad += !ok;
        printf("%s %d - %s%s%s\n", ok ? "ok" : "not ok", idx + 1, tests[idx].name,
               ok && esp_test_state.skip != NULL ? " # SKIP " : "",
               ok && esp_test_state.skip != NULL ? esp_test_state.skip : "");
        fflush(stdout);
    }
    return n_bad == 0 ? 0 : 1;
}

#define ESP_TEST_MAIN(...)                                                                                   \
    int main(int argc, char **argv)                                                                          \
    {                                                                                                        \
        static const struct esp_test tests[] = {__VA_ARGS__};                                                \
        return esp_test_main(argc, argv, tests, (int)(sizeof tests / sizeof tests[0]));                      \
    }

#endif
