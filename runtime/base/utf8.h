/* UTF-8: strict decoding (no surrogates, no overlong forms, at most U+10FFFF). Thread: any. */
#ifndef ESP_BASE_UTF8_H
#define ESP_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes one code point. Returns the bytes used (1 to 4), 0 when the bytes so far are a correct
 * beginning that needs more, or -1 when they can never become valid. n_bytes > 0. */
int esp_utf8_decode(const char *text, size_t n_bytes, uint32_t *ret_cp);
/* Writes 1 to 4 bytes and returns their number; 0 for a surrogate or cp > U+10FFFF. */
int esp_utf8_encode(uint32_t cp, char out[4]);
/* Offset of the first byte that is not valid UTF-8, or n_bytes when all is valid. */
size_t esp_utf8_valid(const char *text, size_t n_bytes);
/* The longest prefix that ends on a character border: what may be streamed now. Bytes that can
 * never become valid count as complete, so that nothing is held back for ever. */
size_t esp_utf8_complete(const char *text, size_t n_bytes);

#endif
