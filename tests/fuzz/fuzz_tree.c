/* The tree under a byte string of operations: each byte or two is one call, in any order that the
 * contract of tree.h allows. Whatever the bytes say, the walker must be content and all pages return.
 *
 * A string is "config, then operations"; fuzz_tree runs one. The test feeds it random strings and
 * short ones. ESPALIER_FUZZ_RUNS=N changes their number.
 */
#include "radix/dump.h"
#include "radix/tree.h"
#include "runtime/base/alloc.h"
#include "tests/esptest.h"

enum { LEASES_MAX = 16, PRIVATE_MAX = 64, P = ESP_TREE_PAGE_TOKENS };

struct input {
    const uint8_t *at, *end;
};

struct run {
    struct esp_tree *tree;
    struct esp_node_id leases[LEASES_MAX];
    struct esp_ns_id spaces[LEASES_MAX]; /* of the leases */
    uint32_t n_leases;
    struct esp_page_id pages[PRIVATE_MAX];
    uint32_t n_pages;
    int64_t now_ns;
};

static uint8_t take(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static struct esp_ns_id take_ns(struct run *run, struct input *in)
{
    uint8_t byte = take(in);
    struct esp_field fields[3] = {{"abc", byte & 3}, {"abc", byte >> 2 & 3}, {"z", byte >> 4 & 1}};
    struct esp_ns_id ns = {0};
    CHECK(esp_tree_namespace(run->tree, fields, byte >> 6, &ns, NULL) == ESP_OK, "namespace");
    return ns;
}

/* A page in one byte: how many tokens it shares with page 0, and a letter for the rest. */
static void take_page(struct input *in, uint32_t *out)
{
    uint8_t byte = take(in);
    for (uint32_t idx = 0; idx < P; idx++) {
        out[idx] = idx < byte >> 4 ? 7 : byte & 3;
    }
}

static void op_match(struct run *run, struct input *in)
{
    uint32_t tokens[6 * P];
    struct esp_ns_id ns = take_ns(run, in);
    uint32_t n_tokens = take(in) % (6 * P + 1);
    for (uint32_t idx = 0; idx < 6; idx++) {
        take_page(in, tokens + idx * P);
    }
    struct esp_match match;
    esp_tree_match(run->tree, ns, tokens, n_tokens, &match);
    CHECK(match.n_pages * P + match.n_copy_tokens <= n_tokens, "never more than was asked for");
    if (match.last.v != ESP_NODE_NONE.v && run->n_leases < LEASES_MAX) {
        esp_tree_lease(run->tree, match.last, NULL);
        run->spaces[run->n_leases] = ns;
        run->leases[run->n_leases++] = match.last;
    }
}

static void op_alloc(struct run *run, struct input *in)
{
    uint32_t n = take(in) % 8;
    if (n <= PRIVATE_MAX - run->n_pages && esp_tree_alloc(run->tree, n, run->pages + run->n_pages) == ESP_OK) {
        run->n_pages += n;
    }
}

static void op_insert(struct run *run, struct input *in)
{
    bool is_below = run->n_leases > 0 && take(in) % 4 != 0;
    if (run->n_pages == 0 || (!is_below && run->n_leases == LEASES_MAX)) {
        return;
    }
    uint32_t which = is_below ? take(in) % run->n_leases : run->n_leases;
    struct esp_ns_id ns = is_below ? run->spaces[which] : take_ns(run, in);
    struct esp_node_id parent = is_below ? run->leases[which] : ESP_NODE_NONE;
    enum esp_page_state state = take(in) % 2 ? ESP_PAGE_PENDING : ESP_PAGE_CACHED;
    if (is_below && esp_tree_node_state(run->tree, parent) == ESP_PAGE_PENDING) {
        state = ESP_PAGE_PENDING;
    }
    uint32_t tokens[P];
    take_page(in, tokens);
    bool existed;
    esp_status status = esp_tree_insert(run->tree, ns, parent, tokens, run->pages[run->n_pages - 1], state,
                                        &run->leases[which], &existed);
    CHECK(status == ESP_OK, "insert %d", status);
    run->spaces[which] = ns;
    run->n_pages -= !existed;
    run->n_leases += !is_below;
}

static void op_release(struct run *run, struct input *in)
{
    if (run->n_leases == 0) {
        return;
    }
    uint32_t which = take(in) % run->n_leases;
    esp_tree_release(run->tree, run->leases[which], (enum esp_evict_class)(take(in) % ESP_CLASS_PINNED));
    run->n_leases--;
    run->leases[which] = run->leases[run->n_leases];
    run->spaces[which] = run->spaces[run->n_leases];
}

/* Publishes the pending node of a lease that is nearest to the root. */
static void op_publish(struct run *run, struct input *in)
{
    if (run->n_leases == 0) {
        return;
    }
    struct esp_node_id first = ESP_NODE_NONE;
    for (struct esp_node_id at = run->leases[take(in) % run->n_leases]; at.v != ESP_NODE_NONE.v;
         at = esp_tree_node_parent(run->tree, at)) {
        first = esp_tree_node_state(run->tree, at) == ESP_PAGE_PENDING ? at : first;
    }
    if (first.v != ESP_NODE_NONE.v) {
        esp_tree_publish(run->tree, first);
    }
}

static void op_rest(struct run *run, struct input *in)
{
    uint8_t byte = take(in);
    if (byte < 16) {
        esp_tree_flush(run->tree);
    } else if (byte < 128 && run->n_pages > 0) {
        uint32_t n = 1 + byte % run->n_pages;
        run->n_pages -= n;
        esp_tree_free_private(run->tree, run->pages + run->n_pages, n);
    } else {
        run->now_ns += (int8_t)byte;
        esp_tree_set_now(run->tree, run->now_ns);
    }
}

static void check_dump(const struct esp_tree *tree)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_MISC, 4096);
    esp_tree_dump_text(tree, 20, &buf);
    esp_tree_dump_dot(tree, 20, &buf);
    esp_buf_finish(&buf);
}

