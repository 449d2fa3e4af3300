/* What requests leave behind in an engine: pins, classes and their correction, names that share nothing. */
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <unistd.h>

#include "runtime/keep.h"
#include "tests/esptest.h"
#include "tests/sim/rig.h"

static const int64_t second_ns = 1000000000;

static const struct rig_config config = {
    .n_pages = 64, .n_ctx = 256, .n_batch_max = 4, .prefill_chunk = 64, .n_queue_max = 16,
    .end_token = ESP_TOKEN_NONE, .hash_bits = 128, .tree_seed = 1};

static uint32_t prompt[200];

static struct esp_request request_of(uint32_t seed, uint32_t n_tokens)
{
    for (uint32_t idx = 0; idx < n_tokens; idx++) {
        prompt[idx] = (idx * 7 + seed * (1 + idx / 3)) % ESP_HASH_VOCAB;
    }
    return (struct esp_request){
        .tokens = prompt, .n_tokens = n_tokens, .n_max = 4, .n = 1, .sampling = esp_sampling_default()};
}

/* Runs a request to its end. */
static struct esp_event run(struct rig *rig, const struct esp_request *request)
{
    esp_request_id id = 0;
    struct esp_event event = {0};
    CHECK(esp_submit(rig->engine, request, &id, NULL) == ESP_OK, "submit");
    for (int idx = 0; idx < 1000; idx++) {
        esp_engine_step(rig->engine);
        char reason[160];
        CHECK(esp_tree_check(esp_engine_tree(rig->engine), reason, sizeof reason), "%s", reason);
        while (esp_poll(rig->engine, 0, &event)) {
            if (event.kind == ESP_EVENT_DONE) {
                return event;
            }
        }
    }
    CHECK(false, "it never ends");
    return event;
}

static uint32_t n_counted[ESP_CLASSES];

static bool count(void *ctx, const struct esp_node_view *view)
{
    (void)ctx;
    n_counted[view->class]++;
    return true;
}

static uint32_t in_class(const struct rig *rig, enum esp_evict_class class)
{
    memset(n_counted, 0, sizeof n_counted);
    esp_tree_visit(esp_engine_tree(rig->engine), count, NULL);
    return n_counted[class];
}

static void test_pins(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &config), "rig");
    struct esp_request request = request_of(1, 100);
    struct esp_pin pins[] = {{40, 10 * second_ns}, {100, 20 * second_ns}};
    request.pins = pins;
    request.n_pins = 2;
    struct esp_event done = run(&rig, &request);
    CHECK(done.n_written == 96 && done.n_refused == 0, "%u written, %u refused", done.n_written, done.n_refused);
    CHECK(in_class(&rig, ESP_CLASS_PINNED) == 6, "six pages are pinned");
    done = run(&rig, &request);
    CHECK(done.n_written == 0 && done.n_refused == 0 && done.n_cached >= 96, "they are used again");
    for (uint32_t seed = 2; seed < 40; seed++) { /* pressure of ten times the pool */
        struct esp_request other = request_of(seed, 190);
        run(&rig, &other);
    }
    request = request_of(1, 100);
    done = run(&rig, &request);
    CHECK(done.n_cached >= 96, "%u tokens were kept", done.n_cached);
    rig.now_ns += 11 * second_ns;
    run(&rig, &request);
    CHECK(in_class(&rig, ESP_CLASS_PINNED) == 6, "the longer pin goes on, and was used now");
    rig.now_ns += 21 * second_ns;
    esp_engine_step(rig.engine);
    CHECK(in_class(&rig, ESP_CLASS_PINNED) == 0, "its time is over");
    struct esp_metrics metrics;
    esp_get_metrics(rig.engine, &metrics);
    CHECK(metrics.pins_granted == 4 && metrics.pins_refused == 0, "%llu", (unsigned long long)metrics.pins_granted);
    rig_finish(&rig);
}

static void test_pins_are_refused_whole(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &config), "rig"); /* 64 pages, 32 of them may be pinned */
    struct esp_pin pin = {190, 5 * second_ns};
    for (uint32_t seed = 1; seed <= 4; seed++) {
        struct esp_request request = request_of(seed, 190);
        request.pins = &pin;
        request.n_pins = 1;
        struct esp_event done = run(&rig, &request);
        bool fits = seed <= 2;
        CHECK(done.n_written == (fits ? 176 : 0) && done.n_refused == (fits ? 0 : 176), "request %u: %u and %u", seed,
              done.n_written, done.n_refused);
    }
    rig_finish(&rig);
}

