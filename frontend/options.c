/* The parser of options: defaults, config file, environment, flags, in this order, through one setter.
 *
 * Every value, wherever it comes from, is a text that `set_value` reads by the kind of its row and checks
 * against the row's range; a failure names the place (--port, ESPALIER_PORT, config key "port"), the value and
 * the range. The environment is read here and nowhere else in the program. Prints to stderr and stdout: it is
 * the front of a program, no library. Thread: main, before any other exists.
 */
#include "frontend/options.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/options_table.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"

#define CONFIG_BYTES_MAX (1024u * 1024u)

struct parser {
    struct esp_options *options;
    uint32_t verb_bit;
    bool only_config; /* first pass over the arguments: the config file's name */
};

static bool __attribute__((format(printf, 1, 2))) usage_error(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("espalier: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return false;
}

void esp_option_env_name(const char *name, char out[ESP_OPTION_ENV_BYTES])
{
    size_t n = (size_t)snprintf(out, ESP_OPTION_ENV_BYTES, "ESPALIER_%s", name);
    for (size_t idx = 0; idx < n && idx < ESP_OPTION_ENV_BYTES; idx++) {
        char c = out[idx];
        out[idx] = c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
    }
}

/* ---- Suggestions ------------------------------------------------------------------------------- */

#define DISTANCE_NAME_MAX 31

/* Levenshtein distance of two short names; names too long are infinitely far. */
static unsigned distance(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > DISTANCE_NAME_MAX || n_b > DISTANCE_NAME_MAX) {
        return 1000;
    }
    unsigned row[DISTANCE_NAME_MAX + 1];
    for (size_t j = 0; j <= n_b; j++) {
        row[j] = (unsigned)j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n_b; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = row[j] + 1 < best ? row[j] + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
        }
    }
    return row[n_b];
}

static void keep_closer(const char *given, const char *name, unsigned *best, const char **ret_name)
{
    unsigned d = distance(given, name);
    if (d < *best) {
        *best = d;
        *ret_name = name;
    }
}

static const char *closest_option(const char *given, uint32_t verb_bit)
{
    const char *name = NULL;
    unsigned best = 4;
    for (size_t idx = 0; idx < esp_option_n_rows; idx++) {
        if ((esp_option_rows[idx].verbs & verb_bit) != 0) {
            keep_closer(given, esp_option_rows[idx].name, &best, &name);
        }
    }
    return name;
}

