/* Prompts of chats on a real vocabulary: what counts as alike, what is refused and where, control tokens, BOS. */
#include <jansson.h>

#include "frontend/chat.h"
#include "tests/esptest.h"

#define CHATML                                                                                                         \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"                         \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{{ flag }}"

static esp_vocab *open_vocab(void)
{
    const char *path = esp_test_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    esp_vocab *vocab = NULL;
    struct esp_err err = {0};
    if (path != NULL) {
        CHECK(esp_vocab_open(path, &vocab, &err) == ESP_OK, "%s", err.message);
    }
    return vocab;
}

/* The prompt of a request given as JSON text. */
static esp_status prompt_of(const struct esp_chat *chat, const char *text, struct esp_prompt *prompt,
                            struct esp_err *err)
{
    json_t *request = json_loads(text, 0, NULL);
    CHECK(request != NULL, "malformed test: %s", text);
    esp_status status = esp_chat_prompt(chat, request, prompt, err);
    json_decref(request);
    return status;
}

static void test_alike(void)
{
    static const char *const same[][2] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
         "\"text\":\"b\"}]}]}"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}]}", "{\"messages\":[{\"role\":\"assistant\"}]}"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":[]}]}"},
        {"{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}]}",
         "{\"messages\":[{\"role\":\"developer\",\"content\":\"s\"}]}"},
    };
    esp_vocab *vocab = open_vocab();
    struct esp_chat *chat = NULL;
    if (vocab == NULL || esp_chat_open(vocab, CHATML, &chat, NULL) != ESP_OK) {
        return;
    }
    for (size_t idx = 0; idx < sizeof same / sizeof same[0]; idx++) {
        struct esp_prompt a, b;
        struct esp_err err = {0};
        esp_prompt_init(&a);
        esp_prompt_init(&b);
        bool ok =
            prompt_of(chat, same[idx][0], &a, &err) == ESP_OK && prompt_of(chat, same[idx][1], &b, &err) == ESP_OK;
        CHECK(ok && a.ids.n == b.ids.n && memcmp(a.ids.data, b.ids.data, a.ids.n) == 0, "row %zu: %s", idx,
              err.message);
        esp_prompt_finish(&a);
        esp_prompt_finish(&b);
    }
    esp_chat_close(chat);
    esp_vocab_close(vocab);
}

static void test_refused(void)
{
    static const struct {
        const char *request, *place;
    } rows[] = {
        {"{}", "messages"},
        {"{\"messages\":[]}", "messages"},
        {"{\"messages\":\"x\"}", "messages"},
        {"{\"messages\":[1]}", "messages[0]"},
        {"{\"messages\":[{\"content\":\"x\"}]}", "messages[0].role"},
        {"{\"messages\":[{\"role\":\"wizard\",\"content\":\"x\"}]}", "messages[0].role"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\"}]}", "messages[1].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", "messages[0].content[0].type"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]}",
         "messages[0].content[0].text"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":[]}", "chat_template_kwargs"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"chat_template_kwargs\":{\"bos_token\":\"x\"}}",
         "chat_template_kwargs.bos_token"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":1}", "add_generation_prompt"},
    };
    esp_vocab *vocab = open_vocab();
    struct esp_chat *chat = NULL;
    if (vocab == NULL || esp_chat_open(vocab, CHATML, &chat, NULL) != ESP_OK) {
        return;
    }
    for (size_t idx = 0; idx < sizeof rows / sizeof rows[0]; idx++) {
        struct esp_prompt prompt;
        struct esp_err err = {0};
        esp_prompt_init(&prompt);
        esp_status status = prompt_of(chat, rows[idx].request, &prompt, &err);
        CHECK(status == ESP_EINVAL && strcmp(err.place, rows[idx].place) == 0, "%s: %d at %s", rows[idx].request,
              status, err.place);
        esp_prompt_finish(&prompt);
    }
    esp_chat_close(chat);
    esp_vocab_close(vocab);
}

