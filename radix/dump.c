/* Text and DOT listings over esp_tree_visit and the namespace table.
 *
 * Indentation stops growing at a depth limit, so that a 50k-token prompt gives long lists and not lines
 * of 6,000 spaces. Thread: the engine's. Recursion-free; the cap of the buffer bounds the output.
 */
#include "radix/dump.h"

#include <assert.h>
#include <inttypes.h>

#include "radix/internal.h"

enum { INDENT_MAX = 24 };

struct listing {
    struct esp_buf *buf;
    uint32_t n_left;
    uint32_t ns; /* last printed */
    bool any, cut;
};

const char *esp_evict_class_name(enum esp_evict_class class)
{
    static const char *const names[ESP_CLASSES] = {"tail", "normal", "return", "pinned"};
    assert(class < ESP_CLASSES);
    return names[class];
}

static void add_tokens(struct esp_buf *buf, const uint32_t *tokens)
{
    for (int idx = 0; idx < ESP_TREE_PAGE_TOKENS; idx++) {
        esp_buf_printf(buf, idx == 0 ? "%" PRIu32 : " %" PRIu32, tokens[idx]);
    }
}

static bool take_one(struct listing *listing)
{
    if (listing->n_left == 0) {
        listing->cut = true;
        return false;
    }
    listing->n_left--;
    return !listing->buf->failed;
}

static bool text_node(void *ctx, const struct esp_node_view *node)
{
    struct listing *listing = ctx;
    if (!take_one(listing)) {
        return false;
    }
    struct esp_buf *buf = listing->buf;
    if (!listing->any || listing->ns != node->ns.v) {
        esp_buf_printf(buf, "namespace %" PRIu32 "\n", node->ns.v);
        listing->any = true;
        listing->ns = node->ns.v;
    }
    esp_buf_printf(buf, "%*s%" PRIu32 ": [", node->depth < INDENT_MAX ? (int)(2 * node->depth) : 2 * INDENT_MAX, "",
                   node->depth);
    add_tokens(buf, node->tokens);
    esp_buf_printf(buf, "] page %" PRIu32 " %s refs %" PRIu32 " class %s age %.3f s", node->page.v,
                   esp_page_state_name(node->state), node->refs, esp_evict_class_name(node->class),
                   (double)node->age_ns / 1e9);
    if (node->n_children > 1) {
        esp_buf_printf(buf, " children %" PRIu32, node->n_children);
    }
    esp_buf_char(buf, '\n');
    return true;
}

static void add_pool(const struct esp_tree *tree, struct esp_buf *buf, const char *before, const char *after)
{
    struct esp_tree_stats stats;
    esp_tree_get_stats(tree, &stats);
    esp_buf_printf(buf, "%s%" PRIu32 " pages:", before, stats.n_pages);
    for (int state = 0; state < ESP_PAGE_STATES; state++) {
        esp_buf_printf(buf, " %" PRIu32 " %s", stats.pages[state], esp_page_state_name((enum esp_page_state)state));
    }
    esp_buf_printf(buf, ", %" PRIu32 " leased%s\n", stats.leased, after);
}

void esp_tree_dump_text(const struct esp_tree *tree, uint32_t n_nodes_max, struct esp_buf *buf)
{
    struct listing listing = {.buf = buf, .n_left = n_nodes_max};
    add_pool(tree, buf, "", "");
    esp_tree_visit(tree, text_node, &listing);
    if (listing.cut) {
        esp_buf_printf(buf, "… cut after %" PRIu32 " nodes\n", n_nodes_max);
    }
}

static bool dot_node(void *ctx, const struct esp_node_view *node)
{
    static const char *const colors[ESP_PAGE_STATES] = {"white", "white", "khaki", "palegreen"};
    struct listing *listing = ctx;
    if (!take_one(listing)) {
        return false;
    }
    struct esp_buf *buf = listing->buf;
    esp_buf_printf(buf, "  p%" PRIu32 " [label=\"", node->page.v);
    add_tokens(buf, node->tokens);
    esp_buf_printf(buf, "\\npage %" PRIu32 " refs %" PRIu32 " %s %.1f s\", fillcolor=%s, penwidth=%d];\n",
                   node->page.v, node->refs, esp_evict_class_name(node->class), (double)node->age_ns / 1e9,
                   colors[node->state], node->refs > 0 ? 3 : 1);
    if (node->depth == 1) {
        esp_buf_printf(buf, "  n%" PRIu32 " -> p%" PRIu32 ";\n", node->ns.v, node->page.v);
    } else {
        esp_buf_printf(buf, "  p%" PRIu32 " -> p%" PRIu32 ";\n", node->parent.v, node->page.v);
    }
    return true;
}

void esp_tree_dump_dot(const struct esp_tree *tree, uint32_t n_nodes_max, struct esp_buf *buf)
{
    struct listing listing = {.buf = buf, .n_left = n_nodes_max};
    esp_buf_str(buf, "digraph tree {\n  node [shape=box, style=filled, fontsize=9];\n");
    for (uint32_t slot = 0; slot < tree->n_spaces; slot++) {
        if (tree->spaces[slot].n_nodes > 0) {
            uint32_t id = esp_tree_ns_id(tree, slot).v;
            esp_buf_printf(buf, "  n%" PRIu32 " [label=\"namespace %" PRIu32 "\", shape=ellipse];\n", id, id);
        }
    }
    esp_tree_visit(tree, dot_node, &listing);
    add_pool(tree, buf, "  label=\"", listing.cut ? " (cut)\";" : "\";");
    esp_buf_str(buf, "}\n");
}
