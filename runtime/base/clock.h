/* Injected time. Engine code asks a struct esp_clock, so that the simulator can turn the hands. */
#ifndef ESP_BASE_CLOCK_H
#define ESP_BASE_CLOCK_H

#include <stdint.h>

struct esp_clock {
    int64_t (*now_ns)(void *ctx); /* monotonic, nanoseconds from an arbitrary origin */
    void *ctx;
};

struct esp_clock esp_clock_monotonic(void);
struct esp_clock esp_clock_wall(void); /* nanoseconds since 1970; may jump */
static inline int64_t esp_clock_now(const struct esp_clock *clock)
{
    return clock->now_ns(clock->ctx);
}

#endif
