/* Who gets the engine: tenants, locality, age, priority, sessions, deadlines, and long overload. The scheduler runs
 * on a desk; a step takes 2 ms and 0.25 ms a row. Loads are drawn from the seed that is printed.
 */
#include "tests/esptest.h"
#include "tests/sim/desk.h"

#define STEP_NS 2000000
#define ROW_NS 250000
#define JOBS_MAX 100000
#define TOKENS_MAX 2048

struct entry {
    struct esp_job *job;
    bool light, first_seen;
    uint32_t n_goal; /* tokens at which it is over */
    int64_t cancel_ns;
};

struct load {
    struct desk desk;
    struct entry *live[1024];
    uint32_t n_live;
    struct entry entries[JOBS_MAX];
    uint32_t n_entries;
    int64_t ttft_ns[JOBS_MAX]; /* of light ones */
    uint32_t n_ttft;
    uint32_t n_ended, n_cancelled, n_expired;
    int64_t waited_ns_max;
};
static struct load load; /* too large for the stack */

static uint32_t drawn(uint32_t below)
{
    return (uint32_t)esp_rng_below(&esp_test_state.rng, below);
}

static void load_init(uint32_t n_pages, uint32_t n_batch_max, uint32_t chunk)
{
    memset(&load, 0, sizeof load);
    CHECK(desk_init(&load.desk, n_pages, n_batch_max, chunk));
}

/* n_shared tokens of document `doc`, then n_own of its own. */
static struct entry *submit(uint64_t doc, uint32_t n_shared, uint32_t n_own, const struct desk_work *work)
{
    uint32_t tokens[TOKENS_MAX];
    uint64_t own = 1000000 + load.n_entries;
    for (uint32_t i = 0; i < n_shared + n_own; i++) {
        tokens[i] = (uint32_t)(esp_rng_at(i < n_shared ? doc : own, i) % DESK_VOCAB);
    }
    struct esp_job *job = desk_add(&load.desk, tokens, n_shared + n_own, work);
    CHECK(job != NULL);
    struct entry *entry = &load.entries[load.n_entries++];
    *entry = (struct entry){.job = job, .n_goal = job->seqs[0].n_cap, .cancel_ns = INT64_MAX};
    load.live[load.n_live++] = entry;
    return entry;
}

static void end_entry(uint32_t at, enum esp_evict_class class)
{
    desk_end(&load.desk, load.live[at]->job, class);
    load.live[at]->job = NULL;
    load.live[at] = load.live[--load.n_live];
}

static void look_at(uint32_t at)
{
    struct entry *entry = load.live[at];
    struct esp_seq *seq = &entry->job->seqs[0];
    int64_t waited_ns = load.desk.now_ns - entry->job->submit_ns;
    if (!entry->first_seen && seq->n_tokens > entry->job->n_prompt) {
        entry->first_seen = true;
        load.waited_ns_max = waited_ns > load.waited_ns_max ? waited_ns : load.waited_ns_max;
        if (entry->light) {
            load.ttft_ns[load.n_ttft++] = waited_ns;
        }
    }
    if (seq->n_tokens >= entry->n_goal) {
        load.n_ended++;
        end_entry(at, ESP_CLASS_TAIL);
    } else if (load.desk.now_ns >= entry->cancel_ns) {
        load.n_cancelled++;
        end_entry(at, ESP_CLASS_NORMAL);
    }
}

static void step(void)
{
    const struct esp_plan *plan = desk_plan(&load.desk);
    uint32_t n_rows = plan->n_rows;
    desk_compute(&load.desk);
    load.desk.now_ns += STEP_NS + (int64_t)n_rows * ROW_NS;
    for (uint32_t i = load.n_live; i-- > 0;) {
        look_at(i);
    }
    char reason[256];
    CHECK(load.desk.sched.n_steps % 256 != 0 || esp_tree_check(load.desk.tree, reason, sizeof reason), "%s", reason);
}

