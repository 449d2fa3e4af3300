/* The engine with a thread of its own: clients that submit and cancel at once, a poller that stops and
 * goes on, sleep without work, and closing at any moment. Answers need only be complete here; what they
 * must be is checked by the simulator.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "runtime/base/alloc.h"
#include "runtime/engine.h"
#include "tests/esptest.h"
#include "tests/sim/hash_device.h"

static esp_engine *start(uint32_t n_pages)
{
    struct esp_model *model;
    esp_engine *engine = NULL;
    if (esp_hash_model_create(ESP_HASH_VOCAB, 72, &model) != ESP_OK) {
        return NULL;
    }
    struct esp_engine_parts parts = {.model = model, .end_token = ESP_TOKEN_NONE, .clock = esp_clock_monotonic(),
                                     .tree_seed = 1, .tree_hash_bits = 128, .n_pages = n_pages, .n_ctx = 512,
                                     .n_batch_max = 8, .prefill_chunk = 64, .n_queue_max = 64};
    if (esp_engine_create(&parts, &engine, NULL) != ESP_OK) {
        esp_hash_model_destroy(model);
        return NULL;
    }
    CHECK(esp_engine_start(engine, NULL) == ESP_OK);
    return engine;
}

static esp_status submit(esp_engine *engine, uint64_t seed, uint32_t n_prompt, uint32_t n_max, esp_request_id *ret_id)
{
    uint32_t tokens[256];
    for (uint32_t i = 0; i < n_prompt; i++) {
        tokens[i] = (uint32_t)(esp_rng_at(i < 40 ? 1 : seed, i) % ESP_HASH_VOCAB);
    }
    struct esp_request request = {.tokens = tokens, .n_tokens = n_prompt, .n_max = n_max, .n = 1 + seed % 2,
                                  .sampling = esp_sampling_default()};
    return esp_submit(engine, &request, ret_id, NULL);
}

struct client {
    esp_engine *engine;
    uint64_t seed;
    uint32_t n_done_wanted; /* branches it submitted */
};

static void *client_main(void *arg)
{
    struct client *client = arg;
    struct esp_rng rng = {client->seed};
    for (int i = 0; i < 60; i++) {
        esp_request_id id;
        uint64_t seed = esp_rng_next(&rng);
        if (submit(client->engine, seed, 1 + (uint32_t)esp_rng_below(&rng, 100), 1 + (uint32_t)esp_rng_below(&rng, 90),
                   &id) != ESP_OK) {
            usleep(500);
            continue;
        }
        client->n_done_wanted += 1 + seed % 2;
        if (esp_rng_below(&rng, 3) == 0) {
            usleep((useconds_t)esp_rng_below(&rng, 300));
            esp_cancel(client->engine, id);
        }
        if (esp_rng_below(&rng, 3) == 0) {
            esp_stop(client->engine, id, (uint32_t)esp_rng_below(&rng, 2));
            esp_stop(client->engine, id - 1, 0); /* of another client, or nobody's */
        }
        if (esp_rng_below(&rng, 20) == 0) {
            esp_cache_flush(client->engine);
        }
        struct esp_metrics metrics;
        esp_get_metrics(client->engine, &metrics);
    }
    return NULL;
}

static void test_clients(void)
{
    enum { N = 3 };
    esp_engine *engine = start(40);
    REQUIRE(engine != NULL);
    struct client clients[N];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        clients[i] = (struct client){engine, esp_test_state.seed + (uint64_t)i, 0};
        pthread_create(&threads[i], NULL, client_main, &clients[i]);
    }
    struct esp_event event;
    uint32_t n_done = 0;
    uint32_t n_taken = 0;
    while (esp_poll(engine, 300 * 1000000, &event)) {
        n_done += event.kind == ESP_EVENT_DONE;
        if (++n_taken % 97 == 0) {
            usleep(2000); /* a poller that lags */
        }
    }
    uint32_t n_wanted = 0;
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        n_wanted += clients[i].n_done_wanted;
    }
    while (n_done < n_wanted && esp_poll(engine, 5000000000ll, &event)) {
        n_done += event.kind == ESP_EVENT_DONE;
    }
    CHECK(n_done == n_wanted && n_done > 50, "%u of %u branches ended", n_done, n_wanted);
    struct esp_metrics m;
    esp_get_metrics(engine, &m);
    CHECK(m.kv_pages_leased == 0 && m.requests_running == 0 && m.requests_waiting == 0);
    esp_engine_close(engine);
}

