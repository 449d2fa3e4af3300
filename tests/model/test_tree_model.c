/* The tree against a naive twin: random operations, the walker after each.
 *
 * The twin keeps each known page as the whole token string from its namespace on, in a plain array, and
 * answers by comparing strings; it predicts matches, partial matches, refusals, and which pages an
 * allocation evicts. Its only shared idea with the tree is the order in which uses happen.
 * usage: test_tree_model [--seed N]; ESPALIER_MODEL_OPS=N changes the number of operations (10^7).
 */
#include "runtime/base/alloc.h"
#include "tests/model/tree_twin.h"

/* Matches a random text in both; the index of the last node, or -1. */
static int do_match(uint32_t *ret_space, bool *ret_is_cached)
{
    uint32_t tokens[DEPTH_MAX * P];
    uint32_t n_tokens = random_text(tokens);
    uint32_t space = below(SPACES);
    struct esp_match match;
    esp_tree_match(w.tree, w.spaces[space], tokens, n_tokens, &match);
    uint32_t n_pages = 0, n_cached = 0;
    int last = -1;
    for (int at; (n_pages + 1) * P <= n_tokens && (at = twin_find(space, tokens, n_pages + 1)) >= 0; last = at) {
        n_pages++;
        n_cached += w.nodes[at].cached;
    }
    CHECK(match.n_pages == n_pages && match.n_cached == n_cached, "found %u/%u pages, twin %u/%u", match.n_cached,
          match.n_pages, n_cached, n_pages);
    struct esp_node_id want = last < 0 ? ESP_NODE_NONE : w.nodes[last].id;
    CHECK(match.last.v == want.v && match.last.generation == want.generation, "last %u, twin %u", match.last.v,
          want.v);
    uint32_t n_copy = 0;
    int copy = n_cached == n_pages ? twin_copy(space, tokens, n_pages, n_tokens - n_pages * P, &n_copy) : -1;
    CHECK(match.n_copy_tokens == n_copy, "%u tokens to copy, twin %u", match.n_copy_tokens, n_copy);
    uint32_t page = copy < 0 ? ESP_PAGE_NONE.v : esp_tree_node_page(w.tree, w.nodes[copy].id).v;
    CHECK(match.copy_page.v == page, "copy of page %u, twin %u", match.copy_page.v, page);
    *ret_space = space;
    *ret_is_cached = n_cached == n_pages;
    return last;
}

static void op_match(void)
{
    uint32_t space;
    bool is_cached;
    do_match(&space, &is_cached);
}

static void op_lease(void)
{
    uint32_t space;
    bool is_cached;
    int last = do_match(&space, &is_cached);
    if (last < 0 || w.n_leases == LEASES_MAX) {
        return;
    }
    struct esp_page_id pages[DEPTH_MAX];
    esp_tree_lease(w.tree, w.nodes[last].id, pages);
    for (int at = last; at >= 0; at = twin_parent(at)) {
        const struct twin_node *node = &w.nodes[at];
        CHECK(pages[node->depth - 1].v == esp_tree_node_page(w.tree, node->id).v, "page at depth %u", node->depth);
        twin_ref(at);
    }
    w.leases[w.n_leases++] = last;
}

/* Moves a lease down to what a longer prompt finds. */
static void op_lease_down(void)
{
    if (w.n_leases == 0) {
        return;
    }
    uint32_t which = below(w.n_leases);
    int from = w.leases[which];
    const struct twin_node *node = &w.nodes[from];
    if (!node->cached) {
        return;
    }
    uint32_t tokens[DEPTH_MAX * P];
    uint32_t n_tokens = random_text(tokens);
    memcpy(tokens, node->tokens, node->depth * P * sizeof *tokens);
    n_tokens = n_tokens < node->depth * P ? node->depth * P : n_tokens;
    struct esp_match whole, rest;
    esp_tree_match(w.tree, w.spaces[node->space], tokens, n_tokens, &whole);
    esp_tree_match_from(w.tree, w.spaces[node->space], node->id, tokens, n_tokens, &rest);
    CHECK(whole.n_pages == rest.n_pages && whole.n_cached == rest.n_cached && whole.last.v == rest.last.v &&
              whole.copy_page.v == rest.copy_page.v && whole.n_copy_tokens == rest.n_copy_tokens,
          "from depth %u: %u pages, from the root %u", node->depth, rest.n_pages, whole.n_pages);
    int last = twin_find(node->space, tokens, rest.n_pages);
    struct esp_page_id pages[DEPTH_MAX];
    esp_tree_lease_down(w.tree, node->id, rest.last, pages);
    for (int at = last; at != from; at = twin_parent(at)) {
        CHECK(pages[w.nodes[at].depth - 1].v == esp_tree_node_page(w.tree, w.nodes[at].id).v, "page on the way down");
        twin_ref(at);
    }
    w.leases[which] = last;
}

