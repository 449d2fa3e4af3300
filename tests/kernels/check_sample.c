/* Sampling against a naive twin that copies the vocabulary, sorts it and walks it in double. */
#include <float.h>

#include "tests/kernels/check.h"

#define VOCAB_MAX 3000

static const struct esp_dev_config config = {
    .n_rows_max = 72, .n_in_max = 1024, .head_dim_max = 64, .n_ctx_max = 256};

struct candidate {
    uint32_t id;
    float x;
    double p;
};

struct sample_case {
    uint32_t n_vocab;
    float logits[VOCAB_MAX], bias[8];
    uint64_t mask[(VOCAB_MAX + 63) / 64];
    uint32_t history[200], bias_ids[8];
    struct esp_sample_row row;
};

static bool allowed(const struct sample_case *c, uint32_t id)
{
    return c->row.mask == NULL || (c->mask[id / 64] >> (id % 64) & 1) != 0;
}

/* The logit after penalties and biases. */
static float changed(const struct sample_case *c, uint32_t id)
{
    const struct esp_sample_row *row = &c->row;
    float x = c->logits[id];
    uint32_t count = 0;
    for (uint32_t i = 0; i < row->n_history; i++) {
        count += c->history[i] == id;
    }
    if (count != 0) {
        x = x > 0 ? x / row->repetition_penalty : x * row->repetition_penalty;
        x = x - row->presence_penalty;
        x = x - row->frequency_penalty * (float)count;
    }
    for (uint32_t i = 0; i < row->n_bias; i++) {
        x = c->bias_ids[i] == id ? x + c->bias[i] : x;
    }
    x = x > -FLT_MAX ? x : -FLT_MAX;
    return x < FLT_MAX ? x : FLT_MAX;
}

