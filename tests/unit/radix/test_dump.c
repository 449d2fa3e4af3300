/* Listings: what they show, where they are cut, and a full buffer. */
#include "radix/dump.h"
#include "tests/unit/radix/treekit.h"

static struct esp_tree *sample(void)
{
    struct esp_tree *tree = kit_tree(8, 128);
    struct esp_ns_id one = kit_ns(tree, "one"), two = kit_ns(tree, "two");
    esp_tree_set_now(tree, 1000000000);
    kit_leave(tree, one, "ab", ESP_CLASS_NORMAL);
    kit_leave(tree, one, "ac", ESP_CLASS_TAIL);
    kit_add(tree, two, ESP_NODE_NONE, 'z', ESP_PAGE_PENDING);
    esp_tree_set_now(tree, 3500000000);
    return tree;
}

static void test_text(void)
{
    struct esp_tree *tree = sample();
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_MISC, 1 << 16);
    esp_tree_dump_text(tree, UINT32_MAX, &buf);
    REQUIRE(!buf.failed, "fits");
    static const char *const wanted[] = {
        "8 pages: 4 free 0 private 1 pending 3 cached, 1 leased\n",
        "namespace 0\n  1: [97 97 ",
        "page 0 cached refs 0 class normal age 2.500 s children 2\n    2: [99 99 ",
        "] page 2 cached refs 0 class tail age",
        "\n    2: [98 98 ",
        "] page 1 cached refs 0 class normal age 2.500 s\n",
        "namespace 1\n  1: [122 122 ",
        "pending refs 1",
    };
    for (size_t idx = 0; idx < sizeof wanted / sizeof wanted[0]; idx++) {
        CHECK(strstr(buf.data, wanted[idx]) != NULL, "missing: %s in\n%s", wanted[idx], buf.data);
    }
    CHECK(strstr(buf.data, "[99 99") < strstr(buf.data, "[98 98"), "latest use first");
    esp_buf_clear(&buf);
    esp_tree_dump_text(tree, 2, &buf);
    CHECK(strstr(buf.data, "cut after 2 nodes") != NULL && strstr(buf.data, "[98 98") == NULL, "%s", buf.data);
    esp_buf_finish(&buf);
    esp_tree_destroy(tree);
}

static void test_dot(void)
{
    struct esp_tree *tree = sample();
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_MISC, 1 << 16);
    esp_tree_dump_dot(tree, UINT32_MAX, &buf);
    REQUIRE(!buf.failed, "fits");
    static const char *const wanted[] = {"digraph tree {\n", "n0 [label=\"namespace 0\"", "n0 -> p0;", "p0 -> p1;",
                                         "p0 -> p2;", "n1 -> p3;", "fillcolor=khaki, penwidth=3", "1 leased\";\n}\n"};
    for (size_t idx = 0; idx < sizeof wanted / sizeof wanted[0]; idx++) {
        CHECK(strstr(buf.data, wanted[idx]) != NULL, "missing: %s in\n%s", wanted[idx], buf.data);
    }
    int depth = 0;
    for (const char *at = buf.data; *at != '\0'; at++) {
        depth += (*at == '{') - (*at == '}');
        CHECK(depth >= 0, "braces");
    }
    CHECK(depth == 0, "braces balance");
    esp_buf_finish(&buf);
    esp_tree_destroy(tree);
}

static void test_full_buffer(void)
{
    struct esp_tree *tree = sample();
    for (size_t cap = 0; cap < 400; cap += 13) {
        struct esp_buf buf;
        esp_buf_init(&buf, ESP_TAG_MISC, cap);
        esp_tree_dump_text(tree, UINT32_MAX, &buf);
        CHECK(buf.failed && buf.n <= cap, "cap %zu", cap);
        esp_buf_finish(&buf);
    }
    esp_tree_destroy(tree);
}

ESP_TEST_MAIN(T(test_text), T(test_dot), T(test_full_buffer))
