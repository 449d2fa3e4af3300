/* Random numbers without hidden state.
 *
 * esp_rng_at is counter-based: the value depends on (seed, counter) alone, so a resumed request
 * draws what it would have drawn. esp_rng_next is the usual stream for tests and generators.
 * Mixing function: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
 */
#ifndef ESP_BASE_RNG_H
#define ESP_BASE_RNG_H

#include <stdint.h>

static inline uint64_t esp_rng_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t esp_rng_at(uint64_t seed, uint64_t counter)
{
    return esp_rng_mix(esp_rng_mix(seed + 0x9e3779b97f4a7c15u) ^ (counter * 0xd1342543de82ef95u + 1));
}

/* Uniform in [0, 1) with 53 bits. */
static inline double esp_rng_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1.0p-53;
}

struct esp_rng {
    uint64_t state;
};

static inline uint64_t esp_rng_next(struct esp_rng *rng)
{
    rng->state += 0x9e3779b97f4a7c15u;
    return esp_rng_mix(rng->state);
}

/* Uniform in [0, n); n > 0. The bias is below 2^-32 for n < 2^32. */
static inline uint64_t esp_rng_below(struct esp_rng *rng, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)esp_rng_next(rng) * n) >> 64);
}

#endif
