/* Earlier answers spliced into a prompt: the ids they were generated as, where the template prints them.
 *
 *   messages ─► with signs for the text, the reasoning and the last argument ─► rendered
 *   "…<|im_start|>assistant\n<think>\nSIGN…SIGN…SIGN\"}}\n</tool_call><|im_end|>…"
 *                └ or what asked for the answer        └ ids ┘
 *
 * Where the template leaves the reasoning of a turn out, its ids are left out too. When a sign does not come out
 * once and whole, the message is rendered as it is. Signs are random words: no message can have one.
 */
#include <string.h>
#include <sys/random.h>

#include "frontend/chat_internal.h"

#define LEAD_BYTES_MAX (64u * 1024u) /* how far before a sign its turn may begin */
#define SIGN_BYTES 26

struct sign {
    char text[SIGN_BYTES + 2];
};

static void make_sign(struct sign *sign, uint64_t nonce, size_t idx, char what)
{
    snprintf(sign->text, sizeof sign->text, "zQ%016llx%c%06u%c", (unsigned long long)nonce, what,
             (unsigned)(idx % 1000000), 'Z');
}

/* ---- Before rendering --------------------------------------------------------------------------- */

/* The earlier answers of a request that are known, by message; and the key of the whole. */
bool esp_chat_recall(const struct esp_chat *chat, const json_t *request, struct esp_recall *ret_recall)
{
    const json_t *messages = json_object_get(request, "messages"), *salt = json_object_get(request, "cache_salt");
    struct esp_recall recall = {.n = json_array_size(messages)};
    recall.key = esp_replay_begin(json_is_string(salt) ? json_string_value(salt) : "", json_string_length(salt));
    recall.turns = esp_calloc(ESP_TAG_HTTP, recall.n + 1, sizeof(struct esp_replay_turn *));
    bool ok = recall.turns != NULL && getrandom(&recall.nonce, sizeof recall.nonce, 0) == sizeof recall.nonce;
    for (size_t idx = 0; idx < recall.n && ok; idx++) {
        const json_t *message = json_array_get(messages, idx);
        const char *role = json_string_value(json_object_get(message, "role"));
        ok = esp_replay_message(&recall.key, message);
        if (ok && role != NULL && strcmp(role, "assistant") == 0) {
            recall.turns[idx] = esp_replay_get(chat->replay, recall.key);
            recall.n_known += recall.turns[idx] != NULL;
        }
    }
    *ret_recall = recall;
    return ok;
}

void esp_recall_finish(struct esp_recall *recall)
{
    for (size_t idx = 0; idx < recall->n && recall->turns != NULL; idx++) {
        esp_free(recall->turns[idx]);
    }
    esp_free(recall->turns);
    recall->turns = NULL;
}

/* A call whose only argument is a sign. */
static json_t *signed_call(const struct esp_chat *chat, const json_t *call, const struct sign *sign)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)call), *function = json_copy(json_object_get(call, "function"));
    json_t *arguments = json_pack("{s:s}", "zq", sign->text);
    if (chat->form.string_args) {
        char text[96];
        size_t n = json_dumpb(arguments, text, sizeof text, 0);
        json_decref(arguments);
        arguments = json_stringn(text, n);
    }
    json_object_set_new(function, "arguments", arguments);
    json_object_set_new(copy, "function", function);
    return copy;
}

bool esp_recall_sign(const struct esp_chat *chat, const struct esp_recall *recall, size_t idx, json_t *message)
{
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    struct sign sign;
    json_t *calls = json_object_get(message, "tool_calls");
    make_sign(&sign, recall->nonce, idx, 'T');
    bool ok = json_object_set_new(message, "content", json_string(sign.text)) == 0;
    make_sign(&sign, recall->nonce, idx, 'R');
    for (int name = 0; name < 3; name++) {
        json_object_del(message, names[name]);
        ok = ok &&
             (!recall->turns[idx]->thought || json_object_set_new(message, names[name], json_string(sign.text)) == 0);
    }
    size_t n_calls = json_array_size(calls);
    if (ok && n_calls > 0 && chat->form.shows_calls) {
        make_sign(&sign, recall->nonce, idx, 'A');
        ok = json_array_set_new(calls, n_calls - 1, signed_call(chat, json_array_get(calls, n_calls - 1), &sign)) == 0;
    } else if (n_calls > 0) {
        json_object_del(message, "tool_calls");
    }
    return ok;
}

