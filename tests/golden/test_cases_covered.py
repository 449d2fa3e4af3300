"""Every case of shared/cases is named by a test: a new case, or one that a runner dropped, fails here.

usage: test_cases_covered.py

A case is covered where its id stands in a program of tests/: in a runner's list, a test's name or the comment above
the checks. That a listed case is really run is the runners' own affair: each fails on a listed id it does not find.
"""
import json
import os
import re
import sys

from grammar_driver import ROOT, Tap, find_shared

PROGRAMS = (".py", ".c", ".h")


def named():
    """Ids and the programs that name them."""
    found = {}
    for folder, _, files in os.walk(os.path.join(ROOT, "tests")):
        for name in files:
            if name.endswith(PROGRAMS) and name != os.path.basename(__file__):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    for case in re.findall(r"(?<![0-9A-Za-z])[Bb][0-9]{3}(?![0-9A-Za-z])", file.read()):
                        found.setdefault(case.upper(), set()).add(name)
    return found


def main():
    tap = Tap()
    path = find_shared("cases/cases.jsonl")
    if path is None:
        return tap.skip_all("no shared/ data beside the checkout")
    with open(path, encoding="utf-8") as file:
        cases = [json.loads(line) for line in file]
    found = named()
    for case in cases:
        where = sorted(found.get(case["id"], []))
        tap.check(where, "%s %s: %s" % (case["id"], case["area"], " ".join(where) or "named by no test"))
    known = {case["id"] for case in cases}
    for name in sorted(set(found) - known):
        tap.check(False, "%s in %s is no case" % (name, " ".join(sorted(found[name]))))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
