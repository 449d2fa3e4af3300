/* Hash maps over XXH3-64. */
#include "runtime/base/map.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct esp_bytesmap_cell {
    const void *key;
    size_t n_bytes;
    uint32_t hash_high; /* spares most comparisons */
    uint32_t value;     /* ESP_MAP_NONE = empty cell */
};

void esp_map_init(struct esp_map *map, enum esp_tag tag)
{
    *map = (struct esp_map){.tag = tag};
}

void esp_map_finish(struct esp_map *map)
{
    esp_free(map->keys);
    esp_free(map->values);
    map->keys = NULL;
    map->values = NULL;
    map->n = map->room = 0;
}

static size_t map_cell(const struct esp_map *map, uint64_t key)
{
    size_t mask = map->room - 1;
    size_t at = (size_t)XXH3_64bits(&key, sizeof key) & mask;
    while (map->values[at] != ESP_MAP_NONE && map->keys[at] != key) {
        at = (at + 1) & mask;
    }
    return at;
}

static size_t room_for(size_t n)
{
    size_t room = 16;
    while (room / 4 * 3 < n) {
        room *= 2;
    }
    return room;
}

static bool map_rehash(struct esp_map *map, size_t room)
{
    struct esp_map next = {.n = map->n, .room = room, .tag = map->tag};
    next.keys = esp_malloc(map->tag, room * sizeof *next.keys);
    next.values = esp_malloc(map->tag, room * sizeof *next.values);
    if (next.keys == NULL || next.values == NULL) {
        esp_map_finish(&next);
        return false;
    }
    memset(next.values, 0xff, room * sizeof *next.values);
    for (size_t idx = 0; idx < map->room; idx++) {
        if (map->values[idx] != ESP_MAP_NONE) {
            size_t at = map_cell(&next, map->keys[idx]);
            next.keys[at] = map->keys[idx];
            next.values[at] = map->values[idx];
        }
    }
    esp_map_finish(map);
    *map = next;
    return true;
}

esp_status esp_map_reserve(struct esp_map *map, size_t n)
{
    if (n > SIZE_MAX / 64) {
        return ESP_ENOMEM;
    }
    size_t room = room_for(n);
    return room <= map->room || map_rehash(map, room) ? ESP_OK : ESP_ENOMEM;
}

esp_status esp_map_put(struct esp_map *map, uint64_t key, uint32_t value)
{
    assert(value != ESP_MAP_NONE);
    if (esp_map_reserve(map, map->n + 1) != ESP_OK) {
        return ESP_ENOMEM;
    }
    size_t at = map_cell(map, key);
    map->n += map->values[at] == ESP_MAP_NONE;
    map->keys[at] = key;
    map->values[at] = value;
    return ESP_OK;
}

uint32_t esp_map_get(const struct esp_map *map, uint64_t key)
{
    return map->room == 0 ? ESP_MAP_NONE : map->values[map_cell(map, key)];
}

void esp_bytesmap_init(struct esp_bytesmap *map, enum esp_tag tag)
{
    *map = (struct esp_bytesmap){.tag = tag};
}

void esp_bytesmap_finish(struct esp_bytesmap *map)
{
    esp_free(map->cells);
    map->cells = NULL;
    map->n = map->room = 0;
}

static struct esp_bytesmap_cell *bytes_cell(const struct esp_bytesmap *map, const void *key, size_t n_bytes,
                                            uint64_t hash)
{
    size_t mask = map->room - 1;
    for (size_t at = (size_t)hash & mask;; at = (at + 1) & mask) {
        struct esp_bytesmap_cell *cell = &map->cells[at];
        if (cell->value == ESP_MAP_NONE) {
            return cell;
        }
        if (cell->hash_high == (uint32_t)(hash >> 32) && cell->n_bytes == n_bytes &&
            (n_bytes == 0 || memcmp(cell->key, key, n_bytes) == 0)) {
            return cell;
        }
    }
}

static bool bytes_rehash(struct esp_bytesmap *map, size_t room)
{
    struct esp_bytesmap next = {.n = map->n, .room = room, .tag = map->tag};
    next.cells = esp_malloc(map->tag, room * sizeof *next.cells);
    if (next.cells == NULL) {
        return false;
    }
    memset(next.cells, 0xff, room * sizeof *next.cells);
    for (size_t idx = 0; idx < map->room; idx++) {
        const struct esp_bytesmap_cell *cell = &map->cells[idx];
        if (cell->value != ESP_MAP_NONE) {
            *bytes_cell(&next, cell->key, cell->n_bytes, XXH3_64bits(cell->key, cell->n_bytes)) = *cell;
        }
    }
    esp_bytesmap_finish(map);
    *map = next;
    return true;
}

esp_status esp_bytesmap_reserve(struct esp_bytesmap *map, size_t n)
{
    if (n > SIZE_MAX / 128) {
        return ESP_ENOMEM;
    }
    size_t room = room_for(n);
    return room <= map->room || bytes_rehash(map, room) ? ESP_OK : ESP_ENOMEM;
}

esp_status esp_bytesmap_put(struct esp_bytesmap *map, const void *key, size_t n_bytes, uint32_t value)
{
    assert(value != ESP_MAP_NONE);
    if (esp_bytesmap_reserve(map, map->n + 1) != ESP_OK) {
        return ESP_ENOMEM;
    }
    uint64_t hash = XXH3_64bits(key, n_bytes);
    struct esp_bytesmap_cell *cell = bytes_cell(map, key, n_bytes, hash);
    if (cell->value == ESP_MAP_NONE) {
        map->n++;
        cell->key = key;
        cell->n_bytes = n_bytes;
        cell->hash_high = (uint32_t)(hash >> 32);
    }
    cell->value = value;
    return ESP_OK;
}

uint32_t esp_bytesmap_get(const struct esp_bytesmap *map, const void *key, size_t n_bytes)
{
    if (map->room == 0) {
        return ESP_MAP_NONE;
    }
    return bytes_cell(map, key, n_bytes, XXH3_64bits(key, n_bytes))->value;
}
