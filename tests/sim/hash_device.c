/* See hash_device.h. A row of x holds 32-bit words: [0] token + 1, [1..2] state. */
#include "tests/sim/hash_device.h"

#include <assert.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/base/rng.h"

#define DIM 32u
#define N_LAYER 2u
#define BLOCKS_MAX 64

enum role { ROLE_COPY = 1, ROLE_OUT, ROLE_NOTHING, ROLE_HEAD };

struct esp_dev {
    void *blocks[BLOCKS_MAX];
    int n_blocks;
    bool sealed;
    uint64_t fail_in; /* operations left, 0 = never */
};

static esp_status tick(struct esp_dev *dev)
{
    return dev->fail_in != 0 && --dev->fail_in == 0 ? ESP_EIO : ESP_OK;
}

void esp_hash_fail_at(struct esp_dev *dev, uint64_t n)
{
    dev->fail_in = n;
}

/* ---- The arithmetic, shared with the reference --------------------------------------------------- */

static uint64_t key_of(uint32_t layer, uint64_t content, uint32_t pos)
{
    return esp_rng_at(content * 2 + layer, pos);
}

static uint64_t fold(uint64_t h, uint64_t key, uint64_t value)
{
    return esp_rng_mix(h * 0x9e3779b97f4a7c15u + key) + value;
}

static uint64_t state_of(uint64_t folded, uint32_t token_word)
{
    return esp_rng_mix(folded ^ (uint64_t)token_word << 17);
}

static void logits_of(uint64_t state, float *logits, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n_vocab; i++) {
        logits[i] = (float)(esp_rng_at(state, i) >> 44) / 65536.0f;
    }
}

void esp_hash_ref_feed(struct esp_hash_ref *ref, uint32_t token)
{
    uint64_t content = token + 1;
    for (uint32_t layer = 0; layer < N_LAYER; layer++) {
        uint64_t key = key_of(layer, content, ref->n_tokens);
        ref->fold[layer] = fold(ref->fold[layer], key, ~key);
        content = state_of(ref->fold[layer], token + 1);
    }
    ref->state = content;
    ref->n_tokens++;
}

void esp_hash_ref_logits(const struct esp_hash_ref *ref, uint32_t n_vocab, float *logits)
{
    logits_of(ref->state, logits, n_vocab);
}

static bool allowed(const struct esp_sample_row *row, uint32_t id)
{
    return row->mask == NULL || (row->mask[id / 64] >> (id % 64) & 1) != 0;
}

static uint64_t draw(const struct esp_sample_row *row)
{
    uint64_t h = esp_rng_at(row->seed, row->pos);
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t bits;
        memcpy(&bits, &row->logits[i], sizeof bits);
        h = esp_rng_mix(h * 31 + bits);
    }
    for (uint32_t i = 0; i < row->n_history; i++) {
        h = esp_rng_mix(h * 31 + row->history[i]);
    }
    return h;
}

void esp_hash_sample_row(struct esp_sample_row *row, uint32_t n_vocab)
{
    uint64_t h = draw(row);
    uint32_t n_allowed = 0;
    uint32_t best = UINT32_MAX;
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (allowed(row, id)) {
            n_allowed++;
            best = best == UINT32_MAX || row->logits[id] > row->logits[best] ? id : best;
        }
    }
    assert(n_allowed > 0);
    row->token = best;
    if (row->temperature > 0) {
        uint32_t skip = (uint32_t)(h % n_allowed);
        uint32_t id = 0;
        for (; !allowed(row, id) || skip > 0; id++) {
            skip -= allowed(row, id);
        }
        row->token = id;
    }
    row->logprob = -(float)(h >> 52) / 256.0f;
    for (uint32_t i = 0; i < row->n_top; i++) {
        row->top_id[i] = (uint32_t)((h + i) % n_vocab);
        row->top_logprob[i] = row->logprob - (float)i;
    }
}

/* ---- Operations ---------------------------------------------------------------------------------- */

static esp_status dev_open(const struct esp_dev_config *config, struct esp_dev **ret_dev, struct esp_err *err)
{
    *ret_dev = esp_calloc(ESP_TAG_MISC, 1, sizeof **ret_dev);
    return *ret_dev == NULL ? esp_fail(err, ESP_ENOMEM, "no memory for the device") : ESP_OK;
}

static void dev_close(struct esp_dev *dev)
{
    for (int i = 0; dev != NULL && i < dev->n_blocks; i++) {
        esp_free(dev->blocks[i]);
    }
    esp_free(dev);
}

