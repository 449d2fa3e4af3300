/* espalier serve: listens at once, loads the model meanwhile, answers until a signal, then drains.
 *
 * SIGTERM, SIGINT and, with a key file, SIGHUP are read from a descriptor by the main thread; every other thread has
 * them blocked. The first one that stops drains (bounded), a second one cancels what still runs. Exit 0 after a
 * signal, 1 when the model cannot be loaded or the address cannot be used.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "frontend/http.h"
#include "frontend/peak.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"

struct loader {
    const struct esp_options *options;
    esp_engine *engine;
    struct esp_chat *chat;
    esp_status status;
    struct esp_err err;
    int done_fd;
    pthread_t thread;
};

static esp_status open_chat(struct loader *loader)
{
    const char *path = loader->options->chat_template;
    const esp_vocab *vocab = esp_engine_vocab(loader->engine);
    if (path == NULL) {
        return esp_chat_open(vocab, NULL, &loader->chat, &loader->err);
    }
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, ESP_TEMPLATE_BYTES_MAX);
    esp_status status = esp_file_read(path, &text, &loader->err);
    if (status == ESP_OK) {
        status = esp_chat_open(vocab, text.n == 0 ? "" : text.data, &loader->chat, &loader->err);
    }
    esp_buf_finish(&text);
    return status;
}

static void *load(void *ctx)
{
    struct loader *loader = ctx;
    struct esp_config config = esp_options_engine(loader->options);
    loader->status = esp_engine_open(&config, &loader->engine, &loader->err);
    if (loader->status == ESP_OK) {
        loader->status = open_chat(loader);
    }
    uint64_t one = 1;
    ssize_t n = write(loader->done_fd, &one, sizeof one);
    (void)n; /* an eventfd at 0 takes it */
    return NULL;
}

static void print_form(const struct esp_chat *chat)
{
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_HTTP, 8192);
    esp_chat_show(chat, &text);
    esp_log(ESP_LOG_INFO, "template", "%s", text.n == 0 ? "" : text.data);
    esp_buf_finish(&text);
}

static void print_plan(const esp_engine *engine)
{
    struct esp_engine_info info;
    esp_engine_get_info(engine, &info);
    uint64_t total = info.plan_weights_bytes + info.plan_kv_bytes + info.plan_activation_bytes + info.plan_logit_bytes +
                     info.plan_other_bytes;
    const double mib = 1024.0 * 1024.0;
    esp_log(ESP_LOG_INFO, "model", "%s (%s), %u layers, context %u, on %s %s with %u threads", info.name, info.arch,
            info.n_layer, info.n_ctx, info.device, info.level, info.n_threads);
    esp_log(ESP_LOG_INFO, "memory",
            "weights %.1f MiB, KV %.1f MiB (%u pages of %u tokens), activations %.1f MiB, "
            "logits %.1f MiB, other %.1f MiB; total %llu bytes",
            (double)info.plan_weights_bytes / mib, (double)info.plan_kv_bytes / mib, info.n_pages, info.page_tokens,
            (double)info.plan_activation_bytes / mib, (double)info.plan_logit_bytes / mib,
            (double)info.plan_other_bytes / mib, (unsigned long long)total);
}

/* Reads a signal. True: to stop. SIGHUP reads the keys again. */
static bool take_signal(struct esp_server *server, int signal_fd)
{
    struct signalfd_siginfo info = {0};
    struct esp_err err = {0};
    ssize_t n = read(signal_fd, &info, sizeof info);
    if (n != (ssize_t)sizeof info || info.ssi_signo != SIGHUP) {
        return true; /* called when one is there; a failed read only ends sooner */
    }
    if (esp_keys_load(server, &err) == ESP_OK) {
        esp_log(ESP_LOG_INFO, "http", "read the API keys again");
    } else {
        esp_log(ESP_LOG_ERROR, "http", "the API keys stay as they were: %s", err.message);
    }
    return false;
}

/* Waits for done_fd (true) or a signal to stop (false). done_fd negative: for the signal alone. */
static bool wait_for(struct esp_server *server, int done_fd, int signal_fd)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = done_fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
        poll(fds, 2, -1);
        if (fds[0].revents != 0) {
            return true;
        }
        if (fds[1].revents != 0 && take_signal(server, signal_fd)) {
            return false;
        }
    }
}

/* The listener is up: load, serve, drain. */
static int serve(struct esp_server *server, struct loader *loader, int signal_fd)
{
    struct esp_err err = {0};
    char url[320];
    esp_listen_url(server, url, sizeof url);
    fprintf(stderr, "listening on %s\n", url);
    if (pthread_create(&loader->thread, NULL, load, loader) != 0) {
        fprintf(stderr, "espalier: cannot start the loader\n");
        return ESP_EXIT_FAILED;
    }
    bool loaded = wait_for(server, loader->done_fd, signal_fd);
    pthread_join(loader->thread, NULL);
    if (!loaded) {
        return ESP_EXIT_DONE; /* told to stop before there was anything to serve */
    }
    if (loader->status != ESP_OK) {
        fprintf(stderr, "espalier: %s%s%s\n", loader->err.place, loader->err.place[0] != '\0' ? ": " : "",
                loader->err.message);
        return ESP_EXIT_FAILED;
    }
    print_plan(loader->engine);
    print_form(loader->chat);
    if (esp_server_attach(server, loader->engine, loader->chat, &err) != ESP_OK) {
        fprintf(stderr, "espalier: %s\n", err.message);
        return ESP_EXIT_FAILED;
    }
    fprintf(stderr, "ready: %s\n", server->model_name);
    wait_for(server, -1, signal_fd);
    esp_log(ESP_LOG_INFO, "http", "stopping: running requests may finish");
    return ESP_EXIT_DONE;
}

int esp_verb_serve(const struct esp_options *options)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    if (options->api_key_file != NULL) {
        sigaddset(&signals, SIGHUP);
    }
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    struct loader loader = {.options = options, .done_fd = eventfd(0, EFD_CLOEXEC)};
    int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    static struct esp_server server; /* large, and one a process */
    struct esp_err err = {0};
    int status = ESP_EXIT_FAILED;
    if (options->model == NULL) {
        fprintf(stderr, "espalier: serve needs a model: -m FILE\n");
        status = ESP_EXIT_USAGE;
    } else if (loader.done_fd < 0 || signal_fd < 0) {
        fprintf(stderr, "espalier: no descriptors left\n");
    } else {
        if (esp_server_start(&server, options, &err) != ESP_OK) {
            fprintf(stderr, "espalier: %s\n", err.message);
        } else {
            status = serve(&server, &loader, signal_fd);
        }
        sigdelset(&signals, SIGHUP); /* stopping is cut short by the others only */
        signalfd(signal_fd, &signals, SFD_CLOEXEC);
        esp_server_stop(&server, signal_fd, status == ESP_EXIT_DONE ? ESP_HTTP_DRAIN_NS : 0);
        if (status == ESP_EXIT_DONE) {
            esp_log(ESP_LOG_INFO, "memory", "peak %llu bytes", (unsigned long long)esp_peak_bytes());
        }
    }
    esp_chat_close(loader.chat);
    esp_engine_close(loader.engine);
    close(loader.done_fd);
    close(signal_fd);
    return status;
}
