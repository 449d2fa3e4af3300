/* Drivers of the CPU operations: arguments are checked, work is cut into chunks, the pool runs them.
 *
 * Small operations run on the calling thread alone: handing a chunk over costs about a microsecond.
 * How an operation is cut never changes its result, because rows and panels are independent.
 * Thread: the one that opened the device.
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/dev.h"
#include "kernels/format.h"

#define N_HEADS_KV_MAX 4096
#define CHUNK_PANELS_MAX 64
#define TURNS_MIN 4 /* chunks a thread */
#define VALUES_ALONE 8192 /* up to this many values an elementwise operation is not handed out */

struct rows_job {
    const struct esp_dev *dev;
    const void *args;
    void (*run)(const struct rows_job *job, uint32_t row, uint32_t row_end);
    uint32_t n_rows, n_chunk;
};

static void rows_chunk(void *ctx, uint32_t chunk)
{
    const struct rows_job *job = ctx;
    uint32_t row = chunk * job->n_chunk;
    job->run(job, row, job->n_rows - row < job->n_chunk ? job->n_rows : row + job->n_chunk);
}

/* Cuts rows of n_values each into about four chunks a thread. */
static void run_rows(struct esp_dev *dev, struct rows_job *job, size_t n_values)
{
    uint32_t n_chunks = 4 * (uint32_t)dev->config.n_threads;
    job->dev = dev;
    job->n_chunk = (job->n_rows + n_chunks - 1) / n_chunks;
    if (job->n_rows * n_values <= VALUES_ALONE) {
        job->n_chunk = job->n_rows;
    }
    if (job->n_rows != 0) {
        esp_pool_run(dev->pool, rows_chunk, job, (job->n_rows + job->n_chunk - 1) / job->n_chunk);
    }
}

static void embed_rows(const struct rows_job *job, uint32_t row, uint32_t row_end)
{
    job->dev->level->embed(job->args, row, row_end);
}

esp_status esp_cpu_embed(struct esp_dev *dev, const struct esp_embed_args *args)
{
    if (args->n_rows > dev->config.n_rows_max || args->weight->layout != dev->level->layout) {
        return ESP_EINVAL;
    }
    for (uint32_t r = 0; r < args->n_rows; r++) {
        if (args->ids[r] >= args->weight->n_out) {
            return ESP_EINVAL;
        }
    }
    struct rows_job job = {.args = args, .run = embed_rows, .n_rows = args->n_rows};
    run_rows(dev, &job, args->weight->n_in);
    return ESP_OK;
}

static void norm_rows(const struct rows_job *job, uint32_t row, uint32_t row_end)
{
    job->dev->level->norm(job->args, row, row_end);
}

esp_status esp_cpu_norm(struct esp_dev *dev, const struct esp_norm_args *args)
{
    struct rows_job job = {.args = args, .run = norm_rows, .n_rows = args->n_rows};
    run_rows(dev, &job, args->dim);
    return ESP_OK;
}

static void glu_rows(const struct rows_job *job, uint32_t row, uint32_t row_end)
{
    job->dev->level->glu(job->args, row, row_end);
}

esp_status esp_cpu_glu(struct esp_dev *dev, const struct esp_glu_args *args)
{
    struct rows_job job = {.args = args, .run = glu_rows, .n_rows = args->n_rows};
    run_rows(dev, &job, args->dim);
    return ESP_OK;
}

static void quantise_rows(const struct rows_job *job, uint32_t row, uint32_t row_end)
{
    job->dev->level->quantise(job->args, &job->dev->quant, row, row_end);
}

struct linear_job {
    const struct esp_dev *dev;
    const struct esp_linear_args *args;
    uint32_t n_chunk, n_chunks[ESP_LINEAR_FAN_OUT];
};

static void linear_chunk(void *ctx, uint32_t chunk)
{
    const struct linear_job *job = ctx;
    uint32_t w = 0;
    while (chunk >= job->n_chunks[w]) {
        chunk -= job->n_chunks[w++];
    }
    uint32_t n_panels = (job->args->weight[w]->n_out + ESP_PANEL - 1) / ESP_PANEL;
    uint32_t panel = chunk * job->n_chunk;
    uint32_t end = n_panels - panel < job->n_chunk ? n_panels : panel + job->n_chunk;
    job->dev->level->linear(job->args, &job->dev->quant, w, panel, end);
}

