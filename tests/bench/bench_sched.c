/* What the engine's own bookkeeping costs a step: admission, plan, leases and tree, without any device.
 *
 * Cases, over a pool with 100,000 cached pages: 64 short prompts, 64 sequences that decode, long prompts that evict
 * while others decode, a long cached prompt, and 63 twins that wait for one writer. Prints one JSON object a case
 * with the mean and the worst time of a step. Thread: one.
 */
#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/base/rng.h"
#include "tests/sim/desk.h"

#define N_PAGES 120000u
#define N_OLD 6250u /* pages of one old prompt: 100,000 tokens */
#define BATCH 64u
#define CHUNK 512u
#define TOKENS_MAX 100016u

static struct esp_clock wall;

static struct esp_job *add(struct desk *desk, uint64_t text, uint32_t n_shared, uint32_t n, uint32_t n_max)
{
    static uint32_t tokens[TOKENS_MAX];
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (uint32_t)(esp_rng_at(i < n_shared ? 1 : text, i) % DESK_VOCAB);
    }
    struct desk_work work = {.tenant = text % 2 == 0 ? "a" : "b", .n_max = n_max};
    return desk_add(desk, tokens, n, &work);
}

static int64_t step(struct desk *desk)
{
    int64_t from_ns = esp_clock_now(&wall);
    desk->now_ns = from_ns;
    desk_plan(desk);
    desk_compute(desk);
    return esp_clock_now(&wall) - from_ns;
}

static void report(struct desk *desk, const char *name, uint32_t n_steps)
{
    int64_t sum_ns = 0, worst_ns = 0;
    for (uint32_t i = 0; i < n_steps; i++) {
        int64_t ns = step(desk);
        sum_ns += ns;
        worst_ns = ns > worst_ns ? ns : worst_ns;
    }
    struct esp_tree_stats stats;
    esp_tree_get_stats(desk->tree, &stats);
    printf("{\"case\":\"%s\",\"running\":%u,\"cached_pages\":%u,\"steps\":%u,\"mean_us\":%.1f,"
           "\"worst_us\":%.1f}\n",
           name, desk->sched.n_running, stats.pages[ESP_PAGE_CACHED], n_steps, (double)sum_ns / n_steps / 1e3,
           (double)worst_ns / 1e3);
}

static void end_all(struct desk *desk, struct esp_job **jobs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        desk_end(desk, jobs[i], ESP_CLASS_TAIL);
    }
}

static void fill(struct desk *desk)
{
    for (uint32_t i = 0; i < 16; i++) {
        struct esp_job *job = add(desk, 100 + i, 0, N_OLD * ESP_TREE_PAGE_TOKENS + 1, 2);
        while (job->seqs[0].state != ESP_SEQ_DECODE) {
            step(desk);
        }
        end_all(desk, &job, 1);
    }
}

static void run(struct desk *desk)
{
    struct esp_job *jobs[BATCH];
    fill(desk);
    for (uint32_t i = 0; i < BATCH; i++) {
        jobs[i] = add(desk, 1000 + i, 500, 1000, 4000);
    }
    report(desk, "prompts of 64 sequences", 64 + 1);
    report(desk, "64 decode", 2000);
    end_all(desk, jobs, BATCH);
    for (uint32_t i = 0; i < BATCH - 1; i++) {
        jobs[i] = add(desk, 2000 + i, 500, 16000, 4000);
    }
    report(desk, "63 decode, prompts of 16,000 before", 63 * 32);
    jobs[BATCH - 1] = add(desk, 100, 0, 99000, 1000000);
    report(desk, "63 decode, one takes a cached prompt of 99,000", 500);
    end_all(desk, jobs, BATCH);
    for (uint32_t i = 0; i < BATCH; i++) {
        jobs[i] = add(desk, 3000 + i, 20000, 20020, 100);
    }
    report(desk, "63 twins wait for a writer of 20,000 tokens", 39);
    end_all(desk, jobs, BATCH);
}

int main(void)
{
    static struct desk desk;
    wall = esp_clock_monotonic();
    if (!desk_init(&desk, N_PAGES, BATCH, CHUNK)) {
        return 1;
    }
    run(&desk);
    desk_finish(&desk);
    return 0;
}
