/* The page file: what was written is found again, and whatever happens to the file is a miss and never a wrong page.
 *
 * Each page's bytes are a function of its whole path, so a page taken for another one is seen at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "radix/pagefile.h"
#include "tests/esptest.h"

enum { PAGE_BYTES = 2048, P = ESP_TREE_PAGE_TOKENS, DEPTH = 6 };

static char path[256];
static uint64_t n_serial; /* each opening begins elsewhere, as random numbers do */

static struct esp_pagefile_config config_of(uint32_t n_slots)
{
    return (struct esp_pagefile_config){.path = path,
                                        .n_bytes_max = 8192 + (uint64_t)n_slots * (144 + ESP_PAGEFILE_NS_BYTES_MAX),
                                        .page_bytes = PAGE_BYTES,
                                        .fingerprint = {1, 2},
                                        .serial = ++n_serial << 40,
                                        .hash_bits = 128};
}

static struct esp_pagefile *open_with(const struct esp_pagefile_config *config)
{
    struct esp_pagefile *file = NULL;
    struct esp_err err = {0};
    CHECK(esp_pagefile_open(config, &file, &err) == ESP_OK, "open: %s", err.message);
    return file;
}

static struct esp_pagefile *open_file(uint32_t n_slots)
{
    struct esp_pagefile_config config = config_of(n_slots);
    return open_with(&config);
}

static void fresh_path(void)
{
    snprintf(path, sizeof path, "/tmp/esp_pagefile_%d", (int)getpid());
    unlink(path);
}

/* The pages of a path of letters in a namespace. */
static void letter_tokens(char letter, uint32_t *out)
{
    for (int idx = 0; idx < P; idx++) {
        out[idx] = (uint32_t)letter * 100 + (uint32_t)idx;
    }
}

static void contents(const char *ns, const char *letters, uint32_t depth, uint8_t *out)
{
    struct esp_rng rng = {7};
    for (const char *at = ns; *at != '\0'; at++) {
        rng.state = esp_rng_mix(rng.state + (uint8_t)*at);
    }
    for (uint32_t idx = 0; idx <= depth; idx++) {
        rng.state = esp_rng_mix(rng.state * 31 + (uint8_t)letters[idx]);
    }
    for (uint32_t idx = 0; idx < PAGE_BYTES; idx++) {
        out[idx] = (uint8_t)esp_rng_next(&rng);
    }
}

static uint32_t save(struct esp_pagefile *file, const char *ns, const char *letters, enum esp_evict_class class,
                     uint64_t now)
{
    struct esp_pagefile_at at;
    uint32_t n = 0;
    if (!esp_pagefile_root(file, ns, strlen(ns), true, &at)) {
        return 0;
    }
    for (; letters[n] != '\0'; n++) {
        uint32_t tokens[P];
        uint8_t page[PAGE_BYTES];
        letter_tokens(letters[n], tokens);
        contents(ns, letters, n, page);
        if (!esp_pagefile_write(file, &at, tokens, page, class, now, &at)) {
            break;
        }
    }
    return n;
}

/* Pages that are found and right; a wrong one fails the test. */
static uint32_t load(struct esp_pagefile *file, const char *ns, const char *letters, uint64_t now)
{
    struct esp_pagefile_at at;
    uint32_t n = 0;
    if (!esp_pagefile_root(file, ns, strlen(ns), false, &at)) {
        return 0;
    }
    for (; letters[n] != '\0'; n++) {
        uint32_t tokens[P];
        uint8_t page[PAGE_BYTES], want[PAGE_BYTES];
        letter_tokens(letters[n], tokens);
        if (!esp_pagefile_find(file, &at, tokens, &at) || !esp_pagefile_read(file, &at, now, page)) {
            break;
        }
        contents(ns, letters, n, want);
        CHECK(memcmp(page, want, PAGE_BYTES) == 0, "page %u of %s/%s is another one", n, ns, letters);
    }
    return n;
}

