/* Choices: tokens to text, text to chunks or to the whole answer, usage and warnings.
 *
 * Chunks of one choice: an optional first one, pieces with text (never empty), and a last one with the finish
 * reason. With logprobs each piece carries the marks of the tokens that begin in it or before. Everything here
 * runs under the generation's lock.
 */
#include <math.h>
#include <string.h>

#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"

#define CHUNK_BYTES_MAX (4u * 1024u * 1024u)

const char *esp_mark_bytes(const struct esp_generation *gen, uint32_t token, size_t *ret_n_bytes)
{
    *ret_n_bytes = 0;
    const char *bytes = esp_token_bytes(gen->vocab, token, false, ret_n_bytes);
    if (bytes == NULL || *ret_n_bytes == 0) {
        bytes = esp_token_bytes(gen->vocab, token, true, ret_n_bytes);
    }
    return bytes == NULL ? "" : bytes;
}

/* Nine digits tell any two floats apart. What can never be drawn is -9999, because JSON has no infinity. */
void esp_logprob_write(struct esp_buf *buf, float logprob)
{
    if (!isfinite(logprob) || logprob < -9999.0f) {
        esp_buf_str(buf, "-9999.0");
    } else {
        esp_buf_printf(buf, "%.9g", (double)logprob);
    }
}

/* ---- Marks -------------------------------------------------------------------------------------- */

static void add_mark(struct esp_choice *choice, const struct esp_event *event)
{
    struct esp_mark mark = {.at_bytes = choice->answer.in_bytes,
                            .at_chars = choice->n_chars,
                            .token = event->token,
                            .logprob = event->logprob,
                            .top_idx = (uint32_t)(choice->tops.n / sizeof(struct esp_top))};
    if (choice->gen->params.sampling.logprobs) {
        mark.n_top = event->n_top < ESP_TOP_LOGPROBS_MAX ? event->n_top : ESP_TOP_LOGPROBS_MAX;
        for (uint32_t idx = 0; idx < mark.n_top; idx++) {
            struct esp_top top = {event->top_id[idx], event->top_logprob[idx]};
            esp_buf_add(&choice->tops, &top, sizeof top);
        }
    }
    esp_buf_add(&choice->marks, &mark, sizeof mark);
}

/* Forgets the first n marks: they were sent, or nobody will ask for them. */
static void drop_marks(struct esp_choice *choice, size_t n)
{
    size_t n_bytes = n * sizeof(struct esp_mark);
    if (n == 0) {
        return;
    }
    memmove(choice->marks.data, choice->marks.data + n_bytes, choice->marks.n - n_bytes);
    choice->marks.n -= n_bytes;
    choice->n_settled = 0;
    if (choice->marks.n == 0) {
        esp_buf_clear(&choice->tops);
    }
}

/* Counts the marks whose first byte is in the text now; all of them at the end of an uncut text. */
static void settle(struct esp_choice *choice, bool all)
{
    size_t n = choice->marks.n / sizeof(struct esp_mark);
    const struct esp_mark *marks = esp_choice_marks(choice);
    while (choice->n_settled < n && (all || marks[choice->n_settled].at_bytes < choice->answer.out_bytes)) {
        choice->n_settled++;
        choice->n_tokens++;
    }
    if (!choice->gen->params.sampling.logprobs) {
        drop_marks(choice, choice->n_settled);
    }
}

/* ---- Chunks ------------------------------------------------------------------------------------- */

static void open_chunk(struct esp_generation *gen, struct esp_buf *buf)
{
    esp_buf_printf(buf, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", gen->id,
                   gen->api->chunk_object, (long long)gen->created_s);
    esp_jsontext_quote_str(buf, gen->exchange->server->model_name);
    if (!gen->chunk_sent && gen->params.warnings.n > 0) {
        esp_buf_printf(buf, ",\"warnings\":[%s]", gen->params.warnings.data);
    }
    gen->chunk_sent = true;
}

static void send_chunk(struct esp_choice *choice, void (*inside)(const struct esp_choice *, struct esp_buf *),
                       const char *finish)
{
    struct esp_generation *gen = choice->gen;
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, CHUNK_BYTES_MAX);
    open_chunk(gen, &buf);
    esp_buf_printf(&buf, ",\"choices\":[{\"index\":%u,", choice->index);
    inside(choice, &buf);
    if (finish == NULL) {
        esp_buf_str(&buf, ",\"finish_reason\":null}]");
    } else {
        esp_buf_printf(&buf, ",\"finish_reason\":\"%s\"}]", finish);
    }
    esp_buf_str(&buf, gen->params.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
    if (buf.failed || !esp_exchange_send(gen->exchange, buf.data, buf.n)) {
        gen->failed = true; /* the client is gone, or does not read: the runs are cancelled */
    }
    esp_buf_finish(&buf);
    esp_buf_clear(&choice->text);
    drop_marks(choice, choice->n_settled);
}

void esp_choice_first(struct esp_choice *choice)
{
    if (choice->gen->api->first != NULL) {
        send_chunk(choice, choice->gen->api->first, NULL);
    } else if (choice->text.n > 0) {
        send_chunk(choice, choice->gen->api->piece, NULL); /* the echoed prompt */
    }
}

