"""The rules of tidy. Each takes a Repo and yields Violations, or returns a Skip.

A rule reads the repository through Repo only, so that the self-test can feed it a repository of a few lines.
Words that a rule bans are put together from parts here, since this file is read by the rules too.
"""
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import csource

Violation = namedtuple("Violation", "path line name text")
Skip = namedtuple("Skip", "reason")

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
COMPLEXITY_MAX = 15
COLUMNS_MAX = 120
FILE_BYTES_MAX = 1 << 20

C_ENDINGS = (".c", ".h", ".cu", ".cuh", ".cpp")
SOURCE_ENDINGS = C_ENDINGS + (".py", ".sh", ".js", ".css", ".build")

# Root-side first. What each unit may include besides itself; tests may include anything.
LAYERS = {
    "runtime/base": (),
    "radix": ("runtime/base",),
    "grammar": ("runtime/base",),
    "kernels": ("runtime/base",),
    "runtime": ("radix", "grammar", "kernels", "runtime/base"),
    "frontend": ("runtime", "radix", "grammar", "kernels", "runtime/base"),
}
PRIVATE_HEADER = re.compile(r"(^|/)(internal|\w+_internal|\w+_parts)\.h$")
TOP_LEVEL = {
    "meson.build", "meson_options.txt", "README.md", "LICENSE", "ARCHITECTURE.md", "CONTRIBUTING.md", "subprojects",
    ".ci", ".clang-format", ".editorconfig", ".gitignore", "radix", "grammar", "kernels", "runtime", "frontend",
    "tests", "examples",
}
CPLUSPLUS_HEADERS = ("runtime/espalier.h", "kernels/ops.h")
# Headers of one instruction set are compiled for it, on machines that have it: first pattern that matches.
AVX2_FLAGS = ["-mavx2", "-mfma", "-mf16c"]
ISA_FLAGS = (
    ("avx512", AVX2_FLAGS + ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"]),
    ("avx2", AVX2_FLAGS),
    ("kernels/x86/", AVX2_FLAGS),
)


class Repo:
    """Files by path from the root; where they lie on disk, and the build folder if there is one."""

    def __init__(self, files, root=None, build=None):
        self.files = files
        self.root = root
        self.build = build
        self.tokens = {}

    def text(self, path):
        return self.files[path].decode("utf-8", "replace")

    def texts(self, endings=None):
        for path in sorted(self.files):
            if (endings is None or path.endswith(endings)) and b"\0" not in self.files[path]:
                yield path, self.text(path)

    def c_tokens(self):
        for path, text in self.texts(C_ENDINGS):
            if path not in self.tokens:
                self.tokens[path] = csource.tokenize(text)
            yield path, self.tokens[path]

    def functions(self):
        for path, tokens in self.c_tokens():
            for function in csource.functions(tokens):
                yield path, function


def file_lines(repo):
    for path, text in repo.texts(SOURCE_ENDINGS):
        n = len(text.splitlines())
        if n > FILE_LINES_MAX:
            yield Violation(path, n, "", f"{n} lines, {FILE_LINES_MAX} are allowed")


def function_lines(repo):
    for path, function in repo.functions():
        n = function.end_line - function.line + 1
        if n > FUNCTION_LINES_MAX:
            yield Violation(path, function.line, function.name,
                            f"{function.name}: {n} lines, {FUNCTION_LINES_MAX} are allowed")


def complexity(repo):
    for path, function in repo.functions():
        n = csource.complexity(function.body)
        if n > COMPLEXITY_MAX:
            yield Violation(path, function.line, function.name,
                            f"{function.name}: complexity {n}, {COMPLEXITY_MAX} is allowed")


def columns(repo):
    for path, text in repo.texts(SOURCE_ENDINGS):
        for line, content in enumerate(text.splitlines(), 1):
            if len(content) > COLUMNS_MAX:
                yield Violation(path, line, "", f"{len(content)} columns, {COLUMNS_MAX} are allowed")


def unit_of(path):
    parts = path.split("/")
    return "runtime/base" if parts[:2] == ["runtime", "base"] else parts[0]


def include_fault(path, include):
    unit, target = unit_of(path), unit_of(include.path)
    if unit == "tests":
        return None
    if unit == "examples":
        return None if include.path == "runtime/espalier.h" else "examples include runtime/espalier.h only"
    if target == unit:
        return None
    if target not in LAYERS.get(unit, ()):
        return f"{unit} must not know {target}"
    if PRIVATE_HEADER.search(include.path):
        return f"{include.path} is private to {target}"
    return None


def layers(repo):
    for path, text in repo.texts(C_ENDINGS):
        for include in csource.includes(text):
            fault = None
            if include.is_system:
                if include.path == "microhttpd.h" and unit_of(path) not in ("frontend", "tests"):
                    fault = "HTTP is the frontend's"
            elif include.path not in repo.files:
                fault = "is no path from the root of the repository"
            else:
                fault = include_fault(path, include)
            if fault is not None:
                yield Violation(path, include.line, include.path, f"#include {include.path}: {fault}")


def file_comment(repo):
    for path, text in repo.texts(C_ENDINGS):
        if not text.startswith(("/*", "//")):
            yield Violation(path, 1, "", "does not open with a comment: purpose, invariants, thread")


HEAP = {"malloc", "calloc", "realloc", "free", "strdup", "strndup", "reallocarray", "aligned_alloc", "posix_memalign",
        "asprintf", "vasprintf"}
ENVIRONMENT = {"getenv", "secure_getenv", "setenv", "putenv"}
NEVER = {"strcpy", "strcat", "sprintf", "vsprintf", "gets", "alloca", "__builtin_alloca", "strtok"}
ENDING = {"abort", "exit", "_exit", "_Exit", "quick_exit"}
PRINTING = {"printf", "vprintf", "puts", "putchar", "perror"}


def call_fault(path, name, stream):
    unit = unit_of(path)
    is_outside = unit in ("tests", "examples")
    if name in NEVER:
        return "is never used: it knows no size"
    if name in HEAP and path != "runtime/base/alloc.c" and not is_outside:
        return "goes through runtime/base/alloc.h"
    if name in ENVIRONMENT and not path.startswith("frontend/options") and unit != "tests":
        return "is for frontend/options*.c: one place reads the environment"
    if name in ENDING and path != "frontend/main.c" and not is_outside:
        return "libraries return a status"
    is_printing = name in PRINTING or name in ("fprintf", "vfprintf", "fputs") and stream != ""
    if is_printing and unit != "frontend" and not is_outside:
        return "libraries do not print"
    return None


def banned_calls(repo):
    for path, tokens in repo.c_tokens():
        for idx in range(len(tokens) - 1):
            token = tokens[idx]
            if token.kind != "ident" or tokens[idx + 1].text != "(":
                continue
            if idx > 0 and tokens[idx - 1].text in (".", "->"):
                continue
            arguments = tokens[idx + 2:closing_of(tokens, idx + 1)]
            words = {part.text for part in arguments}
            stream = next((name for name in ("stderr", "stdout") if name in words), "")
            fault = call_fault(path, token.text, stream)
            if fault is not None:
                yield Violation(path, token.line, token.text, f"{token.text}: {fault}")


def closing_of(tokens, at):
    return csource.closing(tokens, at, "(", ")")


def no_vla(repo):
    for path, function in repo.functions():
        for token in csource.variable_arrays(function.body):
            yield Violation(path, token.line, function.name, f"{token.text}[]: length is not a constant")


WORDS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w./])/(work|tmp/e" + r"sp|opt/r" + r"ef|ro" + r"ot)/")


