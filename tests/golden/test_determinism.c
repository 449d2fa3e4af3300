/* A cache hit never changes the answer: the same bits on the real model, whatever the engine did to get there.
 *
 * One set of requests is run cold and alone; its tokens, logprobs and alternatives are the reference. Then
 * the same requests run cached, in chunks of other sizes, beside 63 others, after eviction, and under so
 * little memory that sequences are preempted. Bits are compared, not tolerances.
 */
#include "runtime/espalier.h"
#include "tests/esptest.h"

#define N_PROMPT 120
#define N_SHARED 90
#define N_NEW 8
#define N_TOP 5
#define N_LOGITS 70
#define N_KINDS 4
#define N_BATCH 64
#define PAGE_BYTES 368640ull /* of this model: 30 layers, 3 heads of 64, 16 tokens, K and V in f16 */

struct answer {
    uint32_t n, token[N_NEW];
    float logprob[N_NEW], top_logprob[N_NEW][N_TOP];
    uint32_t top_id[N_NEW][N_TOP];
    struct esp_event done;
};

static const char *model_path;
static struct answer reference[N_KINDS];

static esp_engine *open_with(struct esp_config config)
{
    esp_engine *engine = NULL;
    struct esp_err err = {0};
    config.model_path = model_path;
    CHECK(esp_engine_open(&config, &engine, &err) == ESP_OK, "%s", err.message);
    return engine;
}

/* Kinds part after N_SHARED tokens; half of them draw, half are greedy. */
static struct esp_request request_of(uint32_t kind, uint32_t tokens[N_PROMPT])
{
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        tokens[i] = (uint32_t)(esp_rng_at(i < N_SHARED ? 7 : kind, i) % 40000) + 20;
    }
    struct esp_request request = {.tokens = tokens, .n_tokens = N_PROMPT, .n_max = N_NEW, .n = 1,
                                  .sampling = esp_sampling_default(), .ignore_end = true};
    request.sampling.temperature = kind % 2 == 0 ? 0 : 1;
    request.sampling.seed = kind;
    request.sampling.logprobs = true;
    request.sampling.n_top_logprobs = N_TOP;
    return request;
}

static void submit(esp_engine *engine, uint32_t kind, struct answer *answer)
{
    uint32_t tokens[N_PROMPT];
    struct esp_request request = request_of(kind, tokens);
    struct esp_err err = {0};
    esp_request_id id;
    memset(answer, 0, sizeof *answer);
    request.user = answer;
    CHECK(esp_submit(engine, &request, &id, &err) == ESP_OK, "%s", err.message);
}

static void collect(esp_engine *engine, uint32_t n_open)
{
    struct esp_event event;
    while (n_open > 0 && esp_poll(engine, 120 * 1000000000ll, &event)) {
        struct answer *answer = event.user;
        if (event.kind == ESP_EVENT_DONE) {
            answer->done = event;
            n_open--;
        } else if (answer->n < N_NEW) {
            answer->token[answer->n] = event.token;
            answer->logprob[answer->n] = event.logprob;
            memcpy(answer->top_id[answer->n], event.top_id, sizeof answer->top_id[0]);
            memcpy(answer->top_logprob[answer->n], event.top_logprob, sizeof answer->top_logprob[0]);
            answer->n++;
        }
    }
    CHECK(n_open == 0, "%u requests without an end", n_open);
}

static void check_same(const struct answer *got, uint32_t kind, const char *how)
{
    const struct answer *want = &reference[kind];
    CHECK(got->n == N_NEW && memcmp(got->token, want->token, sizeof want->token) == 0, "%s, kind %u: tokens", how,
          kind);
    CHECK(memcmp(got->logprob, want->logprob, sizeof want->logprob) == 0, "%s, kind %u: logprob bits", how, kind);
    CHECK(memcmp(got->top_id, want->top_id, sizeof want->top_id) == 0 &&
              memcmp(got->top_logprob, want->top_logprob, sizeof want->top_logprob) == 0,
          "%s, kind %u: alternatives", how, kind);
}

static void run_alone(esp_engine *engine, uint32_t kind, struct answer *answer)
{
    submit(engine, kind, answer);
    collect(engine, 1);
}

