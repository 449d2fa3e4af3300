/* One pass over the bytes; nothing is nested on the C stack. */
#include "frontend/gemma.h"

#include <string.h>

#include "frontend/form.h"
#include "frontend/jsontext.h"

static size_t mark_at(const char *text, size_t n_bytes)
{
    static const char mark[] = "<|\"|>";
    if (n_bytes >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0) {
        return sizeof mark - 1;
    }
    return n_bytes >= ESP_CODE_BYTES && (unsigned char)text[0] == 0xff ? ESP_CODE_BYTES : 0;
}

/* A bare word: a key when a colon follows, else a number or a literal. */
static size_t take_word(const char *text, size_t n_bytes, struct esp_buf *buf)
{
    size_t n = 0;
    while (n < n_bytes && strchr(",:{}[]", text[n]) == NULL && mark_at(text + n, n_bytes - n) == 0) {
        n++;
    }
    if (n < n_bytes && text[n] == ':') {
        esp_jsontext_quote(buf, text, n);
    } else {
        esp_buf_add(buf, text, n);
    }
    return n;
}

bool esp_gemma_to_json(const char *text, size_t n_bytes, struct esp_buf *buf)
{
    size_t start = buf->n;
    for (size_t at = 0; at < n_bytes;) {
        size_t n_mark = mark_at(text + at, n_bytes - at);
        if (n_mark > 0) {
            size_t from = at + n_mark;
            for (at = from; at < n_bytes && mark_at(text + at, n_bytes - at) == 0; at++) {
            }
            if (at == n_bytes) {
                return false;
            }
            esp_jsontext_quote(buf, text + from, at - from);
            at += n_mark;
        } else if (strchr(",:{}[]", text[at]) != NULL) {
            esp_buf_char(buf, text[at++]);
        } else {
            at += take_word(text + at, n_bytes - at, buf);
        }
    }
    json_t *value =
        buf->failed || buf->n == start ? NULL : json_loadb(buf->data + start, buf->n - start, JSON_DECODE_ANY, NULL);
    json_decref(value);
    return value != NULL;
}
