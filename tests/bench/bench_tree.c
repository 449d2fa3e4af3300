/* What the tree costs: one JSON object a line on stdout.
 *
 * usage: bench_tree [pages = 100000] [repeats = 21]
 *
 * Three shapes fill the pool: one prompt of 50,000 tokens among many short ones (match, lease and release
 * of a long path), thousands of tickets behind one policy (a wide node), and a full pool that gives up
 * pages one after the other (eviction). Times are medians of `repeats` runs, in nanoseconds.
 */
#include "radix/tree.h"
#include "runtime/base/clock.h"
#include "tests/esptest.h"

enum { P = ESP_TREE_PAGE_TOKENS, LONG_PAGES = 3125, TICKET_PAGES = 8, POLICY_PAGES = 256, REPEATS_MAX = 1001 };

static struct {
    struct esp_tree *tree;
    struct esp_ns_id ns;
    uint32_t n_pages, n_repeats;
    uint32_t *tokens; /* [LONG_PAGES × P] */
    int64_t times[REPEATS_MAX];
} b;

static int64_t now_ns(void)
{
    struct esp_clock clock = esp_clock_monotonic();
    return esp_clock_now(&clock);
}

static int by_time(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, c = *(const int64_t *)right;
    return (a > c) - (a < c);
}

/* Prints the median and the range of the first n_repeats times, each for n_items. */
static void report(const char *work, uint32_t n_items)
{
    qsort(b.times, b.n_repeats, sizeof b.times[0], by_time);
    double median = (double)b.times[b.n_repeats / 2];
    printf("{\"work\":\"%s\",\"pool_pages\":%u,\"items\":%u,\"ns\":{\"median\":%.0f,\"min\":%lld,\"max\":%lld},"
           "\"ns_per_item\":%.1f}\n",
           work, b.n_pages, n_items, median, (long long)b.times[0], (long long)b.times[b.n_repeats - 1],
           median / n_items);
}

static void fill_tokens(uint64_t seed, uint32_t n_pages)
{
    struct esp_rng rng = {seed};
    for (uint32_t idx = 0; idx < n_pages * P; idx++) {
        b.tokens[idx] = (uint32_t)esp_rng_below(&rng, 50000);
    }
}

/* Enters the pages of b.tokens [from, to) below `parent`; the lease moves to the node returned. */
static struct esp_node_id enter(struct esp_node_id parent, uint32_t from, uint32_t to)
{
    for (uint32_t idx = from; idx < to; idx++) {
        struct esp_page_id page;
        bool existed;
        if (esp_tree_alloc(b.tree, 1, &page) != ESP_OK ||
            esp_tree_insert(b.tree, b.ns, parent, b.tokens + (size_t)idx * P, page, ESP_PAGE_CACHED, &parent,
                            &existed) != ESP_OK) {
            printf("{\"error\":\"the pool is too small\"}\n");
            exit(1);
        }
        if (existed) {
            esp_tree_free_private(b.tree, &page, 1);
        }
    }
    return parent;
}

/* Frees all pages in random order, so that paths lie scattered in memory as after hours of use. */
static void shuffle_pool(void)
{
    struct esp_page_id *pages = malloc(b.n_pages * sizeof *pages);
    struct esp_rng rng = {3};
    if (pages == NULL || esp_tree_alloc(b.tree, b.n_pages, pages) != ESP_OK) {
        printf("{\"error\":\"out of memory\"}\n");
        exit(1);
    }
    for (uint32_t idx = b.n_pages - 1; idx > 0; idx--) {
        uint32_t other = (uint32_t)esp_rng_below(&rng, idx + 1);
        struct esp_page_id page = pages[idx];
        pages[idx] = pages[other];
        pages[other] = page;
    }
    esp_tree_free_private(b.tree, pages, b.n_pages);
    free(pages);
}

static void make_pool(void)
{
    struct esp_tree_config config = {.n_pages = b.n_pages, .seed = 42, .hash_bits = 128};
    struct esp_field field = {"bench", 5};
    if (esp_tree_create(&config, &b.tree, NULL) != ESP_OK ||
        esp_tree_namespace(b.tree, &field, 1, &b.ns, NULL) != ESP_OK) {
        printf("{\"error\":\"out of memory\"}\n");
        exit(1);
    }
}

/* Short one-off prompts up to the given number of pages in the tree. */
static void fill_pool(uint32_t n_pages)
{
    for (uint32_t n = 0; n + TICKET_PAGES <= n_pages; n += TICKET_PAGES) {
        fill_tokens(1000 + n, TICKET_PAGES);
        esp_tree_release(b.tree, enter(ESP_NODE_NONE, 0, TICKET_PAGES), ESP_CLASS_NORMAL);
    }
}

