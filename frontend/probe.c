/* How a template writes tools, calls and reasoning, found by rendering small conversations and comparing them.
 *
 * What is found is taken only if the parser (turn.h), given what the template printed, finds the same calls again;
 * else the template counts as one that knows no tools. Names and values are words that no template has. Nothing of
 * the conversations reaches a model. Thread: whoever opens the chat.
 */
#include <string.h>

#include "frontend/probe_internal.h"
#include "frontend/turn.h"

#define NOW_S 1700000000

struct probe {
    struct esp_chat *chat;
    const char *source; /* the template */
    bool thinks;        /* pass enable_thinking */
    bool strings;       /* arguments of calls as strings */
};

/* ---- Rendering ---------------------------------------------------------------------------------- */

static json_t *probe_tools(void)
{
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s,s:s},s:{s:s,s:s}},s:[s]}}},{s:s,s:{s:s,s:s,s:{s:s,s:{}}}}]",
                     "type", "function", "function", "name", ESP_PROBE_FIRST, "description", "zqabout", "parameters",
                     "type", "object", "properties", "zqkey", "type", "string", "description", "zqone", "zqnum", "type",
                     "integer", "description", "zqtwo", "required", "zqkey", "type", "function", "function", "name",
                     ESP_PROBE_SECOND, "description", "zqother", "parameters", "type", "object", "properties");
}

/* One call: n is 1 or 2 (their values differ), 0 without arguments, -1 with the arguments turned round, also for
 * templates that sort them. */
static json_t *probe_call(const struct probe *probe, int n)
{
    json_t *args = json_object();
    const char *text = n == 2 ? "zqval two" : "zqval one";
    if (n > 0) {
        json_object_set_new(args, "zqkey", json_string(text));
    }
    if (n != 0) {
        json_object_set_new(args, n < 0 ? "zqanum" : "zqnum", json_integer(n == 2 ? 7732 : 7731));
    }
    if (n < 0) {
        json_object_set_new(args, "zqkey", json_string(text));
    }
    if (probe->strings) {
        char dumped[128];
        size_t n_dumped = json_dumpb(args, dumped, sizeof dumped, 0);
        json_decref(args);
        args = json_stringn(dumped, n_dumped);
    }
    return json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", n == 2 ? "zqid00002" : "zqid00001", "type", "function", "function",
                     "name", n == 2 ? ESP_PROBE_SECOND : ESP_PROBE_FIRST, "arguments", args);
}

static json_t *assistant(const char *content, json_t *calls)
{
    json_t *message = json_pack("{s:s,s:s}", "role", "assistant", "content", content);
    if (calls != NULL) {
        json_object_set_new(message, "tool_calls", calls);
    }
    return message;
}

/* Renders a user's message and what follows it; takes the messages (NULL: none). Plain text into buf. */
static bool render(const struct probe *probe, json_t *second, json_t *third, bool with_tools, bool asks,
                   struct esp_buf *buf)
{
    json_t *context = json_object(), *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "zquser");
    struct esp_rendered rendered;
    struct esp_err err = {0};
    if (second != NULL) {
        json_array_append_new(messages, second);
    }
    if (third != NULL) {
        json_array_append_new(messages, third);
    }
    json_object_set_new(context, "messages", messages);
    json_object_set_new(context, "tools", with_tools ? probe_tools() : json_null());
    json_object_set_new(context, "documents", json_null());
    json_object_set_new(context, "add_generation_prompt", json_boolean(asks));
    esp_chat_set_tokens(probe->chat, context);
    if (probe->thinks) {
        json_object_set_new(context, "enable_thinking", json_true());
        json_object_set_new(context, "thinking", json_true());
    }
    esp_rendered_init(&rendered);
    esp_buf_clear(buf);
    bool ok = esp_template_render(probe->chat->tmpl, context, NOW_S, &rendered, &err) == ESP_OK &&
              esp_buf_add(buf, rendered.text.n == 0 ? "" : rendered.text.data, rendered.text.n);
    esp_rendered_finish(&rendered);
    json_decref(context);
    return ok;
}

