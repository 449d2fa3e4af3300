/* Why a prompt was not in the cache, in words: for the log and for POST /v1/cache/explain.
 *
 * Thread: any.
 */
#ifndef ESP_FRONTEND_EXPLAIN_H
#define ESP_FRONTEND_EXPLAIN_H

#include "runtime/base/buf.h"
#include "runtime/espalier.h"

/* "hit", "never_seen", "evicted", "other_namespace", "pending" */
const char *esp_explain_cause(enum esp_cause cause);
/* "diverges":{"at","have":{"id","text"},"want":{"id","text"}} or "diverges":null. */
void esp_explain_diverges(struct esp_buf *buf, const esp_vocab *vocab, const struct esp_explanation *why);
#endif
