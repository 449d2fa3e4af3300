/* Hyper-parameters: the table of architectures, and the metadata of a file read against it.
 *
 * Every number has bounds, and numbers must agree with each other, before anything is computed from them.
 * A key that asks for arithmetic which this build does not have is refused by name; a key of the family
 * that is not known at all is reported in the log, because it may be one. Thread: the loader's.
 * Sources: the GGUF specification for key names; for the families the published model cards and papers
 * (Llama 2 and 3, Qwen2, Qwen3, Gemma 3). Does not look at tensors, except the height of the embedding.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/model_parts.h"

#define DIM_MAX (1u << 20)
#define HEADS_MAX 4096u
#define VOCAB_MAX (1u << 24)
#define CTX_MAX (1u << 30)
#define KEY_BYTES 128

static const struct esp_arch archs[] = {
    {"llama", ESP_ROPE_NORM, ESP_ACT_SILU, .rope_freqs = true},
    {"qwen2", ESP_ROPE_NEOX, ESP_ACT_SILU},
    {"qwen3", ESP_ROPE_NEOX, ESP_ACT_SILU, .qk_norm = true},
    {"gemma3", ESP_ROPE_NEOX, ESP_ACT_GELU_TANH, .qk_norm = true, .post_norms = true, .embed_scaled = true,
     .window_period = 6},
};

const struct esp_arch *esp_arch_find(const char *name)
{
    for (size_t idx = 0; idx < sizeof archs / sizeof archs[0]; idx++) {
        if (strcmp(archs[idx].name, name) == 0) {
            return &archs[idx];
        }
    }
    return NULL;
}

/* Reads keys of one architecture; the first failure sticks. */
struct keys {
    const struct esp_gguf *gguf;
    const struct esp_arch *arch;
    struct esp_err *err;
    esp_status status;
};

static const char *full_key(const struct keys *k, const char *name, char buf[KEY_BYTES])
{
    snprintf(buf, KEY_BYTES, "%s.%s", k->arch->name, name);
    return buf;
}

static void refuse(struct keys *k, esp_status code, const char *key, const char *what)
{
    if (k->status == ESP_OK) {
        k->status = esp_fail(k->err, code, "%s: %s", key, what);
        esp_err_place(k->err, "%s", key);
    }
}

static bool has_key(const struct keys *k, const char *name)
{
    char key[KEY_BYTES];
    return esp_gguf_find(k->gguf, full_key(k, name, key)) != NULL;
}

/* The value of an array with one number for each layer, when they are all equal. */
static uint32_t one_of_layers(struct keys *k, const char *key, const struct esp_gguf_kv *kv)
{
    bool is_int = kv->item_type != ESP_GGUF_STRING && kv->item_type != ESP_GGUF_F32 && kv->item_type != ESP_GGUF_F64 &&
                  kv->item_type != ESP_GGUF_BOOL;
    if (!is_int || kv->n == 0) {
        refuse(k, ESP_EINVAL, key, "must be an integer, or one for each layer");
        return 0;
    }
    int64_t first = esp_gguf_array_int(kv, 0);
    for (uint64_t idx = 1; idx < kv->n; idx++) {
        if (esp_gguf_array_int(kv, idx) != first) {
            refuse(k, ESP_EUNSUPPORTED, key, "layers that differ in this are not supported");
            return 0;
        }
    }
    return first >= 0 && first <= UINT32_MAX ? (uint32_t)first : UINT32_MAX;
}

/* A number, or one per layer when they are all equal. Absent: fallback, and an error when that is 0. */
static uint32_t get_u32(struct keys *k, const char *name, uint32_t fallback, uint32_t min, uint32_t max)
{
    char key[KEY_BYTES];
    full_key(k, name, key);
    const struct esp_gguf_kv *kv = esp_gguf_find(k->gguf, key);
    uint32_t value = fallback;
    if (k->status == ESP_OK && kv == NULL && fallback == 0) {
        refuse(k, ESP_EINVAL, key, "is missing");
    } else if (k->status == ESP_OK && kv != NULL && kv->type == ESP_GGUF_ARRAY) {
        value = one_of_layers(k, key, kv);
    } else if (k->status == ESP_OK) {
        k->status = esp_gguf_get_u32(k->gguf, key, fallback, &value, k->err);
    }
    if (k->status == ESP_OK && (value < min || value > max)) {
        char what[96];
        snprintf(what, sizeof what, "%u is not between %u and %u", value, min, max);
        refuse(k, ESP_EINVAL, key, what);
    }
    return k->status == ESP_OK ? value : min;
}

