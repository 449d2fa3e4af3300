/* Tagged allocation over malloc and mmap. Owns all atomic allocation counters. */
#include "runtime/base/alloc.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct header {
    size_t bytes;
    uint32_t tag;
    uint32_t magic;
};
_Static_assert(sizeof(struct header) == 16, "keeps blocks 16-byte aligned");

#define MAGIC 0x45535041u

static _Atomic size_t live_bytes[ESP_TAG_COUNT];
static _Atomic uint64_t n_calls;
static _Atomic uint64_t n_live;
static _Atomic uint64_t fail_at; /* 0 = disarmed, else the value of n_calls that fails */
static _Atomic bool fail_fired;

static bool must_fail(void)
{
    uint64_t now = atomic_fetch_add(&n_calls, 1) + 1;
    uint64_t at = atomic_load(&fail_at);
    if (at != 0 && now == at) {
        atomic_store(&fail_fired, true);
        return true;
    }
    return false;
}

static void *finish(struct header *h, enum esp_tag tag, size_t bytes)
{
    if (h == NULL) {
        return NULL;
    }
    h->bytes = bytes;
    h->tag = (uint32_t)tag;
    h->magic = MAGIC;
    atomic_fetch_add(&live_bytes[tag], bytes);
    atomic_fetch_add(&n_live, 1);
    return h + 1;
}

void *esp_calloc(enum esp_tag tag, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 2 || must_fail()) {
        return NULL;
    }
    return finish(calloc(1, bytes + sizeof(struct header)), tag, bytes);
}

void *esp_malloc(enum esp_tag tag, size_t bytes)
{
    if (bytes > SIZE_MAX / 2 || must_fail()) {
        return NULL;
    }
    return finish(malloc(bytes + sizeof(struct header)), tag, bytes);
}

void *esp_realloc(enum esp_tag tag, void *ptr, size_t bytes)
{
    if (ptr == NULL) {
        return esp_malloc(tag, bytes);
    }
    if (bytes > SIZE_MAX / 2 || must_fail()) {
        return NULL;
    }
    struct header *old = (struct header *)ptr - 1;
    assert(old->magic == MAGIC);
    size_t old_bytes = old->bytes;
    uint32_t old_tag = old->tag;
    struct header *h = realloc(old, bytes + sizeof(struct header));
    if (h == NULL) {
        return NULL;
    }
    atomic_fetch_sub(&live_bytes[old_tag], old_bytes);
    atomic_fetch_sub(&n_live, 1);
    return finish(h, tag, bytes);
}

void esp_free(void *ptr)
{
    if (ptr == NULL) {
        return;
    }
    struct header *h = (struct header *)ptr - 1;
    assert(h->magic == MAGIC);
    h->magic = 0;
    atomic_fetch_sub(&live_bytes[h->tag], h->bytes);
    atomic_fetch_sub(&n_live, 1);
    free(h);
}

char *esp_strndup(enum esp_tag tag, const char *text, size_t n_bytes)
{
    char *copy = esp_malloc(tag, n_bytes + 1);
    if (copy != NULL) {
        memcpy(copy, text, n_bytes);
        copy[n_bytes] = '\0';
    }
    return copy;
}

void *esp_pages_map(enum esp_tag tag, size_t bytes)
{
    if (bytes == 0 || must_fail()) {
        return NULL;
    }
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED) {
        return NULL;
    }
    madvise(ptr, bytes, MADV_HUGEPAGE);
    atomic_fetch_add(&live_bytes[tag], bytes);
    atomic_fetch_add(&n_live, 1);
    return ptr;
}

void esp_pages_unmap(enum esp_tag tag, void *ptr, size_t bytes)
{
    if (ptr == NULL) {
        return;
    }
    munmap(ptr, bytes);
    atomic_fetch_sub(&live_bytes[tag], bytes);
    atomic_fetch_sub(&n_live, 1);
}

size_t esp_alloc_bytes(enum esp_tag tag)
{
    return atomic_load(&live_bytes[tag]);
}

uint64_t esp_alloc_calls(void)
{
    return atomic_load(&n_calls);
}

uint64_t esp_alloc_live(void)
{
    return atomic_load(&n_live);
}

bool esp_alloc_fail_at(uint64_t n)
{
    bool fired = atomic_exchange(&fail_fired, false);
    atomic_store(&fail_at, n == 0 ? 0 : atomic_load(&n_calls) + n);
    return fired;
}
