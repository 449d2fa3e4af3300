/* The prefix tree: which KV pages hold which tokens, who uses them, and who goes first.
 *
 *   namespace 0 (root)                     one node = one page = 16 tokens, fixed size
 *     └─ [t0 … t15] page 7  refs 2           found in one hash map by the chained 128-bit XXH3 of
 *          ├─ [t16 … t31] page 3 refs 1      (namespace, tokens so far), seeded per process,
 *          └─ [u16 … u31] page 9 refs 0      and accepted only if the 16 stored tokens are equal
 *                                            and the parent is the node we came from.
 *
 * Nodes never split or merge. The tree also owns the page pool, so each page is in exactly one state:
 *
 *   free ──alloc──► private ──insert(cached)──► cached ◄──► (refs > 0: leased)
 *    ▲ ▲                │  └──insert(pending)──► pending ──publish──► cached
 *    │ └──free_private──┘                           │                   │
 *    └────────────── release of the last reference ─┴── evict (refs 0, leaf)
 *
 *   free      in the free list
 *   private   owned by one sequence (partial last page, or not entered in the tree)
 *   pending   in the tree, about to be written; twins see that it comes, and must not read it yet
 *   cached    in the tree and written; evictable when no one holds a lease on it or its children
 *
 * Eviction takes unreferenced leaves only, lowest class first, least recently used within a class; what a pin
 * holds stays until the pin expires. A lease holds a reference on every node of its path, so a referenced
 * set is closed upward, and so is a pinned one.
 * All memory is taken by create; only the byte strings of namespaces are allocated later (bounded).
 * Knows tokens, pages, namespaces; knows no tensors, text or HTTP.
 * Thread: the engine's. Ids are one-field structs so that the compiler refuses to mix them.
 */
#ifndef ESP_RADIX_TREE_H
#define ESP_RADIX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

#define ESP_TREE_PAGE_TOKENS 16
#define ESP_TREE_NAMESPACES_MAX 4096
#define ESP_TREE_NAMESPACE_BYTES_MAX 4096 /* of all fields with their 8-byte lengths */
#define ESP_TREE_PAGES_MAX (1u << 28)
#define ESP_TREE_COPY_SCAN_MAX 64 /* children looked at for a partial match, most recently used first */

struct esp_tree;

struct esp_page_id {
    uint32_t v;
};
struct esp_node_id { /* index plus generation: a stale id is noticed, not followed */
    uint32_t v;
    uint32_t generation;
};
struct esp_ns_id { /* slot and generation in one: after a slot is recycled the old id finds nothing */
    uint32_t v;
};
#define ESP_PAGE_NONE ((struct esp_page_id){UINT32_MAX})
#define ESP_NODE_NONE ((struct esp_node_id){UINT32_MAX, 0})

enum esp_page_state { ESP_PAGE_FREE, ESP_PAGE_PRIVATE, ESP_PAGE_PENDING, ESP_PAGE_CACHED, ESP_PAGE_STATES };
const char *esp_page_state_name(enum esp_page_state state); /* "free", "private", "pending", "cached" */

/* Lowest goes first. */
enum esp_evict_class {
    ESP_CLASS_TAIL,   /* tail of a conversation that ended for good */
    ESP_CLASS_NORMAL,
    ESP_CLASS_RETURN, /* a tool call will come back to it; NORMAL once ESP_TREE_RETURN_NS have passed unused */
    ESP_CLASS_PINNED, /* never goes; set by esp_tree_pin alone */
    ESP_CLASSES
};
#define ESP_TREE_RETURN_NS ((int64_t)600 * 1000000000)

struct esp_tree_config {
    uint32_t n_pages;
    uint32_t n_pin_pages_max; /* pages that pins may hold together */
    uint64_t seed;      /* of the hash chain; random per process in production */
    unsigned hash_bits; /* 128 in production; tests cut it (4) to force collisions */
};

struct esp_tree_stats {
    uint32_t pages[ESP_PAGE_STATES]; /* sums to n_pages */
    uint32_t n_pages;
    uint32_t leased;         /* tree nodes with refs > 0, plus private pages */
    uint32_t pinned;         /* tree nodes under a pin */
    uint32_t n_pins;
    uint64_t evicted_total;  /* pages */
    uint64_t hash_rejected_total; /* candidates whose hash matched and tokens or parent did not */
};

