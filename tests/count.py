"""Sums the TAP lines of a meson test log into "N passed, N failed, N skipped".

A program that ended badly without a failed line of its own (a crash, a timeout, a sanitizer report) counts as one
failure, so that nothing is lost between the lines.
"""
import json
import re
import sys

GOOD = {"OK", "EXPECTEDFAIL", "SKIP"}


def count(entry):
    passed = failed = skipped = 0
    for line in entry.get("stdout", "").splitlines():
        if re.match(r"not ok\b", line):
            failed += 1
        elif re.match(r"ok\b.*# skip", line, re.IGNORECASE):
            skipped += 1
        elif re.match(r"ok\b", line):
            passed += 1
    if passed + failed + skipped == 0:
        passed, skipped = int(entry["result"] in GOOD - {"SKIP"}), int(entry["result"] == "SKIP")
    if entry["result"] not in GOOD and failed == 0:
        failed = 1
    return passed, failed, skipped


def main():
    totals = [0, 0, 0]
    reasons = set()
    with open(sys.argv[1]) as log:
        for line in log:
            entry = json.loads(line)
            totals = [total + part for total, part in zip(totals, count(entry))]
            reasons |= set(re.findall(r"^ok\b.*# skip (.*)$", entry.get("stdout", ""), re.IGNORECASE | re.MULTILINE))
    for reason in sorted(reasons):
        print(f"skipped: {reason}")
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 0 if totals[1] == 0 and totals[0] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
