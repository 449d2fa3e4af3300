/* The engine's own struct, shared by engine.c (life and steps), api.c (calls of other threads) and
 * control.c (questions answered between two steps). Nothing else includes it.
 */
#ifndef ESP_RUNTIME_ENGINE_IMPL_H
#define ESP_RUNTIME_ENGINE_IMPL_H

#include <stdatomic.h>

#include "runtime/batch.h"
#include "runtime/engine.h"
#include "runtime/events.h"
#include "runtime/stats.h"

/* Jobs that exist, by the low half of their id; the high half is the generation. Guarded by slots_lock. */
struct esp_slot {
    uint32_t generation;
    bool cancelled;
    uint64_t stopped; /* branches, by bit; with cancelled: asked for and not yet seen by the engine */
    struct esp_job *job; /* NULL = free */
};

/* A question to the engine thread; lives on the asker's stack. */
struct esp_question {
    struct esp_msg msg; /* first */
    uint32_t n_flushed;
    uint32_t limit;
    struct esp_buf *text;
    const uint32_t *tokens;
    uint32_t n_tokens;
    struct esp_page_id *pages; /* room for the pages of the tokens */
    bool hidden;               /* rows are of the final norm, not logits */
    uint32_t n_row;            /* n_vocab, or n_embd */
    float *row;                /* [n_row] */
    bool (*visit)(void *ctx, uint32_t pos, const float *logits);
    void *ctx;
    const struct esp_request *request;
    struct esp_explanation *explanation;
    struct esp_err *err;
    esp_status status;
};

/* Answers of late, by number modulo the size: their turns may be corrected. */
#define ESP_ENGINE_TURNS 1024
struct esp_ended {
    esp_request_id id;
    struct esp_tree_turn turn;
};
struct esp_told { /* by esp_turn_over */
    esp_request_id id;
    bool comes_back;
};

struct esp_engine {
    /* fixed after create */
    struct esp_model *model;
    esp_vocab *vocab;
    uint32_t end_token;
    uint32_t n_vocab; /* ids that may be sampled: no padding rows of the embedding */
    struct esp_clock clock;
    struct esp_engine_info info;
    char arch[32], name[128], level[32];
    struct esp_job_limits limits;
    uint32_t n_queue_max, n_slots;

    /* between threads */
    struct esp_inbox inbox;
    struct esp_events events;
    struct esp_stats stats;
    pthread_mutex_t slots_lock;
    struct esp_slot *slots;
    uint32_t slot_next; /* where to look for a free one */
    struct esp_told told[ESP_ENGINE_TURNS]; /* guarded by slots_lock; the oldest give way */
    uint32_t n_told_turns;
    _Atomic uint32_t n_cancels; /* slots with a flag or bit that is not yet seen */
    _Atomic uint32_t n_unadmitted; /* jobs that wait for their first admission */
    _Atomic uint32_t n_idle; /* idle jobs */
    _Atomic int64_t admit_interval_ns; /* between two of these admissions, smoothed */
    _Atomic bool closing;
    bool threaded;
    pthread_t thread;

    /* the engine thread's */
    struct esp_tree *tree;
    struct esp_forward *forward;
    void *kv;
    struct esp_sched sched;
    struct esp_pagefile *pagefile; /* until the store has it */
    struct esp_keep store;
    struct esp_batch_arrays arrays;
    struct esp_sample_row *rows; /* [n_batch_max] */
    struct esp_seq **row_seqs;   /* [n_batch_max] sequences that rows belong to */
    uint32_t n_told;             /* rows whose tokens go to the poller after this step */
    struct esp_seq *done;        /* finished in this step, by next_done */
    uint64_t arrival_next;
    int64_t admitted_ns; /* when the last job was, 0 = none yet */
    uint32_t n_jobs; /* received and not finished */
    struct esp_job *polled; /* the poller's: its scores may still be looked at */
    struct esp_ended ended[ESP_ENGINE_TURNS];
    uint32_t n_ended;
};

/* api.c: the job is the caller's afterwards. */
void esp_engine_free_slot(struct esp_engine *engine, struct esp_job *job);
/* engine.c */
void esp_engine_end_seq(struct esp_engine *engine, struct esp_seq *seq, enum esp_finish finish, const char *error);
void esp_engine_publish_stats(struct esp_engine *engine);
/* turns.c: what becomes of the pages of answers */
void esp_engine_end_turn(struct esp_engine *engine, const struct esp_seq *seq);
void esp_engine_correct_turns(struct esp_engine *engine);
int64_t esp_engine_patience_ns(const struct esp_engine *engine); /* until the next deadline; negative = no limit */
/* sampling.c: masks, draws and what a drawn token means. */
esp_status esp_engine_sample(struct esp_engine *engine, const float *logits);
bool esp_engine_is_end(const struct esp_engine *engine, uint32_t token);
/* score.c: the logits behind its prompt; then all its labels */
esp_status esp_engine_score_root(struct esp_engine *engine, struct esp_seq *seq, const float *logits);
esp_status esp_engine_score(struct esp_engine *engine, struct esp_seq *seq);
/* control.c */
void esp_engine_answer(struct esp_engine *engine, struct esp_question *question);
void esp_engine_ask(struct esp_engine *engine, struct esp_question *question); /* waits for the answer */
/* explain.c */
void esp_engine_explain(struct esp_engine *engine, struct esp_question *question);

#endif
