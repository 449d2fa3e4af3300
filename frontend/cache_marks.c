/* Where the marked parts of a chat request end in its prompt. See cache_fields.h.
 *
 *   content "…policy" ● "…ticket"       rendered again: "<|im_start|>system\n…policy§0§<|im_end|>…"
 *   the text up to § is tokenized alone; as far as its ids are those of the prompt, they are what the mark pins
 */
#include <string.h>
#include <sys/random.h>

#include "frontend/cache_fields.h"

struct finding {
    json_t *request; /* a copy, with a sign at the end of each marked part */
    const struct esp_cache_fields *fields;
    struct esp_cache_marks *marks;
    struct esp_err *err;
    uint64_t nonce;
    uint32_t n_signs;
    int64_t ttl_ns[ESP_PINS_MAX];
};

static esp_status bad(struct finding *finding, size_t idx, const char *field, const char *message)
{
    esp_fail(finding->err, ESP_EINVAL, "messages[%zu]: '%s' %s", idx, field, message);
    esp_err_place(finding->err, "messages[%zu].%s", idx, field);
    return ESP_EINVAL;
}

static int sign(const struct finding *finding, uint32_t which, char text[48])
{
    return snprintf(text, 48, "CUT%016llxN%02u", (unsigned long long)finding->nonce, which);
}

