/* References: URIs against the table of RFC 3986, and what $ref, anchors and dynamic references lead to. */
#include "grammar/uri.h"
#include "tests/unit/grammar/rig.h"

static void test_uris(void)
{
    static const char base[] = "http://a/b/c/d;p?q";
    static const struct {
        const char *base, *ref, *want;
    } cases[] = {/* section 5.4 of RFC 3986 */
                 {base, "g:h", "g:h"},
                 {base, "g", "http://a/b/c/g"},
                 {base, "./g", "http://a/b/c/g"},
                 {base, "g/", "http://a/b/c/g/"},
                 {base, "/g", "http://a/g"},
                 {base, "//g", "http://g"},
                 {base, "?y", "http://a/b/c/d;p?y"},
                 {base, "g?y", "http://a/b/c/g?y"},
                 {base, "#s", "http://a/b/c/d;p?q"},
                 {base, "g?y#s", "http://a/b/c/g?y"},
                 {base, ";x", "http://a/b/c/;x"},
                 {base, "", "http://a/b/c/d;p?q"},
                 {base, ".", "http://a/b/c/"},
                 {base, "..", "http://a/b/"},
                 {base, "../g", "http://a/b/g"},
                 {base, "../..", "http://a/"},
                 {base, "../../../g", "http://a/g"},
                 {base, "/./g", "http://a/g"},
                 {base, "/../g", "http://a/g"},
                 {base, "g.", "http://a/b/c/g."},
                 {base, "..g", "http://a/b/c/..g"},
                 {base, "./g/.", "http://a/b/c/g/"},
                 {base, "g/../h", "http://a/b/c/h"},
                 {base, "g;x=1/../y", "http://a/b/c/y"},
                 {base, "http:g", "http:g"},
                 /* bases without parts */
                 {"", "node", "node"},
                 {"", "/x/../y", "/y"},
                 {"urn:uuid:1", "#here", "urn:uuid:1"},
                 {"http://h", "a", "http://h/a"},
                 {"tag:a", "tag:b", "tag:b"}};
    struct esp_arena arena;
    esp_arena_init(&arena, ESP_TAG_MISC, 1 << 20);
    for (size_t idx = 0; idx < sizeof cases / sizeof cases[0]; idx++) {
        const char *got = esp_uri_resolve(&arena, cases[idx].base, cases[idx].ref, strlen(cases[idx].ref));
        CHECK(got != NULL && strcmp(got, cases[idx].want) == 0, "%s + %s = %s", cases[idx].base, cases[idx].ref, got);
    }
    esp_arena_finish(&arena);
}

struct ref_case {
    const char *schema;
    const char *accept[4], *reject[4]; /* accept[0] NULL: refused, with the code of status */
    esp_status status;
};

static void check_case(const struct esp_trie *trie, const struct ref_case *c)
{
    struct esp_grammar *grammar;
    struct esp_err err = {0};
    esp_status status = rig_compile(trie, ESP_GRAMMAR_SCHEMA, c->schema, 0, &grammar, &err);
    CHECK(status == c->status, "%s: %s", c->schema, err.message);
    if (status != ESP_OK) {
        return;
    }
    for (int idx = 0; idx < 4; idx++) {
        const char *yes = c->accept[idx], *no = c->reject[idx];
        CHECK(yes == NULL || rig_accepts(grammar, yes, strlen(yes)), "%s should take %s", c->schema, yes);
        CHECK(no == NULL || !rig_accepts(grammar, no, strlen(no)), "%s should not take %s", c->schema, no);
    }
    esp_grammar_unref(grammar);
}

#define OLD "\"$schema\":\"http://json-schema.org/draft-07/schema#\","
#define OLDEST "\"$schema\":\"http://json-schema.org/draft-04/schema#\","
#define MID "\"$schema\":\"https://json-schema.org/draft/2019-09/schema\","
#define LIST "\"$id\":\"list\",\"type\":\"array\",\"items\":{\"$dynamicRef\":\"#of\"},"
#define ANY_OF "\"$defs\":{\"any\":{\"$dynamicAnchor\":\"of\"}}"

