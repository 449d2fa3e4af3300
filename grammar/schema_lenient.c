/* "lenient": keywords that cannot be honoured are left out, each named in a warning.
 *
 *   compile ──refused at /a/b──► leave out the keyword of /a/b ──► compile again …
 *
 * What is left out must make the schema weaker, never stronger: below not, if, oneOf or contains it is the outermost
 * of these that goes, and with a pattern of keys what stands beside it for the other keys. Thread: the owner's.
 */
#include <string.h>

#include "grammar/schema_read.h"

static bool is_key(const struct esp_jv *v, const char *const *names)
{
    while (*names != NULL && (v->key == NULL || strcmp(v->key, *names) != 0)) {
        names++;
    }
    return *names != NULL;
}

/* Is v the value of a keyword, and not of a property or definition that has the keyword's name? */
static bool is_keyword(const struct esp_schema *s, const struct esp_jv *v)
{
    static const char *const maps[] = {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties",
                                       "properties", NULL};
    return v->parent != NULL && v->parent->type == ESP_JV_OBJECT && !is_key(v->parent, maps) && esp_schema_known(s, v);
}

/* The keyword to leave out for something refused at v; NULL when there is none. */
static const struct esp_jv *choose(const struct esp_schema *s, const struct esp_jv *v)
{
    static const char *const turning[] = {"not", "if", "oneOf", "contains", NULL};
    while (v != NULL && (!is_keyword(s, v) || v->weak)) {
        v = v->parent;
    }
    for (const struct esp_jv *up = v; up != NULL; up = up->parent) {
        v = is_keyword(s, up) && is_key(up, turning) && !up->weak ? up : v;
    }
    return v;
}

static void leave_out(struct esp_schema *s, const struct esp_jv *v, const char *why)
{
    struct esp_jv *mine;
    memcpy(&mine, &v, sizeof mine); /* the tree is ours */
    mine->weak = true;
    esp_schema_warn(s, "weakened", v, "is left out: %s", why);
}

esp_status esp_schema_weaken(struct esp_schema *s)
{
    static const char *const rests[] = {"additionalProperties", "unevaluatedProperties"};
    for (const struct esp_grammar_weak *weak = s->options.weak; weak != NULL; weak = weak->next) {
        const struct esp_jv *at = esp_schema_at(s, weak->place), *v = at == NULL ? NULL : choose(s, at);
        if (v == NULL) {
            return esp_schema_fail(s, ESP_EUNSUPPORTED, at == NULL ? s->root : at, "%s", weak->why);
        }
        leave_out(s, v, weak->why);
        for (size_t idx = 0; idx < 2 && strcmp(v->key, "patternProperties") == 0; idx++) {
            const struct esp_jv *rest = esp_jv_find(v->parent, rests[idx]);
            if (rest != NULL && !rest->weak) {
                leave_out(s, rest, "it depends on patternProperties");
            }
        }
    }
    return ESP_OK;
}
