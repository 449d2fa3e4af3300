/* References of RFC 3986 made absolute against a base, as JSON Schema needs them for $id and $ref.
 *
 *   base http://a/b/c    ref ../d#e    ──►    http://a/d      (the fragment is left to the caller)
 *
 * Text in, text out; nothing is fetched and nothing decoded. An empty base is a base without anything: the
 * reference then stays as it is. Thread: any.
 */
#ifndef ESP_GRAMMAR_URI_H
#define ESP_GRAMMAR_URI_H

#include <stddef.h>

#include "runtime/base/arena.h"

/* The absolute form of ref (section 5.2), without a fragment, as a string in the arena; NULL when out of memory. */
char *esp_uri_resolve(struct esp_arena *arena, const char *base, const char *ref, size_t n_ref);
/* Length of a URI up to its fragment. */
size_t esp_uri_before_fragment(const char *text, size_t n);

#endif
