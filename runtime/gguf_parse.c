/* Reads one GGUF file: header, keys, tensor infos, and the bounds of the data.
 *
 * Nothing is believed before it is checked: each length is compared with the bytes that are left, sizes
 * are multiplied with overflow checks, and tables grow with what was really read, so a count in a header
 * alone never allocates. Errors carry the offset of the field. No recursion: arrays of arrays are refused.
 * Thread: the loader's. Does not know what any key means, except general.alignment.
 */
#include <assert.h>
#include <string.h>

#include "kernels/types.h"
#include "runtime/gguf_parts.h"

struct reader {
    const uint8_t *data;
    size_t n_bytes, at;
    const char *path;
    struct esp_err *err;
};

static size_t left(const struct reader *r)
{
    return r->n_bytes - r->at;
}

static esp_status bad(struct reader *r, size_t offset, const char *what)
{
    esp_fail(r->err, ESP_EINVAL, "%s: %s (offset %zu)", r->path, what, offset);
    if (r->err != NULL) {
        r->err->offset = offset;
    }
    return ESP_EINVAL;
}

/* Names from a file may hold any byte: what is not plain text is shown as '?'. */
static esp_status bad_named(struct reader *r, size_t offset, const struct esp_gguf_string *name, const char *what)
{
    char shown[96];
    size_t n = name->n_bytes < sizeof shown - 1 ? name->n_bytes : sizeof shown - 1;
    for (size_t idx = 0; idx < n; idx++) {
        char c = name->data[idx];
        shown[idx] = c >= 0x20 && c < 0x7f ? c : '?';
    }
    shown[n] = '\0';
    esp_fail(r->err, ESP_EINVAL, "%s: %s: %s (offset %zu)", r->path, shown, what, offset);
    esp_err_place(r->err, "%s", shown);
    if (r->err != NULL) {
        r->err->offset = offset;
    }
    return ESP_EINVAL;
}

static esp_status read_u32(struct reader *r, uint32_t *ret, const char *what)
{
    if (left(r) < sizeof *ret) {
        return bad(r, r->at, what);
    }
    memcpy(ret, r->data + r->at, sizeof *ret);
    r->at += sizeof *ret;
    return ESP_OK;
}

static esp_status read_u64(struct reader *r, uint64_t *ret, const char *what)
{
    if (left(r) < sizeof *ret) {
        return bad(r, r->at, what);
    }
    memcpy(ret, r->data + r->at, sizeof *ret);
    r->at += sizeof *ret;
    return ESP_OK;
}

static esp_status read_string(struct reader *r, uint64_t bytes_max, struct esp_gguf_string *ret)
{
    size_t at = r->at;
    uint64_t n;
    esp_status status = read_u64(r, &n, "the file ends inside the length of a string");
    if (status != ESP_OK) {
        return status;
    }
    if (n > bytes_max) {
        return bad(r, at, "a string is longer than allowed");
    }
    if (n > left(r)) {
        return bad(r, at, "a string is longer than the rest of the file");
    }
    *ret = (struct esp_gguf_string){(const char *)r->data + r->at, (size_t)n};
    r->at += (size_t)n;
    return ESP_OK;
}

size_t esp_gguf_type_bytes(enum esp_gguf_type type)
{
    static const uint8_t bytes[ESP_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return bytes[type];
}

const char *esp_gguf_type_name(enum esp_gguf_type type)
{
    static const char *const names[ESP_GGUF_TYPES] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                      "bool", "string", "array", "u64", "i64", "f64"};
    return names[type];
}

/* The items of a value, n of them of one type, from r->at on. */
static esp_status read_items(struct reader *r, struct esp_gguf_kv *kv, enum esp_gguf_type type, uint64_t n)
{
    size_t start = r->at;
    if (type == ESP_GGUF_STRING) {
        for (uint64_t idx = 0; idx < n; idx++) {
            size_t at = r->at;
            struct esp_gguf_string item;
            if (read_string(r, ESP_GGUF_VALUE_MAX, &item) != ESP_OK) {
                return bad_named(r, at, &kv->key, "a string is longer than the rest of the file");
            }
        }
    } else {
        size_t n_bytes;
        if (__builtin_mul_overflow(n, esp_gguf_type_bytes(type), &n_bytes) || n_bytes > left(r)) {
            return bad_named(r, start, &kv->key, "the value is longer than the rest of the file");
        }
        r->at += n_bytes;
        for (size_t idx = 0; type == ESP_GGUF_BOOL && idx < n_bytes; idx++) {
            if (r->data[start + idx] > 1) {
                return bad_named(r, start + idx, &kv->key, "a bool that is neither 0 nor 1");
            }
        }
    }
    kv->n = n;
    kv->data = r->data + start;
    kv->n_bytes = r->at - start;
    return ESP_OK;
}

