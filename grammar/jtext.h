/* JSON source text as a tree that keeps what schemas depend on: key order and the spelling of numbers.
 *
 * Strict RFC 8259: UTF-8, no duplicate keys, no half surrogates, nothing after the value, nesting at most
 * ESP_GRAMMAR_DEPTH_MAX. Strings are decoded; numbers stay text. The tree lives in an arena.
 * Thread: the owner's; read-only after parsing but for `extra`, which belongs to the schema reader.
 */
#ifndef ESP_GRAMMAR_JTEXT_H
#define ESP_GRAMMAR_JTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/arena.h"
#include "runtime/base/status.h"

enum esp_jv_type { ESP_JV_NULL, ESP_JV_FALSE, ESP_JV_TRUE, ESP_JV_NUMBER, ESP_JV_STRING, ESP_JV_ARRAY, ESP_JV_OBJECT };

struct esp_jv {
    enum esp_jv_type type;
    uint32_t n;       /* members */
    uint32_t index;   /* place in the parent */
    uint32_t n_bytes; /* of text */
    uint32_t key_bytes;
    const char *text; /* decoded string or number as written */
    const char *key;  /* member of an object: its name, decoded */
    const char *source; /* where the value stands in the text that was parsed; borrowed */
    size_t source_bytes;
    struct esp_jv *parent, *child, *last, *next;
    void *extra;
    uint32_t cost; /* expressions that a keyword made */
    bool weak; /* a keyword that the lenient option leaves out */
};

esp_status esp_jv_parse(struct esp_arena *arena, const char *text, size_t n_bytes, struct esp_jv **ret_root,
                        struct esp_err *err);
/* The same with limits of its own, for texts that hold schemas. */
esp_status esp_jv_parse_large(struct esp_arena *arena, const char *text, size_t n_bytes, size_t bytes_max,
                              unsigned depth_max, struct esp_jv **ret_root, struct esp_err *err);
struct esp_jv *esp_jv_get(const struct esp_jv *object, const char *key, size_t key_bytes);
struct esp_jv *esp_jv_find(const struct esp_jv *object, const char *key);
bool esp_jv_is(const struct esp_jv *string, const char *text);
/* Equality of JSON values: numbers by value, objects whatever their order. */
bool esp_jv_equal(const struct esp_jv *a, const struct esp_jv *b);
/* The JSON pointer, cut to fit; always terminated. */
void esp_jv_pointer(const struct esp_jv *value, char *out, size_t cap);
const char *esp_jv_type_name(const struct esp_jv *value);

#endif
