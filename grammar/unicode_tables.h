/* The general category of every character, as a table. Inside of unicode.c, kept apart for size.
 *
 * Categories are numbered as in the list of unicode.c. Thread: constant.
 */
#ifndef ESP_GRAMMAR_UNICODE_TABLES_H
#define ESP_GRAMMAR_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

struct esp_unicode_range {
    uint32_t first, last;
    uint8_t category;
};
extern const struct esp_unicode_range esp_unicode_ranges[];
extern const size_t esp_unicode_n_ranges;

#endif
