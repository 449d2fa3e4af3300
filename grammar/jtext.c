/* The JSON reader of this folder. See jtext.h. Nesting is kept by parent links, not by recursion. */
#include "grammar/jtext.h"

#include <string.h>

#include "grammar/decimal.h"
#include "grammar/grammar.h"
#include "runtime/base/map.h"
#include "runtime/base/utf8.h"

#define FEW_KEYS 16

struct reader {
    struct esp_arena *arena;
    const char *text;
    size_t n, at;
    unsigned depth_max;
    struct esp_err *err;
};

static esp_status fail(struct reader *in, esp_status status, const char *what)
{
    esp_fail(in->err, status, "JSON text, byte %zu: %s", in->at, what);
    if (in->err != NULL) {
        in->err->offset = in->at;
    }
    return status;
}

static void skip_space(struct reader *in)
{
    while (in->at < in->n && (in->text[in->at] == ' ' || in->text[in->at] == '\n' || in->text[in->at] == '\t' ||
                              in->text[in->at] == '\r')) {
        in->at++;
    }
}

static char peek(const struct reader *in)
{
    return in->at < in->n ? in->text[in->at] : '\0';
}

/* Four hexadecimal digits, or −1. */
static int32_t read_hex(struct reader *in)
{
    int32_t value = 0;
    for (int idx = 0; idx < 4; idx++, in->at++) {
        char c = peek(in), lower = (char)(c | 0x20);
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static esp_status read_escape(struct reader *in, char *out, uint32_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = peek(in);
    const char *simple = c == '\0' ? NULL : strchr(from, c);
    in->at++;
    if (simple != NULL) {
        out[(*n)++] = to[simple - from];
        return ESP_OK;
    }
    int32_t cp = c == 'u' ? read_hex(in) : -1;
    if (cp < 0) {
        return fail(in, ESP_EINVAL, "bad escape");
    }
    if (cp >= 0xD800 && cp < 0xDC00 && in->n - in->at >= 6 && in->text[in->at] == '\\' && in->text[in->at + 1] == 'u') {
        in->at += 2;
        int32_t low = read_hex(in);
        cp = low >= 0xDC00 && low < 0xE000 ? 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00) : 0xD800;
    }
    int used = esp_utf8_encode((uint32_t)cp, out + *n);
    if (used == 0) {
        return fail(in, ESP_EINVAL, "half of a surrogate pair");
    }
    *n += (uint32_t)used;
    return ESP_OK;
}

static esp_status read_string(struct reader *in, const char **ret_text, uint32_t *ret_n)
{
    size_t begin = ++in->at, end = begin;
    while (end < in->n && in->text[end] != '"') {
        end += in->text[end] == '\\' ? 2 : 1;
    }
    if (end >= in->n) {
        return fail(in, ESP_EINVAL, "string without end");
    }
    char *out = esp_arena_alloc(in->arena, end - begin + 4, 1);
    uint32_t n = 0;
    if (out == NULL) {
        return fail(in, ESP_ENOMEM, "out of memory");
    }
    while (in->at < end) {
        unsigned char c = (unsigned char)in->text[in->at++];
        if (c < 0x20) {
            return fail(in, ESP_EINVAL, "control character in a string");
        }
        if (c != '\\') {
            out[n++] = (char)c;
            continue;
        }
        esp_status status = read_escape(in, out, &n);
        if (status != ESP_OK) {
            return status;
        }
    }
    in->at = end + 1;
    out[n] = '\0';
    *ret_text = out;
    *ret_n = n;
    return ESP_OK;
}

static esp_status read_number(struct reader *in, struct esp_jv *value)
{
    size_t begin = in->at;
    struct esp_decimal ignored;
    while (in->at < in->n && in->text[in->at] != '\0' && strchr("0123456789+-.eE", in->text[in->at]) != NULL) {
        in->at++;
    }
    value->type = ESP_JV_NUMBER;
    value->n_bytes = (uint32_t)(in->at - begin);
    value->text = esp_arena_strndup(in->arena, in->text + begin, value->n_bytes);
    char *room = esp_arena_alloc(in->arena, value->n_bytes + 1, 1);
    if (value->text == NULL || room == NULL) {
        return fail(in, ESP_ENOMEM, "out of memory");
    }
    if (!esp_decimal_parse(value->text, value->n_bytes, room, &ignored)) {
        in->at = begin;
        return fail(in, ESP_EINVAL, value->n_bytes == 0 ? "not a JSON value" : "not a JSON number");
    }
    return ESP_OK;
}

static bool take_word(struct reader *in, const char *word)
{
    size_t n = strlen(word);
    if (in->n - in->at < n || memcmp(in->text + in->at, word, n) != 0) {
        return false;
    }
    in->at += n;
    return true;
}

/* One value, of an array or object only the opening. */
static esp_status read_value(struct reader *in, struct esp_jv *value)
{
    switch (peek(in)) {
    case '{':
    case '[': value->type = in->text[in->at++] == '{' ? ESP_JV_OBJECT : ESP_JV_ARRAY; return ESP_OK;
    case '"': value->type = ESP_JV_STRING; return read_string(in, &value->text, &value->n_bytes);
    case 'n': value->type = ESP_JV_NULL; break;
    case 't': value->type = ESP_JV_TRUE; break;
    case 'f': value->type = ESP_JV_FALSE; break;
    default: return read_number(in, value);
    }
    const char *word = value->type == ESP_JV_NULL ? "null" : value->type == ESP_JV_TRUE ? "true" : "false";
    return take_word(in, word) ? ESP_OK : fail(in, ESP_EINVAL, "not a JSON value");
}

static void append(struct esp_jv *parent, struct esp_jv *value)
{
    value->parent = parent;
    value->index = parent->n++;
    if (parent->last == NULL) {
        parent->child = value;
    } else {
        parent->last->next = value;
    }
    parent->last = value;
}

static esp_status check_keys(struct reader *in, const struct esp_jv *object)
{
    struct esp_bytesmap map;
    esp_status status = ESP_OK;
    if (object->n <= FEW_KEYS) {
        for (const struct esp_jv *a = object->child; a != NULL; a = a->next) {
            if (esp_jv_get(object, a->key, a->key_bytes) != a) {
                return fail(in, ESP_EINVAL, "duplicate key");
            }
        }
        return ESP_OK;
    }
    esp_bytesmap_init(&map, ESP_TAG_GRAMMAR);
    for (const struct esp_jv *a = object->child; a != NULL && status == ESP_OK; a = a->next) {
        if (esp_bytesmap_get(&map, a->key, a->key_bytes) != ESP_MAP_NONE) {
            status = fail(in, ESP_EINVAL, "duplicate key");
        } else if (esp_bytesmap_put(&map, a->key, a->key_bytes, a->index) != ESP_OK) {
            status = fail(in, ESP_ENOMEM, "out of memory");
        }
    }
    esp_bytesmap_finish(&map);
    return status;
}

/* Reads the key and colon of a member. */
static esp_status read_key(struct reader *in, struct esp_jv *value)
{
    if (peek(in) != '"') {
        return fail(in, ESP_EINVAL, "a key was expected");
    }
    esp_status status = read_string(in, &value->key, &value->key_bytes);
    skip_space(in);
    if (status == ESP_OK && peek(in) != ':') {
        status = fail(in, ESP_EINVAL, "a colon was expected");
    }
    in->at++;
    skip_space(in);
    return status;
}

/* Closes finished arrays and objects; *open is the innermost one still open, NULL at the end of the text. */
static esp_status after_value(struct reader *in, struct esp_jv **open)
{
    while (*open != NULL) {
        skip_space(in);
        char close = (*open)->type == ESP_JV_OBJECT ? '}' : ']';
        if (peek(in) == ',' && (*open)->n > 0) {
            in->at++;
            return ESP_OK;
        }
        if (peek(in) != close) {
            return (*open)->n == 0 ? ESP_OK : fail(in, ESP_EINVAL, "a comma or the end was expected");
        }
        in->at++;
        (*open)->source_bytes = (size_t)(in->text + in->at - (*open)->source);
        esp_status status = close == '}' ? check_keys(in, *open) : ESP_OK;
        if (status != ESP_OK) {
            return status;
        }
        *open = (*open)->parent;
    }
    return ESP_OK;
}

static esp_status read_tree(struct reader *in, struct esp_jv **ret_root)
{
    struct esp_jv *open = NULL, *root = NULL;
    unsigned depth = 0;
    do {
        struct esp_jv *value = esp_arena_alloc(in->arena, 1, sizeof *value);
        esp_status status = value == NULL ? fail(in, ESP_ENOMEM, "out of memory") : ESP_OK;
        skip_space(in);
        if (status == ESP_OK && open != NULL && open->type == ESP_JV_OBJECT) {
            status = read_key(in, value);
        }
        if (status == ESP_OK) {
            value->source = in->text + in->at;
            status = read_value(in, value);
            value->source_bytes = (size_t)(in->text + in->at - value->source);
        }
        if (status != ESP_OK) {
            return status;
        }
        if (open == NULL) {
            root = value;
        } else {
            append(open, value);
        }
        if (value->type >= ESP_JV_ARRAY) {
            depth = 1;
            for (const struct esp_jv *up = open; up != NULL; up = up->parent) {
                depth++;
            }
            if (depth > in->depth_max) {
                return fail(in, ESP_ELIMIT, "nested too deep");
            }
            open = value;
        }
        status = after_value(in, &open);
        if (status != ESP_OK) {
            return status;
        }
    } while (open != NULL);
    *ret_root = root;
    return ESP_OK;
}

esp_status esp_jv_parse(struct esp_arena *arena, const char *text, size_t n_bytes, struct esp_jv **ret_root,
                        struct esp_err *err)
{
    return esp_jv_parse_large(arena, text, n_bytes, ESP_GRAMMAR_TEXT_BYTES_MAX, ESP_GRAMMAR_DEPTH_MAX, ret_root, err);
}

esp_status esp_jv_parse_large(struct esp_arena *arena, const char *text, size_t n_bytes, size_t bytes_max,
                              unsigned depth_max, struct esp_jv **ret_root, struct esp_err *err)
{
    struct reader in = {.arena = arena, .text = text, .n = n_bytes, .depth_max = depth_max, .err = err};
    struct esp_jv *root = NULL;
    if (n_bytes > bytes_max) {
        return fail(&in, ESP_ELIMIT, "text is too long");
    }
    in.at = n_bytes == 0 ? 0 : esp_utf8_valid(text, n_bytes);
    if (in.at < n_bytes) {
        return fail(&in, ESP_EINVAL, "not valid UTF-8");
    }
    in.at = 0;
    esp_status status = read_tree(&in, &root);
    skip_space(&in);
    if (status == ESP_OK && in.at < in.n) {
        status = fail(&in, ESP_EINVAL, "text after the value");
    }
    if (status == ESP_OK) {
        *ret_root = root;
    }
    return status;
}

struct esp_jv *esp_jv_get(const struct esp_jv *object, const char *key, size_t key_bytes)
{
    for (struct esp_jv *member = object->child; member != NULL; member = member->next) {
        if (member->key_bytes == key_bytes && memcmp(member->key, key, key_bytes) == 0) {
            return member;
        }
    }
    return NULL;
}

struct esp_jv *esp_jv_find(const struct esp_jv *object, const char *key)
{
    return object->type == ESP_JV_OBJECT ? esp_jv_get(object, key, strlen(key)) : NULL;
}

bool esp_jv_is(const struct esp_jv *string, const char *text)
{
    return string->type == ESP_JV_STRING && string->n_bytes == strlen(text) &&
           memcmp(string->text, text, string->n_bytes) == 0;
}

static bool equal_numbers(const struct esp_jv *a, const struct esp_jv *b)
{
    char few[2][256], *room[2] = {few[0], few[1]};
    struct esp_decimal da, db;
    bool equal = a->n_bytes == b->n_bytes && memcmp(a->text, b->text, a->n_bytes) == 0;
    if (!equal && a->n_bytes <= sizeof few[0] && b->n_bytes <= sizeof few[0]) {
        esp_decimal_parse(a->text, a->n_bytes, room[0], &da);
        esp_decimal_parse(b->text, b->n_bytes, room[1], &db);
        equal = esp_decimal_compare(&da, &db) == 0;
    }
    return equal;
}

/* Recursion is bounded by the depth that the parser allows. */
bool esp_jv_equal(const struct esp_jv *a, const struct esp_jv *b)
{
    if (a->type != b->type || a->n != b->n) {
        return false;
    }
    if (a->type == ESP_JV_NUMBER) {
        return equal_numbers(a, b);
    }
    if (a->type == ESP_JV_STRING) {
        return a->n_bytes == b->n_bytes && memcmp(a->text, b->text, a->n_bytes) == 0;
    }
    const struct esp_jv *other = b->child;
    for (const struct esp_jv *member = a->child; member != NULL; member = member->next) {
        if (a->type == ESP_JV_OBJECT) {
            other = esp_jv_get(b, member->key, member->key_bytes);
        }
        if (other == NULL || !esp_jv_equal(member, other)) {
            return false;
        }
        other = other->next;
    }
    return true;
}

void esp_jv_pointer(const struct esp_jv *value, char *out, size_t cap)
{
    const struct esp_jv *chain[ESP_GRAMMAR_DEPTH_MAX + 2];
    size_t n = 0, at = 0;
    for (; value != NULL && value->parent != NULL && n < ESP_GRAMMAR_DEPTH_MAX + 2; value = value->parent) {
        chain[n++] = value;
    }
    while (n > 0 && at + 24 < cap) {
        const struct esp_jv *step = chain[--n];
        out[at++] = '/';
        if (step->parent->type == ESP_JV_ARRAY) {
            char digits[12];
            size_t n_digits = 0;
            uint32_t index = step->index;
            do {
                digits[n_digits++] = (char)('0' + index % 10);
                index /= 10;
            } while (index > 0);
            while (n_digits > 0) {
                out[at++] = digits[--n_digits];
            }
            continue;
        }
        for (uint32_t idx = 0; idx < step->key_bytes && at + 3 < cap; idx++) {
            char c = step->key[idx];
            if (c == '~' || c == '/') {
                out[at++] = '~';
                c = c == '~' ? '0' : '1';
            }
            out[at++] = c;
        }
    }
    at = esp_utf8_complete(out, at);
    out[at] = '\0';
}

const char *esp_jv_type_name(const struct esp_jv *value)
{
    static const char *const names[] = {"null", "boolean", "boolean", "number", "string", "array", "object"};
    return names[value->type];
}
