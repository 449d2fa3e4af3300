/* The cache of compiled grammars: once for equal content, from many threads too; no compile holds up another; the
 * oldest leave at the cap; failures are shared by those who wait and not kept. And the options' parser.
 */
#include <pthread.h>

#include "tests/unit/runtime/fakegrammar.h"

#define N(array) (sizeof(array) / sizeof((array)[0]))
enum { N_SPECS = 6, N_WAITERS = 8 };

static struct esp_grammar_spec spec_of(const char *text)
{
    return (struct esp_grammar_spec){.kind = ESP_GRAMMAR_REGEX, .text = text, .n_bytes = strlen(text)};
}

/* Compiles or finds, and keeps no reference. */
static esp_status touch(struct esp_grammar_cache *cache, const char *text)
{
    struct esp_grammar_spec spec = spec_of(text);
    struct esp_grammar *grammar = NULL;
    esp_status status = esp_grammar_cache_get(cache, NULL, &spec, &grammar, NULL);
    esp_grammar_unref(grammar);
    return status;
}

static void test_content(void)
{
    struct esp_grammar_cache *cache;
    REQUIRE(esp_grammar_cache_create(10000, &cache) == ESP_OK, "create");
    struct esp_grammar_spec specs[N_SPECS];
    for (size_t idx = 0; idx < N_SPECS; idx++) {
        specs[idx] = spec_of("a");
    }
    specs[1].kind = ESP_GRAMMAR_SCHEMA;
    specs[2].text = "b";
    specs[3].options.lenient = true;
    specs[4].options.whitespace = ESP_WS_PRETTY;
    specs[5].text = "aa";
    specs[5].n_bytes = 2;
    struct esp_grammar *grammars[N_SPECS], *again;
    for (size_t idx = 0; idx < N_SPECS; idx++) {
        REQUIRE(esp_grammar_cache_get(cache, NULL, &specs[idx], &grammars[idx], NULL) == ESP_OK, "get");
        for (size_t other = 0; other < idx; other++) {
            CHECK(grammars[idx] != grammars[other], "%zu and %zu are not the same", idx, other);
        }
    }
    for (size_t idx = 0; idx < N_SPECS; idx++) {
        REQUIRE(esp_grammar_cache_get(cache, NULL, &specs[idx], &again, NULL) == ESP_OK, "get");
        CHECK(again == grammars[idx], "%zu is found again", idx);
        esp_grammar_unref(again);
        esp_grammar_unref(grammars[idx]);
    }
    struct esp_grammar_cache_stats stats = esp_grammar_cache_stats(cache);
    CHECK(stats.n_compiled == 6 && stats.n_hits == 6 && stats.n_kept == 6, "%d compiled", (int)stats.n_compiled);
    esp_grammar_cache_destroy(cache);
    CHECK(fake_live == 0, "%d grammars live", fake_live);
}

static void test_eviction(void)
{
    struct esp_grammar_cache *cache;
    REQUIRE(esp_grammar_cache_create(10000, &cache) == ESP_OK, "create");
    struct esp_grammar_spec spec = spec_of("A size=3000");
    struct esp_grammar *held;
    REQUIRE(esp_grammar_cache_get(cache, NULL, &spec, &held, NULL) == ESP_OK, "get");
    touch(cache, "B size=3000");
    touch(cache, "A size=3000"); /* A is newer than B now */
    touch(cache, "C size=3000");
    int before = fake_compiled;
    touch(cache, "A size=3000");
    CHECK(fake_compiled == before, "A stayed");
    touch(cache, "B size=3000");
    CHECK(fake_compiled == before + 1, "B was the oldest");
    CHECK(esp_grammar_cache_stats(cache).kept_bytes <= 10000, "%zu bytes", esp_grammar_cache_stats(cache).kept_bytes);
    CHECK(touch(cache, "D size=20000") == ESP_OK, "larger than the cache");
    CHECK(esp_grammar_cache_stats(cache).n_kept == 0, "%zu kept", esp_grammar_cache_stats(cache).n_kept);
    CHECK(fake_live == 1, "the one held lives on");
    esp_grammar_unref(held);
    for (int idx = 0; idx < ESP_GRAMMAR_CACHE_N_MAX + 10; idx++) {
        char text[32];
        snprintf(text, sizeof text, "%d size=0", idx);
        touch(cache, text);
        CHECK(esp_grammar_cache_stats(cache).n_kept <= ESP_GRAMMAR_CACHE_N_MAX, "count");
    }
    esp_grammar_cache_destroy(cache);
    CHECK(fake_live == 0, "%d grammars live", fake_live);
}

struct request {
    struct esp_grammar_cache *cache;
    const char *text;
    esp_status status;
    struct esp_grammar *grammar;
    struct esp_err err;
};

static void *ask(void *arg)
{
    struct request *request = arg;
    struct esp_grammar_spec spec = spec_of(request->text);
    request->status = esp_grammar_cache_get(request->cache, NULL, &spec, &request->grammar, &request->err);
    return NULL;
}

