/* The inside of a tokenizer, shared by the tokenizer_*.c files and by nothing else.
 *
 *   text   [<unk>|<s>|▁the|…]    token texts as in the file, text_at[i] … text_at[i + 1]
 *   bytes  [<unk>|<s>| the|…]    the same tokens as they stand in running text
 *   syms   text → symbol         only tokens that plain text may become: never control, unknown or unused ones,
 *                                so that no text of a user turns into them through merging
 *
 * BPE numbers symbols: below n_tokens they are tokens, above they are texts that merges name but no token has;
 * those fall apart into bytes again at the end. Read-only after create; an esp_encode belongs to one call.
 */
#ifndef ESP_RUNTIME_TOKENIZER_IMPL_H
#define ESP_RUNTIME_TOKENIZER_IMPL_H

#include "runtime/base/map.h"
#include "runtime/pretok.h"
#include "runtime/tokenizer.h"
#include "runtime/tokenizer_merge.h"

#define ESP_TOKENIZER_TOKENS_MAX (1u << 24)
#define ESP_TOKENIZER_TEXT_BYTES_MAX ((size_t)1 << 30)  /* of all tokens together */
#define ESP_TOKENIZER_INPUT_BYTES_MAX ((size_t)64 << 20) /* one encode */
#define ESP_WORD_CHARS_MAX 100 /* WordPiece: longer words are unknown, as in the reference tokenizers */

enum esp_tokenizer_kind { ESP_TOKENIZER_BPE, ESP_TOKENIZER_SPM, ESP_TOKENIZER_WPM };

enum { ESP_FLAG_END = 1, ESP_FLAG_STRIP_RIGHT = 2 /* white space after it is dropped (phi-3) */ };

/* Tokens that are cut out of the text before anything else, sorted by their bytes. */
struct esp_specials {
    uint32_t *ids; /* [n] */
    uint32_t n;
    uint32_t bytes_max;
    bool starts[256]; /* some special token begins with this byte */
};

struct esp_tokenizer {
    enum esp_tokenizer_kind kind;
    uint32_t n_tokens;
    char *text;
    uint32_t *text_at; /* [n_tokens + 1] */
    char *bytes;
    uint32_t *bytes_at; /* [n_tokens + 1] */
    uint8_t *types;     /* [n_tokens] enum esp_token_type */
    uint8_t *flags;     /* [n_tokens] */
    uint32_t *order;    /* [n_tokens] SPM: lower joins first */
    struct esp_bytesmap syms;
    uint32_t sym_bytes_max; /* longest text in syms */
    struct esp_specials specials;
    uint32_t bos, eos, unk; /* or ESP_TOKEN_NONE */
    bool add_bos, add_space_prefix, lowercase, strip_accents, nfc, ignore_merges;
    uint32_t byte_token[256]; /* token of a single byte, or ESP_TOKEN_NONE */
    uint32_t byte_sym[256];   /* BPE */
    struct esp_map merges;    /* BPE: left << 32 | right → rank */
    uint32_t *merge_sym;      /* BPE: rank → symbol made */
    char *extra;              /* BPE: texts of symbols that are no tokens */
    struct esp_pretok *pretok;
    struct esp_buf warnings;
};

static inline const char *esp_token_text(const struct esp_tokenizer *tok, uint32_t id, size_t *ret_n_bytes)
{
    *ret_n_bytes = tok->text_at[id + 1] - tok->text_at[id];
    return tok->text + tok->text_at[id];
}

/* tokenizer_alphabet.c: the printable stand-ins of bytes in byte-level vocabularies. */
uint32_t esp_alphabet_char(uint8_t byte);
int esp_alphabet_byte(uint32_t cp); /* -1: stands for no byte */

/* tokenizer_load.c: tokens, types, scores and special ids; then the parts below, by kind. */
esp_status esp_tokenizer_load(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err);
/* tokenizer_decode.c: fills bytes and bytes_at. */
esp_status esp_tokenizer_make_bytes(struct esp_tokenizer *tok);
/* tokenizer_special.c */
esp_status esp_specials_create(struct esp_tokenizer *tok);
void esp_specials_mark_ends(struct esp_tokenizer *tok);
/* Longest special token at text[at…], or ESP_TOKEN_NONE. Control tokens only within control_bytes. */
uint32_t esp_specials_match(const struct esp_tokenizer *tok, const char *text, size_t n_bytes, size_t control_bytes,
                            size_t *ret_n_bytes);
/* tokenizer_bpe.c */
esp_status esp_bpe_load(struct esp_tokenizer *tok, const struct esp_gguf *gguf, struct esp_err *err);

/* One encode under way. */
struct esp_encode {
    const struct esp_tokenizer *tok;
    struct esp_merge merge;
    struct esp_pretok_run *run; /* BPE */
    struct esp_buf scratch;     /* normalised text */
    struct esp_buf word;
    struct esp_buf *ids;
    struct esp_err *err;
};
static inline void esp_encode_id(struct esp_encode *enc, uint32_t id)
{
    esp_buf_add(enc->ids, &id, sizeof id);
}
/* One piece of valid UTF-8 between special tokens, not empty. */
esp_status esp_bpe_encode(struct esp_encode *enc, const char *text, size_t n_bytes);
esp_status esp_spm_encode(struct esp_encode *enc, const char *text, size_t n_bytes);
esp_status esp_wpm_encode(struct esp_encode *enc, const char *text, size_t n_bytes);

#endif
