"""Cases from public bug reports (shared/cases) that need a real model, real grammars and the real cache.

usage: test_cases_real.py PATH_OF_ESPALIER [case …]

Where a case counts in thousands, the test counts in hundreds; where it wants tools, which this version
refuses (tests/e2e/test_cases.py sees to that), the same is asked with what there is, and said so.
"""
import decimal
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from kit import PATIENCE, Server, Skip, at_once, joined, run_tests, sanitized, test

PROGRAM = sys.argv[1]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = os.environ.get("ESPALIER_TEST_MODELS", os.path.join(ROOT, "models"))
POLICY = "You are the triage agent. Follow policy 17. "
PAGE = 16
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def serve(*options, model="SmolLM2-135M-Instruct.Q4_1.gguf"):
    path = model if os.path.isabs(model) else os.path.join(MODELS, model)
    if not os.path.exists(path):
        raise Skip("model file not fetched")
    return Server([PROGRAM, "serve", "-m", path, "--port", "0", *options])


def schema(value, name="t"):
    return {"type": "json_schema", "json_schema": {"name": name, "schema": value}}


def messages(user, system=None):
    return ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": user}]


def ask(server, body, path="/v1/chat/completions"):
    reply = server.post(path, body, timeout=300)
    assert reply.status == 200, reply.body[:500]
    return reply.json()


