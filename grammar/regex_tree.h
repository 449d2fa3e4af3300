/* The tree of a regular expression, between its reader (regex.c) and what makes expressions of it: regex.c for
 * patterns with anchors at their ends only, regex_look.c for the rest. Inside of regexes. Thread: the owner's.
 */
#ifndef ESP_GRAMMAR_REGEX_TREE_H
#define ESP_GRAMMAR_REGEX_TREE_H

#include "grammar/regex_class.h"

enum esp_regex_kind {
    ESP_RE_SET,
    ESP_RE_CAT,
    ESP_RE_ALT,
    ESP_RE_REP,
    ESP_RE_BEGIN,
    ESP_RE_END,
    ESP_RE_LOOK, /* (?= (?! (?<= (?<! */
    ESP_RE_BORDER /* \b \B */
};
struct esp_regex_node {
    enum esp_regex_kind kind;
    bool anchored; /* holds an anchor, a look-around or \b */
    bool looks;    /* holds a look-around or \b */
    bool negative, behind;
    uint32_t lo, hi;
    struct esp_cpset set;
    struct esp_regex_node *child, *last, *next; /* children are a list */
};

struct esp_regex_build {
    struct esp_exprs *x;
    struct esp_regex_reader *in;
    enum esp_spelling spelling;
    uint32_t around; /* Σ* when searching, else EPS */
    esp_status status;
};

/* regex.c: without look-around; left and right: the node stands at that end of the pattern. */
uint32_t esp_regex_build(struct esp_regex_build *b, const struct esp_regex_node *node, bool left, bool right);
uint32_t esp_regex_unsupported(struct esp_regex_build *b, const char *what);
/* regex_look.c: a whole pattern. */
uint32_t esp_regex_build_looks(struct esp_regex_build *b, const struct esp_regex_node *root);

#endif
