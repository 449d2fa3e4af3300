/* Tagged arguments, turned to a JSON object as they come: raw strings are quoted, other values are handed on.
 *
 *   step   OPEN: after the name │ KEY: up to mid │ VALUE: up to end │ NEXT: another one, or the end
 *
 * The value of an argument that may be a string or not is decided when it is complete: what is JSON and no string
 * by its schema's leave is JSON. A string streams as it comes; others are sent whole.
 */
#include <string.h>

#include "frontend/gemma.h"
#include "frontend/jsontext.h"
#include "frontend/turn_internal.h"
#include "runtime/base/json.h"

enum { STEP_OPEN, STEP_KEY, STEP_VALUE, STEP_NEXT };
#define KEY_BYTES_MAX 4096u

static const struct esp_lit nothing = {"", 0};

static const struct esp_lit *tail_of(const struct esp_turn *turn)
{
    const struct esp_form *form = turn->setup.form;
    bool has = turn->piece_idx + 1 < form->n_pieces && form->pieces[turn->piece_idx + 1].slot == ESP_SLOT_LIT;
    return has ? &form->pieces[turn->piece_idx + 1].lit : &nothing;
}

static bool broken(struct esp_turn *turn)
{
    esp_turn_break(turn);
    return true;
}

/* All arguments came, and the tail with them. */
static bool end_args(struct esp_turn *turn, size_t n_bytes)
{
    esp_turn_args(turn, turn->n_args == 0 ? "{}" : "}", turn->n_args == 0 ? 2 : 1);
    esp_turn_take(turn, n_bytes);
    esp_turn_end_call(turn);
    return true;
}

/* Another argument (after one, or after open), or the end. */
static bool step_next(struct esp_turn *turn, bool final)
{
    const struct esp_tagged *tagged = &turn->setup.form->tagged;
    bool first = turn->arg_step == STEP_OPEN;
    size_t n_end = 0, n_more = 0;
    enum esp_fit end = esp_turn_fits_both(turn, first ? &tagged->none : &tagged->close, tail_of(turn), final, &n_end);
    enum esp_fit more = esp_turn_fits_both(turn, first ? &tagged->open : &tagged->sep, &tagged->begin, final, &n_more);
    if (end == ESP_FIT_YES) {
        return end_args(turn, n_end);
    }
    if (!final && end == ESP_FIT_MORE && (more == ESP_FIT_MORE || tagged->begin.n == 0)) {
        return false; /* what follows tells them apart */
    }
    if (more == ESP_FIT_YES) {
        esp_turn_take(turn, n_more);
        turn->arg_step = STEP_KEY;
        return true;
    }
    if (!final && (end == ESP_FIT_MORE || more == ESP_FIT_MORE)) {
        return false;
    }
    return final && turn->held.n == 0 ? false : broken(turn);
}

static void open_value(struct esp_turn *turn, const char *key, size_t n_bytes)
{
    struct esp_buf buf;
    esp_buf_init(&buf, ESP_TAG_HTTP, 8 * KEY_BYTES_MAX);
    esp_buf_char(&buf, turn->n_args++ == 0 ? '{' : ',');
    esp_jsontext_quote(&buf, key, n_bytes);
    esp_buf_char(&buf, ':');
    turn->arg = esp_tool_arg(turn->tool, key, n_bytes);
    esp_turn_args(turn, buf.data, buf.n);
    esp_buf_finish(&buf);
}

/* Where the key ends: the first of both mids, without white space at their ends. held.n: not yet. */
static size_t key_end(const struct esp_turn *turn)
{
    size_t begun = turn->held.n, at = turn->held.n;
    for (int idx = 0; idx < 2; idx++) {
        struct esp_lit bare = turn->setup.form->tagged.mid[idx];
        while (bare.n > 1 && strchr(" \n", bare.text[bare.n - 1]) != NULL) {
            bare.n--;
        }
        size_t found = esp_turn_seek(turn, &bare, &begun);
        at = found < at ? found : at;
    }
    return at;
}

/* The value follows: by the mid, or where both are the same by the schema, it is a string or not. */
static void open_argument(struct esp_turn *turn, size_t key_bytes, size_t n_mid, int kind)
{
    const struct esp_tagged *tagged = &turn->setup.form->tagged;
    const struct esp_lit *mid = tagged->mid;
    esp_turn_begin_call(turn);
    open_value(turn, turn->held.data, key_bytes);
    if (mid[0].n == mid[1].n && memcmp(mid[0].text, mid[1].text, mid[0].n) == 0) {
        bool is_string = turn->arg != NULL && turn->arg->kind == ESP_ARG_STRING && !tagged->quoted;
        kind = is_string ? ESP_VALUE_STRING : ESP_VALUE_OTHER;
    }
    turn->arg_value = kind;
    turn->scan = (struct esp_json_scan){0};
    esp_turn_take(turn, key_bytes + n_mid);
    turn->arg_step = STEP_VALUE;
    if (kind == ESP_VALUE_STRING) {
        esp_turn_args(turn, "\"", 1);
    }
}

