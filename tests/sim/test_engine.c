/* The engine on the hash device, one behaviour a test. Answers are compared by the rig. */
#include "runtime/base/alloc.h"
#include "tests/sim/rigkit.h"

/* 64 requests at once with one new prefix: it is computed once. */
static void test_burst(void)
{
    enum { SHARED = 2000, OWN = 7, N = 64 }; /* 125 whole pages */
    struct rig rig;
    REQUIRE(rig_init(&rig, &rig_big));
    for (uint64_t i = 0; i < N; i++) {
        struct rig_request request = request_of(SHARED, OWN, i, 3);
        must_submit(&rig, &request);
    }
    CHECK(rig_drain(&rig), "%s", rig.failure);
    struct esp_metrics m = metrics_of(&rig);
    CHECK(m.prompt_tokens_computed == SHARED + N * OWN, "computed %llu", (unsigned long long)m.prompt_tokens_computed);
    CHECK(m.prompt_tokens_cached == (N - 1) * SHARED, "cached %llu", (unsigned long long)m.prompt_tokens_cached);
    CHECK(m.prompt_tokens_recomputed == 0 && m.preemptions == 0);
    drain_and_finish(&rig);
}

/* The writer of a shared prefix is cancelled midway: the twins go on from what it had written. */
static void test_writer_cancelled(void)
{
    struct rig rig;
    struct rig_config config = rig_big;
    config.prefill_chunk = 64;
    REQUIRE(rig_init(&rig, &config));
    struct rig_request request = request_of(400, 5, 0, 3);
    struct rig_request *writer = must_submit(&rig, &request);
    for (uint64_t i = 1; i < 5; i++) {
        struct rig_request twin = request_of(400, 5, i, 3);
        must_submit(&rig, &twin);
    }
    rig_step(&rig, 0);
    rig_step(&rig, 0);
    rig_cancel(&rig, writer);
    CHECK(rig_drain(&rig), "%s", rig.failure);
    struct esp_metrics m = metrics_of(&rig);
    CHECK(m.prompt_tokens_computed == 400 + 4 * 5, "computed %llu", (unsigned long long)m.prompt_tokens_computed);
    CHECK(writer->branch[0].last.finish == ESP_FINISH_CANCELLED && writer->branch[0].n == 0);
    drain_and_finish(&rig);
}

static uint32_t cached_of(struct rig *rig, const char *salt)
{
    struct rig_request request = request_of(97, 0, 0, 2);
    request.salt = salt;
    struct rig_request *kept = must_submit(rig, &request);
    rig_drain(rig);
    return kept->branch[0].last.n_cached;
}

static void test_salts(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &rig_big));
    CHECK(cached_of(&rig, NULL) == 0);
    CHECK(cached_of(&rig, "") == 0, "an empty salt is a salt");
    CHECK(cached_of(&rig, "a") == 0);
    CHECK(cached_of(&rig, "hash") == 0, "a salt is no model name");
    CHECK(cached_of(&rig, NULL) == 96 && cached_of(&rig, "") == 96 && cached_of(&rig, "a") == 96);
    CHECK(esp_cache_flush(rig.engine) > 0);
    CHECK(cached_of(&rig, NULL) == 0, "flushed");
    drain_and_finish(&rig);
}

/* Prompt lengths around page borders, asked twice: at most one token less than all is cached. */
static void test_borders(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &rig_big));
    for (uint32_t n = 1; n <= 66; n++) {
        esp_cache_flush(rig.engine);
        struct rig_request request = request_of(n, 0, 0, 20);
        must_submit(&rig, &request);
        rig_drain(&rig);
        struct rig_request *again = must_submit(&rig, &request);
        rig_drain(&rig);
        /* 20 generated tokens have filled the last page of the prompt, so all but one token is there; with
         * a prompt under one page, too, once the page is full. */
        bool full = (n + 19) / ESP_PAGE_TOKENS > (n - 1) / ESP_PAGE_TOKENS;
        CHECK(again->branch[0].last.n_cached == (full ? n - 1 : (n - 1) / 16 * 16), "%u of %u cached",
              again->branch[0].last.n_cached, n);
    }
    drain_and_finish(&rig);
}