/* ESP_EINVAL for a number out of range, ESP_ENOMEM. */
esp_status esp_tree_create(const struct esp_tree_config *config, struct esp_tree **ret_tree, struct esp_err *err);
void esp_tree_destroy(struct esp_tree *tree); /* NULL is fine */
size_t esp_tree_bytes(uint32_t n_pages);      /* host memory that create takes */

/* A namespace is the exact list of byte fields (model, adapter, KV type, salt …); each is hashed and
 * stored with its length, so ("ab","c") is not ("a","bc"). ESP_ELIMIT when all slots are in use by
 * namespaces that still have nodes, or the fields are too long; idle ones are recycled, the longest
 * unasked-for first. Ask for the id at each match: an id that was recycled matches nothing. */
struct esp_field {
    const void *data;
    size_t n_bytes;
};
esp_status esp_tree_namespace(struct esp_tree *tree, const struct esp_field *fields, size_t n_fields,
                              struct esp_ns_id *ret_ns, struct esp_err *err);

/* What a prompt finds. Pages [0, n_cached) are written, [n_cached, n_pages) are pending. */
struct esp_match {
    uint32_t n_pages;             /* whole pages found, pending ones included */
    uint32_t n_cached;            /* leading ones that are written */
    struct esp_node_id last;      /* deepest found node, ESP_NODE_NONE when n_pages == 0 */
    struct esp_page_id copy_page; /* cached child of the last node that shares the next tokens; lease
                                   * it (esp_tree_page_node) until the copy is done … */
    uint32_t n_copy_tokens;       /* … this many (0 = none), only when n_cached == n_pages */
};
/* Looks for the longest prefix of tokens[0 … n_tokens), using at most n_tokens_max of them (a caller
 * passes n_tokens − 1: one token is always computed). Changes nothing: a use is a lease.
 * O(pages found): the partial match looks at ESP_TREE_COPY_SCAN_MAX children at most, so that
 * thousands of tickets behind one policy cost no more than 64 (what is lost is under one page). */
void esp_tree_match(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_tokens_max,
                    struct esp_match *ret_match);
/* The same for a prompt whose first pages are known to be those down to `from`, a written node: O(pages found
 * behind it). The result counts from the root. `from` may be ESP_NODE_NONE. */
void esp_tree_match_from(struct esp_tree *tree, struct esp_ns_id ns, struct esp_node_id from, const uint32_t *tokens,
                         uint32_t n_tokens_max, struct esp_match *ret_match);

/* Takes one reference on `node` and every ancestor. Writes their pages, root side first, to
 * ret_pages[0 … depth); NULL when they are not wanted. */
void esp_tree_lease(struct esp_tree *tree, struct esp_node_id node, struct esp_page_id *ret_pages);
/* Moves a lease on `from` (ESP_NODE_NONE: none yet) down to its descendant `node` in O(nodes between), and writes
 * the pages of these to their places in ret_pages[0 … depth). */
void esp_tree_lease_down(struct esp_tree *tree, struct esp_node_id from, struct esp_node_id node,
                         struct esp_page_id *ret_pages);
/* Gives the references back and sets the class of the nodes that become unreferenced (never lower
 * than another live use asks: the highest class given since the node was last unreferenced stays).
 * To let only the tail of an answer go first: lease the last prompt node, release the deepest node as
 * ESP_CLASS_TAIL, then release the last prompt node as ESP_CLASS_NORMAL. */
void esp_tree_release(struct esp_tree *tree, struct esp_node_id node, enum esp_evict_class class);
/* Gives back what was only looked at or copied: nodes that become unreferenced have the class again that they had
 * before they were leased, or a higher one that was given meanwhile. */
void esp_tree_release_unchanged(struct esp_tree *tree, struct esp_node_id node);

/* ---- Conversations: which pages come back (life.c) ----
 *
 * A session is a number that a client gave, or that the tree gives: a prompt that goes on where a request of an
 * earlier turn ended belongs to the same session. Pages that two sessions used are shared; the others are one
 * session's own and die with it. All of it is a hint for eviction and changes no result. */
