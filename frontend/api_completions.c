/* POST /v1/completions: prompts as text or ids, one or many, and the older shapes of answers. */
#include <string.h>

#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"
#include "runtime/base/json.h"

/* Do two tokens print alike (parts of characters, mostly)? A JSON object can name a text once. */
static bool same_text(const struct esp_generation *gen, uint32_t one, uint32_t other)
{
    struct esp_buf texts[2];
    bool same = one == other;
    for (int idx = 0; idx < 2 && !same; idx++) {
        esp_buf_init(&texts[idx], ESP_TAG_HTTP, 1u << 20);
        esp_mark_quote(gen, &texts[idx], idx == 0 ? one : other);
    }
    if (!same) {
        same = texts[0].n == texts[1].n && memcmp(texts[0].data, texts[1].data, texts[0].n) == 0;
        esp_buf_finish(&texts[0]);
        esp_buf_finish(&texts[1]);
    }
    return same;
}

/* The likeliest alternatives by text, and the chosen token when it is not among them. */
static void write_tops(const struct esp_choice *choice, const struct esp_mark *mark, struct esp_buf *buf)
{
    const struct esp_generation *gen = choice->gen;
    const struct esp_top *tops = esp_choice_tops(choice);
    bool has_chosen = false;
    esp_buf_char(buf, '{');
    for (uint32_t idx = 0; idx < mark->n_top; idx++) {
        const struct esp_top *top = &tops[mark->top_idx + idx];
        bool seen = false;
        for (uint32_t before = 0; before < idx && !seen; before++) {
            seen = same_text(gen, tops[mark->top_idx + before].token, top->token);
        }
        if (seen) {
            continue;
        }
        has_chosen = has_chosen || same_text(gen, top->token, mark->token);
        esp_buf_add(buf, ",", idx > 0);
        esp_mark_quote(gen, buf, top->token);
        esp_buf_char(buf, ':');
        esp_logprob_write(buf, top->logprob);
    }
    if (!has_chosen) {
        esp_buf_add(buf, ",", mark->n_top > 0);
        esp_mark_quote(gen, buf, mark->token);
        esp_buf_char(buf, ':');
        esp_logprob_write(buf, mark->logprob);
    }
    esp_buf_char(buf, '}');
}

static void write_logprobs(const struct esp_choice *choice, struct esp_buf *buf)
{
    const struct esp_generation *gen = choice->gen;
    if (!gen->params.sampling.logprobs) {
        esp_buf_str(buf, ",\"logprobs\":null");
        return;
    }
    const struct esp_mark *marks = esp_choice_marks(choice);
    static const char *const names[] = {"{\"tokens\":[", "],\"ids\":[", "],\"token_logprobs\":[", "],\"text_offset\":[",
                                        "],\"top_logprobs\":["};
    esp_buf_str(buf, ",\"logprobs\":");
    for (int part = 0; part < 5; part++) {
        esp_buf_str(buf, names[part]);
        for (size_t idx = 0; idx < choice->n_settled; idx++) {
            esp_buf_add(buf, ",", idx > 0);
            switch (part) {
            case 0: esp_mark_quote(gen, buf, marks[idx].token); break;
            case 1: esp_buf_printf(buf, "%u", marks[idx].token); break;
            case 2: esp_logprob_write(buf, marks[idx].logprob); break;
            case 3: esp_buf_printf(buf, "%u", marks[idx].at_chars); break;
            default: write_tops(choice, &marks[idx], buf); break;
            }
        }
    }
    esp_buf_str(buf, "]}");
}

static void write_piece(struct esp_choice *choice, const struct esp_part *part, const char *text, size_t n_bytes,
                        struct esp_buf *buf)
{
    esp_chunk_open(choice, buf);
    esp_buf_str(buf, "\"text\":");
    esp_jsontext_quote(buf, text, n_bytes);
    write_logprobs(choice, buf);
    esp_chunk_close(choice, buf);
}

static void write_last(struct esp_choice *choice, struct esp_buf *buf)
{
    esp_chunk_open(choice, buf);
    esp_buf_str(buf, "\"text\":\"\"");
    if (choice->n_settled > 0) {
        write_logprobs(choice, buf);
    } else {
        esp_buf_str(buf, ",\"logprobs\":null");
    }
    esp_chunk_close(choice, buf);
}

static void write_text(struct esp_choice *choice, struct esp_buf *buf)
{
    const struct esp_part *part = choice->turn.n_parts > 0 ? choice->turn.parts[0] : NULL;
    esp_buf_str(buf, "\"text\":");
    esp_jsontext_quote(buf, part == NULL ? "" : part->text.data, part == NULL ? 0 : part->text.n);
    write_logprobs(choice, buf);
}

static void write_whole(struct esp_generation *gen, struct esp_buf *buf)
{
    esp_chunk_whole(gen, buf, write_text);
}

static const struct esp_gen_api api_completions = {
    .id_prefix = "cmpl-",
    .prompt_param = "prompt",
    .object = "text_completion",
    .chunk_object = "text_completion",
    .part_piece = write_piece,
    .last = write_last,
    .end = esp_chunk_end,
    .whole = write_whole,
};

