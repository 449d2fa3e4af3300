/* UTF-8 after RFC 3629, table 3-7 of the Unicode standard. */
#include "runtime/base/utf8.h"

int esp_utf8_decode(const char *text, size_t n_bytes, uint32_t *ret_cp)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        *ret_cp = s[0];
        return 1;
    }
    if (s[0] < 0xc2 || s[0] > 0xf4) {
        return -1;
    }
    int need = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t cp = s[0] & (0x7fu >> need);
    for (int idx = 1; idx < need; idx++) {
        if ((size_t)idx >= n_bytes) {
            return 0;
        }
        unsigned char lo = 0x80, hi = 0xbf;
        if (idx == 1) {
            lo = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
            hi = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
        }
        if (s[idx] < lo || s[idx] > hi) {
            return -1;
        }
        cp = cp << 6 | (s[idx] & 0x3fu);
    }
    *ret_cp = cp;
    return need;
}

int esp_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xd800 && cp < 0xe000) {
            return 0;
        }
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    if (cp > 0x10ffff) {
        return 0;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t esp_utf8_valid(const char *text, size_t n_bytes)
{
    size_t at = 0;
    while (at < n_bytes) {
        uint32_t cp;
        int n = esp_utf8_decode(text + at, n_bytes - at, &cp);
        if (n <= 0) {
            return at;
        }
        at += (size_t)n;
    }
    return at;
}

size_t esp_utf8_complete(const char *text, size_t n_bytes)
{
    /* Only the last three bytes can begin an unfinished character. */
    size_t from = n_bytes < 3 ? 0 : n_bytes - 3;
    for (size_t at = from; at < n_bytes; at++) {
        uint32_t cp;
        if (((unsigned char)text[at] & 0xc0) == 0xc0 && esp_utf8_decode(text + at, n_bytes - at, &cp) == 0) {
            return at;
        }
    }
    return n_bytes;
}
