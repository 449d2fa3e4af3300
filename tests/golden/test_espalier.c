/* The public header on the real model, as a client uses it: open, tokenize, generate, constrain, read the
 * cache and the counters, close.
 */
#include "runtime/base/alloc.h"
#include "runtime/espalier.h"
#include "tests/esptest.h"

static const char question[] = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";

static esp_engine *open_model(void)
{
    const char *path = esp_test_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (path == NULL) {
        return NULL;
    }
    struct esp_config config = {.model_path = path, .n_ctx = 512};
    struct esp_err err = {0};
    esp_engine *engine = NULL;
    CHECK(esp_engine_open(&config, &engine, &err) == ESP_OK, "%s", err.message);
    return engine;
}

static uint32_t tokenize(esp_engine *engine, const char *text, uint32_t ids[256])
{
    struct esp_span span = {text, strlen(text), true};
    int64_t n = esp_tokenize(esp_engine_vocab(engine), &span, 1, ids, 256, NULL);
    CHECK(n > 0 && n <= 256);
    return (uint32_t)n;
}

/* Generates into text and returns the last event. */
static struct esp_event generate(esp_engine *engine, struct esp_request *request, char *text, size_t room)
{
    struct esp_event event = {.finish = ESP_FINISH_ERROR};
    struct esp_err err = {0};
    esp_request_id id;
    size_t n = 0;
    text[0] = '\0';
    if (esp_submit(engine, request, &id, &err) != ESP_OK) {
        CHECK(false, "%s", err.message);
        return event;
    }
    while (esp_poll(engine, 60 * 1000000000ll, &event) && event.kind != ESP_EVENT_DONE) {
        size_t n_bytes;
        const char *bytes = esp_token_bytes(esp_engine_vocab(engine), event.token, false, &n_bytes);
        if (n + n_bytes < room) {
            memcpy(text + n, bytes, n_bytes);
            text[n += n_bytes] = '\0';
        }
    }
    CHECK(event.id == id && event.kind == ESP_EVENT_DONE);
    return event;
}

static void test_generate(void)
{
    uint32_t ids[256];
    char text[1024];
    esp_engine *engine = open_model();
    if (engine == NULL) {
        return;
    }
    struct esp_request request = {.tokens = ids, .n_tokens = tokenize(engine, question, ids), .n_max = 40, .n = 1,
                                  .sampling = esp_sampling_default()};
    request.sampling.temperature = 0;
    struct esp_event done = generate(engine, &request, text, sizeof text);
    CHECK(done.finish == ESP_FINISH_STOP && strstr(text, "Paris") != NULL, "finish %d: %s", (int)done.finish, text);
    CHECK(done.n_prompt == request.n_tokens && done.n_cached == 0 && done.ttft_ns > 0 && done.total_ns > done.ttft_ns);

    struct esp_metrics m;
    esp_get_metrics(engine, &m);
    CHECK(m.prompt_tokens_computed == request.n_tokens && m.generation_tokens == done.n_generated);
    CHECK(m.requests_finished[ESP_FINISH_STOP] == 1 && m.kv_pages_leased == 0 && m.ttft.n == 1 && m.step.n > 1);

    char *tree;
    REQUIRE(esp_cache_dump(engine, 10, &tree, NULL) == ESP_OK);
    CHECK(strstr(tree, "capital of France") != NULL && strstr(tree, "\"truncated\":false") != NULL, "%s", tree);
    esp_text_free(tree);
    CHECK(esp_cache_flush(engine) >= 1);
    esp_engine_close(engine);
}

