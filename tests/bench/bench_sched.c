/* What the engine's own bookkeeping costs a step: admission, plan, leases and tree, without any device.
 *
 * Cases, over a pool with 100,000 cached pages: 64 short prompts, 64 sequences that decode, long prompts that evict
 * while others decode, a long cached prompt, and 63 twins that wait for one writer. Prints one JSON object a case
 * with the mean and the worst time of a step. Thread: one.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/rng.h"
#include "runtime/sched.h"

#define N_PAGES 120000u
#define N_OLD 6250u /* pages of one old prompt: 100,000 tokens */
#define BATCH 64u
#define CHUNK 512u
#define TOKENS_MAX 100016u

struct desk {
    struct esp_tree *tree;
    struct esp_sched sched;
    struct esp_clock clock;
    uint64_t arrival;
    uint32_t tokens[TOKENS_MAX];
};

static struct esp_job *add(struct desk *desk, uint64_t text, uint32_t n_shared, uint32_t n, uint32_t n_max)
{
    for (uint32_t i = 0; i < n; i++) {
        desk->tokens[i] = (uint32_t)(esp_rng_at(i < n_shared ? 1 : text, i) % 50000);
    }
    struct esp_request request = {.tokens = desk->tokens, .n_tokens = n, .n_max = n_max, .n = 1,
                                  .sampling = esp_sampling_default()};
    struct esp_job_limits limits = {1u << 20, N_PAGES * ESP_TREE_PAGE_TOKENS, 50000};
    struct esp_job *job = NULL;
    if (esp_job_create(&request, &limits, &job, NULL) == ESP_OK) {
        job->seqs[0].arrival = desk->arrival++;
        esp_sched_add(&desk->sched, &job->seqs[0]);
    }
    return job;
}

static int64_t step(struct desk *desk)
{
    struct esp_sched *sched = &desk->sched;
    int64_t from_ns = esp_clock_now(&desk->clock);
    esp_tree_set_now(desk->tree, from_ns);
    esp_sched_admit(sched);
    esp_sched_plan(sched);
    esp_sched_end_copies(sched);
    const struct esp_plan *plan = &sched->plan;
    for (uint32_t i = 0; i < plan->n_items; i++) {
        plan->items[i].seq->n_computed = plan->items[i].from + plan->items[i].n;
        esp_lease_publish(&sched->lease, plan->items[i].seq, plan->items[i].n_announced);
    }
    for (uint32_t i = 0; i < plan->n_items; i++) {
        struct esp_seq *seq = plan->items[i].seq;
        esp_lease_enter(&sched->lease, seq);
        if (plan->items[i].wants_logits) {
            if (seq->state == ESP_SEQ_PREFILL) {
                esp_seq_move(seq, ESP_SEQ_DECODE);
            }
            seq->tokens[seq->n_tokens] = (uint32_t)(seq->arrival + seq->n_tokens) % 50000;
            seq->n_tokens++;
        }
    }
    return esp_clock_now(&desk->clock) - from_ns;
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
        esp_sched_remove(&desk->sched, &jobs[i]->seqs[0], ESP_CLASS_TAIL);
        esp_job_destroy(jobs[i]);
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
    static struct desk desk = {.arrival = 0};
    struct esp_tree_config config = {.n_pages = N_PAGES, .seed = 1, .hash_bits = 128};
    desk.clock = esp_clock_monotonic();
    if (esp_tree_create(&config, &desk.tree, NULL) != ESP_OK) {
        return 1;
    }
    struct esp_lease_ctx lease = {desk.tree, "m", 1, false};
    struct esp_sched_config sched = {BATCH, CHUNK};
    if (esp_sched_init(&desk.sched, &lease, &sched) != ESP_OK) {
        return 1;
    }
    run(&desk);
    esp_sched_finish(&desk.sched);
    esp_tree_destroy(desk.tree);
    return 0;
}
