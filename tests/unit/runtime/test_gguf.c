/* GGUF files: every file of shared/data/gguf is taken or refused as cases.json says; values and tables
 * built here by hand come back exactly; split files; the nth allocation fails.
 */
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/gguf_parts.h"
#include "tests/esptest.h"
#include "tests/unit/runtime/gguf_writer.h"

static esp_status open_close(const char *path, struct esp_err *err)
{
    struct esp_gguf *gguf = NULL;
    esp_status status = esp_gguf_open(path, &gguf, err);
    if (status == ESP_OK) {
        esp_gguf_close(gguf);
    }
    return status;
}

/* ---- Tests ------------------------------------------------------------------------------------- */

static void test_shared_cases(void)
{
    const char *list = esp_test_shared("data/gguf/cases.json");
    if (list == NULL) {
        return;
    }
    struct esp_buf text;
    esp_buf_init(&text, ESP_TAG_MISC, 1 << 20);
    REQUIRE(esp_file_read(list, &text, NULL) == ESP_OK);
    json_t *cases = esp_json_parse(text.data, text.n, NULL);
    REQUIRE(cases != NULL);
    size_t idx;
    json_t *item;
    uint64_t live = esp_alloc_live();
    json_array_foreach(cases, idx, item)
    {
        char name[256];
        snprintf(name, sizeof name, "data/gguf/%s", json_string_value(json_object_get(item, "file")));
        struct esp_err err = {0};
        struct esp_gguf *gguf = NULL;
        esp_status status = esp_gguf_open(esp_test_shared(name), &gguf, &err);
        bool want = json_is_true(json_object_get(item, "ok"));
        CHECK((status == ESP_OK) == want, "%s: %s", name, err.message);
        CHECK(want || (gguf == NULL && err.code == ESP_EINVAL && strchr(err.message, '\n') == NULL &&
                       strstr(err.message, "offset") != NULL), "%s: %s", name, err.message);
        esp_gguf_close(gguf);
    }
    CHECK(idx == 58, "%zu files", idx);
    CHECK(esp_alloc_live() == live, "leaked %llu", (unsigned long long)(esp_alloc_live() - live));
    json_decref(cases);
    esp_buf_finish(&text);
}

static struct esp_gguf *open_values(void)
{
    begin(0, 9);
    put_kv("i8", ESP_GGUF_I8, (uint8_t)-5, 1);
    put_kv("i16", ESP_GGUF_I16, (uint16_t)-300, 2);
    put_kv("u64", ESP_GGUF_U64, UINT64_MAX, 8);
    put_kv("u64_small", ESP_GGUF_U64, 77, 8);
    put_kv("i64", ESP_GGUF_I64, 123456, 8);
    put_kv("bool", ESP_GGUF_BOOL, 1, 1);
    float f = 0.1f;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    put_kv("f32", ESP_GGUF_F32, bits, 4);
    double d = 1e300;
    uint64_t wide;
    memcpy(&wide, &d, sizeof wide);
    put_kv("f64", ESP_GGUF_F64, wide, 8);
    put_str("s");
    put_u32(ESP_GGUF_STRING);
    put_str("text");
    struct esp_gguf *g = NULL;
    esp_gguf_open(save("v.gguf"), &g, NULL);
    drop("v.gguf");
    return g;
}

static void test_integers(void)
{
    struct esp_gguf *g = open_values();
    REQUIRE(g != NULL);
    struct esp_err err;
    uint32_t u = 5;
    CHECK(esp_gguf_get_u32(g, "i8", 1, &u, &err) == ESP_EINVAL && u == 5 && strcmp(err.place, "i8") == 0);
    CHECK(esp_gguf_get_u32(g, "u64", 1, &u, &err) == ESP_EINVAL && u == 5);
    CHECK(esp_gguf_get_u32(g, "bool", 1, &u, &err) == ESP_EINVAL && u == 5);
    CHECK(esp_gguf_get_u32(g, "s", 1, &u, &err) == ESP_EINVAL && u == 5);
    CHECK(esp_gguf_get_u32(g, "u64_small", 1, &u, &err) == ESP_OK && u == 77);
    CHECK(esp_gguf_get_u32(g, "i64", 1, &u, &err) == ESP_OK && u == 123456);
    CHECK(esp_gguf_get_u32(g, "absent", 9, &u, &err) == ESP_OK && u == 9);
    CHECK(esp_gguf_array_int(esp_gguf_find(g, "i8"), 0) == -5);
    CHECK(esp_gguf_array_int(esp_gguf_find(g, "i16"), 0) == -300);
    esp_gguf_close(g);
}

