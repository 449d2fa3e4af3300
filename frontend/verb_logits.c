/* `espalier logits -m MODEL --tokens 1,2,3|@FILE [--top N | --out FILE]`: the model's raw numbers.
 *
 * The ids are taken exactly as given, nothing is added. With --out every logit goes to a file as little-endian
 * f32, [n_tokens, n_vocab]; else each position is a JSON line with its best ids. Writing happens on the
 * engine's thread, which is done before the verb goes on. Thread: main. Does no arithmetic of the model.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/options.h"
#include "frontend/output.h"
#include "runtime/base/buf.h"
#include "runtime/base/file.h"

#define LIST_BYTES_MAX ((size_t)64 << 20)
#define TOP_DEFAULT 10u
#define TOP_INSERTED 256u /* up to so many are kept in order while looking; for more all ids are sorted */

struct output {
    FILE *out;
    const uint32_t *tokens;
    uint32_t n_vocab, n_top;
    bool raw, failed;
    uint32_t *best; /* [n_vocab] */
};

/* Decimal ids between commas or white space, at least one. */
static bool parse_ids(const char *text, struct esp_buf *ids)
{
    const char *at = text;
    bool after_comma = true;
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (*at == '\0') {
            return ids->n > 0 && !after_comma;
        }
        if (*at == ',') {
            if (after_comma) {
                return false;
            }
            after_comma = true;
            at++;
            continue;
        }
        if (*at < '0' || *at > '9') {
            return false;
        }
        uint64_t value = 0;
        while (*at >= '0' && *at <= '9') {
            value = value * 10 + (uint64_t)(*at++ - '0');
            if (value > UINT32_MAX) {
                return false;
            }
        }
        uint32_t id = (uint32_t)value;
        after_comma = false;
        if (!esp_buf_add(ids, &id, sizeof id)) {
            return false;
        }
    }
}

