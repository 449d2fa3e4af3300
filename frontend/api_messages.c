/* POST /v1/messages and /v1/messages/count_tokens: the shapes of the Messages API.
 *
 *   message_start, then of each part content_block_start, _delta …, _stop; message_delta, message_stop
 *
 * Parts are blocks of the same number. What was found in the cache is known at the end only: message_start counts the
 * whole prompt as input, message_delta has the true numbers. Thread: under the generation's lock.
 */
#include <string.h>

#include "frontend/http.h"
#include "frontend/messages.h"

static const char *stop_reason(const struct esp_choice *choice)
{
    static const struct {
        const char *finish, *reason;
    } reasons[] = {{"length", "max_tokens"}, {"tool_calls", "tool_use"}};
    for (size_t idx = 0; idx < sizeof reasons / sizeof reasons[0]; idx++) {
        if (strcmp(choice->finish, reasons[idx].finish) == 0) {
            return reasons[idx].reason;
        }
    }
    return choice->answer.stop != NULL ? "stop_sequence" : "end_turn";
}

static void write_reason(const struct esp_choice *choice, struct esp_buf *buf)
{
    const char *reason = stop_reason(choice);
    esp_buf_printf(buf, "\"stop_reason\":\"%s\",\"stop_sequence\":", reason);
    if (strcmp(reason, "stop_sequence") == 0) {
        esp_jsontext_quote_str(buf, choice->answer.stop);
    } else {
        esp_buf_str(buf, "null");
    }
}

static void write_usage(const struct esp_generation *gen, struct esp_buf *buf)
{
    struct esp_usage usage;
    esp_generation_usage(gen, &usage);
    uint64_t n_new = usage.n_prompt - usage.n_cached;
    uint64_t n_written = usage.n_written < n_new ? usage.n_written : n_new; /* each prompt token counts once */
    esp_buf_printf(buf,
                   "\"usage\":{\"input_tokens\":%llu,\"cache_creation_input_tokens\":%llu,"
                   "\"cache_read_input_tokens\":%llu,\"output_tokens\":%llu}",
                   (unsigned long long)(n_new - n_written), (unsigned long long)n_written,
                   (unsigned long long)usage.n_cached, (unsigned long long)usage.n_tokens);
}

