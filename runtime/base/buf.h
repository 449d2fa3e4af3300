/* Growable byte buffer with a mandatory cap.
 *
 * The first failure (cap or memory) latches `failed`; later appends do nothing, so a writer checks
 * once at the end. `data` is always NUL-terminated once anything was appended. Thread: the owner's.
 */
#ifndef ESP_BASE_BUF_H
#define ESP_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/alloc.h"

struct esp_buf {
    char *data;
    size_t n; /* bytes in use, without the NUL */
    size_t room;
    size_t cap_bytes;
    enum esp_tag tag;
    bool failed;
};

void esp_buf_init(struct esp_buf *buf, enum esp_tag tag, size_t cap_bytes);
void esp_buf_finish(struct esp_buf *buf); /* zeroed is fine */
void esp_buf_clear(struct esp_buf *buf);  /* keeps the memory, unlatches */
bool esp_buf_add(struct esp_buf *buf, const void *data, size_t n_bytes); /* false once failed */
bool esp_buf_str(struct esp_buf *buf, const char *text);
bool esp_buf_char(struct esp_buf *buf, char c);
bool esp_buf_printf(struct esp_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Makes room for n_bytes more and returns where they go (not yet counted), or NULL. */
void *esp_buf_reserve(struct esp_buf *buf, size_t n_bytes);

#endif
