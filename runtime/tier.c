/* The page file's thread. See tier.h. */
#include "runtime/tier.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/cond.h"

#define SAVE_BYTES ((size_t)4 << 20)
#define READ_BYTES ((size_t)6 << 20) /* little enough to stay in a cache between the two copies */
#define BUFFERS_MAX 64
#define SYNC_NS ((int64_t)1000000000)

enum phase { IDLE, ASKED, ENDED, ABANDONED };

struct request { /* a path of its own, with where the file is on it */
    unsigned char ns[ESP_PAGEFILE_NS_BYTES_MAX];
    size_t ns_bytes;
    uint32_t *tokens; /* [n_pages_max × 16] */
    uint32_t n_pages, from, n_done;
    struct esp_pagefile_at at; /* the last page that was read or written, or the one before `from` */
};

struct esp_tier {
    struct esp_tier_config config;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool running, closing, ready;
    _Atomic uint64_t n_stored;

    uint32_t n_save_buffers, n_read_buffers;
    unsigned char *save_pages, *read_pages; /* [n_…_buffers × page_bytes] */
    struct request save, read;
    bool saving;
    uint32_t n_saves;
    enum esp_evict_class save_class;
    enum phase phase; /* of the read */
    uint32_t n_ready, n_taken;
};

static uint32_t n_buffers(size_t n_bytes, uint32_t page_bytes)
{
    size_t n = n_bytes / page_bytes;
    return n < 2 ? 2 : n > BUFFERS_MAX ? BUFFERS_MAX : (uint32_t)n;
}

size_t esp_tier_bytes(uint32_t page_bytes, uint32_t n_pages_max)
{
    return sizeof(struct esp_tier) + 2 * (size_t)n_pages_max * ESP_TREE_PAGE_TOKENS * sizeof(uint32_t) +
           ((size_t)n_buffers(SAVE_BYTES, page_bytes) + n_buffers(READ_BYTES, page_bytes)) * page_bytes;
}

static uint64_t now(const struct esp_tier *tier)
{
    return (uint64_t)esp_clock_now(&tier->config.clock);
}

static const uint32_t *page_tokens(const struct request *request, uint32_t idx)
{
    return request->tokens + (size_t)idx * ESP_TREE_PAGE_TOKENS;
}

/* Goes to the page before `from`. */
static bool walk(struct esp_tier *tier, struct request *request, bool makes)
{
    struct esp_pagefile *file = tier->config.file;
    bool found = esp_pagefile_root(file, request->ns, request->ns_bytes, makes, &request->at);
    for (uint32_t idx = 0; idx < request->from && found; idx++) {
        found = esp_pagefile_find(file, &request->at, page_tokens(request, idx), &request->at);
    }
    return found;
}

static void run_saves(struct esp_tier *tier)
{
    struct request *save = &tier->save;
    bool fine = walk(tier, save, true);
    for (uint32_t idx = 0; idx < tier->n_saves && fine; idx++) {
        fine = esp_pagefile_write(tier->config.file, &save->at, page_tokens(save, save->from + idx),
                                  tier->save_pages + (size_t)idx * tier->config.page_bytes, tier->save_class,
                                  now(tier), &save->at);
    }
    atomic_store(&tier->n_stored, esp_pagefile_count(tier->config.file));
}

/* Reads the next page into its buffer; false: there is none. */
static bool read_next(struct esp_tier *tier)
{
    struct request *read = &tier->read;
    uint32_t idx = read->from + read->n_done;
    if (read->n_done == 0 && !walk(tier, read, false)) {
        return false;
    }
    if (idx >= read->n_pages ||
        !esp_pagefile_find(tier->config.file, &read->at, page_tokens(read, idx), &read->at)) {
        return false;
    }
    unsigned char *buffer = tier->read_pages + (size_t)(read->n_done % tier->n_read_buffers) * tier->config.page_bytes;
    read->n_done++;
    return esp_pagefile_read(tier->config.file, &read->at, now(tier), buffer);
}

