"""What the server answers, over the scripted engine: shapes, streams, fields, refusals, routes.

usage: test_http.py PATH_OF_ESPALIER_FAKE [test …]
"""
import json
import re
import sys

from kit import CHAT, Server, chat_body, joined, run_tests, test

FAKE = sys.argv[1]


def fake(*options, **script):
    script = {"text": "Hello world", **script} if "tokens" not in script else script
    return Server([FAKE, *options], script=script)


# ---- Shapes ----


@test
def whole_answer():
    with fake() as server:
        reply = server.chat()
        data = reply.json()
        assert reply.status == 200 and reply.headers["content-type"] == "application/json"
        assert data["object"] == "chat.completion" and data["id"].startswith("chatcmpl-")
        choice = data["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": "Hello world", "refusal": None}, choice
        assert choice["finish_reason"] == "stop" and choice["logprobs"] is None and "warnings" not in data
        usage = data["usage"]
        assert usage["completion_tokens"] == 11
        assert usage["total_tokens"] == usage["prompt_tokens"] + 11
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert server.chat().json()["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


@test
def stream_shape():
    with fake() as server:
        reply = server.chat(stream=True, n=2)
        events = reply.events()
        assert reply.headers["x-accel-buffering"] == "no"
        assert events[-1] == "[DONE]"
        chunks = events[:-1]
        assert len({(c["id"], c["created"], c["model"], c["object"]) for c in chunks}) == 1
        assert chunks[0]["object"] == "chat.completion.chunk"
        for index in (0, 1):
            mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
            assert mine[0]["delta"] == {"role": "assistant"}
            assert all("role" not in c["delta"] for c in mine[1:])
            assert all(c["finish_reason"] is None for c in mine[:-1])
            assert mine[-1]["finish_reason"] == "stop" and mine[-1]["delta"] == {}
            assert all(c["delta"].get("content", "x") != "" for c in mine)
            assert joined(events, index) == "Hello world"
        assert all("usage" not in c for c in chunks)


@test
def stream_usage():
    with fake() as server:
        whole = server.chat(max_tokens=4).json()["usage"]
        assert all("usage" not in e for e in server.chat(stream=True, stream_options={}).events()[:-1])
        events = server.chat(stream=True, max_tokens=4, stream_options={"include_usage": True}).events()
        assert [e["usage"] for e in events[:-2]] == [None] * (len(events) - 2)
        assert events[-2]["choices"] == []
        usage = events[-2]["usage"]
        assert usage["prompt_tokens"] == whole["prompt_tokens"] and usage["completion_tokens"] == 4
        assert events[-3]["choices"][0]["finish_reason"] == "length"


@test
def completions_shape():
    with fake(tokens=[b"He", b"l", b"lo \xf0\x9f", b"\x98\x80", b"!"]) as server:
        data = server.post("/v1/completions", {"prompt": ["a", "b"], "n": 2, "logprobs": 2}).json()
        assert [c["index"] for c in data["choices"]] == [0, 1, 2, 3]
        assert data["object"] == "text_completion"
        logprobs = data["choices"][3]["logprobs"]
        assert logprobs["tokens"][:2] == ["He", "l"] and logprobs["text_offset"] == [0, 2, 3, 7, 7]
        assert logprobs["token_logprobs"] == [-0.125, -0.25, -0.375, -0.5, -0.625]
        assert len(logprobs["ids"]) == 5 and logprobs["top_logprobs"][0] == {"He": -0.125, "B": -1.125}
        assert data["choices"][0]["text"] == "Hello \U0001f600!"
        assert data["usage"]["completion_tokens"] == 20
        ids = server.post("/v1/completions", {"prompt": [104, 105]}).json()
        assert ids["usage"]["prompt_tokens"] == 2
        assert len(server.post("/v1/completions", {"prompt": [[104], [105], "x"]}).json()["choices"]) == 3
        echoed = server.post("/v1/completions", {"prompt": "Say: ", "echo": True}).json()
        assert echoed["choices"][0]["text"] == "Say: Hello \U0001f600!"
        events = server.post("/v1/completions", {"prompt": "Say: ", "echo": True, "stream": True}).events()
        assert "".join(e["choices"][0]["text"] for e in events[:-1]) == "Say: Hello \U0001f600!"
        assert events[-2]["choices"][0]["finish_reason"] == "stop"


@test
def stream_equals_whole_with_logprobs():
    pieces = [b"a", b"\xf0\x9f", b"\x98", b"\x80", b"bST", b"O", b"c", b"STOP", b"d"]
    with fake(tokens=pieces) as server:
        for stop in (None, "STOP", "bST", ["O", "c"], "zzz", "\U0001f600", "a"):
            fields = {"logprobs": True, "top_logprobs": 3, "stop": stop}
            whole = server.chat(**fields).json()
            events = server.chat(stream=True, stream_options={"include_usage": True}, **fields).events()
            choice = whole["choices"][0]
            assert joined(events) == choice["message"]["content"], stop
            parts = [c["logprobs"]["content"] for e in events[:-1] for c in e["choices"] if c["logprobs"]]
            assert sum(parts, []) == choice["logprobs"]["content"], stop
            assert whole["usage"]["completion_tokens"] == len(choice["logprobs"]["content"])
            assert events[-2]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
            text = b"".join(bytes(entry["bytes"]) for entry in choice["logprobs"]["content"])
            content = choice["message"]["content"].encode()
            assert text.startswith(content)
            starts = len(text) - len(choice["logprobs"]["content"][-1]["bytes"]) if text else -1
            assert starts < len(content), f"{stop}: a token behind the cut was counted"


@test
def stop_string_ends_one_branch():
    pieces = [b"a"] * 10 + [b"X"] + [b"b"] * 100
    for stream in (False, True):
        with fake(tokens=pieces, skew=11, delay_us=2000) as server:
            reply = server.chat(n=2, stop="X", stream=stream)
            if stream:
                texts = ["".join(c["delta"].get("content", "") for e in reply.events()[:-1] for c in e["choices"]
                                 if c["index"] == i) for i in range(2)]
            else:
                texts = [choice["message"]["content"] for choice in reply.json()["choices"]]
            assert texts == ["a" * 10, "b" * 100], texts
            n = server.metric("espalier_generation_tokens_total")
            assert 111 <= n < 150, f"the engine generated {n} tokens: the stopped branch went on"
            server.wait_metric('espalier_requests_total{finish="stop"}', 1)
            assert server.metric("espalier_kv_pages_leased") == 0


@test
def equal_floats_have_equal_digits():
    with fake() as server:
        for entry in server.chat(logprobs=True, top_logprobs=1).json()["choices"][0]["logprobs"]["content"]:
            assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] and entry["id"] == entry["top_logprobs"][0][
                "id"]


