"""Every mask against brute force, on patterns, schemas and grammars whose masks are put together from ready-made parts.

usage: test_grammar_masks.py ESPALIER [--seed N] [--rounds N]

Random classes of characters, counted and repeated, inside schemas and as plain patterns; texts are drawn from a
list, so that they leave the pattern early or late. Runs on the default model's vocabulary and on those of
shared/data/vocab that are there.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden"))
from grammar_driver import Driver, Number, Tap, find_model, find_shared, first_seed, option  # noqa: E402

CLASSES = ["[a-z]", "[a-z0-9-]", "[A-Za-z0-9_]", "[0-9a-f]", "[^a]", "[^0-9\\n]", ".", "\\w", "[ -~]", "[A-Za-zÀ-ÿ ]",
           "\\p{L}", "[\\u4e00-\\u9fff]", "[ a-z,.]", "[-a-z.]", "[^\"\\\\]"]
COUNTS = ["*", "+", "?", "{3}", "{1,19}", "{0,40}", "{2,}", "{1,253}"]
TEXTS = ["hello world", "my-app.example.com", "Abc_9", "0123456789abcdef", "été à la plage", "中文字符", "a\nb", "---" * 30,
         " " * 70, "😀 smile", "{\"a\":1}", "x" * 45, "value\",\"b\":\"c", "aaa", "1", ""]


FREE = {"seq": [{"free": {"until": ["<tool", "{", "\n\n"], "tokens": Number(6)}},
                {"any": [{"text": "<tool>"}, {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
                         {"regex": "\n\n[a-z ]*"}]}, {"free": {"until": ["end"]}}]}
GRAMMARS = [
    {"gbnf": 'root ::= (e "=" e "\\n")+\ne ::= e [-+*/] e | "-" e | "(" e ")" | [a-z]+ | [0-9]{1,9}',
     "accept": ["a+1=(b)\n-x*(2)=3\n"]},
    {"gbnf": 'root ::= "[" (root ("," ws root)*)? "]" | [^\\]\\[,]+\nws ::= (" " ws)?',
     "accept": ["[[hello world,  \u00e9t\u00e9],[]]"]},
    {"lark": 'start: item ("," item)*\nitem: NAME "=" (/[0-9]+/ | %json {"type":"array","items":{"type":"string"}})\n'
             'NAME: /[a-z_]+/ & ~"if"\n%ignore / +/', "accept": ['a = 1,foo_bar=["x y"] , if=2']},
    {"lark": "start: (WORD | other)+\nother: \"(\" start \")\" | /[^a-z()]+/s\nWORD: /[a-z]+/i",
     "accept": ["Hello, (world!!)", "\u4e2d\u6587 a"]},
    {"regions": FREE, "accept": ["So <to <tool>on", "\u00e9{\"a\":\"b\"}"]},
]


def pattern(rng):
    parts = []
    for _ in range(rng.randrange(1, 4)):
        part = rng.choice(CLASSES) + rng.choice(COUNTS)
        if rng.random() < 0.25:
            part = "(%s%s)%s" % (part, rng.choice(["-", "\\.", "x", "\""]), rng.choice(["*", "?", "{1,5}"]))
        parts.append(part)
    return "".join(parts)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def request(rng):
    if rng.random() < 0.35:
        return {"id": 0, **rng.choice(GRAMMARS)}
    text = "".join(rng.choice(TEXTS) for _ in range(rng.randrange(1, 3)))
    if rng.random() < 0.3:
        return {"id": 0, "regex": pattern(rng), "accept": [text]}
    schema = {"type": "string", "pattern": ("^%s$" if rng.random() < 0.8 else "%s") % pattern(rng)}
    if rng.random() < 0.3:
        schema["maxLength"] = Number(rng.choice([1, 5, 30, 200]))
    if rng.random() < 0.2:
        schema["minLength"] = Number(rng.choice([1, 4, 50]))
    if rng.random() < 0.4:
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
        return {"id": 0, "schema": schema, "accept": ['{"a":%s}' % quoted(text)]}
    return {"id": 0, "schema": schema, "accept": [quoted(text)]}


def main():
    tap = Tap()
    if find_model() is None:
        return tap.skip_all("needs the default model")
    seed, rounds = first_seed(), option("--rounds", 3)
    tap.note("seed %d" % seed)
    rng, vocabs = random.Random(seed), [None]
    for name in ("npm-vocab-llama3", "ggml-vocab-gpt-2", "ggml-vocab-phi-3", "npm-vocab-gptoss"):
        path = find_shared("data/vocab/%s.gguf" % name)
        vocabs += [path] if path else []
    for path in vocabs:
        driver, wrong, masks, asked = Driver(sys.argv[1], "--oracle", vocab=path), [], 0, 0
        # Some requests are refused by this vocabulary, or over after one mask: then others are drawn.
        while asked < rounds or (masks < rounds and asked < 20 * rounds):
            ask, asked = request(rng), asked + 1
            answer = driver.ask(ask)
            if answer.get("compile") == "ok":
                masks += answer["masks"]
                wrong += [str(ask)] if answer["mask_errors"] else []
        for ask in wrong[:5]:
            tap.note(ask)
        tap.check(not wrong and masks >= rounds, "%s: %d masks, %d requests with a wrong one" % (
            os.path.basename(path or find_model()), masks, len(wrong)))
        driver.close()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
