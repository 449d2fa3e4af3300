/* From a config to a running engine: file, vocabulary, memory plan, device, weights, engine, thread.
 * Each step's owner undoes it when a later one fails. Thread: the caller's; afterwards the engine's own.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "runtime/base/alloc.h"
#include "runtime/base/log.h"
#include "runtime/engine_impl.h"
#include "runtime/fingerprint.h"
#include "runtime/memory.h"
#include "runtime/vocab.h"

#define PAGEFILE_BYTES ((uint64_t)8 << 30)
#define PATH_BYTES_MAX 4096

struct opening {
    struct esp_gguf *gguf;
    esp_vocab *vocab;
    struct esp_model *model;
    struct esp_dev *dev;
    const struct esp_ops *ops;
    struct esp_hparams hp;
    struct esp_memory_plan plan;
    uint64_t fingerprint[2]; /* with a page file only */
    struct esp_pagefile *pagefile;
    esp_engine *engine;
};

static esp_status choose_device(const char *device, const struct esp_ops **ret_ops, struct esp_err *err)
{
    if (device != NULL && strcmp(device, "auto") != 0 && strcmp(device, "cpu") != 0) {
        esp_fail(err, ESP_EUNSUPPORTED, "this build has no device \"%s\", only \"cpu\"", device);
        esp_err_place(err, "device");
        return ESP_EUNSUPPORTED;
    }
    *ret_ops = esp_ops_cpu();
    return ESP_OK;
}

static esp_status load(struct opening *o, const struct esp_config *config, struct esp_err *err)
{
    uint64_t program_bytes = esp_memory_program(""); /* now, because a mapped model file counts alike */
    esp_status status = esp_gguf_open(config->model_path, &o->gguf, err);
    status = status == ESP_OK ? esp_hparams_read(o->gguf, &o->hp, err) : status;
    size_t vocab_bytes = esp_alloc_bytes(ESP_TAG_VOCAB) + esp_alloc_bytes(ESP_TAG_GRAMMAR);
    status = status == ESP_OK ? esp_vocab_from_gguf(o->gguf, &o->vocab, err) : status;
    if (status != ESP_OK) {
        return status;
    }
    vocab_bytes = esp_alloc_bytes(ESP_TAG_VOCAB) + esp_alloc_bytes(ESP_TAG_GRAMMAR) - vocab_bytes;
    if (esp_vocab_n_tokens(o->vocab) > o->hp.n_vocab) {
        return esp_fail(err, ESP_EINVAL, "the vocabulary has %u tokens, but the embedding only %u rows",
                        esp_vocab_n_tokens(o->vocab), o->hp.n_vocab);
    }
    status = esp_memory_plan_make(config, o->gguf, &o->hp, o->ops, program_bytes + vocab_bytes,
                                  esp_memory_available(""), &o->plan, err);
    if (status == ESP_OK && config->cache_dir != NULL) {
        esp_fingerprint(o->gguf, o->fingerprint); /* now, because loading gives the file's memory back */
    }
    status = status == ESP_OK ? o->ops->dev_open(&o->plan.dev, &o->dev, err) : status;
    return status == ESP_OK ? esp_model_load(o->gguf, o->ops, o->dev, NULL, &o->model, err) : status;
}

/* A page file that cannot be had is like one that is empty; only a size that can never do is a mistake. */
static esp_status open_pagefile(struct opening *o, const struct esp_config *config, struct esp_err *err)
{
    struct esp_err reason = {0};
    struct esp_kv_geom geom = esp_model_kv_geom(&o->hp);
    const char *level = o->ops->level(o->dev);
    char path[PATH_BYTES_MAX];
    struct esp_pagefile_config file = {
        .path = path,
        .n_bytes_max = config->cache_bytes == ESP_AUTO ? PAGEFILE_BYTES : config->cache_bytes,
        .page_bytes = (uint32_t)esp_kv_page_bytes(&geom),
        .hash_bits = 128,
    };
    esp_fingerprint_add(o->fingerprint, o->ops->name, strlen(o->ops->name));
    esp_fingerprint_add(o->fingerprint, level, strlen(level));
    esp_fingerprint_add(o->fingerprint, &o->plan.n_ctx, sizeof o->plan.n_ctx); /* chooses how positions turn */
    memcpy(file.fingerprint, o->fingerprint, sizeof file.fingerprint);
    int n = snprintf(path, sizeof path, "%s/%016llx%016llx.pages", config->cache_dir,
                     (unsigned long long)o->fingerprint[1], (unsigned long long)o->fingerprint[0]);
    if (n < 0 || (size_t)n >= sizeof path || getrandom(&file.serial, sizeof file.serial, 0) != sizeof file.serial) {
        return esp_fail(err, ESP_EINVAL, "the name of the cache folder is too long");
    }
    if (mkdir(config->cache_dir, 0700) != 0 && errno != EEXIST) {
        esp_log(ESP_LOG_WARN, "cache", "no page file: %s: %s", config->cache_dir, strerror(errno));
        return ESP_OK;
    }
    esp_status status = esp_pagefile_open(&file, &o->pagefile, &reason);
    if (status == ESP_EINVAL) {
        esp_err_place(err, "cache_bytes");
        return esp_fail(err, status, "cache_bytes: %s", reason.message);
    }
    if (status != ESP_OK) {
        esp_log(ESP_LOG_WARN, "cache", "no page file: %s", reason.message);
    }
    return ESP_OK;
}

