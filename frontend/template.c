/* The face of the renderer: compiling a template, rendering it to text and spans.
 *
 * Neighbouring bytes of the same origin become one span. A rendering has its own arena, which goes with it; a
 * compiled template is never written again. Thread: see the header.
 */
#include "frontend/template.h"

#include <string.h>

#include "frontend/template_internal.h"
#include "runtime/base/utf8.h"

static esp_status compile(struct esp_template *tmpl, const char *text, size_t n_bytes, struct esp_err *err)
{
    struct tpl_tokens tokens;
    esp_status status = esp_tpl_lex(&tmpl->arena, text, n_bytes, &tokens, err);
    if (status != ESP_OK) {
        return status;
    }
    struct tpl_parser parser = {.tmpl = tmpl, .err = err, .token = tokens.list};
    esp_bytesmap_init(&parser.symbols, ESP_TAG_MISC);
    err->code = ESP_OK;
    status = esp_tpl_parse(&parser, &tmpl->body);
    esp_bytesmap_finish(&parser.symbols);
    return status;
}

esp_status esp_template_compile(const char *text, size_t n_bytes, struct esp_template **ret_template,
                                struct esp_err *err)
{
    struct esp_err local;
    err = err != NULL ? err : &local;
    if (n_bytes > ESP_TEMPLATE_BYTES_MAX) {
        return esp_fail(err, ESP_ELIMIT, "the template has %zu bytes; the limit is %u", n_bytes,
                        ESP_TEMPLATE_BYTES_MAX);
    }
    size_t valid = esp_utf8_valid(text, n_bytes);
    if (valid < n_bytes) {
        return esp_fail(err, ESP_EINVAL, "the template is not UTF-8 at byte %zu", valid);
    }
    struct esp_template *tmpl = esp_calloc(ESP_TAG_MISC, 1, sizeof *tmpl);
    if (tmpl == NULL) {
        return esp_fail(err, ESP_ENOMEM, "out of memory");
    }
    esp_arena_init(&tmpl->arena, ESP_TAG_MISC, TPL_TREE_BYTES_MAX);
    esp_status status = compile(tmpl, text, n_bytes, err);
    if (status != ESP_OK) {
        esp_template_destroy(tmpl);
        return status;
    }
    *ret_template = tmpl;
    return ESP_OK;
}

void esp_template_destroy(struct esp_template *tmpl)
{
    if (tmpl != NULL) {
        esp_arena_finish(&tmpl->arena);
        esp_free(tmpl);
    }
}

void esp_rendered_init(struct esp_rendered *rendered)
{
    esp_buf_init(&rendered->text, ESP_TAG_MISC, ESP_RENDER_BYTES_MAX);
    esp_buf_init(&rendered->spans, ESP_TAG_MISC, (size_t)ESP_RENDER_BYTES_MAX * sizeof(struct esp_span));
}

void esp_rendered_finish(struct esp_rendered *rendered)
{
    esp_buf_finish(&rendered->text);
    esp_buf_finish(&rendered->spans);
}

const struct esp_span *esp_rendered_spans(struct esp_rendered *rendered, size_t *ret_n)
{
    struct esp_span *spans = (struct esp_span *)(void *)rendered->spans.data;
    size_t n = rendered->spans.n / sizeof *spans, at = 0;
    for (size_t idx = 0; idx < n; idx++) {
        spans[idx].text = rendered->text.data + at;
        at += spans[idx].n_bytes;
    }
    *ret_n = n;
    return spans;
}

static bool take_output(const struct tpl_out *out, struct esp_rendered *rendered)
{
    esp_buf_clear(&rendered->text);
    esp_buf_clear(&rendered->spans);
    bool ok = esp_buf_add(&rendered->text, out->n > 0 ? out->data : "", out->n);
    for (size_t from = 0, to; ok && from < out->n; from = to) {
        bool user = out->marks != NULL ? out->marks[from] != 0 : out->user;
        to = from + 1;
        while (to < out->n && (out->marks != NULL ? out->marks[to] != 0 : out->user) == user) {
            to++;
        }
        struct esp_span span = {.n_bytes = to - from, .control = !user};
        ok = esp_buf_add(&rendered->spans, &span, sizeof span);
    }
    return ok;
}

esp_status esp_template_render(const struct esp_template *tmpl, const json_t *context, int64_t now_s,
                               struct esp_rendered *rendered, struct esp_err *err)
{
    struct esp_err local;
    struct tpl_out out = {0};
    struct tpl_run run = {
        .tmpl = tmpl, .err = err != NULL ? err : &local, .context = context, .out = &out, .now_s = now_s, .line = 1};
    run.err->code = ESP_OK;
    esp_arena_init(&run.arena, ESP_TAG_MISC, TPL_RUN_BYTES_MAX);
    run.globals = esp_tpl_alloc(&run, tmpl->n_symbols, sizeof *run.globals);
    bool ok = run.globals != NULL && esp_tpl_exec(&run, tmpl->body);
    if (ok && !take_output(&out, rendered)) {
        ok = esp_tpl_fail(&run, ESP_ENOMEM, "out of memory");
    }
    esp_arena_finish(&run.arena);
    return ok ? ESP_OK : run.err->code;
}
