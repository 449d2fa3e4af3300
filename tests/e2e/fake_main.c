/* The server's command line over the scripted engine: fake SCRIPT [NAME VALUE]… for the options of tests. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/options.h"
#include "runtime/base/log.h"

struct esp_config esp_options_engine(const struct esp_options *options)
{
    return (struct esp_config){.model_path = options->model};
}

static void sink(enum esp_log_level level, const char *topic, const char *text)
{
    fprintf(stderr, "%s: %s\n", topic, text);
}

int main(int argc, char **argv)
{
    struct esp_options options = {.verb = "serve", .model = argv[1], .host = "127.0.0.1", .max_body_bytes = 16u << 20};
    for (int arg = 2; arg + 1 < argc; arg += 2) {
        const char *name = argv[arg], *value = argv[arg + 1];
        options.alias = strcmp(name, "alias") == 0 ? value : options.alias;
        options.api_key_file = strcmp(name, "api-key-file") == 0 ? value : options.api_key_file;
        options.tls_cert = strcmp(name, "tls-cert") == 0 ? value : options.tls_cert;
        options.tls_key = strcmp(name, "tls-key") == 0 ? value : options.tls_key;
        options.host = strcmp(name, "host") == 0 ? value : options.host;
        options.cors_origin = strcmp(name, "cors-origin") == 0 ? value : options.cors_origin;
        options.chat_template = strcmp(name, "chat-template") == 0 ? value : options.chat_template;
        options.max_body_bytes = strcmp(name, "max-body") == 0 ? strtoull(value, NULL, 10) : options.max_body_bytes;
        options.strict_fields = options.strict_fields || strcmp(name, "strict-fields") == 0;
        options.lenient_schema = options.lenient_schema || strcmp(name, "lenient-schema") == 0;
        options.strict_model = options.strict_model || strcmp(name, "strict-model") == 0;
        options.log_json = options.log_json || strcmp(name, "log-json") == 0;
    }
    signal(SIGPIPE, SIG_IGN);
    esp_log_set(sink, ESP_LOG_INFO);
    return esp_verb_serve(&options);
}
