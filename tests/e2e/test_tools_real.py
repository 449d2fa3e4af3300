"""Tools with the real server and a real model: the grammar holds whatever the model would rather say.

usage: test_tools_real.py PATH_OF_ESPALIER [test …]
"""
import json
import os
import sys
from typing import Literal

from kit import PATIENCE, Server, Skip, run_tests, strict_json, test

PROGRAM = sys.argv[1]
MODEL = os.path.join(os.environ.get("ESPALIER_TEST_MODELS", "models"), "SmolLM2-135M-Instruct.Q4_1.gguf")


def function(name, properties, required=(), **rest):
    return {"type": "function", "function": {"name": name, "description": f"Does {name}", "parameters": {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False}, **rest}}


STATE = {"enum": ["open", "closed"]}
TICKET = function("get_ticket", {"id": {"type": "string", "maxLength": 12}}, ["id"])
SET = function("set_state", {"id": {"type": "integer", "minimum": 1, "maximum": 99}, "state": STATE}, ["id", "state"])


def serve(*options):
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    return Server([PROGRAM, "serve", "-m", MODEL, "--port", "0", *options])


def say(text):
    return [{"role": "user", "content": text}]


def ask(server, **body):
    reply = server.post("/v1/chat/completions", {"messages": say("Read ticket 7"), "max_tokens": 160, **body})
    assert reply.status == 200, reply.body
    return reply.json()


def check_call(call, name=None):
    """The shape of a call, and its arguments against the tool's schema."""
    assert call["type"] == "function" and call["id"] and isinstance(call["function"]["arguments"], str), call
    arguments = strict_json(call["function"]["arguments"])
    assert name in (None, call["function"]["name"]), call
    if call["function"]["name"] == "get_ticket":
        assert list(arguments) == ["id"] and len(arguments["id"]) <= 12, call
    else:
        assert list(arguments) == ["id", "state"] and arguments["state"] in STATE["enum"], call
        assert isinstance(arguments["id"], int) and 1 <= arguments["id"] <= 99, call


def check_calls(choice, name=None):
    assert choice["finish_reason"] == "tool_calls", choice
    assert "content" in choice["message"] and choice["message"]["content"] is None, choice
    for call in choice["message"]["tool_calls"]:
        check_call(call, name)
    return choice["message"]["tool_calls"]


@test
def b101_required_call():
    with serve() as server:
        for seed in range(4):
            check_calls(ask(server, tools=[TICKET, SET], tool_choice="required", parallel_tool_calls=False,
                            seed=seed)["choices"][0])
        check_calls(ask(server, tools=[TICKET], tool_choice="required", parallel_tool_calls=False)["choices"][0])


@test
def b116_named_call():
    dashed = {"type": "function", "function": {"name": "jira-get-issue_v2", "parameters": {
        "type": "object", "properties": {}, "additionalProperties": False}}}
    with serve() as server:
        choice = ask(server, tools=[dashed, SET], parallel_tool_calls=False,
                     tool_choice={"type": "function", "function": {"name": "jira-get-issue_v2"}})["choices"][0]
        assert [c["function"]["name"] for c in choice["message"]["tool_calls"]] == ["jira-get-issue_v2"], choice
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "set_state"}}]}}
        for seed in range(3):
            check_calls(ask(server, tools=[TICKET, SET], tool_choice=allowed, parallel_tool_calls=False,
                            seed=seed)["choices"][0], "set_state")


@test
def b119_one_call_only():
    with serve() as server:
        for seed in range(3):
            answer = ask(server, messages=say("Read 7 and 8"), tools=[TICKET], tool_choice="required",
                         parallel_tool_calls=False, seed=seed)
            assert len(check_calls(answer["choices"][0])) == 1
        ask(server, tools=[TICKET], parallel_tool_calls=None, max_tokens=8)
        ask(server, parallel_tool_calls=True, max_tokens=4)


@test
def b097_calls_or_the_format():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
              "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "t", "strict": True, "schema": schema}}
    call = "<tool_call>"
    with serve() as server:
        ids = server.post("/tokenize", {"text": call}).json()["ids"]
        for bias, is_call in ((100, True), (-100, False)):
            answer = ask(server, tools=[TICKET], response_format=wanted, logit_bias={str(ids[0]): bias},
                         parallel_tool_calls=False)
            choice = answer["choices"][0]
            if is_call:
                check_calls(choice, "get_ticket")
            else:
                assert set(strict_json(choice["message"]["content"])) == {"a"}, choice
        choice = ask(server, tools=[TICKET], tool_choice="none", response_format=wanted)["choices"][0]
        assert set(strict_json(choice["message"]["content"])) == {"a"} and choice["finish_reason"] == "stop", choice


