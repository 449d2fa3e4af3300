/* Text, reasoning, and where calls begin. Parts are made one after the other; only the last one can be open. */
#include <string.h>

#include "frontend/turn_internal.h"

void esp_turn_init(struct esp_turn *turn, const struct esp_turn_setup *setup, const struct esp_turn_sink *sink,
                   void *ctx)
{
    *turn = (struct esp_turn){.sink = sink, .ctx = ctx, .setup = *setup};
    esp_buf_init(&turn->held, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    esp_buf_init(&turn->raw, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    esp_buf_init(&turn->args, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    esp_buf_init(&turn->value, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    turn->state = setup->thinking ? ESP_TURN_THINK : ESP_TURN_START;
    turn->trims = setup->thinking;
}

void esp_turn_finish(struct esp_turn *turn)
{
    for (uint32_t idx = 0; idx < turn->n_parts; idx++) {
        esp_buf_finish(&turn->parts[idx]->text);
        esp_free(turn->parts[idx]);
    }
    esp_free(turn->parts);
    turn->parts = NULL;
    turn->n_parts = 0;
    esp_buf_finish(&turn->held);
    esp_buf_finish(&turn->raw);
    esp_buf_finish(&turn->args);
    esp_buf_finish(&turn->value);
}

/* ---- Parts -------------------------------------------------------------------------------------- */

struct esp_part *esp_turn_open_part(const struct esp_turn *turn)
{
    struct esp_part *last = turn->n_parts > 0 ? turn->parts[turn->n_parts - 1] : NULL;
    return last != NULL && !last->ended ? last : NULL;
}

void esp_turn_close_part(struct esp_turn *turn)
{
    struct esp_part *part = esp_turn_open_part(turn);
    if (part != NULL) {
        part->ended = true;
        turn->sink->end(turn->ctx, part);
    }
}

struct esp_part *esp_turn_begin(struct esp_turn *turn, enum esp_part_kind kind)
{
    esp_turn_close_part(turn);
    if (turn->parts == NULL) {
        turn->parts = esp_calloc(ESP_TAG_HTTP, ESP_PARTS_MAX, sizeof(struct esp_part *));
    }
    bool fine = turn->parts != NULL && turn->n_parts < ESP_PARTS_MAX;
    struct esp_part *part = fine ? esp_calloc(ESP_TAG_HTTP, 1, sizeof *part) : NULL;
    if (part == NULL) {
        turn->failed = true;
        return NULL;
    }
    part->kind = kind;
    part->index = turn->n_parts;
    esp_buf_init(&part->text, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    if (kind == ESP_PART_CALL) {
        part->call_index = turn->n_calls++;
        memcpy(part->id, turn->id, sizeof part->id);
        snprintf(part->name, sizeof part->name, "%s", turn->tool->name);
    }
    turn->parts[turn->n_parts++] = part;
    turn->sink->begin(turn->ctx, part);
    return part;
}

static void add_plain(struct esp_turn *turn, enum esp_part_kind kind, const char *text, size_t n_bytes)
{
    struct esp_part *part = esp_turn_open_part(turn);
    if (n_bytes == 0 || turn->failed) {
        return;
    }
    if (part == NULL || part->kind != kind) {
        part = esp_turn_begin(turn, kind);
    }
    if (part == NULL || !esp_buf_add(&part->text, text, n_bytes)) {
        turn->failed = true;
        return;
    }
    turn->sink->piece(turn->ctx, part, part->text.data + part->text.n - n_bytes, n_bytes);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Text or reasoning, without the codes of control tokens, and without the white space that is to be dropped. */
static void add_text(struct esp_turn *turn, enum esp_part_kind kind, const char *text, size_t n_bytes)
{
    size_t from = 0;
    while (turn->trims && from < n_bytes && is_space(text[from])) {
        from++;
    }
    for (size_t at = from; at <= n_bytes; at++) {
        if (at == n_bytes || (unsigned char)text[at] == 0xff) {
            add_plain(turn, kind, text + from, at - from);
            turn->trims = turn->trims && at == from;
            from = at + ESP_CODE_BYTES;
            at = at < n_bytes ? from - 1 : at;
        }
    }
}

void esp_turn_take(struct esp_turn *turn, size_t n_bytes)
{
    struct esp_buf *held = &turn->held;
    bool keeps = turn->state >= ESP_TURN_OPEN && turn->state != ESP_TURN_BEHIND;
    struct esp_part *part = esp_turn_open_part(turn);
    if (n_bytes == 0) {
        return;
    }
    if (keeps && (part == NULL || part->kind != ESP_PART_CALL)) {
        esp_buf_add(&turn->raw, held->data, n_bytes);
    }
    held->n -= n_bytes;
    memmove(held->data, held->data + n_bytes, held->n + 1);
}

/* ---- Markers ------------------------------------------------------------------------------------ */

/* White space may come where a literal has none: between the tokens of JSON. */
static bool may_space(const struct esp_lit *lit, size_t idx)
{
    return idx == 0 || is_space(lit->text[idx - 1]) || strchr("{}[]:,\">", lit->text[idx - 1]) != NULL;
}

enum esp_fit esp_turn_fits(const struct esp_turn *turn, size_t from, const struct esp_lit *lit, bool final,
                           size_t *ret_n)
{
    size_t at = from, idx = 0, last = lit->n;
    const char *text = turn->held.data;
    while (last > 0 && is_space(lit->text[last - 1])) {
        last--;
    }
    while (idx < lit->n && at < turn->held.n) {
        if (text[at] == lit->text[idx]) {
            at++;
            idx++;
        } else if (is_space(lit->text[idx])) {
            idx++;
        } else if (is_space(text[at]) && may_space(lit, idx)) {
            at++;
        } else {
            return ESP_FIT_NO;
        }
    }
    *ret_n = at - from;
    return idx == lit->n || (final && idx >= last) ? ESP_FIT_YES : ESP_FIT_MORE;
}

size_t esp_turn_seek(const struct esp_turn *turn, const struct esp_lit *lit, size_t *begun)
{
    const char *text = turn->held.data;
    size_t n = turn->held.n;
    for (size_t at = 0; lit->n > 0 && at < n; at++) {
        size_t left = n - at < lit->n ? n - at : lit->n;
        if (memcmp(text + at, lit->text, left) == 0) {
            if (left == lit->n) {
                return at;
            }
            *begun = at < *begun ? at : *begun;
            return n;
        }
    }
    return n;
}

static bool wants_calls(const struct esp_turn *turn)
{
    const struct esp_tools *tools = turn->setup.tools;
    return tools != NULL && tools->choice != ESP_TOOLS_NONE;
}

struct found {
    size_t at, n; /* the first marker; at = held.n: none */
    size_t begun; /* where the beginning of one may be */
    enum esp_turn_state state;
};

static void look(const struct esp_turn *turn, struct found *found, const struct esp_lit *lit, enum esp_turn_state state)
{
    size_t at = esp_turn_seek(turn, lit, &found->begun);
    if (at < found->at) {
        found->at = at;
        found->n = lit->n;
        found->state = state;
    }
}

/* A trigger made of the opening and a tool's name. */
static void look_for_names(const struct esp_turn *turn, struct found *found)
{
    const struct esp_form *form = turn->setup.form;
    for (uint32_t idx = 0; idx < turn->setup.tools->n; idx++) {
        const struct esp_tool *tool = &turn->setup.tools->items[idx];
        char text[256];
        bool after_text = turn->state != ESP_TURN_START;
        const struct esp_lit *open = form->bare_start && after_text ? &form->sep : &form->open;
        int n = snprintf(text, sizeof text, "%.*s%s%s", (int)open->n, open->text, tool->name,
                         form->bare_start ? "\n" : "(");
        if (tool->allowed && n > 0 && n < (int)sizeof text) {
            struct esp_lit lit = {text, (uint32_t)n};
            look(turn, found, &lit, ESP_TURN_OPEN);
        }
    }
}

static void look_for_all(const struct esp_turn *turn, struct found *found)
{
    const struct esp_form *form = turn->setup.form;
    *found = (struct found){.at = turn->held.n, .begun = turn->held.n};
    if (turn->state == ESP_TURN_THINK) {
        look(turn, found, &form->think_close, ESP_TURN_TEXT);
        return;
    }
    if (turn->state == ESP_TURN_START) {
        look(turn, found, &form->think_open, ESP_TURN_THINK);
        look(turn, found, &form->all, ESP_TURN_TEXT);
    }
    for (uint32_t idx = 0; idx < form->n_skips; idx++) {
        look(turn, found, &form->skips[idx], ESP_TURN_TEXT);
    }
    if (wants_calls(turn)) {
        if (form->names_open || form->bare_start) {
            look_for_names(turn, found);
        } else {
            look(turn, found, &form->trigger, ESP_TURN_OPEN);
        }
    }
}

/* How many bytes before `end` are not white space that a marker, or one that may come, would swallow. */
static size_t solid(const struct esp_turn *turn, size_t end)
{
    bool swallows = turn->state != ESP_TURN_TEXT || wants_calls(turn);
    while (swallows && end > 0 && is_space(turn->held.data[end - 1])) {
        end--;
    }
    return end;
}

/* A call may begin here: what was before it went out, but for the white space, which is kept with it. */
static void open_call(struct esp_turn *turn, size_t n_out, size_t end)
{
    esp_turn_take(turn, n_out);
    turn->piece_idx = 0;
    turn->raw_space = esp_turn_open_part(turn) == NULL ? 0 : end - n_out;
    turn->state = ESP_TURN_OPEN;
    esp_turn_take(turn, end - n_out);
    turn->raw.n = turn->raw_space;
}

/* In text and reasoning: what comes before a marker goes out; without one, all that cannot begin one. */
static bool step_plain(struct esp_turn *turn, bool final)
{
    struct found found;
    enum esp_part_kind kind = turn->state == ESP_TURN_THINK ? ESP_PART_REASONING : ESP_PART_TEXT;
    look_for_all(turn, &found);
    bool begun = found.begun <= found.at && found.begun < turn->held.n && !final;
    bool got = found.at < turn->held.n && !begun;
    size_t end = begun ? found.begun : found.at;
    size_t n_out = got || !final ? solid(turn, end) : end;
    if (n_out > 0 && turn->state == ESP_TURN_START) {
        turn->state = ESP_TURN_TEXT;
        return true; /* it does not begin with reasoning: look again */
    }
    add_text(turn, kind, turn->held.data, n_out);
    if (!got) {
        esp_turn_take(turn, n_out);
        return false;
    }
    if (found.state == ESP_TURN_OPEN) {
        open_call(turn, n_out, end);
        return true;
    }
    esp_turn_take(turn, end + found.n);
    esp_turn_close_part(turn);
    turn->state = found.state;
    turn->trims = true;
    return true;
}

void esp_turn_break(struct esp_turn *turn)
{
    struct esp_part *open = esp_turn_open_part(turn);
    bool is_call = open != NULL && open->kind == ESP_PART_CALL;
    if (turn->raw.n == turn->raw_space && !is_call) {
        /* Not even the trigger was taken: it is text, or it would be found again. */
        size_t n = turn->setup.form->trigger.n > 0 ? turn->setup.form->trigger.n : 1;
        esp_turn_take(turn, n < turn->held.n ? n : turn->held.n);
    }
    struct esp_buf raw = turn->raw;
    esp_buf_init(&turn->raw, ESP_TAG_HTTP, ESP_PART_BYTES_MAX);
    if (is_call) {
        esp_turn_close_part(turn);
    }
    turn->state = ESP_TURN_TEXT;
    turn->trims = false;
    turn->raw_space = 0;
    esp_buf_clear(&turn->args);
    add_text(turn, ESP_PART_TEXT, raw.n == 0 ? "" : raw.data, raw.n);
    turn->failed = turn->failed || raw.failed;
    esp_buf_finish(&raw);
}

static bool step(struct esp_turn *turn, bool final)
{
    switch (turn->state) {
    case ESP_TURN_START:
    case ESP_TURN_THINK:
    case ESP_TURN_TEXT: return step_plain(turn, final);
    case ESP_TURN_ARGS: return esp_turn_step_args(turn, final);
    default: return esp_turn_step_call(turn, final);
    }
}

void esp_turn_text(struct esp_turn *turn, const char *text, size_t n_bytes)
{
    if (turn->setup.form == NULL) {
        add_plain(turn, ESP_PART_TEXT, text, n_bytes);
        return;
    }
    if (n_bytes == 0 || turn->failed || !esp_buf_add(&turn->held, text, n_bytes)) {
        turn->failed = turn->failed || turn->held.failed;
        return;
    }
    while (turn->held.n > 0 && !turn->failed && step(turn, false)) {
    }
}

void esp_turn_end(struct esp_turn *turn)
{
    while (turn->setup.form != NULL && !turn->failed && step(turn, true)) {
    }
    if (turn->raw.n > turn->raw_space) { /* a call that had not even a name yet */
        esp_turn_break(turn);
    }
    esp_turn_close_part(turn);
}

void esp_turn_join(const struct esp_turn *turn, enum esp_part_kind kind, struct esp_buf *buf)
{
    for (uint32_t idx = 0; idx < turn->n_parts; idx++) {
        const struct esp_part *part = turn->parts[idx];
        if (part->kind == kind && part->text.n > 0) {
            esp_buf_add(buf, part->text.data, part->text.n);
        }
    }
}
