/* Reading one schema object: every keyword by a table, what it asserts or why it is refused.
 *
 * A keyword is known in some drafts; outside them it is an unknown word, which JSON Schema ignores and we
 * name in a warning. Without $schema the spellings of all drafts are understood.
 * Thread: the owner's.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema_read.h"
#include "runtime/base/buf.h"

esp_status esp_schema_want(struct esp_schema *s, const struct esp_jv *v, bool ok, const char *what)
{
    return ok ? ESP_OK : esp_schema_fail(s, ESP_EINVAL, v, "must be %s, is %s", what, esp_jv_type_name(v));
}

bool esp_schema_is_bool(const struct esp_jv *v)
{
    return v->type == ESP_JV_TRUE || v->type == ESP_JV_FALSE;
}

static bool is_schema(const struct esp_schema *s, const struct esp_jv *v)
{
    return v->type == ESP_JV_OBJECT || (esp_schema_is_bool(v) && !(s->draft_given && s->draft == ESP_DRAFT4));
}

/* The values of additionalProperties and additionalItems: booleans in every draft. */
static esp_status want_rest(struct esp_schema *s, const struct esp_jv *v)
{
    return esp_schema_want(s, v, v->type == ESP_JV_OBJECT || esp_schema_is_bool(v), "a boolean or a schema");
}

static esp_status want_schema(struct esp_schema *s, const struct esp_jv *v)
{
    return esp_schema_want(s, v, is_schema(s, v), "a schema");
}

static esp_status want_schemas(struct esp_schema *s, const struct esp_jv *v, bool some)
{
    esp_status status = esp_schema_want(s, v, v->type == ESP_JV_ARRAY, "an array of schemas");
    if (status == ESP_OK && some && v->n == 0) {
        status = esp_schema_fail(s, ESP_EINVAL, v, "must have at least one member");
    }
    for (const struct esp_jv *child = v->child; child != NULL && status == ESP_OK; child = child->next) {
        status = want_schema(s, child);
    }
    return status;
}

/* ---- Types and values -------------------------------------------------------------------------- */

static uint32_t type_bit(const struct esp_jv *name)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } types[] = {{"null", ESP_TYPE_NULL},       {"boolean", ESP_TYPE_BOOLEAN},
                 {"integer", ESP_TYPE_INTEGER}, {"number", ESP_TYPE_INTEGER | ESP_TYPE_FRACTION},
                 {"string", ESP_TYPE_STRING},   {"array", ESP_TYPE_ARRAY},
                 {"object", ESP_TYPE_OBJECT}};
    for (size_t idx = 0; idx < sizeof types / sizeof types[0]; idx++) {
        if (esp_jv_is(name, types[idx].name)) {
            return types[idx].bits;
        }
    }
    return 0;
}

static esp_status read_type(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    uint32_t types = 0;
    if (v->type == ESP_JV_ARRAY && v->n > 0) {
        for (const struct esp_jv *name = v->child; name != NULL; name = name->next) {
            uint32_t bits = type_bit(name);
            if (bits == 0) {
                return esp_schema_fail(s, ESP_EINVAL, v, "names a type that JSON Schema does not have");
            }
            types |= bits;
        }
    } else {
        types = type_bit(v);
    }
    if (types == 0) {
        return esp_schema_fail(s, ESP_EINVAL, v, "must be a type of JSON Schema or an array of them");
    }
    leaf->types &= types;
    return ESP_OK;
}

static esp_status read_enum(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->values = v;
    return esp_schema_want(s, v, v->type == ESP_JV_ARRAY, "an array");
}

static esp_status read_const(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->constant = v;
    return ESP_OK;
}

/* ---- Arrays and objects ------------------------------------------------------------------------ */

static esp_status read_items(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    if (v->type == ESP_JV_ARRAY && !(s->draft_given && s->draft == ESP_DRAFT2020)) {
        const struct esp_jv *more = esp_jv_find(leaf->self, "additionalItems");
        if (esp_jv_find(leaf->self, "prefixItems") != NULL && !s->draft_given) {
            return esp_schema_fail(s, ESP_EINVAL, v, "an array beside prefixItems");
        }
        leaf->prefix = v;
        leaf->items = more;
        return want_schemas(s, v, false);
    }
    leaf->items = v;
    return want_schema(s, v);
}

static esp_status read_prefix(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->prefix = v;
    return want_schemas(s, v, true);
}

static esp_status read_additional_items(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return want_rest(s, v); /* taken by read_items when items is an array */
}

static esp_status read_contains(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->contains = v;
    return want_schema(s, v);
}

