/* Loads for the tree alone: requests in order, each matched, filled up and ended as the engine does it.
 *
 * The generated one is that of triage agents: few long policies, tickets that take some turns with a tool between
 * two of them, and one-off prompts in between. Pauses are log-normal (median 5.2 s, one in a hundred above 81 s), as
 * in published traces of coding agents. Prompts are blocks of tokens; equal numbers are equal blocks.
 */
#ifndef ESP_TESTS_REPLAY_H
#define ESP_TESTS_REPLAY_H

#include <math.h>

#include "radix/tree.h"
#include "tests/esptest.h"

#define REPLAY_BLOCKS_MAX 4096
enum { REPLAY_SYSTEM = 96, REPLAY_FIRST = 16, REPLAY_TURN = 12, REPLAY_POLICIES = 4, REPLAY_BLOCK_PAGES = 4 };

struct replay_request {
    double at_s;
    uint32_t session; /* 0: a one-off prompt */
    uint32_t policy, n_blocks;
    uint32_t own; /* number of the first block behind the policy; they follow one another */
    uint32_t turn;
    bool last;
};

struct replay_load {
    struct replay_request *requests;
    uint32_t n, room;
};

struct replay_result {
    uint64_t n_tokens, n_hit; /* of all requests */
    uint64_t n_lost;          /* tokens that an earlier turn of a session had and a later one did not find */
};

static inline double replay_unit(struct esp_rng *rng)
{
    return ((double)(esp_rng_next(rng) >> 11) + 0.5) / 9007199254740992.0;
}

