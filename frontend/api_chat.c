/* POST /v1/chat/completions: messages to a prompt, and the shapes of its answers. */
#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"

#define LARGE_BYTES (1u << 20)

static void write_entry(const struct esp_generation *gen, struct esp_buf *buf, uint32_t token, float logprob)
{
    size_t n_bytes = 0;
    const char *bytes = esp_mark_bytes(gen, token, &n_bytes);
    esp_buf_str(buf, "{\"token\":");
    esp_jsontext_quote(buf, bytes, n_bytes);
    esp_buf_printf(buf, ",\"id\":%u,\"logprob\":", token);
    esp_logprob_write(buf, logprob);
    esp_buf_str(buf, ",\"bytes\":[");
    for (size_t idx = 0; idx < n_bytes; idx++) {
        esp_buf_printf(buf, idx > 0 ? ",%u" : "%u", (unsigned char)bytes[idx]);
    }
    esp_buf_char(buf, ']');
}

/* "logprobs":{"content":[…]} of the settled marks, or null. */
static void write_logprobs(const struct esp_choice *choice, struct esp_buf *buf)
{
    const struct esp_generation *gen = choice->gen;
    if (!gen->params.sampling.logprobs) {
        esp_buf_str(buf, ",\"logprobs\":null");
        return;
    }
    const struct esp_mark *marks = esp_choice_marks(choice);
    const struct esp_top *tops = esp_choice_tops(choice);
    esp_buf_str(buf, ",\"logprobs\":{\"content\":[");
    for (size_t idx = 0; idx < choice->n_settled; idx++) {
        esp_buf_add(buf, ",", idx > 0);
        write_entry(gen, buf, marks[idx].token, marks[idx].logprob);
        esp_buf_str(buf, ",\"top_logprobs\":[");
        for (uint32_t top = 0; top < marks[idx].n_top; top++) {
            const struct esp_top *entry = &tops[marks[idx].top_idx + top];
            esp_buf_add(buf, ",", top > 0);
            write_entry(gen, buf, entry->token, entry->logprob);
            esp_buf_char(buf, '}');
        }
        esp_buf_str(buf, "]}");
    }
    esp_buf_str(buf, "],\"refusal\":null}");
}

static void write_first(const struct esp_choice *choice, struct esp_buf *buf)
{
    esp_buf_str(buf, "\"delta\":{\"role\":\"assistant\"},\"logprobs\":null");
}

static void write_piece(const struct esp_choice *choice, struct esp_buf *buf)
{
    esp_buf_str(buf, "\"delta\":{\"content\":");
    esp_jsontext_quote(buf, choice->text.data, choice->text.n);
    esp_buf_char(buf, '}');
    write_logprobs(choice, buf);
}

static void write_last(const struct esp_choice *choice, struct esp_buf *buf)
{
    esp_buf_str(buf, "\"delta\":{}");
    if (choice->n_settled > 0) {
        write_logprobs(choice, buf); /* of tokens without text */
    } else {
        esp_buf_str(buf, ",\"logprobs\":null");
    }
}

static void write_whole(const struct esp_choice *choice, struct esp_buf *buf)
{
    esp_buf_str(buf, "\"message\":{\"role\":\"assistant\",\"content\":");
    esp_jsontext_quote(buf, choice->text.n == 0 ? "" : choice->text.data, choice->text.n);
    esp_buf_str(buf, ",\"refusal\":null}");
    write_logprobs(choice, buf);
}

static const struct esp_gen_api api_chat = {
    .id_prefix = "chatcmpl-",
    .whole_object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .prompt_param = "messages",
    .first = write_first,
    .piece = write_piece,
    .last = write_last,
    .whole = write_whole,
};

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

void esp_api_chat(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    struct esp_generation *gen = esp_generation_create(exchange, &api_chat, request, ESP_API_CHAT);
    if (gen != NULL) {
        struct esp_err err = {0};
        struct esp_prompt prompt;
        esp_prompt_init(&prompt);
        esp_status status = esp_chat_prompt(esp_exchange_chat(exchange), request, &prompt, &err);
        if (status == ESP_OK) {
            status = esp_generation_prompt(gen, (const uint32_t *)(const void *)prompt.ids.data,
                                           esp_prompt_n_tokens(&prompt), &err);
        }
        esp_prompt_finish(&prompt);
        json_decref(request);
        request = NULL;
        size_t n_bytes = exchange->body.n;
        esp_buf_finish(&exchange->body); /* not needed while it waits */
        if (status != ESP_OK) {
            refuse_prompt(exchange, n_bytes, &err);
        } else {
            esp_generation_start(gen);
        }
    }
    json_decref(request);
}
