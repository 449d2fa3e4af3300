/* The regions of calls: open, a call to any of the allowed tools, more of them where the client wants, close. */
#include <string.h>

#include "frontend/jsontext.h"
#include "frontend/plan_internal.h"

#define CALLS_MAX 64u
#define TRIGGERS_MAX ESP_TOOLS_MAX

static void comma(struct esp_buf *buf, bool *first)
{
    esp_buf_add(buf, ",", !*first);
    *first = false;
}

static esp_status refuse_tool(const struct esp_tool *tool, const char *message, struct esp_err *err)
{
    esp_fail(err, ESP_EINVAL, "tools[%u].function.parameters: %s", tool->request_idx, message);
    esp_err_place(err, "tools[%u].function.parameters", tool->request_idx);
    return ESP_EINVAL;
}

/* Arguments are an object, whether the schema says so or not. */
static esp_status write_json_args(const struct esp_form *form, const struct esp_tool *tool, struct esp_buf *buf,
                                  struct esp_err *err)
{
    static const char *const path[] = {"type"};
    char options[64];
    size_t n = 0;
    snprintf(options, sizeof options, "{\"whitespace\":\"%s\"}", form->whitespace);
    const char *type = esp_jsontext_find(tool->schema, tool->schema_bytes, path, 1, &n);
    if (type != NULL && (n != 8 || memcmp(type, "\"object\"", 8) != 0)) {
        return refuse_tool(tool, "the type of arguments must be object", err);
    }
    if (!tool->has_schema) {
        static const char none[] = "{\"type\":\"object\",\"additionalProperties\":false}";
        esp_region_schema(buf, none, sizeof none - 1, options);
        return ESP_OK;
    }
    if (type != NULL) {
        esp_region_schema(buf, tool->schema, tool->schema_bytes, options);
        return ESP_OK;
    }
    size_t at = 1;
    while (at < tool->schema_bytes && strchr(" \t\r\n", tool->schema[at]) != NULL) {
        at++;
    }
    esp_buf_str(buf,
                tool->schema[at] == '}' ? "{\"schema\":{\"type\":\"object\"" : "{\"schema\":{\"type\":\"object\",");
    esp_buf_add(buf, tool->schema + at, tool->schema_bytes - at);
    esp_buf_printf(buf, ",\"options\":%s}", options);
    return ESP_OK;
}

/* The items of one call, from a piece on; skip: bytes of that piece that are there already. */
static esp_status write_pieces(const struct esp_form *form, const struct esp_tool *tool, uint32_t from, size_t skip,
                               struct esp_buf *buf, bool *first, struct esp_params *params, struct esp_err *err)
{
    esp_status status = ESP_OK;
    for (uint32_t idx = from; idx < form->n_pieces && status == ESP_OK; idx++) {
        struct esp_lit lit = form->pieces[idx].lit;
        switch (form->pieces[idx].slot) {
        case ESP_SLOT_LIT:
            lit.text += skip;
            lit.n -= (uint32_t)skip;
            esp_region_lit(buf, &lit, first);
            break;
        case ESP_SLOT_NAME:
            comma(buf, first);
            esp_region_text(buf, tool->name, strlen(tool->name));
            break;
        case ESP_SLOT_ID:
            comma(buf, first);
            esp_buf_str(buf, form->ids == ESP_ID_NINE ? "{\"regex\":\"[a-zA-Z0-9]{9}\"}"
                                                      : "{\"regex\":\"[a-zA-Z0-9_-]{1,40}\"}");
            break;
        case ESP_SLOT_INDEX:
            comma(buf, first);
            esp_buf_str(buf, "{\"regex\":\"[0-9]{1,4}\"}");
            break;
        case ESP_SLOT_ARGS:
            if (form->is_tagged) {
                comma(buf, first);
                status = esp_plan_tagged(form, tool, buf, params, err);
            } else {
                comma(buf, first);
                status = write_json_args(form, tool, buf, err);
            }
            break;
        }
        skip = 0;
    }
    return status;
}

