/* Prints what a GGUF file holds: text for people, JSON for programs.
 *
 * The output is always valid UTF-8 and valid JSON, whatever bytes the file holds: bytes that are no UTF-8
 * become U+FFFD, numbers that JSON does not know (NaN, infinities) become strings. Floats are printed with
 * the fewest digits that read back to the same value. Thread: any. Knows no key's meaning but split.*.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/types.h"
#include "runtime/base/utf8.h"
#include "runtime/gguf_parts.h"

#define ITEMS_WHOLE 16 /* arrays up to this long are printed whole */
#define ITEMS_HEAD 8   /* of longer ones so many, unless all are wanted */
#define TEXT_BYTES 200 /* of a string in the text form, unless all is wanted */

struct printer {
    struct esp_buf *buf;
    bool json, full;
};

static void put_escaped(struct printer *p, uint32_t cp)
{
    char bytes[4];
    if (cp == '"' || cp == '\\') {
        esp_buf_printf(p->buf, "\\%c", (char)cp);
    } else if (cp == '\n') {
        esp_buf_str(p->buf, "\\n");
    } else if (cp == '\t') {
        esp_buf_str(p->buf, "\\t");
    } else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0)) {
        esp_buf_printf(p->buf, "\\u%04x", cp);
    } else {
        esp_buf_add(p->buf, bytes, (size_t)esp_utf8_encode(cp, bytes));
    }
}

/* Escaped as in JSON, in both forms of output, so that a name cannot break a line or a terminal. */
static void put_text(struct printer *p, const struct esp_gguf_string *s, size_t bytes_max, const char *quote)
{
    size_t at = 0;
    esp_buf_str(p->buf, quote);
    while (at < s->n_bytes && at < bytes_max) {
        uint32_t cp;
        int n = esp_utf8_decode(s->data + at, s->n_bytes - at, &cp);
        if (n <= 0) {
            cp = 0xfffd;
            n = 1;
        }
        put_escaped(p, cp);
        at += (size_t)n;
    }
    esp_buf_str(p->buf, quote);
    if (at < s->n_bytes) {
        esp_buf_printf(p->buf, " … (%zu bytes)", s->n_bytes);
    }
}