static bool is_listed(const char *const *names, const char *name)
{
    for (; *names != NULL; names++) {
        if (strcmp(*names, name) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- Values ------------------------------------------------------------------------------------ */

static bool has_name(const char *names, const char *text, size_t n_bytes)
{
    for (const char *at = names; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, "|");
        if (n == n_bytes && memcmp(at, text, n) == 0) {
            return true;
        }
        at += n + (at[n] == '|');
    }
    return false;
}

static bool set_name(const struct esp_option *row, const char *place, const char *text, void *field)
{
    if (has_name(row->names, text, strlen(text))) {
        *(const char **)field = text;
        return true;
    }
    if (has_name(row->later, text, strcspn(text, ":"))) {
        return usage_error("%s: \"%s\" is not supported in this version (one of %s)", place, text, row->names);
    }
    return usage_error("%s: \"%s\" is not one of %s", place, text, row->names);
}

static bool set_flag(const char *place, const char *text, bool *field)
{
    bool on = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    if (!on && strcmp(text, "0") != 0 && strcmp(text, "false") != 0) {
        return usage_error("%s: \"%s\" is neither true nor false", place, text);
    }
    *field = on;
    return true;
}

static bool range_error(const struct esp_option *row, const char *place, const char *text)
{
    const char *also = row->preset != NULL && strcmp(row->preset, "auto") == 0 ? ", or auto" : "";
    return usage_error("%s: \"%s\" is not %s from %.15g to %.15g%s", place, text,
                       row->kind == ESP_OPTION_REAL   ? "a number"
                       : row->kind == ESP_OPTION_SIZE ? "a size in bytes (K, M and G are powers of 1,024)"
                                                      : "an integer",
                       row->min, row->max, also);
}

static bool set_real(const struct esp_option *row, const char *place, const char *text, double *field)
{
    char *end;
    double value = strtod(text, &end);
    bool plain = text[0] != '\0' && strspn(text, "0123456789.eE+-") == strlen(text);
    if (!plain || *end != '\0' || !(value >= row->min && value <= row->max)) {
        return range_error(row, place, text);
    }
    *field = value;
    return true;
}

static bool read_integer(const struct esp_option *row, const char *text, uint64_t *ret_value)
{
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    uint64_t scale = 1;
    if (row->kind == ESP_OPTION_SIZE && *end != '\0') {
        const char *letters = "KMG", *letter = strchr(letters, *end);
        if (letter == NULL) {
            return false;
        }
        scale = (uint64_t)1 << (10 * (letter - letters + 1));
        end++;
    }
    uint64_t scaled;
    if (errno != 0 || *end != '\0' || __builtin_mul_overflow((uint64_t)value, scale, &scaled)) {
        return false;
    }
    *ret_value = scaled;
    return (double)scaled >= row->min && (double)scaled <= row->max;
}

static bool set_integer(const struct esp_option *row, const char *place, const char *text, void *field)
{
    uint64_t value = ESP_AUTO;
    bool is_auto = row->preset != NULL && strcmp(row->preset, "auto") == 0 && strcmp(text, "auto") == 0;
    if (!is_auto && !read_integer(row, text, &value)) {
        return range_error(row, place, text);
    }
    if (row->kind == ESP_OPTION_U32) {
        *(uint32_t *)field = (uint32_t)value;
    } else {
        *(uint64_t *)field = value;
    }
    return true;
}

static bool set_value(struct esp_options *options, const struct esp_option *row, const char *place, const char *text)
{
    void *field = (char *)options + row->offset;
    switch (row->kind) {
    case ESP_OPTION_FLAG: return set_flag(place, text, field);
    case ESP_OPTION_TEXT: *(const char **)field = text; return true;
    case ESP_OPTION_NAME: return set_name(row, place, text, field);
    case ESP_OPTION_REAL: return set_real(row, place, text, field);
    case ESP_OPTION_U32:
    case ESP_OPTION_U64:
    case ESP_OPTION_SIZE: break;
    }
    return set_integer(row, place, text, field);
}

static const struct esp_option *find_option(const char *name, char letter, uint32_t verbs)
{
    for (size_t idx = 0; idx < esp_option_n_rows; idx++) {
        const struct esp_option *row = &esp_option_rows[idx];
        bool same = name != NULL ? strcmp(row->name, name) == 0 : row->letter == letter;
        if (same && (row->verbs & verbs) != 0) {
            return row;
        }
    }
    return NULL;
}

/* ---- Config file and environment --------------------------------------------------------------- */

/* One value of the config file as the text that the same option would have on the command line. Numbers are
 * replaced by strings in the parsed file, which so becomes the owner of the text. */
static const char *config_text(json_t *config, const char *key, json_t *value)
{
    if (json_is_string(value)) {
        return json_string_value(value);
    }
    if (json_is_boolean(value)) {
        return json_is_true(value) ? "true" : "false";
    }
    char text[64];
    size_t n = json_is_number(value) ? json_dumpb(value, text, sizeof text, JSON_ENCODE_ANY) : 0;
    if (n == 0 || n > sizeof text || json_object_set_new(config, key, json_stringn(text, n)) != 0) {
        return NULL;
    }
    return json_string_value(json_object_get(config, key));
}

static bool take_config_key(struct parser *parser, json_t *config, const char *key)
{
    char place[128];
    snprintf(place, sizeof place, "config key \"%.64s\"", key);
    const struct esp_option *row = find_option(key, 0, parser->verb_bit);
    bool mine = row != NULL;
    row = mine ? row : find_option(key, 0, ESP_VERB_ALL);
    if (row == NULL || strcmp(key, "config") == 0) {
        if (is_listed(esp_option_later_names, key)) {
            return usage_error("%s is not supported in this version", place);
        }
        const char *close = closest_option(key, ESP_VERB_ALL);
        return usage_error("%s is unknown%s%s%s", place, close != NULL ? "; did you mean \"" : "",
                           close != NULL ? close : "", close != NULL ? "\"?" : "");
    }
    json_t *value = json_object_get(config, key);
    bool fits = row->kind == ESP_OPTION_FLAG ? json_is_boolean(value) : !json_is_boolean(value);
    const char *text = fits ? config_text(config, key, value) : NULL;
    if (text == NULL) {
        return usage_error("%s: a value of type %s does not fit", place, esp_json_type_name(value));
    }
    return !mine || set_value(parser->options, row, place, text); /* other verbs' keys may stand there */
}

static bool take_config(struct parser *parser)
{
    struct esp_options *options = parser->options;
    if (options->config == NULL) {
        return true;
    }
    struct esp_err err;
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, CONFIG_BYTES_MAX);
    if (esp_file_read(options->config, &text, &err) != ESP_OK) {
        esp_buf_finish(&text);
        return usage_error("--config: %s", err.message);
    }
    json_t *config = esp_json_parse(text.data == NULL ? "" : text.data, text.n, &err);
    esp_buf_finish(&text);
    options->config_json = config;
    if (config == NULL) {
        return usage_error("%s: %s", options->config, err.message);
    }
    if (!json_is_object(config)) {
        return usage_error("%s: a JSON object is needed", options->config);
    }
    /* The values change while the keys are walked (config_text), which jansson allows for existing keys. */
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value) {
        if (!take_config_key(parser, config, key)) {
            return false;
        }
    }
    return true;
}

