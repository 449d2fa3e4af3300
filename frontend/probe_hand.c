/* Families whose template does not show all of how the model writes: Harmony, Functionary 3.2, calls in Python.
 *
 *   Harmony       <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…
 *                 <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
 *   Functionary   >>>all\n text >>>NAME\n{…}        (the prompt ends with the first >>>)
 *   Python        [NAME(a="b", n=2), NAME()]
 */
#include <string.h>

#include "frontend/probe_internal.h"

static bool keep(struct esp_chat *chat, const char *text, struct esp_lit *ret_lit)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, ESP_FORM_BYTES_MAX);
    bool ok = esp_code_text(chat->vocab, text, strlen(text), &buf) == ESP_OK &&
              esp_probe_keep(&chat->form, (struct esp_slice){buf.data, buf.n}, ret_lit);
    esp_buf_finish(&buf);
    return ok;
}

static void set_pieces(struct esp_form *form, const struct esp_piece *pieces, uint32_t n_pieces)
{
    memcpy(form->pieces, pieces, n_pieces * sizeof *pieces);
    form->n_pieces = n_pieces;
    form->open = form->sep = form->close = form->lead = form->trigger = (struct esp_lit){"", 0};
    form->is_tagged = false;
    form->whitespace = "line";
    form->knows_tools = form->shows_calls = true;
}

static bool harmony(struct esp_chat *chat)
{
    struct esp_form *form = &chat->form;
    struct esp_lit head, middle;
    static const char *const skips[] = {"<|channel|>final<|message|>", "<|channel|>commentary<|message|>",
                                        "<|start|>assistant", "<|end|>"};
    if (!keep(chat, "<|channel|>commentary to=functions.", &head) ||
        !keep(chat, " <|constrain|>json<|message|>", &middle)) {
        return false;
    }
    const struct esp_piece pieces[] = {
        {ESP_SLOT_LIT, head}, {ESP_SLOT_NAME, {"", 0}}, {ESP_SLOT_LIT, middle}, {ESP_SLOT_ARGS, {"", 0}}};
    set_pieces(form, pieces, 4);
    form->trigger = head;
    form->one_call = true;
    form->behind = "\"}";
    form->think_text = "<|channel|>analysis<|message|>";
    bool ok =
        keep(chat, form->think_text, &form->think_open) && keep(chat, "<|end|><|start|>assistant", &form->think_close);
    for (form->n_skips = 0; ok && form->n_skips < 4; form->n_skips++) {
        ok = keep(chat, skips[form->n_skips], &form->skips[form->n_skips]);
    }
    form->text_open = form->skips[0];
    return ok;
}

static bool functionary(struct esp_chat *chat)
{
    static const struct esp_piece pieces[] = {
        {ESP_SLOT_NAME, {"", 0}}, {ESP_SLOT_LIT, {"\n", 1}}, {ESP_SLOT_ARGS, {"", 0}}};
    struct esp_form *form = &chat->form;
    set_pieces(form, pieces, 3);
    form->string_args = form->bare_start = true;
    form->all = (struct esp_lit){"all\n", 4};
    form->sep = (struct esp_lit){">>>", 3};
    form->behind = "\"}";
    return true;
}

bool esp_probe_hand(struct esp_chat *chat, const char *source)
{
    if (strstr(source, "<|channel|>") != NULL && strstr(source, "functions.") != NULL &&
        strstr(source, "<|message|>") != NULL) {
        return harmony(chat);
    }
    if (strstr(source, ">>>all\n") != NULL || strstr(source, ">>>all\\n") != NULL) {
        return functionary(chat);
    }
    return false;
}

bool esp_probe_python(struct esp_form *form, struct esp_slice region)
{
    static const struct esp_piece pieces[] = {
        {ESP_SLOT_NAME, {"", 0}}, {ESP_SLOT_ARGS, {"", 0}}, {ESP_SLOT_LIT, {")", 1}}};
    size_t at = esp_slice_find(region, "[" ESP_PROBE_FIRST "(", 0), end = region.n;
    while (end > 0 && region.text[end - 1] != ')') {
        end--;
    }
    if (at == region.n || end < at + 1) {
        return false;
    }
    set_pieces(form, pieces, 3);
    form->one_call = false;
    form->is_tagged = true;
    form->sep = (struct esp_lit){", ", 2};
    form->tagged = (struct esp_tagged){.quoted = true, .python = true};
    form->tagged.open = form->tagged.none = (struct esp_lit){"(", 1};
    form->tagged.begin = form->tagged.close = form->tagged.end[0] = form->tagged.end[1] = (struct esp_lit){"", 0};
    form->tagged.mid[0] = form->tagged.mid[1] = (struct esp_lit){"=", 1};
    form->tagged.sep = (struct esp_lit){", ", 2};
    bool ok = esp_probe_keep(form, esp_slice_between(region, 0, at + 1), &form->open) &&
              esp_probe_keep(form, esp_slice_between(region, end, region.n), &form->close);
    size_t lead = 0;
    while (lead < at && strchr(" \n", region.text[lead]) != NULL) {
        lead++;
    }
    form->names_open = lead == at;
    return ok && (form->names_open || esp_probe_keep(form, esp_slice_between(region, lead, at + 1), &form->trigger));
}
