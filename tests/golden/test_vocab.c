/* Vocabularies of real models against ids made by other tokenizers, line by line.
 *
 * Reads shared/data/vocab (README.md there says who made the expected ids) and the two model files
 * (tokens_llama_cpp.jsonl, recorded by make_tokens.py), and skips what is absent. Every text is also turned
 * back: the result is the text after the tokenizer's own normalisation. Long texts without a space must end.
 */
#include <jansson.h>

#include "runtime/base/file.h"
#include "runtime/tokenizer.h"
#include "runtime/unicode.h"
#include "tests/esptest.h"

#define SEPARATOR "\n__ggml_vocab_test__\n"

struct job {
    const char *vocab, *texts, *ids;
    bool special;
    int n;
    enum { EXACT, NFC, LOSSY } back; /* what turning back gives */
};

static const struct job jobs[] = {
    {"ggml-vocab-bert-bge.gguf", "ggml-vocab-bert-bge.gguf.inp", "ggml-vocab-bert-bge.gguf.out", false, 46, LOSSY},
    {"ggml-vocab-deepseek-coder.gguf", "ggml-vocab-deepseek-coder.gguf.inp", "ggml-vocab-deepseek-coder.gguf.out",
     false, 46, EXACT},
    {"ggml-vocab-deepseek-llm.gguf", "ggml-vocab-deepseek-llm.gguf.inp", "ggml-vocab-deepseek-llm.gguf.out", false, 46,
     EXACT},
    {"ggml-vocab-falcon.gguf", "ggml-vocab-falcon.gguf.inp", "ggml-vocab-falcon.gguf.out", false, 46, LOSSY},
    {"ggml-vocab-gpt-2.gguf", "ggml-vocab-gpt-2.gguf.inp", "ggml-vocab-gpt-2.gguf.out", false, 46, EXACT},
    {"ggml-vocab-llama-spm.gguf", "ggml-vocab-llama-spm.gguf.inp", "ggml-vocab-llama-spm.gguf.out", false, 46, EXACT},
    {"ggml-vocab-mpt.gguf", "ggml-vocab-mpt.gguf.inp", "ggml-vocab-mpt.gguf.out", false, 46, LOSSY},
    {"ggml-vocab-phi-3.gguf", "ggml-vocab-phi-3.gguf.inp", "ggml-vocab-phi-3.gguf.out", false, 46, EXACT},
    {"ggml-vocab-refact.gguf", "ggml-vocab-refact.gguf.inp", "ggml-vocab-refact.gguf.out", false, 46, LOSSY},
    {"ggml-vocab-starcoder.gguf", "ggml-vocab-starcoder.gguf.inp", "ggml-vocab-starcoder.gguf.out", false, 46, LOSSY},
    {"npm-vocab-gptoss.gguf", "extra.inp", "npm-vocab-gptoss.extra.out", false, 118, EXACT},
    {"npm-vocab-gptoss.gguf", "npm-vocab-gptoss.special.inp", "npm-vocab-gptoss.special.out", true, 9, EXACT},
    {"npm-vocab-llama3.gguf", "ggml-vocab-llama-bpe.gguf.inp", "ggml-vocab-llama-bpe.gguf.out", false, 46, EXACT},
    {"npm-vocab-llama3.gguf", "extra.inp", "npm-vocab-llama3.extra.out", false, 118, EXACT},
    {"npm-vocab-llama3.gguf", "npm-vocab-llama3.special.inp", "npm-vocab-llama3.special.out", true, 7, EXACT},
    {"npm-vocab-qwen3.gguf", "ggml-vocab-qwen2.gguf.inp", "ggml-vocab-qwen2.gguf.out", false, 46, NFC},
    {"npm-vocab-qwen3.gguf", "extra.inp", "npm-vocab-qwen3.extra.out", false, 118, NFC},
    {"npm-vocab-qwen3.gguf", "npm-vocab-qwen3.special.inp", "npm-vocab-qwen3.special.out", true, 15, NFC},
};

static struct esp_tokenizer *open_vocab(const char *path)
{
    struct esp_err err = {0};
    struct esp_gguf *gguf;
    struct esp_tokenizer *tok;
    if (esp_gguf_open(path, &gguf, &err) != ESP_OK) {
        CHECK(false, "%s: %s", path, err.message);
        return NULL;
    }
    esp_status status = esp_tokenizer_create(gguf, &tok, &err);
    esp_gguf_close(gguf);
    CHECK(status == ESP_OK, "%s: %s", path, err.message);
    return status == ESP_OK ? tok : NULL;
}

static bool read_all(const char *path, struct esp_buf *buf)
{
    struct esp_err err = {0};
    esp_buf_init(buf, ESP_TAG_MISC, 16 << 20);
    esp_status status = path == NULL ? ESP_ENOTFOUND : esp_file_read(path, buf, &err);
    CHECK(status == ESP_OK, "%s: %s", path == NULL ? "" : path, err.message);
    esp_buf_char(buf, '\0');
    return status == ESP_OK;
}

