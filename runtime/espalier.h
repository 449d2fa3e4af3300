/* Espalier's public header: the one door to the engine.
 *
 * An engine owns a model and a cache of everything it has computed. A client hands over the full token
 * timeline of each request and polls for events; what was computed before is found and shared by the
 * engine. The HTTP server, the command line and the examples are clients of this header.
 *
 * Errors: functions return 0 or a negative esp_status and fill *err (which may be NULL).
 * Threads: every function may be called from any thread, except that one thread at a time polls an
 * engine. Strings are UTF-8, sizes are bytes, times are nanoseconds unless the name says otherwise.
 */
#ifndef ESPALIER_H
#define ESPALIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ESP_VERSION "0.1.0"
#define ESP_TOP_LOGPROBS_MAX 20

typedef struct esp_engine esp_engine;
typedef struct esp_vocab esp_vocab;
typedef struct esp_grammar esp_grammar;

/* ---- Vocabulary: text to tokens and back ------------------------------------------------------ */

/* Reads only the vocabulary of a GGUF file. Returns owned. ESP_EIO when the file cannot be read, ESP_EINVAL when it is
 * malformed, ESP_EUNSUPPORTED for a tokenizer that this build does not know. */
esp_status esp_vocab_open(const char *path, esp_vocab **ret_vocab, struct esp_err *err);
void esp_vocab_close(esp_vocab *vocab); /* NULL is fine */
uint32_t esp_vocab_n_tokens(const esp_vocab *vocab);

/* Text in spans, tokenized as one text. Only in spans with `control` set can the text of a control
 * token (<|im_end|>) become that token; user-defined tokens are always recognised. */
struct esp_span {
    const char *text;
    size_t n_bytes;
    bool control;
};
/* Writes at most cap ids and returns the number that the text has (call again with more room when it
 * is larger), or a negative status. Nothing is added: no BOS, no EOS. */
int64_t esp_tokenize(const esp_vocab *vocab, const struct esp_span *spans, size_t n_spans, uint32_t *ids,
                     size_t cap, struct esp_err *err);
/* The bytes of one token as they appear in running text: may be part of a character. Control tokens have
 * no bytes unless `control` is set. Borrowed until the vocabulary is closed. Unknown id: NULL, 0. */
const char *esp_token_bytes(const esp_vocab *vocab, uint32_t id, bool control, size_t *ret_n_bytes);
/* Turns ids into text as the tokenizer's decoder does (joins, cleans up word pieces, drops the space
 * that SPM adds in front). Same return as esp_tokenize, in bytes. */
int64_t esp_detokenize(const esp_vocab *vocab, const uint32_t *ids, size_t n_ids, bool control, char *text,
                       size_t cap);
#define ESP_TOKEN_NONE UINT32_MAX
/* The ids that begin and end a text; ESP_TOKEN_NONE when the model has none. */
uint32_t esp_vocab_bos(const esp_vocab *vocab);
uint32_t esp_vocab_eos(const esp_vocab *vocab);
bool esp_vocab_adds_bos(const esp_vocab *vocab); /* whether the model expects bos before every text */
bool esp_vocab_is_end(const esp_vocab *vocab, uint32_t id); /* ends an answer: eos, eot, … */
/* A string of the model file ("tokenizer.chat_template"), or NULL. Borrowed until the vocabulary is closed. */
const char *esp_vocab_meta(const esp_vocab *vocab, const char *key);

/* ---- Grammars ---------------------------------------------------------------------------------- */

/* kind: "schema" (JSON schema as source text), "regex" (full match), "choice" (JSON array of strings),
 * "json" (any JSON object; text unused), "gbnf", "lark", "regions" (JSON of parts; grammar/grammar.h has
 * its form). options: a JSON object text with the names of the command `grammar check`, or NULL. Equal
 * grammars are compiled once (cache by content, bounded in bytes). Refuses with ESP_EINVAL,
 * ESP_EUNSUPPORTED, ESP_EUNSAT or ESP_ELIMIT; err->place is the JSON pointer, err->keyword the keyword. A
 * grammar is immutable and refcounted: give the reference back with esp_grammar_unref, before vocab is
 * closed. */
