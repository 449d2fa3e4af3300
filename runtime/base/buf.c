/* Byte buffer: doubling growth up to the cap. */
#include "runtime/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void esp_buf_init(struct esp_buf *buf, enum esp_tag tag, size_t cap_bytes)
{
    *buf = (struct esp_buf){.tag = tag, .cap_bytes = cap_bytes};
}

void esp_buf_finish(struct esp_buf *buf)
{
    esp_free(buf->data);
    buf->data = NULL;
    buf->n = buf->room = 0;
}

void esp_buf_clear(struct esp_buf *buf)
{
    buf->n = 0;
    buf->failed = false;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

void *esp_buf_reserve(struct esp_buf *buf, size_t n_bytes)
{
    if (buf->failed || n_bytes > buf->cap_bytes || buf->n > buf->cap_bytes - n_bytes) {
        buf->failed = true;
        return NULL;
    }
    size_t need = buf->n + n_bytes + 1;
    if (need > buf->room) {
        size_t room = buf->room < 32 ? 64 : buf->room * 2;
        if (room < need) {
            room = need;
        }
        char *data = esp_realloc(buf->tag, buf->data, room);
        if (data == NULL) {
            buf->failed = true;
            return NULL;
        }
        buf->data = data;
        buf->room = room;
    }
    return buf->data + buf->n;
}

bool esp_buf_add(struct esp_buf *buf, const void *data, size_t n_bytes)
{
    char *at = esp_buf_reserve(buf, n_bytes);
    if (at == NULL) {
        return false;
    }
    if (n_bytes > 0) {
        memcpy(at, data, n_bytes);
    }
    buf->n += n_bytes;
    buf->data[buf->n] = '\0';
    return true;
}

bool esp_buf_str(struct esp_buf *buf, const char *text)
{
    return esp_buf_add(buf, text, strlen(text));
}

bool esp_buf_char(struct esp_buf *buf, char c)
{
    return esp_buf_add(buf, &c, 1);
}

bool esp_buf_printf(struct esp_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) {
        buf->failed = true;
        return false;
    }
    char *at = esp_buf_reserve(buf, (size_t)n);
    if (at == NULL) {
        return false;
    }
    va_start(args, fmt);
    vsnprintf(at, (size_t)n + 1, fmt, args);
    va_end(args);
    buf->n += (size_t)n;
    return true;
}
