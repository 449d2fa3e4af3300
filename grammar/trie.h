/* The vocabulary as byte tries: what a mask is read from.
 *
 *   nodes in depth-first order          order: token ids in the same order, so that a subtree is an
 *   i: byte, depth, next ─┐             interval of order
 *   i+1 …  (subtree of i) │
 *   next ◄────────────────┘
 *
 * `all` holds every text token. `rest` holds those that are not *safe*: safe tokens are whole characters
 * that a JSON string takes as they are (no ", no \, no control character). slice[n] is the mask of the safe
 * tokens with at most n characters: inside a free string it is most of the answer, ready made. Slices of other
 * classes of characters are made when first asked for (slices.h).
 * Read-only after create but for those, shared by all threads.
 */
#ifndef ESP_GRAMMAR_TRIE_H
#define ESP_GRAMMAR_TRIE_H

#include "grammar/expr.h"
#include "grammar/grammar.h"

#define ESP_TRIE_TOKENS_MAX 4000000u
#define ESP_TRIE_TOKEN_BYTES_MAX 4096u
#define ESP_TRIE_SLICES_MAX 128u
#define ESP_TRIE_LONG_BYTES 32u

struct esp_tree_node {
    uint32_t next;   /* index after the subtree */
    uint32_t tokens; /* the subtree's first token in order; own tokens come first */
    uint16_t depth;  /* of the byte, 0 = first */
    uint8_t byte;
    uint8_t flags;   /* ESP_TREE_… */
};
enum {
    ESP_TREE_SAFE = 1,  /* what follows this node is safe characters only, in every token of the subtree */
    ESP_TREE_HIGH = 2,  /* a byte above 0x7F follows in some token */
    ESP_TREE_BROKEN = 4 /* some token of the subtree is no whole UTF-8 */
};
struct esp_tree_below { /* ASCII bytes that follow a node, in any token of its subtree */
    uint64_t ascii[2];
};
struct esp_tree {
    struct esp_tree_node *nodes; /* [n + 1]; the last one is a sentinel */
    struct esp_tree_below *below; /* [n] */
    uint32_t n;
    uint32_t *order;
    uint32_t n_order;
    uint32_t depth_max; /* longest token, bytes */
};
struct esp_trie {
    uint32_t n_tokens;
    struct esp_tree all, rest, longs; /* longs: tokens of more bytes than a zone looks at (zone.h) */
    struct esp_slices *classes;       /* slices.h; the one part that changes, under its own lock */
    uint64_t *slices; /* [n_slices + 1][mask words] */
    uint32_t n_slices;
    uint32_t *ends; /* ids of end tokens */
    uint32_t n_ends;
    struct esp_byteset alphabet; /* bytes that occur in text tokens */
    bool byte_complete;          /* each of them is a token of its own, and all of a number's are there */
    uint8_t *roles;              /* [n_tokens] */
    uint32_t *token_at;          /* [n_tokens + 1] into bytes */
    uint8_t *bytes;
    size_t total_bytes;
};

/* The token with exactly these bytes, a control or end token first; UINT32_MAX when there is none. */
uint32_t esp_trie_find(const struct esp_trie *trie, const char *bytes, size_t n_bytes);

static inline const uint8_t *esp_trie_token(const struct esp_trie *trie, uint32_t token, uint32_t *ret_n_bytes)
{
    *ret_n_bytes = trie->token_at[token + 1] - trie->token_at[token];
    return trie->bytes + trie->token_at[token];
}
static inline void esp_mask_set(uint64_t *mask, uint32_t token)
{
    mask[token / 64] |= (uint64_t)1 << (token % 64);
}
static inline bool esp_mask_has(const uint64_t *mask, uint32_t token)
{
    return mask[token / 64] >> (token % 64) & 1;
}

#endif