/* Eight threads ask for the same slow grammar; another compiles meanwhile. */
static void run_waiters(const char *slow, esp_status want)
{
    struct esp_grammar_cache *cache;
    REQUIRE(esp_grammar_cache_create(10000, &cache) == ESP_OK, "create");
    pthread_t threads[N_WAITERS];
    struct request requests[N_WAITERS];
    int before = fake_compiled;
    fake_release = false;
    for (size_t idx = 0; idx < N(threads); idx++) {
        requests[idx] = (struct request){.cache = cache, .text = slow};
        REQUIRE(pthread_create(&threads[idx], NULL, ask, &requests[idx]) == 0, "thread");
    }
    while (fake_compiling == 0) {
        usleep(1000);
    }
    CHECK(touch(cache, "quick") == ESP_OK && fake_compiling == 1, "one slow compile does not block another");
    fake_release = true;
    for (size_t idx = 0; idx < N(threads); idx++) {
        pthread_join(threads[idx], NULL);
        CHECK(requests[idx].status == want, "%s", esp_status_name(requests[idx].status));
        CHECK(want == ESP_OK || strcmp(requests[idx].err.place, "/a") == 0, "the error is everybody's");
        CHECK(want != ESP_OK || requests[idx].grammar == requests[0].grammar, "one grammar for all");
        esp_grammar_unref(requests[idx].grammar);
    }
    /* A thread that came after a failure was over tries again; a success is compiled once. */
    CHECK(want != ESP_OK || fake_compiled == before + 2, "%d compiles", fake_compiled - before);
    CHECK(esp_grammar_cache_stats(cache).n_kept == (want == ESP_OK ? 2 : 1), "failures are not kept");
    esp_grammar_cache_destroy(cache);
    CHECK(fake_live == 0, "%d grammars live", fake_live);
}

static void test_threads(void)
{
    run_waiters("slow", ESP_OK);
    run_waiters("slow fail", ESP_EUNSUPPORTED);
}

static void *churn(void *arg)
{
    struct esp_grammar_cache *cache = arg;
    for (int idx = 0; idx < 2000; idx++) {
        char text[32];
        snprintf(text, sizeof text, idx % 7 == 0 ? "fail%d" : "%d size=1000", idx * 31 % 23);
        touch(cache, text);
    }
    return NULL;
}

static void test_churn(void)
{
    struct esp_grammar_cache *cache;
    REQUIRE(esp_grammar_cache_create(8000, &cache) == ESP_OK, "create");
    pthread_t threads[4];
    for (size_t idx = 0; idx < N(threads); idx++) {
        REQUIRE(pthread_create(&threads[idx], NULL, churn, cache) == 0, "thread");
    }
    for (size_t idx = 0; idx < N(threads); idx++) {
        pthread_join(threads[idx], NULL);
    }
    CHECK(esp_grammar_cache_stats(cache).kept_bytes <= 8000, "cap");
    esp_grammar_cache_destroy(cache);
    CHECK(fake_live == 0, "%d grammars live", fake_live);
}

static void test_limits(void)
{
    struct esp_grammar_cache *cache;
    REQUIRE(esp_grammar_cache_create(8000, &cache) == ESP_OK, "create");
    struct esp_grammar_spec spec = spec_of("a");
    struct esp_grammar *grammar;
    spec.n_bytes = ESP_GRAMMAR_TEXT_BYTES_MAX + 1;
    CHECK(esp_grammar_cache_get(cache, NULL, &spec, &grammar, NULL) == ESP_ELIMIT, "too long a text");
    for (uint64_t n = 1; n < 10; n++) {
        esp_alloc_fail_at(n);
        esp_status status = touch(cache, "b");
        bool fired = esp_alloc_fail_at(0);
        CHECK(status == (fired ? ESP_ENOMEM : ESP_OK), "allocation %d: %s", (int)n, esp_status_name(status));
    }
    esp_grammar_cache_destroy(cache);
}

static void test_options(void)
{
    static const struct {
        const char *text;
        struct esp_grammar_options want;
    } good[] = {
        {NULL, {0}},
        {"", {0}},
        {"{}", {0}},
        {"{\"order\":\"declared\",\"whitespace\":\"compact\",\"escapes\":\"short\",\"formats\":\"assert\","
         "\"lenient\":false,\"mask_times\":true}", {0}},
        {"{\"order\":null}", {0}},
        {"{\"order\":\"any\",\"whitespace\":\"line\"}", {.order_any = true, .whitespace = ESP_WS_LINE}},
        {"{\"whitespace\":\"pretty\",\"escapes\":\"any\"}", {.whitespace = ESP_WS_PRETTY, .escapes_any = true}},
        {"{\"formats\":\"annotate\",\"lenient\":true}", {.formats_annotate = true, .lenient = true}},
    };
    static const char *const bad[][2] = {
        {"{\"ordre\":\"any\"}", "ordre"},   {"{\"order\":\"none\"}", "order"},    {"{\"order\":1}", "order"},
        {"{\"lenient\":\"yes\"}", "lenient"}, {"{\"mask_times\":1}", "mask_times"}, {"{\"fuel\":1}", "fuel"},
        {"[]", ""},                         {"{", ""},                            {"1", ""},
        {"{\"lenient\":true,\"lenient\":false}", ""},
    };
    for (size_t idx = 0; idx < N(good); idx++) {
        struct esp_grammar_options got;
        struct esp_err err = {0};
        CHECK(esp_grammar_options_parse(good[idx].text, &got, &err) == ESP_OK, "%zu: %s", idx, err.message);
        CHECK(got.order_any == good[idx].want.order_any && got.whitespace == good[idx].want.whitespace &&
                  got.escapes_any == good[idx].want.escapes_any && got.lenient == good[idx].want.lenient &&
                  got.formats_annotate == good[idx].want.formats_annotate && got.fuel == 0,
              "%zu", idx);
    }
    for (size_t idx = 0; idx < N(bad); idx++) {
        struct esp_grammar_options got;
        struct esp_err err = {0};
        CHECK(esp_grammar_options_parse(bad[idx][0], &got, &err) == ESP_EINVAL, "%s", bad[idx][0]);
        CHECK(err.message[0] != '\0' && strcmp(err.keyword, bad[idx][1]) == 0, "%s: %s, keyword %s", bad[idx][0],
              err.message, err.keyword);
    }
}

ESP_TEST_MAIN(T(test_content), T(test_eviction), T(test_threads), T(test_churn), T(test_limits), T(test_options))