def words(repo):
    for path, text in repo.texts():
        for line, content in enumerate(text.splitlines(), 1):
            for match in WORDS.finditer(content):
                yield Violation(path, line, match.group(), f"{match.group()}: do it now, or write an issue")


def machine_paths(repo):
    for path, text in repo.texts():
        for line, content in enumerate(text.splitlines(), 1):
            for match in MACHINE_PATHS.finditer(content):
                yield Violation(path, line, "", f"{match.group()}: a path of one machine")


def top_level(repo):
    for name in sorted({path.split("/")[0] for path in repo.files}):
        if name not in TOP_LEVEL:
            yield Violation(name, 1, "", "is not among the few things at the top of the repository")


def file_bytes(repo):
    for path, data in sorted(repo.files.items()):
        if len(data) > FILE_BYTES_MAX:
            yield Violation(path, 1, "", f"{len(data)} bytes; large files do not belong in the history")


def isa_flags(path):
    return next((flags for name, flags in ISA_FLAGS if name in path), [])


def compile_header(repo, compiler, language, path):
    with tempfile.NamedTemporaryFile("w", suffix="." + language) as unit:
        # Twice: a header without a guard fails too.
        unit.write(f'#include "{path}"\n#include "{path}"\n')
        unit.flush()
        standard = "-std=gnu11" if language == "c" else "-std=c++17"
        command = [compiler, standard, "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-function",
                   "-Wno-unknown-pragmas", "-I", repo.root, *isa_flags(path), unit.name]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
    return Violation(path, 1, "", f"does not compile alone as {'C' if language == 'c' else 'C++'}: {first}")