/* ---- After rendering ---------------------------------------------------------------------------- */

#define NOWHERE SIZE_MAX

/* Where a sign is; NOWHERE when it is not there, or twice. */
static size_t place_of(const struct esp_buf *text, const struct esp_recall *recall, size_t idx, char what,
                       bool *ret_twice)
{
    struct sign sign;
    make_sign(&sign, recall->nonce, idx, what);
    size_t n = strlen(sign.text);
    const char *found = memmem(text->data, text->n, sign.text, n);
    if (found == NULL) {
        return NOWHERE;
    }
    size_t at = (size_t)(found - text->data);
    *ret_twice = *ret_twice || memmem(found + n, text->n - at - n, sign.text, n) != NULL;
    return at;
}

static size_t sign_bytes(const struct esp_recall *recall)
{
    struct sign sign;
    make_sign(&sign, recall->nonce, 0, 'T');
    return strlen(sign.text);
}

/* Behind the last argument comes what closes the calls, with the call's id where the template prints it there. */
static bool calls_end(const struct esp_chat *chat, const struct esp_buf *text, const json_t *message, size_t at,
                      size_t *ret_end)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    const json_t *id = json_object_get(json_array_get(calls, json_array_size(calls) - 1), "id");
    const struct esp_form *form = &chat->form;
    struct esp_buf want;
    esp_buf_init(&want, ESP_TAG_HTTP, 64u * 1024u);
    esp_buf_str(&want, form->behind == NULL ? "" : form->behind);
    if (form->behind_id != NULL) {
        esp_buf_add(&want, json_is_string(id) ? json_string_value(id) : "", json_string_length(id));
        esp_buf_str(&want, form->behind_id);
    }
    bool fits = form->behind != NULL && !want.failed && at + want.n <= text->n &&
                memcmp(text->data + at, want.n == 0 ? "" : want.data, want.n) == 0;
    *ret_end = at + want.n;
    esp_buf_finish(&want);
    return fits;
}

/* The bytes before `at` that the lead of the answer replaces, when they are another beginning of the same turn. */
static bool lead_start(const struct esp_chat *chat, const struct esp_buf *text, const struct esp_replay_turn *turn,
                       size_t at, size_t *ret_start)
{
    const char *header = chat->form.header;
    size_t n_header = header == NULL ? 0 : strlen(header);
    for (size_t back = n_header; n_header > 0 && back <= at && back < LEAD_BYTES_MAX; back++) {
        if (memcmp(text->data + at - back, header, n_header) == 0) {
            *ret_start = at - back;
            return turn->lead_bytes >= n_header && memcmp(turn->lead, header, n_header) == 0;
        }
    }
    return false;
}

static bool ends_with(const struct esp_buf *text, size_t n, const struct esp_replay_turn *turn)
{
    return turn->lead_bytes > 0 && n >= turn->lead_bytes &&
           memcmp(text->data + n - turn->lead_bytes, turn->lead, turn->lead_bytes) == 0;
}

static bool has_text(const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    const char *text = json_is_string(content) ? json_string_value(content) : "";
    return json_array_size(content) > 0 || text[strspn(text, " \n\t\r")] != '\0';
}