static void test_cache_off(void)
{
    struct rig rig;
    struct rig_config config = rig_big;
    config.cache_off = true;
    REQUIRE(rig_init(&rig, &config));
    CHECK(cached_of(&rig, NULL) == 0 && cached_of(&rig, NULL) == 0);
    struct esp_metrics m = metrics_of(&rig);
    CHECK(m.kv_pages[ESP_PAGES_CACHED] == 0 && m.prompt_tokens_computed == 194);
    drain_and_finish(&rig);
}

/* More work than pages: sequences are preempted, resumed, and none fails or changes. */
static void test_pressure(void)
{
    struct rig rig;
    struct rig_config config = rig_big;
    config.n_pages = 20;
    config.n_ctx = 300;
    config.prefill_chunk = 32;
    REQUIRE(rig_init(&rig, &config));
    for (uint64_t i = 0; i < 24; i++) {
        struct rig_request request = request_of(20, 30, i, 150);
        request.temperature = (float)(i % 2);
        must_submit(&rig, &request);
    }
    CHECK(rig_drain(&rig), "%s", rig.failure);
    struct esp_metrics m = metrics_of(&rig);
    CHECK(m.preemptions > 10, "%llu preemptions", (unsigned long long)m.preemptions);
    CHECK(m.requests_finished[ESP_FINISH_LENGTH] == 24);
    /* No ping-pong: who was preempted comes back only when there is room for all it knows. */
    CHECK(m.preemptions < 24 * 4 && m.prompt_tokens_recomputed < 24 * 200, "%llu preemptions, %llu rows run again",
          (unsigned long long)m.preemptions, (unsigned long long)m.prompt_tokens_recomputed);
    drain_and_finish(&rig);
}

/* B171: a cached prefix is there, but no page for what follows it: the second waits and is as if alone. */
static void test_no_page_to_go_on(void)
{
    for (uint32_t n_pages = 7; n_pages <= 12; n_pages++) {
        struct rig rig;
        struct rig_config config = rig_big;
        config.n_pages = n_pages;
        config.n_ctx = n_pages * ESP_PAGE_TOKENS;
        REQUIRE(rig_init(&rig, &config));
        struct rig_request first = request_of(60, 4, 1, 40), second = request_of(60, 9, 2, 40);
        must_submit(&rig, &first);
        for (int i = 0; i < 20; i++) {
            rig_step(&rig, 1000);
        }
        struct rig_request *waits = must_submit(&rig, &second);
        CHECK(rig_drain(&rig), "%u pages: %s", n_pages, rig.failure);
        CHECK(waits->branch[0].last.finish == ESP_FINISH_LENGTH && waits->branch[0].n == 40, "%u pages", n_pages);
        drain_and_finish(&rig);
    }
}

static void test_refusals(void)
{
    struct rig rig;
    struct rig_config config = rig_big;
    config.n_pages = 8;
    config.n_ctx = 200;
    config.n_queue_max = 2;
    REQUIRE(rig_init(&rig, &config));
    struct esp_err err;
    esp_status status;
    struct rig_request request = request_of(200, 0, 0, 1);
    CHECK(rig_submit(&rig, &request, &status, &err) == NULL && status == ESP_ELIMIT);
    CHECK(strstr(err.message, "200") != NULL && strcmp(err.place, "tokens") == 0, "%s", err.message);
    request.n_prompt = 128;
    CHECK(rig_submit(&rig, &request, &status, &err) == NULL && status == ESP_ELIMIT);
    CHECK(strstr(err.message, "128 tokens and the page pool holds 128") != NULL, "%s", err.message);
    request.n_prompt = 127;
    request.n_max = 50; /* cut to the one token that fits */
    struct rig_request *kept = must_submit(&rig, &request);
    must_submit(&rig, &request);
    CHECK(rig_submit(&rig, &request, &status, &err) == NULL && status == ESP_EBUSY, "the queue holds two");
    rig_drain(&rig);
    CHECK(kept->branch[0].n == 1 && kept->branch[0].last.finish == ESP_FINISH_LENGTH);
    must_submit(&rig, &request);
    drain_and_finish(&rig);
}

