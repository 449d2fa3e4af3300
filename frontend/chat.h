/* Chat requests to prompts: messages through the model's template to spans and token ids.
 *
 * Assistant content null, absent and empty render alike, and so do a string and its text parts. bos_token and
 * eos_token are passed as strings; bos_token strings and special_tokens from the vocabulary count as template
 * text. A model without a template is ESP_EUNSUPPORTED for chat. If the vocabulary adds BOS and the template
 * writes it too, there is one. Thread: read-only after open, shared.
 */
#ifndef ESP_FRONTEND_CHAT_H
#define ESP_FRONTEND_CHAT_H

#include "frontend/form.h"
#include "frontend/replay.h"
#include "frontend/template.h"

struct esp_chat;
struct esp_turn;
/* template_text NULL: the model's own. Borrows vocab. ESP_OK with a model that has no template: such a chat
 * refuses every prompt. */
esp_status esp_chat_open(const esp_vocab *vocab, const char *template_text, struct esp_chat **ret_chat,
                         struct esp_err *err);
void esp_chat_close(struct esp_chat *chat); /* NULL is fine */
/* How the template writes reasoning and calls. */
const struct esp_form *esp_chat_form(const struct esp_chat *chat);
/* What was found out about the template, in one line for people. */
void esp_chat_show(const struct esp_chat *chat, struct esp_buf *buf);

/* Spans that hold an earlier answer are not tokenized: they are the ids that it was generated as. */
struct esp_prompt {
    struct esp_rendered rendered;
    struct esp_buf ids; /* of uint32_t */
    struct esp_buf splices, splice_ids; /* of the known answers: which span, which ids */
    struct esp_replay_key key;          /* of the conversation so far */
    size_t lead_at;                     /* where what asks for the answer begins in the text */
};
void esp_prompt_init(struct esp_prompt *prompt);
void esp_prompt_finish(struct esp_prompt *prompt);
static inline uint32_t esp_prompt_n_tokens(const struct esp_prompt *prompt)
{
    return (uint32_t)(prompt->ids.n / sizeof(uint32_t));
}

/* request: a chat completions body: reads "messages", "tools", "chat_template_kwargs", "enable_thinking",
 * "reasoning_effort", "add_generation_prompt" (default true). Checks roles and content (err->place =
 * "messages[3].content" and so on). */
esp_status esp_chat_prompt(const struct esp_chat *chat, const json_t *request, struct esp_prompt *prompt,
                           struct esp_err *err);
/* Keeps what was generated for the prompt with this key, so that it keeps its ids as history. */
void esp_chat_remember(const struct esp_chat *chat, struct esp_replay_key key, const struct esp_turn *turn,
                       const struct esp_replay_turn *generated);
/* Appends coded text (form.h) to the prompt, its control tokens as such, all else as text. */
esp_status esp_chat_append(const struct esp_chat *chat, const struct esp_lit *lit, struct esp_prompt *prompt,
                           struct esp_err *err);
/* Plain text (completions, run --raw): special tokens in the text are tokens; BOS where the model adds one. */
esp_status esp_chat_plain(const struct esp_chat *chat, const char *text, size_t n_bytes, struct esp_prompt *prompt,
                          struct esp_err *err);

#endif
