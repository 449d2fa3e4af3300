/* What a GGUF file is inside, for the files gguf*.c only.
 *
 * A part is one mapped file. The keys of the first part are the model's keys; the tensors of all parts
 * stand in one table. Keys and names point into the mapping and live as long as it does.
 * Thread: the loader's while it is built, then read-only.
 */
#ifndef ESP_RUNTIME_GGUF_PARTS_H
#define ESP_RUNTIME_GGUF_PARTS_H

#include "runtime/base/file.h"
#include "runtime/base/map.h"
#include "runtime/gguf.h"

#define ESP_GGUF_KEYS_MAX 65536u
#define ESP_GGUF_TENSORS_MAX (1u << 20)
#define ESP_GGUF_KEY_BYTES_MAX 65535u
#define ESP_GGUF_NAME_BYTES_MAX 63u
#define ESP_GGUF_VALUE_MAX (1u << 30) /* bytes of a string, items of an array */
#define ESP_GGUF_ALIGNMENT_MIN 8u
#define ESP_GGUF_ALIGNMENT_MAX 65536u
#define ESP_GGUF_FILES_MAX 1024u

struct esp_gguf_part {
    struct esp_file file;
    uint32_t version, alignment;
    size_t data_at; /* start of the data section */
    struct esp_gguf_kv *kvs;
    size_t n_kvs, kvs_room;
    struct esp_bytesmap key_map; /* key → index into kvs */
};

struct esp_gguf {
    struct esp_gguf_part *parts; /* [n_parts], parts[0] is the one that was opened */
    uint32_t n_parts;
    struct esp_gguf_tensor *tensors;
    size_t n_tensors, tensors_room;
    struct esp_bytesmap tensor_map; /* name → index into tensors */
};

/* Maps and checks one file as part idx of gguf, and adds its tensors to the table. */
esp_status esp_gguf_parse(struct esp_gguf *gguf, uint32_t part_idx, const char *path, struct esp_err *err);
const struct esp_gguf_kv *esp_gguf_part_find(const struct esp_gguf_part *part, const char *key);
/* An unsigned integer of any width, as esp_gguf_get_u32, of one part. */
esp_status esp_gguf_part_u32(const struct esp_gguf_part *part, const char *key, uint32_t fallback, uint32_t *ret,
                             struct esp_err *err);
size_t esp_gguf_type_bytes(enum esp_gguf_type type); /* 0 for strings and arrays */
const char *esp_gguf_type_name(enum esp_gguf_type type);

#endif