esp_status esp_vocab_grammar(const esp_vocab *vocab, const char *kind, const char *text, size_t n_bytes,
                             const char *options, esp_grammar **ret_grammar, struct esp_err *err);
void esp_grammar_unref(esp_grammar *grammar); /* NULL is fine */
/* JSON array of {"code","param","message"}; borrowed from the grammar. */
const char *esp_grammar_warnings(const esp_grammar *grammar);

/* ---- Engine ----------------------------------------------------------------------------------- */

#define ESP_AUTO 0 /* for sizes and counts below: choose */

struct esp_config {
    const char *model_path;
    const char *device;     /* "auto", "cpu" */
    uint32_t n_ctx;         /* tokens a request may have; ESP_AUTO = the model's, at most 8,192 */
    uint64_t kv_bytes;      /* ESP_AUTO = room for 4 full contexts, at most a quarter of free memory */
    uint64_t kv_tokens;     /* with kv_bytes = ESP_AUTO: room for this many tokens instead */
    uint32_t n_threads;     /* ESP_AUTO = CPUs of this process */
    uint32_t n_batch_max;   /* sequences that run at once; ESP_AUTO = 64 */
    uint32_t prefill_chunk; /* prompt tokens per step; ESP_AUTO = 512 */
    uint32_t n_queue_max;   /* waiting requests before ESP_EBUSY; ESP_AUTO = 1,024 */
    const char *cache_dir;  /* keeps pages in a file there, for the next start; NULL = none */
    uint64_t cache_bytes;   /* of that file; ESP_AUTO = 8 GiB */
    bool cache_off;         /* never share or keep pages (for comparisons) */
};

/* Loads the model and starts the engine thread. Returns owned. Before anything large is allocated the memory plan is
 * made; when it does not fit, ESP_ENOMEM with the exact shortfall. ESP_EIO and ESP_EINVAL for a file that cannot be
 * read or is malformed, ESP_EINVAL with err->place for a size out of range, ESP_EUNSUPPORTED for what this build does
 * not do. */
esp_status esp_engine_open(const struct esp_config *config, esp_engine **ret_engine, struct esp_err *err);
/* Ends what runs, without events. No other call of this engine may be running or come later. NULL is fine. */
void esp_engine_close(esp_engine *engine);
const esp_vocab *esp_engine_vocab(const esp_engine *engine); /* borrowed until the engine is closed */

struct esp_engine_info {
    const char *arch, *name, *device, *level; /* borrowed until the engine is closed */
    uint32_t n_ctx, n_ctx_model; /* tokens: what a request may have here, and what the model was trained for */
    uint32_t n_vocab, n_layer, n_embd, n_threads;
    uint32_t n_pages, page_tokens; /* of the cache, and tokens a page */
    uint64_t plan_weights_bytes, plan_kv_bytes, plan_activation_bytes, plan_logit_bytes, plan_other_bytes;
};
void esp_engine_get_info(const esp_engine *engine, struct esp_engine_info *ret_info);

struct esp_sampling {
    float temperature;                                             /* 0 = greedy; at most 1,000 */
    float top_p, min_p;                                            /* 1 and 0 = off */
    float repetition_penalty, presence_penalty, frequency_penalty; /* 1, 0, 0 = off */
    uint32_t top_k;                                                /* 0 = off */
    uint64_t seed;                                                 /* equal seeds draw equal answers */
    const uint32_t *bias_ids;                                      /* [n_bias] tokens … */
    const float *bias;                                             /* … and what is added to their logits */
    uint32_t n_bias;                                               /* at most 1,024 */
    bool logprobs;                                                 /* events carry logprob and top_… */
    uint32_t n_top_logprobs;                                       /* at most ESP_TOP_LOGPROBS_MAX */
};
struct esp_sampling esp_sampling_default(void); /* temperature 1, everything else off */

