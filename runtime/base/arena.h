/* Bump allocator with a cap: one per request or per grammar compile, freed in one line.
 *
 *   chunk ──► chunk ──► chunk        Memory is zero-filled and 16-byte aligned. Nothing in an
 *   [used|free]                      arena is freed alone. At the cap allocation returns NULL.
 *
 * Thread: the owner's.
 */
#ifndef ESP_BASE_ARENA_H
#define ESP_BASE_ARENA_H

#include <stddef.h>

#include "runtime/base/alloc.h"

struct esp_arena {
    struct esp_arena_chunk *head;
    enum esp_tag tag;
    size_t used_bytes; /* handed out, rounded up */
    size_t cap_bytes;
};

void esp_arena_init(struct esp_arena *arena, enum esp_tag tag, size_t cap_bytes);
void esp_arena_finish(struct esp_arena *arena); /* zeroed is fine */
/* NULL at the cap, on overflow of n × size, or out of memory. */
void *esp_arena_alloc(struct esp_arena *arena, size_t n, size_t size);
char *esp_arena_strndup(struct esp_arena *arena, const char *text, size_t n_bytes); /* adds a NUL */

#endif
