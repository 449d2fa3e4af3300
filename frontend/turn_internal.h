/* Between the files of the turn: parts (turn.c), the calls (turn_call.c), tagged arguments (turn_args.c). */
#ifndef ESP_FRONTEND_TURN_INTERNAL_H
#define ESP_FRONTEND_TURN_INTERNAL_H

#include "frontend/turn.h"

enum esp_fit { ESP_FIT_NO, ESP_FIT_MORE, ESP_FIT_YES }; /* MORE: so far; what follows decides */

/* A step looks at held and takes from it. True: something changed, step again. final: nothing follows. */
bool esp_turn_step_call(struct esp_turn *turn, bool final);
bool esp_turn_step_args(struct esp_turn *turn, bool final);

/* Does held, from `from` on, begin with the literal? White space is free where the literal has some. */
enum esp_fit esp_turn_fits(const struct esp_turn *turn, size_t from, const struct esp_lit *lit, bool final,
                           size_t *ret_n);
/* The same for two literals in a row. */
enum esp_fit esp_turn_fits_both(const struct esp_turn *turn, const struct esp_lit *one, const struct esp_lit *other,
                                bool final, size_t *ret_n);
/* Where in held a literal begins, exactly as it is; held.n when nowhere. *begun: lowered to where a tail begins it. */
size_t esp_turn_seek(const struct esp_turn *turn, const struct esp_lit *lit, size_t *begun);
/* Takes n bytes from held; while a call's part has not begun they are kept in raw. */
void esp_turn_take(struct esp_turn *turn, size_t n_bytes);
struct esp_part *esp_turn_begin(struct esp_turn *turn, enum esp_part_kind kind);
void esp_turn_close_part(struct esp_turn *turn);
/* Arguments: to the part, or kept until it begins. */
void esp_turn_args(struct esp_turn *turn, const char *text, size_t n_bytes);
void esp_turn_begin_call(struct esp_turn *turn);
/* The pieces are all there: the part ends. */
void esp_turn_end_call(struct esp_turn *turn);
/* The call is none after all: what came of it is text. */
void esp_turn_break(struct esp_turn *turn);
/* The next n bytes of held belong to one JSON value; stops behind it. Returns how many were taken. */
size_t esp_json_scan(struct esp_json_scan *scan, const char *text, size_t n_bytes);

#endif
