/* The plan of a step, decided over a tree and jobs alone: no device, no thread. A helper plays the device:
 * it declares what was planned as written and adds a token where logits were wanted.
 */
#include "tests/esptest.h"
#include "tests/sim/desk.h"

struct table { /* a desk, and the jobs that were given to it */
    struct desk desk;
    struct esp_job *jobs[16];
    uint32_t n_jobs;
};

static void table_init(struct table *table, uint32_t n_pages, uint32_t n_batch_max, uint32_t chunk)
{
    memset(table, 0, sizeof *table);
    CHECK(desk_init(&table->desk, n_pages, n_batch_max, chunk));
}

static void table_finish(struct table *table)
{
    char reason[256];
    struct esp_tree_stats stats;
    esp_sched_end_copies(&table->desk.sched);
    for (uint32_t i = 0; i < table->n_jobs; i++) {
        desk_end(&table->desk, table->jobs[i], ESP_CLASS_NORMAL);
    }
    esp_tree_get_stats(table->desk.tree, &stats);
    CHECK(stats.leased == 0 && esp_tree_check(table->desk.tree, reason, sizeof reason));
    desk_finish(&table->desk);
}

static struct esp_seq *add_work(struct table *table, uint64_t text, uint32_t n, const struct desk_work *work)
{
    uint32_t tokens[1024];
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (uint32_t)esp_rng_at(text, i) % 1000;
    }
    struct esp_job *job = desk_add(&table->desk, tokens, n, work);
    CHECK(job != NULL);
    table->jobs[table->n_jobs++] = job;
    return &job->seqs[0];
}

/* A job whose prompt is n tokens of `text`. */
static struct esp_seq *add(struct table *table, uint64_t text, uint32_t n, uint32_t n_max)
{
    struct desk_work work = {.n_max = n_max};
    return add_work(table, text, n, &work);
}

static const struct esp_seq *first_waiting(const struct table *table)
{
    return table->desk.sched.fair.tenants[ESP_TENANT_NAMELESS].head;
}

static bool item_is(const struct esp_plan *p, uint32_t i, const struct esp_seq *seq, uint32_t from, uint32_t n)
{
    return i < p->n_items && p->items[i].seq == seq && p->items[i].from == from && p->items[i].n == n;
}

static void run_to_end(struct table *table, struct esp_seq *seq)
{
    while (seq->n_tokens < seq->n_cap) {
        desk_plan(&table->desk);
        desk_compute(&table->desk);
    }
    esp_sched_remove(&table->desk.sched, seq, ESP_CLASS_TAIL);
}

/* The chunk is given out in order of admission; decoding sequences have their row beside it. */
static void test_budget(void)
{
    struct table table;
    table_init(&table, 64, 8, 32);
    struct esp_seq *a = add(&table, 1, 40, 20);
    struct esp_seq *b = add(&table, 2, 60, 20);
    const struct esp_plan *p = desk_plan(&table.desk);
    CHECK(p->n_items == 1 && item_is(p, 0, a, 0, 32) && !p->items[0].wants_logits && p->items[0].n_announced == 2);
    desk_compute(&table.desk);
    p = desk_plan(&table.desk);
    CHECK(p->n_items == 2 && item_is(p, 0, a, 32, 8) && item_is(p, 1, b, 0, 24) && p->n_rows == 32);
    CHECK(p->items[0].wants_logits && !p->items[1].wants_logits);
    desk_compute(&table.desk);
    struct esp_seq *c = add(&table, 3, 100, 20);
    p = desk_plan(&table.desk);
    CHECK(p->n_items == 2 && item_is(p, 0, a, 40, 1) && item_is(p, 1, b, 24, 32) && c->state == ESP_SEQ_PREFILL);
    a->blocked = true;
    desk_compute(&table.desk);
    p = desk_plan(&table.desk);
    CHECK(p->n_items == 2 && item_is(p, 0, b, 56, 4) && item_is(p, 1, c, 0, 28), "a blocked one is left out");
    table_finish(&table);
}

/* A twin waits while its prefix is written, then takes it, and computes only what is its own. */
static void test_twins(void)
{
    struct table table;
    table_init(&table, 64, 8, 48);
    struct esp_seq *a = add(&table, 1, 70, 20);
    struct esp_seq *b = add(&table, 1, 70, 20);
    const struct esp_plan *p = desk_plan(&table.desk);
    CHECK(p->n_items == 1 && item_is(p, 0, a, 0, 48) && b->state == ESP_SEQ_PREFILL, "no budget was left for b");
    desk_compute(&table.desk);
    p = desk_plan(&table.desk);
    CHECK(p->n_items == 1 && item_is(p, 0, a, 48, 22) && b->state == ESP_SEQ_HOLD && b->n_node == 3);
    desk_compute(&table.desk);
    p = desk_plan(&table.desk);
    CHECK(p->n_items == 2 && item_is(p, 0, a, 70, 1) && item_is(p, 1, b, 64, 6) && p->items[1].wants_logits);
    CHECK(table.jobs[1]->n_cached == 64 && table.desk.sched.counts.computed == 76);
    CHECK(table.desk.sched.counts.cached == 64);
    table_finish(&table);
}

/* The first tokens of a page are reused by copy: only into a page of one's own. */
static void test_tail_copy(void)
{
    struct table table;
    table_init(&table, 64, 8, 64);
    struct esp_seq *a = add(&table, 1, 48, 4);
    desk_plan(&table.desk);
    desk_compute(&table.desk);
    struct esp_seq *b = add(&table, 1, 42, 4); /* 32 tokens in whole pages, 9 of 10 more by copy */
    const struct esp_plan *p = desk_plan(&table.desk);
    CHECK(p->n_items == 2 && item_is(p, 1, b, 41, 1) && p->n_copies == 1);
    CHECK(p->copy_src[0].v == a->pages[2].v && p->copy_dst[0].v == b->pages[2].v && b->n_node == 2);
    CHECK(table.jobs[1]->n_cached == 41);
    table_finish(&table);
}

