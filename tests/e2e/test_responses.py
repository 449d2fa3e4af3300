"""The Responses API over the scripted engine: shapes, events, stored answers, and the official client.

usage: test_responses.py PATH_OF_ESPALIER_FAKE [test …]
"""
import json
import sys
import time

import openai

from kit import PATIENCE, Server, numbered_events, run_tests, test

FAKE = sys.argv[1]
PATH = "/v1/responses"


def fake(*options, **script):
    script = {"text": "Hello world", **script} if "tokens" not in script else script
    return Server([FAKE, *options], script=script)


def ask(server, given="hi", **fields):
    return server.post(PATH, {"model": "m", "input": given, **fields})


def client_of(server, **rest):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", **rest)


def text_of(response):
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


# ---- Shapes ----


@test
def whole():
    with fake() as server:
        data = ask(server, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5).json()
        assert data["id"].startswith("resp_") and data["object"] == "response" and data["status"] == "completed"
        assert data["error"] is None and data["incomplete_details"] is None and data["instructions"] == "Be brief."
        assert data["metadata"] == {"a": "b"} and data["temperature"] == 0.5 and data["top_p"] == 1.0
        assert data["tools"] == [] and data["tool_choice"] == "auto" and data["parallel_tool_calls"] is True
        assert data["store"] is True and data["previous_response_id"] is None and data["truncation"] == "disabled"
        assert data["text"] == {"format": {"type": "text"}} and data["max_output_tokens"] is None
        [item] = data["output"]
        assert item == {
            "id": item["id"], "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "Hello world", "annotations": [], "logprobs": []}]
        }, item
        assert item["id"].startswith("msg_")
        n = data["usage"]["input_tokens"]
        assert data["usage"] == {
            "input_tokens": n, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 11, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": n + 11
        }
        assert ask(server, instructions="Be brief.").json()["usage"]["input_tokens_details"]["cached_tokens"] == n - 1
        cut = ask(server, max_output_tokens=3).json()
        assert cut["status"] == "incomplete" and cut["incomplete_details"] == {"reason": "max_output_tokens"}
        assert text_of(cut) == "Hel" and cut["output"][0]["status"] == "incomplete"
        counted = server.post(PATH + "/input_tokens", {"input": "hi", "instructions": "Be brief."}).json()
        assert counted == {"object": "response.input_tokens", "input_tokens": n}


@test
def stream():
    with fake() as server:
        events = numbered_events(ask(server, stream=True))
        assert [e["type"][9:] for e in events] == [
            "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * 11,
            "output_text.done", "content_part.done", "output_item.done", "completed"
        ]
        first, last = events[0]["response"], events[-1]["response"]
        assert events[1]["response"] == first and first["status"] == "in_progress" and first["output"] == []
        assert first["usage"] is None and first["id"] == last["id"]
        assert events[2]["item"]["status"] == "in_progress" and events[2]["item"]["content"] == []
        ids = {e["item_id"] for e in events[3:-2]} | {events[2]["item"]["id"], events[-2]["item"]["id"]}
        assert len(ids) == 1 and {e["output_index"] for e in events[2:-1]} == {0}
        assert {e["content_index"] for e in events[3:-2]} == {0}
        assert "".join(e["delta"] for e in events[4:-4]) == "Hello world" == events[-4]["text"]
        assert events[3]["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        assert events[-3]["part"]["text"] == "Hello world"
        assert events[-2]["item"] == last["output"][0] and last["status"] == "completed"
        assert last["usage"]["output_tokens"] == 11
        whole_keys = set(ask(server).json())
        assert whole_keys == set(last), whole_keys ^ set(last)
        cut = numbered_events(ask(server, stream=True, max_output_tokens=3))
        assert cut[-1]["type"] == "response.incomplete" and cut[-2]["item"]["status"] == "incomplete"
        assert cut[-1]["response"]["output"] == [cut[-2]["item"]]


@test
def logprobs():
    with fake() as server:
        fields = {"include": ["message.output_text.logprobs", "reasoning.encrypted_content"], "top_logprobs": 2}
        whole = ask(server, **fields).json()["output"][0]["content"][0]["logprobs"]
        assert "".join(entry["token"] for entry in whole) == "Hello world" and len(whole[0]["top_logprobs"]) == 2
        events = numbered_events(ask(server, stream=True, **fields))
        assert sum((e["logprobs"] for e in events if e["type"].endswith("text.delta")), []) == whole
        assert ask(server, top_logprobs=2).status == 400


@test
def errors_in_streams():
    with fake(fail_after=3) as server:
        events = numbered_events(ask(server, stream=True))
        failed = events[-1]
        assert failed["type"] == "response.failed" and failed["response"]["status"] == "failed", failed
        assert failed["response"]["error"]["code"] == "server_error"
        assert ask(server).status == 500


# ---- Requests ----


@test
def same_prompt_as_chat():
    """What items say is the prompt of the chat request that says the same."""
    user = {"role": "user", "content": "hi"}
    pairs = [
        ({"input": "hi"}, [user]),
        ({"input": "hi", "instructions": "S"}, [{"role": "system", "content": "S"}, user]),
        ({"input": [user]}, [user]),
        ({"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "h"},
                                                                    {"type": "input_text", "text": "i"}]}]}, [user]),
        ({"input": [{"role": "developer", "content": "S"}, user, {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "a", "annotations": []}, {"type": "output_text", "text": "b"}]
        }, {"role": "user", "content": "c"}]},
         [{"role": "system", "content": "S"}, user, {"role": "assistant", "content": "ab"},
          {"role": "user", "content": "c"}]),
        ({"input": [user, {"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"role": "user",
                                                                                           "content": "b"}]},
         [{"role": "user", "content": "hi\n\nb"}]),
    ]
    with fake() as server:
        for fields, messages in pairs:
            want = server.post("/apply-template", {"messages": messages}).json()
            got = server.post(PATH + "/input_tokens", fields).json()
            assert got["input_tokens"] == len(want["ids"]), (fields, got)
            n = server.post("/v1/chat/completions", {"messages": messages}).json()["usage"]["prompt_tokens"]
            usage = server.post(PATH, fields).json()["usage"]
            assert usage["input_tokens"] == n and usage["input_tokens_details"]["cached_tokens"] == n - 1, fields


