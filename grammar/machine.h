/* The frame machine: configurations of a running grammar, lazily built and shared.
 *
 *   configuration = set of threads, hash-consed; equal sets have equal ids
 *
 *     thread ──► expression (what this value still needs)
 *        │
 *        └─parent──► set of threads: where to go on when the value is complete ──► … ──► BOTTOM
 *
 * A call pushes: the child starts with a parent set that holds the caller's continuations; threads that call
 * the same node at the same byte share one child. A finished value pops to its parents; a number that may
 * end here is also already popped. So several readings of a text are followed at once and the state is
 * still one id; fork and rollback are copies of ids.
 *
 * A store is one generation of everything lazily built for a grammar: expressions, rows, configurations,
 * masks, under one lock and one byte limit. When it is full, matchers move to a new generation (they replay
 * their tokens) and the old one goes with its last matcher. Thread: any, under `lock`.
 */
#ifndef ESP_GRAMMAR_MACHINE_H
#define ESP_GRAMMAR_MACHINE_H

#include <pthread.h>

#include "grammar/expr.h"
#include "grammar/trie.h"

enum { ESP_CONF_DEAD = 0, ESP_CONF_BOTTOM = 1 };
#define ESP_CONF_UNKNOWN UINT32_MAX
#define ESP_CONF_THREADS_MAX 20000u
#define ESP_STORE_BYTES_MAX (48u * 1024 * 1024)
#define ESP_STORE_FUEL 50000000u /* steps that one mask or token may take; then it fails, not the process */
#define ESP_MASKS_BYTES_MAX (16u * 1024 * 1024)

struct esp_thread {
    uint32_t expr, parent;
};
struct esp_conf {
    uint32_t at, n;   /* threads[at … at + n) */
    uint32_t *next;   /* [256] or NULL; ESP_CONF_UNKNOWN = not yet asked; then its 8 words of alive bytes */
    uint32_t mask;    /* index into masks, 0 = none */
    uint32_t clamped; /* what masks see of it, ESP_CONF_UNKNOWN = not yet asked */
    uint8_t complete; /* the text may end here */
    uint8_t live;     /* can tokens finish it? enum in mask.c */
    uint8_t closed;   /* 0 not asked, 1 safe characters lead back here, 2 they do not */
    bool filled;      /* all of next is known, and the alive bytes */
    bool tokens;      /* a token taken whole may come first */
};

struct esp_mask {
    uint64_t *bits;
    uint32_t conf;
    uint32_t n_pins; /* matchers that hold it */
    uint32_t newer, older;
};

struct esp_store {
    pthread_mutex_t lock;
    uint32_t n_refs; /* under the grammar's lock */
    struct esp_exprs x;
    const uint32_t *starts; /* node → expression; borrowed from the grammar */
    const struct esp_trie *trie;
    struct esp_thread *threads;
    uint32_t n_threads, threads_cap;
    struct esp_conf *confs;
    uint32_t n_confs, confs_cap;
    uint32_t *table;
    uint32_t table_cap;
    struct esp_thread *work; /* scratch of closures */
    uint32_t n_work, work_cap;
    struct esp_seen { /* threads of this closure so far, by hash; those of another stamp are none */
        struct esp_thread thread;
        uint32_t stamp;
    } * seen;
    uint32_t n_seen, seen_cap, stamp;
    struct esp_pending *pending;
    uint32_t n_pending, pending_cap;
    struct esp_arena arena; /* next tables */
    struct esp_mask *masks; /* [0] is the list head */
    uint32_t n_masks, masks_cap, free_mask;
    size_t mask_bytes;
    uint32_t *stack; /* scratch of walks: configuration at each depth */
    uint32_t stack_cap;
};

/* base is copied. starts must stay until the store is gone. */
esp_status esp_store_create(const struct esp_exprs *base, const uint32_t *starts, const struct esp_trie *trie,
                            struct esp_store **ret_store);
void esp_store_destroy(struct esp_store *store); /* NULL is fine */
size_t esp_store_bytes(const struct esp_store *store);
bool esp_store_full(const struct esp_store *store);

/* All below: under the lock; results mean nothing once store->x.failed is set. */
uint32_t esp_conf_start(struct esp_store *store, uint32_t node);
uint32_t esp_conf_step(struct esp_store *store, uint32_t conf, unsigned byte);
/* The bytes that may come next. Fills the whole table of steps. */
struct esp_byteset esp_conf_alive(struct esp_store *store, uint32_t conf);
/* Where a token leads that is no end token: by its bytes, whole, or both. Budgets in it are counted. */
uint32_t esp_conf_take(struct esp_store *store, uint32_t conf, uint32_t token);
/* After the end of a token: budgets that were begun have one token less. */
uint32_t esp_conf_tick(struct esp_store *store, uint32_t conf);
/* Counters that no token of at most n_bytes can see the difference of are cut down. */
uint32_t esp_conf_clamp(struct esp_store *store, uint32_t conf, uint32_t n_bytes);
bool esp_conf_closed(struct esp_store *store, uint32_t conf);

/* threads.c. The configuration of threads[0 … n), which are put in order first. */
uint32_t esp_conf_intern(struct esp_store *store, struct esp_thread *threads, uint32_t n);
int esp_thread_compare(const void *a, const void *b);
/* Work begins anew: nothing was seen. */
void esp_work_clear(struct esp_store *store);
/* Adds a thread that was not seen yet. */
void esp_work_add(struct esp_store *store, uint32_t expr, uint32_t parent);
/* The configuration of the threads in work, which is cleared. */
uint32_t esp_work_take(struct esp_store *store);

/* mask.c. Returns an index into masks and pins it, or 0 when out of memory. */
uint32_t esp_store_mask(struct esp_store *store, uint32_t conf);
void esp_store_unpin(struct esp_store *store, uint32_t mask);
/* Can some sequence of tokens complete it? */
bool esp_store_live(struct esp_store *store, uint32_t conf);

#endif
