/* Building the tries of a vocabulary. See trie.h.
 *
 * Tokens are sorted by their bytes; a trie in depth-first order is then one pass over neighbours.
 * Thread: create in any thread; read-only afterwards.
 */
#include "grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/slices.h"
#include "grammar/vec.h"
#include "runtime/base/utf8.h"

struct item {
    const uint8_t *bytes;
    uint32_t n, id;
};

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order == 0) {
        order = x->n != y->n ? (x->n < y->n ? -1 : 1) : (x->id < y->id ? -1 : x->id > y->id);
    }
    return order;
}

static bool safe_byte(uint8_t byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\';
}

/* Length in bytes of the safe character that ends at bytes[end], 0 when there is none. */
static uint32_t safe_char_before(const uint8_t *bytes, uint32_t end)
{
    uint32_t cp, at = end - 1;
    while (at > 0 && end - at < 4 && (bytes[at] & 0xC0) == 0x80) {
        at--;
    }
    if (!safe_byte(bytes[at]) || esp_utf8_decode((const char *)bytes + at, end - at, &cp) != (int)(end - at)) {
        return 0;
    }
    return end - at;
}

/* Number of characters when the whole token is safe, else 0. */
static uint32_t safe_chars(const uint8_t *bytes, uint32_t n)
{
    uint32_t n_chars = 0;
    while (n > 0) {
        uint32_t used = safe_char_before(bytes, n);
        if (used == 0) {
            return 0;
        }
        n -= used;
        n_chars++;
    }
    return n_chars;
}

struct builder {
    struct esp_tree *tree;
    uint32_t nodes_cap, below_cap;
    uint32_t *path; /* node index at each depth */
    uint32_t n_path;
};

/* Ends the subtrees below `depth`. */
static void close_path(struct builder *b, uint32_t depth)
{
    while (b->n_path > depth) {
        b->tree->nodes[b->path[--b->n_path]].next = b->tree->n;
    }
}

/* A node is followed by unsafe text when the token goes on after it with anything but safe characters. */
static void mark_unsafe(struct builder *b, const struct item *item)
{
    uint32_t end = item->n, at;
    while (end > 0) {
        uint32_t used = safe_char_before(item->bytes, end);
        for (at = end - (used > 0 ? used : 1); at + 1 < end; at++) {
            b->tree->nodes[b->path[at]].flags &= (uint8_t)~ESP_TREE_SAFE; /* inside a character */
        }
        if (used == 0) {
            break;
        }
        end -= used;
    }
    /* path[k] is the node after k + 1 bytes: its rest begins at k + 1, unsafe up to the last unsafe byte. */
    for (at = 0; at + 1 < end; at++) {
        b->tree->nodes[b->path[at]].flags &= (uint8_t)~ESP_TREE_SAFE;
    }
}

/* Tells each node of the path what follows it in this token. */
static void mark_below(struct builder *b, const struct item *item)
{
    struct esp_tree_below after = {{0}};
    uint8_t flags = esp_utf8_valid((const char *)item->bytes, item->n) == item->n ? 0 : ESP_TREE_BROKEN;
    for (uint32_t at = item->n; at-- > 0;) {
        struct esp_tree_below *below = &b->tree->below[b->path[at]];
        below->ascii[0] |= after.ascii[0];
        below->ascii[1] |= after.ascii[1];
        b->tree->nodes[b->path[at]].flags |= flags;
        if (item->bytes[at] < 0x80) {
            after.ascii[item->bytes[at] >> 6] |= (uint64_t)1 << (item->bytes[at] & 63);
        } else {
            flags |= ESP_TREE_HIGH;
        }
    }
}

static esp_status add_item(struct builder *b, const struct item *item, const struct item *before)
{
    uint32_t common = 0;
    struct esp_tree *tree = b->tree;
    while (before != NULL && common < item->n && common < before->n && item->bytes[common] == before->bytes[common]) {
        common++;
    }
    close_path(b, common);
    if (!esp_vec_grow(&tree->nodes, &b->nodes_cap, (uint64_t)tree->n + item->n + 1) ||
        !esp_vec_grow(&tree->below, &b->below_cap, (uint64_t)tree->n + item->n)) {
        return ESP_ENOMEM;
    }
    for (uint32_t depth = common; depth < item->n; depth++) {
        tree->nodes[tree->n] = (struct esp_tree_node){
            .tokens = tree->n_order, .depth = (uint16_t)depth, .byte = item->bytes[depth], .flags = ESP_TREE_SAFE};
        tree->below[tree->n] = (struct esp_tree_below){{0}};
        b->path[b->n_path++] = tree->n++;
    }
    mark_unsafe(b, item);
    mark_below(b, item);
    tree->order[tree->n_order++] = item->id;
    tree->depth_max = item->n > tree->depth_max ? item->n : tree->depth_max;
    return ESP_OK;
}

