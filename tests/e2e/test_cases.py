"""Cases from public bug reports (shared/cases, areas api and security) that concern the server.

usage: test_cases.py PATH_OF_ESPALIER_FAKE [case …]

They run over the scripted engine with the real templates; grammars are only pretended there, so cases about what
a grammar allows are in tests/golden/test_grammar_cases.py, and those that need a model in test_cases_real.py.
"""
import contextlib
import json
import os
import re
import sys
import tempfile
import time

from kit import Server, Skip, joined, read_all, run_tests, test, tests

FAKE = sys.argv[1]
ROOT = os.environ.get("ESPALIER_TEST_SHARED", "../shared")
PATH = os.path.join(ROOT, "cases", "cases.jsonl")
CASES = """
B072 B098 B104 B120 B124 B125 B131 B132 B134 B135 B136 B137 B138 B141 B142 B143 B147 B148 B149 B164 B178 B179 B181 B184
B187 B095 B096 B151 B209 B210 B211 B214 B220 B105 B106 B108 B112 B117 B122 B154 B160 B218
""".split()
# Statuses that differ from the case's, by position: an empty list of tools is taken as none (as documented).
OTHER = {"B120": {0: 200}}


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
        one = OTHER.get(case["id"], {}).get(index, one)
        allowed = one["any_of"] if isinstance(one, dict) else [one]
        assert reply.status in allowed, (case["id"], index, reply.status, reply.body[:300])


def content(reply):
    return reply.json()["choices"][0]["message"]["content"]


# ---- What a case shows beyond its statuses ----


def check_b098(server, spec, replies):
    for reply, param in zip(replies, ("grammar", "response_format.json_schema", "response_format.json_schema.schema",
                                      "response_format.type", "response_format", "guided_choice")):
        assert reply.error()["param"] == param, (param, reply.body)


def check_b131(server, spec, replies):
    for reply, param in zip(replies, ("top_logprobs", "top_logprobs", "top_logprobs", "logit_bias", "logit_bias",
                                      "logit_bias", "prompt", "prompt", "tokens")):
        assert (reply.error()["param"] or "").startswith(param), (param, reply.body)


def check_b120(server, spec, replies):
    """tools: [] is taken as none, as documented; all else about tools is refused and named."""
    for request, reply in zip(spec["requests"], replies):
        if reply.status == 400:
            param = reply.error()["param"]
            assert re.split(r"[.[]", param)[0] in request["body"] and param.startswith("tool"), (request, reply.body)


def check_b124(server, spec, replies):
    """Parts are joined, null is empty, for results too."""
    assert replies[1].error()["param"].startswith("messages[0].content")
    prompt = server.post("/apply-template", spec["requests"][0]["body"]).json()["prompt"]
    assert "AB" in prompt and "null" not in prompt and "None" not in prompt, prompt
    parts = [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]
    prompts = []
    for system, assistant in ((parts, {"content": None}), ("AB", {"content": ""}), ("AB", {}),
                              (parts, {"content": []})):
        body = {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "q"},
                             {"role": "assistant", **assistant}, {"role": "user", "content": "r"}]}
        prompts.append(server.post("/apply-template", body).json()["prompt"])
    assert "AB" in prompts[0] and len(set(prompts)) == 1, prompts


def calls_of(reply):
    """The calls of a stream, with the shape of every delta checked: (name, arguments) by index."""
    calls = []
    for event in reply.events():
        for delta in (choice["delta"] for choice in event["choices"]) if event != "[DONE]" else ():
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(calls):
                    assert set(call) == {"index", "id", "type", "function"} and call["type"] == "function", call
                    assert set(call["function"]) == {"name", "arguments"} and call["function"]["arguments"] == "", call
                    calls.append([call["function"]["name"], ""])
                else:
                    assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}, call
                    assert call["index"] == len(calls) - 1 and call["function"]["arguments"], call
                    calls[-1][1] += call["function"]["arguments"]
    return [tuple(call) for call in calls]


def finish_of(reply):
    reasons = [event["choices"][0]["finish_reason"] for event in reply.events()[:-1] if event["choices"]]
    assert reasons[:-1] == [None] * (len(reasons) - 1) and reply.events()[-1] == "[DONE]", reasons
    return reasons[-1]


def check_b105(server, spec, replies):
    choice = replies[0].json()["choices"][0]
    assert choice["message"].get("tool_calls") is None and isinstance(choice["message"]["content"], str), choice
    assert choice["finish_reason"] in ("stop", "length")


def check_b106(server, spec, replies):
    assert calls_of(replies[0]) == [] and finish_of(replies[0]) == "stop"
    assert joined(replies[0].events()) == spec["model_text"]


