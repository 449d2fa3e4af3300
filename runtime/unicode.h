/* What tokenizers need of Unicode: NFC and NFD, lower case, and four classes of characters.
 *
 * Data of Unicode 14 (Python 3.11's), in unicode_tables.c. Input is valid UTF-8. A run of combining marks is
 * put in order by counting, so that a text of a million marks costs no more than any other. Thread: any.
 */
#ifndef ESP_RUNTIME_UNICODE_H
#define ESP_RUNTIME_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/buf.h"
#include "runtime/base/status.h"

/* Appends the text in normal form D, or C when compose is set. ESP_EINVAL: not UTF-8. */
esp_status esp_unicode_normalize(const char *text, size_t n_bytes, bool compose, struct esp_buf *out);
uint32_t esp_unicode_lower(uint32_t cp);      /* simple lower case, one character for one */
bool esp_unicode_is_mark(uint32_t cp);        /* Mn */
bool esp_unicode_is_punctuation(uint32_t cp); /* P* */
bool esp_unicode_is_control(uint32_t cp);     /* Cc, Cf, Co */
bool esp_unicode_is_space(uint32_t cp);       /* White_Space */

#endif
