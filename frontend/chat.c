/* From a chat request to the ids of its prompt: messages checked and made alike, rendered, tokenized by spans.
 *
 * What a template sees of a message is its role, its content as one string, and whatever other fields the client
 * sent. The text of control tokens becomes tokens only where the template wrote it. chat_template_kwargs cannot
 * replace what the server itself passes. Thread: read-only after open; a prompt has one owner.
 */
#include "frontend/chat_internal.h"

#include <string.h>
#include <time.h>

#include "runtime/base/json.h"

#define PROMPT_IDS_BYTES_MAX (256u * 1024u * 1024u)

/* ---- Opening ----------------------------------------------------------------------------------- */

esp_status esp_chat_open(const esp_vocab *vocab, const char *template_text, struct esp_chat **ret_chat,
                         struct esp_err *err)
{
    const char *text = template_text != NULL ? template_text : esp_vocab_meta(vocab, "tokenizer.chat_template");
    struct esp_chat *chat = esp_calloc(ESP_TAG_HTTP, 1, sizeof *chat);
    if (chat == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    chat->vocab = vocab;
    if (text == NULL) {
        esp_fail(&chat->reason, ESP_EUNSUPPORTED, "the model has no chat template; give one with --chat-template");
    } else {
        struct esp_err detail = {0};
        esp_status status = esp_template_compile(text, strlen(text), &chat->tmpl, &detail);
        if (status != ESP_OK && template_text != NULL) {
            esp_chat_close(chat);
            return esp_fail(err, status, "chat template: %.400s", detail.message);
        }
        if (status != ESP_OK) {
            esp_fail(&chat->reason, ESP_EUNSUPPORTED, "the model's chat template cannot be used: %.400s",
                     detail.message);
        }
        chat->knows_developer = strstr(text, "developer") != NULL;
    }
    esp_arena_init(&chat->form.arena, ESP_TAG_HTTP, ESP_FORM_BYTES_MAX);
    esp_status status = chat->tmpl == NULL ? ESP_OK : esp_chat_probe(chat, text, err);
    if (status == ESP_OK && chat->tmpl != NULL) {
        chat->replay = esp_replay_create(ESP_REPLAY_BYTES_MAX);
        status = chat->replay == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
    }
    if (status != ESP_OK) {
        esp_chat_close(chat);
        return status;
    }
    *ret_chat = chat;
    return ESP_OK;
}

void esp_chat_close(struct esp_chat *chat)
{
    if (chat != NULL) {
        esp_template_destroy(chat->tmpl);
        esp_replay_destroy(chat->replay);
        esp_arena_finish(&chat->form.arena);
        esp_free(chat);
    }
}

const struct esp_form *esp_chat_form(const struct esp_chat *chat)
{
    return &chat->form;
}

void esp_chat_show(const struct esp_chat *chat, struct esp_buf *buf)
{
    if (chat->tmpl == NULL) {
        esp_buf_str(buf, chat->reason.message);
    } else {
        esp_form_show(&chat->form, buf);
    }
}

void esp_prompt_init(struct esp_prompt *prompt)
{
    esp_rendered_init(&prompt->rendered);
    esp_buf_init(&prompt->ids, ESP_TAG_HTTP, PROMPT_IDS_BYTES_MAX);
    esp_buf_init(&prompt->splices, ESP_TAG_HTTP, PROMPT_IDS_BYTES_MAX);
    esp_buf_init(&prompt->splice_ids, ESP_TAG_HTTP, PROMPT_IDS_BYTES_MAX);
}

void esp_prompt_finish(struct esp_prompt *prompt)
{
    esp_rendered_finish(&prompt->rendered);
    esp_buf_finish(&prompt->ids);
    esp_buf_finish(&prompt->splices);
    esp_buf_finish(&prompt->splice_ids);
}

/* ---- Context ----------------------------------------------------------------------------------- */

static json_t *token_text(const esp_vocab *vocab, uint32_t id)
{
    size_t n = 0;
    const char *bytes = id != ESP_TOKEN_NONE ? esp_token_bytes(vocab, id, true, &n) : NULL;
    json_t *text = bytes != NULL ? json_stringn(bytes, n) : NULL; /* NULL too when it is no UTF-8 */
    return text != NULL ? text : json_string("");
}

bool esp_chat_set_tokens(const struct esp_chat *chat, json_t *context)
{
    bool ok = json_object_set_new(context, "bos_token", token_text(chat->vocab, esp_vocab_bos(chat->vocab))) == 0;
    return json_object_set_new(context, "eos_token", token_text(chat->vocab, esp_vocab_eos(chat->vocab))) == 0 && ok;
}

static esp_status add_kwargs(const json_t *request, json_t *context, struct esp_err *err)
{
    json_t *kwargs = json_object_get(request, "chat_template_kwargs");
    if (kwargs == NULL || json_is_null(kwargs)) {
        return ESP_OK;
    }
    if (!json_is_object(kwargs)) {
        esp_fail(err, ESP_EINVAL, "chat_template_kwargs: an object is needed");
        esp_err_place(err, "chat_template_kwargs");
        return ESP_EINVAL;
    }
    static const char *const reserved[] = {
        "messages",  "tools",     "documents", "add_generation_prompt", "bos_token",
        "eos_token", "pad_token", "unk_token", "raise_exception",       "strftime_now",
        "namespace", "range",     "dict"};
    const char *key;
    json_t *value;
    json_object_foreach(kwargs, key, value)
    {
        for (size_t idx = 0; idx < sizeof reserved / sizeof reserved[0]; idx++) {
            if (strcmp(key, reserved[idx]) == 0) {
                esp_fail(err, ESP_EINVAL, "chat_template_kwargs: %s cannot be replaced", key);
                esp_err_place(err, "chat_template_kwargs.%s", key);
                return ESP_EINVAL;
            }
        }
        if (json_object_set(context, key, value) != 0) {
            return esp_fail(err, ESP_ENOMEM, "out of memory");
        }
    }
    return ESP_OK;
}

/* enable_thinking and reasoning_effort, by the names that templates read. */
static esp_status add_thinking(const json_t *request, json_t *context, struct esp_err *err)
{
    const char *effort = NULL;
    json_t *given = json_object_get(request, "enable_thinking");
    bool thinks = true;
    esp_status status = esp_json_bool(request, "enable_thinking", true, &thinks, err);
    if (status == ESP_OK) {
        status = esp_json_string(request, "reasoning_effort", &effort, err);
    }
    if (status != ESP_OK) {
        return status;
    }
    bool none = effort != NULL && strcmp(effort, "none") == 0, ok = true;
    if (json_is_boolean(given) || none) {
        ok = json_object_set_new(context, "enable_thinking", json_boolean(thinks && !none)) == 0;
        ok = json_object_set_new(context, "thinking", json_boolean(thinks && !none)) == 0 && ok;
    }
    if (effort != NULL && !none) {
        ok = json_object_set_new(context, "reasoning_effort", json_string(effort)) == 0 && ok;
    }
    return ok ? ESP_OK : esp_fail(err, ESP_ENOMEM, "out of memory");
}

/* The messages and, where they are written into them or shown beside them, the tools. */
static esp_status add_messages(const struct esp_chat *chat, const json_t *request, const struct esp_recall *recall,
                               json_t *context, struct esp_err *err)
{
    json_t *list = json_array(), *functions = esp_chat_functions(request);
    bool has_tools = json_array_size(functions) > 0, shows = has_tools && chat->form.knows_tools;
    esp_status status = esp_chat_messages(chat, json_object_get(request, "messages"), recall, list, err);
    if (status == ESP_OK && has_tools && !shows) {
        status = esp_chat_write_tools(list, functions, err);
    }
    if (status == ESP_OK && !chat->form.takes_system) {
        status = esp_chat_merge_system(list, err);
    }
    bool ok = json_object_set_new(context, "messages", list) == 0;
    ok = json_object_set_new(context, "tools", shows ? json_incref(functions) : json_null()) == 0 && ok;
    json_decref(functions);
    return status != ESP_OK || ok ? status : esp_fail(err, ESP_ENOMEM, "out of memory");
}

/* Everything the template sees. The context is filled even on failure. */
static esp_status make_context(const struct esp_chat *chat, const json_t *request, const struct esp_recall *recall,
                               json_t *context, struct esp_err *err)
{
    const json_t *messages = json_object_get(request, "messages");
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        esp_fail(err, ESP_EINVAL, "messages: a non-empty array is needed");
        esp_err_place(err, "messages");
        return ESP_EINVAL;
    }
    bool asks = true;
    esp_status status = esp_json_bool(request, "add_generation_prompt", true, &asks, err);
    if (status == ESP_OK) {
        status = add_kwargs(request, context, err);
    }
    if (status == ESP_OK) {
        status = add_thinking(request, context, err);
    }
    if (status == ESP_OK) {
        status = add_messages(chat, request, recall, context, err);
    }
    bool ok = json_object_set_new(context, "documents", json_null()) == 0;
    ok = json_object_set_new(context, "add_generation_prompt", json_boolean(asks)) == 0 && ok;
    ok = esp_chat_set_tokens(chat, context) && ok;
    return status != ESP_OK || ok ? status : esp_fail(err, ESP_ENOMEM, "out of memory");
}