static bool take_environment(struct parser *parser)
{
    for (size_t idx = 0; idx < esp_option_n_rows; idx++) {
        const struct esp_option *row = &esp_option_rows[idx];
        char name[ESP_OPTION_ENV_BYTES];
        esp_option_env_name(row->name, name);
        const char *text = (row->verbs & parser->verb_bit) != 0 ? getenv(name) : NULL;
        bool is_config = row->offset == offsetof(struct esp_options, config);
        if (text != NULL && is_config == parser->only_config && !set_value(parser->options, row, name, text)) {
            return false;
        }
    }
    return true;
}

/* ---- Arguments --------------------------------------------------------------------------------- */

static bool unknown_option(const struct parser *parser, const char *given, const char *name)
{
    if (is_listed(esp_option_later_names, name)) {
        return usage_error("--%s is not supported in this version", name);
    }
    if (find_option(name, 0, ESP_VERB_ALL) != NULL) {
        return usage_error("--%s is no option of %s", name, parser->options->verb);
    }
    const char *close = closest_option(name, parser->verb_bit);
    if (close != NULL) {
        return usage_error("unknown option %s; did you mean --%s?", given, close);
    }
    return usage_error("unknown option %s; see espalier %s --help", given, parser->options->verb);
}

/* Reads the option at argv[*idx] and its value, and moves *idx to the last argument used. */
static bool take_option(struct parser *parser, int argc, char **argv, int *idx)
{
    char *arg = argv[*idx];
    bool is_long = arg[1] == '-';
    char name[64];
    const char *value = NULL;
    const struct esp_option *row;
    if (is_long) {
        size_t n = strcspn(arg + 2, "=");
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), arg + 2);
        value = arg[2 + n] == '=' ? arg + 3 + n : NULL;
        row = find_option(name, 0, parser->verb_bit);
    } else {
        snprintf(name, sizeof name, "%c", arg[1]);
        row = arg[1] != '\0' ? find_option(NULL, arg[1], parser->verb_bit) : NULL;
        value = arg[1] != '\0' && arg[2] != '\0' ? arg + 2 : NULL;
    }
    if (row == NULL) {
        return unknown_option(parser, arg, name);
    }
    if (row->kind == ESP_OPTION_FLAG && value == NULL) {
        value = "true";
    } else if (value == NULL) {
        if (*idx + 1 >= argc) {
            return usage_error("%s needs a value (%s)", arg, row->value);
        }
        value = argv[++*idx];
    }
    char place[80];
    snprintf(place, sizeof place, "--%s", row->name);
    bool is_config = row->offset == offsetof(struct esp_options, config);
    return is_config != parser->only_config || set_value(parser->options, row, place, value);
}

