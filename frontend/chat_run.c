/* A chat request, whatever API it came through: its messages to a prompt, and the generation on its way.
 *
 * Requests arrive in the shape of a chat completions body; what the answer looks like is the API's table.
 * Thread: a work thread.
 */
#include "frontend/generate.h"
#include "frontend/http.h"

#define LARGE_BYTES (1u << 20)

/* What is too large even to be rendered or tokenized is, to the client, a prompt that is too long. */
static void refuse_prompt(struct esp_exchange *exchange, size_t n_bytes, const struct esp_err *err)
{
    struct esp_engine_info info;
    esp_engine_get_info(esp_exchange_engine(exchange), &info);
    if (err->code == ESP_ELIMIT && n_bytes > LARGE_BYTES) {
        esp_exchange_fail(exchange, 400, "messages", "context_length_exceeded",
                          "the request has %zu bytes, and the context is %u tokens; %s", n_bytes, info.n_ctx,
                          err->message);
    } else {
        esp_exchange_fail_err(exchange, err, "messages");
    }
}

static esp_status make_prompt(struct esp_generation *gen, const json_t *request, const char *text, size_t n_bytes,
                              struct esp_prompt *prompt, struct esp_err *err)
{
    const struct esp_chat *chat = esp_exchange_chat(gen->exchange);
    if (esp_fork_asked(request)) {
        return esp_fork_read(gen, chat, request, text, n_bytes, prompt, err);
    }
    esp_status status = esp_chat_prompt(chat, request, prompt, err);
    if (status == ESP_OK) {
        status = esp_generation_plan(gen, chat, request, text, n_bytes, prompt, err);
    }
    const uint32_t *ids = (const uint32_t *)(const void *)prompt->ids.data;
    return status == ESP_OK ? esp_generation_prompt(gen, ids, esp_prompt_n_tokens(prompt), err) : status;
}

void esp_chat_run(struct esp_exchange *exchange, const struct esp_gen_api *api, void *state, const json_t *request,
                  const char *text, size_t n_bytes)
{
    struct esp_err err = {0};
    struct esp_prompt prompt;
    struct esp_generation *gen = esp_generation_create(exchange, api, state, ESP_API_CHAT, request, text, n_bytes);
    if (gen == NULL) {
        return;
    }
    esp_prompt_init(&prompt);
    esp_status status = make_prompt(gen, request, text, n_bytes, &prompt, &err);
    struct esp_cache_marks marks;
    if (status == ESP_OK) {
        status = esp_cache_marks_find(esp_exchange_chat(exchange), gen->vocab, request, &gen->params.cache, &prompt,
                                      &marks, &err);
    }
    status = status == ESP_OK ? esp_generation_marks(gen, &marks, &err) : status;
    esp_prompt_finish(&prompt);
    esp_buf_finish(&exchange->body); /* not needed while it waits; neither is text */
    if (status != ESP_OK) {
        refuse_prompt(exchange, n_bytes, &err);
    } else {
        esp_generation_start(gen);
    }
}
