/* branches: several continuations of one conversation in one request.
 *
 *   "messages":[…]  "branches":[{"messages":[…], "response_format":…, "max_tokens":…}, …]
 *
 * Branch i is the conversation with its own messages behind the common ones, and answers as choice i. Each is rendered
 * whole; the tokens that all have in common are the state that the engine forks. A branch without a constraint or
 * max_tokens has the request's. Thread: a work thread.
 */
#include <string.h>

#include "frontend/generate.h"
#include "frontend/http.h"
#include "frontend/jsontext.h"
#include "runtime/base/json.h"

static esp_status refuse(struct esp_err *err, size_t idx, const char *member, const char *message)
{
    esp_fail(err, ESP_EINVAL, "%s", message);
    esp_err_place(err, "branches[%zu]%s%s", idx, member[0] == '\0' ? "" : ".", member);
    return ESP_EINVAL;
}

/* What a library said about a member, with the branch in front of its place. */
static esp_status blame(struct esp_err *err, size_t idx, esp_status status)
{
    char place[sizeof err->place];
    snprintf(place, sizeof place, "%s", err->place);
    esp_err_place(err, "branches[%zu].%.200s", idx, place);
    return status;
}

static esp_status check_members(const json_t *branch, size_t idx, struct esp_err *err)
{
    static const char *const known[] = {"messages", "max_tokens", "max_completion_tokens", "response_format",
                                        "structured_outputs", "regex", "choice", "grammar", "lark"};
    const char *name;
    json_t *value;
    if (!json_is_object(branch)) {
        return refuse(err, idx, "", "a branch must be an object");
    }
    json_object_foreach((json_t *)(uintptr_t)branch, name, value)
    {
        bool is_known = false;
        for (size_t at = 0; at < sizeof known / sizeof known[0]; at++) {
            is_known = is_known || strcmp(name, known[at]) == 0;
        }
        if (!is_known) {
            char shown[64];
            snprintf(shown, sizeof shown, "%s", name);
            return refuse(err, idx, shown, "a branch takes messages, max_tokens and the fields of one constraint");
        }
    }
    const json_t *messages = json_object_get(branch, "messages");
    bool fine = messages == NULL || json_is_null(messages) || json_is_array(messages);
    return fine ? ESP_OK : refuse(err, idx, "messages", "'messages' must be an array");
}

static esp_status read_limits(struct esp_generation *gen, const struct esp_request_source *source, size_t idx,
                              struct esp_fork_part *part, struct esp_err *err)
{
    int64_t n_max = 0, other = 0;
    esp_status status = esp_json_int(source->json, "max_tokens", 1, INT64_MAX, 0, &n_max, err);
    if (status == ESP_OK) {
        status = esp_json_int(source->json, "max_completion_tokens", 1, INT64_MAX, n_max, &other, err);
    }
    n_max = n_max > 0 ? n_max : other;
    part->n_max = n_max > UINT32_MAX ? UINT32_MAX : (uint32_t)n_max;
    if (status == ESP_OK) {
        status = esp_request_constraint(source, &gen->arena, &part->constraint, &gen->params.warnings, err);
    }
    return status == ESP_OK ? ESP_OK : blame(err, idx, status);
}

/* The whole conversation of one branch to tokens. */
static esp_status render(struct esp_generation *gen, const struct esp_chat *chat, const json_t *request,
                         const json_t *branch, struct esp_fork_part *part, struct esp_prompt *prompt,
                         struct esp_err *err)
{
    json_t *whole = json_copy((json_t *)(uintptr_t)request);
    json_t *messages = json_copy(json_object_get(request, "messages"));
    json_t *own = json_object_get(branch, "messages");
    esp_status status = ESP_ENOMEM;
    if (whole == NULL || (json_is_array(messages) && json_is_array(own) && json_array_extend(messages, own) != 0)) {
        esp_fail(err, status, "out of memory");
    } else {
        json_object_set(whole, "messages", messages);
        status = esp_chat_prompt(chat, whole, prompt, err);
    }
    json_decref(messages);
    json_decref(whole);
    if (status == ESP_OK) {
        part->n_ids = esp_prompt_n_tokens(prompt);
        part->ids = esp_arena_alloc(&gen->arena, part->n_ids, sizeof *part->ids);
        if (part->ids == NULL) {
            return esp_fail(err, ESP_ELIMIT, "the prompts of the branches are too large together");
        }
        memcpy(part->ids, prompt->ids.data, part->n_ids * sizeof *part->ids);
    }
    return status;
}

static uint32_t n_common(const struct esp_fork_part *parts, uint32_t n_parts)
{
    uint32_t n = parts[0].n_ids;
    for (uint32_t idx = 1; idx < n_parts; idx++) {
        uint32_t same = 0;
        while (same < n && same < parts[idx].n_ids && parts[idx].ids[same] == parts[0].ids[same]) {
            same++;
        }
        n = same;
    }
    return n;
}