/* Absent: fallback, and an error when that is NaN. */
static float get_f32(struct keys *k, const char *name, float fallback, float min, float max)
{
    char key[KEY_BYTES];
    full_key(k, name, key);
    float value = fallback;
    if (k->status == ESP_OK) {
        k->status = esp_gguf_get_f32(k->gguf, key, fallback, &value, k->err);
    }
    if (k->status == ESP_OK && isnan(fallback) && esp_gguf_find(k->gguf, key) == NULL) {
        refuse(k, ESP_EINVAL, key, "is missing");
    }
    if (k->status == ESP_OK && !(value >= min && value <= max)) {
        char what[96];
        snprintf(what, sizeof what, "%g is not between %g and %g", (double)value, (double)min, (double)max);
        refuse(k, ESP_EINVAL, key, what);
    }
    return k->status == ESP_OK ? value : min;
}

/* Keys that ask for arithmetic of other families. They may be there with a value that changes nothing. */
static const struct {
    const char *name;
    double neutral, also_neutral;
} foreign[] = {
    {"expert_count", 0, 0},
    {"attn_logit_softcapping", 0, 0},
    {"final_logit_softcapping", 0, 0},
    {"logit_scale", 1, 0},
    {"residual_scale", 1, 0},
    {"embedding_scale", 1, 0},
    {"attention.scale", 0, 0},
    {"attention.temperature_scale", 0, 0},
    {"attention.temperature_length", 0, 0},
    {"attention.clamp_kqv", 0, 0},
    {"attention.max_alibi_bias", 0, 0},
    {"attention.causal", 1, 1},
    {"rope.scaling.attn_factor", 1, 1},
    {"rope.scaling.yarn_log_multiplier", 0, 0},
    {"rope.dimension_sections", 0, 0},
    {"use_parallel_residual", 0, 0},
    {"nextn_predict_layers", 0, 0},
    {"pooling_type", 0, 0},
};

static const char *const known[] = {
    "context_length", "embedding_length", "block_count", "feed_forward_length", "vocab_size", "expert_used_count",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.sliding_window", "attention.sliding_window_pattern",
    "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa", "rope.scale_linear", "rope.scaling.type",
    "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned",
    /* parameters of YaRN, which is refused by rope.scaling.type */
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
};

static bool is_neutral(const struct esp_gguf_kv *kv, double neutral, double also_neutral)
{
    if (kv->item_type == ESP_GGUF_STRING) {
        return false;
    }
    for (uint64_t idx = 0; idx < kv->n; idx++) {
        double value = esp_gguf_array_float(kv, idx);
        if (value != neutral && value != also_neutral) {
            return false;
        }
    }
    return true;
}

static bool name_is(const struct esp_gguf_string *key, size_t skip, const char *name)
{
    size_t n = strlen(name);
    return key->n_bytes == skip + n && memcmp(key->data + skip, name, n) == 0;
}

/* Looks at one key of the family: known, foreign but without effect, foreign, or unknown. */
static void check_key(struct keys *k, const struct esp_gguf_kv *kv, size_t skip)
{
    for (size_t idx = 0; idx < sizeof known / sizeof known[0]; idx++) {
        if (name_is(&kv->key, skip, known[idx])) {
            return;
        }
    }
    char key[KEY_BYTES];
    for (size_t idx = 0; idx < sizeof foreign / sizeof foreign[0]; idx++) {
        if (name_is(&kv->key, skip, foreign[idx].name)) {
            if (!is_neutral(kv, foreign[idx].neutral, foreign[idx].also_neutral)) {
                refuse(k, ESP_EUNSUPPORTED, full_key(k, foreign[idx].name, key),
                       "the file asks for something that this architecture does not do here");
            }
            return;
        }
    }
    esp_log(ESP_LOG_WARN, "model", "the key %.*s is not known and has no effect",
            (int)(kv->key.n_bytes < KEY_BYTES ? kv->key.n_bytes : KEY_BYTES), kv->key.data);
}

static void check_keys(struct keys *k)
{
    size_t n = strlen(k->arch->name);
    for (size_t idx = 0; idx < esp_gguf_n_kv(k->gguf) && k->status == ESP_OK; idx++) {
        const struct esp_gguf_kv *kv = esp_gguf_kv_at(k->gguf, idx);
        if (kv->key.n_bytes > n && memcmp(kv->key.data, k->arch->name, n) == 0 && kv->key.data[n] == '.') {
            check_key(k, kv, n + 1);
        }
    }
}

