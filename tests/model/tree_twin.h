/* The naive twin of the tree: whole token strings in a plain array, compared one by one.
 *
 * It predicts what a match finds, who may be evicted and in which order, what pins hold, and whose class runs out.
 * Its only shared idea with the tree is the order in which uses happen. One world (`w`) a program.
 */
#ifndef ESP_TESTS_TREE_TWIN_H
#define ESP_TESTS_TREE_TWIN_H

#include "radix/tree.h"
#include "tests/esptest.h"

enum { PAGES_MAX = 300, DEPTH_MAX = 7, LEASES_MAX = 24, SPACES = 3, ALPHABET = 5, DEAD = 64, P = ESP_TREE_PAGE_TOKENS };

struct twin_node {
    bool used;
    uint32_t space, depth;
    uint32_t tokens[DEPTH_MAX * P]; /* depth pages of them */
    uint32_t refs, class, class_before;
    uint64_t seq;
    int64_t used_ns;
    uint32_t session;
    bool shared, turn_end;
    bool cached;
    struct esp_node_id id;
};

struct twin_pin {
    int node; /* -1: free */
    int64_t ttl_ns, until_ns;
};

static struct {
    struct esp_tree *tree;
    uint32_t n_pages, n_private, n_leases;
    struct twin_node nodes[PAGES_MAX];
    struct esp_page_id private[PAGES_MAX];
    int leases[LEASES_MAX]; /* indices in nodes */
    struct esp_ns_id spaces[SPACES];
    uint64_t seq, evicted;
    struct esp_node_id dead[DEAD]; /* ids whose node left the tree */
    uint32_t n_dead;
    int64_t now_ns;
    struct twin_pin pins[PAGES_MAX];
    uint32_t n_pins_ever, n_moved_ever; /* pins made, RETURN nodes whose time ran out: the run must see some */
} w;

static inline uint32_t below(uint32_t n)
{
    return (uint32_t)esp_rng_below(&esp_test_state.rng, n);
}

/* Pages of an alphabet chosen so that letters share 0, 3, 3, 15 and 15 first tokens with letter 0. */
static inline void letter(uint32_t which, uint32_t *out)
{
    static const uint32_t shared[ALPHABET] = {16, 0, 3, 15, 15};
    for (uint32_t idx = 0; idx < P; idx++) {
        out[idx] = idx < shared[which] ? 100 + idx : 1000 * which + idx;
    }
}

static inline uint32_t random_text(uint32_t *out)
{
    uint32_t n_pages = 1 + below(DEPTH_MAX);
    for (uint32_t idx = 0; idx < n_pages; idx++) {
        letter(below(3) == 0 ? below(ALPHABET) : 0, out + idx * P);
    }
    return n_pages * P - below(P);
}

static inline int twin_find(uint32_t space, const uint32_t *tokens, uint32_t depth)
{
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        const struct twin_node *node = &w.nodes[idx];
        if (node->used && node->space == space && node->depth == depth &&
            memcmp(node->tokens, tokens, depth * P * sizeof *tokens) == 0) {
            return idx;
        }
    }
    return -1;
}

static inline int twin_parent(int at)
{
    const struct twin_node *node = &w.nodes[at];
    return node->depth == 1 ? -1 : twin_find(node->space, node->tokens, node->depth - 1);
}

static inline bool twin_is_leaf(int at)
{
    const struct twin_node *node = &w.nodes[at];
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        const struct twin_node *other = &w.nodes[idx];
        if (other->used && other->space == node->space && other->depth == node->depth + 1 &&
            memcmp(other->tokens, node->tokens, node->depth * P * sizeof *node->tokens) == 0) {
            return false;
        }
    }
    return true;
}

static inline void twin_use(int at)
{
    w.nodes[at].seq = ++w.seq;
    w.nodes[at].used_ns = w.now_ns;
}

static inline bool twin_is_within(int at, int ancestor)
{
    const struct twin_node *node = &w.nodes[at], *above = &w.nodes[ancestor];
    return node->space == above->space && node->depth >= above->depth &&
           memcmp(node->tokens, above->tokens, above->depth * P * sizeof *node->tokens) == 0;
}

static inline bool twin_is_pinned(int at)
{
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        if (w.pins[idx].node >= 0 && twin_is_within(w.pins[idx].node, at)) {
            return true;
        }
    }
    return false;
}

static inline uint32_t twin_n_pinned(void)
{
    uint32_t n = 0;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        n += w.nodes[idx].used && twin_is_pinned(idx);
    }
    return n;
}

static inline void twin_pin_used(int at)
{
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        if (w.pins[idx].node == at) {
            w.pins[idx].until_ns = w.now_ns + w.pins[idx].ttl_ns;
        }
    }
}

static inline void twin_ref(int at)
{
    w.nodes[at].class_before = w.nodes[at].refs == 0 ? w.nodes[at].class : w.nodes[at].class_before;
    w.nodes[at].class = w.nodes[at].refs == 0 ? 0 : w.nodes[at].class;
    w.nodes[at].refs++;
    twin_pin_used(at);
    twin_use(at);
}

