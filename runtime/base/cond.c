/* See cond.h. */
#include "runtime/base/cond.h"

#include <errno.h>
#include <time.h>

#include "runtime/base/clock.h"

#define SECOND_NS 1000000000

void esp_cond_init(pthread_cond_t *ret_cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(ret_cond, &attr);
    pthread_condattr_destroy(&attr);
}

int64_t esp_cond_until(int64_t timeout_ns)
{
    struct esp_clock clock = esp_clock_monotonic();
    int64_t now_ns = esp_clock_now(&clock);
    return timeout_ns < 0 || timeout_ns > INT64_MAX - now_ns ? -1 : now_ns + timeout_ns;
}

bool esp_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ns)
{
    if (until_ns < 0) {
        pthread_cond_wait(cond, lock);
        return true;
    }
    struct timespec until = {until_ns / SECOND_NS, until_ns % SECOND_NS};
    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}
