/* Loads a model: every tensor that the architecture wants, checked, packed and placed on the device.
 *
 * One walk over the wanted tensors does everything: without a device it checks shapes and types and adds up
 * bytes, with one it packs into a single block of exactly that size. So the plan cannot differ from
 * what is taken. A tensor of the file that the walk did not ask for is a feature that would be ignored:
 * it is refused by name. Thread: the loader's. Knows no tensor's arithmetic.
 */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/alloc.h"
#include "runtime/model_parts.h"

#define ALIGN_BYTES 64
#define PACK_BYTES ((size_t)4 << 20) /* of the file's pages mapped at once; enough rows to keep many threads busy */

enum dim { DIM_NONE, DIM_EMBD, DIM_Q, DIM_KV, DIM_FF, DIM_HEAD };
enum want { WANT_ALWAYS, WANT_OPTIONAL, WANT_QK_NORM, WANT_POST_NORMS };

/* What a layer has: a matrix where n_in is given, else a vector of floats. */
static const struct slot {
    const char *name;
    size_t at; /* offset in struct esp_layer */
    enum dim n_out, n_in;
    enum want want;
} slots[] = {
    {"attn_norm.weight", offsetof(struct esp_layer, attn_norm), DIM_EMBD, DIM_NONE, WANT_ALWAYS},
    {"attn_q.weight", offsetof(struct esp_layer, q), DIM_Q, DIM_EMBD, WANT_ALWAYS},
    {"attn_k.weight", offsetof(struct esp_layer, k), DIM_KV, DIM_EMBD, WANT_ALWAYS},
    {"attn_v.weight", offsetof(struct esp_layer, v), DIM_KV, DIM_EMBD, WANT_ALWAYS},
    {"attn_q.bias", offsetof(struct esp_layer, q_bias), DIM_Q, DIM_NONE, WANT_OPTIONAL},
    {"attn_k.bias", offsetof(struct esp_layer, k_bias), DIM_KV, DIM_NONE, WANT_OPTIONAL},
    {"attn_v.bias", offsetof(struct esp_layer, v_bias), DIM_KV, DIM_NONE, WANT_OPTIONAL},
    {"attn_q_norm.weight", offsetof(struct esp_layer, q_norm), DIM_HEAD, DIM_NONE, WANT_QK_NORM},
    {"attn_k_norm.weight", offsetof(struct esp_layer, k_norm), DIM_HEAD, DIM_NONE, WANT_QK_NORM},
    {"attn_output.weight", offsetof(struct esp_layer, o), DIM_EMBD, DIM_Q, WANT_ALWAYS},
    {"attn_output.bias", offsetof(struct esp_layer, o_bias), DIM_EMBD, DIM_NONE, WANT_OPTIONAL},
    {"post_attention_norm.weight", offsetof(struct esp_layer, attn_post_norm), DIM_EMBD, DIM_NONE, WANT_POST_NORMS},
    {"ffn_norm.weight", offsetof(struct esp_layer, ffn_norm), DIM_EMBD, DIM_NONE, WANT_ALWAYS},
    {"ffn_gate.weight", offsetof(struct esp_layer, gate), DIM_FF, DIM_EMBD, WANT_ALWAYS},
    {"ffn_up.weight", offsetof(struct esp_layer, up), DIM_FF, DIM_EMBD, WANT_ALWAYS},
    {"ffn_down.weight", offsetof(struct esp_layer, down), DIM_EMBD, DIM_FF, WANT_ALWAYS},
    {"post_ffw_norm.weight", offsetof(struct esp_layer, ffn_post_norm), DIM_EMBD, DIM_NONE, WANT_POST_NORMS},
};

struct walk {
    const struct esp_gguf *gguf;
    const struct esp_arch *arch;
    const struct esp_hparams *hp;
    const struct esp_ops *ops;
    struct esp_dev *dev;
    uint8_t *block; /* NULL: only count */
    uint64_t used_bytes;
    bool *taken; /* [n_tensors] */
    uint64_t file_bytes, file_bytes_done;
    _Atomic uint32_t *progress;
    struct esp_err *err;
};

static uint32_t dim_of(const struct esp_hparams *hp, enum dim dim)
{
    switch (dim) {
    case DIM_EMBD: return hp->n_embd;
    case DIM_Q: return hp->n_head * hp->head_dim;
    case DIM_KV: return hp->n_head_kv * hp->head_dim;
    case DIM_FF: return hp->n_ff;
    case DIM_HEAD: return hp->head_dim;
    case DIM_NONE: break;
    }
    return 0;
}

static esp_status refuse(struct walk *w, esp_status code, const char *name, const char *what)
{
    esp_fail(w->err, code, "%s: %s", name, what);
    esp_err_place(w->err, "%s", name);
    return code;
}