static void drain(uint32_t n_steps_max)
{
    for (uint32_t i = 0; i < n_steps_max && load.n_live > 0; i++) {
        step();
    }
    CHECK(load.n_live == 0, "%u still there", load.n_live);
    while (load.n_live > 0) {
        end_entry(0, ESP_CLASS_NORMAL);
    }
    struct esp_tree_stats stats;
    esp_tree_get_stats(load.desk.tree, &stats);
    CHECK(stats.leased == 0 && stats.pages[ESP_PAGE_PRIVATE] == 0 && stats.pages[ESP_PAGE_PENDING] == 0, "pages leak");
    CHECK(load.desk.sched.fair.n_queued == 0 && load.desk.sched.fair.n_prioritized == 0);
    for (uint32_t i = 0; i < load.desk.sched.fair.n_tenants; i++) {
        CHECK(load.desk.sched.fair.tenants[i].n_live == 0, "tenant %u has something left", i);
    }
    desk_finish(&load.desk);
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t ttft_p99(void)
{
    qsort(load.ttft_ns, load.n_ttft, sizeof load.ttft_ns[0], compare_ns);
    return load.n_ttft == 0 ? 0 : load.ttft_ns[(load.n_ttft * 99 - 1) / 100];
}

static struct entry *submit_light(uint32_t n_own, uint32_t n_max)
{
    struct desk_work work = {.tenant = "light", .n_max = n_max};
    struct entry *entry = submit(7, 64, n_own, &work);
    entry->light = true;
    return entry;
}

/* 300 requests of a tenant, one at a time with pauses, beside a tenant that always has 150 more waiting than there is
 * room for; first alone, to know what it costs. */
static int64_t light_ttft(uint32_t n_own, bool beside_flood)
{
    load_init(600, 32, 512);
    int64_t next_ns = 0;
    while (load.n_ttft < 300) {
        for (uint32_t n = load.n_live; beside_flood && n < 150; n++) {
            struct desk_work work = {.tenant = "flood", .n_max = 20 + drawn(100)};
            submit(drawn(3), 160, 40 + drawn(400), &work);
        }
        if (load.desk.now_ns >= next_ns) {
            submit_light(n_own, 10);
            next_ns = load.desk.now_ns + n_own * 2000000ll + drawn(500) * 1000000ll;
        }
        if (beside_flood || load.n_live > 0) {
            step();
        } else {
            load.desk.now_ns = next_ns;
        }
    }
    int64_t ns = ttft_p99();
    while (load.n_live > 0) {
        end_entry(0, ESP_CLASS_NORMAL);
    }
    drain(0);
    return ns;
}

static void test_light_beside_flood(void)
{
    static const uint32_t sizes[] = {80, 300, 1200};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int64_t idle_ns = light_ttft(sizes[i], false), busy_ns = light_ttft(sizes[i], true);
        CHECK(busy_ns <= 2 * idle_ns, "%u tokens: p99 of %.1f ms, idle %.1f ms", sizes[i], (double)busy_ns / 1e6,
              (double)idle_ns / 1e6);
        printf("# light tenant, %u new tokens: p99 of time to first token %.1f ms idle, %.1f ms beside a flood\n",
               sizes[i], (double)idle_ns / 1e6, (double)busy_ns / 1e6);
    }
}

