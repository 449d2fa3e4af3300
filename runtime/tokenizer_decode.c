/* From tokens back to text: the bytes of each token, made once at load, and whole sequences.
 *
 * Byte-level BPE: stand-in characters become their bytes again. SPM: U+2581 becomes a space, <0xXX> one byte.
 * WordPiece: U+2581 in front becomes the space between words. User-defined tokens stand literally,
 * but for U+2581 in SPM, where it is a space in every token. Tokens may hold part of a character.
 * Thread: read-only after load.
 */
#include <string.h>

#include "runtime/base/utf8.h"
#include "runtime/tokenizer_impl.h"

#define LOW_LINE "\xE2\x96\x81" /* U+2581 */

/* Appends the bytes that stand-in characters mean; anything else is taken as it is. */
static void add_unmapped(struct esp_buf *out, const char *text, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        uint32_t cp;
        int n = esp_utf8_decode(text + at, n_bytes - at, &cp);
        int byte = n > 0 ? esp_alphabet_byte(cp) : -1;
        size_t used = n > 0 ? (size_t)n : 1;
        if (byte >= 0) {
            esp_buf_char(out, (char)byte);
        } else {
            esp_buf_add(out, text + at, used);
        }
        at += used;
    }
}

static void add_spaced(struct esp_buf *out, const char *text, size_t n_bytes)
{
    size_t at = 0;
    while (at < n_bytes) {
        const char *hit = memmem(text + at, n_bytes - at, LOW_LINE, 3);
        size_t n = hit == NULL ? n_bytes - at : (size_t)(hit - text) - at;
        esp_buf_add(out, text + at, n);
        at += n;
        if (hit != NULL) {
            esp_buf_char(out, ' ');
            at += 3;
        }
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0x0A>" → 10; -1: something else. */
static int byte_name(const char *text, size_t n_bytes)
{
    if (n_bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') {
        return -1;
    }
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static void add_token(const struct esp_tokenizer *tok, uint32_t id, struct esp_buf *out)
{
    size_t n;
    const char *text = esp_token_text(tok, id, &n);
    enum esp_token_type type = (enum esp_token_type)tok->types[id];
    int byte = type == ESP_TOKEN_BYTE ? byte_name(text, n) : -1;
    if (byte >= 0) {
        esp_buf_char(out, (char)byte);
    } else if (type == ESP_TOKEN_CONTROL || type == ESP_TOKEN_UNKNOWN || type == ESP_TOKEN_UNUSED) {
        esp_buf_add(out, text, n);
    } else if (tok->kind == ESP_TOKENIZER_BPE && type == ESP_TOKEN_NORMAL) {
        add_unmapped(out, text, n);
    } else if (tok->kind == ESP_TOKENIZER_BPE) {
        esp_buf_add(out, text, n);
    } else {
        add_spaced(out, text, n);
    }
}

esp_status esp_tokenizer_make_bytes(struct esp_tokenizer *tok)
{
    struct esp_buf out; /* no token grows */
    esp_buf_init(&out, ESP_TAG_VOCAB, ESP_TOKENIZER_TEXT_BYTES_MAX);
    esp_buf_reserve(&out, (size_t)tok->text_at[tok->n_tokens] + 1);
    tok->bytes_at = esp_malloc(ESP_TAG_VOCAB, ((size_t)tok->n_tokens + 1) * sizeof *tok->bytes_at);
    if (tok->bytes_at == NULL) {
        esp_buf_finish(&out);
        return ESP_ENOMEM;
    }
    for (uint32_t id = 0; id < tok->n_tokens; id++) {
        tok->bytes_at[id] = (uint32_t)out.n;
        add_token(tok, id, &out);
    }
    tok->bytes_at[tok->n_tokens] = (uint32_t)out.n;
    esp_buf_char(&out, '\0'); /* data is not NULL even when all tokens are empty */
    if (out.failed) {
        esp_buf_finish(&out);
        return ESP_ENOMEM;
    }
    tok->bytes = out.data; /* taken */
    return ESP_OK;
}

static bool is_hidden(const struct esp_tokenizer *tok, uint32_t id)
{
    return tok->types[id] == ESP_TOKEN_CONTROL || tok->types[id] == ESP_TOKEN_UNKNOWN ||
           tok->types[id] == ESP_TOKEN_UNUSED;
}

const char *esp_tokenizer_bytes(const struct esp_tokenizer *tokenizer, uint32_t id, bool control, size_t *ret_n_bytes)
{
    if (id >= tokenizer->n_tokens) {
        *ret_n_bytes = 0;
        return NULL;
    }
    const char *bytes = tokenizer->bytes + tokenizer->bytes_at[id];
    bool hidden = is_hidden(tokenizer, id) && !control;
    *ret_n_bytes = hidden ? 0 : tokenizer->bytes_at[id + 1] - tokenizer->bytes_at[id];
    return bytes;
}

/* English text that WordPiece cut at punctuation, put together as the reference decoder does. */
static void tidy_words(struct esp_buf *text, size_t from)
{
    static const char *const spaced[] = {" ' ", " n't", " 'm", " 's", " 've", " 're", " .", " ?", " !", " ,"};
    static const char *const joined[] = {"'", "n't", "'m", "'s", "'ve", "'re", ".", "?", "!", ","};
    size_t to = from;
    for (size_t at = from; at < text->n;) {
        size_t hit = 0, n_hits = sizeof spaced / sizeof spaced[0];
        while (hit < n_hits && (text->data[at] != ' ' || text->n - at < strlen(spaced[hit]) ||
                                memcmp(text->data + at, spaced[hit], strlen(spaced[hit])) != 0)) {
            hit++;
        }
        if (hit < n_hits) {
            memcpy(text->data + to, joined[hit], strlen(joined[hit]));
            to += strlen(joined[hit]);
            at += strlen(spaced[hit]);
        } else {
            text->data[to++] = text->data[at++];
        }
    }
    text->n = to;
    if (text->data != NULL) {
        text->data[to] = '\0';
    }
}

esp_status esp_tokenizer_decode(const struct esp_tokenizer *tokenizer, const uint32_t *ids, size_t n_ids, bool control,
                                struct esp_buf *text)
{
    size_t from = text->n;
    /* A space that encoding put in front of a piece: the first token's, and after each special one. */
    bool drops = tokenizer->add_space_prefix || tokenizer->kind == ESP_TOKENIZER_WPM;
    bool at_start = true;
    for (size_t idx = 0; idx < n_ids; idx++) {
        size_t n;
        const char *bytes = esp_tokenizer_bytes(tokenizer, ids[idx], control, &n);
        if (bytes == NULL) {
            return ESP_EINVAL;
        }
        enum esp_token_type type = (enum esp_token_type)tokenizer->types[ids[idx]];
        bool special = type == ESP_TOKEN_CONTROL || type == ESP_TOKEN_USER || type == ESP_TOKEN_UNKNOWN;
        if (drops && at_start && !special && n > 0 && bytes[0] == ' ') {
            bytes++;
            n--;
        }
        at_start = special && tokenizer->kind == ESP_TOKENIZER_SPM;
        esp_buf_add(text, bytes, n);
    }
    if (tokenizer->kind == ESP_TOKENIZER_WPM && !text->failed) {
        tidy_words(text, from);
    }
    return text->failed ? ESP_ENOMEM : ESP_OK;
}