@test
def schema_is_verbatim():
    schema = '{"type":"object","properties":{"b":{"multipleOf":0.1},"a":{"maximum":1e2,"const":1.0}}}'
    with fake(echo_grammar=True) as server:
        body = '{"input":"x","text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":%s}}}' % schema
        data = server.post(PATH, body).json()
        assert text_of(data) == schema, data
        assert data["text"]["format"]["name"] == "n"


@test
def refusals():
    with fake(n_ctx=200) as server:
        for fields, param in [
            ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"),
            ({"input": [3]}, "input[0].type"), ({"input": [{"type": "nothing"}]}, "input[0].type"),
            ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
            ({"input": [{"type": "item_reference", "id": "msg_" + "0" * 90 + "_1"}]}, "input[0].id"),
            ({"input": [{"id": "msg_0123_0"}]}, "input[0].id"),
            ({"input": [{"type": "item_reference"}]}, "input[0].id"),
            ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
            ({"input": [{"role": "user"}]}, "input[0].content"),
            ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
             "input[0].content"),
            ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
            ({"input": [{"type": "function_call_output", "output": "f"}]}, "input[0].call_id"),
            ({"instructions": 3}, "instructions"), ({"previous_response_id": "resp_no"}, "previous_response_id"),
            ({"previous_response_id": 3}, "previous_response_id"), ({"previous_response_id": "x" * 99},
                                                                    "previous_response_id"),
            ({"store": "yes"}, "store"), ({"metadata": "x"}, "metadata"), ({"background": True}, "background"),
            ({"conversation": "c"}, "conversation"), ({"prompt": {"id": "p"}}, "prompt"),
            ({"temperature": 3}, "temperature"), ({"max_output_tokens": 0}, None), ({"text": "x"}, "text"),
            ({"text": {"format": {"type": "xml"}}}, "text.format"),
            ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format"),
            ({"tools": 3}, "tools"), ({"tools": [{"name": "x"}]}, "tools[0].type"),
            ({"tools": [{"type": "function"}]}, "tools[0].name"), ({"tool_choice": {"type": "web_search"}},
                                                                   "tool_choice"),
            ({"reasoning": "high"}, "reasoning"), ({"include": "x"}, "include"), ({"user": 3}, "user"),
            ({"input": "x" * 500}, None)
        ]:
            reply = server.post(PATH, {"input": "hi", **fields})
            assert reply.status == 400, (fields, reply.body)
            error = reply.error()
            assert param is None or error["param"] == param, (fields, error)


@test
def warnings():
    with fake() as server:
        fields = {"tools": [{"type": "web_search"}, {"type": "namespace", "name": "n", "tools": []}],
                  "moderation": {}, "new_thing": 1, "reasoning": {"effort": "high", "summary": "auto"},
                  "prompt_cache_key": "k", "service_tier": "auto"}
        params = {"tools[0].type", "tools[1].type", "moderation", "new_thing"}
        assert {w["param"] for w in ask(server, **fields).json()["warnings"]} == params
        events = numbered_events(ask(server, stream=True, **fields))
        assert {w["param"] for w in events[0]["response"]["warnings"]} == params


# ---- Stored answers ----


