/* `espalier perplexity -m MODEL -f TEXT`: how surprised the model is by a text.
 *
 * The text is tokenized as plain text, with BOS in front where the model adds one. A text that fits the context
 * is scored in one pass, every token but the first. A longer one goes through windows of the context's size
 * that overlap by half: each scores the tokens that the one before did not, so that every token has at
 * least half a context before it. The last line of stdout holds the mean of −ln p. Thread: main.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "frontend/options.h"
#include "frontend/output.h"
#include "runtime/base/buf.h"
#include "runtime/base/file.h"

#define TEXT_BYTES_MAX ((size_t)256 << 20)

struct score {
    const uint32_t *window; /* tokens of this pass */
    uint32_t n_window, from; /* positions from … are scored */
    uint32_t n_vocab;
    uint64_t n_scored, n_total;
    double sum;
    bool progress;
};

static double surprise(const float *logits, uint32_t n, uint32_t id)
{
    double peak = -INFINITY, sum = 0.0;
    for (uint32_t idx = 0; idx < n; idx++) {
        peak = fmax(peak, (double)logits[idx]);
    }
    for (uint32_t idx = 0; idx < n; idx++) {
        sum += exp((double)logits[idx] - peak);
    }
    return peak + log(sum) - (double)logits[id];
}

/* The logits of position pos are about the token at pos + 1. */
static bool visit(void *ctx, uint32_t pos, const float *logits)
{
    struct score *s = ctx;
    if (pos + 1 < s->n_window && pos + 1 >= s->from) {
        s->sum += surprise(logits, s->n_vocab, s->window[pos + 1]);
        s->n_scored++;
        if (s->progress && (s->n_scored % 64 == 0 || s->n_scored == s->n_total)) {
            fprintf(stderr, "\r%llu of %llu tokens", (unsigned long long)s->n_scored, (unsigned long long)s->n_total);
        }
    }
    return true;
}

/* Appends the text's tokens to ids, after BOS where the model adds one. */
static esp_status tokenize(const esp_vocab *vocab, const struct esp_buf *text, struct esp_buf *ids, struct esp_err *err)
{
    struct esp_span span = {.text = text->n == 0 ? "" : text->data, .n_bytes = text->n, .control = false};
    uint32_t bos = esp_vocab_bos(vocab);
    if (esp_vocab_adds_bos(vocab) && bos != ESP_TOKEN_NONE) {
        esp_buf_add(ids, &bos, sizeof bos);
    }
    int64_t n = esp_tokenize(vocab, &span, 1, NULL, 0, err);
    if (n < 0) {
        return (esp_status)n;
    }
    uint32_t *at = esp_buf_reserve(ids, (size_t)n * sizeof *at);
    if (at == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for %lld tokens", (long long)n);
    }
    n = esp_tokenize(vocab, &span, 1, at, (size_t)n, err);
    if (n < 0) {
        return (esp_status)n;
    }
    ids->n += (size_t)n * sizeof *at;
    return ESP_OK;
}

static esp_status score_windows(esp_engine *engine, const uint32_t *ids, uint64_t n, uint32_t n_ctx, struct score *s,
                                uint32_t *window, struct esp_err *err)
{
    const esp_vocab *vocab = esp_engine_vocab(engine);
    /* Later windows get a BOS of their own, as the first has. */
    uint32_t n_bos = esp_vocab_adds_bos(vocab) && esp_vocab_bos(vocab) != ESP_TOKEN_NONE ? 1 : 0;
    uint64_t done = 1; /* tokens scored or passed over */
    esp_status status = ESP_OK;
    for (uint64_t start = 0; status == ESP_OK && done < n; start = done - n_ctx / 2) {
        uint32_t lead = start == 0 ? 0 : n_bos;
        uint64_t left = n - start;
        uint32_t n_take = left < n_ctx - lead ? (uint32_t)left : n_ctx - lead;
        if (lead == 1) {
            window[0] = esp_vocab_bos(vocab);
        }
        memcpy(window + lead, ids + start, n_take * sizeof *window);
        s->window = window;
        s->n_window = n_take + lead;
        s->from = (uint32_t)(done - start) + lead;
        status = esp_logits(engine, window, s->n_window, visit, s, err);
        done = start + n_take;
    }
    return status;
}

static int run(esp_engine *engine, const struct esp_buf *text)
{
    struct esp_err err = {0};
    struct esp_engine_info info;
    struct esp_buf ids;
    esp_engine_get_info(engine, &info);
    esp_buf_init(&ids, ESP_TAG_MISC, TEXT_BYTES_MAX);
    uint32_t *window = esp_calloc(ESP_TAG_MISC, info.n_ctx, sizeof *window);
    int ret = ESP_EXIT_FAILED;
    esp_status status = window == NULL ? esp_fail(&err, ESP_ENOMEM, "out of memory")
                                       : tokenize(esp_engine_vocab(engine), text, &ids, &err);
    uint64_t n = ids.n / sizeof(uint32_t);
    struct score s = {.n_vocab = info.n_vocab, .n_total = n - 1, .progress = isatty(STDERR_FILENO) != 0};
    if (status == ESP_OK && n < 2) {
        status = esp_fail(&err, ESP_EINVAL, "the text needs at least two tokens");
    }
    if (status == ESP_OK && info.n_ctx < 4) {
        status = esp_fail(&err, ESP_EINVAL, "a context of %u tokens is too small", info.n_ctx);
    }
    if (status == ESP_OK) {
        status = score_windows(engine, (const uint32_t *)(const void *)ids.data, n, info.n_ctx, &s, window, &err);
    }
    if (s.progress && s.n_scored > 0) {
        fprintf(stderr, "\n");
    }
    if (status != ESP_OK) {
        fprintf(stderr, "espalier perplexity: %s\n", err.message);
    } else {
        double mean = s.sum / (double)s.n_scored;
        printf("tokens scored: %llu\nperplexity: %.6f\nmean negative log-likelihood: %.6f\n",
               (unsigned long long)s.n_scored, exp(mean), mean);
        ret = esp_output_flush("perplexity") ? ESP_EXIT_DONE : ESP_EXIT_FAILED;
    }
    esp_free(window);
    esp_buf_finish(&ids);
    return ret;
}

int esp_verb_perplexity(const struct esp_options *options)
{
    if (options->file == NULL) {
        fprintf(stderr, "espalier perplexity: -f FILE is needed (- for standard input)\n");
        return ESP_EXIT_USAGE;
    }
    struct esp_err err = {0};
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, TEXT_BYTES_MAX);
    esp_engine *engine = NULL;
    struct esp_config config = esp_options_engine(options);
    int ret = ESP_EXIT_FAILED;
    if (esp_file_read(options->file, &text, &err) != ESP_OK || esp_engine_open(&config, &engine, &err) != ESP_OK) {
        fprintf(stderr, "espalier perplexity: %s\n", err.message);
    } else {
        ret = run(engine, &text);
    }
    esp_engine_close(engine);
    esp_buf_finish(&text);
    return ret;
}
