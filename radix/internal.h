/* What the files of radix/ share; nothing outside radix/ and its tests includes it.
 *
 * Node i describes page i, so the page pool and the tree are one table and one state a row:
 *
 *   free, private   only state, generation and (free) the list links mean anything
 *   pending         in the tree; refs > 0, so it is on no list
 *   cached          in the tree; refs > 0: on no list, refs 0: on the list of its class
 *
 * The class lists hold every unreferenced node, leaves or not, oldest use first. They work
 * without a search for leaves because of two rules that the walker checks:
 *   1. whatever touches a node on a list touches its ancestors after it, so a child stands before its parent;
 *   2. a node stands in the highest class of itself and its children.
 * The head of the lowest list in use is therefore always the leaf that has to go first. A node under a pin is
 * of the highest class, which eviction never takes.
 *
 * Thread: the engine's.
 */
#ifndef ESP_RADIX_INTERNAL_H
#define ESP_RADIX_INTERNAL_H

#include "radix/tree.h"

#define ESP_TREE_NIL UINT32_MAX
#define ESP_TREE_AHEAD 16
#define ESP_TREE_LIST_FREE ESP_CLASSES /* lists: one a class, then the free pages */
#define ESP_TREE_LISTS (ESP_CLASSES + 1)
#define ESP_TREE_LIST_NONE 0xff
#define ESP_TREE_NS_BITS 12 /* of an esp_ns_id: the slot; the rest is its generation */
#define ESP_TREE_NS_BUCKETS (2 * ESP_TREE_NAMESPACES_MAX)
_Static_assert(1 << ESP_TREE_NS_BITS == ESP_TREE_NAMESPACES_MAX, "a slot fits its bits");

struct esp_tree_hash {
    uint64_t low, high;
};

/* Three cache lines: a lookup reads the first two, and the third only when it has to move a sibling. */
struct esp_tree_node {
    uint32_t tokens[ESP_TREE_PAGE_TOKENS];

    struct esp_tree_hash hash; /* of the namespace and all tokens up to this page */
    uint32_t parent;           /* NIL: child of the namespace's root */
    uint32_t ns;               /* slot */
    uint8_t list;              /* class, ESP_TREE_LIST_FREE or ESP_TREE_LIST_NONE */
    uint8_t class;             /* highest given since the node was last unreferenced */
    uint8_t state;
    bool shared;   /* two sessions have used it, and so its ancestors */
    bool turn_end; /* a prompt of its session ended here */
    bool saved;    /* its bytes have been written elsewhere, or came from there */
    uint16_t pins; /* through this node */
    uint64_t use_seq; /* order of last uses, unique */
    int64_t used_ns;
    uint32_t ahead; /* a node ESP_TREE_AHEAD levels below that a match came to last: to be fetched in time; a hint */
    uint32_t list_prev, list_next;
    uint32_t child_head; /* most recently used first */

    uint32_t generation; /* counts the times this node left the tree */
    uint32_t depth;      /* 1 for a child of the root */
    uint32_t sibling_next;
    uint32_t refs; /* leases through this node */
    uint32_t n_children;
    uint32_t n_children_in[ESP_CLASSES]; /* children on that list */
    uint8_t class_before; /* of before the present leases */
    uint32_t session;     /* that used it first */
    uint32_t sibling_prev; /* towards the most recently used */
    uint32_t pin;     /* one more than the index of the pin that ends here; 0 = none */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct esp_tree_node) == 192, "three cache lines");

struct esp_tree_cell { /* of the index */
    uint32_t tag;      /* low bits of the node's hash */
    uint32_t idx;      /* NIL: empty */
};

struct esp_tree_list {
    uint32_t head, tail, n;
};

struct esp_tree_pin {
    uint32_t node; /* NIL: the record is free */
    int64_t ttl_ns, until_ns;
};

struct esp_tree_ghost { /* of a path that left the tree */
    struct esp_tree_hash hash;
    int64_t left_ns;
    bool used;
};
#define ESP_TREE_GHOSTS_MAX (1u << 20)

struct esp_tree_ns {
    unsigned char *bytes; /* fields, each after its length as 8 bytes; NULL: slot never used */
    size_t n_bytes;
    struct esp_tree_hash hash; /* of bytes: where the chain starts */
    uint64_t use_seq;
    uint32_t generation;
    uint32_t bucket_next;
    uint32_t child_head;
    uint32_t n_nodes;
};

