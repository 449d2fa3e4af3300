/* Values in the notation of Gemma's calls, to JSON and back.
 *
 *   {city:<|"|>Rome<|"|>,days:[1,2],deep:{x:null}}        strings between marks, keys bare
 *
 * The mark is <|"|> as text or as the code of a control token of that name (see form.h). Thread: any.
 */
#ifndef ESP_FRONTEND_GEMMA_H
#define ESP_FRONTEND_GEMMA_H

#include "runtime/base/buf.h"

/* False when text is no such value; buf may have been appended to. */
bool esp_gemma_to_json(const char *text, size_t n_bytes, struct esp_buf *buf);

#endif