/* ---- Prompts ------------------------------------------------------------------------------------ */

static esp_status bad_prompt(struct esp_err *err)
{
    esp_fail(err, ESP_EINVAL, "'prompt' must be a string, an array of token ids, or an array of either");
    esp_err_place(err, "prompt");
    return ESP_EINVAL;
}

static esp_status set_echo(struct esp_generation *gen, const char *text, size_t n_bytes, struct esp_err *err)
{
    if (!gen->params.echo) {
        return ESP_OK;
    }
    struct esp_run *run = &gen->runs[gen->n_runs - 1];
    run->echo = esp_arena_strndup(&gen->arena, text, n_bytes);
    run->echo_bytes = n_bytes;
    return run->echo == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
}

static esp_status add_text(struct esp_generation *gen, const struct esp_chat *chat, const json_t *value,
                           struct esp_err *err)
{
    struct esp_prompt prompt;
    esp_prompt_init(&prompt);
    esp_status status = esp_chat_plain(chat, json_string_value(value), json_string_length(value), &prompt, err);
    if (status == ESP_OK) {
        status = esp_generation_prompt(gen, (const uint32_t *)(const void *)prompt.ids.data,
                                       esp_prompt_n_tokens(&prompt), err);
    }
    esp_prompt_finish(&prompt);
    return status == ESP_OK ? set_echo(gen, json_string_value(value), json_string_length(value), err) : status;
}

static esp_status echo_ids(struct esp_generation *gen, const uint32_t *ids, size_t n_ids, struct esp_err *err)
{
    if (!gen->params.echo) {
        return ESP_OK;
    }
    int64_t n_bytes = esp_detokenize(gen->vocab, ids, n_ids, true, NULL, 0);
    char *text = n_bytes < 0 ? NULL : esp_malloc(ESP_TAG_HTTP, (size_t)n_bytes + 1);
    if (text == NULL || esp_detokenize(gen->vocab, ids, n_ids, true, text, (size_t)n_bytes) != n_bytes) {
        esp_free(text);
        return esp_fail(err, ESP_EINTERNAL, "the prompt cannot be turned to text");
    }
    esp_status status = set_echo(gen, text, (size_t)n_bytes, err);
    esp_free(text);
    return status;
}

static esp_status add_ids(struct esp_generation *gen, const json_t *array, struct esp_err *err)
{
    size_t n_ids = json_array_size(array);
    uint32_t *ids = esp_calloc(ESP_TAG_HTTP, n_ids, sizeof *ids);
    if (ids == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    esp_status status = ESP_OK;
    uint32_t n_vocab = esp_vocab_n_tokens(gen->vocab);
    for (size_t idx = 0; idx < n_ids && status == ESP_OK; idx++) {
        const json_t *value = json_array_get(array, idx);
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value)) {
            status = bad_prompt(err);
        } else if (id < 0 || id >= (json_int_t)n_vocab) {
            status = esp_fail(err, ESP_EINVAL, "token id %lld is outside the vocabulary of %u", (long long)id, n_vocab);
            esp_err_place(err, "prompt");
        } else {
            ids[idx] = (uint32_t)id;
        }
    }
    if (status == ESP_OK) {
        status = esp_generation_prompt(gen, ids, (uint32_t)n_ids, err);
    }
    if (status == ESP_OK) {
        status = echo_ids(gen, ids, n_ids, err);
    }
    esp_free(ids);
    return status;
}

static esp_status add_prompts(struct esp_generation *gen, const struct esp_chat *chat, const json_t *prompt,
                              struct esp_err *err)
{
    if (json_is_string(prompt)) {
        return add_text(gen, chat, prompt, err);
    }
    if (!json_is_array(prompt) || json_array_size(prompt) == 0) {
        return bad_prompt(err);
    }
    if (json_is_integer(json_array_get(prompt, 0))) {
        return add_ids(gen, prompt, err);
    }
    esp_status status = ESP_OK;
    for (size_t idx = 0; idx < json_array_size(prompt) && status == ESP_OK; idx++) {
        const json_t *value = json_array_get(prompt, idx);
        if (json_is_string(value)) {
            status = add_text(gen, chat, value, err);
        } else {
            status = json_is_array(value) ? add_ids(gen, value, err) : bad_prompt(err);
        }
    }
    return status;
}

void esp_api_completions(struct esp_exchange *exchange)
{
    json_t *request = esp_exchange_json(exchange);
    if (request == NULL) {
        return;
    }
    struct esp_err err = {0};
    struct esp_generation *gen =
        esp_generation_create(exchange, &api_completions, NULL, ESP_API_COMPLETIONS, request, exchange->body.data,
                              exchange->body.n);
    esp_status status = ESP_OK;
    if (gen != NULL) {
        status = add_prompts(gen, esp_exchange_chat(exchange), json_object_get(request, "prompt"), &err);
    }
    json_decref(request);
    esp_buf_finish(&exchange->body); /* not needed while it waits */
    if (status != ESP_OK) {
        esp_exchange_fail_err(exchange, &err, "prompt");
    } else if (gen != NULL) {
        esp_generation_start(gen);
    }
}
