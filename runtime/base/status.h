/* Status codes and error detail, shared by every folder.
 *
 * What can fail returns an esp_status: 0 or one of the negative codes below. Detail that a person
 * needs goes to a struct esp_err of fixed size, so that reporting an error never allocates.
 * Every function accepts err == NULL. Thread: none, plain data.
 */
#ifndef ESP_BASE_STATUS_H
#define ESP_BASE_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int esp_status;

enum {
    ESP_OK = 0,
    ESP_EINVAL = -1,       /* the caller's mistake: malformed or out of range */
    ESP_ENOMEM = -2,       /* an allocation failed, or a cap was reached */
    ESP_EIO = -3,          /* a file or socket failed */
    ESP_EUNSUPPORTED = -4, /* well-formed, but not something this build does */
    ESP_ELIMIT = -5,       /* a named limit was reached */
    ESP_EUNSAT = -6,       /* a grammar that no text can satisfy */
    ESP_EBUSY = -7,        /* queue full: try again later */
    ESP_ESTATE = -8,       /* not possible now: loading, draining or closed */
    ESP_ENOTFOUND = -9,
    ESP_EINTERNAL = -10    /* a broken invariant, reported instead of aborting */
};

/* What went wrong and where. `place` is a JSON pointer, field name or file, `keyword` the schema
 * keyword where there is one, `offset` a byte offset in a file or text. Unused parts are empty. */
struct esp_err {
    esp_status code;
    uint64_t offset;
    char message[512];
    char place[256];
    char keyword[64];
    char hint[192];
};

/* Records code and message (printf-style; cut to fit, always terminated) and returns code.
 * Clears place, keyword, hint and offset. */
esp_status esp_fail(struct esp_err *err, esp_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Add detail to a recorded error. */
void esp_err_place(struct esp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void esp_err_keyword(struct esp_err *err, const char *keyword);
void esp_err_hint(struct esp_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "EINVAL" → "INVALID" and so on: INVALID, MEMORY, IO, UNSUPPORTED, LIMIT, UNSAT, BUSY, STATE,
 * NOT_FOUND, INTERNAL; "OK" for 0. */
const char *esp_status_name(esp_status code);

#ifdef __cplusplus
}
#endif
#endif
