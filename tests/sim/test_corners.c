/* Corners of the engine where two rules meet: full outboxes and preemption, copies and eviction, branches that end
 * one by one, answers that leave the cache before prompts do. Answers are compared by the rig.
 */
#include "tests/sim/rigkit.h"

static const struct rig_config small = {.n_pages = 64, .n_ctx = 1024, .n_batch_max = 16, .prefill_chunk = 256,
                                        .n_queue_max = 64, .end_token = ESP_TOKEN_NONE};

static struct rig_request own_request(uint64_t text, uint32_t n_prompt, uint32_t n_max)
{
    struct rig_request request = request_of(0, n_prompt, text, n_max);
    request.seed = 0;
    return request;
}

/* A sequence is preempted (by the question for logits, which wants the whole pool) when its outbox has just become
 * full, or some time after. What the engine knew of its outbox then is not what it may believe later. */
static void test_full_and_preempted(void)
{
    static const uint32_t tokens[64 * ESP_PAGE_TOKENS] = {1};
    for (uint32_t n_steps = 64; n_steps <= 67; n_steps++) {
        for (int polled = 0; polled < 2; polled++) {
            struct rig rig;
            REQUIRE(rig_init(&rig, &small));
            struct rig_request request = own_request(1, 20, 200);
            must_submit(&rig, &request);
            for (uint32_t i = 0; i < n_steps; i++) {
                rig_step(&rig, 0);
            }
            CHECK(metrics_of(&rig).generation_tokens == 64);
            CHECK(esp_logits(rig.engine, tokens, 64 * ESP_PAGE_TOKENS, visit_nothing, NULL, NULL) == ESP_OK);
            CHECK(metrics_of(&rig).preemptions == 1 && metrics_of(&rig).requests_running == 0);
            if (polled == 0) {
                rig_step(&rig, 0);
                CHECK(metrics_of(&rig).generation_tokens == 64, "no room, no token");
            } else {
                rig_poll(&rig, 64);
                CHECK(rig_step(&rig, 0), "there is room: the engine goes on at once");
            }
            drain_and_finish(&rig);
        }
    }
}

/* What a hot prompt needs stays, though answers that nobody asks for again were used later and fill the pool. */
static void test_tails_go_first(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &small));
    struct rig_request hot = own_request(1, 165, 4);
    must_submit(&rig, &hot);
    CHECK(rig_drain(&rig), "%s", rig.failure);
    for (uint64_t i = 0; i < 20; i++) { /* one page of prompt, ten of answer */
        struct rig_request once = own_request(100 + i, 17, 160);
        must_submit(&rig, &once);
        CHECK(rig_drain(&rig), "%s", rig.failure);
    }
    CHECK(metrics_of(&rig).kv_evicted_pages > 64, "the pool went round");
    struct rig_request *again = must_submit(&rig, &hot);
    CHECK(rig_drain(&rig), "%s", rig.failure);
    CHECK(again->branch[0].last.n_cached >= 160, "cached %u", again->branch[0].last.n_cached);
    /* A tail that is asked for again is a prompt from then on. */
    struct rig_request *once = rig.requests[rig.n_requests - 2];
    struct rig_request turn = *once;
    memcpy(turn.prompt + turn.n_prompt, once->branch[0].tokens, once->branch[0].n * sizeof turn.prompt[0]);
    turn.n_prompt += once->branch[0].n;
    turn.n_max = 3;
    memset(turn.branch, 0, sizeof turn.branch);
    for (int round = 0; round < 2; round++) {
        struct rig_request *kept = must_submit(&rig, &turn);
        CHECK(rig_drain(&rig), "%s", rig.failure);
        CHECK(kept->branch[0].last.n_cached >= 160, "round %d: cached %u", round, kept->branch[0].last.n_cached);
        for (uint64_t i = 0; i < 10; i++) {
            struct rig_request other = own_request(200 + i, 17, 160);
            must_submit(&rig, &other);
            CHECK(rig_drain(&rig), "%s", rig.failure);
        }
    }
    drain_and_finish(&rig);
}

