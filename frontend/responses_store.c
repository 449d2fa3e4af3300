/* Stored answers by id: bounded in bytes, the least recently used goes first.
 *
 *   newest ⇄ … ⇄ oldest     one list in order of use; each answer names the one it goes on from
 *
 * An answer that is used makes everything it goes on from used as well, so a conversation stays or goes as a whole.
 * Looking up walks the list: it holds thousands at most. Thread: any, under its own lock.
 */
#include <pthread.h>
#include <string.h>

#include "frontend/responses.h"

#define ENTRIES_MAX 4096u

struct entry {
    struct entry *newer, *older;
    char id[64], previous[64];
    size_t n_input, n_response;
    char texts[]; /* the input, then the response */
};

struct esp_kept {
    pthread_mutex_t lock;
    struct entry *newest, *oldest;
    uint64_t n_bytes;
    uint32_t n_entries;
};

static size_t size_of(const struct entry *entry)
{
    return sizeof *entry + entry->n_input + entry->n_response;
}

struct esp_kept *esp_kept_create(void)
{
    struct esp_kept *store = esp_calloc(ESP_TAG_HTTP, 1, sizeof *store);
    if (store != NULL && pthread_mutex_init(&store->lock, NULL) != 0) {
        esp_free(store);
        return NULL;
    }
    return store;
}

static void unlink_entry(struct esp_kept *store, struct entry *entry)
{
    *(entry->newer != NULL ? &entry->newer->older : &store->newest) = entry->older;
    *(entry->older != NULL ? &entry->older->newer : &store->oldest) = entry->newer;
}

static void link_newest(struct esp_kept *store, struct entry *entry)
{
    entry->newer = NULL;
    entry->older = store->newest;
    *(store->newest != NULL ? &store->newest->newer : &store->oldest) = entry;
    store->newest = entry;
}

static void drop(struct esp_kept *store, struct entry *entry)
{
    unlink_entry(store, entry);
    store->n_bytes -= size_of(entry);
    store->n_entries--;
    esp_free(entry);
}

void esp_kept_destroy(struct esp_kept *store)
{
    if (store == NULL) {
        return;
    }
    while (store->newest != NULL) {
        drop(store, store->newest);
    }
    pthread_mutex_destroy(&store->lock);
    esp_free(store);
}

static struct entry *find(const struct esp_kept *store, const char *id)
{
    struct entry *entry = store->newest;
    while (entry != NULL && strcmp(entry->id, id) != 0) {
        entry = entry->older;
    }
    return entry;
}

/* The entry and what it goes on from become the newest. An id is given once, so the chain has no circle. */
static void touch(struct esp_kept *store, struct entry *entry)
{
    while (entry != NULL) {
        unlink_entry(store, entry);
        link_newest(store, entry);
        entry = entry->previous[0] == '\0' ? NULL : find(store, entry->previous);
    }
}

void esp_kept_put(struct esp_kept *store, const char *id, const char *previous, const struct esp_buf *input,
                   const struct esp_buf *response)
{
    size_t n_bytes = sizeof(struct entry) + input->n + response->n;
    struct entry *entry = n_bytes > ESP_STORE_BYTES_MAX ? NULL : esp_malloc(ESP_TAG_HTTP, n_bytes);
    if (entry == NULL) {
        return;
    }
    *entry = (struct entry){.n_input = input->n, .n_response = response->n};
    snprintf(entry->id, sizeof entry->id, "%s", id);
    snprintf(entry->previous, sizeof entry->previous, "%s", previous);
    memcpy(entry->texts, input->data, input->n);
    memcpy(entry->texts + input->n, response->data, response->n);
    pthread_mutex_lock(&store->lock);
    link_newest(store, entry);
    store->n_bytes += n_bytes;
    store->n_entries++;
    touch(store, entry);
    while (store->n_bytes > ESP_STORE_BYTES_MAX || store->n_entries > ENTRIES_MAX) {
        drop(store, store->oldest);
    }
    pthread_mutex_unlock(&store->lock);
}

void esp_kept_use(struct esp_kept *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    touch(store, find(store, id));
    pthread_mutex_unlock(&store->lock);
}

bool esp_kept_get(struct esp_kept *store, const char *id, char *ret_previous, struct esp_buf *input,
                   struct esp_buf *response)
{
    pthread_mutex_lock(&store->lock);
    struct entry *entry = find(store, id);
    if (entry != NULL) {
        if (ret_previous != NULL) {
            memcpy(ret_previous, entry->previous, sizeof entry->previous);
        }
        if (input != NULL) {
            esp_buf_add(input, entry->texts, entry->n_input);
        }
        if (response != NULL) {
            esp_buf_add(response, entry->texts + entry->n_input, entry->n_response);
        }
    }
    pthread_mutex_unlock(&store->lock);
    return entry != NULL;
}

bool esp_kept_delete(struct esp_kept *store, const char *id)
{
    pthread_mutex_lock(&store->lock);
    struct entry *entry = find(store, id);
    if (entry != NULL) {
        drop(store, entry);
    }
    pthread_mutex_unlock(&store->lock);
    return entry != NULL;
}