@test
def b123_every_choice_has_its_own_calls():
    with serve() as server:
        reply = server.chat("Read a ticket", stream=True, n=3, tools=[TICKET, SET], tool_choice="required", seed=5,
                            max_tokens=200, parallel_tool_calls=False)
        calls = {index: [] for index in range(3)}
        for event in reply.events()[:-1]:
            for choice in event["choices"]:
                for delta in choice["delta"].get("tool_calls", ()):
                    mine = calls[choice["index"]]
                    if delta["index"] == len(mine):
                        mine.append({**delta, "function": dict(delta["function"])})
                    else:
                        mine[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
        for index in calls:
            assert len(calls[index]) == 1, calls
            check_call(calls[index][0])


@test
def auto_after_its_trigger_is_a_call():
    """The first token of the trigger is biased: what follows must then be calls that fit the schemas."""
    with serve() as server:
        ids = server.post("/tokenize", {"text": "<tool_call>"}).json()["ids"]
        answer = ask(server, tools=[TICKET, SET], logit_bias={str(i): 12 for i in ids[:1]}, temperature=0)
        for call in answer["choices"][0]["message"].get("tool_calls", ()):
            if answer["choices"][0]["finish_reason"] == "tool_calls":
                check_call(call)
        whole = ask(server, tools=[TICKET, SET], temperature=0)
        again = ask(server, tools=[TICKET, SET], temperature=0, tool_choice="none")
        prompt = whole["usage"]["prompt_tokens"]
        assert again["usage"]["prompt_tokens"] == prompt  # the same list, whatever the choice
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == prompt - 1


@test
def b172_nothing_stays_of_a_call():
    with serve("--max-batch", "1") as server:
        plain = {"prompt": "plain <tool_call> text", "max_tokens": 16, "temperature": 0}
        before = server.post("/v1/completions", plain).json()["choices"][0]["text"]
        ask(server, tools=[TICKET], tool_choice="required", max_tokens=32)
        assert server.post("/v1/completions", plain).json()["choices"][0]["text"] == before


@test
def logprobs_of_calls():
    with serve() as server:
        fields = {"tools": [SET], "tool_choice": "required", "parallel_tool_calls": False, "logprobs": True,
                  "top_logprobs": 2, "seed": 3}
        whole = ask(server, **fields)
        entries = whole["choices"][0]["logprobs"]["content"]
        assert len(entries) == whole["usage"]["completion_tokens"] > 0
        reply = server.post("/v1/chat/completions", {"messages": say("Read ticket 7"), "max_tokens": 160, **fields,
                                                     "stream": True})
        streamed = [entry for event in reply.events()[:-1] for choice in event["choices"]
                    for entry in (choice["logprobs"] or {"content": []})["content"]]
        assert [e["id"] for e in streamed] == [e["id"] for e in entries]


@test
def client_runs_tools():
    """The official client's loop: calls are made, results go back, until the model only talks."""
    try:
        import openai
        from pydantic import BaseModel
    except ImportError:
        raise Skip("the Python package openai is not installed") from None

    class set_state(BaseModel):
        id: Literal[7, 8]
        state: Literal["open", "closed"]

    with serve() as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120 * PATIENCE)
        messages = say("Set ticket 7 to open, please.")
        tools = [openai.pydantic_function_tool(set_state)]
        for turn in range(3):
            choice = "required" if turn < 2 else "none"
            with client.chat.completions.stream(model="m", messages=messages, tools=tools, tool_choice=choice,
                                                parallel_tool_calls=False, max_tokens=120, seed=turn,
                                                extra_body={} if turn < 2 else {"choice": ["It is done."]}) as stream:
                kinds = {event.type for event in stream}
                message = stream.get_final_completion().choices[0].message
            if turn < 2:
                assert "tool_calls.function.arguments.done" in kinds, kinds
                call = message.tool_calls[0]
                assert isinstance(call.function.parsed_arguments, set_state), call
                messages += [message.model_dump(exclude_none=True, exclude={"parsed"}),
                             {"role": "tool", "tool_call_id": call.id, "content": json.dumps({"ok": True})}]
            else:
                assert not message.tool_calls and message.content, message


if __name__ == "__main__":
    run_tests()
