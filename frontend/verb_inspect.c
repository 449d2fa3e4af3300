/* `espalier inspect GGUF [--json] [--full]`: what a model file holds, as text or as JSON.
 *
 * Needs no model that runs: any well-formed GGUF file is printed, a malformed one gives one line with the
 * offset of what is wrong, and exit code 1. Thread: main. Does not read the tensors' data.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "frontend/options.h"
#include "runtime/base/buf.h"
#include "runtime/gguf.h"

#define OUTPUT_BYTES_MAX ((size_t)4 << 30)

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
    if (esp_gguf_describe(gguf, options->json, options->full, &text) != ESP_OK) {
        fprintf(stderr, "espalier inspect: %s: out of memory, or more than %zu bytes to print\n", path,
                OUTPUT_BYTES_MAX);
        ret = ESP_EXIT_FAILED;
    } else if (fwrite(text.data, 1, text.n, stdout) != text.n || fflush(stdout) != 0) {
        fprintf(stderr, "espalier inspect: cannot write: %s\n", strerror(errno));
        ret = ESP_EXIT_FAILED;
    }
    esp_buf_finish(&text);
    esp_gguf_close(gguf);
    return ret;
}