/* ---- Tokens ------------------------------------------------------------------------------------ */

/* Appends the ids of some spans. */
static esp_status tokenize_spans(const struct esp_chat *chat, struct esp_prompt *prompt, const struct esp_span *spans,
                                 size_t n_spans, struct esp_err *err)
{
    size_t n_bytes = 0;
    for (size_t idx = 0; idx < n_spans; idx++) {
        n_bytes += spans[idx].n_bytes;
    }
    for (size_t cap = n_bytes / 3 + 16; n_spans > 0;) {
        uint32_t *ids = esp_buf_reserve(&prompt->ids, cap * sizeof *ids);
        if (ids == NULL) {
            return esp_fail(err, ESP_ELIMIT, "the prompt has too many tokens");
        }
        int64_t n = esp_tokenize(chat->vocab, spans, n_spans, ids, cap, err);
        if (n < 0) {
            return (esp_status)n;
        }
        if ((size_t)n <= cap) {
            prompt->ids.n += (size_t)n * sizeof *ids;
            return ESP_OK;
        }
        cap = (size_t)n;
    }
    return ESP_OK;
}

/* The ids of the rendered spans and of the answers between them, with exactly one BOS in front where the vocabulary
 * adds one. */
static esp_status tokenize(const struct esp_chat *chat, struct esp_prompt *prompt, struct esp_err *err)
{
    size_t n_spans, at = 0, n_splices = prompt->splices.n / sizeof(struct esp_prompt_splice);
    const struct esp_span *spans = esp_rendered_spans(&prompt->rendered, &n_spans);
    const struct esp_prompt_splice *splices = (const struct esp_prompt_splice *)(const void *)prompt->splices.data;
    uint32_t bos = esp_vocab_bos(chat->vocab);
    bool adds_bos = esp_vocab_adds_bos(chat->vocab) && bos != ESP_TOKEN_NONE;
    esp_status status = ESP_OK;
    esp_buf_clear(&prompt->ids);
    for (size_t idx = 0; idx <= n_splices && status == ESP_OK; idx++) {
        size_t to = idx < n_splices ? splices[idx].span_idx : n_spans;
        status = tokenize_spans(chat, prompt, spans + at, to - at, err);
        if (status == ESP_OK && idx < n_splices &&
            !esp_buf_add(&prompt->ids, prompt->splice_ids.data + splices[idx].at_ids,
                         splices[idx].n_ids * sizeof(uint32_t))) {
            status = esp_fail(err, ESP_ELIMIT, "the prompt has too many tokens");
        }
        at = to + 1;
    }
    const uint32_t *ids = (const uint32_t *)(const void *)prompt->ids.data;
    if (status == ESP_OK && adds_bos && (prompt->ids.n == 0 || ids[0] != bos)) {
        if (esp_buf_reserve(&prompt->ids, sizeof bos) == NULL) {
            return esp_fail(err, ESP_ELIMIT, "the prompt has too many tokens");
        }
        memmove(prompt->ids.data + sizeof bos, prompt->ids.data, prompt->ids.n);
        memcpy(prompt->ids.data, &bos, sizeof bos);
        prompt->ids.n += sizeof bos;
    }
    return status;
}

