/* Models: what is read from metadata, what is refused and by which name, and that the plan is exactly what is
 * taken. The device here only counts and copies; arithmetic is tested by tests/golden.
 */
#include <math.h>

#include "runtime/base/alloc.h"
#include "runtime/forward.h"
#include "tests/esptest.h"
#include "tests/unit/runtime/gguf_writer.h"

/* ---- A device that keeps packed weights as they are in the file --------------------------------- */

struct esp_dev {
    uint8_t *block;
    size_t n_bytes, n_blocks;
    int n_until_failure; /* of weight_pack; negative = never */
};

static esp_status dev_alloc(struct esp_dev *dev, int tag, size_t bytes, void **ret_ptr)
{
    CHECK(tag == ESP_TAG_WEIGHTS && dev->block == NULL, "one block of weights");
    dev->block = esp_calloc(ESP_TAG_WEIGHTS, 1, bytes);
    dev->n_bytes = bytes;
    dev->n_blocks++;
    *ret_ptr = dev->block;
    return dev->block == NULL ? ESP_ENOMEM : ESP_OK;
}

static esp_status dev_upload(struct esp_dev *dev, void *dst, const void *src, size_t bytes)
{
    CHECK((uint8_t *)dst >= dev->block && (uint8_t *)dst + bytes <= dev->block + dev->n_bytes, "inside the block");
    memcpy(dst, src, bytes);
    return ESP_OK;
}

static esp_status dev_wait(struct esp_dev *dev)
{
    return dev->n_until_failure == 0 ? ESP_EIO : ESP_OK;
}

static size_t dev_weight_bytes(enum esp_type type, uint32_t n_out, uint32_t n_in)
{
    const struct esp_type_info *info = esp_type_info(type);
    return n_in % info->block == 0 ? (size_t)n_out * n_in / info->block * info->bytes : 0;
}

static esp_status dev_weight_pack(struct esp_dev *dev, const struct esp_pack_args *args,
                                  struct esp_weight *ret_weight)
{
    if (dev->n_until_failure == 0 || dev->n_until_failure-- == 0) {
        return ESP_EIO;
    }
    size_t bytes = dev_weight_bytes(args->type, args->n_out, args->n_in), row_bytes = bytes / args->n_out;
    CHECK((uintptr_t)args->dst % 64 == (uintptr_t)dev->block % 64, "aligned like the block");
    CHECK(args->row % ESP_PACK_ROWS == 0 && args->row < args->row_end && args->row_end <= args->n_out &&
          (args->row_end % ESP_PACK_ROWS == 0 || args->row_end == args->n_out), "whole groups of rows");
    *ret_weight = (struct esp_weight){
        .data = args->dst, .bytes = bytes, .n_out = args->n_out, .n_in = args->n_in, .type = args->type};
    size_t at = args->row * row_bytes;
    return dev_upload(dev, (uint8_t *)args->dst + at, (const uint8_t *)args->src + at,
                      (args->row_end - args->row) * row_bytes);
}

static const struct esp_ops ops = {.name = "copy", .alloc = dev_alloc, .upload = dev_upload, .wait = dev_wait,
                                   .weight_bytes = dev_weight_bytes, .weight_pack = dev_weight_pack};

/* ---- A model file with one thing changed -------------------------------------------------------- */

enum { EMBD = 64, HEADS = 2, HEADS_KV = 1, HEAD_DIM = 32, FF = 96, VOCAB = 5, LAYERS = 2 };

/* One key or tensor that differs from the plain model. */
struct change {
    const char *arch;     /* "llama" when NULL */
    const char *without;  /* a key or tensor that is left out */
    const char *key;      /* an additional key, or a replaced one … */
    uint32_t kind;        /* … of this type: U32, F32, STRING, ARRAY (of two U32), BOOL */
    double value;         /* ARRAY: value and value + text[0] − '0' */
    const char *text;
    const char *tensor;   /* a tensor with a first dimension of its own, or an additional one */
    uint64_t n_in;
    float fill;           /* value of all vectors; 0 = 1 */
};

static uint64_t n_keys, n_tensors, data_bytes;
static bool counting;

