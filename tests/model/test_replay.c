/* What knowing conversations is worth: hit rates of the triage load, held against plain recency.
 *
 * ESPALIER_REPLAY_SESSIONS=N changes the number of sessions (1,500).
 */
#include "tests/bench/replay.h"

enum { POOL_TOKENS = 256000 };

static double rate(const struct replay_result *result)
{
    return (double)result->n_hit / (double)result->n_tokens;
}

static void run(double sessions_per_s, double scans, double rate_min, bool all_live)
{
    const char *wanted = getenv("ESPALIER_REPLAY_SESSIONS");
    uint32_t n_sessions = wanted == NULL ? 1500 : (uint32_t)strtoul(wanted, NULL, 10);
    struct replay_load load = replay_make(esp_test_state.seed, n_sessions, sessions_per_s, scans);
    struct replay_result known = replay_run(&load, POOL_TOKENS, false), lru = replay_run(&load, POOL_TOKENS, true);
    printf("# %.1f sessions/s, %.0f %% scans, %u requests: hit rate %.3f, by recency alone %.3f; lost by the living "
           "%llu and %llu tokens\n",
           sessions_per_s, 100 * scans, load.n, rate(&known), rate(&lru), (unsigned long long)known.n_lost,
           (unsigned long long)lru.n_lost);
    CHECK(rate(&known) >= rate_min, "%.3f is below %.3f", rate(&known), rate_min);
    CHECK(rate(&known) > rate(&lru), "recency alone is as good");
    CHECK(!all_live || known.n_lost == 0, "%llu tokens of the living were lost", (unsigned long long)known.n_lost);
    free(load.requests);
}

static void test_one_session_a_second(void)
{
    run(1, 0, 0.90, false);
}

static void test_three_sessions_a_second(void)
{
    run(3, 0, 0.72, false);
}

/* The live sessions fit the pool, and ten times the pool passes by in prompts that are never seen again. */
static void test_scans_leave_the_living(void)
{
    run(0.5, 0.3, 0.79, true);
}

ESP_TEST_MAIN(T(test_one_session_a_second), T(test_three_sessions_a_second), T(test_scans_leave_the_living))