static esp_status render(const struct esp_chat *chat, const json_t *request, const struct esp_recall *recall,
                         struct esp_rendered *rendered, struct esp_err *err)
{
    json_t *context = json_object();
    if (context == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    esp_status status = make_context(chat, request, recall, context, err);
    if (status == ESP_OK) {
        status = esp_template_render(chat->tmpl, context, (int64_t)time(NULL), rendered, err);
        if (status != ESP_OK) {
            esp_err_place(err, "messages");
        }
    }
    json_decref(context);
    return status;
}

static void find_lead(const struct esp_chat *chat, struct esp_prompt *prompt)
{
    const char *header = chat->form.header;
    size_t n = header == NULL ? 0 : strlen(header);
    const struct esp_buf *text = &prompt->rendered.text;
    prompt->lead_at = text->n;
    for (size_t at = text->n; n > 0 && at >= n; at--) {
        if (memcmp(text->data + at - n, header, n) == 0) {
            prompt->lead_at = at - n;
            return;
        }
    }
}

esp_status esp_chat_prompt(const struct esp_chat *chat, const json_t *request, struct esp_prompt *prompt,
                           struct esp_err *err)
{
    struct esp_err local;
    struct esp_recall recall = {0};
    err = err != NULL ? err : &local;
    if (chat->tmpl == NULL) {
        *err = chat->reason;
        return chat->reason.code;
    }
    bool recalls = esp_chat_recall(chat, request, &recall) && recall.n_known > 0;
    prompt->key = recall.key;
    bool spliced = recalls && esp_chat_splice(chat, request, &recall, render, prompt);
    esp_recall_finish(&recall);
    esp_status status = spliced ? ESP_OK : render(chat, request, NULL, &prompt->rendered, err);
    if (status != ESP_OK) {
        return status;
    }
    find_lead(chat, prompt);
    return tokenize(chat, prompt, err);
}

void esp_chat_remember(const struct esp_chat *chat, struct esp_replay_key key, const struct esp_turn *turn,
                       const struct esp_replay_turn *generated)
{
    if (chat->replay != NULL && esp_replay_answer(&key, turn)) {
        esp_replay_put(chat->replay, key, generated);
    }
}

static bool add_span(struct esp_prompt *prompt, const char *text, size_t n_bytes, bool control)
{
    struct esp_span span = {.n_bytes = n_bytes, .control = control};
    return n_bytes == 0 || (esp_buf_add(&prompt->rendered.text, text, n_bytes) &&
                            esp_buf_add(&prompt->rendered.spans, &span, sizeof span));
}

esp_status esp_chat_append(const struct esp_chat *chat, const struct esp_lit *lit, struct esp_prompt *prompt,
                           struct esp_err *err)
{
    size_t from = 0;
    bool ok = true;
    for (size_t at = 0; at <= lit->n; at++) {
        bool code = at < lit->n && (unsigned char)lit->text[at] == 0xff;
        if (at < lit->n && !code) {
            continue;
        }
        ok = add_span(prompt, lit->text + from, at - from, false) && ok;
        if (code) {
            size_t n_token = 0;
            const char *token = esp_token_bytes(chat->vocab, esp_code_token(lit->text + at), true, &n_token);
            ok = token != NULL && add_span(prompt, token, n_token, true) && ok;
            from = at + ESP_CODE_BYTES;
            at = from - 1;
        }
    }
    return ok ? tokenize(chat, prompt, err)
              : esp_fail(err, ESP_ELIMIT, "the prompt is longer than %u bytes", ESP_RENDER_BYTES_MAX);
}

esp_status esp_chat_plain(const struct esp_chat *chat, const char *text, size_t n_bytes, struct esp_prompt *prompt,
                          struct esp_err *err)
{
    struct esp_span span = {.n_bytes = n_bytes, .control = true};
    esp_buf_clear(&prompt->rendered.text);
    esp_buf_clear(&prompt->rendered.spans);
    if (!esp_buf_add(&prompt->rendered.text, text, n_bytes) ||
        (n_bytes > 0 && !esp_buf_add(&prompt->rendered.spans, &span, sizeof span))) {
        return esp_fail(err, ESP_ELIMIT, "the prompt is longer than %u bytes", ESP_RENDER_BYTES_MAX);
    }
    return tokenize(chat, prompt, err);
}
