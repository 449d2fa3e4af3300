/* A model: hyper-parameters, and weights packed on a device.
 *
 * An architecture is a row of one table (model.c): rope kind, norms, biases, activation, windows. There is
 * no file per family. Loading checks every tensor's shape and type against the hyper-parameters, packs
 * it through ops->weight_pack, and gives the file's pages back, so that peak memory stays near the
 * packed size. Thread: the loader's, then the engine's; read-only after load.
 */
#ifndef ESP_RUNTIME_MODEL_H
#define ESP_RUNTIME_MODEL_H

#include <stdatomic.h>

#include "kernels/ops.h"
#include "runtime/gguf.h"

#define ESP_MODEL_LAYERS_MAX 512

struct esp_hparams {
    char arch[32]; /* "llama", "qwen2", "qwen3", "gemma3" */
    uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx_train;
    float norm_eps;
    enum esp_rope_kind rope;
    uint32_t n_rot;
    double rope_base, rope_base_window; /* window layers may have their own */
    double rope_scale;                  /* positions are divided by this in global layers; 1 = none */
    uint32_t window;                    /* 0 = every layer is global */
    uint32_t window_period;             /* layer i is a window layer if i % period < period - 1 */
    float attn_scale;                   /* 1 / sqrt(head_dim) unless the family says otherwise */
    float embed_scale;                  /* gemma3: sqrt(n_embd); else 1 */
    enum esp_act act;
    bool qk_norm;    /* RMS norm per head before rope */
    bool post_norms; /* a norm after attention and after the FFN, before the residual add */
};

struct esp_layer {
    struct esp_weight q, k, v, o, gate, up, down;
    const float *q_bias, *k_bias, *v_bias, *o_bias; /* on the device; NULL = none */
    const float *attn_norm, *ffn_norm, *q_norm, *k_norm, *attn_post_norm, *ffn_post_norm;
};

struct esp_model {
    struct esp_hparams hp;
    const struct esp_ops *ops;
    struct esp_dev *dev;
    struct esp_weight embed, head; /* head.data == embed.data when tied */
    const float *output_norm;
    double *inv_freq;        /* [n_rot / 2] global layers, rope_freqs and scaling applied */
    double *inv_freq_window; /* [n_rot / 2] or NULL */
    struct esp_layer *layers; /* [n_layer] */
};

/* Reads and checks hyper-parameters only. */
esp_status esp_hparams_read(const struct esp_gguf *gguf, struct esp_hparams *ret_hp, struct esp_err *err);
/* Exact device bytes that esp_model_load will take from ops->alloc. */
esp_status esp_model_bytes(const struct esp_gguf *gguf, const struct esp_ops *ops, uint64_t *ret_bytes,
                           struct esp_err *err);
/* progress (may be NULL) goes from 0 to 1000. The device must be open. */
esp_status esp_model_load(const struct esp_gguf *gguf, const struct esp_ops *ops, struct esp_dev *dev,
                          _Atomic uint32_t *progress, struct esp_model **ret_model, struct esp_err *err);
void esp_model_destroy(struct esp_model *model); /* NULL is fine; device memory goes with the device */
static inline struct esp_kv_geom esp_model_kv_geom(const struct esp_hparams *hp)
{
    return (struct esp_kv_geom){hp->n_layer, hp->n_head_kv, hp->head_dim};
}

#endif
