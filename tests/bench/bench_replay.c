/* Hit rates of the tree on recorded or generated loads: one JSON object a line on stdout.
 *
 * usage: bench_replay [TRACE.jsonl [BLOCK_TOKENS = 512]]
 *
 * A trace has one request a line, in order, with "hash_ids": numbers of the blocks of its prompt (the form of the
 * public Mooncake traces, 512 tokens a block). Without one the generated triage load is replayed at 1 and 3 sessions
 * a second. No time passes in a step: only what is kept is measured. "lru" is the same tree told nothing.
 */
#include <jansson.h>

#include "tests/bench/replay.h"

static void report(const char *load, double rate, uint32_t n_requests, uint32_t pool_tokens,
                   const struct replay_result *known, const struct replay_result *lru)
{
    printf("{\"load\":\"%s\",\"sessions_per_s\":%g,\"requests\":%u,\"pool_tokens\":%u,\"tokens\":%llu,"
           "\"hit_rate\":{\"conversations\":%.4f,\"lru\":%.4f}}\n",
           load, rate, n_requests, pool_tokens, (unsigned long long)known->n_tokens,
           (double)known->n_hit / (double)known->n_tokens, (double)lru->n_hit / (double)lru->n_tokens);
}

static void generated(double rate, double scans)
{
    struct replay_load load = replay_make(7, 6000, rate, scans);
    struct replay_result known = replay_run(&load, 256000, false), lru = replay_run(&load, 256000, true);
    report(scans > 0 ? "triage with scans" : "triage", rate, load.n, 256000, &known, &lru);
    free(load.requests);
}

/* One pass over a trace. */
static uint32_t replay_file(const char *path, uint32_t block_tokens, uint32_t pool_tokens, bool lru,
                            struct replay_result *result)
{
    static uint32_t blocks[REPLAY_BLOCKS_MAX];
    uint32_t n_requests = 0, block_pages = block_tokens / ESP_TREE_PAGE_TOKENS;
    uint32_t *tokens = malloc((size_t)REPLAY_BLOCKS_MAX * block_tokens * sizeof *tokens);
    struct esp_tree_config config = {.n_pages = pool_tokens / ESP_TREE_PAGE_TOKENS, .seed = 7, .hash_bits = 128};
    struct esp_field field = {"trace", 5};
    struct esp_tree *tree;
    struct esp_ns_id ns;
    FILE *file = fopen(path, "r");
    if (file == NULL || tokens == NULL || esp_tree_create(&config, &tree, NULL) != ESP_OK ||
        esp_tree_namespace(tree, &field, 1, &ns, NULL) != ESP_OK) {
        fprintf(stderr, "%s: cannot be replayed\n", path);
        exit(1);
    }
    for (json_t *line; (line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; json_decref(line)) {
        const json_t *ids = json_object_get(line, "hash_ids");
        uint32_t n = 0;
        for (size_t idx = 0; idx < json_array_size(ids) && n < REPLAY_BLOCKS_MAX; idx++) {
            blocks[n++] = (uint32_t)json_integer_value(json_array_get(ids, idx));
        }
        if (n > 0 && n * block_pages <= config.n_pages) {
            uint32_t n_tokens = replay_tokens(blocks, n, block_pages, tokens);
            esp_tree_set_now(tree, (int64_t)json_integer_value(json_object_get(line, "timestamp")) * 1000000);
            result->n_tokens += n_tokens;
            /* Nothing tells how an answer ended, so the whole prompt is kept, as for a plain completion. */
            result->n_hit += replay_one(tree, ns, tokens, n_tokens, n * block_pages, true, lru);
            n_requests++;
        }
    }
    fclose(file);
    esp_tree_destroy(tree);
    free(tokens);
    return n_requests;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        generated(1, 0);
        generated(3, 0);
        generated(1, 0.3);
        return esp_test_state.n_failed > 0;
    }
    int block_tokens = argc > 2 ? atoi(argv[2]) : 512;
    if (block_tokens < ESP_TREE_PAGE_TOKENS || block_tokens % ESP_TREE_PAGE_TOKENS != 0 || block_tokens > 4096) {
        fprintf(stderr, "blocks have 16 to 4096 tokens, in multiples of 16\n");
        return 2;
    }
    for (uint32_t pool_tokens = 1 << 18; pool_tokens <= 1 << 22; pool_tokens *= 4) {
        struct replay_result known = {0}, lru = {0};
        uint32_t n = replay_file(argv[1], (uint32_t)block_tokens, pool_tokens, false, &known);
        replay_file(argv[1], (uint32_t)block_tokens, pool_tokens, true, &lru);
        report("trace", 0, n, pool_tokens, &known, &lru);
    }
    return 0;
}
