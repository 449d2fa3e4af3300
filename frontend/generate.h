/* A generation: one request's prompts, runs and choices, from submit to the last byte of the answer.
 *
 *   prompt 0 ──► run 0 ──► choices 0 … n − 1        a run is one submitted request of the engine
 *   prompt 1 ──► run 1 ──► choices n … 2n − 1       a choice is one of its branches
 *
 * A choice takes tokens, turns them to text and the text to parts, and tells the API of each step (stream) or of
 * all parts in the end (whole answer). How both look is the API's, in a table. Counted tokens are those whose
 * first byte is in the text: what a stop string cuts away is neither counted nor has logprobs.
 * Thread: a work thread until the first submit; then the dispatcher. Cancelling: any.
 */
#ifndef ESP_FRONTEND_GENERATE_H
#define ESP_FRONTEND_GENERATE_H

#include <pthread.h>

#include "frontend/answer.h"
#include "frontend/plan.h"
#include "frontend/request.h"
#include "frontend/turn.h"
#include "runtime/base/arena.h"

#define ESP_PROMPTS_MAX 256u
#define ESP_CHOICES_MAX 256u
#define ESP_FORK_MAX 64u /* branches */
#define ESP_CHOICE_BYTES_MAX (16u * 1024u * 1024u)

struct esp_exchange;
struct esp_generation;

struct esp_mark {      /* one generated token */
    uint64_t at_bytes; /* where its bytes begin */
    uint32_t at_chars, token;
    float logprob;
    uint32_t n_top, top_idx; /* into tops */
};
struct esp_top {
    uint32_t token;
    float logprob;
};

struct esp_choice {
    struct esp_generation *gen;
    uint32_t index;
    struct esp_answer answer;
    struct esp_buf text; /* from the answer to the turn */
    struct esp_turn turn;
    struct esp_buf marks, tops; /* of struct esp_mark, struct esp_top; without logprobs only until counted */
    size_t n_settled;           /* marks known to be counted */
    uint32_t n_tokens, n_chars, n_reasoning;
    struct esp_buf ids; /* of a chat: all that came, as uint32_t */
    bool thought;       /* it came through reasoning */
    uint32_t text_from; /* the first of ids behind it; UINT32_MAX: not known, or not at a token */
    bool cut;           /* it ends because of its length; set before the last parts end */
    const char *finish; /* stop, length, tool_calls; NULL while it runs */
};

struct esp_run {
    struct esp_generation *gen;
    esp_request_id id;
    bool submitted, cancelled;
    uint32_t n_done; /* branches */
    uint32_t *ids;   /* the prompt; in the arena */
    struct esp_explanation why; /* of its prompt, when it was admitted */
    uint32_t n_ids, n_cached, n_written, n_refused, prompt_idx;
    const struct esp_cache_marks *marks; /* in the arena */
    struct esp_label_score *scores;      /* [n] of gen->scores, in the arena; NULL until they came */
    const char *echo; /* completions: text to answer first, or NULL */
    size_t echo_bytes;
};

/* How an API looks. The functions of a stream append complete events, framing included, or nothing; each may be
 * NULL. All run under the generation's lock. A stream: begin, then for each choice first, its parts, last; in the
 * end end. Marks that are settled go into whatever is written next for the choice. */
struct esp_gen_api {
    const char *id_prefix, *prompt_param;
    const char *object, *chunk_object; /* for chunk.c */
    void (*begin)(struct esp_generation *gen, struct esp_buf *buf);
    void (*first)(struct esp_choice *choice, struct esp_buf *buf);
    void (*part_begin)(struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf);
    void (*part_piece)(struct esp_choice *choice, const struct esp_part *part, const char *text, size_t n_bytes,
                       struct esp_buf *buf);
    void (*part_end)(struct esp_choice *choice, const struct esp_part *part, struct esp_buf *buf);
    void (*last)(struct esp_choice *choice, struct esp_buf *buf); /* choice->finish is set */
    void (*end)(struct esp_generation *gen, struct esp_buf *buf);
    void (*error)(struct esp_generation *gen, int status, const char *code, struct esp_buf *buf); /* gen->error */
    void (*whole)(struct esp_generation *gen, struct esp_buf *buf); /* the body of an answer that is no stream */
    void (*drop)(void *state);                                      /* frees gen->state */
};

