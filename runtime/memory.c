/* See memory.h. Formats: proc(5), and the kernel's cgroup-v2 and cgroup-v1 memory documents. */
#include "runtime/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "radix/tree.h"
#include "runtime/base/cpu.h"
#include "runtime/base/file.h"
#include "runtime/batch.h"
#include "runtime/engine.h"
#include "runtime/forward.h"
#include "runtime/keep.h"

#define SMALL_FILE_BYTES_MAX 65536
#define CTX_AUTO 8192u
#define BATCH_AUTO 64u
#define CHUNK_AUTO 512u
#define QUEUE_AUTO 1024u
#define KV_AUTO_CONTEXTS 4u
#define THREADS_MAX 1024u

/* ---- What there is ------------------------------------------------------------------------------ */

static bool read_text(const char *root, const char *path, struct esp_buf *buf)
{
    char full[1024];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    esp_buf_init(buf, ESP_TAG_MISC, SMALL_FILE_BYTES_MAX);
    return n > 0 && n < (int)sizeof full && esp_file_read(full, buf, NULL) == ESP_OK && buf->data != NULL;
}

/* The number behind `name` at the beginning of a line, or fallback. */
static uint64_t number_after(const char *text, const char *name, uint64_t fallback)
{
    size_t n = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, n) == 0 && line[n] != '\0') {
            char *end;
            uint64_t value = strtoull(line + n, &end, 10);
            return end == line + n ? fallback : value;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return fallback;
}

static uint64_t read_number(const char *root, const char *path, const char *name, uint64_t fallback)
{
    struct esp_buf buf;
    uint64_t value = read_text(root, path, &buf) ? number_after(buf.data, name, fallback) : fallback;
    esp_buf_finish(&buf);
    return value;
}

/* limit − used + what the kernel would give back at once. "max" is no number: no limit. */
static uint64_t group_left(const char *root, const char *dir, const char *limit_name, const char *used_name,
                           const char *cache_name)
{
    char path[800];
    snprintf(path, sizeof path, "%s/%s", dir, limit_name);
    uint64_t limit = read_number(root, path, "", UINT64_MAX);
    snprintf(path, sizeof path, "%s/%s", dir, used_name);
    uint64_t used = read_number(root, path, "", UINT64_MAX);
    if (limit == UINT64_MAX || used == UINT64_MAX) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    uint64_t cache = read_number(root, path, cache_name, 0);
    used -= cache < used ? cache : used;
    return limit > used ? limit - used : 0;
}

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The group of this process and every group above it: any of them may hold the tightest limit. */
static uint64_t groups_left(const char *root)
{
    struct esp_buf buf;
    uint64_t left = UINT64_MAX;
    char dir[700] = "/sys/fs/cgroup";
    if (read_text(root, "/proc/self/cgroup", &buf)) {
        const char *line = strstr(buf.data, "0::/");
        if (line != NULL && (line == buf.data || line[-1] == '\n')) {
            snprintf(dir + strlen(dir), sizeof dir - strlen(dir), "/%.*s", (int)strcspn(line + 4, "\n"), line + 4);
        }
    }
    esp_buf_finish(&buf);
    for (;;) {
        left = min64(left, group_left(root, dir, "memory.max", "memory.current", "inactive_file "));
        char *slash = strrchr(dir, '/');
        if (slash == NULL || strcmp(dir, "/sys/fs/cgroup") == 0) {
            break;
        }
        *slash = '\0';
    }
    return min64(left, group_left(root, "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file "));
}