static bool has(const struct esp_buf *buf, const char *text)
{
    return buf->n > 0 && memmem(buf->data, buf->n, text, strlen(text)) != NULL;
}

/* The coded text of a rendering in the form's arena. */
static bool coded(const struct probe *probe, const struct esp_buf *plain, struct esp_slice *ret_slice)
{
    struct esp_buf buf;
    struct esp_lit lit = {"", 0};
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_FORM_BYTES_MAX);
    bool ok = plain->n > 0 && esp_code_text(probe->chat->vocab, plain->data, plain->n, &buf) == ESP_OK &&
              esp_probe_keep(&probe->chat->form, (struct esp_slice){buf.data, buf.n}, &lit);
    esp_buf_finish(&buf);
    *ret_slice = (struct esp_slice){lit.text, lit.n};
    return ok;
}

/* ---- Calls -------------------------------------------------------------------------------------- */

/* What an assistant's calls add to what its text would: the renderings without what both begin and end with, and
 * without what the prompt has already. */
static bool calls_region(struct probe *probe, json_t *calls, struct esp_slice text, struct esp_slice asked,
                         struct esp_slice *ret_region)
{
    struct esp_buf buf;
    struct esp_slice whole;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    bool ok = render(probe, assistant("", calls), NULL, true, false, &buf) && has(&buf, ESP_PROBE_FIRST) &&
              coded(probe, &buf, &whole);
    esp_buf_finish(&buf);
    if (!ok) {
        return false;
    }
    size_t from = esp_slice_prefix(whole, text), n_end = esp_slice_suffix(whole, text);
    size_t to = whole.n - n_end, n_asked = esp_slice_prefix(whole, asked);
    if (esp_slice_tag(whole, to) < to) {
        to = esp_slice_find(whole, ">", to) < whole.n ? esp_slice_find(whole, ">", to) + 1 : to;
    }
    from = n_asked == asked.n && n_asked > from ? n_asked : from;
    if (from >= to) {
        return false;
    }
    /* Nothing follows a token that ends the answer. */
    for (size_t at = from; at + ESP_CODE_BYTES <= to; at++) {
        if ((unsigned char)whole.text[at] == 0xff &&
            esp_vocab_is_end(probe->chat->vocab, esp_code_token(whole.text + at))) {
            to = at;
        }
    }
    *ret_region = esp_slice_between(whole, from, to);
    return to > from;
}

struct seen { /* by the parser, in a region */
    uint32_t n_calls;
    bool fine;
};

static void seen_begin(void *ctx, const struct esp_part *part)
{
    struct seen *seen = ctx;
    seen->fine = seen->fine && part->kind == ESP_PART_CALL;
}

static void seen_piece(void *ctx, const struct esp_part *part, const char *text, size_t n_bytes)
{
}

static void seen_end(void *ctx, const struct esp_part *part)
{
    static const char *const names[] = {ESP_PROBE_FIRST, ESP_PROBE_SECOND};
    static const char *const texts[] = {"zqval one", "zqval two"};
    struct seen *seen = ctx;
    json_t *args = part->text.n > 0 ? json_loadb(part->text.data, part->text.n, 0, NULL) : NULL;
    const char *text = json_string_value(json_object_get(args, "zqkey"));
    bool fine = seen->n_calls < 2 && strcmp(part->name, names[seen->n_calls]) == 0 && text != NULL &&
                strcmp(text, texts[seen->n_calls]) == 0 &&
                json_integer_value(json_object_get(args, "zqnum")) == 7731 + seen->n_calls;
    seen->fine = seen->fine && fine;
    seen->n_calls++;
    json_decref(args);
}

