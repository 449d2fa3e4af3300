/* The answer of a choice as parts: reasoning, text, tool calls; made from its text as it comes.
 *
 *   "Let me see.</think>I'll look.<tool_call>{"name":"get","arguments":{"id":7}}</tool_call>"
 *    └ REASONING           └ TEXT            └ CALL name get, text {"id":7}
 *
 * A part begins with its first byte of text (a call: when its name and id are known), grows by pieces that are
 * never empty, and ends before the next one begins; each step is told to the sink at once. Parts keep all their
 * text. What begins like a call and is none comes out as text. Without a form everything is one part of text.
 * Invariant: `held` is the input that is not decided yet: the beginning of a marker, or white space that a marker
 * would swallow. Thread: the owner's.
 */
#ifndef ESP_FRONTEND_TURN_H
#define ESP_FRONTEND_TURN_H

#include <stdint.h>

#include "frontend/form.h"
#include "frontend/tools.h"
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
    struct esp_buf text;                                                   /* so far; CALL: the arguments, JSON text */
};

struct esp_turn_sink {
    void (*begin)(void *ctx, const struct esp_part *part);
    void (*piece)(void *ctx, const struct esp_part *part, const char *text, size_t n_bytes); /* already in part */
    void (*end)(void *ctx, const struct esp_part *part);
};

struct esp_turn_setup {
    const struct esp_form *form;   /* NULL: everything is text; borrowed, as are the tools */
    const struct esp_tools *tools; /* NULL, or choice NONE: nothing is a call */
    bool thinking;                 /* the prompt ends inside reasoning */
    uint64_t id_seed;
    uint32_t n_calls_before; /* in the conversation, for counted ids */
};

enum esp_turn_state {
    ESP_TURN_START, /* nothing but white space came */
    ESP_TURN_THINK,
    ESP_TURN_TEXT,
    ESP_TURN_OPEN,  /* a trigger is at the beginning of held */
    ESP_TURN_CALL,  /* inside the pieces of a call */
    ESP_TURN_ARGS,  /* inside tagged arguments */
    ESP_TURN_BEHIND /* a call is complete: another one, the close, or text */
};

struct esp_json_scan { /* where in one JSON value the text is */
    uint32_t depth;
    bool begun, in_string, escaped, done;
};

struct esp_turn {
    const struct esp_turn_sink *sink; /* borrowed */
    void *ctx;
    struct esp_part **parts; /* [n_parts] */
    uint32_t n_parts, n_calls, n_calls_whole;
    bool failed; /* out of memory, or over a limit: the answer has a hole */
    /* The parser's own. */
    struct esp_turn_setup setup;
    enum esp_turn_state state;
    struct esp_buf held, raw; /* raw: the call so far, with the white space before it, until its part begins */
    size_t raw_space;
    bool trims; /* white space is dropped until something else comes */
    uint32_t piece_idx;
    const struct esp_tool *tool;
    bool has_id;
    char id[ESP_CALL_ID_BYTES_MAX + 1];
    struct esp_json_scan scan;
    struct esp_buf args; /* arguments that wait for the part to begin */
    const struct esp_tool_arg *arg;
    uint32_t n_args, arg_step;
    int arg_value;        /* ESP_VALUE_ … of the argument that is read */
    struct esp_buf value; /* of it, so far */
};

void esp_turn_init(struct esp_turn *turn, const struct esp_turn_setup *setup, const struct esp_turn_sink *sink,
                   void *ctx);
void esp_turn_finish(struct esp_turn *turn); /* zeroed is fine */
/* Text of the answer; valid UTF-8, never half a character, with codes of the control tokens that the form takes. */
void esp_turn_text(struct esp_turn *turn, const char *text, size_t n_bytes);
/* Nothing follows: what is held back comes out, the open part ends. */
void esp_turn_end(struct esp_turn *turn);
struct esp_part *esp_turn_open_part(const struct esp_turn *turn); /* or NULL */
/* All parts of a kind in one: appends their text. */
void esp_turn_join(const struct esp_turn *turn, enum esp_part_kind kind, struct esp_buf *buf);

#endif