static void check_invalid(struct rig *rig, const struct esp_request *request, const char *place)
{
    struct esp_err err;
    esp_request_id id;
    CHECK(esp_submit(rig->engine, request, &id, &err) == ESP_EINVAL && strcmp(err.place, place) == 0, "%s: %s", place,
          err.place);
}

static void test_invalid(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &rig_big));
    const uint32_t tokens[] = {1, 2, ESP_HASH_VOCAB};
    float bias[] = {1, (float)(1e300 * 1e300)};
    const struct esp_request good = {.tokens = tokens, .n_tokens = 2, .n_max = 1, .n = 1,
                                     .sampling = esp_sampling_default()};
#define BAD(field, value, place)                                                                             \
    do {                                                                                                     \
        struct esp_request bad = good;                                                                       \
        bad.field = value;                                                                                   \
        check_invalid(&rig, &bad, place);                                                                    \
    } while (0)
    BAD(n_tokens, 0, "tokens");
    BAD(n_tokens, 3, "tokens");
    BAD(n_max, 0, "n_max");
    BAD(n, 0, "n");
    BAD(n, 65, "n");
    BAD(sampling.temperature, -1, "temperature");
    BAD(sampling.temperature, bias[1] - bias[1], "temperature");
    BAD(sampling.top_p, 1.5f, "top_p");
    BAD(sampling.min_p, -0.1f, "min_p");
    BAD(sampling.repetition_penalty, 0, "repetition_penalty");
    BAD(sampling.presence_penalty, bias[1], "presence_penalty");
    BAD(sampling.n_top_logprobs, 21, "n_top_logprobs");
    BAD(sampling.n_bias, 1, "n_bias");
#undef BAD
    struct esp_request bad = good;
    bad.sampling.bias_ids = tokens;
    bad.sampling.bias = bias;
    bad.sampling.n_bias = 2;
    check_invalid(&rig, &bad, "bias");
    drain_and_finish(&rig);
}

/* Nobody polls: the sequence stops when its outbox is full, others too, and nothing is lost. */
static void test_slow_poller(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &rig_big));
    for (uint64_t i = 0; i < 3; i++) {
        struct rig_request request = request_of(20, 5, i, 200);
        must_submit(&rig, &request);
    }
    uint32_t n_steps = 0;
    while (rig_step(&rig, 0) && n_steps < 1000) {
        n_steps++;
    }
    struct esp_metrics m = metrics_of(&rig);
    CHECK(n_steps < 100 && m.generation_tokens == 3 * 64, "%llu tokens after %u steps",
          (unsigned long long)m.generation_tokens, n_steps);
    rig_step(&rig, 1); /* one event taken: one sequence may go on */
    rig_step(&rig, 0);
    CHECK(metrics_of(&rig).generation_tokens == 3 * 64 + 1);
    drain_and_finish(&rig);
}

