/* Which parts an answer may have, and in which order. The parts of calls are written by plan_calls.c. */
#include "frontend/plan.h"

#include <string.h>

#include "frontend/jsontext.h"
#include "frontend/plan_internal.h"
#include "runtime/base/json.h"

#define REGIONS_BYTES_MAX (8u * 1024u * 1024u)

/* ---- Writing regions ---------------------------------------------------------------------------- */

void esp_region_text(struct esp_buf *buf, const char *text, size_t n_bytes)
{
    esp_buf_str(buf, "{\"text\":");
    esp_jsontext_quote(buf, text, n_bytes);
    esp_buf_char(buf, '}');
}

static void add_item(struct esp_buf *buf, bool *first)
{
    esp_buf_add(buf, ",", !*first);
    *first = false;
}

void esp_region_lit(struct esp_buf *buf, const struct esp_lit *lit, bool *first)
{
    size_t from = 0;
    for (size_t at = 0; at <= lit->n; at++) {
        bool code = at < lit->n && (unsigned char)lit->text[at] == 0xff;
        if (at < lit->n && !code) {
            continue;
        }
        if (at > from) {
            add_item(buf, first);
            esp_region_text(buf, lit->text + from, at - from);
        }
        if (code) {
            add_item(buf, first);
            esp_buf_printf(buf, "{\"token\":%u}", esp_code_token(lit->text + at));
            from = at + ESP_CODE_BYTES;
            at = from - 1;
        }
    }
}

/* The first text or token of a literal, as an item of "until". */
static void write_until(struct esp_buf *buf, const struct esp_lit *lit)
{
    size_t n = 0;
    if (lit->n > 0 && (unsigned char)lit->text[0] == 0xff) {
        esp_buf_printf(buf, "{\"token\":%u}", esp_code_token(lit->text));
        return;
    }
    while (n < lit->n && (unsigned char)lit->text[n] != 0xff) {
        n++;
    }
    esp_jsontext_quote(buf, lit->text, n);
}

void esp_region_free(struct esp_buf *buf, const struct esp_lit *until, uint32_t n_until, int64_t n_tokens)
{
    esp_buf_str(buf, "{\"free\":{\"until\":[");
    for (uint32_t idx = 0; idx < n_until; idx++) {
        esp_buf_add(buf, ",", idx > 0);
        write_until(buf, &until[idx]);
    }
    esp_buf_char(buf, ']');
    if (n_tokens >= 0) {
        esp_buf_printf(buf, ",\"tokens\":%lld", (long long)n_tokens);
    }
    esp_buf_str(buf, "}}");
}

void esp_region_schema(struct esp_buf *buf, const char *schema, size_t n_bytes, const char *options)
{
    esp_buf_str(buf, "{\"schema\":");
    esp_buf_add(buf, schema, n_bytes);
    if (options != NULL) {
        esp_buf_printf(buf, ",\"options\":%s", options);
    }
    esp_buf_char(buf, '}');
}

/* ---- The request -------------------------------------------------------------------------------- */

struct planner {
    const struct esp_chat *chat;
    const struct esp_form *form;
    const struct esp_request_source *source;
    struct esp_arena *arena;
    struct esp_params *params;
    struct esp_plan *plan;
    struct esp_buf buf;
    struct esp_err *err;
    int64_t budget; /* of reasoning; -1: none given */
    bool no_thinking;
};

static esp_status read_budget(struct planner *planner)
{
    const json_t *request = planner->source->json;
    const char *effort = json_string_value(json_object_get(request, "reasoning_effort"));
    bool thinks = true;
    esp_status status = esp_json_int(request, "reasoning_budget", -1, 1000000, -1, &planner->budget, planner->err);
    if (status == ESP_OK) {
        status = esp_json_bool(request, "enable_thinking", true, &thinks, planner->err);
    }
    planner->no_thinking = !thinks || (effort != NULL && strcmp(effort, "none") == 0);
    return status;
}

/* Does the prompt end inside reasoning? What opens it is then at its end, but for white space. */
static bool ends_thinking(const struct planner *planner, const struct esp_prompt *prompt)
{
    const char *open = planner->form->think_text;
    size_t n = prompt->rendered.text.n, n_open = open == NULL ? 0 : strlen(open);
    const char *text = prompt->rendered.text.data;
    while (n > 0 && strchr(" \n\t\r", text[n - 1]) != NULL) {
        n--;
    }
    while (n_open > 0 && strchr(" \n\t\r", open[n_open - 1]) != NULL) {
        n_open--;
    }
    return n_open > 0 && n >= n_open && memcmp(text + n - n_open, open, n_open) == 0;
}

