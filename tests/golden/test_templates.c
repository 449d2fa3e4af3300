/* Chat templates against the real Jinja2: 469 templates of one feature each, and 104 real chat templates with 38
 * conversations each. Texts are compared byte for byte; where Jinja2 fails, so must the renderer, and what a
 * template says with raise_exception must be the same words. The clock stands at noon of 15 June 2025, UTC.
 */
#include <jansson.h>

#include "frontend/template.h"
#include "runtime/base/buf.h"
#include "runtime/base/file.h"
#include "tests/esptest.h"

#define NOW_S 1749988800

static json_t *load(const char *name)
{
    const char *path = esp_test_shared(name);
    return path != NULL ? json_load_file(path, JSON_DECODE_ANY, NULL) : NULL;
}

/* Renders and compares with the case's "expected" or "error". Returns whether it is as it should be. */
static bool check_case(const struct esp_template *tmpl, const json_t *context, const json_t *expected,
                       const json_t *error, const char *name)
{
    struct esp_rendered rendered;
    struct esp_err err = {0};
    esp_rendered_init(&rendered);
    esp_status status = esp_template_render(tmpl, context, NOW_S, &rendered, &err);
    bool good;
    if (expected != NULL) {
        const char *want = json_string_value(expected);
        size_t n = json_string_length(expected);
        good = status == ESP_OK && rendered.text.n == n && memcmp(rendered.text.data, want, n) == 0;
        CHECK(good, "%s: status %d %s\n# got:  %.300s\n# want: %.300s", name, status,
              status != ESP_OK ? err.message : "", status == ESP_OK ? rendered.text.data : "", want);
    } else {
        const char *kind = json_string_value(json_object_get(error, "kind"));
        const char *message = json_string_value(json_object_get(error, "message"));
        good = status != ESP_OK;
        if (strcmp(kind, "raise") == 0) {
            good = status == ESP_EINVAL && strcmp(err.keyword, "raise_exception") == 0 &&
                   strncmp(err.message, message, sizeof err.message - 1) == 0;
        }
        CHECK(good, "%s: want error %s: %s; got status %d: %s", name, kind, message, status,
              status == ESP_OK ? rendered.text.data : err.message);
    }
    esp_rendered_finish(&rendered);
    return good;
}

static void test_micro(void)
{
    json_t *root = load("data/templates/jinja_micro.json"), *item;
    if (root == NULL) {
        return;
    }
    size_t idx, n_good = 0;
    json_array_foreach(json_object_get(root, "cases"), idx, item)
    {
        json_t *text = json_object_get(item, "template"), *error = json_object_get(item, "error");
        const char *name = json_string_value(text);
        struct esp_template *tmpl = NULL;
        struct esp_err err = {0};
        esp_status status = esp_template_compile(name, json_string_length(text), &tmpl, &err);
        const char *kind = json_string_value(json_object_get(error, "kind"));
        if (status != ESP_OK || (kind != NULL && strcmp(kind, "syntax") == 0)) {
            bool good = status != ESP_OK && kind != NULL && strcmp(kind, "syntax") == 0;
            CHECK(good, "%s: compiles to %d: %s", name, status, err.message);
            CHECK(status == ESP_OK || err.offset > 0, "%s: no line in the error", name);
            n_good += good;
        } else {
            n_good += check_case(tmpl, json_object_get(root, "vars"), json_object_get(item, "expected"), error, name);
        }
        esp_template_destroy(tmpl);
    }
    printf("# %zu of %zu as expected\n", n_good, json_array_size(json_object_get(root, "cases")));
    json_decref(root);
}

static struct esp_template *compile_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "data/templates/%s", name);
    const char *found = esp_test_shared(path);
    struct esp_buf text;
    struct esp_template *tmpl = NULL;
    struct esp_err err = {0};
    esp_buf_init(&text, ESP_TAG_MISC, ESP_TEMPLATE_BYTES_MAX);
    if (found != NULL && esp_file_read(found, &text, &err) == ESP_OK) {
        esp_template_compile(text.data, text.n, &tmpl, &err);
    }
    esp_buf_finish(&text);
    CHECK(tmpl != NULL, "%s: %s", name, err.message);
    return tmpl;
}

/* What the generator of the cases passed: see the head of gen_template_goldens.py. */
static json_t *make_context(const json_t *input, json_t *tokens)
{
    json_t *context = json_object();
    json_object_set(context, "messages", json_object_get(input, "messages"));
    json_object_set(context, "tools", json_object_get(input, "tools"));
    json_object_set_new(context, "documents", json_null());
    json_object_set(context, "add_generation_prompt", json_object_get(input, "add_generation_prompt"));
    json_object_update(context, tokens);
    json_object_update(context, json_object_get(input, "extra"));
    return context;
}

static void test_cases(void)
{
    json_t *root = load("data/templates/cases.json"), *item;
    if (root == NULL) {
        return;
    }
    struct esp_template *tmpl = NULL;
    const char *compiled = "";
    size_t idx, n_good = 0;
    json_array_foreach(json_object_get(root, "cases"), idx, item)
    {
        const char *name = json_string_value(json_object_get(item, "template"));
        const char *input = json_string_value(json_object_get(item, "input"));
        if (strcmp(name, compiled) != 0) {
            esp_template_destroy(tmpl);
            tmpl = compile_file(name);
            compiled = name;
        }
        if (tmpl != NULL) {
            char label[256];
            snprintf(label, sizeof label, "%s with %s", name, input);
            json_t *context = make_context(json_object_get(json_object_get(root, "inputs"), input),
                                           json_object_get(json_object_get(root, "templates"), name));
            n_good +=
                check_case(tmpl, context, json_object_get(item, "expected"), json_object_get(item, "error"), label);
            json_decref(context);
        }
    }
    esp_template_destroy(tmpl);
    printf("# %zu of %zu as expected\n", n_good, json_array_size(json_object_get(root, "cases")));
    json_decref(root);
}

int main(int argc, char **argv)
{
    static const struct esp_test tests[] = {T(test_micro), T(test_cases)};
    setenv("TZ", "UTC", 1);
    return esp_test_main(argc, argv, tests, 2);
}
