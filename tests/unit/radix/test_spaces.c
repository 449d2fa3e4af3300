/* Namespaces: exact bytes, isolation, limits, recycling. */
#include "tests/unit/radix/treekit.h"

static struct esp_ns_id two_fields(struct esp_tree *tree, const char *one, const char *two)
{
    struct esp_field fields[2] = {{one, strlen(one)}, {two, strlen(two)}};
    struct esp_ns_id ns = {UINT32_MAX};
    CHECK(esp_tree_namespace(tree, fields, 2, &ns, NULL) == ESP_OK, "namespace");
    return ns;
}

static void test_fields_are_kept_apart(void)
{
    for (unsigned hash_bits = 1; hash_bits <= 128; hash_bits += 127) {
        struct esp_tree *tree = kit_tree(8, hash_bits);
        struct esp_ns_id ids[] = {two_fields(tree, "ab", "c"), two_fields(tree, "a", "bc"), two_fields(tree, "abc", ""),
                                  two_fields(tree, "", "abc"), kit_ns(tree, "abc")};
        for (int left = 0; left < 5; left++) {
            for (int right = 0; right < left; right++) {
                CHECK(ids[left].v != ids[right].v, "%d and %d", left, right);
            }
        }
        CHECK(two_fields(tree, "ab", "c").v == ids[0].v, "the same fields, the same namespace");
        struct esp_ns_id none;
        CHECK(esp_tree_namespace(tree, NULL, 0, &none, NULL) == ESP_OK, "no fields is one more");
        kit_sound(tree);
        esp_tree_destroy(tree);
    }
}

static void test_no_match_across(void)
{
    struct esp_tree *tree = kit_tree(8, 1);
    struct esp_ns_id one = kit_ns(tree, "one"), two = kit_ns(tree, "two");
    struct esp_node_id in_one = kit_leave(tree, one, "abc", ESP_CLASS_NORMAL);
    struct esp_match match = kit_match(tree, two, "abc");
    CHECK(match.n_pages == 0 && match.n_copy_tokens == 0, "nothing of the other");
    struct esp_node_id in_two = kit_leave(tree, two, "abc", ESP_CLASS_NORMAL);
    CHECK(in_one.v != in_two.v && kit_match(tree, one, "abc").last.v == in_one.v, "each its own");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_too_long(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    static char long_salt[ESP_TREE_NAMESPACE_BYTES_MAX + 1];
    struct esp_field fields[3] = {{long_salt, ESP_TREE_NAMESPACE_BYTES_MAX - 8}, {long_salt, SIZE_MAX}};
    struct esp_ns_id ns = {12345};
    struct esp_err err;
    CHECK(esp_tree_namespace(tree, fields, 1, &ns, &err) == ESP_OK, "just fits");
    ns.v = 12345;
    CHECK(esp_tree_namespace(tree, fields, 2, &ns, &err) == ESP_ELIMIT, "a length near SIZE_MAX");
    fields[0].n_bytes++;
    CHECK(esp_tree_namespace(tree, fields, 1, &ns, &err) == ESP_ELIMIT && err.message[0] != '\0', "one too many");
    CHECK(ns.v == 12345, "untouched on failure");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static struct esp_ns_id numbered(struct esp_tree *tree, uint32_t number, esp_status *ret_status)
{
    struct esp_field field = {&number, sizeof number};
    struct esp_ns_id ns = {UINT32_MAX};
    *ret_status = esp_tree_namespace(tree, &field, 1, &ns, NULL);
    return ns;
}

static void test_idle_slots_are_recycled(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    esp_status status;
    struct esp_ns_id used = numbered(tree, 0, &status);
    struct esp_ns_id idle = numbered(tree, 1, &status);
    kit_leave(tree, used, "a", ESP_CLASS_NORMAL);
    for (uint32_t number = 2; number < 3 * ESP_TREE_NAMESPACES_MAX; number++) {
        numbered(tree, number, &status);
        REQUIRE(status == ESP_OK, "number %u", number);
    }
    kit_sound(tree);
    CHECK(kit_match(tree, used, "a").n_pages == 1, "one with pages keeps its slot");
    CHECK(numbered(tree, 0, &status).v == used.v, "and its id");
    CHECK(kit_match(tree, idle, "a").n_pages == 0, "a recycled id finds nothing");
    CHECK(numbered(tree, 1, &status).v != idle.v, "and is not given out again");

    struct esp_page_id page;
    struct esp_node_id node = ESP_NODE_NONE;
    uint32_t tokens[KIT_P] = {0};
    bool existed;
    CHECK(esp_tree_alloc(tree, 1, &page) == ESP_OK, "alloc");
    status = esp_tree_insert(tree, idle, ESP_NODE_NONE, tokens, page, ESP_PAGE_CACHED, &node, &existed);
    CHECK(status == ESP_ESTATE, "nor enters");
    CHECK(node.v == ESP_NODE_NONE.v && kit_pages(tree, ESP_PAGE_PRIVATE) == 1, "the page stays private");
    esp_tree_free_private(tree, &page, 1);
    kit_sound(tree);
    esp_tree_destroy(tree);
}

static void test_all_slots_hold_pages(void)
{
    struct esp_tree *tree = kit_tree(ESP_TREE_NAMESPACES_MAX + 1, 128);
    esp_status status;
    for (uint32_t number = 0; number < ESP_TREE_NAMESPACES_MAX; number++) {
        kit_leave(tree, numbered(tree, number, &status), "a", ESP_CLASS_NORMAL);
    }
    kit_sound(tree);
    numbered(tree, 999999, &status);
    CHECK(status == ESP_ELIMIT, "no slot left");
    CHECK(numbered(tree, 7, &status).v != UINT32_MAX && status == ESP_OK, "known ones are still found");
    CHECK(esp_tree_flush(tree) == ESP_TREE_NAMESPACES_MAX, "flush");
    numbered(tree, 999999, &status);
    CHECK(status == ESP_OK, "idle ones make room");
    kit_sound(tree);
    esp_tree_destroy(tree);
}

ESP_TEST_MAIN(T(test_fields_are_kept_apart), T(test_no_match_across), T(test_too_long),
              T(test_idle_slots_are_recycled), T(test_all_slots_hold_pages))