static bool parses(const struct esp_form *form, struct esp_slice region, uint32_t n_calls)
{
    static const struct esp_turn_sink sink = {seen_begin, seen_piece, seen_end};
    struct esp_tool_arg args[] = {{.name = "zqkey", .kind = ESP_ARG_STRING}, {.name = "zqnum", .kind = ESP_ARG_OTHER}};
    struct esp_tool items[] = {{.name = ESP_PROBE_FIRST, .allowed = true, .args = args, .n_args = 2},
                               {.name = ESP_PROBE_SECOND, .allowed = true, .args = args, .n_args = 2}};
    struct esp_tools tools = {.items = items, .n = 2, .n_allowed = 2, .choice = ESP_TOOLS_REQUIRED, .parallel = true};
    struct esp_turn_setup setup = {.form = form, .tools = &tools};
    struct seen seen = {.fine = true};
    struct esp_turn turn;
    esp_turn_init(&turn, &setup, &sink, &seen);
    esp_turn_text(&turn, region.text, region.n);
    esp_turn_end(&turn);
    bool fine = seen.fine && seen.n_calls == n_calls && turn.n_calls_whole == n_calls && !turn.failed;
    esp_turn_finish(&turn);
    return fine;
}

/* Coded text as the template prints it. NULL: out of memory. */
static const char *plain_text(struct probe *probe, struct esp_slice slice)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_FORM_BYTES_MAX);
    for (size_t at = 0; at < slice.n; at++) {
        if ((unsigned char)slice.text[at] == 0xff) {
            size_t n = 0;
            const char *token = esp_token_bytes(probe->chat->vocab, esp_code_token(slice.text + at), true, &n);
            esp_buf_add(&buf, token, n);
            at += ESP_CODE_BYTES - 1;
        } else {
            esp_buf_char(&buf, slice.text[at]);
        }
    }
    const char *copy =
        buf.failed ? NULL : esp_arena_strndup(&probe->chat->form.arena, buf.n == 0 ? "" : buf.data, buf.n);
    esp_buf_finish(&buf);
    return copy;
}

/* What follows the string that is the last argument of the last call. */
static bool keep_behind(struct probe *probe, struct esp_slice turned)
{
    struct esp_form *form = &probe->chat->form;
    size_t at = esp_slice_find(turned, "zqval one", 0) + 9;
    size_t id = esp_slice_find(turned, "zqid00001", at);
    if (at > turned.n) {
        return false;
    }
    form->behind = plain_text(probe, esp_slice_between(turned, at, id));
    form->behind_id = id < turned.n ? plain_text(probe, esp_slice_between(turned, id + 9, turned.n)) : NULL;
    return form->behind != NULL;
}

/* The form of calls, with arguments given as objects or as strings. */
static bool find_calls(struct probe *probe)
{
    struct esp_form *form = &probe->chat->form;
    struct esp_probe_calls calls = {0};
    struct esp_slice text, asked;
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    bool ok = render(probe, assistant(ESP_PROBE_TEXT, NULL), NULL, true, false, &buf) && coded(probe, &buf, &text) &&
              render(probe, NULL, NULL, true, true, &buf) && coded(probe, &buf, &asked);
    esp_buf_finish(&buf);
    if (!ok || !calls_region(probe, json_pack("[o]", probe_call(probe, 1)), text, asked, &calls.one) ||
        !calls_region(probe, json_pack("[o]", probe_call(probe, 0)), text, asked, &calls.none) ||
        !calls_region(probe, json_pack("[o]", probe_call(probe, -1)), text, asked, &calls.turned)) {
        return false;
    }
    json_t *both = json_pack("[o,o]", probe_call(probe, 1), probe_call(probe, 2));
    if (!calls_region(probe, both, text, asked, &calls.two) || esp_slice_find(calls.two, "7732", 0) == calls.two.n) {
        calls.two.n = 0;
    }
    bool found =
        esp_probe_form(form, &calls) && parses(form, calls.one, 1) && (form->one_call || parses(form, calls.two, 2));
    return (found || esp_probe_python(form, calls.one)) && keep_behind(probe, calls.turned);
}

