/* Pages on disk: a file of slots found by content, which may be lost, cut, torn or foreign at any moment.
 *
 *   0        4096                           + entries          one file for each model and way of computing
 *   ┌────────┬──────────────────────────────┬─────────────────────────────────────────────┐
 *   │ header │ entry 0 │ entry 1 │ …        │ page 0 │ page 1 │ …                         │
 *   └────────┴──────────────────────────────┴─────────────────────────────────────────────┘
 *
 * An entry describes the page of the same slot: its 16 tokens, its parent (slot and serial), checksums of itself and
 * of the page. The key, a hash of the path, chooses a bucket of 16 slots; so there is no index to build, save or
 * repair, and whoever has the file open sees what is added. As in the tree a hash only finds candidates: a page is
 * accepted if its tokens are equal and its parent is the very entry we came from (a serial is never used twice), up
 * to a root entry that holds all bytes of its namespace.
 *
 * Whoever gets the file's lock writes; others read. Entries are taken away before their page is overwritten and come
 * back after it, and everything read is checked, so that a crash, a full disk, a writer next door or bad sectors
 * make misses and nothing else. Within a bucket the lowest class goes first, then the longest unused.
 * Thread: one at a time. Allocates at open only. Knows no tensors and no tree.
 */
#ifndef ESP_RADIX_PAGEFILE_H
#define ESP_RADIX_PAGEFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "radix/tree.h"

#define ESP_PAGEFILE_WAYS 16
#define ESP_PAGEFILE_NS_BYTES_MAX 8192
#define ESP_PAGEFILE_PAGE_BYTES_MAX (1u << 30)

/* The system calls, so that tests can let any of them fail. NULL in the config: the real ones. Each returns what the
 * call of that name does; `lock` is flock(LOCK_EX | LOCK_NB). */
struct esp_pagefile_io {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    int (*lock)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*truncate)(int fd, off_t n_bytes);
    off_t (*size)(int fd); /* negative: failed */
    ssize_t (*pread)(int fd, void *data, size_t n_bytes, off_t at);
    ssize_t (*pwrite)(int fd, const void *data, size_t n_bytes, off_t at);
    int (*sync)(int fd);
};

struct esp_pagefile_config {
    const char *path;
    uint64_t n_bytes_max;       /* of the whole file */
    uint32_t page_bytes;
    uint64_t fingerprint[2];    /* of everything that a page depends on but tokens and namespace */
    uint64_t serial;            /* where serials begin: random in production */
    unsigned hash_bits;         /* 128 in production; tests cut it to force collisions */
    const struct esp_pagefile_io *io;
};

struct esp_pagefile;
/* Opens or makes the file. ESP_EINVAL when n_bytes_max holds no bucket, ESP_EIO with the reason, ESP_ENOMEM. A file of
 * another model, size or version is replaced if this process may write, else ESP_EIO. */
esp_status esp_pagefile_open(const struct esp_pagefile_config *config, struct esp_pagefile **ret_file,
                             struct esp_err *err);
void esp_pagefile_close(struct esp_pagefile *file); /* NULL is fine */
bool esp_pagefile_writes(const struct esp_pagefile *file);
uint32_t esp_pagefile_count(const struct esp_pagefile *file); /* slots in use, as far as this process knows */

/* Where a page is. Found entries stay what they are only until the slot is used again: reading checks it. */
struct esp_pagefile_at {
    uint32_t slot;
    uint64_t serial;
    uint64_t key[2];
};
/* The entry of a namespace, by its exact bytes; with `makes` it is written if it is not there. */
bool esp_pagefile_root(struct esp_pagefile *file, const void *ns, size_t n_bytes, bool makes,
                       struct esp_pagefile_at *ret_at);
bool esp_pagefile_find(struct esp_pagefile *file, const struct esp_pagefile_at *parent,
                       const uint32_t tokens[ESP_TREE_PAGE_TOKENS], struct esp_pagefile_at *ret_at);
/* The page's bytes. False when they are not what was written, or no longer there. now: a number that grows with
 * time, for the order of last uses. */
bool esp_pagefile_read(struct esp_pagefile *file, const struct esp_pagefile_at *at, uint64_t now, void *page);
/* Adds a page below its parent; one that is there already is found. False: not written. */
bool esp_pagefile_write(struct esp_pagefile *file, const struct esp_pagefile_at *parent,
                        const uint32_t tokens[ESP_TREE_PAGE_TOKENS], const void *page, enum esp_evict_class class,
                        uint64_t now, struct esp_pagefile_at *ret_at);
/* Brings what was written to the disk itself. */
bool esp_pagefile_sync(struct esp_pagefile *file);

#endif