static void test_cancel(void)
{
    struct rig rig;
    struct rig_config config = rig_big;
    config.n_batch_max = 2;
    config.prefill_chunk = 16;
    REQUIRE(rig_init(&rig, &config));
    struct rig_request *kept[4];
    for (uint64_t i = 0; i < 4; i++) {
        struct rig_request request = request_of(0, 50, i, 300);
        request.n = i == 0 ? 2 : 1;
        kept[i] = must_submit(&rig, &request);
    }
    rig_step(&rig, 10);
    esp_cancel(rig.engine, kept[3]->id + 1);         /* unknown */
    esp_cancel(rig.engine, kept[3]->id + (1ull << 32)); /* another generation */
    CHECK(metrics_of(&rig).requests_running == 1 && metrics_of(&rig).requests_waiting == 3);
    rig_cancel(&rig, kept[2]); /* queued */
    rig_cancel(&rig, kept[0]); /* midway in its prompt, both branches */
    rig_step(&rig, 10);
    CHECK(kept[0]->branch[1].done && kept[2]->branch[0].done && !kept[1]->branch[0].done);
    CHECK(metrics_of(&rig).kv_pages_leased <= 1, "pages of cancelled requests came back at once");
    for (int i = 0; i < 8; i++) {
        rig_step(&rig, 10);
    }
    rig_cancel(&rig, kept[1]); /* decoding */
    rig_cancel(&rig, kept[1]);
    rig_drain(&rig);
    rig_cancel(&rig, kept[1]); /* finished and polled */
    rig_step(&rig, 10);
    CHECK(metrics_of(&rig).requests_finished[ESP_FINISH_CANCELLED] == 3);
    drain_and_finish(&rig);
}

static const char digits[] = "(12|4|5|7){3,4}"; /* of the vocabulary of the rig */

/* Constrained answers: as computed alone, ended by the end token, through a resume too. */
static void test_grammar(void)
{
    struct esp_trie *trie;
    REQUIRE(rig_trie(&trie) == ESP_OK);
    struct esp_grammar *grammar = rig_grammar(trie, ESP_GRAMMAR_REGEX, digits);
    struct esp_grammar *longer = rig_grammar(trie, ESP_GRAMMAR_REGEX, "[abc]{80,90}");
    REQUIRE(grammar != NULL && longer != NULL);
    struct rig rig;
    struct rig_config config = rig_big;
    config.n_pages = 16;
    REQUIRE(rig_init(&rig, &config));
    struct rig_request request = request_of(20, 5, 0, 50);
    request.grammar = grammar;
    request.n = 3;
    struct rig_request *kept = must_submit(&rig, &request);
    CHECK(rig_drain(&rig), "%s", rig.failure);
    for (uint32_t b = 0; b < 3; b++) {
        CHECK(kept->branch[b].last.finish == ESP_FINISH_STOP && kept->branch[b].n >= 3 && kept->branch[b].n <= 8,
              "%u tokens", kept->branch[b].n);
    }
    CHECK(metrics_of(&rig).mask.n > 6, "masks are timed");
    for (uint64_t i = 0; i < 6; i++) {
        request = request_of(20, 15, i, 100);
        request.grammar = longer;
        request.temperature = 1;
        must_submit(&rig, &request);
    }
    CHECK(rig_drain(&rig), "%s", rig.failure);
    CHECK(metrics_of(&rig).preemptions > 0);
    drain_and_finish(&rig);
    esp_grammar_unref(grammar);
    esp_grammar_unref(longer);
    esp_trie_destroy(trie);
}

static void run_one_with(const struct esp_trie_token *tokens, uint32_t n_tokens, const char *regex,
                         enum esp_finish finish, uint32_t n_generated)
{
    struct esp_trie *trie;
    struct rig rig;
    REQUIRE(esp_trie_create(tokens, n_tokens, &trie, NULL) == ESP_OK);
    REQUIRE(rig_init(&rig, &rig_big));
    struct rig_request request = request_of(20, 0, 0, 50);
    request.grammar = rig_grammar(trie, ESP_GRAMMAR_REGEX, regex);
    request.end_token = tokens[2].role == ESP_ROLE_END ? 2 : ESP_TOKEN_NONE;
    REQUIRE(request.grammar != NULL);
    struct rig_request *kept = must_submit(&rig, &request);
    rig_drain(&rig);
    const struct esp_event *last = &kept->branch[0].last;
    CHECK(kept->branch[0].done && last->finish == finish && last->n_generated == n_generated, "finish %d after %u",
          (int)last->finish, last->n_generated);
    CHECK((finish == ESP_FINISH_ERROR) == (last->error[0] != '\0'), "error text \"%s\"", last->error);
    CHECK(metrics_of(&rig).requests_finished[finish] == 1);
    drain_and_finish(&rig);
    esp_grammar_unref(request.grammar);
    esp_trie_destroy(trie);
}

