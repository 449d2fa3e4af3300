/* The page file. See pagefile.h.
 *
 * Order of a write: entry away, page, entry. Whatever is read is copied first and checked in the copy, so a writer in
 * another process cannot change it between check and use. A call that fails is a miss.
 */
#include "radix/pagefile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/base/alloc.h"

#define HEAD_BYTES 4096
#define NS_DEPTH 0
#define NOTE_NS ((uint64_t)60 * 1000000000) /* uses that follow closer are one */
#define PATH_BYTES_MAX 4096

static const char magic[8] = "ESPPAGE\1";

struct head {
    char magic[8];
    uint64_t fingerprint[2];
    uint32_t page_bytes, n_slots;
    uint32_t entry_bytes, ways;
    uint64_t sum;
};

struct entry { /* all zero: the slot is empty */
    uint64_t serial;
    uint64_t parent_serial;
    uint64_t key[2];
    uint64_t page_sum[2];
    uint32_t tokens[ESP_TREE_PAGE_TOKENS];
    uint32_t parent_slot, depth, n_bytes, class;
    uint64_t sum;  /* of all above */
    uint64_t used; /* changes alone */
};
_Static_assert(sizeof(struct entry) == 144, "no padding is hashed");
static const struct entry empty;

struct esp_pagefile {
    const struct esp_pagefile_io *io;
    int fd;
    bool writes;
    uint32_t page_bytes, n_slots, stride;
    uint32_t n_used; /* slots, as far as this process knows */
    uint64_t serial, mask[2];
    struct entry bucket[ESP_PAGEFILE_WAYS];
    unsigned char ns[ESP_PAGEFILE_NS_BYTES_MAX]; /* of a root that is compared */
};

/* ---- System calls ------------------------------------------------------------------------------ */

static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags | O_CLOEXEC, mode);
}

static int real_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB);
}

static off_t real_size(int fd)
{
    struct stat stat;
    return fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) ? stat.st_size : -1;
}

static const struct esp_pagefile_io real_io = {
    .open = real_open, .close = close, .lock = real_lock, .rename = rename, .truncate = ftruncate,
    .size = real_size, .pread = pread, .pwrite = pwrite,  .sync = fdatasync};

/* As far as the file goes; the rest stays as it is. Negative: it cannot be read. */
static ssize_t read_some(const struct esp_pagefile *file, void *data, size_t n_bytes, uint64_t at)
{
    size_t n_read = 0;
    while (n_read < n_bytes) {
        ssize_t n = file->io->pread(file->fd, (char *)data + n_read, n_bytes - n_read, (off_t)(at + n_read));
        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        n_read += n < 0 ? 0 : (size_t)n;
    }
    return (ssize_t)n_read;
}

static bool read_all(const struct esp_pagefile *file, void *data, size_t n_bytes, uint64_t at)
{
    return read_some(file, data, n_bytes, at) == (ssize_t)n_bytes;
}

