/* How a template writes tools, calls and reasoning. Thread: whoever opens the chat. */
#include <string.h>

#include "frontend/chat_internal.h"

/* A copy of text with its control tokens coded, in the form's arena. */
static esp_status keep(struct esp_chat *chat, const char *text, size_t n_bytes, struct esp_lit *ret_lit)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_FORM_BYTES_MAX);
    esp_status status = esp_code_text(chat->vocab, text, n_bytes, &buf);
    char *copy = status == ESP_OK ? esp_arena_strndup(&chat->form.arena, buf.n == 0 ? "" : buf.data, buf.n) : NULL;
    if (copy != NULL) {
        *ret_lit = (struct esp_lit){copy, (uint32_t)buf.n};
    }
    esp_buf_finish(&buf);
    return copy != NULL ? ESP_OK : status != ESP_OK ? status : ESP_ENOMEM;
}

esp_status esp_chat_probe(struct esp_chat *chat, const char *text, struct esp_err *err)
{
    struct esp_form *form = &chat->form;
    esp_status status = ESP_OK;
    esp_form_generic(form);
    if (strstr(text, "</think>") != NULL) {
        form->think_text = "<think>";
        status = keep(chat, "<think>", 7, &form->think_open);
        status = status == ESP_OK ? keep(chat, "</think>", 8, &form->think_close) : status;
    }
    return status == ESP_OK ? ESP_OK : esp_fail(err, status, "the chat template cannot be probed");
}
