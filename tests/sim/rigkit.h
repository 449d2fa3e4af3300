/* What the tests on the rig have in common: a big engine, requests of drawn tokens, and the checks at the end.
 * For test programs: it uses their CHECK.
 */
#ifndef ESP_TESTS_RIGKIT_H
#define ESP_TESTS_RIGKIT_H

#include "tests/esptest.h"
#include "tests/sim/rig.h"

static const struct rig_config rig_big = {.n_pages = 1024, .n_ctx = 4096, .n_batch_max = 64, .prefill_chunk = 512,
                                          .n_queue_max = 1024, .end_token = ESP_TOKEN_NONE};

/* A prompt of n_shared tokens that all have in common, and n_own of its own. */
static inline struct rig_request request_of(uint32_t n_shared, uint32_t n_own, uint64_t own_seed, uint32_t n_max)
{
    struct rig_request request = {.n_prompt = n_shared + n_own, .n_max = n_max, .n = 1, .seed = own_seed,
                                  .end_token = RIG_END_TOKEN};
    for (uint32_t i = 0; i < request.n_prompt; i++) {
        request.prompt[i] = (uint32_t)(esp_rng_at(i < n_shared ? 1 : own_seed + 2, i) % ESP_HASH_VOCAB);
    }
    return request;
}

static inline struct rig_request *must_submit(struct rig *rig, const struct rig_request *request)
{
    esp_status status;
    struct esp_err err = {0};
    struct rig_request *kept = rig_submit(rig, request, &status, &err);
    CHECK(kept != NULL, "submit: %s", err.message);
    return kept;
}

static inline struct esp_metrics metrics_of(struct rig *rig)
{
    struct esp_metrics metrics;
    esp_get_metrics(rig->engine, &metrics);
    return metrics;
}

static inline void drain_and_finish(struct rig *rig)
{
    rig_drain(rig);
    rig_check_idle(rig);
    CHECK(rig->failure[0] == '\0', "%s", rig->failure);
    rig_finish(rig);
}

static inline bool visit_nothing(void *ctx, uint32_t pos, const float *logits)
{
    return true;
}

#endif
