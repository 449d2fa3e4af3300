/* `espalier tokenize`: JSON lines in, ids and the text they turn back into out.
 *
 *   {"text":"Hi","special":false}  →  {"ids":[…],"text":"Hi"}        a bad line  →  {"error":"…"}
 *
 * One answer a line, flushed before the next line is read; a bad line never stops the run, an empty one is
 * passed over. Never adds BOS or EOS. A line past the limit is answered with an error and skipped to its
 * end. Thread: main.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "frontend/jsontext.h"
#include "frontend/options.h"
#include "frontend/output.h"
#include "runtime/base/buf.h"
#include "runtime/espalier.h"

#define LINE_BYTES_MAX ((size_t)256 << 20)
#define OUT_BYTES_MAX ((size_t)2 << 30)

/* One request's buffers, kept from line to line. */
struct work {
    const esp_vocab *vocab;
    struct esp_buf line, ids, text, out;
};

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

static void answer_error(struct work *work, const char *message)
{
    esp_buf_clear(&work->out);
    esp_buf_str(&work->out, "{\"error\":");
    esp_jsontext_quote_str(&work->out, message);
    esp_buf_char(&work->out, '}');
}

static bool encode(struct work *work, const char *text, size_t n_bytes, bool special, struct esp_err *err)
{
    struct esp_span span = {text, n_bytes, special};
    esp_buf_clear(&work->ids);
    /* A token has at least one byte, SPM's leading space apart: one call is enough. */
    size_t cap = n_bytes * 4 + 16;
    uint32_t *ids = esp_buf_reserve(&work->ids, cap * sizeof *ids);
    int64_t n = ids == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory for the ids")
                            : esp_tokenize(work->vocab, &span, 1, ids, cap, err);
    if (n < 0 || (size_t)n > cap) {
        return false;
    }
    esp_buf_clear(&work->text);
    int64_t n_text = esp_detokenize(work->vocab, ids, (size_t)n, true, NULL, 0);
    char *back = n_text < 0 ? NULL : esp_buf_reserve(&work->text, (size_t)n_text + 1);
    if (back == NULL || esp_detokenize(work->vocab, ids, (size_t)n, true, back, (size_t)n_text) != n_text) {
        esp_fail(err, ESP_ENOMEM, "out of memory for the text");
        return false;
    }
    esp_buf_clear(&work->out);
    esp_buf_str(&work->out, "{\"ids\":[");
    for (int64_t idx = 0; idx < n; idx++) {
        esp_buf_printf(&work->out, idx == 0 ? "%u" : ",%u", (unsigned)ids[idx]);
    }
    esp_buf_str(&work->out, "],\"text\":");
    esp_jsontext_quote(&work->out, back, (size_t)n_text);
    esp_buf_char(&work->out, '}');
    return true;
}

static void answer_object(struct work *work, const json_t *request)
{
    const json_t *text = json_object_get(request, "text"), *special = json_object_get(request, "special");
    struct esp_err err = {0};
    if (!json_is_object(request)) {
        answer_error(work, "the line is no JSON object");
    } else if (!json_is_string(text)) {
        answer_error(work, "\"text\" must be a string");
    } else if (special != NULL && !json_is_boolean(special)) {
        answer_error(work, "\"special\" must be true or false");
    } else if (!encode(work, json_string_value(text), json_string_length(text), json_is_true(special), &err)) {
        answer_error(work, err.message);
    }
}

static void answer_line(struct work *work)
{
    if (work->line.failed) {
        answer_error(work, "the line is too long");
        return;
    }
    json_error_t error;
    /* Text may hold U+0000, which jansson takes only when asked to. */
    json_t *request = json_loadb(work->line.data, work->line.n,
                                 JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (request == NULL) {
        char message[JSON_ERROR_TEXT_LENGTH + 64];
        snprintf(message, sizeof message, "not JSON: %s at byte %d", error.text, error.position);
        answer_error(work, message);
        return;
    }
    answer_object(work, request);
    json_decref(request);
}

static int run_lines(struct work *work)
{
    while (read_line(stdin, &work->line)) {
        if (work->line.n == 0 && !work->line.failed) {
            continue;
        }
        answer_line(work);
        esp_buf_char(&work->out, '\n');
        if (work->out.failed) {
            answer_error(work, "the answer is too long");
            esp_buf_char(&work->out, '\n');
        }
        if (!esp_output_write("tokenize", work->out.data, work->out.n)) {
            return ESP_EXIT_FAILED;
        }
    }
    return ESP_EXIT_DONE;
}

int esp_verb_tokenize(const struct esp_options *options)
{
    const char *path = options->vocab != NULL ? options->vocab : options->model;
    if (path == NULL) {
        fprintf(stderr, "espalier tokenize: which vocabulary? usage: espalier tokenize -m MODEL | --vocab GGUF\n");
        return ESP_EXIT_USAGE;
    }
    struct esp_err err = {0};
    esp_vocab *vocab = NULL;
    if (esp_vocab_open(path, &vocab, &err) != ESP_OK) {
        fprintf(stderr, "espalier tokenize: %s\n", err.message);
        return ESP_EXIT_FAILED;
    }
    struct work work = {.vocab = vocab};
    esp_buf_init(&work.line, ESP_TAG_MISC, LINE_BYTES_MAX);
    esp_buf_init(&work.ids, ESP_TAG_MISC, OUT_BYTES_MAX);
    esp_buf_init(&work.text, ESP_TAG_MISC, OUT_BYTES_MAX);
    esp_buf_init(&work.out, ESP_TAG_MISC, OUT_BYTES_MAX);
    int ret = run_lines(&work);
    esp_buf_finish(&work.line);
    esp_buf_finish(&work.ids);
    esp_buf_finish(&work.text);
    esp_buf_finish(&work.out);
    esp_vocab_close(vocab);
    return ret;
}
