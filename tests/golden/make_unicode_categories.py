#!/usr/bin/env python3
"""Write grammar/unicode_tables.c, the general categories of all characters, from the Unicode data that Python carries.

Usage: python3 make_unicode_categories.py [OUT]
"""
import os
import sys
import unicodedata

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "grammar", "unicode_tables.c")
NAMES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()


def main():
    ranges = []
    for cp in range(0x110000):
        name = unicodedata.category(chr(cp))
        if name in ("Cn", "Cs"):
            continue
        value = NAMES.index(name)
        if ranges and ranges[-1][1] == cp - 1 and ranges[-1][2] == value:
            ranges[-1][1] = cp
        else:
            ranges.append([cp, cp, value])
    lines, line = [], "   "
    for first, last, value in ranges:
        cell = " {%d, %d, %d}," % (first, last, value)
        if len(line) + len(cell) > 120:
            lines.append(line)
            line = "   "
        line += cell
    text = """/* General categories of Unicode %s: ranges of characters, in order; what is in none is unassigned.
 * Written by tests/golden/make_unicode_categories.py; do not edit. See unicode_tables.h. Thread: constant. */
#include "grammar/unicode_tables.h"

const struct esp_unicode_range esp_unicode_ranges[] = {
%s
};
const size_t esp_unicode_n_ranges = sizeof esp_unicode_ranges / sizeof esp_unicode_ranges[0];
""" % (unicodedata.unidata_version, "\n".join(lines + [line]))
    with open(sys.argv[1] if len(sys.argv) > 1 else OUT, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