@test
def warnings_and_strict_fields():
    with fake() as server:
        data = server.chat(foo=1, user="u", metadata={"a": "b"}, store=False).json()
        assert [(w["code"], w["param"]) for w in data["warnings"]] == [("unknown_field", "foo")]
        events = server.chat(foo=1, stream=True).events()
        assert [w["param"] for w in events[0]["warnings"]] == ["foo"]
        assert all("warnings" not in e for e in events[1:-1])
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "format": "odd"}}}
        assert server.chat(response_format=schema).json()["warnings"][0]["code"] == "unknown_format"
    with fake("strict-fields", "1") as server:
        reply = server.chat(foo=1)
        assert reply.status == 400 and reply.error()["param"] == "foo"


@test
def schema_text_is_verbatim():
    source = '{ "b":{"minimum":1.0,"maximum":1e2}, "a" : {"enum":["\\u00e9", 10000000000.50]},"type":"object" }'
    bodies = [
        '{"messages":[{"role":"user","content":"{\\"response_format\\":1}"}],"response_format":{"json_schema":'
        '{"schema":%s,"name":"n"},"type":"json_schema"}}',
        '{"structured_outputs" : { "json":%s } ,"messages":[{"role":"user","content":"x"}]}',
    ]
    with fake(text="", echo_grammar=True) as server:
        for body in bodies:
            reply = server.post(CHAT, body % source)
            assert reply.status == 200, reply.body
            assert reply.json()["choices"][0]["message"]["content"] == source
        reply = server.chat(choice=["a", "b\u00e9"])
        assert json.loads(reply.json()["choices"][0]["message"]["content"]) == ["a", "b\u00e9"]


