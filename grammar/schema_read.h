/* How a keyword is read: one function each, found in the table of schema_read.c.
 *
 * A function checks the keyword's value and notes in the leaf what it asserts. Those of numbers, strings and
 * counts are in schema_assert.c. Inside of the schema compiler. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_SCHEMA_READ_H
#define ESP_GRAMMAR_SCHEMA_READ_H

#include "grammar/schema.h"

typedef esp_status esp_schema_read_fn(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v);

/* Fails with "must be WHAT" unless ok. */
esp_status esp_schema_want(struct esp_schema *s, const struct esp_jv *v, bool ok, const char *what);
bool esp_schema_is_bool(const struct esp_jv *v);
/* Is the member a keyword of the draft? */
bool esp_schema_known(const struct esp_schema *s, const struct esp_jv *member);

/* schema_ref.c: the value at a JSON pointer; NULL when there is none. */
const struct esp_jv *esp_schema_at(struct esp_schema *s, const char *pointer);
/* schema_lenient.c: leaves out what earlier compiles were refused for. */
esp_status esp_schema_weaken(struct esp_schema *s);

/* schema_ids.c: where schemas are below a keyword: the value or its members, or members by name. */
enum esp_schema_below { ESP_BELOW_NOTHING, ESP_BELOW_SCHEMAS, ESP_BELOW_MAP };
enum esp_schema_below esp_schema_below(const struct esp_schema *s, const struct esp_jv *member);
/* schema_explain.c: a JSON array of what each keyword became. */
void esp_schema_explain(struct esp_schema *s, struct esp_buf *buf);

/* schema_assert.c */
esp_schema_read_fn esp_schema_read_minimum;
esp_schema_read_fn esp_schema_read_maximum;
esp_schema_read_fn esp_schema_read_exclusive_minimum;
esp_schema_read_fn esp_schema_read_exclusive_maximum;
esp_schema_read_fn esp_schema_read_multiple;
esp_schema_read_fn esp_schema_read_min_items;
esp_schema_read_fn esp_schema_read_max_items;
esp_schema_read_fn esp_schema_read_min_contains;
esp_schema_read_fn esp_schema_read_max_contains;
esp_schema_read_fn esp_schema_read_min_members;
esp_schema_read_fn esp_schema_read_max_members;
esp_schema_read_fn esp_schema_read_min_length;
esp_schema_read_fn esp_schema_read_max_length;
esp_schema_read_fn esp_schema_read_pattern;
esp_schema_read_fn esp_schema_read_format;

#endif
