/* See tree_picture.h. Spans stand in the order of the answer, depth first, so a parent comes before what hangs below it
 * and drawing needs no recursion. */
#include "frontend/tree_picture.h"

#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/map.h"

#define NONE UINT32_MAX
enum { INDENT_MAX = 32, HEAD_BYTES = 36, TAIL_BYTES = 20, BOX_WIDTH = 330, BOX_HEIGHT = 34, STEP_X = 370, STEP_Y = 42 };

struct span { /* pages in a row */
    const json_t *first, *last;
    uint32_t parent; /* span, or NONE */
    uint32_t depth, n_pages, n_children;
    uint32_t last_child;
    int64_t namespace;
    double age_s; /* of the latest use */
    double y, y_min, y_max;
};

struct picture {
    struct span *spans;
    uint32_t n_spans;
    uint32_t *parents, *n_children, *span_of; /* [n_nodes] */
    struct esp_map at;                        /* id of a node → its place in the answer */
    size_t n_nodes;
};

static int64_t number(const json_t *node, const char *name)
{
    return json_integer_value(json_object_get(node, name));
}

static const char *string(const json_t *node, const char *name)
{
    const char *text = json_string_value(json_object_get(node, name));
    return text == NULL ? "" : text;
}

static void picture_finish(struct picture *picture)
{
    esp_map_finish(&picture->at);
    esp_free(picture->span_of);
    esp_free(picture->n_children);
    esp_free(picture->parents);
    esp_free(picture->spans);
}

/* Where each node's parent is in the answer; one that was cut off counts as the root. */
static esp_status find_parents(struct picture *picture, const json_t *nodes, struct esp_err *err)
{
    for (size_t idx = 0; idx < picture->n_nodes; idx++) {
        const json_t *node = json_array_get(nodes, idx);
        if (!json_is_integer(json_object_get(node, "id")) || !json_is_string(json_object_get(node, "class"))) {
            return esp_fail(err, ESP_EINVAL, "nodes[%zu] is no node of a tree", idx);
        }
        const json_t *parent = json_object_get(node, "parent");
        uint32_t at = json_is_integer(parent) ? esp_map_get(&picture->at, (uint64_t)json_integer_value(parent)) : NONE;
        picture->parents[idx] = at == ESP_MAP_NONE ? NONE : at;
        if (picture->parents[idx] != NONE) {
            picture->n_children[picture->parents[idx]]++;
        }
        if (esp_map_put(&picture->at, (uint64_t)number(node, "id"), (uint32_t)idx) != ESP_OK) {
            return esp_fail(err, ESP_ENOMEM, "out of memory");
        }
    }
    return ESP_OK;
}

static bool goes_on(const struct picture *picture, uint32_t parent, const json_t *node)
{
    if (parent == NONE || picture->n_children[parent] != 1) {
        return false;
    }
    const json_t *last = picture->spans[picture->span_of[parent]].last;
    return number(last, "refs") == number(node, "refs") && strcmp(string(last, "class"), string(node, "class")) == 0 &&
           strcmp(string(last, "state"), string(node, "state")) == 0;
}

static void make_spans(struct picture *picture, const json_t *nodes)
{
    for (uint32_t idx = 0; idx < picture->n_nodes; idx++) {
        const json_t *node = json_array_get(nodes, idx);
        uint32_t parent = picture->parents[idx];
        double age_s = json_number_value(json_object_get(node, "age_s"));
        if (goes_on(picture, parent, node)) {
            picture->span_of[idx] = picture->span_of[parent];
            struct span *span = &picture->spans[picture->span_of[idx]];
            span->last = node;
            span->n_pages++;
            span->age_s = age_s < span->age_s ? age_s : span->age_s;
            continue;
        }
        struct span *span = &picture->spans[picture->n_spans];
        picture->span_of[idx] = picture->n_spans;
        *span = (struct span){.first = node, .last = node, .parent = NONE, .n_pages = 1, .last_child = NONE};
        span->namespace = number(node, "namespace");
        span->age_s = age_s;
        if (parent != NONE) {
            span->parent = picture->span_of[parent];
            span->depth = picture->spans[span->parent].depth + 1;
            picture->spans[span->parent].last_child = picture->n_spans;
            picture->spans[span->parent].n_children++;
        }
        picture->n_spans++;
    }
}