/* Two floods get equal shares of computed rows, though one of them is mostly served from the cache. */
static void test_shares(void)
{
    load_init(2000, 16, 256);
    for (uint32_t round = 0; round < 3000; round++) {
        uint32_t n_of[2] = {0};
        for (uint32_t i = 0; i < load.n_live; i++) {
            n_of[load.live[i]->light]++;
        }
        for (uint32_t hits = 0; hits < 2; hits++) { /* both always have something waiting */
            struct desk_work work = {.tenant = hits == 1 ? "hits" : "misses", .n_max = 8};
            for (; n_of[hits] < 30; n_of[hits]++) {
                submit(hits, hits == 1 ? 640 : 16, hits == 1 ? 32 : 232, &work)->light = hits == 1;
            }
        }
        step();
    }
    const struct esp_fair *fair = &load.desk.sched.fair;
    REQUIRE(fair->n_tenants == ESP_TENANT_IDLE + 3);
    int64_t first = fair->tenants[ESP_TENANT_IDLE + 1].served, second = fair->tenants[ESP_TENANT_IDLE + 2].served;
    int64_t apart = first > second ? first - second : second - first;
    CHECK(apart <= 2 * ESP_FAIR_QUANTUM, "%lld and %lld rows", (long long)first, (long long)second);
    CHECK(first > 20000, "%lld rows", (long long)first);
    while (load.n_live > 0) {
        end_entry(0, ESP_CLASS_NORMAL);
    }
    drain(0);
}

/* A prompt that shares nothing waits behind a stream of prompts that are in the cache, but not for ever; without the
 * stream's advantage it would have been next. */
static void test_locality_and_age(void)
{
    load_init(4000, 4, 256);
    struct desk_work work = {.n_max = 12};
    submit(1, 480, 8, &work);
    while (load.n_live > 0) {
        step();
    }
    struct entry *stranger = NULL;
    uint32_t n_before = 0;
    for (uint32_t n_steps = 0; n_steps < 20000 && (stranger == NULL || !stranger->first_seen); n_steps++) {
        for (uint32_t n = load.n_live; n < 20; n++) {
            submit(1, 480, 8, &work);
        }
        if (n_steps == 10) {
            stranger = submit(2, 480, 8, &work);
            n_before = load.n_ended;
        }
        step();
    }
    /* 488 rows needed against 8: passed over until its tenant has had 8 · 480 rows. */
    uint32_t n_passed = load.n_ended - n_before;
    CHECK(stranger->first_seen && n_passed > 100 && n_passed < 260, "after %u others", n_passed);
    drain(20000);
}

static void test_priority(void)
{
    load_init(4000, 2, 256);
    struct desk_work normal = {.n_max = 30}, urgent = {.n_max = 30, .priority = 1};
    struct desk_work later = {.n_max = 30, .priority = -1};
    struct entry *low[4];
    for (int i = 0; i < 4; i++) {
        low[i] = submit(10 + (uint64_t)i, 0, 100, &later);
    }
    struct entry *some = submit(20, 0, 100, &normal);
    for (int i = 0; i < 3; i++) {
        step();
    }
    CHECK(some->job->seqs[0].state != ESP_SEQ_QUEUED, "it is before four that came earlier");
    CHECK(load.desk.sched.counts.preemptions == 0);
    struct entry *first = submit(30, 0, 100, &urgent), *second = submit(31, 0, 100, &urgent);
    step();
    CHECK(load.desk.sched.counts.preemptions == 2, "both places are taken over at once");
    CHECK(first->job->seqs[0].state != ESP_SEQ_QUEUED && second->job->seqs[0].state != ESP_SEQ_QUEUED);
    /* A stream of priority 1 does not starve priority -1: each level is a head start, and heads are passed. */
    uint32_t n_steps = 0;
    for (; n_steps < 60000 && (load.n_ended < 7 || low[3]->job != NULL); n_steps++) {
        for (uint32_t n = load.n_live; n < 8; n++) {
            submit(40, 0, 100, &urgent);
        }
        step();
    }
    CHECK(low[3]->job == NULL, "starved");
    CHECK(load.n_ended > 300, "only %u went before", load.n_ended);
    drain(20000);
}