/* One branch is stopped while it waits, computes its prompt, decodes, is full or is over; the others go on. */
static void test_stop_branch(void)
{
    struct rig rig;
    struct rig_config config = small;
    config.n_batch_max = 3;
    config.prefill_chunk = 16;
    for (uint32_t n_steps = 0; n_steps < 90; n_steps += n_steps < 12 ? 1 : 13) {
        REQUIRE(rig_init(&rig, &config));
        struct rig_request request = own_request(1, 40, 70);
        request.n = 4;
        struct rig_request *kept = must_submit(&rig, &request);
        for (uint32_t i = 0; i < n_steps; i++) {
            rig_step(&rig, n_steps < 70 ? 100 : 0);
        }
        rig_stop(&rig, kept, 2);
        rig_stop(&rig, kept, 2);
        rig_stop(&rig, kept, 3); /* waits: three run at once */
        rig_stop(&rig, kept, 4);
        rig_stop(&rig, kept, UINT32_MAX);
        rig_step(&rig, 1000);
        CHECK(kept->branch[2].done && kept->branch[2].last.finish == ESP_FINISH_STOP);
        CHECK(kept->branch[3].done && kept->branch[3].last.finish == ESP_FINISH_STOP);
        CHECK(n_steps > 70 || (!kept->branch[0].done && !kept->branch[1].done), "after %u steps", n_steps);
        CHECK(rig_drain(&rig), "%s", rig.failure);
        CHECK(kept->branch[0].n == 70 && kept->branch[1].n == 70 && kept->branch[0].last.finish == ESP_FINISH_LENGTH);
        rig_stop(&rig, kept, 1); /* gone */
        drain_and_finish(&rig);
    }
}

/* A cancel and a stop that reach the engine in the same step: each branch ends once. The next request in the
 * slot knows nothing of it. */
static void test_stop_and_cancel(void)
{
    struct rig rig;
    REQUIRE(rig_init(&rig, &small));
    struct rig_request request = own_request(1, 40, 70);
    request.n = 2;
    for (uint32_t round = 0; round < 2 * (64 + 32); round++) { /* every slot twice */
        struct rig_request *kept = must_submit(&rig, &request);
        if (round % 3 == 0) {
            rig_step(&rig, 0);
        }
        rig_stop(&rig, kept, 1);
        rig_cancel(&rig, kept);
        rig_step(&rig, 10);
        CHECK(kept->branch[0].done && kept->branch[0].last.finish == ESP_FINISH_CANCELLED, "round %u", round);
        CHECK(kept->branch[1].done && kept->branch[1].last.finish == ESP_FINISH_STOP, "round %u", round);
    }
    struct rig_request *kept = must_submit(&rig, &request);
    rig_drain(&rig);
    CHECK(kept->branch[1].last.finish == ESP_FINISH_LENGTH);
    CHECK(metrics_of(&rig).requests_finished[ESP_FINISH_CANCELLED] == 2 * (64 + 32));
    CHECK(metrics_of(&rig).requests_finished[ESP_FINISH_LENGTH] == 1);
    drain_and_finish(&rig);
}

/* A grammar whose masks are narrower than the logits is refused before anything looks at them. */
static void test_foreign_grammar(void)
{
    struct esp_trie_token tokens[ESP_HASH_VOCAB];
    for (uint32_t i = 0; i < ESP_HASH_VOCAB; i++) {
        tokens[i] = (struct esp_trie_token){"a", 1, i == RIG_END_TOKEN ? ESP_ROLE_END : ESP_ROLE_TEXT};
    }
    struct rig rig;
    REQUIRE(rig_init(&rig, &small));
    for (uint32_t n_missing = 0; n_missing < 2; n_missing++) {
        struct esp_trie *trie;
        REQUIRE(esp_trie_create(tokens, ESP_HASH_VOCAB - n_missing, &trie, NULL) == ESP_OK);
        struct rig_request request = own_request(1, 20, 5);
        request.grammar = rig_grammar(trie, ESP_GRAMMAR_REGEX, "a+");
        REQUIRE(request.grammar != NULL);
        esp_status status;
        struct esp_err err = {0};
        struct rig_request *kept = rig_submit(&rig, &request, &status, &err);
        CHECK((kept != NULL) == (n_missing == 0), "%u tokens fewer: %s", n_missing, err.message);
        CHECK(n_missing == 0 || (status == ESP_EINVAL && strcmp(err.place, "grammar") == 0), "status %d", status);
        rig_drain(&rig);
        esp_grammar_unref(request.grammar);
        esp_trie_destroy(trie);
    }
    CHECK(metrics_of(&rig).requests_finished[ESP_FINISH_LENGTH] + metrics_of(&rig).requests_finished[ESP_FINISH_STOP] ==
          1);
    drain_and_finish(&rig);
}

ESP_TEST_MAIN(T(test_full_and_preempted), T(test_tails_go_first), T(test_stop_branch), T(test_stop_and_cancel),
              T(test_foreign_grammar))
