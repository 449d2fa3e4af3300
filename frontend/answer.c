/* The detokenizing stream with stop strings.
 *
 * Invariant: `held` contains every byte from which a stop string could still be completed, and every
 * unfinished character. So a stop string that becomes complete always begins inside `held`, and what was
 * sent is never taken back. Does not know how answers are framed.
 */
#include "frontend/answer.h"

#include <string.h>

#include "runtime/base/utf8.h"

#define HELD_BYTES_MAX (1024u * 1024u)

void esp_answer_init(struct esp_answer *answer, const esp_vocab *vocab, const char *const *stops, uint32_t n_stops)
{
    *answer = (struct esp_answer){.vocab = vocab, .stops = stops, .n_stops = n_stops};
    esp_buf_init(&answer->held, ESP_TAG_HTTP, HELD_BYTES_MAX);
}

void esp_answer_finish(struct esp_answer *answer)
{
    esp_buf_finish(&answer->held);
}

/* Bytes of the run at the start of text that one replacement character stands for. */
static size_t bad_run(const char *text, size_t n_bytes)
{
    uint32_t cp = 0;
    size_t n = 1;
    while (n < 4 && n < n_bytes && esp_utf8_decode(text, n, &cp) == 0 && esp_utf8_decode(text, n + 1, &cp) == 0) {
        n++;
    }
    return n;
}

void esp_answer_clean(const char *bytes, size_t n_bytes, struct esp_buf *out)
{
    size_t at = 0, from = 0;
    while (at < n_bytes) {
        uint32_t cp = 0;
        int used = esp_utf8_decode(bytes + at, n_bytes - at, &cp);
        if (used > 0) {
            at += (size_t)used;
            continue;
        }
        esp_buf_add(out, bytes + from, at - from);
        esp_buf_str(out, "\xef\xbf\xbd");
        at += bad_run(bytes + at, n_bytes - at);
        from = at;
    }
    if (at > from) {
        esp_buf_add(out, bytes + from, at - from);
    }
}

/* Length of the longest stop string that ends at text + end, or 0. */
static size_t stop_ending_at(const struct esp_answer *answer, const char *text, size_t end, const char **ret_stop)
{
    size_t longest = 0;
    for (uint32_t idx = 0; idx < answer->n_stops; idx++) {
        size_t n = strlen(answer->stops[idx]);
        if (n <= end && n > longest && memcmp(text + end - n, answer->stops[idx], n) == 0) {
            longest = n;
            *ret_stop = answer->stops[idx];
        }
    }
    return longest;
}

/* Length of the longest tail of text that begins a stop string. */
static size_t stop_begun(const struct esp_answer *answer, const char *text, size_t n_bytes)
{
    size_t longest = 0;
    for (uint32_t idx = 0; idx < answer->n_stops; idx++) {
        const char *stop = answer->stops[idx];
        size_t n = strlen(stop) - 1;
        for (n = n < n_bytes ? n : n_bytes; n > longest; n--) {
            if (memcmp(text + n_bytes - n, stop, n) == 0) {
                longest = n;
            }
        }
    }
    return longest;
}

/* Sends the first n bytes of held. */
static void release(struct esp_answer *answer, size_t n_bytes, struct esp_buf *out)
{
    struct esp_buf *held = &answer->held;
    if (n_bytes == 0) {
        return;
    }
    esp_answer_clean(held->data, n_bytes, out);
    held->n -= n_bytes;
    memmove(held->data, held->data + n_bytes, held->n + 1);
    answer->out_bytes += n_bytes;
}

bool esp_answer_add_bytes(struct esp_answer *answer, const char *bytes, size_t n_bytes, struct esp_buf *out)
{
    if (answer->stopped || n_bytes == 0) {
        return answer->stopped;
    }
    struct esp_buf *held = &answer->held;
    size_t old = held->n;
    if (!esp_buf_add(held, bytes, n_bytes)) {
        out->failed = true; /* the text would have a hole: the caller must end with an error */
        return false;
    }
    answer->in_bytes += n_bytes;
    for (size_t end = old + 1; end <= held->n; end++) {
        size_t n_stop = stop_ending_at(answer, held->data, end, &answer->stop);
        if (n_stop > 0) {
            release(answer, end - n_stop, out);
            answer->stopped = true;
            esp_buf_clear(held);
            return true;
        }
    }
    size_t begun = stop_begun(answer, held->data, held->n);
    release(answer, esp_utf8_complete(held->data, held->n - begun), out);
    return false;
}

bool esp_answer_add(struct esp_answer *answer, uint32_t token, struct esp_buf *out)
{
    size_t n_bytes = 0;
    const char *bytes = esp_token_bytes(answer->vocab, token, false, &n_bytes);
    return bytes == NULL ? answer->stopped : esp_answer_add_bytes(answer, bytes, n_bytes, out);
}

void esp_answer_end(struct esp_answer *answer, struct esp_buf *out)
{
    release(answer, answer->held.n, out);
}