static void put_float(struct printer *p, double value, bool narrow)
{
    const char *q = p->json ? "\"" : "";
    if (isnan(value) || isinf(value)) {
        esp_buf_printf(p->buf, "%s%s%s", q, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity", q);
        return;
    }
    char text[40];
    int digits = narrow ? 6 : 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (digits++ < 17 && (narrow ? strtof(text, NULL) != (float)value : strtod(text, NULL) != value));
    esp_buf_str(p->buf, text);
    if (strpbrk(text, ".e") == NULL) {
        esp_buf_str(p->buf, ".0");
    }
}

static void put_number(struct printer *p, const struct esp_gguf_kv *kv, uint64_t idx)
{
    switch (kv->item_type) {
    case ESP_GGUF_F32:
    case ESP_GGUF_F64: put_float(p, esp_gguf_array_float(kv, idx), kv->item_type == ESP_GGUF_F32); break;
    case ESP_GGUF_BOOL: esp_buf_str(p->buf, esp_gguf_array_int(kv, idx) != 0 ? "true" : "false"); break;
    case ESP_GGUF_U64: esp_buf_printf(p->buf, "%" PRIu64, (uint64_t)esp_gguf_array_int(kv, idx)); break;
    default: esp_buf_printf(p->buf, "%" PRId64, esp_gguf_array_int(kv, idx)); break;
    }
}

/* The first n items, between commas. */
static void put_items(struct printer *p, const struct esp_gguf_kv *kv, uint64_t n)
{
    struct esp_gguf_string_iter iter = esp_gguf_strings(kv);
    size_t bytes_max = p->json || p->full ? SIZE_MAX : TEXT_BYTES;
    for (uint64_t idx = 0; idx < n && !p->buf->failed; idx++) {
        struct esp_gguf_string s;
        if (idx > 0) {
            esp_buf_str(p->buf, p->json ? "," : ", ");
        }
        if (kv->item_type != ESP_GGUF_STRING) {
            put_number(p, kv, idx);
        } else if (esp_gguf_next_string(&iter, &s)) {
            put_text(p, &s, bytes_max, "\"");
        }
    }
}

static void put_value(struct printer *p, const struct esp_gguf_kv *kv)
{
    if (kv->type != ESP_GGUF_ARRAY) {
        put_items(p, kv, 1);
        return;
    }
    bool whole = p->full || kv->n <= ITEMS_WHOLE;
    if (whole) {
        esp_buf_char(p->buf, '[');
        put_items(p, kv, kv->n);
        esp_buf_char(p->buf, ']');
    } else if (p->json) {
        esp_buf_printf(p->buf, "{\"array\":\"%s\",\"count\":%" PRIu64 ",\"head\":[", esp_gguf_type_name(kv->item_type),
                       kv->n);
        put_items(p, kv, ITEMS_HEAD);
        esp_buf_str(p->buf, "]}");
    } else {
        esp_buf_char(p->buf, '[');
        put_items(p, kv, ITEMS_HEAD);
        esp_buf_printf(p->buf, ", … %" PRIu64 " in all]", kv->n);
    }
}

static void put_dims(struct printer *p, const struct esp_gguf_tensor *t, const char *between)
{
    for (uint32_t d = 0; d < t->n_dims; d++) {
        esp_buf_printf(p->buf, "%s%" PRIu64, d == 0 ? "" : between, t->dims[d]);
    }
}

static void put_split_json(struct printer *p, const struct esp_gguf *gguf)
{
    uint32_t no, count;
    if (esp_gguf_find(gguf, "split.count") == NULL || esp_gguf_get_u32(gguf, "split.no", 0, &no, NULL) != ESP_OK ||
        esp_gguf_get_u32(gguf, "split.count", 1, &count, NULL) != ESP_OK) {
        esp_buf_str(p->buf, "null");
        return;
    }
    esp_buf_printf(p->buf, "{\"no\":%u,\"count\":%u,\"tensors\":%zu}", no, count, gguf->n_tensors);
}

/* One warning of the caller's lines; false after the last. */
static bool next_line(const char **lines, struct esp_gguf_string *ret_line)
{
    size_t n = strcspn(*lines, "\n");
    *ret_line = (struct esp_gguf_string){*lines, n};
    *lines += n + ((*lines)[n] == '\n');
    return n > 0;
}

static void describe_json(struct printer *p, const struct esp_gguf *gguf, const char *warnings)
{
    esp_buf_printf(p->buf, "{\"version\":%u,\"alignment\":%u,\"kv\":{", esp_gguf_version(gguf),
                   esp_gguf_alignment(gguf));
    for (size_t idx = 0; idx < esp_gguf_n_kv(gguf) && !p->buf->failed; idx++) {
        const struct esp_gguf_kv *kv = esp_gguf_kv_at(gguf, idx);
        esp_buf_str(p->buf, idx == 0 ? "" : ",");
        put_text(p, &kv->key, SIZE_MAX, "\"");
        esp_buf_char(p->buf, ':');
        put_value(p, kv);
    }
    esp_buf_str(p->buf, "},\"tensors\":[");
    for (size_t idx = 0; idx < gguf->n_tensors && !p->buf->failed; idx++) {
        const struct esp_gguf_tensor *t = &gguf->tensors[idx];
        esp_buf_str(p->buf, idx == 0 ? "{\"name\":" : ",{\"name\":");
        put_text(p, &t->name, SIZE_MAX, "\"");
        esp_buf_printf(p->buf, ",\"type\":\"%s\",\"dims\":[", esp_type_info(t->type)->name);
        put_dims(p, t, ",");
        esp_buf_printf(p->buf, "],\"offset\":%" PRIu64 ",\"bytes\":%zu", t->offset, t->n_bytes);
        if (gguf->n_parts > 1) {
            esp_buf_printf(p->buf, ",\"part\":%u", t->file_idx);
        }
        esp_buf_char(p->buf, '}');
    }
    esp_buf_str(p->buf, "],\"split\":");
    put_split_json(p, gguf);
    esp_buf_str(p->buf, ",\"warnings\":[");
    struct esp_gguf_string line;
    for (const char *rest = warnings; next_line(&rest, &line);) {
        esp_buf_str(p->buf, line.data == warnings ? "" : ",");
        put_text(p, &line, SIZE_MAX, "\"");
    }
    esp_buf_str(p->buf, "]}\n");
}

static void put_warnings(struct printer *p, const char *warnings)
{
    struct esp_gguf_string line;
    size_t n = 0;
    for (const char *rest = warnings; next_line(&rest, &line); n++) {
    }
    if (n > 0) {
        esp_buf_printf(p->buf, "\n%zu warning%s\n", n, n == 1 ? "" : "s");
    }
    for (const char *rest = warnings; next_line(&rest, &line);) {
        esp_buf_str(p->buf, "  ");
        put_text(p, &line, SIZE_MAX, "");
        esp_buf_char(p->buf, '\n');
    }
}

static void describe_text(struct printer *p, const struct esp_gguf *gguf, const char *warnings)
{
    uint64_t n_bytes = 0;
    for (size_t idx = 0; idx < gguf->n_tensors; idx++) {
        n_bytes += gguf->tensors[idx].n_bytes;
    }
    esp_buf_printf(p->buf, "GGUF version %u, alignment %u, %u file%s\n", esp_gguf_version(gguf),
                   esp_gguf_alignment(gguf), gguf->n_parts, gguf->n_parts == 1 ? "" : "s");
    esp_buf_printf(p->buf, "\n%zu keys\n", esp_gguf_n_kv(gguf));
    for (size_t idx = 0; idx < esp_gguf_n_kv(gguf) && !p->buf->failed; idx++) {
        const struct esp_gguf_kv *kv = esp_gguf_kv_at(gguf, idx);
        esp_buf_str(p->buf, "  ");
        put_text(p, &kv->key, SIZE_MAX, "");
        esp_buf_printf(p->buf, " %s%s = ", esp_gguf_type_name(kv->item_type), kv->type == ESP_GGUF_ARRAY ? "[]" : "");
        put_value(p, kv);
        esp_buf_char(p->buf, '\n');
    }
    esp_buf_printf(p->buf, "\n%zu tensors, %" PRIu64 " bytes\n", gguf->n_tensors, n_bytes);
    for (size_t idx = 0; idx < gguf->n_tensors && !p->buf->failed; idx++) {
        const struct esp_gguf_tensor *t = &gguf->tensors[idx];
        esp_buf_str(p->buf, "  ");
        put_text(p, &t->name, SIZE_MAX, "");
        esp_buf_printf(p->buf, " %s ", esp_type_info(t->type)->name);
        put_dims(p, t, " x ");
        esp_buf_printf(p->buf, ", %zu bytes at %" PRIu64, t->n_bytes, t->offset);
        if (gguf->n_parts > 1) {
            esp_buf_printf(p->buf, " of part %u", t->file_idx + 1);
        }
        esp_buf_char(p->buf, '\n');
    }
    put_warnings(p, warnings);
}

esp_status esp_gguf_describe(const struct esp_gguf *gguf, const char *warnings, bool json, bool full,
                             struct esp_buf *buf)
{
    struct printer p = {buf, json, full};
    if (json) {
        describe_json(&p, gguf, warnings);
    } else {
        describe_text(&p, gguf, warnings);
    }
    return buf->failed ? ESP_ENOMEM : ESP_OK;
}
