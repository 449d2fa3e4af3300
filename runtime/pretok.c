/* Compiling and running pre-tokenizer patterns.
 *
 * Pieces are kept as end offsets in two buffers that swap roles after each pattern. PCRE2 takes its memory
 * through our allocator; when the machine forbids executable memory the interpreter is used, with the same
 * results. Limits: match steps and heap of the interpreter, and a JIT stack that may grow to 4 MiB.
 * Thread: a run belongs to one call; the compiled patterns are shared.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/pretok.h"

#include <pcre2.h>
#include <string.h>

#define JIT_STACK_MIN_BYTES (32u * 1024u)
#define JIT_STACK_MAX_BYTES (4u * 1024u * 1024u)
#define MATCH_STEPS_MAX 100000000u
#define MATCH_HEAP_KIB_MAX (256u * 1024u)
#define ENDS_BYTES_MAX ((size_t)4 << 30)

struct esp_pretok {
    pcre2_general_context *general;
    pcre2_code *codes[ESP_PRETOK_STEPS_MAX];
    size_t n;
};

struct esp_pretok_run {
    const struct esp_pretok *pretok;
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
    struct esp_buf ends[2];
};

static void *pcre_malloc(size_t n_bytes, void *ctx)
{
    return esp_malloc(ESP_TAG_VOCAB, n_bytes);
}

static void pcre_free(void *ptr, void *ctx)
{
    esp_free(ptr);
}

static esp_status compile_step(struct esp_pretok *pretok, const char *pattern, struct esp_err *err)
{
    pcre2_compile_context *context = pcre2_compile_context_create(pretok->general);
    if (context == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for a pre-tokenizer");
    }
    int code;
    PCRE2_SIZE at;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at,
                                         context);
    pcre2_compile_context_free(context);
    if (compiled == NULL) {
        char text[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
        return esp_fail(err, code == PCRE2_ERROR_NOMEMORY || code == 121 ? ESP_ENOMEM : ESP_EINTERNAL,
                        "pre-tokenizer pattern does not compile: %s at %zu", text, (size_t)at);
    }
    pretok->codes[pretok->n++] = compiled;
    /* Without a JIT pcre2_match interprets: slower, never different. */
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    return ESP_OK;
}

esp_status esp_pretok_create(const struct esp_pretok_row *row, struct esp_pretok **ret_pretok, struct esp_err *err)
{
    struct esp_pretok *pretok = esp_calloc(ESP_TAG_VOCAB, 1, sizeof *pretok);
    if (pretok == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for a pre-tokenizer");
    }
    esp_status status = ESP_OK;
    pretok->general = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    if (pretok->general == NULL) {
        status = esp_fail(err, ESP_ENOMEM, "out of memory for a pre-tokenizer");
    }
    for (size_t idx = 0; status == ESP_OK && idx < ESP_PRETOK_STEPS_MAX && row->steps[idx] != NULL; idx++) {
        status = compile_step(pretok, row->steps[idx], err);
    }
    if (status != ESP_OK) {
        esp_pretok_destroy(pretok);
        return status;
    }
    *ret_pretok = pretok;
    return ESP_OK;
}

void esp_pretok_destroy(struct esp_pretok *pretok)
{
    if (pretok == NULL) {
        return;
    }
    for (size_t idx = 0; idx < pretok->n; idx++) {
        pcre2_code_free(pretok->codes[idx]);
    }
    pcre2_general_context_free(pretok->general);
    esp_free(pretok);
}

