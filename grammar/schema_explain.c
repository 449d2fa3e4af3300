/* What each keyword of a schema became, for people: one entry a keyword, in the order of the source.
 *
 *   {"pointer":"/properties/id/pattern","keyword":"pattern","became":"an automaton over the text","cost":12}
 *
 * cost: expressions made for the keyword alone, where it makes any. Written after the compile, from its tree, also
 * when that was refused. Thread: the owner's.
 */
#include <stdio.h>
#include <string.h>

#include "grammar/schema_read.h"
#include "runtime/base/utf8.h"

#define ENTRIES_MAX 5000u

struct visit {
    const struct esp_jv *v;
    struct visit *next;
};

static const char *const sentences[][2] = {
    {"$dynamicRef", "the schema declared first on the way here, together with what stands beside it"},
    {"$recursiveRef", "the outermost schema that allows it, together with what stands beside it"},
    {"$ref", "the schema it names, together with what stands beside it"},
    {"additionalItems", "what items after the listed ones must be"},
    {"additionalProperties", "what values of other keys must be; false: no other key can be written"},
    {"allOf", "all of its schemas at once"},
    {"anyOf", "one alternative for each schema, followed side by side"},
    {"const", "this value alone, in all its spellings"},
    {"contains", "counted items: states by how many fit"},
    {"dependencies", "without the key, or with it and what it asks for"},
    {"dependentRequired", "without the key, or with it and the keys it asks for"},
    {"dependentSchemas", "without the key, or with it and the schema it asks for"},
    {"else", "what holds where if does not"},
    {"enum", "a trie of its values"},
    {"exclusiveMaximum", "digits that stay below it"},
    {"exclusiveMinimum", "digits that can still get above it"},
    {"format", "an automaton over the text"},
    {"if", "two alternatives: if and then, or not if and else"},
    {"items", "what items must be"},
    {"maxContains", "a bound of the counted items"},
    {"maxItems", "a counter of items"},
    {"maxLength", "a counter of characters"},
    {"maxProperties", "a counter of members"},
    {"maximum", "digits that do not pass it"},
    {"minContains", "a bound of the counted items"},
    {"minItems", "a counter of items"},
    {"minLength", "a counter of characters"},
    {"minProperties", "a counter of members"},
    {"minimum", "digits that can still reach it"},
    {"multipleOf", "digits that can still become a multiple, by long division"},
    {"not", "the ways to break its schema, as alternatives"},
    {"oneOf", "alternatives, each without what another one allows too"},
    {"pattern", "an automaton over the text"},
    {"patternProperties", "kinds of keys told apart by the patterns"},
    {"prefixItems", "what the first items must be, one after the other"},
    {"properties", "a trie of the keys, in this order"},
    {"propertyNames", "what every key must be"},
    {"required", "keys that must be written before the object can close"},
    {"then", "what holds where if does"},
    {"type", "the first characters that a value may have"},
    {"unevaluatedItems", "what items must be that nothing beside it looks at"},
    {"unevaluatedProperties", "what values of keys must be that nothing beside it looks at"},
    {"uniqueItems", "items that differ from one another"},
};

static const char *sentence(const struct esp_schema *s, const struct esp_jv *v, const struct esp_leaf *leaf)
{
    if (v->weak) {
        return "left out, because it is lenient";
    }
    if (!esp_schema_known(s, v)) {
        return "nothing: it is no keyword of this draft";
    }
    if (leaf == NULL) {
        return "nothing: no value comes to this schema";
    }
    if (leaf->ref_only && strcmp(v->key, "$ref") != 0) {
        return "nothing: $ref hides it in this draft";
    }
    for (size_t idx = 0; idx < sizeof sentences / sizeof sentences[0]; idx++) {
        if (strcmp(sentences[idx][0], v->key) == 0) {
            return sentences[idx][1];
        }
    }
    return "a note, which asserts nothing";
}

static void add_text(struct esp_buf *buf, const char *text)
{
    esp_buf_char(buf, '"');
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\' || (unsigned char)*c < 0x20) {
            esp_buf_printf(buf, "\\u%04x", (unsigned)(unsigned char)*c);
        } else {
            esp_buf_char(buf, *c);
        }
    }
    esp_buf_char(buf, '"');
}

static void add_entry(struct esp_schema *s, const struct esp_jv *v, const struct esp_leaf *leaf, struct esp_buf *buf)
{
    char pointer[240];
    esp_jv_pointer(v, pointer, sizeof pointer);
    bool refused = s->err != NULL && s->err->code != ESP_OK && strcmp(s->err->place, pointer) == 0;
    esp_buf_str(buf, buf->n > 1 ? ",{\"pointer\":" : "{\"pointer\":");
    add_text(buf, pointer);
    esp_buf_str(buf, ",\"keyword\":");
    add_text(buf, v->key);
    esp_buf_str(buf, ",\"became\":");
    if (refused) {
        char text[500];
        snprintf(text, sizeof text, "refused: %.400s", s->err->message);
        add_text(buf, text);
    } else {
        add_text(buf, sentence(s, v, leaf));
    }
    esp_buf_printf(buf, ",\"cost\":%u}", v->cost);
}

static bool push(struct esp_schema *s, struct visit ***link, const struct esp_jv *v)
{
    struct visit *visit = esp_arena_alloc(&s->arena, 1, sizeof *visit);
    if (visit != NULL) {
        *visit = (struct visit){v, **link};
        **link = visit;
        *link = &visit->next;
    }
    return visit != NULL;
}

/* The schemas below a keyword, put where the walk goes on next, in their order. */
static bool push_below(struct esp_schema *s, struct visit ***link, const struct esp_jv *v)
{
    bool ok = true;
    enum esp_schema_below below = esp_schema_below(s, v);
    if (below == ESP_BELOW_SCHEMAS && v->type == ESP_JV_OBJECT) {
        return push(s, link, v);
    }
    if (below != ESP_BELOW_NOTHING && (v->type == ESP_JV_ARRAY || below == ESP_BELOW_MAP)) {
        for (const struct esp_jv *child = v->child; child != NULL && ok; child = child->next) {
            ok = child->type != ESP_JV_OBJECT || push(s, link, child);
        }
    }
    return ok;
}

void esp_schema_explain(struct esp_schema *s, struct esp_buf *buf)
{
    struct visit *stack = NULL, **link = &stack;
    uint32_t n = 0;
    bool ok = s->root == NULL || s->root->type != ESP_JV_OBJECT || push(s, &link, s->root);
    esp_buf_char(buf, '[');
    while (stack != NULL && ok && n < ENTRIES_MAX) {
        const struct esp_jv *v = stack->v;
        const struct esp_leaf *leaf = v->extra;
        stack = stack->next;
        link = &stack;
        for (const struct esp_jv *member = v->child; member != NULL && ok; member = member->next, n++) {
            add_entry(s, member, leaf, buf);
            ok = push_below(s, &link, member);
        }
    }
    esp_buf_char(buf, ']');
}