static esp_status build_tree(struct esp_tree *tree, const struct item *items, uint32_t n_items)
{
    struct builder b = {.tree = tree};
    uint32_t order_cap = 0;
    esp_status status = ESP_OK;
    b.path = esp_malloc(ESP_TAG_GRAMMAR, (ESP_TRIE_TOKEN_BYTES_MAX + 1) * sizeof *b.path);
    if (b.path == NULL || !esp_vec_grow(&tree->order, &order_cap, (uint64_t)n_items + 1) ||
        !esp_vec_grow(&tree->nodes, &b.nodes_cap, 1)) {
        status = ESP_ENOMEM;
    }
    for (uint32_t idx = 0; idx < n_items && status == ESP_OK; idx++) {
        status = add_item(&b, &items[idx], idx > 0 ? &items[idx - 1] : NULL);
    }
    if (status == ESP_OK) {
        close_path(&b, 0);
        tree->nodes[tree->n] = (struct esp_tree_node){.next = tree->n + 1, .tokens = tree->n_order};
    }
    esp_free(b.path);
    return status;
}

static esp_status build_slices(struct esp_trie *trie, const struct item *items, uint32_t n_items, struct item *rest,
                               uint32_t *ret_n_rest)
{
    size_t words = esp_mask_words(trie->n_tokens);
    uint32_t n_rest = 0;
    for (uint32_t idx = 0; idx < n_items; idx++) {
        uint32_t n = safe_chars(items[idx].bytes, items[idx].n);
        if (n > 0 && n <= ESP_TRIE_SLICES_MAX) {
            trie->n_slices = n > trie->n_slices ? n : trie->n_slices;
        } else {
            rest[n_rest++] = items[idx];
        }
    }
    *ret_n_rest = n_rest;
    trie->slices = esp_calloc(ESP_TAG_GRAMMAR, (size_t)trie->n_slices + 1, words * sizeof(uint64_t));
    if (trie->slices == NULL) {
        return ESP_ENOMEM;
    }
    for (uint32_t idx = 0; idx < n_items; idx++) {
        uint32_t n = safe_chars(items[idx].bytes, items[idx].n);
        if (n > 0 && n <= ESP_TRIE_SLICES_MAX) {
            esp_mask_set(trie->slices + n * words, items[idx].id);
        }
    }
    for (uint32_t n = 1; n <= trie->n_slices; n++) {
        for (size_t word = 0; word < words; word++) {
            trie->slices[n * words + word] |= trie->slices[(n - 1) * words + word];
        }
    }
    return ESP_OK;
}

/* Copies the tokens, so that the trie stands alone. */
static esp_status copy_tokens(struct esp_trie *trie, const struct esp_trie_token *tokens, struct esp_err *err)
{
    uint64_t n_bytes = 0;
    for (uint32_t id = 0; id < trie->n_tokens; id++) {
        if (tokens[id].n_bytes > ESP_TRIE_TOKEN_BYTES_MAX) {
            return esp_fail(err, ESP_ELIMIT, "token %u has %u bytes", id, tokens[id].n_bytes);
        }
        n_bytes += tokens[id].n_bytes;
    }
    if (n_bytes > UINT32_MAX) {
        return esp_fail(err, ESP_ELIMIT, "the vocabulary has %llu bytes", (unsigned long long)n_bytes);
    }
    trie->total_bytes = (size_t)n_bytes;
    trie->bytes = esp_malloc(ESP_TAG_GRAMMAR, (size_t)n_bytes + 1);
    trie->token_at = esp_calloc(ESP_TAG_GRAMMAR, (size_t)trie->n_tokens + 1, sizeof *trie->token_at);
    trie->roles = esp_calloc(ESP_TAG_GRAMMAR, (size_t)trie->n_tokens + 1, 1);
    trie->ends = esp_calloc(ESP_TAG_GRAMMAR, (size_t)trie->n_tokens + 1, sizeof *trie->ends);
    if (trie->bytes == NULL || trie->token_at == NULL || trie->roles == NULL || trie->ends == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for the vocabulary");
    }
    uint32_t at = 0;
    for (uint32_t id = 0; id < trie->n_tokens; id++) {
        trie->token_at[id] = at;
        trie->roles[id] = (uint8_t)tokens[id].role;
        if (tokens[id].role == ESP_ROLE_END) {
            trie->ends[trie->n_ends++] = id;
        }
        if (tokens[id].n_bytes > 0) {
            memcpy(trie->bytes + at, tokens[id].bytes, tokens[id].n_bytes);
            at += tokens[id].n_bytes;
        }
    }
    trie->token_at[trie->n_tokens] = at;
    return ESP_OK;
}

