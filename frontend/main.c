/* The program: options, the log sink, and the table of verbs. Everything else is in a verb's own file.
 *
 * Results go to stdout; log lines, as text or as JSON objects, to stderr. SIGPIPE is ignored so that a client
 * or pipe that goes away is an error return and not the end of the process. Thread: main.
 */
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "frontend/options.h"
#include "frontend/output.h"
#include "runtime/base/cpu.h"
#include "runtime/base/log.h"

static const struct {
    const char *name;
    int (*run)(const struct esp_options *options);
} verbs[] = {
    {"serve", esp_verb_serve},
    {"run", esp_verb_run},
    {"bench", esp_verb_bench},
    {"grammar", esp_verb_grammar},
    {"tokenize", esp_verb_tokenize},
    {"render", esp_verb_render},
    {"inspect", esp_verb_inspect},
    {"logits", esp_verb_logits},
    {"perplexity", esp_verb_perplexity},
    {"tree", esp_verb_tree},
};

#define LOG_LINE_BYTES 8192

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static void sink_text(enum esp_log_level level, const char *topic, const char *text)
{
    if (level <= ESP_LOG_WARN) {
        fprintf(stderr, "espalier: %s: %s: %s\n", level_names[level], topic, text);
    } else {
        fprintf(stderr, "espalier: %s: %s\n", topic, text);
    }
}

static void sink_json(enum esp_log_level level, const char *topic, const char *text)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    json_t *line = json_pack("{s:f,s:s,s:s,s:s}", "time", (double)now.tv_sec + (double)now.tv_nsec / 1e9, "level",
                             level_names[level], "topic", topic, "message", text);
    char text_out[LOG_LINE_BYTES];
    size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(16);
    size_t n = line != NULL ? json_dumpb(line, text_out, sizeof text_out - 1, flags) : 0;
    if (n > 0 && n < sizeof text_out - 1) {
        text_out[n] = '\0';
        fprintf(stderr, "%s\n", text_out);
    } else { /* text that is no UTF-8 cannot be a JSON string */
        fprintf(stderr, "{\"level\":\"%s\",\"topic\":\"log\",\"message\":\"a line that cannot be printed\"}\n",
                level_names[level]);
    }
    json_decref(line);
}

static enum esp_log_level level_of(const char *name)
{
    for (int level = ESP_LOG_ERROR; level < ESP_LOG_DEBUG; level++) {
        if (strcmp(name, level_names[level]) == 0) {
            return (enum esp_log_level)level;
        }
    }
    return ESP_LOG_DEBUG;
}

static void mask_cpu(const char *name)
{
    for (int level = 0; level < ESP_CPU_LEVELS; level++) {
        if (strcmp(name, esp_cpu_level_name((enum esp_cpu_level)level)) == 0) {
            esp_cpu_level_mask((enum esp_cpu_level)level);
        }
    }
}

int main(int argc, char **argv)
{
    struct esp_options options;
    int status = ESP_EXIT_USAGE;
    signal(SIGPIPE, SIG_IGN);
    if (!esp_options_parse(argc, argv, &options, &status)) {
        return status != ESP_EXIT_DONE || esp_output_flush("--help") ? status : ESP_EXIT_FAILED;
    }
    esp_log_set(options.log_json ? sink_json : sink_text, level_of(options.log_level));
    mask_cpu(options.cpu_level);
    status = ESP_EXIT_FAILED;
    for (size_t idx = 0; idx < sizeof verbs / sizeof verbs[0]; idx++) {
        if (strcmp(verbs[idx].name, options.verb) == 0) {
            status = verbs[idx].run(&options);
        }
    }
    status = status != ESP_EXIT_DONE || esp_output_flush(options.verb) ? status : ESP_EXIT_FAILED;
    esp_options_finish(&options);
    return status;
}