/* Where the turn's ids go when the template prints neither its text nor its reasoning: behind what asked for it. */
static bool place_by_header(const struct esp_chat *chat, const struct esp_buf *text, const struct esp_replay_turn *turn,
                            size_t at_args, struct esp_splice *splice)
{
    size_t start = 0;
    if (turn->thought || !lead_start(chat, text, turn, at_args, &start)) {
        return false;
    }
    bool same = start + turn->lead_bytes <= at_args && memcmp(text->data + start, turn->lead, turn->lead_bytes) == 0;
    splice->from = same ? start + turn->lead_bytes : start;
    splice->lead = turn->lead;
    splice->lead_bytes = same ? 0 : turn->lead_bytes;
    return true;
}

static bool place_thought(const struct esp_chat *chat, const struct esp_buf *text, const struct esp_replay_turn *turn,
                          size_t at_think, struct esp_splice *splice)
{
    if (at_think == NOWHERE) { /* the template leaves it out */
        if (turn->text_from >= turn->n_ids) {
            return false;
        }
        splice->ids += turn->text_from;
        splice->n_ids -= turn->text_from;
        return true;
    }
    splice->from = at_think;
    if (ends_with(text, at_think, turn)) {
        return true;
    }
    splice->lead = turn->lead;
    splice->lead_bytes = turn->lead_bytes;
    return lead_start(chat, text, turn, at_think, &splice->from);
}

/* Where the signs came out; message is the request's own. False: not as they should. */
static bool recall_place(const struct esp_chat *chat, const struct esp_recall *recall, size_t idx,
                         const json_t *message, const struct esp_buf *text, struct esp_splice *ret_splice)
{
    const struct esp_replay_turn *turn = recall->turns[idx];
    bool twice = false;
    bool has_calls = json_array_size(json_object_get(message, "tool_calls")) > 0 && chat->form.shows_calls;
    size_t at_text = place_of(text, recall, idx, 'T', &twice), at_think = place_of(text, recall, idx, 'R', &twice);
    size_t at_args = place_of(text, recall, idx, 'A', &twice), n_sign = sign_bytes(recall), end = at_text + n_sign;
    bool shows_text = at_text != NOWHERE;
    if (twice ||
        (has_calls ? at_args == NOWHERE || !calls_end(chat, text, message, at_args + n_sign, &end) : !shows_text)) {
        return false;
    }
    *ret_splice = (struct esp_splice){.from = at_text, .to = end, .ids = turn->ids, .n_ids = turn->n_ids};
    if (shows_text && at_text < end && (at_think == NOWHERE || at_think < at_text)) {
        return !turn->thought || place_thought(chat, text, turn, at_think, ret_splice);
    }
    return !shows_text && !has_text(message) && place_by_header(chat, text, turn, at_args, ret_splice);
}

/* ---- The prompt --------------------------------------------------------------------------------- */

static bool add_span(struct esp_prompt *prompt, const char *text, size_t n_bytes, bool control)
{
    struct esp_span span = {.n_bytes = n_bytes, .control = control};
    return n_bytes == 0 || (esp_buf_add(&prompt->rendered.text, text, n_bytes) &&
                            esp_buf_add(&prompt->rendered.spans, &span, sizeof span));
}

/* Copies spans of what was rendered from one byte to another. */
static bool copy_spans(struct esp_prompt *prompt, struct esp_rendered *rendered, size_t from, size_t to)
{
    size_t n_spans = 0, at = 0;
    const struct esp_span *spans = esp_rendered_spans(rendered, &n_spans);
    bool ok = true;
    for (size_t idx = 0; idx < n_spans && ok; idx++) {
        size_t end = at + spans[idx].n_bytes, low = at > from ? at : from, high = end < to ? end : to;
        if (low < high) {
            ok = add_span(prompt, spans[idx].text + (low - at), high - low, spans[idx].control);
        }
        at = end;
    }
    return ok;
}

