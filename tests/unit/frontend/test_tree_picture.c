/* Pictures of a tree from its JSON: rows in one, branches, hostile texts, cut answers, JSON that is something else. */
#include "frontend/tree_picture.h"
#include "tests/esptest.h"

#define NODE(id, parent, text, class, refs)  \
    "{\"id\":" id ",\"parent\":" parent ",\"tokens\":[],\"text\":\"" text "\",\"namespace\":0,\"page\":" id  \
    ",\"depth\":1,\"refs\":" refs ",\"class\":\"" class "\",\"age_s\":1.5,\"state\":\"cached\"}"

static const char sample[] =
    "{\"pages\":{\"free\":3,\"cached\":5},\"nodes\":["
    NODE("4", "null", "policy <a>", "normal", "1") "," NODE("2", "4", "& more", "normal", "1") ","
    NODE("1", "2", "ticket \\\"one\\\"\\n", "return", "0") "," NODE("0", "1", "its end", "return", "0") ","
    NODE("9", "2", "ticket two", "tail", "0") "],\"namespaces\":[{\"id\":0,\"pages\":5}],\"truncated\":false}";

typedef esp_status (*drawer)(const json_t *tree, struct esp_buf *buf, struct esp_err *err);
static const drawer drawers[] = {esp_tree_text, esp_tree_dot, esp_tree_svg};

static void draw(drawer one, const char *text, esp_status want, struct esp_buf *buf)
{
    struct esp_err err = {0};
    json_t *tree = json_loads(text, JSON_DECODE_ANY, NULL);
    CHECK(tree != NULL, "the test's JSON");
    esp_buf_init(buf, ESP_TAG_MISC, 1 << 20);
    esp_status status = one(tree, buf, &err);
    CHECK(status == want, "status %d: %s", status, err.message);
    json_decref(tree);
}

static void has(const struct esp_buf *buf, const char *part)
{
    CHECK(buf->data != NULL && strstr(buf->data, part) != NULL, "%s is not in\n%s", part, buf->data);
}

static void test_text(void)
{
    struct esp_buf buf;
    draw(esp_tree_text, sample, ESP_OK, &buf);
    has(&buf, "pages: 3 free, 5 cached\nnamespace 0: 5 pages\n");
    has(&buf, "2 pages  \"policy <a>\u2026& more\"  refs 1  normal  1.5 s\n");
    has(&buf, "\n\u251c\u2500 2 pages  \"ticket \\\"one\\\"\u23ce\u2026its end\"  refs 0  return");
    has(&buf, "\n\u2514\u2500 1 page  \"ticket two\"  refs 0  tail");
    esp_buf_finish(&buf);
}

static void test_dot(void)
{
    struct esp_buf buf;
    draw(esp_tree_dot, sample, ESP_OK, &buf);
    has(&buf, "digraph tree {");
    has(&buf, "s0 -> s1;");
    has(&buf, "s0 -> s2;");
    has(&buf, "n0 -> s0;");
    has(&buf, "ticket \\\"one\\\"");
    has(&buf, "penwidth=3");
    esp_buf_finish(&buf);
}

static void test_svg(void)
{
    struct esp_buf buf;
    draw(esp_tree_svg, sample, ESP_OK, &buf);
    has(&buf, "<svg xmlns=");
    has(&buf, "policy &lt;a&gt;\u2026&amp; more");
    has(&buf, "&quot;one&quot;");
    has(&buf, "</svg>\n");
    uint32_t n_boxes = 0;
    for (const char *at = buf.data; (at = strstr(at, "<rect")) != NULL; at++) {
        n_boxes++;
    }
    CHECK(n_boxes == 3, "%u boxes", n_boxes);
    esp_buf_finish(&buf);
}

static void test_odd_answers(void)
{
    static const char *const wrong[] = {"[]", "7", "{}", "{\"nodes\":[]}", "{\"pages\":{},\"nodes\":[1]}",
                                        "{\"pages\":{},\"nodes\":[{\"id\":\"x\",\"class\":\"tail\"}]}"};
    static const char *const fine[] = {
        "{\"pages\":{},\"nodes\":[]}", "{\"pages\":{},\"nodes\":[{\"id\":1,\"class\":\"tail\",\"parent\":77}]}",
        "{\"pages\":{},\"nodes\":[{\"id\":1,\"class\":\"\",\"parent\":1,\"text\":\"\"}],\"truncated\":true}"};
    for (size_t idx = 0; idx < 3; idx++) {
        struct esp_buf buf;
        for (size_t at = 0; at < sizeof wrong / sizeof wrong[0]; at++) {
            draw(drawers[idx], wrong[at], ESP_EINVAL, &buf);
            esp_buf_finish(&buf);
        }
        for (size_t at = 0; at < sizeof fine / sizeof fine[0]; at++) {
            draw(drawers[idx], fine[at], ESP_OK, &buf);
            esp_buf_finish(&buf);
        }
    }
}

/* A chain of spans far deeper than any indentation: one line each, none longer than the deepest. */
static void test_deep(void)
{
    struct esp_buf json, buf;
    esp_buf_init(&json, ESP_TAG_MISC, 1 << 24);
    esp_buf_str(&json, "{\"pages\":{},\"nodes\":[");
    for (int idx = 0; idx < 3000; idx++) {
        esp_buf_printf(&json, "%s{\"id\":%d,\"parent\":%d,\"class\":\"%s\",\"text\":\"x\"}", idx > 0 ? "," : "", idx,
                       idx - 1, idx % 2 == 0 ? "tail" : "normal");
    }
    esp_buf_str(&json, "]}");
    for (size_t idx = 0; idx < 3; idx++) {
        draw(drawers[idx], json.data, ESP_OK, &buf);
        CHECK(buf.n < 3000 * 800, "%zu bytes", buf.n);
        esp_buf_finish(&buf);
    }
    esp_buf_finish(&json);
}

ESP_TEST_MAIN(T(test_text), T(test_dot), T(test_svg), T(test_odd_answers), T(test_deep))