static esp_status read_properties(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    esp_status status = esp_schema_want(s, v, v->type == ESP_JV_OBJECT, "an object");
    for (const struct esp_jv *child = v->child; child != NULL && status == ESP_OK; child = child->next) {
        status = want_schema(s, child);
    }
    leaf->properties = v;
    return status;
}

static esp_status read_patterns(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->patterns = v;
    return esp_schema_want(s, v, v->type == ESP_JV_OBJECT, "an object");
}

static esp_status read_names(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->names = v;
    return want_schema(s, v);
}

static esp_status read_rest_items(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->rest_items = v;
    return want_schema(s, v);
}

static esp_status read_rest_members(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->rest_members = v;
    return want_schema(s, v);
}

static esp_status read_required(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    esp_status status = esp_schema_want(s, v, v->type == ESP_JV_ARRAY, "an array of strings");
    for (const struct esp_jv *name = v->child; name != NULL && status == ESP_OK; name = name->next) {
        if (name->type != ESP_JV_STRING) {
            status = esp_schema_fail(s, ESP_EINVAL, v, "must be an array of strings");
        }
    }
    leaf->required = v;
    return status;
}

static esp_status read_additional(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->additional = v;
    return want_rest(s, v);
}

/* ---- Applicators and what is refused ------------------------------------------------------------ */

static esp_status read_applicator(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->applicators[leaf->n_applicators++] = v;
    return want_schemas(s, v, true);
}

static esp_status read_ref(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->applicators[leaf->n_applicators++] = v;
    return esp_schema_want(s, v, v->type == ESP_JV_STRING, "a string");
}

static esp_status read_depend(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    esp_status status = esp_schema_want(s, v, v->type == ESP_JV_OBJECT, "an object");
    for (const struct esp_jv *child = v->child; child != NULL && status == ESP_OK; child = child->next) {
        bool names = child->type == ESP_JV_ARRAY && strcmp(v->key, "dependentSchemas") != 0;
        for (const struct esp_jv *name = names ? child->child : NULL; name != NULL; name = name->next) {
            names = names && name->type == ESP_JV_STRING;
        }
        bool schema = strcmp(v->key, "dependentRequired") != 0 && is_schema(s, child);
        status = esp_schema_want(s, child, names || schema, schema ? "a schema" : "an array of strings");
    }
    if (status == ESP_OK && v->n > 0) {
        status = esp_schema_depend(s, v, &leaf->applicators[leaf->n_applicators++]);
    }
    return status;
}

static esp_status note(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return ESP_OK;
}

static esp_status refuse(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return esp_schema_fail(s, ESP_EUNSUPPORTED, v, "is not supported");
}

/* Notes since 2019-09; draft-07 lets a validator assert them, as it does formats. */
static esp_status read_content(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    bool asserts = s->draft_given && s->draft == ESP_DRAFT7 && !s->options.formats_annotate;
    return asserts ? refuse(s, leaf, v) : ESP_OK;
}

static esp_status read_unique(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->unique = v->type == ESP_JV_TRUE ? v : NULL;
    return esp_schema_want(s, v, esp_schema_is_bool(v), "a boolean");
}
static esp_status read_not(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    leaf->applicators[leaf->n_applicators++] = v;
    return want_schema(s, v);
}
static esp_status read_if(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    if (esp_jv_find(leaf->self, "then") != NULL || esp_jv_find(leaf->self, "else") != NULL) {
        leaf->applicators[leaf->n_applicators++] = v;
    } else {
        leaf->condition = v;
    }
    return want_schema(s, v);
}
static esp_status read_branch(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    return want_schema(s, v); /* taken where if is */
}

/* ---- $schema ----------------------------------------------------------------------------------- */

/* The draft that a URI names, 0 when it is none. */
static unsigned draft_of(const struct esp_jv *v)
{
    static const struct {
        const char *path;
        unsigned draft;
    } uris[] = {{"json-schema.org/draft-04/schema", ESP_DRAFT4},
                {"json-schema.org/draft-06/schema", ESP_DRAFT6},
                {"json-schema.org/draft-07/schema", ESP_DRAFT7},
                {"json-schema.org/draft/2019-09/schema", ESP_DRAFT2019},
                {"json-schema.org/draft/2020-12/schema", ESP_DRAFT2020}};
    const char *path = v->text;
    path += strncmp(path, "https://", 8) == 0 ? 8 : strncmp(path, "http://", 7) == 0 ? 7 : 0;
    size_t n = strlen(path);
    n -= n > 0 && path[n - 1] == '#';
    for (size_t idx = 0; idx < sizeof uris / sizeof uris[0]; idx++) {
        if (path != v->text && n == strlen(uris[idx].path) && memcmp(path, uris[idx].path, n) == 0) {
            return uris[idx].draft;
        }
    }
    return 0;
}

