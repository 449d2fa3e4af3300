/* The bounded queue: order, refusal, closing, several threads. */
#include "runtime/base/queue.h"
#include "tests/esptest.h"

enum { PRODUCERS = 3, EACH = 20000 };
static struct esp_queue queue;

static void *produce(void *ctx)
{
    for (uint32_t idx = 0; idx < EACH;) {
        uint64_t item = (uint64_t)(uintptr_t)ctx << 32 | idx;
        idx += esp_queue_push(&queue, &item) == ESP_OK;
    }
    return NULL;
}

static void test_threads(void)
{
    REQUIRE(esp_queue_init(&queue, sizeof(uint64_t), 64) == ESP_OK, "init");
    pthread_t threads[PRODUCERS];
    for (uintptr_t idx = 0; idx < PRODUCERS; idx++) {
        pthread_create(&threads[idx], NULL, produce, (void *)idx);
    }
    uint32_t next[PRODUCERS] = {0};
    for (int got = 0; got < PRODUCERS * EACH; got++) {
        uint64_t item;
        REQUIRE(esp_queue_pop(&queue, -1, &item), "pop");
        CHECK(next[item >> 32]++ == (uint32_t)item, "order per producer");
    }
    for (int idx = 0; idx < PRODUCERS; idx++) {
        pthread_join(threads[idx], NULL);
    }
    uint64_t none;
    CHECK(!esp_queue_pop(&queue, 0, &none), "all taken");
    esp_queue_finish(&queue);
}

static void test_full_and_closed(void)
{
    REQUIRE(esp_queue_init(&queue, 1, 2) == ESP_OK, "init");
    char c = 'a', got = 0;
    CHECK(!esp_queue_pop(&queue, 1000000, &got), "times out when empty");
    CHECK(esp_queue_push(&queue, &c) == ESP_OK && esp_queue_push(&queue, &c) == ESP_OK, "room for two");
    CHECK(esp_queue_push(&queue, &c) == ESP_EBUSY, "full");
    esp_queue_close(&queue);
    CHECK(esp_queue_push(&queue, &c) == ESP_ESTATE, "closed");
    CHECK(esp_queue_pop(&queue, -1, &got) && esp_queue_pop(&queue, -1, &got) && got == 'a', "drains");
    CHECK(!esp_queue_pop(&queue, -1, &got), "and ends");
    esp_queue_finish(&queue);
}

ESP_TEST_MAIN(T(test_threads), T(test_full_and_closed))