static bool linear_fits(const struct esp_dev *dev, const struct esp_linear_args *args)
{
    bool ok = args->n_weights >= 1 && args->n_weights <= ESP_LINEAR_FAN_OUT && args->n_rows <= dev->config.n_rows_max;
    for (uint32_t w = 0; ok && w < args->n_weights; w++) {
        const struct esp_weight *weight = args->weight[w];
        ok = weight->data != NULL && weight->layout == dev->level->layout && weight->n_in <= dev->config.n_in_max &&
             weight->n_in == args->weight[0]->n_in;
    }
    if (ok && (args->flags & ESP_LINEAR_GLU) != 0) {
        ok = args->flags == ESP_LINEAR_GLU && esp_linear_glu_fits(args);
    }
    return ok;
}

static uint32_t n_chunks_of(const struct esp_weight *weight, uint32_t n_chunk)
{
    return ((weight->n_out + ESP_PANEL - 1) / ESP_PANEL + n_chunk - 1) / n_chunk;
}

/* Panels of a chunk: the number with which the last thread is done first, when each chunk also costs a claim: a
 * quarter of a panel for a few rows, next to nothing for many. Each thread gets a few chunks, so that another that
 * is held up holds up little. Levels like panels in pairs; with GLU each panel is one. */
static uint32_t panels_of_chunk(const struct esp_dev *dev, const struct esp_linear_args *args, uint32_t n_weights)
{
    const uint32_t n_threads = (uint32_t)dev->config.n_threads, step = (args->flags & ESP_LINEAR_GLU) != 0 ? 1 : 2;
    uint32_t n_panels = 0;
    for (uint32_t w = 0; w < n_weights; w++) {
        n_panels += n_chunks_of(args->weight[w], 1);
    }
    const uint32_t least = step + n_panels / 0x20000 * step; /* the pool's jobs are limited */
    uint32_t best = least;
    double best_cost = INFINITY;
    for (uint32_t n = least; n < least + CHUNK_PANELS_MAX; n += step) {
        uint32_t n_chunks = 0;
        for (uint32_t w = 0; w < n_weights; w++) {
            n_chunks += n_chunks_of(args->weight[w], n);
        }
        uint32_t n_turns = (n_chunks + n_threads - 1) / n_threads;
        double cost = n_turns * (n + (args->n_rows < 16 ? 0.25 : 0.05));
        if (cost < best_cost && (n == least || n_turns >= TURNS_MIN)) {
            best = n;
            best_cost = cost;
        }
    }
    return best;
}

esp_status esp_cpu_linear(struct esp_dev *dev, const struct esp_linear_args *args)
{
    if (!linear_fits(dev, args)) {
        return ESP_EINVAL;
    }
    struct linear_job job = {.dev = dev, .args = args};
    /* with GLU a chunk does its panels of both matrices */
    uint32_t n_chunks = 0, n_weights = (args->flags & ESP_LINEAR_GLU) != 0 ? 1 : args->n_weights;
    bool integer = false;
    for (uint32_t w = 0; w < n_weights; w++) {
        integer = integer || esp_format(args->weight[w]->type)->group != 0;
    }
    if (integer) {
        struct rows_job quantise = {.args = args, .run = quantise_rows, .n_rows = args->n_rows};
        run_rows(dev, &quantise, args->weight[0]->n_in);
    }
    job.n_chunk = panels_of_chunk(dev, args, n_weights);
    for (uint32_t w = 0; w < n_weights; w++) {
        job.n_chunks[w] = n_chunks_of(args->weight[w], job.n_chunk);
        n_chunks += job.n_chunks[w];
    }
    if (args->n_rows != 0) {
        esp_pool_run(dev->pool, linear_chunk, &job, n_chunks);
    }
    return ESP_OK;
}

static void rope_table_rows(const struct rows_job *job, uint32_t row, uint32_t row_end)
{
    const struct esp_rope_table_args *args = job->args;
    for (size_t r = row; r < row_end; r++) {
        for (uint32_t i = 0; i < args->n_rot / 2; i++) {
            double angle = (double)args->pos[r] * args->inv_freq[i], s, c;
            sincos(angle, &s, &c);
            float *out = args->cos_sin + r * args->n_rot + 2 * i;
            out[0] = (float)(c * (double)args->mscale);
            out[1] = (float)(s * (double)args->mscale);
        }
    }
}

esp_status esp_cpu_rope_table(struct esp_dev *dev, const struct esp_rope_table_args *args)
{
    struct rows_job job = {.args = args, .run = rope_table_rows, .n_rows = args->n_rows};
    run_rows(dev, &job, (size_t)args->n_rot * 32);
    return ESP_OK;
}

static void rope_kv_rows(const struct rows_job *job, uint32_t row, uint32_t row_end)
{
    job->dev->level->rope_kv(job->args, row, row_end);
}

static bool head_dim_fits(const struct esp_dev *dev, uint32_t dim)
{
    return (dim == 32 || dim == 64 || dim == 128 || dim == 256) && dim <= dev->config.head_dim_max;
}

