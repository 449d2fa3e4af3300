"""Cases from public bug reports (shared/cases, areas api and security) that concern the server.

usage: test_cases.py PATH_OF_ESPALIER_FAKE [case …]

They run over the scripted engine with the real templates; grammars are only pretended there, so cases about what
a grammar allows belong to the grammar's own tests. Each case that is not run says why.
"""
import contextlib
import json
import os
import sys
import tempfile
import time

from kit import Server, Skip, joined, run_tests, test, tests

FAKE = sys.argv[1]
ROOT = os.environ.get("ESPALIER_TEST_SHARED", "../shared")
PATH = os.path.join(ROOT, "cases", "cases.jsonl")
TOOLS = "tool calls are not part of this version"
GRAMMAR = "about the language of a grammar: tested with the grammar folder"
GBNF = "GBNF grammars are not part of this version"
SKIPS = {
    **{
        case: TOOLS
        for case in ("B097 B101 B105 B106 B108 B112 B116 B117 B119 B122 B123 B124 B154 B218").split()
    },
    **{
        case: GRAMMAR
        for case in "B062 B073 B080 B082 B099 B109 B153".split()
    },
    **{
        case: GBNF
        for case in "B095 B096 B151".split()
    },
    "B120": "tools: [] is accepted as none by the interfaces; the rest is about tools",
    "B163": "about the radix tree: tested there",
}


def expand(value):
    if isinstance(value, dict):
        if "$repeat" in value:
            return value["$repeat"][0] * value["$repeat"][1]
        if "$repeat_list" in value:
            return [value["$repeat_list"][0]] * value["$repeat_list"][1]
        return {key: expand(item) for key, item in value.items()}
    return [expand(item) for item in value] if isinstance(value, list) else value


def tokens_of(spec, text=None):
    """The scripted tokens of a case, as byte strings."""
    if "model_token_bytes" in spec:
        return [bytes.fromhex(part) for part in spec["model_token_bytes"]]
    if "chunks" in spec and text is None:
        return [part.encode() for part in spec["chunks"]]
    text = text if text is not None else expand(spec.get("model_text", "Hello there."))
    return [char.encode() for char in text]


def start(spec, *options, **script):
    return Server([FAKE, *options], script={"tokens": tokens_of(spec), "n_ctx": 100000, **script})


@contextlib.contextmanager
def template(text):
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as out:
        out.write(text)
        out.flush()
        yield out.name


def send(server, request):
    reply = server.request(request["method"], request["path"], expand(request["body"]), request.get("headers"))
    if reply.status >= 400:
        reply.error()
    return reply


def check_status(case, replies):
    want = case["expect"].get("status", 200)
    for index, reply in enumerate(replies):
        one = want[index] if isinstance(want, list) else want
        allowed = one["any_of"] if isinstance(one, dict) else [one]
        assert reply.status in allowed, (case["id"], index, reply.status, reply.body[:300])


def content(reply):
    return reply.json()["choices"][0]["message"]["content"]


# ---- What a case shows beyond its statuses ----


def check_b098(server, spec, replies):
    assert all(reply.error()["param"] for reply in replies)


def check_b104(server, spec, replies):
    chunks = replies[0].events()[:-1]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])


def check_b125(server, spec, replies):
    for reply in replies:
        assert (reply.error()["param"] or "").startswith("messages"), reply.body


def check_b136(server, spec, replies):
    for reply in replies[:2]:
        assert reply.error()["code"] == "context_length_exceeded" and "100000" in reply.error()["message"]
    assert replies[2].json()["choices"][0]["finish_reason"] in ("length", "stop")


def check_b138(server, spec, replies):
    for reply in replies[:2]:
        assert all(event.get("usage") is None for event in reply.events()[:-1])
    last = replies[2].events()[-2]
    whole = server.request("POST", "/v1/chat/completions", {
        **spec["requests"][0]["body"], "stream": False
    }).json()["usage"]
    assert last["choices"] == [] and last["usage"]["total_tokens"] == whole["total_tokens"]


def check_b141(server, spec, replies):
    assert all(content(reply) == "Ticket " for reply in replies)
    assert all(reply.json()["choices"][0]["finish_reason"] == "stop" for reply in replies)


def check_b142(server, spec, replies):
    body = spec["requests"][0]["body"]
    for text, want in zip(spec["model_texts"], ["Hello User", "Hello User: no", "A"]):
        for size in range(1, 11):
            server.script(tokens=[text[at:at + size].encode() for at in range(0, len(text), size)])
            assert joined(server.post("/v1/chat/completions", body).events()) == want, (text, size)
            assert content(server.post("/v1/chat/completions", {**body, "stream": False})) == want


def check_b143(server, spec, replies):
    choice = replies[0].json()["choices"][0]
    assert choice["text"] == "" and choice["finish_reason"] == "stop" and choice["logprobs"]["tokens"] == []


