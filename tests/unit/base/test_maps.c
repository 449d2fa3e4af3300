/* Hash maps against a plain array. */
#include "runtime/base/map.h"
#include "tests/esptest.h"

enum { N = 5000 };

static void test_map(void)
{
    struct esp_map map;
    esp_map_init(&map, ESP_TAG_MISC);
    static uint64_t keys[N];
    for (uint32_t idx = 0; idx < N; idx++) {
        keys[idx] = idx % 2 ? esp_rng_next(&esp_test_state.rng) : idx;
        CHECK(esp_map_put(&map, keys[idx], idx) == ESP_OK, "put");
    }
    for (uint32_t idx = 0; idx < N; idx++) {
        CHECK(esp_map_get(&map, keys[idx]) == idx, "key %u", idx);
    }
    CHECK(esp_map_get(&map, UINT64_MAX - 5) == ESP_MAP_NONE && map.n == N, "absent");
    esp_map_finish(&map);
}

static void test_bytesmap(void)
{
    struct esp_bytesmap map;
    esp_bytesmap_init(&map, ESP_TAG_MISC);
    static char keys[N][16];
    for (uint32_t idx = 0; idx < N; idx++) {
        snprintf(keys[idx], sizeof keys[idx], "k%u", idx);
        CHECK(esp_bytesmap_put(&map, keys[idx], strlen(keys[idx]), idx) == ESP_OK, "put");
    }
    CHECK(esp_bytesmap_put(&map, "k7", 2, 70007) == ESP_OK && map.n == N, "replaces");
    CHECK(esp_bytesmap_get(&map, "k7", 2) == 70007 && esp_bytesmap_get(&map, "k7x", 3) == ESP_MAP_NONE, "get");
    CHECK(esp_bytesmap_put(&map, "", 0, 1) == ESP_OK && esp_bytesmap_get(&map, "", 0) == 1, "empty key");
    esp_bytesmap_finish(&map);
}

ESP_TEST_MAIN(T(test_map), T(test_bytesmap))