esp_status esp_cpu_rope_kv(struct esp_dev *dev, const struct esp_rope_kv_args *args)
{
    if (!head_dim_fits(dev, args->geom.head_dim) || args->layer >= args->geom.n_layer || args->n_rot % 2 != 0 ||
        args->n_rot > args->geom.head_dim) {
        return ESP_EINVAL;
    }
    struct rows_job job = {.args = args, .run = rope_kv_rows, .n_rows = args->n_rows};
    run_rows(dev, &job, (size_t)(args->n_head + 2 * args->geom.n_head_kv) * args->geom.head_dim);
    return ESP_OK;
}

struct attn_job {
    const struct esp_dev *dev;
    const struct esp_attn_args *args;
    uint32_t n_tile, n_tiles;
};

/* One KV head after the other, so that its keys and values stay in the cache; late rows see most and cost most: they
 * go first. */
static void attn_chunk(void *ctx, uint32_t chunk)
{
    const struct attn_job *job = ctx;
    uint32_t tile = job->n_tiles - 1 - chunk % job->n_tiles;
    uint32_t row = tile * job->n_tile, left = job->args->n_rows - row;
    job->dev->level->attn(job->args, chunk / job->n_tiles, row,
                          row + (left < job->n_tile ? left : job->n_tile));
}

esp_status esp_cpu_attn(struct esp_dev *dev, const struct esp_attn_args *args)
{
    if (!head_dim_fits(dev, args->geom.head_dim) || args->layer >= args->geom.n_layer ||
        args->geom.n_head_kv == 0 || args->geom.n_head_kv > N_HEADS_KV_MAX || args->n_head == 0 ||
        args->n_head % args->geom.n_head_kv != 0 || args->n_rows > dev->config.n_rows_max) {
        return ESP_EINVAL;
    }
    struct attn_job job = {.dev = dev, .args = args, .n_tile = 1};
    uint32_t n_chunks_wanted = 3 * (uint32_t)dev->config.n_threads, n_heads = args->n_head / args->geom.n_head_kv;
    while (2 * (uint64_t)job.n_tile * n_heads <= ESP_ATTN_QUERIES &&
           (uint64_t)args->n_rows * args->geom.n_head_kv / (2 * job.n_tile) >= n_chunks_wanted) {
        job.n_tile *= 2;
    }
    while ((uint64_t)(args->n_rows / job.n_tile + 1) * args->geom.n_head_kv > ESP_POOL_CHUNKS_MAX) {
        job.n_tile *= 2;
    }
    job.n_tiles = (args->n_rows + job.n_tile - 1) / job.n_tile;
    esp_pool_run(dev->pool, attn_chunk, &job, job.n_tiles * args->geom.n_head_kv);
    return ESP_OK;
}

esp_status esp_cpu_copy_pages(struct esp_dev *dev, const struct esp_copy_pages_args *args)
{
    uint8_t *kv = args->kv;
    for (uint32_t i = 0; i < args->n; i++) {
        memcpy(kv + args->dst[i] * args->page_bytes, kv + args->src[i] * args->page_bytes, args->page_bytes);
    }
    return ESP_OK;
}

struct sample_job {
    const struct esp_dev *dev;
    const struct esp_sample_args *args;
    uint32_t n_chunk;
};

/* One chunk a thread at most, so that each has its own scratch. */
static void sample_chunk(void *ctx, uint32_t chunk)
{
    const struct sample_job *job = ctx;
    uint32_t end = (chunk + 1) * job->n_chunk < job->args->n_rows ? (chunk + 1) * job->n_chunk : job->args->n_rows;
    for (uint32_t r = chunk * job->n_chunk; r < end; r++) {
        job->dev->level->sample(&job->args->rows[r], job->args->n_vocab, &job->dev->samples[chunk]);
    }
}

esp_status esp_cpu_sample(struct esp_dev *dev, struct esp_sample_args *args)
{
    for (uint32_t r = 0; r < args->n_rows; r++) {
        const struct esp_sample_row *row = &args->rows[r];
        if (row->n_bias > ESP_SAMPLE_BIAS_MAX || row->n_history > dev->config.n_ctx_max) {
            return ESP_ELIMIT;
        }
        if (row->n_top > 20 || args->n_vocab == 0) {
            return ESP_EINVAL;
        }
    }
    uint32_t n_threads = (uint32_t)dev->config.n_threads;
    struct sample_job job = {.dev = dev, .args = args, .n_chunk = (args->n_rows + n_threads - 1) / n_threads};
    if (args->n_rows != 0) {
        esp_pool_run(dev->pool, sample_chunk, &job, (args->n_rows + job.n_chunk - 1) / job.n_chunk);
    }
    return ESP_OK;
}
