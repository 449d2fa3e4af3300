/* Fields of requests: a table of what is taken and what is refused, and random bodies that must never crash. */
#include "frontend/request.h"

#include "frontend/jsontext.h"
#include "tests/esptest.h"

#define N_VOCAB 1000u

const char *esp_token_bytes(const esp_vocab *vocab, uint32_t id, bool control, size_t *ret_n_bytes)
{
    return NULL;
}

struct esp_sampling esp_sampling_default(void)
{
    return (struct esp_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

struct parsed {
    json_t *json;
    struct esp_arena arena;
    struct esp_params params;
    struct esp_err err;
    esp_status status;
};

static void parse(struct parsed *p, const char *text, size_t n_bytes, unsigned api, bool strict)
{
    *p = (struct parsed){0};
    esp_arena_init(&p->arena, ESP_TAG_HTTP, 1u << 20);
    p->json = esp_jsontext_parse(text, n_bytes, &p->err);
    p->status = p->json == NULL ? ESP_EINVAL : ESP_OK;
    if (p->json != NULL) {
        struct esp_request_source source = {.json = p->json,
                                            .text = text,
                                            .n_bytes = n_bytes,
                                            .n_vocab = N_VOCAB,
                                            .api = api,
                                            .strict_fields = strict,
                                            .random_seed = 77};
        p->status = esp_request_parse(&source, &p->arena, &p->params, &p->err);
    }
}

static void drop(struct parsed *p)
{
    esp_buf_finish(&p->params.warnings);
    esp_arena_finish(&p->arena);
    json_decref(p->json);
}

/* param NULL: taken. */
static const struct {
    unsigned api;
    const char *text, *param;
} rows[] = {
    {ESP_API_CHAT, "{}", NULL},
    {ESP_API_CHAT, "{\"temperature\":0}", NULL},
    {ESP_API_CHAT, "{\"temperature\":2}", NULL},
    {ESP_API_CHAT, "{\"temperature\":2.0001}", "temperature"},
    {ESP_API_CHAT, "{\"temperature\":false}", "temperature"},
    {ESP_API_CHAT, "{\"top_p\":\"0.5\"}", "top_p"},
    {ESP_API_CHAT, "{\"n\":64}", NULL},
    {ESP_API_CHAT, "{\"n\":65}", "n"},
    {ESP_API_CHAT, "{\"n\":1.5}", "n"},
    {ESP_API_CHAT, "{\"max_tokens\":0}", "max_tokens"},
    {ESP_API_CHAT, "{\"max_tokens\":9223372036854775807}", NULL},
    {ESP_API_CHAT, "{\"seed\":-9223372036854775808}", NULL},
    {ESP_API_CHAT, "{\"logit_bias\":{\"999\":-100}}", NULL},
    {ESP_API_CHAT, "{\"logit_bias\":{\"1000\":1}}", "logit_bias"},
    {ESP_API_CHAT, "{\"logit_bias\":{\"\":1}}", "logit_bias"},
    {ESP_API_CHAT, "{\"logit_bias\":{\"18446744073709551617\":1}}", "logit_bias"},
    {ESP_API_CHAT, "{\"stop\":\"\\u0000\"}", "stop"},
    {ESP_API_CHAT, "{\"stop\":[\"a\",\"\\u00e9\"]}", NULL},
    {ESP_API_CHAT, "{\"logprobs\":true,\"top_logprobs\":20}", NULL},
    {ESP_API_CHAT, "{\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs"},
    {ESP_API_CHAT, "{\"top_logprobs\":0}", "top_logprobs"},
    {ESP_API_COMPLETIONS, "{\"logprobs\":20}", NULL},
    {ESP_API_COMPLETIONS, "{\"logprobs\":false}", NULL},
    {ESP_API_COMPLETIONS, "{\"logprobs\":true}", "logprobs"},
    {ESP_API_COMPLETIONS, "{\"best_of\":2,\"n\":2}", NULL},
    {ESP_API_COMPLETIONS, "{\"best_of\":2}", "best_of"},
    {ESP_API_COMPLETIONS, "{\"suffix\":\"\"}", NULL},
    {ESP_API_COMPLETIONS, "{\"suffix\":\"a\"}", "suffix"},
    {ESP_API_CHAT, "{\"stream_options\":{}}", "stream_options"},
    {ESP_API_CHAT, "{\"stream\":true,\"stream_options\":{\"include_usage\":1}}", "stream_options.include_usage"},
    {ESP_API_CHAT, "{\"cache_salt\":\"a\\u0000b\"}", NULL},
    {ESP_API_CHAT, "{\"tools\":[]}", NULL},
    {ESP_API_CHAT, "{\"functions\":[{}]}", "functions"},
    {ESP_API_CHAT, "{\"regex\":\"a\",\"lark\":\"b\"}", "lark"},
    {ESP_API_CHAT, "{\"response_format\":{\"type\":\"json_object\"},\"choice\":[\"a\"]}", "choice"},
    {ESP_API_CHAT, "{\"response_format\":{\"type\":\"text\"},\"choice\":[\"a\"]}", NULL},
    {ESP_API_CHAT, "{\"structured_outputs\":{\"regex\":\"a\",\"json\":{}}}", "structured_outputs.json"},
    {ESP_API_CHAT, "{\"structured_outputs\":{\"options\":[]}}", "structured_outputs.options"},
    {ESP_API_CHAT, "{\"regex\":\"a\\u0000\"}", "regex"},
    {ESP_API_CHAT, "{\"guided_json\":null}", NULL},
    {ESP_API_CHAT, "{\"guided_json\":{}}", "guided_json"},
    {ESP_API_CHAT, "{\"ignore_eos\":true,\"regex\":\"a\"}", "ignore_eos"},
};

static void test_table(void)
{
    for (size_t idx = 0; idx < sizeof rows / sizeof rows[0]; idx++) {
        struct parsed p;
        parse(&p, rows[idx].text, strlen(rows[idx].text), rows[idx].api, false);
        if (rows[idx].param == NULL) {
            CHECK(p.status == ESP_OK, "%s: %s", rows[idx].text, p.err.message);
        } else {
            CHECK(p.status != ESP_OK && strcmp(p.err.place, rows[idx].param) == 0, "%s: place %s, %s", rows[idx].text,
                  p.err.place, p.err.message);
        }
        drop(&p);
    }
}

static void test_values(void)
{
    static const char text[] =
        "{\"temperature\":0.5,\"top_k\":40,\"seed\":-1,\"stop\":[\"a\",\"bc\"],\"max_completion_tokens\":7,\"n\":3,"
        "\"logit_bias\":{\"5\":1.5},\"cache_salt\":\"x\\u0000y\",\"logprobs\":true,\"top_logprobs\":4,\"stream\":true,"
        "\"structured_outputs\":{\"json\": {\"minimum\":1.0} ,\"options\":{\"order\":\"any\"}},\"odd\":1}";
    struct parsed p;
    parse(&p, text, sizeof text - 1, ESP_API_CHAT, false);
    REQUIRE(p.status == ESP_OK, "%s", p.err.message);
    const struct esp_params *q = &p.params;
    CHECK(q->sampling.temperature == 0.5f && q->sampling.top_k == 40 && q->sampling.seed == UINT64_MAX, "sampling");
    CHECK(q->n_stops == 2 && strcmp(q->stops[1], "bc") == 0, "stops");
    CHECK(q->n_max == 7 && q->n == 3 && q->stream && !q->include_usage, "counts");
    CHECK(q->sampling.n_bias == 1 && q->sampling.bias_ids[0] == 5 && q->sampling.bias[0] == 1.5f, "bias");
    CHECK(q->cache_salt_bytes == 3 && memcmp(q->cache_salt, "x\0y", 3) == 0, "salt");
    CHECK(q->sampling.logprobs && q->sampling.n_top_logprobs == 4, "logprobs");
    CHECK(strcmp(q->constraint.kind, "schema") == 0 && strcmp(q->constraint.text, "{\"minimum\":1.0}") == 0,
          "schema %s", q->constraint.text);
    CHECK(strcmp(q->constraint.options, "{\"order\":\"any\"}") == 0, "options %s", q->constraint.options);
    CHECK(strstr(q->warnings.data, "\"param\":\"odd\"") != NULL, "warnings %s", q->warnings.data);
    drop(&p);
}

static void test_defaults(void)
{
    struct parsed p;
    parse(&p, "{}", 2, ESP_API_COMPLETIONS, false);
    CHECK(p.params.n_max == 16 && p.params.sampling.seed == 77 && p.params.n == 1 && p.params.warnings.n == 0,
          "defaults");
    drop(&p);
    parse(&p, "{\"odd\":1}", 9, ESP_API_CHAT, true);
    CHECK(p.status == ESP_EINVAL && strcmp(p.err.place, "odd") == 0, "strict fields: %s", p.err.place);
    drop(&p);
}

/* Bodies made of known field names with values of every kind; a sanitizer watches. */
static void random_body(struct esp_rng *rng, struct esp_buf *buf)
{
    static const char *const names[] = {"temperature",
                                        "n",
                                        "stop",
                                        "logit_bias",
                                        "response_format",
                                        "structured_outputs",
                                        "max_tokens",
                                        "choice",
                                        "regex",
                                        "stream",
                                        "stream_options",
                                        "seed",
                                        "tools",
                                        "cache_salt",
                                        "top_logprobs",
                                        "logprobs",
                                        "type",
                                        "json",
                                        "schema",
                                        "json_schema",
                                        "options",
                                        "odd",
                                        "grammar",
                                        "name",
                                        "strict"};
    static const char *const values[] = {
        "null",      "true",         "0",           "1",       "-1",     "1e300",           "0.5", "\"\"",
        "\"text\"",  "[]",           "{}",          "[\"a\"]", "[1,[]]", "\"json_schema\"", "64",  "\"\\u0000\"",
        "{\"5\":5}", "\"\xc3\xa9\"", "123456789012"};
    int depth = 1;
    esp_buf_char(buf, '{');
    for (uint64_t left = esp_rng_below(rng, 12); left > 0; left--) {
        esp_buf_printf(buf, "\"%s\":", names[esp_rng_below(rng, sizeof names / sizeof names[0])]);
        if (esp_rng_below(rng, 3) == 0 && depth < 5) {
            esp_buf_char(buf, '{');
            depth++;
            continue;
        }
        esp_buf_str(buf, values[esp_rng_below(rng, sizeof values / sizeof values[0])]);
        if (esp_rng_below(rng, 4) == 0 && depth > 1) {
            esp_buf_char(buf, '}');
            depth--;
        }
        esp_buf_char(buf, ',');
    }
    esp_buf_str(buf, "\"z\":1");
    while (depth-- > 0) {
        esp_buf_char(buf, '}');
    }
    if (esp_rng_below(rng, 4) == 0) {
        buf->data[esp_rng_below(rng, buf->n)] = "\"\\{}[]:,0\xff"[esp_rng_below(rng, 10)];
    }
}

static void test_random_bodies(void)
{
    int n_taken = 0;
    for (int round = 0; round < 20000; round++) {
        struct esp_buf body;
        struct parsed p;
        esp_buf_init(&body, ESP_TAG_MISC, 1u << 16);
        random_body(&esp_test_state.rng, &body);
        parse(&p, body.data, body.n, round % 2 == 0 ? ESP_API_CHAT : ESP_API_COMPLETIONS, round % 8 == 0);
        CHECK(p.status == ESP_OK || p.err.message[0] != '\0', "refused without a word: %s", body.data);
        n_taken += p.status == ESP_OK;
        drop(&p);
        esp_buf_finish(&body);
    }
    CHECK(n_taken > 500, "only %d bodies were taken: the generator is too wild", n_taken);
}

ESP_TEST_MAIN(T(test_table), T(test_values), T(test_defaults), T(test_random_bodies))
