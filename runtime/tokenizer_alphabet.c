/* The alphabet of byte-level vocabularies: each byte has a printable character that stands for it.
 *
 * Bytes that are printable in Latin-1 stand for themselves; the other 68 are numbered from U+0100 on, in
 * order of the byte. (Source: the encoder published with GPT-2.) Thread: any, pure functions.
 */
#include "runtime/tokenizer_impl.h"

static bool is_itself(uint32_t byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

uint32_t esp_alphabet_char(uint8_t byte)
{
    if (is_itself(byte)) {
        return byte;
    }
    if (byte <= 32) {
        return 256u + byte;
    }
    return byte <= 160 ? 256u + 33u + (byte - 127u) : 256u + 67u; /* 127 to 160, then 173 */
}

int esp_alphabet_byte(uint32_t cp)
{
    if (cp < 256) {
        return is_itself(cp) ? (int)cp : -1;
    }
    uint32_t idx = cp - 256u;
    if (idx <= 32) {
        return (int)idx;
    }
    if (idx < 67) {
        return (int)(127 + idx - 33);
    }
    return idx == 67 ? 173 : -1;
}
