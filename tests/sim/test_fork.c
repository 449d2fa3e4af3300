/* Branches from one state, labels and their probabilities, prompts computed in idle time, and twins in every state.
 * Answers and scores are compared by the rig with the same request computed alone.
 */
#include "tests/sim/rigkit.h"

/* Branch b of the request gets n tokens of its own as a suffix. */
static void add_branch(struct rig_request *request, uint32_t n_suffix, uint32_t n_max, struct esp_grammar *grammar)
{
    uint32_t b = request->forked ? request->n++ : 0;
    request->forked = true;
    request->n = b + 1;
    request->fork[b].n_suffix = n_suffix;
    request->fork[b].n_max = n_max;
    request->fork[b].grammar = grammar;
    for (uint32_t i = 0; i < n_suffix; i++) {
        request->fork[b].suffix[i] = (uint32_t)(esp_rng_at(900 + b, i) % ESP_HASH_VOCAB);
    }
}

static void test_fork(void)
{
    struct esp_trie *trie;
    REQUIRE(rig_trie(&trie) == ESP_OK);
    struct esp_grammar *grammar = rig_grammar(trie, ESP_GRAMMAR_REGEX, "(12|4|5|7){3,4}");
    struct rig rig;
    REQUIRE(grammar != NULL && rig_init(&rig, &rig_big));
    struct rig_request request = request_of(800, 0, 3, 20);
    add_branch(&request, 0, 0, NULL);
    add_branch(&request, 40, 30, NULL);
    add_branch(&request, 7, 50, grammar);
    add_branch(&request, 16, 1, grammar);
    request.temperature = 1;
    struct rig_request *kept = must_submit(&rig, &request);
    CHECK(rig_drain(&rig), "%s", rig.failure);
    struct esp_metrics m = metrics_of(&rig);
    CHECK(m.prompt_tokens_computed == 800 + 40 + 7 + 16 && m.prompt_tokens_recomputed == 0, "%llu rows",
          (unsigned long long)m.prompt_tokens_computed);
    CHECK(kept->branch[0].n == 20 && kept->branch[1].n == 30 && kept->branch[3].n == 1);
    CHECK(kept->branch[2].last.finish == ESP_FINISH_STOP, "the grammar ended it");
    struct rig_request *again = must_submit(&rig, &request);
    CHECK(rig_drain(&rig), "%s", rig.failure);
    CHECK(again->branch[1].last.n_cached == 799 || again->branch[1].last.n_cached == 800, "%u",
          again->branch[1].last.n_cached);
    CHECK(again->branch[1].last.n_cached_suffix >= 32, "%u", again->branch[1].last.n_cached_suffix);
    drain_and_finish(&rig);
    esp_grammar_unref(grammar);
    esp_trie_destroy(trie);
}

static void test_fork_refused(void)
{
    struct rig rig;
    struct rig_config config = rig_big;
    config.n_ctx = 100;
    REQUIRE(rig_init(&rig, &config));
    uint32_t tokens[] = {1, 2, ESP_HASH_VOCAB};
    struct esp_request request = {.tokens = tokens, .n_tokens = 2, .n_max = 5, .sampling = esp_sampling_default()};
    struct esp_branch branches[2] = {{tokens, 1, 0, NULL}, {tokens, 3, 0, NULL}};
    esp_request_id id;
    struct esp_err err;
    CHECK(esp_fork(rig.engine, &request, branches, 0, &id, &err) == ESP_EINVAL && strcmp(err.place, "branches") == 0);
    CHECK(esp_fork(rig.engine, &request, branches, 65, &id, &err) == ESP_EINVAL, "%s", err.place);
    CHECK(esp_fork(rig.engine, &request, branches, 2, &id, &err) == ESP_EINVAL, "a token outside the vocabulary");
    CHECK(strcmp(err.place, "branches[1].suffix") == 0 && strstr(err.message, "position 4") != NULL, "%s", err.message);
    uint32_t many[98] = {1};
    branches[1] = (struct esp_branch){many, 98, 0, NULL};
    CHECK(esp_fork(rig.engine, &request, branches, 2, &id, &err) == ESP_ELIMIT && strstr(err.message, "100") != NULL);
    branches[1] = (struct esp_branch){NULL, 3, 0, NULL};
    CHECK(esp_fork(rig.engine, &request, branches, 2, &id, &err) == ESP_EINVAL);
    struct esp_label label = {tokens, 0};
    request.n = 1;
    request.labels = &label;
    request.n_labels = 1;
    CHECK(esp_submit(rig.engine, &request, &id, &err) == ESP_EINVAL && strcmp(err.place, "labels") == 0);
    label.n_tokens = 3;
    CHECK(esp_submit(rig.engine, &request, &id, &err) == ESP_EINVAL && strcmp(err.place, "labels") == 0);
    label = (struct esp_label){many, 67};
    CHECK(esp_submit(rig.engine, &request, &id, &err) == ESP_ELIMIT && strcmp(err.place, "labels") == 0);
    request.n_labels = 1025;
    CHECK(esp_submit(rig.engine, &request, &id, &err) == ESP_EINVAL && strcmp(err.place, "n_labels") == 0);
    drain_and_finish(&rig);
}