static bool write_all(const struct esp_pagefile *file, const void *data, size_t n_bytes, uint64_t at)
{
    const char *from = data;
    while (n_bytes > 0) {
        ssize_t n = file->io->pwrite(file->fd, from, n_bytes, (off_t)at);
        if (n <= 0) {
            if (n < 0 && errno == EINTR) {
                continue;
            }
            return false;
        }
        from += n;
        at += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return true;
}

/* ---- Places and sums --------------------------------------------------------------------------- */

static uint64_t entry_at(uint32_t slot)
{
    return HEAD_BYTES + (uint64_t)slot * sizeof(struct entry);
}

static uint64_t pages_at(uint32_t n_slots)
{
    uint64_t at = entry_at(n_slots);
    return (at + HEAD_BYTES - 1) / HEAD_BYTES * HEAD_BYTES;
}

static uint64_t page_at(const struct esp_pagefile *file, uint32_t slot)
{
    return pages_at(file->n_slots) + (uint64_t)slot * file->stride;
}

/* A slot holds a page, or the bytes of a namespace. */
static uint32_t stride_for(uint32_t page_bytes)
{
    return page_bytes > ESP_PAGEFILE_NS_BYTES_MAX ? page_bytes : ESP_PAGEFILE_NS_BYTES_MAX;
}

static uint64_t sum_of(const void *data, size_t n_bytes)
{
    return XXH3_64bits(data, n_bytes);
}

static uint64_t entry_sum(const struct entry *entry)
{
    return sum_of(entry, offsetof(struct entry, sum));
}

static void page_sum(const void *page, size_t n_bytes, uint64_t ret_sum[2])
{
    XXH128_hash_t hash = XXH3_128bits(page, n_bytes);
    ret_sum[0] = hash.low64;
    ret_sum[1] = hash.high64;
}

static void key_of(const struct esp_pagefile *file, const void *data, size_t n_bytes, uint64_t ret_key[2])
{
    page_sum(data, n_bytes, ret_key);
    ret_key[0] &= file->mask[0];
    ret_key[1] &= file->mask[1];
}

static void child_key(const struct esp_pagefile *file, const uint64_t parent[2], const uint32_t *tokens,
                      uint64_t ret_key[2])
{
    struct {
        uint64_t parent[2];
        uint32_t tokens[ESP_TREE_PAGE_TOKENS];
    } input = {.parent = {parent[0], parent[1]}};
    memcpy(input.tokens, tokens, sizeof input.tokens);
    key_of(file, &input, sizeof input, ret_key);
}

static bool is_sound(const struct esp_pagefile *file, const struct entry *entry)
{
    return entry->serial != 0 && entry->sum == entry_sum(entry) && entry->n_bytes <= file->stride;
}

/* ---- Opening ----------------------------------------------------------------------------------- */

static void fill_head(const struct esp_pagefile_config *config, uint32_t n_slots, struct head *ret_head)
{
    memset(ret_head, 0, sizeof *ret_head);
    memcpy(ret_head->magic, magic, sizeof magic);
    ret_head->fingerprint[0] = config->fingerprint[0];
    ret_head->fingerprint[1] = config->fingerprint[1];
    ret_head->page_bytes = config->page_bytes;
    ret_head->n_slots = n_slots;
    ret_head->entry_bytes = sizeof(struct entry);
    ret_head->ways = ESP_PAGEFILE_WAYS;
    ret_head->sum = sum_of(ret_head, offsetof(struct head, sum));
}

static uint32_t slots_for(const struct esp_pagefile_config *config)
{
    uint64_t per_slot = sizeof(struct entry) + stride_for(config->page_bytes);
    uint64_t n_bytes = config->n_bytes_max > 2 * HEAD_BYTES ? config->n_bytes_max - 2 * HEAD_BYTES : 0;
    uint64_t n = n_bytes / per_slot / ESP_PAGEFILE_WAYS * ESP_PAGEFILE_WAYS;
    return n > UINT32_MAX / 2 ? UINT32_MAX / 2 / ESP_PAGEFILE_WAYS * ESP_PAGEFILE_WAYS : (uint32_t)n;
}

/* The file as it is: its header is the one wanted, but that a reader takes the writer's number of slots. */
static bool is_ours(struct esp_pagefile *file, const struct esp_pagefile_config *config)
{
    struct head have, want;
    if (!read_all(file, &have, sizeof have, 0)) {
        return false;
    }
    fill_head(config, file->writes ? file->n_slots : have.n_slots, &want);
    if (memcmp(&have, &want, sizeof want) != 0 || have.n_slots == 0 || have.n_slots % ESP_PAGEFILE_WAYS != 0) {
        return false;
    }
    file->n_slots = have.n_slots;
    return true;
}

/* A new file, whole and locked before it gets its name. */
static esp_status make(struct esp_pagefile *file, const struct esp_pagefile_config *config, struct esp_err *err)
{
    char path[PATH_BYTES_MAX];
    struct head head;
    fill_head(config, file->n_slots, &head);
    snprintf(path, sizeof path, "%s.new", config->path);
    int fd = file->io->open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return esp_fail(err, ESP_EIO, "%s: %s", path, strerror(errno));
    }
    int old = file->fd;
    file->fd = fd;
    bool made = file->io->lock(fd) == 0 && file->io->truncate(fd, (off_t)page_at(file, file->n_slots)) == 0 &&
                write_all(file, &head, sizeof head, 0) && file->io->rename(path, config->path) == 0;
    if (!made) {
        esp_fail(err, ESP_EIO, "%s: %s", path, strerror(errno));
    }
    file->io->close(old);
    return made ? ESP_OK : ESP_EIO;
}

