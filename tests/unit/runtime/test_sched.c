/* The plan of a step, decided over a tree and jobs alone: no device, no thread. A helper plays the device:
 * it declares what was planned as written and adds a token where logits were wanted.
 */
#include "runtime/sched.h"
#include "tests/esptest.h"

struct desk {
    struct esp_tree *tree;
    struct esp_sched sched;
    struct esp_job *jobs[16];
    uint32_t n_jobs, n_limit;
    uint64_t arrival;
};

static void desk_init(struct desk *desk, uint32_t n_pages, uint32_t n_batch_max, uint32_t chunk)
{
    memset(desk, 0, sizeof *desk);
    desk->n_limit = n_pages * ESP_TREE_PAGE_TOKENS;
    struct esp_tree_config tree = {.n_pages = n_pages, .seed = 1, .hash_bits = 128};
    CHECK(esp_tree_create(&tree, &desk->tree, NULL) == ESP_OK);
    struct esp_lease_ctx lease = {desk->tree, "m", 1, false};
    struct esp_sched_config config = {n_batch_max, chunk};
    CHECK(esp_sched_init(&desk->sched, &lease, &config) == ESP_OK);
}

static void desk_finish(struct desk *desk)
{
    esp_sched_end_copies(&desk->sched);
    for (uint32_t i = 0; i < desk->n_jobs; i++) {
        if (desk->jobs[i]->seqs[0].state != ESP_SEQ_DONE) {
            esp_sched_remove(&desk->sched, &desk->jobs[i]->seqs[0], ESP_CLASS_NORMAL);
        }
        esp_job_destroy(desk->jobs[i]);
    }
    char reason[256];
    struct esp_tree_stats stats;
    esp_tree_get_stats(desk->tree, &stats);
    CHECK(stats.leased == 0 && esp_tree_check(desk->tree, reason, sizeof reason));
    esp_sched_finish(&desk->sched);
    esp_tree_destroy(desk->tree);
}

static struct esp_seq *add_tokens(struct desk *desk, const uint32_t *tokens, uint32_t n, uint32_t n_max)
{
    struct esp_request request = {.tokens = tokens, .n_tokens = n, .n_max = n_max, .n = 1,
                                  .sampling = esp_sampling_default()};
    struct esp_job_limits limits = {desk->n_limit, desk->n_limit, 1000};
    CHECK(esp_job_create(&request, &limits, &desk->jobs[desk->n_jobs], NULL) == ESP_OK);
    struct esp_seq *seq = &desk->jobs[desk->n_jobs++]->seqs[0];
    seq->arrival = desk->arrival++;
    esp_sched_add(&desk->sched, seq);
    return seq;
}

static const struct esp_plan *plan(struct desk *desk)
{
    esp_sched_admit(&desk->sched);
    esp_sched_plan(&desk->sched);
    return &desk->sched.plan;
}

static void compute(struct desk *desk)
{
    const struct esp_plan *p = &desk->sched.plan;
    esp_sched_end_copies(&desk->sched);
    for (uint32_t i = 0; i < p->n_items; i++) {
        p->items[i].seq->n_computed = p->items[i].from + p->items[i].n;
        esp_lease_publish(&desk->sched.lease, p->items[i].seq, p->items[i].n_announced);
    }
    for (uint32_t i = 0; i < p->n_items; i++) {
        struct esp_seq *seq = p->items[i].seq;
        esp_lease_enter(&desk->sched.lease, seq);
        if (p->items[i].wants_logits) {
            if (seq->state == ESP_SEQ_PREFILL) {
                esp_seq_move(seq, ESP_SEQ_DECODE);
            }
            seq->tokens[seq->n_tokens] = (uint32_t)(seq->arrival * 7 + seq->n_tokens) % 1000;
            seq->n_tokens++;
        }
    }
}

static bool item_is(const struct esp_plan *p, uint32_t i, const struct esp_seq *seq, uint32_t from, uint32_t n)
{
    return i < p->n_items && p->items[i].seq == seq && p->items[i].from == from && p->items[i].n == n;
}