def check_b108(server, spec, replies):
    """The half-written call stays in the conversation as it is."""
    assert replies[0].status == 200
    prompt = server.post("/apply-template", spec["requests"][0]["body"]).json()["prompt"]
    assert '"arguments": {}' in prompt and "error" in prompt and "go on" in prompt, prompt


def check_b117(server, spec, replies):
    assert calls_of(replies[0]) == [("list_queues", "{}"), ("get_ticket", '{"id":"7"}')], replies[0].body
    assert finish_of(replies[0]) == "tool_calls"


def check_b122(server, spec, replies):
    assert calls_of(replies[0]) == [] and finish_of(replies[0]) == "stop"
    assert joined(replies[0].events()) == spec["model_text"]


def check_b160(server, spec, replies):
    prompts = {server.post("/apply-template", request["body"]).json()["prompt"]
               for request in map(expand, spec["requests"])}
    assert len(prompts) == 1, prompts
    arguments = spec["requests"][0]["body"]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.dumps(json.loads(arguments)) in prompts.pop()
    for reply in replies[1:]:
        usage = reply.json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1, usage


def case_b112(case):
    split_arguments(case, case["input"]["model_texts"], range(1, 11))


def case_b154(case):
    split_arguments(case, [case["input"]["model_text"]], [1])


def split_arguments(case, texts, steps):
    """The model begins with the arguments, because there is one function and it must be called."""
    spec = case["input"]
    with start(spec, n_ctx=100000) as server:
        for text in texts:
            for step in steps:
                server.script(tokens=[text[at:at + step].encode() for at in range(0, len(text), step)])
                reply = send(server, spec["requests"][0])
                assert [arguments for _, arguments in calls_of(reply)] == [text], (text, step, reply.body)
                assert finish_of(reply) == "tool_calls"


def check_b218(server, spec, replies):
    assert replies[0].status == 200 and finish_of(replies[0]) in ("stop", "length")


def check_b104(server, spec, replies):
    chunks = replies[0].events()[:-1]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in chunks[1:])
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"][0]["finish_reason"] is not None
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["object"] == "chat.completion.chunk"


def check_b125(server, spec, replies):
    for reply in replies:
        assert (reply.error()["param"] or "").startswith("messages"), reply.body
        assert reply.error()["type"] == "invalid_request_error", reply.body


def check_b136(server, spec, replies):
    for reply in replies[:2]:
        assert reply.error()["code"] == "context_length_exceeded" and "100000" in reply.error()["message"]
    assert replies[2].json()["choices"][0]["finish_reason"] in ("length", "stop")