static const uint32_t texts[8][6] = {{1, 2, 3}, {1, 2, 4, 5}, {1, 2}, {1}, {9, 9, 9, 9, 9, 9}, {7}, {1, 2, 3}, {8, 1}};
static const struct esp_label labels[] = {{texts[0], 3}, {texts[1], 4}, {texts[2], 2}, {texts[3], 1},
                                          {texts[4], 6}, {texts[5], 1}, {texts[6], 3}, {texts[7], 2}};

/* Whatever the place of the prompt's end in its page, the size of a batch, and the end token. */
static void test_labels(void)
{
    for (uint32_t n_prompt = 30; n_prompt <= 34; n_prompt++) {
        for (uint32_t n_batch_max = 1; n_batch_max <= 8; n_batch_max++) {
            struct rig rig;
            struct rig_config config = rig_big;
            config.n_batch_max = n_batch_max;
            config.prefill_chunk = 8;
            config.end_token = n_batch_max % 2 == 0 ? 3 : ESP_TOKEN_NONE;
            REQUIRE(rig_init(&rig, &config));
            for (uint32_t n = 1; n <= 8; n += 7) {
                struct rig_request request = request_of(n_prompt, 0, 1, n == 1 ? 1 : 5);
                request.labels = labels;
                request.n_labels = n;
                must_submit(&rig, &request);
                must_submit(&rig, &request);
            }
            drain_and_finish(&rig);
        }
    }
}

/* Scores while pages are short: others are preempted for it, it is preempted itself, and all comes out the same. */
static void test_labels_under_pressure(void)
{
    uint64_t n_preemptions = 0;
    for (uint32_t n_pages = 6; n_pages < 20; n_pages++) {
        struct rig rig;
        struct rig_config config = rig_big;
        config.n_pages = n_pages;
        config.n_ctx = 90;
        config.n_batch_max = 6;
        config.prefill_chunk = 32;
        REQUIRE(rig_init(&rig, &config));
        for (uint64_t i = 0; i < 20; i++) {
            struct rig_request request = request_of(20, 5 + (uint32_t)i, i, i < 4 ? 1 : 10 + 3 * (uint32_t)i);
            request.labels = i % 2 == 0 ? labels : NULL;
            request.n_labels = i % 2 == 0 ? 8 : 0;
            request.tenant = i % 3 == 0 ? "a" : NULL;
            must_submit(&rig, &request);
            rig_step(&rig, 1000);
        }
        CHECK(rig_drain(&rig), "%u pages: %s", n_pages, rig.failure);
        n_preemptions += metrics_of(&rig).preemptions;
        drain_and_finish(&rig);
    }
    CHECK(n_preemptions > 20, "%llu preemptions", (unsigned long long)n_preemptions);
}

/* Scoring the first one preempts the others in the very step in which they drew their only token. */
static void test_labels_preempt_labels(void)
{
    static const uint32_t text[40] = {5, 4, 3};
    static const struct esp_label long_labels[] = {{text, 40}, {text, 2}};
    struct rig rig;
    struct rig_config config = rig_big;
    config.n_pages = 7;
    config.n_ctx = 112;
    REQUIRE(rig_init(&rig, &config));
    for (uint64_t i = 0; i < 5; i++) {
        struct rig_request request = request_of(20, 11, i, 1);
        request.labels = long_labels;
        request.n_labels = 2;
        must_submit(&rig, &request);
    }
    CHECK(rig_drain(&rig), "%s", rig.failure);
    CHECK(metrics_of(&rig).preemptions > 0);
    drain_and_finish(&rig);
}

