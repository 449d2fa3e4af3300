/* Keywords that assert something about a number, a string or a count. See schema_read.h. Thread: the owner's. */
#include <string.h>

#include "grammar/regex.h"
#include "grammar/schema_read.h"

/* ---- Numbers ----------------------------------------------------------------------------------- */

static esp_status decimal(struct esp_schema *s, const struct esp_jv *v, struct esp_decimal *ret)
{
    esp_status status = esp_schema_want(s, v, v->type == ESP_JV_NUMBER, "a number");
    if (status != ESP_OK) {
        return status;
    }
    char *room = esp_arena_alloc(&s->arena, v->n_bytes + 1, 1);
    if (room == NULL) {
        return esp_schema_memory(s);
    }
    esp_decimal_parse(v->text, v->n_bytes, room, ret);
    return ESP_OK;
}

/* Takes the narrower of two lower or upper bounds. */
static void narrow(struct esp_leaf *leaf, bool lower, const struct esp_decimal *d, bool open, const struct esp_jv *v)
{
    struct esp_bounds *b = &leaf->bounds;
    bool has = lower ? b->has_lo : b->has_hi;
    int order = has ? esp_decimal_compare(d, lower ? &b->lo : &b->hi) : 0;
    if (has && (lower ? order < 0 : order > 0)) {
        return;
    }
    if (lower) {
        b->lo_open = open || (has && order == 0 && b->lo_open);
        b->lo = *d;
        b->has_lo = true;
        leaf->min_at = v;
    } else {
        b->hi_open = open || (has && order == 0 && b->hi_open);
        b->hi = *d;
        b->has_hi = true;
        leaf->max_at = v;
    }
}

static esp_status read_bound(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v, bool lower,
                             const char *twin)
{
    struct esp_decimal d;
    esp_status status = decimal(s, v, &d);
    if (status == ESP_OK) {
        /* draft-04: the exclusive twin is a boolean beside it. */
        const struct esp_jv *exclusive = esp_jv_find(leaf->self, twin);
        narrow(leaf, lower, &d, exclusive != NULL && exclusive->type == ESP_JV_TRUE, v);
    }
    return status;
}

esp_status esp_schema_read_minimum(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_bound(s, leaf, v, true, "exclusiveMinimum");
}

esp_status esp_schema_read_maximum(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_bound(s, leaf, v, false, "exclusiveMaximum");
}

static esp_status read_exclusive(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v, bool lower)
{
    struct esp_decimal d;
    if (esp_schema_is_bool(v) && (!s->draft_given || s->draft == ESP_DRAFT4)) {
        return ESP_OK;
    }
    if (s->draft_given && s->draft == ESP_DRAFT4) {
        return esp_schema_want(s, v, false, "a boolean");
    }
    esp_status status = decimal(s, v, &d);
    if (status == ESP_OK) {
        narrow(leaf, lower, &d, true, v);
    }
    return status;
}

esp_status esp_schema_read_exclusive_minimum(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_exclusive(s, leaf, v, true);
}

esp_status esp_schema_read_exclusive_maximum(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_exclusive(s, leaf, v, false);
}

esp_status esp_schema_read_multiple(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    struct esp_decimal d;
    esp_status status = decimal(s, v, &d);
    if (status == ESP_OK && (d.neg || d.n == 0)) {
        return esp_schema_fail(s, ESP_EINVAL, v, "must be above zero");
    }
    if (status == ESP_OK) {
        leaf->bounds.step = d;
        leaf->min_at = leaf->min_at == NULL ? v : leaf->min_at;
    }
    return status;
}

/* ---- Counts ------------------------------------------------------------------------------------ */

/* A count; larger ones than the counters hold mean "never reached". */
static esp_status count(struct esp_schema *s, const struct esp_jv *v, uint32_t *ret)
{
    struct esp_decimal d;
    uint64_t value = ESP_EXPR_INF - 1;
    esp_status status = decimal(s, v, &d);
    if (status != ESP_OK) {
        return status;
    }
    if (d.neg || !esp_decimal_is_integer(&d)) {
        return esp_schema_fail(s, ESP_EINVAL, v, "must be a non-negative integer");
    }
    esp_decimal_uint(&d, ESP_EXPR_INF - 2, &value);
    *ret = (uint32_t)value;
    return ESP_OK;
}

static esp_status read_min(struct esp_schema *s, const struct esp_jv *v, uint32_t *slot)
{
    return count(s, v, slot);
}

static esp_status read_max(struct esp_schema *s, const struct esp_jv *v, uint32_t *slot)
{
    esp_status status = count(s, v, slot);
    if (status == ESP_OK && *slot == ESP_EXPR_INF - 1) {
        *slot = ESP_EXPR_INF;
    }
    return status;
}

esp_status esp_schema_read_min_items(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_min(s, v, &leaf->min_items);
}
esp_status esp_schema_read_max_items(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_max(s, v, &leaf->max_items);
}
esp_status esp_schema_read_min_contains(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_min(s, v, &leaf->contains_min);
}
esp_status esp_schema_read_max_contains(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_max(s, v, &leaf->contains_max);
}
esp_status esp_schema_read_min_members(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->min_members_at = v;
    return read_min(s, v, &leaf->min_members);
}
esp_status esp_schema_read_max_members(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_max(s, v, &leaf->max_members);
}
esp_status esp_schema_read_min_length(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_min(s, v, &leaf->min_chars);
}
esp_status esp_schema_read_max_length(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return read_max(s, v, &leaf->max_chars);
}

/* ---- Strings ----------------------------------------------------------------------------------- */

esp_status esp_schema_read_pattern(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    struct esp_err err = {0};
    esp_status status = esp_schema_want(s, v, v->type == ESP_JV_STRING, "a string");
    if (status != ESP_OK) {
        return status;
    }
    status = esp_regex_compile(s->x, s->spelling, true, v->text, v->n_bytes, &leaf->pattern, &err);
    leaf->never_text = leaf->pattern == ESP_EXPR_EMPTY;
    return status == ESP_OK ? status : esp_schema_fail(s, status, v, "%s", err.message);
}

esp_status esp_schema_read_format(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    esp_status status = esp_schema_want(s, v, v->type == ESP_JV_STRING, "a string");
    if (status != ESP_OK) {
        return status;
    }
    uint32_t format = esp_schema_format(s, v);
    if (format == UINT32_MAX) {
        esp_schema_warn(s, "unknown_format", v, "the format \"%s\" is not known and asserts nothing", v->text);
        return ESP_OK;
    }
    if (s->options.formats_annotate) {
        return ESP_OK;
    }
    if (format == 0) {
        return esp_schema_fail(s, ESP_EUNSUPPORTED, v,
                               "the format \"%s\" is not supported; \"formats\":\"annotate\" takes it as a note",
                               v->text);
    }
    leaf->format = format;
    return s->x->failed == ESP_OK ? ESP_OK : esp_schema_fail(s, s->x->failed, v, "the format is too complex");
}
