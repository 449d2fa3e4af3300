/* Tokens to text, as a stream: never half a character, never past a stop string.
 *
 *   token bytes ──► held back: an unfinished character, or a tail that may begin a stop string
 *              └──► out: what may be sent now
 *
 * A stop string may begin in one token and end in another; the text is cut before it. Bytes that can never be
 * UTF-8 become U+FFFD. Thread: the owner's.
 */
#ifndef ESP_FRONTEND_ANSWER_H
#define ESP_FRONTEND_ANSWER_H

#include "runtime/base/buf.h"
#include "runtime/espalier.h"

#define ESP_STOPS_MAX 16

struct esp_answer {
    const esp_vocab *vocab;           /* borrowed */
    const char *const *stops;         /* [n_stops] borrowed, none empty */
    uint32_t n_stops;
    struct esp_buf held;
    bool stopped;
};
void esp_answer_init(struct esp_answer *answer, const esp_vocab *vocab, const char *const *stops, uint32_t n_stops);
void esp_answer_finish(struct esp_answer *answer);
/* Adds one token and appends to out what may be sent. True when a stop string was found: nothing follows. */
bool esp_answer_add(struct esp_answer *answer, uint32_t token, struct esp_buf *out);
/* The end: appends what was held back. */
void esp_answer_end(struct esp_answer *answer, struct esp_buf *out);

#endif