/* With the lock held; gives it up while the file is read. */
static void run_read(struct esp_tier *tier)
{
    uint32_t wake_every = (tier->n_read_buffers + 3) / 4;
    while (tier->phase == ASKED && !tier->closing) {
        if (tier->n_ready - tier->n_taken == tier->n_read_buffers) {
            pthread_cond_wait(&tier->work, &tier->lock);
            continue;
        }
        pthread_mutex_unlock(&tier->lock);
        bool got = read_next(tier);
        pthread_mutex_lock(&tier->lock);
        tier->n_ready += got;
        if (!got && tier->phase == ASKED) {
            tier->phase = ENDED;
        }
        /* Not for every page: a step of the engine costs more than a copy. */
        if (tier->phase != ASKED || (tier->n_ready - tier->n_taken) % wake_every == 0) {
            tier->config.wake(tier->config.ctx);
        }
    }
    tier->phase = tier->phase == ABANDONED ? IDLE : tier->phase;
}

static void *run(void *arg)
{
    struct esp_tier *tier = arg;
    bool dirty = false;
    pthread_mutex_lock(&tier->lock);
    while (!tier->closing) {
        if (tier->phase == ASKED || tier->phase == ABANDONED) {
            run_read(tier);
        } else if (tier->saving) {
            pthread_mutex_unlock(&tier->lock);
            run_saves(tier);
            pthread_mutex_lock(&tier->lock);
            tier->saving = false;
            dirty = true;
            tier->config.wake(tier->config.ctx);
        } else if (!esp_cond_wait(&tier->work, &tier->lock, dirty ? esp_cond_until(SYNC_NS) : -1)) {
            pthread_mutex_unlock(&tier->lock);
            esp_pagefile_sync(tier->config.file);
            pthread_mutex_lock(&tier->lock);
            dirty = false;
        }
    }
    pthread_mutex_unlock(&tier->lock);
    esp_pagefile_sync(tier->config.file);
    return NULL;
}

esp_status esp_tier_create(const struct esp_tier_config *config, struct esp_tier **ret_tier, struct esp_err *err)
{
    struct esp_tier *tier = esp_calloc(ESP_TAG_ENGINE, 1, sizeof *tier);
    if (tier == NULL) {
        esp_pagefile_close(config->file);
        return esp_fail(err, ESP_ENOMEM, "no memory for the page file's buffers");
    }
    size_t n_tokens = (size_t)config->n_pages_max * ESP_TREE_PAGE_TOKENS;
    tier->config = *config;
    tier->n_save_buffers = n_buffers(SAVE_BYTES, config->page_bytes);
    tier->n_read_buffers = n_buffers(READ_BYTES, config->page_bytes);
    tier->save_pages = esp_calloc(ESP_TAG_ENGINE, tier->n_save_buffers, config->page_bytes);
    tier->read_pages = esp_calloc(ESP_TAG_ENGINE, tier->n_read_buffers, config->page_bytes);
    tier->save.tokens = esp_calloc(ESP_TAG_ENGINE, n_tokens, sizeof(uint32_t));
    tier->read.tokens = esp_calloc(ESP_TAG_ENGINE, n_tokens, sizeof(uint32_t));
    if (tier->read_pages != NULL) { /* the first restored prompt shall not wait for memory */
        memset(tier->read_pages, 0, (size_t)tier->n_read_buffers * config->page_bytes);
    }
    pthread_mutex_init(&tier->lock, NULL);
    esp_cond_init(&tier->work);
    atomic_store(&tier->n_stored, esp_pagefile_count(config->file));
    bool fine = tier->save_pages != NULL && tier->read_pages != NULL && tier->save.tokens != NULL &&
                tier->read.tokens != NULL;
    if (fine && config->threaded) {
        fine = tier->running = pthread_create(&tier->thread, NULL, run, tier) == 0;
    }
    if (!fine) {
        esp_tier_destroy(tier);
        return esp_fail(err, ESP_ENOMEM, "no memory for the page file's buffers or thread");
    }
    *ret_tier = tier;
    return ESP_OK;
}

void esp_tier_destroy(struct esp_tier *tier)
{
    if (tier == NULL) {
        return;
    }
    if (tier->running) {
        pthread_mutex_lock(&tier->lock);
        tier->closing = true;
        pthread_cond_signal(&tier->work);
        pthread_mutex_unlock(&tier->lock);
        pthread_join(tier->thread, NULL);
    }
    pthread_cond_destroy(&tier->work);
    pthread_mutex_destroy(&tier->lock);
    esp_pagefile_close(tier->config.file);
    esp_free(tier->read.tokens);
    esp_free(tier->save.tokens);
    esp_free(tier->read_pages);
    esp_free(tier->save_pages);
    esp_free(tier);
}