static void find_ids(struct probe *probe)
{
    struct esp_form *form = &probe->chat->form;
    for (uint32_t idx = 0; idx < form->n_pieces; idx++) {
        bool counts =
            form->pieces[idx].slot == ESP_SLOT_INDEX && idx >= 2 && form->pieces[idx - 2].slot == ESP_SLOT_NAME;
        form->ids = counts ? ESP_ID_COUNTED : form->ids;
    }
    if (strstr(probe->source, "[TOOL_CALLS]") != NULL) {
        form->ids = ESP_ID_NINE;
    }
}

static void find_tools(struct probe *probe)
{
    struct esp_form *form = &probe->chat->form;
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    form->knows_tools = render(probe, NULL, NULL, true, true, &buf) && has(&buf, ESP_PROBE_SECOND);
    for (int turn = 0; turn < 2 && form->knows_tools && !form->shows_calls; turn++) {
        probe->strings = turn == 1;
        form->shows_calls = find_calls(probe);
        form->string_args = probe->strings;
    }
    if (form->shows_calls) {
        find_ids(probe);
    } else {
        form->knows_tools = false;
        esp_form_generic(form);
    }
    esp_buf_finish(&buf);
}

/* Results of calls, and arguments that are no object. */
static void find_results(struct probe *probe)
{
    struct esp_form *form = &probe->chat->form;
    struct esp_buf buf;
    if (!form->shows_calls) {
        return;
    }
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    probe->strings = form->string_args;
    json_t *result = json_pack("{s:s,s:s,s:s,s:s}", "role", "tool", "tool_call_id", "zqid00001", "name",
                               ESP_PROBE_FIRST, "content", "zqresult");
    json_t *calls = json_pack("[o]", probe_call(probe, 1)), *half = probe_call(probe, 1);
    form->shows_results = render(probe, assistant("", calls), result, true, true, &buf) && has(&buf, "zqresult");
    json_object_set_new(json_object_get(half, "function"), "arguments", json_string("{zqhalf"));
    form->takes_text =
        render(probe, assistant("", json_pack("[o]", half)), NULL, true, true, &buf) && has(&buf, "{zqhalf");
    esp_buf_finish(&buf);
}

/* ---- Reasoning ---------------------------------------------------------------------------------- */

static bool keep_text(struct probe *probe, const char *text, size_t n_bytes, struct esp_lit *ret_lit)
{
    struct esp_buf buf;
    struct esp_slice slice;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_FORM_BYTES_MAX);
    bool ok = esp_buf_add(&buf, text, n_bytes) && coded(probe, &buf, &slice);
    esp_buf_finish(&buf);
    if (ok) {
        *ret_lit = (struct esp_lit){slice.text, (uint32_t)slice.n};
    }
    return ok;
}

static bool set_thinking(struct probe *probe, const char *open, size_t n_open, const char *close, size_t n_close)
{
    struct esp_form *form = &probe->chat->form;
    form->think_text = esp_arena_strndup(&form->arena, open, n_open);
    return form->think_text != NULL && keep_text(probe, open, n_open, &form->think_open) &&
           keep_text(probe, close, n_close, &form->think_close);
}

/* The mark that ends at text[n], white space left out: from its last < or [ on. */
static size_t mark_before(const char *text, size_t *n)
{
    while (*n > 0 && strchr(" \n", text[*n - 1]) != NULL) {
        (*n)--;
    }
    size_t at = *n;
    while (at > 0 && *n - at < 64 && text[at - 1] != '<' && text[at - 1] != '[') {
        at--;
    }
    return at > 0 && *n - at < 64 ? at - 1 : *n;
}

