"""Every rule of tidy on a repository of a few lines: what must be reported, and what must not.

A case is (rule, files, names or lines expected). Files are written to a temporary folder where a rule compiles them.
"""
import json
import os
import shutil
import subprocess
import tempfile

import rules

TOP = "/* A file. */\n"
LONG_BODY = "".join(f"    x += {n};\n" for n in range(68))
BRANCHES = "".join(f"    if (x == {n}) {{\n        x++;\n    }}\n" for n in range(15))
GUARD = "#ifndef A_H\n#define A_H\n{}\n#endif\n"
LATER = "TO" + "DO"


def function(body, head="int f(int x)"):
    return f"{TOP}{head}\n{{\n{body}}}\n"


# rule, path, content, number of violations
CASES = [
    ("file-lines", "radix/a.c", "\n" * 600, 0),
    ("file-lines", "radix/a.c", "\n" * 601, 1),
    ("file-lines", "tests/a.py", "\n" * 601, 1),
    ("file-lines", "README.md", "\n" * 601, 0),
    ("function-lines", "radix/a.c", function(LONG_BODY[:-1] + "\n", "int f(int x)"), 1),
    ("function-lines", "radix/a.c", function(LONG_BODY[:-len("    x += 67;\n")]), 0),
    ("function-lines", "radix/a.c", "static const int t[] = {\n" + "    1,\n" * 90 + "};\n", 0),
    ("function-lines", "radix/a.c", "struct s {\n" + "    int a;\n" * 90 + "};\n", 0),
    ("function-lines", "radix/a.c", 'extern "C" {\n' + "int f(void);\n" * 90 + "}\n", 0),
    ("function-lines", "radix/a.c", 'extern "C" {\n' + function(LONG_BODY) + "}\n", 1),
    ("function-lines", "radix/a.c", function(LONG_BODY, "__attribute__((cold)) int *f(int (*g)(int), int x)"), 1),
    ("function-lines", "radix/a.c", function('    s("{"); /* { */ c(\'{\');\n') + function(LONG_BODY), 1),
    ("complexity", "radix/a.c", function(BRANCHES), 1),
    ("complexity", "radix/a.c", function(BRANCHES[:BRANCHES.rindex("    if")]), 0),
    ("complexity", "radix/a.c", function("    return " + " && ".join("x" * 9) + (" || x" * 7) + ";\n"), 1),
    ("complexity", "radix/a.c", function("    switch (x) {\n" + "    case 1:\n" * 20 + "    x++;\n    }\n"), 0),
    ("complexity", "radix/a.c", function("    switch (x) {\n" + "    case 1: x++; break;\n" * 15 + "    }\n"), 1),
    ("complexity", "radix/a.c", function("    /* if if */ s(\"if\");\n" * 20), 0),
    ("columns", "radix/a.c", "/* " + "é" * 115 + "*/", 0),
    ("columns", "radix/a.c", "/* " + "é" * 116 + "*/", 1),
    ("layers", "radix/a.c", '#include "grammar/grammar.h"\n', 1),
    ("layers", "radix/a.c", '#include "runtime/base/buf.h"\n#include "radix/tree.h"\n#include <stdio.h>\n', 0),
    ("layers", "radix/a.c", '#  include "runtime/espalier.h"\n', 1),
    ("layers", "runtime/base/a.c", '#include "radix/tree.h"\n', 1),
    ("layers", "runtime/a.c", '#include "radix/tree.h"\n#include "kernels/ops.h"\n', 0),
    ("layers", "runtime/a.c", '#include "radix/internal.h"\n', 1),
    ("layers", "runtime/a.c", '#include "frontend/options.h"\n', 1),
    ("layers", "frontend/a.c", '#include "runtime/espalier.h"\n#include "grammar/grammar.h"\n', 0),
    ("layers", "frontend/a.c", '#include "tests/esptest.h"\n', 1),
    ("layers", "examples/a.c", '#include "runtime/espalier.h"\n', 0),
    ("layers", "examples/a.c", '#include "runtime/base/buf.h"\n', 1),
    ("layers", "tests/a.c", '#include "radix/internal.h"\n', 0),
    ("layers", "radix/a.c", '#include "tree.h"\n', 1),
    ("layers", "kernels/a.c", "#include <microhttpd.h>\n", 1),
    ("file-comment", "radix/a.h", "\n/* late */", 1),
    ("file-comment", "radix/a.h", TOP, 0),
    ("banned-calls", "radix/a.c", "void f(void) { free(malloc(3)); }", 2),
    ("banned-calls", "kernels/x86/a.c", "#define GET(n) calloc(1, n)\n", 1),
    ("banned-calls", "kernels/cuda/a.cu", "void f(void) { char *s = strdup(t); }", 1),
    ("banned-calls", "runtime/base/alloc.c", "void f(void) { free(malloc(3)); }", 0),
    ("banned-calls", "radix/a.c", 'void f(void) { o->free(1); o.exit(2); /* malloc(3) */ s("exit(1)"); }', 0),
    ("banned-calls", "radix/a.c", 'void f(char *s) __attribute__((format(printf, 1, 2)));', 0),
    ("banned-calls", "runtime/a.c", 'void f(void) { getenv("A"); }', 1),
    ("banned-calls", "frontend/options_env.c", 'void f(void) { getenv("A"); }', 0),
    ("banned-calls", "frontend/http.c", 'void f(void) { getenv("A"); }', 1),
    ("banned-calls", "tests/a.c", "void f(void) { strcpy(a, b); strcat(a, b); sprintf(a, b); gets(a); alloca(3); }", 5),
    ("banned-calls", "runtime/a.c", "void f(void) { exit(1); }\nvoid g(void) { abort(); }", 2),
    ("banned-calls", "frontend/main.c", "void f(void) { exit(1); }", 0),
    ("banned-calls", "runtime/a.c", 'void f(void) { printf("x"); fprintf(stderr, "x"); fputs("x", stderr); }', 3),
    ("banned-calls", "frontend/a.c", 'void f(void) { printf("x"); fprintf(stderr, "x"); }', 0),
    ("banned-calls", "runtime/a.c", 'void f(void) { fprintf(trace, "x"); snprintf(a, 3, "x"); }', 0),
    ("no-vla", "radix/a.c", function("    char a[x];\n"), 1),
    ("no-vla", "radix/a.c", function("    g();\n    struct s *a[2 * x + N];\n"), 1),
    ("no-vla", "radix/a.c", function("    char a[N_MAX], b[3 * sizeof(struct s)];\n    a[x] = b[x];\n"), 0),
    ("no-vla", "radix/a.c", function("    *a[x] = 3;\n    g(a * b[x]);\n    return a * b[x];\n"), 0),
    ("words", "README.md", f"# {LATER}: all of it\n", 1),
    ("words", "radix/a.c", '/* mkstemp("XXXXXX"), todos */', 0),
    ("machine-paths", "README.md", "cd /wo" + "rk/main\n", 1),
    ("machine-paths", "README.md", "cat /tmp/e" + "sp/x /opt/r" + "ef/bin/python /ro" + "ot/x\n", 3),
    ("machine-paths", "README.md", "see docs/work/x and http://a.b/work/c and ../work/x\n", 0),
    ("top-level", "notes.txt", "x", 1),
    ("top-level", "radix/notes.txt", "x", 0),
    ("file-bytes", "tests/data.bin", "x" * (rules.FILE_BYTES_MAX + 1), 1),
    ("file-bytes", "tests/data.bin", "x" * rules.FILE_BYTES_MAX, 0),
    ("links", "radix/README.md", "see [the tree](tree.h), [b](../README.md#top) and [c](dir/)\n", 3),
    ("links", "radix/README.md", "[self](README.md) [root](../radix/README.md) [web](https://a.b/c) `x[1](2)`\n", 1),
    ("headers-alone", "radix/a.h", GUARD.format("size_t n;"), 1),
    ("headers-alone", "radix/a.h", GUARD.format("#include <stddef.h>\nstruct a { size_t class; };"), 0),
    ("headers-alone", "radix/a.h", "struct without_guard { int a; };", 1),
    ("headers-alone", "kernels/x86/a.h", GUARD.format("#ifndef __AVX2__\n#error no AVX2\n#endif"), 0),
    ("headers-alone", "kernels/a_avx512.h", GUARD.format("#ifndef __AVX512VNNI__\n#error no VNNI\n#endif"), 0),
    ("headers-alone", "kernels/ops.h", GUARD.format("struct a { int class; };"), 1),
]
ALWAYS_THERE = ("radix/tree.h", "radix/internal.h", "grammar/grammar.h", "kernels/ops.h", "runtime/espalier.h",
                "runtime/base/buf.h", "frontend/options.h", "tests/esptest.h")


