/* See keep.h. */
#include "runtime/keep.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "runtime/base/alloc.h"
#include "runtime/lease.h"

size_t esp_keep_bytes(uint32_t page_bytes, uint32_t n_pages_max)
{
    return esp_tier_bytes(page_bytes, n_pages_max) +
           n_pages_max * (sizeof(struct esp_page_id) + ESP_TREE_PAGE_TOKENS * sizeof(uint32_t));
}

esp_status esp_keep_init(struct esp_keep *store, const struct esp_keep *parts, struct esp_err *err)
{
    *store = *parts;
    if (store->tier == NULL) {
        return ESP_OK;
    }
    size_t n_tokens = (size_t)parts->n_pages_max * ESP_TREE_PAGE_TOKENS;
    store->pages = esp_calloc(ESP_TAG_ENGINE, parts->n_pages_max, sizeof *store->pages);
    store->tokens = esp_calloc(ESP_TAG_ENGINE, n_tokens, sizeof *store->tokens);
    if (store->pages == NULL || store->tokens == NULL) {
        esp_keep_finish(store);
        return esp_fail(err, ESP_ENOMEM, "no memory for paths of %u pages", parts->n_pages_max);
    }
    return ESP_OK;
}

void esp_keep_finish(struct esp_keep *store)
{
    esp_tier_destroy(store->tier);
    esp_free(store->pages);
    esp_free(store->tokens);
    memset(store, 0, sizeof *store);
}

/* ---- Saving ------------------------------------------------------------------------------------ */

void esp_keep_add(struct esp_keep *store, struct esp_node_id node, enum esp_evict_class class)
{
    if (store->tier != NULL && node.v != ESP_NODE_NONE.v && store->n_queued < ESP_KEEP_QUEUE) {
        uint32_t at = (store->first + store->n_queued++) % ESP_KEEP_QUEUE;
        store->queue[at] = (struct esp_keep_path){node, class};
    }
}

/* Copies pages into the batch; returns how many. */
static uint32_t stage(struct esp_keep *store, uint32_t from, uint32_t n)
{
    for (uint32_t idx = 0; idx < n; idx++) {
        const char *page = store->kv + (size_t)store->pages[from + idx].v * store->page_bytes;
        if (store->ops->download(store->dev, esp_tier_stage(store->tier, idx), page, store->page_bytes) != ESP_OK) {
            return idx;
        }
    }
    return store->ops->wait(store->dev) == ESP_OK ? n : 0;
}

/* The next pages of a path; false: there are none left. */
static bool send(struct esp_keep *store, const struct esp_keep_path *queued, uint32_t room)
{
    struct esp_tier_path path = {.tokens = store->tokens};
    path.n_pages = esp_tree_path(store->tree, queued->node, store->n_pages_max, store->pages, store->tokens);
    path.ns = esp_tree_node_space(store->tree, queued->node, &path.ns_bytes);
    uint32_t from = 0;
    while (from < path.n_pages && esp_tree_is_saved(store->tree, store->pages[from])) {
        from++;
    }
    uint32_t left = path.n_pages - from;
    uint32_t n = stage(store, from, left < room ? left : room);
    if (n == 0) {
        return false;
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        esp_tree_set_saved(store->tree, store->pages[from + idx]);
    }
    store->n_saved += n;
    esp_tier_save(store->tier, &path, from, n, queued->class);
    return true;
}

bool esp_keep_save(struct esp_keep *store)
{
    if (store->tier == NULL || store->n_queued == 0) {
        return false;
    }
    uint32_t room = esp_tier_room(store->tier);
    while (store->n_queued > 0 && room > 0) {
        const struct esp_keep_path *queued = &store->queue[store->first];
        if (esp_tree_node_alive(store->tree, queued->node) && send(store, queued, room)) {
            store->moved = true;
            break;
        }
        store->first = (store->first + 1) % ESP_KEEP_QUEUE;
        store->n_queued--;
    }
    return store->n_queued > 0;
}