static void test_constrained(void)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Berlin\",\"Paris\",\"Rome\"]},"
        "\"sure\":{\"type\":\"boolean\"}},\"required\":[\"city\",\"sure\"],\"additionalProperties\":false}";
    uint32_t ids[256];
    char text[1024];
    esp_engine *engine = open_model();
    if (engine == NULL) {
        return;
    }
    esp_grammar *grammar = NULL;
    struct esp_err err = {0};
    CHECK(esp_vocab_grammar(esp_engine_vocab(engine), "schema", schema, strlen(schema), NULL, &grammar, &err) == ESP_OK,
          "%s", err.message);
    struct esp_request request = {.tokens = ids, .n_tokens = tokenize(engine, question, ids), .n_max = 60, .n = 1,
                                  .sampling = esp_sampling_default(), .grammar = grammar};
    for (uint64_t seed = 0; seed < 4; seed++) {
        char city[16];
        char sure[8];
        request.sampling.seed = seed;
        request.sampling.temperature = seed == 0 ? 0 : 1.5f;
        struct esp_event done = generate(engine, &request, text, sizeof text);
        CHECK(done.finish == ESP_FINISH_STOP, "finish %d %s", (int)done.finish, done.error);
        CHECK(sscanf(text, "{\"city\":\"%15[A-Za-z]\",\"sure\":%7[a-z]}", city, sure) == 2, "%s", text);
        CHECK(seed != 0 || strcmp(city, "Paris") == 0, "%s", text);
    }
    struct esp_metrics m;
    esp_get_metrics(engine, &m);
    CHECK(m.compile.n == 1 && m.compile.sum_s > 0, "%llu compiles", (unsigned long long)m.compile.n);
    CHECK(m.mask.n >= 20, "%llu masks", (unsigned long long)m.mask.n);
    esp_grammar_unref(grammar);
    esp_vocab *other = NULL; /* equal, but not the engine's own */
    esp_request_id id;
    CHECK(esp_vocab_open(esp_test_model("SmolLM2-135M-Instruct.Q4_1.gguf"), &other, &err) == ESP_OK, "%s", err.message);
    CHECK(esp_vocab_grammar(other, "regex", "a+", 2, NULL, &request.grammar, &err) == ESP_OK, "%s", err.message);
    CHECK(esp_submit(engine, &request, &id, &err) == ESP_EINVAL, "%s", err.message);
    CHECK(strcmp(err.place, "grammar") == 0, "%s", err.place);
    esp_grammar_unref(request.grammar);
    esp_vocab_close(other);
    esp_engine_close(engine);
}

/* Decoding on the real device allocates nothing in any thread. */
static void test_no_alloc(void)
{
    uint32_t ids[256];
    esp_engine *engine = open_model();
    if (engine == NULL) {
        return;
    }
    struct esp_request request = {.tokens = ids, .n_tokens = tokenize(engine, question, ids), .n_max = 60, .n = 1,
                                  .sampling = esp_sampling_default(), .ignore_end = true};
    struct esp_event event = {.kind = ESP_EVENT_TOKEN};
    esp_request_id id;
    REQUIRE(esp_submit(engine, &request, &id, NULL) == ESP_OK);
    uint64_t n_calls = 0;
    for (int i = 0; i < 50 && esp_poll(engine, 60 * 1000000000ll, &event); i++) {
        n_calls = i == 4 ? esp_alloc_calls() : n_calls;
    }
    CHECK(event.kind == ESP_EVENT_TOKEN && esp_alloc_calls() == n_calls, "%llu allocations",
          (unsigned long long)(esp_alloc_calls() - n_calls));
    esp_engine_close(engine);
}

static void test_open_errors(void)
{
    const char *path = esp_test_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    esp_engine *engine = NULL;
    struct esp_err err = {0};
    CHECK(esp_engine_open(&(struct esp_config){.model_path = "no/such.gguf"}, &engine, &err) == ESP_EIO);
    CHECK(esp_engine_open(&(struct esp_config){0}, &engine, &err) == ESP_EINVAL);
    CHECK(esp_engine_open(&(struct esp_config){.model_path = "x", .device = "tpu"}, &engine, &err) == ESP_EUNSUPPORTED);
    if (path == NULL) {
        return;
    }
    CHECK(esp_engine_open(&(struct esp_config){.model_path = path, .kv_bytes = 1}, &engine, &err) == ESP_EINVAL &&
              strcmp(err.place, "kv_bytes") == 0, "%s", err.message);
    struct esp_config huge = {.model_path = path, .kv_bytes = 1ull << 44};
    CHECK(esp_engine_open(&huge, &engine, &err) == ESP_ENOMEM && strstr(err.message, "bytes are missing") != NULL, "%s",
          err.message);
    CHECK(esp_engine_open(&(struct esp_config){.model_path = path, .n_batch_max = 5000}, &engine, &err) == ESP_EINVAL &&
              strcmp(err.place, "n_batch_max") == 0, "%s", err.message);
    CHECK(engine == NULL);
}

ESP_TEST_MAIN(T(test_generate), T(test_constrained), T(test_no_alloc), T(test_open_errors))
