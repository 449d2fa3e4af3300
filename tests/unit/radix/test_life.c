/* Conversations and pins: which class a path gets when a turn ends, and what no pressure takes. */
#include "tests/unit/radix/treekit.h"

static const int64_t second_ns = 1000000000;

/* One turn: leases what is there, adds the rest, ends. The prompt is all but the last letter. */
static uint32_t turn(struct esp_tree *tree, struct esp_ns_id ns, const char *letters, uint32_t named, uint32_t n_head,
                     bool comes_back)
{
    struct esp_match match = kit_match(tree, ns, letters);
    uint32_t session = named != 0 ? named : esp_tree_session(tree, match.last);
    if (match.n_pages > 0) {
        esp_tree_lease(tree, match.last, NULL);
    }
    struct esp_node_id node = match.last;
    for (uint32_t idx = match.n_pages; letters[idx] != '\0'; idx++) {
        node = kit_add(tree, ns, node, letters[idx], ESP_PAGE_CACHED);
    }
    struct esp_tree_turn end = {.node = node,
                                .turn = esp_tree_node_parent(tree, node),
                                .session = session,
                                .n_head = n_head,
                                .comes_back = comes_back};
    esp_tree_end_turn(tree, &end);
    kit_sound(tree);
    return session;
}

struct wanted {
    char letter;
    enum esp_evict_class class;
};

static bool compare(void *ctx, const struct esp_node_view *view)
{
    for (const struct wanted *at = ctx; at->letter != '\0'; at++) {
        if (view->tokens[0] == (uint32_t)at->letter) {
            CHECK(view->class == at->class, "%c is of class %d, wanted %d", at->letter, view->class, at->class);
        }
    }
    return true;
}

