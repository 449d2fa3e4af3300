/* Choices: tokens to text, text to parts, each step to the API of the request.
 *
 * With logprobs, what is written for a piece carries the marks of the tokens that begin in it or before.
 * Everything here runs under the generation's lock.
 */
#include <string.h>

#include "frontend/generate.h"
#include "frontend/http.h"

#define EVENT_BYTES_MAX (4u * 1024u * 1024u)

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

/* ---- Events of a stream ------------------------------------------------------------------------- */

static void send_events(struct esp_generation *gen, struct esp_buf *buf)
{
    if (buf->failed || (buf->n > 0 && !esp_exchange_send(gen->exchange, buf->data, buf->n))) {
        gen->failed = true; /* the client is gone, or does not read: the runs are cancelled */
    }
    esp_buf_finish(buf);
}

static void part_begin(void *ctx, const struct esp_part *part)
{
    struct esp_choice *choice = ctx;
    struct esp_buf buf;
    if (choice->gen->params.stream && choice->gen->api->part_begin != NULL) {
        esp_buf_init(&buf, ESP_TAG_HTTP, EVENT_BYTES_MAX);
        choice->gen->api->part_begin(choice, part, &buf);
        send_events(choice->gen, &buf);
    }
}

static void part_piece(void *ctx, const struct esp_part *part, const char *text, size_t n_bytes)
{
    struct esp_choice *choice = ctx;
    struct esp_buf buf;
    if (choice->gen->params.stream && choice->gen->api->part_piece != NULL) {
        esp_buf_init(&buf, ESP_TAG_HTTP, EVENT_BYTES_MAX);
        choice->gen->api->part_piece(choice, part, text, n_bytes, &buf);
        drop_marks(choice, choice->n_settled);
        send_events(choice->gen, &buf);
    }
}

static void part_end(void *ctx, const struct esp_part *part)
{
    struct esp_choice *choice = ctx;
    struct esp_buf buf;
    if (choice->gen->params.stream && choice->gen->api->part_end != NULL) {
        esp_buf_init(&buf, ESP_TAG_HTTP, EVENT_BYTES_MAX);
        choice->gen->api->part_end(choice, part, &buf);
        send_events(choice->gen, &buf);
    }
}

static const struct esp_turn_sink sink = {part_begin, part_piece, part_end};

void esp_choice_init(struct esp_choice *choice, struct esp_generation *gen, uint32_t index)
{
    choice->gen = gen;
    choice->index = index;
    esp_answer_init(&choice->answer, gen->vocab, gen->params.stops, gen->params.n_stops);
    struct esp_turn_setup setup = gen->plan.setup;
    setup.id_seed += index;
    esp_turn_init(&choice->turn, &setup, &sink, choice);
    esp_buf_init(&choice->text, ESP_TAG_HTTP, ESP_CHOICE_BYTES_MAX);
    esp_buf_init(&choice->marks, ESP_TAG_HTTP, ESP_CHOICE_BYTES_MAX);
    esp_buf_init(&choice->tops, ESP_TAG_HTTP, ESP_CHOICE_BYTES_MAX);
    esp_buf_init(&choice->ids, ESP_TAG_HTTP, ESP_CHOICE_BYTES_MAX);
    esp_buf_add(&choice->ids, gen->forced_ids, gen->n_forced_ids * sizeof *gen->forced_ids);
    choice->text_from = UINT32_MAX;
    choice->thought = setup.thinking;
}

void esp_choice_finish(struct esp_choice *choice)
{
    esp_answer_finish(&choice->answer);
    esp_turn_finish(&choice->turn);
    esp_buf_finish(&choice->text);
    esp_buf_finish(&choice->marks);
    esp_buf_finish(&choice->tops);
    esp_buf_finish(&choice->ids);
}

