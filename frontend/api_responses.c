/* /v1/responses: the shapes of the Responses API, its events, and its stored answers.
 *
 *   created, in_progress, then of each part output_item.added, [content_part.added,] … .delta, .done,
 *   [content_part.done,] output_item.done; completed or incomplete
 *
 * Parts are output items of the same number: text a message, reasoning a reasoning item, a call a function_call. Every
 * event has the next sequence_number. Thread: under the generation's lock, except the routes.
 */
#include <string.h>
#include <time.h>

#include "frontend/http.h"
#include "frontend/responses.h"

static struct esp_responses *state_of(const struct esp_generation *gen)
{
    return gen->state;
}

/* ---- Items -------------------------------------------------------------------------------------- */

static const char *const prefixes[] = {
    [ESP_PART_REASONING] = "rs", [ESP_PART_TEXT] = "msg", [ESP_PART_CALL] = "fc"};
static const char *const deltas[] = {[ESP_PART_REASONING] = "reasoning_text",
                                     [ESP_PART_TEXT] = "output_text",
                                     [ESP_PART_CALL] = "function_call_arguments"};

static void write_item_id(const struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf)
{
    esp_buf_printf(buf, "\"%s%s_%u\"", prefixes[part->kind], choice->gen->id + strlen("resp"), part->index);
}

static void write_text(const struct esp_part *part, struct esp_buf *buf)
{
    esp_jsontext_quote(buf, part->text.n == 0 ? "" : part->text.data, part->text.n);
}

/* A content part; empty: as it begins. */
static void write_content(const struct esp_choice *choice, const struct esp_part *part, bool empty, bool logprobs,
                          struct esp_buf *buf)
{
    esp_buf_printf(buf, "{\"type\":\"%s\",\"text\":", deltas[part->kind]);
    if (empty) {
        esp_buf_str(buf, "\"\"");
    } else {
        write_text(part, buf);
    }
    if (part->kind == ESP_PART_TEXT) {
        esp_buf_str(buf, ",\"annotations\":[],\"logprobs\":[");
        if (logprobs) {
            esp_logprobs_write(choice, buf);
        }
        esp_buf_char(buf, ']');
    }
    esp_buf_char(buf, '}');
}

static void write_item(const struct esp_choice *choice, const struct esp_part *part, const char *status, bool logprobs,
                       struct esp_buf *buf)
{
    bool begins = strcmp(status, "in_progress") == 0;
    esp_buf_str(buf, "{\"id\":");
    write_item_id(choice, part, buf);
    esp_buf_printf(buf, ",\"status\":\"%s\"", status);
    if (part->kind == ESP_PART_CALL) {
        esp_buf_str(buf, ",\"type\":\"function_call\",\"call_id\":");
        esp_jsontext_quote_str(buf, part->id);
        esp_buf_str(buf, ",\"name\":");
        esp_jsontext_quote_str(buf, part->name);
        esp_buf_str(buf, ",\"arguments\":");
        if (begins) {
            esp_buf_str(buf, "\"\"");
        } else {
            write_text(part, buf);
        }
    } else {
        esp_buf_str(buf, part->kind == ESP_PART_TEXT
                             ? ",\"type\":\"message\",\"role\":\"assistant\",\"content\":["
                             : ",\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":null,\"content\":[");
        if (!begins) {
            write_content(choice, part, false, logprobs, buf);
        }
        esp_buf_char(buf, ']');
    }
    esp_buf_char(buf, '}');
}

/* ---- The response object ------------------------------------------------------------------------ */

static void write_usage(const struct esp_generation *gen, struct esp_buf *buf)
{
    struct esp_usage usage;
    esp_generation_usage(gen, &usage);
    esp_buf_printf(buf,
                   "{\"input_tokens\":%llu,\"input_tokens_details\":{\"cached_tokens\":%llu,"
                   "\"cache_write_tokens\":%llu},\"output_tokens\":%llu,"
                   "\"output_tokens_details\":{\"reasoning_tokens\":%llu},\"total_tokens\":%llu}",
                   (unsigned long long)usage.n_prompt, (unsigned long long)usage.n_cached,
                   (unsigned long long)usage.n_written, (unsigned long long)usage.n_tokens,
                   (unsigned long long)usage.n_reasoning, (unsigned long long)(usage.n_prompt + usage.n_tokens));
}

