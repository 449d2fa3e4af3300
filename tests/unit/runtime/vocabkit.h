/* Small vocabularies for tests: GGUF files written to a temporary file and opened by the real reader.
 *
 *   kit_bpe: ids 0 … 255 are the bytes, then the extra tokens       merges as given, pre "gpt-2" unless set before
 *   kit_spm: <unk> <s> </s>, ids 3 … 258 are <0x00> … <0xFF>, then the extra tokens with their scores
 *   kit_wpm: [PAD] [UNK] [CLS] [SEP], then the extra tokens
 */
#ifndef ESP_TESTS_VOCABKIT_H
#define ESP_TESTS_VOCABKIT_H

#include "runtime/base/buf.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer.h"
#include "runtime/tokenizer_impl.h"
#include "tests/esptest.h"

#define KIT_KEY(name) "tokenizer.ggml." name

struct kit {
    struct esp_buf kvs;
    uint64_t n_kvs;
};
struct kit_token {
    const char *text;
    int type;
    float score;
};

static inline void kit_init(struct kit *kit)
{
    esp_buf_init(&kit->kvs, ESP_TAG_MISC, 1 << 26);
    kit->n_kvs = 0;
}

static inline void kit_u64(struct kit *kit, uint64_t value, size_t n_bytes)
{
    esp_buf_add(&kit->kvs, &value, n_bytes);
}

static inline void kit_text(struct kit *kit, const char *text, size_t n_bytes)
{
    kit_u64(kit, n_bytes, 8);
    esp_buf_add(&kit->kvs, text, n_bytes);
}

static inline void kit_key(struct kit *kit, const char *key, uint32_t type)
{
    kit_text(kit, key, strlen(key));
    kit_u64(kit, type, 4);
    kit->n_kvs++;
}

static inline void kit_str(struct kit *kit, const char *key, const char *value)
{
    kit_key(kit, key, ESP_GGUF_STRING);
    kit_text(kit, value, strlen(value));
}

static inline void kit_u32(struct kit *kit, const char *key, uint32_t value)
{
    kit_key(kit, key, ESP_GGUF_U32);
    kit_u64(kit, value, 4);
}

static inline void kit_bool(struct kit *kit, const char *key, bool value)
{
    kit_key(kit, key, ESP_GGUF_BOOL);
    kit_u64(kit, value, 1);
}

static inline void kit_array(struct kit *kit, const char *key, uint32_t item_type, uint64_t n)
{
    kit_key(kit, key, ESP_GGUF_ARRAY);
    kit_u64(kit, item_type, 4);
    kit_u64(kit, n, 8);
}

static inline void kit_strings(struct kit *kit, const char *key, const char *const *texts, size_t n)
{
    kit_array(kit, key, ESP_GGUF_STRING, n);
    for (size_t idx = 0; idx < n; idx++) {
        kit_text(kit, texts[idx], strlen(texts[idx]));
    }
}

static inline void kit_types(struct kit *kit, int n_front, const int *front, size_t n_same, int same,
                             const struct kit_token *extra, size_t n_extra)
{
    kit_array(kit, KIT_KEY("token_type"), ESP_GGUF_I32, (size_t)n_front + n_same + n_extra);
    for (int idx = 0; idx < n_front; idx++) {
        kit_u64(kit, (uint64_t)front[idx], 4);
    }
    for (size_t idx = 0; idx < n_same; idx++) {
        kit_u64(kit, (uint64_t)same, 4);
    }
    for (size_t idx = 0; idx < n_extra; idx++) {
        kit_u64(kit, (uint64_t)extra[idx].type, 4);
    }
}

static inline void kit_bpe(struct kit *kit, const char *pre, const struct kit_token *extra, size_t n_extra,
                           const char *const *merges, size_t n_merges)
{
    kit_str(kit, KIT_KEY("model"), "gpt2");
    kit_str(kit, KIT_KEY("pre"), pre);
    kit_array(kit, KIT_KEY("tokens"), ESP_GGUF_STRING, 256 + n_extra);
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[4];
        kit_text(kit, text, (size_t)esp_utf8_encode(esp_alphabet_char((uint8_t)byte), text));
    }
    for (size_t idx = 0; idx < n_extra; idx++) {
        kit_text(kit, extra[idx].text, strlen(extra[idx].text));
    }
    kit_types(kit, 0, NULL, 256, ESP_TOKEN_NORMAL, extra, n_extra);
    kit_strings(kit, KIT_KEY("merges"), merges, n_merges);
}

