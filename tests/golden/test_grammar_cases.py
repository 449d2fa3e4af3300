"""The cases of shared/cases about what a grammar allows: grammars that other engines got wrong.

usage: test_grammar_cases.py ESPALIER

A case must compile and give the verdicts of its lists, or be refused where the case lets it: with UNSUPPORTED or
LIMIT where a sound grammar was possible, and never for a reason that is not true. A text with \\u spellings
that only "escapes":"any" takes is tried with that option too, because "short" refuses them on purpose.
"""
import json
import sys

from grammar_driver import Driver, Tap, dumps, find_model, find_shared, loads

CASES = """
B002 B003 B005 B007 B008 B009 B010 B011 B012 B013 B014 B018 B019 B020 B021 B022 B023 B024 B025 B026 B028 B029 B030 B032
B033 B036 B038 B039 B040 B042 B043 B044 B047 B050 B051 B053 B054 B059 B060 B062 B064 B065 B067 B068 B070 B071 B072 B073
B080 B081 B082 B085 B089 B090 B091 B094 B109 B153
""".split()
# The place and the code of each refusal: a refusal for another reason would hide that the case was not understood.
REFUSED = {
    "B009": ("INVALID UNSAT", "/properties/x/enum"),
    "B040": ("UNSAT", ""),
    "B062": ("UNSUPPORTED", "/$ref"),
    "B064": ("INVALID", "/type"),
    "B068": ("UNSAT", ""),
    "B070": ("UNSAT", ""),  # [] is a class without characters: nothing matches
    "B072": ("INVALID", ""),
    "B080": ("INVALID", ""),
    "B081": ("INVALID", ""),
    "B082": ("LIMIT", ""),
}
MACHINES = ["(.*a.*){20}b", "([a-z]+[0-9]+){40}"]
NULS = [{"regex": "\0"}, {"regex": "a\0b"}, {"regex": "(a|b\0)*"}]
BAD_GBNF = ['root ::= (', "", 'root ::= "a"{0,18446744073709551615}', 'root ::= "a"{99999999999999999999}',
            'root ::= "a"{5,2}', "root ::= " + "(" * 100000]
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
    accept = want.get("accept", [])
    reject = want.get("reject", []) + want.get("reject_policy", []) + want.get("reject_preferred", [])
    answer = driver.ask({**request, "accept": accept, "reject": reject})
    kind, ok = want["compile"], answer.get("compile") == "ok"
    if kind == "error" or (kind in ("sound_or_error", "bounded") and not ok):
        error = answer.get("error", {})
        codes, place = REFUSED.get(case["id"], ("LIMIT" if kind == "bounded" else "UNSUPPORTED LIMIT", ""))
        good = not ok and error.get("code") in codes.split() and error.get("message")
        good = good and (error.get("pointer", "") + "/" + error.get("keyword", "")).startswith(place)
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
    if "max_memory_mb" in want and answer["bytes"] > 1048576 * float(want["max_memory_mb"]):
        wrong.append("%s bytes" % answer["bytes"])
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
    vocab = {"tokens": [t.encode().hex() for t in ("<eos>", "", "1", "")], "end": [0]}
    got = driver.ask({"schema": {"type": "integer"}, "vocab": vocab, "feed": [[], [2], [1], [3]]})["feed"]
    tap.check([g["allowed"] for g in got[:2]] == [[2], [0, 2]], "B090: a token without text is never allowed")
    tap.check(got[2]["taken"] == got[3]["taken"] == 0, "B090: nor taken")
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


