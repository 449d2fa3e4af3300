/* Pages that outlive their place in memory: what the engine saves to the page file, and what it gets back.
 *
 *   turn ends, pin made ──► queue of paths ──► a few pages a step, root side first ──► tier ──► page file
 *   a prompt that the tree does not know ──► asks the tier once ──► pages enter the tree as cached
 *
 * Saved are paths that are likely to be asked for again (whatever is not TAIL). A sequence that waits for pages is
 * held, but never long: when no page has come for about as long as a part of the rest takes to compute, the rest is
 * computed, and nobody asks the file for ESP_KEEP_SLOW_NS. Twins are held as well and find the pages in the tree.
 *
 * There is no tier between device and disk: on this device pages lie in host memory already, so copies of them in host
 * memory would only make the pool smaller; and what was saved of late is in the system's file cache anyway.
 * Thread: the engine's. A store without a tier does nothing.
 */
#ifndef ESP_RUNTIME_KEEP_H
#define ESP_RUNTIME_KEEP_H

#include "kernels/ops.h"
#include "runtime/job.h"
#include "runtime/tier.h"

#define ESP_KEEP_WAIT_NS ((int64_t)200000000) /* and for each page that is missing … */
#define ESP_KEEP_PAGE_NS ((int64_t)5000000)   /* … this; at most … */
#define ESP_KEEP_WAIT_MAX_NS ((int64_t)3000000000)
#define ESP_KEEP_SLOW_NS ((int64_t)5000000000)
#define ESP_KEEP_QUEUE 1024
#define ESP_KEEP_STEP_PAGES 128 /* taken from the tier in one step */
#define ESP_KEEP_ASK_PAGES 2    /* what lacks fewer pages is computed */

struct esp_lease_ctx;

struct esp_keep_path {
    struct esp_node_id node;
    enum esp_evict_class class;
};

struct esp_keep {
    struct esp_tier *tier; /* NULL: there is no page file */
    struct esp_tree *tree;
    const struct esp_ops *ops;
    struct esp_dev *dev;
    char *kv;
    size_t page_bytes;
    uint32_t n_pages_max; /* of a path */
    struct esp_keep_path queue[ESP_KEEP_QUEUE];
    uint32_t first, n_queued;
    struct esp_page_id *pages; /* [n_pages_max] of the path being saved */
    uint32_t *tokens;          /* [n_pages_max × 16] */
    struct esp_seq *reader;    /* whose pages are being read */
    uint32_t next;             /* page of its prompt that comes next */
    uint32_t n_wanted;         /* pages of the prompt */
    int64_t since_ns;          /* the last page came */
    int64_t slow_until_ns;
    bool moved; /* something came, or a batch was sent, since the flag was cleared */
    uint64_t n_saved, n_restored, n_slow;
};

size_t esp_keep_bytes(uint32_t page_bytes, uint32_t n_pages_max); /* with its tier, beside the struct */
/* parts: all fields up to n_pages_max; the tier is taken, also on failure. */
esp_status esp_keep_init(struct esp_keep *store, const struct esp_keep *parts, struct esp_err *err);
void esp_keep_finish(struct esp_keep *store); /* zeroed is fine */
/* The path of a node is worth keeping. When too many wait it is not kept. */
void esp_keep_add(struct esp_keep *store, struct esp_node_id node, enum esp_evict_class class);
/* Sends the next batch, if the last one is done. False: nothing waits to be saved. */
bool esp_keep_save(struct esp_keep *store);
/* Saves all that waits, for at most max_ns. */
void esp_keep_drain(struct esp_keep *store, int64_t max_ns);
/* Gives the sequence pages that have come. True: it must wait for more. */
bool esp_keep_holds(struct esp_keep *store, const struct esp_lease_ctx *lease, struct esp_seq *seq, int64_t now_ns);
/* When the reader stops waiting; INT64_MAX: there is none. */
int64_t esp_keep_until_ns(const struct esp_keep *store);
/* The sequence gives its pages up. */
void esp_keep_forget(struct esp_keep *store, struct esp_seq *seq);

#endif
