/* The forward pass over the operations of a device.
 *
 * Activations live in one block, laid out once for the largest batch. The attention and the FFN of a layer
 * use the same memory one after the other:
 *
 *   x  [n_rows, n_embd]                   the residual stream
 *   a  [n_rows, max(n_embd, n_q)]         norm output; attention output; FFN output before its norm
 *   u  attention: q | k | v               q holds the attention block's output before its norm
 *      FFN:       gate | up               gate holds act(gate) · up
 *   cos_sin, once a batch; another one for window layers
 *
 * The last layer writes K and V of all rows, but carries on only with those that lie between the first and the
 * last row whose logits are wanted: a piece of a prompt wants none or one.
 *
 * Thread: the engine's. Touches device memory only through operations.
 */
#include "runtime/forward.h"

#include <assert.h>

#include "runtime/base/alloc.h"

#define ALIGN_FLOATS 16

struct layout { /* offsets in floats */
    uint64_t x, a, q, k, v, gate, up, cos_sin, cos_sin_window, end;
};

struct esp_forward {
    const struct esp_model *model;
    void *kv;
    uint32_t n_rows_max, n_logits_max;
    float *x, *a, *q, *k, *v, *gate, *up, *cos_sin, *cos_sin_window;
    float *logits; /* [n_logits_max, n_vocab] */
};

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Gives n floats a place and moves *end behind them. */
static uint64_t take(uint64_t *end, uint64_t n)
{
    uint64_t at = *end;
    *end += (n + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
    return at;
}

static struct layout lay_out(const struct esp_hparams *hp, uint64_t n_rows)
{
    uint64_t n_q = (uint64_t)hp->n_head * hp->head_dim, n_kv = (uint64_t)hp->n_head_kv * hp->head_dim;
    struct layout l = {0};
    uint64_t end = 0;
    l.x = take(&end, n_rows * hp->n_embd);
    l.a = take(&end, n_rows * max64(hp->n_embd, n_q));
    l.cos_sin = take(&end, n_rows * hp->n_rot);
    l.cos_sin_window = take(&end, hp->window == 0 ? 0 : n_rows * hp->n_rot);
    uint64_t ffn = end;
    l.q = take(&end, n_rows * (hp->post_norms ? max64(hp->n_embd, n_q) : n_q));
    l.k = take(&end, n_rows * n_kv);
    l.v = take(&end, n_rows * n_kv);
    l.gate = take(&ffn, n_rows * hp->n_ff);
    l.up = take(&ffn, n_rows * hp->n_ff);
    l.end = max64(end, ffn);
    return l;
}

static uint64_t logit_bytes(const struct esp_hparams *hp, uint32_t n_logits_max)
{
    return (uint64_t)n_logits_max * hp->n_vocab * sizeof(float);
}

uint64_t esp_forward_bytes(const struct esp_hparams *hp, uint32_t n_rows_max, uint32_t n_logits_max,
                           uint64_t *ret_logit_bytes)
{
    if (ret_logit_bytes != NULL) {
        *ret_logit_bytes = logit_bytes(hp, n_logits_max);
    }
    return lay_out(hp, n_rows_max).end * sizeof(float);
}

esp_status esp_forward_create(const struct esp_model *model, void *kv, uint32_t n_rows_max, uint32_t n_logits_max,
                              struct esp_forward **ret_forward, struct esp_err *err)
{
    assert(n_rows_max > 0 && n_logits_max > 0);
    struct esp_forward *f = esp_calloc(ESP_TAG_MISC, 1, sizeof *f);
    if (f == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for the forward pass");
    }
    struct layout l = lay_out(&model->hp, n_rows_max);
    uint64_t n_bytes = l.end * sizeof(float), n_logit_bytes = logit_bytes(&model->hp, n_logits_max);
    void *block = NULL, *logits = NULL;
    esp_status status = model->ops->alloc(model->dev, ESP_TAG_ACTIVATIONS, n_bytes, &block);
    if (status == ESP_OK) {
        status = model->ops->alloc(model->dev, ESP_TAG_ACTIVATIONS, n_logit_bytes, &logits);
    }
    if (status != ESP_OK) {
        esp_free(f);
        return esp_fail(err, status, "cannot get %llu bytes for activations and logits",
                        (unsigned long long)(n_bytes + n_logit_bytes));
    }
    float *base = block;
    *f = (struct esp_forward){.model = model, .kv = kv, .n_rows_max = n_rows_max, .n_logits_max = n_logits_max,
                              .x = base + l.x, .a = base + l.a, .q = base + l.q, .k = base + l.k, .v = base + l.v,
                              .gate = base + l.gate, .up = base + l.up, .cos_sin = base + l.cos_sin,
                              .cos_sin_window = base + l.cos_sin_window, .logits = logits};
    *ret_forward = f;
    return ESP_OK;
}

void esp_forward_destroy(struct esp_forward *forward)
{
    esp_free(forward);
}

static esp_status norm(const struct esp_forward *f, const float *x, const float *w, float *y, uint32_t n_rows,
                       uint32_t dim, uint32_t flags)
{
    struct esp_norm_args args = {.x = x, .w = w, .y = y, .n_rows = n_rows, .dim = dim,
                                 .eps = f->model->hp.norm_eps, .flags = flags};
    return f->model->ops->norm(f->model->dev, &args);
}

/* Neighbouring rows of a batch. */
struct rows {
    uint32_t first, n;
};

/* Where the residual stream of the rows begins. */
static float *stream(const struct esp_forward *f, struct rows rows)
{
    return f->x + (uint64_t)rows.first * f->model->hp.n_embd;
}

/* y = W x of some rows, added to the residual stream; where the family has a norm in between, by way of `between`. */
static esp_status project_back(const struct esp_forward *f, const struct esp_weight *weight, const float *bias,
                               const float *x, float *between, const float *post_norm, struct rows rows)
{
    const struct esp_model *m = f->model;
    struct esp_linear_args args = {.n_weights = 1, .weight = {weight}, .bias = {bias}, .x = x, .n_rows = rows.n,
                                   .y = {post_norm == NULL ? stream(f, rows) : between},
                                   .flags = post_norm == NULL ? ESP_LINEAR_ADD : 0};
    esp_status status = m->ops->linear(m->dev, &args);
    if (status == ESP_OK && post_norm != NULL) {
        status = norm(f, between, post_norm, stream(f, rows), rows.n, m->hp.n_embd, ESP_NORM_ADD);
    }
    return status;
}

/* Writes K and V of all rows; the attention of `rows` goes to a, theirs first. */
static esp_status rope_and_attend(const struct esp_forward *f, const struct esp_batch *b, uint32_t layer,
                                  struct rows rows)
{
    const struct esp_model *m = f->model;
    const struct esp_hparams *hp = &m->hp;
    bool windowed = hp->window != 0 && layer % hp->window_period < hp->window_period - 1;
    struct esp_rope_kv_args rope = {.q = f->q, .k = f->k, .v = f->v,
                                    .cos_sin = windowed ? f->cos_sin_window : f->cos_sin, .kind = hp->rope,
                                    .n_rot = hp->n_rot, .n_rows = b->n_rows, .n_head = hp->n_head, .kv = f->kv,
                                    .geom = esp_model_kv_geom(hp), .layer = layer, .page = b->row_page, .pos = b->pos};
    esp_status status = m->ops->rope_kv(m->dev, &rope);
    if (status != ESP_OK || rows.n == 0) {
        return status;
    }
    struct esp_attn_args attn = {.q = f->q + (uint64_t)rows.first * hp->n_head * hp->head_dim, .out = f->a,
                                 .kv = f->kv, .geom = rope.geom, .layer = layer, .n_rows = rows.n,
                                 .n_head = hp->n_head, .pos = b->pos + rows.first,
                                 .row_seq = b->row_seq + rows.first, .pages = b->pages,
                                 .window = windowed ? hp->window : 0, .scale = hp->attn_scale};
    return m->ops->attn(m->dev, &attn);
}

static esp_status attention(const struct esp_forward *f, const struct esp_batch *b, uint32_t layer, struct rows rows)
{
    const struct esp_model *m = f->model;
    const struct esp_hparams *hp = &m->hp;
    const struct esp_layer *l = &m->layers[layer];
    esp_status status = norm(f, f->x, l->attn_norm, f->a, b->n_rows, hp->n_embd, 0);
    if (status == ESP_OK) {
        struct esp_linear_args qkv = {.n_weights = 3, .weight = {&l->q, &l->k, &l->v},
                                      .bias = {l->q_bias, l->k_bias, l->v_bias}, .y = {f->q, f->k, f->v}, .x = f->a,
                                      .n_rows = b->n_rows};
        status = m->ops->linear(m->dev, &qkv);
    }
    if (status == ESP_OK && hp->qk_norm) {
        status = norm(f, f->q, l->q_norm, f->q, b->n_rows * hp->n_head, hp->head_dim, 0);
    }
    if (status == ESP_OK && hp->qk_norm) {
        status = norm(f, f->k, l->k_norm, f->k, b->n_rows * hp->n_head_kv, hp->head_dim, 0);
    }
    if (status == ESP_OK) {
        status = rope_and_attend(f, b, layer, rows);
    }
    if (status == ESP_OK && rows.n != 0) {
        status = project_back(f, &l->o, l->o_bias, f->a, f->q, l->attn_post_norm, rows);
    }
    return status;
}

/* gate = act(W_gate a) · W_up a, in one operation where the weights allow it. */
static esp_status gate_and_up(const struct esp_forward *f, const struct esp_layer *l, uint32_t n_rows)
{
    const struct esp_model *m = f->model;
    struct esp_linear_args up = {.n_weights = 2, .weight = {&l->gate, &l->up}, .y = {f->gate, f->up}, .x = f->a,
                                 .n_rows = n_rows, .act = m->hp.act};
    if (esp_linear_glu_fits(&up)) {
        up.flags = ESP_LINEAR_GLU;
        return m->ops->linear(m->dev, &up);
    }
    esp_status status = m->ops->linear(m->dev, &up);
    if (status == ESP_OK) {
        struct esp_glu_args glu = {.gate = f->gate, .up = f->up, .out = f->gate, .n_rows = n_rows,
                                   .dim = m->hp.n_ff, .act = m->hp.act};
        status = m->ops->glu(m->dev, &glu);
    }
    return status;
}

static esp_status feed_forward(const struct esp_forward *f, uint32_t layer, struct rows rows)
{
    const struct esp_model *m = f->model;
    const struct esp_layer *l = &m->layers[layer];
    if (rows.n == 0) {
        return ESP_OK;
    }
    esp_status status = norm(f, stream(f, rows), l->ffn_norm, f->a, rows.n, m->hp.n_embd, 0);
    if (status == ESP_OK) {
        status = gate_and_up(f, l, rows.n);
    }
    if (status == ESP_OK) {
        status = project_back(f, &l->down, NULL, f->gate, f->a, l->ffn_post_norm, rows);
    }
    return status;
}

/* The rows that carry on after K and V of a layer are written. */
static struct rows rows_after(const struct esp_forward *f, const struct esp_batch *b, uint32_t layer)
{
    struct rows rows = {0, b->n_rows};
    if (layer + 1 == f->model->hp.n_layer) {
        rows.first = b->n_logits == 0 ? 0 : b->logit_rows[0];
        rows.n = b->n_logits == 0 ? 0 : b->logit_rows[b->n_logits - 1] - rows.first + 1;
    }
    return rows;
}

/* Norms the wanted rows, neighbours in one operation, side by side into a; then one product with the head. */
static esp_status make_logits(const struct esp_forward *f, const struct esp_batch *b)
{
    const struct esp_model *m = f->model;
    uint64_t dim = m->hp.n_embd;
    esp_status status = ESP_OK;
    for (uint32_t from = 0, n; status == ESP_OK && from < b->n_logits; from += n) {
        n = 1;
        while (from + n < b->n_logits && b->logit_rows[from + n] == b->logit_rows[from] + n) {
            n++;
        }
        status = norm(f, f->x + b->logit_rows[from] * dim, m->output_norm, f->a + from * dim, n, m->hp.n_embd, 0);
    }
    if (status == ESP_OK && b->n_logits > 0 && !b->hidden) {
        struct esp_linear_args head = {.n_weights = 1, .weight = {&m->head}, .y = {f->logits}, .x = f->a,
                                       .n_rows = b->n_logits};
        status = m->ops->linear(m->dev, &head);
    }
    return status;
}

static bool batch_fits(const struct esp_forward *f, const struct esp_batch *b)
{
    if (b->n_rows == 0 || b->n_rows > f->n_rows_max || b->n_logits > f->n_logits_max) {
        return false;
    }
    for (uint32_t row = 0; row < b->n_rows; row++) {
        if (b->ids[row] >= f->model->hp.n_vocab || b->row_seq[row] >= b->n_seqs) {
            return false;
        }
    }
    for (uint32_t idx = 0; idx < b->n_logits; idx++) {
        if (b->logit_rows[idx] >= b->n_rows || (idx > 0 && b->logit_rows[idx] <= b->logit_rows[idx - 1])) {
            return false;
        }
    }
    return true;
}

static esp_status begin(const struct esp_forward *f, const struct esp_batch *b)
{
    const struct esp_model *m = f->model;
    struct esp_embed_args embed = {.weight = &m->embed, .ids = b->ids, .scale = m->hp.embed_scale,
                                   .n_rows = b->n_rows, .x = f->x};
    esp_status status = m->ops->embed(m->dev, &embed);
    struct esp_rope_table_args rope = {.pos = b->pos, .inv_freq = m->inv_freq, .mscale = 1.0f, .n_rows = b->n_rows,
                                       .n_rot = m->hp.n_rot, .cos_sin = f->cos_sin};
    if (status == ESP_OK) {
        status = m->ops->rope_table(m->dev, &rope);
    }
    if (status == ESP_OK && m->inv_freq_window != NULL) {
        rope.inv_freq = m->inv_freq_window;
        rope.cos_sin = f->cos_sin_window;
        status = m->ops->rope_table(m->dev, &rope);
    }
    return status;
}

esp_status esp_forward_run(struct esp_forward *forward, const struct esp_batch *batch, const float **ret_logits)
{
    if (!batch_fits(forward, batch)) {
        return ESP_EINVAL;
    }
    esp_status status = begin(forward, batch);
    for (uint32_t layer = 0; status == ESP_OK && layer < forward->model->hp.n_layer; layer++) {
        struct rows rows = rows_after(forward, batch, layer);
        status = attention(forward, batch, layer, rows);
        if (status == ESP_OK) {
            status = feed_forward(forward, layer, rows);
        }
    }
    if (status == ESP_OK) {
        status = make_logits(forward, batch);
    }
    if (status == ESP_OK) {
        *ret_logits = batch->hidden ? forward->a : forward->logits;
    }
    return status;
}
