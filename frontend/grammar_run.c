/* Texts and tokens through a matcher. See grammar_run.h. */
#include "frontend/grammar_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/trie.h"
#include "runtime/base/clock.h"

#define IDS_BYTES_MAX ((size_t)256 << 20)

esp_status esp_run_init(struct esp_run *run)
{
    struct esp_matcher *matcher;
    esp_buf_init(&run->times, ESP_TAG_MISC, IDS_BYTES_MAX);
    esp_buf_init(&run->ids, ESP_TAG_MISC, IDS_BYTES_MAX);
    run->oracle_mask = esp_calloc(ESP_TAG_MISC, esp_mask_words(esp_trie_n_tokens(run->trie)), sizeof(uint64_t));
    if (run->oracle_mask == NULL) {
        return ESP_ENOMEM;
    }
    esp_status status = esp_matcher_create(run->grammar, &matcher);
    if (status == ESP_OK) {
        esp_matcher_destroy(matcher);
    }
    return status;
}

void esp_run_finish(struct esp_run *run)
{
    esp_free(run->oracle_mask);
    esp_buf_finish(&run->times);
    esp_buf_finish(&run->ids);
}

/* The mask of the state, timed, compared with the oracle when asked to. */
static const uint64_t *take_mask(struct esp_run *run, struct esp_matcher *matcher)
{
    struct esp_clock clock = esp_clock_monotonic();
    int64_t begin = esp_clock_now(&clock);
    const uint64_t *mask = esp_matcher_mask(matcher);
    int64_t time_ns = esp_clock_now(&clock) - begin;
    run->n_masks++;
    esp_buf_add(&run->times, &time_ns, sizeof time_ns);
    if (run->oracle && mask != NULL) {
        size_t n_bytes = esp_mask_words(esp_trie_n_tokens(run->trie)) * sizeof(uint64_t);
        if (esp_matcher_mask_oracle(matcher, run->oracle_mask) != ESP_OK ||
            memcmp(mask, run->oracle_mask, n_bytes) != 0) {
            run->n_mask_errors++;
        }
    }
    return mask;
}

/* ---- Cutting texts ------------------------------------------------------------------------------ */

static bool cut_by_vocab(struct esp_run *run, const char *text, size_t n_bytes)
{
    struct esp_span span = {text, n_bytes, false};
    int64_t n = esp_tokenize(run->vocab, &span, 1, NULL, 0, NULL);
    if (n < 0) {
        return false;
    }
    uint32_t *ids = esp_buf_reserve(&run->ids, (size_t)n * sizeof *ids + 1);
    if (ids == NULL || esp_tokenize(run->vocab, &span, 1, ids, (size_t)n, NULL) != n) {
        return false;
    }
    run->ids.n = (size_t)n * sizeof *ids;
    return true;
}

/* The longest token that fits, again and again; of equal texts the lowest id. */
static bool cut_longest(struct esp_run *run, const char *text, size_t n_bytes)
{
    const struct esp_trie *trie = run->trie;
    for (size_t at = 0; at < n_bytes;) {
        uint32_t best = UINT32_MAX, best_bytes = 0;
        for (uint32_t id = 0; id < trie->n_tokens; id++) {
            uint32_t n;
            const uint8_t *bytes = esp_trie_token(trie, id, &n);
            if (trie->roles[id] == ESP_ROLE_TEXT && n > best_bytes && n <= n_bytes - at &&
                memcmp(bytes, text + at, n) == 0) {
                best = id;
                best_bytes = n;
            }
        }
        if (best_bytes == 0 || !esp_buf_add(&run->ids, &best, sizeof best)) {
            return false;
        }
        at += best_bytes;
    }
    return true;
}

bool esp_run_text(struct esp_run *run, const char *text, size_t n_bytes)
{
    struct esp_matcher *matcher;
    esp_buf_clear(&run->ids);
    bool cut = run->vocab != NULL ? cut_by_vocab(run, text, n_bytes) : cut_longest(run, text, n_bytes);
    if (!cut || esp_matcher_create(run->grammar, &matcher) != ESP_OK) {
        return false;
    }
    size_t n = run->ids.n / sizeof(uint32_t);
    bool allowed = true;
    for (size_t idx = 0; idx < n && allowed; idx++) {
        uint32_t id;
        memcpy(&id, run->ids.data + idx * sizeof id, sizeof id);
        const uint64_t *mask = take_mask(run, matcher);
        allowed = mask != NULL && id < run->trie->n_tokens && esp_mask_has(mask, id);
        bool taken = esp_matcher_accept(matcher, id) == ESP_OK;
        run->n_mask_errors += mask != NULL && taken != allowed; /* the two must agree */
    }
    if (allowed) {
        const uint64_t *mask = take_mask(run, matcher);
        allowed = mask != NULL && esp_matcher_complete(matcher);
        for (uint32_t idx = 0; mask != NULL && idx < run->trie->n_ends; idx++) {
            run->n_mask_errors += esp_mask_has(mask, run->trie->ends[idx]) != allowed;
        }
    }
    esp_matcher_destroy(matcher);
    return allowed;
}

/* ---- Tokens ------------------------------------------------------------------------------------- */

static void print_state(struct esp_run *run, struct esp_matcher *matcher, unsigned n_taken, struct esp_buf *out)
{
    const uint64_t *mask = take_mask(run, matcher);
    bool first = true;
    esp_buf_printf(out, "{\"taken\":%u,\"allowed\":[", n_taken);
    for (uint32_t id = 0; mask != NULL && id < run->trie->n_tokens; id++) {
        if (esp_mask_has(mask, id)) {
            esp_buf_printf(out, "%s%" PRIu32, first ? "" : ",", id);
            first = false;
        }
    }
    esp_buf_printf(out, "],\"end\":%s}", esp_matcher_complete(matcher) ? "true" : "false");
}

