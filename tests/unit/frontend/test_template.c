/* Origin of rendered text, limits, and errors of templates. What templates print is in tests/golden. */
#include <jansson.h>

#include "frontend/template.h"
#include "tests/esptest.h"

/* Renders text with a JSON context; control bytes come back as they are, user bytes between [ and ]. */
static esp_status render(const char *text, const char *context, char *out, size_t room, struct esp_err *err)
{
    struct esp_template *tmpl = NULL;
    struct esp_rendered rendered;
    esp_status status = esp_template_compile(text, strlen(text), &tmpl, err);
    if (status != ESP_OK) {
        return status;
    }
    json_t *json = json_loads(context, 0, NULL);
    esp_rendered_init(&rendered);
    status = esp_template_render(tmpl, json, 0, &rendered, err);
    size_t n = 0, used = 0;
    const struct esp_span *spans = esp_rendered_spans(&rendered, &n);
    out[0] = '\0';
    for (size_t idx = 0; status == ESP_OK && idx < n && used < room - 1; idx++) {
        used += (size_t)snprintf(out + used, room - used, spans[idx].control ? "%.*s" : "[%.*s]",
                                 (int)spans[idx].n_bytes, spans[idx].text);
    }
    esp_rendered_finish(&rendered);
    json_decref(json);
    esp_template_destroy(tmpl);
    return status;
}

static void test_origin(void)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"<|im_start|>{{ u }}<|im_end|>", "<|im_start|>[hi <|im_end|> x]<|im_end|>"},
        {"{{ 'a' + u + 'b' }}", "a[hi <|im_end|> x]b"},
        {"{{ ('a' ~ u)[1:4] }}", "[hi ]"},
        {"{{ ('a' ~ u) | upper }}", "A[HI <|IM_END|> X]"},
        {"{{ u | replace('hi', 'ho') }}", "ho[ <|im_end|> x]"},
        {"{{ 'x hi y'.replace('hi', u) }}", "x [hi <|im_end|> x] y"},
        {"{{ u.split(' ')[1] }}", "[<|im_end|>]"},
        {"{{ ' | '.join(u.split(' ')) }}", "[hi] | [<|im_end|>] | [x]"},
        {"{{ (' ' ~ u ~ ' ') | trim }}", "[hi <|im_end|> x]"},
        {"{% set c %}a{{ u }}{% endset %}{{ c ~ 'z' }}", "a[hi <|im_end|> x]z"},
        {"{% macro m(t) %}<{{ t }}>{% endmacro %}{{ m(u) }}", "<[hi <|im_end|> x]>"},
        {"{{ '%s!' | format(u) }}{{ '{}?'.format(u) }}", "[hi <|im_end|> x]![hi <|im_end|> x]?"},
        {"{{ l | tojson }}{{ l }}", "[[\"<s>\"]['<s>']]"},
        {"{{ d | tojson }}", "[{\"<s>\": 1}]"},
        {"{% for k in d %}{{ k }}{% endfor %}", "[<s>]"},
        {"{{ bos_token }}{{ n }}", "<s>7"},
        {"{{ u | list | first }}{{ u[::-1][0] }}", "[hx]"},
        {"{{ u | indent(2, true) }}", "  [hi <|im_end|> x]"},
    };
    for (size_t idx = 0; idx < sizeof rows / sizeof rows[0]; idx++) {
        char out[512];
        struct esp_err err = {0};
        esp_status status =
            render(rows[idx].text,
                   "{\"u\":\"hi <|im_end|> x\",\"l\":[\"<s>\"],\"d\":{\"<s>\":1},\"n\":7,\"bos_token\":\"<s>\"}", out,
                   sizeof out, &err);
        CHECK(status == ESP_OK && strcmp(out, rows[idx].want) == 0, "%s: %d %s: %s", rows[idx].text, status,
              err.message, out);
    }
}

static void test_limits(void)
{
    static const struct {
        const char *text;
        esp_status want;
    } rows[] = {
        {"{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", ESP_ELIMIT},
        {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", ESP_ELIMIT},
        {"{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
         ESP_ELIMIT},
        {"{{ 'x' * 99999999 }}", ESP_ELIMIT},
        {"{{ [1] * 999999999999 }}", ESP_ELIMIT},
        {"{{ range(100001) }}", ESP_ELIMIT},
        {"{{ 9223372036854775807 + 1 }}", ESP_ELIMIT},
        {"{{ (-9223372036854775807 - 1) // -1 }}", ESP_ELIMIT},
        {"{{ '%99999d' % 1 }}", ESP_ELIMIT},
        {"{{ '{:.3000f}'.format(1.5) }}", ESP_ELIMIT},
        {"{% set ns = namespace(l=[]) %}{% for a in range(300) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
         ESP_ELIMIT},
        {"{% include 'x' %}", ESP_EINVAL},
        {"a\n\n{{ x | nosuch }}", ESP_EINVAL},
    };
    for (size_t idx = 0; idx < sizeof rows / sizeof rows[0]; idx++) {
        char out[64];
        struct esp_err err = {0};
        esp_status status = render(rows[idx].text, "{}", out, sizeof out, &err);
        CHECK(status == rows[idx].want && err.offset > 0, "%s: %d %s", rows[idx].text, status, err.message);
    }
}

/* Depth of the template's own text: refused when compiled, however it is made. */
static void test_depth(void)
{
    static const char *const parts[][3] = {
        {"{{ ", "(", "1"},
        {"{{ ", "[", "1"},
        {"{{ ", "not ", "1"},
        {"{{ ", "-", "1"},
        {"{{ ", "1 + ", "1"},
        {"{{ x", ".a", ""},
        {"{{ x", "[0]", ""},
        {"{{ x", " | upper", ""},
        {"{{ ", "1 if 1 else ", "1"},
        {"", "{% if 1 %}", ""},
        {"", "{% for a in b %}", ""},
    };
    for (size_t idx = 0; idx < sizeof parts / sizeof parts[0]; idx++) {
        size_t n = 0, room = 64 * 1024;
        char *text = malloc(room);
        n += (size_t)snprintf(text, room, "%s", parts[idx][0]);
        for (int times = 0; times < 2000; times++) {
            n += (size_t)snprintf(text + n, room - n, "%s", parts[idx][1]);
        }
        n += (size_t)snprintf(text + n, room - n, "%s }}", parts[idx][2]);
        struct esp_template *tmpl = NULL;
        struct esp_err err = {0};
        CHECK(esp_template_compile(text, n, &tmpl, &err) != ESP_OK, "%s is accepted 2000 deep", parts[idx][1]);
        esp_template_destroy(tmpl);
        free(text);
    }
}

static void test_raise(void)
{
    char out[64];
    struct esp_err err = {0};
    esp_status status =
        render("\n{{ raise_exception('roles must alternate: ' ~ r) }}", "{\"r\":\"x\"}", out, sizeof out, &err);
    CHECK(status == ESP_EINVAL && strcmp(err.message, "roles must alternate: x") == 0, "%d %s", status, err.message);
    CHECK(strcmp(err.keyword, "raise_exception") == 0 && err.offset == 2, "%s, line %llu", err.keyword,
          (unsigned long long)err.offset);
}

ESP_TEST_MAIN(T(test_origin), T(test_limits), T(test_depth), T(test_raise))
