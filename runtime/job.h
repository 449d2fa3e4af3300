/* A request inside the engine: a private copy of everything the client handed over, and its branches.
 *
 * Made whole in the client's thread (so that a bad request or a lack of memory fails at esp_submit and
 * costs the engine nothing), then owned by the engine until the last DONE event has been taken. All of
 * it lives in one arena of the job but for grammar objects. What a decode step needs is allocated here.
 * Thread: the client's while it is made, then the engine's; n_polled belongs to the lock of events.h.
 */
#ifndef ESP_RUNTIME_JOB_H
#define ESP_RUNTIME_JOB_H

#include "runtime/base/arena.h"
#include "runtime/inbox.h"
#include "runtime/labels.h"
#include "runtime/seq.h"

#define ESP_JOB_BRANCHES_MAX 64
#define ESP_JOB_BIAS_MAX 1024
#define ESP_JOB_SALT_BYTES_MAX 1024 /* of salt, key and session each */
#define ESP_JOB_PRIORITY_MAX 100 /* and −100 */
#define ESP_JOB_IDLE_MAX 64u      /* idle jobs at a time */
#define ESP_OUTBOX_TOKENS_MAX 64 /* token events of a sequence that may wait for the poller */

/* What a request is checked against. */
struct esp_job_limits {
    uint32_t n_ctx;       /* tokens of a timeline */
    uint32_t n_pool;      /* tokens that the page pool holds */
    uint32_t n_vocab;
    uint32_t n_vocab_rows; /* width of logits */
};

struct esp_job_pin {
    uint32_t n_pages, n_reserved;
    int64_t ttl_ns;
    bool open; /* granted and not made yet */
};

struct esp_job {
    struct esp_msg msg; /* first: the inbox carries jobs by it */
    esp_request_id id;
    void *user;
    uint32_t n_prompt; /* what all branches have in common */
    uint32_t n_branches;
    struct esp_sampling sampling; /* bias arrays in the arena */
    struct esp_labels *labels; /* or NULL; in the arena */
    const void *salt, *key; /* NULL = none */
    size_t salt_bytes, key_bytes;
    uint32_t session; /* of the tree; ESP_TREE_SESSION_NONE = to be found out */
    bool comes_back;
    uint32_t n_head; /* pages that outlive the conversation */
    struct esp_job_pin *pins; /* [n_pins] */
    uint32_t n_pins, n_written, n_refused; /* tokens, as DONE tells */
    bool ignore_end;
    bool idle;          /* computes its prompt when there is nothing else to do, and ends without an event */
    int priority;
    uint64_t tenant;    /* key of the name (fair.h); 0 = nameless */
    int64_t timeout_ns; /* 0 = none */

    struct esp_ns_id ns;
    bool no_share; /* no namespace was free: computed alone, nothing kept */
    uint32_t n_counted; /* prompt tokens that the metrics have counted, as computed or cached */
    uint32_t n_cached;
    uint32_t n_reusable; /* that were stored when it was admitted, or once before */
    struct esp_explanation why;
    bool received; /* by the engine thread */
    bool admitted; /* some branch has been, once */
    _Atomic bool waiting; /* has a place in the queue: not admitted yet. Others count these under the slots' lock */
    uint32_t n_done, n_polled;
    enum esp_finish finish; /* the worst of its branches */
    int64_t submit_ns, admit_ns, first_token_ns;
    int64_t deadline_ns; /* INT64_MAX = none */

    struct esp_arena arena;
    struct esp_seq *seqs; /* [n_branches] */
};

struct esp_job_spec {
    const struct esp_request *request;
    const struct esp_branch *branches; /* [n_branches], or NULL: request.n equal ones */
    uint32_t n_branches;
    bool idle;
};

/* Checks the request and copies it. Returns owned; ESP_EINVAL with err->place, ESP_ELIMIT with both
 * numbers, ESP_ENOMEM. */
esp_status esp_job_create(const struct esp_job_spec *spec, const struct esp_job_limits *limits,
                          struct esp_job **ret_job, struct esp_err *err);

void esp_job_destroy(struct esp_job *job); /* NULL is fine */

#endif
