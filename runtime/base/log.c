/* The log sink: one of the project's few globals, set once at start by the program. */
#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>

#define LINE_BYTES 2048

static _Atomic(esp_log_sink) current_sink;
static _Atomic int highest_level = ESP_LOG_INFO;

void esp_log_set(esp_log_sink sink, enum esp_log_level highest)
{
    atomic_store(&current_sink, sink);
    atomic_store(&highest_level, (int)highest);
}

void esp_log(enum esp_log_level level, const char *topic, const char *fmt, ...)
{
    esp_log_sink sink = atomic_load(&current_sink);
    if (sink == NULL || (int)level > atomic_load(&highest_level)) {
        return;
    }
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    sink(level, topic, line);
}