uint64_t esp_memory_available(const char *root)
{
    uint64_t kib = read_number(root, "/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024);
    return min64(kib == UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024, groups_left(root));
}

uint64_t esp_memory_program(const char *root)
{
    return read_number(root, "/proc/self/status", "RssFile:", 0) * 1024;
}

/* ---- Who gets how much --------------------------------------------------------------------------- */

static uint32_t choose(uint32_t asked, uint32_t otherwise)
{
    return asked == ESP_AUTO ? otherwise : asked;
}

static uint32_t max32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static esp_status choose_sizes(const struct esp_config *config, const struct esp_hparams *hp,
                               struct esp_memory_plan *plan, struct esp_err *err)
{
    plan->n_ctx = choose(config->n_ctx, hp->n_ctx_train < CTX_AUTO ? hp->n_ctx_train : CTX_AUTO);
    plan->n_batch_max = choose(config->n_batch_max, BATCH_AUTO);
    plan->prefill_chunk = choose(config->prefill_chunk, CHUNK_AUTO);
    plan->n_queue_max = choose(config->n_queue_max, QUEUE_AUTO);
    uint32_t n_threads = choose(config->n_threads, (uint32_t)esp_cpu_count());
    const struct {
        const char *name;
        uint32_t value, max;
    } sizes[] = {
        {"n_ctx", plan->n_ctx, 1u << 24},
        {"n_batch_max", plan->n_batch_max, ESP_ENGINE_BATCH_MAX},
        {"prefill_chunk", plan->prefill_chunk, ESP_ENGINE_CHUNK_MAX},
        {"n_queue_max", plan->n_queue_max, ESP_ENGINE_QUEUE_MAX},
        {"n_threads", n_threads, THREADS_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value > sizes[i].max) {
            esp_fail(err, ESP_EINVAL, "%s is %u, but the limit is %u", sizes[i].name, sizes[i].value, sizes[i].max);
            esp_err_place(err, "%s", sizes[i].name);
            return ESP_EINVAL;
        }
    }
    plan->dev = (struct esp_dev_config){
        .n_threads = (int)n_threads,
        .n_rows_max = plan->prefill_chunk + plan->n_batch_max,
        .n_in_max = max32(max32(hp->n_embd, hp->n_ff), hp->n_head * hp->head_dim),
        .head_dim_max = hp->head_dim,
        .n_ctx_max = plan->n_ctx,
    };
    return ESP_OK;
}

static uint64_t host_bytes(const struct esp_memory_plan *plan)
{
    uint64_t n_slots = plan->n_queue_max + ESP_ENGINE_RESERVE(plan->n_queue_max) + 2u * plan->n_batch_max;
    return esp_tree_bytes(plan->n_pages) + esp_batch_bytes(plan->dev.n_rows_max, plan->n_batch_max) +
           esp_engine_bytes(n_slots, plan->n_batch_max);
}

static esp_status choose_pages(const struct esp_config *config, const struct esp_hparams *hp, uint64_t free_bytes,
                               struct esp_memory_plan *plan, struct esp_err *err)
{
    struct esp_kv_geom geom = esp_model_kv_geom(hp);
    uint64_t page_bytes = esp_kv_page_bytes(&geom);
    uint64_t context_bytes = (uint64_t)(plan->n_ctx / ESP_PAGE_TOKENS + 1) * page_bytes;
    uint64_t kv_bytes = config->kv_bytes;
    if (kv_bytes == ESP_AUTO && config->kv_tokens != ESP_AUTO) {
        kv_bytes = (config->kv_tokens / ESP_PAGE_TOKENS + (config->kv_tokens % ESP_PAGE_TOKENS != 0)) * page_bytes;
    } else if (kv_bytes == ESP_AUTO) {
        kv_bytes = min64(KV_AUTO_CONTEXTS * context_bytes, free_bytes / 4);
    }
    uint64_t n_pages = kv_bytes / page_bytes;
    if (n_pages < 2 || n_pages > ESP_TREE_PAGES_MAX) {
        esp_fail(err, ESP_EINVAL, "%llu bytes for keys and values are %llu pages of %llu bytes, and the pool holds 2 "
                 "to %u", (unsigned long long)kv_bytes, (unsigned long long)n_pages, (unsigned long long)page_bytes,
                 ESP_TREE_PAGES_MAX);
        esp_err_place(err, "kv_bytes");
        return ESP_EINVAL;
    }
    plan->n_pages = (uint32_t)n_pages;
    plan->kv_bytes = n_pages * page_bytes;
    return ESP_OK;
}

esp_status esp_memory_plan_make(const struct esp_config *config, const struct esp_gguf *gguf,
                                const struct esp_hparams *hp, const struct esp_ops *ops, uint64_t taken_bytes,
                                uint64_t available_bytes, struct esp_memory_plan *ret_plan, struct esp_err *err)
{
    struct esp_memory_plan plan = {0};
    esp_status status = choose_sizes(config, hp, &plan, err);
    if (status != ESP_OK) {
        return status;
    }
    status = esp_model_bytes(gguf, ops, &plan.weights_bytes, err);
    if (status != ESP_OK) {
        return status;
    }
    plan.activation_bytes = esp_forward_bytes(hp, plan.dev.n_rows_max, plan.n_batch_max, &plan.logit_bytes);
    uint64_t free_bytes = available_bytes - min64(available_bytes, plan.weights_bytes + plan.activation_bytes +
                                                                       plan.logit_bytes);
    status = choose_pages(config, hp, free_bytes, &plan, err);
    if (status != ESP_OK) {
        return status;
    }
    uint64_t scratch_bytes = ops->scratch_bytes(&plan.dev);
    plan.other_bytes = scratch_bytes + taken_bytes + host_bytes(&plan);
    if (config->cache_dir != NULL) {
        struct esp_kv_geom geom = esp_model_kv_geom(hp);
        plan.other_bytes += esp_keep_bytes((uint32_t)esp_kv_page_bytes(&geom), esp_pages_for(plan.n_ctx));
    }
    uint64_t wanted = plan.weights_bytes + plan.kv_bytes + plan.activation_bytes + plan.logit_bytes +
                      plan.other_bytes - taken_bytes;
    if (wanted > available_bytes) {
        return esp_fail(err, ESP_ENOMEM,
                        "%llu bytes are missing: weights %llu, keys and values %llu, activations %llu, logits %llu, "
                        "other %llu; available %llu",
                        (unsigned long long)(wanted - available_bytes), (unsigned long long)plan.weights_bytes,
                        (unsigned long long)plan.kv_bytes, (unsigned long long)plan.activation_bytes,
                        (unsigned long long)plan.logit_bytes, (unsigned long long)(plan.other_bytes - taken_bytes),
                        (unsigned long long)available_bytes);
    }
    *ret_plan = plan;
    return ESP_OK;
}
