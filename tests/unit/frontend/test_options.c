/* The option table: order of authority, ranges, names of later versions, what each verb needs. */
#include "frontend/options.h"
#include "frontend/options_table.h"
#include "tests/esptest.h"

#define ARGS_MAX 12

/* Parses a command line of words with its messages dropped. Returns the exit code, or -1 when it parses. */
static int parse(const char *line, struct esp_options *options)
{
    static char words[512];
    char *argv[ARGS_MAX] = {"espalier"};
    int argc = 1, code = 0;
    snprintf(words, sizeof words, "%s", line);
    for (char *rest = words, *word; (word = strsep(&rest, " ")) != NULL && argc < ARGS_MAX;) {
        argv[argc] = word;
        argc += word[0] != '\0';
    }
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    FILE *null = freopen("/dev/null", "w", stderr);
    bool ok = null != NULL && esp_options_parse(argc, argv, options, &code);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    return ok ? -1 : code;
}

static void test_refusals(void)
{
    static const char *const lines[] = {
        "",
        "nosuchverb",
        "batch -m x",
        "serve",
        "serve -m",
        "serve -m x --port 65536",
        "serve -m x --port -1",
        "serve -m x --port 80a",
        "serve -m x --port=",
        "serve -m x --prot 80",
        "serve -m x --kv-bytes 1T",
        "serve -m x --kv-bytes 99999999999999999999G",
        "serve -m x --kv-type q8_0",
        "serve -m x --device cuda:0",
        "serve -m x --device gpu",
        "serve -m x --tls-cert",
        "serve -m x --trace f",
        "serve -m x --log-level loud",
        "serve -m x --raw",
        "serve -m x y",
        "serve -m x --strict-model=perhaps",
        "run -m x --temperature 2.1",
        "run -m x --temperature nan",
        "run -m x --top-p 1e",
        "run -m x y",
        "bench -m x --synthetic a:b",
        "bench -m x --batch 0",
        "grammar -m x",
        "grammar check",
        "grammar check -m x --vocab y",
        "grammar explain",
        "tokenize",
        "render",
        "inspect",
        "inspect a b",
        "logits -m x",
        "perplexity -m x",
        "serve -m x --config /nonexistent",
    };
    for (size_t idx = 0; idx < sizeof lines / sizeof lines[0]; idx++) {
        struct esp_options options;
        int code = parse(lines[idx], &options);
        CHECK(code == ESP_EXIT_USAGE, "\"%s\" gives %d", lines[idx], code);
    }
}

static void test_values(void)
{
    struct esp_options options = {0};
    REQUIRE(parse("serve -m a.gguf --port=0 --kv-bytes 2G --threads auto --strict-model --ctx 4096", &options) == -1,
            "parses");
    CHECK(strcmp(options.model, "a.gguf") == 0 && options.port == 0 && options.kv_bytes == (uint64_t)2 << 30, "values");
    CHECK(options.threads == ESP_AUTO && options.ctx == 4096 && options.strict_model && !options.log_json, "values");
    CHECK(strcmp(options.host, "127.0.0.1") == 0 && options.max_body_bytes == 16u << 20, "defaults");
    struct esp_config config = esp_options_engine(&options);
    CHECK(config.n_ctx == 4096 && config.kv_bytes == options.kv_bytes && config.model_path == options.model, "engine");
    esp_options_finish(&options);
    REQUIRE(parse("run -mx -p hello --temperature 0", &options) == -1, "short forms");
    CHECK(strcmp(options.model, "x") == 0 && strcmp(options.prompt, "hello") == 0 && options.temperature == 0, "run");
    esp_options_finish(&options);
    REQUIRE(parse("bench -m x --prompt 7", &options) == -1, "prompt is a number for bench");
    CHECK(options.bench_prompt == 7 && options.prompt == NULL, "bench");
    esp_options_finish(&options);
}

static void test_authority(void)
{
    char path[] = "/tmp/espalier-options-XXXXXX", line[256];
    int fd = mkstemp(path);
    REQUIRE(fd >= 0, "a file");
    static const char text[] =
        "{\"port\": 1000, \"kv-bytes\": \"1M\", \"raw\": true, \"threads\": 3, \"log-json\": true}";
    CHECK(write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1, "written");
    close(fd);
    snprintf(line, sizeof line, "serve -m x --config %s --threads 5", path);
    setenv("ESPALIER_PORT", "2000", 1);
    setenv("ESPALIER_THREADS", "4", 1);
    struct esp_options options = {0};
    REQUIRE(parse(line, &options) == -1, "parses");
    CHECK(options.port == 2000, "environment over file: %u", options.port);
    CHECK(options.threads == 5, "flag over environment: %u", options.threads);
    CHECK(options.kv_bytes == 1u << 20 && options.log_json, "file over default");
    esp_options_finish(&options);
    setenv("ESPALIER_PORT", "70000", 1);
    CHECK(parse(line, &options) == ESP_EXIT_USAGE, "the environment is checked too");
    unsetenv("ESPALIER_PORT");
    unsetenv("ESPALIER_THREADS");
    unlink(path);
}

static void test_table(void)
{
    for (size_t verb = 0; verb < esp_verb_n_rows; verb++) {
        int n = 0;
        for (size_t idx = 0; idx < esp_option_n_rows; idx++) {
            const struct esp_option *row = &esp_option_rows[idx];
            n += (row->verbs & esp_verb_rows[verb].bit) != 0;
            char env[ESP_OPTION_ENV_BYTES];
            esp_option_env_name(row->name, env);
            CHECK(strlen(env) == strlen(row->name) + 9, "%s", env);
            for (size_t other = idx + 1; other < esp_option_n_rows; other++) {
                const struct esp_option *twin = &esp_option_rows[other];
                bool clash = strcmp(row->name, twin->name) == 0 || (row->letter != 0 && row->letter == twin->letter);
                CHECK(!clash || (row->verbs & twin->verbs) == 0, "%s twice in one verb", row->name);
            }
        }
        CHECK(n <= 40, "%s has %d options", esp_verb_rows[verb].name, n);
    }
}

ESP_TEST_MAIN(T(test_refusals), T(test_values), T(test_authority), T(test_table))
