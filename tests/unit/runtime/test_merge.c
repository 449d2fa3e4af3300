/* The merge loop against a naive twin (always the lowest order, leftmost), and its work counted, not timed. */
#include "runtime/base/map.h"
#include "runtime/tokenizer_merge.h"
#include "tests/esptest.h"

/* A random merge table over symbols 0 … n_syms − 1: pair → order in bits 16 …, symbol made below. */
struct table {
    struct esp_map pairs;
    uint32_t n_syms;
};

static bool lookup(void *ctx, const struct esp_merge_symbol *left, const struct esp_merge_symbol *right,
                   uint32_t *ret_order, uint32_t *ret_sym)
{
    const struct table *table = ctx;
    uint32_t value = esp_map_get(&table->pairs, (uint64_t)left->sym << 32 | right->sym);
    if (value == ESP_MAP_NONE) {
        return false;
    }
    *ret_order = value >> 16;
    *ret_sym = value & 0xFFFF;
    return true;
}

/* Orders repeat when many_ties is set, as scores do in SPM. */
static void fill_table(struct table *table, struct esp_rng *rng, bool many_ties)
{
    esp_map_init(&table->pairs, ESP_TAG_MISC);
    table->n_syms = 3;
    uint32_t n_pairs = (uint32_t)esp_rng_below(rng, 40);
    for (uint32_t idx = 0; idx < n_pairs; idx++) {
        uint64_t left = esp_rng_below(rng, table->n_syms), right = esp_rng_below(rng, table->n_syms);
        uint32_t order = many_ties ? (uint32_t)esp_rng_below(rng, 3) : idx;
        if (esp_map_get(&table->pairs, left << 32 | right) == ESP_MAP_NONE) {
            esp_map_put(&table->pairs, left << 32 | right, order << 16 | table->n_syms++);
        }
    }
}

static uint32_t naive_merge(const struct table *table, uint32_t *syms, uint32_t n)
{
    for (;;) {
        uint32_t best = UINT32_MAX, best_at = 0;
        for (uint32_t idx = 0; idx + 1 < n; idx++) {
            uint32_t value = esp_map_get(&table->pairs, (uint64_t)syms[idx] << 32 | syms[idx + 1]);
            if (value != ESP_MAP_NONE && value >> 16 < best) {
                best = value >> 16;
                best_at = idx;
            }
        }
        if (best == UINT32_MAX) {
            return n;
        }
        syms[best_at] = esp_map_get(&table->pairs, (uint64_t)syms[best_at] << 32 | syms[best_at + 1]) & 0xFFFF;
        memmove(&syms[best_at + 1], &syms[best_at + 2], (n - best_at - 2) * sizeof *syms);
        n--;
    }
}

static void test_twin(void)
{
    struct esp_merge merge;
    esp_merge_init(&merge);
    for (int run = 0; run < 4000; run++) {
        struct table table;
        fill_table(&table, &esp_test_state.rng, run % 2 == 0);
        uint32_t syms[64], n = (uint32_t)esp_rng_below(&esp_test_state.rng, 64);
        esp_merge_clear(&merge);
        for (uint32_t idx = 0; idx < n; idx++) {
            syms[idx] = (uint32_t)esp_rng_below(&esp_test_state.rng, 3);
            CHECK(esp_merge_add(&merge, syms[idx], idx, 1) == ESP_OK, "add");
        }
        CHECK(esp_merge_run(&merge, lookup, &table) == ESP_OK, "run");
        uint32_t n_want = naive_merge(&table, syms, n), n_got = 0, at = 0;
        for (uint32_t idx = n == 0 ? ESP_MERGE_NONE : 0; idx != ESP_MERGE_NONE; idx = merge.symbols[idx].next) {
            CHECK(n_got < n_want && merge.symbols[idx].sym == syms[n_got], "run %d symbol %u", run, n_got);
            CHECK(merge.symbols[idx].at == at, "run %d: symbol %u is not where it lies", run, n_got);
            at += merge.symbols[idx].n_bytes;
            n_got++;
        }
        CHECK(n_got == n_want && at == n, "run %d: %u symbols, not %u", run, n_got, n_want);
        esp_map_finish(&table.pairs);
    }
    esp_merge_finish(&merge);
}

/* Everything joins with everything, in a random but fixed order of the two symbols. */
static bool join_all(void *ctx, const struct esp_merge_symbol *left, const struct esp_merge_symbol *right,
                     uint32_t *ret_order, uint32_t *ret_sym)
{
    bool same = ctx != NULL;
    uint64_t mixed = esp_rng_mix((uint64_t)left->sym << 32 | right->sym);
    *ret_order = same ? 5 : (uint32_t)mixed & 0xFFFFFF;
    *ret_sym = (uint32_t)(mixed >> 40);
    return true;
}

static void test_work(void)
{
    enum { N_CHARS = 1000000, LOG2 = 20 };
    static int same_order;
    for (int kind = 0; kind < 3; kind++) { /* random letters, one letter, one order for all */
        struct esp_merge merge;
        esp_merge_init(&merge);
        for (uint32_t idx = 0; idx < N_CHARS; idx++) {
            uint32_t sym = kind == 1 ? 'a' : (uint32_t)esp_rng_below(&esp_test_state.rng, 26);
            REQUIRE(esp_merge_add(&merge, sym, idx, 1) == ESP_OK, "add");
        }
        CHECK(esp_merge_run(&merge, join_all, kind == 2 ? &same_order : NULL) == ESP_OK, "run");
        CHECK(merge.symbols[0].n_bytes == N_CHARS && merge.symbols[0].next == ESP_MERGE_NONE, "all joined");
        CHECK(merge.n_lookups <= 3ull * N_CHARS, "kind %d: %llu look-ups", kind, (unsigned long long)merge.n_lookups);
        CHECK(merge.n_sifts <= 3ull * N_CHARS * LOG2, "kind %d: %llu sifts", kind, (unsigned long long)merge.n_sifts);
        esp_merge_finish(&merge);
    }
}

ESP_TEST_MAIN(T(test_twin), T(test_work))
