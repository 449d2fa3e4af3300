/* Tagged arguments, from three renderings: a string before a number, the number before the string, and none.
 *
 *   NAME ─ A ─ zqkey ─ mid ─ string ─ B ─ zqnum ─ mid ─ number ─ T        A: open+begin   B: end+sep+begin
 *   NAME ─ A ─ zqnum ─ mid ─ number ─ B'─ zqkey ─ mid ─ string ─ T'       T: end+close+tail
 */
#include <string.h>

#include "frontend/probe_internal.h"

#define STRING_VALUE "zqval one"

struct row { /* of one rendering */
    struct esp_slice lead, mid[2], between, behind;
    bool quoted;
};

/* Reads a rendering whose arguments come in the order of keys. */
static bool read_row(struct esp_slice text, const char *const *keys, const char *const *values, struct row *ret_row)
{
    size_t name = esp_slice_find(text, ESP_PROBE_FIRST, 0), last = name;
    for (size_t at = name; at < text.n && at < esp_slice_find(text, keys[0], 0);
         at = esp_slice_find(text, ESP_PROBE_FIRST, at + 1)) {
        last = at;
    }
    size_t at_key[2], at_value[2], end_value[2], from = last + strlen(ESP_PROBE_FIRST);
    *ret_row = (struct row){.quoted = false};
    for (int idx = 0; idx < 2; idx++) {
        at_key[idx] = esp_slice_find(text, keys[idx], idx == 0 ? from : end_value[0]);
        at_value[idx] = esp_slice_find(text, values[idx], at_key[idx]);
        if (at_value[idx] >= text.n) {
            return false;
        }
        end_value[idx] = at_value[idx] + strlen(values[idx]);
        char mark = text.text[at_value[idx] - 1];
        if (strcmp(values[idx], STRING_VALUE) == 0 && (mark == '"' || mark == '\'') && end_value[idx] < text.n &&
            text.text[end_value[idx]] == mark) {
            ret_row->quoted = true;
            at_value[idx]--;
            end_value[idx]++;
        }
        int kind = strcmp(values[idx], STRING_VALUE) == 0 ? ESP_VALUE_STRING : ESP_VALUE_OTHER;
        ret_row->mid[kind] = esp_slice_between(text, at_key[idx] + strlen(keys[idx]), at_value[idx]);
    }
    ret_row->lead = esp_slice_between(text, from, at_key[0]);
    ret_row->between = esp_slice_between(text, end_value[0], at_key[1]);
    ret_row->behind = esp_slice_between(text, end_value[1], text.n);
    return true;
}

static bool same(struct esp_slice one, struct esp_slice other)
{
    return one.n == other.n && memcmp(one.text, other.text, one.n) == 0;
}

/* What is printed behind the name of a call without arguments, without what closes the row of calls. */
static bool read_none(const struct esp_form *form, struct esp_slice text, struct esp_slice *ret_none)
{
    size_t name = esp_slice_find(text, ESP_PROBE_FIRST, 0), last = text.n;
    while (name < text.n) {
        last = name;
        name = esp_slice_find(text, ESP_PROBE_FIRST, name + 1);
    }
    if (last == text.n) {
        return false;
    }
    *ret_none = esp_slice_between(text, last + strlen(ESP_PROBE_FIRST), text.n);
    ret_none->n = ret_none->n >= form->close.n ? ret_none->n - form->close.n : 0;
    return true;
}

bool esp_probe_tagged(struct esp_form *form, const struct esp_probe_calls *calls, struct esp_slice behind,
                      struct esp_slice *ret_tail)
{
    static const char *const keys[] = {"zqkey", "zqnum"}, *const turned_keys[] = {"zqanum", "zqkey"};
    static const char *const values[] = {STRING_VALUE, "7731"}, *const turned_values[] = {"7731", STRING_VALUE};
    struct esp_tagged *tagged = &form->tagged;
    struct row row, turned;
    struct esp_slice end_string, end_other, none;
    if (!read_row(calls->one, keys, values, &row) || !read_row(calls->turned, turned_keys, turned_values, &turned) ||
        !read_none(form, calls->none, &none)) {
        return false;
    }
    *tagged = (struct esp_tagged){.quoted = row.quoted};
    if (same(row.behind, turned.behind)) {
        end_string = end_other = esp_slice_between(behind, 0, esp_slice_prefix(row.between, behind));
    } else { /* strings and others end differently */
        size_t n = esp_slice_suffix(row.behind, turned.behind);
        end_other = esp_slice_between(row.behind, 0, row.behind.n - n);
        end_string = esp_slice_between(turned.behind, 0, turned.behind.n - n);
    }
    if (row.between.n < end_string.n || memcmp(row.between.text, end_string.text, end_string.n) != 0) {
        return false;
    }
    struct esp_slice rest = esp_slice_between(behind, end_other.n, behind.n);
    struct esp_slice more = esp_slice_between(row.between, end_string.n, row.between.n); /* sep and begin */
    size_t n_begin = esp_slice_suffix(row.lead, more), n_tail = esp_slice_suffix(rest, none);
    *ret_tail = esp_slice_between(rest, rest.n - n_tail, rest.n);
    tagged->python = esp_slice_find(row.mid[0], "=", 0) == 0 && row.lead.n > 0 && row.lead.text[0] == '(';
    const struct {
        struct esp_slice slice;
        struct esp_lit *lit;
    } kept[] = {
        {esp_slice_between(row.lead, 0, row.lead.n - n_begin), &tagged->open},
        {esp_slice_between(more, more.n - n_begin, more.n), &tagged->begin},
        {esp_slice_between(more, 0, more.n - n_begin), &tagged->sep},
        {row.mid[0], &tagged->mid[0]},
        {row.mid[1], &tagged->mid[1]},
        {end_string, &tagged->end[0]},
        {end_other, &tagged->end[1]},
        {esp_slice_between(rest, 0, rest.n - n_tail), &tagged->close},
        {esp_slice_between(none, 0, none.n - n_tail), &tagged->none},
    };
    bool ok = true;
    for (size_t idx = 0; idx < sizeof kept / sizeof kept[0] && ok; idx++) {
        ok = esp_probe_keep(form, kept[idx].slice, kept[idx].lit);
    }
    return ok;
}
