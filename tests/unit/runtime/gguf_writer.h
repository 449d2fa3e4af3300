/* Writes small GGUF files by hand: begin, keys, tensors, pad, data, save; drop removes a file again.
 *
 * One file at a time, in a folder of its own under /tmp. Thread: the test's. Checks nothing: broken files are
 * what it is for.
 */
#ifndef ESP_TESTS_GGUF_WRITER_H
#define ESP_TESTS_GGUF_WRITER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/types.h"
#include "runtime/base/buf.h"
#include "runtime/gguf.h"

static char dir[256]; /* made on the first save */
static struct esp_buf out;

static inline void put(const void *data, size_t n)
{
    esp_buf_add(&out, data, n);
}
static inline void put_u32(uint32_t v)
{
    put(&v, sizeof v);
}
static inline void put_u64(uint64_t v)
{
    put(&v, sizeof v);
}
static inline void put_str(const char *s)
{
    put_u64(strlen(s));
    put(s, strlen(s));
}
static inline void begin(uint64_t n_tensors, uint64_t n_kvs)
{
    esp_buf_finish(&out);
    esp_buf_init(&out, ESP_TAG_MISC, 1 << 24);
    put("GGUF", 4);
    put_u32(3);
    put_u64(n_tensors);
    put_u64(n_kvs);
}
static inline void put_kv(const char *key, uint32_t type, uint64_t value, size_t n_bytes)
{
    put_str(key);
    put_u32(type);
    put(&value, n_bytes);
}
static inline void put_kv_str(const char *key, const char *value)
{
    put_str(key);
    put_u32(ESP_GGUF_STRING);
    put_str(value);
}
static inline void put_kv_f32(const char *key, float value)
{
    put_str(key);
    put_u32(ESP_GGUF_F32);
    put(&value, sizeof value);
}
static inline void put_tensor(const char *name, uint64_t n, uint64_t offset)
{
    put_str(name);
    put_u32(1);
    put_u64(n);
    put_u32(ESP_TYPE_F32);
    put_u64(offset);
}
static inline void pad(void)
{
    while (out.n % 32 != 0) {
        esp_buf_char(&out, 0);
    }
}
static inline const char *save(const char *name)
{
    static char path[512];
    if (dir[0] == '\0') {
        snprintf(dir, sizeof dir, "/tmp/esp_gguf_XXXXXX");
        if (mkdtemp(dir) == NULL) {
            return NULL;
        }
    }
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(out.data, 1, out.n, f) != out.n || fclose(f) != 0) {
        return NULL;
    }
    return path;
}
static inline void drop(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static inline void finish_writer(void)
{
    rmdir(dir);
    dir[0] = '\0';
    esp_buf_finish(&out);
}

#endif