static inline void kit_spm(struct kit *kit, const struct kit_token *extra, size_t n_extra)
{
    static const int front[] = {ESP_TOKEN_UNKNOWN, ESP_TOKEN_CONTROL, ESP_TOKEN_CONTROL};
    static const char *const texts[] = {"<unk>", "<s>", "</s>"};
    kit_str(kit, KIT_KEY("model"), "llama");
    kit_array(kit, KIT_KEY("tokens"), ESP_GGUF_STRING, 259 + n_extra);
    for (size_t idx = 0; idx < 3; idx++) {
        kit_text(kit, texts[idx], strlen(texts[idx]));
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        kit_text(kit, text, 6);
    }
    for (size_t idx = 0; idx < n_extra; idx++) {
        kit_text(kit, extra[idx].text, strlen(extra[idx].text));
    }
    kit_types(kit, 3, front, 256, ESP_TOKEN_BYTE, extra, n_extra);
    kit_array(kit, KIT_KEY("scores"), ESP_GGUF_F32, 259 + n_extra);
    for (size_t idx = 0; idx < 259 + n_extra; idx++) {
        float score = idx < 259 ? 0 : extra[idx - 259].score;
        esp_buf_add(&kit->kvs, &score, sizeof score);
    }
}

static inline void kit_wpm(struct kit *kit, const struct kit_token *extra, size_t n_extra)
{
    static const int front[] = {ESP_TOKEN_CONTROL, ESP_TOKEN_UNKNOWN, ESP_TOKEN_CONTROL, ESP_TOKEN_CONTROL};
    static const char *const texts[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
    kit_str(kit, KIT_KEY("model"), "bert");
    kit_array(kit, KIT_KEY("tokens"), ESP_GGUF_STRING, 4 + n_extra);
    for (size_t idx = 0; idx < 4 + n_extra; idx++) {
        const char *text = idx < 4 ? texts[idx] : extra[idx - 4].text;
        kit_text(kit, text, strlen(text));
    }
    kit_types(kit, 4, front, 0, 0, extra, n_extra);
    kit_u32(kit, KIT_KEY("unknown_token_id"), 1);
    kit_u32(kit, KIT_KEY("cls_token_id"), 2);
}

/* Writes the file with these metadata bytes, opens it, deletes it. */
static inline esp_status kit_open_gguf(const struct kit *kit, struct esp_gguf **ret_gguf, struct esp_err *err)
{
    char path[] = "/tmp/esp-vocab-XXXXXX";
    int fd = mkstemp(path);
    uint64_t counts[2] = {0, kit->n_kvs};
    uint32_t version = 3;
    bool ok = fd >= 0 && write(fd, "GGUF", 4) == 4 && write(fd, &version, 4) == 4 && write(fd, counts, 16) == 16 &&
              write(fd, kit->kvs.data, kit->kvs.n) == (ssize_t)kit->kvs.n;
    if (fd >= 0) {
        close(fd);
    }
    esp_status status = ok ? esp_gguf_open(path, ret_gguf, err) : esp_fail(err, ESP_EIO, "cannot write %s", path);
    unlink(path);
    return status;
}

static inline esp_status kit_open(const struct kit *kit, struct esp_tokenizer **ret_tok, struct esp_err *err)
{
    struct esp_gguf *gguf = NULL;
    esp_status status = kit_open_gguf(kit, &gguf, err);
    if (status == ESP_OK) {
        status = esp_tokenizer_create(gguf, ret_tok, err);
    }
    esp_gguf_close(gguf);
    return status;
}

/* Opens and finishes the kit; NULL and a failed check when it does not open. */
static inline struct esp_tokenizer *kit_make(struct kit *kit)
{
    struct esp_tokenizer *tok = NULL;
    struct esp_err err = {0};
    CHECK(kit_open(kit, &tok, &err) == ESP_OK, "%s", err.message);
    esp_buf_finish(&kit->kvs);
    return tok;
}

/* The ids of a text as "1 2 3"; "EINVAL" and so on for an error. Good until the next call but seven. */
static inline const char *kit_ids_of_spans(const struct esp_tokenizer *tok, const struct esp_span *spans, size_t n)
{
    static char texts[8][4096];
    static int next;
    char *out = texts[next++ % 8], *at = out;
    struct esp_buf ids;
    esp_buf_init(&ids, ESP_TAG_MISC, 1 << 20);
    esp_status status = esp_tokenizer_encode(tok, spans, n, &ids, NULL);
    *at = '\0';
    if (status != ESP_OK) {
        snprintf(out, sizeof texts[0], "%s", esp_status_name(status));
    }
    const uint32_t *values = (const void *)ids.data;
    for (size_t idx = 0; status == ESP_OK && idx < ids.n / 4 && at < out + sizeof texts[0] - 16; idx++) {
        at += snprintf(at, 16, idx == 0 ? "%u" : " %u", values[idx]);
    }
    esp_buf_finish(&ids);
    return out;
}

static inline const char *kit_ids(const struct esp_tokenizer *tok, const char *text, bool control)
{
    struct esp_span span = {text, strlen(text), control};
    return kit_ids_of_spans(tok, &span, 1);
}

#endif
