/* `espalier grammar check`: JSON lines in, verdicts and mask times out; `grammar explain FILE`: what a schema
 * compiles to, for people.
 *
 * check answers and flushes each line before it reads the next; a case that fails never stops the run.
 * explain needs no vocabulary: it compiles for one of single bytes unless one is given. Thread: main.
 */
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "frontend/grammar_check.h"
#include "frontend/options.h"
#include "frontend/output.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/vocab.h"

#define LINE_BYTES_MAX ((size_t)64 << 20)
#define DOT_STATES_MAX 300u
#define OUT_BYTES_MAX ((size_t)1 << 30)

/* Reads one line without its end. False: no more input. A line that does not fit latches line->failed. */
static bool read_line(FILE *in, struct esp_buf *line)
{
    esp_buf_clear(line);
    int c = getc_unlocked(in);
    if (c == EOF) {
        return false;
    }
    for (; c != EOF && c != '\n'; c = getc_unlocked(in)) {
        esp_buf_char(line, (char)c);
    }
    return true;
}

static void answer(struct esp_check *check, const struct esp_buf *line)
{
    if (line->failed) {
        esp_buf_clear(&check->out);
        esp_buf_str(&check->out, "{\"error\":\"the line is too long\"}");
        return;
    }
    esp_check_line(check, line->data, line->n);
    if (check->out.failed) {
        esp_buf_clear(&check->out);
        esp_buf_str(&check->out, "{\"error\":\"the answer is too long\"}");
    }
}

static int check_lines(struct esp_check *check)
{
    struct esp_buf line;
    int ret = ESP_EXIT_DONE;
    esp_buf_init(&line, ESP_TAG_MISC, LINE_BYTES_MAX);
    esp_buf_init(&check->out, ESP_TAG_MISC, OUT_BYTES_MAX);
    while (ret == ESP_EXIT_DONE && read_line(stdin, &line)) {
        if (line.n == 0 && !line.failed) {
            continue;
        }
        answer(check, &line);
        esp_buf_char(&check->out, '\n');
        ret = esp_output_write("grammar", check->out.data, check->out.n) ? ESP_EXIT_DONE : ESP_EXIT_FAILED;
    }
    esp_buf_finish(&line);
    esp_buf_finish(&check->out);
    return ret;
}

/* ---- explain ------------------------------------------------------------------------------------ */

static esp_status byte_trie(struct esp_trie **ret_trie, struct esp_err *err)
{
    uint8_t bytes[256];
    struct esp_trie_token tokens[257];
    for (unsigned byte = 0; byte < 256; byte++) {
        bytes[byte] = (uint8_t)byte;
        tokens[byte] = (struct esp_trie_token){&bytes[byte], 1, ESP_ROLE_TEXT};
    }
    tokens[256] = (struct esp_trie_token){"", 0, ESP_ROLE_END};
    return esp_trie_create(tokens, 257, ret_trie, err);
}

/* One line a keyword: where, what it became, what it cost. */
static void print_keywords(const struct esp_buf *json)
{
    json_error_t error;
    size_t idx;
    json_t *entries = json_loadb(json->data, json->n, 0, &error), *entry;
    json_array_foreach(entries, idx, entry) {
        const char *pointer = json_string_value(json_object_get(entry, "pointer"));
        const char *became = json_string_value(json_object_get(entry, "became"));
        json_int_t cost = json_integer_value(json_object_get(entry, "cost"));
        printf("  %-40s %s", pointer == NULL ? "" : pointer, became == NULL ? "" : became);
        printf(cost > 0 ? " (%" JSON_INTEGER_FORMAT " expressions)\n" : "\n", cost);
    }
    json_decref(entries);
}

