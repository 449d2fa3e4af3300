/* The pieces of a call, one after the other, and what may come behind it.
 *
 * What the grammar lets the model write fits exactly. Without a grammar (or with another engine) white space may
 * differ and arguments may be missing; anything else is no call, and comes out as text.
 */
#include <string.h>

#include "frontend/turn_internal.h"

#define BOTH_BYTES_MAX 2048u

size_t esp_json_scan(struct esp_json_scan *scan, const char *text, size_t n_bytes)
{
    size_t at = 0;
    for (; at < n_bytes && !scan->done; at++) {
        char c = text[at];
        if (scan->in_string) {
            scan->in_string = scan->escaped || c != '"';
            scan->escaped = !scan->escaped && c == '\\';
        } else if (c == '"') {
            scan->in_string = true;
        } else if (c == '{' || c == '[') {
            scan->depth++;
        } else if ((c == '}' || c == ']') && scan->depth > 0) {
            scan->depth--;
        }
        scan->begun = true;
        scan->done = scan->depth == 0 && !scan->in_string;
    }
    return at;
}

enum esp_fit esp_turn_fits_both(const struct esp_turn *turn, const struct esp_lit *one, const struct esp_lit *other,
                                bool final, size_t *ret_n)
{
    char text[BOTH_BYTES_MAX];
    if (one->n + other->n > sizeof text) {
        return ESP_FIT_NO;
    }
    memcpy(text, one->n > 0 ? one->text : "", one->n);
    memcpy(text + one->n, other->n > 0 ? other->text : "", other->n);
    struct esp_lit both = {text, one->n + other->n};
    return esp_turn_fits(turn, 0, &both, final, ret_n);
}

static void make_id(struct esp_turn *turn)
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t bits = turn->setup.id_seed + turn->n_calls * 0x9e3779b97f4a7c15ull;
    char random[25];
    for (size_t idx = 0; idx + 1 < sizeof random; idx++) {
        bits = (bits ^ bits >> 29) * 0xbf58476d1ce4e5b9ull + idx;
        random[idx] = letters[(bits >> 33) % (sizeof letters - 1)];
    }
    random[sizeof random - 1] = '\0';
    switch (turn->setup.form->ids) {
    case ESP_ID_NINE: snprintf(turn->id, sizeof turn->id, "%.9s", random); break;
    case ESP_ID_COUNTED:
        snprintf(turn->id, sizeof turn->id, "functions.%.64s:%u", turn->tool->name,
                 turn->setup.n_calls_before + turn->n_calls);
        break;
    default: snprintf(turn->id, sizeof turn->id, "call_%s", random); break;
    }
}

void esp_turn_begin_call(struct esp_turn *turn)
{
    struct esp_part *part = esp_turn_open_part(turn);
    if (part != NULL && part->kind == ESP_PART_CALL) {
        return;
    }
    if (!turn->has_id) {
        make_id(turn);
    }
    esp_turn_begin(turn, ESP_PART_CALL);
    esp_buf_clear(&turn->raw);
    turn->raw_space = 0;
    if (turn->args.n > 0) {
        struct esp_buf args = turn->args;
        esp_buf_init(&turn->args, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
        esp_turn_args(turn, args.data, args.n);
        esp_buf_finish(&args);
    }
}

void esp_turn_args(struct esp_turn *turn, const char *text, size_t n_bytes)
{
    struct esp_part *part = esp_turn_open_part(turn);
    bool begun = part != NULL && part->kind == ESP_PART_CALL;
    if (n_bytes == 0 || turn->failed) {
        return;
    }
    if (!esp_buf_add(begun ? &part->text : &turn->args, text, n_bytes)) {
        turn->failed = true;
    } else if (begun) {
        turn->sink->piece(turn->ctx, part, part->text.data + part->text.n - n_bytes, n_bytes);
    }
}

static bool waits_for_id(const struct esp_turn *turn)
{
    const struct esp_form *form = turn->setup.form;
    bool has_slot = false;
    for (uint32_t idx = 0; idx < form->n_pieces; idx++) {
        has_slot = has_slot || form->pieces[idx].slot == ESP_SLOT_ID;
    }
    return has_slot && !turn->has_id;
}

void esp_turn_end_call(struct esp_turn *turn)
{
    esp_turn_begin_call(turn);
    esp_turn_close_part(turn);
    turn->n_calls_whole++;
    turn->state = ESP_TURN_BEHIND;
    turn->piece_idx = 0;
    turn->tool = NULL;
    turn->has_id = false;
    esp_buf_clear(&turn->raw);
    turn->raw_space = 0;
}

static bool is_name(char c, const char *more)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr(more, c) != NULL);
}

