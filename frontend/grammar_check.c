/* `grammar check`, one line: split, compile, try the texts, print. See grammar_check.h. */
#include "frontend/grammar_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/grammar_run.h"
#include "frontend/jsontext.h"
#include "runtime/base/clock.h"
#include "runtime/vocab.h"

enum member { ID, SCHEMA, REGEX, GBNF, GRAMMAR, LARK, CHOICE, REGIONS, OPTIONS, ACCEPT, REJECT, VOCAB, FEED, MEMBERS };
static const char *const member_names[MEMBERS] = {"id",      "schema",  "regex",  "gbnf",   "grammar", "lark", "choice",
                                                  "regions", "options", "accept", "reject", "vocab",   "feed"};

struct span {
    const char *text; /* NULL: absent */
    size_t n;
};

struct line {
    struct span members[MEMBERS];
    json_t *parsed[MEMBERS]; /* all but schema, owned */
};

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')) {
        at++;
    }
    return at;
}

/* After the closing quote of the string that begins at `at`; NULL when it has no end. */
static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        at += *at == '\\';
    }
    return at < end ? at + 1 : NULL;
}

/* One step inside a value: past a string, a bracket or any other byte. */
static const char *skip_step(const char *at, const char *end, size_t *depth)
{
    if (*at == '"') {
        return skip_string(at, end);
    }
    *depth += *at == '{' || *at == '[';
    *depth -= *at == '}' || *at == ']';
    return at + 1;
}

/* After the value that begins at `at`, found by brackets alone; NULL when it has no end. */
static const char *skip_value(const char *at, const char *end)
{
    size_t depth = 0;
    while (at != NULL && at < end) {
        char c = *at;
        if (depth == 0 && (c == '}' || c == ']' || c == ',')) {
            return at;
        }
        at = skip_step(at, end, &depth);
        if (at != NULL && depth == 0 && at < end && (c == '}' || c == ']' || c == '"')) {
            return at;
        }
    }
    return NULL;
}

static void keep_member(struct line *line, const char *key, size_t n_key, struct span value)
{
    for (int idx = 0; idx < MEMBERS; idx++) {
        if (strlen(member_names[idx]) == n_key && memcmp(key, member_names[idx], n_key) == 0) {
            line->members[idx] = value;
        }
    }
}

/* Reads `"key": value` at *at and the space after it. Returns NULL or what is wrong. */
static const char *split_member(const char **at, const char *end, struct line *line)
{
    const char *key = *at + 1, *key_end = skip_string(*at, end);
    const char *colon = key_end == NULL ? end : skip_space(key_end, end);
    if (colon == end || *colon != ':') {
        return "not JSON: a colon is missing";
    }
    const char *value = skip_space(colon + 1, end), *value_end = skip_value(value, end);
    if (value_end == NULL || value_end == value) {
        return "not JSON: a value is missing or without end";
    }
    keep_member(line, key, (size_t)(key_end - 1 - key), (struct span){value, (size_t)(value_end - value)});
    *at = skip_space(value_end, end);
    return NULL;
}

/* Splits the line's object. Returns NULL or what is wrong. */
static const char *split_line(const char *at, const char *end, struct line *line)
{
    at = skip_space(at, end);
    if (at == end || *at != '{') {
        return "the line is no JSON object";
    }
    at = skip_space(at + 1, end);
    while (at < end && *at == '"') {
        const char *wrong = split_member(&at, end, line);
        if (wrong != NULL) {
            return wrong;
        }
        if (at < end && *at == ',') {
            at = skip_space(at + 1, end);
            if (at < end && *at != '"') {
                return "not JSON: a key was expected";
            }
        }
    }
    if (at == end || *at != '}') {
        return "not JSON: the object is not closed";
    }
    return skip_space(at + 1, end) == end ? NULL : "not JSON: text after the object";
}