/* Hands the text on to the turn. False when a limit was met, and the generation has its error. */
static bool pass_on(struct esp_choice *choice)
{
    if (!choice->text.failed && choice->text.n > 0) {
        esp_turn_text(&choice->turn, choice->text.data, choice->text.n);
        esp_buf_clear(&choice->text);
    }
    if (choice->text.failed || choice->marks.failed || choice->tops.failed || choice->turn.failed) {
        esp_generation_error(choice->gen, 500, "the answer does not fit its limit");
        return false;
    }
    return true;
}

void esp_generation_first(struct esp_generation *gen)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, EVENT_BYTES_MAX);
    if (gen->params.stream && gen->api->begin != NULL) {
        gen->api->begin(gen, &buf);
    }
    send_events(gen, &buf);
    for (uint32_t idx = 0; idx < gen->n_choices; idx++) {
        struct esp_choice *choice = &gen->choices[idx];
        const struct esp_run *run = &gen->runs[idx / gen->params.n];
        esp_buf_init(&buf, ESP_TAG_HTTP, EVENT_BYTES_MAX);
        if (gen->params.stream && gen->api->first != NULL) {
            gen->api->first(choice, &buf);
        }
        send_events(gen, &buf);
        if (run->echo != NULL) {
            esp_answer_clean(run->echo, run->echo_bytes, &choice->text);
            pass_on(choice);
        }
        esp_turn_text(&choice->turn, gen->plan.forced.text, gen->plan.forced.n);
    }
}

/* A whole answer of a chat is kept under its conversation; one that was cut inside of a token is not. */
static void remember(struct esp_choice *choice)
{
    struct esp_generation *gen = choice->gen;
    if (gen->chat == NULL || choice->ids.failed || choice->ids.n == 0 || choice->turn.failed ||
        choice->answer.out_bytes != choice->answer.in_bytes) {
        return;
    }
    struct esp_replay_turn turn = {.n_ids = (uint32_t)(choice->ids.n / sizeof(uint32_t)),
                                   .text_from = choice->text_from,
                                   .thought = choice->thought,
                                   .lead = gen->lead,
                                   .lead_bytes = gen->lead_bytes,
                                   .ids = (const uint32_t *)(const void *)choice->ids.data};
    esp_chat_remember(gen->chat, gen->key, &choice->turn, &turn);
}

static void finish_choice(struct esp_choice *choice, const char *finish)
{
    struct esp_generation *gen = choice->gen;
    struct esp_buf buf;
    if (!pass_on(choice)) {
        return;
    }
    choice->cut = strcmp(finish, "length") == 0;
    esp_turn_end(&choice->turn);
    bool calls = choice->turn.n_calls_whole > 0 && choice->turn.n_calls_whole == choice->turn.n_calls;
    choice->finish = calls && strcmp(finish, "stop") == 0 ? "tool_calls" : finish;
    remember(choice);
    if (gen->params.stream && gen->api->last != NULL) {
        esp_buf_init(&buf, ESP_TAG_HTTP, EVENT_BYTES_MAX);
        gen->api->last(choice, &buf);
        drop_marks(choice, choice->n_settled);
        send_events(gen, &buf);
    }
}

/* A control token that marks something goes in between what came before and after it. */
static void take_marker(struct esp_choice *choice, uint32_t token)
{
    const struct esp_form *form = choice->turn.setup.form;
    if (form != NULL && esp_form_takes(form, token)) {
        esp_answer_end(&choice->answer, &choice->text);
        esp_code_add(&choice->text, token);
    }
}

/* Behind reasoning the text begins with the first token that is more than white space, if it begins with it. */
static void note_id(struct esp_choice *choice, uint32_t token, const char *bytes, size_t n_bytes, bool was_thinking)
{
    const struct esp_turn *turn = &choice->turn;
    bool thinks = turn->state == ESP_TURN_THINK;
    size_t n_space = 0;
    if (choice->gen->chat == NULL) {
        return;
    }
    while (n_space < n_bytes && strchr(" \n\t\r", bytes[n_space]) != NULL) {
        n_space++;
    }
    if (choice->thought && !was_thinking && !thinks && choice->text_from == UINT32_MAX && n_space < n_bytes) {
        choice->text_from = n_space == 0 ? (uint32_t)(choice->ids.n / sizeof token) : UINT32_MAX - 1;
    }
    if (was_thinking && !thinks && (esp_turn_open_part(turn) != NULL || turn->held.n > 0)) {
        choice->text_from = UINT32_MAX - 1; /* text in the token that ends the reasoning */
    }
    choice->thought = choice->thought || thinks;
    esp_buf_add(&choice->ids, &token, sizeof token);
}

