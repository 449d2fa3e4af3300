/* Opening, memory and weights of the CPU device, and its table of operations.
 *
 * Scratch is one block cut into pieces; carve() runs twice, first to count and then to cut, so that
 * scratch_bytes and dev_open cannot disagree. Thread: the one that opened the device.
 */
#include "kernels/cpu/dev.h"

#include <assert.h>
#include <string.h>

#include "kernels/format.h"
#include "runtime/base/alloc.h"
#include "runtime/base/cpu.h"
#if defined(__x86_64__)
#include "kernels/x86/x86.h"
#endif

#define ALIGN 64
#define MAPPED_MIN ((size_t)1 << 20) /* from here on memory comes in pages of its own */

struct esp_dev_block {
    struct esp_dev_block *next;
    void *ptr;
    size_t bytes;
    int tag;
    bool mapped;
};

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

static void *take(uint8_t *base, size_t *at, size_t bytes)
{
    void *ptr = base == NULL ? NULL : base + *at;
    *at += round_up(bytes);
    return ptr;
}

/* Sizes of the scratch memory; with a base also the pointers into it. Levels may fill up a tile of rows,
 * so the quantised input has room for whole tiles. */
static size_t carve(struct esp_dev *dev, const struct esp_dev_config *config, uint8_t *base)
{
    size_t n_rows = ((size_t)config->n_rows_max + ESP_ROW_TILE - 1) / ESP_ROW_TILE * ESP_ROW_TILE;
    size_t at = 0, n_values = n_rows * config->n_in_max;
    struct esp_quant quant = {
        .q = take(base, &at, n_values),
        .d = take(base, &at, n_values / 32 * 4),
        .s16 = take(base, &at, n_values / 16 * 4),
    };
    for (int i = 0; i < ESP_LINEAR_FAN_OUT; i++) {
        quant.side[i] = take(base, &at, n_values / 16 * 4);
    }
    uint32_t cap = config->n_ctx_max + ESP_SAMPLE_BIAS_MAX;
    struct esp_sample_scratch *samples = take(base, &at, (size_t)config->n_threads * sizeof *samples);
    for (int i = 0; i < config->n_threads; i++) {
        struct esp_sample_scratch sample = {
            .ids = take(base, &at, (size_t)cap * 4),
            .values = take(base, &at, (size_t)cap * 4),
            .cap = cap,
            .masses = take(base, &at, 2048 * sizeof(double)),
        };
        if (base != NULL) {
            samples[i] = sample;
        }
    }
    if (base != NULL) {
        dev->quant = quant;
        dev->samples = samples;
    }
    return at;
}

static size_t cpu_scratch_bytes(const struct esp_dev_config *config)
{
    return carve(NULL, config, NULL) + esp_pool_bytes(config->n_threads) + sizeof(struct esp_dev);
}

/* The level that the machine and the mask allow now. */
static const struct esp_cpu_level_ops *pick_level(void)
{
#if defined(__x86_64__)
    static const struct esp_cpu_level_ops *const levels[ESP_CPU_LEVELS] = {&esp_level_ref, &esp_level_avx2,
                                                                           &esp_level_avx512};
    return levels[esp_cpu_level()];
#else
    return &esp_level_ref;
#endif
}

static esp_status check_config(const struct esp_dev_config *config, struct esp_err *err)
{
    uint32_t dim = config->head_dim_max;
    if (config->n_threads < 1 || config->n_threads > ESP_POOL_THREADS_MAX) {
        return esp_fail(err, ESP_EINVAL, "%d compute threads; 1 to %d are possible", config->n_threads,
                        ESP_POOL_THREADS_MAX);
    }
    if (config->n_rows_max == 0 || config->n_in_max == 0 || config->n_ctx_max == 0) {
        return esp_fail(err, ESP_EINVAL, "rows, inputs and context of a device must not be 0");
    }
    if (config->n_rows_max > 1u << 20 || config->n_in_max > 1u << 24 || config->n_ctx_max > 1u << 28) {
        return esp_fail(err, ESP_EUNSUPPORTED, "a batch of %u rows, %u inputs or a context of %u is too large",
                        config->n_rows_max, config->n_in_max, config->n_ctx_max);
    }
    if (dim != 32 && dim != 64 && dim != 128 && dim != 256) {
        return esp_fail(err, ESP_EUNSUPPORTED, "head size %u; 32, 64, 128 and 256 are possible", dim);
    }
    return ESP_OK;
}

static void cpu_dev_close(struct esp_dev *dev)
{
    if (dev == NULL) {
        return;
    }
    esp_pool_destroy(dev->pool);
    while (dev->blocks != NULL) {
        struct esp_dev_block *block = dev->blocks;
        dev->blocks = block->next;
        if (block->mapped) {
            esp_pages_unmap((enum esp_tag)block->tag, block->ptr, block->bytes);
        }
        esp_free(block);
    }
    esp_pages_unmap(ESP_TAG_ACTIVATIONS, dev->scratch, carve(NULL, &dev->config, NULL));
    esp_free(dev);
}

static esp_status cpu_dev_open(const struct esp_dev_config *config, struct esp_dev **ret_dev, struct esp_err *err)
{
    esp_status status = check_config(config, err);
    if (status != ESP_OK) {
        return status;
    }
    struct esp_dev *dev = esp_calloc(ESP_TAG_ACTIVATIONS, 1, sizeof *dev);
    if (dev == NULL) {
        return esp_fail(err, ESP_ENOMEM, "no memory for the device");
    }
    dev->config = *config;
    dev->level = pick_level();
    size_t bytes = carve(NULL, config, NULL);
    dev->scratch = esp_pages_map(ESP_TAG_ACTIVATIONS, bytes);
    if (dev->scratch == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "no memory for %zu bytes of scratch", bytes);
        goto fail;
    }
    carve(dev, config, dev->scratch);
    status = esp_pool_create(config->n_threads, &dev->pool, err);
    if (status != ESP_OK) {
        goto fail;
    }
    *ret_dev = dev;
    return ESP_OK;