/* Cold: each kind on its own, nothing cached. Later tests compare with what this one records. */
static void test_cold(void)
{
    model_path = esp_test_model("SmolLM2-135M-Instruct.Q4_1.gguf");
    if (model_path == NULL) {
        return;
    }
    esp_engine *engine = open_with((struct esp_config){.n_ctx = 512, .n_batch_max = 1, .cache_off = true});
    REQUIRE(engine != NULL);
    for (uint32_t kind = 0; kind < N_KINDS; kind++) {
        run_alone(engine, kind, &reference[kind]);
        CHECK(reference[kind].done.n_cached == 0 && reference[kind].n == N_NEW);
    }
    CHECK(memcmp(reference[0].logprob, reference[2].logprob, sizeof reference[0].logprob) != 0, "kinds differ");
    esp_engine_close(engine);
}

static bool have_model(void)
{
    if (model_path == NULL) {
        esp_test_skip("model file not fetched");
    }
    return model_path != NULL;
}

/* Chunks of any size, first cold and then from the cache. */
static void test_chunks(void)
{
    static const uint32_t chunks[] = {1, 7, 16, 33, 64, 100, 512};
    for (size_t i = 0; have_model() && i < sizeof chunks / sizeof chunks[0]; i++) {
        esp_engine *engine = open_with((struct esp_config){.n_ctx = 512, .n_batch_max = 2, .prefill_chunk = chunks[i]});
        REQUIRE(engine != NULL);
        uint32_t kind = (uint32_t)i % N_KINDS;
        struct answer answer;
        run_alone(engine, kind, &answer);
        check_same(&answer, kind, "chunks, cold");
        run_alone(engine, kind, &answer);
        check_same(&answer, kind, "chunks, cached");
        CHECK(answer.done.n_cached >= N_PROMPT / 16 * 16, "%u cached", answer.done.n_cached);
        esp_engine_close(engine);
    }
}

/* 64 at once, four kinds sixteen times: twins, shared prefixes, prefill beside decode. */
static void test_batch(void)
{
    static struct answer answers[N_BATCH];
    if (!have_model()) {
        return;
    }
    esp_engine *engine = open_with((struct esp_config){.n_ctx = 512, .n_batch_max = 64, .prefill_chunk = 96});
    REQUIRE(engine != NULL);
    for (uint32_t i = 0; i < N_BATCH; i++) {
        submit(engine, i % N_KINDS, &answers[i]);
    }
    collect(engine, N_BATCH);
    for (uint32_t i = 0; i < N_BATCH; i++) {
        check_same(&answers[i], i % N_KINDS, "batch of 64");
    }
    struct esp_metrics m;
    esp_get_metrics(engine, &m);
    CHECK(m.prompt_tokens_computed + m.prompt_tokens_cached == N_BATCH * N_PROMPT);
    CHECK(m.prompt_tokens_cached > N_BATCH * (N_SHARED - 16), "%llu cached",
          (unsigned long long)m.prompt_tokens_cached);
    esp_engine_close(engine);
}

/* A pool of 17 pages: requests of 8 pages, others push them out, then one comes again. */
static void test_evicted(void)
{
    struct answer answer;
    if (!have_model()) {
        return;
    }
    esp_engine *engine = open_with((struct esp_config){.n_ctx = 256, .n_batch_max = 4, .kv_bytes = 17 * PAGE_BYTES});
    REQUIRE(engine != NULL);
    for (uint32_t kind = 0; kind < 2; kind++) {
        run_alone(engine, kind, &answer);
        check_same(&answer, kind, "first");
    }
    enum { OTHER = 240 };
    uint32_t tokens[OTHER];
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < OTHER; i++) {
            tokens[i] = (uint32_t)(esp_rng_at(100 + round, i) % 40000);
        }
        struct answer other = {0};
        struct esp_request request = {.tokens = tokens, .n_tokens = OTHER, .n_max = 1, .n = 1,
                                      .sampling = esp_sampling_default(), .user = &other};
        esp_request_id id;
        REQUIRE(esp_submit(engine, &request, &id, NULL) == ESP_OK);
        collect(engine, 1);
    }
    struct esp_metrics m;
    esp_get_metrics(engine, &m);
    CHECK(m.kv_evicted_pages >= 8, "%llu evicted", (unsigned long long)m.kv_evicted_pages);
    run_alone(engine, 1, &answer);
    check_same(&answer, 1, "evicted and computed again");
    CHECK(answer.done.n_cached < N_PROMPT / 2, "%u cached", answer.done.n_cached);
    esp_engine_close(engine);
}

