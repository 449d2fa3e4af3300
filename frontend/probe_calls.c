/* The pieces of a call, from what a template printed of two of them.
 *
 *   before ─ NAME ─ … ─ ARGS ─ between ─ NAME ─ … ─ ARGS ─ behind
 *   open+head           tail+sep+head                      tail+close
 *
 * What between and behind begin with is the tail; what the rest of between and before end with is the head.
 */
#include <string.h>

#include "frontend/probe_internal.h"
#include "frontend/turn_internal.h"

struct esp_slice esp_slice_between(struct esp_slice whole, size_t from, size_t to)
{
    return to > from ? (struct esp_slice){whole.text + from, to - from} : (struct esp_slice){whole.text, 0};
}

size_t esp_slice_find(struct esp_slice whole, const char *text, size_t from)
{
    const char *found = from >= whole.n ? NULL : memmem(whole.text + from, whole.n - from, text, strlen(text));
    return found == NULL ? whole.n : (size_t)(found - whole.text);
}

static bool is_inner(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* A tag that is open at the end of the first n bytes begins here; else n. */
size_t esp_slice_tag(struct esp_slice slice, size_t n)
{
    for (size_t at = n; at-- > 0;) {
        if (slice.text[at] == '>' || (unsigned char)slice.text[at] == 0xff) {
            break;
        }
        if (slice.text[at] == '<') {
            return at;
        }
    }
    return n;
}

size_t esp_slice_prefix(struct esp_slice one, struct esp_slice other)
{
    size_t n = 0;
    while (n < one.n && n < other.n && one.text[n] == other.text[n]) {
        n++;
    }
    bool whole = n == one.n || n == other.n;
    while (n > 0 && ((n < one.n && is_inner(one.text[n])) || (n < other.n && is_inner(other.text[n])))) {
        n--;
    }
    return whole ? n : esp_slice_tag(one, n);
}

size_t esp_slice_suffix(struct esp_slice one, struct esp_slice other)
{
    size_t n = 0;
    while (n < one.n && n < other.n && one.text[one.n - n - 1] == other.text[other.n - n - 1]) {
        n++;
    }
    while (n > 0 && is_inner(one.text[one.n - n])) {
        n--;
    }
    return n;
}

bool esp_probe_keep(struct esp_form *form, struct esp_slice slice, struct esp_lit *ret_lit)
{
    char *copy = esp_arena_strndup(&form->arena, slice.n == 0 ? "" : slice.text, slice.n);
    if (copy != NULL) {
        *ret_lit = (struct esp_lit){copy, (uint32_t)slice.n};
    }
    return copy != NULL;
}

/* ---- Slots -------------------------------------------------------------------------------------- */

struct slot {
    enum esp_slot kind;
    size_t at, end;
};
#define SLOTS_MAX 6u

/* The JSON object around the first key at or after from. */
static bool json_slot(struct esp_slice text, size_t from, size_t limit, struct slot *ret_slot)
{
    size_t key = esp_slice_find(text, "\"zqkey\"", from);
    size_t at = key;
    struct esp_json_scan scan = {0};
    if (key >= limit) {
        return false;
    }
    while (at > from && text.text[at - 1] != '{') {
        at--;
    }
    if (at == from) {
        return false;
    }
    size_t n = esp_json_scan(&scan, text.text + at - 1, text.n - at + 1);
    json_t *value = scan.done ? json_loadb(text.text + at - 1, n, 0, NULL) : NULL;
    bool fits = json_object_size(value) == 2 && json_is_integer(json_object_get(value, "zqnum"));
    json_decref(value);
    *ret_slot = (struct slot){ESP_SLOT_ARGS, at - 1, at - 1 + n};
    return fits;
}

static void add_slot(struct slot *slots, uint32_t *n_slots, struct slot slot)
{
    uint32_t at = *n_slots;
    if (at == SLOTS_MAX) {
        return;
    }
    for (; at > 0 && slots[at - 1].at > slot.at; at--) {
        slots[at] = slots[at - 1];
    }
    slots[at] = slot;
    (*n_slots)++;
}

/* The slots of one call between from and limit, in their order. Tagged arguments end where limit is. */
static bool find_slots(struct esp_form *form, struct esp_slice text, size_t from, size_t limit, const char *name,
                       const char *id, struct slot *slots, uint32_t *ret_n)
{
    struct slot args;
    uint32_t n = 0;
    for (size_t at = esp_slice_find(text, name, from); at < limit; at = esp_slice_find(text, name, at + 1)) {
        add_slot(slots, &n, (struct slot){ESP_SLOT_NAME, at, at + strlen(name)});
    }
    size_t at_id = esp_slice_find(text, id, from);
    if (at_id < limit) {
        add_slot(slots, &n, (struct slot){ESP_SLOT_ID, at_id, at_id + strlen(id)});
    }
    form->is_tagged = !json_slot(text, from, limit, &args);
    if (!form->is_tagged) {
        add_slot(slots, &n, args);
    }
    bool has_name = false;
    for (uint32_t idx = 0; idx < n; idx++) {
        has_name = has_name || slots[idx].kind == ESP_SLOT_NAME;
    }
    *ret_n = n;
    return has_name;
}

static void find_whitespace(struct esp_form *form, struct esp_slice args)
{
    bool is_pretty = esp_slice_find(args, "\n", 0) < args.n;
    form->whitespace = is_pretty ? "pretty" : esp_slice_find(args, ", ", 0) < args.n ? "line" : "compact";
}

/* ---- Pieces ------------------------------------------------------------------------------------- */

static bool add_piece(struct esp_form *form, enum esp_slot kind, struct esp_slice text)
{
    if (kind == ESP_SLOT_LIT && text.n == 0) {
        return true;
    }
    if (form->n_pieces == ESP_PIECES_MAX) {
        return false;
    }
    struct esp_piece *piece = &form->pieces[form->n_pieces++];
    *piece = (struct esp_piece){.slot = kind, .lit = {"", 0}};
    return kind != ESP_SLOT_LIT || esp_probe_keep(form, text, &piece->lit);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A literal that differs between two calls in one number, which counts them. */
static bool add_counted(struct esp_form *form, struct esp_slice one, struct esp_slice other)
{
    size_t n = 0;
    while (n < one.n && n < other.n && one.text[n] == other.text[n]) {
        n++;
    }
    if (n == one.n && n == other.n) {
        return add_piece(form, ESP_SLOT_LIT, one);
    }
    bool counts = one.n == other.n && n < one.n && is_digit(one.text[n]) && is_digit(other.text[n]) &&
                  memcmp(one.text + n + 1, other.text + n + 1, one.n - n - 1) == 0;
    return counts && add_piece(form, ESP_SLOT_LIT, esp_slice_between(one, 0, n)) &&
           add_piece(form, ESP_SLOT_INDEX, one) && add_piece(form, ESP_SLOT_LIT, esp_slice_between(one, n + 1, one.n));
}

/* open and head, sep and head: what before and the rest of between end with. A number in front of it counts. */
static bool add_head(struct esp_form *form, struct esp_slice before, struct esp_slice rest)
{
    size_t n = esp_slice_suffix(before, rest), n_number = 0, n_more = 0;
    struct esp_slice head = {before.text + before.n - n, n}, more = {before.text, 0};
    if (n < before.n && n < rest.n && is_digit(before.text[before.n - n - 1]) && is_digit(rest.text[rest.n - n - 1])) {
        n_number = 1;
        struct esp_slice left = {before.text, before.n - n - 1}, left_rest = {rest.text, rest.n - n - 1};
        n_more = esp_slice_suffix(left, left_rest);
        more = (struct esp_slice){left.text + left.n - n_more, n_more};
    }
    size_t used = n + n_number + n_more;
    return esp_probe_keep(form, esp_slice_between(before, 0, before.n - used), &form->open) &&
           esp_probe_keep(form, esp_slice_between(rest, 0, rest.n - used), &form->sep) &&
           add_piece(form, ESP_SLOT_LIT, more) && (n_number == 0 || add_piece(form, ESP_SLOT_INDEX, more)) &&
           add_piece(form, ESP_SLOT_LIT, head);
}

/* A control token, a tag or a bracketed word that text begins with; else all of it. */
static struct esp_slice first_mark(struct esp_slice text)
{
    size_t tag = esp_slice_find(text, ">", 0), bracket = esp_slice_find(text, "]", 0);
    if (text.n > 0 && (unsigned char)text.text[0] == 0xff) {
        text.n = ESP_CODE_BYTES;
    } else if (text.n > 0 && text.text[0] == '[' && bracket < text.n && bracket > 1) {
        text.n = bracket + 1;
    } else if (tag < text.n) {
        text.n = tag + 1;
    }
    return text;
}

/* What begins the first call: the first mark of what stands before the name. */
static bool find_trigger(struct esp_form *form)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, 64u * 1024u);
    esp_buf_add(&buf, form->open.text, form->open.n);
    if (form->n_pieces > 0 && form->pieces[0].slot == ESP_SLOT_LIT) {
        esp_buf_add(&buf, form->pieces[0].lit.text, form->pieces[0].lit.n);
    }
    size_t from = 0;
    while (from < buf.n && strchr(" \n", buf.data[from]) != NULL) {
        from++;
    }
    struct esp_slice text = first_mark((struct esp_slice){buf.n == 0 ? "" : buf.data + from, buf.n - from});
    form->names_open = text.n < 2 && form->is_tagged && form->tagged.open.n > 0 && form->tagged.open.text[0] == '(';
    bool ok = form->names_open || (text.n >= 2 && esp_probe_keep(form, text, &form->trigger));
    esp_buf_finish(&buf);
    return ok;
}