/* The tensor, marked as taken; *ret_tensor is NULL when it is absent and need not be there. */
static esp_status find(struct walk *w, const char *name, bool must, uint32_t n_out, uint32_t n_in,
                       const struct esp_gguf_tensor **ret_tensor)
{
    const struct esp_gguf_tensor *t = esp_gguf_tensor(w->gguf, name);
    if (t == NULL) {
        *ret_tensor = NULL;
        return must ? refuse(w, ESP_EINVAL, name, "this tensor is missing") : ESP_OK;
    }
    uint64_t want[2] = {n_in == 0 ? n_out : n_in, n_in == 0 ? 1 : n_out};
    if (t->dims[0] != want[0] || t->dims[1] != want[1] || t->dims[2] != 1 || t->dims[3] != 1) {
        char what[160];
        snprintf(what, sizeof what, "has shape %llu x %llu x %llu x %llu; the metadata ask for %llu x %llu",
                 (unsigned long long)t->dims[0], (unsigned long long)t->dims[1], (unsigned long long)t->dims[2],
                 (unsigned long long)t->dims[3], (unsigned long long)want[0], (unsigned long long)want[1]);
        return refuse(w, ESP_EINVAL, name, what);
    }
    w->taken[t - esp_gguf_tensor_at(w->gguf, 0)] = true;
    *ret_tensor = t;
    return ESP_OK;
}