static bool take_arguments(struct parser *parser, int argc, char **argv, int first)
{
    bool options_over = false;
    for (int idx = first; idx < argc; idx++) {
        bool is_option = !options_over && argv[idx][0] == '-' && argv[idx][1] != '\0';
        if (is_option && strcmp(argv[idx], "--") == 0) {
            options_over = true;
        } else if (is_option) {
            if (!take_option(parser, argc, argv, &idx)) {
                return false;
            }
        } else if (!parser->only_config) {
            if (parser->options->positional != NULL) {
                return usage_error("one argument too many: \"%s\"", argv[idx]);
            }
            parser->options->positional = argv[idx];
        }
    }
    return true;
}

/* ---- The whole --------------------------------------------------------------------------------- */

/* What single verbs need besides a model: a file, a text, nothing left over. */
static bool check_own_needs(const struct esp_options *options, uint32_t verb_bit, bool explains)
{
    if (verb_bit == ESP_VERB_RENDER && options->template_file == NULL) {
        return usage_error("render needs a template: --template FILE");
    }
    if (verb_bit == ESP_VERB_LOGITS && options->tokens == NULL) {
        return usage_error("logits needs token ids: --tokens 1,2,3");
    }
    if (verb_bit == ESP_VERB_PERPLEXITY && options->file == NULL) {
        return usage_error("perplexity needs a text: -f FILE");
    }
    bool wants_file = verb_bit == ESP_VERB_INSPECT || explains;
    if (wants_file && options->positional == NULL) {
        return usage_error("%s needs a file", options->verb);
    }
    bool takes_dash = verb_bit == ESP_VERB_RUN && options->positional != NULL && strcmp(options->positional, "-") == 0;
    if (options->positional != NULL && !wants_file && !takes_dash) {
        return usage_error("%s takes no argument \"%s\"", options->verb, options->positional);
    }
    return true;
}

/* What every verb needs before it can begin. */
static bool check_needs(const struct esp_options *options, uint32_t verb_bit)
{
    const uint32_t engine = ESP_VERB_SERVE | ESP_VERB_RUN | ESP_VERB_BENCH | ESP_VERB_LOGITS | ESP_VERB_PERPLEXITY;
    const uint32_t vocab = ESP_VERB_TOKENIZE | ESP_VERB_GRAMMAR;
    bool explains = options->sub != NULL && strcmp(options->sub, "explain") == 0;
    if ((verb_bit & engine) != 0 && options->model == NULL) {
        return usage_error("%s needs a model: -m FILE", options->verb);
    }
    if ((verb_bit & vocab) != 0 && !explains && (options->model == NULL) == (options->vocab == NULL)) {
        return usage_error("%s needs one of -m FILE and --vocab FILE", options->verb);
    }
    return check_own_needs(options, verb_bit, explains);
}