/* A span that shows an answer, and the ids that it is. */
static bool add_answer(const struct esp_chat *chat, struct esp_prompt *prompt, const struct esp_splice *splice)
{
    struct esp_prompt_splice item = {.at_ids = prompt->splice_ids.n, .n_ids = splice->n_ids};
    int64_t n_bytes = esp_detokenize(chat->vocab, splice->ids, splice->n_ids, true, NULL, 0);
    char *text = n_bytes <= 0 ? NULL : esp_malloc(ESP_TAG_HTTP, (size_t)n_bytes);
    bool ok = text != NULL &&
              esp_detokenize(chat->vocab, splice->ids, splice->n_ids, true, text, (size_t)n_bytes) == n_bytes &&
              add_span(prompt, splice->lead_bytes == 0 ? "" : splice->lead, splice->lead_bytes, true);
    item.span_idx = prompt->rendered.spans.n / sizeof(struct esp_span);
    ok = ok && add_span(prompt, text, (size_t)n_bytes, true) && esp_buf_add(&prompt->splices, &item, sizeof item) &&
         esp_buf_add(&prompt->splice_ids, splice->ids, splice->n_ids * sizeof *splice->ids);
    esp_free(text);
    return ok;
}

static void clear(struct esp_prompt *prompt)
{
    esp_buf_clear(&prompt->rendered.text);
    esp_buf_clear(&prompt->rendered.spans);
    esp_buf_clear(&prompt->splices);
    esp_buf_clear(&prompt->splice_ids);
}

/* Forgets the turns whose signs did not come out well. True when all did. */
static bool place_all(const struct esp_chat *chat, const json_t *messages, struct esp_recall *recall,
                      const struct esp_buf *text, struct esp_splice *splices)
{
    size_t n = 0, at = 0;
    bool all = true;
    for (size_t idx = 0; idx < recall->n; idx++) {
        if (recall->turns[idx] == NULL) {
            continue;
        }
        bool placed = recall_place(chat, recall, idx, json_array_get(messages, idx), text, &splices[n]) &&
                      splices[n].from >= at && splices[n].n_ids > 0;
        if (placed) {
            at = splices[n++].to;
        } else {
            esp_free(recall->turns[idx]);
            recall->turns[idx] = NULL;
            recall->n_known--;
            all = false;
        }
    }
    return all;
}

static bool build(const struct esp_chat *chat, struct esp_rendered *rendered, const struct esp_splice *splices,
                  size_t n_splices, struct esp_prompt *prompt)
{
    size_t at = 0;
    bool ok = true;
    for (size_t idx = 0; idx < n_splices && ok; idx++) {
        ok = copy_spans(prompt, rendered, at, splices[idx].from) && add_answer(chat, prompt, &splices[idx]);
        at = splices[idx].to;
    }
    return ok && copy_spans(prompt, rendered, at, rendered->text.n);
}

bool esp_chat_splice(const struct esp_chat *chat, const json_t *request, struct esp_recall *recall,
                     esp_status (*render)(const struct esp_chat *chat, const json_t *request,
                                          const struct esp_recall *recall, struct esp_rendered *rendered,
                                          struct esp_err *err),
                     struct esp_prompt *prompt)
{
    struct esp_err ignored = {0};
    struct esp_splice *splices = esp_calloc(ESP_TAG_HTTP, recall->n_known + 1, sizeof *splices);
    const json_t *messages = json_object_get(request, "messages");
    bool ok = false;
    for (int turn = 0; turn < 2 && splices != NULL && recall->n_known > 0 && !ok; turn++) {
        struct esp_rendered rendered;
        esp_rendered_init(&rendered);
        bool rendered_well = render(chat, request, recall, &rendered, &ignored) == ESP_OK;
        ok = rendered_well && place_all(chat, messages, recall, &rendered.text, splices) &&
             build(chat, &rendered, splices, recall->n_known, prompt);
        esp_rendered_finish(&rendered);
        turn += !rendered_well; /* the signs themselves are what it does not take */
    }
    if (!ok) {
        clear(prompt);
    }
    esp_free(splices);
    return ok;
}