/* A request of 300 tokens that nobody polls: the engine falls asleep with a full outbox. */
static esp_engine *start_and_fill(esp_request_id *ret_id)
{
    esp_engine *engine = start(64);
    struct esp_metrics m = {0};
    CHECK(engine != NULL && submit(engine, 2, 10, 300, ret_id) == ESP_OK);
    for (int i = 0; engine != NULL && i < 1000 && m.generation_tokens < 64; i++) {
        usleep(1000);
        esp_get_metrics(engine, &m);
    }
    usleep(20000);
    return engine;
}

/* A cancel wakes a sleeping engine; the request's pages come back though nobody polls. */
static void test_cancel_wakes(void)
{
    esp_request_id id;
    esp_engine *engine = start_and_fill(&id);
    REQUIRE(engine != NULL);
    struct esp_metrics m = {.requests_running = 1};
    esp_cancel(engine, id);
    for (int i = 0; i < 1000 && m.requests_running > 0; i++) {
        usleep(1000);
        esp_get_metrics(engine, &m);
    }
    CHECK(m.requests_running == 0 && m.kv_pages_leased == 0);
    struct esp_event event = {0};
    uint32_t n = 0;
    while (event.kind != ESP_EVENT_DONE && esp_poll(engine, 3000000000ll, &event)) {
        n++;
    }
    CHECK(n == 65 && event.finish == ESP_FINISH_CANCELLED && event.n_generated == 64, "%u events", n);
    esp_engine_close(engine);
}

/* Taking events wakes it, and nothing is lost. */
static void test_stopped_poller(void)
{
    esp_request_id id;
    esp_engine *engine = start_and_fill(&id);
    REQUIRE(engine != NULL);
    struct esp_metrics m;
    esp_get_metrics(engine, &m);
    CHECK(m.generation_tokens == 64, "%llu tokens nobody took", (unsigned long long)m.generation_tokens);
    struct esp_event event = {0};
    uint32_t n = 0;
    while (event.kind != ESP_EVENT_DONE && esp_poll(engine, 3000000000ll, &event)) {
        n++;
    }
    CHECK(n == 301 && event.finish == ESP_FINISH_LENGTH, "%u events", n);
    esp_engine_close(engine);
}

static void *wake_main(void *arg)
{
    usleep(20000);
    esp_wake(arg);
    return NULL;
}

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void test_idle(void)
{
    esp_engine *engine = start(64);
    REQUIRE(engine != NULL);
    struct esp_event event;
    CHECK(!esp_poll(engine, 0, &event) && !esp_poll(engine, 1000000, &event), "nothing came");
    pthread_t waker;
    pthread_create(&waker, NULL, wake_main, engine);
    CHECK(!esp_poll(engine, -1, &event), "woken");
    pthread_join(waker, NULL);
    int64_t from_ns = cpu_ns();
    usleep(200000);
    CHECK(cpu_ns() - from_ns < 5000000, "%lld ns of CPU time while idle", (long long)(cpu_ns() - from_ns));
    esp_engine_close(engine);
}

/* Closing with requests queued, running, finished and unpolled, each after another delay. */
static void test_close(void)
{
    uint64_t n_live = esp_alloc_live();
    for (int i = 0; i < 40; i++) {
        esp_engine *engine = start(30);
        REQUIRE(engine != NULL);
        for (uint64_t k = 0; k < 12; k++) {
            esp_request_id id;
            submit(engine, k, 5 + (uint32_t)k * 7, 40, &id);
            if (k == 3) {
                esp_cancel(engine, id);
            }
        }
        usleep((useconds_t)i * 60);
        struct esp_event event;
        esp_poll(engine, 0, &event);
        esp_engine_close(engine);
    }
    esp_engine_close(NULL);
    CHECK(esp_alloc_live() == n_live);
}

ESP_TEST_MAIN(T(test_clients), T(test_stopped_poller), T(test_cancel_wakes), T(test_idle), T(test_close))