/* Best first, the lower id first on a tie. */
static int compare(const void *left, const void *right, void *ctx)
{
    const float *logits = ctx;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (logits[a] != logits[b]) {
        return logits[a] > logits[b] ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

static void sort_all(struct output *o, const float *logits)
{
    for (uint32_t id = 0; id < o->n_vocab; id++) {
        o->best[id] = id;
    }
    qsort_r(o->best, o->n_vocab, sizeof *o->best, compare, (void *)(uintptr_t)logits);
}

/* Puts the n_top best ids in front of o->best. */
static void find_best(struct output *o, const float *logits)
{
    if (o->n_top > TOP_INSERTED) {
        sort_all(o, logits);
        return;
    }
    uint32_t n = 0;
    for (uint32_t id = 0; id < o->n_vocab; id++) {
        if (n == o->n_top && !(logits[id] > logits[o->best[n - 1]])) {
            continue;
        }
        uint32_t at = n < o->n_top ? n++ : n - 1;
        while (at > 0 && logits[id] > logits[o->best[at - 1]]) {
            o->best[at] = o->best[at - 1];
            at--;
        }
        o->best[at] = id;
    }
}

static double logsumexp(const float *logits, uint32_t n)
{
    double peak = -INFINITY, sum = 0.0;
    for (uint32_t id = 0; id < n; id++) {
        peak = fmax(peak, (double)logits[id]);
    }
    for (uint32_t id = 0; id < n; id++) {
        sum += exp((double)logits[id] - peak);
    }
    return peak + log(sum);
}

static void print_line(struct output *o, uint32_t pos, const float *logits)
{
    find_best(o, logits);
    fprintf(o->out, "{\"pos\":%u,\"token\":%u,\"ids\":[", pos, o->tokens[pos]);
    for (uint32_t idx = 0; idx < o->n_top; idx++) {
        fprintf(o->out, "%s%u", idx == 0 ? "" : ",", o->best[idx]);
    }
    fprintf(o->out, "],\"logits\":[");
    for (uint32_t idx = 0; idx < o->n_top; idx++) {
        fprintf(o->out, "%s%.9g", idx == 0 ? "" : ",", (double)logits[o->best[idx]]);
    }
    fprintf(o->out, "],\"logsumexp\":%.9g}\n", logsumexp(logits, o->n_vocab));
}

static bool visit(void *ctx, uint32_t pos, const float *logits)
{
    struct output *o = ctx;
    if (o->raw) {
        o->failed = fwrite(logits, sizeof *logits, o->n_vocab, o->out) != o->n_vocab;
    } else {
        print_line(o, pos, logits);
        o->failed = ferror(o->out) != 0;
    }
    return !o->failed;
}

/* All that was printed is written. False after saying why not. */
static bool flushed(struct output *o, const char *path)
{
    if (!o->raw) {
        return esp_output_flush("logits");
    }
    if (fflush(o->out) != 0 || o->failed) {
        fprintf(stderr, "espalier logits: cannot write %s: %s\n", path, strerror(errno));
        return false;
    }
    return true;
}

static int run(const struct esp_options *options, const struct esp_buf *ids)
{
    struct esp_err err = {0};
    esp_engine *engine = NULL;
    struct esp_config config = esp_options_engine(options);
    if (esp_engine_open(&config, &engine, &err) != ESP_OK) {
        fprintf(stderr, "espalier logits: %s\n", err.message);
        return ESP_EXIT_FAILED;
    }
    struct esp_engine_info info;
    esp_engine_get_info(engine, &info);
    uint32_t wanted = options->top == 0 ? TOP_DEFAULT : options->top;
    struct output o = {.out = stdout, .tokens = (const uint32_t *)(const void *)ids->data, .n_vocab = info.n_vocab,
                       .n_top = wanted < info.n_vocab ? wanted : info.n_vocab, .raw = options->out != NULL};
    uint32_t n = (uint32_t)(ids->n / sizeof(uint32_t));
    o.best = esp_calloc(ESP_TAG_MISC, info.n_vocab, sizeof *o.best);
    int ret = ESP_EXIT_FAILED;
    if (o.best == NULL) {
        fprintf(stderr, "espalier logits: out of memory\n");
    } else if (o.raw && (o.out = fopen(options->out, "wb")) == NULL) {
        fprintf(stderr, "espalier logits: cannot write %s: %s\n", options->out, strerror(errno));
    } else if (esp_logits(engine, o.tokens, n, visit, &o, &err) != ESP_OK) {
        fprintf(stderr, "espalier logits: %s\n", err.message);
    } else {
        ret = flushed(&o, options->out) ? ESP_EXIT_DONE : ESP_EXIT_FAILED;
    }
    if (o.raw && o.out != NULL && o.out != stdout && fclose(o.out) != 0 && ret == ESP_EXIT_DONE) {
        fprintf(stderr, "espalier logits: cannot write %s: %s\n", options->out, strerror(errno));
        ret = ESP_EXIT_FAILED;
    }
    esp_free(o.best);
    esp_engine_close(engine);
    return ret;
}

int esp_verb_logits(const struct esp_options *options)
{
    if (options->tokens == NULL) {
        fprintf(stderr, "espalier logits: --tokens 1,2,3 or --tokens @FILE is needed\n");
        return ESP_EXIT_USAGE;
    }
    struct esp_err err = {0};
    struct esp_buf text, ids;
    esp_buf_init(&text, ESP_TAG_MISC, LIST_BYTES_MAX);
    esp_buf_init(&ids, ESP_TAG_MISC, LIST_BYTES_MAX);
    int ret;
    bool from_file = options->tokens[0] == '@';
    if (from_file && esp_file_read(options->tokens + 1, &text, &err) != ESP_OK) {
        fprintf(stderr, "espalier logits: %s\n", err.message);
        ret = ESP_EXIT_FAILED;
    } else if (!parse_ids(from_file ? (text.n == 0 ? "" : text.data) : options->tokens, &ids)) {
        fprintf(stderr, "espalier logits: --tokens: want decimal ids between commas\n");
        ret = ESP_EXIT_USAGE;
    } else {
        ret = run(options, &ids);
    }
    esp_buf_finish(&text);
    esp_buf_finish(&ids);
    return ret;
}