/* The bytes of a word at the beginning of held; 0 when it may go on. */
static size_t word(const struct esp_turn *turn, const char *more, bool final)
{
    size_t n = 0;
    while (n < turn->held.n && is_name(turn->held.data[n], more)) {
        n++;
    }
    return n == turn->held.n && !final ? 0 : n;
}

static bool broken(struct esp_turn *turn)
{
    esp_turn_break(turn);
    return true;
}

static bool take_name(struct esp_turn *turn, bool final)
{
    size_t n = word(turn, "_-", final);
    if (n == 0 && !final && (turn->held.n == 0 || is_name(turn->held.data[0], "_-"))) {
        return false;
    }
    turn->tool = esp_tools_find(turn->setup.tools, turn->held.data, n);
    if (turn->tool == NULL) {
        return broken(turn);
    }
    esp_turn_take(turn, n);
    turn->piece_idx++;
    return true;
}

static bool take_id(struct esp_turn *turn, bool final, bool keeps)
{
    size_t n = word(turn, "_-.:", final);
    if (n == 0 || n > ESP_CALL_ID_BYTES_MAX) {
        return n == 0 && !final && is_name(turn->held.data[0], "_-.:") ? false : broken(turn);
    }
    if (keeps) {
        memcpy(turn->id, turn->held.data, n);
        turn->id[n] = '\0';
        turn->has_id = true;
    }
    esp_turn_take(turn, n);
    turn->piece_idx++;
    return true;
}

/* {"name":"list"}: the arguments are missing where the name's quote and the object end at once. */
static bool lacks_args(struct esp_turn *turn, bool final, bool *ret_waits)
{
    const struct esp_form *form = turn->setup.form;
    uint32_t idx = turn->piece_idx;
    static const struct esp_lit quote = {"\"", 1};
    size_t n = 0;
    *ret_waits = false;
    if (form->is_tagged || idx == 0 || form->pieces[idx - 1].slot != ESP_SLOT_NAME || idx + 2 >= form->n_pieces ||
        form->pieces[idx + 1].slot != ESP_SLOT_ARGS || form->pieces[idx].lit.text[0] != '"') {
        return false;
    }
    enum esp_fit fit = esp_turn_fits_both(turn, &quote, &form->pieces[idx + 2].lit, final, &n);
    *ret_waits = fit == ESP_FIT_MORE;
    if (fit != ESP_FIT_YES) {
        return false;
    }
    esp_turn_take(turn, n);
    esp_turn_args(turn, "{}", 2);
    turn->piece_idx += 3;
    return true;
}

static bool take_literal(struct esp_turn *turn, bool final)
{
    size_t n = 0;
    bool waits = false;
    const struct esp_form *form = turn->setup.form;
    enum esp_fit fit = esp_turn_fits(turn, 0, &form->pieces[turn->piece_idx].lit, final, &n);
    if (fit == ESP_FIT_YES) {
        esp_turn_take(turn, n);
        turn->piece_idx++;
        return true;
    }
    if (lacks_args(turn, final, &waits)) {
        return true;
    }
    if ((fit == ESP_FIT_MORE || waits) && !final) {
        return false;
    }
    /* The arguments are complete: what should close the call may be cut off. */
    if (turn->scan.done && form->pieces[turn->piece_idx - 1].slot == ESP_SLOT_ARGS) {
        esp_turn_end_call(turn);
        return true;
    }
    return broken(turn);
}