static const struct ref_case ref_cases[] = {
    {"{\"$ref\":\"#/$defs/a~1b~0c%25\",\"$defs\":{\"a/b~c%\":{\"const\":1}}}", {"1"}, {"2"}, ESP_OK},
    {"{\"$ref\":\"#/$defs/x/anyOf/1\",\"$defs\":{\"x\":{\"anyOf\":[true,{\"const\":1}]}}}", {"1"}, {"2"}, ESP_OK},
    {"{\"$ref\":\"#/$defs/x/anyOf/01\",\"$defs\":{\"x\":{\"anyOf\":[true,true]}}}", {0}, {0}, ESP_EINVAL},
    {"{\"$ref\":\"#%2\"}", {0}, {0}, ESP_EINVAL},
    {"{\"$ref\":\"#nowhere\"}", {0}, {0}, ESP_EINVAL},
    {"{\"$ref\":\"http://example.com/other\"}", {0}, {0}, ESP_EUNSUPPORTED},
    {"{\"$ref\":\"#here\",\"$defs\":{\"x\":{\"$anchor\":\"here\",\"const\":1}}}", {"1"}, {"2"}, ESP_OK},
    /* An identifier changes what stands inside it, siblings of $ref count since 2019-09. */
    {"{\"$id\":\"http://a/b/root\",\"allOf\":[{\"$ref\":\"x\",\"maximum\":1}],\"$defs\":{\"x\":{\"$id\":\"x\","
     "\"$ref\":\"#/$defs/in\",\"$defs\":{\"in\":{\"type\":\"integer\"}}},\"in\":{\"type\":\"null\"}}}",
     {"1", "-3"},
     {"2", "null", "0.5"},
     ESP_OK},
    {"{" OLD "\"allOf\":[{\"$ref\":\"#/definitions/x\",\"maximum\":1}],\"definitions\":{\"x\":{\"type\":\"integer\"}}}",
     {"1", "2"},
     {"null"},
     ESP_OK},
    {"{" OLD "\"$ref\":\"#y\",\"definitions\":{\"x\":{\"$id\":\"#y\",\"const\":1}}}", {"1"}, {"2"}, ESP_OK},
    {"{" OLD "\"$ref\":\"n#y\",\"definitions\":{\"x\":{\"$id\":\"n\",\"definitions\":{\"z\":{\"$id\":\"#y\","
     "\"const\":1}}}}"
     "}",
     {"1"},
     {"2"},
     ESP_OK},
    /* Beside a $ref an identifier is no identifier up to draft-07. */
    {"{" OLD "\"$id\":\"http://h/s/base\",\"definitions\":{\"f\":{\"$id\":\"http://h/s/foo\",\"const\":1},"
     "\"g\":{\"$id\":\"t/foo\",\"const\":2}},\"allOf\":[{\"$id\":\"http://h/s/t/\",\"$ref\":\"foo\"}]}",
     {"1"},
     {"2"},
     ESP_OK},
    {"{" OLDEST "\"id\":\"http://h/root\",\"properties\":{\"a\":{\"$ref\":\"n\"}},\"definitions\":{\"n\":{\"id\":\"n\","
     "\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"root\"}},\"additionalProperties\":false}}}",
     {"{\"a\":{\"a\":7}}", "{\"a\":{}}"},
     {"{\"a\":1}", "{\"a\":{\"b\":1}}"},
     ESP_OK},
    /* No identifier inside of values or unknown words. */
    {"{\"$ref\":\"#a\",\"enum\":[{\"$anchor\":\"a\"}],\"x\":{\"$anchor\":\"a\"},\"$defs\":{\"y\":{\"$anchor\":\"a\","
     "\"type\":\"object\"}}}",
     {"{\"$anchor\":\"a\"}"},
     {"{}"},
     ESP_OK},
    /* Without $schema an "id" gives a name and leaves pointers to the document. */
    {"{\"properties\":{\"a\":{\"id\":\"/properties/a\",\"$ref\":\"#/definitions/x\"}},\"additionalProperties\":false,"
     "\"definitions\":{\"x\":{\"const\":1}}}",
     {"{\"a\":1}"},
     {"{\"a\":2}"},
     ESP_OK},
    /* The dynamic reference means the declaration entered first: two lists of one document, each its own. */
    {"{\"prefixItems\":[{\"$ref\":\"ints\"},{\"$ref\":\"words\"},{\"$ref\":\"list\"}],\"$defs\":{\"l\":{" LIST ANY_OF
     "},\"i\":{\"$id\":\"ints\",\"$ref\":\"list\",\"$defs\":{\"x\":{\"$dynamicAnchor\":\"of\",\"type\":\"integer\"}}},"
     "\"w\":{\"$id\":\"words\",\"$ref\":\"list\",\"$defs\":{\"x\":{\"$dynamicAnchor\":\"of\",\"type\":\"string\"}}}}}",
     {"[[1],[\"a\"],[1,\"a\",null]]"},
     {"[[\"a\"]]", "[[1],[2]]", "[1]", "[[],[],1]"},
     ESP_OK},
    {"{" MID "\"$id\":\"http://h/tree\",\"$recursiveAnchor\":true,\"type\":\"object\",\"properties\":{\"kids"
     "\":{\"type\":"
     "\"array\",\"items\":{\"$recursiveRef\":\"#\"}}},\"additionalProperties\":false}",
     {"{\"kids\":[{},{\"kids\":[]}]}"},
     {"{\"kids\":[1]}", "{\"kids\":[{\"x\":1}]}"},
     ESP_OK},
    {"{" MID "\"$id\":\"http://h/strict\",\"$recursiveAnchor\":true,\"$ref\":\"tree\",\"maxProperties\":1,"
     "\"$defs\":{\"t\":"
     "{\"$id\":\"tree\",\"$recursiveAnchor\":true,\"type\":\"object\",\"additionalProperties\":{"
     "\"$recursiveRef\":\"#\"}"
     "}}}",
     {"{\"a\":{\"b\":{}}}"},
     {"{\"a\":{\"b\":{},\"c\":{}}}", "{\"a\":1}"},
     ESP_OK},
    {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a"
     "\"}}}", {0}, {0}, ESP_EINVAL},
    {"{" MID "\"properties\":{\"a\":{\"$id\":\"x\",\"$schema\":\"http://json-schema.org/draft-07/schema#\"}}}",
     {0},
     {0},
     ESP_EUNSUPPORTED},
};