/* Between the slots of the first call, which those of the second must resemble; the arguments are one of them. */
static bool add_inner(struct esp_form *form, struct esp_slice text, const struct slot *first, const struct slot *second,
                      uint32_t n_slots)
{
    bool ok = true;
    for (uint32_t idx = 0; idx < n_slots && ok; idx++) {
        ok = first[idx].kind == second[idx].kind && add_piece(form, first[idx].kind, text);
        if (idx + 1 < n_slots && ok) {
            ok = add_counted(form, esp_slice_between(text, first[idx].end, first[idx + 1].at),
                             esp_slice_between(text, second[idx].end, second[idx + 1].at));
        }
    }
    return ok;
}

/* The arguments are in the pieces now: their white space, or the piece of tagged ones, and then the tail. */
static bool finish_pieces(struct esp_form *form, const struct esp_probe_calls *calls, struct esp_slice text,
                          const struct slot *slots, uint32_t n_slots, struct esp_slice tail)
{
    if (form->is_tagged) {
        return add_piece(form, ESP_SLOT_ARGS, text) && esp_probe_tagged(form, calls, tail, &tail) &&
               add_piece(form, ESP_SLOT_LIT, tail);
    }
    for (uint32_t idx = 0; idx < n_slots; idx++) {
        if (slots[idx].kind == ESP_SLOT_ARGS) {
            find_whitespace(form, esp_slice_between(text, slots[idx].at, slots[idx].end));
        }
    }
    return add_piece(form, ESP_SLOT_LIT, tail);
}