static int take_lease(void)
{
    uint32_t which = below(w.n_leases);
    int lease = w.leases[which];
    w.leases[which] = w.leases[--w.n_leases];
    return lease;
}

static void op_release(void)
{
    if (w.n_leases == 0) {
        return;
    }
    int lease = take_lease();
    uint32_t class = below(ESP_CLASS_PINNED);
    if (below(4) == 0) {
        class = ESP_CLASSES;
        esp_tree_release_unchanged(w.tree, w.nodes[lease].id);
    } else {
        esp_tree_release(w.tree, w.nodes[lease].id, (enum esp_evict_class)class);
    }
    twin_release(lease, class, true);
}

/* The session of what a prompt found: that of the last turn that ended on the path below all sharing. */
static uint32_t session_of(int at)
{
    uint32_t got = esp_tree_session(w.tree, w.nodes[at].id);
    for (; at >= 0 && !w.nodes[at].shared; at = twin_parent(at)) {
        if (w.nodes[at].turn_end) {
            CHECK(got == w.nodes[at].session, "session %u, twin %u", got, w.nodes[at].session);
            break;
        }
    }
    return below(3) == 0 ? 1 + below(4) : got; /* or one that a client has named */
}

/* The pages behind `kept` (-1: all) are the session's own. */
static void twin_end(int lease, int kept)
{
    bool splits = kept >= 0 && kept != lease;
    for (int up = kept; splits && up >= 0; up = twin_parent(up)) {
        twin_ref(up);
    }
    twin_release(lease, kept == lease ? ESP_CLASS_NORMAL : ESP_CLASS_TAIL, !splits);
    if (splits) {
        twin_release(kept, ESP_CLASS_NORMAL, true);
    }
}

static void op_end_turn(void)
{
    if (w.n_leases == 0) {
        return;
    }
    int lease = take_lease(), at = lease;
    struct esp_tree_turn turn = {.node = w.nodes[lease].id, .turn = ESP_NODE_NONE, .n_head = below(3)};
    turn.session = session_of(lease);
    turn.comes_back = below(2);
    int end = below(2) ? lease : twin_parent(lease);
    turn.turn = end < 0 ? ESP_NODE_NONE : w.nodes[end].id;
    twin_mark(lease, turn.session);
    if (turn.comes_back && end >= 0) {
        w.nodes[end].turn_end = true;
    }
    while (!turn.comes_back && at >= 0 && !w.nodes[at].shared && w.nodes[at].depth > turn.n_head) {
        at = twin_parent(at);
    }
    esp_tree_end_turn(w.tree, &turn);
    if (turn.comes_back) {
        twin_release(lease, ESP_CLASS_RETURN, true);
    } else {
        twin_end(lease, at);
    }
}