static bool step_key(struct esp_turn *turn, bool final)
{
    size_t at = key_end(turn), n[2] = {0, 0};
    enum esp_fit fit[2];
    if (at == turn->held.n || at > KEY_BYTES_MAX) {
        return turn->held.n > KEY_BYTES_MAX ? broken(turn) : false;
    }
    for (int idx = 0; idx < 2; idx++) {
        fit[idx] = esp_turn_fits(turn, at, &turn->setup.form->tagged.mid[idx], final, &n[idx]);
    }
    if (!final && (fit[0] == ESP_FIT_MORE || fit[1] == ESP_FIT_MORE)) {
        return false;
    }
    bool first = fit[0] == ESP_FIT_YES && (fit[1] != ESP_FIT_YES || n[0] >= n[1]);
    int kind = first ? ESP_VALUE_STRING : ESP_VALUE_OTHER;
    if (fit[kind] != ESP_FIT_YES) {
        return broken(turn);
    }
    open_argument(turn, at, n[kind], kind);
    return true;
}

/* A raw string goes out as it comes, but for what may begin its end. */
static bool step_string(struct esp_turn *turn, bool final)
{
    size_t begun = turn->held.n;
    const struct esp_lit *end = &turn->setup.form->tagged.end[ESP_VALUE_STRING];
    size_t at = esp_turn_seek(turn, end, &begun), n = at < turn->held.n ? at : begun;
    struct esp_buf quoted;
    if (at == turn->held.n && final) {
        n = turn->held.n;
    }
    esp_buf_init(&quoted, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    esp_jsontext_quote(&quoted, turn->held.data, n);
    if (!quoted.failed) {
        esp_turn_args(turn, quoted.data + 1, quoted.n - 2);
    }
    turn->failed = turn->failed || quoted.failed;
    esp_buf_finish(&quoted);
    if (at == turn->held.n) {
        esp_turn_take(turn, n);
        return false;
    }
    esp_turn_args(turn, "\"", 1);
    esp_turn_take(turn, at + end->n);
    turn->arg_step = STEP_NEXT;
    return true;
}

/* The value as JSON: as it is, or from another notation, or as a string. */
static void send_value(struct esp_turn *turn)
{
    const struct esp_tagged *tagged = &turn->setup.form->tagged;
    const char *text = turn->value.n == 0 ? "" : turn->value.data;
    size_t n = turn->value.n;
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (int idx = 0; idx < 3; idx++) {
        if (tagged->python && n == strlen(words[idx][0]) && memcmp(text, words[idx][0], n) == 0) {
            esp_turn_args(turn, words[idx][1], strlen(words[idx][1]));
            return;
        }
    }
    struct esp_buf out;
    esp_buf_init(&out, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    json_t *parsed = json_loadb(text, n, JSON_DECODE_ANY, NULL);
    bool string_only = turn->arg != NULL && turn->arg->kind == ESP_ARG_STRING;
    if (parsed != NULL && !(json_is_string(parsed) && !tagged->quoted) && !(string_only && !tagged->quoted)) {
        esp_buf_add(&out, text, n);
    } else if (!esp_gemma_to_json(text, n, &out)) {
        esp_buf_clear(&out);
        esp_jsontext_quote(&out, text, n);
    }
    json_decref(parsed);
    turn->failed = turn->failed || out.failed;
    if (!out.failed) {
        esp_turn_args(turn, out.data, out.n);
    }
    esp_buf_finish(&out);
}

/* How many bytes of held are the value, when its end is there. */
static bool other_ends(const struct esp_turn *turn, bool final, size_t *ret_n, size_t *ret_behind)
{
    const struct esp_tagged *tagged = &turn->setup.form->tagged;
    const struct esp_lit *end = &tagged->end[ESP_VALUE_OTHER];
    size_t begun = turn->held.n, n = 0;
    const char *text = turn->held.data;
    if (end->n > 0 && !tagged->quoted) {
        n = esp_turn_seek(turn, end, &begun);
        *ret_n = n;
        *ret_behind = n + end->n;
        return n < turn->held.n;
    }
    struct esp_json_scan scan = {0};
    if (text[0] == '{' || text[0] == '[' || text[0] == '"') {
        n = esp_json_scan(&scan, text, turn->held.n);
    } else {
        while (n < turn->held.n && strchr(",)}] \n", text[n]) == NULL && (unsigned char)text[n] != 0xff) {
            n++;
        }
        scan.done = n < turn->held.n || final;
    }
    *ret_n = n;
    *ret_behind = n;
    return scan.done && n > 0;
}

static bool step_other(struct esp_turn *turn, bool final)
{
    size_t n = 0, behind = 0;
    if (!other_ends(turn, final, &n, &behind)) {
        return final ? broken(turn) : false;
    }
    esp_buf_clear(&turn->value);
    turn->failed = turn->failed || !esp_buf_add(&turn->value, turn->held.data, n);
    send_value(turn);
    esp_turn_take(turn, behind);
    turn->arg_step = STEP_NEXT;
    return true;
}

bool esp_turn_step_args(struct esp_turn *turn, bool final)
{
    if (turn->held.n == 0 && !(final && turn->arg_step == STEP_NEXT)) {
        return false;
    }
    switch (turn->arg_step) {
    case STEP_KEY: return step_key(turn, final);
    case STEP_VALUE: return turn->arg_value == ESP_VALUE_STRING ? step_string(turn, final) : step_other(turn, final);
    default: return step_next(turn, final);
    }
}