static void key(const struct change *c, const char *name, uint32_t kind, double value, const char *text)
{
    bool other = c->key != NULL && strcmp(c->key, name) == 0;
    if (c->without != NULL && strcmp(c->without, name) == 0) {
        return;
    }
    if (other) {
        kind = c->kind;
        value = c->value;
        text = c->text;
    }
    n_keys++;
    if (counting) {
        return;
    }
    if (kind == ESP_GGUF_STRING) {
        put_kv_str(name, text);
    } else if (kind == ESP_GGUF_F32) {
        put_kv_f32(name, (float)value);
    } else if (kind == ESP_GGUF_ARRAY) {
        put_str(name);
        put_u32(ESP_GGUF_ARRAY);
        put_u32(ESP_GGUF_U32);
        put_u64(2);
        put_u32((uint32_t)value);
        put_u32((uint32_t)value + (uint32_t)(text[0] - '0'));
    } else {
        put_kv(name, kind, (uint64_t)value, kind == ESP_GGUF_BOOL ? 1 : 4);
    }
}

static void tensor(const struct change *c, const char *name, uint64_t n_in, uint64_t n_out)
{
    if (c->without != NULL && strcmp(c->without, name) == 0) {
        return;
    }
    if (c->tensor != NULL && strcmp(c->tensor, name) == 0) {
        n_in = c->n_in;
    }
    n_tensors++;
    if (!counting) {
        put_str(name);
        put_u32(2);
        put_u64(n_in);
        put_u64(n_out);
        put_u32(ESP_TYPE_F32);
        put_u64(data_bytes);
    }
    data_bytes += (n_in * n_out * sizeof(float) + 31) / 32 * 32;
}

static void all_keys(const struct change *c)
{
    static const char *const known[] = {
        "block_count", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv",
        "attention.key_length", "attention.value_length", "context_length"};
    static const uint32_t values[] = {LAYERS, EMBD, FF, HEADS, HEADS_KV, HEAD_DIM, HEAD_DIM, 128};
    const char *arch = c->arch == NULL ? "llama" : c->arch;
    char name[96];
    bool seen = false;
    key(c, "general.architecture", ESP_GGUF_STRING, 0, arch);
    for (size_t idx = 0; idx < sizeof values / sizeof values[0]; idx++) {
        snprintf(name, sizeof name, "%s.%s", arch, known[idx]);
        seen = seen || (c->key != NULL && strcmp(name, c->key) == 0);
        key(c, name, ESP_GGUF_U32, values[idx], NULL);
    }
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch);
    seen = seen || (c->key != NULL && strcmp(name, c->key) == 0);
    key(c, name, ESP_GGUF_F32, 1e-5, NULL);
    if (c->key != NULL && !seen && strcmp(c->key, "general.architecture") != 0) {
        key(c, c->key, c->kind, c->value, c->text);
    }
}

static void all_tensors(const struct change *c)
{
    static const struct {
        const char *name;
        uint64_t n_in, n_out;
    } layer[] = {{"attn_norm.weight", EMBD, 1},
                 {"attn_q.weight", EMBD, HEADS * HEAD_DIM},
                 {"attn_k.weight", EMBD, HEADS_KV * HEAD_DIM},
                 {"attn_v.weight", EMBD, HEADS_KV * HEAD_DIM},
                 {"attn_output.weight", HEADS * HEAD_DIM, EMBD},
                 {"ffn_norm.weight", EMBD, 1},
                 {"ffn_gate.weight", EMBD, FF},
                 {"ffn_up.weight", EMBD, FF},
                 {"ffn_down.weight", FF, EMBD}};
    char name[64];
    bool seen = false;
    tensor(c, "token_embd.weight", EMBD, VOCAB);
    for (int l = 0; l < LAYERS; l++) {
        for (size_t idx = 0; idx < sizeof layer / sizeof layer[0]; idx++) {
            snprintf(name, sizeof name, "blk.%d.%s", l, layer[idx].name);
            seen = seen || (c->tensor != NULL && strcmp(name, c->tensor) == 0);
            tensor(c, name, layer[idx].n_in, layer[idx].n_out);
        }
    }
    tensor(c, "output_norm.weight", EMBD, 1);
    if (c->tensor != NULL && !seen && strcmp(c->tensor, "token_embd.weight") != 0) {
        tensor(c, c->tensor, c->n_in, 1);
    }
}

static struct esp_gguf *build(const struct change *c)
{
    for (int turn = 0; turn < 2; turn++) {
        counting = turn == 0;
        begin(n_tensors, n_keys);
        n_keys = n_tensors = data_bytes = 0;
        all_keys(c);
        all_tensors(c);
    }
    pad();
    float fill = c->fill == 0.0f ? 1.0f : c->fill;
    for (uint64_t idx = 0; idx < data_bytes / sizeof fill; idx++) {
        put(&fill, sizeof fill);
    }
    struct esp_gguf *gguf = NULL;
    struct esp_err err = {0};
    esp_status status = esp_gguf_open(save("m.gguf"), &gguf, &err);
    CHECK(status == ESP_OK, "%s", err.message);
    drop("m.gguf");
    n_keys = n_tensors = 0;
    return gguf;
}