static void test_saved_pages_come_back(void)
{
    fresh_path();
    struct esp_pagefile *file = open_file(256);
    CHECK(esp_pagefile_writes(file), "alone: it writes");
    CHECK(load(file, "m", "abc", 1) == 0, "nothing yet");
    CHECK(save(file, "m", "abc", ESP_CLASS_NORMAL, 1) == 3, "saved");
    CHECK(save(file, "m", "abd", ESP_CLASS_NORMAL, 2) == 3, "another below the same prefix");
    CHECK(esp_pagefile_count(file) == 5, "a root and four pages, %u", esp_pagefile_count(file));
    CHECK(load(file, "m", "abcx", 3) == 3 && load(file, "m", "abd", 3) == 3 && load(file, "m", "b", 3) == 0, "found");
    CHECK(load(file, "n", "abc", 3) == 0, "another namespace");
    CHECK(esp_pagefile_sync(file), "sync");
    esp_pagefile_close(file);
    file = open_file(256);
    CHECK(load(file, "m", "abc", 4) == 3 && load(file, "m", "abd", 4) == 3, "after a restart too");
    struct stat stat_of;
    CHECK(stat(path, &stat_of) == 0 && (stat_of.st_mode & 077) == 0, "nobody else may read it");
    CHECK((uint64_t)stat_of.st_size <= config_of(256).n_bytes_max, "within its bytes");
    esp_pagefile_close(file);
}

static void test_one_writes_others_read(void)
{
    fresh_path();
    struct esp_pagefile *writer = open_file(64), *reader = open_file(64);
    CHECK(esp_pagefile_writes(writer) && !esp_pagefile_writes(reader), "one writes");
    save(writer, "m", "abc", ESP_CLASS_NORMAL, 1);
    CHECK(load(reader, "m", "abc", 1) == 3, "what is added is seen");
    CHECK(save(reader, "m", "xyz", ESP_CLASS_NORMAL, 1) == 0, "a reader adds nothing");
    CHECK(load(writer, "m", "x", 1) == 0, "not even a little");
    esp_pagefile_close(writer);
    CHECK(load(reader, "m", "abc", 1) == 3, "and outlives the writer");
    writer = open_file(64);
    CHECK(esp_pagefile_writes(writer), "whoever comes next writes");
    esp_pagefile_close(reader);
    esp_pagefile_close(writer);
}

static void test_foreign_files_are_replaced(void)
{
    for (int change = 0; change < 4; change++) {
        fresh_path();
        struct esp_pagefile *file = open_file(64);
        save(file, "m", "abc", ESP_CLASS_NORMAL, 1);
        struct esp_pagefile_config config = config_of(change == 1 ? 96 : 64);
        config.fingerprint[1] += change == 0;
        config.page_bytes -= change == 2 ? 16 : 0;
        struct esp_pagefile *other = NULL;
        if (change != 1) { /* a reader takes the writer's number of slots */
            CHECK(esp_pagefile_open(&config, &other, NULL) == (change == 3 ? ESP_OK : ESP_EIO), "change %d", change);
            esp_pagefile_close(other);
        }
        esp_pagefile_close(file);
        other = open_with(&config);
        CHECK(load(other, "m", "abc", 1) == (change == 3 ? 3 : 0), "change %d: old pages", change);
        esp_pagefile_close(other);
    }
    fresh_path();
    FILE *text = fopen(path, "w");
    fputs("this is no page file", text);
    fclose(text);
    struct esp_pagefile *file = open_file(64);
    CHECK(save(file, "m", "abc", ESP_CLASS_NORMAL, 1) == 3 && load(file, "m", "abc", 1) == 3, "replaced");
    esp_pagefile_close(file);
}

static void test_refusals(void)
{
    struct esp_pagefile *file = NULL;
    struct esp_err err = {0};
    fresh_path();
    struct esp_pagefile_config config = config_of(15);
    CHECK(esp_pagefile_open(&config, &file, &err) == ESP_EINVAL && strstr(err.message, "hold no") != NULL, "too small");
    config = config_of(64);
    config.path = "/nonexistent/pages";
    CHECK(esp_pagefile_open(&config, &file, &err) == ESP_EIO, "no folder");
    CHECK(strstr(err.message, "nonexistent") != NULL, "it says which: %s", err.message);
    config.path = "/tmp";
    CHECK(esp_pagefile_open(&config, &file, &err) == ESP_EIO && file == NULL, "a folder");
}

/* Far more pages than slots: the bucket gives up its lowest class first, the rest is found or not, never wrong. */
static void test_full_file(void)
{
    fresh_path();
    struct esp_pagefile *file = open_file(64);
    save(file, "m", "QRST", ESP_CLASS_RETURN, 1);
    for (uint32_t n = 0; n < 400; n++) {
        char letters[4] = {(char)('a' + n % 20), (char)('a' + n / 20), 'x', '\0'};
        save(file, "m", letters, ESP_CLASS_NORMAL, 10 + n);
    }
    CHECK(load(file, "m", "QRST", 999) == 4, "the higher class stayed");
    CHECK(esp_pagefile_count(file) == 64, "all slots are used: %u", esp_pagefile_count(file));
    uint32_t n_latest = 0;
    for (uint32_t n = 380; n < 400; n++) {
        char letters[4] = {(char)('a' + n % 20), (char)('a' + n / 20), 'x', '\0'};
        n_latest += load(file, "m", letters, 999);
    }
    CHECK(n_latest > 0, "some of the latest are there");
    esp_pagefile_close(file);
}