/* A request that never computes its prompt gives its promise back. */
static void test_cancelled_pins_go_back(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &config), "rig");
    struct esp_pin pin = {190, 5 * second_ns};
    for (uint32_t n = 0; n < 10; n++) {
        struct esp_request request = request_of(n, 190);
        request.pins = &pin;
        request.n_pins = 1;
        esp_request_id id;
        REQUIRE(esp_submit(rig.engine, &request, &id, NULL) == ESP_OK, "submit");
        esp_engine_step(rig.engine);
        esp_cancel(rig.engine, id);
        for (int idx = 0; idx < 4; idx++) {
            struct esp_event event;
            esp_engine_step(rig.engine);
            while (esp_poll(rig.engine, 0, &event)) {
                CHECK(event.kind != ESP_EVENT_DONE || event.n_refused == 0, "request %u was refused", n);
            }
        }
    }
    rig_finish(&rig);
}

static void test_classes_and_their_correction(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &config), "rig");
    struct esp_request request = request_of(1, 100);
    struct esp_event done = run(&rig, &request);
    CHECK(in_class(&rig, ESP_CLASS_NORMAL) == 6, "the prompt of nobody in particular stays");
    esp_turn_over(rig.engine, done.id, true);
    esp_engine_step(rig.engine);
    CHECK(in_class(&rig, ESP_CLASS_RETURN) == 6, "a tool was called");
    esp_turn_over(rig.engine, done.id, false);
    esp_turn_over(rig.engine, done.id + 77, true);
    esp_engine_step(rig.engine);
    CHECK(in_class(&rig, ESP_CLASS_RETURN) == 0, "it was not");
    request = request_of(2, 100);
    request.session = "s";
    request.session_bytes = 1;
    request.n_head = 33;
    run(&rig, &request);
    CHECK(in_class(&rig, ESP_CLASS_NORMAL) == 6 + 2 && in_class(&rig, ESP_CLASS_TAIL) == 4, "its head stays");
    request = request_of(3, 100);
    request.comes_back = true;
    run(&rig, &request);
    CHECK(in_class(&rig, ESP_CLASS_RETURN) == 6, "as the request said");
    rig_finish(&rig);
}

/* Whoever waits for a tool is there when it comes back, whatever passes by meanwhile. */
static void test_scans_leave_the_living(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &config), "rig");
    struct esp_request request = request_of(1, 190);
    request.comes_back = true;
    run(&rig, &request);
    for (uint32_t seed = 2; seed < 60; seed++) {
        struct esp_request scan = request_of(seed, 190);
        run(&rig, &scan);
    }
    request = request_of(1, 190);
    CHECK(run(&rig, &request).n_cached >= 176, "kept");
    rig_finish(&rig);
}

static void test_names_are_exact(void)
{
    static const char *const names[][2] = {{"ab", "c"},   {"a", "bc"},  {"abc", NULL},
                                           {NULL, "abc"}, {NULL, NULL}, {"", ""}};
    struct rig rig;
    REQUIRE(rig_init(&rig, &config), "rig");
    for (size_t idx = 0; idx < sizeof names / sizeof names[0]; idx++) {
        struct esp_request request = request_of(1, 100);
        request.cache_salt = names[idx][0];
        request.cache_salt_bytes = names[idx][0] == NULL ? 0 : strlen(names[idx][0]);
        request.cache_key = names[idx][1];
        request.cache_key_bytes = names[idx][1] == NULL ? 0 : strlen(names[idx][1]);
        CHECK(run(&rig, &request).n_cached == 0, "pair %zu shares", idx);
        CHECK(run(&rig, &request).n_cached >= 96, "pair %zu does not share with itself", idx);
    }
    rig_finish(&rig);
}

static void test_bad_requests(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &config), "rig");
    struct esp_pin bad[][2] = {{{101, 1}, {0}}, {{10, 0}, {0}}, {{50, 1}, {40, 1}}};
    esp_request_id id;
    for (size_t idx = 0; idx < 3; idx++) {
        struct esp_request request = request_of(1, 100);
        struct esp_err err = {0};
        request.pins = bad[idx];
        request.n_pins = idx == 2 ? 2 : 1;
        esp_status status = esp_submit(rig.engine, &request, &id, &err);
        CHECK(status == ESP_EINVAL && strcmp(err.place, "pins") == 0, "pin %zu", idx);
    }
    struct esp_request request = request_of(1, 100);
    request.cache_key = prompt;
    request.cache_key_bytes = 1025;
    CHECK(esp_submit(rig.engine, &request, &id, NULL) == ESP_EINVAL, "a key too long");
    request = request_of(1, 100);
    request.session = prompt;
    request.session_bytes = 1025;
    CHECK(esp_submit(rig.engine, &request, &id, NULL) == ESP_EINVAL, "a session too long");
    rig_finish(&rig);
}