void esp_keep_drain(struct esp_keep *store, int64_t max_ns)
{
    struct esp_clock clock = esp_clock_monotonic();
    int64_t from_ns = esp_clock_now(&clock);
    while (esp_keep_save(store) && esp_clock_now(&clock) - from_ns < max_ns) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* ---- Restoring --------------------------------------------------------------------------------- */

/* The page enters the tree below what the sequence has. */
static bool place(struct esp_keep *store, const struct esp_lease_ctx *lease, struct esp_seq *seq, const void *page)
{
    uint32_t n_node = seq->n_node, n_tokens = (n_node + 1) * ESP_TREE_PAGE_TOKENS;
    if (esp_lease_reserve(lease, seq, n_node + 1) != ESP_OK) {
        return false;
    }
    char *to = store->kv + (size_t)seq->pages[n_node].v * store->page_bytes;
    if (store->ops->upload(store->dev, to, page, store->page_bytes) != ESP_OK ||
        store->ops->wait(store->dev) != ESP_OK) {
        return false;
    }
    seq->n_computed = seq->n_computed < n_tokens ? n_tokens : seq->n_computed;
    esp_lease_enter(lease, seq);
    if (seq->n_node == n_node) {
        return false;
    }
    esp_tree_set_saved(store->tree, seq->pages[n_node]);
    store->n_restored++;
    return true;
}

static void give_up(struct esp_keep *store)
{
    esp_tier_abandon(store->tier);
    store->reader = NULL;
}

int64_t esp_keep_until_ns(const struct esp_keep *store)
{
    if (store->reader == NULL) {
        return INT64_MAX;
    }
    int64_t wait_ns = ESP_KEEP_WAIT_NS + (int64_t)(store->n_wanted - store->next) * ESP_KEEP_PAGE_NS;
    return store->since_ns + (wait_ns < ESP_KEEP_WAIT_MAX_NS ? wait_ns : ESP_KEEP_WAIT_MAX_NS);
}

/* Takes what has come for the reader; true: more may come. */
static bool drain(struct esp_keep *store, const struct esp_lease_ctx *lease, int64_t now_ns)
{
    struct esp_seq *seq = store->reader;
    for (uint32_t n = 0; n < ESP_KEEP_STEP_PAGES; n++) {
        const void *page;
        enum esp_tier_news news = esp_tier_take(store->tier, &page);
        if (news == ESP_TIER_END) {
            store->reader = NULL;
            return false;
        }
        if (news == ESP_TIER_WAIT) {
            if (now_ns < esp_keep_until_ns(store)) {
                return true;
            }
            store->slow_until_ns = now_ns + ESP_KEEP_SLOW_NS;
            store->n_slow++;
            give_up(store);
            return false;
        }
        /* What a twin has brought meanwhile is not needed again. */
        bool placed = store->next < seq->n_node || (store->next == seq->n_node && place(store, lease, seq, page));
        esp_tier_taken(store->tier);
        store->next++;
        store->since_ns = now_ns;
        store->moved = true;
        if (!placed) {
            give_up(store);
            return false;
        }
    }
    return true;
}

bool esp_keep_holds(struct esp_keep *store, const struct esp_lease_ctx *lease, struct esp_seq *seq, int64_t now_ns)
{
    uint32_t n_pages = (seq->n_tokens - 1) / ESP_TREE_PAGE_TOKENS;
    if (store->tier == NULL) {
        return false;
    }
    if (seq == store->reader) {
        return drain(store, lease, now_ns);
    }
    if (seq->asked || lease->off || seq->job->no_share || n_pages < seq->n_node + ESP_KEEP_ASK_PAGES ||
        now_ns < store->slow_until_ns) {
        return false;
    }
    if (store->reader != NULL) {
        return true; /* its turn comes, or the pages do */
    }
    struct esp_tier_path path = {.tokens = seq->tokens, .n_pages = n_pages};
    path.ns = esp_tree_space(store->tree, seq->job->ns, &path.ns_bytes);
    seq->asked = true;
    if (path.ns == NULL || !esp_tier_ask(store->tier, &path, seq->n_node)) {
        return false;
    }
    store->reader = seq;
    store->next = seq->n_node;
    store->n_wanted = n_pages;
    store->since_ns = now_ns;
    return drain(store, lease, now_ns);
}

void esp_keep_forget(struct esp_keep *store, struct esp_seq *seq)
{
    if (store != NULL && store->reader == seq && store->tier != NULL) {
        give_up(store);
    }
    seq->asked = false;
}
