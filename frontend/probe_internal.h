/* Between the files of the probe: what is rendered (probe.c), calls (probe_calls.c), tagged arguments (probe_args.c).
 *
 * A slice is a piece of a rendering in which control tokens are coded (form.h). */
#ifndef ESP_FRONTEND_PROBE_INTERNAL_H
#define ESP_FRONTEND_PROBE_INTERNAL_H

#include "frontend/chat_internal.h"

#define ESP_PROBE_FIRST "zqfirst"
#define ESP_PROBE_SECOND "zqsecond"
#define ESP_PROBE_TEXT "zqtext"

struct esp_slice {
    const char *text;
    size_t n;
};

/* What the template prints of the first call alone, and of two; of one without arguments, and with them turned round.
 */
struct esp_probe_calls {
    struct esp_slice one, two, none, turned; /* two.n == 0: the template prints one call a turn only */
};

struct esp_slice esp_slice_between(struct esp_slice whole, size_t from, size_t to);
/* Position of text at or after from; whole.n when it is not there. */
size_t esp_slice_find(struct esp_slice whole, const char *text, size_t from);
/* Where a tag begins that is open at the end of the first n bytes; n when none is. */
size_t esp_slice_tag(struct esp_slice slice, size_t n);
/* Lengths of what two slices begin or end with alike, without a cut through a character, a code or a tag. */
size_t esp_slice_prefix(struct esp_slice one, struct esp_slice other);
size_t esp_slice_suffix(struct esp_slice one, struct esp_slice other);
bool esp_probe_keep(struct esp_form *form, struct esp_slice slice, struct esp_lit *ret_lit);
/* Fills the form's calls. False: this is no form that is known. */
bool esp_probe_form(struct esp_form *form, const struct esp_probe_calls *calls);
/* probe_hand.c: families whose form rendering cannot tell. False: it is none of them, and nothing was changed. */
bool esp_probe_hand(struct esp_chat *chat, const char *source);
/* Calls as Python writes them, [f(a="b")]: region is the template's rendering of one. */
bool esp_probe_python(struct esp_form *form, struct esp_slice region);
/* Tagged arguments: args is what follows the name up to the first slot of the next call. */
bool esp_probe_tagged(struct esp_form *form, const struct esp_probe_calls *calls, struct esp_slice behind,
                      struct esp_slice *ret_tail);

#endif