static esp_status picture_init(struct picture *picture, const json_t *tree, struct esp_err *err)
{
    const json_t *nodes = json_object_get(tree, "nodes");
    memset(picture, 0, sizeof *picture);
    esp_map_init(&picture->at, ESP_TAG_MISC);
    if (!json_is_array(nodes) || !json_is_object(json_object_get(tree, "pages"))) {
        return esp_fail(err, ESP_EINVAL, "this is not what GET /v1/cache answers");
    }
    size_t n = picture->n_nodes = json_array_size(nodes);
    picture->spans = esp_calloc(ESP_TAG_MISC, n + 1, sizeof *picture->spans);
    picture->parents = esp_calloc(ESP_TAG_MISC, n + 1, sizeof *picture->parents);
    picture->n_children = esp_calloc(ESP_TAG_MISC, n + 1, sizeof *picture->n_children);
    picture->span_of = esp_calloc(ESP_TAG_MISC, n + 1, sizeof *picture->span_of);
    if (picture->spans == NULL || picture->parents == NULL || picture->n_children == NULL || picture->span_of == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    esp_status status = find_parents(picture, nodes, err);
    if (status == ESP_OK) {
        make_spans(picture, nodes);
    }
    return status;
}

/* ---- Words ------------------------------------------------------------------------------------- */

/* How a byte is written instead, or NULL. */
static const char *spelling(unsigned char c, bool xml)
{
    switch (c) {
    case '\n': return "\u23ce";
    case '<': return xml ? "&lt;" : NULL;
    case '>': return xml ? "&gt;" : NULL;
    case '&': return xml ? "&amp;" : NULL;
    case '"': return xml ? "&quot;" : "\\\"";
    case '\\': return xml ? NULL : "\\\\";
    default: return c < 0x20 || c == 0x7f ? " " : NULL;
    }
}

/* Bytes of text, no half character, with what would break a line or the format written otherwise. */
static void add_text(struct esp_buf *buf, const char *text, size_t n_bytes, bool xml)
{
    for (size_t at = 0; at < n_bytes; at++) {
        const char *other = spelling((unsigned char)text[at], xml);
        if (other == NULL) {
            esp_buf_char(buf, text[at]);
        } else {
            esp_buf_str(buf, other);
        }
    }
}

static size_t cut(const char *text, size_t n_bytes, size_t n_max)
{
    size_t n = n_bytes < n_max ? n_bytes : n_max;
    while (n > 0 && n < n_bytes && ((unsigned char)text[n] & 0xc0) == 0x80) {
        n--;
    }
    return n;
}

/* How the span begins, and how it ends when that is another page. */
static void add_snippet(struct esp_buf *buf, const struct span *span, bool xml)
{
    const char *first = string(span->first, "text"), *last = string(span->last, "text");
    size_t n_first = strlen(first), n_last = strlen(last);
    size_t n_head = cut(first, n_first, span->n_pages > 1 ? HEAD_BYTES : HEAD_BYTES + TAIL_BYTES);
    add_text(buf, first, n_head, xml);
    if (span->n_pages > 1 || n_head < n_first) {
        esp_buf_str(buf, "\u2026");
    }
    if (span->n_pages > 1) {
        size_t from = n_last > TAIL_BYTES ? n_last - TAIL_BYTES : 0;
        while (from < n_last && ((unsigned char)last[from] & 0xc0) == 0x80) {
            from++;
        }
        add_text(buf, last + from, n_last - from, xml);
    }
}

static void add_state(struct esp_buf *buf, const struct span *span)
{
    const char *state = string(span->first, "state");
    esp_buf_printf(buf, "refs %lld  %s  %.1f s%s%s", (long long)number(span->first, "refs"),
                   string(span->first, "class"), span->age_s, strcmp(state, "cached") == 0 ? "" : "  ",
                   strcmp(state, "cached") == 0 ? "" : state);
}

static void add_pool(struct esp_buf *buf, const json_t *tree)
{
    const char *name;
    json_t *value;
    json_t *pages = json_object_get(tree, "pages");
    bool first = true;
    json_object_foreach(pages, name, value)
    {
        esp_buf_printf(buf, "%s%lld %s", first ? "pages: " : ", ", (long long)json_integer_value(value), name);
        first = false;
    }
    if (json_is_true(json_object_get(tree, "truncated"))) {
        esp_buf_str(buf, " (only the first nodes are shown)");
    }
}

static int64_t pages_of_namespace(const json_t *tree, int64_t id)
{
    size_t idx;
    json_t *space;
    json_array_foreach(json_object_get(tree, "namespaces"), idx, space)
    {
        if (number(space, "id") == id) {
            return number(space, "pages");
        }
    }
    return 0;
}

static esp_status finish(struct picture *picture, const struct esp_buf *buf, struct esp_err *err)
{
    picture_finish(picture);
    return buf->failed ? esp_fail(err, ESP_ENOMEM, "out of memory, or the picture is too large") : ESP_OK;
}

/* ---- Text -------------------------------------------------------------------------------------- */

static bool is_new_namespace(const struct picture *picture, uint32_t idx)
{
    return idx == 0 || picture->spans[idx].namespace != picture->spans[idx - 1].namespace;
}

esp_status esp_tree_text(const json_t *tree, struct esp_buf *buf, struct esp_err *err)
{
    struct picture picture;
    bool open[INDENT_MAX] = {false}; /* a sibling follows at this depth */
    esp_status status = picture_init(&picture, tree, err);
    if (status != ESP_OK) {
        picture_finish(&picture);
        return status;
    }
    add_pool(buf, tree);
    esp_buf_char(buf, '\n');
    for (uint32_t idx = 0; idx < picture.n_spans; idx++) {
        const struct span *span = &picture.spans[idx];
        if (is_new_namespace(&picture, idx)) {
            esp_buf_printf(buf, "namespace %lld: %lld pages\n", (long long)span->namespace,
                           (long long)pages_of_namespace(tree, span->namespace));
        }
        uint32_t depth = span->depth < INDENT_MAX ? span->depth : INDENT_MAX - 1;
        bool is_last = span->parent != NONE && picture.spans[span->parent].last_child == idx;
        for (uint32_t at = 1; at < depth; at++) {
            esp_buf_str(buf, open[at] ? "\u2502  " : "   ");
        }
        open[depth] = !is_last;
        esp_buf_str(buf, depth == 0 ? "" : is_last ? "\u2514\u2500 " : "\u251c\u2500 ");
        esp_buf_printf(buf, "%u page%s  \"", span->n_pages, span->n_pages == 1 ? "" : "s");
        add_snippet(buf, span, false);
        esp_buf_str(buf, "\"  ");
        add_state(buf, span);
        esp_buf_char(buf, '\n');
    }
    return finish(&picture, buf, err);
}

/* ---- Graphs ------------------------------------------------------------------------------------ */

static const char *color_of(const struct span *span)
{
    static const char *const colors[][2] = {
        {"tail", "#e8e8e8"}, {"normal", "#d9ead3"}, {"return", "#cfe2f3"}, {"pinned", "#fff2cc"}};
    if (strcmp(string(span->first, "state"), "pending") == 0) {
        return "#fce5cd";
    }
    for (size_t idx = 0; idx < sizeof colors / sizeof colors[0]; idx++) {
        if (strcmp(string(span->first, "class"), colors[idx][0]) == 0) {
            return colors[idx][1];
        }
    }
    return "#ffffff";
}

static int pen_of(const struct span *span)
{
    return number(span->first, "refs") > 0 ? 3 : 1;
}

esp_status esp_tree_dot(const json_t *tree, struct esp_buf *buf, struct esp_err *err)
{
    struct picture picture;
    esp_status status = picture_init(&picture, tree, err);
    if (status != ESP_OK) {
        picture_finish(&picture);
        return status;
    }
    esp_buf_str(buf, "digraph tree {\n  rankdir=LR;\n  node [shape=box, style=filled, fontsize=9];\n  label=\"");
    add_pool(buf, tree);
    esp_buf_str(buf, "\";\n");
    for (uint32_t idx = 0; idx < picture.n_spans; idx++) {
        const struct span *span = &picture.spans[idx];
        if (is_new_namespace(&picture, idx)) {
            esp_buf_printf(buf, "  n%lld [label=\"namespace %lld\", shape=ellipse];\n", (long long)span->namespace,
                           (long long)span->namespace);
        }
        esp_buf_printf(buf, "  s%u [label=\"%u pages\\n", idx, span->n_pages);
        add_snippet(buf, span, false);
        esp_buf_str(buf, "\\n");
        add_state(buf, span);
        esp_buf_printf(buf, "\", fillcolor=\"%s\", penwidth=%d];\n", color_of(span), pen_of(span));
        if (span->parent == NONE) {
            esp_buf_printf(buf, "  n%lld -> s%u;\n", (long long)span->namespace, idx);
        } else {
            esp_buf_printf(buf, "  s%u -> s%u;\n", span->parent, idx);
        }
    }
    esp_buf_str(buf, "}\n");
    return finish(&picture, buf, err);
}

/* Leaves get a row each, in order; what is above stands in the middle of its children. Returns the rows. */
static uint32_t place(struct picture *picture, uint32_t *ret_depth_max)
{
    uint32_t n_rows = 0;
    for (uint32_t idx = 0; idx < picture->n_spans; idx++) {
        struct span *span = &picture->spans[idx];
        span->y_min = 1e300;
        span->y_max = -1e300;
        span->y = span->n_children == 0 ? n_rows++ : 0;
        *ret_depth_max = span->depth > *ret_depth_max ? span->depth : *ret_depth_max;
    }
    for (uint32_t idx = picture->n_spans; idx-- > 0;) {
        struct span *span = &picture->spans[idx];
        span->y = span->n_children == 0 ? span->y : (span->y_min + span->y_max) / 2;
        if (span->parent != NONE) {
            struct span *parent = &picture->spans[span->parent];
            parent->y_min = span->y < parent->y_min ? span->y : parent->y_min;
            parent->y_max = span->y > parent->y_max ? span->y : parent->y_max;
        }
    }
    return n_rows;
}

static void svg_span(struct esp_buf *buf, const struct picture *picture, const struct span *span)
{
    int x = 10 + (int)span->depth * STEP_X;
    double y = 30 + span->y * STEP_Y;
    if (span->parent != NONE) {
        const struct span *parent = &picture->spans[span->parent];
        double from = 30 + parent->y * STEP_Y + BOX_HEIGHT / 2.0, to = y + BOX_HEIGHT / 2.0;
        int left = 10 + (int)parent->depth * STEP_X + BOX_WIDTH;
        esp_buf_printf(buf, "<path d=\"M%d %.1fC%d %.1f %d %.1f %d %.1f\" fill=\"none\" stroke=\"#888\"/>\n", left,
                       from, left + 20, from, x - 20, to, x, to);
    }
    esp_buf_printf(buf, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" stroke=\"#444\" "
                   "stroke-width=\"%d\"/>\n", x, y, BOX_WIDTH, BOX_HEIGHT, color_of(span), pen_of(span));
    esp_buf_printf(buf, "<text x=\"%d\" y=\"%.1f\">", x + 6, y + 14);
    add_snippet(buf, span, true);
    esp_buf_printf(buf, "</text>\n<text x=\"%d\" y=\"%.1f\" fill=\"#555\">%u page%s  ", x + 6, y + 28, span->n_pages,
                   span->n_pages == 1 ? "" : "s");
    if (span->parent == NONE) {
        esp_buf_printf(buf, "namespace %lld  ", (long long)span->namespace);
    }
    add_state(buf, span);
    esp_buf_str(buf, "</text>\n");
}

esp_status esp_tree_svg(const json_t *tree, struct esp_buf *buf, struct esp_err *err)
{
    struct picture picture;
    uint32_t depth_max = 0;
    esp_status status = picture_init(&picture, tree, err);
    if (status != ESP_OK) {
        picture_finish(&picture);
        return status;
    }
    uint32_t n_rows = place(&picture, &depth_max);
    esp_buf_printf(buf,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
                   "font-family=\"monospace\" font-size=\"10\" xml:space=\"preserve\">\n<text x=\"10\" y=\"18\">",
                   20 + depth_max * STEP_X + BOX_WIDTH, 40 + n_rows * STEP_Y);
    add_pool(buf, tree);
    esp_buf_str(buf, "</text>\n");
    for (uint32_t idx = 0; idx < picture.n_spans; idx++) {
        svg_span(buf, &picture, &picture.spans[idx]);
    }
    esp_buf_str(buf, "</svg>\n");
    return finish(&picture, buf, err);
}
