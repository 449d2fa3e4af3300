/* Codes of control tokens, and the form for templates that know no tools. */
#include "frontend/form.h"

#include <string.h>

void esp_code_add(struct esp_buf *buf, uint32_t token)
{
    char code[ESP_CODE_BYTES] = {(char)0xff};
    for (uint32_t idx = 1; idx < ESP_CODE_BYTES; idx++) {
        code[idx] = (char)(0x80u | (token >> (6 * (idx - 1)) & 0x3fu));
    }
    esp_buf_add(buf, code, sizeof code);
}

uint32_t esp_code_token(const char *text)
{
    uint32_t token = 0;
    for (uint32_t idx = 1; idx < ESP_CODE_BYTES; idx++) {
        token |= ((uint32_t)(unsigned char)text[idx] & 0x3fu) << (6 * (idx - 1));
    }
    return token;
}

esp_status esp_code_text(const esp_vocab *vocab, const char *text, size_t n_bytes, struct esp_buf *buf)
{
    struct esp_span span = {text, n_bytes, true};
    struct esp_err err = {0};
    size_t cap = n_bytes + 16, at = 0;
    uint32_t *ids = esp_calloc(ESP_TAG_HTTP, cap, sizeof *ids);
    int64_t n = ids == NULL ? ESP_ENOMEM : n_bytes == 0 ? 0 : esp_tokenize(vocab, &span, 1, ids, cap, &err);
    for (int64_t idx = 0; idx < n && (size_t)idx < cap; idx++) {
        size_t n_plain = 0, n_token = 0;
        const char *plain = esp_token_bytes(vocab, ids[idx], false, &n_plain);
        const char *token = esp_token_bytes(vocab, ids[idx], true, &n_token);
        if (token == NULL || n_token == 0 || (plain != NULL && n_plain > 0)) {
            continue;
        }
        const char *found = memmem(text + at, n_bytes - at, token, n_token);
        if (found != NULL) {
            esp_buf_add(buf, text + at, (size_t)(found - text) - at);
            esp_code_add(buf, ids[idx]);
            at = (size_t)(found - text) + n_token;
        }
    }
    esp_buf_add(buf, text + at, n_bytes - at);
    esp_free(ids);
    return n < 0 ? (esp_status)n : buf->failed ? ESP_ENOMEM : ESP_OK;
}

static bool names(const struct esp_lit *lit, uint32_t token)
{
    for (uint32_t at = 0; at + ESP_CODE_BYTES <= lit->n; at++) {
        if ((unsigned char)lit->text[at] == 0xff && esp_code_token(lit->text + at) == token) {
            return true;
        }
    }
    return false;
}

bool esp_form_takes(const struct esp_form *form, uint32_t token)
{
    const struct esp_tagged *tagged = &form->tagged;
    const struct esp_lit *const lits[] = {&form->open,        &form->sep,      &form->close,    &form->think_open,
                                          &form->think_close, &tagged->open,   &tagged->begin,  &tagged->mid[0],
                                          &tagged->mid[1],    &tagged->end[0], &tagged->end[1], &tagged->sep,
                                          &tagged->close,     &tagged->none};
    bool takes = false;
    for (size_t idx = 0; idx < sizeof lits / sizeof lits[0] && !takes; idx++) {
        takes = names(lits[idx], token);
    }
    for (uint32_t idx = 0; idx < form->n_pieces && !takes; idx++) {
        takes = names(&form->pieces[idx].lit, token);
    }
    for (uint32_t idx = 0; idx < form->n_skips && !takes; idx++) {
        takes = names(&form->skips[idx], token);
    }
    return takes;
}

#define LIT(text)                                                                                                      \
    {                                                                                                                  \
        text, sizeof text - 1                                                                                          \
    }

void esp_form_generic(struct esp_form *form)
{
    static const struct esp_piece pieces[] = {
        {ESP_SLOT_LIT, LIT("<tool_call>\n{\"name\": \"")},
        {ESP_SLOT_NAME, {"", 0}},
        {ESP_SLOT_LIT, LIT("\", \"arguments\": ")},
        {ESP_SLOT_ARGS, {"", 0}},
        {ESP_SLOT_LIT, LIT("}\n</tool_call>")},
    };
    form->n_pieces = sizeof pieces / sizeof pieces[0];
    form->open = form->close = (struct esp_lit){"", 0};
    form->is_tagged = form->names_open = form->one_call = form->string_args = false;
    memcpy(form->pieces, pieces, sizeof pieces);
    form->sep = (struct esp_lit)LIT("\n");
    form->lead = (struct esp_lit)LIT("\n");
    form->trigger = (struct esp_lit)LIT("<tool_call>");
    form->whitespace = "line";
}

/* A literal for people: control tokens as ⟨id⟩, line ends as \n. */
static void show(struct esp_buf *buf, const struct esp_lit *lit)
{
    for (uint32_t at = 0; at < lit->n; at++) {
        if ((unsigned char)lit->text[at] == 0xff) {
            esp_buf_printf(buf, "(token %u)", esp_code_token(lit->text + at));
            at += ESP_CODE_BYTES - 1;
        } else if (lit->text[at] == '\n') {
            esp_buf_str(buf, "\\n");
        } else {
            esp_buf_char(buf, lit->text[at]);
        }
    }
}

void esp_form_show(const struct esp_form *form, struct esp_buf *buf)
{
    static const char *const slots[] = {"", "NAME", "ID", "INDEX", "ARGUMENTS"};
    esp_buf_str(buf, form->knows_tools ? "tools in its own form, calls as " : "tools in words, calls as ");
    show(buf, &form->open);
    for (uint32_t idx = 0; idx < form->n_pieces; idx++) {
        esp_buf_str(buf, slots[form->pieces[idx].slot]);
        show(buf, &form->pieces[idx].lit);
        if (form->pieces[idx].slot == ESP_SLOT_ARGS && form->is_tagged) {
            esp_buf_str(buf, " (");
            show(buf, &form->tagged.open);
            show(buf, &form->tagged.begin);
            esp_buf_str(buf, "KEY");
            show(buf, &form->tagged.mid[ESP_VALUE_STRING]);
            esp_buf_str(buf, "VALUE");
            show(buf, &form->tagged.end[ESP_VALUE_STRING]);
            esp_buf_str(buf, ")");
        }
    }
    esp_buf_str(buf, form->one_call ? ", one a turn" : "");
    esp_buf_str(buf, form->think_close.n > 0 ? ", reasoning up to " : ", no reasoning");
    show(buf, &form->think_close);
    if (form->drift_known && form->drift_bytes == 0) {
        esp_buf_str(buf, "; prefix-stable");
    } else if (form->drift_known) {
        struct esp_lit drift = {form->drift, (uint32_t)strlen(form->drift)};
        esp_buf_printf(buf, "; the last %zu bytes of a prompt are not in the next one, from \"", form->drift_bytes);
        show(buf, &drift);
        esp_buf_char(buf, '"');
    }
}