/* A job whose prompt is n tokens of `text`. */
static struct esp_seq *add(struct desk *desk, uint64_t text, uint32_t n, uint32_t n_max)
{
    uint32_t tokens[1024];
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = (uint32_t)esp_rng_at(text, i) % 1000;
    }
    return add_tokens(desk, tokens, n, n_max);
}

static void run_to_end(struct desk *desk, struct esp_seq *seq)
{
    while (seq->n_tokens < seq->job->n_cap) {
        plan(desk);
        compute(desk);
    }
    esp_sched_remove(&desk->sched, seq, ESP_CLASS_TAIL);
}

/* The chunk is given out in order of arrival; decoding sequences have their row beside it. */
static void test_budget(void)
{
    struct desk desk;
    desk_init(&desk, 64, 8, 32);
    struct esp_seq *a = add(&desk, 1, 40, 20);
    struct esp_seq *b = add(&desk, 2, 20, 20);
    const struct esp_plan *p = plan(&desk);
    CHECK(p->n_items == 1 && item_is(p, 0, a, 0, 32) && !p->items[0].wants_logits && p->items[0].n_announced == 2);
    compute(&desk);
    p = plan(&desk);
    CHECK(p->n_items == 2 && item_is(p, 0, a, 32, 8) && item_is(p, 1, b, 0, 20) && p->n_rows == 28);
    CHECK(p->items[0].wants_logits && p->items[1].wants_logits);
    compute(&desk);
    struct esp_seq *c = add(&desk, 3, 100, 20);
    p = plan(&desk);
    CHECK(p->n_items == 3 && item_is(p, 0, a, 40, 1) && item_is(p, 1, b, 20, 1) && item_is(p, 2, c, 0, 32));
    a->blocked = true;
    compute(&desk);
    p = plan(&desk);
    CHECK(p->n_items == 2 && item_is(p, 0, b, 21, 1) && item_is(p, 1, c, 32, 32), "a blocked one is left out");
    desk_finish(&desk);
}

/* A twin waits while its prefix is written, then takes it, and computes only what is its own. */
static void test_twins(void)
{
    struct desk desk;
    desk_init(&desk, 64, 8, 48);
    struct esp_seq *a = add(&desk, 1, 70, 20);
    struct esp_seq *b = add(&desk, 1, 70, 20);
    const struct esp_plan *p = plan(&desk);
    CHECK(p->n_items == 1 && item_is(p, 0, a, 0, 48) && b->state == ESP_SEQ_PREFILL, "no budget was left for b");
    compute(&desk);
    p = plan(&desk);
    CHECK(p->n_items == 1 && item_is(p, 0, a, 48, 22) && b->state == ESP_SEQ_HOLD && b->n_node == 3);
    compute(&desk);
    p = plan(&desk);
    CHECK(p->n_items == 2 && item_is(p, 0, a, 70, 1) && item_is(p, 1, b, 64, 6) && p->items[1].wants_logits);
    CHECK(desk.jobs[1]->n_cached == 64 && desk.sched.counts.computed == 76 && desk.sched.counts.cached == 64);
    desk_finish(&desk);
}

/* The first tokens of a page are reused by copy: only into a page of one's own. */
static void test_tail_copy(void)
{
    struct desk desk;
    desk_init(&desk, 64, 8, 64);
    struct esp_seq *a = add(&desk, 1, 48, 4);
    plan(&desk);
    compute(&desk);
    struct esp_seq *b = add(&desk, 1, 42, 4); /* 32 tokens in whole pages, 9 of 10 more by copy */
    const struct esp_plan *p = plan(&desk);
    CHECK(p->n_items == 2 && item_is(p, 1, b, 41, 1) && p->n_copies == 1);
    CHECK(p->copy_src[0].v == a->pages[2].v && p->copy_dst[0].v == b->pages[2].v && b->n_node == 2);
    CHECK(desk.jobs[1]->n_cached == 41);
    desk_finish(&desk);
}

