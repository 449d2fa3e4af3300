/* Why a prompt is found no further: what is stored instead, what was stored once and when, what others have. Answers
 * are compared with a list of every page that was ever stored.
 */
#include "tests/unit/radix/treekit.h"

static struct esp_tree_why explain(struct esp_tree *tree, struct esp_ns_id ns, const char *letters, uint32_t n_spaces)
{
    uint32_t tokens[64 * KIT_P];
    struct esp_tree_why why;
    esp_tree_explain(tree, ns, tokens, kit_text(letters, tokens), n_spaces, &why);
    return why;
}

/* The path of letters, cached and not leased. */
static void store(struct esp_tree *tree, struct esp_ns_id ns, const char *letters)
{
    struct esp_node_id node = ESP_NODE_NONE;
    for (; *letters != '\0'; letters++) {
        node = kit_add(tree, ns, node, *letters, ESP_PAGE_CACHED);
    }
    esp_tree_release(tree, node, ESP_CLASS_NORMAL);
}

static void test_what_is_stored(void)
{
    struct esp_tree *tree = kit_tree(64, 128);
    struct esp_ns_id ns = kit_ns(tree, "n"), other = kit_ns(tree, "o");
    struct esp_tree_why why = explain(tree, ns, "ab", 0);
    CHECK(why.n_found == 0 && why.n_wanted == 2 * KIT_P && !why.diverges && why.have == UINT32_MAX);
    store(tree, ns, "abc");
    why = explain(tree, ns, "abd", 0);
    CHECK(why.n_found == 2 * KIT_P && why.diverges && why.have == 'c' && why.n_evicted == 0);
    why = explain(tree, ns, "abcd", 0);
    CHECK(why.n_found == 3 * KIT_P && !why.diverges, "nothing is stored behind c");
    why = explain(tree, ns, "abc", 0);
    CHECK(why.n_found == why.n_wanted && !why.diverges);
    why = explain(tree, other, "abx", 0);
    CHECK(why.n_found == 0 && why.n_elsewhere == 0, "not looked for");
    why = explain(tree, other, "abx", 64);
    CHECK(why.n_elsewhere == 2 * KIT_P && !why.diverges);
    uint32_t tokens[3 * KIT_P]; /* inside a page: the first of them that differs */
    kit_text("abc", tokens);
    tokens[2 * KIT_P + 5] = 'z';
    esp_tree_explain(tree, ns, tokens, 3 * KIT_P, 0, &why);
    CHECK(why.n_found == 2 * KIT_P + 5 && why.diverges && why.have == 'c');
    esp_tree_explain(tree, ns, tokens, 2 * KIT_P + 5, 0, &why);
    CHECK(why.n_found == 2 * KIT_P + 5 && !why.diverges, "the prompt ends before it");
    esp_tree_destroy(tree);
}

static void test_what_was_stored(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    struct esp_ns_id ns = kit_ns(tree, "n"), other = kit_ns(tree, "o");
    esp_tree_set_now(tree, 1000);
    store(tree, ns, "abcd");
    esp_tree_set_now(tree, 2000);
    store(tree, other, "xyzwuv"); /* two pages of room are missing: d and c go */
    struct esp_tree_why why = explain(tree, ns, "abcde", 0);
    CHECK(why.n_found == 2 * KIT_P && why.n_evicted == 2 * KIT_P && why.evicted_ns == 2000, "%u, %u", why.n_found,
          why.n_evicted);
    why = explain(tree, ns, "abd", 0);
    CHECK(why.n_evicted == 0, "never on this path");
    why = explain(tree, other, "abcd", 0);
    CHECK(why.n_evicted == 0, "not in this namespace");
    esp_tree_set_now(tree, 3000);
    CHECK(esp_tree_flush(tree) == 8);
    why = explain(tree, ns, "abcd", 0);
    CHECK(why.n_evicted == 4 * KIT_P && why.evicted_ns == 3000, "%u", why.n_evicted);
    store(tree, ns, "ab");
    why = explain(tree, ns, "abcd", 0);
    CHECK(why.n_found == 2 * KIT_P && why.n_evicted == 2 * KIT_P && why.evicted_ns == 2000);
    esp_tree_destroy(tree);
}

/* Random paths over three letters, with more of them than pages: what is told to have been here was, and little that
 * was is forgotten while the table has room for all. */
static void test_random(void)
{
    enum { DEPTH = 5, PATHS = 3 * 3 * 3 * 3 * 3 };
    struct esp_tree *tree = kit_tree(40, 128);
    struct esp_ns_id ns = kit_ns(tree, "n");
    static bool was[DEPTH + 1][PATHS]; /* by depth and number of the path */
    memset(was, 0, sizeof was);
    uint32_t n_all = 0, n_told = 0;
    for (int round = 0; round < 4000; round++) {
        char letters[DEPTH + 1] = "";
        uint32_t number = 0, n_ever = 0;
        bool all = true;
        for (uint32_t depth = 1; depth <= DEPTH; depth++) {
            uint32_t letter = (uint32_t)esp_rng_below(&esp_test_state.rng, 3);
            letters[depth - 1] = (char)('a' + letter);
            number = number * 3 + letter;
            all = all && was[depth][number];
            n_ever += all;
        }
        struct esp_tree_why why = explain(tree, ns, letters, 0);
        CHECK(why.n_found + why.n_evicted <= n_ever * KIT_P, "%s: %u found, %u evicted, %u pages ever", letters,
              why.n_found, why.n_evicted, n_ever);
        n_all += n_ever;
        n_told += (why.n_found + why.n_evicted) / KIT_P;
        store(tree, ns, letters);
        for (uint32_t depth = DEPTH; depth > 0; depth--, number /= 3) {
            was[depth][number] = true;
        }
    }
    CHECK(n_told > n_all * 95ull / 100, "%u of %u pages are remembered", n_told, n_all);
    esp_tree_destroy(tree);
}

ESP_TEST_MAIN(T(test_what_is_stored), T(test_what_was_stored), T(test_random))
