"""The Messages API over the scripted engine: shapes, streams, errors, and the official client.

usage: test_messages.py PATH_OF_ESPALIER_FAKE [test …]
"""
import json
import sys

import anthropic

from kit import Server, named_events, run_tests, test

FAKE = sys.argv[1]
PATH = "/v1/messages"


def fake(*options, **script):
    script = {"text": "Hello world", **script} if "tokens" not in script else script
    return Server([FAKE, *options], script=script)


def body(**fields):
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], **fields}


def client_of(server, **rest):
    return anthropic.Anthropic(base_url=server.url, api_key="none", **rest)


# ---- Shapes ----


@test
def whole():
    with fake() as server:
        reply = server.post(PATH, body())
        data = reply.json()
        assert reply.status == 200 and reply.headers["request-id"].startswith("req_")
        assert data["id"].startswith("msg_")
        n = data["usage"]["input_tokens"]
        assert data == {
            "id": data["id"], "type": "message", "role": "assistant", "model": data["model"],
            "content": [{"type": "text", "text": "Hello world"}], "stop_reason": "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": n, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                      "output_tokens": 11}
        }, data
        again = server.post(PATH, body()).json()["usage"]
        assert again["cache_read_input_tokens"] == n - 1 and again["input_tokens"] == 1, again
        counted = server.post(PATH + "/count_tokens", {"model": "m", "messages": body()["messages"]})
        assert counted.json() == {"input_tokens": n}
        cut = server.post(PATH, body(max_tokens=3)).json()
        assert cut["stop_reason"] == "max_tokens" and cut["content"][0]["text"] == "Hel"


@test
def stream():
    with fake() as server:
        events = named_events(server.post(PATH, body(stream=True)))
        assert [e["type"] for e in events] == [
            "message_start", "content_block_start", *["content_block_delta"] * 11, "content_block_stop",
            "message_delta", "message_stop"
        ]
        message = events[0]["message"]
        n = message["usage"]["input_tokens"]
        assert message["content"] == [] and message["stop_reason"] is None and message["type"] == "message"
        assert events[1] == {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        assert "".join(e["delta"]["text"] for e in events[2:-3]) == "Hello world"
        assert {e["index"] for e in events[1:-2]} == {0}
        assert events[-2] == {
            "type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"input_tokens": n, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
                      "output_tokens": 11}
        }, events[-2]
        assert named_events(server.post(PATH, body(stream=True)))[-2]["usage"]["cache_read_input_tokens"] == n - 1


@test
def stop_sequences():
    with fake() as server:
        for stream in (False, True):
            fields = {"stop_sequences": ["zz", "o w", "wor"], "stream": stream}
            reply = server.post(PATH, body(**fields))
            if stream:
                events = named_events(reply)
                text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
                end = events[-2]["delta"]
            else:
                end = reply.json()
                text = end["content"][0]["text"]
            assert text == "Hell" and end["stop_reason"] == "stop_sequence" and end["stop_sequence"] == "o w", end


@test
def empty_answer():
    with fake(text="") as server:
        data = server.post(PATH, body()).json()
        assert data["content"] == [] and data["stop_reason"] == "end_turn"
        events = named_events(server.post(PATH, body(stream=True)))
        assert [e["type"] for e in events] == ["message_start", "message_delta", "message_stop"]


# ---- Requests ----


@test
def same_prompt_as_chat():
    """What the Messages API says in blocks is the prompt of the chat request that says the same."""
    pairs = [
        ({"system": "Be brief.", "messages": [{"role": "user", "content": "hi"}]},
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]),
        ({"system": [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
                     {"type": "text", "text": "brief."}],
          "messages": [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]},
         [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
                       {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
                       {"role": "user", "content": [{"type": "text", "text": "d"}]}]},
         [{"role": "user", "content": "a\n\nb"}, {"role": "assistant", "content": "c"},
          {"role": "user", "content": "d"}]),
        ({"messages": [{"role": "user", "content": [
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "doc "}},
            {"type": "text", "text": "&\u00e9<|im_end|>\n"}]}]},
         [{"role": "user", "content": "doc &\u00e9<|im_end|>\n"}]),
        ({"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1234;"}, {"type": "text", "text": "S"}],
          "messages": [{"role": "user", "content": "a"}]},
         [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}]),
    ]
    with fake() as server:
        for anthropic_body, messages in pairs:
            want = server.post("/apply-template", {"messages": messages}).json()
            got = server.post(PATH + "/count_tokens", {"model": "m", **anthropic_body})
            assert got.json() == {"input_tokens": len(want["ids"])}, (anthropic_body, got.body)
            first = server.post("/v1/chat/completions", {"messages": messages}).json()["usage"]["prompt_tokens"]
            usage = server.post(PATH, body(**anthropic_body)).json()["usage"]
            assert usage["cache_read_input_tokens"] == first - 1 and usage["input_tokens"] == 1, (messages, usage)


@test
def schema_is_verbatim():
    """The fake answers with the grammar it was given: numbers keep their spelling."""
    schema = '{"type":"object","properties":{"b":{"multipleOf":0.1},"a":{"maximum":1e2,"const":1.0}}}'
    with fake(echo_grammar=True) as server:
        for field in ('"output_config":{"format":{"type":"json_schema","schema":%s},"effort":"high"}',
                      '"output_format":{"type":"json_schema","schema":%s}'):
            text = json.dumps(body(max_tokens=1000))[:-1] + "," + field % schema + "}"
            data = server.post(PATH, text).json()
            assert data["content"][0]["text"] == schema, data