static unsigned count(const struct esp_prompt *prompt, uint32_t id)
{
    const uint32_t *ids = (const uint32_t *)(const void *)prompt->ids.data;
    unsigned n = 0;
    for (uint32_t idx = 0; idx < esp_prompt_n_tokens(prompt); idx++) {
        n += ids[idx] == id;
    }
    return n;
}

static void test_control(void)
{
    esp_vocab *vocab = open_vocab();
    struct esp_chat *chat = NULL;
    struct esp_prompt prompt;
    struct esp_err err = {0};
    if (vocab == NULL || esp_chat_open(vocab, CHATML, &chat, &err) != ESP_OK) {
        return;
    }
    struct esp_span span = {"<|im_end|>", 10, true};
    uint32_t end = 0;
    CHECK(esp_tokenize(vocab, &span, 1, &end, 1, NULL) == 1, "one token");
    esp_prompt_init(&prompt);
    esp_status status = prompt_of(chat,
                                  "{\"messages\":[{\"role\":\"user\",\"content\":\"a<|im_end|>b\"}],"
                                  "\"chat_template_kwargs\":{\"flag\":\"<|im_end|>\"}}",
                                  &prompt, &err);
    CHECK(status == ESP_OK && count(&prompt, end) == 1, "%s: %u end tokens", err.message, count(&prompt, end));
    CHECK(strstr(prompt.rendered.text.data, "a<|im_end|>b<|im_end|>\n<|im_start|>assistant\n<|im_end|>") != NULL, "%s",
          prompt.rendered.text.data);
    status = esp_chat_plain(chat, "a<|im_end|>b", 12, &prompt, &err);
    CHECK(status == ESP_OK && count(&prompt, end) == 1, "special tokens of a plain text are tokens");
    status = esp_chat_plain(chat, "", 0, &prompt, &err);
    CHECK(status == ESP_OK && esp_prompt_n_tokens(&prompt) == (esp_vocab_adds_bos(vocab) ? 1u : 0u), "empty text");
    esp_prompt_finish(&prompt);
    esp_chat_close(chat);
    esp_vocab_close(vocab);
}

static void test_bos(void)
{
    const char *path = esp_test_model("gemma-3-270m-Q4_K_M.gguf");
    esp_vocab *vocab = NULL;
    struct esp_chat *chat = NULL, *none = NULL;
    struct esp_prompt prompt;
    struct esp_err err = {0};
    if (path == NULL || esp_vocab_open(path, &vocab, &err) != ESP_OK) {
        CHECK(path == NULL, "%s", err.message);
        return;
    }
    CHECK(esp_vocab_adds_bos(vocab), "this vocabulary adds BOS");
    esp_prompt_init(&prompt);
    static const char *const templates[] = {"{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"};
    for (int idx = 0; idx < 2; idx++) {
        CHECK(esp_chat_open(vocab, templates[idx], &chat, &err) == ESP_OK, "%s", err.message);
        esp_status status =
            prompt_of(chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"<bos>x\"}]}", &prompt, &err);
        const uint32_t *ids = (const uint32_t *)(const void *)prompt.ids.data;
        CHECK(status == ESP_OK && ids[0] == esp_vocab_bos(vocab) && count(&prompt, ids[0]) == 1, "template %d: %u BOS",
              idx, count(&prompt, ids[0]));
        esp_chat_close(chat);
    }
    CHECK(esp_chat_open(vocab, NULL, &none, &err) == ESP_OK, "a model without a template opens");
    esp_status status = prompt_of(none, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", &prompt, &err);
    CHECK(status == ESP_EUNSUPPORTED, "and refuses chats: %d", status);
    CHECK(esp_chat_plain(none, "x", 1, &prompt, &err) == ESP_OK && count(&prompt, esp_vocab_bos(vocab)) == 1,
          "but plain text goes");
    CHECK(esp_chat_open(vocab, "{% if %}", &chat, &err) == ESP_EINVAL, "a broken template given by hand is an error");
    esp_chat_close(none);
    esp_prompt_finish(&prompt);
    esp_vocab_close(vocab);
}

ESP_TEST_MAIN(T(test_alike), T(test_refused), T(test_control), T(test_bos))
