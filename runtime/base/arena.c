/* Chunked bump allocation. Chunks double up to 1 MiB; a larger request gets a chunk of its own. */
#include "runtime/base/arena.h"

#include <stdint.h>
#include <string.h>

#define CHUNK_BYTES_MIN 4096
#define CHUNK_BYTES_MAX (1024 * 1024)

struct esp_arena_chunk {
    struct esp_arena_chunk *next;
    size_t used, cap;
    size_t pad;
};

void esp_arena_init(struct esp_arena *arena, enum esp_tag tag, size_t cap_bytes)
{
    *arena = (struct esp_arena){.tag = tag, .cap_bytes = cap_bytes};
}

void esp_arena_finish(struct esp_arena *arena)
{
    struct esp_arena_chunk *chunk = arena->head;
    while (chunk != NULL) {
        struct esp_arena_chunk *next = chunk->next;
        esp_free(chunk);
        chunk = next;
    }
    arena->head = NULL;
    arena->used_bytes = 0;
}

void *esp_arena_alloc(struct esp_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > arena->cap_bytes) {
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > arena->cap_bytes - arena->used_bytes) {
        return NULL;
    }
    struct esp_arena_chunk *chunk = arena->head;
    if (chunk == NULL || bytes > chunk->cap - chunk->used) {
        size_t cap = chunk == NULL ? CHUNK_BYTES_MIN : chunk->cap * 2;
        if (cap > CHUNK_BYTES_MAX) {
            cap = CHUNK_BYTES_MAX;
        }
        if (cap < bytes) {
            cap = bytes;
        }
        chunk = esp_calloc(arena->tag, 1, sizeof *chunk + cap);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = arena->head;
        chunk->cap = cap;
        arena->head = chunk;
    }
    void *ptr = (char *)(chunk + 1) + chunk->used;
    chunk->used += bytes;
    arena->used_bytes += bytes;
    return ptr;
}

char *esp_arena_strndup(struct esp_arena *arena, const char *text, size_t n_bytes)
{
    char *copy = esp_arena_alloc(arena, n_bytes + 1, 1);
    if (copy != NULL && n_bytes > 0) {
        memcpy(copy, text, n_bytes);
    }
    return copy;
}
