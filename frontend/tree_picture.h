/* The tree of a server as a person can see it: text, a graph for Graphviz, or an SVG image.
 *
 *   16384 pages: 15980 free …                      pages in a row that have one child, and the same references,
 *   namespace 0: 398 pages                         class and state, are one line or box
 *   ├─ 374 pages  "<|im_start|>system\nYou are…"  refs 2  return  4.1 s
 *   │  ├─ 12 pages  "…the printer is on fire…"    refs 1  return  0.2 s
 *
 * Made from the answer of GET /v1/cache alone. Thread: any; keeps nothing.
 */
#ifndef ESP_FRONTEND_TREE_PICTURE_H
#define ESP_FRONTEND_TREE_PICTURE_H

#include <jansson.h>

#include "runtime/base/buf.h"
#include "runtime/base/status.h"

/* ESP_EINVAL for JSON that is no such answer, ESP_ENOMEM. */
esp_status esp_tree_text(const json_t *tree, struct esp_buf *buf, struct esp_err *err);
esp_status esp_tree_dot(const json_t *tree, struct esp_buf *buf, struct esp_err *err);
esp_status esp_tree_svg(const json_t *tree, struct esp_buf *buf, struct esp_err *err);

#endif
