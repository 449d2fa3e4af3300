"""Turns a JSON file into a C array: embed.py IN.json OUT.c NAME. Part of the build."""
import json
import sys


def main():
    source, target, name = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        data = json.dumps(json.load(file), separators=(",", ":")).encode("ascii")
    lines = [", ".join(map(str, data[at:at + 24])) for at in range(0, len(data), 24)]
    with open(target, "w", encoding="ascii") as out:
        out.write('#include "frontend/http.h"\n\n')
        out.write(f"const char {name}_text[] = {{\n    " + ",\n    ".join(lines) + "};\n")
        out.write(f"const size_t {name}_bytes = sizeof {name}_text;\n")


main()