def check_b138(server, spec, replies):
    for reply in replies:
        assert reply.events()[-1] == "[DONE]"
    for events in (replies[0].events()[:-1], replies[1].events()[:-1], replies[2].events()[:-2]):
        assert all(event.get("usage") is None and event["choices"] for event in events)
    last = replies[2].events()[-2]
    whole = server.request("POST", "/v1/chat/completions", {
        **spec["requests"][0]["body"], "stream": False
    }).json()["usage"]
    assert last["choices"] == [] and last["usage"] == whole, (last, whole)
    assert whole["prompt_tokens"] + whole["completion_tokens"] == whole["total_tokens"]


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
    assert replies[0].json()["usage"]["completion_tokens"] >= 0


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
    """The idle request of the case waits for the server's own limit, ten seconds, and not for two minutes."""
    post = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    with start(case["input"]) as server:
        before = server.memory_kb()
        for data, codes in [
            (b"GET /health HTTP/1.1\r\nHost: x\r\nX-Big: " + b"x" * 10485760 + b"\r\n\r\n", (431, 400)),
            (post + b"Content-Length: 1099511627776\r\n\r\n", (413, )),
            (post + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40, (413, )),
            (post + b"Content-Length: 100\r\n\r\n{", (408, None)),
            (post + b"Content-Length: -5\r\n\r\n", (400, )),
            (post + b"Content-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400, )),
        ]:
            reply = server.raw(data, timeout=30)
            code = int(reply.split(b" ")[1]) if reply else None
            assert code in codes, (data[:90], reply[:200])
        assert server.memory_kb() - before < 64 * 1024, (before, server.memory_kb())


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


def rendered(text, status, path="/v1/chat/completions"):
    """What a server with this template answers to a chat; and it goes on serving."""
    script = {"text": "ok", "n_ctx": 100000}
    with template(text) as name, Server([FAKE, "chat-template", name], script=script) as server:
        reply = server.post(path, {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})
        allowed = status["any_of"] if isinstance(status, dict) else [status]
        assert reply.status in allowed, (text, reply.status, reply.body[:300])
        if reply.status != 200:
            assert reply.error()["message"], reply.body
        assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status == 200
        return reply


def case_b209(case):
    whole = next(kv["value"] for kv in case["input"]["gguf"]["kv"] if kv["key"] == "tokenizer.chat_template")
    for text in (whole, "{{ ''.__class__.__mro__ }}", "{{ messages.__class__ }}", "{{ [].append.__globals__ }}",
                 "{{ self.__init__ }}", "{{ messages[0].__dict__ }}", "{{ namespace.__init__.__globals__['os'] }}",
                 "{{ 'a'.format.__globals__ }}", "{{ '{0.__class__}'.format(messages) }}",
                 "{{ ''|attr('__class__') }}"):
        reply = rendered(text, {"any_of": [200, 400]}, "/apply-template")
        if reply.status == 200:
            assert reply.json()["prompt"] == "", (text, reply.body)


def case_b210(case):
    for text, status in zip(case["input"]["chat_templates"], case["expect"]["status"]):
        began = time.time()
        rendered(text + "|", status)  # never an empty prompt
        assert time.time() - began < 20, text


def case_b211(case):
    prompt = rendered(case["input"]["chat_template"], 200, "/apply-template").json()["prompt"]
    assert prompt == "hi", prompt
    many = {"messages": [{"role": "user" if i % 2 == 0 else "assistant", "content": "%d," % i} for i in range(60)]}
    with template(case["input"]["chat_template"]) as name, start(case["input"], "chat-template", name) as server:
        prompt = server.post("/apply-template", many).json()["prompt"]
        assert prompt == "".join("%d," % i for i in range(51)), prompt


def case_b214(case):
    with start(case["input"]) as server:
        assert server.post("/v1/chat/completions", b"[" * 100000).status == 400
        deep = "{" + '"a":{' * 200 + "}" * 201
        assert server.post("/v1/chat/completions", deep).status == 400
        assert server.get("/health").status == 200


def case_b072(case):
    with start(case["input"]) as server:
        for fields in ({"regex": "[0-9]\0"}, {"regex": "\0"}, {"stop": "a\0"}, {"stop": ["x", "\0"]}):
            assert server.chat(**fields).status == 400, fields
        kept = server.chat(choice=["a\0b"])
        assert kept.status == 200  # handed on whole; the scripted engine takes any choice


def case_b220(case):
    """The connections of one machine: more at once than the queue takes. The excess is told at once, when to retry."""
    body = json.dumps(case["input"]["concurrent"][0]["$repeat_request"][1]["body"]).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
    with start(case["input"], n_queue=64, n_batch=4, delay_us=2000) as server:
        fds = "/proc/%d/fd" % server.process.pid
        assert server.chat().status == 200
        n_fds = len(os.listdir(fds))
        sockets = [server.connect() for _ in range(400)]
        for sock in sockets:
            sock.sendall(request % (len(body), body))
        replies = [read_all(sock) for sock in sockets]
        for sock in sockets:
            sock.close()
        codes = [int(reply.split(b" ")[1]) for reply in replies]
        assert set(codes) == {200, 429}, {code: codes.count(code) for code in codes}
        assert all(b"retry-after:" in r.lower() for r, code in zip(replies, codes) if code == 429)
        assert all(b"[DONE]" in r for r, code in zip(replies, codes) if code == 200)
        deadline = time.time() + 5
        while len(os.listdir(fds)) > n_fds + 1:
            assert time.time() < deadline, (n_fds, len(os.listdir(fds)))
            time.sleep(0.05)
        assert server.chat().status == 200


OWN = {name[5:].upper(): function for name, function in globals().items() if name.startswith("case_b")}


def run_requests(case):
    spec = case["input"]
    with start(spec) as server:
        replies = [send(server, request) for request in spec["requests"]]
        check_status(case, replies)
        if case["id"] in CHECKS:
            CHECKS[case["id"]](server, spec, replies)
        assert server.get("/health").status == 200


def add_case(name, case):

    def run():
        assert case is not None, "no such case"
        way = OWN.get(name, run_requests)
        way(case)

    run.__name__ = f"{name} {case['title'] if case else ''}".replace("#", "")
    tests.append(run)


def add_cases():
    with open(PATH) as lines:
        known = {case["id"]: case for case in map(json.loads, lines)}
    for name in CASES:
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            add_case(name, known.get(name))
    sys.argv[2:] = []


if os.path.exists(PATH):
    add_cases()
else:

    @test
    def cases():
        raise Skip("no shared/ data beside the checkout")


if __name__ == "__main__":
    run_tests()
