/* The whole engine under random loads, each checked against every request computed alone.
 *
 * A seed draws the sizes of the engine, documents that prompts share, and then arrivals, bursts of
 * twins, follow-up turns, cancels, flushes, questions and a poller of changing speed. The walker runs
 * after every step. A failure prints the seed: test_sim --seed N test_random runs from it.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/alloc.h"
#include "tests/esptest.h"
#include "tests/sim/rig.h"

#define N_SEEDS 1000
#define DOCS 3
#define DOC_TOKENS 200

static struct esp_grammar *grammars[3]; /* shared by all seeds, so that their masks are warm */
static struct esp_trie *trie;
static const uint32_t label_tokens[] = {1, 2, 1, 2, 7, 9, 9, 4, 4, 4, 4, 4};
static const struct esp_label labels[] = {{label_tokens, 1}, {label_tokens + 2, 3}, {label_tokens, 2},
                                          {label_tokens + 5, 2}, {label_tokens + 7, 5}};

static char path[64];
static struct esp_rng disk_rng;

/* A disk on which one call in twenty fails. */
static bool fails(void)
{
    errno = EIO;
    return esp_rng_below(&disk_rng, 20) == 0;
}
static int bad_open(const char *name, int flags, mode_t mode)
{
    return fails() ? -1 : open(name, flags, mode);
}
static int good_lock(int fd)
{
    (void)fd;
    return 0;
}
static off_t bad_size(int fd)
{
    return fails() ? -1 : lseek(fd, 0, SEEK_END);
}
static ssize_t bad_pread(int fd, void *data, size_t n_bytes, off_t at)
{
    return fails() ? -1 : pread(fd, data, n_bytes, at);
}
static ssize_t bad_pwrite(int fd, const void *data, size_t n_bytes, off_t at)
{
    return fails() ? pwrite(fd, data, n_bytes / 2, at) : pwrite(fd, data, n_bytes, at);
}
static const struct esp_pagefile_io bad_io = {bad_open, close,     good_lock,  rename,   ftruncate,
                                              bad_size, bad_pread, bad_pwrite, fdatasync};

struct load {
    struct esp_rng rng;
    struct rig rig;
    uint32_t docs[DOCS][DOC_TOKENS];
    uint32_t n_ctx;
    uint32_t n_refused;
};

static uint32_t below(struct load *load, uint64_t n)
{
    return (uint32_t)esp_rng_below(&load->rng, n);
}

static bool chance(struct load *load, uint32_t percent)
{
    return below(load, 100) < percent;
}

static void draw_engine(struct load *load)
{
    struct rig_config config = {
        .n_pages = 2 + below(load, chance(load, 60) ? 16 : 80),
        .n_ctx = 17 + below(load, 240),
        .n_batch_max = 1 + below(load, chance(load, 30) ? 3 : 16),
        .prefill_chunk = 1 + below(load, chance(load, 50) ? 20 : 100),
        .n_queue_max = 1 + below(load, 60),
        .end_token = chance(load, 70) ? 3 : ESP_TOKEN_NONE,
        .hash_bits = chance(load, 20) ? 4 : 128,
        .tree_seed = esp_rng_next(&load->rng),
        .cache_off = chance(load, 5),
        .pagefile = chance(load, 40) ? path : NULL, /* what one seed leaves there the next ones find */
        .pagefile_serial = esp_rng_next(&load->rng),
        .pagefile_io = chance(load, 50) ? &bad_io : NULL,
    };
    load->n_ctx = config.n_ctx;
    REQUIRE(rig_init(&load->rig, &config), "no engine");
    for (uint32_t d = 0; d < DOCS; d++) {
        /* Documents that begin alike, so that prefixes part inside pages too. */
        uint32_t shared = d == 0 ? 0 : below(load, DOC_TOKENS);
        memcpy(load->docs[d], load->docs[0], shared * sizeof(uint32_t));
        for (uint32_t i = shared; i < DOC_TOKENS; i++) {
            load->docs[d][i] = below(load, ESP_HASH_VOCAB);
        }
    }
}

