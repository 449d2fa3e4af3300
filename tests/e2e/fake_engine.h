/* The scripted engine's parts: what a script says, and the vocabulary of bytes and pieces. Tests only. */
#ifndef ESP_TESTS_FAKE_ENGINE_H
#define ESP_TESTS_FAKE_ENGINE_H

#include <pthread.h>

#include "runtime/espalier.h"

#define FAKE_VOCAB 65536u
#define FAKE_EMBD 5u
#define FAKE_PIECES 60000u
enum { FAKE_END = 256, FAKE_BOS, FAKE_FIRST_PIECE = 1000 };

struct esp_vocab {
    pthread_mutex_t lock;
    struct {
        char *bytes;
        size_t n;
    } pieces[FAKE_PIECES];
    uint32_t n_pieces;
};

struct esp_grammar {
    int n_refs;
    size_t n_bytes;
    char text[];
};

struct fake_script {
    uint32_t *tokens, n_tokens;
    bool repeat, echo_grammar;
    int64_t delay_ns, start_ns, fail_after, load_ms;
    uint32_t n_ctx, n_batch, n_queue, skew;
};

/* Ids of a text given as bytes: known pieces are found again, new ones get an id. */
uint32_t fake_piece(esp_vocab *vocab, const char *bytes, size_t n);
/* Reads the script file (the "model"). False and a message when it is no script. */
bool fake_script_read(const char *path, esp_vocab *vocab, struct fake_script *ret_script, struct esp_err *err);

#endif
