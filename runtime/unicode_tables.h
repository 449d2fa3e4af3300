/* The tables behind unicode.c. Written by tests/golden/make_unicode_tables.py; only unicode.c reads them.
 * All are sorted by code point. Thread: constants.
 */
#ifndef ESP_RUNTIME_UNICODE_TABLES_H
#define ESP_RUNTIME_UNICODE_TABLES_H

#include <stdint.h>

struct esp_unicode_pair {
    uint32_t cp, first, second; /* second 0: one character stands for another */
};
struct esp_unicode_class {
    uint32_t first, last, value;
};
struct esp_unicode_lower {
    uint32_t first, last, step;
    int32_t delta;
};
struct esp_unicode_range {
    uint32_t first, last;
};

extern const struct esp_unicode_pair esp_unicode_decompose[];
extern const unsigned esp_unicode_decompose_n;
extern const unsigned short esp_unicode_compose[];
extern const unsigned esp_unicode_compose_n;
extern const struct esp_unicode_class esp_unicode_combining[];
extern const unsigned esp_unicode_combining_n;
extern const struct esp_unicode_lower esp_unicode_lowers[];
extern const unsigned esp_unicode_lowers_n;
extern const struct esp_unicode_range esp_unicode_marks[];
extern const unsigned esp_unicode_marks_n;
extern const struct esp_unicode_range esp_unicode_puncts[];
extern const unsigned esp_unicode_puncts_n;
extern const struct esp_unicode_range esp_unicode_controls[];
extern const unsigned esp_unicode_controls_n;

#endif
