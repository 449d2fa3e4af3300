/* $ref: JSON pointers into the same document, with ~0, ~1 and %XX, relative to the enclosing $id.
 *
 * A reference to the document's own identifier is the document. Anything that would have to be fetched, and
 * anchors by name, are refused. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema.h"

static const struct esp_jv *own_id(const struct esp_schema *s, const struct esp_jv *v)
{
    const struct esp_jv *id = esp_jv_find(v, "$id");
    if (id == NULL && (s->draft == ESP_DRAFT4 || !s->draft_given)) {
        id = esp_jv_find(v, "id");
    }
    return id != NULL && id->type == ESP_JV_STRING && id->n_bytes > 0 && id->text[0] != '#' ? id : NULL;
}

/* The resource that holds v: the nearest enclosing schema with an identifier of its own, else the root. */
static const struct esp_jv *resource(const struct esp_schema *s, const struct esp_jv *v)
{
    for (; v->parent != NULL; v = v->parent) {
        if (own_id(s, v) != NULL) {
            return v;
        }
    }
    return v;
}

static int hex(char c)
{
    char lower = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Decodes %XX; false when malformed. */
static bool decode_percent(const char *text, size_t n, char *out, size_t *ret_n)
{
    size_t n_out = 0;
    for (size_t at = 0; at < n; at++) {
        if (text[at] != '%') {
            out[n_out++] = text[at];
            continue;
        }
        if (at + 2 >= n || hex(text[at + 1]) < 0 || hex(text[at + 2]) < 0) {
            return false;
        }
        out[n_out++] = (char)(hex(text[at + 1]) * 16 + hex(text[at + 2]));
        at += 2;
    }
    *ret_n = n_out;
    return true;
}

/* One step of a pointer, in place: ~1 is a slash, ~0 a tilde. */
static size_t decode_step(char *step, size_t n)
{
    size_t n_out = 0;
    for (size_t at = 0; at < n; at++) {
        char c = step[at];
        if (c == '~' && at + 1 < n && (step[at + 1] == '0' || step[at + 1] == '1')) {
            c = step[++at] == '0' ? '~' : '/';
        }
        step[n_out++] = c;
    }
    return n_out;
}

static const struct esp_jv *array_member(const struct esp_jv *array, const char *step, size_t n)
{
    uint64_t index = 0;
    if (n == 0 || n > 9 || (n > 1 && step[0] == '0')) {
        return NULL;
    }
    for (size_t at = 0; at < n; at++) {
        if (step[at] < '0' || step[at] > '9') {
            return NULL;
        }
        index = index * 10 + (uint64_t)(step[at] - '0');
    }
    const struct esp_jv *child = array->child;
    while (child != NULL && index > 0) {
        child = child->next;
        index--;
    }
    return child;
}

static const struct esp_jv *follow(const struct esp_jv *at, char *pointer, size_t n)
{
    size_t begin = 0;
    while (at != NULL && begin < n) {
        size_t end = begin + 1;
        while (end < n && pointer[end] != '/') {
            end++;
        }
        size_t n_step = decode_step(pointer + begin + 1, end - begin - 1);
        if (at->type == ESP_JV_OBJECT) {
            at = esp_jv_get(at, pointer + begin + 1, n_step);
        } else {
            at = at->type == ESP_JV_ARRAY ? array_member(at, pointer + begin + 1, n_step) : NULL;
        }
        begin = end;
    }
    return at;
}

/* Does the reference, up to its fragment, name the resource itself? */
static bool names_base(const struct esp_schema *s, const struct esp_jv *base, const char *text, size_t n)
{
    const struct esp_jv *id = own_id(s, base);
    if (n == 0 || id == NULL) {
        return n == 0;
    }
    const char *hash = memchr(id->text, '#', id->n_bytes);
    size_t n_id = hash == NULL ? id->n_bytes : (size_t)(hash - id->text);
    return n == n_id && memcmp(text, id->text, n) == 0;
}

esp_status esp_schema_resolve(struct esp_schema *s, const struct esp_jv *ref, const struct esp_jv **ret_target)
{
    const struct esp_jv *base = resource(s, ref->parent);
    const char *fragment = memchr(ref->text, '#', ref->n_bytes);
    size_t n_before = fragment == NULL ? ref->n_bytes : (size_t)(fragment - ref->text);
    if (!names_base(s, base, ref->text, n_before)) {
        return esp_schema_fail(s, ESP_EUNSUPPORTED, ref, "\"%.100s\" is outside this document", ref->text);
    }
    size_t n = fragment == NULL ? 0 : ref->n_bytes - n_before - 1;
    char *pointer = esp_arena_alloc(&s->arena, n + 1, 1);
    if (pointer == NULL) {
        return esp_schema_memory(s);
    }
    if (n > 0 && !decode_percent(fragment + 1, n, pointer, &n)) {
        return esp_schema_fail(s, ESP_EINVAL, ref, "\"%.100s\" has a bad %% escape", ref->text);
    }
    if (n > 0 && pointer[0] != '/') {
        return esp_schema_fail(s, ESP_EUNSUPPORTED, ref,
                               "\"%.100s\" is a named anchor; only JSON pointers are followed", ref->text);
    }
    const struct esp_jv *target = follow(base, pointer, n);
    if (target == NULL) {
        return esp_schema_fail(s, ESP_EINVAL, ref, "\"%.100s\" points to nothing", ref->text);
    }
    if (target != s->root && resource(s, target) != base) {
        return esp_schema_fail(s, ESP_EUNSUPPORTED, ref,
                               "\"%.100s\" crosses into a schema with an identifier of its own", ref->text);
    }
    *ret_target = target;
    return ESP_OK;
}