#define ESP_TREE_SESSION_NONE 0
/* The session that a client has named: never a number that the tree gives (those are even). */
uint32_t esp_tree_named_session(const void *name, size_t n_bytes);
/* The session of a prompt that was found down to `node` (ESP_NODE_NONE: not at all): that of the turn that ended
 * on this path, unless the path is shared below it; else a new one. */
uint32_t esp_tree_session(struct esp_tree *tree, struct esp_node_id node);
/* The turn of a session that leased `node` ends: marks the path as used by the session, and releases the lease.
 * turn: the last node of its prompt, where the next turn will go on (ESP_NODE_NONE: nothing is marked).
 * comes_back: the whole path becomes RETURN. Else pages of the session's own, behind the first n_head pages,
 * become TAIL, and the rest NORMAL. */
struct esp_tree_turn {
    struct esp_node_id node, turn;
    uint32_t session, n_head;
    bool comes_back;
};
/* Returns the last node of the path that has not become TAIL, or ESP_NODE_NONE. */
struct esp_node_id esp_tree_end_turn(struct esp_tree *tree, const struct esp_tree_turn *turn);

/* ---- Pins: pages that stay until a time (pins.c) ----
 *
 * Asked for at admission against the budget of the config: granted pages are reserved, and whoever holds
 * a lease on the pages later turns the reservation into a pin. A pin is never given up before its time
 * (but by esp_tree_flush, on the operator's word); each lease of its pages starts its time anew. */
#define ESP_TREE_PINS_MAX 4096
/* How many of the n_pages first pages of the prompt are under no pin now. */
uint32_t esp_tree_unpinned(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_pages);
bool esp_tree_pin_reserve(struct esp_tree *tree, uint32_t n_pages); /* false: refused */
void esp_tree_pin_return(struct esp_tree *tree, uint32_t n_pages);
/* Pins the path of a leased node for ttl_ns from now or from its next use on, in place of a reservation. Returns the
 * pages that were under no pin before, or ESP_EBUSY when more must be pinned than budget or table allow. */
int64_t esp_tree_pin(struct esp_tree *tree, struct esp_node_id node, int64_t ttl_ns, uint32_t n_reserved);

/* n private pages, evicting unreferenced leaves when the free list is short. All or nothing:
 * ESP_EBUSY when not enough can be freed. */
esp_status esp_tree_alloc(struct esp_tree *tree, uint32_t n, struct esp_page_id *ret_pages);
void esp_tree_free_private(struct esp_tree *tree, const struct esp_page_id *pages, uint32_t n);
/* Pages that alloc could provide now: free plus evictable, pinned ones excluded. */
uint32_t esp_tree_available(const struct esp_tree *tree);
/* Of these, the ones that are free or of a lower class. */
uint32_t esp_tree_available_below(const struct esp_tree *tree, enum esp_evict_class class);
/* Pages on the path of `node` that are available now and would not be under a lease on it; the node's own class, of
 * pages that several conversations have in common NORMAL at most. */
uint32_t esp_tree_unreferenced(const struct esp_tree *tree, struct esp_node_id node, enum esp_evict_class *ret_class);

/* Enters a private page as the child of `parent` (ESP_NODE_NONE = the namespace root) holding the 16
 * tokens, with one reference for the caller — who already holds a lease on parent, and afterwards
 * holds one on the child instead. state: ESP_PAGE_CACHED when the page is written, ESP_PAGE_PENDING
 * when it will be.
 * When an equal child exists already, *ret_node is that one, the caller's page stays private, and
 * *ret_existed is true: if the child is cached the caller may use its page and free his own.
 * A cached page goes under a cached parent only. ESP_ESTATE: the namespace was recycled meanwhile
 * (only possible with parent ESP_NODE_NONE); the page stays private. Nothing else fails. */
esp_status esp_tree_insert(struct esp_tree *tree, struct esp_ns_id ns, struct esp_node_id parent,
                           const uint32_t tokens[ESP_TREE_PAGE_TOKENS], struct esp_page_id page,
                           enum esp_page_state state, struct esp_node_id *ret_node, bool *ret_existed);