static bool wants_calls(const struct planner *planner)
{
    return planner->plan->tools.choice != ESP_TOOLS_NONE;
}

/* Reasoning that has begun, or may: what closes it, and some white space. */
static void write_thinking(struct planner *planner, bool *first)
{
    const struct esp_form *form = planner->form;
    bool inner = true, started = planner->plan->setup.thinking;
    if (form->think_close.n == 0 || (!started && (form->think_open.n == 0 || planner->no_thinking))) {
        return;
    }
    add_item(&planner->buf, first);
    esp_buf_str(&planner->buf, started ? "{\"seq\":[" : "{\"repeat\":{\"seq\":[");
    if (!started) {
        esp_region_lit(&planner->buf, &form->think_open, &inner);
    }
    add_item(&planner->buf, &inner);
    esp_region_free(&planner->buf, &form->think_close, 1, planner->no_thinking ? 0 : planner->budget);
    esp_region_lit(&planner->buf, &form->think_close, &inner);
    esp_buf_str(&planner->buf, ",{\"repeat\":{\"text\":\"\\n\"},\"max\":2}");
    esp_buf_str(&planner->buf, started ? "]}" : "]},\"max\":1}");
}

static esp_status write_format(struct planner *planner)
{
    const struct esp_constraint *response = &planner->plan->response;
    const char *kind = response->kind;
    struct esp_buf *buf = &planner->buf;
    if (strcmp(kind, "schema") == 0) {
        esp_region_schema(buf, response->text, response->n_bytes, response->options);
    } else if (strcmp(kind, "json") == 0) {
        esp_region_schema(buf, "{\"type\":\"object\"}", 17, response->options);
    } else if (strcmp(kind, "regex") == 0) {
        esp_buf_str(buf, "{\"regex\":");
        esp_jsontext_quote(buf, response->text, response->n_bytes);
        esp_buf_char(buf, '}');
    } else if (strcmp(kind, "choice") == 0) {
        esp_buf_printf(buf, "{\"choice\":%.*s}", (int)response->n_bytes, response->text);
    } else {
        esp_fail(planner->err, ESP_EUNSUPPORTED, "'%s' cannot be combined with tools or reasoning; a schema can",
                 response->param);
        esp_err_place(planner->err, "%s", response->param);
        return ESP_EUNSUPPORTED;
    }
    return ESP_OK;
}

/* The response format, or any text, behind the header that the model gives a text. */
static esp_status write_response(struct planner *planner)
{
    bool first = true;
    esp_status status = ESP_OK;
    esp_buf_str(&planner->buf, "{\"seq\":[");
    esp_region_lit(&planner->buf, &planner->form->text_open, &first);
    add_item(&planner->buf, &first);
    if (planner->plan->response.kind != NULL) {
        status = write_format(planner);
    } else {
        esp_region_free(&planner->buf, NULL, 0, -1);
    }
    esp_buf_str(&planner->buf, "]}");
    return status;
}

/* What follows reasoning. */
static esp_status write_body(struct planner *planner, bool *first)
{
    struct esp_plan *plan = planner->plan;
    struct esp_buf *buf = &planner->buf;
    bool has_response = plan->response.kind != NULL, requires = plan->tools.choice == ESP_TOOLS_REQUIRED;
    esp_status status = ESP_OK;
    add_item(buf, first);
    if (!wants_calls(planner)) {
        return write_response(planner);
    }
    if (requires) {
        return esp_plan_calls(planner->form, plan, buf, true, &plan->forced, planner->params, planner->err);
    }
    if (has_response) {
        esp_buf_str(buf, "{\"any\":[");
        status = esp_plan_calls(planner->form, plan, buf, true, NULL, planner->params, planner->err);
        esp_buf_char(buf, ',');
        if (status == ESP_OK) {
            status = write_response(planner);
        }
        esp_buf_str(buf, "]}");
        return status;
    }
    return esp_plan_text_and_calls(planner->form, plan, buf, planner->params, planner->err);
}

