/* A grammar as text for people: sizes, and each rule as an expression. Depth is cut, so nothing recurses far.
 * Thread: any; reads the immutable base only. */
#include <string.h>

#include "grammar/matcher.h"
#include "grammar/objects.h"

#define DUMP_DEPTH_MAX 40
#define DUMP_RULES_MAX 200

static void dump_expr(const struct esp_exprs *x, uint32_t id, struct esp_buf *buf, unsigned depth);

static void dump_byte(unsigned byte, struct esp_buf *buf)
{
    if (byte > 0x20 && byte < 0x7F) {
        esp_buf_char(buf, (char)byte);
    } else {
        esp_buf_printf(buf, "\\x%02X", byte);
    }
}

static void dump_set(const struct esp_exprs *x, uint32_t id, struct esp_buf *buf)
{
    struct esp_byteset set = esp_expr_byteset(x, id);
    unsigned n = 0;
    for (int word = 0; word < 4; word++) {
        n += (unsigned)__builtin_popcountll(set.w[word]);
    }
    esp_buf_str(buf, n == 1 ? "" : "[");
    for (unsigned byte = 0; byte < 256; byte++) {
        if (!esp_byteset_has(&set, byte)) {
            continue;
        }
        unsigned last = byte;
        while (last < 255 && esp_byteset_has(&set, last + 1)) {
            last++;
        }
        dump_byte(byte, buf);
        if (last > byte) {
            esp_buf_char(buf, '-');
            dump_byte(last, buf);
        }
        byte = last;
    }
    esp_buf_str(buf, n == 1 ? "" : "]");
}

static void dump_counts(const char *open, uint32_t lo, uint32_t hi, struct esp_buf *buf)
{
    esp_buf_printf(buf, "%s%u,", open, lo);
    if (hi != ESP_EXPR_INF) {
        esp_buf_printf(buf, "%u", hi);
    }
    esp_buf_char(buf, '}');
}

static void dump_number(const struct esp_exprs *x, uint32_t bounds, struct esp_buf *buf)
{
    const struct esp_bounds *b = &x->nums.bounds[bounds];
    esp_buf_str(buf, b->integer ? "<integer" : "<number");
    if (b->has_lo) {
        esp_buf_printf(buf, " >%s %s0.%.*se%lld", b->lo_open ? "" : "=", b->lo.neg ? "-" : "", (int)b->lo.n,
                       b->lo.digits, (long long)b->lo.exp);
    }
    if (b->has_hi) {
        esp_buf_printf(buf, " <%s %s0.%.*se%lld", b->hi_open ? "" : "=", b->hi.neg ? "-" : "", (int)b->hi.n,
                       b->hi.digits, (long long)b->hi.exp);
    }
    esp_buf_char(buf, '>');
}

static void dump_list(const struct esp_exprs *x, const struct esp_expr *e, struct esp_buf *buf, unsigned depth)
{
    esp_buf_char(buf, '(');
    for (uint32_t idx = 0; idx < e->b; idx++) {
        if (idx > 0) {
            esp_buf_str(buf, e->op == ESP_X_ALT ? " | " : " & ");
        }
        if (idx == 20) {
            esp_buf_printf(buf, "… %u more", e->b - idx);
            break;
        }
        dump_expr(x, x->lists[e->a + idx], buf, depth + 1);
    }
    esp_buf_char(buf, ')');
}

static void dump_keys(const struct esp_exprs *x, const struct esp_expr *e, struct esp_buf *buf, unsigned depth)
{
    uint32_t n;
    const struct esp_key *keys = esp_objects_keys(x->objects, e->a, &n);
    uint32_t free = esp_keys_free(x, e);
    if (free != ESP_EXPR_EMPTY) {
        esp_buf_str(buf, "(none of these) ");
        dump_expr(x, free, buf, depth + 1);
        return;
    }
    esp_buf_char(buf, '{');
    for (uint32_t idx = e->c; idx < n; idx++) {
        esp_buf_str(buf, idx > e->c ? " " : "");
        if (idx == e->c + 20) {
            esp_buf_printf(buf, "… %u more", n - idx);
            break;
        }
        esp_buf_add(buf, keys[idx].name, keys[idx].n_bytes);
        esp_buf_str(buf, keys[idx].required ? "!" : "");
        dump_expr(x, keys[idx].after, buf, depth + 1);
    }
    esp_buf_char(buf, '}');
}