static void op_pin(void)
{
    uint32_t budget = w.n_pages / 2;
    uint32_t n_pinned = twin_n_pinned(), n_more = below(4);
    bool granted = esp_tree_pin_reserve(w.tree, n_more);
    CHECK(granted == (n_pinned + n_more <= budget), "%u pages with %u of %u pinned", n_more, n_pinned, budget);
    int at = w.n_leases == 0 ? -1 : w.leases[below(w.n_leases)];
    if (!granted || at < 0 || !w.nodes[at].cached) {
        esp_tree_pin_return(w.tree, granted ? n_more : 0);
        return;
    }
    uint32_t n_new = 0;
    for (int up = at; up >= 0; up = twin_parent(up)) {
        n_new += !twin_is_pinned(up);
    }
    int64_t ttl_ns = 1 + (int64_t)below(400) * 1000000000;
    int64_t got = esp_tree_pin(w.tree, w.nodes[at].id, ttl_ns, n_more);
    int slot = -1, own = -1;
    for (int idx = (int)w.n_pages; idx-- > 0;) {
        slot = w.pins[idx].node < 0 ? idx : slot;
        own = w.pins[idx].node == at ? idx : own;
    }
    if (own >= 0) {
        CHECK(got == 0, "pinned again");
        w.pins[own].ttl_ns = ttl_ns > w.pins[own].ttl_ns ? ttl_ns : w.pins[own].ttl_ns;
        w.pins[own].until_ns = w.now_ns + w.pins[own].ttl_ns;
    } else if (n_pinned + n_new <= budget) {
        CHECK(got == n_new, "%lld pages newly pinned, twin %u", (long long)got, n_new);
        w.pins[slot] = (struct twin_pin){at, ttl_ns, w.now_ns + ttl_ns};
        w.n_pins_ever++;
    } else {
        CHECK(got == ESP_EBUSY, "beyond the budget");
    }
}

static void op_alloc(void)
{
    uint32_t n = below(below(8) == 0 ? w.n_pages + 2 : 6);
    struct esp_page_id pages[PAGES_MAX + 2];
    uint32_t n_free = w.n_pages - w.n_private - twin_count();
    bool fits = n <= n_free + twin_evictable();
    CHECK(esp_tree_available(w.tree) == n_free + twin_evictable(), "available");
    esp_status status = esp_tree_alloc(w.tree, n, pages);
    CHECK(status == (fits ? ESP_OK : ESP_EBUSY), "status %d for %u pages", status, n);
    if (status != ESP_OK) {
        return;
    }
    for (uint32_t idx = n_free; idx < n; idx++) {
        twin_evict_one();
        w.evicted++;
    }
    memcpy(w.private + w.n_private, pages, n * sizeof *pages);
    w.n_private += n;
}

static void op_free_private(void)
{
    uint32_t n = below(below(4) == 0 ? w.n_private + 1 : w.n_private < 3 ? w.n_private + 1 : 3);
    w.n_private -= n;
    esp_tree_free_private(w.tree, w.private + w.n_private, n);
}

/* The node that an insert below `parent` (-1 = root) would make: tokens, and whether it is complete. */
static bool next_node(int parent, struct twin_node *ret_next)
{
    struct twin_node next = {.used = true, .space = below(SPACES), .depth = 1};
    if (parent >= 0) {
        next = w.nodes[parent];
        if (next.depth++ == DEPTH_MAX) {
            return false;
        }
        next.session = 0;
        next.shared = next.turn_end = false;
    }
    letter(below(3) == 0 ? below(ALPHABET) : 0, next.tokens + (next.depth - 1) * P);
    bool may_be_cached = parent < 0 || w.nodes[parent].cached;
    next.cached = may_be_cached && below(2);
    next.refs = next.class = 0;
    *ret_next = next;
    return true;
}

