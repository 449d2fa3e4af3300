/* mmap and plain reads. */
#include "runtime/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES 65536

esp_status esp_file_map(const char *path, struct esp_file *ret_file, struct esp_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return esp_fail(err, ESP_EIO, "cannot open %s: %s", path, strerror(errno));
    }
    esp_status status = ESP_OK;
    struct esp_file file = {0};
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        status = esp_fail(err, ESP_EIO, "%s is not a regular file", path);
    } else if (st.st_size > 0) {
        file.n_bytes = (size_t)st.st_size;
        void *data = mmap(NULL, file.n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = esp_fail(err, ESP_EIO, "cannot map %s: %s", path, strerror(errno));
        }
        file.data = data;
    }
    close(fd);
    if (status == ESP_OK) {
        *ret_file = file;
    }
    return status;
}

void esp_file_unmap(struct esp_file *file)
{
    if (file->data != NULL) {
        munmap((void *)(uintptr_t)file->data, file->n_bytes);
    }
    *file = (struct esp_file){0};
}

void esp_file_forget(const struct esp_file *file, size_t offset, size_t n_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t from = (offset + page - 1) / page * page;
    size_t to = (offset + n_bytes) / page * page;
    if (file->data != NULL && from < to && to <= file->n_bytes) {
        madvise((void *)(uintptr_t)(file->data + from), to - from, MADV_DONTNEED);
    }
}

esp_status esp_file_read(const char *path, struct esp_buf *buf, struct esp_err *err)
{
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return esp_fail(err, ESP_EIO, "cannot open %s: %s", path, strerror(errno));
    }
    esp_status status = ESP_OK;
    char chunk[READ_BYTES];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            status = esp_fail(err, ESP_EIO, "cannot read %s: %s", path, strerror(errno));
        } else if (n > 0 && !esp_buf_add(buf, chunk, (size_t)n)) {
            status = esp_fail(err, ESP_ELIMIT, "%s is larger than %zu bytes", path, buf->cap_bytes);
        }
        if (n <= 0 || status != ESP_OK) {
            break;
        }
    }
    close(fd);
    return status;
}