/* Requests long enough to need more pages while they decode than there are: some must be preempted. */
enum { LONG_N = 4, LONG_PROMPT = 40, LONG_NEW = 45 };
struct long_answer {
    uint32_t n, token[LONG_NEW];
    float logprob[LONG_NEW];
};

static void run_long(esp_engine *engine, struct long_answer *answers)
{
    for (uint32_t i = 0; i < LONG_N; i++) {
        uint32_t tokens[LONG_PROMPT];
        for (uint32_t t = 0; t < LONG_PROMPT; t++) {
            tokens[t] = (uint32_t)(esp_rng_at(500 + i, t) % 40000);
        }
        struct esp_request request = {.tokens = tokens, .n_tokens = LONG_PROMPT, .n_max = LONG_NEW, .n = 1,
                                      .ignore_end = true, .sampling = esp_sampling_default(), .user = &answers[i]};
        request.sampling.seed = i;
        request.sampling.logprobs = true;
        esp_request_id id;
        REQUIRE(esp_submit(engine, &request, &id, NULL) == ESP_OK);
    }
    struct esp_event event;
    for (uint32_t n_open = LONG_N; n_open > 0 && esp_poll(engine, 120 * 1000000000ll, &event);) {
        struct long_answer *answer = event.user;
        if (event.kind == ESP_EVENT_DONE) {
            n_open--;
            CHECK(event.finish == ESP_FINISH_LENGTH, "finish %d %s", (int)event.finish, event.error);
        } else if (answer->n < LONG_NEW) {
            answer->token[answer->n] = event.token;
            answer->logprob[answer->n++] = event.logprob;
        }
    }
}

static void test_preempted(void)
{
    static struct long_answer alone[LONG_N], tight[LONG_N];
    for (int pass = 0; have_model() && pass < 2; pass++) {
        struct esp_config config = {.n_ctx = 256, .n_batch_max = pass == 0 ? 1 : LONG_N};
        config.kv_bytes = PAGE_BYTES * (pass == 0 ? 100 : 14);
        esp_engine *engine = open_with(config);
        REQUIRE(engine != NULL);
        run_long(engine, pass == 0 ? alone : tight);
        struct esp_metrics m;
        esp_get_metrics(engine, &m);
        CHECK(pass == 0 || m.preemptions > 0, "nobody was preempted");
        esp_engine_close(engine);
    }
    CHECK(memcmp(alone, tight, sizeof alone) == 0, "tokens or logprob bits after preemption");
}

struct logits_sum {
    uint64_t hash[N_LOGITS];
    uint32_t n_vocab;
};

static bool hash_logits(void *ctx, uint32_t pos, const float *logits)
{
    struct logits_sum *sum = ctx;
    uint64_t h = 0;
    for (uint32_t i = 0; i < sum->n_vocab; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        h = esp_rng_mix(h * 31 + bits);
    }
    sum->hash[pos] = h;
    return true;
}

/* All logits of all positions, one row a pass and 64 rows a pass, one thread and two. */
static void test_logits(void)
{
    static struct logits_sum sums[3];
    static const uint32_t n_rows[3] = {1, 64, 13}, n_threads[3] = {1, 2, 2};
    uint32_t tokens[N_PROMPT];
    request_of(0, tokens);
    for (int i = 0; have_model() && i < 3; i++) {
        struct esp_config config = {.n_ctx = 512, .n_batch_max = n_rows[i], .n_threads = n_threads[i]};
        esp_engine *engine = open_with(config);
        REQUIRE(engine != NULL);
        struct esp_engine_info info;
        esp_engine_get_info(engine, &info);
        sums[i].n_vocab = info.n_vocab;
        CHECK(esp_logits(engine, tokens, N_LOGITS, hash_logits, &sums[i], NULL) == ESP_OK);
        esp_engine_close(engine);
        CHECK(memcmp(sums[i].hash, sums[0].hash, sizeof sums[0].hash) == 0, "%u rows a pass", n_rows[i]);
    }
}

ESP_TEST_MAIN(T(test_cold), T(test_chunks), T(test_batch), T(test_evicted), T(test_preempted), T(test_logits))