/* A call to any of the allowed tools, after a literal. */
static esp_status write_any(const struct esp_form *form, const struct esp_plan *plan, const struct esp_lit *before,
                            struct esp_buf *buf, struct esp_params *params, struct esp_err *err)
{
    esp_status status = ESP_OK;
    bool first_tool = true;
    esp_buf_str(buf, "{\"any\":[");
    for (uint32_t idx = 0; idx < plan->tools.n && status == ESP_OK; idx++) {
        if (plan->tools.items[idx].allowed) {
            bool first = true;
            comma(buf, &first_tool);
            esp_buf_str(buf, "{\"seq\":[");
            esp_region_lit(buf, before, &first);
            status = write_pieces(form, &plan->tools.items[idx], 0, 0, buf, &first, params, err);
            esp_buf_str(buf, "]}");
        }
    }
    esp_buf_str(buf, "]}");
    return status;
}

/* The rest of a call that the prompt has begun. */
static esp_status write_rest(const struct esp_form *form, const struct esp_plan *plan, const struct esp_lit *forced,
                             struct esp_buf *buf, bool *first, struct esp_params *params, struct esp_err *err)
{
    size_t left = forced->n - form->open.n;
    uint32_t idx = 0;
    const struct esp_tool *tool = plan->tools.items;
    while (!tool->allowed) {
        tool++;
    }
    for (; idx < form->n_pieces; idx++) {
        size_t n = form->pieces[idx].slot == ESP_SLOT_NAME ? strlen(tool->name) : form->pieces[idx].lit.n;
        bool has_text = form->pieces[idx].slot == ESP_SLOT_NAME || form->pieces[idx].slot == ESP_SLOT_LIT;
        if (left < n || !has_text) {
            break;
        }
        left -= n;
    }
    return write_pieces(form, tool, idx, left, buf, first, params, err);
}

esp_status esp_plan_calls(const struct esp_form *form, const struct esp_plan *plan, struct esp_buf *buf, bool at_once,
                          const struct esp_lit *forced, struct esp_params *params, struct esp_err *err)
{
    bool first = true;
    esp_status status;
    esp_buf_str(buf, "{\"seq\":[");
    if (forced != NULL && forced->n > 0) {
        status = write_rest(form, plan, forced, buf, &first, params, err);
    } else {
        struct esp_lit open = form->open;
        while (!at_once && open.n > 0 && strchr(" \n", open.text[0]) != NULL) { /* free text has the white space */
            open.text++;
            open.n--;
        }
        status = write_any(form, plan, &open, buf, params, err);
        first = false;
    }
    if (status == ESP_OK && plan->tools.parallel && !form->one_call) {
        esp_buf_str(buf, first ? "{\"repeat\":" : ",{\"repeat\":");
        status = write_any(form, plan, &form->sep, buf, params, err);
        esp_buf_printf(buf, ",\"max\":%u}", CALLS_MAX - 1);
        first = false;
    }
    esp_region_lit(buf, &form->close, &first);
    esp_buf_str(buf, "]}");
    return status;
}

/* Each tool's name behind the opening, where only that tells a call from text. */
static uint32_t name_triggers(const struct esp_form *form, const struct esp_plan *plan, const struct esp_lit *before,
                              char (*texts)[256], struct esp_lit *lits)
{
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < plan->tools.n; idx++) {
        if (plan->tools.items[idx].allowed) {
            int n_bytes = snprintf(texts[n], sizeof texts[n], "%.*s%s%s", (int)before->n, before->text,
                                   plan->tools.items[idx].name, form->bare_start ? "\n" : "(");
            lits[n] = (struct esp_lit){texts[n], (uint32_t)n_bytes};
            n++;
        }
    }
    return n;
}