/* Appends the next sign to the string `field` of `object`. */
static bool add_sign(struct finding *finding, json_t *object, const char *field)
{
    const json_t *old = json_object_get(object, field);
    struct esp_buf text;
    char what[48];
    int n = sign(finding, finding->n_signs, what);
    esp_buf_init(&text, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    esp_buf_add(&text, json_string_value(old), json_string_length(old));
    esp_buf_add(&text, what, (size_t)n);
    bool ok = !text.failed && json_object_set_new(object, field, json_stringn(text.data, text.n)) == 0;
    esp_buf_finish(&text);
    return ok;
}

/* The mark on a message or a part of one: *ret_is_marked, and its time. */
static esp_status read_mark(struct finding *finding, const json_t *object, size_t idx, bool *ret_is_marked)
{
    static const char *const names[] = {"prompt_cache_breakpoint", "cache_control"};
    for (size_t at = 0; at < 2; at++) {
        const json_t *mark = json_object_get(object, names[at]);
        if (mark == NULL || json_is_null(mark) || json_is_false(mark)) {
            continue;
        }
        if (!json_is_object(mark) && !json_is_true(mark)) {
            return bad(finding, idx, names[at], "must be an object");
        }
        if (finding->n_signs == ESP_PINS_MAX) {
            return bad(finding, idx, names[at], "is one more than the 16 that a request may have");
        }
        finding->ttl_ns[finding->n_signs] = finding->fields->ttl_ns;
        if (esp_cache_ttl(json_object_get(mark, "ttl"), &finding->ttl_ns[finding->n_signs]) != ESP_OK) {
            return bad(finding, idx, names[at], "has a 'ttl' that " ESP_CACHE_TTL_FORM);
        }
        *ret_is_marked = true;
    }
    return ESP_OK;
}

/* A message's own mark stands at the end of its content. */
static esp_status sign_message(struct finding *finding, json_t *message, size_t idx)
{
    json_t *content = json_object_get(message, "content");
    size_t n_parts = json_is_array(content) ? json_array_size(content) : 0;
    for (size_t part_idx = 0; part_idx < n_parts; part_idx++) {
        json_t *part = json_array_get(content, part_idx);
        bool is_marked = false;
        esp_status status = read_mark(finding, part, idx, &is_marked);
        if (status == ESP_OK && !is_marked && part_idx + 1 == n_parts) {
            status = read_mark(finding, message, idx, &is_marked);
        }
        if (status != ESP_OK) {
            return status;
        }
        if (is_marked && json_is_string(json_object_get(part, "text"))) {
            finding->marks->n_lost += !add_sign(finding, part, "text");
            finding->n_signs++;
        } else {
            finding->marks->n_lost += is_marked;
        }
    }
    bool is_marked = false;
    esp_status status = n_parts > 0 ? ESP_OK : read_mark(finding, message, idx, &is_marked);
    if (status == ESP_OK && is_marked && json_is_string(content)) {
        finding->marks->n_lost += !add_sign(finding, message, "content");
        finding->n_signs++;
    } else {
        finding->marks->n_lost += is_marked;
    }
    return status;
}

static const char *find(const char *text, size_t n_bytes, const char *what, size_t n_what)
{
    return n_bytes == 0 || n_what == 0 ? NULL : memmem(text, n_bytes, what, n_what);
}

/* The ids of the first n_bytes of the prompt, as far as they are the prompt's. */
static uint32_t tokens_before(const esp_vocab *vocab, const struct esp_prompt *prompt, size_t n_bytes)
{
    struct esp_buf spans, ids;
    esp_buf_init(&spans, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    esp_buf_init(&ids, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    const struct esp_span *all = (const struct esp_span *)(const void *)prompt->rendered.spans.data;
    size_t n_spans = prompt->rendered.spans.n / sizeof *all, n_used = 0, at = 0;
    for (; n_used < n_spans && at < n_bytes; n_used++) {
        struct esp_span span = {prompt->rendered.text.data + at, all[n_used].n_bytes, all[n_used].control};
        span.n_bytes = span.n_bytes < n_bytes - at ? span.n_bytes : n_bytes - at;
        at += span.n_bytes;
        esp_buf_add(&spans, &span, sizeof span);
    }
    size_t cap = n_bytes + 16;
    uint32_t *out = esp_buf_reserve(&ids, cap * sizeof *out);
    int64_t n = -1;
    if (out != NULL && !spans.failed) {
        n = esp_tokenize(vocab, (const struct esp_span *)(const void *)spans.data, n_used, out, cap, NULL);
    }
    const uint32_t *have = (const uint32_t *)(const void *)prompt->ids.data;
    uint32_t n_have = esp_prompt_n_tokens(prompt);
    uint32_t n_bos = n > 0 && n_have > 0 && have[0] == esp_vocab_bos(vocab) && out[0] != have[0];
    uint32_t n_same = 0;
    while (n_same < n && n_same + n_bos < n_have && have[n_same + n_bos] == out[n_same]) {
        n_same++;
    }
    esp_buf_finish(&ids);
    esp_buf_finish(&spans);
    return n_same + n_bos;
}

/* Reads the signs off the second rendering; without them it must be the first, or a sign has changed what the
 * template wrote. */
static void place(struct finding *finding, const esp_vocab *vocab, const struct esp_prompt *prompt,
                  const struct esp_prompt *second)
{
    const struct esp_buf *plain = &prompt->rendered.text, *text = &second->rendered.text;
    struct esp_cache_marks *marks = finding->marks;
    size_t at = 0, n_plain = 0;
    for (uint32_t which = 0; which < finding->n_signs; which++) {
        char what[48];
        size_t n_what = (size_t)sign(finding, which, what);
        const char *found = find(text->data + at, text->n - at, what, n_what);
        size_t n_between = found == NULL ? 0 : (size_t)(found - (text->data + at));
        bool same = found != NULL && n_plain + n_between <= plain->n &&
                    memcmp(plain->data + n_plain, text->data + at, n_between) == 0;
        if (!same) {
            marks->n_lost += finding->n_signs - which;
            return;
        }
        n_plain += n_between;
        at += n_between + n_what;
        uint32_t n_tokens = tokens_before(vocab, prompt, n_plain);
        uint32_t n_pins = marks->n_pins;
        if (n_pins > 0 && n_tokens < marks->pins[n_pins - 1].n_tokens) {
            n_tokens = marks->pins[n_pins - 1].n_tokens;
        }
        marks->pins[marks->n_pins++] = (struct esp_pin){n_tokens, finding->ttl_ns[which]};
    }
}

/* An estimate is enough, since it only tells what goes first: bytes of the tokens. */
static uint32_t head_tokens(const esp_vocab *vocab, const json_t *messages, const struct esp_prompt *prompt)
{
    const json_t *text = NULL;
    for (size_t idx = 0; text == NULL && idx < json_array_size(messages); idx++) {
        const json_t *message = json_array_get(messages, idx);
        const char *role = json_string_value(json_object_get(message, "role"));
        bool is_system = role != NULL && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
        if (!is_system) {
            const json_t *content = json_object_get(message, "content");
            text = json_is_array(content) ? json_object_get(json_array_get(content, 0), "text") : content;
            if (!json_is_string(text)) {
                return 0;
            }
        }
    }
    const struct esp_buf *rendered = &prompt->rendered.text;
    const char *found = find(rendered->data, rendered->n, json_string_value(text), json_string_length(text));
    size_t n_bytes = found == NULL ? 0 : (size_t)(found - rendered->data), sum = 0;
    const uint32_t *ids = (const uint32_t *)(const void *)prompt->ids.data;
    uint32_t n = 0;
    while (n < esp_prompt_n_tokens(prompt) && sum < n_bytes) {
        size_t n_token = 0;
        esp_token_bytes(vocab, ids[n++], true, &n_token);
        sum += n_token;
    }
    return n;
}

static esp_status find_signs(struct finding *finding, const struct esp_chat *chat, const esp_vocab *vocab,
                             const struct esp_prompt *prompt)
{
    json_t *messages = json_object_get(finding->request, "messages");
    for (size_t idx = 0; idx < json_array_size(messages); idx++) {
        esp_status status = sign_message(finding, json_array_get(messages, idx), idx);
        if (status != ESP_OK) {
            return status;
        }
    }
    if (finding->n_signs == 0) {
        return ESP_OK;
    }
    struct esp_prompt second;
    esp_prompt_init(&second);
    esp_status status = esp_chat_prompt(chat, finding->request, &second, finding->err);
    if (status == ESP_OK) {
        place(finding, vocab, prompt, &second);
    }
    esp_prompt_finish(&second);
    return status;
}

static bool has_mark(const json_t *object)
{
    return json_object_get(object, "prompt_cache_breakpoint") != NULL ||
           json_object_get(object, "cache_control") != NULL;
}

static bool has_marks(const json_t *messages)
{
    bool any = false;
    for (size_t idx = 0; idx < json_array_size(messages) && !any; idx++) {
        const json_t *message = json_array_get(messages, idx);
        const json_t *parts = json_object_get(message, "content");
        any = has_mark(message);
        for (size_t part_idx = 0; part_idx < json_array_size(parts) && !any; part_idx++) {
            any = has_mark(json_array_get(parts, part_idx));
        }
    }
    return any;
}

esp_status esp_cache_marks_find(const struct esp_chat *chat, const esp_vocab *vocab, const json_t *request,
                                const struct esp_cache_fields *fields, const struct esp_prompt *prompt,
                                struct esp_cache_marks *ret_marks, struct esp_err *err)
{
    const json_t *messages = json_object_get(request, "messages");
    *ret_marks = (struct esp_cache_marks){.n_head = head_tokens(vocab, messages, prompt)};
    struct finding finding = {.fields = fields, .marks = ret_marks, .err = err};
    if (has_marks(messages)) {
        ssize_t n = getrandom(&finding.nonce, sizeof finding.nonce, 0);
        (void)n; /* small reads do not fail */
        finding.request = json_deep_copy(request);
        esp_status status = finding.request == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory")
                                                    : find_signs(&finding, chat, vocab, prompt);
        json_decref(finding.request);
        if (status != ESP_OK) {
            return status;
        }
    }
    if (fields->pins_all && finding.n_signs == 0) {
        ret_marks->pins[ret_marks->n_pins++] = (struct esp_pin){esp_prompt_n_tokens(prompt), fields->ttl_ns};
    }
    return ESP_OK;
}