/* The ids of one line into want; returns where the next line begins. */
static const char *read_ids(const char *line, struct esp_buf *want)
{
    esp_buf_clear(want);
    while (*line != '\n' && *line != '\0') {
        char *end;
        uint32_t id = (uint32_t)strtoul(line, &end, 10);
        if (end == line) {
            line++;
            continue;
        }
        esp_buf_add(want, &id, sizeof id);
        line = end;
    }
    return line + (*line == '\n');
}

static void check_back(const struct esp_tokenizer *tok, const struct job *job, const char *text, size_t n_bytes,
                       const struct esp_buf *ids, int line)
{
    struct esp_buf back, want;
    esp_buf_init(&back, ESP_TAG_MISC, 1 << 24);
    esp_buf_init(&want, ESP_TAG_MISC, 1 << 24);
    esp_tokenizer_decode(tok, (const void *)ids->data, ids->n / 4, true, &back);
    if (job->back == NFC) {
        esp_unicode_normalize(text, n_bytes, true, &want);
    } else {
        esp_buf_add(&want, text, n_bytes);
    }
    CHECK(back.n == want.n && (want.n == 0 || memcmp(back.data, want.data, want.n) == 0), "%s line %d: %.*s → %.*s",
          job->ids, line, (int)n_bytes, text, (int)back.n, back.data);
    esp_buf_finish(&back);
    esp_buf_finish(&want);
}

static void run_job(const struct esp_tokenizer *tok, const struct job *job)
{
    struct esp_buf texts, lines, want, ids;
    char name[128];
    snprintf(name, sizeof name, "data/vocab/%s", job->texts);
    bool have = read_all(esp_test_shared(name), &texts);
    snprintf(name, sizeof name, "data/vocab/%s", job->ids);
    have = read_all(esp_test_shared(name), &lines) && have;
    esp_buf_init(&want, ESP_TAG_MISC, 1 << 24);
    esp_buf_init(&ids, ESP_TAG_MISC, 1 << 24);
    int n = 0;
    const char *text = texts.data, *line = lines.data, *all_end = texts.data + texts.n;
    for (const char *end; have && (end = memmem(text, (size_t)(all_end - text), SEPARATOR, strlen(SEPARATOR))) != NULL;
         text = end + strlen(SEPARATOR)) {
        struct esp_span span = {text, (size_t)(end - text), job->special};
        struct esp_err err = {0};
        line = read_ids(line, &want);
        esp_buf_clear(&ids);
        esp_status status = esp_tokenizer_encode(tok, &span, 1, &ids, &err);
        n++;
        CHECK(status == ESP_OK, "%s line %d: %s", job->ids, n, err.message);
        CHECK(ids.n == want.n && (ids.n == 0 || memcmp(ids.data, want.data, ids.n) == 0), "%s line %d: %.*s", job->ids,
              n, (int)span.n_bytes, text);
        if (job->back != LOSSY) {
            check_back(tok, job, text, span.n_bytes, &ids, n);
        }
    }
    CHECK(!have || n == job->n, "%s: %d texts, not %d", job->ids, n, job->n);
    esp_buf_finish(&texts);
    esp_buf_finish(&lines);
    esp_buf_finish(&want);
    esp_buf_finish(&ids);
}

static void test_reference_ids(void)
{
    struct esp_tokenizer *tok = NULL;
    const char *open = "";
    for (size_t idx = 0; idx < sizeof jobs / sizeof jobs[0]; idx++) {
        if (strcmp(open, jobs[idx].vocab) != 0) {
            char name[128];
            snprintf(name, sizeof name, "data/vocab/%s", jobs[idx].vocab);
            const char *path = esp_test_shared(name);
            if (path == NULL) {
                return;
            }
            esp_tokenizer_destroy(tok);
            tok = open_vocab(path);
            open = jobs[idx].vocab;
        }
        if (tok != NULL) {
            run_job(tok, &jobs[idx]);
        }
    }
    esp_tokenizer_destroy(tok);
}

static struct esp_tokenizer *open_model(const char *name)
{
    char shared[256];
    snprintf(shared, sizeof shared, "data/vocab/%s", name);
    bool is_model = strncmp(name, "SmolLM2", 7) == 0 || strncmp(name, "gemma-3-270m", 12) == 0;
    const char *path = is_model ? esp_test_model(name) : esp_test_shared(shared);
    return path == NULL ? NULL : open_vocab(path);
}

