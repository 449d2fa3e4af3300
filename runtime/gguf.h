/* GGUF files: header, metadata and tensor table, checked completely before anything is believed.
 *
 *   "GGUF" version n_tensors n_kv │ key-values │ tensor infos │ padding │ tensor data
 *
 * Versions 2 and 3, little-endian. Every count, length, offset and size is checked against the bytes that
 * are left, with overflow-checked arithmetic, so a hostile file gives an error with an offset and
 * nothing else. Split files: the first one names the others; all are opened here and their tensors
 * appear as one table. Tensor data stays mapped; the loader copies what it packs and then forgets it.
 * Source: the GGUF specification (docs/gguf.md in ggml). Thread: any, once open it is read-only.
 */
#ifndef ESP_RUNTIME_GGUF_H
#define ESP_RUNTIME_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

enum esp_gguf_type {
    ESP_GGUF_U8, ESP_GGUF_I8, ESP_GGUF_U16, ESP_GGUF_I16, ESP_GGUF_U32, ESP_GGUF_I32, ESP_GGUF_F32,
    ESP_GGUF_BOOL, ESP_GGUF_STRING, ESP_GGUF_ARRAY, ESP_GGUF_U64, ESP_GGUF_I64, ESP_GGUF_F64,
    ESP_GGUF_TYPES
};

struct esp_gguf_string {
    const char *data; /* not NUL-terminated; may hold any byte */
    size_t n_bytes;
};

struct esp_gguf_kv {
    struct esp_gguf_string key;
    enum esp_gguf_type type;      /* of the value; ESP_GGUF_ARRAY for arrays */
    enum esp_gguf_type item_type; /* arrays: of the items, never ARRAY */
    uint64_t n;                   /* arrays: items; else 1 */
    const uint8_t *data;          /* first byte of the value or of the first item, unaligned */
    size_t n_bytes;
};

struct esp_gguf_tensor {
    struct esp_gguf_string name;
    uint32_t type; /* as in the file; esp_type_info(type) is not NULL */
    uint32_t n_dims;
    uint64_t dims[4];   /* innermost first; 1 beyond n_dims */
    uint64_t offset;    /* from the start of its file's data section */
    const uint8_t *data;
    size_t n_bytes;
    uint32_t file_idx;  /* which part of a split */
};

struct esp_gguf;
esp_status esp_gguf_open(const char *path, struct esp_gguf **ret_gguf, struct esp_err *err);
void esp_gguf_close(struct esp_gguf *gguf); /* NULL is fine */

uint32_t esp_gguf_version(const struct esp_gguf *gguf);
uint32_t esp_gguf_alignment(const struct esp_gguf *gguf);
uint32_t esp_gguf_n_files(const struct esp_gguf *gguf);
size_t esp_gguf_n_kv(const struct esp_gguf *gguf);
const struct esp_gguf_kv *esp_gguf_kv_at(const struct esp_gguf *gguf, size_t idx);
const struct esp_gguf_kv *esp_gguf_find(const struct esp_gguf *gguf, const char *key); /* NULL if absent */
size_t esp_gguf_n_tensors(const struct esp_gguf *gguf);
const struct esp_gguf_tensor *esp_gguf_tensor_at(const struct esp_gguf *gguf, size_t idx);
const struct esp_gguf_tensor *esp_gguf_tensor(const struct esp_gguf *gguf, const char *name); /* NULL if absent */
/* Gives the mapped pages of the first n_bytes of the tensor's data back to the system. */
void esp_gguf_forget(const struct esp_gguf *gguf, const struct esp_gguf_tensor *tensor, size_t n_bytes);

/* Typed reads. Integers of any width that fit are taken. Absent: *ret = fallback; a wrong type or a value
 * out of range is ESP_EINVAL with the key in err->place. */
esp_status esp_gguf_get_u32(const struct esp_gguf *gguf, const char *key, uint32_t fallback, uint32_t *ret,
                            struct esp_err *err);
esp_status esp_gguf_get_f32(const struct esp_gguf *gguf, const char *key, float fallback, float *ret,
                            struct esp_err *err);
esp_status esp_gguf_get_bool(const struct esp_gguf *gguf, const char *key, bool fallback, bool *ret,
                             struct esp_err *err);
/* Absent: {NULL, 0}. */
esp_status esp_gguf_get_string(const struct esp_gguf *gguf, const char *key, struct esp_gguf_string *ret,
                               struct esp_err *err);

/* Item idx of an array (idx < kv->n). The caller has checked item_type. String items need a walk from the
 * front: use the iterator. */
int64_t esp_gguf_array_int(const struct esp_gguf_kv *kv, uint64_t idx); /* any integer item type, bool too */
double esp_gguf_array_float(const struct esp_gguf_kv *kv, uint64_t idx);
struct esp_gguf_string_iter {
    const uint8_t *at;
    uint64_t left;
};
struct esp_gguf_string_iter esp_gguf_strings(const struct esp_gguf_kv *kv);
bool esp_gguf_next_string(struct esp_gguf_string_iter *iter, struct esp_gguf_string *ret);

/* The file as text for people, or as the JSON of `inspect --json` (full: long arrays whole). Always valid
 * UTF-8: other bytes become U+FFFD. warnings: lines that the caller has to say about it, or "". */
struct esp_buf;
esp_status esp_gguf_describe(const struct esp_gguf *gguf, const char *warnings, bool json, bool full,
                             struct esp_buf *buf);

#endif