static void test_other_values(void)
{
    struct esp_gguf *g = open_values();
    REQUIRE(g != NULL);
    struct esp_err err;
    float x = 0;
    bool b = false;
    struct esp_gguf_string s = {0};
    CHECK(esp_gguf_get_f32(g, "f32", 0, &x, &err) == ESP_OK && x == 0.1f);
    CHECK(esp_gguf_get_f32(g, "f64", 0, &x, &err) == ESP_EINVAL && x == 0.1f);
    CHECK(esp_gguf_get_f32(g, "i64", 0, &x, &err) == ESP_EINVAL);
    CHECK(esp_gguf_get_bool(g, "bool", false, &b, &err) == ESP_OK && b);
    CHECK(esp_gguf_get_bool(g, "i8", false, &b, &err) == ESP_EINVAL);
    CHECK(esp_gguf_get_string(g, "s", &s, &err) == ESP_OK && s.n_bytes == 4 && memcmp(s.data, "text", 4) == 0);
    CHECK(esp_gguf_get_string(g, "absent", &s, &err) == ESP_OK && s.data == NULL && s.n_bytes == 0);
    CHECK(esp_gguf_get_string(g, "bool", &s, &err) == ESP_EINVAL);
    esp_gguf_close(g);
}

static void test_describe(void)
{
    begin(1, 6);
    put_kv("big", ESP_GGUF_U64, UINT64_MAX, 8);
    put_kv("nan", ESP_GGUF_F32, 0x7fc00000, 4);
    put_kv("tenth", ESP_GGUF_F32, 0x3dcccccd, 4);
    put_kv("zero", ESP_GGUF_F64, 0x8000000000000000u, 8);
    put_str("bad\xff\x01key");
    put_u32(ESP_GGUF_STRING);
    put_str("a\"\\\n\xc3(\xe2\x82\xac");
    put_str("long");
    put_u32(ESP_GGUF_ARRAY);
    put_u32(ESP_GGUF_U8);
    put_u64(20);
    for (int idx = 0; idx < 20; idx++) {
        esp_buf_char(&out, (char)idx);
    }
    put_tensor("t\xff", 4, 0);
    pad();
    put("0123456789abcdef", 16);
    struct esp_gguf *g = NULL;
    REQUIRE(esp_gguf_open(save("d.gguf"), &g, NULL) == ESP_OK);
    for (int full = 0; full < 2; full++) {
        struct esp_buf text;
        esp_buf_init(&text, ESP_TAG_MISC, 1 << 20);
        CHECK(esp_gguf_describe(g, "odd\xff\nlast\n", true, full == 1, &text) == ESP_OK);
        char *big = strstr(text.data, "\"big\":18446744073709551615,\"nan\":\"NaN\",\"tenth\":0.1,\"zero\":-0.0");
        REQUIRE(big != NULL, "%s", text.data);
        memset(big + 6, ' ', 19); /* the reader of this test takes 63 bits only */
        struct esp_err err = {0};
        json_t *root = esp_json_parse(text.data, text.n, &err);
        REQUIRE(root != NULL, "%s in %s", err.message, text.data);
        json_t *kv = json_object_get(root, "kv");
        CHECK(strcmp(json_string_value(json_object_get(kv, "bad\xef\xbf\xbd\x01key")),
                     "a\"\\\n\xef\xbf\xbd(\xe2\x82\xac") == 0, "%s", text.data);
        json_t *array = json_object_get(kv, "long");
        CHECK(full == 1 ? json_array_size(array) == 20 : json_integer_value(json_object_get(array, "count")) == 20);
        json_t *tensor = json_array_get(json_object_get(root, "tensors"), 0);
        CHECK(json_integer_value(json_object_get(tensor, "bytes")) == 16, "%s", text.data);
        CHECK(json_is_null(json_object_get(root, "split")));
        const json_t *warnings = json_object_get(root, "warnings");
        CHECK(json_array_size(warnings) == 2 && strcmp(json_string_value(json_array_get(warnings, 1)), "last") == 0);
        json_decref(root);
        esp_buf_clear(&text);
        CHECK(esp_gguf_describe(g, "odd\xff\nlast\n", false, full == 1, &text) == ESP_OK);
        CHECK(esp_utf8_valid(text.data, text.n) == text.n && strchr(text.data, '\x01') == NULL);
        CHECK(strstr(text.data, "\n2 warnings\n  odd\xef\xbf\xbd\n  last\n") != NULL, "%s", text.data);
        esp_buf_finish(&text);
        esp_buf_init(&text, ESP_TAG_MISC, 40);
        CHECK(esp_gguf_describe(g, "odd\xff\nlast\n", true, false, &text) == ESP_ENOMEM);
        esp_buf_finish(&text);
    }
    esp_gguf_close(g);
    drop("d.gguf");
}

