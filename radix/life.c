/* Conversations: whose pages a path holds, and which class they get when a turn ends.
 *
 *   policy ─► policy ─┬─► ticket A ─► call ─► …    own pages of A: RETURN while A waits for a tool, TAIL at its end
 *   (shared: NORMAL)  └─► ticket B ─► …            a page that A and B used dies with neither
 *
 * `session` of a node is who used it first, `shared` that somebody else did too; both hold for the ancestors as
 * well, so marking a path stops where it meets its own mark. A turn is continued by a prompt that passes the
 * node where the turn's prompt ended: that is how a session is known without being named.
 * Thread: the engine's. Decides classes only: no result depends on it.
 */
#include <assert.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "radix/internal.h"

uint32_t esp_tree_named_session(const void *name, size_t n_bytes)
{
    return (uint32_t)XXH3_64bits(name, n_bytes) | 1;
}

uint32_t esp_tree_session(struct esp_tree *tree, struct esp_node_id node)
{
    for (uint32_t idx = node.v; idx != ESP_TREE_NIL && !tree->nodes[idx].shared; idx = tree->nodes[idx].parent) {
        if (tree->nodes[idx].turn_end) {
            return tree->nodes[idx].session;
        }
    }
    tree->session_last = tree->session_last >= UINT32_MAX - 1 ? 2 : tree->session_last + 2;
    return tree->session_last;
}

static void mark(struct esp_tree *tree, uint32_t idx, uint32_t session)
{
    for (; idx != ESP_TREE_NIL; idx = tree->nodes[idx].parent) {
        struct esp_tree_node *node = &tree->nodes[idx];
        if (node->shared || node->session == session) {
            return;
        }
        node->shared = node->session != ESP_TREE_SESSION_NONE;
        node->session = node->shared ? node->session : session;
    }
}

/* The deepest node that is not the session's alone; NIL: all are its own. */
static uint32_t last_shared(const struct esp_tree *tree, uint32_t idx, uint32_t n_head)
{
    while (idx != ESP_TREE_NIL && !tree->nodes[idx].shared && tree->nodes[idx].depth > n_head) {
        idx = tree->nodes[idx].parent;
    }
    return idx;
}

struct esp_node_id esp_tree_end_turn(struct esp_tree *tree, const struct esp_tree_turn *turn)
{
    assert(turn->session != ESP_TREE_SESSION_NONE && esp_tree_node_alive(tree, turn->node));
    mark(tree, turn->node.v, turn->session);
    if (turn->comes_back) {
        if (turn->turn.v != ESP_TREE_NIL) {
            assert(esp_tree_node_alive(tree, turn->turn));
            tree->nodes[turn->turn.v].turn_end = true;
        }
        esp_tree_release(tree, turn->node, ESP_CLASS_RETURN);
        return turn->node;
    }
    struct esp_node_id kept = esp_tree_id(tree, last_shared(tree, turn->node.v, turn->n_head));
    if (kept.v == turn->node.v) {
        esp_tree_release(tree, turn->node, ESP_CLASS_NORMAL);
    } else if (kept.v == ESP_TREE_NIL) {
        esp_tree_release(tree, turn->node, ESP_CLASS_TAIL);
    } else {
        esp_tree_lease(tree, kept, NULL);
        esp_tree_release(tree, turn->node, ESP_CLASS_TAIL);
        esp_tree_release(tree, kept, ESP_CLASS_NORMAL);
    }
    return kept;
}

/* The node stands on the list of RETURN for itself or for a child that has moved down: false when it stays. */
static bool move_down(struct esp_tree *tree, uint32_t idx)
{
    struct esp_tree_node *node = &tree->nodes[idx];
    if (node->list != ESP_CLASS_RETURN || node->n_children_in[ESP_CLASS_RETURN] > 0) {
        return false;
    }
    if (node->class == ESP_CLASS_RETURN) {
        if (tree->now_ns - node->used_ns < ESP_TREE_RETURN_NS) {
            return false;
        }
        node->class = ESP_CLASS_NORMAL;
    }
    esp_tree_evictable_remove(tree, idx);
    esp_tree_evictable_add(tree, idx);
    return true;
}

/* A leaf that has waited too long moves down, and its ancestors as far as they have nothing else to wait for. What
 * moves is touched, so that the list below stays in order, and with it every ancestor; ages stay. */
static void expire_chain(struct esp_tree *tree, uint32_t idx)
{
    bool moves = true;
    for (; idx != ESP_TREE_NIL; idx = tree->nodes[idx].parent) {
        int64_t used_ns = tree->nodes[idx].used_ns;
        moves = moves && move_down(tree, idx);
        esp_tree_touch(tree, idx);
        tree->nodes[idx].used_ns = used_ns;
    }
}

void esp_tree_expire_returns(struct esp_tree *tree)
{
    const struct esp_tree_list *list = &tree->lists[ESP_CLASS_RETURN];
    while (list->n > 0 && tree->now_ns - tree->nodes[list->head].used_ns >= ESP_TREE_RETURN_NS) {
        expire_chain(tree, list->head);
    }
}
