/* Chat templates: a renderer of the Jinja that model files carry, with Python's semantics.
 *
 * A template is compiled once at load; a construct that is not known is an error with line and name.
 * Rendering has limits on depth, steps and output. There are no host objects: a template sees the JSON
 * values of the context and nothing else. Output carries segments, which tell text written by the
 * template from text that came from the context's strings, so that user text never becomes a control token.
 * Thread: compiled templates are read-only and shared; a rendering has one owner.
 */
#ifndef ESP_FRONTEND_TEMPLATE_H
#define ESP_FRONTEND_TEMPLATE_H

#include <jansson.h>

#include "runtime/base/buf.h"
#include "runtime/espalier.h"

#define ESP_TEMPLATE_BYTES_MAX (1024u * 1024u)
#define ESP_RENDER_BYTES_MAX (16u * 1024u * 1024u)
#define ESP_RENDER_STEPS_MAX 10000000u
#define ESP_RENDER_DEPTH_MAX 200u

struct esp_template;
esp_status esp_template_compile(const char *text, size_t n_bytes, struct esp_template **ret_template,
                                struct esp_err *err); /* err->offset = line */
void esp_template_destroy(struct esp_template *tmpl); /* NULL is fine */

struct esp_rendered {
    struct esp_buf text;
    struct esp_buf spans; /* of struct esp_span; .text is set by esp_rendered_spans; control = from the template */
};
void esp_rendered_init(struct esp_rendered *rendered);
void esp_rendered_finish(struct esp_rendered *rendered);
/* The spans with their text pointers into `text`. */
const struct esp_span *esp_rendered_spans(struct esp_rendered *rendered, size_t *ret_n);

/* context: an object with messages, tools, add_generation_prompt, bos_token, eos_token and whatever else the
 * template reads. raise_exception gives ESP_EINVAL with the template's own message. now_s: what
 * strftime_now sees (seconds since 1970, local time). */
esp_status esp_template_render(const struct esp_template *tmpl, const json_t *context, int64_t now_s,
                               struct esp_rendered *rendered, struct esp_err *err);

#endif
