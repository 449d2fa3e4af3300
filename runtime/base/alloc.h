/* The only door to the heap: tagged, counted, and able to fail on purpose.
 *
 * Every block carries its size and tag in a 16-byte header, so the totals per tag are exact and a
 * test can assert that a decode step allocates nothing (esp_alloc_calls does not move). The fault
 * point makes the Nth allocation from now fail, for tests that walk through every failure.
 * Thread: any; counters are atomic.
 */
#ifndef ESP_BASE_ALLOC_H
#define ESP_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum esp_tag {
    ESP_TAG_MISC,
    ESP_TAG_WEIGHTS,
    ESP_TAG_KV,
    ESP_TAG_ACTIVATIONS,
    ESP_TAG_TREE,
    ESP_TAG_GRAMMAR,
    ESP_TAG_VOCAB,
    ESP_TAG_ENGINE,
    ESP_TAG_HTTP,
    ESP_TAG_COUNT
};

/* Zero-filled; NULL on failure or when n × size overflows. n × size == 0 gives a valid block. */
void *esp_calloc(enum esp_tag tag, size_t n, size_t size);
/* Contents undefined. */
void *esp_malloc(enum esp_tag tag, size_t bytes);
/* As realloc; ptr may be NULL. On failure the old block stays valid. */
void *esp_realloc(enum esp_tag tag, void *ptr, size_t bytes);
void esp_free(void *ptr); /* NULL is fine */
char *esp_strndup(enum esp_tag tag, const char *text, size_t n_bytes); /* adds a NUL */

/* Page-aligned, zero-filled, huge pages advised: for weights and KV. Counted under tag. */
void *esp_pages_map(enum esp_tag tag, size_t bytes);
void esp_pages_unmap(enum esp_tag tag, void *ptr, size_t bytes); /* NULL is fine */

size_t esp_alloc_bytes(enum esp_tag tag); /* live bytes */
uint64_t esp_alloc_calls(void);           /* allocations so far, all tags */
uint64_t esp_alloc_live(void);            /* blocks not yet freed */

/* The n-th allocation from now fails (1 = the next one), once; 0 disarms. Returns whether the
 * previous setting had fired. */
bool esp_alloc_fail_at(uint64_t n);

#endif
