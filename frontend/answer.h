/* Tokens to text, as a stream: never half a character, never past a stop string.
 *
 *   token bytes ──► held back: an unfinished character, or a tail that may begin a stop string
 *              └──► out: what may be sent now
 *
 * A stop string may begin in one token and end in another; the text is cut before it. Among several the
 * one that is complete first wins, and of those the longest, so the result does not depend on where tokens
 * end. Bytes that can never be UTF-8 become U+FFFD. Thread: the owner's.
 */
#ifndef ESP_FRONTEND_ANSWER_H
#define ESP_FRONTEND_ANSWER_H

#include "runtime/base/buf.h"
#include "runtime/espalier.h"

#define ESP_STOPS_MAX 16
#define ESP_STOP_BYTES_MAX 512u /* of one stop string */

struct esp_answer {
    const esp_vocab *vocab;   /* borrowed */
    const char *const *stops; /* [n_stops] borrowed, none empty */
    uint32_t n_stops;
    struct esp_buf held;
    bool stopped;
    const char *stop;   /* by which of the stop strings; NULL before */
    uint64_t in_bytes;  /* bytes of all tokens added */
    uint64_t out_bytes; /* of these, how many were sent; after a stop, where the text was cut */
};
void esp_answer_init(struct esp_answer *answer, const esp_vocab *vocab, const char *const *stops, uint32_t n_stops);
void esp_answer_finish(struct esp_answer *answer);
/* Adds one token and appends to out what may be sent. True when a stop string was found: nothing follows. */
bool esp_answer_add(struct esp_answer *answer, uint32_t token, struct esp_buf *out);
/* The same for bytes that are no single token. */
bool esp_answer_add_bytes(struct esp_answer *answer, const char *bytes, size_t n_bytes, struct esp_buf *out);
/* The end: appends what was held back. */
void esp_answer_end(struct esp_answer *answer, struct esp_buf *out);

/* Appends bytes as valid UTF-8: each longest run that begins a character and never completes it, and each
 * byte that can begin none, becomes one U+FFFD. */
void esp_answer_clean(const char *bytes, size_t n_bytes, struct esp_buf *out);

#endif
