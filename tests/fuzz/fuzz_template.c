/* Templates of random text and templates with random contexts: an error or a text, within the limits.
 *
 * Texts are real one-feature templates and fragments of the language, cut, joined and damaged; contexts are random
 * JSON. Bounded by rounds; the seed is printed.
 */
#include <jansson.h>

#include "frontend/template.h"
#include "runtime/base/alloc.h"
#include "tests/esptest.h"

#define N_ROUNDS 6000
#define TEXT_ROOM 4096

static const char *const fragments[] = {
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{# ",
    " #}",
    "{% if a %}",
    "{% endif %}",
    "{% else %}",
    "{% elif b %}",
    "{% for x in a %}",
    "{% for k, v in b.items() %}",
    "{% endfor %}",
    "{% set a = ",
    "{% set ns.x = ",
    "namespace(x=1)",
    "{% macro m(a, b=1) %}",
    "{% endmacro %}",
    "m(",
    "a",
    "b",
    "x",
    "ns",
    "loop.",
    "index0",
    "last",
    "previtem",
    "'str'",
    "\"q\\n\"",
    "1",
    "-1",
    "2.5",
    "9223372036854775807",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ":",
    ",",
    ".",
    "|",
    "~",
    "+",
    "-",
    "*",
    "**",
    "/",
    "//",
    "%",
    "==",
    "!=",
    "<",
    ">=",
    " in ",
    " not in ",
    " and ",
    " or ",
    " not ",
    " is ",
    " if ",
    " else ",
    "defined",
    "none",
    "true",
    "tojson",
    "tojson(indent=2)",
    "length",
    "list",
    "join(',')",
    "sort",
    "map(attribute='x')",
    "selectattr('x')",
    "default('d')",
    "trim",
    "upper",
    "replace('a','bb')",
    "items",
    "dictsort",
    "batch(2)",
    "slice(3)",
    "groupby('x')",
    "indent(3)",
    "round(2)",
    "int",
    "first",
    "reverse",
    "unique",
    "[1:]",
    "[::-1]",
    "[:-1]",
    ".split('a')",
    ".strip()",
    ".get('x')",
    ".format(a, b)",
    "'%5.2f|%s' % (1, a)",
    "range(9)",
    "range(99999)",
    "{% break %}",
    "{% continue %}",
    "{% raw %}",
    "{% endraw %}",
    "{% filter upper %}",
    "{% endfilter %}",
    "{% call m() %}",
    "{% endcall %}",
    "caller()",
    "{% generation %}",
    "{% endgeneration %}",
    "\n",
    "  ",
    "\xc3\xa9",
    "raise_exception('x')",
    "strftime_now('%Y')",
    "recursive",
    "loop(",
    "cycler(1, 2).next()",
};

static uint64_t below(uint64_t n)
{
    return esp_rng_below(&esp_test_state.rng, n);
}

static json_t *random_json(unsigned depth)
{
    static const char *const texts[] = {"", "a", "x y", "<|im_end|>", "\xc3\xa9\xe6\x97\xa5", "1", "{{ a }}", "\n\n"};
    json_t *value;
    switch (below(depth > 3 ? 6 : 9)) {
    case 0: return json_null();
    case 1: return json_boolean(below(2));
    case 2: return json_integer((json_int_t)(below(2) ? below(100) : esp_rng_next(&esp_test_state.rng)));
    case 3: return json_real((double)below(1000) / 7);
    case 4:
    case 5: return json_string(texts[below(8)]);
    case 6:
        value = json_array();
        for (uint64_t n = below(5); n > 0; n--) {
            json_array_append_new(value, random_json(depth + 1));
        }
        return value;
    default:
        value = json_object();
        for (uint64_t n = below(5); n > 0; n--) {
            json_object_set_new(value, below(2) ? "x" : texts[below(8)], random_json(depth + 1));
        }
        return value;
    }
}

static json_t *random_context(void)
{
    json_t *context = json_object();
    json_object_set_new(context, "a", random_json(0));
    json_object_set_new(context, "b", random_json(0));
    return context;
}

/* Compiles and renders; whatever the outcome, it must be one of the two. */
static void try_template(const char *text, size_t n, unsigned *n_rendered)
{
    struct esp_template *tmpl = NULL;
    struct esp_err err = {0};
    esp_status status = esp_template_compile(text, n, &tmpl, &err);
    CHECK((status == ESP_OK) == (tmpl != NULL), "status %d", status);
    CHECK(status == ESP_OK || err.message[0] != '\0', "no message for: %.*s", (int)n, text);
    if (tmpl == NULL) {
        return;
    }
    json_t *context = random_context();
    struct esp_rendered rendered;
    esp_rendered_init(&rendered);
    status = esp_template_render(tmpl, context, 0, &rendered, &err);
    CHECK(status != ESP_EINTERNAL && status != ESP_ENOMEM, "status %d: %s: %.*s", status, err.message, (int)n, text);
    if (status == ESP_OK) {
        size_t n_spans, total = 0;
        const struct esp_span *spans = esp_rendered_spans(&rendered, &n_spans);
        for (size_t idx = 0; idx < n_spans; idx++) {
            total += spans[idx].n_bytes;
        }
        CHECK(total == rendered.text.n, "spans hold %zu of %zu bytes", total, rendered.text.n);
        ++*n_rendered;
    }
    esp_rendered_finish(&rendered);
    json_decref(context);
    esp_template_destroy(tmpl);
}

static void test_fragments(void)
{
    unsigned n_rendered = 0;
    uint64_t live = esp_alloc_live();
    for (int round = 0; round < N_ROUNDS; round++) {
        char text[TEXT_ROOM];
        size_t n = 0;
        for (uint64_t parts = 1 + below(24); parts > 0 && n < TEXT_ROOM - 64; parts--) {
            n += (size_t)snprintf(text + n, TEXT_ROOM - n, "%s",
                                  fragments[below(sizeof fragments / sizeof fragments[0])]);
        }
        if (n > 0 && below(8) == 0) {
            text[below(n)] = (char)below(256);
        }
        try_template(text, n, &n_rendered);
    }
    CHECK(esp_alloc_live() == live, "%llu blocks leaked", (unsigned long long)(esp_alloc_live() - live));
    printf("# %u of %d rendered\n", n_rendered, N_ROUNDS);
}

/* The one-feature templates with other contexts than theirs, whole and damaged. */
static void test_damaged(void)
{
    const char *path = esp_test_shared("data/templates/jinja_micro.json");
    json_t *root = path != NULL ? json_load_file(path, 0, NULL) : NULL, *item;
    unsigned n_rendered = 0;
    size_t idx;
    json_array_foreach(json_object_get(root, "cases"), idx, item)
    {
        for (int round = 0; round < 8; round++) {
            char text[TEXT_ROOM];
            size_t n = (size_t)snprintf(text, sizeof text, "%s", json_string_value(json_object_get(item, "template")));
            n = n < sizeof text ? n : sizeof text - 1;
            for (int damage = 0; damage < round && n > 0; damage++) {
                text[below(n)] = below(2) ? (char)(32 + below(96)) : text[below(n)];
            }
            try_template(text, n, &n_rendered);
        }
    }
    printf("# %u rendered\n", n_rendered);
    json_decref(root);
}

ESP_TEST_MAIN(T(test_fragments), T(test_damaged))
