/* Regular expressions of JSON Schema (ECMA-262) as expressions.
 *
 * Classes, \d \w \s, \p{…} of general categories, groups, alternatives, counted repeats, anchors at the ends.
 * Look-ahead outside of repeats, look-behind at the ends, \b where the character before it is known, anchors anywhere
 * outside of repeats. Back-references and the rest are refused with ESP_EUNSUPPORTED; what ECMA-262
 * does not allow is ESP_EINVAL; both with the offset of the place. Case matters; `.` is any character but
 * \n \r U+2028 U+2029. Nesting is limited to ESP_REGEX_DEPTH_MAX. Thread: the owner's of x.
 */
#ifndef ESP_GRAMMAR_REGEX_H
#define ESP_GRAMMAR_REGEX_H

#include "grammar/cpset.h"

#define ESP_REGEX_DEPTH_MAX 64
#define ESP_REGEX_BYTES_MAX (64 * 1024)

enum {
    ESP_REGEX_FOLD = 1,    /* the case of letters a to z does not matter; other characters are refused */
    ESP_REGEX_DOT_ALL = 2, /* . is any character */
    ESP_REGEX_DOT_LINE = 4 /* . is any character but \n */
};
/* As esp_regex_compile in RAW spelling and of all the text, with flags. */
esp_status esp_regex_compile_flags(struct esp_exprs *x, unsigned flags, const char *pattern, size_t n_bytes,
                                   uint32_t *ret_id, struct esp_err *err);

/* search: the pattern may match anywhere in the text (JSON Schema); else it must match all of it. */
esp_status esp_regex_compile(struct esp_exprs *x, enum esp_spelling spelling, bool search, const char *pattern,
                             size_t n_bytes, uint32_t *ret_id, struct esp_err *err);

/* Adds the code points of a Unicode property, as written inside \p{…}. False when it is not known. */
bool esp_unicode_property(const char *name, size_t n_bytes, struct esp_cpset *set);

#endif
