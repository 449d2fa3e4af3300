/* Grammars as token masks: the whole public face of this folder.
 *
 *   schema | regex | choice ──compile──► esp_grammar (immutable, refcounted, shared between threads)
 *                                             │ one per sequence
 *   esp_trie (vocabulary as bytes) ───────► esp_matcher ──► mask of allowed tokens, accept(token)
 *
 * A compiled grammar belongs to the trie it was compiled for. Masks are exact: a token is allowed if
 * and only if some complete text begins with what was taken so far plus the token's bytes; end tokens
 * are allowed only when the value is complete. Control tokens are never reachable through bytes.
 * What cannot be honoured exactly is refused (ESP_EUNSUPPORTED with pointer and keyword), never widened.
 * Knows bytes and the vocabulary; knows no models and no HTTP.
 * Thread: compile may run in any thread; grammars and tries are shared; a matcher has one owner.
 */
#ifndef ESP_GRAMMAR_GRAMMAR_H
#define ESP_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/status.h"

/* ---- The vocabulary ------------------------------------------------------------------------- */

struct esp_trie;
enum esp_token_role {
    ESP_ROLE_TEXT,    /* spells bytes */
    ESP_ROLE_CONTROL, /* never reachable through bytes, which are its name, as in <|tool|> */
    ESP_ROLE_END      /* a control token that ends the answer */
};
struct esp_trie_token {
    const void *bytes; /* borrowed during create; an empty TEXT token is never allowed */
    uint32_t n_bytes;
    enum esp_token_role role;
};
esp_status esp_trie_create(const struct esp_trie_token *tokens, uint32_t n_tokens, struct esp_trie **ret_trie,
                           struct esp_err *err);
void esp_trie_destroy(struct esp_trie *trie); /* NULL is fine; no grammar of it may live */
uint32_t esp_trie_n_tokens(const struct esp_trie *trie);

/* ---- Compiling ------------------------------------------------------------------------------ */

enum esp_grammar_kind {
    ESP_GRAMMAR_SCHEMA, /* text = JSON schema as source text */
    ESP_GRAMMAR_REGEX,  /* text = pattern, full match */
    ESP_GRAMMAR_CHOICE, /* text = JSON array of strings */
    ESP_GRAMMAR_JSON,   /* any JSON object (response_format json_object); text unused */
    ESP_GRAMMAR_GBNF,   /* refused with ESP_EUNSUPPORTED until it is built */
    ESP_GRAMMAR_LARK,   /* likewise */
    ESP_GRAMMAR_REGIONS /* text = JSON of regions, below */
};
/* Regions: an answer made of parts, for tools, reasoning and schemas in one grammar. A part is one of
 *   {"seq":[P…]}  {"any":[P…]}  {"repeat":P,"min":0,"max":N}      max absent: no limit
 *   {"text":"…"}  {"token":id or "<name>"}                        exactly this text, this control token
 *   {"schema":S,"options":{…}}  {"regex":"…"}  {"choice":[…]}     as the kinds of the same names
 *   {"free":{"until":["…" or {"token":…}, …],"tokens":N}}         any text without one of these; at most N tokens
 * A schema may also be given as a string that holds its source. Options of a schema go before those of the compile;
 * "escapes" must be the same in all. A token that spells text (user-defined ones such as <tool_call>) means its
 * bytes, so it may come whole or in pieces, and so may every text; end tokens are no parts, they come by themselves
 * when all is complete. Control tokens never come inside of free text, whether they are in "until" or not; what
 * follows a free part usually begins with one of its "until". A token counts when it ends inside the free part; after
 * N of them only what follows may come (and the rest of a character). At most ESP_GRAMMAR_REGIONS_BYTES_MAX of text. */
#define ESP_GRAMMAR_REGIONS_BYTES_MAX (8u * 1024 * 1024)
enum esp_grammar_whitespace { ESP_WS_COMPACT, ESP_WS_LINE, ESP_WS_PRETTY };

