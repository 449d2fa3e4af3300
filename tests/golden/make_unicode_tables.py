#!/usr/bin/env python3
"""Write runtime/unicode_tables.c from the Unicode data that Python carries.

Usage: python3 make_unicode_tables.py [--check] [OUT]     --check: compare only, exit 1 when the file differs
       python3 make_unicode_tables.py --sums              the checksums in tests/unit/runtime/test_unicode.c
"""
import os
import sys
import unicodedata

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtime", "unicode_tables.c")
LIMIT = 0x110000


def chars():
    return (cp for cp in range(LIMIT) if not 0xD800 <= cp < 0xE000)


def ranges(values):
    """[(first, last, value)] of equal neighbours; None is left out."""
    out = []
    for cp in chars():
        v = values(cp)
        if v is None:
            continue
        if out and out[-1][1] == cp - 1 and out[-1][2] == v:
            out[-1][1] = cp
        else:
            out.append([cp, cp, v])
    return out


def decompositions():
    rows = []
    for cp in chars():
        d = unicodedata.decomposition(chr(cp))
        if d and not d.startswith("<"):
            parts = [int(x, 16) for x in d.split()]
            rows.append((cp, parts[0], parts[1] if len(parts) > 1 else 0))
    return rows


def compositions(rows):
    """Indices of the rows that NFC puts together again, in order of the pair."""
    out = []
    for i, (cp, a, b) in enumerate(rows):
        if b and unicodedata.normalize("NFC", chr(a) + chr(b)) == chr(cp):
            out.append(i)
    return sorted(out, key=lambda i: rows[i][1:])


def lowers():
    """[(first, last, step, delta)]; characters whose lower case is several characters are left alone."""
    out = []
    for cp in chars():
        low = chr(cp).lower()
        if len(low) != 1 or ord(low) == cp:
            continue
        delta = ord(low) - cp
        last = out[-1] if out else None
        if last and last[3] == delta and cp - last[1] in (1, 2) and last[2] in (0, cp - last[1]):
            last[1], last[2] = cp, cp - last[1]
        else:
            out.append([cp, cp, 0, delta])
    return [(a, b, s or 1, d) for a, b, s, d in out]


def table(kind, name, numbers, per_row):
    lines, line = [], "   "
    for i in range(0, len(numbers), per_row):
        cell = ("{%s}," if per_row > 1 else "%s,") % ",".join(str(x) for x in numbers[i:i + per_row])
        if len(line) + 1 + len(cell) > 118:
            lines.append(line)
            line = "   "
        line += " " + cell
    lines.append(line)
    n = len(numbers) // per_row
    return "const %s %s[] = {\n%s\n};\nconst unsigned %s_n = %d;\n" % (kind, name, "\n".join(lines), name, n)


def flat(rows):
    return [x for row in rows for x in row]


def fnv(data, value=0xCBF29CE484222325):
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def sums():
    """FNV-1a over a function of every character: NFC and NFD of the character between two letters, with a mark of a
    lower class behind it; its simple lower case; its classes."""
    for form in ("NFC", "NFD"):
        value = 0xCBF29CE484222325
        for cp in chars():
            value = fnv(unicodedata.normalize(form, "a" + chr(cp) + "\u0301\u0323b").encode(), value)
        print(form, hex(value))
    value = 0xCBF29CE484222325
    for cp in chars():
        low = chr(cp).lower()
        value = fnv((low if len(low) == 1 else chr(cp)).encode(), value)
    print("lower", hex(value))
    value = 0xCBF29CE484222325
    for cp in chars():
        cat = unicodedata.category(chr(cp))
        value = fnv(bytes([(cat == "Mn") + 2 * (cat[0] == "P") + 4 * (cat in ("Cc", "Cf", "Co"))]), value)
    print("classes", hex(value))


def main(argv):
    if "--sums" in argv:
        sums()
        return 0

    def cat(cp):
        return unicodedata.category(chr(cp))

    rows = decompositions()
    marks = [r[:2] for r in ranges(lambda cp: 1 if cat(cp) == "Mn" else None)]
    puncts = [r[:2] for r in ranges(lambda cp: 1 if cat(cp)[0] == "P" else None)]
    controls = [r[:2] for r in ranges(lambda cp: 1 if cat(cp) in ("Cc", "Cf", "Co") else None)]
    ccc = ranges(lambda cp: unicodedata.combining(chr(cp)) or None)
    text = """/* Unicode data: canonical decompositions, combining classes, lower case, a few categories.
 *
 * Written by tests/golden/make_unicode_tables.py from Unicode %s; not to be edited by hand.
 * Sorted by code point, searched by halving; esp_unicode_compose holds indices of esp_unicode_decompose
 * sorted by the pair. Thread: constants.
 */
#include "runtime/unicode_tables.h"

""" % unicodedata.unidata_version
    text += "\n".join([
        table("struct esp_unicode_pair", "esp_unicode_decompose", flat(rows), 3),
        table("unsigned short", "esp_unicode_compose", compositions(rows), 1),
        table("struct esp_unicode_class", "esp_unicode_combining", flat(ccc), 3),
        table("struct esp_unicode_lower", "esp_unicode_lowers", flat(lowers()), 4),
        table("struct esp_unicode_range", "esp_unicode_marks", flat(marks), 2),
        table("struct esp_unicode_range", "esp_unicode_puncts", flat(puncts), 2),
        table("struct esp_unicode_range", "esp_unicode_controls", flat(controls), 2),
    ])
    out = next((a for a in argv if a != "--check"), OUT)
    if "--check" in argv:
        with open(out, encoding="utf-8") as f:
            return 0 if f.read() == text else 1
    with open(out, "w", encoding="utf-8") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