/* What a tool call will come back with is computed while nothing else is, counted apart, and found afterwards. */
static void test_prefill(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &rig_big));
    struct rig_request request = request_of(500, 0, 0, 4);
    struct esp_request idle = {.tokens = request.prompt, .n_tokens = 490, .sampling = esp_sampling_default()};
    esp_request_id id;
    CHECK(esp_prefill(rig.engine, &idle, &id, NULL) == ESP_OK);
    while (rig_step(&rig, 10)) {
    }
    struct esp_metrics m = metrics_of(&rig);
    CHECK(m.idle_prefill_tokens == 480 && m.prompt_tokens_computed == 0 && m.requests_finished[ESP_FINISH_LENGTH] == 0);
    CHECK(m.kv_pages_leased == 0 && m.requests_waiting == 0 && m.kv_pages[ESP_PAGES_CACHED] == 30);
    struct rig_request *kept = must_submit(&rig, &request);
    CHECK(rig_drain(&rig), "%s", rig.failure);
    CHECK(kept->branch[0].last.n_cached == 480, "%u", kept->branch[0].last.n_cached);
    CHECK(esp_prefill(rig.engine, &idle, &id, NULL) == ESP_OK, "all there already");
    while (rig_step(&rig, 10)) {
    }
    CHECK(metrics_of(&rig).idle_prefill_tokens == 480);
    /* Cancelled in the queue, midway, and after its end; too many; too long. */
    for (uint32_t n_steps = 0; n_steps < 12; n_steps++) {
        esp_cache_flush(rig.engine);
        CHECK(esp_prefill(rig.engine, &idle, &id, NULL) == ESP_OK);
        for (uint32_t i = 0; i < n_steps; i++) {
            rig_step(&rig, 10);
        }
        esp_cancel(rig.engine, id);
        while (rig_step(&rig, 10)) {
        }
        CHECK(metrics_of(&rig).kv_pages_leased == 0);
    }
    for (uint32_t i = 0; i < 64; i++) {
        CHECK(esp_prefill(rig.engine, &idle, &id, NULL) == ESP_OK);
    }
    CHECK(esp_prefill(rig.engine, &idle, &id, NULL) == ESP_EBUSY);
    must_submit(&rig, &request); /* real work finds its place beside them */
    CHECK(rig_drain(&rig), "%s", rig.failure);
    while (rig_step(&rig, 10)) {
    }
    uint32_t many[4096] = {1};
    idle.tokens = many;
    idle.n_tokens = 4096;
    CHECK(esp_prefill(rig.engine, &idle, &id, NULL) == ESP_ELIMIT);
    drain_and_finish(&rig);
}

enum { TWIN_PROMPT = 400, TWINS = 5 };
enum interruption { CANCELLED, PREEMPTED, STOPPED, INTERRUPTIONS };

static void submit_twins(struct rig *rig, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        struct rig_request twin = request_of(TWIN_PROMPT, 5, i, 3);
        must_submit(rig, &twin);
    }
}

/* The first of some twins is interrupted after n_steps. late: the others come only then. */
static void run_twins(uint32_t n_steps, bool late, enum interruption how, uint32_t n_batch_max)
{
    struct rig rig;
    struct rig_config config = rig_big;
    config.prefill_chunk = 64;
    config.n_batch_max = n_batch_max;
    REQUIRE(rig_init(&rig, &config));
    submit_twins(&rig, 0, late ? 1 : TWINS);
    for (uint32_t i = 0; i < n_steps; i++) {
        rig_step(&rig, 100);
    }
    submit_twins(&rig, late ? 1 : TWINS, TWINS);
    if (how == CANCELLED) {
        rig_cancel(&rig, rig.requests[0]);
    } else if (how == PREEMPTED) {
        rig_preempt(&rig);
    } else {
        rig_stop(&rig, rig.requests[0], 0);
        rig.requests[0]->cancelled = true; /* its prompt may never be computed */
    }
    CHECK(rig_drain(&rig), "%s", rig.failure);
    struct esp_metrics m = metrics_of(&rig);
    CHECK(m.prompt_tokens_computed >= TWIN_PROMPT + (TWINS - 1) * 5 &&
          m.prompt_tokens_computed <= TWIN_PROMPT + TWINS * 5, "%u steps, late %d, how %d, batch %u: %llu computed",
          n_steps, late, how, n_batch_max, (unsigned long long)m.prompt_tokens_computed);
    /* What a preemption loses is a part of a page, of whoever runs. */
    CHECK(m.prompt_tokens_recomputed <= (how == PREEMPTED ? TWINS * ESP_PAGE_TOKENS : 0), "%llu computed again",
          (unsigned long long)m.prompt_tokens_recomputed);
    drain_and_finish(&rig);
}

/* Twins of one new prompt, in every state of the first one (queued, in each chunk, decoding, over) and of the others
 * (queued behind it, held beside it, coming later): it is computed once, by whoever is there. */
static void test_twins(void)
{
    for (uint32_t n_steps = 0; n_steps <= 11; n_steps++) {
        for (int how = 0; how < INTERRUPTIONS; how++) {
            for (int late = 0; late < 2; late++) {
                run_twins(n_steps, late == 1, (enum interruption)how, 1);
                run_twins(n_steps, late == 1, (enum interruption)how, 8);
            }
        }
    }
}

ESP_TEST_MAIN(T(test_fork), T(test_fork_refused), T(test_labels), T(test_labels_under_pressure),
              T(test_labels_preempt_labels), T(test_prefill), T(test_twins))