def check_b148(server, spec, replies):
    events = replies[0].events()
    assert joined(events) == "\U0001f600\u4f60"
    assert not any("\ufffd" in json.dumps(event, ensure_ascii=False) for event in events)
    whole = server.request("POST", "/v1/chat/completions", {
        **spec["requests"][0]["body"], "stream": False,
        "logprobs": True
    })
    entries = whole.json()["choices"][0]["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == "\U0001f600\u4f60"


def check_b149(server, spec, replies):
    assert joined(replies[0].events()) == content(replies[1]) and content(replies[1]) in ("a", "a\ufffd")
    assert replies[1].json()["choices"][0]["finish_reason"] == "length"


def check_b164(server, spec, replies):
    cached = [reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for reply in replies]
    assert cached[0] == cached[1] == cached[3] == 0 and cached[2] > 0, cached


def check_b187(server, spec, replies):
    ids = server.post("/apply-template", spec["requests"][0]["body"]).json()["ids"]
    # Two messages and the assistant's opening: three control tokens begin and two end, plus the beginning of text.
    assert sum(1 for token in ids if token == 256) == 2 and sum(1 for token in ids if token == 258) == 3, ids


CHECKS = {name[6:].upper(): function for name, function in globals().items() if name.startswith("check_b")}

# ---- Cases with a course of their own ----


def case_b132(case):
    raise Skip("the same requests are in test_http.py: hostile_heads, large_bodies, slow_requests")


def case_b178(case):
    spec = case["input"]
    with start(spec, repeat=True, delay_us=2000, n_batch=1) as server:
        for request in spec["requests"]:
            body = json.dumps(expand(request["body"])).encode()
            with contextlib.closing(server.connect()) as sock:
                sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" %
                             (request["path"].encode(), len(body), body))
                if "disconnect_after_tokens" in request:
                    assert sock.recv(1500).startswith(b"HTTP/1.1 200")
                else:
                    time.sleep(request["disconnect_after_ms"] / 1000)
            server.wait_metric("espalier_kv_pages_leased", 0, 0.5)
        server.script(text="next")
        assert content(server.chat()) == "next"


def hang_up_after(server, request):
    body = json.dumps(expand(request["body"])).encode()
    headers = b"".join(b"%s: %s\r\n" % (k.encode(), v.encode()) for k, v in request.get("headers", {}).items())
    with contextlib.closing(server.connect()) as sock:
        sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s" %
                     (request["path"].encode(), headers, len(body), body))
        time.sleep(request["disconnect_after_ms"] / 1000)


def case_b179(case):
    with start(case["input"], repeat=True, delay_us=1000) as server:
        for request in case["input"]["concurrent"]:
            hang_up_after(server, request)
        server.wait_metric("espalier_kv_pages_leased", 0, 2)
        server.script(text="next")
        assert content(server.chat()) == "next"


def case_b181(case):
    with start(case["input"]) as server:
        for _ in range(20):
            for request in case["input"]["requests"]:
                hang_up_after(server, request)
        assert server.get("/health").status == 200


def case_b184(case):
    first, second = case["input"]["requests"]
    with start(case["input"], repeat=True) as server:
        for _ in range(100):
            hang_up_after(server, first)
            assert send(server, second).status == 200
        server.wait_metric('espalier_requests{state="running"}', 0)


def case_b135(case):
    """The report expects both to be refused, but its template raises for the first alone (Jinja2 says so too)."""
    with template(case["input"]["chat_template"]) as path, start(case["input"], "chat-template", path) as server:
        first, second = [send(server, request) for request in case["input"]["requests"]]
        assert first.status == 400 and "roles must alternate" in first.error()["message"]
        assert second.status == 200
        assert server.get("/health").status == 200


def case_b214(case):
    with start(case["input"]) as server:
        assert server.post("/v1/chat/completions", b"[" * 100000).status == 400
        deep = "{" + '"a":{' * 200 + "}" * 201
        assert server.post("/v1/chat/completions", deep).status == 400
        assert server.get("/health").status == 200


def case_b219(case):
    raise Skip("runs on the real grammar: test_real.py")


def case_b072(case):
    with start(case["input"]) as server:
        for fields in ({"regex": "[0-9]\0"}, {"regex": "\0"}, {"stop": "a\0"}, {"stop": ["x", "\0"]}):
            assert server.chat(**fields).status == 400, fields
        kept = server.chat(choice=["a\0b"])
        assert kept.status == 200  # handed on whole; the scripted engine takes any choice


OWN = {name[5:].upper(): function for name, function in globals().items() if name.startswith("case_b")}


def run_requests(case):
    spec = case["input"]
    with start(spec) as server:
        replies = [send(server, request) for request in spec["requests"]]
        check_status(case, replies)
        if case["id"] in CHECKS:
            CHECKS[case["id"]](server, spec, replies)
        assert server.get("/health").status == 200


def add_case(case):

    def run():
        if case["id"] in SKIPS:
            raise Skip(SKIPS[case["id"]])
        OWN.get(case["id"], run_requests)(case)

    run.__name__ = f"{case['id']} {case['title']}".replace("#", "")
    tests.append(run)


if os.path.exists(PATH):
    with open(PATH) as lines:
        for line in lines:
            one = json.loads(line)
            if one["area"] in ("api", "security") and (len(sys.argv) < 3 or one["id"] in sys.argv[2:]):
                add_case(one)
    sys.argv[2:] = []
else:

    @test
    def cases():
        raise Skip("no shared/ data beside the checkout")


if __name__ == "__main__":
    run_tests()