static void draw_prompt(struct load *load, struct rig_request *request)
{
    const struct rig_request *old = NULL;
    if (load->rig.n_requests > 0 && chance(load, 30)) {
        old = load->rig.requests[below(load, load->rig.n_requests)];
    }
    uint32_t n = 0;
    if (old != NULL) { /* the next turn: what was asked, what was answered, and more */
        n = old->n_prompt;
        memcpy(request->prompt, old->prompt, n * sizeof(uint32_t));
        for (uint32_t i = 0; i < old->branch[0].n && n < RIG_TOKENS_MAX - 64; i++) {
            request->prompt[n++] = old->branch[0].tokens[i];
        }
    } else {
        n = below(load, DOC_TOKENS);
        memcpy(request->prompt, load->docs[below(load, DOCS)], n * sizeof(uint32_t));
    }
    for (uint32_t more = below(load, 24) + (n == 0); more > 0; more--) {
        request->prompt[n++] = below(load, ESP_HASH_VOCAB);
    }
    request->n_prompt = n;
}

static void draw_fork(struct load *load, struct rig_request *request)
{
    request->forked = chance(load, 15);
    if (!request->forked) {
        return;
    }
    request->n = 1 + below(load, RIG_BRANCHES_MAX);
    for (uint32_t b = 0; b < request->n; b++) {
        request->fork[b].n_suffix = chance(load, 20) ? 0 : below(load, 40);
        request->fork[b].n_max = chance(load, 50) ? 0 : 1 + below(load, 30);
        request->fork[b].grammar = chance(load, 25) ? grammars[below(load, 3)] : NULL;
        for (uint32_t i = 0; i < request->fork[b].n_suffix; i++) {
            request->fork[b].suffix[i] = below(load, ESP_HASH_VOCAB);
        }
    }
}

/* A prompt in idle time, cancelled now and then; and a question that must change nothing. */
static void ask_idle(struct load *load)
{
    struct esp_request request = {.tokens = load->docs[below(load, DOCS)], .n_tokens = 1 + below(load, DOC_TOKENS - 1),
                                  .sampling = esp_sampling_default()};
    struct esp_explanation why;
    esp_request_id id;
    esp_status status = esp_prefill(load->rig.engine, &request, &id, NULL);
    CHECK(status == ESP_OK || status == ESP_ELIMIT || status == ESP_EBUSY, "prefill: %d", status);
    if (status == ESP_OK && chance(load, 30)) {
        esp_cancel(load->rig.engine, id);
    }
    CHECK(esp_explain(load->rig.engine, &request, &why, NULL) == ESP_OK && why.n_cached < request.n_tokens, "explain");
    CHECK(why.have == ESP_TOKEN_NONE || why.have != why.want, "%u is not %u", why.have, why.want);
}

static bool fits(const struct load *load, const struct rig_request *request)
{
    uint32_t room = load->rig.n_ctx < load->rig.n_pool ? load->rig.n_ctx : load->rig.n_pool;
    uint32_t n_first = request->n_prompt + (request->forked ? request->fork[0].n_suffix : 0);
    bool all = request->n_prompt < room;
    for (uint32_t b = 0; b < request->n && request->forked; b++) {
        all = all && request->n_prompt + request->fork[b].n_suffix < room;
    }
    for (uint32_t i = 0; i < request->n_labels; i++) {
        all = all && n_first + labels[i].n_tokens + 2 * ESP_PAGE_TOKENS <= room;
    }
    return all;
}