/* ---- The page file ----------------------------------------------------------------------------- */

static char path[64];
static uint64_t n_serial;
static _Atomic bool stuck;

static int open_it(const char *name, int flags, mode_t mode)
{
    return open(name, flags, mode);
}
static int lock_it(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB);
}
static off_t size_of(int fd)
{
    return lseek(fd, 0, SEEK_END);
}
/* A disk that does not answer while `stuck` is set. */
static ssize_t slow_pread(int fd, void *data, size_t n_bytes, off_t at)
{
    while (atomic_load(&stuck)) {
        usleep(1000);
    }
    return pread(fd, data, n_bytes, at);
}
static const struct esp_pagefile_io slow_io = {open_it, close,      lock_it, rename,   ftruncate,
                                               size_of, slow_pread, pwrite,  fdatasync};

static struct rig_config with_file(bool fresh)
{
    struct rig_config with = config;
    snprintf(path, sizeof path, "/tmp/esp_keep_%d.pages", (int)getpid());
    if (fresh) {
        unlink(path);
    }
    with.pagefile = path;
    with.pagefile_serial = ++n_serial << 40;
    with.pagefile_io = &slow_io;
    return with;
}

static uint64_t n_restored(const struct rig *rig)
{
    struct esp_metrics metrics;
    esp_get_metrics(rig->engine, &metrics);
    return metrics.kv_pages_restored;
}

/* Each answer is compared with the same request computed alone: a page that came back must be the right one. */
static uint32_t answer(struct rig *rig, uint32_t seed, bool comes_back)
{
    struct esp_request request = request_of(seed, 190);
    struct rig_request wanted = {.n_prompt = 190, .n_max = 8, .n = 1, .temperature = 1, .comes_back = comes_back};
    memcpy(wanted.prompt, request.tokens, 190 * sizeof(uint32_t));
    esp_status status;
    struct rig_request *kept = rig_submit(rig, &wanted, &status, NULL);
    CHECK(kept != NULL && rig_drain(rig), "%s", rig->failure);
    for (int idx = 0; idx < 50; idx++) { /* what waits to be saved is saved, on a thread if there is one */
        rig_step(rig, 0);
        usleep(rig->threaded ? 1000 : 0);
    }
    return kept == NULL ? 0 : kept->branch[0].last.n_cached;
}

static void test_pages_survive_a_restart(void)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        struct rig rig;
        struct rig_config with = with_file(true);
        with.tier_threaded = threaded;
        REQUIRE(rig_init(&rig, &with), "rig");
        CHECK(answer(&rig, 1, true) == 0 && answer(&rig, 2, false) == 0, "cold");
        rig_finish(&rig);
        for (int restart = 0; restart < 2; restart++) {
            with = with_file(false);
            with.tier_threaded = threaded;
            REQUIRE(rig_init(&rig, &with), "rig");
            CHECK(answer(&rig, 1, true) >= 176 && n_restored(&rig) == 11, "%llu pages came back",
                  (unsigned long long)n_restored(&rig));
            CHECK(answer(&rig, 2, false) >= 176, "the other prompt too");
            CHECK(answer(&rig, 3 + (uint32_t)restart, false) < 176, "and no other");
            rig_check_idle(&rig);
            CHECK(rig.failure[0] == '\0', "%s", rig.failure);
            rig_finish(&rig);
        }
    }
    unlink(path);
}

static void test_evicted_pages_come_back(void)
{
    struct rig rig;
    struct rig_config with = with_file(true);
    REQUIRE(rig_init(&rig, &with), "rig");
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t seed = 1; seed <= 8; seed++) { /* of which the pool holds five */
            uint32_t n_cached = answer(&rig, seed, true);
            CHECK(round == 0 || n_cached >= 176, "prompt %u: %u tokens", seed, n_cached);
        }
    }
    CHECK(n_restored(&rig) > 11, "%llu pages came back", (unsigned long long)n_restored(&rig));
    rig_finish(&rig);
    unlink(path);
}