/* All in one bucket and at one time: a page never takes the place of its own parent. */
static void test_parent_stays(void)
{
    fresh_path();
    struct esp_pagefile *file = open_file(16);
    save(file, "m", "abcdefghijklmno", ESP_CLASS_NORMAL, 5);
    CHECK(esp_pagefile_count(file) == 16, "full");
    CHECK(save(file, "m", "xy", ESP_CLASS_NORMAL, 5) == 2 && load(file, "m", "xy", 5) == 2, "both are there");
    esp_pagefile_close(file);
}

/* Keys of 4 bits: everything collides, and nothing is taken for anything else. */
static void test_collisions(void)
{
    fresh_path();
    struct esp_pagefile_config config = config_of(256);
    config.hash_bits = 4;
    struct esp_pagefile *file = open_with(&config);
    uint32_t n_found = 0;
    for (uint32_t n = 0; n < 3000; n++) {
        char letters[DEPTH + 1] = {0}, ns[2] = {(char)('A' + esp_rng_below(&esp_test_state.rng, 40)), '\0'};
        for (uint32_t idx = 0; idx < DEPTH; idx++) {
            letters[idx] = (char)('a' + esp_rng_below(&esp_test_state.rng, 2));
        }
        if (esp_rng_below(&esp_test_state.rng, 2) == 0) {
            save(file, ns, letters, (enum esp_evict_class)(1 + esp_rng_below(&esp_test_state.rng, 2)), n);
        } else {
            n_found += load(file, ns, letters, n);
        }
    }
    CHECK(n_found > 30, "some were found: %u", n_found);
    esp_pagefile_close(file);
}

/* ---- Faults ------------------------------------------------------------------------------------ */

static struct {
    uint64_t n_calls, fail_at, n_fails; /* the calls [fail_at, fail_at + n_fails) fail */
    int how;                            /* 0: error; 1: half is done; 2: nothing is done, as at the end of a file */
} fault;

static bool fails(void)
{
    uint64_t at = ++fault.n_calls;
    errno = ENOSPC;
    return at >= fault.fail_at && at < fault.fail_at + fault.n_fails;
}
static int fault_open(const char *name, int flags, mode_t mode)
{
    return fails() ? -1 : open(name, flags, mode);
}
static int fault_lock(int fd)
{
    return fails() ? -1 : flock(fd, LOCK_EX | LOCK_NB);
}
static int fault_rename(const char *from, const char *to)
{
    return fails() ? -1 : rename(from, to);
}
static int fault_truncate(int fd, off_t n_bytes)
{
    return fails() ? -1 : ftruncate(fd, n_bytes);
}
static off_t fault_size(int fd)
{
    return fails() ? -1 : lseek(fd, 0, SEEK_END);
}
static ssize_t fault_pread(int fd, void *data, size_t n_bytes, off_t at)
{
    if (!fails()) {
        return pread(fd, data, n_bytes, at);
    }
    return fault.how == 0 ? -1 : fault.how == 1 ? pread(fd, data, (n_bytes + 1) / 2, at) : 0;
}
static ssize_t fault_pwrite(int fd, const void *data, size_t n_bytes, off_t at)
{
    if (!fails()) {
        return pwrite(fd, data, n_bytes, at);
    }
    return fault.how == 0 ? -1 : fault.how == 1 ? pwrite(fd, data, (n_bytes + 1) / 2, at) : 0;
}
static int fault_sync(int fd)
{
    return fails() ? -1 : fdatasync(fd);
}
static const struct esp_pagefile_io fault_io = {fault_open, close,       fault_lock,   fault_rename, fault_truncate,
                                                fault_size, fault_pread, fault_pwrite, fault_sync};