struct esp_scores { /* scores.c: what choice_scores asks; all in the arena */
    uint32_t n;
    struct esp_label *labels;
    const char **texts;
    size_t *text_bytes;
};

struct esp_fork_part { /* fork.c: one of the branches; in the arena but for the grammar */
    uint32_t *ids;     /* [n_ids] the whole prompt */
    uint32_t n_ids, n_max; /* n_max 0 = the request's */
    struct esp_constraint constraint; /* kind NULL = the request's */
    esp_grammar *grammar;
};

struct esp_usage {
    uint64_t n_prompt, n_cached, n_tokens, n_reasoning; /* n_reasoning of n_tokens */
    uint64_t n_written, n_refused; /* prompt tokens that pins hold newly; that pins were refused for */
};

struct esp_generation {
    struct esp_exchange *exchange; /* the owner */
    const struct esp_gen_api *api;
    void *state; /* the API's own */
    struct esp_arena arena;
    struct esp_params params;
    struct esp_plan plan; /* zero: all is text */
    /* Of a chat, for what is to be remembered of it: the key of its messages, what asked for the answer and what
     * began it. */
    const struct esp_chat *chat;
    struct esp_replay_key key;
    const char *lead;
    const uint32_t *forced_ids;
    size_t lead_bytes;
    uint32_t n_forced_ids;
    const esp_vocab *vocab;
    esp_grammar *grammar;
    struct esp_scores *scores;  /* NULL = not asked for */
    struct esp_fork_part *fork; /* [n_fork] */
    uint32_t n_fork;            /* 0 = an ordinary request */
    char id[48];
    int64_t created_s;
    struct esp_run *runs;
    uint32_t n_runs, n_runs_open; /* open: not all branches done; plus one until all are submitted */
    struct esp_choice *choices;
    uint32_t n_choices;
    pthread_mutex_t lock; /* before the exchange's; of what follows, of runs and of choices */
    bool started;         /* everything was submitted: the dispatcher answers */
    bool failed;          /* events are only counted from now on */
    bool chunk_sent;
    int error_status;
    char error[256];
    int64_t first_ns;
};

/* Gives the exchange its generation and reads the request's fields; on failure the exchange has its answer. text:
 * what request was parsed from, for the sources of schemas. Takes state. */
struct esp_generation *esp_generation_create(struct esp_exchange *exchange, const struct esp_gen_api *api,
                                             void *state, unsigned api_bit, const json_t *request, const char *text,
                                             size_t n_bytes);
/* Model names other than ours are served, or refused on request: then the exchange has its answer. */
bool esp_model_fits(struct esp_exchange *exchange, const json_t *request);
/* chat_run.c: everything after the parsing of a chat request, whatever API it came through; the exchange gets its
 * answer or its generation. request is in the shape of a chat completions body, and text its source. Takes state. */
void esp_chat_run(struct esp_exchange *exchange, const struct esp_gen_api *api, void *state, const json_t *request,
                  const char *text, size_t n_bytes);
void esp_generation_destroy(struct esp_generation *gen); /* NULL is fine */
/* A chat's: its tools and its grammar, once its prompt is rendered. */
esp_status esp_generation_plan(struct esp_generation *gen, const struct esp_chat *chat, const json_t *request,
                               const char *text, size_t n_bytes, struct esp_prompt *prompt, struct esp_err *err);
/* Copies ids. */
esp_status esp_generation_prompt(struct esp_generation *gen, const uint32_t *ids, uint32_t n_ids, struct esp_err *err);
/* What the prompt that was given last asks of the cache; copies. */
esp_status esp_generation_marks(struct esp_generation *gen, const struct esp_cache_marks *marks, struct esp_err *err);
/* scores.c: does nothing unless they are asked for; refuses with err->place. What came with the last event of branch 0,
 * under the lock; ,"choice_probabilities":[…] where there are some. */
