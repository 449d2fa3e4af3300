/* Error recording. Formats into fixed buffers; never allocates, never prints. */
#include "runtime/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

esp_status esp_fail(struct esp_err *err, esp_status code, const char *fmt, ...)
{
    if (err != NULL) {
        memset(err, 0, sizeof *err);
        err->code = code;
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->message, sizeof err->message, fmt, args);
        va_end(args);
    }
    return code;
}

void esp_err_place(struct esp_err *err, const char *fmt, ...)
{
    if (err == NULL) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->place, sizeof err->place, fmt, args);
    va_end(args);
}

void esp_err_keyword(struct esp_err *err, const char *keyword)
{
    if (err != NULL) {
        snprintf(err->keyword, sizeof err->keyword, "%s", keyword);
    }
}

void esp_err_hint(struct esp_err *err, const char *fmt, ...)
{
    if (err == NULL) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, args);
    va_end(args);
}

const char *esp_status_name(esp_status code)
{
    static const char *const names[] = {"OK",     "INVALID", "MEMORY", "IO",        "UNSUPPORTED", "LIMIT",
                                        "UNSAT",  "BUSY",    "STATE",  "NOT_FOUND", "INTERNAL"};
    int idx = -code;
    if (idx < 0 || idx >= (int)(sizeof names / sizeof names[0])) {
        return "INTERNAL";
    }
    return names[idx];
}