/* Saves, loads, restarts, with one call or all from one on failing; then once more without faults. */
static void try_faults(uint64_t at, uint64_t n_fails, int how)
{
    struct esp_pagefile_config config = config_of(32);
    struct esp_pagefile *file = NULL;
    config.io = &fault_io;
    fresh_path();
    fault.n_calls = 0;
    fault.fail_at = at;
    fault.n_fails = n_fails;
    fault.how = how;
    for (int round = 0; round < 3; round++) {
        config.serial = ++n_serial << 40;
        if (esp_pagefile_open(&config, &file, NULL) == ESP_OK) {
            save(file, "m", "abcd", ESP_CLASS_NORMAL, (uint64_t)round);
            load(file, "m", "abcd", (uint64_t)round);
            save(file, "m", "abxy", ESP_CLASS_RETURN, (uint64_t)round);
            load(file, "m", "abxy", (uint64_t)round);
            esp_pagefile_sync(file);
            esp_pagefile_close(file);
        }
    }
    fault.fail_at = UINT64_MAX;
    config.serial = ++n_serial << 40;
    if (esp_pagefile_open(&config, &file, NULL) == ESP_OK) {
        bool heals = save(file, "m", "abcd", ESP_CLASS_NORMAL, 9) == 4 && load(file, "m", "abcd", 9) == 4;
        CHECK(heals, "call %llu: it does not heal", (unsigned long long)at);
        esp_pagefile_close(file);
    } else {
        CHECK(false, "call %llu: never opens again", (unsigned long long)at);
    }
}

static void test_every_call_may_fail(void)
{
    uint64_t n_calls = 1;
    for (uint64_t at = 1; at <= n_calls + 1; at++) {
        for (int how = 0; how < 3; how++) {
            try_faults(at, 1, how);
            try_faults(at, UINT64_MAX / 2, how);
        }
        n_calls = fault.n_calls > n_calls && at == 1 ? fault.n_calls : n_calls;
        n_calls = n_calls > 400 ? 400 : n_calls;
    }
    CHECK(n_calls > 50, "%llu calls were tried", (unsigned long long)n_calls);
}

/* Bytes flipped, cut off and overwritten anywhere, while it is in use and between two uses. */
static void test_damage(void)
{
    uint32_t n_whole = 0;
    for (uint32_t n = 0; n < 400; n++) {
        struct esp_rng *rng = &esp_test_state.rng;
        fresh_path();
        struct esp_pagefile *file = open_file(32);
        save(file, "m", "abcd", ESP_CLASS_NORMAL, 1);
        save(file, "n", "abcd", ESP_CLASS_NORMAL, 2);
        off_t n_bytes = 4096 + 32 * 144 + 32 * ESP_PAGEFILE_NS_BYTES_MAX;
        int fd = open(path, O_RDWR);
        for (uint32_t hit = 0; hit < 1 + n % 8; hit++) {
            uint8_t bytes[64];
            off_t at = (off_t)esp_rng_below(rng, esp_rng_below(rng, 2) == 0 ? 4096 + 32 * 144 : (uint64_t)n_bytes);
            size_t n_hit = 1 + esp_rng_below(rng, sizeof bytes);
            for (size_t idx = 0; idx < n_hit; idx++) {
                bytes[idx] = (uint8_t)esp_rng_next(rng);
            }
            CHECK(pwrite(fd, bytes, n_hit, at) == (ssize_t)n_hit, "damage");
        }
        if (n % 5 == 0) {
            CHECK(ftruncate(fd, (off_t)esp_rng_below(rng, (uint64_t)n_bytes)) == 0, "cut");
        }
        close(fd);
        n_whole += load(file, "m", "abcd", 3) == 4;
        save(file, "m", "abef", ESP_CLASS_NORMAL, 4);
        load(file, "m", "abef", 5);
        esp_pagefile_close(file);
        file = open_file(32);
        for (uint32_t idx = 0; idx < 4; idx++) {
            load(file, "n", "abcd", 6 + 2 * idx); /* what is broken is noticed when it is read, page by page */
            save(file, "n", "abcd", ESP_CLASS_NORMAL, 7 + 2 * idx);
        }
        CHECK(save(file, "n", "abcd", ESP_CLASS_NORMAL, 20) == 4 && load(file, "n", "abcd", 21) == 4, "it heals");
        esp_pagefile_close(file);
    }
    CHECK(n_whole > 0 && n_whole < 400, "some hits did harm, some did not: %u", n_whole);
}

static void test_cleanup(void)
{
    fresh_path();
    CHECK(access(path, F_OK) != 0, "nothing is left behind");
}

ESP_TEST_MAIN(T(test_saved_pages_come_back), T(test_one_writes_others_read), T(test_foreign_files_are_replaced),
              T(test_refusals), T(test_full_file), T(test_parent_stays), T(test_collisions),
              T(test_every_call_may_fail), T(test_damage), T(test_cleanup))