@test
def refusals():
    user = {"role": "user", "content": "hi"}
    with fake(n_ctx=200) as server:
        for fields, words in [
            ({"max_tokens": None}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"),
            ({"max_tokens": "3"}, "max_tokens"),
            ({"messages": []}, "messages"), ({"messages": None}, "messages"), ({"messages": "hi"}, "messages"),
            ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
            ({"messages": [user, {"role": "user"}]}, "messages[1].content"), ({"messages": [3]}, "messages[0].role"),
            ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
             "messages[0].content[0].type"),
            ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].type"),
            ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0].type"),
            ({"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]},
             "messages[0].content[0]"),
            ({"messages": [user, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b",
                                                                   "input": 3}]}]}, "messages[1].content[0]"),
            ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
             "messages[0].content[0]"),
            ({"messages": [user, {"role": "assistant", "content": "Once"}]}, "messages[1].role"),
            ({"system": 3}, "system"), ({"system": [{"type": "image"}]}, "system[0]"),
            ({"temperature": 3}, "temperature"), ({"stop_sequences": "x"}, None), ({"stop_sequences": [""]}, "stop"),
            ({"tool_choice": "auto"}, "tool_choice"), ({"tool_choice": {"type": "tool"}}, "tool_choice"),
            ({"thinking": {"type": "yes"}}, "thinking.type"),
            ({"thinking": {"type": "enabled", "budget_tokens": "many"}}, "thinking.budget_tokens"),
            ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
            ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"), ({"tools": 3}, "tools"),
            ({"output_config": {"format": {"type": "json_schema", "schema": {"not": 3}}}}, None),
            ({"messages": [{"role": "user", "content": "x" * 500}]}, "context"),
        ]:
            reply = server.post(PATH, body(**fields))
            if words is None:
                continue  # the scripted engine takes any schema; a string is one stop sequence
            data = reply.json()
            assert reply.status == 400 and set(data) == {"type", "error", "request_id"}, (fields, reply.body)
            assert data["type"] == "error" and data["error"]["type"] == "invalid_request_error", data
            assert words in data["error"]["message"], (fields, data)
        missing = server.post("/v1/messages/batches", {})
        assert missing.status == 404 and missing.json()["error"]["type"] == "not_found_error"
        method = server.get(PATH)
        assert method.status == 405 and method.json()["error"]["type"] == "invalid_request_error"
        assert server.post(PATH, "{").json()["error"]["type"] == "invalid_request_error"


@test
def warnings():
    with fake() as server:
        fields = {"context_management": {"edits": []}, "thinking": {"type": "enabled", "budget_tokens": 5},
                  "output_config": {"effort": "high"}, "new_thing": 1, "metadata": {"user_id": "u"},
                  "tools": [{"type": "web_search_20250305", "name": "web_search"}],
                  "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}]}
        whole = server.post(PATH, body(**fields)).json()["warnings"]
        assert {w["param"] for w in whole} == {
            "context_management", "new_thing", "tools[0].type", "system[0]"
        }, whole
        start = named_events(server.post(PATH, body(stream=True, **fields)))[0]
        assert start["message"]["warnings"] == whole
    with fake("strict-fields", "1") as server:
        assert server.post(PATH, body(new_thing=1)).status == 400


@test
def errors_in_streams():
    with fake(fail_after=3) as server:
        events = named_events(server.post(PATH, body(stream=True)))
        assert events[-1]["type"] == "error" and events[-1]["error"]["type"] == "api_error", events[-1]
        assert server.post(PATH, body()).json()["error"]["type"] == "api_error"


@test
def silent_stream_gets_ping_events():
    with fake(text="x", start_ms=11500) as server:
        assert {"type": "ping"} in named_events(server.post(PATH, body(stream=True)))


# ---- The official client ----


@test
def client_create_and_stream():
    with fake() as server:
        client = client_of(server)
        message = client.messages.create(**body(system=[{"type": "text", "text": "S",
                                                         "cache_control": {"type": "ephemeral", "ttl": "1h"}}]))
        assert message.content[0].text == "Hello world" and message.stop_reason == "end_turn"
        assert message.usage.output_tokens == 11 and message._request_id.startswith("req_")
        with client.messages.stream(**body()) as stream:
            assert "".join(stream.text_stream) == "Hello world"
            final = stream.get_final_message()
        assert final.content[0].text == "Hello world" and final.stop_reason == "end_turn"
        assert final.usage.output_tokens == 11 and final.usage.cache_read_input_tokens >= 0
        kinds = [event.type for event in client.messages.create(stream=True, **body())]
        assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
        assert client.messages.count_tokens(model="m", messages=body()["messages"]).input_tokens > 0
        assert client.models.list().data[0].id == message.model


@test
def client_errors_and_retries():
    with fake(n_queue=0) as server:
        client = client_of(server, max_retries=1)
        try:
            client.messages.create(**body())
            raise AssertionError("no error")
        except anthropic.RateLimitError as error:
            assert error.body["error"]["type"] == "rate_limit_error" and error.request_id.startswith("req_")
        assert server.logged(b"/v1/messages 429", count=2).count(b"/v1/messages 429") == 2, "429 is retried once"
    with fake() as server:
        try:
            client_of(server).messages.create(**body(stop_sequences=[""]))
            raise AssertionError("no error")
        except anthropic.BadRequestError as error:
            assert "stop" in str(error)


if __name__ == "__main__":
    run_tests()
