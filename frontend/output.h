/* Standard output of the verbs: written whole, and its failures told once.
 *
 * A reader that has gone (`espalier … | head`) is no failure worth a message: the verb ends quietly with exit
 * code 1. Everything else is one line on stderr. Thread: main. Does not know what is written.
 */
#ifndef ESP_FRONTEND_OUTPUT_H
#define ESP_FRONTEND_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes and flushes. False, after saying why, when that was not possible. */
bool esp_output_write(const char *verb, const char *data, size_t n_bytes);
/* Flushes what stdio still holds. False, after saying why, when this or an earlier write failed. */
bool esp_output_flush(const char *verb);

#endif
