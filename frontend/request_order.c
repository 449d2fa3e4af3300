/* When a request is served: whose it is, its priority among those of the same tenant, and its deadline.
 *
 * Without API keys the tenant is what the request calls itself: `user`, else `safety_identifier`, else
 * `prompt_cache_key`; requests that give none share one tenant. Thread: the owner's.
 */
#include <string.h>

#include "frontend/request.h"
#include "runtime/base/json.h"

#define PRIORITY_MAX 100
#define TIMEOUT_S_MAX 86400.0
#define TIMEOUT_S_MIN 0.001

static esp_status parse_tenant(const struct esp_request_source *source, struct esp_arena *arena,
                               struct esp_params *params, struct esp_err *err)
{
    static const char *const names[] = {"user", "safety_identifier", "prompt_cache_key"};
    esp_status status = ESP_OK;
    for (size_t idx = 0; idx < sizeof names / sizeof names[0] && status == ESP_OK; idx++) {
        const char *name = NULL;
        status = esp_json_string(source->json, names[idx], &name, err);
        if (status != ESP_OK || name == NULL || name[0] == '\0' || params->tenant != NULL) {
            continue;
        }
        params->tenant_bytes = json_string_length(json_object_get(source->json, names[idx]));
        params->tenant = esp_arena_strndup(arena, name, params->tenant_bytes);
        status = params->tenant == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
    }
    return status;
}

esp_status esp_request_order(const struct esp_request_source *source, struct esp_arena *arena,
                             struct esp_params *params, struct esp_err *err)
{
    int64_t priority = 0;
    double timeout_s = 0;
    esp_status status = parse_tenant(source, arena, params, err);
    if (status == ESP_OK) {
        status = esp_json_int(source->json, "priority", -PRIORITY_MAX, PRIORITY_MAX, 0, &priority, err);
    }
    const json_t *timeout = json_object_get(source->json, "timeout");
    if (status == ESP_OK && timeout != NULL && !json_is_null(timeout)) {
        status = esp_json_number(source->json, "timeout", TIMEOUT_S_MIN, TIMEOUT_S_MAX, 0, &timeout_s, err);
    }
    params->priority = (int)priority;
    params->timeout_ns = (int64_t)(timeout_s * 1e9);
    return status;
}