static esp_status load(const struct change *c, struct esp_hparams *ret_hp, struct esp_err *err)
{
    struct esp_gguf *gguf = build(c);
    struct esp_dev dev = {.n_until_failure = -1};
    struct esp_model *model = NULL;
    uint64_t bytes = 0;
    esp_status planned = esp_model_bytes(gguf, &ops, &bytes, NULL);
    esp_status status = esp_model_load(gguf, &ops, &dev, NULL, &model, err);
    CHECK(planned == status, "plan %d, load %d", planned, status);
    CHECK(status != ESP_OK || bytes == dev.n_bytes, "plan %llu, taken %zu", (unsigned long long)bytes, dev.n_bytes);
    if (status == ESP_OK) {
        *ret_hp = model->hp;
        CHECK(model->head.data == model->embed.data && model->layers[1].down.n_in == FF);
    }
    esp_model_destroy(model);
    esp_free(dev.block);
    esp_gguf_close(gguf);
    return status;
}

/* ---- Tests -------------------------------------------------------------------------------------- */

static void test_plain(void)
{
    struct esp_hparams hp = {0};
    struct esp_err err = {0};
    struct change none = {0};
    REQUIRE(load(&none, &hp, &err) == ESP_OK, "%s", err.message);
    CHECK(hp.n_layer == LAYERS && hp.n_embd == EMBD && hp.n_head == HEADS && hp.n_head_kv == HEADS_KV);
    CHECK(hp.head_dim == HEAD_DIM && hp.n_ff == FF && hp.n_vocab == VOCAB && hp.n_ctx_train == 128);
    CHECK(hp.rope == ESP_ROPE_NORM && hp.n_rot == HEAD_DIM && hp.rope_base == 10000.0 && hp.rope_scale == 1.0);
    CHECK(hp.window == 0 && hp.embed_scale == 1.0f && hp.attn_scale == (float)(1.0 / sqrt(32.0)));
    CHECK(!hp.qk_norm && !hp.post_norms && hp.act == ESP_ACT_SILU);
    uint64_t logit_bytes = 0;
    uint64_t bytes = esp_forward_bytes(&hp, 10, 3, &logit_bytes);
    CHECK(logit_bytes == 3 * VOCAB * 4, "%llu", (unsigned long long)logit_bytes);
    CHECK(bytes >= 10 * 4 * (2 * EMBD + HEAD_DIM + 2 * FF) && bytes < 10 * 4 * (2 * EMBD + HEAD_DIM + 2 * FF) + 1024);
}

static void test_accepted(void)
{
    static const struct change changes[] = {
        {.key = "llama.expert_count", .kind = ESP_GGUF_U32, .value = 0},
        {.key = "llama.logit_scale", .kind = ESP_GGUF_F32, .value = 1},
        {.key = "llama.rope.scaling.type", .kind = ESP_GGUF_STRING, .text = "none"},
        {.key = "llama.attention.causal", .kind = ESP_GGUF_BOOL, .value = 1},
        {.key = "llama.attention.head_count_kv", .kind = ESP_GGUF_ARRAY, .value = HEADS_KV, .text = "0"},
        {.key = "llama.attention.sliding_window", .kind = ESP_GGUF_U32, .value = 128},
        {.key = "llama.something.new", .kind = ESP_GGUF_U32, .value = 7},
        {.tensor = "rope_freqs.weight", .n_in = HEAD_DIM / 2},
        {.tensor = "blk.1.attn_q.bias", .n_in = HEADS * HEAD_DIM},
        {.arch = "qwen2"},
    };
    for (size_t idx = 0; idx < sizeof changes / sizeof changes[0]; idx++) {
        struct esp_err err = {0};
        struct esp_hparams hp;
        CHECK(load(&changes[idx], &hp, &err) == ESP_OK, "%zu: %s", idx, err.message);
    }
}

