/* What a request says about the cache: who shares its pages, what stays, and whether it comes back.
 *
 *   prompt_cache_key, cache_salt   exact names: pages are shared among equal ones only
 *   session_id, done               which conversation this is a turn of; whether it ends with this answer
 *   prompt_cache_options{mode,ttl} pins the whole prompt (implicit), or only what is marked (explicit)
 *   prompt_cache_breakpoint, cache_control   on a message, or on a part of its content: pins all up to its end
 *
 * A mark is found in the rendered prompt by rendering once more with a text that nothing else contains at the
 * end of the marked part; what cannot be found there is told in the warnings and never guessed.
 * Thread: a work thread.
 */
#ifndef ESP_FRONTEND_CACHE_FIELDS_H
#define ESP_FRONTEND_CACHE_FIELDS_H

#include <jansson.h>

#include "frontend/chat.h"
#include "runtime/base/arena.h"

#define ESP_CACHE_TTL_NS ((int64_t)300 * 1000000000) /* when nothing is said */
#define ESP_CACHE_TTL_S_MAX 604800
#define ESP_CACHE_TTL_FORM "must be seconds, or a number with s, m, h or d, up to 7 days"
/* How long a pin lasts: "90s", "5m", "1h", "1d", or a number of seconds. Absent or null leaves *ret_ns as it is.
 * ESP_EINVAL. */
esp_status esp_cache_ttl(const json_t *ttl, int64_t *ret_ns);

enum esp_done_hint { ESP_DONE_UNSAID, ESP_DONE_TRUE, ESP_DONE_FALSE };

struct esp_cache_fields {
    const char *key, *session; /* NULL = none; in the arena */
    size_t key_bytes, session_bytes;
    enum esp_done_hint done;
    bool pins_all;  /* the whole prompt */
    int64_t ttl_ns; /* of it, and of marks that name none */
};

/* err->place names the field. */
esp_status esp_cache_fields_parse(const json_t *request, struct esp_arena *arena, struct esp_cache_fields *ret_fields,
                                  struct esp_err *err);

struct esp_cache_marks {
    struct esp_pin pins[ESP_PINS_MAX];
    uint32_t n_pins;
    uint32_t n_head; /* tokens before the first message that is not the system's; 0 = not known */
    uint32_t n_lost; /* marks that are not to be found in the prompt */
};
/* Of a chat request and its prompt. ESP_EINVAL for a malformed mark or more of them than fit. */
esp_status esp_cache_marks_find(const struct esp_chat *chat, const esp_vocab *vocab, const json_t *request,
                                const struct esp_cache_fields *fields, const struct esp_prompt *prompt,
                                struct esp_cache_marks *ret_marks, struct esp_err *err);

#endif