/* How long the mark is that text begins with: up to its > or ]. */
static size_t mark_after(const char *text, size_t n_bytes)
{
    char end = n_bytes > 0 && text[0] == '[' ? ']' : '>';
    const char *found = n_bytes > 0 ? memchr(text, end, n_bytes < 64 ? n_bytes : 64) : NULL;
    return found == NULL ? 0 : (size_t)(found - text) + 1;
}

static bool find_printed_thinking(struct probe *probe)
{
    struct esp_buf buf;
    json_t *message = assistant(ESP_PROBE_TEXT, NULL);
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    bool found = false;
    for (int idx = 0; idx < 3; idx++) {
        json_object_set_new(message, names[idx], json_string("zqreason"));
    }
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    if (render(probe, message, NULL, false, false, &buf) && has(&buf, "zqreason") && has(&buf, ESP_PROBE_TEXT)) {
        const char *reason = memmem(buf.data, buf.n, "zqreason", 8), *behind = reason + 8;
        const char *text = memmem(behind, buf.n - (size_t)(behind - buf.data), ESP_PROBE_TEXT, strlen(ESP_PROBE_TEXT));
        size_t end = (size_t)(reason - buf.data), start = mark_before(buf.data, &end);
        while (text != NULL && behind < text && strchr(" \n", *behind) != NULL) {
            behind++;
        }
        size_t n_close = text == NULL ? 0 : mark_after(behind, (size_t)(text - behind));
        found = start < end && n_close > 0 && set_thinking(probe, buf.data + start, end - start, behind, n_close);
    }
    esp_buf_finish(&buf);
    return found;
}

static bool find_thinking(struct probe *probe)
{
    for (int turn = 0; turn < 2; turn++) {
        probe->thinks = turn == 1;
        if (find_printed_thinking(probe)) {
            probe->thinks = false;
            return true;
        }
    }
    probe->thinks = false;
    static const struct {
        const char *open, *close;
    } known[] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<|channel>thought", "<channel|>"}};
    for (size_t idx = 0; idx < sizeof known / sizeof known[0]; idx++) {
        const char *open = known[idx].open, *close = known[idx].close;
        if (strstr(probe->source, close) != NULL) {
            return set_thinking(probe, open, strlen(open), close, strlen(close));
        }
    }
    return true;
}

/* ---- Headers inside an answer ------------------------------------------------------------------- */

static bool is_known(const struct esp_form *form, const char *code)
{
    const struct esp_lit *const lits[] = {&form->think_open, &form->think_close, &form->open, &form->trigger};
    for (size_t idx = 0; idx < sizeof lits / sizeof lits[0]; idx++) {
        if (lits[idx]->n >= ESP_CODE_BYTES && memmem(lits[idx]->text, lits[idx]->n, code, ESP_CODE_BYTES) != NULL) {
            return true;
        }
    }
    return false;
}

/* Control tokens that the template prints around an answer's text, inside of what the model writes. */
static bool find_skips(struct probe *probe)
{
    struct esp_form *form = &probe->chat->form;
    struct esp_buf buf;
    struct esp_slice text, asked;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    bool ok = render(probe, assistant(ESP_PROBE_TEXT, NULL), NULL, false, false, &buf) && coded(probe, &buf, &text) &&
              render(probe, NULL, NULL, false, true, &buf) && coded(probe, &buf, &asked);
    esp_buf_finish(&buf);
    for (size_t at = ok ? esp_slice_prefix(text, asked) : 0; ok && at + ESP_CODE_BYTES <= text.n; at++) {
        if ((unsigned char)text.text[at] != 0xff) {
            continue;
        }
        if (esp_vocab_is_end(probe->chat->vocab, esp_code_token(text.text + at)) || form->n_skips == ESP_SKIPS_MAX) {
            break;
        }
        if (!is_known(form, text.text + at)) {
            ok = esp_probe_keep(form, esp_slice_between(text, at, at + ESP_CODE_BYTES), &form->skips[form->n_skips]);
            form->n_skips += ok;
        }
    }
    return true;
}

