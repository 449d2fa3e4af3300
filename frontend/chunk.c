/* What chat and completions share: chunks and whole answers around the inside of a choice, usage, logprobs' digits.
 *
 * A chunk is one line of data with one choice. The first of a stream carries the warnings. With include_usage a
 * last chunk without choices has the usage, and all others a null. Thread: under the generation's lock.
 */
#include <math.h>

#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"

const char *esp_mark_bytes(const struct esp_generation *gen, uint32_t token, size_t *ret_n_bytes)
{
    *ret_n_bytes = 0;
    const char *bytes = esp_token_bytes(gen->vocab, token, false, ret_n_bytes);
    if (bytes == NULL || *ret_n_bytes == 0) {
        bytes = esp_token_bytes(gen->vocab, token, true, ret_n_bytes);
    }
    return bytes == NULL ? "" : bytes;
}

void esp_mark_quote(const struct esp_generation *gen, struct esp_buf *buf, uint32_t token)
{
    size_t n_bytes = 0;
    const char *bytes = esp_mark_bytes(gen, token, &n_bytes);
    esp_jsontext_quote(buf, bytes, n_bytes);
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

static void write_head(const struct esp_generation *gen, struct esp_buf *buf, const char *object)
{
    esp_buf_printf(buf, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", gen->id, object,
                   (long long)gen->created_s);
    esp_jsontext_quote_str(buf, gen->exchange->server->model_name);
}

static void write_usage(const struct esp_generation *gen, struct esp_buf *buf)
{
    struct esp_usage usage;
    esp_generation_usage(gen, &usage);
    esp_buf_printf(buf,
                   "\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"total_tokens\":%llu,"
                   "\"prompt_tokens_details\":{\"cached_tokens\":%llu,\"cache_write_tokens\":%llu",
                   (unsigned long long)usage.n_prompt, (unsigned long long)usage.n_tokens,
                   (unsigned long long)(usage.n_prompt + usage.n_tokens), (unsigned long long)usage.n_cached,
                   (unsigned long long)usage.n_written);
    if (usage.n_refused > 0) {
        esp_buf_printf(buf, ",\"cache_refused_tokens\":%llu", (unsigned long long)usage.n_refused);
    }
    esp_buf_str(buf, "}}");
}

static void open_data(struct esp_generation *gen, struct esp_buf *buf)
{
    esp_buf_str(buf, "data: ");
    write_head(gen, buf, gen->api->chunk_object);
    if (!gen->chunk_sent && gen->params.warnings.n > 0) {
        esp_buf_printf(buf, ",\"warnings\":[%s]", gen->params.warnings.data);
    }
    gen->chunk_sent = true;
}

void esp_chunk_open(struct esp_choice *choice, struct esp_buf *buf)
{
    open_data(choice->gen, buf);
    esp_buf_printf(buf, ",\"choices\":[{\"index\":%u,", choice->index);
}

void esp_chunk_close(struct esp_choice *choice, struct esp_buf *buf)
{
    if (choice->finish == NULL) {
        esp_buf_str(buf, ",\"finish_reason\":null}]");
    } else {
        esp_scores_write(choice, buf);
        esp_buf_printf(buf, ",\"finish_reason\":\"%s\"}]", choice->finish);
    }
    esp_buf_str(buf, choice->gen->params.include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

void esp_chunk_end(struct esp_generation *gen, struct esp_buf *buf)
{
    if (gen->params.include_usage) {
        open_data(gen, buf);
        esp_buf_str(buf, ",\"choices\":[],");
        write_usage(gen, buf);
        esp_buf_str(buf, "}\n\n");
    }
    esp_buf_str(buf, "data: [DONE]\n\n");
}

void esp_chunk_whole(struct esp_generation *gen, struct esp_buf *buf,
                     void (*inside)(struct esp_choice *choice, struct esp_buf *buf))
{
    write_head(gen, buf, gen->api->object);
    esp_buf_str(buf, ",\"choices\":[");
    for (uint32_t idx = 0; idx < gen->n_choices; idx++) {
        struct esp_choice *choice = &gen->choices[idx];
        esp_buf_printf(buf, "%s{\"index\":%u,", idx > 0 ? "," : "", idx);
        inside(choice, buf);
        esp_scores_write(choice, buf);
        esp_buf_printf(buf, ",\"finish_reason\":\"%s\"}", choice->finish);
    }
    esp_buf_str(buf, "],");
    write_usage(gen, buf);
    if (gen->params.warnings.n > 0) {
        esp_buf_printf(buf, ",\"warnings\":[%s]", gen->params.warnings.data);
    }
    esp_buf_char(buf, '}');
}
