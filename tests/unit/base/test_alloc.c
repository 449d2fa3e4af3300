/* Allocation: counters, the fault point, arenas and buffers with caps. */
#include "runtime/base/alloc.h"
#include "runtime/base/arena.h"
#include "runtime/base/buf.h"
#include "tests/esptest.h"

static void test_counters(void)
{
    size_t before = esp_alloc_bytes(ESP_TAG_MISC);
    char *a = esp_malloc(ESP_TAG_MISC, 100);
    a = esp_realloc(ESP_TAG_TREE, a, 300);
    CHECK(esp_alloc_bytes(ESP_TAG_MISC) == before, "moved to another tag");
    CHECK(esp_alloc_bytes(ESP_TAG_TREE) >= 300, "counted");
    esp_free(a);
    esp_free(NULL);
    CHECK(esp_calloc(ESP_TAG_MISC, SIZE_MAX / 2, 4) == NULL, "overflow is refused");
}

static void test_fault_point(void)
{
    esp_alloc_fail_at(2);
    void *first = esp_malloc(ESP_TAG_MISC, 1);
    void *second = esp_malloc(ESP_TAG_MISC, 1);
    void *third = esp_malloc(ESP_TAG_MISC, 1);
    CHECK(first != NULL && second == NULL && third != NULL, "only the second fails");
    CHECK(esp_alloc_fail_at(0), "it fired");
    CHECK(!esp_alloc_fail_at(0), "and is disarmed");
    esp_free(first);
    esp_free(third);
}

static void test_arena_cap(void)
{
    struct esp_arena arena;
    esp_arena_init(&arena, ESP_TAG_MISC, 10000);
    size_t got = 0;
    while (esp_arena_alloc(&arena, 3, 33) != NULL) {
        got++;
    }
    CHECK(got == 10000 / 112, "%zu blocks of 112 bytes", got);
    CHECK(esp_arena_alloc(&arena, SIZE_MAX, 16) == NULL, "overflow");
    esp_arena_finish(&arena);
    CHECK(esp_arena_strndup(&arena, "abc", 2) != NULL, "usable again");
    esp_arena_finish(&arena);
}

static void test_buf_cap(void)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_MISC, 10);
    CHECK(esp_buf_str(&buf, "12345") && esp_buf_printf(&buf, "%d", 67890), "fits");
    CHECK(!esp_buf_char(&buf, 'x') && buf.failed && strcmp(buf.data, "1234567890") == 0, "the cap latches");
    esp_buf_clear(&buf);
    CHECK(esp_buf_char(&buf, 'x') && buf.n == 1, "clear unlatches");
    esp_buf_finish(&buf);
}

ESP_TEST_MAIN(T(test_counters), T(test_fault_point), T(test_arena_cap), T(test_buf_cap))
