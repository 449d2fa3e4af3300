/* The system's monotonic clock. */
#include "runtime/base/clock.h"

#include <stddef.h>
#include <time.h>

static int64_t monotonic_ns(void *ctx)
{
    (void)ctx;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct esp_clock esp_clock_monotonic(void)
{
    return (struct esp_clock){.now_ns = monotonic_ns, .ctx = NULL};
}

static int64_t wall(void *ctx)
{
    struct timespec now;
    (void)ctx;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct esp_clock esp_clock_wall(void)
{
    return (struct esp_clock){wall, NULL};
}
