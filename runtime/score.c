/* Scores the labels of requests whose prompt has just been computed: one or a few passes, after the step's draws.
 *
 *   prompt pages, leased ─┬─ copy of the last, partly filled page │ tokens of path 0
 *                         ├─ copy                                 │ tokens of path 1     rows of all paths
 *                         └─ copy                                 │ …                    in one batch
 *
 * A path has pages of its own behind the whole pages of the prompt, so rows are written nowhere that others read, and
 * the tree never sees them. When pages are short fewer paths run at once, and then others are preempted.
 * Thread: the engine's. Allocates nothing.
 */
#include <assert.h>
#include <string.h>

#include "runtime/engine_impl.h"

struct pass {
    struct esp_engine *engine;
    struct esp_seq *seq;
    struct esp_labels *labels;
    uint32_t n_paths, n_pages_each, n_shared; /* in this group; own pages of a path; whole pages of the prompt */
    uint32_t first;                           /* leaf of the first path */
    uint32_t n_nodes;                         /* whose logits this batch gives … */
    uint32_t nodes[ESP_LABEL_PATHS_AT_ONCE];  /* … one a logit row */
};

static bool is_end(const void *ctx, uint32_t token)
{
    return esp_engine_is_end(ctx, token);
}

static esp_status look(struct esp_engine *engine, struct esp_labels *labels, uint32_t node, const float *logits)
{
    struct esp_model *model = engine->model;
    esp_status status = model->ops->download(model->dev, labels->row, logits, model->hp.n_vocab * sizeof(float));
    status = status == ESP_OK ? model->ops->wait(model->dev) : status;
    if (status == ESP_OK) {
        esp_labels_look(labels, node, labels->row, engine->n_vocab, is_end, engine);
    }
    return status;
}

esp_status esp_engine_score_root(struct esp_engine *engine, struct esp_seq *seq, const float *logits)
{
    return look(engine, seq->job->labels, 0, logits);
}

static uint32_t *table_of(const struct pass *pass, uint32_t path)
{
    return pass->labels->page_tables + (size_t)path * pass->labels->table_len;
}

static void give_back(struct pass *pass)
{
    for (uint32_t path = 0; path < pass->n_paths; path++) {
        uint32_t *own = table_of(pass, path) + pass->n_shared;
        for (uint32_t i = 0; i < pass->n_pages_each; i++) {
            esp_tree_free_private(pass->engine->tree, &(struct esp_page_id){own[i]}, 1);
        }
    }
    pass->n_paths = 0;
}

/* Pages for up to n paths; at least for one. ESP_EBUSY when the pool has not even that. */
static esp_status take_pages(struct pass *pass, uint32_t n)
{
    struct esp_engine *engine = pass->engine;
    while (pass->n_paths < n) {
        uint32_t *table = table_of(pass, pass->n_paths);
        struct esp_page_id *own = (struct esp_page_id *)(void *)(table + pass->n_shared);
        _Static_assert(sizeof(struct esp_page_id) == sizeof(uint32_t), "tables hold page ids");
        if (esp_tree_alloc(engine->tree, pass->n_pages_each, own) != ESP_OK) {
            if (pass->n_paths > 0) {
                return ESP_OK;
            }
            if (!esp_sched_preempt_other(&engine->sched, pass->seq)) {
                return ESP_EBUSY;
            }
            continue;
        }
        memcpy(table, pass->seq->pages, pass->n_shared * sizeof(uint32_t));
        pass->n_paths++;
    }
    return ESP_OK;
}

/* The prompt's last page, where it is partly filled, to each path. */
static esp_status copy_tails(struct pass *pass)
{
    struct esp_model *model = pass->engine->model;
    uint32_t src[ESP_LABEL_PATHS_AT_ONCE], dst[ESP_LABEL_PATHS_AT_ONCE];
    if (pass->seq->n_prompt % ESP_TREE_PAGE_TOKENS == 0) {
        return ESP_OK;
    }
    for (uint32_t path = 0; path < pass->n_paths; path++) {
        src[path] = pass->seq->pages[pass->n_shared].v;
        dst[path] = table_of(pass, path)[pass->n_shared];
    }
    struct esp_kv_geom geom = esp_model_kv_geom(&model->hp);
    struct esp_copy_pages_args args = {.kv = pass->engine->kv, .page_bytes = esp_kv_page_bytes(&geom), .src = src,
                                       .dst = dst, .n = pass->n_paths};
    return model->ops->copy_pages(model->dev, &args);
}

