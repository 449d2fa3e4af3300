"""The grammar cases of shared/cases: grammars that other engines got wrong.

usage: test_grammar_cases.py ESPALIER

A case must compile and give the verdicts of its lists, or be refused where the case lets it. A text with \\u spellings
that only "escapes":"any" takes is tried with that option too, because "short" refuses them on purpose.
"""
import json
import sys

from grammar_driver import Driver, Tap, dumps, find_model, find_shared, loads

NO_SCHEMAS = ['123', '"x"', '[]', '{"type":"hiccup"}', '{"items":5}', '{"properties":[]}', '{"required":"a"}',
              '{"pattern":7}', '{"pattern":"("}', '{"minLength":-1}', '{"$ref":"#/nope"}', '{"type":123}']
BAD_REGEXES = ["foo(?!bar)[]", "[z-a]", "(", "a{3,1}", "\\", "*a", "(?<n>", "\\p{Nope}", "(a)\\1"]


def expand(value):
    """The macros $repeat and $repeat_list."""
    if isinstance(value, dict) and list(value) == ["$repeat"]:
        return expand(value["$repeat"][0]) * int(value["$repeat"][1])
    if isinstance(value, list):
        out = []
        for item in value:
            if isinstance(item, dict) and list(item) == ["$repeat_list"]:
                out += [expand(item["$repeat_list"][0])] * int(item["$repeat_list"][1])
            else:
                out.append(expand(item))
        return out
    if isinstance(value, dict):
        return {k: expand(v) for k, v in value.items()}
    return value


def vocabulary(case):
    given = case["input"]
    if "vocab_bytes" in given:
        tokens, ends = [h.lower() for h in given["vocab_bytes"]], []
    elif "vocab" in given:
        tokens = [t.encode().hex() for t in given["vocab"]]
        named = given.get("end_tokens", ["<eos>"])
        ends = [i for i, t in enumerate(given["vocab"]) if t in named]
        for idx in map(int, given.get("empty_text_ids", [])):
            tokens[idx] = ""
    else:
        return None
    if not ends:
        ends = [len(tokens)]
        tokens = tokens + ["3c656f733e"]
    return {"tokens": tokens, "end": ends}


def run_case(driver, oracle, tap, case):
    given, want = case["input"], expand(case["expect"])
    request = {"id": case["id"]}
    for key in ("schema", "regex", "grammar", "gbnf", "lark", "choice"):
        if key in given:
            request[key] = expand(given[key])
    vocab = vocabulary(case)
    if vocab is not None:
        request["vocab"] = vocab
    accept, reject = want.get("accept", []), want.get("reject", []) + want.get("reject_policy", [])
    answer = driver.ask({**request, "accept": accept, "reject": reject})
    kind, ok = want["compile"], answer.get("compile") == "ok"
    if kind == "error" or (kind in ("sound_or_error", "bounded") and not ok):
        error = answer.get("error", {})
        codes = ("INVALID", "UNSUPPORTED", "UNSAT", "LIMIT")
        good = not ok and error.get("code") in codes and error.get("message")
        return tap.check(good, "%s %s: refused%s" % (case["id"], case["title"], "" if good else ", got %s" % answer))
    if not ok:
        return tap.check(False, "%s %s: %s" % (case["id"], case["title"], answer))
    wide = driver.ask({**request, "options": {"escapes": "any"}, "accept": accept, "reject": reject})
    wrong = [t for t, v, w in zip(accept, answer["accept"], wide["accept"]) if not (v or (w and "\\u" in t))]
    wrong += [t for t, v, w in zip(reject, answer["reject"], wide["reject"]) if v or w]
    short = [t for t in accept + reject if len(t.encode()) <= 60][:3]
    if oracle.ask({**request, "accept": short})["mask_errors"]:
        wrong.append("masks differ from the oracle's")
    if "max_compile_ms" in want and answer["compile_us"] > 1000 * float(want["max_compile_ms"]):
        wrong.append("compiled in %s us" % answer["compile_us"])
    return tap.check(not wrong, "%s %s%s" % (case["id"], case["title"], "" if not wrong else ": wrong on %s" % wrong))


def feeds(driver, tap):
    """What the cases with a vocabulary say about masks."""
    vocab = {"tokens": [t.encode().hex() for t in ("x", "y", "z", "<eos>")], "end": [3]}
    got = driver.ask({"regex": "(xy|[^x])+", "vocab": vocab, "feed": [[0], [1], [3], [2]]})["feed"]
    tap.check(got[0] == {"taken": 1, "allowed": [1], "end": False}, "B067: only y")
    tap.check(got[2] == {"taken": 1, "allowed": [], "end": False} and got[3]["taken"] == 0, "nothing after an end")
    vocab = {"tokens": [t.encode().hex() for t in ("ab", "a", "b", "ab", "<eos>")], "end": [4]}
    got = driver.ask({"regex": "(ab)+", "vocab": vocab, "feed": [[], [0, 3, -1]]})["feed"]
    tap.check(got[0]["allowed"] == [0, 1, 3] and got[1]["allowed"] == [0, 1, 3, 4], "B089: equal texts, both allowed")
    vocab = {"tokens": ["22", "e2", "9c", "85", "41", "20", "6f6b", "3c"], "end": [7]}
    got = driver.ask({"schema": {"const": "\u2705 ok"}, "vocab": vocab, "feed": [[0, 1, 2]]})["feed"]
    tap.check(got[0]["allowed"] == [3], "B094: inside a character only the byte that fits")
    tokens = ["<eos>", "<end_of_turn>", "{", "}", '"', "a", ":", "x"]
    vocab = {"tokens": [t.encode().hex() for t in tokens], "end": [0, 1]}
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
              "additionalProperties": False}
    got = driver.ask({"schema": schema, "vocab": vocab, "feed": [[2, 4, 5, 4, 6, 4, 7], [4, 3]]})["feed"]
    tap.check(got[0]["taken"] == 7 and not set(got[0]["allowed"]) & {0, 1} and not got[0]["end"], "B085: inside")
    tap.check(got[1]["allowed"] == [0, 1] and got[1]["end"], "B085: only ends when complete")


def main():
    tap = Tap()
    path = find_shared("cases/cases.jsonl")
    if path is None or find_model() is None:
        return tap.skip_all("needs shared/cases and the default model")
    driver, oracle = Driver(sys.argv[1]), Driver(sys.argv[1], "--oracle")
    with open(path, encoding="utf-8") as file:
        cases = [loads(line) for line in file]
    for case in cases:
        if case["area"] == "grammar" and any(k in case["input"] for k in ("schema", "regex", "grammar", "choice")):
            run_case(driver, oracle, tap, case)
    feeds(driver, tap)
    for text in NO_SCHEMAS:
        answer = driver.ask_text('{"id":0,"schema":%s}' % text)
        code = answer.get("error", {}).get("code")
        tap.check(code == "INVALID", "B064 no schema: %s, %s" % (text, code))
    for text in BAD_REGEXES:
        answer = driver.ask({"regex": text})
        code = answer.get("error", {}).get("code")
        tap.check(code in ("INVALID", "UNSUPPORTED"), "B070 refused: " + json.dumps(text))
    tap.check(driver.close() == 0 and oracle.close() == 0, "grammar check ends well")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