static void submit(struct load *load)
{
    static const char *const salts[] = {NULL, NULL, NULL, "", "a", "ab"};
    struct rig_request request = {
        .n_max = 1 + below(load, chance(load, 50) ? 12 : 100),
        .n = chance(load, 15) ? 1 + below(load, RIG_BRANCHES_MAX) : 1,
        .seed = below(load, 4),
        .temperature = chance(load, 50) ? 0 : 1,
        .salt = salts[below(load, sizeof salts / sizeof salts[0])],
        .comes_back = chance(load, 30),
    };
    request.grammar = chance(load, 25) ? grammars[below(load, 3)] : NULL;
    request.end_token = RIG_END_TOKEN;
    static const char *const tenants[] = {NULL, NULL, "x", "y"};
    request.tenant = tenants[below(load, 4)];
    request.priority = chance(load, 20) ? (int)below(load, 5) - 2 : 0;
    draw_fork(load, &request);
    if (chance(load, 15)) {
        request.labels = labels;
        request.n_labels = 1 + below(load, 5);
    }
    draw_prompt(load, &request);
    if (chance(load, 15)) {
        request.pin = (struct esp_pin){1 + below(load, request.n_prompt), 1 + below(load, 1000000)};
    }
    for (uint32_t twins = chance(load, 20) ? 1 + below(load, 6) : 1; twins > 0; twins--) {
        esp_status status;
        struct esp_err err;
        rig_submit(&load->rig, &request, &status, &err);
        load->n_refused += status != ESP_OK;
        CHECK(status == ESP_OK || status == (fits(load, &request) ? ESP_EBUSY : ESP_ELIMIT), "status %d", status);
    }
}

static bool same_logits(void *ctx, uint32_t pos, const float *logits)
{
    struct esp_hash_ref *ref = ctx;
    float alone[ESP_HASH_VOCAB];
    esp_hash_ref_logits(&ref[pos], ESP_HASH_VOCAB, alone);
    CHECK(memcmp(alone, logits, sizeof alone) == 0, "logits at %u", pos);
    return true;
}

static void ask_logits(struct load *load)
{
    struct esp_hash_ref ref[DOC_TOKENS];
    const uint32_t *doc = load->docs[below(load, DOCS)];
    uint32_t n = 1 + below(load, DOC_TOKENS - 1);
    for (uint32_t i = 0; i < n; i++) {
        ref[i] = i == 0 ? (struct esp_hash_ref){0} : ref[i - 1];
        esp_hash_ref_feed(&ref[i], doc[i]);
    }
    struct esp_err err;
    esp_status status = esp_logits(load->rig.engine, doc, n, same_logits, ref, &err);
    bool fits = n <= load->rig.n_ctx && n <= load->rig.n_pool;
    CHECK(status == (fits ? ESP_OK : ESP_ELIMIT), "logits of %u tokens: %d", n, status);
}

static void act(struct load *load)
{
    struct rig *rig = &load->rig;
    uint32_t what = below(load, 100);
    if (what < 30) {
        submit(load);
    } else if (what < 37 && rig->n_requests > 0) {
        rig_cancel(rig, rig->requests[below(load, rig->n_requests)]);
    } else if (what < 39) {
        esp_cache_flush(rig->engine);
    } else if (what < 41) {
        ask_logits(load);
    } else if (what == 43 || what == 44) {
        ask_idle(load);
    } else if (what == 42 && rig->n_requests > 0) {
        esp_turn_over(rig->engine, rig->requests[below(load, rig->n_requests)]->id, chance(load, 50));
    } else if (what == 41) {
        char *text;
        CHECK(esp_cache_dump(rig->engine, below(load, 20), &text, NULL) == ESP_OK, "dump");
        esp_text_free(text);
    }
    rig_step(rig, chance(load, 70) ? 1000 : below(load, 4));
}

/* Grammars keep the states that they have built; all else must go with the engine. */
static size_t bytes_but_grammars(void)
{
    size_t n = 0;
    for (int tag = 0; tag < ESP_TAG_COUNT; tag++) {
        n += tag == ESP_TAG_GRAMMAR ? 0 : esp_alloc_bytes((enum esp_tag)tag);
    }
    return n;
}

/* Returns whether all was right. */
static bool run_seed(uint64_t seed, struct esp_metrics *ret_metrics)
{
    static struct load load;
    memset(&load, 0, sizeof load);
    load.rng.state = seed;
    size_t n_bytes = bytes_but_grammars();
    draw_engine(&load);
    for (uint32_t i = 20 + below(&load, 100); i > 0 && load.rig.failure[0] == '\0'; i--) {
        act(&load);
    }
    bool closes_early = chance(&load, 5);
    if (!closes_early && rig_drain(&load.rig)) {
        rig_check_idle(&load.rig);
        esp_get_metrics(load.rig.engine, ret_metrics);
    }
    CHECK(load.rig.failure[0] == '\0', "seed %llu: %s", (unsigned long long)seed, load.rig.failure);
    rig_finish(&load.rig);
    CHECK(bytes_but_grammars() == n_bytes, "seed %llu leaks", (unsigned long long)seed);
    return esp_test_state.n_failed == 0;
}