static esp_status open_file(struct esp_pagefile *file, const struct esp_pagefile_config *config, struct esp_err *err)
{
    file->fd = file->io->open(config->path, O_RDWR | O_CREAT, 0600);
    if (file->fd < 0) {
        return esp_fail(err, ESP_EIO, "%s: %s", config->path, strerror(errno));
    }
    file->writes = file->io->lock(file->fd) == 0;
    if (is_ours(file, config)) {
        return ESP_OK;
    }
    if (!file->writes) {
        return esp_fail(err, ESP_EIO, "%s: another process writes it, for another model or version", config->path);
    }
    return make(file, config, err);
}

static uint32_t count(const struct esp_pagefile *file)
{
    struct entry bucket[ESP_PAGEFILE_WAYS];
    uint32_t n = 0;
    for (uint32_t slot = 0; slot < file->n_slots; slot += ESP_PAGEFILE_WAYS) {
        if (read_all(file, bucket, sizeof bucket, entry_at(slot))) {
            for (uint32_t way = 0; way < ESP_PAGEFILE_WAYS; way++) {
                n += is_sound(file, &bucket[way]);
            }
        }
    }
    return n;
}

esp_status esp_pagefile_open(const struct esp_pagefile_config *config, struct esp_pagefile **ret_file,
                             struct esp_err *err)
{
    assert(config->hash_bits >= 1 && config->hash_bits <= 128);
    if (config->page_bytes == 0 || config->page_bytes > ESP_PAGEFILE_PAGE_BYTES_MAX) {
        return esp_fail(err, ESP_EINVAL, "pages of %u bytes", config->page_bytes);
    }
    if (slots_for(config) == 0) {
        return esp_fail(err, ESP_EINVAL, "%llu bytes hold no %d pages of %u bytes",
                        (unsigned long long)config->n_bytes_max, ESP_PAGEFILE_WAYS, config->page_bytes);
    }
    if (strlen(config->path) > PATH_BYTES_MAX - sizeof ".new") {
        return esp_fail(err, ESP_EINVAL, "the path is too long");
    }
    struct esp_pagefile *file = esp_calloc(ESP_TAG_TREE, 1, sizeof *file);
    if (file == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for a page file");
    }
    file->fd = -1;
    file->io = config->io == NULL ? &real_io : config->io;
    file->page_bytes = config->page_bytes;
    file->n_slots = slots_for(config);
    file->stride = stride_for(config->page_bytes);
    file->serial = config->serial;
    file->mask[0] = config->hash_bits >= 64 ? UINT64_MAX : UINT64_MAX >> (64 - config->hash_bits);
    file->mask[1] = config->hash_bits <= 64 ? 0 : UINT64_MAX >> (128 - config->hash_bits);
    esp_status status = open_file(file, config, err);
    if (status != ESP_OK) {
        esp_pagefile_close(file);
        return status;
    }
    file->n_used = count(file);
    *ret_file = file;
    return ESP_OK;
}

void esp_pagefile_close(struct esp_pagefile *file)
{
    if (file != NULL) {
        if (file->fd >= 0) {
            file->io->close(file->fd);
        }
        esp_free(file);
    }
}

bool esp_pagefile_writes(const struct esp_pagefile *file)
{
    return file->writes;
}

uint32_t esp_pagefile_count(const struct esp_pagefile *file)
{
    return file->n_used;
}

/* ---- Finding ----------------------------------------------------------------------------------- */

