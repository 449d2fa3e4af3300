/* choice_scores: how likely each text of `choice` is as the whole answer, told beside the answer.
 *
 *   "choice":["P1","P2"], "choice_scores":true  ──►  "choice_probabilities":[{"text","probability","logprob"} …]
 *
 * The texts are cut into the tokens that the vocabulary cuts them into; the engine scores them on the prompt (see
 * runtime/labels.h). Thread: made by the work thread, filled and written under the generation's lock.
 */
#include <math.h>
#include <string.h>

#include "frontend/generate.h"
#include "frontend/jsontext.h"
#include "runtime/base/json.h"

static esp_status refuse(struct esp_err *err, const char *param, const char *message)
{
    esp_fail(err, ESP_EINVAL, "%s", message);
    esp_err_place(err, "%s", param);
    return ESP_EINVAL;
}

/* The tokens must spell the text and nothing else, or the scores would be those of another text. */
static bool spells(const esp_vocab *vocab, const uint32_t *ids, size_t n_ids, const char *text, size_t n_bytes)
{
    size_t at = 0;
    for (size_t idx = 0; idx < n_ids; idx++) {
        size_t n = 0;
        const char *bytes = esp_token_bytes(vocab, ids[idx], false, &n);
        if (bytes == NULL || n > n_bytes - at || memcmp(text + at, bytes, n) != 0) {
            return false;
        }
        at += n;
    }
    return at == n_bytes;
}

static esp_status cut(struct esp_generation *gen, const json_t *text, uint32_t idx, struct esp_err *err)
{
    struct esp_label *label = &gen->scores->labels[idx];
    struct esp_span span = {json_string_value(text), json_string_length(text), false};
    uint32_t ids[ESP_LABEL_TOKENS_MAX];
    char *copy = esp_arena_strndup(&gen->arena, span.text, span.n_bytes);
    int64_t n = esp_tokenize(gen->vocab, &span, 1, ids, ESP_LABEL_TOKENS_MAX, err);
    if (n < 1 || n > ESP_LABEL_TOKENS_MAX || !spells(gen->vocab, ids, (size_t)n, span.text, span.n_bytes)) {
        return refuse(err, "choice_scores", "a text of the choice is empty, too long, or cannot be scored alone");
    }
    uint32_t *kept = esp_arena_alloc(&gen->arena, (size_t)n, sizeof *kept);
    if (copy == NULL || kept == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    memcpy(kept, ids, (size_t)n * sizeof *kept);
    *label = (struct esp_label){kept, (uint32_t)n};
    gen->scores->texts[idx] = copy;
    gen->scores->text_bytes[idx] = span.n_bytes;
    return ESP_OK;
}

static esp_status make_room(struct esp_generation *gen, size_t n, struct esp_err *err)
{
    struct esp_scores *scores = esp_arena_alloc(&gen->arena, 1, sizeof *scores);
    if (scores != NULL) {
        scores->n = (uint32_t)n;
        scores->texts = esp_arena_alloc(&gen->arena, n, sizeof *scores->texts);
        scores->text_bytes = esp_arena_alloc(&gen->arena, n, sizeof *scores->text_bytes);
        scores->labels = esp_arena_alloc(&gen->arena, n, sizeof *scores->labels);
        gen->scores = scores;
    }
    bool whole = scores != NULL && scores->texts != NULL && scores->text_bytes != NULL && scores->labels != NULL;
    return whole ? ESP_OK : esp_fail(err, ESP_ENOMEM, "out of memory");
}

esp_status esp_scores_make(struct esp_generation *gen, struct esp_err *err)
{
    const struct esp_params *params = &gen->params;
    if (!params->choice_scores) {
        return ESP_OK;
    }
    if (params->constraint.kind == NULL || strcmp(params->constraint.kind, "choice") != 0) {
        return refuse(err, "choice_scores", "'choice_scores' needs an answer that 'choice' alone constrains");
    }
    if (params->n > 1 || params->n_stops > 0) {
        return refuse(err, "choice_scores", "'choice_scores' cannot be combined with 'n', 'branches' or 'stop'");
    }
    json_t *texts = json_loadb(params->constraint.text, params->constraint.n_bytes, 0, NULL);
    size_t n = json_array_size(texts);
    esp_status status = n == 0 || n > ESP_LABELS_MAX ? refuse(err, "choice_scores", "at most 1024 texts are scored")
                                                     : ESP_OK;
    status = status == ESP_OK ? make_room(gen, n, err) : status;
    for (uint32_t idx = 0; idx < n && status == ESP_OK; idx++) {
        status = cut(gen, json_array_get(texts, idx), idx, err);
    }
    json_decref(texts);
    return status;
}

void esp_scores_take(struct esp_run *run, const struct esp_label_score *scores)
{
    const struct esp_scores *asked = run->gen->scores;
    if (asked == NULL || scores == NULL) {
        return;
    }
    run->scores = esp_arena_alloc(&run->gen->arena, asked->n, sizeof *run->scores);
    if (run->scores != NULL) {
        memcpy(run->scores, scores, asked->n * sizeof *run->scores);
    }
}

void esp_scores_write(const struct esp_choice *choice, struct esp_buf *buf)
{
    const struct esp_generation *gen = choice->gen;
    const struct esp_run *run = &gen->runs[choice->index / gen->params.n];
    if (gen->scores == NULL || run->scores == NULL) {
        return;
    }
    esp_buf_str(buf, ",\"choice_probabilities\":[");
    for (uint32_t idx = 0; idx < gen->scores->n; idx++) {
        const struct esp_label_score *score = &run->scores[idx];
        esp_buf_str(buf, idx > 0 ? ",{\"text\":" : "{\"text\":");
        esp_jsontext_quote(buf, gen->scores->texts[idx], gen->scores->text_bytes[idx]);
        esp_buf_printf(buf, ",\"probability\":%.17g,\"logprob\":%.17g}", score->probability,
                       isfinite(score->logprob) ? score->logprob : -9999.0);
    }
    esp_buf_char(buf, ']');
}