#define ESP_PINS_MAX 16
/* Asks that the first n_tokens of the prompt stay cached for ttl_ns after each use (whole pages of them). Granted or
 * refused when the engine receives the request; see DONE. A granted pin is not lost before its time. */
struct esp_pin {
    uint32_t n_tokens;
    int64_t ttl_ns; /* at least 1 */
};

struct esp_request {
    const uint32_t *tokens; /* the full timeline so far, at least one */
    uint32_t n_tokens;
    uint32_t n_max;         /* tokens to generate; cut to what fits the context */
    uint32_t n;             /* branches, 1 to 64; branch i draws with seed + i */
    struct esp_sampling sampling;
    esp_grammar *grammar;   /* or NULL; of esp_engine_vocab; the engine takes its own reference */
    const void *cache_salt; /* pages are shared among equal salts only; NULL = without one */
    size_t cache_salt_bytes; /* at most 1,024 */
    const void *cache_key;   /* and among equal keys only; NULL = without one */
    size_t cache_key_bytes;  /* at most 1,024 */
    const void *session;     /* names the conversation that this is a turn of; NULL = found out from the prompt */
    size_t session_bytes;    /* at most 1,024 */
    bool comes_back;         /* the answer is likely to call a tool: see esp_turn_over */
    uint32_t n_head; /* leading tokens that other conversations begin with too (system text, tools): kept when this
                      * one ends; 0 = not known: then the whole prompt is, unless session is given */
    const struct esp_pin *pins; /* [n_pins] by n_tokens, ascending */
    uint32_t n_pins; /* at most ESP_PINS_MAX */
    bool ignore_end;        /* go on past end tokens (benchmarks) */
    const void *tenant;     /* whose share of the engine this takes; NULL = of those without a name */
    size_t tenant_bytes;
    const struct esp_label *labels; /* [n_labels] scored once the prompt is computed; see esp_event */
    uint32_t n_labels;      /* at most ESP_LABELS_MAX */
    int priority;           /* −100 to 100, higher is earlier: orders the requests of one tenant */
    int64_t timeout_ns;     /* ends with ESP_FINISH_TIMEOUT this long after esp_submit; 0 = never */
    void *user;             /* comes back in every event */
};

/* Labels of which the last event tells how likely each is as the whole answer (request.labels). */
struct esp_label {
    const uint32_t *tokens;
    uint32_t n_tokens; /* 1 to ESP_LABEL_TOKENS_MAX */
};
#define ESP_LABELS_MAX 1024
#define ESP_LABEL_TOKENS_MAX 256
struct esp_label_score {
    double logprob;     /* natural: of the label's tokens and an end token after them; unmasked, at temperature 1 */
    double probability; /* exp(logprob), normalised over the labels that were given */
};

typedef uint64_t esp_request_id;
/* Borrows the request until it returns. ESP_EINVAL (with err->place), ESP_ELIMIT when the prompt does not
 * fit the context or the page pool (both numbers in the message), ESP_EBUSY when the queue is full. */
esp_status esp_submit(esp_engine *engine, const struct esp_request *request, esp_request_id *ret_id,
                      struct esp_err *err);
/* Branches from one state: request.tokens is what they have in common and is computed once (whole pages of it), behind
 * it each has its own suffix, limit and grammar. request.n is not looked at; branch i answers as a request of its own
 * tokens with seed + i would, and its events have branch = i. Errors as esp_submit, places "branches[i].…". */
struct esp_branch {
    const uint32_t *suffix; /* [n_suffix] */
    uint32_t n_suffix;      /* may be 0 */
    uint32_t n_max;         /* 0 = the request's */
    esp_grammar *grammar;   /* or NULL; request.grammar is not looked at */
};
esp_status esp_fork(esp_engine *engine, const struct esp_request *request, const struct esp_branch *branches,
                    uint32_t n_branches, esp_request_id *ret_id, struct esp_err *err);