static void read_rope(struct keys *k, struct esp_hparams *hp)
{
    char key[KEY_BYTES];
    hp->rope = k->arch->rope;
    hp->n_rot = get_u32(k, "rope.dimension_count", hp->head_dim, 2, hp->head_dim);
    if (hp->n_rot % 2 != 0) {
        refuse(k, ESP_EINVAL, full_key(k, "rope.dimension_count", key), "must be even");
    }
    hp->rope_base = (double)get_f32(k, "rope.freq_base", 10000.0f, 1.0f, 1e12f);
    hp->rope_base_window = (double)get_f32(k, "rope.freq_base_swa", 10000.0f, 1.0f, 1e12f);
    struct esp_gguf_string type = {0};
    full_key(k, "rope.scaling.type", key);
    if (k->status == ESP_OK) {
        k->status = esp_gguf_get_string(k->gguf, key, &type, k->err);
    }
    bool none = type.data != NULL && type.n_bytes == 4 && memcmp(type.data, "none", 4) == 0;
    bool linear = type.data == NULL || (type.n_bytes == 6 && memcmp(type.data, "linear", 6) == 0);
    if (k->status == ESP_OK && !none && !linear) {
        char what[96];
        snprintf(what, sizeof what, "\"%.*s\" is not supported; none and linear are",
                 (int)(type.n_bytes < 32 ? type.n_bytes : 32), type.data);
        refuse(k, ESP_EUNSUPPORTED, key, what);
    }
    float old = get_f32(k, "rope.scale_linear", 1.0f, 0.0f, 1e6f);
    float factor = get_f32(k, "rope.scaling.factor", old, 0.0f, 1e6f);
    /* A factor of 0 stands for none in files of older converters. */
    hp->rope_scale = linear && factor > 0.0f ? (double)factor : 1.0;
}

/* The period whose pattern is that of the array (true = window layer): layer i is one if i % p < p − 1. */
static uint32_t period_of(const struct esp_gguf_kv *kv, uint32_t n_layer)
{
    for (uint32_t period = 1; period <= n_layer + 1; period++) {
        bool same = true;
        for (uint32_t layer = 0; layer < n_layer && same; layer++) {
            same = (esp_gguf_array_int(kv, layer) != 0) == (layer % period < period - 1);
        }
        if (same) {
            return period;
        }
    }
    return 0;
}

static void read_window(struct keys *k, struct esp_hparams *hp)
{
    char key[KEY_BYTES];
    full_key(k, "attention.sliding_window", key);
    if (!has_key(k, "attention.sliding_window")) {
        return;
    }
    uint32_t window = get_u32(k, "attention.sliding_window", 1, 0, CTX_MAX);
    if (k->status != ESP_OK || window == 0) {
        return;
    }
    if (k->arch->window_period == 0) {
        if (window < hp->n_ctx_train) {
            refuse(k, ESP_EUNSUPPORTED, key, "this architecture has no window layers here");
        }
        return;
    }
    full_key(k, "attention.sliding_window_pattern", key);
    const struct esp_gguf_kv *kv = esp_gguf_find(k->gguf, key);
    uint32_t period;
    if (kv != NULL && kv->type == ESP_GGUF_ARRAY) {
        bool fits = kv->item_type == ESP_GGUF_BOOL && kv->n == hp->n_layer;
        period = fits ? period_of(kv, hp->n_layer) : 0;
        if (period == 0) {
            refuse(k, ESP_EUNSUPPORTED, key, "the window layers do not come at a fixed period");
        }
    } else {
        period = get_u32(k, "attention.sliding_window_pattern", k->arch->window_period, 1, ESP_MODEL_LAYERS_MAX + 1);
    }
    if (k->status == ESP_OK && period > 1) {
        hp->window = window;
        hp->window_period = period;
    }
}

static void read_heads(struct keys *k, struct esp_hparams *hp)
{
    char key[KEY_BYTES];
    hp->n_head = get_u32(k, "attention.head_count", 0, 1, HEADS_MAX);
    hp->n_head_kv = get_u32(k, "attention.head_count_kv", hp->n_head, 1, HEADS_MAX);
    if (hp->n_head % hp->n_head_kv != 0) {
        refuse(k, ESP_EINVAL, full_key(k, "attention.head_count_kv", key), "does not divide the number of heads");
    }
    uint32_t usual = hp->n_embd / hp->n_head;
    if (!has_key(k, "attention.key_length") && (usual == 0 || hp->n_embd % hp->n_head != 0)) {
        refuse(k, ESP_EINVAL, full_key(k, "attention.head_count", key), "does not divide the width of the embedding");
    }
    hp->head_dim = get_u32(k, "attention.key_length", usual, 1, DIM_MAX);
    uint32_t value_dim = get_u32(k, "attention.value_length", has_key(k, "attention.key_length") ? hp->head_dim : usual,
                                 1, DIM_MAX);
    uint32_t d = hp->head_dim;
    if (d != value_dim || (d != 32 && d != 64 && d != 128 && d != 256)) {
        refuse(k, ESP_EUNSUPPORTED, full_key(k, "attention.key_length", key),
               "heads must be 32, 64, 128 or 256 wide, keys and values alike");
    }
    /* Gemma 3 scales queries by 1 / sqrt(head_dim), except its 27B model (62 layers), which takes
     * n_embd / n_head for head_dim; no key tells. */
    bool gemma_27b = strcmp(k->arch->name, "gemma3") == 0 && hp->n_layer == 62;
    hp->attn_scale = (float)(1.0 / sqrt((double)(gemma_27b ? usual : d)));
}