uint64_t esp_tier_n_stored(const struct esp_tier *tier)
{
    return atomic_load(&tier->n_stored);
}

static void copy_path(struct request *request, const struct esp_tier_path *path, uint32_t from)
{
    memcpy(request->ns, path->ns, path->ns_bytes);
    memcpy(request->tokens, path->tokens, (size_t)path->n_pages * ESP_TREE_PAGE_TOKENS * sizeof(uint32_t));
    request->ns_bytes = path->ns_bytes;
    request->n_pages = path->n_pages;
    request->from = from;
    request->n_done = 0;
}

static bool fits(const struct esp_tier *tier, const struct esp_tier_path *path)
{
    return path->ns_bytes <= ESP_PAGEFILE_NS_BYTES_MAX && path->n_pages <= tier->config.n_pages_max;
}

uint32_t esp_tier_room(struct esp_tier *tier)
{
    pthread_mutex_lock(&tier->lock);
    bool saving = tier->saving;
    pthread_mutex_unlock(&tier->lock);
    return saving || !esp_pagefile_writes(tier->config.file) ? 0 : tier->n_save_buffers;
}

void *esp_tier_stage(struct esp_tier *tier, uint32_t idx)
{
    assert(idx < tier->n_save_buffers);
    return tier->save_pages + (size_t)idx * tier->config.page_bytes;
}

void esp_tier_save(struct esp_tier *tier, const struct esp_tier_path *path, uint32_t from, uint32_t n,
                   enum esp_evict_class class)
{
    if (!fits(tier, path)) {
        return;
    }
    copy_path(&tier->save, path, from); /* not saving: the thread does not look at it */
    tier->n_saves = n;
    tier->save_class = class;
    if (!tier->config.threaded) {
        run_saves(tier);
        return;
    }
    pthread_mutex_lock(&tier->lock);
    tier->saving = true;
    pthread_cond_signal(&tier->work);
    pthread_mutex_unlock(&tier->lock);
}

bool esp_tier_ask(struct esp_tier *tier, const struct esp_tier_path *path, uint32_t from)
{
    pthread_mutex_lock(&tier->lock);
    bool may = tier->phase == IDLE && fits(tier, path);
    if (may) {
        copy_path(&tier->read, path, from);
        tier->n_ready = tier->n_taken = 0;
        tier->phase = ASKED;
        pthread_cond_signal(&tier->work);
    }
    pthread_mutex_unlock(&tier->lock);
    return may;
}

enum esp_tier_news esp_tier_take(struct esp_tier *tier, const void **ret_page)
{
    enum esp_tier_news news = ESP_TIER_WAIT;
    pthread_mutex_lock(&tier->lock);
    if (!tier->config.threaded && tier->n_ready == tier->n_taken) {
        bool got = read_next(tier);
        tier->n_ready += got;
        tier->phase = got ? ASKED : ENDED;
    }
    if (tier->n_ready > tier->n_taken) {
        *ret_page = tier->read_pages + (size_t)(tier->n_taken % tier->n_read_buffers) * tier->config.page_bytes;
        news = ESP_TIER_PAGE;
    } else if (tier->phase == ENDED) {
        tier->phase = IDLE;
        news = ESP_TIER_END;
    }
    pthread_mutex_unlock(&tier->lock);
    return news;
}

void esp_tier_taken(struct esp_tier *tier)
{
    pthread_mutex_lock(&tier->lock);
    tier->n_taken++;
    pthread_cond_signal(&tier->work);
    pthread_mutex_unlock(&tier->lock);
}

void esp_tier_abandon(struct esp_tier *tier)
{
    pthread_mutex_lock(&tier->lock);
    bool over = tier->phase == ENDED || !tier->config.threaded;
    tier->phase = over ? IDLE : ABANDONED;
    pthread_cond_signal(&tier->work);
    pthread_mutex_unlock(&tier->lock);
}
