/* The one table of options: flags, environment twins, config file keys, --help and the README table.
 *
 * `espalier VERB [options]`. Order of authority: default < config file < environment < flag. Every long
 * option --x-y has the environment twin ESPALIER_X_Y, read here and nowhere else, and the key "x-y" in the
 * config file. No verb takes more than 40. What is checked here need not be checked by a verb: ranges, names,
 * that a model was named. Exit codes of the program: 0 done, 1 failed, 2 usage. Thread: main.
 */
#ifndef ESP_FRONTEND_OPTIONS_H
#define ESP_FRONTEND_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "runtime/espalier.h"

enum { ESP_EXIT_DONE = 0, ESP_EXIT_FAILED = 1, ESP_EXIT_USAGE = 2 };

struct esp_options {
    const char *verb;
    const char *sub; /* "check" or "explain" after the verb grammar; else NULL */
    /* model and engine */
    const char *model, *vocab, *device, *cpu_level, *kv_type;
    uint32_t ctx, threads, max_batch, prefill_chunk, max_queue;
    uint64_t kv_bytes;
    bool cache_off;
    const char *cache_dir;
    const char *url, *format; /* tree */
    uint64_t cache_bytes;
    /* server */
    const char *host, *alias, *api_key_file, *tls_cert, *tls_key, *cors_origin, *chat_template, *log_level;
    uint32_t port;
    uint64_t max_body_bytes;
    bool log_json, strict_fields, strict_model, lenient_schema;
    /* prompts and sampling (run, bench) */
    const char *prompt, *file; /* -p; -f ("-" = stdin) */
    const char *schema, *regex, *grammar, *choice;
    double temperature, top_p, min_p;
    uint32_t top_k, max_tokens; /* 0 = off; 0 = what fits the context */
    uint64_t seed;
    bool raw;
    /* tools */
    const char *out, *tokens, *template_file; /* --out; --tokens; --template */
    uint32_t top, bench_prompt, bench_generate, bench_batch, bench_shared, repeat;
    bool json, full, oracle, dot;
    /* positional: the file of inspect and grammar explain; "-" after run */
    const char *positional;
    /* the config file, whose strings the fields above may borrow */
    const char *config;
    void *config_json;
};

/* Fills options and returns true. Otherwise the program is to end with *ret_exit: after a usage error (one line
 * on stderr, exit 2), and after --help, --help-markdown or --version, which print to stdout (exit 0). Strings
 * are borrowed from argv, the environment or the config file; finish frees the last. */
bool esp_options_parse(int argc, char **argv, struct esp_options *ret_options, int *ret_exit);
void esp_options_finish(struct esp_options *options);
/* verb NULL: the list of verbs. */
void esp_options_help(FILE *out, const char *verb);
/* The table as Markdown, for the README (a test compares). */
void esp_options_markdown(FILE *out);
/* Engine configuration from options. */
struct esp_config esp_options_engine(const struct esp_options *options);

/* One file a verb: frontend/verb_NAME.c. Each returns an exit code. */
int esp_verb_serve(const struct esp_options *options);
int esp_verb_run(const struct esp_options *options);
int esp_verb_bench(const struct esp_options *options);
int esp_verb_grammar(const struct esp_options *options);
int esp_verb_tokenize(const struct esp_options *options);
int esp_verb_render(const struct esp_options *options);
int esp_verb_inspect(const struct esp_options *options);
int esp_verb_logits(const struct esp_options *options);
int esp_verb_tree(const struct esp_options *options);
int esp_verb_perplexity(const struct esp_options *options);

#endif