static int better_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->x != y->x ? (x->x < y->x) - (x->x > y->x) : (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* How many of the sorted candidates stay. */
static uint32_t cut(const struct esp_sample_row *row, struct candidate *all, uint32_t n)
{
    double total = 0, sum = 0;
    n = row->top_k != 0 && row->top_k < n ? row->top_k : n;
    for (uint32_t i = 0; i < n; i++) {
        all[i].p = exp((double)((all[i].x - all[0].x) * (1.0f / row->temperature)));
        total += all[i].p;
    }
    for (uint32_t i = 0; row->top_p < 1 && i < n; i++) {
        sum += all[i].p;
        n = sum >= (double)row->top_p * total ? i + 1 : n;
    }
    while (n > 1 && row->min_p > 0 && all[n - 1].p < (double)row->min_p * (1 - 1e-6)) {
        n--;
    }
    return n;
}

/* The twin's token, and the one a little to either side of the draw: rounding may choose between them. */
static void twin(const struct sample_case *c, uint32_t tokens[3], uint32_t *ret_n, struct candidate *all)
{
    uint32_t n = 0;
    for (uint32_t id = 0; id < c->n_vocab; id++) {
        if (allowed(c, id)) {
            all[n++] = (struct candidate){.id = id, .x = changed(c, id)};
        }
    }
    qsort(all, n, sizeof *all, better_first);
    *ret_n = n;
    tokens[0] = tokens[1] = tokens[2] = all[0].id;
    if (!(c->row.temperature > 0)) {
        return;
    }
    static struct candidate kept[VOCAB_MAX];
    uint32_t n_kept = cut(&c->row, all, n);
    double total = 0, u = esp_rng_unit(esp_rng_at(c->row.seed, c->row.pos));
    memcpy(kept, all, n_kept * sizeof *kept);
    qsort(kept, n_kept, sizeof *kept, by_id);
    for (uint32_t i = 0; i < n_kept; i++) {
        total += kept[i].p;
    }
    for (int k = 0; k < 3; k++) {
        double target = (u + (k - 1) * 1e-5) * total, sum = 0;
        for (uint32_t i = 0; i < n_kept; i++) {
            tokens[k] = kept[i].p > 1e-30 ? kept[i].id : tokens[k];
            sum += kept[i].p;
            if (sum > target) {
                break;
            }
        }
    }
}

static void make_logits(struct sample_case *c)
{
    float spread = (float)(1 + rnd_below(12));
    bool ties = rnd_below(3) == 0;
    for (uint32_t i = 0; i < c->n_vocab; i++) {
        c->logits[i] = rnd_float() * spread;
        c->logits[i] = ties ? roundf(c->logits[i]) : c->logits[i];
    }
    if (rnd_below(6) == 0) {
        c->logits[rnd_below(c->n_vocab)] = rnd_below(2) == 0 ? NAN : -INFINITY;
    }
}

static void make_mask(struct sample_case *c)
{
    uint32_t keep = 1 + rnd_below(64), sure = rnd_below(c->n_vocab), last = (c->n_vocab - 1) / 64;
    for (uint32_t id = 0; id < c->n_vocab; id++) {
        c->mask[id / 64] |= (uint64_t)(rnd_below(64) < keep) << (id % 64);
    }
    c->mask[sure / 64] |= (uint64_t)1 << (sure % 64);
    c->mask[last] |= c->n_vocab % 64 == 0 ? 0 : ~(uint64_t)0 << (c->n_vocab % 64); /* to be ignored */
    c->row.mask = c->mask;
}

static void make_changes(struct sample_case *c)
{
    c->row.n_history = rnd_below(2) == 0 ? 0 : rnd_below(200);
    for (uint32_t i = 0; i < c->row.n_history; i++) {
        c->history[i] = rnd_below(c->n_vocab < 50 ? c->n_vocab : 50);
    }
    if (c->row.n_history != 0) {
        c->row.repetition_penalty = 1.3f;
        c->row.presence_penalty = 0.5f;
        c->row.frequency_penalty = 0.25f;
    }
    c->row.n_bias = rnd_below(2) == 0 ? 0 : rnd_below(8);
    for (uint32_t i = 0; i < c->row.n_bias; i++) {
        c->bias_ids[i] = rnd_below(c->n_vocab);
        c->bias[i] = rnd_float() * 20;
    }
    c->row.history = c->history;
    c->row.bias = c->bias;
    c->row.bias_ids = c->bias_ids;
}

static void make_sample(struct sample_case *c)
{
    memset(c, 0, sizeof *c);
    c->n_vocab = 1 + rnd_below(rnd_below(3) == 0 ? 40 : VOCAB_MAX);
    c->row = (struct esp_sample_row){
        .logits = c->logits, .repetition_penalty = 1, .top_p = 1, .seed = rnd(), .pos = rnd()};
    make_logits(c);
    c->row.temperature = rnd_below(3) == 0 ? 0 : 0.1f + (float)rnd_below(20) * 0.1f;
    c->row.top_k = rnd_below(2) == 0 ? 0 : 1 + rnd_below(rnd_below(2) == 0 ? 10 : 400);
    c->row.top_p = rnd_below(2) == 0 ? 1 : (float)rnd_below(101) * 0.01f;
    c->row.min_p = rnd_below(2) == 0 ? 0 : (float)rnd_below(100) * 0.005f;
    if (rnd_below(2) == 0) {
        make_mask(c);
    }
    make_changes(c);
    c->row.n_top = rnd_below(2) == 0 ? 0 : rnd_below(21);
    c->row.want_logprob = rnd_below(2) == 0;
}

static bool close_to(double got, double want)
{
    return got == want || fabs(got - want) <= 1e-5 * (1 + fabs(want));
}

static void check_logprobs(const struct sample_case *c, const struct candidate *all, uint32_t n)
{
    double total = 0;
    for (uint32_t i = 0; i < n; i++) {
        total += exp((double)all[i].x - (double)all[0].x);
    }
    for (uint32_t i = 0; i < c->row.n_top; i++) {
        double want = i < n ? (double)(all[i].x - all[0].x) - log(total) : (double)-INFINITY;
        double got = (double)c->row.top_logprob[i];
        CHECK(i >= n || c->row.top_id[i] == all[i].id, "place %u: %u, want %u", i, c->row.top_id[i], all[i].id);
        CHECK(close_to(got, want), "place %u: %g, want %g", i, got, want);
    }
    for (uint32_t i = 0; i < n && c->row.want_logprob; i++) {
        double want = (double)(all[i].x - all[0].x) - log(total), got = (double)c->row.logprob;
        CHECK(all[i].id != c->row.token || close_to(got, want), "%g, want %g", got, want);
    }
}

static void check_one(struct sample_case *c)
{
    static struct candidate all[VOCAB_MAX];
    uint32_t tokens[3], n;
    struct esp_sample_row first = {0};
    twin(c, tokens, &n, all);
    for (int d = 0; d < check_n_devs; d++) {
        struct esp_sample_args args = {.rows = &c->row, .n_rows = 1, .n_vocab = c->n_vocab};
        CHECK(esp_ops_cpu()->sample(check_devs[d].dev, &args) == ESP_OK);
        bool right = c->row.token == tokens[0] || c->row.token == tokens[1] || c->row.token == tokens[2];
        CHECK(right, "%s: token %u, want %u (vocabulary %u, T %g, k %u, p %g, min_p %g)", check_devs[d].name,
              c->row.token, tokens[1], c->n_vocab, (double)c->row.temperature, c->row.top_k, (double)c->row.top_p,
              (double)c->row.min_p);
        CHECK(allowed(c, c->row.token) && c->row.token < c->n_vocab, "token %u", c->row.token);
        check_logprobs(c, all, n);
        if (d == 0) {
            first = c->row;
        }
        bool same = first.token == c->row.token && memcmp(&first.logprob, &c->row.logprob, 4) == 0 &&
                    memcmp(first.top_logprob, c->row.top_logprob, 4 * c->row.n_top) == 0 &&
                    memcmp(first.top_id, c->row.top_id, 4 * c->row.n_top) == 0;
        CHECK(same, "%s differs from the reference", check_devs[d].name);
    }
}

static void test_sample(void)
{
    static struct sample_case c;
    REQUIRE(check_open(&config));
    for (int round = 0; round < 1500; round++) {
        make_sample(&c);
        check_one(&c);
    }
    check_close();
}

/* Many draws from a small distribution: counts near the probabilities. */
static void test_distribution(void)
{
    REQUIRE(check_open(&config));
    float logits[5] = {0, logf(2), logf(3), logf(4), -INFINITY};
    int counts[5] = {0};
    for (uint32_t i = 0; i < 20000; i++) {
        struct esp_sample_row row = {
            .logits = logits, .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 11, .pos = i};
        struct esp_sample_args args = {.rows = &row, .n_rows = 1, .n_vocab = 5};
        CHECK(esp_ops_cpu()->sample(check_devs[check_n_devs - 1].dev, &args) == ESP_OK);
        counts[row.token]++;
    }
    for (int i = 0; i < 4; i++) {
        CHECK(abs(counts[i] - 2000 * (i + 1)) < 300, "token %d: %d", i, counts[i]);
    }
    CHECK(counts[4] == 0);
    check_close();
}

static void test_many_rows_and_limits(void)
{
    static struct sample_case cases[33];
    struct esp_sample_row rows[33];
    REQUIRE(check_open(&config));
    for (int i = 0; i < 33; i++) {
        make_sample(&cases[i]);
        for (uint32_t k = cases[i].n_vocab; k < 1000; k++) {
            cases[i].logits[k] = rnd_float();
        }
        cases[i].row.mask = NULL;
        rows[i] = cases[i].row;
    }
    uint32_t tokens[33];
    for (int d = 0; d < check_n_devs; d++) {
        struct esp_sample_args args = {.rows = rows, .n_rows = 33, .n_vocab = 1000};
        CHECK(esp_ops_cpu()->sample(check_devs[d].dev, &args) == ESP_OK);
        for (int i = 0; i < 33; i++) {
            tokens[i] = d == 0 ? rows[i].token : tokens[i];
            CHECK(tokens[i] == rows[i].token, "%s row %d", check_devs[d].name, i);
        }
    }
    rows[3].n_bias = 5000;
    struct esp_sample_args args = {.rows = rows, .n_rows = 33, .n_vocab = 1000};
    CHECK(esp_ops_cpu()->sample(check_devs[0].dev, &args) == ESP_ELIMIT);
    rows[3].n_bias = 0;
    rows[3].n_history = 257;
    CHECK(esp_ops_cpu()->sample(check_devs[0].dev, &args) == ESP_ELIMIT);
    check_close();
}

ESP_TEST_MAIN(T(test_sample), T(test_distribution), T(test_many_rows_and_limits))