static esp_status read_array(struct reader *r, struct esp_gguf_kv *kv)
{
    size_t at = r->at;
    uint32_t type;
    uint64_t n;
    esp_status status = read_u32(r, &type, "the file ends inside an array");
    if (status == ESP_OK) {
        status = read_u64(r, &n, "the file ends inside an array");
    }
    if (status != ESP_OK) {
        return status;
    }
    if (type == ESP_GGUF_ARRAY) {
        return bad_named(r, at, &kv->key, "arrays of arrays are not allowed");
    }
    if (type >= ESP_GGUF_TYPES) {
        return bad_named(r, at, &kv->key, "unknown type of array items");
    }
    if (n > ESP_GGUF_VALUE_MAX) {
        return bad_named(r, at + 4, &kv->key, "an array has more than 2^30 items");
    }
    kv->item_type = (enum esp_gguf_type)type;
    return read_items(r, kv, kv->item_type, n);
}

static esp_status read_kv(struct reader *r, struct esp_gguf_kv *kv)
{
    size_t at = r->at;
    uint32_t type;
    esp_status status = read_string(r, ESP_GGUF_KEY_BYTES_MAX, &kv->key);
    if (status != ESP_OK) {
        return status;
    }
    if (kv->key.n_bytes == 0) {
        return bad(r, at, "an empty key");
    }
    size_t type_at = r->at;
    status = read_u32(r, &type, "the file ends inside a key");
    if (status != ESP_OK) {
        return status;
    }
    if (type >= ESP_GGUF_TYPES) {
        return bad_named(r, type_at, &kv->key, "unknown type of value");
    }
    kv->type = kv->item_type = (enum esp_gguf_type)type;
    return kv->type == ESP_GGUF_ARRAY ? read_array(r, kv) : read_items(r, kv, kv->type, 1);
}

/* Makes room for one more item of a table by doubling, so that memory follows what was read. */
static esp_status grow(void **items, size_t n, size_t *room, size_t item_bytes, struct reader *r)
{
    if (n < *room) {
        return ESP_OK;
    }
    size_t more = *room == 0 ? 16 : 2 * *room;
    void *bigger = esp_realloc(ESP_TAG_MISC, *items, more * item_bytes);
    if (bigger == NULL) {
        return esp_fail(r->err, ESP_ENOMEM, "%s: out of memory for its table of contents", r->path);
    }
    *items = bigger;
    *room = more;
    return ESP_OK;
}

static esp_status read_kvs(struct reader *r, struct esp_gguf_part *part, uint64_t n)
{
    for (uint64_t idx = 0; idx < n; idx++) {
        size_t at = r->at;
        void *kvs = part->kvs;
        esp_status status = grow(&kvs, part->n_kvs, &part->kvs_room, sizeof *part->kvs, r);
        part->kvs = kvs;
        if (status != ESP_OK) {
            return status;
        }
        struct esp_gguf_kv kv = {0};
        status = read_kv(r, &kv);
        if (status != ESP_OK) {
            return status;
        }
        if (esp_bytesmap_get(&part->key_map, kv.key.data, kv.key.n_bytes) != ESP_MAP_NONE) {
            return bad_named(r, at, &kv.key, "the same key twice");
        }
        status = esp_bytesmap_put(&part->key_map, kv.key.data, kv.key.n_bytes, (uint32_t)part->n_kvs);
        if (status != ESP_OK) {
            return esp_fail(r->err, status, "%s: out of memory for its keys", r->path);
        }
        part->kvs[part->n_kvs++] = kv;
    }
    return ESP_OK;
}