/* Reads the bucket of a key; returns its first slot, or UINT32_MAX. */
static uint32_t load_bucket(struct esp_pagefile *file, const uint64_t key[2])
{
    uint32_t n_buckets = file->n_slots / ESP_PAGEFILE_WAYS;
    uint32_t first = (uint32_t)(key[0] % n_buckets) * ESP_PAGEFILE_WAYS;
    memset(file->bucket, 0, sizeof file->bucket); /* a file that was cut has no entries there, and may get them */
    return read_some(file, file->bucket, sizeof file->bucket, entry_at(first)) < 0 ? UINT32_MAX : first;
}

static bool has_key(const struct entry *entry, const uint64_t key[2])
{
    return entry->key[0] == key[0] && entry->key[1] == key[1];
}

static void place(const struct entry *entry, uint32_t slot, struct esp_pagefile_at *ret_at)
{
    *ret_at = (struct esp_pagefile_at){.slot = slot, .serial = entry->serial, .key = {entry->key[0], entry->key[1]}};
}

static bool is_child(const struct esp_pagefile *file, const struct entry *entry, const struct esp_pagefile_at *parent,
                     const uint64_t key[2], const uint32_t *tokens)
{
    return entry->depth != NS_DEPTH && has_key(entry, key) && entry->parent_slot == parent->slot &&
           entry->parent_serial == parent->serial && memcmp(entry->tokens, tokens, sizeof entry->tokens) == 0 &&
           is_sound(file, entry);
}

bool esp_pagefile_find(struct esp_pagefile *file, const struct esp_pagefile_at *parent,
                       const uint32_t tokens[ESP_TREE_PAGE_TOKENS], struct esp_pagefile_at *ret_at)
{
    uint64_t key[2];
    child_key(file, parent->key, tokens, key);
    uint32_t first = load_bucket(file, key);
    for (uint32_t way = 0; way < ESP_PAGEFILE_WAYS && first != UINT32_MAX; way++) {
        if (is_child(file, &file->bucket[way], parent, key, tokens)) {
            place(&file->bucket[way], first + way, ret_at);
            return true;
        }
    }
    return false;
}

/* The payload of an entry that was just read, checked. */
static bool read_payload(struct esp_pagefile *file, const struct entry *entry, uint32_t slot, void *data)
{
    uint64_t sum[2];
    if (!read_all(file, data, entry->n_bytes, page_at(file, slot))) {
        return false;
    }
    page_sum(data, entry->n_bytes, sum);
    return sum[0] == entry->page_sum[0] && sum[1] == entry->page_sum[1];
}

static void note_use(struct esp_pagefile *file, uint32_t slot, uint64_t used, uint64_t now)
{
    /* A use that is not noted costs nothing but its place in the order. */
    if (file->writes && (now < used || now - used > NOTE_NS)) {
        write_all(file, &now, sizeof now, entry_at(slot) + offsetof(struct entry, used));
    }
}

/* A page that is broken would be found again and never replaced. */
static void drop(struct esp_pagefile *file, uint32_t slot)
{
    if (file->writes) {
        file->n_used--;
        write_all(file, &empty, sizeof empty, entry_at(slot));
    }
}

bool esp_pagefile_read(struct esp_pagefile *file, const struct esp_pagefile_at *at, uint64_t now, void *page)
{
    struct entry entry;
    if (at->slot >= file->n_slots || !read_all(file, &entry, sizeof entry, entry_at(at->slot)) ||
        !is_sound(file, &entry) || entry.serial != at->serial || entry.n_bytes != file->page_bytes) {
        return false;
    }
    if (!read_payload(file, &entry, at->slot, page)) {
        drop(file, at->slot);
        return false;
    }
    note_use(file, at->slot, entry.used, now);
    return true;
}

/* ---- Writing ----------------------------------------------------------------------------------- */

/* The time of the last use carries no sum: one in the future is damage. */
static uint64_t last_use(const struct entry *entry, uint64_t now)
{
    return entry->used > now ? 0 : entry->used;
}

/* An empty slot of the loaded bucket, else the one of the lowest class that was used longest ago, but never the
 * parent. */