# ---- Refusals ----

BAD_FIELDS = [
    ("temperature", 2.1),
    ("temperature", -0.1),
    ("temperature", "1"),
    ("temperature", True),
    ("top_p", 1.01),
    ("top_p", -1),
    ("min_p", 2),
    ("presence_penalty", 2.5),
    ("frequency_penalty", -2.5),
    ("repetition_penalty", 0),
    ("top_k", -2),
    ("top_k", 1.5),
    ("n", 0),
    ("n", 65),
    ("n", "1"),
    ("max_tokens", 0),
    ("max_tokens", "5"),
    ("max_completion_tokens", 0),
    ("seed", 1.5),
    ("seed", "1"),
    ("stop", ""),
    ("stop", [""]),
    ("stop", 5),
    ("stop", [["x"]]),
    ("stop", ["x"] * 17),
    ("stop", "a\0b"),
    ("stop", "x" * 513),
    ("logit_bias", {
        "99999999": 1
    }),
    ("logit_bias", {
        "x": 1
    }),
    ("logit_bias", {
        "1": 101
    }),
    ("logit_bias", {
        "1": "2"
    }),
    ("logit_bias", {
        "-1": 2
    }),
    ("logit_bias", [1]),
    ("top_logprobs", 2),
    ("logprobs", 1),
    ("stream", "yes"),
    ("stream_options", {
        "include_usage": True
    }),
    ("tools", [{
        "type": "function",
        "function": {
            "name": "f g"
        }
    }]),
    ("tools", "x"),
    ("tool_choice", "required"),
    ("tool_choice", {}),
    ("store", True),
    ("modalities", ["text", "audio"]),
    ("chat_template", "x"),
    ("response_format", "json"),
    ("response_format", {
        "type": "sound"
    }),
    ("response_format", {
        "type": "json_schema"
    }),
    ("response_format", {}),
    ("guided_choice", []),
    ("guided_json", {}),
    ("regex", 5),
    ("regex", ""),
    ("regex", "[0-9]\0"),
    ("choice", []),
    ("choice", "a"),
    ("choice", [1]),
    ("grammar", "root ::= ("),
    ("grammar", ""),
    ("lark", "start: ("),
    ("structured_outputs", 1),
    ("structured_outputs", {
        "odd": 1
    }),
    ("structured_outputs", {
        "regex": 1
    }),
    ("cache_salt", ""),
    ("cache_salt", 5),
    ("prediction", {
        "type": "content",
        "content": "x"
    }),
    ("session_id", ""),
    ("model", 5),
]


