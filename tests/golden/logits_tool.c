/* Logits of a token sequence straight from model and forward pass, without engine or tokenizer:
 *
 *   logits_tool MODEL IDS OUT [CHUNK]    IDS: file of decimal ids; OUT: raw f32 [n_ids, n_vocab]
 *
 * CHUNK rows go through each pass (default 64), so that tests can compare chunk sizes bit for bit. Also checks
 * that the device bytes taken are exactly those that the plan announced. Pages are handed out in
 * reverse order, so that nothing works by accident because page tables are the identity.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/cpu.h"
#include "runtime/forward.h"

#define N_IDS_MAX 65536u
#define N_THREADS 2

struct work {
    uint32_t *ids, *pos, *row_seq, *row_page, *pages, *logit_rows; /* [n_ids]; pages [n_pages] */
    uint32_t n_ids, n_pages, chunk;
};

static int die(const char *what, const struct esp_err *err)
{
    fprintf(stderr, "logits_tool: %s %s\n", what, err == NULL ? "" : err->message);
    return 1;
}

static uint32_t max32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static bool read_ids(const char *path, struct work *w)
{
    FILE *f = fopen(path, "r");
    if (f == NULL) {
        return false;
    }
    w->ids = calloc(N_IDS_MAX, sizeof *w->ids);
    while (w->n_ids < N_IDS_MAX && fscanf(f, "%u", &w->ids[w->n_ids]) == 1) {
        w->n_ids++;
    }
    fclose(f);
    return w->n_ids > 0;
}

static void make_rows(struct work *w)
{
    w->n_pages = (w->n_ids + ESP_PAGE_TOKENS - 1) / ESP_PAGE_TOKENS;
    w->pos = calloc(w->n_ids, sizeof *w->pos);
    w->row_seq = calloc(w->n_ids, sizeof *w->row_seq);
    w->row_page = calloc(w->n_ids, sizeof *w->row_page);
    w->logit_rows = calloc(w->n_ids, sizeof *w->logit_rows);
    w->pages = calloc(w->n_pages, sizeof *w->pages);
    for (uint32_t idx = 0; idx < w->n_pages; idx++) {
        w->pages[idx] = w->n_pages - 1 - idx;
    }
    for (uint32_t idx = 0; idx < w->n_ids; idx++) {
        w->pos[idx] = idx;
        w->logit_rows[idx] = idx;
        w->row_page[idx] = w->pages[idx / ESP_PAGE_TOKENS];
    }
}

static int run(const struct esp_model *model, struct work *w, FILE *out)
{
    const struct esp_ops *ops = model->ops;
    struct esp_kv_geom geom = esp_model_kv_geom(&model->hp);
    struct esp_err err = {0};
    struct esp_forward *forward = NULL;
    void *kv = NULL;
    uint64_t logit_bytes = 0, bytes = esp_forward_bytes(&model->hp, w->chunk, w->chunk, &logit_bytes);
    if (ops->alloc(model->dev, ESP_TAG_KV, w->n_pages * esp_kv_page_bytes(&geom), &kv) != ESP_OK ||
        esp_forward_create(model, kv, w->chunk, w->chunk, &forward, &err) != ESP_OK) {
        return die("no memory", &err);
    }
    if (esp_alloc_bytes(ESP_TAG_ACTIVATIONS) < bytes + logit_bytes) {
        return die("took less than planned", NULL);
    }
    ops->seal(model->dev);
    uint64_t calls = esp_alloc_calls();
    float *host = malloc((size_t)w->chunk * model->hp.n_vocab * sizeof *host);
    const uint32_t *tables[1] = {w->pages};
    for (uint32_t from = 0; from < w->n_ids; from += w->chunk) {
        uint32_t n = w->n_ids - from < w->chunk ? w->n_ids - from : w->chunk;
        struct esp_batch batch = {.n_rows = n, .ids = w->ids + from, .pos = w->pos + from, .row_seq = w->row_seq,
                                  .row_page = w->row_page + from, .pages = tables, .n_seqs = 1,
                                  .logit_rows = w->logit_rows, .n_logits = n};
        const float *logits;
        size_t n_bytes = (size_t)n * model->hp.n_vocab * sizeof *host;
        if (esp_forward_run(forward, &batch, &logits) != ESP_OK ||
            ops->download(model->dev, host, logits, n_bytes) != ESP_OK || fwrite(host, 1, n_bytes, out) != n_bytes) {
            return die("a pass failed", NULL);
        }
    }
    if (esp_alloc_calls() != calls) {
        return die("a pass allocated memory", NULL);
    }
    free(host);
    esp_forward_destroy(forward);
    return 0;
}

static int load_and_run(const char *path, struct work *w, FILE *out)
{
    const struct esp_ops *ops = esp_ops_cpu();
    struct esp_err err = {0};
    struct esp_gguf *gguf = NULL;
    struct esp_hparams hp;
    struct esp_model *model = NULL;
    struct esp_dev *dev = NULL;
    uint64_t bytes = 0;
    if (esp_gguf_open(path, &gguf, &err) != ESP_OK || esp_hparams_read(gguf, &hp, &err) != ESP_OK ||
        esp_model_bytes(gguf, ops, &bytes, &err) != ESP_OK) {
        return die("cannot read", &err);
    }
    struct esp_dev_config config = {.n_threads = N_THREADS, .n_rows_max = w->chunk, .head_dim_max = hp.head_dim,
                                    .n_in_max = max32(max32(hp.n_embd, hp.n_ff), hp.n_head * hp.head_dim),
                                    .n_ctx_max = w->n_pages * ESP_PAGE_TOKENS};
    if (ops->dev_open(&config, &dev, &err) != ESP_OK) {
        return die("no device", &err);
    }
    size_t before = esp_alloc_bytes(ESP_TAG_WEIGHTS);
    if (esp_model_load(gguf, ops, dev, NULL, &model, &err) != ESP_OK) {
        return die("cannot load", &err);
    }
    if (esp_alloc_bytes(ESP_TAG_WEIGHTS) - before < bytes) {
        return die("weights took less than planned", NULL);
    }
    esp_gguf_close(gguf);
    int ret = run(model, w, out);
    esp_model_destroy(model);
    ops->dev_close(dev);
    return ret;
}

int main(int argc, char **argv)
{
    struct work w = {.chunk = argc > 4 ? (uint32_t)atoi(argv[4]) : 64};
    FILE *out = argc > 3 ? fopen(argv[3], "wb") : NULL;
    if (argc < 4 || out == NULL || w.chunk == 0 || !read_ids(argv[2], &w)) {
        fprintf(stderr, "usage: logits_tool MODEL IDS OUT [CHUNK]\n");
        return 2;
    }
    make_rows(&w);
    int ret = load_and_run(argv[1], &w, out);
    if (fclose(out) != 0) {
        ret = die("cannot write", NULL);
    }
    free(w.ids);
    free(w.pos);
    free(w.row_seq);
    free(w.row_page);
    free(w.logit_rows);
    free(w.pages);
    return ret;
}
