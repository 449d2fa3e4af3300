/* WordPiece, as BERT models use it: clean up, split into words, longest piece from the left.
 *
 * White space and removed characters end or leave words; punctuation and CJK ideographs are words of their own.
 * The first piece of a word is looked up with U+2581 in front. A word that has no whole covering, or more
 * than ESP_WORD_CHARS_MAX characters, is the unknown token, so the work per word is bounded.
 * Thread: the call's.
 */
#include <string.h>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer_impl.h"
#include "runtime/unicode.h"

#define LOW_LINE "\xE2\x96\x81" /* U+2581 */

/* The longest token at the front of text, or ESP_MAP_NONE. */
static uint32_t longest(const struct esp_tokenizer *tok, const char *text, size_t n_bytes, size_t *ret_n_bytes)
{
    size_t n = n_bytes < tok->sym_bytes_max ? n_bytes : tok->sym_bytes_max;
    for (; n > 0; n--) {
        uint32_t id = esp_bytesmap_get(&tok->syms, text, n);
        if (id != ESP_MAP_NONE) {
            *ret_n_bytes = n;
            return id;
        }
    }
    return ESP_MAP_NONE;
}

/* Emits the word in enc->word, which begins with U+2581, and starts the next one. */
static void flush_word(struct esp_encode *enc, size_t *n_chars)
{
    const struct esp_tokenizer *tok = enc->tok;
    size_t first = enc->ids->n, at = 0;
    bool known = *n_chars <= ESP_WORD_CHARS_MAX;
    while (*n_chars > 0 && known && at < enc->word.n) {
        size_t n = 0;
        uint32_t id = longest(tok, enc->word.data + at, enc->word.n - at, &n);
        known = id != ESP_MAP_NONE;
        if (known) {
            esp_encode_id(enc, id);
        }
        at += n;
    }
    if (!known && !enc->ids->failed) {
        enc->ids->n = first;
        if (tok->unk != ESP_TOKEN_NONE) {
            esp_encode_id(enc, tok->unk);
        }
    }
    esp_buf_clear(&enc->word);
    esp_buf_add(&enc->word, LOW_LINE, 3);
    *n_chars = 0;
}

static bool is_cjk(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0xF900 && cp <= 0xFAFF) ||
           (cp >= 0x20000 && cp <= 0x2CEAF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static bool stands_alone(uint32_t cp)
{
    bool ascii_symbol = cp == '$' || cp == '+' || (cp >= '<' && cp <= '>') || cp == '^' || cp == '`' || cp == '|' ||
                        cp == '~';
    return ascii_symbol || is_cjk(cp) || esp_unicode_is_punctuation(cp);
}

static void take_char(struct esp_encode *enc, uint32_t cp, size_t *n_chars)
{
    const struct esp_tokenizer *tok = enc->tok;
    bool control = esp_unicode_is_control(cp) && cp != '\t' && cp != '\n' && cp != '\r';
    if (cp == 0 || cp == 0xFFFD || control || (tok->strip_accents && esp_unicode_is_mark(cp))) {
        return;
    }
    if (esp_unicode_is_space(cp)) {
        flush_word(enc, n_chars);
        return;
    }
    bool alone = stands_alone(cp);
    if (alone) {
        flush_word(enc, n_chars);
    }
    char bytes[4];
    int n = esp_utf8_encode(tok->lowercase ? esp_unicode_lower(cp) : cp, bytes);
    if (*n_chars <= ESP_WORD_CHARS_MAX) { /* one too many is enough to know */
        esp_buf_add(&enc->word, bytes, (size_t)n);
        ++*n_chars;
    }
    if (alone) {
        flush_word(enc, n_chars);
    }
}

esp_status esp_wpm_encode(struct esp_encode *enc, const char *text, size_t n_bytes)
{
    if (enc->tok->strip_accents) {
        esp_buf_clear(&enc->scratch);
        esp_status status = esp_unicode_normalize(text, n_bytes, false, &enc->scratch);
        if (status != ESP_OK) {
            return status;
        }
        text = enc->scratch.data;
        n_bytes = enc->scratch.n;
    }
    size_t n_chars = 0;
    esp_buf_clear(&enc->word);
    esp_buf_add(&enc->word, LOW_LINE, 3);
    for (size_t at = 0; at < n_bytes;) {
        uint32_t cp;
        int n = esp_utf8_decode(text + at, n_bytes - at, &cp);
        if (n <= 0) {
            return ESP_EINVAL;
        }
        take_char(enc, cp, &n_chars);
        at += (size_t)n;
    }
    flush_word(enc, &n_chars);
    return enc->word.failed ? ESP_ENOMEM : ESP_OK;
}