def text_of(answer):
    choice = answer["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def cached_of(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def common(one, other):
    n = 0
    while n < min(len(one), len(other)) and one[n] == other[n]:
        n += 1
    return n


def is_object(text):
    """{"a": integer}; 1.0 and 1e2 are integers since draft-06, whatever Python makes of them."""
    value = json.loads(text, parse_float=decimal.Decimal)
    number = value.get("a") if list(value) == ["a"] else None
    whole = isinstance(number, decimal.Decimal) and number.is_finite() and number == number.to_integral_value()
    return whole or (isinstance(number, int) and not isinstance(number, bool))


# ---- Constraints ----


@test
def b092_masks_of_a_mixed_batch():
    with serve() as server:
        free = {"messages": messages("hi"), "max_tokens": 32, "temperature": 0}
        alone = text_of(ask(server, free))
        for round_no in range(6):
            bodies = [{"messages": messages("hi"), "response_format": schema(OBJECT), "max_tokens": 32 + round_no},
                      free, {"messages": messages("hi"), "response_format": schema({"enum": ["x", "y"]}),
                             "max_tokens": 8}]
            bodies = bodies[round_no % 3:] + bodies[:round_no % 3] + bodies[:round_no]
            for body, answer in zip(bodies, at_once([lambda b=b: ask(server, b) for b in bodies])):
                text, stopped = text_of(answer), answer["choices"][0]["finish_reason"] == "stop"
                if body is free:
                    assert text == alone, (text, alone)
                elif body["max_tokens"] == 8:
                    assert stopped and text in ('"x"', '"y"'), text
                else:
                    assert is_object(text) if stopped else text.startswith('{"a":'), answer


@test
def b093_several_answers_with_one_grammar():
    with serve() as server:
        for seed in range(4):
            answer = ask(server, {"messages": messages("hi"), "n": 3, "temperature": 1, "seed": seed, "max_tokens": 64,
                                  "response_format": schema(OBJECT)})
            assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
            for choice in answer["choices"]:
                text = choice["message"]["content"]
                assert is_object(text) if choice["finish_reason"] == "stop" else text.startswith('{"a":'), choice


@test
def b095_bad_grammar_after_a_good_one():
    with serve() as server:
        good = {"grammar": "root ::= \"a\" | \"b\""}
        for fields, status in [(good, 200), ({"grammar": "root ::= ("}, 400), (good, 200), ({"regex": "("}, 400),
                               ({"regex": "a|b"}, 200), ({"response_format": schema({"type": "hiccup"})}, 400),
                               ({"choice": ["a", "b"]}, 200)]:
            reply = server.chat(max_tokens=4, **fields)
            assert reply.status == status, (fields, reply.body)
            assert status == 400 or text_of(reply.json()) in ("a", "b"), reply.body


@test
def b096_bias_against_a_mask():
    with serve() as server:
        banned = server.post("/tokenize", {"text": "zq"}).json()["ids"][0]
        for fields in ({"grammar": "root ::= \"a\""}, {"choice": ["a"]}, {"regex": "a", "temperature": 0}):
            others = at_once([
                lambda f=fields: server.chat(max_tokens=4, logit_bias={"0": 100, "2": 100, str(banned): 100}, **f),
                lambda: server.chat("Say something.", max_tokens=8, temperature=0)
            ])
            assert text_of(others[0].json()) == "a" and others[0].json()["choices"][0]["finish_reason"] == "stop"
            assert others[1].status == 200 and text_of(others[1].json())


@test
def b099_schema_of_response_format():
    with serve() as server:
        body = {"messages": messages("hi"), "max_tokens": 32, "response_format": schema({"const": "maybe-not"}, "c")}
        answer = ask(server, body)
        assert text_of(answer) == '"maybe-not"' and answer["choices"][0]["finish_reason"] == "stop", answer


@test
def b151_values_of_logprobs():
    """The sum is over the most likely tokens, and so at most one."""
    with serve() as server:
        for fields in ({"grammar": "root ::= \"a\""}, {"regex": "[ab]c"}, {}):
            answer = ask(server, {"messages": messages("hi"), "max_tokens": 2, "logprobs": True, "top_logprobs": 20,
                                  "temperature": 1, **fields})
            for entry in answer["choices"][0]["logprobs"]["content"]:
                total = sum(2.718281828459045**top["logprob"] for top in entry["top_logprobs"])
                assert 0 < total <= 1.0001 and -9999 <= entry["logprob"] <= 0, entry
                assert all(-9999 <= top["logprob"] <= 0 for top in entry["top_logprobs"]), entry


@test
def b214_deep_bodies_and_schemas():
    with serve() as server:
        deep = '{"type":"array","items":' * 10000 + "{}" + "}" * 10000
        for body in (b"[" * 100000, '{"messages":[{"role":"user","content":"x"}],"response_format":'
                     '{"type":"json_schema","json_schema":{"name":"x","schema":%s}}}' % deep,
                     json.dumps({"messages": messages("x"), "regex": "(" * 100000}),
                     json.dumps({"messages": messages("x"), "grammar": "root ::= " + "(" * 100000})):
            reply = server.post("/v1/chat/completions", body)
            assert reply.status == 400 and reply.error()["message"], reply.body[:200]
        tree = schema({"type": "array", "items": {"$ref": "#"}})
        inner = server.post("/tokenize", {"text": "["}).json()["ids"][0]
        answer = ask(server, {"messages": messages("x"), "response_format": tree, "max_tokens": 300, "temperature": 0,
                              "logit_bias": {str(inner): 100}})
        assert set(text_of(answer)) <= {"[", "]", ","}, answer
        assert server.get("/health").status == 200


@test
def b219_bad_schemas_end_no_process():
    with serve() as server:
        bad = schema({"properties": {"reason": {"type": "strng"}}}, "x")
        first = server.chat(response_format=bad)
        assert first.status == 400 and "/properties/reason" in first.error()["message"] + str(first.error()["param"])
        tool = {"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "something", "pattern": "("}}}}}
        assert server.chat(tools=[tool], tool_choice="required").status == 400
        assert server.chat(max_tokens=2).status == 200


# ---- The cache ----


@test
def b155_the_same_prompt_twice():
    with serve() as server:
        body = {"messages": messages("7", POLICY * (40 if sanitized() else 400)), "max_tokens": 8, "temperature": 0}
        one, two = ask(server, body), ask(server, body)
        n = one["usage"]["prompt_tokens"]
        assert text_of(one) == text_of(two) and cached_of(one) == 0
        assert PAGE * ((n - 1) // PAGE) <= cached_of(two) < n == two["usage"]["prompt_tokens"], two


@test
def b156_cached_tokens_follow_the_common_prefix():
    with serve() as server:
        seen, counts = [], []
        for user in ("1 2 3 4 5 6", "1 2 3 4 5 6", "1 2 3 4 5 9", "1 2 3 9 9 9"):
            body = {"messages": messages(user, POLICY * 100), "max_tokens": 4, "temperature": 0}
            ids = server.post("/apply-template", body).json()["ids"]
            answer = ask(server, body)
            most = max([min(common(ids, other), len(ids) - 1) for other in seen], default=0)
            assert PAGE * (most // PAGE) <= cached_of(answer) <= most, (user, cached_of(answer), most)
            assert answer["usage"]["prompt_tokens"] == len(ids)
            seen.append(ids)
            counts.append(cached_of(answer))
        assert counts[0] == 0 and counts[1] >= counts[2] >= counts[3] > 1000, counts


@test
def b161_a_nonce_in_front():
    with serve() as server:
        answers = [ask(server, {"messages": [{"role": "system", "content": "x-billing: v=1; cch=%s;" % nonce},
                                             {"role": "system", "content": "policy " * 400},
                                             *messages("q")], "max_tokens": 2}) for nonce in ("aa11", "bb22")]
        assert cached_of(answers[0]) == 0 and cached_of(answers[1]) < 32, answers[1]


@test
def b162_a_date_in_the_template():
    text = ("{{ strftime_now('%d %b %Y') }} {% for m in messages %}{{m.role}}: {{m.content}}\n{% endfor %}assistant:")
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(text)
        file.flush()
        with serve("--chat-template", file.name) as server:
            body = {"messages": messages("q", POLICY * 60), "max_tokens": 2}
            for _ in range(2):  # once more if midnight came in between
                prompts = [server.post("/apply-template", body).json()["prompt"] for _ in range(2)]
                answers = [ask(server, body) for _ in range(2)]
                if prompts[0] == server.post("/apply-template", body).json()["prompt"]:
                    break
            assert re.match(r"\d\d [A-Z][a-z][a-z] \d{4} system: You", prompts[0]), prompts[0][:60]
            n = answers[1]["usage"]["prompt_tokens"]
            assert cached_of(answers[1]) >= PAGE * ((n - 1) // PAGE), answers[1]


@test
def b168_b169_prompts_around_a_page():
    with serve() as server:
        for n in (1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 1, 4 * PAGE):
            prompt = [(1000 + 7 * n + 3 * i) % 40000 + 100 for i in range(n)]
            one, two = [ask(server, {"prompt": prompt, "max_tokens": 1, "temperature": 0}, "/v1/completions")
                        for _ in range(2)]
            assert one["usage"]["prompt_tokens"] == n and text_of(one) == text_of(two), (n, one, two)
            assert cached_of(one) == 0 and PAGE * ((n - 1) // PAGE) <= cached_of(two) < n, (n, one, two)
        assert server.post("/v1/completions", {"prompt": [], "max_tokens": 1}).status == 400


@test
def b170_system_prompt_longer_than_a_batch():
    texts = set()
    for chunk in ("32", "64", "512", "1"):
        with serve("--prefill-chunk", chunk) as server:
            for n in (63, 64) if chunk == "1" else (512, 640, 641):
                prompt = [(31 * i) % 9000 + 100 for i in range(n)]
                answer = ask(server, {"prompt": prompt, "max_tokens": 4, "temperature": 0}, "/v1/completions")
                texts.add((n, text_of(answer)))
            if chunk != "1":
                answer = ask(server, {"messages": messages("q", "rule " * 1100), "max_tokens": 4, "temperature": 0})
                texts.add(("chat", text_of(answer)))
    assert len(texts) == 6, texts


@test
def b172_nothing_stays_of_an_earlier_request():
    """Tools are refused here; a regex, a stop string, a bias and a seed are what could stay."""
    with serve("--max-batch", "1") as server:
        plain = {"prompt": "plain <tool_call> text", "max_tokens": 16, "temperature": 0}
        before = text_of(ask(server, plain, "/v1/completions"))
        for fields in ({"regex": "[0-9]{8}"}, {"stop": ["e", "a", " "]}, {"logit_bias": {"28": -100, "30": 100}},
                       {"response_format": schema(OBJECT), "seed": 3, "temperature": 2}):
            assert server.chat(max_tokens=32, **fields).status == 200
            assert text_of(ask(server, plain, "/v1/completions")) == before, fields


@test
def b174_answers_that_split_differently():
    differed = False
    with serve() as server:
        for fields in ({}, {"regex": "[a-z]{24}"}, {"regex": "(hel|lo| wor|ld){6}"}):
            server.request("DELETE", "/v1/cache")
            body = {"messages": messages("q"), "max_tokens": 24, "temperature": 0}
            first = ask(server, {**body, **fields, "logprobs": True})
            known = server.post("/apply-template", body).json()["ids"]
            made = [entry["id"] for entry in first["choices"][0]["logprobs"]["content"]]
            differed = differed or made != server.post("/tokenize", {"text": text_of(first)}).json()["ids"]
            known = known + made
            turns = {**body, "messages": [*messages("q"), {"role": "assistant", "content": text_of(first)},
                                          *messages("more")], "max_tokens": 8}
            ids = server.post("/apply-template", turns).json()["ids"]
            most = common(ids, known)
            assert most >= len(known), "the answer comes back by its own tokens"
            warm = ask(server, turns)
            assert PAGE * (most // PAGE) - PAGE <= cached_of(warm) <= most, (fields, cached_of(warm), most)
            server.request("DELETE", "/v1/cache")
            cold = ask(server, turns)
            assert cached_of(cold) == 0 and text_of(cold) == text_of(warm), (warm, cold)
    assert differed, "no answer was split differently: the test shows nothing"


@test
def b176_out_of_pages_while_decoding():
    with serve("--ctx", "256", "--kv-bytes", "16M") as server:
        pages = server.metric("espalier_kv_pages_total")
        assert pages < 4 * 16, pages
        bodies = [{"messages": messages("t%d: count" % i), "max_tokens": 180, "temperature": 0, "ignore_eos": True}
                  for i in range(8)]
        alone = [text_of(ask(server, body)) for body in bodies]
        server.request("DELETE", "/v1/cache")
        together = at_once([lambda b=b: ask(server, b) for b in bodies])
        assert [text_of(answer) for answer in together] == alone
        assert server.metric("espalier_preemptions_total") > 0
        server.wait_metric("espalier_kv_pages_leased", 0)


# ---- Tokens ----


def tiny(folder, rows_more):
    """A small model whose embedding has that many rows more than the vocabulary has tokens."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "golden"))
    try:
        import make_tiny
    except ImportError:
        raise Skip("the Python package numpy is not installed") from None
    shape = next(m for m in make_tiny.MODELS if m["arch"] == "llama")
    path = os.path.join(folder, "tiny%d.gguf" % rows_more)
    make_tiny.make({**shape, "rows_more": rows_more}, path)
    return path


@test
def b091_more_rows_than_tokens():
    with tempfile.TemporaryDirectory() as folder:
        with serve(model=tiny(folder, 24)) as server:
            n_tokens = next(n for n in range(200, 5000)
                            if server.post("/detokenize", {"ids": [n]}).status == 400)
            for fields in ({}, {"regex": "[ -~]{12}"}, {"response_format": schema({"type": "integer"})}):
                for seed in range(3):
                    body = {"prompt": "ab", "max_tokens": 12, "temperature": 2, "n": 8, "logprobs": 5, "seed": seed}
                    answer = ask(server, {**body, **fields}, "/v1/completions")
                    assert len(answer["choices"]) == 8
                    for choice in answer["choices"]:
                        assert "regex" not in fields or re.fullmatch("[ -~]{12}", choice["text"]), choice
            for bad in (n_tokens, n_tokens + 23):
                assert server.chat(logit_bias={str(bad): 100}).status == 400
                assert server.post("/v1/completions", {"prompt": [bad], "max_tokens": 1}).status == 400
        short = subprocess.run([PROGRAM, "run", "-m", tiny(folder, -3), "--raw", "-p", "a"], capture_output=True,
                               timeout=60 * PATIENCE, check=False)
        assert short.returncode == 1 and b"more tokens than the embedding has rows" in short.stderr, short


@test
def b186_one_bos():
    text = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(text)
        file.flush()
        with serve("--chat-template", file.name, model="gemma-3-270m-Q4_K_M.gguf") as server:
            for content in ("hi", "<bos>hi", "<bos><bos>"):
                ids = server.post("/apply-template", {"messages": messages(content)}).json()["ids"]
                assert ids[0] == 2 and ids.count(2) == 1, (content, ids)
            counts = [ask(server, {"prompt": prompt, "max_tokens": 1}, "/v1/completions")["usage"]["prompt_tokens"]
                      for prompt in ("hi", "<bos>hi", [2] + server.post("/tokenize", {"text": "hi"}).json()["ids"])]
            bare = server.post("/tokenize", {"text": "hi"}).json()["ids"]
            assert 2 not in bare and counts[0] == counts[2] == len(bare) + 1, (counts, bare)
            assert counts[1] == counts[0], ("a BOS that is typed is not doubled", counts)
        with serve("--chat-template", file.name) as server:  # this vocabulary adds none
            answer = ask(server, {"prompt": "hi", "max_tokens": 1}, "/v1/completions")
            assert answer["usage"]["prompt_tokens"] == len(server.post("/tokenize", {"text": "hi"}).json()["ids"])


@test
def b191_every_end_token_ends():
    with serve() as server:
        ends = server.post("/tokenize", {"text": "<|im_end|><|endoftext|>", "special": True}).json()["ids"]
        assert len(ends) == 2
        for end in ends:
            bias = {"logit_bias": {str(end): 100}, "logprobs": True, "temperature": 0}
            answer = ask(server, {"messages": messages("Tell a story."), "max_tokens": 8, **bias})
            choice = answer["choices"][0]
            assert choice["finish_reason"] == "stop" and text_of(answer) == "", (end, answer)
            assert choice["logprobs"]["content"] == [] and answer["usage"]["completion_tokens"] == 0, answer
            inside = ask(server, {"messages": messages("x"), "regex": "[a-z]{6}", **bias})
            assert re.fullmatch("[a-z]{6}", text_of(inside)), inside
            assert not {e["id"] for e in inside["choices"][0]["logprobs"]["content"]} & set(ends)


# ---- Time and memory ----


def strings(n_properties):
    values = ["value-%02d" % i for i in range(50)]
    names = ["property_%04d" % i for i in range(n_properties)]
    return schema({"type": "object", "properties": {name: {"enum": values} for name in names}, "required": names,
                   "additionalProperties": False}, "big")


@test
def b185_compiling_blocks_nobody():
    """The schema of the case is over the limit of size; one just under it is compiled beside the stream."""
    with serve() as server:

        def gaps():
            reply = server.connect()
            body = json.dumps({"messages": messages("Write a long story."), "max_tokens": 150, "stream": True,
                               "temperature": 0, "ignore_eos": True}).encode()
            reply.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                          b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            times, data = [], b""
            while part := reply.recv(65536):
                times.append(time.time())
                data += part
            reply.close()
            assert b"[DONE]" in data
            between = sorted(b - a for a, b in zip(times[1:], times[2:]))
            return between[-1], between[len(between) // 2]

        def compile_both():
            time.sleep(0.3)
            assert server.chat(response_format=strings(5000)).error()["code"] == "grammar_limit"
            began = time.time()
            assert server.chat(response_format=strings(1500), max_tokens=1).status == 200
            first, began = time.time() - began, time.time()
            assert server.chat(response_format=strings(1500), max_tokens=1).status == 200
            return first, time.time() - began

        quiet = gaps()
        (longest, _), (first, again) = at_once([gaps, compile_both])
        assert longest < 0.25 + 20 * quiet[1], (longest, quiet, first)
        assert again < first + 0.05, (first, again)


@test
def b193_a_long_word():
    with serve() as server:
        began = time.time()
        reply = server.chat("ab" * 500000, max_tokens=1)
        took = time.time() - began
        assert reply.status == 400 and reply.error()["code"] == "context_length_exceeded", reply.body
        assert took < 10, took  # the case says two seconds; sanitizers and busy machines are slower
        assert server.get("/health").status == 200


@test
def b217_memory_of_constrained_requests():
    with serve("--ctx", "256", "--kv-bytes", "16M") as server:  # a pool that the first requests fill

        def some(n):
            for i in range(n):
                fields = {"response_format": schema(OBJECT)} if i % 2 else {"regex": "[a-z]{%d}" % (1 + i % 7)}
                assert server.chat(max_tokens=2, **fields).status == 200

        at_once([lambda i=i: server.chat("fill %d" % i, max_tokens=100, ignore_eos=True) for i in range(8)])
        at_once([lambda: some(100) for _ in range(4)])
        before = server.memory_kb()
        at_once([lambda: some(150) for _ in range(4)])
        after = server.memory_kb()
        assert after < before * 1.05 + 1024, (before, after)


if __name__ == "__main__":
    run_tests()