static void check_recorded(const struct esp_tokenizer *tok, const json_t *row, int line, bool back)
{
    const json_t *text = json_object_get(row, "text"), *want = json_object_get(row, "ids");
    struct esp_span span = {json_string_value(text), json_string_length(text),
                            json_is_true(json_object_get(row, "special"))};
    struct esp_buf ids;
    struct esp_err err = {0};
    esp_buf_init(&ids, ESP_TAG_MISC, 1 << 24);
    esp_status status = esp_tokenizer_encode(tok, &span, 1, &ids, &err);
    const uint32_t *got = (const void *)ids.data;
    bool same = status == ESP_OK && ids.n / 4 == json_array_size(want);
    for (size_t idx = 0; same && idx < ids.n / 4; idx++) {
        same = got[idx] == (uint32_t)json_integer_value(json_array_get(want, idx));
    }
    CHECK(same, "line %d: %s: %zu ids, %s", line, span.text, ids.n / 4, err.message);
    struct job job = {.ids = "tokens_llama_cpp.jsonl"};
    if (back && strstr(span.text, "\xE2\x96\x81") == NULL) { /* SPM: U+2581 is a space */
        check_back(tok, &job, span.text, span.n_bytes, &ids, line);
    }
    esp_buf_finish(&ids);
}

static void check_file(const char *path, int n_lines, bool back)
{
    struct esp_buf lines;
    REQUIRE(read_all(path, &lines), "%s", path);
    struct esp_tokenizer *tok = NULL;
    char open[128] = "";
    int n = 0, n_checked = 0;
    for (const char *at = lines.data; *at != '\0'; at += *at == '\n') {
        size_t n_bytes = strcspn(at, "\n");
        json_t *row = json_loadb(at, n_bytes, JSON_ALLOW_NUL, NULL);
        const char *model = json_string_value(json_object_get(row, "model"));
        CHECK(model != NULL, "line %d", n);
        if (model != NULL && strcmp(open, model) != 0) {
            esp_tokenizer_destroy(tok);
            tok = open_model(model);
            snprintf(open, sizeof open, "%s", model);
        }
        n++;
        if (tok != NULL && model != NULL) {
            check_recorded(tok, row, n, back);
            n_checked++;
        }
        json_decref(row);
        at += n_bytes;
    }
    CHECK(n == n_lines, "%d lines", n);
    printf("# %d of %d lines checked\n", n_checked, n);
    esp_tokenizer_destroy(tok);
    esp_buf_finish(&lines);
}

static void test_recorded_ids(void)
{
    check_file(ESP_GOLDEN_DIR "/tokens_llama_cpp.jsonl", 192, true);
}

/* B190: numbers, case, marks and spaces as each vocabulary's own rule cuts them. */
static void test_recorded_splits(void)
{
    check_file(ESP_GOLDEN_DIR "/tokens_splits.jsonl", 100, false);
}

/* A megabyte that no pre-tokenizer cuts. Time is not asserted; a quadratic loop would not end within the limit. */
static void run_long(const struct esp_tokenizer *tok, const char *name, bool exact)
{
    enum { LONG_BYTES = 1 << 20 };
    char *text = malloc(LONG_BYTES);
    REQUIRE(text != NULL, "memory");
    for (int kind = 0; kind < 3; kind++) {
        for (size_t idx = 0; idx < LONG_BYTES; idx++) {
            text[idx] = kind == 0 ? 'a' : kind == 1 ? (char)('a' + esp_rng_below(&esp_test_state.rng, 26)) : '.';
        }
        struct esp_span span = {text, LONG_BYTES, true};
        struct esp_buf ids;
        struct esp_err err = {0};
        esp_buf_init(&ids, ESP_TAG_MISC, 1 << 24);
        struct timespec start, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        CHECK(esp_tokenizer_encode(tok, &span, 1, &ids, &err) == ESP_OK, "%s: %s", name, err.message);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        printf("# %s, text %d: %zu ids, %.0f ms of CPU time\n", name, kind, ids.n / 4,
               (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6);
        struct job job = {.ids = name};
        if (exact) {
            check_back(tok, &job, text, LONG_BYTES, &ids, kind);
        }
        esp_buf_finish(&ids);
    }
    free(text);
}

static void test_long_texts(void)
{
    static const char *const vocabs[] = {"ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf",
                                         "ggml-vocab-bert-bge.gguf"};
    static const char *const models[] = {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-Q4_K_M.gguf"};
    for (size_t idx = 0; idx < 5; idx++) {
        char name[128];
        snprintf(name, sizeof name, "data/vocab/%s", vocabs[idx % 3]);
        const char *path = idx < 3 ? esp_test_shared(name) : esp_test_model(models[idx - 3]);
        struct esp_tokenizer *tok = path == NULL ? NULL : open_vocab(path);
        if (tok != NULL) {
            run_long(tok, idx < 3 ? vocabs[idx] : models[idx - 3], idx != 2);
        }
        esp_tokenizer_destroy(tok);
    }
}

ESP_TEST_MAIN(T(test_reference_ids), T(test_recorded_ids), T(test_recorded_splits), T(test_long_texts))
