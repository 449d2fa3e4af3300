/* JSON as text: the exact source of a value, writing strings, and limits that a parser does not have.
 *
 * A schema must reach the grammar compiler as it was written: a parsed and printed one has lost the
 * spelling of its numbers (1.0, 1e2). So the body is parsed for everything else, and the source of the few
 * values that need it is cut out of the text. Thread: any.
 */
#ifndef ESP_FRONTEND_JSONTEXT_H
#define ESP_FRONTEND_JSONTEXT_H

#include <jansson.h>

#include "runtime/base/buf.h"
#include "runtime/base/status.h"

#define ESP_JSON_VALUES_MAX 1000000u /* values of one request body */

/* Parses a request body: an object, with the limits of base/json and of ESP_JSON_VALUES_MAX. Owned, or NULL. */
json_t *esp_jsontext_parse(const char *text, size_t n_bytes, struct esp_err *err);

/* The source of the value under a path of object keys and, for arrays, positions as decimal text; borrowed from
 * text. text must be valid JSON without duplicate keys. NULL when something on the way is absent. */
const char *esp_jsontext_find(const char *text, size_t n_bytes, const char *const *path, size_t n_path,
                              size_t *ret_n_bytes);

/* Goes through the items of the array at text: *at is 0 at first; false behind the last one. */
bool esp_jsontext_next(const char *text, size_t n_bytes, size_t *at, const char **ret_item, size_t *ret_n_bytes);

/* Appends a parsed value, compactly; a real number with the fewest digits that give it back. */
void esp_jsontext_write(struct esp_buf *buf, const json_t *value);

/* Appends text as a JSON string with quotes; bytes that are not UTF-8 become U+FFFD. */
void esp_jsontext_quote(struct esp_buf *buf, const char *text, size_t n_bytes);
void esp_jsontext_quote_str(struct esp_buf *buf, const char *text);

#endif