static void write_output(const struct esp_generation *gen, struct esp_buf *buf)
{
    const struct esp_choice *choice = &gen->choices[0];
    bool logprobs = !gen->params.stream;
    for (uint32_t idx = 0; idx < choice->turn.n_parts; idx++) {
        const struct esp_part *part = choice->turn.parts[idx];
        bool cut = strcmp(choice->finish, "length") == 0 && idx + 1 == choice->turn.n_parts;
        esp_buf_add(buf, ",", idx > 0);
        write_item(choice, part, cut ? "incomplete" : "completed", logprobs && part->kind == ESP_PART_TEXT, buf);
        logprobs = logprobs && part->kind != ESP_PART_TEXT;
    }
}

/* status: in_progress, completed, incomplete or failed. */
static void write_response(struct esp_generation *gen, const char *status, struct esp_buf *buf)
{
    const struct esp_responses *responses = state_of(gen);
    bool ended = strcmp(status, "completed") == 0 || strcmp(status, "incomplete") == 0;
    esp_buf_printf(buf, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%lld,\"status\":\"%s\"", gen->id,
                   (long long)gen->created_s, status);
    if (ended) {
        esp_buf_printf(buf, ",\"completed_at\":%lld", (long long)time(NULL));
    }
    esp_buf_str(buf, ",\"model\":");
    esp_jsontext_quote_str(buf, gen->exchange->server->model_name);
    esp_buf_str(buf, ",\"error\":");
    if (strcmp(status, "failed") == 0) {
        esp_buf_str(buf, "{\"code\":\"server_error\",\"message\":");
        esp_jsontext_quote_str(buf, gen->error);
        esp_buf_char(buf, '}');
    } else {
        esp_buf_str(buf, "null");
    }
    esp_buf_printf(buf, ",\"incomplete_details\":%s,\"output\":[",
                   strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    if (ended) {
        write_output(gen, buf);
    }
    esp_buf_str(buf, "],\"usage\":");
    if (ended) {
        write_usage(gen, buf);
    } else {
        esp_buf_str(buf, "null");
    }
    esp_buf_add(buf, responses->echo.data, responses->echo.n);
    esp_adapt_write_warnings(&responses->adapt.warnings, &gen->params.warnings, buf);
    esp_buf_char(buf, '}');
}

static const char *status_of(const struct esp_generation *gen)
{
    return strcmp(gen->choices[0].finish, "length") == 0 ? "incomplete" : "completed";
}

/* The whole answer, which is also kept when that was asked for. */
static void write_whole(struct esp_generation *gen, struct esp_buf *buf)
{
    struct esp_responses *responses = state_of(gen);
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, ESP_HTTP_ANSWER_BYTES_MAX);
    write_response(gen, status_of(gen), &text);
    esp_buf_add(buf, text.data, text.n);
    buf->failed = buf->failed || text.failed;
    if (responses->store && !text.failed) {
        esp_kept_put(gen->exchange->server->store, gen->id, responses->previous, &responses->input, &text);
    }
    esp_buf_finish(&text);
}

/* ---- Events ------------------------------------------------------------------------------------- */

static void open_event(struct esp_generation *gen, const char *name, const char *suffix, struct esp_buf *buf)
{
    esp_buf_printf(buf, "event: response.%s%s\ndata: {\"type\":\"response.%s%s\",\"sequence_number\":%u", name, suffix,
                   name, suffix, state_of(gen)->sequence++);
}

