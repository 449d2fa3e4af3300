/* `espalier render --template FILE`: chats as JSON lines in, prompts as JSON lines out.
 *
 * A line is the context the template sees, as it is: messages, tools, add_generation_prompt, bos_token, … Each
 * answer is flushed before the next line is read; a line that fails gives {"error":…} and the run goes on.
 * Thread: main.
 */
#include <jansson.h>
#include <string.h>
#include <time.h>

#include "frontend/options.h"
#include "frontend/output.h"
#include "frontend/template.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"

#define LINE_BYTES_MAX ((size_t)64 << 20)

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

static int fail(const struct esp_err *err)
{
    fprintf(stderr, "espalier: %s\n", err->message);
    return ESP_EXIT_FAILED;
}

static esp_status compile_file(const char *path, struct esp_template **ret_template, struct esp_err *err)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, ESP_TEMPLATE_BYTES_MAX);
    esp_status status = esp_file_read(path, &text, err);
    if (status == ESP_OK) {
        status = esp_template_compile(text.n == 0 ? "" : text.data, text.n, ret_template, err);
    }
    esp_buf_finish(&text);
    return status;
}

static bool print_answer(const char *key, const char *text, size_t n_bytes)
{
    json_t *answer = json_pack("{s:s%}", key, text, n_bytes);
    bool ok = answer != NULL && json_dumpf(answer, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF;
    json_decref(answer);
    return esp_output_flush("render") && ok;
}

static bool render_line(const struct esp_template *tmpl, const char *line, size_t n_bytes)
{
    struct esp_err err = {0};
    struct esp_rendered rendered;
    esp_rendered_init(&rendered);
    json_t *context = esp_json_parse(line, n_bytes, &err);
    esp_status status = context == NULL ? ESP_EINVAL : ESP_OK;
    if (status == ESP_OK && !json_is_object(context)) {
        status = esp_fail(&err, ESP_EINVAL, "a JSON object is needed");
    }
    if (status == ESP_OK) {
        status = esp_template_render(tmpl, context, (int64_t)time(NULL), &rendered, &err);
    }
    bool ok = status == ESP_OK ? print_answer("text", rendered.text.n == 0 ? "" : rendered.text.data, rendered.text.n)
                               : print_answer("error", err.message, strlen(err.message));
    json_decref(context);
    esp_rendered_finish(&rendered);
    return ok;
}

int esp_verb_render(const struct esp_options *options)
{
    struct esp_template *tmpl = NULL;
    struct esp_err err = {0};
    if (compile_file(options->template_file, &tmpl, &err) != ESP_OK) {
        return fail(&err);
    }
    struct esp_buf line;
    bool ok = true;
    esp_buf_init(&line, ESP_TAG_MISC, LINE_BYTES_MAX);
    while (ok && read_line(stdin, &line)) {
        if (line.failed) {
            ok = print_answer("error", "the line is too long", 20);
        } else if (line.n > 0) {
            ok = render_line(tmpl, line.data, line.n);
        }
    }
    esp_buf_finish(&line);
    esp_template_destroy(tmpl);
    return ok ? ESP_EXIT_DONE : ESP_EXIT_FAILED;
}