/* A schema with an identifier may be of another draft than the document; that is not followed. */
static esp_status read_schema_uri(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v)
{
    bool own = leaf->self != s->root && v->type == ESP_JV_STRING && esp_jv_find(leaf->self, "$id") != NULL;
    return own && draft_of(v) != s->draft ? esp_schema_fail(s, ESP_EUNSUPPORTED, v, "is another draft inside this one")
                                          : ESP_OK;
}

#define NEW (ESP_DRAFT2019 | ESP_DRAFT2020)
#define FROM6 (ESP_DRAFT_ANY & ~ESP_DRAFT4)
#define FROM7 (FROM6 & ~ESP_DRAFT6)
static const struct keyword {
    const char *name;
    unsigned drafts;
    esp_schema_read_fn *read;
} keywords[] = {
    {"$anchor", NEW, note},
    {"$comment", FROM7, note},
    {"$defs", ESP_DRAFT_ANY, note},
    {"$dynamicAnchor", ESP_DRAFT2020, note},
    {"$dynamicRef", ESP_DRAFT2020, read_ref},
    {"$id", FROM6, note},
    {"$recursiveAnchor", ESP_DRAFT2019, note},
    {"$recursiveRef", ESP_DRAFT2019, read_ref},
    {"$ref", ESP_DRAFT_ANY, read_ref},
    {"$schema", ESP_DRAFT_ANY, read_schema_uri},
    {"$vocabulary", NEW, note},
    {"additionalItems", ESP_DRAFT_ANY & ~ESP_DRAFT2020, read_additional_items},
    {"additionalProperties", ESP_DRAFT_ANY, read_additional},
    {"allOf", ESP_DRAFT_ANY, read_applicator},
    {"anyOf", ESP_DRAFT_ANY, read_applicator},
    {"const", FROM6, read_const},
    {"contains", FROM6, read_contains},
    {"contentEncoding", FROM7, read_content},
    {"contentMediaType", FROM7, read_content},
    {"contentSchema", NEW, note},
    {"default", ESP_DRAFT_ANY, note},
    {"definitions", ESP_DRAFT_ANY, note},
    {"dependencies", ESP_DRAFT_ANY, read_depend},
    {"dependentRequired", NEW, read_depend},
    {"dependentSchemas", NEW, read_depend},
    {"deprecated", NEW, note},
    {"description", ESP_DRAFT_ANY, note},
    {"discriminator", ESP_DRAFT_ANY, note},
    {"else", FROM7, read_branch},
    {"enum", ESP_DRAFT_ANY, read_enum},
    {"examples", FROM6, note},
    {"exclusiveMaximum", ESP_DRAFT_ANY, esp_schema_read_exclusive_maximum},
    {"exclusiveMinimum", ESP_DRAFT_ANY, esp_schema_read_exclusive_minimum},
    {"format", ESP_DRAFT_ANY, esp_schema_read_format},
    {"id", ESP_DRAFT4, note},
    {"if", FROM7, read_if},
    {"items", ESP_DRAFT_ANY, read_items},
    {"maxContains", NEW, esp_schema_read_max_contains},
    {"maxItems", ESP_DRAFT_ANY, esp_schema_read_max_items},
    {"maxLength", ESP_DRAFT_ANY, esp_schema_read_max_length},
    {"maxProperties", ESP_DRAFT_ANY, esp_schema_read_max_members},
    {"maximum", ESP_DRAFT_ANY, esp_schema_read_maximum},
    {"minContains", NEW, esp_schema_read_min_contains},
    {"minItems", ESP_DRAFT_ANY, esp_schema_read_min_items},
    {"minLength", ESP_DRAFT_ANY, esp_schema_read_min_length},
    {"minProperties", ESP_DRAFT_ANY, esp_schema_read_min_members},
    {"minimum", ESP_DRAFT_ANY, esp_schema_read_minimum},
    {"multipleOf", ESP_DRAFT_ANY, esp_schema_read_multiple},
    {"not", ESP_DRAFT_ANY, read_not},
    {"oneOf", ESP_DRAFT_ANY, read_applicator},
    {"pattern", ESP_DRAFT_ANY, esp_schema_read_pattern},
    {"patternProperties", ESP_DRAFT_ANY, read_patterns},
    {"prefixItems", ESP_DRAFT2020, read_prefix},
    {"properties", ESP_DRAFT_ANY, read_properties},
    {"propertyNames", FROM6, read_names},
    {"readOnly", ESP_DRAFT_ANY, note},
    {"required", ESP_DRAFT_ANY, read_required},
    {"then", FROM7, read_branch},
    {"title", ESP_DRAFT_ANY, note},
    {"type", ESP_DRAFT_ANY, read_type},
    {"unevaluatedItems", NEW, read_rest_items},
    {"unevaluatedProperties", NEW, read_rest_members},
    {"uniqueItems", ESP_DRAFT_ANY, read_unique},
    {"writeOnly", ESP_DRAFT_ANY, note},
};