def headers_alone(repo):
    compiler = shutil.which(os.environ.get("CC", "cc"))
    compiler_cpp = shutil.which("c++") or shutil.which("clang++")
    if repo.root is None or compiler is None:
        return Skip("no C compiler")
    can_wide = platform.machine() in ("x86_64", "AMD64")
    jobs = [(compiler, "c", path) for path in repo.files
            if path.endswith(".h") and (can_wide or not isa_flags(path))]
    if compiler_cpp is not None:
        jobs += [(compiler_cpp, "cpp", path) for path in CPLUSPLUS_HEADERS if path in repo.files]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda job: compile_header(repo, *job), sorted(jobs)))
    return [violation for violation in results if violation is not None]


def symbols(repo):
    archives = []
    for folder, folders, names in os.walk(repo.build or ""):
        if folder == repo.build and "tests" in folders:
            folders.remove("tests")  # helpers of tests are no part of what others link
        archives += [os.path.join(folder, name) for name in names if re.fullmatch(r"libesp_\w+\.a", name)]
    if not archives or shutil.which("nm") is None:
        return Skip("no built libraries or no nm")
    found = []
    for archive in sorted(archives):
        done = subprocess.run(["nm", "-g", "--defined-only", "--format=posix", archive], capture_output=True, text=True)
        for line in done.stdout.splitlines():
            name = line.split(" ")[0]
            is_ours = name.startswith(("esp_", "__odr_asan", "__start_", "__stop_")) or name.endswith(":")
            if name and not is_ours:
                found.append(Violation(os.path.relpath(archive, repo.build), 1, name, f"{name} lacks the prefix esp_"))
    return found


def built_symbols(repo):
    """(object, letter of nm, name) for every global symbol of every object file that the build makes."""
    commands = os.path.join(repo.build or "", "compile_commands.json")
    if not os.path.exists(commands) or shutil.which("nm") is None:
        return
    with open(commands) as file:  # and not a walk: a removed file leaves its object behind
        objects = [os.path.join(repo.build, command["output"]) for command in json.load(file)]
    objects = [path for path in objects if os.path.exists(path)]
    done = subprocess.run(["nm", "-g", "-A", "--format=posix", *objects], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        where, _, rest = line.rpartition(": ")
        parts = rest.split(" ")
        if len(parts) > 1:
            yield os.path.relpath(where, repo.build), parts[1], parts[0]


def callers(repo):
    defined, used = {}, {}
    for where, letter, name in built_symbols(repo):
        if letter == "U":
            used.setdefault(name, set()).add(where)
        elif not where.startswith(("tests/", "examples/")) and name.startswith("esp_"):
            defined.setdefault(name, set()).add(where)
    if not defined:
        return Skip("no built objects or no nm")
    return [Violation(min(places), 1, name, f"{name}: no other file uses it, so it is static or goes")
            for name, places in sorted(defined.items()) if not used.get(name, set()) - places]


LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def links(repo):
    for path, text in repo.texts((".md",)):
        for line, content in enumerate(text.splitlines(), 1):
            for target in LINK.findall(content):
                full = os.path.normpath(os.path.join(os.path.dirname(path), target))
                if ":" not in target and full not in repo.files:
                    yield Violation(path, line, target, f"{target}: there is no such file")


def options_documented(repo):
    program = os.path.join(repo.build or "", "espalier")
    block = re.search(r"<!-- options -->\n(.*?)<!-- /options -->", repo.text("README.md"), re.DOTALL) \
        if "README.md" in repo.files else None
    if block is None or repo.build is None or not os.access(program, os.X_OK):
        return Skip("no option table between <!-- options --> and <!-- /options --> in README.md, or no program")
    done = subprocess.run([program, "--help-markdown"], capture_output=True, text=True)
    if done.returncode == 0 and done.stdout.strip() == block.group(1).strip():
        return []
    line = repo.text("README.md")[:block.start()].count("\n") + 1
    return [Violation("README.md", line, "", "the option table is not what `espalier --help-markdown` prints")]


RULES = {
    "file-lines": file_lines,
    "function-lines": function_lines,
    "complexity": complexity,
    "columns": columns,
    "layers": layers,
    "file-comment": file_comment,
    "banned-calls": banned_calls,
    "no-vla": no_vla,
    "words": words,
    "machine-paths": machine_paths,
    "top-level": top_level,
    "file-bytes": file_bytes,
    "headers-alone": headers_alone,
    "symbols": symbols,
    "callers": callers,
    "links": links,
    "options-documented": options_documented,
}
