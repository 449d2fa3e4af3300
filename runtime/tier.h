/* The page file's thread: pages go to the disk and come back without the engine waiting for either.
 *
 *   engine ──stage, save──► [ save buffers ] ──► thread ──► page file
 *   engine ◄──take───────── [ read buffers ] ◄── thread ◄── page file
 *
 * One batch of saves and one read are under way at a time; the read goes first. The engine copies pages into the
 * buffers and out of them, so nothing that the thread touches can be evicted, and a page that the thread is stuck
 * with belongs to nobody else. Every fault is a shorter read or a page that is not saved.
 * Thread: the functions are the engine's; `wake` is called from the file's thread. Without a thread (simulator) the
 * work is done inside save and take.
 */
#ifndef ESP_RUNTIME_TIER_H
#define ESP_RUNTIME_TIER_H

#include "radix/pagefile.h"
#include "runtime/base/clock.h"

struct esp_tier;

struct esp_tier_config {
    struct esp_pagefile *file; /* taken, also on failure */
    uint32_t page_bytes, n_pages_max; /* n_pages_max: of a prompt */
    struct esp_clock clock;           /* for the order of last uses; wall time in production */
    bool threaded;
    void (*wake)(void *ctx); /* something can be taken or saved again */
    void *ctx;
};
size_t esp_tier_bytes(uint32_t page_bytes, uint32_t n_pages_max);
esp_status esp_tier_create(const struct esp_tier_config *config, struct esp_tier **ret_tier, struct esp_err *err);
/* Waits for the call to the file that runs now. NULL is fine. */
void esp_tier_destroy(struct esp_tier *tier);
uint64_t esp_tier_n_stored(const struct esp_tier *tier); /* pages and namespaces in the file; any thread */

/* A prompt's path: the exact bytes of its namespace and its tokens. Borrowed until the call returns. */
struct esp_tier_path {
    const void *ns;
    size_t ns_bytes;
    const uint32_t *tokens;
    uint32_t n_pages;
};

/* How many pages may be staged now; 0: the thread still saves the batch before, or this process may not write. */
uint32_t esp_tier_room(struct esp_tier *tier);
void *esp_tier_stage(struct esp_tier *tier, uint32_t idx); /* the buffer of the idx-th page of the batch */
/* Saves the staged pages: those of the path from page `from` on. */
void esp_tier_save(struct esp_tier *tier, const struct esp_tier_path *path, uint32_t from, uint32_t n,
                   enum esp_evict_class class);

/* Begins to read the pages of the path from page `from` on. False: another read is under way. */
bool esp_tier_ask(struct esp_tier *tier, const struct esp_tier_path *path, uint32_t from);
enum esp_tier_news { ESP_TIER_WAIT, ESP_TIER_PAGE, ESP_TIER_END };
/* The next page, in order; it stays until esp_tier_taken. END: there are no more, and the read is over. */
enum esp_tier_news esp_tier_take(struct esp_tier *tier, const void **ret_page);
void esp_tier_taken(struct esp_tier *tier);
/* Nobody will take the rest. Until the thread has noticed, the next ask is refused. */
void esp_tier_abandon(struct esp_tier *tier);

#endif