/* The dims of a tensor, and their product; 1 beyond n_dims. */
static esp_status read_dims(struct reader *r, struct esp_gguf_tensor *t, uint64_t *ret_n_values)
{
    size_t at = r->at;
    esp_status status = read_u32(r, &t->n_dims, "the file ends inside a tensor info");
    if (status != ESP_OK) {
        return status;
    }
    if (t->n_dims == 0 || t->n_dims > 4) {
        return bad_named(r, at, &t->name, "a tensor must have 1 to 4 dimensions");
    }
    uint64_t n_values = 1;
    for (uint32_t d = 0; d < 4; d++) {
        t->dims[d] = 1;
        status = d < t->n_dims ? read_u64(r, &t->dims[d], "the file ends inside a tensor info") : ESP_OK;
        if (status != ESP_OK) {
            return status;
        }
        if (t->dims[d] > INT64_MAX || __builtin_mul_overflow(n_values, t->dims[d], &n_values)) {
            return bad_named(r, at, &t->name, "the number of elements overflows");
        }
    }
    *ret_n_values = n_values;
    return ESP_OK;
}

/* Checks the type and computes the size in bytes. */
static esp_status measure(struct reader *r, struct esp_gguf_tensor *t, uint64_t n_values, size_t type_at)
{
    const struct esp_type_info *info = esp_type_info(t->type);
    uint64_t n_bytes;
    if (info == NULL) {
        return bad_named(r, type_at, &t->name, "unknown or removed tensor type");
    }
    if (t->dims[0] % info->block != 0) {
        return bad_named(r, type_at, &t->name, "a row is no whole number of blocks");
    }
    if (__builtin_mul_overflow(n_values / info->block, (uint64_t)info->bytes, &n_bytes) || n_bytes > INT64_MAX) {
        return bad_named(r, type_at, &t->name, "the size in bytes overflows");
    }
    t->n_bytes = (size_t)n_bytes;
    return ESP_OK;
}

static esp_status read_tensor(struct reader *r, struct esp_gguf_tensor *t)
{
    uint64_t n_values = 0;
    esp_status status = read_string(r, ESP_GGUF_NAME_BYTES_MAX, &t->name);
    if (status == ESP_OK) {
        status = read_dims(r, t, &n_values);
    }
    size_t type_at = r->at;
    if (status == ESP_OK) {
        status = read_u32(r, &t->type, "the file ends inside a tensor info");
    }
    if (status == ESP_OK) {
        status = read_u64(r, &t->offset, "the file ends inside a tensor info");
    }
    return status == ESP_OK ? measure(r, t, n_values, type_at) : status;
}

static esp_status read_tensors(struct reader *r, struct esp_gguf *gguf, uint32_t part_idx, uint64_t n)
{
    for (uint64_t idx = 0; idx < n; idx++) {
        size_t at = r->at;
        void *tensors = gguf->tensors;
        esp_status status = grow(&tensors, gguf->n_tensors, &gguf->tensors_room, sizeof *gguf->tensors, r);
        gguf->tensors = tensors;
        if (status != ESP_OK) {
            return status;
        }
        struct esp_gguf_tensor t = {.file_idx = part_idx};
        status = read_tensor(r, &t);
        if (status != ESP_OK) {
            return status;
        }
        if (esp_bytesmap_get(&gguf->tensor_map, t.name.data, t.name.n_bytes) != ESP_MAP_NONE) {
            return bad_named(r, at, &t.name, "the same tensor name twice");
        }
        status = esp_bytesmap_put(&gguf->tensor_map, t.name.data, t.name.n_bytes, (uint32_t)gguf->n_tensors);
        if (status != ESP_OK) {
            return esp_fail(r->err, status, "%s: out of memory for its tensor names", r->path);
        }
        if (gguf->n_tensors == ESP_GGUF_TENSORS_MAX) {
            return bad_named(r, at, &t.name, "too many tensors in all parts");
        }
        gguf->tensors[gguf->n_tensors++] = t;
    }
    return ESP_OK;
}

/* Tensors stand one after the other, each padded to the alignment, without gaps; the last one need not be
 * padded, and bytes after it are ignored. */
