/* Fields of generation requests: ranges, refusals, warnings, constraints.
 *
 * A known field with a value that cannot be honoured is refused with its name; an unknown one goes to the
 * warnings (or is refused with --strict-fields). Strings are copied into the arena. Thread: the owner's.
 */
#ifndef ESP_FRONTEND_REQUEST_H
#define ESP_FRONTEND_REQUEST_H

#include <jansson.h>

#include "frontend/answer.h"
#include "frontend/cache_fields.h"
#include "runtime/base/arena.h"
#include "runtime/base/buf.h"
#include "runtime/espalier.h"

enum {
    ESP_API_CHAT = 1,
    ESP_API_COMPLETIONS = 2,
    ESP_API_EMBEDDINGS = 4,
    ESP_API_MESSAGES = 8,
    ESP_API_RESPONSES = 16
};
#define ESP_BIAS_MAX 1024u
#define ESP_SALT_BYTES_MAX 1024u

struct esp_constraint {
    const char *kind; /* as esp_vocab_grammar takes it; NULL = none */
    const char *text;
    size_t n_bytes;
    const char *options; /* JSON object text, or NULL */
    const char *param;   /* the field it came from */
};

struct esp_params {
    bool stream, include_usage, echo, ignore_end, choice_scores;
    uint32_t n, n_max; /* n_max UINT32_MAX = what fits the context */
    struct esp_sampling sampling;
    const char *stops[ESP_STOPS_MAX];
    uint32_t n_stops;
    const char *cache_salt; /* NULL = the shared namespace */
    size_t cache_salt_bytes;
    struct esp_cache_fields cache;
    const char *tenant; /* by the request's own fields; NULL = nameless. A server with API keys goes by the key */
    size_t tenant_bytes;
    int priority;
    int64_t timeout_ns; /* 0 = none */
    struct esp_constraint constraint;
    struct esp_buf warnings; /* items of a JSON array, without the brackets */
};

struct esp_request_source {
    const json_t *json;
    const char *text; /* the body that json was parsed from */
    size_t n_bytes;
    uint32_t n_vocab;
    unsigned api; /* one of ESP_API_ */
    bool strict_fields;
    bool lenient; /* the "lenient" of schemas whose options do not say */
    uint64_t random_seed; /* when the request gives none */
};

/* err->place names the field. params->warnings must be finished by the caller, also after a failure. */
esp_status esp_request_parse(const struct esp_request_source *source, struct esp_arena *arena,
                             struct esp_params *ret_params, struct esp_err *err);
/* request_order.c: when the request is served, and how long it may take. */
esp_status esp_request_order(const struct esp_request_source *source, struct esp_arena *arena,
                             struct esp_params *params, struct esp_err *err);
/* request_fields.c: fields that are not built, and unknown ones. */
esp_status esp_request_fields(const struct esp_request_source *source, struct esp_buf *warnings, struct esp_err *err);
/* constraint.c: the one constraint of a request. */
esp_status esp_request_constraint(const struct esp_request_source *source, struct esp_arena *arena,
                                  struct esp_constraint *ret_constraint, struct esp_buf *warnings, struct esp_err *err);
void esp_request_warn(struct esp_buf *warnings, const char *code, const char *param, const char *message);

#endif