/* Twins of a prompt that only the file knows: one reads, all use it. */
static void test_twins_share_a_read(void)
{
    struct rig rig;
    struct rig_config with = with_file(true);
    REQUIRE(rig_init(&rig, &with), "rig");
    answer(&rig, 1, true);
    esp_cache_flush(rig.engine);
    struct esp_request request = request_of(1, 190);
    struct rig_request wanted = {.n_prompt = 190, .n_max = 8, .n = 1};
    memcpy(wanted.prompt, request.tokens, 190 * sizeof(uint32_t));
    for (int idx = 0; idx < 4; idx++) {
        esp_status status;
        CHECK(rig_submit(&rig, &wanted, &status, NULL) != NULL, "submit");
    }
    CHECK(rig_drain(&rig), "%s", rig.failure);
    CHECK(n_restored(&rig) == 11, "%llu pages came back", (unsigned long long)n_restored(&rig));
    rig_finish(&rig);
    unlink(path);
}

/* Cancelled while its pages come: nothing is left behind, and the next one reads again. */
static void test_cancel_while_reading(void)
{
    struct rig rig;
    struct rig_config with = with_file(true);
    REQUIRE(rig_init(&rig, &with), "rig");
    answer(&rig, 1, true);
    rig_finish(&rig);
    with = with_file(false);
    with.tier_threaded = true;
    REQUIRE(rig_init(&rig, &with), "rig");
    struct esp_request request = request_of(1, 190);
    struct rig_request wanted = {.n_prompt = 190, .n_max = 8, .n = 1};
    memcpy(wanted.prompt, request.tokens, 190 * sizeof(uint32_t));
    for (int idx = 0; idx < 20; idx++) {
        esp_status status;
        atomic_store(&stuck, true);
        struct rig_request *kept = rig_submit(&rig, &wanted, &status, NULL);
        rig_step(&rig, 10);
        rig_cancel(&rig, kept);
        atomic_store(&stuck, false);
        CHECK(rig_drain(&rig), "%s", rig.failure);
        usleep(2000);
    }
    CHECK(answer(&rig, 1, true) >= 176, "it can still be read");
    rig_check_idle(&rig);
    CHECK(rig.failure[0] == '\0', "%s", rig.failure);
    rig_finish(&rig);
    unlink(path);
}

static void test_slow_disk_is_a_miss(void)
{
    struct rig rig;
    struct rig_config with = with_file(true);
    REQUIRE(rig_init(&rig, &with), "rig");
    answer(&rig, 1, true);
    rig_finish(&rig);
    with = with_file(false);
    with.tier_threaded = true;
    REQUIRE(rig_init(&rig, &with), "rig");
    atomic_store(&stuck, true);
    struct esp_request request = request_of(1, 190);
    esp_request_id id;
    struct esp_event event = {0};
    REQUIRE(esp_submit(rig.engine, &request, &id, NULL) == ESP_OK, "submit");
    uint32_t n_steps = 0;
    for (; n_steps < 100 && event.kind != ESP_EVENT_DONE; n_steps++) {
        rig.now_ns += 20000000;
        esp_engine_step(rig.engine);
        while (event.kind != ESP_EVENT_DONE && esp_poll(rig.engine, 0, &event)) {
        }
    }
    CHECK(event.kind == ESP_EVENT_DONE && event.finish == ESP_FINISH_LENGTH && event.n_cached == 0, "computed");
    CHECK(n_steps > 10 && n_steps < 30, "after a fifth of a second, %u steps", n_steps);
    request = request_of(2, 190);
    CHECK(run(&rig, &request).n_cached < 176, "the next one does not even wait");
    atomic_store(&stuck, false);
    rig.now_ns += ESP_KEEP_SLOW_NS;
    usleep(20000);
    esp_cache_flush(rig.engine);
    CHECK(answer(&rig, 1, true) >= 176, "later it is asked again");
    rig_finish(&rig);
    unlink(path);
}

ESP_TEST_MAIN(T(test_pins), T(test_pins_are_refused_whole), T(test_cancelled_pins_go_back),
              T(test_classes_and_their_correction), T(test_scans_leave_the_living), T(test_names_are_exact),
              T(test_bad_requests),
              T(test_pages_survive_a_restart), T(test_evicted_pages_come_back), T(test_twins_share_a_read),
              T(test_cancel_while_reading), T(test_slow_disk_is_a_miss))
