/* Every top-level field of a request is in one table: read elsewhere, accepted because it changes nothing here,
 * or refused unless its value asks for nothing. What is not in the table is unknown: a warning, or with
 * --strict-fields a refusal. Names by which other servers take constraints are refused, because ignoring one
 * would hand out an unconstrained answer.
 */
#include <string.h>

#include "frontend/jsontext.h"
#include "frontend/request.h"
#include "runtime/base/json.h"

enum rule {
    READ,  /* checked where it is read */
    ANY,   /* any value: about the caller, not the answer */
    WARN,  /* any value: has no effect, and a warning says so */
    EMPTY, /* an empty array or object, or the value in `allowed` */
    ONLY   /* the values in `allowed`, separated by | */
};
#define BOTH (ESP_API_CHAT | ESP_API_COMPLETIONS)
#define TEXT (BOTH | ESP_API_MESSAGES | ESP_API_RESPONSES)
#define SPEC (ESP_API_CHAT | ESP_API_RESPONSES) /* in one form in both */
#define EVERY (TEXT | ESP_API_EMBEDDINGS)

static const struct field {
    const char *name;
    unsigned apis;
    enum rule rule;
    const char *allowed, *hint;
} fields[] = {
    {"model", EVERY, READ},
    {"messages", ESP_API_CHAT | ESP_API_MESSAGES, READ},
    {"prompt", ESP_API_COMPLETIONS, READ},
    {"input", ESP_API_EMBEDDINGS | ESP_API_RESPONSES, READ},
    {"encoding_format", ESP_API_EMBEDDINGS, READ},
    {"dimensions", ESP_API_EMBEDDINGS, READ},
    {"pooling", ESP_API_EMBEDDINGS, READ},
    {"temperature", TEXT, READ},
    {"top_p", TEXT, READ},
    {"top_k", TEXT, READ},
    {"min_p", TEXT, READ},
    {"presence_penalty", BOTH, READ},
    {"frequency_penalty", BOTH, READ},
    {"repetition_penalty", BOTH, READ},
    {"logit_bias", BOTH, READ},
    {"logprobs", BOTH, READ},
    {"top_logprobs", SPEC, READ},
    {"n", BOTH, READ},
    {"best_of", ESP_API_COMPLETIONS, READ},
    {"echo", ESP_API_COMPLETIONS, READ},
    {"seed", TEXT, READ},
    {"stop", BOTH | ESP_API_RESPONSES, READ},
    {"stream", TEXT, READ},
    {"stream_options", BOTH | ESP_API_RESPONSES, READ},
    {"max_tokens", TEXT, READ},
    {"max_completion_tokens", ESP_API_CHAT, READ},
    {"ignore_eos", BOTH, READ},
    {"cache_salt", TEXT, READ},
    {"response_format", BOTH, READ},
    {"structured_outputs", BOTH, READ},
    {"regex", BOTH, READ},
    {"choice", BOTH, READ},
    {"grammar", BOTH, READ},
    {"lark", BOTH, READ},
    {"chat_template_kwargs", ESP_API_CHAT, READ},
    {"add_generation_prompt", ESP_API_CHAT, READ},
    {"choice_scores", BOTH, READ},
    {"branches", ESP_API_CHAT, READ},
    {"priority", TEXT, READ},
    {"timeout", TEXT, READ},
    {"user", TEXT, READ},
    {"user", ESP_API_EMBEDDINGS, ANY},
    {"metadata", TEXT, ANY},
    {"safety_identifier", BOTH | ESP_API_RESPONSES, READ},
    {"prompt_cache_key", TEXT, READ},
    {"parallel_tool_calls", SPEC, READ},
    {"system", ESP_API_MESSAGES, READ},
    {"stop_sequences", ESP_API_MESSAGES, READ},
    {"tools", SPEC | ESP_API_MESSAGES, READ},
    {"tool_choice", SPEC | ESP_API_MESSAGES, READ},
    {"thinking", ESP_API_MESSAGES, READ},
    {"output_config", ESP_API_MESSAGES, READ},
    {"output_format", ESP_API_MESSAGES, READ},
    {"instructions", ESP_API_RESPONSES, READ},
    {"max_output_tokens", ESP_API_RESPONSES, READ},
    {"previous_response_id", ESP_API_RESPONSES, READ},
    {"store", ESP_API_RESPONSES, READ},
    {"text", ESP_API_RESPONSES, READ},
    {"reasoning", ESP_API_RESPONSES, READ},
    {"include", ESP_API_RESPONSES, READ},
    {"truncation", ESP_API_RESPONSES, ONLY, "\"disabled\"|\"auto\""}, /* auto: what is too long is still refused */
    {"background", ESP_API_RESPONSES, ONLY, "false", "answers are made while the client waits"},
    {"conversation", ESP_API_RESPONSES, EMPTY, NULL, "use previous_response_id"},
    {"prompt", ESP_API_RESPONSES, EMPTY, NULL, "prompts are not stored here"},
    {"max_tool_calls", ESP_API_RESPONSES, WARN, NULL, "the caller runs the tools, and can count"},
    {"access_programs", ESP_API_RESPONSES, WARN, NULL, "there are no programs"},
    {"background_options", ESP_API_RESPONSES, WARN, NULL, "answers are made while the client waits"},
    {"image", ESP_API_RESPONSES, WARN, NULL, "only text is produced"},
    {"moderation", ESP_API_RESPONSES, WARN, NULL, "nothing is moderated"},
    {"cache_control", ESP_API_MESSAGES, ANY}, /* what can be reused is, without being told */
    {"service_tier", ESP_API_MESSAGES, ONLY, "\"auto\"|\"standard_only\""},
    {"context_management", ESP_API_MESSAGES | ESP_API_RESPONSES, WARN, NULL, "earlier turns are not edited"},
    {"container", ESP_API_MESSAGES, WARN, NULL, "there are no containers"},
    {"mcp_servers", ESP_API_MESSAGES, EMPTY, NULL, "tools are called by the caller"},
    {"inference_geo", ESP_API_MESSAGES, WARN, NULL, "everything runs here"},
    {"diagnostics", ESP_API_MESSAGES, WARN, NULL, "GET /v1/cache tells what is cached"},
    {"user_profile_id", ESP_API_MESSAGES, ANY},
    {"workspace_id", ESP_API_MESSAGES, ANY},
    {"speed", ESP_API_MESSAGES, WARN, NULL, "there is one speed"},
    {"functions", ESP_API_CHAT, EMPTY, NULL, "use tools"},
    {"function_call", ESP_API_CHAT, ONLY, "\"none\"|\"auto\"", "use tool_choice"},
    {"store", BOTH, ONLY, "false", "nothing is stored here"},
    {"service_tier", BOTH | ESP_API_RESPONSES, ONLY, "\"auto\"|\"default\""},
    {"modalities", ESP_API_CHAT, ONLY, "[\"text\"]", "only text is produced"},
    {"audio", ESP_API_CHAT, EMPTY},
    {"prediction", ESP_API_CHAT, EMPTY, NULL, "predicted outputs are not part of this version"},
    {"reasoning_effort", ESP_API_CHAT, ONLY, "\"none\"|\"minimal\"|\"low\"|\"medium\"|\"high\"|\"xhigh\"|\"max\""},
    {"reasoning_budget", ESP_API_CHAT, READ},
    {"enable_thinking", ESP_API_CHAT, READ},
    {"verbosity", ESP_API_CHAT, ONLY, "\"medium\""},
    {"web_search_options", ESP_API_CHAT, EMPTY},
    {"suffix", ESP_API_COMPLETIONS, ONLY, "\"\"", "text is only continued at its end"},
    {"prompt_cache_options", TEXT, READ},
    {"prompt_cache_retention", BOTH | ESP_API_RESPONSES, ONLY, "\"in-memory\"|\"in_memory\""},
    {"session_id", TEXT, READ},
    {"done", TEXT, READ},
    {"chat_template", ESP_API_CHAT, EMPTY, NULL, "the template is chosen when the server starts (--chat-template)"},
    {"continue_final_message", ESP_API_CHAT, ONLY, "false"},
    {"top_a", BOTH, ONLY, "0"},
    {"typical_p", BOTH, ONLY, "1"},
    {"mirostat", BOTH, ONLY, "0"},
    {"min_tokens", BOTH, ONLY, "0"},
    {"stop_token_ids", BOTH, EMPTY},
    {"guided_json", BOTH, EMPTY, NULL, "use structured_outputs or response_format"},
    {"guided_regex", BOTH, EMPTY, NULL, "use regex or structured_outputs"},
    {"guided_choice", BOTH, EMPTY, NULL, "use choice or structured_outputs"},
    {"guided_grammar", BOTH, EMPTY, NULL, "use grammar or structured_outputs"},
    {"json_schema", BOTH, EMPTY, NULL, "use response_format or structured_outputs"},
    {"ebnf", BOTH, EMPTY, NULL, "use grammar or structured_outputs"},
};