/* What one sequence copies from is not evicted for another one in the same step, though it is the first to go. */
static void test_copy_source_stays(void)
{
    struct table table;
    table_init(&table, 10, 8, 128);
    struct esp_seq *a = add(&table, 1, 32, 20);
    run_to_end(&table, a); /* two pages of prompt, one of answer */
    run_to_end(&table, add(&table, 2, 32, 2));
    CHECK(esp_tree_available(table.desk.tree) == 10);
    struct desk_work work = {.n_max = 4};
    struct esp_job *job = desk_add(&table.desk, a->tokens, 42, &work);
    struct esp_seq *b = &job->seqs[0];
    table.jobs[table.n_jobs++] = job;
    struct esp_seq *c = add(&table, 3, 70, 4);
    const struct esp_plan *p = desk_plan(&table.desk);
    REQUIRE(p->n_copies == 1 && p->n_items == 2 && b->n_pages == 3 && c->n_pages == 5);
    CHECK(esp_tree_node_alive(table.desk.tree, p->copy_nodes[0]), "the source is still what it was");
    for (uint32_t i = 0; i < c->n_pages; i++) {
        CHECK(c->pages[i].v != p->copy_src[0].v, "page %u of the other one", i);
    }
    desk_compute(&table.desk);
    struct esp_tree_stats stats;
    esp_tree_get_stats(table.desk.tree, &stats);
    CHECK(stats.leased == 8 && table.desk.sched.plan.n_copies == 0, "the lease on the source ended: %u", stats.leased);
    table_finish(&table);
}

/* Pages short: the latest arrival goes, to the front of the queue, and an older one never does. */
static void test_preempt(void)
{
    struct table table;
    table_init(&table, 6, 8, 64);
    struct esp_seq *a = add(&table, 1, 30, 50);
    struct esp_seq *b = add(&table, 2, 30, 40);
    struct esp_seq *c = add(&table, 3, 31, 4);
    desk_plan(&table.desk);
    CHECK(b->state == ESP_SEQ_PREFILL && first_waiting(&table) == c, "two pages each and one to grow: no room for c");
    for (int i = 0; i < 70 && b->state != ESP_SEQ_QUEUED; i++) {
        desk_compute(&table.desk);
        desk_plan(&table.desk);
    }
    CHECK(b->state == ESP_SEQ_QUEUED && b->n_pages == 0 && a->state == ESP_SEQ_DECODE);
    CHECK(first_waiting(&table) == b && table.desk.sched.counts.preemptions == 1, "b is in front of c again");
    while (a->n_tokens < a->n_cap) {
        desk_compute(&table.desk);
        desk_plan(&table.desk);
        CHECK(a->state == ESP_SEQ_DECODE && table.desk.sched.plan.n_items >= 1);
    }
    esp_sched_remove(&table.desk.sched, a, ESP_CLASS_NORMAL);
    const struct esp_plan *p = desk_plan(&table.desk);
    CHECK(p->items[0].seq == b && p->items[0].from >= 16, "b finds what it had written");
    CHECK(c->state == ESP_SEQ_QUEUED || c->arrival > b->arrival);
    table_finish(&table);
}

static void test_order(void)
{
    struct table table;
    table_init(&table, 64, 2, 8);
    struct esp_seq *seqs[5];
    for (uint64_t i = 0; i < 5; i++) {
        seqs[i] = add(&table, i, 4, 4);
    }
    desk_plan(&table.desk);
    CHECK(table.desk.sched.n_running == 2 && first_waiting(&table) == seqs[2], "two at once, first come first served");
    CHECK(esp_sched_running_jobs(&table.desk.sched) == 2);
    CHECK(esp_sched_preempt(&table.desk.sched) && first_waiting(&table) == seqs[1]);
    CHECK(esp_sched_preempt(&table.desk.sched) && first_waiting(&table) == seqs[0]);
    CHECK(!esp_sched_preempt(&table.desk.sched));
    esp_sched_remove(&table.desk.sched, seqs[4], ESP_CLASS_NORMAL);
    esp_sched_remove(&table.desk.sched, seqs[0], ESP_CLASS_NORMAL);
    CHECK(first_waiting(&table) == seqs[1] && seqs[1]->next == seqs[2] && seqs[2]->next == seqs[3]);
    CHECK(seqs[3]->next == NULL);
    table_finish(&table);
}

static void test_moves(void)
{
    for (int s = 0; s < ESP_SEQ_STATES; s++) {
        enum esp_seq_state state = (enum esp_seq_state)s;
        CHECK(!esp_seq_may_move(ESP_SEQ_DONE, state), "done is the end");
        CHECK(!esp_seq_may_move(state, state) && esp_seq_state_name(state)[0] != '\0');
        CHECK(esp_seq_may_move(state, ESP_SEQ_DONE) == (state != ESP_SEQ_DONE));
        CHECK(esp_seq_may_move(state, ESP_SEQ_QUEUED) == (state != ESP_SEQ_DONE && state != ESP_SEQ_QUEUED));
    }
    CHECK(!esp_seq_may_move(ESP_SEQ_QUEUED, ESP_SEQ_DECODE) && !esp_seq_may_move(ESP_SEQ_DECODE, ESP_SEQ_PREFILL));
    CHECK(!esp_seq_may_move(ESP_SEQ_HOLD, ESP_SEQ_DECODE));
}

ESP_TEST_MAIN(T(test_budget), T(test_twins), T(test_tail_copy), T(test_copy_source_stays), T(test_preempt),
              T(test_order), T(test_moves))