esp_status esp_plan_text_and_calls(const struct esp_form *form, const struct esp_plan *plan, struct esp_buf *buf,
                                   struct esp_params *params, struct esp_err *err)
{
    struct esp_lit lits[TRIGGERS_MAX], trigger = form->trigger;
    const struct esp_lit *triggers = &trigger;
    uint32_t n_triggers = 1;
    char(*texts)[256] = esp_calloc(ESP_TAG_HTTP, TRIGGERS_MAX, sizeof *texts);
    if (texts == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    if (form->names_open || form->bare_start) {
        n_triggers = name_triggers(form, plan, form->bare_start ? &form->sep : &form->open, texts, lits);
        triggers = lits;
    }
    esp_status status;
    if (form->text_open.n > 0) { /* a text has a header of its own */
        bool first = true;
        esp_buf_str(buf, "{\"any\":[");
        status = esp_plan_calls(form, plan, buf, true, NULL, params, err);
        esp_buf_str(buf, ",{\"seq\":[");
        esp_region_lit(buf, &form->text_open, &first);
        esp_buf_char(buf, ',');
        esp_region_free(buf, NULL, 0, -1);
        esp_buf_str(buf, "]}]}");
    } else if (form->bare_start) { /* all\n text, then >>>name\n; or name\n at once */
        bool first = true;
        esp_buf_str(buf, "{\"any\":[");
        status = esp_plan_calls(form, plan, buf, true, NULL, params, err);
        esp_buf_str(buf, ",{\"seq\":[");
        esp_region_lit(buf, &form->all, &first);
        esp_buf_char(buf, ',');
        esp_region_free(buf, triggers, n_triggers, -1);
        esp_buf_str(buf, ",{\"repeat\":");
        if (status == ESP_OK) {
            status = write_any(form, plan, &form->sep, buf, params, err);
        }
        esp_buf_printf(buf, ",\"max\":%u}]}]}", plan->tools.parallel ? CALLS_MAX : 1);
    } else {
        esp_buf_str(buf, "{\"seq\":[");
        esp_region_free(buf, triggers, n_triggers, -1);
        esp_buf_str(buf, ",{\"repeat\":");
        status = esp_plan_calls(form, plan, buf, false, NULL, params, err);
        esp_buf_str(buf, ",\"max\":1}]}");
    }
    esp_free(texts);
    return status;
}

esp_status esp_plan_force(const struct esp_form *form, struct esp_plan *plan, struct esp_arena *arena,
                          struct esp_err *err)
{
    const struct esp_tool *tool = plan->tools.items;
    struct esp_buf buf;
    size_t n_solid = 0;
    bool has_name = false;
    if (plan->tools.n_allowed != 1) {
        return ESP_OK;
    }
    while (!tool->allowed) {
        tool++;
    }
    esp_buf_init(&buf, ESP_TAG_HTTP, 64u * 1024u);
    esp_buf_add(&buf, form->open.text, form->open.n);
    for (uint32_t idx = 0; idx < form->n_pieces; idx++) {
        const struct esp_piece *piece = &form->pieces[idx];
        if (piece->slot == ESP_SLOT_NAME) {
            esp_buf_str(&buf, tool->name);
            has_name = true;
        } else if (piece->slot == ESP_SLOT_LIT) {
            esp_buf_add(&buf, piece->lit.text, piece->lit.n);
        } else {
            break;
        }
    }
    /* A space at its end belongs to the token that the model makes of what follows. */
    for (n_solid = buf.n; n_solid > 0 && strchr(" \n", buf.data[n_solid - 1]) != NULL; n_solid--) {
    }
    if (has_name && n_solid > 0 && !buf.failed) {
        plan->forced.text = esp_arena_strndup(arena, buf.data, n_solid);
        plan->forced.n = (uint32_t)n_solid;
    }
    bool failed = buf.failed || (plan->forced.n > 0 && plan->forced.text == NULL);
    esp_buf_finish(&buf);
    return failed ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
}