void esp_run_feed(struct esp_run *run, const json_t *feed, struct esp_buf *out)
{
    struct esp_matcher *matcher;
    size_t list_idx, idx;
    json_t *list, *item;
    esp_buf_char(out, '[');
    if (esp_matcher_create(run->grammar, &matcher) != ESP_OK) {
        esp_buf_char(out, ']');
        return;
    }
    json_array_foreach(feed, list_idx, list)
    {
        unsigned n_taken = 0;
        json_array_foreach(list, idx, item)
        {
            json_int_t id = json_is_integer(item) ? json_integer_value(item) : INT64_MAX;
            esp_status status;
            if (id < 0) {
                status = -id > UINT32_MAX ? ESP_EINVAL : esp_matcher_rollback(matcher, (uint32_t)-id);
            } else {
                status = id > UINT32_MAX ? ESP_EINVAL : esp_matcher_accept(matcher, (uint32_t)id);
                n_taken += status == ESP_OK;
            }
            if (status != ESP_OK) {
                break;
            }
        }
        esp_buf_str(out, list_idx == 0 ? "" : ",");
        print_state(run, matcher, n_taken, out);
    }
    esp_buf_char(out, ']');
    esp_matcher_destroy(matcher);
}

/* ---- Times -------------------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

void esp_run_print_times(struct esp_run *run, bool all, struct esp_buf *out)
{
    size_t n = run->times.n / sizeof(int64_t);
    int64_t *times = n == 0 ? NULL : esp_malloc(ESP_TAG_MISC, run->times.n);
    double sum = 0;
    esp_buf_printf(out, ",\"masks\":%" PRIu64 ",\"mask_us\":{", run->n_masks);
    if (times == NULL) {
        esp_buf_str(out, "\"p50\":0,\"p99\":0,\"max\":0,\"mean\":0");
    } else {
        memcpy(times, run->times.data, run->times.n);
        qsort(times, n, sizeof *times, compare_times);
        for (size_t idx = 0; idx < n; idx++) {
            sum += (double)times[idx];
        }
        esp_buf_printf(out, "\"p50\":%.3f,\"p99\":%.3f,\"max\":%.3f,\"mean\":%.3f", (double)times[n / 2] / 1000,
                       (double)times[n - 1 - n / 100] / 1000, (double)times[n - 1] / 1000, sum / (double)n / 1000);
        memcpy(times, run->times.data, run->times.n); /* in their own order again */
    }
    if (all) {
        esp_buf_str(out, ",\"all\":[");
        for (size_t idx = 0; times != NULL && idx < n; idx++) {
            esp_buf_printf(out, "%s%.3f", idx == 0 ? "" : ",", (double)times[idx] / 1000);
        }
        esp_buf_char(out, ']');
    }
    esp_buf_char(out, '}');
    esp_free(times);
}

/* ---- A vocabulary in the line ------------------------------------------------------------------- */

static int hex_value(char c)
{
    char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static esp_status set_roles(struct esp_trie_token *tokens, size_t n, const json_t *ids, enum esp_token_role role)
{
    size_t idx;
    json_t *id;
    json_array_foreach(ids, idx, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || (size_t)json_integer_value(id) >= n) {
            return ESP_EINVAL;
        }
        tokens[json_integer_value(id)].role = role;
    }
    return ESP_OK;
}

static bool read_hex(const json_t *token, uint8_t *bytes, uint32_t *ret_n)
{
    const char *hex = json_string_value(token);
    size_t n = hex == NULL ? 1 : json_string_length(token);
    if (n % 2 != 0) {
        return false;
    }
    for (size_t at = 0; at < n; at += 2) {
        int high = hex_value(hex[at]), low = hex_value(hex[at + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        bytes[at / 2] = (uint8_t)(high * 16 + low);
    }
    *ret_n = (uint32_t)(n / 2);
    return true;
}

esp_status esp_run_vocab(const json_t *vocab, struct esp_trie **ret_trie, struct esp_err *err)
{
    const json_t *list = json_object_get(vocab, "tokens");
    size_t n = json_array_size(list), n_hex = 0, at = 0;
    for (size_t idx = 0; idx < n; idx++) {
        n_hex += json_string_length(json_array_get(list, idx));
    }
    struct esp_trie_token *tokens = esp_calloc(ESP_TAG_MISC, n + 1, sizeof *tokens);
    uint8_t *bytes = esp_malloc(ESP_TAG_MISC, n_hex / 2 + 1);
    esp_status status = tokens == NULL || bytes == NULL ? esp_fail(err, ESP_ENOMEM, "out of memory") : ESP_OK;
    for (size_t idx = 0; idx < n && status == ESP_OK; idx++) {
        tokens[idx].bytes = bytes + at;
        if (!read_hex(json_array_get(list, idx), bytes + at, &tokens[idx].n_bytes)) {
            status = esp_fail(err, ESP_EINVAL, "vocab: token %zu is no hexadecimal text", idx);
        } else {
            at += tokens[idx].n_bytes;
        }
    }
    if (status == ESP_OK && (set_roles(tokens, n, json_object_get(vocab, "control"), ESP_ROLE_CONTROL) != ESP_OK ||
                             set_roles(tokens, n, json_object_get(vocab, "end"), ESP_ROLE_END) != ESP_OK)) {
        status = esp_fail(err, ESP_EINVAL, "vocab: an id outside the tokens");
    }
    if (status == ESP_OK) {
        status = esp_trie_create(tokens, (uint32_t)n, ret_trie, err);
    }
    esp_free(tokens);
    esp_free(bytes);
    return status;
}
