/* Requests of other APIs turned into chat requests: what the Messages and the Responses API share.
 *
 *   {"system":…,"messages":[…],"tools":[…]}  ──►  {"messages":[…],"tools":[…],…} as text, parsed again
 *
 * Messages are built as values; schemas are copied as they were written, because printing a parsed one loses the
 * spelling of its numbers. Warnings gathered here go into the answer before those of the chat request. Thread: a
 * work thread's; afterwards the generation's, which owns it as its API's state.
 */
#ifndef ESP_FRONTEND_ADAPT_H
#define ESP_FRONTEND_ADAPT_H

#include "frontend/generate.h"
#include "frontend/jsontext.h"

struct esp_adapt {
    struct esp_exchange *exchange;
    const json_t *request; /* as it came; borrowed */
    const char *text;      /* its source; borrowed from the exchange */
    size_t n_bytes;
    json_t *messages;       /* of the chat request; owned */
    struct esp_buf members; /* its other members: ,"name":value … */
    struct esp_buf warnings;
    struct esp_err err;
};

/* Checks the request's fields as those of an API (one of ESP_API_). False: the exchange has its answer. */
bool esp_adapt_init(struct esp_adapt *adapt, struct esp_exchange *exchange, const json_t *request, unsigned api);
void esp_adapt_finish(struct esp_adapt *adapt);
/* Records an error: place is printf-style, message plain. */
esp_status esp_adapt_refuse(struct esp_adapt *adapt, const char *message, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void esp_adapt_warn(struct esp_adapt *adapt, const char *code, const char *message, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a member to the chat request: a value (NULL and null: nothing), or JSON text as it is. */
void esp_adapt_value(struct esp_adapt *adapt, const char *name, const json_t *value);
void esp_adapt_raw(struct esp_adapt *adapt, const char *name, const char *text, size_t n_bytes);
/* Adds the request's "tools". add_tool writes one in chat form (source: its text in the body), or nothing. */
esp_status esp_adapt_tools(struct esp_adapt *adapt,
                           esp_status (*add_tool)(struct esp_adapt *adapt, const json_t *tool, size_t idx,
                                                  const char *source, size_t n_source, struct esp_buf *out));
/* Adds a member of the request under another name. */
void esp_adapt_copy(struct esp_adapt *adapt, const char *name, const char *from);
/* Takes message. Neighbours of one role that have nothing but text are made one: templates want turns to alternate. */
esp_status esp_adapt_message(struct esp_adapt *adapt, json_t *message);

/* How many tokens the prompt has; false: the exchange has its answer. */
bool esp_adapt_count(struct esp_adapt *adapt, uint32_t *ret_n_tokens);
/* Gives the exchange its answer or its generation. Takes state. */
void esp_adapt_run(struct esp_adapt *adapt, const struct esp_gen_api *api, void *state);
/* The exchange's answer from err. */
void esp_adapt_fail(struct esp_adapt *adapt);

/* ,"warnings":[…] of both, or nothing. */
void esp_adapt_write_warnings(const struct esp_buf *first, const struct esp_buf *second, struct esp_buf *buf);

#endif