static void dump_unique(const struct esp_exprs *x, const struct esp_expr *e, struct esp_buf *buf, unsigned depth)
{
    const struct esp_unique *u = esp_objects_unique(x->objects, e->a);
    esp_buf_str(buf, "distinct(");
    for (uint32_t idx = 0; idx < u->n && idx < 20; idx++) {
        esp_buf_str(buf, idx > 0 ? " " : "");
        dump_expr(x, u->values[idx], buf, depth + 1);
    }
    esp_buf_str(buf, u->n > 20 ? " …)" : ")");
}

static void dump_states(const struct esp_exprs *x, const struct esp_expr *e, struct esp_buf *buf, unsigned depth)
{
    if (e->op == ESP_X_UNIQUE) {
        dump_unique(x, e, buf, depth);
    } else {
        dump_keys(x, e, buf, depth);
    }
}

static void dump_not(const struct esp_exprs *x, const struct esp_expr *e, struct esp_buf *buf, unsigned depth)
{
    dump_expr(x, e->a, buf, depth + 1);
    esp_buf_str(buf, " but not ");
    dump_expr(x, e->b, buf, depth + 1);
}

static void dump_token(const struct esp_exprs *x, const struct esp_expr *e, struct esp_buf *buf)
{
    esp_buf_str(buf, "<[");
    for (uint32_t at = 0; at < e->b; at += 2) {
        uint32_t first = x->lists[e->a + at], last = x->lists[e->a + at + 1];
        esp_buf_printf(buf, first == last ? "%s%u" : "%s%u-%u", at == 0 ? "" : ",", first, last);
    }
    esp_buf_str(buf, "]>");
}

static void dump_cat(const struct esp_exprs *x, uint32_t id, struct esp_buf *buf, unsigned depth)
{
    while (x->exprs[id].op == ESP_X_CAT && !buf->failed) {
        dump_expr(x, x->exprs[id].a, buf, depth + 1);
        id = x->exprs[id].b;
    }
    dump_expr(x, id, buf, depth + 1);
}

static void dump_rep(const struct esp_exprs *x, uint32_t id, struct esp_buf *buf, unsigned depth)
{
    const struct esp_expr *e = &x->exprs[id];
    if (id == x->json_any || id == x->raw_any) {
        esp_buf_str(buf, "ANY*");
        return;
    }
    dump_expr(x, e->a, buf, depth + 1);
    dump_counts("{", e->c, e->d, buf);
}

static void dump_expr(const struct esp_exprs *x, uint32_t id, struct esp_buf *buf, unsigned depth)
{
    const struct esp_expr *e = &x->exprs[id];
    if (depth > DUMP_DEPTH_MAX || buf->failed) {
        esp_buf_str(buf, "…");
        return;
    }
    switch (e->op) {
    case ESP_X_EMPTY: esp_buf_str(buf, "nothing"); break;
    case ESP_X_EPS: esp_buf_str(buf, "\"\""); break;
    case ESP_X_SET: dump_set(x, id, buf); break;
    case ESP_X_CAT: dump_cat(x, id, buf, depth); break;
    case ESP_X_ALT:
    case ESP_X_AND: dump_list(x, e, buf, depth); break;
    case ESP_X_REP: dump_rep(x, id, buf, depth); break;
    case ESP_X_CALL: esp_buf_printf(buf, "<%u>", e->a); break;
    case ESP_X_LEN:
        dump_expr(x, e->a, buf, depth + 1);
        dump_counts("#{", e->c, e->d, buf);
        break;
    case ESP_X_NOT: dump_not(x, e, buf, depth); break;
    case ESP_X_TOKEN: dump_token(x, e, buf); break;
    case ESP_X_BUDGET:
        dump_expr(x, e->a, buf, depth + 1);
        esp_buf_printf(buf, "~%u tokens", e->b);
        break;
    case ESP_X_KEYS:
    case ESP_X_UNIQUE: dump_states(x, e, buf, depth); break;
    default: dump_number(x, e->a, buf); break;
    }
}

void esp_grammar_dump(const struct esp_grammar *grammar, struct esp_buf *buf)
{
    esp_buf_printf(buf, "rules %u, expressions %u, bytes %zu\n", grammar->n_starts, grammar->base.n_exprs,
                   esp_grammar_bytes(grammar));
    for (uint32_t node = 0; node < grammar->n_starts && node < DUMP_RULES_MAX; node++) {
        if (grammar->starts[node] != ESP_EXPR_EMPTY) {
            esp_buf_printf(buf, "<%u> = ", node);
            dump_expr(&grammar->base, grammar->starts[node], buf, 0);
            esp_buf_char(buf, '\n');
        }
    }
}