/* Computes the whole pages of request.tokens when there is nothing else to do, so that a prompt that begins with them
 * finds them; gives no event. esp_cancel ends it. Errors as esp_submit; ESP_EBUSY when 64 are under way already. */
esp_status esp_prefill(esp_engine *engine, const struct esp_request *request, esp_request_id *ret_id,
                       struct esp_err *err);
/* After ESP_EBUSY: in how many nanoseconds a place should be free, from the pace at which requests are admitted. */
int64_t esp_retry_after_ns(esp_engine *engine);
/* Frees the request's pages at once; its last event is DONE with ESP_FINISH_CANCELLED. Unknown or finished
 * ids are fine. */
void esp_cancel(esp_engine *engine, esp_request_id id);
/* Ends one branch of which the client has seen enough (a stop string came), frees its pages and lets the others go
 * on. Its last event is DONE with ESP_FINISH_STOP, after those tokens that were on their way. Unknown or finished
 * ids, and branches that are not there, are fine. */
void esp_stop(esp_engine *engine, esp_request_id id, uint32_t branch);

/* What the answer of a request that is done turned out to be: comes_back when it called a tool (its pages wait for the
 * next turn), else the conversation has ended (they go first). Corrects what the request said; takes effect with
 * the next step. Unknown ids are fine, and only the latest 1,024 answers are remembered. */
void esp_turn_over(esp_engine *engine, esp_request_id id, bool comes_back);

/* Why the cache had no more of a prompt. PENDING: a request in the engine has more of it and computes it. */
enum esp_cause { ESP_CAUSE_HIT, ESP_CAUSE_NEVER_SEEN, ESP_CAUSE_EVICTED, ESP_CAUSE_OTHER_NAMESPACE, ESP_CAUSE_PENDING };
struct esp_explanation {
    enum esp_cause cause;
    uint32_t n_prompt, n_cached; /* tokens; HIT: no whole page is missing */
    uint32_t have, want;         /* at n_cached: the token that is stored there, and the prompt's; ESP_TOKEN_NONE both
                                  * when what is stored does not go on otherwise */
    uint32_t n_evicted, n_elsewhere; /* tokens: once stored behind n_cached; stored for another namespace */
    uint32_t n_pending;              /* tokens behind n_cached that come from a request at work */
    int64_t evicted_ago_ns;
};
/* For request.tokens, cache_salt and cache_key, as of now; runs nothing and waits for the running step. ESP_EINVAL. */
esp_status esp_explain(esp_engine *engine, const struct esp_request *request, struct esp_explanation *ret_explanation,
                       struct esp_err *err);

enum esp_event_kind { ESP_EVENT_TOKEN, ESP_EVENT_DONE };
enum esp_finish { ESP_FINISH_STOP, ESP_FINISH_LENGTH, ESP_FINISH_CANCELLED, ESP_FINISH_ERROR, ESP_FINISH_TIMEOUT };
#define ESP_FINISHES 5
struct esp_event {
    enum esp_event_kind kind;
    esp_request_id id;
    uint32_t branch; /* 0 … n − 1; every branch ends with a DONE of its own */
    void *user;
    /* TOKEN: the end token itself gives no event */
    uint32_t token;
    float logprob; /* natural logarithm */
    uint32_t n_top;
    uint32_t top_id[ESP_TOP_LOGPROBS_MAX];
    float top_logprob[ESP_TOP_LOGPROBS_MAX];
    /* DONE */
    enum esp_finish finish;
    uint32_t n_prompt, n_cached, n_generated; /* tokens; n_cached of the prompt were not computed again */
    uint32_t n_cached_suffix; /* of a fork: of this branch's suffix; n_cached then counts the common tokens only */
    const struct esp_label_score *scores; /* [n_labels] branch 0, or NULL; borrowed until the next esp_poll */
    uint32_t n_written, n_refused; /* tokens that the request's pins hold newly; that they were refused for */
    struct esp_explanation why; /* of branch 0, when the request was admitted */
    int64_t queue_ns, ttft_ns, total_ns;      /* since esp_submit: until admitted, first token, end */
    char error[256]; /* for ESP_FINISH_ERROR */
};
/* Waits up to timeout_ns (negative = for ever). False: nothing came. */
bool esp_poll(esp_engine *engine, int64_t timeout_ns, struct esp_event *ret_event);
/* Wakes a poll that waits; it returns false. */
void esp_wake(esp_engine *engine);