static inline double replay_normal(struct esp_rng *rng)
{
    double u = replay_unit(rng), v = replay_unit(rng);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static inline void replay_add(struct replay_load *load, const struct replay_request *request)
{
    if (load->n == load->room) {
        load->room = load->room == 0 ? 1024 : 2 * load->room;
        load->requests = realloc(load->requests, load->room * sizeof *load->requests);
    }
    load->requests[load->n++] = *request;
}

static inline int replay_by_time(const void *left, const void *right)
{
    const struct replay_request *a = left, *b = right;
    return (a->at_s > b->at_s) - (a->at_s < b->at_s);
}

/* The turns of one ticket. */
static inline void replay_ticket(struct replay_load *load, struct esp_rng *rng, double at_s, uint32_t session,
                                 uint32_t *next_block)
{
    double mu = log(5.2), sigma = (log(81.4) - mu) / 2.326;
    uint32_t policy = (uint32_t)(1.0 / replay_unit(rng)) - 1, n_turns = 3 + (uint32_t)esp_rng_below(rng, 8);
    policy = policy < REPLAY_POLICIES ? policy : REPLAY_POLICIES - 1;
    for (uint32_t turn = 0; turn < n_turns; turn++) {
        struct replay_request request = {.at_s = at_s,
                                         .session = session,
                                         .policy = policy,
                                         .n_blocks = REPLAY_SYSTEM + REPLAY_FIRST + turn * REPLAY_TURN,
                                         .own = *next_block,
                                         .turn = turn,
                                         .last = turn + 1 == n_turns};
        replay_add(load, &request);
        at_s += 2.0 + exp(mu + sigma * replay_normal(rng));
    }
    *next_block += REPLAY_FIRST + n_turns * REPLAY_TURN;
}

static inline struct replay_load replay_make(uint64_t seed, uint32_t n_sessions, double sessions_per_s, double scans)
{
    struct replay_load load = {0};
    struct esp_rng rng = {seed};
    uint32_t next_block = 1000000;
    double at_s = 0;
    for (uint32_t session = 1; session <= n_sessions; session++) {
        at_s -= log(replay_unit(&rng)) / sessions_per_s;
        if (replay_unit(&rng) < scans) {
            struct replay_request scan = {.at_s = at_s,
                                          .policy = UINT32_MAX,
                                          .n_blocks = 100 + (uint32_t)esp_rng_below(&rng, 301),
                                          .own = next_block,
                                          .last = true};
            replay_add(&load, &scan);
            next_block += scan.n_blocks;
        } else {
            replay_ticket(&load, &rng, at_s, session, &next_block);
        }
    }
    qsort(load.requests, load.n, sizeof *load.requests, replay_by_time);
    return load;
}

static inline uint32_t replay_tokens(const uint32_t *blocks, uint32_t n_blocks, uint32_t block_pages, uint32_t *tokens)
{
    uint32_t n = 0;
    for (uint32_t idx = 0; idx < n_blocks * block_pages; idx++) {
        for (uint32_t at = 0; at < ESP_TREE_PAGE_TOKENS; at++) {
            tokens[n++] = blocks[idx / block_pages] * block_pages + idx % block_pages + (at == 0 ? 0 : at * 7919);
        }
    }
    return n;
}

/* One request: returns the tokens that were found. lru: conversations are not told apart. */
static inline uint32_t replay_one(struct esp_tree *tree, struct esp_ns_id ns, const uint32_t *tokens, uint32_t n_tokens,
                                  uint32_t n_head, bool last, bool lru)
{
    struct esp_match match;
    esp_tree_match(tree, ns, tokens, n_tokens, &match);
    struct esp_node_id node = match.last;
    if (match.n_pages > 0) {
        esp_tree_lease(tree, node, NULL);
    }
    uint32_t n_prompt = n_tokens / ESP_TREE_PAGE_TOKENS;
    for (uint32_t idx = match.n_pages; idx < n_prompt; idx++) {
        struct esp_page_id page;
        bool existed;
        if (esp_tree_alloc(tree, 1, &page) != ESP_OK ||
            esp_tree_insert(tree, ns, node, tokens + (size_t)idx * ESP_TREE_PAGE_TOKENS, page, ESP_PAGE_CACHED, &node,
                            &existed) != ESP_OK) {
            CHECK(false, "the pool is too small for one prompt");
            return 0;
        }
    }
    if (lru) {
        esp_tree_release(tree, node, ESP_CLASS_NORMAL);
    } else {
        struct esp_tree_turn turn = {.node = node,
                                     .turn = node,
                                     .session = esp_tree_session(tree, node),
                                     .n_head = n_head,
                                     .comes_back = !last};
        esp_tree_end_turn(tree, &turn);
    }
    return match.n_pages * ESP_TREE_PAGE_TOKENS;
}

static inline struct replay_result replay_run(const struct replay_load *load, uint32_t n_pool_tokens, bool lru)
{
    struct replay_result result = {0};
    struct esp_tree_config config = {.n_pages = n_pool_tokens / ESP_TREE_PAGE_TOKENS, .seed = 7, .hash_bits = 128};
    struct esp_field field = {"replay", 6};
    struct esp_tree *tree;
    struct esp_ns_id ns;
    uint32_t *blocks = malloc(REPLAY_BLOCKS_MAX * sizeof *blocks);
    uint32_t *tokens = malloc(REPLAY_BLOCKS_MAX * REPLAY_BLOCK_PAGES * ESP_TREE_PAGE_TOKENS * sizeof *tokens);
    if (blocks == NULL || tokens == NULL || esp_tree_create(&config, &tree, NULL) != ESP_OK ||
        esp_tree_namespace(tree, &field, 1, &ns, NULL) != ESP_OK) {
        CHECK(false, "out of memory");
        return result;
    }
    for (uint32_t idx = 0; idx < load->n; idx++) {
        const struct replay_request *request = &load->requests[idx];
        uint32_t n_head = request->policy == UINT32_MAX ? 0 : REPLAY_SYSTEM;
        for (uint32_t at = 0; at < request->n_blocks; at++) {
            blocks[at] = at < n_head ? request->policy * 1000 + at : request->own + at - n_head;
        }
        uint32_t n_tokens = replay_tokens(blocks, request->n_blocks, REPLAY_BLOCK_PAGES, tokens);
        esp_tree_set_now(tree, (int64_t)(request->at_s * 1e9));
        uint32_t n_hit = replay_one(tree, ns, tokens, n_tokens, n_head * REPLAY_BLOCK_PAGES, request->last, lru);
        uint32_t n_before = request->turn == 0 ? 0 : n_tokens - REPLAY_TURN * REPLAY_BLOCK_PAGES * ESP_TREE_PAGE_TOKENS;
        result.n_tokens += n_tokens;
        result.n_hit += n_hit;
        result.n_lost += n_hit < n_before ? n_before - n_hit : 0;
    }
    esp_tree_destroy(tree);
    free(tokens);
    free(blocks);
    return result;
}

#endif
