/* The engine's inside, for the engine's own files and for tests.
 *
 *   client threads ──submit, cancel, flush──► inbox ──► ┌──────────── engine thread ───────────┐
 *                                                       │ inbox → sched → batch → forward      │
 *   one polling thread ◄──────── events ◄────────────── │   → sample → publish pages → events  │
 *                                                       └──────────────────────────────────────┘
 *
 * Production starts a thread that calls esp_engine_step in a loop and sleeps on the inbox when idle. The
 * simulator makes an engine from parts (any ops table, a virtual clock, no thread) and steps it itself.
 */
#ifndef ESP_RUNTIME_ENGINE_H
#define ESP_RUNTIME_ENGINE_H

#include "radix/tree.h"
#include "runtime/base/clock.h"
#include "runtime/espalier.h"
#include "runtime/forward.h"
#include "runtime/tokenizer.h"

#define ESP_ENGINE_BATCH_MAX 1024
#define ESP_ENGINE_CHUNK_MAX 65536
#define ESP_ENGINE_QUEUE_MAX 65536
#define ESP_ENGINE_RESERVE(n_queue_max) ((n_queue_max) / 4) /* places for tenants with few requests */

struct esp_engine_parts {
    struct esp_model *model;   /* taken: destroyed with the engine, its device closed; on failure the caller's */
    esp_vocab *vocab;          /* likewise; NULL in tests: no end tokens but end_token */
    uint32_t end_token;        /* used when vocab is NULL; ESP_TOKEN_NONE = none */
    struct esp_clock clock;
    uint64_t tree_seed;
    unsigned tree_hash_bits;   /* 128 */
    uint32_t n_pages, n_ctx, n_batch_max, prefill_chunk, n_queue_max;
    bool cache_off;
    struct esp_pagefile *pagefile; /* taken, also on failure; NULL = none */
    bool tier_threaded;            /* false in the simulator: files are read and written within the step */
    struct esp_engine_info info; /* arch, name and plan as esp_engine_get_info gives them; strings are copied */
};
/* Host memory of the fixed tables that create takes, beside tree, batch arrays and device memory. */
uint64_t esp_engine_bytes(uint64_t n_slots, uint32_t n_batch_max);
/* No thread is started. */
esp_status esp_engine_create(const struct esp_engine_parts *parts, esp_engine **ret_engine, struct esp_err *err);
/* Starts the thread that steps the engine until it is closed; from here on nobody else may step it. */
esp_status esp_engine_start(esp_engine *engine, struct esp_err *err);
/* One step: takes what is in the inbox, plans, computes, publishes, emits. Returns false when there was nothing
 * to do (the engine is idle or waits). Engine thread only. */
bool esp_engine_step(esp_engine *engine);
/* The tree, for the walker of tests. Engine thread only. */
const struct esp_tree *esp_engine_tree(const esp_engine *engine);

#endif