fail:
    cpu_dev_close(dev);
    return status;
}

static const char *cpu_level(const struct esp_dev *dev)
{
    return dev->level->name;
}

static esp_status cpu_alloc(struct esp_dev *dev, int tag, size_t bytes, void **ret_ptr)
{
    if (dev->sealed) {
        return ESP_ESTATE;
    }
    if (tag < 0 || tag >= ESP_TAG_COUNT || bytes > SIZE_MAX / 2) {
        return ESP_EINVAL;
    }
    bool mapped = bytes >= MAPPED_MIN;
    struct esp_dev_block *block =
        esp_calloc((enum esp_tag)tag, 1, sizeof *block + (mapped ? 0 : round_up(bytes) + ALIGN));
    if (block == NULL) {
        return ESP_ENOMEM;
    }
    uintptr_t inside = ((uintptr_t)(block + 1) + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
    *block = (struct esp_dev_block){.next = dev->blocks, .bytes = bytes, .tag = tag, .mapped = mapped};
    block->ptr = mapped ? esp_pages_map((enum esp_tag)tag, bytes) : (uint8_t *)block + (inside - (uintptr_t)block);
    if (block->ptr == NULL) {
        esp_free(block);
        return ESP_ENOMEM;
    }
    dev->blocks = block;
    *ret_ptr = block->ptr;
    return ESP_OK;
}

static void cpu_seal(struct esp_dev *dev)
{
    dev->sealed = true;
}

static esp_status cpu_copy(struct esp_dev *dev, void *dst, const void *src, size_t bytes)
{
    if (bytes != 0) {
        memcpy(dst, src, bytes);
    }
    return ESP_OK;
}

static esp_status cpu_wait(struct esp_dev *dev)
{
    return ESP_OK;
}

static bool shape_runs(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    const struct esp_type_info *info = esp_type_info((uint32_t)type);
    return info != NULL && info->runs && n_out != 0 && n_in != 0 && n_in % 32 == 0 && n_in % info->block == 0 &&
           n_out <= UINT32_MAX - ESP_PANEL;
}

static size_t cpu_weight_bytes(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    return shape_runs(type, n_out, n_in) ? pick_level()->weight_bytes(type, n_out, n_in) : 0;
}

struct pack_job {
    const struct esp_cpu_level_ops *level;
    const struct esp_pack_args *args;
    uint32_t panel, panel_end, n_chunk;
};

static void pack_chunk(void *ctx, uint32_t chunk)
{
    const struct pack_job *job = ctx;
    const struct esp_pack_args *args = job->args;
    uint32_t panel = job->panel + chunk * job->n_chunk;
    uint32_t end = job->panel_end - panel < job->n_chunk ? job->panel_end : panel + job->n_chunk;
    job->level->pack(args->type, args->n_out, args->n_in, args->src, args->dst, panel, end);
}

static esp_status cpu_weight_pack(struct esp_dev *dev, const struct esp_pack_args *args,
                                  struct esp_weight *ret_weight)
{
    if (!shape_runs(args->type, args->n_out, args->n_in) || args->n_in > dev->config.n_in_max) {
        return ESP_EUNSUPPORTED;
    }
    if (args->row >= args->row_end || args->row_end > args->n_out || args->row % ESP_PACK_ROWS != 0 ||
        (args->row_end % ESP_PACK_ROWS != 0 && args->row_end != args->n_out)) {
        return ESP_EINVAL;
    }
    struct pack_job job = {
        .level = dev->level,
        .args = args,
        .panel = args->row / ESP_PANEL,
        .panel_end = (args->row_end + ESP_PANEL - 1) / ESP_PANEL,
    };
    uint32_t n_panels = job.panel_end - job.panel;
    job.n_chunk = n_panels / (16 * (uint32_t)dev->config.n_threads) + 1;
    esp_pool_run(dev->pool, pack_chunk, &job, (n_panels + job.n_chunk - 1) / job.n_chunk);
    *ret_weight = (struct esp_weight){
        .data = args->dst,
        .bytes = dev->level->weight_bytes(args->type, args->n_out, args->n_in),
        .n_out = args->n_out,
        .n_in = args->n_in,
        .type = args->type,
        .layout = dev->level->layout,
    };
    return ESP_OK;
}

static const struct esp_ops ops = {
    .name = "cpu",
    .dev_open = cpu_dev_open,
    .dev_close = cpu_dev_close,
    .level = cpu_level,
    .scratch_bytes = cpu_scratch_bytes,
    .alloc = cpu_alloc,
    .seal = cpu_seal,
    .upload = cpu_copy,
    .download = cpu_copy,
    .wait = cpu_wait,
    .weight_bytes = cpu_weight_bytes,
    .weight_pack = cpu_weight_pack,
    .embed = esp_cpu_embed,
    .norm = esp_cpu_norm,
    .linear = esp_cpu_linear,
    .rope_table = esp_cpu_rope_table,
    .rope_kv = esp_cpu_rope_kv,
    .attn = esp_cpu_attn,
    .glu = esp_cpu_glu,
    .copy_pages = esp_cpu_copy_pages,
    .sample = esp_cpu_sample,
};

const struct esp_ops *esp_ops_cpu(void)
{
    return &ops;
}