static const char *level(const struct esp_dev *dev)
{
    return "hash";
}

static size_t scratch_bytes(const struct esp_dev_config *config)
{
    return 0;
}

static esp_status dev_alloc(struct esp_dev *dev, int tag, size_t bytes, void **ret_ptr)
{
    if (dev->sealed) {
        return ESP_ESTATE;
    }
    void *block = dev->n_blocks == BLOCKS_MAX ? NULL : esp_calloc((enum esp_tag)tag, 1, bytes);
    if (block == NULL) {
        return ESP_ENOMEM;
    }
    dev->blocks[dev->n_blocks++] = block;
    *ret_ptr = block;
    return ESP_OK;
}

static void seal(struct esp_dev *dev)
{
    dev->sealed = true;
}

static esp_status copy(struct esp_dev *dev, void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
    return tick(dev);
}

static esp_status wait(struct esp_dev *dev)
{
    return tick(dev);
}

static size_t weight_bytes(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    return (size_t)n_out * n_in;
}

static esp_status weight_pack(struct esp_dev *dev, const struct esp_pack_args *args, struct esp_weight *ret_weight)
{
    return ESP_EUNSUPPORTED; /* the model is made by hand */
}

static esp_status embed(struct esp_dev *dev, const struct esp_embed_args *args)
{
    uint32_t *x = (uint32_t *)(void *)args->x;
    memset(x, 0, (size_t)args->n_rows * DIM * sizeof *x);
    for (uint32_t row = 0; row < args->n_rows; row++) {
        x[row * DIM] = args->ids[row] + 1;
    }
    return tick(dev);
}

static esp_status norm(struct esp_dev *dev, const struct esp_norm_args *args)
{
    memmove(args->y, args->x, (size_t)args->n_rows * args->dim * sizeof(float));
    return tick(dev);
}

static uint64_t state_in(const float *row)
{
    uint64_t state;
    memcpy(&state, row + 1, sizeof state);
    return state;
}

static uint32_t token_in(const float *row)
{
    uint32_t word;
    memcpy(&word, row, sizeof word);
    return word;
}

static void linear_one(const struct esp_weight *weight, const float *x, float *y, uint32_t n_rows)
{
    for (uint32_t row = 0; row < n_rows; row++) {
        const float *from = x + (size_t)row * weight->n_in;
        float *to = y + (size_t)row * weight->n_out;
        switch (weight->layout) {
        case ROLE_COPY:
            memcpy(to, from, DIM * sizeof(float));
            break;
        case ROLE_OUT:
            memcpy(to + 1, from + 1, sizeof(uint64_t));
            break;
        case ROLE_HEAD:
            logits_of(state_in(from), to, weight->n_out);
            break;
        default:
            break;
        }
    }
}

static esp_status linear(struct esp_dev *dev, const struct esp_linear_args *args)
{
    for (uint32_t i = 0; i < args->n_weights; i++) {
        linear_one(args->weight[i], args->x, args->y[i], args->n_rows);
    }
    return tick(dev);
}

static esp_status rope_table(struct esp_dev *dev, const struct esp_rope_table_args *args)
{
    return tick(dev);
}

static uint64_t *slot_of(const void *kv, const struct esp_kv_geom *geom, uint32_t layer, uint32_t page, uint32_t pos)
{
    const char *at = (const char *)kv + page * esp_kv_page_bytes(geom) + layer * esp_kv_layer_bytes(geom) +
                     pos % ESP_PAGE_TOKENS * (esp_kv_layer_bytes(geom) / ESP_PAGE_TOKENS);
    return (uint64_t *)(uintptr_t)at;
}

static esp_status rope_kv(struct esp_dev *dev, const struct esp_rope_kv_args *args)
{
    for (uint32_t row = 0; row < args->n_rows; row++) {
        const float *k = args->k + (size_t)row * DIM;
        uint64_t content = args->layer == 0 ? token_in(k) : state_in(k);
        uint64_t *slot = slot_of(args->kv, &args->geom, args->layer, args->page[row], args->pos[row]);
        slot[0] = key_of(args->layer, content, args->pos[row]);
        slot[1] = ~slot[0];
    }
    return tick(dev);
}