/* Adds rows of a path until it is through or the batch is full; returns how many are in now. */
static uint32_t add_path(struct pass *pass, uint32_t path, uint32_t n_done, uint32_t n_logits_max)
{
    struct esp_engine *engine = pass->engine;
    struct esp_labels *labels = pass->labels;
    uint32_t nodes[ESP_LABEL_TOKENS_MAX];
    uint32_t leaf = labels->leaves[pass->first + path], depth = labels->nodes[leaf].depth;
    uint32_t *tokens = labels->path_tokens + (size_t)path * labels->depth_max;
    esp_labels_path(labels, leaf, nodes);
    uint32_t n = n_done;
    while (n < depth && esp_batch_room(&engine->arrays) > n - n_done) {
        struct esp_label_node *node = &labels->nodes[nodes[n]];
        if (!node->seen && pass->n_nodes == n_logits_max) {
            break;
        }
        tokens[n] = node->token;
        if (!node->seen) {
            node->seen = true;
            esp_batch_want(&engine->arrays, n - n_done);
            pass->nodes[pass->n_nodes++] = nodes[n];
        }
        n++;
    }
    if (n > n_done) {
        const struct esp_page_id *pages = (const struct esp_page_id *)(const void *)table_of(pass, path);
        esp_batch_add(&engine->arrays, tokens + n_done, pages, pass->seq->n_prompt + n_done, n - n_done);
    }
    return n;
}

/* Batches until all paths of the group are through. */
static esp_status run_group(struct pass *pass)
{
    struct esp_engine *engine = pass->engine;
    uint32_t n_done[ESP_LABEL_PATHS_AT_ONCE] = {0};
    uint32_t n_batch_max = engine->sched.config.n_batch_max;
    uint32_t n_logits_max = n_batch_max < ESP_LABEL_PATHS_AT_ONCE ? n_batch_max : ESP_LABEL_PATHS_AT_ONCE;
    bool through = false;
    while (!through) {
        through = true;
        esp_batch_begin(&engine->arrays);
        pass->n_nodes = 0;
        for (uint32_t path = 0; path < pass->n_paths; path++) {
            uint32_t depth = pass->labels->nodes[pass->labels->leaves[pass->first + path]].depth;
            if (n_done[path] < depth) {
                n_done[path] = add_path(pass, path, n_done[path], n_logits_max);
                through = through && n_done[path] == depth;
            }
        }
        const float *logits;
        esp_fair_charge(&engine->sched.fair, pass->seq, engine->arrays.batch.n_rows);
        esp_status status = esp_forward_run(engine->forward, &engine->arrays.batch, &logits);
        for (uint32_t i = 0; i < pass->n_nodes && status == ESP_OK; i++) {
            status = look(engine, pass->labels, pass->nodes[i], logits + (size_t)i * engine->model->hp.n_vocab);
        }
        status = status == ESP_OK ? engine->model->ops->wait(engine->model->dev) : status;
        if (status != ESP_OK) {
            return status;
        }
    }
    return ESP_OK;
}

esp_status esp_engine_score(struct esp_engine *engine, struct esp_seq *seq)
{
    struct esp_labels *labels = seq->job->labels;
    struct pass pass = {.engine = engine, .seq = seq, .labels = labels};
    uint32_t n_batch_max = engine->sched.config.n_batch_max;
    uint32_t n_at_once = n_batch_max < ESP_LABEL_PATHS_AT_ONCE ? n_batch_max : ESP_LABEL_PATHS_AT_ONCE;
    pass.n_shared = seq->n_prompt / ESP_TREE_PAGE_TOKENS;
    pass.n_pages_each = esp_pages_for(seq->n_prompt + labels->depth_max) - pass.n_shared;
    assert(pass.n_shared + pass.n_pages_each <= labels->table_len);
    while (pass.first < labels->n_leaves) {
        uint32_t left = labels->n_leaves - pass.first;
        esp_status status = take_pages(&pass, left < n_at_once ? left : n_at_once);
        uint32_t n_paths = pass.n_paths;
        status = status == ESP_OK ? copy_tails(&pass) : status;
        status = status == ESP_OK ? run_group(&pass) : status;
        give_back(&pass);
        if (status != ESP_OK) {
            return status;
        }
        pass.first += n_paths;
    }
    esp_labels_finish(labels);
    return ESP_OK;
}