/* A place that was refused, and why: its keyword is left out. */
struct esp_grammar_weak {
    const char *place, *why;
    const struct esp_grammar_weak *next;
};
/* Zero is the default of every field. */
struct esp_grammar_options {
    bool order_any;       /* "order":"any"; default declared */
    enum esp_grammar_whitespace whitespace;
    bool escapes_any;     /* "escapes":"any"; default short */
    bool formats_annotate;/* "formats":"annotate"; default assert */
    bool lenient; /* what is refused is left out of a schema, and named in warnings */
    const struct esp_grammar_weak *weak; /* compile's own */
    struct esp_buf *explain;             /* explain's own */
    uint64_t fuel; /* steps a compile may take; 0 = ESP_GRAMMAR_FUEL */
};
#define ESP_GRAMMAR_FUEL 20000000u
#define ESP_GRAMMAR_TEXT_BYTES_MAX (1024u * 1024u) /* source text; more is ESP_ELIMIT */
#define ESP_GRAMMAR_DEPTH_MAX 64u                  /* nesting of the source; more is ESP_ELIMIT */

struct esp_grammar_spec {
    enum esp_grammar_kind kind;
    const char *text;
    size_t n_bytes;
    struct esp_grammar_options options;
};

struct esp_grammar;
/* Refuses with ESP_EINVAL, ESP_EUNSUPPORTED, ESP_EUNSAT (nothing fits, or the vocabulary cannot spell
 * it), ESP_ELIMIT or ESP_ENOMEM; err->place is the JSON pointer of the keyword in err->keyword. */
esp_status esp_grammar_compile(const struct esp_trie *trie, const struct esp_grammar_spec *spec,
                               struct esp_grammar **ret_grammar, struct esp_err *err);
struct esp_grammar *esp_grammar_ref(struct esp_grammar *grammar);
void esp_grammar_unref(struct esp_grammar *grammar); /* NULL is fine */
const struct esp_trie *esp_grammar_trie(const struct esp_grammar *grammar); /* the one it was compiled for */
size_t esp_grammar_bytes(const struct esp_grammar *grammar); /* now, lazily built parts included */
/* Warnings (unknown format, …) as a JSON array text of {"code","param","message"}; "[]" when none. */
const char *esp_grammar_warnings(const struct esp_grammar *grammar);
/* Compiles and adds to buf, as a JSON array, what each keyword of a schema became: {"pointer","keyword","became",
 * "cost"}, cost in expressions made for it alone. Also when the schema is refused, which the status tells. */
esp_status esp_grammar_explain(const struct esp_trie *trie, const struct esp_grammar_spec *spec, struct esp_buf *buf,
                               struct esp_err *err);
/* The automaton as a picture for Graphviz, at most so many states. */
void esp_grammar_dot(struct esp_grammar *grammar, uint32_t n_states_max, struct esp_buf *buf);
/* What it compiled to, as text for people. */
void esp_grammar_dump(const struct esp_grammar *grammar, struct esp_buf *buf);

/* ---- Matching ------------------------------------------------------------------------------- */

struct esp_matcher;
#define ESP_MATCHER_TOKENS_MAX 1000000u /* history kept for rollback */

esp_status esp_matcher_create(struct esp_grammar *grammar, struct esp_matcher **ret_matcher); /* takes a ref */
esp_status esp_matcher_fork(const struct esp_matcher *matcher, struct esp_matcher **ret_matcher);
void esp_matcher_destroy(struct esp_matcher *matcher); /* NULL is fine */

static inline size_t esp_mask_words(uint32_t n_tokens)
{
    return ((size_t)n_tokens + 63) / 64;
}
/* The mask of the tokens allowed next; bit i of word i / 64; bits past n_tokens are 0. The pointer is
 * borrowed until the matcher moves or is destroyed; equal states share one mask. NULL only when out of
 * memory. After an end token nothing is allowed: the mask is empty. */
const uint64_t *esp_matcher_mask(struct esp_matcher *matcher);
/* Takes one token. ESP_EINVAL, and no change, when the token is not allowed. */
esp_status esp_matcher_accept(struct esp_matcher *matcher, uint32_t token);
/* Takes back the last n tokens (an end token too). ESP_EINVAL when fewer were taken. */
esp_status esp_matcher_rollback(struct esp_matcher *matcher, uint32_t n);
bool esp_matcher_complete(const struct esp_matcher *matcher); /* an end token is allowed now */
bool esp_matcher_ended(const struct esp_matcher *matcher);    /* an end token was taken */

/* The same mask by brute force, token by token and byte by byte, without tries, slices or caches:
 * the oracle of the tests. mask has esp_mask_words words. */
esp_status esp_matcher_mask_oracle(struct esp_matcher *matcher, uint64_t *mask);

#endif