static int compare_keyword(const void *key, const void *row)
{
    return strcmp(key, ((const struct keyword *)row)->name);
}

static const struct keyword *find_keyword(const struct esp_schema *s, const struct esp_jv *v)
{
    const struct keyword *k =
        memchr(v->key, '\0', v->key_bytes) != NULL
            ? NULL
            : bsearch(v->key, keywords, sizeof keywords / sizeof keywords[0], sizeof keywords[0], compare_keyword);
    return k != NULL && (!s->draft_given || (k->drafts & s->draft)) ? k : NULL;
}

bool esp_schema_known(const struct esp_schema *s, const struct esp_jv *member)
{
    return find_keyword(s, member) != NULL;
}

void esp_schema_leaf_init(struct esp_leaf *leaf, const struct esp_jv *self)
{
    *leaf = (struct esp_leaf){.self = self,
                              .types = ESP_TYPE_ALL,
                              .max_items = ESP_EXPR_INF,
                              .max_chars = ESP_EXPR_INF,
                              .max_members = ESP_EXPR_INF,
                              .contains_min = 1,
                              .contains_max = ESP_EXPR_INF};
}

static struct esp_leaf *new_leaf(struct esp_schema *s, const struct esp_jv *v)
{
    struct esp_leaf *leaf = esp_arena_alloc(&s->arena, 1, sizeof *leaf);
    const struct esp_jv **applicators = esp_arena_alloc(&s->arena, (size_t)v->n + 1, sizeof *applicators);
    if (leaf == NULL || applicators == NULL) {
        return NULL;
    }
    esp_schema_leaf_init(leaf, v);
    leaf->applicators = applicators;
    return leaf;
}

static esp_status read_keyword(struct esp_schema *s, struct esp_leaf *leaf, const struct esp_jv *v,
                               const struct keyword *k)
{
    uint32_t before = s->x->n_exprs;
    struct esp_jv *mine;
    esp_status status = k->read(s, leaf, v);
    memcpy(&mine, &v, sizeof mine); /* the tree is ours; cost is the reader's own field */
    mine->cost = s->x->n_exprs - before;
    return status;
}

esp_status esp_schema_read(struct esp_schema *s, const struct esp_jv *v, struct esp_leaf **ret_leaf)
{
    esp_status status = ESP_OK;
    if (v->extra != NULL) {
        *ret_leaf = v->extra;
        return ESP_OK;
    }
    if (!is_schema(s, v)) {
        return want_schema(s, v);
    }
    struct esp_leaf *leaf = new_leaf(s, v);
    if (leaf == NULL) {
        return esp_schema_memory(s);
    }
    const struct esp_jv *ref = esp_jv_find(v, "$ref");
    leaf->ref_only = ref != NULL && s->draft_given && (s->draft & NEW) == 0;
    for (const struct esp_jv *member = v->child; member != NULL && status == ESP_OK; member = member->next) {
        const struct keyword *k = find_keyword(s, member);
        if (member->weak || (leaf->ref_only && member != ref)) {
            continue;
        }
        if (k == NULL) {
            esp_schema_warn(s, "unknown_keyword", member, "is no keyword of this draft and asserts nothing");
        } else {
            status = read_keyword(s, leaf, member, k);
        }
    }
    if (status == ESP_OK) {
        struct esp_jv *mine;
        memcpy(&mine, &v, sizeof mine); /* the tree is ours; extra is the reader's own field */
        mine->extra = leaf;
        *ret_leaf = leaf;
    }
    return status;
}

esp_status esp_schema_draft(struct esp_schema *s)
{
    const struct esp_jv *v = esp_jv_find(s->root, "$schema");
    s->draft = ESP_DRAFT2020;
    if (v == NULL) {
        return ESP_OK;
    }
    if (v->type != ESP_JV_STRING) {
        return esp_schema_want(s, v, false, "a string");
    }
    unsigned draft = draft_of(v);
    if (draft != 0) {
        s->draft = draft;
        s->draft_given = true;
        return ESP_OK;
    }
    if (s->options.lenient) {
        esp_schema_warn(s, "unknown_draft", v, "is not known; taken as 2020-12");
        return ESP_OK;
    }
    return esp_schema_fail(s, ESP_EUNSUPPORTED, v, "is none of draft-04, draft-06, draft-07, 2019-09 and 2020-12");
}