@test
def goes_on_from_stored_answers():
    with fake() as server:
        one = ask(server, "a", instructions="S").json()
        two = ask(server, "b", previous_response_id=one["id"], stream=True)
        two = numbered_events(two)[-1]["response"]
        assert two["previous_response_id"] == one["id"]
        three = ask(server, [{"role": "user", "content": "c"}], previous_response_id=two["id"]).json()
        said = {"role": "assistant", "content": "Hello world"}
        messages = [{"role": "user", "content": "a"}, said, {"role": "user", "content": "b"}, said,
                    {"role": "user", "content": "c"}]
        want = server.post("/apply-template", {"messages": messages}).json()
        assert three["usage"]["input_tokens"] == len(want["ids"]), "instructions are not carried over, items are"
        assert server.get(f"{PATH}/{one['id']}").json() == one
        assert server.get(f"{PATH}/{two['id']}").json() == two
        items = server.get(f"{PATH}/{one['id']}/input_items").json()
        assert items["object"] == "list" and items["data"][0]["content"][0] == {"type": "input_text", "text": "a"}
        user = {"role": "user", "content": "a"}
        reference = {"type": "item_reference", "id": one["output"][0]["id"]}
        by_id = {"input": [user, reference, {"role": "user", "content": "b"}]}
        by_text = {"input": [user, said, {"role": "user", "content": "b"}]}
        counts = [server.post(PATH + "/input_tokens", body).json()["input_tokens"] for body in (by_id, by_text)]
        assert counts[0] == counts[1] > 0, counts
        gone = server.request("DELETE", f"{PATH}/{one['id']}")
        assert gone.json() == {"id": one["id"], "object": "response", "deleted": True}
        for reply in (server.get(f"{PATH}/{one['id']}"), server.request("DELETE", f"{PATH}/{one['id']}"),
                      server.get(f"{PATH}/{one['id']}/input_items"), server.get(PATH + "/" + "x" * 200),
                      server.get(f"{PATH}/{two['id']}/nothing")):
            assert reply.status == 404, reply.body
        assert ask(server, "d", previous_response_id=two["id"]).error()["param"] == "previous_response_id"
        unkept = ask(server, "e", store=False).json()
        assert unkept["store"] is False and server.get(f"{PATH}/{unkept['id']}").status == 404


@test
def store_is_bounded():
    with fake() as server:
        first = ask(server, "first").json()["id"]
        used = ask(server, "goes on", previous_response_id=first).json()["id"]
        big = "x" * 4_000_000
        ids = []
        for _ in range(24):
            reply = server.post(PATH, {"input": "hi", "metadata": {"x": big}})
            ids.append(reply.json()["id"])
            assert server.get(f"{PATH}/{used}").status == 200, "what is in use stays"
        kept = [i for i in ids if server.get(f"{PATH}/{i}").status == 200]
        assert kept == ids[-len(kept):] and 10 <= len(kept) <= 16, len(kept)
        assert server.get(f"{PATH}/{first}").status == 200, "what it goes on from is in use with it"


@test
def long_chains():
    """Hundreds of answers, each going on from the one before, stay quick; the prompt is all of them."""
    with fake(text="a", n_ctx=100000) as server:
        previous, before = None, 0
        for _ in range(300):
            data = ask(server, "b", previous_response_id=previous).json()
            previous, n = data["id"], data["usage"]["input_tokens"]
            assert n > before
            before = n
        begin = time.time()
        assert ask(server, "b", previous_response_id=previous).status == 200
        assert time.time() - begin < 2 * PATIENCE


# ---- The official client ----


@test
def client_create_stream_and_store():
    with fake() as server:
        client = client_of(server)
        response = client.responses.create(model="m", input="hi", instructions="S")
        assert response.output_text == "Hello world" and response.status == "completed"
        assert response.usage.input_tokens_details.cached_tokens == 0
        with client.responses.stream(model="m", input="hi", previous_response_id=response.id) as stream:
            deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        assert "".join(deltas) == "Hello world" == final.output_text and final.previous_response_id == response.id
        assert client.responses.retrieve(response.id).output_text == "Hello world"
        assert client.responses.input_items.list(response.id).data[0].content[0].text == "hi"
        client.responses.delete(response.id)
        try:
            client.responses.retrieve(response.id)
            raise AssertionError("still there")
        except openai.NotFoundError:
            pass


@test
def client_parse():
    import pydantic

    class Ticket(pydantic.BaseModel):
        category: str
        priority: int

    text = json.dumps({"category": "billing", "priority": 2})
    with fake(text=text) as server:
        client = client_of(server)
        parsed = client.responses.parse(model="m", input="x", text_format=Ticket)
        assert parsed.output_parsed == Ticket(category="billing", priority=2)
        with client.responses.stream(model="m", input="x", text_format=Ticket) as stream:
            assert stream.get_final_response().output_parsed.priority == 2


if __name__ == "__main__":
    run_tests()