/* Runs a prompt through the model outside the cache and hands over the logits of every position, in order,
 * from the engine's thread: visit(ctx, pos, logits[n_vocab]) returns false to stop. Waits for the end. Running requests
 * may be preempted and go on afterwards. ESP_EINVAL and ESP_ELIMIT as esp_submit, ESP_ENOMEM. */
esp_status esp_logits(esp_engine *engine, const uint32_t *tokens, uint32_t n_tokens,
                      bool (*visit)(void *ctx, uint32_t pos, const float *logits), void *ctx, struct esp_err *err);

enum esp_pooling { ESP_POOL_MEAN, ESP_POOL_LAST };
/* The vector of a text: what the model's final norm gives, [n_embd] of esp_engine_info, of the last token or as the
 * mean over all tokens; of no particular length. Outside the cache, and it waits like esp_logits, with its errors. */
esp_status esp_embed(esp_engine *engine, const uint32_t *tokens, uint32_t n_tokens, enum esp_pooling pooling,
                     float *ret_vector, struct esp_err *err);

/* ---- Cache and counters ----------------------------------------------------------------------- */

/* Drops the pages that no request uses and returns their number. Waits for the running step. */
uint32_t esp_cache_flush(esp_engine *engine);
/* The tree as JSON text (the answer of GET /v1/cache), at most limit nodes. Free with esp_text_free. Waits for the
 * running step. ESP_ENOMEM. */
esp_status esp_cache_dump(esp_engine *engine, uint32_t limit, char **ret_text, struct esp_err *err);
void esp_text_free(char *text);

#define ESP_HISTOGRAM_BUCKETS 20
struct esp_histogram { /* bucket i counts values ≤ first · 2^i seconds; the last one counts all */
    double first_s;
    uint64_t bucket[ESP_HISTOGRAM_BUCKETS + 1];
    double sum_s;
    uint64_t n;
};
enum esp_page_kind { ESP_PAGES_FREE, ESP_PAGES_PRIVATE, ESP_PAGES_PENDING, ESP_PAGES_CACHED,
                     ESP_PAGES_HOST, /* there is no such tier yet: 0 */
                     ESP_PAGES_DISK, /* in the page file; no part of kv_pages_total */
                     ESP_PAGE_KINDS };
/* Counts since the engine was opened; running, waiting, kv_pages, their total and leased ones are as of now. */
struct esp_metrics {
    uint64_t prompt_tokens_computed, prompt_tokens_cached, prompt_tokens_recomputed, generation_tokens;
    uint64_t prompt_tokens_reusable; /* that a cache without a limit would have had */
    uint64_t idle_prefill_tokens; /* computed by esp_prefill */
    uint64_t requests_running, requests_waiting;
    uint64_t requests_finished[ESP_FINISHES]; /* by enum esp_finish */
    uint64_t kv_pages[ESP_PAGE_KINDS], kv_pages_total, kv_pages_leased, kv_evicted_pages, preemptions;
    uint64_t kv_pages_saved, kv_pages_restored; /* to and from the page file */
    uint64_t kv_pages_pinned, pins, pins_granted, pins_refused; /* the first two as of now */
    struct esp_histogram ttft, inter_token, mask, compile, step;
};
void esp_get_metrics(esp_engine *engine, struct esp_metrics *ret_metrics); /* never waits for a step */

#ifdef __cplusplus
}
#endif
#endif