struct esp_tree {
    struct esp_tree_node *nodes; /* [n_pages] */
    struct esp_tree_cell *cells; /* [cell_mask + 1] */
    struct esp_tree_ns *spaces;  /* [ESP_TREE_NAMESPACES_MAX] */
    uint32_t *space_buckets;     /* [ESP_TREE_NS_BUCKETS] */
    uint32_t n_pages, cell_mask;
    uint32_t n_spaces; /* slots ever used: the first ones */
    uint64_t seed;
    struct esp_tree_hash hash_mask;
    struct esp_tree_ghost *ghosts; /* [ghost_mask + 1] */
    uint32_t ghost_mask;
    struct esp_tree_list lists[ESP_TREE_LISTS];
    uint32_t n_in_state[ESP_PAGE_STATES];
    uint32_t n_referenced; /* tree nodes with refs > 0 */
    struct esp_tree_pin *pins; /* [ESP_TREE_PINS_MAX] */
    uint32_t n_pins, n_pinned, n_pin_reserved, n_pin_pages_max;
    int64_t pins_due_ns; /* no pin expires before */
    uint32_t session_last;
    uint64_t use_seq;
    int64_t now_ns;
    uint64_t evicted_total, hash_rejected_total;
};

static inline struct esp_node_id esp_tree_id(const struct esp_tree *tree, uint32_t idx)
{
    return idx == ESP_TREE_NIL ? ESP_NODE_NONE : (struct esp_node_id){idx, tree->nodes[idx].generation};
}

/* pages.c */
void esp_tree_list_add(struct esp_tree *tree, uint8_t list, uint32_t idx); /* at the tail */
void esp_tree_list_remove(struct esp_tree *tree, uint32_t idx);
void esp_tree_page_set(struct esp_tree *tree, uint32_t idx, enum esp_page_state state); /* keeps the counts */
void esp_tree_page_free(struct esp_tree *tree, uint32_t idx);

/* evict.c */
uint8_t esp_tree_class_in_force(const struct esp_tree_node *node); /* of itself and its children */
void esp_tree_evictable_add(struct esp_tree *tree, uint32_t idx);
void esp_tree_evictable_remove(struct esp_tree *tree, uint32_t idx);
void esp_tree_touch(struct esp_tree *tree, uint32_t idx); /* last use = now; not the ancestors */
void esp_tree_evict(struct esp_tree *tree, uint32_t n);   /* n ≤ nodes on the lists below PINNED */

/* why.c */
uint32_t esp_tree_ghosts_for(uint32_t n_pages);
void esp_tree_ghost_add(struct esp_tree *tree, uint32_t idx); /* the node is about to leave */

/* life.c */
void esp_tree_expire_returns(struct esp_tree *tree);

/* pins.c */
void esp_tree_pins_init(struct esp_tree *tree);
void esp_tree_pin_used(struct esp_tree *tree, uint32_t idx); /* the node has a pin */
void esp_tree_expire_pins(struct esp_tree *tree, int64_t now_ns);

static inline bool esp_tree_same_tokens(const uint32_t *left, const uint32_t *right)
{
    uint32_t differ = 0;
    for (int idx = 0; idx < ESP_TREE_PAGE_TOKENS; idx++) {
        differ |= left[idx] ^ right[idx];
    }
    return differ == 0;
}

/* index.c */
struct esp_tree_hash esp_tree_hash_bytes(const struct esp_tree *tree, const void *data, size_t n_bytes);
struct esp_tree_hash esp_tree_hash_page(const struct esp_tree *tree, struct esp_tree_hash parent,
                                        const uint32_t tokens[ESP_TREE_PAGE_TOKENS]);
/* NIL when there is none. Adds the candidates that only looked right to *n_rejected. */
uint32_t esp_tree_find_child(const struct esp_tree *tree, uint32_t ns, uint32_t parent, struct esp_tree_hash hash,
                             const uint32_t tokens[ESP_TREE_PAGE_TOKENS], uint64_t *n_rejected);
void esp_tree_index_add(struct esp_tree *tree, uint32_t idx);
void esp_tree_index_remove(struct esp_tree *tree, uint32_t idx);

/* tree.c */
void esp_tree_leave(struct esp_tree *tree, uint32_t idx); /* a leaf leaves the tree, its page is free */

/* spaces.c */
struct esp_tree_ns *esp_tree_ns_slot(const struct esp_tree *tree, struct esp_ns_id ns); /* NULL: recycled */
uint32_t esp_tree_ns_find(const struct esp_tree *tree, const void *bytes, size_t n_bytes, struct esp_tree_hash hash);
struct esp_ns_id esp_tree_ns_id(const struct esp_tree *tree, uint32_t slot);
void esp_tree_ns_finish(struct esp_tree *tree);

#endif