static void finish_choice(struct esp_choice *choice, const char *finish)
{
    choice->finish = finish;
    if (!choice->gen->params.stream) {
        return;
    }
    if (choice->text.n > 0) {
        send_chunk(choice, choice->gen->api->piece, NULL);
    }
    send_chunk(choice, choice->gen->api->last, finish);
}

void esp_choice_token(struct esp_choice *choice, const struct esp_event *event)
{
    size_t n_bytes = 0;
    const char *bytes = esp_token_bytes(choice->gen->vocab, event->token, false, &n_bytes);
    add_mark(choice, event);
    bool stopped = bytes != NULL && esp_answer_add_bytes(&choice->answer, bytes, n_bytes, &choice->text);
    for (size_t idx = 0; bytes != NULL && idx < n_bytes; idx++) {
        choice->n_chars += ((unsigned char)bytes[idx] & 0xc0) != 0x80;
    }
    settle(choice, false);
    if (choice->text.failed || choice->marks.failed || choice->tops.failed) {
        esp_generation_error(choice->gen, 500, "the answer does not fit its limit");
    } else if (stopped) {
        choice->marks.n = choice->n_settled * sizeof(struct esp_mark);
        finish_choice(choice, "stop");
    } else if (choice->gen->params.stream && choice->text.n > 0) {
        send_chunk(choice, choice->gen->api->piece, NULL);
    }
}

void esp_choice_done(struct esp_choice *choice, const char *finish)
{
    esp_answer_end(&choice->answer, &choice->text);
    settle(choice, true);
    finish_choice(choice, finish);
}

/* ---- The end ------------------------------------------------------------------------------------ */

static void write_usage(const struct esp_generation *gen, struct esp_buf *buf)
{
    uint64_t n_prompt = 0, n_cached = 0, n_tokens = 0;
    for (uint32_t idx = 0; idx < gen->n_runs; idx++) {
        n_prompt += gen->runs[idx].n_ids;
        n_cached += gen->runs[idx].n_cached;
    }
    for (uint32_t idx = 0; idx < gen->n_choices; idx++) {
        n_tokens += gen->choices[idx].n_tokens;
    }
    esp_buf_printf(buf,
                   "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":%llu}}",
                   (unsigned long long)n_prompt, (unsigned long long)n_tokens,
                   (unsigned long long)(n_prompt + n_tokens), (unsigned long long)n_cached);
}

static void write_whole(const struct esp_generation *gen, struct esp_buf *buf)
{
    esp_buf_printf(buf, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", gen->id, gen->api->whole_object,
                   (long long)gen->created_s);
    esp_jsontext_quote_str(buf, gen->exchange->server->model_name);
    esp_buf_str(buf, ",\"choices\":[");
    for (uint32_t idx = 0; idx < gen->n_choices; idx++) {
        const struct esp_choice *choice = &gen->choices[idx];
        esp_buf_printf(buf, "%s{\"index\":%u,", idx > 0 ? "," : "", idx);
        gen->api->whole(choice, buf);
        esp_buf_printf(buf, ",\"finish_reason\":\"%s\"}", choice->finish);
    }
    esp_buf_str(buf, "],");
    write_usage(gen, buf);
    if (gen->params.warnings.n > 0) {
        esp_buf_printf(buf, ",\"warnings\":[%s]", gen->params.warnings.data);
    }
    esp_buf_char(buf, '}');
}

void esp_generation_answer(struct esp_generation *gen)
{
    struct esp_exchange *exchange = gen->exchange;
    if (!gen->params.stream) {
        if (gen->failed) {
            esp_exchange_fail(exchange, gen->error_status, NULL, NULL, "%s", gen->error);
        } else {
            write_whole(gen, &exchange->out);
        }
        esp_exchange_ready(exchange);
        return;
    }
    if (!gen->failed) {
        struct esp_buf buf;
        esp_buf_init(&buf, ESP_TAG_HTTP, CHUNK_BYTES_MAX);
        if (gen->params.include_usage) {
            open_chunk(gen, &buf);
            esp_buf_str(&buf, ",\"choices\":[],");
            write_usage(gen, &buf);
            esp_buf_str(&buf, "}\n\n");
        }
        esp_buf_str(&buf, "data: [DONE]\n\n");
        if (!buf.failed) {
            esp_exchange_send(exchange, buf.data, buf.n);
        }
        esp_buf_finish(&buf);
    }
    esp_exchange_end(exchange);
}

void esp_generation_error(struct esp_generation *gen, int status, const char *message)
{
    if (gen->failed) {
        return;
    }
    gen->failed = true;
    gen->error_status = status;
    snprintf(gen->error, sizeof gen->error, "%s", message[0] == '\0' ? "the engine failed" : message);
    if (gen->params.stream) {
        struct esp_buf buf;
        esp_buf_init(&buf, ESP_TAG_HTTP, 8192);
        esp_buf_str(&buf, "data: ");
        esp_error_json(&buf, gen->exchange, status, NULL, status == 503 ? "cancelled" : "internal_error", gen->error);
        esp_buf_str(&buf, "\n\n");
        if (!buf.failed) {
            esp_exchange_send(gen->exchange, buf.data, buf.n);
        }
        esp_buf_finish(&buf);
        esp_exchange_end(gen->exchange);
    }
}