static esp_status read_all(struct esp_generation *gen, const struct esp_chat *chat, const json_t *request,
                           const char *text, size_t n_bytes, struct esp_prompt *prompt, struct esp_err *err)
{
    const json_t *branches = json_object_get(request, "branches");
    const char *path[] = {"branches"}, *item = NULL;
    size_t n_list = 0, n_item = 0, at = 0;
    const char *list = esp_jsontext_find(text, n_bytes, path, 1, &n_list);
    esp_status status = list == NULL ? ESP_EINTERNAL : ESP_OK;
    for (size_t idx = 0; idx < gen->n_fork && status == ESP_OK && esp_jsontext_next(list, n_list, &at, &item, &n_item);
         idx++) {
        const json_t *branch = json_array_get(branches, idx);
        struct esp_request_source source = {.json = branch, .text = item, .n_bytes = n_item, .api = ESP_API_CHAT,
                                            .n_vocab = esp_vocab_n_tokens(gen->vocab)};
        status = check_members(branch, idx, err);
        status = status == ESP_OK ? read_limits(gen, &source, idx, &gen->fork[idx], err) : status;
        if (status == ESP_OK) {
            struct esp_prompt own;
            esp_prompt_init(&own);
            status = render(gen, chat, request, branch, &gen->fork[idx], idx == 0 ? prompt : &own, err);
            esp_prompt_finish(&own);
            status = status == ESP_OK ? ESP_OK : blame(err, idx, status);
        }
    }
    return status;
}

/* With tools or thinking an answer has parts and one grammar for all of it, which a branch's cannot be joined to. */
static esp_status check_plan(const struct esp_generation *gen, struct esp_err *err)
{
    bool has_parts = gen->plan.setup.form != NULL || gen->plan.setup.thinking;
    for (uint32_t idx = 0; idx < gen->n_fork; idx++) {
        if (gen->plan.tools.choice != ESP_TOOLS_NONE || (has_parts && gen->fork[idx].constraint.kind != NULL)) {
            return refuse(err, idx, "", "branches cannot be combined with tools, nor their constraints with reasoning");
        }
    }
    return ESP_OK;
}

bool esp_fork_asked(const json_t *request)
{
    const json_t *branches = json_object_get(request, "branches");
    return branches != NULL && !json_is_null(branches);
}

esp_status esp_fork_read(struct esp_generation *gen, const struct esp_chat *chat, const json_t *request,
                         const char *text, size_t n_bytes, struct esp_prompt *prompt, struct esp_err *err)
{
    const json_t *branches = json_object_get(request, "branches");
    size_t n = json_array_size(branches);
    if (n == 0 || n > ESP_FORK_MAX || gen->params.n != 1) {
        esp_fail(err, ESP_EINVAL, gen->params.n != 1 ? "'branches' and 'n' cannot be combined"
                                                     : "'branches' must be an array of 1 to 64 objects");
        esp_err_place(err, "branches");
        return ESP_EINVAL;
    }
    gen->fork = esp_arena_alloc(&gen->arena, n, sizeof *gen->fork);
    if (gen->fork == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    memset(gen->fork, 0, n * sizeof *gen->fork);
    gen->n_fork = (uint32_t)n;
    gen->params.n = (uint32_t)n;
    esp_status status = read_all(gen, chat, request, text, n_bytes, prompt, err);
    if (status != ESP_OK) {
        return status;
    }
    uint32_t n_base = n_common(gen->fork, gen->n_fork);
    status = esp_generation_plan(gen, chat, request, text, n_bytes, prompt, err);
    status = status == ESP_OK ? check_plan(gen, err) : status;
    return status == ESP_OK ? esp_generation_prompt(gen, gen->fork[0].ids, n_base, err) : status;
}

/* A refusal names the branch and the field, the place inside it, and the keyword. */
static void refuse_grammar(struct esp_generation *gen, uint32_t idx, const struct esp_err *err)
{
    char param[400], code[48];
    bool inside = err->place[0] == '/';
    snprintf(param, sizeof param, "branches[%u].%s%s", idx, gen->fork[idx].constraint.param, inside ? err->place : "");
    esp_grammar_code(err, code, sizeof code);
    esp_exchange_fail(gen->exchange, err->code == ESP_ENOMEM || err->code == ESP_EINTERNAL ? 500 : 400, param, code,
                      "%s", err->message);
}

bool esp_fork_compile(struct esp_generation *gen)
{
    for (uint32_t idx = 0; idx < gen->n_fork; idx++) {
        struct esp_fork_part *part = &gen->fork[idx];
        struct esp_err err = {0};
        if (part->constraint.kind == NULL) {
            continue;
        }
        if (esp_vocab_grammar(gen->vocab, part->constraint.kind, part->constraint.text, part->constraint.n_bytes,
                              part->constraint.options, &part->grammar, &err) != ESP_OK) {
            refuse_grammar(gen, idx, &err);
            return false;
        }
    }
    return true;
}

esp_status esp_fork_submit(struct esp_generation *gen, const struct esp_request *request, esp_request_id *ret_id,
                           struct esp_err *err)
{
    struct esp_branch branches[ESP_FORK_MAX];
    for (uint32_t idx = 0; idx < gen->n_fork; idx++) {
        const struct esp_fork_part *part = &gen->fork[idx];
        branches[idx] = (struct esp_branch){.suffix = part->ids + request->n_tokens,
                                            .n_suffix = part->n_ids - request->n_tokens,
                                            .n_max = part->n_max,
                                            .grammar = part->grammar != NULL ? part->grammar : request->grammar};
    }
    return esp_fork(esp_exchange_engine(gen->exchange), request, branches, gen->n_fork, ret_id, err);
}

void esp_fork_finish(struct esp_generation *gen)
{
    for (uint32_t idx = 0; idx < gen->n_fork; idx++) {
        esp_grammar_unref(gen->fork[idx].grammar);
    }
}

uint64_t esp_fork_suffix_tokens(const struct esp_generation *gen)
{
    uint64_t n = 0;
    for (uint32_t idx = 0; gen->n_runs > 0 && idx < gen->n_fork; idx++) {
        n += gen->fork[idx].n_ids - gen->runs[0].n_ids;
    }
    return n;
}
