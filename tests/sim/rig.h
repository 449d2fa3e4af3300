/* An engine on the hash device with a clock of its own, and what its answers must be.
 *
 * The rig steps the engine itself (no thread), keeps every request with what came back for it, and
 * compares each finished branch with the same request computed alone, without pages or cache.
 * Thread: the test's.
 */
#ifndef ESP_TESTS_RIG_H
#define ESP_TESTS_RIG_H

#include "grammar/grammar.h"
#include "radix/pagefile.h"
#include "runtime/engine.h"
#include "tests/sim/hash_device.h"

#define RIG_BRANCHES_MAX 4
#define RIG_TOKENS_MAX 2048
#define RIG_SUFFIX_MAX 64

struct rig_branch {
    uint32_t tokens[RIG_TOKENS_MAX];
    uint32_t n;
    float logprob_sum;
    bool done, stopped;
    struct esp_event last;
};

struct rig_request {
    esp_request_id id;
    uint32_t prompt[RIG_TOKENS_MAX];
    uint32_t n_prompt, n_max, n;
    uint64_t seed;
    float temperature;
    bool cancelled;
    const char *salt;
    bool comes_back;
    struct esp_pin pin; /* n_tokens 0: none */
    struct esp_grammar *grammar; /* borrowed */
    uint32_t end_token;          /* of the grammar's vocabulary */
    /* A fork: n branches, each with its suffix, limit and grammar (grammar above is not looked at). */
    bool forked;
    struct {
        uint32_t suffix[RIG_SUFFIX_MAX], n_suffix, n_max;
        struct esp_grammar *grammar;
    } fork[RIG_BRANCHES_MAX];
    const struct esp_label *labels; /* [n_labels] borrowed */
    uint32_t n_labels;
    const char *tenant;
    int priority;
    struct rig_branch branch[RIG_BRANCHES_MAX];
};

struct rig {
    esp_engine *engine;
    struct esp_model *model; /* the engine's */
    int64_t now_ns;
    uint32_t n_ctx, n_pool, end_token;
    struct rig_request **requests;
    uint32_t n_requests, n_open, room;
    uint64_t n_steps;
    bool threaded; /* the page file has a thread */
    char failure[512]; /* the first thing that was wrong, or empty */
};

struct rig_config {
    uint32_t n_pages, n_ctx, n_batch_max, prefill_chunk, n_queue_max, end_token;
    unsigned hash_bits;
    uint64_t tree_seed;
    bool cache_off;
    const char *pagefile; /* NULL = none */
    uint64_t pagefile_serial;
    const struct esp_pagefile_io *pagefile_io;
    bool tier_threaded;
};

/* The vocabulary of the hash device for grammars: RIG_END_TOKEN ends, the others spell a few bytes each. */
#define RIG_END_TOKEN 3
esp_status rig_trie(struct esp_trie **ret_trie);
/* kind and text as in esp_grammar_compile. NULL when it does not compile. */
struct esp_grammar *rig_grammar(const struct esp_trie *trie, enum esp_grammar_kind kind, const char *text);

bool rig_init(struct rig *rig, const struct rig_config *config);
void rig_finish(struct rig *rig);
/* request: the fields up to salt are filled; taken by copy. Returns the kept one, or NULL and the status
 * that esp_submit gave (with err). */
struct rig_request *rig_submit(struct rig *rig, const struct rig_request *request, esp_status *ret_status,
                               struct esp_err *err);
void rig_cancel(struct rig *rig, struct rig_request *request);
void rig_preempt(struct rig *rig); /* whatever runs */
void rig_stop(struct rig *rig, struct rig_request *request, uint32_t branch);
/* Takes at most n events; returns whether there was one. */
bool rig_poll(struct rig *rig, uint32_t n);
/* One step, then the walker; takes at most n_polls events afterwards. Returns whether anything happened. */
bool rig_step(struct rig *rig, uint32_t n_polls);
/* Steps until nothing is open. False when the engine stands still before that, or something was wrong. */
bool rig_drain(struct rig *rig);
/* After draining: nothing leased, private or pending, and the counters add up. */
void rig_check_idle(struct rig *rig);

#endif