static void test_references(void)
{
    struct esp_trie *trie = rig_trie();
    for (size_t idx = 0; idx < sizeof ref_cases / sizeof ref_cases[0]; idx++) {
        check_case(trie, &ref_cases[idx]);
    }
    esp_trie_destroy(trie);
}

struct lenient_case {
    const char *schema, *accept, *reject, *warned; /* accept NULL: still refused */
};

static void test_lenient(void)
{
    static const struct lenient_case cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"(a)\\\\1\",\"maxLength\":2}", "\"xy\"", "\"xyz\"", "\"/pattern\""},
        {"{\"properties\":{\"pattern\":{\"$ref\":\"http://h/x\",\"type\":\"null\"}},\"additionalProperties\":false}",
         "{\"pattern\":null}",
         "{\"pattern\":1}",
         "\"/properties/pattern/$ref\""},
        /* Inside of not, leaving out the pattern would deny every string. */
        {"{\"type\":\"string\",\"not\":{\"pattern\":\"(a)\\\\1\"}}", "\"xy\"", "1", "\"/not\""},
        {"{\"type\":\"object\",\"patternProperties\":{\"(a)\\\\1\":true},\"additionalProperties\":false}",
         "{\"x\":1}",
         "1",
         "\"/additionalProperties\""},
        {"{\"type\":\"nothing\"}", NULL, NULL, NULL}};
    struct esp_trie *trie = rig_trie();
    for (size_t idx = 0; idx < sizeof cases / sizeof cases[0]; idx++) {
        const struct lenient_case *c = &cases[idx];
        struct esp_grammar_spec spec = {.text = c->schema, .n_bytes = strlen(c->schema)};
        struct esp_grammar *grammar;
        CHECK(esp_grammar_compile(trie, &spec, &grammar, NULL) != ESP_OK, "%s is refused", c->schema);
        spec.options.lenient = true;
        esp_status status = esp_grammar_compile(trie, &spec, &grammar, NULL);
        CHECK((status == ESP_OK) == (c->accept != NULL), "%s: %d", c->schema, status);
        if (status != ESP_OK) {
            continue;
        }
        CHECK(rig_accepts(grammar, c->accept, strlen(c->accept)), "%s should take %s", c->schema, c->accept);
        CHECK(!rig_accepts(grammar, c->reject, strlen(c->reject)), "%s should not take %s", c->schema, c->reject);
        CHECK(strstr(esp_grammar_warnings(grammar), c->warned) != NULL, "%s warns of %s", c->schema, c->warned);
        esp_grammar_unref(grammar);
    }
    esp_trie_destroy(trie);
}

ESP_TEST_MAIN(T(test_uris), T(test_references), T(test_lenient))
