/* From logits to tokens: masks for the rows that have a grammar, one draw a row, and what the token means
 * for its sequence. Nothing is ever drawn unmasked: a row whose mask has no bit ends its sequence.
 * Thread: the engine's. Allocates nothing; a grammar may build masks that it has not seen yet.
 */
#include <string.h>

#include "runtime/engine_impl.h"

/* Among the first n_tokens: the grammar's vocabulary may have more than the model has rows. */
static bool has_bit(const uint64_t *mask, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < n_tokens / 64; i++) {
        if (mask[i] != 0) {
            return true;
        }
    }
    return n_tokens % 64 != 0 && (mask[n_tokens / 64] & (((uint64_t)1 << n_tokens % 64) - 1)) != 0;
}

/* False: the sequence has ended here. */
static bool make_mask(struct esp_engine *engine, struct esp_seq *seq, const uint64_t **ret_mask)
{
    *ret_mask = NULL;
    if (seq->matcher == NULL) {
        return true;
    }
    int64_t from_ns = esp_clock_now(&engine->clock);
    const uint64_t *mask = esp_matcher_mask(seq->matcher);
    esp_histogram_add(&engine->stats.now.mask, esp_clock_now(&engine->clock) - from_ns);
    if (mask == NULL) {
        esp_engine_end_seq(engine, seq, ESP_FINISH_ERROR, "no memory for the mask of the grammar");
        return false;
    }
    if (has_bit(mask, engine->n_vocab)) {
        *ret_mask = mask;
        return true;
    }
    if (esp_matcher_complete(seq->matcher) || esp_matcher_ended(seq->matcher)) {
        esp_engine_end_seq(engine, seq, ESP_FINISH_STOP, NULL); /* complete, in a vocabulary without an end token */
    } else {
        esp_engine_end_seq(engine, seq, ESP_FINISH_ERROR,
                           "the grammar allows no token of this vocabulary here, and the value is not complete");
    }
    return false;
}

static void fill_row(const struct esp_engine *engine, const struct esp_seq *seq, const float *logits,
                     const uint64_t *mask, struct esp_sample_row *row)
{
    const struct esp_job *job = seq->job;
    const struct esp_sampling *s = &job->sampling;
    memset(row, 0, sizeof *row);
    row->logits = logits;
    row->mask = mask;
    row->bias_ids = s->bias_ids;
    row->bias = s->bias;
    row->n_bias = s->n_bias;
    row->history = seq->tokens + seq->n_prompt;
    row->n_history = seq->n_tokens - seq->n_prompt;
    row->temperature = s->temperature;
    row->top_p = s->top_p;
    row->min_p = s->min_p;
    row->repetition_penalty = s->repetition_penalty;
    row->presence_penalty = s->presence_penalty;
    row->frequency_penalty = s->frequency_penalty;
    row->top_k = s->top_k;
    row->seed = s->seed + seq->branch;
    row->pos = seq->n_tokens;
    row->n_top = s->logprobs ? s->n_top_logprobs : 0;
    row->want_logprob = s->logprobs;
}

bool esp_engine_is_end(const struct esp_engine *engine, uint32_t token)
{
    return engine->vocab == NULL ? token == engine->end_token : esp_vocab_is_end(engine->vocab, token);
}

static void count_token(struct esp_engine *engine, struct esp_seq *seq, int64_t now_ns)
{
    struct esp_job *job = seq->job;
    engine->stats.now.generation_tokens++;
    if (job->first_token_ns == 0) {
        job->first_token_ns = now_ns;
        esp_histogram_add(&engine->stats.now.ttft, now_ns - job->submit_ns);
    }
    if (seq->first_token_ns == 0) {
        seq->first_token_ns = now_ns;
    } else {
        esp_histogram_add(&engine->stats.now.inter_token, now_ns - seq->last_token_ns);
    }
    seq->last_token_ns = now_ns;
}

/* Returns whether the token is one to tell the client about. */
static bool take_token(struct esp_engine *engine, struct esp_seq *seq, uint32_t token, int64_t now_ns)
{
    struct esp_job *job = seq->job;
    if (seq->matcher != NULL && esp_matcher_accept(seq->matcher, token) != ESP_OK) {
        esp_engine_end_seq(engine, seq, ESP_FINISH_ERROR, "the grammar refused a token that its mask had allowed");
        return false;
    }
    bool ended = seq->matcher != NULL ? esp_matcher_ended(seq->matcher)
                                      : esp_engine_is_end(engine, token) && !job->ignore_end;
    if (ended) {
        esp_engine_end_seq(engine, seq, ESP_FINISH_STOP, NULL);
        return false;
    }
    if (seq->state == ESP_SEQ_PREFILL) {
        esp_seq_move(seq, ESP_SEQ_DECODE);
    }
    seq->tokens[seq->n_tokens++] = token;
    seq->n_generated++;
    count_token(engine, seq, now_ns);
    if (seq->n_tokens == seq->n_cap) {
        esp_engine_end_seq(engine, seq, ESP_FINISH_LENGTH, NULL);
    }
    return true;
}

static bool wants_scores(const struct esp_seq *seq)
{
    return seq->job->labels != NULL && seq->branch == 0 && !seq->job->labels->done;
}

/* After the draws, since scoring writes over the logits; but the first row is looked at before that. */
static esp_status score_labels(struct esp_engine *engine, uint32_t n_rows)
{
    esp_status status = ESP_OK;
    for (uint32_t i = 0; i < n_rows && status == ESP_OK; i++) {
        struct esp_seq *seq = engine->row_seqs[i];
        if (wants_scores(seq) && !seq->job->labels->nodes[0].seen) {
            status = esp_engine_score_root(engine, seq, engine->rows[i].logits);
        }
    }
    for (uint32_t i = 0; i < n_rows && status == ESP_OK; i++) {
        if (wants_scores(engine->row_seqs[i]) && engine->row_seqs[i]->state != ESP_SEQ_QUEUED) {
            status = esp_engine_score(engine, engine->row_seqs[i]);
        }
    }
    return status;
}

esp_status esp_engine_sample(struct esp_engine *engine, const float *logits)
{
    const struct esp_batch_arrays *arrays = &engine->arrays;
    uint32_t n_logits = arrays->batch.n_logits;
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n_logits; i++) {
        struct esp_seq *seq = arrays->logit_seqs[i];
        const uint64_t *mask;
        if (make_mask(engine, seq, &mask)) {
            const float *row_logits = logits + (size_t)i * engine->model->hp.n_vocab;
            engine->row_seqs[n_rows] = seq;
            fill_row(engine, seq, row_logits, mask, &engine->rows[n_rows++]);
        }
    }
    if (n_rows > 0) {
        struct esp_sample_args args = {engine->rows, n_rows, engine->n_vocab};
        esp_status status = engine->model->ops->sample(engine->model->dev, &args);
        status = status == ESP_OK ? engine->model->ops->wait(engine->model->dev) : status;
        if (status != ESP_OK) {
            return status;
        }
    }
    esp_status status = score_labels(engine, n_rows);
    if (status != ESP_OK) {
        return status;
    }
    int64_t now_ns = esp_clock_now(&engine->clock);
    uint32_t n_told = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        if (engine->row_seqs[i]->state == ESP_SEQ_QUEUED) {
            continue; /* preempted while labels were scored: it will draw this token again */
        }
        if (take_token(engine, engine->row_seqs[i], engine->rows[i].token, now_ns)) {
            engine->row_seqs[n_told] = engine->row_seqs[i];
            engine->rows[n_told++] = engine->rows[i];
        }
    }
    engine->n_told = n_told;
    return ESP_OK;
}
