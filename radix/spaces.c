/* Namespaces: exact byte strings to slots.
 *
 *   ("ab", "c") ──► 2 "ab" 1 "c" (lengths as 8 bytes) ──► slot, found by hash, accepted by bytes
 *
 * Slots are used in order; when all are, the idle one (no nodes) that was asked for longest ago is
 * recycled, and its generation makes old ids find nothing. Thread: the engine's.
 * Does not know what the fields mean.
 */
#include <assert.h>
#include <string.h>

#include "radix/internal.h"
#include "runtime/base/alloc.h"

#define SLOT_MASK (ESP_TREE_NAMESPACES_MAX - 1)
#define GENERATION_MASK (UINT32_MAX >> ESP_TREE_NS_BITS)

struct esp_ns_id esp_tree_ns_id(const struct esp_tree *tree, uint32_t slot)
{
    return (struct esp_ns_id){tree->spaces[slot].generation << ESP_TREE_NS_BITS | slot};
}

struct esp_tree_ns *esp_tree_ns_slot(const struct esp_tree *tree, struct esp_ns_id ns)
{
    uint32_t slot = ns.v & SLOT_MASK;
    bool is_current = slot < tree->n_spaces && tree->spaces[slot].generation == ns.v >> ESP_TREE_NS_BITS;
    return is_current ? &tree->spaces[slot] : NULL;
}

const void *esp_tree_space(const struct esp_tree *tree, struct esp_ns_id ns, size_t *ret_n_bytes)
{
    const struct esp_tree_ns *space = esp_tree_ns_slot(tree, ns);
    if (space == NULL) {
        return NULL;
    }
    *ret_n_bytes = space->n_bytes;
    return space->bytes;
}

const void *esp_tree_node_space(const struct esp_tree *tree, struct esp_node_id node, size_t *ret_n_bytes)
{
    assert(esp_tree_node_alive(tree, node));
    const struct esp_tree_ns *space = &tree->spaces[tree->nodes[node.v].ns];
    *ret_n_bytes = space->n_bytes;
    return space->bytes;
}

static uint32_t *bucket_of(const struct esp_tree *tree, struct esp_tree_hash hash)
{
    return &tree->space_buckets[hash.low & (ESP_TREE_NS_BUCKETS - 1)];
}

uint32_t esp_tree_ns_find(const struct esp_tree *tree, const void *bytes, size_t n_bytes, struct esp_tree_hash hash)
{
    uint32_t slot = *bucket_of(tree, hash);
    while (slot != ESP_TREE_NIL) {
        const struct esp_tree_ns *space = &tree->spaces[slot];
        if (space->n_bytes == n_bytes && memcmp(space->bytes, bytes, n_bytes) == 0) {
            break;
        }
        slot = space->bucket_next;
    }
    return slot;
}

/* The next unused slot, else the idle one asked for longest ago, else NIL. */
static uint32_t slot_to_use(const struct esp_tree *tree)
{
    if (tree->n_spaces < ESP_TREE_NAMESPACES_MAX) {
        return tree->n_spaces;
    }
    uint32_t best = ESP_TREE_NIL;
    for (uint32_t slot = 0; slot < tree->n_spaces; slot++) {
        const struct esp_tree_ns *space = &tree->spaces[slot];
        if (space->n_nodes == 0 && (best == ESP_TREE_NIL || space->use_seq < tree->spaces[best].use_seq)) {
            best = slot;
        }
    }
    return best;
}

static void slot_empty(struct esp_tree *tree, uint32_t slot)
{
    struct esp_tree_ns *space = &tree->spaces[slot];
    uint32_t *link = bucket_of(tree, space->hash);
    while (*link != slot) {
        link = &tree->spaces[*link].bucket_next;
    }
    *link = space->bucket_next;
    esp_free(space->bytes);
    space->bytes = NULL;
    space->generation = (space->generation + 1) & GENERATION_MASK;
}

static size_t encoded_bytes(const struct esp_field *fields, size_t n_fields)
{
    size_t n = 0;
    for (size_t idx = 0; idx < n_fields && n <= ESP_TREE_NAMESPACE_BYTES_MAX; idx++) {
        size_t n_field = fields[idx].n_bytes;
        n += sizeof(uint64_t) + (n_field < ESP_TREE_NAMESPACE_BYTES_MAX ? n_field : ESP_TREE_NAMESPACE_BYTES_MAX);
    }
    return n;
}

static void encode(const struct esp_field *fields, size_t n_fields, unsigned char *out)
{
    for (size_t idx = 0; idx < n_fields; idx++) {
        uint64_t n = fields[idx].n_bytes;
        memcpy(out, &n, sizeof n);
        if (n > 0) {
            memcpy(out + sizeof n, fields[idx].data, n);
        }
        out += sizeof n + n;
    }
}

esp_status esp_tree_namespace(struct esp_tree *tree, const struct esp_field *fields, size_t n_fields,
                              struct esp_ns_id *ret_ns, struct esp_err *err)
{
    unsigned char bytes[ESP_TREE_NAMESPACE_BYTES_MAX];
    size_t n_bytes = encoded_bytes(fields, n_fields);
    if (n_bytes > sizeof bytes) {
        return esp_fail(err, ESP_ELIMIT, "the fields that name a cache namespace exceed %d bytes",
                        ESP_TREE_NAMESPACE_BYTES_MAX);
    }
    encode(fields, n_fields, bytes);
    struct esp_tree_hash hash = esp_tree_hash_bytes(tree, bytes, n_bytes);
    uint32_t slot = esp_tree_ns_find(tree, bytes, n_bytes, hash);
    if (slot == ESP_TREE_NIL) {
        slot = slot_to_use(tree);
        if (slot == ESP_TREE_NIL) {
            return esp_fail(err, ESP_ELIMIT, "all %d cache namespaces hold pages", ESP_TREE_NAMESPACES_MAX);
        }
        unsigned char *copy = esp_malloc(ESP_TAG_TREE, n_bytes);
        if (copy == NULL) {
            return esp_fail(err, ESP_ENOMEM, "out of memory for a cache namespace");
        }
        memcpy(copy, bytes, n_bytes);
        if (slot == tree->n_spaces) {
            tree->n_spaces++;
        } else {
            slot_empty(tree, slot);
        }
        struct esp_tree_ns *space = &tree->spaces[slot];
        uint32_t *bucket = bucket_of(tree, hash);
        space->bytes = copy;
        space->n_bytes = n_bytes;
        space->hash = hash;
        space->child_head = ESP_TREE_NIL;
        space->bucket_next = *bucket;
        *bucket = slot;
    }
    tree->spaces[slot].use_seq = ++tree->use_seq;
    *ret_ns = esp_tree_ns_id(tree, slot);
    return ESP_OK;
}

void esp_tree_ns_finish(struct esp_tree *tree)
{
    for (uint32_t slot = 0; slot < tree->n_spaces; slot++) {
        esp_free(tree->spaces[slot].bytes);
    }
}