static void test_waiting_then_dead(void)
{
    struct esp_tree *tree = kit_tree(32, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    uint32_t one = turn(tree, ns, "ptca", 0, 0, true);
    struct wanted waits[] = {
        {'p', ESP_CLASS_RETURN}, {'t', ESP_CLASS_RETURN}, {'c', ESP_CLASS_RETURN}, {'a', ESP_CLASS_RETURN}, {0}};
    esp_tree_visit(tree, compare, waits);
    uint32_t two = turn(tree, ns, "pxyz", 0, 0, true);
    CHECK(one != two, "another ticket is another session");
    CHECK(turn(tree, ns, "ptcaRb", 0, 0, false) == one, "the next turn is of the same session");
    struct wanted ended[] = {{'p', ESP_CLASS_RETURN}, {'t', ESP_CLASS_TAIL}, {'c', ESP_CLASS_TAIL},
                             {'b', ESP_CLASS_TAIL},   {'x', ESP_CLASS_RETURN}, {0}};
    esp_tree_visit(tree, compare, ended); /* p is kept by the other, which waits */
    turn(tree, ns, "pxyzQq", two, 0, false);
    struct wanted shared[] = {{'p', ESP_CLASS_NORMAL}, {'x', ESP_CLASS_TAIL}, {'q', ESP_CLASS_TAIL}, {0}};
    esp_tree_visit(tree, compare, shared);
    esp_tree_destroy(tree);
}

/* The next prompt leaves the answer as it was generated: the template writes it in another way. */
static void test_template_drift(void)
{
    struct esp_tree *tree = kit_tree(32, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    uint32_t one = turn(tree, ns, "ptca", 0, 0, true);
    CHECK(turn(tree, ns, "ptcdeb", 0, 0, false) == one, "the prompt was passed");
    struct wanted ended[] = {{'p', ESP_CLASS_RETURN}, {'t', ESP_CLASS_RETURN}, {'c', ESP_CLASS_RETURN},
                             {'a', ESP_CLASS_RETURN}, {'d', ESP_CLASS_TAIL}, {0}};
    esp_tree_visit(tree, compare, ended); /* what was not taken up again waits until its time is over */
    esp_tree_set_now(tree, ESP_TREE_RETURN_NS);
    kit_sound(tree);
    struct wanted over[] = {{'p', ESP_CLASS_NORMAL}, {'c', ESP_CLASS_NORMAL}, {'a', ESP_CLASS_NORMAL}, {0}};
    esp_tree_visit(tree, compare, over);
    esp_tree_destroy(tree);
}

static void test_head_of_a_first_request(void)
{
    struct esp_tree *tree = kit_tree(32, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    turn(tree, ns, "pqtb", 0, 2, false);
    struct wanted ended[] = {
        {'p', ESP_CLASS_NORMAL}, {'q', ESP_CLASS_NORMAL}, {'t', ESP_CLASS_TAIL}, {'b', ESP_CLASS_TAIL}, {0}};
    esp_tree_visit(tree, compare, ended);
    esp_tree_destroy(tree);
}

/* Ten times the pool in one-off prompts: who waits for a tool loses nothing. */
static void test_scan_leaves_the_living(void)
{
    struct esp_tree *tree = kit_tree(32, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    turn(tree, ns, "ptcaefgh", 0, 0, true);
    for (uint32_t n = 0; n < 40; n++) {
        char letters[9];
        for (uint32_t idx = 0; idx < 8; idx++) {
            letters[idx] = (char)(n + 1);
        }
        letters[8] = '\0';
        turn(tree, ns, letters, 0, 0, false);
    }
    CHECK(kit_match(tree, ns, "ptcaefgh").n_cached == 8, "all of it is there");
    esp_tree_destroy(tree);
}

static void test_pin_survives_pressure_and_expires(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id node = kit_path(tree, ns, "pqr");
    CHECK(!esp_tree_pin_reserve(tree, 5), "the budget is 4");
    CHECK(esp_tree_pin_reserve(tree, 3), "granted");
    CHECK(!esp_tree_pin_reserve(tree, 2), "promised pages count");
    CHECK(esp_tree_pin(tree, node, 10 * second_ns, 3) == 3, "pinned");
    CHECK(esp_tree_pin(tree, node, 5 * second_ns, 0) == 0, "again: nothing new");
    esp_tree_release(tree, node, ESP_CLASS_TAIL);
    kit_sound(tree);
    struct esp_page_id pages[8];
    CHECK(esp_tree_available(tree) == 5 && esp_tree_alloc(tree, 6, pages) == ESP_EBUSY, "pinned ones stay");
    CHECK(esp_tree_alloc(tree, 5, pages) == ESP_OK, "the others are");
    esp_tree_free_private(tree, pages, 5);
    uint32_t tokens[3 * KIT_P];
    kit_text("pqr", tokens);
    CHECK(esp_tree_unpinned(tree, ns, tokens, 3) == 0, "all of it is pinned");
    esp_tree_set_now(tree, 9 * second_ns);
    kit_use(tree, ns, "pqr", ESP_CLASS_TAIL);
    esp_tree_set_now(tree, 18 * second_ns);
    CHECK(esp_tree_available(tree) == 5, "the use started its time anew");
    esp_tree_set_now(tree, 19 * second_ns);
    kit_sound(tree);
    CHECK(esp_tree_available(tree) == 8 && esp_tree_unpinned(tree, ns, tokens, 3) == 3, "expired");
    CHECK(esp_tree_alloc(tree, 8, pages) == ESP_OK, "and gone");
    esp_tree_free_private(tree, pages, 8);
    esp_tree_destroy(tree);
}

static void test_two_pins_on_a_path(void)
{
    struct esp_tree *tree = kit_tree(16, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id r = kit_path(tree, ns, "pqr"), q = esp_tree_node_parent(tree, r);
    CHECK(esp_tree_pin(tree, q, 100 * second_ns, 0) == 2 && esp_tree_pin(tree, r, second_ns, 0) == 1, "two pins");
    esp_tree_release(tree, r, ESP_CLASS_RETURN);
    struct esp_tree_stats stats;
    esp_tree_get_stats(tree, &stats);
    CHECK(stats.pinned == 3 && stats.n_pins == 2 && stats.leased == 0, "%u under %u", stats.pinned, stats.n_pins);
    esp_tree_set_now(tree, second_ns);
    kit_sound(tree);
    esp_tree_get_stats(tree, &stats);
    CHECK(stats.pinned == 2 && stats.n_pins == 1, "%u under %u", stats.pinned, stats.n_pins);
    CHECK(esp_tree_flush(tree) == 3, "a flush is the operator's word");
    esp_tree_get_stats(tree, &stats);
    CHECK(stats.pinned == 0 && stats.n_pins == 0, "none is left");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_table_of_pins_is_bounded(void)
{
    struct esp_tree *tree = kit_tree(3 * ESP_TREE_PINS_MAX, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    for (uint32_t n = 0; n <= ESP_TREE_PINS_MAX; n++) {
        uint32_t tokens[KIT_P] = {n};
        struct esp_page_id page;
        struct esp_node_id node;
        bool existed;
        CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "page %u", n);
        esp_tree_insert(tree, ns, ESP_NODE_NONE, tokens, page, ESP_PAGE_CACHED, &node, &existed);
        int64_t got = esp_tree_pin(tree, node, second_ns, 0);
        CHECK(got == (n < ESP_TREE_PINS_MAX ? 1 : ESP_EBUSY), "pin %u gave %lld", n, (long long)got);
        esp_tree_release(tree, node, ESP_CLASS_NORMAL);
    }
    kit_sound(tree);
    esp_tree_set_now(tree, INT64_MAX); /* a clock that jumps */
    kit_sound(tree);
    CHECK(esp_tree_available(tree) == 3 * ESP_TREE_PINS_MAX, "all expired");
    esp_tree_destroy(tree);
}

static void test_match_goes_on_from_a_node(void)
{
    struct esp_tree *tree = kit_tree(16, 4);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id last = kit_path(tree, ns, "abcde");
    struct esp_node_id c = esp_tree_node_parent(tree, esp_tree_node_parent(tree, last));
    uint32_t tokens[6 * KIT_P];
    kit_text("abcdef", tokens);
    struct esp_match whole, rest;
    esp_tree_match(tree, ns, tokens, 6 * KIT_P - 3, &whole);
    esp_tree_match_from(tree, ns, c, tokens, 6 * KIT_P - 3, &rest);
    CHECK(whole.n_pages == 5 && memcmp(&whole, &rest, sizeof whole) == 0, "%u pages", rest.n_pages);
    struct esp_page_id pages[5] = {{0}};
    esp_tree_lease(tree, c, pages);
    esp_tree_lease_down(tree, c, last, pages);
    for (uint32_t idx = 5; idx-- > 0;) {
        CHECK(pages[idx].v == esp_tree_node_page(tree, whole.last).v, "page %u", idx);
        whole.last = esp_tree_node_parent(tree, whole.last);
    }
    kit_sound(tree);
    esp_tree_release(tree, last, ESP_CLASS_NORMAL);
    esp_tree_release(tree, last, ESP_CLASS_NORMAL);
    CHECK(esp_tree_available(tree) == 16, "both leases went back");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

ESP_TEST_MAIN(T(test_waiting_then_dead), T(test_template_drift), T(test_head_of_a_first_request),
              T(test_scan_leaves_the_living), T(test_pin_survives_pressure_and_expires), T(test_two_pins_on_a_path),
              T(test_table_of_pins_is_bounded), T(test_match_goes_on_from_a_node))
