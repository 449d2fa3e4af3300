/* Opens GGUF files, single or split, and answers questions about their keys and tensors.
 *
 * The first part of a split names how many there are; the others lie beside it under the names
 * PREFIX-00002-of-00005.gguf. Each part must say its own number, and together they must have the announced
 * number of tensors, none of them twice. Thread: any, once open it is read-only.
 * Reading the bytes is gguf_parse.c's, printing gguf_describe.c's.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/gguf_parts.h"

const struct esp_gguf_kv *esp_gguf_part_find(const struct esp_gguf_part *part, const char *key)
{
    uint32_t idx = esp_bytesmap_get(&part->key_map, key, strlen(key));
    return idx == ESP_MAP_NONE ? NULL : &part->kvs[idx];
}

/* The value of a scalar of an integer type. */
static bool integer_at(enum esp_gguf_type type, const uint8_t *data, bool *ret_negative, uint64_t *ret)
{
    int64_t value = 0;
    uint64_t wide = 0;
    switch (type) {
    case ESP_GGUF_BOOL:
    case ESP_GGUF_U8: value = *data; break;
    case ESP_GGUF_I8: value = (int8_t)*data; break;
    case ESP_GGUF_U16: value = (int64_t)data[0] | (int64_t)data[1] << 8; break;
    case ESP_GGUF_I16: value = (int16_t)(uint16_t)(data[0] | data[1] << 8); break;
    case ESP_GGUF_U32:
    case ESP_GGUF_I32: {
        uint32_t u32;
        memcpy(&u32, data, sizeof u32);
        value = type == ESP_GGUF_U32 ? (int64_t)u32 : (int64_t)(int32_t)u32;
        break;
    }
    case ESP_GGUF_U64:
    case ESP_GGUF_I64:
        memcpy(&wide, data, sizeof wide);
        *ret_negative = type == ESP_GGUF_I64 && (int64_t)wide < 0;
        *ret = wide;
        return true;
    default: return false;
    }
    *ret_negative = value < 0;
    *ret = (uint64_t)value;
    return true;
}

static esp_status wrong(const char *key, const char *what, struct esp_err *err)
{
    esp_fail(err, ESP_EINVAL, "%s: %s", key, what);
    esp_err_place(err, "%s", key);
    return ESP_EINVAL;
}

esp_status esp_gguf_part_u32(const struct esp_gguf_part *part, const char *key, uint32_t fallback, uint32_t *ret,
                             struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_part_find(part, key);
    if (kv == NULL) {
        *ret = fallback;
        return ESP_OK;
    }
    bool negative;
    uint64_t value;
    if (kv->type == ESP_GGUF_BOOL || !integer_at(kv->type, kv->data, &negative, &value)) {
        return wrong(key, "must be an integer", err);
    }
    if (negative || value > UINT32_MAX) {
        return wrong(key, "must be between 0 and 4294967295", err);
    }
    *ret = (uint32_t)value;
    return ESP_OK;
}

esp_status esp_gguf_get_u32(const struct esp_gguf *gguf, const char *key, uint32_t fallback, uint32_t *ret,
                            struct esp_err *err)
{
    return esp_gguf_part_u32(&gguf->parts[0], key, fallback, ret, err);
}