void esp_request_warn(struct esp_buf *warnings, const char *code, const char *param, const char *message)
{
    if (warnings->n > warnings->cap_bytes / 2) {
        return; /* a request of a million unknown fields gets the first warnings */
    }
    size_t start = warnings->n;
    esp_buf_str(warnings, warnings->n > 0 ? ",{\"code\":" : "{\"code\":");
    esp_jsontext_quote_str(warnings, code);
    esp_buf_str(warnings, ",\"param\":");
    esp_jsontext_quote_str(warnings, param);
    esp_buf_str(warnings, ",\"message\":");
    esp_jsontext_quote_str(warnings, message);
    esp_buf_char(warnings, '}');
    size_t skip = start > 0 ? 1 : 0;
    if (!warnings->failed && start > 0 &&
        memmem(warnings->data, start, warnings->data + start + skip, warnings->n - start - skip) != NULL) {
        warnings->n = start; /* it was said before */
        warnings->data[start] = '\0';
    }
}

/* Is the value one of the JSON texts in allowed? */
static bool is_one_of(const json_t *value, const char *allowed)
{
    while (allowed != NULL && *allowed != '\0') {
        size_t n = strcspn(allowed, "|");
        json_t *want = json_loadb(allowed, n, JSON_DECODE_ANY, NULL);
        bool equal = json_equal(want, value) != 0 || (json_is_number(want) && json_is_number(value) &&
                                                      json_number_value(want) == json_number_value(value));
        json_decref(want);
        if (equal) {
            return true;
        }
        allowed += n + (allowed[n] == '|');
    }
    return false;
}

