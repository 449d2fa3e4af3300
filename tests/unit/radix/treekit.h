/* Small helpers for tests of the tree: a tree in a few words, pages of one letter, leases by depth.
 * Thread: the test's. Failures are reported through CHECK. */
#ifndef ESP_TESTS_TREEKIT_H
#define ESP_TESTS_TREEKIT_H

#include "radix/tree.h"
#include "tests/esptest.h"

enum { KIT_P = ESP_TREE_PAGE_TOKENS };

static inline struct esp_tree *kit_tree(uint32_t n_pages, unsigned hash_bits)
{
    struct esp_tree_config config = {
        .n_pages = n_pages, .n_pin_pages_max = n_pages / 2, .seed = esp_test_state.seed, .hash_bits = hash_bits};
    struct esp_tree *tree = NULL;
    CHECK(esp_tree_create(&config, &tree, NULL) == ESP_OK, "create");
    return tree;
}

static inline struct esp_ns_id kit_ns(struct esp_tree *tree, const char *name)
{
    struct esp_field field = {name, strlen(name)};
    struct esp_ns_id ns = {UINT32_MAX};
    CHECK(esp_tree_namespace(tree, &field, 1, &ns, NULL) == ESP_OK, "namespace %s", name);
    return ns;
}

/* "abc" → 48 tokens: a page of 'a', one of 'b', one of 'c'. */
static inline uint32_t kit_text(const char *letters, uint32_t *out)
{
    uint32_t n = (uint32_t)strlen(letters) * KIT_P;
    for (uint32_t idx = 0; idx < n; idx++) {
        out[idx] = (uint32_t)letters[idx / KIT_P];
    }
    return n;
}

static inline struct esp_match kit_match(struct esp_tree *tree, struct esp_ns_id ns, const char *letters)
{
    uint32_t tokens[64 * KIT_P];
    struct esp_match match;
    esp_tree_match(tree, ns, tokens, kit_text(letters, tokens), &match);
    return match;
}

/* One page of `letter` below parent; the lease on parent becomes one on the result. */
static inline struct esp_node_id kit_add(struct esp_tree *tree, struct esp_ns_id ns, struct esp_node_id parent,
                                         char letter, enum esp_page_state state)
{
    uint32_t tokens[KIT_P];
    char letters[2] = {letter, '\0'};
    kit_text(letters, tokens);
    struct esp_page_id page;
    struct esp_node_id node = ESP_NODE_NONE;
    bool existed = false;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "a page for '%c'", letter);
    CHECK(esp_tree_insert(tree, ns, parent, tokens, page, state, &node, &existed) == ESP_OK, "insert '%c'", letter);
    if (existed) {
        esp_tree_free_private(tree, &page, 1);
    }
    return node;
}

/* All pages of the text, cached; holds a lease on the last. */
static inline struct esp_node_id kit_path(struct esp_tree *tree, struct esp_ns_id ns, const char *letters)
{
    struct esp_node_id node = ESP_NODE_NONE;
    for (; *letters != '\0'; letters++) {
        node = kit_add(tree, ns, node, *letters, ESP_PAGE_CACHED);
    }
    return node;
}

/* The same without a lease, in the given class. */
static inline struct esp_node_id kit_leave(struct esp_tree *tree, struct esp_ns_id ns, const char *letters,
                                           enum esp_evict_class class)
{
    struct esp_node_id node = kit_path(tree, ns, letters);
    esp_tree_release(tree, node, class);
    return node;
}

/* A use of what is there already. */
static inline void kit_use(struct esp_tree *tree, struct esp_ns_id ns, const char *letters, enum esp_evict_class class)
{
    struct esp_node_id node = kit_match(tree, ns, letters).last;
    esp_tree_lease(tree, node, NULL);
    esp_tree_release(tree, node, class);
}

static inline void kit_sound(const struct esp_tree *tree)
{
    char reason[160] = "";
    CHECK(esp_tree_check(tree, reason, sizeof reason), "%s", reason);
}

static inline uint32_t kit_pages(const struct esp_tree *tree, enum esp_page_state state)
{
    struct esp_tree_stats stats;
    esp_tree_get_stats(tree, &stats);
    return stats.pages[state];
}

#endif