static void print_verdict(const struct esp_err *err, double time_us, const struct esp_buf *keywords, bool json)
{
    struct esp_buf out;
    if (!json) {
        if (err->code != ESP_OK) {
            printf("refused: %s\n  at \"%s\", keyword \"%s\"\n  %s\n", esp_status_name(err->code), err->place,
                   err->keyword, err->message);
            printf(err->hint[0] != '\0' ? "  hint: %s\n" : "%s", err->hint);
        } else {
            printf("compiled in %.1f us\n", time_us);
        }
        print_keywords(keywords);
        return;
    }
    esp_buf_init(&out, ESP_TAG_MISC, OUT_BYTES_MAX);
    esp_check_print_verdict(&out, err);
    printf("{%s,\"compile_us\":%.3f,\"explain\":%s}\n", out.data == NULL ? "" : out.data, time_us, keywords->data);
    esp_buf_finish(&out);
}

static int explain_schema(const struct esp_options *options, const struct esp_trie *trie, const struct esp_buf *source)
{
    struct esp_grammar_spec spec = {.kind = ESP_GRAMMAR_SCHEMA, .text = source->data, .n_bytes = source->n};
    struct esp_grammar *grammar = NULL;
    struct esp_err err = {0};
    struct esp_clock clock = esp_clock_monotonic();
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, OUT_BYTES_MAX);
    esp_grammar_explain(trie, &spec, &text, &err);
    int64_t begin = esp_clock_now(&clock);
    esp_grammar_compile(trie, &spec, &grammar, &err);
    print_verdict(&err, (double)(esp_clock_now(&clock) - begin) / 1000, &text, options->json);
    if (grammar != NULL && !options->json) {
        esp_buf_clear(&text);
        printf("warnings %s\n", esp_grammar_warnings(grammar));
        esp_grammar_dump(grammar, &text);
        if (options->dot) {
            esp_grammar_dot(grammar, DOT_STATES_MAX, &text);
        }
        printf("%s", text.data != NULL ? text.data : "");
    }
    esp_buf_finish(&text);
    esp_grammar_unref(grammar);
    return grammar != NULL ? ESP_EXIT_DONE : ESP_EXIT_FAILED;
}

static int explain(const struct esp_options *options, const struct esp_trie *trie)
{
    struct esp_err err = {0};
    struct esp_trie *own = NULL;
    struct esp_buf source;
    int ret = ESP_EXIT_FAILED;
    if (options->positional == NULL) {
        fprintf(stderr, "espalier grammar: which file? usage: espalier grammar explain FILE\n");
        return ESP_EXIT_USAGE;
    }
    esp_buf_init(&source, ESP_TAG_MISC, LINE_BYTES_MAX);
    if (esp_file_read(options->positional, &source, &err) != ESP_OK ||
        (trie == NULL && byte_trie(&own, &err) != ESP_OK)) {
        fprintf(stderr, "espalier grammar: %s: %s\n", options->positional, err.message);
    } else {
        ret = explain_schema(options, trie != NULL ? trie : own, &source);
    }
    esp_trie_destroy(own);
    esp_buf_finish(&source);
    return ret;
}

int esp_verb_grammar(const struct esp_options *options)
{
    const char *path = options->vocab != NULL ? options->vocab : options->model;
    struct esp_err err = {0};
    struct esp_check check = {.oracle = options->oracle};
    esp_vocab *vocab = NULL;
    if (options->sub == NULL) {
        fprintf(stderr, "espalier grammar: check or explain?\n");
        return ESP_EXIT_USAGE;
    }
    if (path != NULL &&
        (esp_vocab_open(path, &vocab, &err) != ESP_OK || esp_vocab_trie(vocab, &check.trie, &err) != ESP_OK)) {
        fprintf(stderr, "espalier grammar: %s: %s\n", path, err.message);
        esp_vocab_close(vocab);
        return ESP_EXIT_FAILED;
    }
    check.vocab = vocab;
    int ret = strcmp(options->sub, "check") == 0 ? check_lines(&check) : explain(options, check.trie);
    esp_vocab_close(vocab);
    return ret;
}
