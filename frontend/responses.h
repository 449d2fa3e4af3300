/* The Responses API, between its parts: requests (responses_request.c), answers (api_responses.c), the store of answers
 * that later requests go on from (responses_store.c).
 */
#ifndef ESP_FRONTEND_RESPONSES_H
#define ESP_FRONTEND_RESPONSES_H

#include "frontend/adapt.h"

#define ESP_STORE_BYTES_MAX (64u * 1024u * 1024u) /* of all stored answers and inputs; the least recently used go */

struct esp_responses {
    struct esp_adapt adapt;
    uint32_t sequence; /* of the next event */
    bool store;
    char previous[64];   /* previous_response_id, or "" */
    struct esp_buf echo; /* members of the response that repeat the request: ,"name":value … */
    struct esp_buf input; /* its own input items, a JSON array */
};

/* Fills the chat request of responses->adapt, echo and input. False: the exchange has its answer. */
bool esp_responses_convert(struct esp_responses *responses);
/* The part of it that is not about the input; errors in adapt's err. */
esp_status esp_responses_options(struct esp_responses *responses);

/* ---- The store: any thread ---------------------------------------------------------------------- */

struct esp_kept;
struct esp_kept *esp_kept_create(void); /* NULL: out of memory */
void esp_kept_destroy(struct esp_kept *store); /* NULL is fine */
/* Copies everything. What does not fit is not kept. previous: "" or an id. */
void esp_kept_put(struct esp_kept *store, const char *id, const char *previous, const struct esp_buf *input,
                   const struct esp_buf *response);
/* The answer, and what it goes on from, was used. */
void esp_kept_use(struct esp_kept *store, const char *id);
/* Appends to the buffers that are not NULL; false when there is no such answer. ret_previous: of 64 bytes, or NULL. */
bool esp_kept_get(struct esp_kept *store, const char *id, char *ret_previous, struct esp_buf *input,
                   struct esp_buf *response);
bool esp_kept_delete(struct esp_kept *store, const char *id);

#endif