/* The class of the node and of the unreferenced ones below it. */
static inline uint32_t twin_force(int at)
{
    uint32_t class = w.nodes[at].class;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        if (w.nodes[idx].used && w.nodes[idx].refs == 0 && twin_is_within(idx, at) && w.nodes[idx].class > class) {
            class = w.nodes[idx].class;
        }
    }
    return twin_is_pinned(at) ? ESP_CLASS_PINNED : class;
}

static inline uint32_t twin_evictable(void)
{
    uint32_t n = 0;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        n += w.nodes[idx].used && w.nodes[idx].cached && w.nodes[idx].refs == 0 && !twin_is_pinned(idx);
    }
    return n;
}

static inline uint32_t twin_count(void)
{
    uint32_t n = 0;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        n += w.nodes[idx].used;
    }
    return n;
}

static inline void twin_leaves(int at)
{
    w.nodes[at].used = false;
    w.dead[w.n_dead++ % DEAD] = w.nodes[at].id;
}

/* Drops the leaf that has to go: unreferenced, lowest class, least recently used. */
static inline void twin_evict_one(void)
{
    int best = -1;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        const struct twin_node *node = &w.nodes[idx];
        if (!node->used || !node->cached || node->refs > 0 || !twin_is_leaf(idx) || twin_is_pinned(idx)) {
            continue;
        }
        if (best < 0 || node->class < w.nodes[best].class ||
            (node->class == w.nodes[best].class && node->seq < w.nodes[best].seq)) {
            best = idx;
        }
    }
    REQUIRE(best >= 0, "the twin has nothing to evict");
    CHECK(!esp_tree_node_alive(w.tree, w.nodes[best].id), "page %u should have gone", w.nodes[best].id.v);
    twin_leaves(best);
}

/* The partial match the twin allows: the longest, the latest used among equals. */
static inline int twin_copy(uint32_t space, const uint32_t *tokens, uint32_t depth, uint32_t n_left, uint32_t *ret_n)
{
    int best = -1;
    *ret_n = 0;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        const struct twin_node *node = &w.nodes[idx];
        if (!node->used || !node->cached || node->space != space || node->depth != depth + 1 ||
            memcmp(node->tokens, tokens, depth * P * sizeof *tokens) != 0) {
            continue;
        }
        uint32_t n = 0;
        while (n < P && n < n_left && node->tokens[depth * P + n] == tokens[depth * P + n]) {
            n++;
        }
        if (n > *ret_n || (n > 0 && n == *ret_n && node->seq > w.nodes[best].seq)) {
            *ret_n = n;
            best = idx;
        }
    }
    return best;
}

/* class ESP_CLASSES: unchanged. */
static inline void twin_release(int lease, uint32_t class, bool check)
{
    for (int at = lease, up; at >= 0; at = up) {
        struct twin_node *node = &w.nodes[at];
        up = twin_parent(at);
        uint32_t unchanged = node->refs == 1 ? node->class_before : 0;
        uint32_t least = class == ESP_CLASSES ? unchanged : class;
        node->class = least > node->class ? least : node->class;
        twin_use(at);
        node->refs--;
        bool stays = node->refs > 0 || node->cached;
        CHECK(!check || esp_tree_node_alive(w.tree, node->id) == stays, "node %u after release", node->id.v);
        if (!stays) {
            twin_leaves(at);
        }
    }
}

static inline void twin_mark(int at, uint32_t session)
{
    for (; at >= 0; at = twin_parent(at)) {
        struct twin_node *node = &w.nodes[at];
        node->shared = node->shared || (node->session != 0 && node->session != session);
        node->session = node->session == 0 ? session : node->session;
    }
}

static inline void twin_expire_pins(bool all)
{
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        if (w.pins[idx].node >= 0 && (all || w.pins[idx].until_ns <= w.now_ns)) {
            int at = w.pins[idx].node;
            w.pins[idx].node = -1;
            for (; at >= 0; at = twin_parent(at)) {
                twin_use(at);
            }
        }
    }
}

/* The unreferenced node of class RETURN that was used first, if its time is over; -1: none. */
static inline int twin_overdue(void)
{
    int best = -1;
    for (int idx = 0; idx < (int)w.n_pages; idx++) {
        const struct twin_node *node = &w.nodes[idx];
        if (node->used && node->refs == 0 && (best < 0 || node->seq < w.nodes[best].seq) &&
            twin_force(idx) == ESP_CLASS_RETURN) {
            best = idx;
        }
    }
    return best >= 0 && w.now_ns - w.nodes[best].used_ns >= ESP_TREE_RETURN_NS ? best : -1;
}

static inline void twin_expire_returns(void)
{
    for (int at; (at = twin_overdue()) >= 0;) {
        bool moves = true;
        for (; at >= 0; at = twin_parent(at)) {
            struct twin_node *node = &w.nodes[at];
            uint32_t own = node->class;
            bool over = own != ESP_CLASS_RETURN || w.now_ns - node->used_ns >= ESP_TREE_RETURN_NS;
            node->class = over && own == ESP_CLASS_RETURN ? ESP_CLASS_NORMAL : own;
            moves = moves && over && node->refs == 0 && twin_force(at) < ESP_CLASS_RETURN;
            w.n_moved_ever += moves;
            node->class = moves ? node->class : own;
            node->seq = ++w.seq;
        }
    }
}

static inline int twin_room(void)
{
    int at = 0;
    while (w.nodes[at].used) {
        at++;
    }
    return at;
}

#endif