def run_case(rule, path, content, n_expected):
    files = {path: content.encode()}
    if rule == "layers":
        files = dict.fromkeys(ALWAYS_THERE, b"") | files
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
        with open(os.path.join(root, path), "wb") as file:
            file.write(files[path])
        result = rules.RULES[rule](rules.Repo(files, root))
    if isinstance(result, rules.Skip):
        return [], result.reason
    found = [violation for violation in result if violation.path == path]
    if len(found) == n_expected:
        return [], None
    return [f"{path} {content[:300]!r}: {len(found)} reported, {n_expected} expected: {found}"], None


def check_symbols():
    compiler = shutil.which("cc")
    if compiler is None or shutil.which("ar") is None or shutil.which("nm") is None:
        return [], "no compiler, ar or nm"
    with tempfile.TemporaryDirectory() as build:
        source = os.path.join(build, "a.c")
        with open(source, "w") as file:
            file.write("int esp_good;\nstatic int quiet;\nint loud(void) { return quiet; }\n")
        subprocess.run([compiler, "-c", source, "-o", source + ".o"], check=True)
        subprocess.run(["ar", "rcT", os.path.join(build, "libesp_a.a"), source + ".o"], check=True, capture_output=True)
        os.mkdir(os.path.join(build, "tests"))
        subprocess.run(["ar", "rc", os.path.join(build, "tests", "libesp_kit.a"), source + ".o"], check=True,
                       capture_output=True)
        names = [violation.name for violation in rules.symbols(rules.Repo({}, None, build))]
    return ([] if names == ["loud"] else [f"symbols reported: {names}"]), None