@test
def refused_fields():
    with fake() as server:
        for name, value in BAD_FIELDS:
            reply = server.chat(**{name: value})
            assert reply.status == 400, (name, value, reply.status, reply.body)
            param = reply.error()["param"]
            assert param is not None and re.split(r"[.[]", param)[0] == name, (name, value, param)
            assert server.chat(**{name: None}).status == 200, name
        for fields, param in [
            ({
                "logprobs": True,
                "top_logprobs": 21
            }, "top_logprobs"),
            ({
                "regex": "a",
                "choice": ["b"]
            }, "choice"),
            ({
                "max_tokens": 3,
                "max_completion_tokens": 4
            }, "max_tokens"),
            ({
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "x"
                    }
                }
            }, "response_format.json_schema.schema"),
            ({
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "schema": {
                            "unsupported": 1
                        }
                    }
                }
            }, "response_format.json_schema.schema/unsupported"),
            ({
                "structured_outputs": {
                    "json": {
                        "unsupported": 1
                    }
                }
            }, "structured_outputs.json/unsupported"),
        ]:
            reply = server.chat(**fields)
            assert reply.status == 400 and reply.error()["param"] == param, (fields, reply.body)
        for body, param in [
            ({
                "prompt": [-1]
            }, "prompt"),
            ({
                "prompt": [99999999]
            }, "prompt"),
            ({
                "prompt": []
            }, "prompt"),
            ({}, "prompt"),
            ({
                "prompt": {}
            }, "prompt"),
            ({
                "prompt": [[]]
            }, "prompt"),
            ({
                "prompt": [True]
            }, "prompt"),
            ({
                "prompt": ["a", 5]
            }, "prompt"),
            ({
                "prompt": [1, "a"]
            }, "prompt"),
            ({
                "prompt": "x",
                "logprobs": 21
            }, "logprobs"),
            ({
                "prompt": "x",
                "suffix": "y"
            }, "suffix"),
            ({
                "prompt": "x",
                "best_of": 3
            }, "best_of"),
            ({
                "prompt": "x",
                "echo": True,
                "logprobs": 1
            }, "echo"),
            ({
                "prompt": ["x"] * 100,
                "n": 3
            }, "prompt"),
        ]:
            reply = server.post("/v1/completions", body)
            assert reply.status == 400 and reply.error()["param"] == param, (body, reply.body)


@test
def accepted_fields():
    with fake() as server:
        for fields in [
            {
                "tools": []
            },
            {
                "tool_choice": "none"
            },
            {
                "tool_choice": "auto"
            },
            {
                "functions": []
            },
            {
                "parallel_tool_calls": True
            },
            {
                "max_tokens": 3,
                "max_completion_tokens": 3
            },
            {
                "max_tokens": 10**12
            },
            {
                "seed": -5
            },
            {
                "top_k": -1
            },
            {
                "temperature": 0
            },
            {
                "temperature": 2
            },
            {
                "n": 64
            },
            {
                "stop": ["x"] * 16
            },
            {
                "logit_bias": {}
            },
            {
                "logit_bias": {
                    "5": -100,
                    "6": 100.0
                }
            },
            {
                "response_format": {
                    "type": "text"
                }
            },
            {
                "response_format": {
                    "type": "json_object"
                }
            },
            {
                "modalities": ["text"]
            },
            {
                "service_tier": "auto"
            },
            {
                "stream_options": None
            },
            {
                "structured_outputs": {}
            },
            {
                "structured_outputs": {
                    "regex": "a"
                }
            },
            {
                "structured_outputs": {
                    "json": "{\"type\":\"string\"}"
                }
            },
            {
                "prompt_cache_key": "k"
            },
            {
                "max_tokens": 4.0
            },
        ]:
            reply = server.chat(**fields)
            assert reply.status == 200, (fields, reply.body)
            assert "warnings" not in reply.json(), (fields, reply.body)


BAD_BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\"x\"",
    b"{\"messages\":[}",
    b"{\"a\":1,\"a\":2}",
    b"{\"messages\":\"\xff\xfe\"}",
    b"\x00",
    b"{\"seed\":99999999999999999999}",
    b"{\"temperature\":1e999}",
    b"{'a':1}",
    b"{\"a\":\"\\ud800\"}",
    b"{\"a\":NaN}",
    b"[" * 100000,
    b"{\"a\":" * 1000 + b"1" + b"}" * 1000,
    b"{\"a\":[" + b"1," * 1100000 + b"1]}",
    b"\xef\xbb\xbf{}",
    b"{\"a\":\"\xc0\x80\"}",
    b"{\"a\":\"\xed\xa0\x80\"}",
    b"{} {}",
]


@test
def malformed_bodies():
    with fake() as server:
        for body in BAD_BODIES:
            for path in (CHAT, "/v1/completions", "/tokenize", "/detokenize", "/apply-template", "/v1/schema/check"):
                reply = server.post(path, body)
                assert reply.status == 400, (path, body[:60], reply.status, reply.body[:200])
                reply.error()
        assert server.chat().status == 200


