/* What the engine's own bookkeeping costs a step: admission, plan, leases and tree, without any device.
 *
 * Cases, over a pool with 100,000 cached pages: 64 short prompts, 64 sequences that decode, the same beside a thousand
 * that wait, long prompts that evict while others decode, a long cached prompt, and 63 twins that wait for one writer;
 * two tenants. Prints one JSON object a case with the mean, the median and the worst CPU time of a step. Thread: one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/rng.h"
#include "tests/sim/desk.h"

#define N_PAGES 120000u
#define N_OLD 6250u /* pages of one old prompt: 100,000 tokens */
#define BATCH 64u
#define CHUNK 512u
#define TOKENS_MAX 100016u

#define STEPS_MAX 4000u
#define WAITING 1000u

static struct esp_clock wall;

/* CPU time, so that other programs on the machine do not count. */
static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

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
    desk->now_ns = esp_clock_now(&wall);
    int64_t from_ns = cpu_ns();
    desk_plan(desk);
    desk_compute(desk);
    return cpu_ns() - from_ns;
}

static void report(struct desk *desk, const char *name, uint32_t n_steps)
{
    static int64_t ns[STEPS_MAX];
    int64_t sum_ns = 0;
    for (uint32_t i = 0; i < n_steps; i++) {
        ns[i] = step(desk);
        sum_ns += ns[i];
    }
    qsort(ns, n_steps, sizeof ns[0], compare_ns);
    struct esp_tree_stats stats;
    esp_tree_get_stats(desk->tree, &stats);
    printf("{\"case\":\"%s\",\"running\":%u,\"cached_pages\":%u,\"steps\":%u,\"mean_us\":%.1f,"
           "\"median_us\":%.1f,\"worst_us\":%.1f}\n",
           name, desk->sched.n_running, stats.pages[ESP_PAGE_CACHED], n_steps, (double)sum_ns / n_steps / 1e3,
           (double)ns[n_steps / 2] / 1e3, (double)ns[n_steps - 1] / 1e3);
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
    static struct esp_job *waiting[WAITING];
    fill(desk);
    for (uint32_t i = 0; i < BATCH; i++) {
        jobs[i] = add(desk, 1000 + i, 500, 1000, 4000);
    }
    report(desk, "prompts of 64 sequences", 64 + 1);
    report(desk, "64 decode", 1000);
    for (uint32_t i = 0; i < WAITING; i++) {
        waiting[i] = add(desk, 10000 + i, 500, 1000, 100);
    }
    report(desk, "64 decode, 1,000 wait", 1000);
    for (uint32_t i = 0; i < WAITING; i++) {
        desk_end(desk, waiting[i], ESP_CLASS_TAIL);
    }
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
