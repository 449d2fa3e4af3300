/* The dispatcher: the one thread that polls the engine, and hands each event to its run.
 *
 * At the end it cancels what still runs and keeps polling for a bounded time, so that the answers end and the
 * references of the runs come back. Thread: its own; start and stop from main.
 */
#include "frontend/generate.h"
#include "frontend/http.h"

#define LAST_EVENTS_NS 2000000000ll
#define IDLE_POLL_NS 1000000000ll
#define STOPPING_POLL_NS 20000000ll

static void *dispatch(void *ctx)
{
    struct esp_server *server = ctx;
    struct esp_event event;
    int64_t until_ns = 0;
    for (;;) {
        /* Asked before each poll: a wake-up may be used up by a poll that also found an event. */
        pthread_mutex_lock(&server->lock);
        bool stopping = server->dispatch_stopping;
        uint32_t n_alive = server->n_alive;
        pthread_mutex_unlock(&server->lock);
        if (stopping) {
            int64_t now_ns = esp_clock_now(&server->clock);
            until_ns = until_ns == 0 ? now_ns + LAST_EVENTS_NS : until_ns;
            if (n_alive == 0 || now_ns > until_ns) {
                return NULL;
            }
        }
        if (esp_poll(server->engine, stopping ? STOPPING_POLL_NS : IDLE_POLL_NS, &event)) {
            esp_generation_event(event.user, &event);
        }
    }
}

esp_status esp_dispatch_start(struct esp_server *server, struct esp_err *err)
{
    if (pthread_create(&server->dispatcher, NULL, dispatch, server) != 0) {
        return esp_fail(err, ESP_EIO, "cannot start the dispatcher");
    }
    server->has_dispatcher = true;
    return ESP_OK;
}

void esp_dispatch_stop(struct esp_server *server)
{
    if (!server->has_dispatcher) {
        return;
    }
    esp_watch_cancel_all(server);
    pthread_mutex_lock(&server->lock);
    server->dispatch_stopping = true;
    pthread_mutex_unlock(&server->lock);
    esp_wake(server->engine);
    pthread_join(server->dispatcher, NULL);
    server->has_dispatcher = false;
}