esp_status esp_pretok_run_create(const struct esp_pretok *pretok, struct esp_pretok_run **ret_run, struct esp_err *err)
{
    struct esp_pretok_run *run = esp_calloc(ESP_TAG_VOCAB, 1, sizeof *run);
    if (run == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory for a pre-tokenizer");
    }
    run->pretok = pretok;
    esp_buf_init(&run->ends[0], ESP_TAG_VOCAB, ENDS_BYTES_MAX);
    esp_buf_init(&run->ends[1], ESP_TAG_VOCAB, ENDS_BYTES_MAX);
    run->context = pcre2_match_context_create(pretok->general);
    run->data = pcre2_match_data_create(1, pretok->general);
    run->stack = pcre2_jit_stack_create(JIT_STACK_MIN_BYTES, JIT_STACK_MAX_BYTES, pretok->general);
    if (run->context == NULL || run->data == NULL) {
        esp_pretok_run_destroy(run);
        return esp_fail(err, ESP_ENOMEM, "out of memory for a pre-tokenizer");
    }
    pcre2_set_match_limit(run->context, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(run->context, MATCH_HEAP_KIB_MAX);
    if (run->stack != NULL) { /* NULL also where there is no JIT */
        pcre2_jit_stack_assign(run->context, NULL, run->stack);
    }
    *ret_run = run;
    return ESP_OK;
}

void esp_pretok_run_destroy(struct esp_pretok_run *run)
{
    if (run == NULL) {
        return;
    }
    pcre2_match_data_free(run->data);
    pcre2_match_context_free(run->context);
    pcre2_jit_stack_free(run->stack);
    esp_buf_finish(&run->ends[0]);
    esp_buf_finish(&run->ends[1]);
    esp_free(run);
}

static void add_end(struct esp_buf *ends, size_t end)
{
    uint32_t value = (uint32_t)end;
    esp_buf_add(ends, &value, sizeof value);
}

static size_t next_char(const char *text, size_t n_bytes, size_t at)
{
    at++;
    while (at < n_bytes && ((unsigned char)text[at] & 0xC0) == 0x80) {
        at++;
    }
    return at;
}

/* Cuts text[start, end) with one pattern and appends the ends of its pieces. */
static esp_status cut_piece(struct esp_pretok_run *run, const pcre2_code *code, const char *text, size_t start,
                            size_t end, struct esp_buf *ends, struct esp_err *err)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)(text + start);
    size_t n_bytes = end - start, done = 0, at = 0;
    while (at < n_bytes) {
        int rc = pcre2_match(code, subject, n_bytes, at, PCRE2_NO_UTF_CHECK, run->data, run->context);
        if (rc == PCRE2_ERROR_NOMATCH) {
            break;
        }
        if (rc < 0) {
            return esp_fail(err, rc == PCRE2_ERROR_NOMEMORY ? ESP_ENOMEM : ESP_ELIMIT,
                            "the pre-tokenizer gave up on this text at byte %zu (PCRE2 error %d)", start + at, rc);
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(run->data);
        if (range[0] > done) {
            add_end(ends, start + range[0]);
        }
        done = range[0];
        if (range[1] > range[0]) {
            add_end(ends, start + range[1]);
            done = at = range[1];
        } else { /* an empty match only cuts */
            at = next_char(text + start, n_bytes, range[0]);
        }
    }
    if (done < n_bytes) {
        add_end(ends, end);
    }
    return ESP_OK;
}

esp_status esp_pretok_split(struct esp_pretok_run *run, const char *text, size_t n_bytes, const uint32_t **ret_ends,
                            size_t *ret_n, struct esp_err *err)
{
    struct esp_buf *from = &run->ends[0], *to = &run->ends[1];
    esp_buf_clear(from);
    if (n_bytes > 0) {
        add_end(from, n_bytes);
    }
    for (size_t step = 0; step < run->pretok->n; step++) {
        esp_buf_clear(to);
        const uint32_t *ends = (const void *)from->data;
        size_t n = from->n / sizeof *ends, start = 0;
        for (size_t idx = 0; idx < n; idx++) {
            esp_status status = cut_piece(run, run->pretok->codes[step], text, start, ends[idx], to, err);
            if (status != ESP_OK) {
                return status;
            }
            start = ends[idx];
        }
        if (to->failed || from->failed) {
            return esp_fail(err, ESP_ENOMEM, "out of memory for a pre-tokenizer");
        }
        struct esp_buf *swap = from;
        from = to;
        to = swap;
    }
    *ret_ends = (const void *)from->data;
    *ret_n = from->n / sizeof **ret_ends;
    return from->failed ? esp_fail(err, ESP_ENOMEM, "out of memory for a pre-tokenizer") : ESP_OK;
}