static void fuzz_tree(const uint8_t *bytes, size_t n_bytes)
{
    static void (*const ops[])(struct run *, struct input *) = {op_match,   op_alloc,   op_insert, op_insert,
                                                                op_release, op_publish, op_rest,   op_insert};
    struct input in = {bytes, bytes + n_bytes};
    struct esp_tree_config config = {.n_pages = 1 + take(&in) % 40, .hash_bits = 1 + take(&in) % 128};
    struct run run = {0};
    REQUIRE(esp_tree_create(&config, &run.tree, NULL) == ESP_OK, "create");
    char reason[160] = "";
    while (in.at < in.end && esp_test_state.n_failed == 0) {
        ops[take(&in) % 8](&run, &in);
        CHECK(esp_tree_check(run.tree, reason, sizeof reason), "%s", reason);
    }
    check_dump(run.tree);
    struct input none = {0};
    while (run.n_leases > 0) {
        op_release(&run, &none);
    }
    esp_tree_free_private(run.tree, run.pages, run.n_pages);
    esp_tree_flush(run.tree);
    struct esp_tree_stats stats;
    esp_tree_get_stats(run.tree, &stats);
    CHECK(stats.pages[ESP_PAGE_FREE] == config.n_pages && stats.leased == 0, "all pages back");
    esp_tree_destroy(run.tree);
}

static void test_random_bytes(void)
{
    const char *wanted = getenv("ESPALIER_FUZZ_RUNS");
    uint64_t n_runs = wanted == NULL ? 3000 : strtoull(wanted, NULL, 0);
    uint8_t bytes[1024];
    for (uint64_t n = 0; n < n_runs && esp_test_state.n_failed == 0; n++) {
        size_t n_bytes = esp_rng_below(&esp_test_state.rng, sizeof bytes + 1);
        for (size_t idx = 0; idx < n_bytes; idx++) {
            bytes[idx] = (uint8_t)esp_rng_next(&esp_test_state.rng);
        }
        fuzz_tree(bytes, n_bytes);
    }
}

static void test_short_and_empty(void)
{
    fuzz_tree((const uint8_t *)"", 0);
    uint8_t bytes[3] = {0};
    for (uint32_t all = 0; all < 1 << 16; all += 257) {
        bytes[0] = (uint8_t)all;
        bytes[2] = (uint8_t)(all >> 8);
        fuzz_tree(bytes, sizeof bytes);
    }
}

ESP_TEST_MAIN(T(test_random_bytes), T(test_short_and_empty))
