/* The characters of a regular expression: escapes and classes. Inside of regex.c, kept apart for size.
 *
 * A reader walks the pattern (valid UTF-8); each function leaves it after what it took. Sets come back
 * normalised. Errors carry the offset. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_REGEX_CLASS_H
#define ESP_GRAMMAR_REGEX_CLASS_H

#include "grammar/cpset.h"
#include "runtime/base/status.h"

struct esp_regex_reader {
    const char *text;
    size_t n, at;
    struct esp_arena *arena;
    struct esp_err *err;
    unsigned flags; /* ESP_REGEX_… of regex.h */
};

esp_status esp_regex_fail(struct esp_regex_reader *in, esp_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
char esp_regex_peek(const struct esp_regex_reader *in); /* '\0' at the end */
bool esp_regex_take(struct esp_regex_reader *in, char c);
esp_status esp_regex_char(struct esp_regex_reader *in, uint32_t *ret_cp);
esp_status esp_regex_escape(struct esp_regex_reader *in, struct esp_cpset *set); /* after the backslash */
esp_status esp_regex_class(struct esp_regex_reader *in, struct esp_cpset *set);  /* after the [ */
void esp_regex_dot(const struct esp_regex_reader *in, struct esp_cpset *set);
/* With ESP_REGEX_FOLD: adds the other case of ASCII letters; other characters are refused. The set is normalised. */
esp_status esp_regex_fold(struct esp_regex_reader *in, struct esp_cpset *set);

#endif
