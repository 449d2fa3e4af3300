/* The tree as a person can read it: indented text, or a graph for Graphviz (`dot -Tsvg`).
 *
 * Both list nodes depth first, children by last use, with page, references, class, state and age, and
 * stop after n_nodes_max nodes with a line that says so. Token ids are printed; texts are the
 * business of those who know a vocabulary (they use esp_tree_visit). Thread: the engine's.
 */
#ifndef ESP_RADIX_DUMP_H
#define ESP_RADIX_DUMP_H

#include "radix/tree.h"
#include "runtime/base/buf.h"

const char *esp_evict_class_name(enum esp_evict_class class); /* "tail", "normal", "return", "pinned" */
/* Append to buf; a failure latches there (buf->failed). */
void esp_tree_dump_text(const struct esp_tree *tree, uint32_t n_nodes_max, struct esp_buf *buf);
void esp_tree_dump_dot(const struct esp_tree *tree, uint32_t n_nodes_max, struct esp_buf *buf);

#endif
