/* Between the files of the chat: opening and prompts (chat.c), messages (chat_messages.c), probing (probe.c). */
#ifndef ESP_FRONTEND_CHAT_INTERNAL_H
#define ESP_FRONTEND_CHAT_INTERNAL_H

#include "frontend/chat.h"
#include "frontend/form.h"
#include "frontend/replay.h"

struct esp_chat {
    const esp_vocab *vocab;
    struct esp_template *tmpl; /* NULL: no template, or one that does not compile */
    struct esp_err reason;     /* then why */
    bool knows_developer;      /* the template names that role itself */
    struct esp_form form;
    struct esp_replay *replay; /* NULL without a template */
};

/* The earlier answers of one request that were generated here. */
struct esp_recall {
    size_t n, n_known;              /* messages, and those with a turn */
    struct esp_replay_turn **turns; /* [n], NULL where nothing is known */
    struct esp_replay_key key;      /* of the whole conversation */
    uint64_t nonce;
};
/* A piece of the rendered text that becomes ids, after a lead that replaces what the template wrote (or none). */
struct esp_splice {
    size_t from, to, lead_bytes;
    const char *lead;
    const uint32_t *ids;
    uint32_t n_ids;
};
bool esp_chat_recall(const struct esp_chat *chat, const json_t *request, struct esp_recall *ret_recall);
void esp_recall_finish(struct esp_recall *recall); /* zeroed is fine */
/* Puts signs into the message that the template shall see of message idx. */
bool esp_recall_sign(const struct esp_chat *chat, const struct esp_recall *recall, size_t idx, json_t *message);
/* Appends each message as the template shall see it to the list; with signs where the recall has a turn. */
esp_status esp_chat_messages(const struct esp_chat *chat, const json_t *messages, const struct esp_recall *recall,
                             json_t *list, struct esp_err *err);
/* The functions among a request's tools, with nothing missing that templates read. Owned. */
json_t *esp_chat_functions(const json_t *request);
/* Writes the list of tools at the end of the system message, which is made if there is none. */
esp_status esp_chat_write_tools(json_t *messages, const json_t *functions, struct esp_err *err);
/* Puts a system message's text in front of the user's first, for templates that refuse that role. */
esp_status esp_chat_merge_system(json_t *messages, struct esp_err *err);
/* bos_token and eos_token, as the vocabulary spells them. */
bool esp_chat_set_tokens(const struct esp_chat *chat, json_t *context);
struct esp_prompt_splice { /* an item of prompt->splices */
    size_t span_idx, at_ids;
    uint32_t n_ids;
};
/* Renders with signs and puts the known answers in their places. False: the prompt is as it was, and none is in it. */
bool esp_chat_splice(const struct esp_chat *chat, const json_t *request, struct esp_recall *recall,
                     esp_status (*render)(const struct esp_chat *chat, const json_t *request,
                                          const struct esp_recall *recall, struct esp_rendered *rendered,
                                          struct esp_err *err),
                     struct esp_prompt *prompt);
/* Finds out how the template writes tools, calls and reasoning. */
esp_status esp_chat_probe(struct esp_chat *chat, const char *text, struct esp_err *err);

#endif