static bool asks_for_nothing(const json_t *value)
{
    return (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static const struct field *field_of(const char *name, unsigned api)
{
    for (size_t idx = 0; idx < sizeof fields / sizeof fields[0]; idx++) {
        if ((fields[idx].apis & api) != 0 && strcmp(fields[idx].name, name) == 0) {
            return &fields[idx];
        }
    }
    return NULL;
}

/* A constraint that is empty still asked for one: only absence asks for nothing. */
static bool is_foreign_constraint(const char *name)
{
    return strncmp(name, "guided_", 7) == 0 || strcmp(name, "json_schema") == 0 || strcmp(name, "ebnf") == 0;
}

static esp_status check_field(const struct field *field, const json_t *value, struct esp_buf *warnings,
                              struct esp_err *err)
{
    if (field->rule == WARN && !json_is_null(value)) {
        esp_request_warn(warnings, "ignored_field", field->name, field->hint);
        return ESP_OK;
    }
    bool fine = field->rule == READ || field->rule == ANY || json_is_null(value) || is_one_of(value, field->allowed) ||
                (field->rule == EMPTY && asks_for_nothing(value) && !is_foreign_constraint(field->name));
    if (fine) {
        return ESP_OK;
    }
    esp_fail(err, ESP_EINVAL, "'%s' with this value cannot be honoured%s%s", field->name,
             field->hint == NULL ? "" : ": ", field->hint == NULL ? "" : field->hint);
    esp_err_place(err, "%s", field->name);
    return ESP_EINVAL;
}

static esp_status unknown_field(const struct esp_request_source *source, const char *name, struct esp_buf *warnings,
                                struct esp_err *err)
{
    char shown[128];
    snprintf(shown, sizeof shown, "%s", name); /* a cut character becomes U+FFFD when it is quoted */
    if (source->strict_fields) {
        esp_fail(err, ESP_EINVAL, "unknown field '%s'", shown);
        esp_err_place(err, "%s", shown);
        return ESP_EINVAL;
    }
    esp_request_warn(warnings, "unknown_field", shown, "this field is not known and was ignored");
    return ESP_OK;
}

esp_status esp_request_fields(const struct esp_request_source *source, struct esp_buf *warnings, struct esp_err *err)
{
    void *iter = json_object_iter((json_t *)(uintptr_t)source->json);
    esp_status status = ESP_OK;
    while (iter != NULL && status == ESP_OK) {
        const char *name = json_object_iter_key(iter);
        const struct field *field = field_of(name, source->api);
        if (field == NULL) {
            status = unknown_field(source, name, warnings, err);
        } else {
            status = check_field(field, json_object_iter_value(iter), warnings, err);
        }
        iter = json_object_iter_next((json_t *)(uintptr_t)source->json, iter);
    }
    return status;
}