/* Enters the next page below a lease, or below the root with a new lease. */
static void op_insert(void)
{
    bool is_below = w.n_leases > 0 && below(5) > 0;
    if (w.n_private == 0 || (!is_below && w.n_leases == LEASES_MAX)) {
        return;
    }
    uint32_t which = is_below ? below(w.n_leases) : w.n_leases;
    int parent = is_below ? w.leases[which] : -1;
    struct twin_node next;
    if (!next_node(parent, &next)) {
        return;
    }
    bool existed = false;
    struct esp_page_id page = w.private[w.n_private - 1];
    esp_status status =
        esp_tree_insert(w.tree, w.spaces[next.space], parent < 0 ? ESP_NODE_NONE : w.nodes[parent].id,
                        next.tokens + (next.depth - 1) * P, page, next.cached ? ESP_PAGE_CACHED : ESP_PAGE_PENDING,
                        &next.id, &existed);
    REQUIRE(status == ESP_OK, "insert %d", status);
    int at = twin_find(next.space, next.tokens, next.depth);
    CHECK(existed == (at >= 0), "existed %d", existed);
    if (at < 0) {
        at = twin_room();
        w.nodes[at] = next;
        w.n_private--;
        CHECK(esp_tree_node_page(w.tree, next.id).v == page.v, "holds the page given");
    }
    CHECK(next.id.v == w.nodes[at].id.v && next.id.generation == w.nodes[at].id.generation, "which node");
    twin_ref(at);
    w.leases[which] = at;
    w.n_leases += !is_below;
}

/* Publishes a pending node of a lease. */
static void op_publish(void)
{
    if (w.n_leases == 0) {
        return;
    }
    int first = -1; /* the pending node nearest to the root */
    for (int at = w.leases[below(w.n_leases)]; at >= 0 && !w.nodes[at].cached; at = twin_parent(at)) {
        first = at;
    }
    if (first >= 0) {
        esp_tree_publish(w.tree, w.nodes[first].id);
        w.nodes[first].cached = true;
    }
}

static void op_flush(void)
{
    twin_expire_pins(true);
    uint32_t want = twin_evictable();
    CHECK(esp_tree_flush(w.tree) == want, "flushed");
    for (uint32_t idx = 0; idx < want; idx++) {
        twin_evict_one();
    }
}

static void op_time(void)
{
    int64_t step_ns = below(8) == 0 ? (int64_t)below(1500) * 1000000000 : below(1000);
    if (below(4) == 0) {
        esp_tree_set_now(w.tree, w.now_ns - step_ns); /* a clock that jumps back changes nothing */
        return;
    }
    w.now_ns += step_ns;
    esp_tree_set_now(w.tree, w.now_ns);
    if (step_ns > 0) {
        twin_expire_pins(false);
        twin_expire_returns();
    }
}

static bool visit_one(void *ctx, const struct esp_node_view *view)
{
    ++*(uint32_t *)ctx;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        const struct twin_node *node = &w.nodes[idx];
        if (node->used && node->id.v == view->id.v) {
            int parent = twin_parent(idx);
            CHECK(node->depth == view->depth && node->refs == view->refs &&
                      (node->refs > 0 || twin_force(idx) == view->class),
                  "node %u", view->id.v);
            CHECK(memcmp(view->tokens, node->tokens + (node->depth - 1) * P, P * sizeof(uint32_t)) == 0, "tokens");
            CHECK((view->state == ESP_PAGE_CACHED) == node->cached, "state");
            CHECK(view->parent.v == (parent < 0 ? UINT32_MAX : w.nodes[parent].id.v), "parent");
            CHECK(view->ns.v == w.spaces[node->space].v, "namespace");
            return true;
        }
    }
    CHECK(false, "node %u is not known to the twin", view->id.v);
    return false;
}

static void compare_all(void)
{
    uint32_t n = 0;
    esp_tree_visit(w.tree, visit_one, &n);
    CHECK(n == twin_count(), "%u nodes visited, twin has %u", n, twin_count());
    for (uint32_t idx = 0; idx < DEAD && idx < w.n_dead; idx++) {
        CHECK(!esp_tree_node_alive(w.tree, w.dead[idx]), "node %u came back to life", w.dead[idx].v);
    }
    struct esp_tree_stats stats;
    esp_tree_get_stats(w.tree, &stats);
    CHECK(stats.pages[ESP_PAGE_PRIVATE] == w.n_private, "private");
    CHECK(stats.pages[ESP_PAGE_PENDING] + stats.pages[ESP_PAGE_CACHED] == n, "in the tree");
    uint32_t n_leased = 0;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        n_leased += w.nodes[idx].used && w.nodes[idx].refs > 0;
    }
    CHECK(stats.leased == n_leased + w.n_private, "leased");
    CHECK(stats.pinned == twin_n_pinned(), "%u pinned", stats.pinned);
    CHECK(stats.evicted_total == w.evicted, "evicted");
}

