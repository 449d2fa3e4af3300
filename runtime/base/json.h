/* Strict getters over jansson: each names the field in the error, and says what it found.
 *
 * `place` in the error is the field's path: the object's own path plus the name. Absent and null
 * both give the default. A bool is no number, a numeric string is no number, 1.0 is an integer.
 * Thread: any, on values the caller owns.
 */
#ifndef ESP_BASE_JSON_H
#define ESP_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/status.h"

/* Parses one JSON text with a depth limit (64), duplicate keys refused, and strict UTF-8. The error
 * holds line and column. Returns owned, or NULL. */
json_t *esp_json_parse(const char *text, size_t n_bytes, struct esp_err *err);

/* Ranges are inclusive. Out-parameters are untouched on failure. */
esp_status esp_json_number(const json_t *obj, const char *name, double min, double max, double fallback,
                           double *ret, struct esp_err *err);
esp_status esp_json_int(const json_t *obj, const char *name, int64_t min, int64_t max, int64_t fallback,
                        int64_t *ret, struct esp_err *err);
esp_status esp_json_bool(const json_t *obj, const char *name, bool fallback, bool *ret, struct esp_err *err);
/* Borrowed from obj; NULL when absent. */
esp_status esp_json_string(const json_t *obj, const char *name, const char **ret, struct esp_err *err);
const char *esp_json_type_name(const json_t *value); /* "string", "integer", "missing", … */

#endif