static bool find_verb(int argc, char **argv, struct parser *parser, int *ret_first)
{
    for (size_t idx = 0; idx < esp_verb_n_rows; idx++) {
        if (strcmp(argv[1], esp_verb_rows[idx].name) == 0) {
            parser->options->verb = esp_verb_rows[idx].name;
            parser->verb_bit = esp_verb_rows[idx].bit;
        }
    }
    if (parser->verb_bit == 0) {
        if (is_listed(esp_verb_later_names, argv[1])) {
            return usage_error("%s is not supported in this version", argv[1]);
        }
        const char *close = NULL;
        unsigned best = 4;
        for (size_t idx = 0; idx < esp_verb_n_rows; idx++) {
            keep_closer(argv[1], esp_verb_rows[idx].name, &best, &close);
        }
        return close != NULL ? usage_error("unknown verb \"%s\"; did you mean %s?", argv[1], close)
                             : usage_error("unknown verb \"%s\"; see espalier --help", argv[1]);
    }
    *ret_first = 2;
    if (parser->verb_bit == ESP_VERB_GRAMMAR) {
        bool known = argc > 2 && (strcmp(argv[2], "check") == 0 || strcmp(argv[2], "explain") == 0);
        if (!known) {
            return usage_error("grammar what? espalier grammar check, or espalier grammar explain FILE");
        }
        parser->options->sub = argv[2];
        *ret_first = 3;
    }
    return true;
}

static bool asks_for_help(int argc, char **argv, int first)
{
    for (int idx = first; idx < argc && strcmp(argv[idx], "--") != 0; idx++) {
        if (strcmp(argv[idx], "--help") == 0 || strcmp(argv[idx], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static bool parse_all(struct parser *parser, int argc, char **argv, int first)
{
    for (size_t idx = 0; idx < esp_option_n_rows; idx++) {
        const struct esp_option *row = &esp_option_rows[idx];
        if (row->preset != NULL && !set_value(parser->options, row, row->name, row->preset)) {
            return false;
        }
    }
    parser->only_config = true;
    if (!take_environment(parser) || !take_arguments(parser, argc, argv, first)) {
        return false;
    }
    parser->only_config = false;
    return take_config(parser) && take_environment(parser) && take_arguments(parser, argc, argv, first) &&
           check_needs(parser->options, parser->verb_bit);
}

bool esp_options_parse(int argc, char **argv, struct esp_options *ret_options, int *ret_exit)
{
    struct esp_options options = {0};
    struct parser parser = {.options = &options};
    int first = 0;
    *ret_exit = ESP_EXIT_DONE;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        esp_options_help(stdout, NULL);
        return false;
    }
    if (argc > 1 && strcmp(argv[1], "--help-markdown") == 0) {
        esp_options_markdown(stdout);
        return false;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("espalier %s\n", ESP_VERSION);
        return false;
    }
    *ret_exit = ESP_EXIT_USAGE;
    if (argc < 2) {
        esp_options_help(stderr, NULL);
        return false;
    }
    if (!find_verb(argc, argv, &parser, &first)) {
        return false;
    }
    if (asks_for_help(argc, argv, first)) {
        esp_options_help(stdout, options.verb);
        *ret_exit = ESP_EXIT_DONE;
        return false;
    }
    if (!parse_all(&parser, argc, argv, first)) {
        esp_options_finish(&options);
        return false;
    }
    *ret_options = options;
    return true;
}

void esp_options_finish(struct esp_options *options)
{
    json_decref(options->config_json);
    *options = (struct esp_options){0};
}

struct esp_config esp_options_engine(const struct esp_options *options)
{
    return (struct esp_config){
        .model_path = options->model,
        .device = options->device,
        .n_ctx = options->ctx,
        .kv_bytes = options->kv_bytes,
        .n_threads = options->threads,
        .n_batch_max = options->max_batch,
        .prefill_chunk = options->prefill_chunk,
        .n_queue_max = options->max_queue,
        .cache_off = options->cache_off,
        .cache_dir = options->cache_dir,
        .cache_bytes = options->cache_bytes,
    };
}
