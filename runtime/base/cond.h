/* Waiting on a condition variable until a moment of the monotonic clock, which no change of the date moves.
 *
 *   int64_t until_ns = esp_cond_until(timeout_ns);
 *   while (nothing came && esp_cond_wait(&cond, &lock, until_ns)) {
 *   }
 *
 * Thread: any that holds the lock; pthread_cond_signal and _broadcast wake as usual.
 */
#ifndef ESP_BASE_COND_H
#define ESP_BASE_COND_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

void esp_cond_init(pthread_cond_t *ret_cond); /* end it with pthread_cond_destroy */
/* The moment timeout_ns from now; negative = never. */
int64_t esp_cond_until(int64_t timeout_ns);
/* Waits once, with the lock held; false when the moment (negative = never) has passed. */
bool esp_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ns);

#endif