def kin(driver, tap):
    """What the notes of the cases name besides their inputs."""
    for schema in ({"type": "object"}, {"type": "object", "properties": {}}):
        answer = driver.ask({"schema": schema, "accept": ["{}"], "reject": ["[]", "null", ""]})
        tap.check(answer.get("accept") == [True] and not any(answer["reject"]), "B026 no properties: %s" % schema)
    for regex in MACHINES:
        answer = driver.ask({"regex": regex})
        good = answer["compile"] == "error" and answer["error"]["code"] == "LIMIT"
        good = good or (answer["compile"] == "ok" and answer["compile_us"] < 2e6 and answer["bytes"] < 256 << 20)
        tap.check(good, "B073 bounded: %s, %s us" % (regex, answer.get("compile_us")))
    for request in NULS:
        code = driver.ask(request).get("error", {}).get("code")
        tap.check(code == "INVALID", "B072 a NUL in a regex: %s" % request)
    key = {"type": "object", "properties": {"a\0": {"const": "x\0y"}}, "required": ["a\0"],
           "additionalProperties": False}
    answer = driver.ask({"schema": key, "accept": ['{"a\\u0000":"x\\u0000y"}'],
                         "reject": ['{"a":"x"}', '{"a":"x\\u0000y"}', '{"a\\u0000":"x"}', '{"a\0":"x\0y"}']})
    tap.check(answer.get("accept") == [True] and not any(answer["reject"]), "B072 a NUL in a key and a value is kept")
    answer = driver.ask({"choice": ["a\0b"], "accept": ["a\0b"], "reject": ["a", "a\0"]})
    tap.check(answer.get("accept") == [True] and not any(answer["reject"]), "B072 a NUL in a choice is kept")
    for text in BAD_GBNF:
        answer = driver.ask({"grammar": text})
        good = answer["compile"] == "error" and answer["error"]["code"] in ("INVALID", "LIMIT")
        good = good and answer["error"]["message"].startswith("line 1, column ")
        tap.check(good, "B080 B082 bad GBNF is refused: %s" % text[:60])
    answer = driver.ask({"grammar": "start ::= \"x\" | \"y\""})
    tap.check("root is missing" in answer["error"]["message"], "B081 the message names root")
    values = ["value-%06d-" % i + "x" * 40 for i in range(50001)]
    answer = driver.ask({"schema": {"enum": values[:50000]}, "accept": [dumps(values[0]), dumps(values[49999])],
                         "reject": [dumps(values[50000])]})
    good = answer["compile"] == "ok" and answer["compile_us"] < 2e6 and answer["bytes"] < 512 << 20
    good = good and answer["accept"] == [True, True] and answer["reject"] == [False]
    tap.check(good or answer.get("error", {}).get("code") == "LIMIT", "B213 a huge enum: %.200s" % answer)
    answer = driver.ask_text('{"schema":%s{}%s}' % ('{"type":"array","items":' * 10000, "}" * 10000))
    tap.check(answer.get("error", {}).get("code") == "LIMIT", "B214 a deep schema: %.200s" % answer)
    deep = driver.ask({"schema": {"type": "array", "items": {"$ref": "#"}}, "accept": ["[" * 60 + "]" * 60],
                       "reject": ["[" * 100000]})
    tap.check(deep.get("accept") == [True] and deep.get("reject") == [False], "B214 a deep value")
    for whitespace, wide in (("line", "[ ]"), ("pretty", "[\n]")):
        answer = driver.ask({"schema": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
                             "options": {"whitespace": whitespace}, "accept": ["[]"],
                             "reject": ["[,1]", wide + "1", "[1,]", "[\n\n\n\n\n\n\n\n\n]"]})
        tap.check(answer.get("accept") == [True] and not any(answer["reject"]), "B030 an empty list, %s" % whitespace)


def main():
    tap = Tap()
    path = find_shared("cases/cases.jsonl")
    if path is None or find_model() is None:
        return tap.skip_all("needs shared/cases and the default model")
    driver, oracle = Driver(sys.argv[1]), Driver(sys.argv[1], "--oracle")
    with open(path, encoding="utf-8") as file:
        cases = [loads(line) for line in file]
    known = {case["id"]: case for case in cases}
    for name in CASES:
        if tap.check(name in known, "%s is a case" % name):
            run_case(driver, oracle, tap, known[name])
    kin(driver, tap)
    feeds(driver, tap)
    for text in NO_SCHEMAS:
        answer = driver.ask_text('{"id":0,"schema":%s}' % text)
        code = answer.get("error", {}).get("code")
        tap.check(code == "INVALID", "B064 no schema: %s, %s" % (text, code))
    for text in BAD_REGEXES:
        answer = driver.ask({"regex": text})
        code = answer.get("error", {}).get("code")
        tap.check(code in ("INVALID", "UNSUPPORTED", "UNSAT"), "B070 refused: " + json.dumps(text))
    tap.check(driver.close() == 0 and oracle.close() == 0, "grammar check ends well")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
