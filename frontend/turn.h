/* The answer of a choice as parts: reasoning, text, tool calls; made from its text as it comes.
 *
 *   "Let me see.</think>I'll look.<tool_call>{"name":"get","arguments":{"id":7}}</tool_call>"
 *    └ REASONING           └ TEXT            └ CALL name get, text {"id":7}
 *
 * A part begins with its first byte of text (a call: with its name), grows by pieces that are never empty, and
 * ends before the next one begins; each step is told to the sink at once. Parts keep all their text. Without a
 * format everything is one part of text. Thread: the owner's.
 */
#ifndef ESP_FRONTEND_TURN_H
#define ESP_FRONTEND_TURN_H

#include <stdint.h>

#include "runtime/base/buf.h"

#define ESP_PARTS_MAX 512u
#define ESP_PART_BYTES_MAX (16u * 1024u * 1024u)
#define ESP_CALL_NAME_BYTES_MAX 64u
#define ESP_CALL_ID_BYTES_MAX 128u

enum esp_part_kind { ESP_PART_REASONING, ESP_PART_TEXT, ESP_PART_CALL };

struct esp_part {
    enum esp_part_kind kind;
    uint32_t index;      /* among all parts of the answer */
    uint32_t call_index; /* CALL: among the calls */
    bool ended;
    char id[ESP_CALL_ID_BYTES_MAX + 1], name[ESP_CALL_NAME_BYTES_MAX + 1]; /* CALL */
    struct esp_buf text; /* so far; CALL: the arguments, JSON text */
};

struct esp_turn_sink {
    void (*begin)(void *ctx, const struct esp_part *part);
    void (*piece)(void *ctx, const struct esp_part *part, const char *text, size_t n_bytes); /* already in part */
    void (*end)(void *ctx, const struct esp_part *part);
};

struct esp_turn {
    const struct esp_turn_sink *sink; /* borrowed */
    void *ctx;
    struct esp_part **parts; /* [n_parts] */
    uint32_t n_parts, n_calls;
    bool failed; /* out of memory, or over a limit: the answer has a hole */
};

void esp_turn_init(struct esp_turn *turn, const struct esp_turn_sink *sink, void *ctx);
void esp_turn_finish(struct esp_turn *turn); /* zeroed is fine */
/* Text of the answer; valid UTF-8, never half a character. */
void esp_turn_text(struct esp_turn *turn, const char *text, size_t n_bytes);
/* Nothing follows: what is held back comes out, the open part ends. */
void esp_turn_end(struct esp_turn *turn);
/* All parts of a kind in one: appends their text. */
void esp_turn_join(const struct esp_turn *turn, enum esp_part_kind kind, struct esp_buf *buf);

#endif