/* A grammar is needed for calls, for a response format behind reasoning, and for a budget. */
static bool needs_grammar(const struct planner *planner)
{
    const struct esp_plan *plan = planner->plan;
    bool may_think = planner->form->think_close.n > 0 &&
                     (plan->setup.thinking || (planner->form->think_open.n > 0 && !planner->no_thinking));
    return wants_calls(planner) || (may_think && (plan->response.kind != NULL || planner->budget >= 0));
}

static uint32_t count_calls(const json_t *request)
{
    const json_t *messages = json_object_get(request, "messages");
    size_t n = 0;
    for (size_t idx = 0; idx < json_array_size(messages); idx++) {
        n += json_array_size(json_object_get(json_array_get(messages, idx), "tool_calls"));
    }
    return (uint32_t)n;
}

static esp_status write_grammar(struct planner *planner)
{
    struct esp_plan *plan = planner->plan;
    bool first = true;
    esp_buf_init(&planner->buf, ESP_TAG_HTTP, REGIONS_BYTES_MAX);
    esp_buf_str(&planner->buf, "{\"seq\":[");
    write_thinking(planner, &first);
    bool thinks_first = !first;
    if (!thinks_first && plan->tools.choice == ESP_TOOLS_REQUIRED) {
        esp_status forced = esp_plan_force(planner->form, plan, planner->arena, planner->err);
        if (forced != ESP_OK) {
            esp_buf_finish(&planner->buf);
            return forced;
        }
    }
    esp_status status = write_body(planner, &first);
    esp_buf_str(&planner->buf, "]}");
    char *text = planner->buf.failed ? NULL : esp_arena_strndup(planner->arena, planner->buf.data, planner->buf.n);
    if (status == ESP_OK && text == NULL) {
        status = esp_fail(planner->err, ESP_ELIMIT, "the tools do not fit their limit");
        esp_err_place(planner->err, "tools");
    }
    if (status == ESP_OK) {
        planner->params->constraint =
            (struct esp_constraint){.kind = "regions", .text = text, .n_bytes = planner->buf.n, .param = "tools"};
    }
    esp_buf_finish(&planner->buf);
    return status;
}

esp_status esp_plan_make(const struct esp_chat *chat, const struct esp_request_source *source,
                         const struct esp_prompt *prompt, struct esp_arena *arena, struct esp_params *params,
                         struct esp_plan *ret_plan, struct esp_err *err)
{
    struct planner planner = {.chat = chat,
                              .form = esp_chat_form(chat),
                              .source = source,
                              .arena = arena,
                              .params = params,
                              .plan = ret_plan,
                              .err = err};
    *ret_plan = (struct esp_plan){.response = params->constraint};
    esp_status status = esp_tools_read(source, arena, &ret_plan->tools, &params->warnings, err);
    if (status == ESP_OK) {
        status = read_budget(&planner);
    }
    if (status != ESP_OK) {
        return status;
    }
    bool reads = ret_plan->tools.choice != ESP_TOOLS_NONE || planner.form->think_close.n > 0;
    ret_plan->setup = (struct esp_turn_setup){.form = reads ? planner.form : NULL,
                                              .tools = &ret_plan->tools,
                                              .thinking = ends_thinking(&planner, prompt),
                                              .id_seed = source->random_seed,
                                              .n_calls_before = count_calls(source->json)};
    return needs_grammar(&planner) ? write_grammar(&planner) : ESP_OK;
}

/* ---- Refusals ----------------------------------------------------------------------------------- */

void esp_plan_blame(const esp_vocab *vocab, const struct esp_plan *plan, struct esp_err *err, char *ret_param,
                    size_t param_room)
{
    const struct esp_constraint *response = &plan->response;
    esp_grammar *grammar = NULL;
    struct esp_err own = {0};
    for (uint32_t idx = 0; idx < plan->tools.n; idx++) {
        const struct esp_tool *tool = &plan->tools.items[idx];
        if (tool->allowed && tool->has_schema &&
            esp_vocab_grammar(vocab, "schema", tool->schema, tool->schema_bytes, NULL, &grammar, &own) != ESP_OK) {
            *err = own;
            snprintf(ret_param, param_room, "tools[%u].function.parameters", tool->request_idx);
            return;
        }
        esp_grammar_unref(grammar);
        grammar = NULL;
    }
    if (response->kind != NULL && esp_vocab_grammar(vocab, response->kind, response->text, response->n_bytes,
                                                    response->options, &grammar, &own) != ESP_OK) {
        *err = own;
        snprintf(ret_param, param_room, "%s", response->param);
    }
    esp_grammar_unref(grammar);
}