/* Where the mask has no bit: complete without an end token in the vocabulary, and a dead end (the token that
 * would go on is one for which the model has no row). */
static void test_empty_mask(void)
{
    struct esp_trie_token tokens[ESP_HASH_VOCAB + 2];
    for (uint32_t i = 0; i < ESP_HASH_VOCAB + 2; i++) {
        tokens[i] = (struct esp_trie_token){"a", 1, i == 2 ? ESP_ROLE_END : ESP_ROLE_CONTROL};
    }
    tokens[7].role = ESP_ROLE_TEXT;
    tokens[ESP_HASH_VOCAB + 1] = (struct esp_trie_token){"b", 1, ESP_ROLE_TEXT};
    run_one_with(tokens, ESP_HASH_VOCAB + 2, "aaab", ESP_FINISH_ERROR, 3);
    run_one_with(tokens, ESP_HASH_VOCAB + 2, "aaa", ESP_FINISH_STOP, 3);
    tokens[2].role = ESP_ROLE_CONTROL;
    run_one_with(tokens, ESP_HASH_VOCAB + 2, "aaaa", ESP_FINISH_STOP, 4);
}

/* With masks that were made before, constrained decoding allocates nothing either. */
static void test_no_alloc_grammar(void)
{
    struct esp_trie *trie;
    REQUIRE(rig_trie(&trie) == ESP_OK);
    struct esp_grammar *grammar = rig_grammar(trie, ESP_GRAMMAR_REGEX, "[abc]*");
    struct rig rig;
    REQUIRE(grammar != NULL && rig_init(&rig, &rig_big));
    for (int round = 0; round < 2; round++) {
        struct rig_request request = request_of(40, 11, 1, 100);
        request.grammar = grammar;
        must_submit(&rig, &request);
        for (int i = 0; i < 4; i++) {
            rig_step(&rig, 1000);
        }
        uint64_t n_calls = esp_alloc_calls();
        for (int i = 0; i < 60; i++) {
            rig_step(&rig, 1000);
        }
        CHECK(round == 0 || esp_alloc_calls() == n_calls, "%llu allocations",
              (unsigned long long)(esp_alloc_calls() - n_calls));
        rig_drain(&rig);
    }
    drain_and_finish(&rig);
    esp_grammar_unref(grammar);
    esp_trie_destroy(trie);
}

/* Decoding allocates nothing, whatever was allocated to get there. */
static void test_no_alloc(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &rig_big));
    for (uint64_t i = 0; i < 8; i++) {
        struct rig_request request = request_of(40, 11, i, 100);
        must_submit(&rig, &request);
    }
    for (int i = 0; i < 4; i++) {
        rig_step(&rig, 1000);
    }
    uint64_t n_calls = esp_alloc_calls();
    for (int i = 0; i < 90; i++) { /* over several borders of pages */
        rig_step(&rig, 1000);
    }
    CHECK(esp_alloc_calls() == n_calls, "%llu allocations", (unsigned long long)(esp_alloc_calls() - n_calls));
    CHECK(rig.n_open == 8, "still decoding");
    drain_and_finish(&rig);
}

