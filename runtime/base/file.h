/* Read-only mapping of a whole file, and reading a small one into memory. Thread: any. */
#ifndef ESP_BASE_FILE_H
#define ESP_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/status.h"

struct esp_file {
    const uint8_t *data; /* NULL for an empty file */
    size_t n_bytes;
};

/* ESP_EIO with path and reason when it cannot be opened, is no regular file, or cannot be mapped. */
esp_status esp_file_map(const char *path, struct esp_file *ret_file, struct esp_err *err);
void esp_file_unmap(struct esp_file *file); /* zeroed is fine */
/* Gives the pages of [offset, offset + n_bytes) back to the system; they can be read again. */
void esp_file_forget(const struct esp_file *file, size_t offset, size_t n_bytes);
/* Appends the file's bytes; "-" is standard input. ESP_ELIMIT past the buffer's cap. */
esp_status esp_file_read(const char *path, struct esp_buf *buf, struct esp_err *err);

#endif