static bool take_json(struct esp_turn *turn, bool final)
{
    struct esp_buf *held = &turn->held;
    if (!turn->scan.begun) {
        size_t n = 0;
        while (n < held->n && strchr(" \n\t\r", held->data[n]) != NULL) {
            n++;
        }
        esp_turn_take(turn, n);
        if (held->n == 0) {
            return false;
        }
        if (held->data[0] != '{') {
            return broken(turn);
        }
    }
    if (!waits_for_id(turn)) {
        esp_turn_begin_call(turn);
    }
    size_t n = esp_json_scan(&turn->scan, held->data, held->n);
    esp_turn_args(turn, held->data, n);
    esp_turn_take(turn, n);
    turn->piece_idx += turn->scan.done;
    return turn->scan.done;
}

static bool step_piece(struct esp_turn *turn, bool final)
{
    const struct esp_form *form = turn->setup.form;
    if (turn->piece_idx >= form->n_pieces) {
        esp_turn_end_call(turn);
        return true;
    }
    if (turn->held.n == 0) {
        return final && turn->scan.done ? take_literal(turn, true) : false;
    }
    switch (form->pieces[turn->piece_idx].slot) {
    case ESP_SLOT_LIT: return take_literal(turn, final);
    case ESP_SLOT_NAME: return take_name(turn, final);
    case ESP_SLOT_ID: return take_id(turn, final, true);
    case ESP_SLOT_INDEX: return take_id(turn, final, false);
    default: break;
    }
    if (form->is_tagged) {
        turn->state = ESP_TURN_ARGS;
        turn->arg_step = 0;
        turn->n_args = 0;
        return true;
    }
    return take_json(turn, final);
}

static void next_call(struct esp_turn *turn)
{
    turn->state = ESP_TURN_CALL;
    turn->piece_idx = 0;
    turn->tool = NULL;
    turn->scan = (struct esp_json_scan){0};
}

static bool step_behind(struct esp_turn *turn, bool final)
{
    const struct esp_form *form = turn->setup.form;
    static const struct esp_lit nothing = {"", 0};
    const struct esp_lit *head = form->pieces[0].slot == ESP_SLOT_LIT ? &form->pieces[0].lit : &nothing;
    size_t n_next = 0, n_close = 0;
    bool can_next = form->sep.n + head->n > 0, can_close = form->close.n > 0;
    enum esp_fit next = can_next ? esp_turn_fits_both(turn, &form->sep, head, final, &n_next) : ESP_FIT_NO;
    enum esp_fit close = can_close ? esp_turn_fits(turn, 0, &form->close, final, &n_close) : ESP_FIT_NO;
    if (turn->held.n == 0 ||
        (!final && next != ESP_FIT_YES && close != ESP_FIT_YES && (next == ESP_FIT_MORE || close == ESP_FIT_MORE))) {
        return false;
    }
    if (next == ESP_FIT_YES && !form->one_call) {
        size_t n_sep = 0;
        esp_turn_fits(turn, 0, &form->sep, final, &n_sep);
        next_call(turn);
        esp_turn_take(turn, n_sep);
        return true;
    }
    if (close == ESP_FIT_YES) {
        esp_turn_take(turn, n_close);
    }
    turn->state = ESP_TURN_TEXT;
    turn->trims = true;
    return true;
}

bool esp_turn_step_call(struct esp_turn *turn, bool final)
{
    size_t n = 0;
    if (turn->state == ESP_TURN_BEHIND) {
        return step_behind(turn, final);
    }
    if (turn->state == ESP_TURN_CALL) {
        return step_piece(turn, final);
    }
    const struct esp_form *form = turn->setup.form;
    /* With a bare start the first call after a text has its separator before it. */
    bool behind_text = form->bare_start && turn->held.n >= form->sep.n &&
                       memcmp(turn->held.data, form->sep.text, form->sep.n) == 0;
    const struct esp_lit *open = behind_text ? &form->sep : &form->open;
    enum esp_fit fit = open->n > 0 ? esp_turn_fits(turn, 0, open, final, &n) : ESP_FIT_YES;
    if (fit == ESP_FIT_MORE && !final) {
        return false;
    }
    if (fit != ESP_FIT_YES) {
        return broken(turn);
    }
    next_call(turn);
    esp_turn_take(turn, n);
    return true;
}