static const char *parse_members(struct line *line)
{
    for (int idx = 0; idx < MEMBERS; idx++) {
        struct span span = line->members[idx];
        json_error_t error;
        if (span.text == NULL || idx == SCHEMA) {
            continue;
        }
        line->parsed[idx] = json_loadb(span.text, span.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
        if (line->parsed[idx] == NULL) {
            return "not JSON";
        }
    }
    return NULL;
}

/* ---- Compiling ---------------------------------------------------------------------------------- */

/* Which grammar the line holds, and its source. NULL or what is wrong. */
static const char *find_spec(const struct line *line, struct esp_grammar_spec *spec)
{
    static const enum esp_grammar_kind kinds[] = {
        [SCHEMA] = ESP_GRAMMAR_SCHEMA, [REGEX] = ESP_GRAMMAR_REGEX, [GBNF] = ESP_GRAMMAR_GBNF,
        [GRAMMAR] = ESP_GRAMMAR_GBNF,  [LARK] = ESP_GRAMMAR_LARK,   [CHOICE] = ESP_GRAMMAR_CHOICE,
        [REGIONS] = ESP_GRAMMAR_REGIONS};
    int found = -1;
    for (int idx = SCHEMA; idx <= REGIONS; idx++) {
        if (line->members[idx].text != NULL) {
            if (found >= 0) {
                return "more than one grammar in the line";
            }
            found = idx;
        }
    }
    if (found < 0) {
        return "none of schema, regex, gbnf, grammar, lark, choice and regions is there";
    }
    spec->kind = kinds[found];
    spec->text = line->members[found].text;
    spec->n_bytes = line->members[found].n;
    if (found != SCHEMA && found != CHOICE && found != REGIONS) {
        if (!json_is_string(line->parsed[found])) {
            return "the grammar must be a string";
        }
        spec->text = json_string_value(line->parsed[found]);
        spec->n_bytes = json_string_length(line->parsed[found]);
    }
    return NULL;
}

static void print_error(struct esp_buf *out, const struct esp_err *err)
{
    esp_buf_str(out, "\"compile\":\"error\",\"error\":{\"code\":");
    esp_jsontext_quote_str(out, esp_status_name(err->code));
    esp_buf_str(out, ",\"pointer\":");
    esp_jsontext_quote_str(out, err->place);
    esp_buf_str(out, ",\"keyword\":");
    esp_jsontext_quote_str(out, err->keyword);
    esp_buf_str(out, ",\"message\":");
    esp_jsontext_quote_str(out, err->message);
    esp_buf_str(out, ",\"hint\":");
    esp_jsontext_quote_str(out, err->hint);
    esp_buf_char(out, '}');
}

void esp_check_print_verdict(struct esp_buf *out, const struct esp_err *err)
{
    if (err->code == ESP_OK) {
        esp_buf_str(out, "\"compile\":\"ok\"");
    } else {
        print_error(out, err);
    }
}

static bool wants_times(const struct line *line)
{
    return json_is_true(json_object_get(line->parsed[OPTIONS], "mask_times"));
}

static void print_results(struct esp_check *check, const struct line *line, struct esp_run *run,
                          struct esp_grammar *grammar, double compile_us)
{
    struct esp_buf *out = &check->out;
    esp_buf_printf(out, ",\"compile\":\"ok\",\"warnings\":%s,\"compile_us\":%.3f", esp_grammar_warnings(grammar),
                   compile_us);
    for (int idx = ACCEPT; idx <= REJECT; idx++) {
        if (line->parsed[idx] != NULL) {
            esp_buf_printf(out, ",\"%s\":[", member_names[idx]);
            size_t at;
            json_t *text;
            json_array_foreach(line->parsed[idx], at, text)
            {
                bool ok = json_is_string(text) && esp_run_text(run, json_string_value(text), json_string_length(text));
                esp_buf_printf(out, "%s%s", at == 0 ? "" : ",", ok ? "true" : "false");
            }
            esp_buf_char(out, ']');
        }
    }
    if (line->parsed[FEED] != NULL) {
        esp_buf_str(out, ",\"feed\":");
        esp_run_feed(run, line->parsed[FEED], out);
    }
    esp_run_print_times(run, wants_times(line), out);
    if (check->oracle) {
        esp_buf_printf(out, ",\"mask_errors\":%" PRIu64, run->n_mask_errors);
    }
    esp_buf_printf(out, ",\"bytes\":%zu}", esp_grammar_bytes(grammar));
}

static void compile_and_run(struct esp_check *check, const struct line *line, const struct esp_trie *trie,
                            const esp_vocab *vocab)
{
    struct esp_grammar_spec spec = {0};
    struct esp_err err = {0};
    struct esp_grammar *grammar = NULL;
    struct esp_clock clock = esp_clock_monotonic();
    char *options = NULL;
    const char *wrong = find_spec(line, &spec);
    esp_status status = wrong == NULL ? ESP_OK : esp_fail(&err, ESP_EINVAL, "%s", wrong);
    if (status == ESP_OK && line->members[OPTIONS].text != NULL) {
        options = esp_strndup(ESP_TAG_MISC, line->members[OPTIONS].text, line->members[OPTIONS].n);
        status = options == NULL ? esp_fail(&err, ESP_ENOMEM, "out of memory")
                                 : esp_grammar_options_parse(options, &spec.options, &err);
        esp_free(options);
    }
    int64_t begin = esp_clock_now(&clock);
    if (status == ESP_OK) {
        status = esp_grammar_compile(trie, &spec, &grammar, &err);
    }
    struct esp_run run = {.grammar = grammar, .trie = trie, .vocab = vocab, .oracle = check->oracle};
    if (status == ESP_OK) {
        status = esp_run_init(&run);
        if (status != ESP_OK) {
            esp_fail(&err, status, "out of memory");
        }
    }
    int64_t end = esp_clock_now(&clock);
    if (status == ESP_OK) {
        print_results(check, line, &run, grammar, (double)(end - begin) / 1000.0);
    } else {
        esp_buf_char(&check->out, ',');
        print_error(&check->out, &err);
        esp_buf_str(&check->out, ",\"warnings\":[]}");
    }
    esp_run_finish(&run);
    esp_grammar_unref(grammar);
}

static void answer_error(struct esp_check *check, const char *message)
{
    esp_buf_clear(&check->out);
    esp_buf_str(&check->out, "{\"error\":");
    esp_jsontext_quote_str(&check->out, message);
    esp_buf_char(&check->out, '}');
}

static void print_id(struct esp_check *check, const struct line *line)
{
    esp_buf_str(&check->out, "{\"id\":");
    if (line->members[ID].text == NULL) {
        esp_buf_str(&check->out, "null");
    } else {
        esp_buf_add(&check->out, line->members[ID].text, line->members[ID].n);
    }
}

void esp_check_line(struct esp_check *check, const char *text, size_t n_bytes)
{
    struct line line = {0};
    struct esp_err err = {0};
    struct esp_trie *own = NULL;
    esp_buf_clear(&check->out);
    const char *wrong = split_line(text, text + n_bytes, &line);
    wrong = wrong != NULL ? wrong : parse_members(&line);
    if (wrong == NULL && line.parsed[ID] != NULL && line.members[ID].n > 4096) {
        wrong = "the id is too long";
    }
    if (wrong != NULL) {
        answer_error(check, wrong);
    } else if (line.parsed[VOCAB] != NULL) {
        print_id(check, &line);
        if (esp_run_vocab(line.parsed[VOCAB], &own, &err) == ESP_OK) {
            compile_and_run(check, &line, own, NULL);
        } else {
            esp_buf_char(&check->out, ',');
            print_error(&check->out, &err);
            esp_buf_str(&check->out, ",\"warnings\":[]}");
        }
    } else if (check->trie == NULL) {
        answer_error(check, "no vocabulary: give -m, --vocab or a \"vocab\" in the line");
    } else {
        print_id(check, &line);
        compile_and_run(check, &line, check->trie, check->vocab);
    }
    for (int idx = 0; idx < MEMBERS; idx++) {
        json_decref(line.parsed[idx]);
    }
    esp_trie_destroy(own);
}