static void find_alphabet(struct esp_trie *trie, const struct item *items, uint32_t n_items)
{
    struct esp_byteset alone = {{0}};
    for (uint32_t idx = 0; idx < n_items; idx++) {
        for (uint32_t at = 0; at < items[idx].n; at++) {
            esp_byteset_add(&trie->alphabet, items[idx].bytes[at], items[idx].bytes[at]);
        }
        if (items[idx].n == 1) {
            esp_byteset_add(&alone, items[idx].bytes[0], items[idx].bytes[0]);
        }
    }
    trie->byte_complete = memcmp(&alone, &trie->alphabet, sizeof alone) == 0;
    for (const char *c = "0123456789+-.eE"; *c != '\0'; c++) {
        trie->byte_complete = trie->byte_complete && esp_byteset_has(&alone, (unsigned char)*c);
    }
}

/* The trees and slices from the sorted items; rest is room for as many. */
static esp_status build_parts(struct esp_trie *trie, const struct item *items, uint32_t n_items, struct item *rest)
{
    uint32_t n_rest = 0;
    esp_status status = build_slices(trie, items, n_items, rest, &n_rest);
    if (status == ESP_OK) {
        status = build_tree(&trie->all, items, n_items);
    }
    if (status == ESP_OK) {
        status = build_tree(&trie->rest, rest, n_rest);
    }
    n_rest = 0;
    for (uint32_t idx = 0; idx < n_items; idx++) {
        if (items[idx].n > ESP_TRIE_LONG_BYTES) {
            rest[n_rest++] = items[idx];
        }
    }
    if (status == ESP_OK) {
        status = build_tree(&trie->longs, rest, n_rest);
    }
    return status == ESP_OK ? esp_slices_create(trie, &trie->classes) : status;
}

esp_status esp_trie_create(const struct esp_trie_token *tokens, uint32_t n_tokens, struct esp_trie **ret_trie,
                           struct esp_err *err)
{
    struct esp_trie *trie = esp_calloc(ESP_TAG_GRAMMAR, 1, sizeof *trie);
    struct item *items = NULL, *rest = NULL;
    uint32_t n_items = 0;
    esp_status status = ESP_ENOMEM;
    if (trie == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for the vocabulary");
    }
    if (n_tokens == 0 || n_tokens > ESP_TRIE_TOKENS_MAX) {
        status = esp_fail(err, n_tokens == 0 ? ESP_EINVAL : ESP_ELIMIT, "a vocabulary of %u tokens", n_tokens);
        goto fail;
    }
    trie->n_tokens = n_tokens;
    status = copy_tokens(trie, tokens, err);
    if (status != ESP_OK) {
        goto fail;
    }
    items = esp_calloc(ESP_TAG_GRAMMAR, n_tokens, sizeof *items);
    rest = esp_calloc(ESP_TAG_GRAMMAR, n_tokens, sizeof *rest);
    if (items == NULL || rest == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "out of memory for the vocabulary");
        goto fail;
    }
    for (uint32_t id = 0; id < n_tokens; id++) {
        struct item item = {.id = id};
        item.bytes = esp_trie_token(trie, id, &item.n);
        if (item.n > 0 && trie->roles[id] == ESP_ROLE_TEXT) {
            items[n_items++] = item;
        }
    }
    qsort(items, n_items, sizeof *items, compare_items);
    find_alphabet(trie, items, n_items);
    status = build_parts(trie, items, n_items, rest);
    if (status != ESP_OK) {
        esp_fail(err, status, "out of memory for the vocabulary");
        goto fail;
    }
    esp_free(items);
    esp_free(rest);
    *ret_trie = trie;
    return ESP_OK;
fail:
    esp_free(items);
    esp_free(rest);
    esp_trie_destroy(trie);
    return status;
}

static void free_tree(struct esp_tree *tree)
{
    esp_free(tree->nodes);
    esp_free(tree->below);
    esp_free(tree->order);
}

void esp_trie_destroy(struct esp_trie *trie)
{
    if (trie == NULL) {
        return;
    }
    free_tree(&trie->all);
    free_tree(&trie->rest);
    free_tree(&trie->longs);
    esp_slices_destroy(trie->classes);
    esp_free(trie->slices);
    esp_free(trie->ends);
    esp_free(trie->roles);
    esp_free(trie->token_at);
    esp_free(trie->bytes);
    esp_free(trie);
}

uint32_t esp_trie_n_tokens(const struct esp_trie *trie)
{
    return trie->n_tokens;
}

uint32_t esp_trie_find(const struct esp_trie *trie, const char *bytes, size_t n_bytes)
{
    uint32_t found = UINT32_MAX;
    for (uint32_t id = 0; id < trie->n_tokens && n_bytes > 0; id++) {
        uint32_t n;
        const uint8_t *own = esp_trie_token(trie, id, &n);
        if (n != n_bytes || memcmp(own, bytes, n) != 0) {
            continue;
        }
        if (trie->roles[id] != ESP_ROLE_TEXT) {
            return id;
        }
        found = found == UINT32_MAX ? id : found;
    }
    return found;
}