static esp_status place_data(struct reader *r, struct esp_gguf_part *part, struct esp_gguf_tensor *tensors, size_t n)
{
    uint64_t align = part->alignment;
    uint64_t start = (r->at + align - 1) / align * align;
    if (n > 0 && start > r->n_bytes) {
        return bad(r, r->at, "the data section starts past the end of the file");
    }
    part->data_at = start < r->n_bytes ? (size_t)start : r->n_bytes;
    uint64_t next = 0;
    for (size_t idx = 0; idx < n; idx++) {
        struct esp_gguf_tensor *t = &tensors[idx];
        size_t info_at = (size_t)((const uint8_t *)t->name.data - r->data) - sizeof(uint64_t);
        if (t->offset != next) {
            return bad_named(r, info_at, &t->name, "the offset is not the padded end of the tensor before");
        }
        uint64_t end;
        if (__builtin_add_overflow(start + t->offset, (uint64_t)t->n_bytes, &end) || end > r->n_bytes) {
            return bad_named(r, info_at, &t->name, "the data end past the end of the file");
        }
        t->data = r->data + start + t->offset;
        next = (t->offset + t->n_bytes + align - 1) / align * align;
    }
    return ESP_OK;
}

static esp_status read_header(struct reader *r, struct esp_gguf_part *part, uint64_t *ret_n_tensors,
                              uint64_t *ret_n_kvs)
{
    if (left(r) < 4 || memcmp(r->data, "GGUF", 4) != 0) {
        return bad(r, 0, "not a GGUF file");
    }
    r->at = 4;
    esp_status status = read_u32(r, &part->version, "the file ends inside its header");
    if (status != ESP_OK) {
        return status;
    }
    if ((part->version & 0xffff) == 0 && part->version != 0) {
        return bad(r, 4, "a big-endian file");
    }
    if (part->version != 2 && part->version != 3) {
        return bad(r, 4, "only versions 2 and 3 are supported");
    }
    status = read_u64(r, ret_n_tensors, "the file ends inside its header");
    if (status == ESP_OK) {
        status = read_u64(r, ret_n_kvs, "the file ends inside its header");
    }
    if (status == ESP_OK && (*ret_n_tensors > ESP_GGUF_TENSORS_MAX || *ret_n_tensors > left(r) / 24)) {
        return bad(r, 8, "more tensors announced than the file can hold");
    }
    if (status == ESP_OK && (*ret_n_kvs > ESP_GGUF_KEYS_MAX || *ret_n_kvs > left(r) / 13)) {
        return bad(r, 16, "more keys announced than the file can hold");
    }
    return status;
}

static esp_status read_alignment(struct reader *r, struct esp_gguf_part *part)
{
    uint32_t alignment;
    esp_status status = esp_gguf_part_u32(part, "general.alignment", 32, &alignment, r->err);
    bool power = alignment != 0 && (alignment & (alignment - 1)) == 0;
    if (status == ESP_OK && power && alignment >= ESP_GGUF_ALIGNMENT_MIN && alignment <= ESP_GGUF_ALIGNMENT_MAX) {
        part->alignment = alignment;
        return ESP_OK;
    }
    const struct esp_gguf_kv *kv = esp_gguf_part_find(part, "general.alignment");
    assert(kv != NULL);
    return bad_named(r, (size_t)(kv->data - r->data), &kv->key, "must be an integer power of two, 8 to 65536");
}

esp_status esp_gguf_parse(struct esp_gguf *gguf, uint32_t part_idx, const char *path, struct esp_err *err)
{
    assert(part_idx < gguf->n_parts);
    struct esp_gguf_part *part = &gguf->parts[part_idx];
    esp_bytesmap_init(&part->key_map, ESP_TAG_MISC);
    esp_status status = esp_file_map(path, &part->file, err);
    if (status != ESP_OK) {
        return status;
    }
    struct reader r = {.data = part->file.data, .n_bytes = part->file.n_bytes, .path = path, .err = err};
    uint64_t n_tensors = 0, n_kvs = 0;
    size_t first = gguf->n_tensors;
    status = read_header(&r, part, &n_tensors, &n_kvs);
    if (status == ESP_OK) {
        status = read_kvs(&r, part, n_kvs);
    }
    if (status == ESP_OK) {
        status = read_alignment(&r, part);
    }
    if (status == ESP_OK) {
        status = read_tensors(&r, gguf, part_idx, n_tensors);
    }
    if (status == ESP_OK && n_tensors > 0) {
        status = place_data(&r, part, gguf->tensors + first, (size_t)n_tensors);
    }
    return status;
}