static double float_at(enum esp_gguf_type type, const uint8_t *data)
{
    float narrow;
    double wide;
    if (type == ESP_GGUF_F32) {
        memcpy(&narrow, data, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, data, sizeof wide);
    return wide;
}

esp_status esp_gguf_get_f32(const struct esp_gguf *gguf, const char *key, float fallback, float *ret,
                            struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_find(gguf, key);
    if (kv == NULL) {
        *ret = fallback;
        return ESP_OK;
    }
    if (kv->type != ESP_GGUF_F32 && kv->type != ESP_GGUF_F64) {
        return wrong(key, "must be a floating-point number", err);
    }
    double value = float_at(kv->type, kv->data);
    if (isfinite(value) && fabs(value) > 3.4028234663852886e38) {
        return wrong(key, "is out of the range of a 32-bit float", err);
    }
    *ret = (float)value;
    return ESP_OK;
}

esp_status esp_gguf_get_bool(const struct esp_gguf *gguf, const char *key, bool fallback, bool *ret,
                             struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_find(gguf, key);
    if (kv == NULL) {
        *ret = fallback;
        return ESP_OK;
    }
    if (kv->type != ESP_GGUF_BOOL) {
        return wrong(key, "must be a bool", err);
    }
    *ret = kv->data[0] != 0;
    return ESP_OK;
}

esp_status esp_gguf_get_string(const struct esp_gguf *gguf, const char *key, struct esp_gguf_string *ret,
                               struct esp_err *err)
{
    const struct esp_gguf_kv *kv = esp_gguf_find(gguf, key);
    if (kv == NULL) {
        *ret = (struct esp_gguf_string){NULL, 0};
        return ESP_OK;
    }
    if (kv->type != ESP_GGUF_STRING) {
        return wrong(key, "must be a string", err);
    }
    struct esp_gguf_string_iter iter = {kv->data, 1};
    esp_gguf_next_string(&iter, ret);
    return ESP_OK;
}

int64_t esp_gguf_array_int(const struct esp_gguf_kv *kv, uint64_t idx)
{
    bool negative;
    uint64_t value = 0;
    if (!integer_at(kv->item_type, kv->data + idx * esp_gguf_type_bytes(kv->item_type), &negative, &value)) {
        return 0;
    }
    return (int64_t)value;
}

double esp_gguf_array_float(const struct esp_gguf_kv *kv, uint64_t idx)
{
    if (kv->item_type != ESP_GGUF_F32 && kv->item_type != ESP_GGUF_F64) {
        return (double)esp_gguf_array_int(kv, idx);
    }
    return float_at(kv->item_type, kv->data + idx * esp_gguf_type_bytes(kv->item_type));
}

struct esp_gguf_string_iter esp_gguf_strings(const struct esp_gguf_kv *kv)
{
    return (struct esp_gguf_string_iter){kv->data, kv->n};
}

bool esp_gguf_next_string(struct esp_gguf_string_iter *iter, struct esp_gguf_string *ret)
{
    if (iter->left == 0) {
        return false;
    }
    uint64_t n;
    memcpy(&n, iter->at, sizeof n);
    *ret = (struct esp_gguf_string){(const char *)iter->at + sizeof n, (size_t)n};
    iter->at += sizeof n + n;
    iter->left--;
    return true;
}

uint32_t esp_gguf_version(const struct esp_gguf *gguf)
{
    return gguf->parts[0].version;
}

uint32_t esp_gguf_alignment(const struct esp_gguf *gguf)
{
    return gguf->parts[0].alignment;
}

uint32_t esp_gguf_n_files(const struct esp_gguf *gguf)
{
    return gguf->n_parts;
}

size_t esp_gguf_n_kv(const struct esp_gguf *gguf)
{
    return gguf->parts[0].n_kvs;
}

const struct esp_gguf_kv *esp_gguf_kv_at(const struct esp_gguf *gguf, size_t idx)
{
    return idx < gguf->parts[0].n_kvs ? &gguf->parts[0].kvs[idx] : NULL;
}

const struct esp_gguf_kv *esp_gguf_find(const struct esp_gguf *gguf, const char *key)
{
    return esp_gguf_part_find(&gguf->parts[0], key);
}

size_t esp_gguf_n_tensors(const struct esp_gguf *gguf)
{
    return gguf->n_tensors;
}

const struct esp_gguf_tensor *esp_gguf_tensor_at(const struct esp_gguf *gguf, size_t idx)
{
    return idx < gguf->n_tensors ? &gguf->tensors[idx] : NULL;
}

const struct esp_gguf_tensor *esp_gguf_tensor(const struct esp_gguf *gguf, const char *name)
{
    uint32_t idx = esp_bytesmap_get(&gguf->tensor_map, name, strlen(name));
    return idx == ESP_MAP_NONE ? NULL : &gguf->tensors[idx];
}

void esp_gguf_forget(const struct esp_gguf *gguf, const struct esp_gguf_tensor *tensor, size_t n_bytes)
{
    const struct esp_file *file = &gguf->parts[tensor->file_idx].file;
    assert(n_bytes <= tensor->n_bytes);
    if (n_bytes > 0) {
        esp_file_forget(file, (size_t)(tensor->data - file->data), n_bytes);
    }
}

/* The length of PREFIX when path is PREFIX-00001-of-COUNT.gguf. */
static bool split_prefix(const char *path, uint32_t count, size_t *ret_n_bytes)
{
    char suffix[64];
    snprintf(suffix, sizeof suffix, "-00001-of-%05u.gguf", count);
    size_t n = strlen(path), n_suffix = strlen(suffix);
    if (n < n_suffix || strcmp(path + n - n_suffix, suffix) != 0) {
        return false;
    }
    *ret_n_bytes = n - n_suffix;
    return true;
}

static esp_status check_part(const struct esp_gguf_part *part, uint32_t no, uint32_t count, const char *path,
                             struct esp_err *err)
{
    uint32_t own_no, own_count;
    esp_status status = esp_gguf_part_u32(part, "split.no", UINT32_MAX, &own_no, err);
    if (status == ESP_OK) {
        status = esp_gguf_part_u32(part, "split.count", UINT32_MAX, &own_count, err);
    }
    if (status != ESP_OK) {
        return status;
    }
    if (own_no != no || own_count != count) {
        esp_fail(err, ESP_EINVAL, "%s: is not part %u of %u of the split model", path, no + 1, count);
        esp_err_place(err, "split.no");
        return ESP_EINVAL;
    }
    return ESP_OK;
}

static esp_status open_parts(struct esp_gguf *gguf, const char *path, uint32_t count, struct esp_err *err)
{
    size_t n_prefix;
    if (!split_prefix(path, count, &n_prefix)) {
        esp_fail(err, ESP_EINVAL, "%s: the first of %u parts must be named PREFIX-00001-of-%05u.gguf", path, count,
                 count);
        esp_err_place(err, "split.count");
        return ESP_EINVAL;
    }
    struct esp_gguf_part *parts = esp_realloc(ESP_TAG_MISC, gguf->parts, count * sizeof *parts);
    size_t room = n_prefix + 64;
    char *other = esp_malloc(ESP_TAG_MISC, room);
    if (parts != NULL) {
        gguf->parts = parts;
    }
    esp_status status = ESP_OK;
    if (parts == NULL || other == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "%s: out of memory for its parts", path);
    }
    for (uint32_t no = 1; status == ESP_OK && no < count; no++) {
        snprintf(other, room, "%.*s-%05u-of-%05u.gguf", (int)n_prefix, path, no + 1, count);
        gguf->parts[no] = (struct esp_gguf_part){0};
        gguf->n_parts = no + 1;
        status = esp_gguf_parse(gguf, no, other, err);
        if (status == ESP_OK) {
            status = check_part(&gguf->parts[no], no, count, other, err);
        }
    }
    esp_free(other);
    return status;
}

