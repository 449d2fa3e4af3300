/* Behaviour of the tree, case by case: matching, leases, eviction, pending pages, twins. */
#include "runtime/base/alloc.h"
#include "tests/unit/radix/treekit.h"

static void test_match_needs_the_whole_prefix(void)
{
    struct esp_tree *tree = kit_tree(16, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    CHECK(kit_match(tree, ns, "abc").n_pages == 0, "nothing is known yet");
    struct esp_node_id last = kit_leave(tree, ns, "abc", ESP_CLASS_NORMAL);
    struct esp_match match = kit_match(tree, ns, "abcd");
    CHECK(match.n_pages == 3 && match.n_cached == 3 && match.last.v == last.v, "all of it");
    CHECK(kit_match(tree, ns, "abd").n_pages == 2, "two of three");
    CHECK(kit_match(tree, ns, "bc").n_pages == 0 && kit_match(tree, ns, "xbc").n_pages == 0, "no middle parts");
    uint32_t tokens[3 * KIT_P];
    kit_text("abc", tokens);
    esp_tree_match(tree, ns, tokens, 3 * KIT_P - 1, &match);
    CHECK(match.n_pages == 2 && match.n_copy_tokens == KIT_P - 1 &&
              match.copy_page.v == esp_tree_node_page(tree, last).v,
          "one token is left to compute: %u pages and %u tokens", match.n_pages, match.n_copy_tokens);
    esp_tree_match(tree, ns, NULL, 0, &match);
    CHECK(match.n_pages == 0 && match.n_copy_tokens == 0, "an empty prompt finds nothing");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_partial_page(void)
{
    struct esp_tree *tree = kit_tree(16, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id root = kit_path(tree, ns, "a");
    uint32_t tokens[2 * KIT_P];
    kit_text("ab", tokens);
    tokens[KIT_P + 5] = 999;
    struct esp_page_id page;
    struct esp_node_id five, twelve;
    bool existed;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "alloc");
    esp_tree_insert(tree, ns, root, tokens + KIT_P, page, ESP_PAGE_CACHED, &five, &existed);
    esp_tree_release(tree, five, ESP_CLASS_NORMAL);
    struct esp_match match = kit_match(tree, ns, "ab");
    CHECK(match.n_pages == 1 && match.n_copy_tokens == 5 && match.copy_page.v == page.v, "five tokens");
    esp_tree_lease(tree, match.last, NULL);
    tokens[KIT_P + 5] = 'b';
    tokens[KIT_P + 12] = 999;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "alloc");
    esp_tree_insert(tree, ns, match.last, tokens + KIT_P, page, ESP_PAGE_PENDING, &twelve, &existed);
    CHECK(kit_match(tree, ns, "ab").n_copy_tokens == 5, "a pending page is not copied");
    esp_tree_publish(tree, twelve);
    CHECK(kit_match(tree, ns, "ab").n_copy_tokens == 12, "the longer of two");
    CHECK(kit_match(tree, ns, "ax").n_copy_tokens == 0, "no common token");
    esp_tree_release(tree, twelve, ESP_CLASS_NORMAL);
    kit_sound(tree);
    esp_tree_destroy(tree);
}

/* What a match offers for copying is not leased: an allocation after it may take the page. */
static void test_copy_page_is_not_leased(void)
{
    struct esp_tree *tree = kit_tree(2, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id last = kit_leave(tree, ns, "ab", ESP_CLASS_NORMAL);
    uint32_t tokens[2 * KIT_P];
    kit_text("ab", tokens);
    struct esp_match match;
    esp_tree_match(tree, ns, tokens, 2 * KIT_P - 1, &match);
    REQUIRE(match.n_copy_tokens == KIT_P - 1, "%u", match.n_copy_tokens);
    esp_tree_lease(tree, match.last, NULL);
    struct esp_page_id page;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK && page.v == match.copy_page.v, "it goes");
    CHECK(!esp_tree_node_alive(tree, last), "and its id says so");
    esp_tree_match(tree, ns, tokens, 2 * KIT_P - 1, &match);
    CHECK(match.n_copy_tokens == 0, "a match after the allocation does not offer it");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_partial_scan_is_bounded(void)
{
    enum { CHILDREN = 1000 };
    struct esp_tree *tree = kit_tree(CHILDREN + 1, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id policy = kit_path(tree, ns, "p");
    uint32_t tokens[2 * KIT_P];
    kit_text("pt", tokens);
    for (uint32_t idx = 0; idx < CHILDREN; idx++) {
        tokens[KIT_P] = 10000 + idx;
        struct esp_page_id page;
        struct esp_node_id node;
        bool existed;
        CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "alloc");
        esp_tree_lease(tree, policy, NULL);
        esp_tree_insert(tree, ns, policy, tokens + KIT_P, page, ESP_PAGE_CACHED, &node, &existed);
        esp_tree_release(tree, node, ESP_CLASS_NORMAL);
    }
    kit_sound(tree);
    struct esp_match match;
    for (uint32_t back = 1; back <= CHILDREN; back += 9) {
        tokens[KIT_P] = 10000 + CHILDREN - 1 - (back - 1);
        esp_tree_match(tree, ns, tokens, 2 * KIT_P - 1, &match);
        /* Each look moves one child to the front from behind, so those further back keep their place. */
        CHECK(match.n_copy_tokens == (back <= ESP_TREE_COPY_SCAN_MAX ? KIT_P - 1 : 0), "%u back: %u", back,
              match.n_copy_tokens);
        esp_tree_match(tree, ns, tokens, 2 * KIT_P, &match);
        CHECK(match.n_pages == 2, "a whole page is found however many siblings it has");
    }
    esp_tree_destroy(tree);
}

static void test_lease_protects_and_orders_pages(void)
{
    struct esp_tree *tree = kit_tree(4, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id last = kit_leave(tree, ns, "abcd", ESP_CLASS_NORMAL);
    struct esp_page_id pages[4], more[2];
    esp_tree_lease(tree, last, pages);
    struct esp_node_id at = last;
    for (int depth = 4; depth-- > 0; at = esp_tree_node_parent(tree, at)) {
        CHECK(pages[depth].v == esp_tree_node_page(tree, at).v, "depth %d", depth);
    }
    CHECK(at.v == ESP_NODE_NONE.v, "above the first page is nothing");
    CHECK(esp_tree_available(tree) == 0 && esp_tree_alloc(tree, 1, more) == ESP_EBUSY, "all leased");
    CHECK(esp_tree_flush(tree) == 0, "nor flushed");
    esp_tree_release(tree, last, ESP_CLASS_NORMAL);
    CHECK(esp_tree_available(tree) == 4 && esp_tree_alloc(tree, 2, more) == ESP_OK, "released");
    CHECK(more[0].v == pages[2].v || more[1].v == pages[2].v, "leaves go first");
    CHECK(kit_match(tree, ns, "abcd").n_pages == 2, "the rest is found");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_alloc_is_all_or_nothing(void)
{
    struct esp_tree *tree = kit_tree(4, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    kit_leave(tree, ns, "ab", ESP_CLASS_NORMAL);
    struct esp_page_id pages[5];
    CHECK(esp_tree_alloc(tree, 5, pages) == ESP_EBUSY, "more than there are");
    CHECK(kit_match(tree, ns, "ab").n_pages == 2, "a refusal evicts nothing");
    CHECK(esp_tree_alloc(tree, 3, pages) == ESP_OK, "two free, one evicted");
    CHECK(kit_match(tree, ns, "ab").n_pages == 1, "only the shortfall");
    CHECK(esp_tree_alloc(tree, 0, pages) == ESP_OK, "none is always possible");
    esp_tree_free_private(tree, pages, 3);
    kit_sound(tree);
    CHECK(kit_pages(tree, ESP_PAGE_FREE) == 3, "back");
    esp_tree_destroy(tree);
}

static void test_classes_go_in_order(void)
{
    struct esp_tree *tree = kit_tree(6, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    kit_leave(tree, ns, "r", ESP_CLASS_RETURN);
    kit_leave(tree, ns, "n", ESP_CLASS_NORMAL);
    kit_leave(tree, ns, "t", ESP_CLASS_TAIL);
    kit_leave(tree, ns, "s", ESP_CLASS_TAIL);
    kit_use(tree, ns, "t", ESP_CLASS_TAIL);
    static const char *const order[] = {"s", "t", "n", "r"};
    struct esp_page_id pages[6];
    CHECK(esp_tree_alloc(tree, 2, pages) == ESP_OK, "the free ones");
    for (uint32_t idx = 0; idx < 4; idx++) {
        CHECK(kit_match(tree, ns, order[idx]).n_pages == 1, "%s is still there", order[idx]);
        CHECK(esp_tree_alloc(tree, 1, pages) == ESP_OK, "one more");
        CHECK(kit_match(tree, ns, order[idx]).n_pages == 0, "%s went", order[idx]);
        kit_sound(tree);
    }
    esp_tree_destroy(tree);
}

/* A parent is kept by the class of its child, and falls back to its own when the child has gone. */
static void test_child_keeps_its_parent(void)
{
    struct esp_tree *tree = kit_tree(4, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    kit_leave(tree, ns, "pr", ESP_CLASS_RETURN);
    struct esp_node_id parent = kit_match(tree, ns, "p").last;
    esp_tree_lease(tree, parent, NULL);
    esp_tree_release(tree, parent, ESP_CLASS_TAIL);
    kit_leave(tree, ns, "q", ESP_CLASS_NORMAL);
    kit_leave(tree, ns, "s", ESP_CLASS_RETURN);
    kit_sound(tree);
    struct esp_page_id page;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK && kit_match(tree, ns, "q").n_pages == 0, "q goes first");
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK && kit_match(tree, ns, "pr").n_pages == 1, "then r, a leaf");
    kit_sound(tree);
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK && kit_match(tree, ns, "p").n_pages == 0, "then p, a tail now");
    CHECK(kit_match(tree, ns, "s").n_pages == 1, "s is left");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

/* The recipe of tree.h: only the answer goes first, the prompt stays normal. */
static void test_tail_of_an_answer(void)
{
    struct esp_tree *tree = kit_tree(4, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id last = kit_path(tree, ns, "pa");
    struct esp_node_id prompt = esp_tree_node_parent(tree, last);
    esp_tree_lease(tree, prompt, NULL);
    esp_tree_release(tree, last, ESP_CLASS_TAIL);
    esp_tree_release(tree, prompt, ESP_CLASS_NORMAL);
    kit_leave(tree, ns, "n", ESP_CLASS_NORMAL);
    struct esp_page_id pages[2];
    CHECK(esp_tree_alloc(tree, 2, pages) == ESP_OK, "one free, one evicted");
    CHECK(kit_match(tree, ns, "pa").n_pages == 1 && kit_match(tree, ns, "n").n_pages == 1, "the answer went");
    kit_use(tree, ns, "p", ESP_CLASS_NORMAL);
    CHECK(esp_tree_alloc(tree, 1, pages) == ESP_OK && kit_match(tree, ns, "p").n_pages == 1,
          "the prompt stands among the normal ones");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_highest_class_of_several_uses_stays(void)
{
    struct esp_tree *tree = kit_tree(2, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id node = kit_path(tree, ns, "a");
    esp_tree_lease(tree, node, NULL);
    esp_tree_release(tree, node, ESP_CLASS_RETURN);
    esp_tree_lease(tree, node, NULL);
    esp_tree_release(tree, node, ESP_CLASS_TAIL);
    esp_tree_release(tree, node, ESP_CLASS_TAIL);
    kit_leave(tree, ns, "n", ESP_CLASS_NORMAL);
    struct esp_page_id page;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK && kit_match(tree, ns, "a").n_pages == 1, "return stays");
    esp_tree_lease(tree, node, NULL);
    esp_tree_release(tree, node, ESP_CLASS_TAIL);
    esp_tree_free_private(tree, &page, 1);
    kit_leave(tree, ns, "n", ESP_CLASS_NORMAL);
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK && kit_match(tree, ns, "a").n_pages == 0, "and is forgotten");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_one_off_scan_leaves_return_class(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    kit_leave(tree, ns, "keep", ESP_CLASS_RETURN);
    for (char letter = 'A'; letter < 'A' + 50; letter++) {
        char text[3] = {letter, letter, '\0'};
        kit_leave(tree, ns, text, ESP_CLASS_TAIL);
    }
    CHECK(kit_match(tree, ns, "keep").n_pages == 4, "ten pools of one-off prompts went by");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_duplicate_insert(void)
{
    struct esp_tree *tree = kit_tree(4, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id first = kit_path(tree, ns, "a");
    uint32_t tokens[KIT_P];
    kit_text("a", tokens);
    struct esp_page_id page;
    struct esp_node_id again;
    bool existed = false;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "alloc");
    esp_status status = esp_tree_insert(tree, ns, ESP_NODE_NONE, tokens, page, ESP_PAGE_CACHED, &again, &existed);
    CHECK(status == ESP_OK, "insert %d", status);
    CHECK(existed && again.v == first.v && esp_tree_node_page(tree, again).v != page.v, "the first one stays");
    CHECK(kit_pages(tree, ESP_PAGE_PRIVATE) == 1, "the second page stays the caller's");
    esp_tree_free_private(tree, &page, 1);
    esp_tree_release(tree, first, ESP_CLASS_NORMAL);
    CHECK(esp_tree_flush(tree) == 0, "the second caller still holds it");
    esp_tree_release(tree, again, ESP_CLASS_NORMAL);
    CHECK(esp_tree_flush(tree) == 1 && kit_pages(tree, ESP_PAGE_FREE) == 4, "freed once");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

/* Two requests with one new prefix: the second sees what is coming, and finds what was written when the first ends. */
static void test_pending(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id one = kit_add(tree, ns, ESP_NODE_NONE, 'a', ESP_PAGE_PENDING);
    esp_tree_publish(tree, one);
    struct esp_node_id two = kit_add(tree, ns, one, 'b', ESP_PAGE_PENDING);
    struct esp_node_id three = kit_add(tree, ns, two, 'c', ESP_PAGE_PENDING);
    struct esp_match match = kit_match(tree, ns, "abcd");
    CHECK(match.n_pages == 3 && match.n_cached == 1 && match.n_copy_tokens == 0, "one written, two to come");
    esp_tree_lease(tree, two, NULL);
    CHECK(esp_tree_node_state(tree, two) == ESP_PAGE_PENDING, "not written yet");
    esp_tree_release(tree, three, ESP_CLASS_NORMAL);
    CHECK(!esp_tree_node_alive(tree, three), "nobody holds the third");
    CHECK(esp_tree_node_alive(tree, two), "the second is leased");
    kit_sound(tree);
    esp_tree_publish(tree, two);
    CHECK(kit_match(tree, ns, "abcd").n_cached == 2, "written");
    esp_tree_release(tree, two, ESP_CLASS_NORMAL);
    CHECK(esp_tree_flush(tree) == 2 && kit_pages(tree, ESP_PAGE_FREE) == 8, "all pages back");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_pending_without_a_lease_leaves(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id node = ESP_NODE_NONE;
    for (const char *letter = "abc"; *letter != '\0'; letter++) {
        node = kit_add(tree, ns, node, *letter, ESP_PAGE_PENDING);
    }
    esp_tree_release(tree, node, ESP_CLASS_NORMAL);
    CHECK(kit_pages(tree, ESP_PAGE_FREE) == 8, "pending pages nobody holds are free at once");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_stale_id_is_noticed(void)
{
    struct esp_tree *tree = kit_tree(1, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id old = kit_leave(tree, ns, "a", ESP_CLASS_NORMAL);
    struct esp_node_id next = kit_leave(tree, ns, "b", ESP_CLASS_NORMAL);
    CHECK(old.v == next.v, "the same page");
    CHECK(!esp_tree_node_alive(tree, old) && esp_tree_node_alive(tree, next), "another generation");
    CHECK(!esp_tree_node_alive(tree, ESP_NODE_NONE), "none is not alive");
    esp_tree_destroy(tree);
}

/* B163: one bit of hash, so that pages collide all the time; what matches are the tokens. */
static void test_collisions_are_counted_and_harmless(void)
{
    struct esp_tree *tree = kit_tree(64, 1);
    struct esp_ns_id ns = kit_ns(tree, "m");
    for (char letter = 'a'; letter <= 'z'; letter++) {
        char text[3] = {letter, letter, '\0'};
        kit_leave(tree, ns, text, ESP_CLASS_NORMAL);
    }
    kit_sound(tree);
    for (char letter = 'a'; letter <= 'z'; letter++) {
        char text[3] = {letter, letter, '\0'}, wrong[3] = {letter, '!', '\0'};
        CHECK(kit_match(tree, ns, text).n_pages == 2 && kit_match(tree, ns, wrong).n_pages == 1, "%s", text);
    }
    struct esp_tree_stats stats;
    esp_tree_get_stats(tree, &stats);
    CHECK(stats.hash_rejected_total > 100, "%llu", (unsigned long long)stats.hash_rejected_total);
    esp_tree_destroy(tree);
}

/* What matches does not depend on the order of inserts. */
static void test_insert_order_does_not_matter(void)
{
    static const char *const texts[] = {"abc", "abd", "axy", "q", "abcde"};
    for (int shift = 0; shift < 5; shift++) {
        struct esp_tree *tree = kit_tree(32, 4);
        struct esp_ns_id ns = kit_ns(tree, "m");
        for (int idx = 0; idx < 5; idx++) {
            kit_leave(tree, ns, texts[(idx + shift) % 5], ESP_CLASS_NORMAL);
        }
        CHECK(kit_pages(tree, ESP_PAGE_CACHED) == 9, "nine different pages");
        CHECK(kit_match(tree, ns, "abcdz").n_pages == 4 && kit_match(tree, ns, "axz").n_pages == 2, "%d", shift);
        kit_sound(tree);
        esp_tree_destroy(tree);
    }
}

/* B165: 20,000 nodes in one chain: nothing walks by recursion, and the end of the chain goes first. */
static void test_deep_chain(void)
{
    enum { DEEP = 20000 };
    struct esp_tree *tree = kit_tree(DEEP, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    uint32_t *tokens = malloc((size_t)DEEP * KIT_P * sizeof *tokens);
    REQUIRE(tokens != NULL, "memory");
    struct esp_node_id node = ESP_NODE_NONE;
    for (uint32_t depth = 0; depth < DEEP; depth++) {
        for (uint32_t at = 0; at < KIT_P; at++) {
            tokens[depth * KIT_P + at] = depth % 7 + at;
        }
        struct esp_page_id page;
        bool existed;
        REQUIRE(esp_tree_alloc(tree, 1, &page) == ESP_OK, "page %u", depth);
        REQUIRE(esp_tree_insert(tree, ns, node, tokens + (size_t)depth * KIT_P, page, ESP_PAGE_CACHED, &node,
                                &existed) == ESP_OK && !existed, "node %u", depth);
    }
    struct esp_match match;
    esp_tree_match(tree, ns, tokens, DEEP * KIT_P, &match);
    CHECK(match.n_pages == DEEP, "%u", match.n_pages);
    struct esp_page_id page;
    CHECK(esp_tree_alloc(tree, 1, &page) != ESP_OK, "all are leased");
    esp_tree_release(tree, node, ESP_CLASS_NORMAL);
    for (uint32_t n = 1; n <= DEEP / 2; n++) {
        CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "page %u", n);
        esp_tree_free_private(tree, &page, 1);
    }
    kit_sound(tree);
    struct esp_page_id pages[64];
    for (uint32_t n = 0; n < DEEP / 64 / 2; n++) {
        CHECK(esp_tree_alloc(tree, 64, pages) == ESP_OK, "pages");
    }
    esp_tree_match(tree, ns, tokens, DEEP * KIT_P, &match);
    CHECK(match.n_pages == DEEP - DEEP / 64 / 2 * 64, "%u", match.n_pages);
    kit_sound(tree);
    esp_tree_destroy(tree);
    free(tokens);
}

/* B167: a prefix that all share, room for it and ten tails: a thousand tails never push it out. */
static void test_shared_prefix_is_never_evicted(void)
{
    struct esp_tree *tree = kit_tree(4 + 10, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    struct esp_node_id held = kit_path(tree, ns, "PPPP");
    for (uint32_t n = 0; n < 1000; n++) {
        uint32_t tokens[5 * KIT_P];
        kit_text("PPPPt", tokens);
        tokens[4 * KIT_P] = 1000 + n;
        struct esp_match match;
        esp_tree_match(tree, ns, tokens, 5 * KIT_P, &match);
        CHECK(match.n_pages == 4, "tail %u finds %u pages of the prefix", n, match.n_pages);
        struct esp_node_id node = held, tail;
        struct esp_page_id page;
        bool existed;
        esp_tree_lease(tree, node, NULL);
        REQUIRE(esp_tree_alloc(tree, 1, &page) == ESP_OK, "tail %u", n);
        REQUIRE(esp_tree_insert(tree, ns, node, tokens + 4 * KIT_P, page, ESP_PAGE_CACHED, &tail, &existed) == ESP_OK,
                "tail %u", n);
        esp_tree_release(tree, tail, ESP_CLASS_NORMAL);
        if (n == 500) {
            esp_tree_release(tree, held, ESP_CLASS_NORMAL); /* from here on only its use protects it */
        }
    }
    struct esp_tree_stats stats;
    esp_tree_get_stats(tree, &stats);
    CHECK(kit_match(tree, ns, "PPPP").n_pages == 4 && stats.leased == 0, "%u leased", stats.leased);
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_time_and_flush(void)
{
    struct esp_tree *tree = kit_tree(4, 128);
    struct esp_ns_id ns = kit_ns(tree, "m");
    esp_tree_set_now(tree, 1000);
    kit_leave(tree, ns, "a", ESP_CLASS_NORMAL);
    esp_tree_set_now(tree, 10);
    kit_leave(tree, ns, "b", ESP_CLASS_NORMAL);
    kit_sound(tree);
    CHECK(esp_tree_flush(tree) == 2 && esp_tree_flush(tree) == 0, "flush");
    struct esp_tree_stats stats;
    esp_tree_get_stats(tree, &stats);
    CHECK(stats.evicted_total == 0 && stats.leased == 0, "a flush is no eviction");
    esp_tree_destroy(tree);
}

static void test_create_refuses(void)
{
    static const struct esp_tree_config bad[] = {
        {.n_pages = 0, .hash_bits = 128},
        {.n_pages = ESP_TREE_PAGES_MAX + 1, .hash_bits = 128},
        {.n_pages = 4, .hash_bits = 0},
        {.n_pages = 4, .hash_bits = 129},
    };
    for (size_t idx = 0; idx < sizeof bad / sizeof bad[0]; idx++) {
        struct esp_tree *tree = NULL;
        struct esp_err err;
        CHECK(esp_tree_create(&bad[idx], &tree, &err) == ESP_EINVAL && tree == NULL, "case %zu", idx);
        CHECK(err.message[0] != '\0', "says why");
    }
    esp_tree_destroy(NULL);
}

static void test_create_survives_every_failure(void)
{
    uint64_t n_live = esp_alloc_live();
    struct esp_tree_config config = {.n_pages = 100, .seed = 1, .hash_bits = 128};
    struct esp_tree *tree = NULL;
    int n_failures = 0;
    for (uint64_t at = 1; tree == NULL && at < 100; at++) {
        esp_alloc_fail_at(at);
        esp_status status = esp_tree_create(&config, &tree, NULL);
        bool fired = esp_alloc_fail_at(0);
        CHECK(status == (fired ? ESP_ENOMEM : ESP_OK), "allocation %llu", (unsigned long long)at);
        CHECK(tree != NULL || esp_alloc_live() == n_live, "leak at %llu", (unsigned long long)at);
        n_failures += fired;
    }
    CHECK(n_failures == 7, "%d places to fail", n_failures);
    struct esp_field field = {"x", 1};
    struct esp_ns_id ns;
    esp_alloc_fail_at(1);
    CHECK(esp_tree_namespace(tree, &field, 1, &ns, NULL) == ESP_ENOMEM, "a namespace too");
    esp_alloc_fail_at(0);
    kit_sound(tree);
    CHECK(esp_tree_namespace(tree, &field, 1, &ns, NULL) == ESP_OK, "and later it works");
    kit_sound(tree);
    esp_tree_destroy(tree);
    CHECK(esp_alloc_live() == n_live, "all freed");
}

static void test_bytes_are_exact(void)
{
    for (uint32_t n_pages = 1; n_pages < 100000; n_pages = n_pages * 3 + 1) {
        size_t before = esp_alloc_bytes(ESP_TAG_TREE);
        struct esp_tree *tree = kit_tree(n_pages, 128);
        CHECK(esp_alloc_bytes(ESP_TAG_TREE) - before == esp_tree_bytes(n_pages), "%u pages", n_pages);
        esp_tree_destroy(tree);
    }
}

ESP_TEST_MAIN(T(test_match_needs_the_whole_prefix), T(test_partial_page), T(test_copy_page_is_not_leased),
              T(test_partial_scan_is_bounded), T(test_lease_protects_and_orders_pages),
              T(test_alloc_is_all_or_nothing), T(test_classes_go_in_order), T(test_child_keeps_its_parent),
              T(test_tail_of_an_answer), T(test_highest_class_of_several_uses_stays),
              T(test_one_off_scan_leaves_return_class), T(test_duplicate_insert), T(test_pending),
              T(test_pending_without_a_lease_leaves), T(test_stale_id_is_noticed),
              T(test_collisions_are_counted_and_harmless), T(test_insert_order_does_not_matter), T(test_deep_chain),
              T(test_shared_prefix_is_never_evicted), T(test_time_and_flush), T(test_create_refuses),
              T(test_create_survives_every_failure), T(test_bytes_are_exact))