/* Every allocation of an engine's life fails once; what fails is reported and leaks nothing. */
static void test_alloc_failures(void)
{
    static const uint32_t idle_tokens[40] = {1, 2, 3};
    static const struct esp_label labels[] = {{idle_tokens, 3}, {idle_tokens, 1}};
    uint64_t n_live = esp_alloc_live();
    bool fired = true;
    uint64_t n = 0;
    while (fired && n < 500) {
        n++;
        struct rig rig;
        esp_alloc_fail_at(n);
        struct rig_config config = rig_big;
        config.n_pages = 16;
        if (rig_init(&rig, &config)) {
            for (uint64_t i = 0; i < 3; i++) {
                struct rig_request request = request_of(30, 5, i, 20);
                request.n = 2;
                request.salt = i == 0 ? "s" : NULL;
                request.forked = i == 1;
                request.fork[1].n_suffix = 20;
                request.labels = i == 2 ? labels : NULL;
                request.n_labels = i == 2 ? 2 : 0;
                esp_status status;
                rig_submit(&rig, &request, &status, NULL);
                CHECK(status == ESP_OK || status == ESP_ENOMEM, "status %d", status);
            }
            rig_drain(&rig);
            char *text = NULL;
            esp_cache_dump(rig.engine, 100, &text, NULL);
            esp_text_free(text);
            struct esp_explanation why;
            struct esp_request idle = {.tokens = idle_tokens, .n_tokens = 40, .sampling = esp_sampling_default()};
            esp_request_id id;
            esp_explain(rig.engine, &idle, &why, NULL);
            esp_prefill(rig.engine, &idle, &id, NULL);
            esp_logits(rig.engine, (const uint32_t[]){1, 2}, 2, visit_nothing, NULL, NULL);
            rig_check_idle(&rig);
            CHECK(rig.failure[0] == '\0', "allocation %llu: %s", (unsigned long long)n, rig.failure);
            rig_finish(&rig);
        }
        fired = esp_alloc_fail_at(0);
        CHECK(esp_alloc_live() == n_live, "allocation %llu leaks", (unsigned long long)n);
    }
    CHECK(n > 30 && n < 500, "%llu allocations walked", (unsigned long long)n);
}

/* Every operation of the device fails once: the requests of that step end with an error, others do not. */
static void test_device_failures(void)
{
    static const uint32_t texts[] = {1, 2, 3};
    static const struct esp_label labels[] = {{texts, 3}, {texts + 1, 1}};
    uint64_t n_live = esp_alloc_live();
    for (uint64_t n = 1; n < 300; n++) {
        struct rig rig;
        struct rig_config config = rig_big;
        config.n_pages = 64;
        config.n_batch_max = 3;
        REQUIRE(rig_init(&rig, &config));
        esp_hash_fail_at(rig.model->dev, n);
        for (uint64_t i = 0; i < 5; i++) {
            struct rig_request request = request_of(40, 5, i, 6);
            request.labels = i == 1 ? labels : NULL;
            request.n_labels = i == 1 ? 2 : 0;
            must_submit(&rig, &request)->cancelled = true; /* it may be cut short */
        }
        for (int i = 0; i < 200 && rig.n_open > 0; i++) {
            rig_step(&rig, 1000);
        }
        uint32_t n_errors = 0;
        for (uint32_t i = 0; i < rig.n_requests; i++) {
            n_errors += rig.requests[i]->branch[0].last.finish == ESP_FINISH_ERROR;
        }
        CHECK(rig.n_open == 0 && n_errors <= 3, "operation %llu: %u failed", (unsigned long long)n, n_errors);
        rig.failure[0] = '\0'; /* an error is neither a cancel nor an end as alone */
        esp_hash_fail_at(rig.model->dev, 0);
        struct rig_request request = request_of(40, 5, 0, 6);
        must_submit(&rig, &request);
        CHECK(rig_drain(&rig), "operation %llu: %s", (unsigned long long)n, rig.failure);
        struct esp_metrics m = metrics_of(&rig);
        CHECK(m.kv_pages_leased == 0 && m.kv_pages[ESP_PAGES_PENDING] == 0 && m.kv_pages[ESP_PAGES_PRIVATE] == 0);
        rig_finish(&rig);
    }
    CHECK(esp_alloc_live() == n_live);
}

ESP_TEST_MAIN(T(test_burst), T(test_writer_cancelled), T(test_salts), T(test_borders), T(test_cache_off),
              T(test_pressure), T(test_no_page_to_go_on), T(test_refusals), T(test_invalid), T(test_slow_poller),
              T(test_cancel), T(test_no_alloc), T(test_grammar), T(test_empty_mask), T(test_no_alloc_grammar),
              T(test_alloc_failures), T(test_device_failures))