static void read_vocab(struct keys *k, struct esp_hparams *hp)
{
    const struct esp_gguf_tensor *embed = esp_gguf_tensor(k->gguf, "token_embd.weight");
    if (k->status != ESP_OK) {
        return;
    }
    if (embed == NULL || embed->dims[1] == 0 || embed->dims[1] > VOCAB_MAX) {
        refuse(k, ESP_EINVAL, "token_embd.weight", embed == NULL ? "is missing" : "has no sensible number of rows");
        return;
    }
    hp->n_vocab = (uint32_t)embed->dims[1];
    const struct esp_gguf_kv *tokens = esp_gguf_find(k->gguf, "tokenizer.ggml.tokens");
    if (tokens != NULL && (tokens->type != ESP_GGUF_ARRAY || tokens->n > hp->n_vocab)) {
        refuse(k, ESP_EINVAL, "tokenizer.ggml.tokens", "has more tokens than the embedding has rows, or is no array");
    }
}

static esp_status find_arch(const struct esp_gguf *gguf, const struct esp_arch **ret_arch, struct esp_err *err)
{
    struct esp_gguf_string name = {0};
    esp_status status = esp_gguf_get_string(gguf, "general.architecture", &name, err);
    if (status != ESP_OK) {
        return status;
    }
    char text[32] = {0};
    if (name.data == NULL) {
        esp_fail(err, ESP_EINVAL, "general.architecture: is missing");
        esp_err_place(err, "general.architecture");
        return ESP_EINVAL;
    }
    for (size_t idx = 0; idx < name.n_bytes && idx + 1 < sizeof text; idx++) {
        text[idx] = name.data[idx] >= 0x20 && name.data[idx] < 0x7f ? name.data[idx] : '?';
    }
    *ret_arch = name.n_bytes < sizeof text ? esp_arch_find(text) : NULL;
    if (*ret_arch == NULL) {
        esp_fail(err, ESP_EUNSUPPORTED, "the architecture \"%s\" is not supported; llama, qwen2, qwen3 and gemma3 are",
                 text);
        esp_err_place(err, "general.architecture");
        return ESP_EUNSUPPORTED;
    }
    return ESP_OK;
}

esp_status esp_hparams_read(const struct esp_gguf *gguf, struct esp_hparams *ret_hp, struct esp_err *err)
{
    struct keys k = {.gguf = gguf, .err = err};
    k.status = find_arch(gguf, &k.arch, err);
    if (k.status != ESP_OK) {
        return k.status;
    }
    char key[KEY_BYTES];
    struct esp_hparams hp = {.act = k.arch->act, .qk_norm = k.arch->qk_norm, .post_norms = k.arch->post_norms,
                             .embed_scale = 1.0f};
    snprintf(hp.arch, sizeof hp.arch, "%s", k.arch->name);
    check_keys(&k);
    hp.n_layer = get_u32(&k, "block_count", 0, 1, ESP_MODEL_LAYERS_MAX);
    hp.n_embd = get_u32(&k, "embedding_length", 0, 32, DIM_MAX);
    hp.n_ff = get_u32(&k, "feed_forward_length", 0, 32, DIM_MAX);
    hp.n_ctx_train = get_u32(&k, "context_length", 0, 1, CTX_MAX);
    hp.norm_eps = get_f32(&k, "attention.layer_norm_rms_epsilon", NAN, 1e-30f, 1.0f);
    if (hp.n_embd % 32 != 0 || hp.n_ff % 32 != 0) {
        const char *name = hp.n_embd % 32 != 0 ? "embedding_length" : "feed_forward_length";
        refuse(&k, ESP_EUNSUPPORTED, full_key(&k, name, key), "must be a multiple of 32");
    }
    if (k.status == ESP_OK) {
        read_heads(&k, &hp);
    }
    if (k.status == ESP_OK) {
        read_rope(&k, &hp);
        read_window(&k, &hp);
        read_vocab(&k, &hp);
    }
    if (k.arch->embed_scaled) {
        hp.embed_scale = sqrtf((float)hp.n_embd);
    }
    if (k.status == ESP_OK) {
        *ret_hp = hp;
    }
    return k.status;
}