/* Where the next n_bytes go; NULL while only counting. */
static void *place(struct walk *w, size_t n_bytes)
{
    void *at = w->block == NULL ? NULL : w->block + w->used_bytes;
    w->used_bytes += (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    return at;
}

/* The bytes [from, to) of the tensor have been read for the last time. */
static void done(struct walk *w, const struct esp_gguf_tensor *t, size_t from, size_t to)
{
    /* From its beginning, because the system maps pages around the one that is touched. */
    esp_gguf_forget(w->gguf, t, to);
    w->file_bytes_done += to - from;
    if (w->progress != NULL) {
        *w->progress = (uint32_t)(1000.0 * (double)w->file_bytes_done / (double)w->file_bytes);
    }
}

/* In ranges of rows, so that a large matrix is never in memory twice. */
static esp_status pack(struct walk *w, const struct esp_gguf_tensor *t, struct esp_pack_args args,
                       struct esp_weight *ret_weight)
{
    size_t row_bytes = t->n_bytes / args.n_out;
    size_t n_rows = PACK_BYTES / row_bytes / ESP_PACK_ROWS * ESP_PACK_ROWS;
    n_rows = n_rows == 0 ? ESP_PACK_ROWS : n_rows;
    for (; args.row < args.n_out; args.row = args.row_end) {
        args.row_end = args.n_out - args.row < n_rows ? args.n_out : args.row + (uint32_t)n_rows;
        esp_status status = w->ops->weight_pack(w->dev, &args, ret_weight);
        if (status != ESP_OK) {
            return status;
        }
        done(w, t, args.row * row_bytes, args.row_end * row_bytes);
    }
    return ESP_OK;
}

static esp_status take_matrix(struct walk *w, const char *name, bool must, uint32_t n_out, uint32_t n_in,
                              struct esp_weight *ret_weight)
{
    const struct esp_gguf_tensor *t;
    esp_status status = find(w, name, must, n_out, n_in, &t);
    if (status != ESP_OK || t == NULL) {
        return status;
    }
    const struct esp_type_info *info = esp_type_info(t->type);
    enum esp_type type = (enum esp_type)t->type;
    size_t n_bytes = info->runs ? w->ops->weight_bytes(type, n_out, n_in) : 0;
    if (n_bytes == 0) {
        char what[96];
        snprintf(what, sizeof what, "a matrix of type %s, %u wide, cannot run here", info->name, n_in);
        return refuse(w, ESP_EUNSUPPORTED, name, what);
    }
    void *at = place(w, n_bytes);
    if (at == NULL) {
        return ESP_OK;
    }
    struct esp_pack_args args = {.type = type, .n_out = n_out, .n_in = n_in, .src = t->data, .dst = at};
    status = pack(w, t, args, ret_weight);
    return status == ESP_OK ? ESP_OK : refuse(w, status, name, "cannot be packed");
}

/* The floats of a small tensor on the host; the caller frees. */
static esp_status read_floats(struct walk *w, const char *name, const struct esp_gguf_tensor *t, uint32_t n,
                              float **ret_floats)
{
    if (t->type != ESP_TYPE_F32 && t->type != ESP_TYPE_F16 && t->type != ESP_TYPE_BF16) {
        return refuse(w, ESP_EUNSUPPORTED, name, "a vector must be of type F32, F16 or BF16");
    }
    float *floats = esp_malloc(ESP_TAG_MISC, n * sizeof *floats);
    if (floats == NULL) {
        return refuse(w, ESP_ENOMEM, name, "out of memory");
    }
    esp_dequantize((enum esp_type)t->type, t->data, n, floats);
    for (uint32_t idx = 0; idx < n; idx++) {
        if (!isfinite(floats[idx])) {
            esp_free(floats);
            return refuse(w, ESP_EINVAL, name, "holds a value that is no number");
        }
    }
    *ret_floats = floats;
    return ESP_OK;
}

static esp_status take_vector(struct walk *w, const char *name, bool must, uint32_t n, const float **ret_vector)
{
    const struct esp_gguf_tensor *t;
    float *floats;
    esp_status status = find(w, name, must, n, 0, &t);
    if (status == ESP_OK && t != NULL) {
        status = read_floats(w, name, t, n, &floats);
    }
    if (status != ESP_OK || t == NULL) {
        return status;
    }
    float *at = place(w, n * sizeof *at);
    if (at != NULL) {
        status = w->ops->upload(w->dev, at, floats, n * sizeof *at);
        *ret_vector = at;
        done(w, t, 0, t->n_bytes);
    }
    esp_free(floats);
    return status == ESP_OK ? ESP_OK : refuse(w, status, name, "cannot be uploaded");
}

static esp_status take_layer(struct walk *w, uint32_t layer_idx, struct esp_layer *layer)
{
    for (size_t idx = 0; idx < sizeof slots / sizeof slots[0]; idx++) {
        const struct slot *slot = &slots[idx];
        if ((slot->want == WANT_QK_NORM && !w->hp->qk_norm) || (slot->want == WANT_POST_NORMS && !w->hp->post_norms)) {
            continue;
        }
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", layer_idx, slot->name);
        bool must = slot->want != WANT_OPTIONAL;
        uint32_t n_out = dim_of(w->hp, slot->n_out), n_in = dim_of(w->hp, slot->n_in);
        void *field = (char *)layer + slot->at;
        esp_status status = n_in != 0 ? take_matrix(w, name, must, n_out, n_in, field)
                                      : take_vector(w, name, must, n_out, field);
        if (status != ESP_OK) {
            return status;
        }
    }
    return ESP_OK;
}

static esp_status check_all_taken(struct walk *w)
{
    for (size_t idx = 0; idx < esp_gguf_n_tensors(w->gguf); idx++) {
        if (w->taken[idx]) {
            continue;
        }
        const struct esp_gguf_string *s = &esp_gguf_tensor_at(w->gguf, idx)->name;
        char name[64];
        for (size_t at = 0; at < s->n_bytes; at++) {
            name[at] = s->data[at] >= 0x20 && s->data[at] < 0x7f ? s->data[at] : '?';
        }
        name[s->n_bytes] = '\0';
        char what[96];
        snprintf(what, sizeof what, "the architecture %s has no such tensor here", w->arch->name);
        return refuse(w, ESP_EUNSUPPORTED, name, what);
    }
    return ESP_OK;
}

/* Frequencies of the rotary embedding (RoFormer, arXiv 2104.09864): base^(−2i/n_rot), divided by the linear
 * scale and, where the file has one, by the factors of its rope_freqs tensor. */
static esp_status take_rope(struct walk *w, struct esp_model *model)
{
    const struct esp_hparams *hp = w->hp;
    uint32_t n = hp->n_rot / 2;
    const struct esp_gguf_tensor *t = NULL;
    float *factors = NULL;
    esp_status status = ESP_OK;
    if (w->arch->rope_freqs) {
        status = find(w, "rope_freqs.weight", false, n, 0, &t);
    }
    if (status == ESP_OK && t != NULL) {
        status = read_floats(w, "rope_freqs.weight", t, n, &factors);
    }
    for (uint32_t i = 0; status == ESP_OK && i < n; i++) {
        double power = -2.0 * i / hp->n_rot;
        double factor = factors == NULL ? 1.0 : (double)factors[i];
        if (!(factor > 0.0)) {
            status = refuse(w, ESP_EINVAL, "rope_freqs.weight", "a factor must be above 0");
        } else if (model != NULL) {
            model->inv_freq[i] = pow(hp->rope_base, power) / hp->rope_scale / factor;
            if (model->inv_freq_window != NULL) {
                model->inv_freq_window[i] = pow(hp->rope_base_window, power);
            }
        }
    }
    esp_free(factors);
    return status;
}

/* Everything that the model has; model is NULL while only counting. */
static esp_status take_all(struct walk *w, struct esp_model *model)
{
    struct esp_layer none = {0};
    struct esp_weight embed = {0}, head = {0};
    const float *output_norm = NULL;
    memset(w->taken, 0, esp_gguf_n_tensors(w->gguf) * sizeof *w->taken);
    esp_status status = take_matrix(w, "token_embd.weight", true, w->hp->n_vocab, w->hp->n_embd, &embed);
    for (uint32_t idx = 0; status == ESP_OK && idx < w->hp->n_layer; idx++) {
        status = take_layer(w, idx, model == NULL ? &none : &model->layers[idx]);
    }
    if (status == ESP_OK) {
        status = take_vector(w, "output_norm.weight", true, w->hp->n_embd, &output_norm);
    }
    if (status == ESP_OK) {
        status = take_matrix(w, "output.weight", false, w->hp->n_vocab, w->hp->n_embd, &head);
    }
    if (status == ESP_OK) {
        status = take_rope(w, model);
    }
    if (status == ESP_OK) {
        status = check_all_taken(w);
    }
    if (status == ESP_OK && model != NULL) {
        model->embed = embed;
        model->head = head.data == NULL ? embed : head;
        model->output_norm = output_norm;
    }
    return status;
}

/* Prepares a walk and does it once to check and count. The caller frees w->taken, also on failure. */
static esp_status count(struct walk *w, struct esp_hparams *hp)
{
    esp_status status = esp_hparams_read(w->gguf, hp, w->err);
    if (status != ESP_OK) {
        return status;
    }
    w->arch = esp_arch_find(hp->arch);
    assert(w->arch != NULL);
    w->hp = hp;
    w->taken = esp_calloc(ESP_TAG_MISC, esp_gguf_n_tensors(w->gguf), sizeof *w->taken);
    if (w->taken == NULL) {
        return esp_fail(w->err, ESP_ENOMEM, "out of memory while loading the model");
    }
    for (size_t idx = 0; idx < esp_gguf_n_tensors(w->gguf); idx++) {
        w->file_bytes += esp_gguf_tensor_at(w->gguf, idx)->n_bytes;
    }
    return take_all(w, NULL);
}

esp_status esp_model_bytes(const struct esp_gguf *gguf, const struct esp_ops *ops, uint64_t *ret_bytes,
                           struct esp_err *err)
{
    struct esp_hparams hp;
    struct walk w = {.gguf = gguf, .ops = ops, .err = err};
    esp_status status = count(&w, &hp);
    esp_free(w.taken);
    if (status == ESP_OK) {
        *ret_bytes = w.used_bytes;
    }
    return status;
}

static struct esp_model *new_model(const struct esp_hparams *hp, const struct esp_ops *ops, struct esp_dev *dev)
{
    struct esp_model *model = esp_calloc(ESP_TAG_MISC, 1, sizeof *model);
    if (model == NULL) {
        return NULL;
    }
    model->hp = *hp;
    model->ops = ops;
    model->dev = dev;
    model->layers = esp_calloc(ESP_TAG_MISC, hp->n_layer, sizeof *model->layers);
    model->inv_freq = esp_calloc(ESP_TAG_MISC, hp->n_rot / 2, sizeof *model->inv_freq);
    if (hp->window != 0) {
        model->inv_freq_window = esp_calloc(ESP_TAG_MISC, hp->n_rot / 2, sizeof *model->inv_freq_window);
    }
    if (model->layers == NULL || model->inv_freq == NULL || (hp->window != 0 && model->inv_freq_window == NULL)) {
        esp_model_destroy(model);
        return NULL;
    }
    return model;
}

esp_status esp_model_load(const struct esp_gguf *gguf, const struct esp_ops *ops, struct esp_dev *dev,
                          _Atomic uint32_t *progress, struct esp_model **ret_model, struct esp_err *err)
{
    struct esp_hparams hp;
    struct esp_model *model = NULL;
    struct walk w = {.gguf = gguf, .ops = ops, .err = err, .progress = progress};
    esp_status status = count(&w, &hp);
    if (status != ESP_OK) {
        goto done;
    }
    uint64_t n_bytes = w.used_bytes;
    void *block = NULL;
    model = new_model(&hp, ops, dev);
    if (model == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "out of memory while loading the model");
        goto done;
    }
    status = ops->alloc(dev, ESP_TAG_WEIGHTS, n_bytes, &block);
    if (status != ESP_OK) {
        esp_fail(err, status, "cannot get %llu bytes for the weights", (unsigned long long)n_bytes);
        goto done;
    }
    w.dev = dev;
    w.block = block;
    w.used_bytes = 0;
    status = take_all(&w, model);
    assert(status != ESP_OK || w.used_bytes == n_bytes);
    if (status == ESP_OK) {
        status = ops->wait(dev);
    }
done:
    esp_free(w.taken);
    if (status != ESP_OK) {
        esp_model_destroy(model);
        return status;
    }
    if (progress != NULL) {
        *progress = 1000;
    }
    *ret_model = model;
    return ESP_OK;
}

void esp_model_destroy(struct esp_model *model)
{
    if (model == NULL) {
        return;
    }
    esp_free(model->layers);
    esp_free(model->inv_freq);
    esp_free(model->inv_freq_window);
    esp_free(model);
}
