/* The rows of the option table, between the parser (options.c), the table itself (options_table.c) and the
 * printed forms of it (options_help.c). Nothing else includes this.
 *
 * A row is one option: its name, how its value is read, its range and where it goes in struct esp_options.
 * Defaults are texts read by the same code as a user's, so the help can never disagree with them.
 */
#ifndef ESP_FRONTEND_OPTIONS_TABLE_H
#define ESP_FRONTEND_OPTIONS_TABLE_H

#include "frontend/options.h"

enum esp_option_kind {
    ESP_OPTION_FLAG, /* bool */
    ESP_OPTION_TEXT, /* const char * */
    ESP_OPTION_U32,
    ESP_OPTION_U64,
    ESP_OPTION_SIZE, /* uint64_t bytes, with K, M or G as powers of 1,024 */
    ESP_OPTION_REAL, /* double */
    ESP_OPTION_NAME  /* const char *, one of `names` */
};

enum esp_verb_bit {
    ESP_VERB_SERVE = 1 << 0,
    ESP_VERB_RUN = 1 << 1,
    ESP_VERB_BENCH = 1 << 2,
    ESP_VERB_GRAMMAR = 1 << 3,
    ESP_VERB_TOKENIZE = 1 << 4,
    ESP_VERB_RENDER = 1 << 5,
    ESP_VERB_INSPECT = 1 << 6,
    ESP_VERB_LOGITS = 1 << 7,
    ESP_VERB_PERPLEXITY = 1 << 8,
    ESP_VERB_TREE = 1 << 9,
    ESP_VERB_ALL = (1 << 10) - 1
};

struct esp_option {
    const char *name; /* without the dashes */
    char letter;      /* of the short form, or 0 */
    enum esp_option_kind kind;
    uint32_t verbs;     /* bits of the verbs that take it */
    size_t offset;      /* in struct esp_options */
    const char *preset; /* the default as text, or NULL for none */
    double min, max;    /* numbers; a row whose preset is "auto" also takes the word "auto" */
    const char *names;  /* ESP_OPTION_NAME: "a|b|c" */
    const char *later;  /* ESP_OPTION_NAME: known names that this version does not support */
    const char *value;  /* what the help calls the value */
    const char *help;
};

struct esp_verb_row {
    const char *name;
    uint32_t bit;
    const char *usage, *help;
};

extern const struct esp_option esp_option_rows[];
extern const size_t esp_option_n_rows;
extern const struct esp_verb_row esp_verb_rows[];
extern const size_t esp_verb_n_rows;
/* Names that belong to later versions, NULL-terminated. */
extern const char *const esp_option_later_names[];
extern const char *const esp_verb_later_names[];

/* "kv-bytes" → "ESPALIER_KV_BYTES"; out has room for any name of the table. */
#define ESP_OPTION_ENV_BYTES 64
void esp_option_env_name(const char *name, char out[ESP_OPTION_ENV_BYTES]);

#endif