static void response_event(struct esp_generation *gen, const char *name, const char *status, struct esp_buf *buf)
{
    open_event(gen, name, "", buf);
    esp_buf_str(buf, ",\"response\":");
    if (strcmp(status, "in_progress") == 0 || strcmp(status, "failed") == 0) {
        write_response(gen, status, buf);
    } else {
        write_whole(gen, buf);
    }
    esp_buf_str(buf, "}\n\n");
}

static void write_begin(struct esp_generation *gen, struct esp_buf *buf)
{
    response_event(gen, "created", "in_progress", buf);
    response_event(gen, "in_progress", "in_progress", buf);
}

static void item_event(struct esp_choice *choice, const struct esp_part *part, const char *name, const char *status,
                       struct esp_buf *buf)
{
    open_event(choice->gen, name, "", buf);
    esp_buf_printf(buf, ",\"output_index\":%u,\"item\":", part->index);
    write_item(choice, part, status, false, buf);
    esp_buf_str(buf, "}\n\n");
}

/* Up to what is special about the event. */
static void open_part_event(struct esp_choice *choice, const struct esp_part *part, const char *name,
                            const char *suffix, struct esp_buf *buf)
{
    open_event(choice->gen, name, suffix, buf);
    esp_buf_str(buf, ",\"item_id\":");
    write_item_id(choice, part, buf);
    esp_buf_printf(buf, ",\"output_index\":%u", part->index);
    if (part->kind != ESP_PART_CALL) {
        esp_buf_str(buf, ",\"content_index\":0");
    }
}

static void content_event(struct esp_choice *choice, const struct esp_part *part, bool begins, struct esp_buf *buf)
{
    if (part->kind != ESP_PART_CALL) {
        open_part_event(choice, part, "content_part", begins ? ".added" : ".done", buf);
        esp_buf_str(buf, ",\"part\":");
        write_content(choice, part, begins, false, buf);
        esp_buf_str(buf, "}\n\n");
    }
}

static void write_part_begin(struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf)
{
    item_event(choice, part, "output_item.added", "in_progress", buf);
    content_event(choice, part, true, buf);
}

static void write_piece(struct esp_choice *choice, const struct esp_part *part, const char *text, size_t n_bytes,
                        struct esp_buf *buf)
{
    open_part_event(choice, part, deltas[part->kind], ".delta", buf);
    esp_buf_str(buf, ",\"delta\":");
    esp_jsontext_quote(buf, text, n_bytes);
    if (part->kind == ESP_PART_TEXT) {
        esp_buf_str(buf, ",\"logprobs\":[");
        esp_logprobs_write(choice, buf);
        esp_buf_char(buf, ']');
    }
    esp_buf_str(buf, "}\n\n");
}

static void write_part_end(struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf)
{
    open_part_event(choice, part, deltas[part->kind], ".done", buf);
    esp_buf_str(buf, part->kind == ESP_PART_CALL ? ",\"arguments\":" : ",\"text\":");
    write_text(part, buf);
    if (part->kind == ESP_PART_CALL) {
        esp_buf_str(buf, ",\"name\":");
        esp_jsontext_quote_str(buf, part->name);
    } else if (part->kind == ESP_PART_TEXT) {
        esp_buf_str(buf, ",\"logprobs\":[]");
    }
    esp_buf_str(buf, "}\n\n");
    content_event(choice, part, false, buf);
    item_event(choice, part, "output_item.done", choice->cut ? "incomplete" : "completed", buf);
}

static void write_end(struct esp_generation *gen, struct esp_buf *buf)
{
    response_event(gen, status_of(gen), status_of(gen), buf);
}

static void write_error(struct esp_generation *gen, int status, const char *code, struct esp_buf *buf)
{
    (void)status, (void)code; /* this API has one code for all that fails here */
    response_event(gen, "failed", "failed", buf);
}

static void drop(void *state)
{
    struct esp_responses *responses = state;
    if (responses != NULL) {
        esp_adapt_finish(&responses->adapt);
        esp_buf_finish(&responses->echo);
        esp_buf_finish(&responses->input);
        esp_free(responses);
    }
}