/* The same with cold caches: 128 MiB are written between two matches. */
static void bench_cold(void)
{
    enum { N = 128 << 20 };
    char *waste = calloc(1, N);
    if (waste == NULL) {
        return;
    }
    struct esp_match match;
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        for (size_t at = 0; at < N; at += 64) {
            waste[at]++;
        }
        int64_t start = now_ns();
        esp_tree_match(b.tree, b.ns, b.tokens, LONG_PAGES * P, &match);
        b.times[idx] = now_ns() - start;
    }
    free(waste);
    report("match_cold", LONG_PAGES);
}

static void bench_long(void)
{
    struct esp_match match;
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        int64_t start = now_ns();
        esp_tree_match(b.tree, b.ns, b.tokens, LONG_PAGES * P, &match);
        b.times[idx] = now_ns() - start;
    }
    report("match", LONG_PAGES);
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        int64_t start = now_ns();
        esp_tree_lease(b.tree, match.last, NULL);
        b.times[idx] = now_ns() - start;
        esp_tree_release(b.tree, match.last, ESP_CLASS_NORMAL);
    }
    report("lease", LONG_PAGES);
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        esp_tree_lease(b.tree, match.last, NULL);
        int64_t start = now_ns();
        esp_tree_release(b.tree, match.last, ESP_CLASS_NORMAL);
        b.times[idx] = now_ns() - start;
    }
    report("release", LONG_PAGES);
    esp_tree_lease(b.tree, match.last, NULL);
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        int64_t start = now_ns();
        esp_tree_match(b.tree, b.ns, b.tokens, LONG_PAGES * P, &match);
        b.times[idx] = now_ns() - start;
    }
    report("match_leased", LONG_PAGES);
    esp_tree_release(b.tree, match.last, ESP_CLASS_NORMAL);
}

/* A prompt that differs in the page after the policy, with thousands of such pages in the tree. */
static void bench_wide(uint32_t n_tickets)
{
    fill_tokens(7, POLICY_PAGES + 1);
    esp_tree_release(b.tree, enter(ESP_NODE_NONE, 0, POLICY_PAGES), ESP_CLASS_NORMAL);
    struct esp_match match;
    esp_tree_match(b.tree, b.ns, b.tokens, POLICY_PAGES * P, &match);
    for (uint32_t idx = 0; idx < n_tickets; idx++) {
        b.tokens[POLICY_PAGES * P] = 100000 + idx;
        esp_tree_lease(b.tree, match.last, NULL);
        esp_tree_release(b.tree, enter(match.last, POLICY_PAGES, POLICY_PAGES + 1), ESP_CLASS_TAIL);
    }
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        b.tokens[POLICY_PAGES * P] = 99999;
        int64_t start = now_ns();
        esp_tree_match(b.tree, b.ns, b.tokens, (POLICY_PAGES + 1) * P - 1, &match);
        b.times[idx] = now_ns() - start;
    }
    report("match_wide", POLICY_PAGES);
}

static void bench_insert_and_evict(void)
{
    enum { N = 2048 };
    static struct esp_page_id pages[N];
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        int64_t start = now_ns();
        bool ok = esp_tree_alloc(b.tree, N, pages) == ESP_OK;
        b.times[idx] = now_ns() - start;
        esp_tree_free_private(b.tree, pages, ok ? N : 0);
        fill_pool(N);
    }
    report("alloc_evicting", N);
    for (uint32_t idx = 0; idx < b.n_repeats; idx++) {
        fill_tokens(900000 + idx, N);
        esp_tree_free_private(b.tree, pages, esp_tree_alloc(b.tree, N, pages) == ESP_OK ? N : 0);
        int64_t start = now_ns();
        struct esp_node_id last = enter(ESP_NODE_NONE, 0, N);
        b.times[idx] = now_ns() - start;
        esp_tree_release(b.tree, last, ESP_CLASS_NORMAL);
    }
    report("insert", N);
}

int main(int argc, char **argv)
{
    b.n_pages = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 100000;
    b.n_repeats = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 0) : 21;
    static uint32_t tokens[LONG_PAGES * P];
    b.tokens = tokens;
    if (b.n_pages < 4 * LONG_PAGES || b.n_repeats == 0 || b.n_repeats > REPEATS_MAX) {
        printf("{\"error\":\"at least %d pages, 1 to %d repeats\"}\n", 4 * LONG_PAGES, REPEATS_MAX);
        return 2;
    }
    make_pool();
    shuffle_pool();
    fill_pool(b.n_pages - 2 * LONG_PAGES);
    fill_tokens(1, LONG_PAGES);
    esp_tree_release(b.tree, enter(ESP_NODE_NONE, 0, LONG_PAGES), ESP_CLASS_NORMAL);
    bench_long();
    bench_cold();
    bench_wide(b.n_pages / 20);
    fill_pool(b.n_pages);
    bench_insert_and_evict();
    esp_tree_destroy(b.tree);
    return 0;
}