/* Each is refused with this status, at this key or tensor (B205: zeros and giants among the sizes). */
static const struct {
    struct change change;
    esp_status status;
    const char *place;
} refused[] = {
    {{.arch = "mamba"}, ESP_EUNSUPPORTED, "general.architecture"},
    {{.without = "general.architecture"}, ESP_EINVAL, "general.architecture"},
    {{.without = "llama.block_count"}, ESP_EINVAL, "llama.block_count"},
    {{.without = "llama.context_length"}, ESP_EINVAL, "llama.context_length"},
    {{.without = "llama.attention.layer_norm_rms_epsilon"}, ESP_EINVAL, "llama.attention.layer_norm_rms_epsilon"},
    {{.without = "blk.1.ffn_up.weight"}, ESP_EINVAL, "blk.1.ffn_up.weight"},
    {{.without = "token_embd.weight"}, ESP_EINVAL, "token_embd.weight"},
    {{.without = "output_norm.weight"}, ESP_EINVAL, "output_norm.weight"},
    {{.key = "llama.block_count", .kind = ESP_GGUF_U32, .value = 0}, ESP_EINVAL, "llama.block_count"},
    {{.key = "llama.block_count", .kind = ESP_GGUF_U32, .value = 3}, ESP_EINVAL, "blk.2.attn_norm.weight"},
    {{.key = "llama.block_count", .kind = ESP_GGUF_U32, .value = 1}, ESP_EUNSUPPORTED, "blk.1.attn_norm.weight"},
    {{.key = "llama.embedding_length", .kind = ESP_GGUF_U32, .value = 4294967295.0}, ESP_EINVAL,
     "llama.embedding_length"},
    {{.key = "llama.context_length", .kind = ESP_GGUF_U32, .value = 0}, ESP_EINVAL, "llama.context_length"},
    {{.key = "llama.feed_forward_length", .kind = ESP_GGUF_U32, .value = 0}, ESP_EINVAL, "llama.feed_forward_length"},
    {{.key = "llama.embedding_length", .kind = ESP_GGUF_U32, .value = 0}, ESP_EINVAL, "llama.embedding_length"},
    {{.key = "llama.attention.head_count_kv", .kind = ESP_GGUF_U32, .value = 0}, ESP_EINVAL,
     "llama.attention.head_count_kv"},
    {{.key = "llama.attention.head_count", .kind = ESP_GGUF_U32, .value = 4294967295.0}, ESP_EINVAL,
     "llama.attention.head_count"},
    {{.key = "llama.embedding_length", .kind = ESP_GGUF_STRING, .text = "64"}, ESP_EINVAL, "llama.embedding_length"},
    {{.key = "llama.embedding_length", .kind = ESP_GGUF_U32, .value = 80}, ESP_EUNSUPPORTED,
     "llama.embedding_length"},
    {{.key = "llama.attention.head_count", .kind = ESP_GGUF_U32, .value = 0}, ESP_EINVAL,
     "llama.attention.head_count"},
    {{.key = "llama.attention.head_count_kv", .kind = ESP_GGUF_U32, .value = 3}, ESP_EINVAL,
     "llama.attention.head_count_kv"},
    {{.key = "llama.attention.head_count_kv", .kind = ESP_GGUF_ARRAY, .value = 1, .text = "1"}, ESP_EUNSUPPORTED,
     "llama.attention.head_count_kv"},
    {{.key = "llama.attention.key_length", .kind = ESP_GGUF_U32, .value = 48}, ESP_EUNSUPPORTED,
     "llama.attention.key_length"},
    {{.key = "llama.attention.value_length", .kind = ESP_GGUF_U32, .value = 64}, ESP_EUNSUPPORTED,
     "llama.attention.key_length"},
    {{.key = "llama.attention.layer_norm_rms_epsilon", .kind = ESP_GGUF_F32, .value = 0}, ESP_EINVAL,
     "llama.attention.layer_norm_rms_epsilon"},
    {{.key = "llama.rope.dimension_count", .kind = ESP_GGUF_U32, .value = 15}, ESP_EINVAL,
     "llama.rope.dimension_count"},
    {{.key = "llama.rope.dimension_count", .kind = ESP_GGUF_U32, .value = 64}, ESP_EINVAL,
     "llama.rope.dimension_count"},
    {{.key = "llama.rope.freq_base", .kind = ESP_GGUF_F32, .value = NAN}, ESP_EINVAL, "llama.rope.freq_base"},
    {{.key = "llama.rope.scaling.type", .kind = ESP_GGUF_STRING, .text = "yarn"}, ESP_EUNSUPPORTED,
     "llama.rope.scaling.type"},
    {{.key = "llama.rope.scaling.attn_factor", .kind = ESP_GGUF_F32, .value = 1.2}, ESP_EUNSUPPORTED,
     "llama.rope.scaling.attn_factor"},
    {{.key = "llama.expert_count", .kind = ESP_GGUF_U32, .value = 8}, ESP_EUNSUPPORTED, "llama.expert_count"},
    {{.key = "llama.logit_scale", .kind = ESP_GGUF_F32, .value = 0.5}, ESP_EUNSUPPORTED, "llama.logit_scale"},
    {{.key = "llama.final_logit_softcapping", .kind = ESP_GGUF_F32, .value = 30}, ESP_EUNSUPPORTED,
     "llama.final_logit_softcapping"},
    {{.key = "llama.attention.sliding_window", .kind = ESP_GGUF_U32, .value = 64}, ESP_EUNSUPPORTED,
     "llama.attention.sliding_window"},
    {{.key = "llama.attention.causal", .kind = ESP_GGUF_BOOL, .value = 0}, ESP_EUNSUPPORTED,
     "llama.attention.causal"},
    {{.key = "tokenizer.ggml.tokens", .kind = ESP_GGUF_U32, .value = 5}, ESP_EINVAL, "tokenizer.ggml.tokens"},
    {{.tensor = "blk.0.attn_q.weight", .n_in = 32}, ESP_EINVAL, "blk.0.attn_q.weight"},
    {{.tensor = "blk.0.ffn_norm.weight", .n_in = 32}, ESP_EINVAL, "blk.0.ffn_norm.weight"},
    {{.tensor = "blk.0.attn_sinks.weight", .n_in = 2}, ESP_EUNSUPPORTED, "blk.0.attn_sinks.weight"},
    {{.tensor = "blk.0.attn_q_norm.weight", .n_in = 32}, ESP_EUNSUPPORTED, "blk.0.attn_q_norm.weight"},
    {{.tensor = "rope_freqs.weight", .n_in = 4}, ESP_EINVAL, "rope_freqs.weight"},
    {{.arch = "qwen2", .tensor = "rope_freqs.weight", .n_in = 16}, ESP_EUNSUPPORTED, "rope_freqs.weight"},
    {{.arch = "qwen3"}, ESP_EINVAL, "blk.0.attn_q_norm.weight"},
    {{.fill = NAN}, ESP_EINVAL, "blk.0.attn_norm.weight"},
    {{.tensor = "rope_freqs.weight", .n_in = 16, .fill = -1}, ESP_EINVAL, "rope_freqs.weight"},
};