static uint32_t victim(const struct esp_pagefile *file, uint32_t first, uint32_t parent_slot, uint64_t now)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t way = 0; way < ESP_PAGEFILE_WAYS; way++) {
        const struct entry *entry = &file->bucket[way];
        if (!is_sound(file, entry)) {
            return way;
        }
        if (first + way == parent_slot) {
            continue;
        }
        const struct entry *other = best == UINT32_MAX ? NULL : &file->bucket[best];
        if (other == NULL || entry->class < other->class ||
            (entry->class == other->class && last_use(entry, now) < last_use(other, now))) {
            best = way;
        }
    }
    return best;
}

/* Writes payload and entry to a slot of the loaded bucket. */
static bool store(struct esp_pagefile *file, uint32_t first, struct entry *entry, const void *data,
                  struct esp_pagefile_at *ret_at)
{
    uint32_t way = victim(file, first, entry->parent_slot, entry->used), slot = first + way;
    file->n_used -= is_sound(file, &file->bucket[way]);
    entry->serial = ++file->serial == 0 ? ++file->serial : file->serial;
    page_sum(data, entry->n_bytes, entry->page_sum);
    entry->sum = entry_sum(entry);
    if (!write_all(file, &empty, sizeof empty, entry_at(slot)) ||
        !write_all(file, data, entry->n_bytes, page_at(file, slot)) ||
        !write_all(file, entry, sizeof *entry, entry_at(slot))) {
        return false; /* the slot is empty, or its sums are wrong */
    }
    file->n_used++;
    place(entry, slot, ret_at);
    return true;
}

bool esp_pagefile_root(struct esp_pagefile *file, const void *ns, size_t n_bytes, bool makes,
                       struct esp_pagefile_at *ret_at)
{
    uint64_t key[2];
    if (n_bytes > ESP_PAGEFILE_NS_BYTES_MAX) {
        return false;
    }
    key_of(file, ns, n_bytes, key);
    uint32_t first = load_bucket(file, key);
    for (uint32_t way = 0; way < ESP_PAGEFILE_WAYS && first != UINT32_MAX; way++) {
        const struct entry *entry = &file->bucket[way];
        if (entry->depth != NS_DEPTH || !has_key(entry, key) || entry->n_bytes != n_bytes || !is_sound(file, entry)) {
            continue;
        }
        if (!read_payload(file, entry, first + way, file->ns)) {
            drop(file, first + way);
        } else if (memcmp(file->ns, ns, n_bytes) == 0) {
            place(entry, first + way, ret_at);
            return true;
        }
    }
    if (!makes || !file->writes || first == UINT32_MAX) {
        return false;
    }
    struct entry entry = {.key = {key[0], key[1]},
                          .parent_slot = UINT32_MAX,
                          .depth = NS_DEPTH,
                          .n_bytes = (uint32_t)n_bytes,
                          .class = ESP_CLASSES, /* above all pages: without it all of them are lost */
                          .used = UINT64_MAX};
    return store(file, first, &entry, ns, ret_at);
}

bool esp_pagefile_write(struct esp_pagefile *file, const struct esp_pagefile_at *parent,
                        const uint32_t tokens[ESP_TREE_PAGE_TOKENS], const void *page, enum esp_evict_class class,
                        uint64_t now, struct esp_pagefile_at *ret_at)
{
    uint64_t key[2];
    if (!file->writes) {
        return false;
    }
    if (esp_pagefile_find(file, parent, tokens, ret_at)) {
        note_use(file, ret_at->slot, 0, now);
        return true;
    }
    child_key(file, parent->key, tokens, key);
    uint32_t first = load_bucket(file, key);
    if (first == UINT32_MAX) {
        return false;
    }
    struct entry entry = {.key = {key[0], key[1]},
                          .parent_slot = parent->slot,
                          .parent_serial = parent->serial,
                          .depth = NS_DEPTH + 1,
                          .n_bytes = file->page_bytes,
                          .class = class,
                          .used = now};
    memcpy(entry.tokens, tokens, sizeof entry.tokens);
    return store(file, first, &entry, page, ret_at);
}

bool esp_pagefile_sync(struct esp_pagefile *file)
{
    return !file->writes || file->io->sync(file->fd) == 0;
}
