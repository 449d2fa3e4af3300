/* The tools of a request: names, what their arguments may be, and what the client wants called.
 *
 * A schema is the exact source text of the request. Thread: read-only after it was read.
 */
#ifndef ESP_FRONTEND_TOOLS_H
#define ESP_FRONTEND_TOOLS_H

#include <jansson.h>

#include "frontend/request.h"

#define ESP_TOOLS_MAX 512u

enum esp_arg_kind { ESP_ARG_STRING, ESP_ARG_OTHER, ESP_ARG_EITHER }; /* what its schema lets a value be */
struct esp_tool_arg {
    const char *name;
    enum esp_arg_kind kind;
    bool required;
    const char *schema; /* source text */
    size_t schema_bytes;
};
struct esp_tool {
    const char *name;
    const char *schema; /* source text of the parameters, or "{}" */
    size_t schema_bytes;
    bool has_schema, allowed; /* allowed: may be called in this answer */
    uint32_t request_idx;     /* in the request's array */
    struct esp_tool_arg *args;
    uint32_t n_args;
};
enum esp_tool_choice { ESP_TOOLS_NONE, ESP_TOOLS_AUTO, ESP_TOOLS_REQUIRED };

struct esp_tools {
    struct esp_tool *items; /* functions only */
    uint32_t n, n_allowed;
    enum esp_tool_choice choice; /* NONE when there are none */
    bool parallel;
};

/* tools, tool_choice and parallel_tool_calls of a chat body. Into the arena. */
esp_status esp_tools_read(const struct esp_request_source *source, struct esp_arena *arena, struct esp_tools *ret_tools,
                          struct esp_buf *warnings, struct esp_err *err);
/* An allowed tool of that name, or NULL. */
const struct esp_tool *esp_tools_find(const struct esp_tools *tools, const char *name, size_t n_bytes);
const struct esp_tool_arg *esp_tool_arg(const struct esp_tool *tool, const char *name, size_t n_bytes);

#endif
