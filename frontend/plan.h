/* What a chat request asks of the answer: its tools, its constraint as one grammar of regions, how it will be read.
 *
 *   [reasoning] ( text [calls] | calls | response_format )      which of these, tool_choice decides
 *
 * A call that is certain (one function, required, nothing before it) is begun by the prompt: `forced` is what the
 * prompt ends with and the model only goes on from. Everything lies in the arena of the request.
 */
#ifndef ESP_FRONTEND_PLAN_H
#define ESP_FRONTEND_PLAN_H

#include "frontend/chat.h"
#include "frontend/tools.h"
#include "frontend/turn.h"

struct esp_plan {
    struct esp_tools tools;
    struct esp_turn_setup setup;
    struct esp_lit forced;          /* coded, see form.h */
    struct esp_constraint response; /* the request's own constraint, in the grammar of regions */
};

/* Reads tools and reasoning options; params->constraint becomes the whole answer's. prompt_text: what the prompt
 * ends with, without what is forced. */
esp_status esp_plan_make(const struct esp_chat *chat, const struct esp_request_source *source,
                         const struct esp_prompt *prompt, struct esp_arena *arena, struct esp_params *params,
                         struct esp_plan *ret_plan, struct esp_err *err);
/* The grammar was refused: finds the tool or field that is to blame, by compiling each alone. */
void esp_plan_blame(const esp_vocab *vocab, const struct esp_plan *plan, struct esp_err *err, char *ret_param,
                    size_t param_room);

#endif
