/* Between the files of the chat: opening and prompts (chat.c), messages (chat_messages.c), probing (probe.c). */
#ifndef ESP_FRONTEND_CHAT_INTERNAL_H
#define ESP_FRONTEND_CHAT_INTERNAL_H

#include "frontend/chat.h"
#include "frontend/form.h"

struct esp_chat {
    const esp_vocab *vocab;
    struct esp_template *tmpl; /* NULL: no template, or one that does not compile */
    struct esp_err reason;     /* then why */
    bool knows_developer;      /* the template names that role itself */
    struct esp_form form;
};

/* Appends each message as the template shall see it to the list. */
esp_status esp_chat_messages(const struct esp_chat *chat, const json_t *messages, json_t *list, struct esp_err *err);
/* The functions among a request's tools, with nothing missing that templates read. Owned. */
json_t *esp_chat_functions(const json_t *request);
/* Writes the list of tools at the end of the system message, which is made if there is none. */
esp_status esp_chat_write_tools(json_t *messages, const json_t *functions, struct esp_err *err);
/* bos_token and eos_token, as the vocabulary spells them. */
bool esp_chat_set_tokens(const struct esp_chat *chat, json_t *context);
/* Finds out how the template writes tools, calls and reasoning. */
esp_status esp_chat_probe(struct esp_chat *chat, const char *text, struct esp_err *err);

#endif