def check_callers():
    compiler = shutil.which("cc")
    if compiler is None or shutil.which("nm") is None:
        return [], "no compiler or no nm"
    commands = []
    with tempfile.TemporaryDirectory() as build:
        for path, text in (("radix/a.p/a.o", "int esp_alone(void) { return 1; }\nint esp_called(void) { return 2; }\n"
                            "int esp_tested(void) { return esp_alone(); }\n"),
                           ("radix/a.p/b.o", "int esp_called(void);\nint main(void) { return esp_called(); }\n"),
                           ("tests/t.p/t.o", "int esp_tested(void);\nint esp_kit(void) { return esp_tested(); }\n")):
            source = os.path.join(build, path[:-1] + "c")
            os.makedirs(os.path.dirname(source), exist_ok=True)
            with open(source, "w") as file:
                file.write(text)
            subprocess.run([compiler, "-c", source, "-o", source[:-1] + "o"], check=True)
            commands.append({"output": path})
        with open(os.path.join(build, "compile_commands.json"), "w") as file:
            json.dump(commands, file)
        names = [violation.name for violation in rules.callers(rules.Repo({}, None, build))]
    return ([] if names == ["esp_alone"] else [f"callers reported: {names}"]), None


def check_options():
    lines = []
    with tempfile.TemporaryDirectory() as build:
        program = os.path.join(build, "espalier")
        with open(program, "w") as file:
            file.write("#!/bin/sh\necho '| --port |'\n")
        os.chmod(program, 0o755)
        for table, n_expected in (("| --port |", 0), ("| --prot |", 1)):
            readme = f"a\n<!-- options -->\n{table}\n<!-- /options -->\n".encode()
            found = rules.options_documented(rules.Repo({"README.md": readme}, None, build))
            if isinstance(found, rules.Skip) or len(found) != n_expected:
                lines.append(f"table {table!r}: {found}")
        if not isinstance(rules.options_documented(rules.Repo({"README.md": b"no table"}, None, build)), rules.Skip):
            lines.append("a README without the markers is no failure yet")
    return lines, None


def check_exceptions(read_exceptions, apply_exceptions):
    lines = []
    exceptions = read_exceptions("# note\n\nno-vla a.c:f -- reason\ncolumns b.py -- long table\n")
    bad, other = rules.Violation("a.c", 1, "f", ""), rules.Violation("a.c", 2, "g", "")
    if apply_exceptions("no-vla", [bad, other], exceptions) != ([other], []):
        lines.append("an exception covers its own function only")
    if apply_exceptions("no-vla", [other], exceptions) != ([other], [("no-vla", "a.c", "f")]):
        lines.append("an exception that nothing needs is reported")
    for text in ("no-vla a.c", "no-vla a.c -- ", "unknown a.c -- reason"):
        try:
            read_exceptions(text)
            lines.append(f"accepted: {text}")
        except ValueError:
            pass
    return lines, None


def run(read_exceptions, apply_exceptions):
    """(name, lines, skip) for each rule, as tidy.py prints them."""
    results = []
    for rule in rules.RULES:
        outcomes = [run_case(*case) for case in CASES if case[0] == rule]
        if rule == "symbols":
            outcomes = [check_symbols()]
        elif rule == "callers":
            outcomes = [check_callers()]
        elif rule == "options-documented":
            outcomes = [check_options()]
        lines = [line for found, _ in outcomes for line in found]
        if not outcomes:
            lines.append("this rule has no self-test")
        results.append((f"self-test {rule}", lines, next((skip for _, skip in outcomes if skip), None)))
    results.append(("self-test exceptions", *check_exceptions(read_exceptions, apply_exceptions)))
    return results