static const struct esp_gen_api api_responses = {
    .id_prefix = "resp_",
    .prompt_param = "input",
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
    struct esp_responses *responses = request == NULL ? NULL : esp_calloc(ESP_TAG_HTTP, 1, sizeof *responses);
    if (responses == NULL) {
        if (request != NULL) {
            esp_exchange_fail(exchange, 500, NULL, "internal_error", "out of memory");
        }
        json_decref(request);
        return;
    }
    esp_buf_init(&responses->echo, ESP_TAG_HTTP, ESP_HTTP_ANSWER_BYTES_MAX);
    esp_buf_init(&responses->input, ESP_TAG_HTTP, ESP_HTTP_ANSWER_BYTES_MAX);
    bool fine = esp_adapt_init(&responses->adapt, exchange, request, ESP_API_RESPONSES) &&
                esp_responses_convert(responses);
    if (fine && !counting) {
        esp_adapt_run(&responses->adapt, &api_responses, responses); /* takes it */
    } else {
        uint32_t n_tokens = 0;
        if (fine && esp_adapt_count(&responses->adapt, &n_tokens)) {
            esp_buf_printf(&exchange->out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%u}", n_tokens);
        }
        drop(responses);
    }
    json_decref(request);
}

void esp_api_responses(struct esp_exchange *exchange)
{
    answer(exchange, false);
}

void esp_api_response_tokens(struct esp_exchange *exchange)
{
    answer(exchange, true);
}

/* The part of the path behind /v1/responses/, without a given end. False: the exchange has its answer. */
static bool id_of(struct esp_exchange *exchange, const char *end, char *ret_id, size_t room)
{
    const char *tail = exchange->path + strlen("/v1/responses/");
    size_t n = strlen(tail), n_end = strlen(end);
    bool fits = n >= n_end && n - n_end < room && strcmp(tail + n - n_end, end) == 0;
    if (!fits) {
        esp_exchange_fail(exchange, 404, "id", "not_found", "there is no stored answer with this id");
        return false;
    }
    snprintf(ret_id, room, "%.*s", (int)(n - n_end), tail);
    return true;
}

static void write_items(struct esp_exchange *exchange, const char *id)
{
    struct esp_buf input;
    esp_buf_init(&input, ESP_TAG_HTTP, ESP_STORE_BYTES_MAX);
    if (!esp_kept_get(exchange->server->store, id, NULL, &input, NULL)) {
        esp_exchange_fail(exchange, 404, "id", "not_found", "there is no stored answer '%s'", id);
    } else {
        esp_buf_str(&exchange->out, "{\"object\":\"list\",\"data\":");
        esp_buf_add(&exchange->out, input.data, input.n);
        esp_buf_str(&exchange->out, ",\"first_id\":null,\"last_id\":null,\"has_more\":false}");
    }
    esp_buf_finish(&input);
}

void esp_api_response_get(struct esp_exchange *exchange)
{
    char id[64];
    bool items = strstr(exchange->path, "/input_items") != NULL;
    if (!id_of(exchange, items ? "/input_items" : "", id, sizeof id)) {
        return;
    }
    esp_kept_use(exchange->server->store, id);
    if (items) {
        write_items(exchange, id);
    } else if (!esp_kept_get(exchange->server->store, id, NULL, NULL, &exchange->out)) {
        esp_exchange_fail(exchange, 404, "id", "not_found", "there is no stored answer '%s'", id);
    }
}

void esp_api_response_delete(struct esp_exchange *exchange)
{
    char id[64];
    if (!id_of(exchange, "", id, sizeof id)) {
        return;
    }
    if (!esp_kept_delete(exchange->server->store, id)) {
        esp_exchange_fail(exchange, 404, "id", "not_found", "there is no stored answer '%s'", id);
        return;
    }
    esp_buf_str(&exchange->out, "{\"id\":");
    esp_jsontext_quote_str(&exchange->out, id);
    esp_buf_str(&exchange->out, ",\"object\":\"response\",\"deleted\":true}");
}
