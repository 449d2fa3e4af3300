/* `espalier inspect GGUF [--json] [--full]`: what a model file holds, as text or as JSON.
 *
 * Needs no model that runs: any well-formed GGUF file is printed, a malformed one gives one line with the
 * offset of what is wrong, and exit code 1. An odd or unusable vocabulary is a warning in the output. Thread:
 * main. Does not read the tensors' data.
 */
#include <stdio.h>
#include <string.h>

#include "frontend/options.h"
#include "frontend/output.h"
#include "runtime/base/buf.h"
#include "runtime/gguf.h"
#include "runtime/tokenizer.h"

#define OUTPUT_BYTES_MAX ((size_t)4 << 30)
#define WARNINGS_BYTES_MAX 65536

/* What is unusual about the vocabulary, or why it cannot be used; nothing for a file without one. */
static void judge_vocabulary(const struct esp_gguf *gguf, struct esp_buf *warnings)
{
    struct esp_err err = {0};
    struct esp_tokenizer *tokenizer = NULL;
    if (esp_gguf_find(gguf, "tokenizer.ggml.model") == NULL) {
        return;
    }
    if (esp_tokenizer_create(gguf, &tokenizer, &err) == ESP_OK) {
        esp_buf_str(warnings, esp_tokenizer_warnings(tokenizer));
    } else {
        esp_buf_printf(warnings, "the vocabulary cannot be used: %s\n", err.message);
    }
    esp_tokenizer_destroy(tokenizer);
}

int esp_verb_inspect(const struct esp_options *options)
{
    const char *path = options->positional != NULL ? options->positional : options->model;
    if (path == NULL) {
        fprintf(stderr, "espalier inspect: which file? usage: espalier inspect GGUF [--json] [--full]\n");
        return ESP_EXIT_USAGE;
    }
    struct esp_err err = {0};
    struct esp_gguf *gguf = NULL;
    if (esp_gguf_open(path, &gguf, &err) != ESP_OK) {
        fprintf(stderr, "espalier inspect: %s\n", err.message);
        return ESP_EXIT_FAILED;
    }
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, OUTPUT_BYTES_MAX);
    int ret = ESP_EXIT_DONE;
    struct esp_buf warnings;
    esp_buf_init(&warnings, ESP_TAG_MISC, WARNINGS_BYTES_MAX);
    judge_vocabulary(gguf, &warnings);
    const char *lines = warnings.data == NULL ? "" : warnings.data;
    if (esp_gguf_describe(gguf, lines, options->json, options->full, &text) != ESP_OK) {
        fprintf(stderr, "espalier inspect: %s: out of memory, or more than %zu bytes to print\n", path,
                OUTPUT_BYTES_MAX);
        ret = ESP_EXIT_FAILED;
    } else if (!esp_output_write("inspect", text.data, text.n)) {
        ret = ESP_EXIT_FAILED;
    }
    esp_buf_finish(&warnings);
    esp_buf_finish(&text);
    esp_gguf_close(gguf);
    return ret;
}