/* Four conversations of 12 pages in a pool of 64, left for a tool. */
static void leave_sessions(void)
{
    struct desk_work work = {.n_max = 1};
    load_init(64, 8, 256);
    for (uint64_t doc = 1; doc <= 4; doc++) {
        struct entry *entry = submit(doc, 192, 1, &work);
        while (entry->job->seqs[0].n_tokens < entry->n_goal - 1 || entry->job->seqs[0].n_computed < 193) {
            desk_plan(&load.desk);
            desk_compute(&load.desk);
        }
        struct esp_node_id node = entry->job->seqs[0].node;
        esp_tree_lease(load.desk.tree, node, NULL);
        end_entry(0, ESP_CLASS_NORMAL);
        esp_tree_release(load.desk.tree, node, ESP_CLASS_RETURN);
    }
}

/* Idle work that stands still for a newcomer is no reason for the newcomer to wait for sessions: nobody would move. */
static void test_idle_and_sessions(void)
{
    struct desk_work idle = {.n_max = 1, .idle = true}, work = {.n_max = 5};
    leave_sessions();
    struct entry *prefill = submit(9, 150, 0, &idle);
    step();
    CHECK(prefill->job->seqs[0].n_computed == ESP_SCHED_IDLE_ROWS);
    struct entry *stranger = submit(60, 0, 300, &work);
    step();
    step();
    CHECK(stranger->job == NULL || stranger->job->seqs[0].state != ESP_SEQ_QUEUED, "it stands still");
    while (stranger->job != NULL) {
        step();
    }
    end_entry(0, ESP_CLASS_NORMAL);
    drain(0);
}

/* While tools run, the pages of their conversations are worth more than a new prompt that nobody continues: it waits,
 * the one that comes back does not, and after its time the new one is served too. */
static void test_sessions(void)
{
    struct desk_work work = {.n_max = 1}, long_work = {.n_max = 400};
    leave_sessions();
    submit(50, 0, 40, &long_work); /* something runs, and takes its time */
    step();
    struct entry *stranger = submit(60, 0, 300, &long_work);
    for (int i = 0; i < 50; i++) {
        step();
    }
    CHECK(stranger->job->seqs[0].state == ESP_SEQ_QUEUED, "a stranger does not push out who is coming back");
    struct entry *back = submit(2, 192, 20, &work);
    step();
    CHECK(back->job == NULL || back->job->seqs[0].state != ESP_SEQ_QUEUED, "who comes back does not wait");
    CHECK(back->job == NULL || back->job->n_cached >= 192, "%u cached", back->job->n_cached);
    while (load.desk.now_ns - stranger->job->submit_ns < ESP_SCHED_SESSION_WAIT_NS + 100000000 &&
           load.desk.sched.n_running > 0 && stranger->job->seqs[0].state == ESP_SEQ_QUEUED) {
        load.desk.now_ns += 100000000;
        step();
    }
    CHECK(stranger->job->seqs[0].state != ESP_SEQ_QUEUED, "but not for ever");
    drain(20000);
}

static void test_deadlines(void)
{
    load_init(100, 1, 64);
    struct desk_work slow = {.n_max = 300}, hasty = {.n_max = 5, .timeout_ns = 50000000}, calm = {.n_max = 5};
    calm.timeout_ns = INT64_C(1) << 50;
    struct entry *runs = submit(1, 0, 50, &slow), *waits = submit(2, 0, 50, &hasty), *fine = submit(3, 0, 50, &calm);
    load.desk.sched.now_ns = load.desk.now_ns;
    CHECK(esp_sched_expired(&load.desk.sched) == NULL);
    step();
    load.desk.sched.now_ns = load.desk.now_ns = 49999999;
    CHECK(esp_sched_expired(&load.desk.sched) == NULL);
    load.desk.sched.now_ns = load.desk.now_ns = 50000000;
    CHECK(esp_sched_expired(&load.desk.sched) == &waits->job->seqs[0], "it waits in the queue");
    end_entry(1, ESP_CLASS_NORMAL);
    CHECK(esp_sched_expired(&load.desk.sched) == NULL && runs->job != NULL);
    CHECK(load.desk.sched.deadline_ns == fine->job->deadline_ns, "the next one is known");
    drain(1000);
}

