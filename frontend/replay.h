/* The token ids of what was generated, kept for the day it comes back as history.
 *
 *   key = hash(… hash(hash(salt), message 0) …, the answer)        a conversation up to and including an answer
 *
 * A message counts by its role, its text without white space around it, and its calls' names and arguments as parsed
 * values: re-spaced, with keys in another order, with other ids or without its reasoning it is the same message. The
 * key covers all that went before, so nothing of one conversation can show up in another one. Bounded in bytes; the
 * least recently used goes first. Thread: any.
 */
#ifndef ESP_FRONTEND_REPLAY_H
#define ESP_FRONTEND_REPLAY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

#define ESP_REPLAY_BYTES_MAX (64u * 1024u * 1024u)

struct esp_replay;
struct esp_turn;
struct esp_replay_key {
    uint64_t lo, hi;
};
struct esp_replay_turn {
    uint32_t n_ids, text_from; /* text_from: where the text begins behind the reasoning; n_ids: not at a token */
    bool thought;
    size_t lead_bytes;   /* what the prompt added to ask for the answer */
    const char *lead;    /* in the same memory as the ids */
    const uint32_t *ids; /* [n_ids] */
};

struct esp_replay *esp_replay_create(size_t cap_bytes);
void esp_replay_destroy(struct esp_replay *replay); /* NULL is fine */
struct esp_replay_key esp_replay_begin(const char *salt, size_t n_bytes);
/* Goes on by a message of a request, or by an answer; false when out of memory. */
bool esp_replay_message(struct esp_replay_key *key, const json_t *message);
bool esp_replay_answer(struct esp_replay_key *key, const struct esp_turn *turn);
/* Copies; what does not fit, or for which there is no memory, is not kept. */
void esp_replay_put(struct esp_replay *replay, struct esp_replay_key key, const struct esp_replay_turn *turn);
/* A copy, free with esp_free; NULL when there is none. */
struct esp_replay_turn *esp_replay_get(struct esp_replay *replay, struct esp_replay_key key);

#endif