static void open_message(const struct esp_generation *gen, struct esp_buf *buf)
{
    esp_buf_printf(buf, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", gen->id);
    esp_jsontext_quote_str(buf, gen->exchange->server->model_name);
    esp_buf_str(buf, ",\"content\":[");
}

static void close_message(const struct esp_generation *gen, struct esp_buf *buf)
{
    const struct esp_adapt *adapt = gen->state;
    write_usage(gen, buf);
    esp_adapt_write_warnings(&adapt->warnings, &gen->params.warnings, buf);
    esp_buf_char(buf, '}');
}

/* ---- Streams ------------------------------------------------------------------------------------ */

static void write_begin(struct esp_generation *gen, struct esp_buf *buf)
{
    esp_buf_str(buf, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
    open_message(gen, buf);
    esp_buf_str(buf, "],\"stop_reason\":null,\"stop_sequence\":null,");
    close_message(gen, buf);
    esp_buf_str(buf, "}\n\n");
}

static void write_block(const struct esp_part *part, struct esp_buf *buf)
{
    switch (part->kind) {
    case ESP_PART_TEXT: esp_buf_str(buf, "{\"type\":\"text\",\"text\":\"\"}"); break;
    case ESP_PART_REASONING: esp_buf_str(buf, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"); break;
    default:
        esp_buf_str(buf, "{\"type\":\"tool_use\",\"id\":");
        esp_jsontext_quote_str(buf, part->id);
        esp_buf_str(buf, ",\"name\":");
        esp_jsontext_quote_str(buf, part->name);
        esp_buf_str(buf, ",\"input\":{}}");
    }
}

static void write_part_begin(struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf)
{
    (void)choice;
    esp_buf_printf(buf,
                   "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":%u,"
                   "\"content_block\":",
                   part->index);
    write_block(part, buf);
    esp_buf_str(buf, "}\n\n");
}

static void write_piece(struct esp_choice *choice, const struct esp_part *part, const char *text, size_t n_bytes,
                        struct esp_buf *buf)
{
    static const char *const names[][2] = {[ESP_PART_REASONING] = {"thinking_delta", "thinking"},
                                           [ESP_PART_TEXT] = {"text_delta", "text"},
                                           [ESP_PART_CALL] = {"input_json_delta", "partial_json"}};
    (void)choice;
    esp_buf_printf(buf,
                   "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":%u,"
                   "\"delta\":{\"type\":\"%s\",\"%s\":",
                   part->index, names[part->kind][0], names[part->kind][1]);
    esp_jsontext_quote(buf, text, n_bytes);
    esp_buf_str(buf, "}}\n\n");
}

static void write_part_end(struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf)
{
    (void)choice;
    esp_buf_printf(buf, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":%u}\n\n",
                   part->index);
}

static void write_end(struct esp_generation *gen, struct esp_buf *buf)
{
    esp_buf_str(buf, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{");
    write_reason(&gen->choices[0], buf);
    esp_buf_str(buf, "},");
    write_usage(gen, buf);
    esp_buf_str(buf, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

static void write_error(struct esp_generation *gen, int status, const char *code, struct esp_buf *buf)
{
    esp_buf_str(buf, "event: error\ndata: ");
    esp_error_json(buf, gen->exchange, status, NULL, code, gen->error);
    esp_buf_str(buf, "\n\n");
}

/* ---- Whole answers ------------------------------------------------------------------------------ */

/* A call that was cut off has half an object for its input: what cannot be read is left out. */
static void write_input(const struct esp_part *part, struct esp_buf *buf)
{
    struct esp_err err = {0};
    json_t *input = part->text.n == 0 ? NULL : esp_jsontext_parse(part->text.data, part->text.n, &err);
    if (input == NULL) {
        esp_buf_str(buf, "{}");
    } else {
        esp_buf_add(buf, part->text.data, part->text.n);
    }
    json_decref(input);
}

static void write_part(const struct esp_part *part, struct esp_buf *buf)
{
    if (part->kind == ESP_PART_CALL) {
        esp_buf_str(buf, "{\"type\":\"tool_use\",\"id\":");
        esp_jsontext_quote_str(buf, part->id);
        esp_buf_str(buf, ",\"name\":");
        esp_jsontext_quote_str(buf, part->name);
        esp_buf_str(buf, ",\"input\":");
        write_input(part, buf);
    } else {
        bool is_text = part->kind == ESP_PART_TEXT;
        esp_buf_str(buf, is_text ? "{\"type\":\"text\",\"text\":" : "{\"type\":\"thinking\",\"thinking\":");
        esp_jsontext_quote(buf, part->text.n == 0 ? "" : part->text.data, part->text.n);
        esp_buf_str(buf, is_text ? "" : ",\"signature\":\"\"");
    }
    esp_buf_char(buf, '}');
}

static void write_whole(struct esp_generation *gen, struct esp_buf *buf)
{
    const struct esp_choice *choice = &gen->choices[0];
    open_message(gen, buf);
    for (uint32_t idx = 0; idx < choice->turn.n_parts; idx++) {
        esp_buf_add(buf, ",", idx > 0);
        write_part(choice->turn.parts[idx], buf);
    }
    esp_buf_str(buf, "],");
    write_reason(choice, buf);
    esp_buf_char(buf, ',');
    close_message(gen, buf);
}

static void drop(void *state)
{
    struct esp_adapt *adapt = state;
    if (adapt != NULL) {
        esp_adapt_finish(adapt);
        esp_free(adapt);
    }
}

static const struct esp_gen_api api_messages = {
    .id_prefix = "msg_",
    .prompt_param = "messages",
    .begin = write_begin,
    .part_begin = write_part_begin,
    .part_piece = write_piece,
    .part_end = write_part_end,
    .end = write_end,
    .error = write_error,
    .whole = write_whole,
    .drop = drop,
};

/* ---- Routes ------------------------------------------------------------------------------------- */

static void answer(struct esp_exchange *exchange, bool counting)
{
    json_t *request = esp_exchange_json(exchange);
    struct esp_adapt *adapt = request == NULL ? NULL : esp_calloc(ESP_TAG_HTTP, 1, sizeof *adapt);
    if (adapt == NULL) {
        if (request != NULL) {
            esp_exchange_fail(exchange, 500, NULL, "internal_error", "out of memory");
        }
        json_decref(request);
        return;
    }
    bool fine = esp_adapt_init(adapt, exchange, request, ESP_API_MESSAGES) &&
                esp_messages_convert(adapt, counting);
    if (fine && !counting) {
        esp_adapt_run(adapt, &api_messages, adapt); /* takes it */
    } else {
        uint32_t n_tokens = 0;
        if (fine && esp_adapt_count(adapt, &n_tokens)) {
            esp_buf_printf(&exchange->out, "{\"input_tokens\":%u}", n_tokens);
        }
        drop(adapt);
    }
    json_decref(request);
}

void esp_api_messages(struct esp_exchange *exchange)
{
    answer(exchange, false);
}

void esp_api_count_tokens(struct esp_exchange *exchange)
{
    answer(exchange, true);
}