/* pending → cached; root side first, since below a pending node nothing is cached. A pending node that
 * loses its last reference instead leaves the tree at once, and its page is free. */
void esp_tree_publish(struct esp_tree *tree, struct esp_node_id node);

/* False for an id whose node has left the tree. The functions below assert it. */
bool esp_tree_node_alive(const struct esp_tree *tree, struct esp_node_id node);
enum esp_page_state esp_tree_node_state(const struct esp_tree *tree, struct esp_node_id node);
struct esp_page_id esp_tree_node_page(const struct esp_tree *tree, struct esp_node_id node);
struct esp_node_id esp_tree_page_node(const struct esp_tree *tree, struct esp_page_id page); /* pending or cached */
struct esp_node_id esp_tree_node_parent(const struct esp_tree *tree, struct esp_node_id node);

/* What a copy of a node's page somewhere else needs. Pages and tokens of the path, root side first, at most n_max;
 * returns the number. */
uint32_t esp_tree_path(const struct esp_tree *tree, struct esp_node_id node, uint32_t n_max,
                       struct esp_page_id *ret_pages, uint32_t *ret_tokens);
/* The exact bytes of a namespace: all fields with their lengths. Borrowed until the next call of
 * esp_tree_namespace. NULL: recycled. */
const void *esp_tree_space(const struct esp_tree *tree, struct esp_ns_id ns, size_t *ret_n_bytes);
const void *esp_tree_node_space(const struct esp_tree *tree, struct esp_node_id node, size_t *ret_n_bytes);
/* Whether the page (pending or cached) has been written elsewhere; forgotten when the node leaves the tree. */
bool esp_tree_is_saved(const struct esp_tree *tree, struct esp_page_id page);
void esp_tree_set_saved(struct esp_tree *tree, struct esp_page_id page);

/* ---- Why a prompt was found no further (why.c) ---- */
struct esp_tree_why {
    uint32_t n_found;     /* tokens that a match finds: whole pages, pending ones too, and the beginning of the next */
    uint32_t n_wanted;    /* tokens in whole pages that it might have found */
    uint32_t n_evicted;   /* tokens behind the found pages that were here once, in whole pages … */
    int64_t evicted_ns;   /* … and when the first of these pages left (time of esp_tree_set_now) */
    bool diverges;        /* at n_found the tree goes on otherwise … */
    uint32_t have;        /* … with this token; UINT32_MAX: it does not go on at all */
    uint32_t n_elsewhere; /* tokens of whole pages that some other namespace has */
};
/* Looks into at most n_spaces_max namespaces for n_elsewhere. */
void esp_tree_explain(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_tokens_max,
                      uint32_t n_spaces_max, struct esp_tree_why *ret_why);

/* Drops every pin and every unreferenced cached node; returns the pages freed (not counted as evicted). */
uint32_t esp_tree_flush(struct esp_tree *tree);
void esp_tree_get_stats(const struct esp_tree *tree, struct esp_tree_stats *ret_stats);
/* Advances the tree's notion of time (nanoseconds), used for last use and ages. An earlier time than
 * the present one is ignored: a clock that jumps back changes no order. */
void esp_tree_set_now(struct esp_tree *tree, int64_t now_ns);

/* Walks everything and checks every invariant: page states and counts, free list, refs closed upward,
 * parent/child/hash links, sibling tokens different, LRU lists. False and a reason on the first
 * break. O(n), allocates nothing; for tests and debug builds. */
bool esp_tree_check(const struct esp_tree *tree, char *ret_reason, size_t reason_bytes);

/* One node for listings; visit returns false to stop. Depth first, children by last use. */
struct esp_node_view {
    struct esp_node_id id, parent;
    struct esp_ns_id ns;
    const uint32_t *tokens; /* [16] */
    struct esp_page_id page;
    uint32_t refs, depth, n_children;
    enum esp_evict_class class; /* in force: of the node and what hangs below it */
    enum esp_page_state state;
    int64_t age_ns;
};
void esp_tree_visit(const struct esp_tree *tree, bool (*visit)(void *ctx, const struct esp_node_view *node),
                    void *ctx);

#endif