/* Part no of count, with one tensor of four floats whose first is `no`. */
static void save_part(unsigned no, unsigned count, unsigned says_no, unsigned total, const char *tensor)
{
    begin(1, 3);
    put_kv("split.no", ESP_GGUF_U16, says_no, 2);
    put_kv("split.count", ESP_GGUF_U16, count, 2);
    put_kv("split.tensors.count", ESP_GGUF_I32, total, 4);
    put_tensor(tensor, 4, 0);
    pad();
    float data[4] = {(float)no, 1, 2, 3};
    put(data, sizeof data);
    char name[64];
    snprintf(name, sizeof name, "m-%05u-of-%05u.gguf", no + 1, count);
    save(name);
}

static const char *first_part(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/m-00001-of-00003.gguf", dir);
    return path;
}

static void test_split(void)
{
    save_part(0, 3, 0, 3, "a");
    save_part(1, 3, 1, 3, "b");
    save_part(2, 3, 2, 3, "c");
    struct esp_gguf *g = NULL;
    struct esp_err err = {0};
    REQUIRE(esp_gguf_open(first_part(), &g, &err) == ESP_OK, "%s", err.message);
    CHECK(esp_gguf_n_files(g) == 3 && esp_gguf_n_tensors(g) == 3);
    const struct esp_gguf_tensor *t = esp_gguf_tensor(g, "c");
    REQUIRE(t != NULL && t->file_idx == 2);
    float value;
    memcpy(&value, t->data, sizeof value);
    CHECK(value == 2.0f, "%f", (double)value);
    esp_gguf_forget(g, t, t->n_bytes);
    memcpy(&value, t->data, sizeof value);
    CHECK(value == 2.0f, "%f after forgetting", (double)value);
    esp_gguf_close(g);

    save_part(2, 3, 1, 3, "c");
    CHECK(open_close(first_part(), &err) == ESP_EINVAL && strcmp(err.place, "split.no") == 0, "%s", err.message);
    save_part(2, 3, 2, 3, "a");
    CHECK(open_close(first_part(), &err) == ESP_EINVAL && strstr(err.message, "twice") != NULL, "%s", err.message);
    save_part(2, 3, 2, 3, "c");
    save_part(0, 3, 0, 4, "a");
    CHECK(open_close(first_part(), &err) == ESP_EINVAL && strcmp(err.place, "split.tensors.count") == 0, "%s",
          err.message);
    save_part(0, 3, 1, 3, "a");
    CHECK(open_close(first_part(), &err) == ESP_EINVAL && strstr(err.message, "first part") != NULL, "%s", err.message);
    save_part(0, 3, 0, 3, "a");
    drop("m-00002-of-00003.gguf");
    CHECK(open_close(first_part(), &err) == ESP_EIO, "%s", err.message);
    begin(0, 1);
    put_kv("split.count", ESP_GGUF_U16, 2, 2);
    CHECK(open_close(save("odd.gguf"), &err) == ESP_EINVAL && strcmp(err.place, "split.count") == 0, "%s", err.message);
    drop("odd.gguf");
    drop("m-00001-of-00003.gguf");
    drop("m-00003-of-00003.gguf");
}

static void test_alloc_faults(void)
{
    save_part(0, 2, 0, 2, "a");
    save_part(1, 2, 1, 2, "b");
    char path[512];
    snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", dir);
    uint64_t live = esp_alloc_live();
    uint64_t n = 0;
    esp_status status;
    do {
        struct esp_err err = {0};
        esp_alloc_fail_at(++n);
        status = open_close(path, &err);
        CHECK(status == ESP_OK || status == ESP_ENOMEM, "%d: %s", status, err.message);
        CHECK(esp_alloc_live() == live, "leak when allocation %llu fails", (unsigned long long)n);
    } while (esp_alloc_fail_at(0) && n < 1000);
    CHECK(status == ESP_OK && n > 5 && n < 1000, "%llu allocations", (unsigned long long)n);
    drop("m-00001-of-00002.gguf");
    drop("m-00002-of-00002.gguf");
}

