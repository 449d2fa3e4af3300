/* Resolving references of RFC 3986. See uri.h. */
#include "grammar/uri.h"

#include <stdbool.h>
#include <string.h>

struct part {
    const char *text; /* NULL: not there */
    size_t n;
};
struct uri {
    struct part scheme, authority, path, query;
};

size_t esp_uri_before_fragment(const char *text, size_t n)
{
    const char *hash = n == 0 ? NULL : memchr(text, '#', n);
    return hash == NULL ? n : (size_t)(hash - text);
}

static bool is_letter(char c)
{
    return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
}

/* The scheme's length, 0 when there is none. */
static size_t scheme_length(const char *text, size_t n)
{
    size_t at = 0;
    while (at < n && (is_letter(text[at]) || (at > 0 && ((text[at] >= '0' && text[at] <= '9') || text[at] == '+' ||
                                                         text[at] == '-' || text[at] == '.')))) {
        at++;
    }
    return at < n && text[at] == ':' ? at : 0;
}

static struct uri split(const char *text, size_t n)
{
    struct uri uri = {{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}};
    size_t at = scheme_length(text, n), end;
    n = esp_uri_before_fragment(text, n);
    if (at > 0) {
        uri.scheme = (struct part){text, at};
        at++;
    }
    if (at + 1 < n && text[at] == '/' && text[at + 1] == '/') {
        at += 2;
        for (end = at; end < n && text[end] != '/' && text[end] != '?'; end++) {
        }
        uri.authority = (struct part){text + at, end - at};
        at = end;
    }
    for (end = at; end < n && text[end] != '?'; end++) {
    }
    uri.path = (struct part){text + at, end - at};
    if (end < n) {
        uri.query = (struct part){text + end + 1, n - end - 1};
    }
    return uri;
}

/* Back to the slash before the last segment of out[floor … at), which ends with a slash. */
static size_t drop_segment(const char *out, size_t floor, size_t at)
{
    at -= at > floor;
    while (at > floor && out[at - 1] != '/') {
        at--;
    }
    return at;
}

/* Section 5.2.4: copies a path without "." and ".." to out + at; returns the new end. */
static size_t add_without_dots(char *out, size_t at, const char *in, size_t n)
{
    if (n > 0 && in[0] == '/') {
        out[at++] = '/';
        in++;
        n--;
    }
    for (size_t floor = at, begin = 0, end; begin < n; begin = end + 1) {
        for (end = begin; end < n && in[end] != '/'; end++) {
        }
        size_t n_segment = end - begin;
        if (n_segment == 2 && memcmp(in + begin, "..", 2) == 0) {
            at = drop_segment(out, floor, at);
        } else if (n_segment != 1 || in[begin] != '.') {
            memcpy(out + at, in + begin, n_segment);
            at += n_segment;
            if (end < n) {
                out[at++] = '/';
            }
        }
    }
    return at;
}

static size_t add(char *out, size_t at, const char *before, struct part part, const char *after)
{
    if (part.text == NULL) {
        return at;
    }
    size_t n_before = strlen(before), n_after = strlen(after);
    memcpy(out + at, before, n_before);
    if (part.n > 0) {
        memcpy(out + at + n_before, part.text, part.n);
    }
    memcpy(out + at + n_before + part.n, after, n_after);
    return at + n_before + part.n + n_after;
}

/* The path of a relative reference laid over the base's (section 5.2.3). */
static size_t add_merged(char *out, size_t at, const struct uri *base, struct part path, char *room)
{
    size_t n = base->path.n;
    while (n > 0 && base->path.text[n - 1] != '/') {
        n--;
    }
    if (n > 0) {
        memcpy(room, base->path.text, n);
    } else if (base->authority.text != NULL) {
        room[n++] = '/';
    }
    if (path.n > 0) {
        memcpy(room + n, path.text, path.n);
    }
    return add_without_dots(out, at, room, n + path.n);
}

char *esp_uri_resolve(struct esp_arena *arena, const char *base_text, const char *ref_text, size_t n_ref)
{
    size_t n_base = strlen(base_text), room_bytes = n_base + n_ref + 8;
    struct uri ref = split(ref_text, n_ref), base = split(base_text, n_base);
    char *out = esp_arena_alloc(arena, room_bytes, 1), *room = esp_arena_alloc(arena, room_bytes, 1);
    if (out == NULL || room == NULL) {
        return NULL;
    }
    bool whole = ref.scheme.text != NULL, own_authority = whole || ref.authority.text != NULL;
    bool base_path = !own_authority && ref.path.n == 0;
    size_t at = add(out, 0, "", whole ? ref.scheme : base.scheme, ":");
    at = add(out, at, "//", own_authority ? ref.authority : base.authority, "");
    if (base_path) {
        at = add(out, at, "", base.path, "");
    } else if (own_authority || ref.path.text[0] == '/') {
        at = add_without_dots(out, at, ref.path.text, ref.path.n);
    } else {
        at = add_merged(out, at, &base, ref.path, room);
    }
    at = add(out, at, "?", base_path && ref.query.text == NULL ? base.query : ref.query, "");
    out[at] = '\0';
    return out;
}