esp_status esp_scores_make(struct esp_generation *gen, struct esp_err *err);
void esp_scores_take(struct esp_run *run, const struct esp_label_score *scores);
void esp_scores_write(const struct esp_choice *choice, struct esp_buf *buf);
/* fork.c: prompt gets that of the first branch; then the generation has its plan and its prompt. */
bool esp_fork_asked(const json_t *request);
esp_status esp_fork_read(struct esp_generation *gen, const struct esp_chat *chat, const json_t *request,
                         const char *text, size_t n_bytes, struct esp_prompt *prompt, struct esp_err *err);
bool esp_fork_compile(struct esp_generation *gen); /* false: the exchange has its answer */
esp_status esp_fork_submit(struct esp_generation *gen, const struct esp_request *request, esp_request_id *ret_id,
                           struct esp_err *err);
void esp_fork_finish(struct esp_generation *gen);
uint64_t esp_fork_suffix_tokens(const struct esp_generation *gen);
void esp_grammar_code(const struct esp_err *err, char *ret_code, size_t room); /* "grammar_unsupported" and so on */
/* Compiles the grammar, submits every run. On failure the exchange has its answer. */
void esp_generation_start(struct esp_generation *gen);
/* True when the dispatcher will answer: the work thread must not. */
bool esp_generation_owns_answer(const struct esp_generation *gen);
/* Cancels what still runs. Any thread. */
void esp_generation_cancel(struct esp_generation *gen);
/* The dispatcher's: one event. The last one of a run gives up the run's reference to the exchange. */
void esp_generation_event(struct esp_run *run, const struct esp_event *event);
struct esp_figures { /* for the log; finish: stop, length, error, cancelled; ttft_ns -1 = no token came */
    const char *finish;
    struct esp_usage usage;
    int64_t ttft_ns;
    struct esp_explanation why; /* of the first prompt; n_prompt 0 = it never came to that */
};
void esp_generation_figures(struct esp_generation *gen, struct esp_figures *ret_figures);

/* choice.c: under the generation's lock. */
void esp_choice_token(struct esp_choice *choice, const struct esp_event *event);
void esp_choice_done(struct esp_choice *choice, const char *finish); /* "stop", "length" */
void esp_choice_init(struct esp_choice *choice, struct esp_generation *gen, uint32_t index);
void esp_choice_finish(struct esp_choice *choice);
/* Before the first token: what a stream begins with, and the echoed prompt. */
void esp_generation_first(struct esp_generation *gen);
void esp_generation_answer(struct esp_generation *gen);              /* all is done: the rest of the answer */
void esp_generation_error(struct esp_generation *gen, int status, const char *message);

void esp_generation_usage(const struct esp_generation *gen, struct esp_usage *ret_usage);

/* chunk.c: what chat and completions share. A chunk is open, the inside of its choice, close. */
void esp_chunk_open(struct esp_choice *choice, struct esp_buf *buf);
void esp_chunk_close(struct esp_choice *choice, struct esp_buf *buf);
void esp_chunk_end(struct esp_generation *gen, struct esp_buf *buf); /* usage when asked for, [DONE] */
void esp_chunk_whole(struct esp_generation *gen, struct esp_buf *buf,
                     void (*inside)(struct esp_choice *choice, struct esp_buf *buf));
/* The mark's text, quoted; logprob digits (equal floats, equal digits). */
void esp_mark_quote(const struct esp_generation *gen, struct esp_buf *buf, uint32_t token);
const char *esp_mark_bytes(const struct esp_generation *gen, uint32_t token, size_t *ret_n_bytes);
void esp_logprob_write(struct esp_buf *buf, float logprob);
/* The settled marks as chat's logprobs entries, with commas between. */
void esp_logprobs_write(const struct esp_choice *choice, struct esp_buf *buf);
static inline const struct esp_mark *esp_choice_marks(const struct esp_choice *choice)
{
    return (const struct esp_mark *)(const void *)choice->marks.data;
}
static inline const struct esp_top *esp_choice_tops(const struct esp_choice *choice)
{
    return (const struct esp_top *)(const void *)choice->tops.data;
}

#endif
