/* Between the files of the plan: the answer (plan.c) and its calls (plan_calls.c). */
#ifndef ESP_FRONTEND_PLAN_INTERNAL_H
#define ESP_FRONTEND_PLAN_INTERNAL_H

#include "frontend/plan.h"

/* Regions as JSON text. lit: one item a run of text and a control token, with commas but for the first. */
void esp_region_text(struct esp_buf *buf, const char *text, size_t n_bytes);
void esp_region_lit(struct esp_buf *buf, const struct esp_lit *lit, bool *first);
void esp_region_free(struct esp_buf *buf, const struct esp_lit *until, uint32_t n_until, int64_t n_tokens);
void esp_region_schema(struct esp_buf *buf, const char *schema, size_t n_bytes, const char *options);

/* Calls to the allowed tools, as one region. at_once: nothing comes before them. forced: what the prompt has
 * already, or NULL. */
esp_status esp_plan_calls(const struct esp_form *form, const struct esp_plan *plan, struct esp_buf *buf, bool at_once,
                          const struct esp_lit *forced, struct esp_params *params, struct esp_err *err);
/* Text, then calls or none, as one region. */
esp_status esp_plan_text_and_calls(const struct esp_form *form, const struct esp_plan *plan, struct esp_buf *buf,
                                   struct esp_params *params, struct esp_err *err);
/* Sets plan->forced when the first call is certain. */
esp_status esp_plan_force(const struct esp_form *form, struct esp_plan *plan, struct esp_arena *arena,
                          struct esp_err *err);
/* plan_args.c: tagged arguments, as items of a sequence. */
esp_status esp_plan_tagged(const struct esp_form *form, const struct esp_tool *tool, struct esp_buf *buf,
                           struct esp_params *params, struct esp_err *err);

#endif