static void test_refused(void)
{
    uint64_t live = esp_alloc_live();
    for (size_t idx = 0; idx < sizeof refused / sizeof refused[0]; idx++) {
        struct esp_err err = {0};
        struct esp_hparams hp;
        esp_status status = load(&refused[idx].change, &hp, &err);
        CHECK(status == refused[idx].status && strcmp(err.place, refused[idx].place) == 0, "%zu: %d at %s: %s", idx,
              status, err.place, err.message);
    }
    esp_buf_finish(&out);
    CHECK(esp_alloc_live() <= live, "leaked");
}

static void test_failures(void)
{
    struct change none = {0};
    struct esp_gguf *gguf = build(&none);
    esp_buf_finish(&out);
    uint64_t live = esp_alloc_live();
    for (int n = 0; n < 4; n++) {
        struct esp_dev dev = {.n_until_failure = n};
        struct esp_model *model = NULL;
        CHECK(esp_model_load(gguf, &ops, &dev, NULL, &model, NULL) == ESP_EIO && model == NULL);
        esp_free(dev.block);
    }
    uint64_t nth = 0;
    esp_status status;
    do {
        struct esp_dev dev = {.n_until_failure = -1};
        struct esp_model *model = NULL;
        _Atomic uint32_t progress = 0;
        esp_alloc_fail_at(++nth);
        status = esp_model_load(gguf, &ops, &dev, &progress, &model, NULL);
        CHECK(status == ESP_ENOMEM || (status == ESP_OK && progress == 1000), "%d", status);
        esp_model_destroy(model);
        esp_free(dev.block);
        CHECK(esp_alloc_live() == live, "leak when allocation %llu fails", (unsigned long long)nth);
    } while (esp_alloc_fail_at(0) && nth < 1000);
    CHECK(status == ESP_OK && nth > 4 && nth < 1000, "%llu", (unsigned long long)nth);
    esp_gguf_close(gguf);
    finish_writer();
}

ESP_TEST_MAIN(T(test_plain), T(test_accepted), T(test_refused), T(test_failures))