/* Where the slots of a call end: with tagged arguments, behind the last value. */
static size_t slots_end(const struct esp_form *form, struct esp_slice text, const struct slot *slots, uint32_t n_slots,
                        const char *value)
{
    return form->is_tagged ? esp_slice_find(text, value, 0) + strlen(value) : slots[n_slots - 1].end;
}

static bool two_calls(struct esp_form *form, const struct esp_probe_calls *calls)
{
    struct slot first[SLOTS_MAX], second[SLOTS_MAX];
    struct esp_slice text = calls->two;
    uint32_t n_first = 0, n_second = 0;
    /* The second call begins with its id or its name. */
    size_t limit = esp_slice_find(text, ESP_PROBE_SECOND, 0), id = esp_slice_find(text, "zqid00002", 0);
    limit = id < limit && id > esp_slice_find(text, "7731", 0) ? id : limit;
    if (limit == text.n || !find_slots(form, text, 0, limit, ESP_PROBE_FIRST, "zqid00001", first, &n_first) ||
        !find_slots(form, text, limit, text.n, ESP_PROBE_SECOND, "zqid00002", second, &n_second) ||
        n_first != n_second) {
        return false;
    }
    struct esp_slice before = esp_slice_between(text, 0, first[0].at);
    struct esp_slice between = esp_slice_between(text, slots_end(form, text, first, n_first, "7731"), second[0].at);
    struct esp_slice behind = esp_slice_between(text, slots_end(form, text, second, n_first, "7732"), text.n);
    size_t n_tail = esp_slice_prefix(between, behind);
    return add_head(form, before, esp_slice_between(between, n_tail, between.n)) &&
           add_inner(form, text, first, second, n_first) &&
           esp_probe_keep(form, esp_slice_between(behind, n_tail, behind.n), &form->close) &&
           finish_pieces(form, calls, text, first, n_first, esp_slice_between(between, 0, n_tail));
}

static bool one_call(struct esp_form *form, const struct esp_probe_calls *calls)
{
    struct slot slots[SLOTS_MAX];
    struct esp_slice text = calls->one;
    uint32_t n_slots = 0;
    form->one_call = true;
    if (!find_slots(form, text, 0, text.n, ESP_PROBE_FIRST, "zqid00001", slots, &n_slots)) {
        return false;
    }
    size_t end = slots_end(form, text, slots, n_slots, "7731");
    return end <= text.n && add_piece(form, ESP_SLOT_LIT, esp_slice_between(text, 0, slots[0].at)) &&
           add_inner(form, text, slots, slots, n_slots) &&
           finish_pieces(form, calls, text, slots, n_slots, esp_slice_between(text, end, text.n));
}

/* A literal with one of the probe's own words in it would be wrong for all others. */
static bool is_clean(const struct esp_form *form)
{
    const struct esp_tagged *tagged = &form->tagged;
    const struct esp_lit *const lits[] = {&form->open,     &form->sep,      &form->close,    &tagged->open,
                                          &tagged->begin,  &tagged->mid[0], &tagged->mid[1], &tagged->end[0],
                                          &tagged->end[1], &tagged->sep,    &tagged->close,  &tagged->none};
    bool clean = true;
    for (size_t idx = 0; idx < sizeof lits / sizeof lits[0]; idx++) {
        clean = clean && (lits[idx]->n == 0 || memmem(lits[idx]->text, lits[idx]->n, "zq", 2) == NULL);
    }
    for (uint32_t idx = 0; idx < form->n_pieces; idx++) {
        const struct esp_lit *lit = &form->pieces[idx].lit;
        clean = clean && (lit->n == 0 || memmem(lit->text, lit->n, "zq", 2) == NULL);
    }
    return clean;
}

bool esp_probe_form(struct esp_form *form, const struct esp_probe_calls *calls)
{
    form->n_pieces = 0;
    form->open = form->sep = form->close = (struct esp_lit){"", 0};
    form->whitespace = "line";
    bool ok = calls->two.n > 0 ? two_calls(form, calls) : one_call(form, calls);
    return ok && is_clean(form) && find_trigger(form);
}