@test
def routes_and_methods():
    with fake("alias", "my model") as server:
        for method, path, status in [
            ("GET", "/nope", 404),
            ("POST", "/", 404),
            ("GET", CHAT, 405),
            ("DELETE", CHAT, 405),
            ("PUT", "/v1/cache", 405),
            ("POST", "/health", 405),
            ("POST", "/v1/models", 405),
            ("GET", "/v1/models/nope", 404),
            ("GET", "/v1/embeddings", 405),
            ("POST", "/v1/nothing", 404),
            ("GET", "/" + "x" * 5000, 404),
            ("PATCH", "/health", 405),
            ("GET", "/v1/models/", 404),
        ]:
            reply = server.request(method, path)
            assert reply.status == status, (method, path, reply.status)
            reply.error()
            if status == 405:
                assert reply.headers["allow"], path
        assert server.get("/v1/models").json()["data"][0]["id"] == "my model"
        assert server.get("/v1/models/my%20model").json()["object"] == "model"
        assert server.chat(model="another").json()["model"] == "my model"
        head = server.request("HEAD", "/health")
        assert head.status == 200 and head.body == b""
        assert server.get("/v1/cache?limit=5").json()["nodes"] == []
        server.chat("x" * 100)
        assert server.request("DELETE", "/v1/cache").json()["flushed_pages"] > 0
        assert server.request("DELETE", "/v1/cache").json() == {"flushed_pages": 0}
    with fake("strict-model", "1", "alias", "m1") as server:
        reply = server.chat(model="m2")
        assert reply.status == 404 and reply.error()["code"] == "model_not_found"
        assert server.chat(model="m1").status == 200


@test
def text_routes():
    with fake() as server:
        data = server.post("/tokenize", {"text": "a\u00e9<|im_end|>", "special": True}).json()
        assert data["ids"] == [97, 0xC3, 0xA9, 256] == data["tokens"] and data["count"] == 4
        assert server.post("/tokenize", {"content": "<|im_end|>"}).json()["count"] == 10
        assert server.post("/detokenize", {"tokens": [97, 0xC3, 0xA9]}).json() == {"text": "a\u00e9"}
        assert server.post("/detokenize", {"ids": [0xC3]}).json() == {"text": "\ufffd"}
        assert server.post("/tokenize", {"text": ""}).json()["count"] == 0
        assert server.post("/detokenize", {"ids": []}).json() == {"text": ""}
        for path, body in [("/detokenize", {
                "tokens": [-1]
        }), ("/detokenize", {
                "tokens": "x"
        }), ("/detokenize", {
                "ids": [1.5]
        }), ("/detokenize", {
                "ids": [10**9]
        }), ("/tokenize", {}), ("/tokenize", {
                "text": 5
        }), ("/tokenize", {
                "text": "a",
                "special": 1
        }), ("/v1/schema/check", {}), ("/v1/schema/check", {
                "regex": 5
        })]:
            assert server.post(path, body).status == 400, (path, body)
        assert server.post("/v1/schema/check", {"schema": {"type": "string"}}).json()["compile"] == "ok"
        refused = server.post("/v1/schema/check", {"schema": {"unsupported": 1}})
        assert refused.status == 200 and refused.json()["error"]["pointer"] == "/unsupported"
        rendered = server.post("/apply-template", {"messages": [{"role": "user", "content": "hi"}]}).json()
        assert "hi" in rendered["prompt"] and rendered["ids"]


@test
def context_length():
    with fake(n_ctx=100) as server:
        for stream in (False, True):
            reply = server.chat("x" * 500, stream=stream)
            assert reply.status == 400 and reply.headers["content-type"] == "application/json"
            error = reply.error()
            assert error["code"] == "context_length_exceeded" and "100" in error["message"], error
        error = server.chat("x" * 15_000_000).error()  # more than is rendered at all
        assert error["code"] == "context_length_exceeded" and "100" in error["message"], error
        assert server.post("/tokenize", {"text": "x" * 15_900_000}).status in (200, 400)
        server.script(text="y", repeat=True)
        cut = server.chat(max_tokens=10**9).json()
        assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["total_tokens"] == 100


if __name__ == "__main__":
    run_tests()