/* The counts and lengths of public bug reports (B197, B199, B201, B202): each is refused. */
static void test_hostile_recipes(void)
{
    struct esp_err err = {0};
    begin(1, 0);
    put_str("t");
    put_u32(1000000);
    for (int idx = 0; idx < 12; idx++) {
        put_u64(1);
    }
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL, "%s", err.message);
    CHECK(strstr(err.message, "dimensions") != NULL, "%s", err.message);
    begin(0, 1);
    put_str("general.name");
    put_u32(ESP_GGUF_STRING);
    put_u64(UINT64_MAX);
    put("x", 1);
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL, "%s", err.message);
    CHECK(strcmp(err.place, "general.name") == 0, "%s", err.message);
    static const struct {
        uint32_t item_type;
        uint64_t n;
    } arrays[] = {{ESP_GGUF_U8, INT64_MAX}, {ESP_GGUF_ARRAY, 10}, {ESP_GGUF_STRING, 0x40000000}};
    for (size_t idx = 0; idx < sizeof arrays / sizeof arrays[0]; idx++) {
        begin(0, 1);
        put_str("a");
        put_u32(ESP_GGUF_ARRAY);
        put_u32(arrays[idx].item_type);
        put_u64(arrays[idx].n);
        put_u64(0);
        CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL && strcmp(err.place, "a") == 0, "%s", err.message);
    }
    begin(0, 1);
    put_kv("b", ESP_GGUF_BOOL, 2, 1);
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL && strstr(err.message, "bool") != NULL, "%s", err.message);
    begin(1, 0);
    put_str("t");
    put_u32(0);
    put_u32(ESP_TYPE_F32);
    put_u64(0);
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL, "%s", err.message);
}

static void test_hostile_counts(void)
{
    struct esp_err err = {0};
    static const uint32_t dims[] = {0, 5, UINT32_MAX};
    for (int idx = 0; idx < 3; idx++) {
        begin(1, 0);
        put_str("t");
        put_u32(dims[idx]);
        for (uint32_t d = 0; d < 5; d++) {
            put_u64(1);
        }
        put_u32(ESP_TYPE_F32);
        put_u64(0);
        CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL, "%u dimensions", dims[idx]);
    }
    begin(1, 0); /* a dimension below zero; one of zero is a tensor without data, which no model's shapes take */
    put_str("t");
    put_u32(1);
    put_u64(UINT64_C(1) << 63);
    put_u32(ESP_TYPE_F32);
    put_u64(0);
    pad();
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL && strcmp(err.place, "t") == 0, "%s", err.message);
    begin(0, 1);
    put_kv("", ESP_GGUF_U32, 1, 4);
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL && strstr(err.message, "key") != NULL, "%s", err.message);
    begin(0, 2);
    put_kv("general.x", ESP_GGUF_U32, 1, 4);
    put_kv("general.x", ESP_GGUF_U32, 2, 4);
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL && strcmp(err.place, "general.x") == 0, "%s", err.message);
    begin(2, 0);
    put_tensor("twin", 4, 0);
    put_tensor("twin", 4, 32);
    pad();
    put("0123456789abcdef0123456789abcdef0123456789abcdef", 48);
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL && strcmp(err.place, "twin") == 0, "%s", err.message);
    begin(0, 1);
    put_str("general.alignment");
    put_u32(ESP_GGUF_STRING);
    put_str("32");
    CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL, "a text for the alignment");
    for (int idx = 0; idx < 5; idx++) {
        static const uint32_t alignments[] = {0, 3, 4, 131072, 0x80000000};
        begin(0, 1);
        put_kv("general.alignment", ESP_GGUF_U32, alignments[idx], 4);
        CHECK(open_close(save("h.gguf"), &err) == ESP_EINVAL, "%u", alignments[idx]);
    }
    CHECK(open_close("/", &err) == ESP_EIO && open_close("/nonexistent/x.gguf", &err) == ESP_EIO);
    drop("h.gguf");
    finish_writer();
}

ESP_TEST_MAIN(T(test_shared_cases), T(test_integers), T(test_other_values), T(test_describe), T(test_split),
              T(test_alloc_faults), T(test_hostile_recipes), T(test_hostile_counts))