static void make_grammars(void)
{
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"},\"ok\":{\"type\":"
                                 "\"array\",\"items\":{\"enum\":[0,1,2,12,124]},\"maxItems\":40}},\"required\":[\"a\","
                                 "\"ok\"],\"additionalProperties\":false}";
    REQUIRE(rig_trie(&trie) == ESP_OK);
    grammars[0] = rig_grammar(trie, ESP_GRAMMAR_SCHEMA, schema);
    grammars[1] = rig_grammar(trie, ESP_GRAMMAR_REGEX, "[ab]{3,60}c?");
    grammars[2] = rig_grammar(trie, ESP_GRAMMAR_CHOICE, "[\"abc\",\"ab\",\"abab12\",\"true\"]");
    REQUIRE(grammars[0] != NULL && grammars[1] != NULL && grammars[2] != NULL, "a grammar does not compile");
}

static void test_random(void)
{
    struct esp_metrics sum = {0};
    const char *n_text = getenv("ESPALIER_SIM_SEEDS");
    uint64_t n_seeds = n_text == NULL ? N_SEEDS : strtoull(n_text, NULL, 10);
    uint64_t n_live = esp_alloc_live();
    snprintf(path, sizeof path, "/tmp/esp_sim_%d.pages", (int)getpid());
    make_grammars();
    for (uint64_t i = 0; i < n_seeds; i++) {
        struct esp_metrics m = {0};
        if (!run_seed(esp_test_state.seed + i, &m)) {
            printf("# run again with --seed %llu test_random\n", (unsigned long long)(esp_test_state.seed + i));
            return;
        }
        sum.kv_pages_saved += m.kv_pages_saved;
        sum.kv_pages_restored += m.kv_pages_restored;
        sum.pins_granted += m.pins_granted;
        sum.pins_refused += m.pins_refused;
        sum.preemptions += m.preemptions;
        sum.kv_evicted_pages += m.kv_evicted_pages;
        sum.prompt_tokens_cached += m.prompt_tokens_cached;
        sum.prompt_tokens_recomputed += m.prompt_tokens_recomputed;
        sum.generation_tokens += m.generation_tokens;
    }
    for (int i = 0; i < 3; i++) {
        esp_grammar_unref(grammars[i]);
    }
    esp_trie_destroy(trie);
    unlink(path);
    CHECK(esp_alloc_live() == n_live, "a matcher is left");
    /* A load that never reaches these paths proves nothing about them. */
    CHECK(n_seeds < 100 || (sum.preemptions > n_seeds / 8 && sum.kv_evicted_pages > n_seeds &&
                            sum.prompt_tokens_cached > n_seeds * 10 && sum.prompt_tokens_recomputed > n_seeds),
          "the load is too easy");
    CHECK(n_seeds < 100 || (sum.kv_pages_saved > n_seeds && sum.kv_pages_restored > n_seeds / 4 &&
                            sum.pins_granted > n_seeds / 4 && sum.pins_refused > n_seeds / 4),
          "the load is too easy: %llu saved, %llu restored, %llu and %llu pins",
          (unsigned long long)sum.kv_pages_saved, (unsigned long long)sum.kv_pages_restored,
          (unsigned long long)sum.pins_granted, (unsigned long long)sum.pins_refused);
    printf("# %llu seeds: %llu tokens generated, %llu cached, %llu recomputed, %llu preemptions, %llu evictions\n",
           (unsigned long long)n_seeds, (unsigned long long)sum.generation_tokens,
           (unsigned long long)sum.prompt_tokens_cached, (unsigned long long)sum.prompt_tokens_recomputed,
           (unsigned long long)sum.preemptions, (unsigned long long)sum.kv_evicted_pages);
}

ESP_TEST_MAIN(T(test_random))