/* What one sequence copies from is not evicted for another one in the same step, though it is the first to go. */
static void test_copy_source_stays(void)
{
    struct desk desk;
    desk_init(&desk, 10, 8, 128);
    struct esp_seq *a = add(&desk, 1, 32, 20);
    run_to_end(&desk, a); /* two pages of prompt, one of answer */
    run_to_end(&desk, add(&desk, 2, 32, 2));
    CHECK(esp_tree_available(desk.tree) == 10);
    struct esp_seq *b = add_tokens(&desk, a->tokens, 42, 4);
    struct esp_seq *c = add(&desk, 3, 70, 4);
    const struct esp_plan *p = plan(&desk);
    REQUIRE(p->n_copies == 1 && p->n_items == 2 && b->n_pages == 3 && c->n_pages == 5);
    CHECK(esp_tree_node_alive(desk.tree, p->copy_nodes[0]), "the source is still what it was");
    for (uint32_t i = 0; i < c->n_pages; i++) {
        CHECK(c->pages[i].v != p->copy_src[0].v, "page %u of the other one", i);
    }
    compute(&desk);
    struct esp_tree_stats stats;
    esp_tree_get_stats(desk.tree, &stats);
    CHECK(stats.leased == 8 && desk.sched.plan.n_copies == 0, "the lease on the source ended: %u", stats.leased);
    desk_finish(&desk);
}

/* Pages short: the latest arrival goes, to the front of the queue, and an older one never does. */
static void test_preempt(void)
{
    struct desk desk;
    desk_init(&desk, 6, 8, 64);
    struct esp_seq *a = add(&desk, 1, 30, 50);
    struct esp_seq *b = add(&desk, 2, 30, 40);
    struct esp_seq *c = add(&desk, 3, 10, 4);
    plan(&desk);
    CHECK(b->state == ESP_SEQ_PREFILL && desk.sched.head == c, "two pages each and one to grow: no room for c");
    for (int i = 0; i < 70 && b->state != ESP_SEQ_QUEUED; i++) {
        compute(&desk);
        plan(&desk);
    }
    CHECK(b->state == ESP_SEQ_QUEUED && b->n_pages == 0 && a->state == ESP_SEQ_DECODE);
    CHECK(desk.sched.head == b && desk.sched.counts.preemptions == 1, "b is in front of c again");
    while (a->n_tokens < desk.jobs[0]->n_cap) {
        compute(&desk);
        plan(&desk);
        CHECK(a->state == ESP_SEQ_DECODE && desk.sched.plan.n_items >= 1);
    }
    esp_sched_remove(&desk.sched, a, ESP_CLASS_NORMAL);
    const struct esp_plan *p = plan(&desk);
    CHECK(p->items[0].seq == b && p->items[0].from >= 16, "b finds what it had written");
    CHECK(c->state == ESP_SEQ_QUEUED || c->arrival > b->arrival);
    desk_finish(&desk);
}

static void test_order(void)
{
    struct desk desk;
    desk_init(&desk, 64, 2, 8);
    struct esp_seq *seqs[5];
    for (uint64_t i = 0; i < 5; i++) {
        seqs[i] = add(&desk, i, 4, 4);
    }
    plan(&desk);
    CHECK(desk.sched.n_running == 2 && desk.sched.head == seqs[2], "two at once, first come first served");
    CHECK(esp_sched_running_jobs(&desk.sched) == 2);
    CHECK(esp_sched_preempt(&desk.sched) && desk.sched.head == seqs[1]);
    CHECK(esp_sched_preempt(&desk.sched) && desk.sched.head == seqs[0] && !esp_sched_preempt(&desk.sched));
    esp_sched_remove(&desk.sched, seqs[4], ESP_CLASS_NORMAL);
    esp_sched_remove(&desk.sched, seqs[0], ESP_CLASS_NORMAL);
    CHECK(desk.sched.head == seqs[1] && desk.sched.tail == seqs[3]);
    desk_finish(&desk);
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
