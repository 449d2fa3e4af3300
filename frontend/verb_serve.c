/* espalier serve: listens at once, loads the model meanwhile, answers until a signal, then drains.
 *
 * SIGTERM and SIGINT are read from a descriptor by the main thread; every other thread has them blocked. The
 * first one drains (bounded), a second one cancels what still runs. Exit 0 after a signal, 1 when the model
 * cannot be loaded or the address cannot be used.
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

/* Waits for the loader (true) or a signal (false). */
static bool wait_loaded(const struct loader *loader, int signal_fd)
{
    struct pollfd fds[2] = {{.fd = loader->done_fd, .events = POLLIN}, {.fd = signal_fd, .events = POLLIN}};
    while (fds[0].revents == 0 && fds[1].revents == 0) {
        poll(fds, 2, -1);
    }
    return fds[0].revents != 0;
}

static void take_signal(int signal_fd)
{
    struct signalfd_siginfo info;
    ssize_t n = read(signal_fd, &info, sizeof info);
    (void)n; /* called when one is there; an early return only ends sooner */
}

/* The listener is up: load, serve, drain. */
static int serve(struct esp_server *server, struct loader *loader, int signal_fd)
{
    struct esp_err err = {0};
    bool v6 = strchr(server->options->host, ':') != NULL;
    fprintf(stderr, "listening on http://%s%s%s:%d\n", v6 ? "[" : "", server->options->host, v6 ? "]" : "",
            server->port);
    if (pthread_create(&loader->thread, NULL, load, loader) != 0) {
        fprintf(stderr, "espalier: cannot start the loader\n");
        return ESP_EXIT_FAILED;
    }
    bool loaded = wait_loaded(loader, signal_fd);
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
    if (esp_server_attach(server, loader->engine, loader->chat, &err) != ESP_OK) {
        fprintf(stderr, "espalier: %s\n", err.message);
        return ESP_EXIT_FAILED;
    }
    fprintf(stderr, "ready: %s\n", server->model_name);
    take_signal(signal_fd);
    esp_log(ESP_LOG_INFO, "http", "stopping: running requests may finish");
    return ESP_EXIT_DONE;
}

int esp_verb_serve(const struct esp_options *options)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
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