/* Idle work runs when nothing else waits for its prompt, is the first to go, and stops at whole pages. */
static void test_idle(void)
{
    load_init(40, 2, 128);
    struct desk_work idle = {.n_max = 1, .idle = true}, work = {.n_max = 60};
    struct entry *prefill = submit(1, 300, 0, &idle);
    struct entry *busy = submit(2, 0, 200, &work);
    for (int i = 0; i < 2; i++) {
        step();
        CHECK(prefill->job->seqs[0].n_computed == 0, "a prompt is being computed");
    }
    step();
    CHECK(prefill->job->seqs[0].n_computed == ESP_SCHED_IDLE_ROWS && busy->job->seqs[0].state == ESP_SEQ_DECODE);
    submit(3, 0, 120, &work);
    step();
    CHECK(prefill->job->seqs[0].state == ESP_SEQ_QUEUED, "both places are taken by others");
    end_entry(0, ESP_CLASS_NORMAL);
    drain(1000);
}

/* Ten times more asked for than fits, for ten minutes, with cancels at any moment: all that is not cancelled ends. */
static void test_overcommit(void)
{
    static const char *const tenants[] = {NULL, "a", "b", "c"};
    load_init(200, 24, 128);
    uint32_t n_wanted = 0;
    while (load.desk.now_ns < 600000000000ll && load.n_entries < JOBS_MAX - 300) {
        /* 250 live requests of 8 pages on the average: 2,000 pages asked of 200. */
        while (load.n_live < 250) {
            struct desk_work work = {.tenant = tenants[drawn(4)], .n_max = 1 + drawn(80)};
            work.priority = (int)drawn(3) - 1;
            struct entry *entry = submit(drawn(6), 16 * drawn(8), 1 + drawn(60), &work);
            if (drawn(4) == 0) {
                entry->cancel_ns = load.desk.now_ns + drawn(8000) * 1000000ll;
            }
            n_wanted++;
        }
        step();
        if (esp_test_state.n_failed > 0) {
            break;
        }
    }
    printf("# %u requests, %u cancelled, %llu preemptions, %llu of %llu rows run again, longest wait %.1f s\n",
           n_wanted, load.n_cancelled, (unsigned long long)load.desk.sched.counts.preemptions,
           (unsigned long long)load.desk.sched.counts.recomputed,
           (unsigned long long)(load.desk.sched.counts.computed + load.desk.sched.counts.recomputed),
           (double)load.waited_ns_max / 1e9);
    CHECK(load.desk.sched.counts.preemptions > 100 && load.n_cancelled > 100, "the load is too easy");
    CHECK(load.waited_ns_max < 60000000000ll, "%.1f s until a first token", (double)load.waited_ns_max / 1e9);
    uint32_t n_before = load.n_ended + load.n_cancelled + load.n_live;
    CHECK(n_before == n_wanted);
    drain(100000);
}

/* More tenants than slots: the late ones share one, nobody is lost, and slots of those who left are used again. */
static void test_many_tenants(void)
{
    load_init(4000, 8, 256);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < ESP_TENANTS_MAX + 50; i++) {
            char name[16];
            snprintf(name, sizeof name, "t%d-%u", round, i);
            struct desk_work work = {.tenant = name, .n_max = 1};
            submit(i, 0, 5, &work);
        }
        CHECK(load.desk.sched.fair.n_tenants == ESP_TENANTS_MAX);
        CHECK(load.desk.sched.fair.tenants[ESP_TENANT_NAMELESS].n_live == 52);
        while (load.n_live > 0) {
            step();
        }
    }
    drain(0);
}

ESP_TEST_MAIN(T(test_light_beside_flood), T(test_shares), T(test_locality_and_age), T(test_priority),
              T(test_sessions), T(test_idle_and_sessions),
              T(test_deadlines), T(test_idle), T(test_overcommit), T(test_many_tenants))
