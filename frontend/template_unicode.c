/* Classes and cases of characters, as far as chat templates need them.
 *
 * White space and what Python's repr escapes are complete for assigned characters in use; case covers Latin,
 * Greek, Cyrillic, Armenian and full-width letters one to one (ß is the caller's). Anything else has no case.
 * Tables of ranges, no locale. Source: the Unicode Character Database. Thread: any.
 */
#include "frontend/template_internal.h"

struct range {
    uint32_t first, last;
};

static bool in_ranges(uint32_t cp, const struct range *ranges, size_t n)
{
    for (size_t idx = 0; idx < n && cp >= ranges[idx].first; idx++) {
        if (cp <= ranges[idx].last) {
            return true;
        }
    }
    return false;
}

bool esp_tpl_is_space(uint32_t cp)
{
    static const struct range ranges[] = {{0x09, 0x0d},     {0x1c, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                                          {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                          {0x205f, 0x205f}, {0x3000, 0x3000}};
    return in_ranges(cp, ranges, sizeof ranges / sizeof ranges[0]);
}

bool esp_tpl_is_printable(uint32_t cp)
{
    static const struct range hidden[] = {
        {0x00, 0x1f},       {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
        {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},     {0x1680, 0x1680},
        {0x180e, 0x180e},   {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},   {0x3000, 0x3000},
        {0xd800, 0xf8ff},   {0xfeff, 0xfeff},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd},
        {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe00ff},
        {0xe01f0, 0x10ffff}};
    return !in_ranges(cp, hidden, sizeof hidden / sizeof hidden[0]);
}

/* Letters whose capital and small form alternate: even capital, odd small. */
static bool is_even_pair(uint32_t cp)
{
    static const struct range ranges[] = {{0x100, 0x12f},  {0x132, 0x137}, {0x14a, 0x177}, {0x1de, 0x1ef},
                                          {0x1f8, 0x21f},  {0x222, 0x233}, {0x370, 0x373}, {0x3d8, 0x3ef},
                                          {0x460, 0x481},  {0x48a, 0x4bf}, {0x4d0, 0x52f}, {0x1e00, 0x1e95},
                                          {0x1ea0, 0x1eff}};
    return in_ranges(cp, ranges, sizeof ranges / sizeof ranges[0]);
}

/* The other way round: odd capital, even small. */
static bool is_odd_pair(uint32_t cp)
{
    static const struct range ranges[] = {{0x139, 0x148}, {0x179, 0x17e}, {0x1cd, 0x1dc}, {0x4c1, 0x4ce}};
    return in_ranges(cp, ranges, sizeof ranges / sizeof ranges[0]);
}

/* Blocks of capitals whose small letters lie a fixed distance behind. */
static const struct {
    struct range capitals;
    uint32_t distance;
} blocks[] = {
    {{'A', 'Z'}, 32},     {{0xc0, 0xd6}, 32},   {{0xd8, 0xde}, 32},     {{0x391, 0x3a1}, 32}, {{0x3a3, 0x3ab}, 32},
    {{0x388, 0x38a}, 37}, {{0x386, 0x386}, 38}, {{0x38c, 0x38c}, 64},   {{0x38e, 0x38f}, 63}, {{0x410, 0x42f}, 32},
    {{0x400, 0x40f}, 80}, {{0x531, 0x556}, 48}, {{0xff21, 0xff3a}, 32},
};

uint32_t esp_tpl_lower(uint32_t cp)
{
    for (size_t idx = 0; idx < sizeof blocks / sizeof blocks[0]; idx++) {
        if (cp >= blocks[idx].capitals.first && cp <= blocks[idx].capitals.last) {
            return cp + blocks[idx].distance;
        }
    }
    if (cp == 0x178) {
        return 0xff;
    }
    if (is_even_pair(cp)) {
        return cp | 1;
    }
    return is_odd_pair(cp) && (cp & 1) == 1 ? cp + 1 : cp;
}

uint32_t esp_tpl_upper(uint32_t cp)
{
    for (size_t idx = 0; idx < sizeof blocks / sizeof blocks[0]; idx++) {
        uint32_t back = cp - blocks[idx].distance;
        if (cp >= blocks[idx].distance && back >= blocks[idx].capitals.first && back <= blocks[idx].capitals.last) {
            return back;
        }
    }
    switch (cp) {
    case 0xb5: return 0x39c; /* micro sign */
    case 0xff: return 0x178;
    case 0x131: return 'I';   /* dotless i */
    case 0x17f: return 'S';   /* long s */
    case 0x3c2: return 0x3a3; /* final sigma */
    default: break;
    }
    if (is_even_pair(cp)) {
        return cp & ~(uint32_t)1;
    }
    return is_odd_pair(cp) && (cp & 1) == 0 ? cp - 1 : cp;
}

bool esp_tpl_is_letter(uint32_t cp)
{
    static const struct range others[] = {{0xd7, 0xd7},     {0xf7, 0xf7},       {0x2b0, 0x36f},     {0x2000, 0x2bff},
                                          {0x3000, 0x3004}, {0x3007, 0x3030},   {0xd800, 0xf8ff},   {0xfe00, 0xfe6f},
                                          {0xff00, 0xff20}, {0x1f000, 0x1faff}, {0xe0000, 0x10ffff}};
    if (cp < 0x80) {
        return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    }
    if (cp < 0xc0) {
        return cp == 0xaa || cp == 0xb5 || cp == 0xba;
    }
    return !in_ranges(cp, others, sizeof others / sizeof others[0]);
}
