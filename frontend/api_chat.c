/* POST /v1/chat/completions: the shapes of its answers. */
#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"

static void write_entry(const struct esp_generation *gen, struct esp_buf *buf, uint32_t token, float logprob)
{
    size_t n_bytes = 0;
    const char *bytes = esp_mark_bytes(gen, token, &n_bytes);
    esp_buf_str(buf, "{\"token\":");
    esp_mark_quote(gen, buf, token);
    esp_buf_printf(buf, ",\"id\":%u,\"logprob\":", token);
    esp_logprob_write(buf, logprob);
    esp_buf_str(buf, ",\"bytes\":[");
    for (size_t idx = 0; idx < n_bytes; idx++) {
        esp_buf_printf(buf, idx > 0 ? ",%u" : "%u", (unsigned char)bytes[idx]);
    }
    esp_buf_char(buf, ']');
}

void esp_logprobs_write(const struct esp_choice *choice, struct esp_buf *buf)
{
    const struct esp_generation *gen = choice->gen;
    const struct esp_mark *marks = esp_choice_marks(choice);
    const struct esp_top *tops = esp_choice_tops(choice);
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
}

/* "logprobs":{"content":[…]} of the settled marks, or null. */
static void write_logprobs(const struct esp_choice *choice, struct esp_buf *buf)
{
    if (!choice->gen->params.sampling.logprobs) {
        esp_buf_str(buf, ",\"logprobs\":null");
        return;
    }
    esp_buf_str(buf, ",\"logprobs\":{\"content\":[");
    esp_logprobs_write(choice, buf);
    esp_buf_str(buf, "],\"refusal\":null}");
}

static void write_first(struct esp_choice *choice, struct esp_buf *buf)
{
    esp_chunk_open(choice, buf);
    esp_buf_str(buf, "\"delta\":{\"role\":\"assistant\"},\"logprobs\":null");
    esp_chunk_close(choice, buf);
}

static void write_call_begin(struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf)
{
    if (part->kind != ESP_PART_CALL) {
        return;
    }
    esp_chunk_open(choice, buf);
    esp_buf_printf(buf, "\"delta\":{\"tool_calls\":[{\"index\":%u,\"id\":", part->call_index);
    esp_jsontext_quote_str(buf, part->id);
    esp_buf_str(buf, ",\"type\":\"function\",\"function\":{\"name\":");
    esp_jsontext_quote_str(buf, part->name);
    esp_buf_str(buf, ",\"arguments\":\"\"}}]},\"logprobs\":null");
    esp_chunk_close(choice, buf);
}

static void write_piece(struct esp_choice *choice, const struct esp_part *part, const char *text, size_t n_bytes,
                        struct esp_buf *buf)
{
    esp_chunk_open(choice, buf);
    if (part->kind == ESP_PART_CALL) {
        esp_buf_printf(buf, "\"delta\":{\"tool_calls\":[{\"index\":%u,\"function\":{\"arguments\":",
                       part->call_index);
        esp_jsontext_quote(buf, text, n_bytes);
        esp_buf_str(buf, "}}]}");
    } else {
        esp_buf_str(buf, part->kind == ESP_PART_TEXT ? "\"delta\":{\"content\":"
                                                     : "\"delta\":{\"reasoning_content\":");
        esp_jsontext_quote(buf, text, n_bytes);
        esp_buf_char(buf, '}');
    }
    write_logprobs(choice, buf);
    esp_chunk_close(choice, buf);
}

static void write_last(struct esp_choice *choice, struct esp_buf *buf)
{
    esp_chunk_open(choice, buf);
    esp_buf_str(buf, "\"delta\":{}");
    if (choice->n_settled > 0) {
        write_logprobs(choice, buf); /* of tokens without text */
    } else {
        esp_buf_str(buf, ",\"logprobs\":null");
    }
    esp_chunk_close(choice, buf);
}

static void write_calls(const struct esp_turn *turn, struct esp_buf *buf)
{
    esp_buf_str(buf, ",\"tool_calls\":[");
    for (uint32_t idx = 0; idx < turn->n_parts; idx++) {
        const struct esp_part *part = turn->parts[idx];
        if (part->kind == ESP_PART_CALL) {
            esp_buf_str(buf, part->call_index > 0 ? ",{\"id\":" : "{\"id\":");
            esp_jsontext_quote_str(buf, part->id);
            esp_buf_str(buf, ",\"type\":\"function\",\"function\":{\"name\":");
            esp_jsontext_quote_str(buf, part->name);
            esp_buf_str(buf, ",\"arguments\":");
            esp_jsontext_quote(buf, part->text.n == 0 ? "" : part->text.data, part->text.n);
            esp_buf_str(buf, "}}");
        }
    }
    esp_buf_char(buf, ']');
}

/* The text of all parts of a kind, quoted. */
static void write_joined(const struct esp_turn *turn, enum esp_part_kind kind, struct esp_buf *buf)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, ESP_HTTP_ANSWER_BYTES_MAX);
    esp_turn_join(turn, kind, &text);
    esp_jsontext_quote(buf, text.n == 0 ? "" : text.data, text.n);
    buf->failed = buf->failed || text.failed;
    esp_buf_finish(&text);
}

static void write_message(struct esp_choice *choice, struct esp_buf *buf)
{
    const struct esp_turn *turn = &choice->turn;
    bool has[3] = {false, false, false};
    for (uint32_t idx = 0; idx < turn->n_parts; idx++) {
        has[turn->parts[idx]->kind] = true;
    }
    esp_buf_str(buf, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (has[ESP_PART_CALL] && !has[ESP_PART_TEXT]) {
        esp_buf_str(buf, "null");
    } else {
        write_joined(turn, ESP_PART_TEXT, buf);
    }
    if (has[ESP_PART_REASONING]) {
        esp_buf_str(buf, ",\"reasoning_content\":");
        write_joined(turn, ESP_PART_REASONING, buf);
    }
    esp_buf_str(buf, ",\"refusal\":null");
    if (has[ESP_PART_CALL]) {
        write_calls(turn, buf);
    }
    esp_buf_char(buf, '}');
    write_logprobs(choice, buf);
}

static void write_whole(struct esp_generation *gen, struct esp_buf *buf)
{
    esp_chunk_whole(gen, buf, write_message);
}

static const struct esp_gen_api api_chat = {
    .id_prefix = "chatcmpl-",
    .prompt_param = "messages",
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .first = write_first,
    .part_begin = write_call_begin,
    .part_piece = write_piece,
    .last = write_last,
    .end = esp_chunk_end,
    .whole = write_whole,
};

void esp_api_chat(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request != NULL) {
        esp_chat_run(exchange, &api_chat, NULL, request, exchange->body.data, exchange->body.n);
        json_decref(request);
    }
}