static esp_status open_split(struct esp_gguf *gguf, const char *path, struct esp_err *err)
{
    uint32_t no, count, n_tensors;
    esp_status status = esp_gguf_get_u32(gguf, "split.no", 0, &no, err);
    if (status == ESP_OK) {
        status = esp_gguf_get_u32(gguf, "split.count", 1, &count, err);
    }
    if (status == ESP_OK) {
        status = esp_gguf_get_u32(gguf, "split.tensors.count", UINT32_MAX, &n_tensors, err);
    }
    if (status != ESP_OK) {
        return status;
    }
    if (no != 0) {
        esp_fail(err, ESP_EINVAL, "%s: is part %llu of a split model; open the first part", path, no + 1ull);
        esp_err_place(err, "split.no");
        return ESP_EINVAL;
    }
    if (count > ESP_GGUF_FILES_MAX) {
        esp_fail(err, ESP_ELIMIT, "%s: %u parts, more than %u", path, count, ESP_GGUF_FILES_MAX);
        esp_err_place(err, "split.count");
        return ESP_ELIMIT;
    }
    if (count > 1) {
        status = open_parts(gguf, path, count, err);
    }
    if (status == ESP_OK && n_tensors != UINT32_MAX && n_tensors != gguf->n_tensors) {
        esp_fail(err, ESP_EINVAL, "%s: its parts have %zu tensors, announced are %u", path, gguf->n_tensors, n_tensors);
        esp_err_place(err, "split.tensors.count");
        return ESP_EINVAL;
    }
    return status;
}

esp_status esp_gguf_open(const char *path, struct esp_gguf **ret_gguf, struct esp_err *err)
{
    struct esp_gguf *gguf = esp_calloc(ESP_TAG_MISC, 1, sizeof *gguf);
    if (gguf != NULL) {
        gguf->parts = esp_calloc(ESP_TAG_MISC, 1, sizeof *gguf->parts);
        esp_bytesmap_init(&gguf->tensor_map, ESP_TAG_MISC);
    }
    esp_status status = ESP_OK;
    if (gguf == NULL || gguf->parts == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "%s: out of memory", path);
    } else {
        gguf->n_parts = 1;
        status = esp_gguf_parse(gguf, 0, path, err);
    }
    if (status == ESP_OK) {
        status = open_split(gguf, path, err);
    }
    if (status != ESP_OK) {
        esp_gguf_close(gguf);
        return status;
    }
    *ret_gguf = gguf;
    return ESP_OK;
}

void esp_gguf_close(struct esp_gguf *gguf)
{
    if (gguf == NULL) {
        return;
    }
    for (uint32_t idx = 0; idx < gguf->n_parts; idx++) {
        struct esp_gguf_part *part = &gguf->parts[idx];
        esp_bytesmap_finish(&part->key_map);
        esp_free(part->kvs);
        esp_file_unmap(&part->file);
    }
    esp_bytesmap_finish(&gguf->tensor_map);
    esp_free(gguf->tensors);
    esp_free(gguf->parts);
    esp_free(gguf);
}
