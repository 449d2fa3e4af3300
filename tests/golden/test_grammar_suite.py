"""The JSON-Schema-Test-Suite against the grammar engine, draft by draft.

usage: test_grammar_suite.py ESPALIER [SUITE-DIRECTORY]

The hard rule is that no invalid instance is ever accepted. A schema that compiles must accept its valid instances in
some order of their keys, spelling policy apart (ALLOWED names what may be refused, with the reason). Schemas that are
refused are counted, not failed; UNSAT is the exact answer where nothing is valid. Prints a table by draft and, with
ESPALIER_VERBOSE set, what was refused and why.
"""
import collections
import glob
import json
import os
import sys

from grammar_driver import Driver, Tap, dumps, find_model, find_shared, loads, orders

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
# Exact groups of the required, the optional and the format tests; raised with every step, never lowered.
FLOORS = {
    "draft4": (146, 32, 7),
    "draft6": (215, 34, 10),
    "draft7": (240, 34, 16),
    "draft2019-09": (348, 45, 18),
    "draft2020-12": (354, 46, 18),
}
KINDS = ("required", "optional", "format")
# Groups whose valid instances may be refused, though the group then is not exact.
ALLOWED = {
    "validation of A-label (punycode) host names": "whether a label that begins with xn-- is valid cannot be told by "
                                                   "its letters, so none is ever written",
}


def surrogates(text):
    return any(0xD800 <= ord(c) < 0xE000 for c in text)


def print_table(tap, table):
    """Exact groups of all groups by keyword (file of the suite) and draft; keywords that are whole everywhere last."""
    whole = []
    for name in sorted({name for counts in table.values() for _, name, *_ in
                        [key for key in counts if key[0] == "file"]}):
        cells = [(counts["file", name, "exact"], counts["file", name, "groups"]) for counts in table.values()]
        if all(exact == groups for exact, groups in cells):
            whole.append(name)
            continue
        tap.note("%-34s %s" % (name, " ".join(("%d/%d" % cell if cell[1] else "-").rjust(9) for cell in cells)))
    tap.note("whole: " + " ".join(whole))


def run_group(driver, draft, group, kind, counts, problems, name_of):
    schema = group["schema"]
    if isinstance(schema, dict) and "$schema" not in schema:
        schema = {"$schema": DRAFTS[draft], **schema}
    texts = [[dumps(v) for v in orders(test["data"])] for test in group["tests"]]
    flat = [text for variants in texts for text in variants]
    if surrogates("".join(flat)) or surrogates(dumps(schema)):
        return
    options = {"formats": "annotate" if kind == "required" else "assert"}
    answer = driver.ask({"id": 1, "schema": schema, "options": options, "accept": flat})
    counts[kind, "groups"] += 1
    counts["file", name_of, "groups"] += 1
    if answer.get("compile") != "ok":
        counts[kind, "refused"] += 1
        counts["why", answer["error"]["code"], answer["error"]["keyword"]] += 1
        invalid_only = not any(test["valid"] for test in group["tests"])
        unsat = answer["error"]["code"] == "UNSAT" and invalid_only
        counts[kind, "exact"] += unsat
        counts["file", name_of, "exact"] += unsat
        if answer["error"]["code"] not in ("UNSUPPORTED", "LIMIT") and not unsat:
            problems["verdict"].append("%s / %s: %s" % (draft, group["description"], answer["error"]))
        return
    exact, at = True, 0
    for test, variants in zip(group["tests"], texts):
        verdict = any(answer["accept"][at:at + len(variants)])
        at += len(variants)
        counts[kind, "tests"] += 1
        name = "%s / %s / %s: %s" % (draft, group["description"], test["description"], variants[0][:200])
        if verdict and not test["valid"]:
            problems["accepted"].append(name)
            exact = False
        elif test["valid"] and not verdict:
            if group["description"] not in ALLOWED:
                problems["refused"].append(name)
            exact = False
    counts[kind, "exact"] += exact
    counts["file", name_of, "exact"] += exact


def main():
    tap = Tap()
    suite = sys.argv[2] if len(sys.argv) > 2 else find_shared("data/json-schema-test-suite")
    if suite is None or find_model() is None:
        return tap.skip_all("needs the test suite in shared/data and the default model")
    driver = Driver(sys.argv[1])
    table = {}
    for draft in DRAFTS:
        counts, problems = collections.Counter(), collections.defaultdict(list)
        base = os.path.join(suite, "tests", draft)
        for path in sorted(glob.glob(os.path.join(base, "**", "*.json"), recursive=True)):
            inside = os.path.relpath(path, base)
            kind = "optional" if inside.startswith("optional") else "required"
            kind = "format" if "format" + os.sep in inside else kind
            with open(path, encoding="utf-8") as file:
                try:
                    groups = loads(file.read())
                except (RecursionError, json.JSONDecodeError):
                    continue
            for group in groups:
                run_group(driver, draft, group, kind, counts, problems, inside[:-len(".json")])
        table[draft] = counts
        for kind in KINDS:
            tap.note("%s %s: %d groups, %d compiled, %d exact (%.0f %%), %d tests run" % (
                draft, kind, counts[kind, "groups"], counts[kind, "groups"] - counts[kind, "refused"],
                counts[kind, "exact"], 100 * counts[kind, "exact"] / max(1, counts[kind, "groups"]),
                counts[kind, "tests"]))
        if os.environ.get("ESPALIER_VERBOSE"):
            tap.note("refusals: " + ", ".join("%s %s %d" % (*key[1:], n) for key, n in counts.most_common()
                                              if key[0] == "why"))
        for key in ("accepted", "refused", "verdict"):
            for name in problems[key][:40]:
                tap.note("%s: %s" % (key, name))
        exact = tuple(counts[kind, "exact"] for kind in KINDS)
        tap.check(sys.argv[2:] or all(n >= floor for n, floor in zip(exact, FLOORS[draft])),
                  "%s: %s groups are exact, the floors are %s" % (draft, exact, FLOORS[draft]))
        tap.check(not problems["accepted"], draft + ": no invalid instance is accepted")
        tap.check(not problems["refused"], draft + ": compiled schemas accept their valid instances")
        tap.check(not problems["verdict"], draft + ": refusals are UNSUPPORTED, or UNSAT where nothing is valid")
    tap.note("%-34s %s" % ("exact groups by keyword", " ".join(draft[5:].rjust(9) for draft in DRAFTS)))
    print_table(tap, table)
    tap.check(driver.close() == 0, "grammar check ends well")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
