/* Two open-addressing hash maps (XXH3, linear probing, no deletion except by clearing).
 *
 *   esp_map       u64 key   → u32 value
 *   esp_bytesmap  bytes key → u32 value; keys are borrowed and must outlive the map
 *
 * Growth doubles at 3/4 load. ESP_MAP_NONE is returned for an absent key and may not be stored.
 * Thread: the owner's; lookups alone are safe from many threads.
 */
#ifndef ESP_BASE_MAP_H
#define ESP_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

#define ESP_MAP_NONE UINT32_MAX

struct esp_map {
    uint64_t *keys;
    uint32_t *values; /* ESP_MAP_NONE = empty cell */
    size_t n, room;   /* room is 0 or a power of two */
    enum esp_tag tag;
};

void esp_map_init(struct esp_map *map, enum esp_tag tag);
void esp_map_finish(struct esp_map *map); /* zeroed is fine */
esp_status esp_map_reserve(struct esp_map *map, size_t n);
esp_status esp_map_put(struct esp_map *map, uint64_t key, uint32_t value); /* replaces */
uint32_t esp_map_get(const struct esp_map *map, uint64_t key);

struct esp_bytesmap {
    struct esp_bytesmap_cell *cells;
    size_t n, room;
    enum esp_tag tag;
};

void esp_bytesmap_init(struct esp_bytesmap *map, enum esp_tag tag);
void esp_bytesmap_finish(struct esp_bytesmap *map);
esp_status esp_bytesmap_reserve(struct esp_bytesmap *map, size_t n);
/* Replaces the value of an equal key, keeping the older key's memory. */
esp_status esp_bytesmap_put(struct esp_bytesmap *map, const void *key, size_t n_bytes, uint32_t value);
uint32_t esp_bytesmap_get(const struct esp_bytesmap *map, const void *key, size_t n_bytes);

#endif
