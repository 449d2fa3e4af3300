/* Regions: a grammar put together from schemas, texts, control tokens and free text. The form is in grammar.h.
 *
 * A part becomes one expression; schemas bring nodes of their own, numbered on from where the last one stopped.
 * Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_REGIONS_H
#define ESP_GRAMMAR_REGIONS_H

#include "grammar/jtext.h"
#include "grammar/matcher.h"

/* Fills starts (allocated) with the whole as node 0. */
esp_status esp_regions_compile(struct esp_grammar *g, const struct esp_grammar_spec *spec, struct esp_err *err);

/* One of the strings of a JSON array; what is wrong with it is said at the pointer of the member. */
esp_status esp_choice_build(struct esp_exprs *x, struct esp_arena *arena, const struct esp_jv *list, uint32_t *ret_id,
                            struct esp_err *err);
/* A schema as a part of g: its nodes are added to starts. *ret_id is a call of its root. */
esp_status esp_schema_part(struct esp_grammar *g, const struct esp_grammar_options *options, const char *text,
                           size_t n_bytes, uint32_t *ret_id, struct esp_err *err);

#endif
