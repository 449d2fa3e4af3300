/* The table of moves between the states of a sequence. A move that is not in the table is a bug of the
 * engine, so it is asserted and not reported. Thread: the engine's. */
#include "runtime/job.h"

#include <assert.h>

#define TO(state) (1u << (state))

static const uint8_t moves[ESP_SEQ_STATES] = {
    [ESP_SEQ_QUEUED] = TO(ESP_SEQ_PREFILL) | TO(ESP_SEQ_DONE),
    [ESP_SEQ_HOLD] = TO(ESP_SEQ_PREFILL) | TO(ESP_SEQ_QUEUED) | TO(ESP_SEQ_DONE),
    [ESP_SEQ_PREFILL] = TO(ESP_SEQ_HOLD) | TO(ESP_SEQ_DECODE) | TO(ESP_SEQ_QUEUED) | TO(ESP_SEQ_DONE),
    [ESP_SEQ_DECODE] = TO(ESP_SEQ_QUEUED) | TO(ESP_SEQ_DONE),
    [ESP_SEQ_DONE] = 0,
};

const char *esp_seq_state_name(enum esp_seq_state state)
{
    static const char *const names[ESP_SEQ_STATES] = {"queued", "hold", "prefill", "decode", "done"};
    return names[state];
}

uint32_t esp_seq_goal(const struct esp_seq *seq)
{
    return seq->job->idle ? seq->n_tokens / ESP_TREE_PAGE_TOKENS * ESP_TREE_PAGE_TOKENS : seq->n_tokens;
}

bool esp_seq_may_move(enum esp_seq_state from, enum esp_seq_state to)
{
    return (moves[from] & TO(to)) != 0;
}

void esp_seq_move(struct esp_seq *seq, enum esp_seq_state to)
{
    assert(esp_seq_may_move(seq->state, to));
    seq->state = to;
}