void esp_choice_token(struct esp_choice *choice, const struct esp_event *event)
{
    size_t n_bytes = 0;
    const char *bytes = esp_token_bytes(choice->gen->vocab, event->token, false, &n_bytes);
    bool stopped = false, was_thinking = choice->turn.state == ESP_TURN_THINK;
    add_mark(choice, event);
    if (bytes == NULL || n_bytes == 0) {
        take_marker(choice, event->token);
    } else {
        stopped = esp_answer_add_bytes(&choice->answer, bytes, n_bytes, &choice->text);
    }
    for (size_t idx = 0; bytes != NULL && idx < n_bytes; idx++) {
        choice->n_chars += ((unsigned char)bytes[idx] & 0xc0) != 0x80;
    }
    settle(choice, false);
    if (stopped) {
        choice->marks.n = choice->n_settled * sizeof(struct esp_mark);
        finish_choice(choice, "stop");
        return;
    }
    pass_on(choice);
    choice->n_reasoning += was_thinking || choice->turn.state == ESP_TURN_THINK;
    note_id(choice, event->token, bytes == NULL ? "" : bytes, n_bytes, was_thinking);
}

void esp_choice_done(struct esp_choice *choice, const char *finish)
{
    esp_answer_end(&choice->answer, &choice->text);
    settle(choice, true);
    finish_choice(choice, finish);
}

/* ---- The end ------------------------------------------------------------------------------------ */

void esp_generation_usage(const struct esp_generation *gen, struct esp_usage *ret_usage)
{
    struct esp_usage usage = {.n_prompt = esp_fork_suffix_tokens(gen)};
    for (uint32_t idx = 0; idx < gen->n_runs; idx++) {
        usage.n_prompt += gen->runs[idx].n_ids;
        usage.n_cached += gen->runs[idx].n_cached;
        usage.n_written += gen->runs[idx].n_written;
        usage.n_refused += gen->runs[idx].n_refused;
    }
    for (uint32_t idx = 0; idx < gen->n_choices; idx++) {
        usage.n_tokens += gen->choices[idx].n_tokens;
        usage.n_reasoning += gen->choices[idx].n_reasoning;
    }
    *ret_usage = usage;
}

static const char *error_code(int status)
{
    return status == 503 ? "cancelled" : status == 504 ? "timeout" : "internal_error";
}

void esp_generation_answer(struct esp_generation *gen)
{
    struct esp_exchange *exchange = gen->exchange;
    if (!gen->params.stream) {
        if (gen->failed) {
            esp_exchange_fail(exchange, gen->error_status, NULL, error_code(gen->error_status), "%s", gen->error);
        } else {
            gen->api->whole(gen, &exchange->out);
        }
        esp_exchange_ready(exchange);
        return;
    }
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, EVENT_BYTES_MAX);
    if (!gen->failed && gen->api->end != NULL) {
        gen->api->end(gen, &buf);
    }
    send_events(gen, &buf);
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
        const char *code = error_code(status);
        esp_buf_init(&buf, ESP_TAG_HTTP, 8192);
        if (gen->api->error != NULL) {
            gen->api->error(gen, status, code, &buf);
        } else {
            esp_buf_str(&buf, "data: ");
            esp_error_json(&buf, gen->exchange, status, NULL, code, gen->error);
            esp_buf_str(&buf, "\n\n");
        }
        send_events(gen, &buf);
        esp_exchange_end(gen->exchange);
    }
}