static void one_op(void)
{
    static void (*const ops[])(void) = {op_match,  op_match,  op_lease,  op_lease,  op_release, op_end_turn, op_alloc,
                                        op_alloc,  op_insert, op_insert, op_insert, op_insert,  op_insert,  op_publish,
                                        op_publish, op_free_private, op_time,    op_lease_down, op_end_turn, op_pin};
    if (below(400) == 0) {
        op_flush();
        return;
    }
    ops[below(sizeof ops / sizeof ops[0])]();
}

static void finish(void)
{
    while (w.n_leases > 0) {
        op_release();
    }
    esp_tree_free_private(w.tree, w.private, w.n_private);
    w.n_private = 0;
    op_flush();
    struct esp_tree_stats stats;
    esp_tree_get_stats(w.tree, &stats);
    CHECK(stats.pages[ESP_PAGE_FREE] == w.n_pages && stats.leased == 0, "all pages back");
    esp_tree_destroy(w.tree);
}

static void run(uint32_t n_pages, unsigned hash_bits, uint32_t check_every, uint32_t share)
{
    memset(&w, 0, sizeof w);
    const char *wanted = getenv("ESPALIER_MODEL_OPS");
    uint64_t n_ops = (wanted == NULL ? 10000000 : strtoull(wanted, NULL, 0)) * share / 100;
    for (uint32_t idx = 0; idx < PAGES_MAX; idx++) {
        w.pins[idx].node = -1;
    }
    struct esp_tree_config config = {
        .n_pages = n_pages, .n_pin_pages_max = n_pages / 2, .seed = esp_test_state.seed, .hash_bits = hash_bits};
    REQUIRE(esp_tree_create(&config, &w.tree, NULL) == ESP_OK, "create");
    w.n_pages = n_pages;
    for (uint32_t idx = 0; idx < SPACES; idx++) {
        struct esp_field fields[2] = {{"salt", idx}, {"salt", 4 - idx}};
        CHECK(esp_tree_namespace(w.tree, fields, 2, &w.spaces[idx], NULL) == ESP_OK, "namespace");
    }
    uint64_t n_calls = esp_alloc_calls();
    for (uint64_t op = 0; op < n_ops && esp_test_state.n_failed == 0; op++) {
        one_op();
        char reason[160];
        if (op % check_every == 0) {
            CHECK(esp_tree_check(w.tree, reason, sizeof reason), "after operation %llu: %s", (unsigned long long)op,
                  reason);
        }
        if (op % (16 * check_every) == 0) {
            compare_all();
        }
    }
    CHECK(esp_alloc_calls() == n_calls, "operations allocate nothing");
    struct esp_tree_stats stats;
    esp_tree_get_stats(w.tree, &stats);
    CHECK(hash_bits == 128 ? stats.hash_rejected_total == 0 : stats.hash_rejected_total > 0 || n_ops < 1000,
          "%llu collisions", (unsigned long long)stats.hash_rejected_total);
    CHECK(n_pages < 8 || n_ops < 100000 || (w.n_pins_ever > 100 && w.n_moved_ever > 100),
          "%u pins and %u nodes whose time ran out are too few", w.n_pins_ever, w.n_moved_ever);
    if (esp_test_state.n_failed == 0) {
        finish();
    }
}

static void test_tiny(void)
{
    run(1, 128, 1, 4);
}

static void test_small(void)
{
    run(8, 128, 1, 46);
}

static void test_small_colliding(void)
{
    run(12, 4, 1, 40);
}

static void test_one_hash_bit(void)
{
    run(24, 1, 1, 6);
}

static void test_large(void)
{
    run(PAGES_MAX, 128, 64, 2);
}

static void test_large_colliding(void)
{
    run(PAGES_MAX, 4, 64, 2);
}

ESP_TEST_MAIN(T(test_tiny), T(test_small), T(test_small_colliding), T(test_one_hash_bit), T(test_large),
              T(test_large_colliding))