static void find_system(struct probe *probe)
{
    json_t *context = json_object();
    struct esp_rendered rendered;
    struct esp_err err = {0};
    json_object_set_new(context, "messages",
                        json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "system", "content", "zqsystem", "role", "user",
                                  "content", "zquser"));
    json_object_set_new(context, "tools", json_null());
    json_object_set_new(context, "documents", json_null());
    json_object_set_new(context, "add_generation_prompt", json_true());
    esp_chat_set_tokens(probe->chat, context);
    esp_rendered_init(&rendered);
    probe->chat->form.takes_system =
        esp_template_render(probe->chat->tmpl, context, NOW_S, &rendered, &err) == ESP_OK &&
        has(&rendered.text, "zqsystem");
    esp_rendered_finish(&rendered);
    json_decref(context);
}

/* What both a prompt that asks and an assistant's message in history add to a conversation first. */
static bool find_header(struct probe *probe)
{
    struct esp_buf plain, asked, told;
    esp_buf_init(&plain, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    esp_buf_init(&asked, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    esp_buf_init(&told, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    bool ok = render(probe, NULL, NULL, false, false, &plain) && render(probe, NULL, NULL, false, true, &asked) &&
              render(probe, assistant(ESP_PROBE_TEXT, NULL), NULL, false, false, &told) && asked.n >= plain.n &&
              told.n >= plain.n && plain.n > 0 && memcmp(asked.data, plain.data, plain.n) == 0 &&
              memcmp(told.data, plain.data, plain.n) == 0;
    size_t n = plain.n;
    while (ok && n < asked.n && n < told.n && asked.data[n] == told.data[n]) {
        n++;
    }
    if (ok && n > plain.n) {
        probe->chat->form.header = esp_arena_strndup(&probe->chat->form.arena, asked.data + plain.n, n - plain.n);
        ok = probe->chat->form.header != NULL;
    }
    esp_buf_finish(&plain);
    esp_buf_finish(&asked);
    esp_buf_finish(&told);
    return true;
}

/* Does the next prompt begin with this one? Compares a conversation with the same one a turn later. */
static bool find_drift(struct probe *probe)
{
    struct esp_form *form = &probe->chat->form;
    struct esp_buf one, other;
    esp_buf_init(&one, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    esp_buf_init(&other, ESP_TAG_HTTP, ESP_RENDER_BYTES_MAX);
    bool shows = form->knows_tools;
    bool ok = render(probe, NULL, NULL, shows, true, &one) &&
              render(probe, assistant(ESP_PROBE_TEXT, NULL),
                     json_pack("{s:s,s:s}", "role", "user", "content", "zqagain"), shows, true, &other);
    size_t n = 0;
    while (ok && n < one.n && n < other.n && one.data[n] == other.data[n]) {
        n++;
    }
    if (ok && n < one.n) {
        form->drift_bytes = one.n - n;
        form->drift = esp_arena_strndup(&form->arena, one.data + n, form->drift_bytes < 24 ? form->drift_bytes : 24);
        ok = form->drift != NULL;
    }
    form->drift_known = ok;
    esp_buf_finish(&one);
    esp_buf_finish(&other);
    return true;
}

esp_status esp_chat_probe(struct esp_chat *chat, const char *text, struct esp_err *err)
{
    struct probe probe = {.chat = chat, .source = text};
    esp_form_generic(&chat->form);
    bool by_hand = esp_probe_hand(chat, text);
    if (!by_hand) {
        find_tools(&probe);
    }
    find_results(&probe);
    find_system(&probe);
    if (!(by_hand && chat->form.think_open.n > 0) && !find_thinking(&probe)) {
        return esp_fail(err, ESP_ENOMEM, "the chat template cannot be probed");
    }
    if (!find_skips(&probe) || !find_header(&probe) || !find_drift(&probe)) {
        return esp_fail(err, ESP_ENOMEM, "the chat template cannot be probed");
    }
    return ESP_OK;
}