static esp_status attn(struct esp_dev *dev, const struct esp_attn_args *args)
{
    for (uint32_t row = 0; row < args->n_rows; row++) {
        const uint32_t *pages = args->pages[args->row_seq[row]];
        uint64_t h = 0;
        for (uint32_t pos = 0; pos <= args->pos[row]; pos++) {
            const uint64_t *slot = slot_of(args->kv, &args->geom, args->layer, pages[pos / ESP_PAGE_TOKENS], pos);
            h = fold(h, slot[0], slot[1]);
        }
        float *out = args->out + (size_t)row * DIM;
        uint64_t state = state_of(h, token_in(args->q + (size_t)row * DIM));
        memset(out, 0, DIM * sizeof *out);
        memcpy(out + 1, &state, sizeof state);
    }
    return tick(dev);
}

static esp_status glu(struct esp_dev *dev, const struct esp_glu_args *args)
{
    return tick(dev);
}

static esp_status copy_pages(struct esp_dev *dev, const struct esp_copy_pages_args *args)
{
    char *kv = args->kv;
    for (uint32_t i = 0; i < args->n; i++) {
        for (uint32_t j = 0; j < args->n; j++) {
            assert(args->src[i] != args->dst[j] && (i == j || args->dst[i] != args->dst[j]));
        }
        memcpy(kv + args->dst[i] * args->page_bytes, kv + args->src[i] * args->page_bytes, args->page_bytes);
    }
    return tick(dev);
}

static esp_status sample(struct esp_dev *dev, struct esp_sample_args *args)
{
    for (uint32_t i = 0; i < args->n_rows; i++) {
        esp_hash_sample_row(&args->rows[i], args->n_vocab);
    }
    return tick(dev);
}

const struct esp_ops esp_hash_ops = {
    .name = "hash",
    .dev_open = dev_open,
    .dev_close = dev_close,
    .level = level,
    .scratch_bytes = scratch_bytes,
    .alloc = dev_alloc,
    .seal = seal,
    .upload = copy,
    .download = copy,
    .wait = wait,
    .weight_bytes = weight_bytes,
    .weight_pack = weight_pack,
    .embed = embed,
    .norm = norm,
    .linear = linear,
    .rope_table = rope_table,
    .rope_kv = rope_kv,
    .attn = attn,
    .glu = glu,
    .copy_pages = copy_pages,
    .sample = sample,
};

/* ---- The model ----------------------------------------------------------------------------------- */

static struct esp_weight weight(enum role role, uint32_t n_out)
{
    static const char none; /* data must not be NULL; nobody reads it */
    return (struct esp_weight){.data = &none, .n_out = n_out, .n_in = DIM, .layout = role};
}

esp_status esp_hash_model_create(uint32_t n_vocab, uint32_t n_rows_max, struct esp_model **ret_model)
{
    struct esp_model *model = esp_calloc(ESP_TAG_MISC, 1, sizeof *model);
    if (model == NULL) {
        return ESP_ENOMEM;
    }
    struct esp_dev_config config = {1, n_rows_max, DIM, DIM, ESP_HASH_CTX_MAX};
    model->ops = &esp_hash_ops;
    model->layers = esp_calloc(ESP_TAG_MISC, N_LAYER, sizeof *model->layers);
    model->inv_freq = esp_calloc(ESP_TAG_MISC, 1, sizeof *model->inv_freq);
    if (model->layers == NULL || model->inv_freq == NULL || dev_open(&config, &model->dev, NULL) != ESP_OK) {
        esp_model_destroy(model);
        return ESP_ENOMEM;
    }
    model->hp = (struct esp_hparams){
        .arch = "hash", .n_layer = N_LAYER, .n_embd = DIM, .n_head = 1, .n_head_kv = 1, .head_dim = DIM, .n_ff = DIM,
        .n_vocab = n_vocab, .n_ctx_train = ESP_HASH_CTX_MAX, .norm_eps = 1e-5f, .rope = ESP_ROPE_NONE,
        .n_rot = 2, .rope_scale = 1, .attn_scale = 1, .embed_scale = 1,
    };
    model->embed = weight(ROLE_COPY, n_vocab);
    model->head = weight(ROLE_HEAD, n_vocab);
    for (uint32_t i = 0; i < N_LAYER; i++) {
        model->layers[i] = (struct esp_layer){
            .q = weight(ROLE_COPY, DIM), .k = weight(ROLE_COPY, DIM), .v = weight(ROLE_COPY, DIM),
            .o = weight(ROLE_OUT, DIM), .gate = weight(ROLE_NOTHING, DIM), .up = weight(ROLE_NOTHING, DIM),
            .down = weight(ROLE_NOTHING, DIM),
        };
    }
    *ret_model = model;
    return ESP_OK;
}

void esp_hash_model_destroy(struct esp_model *model)
{
    if (model != NULL) {
        dev_close(model->dev);
        esp_model_destroy(model);
    }
}