static esp_status create(struct opening *o, const struct esp_config *config, struct esp_err *err)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        return esp_fail(err, ESP_EIO, "the system gives no random bytes");
    }
    const char *name = esp_vocab_meta(o->vocab, "general.name");
    struct esp_engine_parts parts = {
        .model = o->model,
        .vocab = o->vocab,
        .end_token = ESP_TOKEN_NONE,
        .clock = esp_clock_monotonic(),
        .tree_seed = seed,
        .tree_hash_bits = 128,
        .n_pages = o->plan.n_pages,
        .n_ctx = o->plan.n_ctx,
        .n_batch_max = o->plan.n_batch_max,
        .prefill_chunk = o->plan.prefill_chunk,
        .n_queue_max = o->plan.n_queue_max,
        .cache_off = config->cache_off,
        .pagefile = o->pagefile,
        .tier_threaded = true,
        .info = {
            .name = name,
            .n_threads = (uint32_t)o->plan.dev.n_threads,
            .plan_weights_bytes = o->plan.weights_bytes,
            .plan_kv_bytes = o->plan.kv_bytes,
            .plan_activation_bytes = o->plan.activation_bytes,
            .plan_logit_bytes = o->plan.logit_bytes,
            .plan_other_bytes = o->plan.other_bytes,
        },
    };
    o->pagefile = NULL; /* taken */
    return esp_engine_create(&parts, &o->engine, err);
}

static void *run(void *arg)
{
    struct esp_engine *engine = arg;
    while (!atomic_load(&engine->closing)) {
        /* The step took the bell away; `closing` is looked at again because its bell may have been that one. */
        if (!esp_engine_step(engine) && !atomic_load(&engine->closing)) {
            esp_inbox_wait(&engine->inbox, esp_engine_patience_ns(engine));
        }
    }
    return NULL;
}

esp_status esp_engine_start(esp_engine *engine, struct esp_err *err)
{
    engine->threaded = true;
    if (pthread_create(&engine->thread, NULL, run, engine) != 0) {
        engine->threaded = false;
        return esp_fail(err, ESP_ENOMEM, "the engine's thread cannot be started");
    }
    return ESP_OK;
}

esp_status esp_engine_open(const struct esp_config *config, esp_engine **ret_engine, struct esp_err *err)
{
    struct opening o = {0};
    if (config->model_path == NULL) {
        return esp_fail(err, ESP_EINVAL, "no model file was named");
    }
    esp_status status = choose_device(config->device, &o.ops, err);
    status = status == ESP_OK ? load(&o, config, err) : status;
    status = status == ESP_OK && config->cache_dir != NULL ? open_pagefile(&o, config, err) : status;
    esp_gguf_close(o.gguf);
    status = status == ESP_OK ? create(&o, config, err) : status;
    if (status != ESP_OK) {
        esp_pagefile_close(o.pagefile);
        esp_model_destroy(o.model);
        if (o.dev != NULL) {
            o.ops->dev_close(o.dev);
        }
        esp_vocab_close(o.vocab);
        return status;
    }
    status = esp_engine_start(o.engine, err);
    if (status != ESP_OK) {
        esp_engine_close(o.engine);
        return status;
    }
    *ret_engine = o.engine;
    return ESP_OK;
}
