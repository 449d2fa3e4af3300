"""Style and structure as a test: layers, budgets, banned calls, headers alone, names, documents.

usage: tidy.py [--root DIR] [--build DIR] [--self-test] [rule …]

Prints TAP, one test a rule. What is let through on purpose stands in exceptions.txt, one a line, with its reason:

    rule path[:name] -- reason

where name is the function, call or include that the rule reports. An exception that nothing needs is a failure.
"""
import argparse
import os
import re
import subprocess
import sys

import rules
import selftest

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED_FOLDERS = re.compile(r"(build.*|models|\.git|\.venv|__pycache__)")
REPORTED_MAX = 200


def listed_files(root):
    """What belongs to the repository: git's answer, or a walk where there is no git (a release archive)."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True)
        if done.returncode == 0 and done.stdout:
            return [name.decode() for name in done.stdout.split(b"\0") if name]
    except FileNotFoundError:
        pass
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not SKIPPED_FOLDERS.fullmatch(name)]
        paths += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return paths


def read_repo(root, build):
    files = {}
    for path in listed_files(root):
        full = os.path.join(root, path)
        if os.path.isfile(full) and not os.path.islink(full):
            with open(full, "rb") as file:
                files[path] = file.read()
    return rules.Repo(files, root, build)


def read_exceptions(text):
    """{(rule, path, name or ""): reason}; a malformed line is an error at once."""
    exceptions = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([\w-]+) +([^ :]+)(?::(\S+))? +-- +(\S.*)", line)
        if match is None or match.group(1) not in rules.RULES:
            raise ValueError(f"exceptions.txt: not `rule path[:name] -- reason`: {line}")
        exceptions[(match.group(1), match.group(2), match.group(3) or "")] = match.group(4)
    return exceptions


def apply_exceptions(rule, violations, exceptions):
    """Violations that no exception covers, and exceptions of this rule that nothing needed."""
    left, used = [], set()
    for violation in violations:
        keys = [(rule, violation.path, violation.name), (rule, violation.path, "")]
        hits = [key for key in keys if key in exceptions]
        used.update(hits)
        if not hits:
            left.append(violation)
    unused = [key for key in exceptions if key[0] == rule and key not in used]
    return left, unused


def check_rule(repo, rule, exceptions):
    """(lines of detail, skip reason or None); no lines: the rule is kept."""
    result = rules.RULES[rule](repo)
    if isinstance(result, rules.Skip):
        return [], result.reason
    left, unused = apply_exceptions(rule, list(result), exceptions)
    lines = [f"{violation.path}:{violation.line}: {violation.text}" for violation in left]
    lines += [f"exceptions.txt: {rule} {path}{':' + name if name else ''} is not needed" for _, path, name in unused]
    return lines, None


def tap(results):
    """Prints (name, lines, skip) triples; returns the exit status."""
    print(f"TAP version 13\n1..{len(results)}")
    for number, (name, lines, skip) in enumerate(results, 1):
        for line in lines[:REPORTED_MAX]:
            print(f"# {line}")
        print(f"{'not ok' if lines else 'ok'} {number} - {name}" + (f" # SKIP {skip}" if skip else ""))
    return 1 if any(lines for _, lines, _ in results) else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(HERE)))
    parser.add_argument("--build")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("rules", nargs="*")
    arguments = parser.parse_args()
    if arguments.self_test:
        return tap(selftest.run(read_exceptions, apply_exceptions))
    repo = read_repo(arguments.root, arguments.build)
    with open(os.path.join(HERE, "exceptions.txt")) as file:
        exceptions = read_exceptions(file.read())
    return tap([(rule, *check_rule(repo, rule, exceptions)) for rule in arguments.rules or rules.RULES])


if __name__ == "__main__":
    sys.exit(main())
