"""What coding agents send, in shapes of our own making: long tool loops with thinking, over the scripted engine.

usage: test_agents.py PATH_OF_ESPALIER_FAKE [test …]
"""
import json
import os
import sys
import tempfile

from kit import Server, named_events, numbered_events, run_tests, test

FAKE = sys.argv[1]
TEMPLATE = r"""
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'system' and tools %}{% for tool in tools %}{{ tool | tojson }}{{ '\n' }}{% endfor %}{% endif %}
{%- if message.reasoning_content %}{{ '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '\n<tool_call>\n' + ({"name": call.function.name, "arguments": call.function.arguments} | tojson) }}
{{- '\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
BASH = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {
    "command": {"type": "string", "description": "The command to run"}, "timeout": {"type": "number"},
    "run_in_background": {"type": "boolean"}}, "required": ["command"], "additionalProperties": False}
PLAN = {"type": "object", "properties": {"plan": {"type": "array", "items": {
    "type": "object", "properties": {"step": {"type": "string"},
                                     "status": {"type": "string", "enum": ["pending", "completed"]}},
    "required": ["step", "status"], "additionalProperties": False}}}, "required": ["plan"]}


def fake(**script):
    file = tempfile.NamedTemporaryFile("w", suffix=".jinja", delete=False)
    with file:
        file.write(TEMPLATE)
    server = Server([FAKE, "chat-template", file.name], script={"n_ctx": 32768, **script})
    server.wait_for(rb"ready", 10)
    os.remove(file.name)
    return server


def says(thought, text, *calls):
    written = "".join('\n<tool_call>\n%s\n</tool_call>' % json.dumps({"name": name, "arguments": arguments})
                      for name, arguments in calls)
    return f"<think>\n{thought}\n</think>\n\n{text}{written}"


# ---- The Messages API ----

CODE_HEADERS = {"anthropic-version": "2023-06-01", "x-app": "cli", "user-agent": "agent-cli/2.0 (external, cli)",
                "anthropic-beta": "interleaved-thinking-2025-05-14,context-management-2025-06-27",
                "x-stainless-lang": "js", "x-stainless-retry-count": "0", "authorization": "Bearer none"}
MARK = {"cache_control": {"type": "ephemeral"}}


def code_body(messages, turn):
    """One request of a coding agent of the Messages API; the billing line is another one each turn."""
    return {
        "model": "m", "max_tokens": 32000, "stream": True, "temperature": 1,
        "metadata": {"user_id": "user_abc_account__session_11111111-2222"},
        "thinking": {"type": "enabled", "budget_tokens": 31999}, "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "system": [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.0; cch={turn:05};"},
                   {"type": "text", "text": "You are a coding agent.", **MARK},
                   {"type": "text", "text": "\n# Rules\n" + "Be careful. " * 100, **MARK}],
        "tools": [{"name": "Bash", "description": "Runs a command.", "input_schema": BASH},
                  {"name": "TodoWrite", "description": "Keeps a list.", "input_schema": PLAN},
                  {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        "messages": messages,
    }


def blocks_of(events):
    """The content as a client puts it together; indices and order are checked."""
    blocks, open_index = [], None
    for event in events:
        if event["type"] == "content_block_start":
            assert open_index is None and event["index"] == len(blocks), "blocks are not one after the other"
            open_index = event["index"]
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            assert event["index"] == open_index
            delta = event["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "json"}[delta["type"]]
            blocks[-1][key] += delta.get("text", delta.get("thinking", delta.get("partial_json")))
        elif event["type"] == "content_block_stop":
            assert event["index"] == open_index
            open_index = None
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text or "{}")
    assert open_index is None
    return blocks


@test
def a_coding_agent_of_the_messages_api():
    messages = [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>Today</system-reminder>\n"},
                                             {"type": "text", "text": "Fix the bug", **MARK}]}]
    with fake() as server:
        before = 0
        for turn in range(6):
            command = {"command": f"ls -l {turn}", "timeout": 1.5}
            server.script(text=says(f"Step {turn}.", "I look.", ("Bash", command), ("TodoWrite", {"plan": []})))
            reply = server.post("/v1/messages?beta=true", code_body(messages, turn), headers=CODE_HEADERS)
            assert reply.status == 200, reply.body
            events = named_events(reply)
            blocks = blocks_of(events)
            assert [b["type"] for b in blocks] == ["thinking", "text", "tool_use", "tool_use"], blocks
            assert blocks[0]["thinking"] == f"Step {turn}." and blocks[2]["input"] == command
            assert events[-2]["delta"]["stop_reason"] == "tool_use"
            usage = events[-2]["usage"]
            total = sum(usage[k] for k in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
            assert usage["cache_read_input_tokens"] >= before, "the prompt of the turn before is not a beginning"
            counted = server.post("/v1/messages/count_tokens?beta=true", {
                k: v for k, v in code_body(messages, turn).items() if k in ("model", "messages", "system", "tools")})
            assert counted.json()["input_tokens"] == total, (counted.json(), total)
            before = total
            results = [{"type": "tool_result", "tool_use_id": b["id"], "content": "total 0", "is_error": turn == 3}
                       for b in blocks[2:]]
            results[-1].update(MARK)
            messages = [*messages, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
            for message in messages[:-1]:  # marks move to the newest message
                for block in message["content"]:
                    block.pop("cache_control", None)
        server.script(text=says("Done.", "It is fixed."))
        last = named_events(server.post("/v1/messages?beta=true", code_body(messages, 9), headers=CODE_HEADERS))
        assert last[-2]["delta"]["stop_reason"] == "end_turn" and blocks_of(last)[1]["text"] == "It is fixed."


# ---- The Responses API ----


def codex_body(items):
    """One request of a coding agent of the Responses API, which keeps its own history."""
    message = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions/>"}]}
    return {
        "model": "m", "instructions": "You are a coding agent. " * 50, "input": [message, *items], "stream": True,
        "tools": [{"type": "function", "name": "exec_command", "description": "Runs.", "strict": False,
                   "parameters": {k: v for k, v in BASH.items() if k != "$schema"}},
                  {"type": "function", "name": "update_plan", "strict": False, "parameters": PLAN},
                  {"type": "custom", "name": "apply_patch", "description": "Edits.",
                   "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
                  {"type": "web_search", "external_web_access": False}, {"type": "image_generation"},
                  {"type": "namespace", "name": "mcp", "tools": []}],
        "tool_choice": "auto", "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "11111111-2222",
        "text": {"verbosity": "medium"}, "service_tier": None,
    }


@test
def a_coding_agent_of_the_responses_api():
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix the bug"}]}]
    headers = {"openai-beta": "responses=experimental", "originator": "agent_cli", "session_id": "1",
               "accept": "text/event-stream"}
    with fake() as server:
        before = 0
        for turn in range(6):
            command = {"command": f"ls -l {turn}", "timeout": 1.5}
            calls = ("exec_command", command), ("update_plan", {"plan": []})
            server.script(text=says(f"Step {turn}.", "I look.", *calls))
            reply = server.post("/v1/responses", codex_body(items), headers=headers)
            assert reply.status == 200, reply.body
            events = numbered_events(reply)
            done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
            assert [i["type"] for i in done] == ["reasoning", "message", "function_call", "function_call"], done
            assert [e["output_index"] for e in events if e["type"] == "response.output_item.added"] == [0, 1, 2, 3]
            response = events[-1]["response"]
            assert response["output"] == done and done[0]["content"][0]["text"] == f"Step {turn}."
            assert json.loads(done[2]["arguments"]) == command
            deltas = "".join(e["delta"] for e in events if e["type"].endswith("arguments.delta")
                             and e["item_id"] == done[2]["id"])
            assert deltas == done[2]["arguments"]
            usage = response["usage"]
            assert usage["input_tokens_details"]["cached_tokens"] >= before, "the turn before is not a beginning"
            assert usage["output_tokens_details"]["reasoning_tokens"] > 0
            before = usage["input_tokens"]
            ignored = {w["param"] for w in response["warnings"]}
            assert {"tools[2].type", "tools[3].type", "tools[4].type", "tools[5].type"} <= ignored, ignored
            items = [*items, *done, *({"type": "function_call_output", "call_id": call["call_id"], "output": "total 0"}
                                      for call in done[2:])]
        server.script(text=says("Done.", "It is fixed."))
        encrypted = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA", "content": None}
        custom = [{"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin"},
                  {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}]
        last = numbered_events(server.post("/v1/responses", codex_body([*items, encrypted, *custom]), headers=headers))
        assert last[-1]["response"]["output"][1]["content"][0]["text"] == "It is fixed."


@test
def cut_off_in_a_call():
    """A call that is cut off says so, and does not break what comes later."""
    with fake(text=says("T.", "I look.", ("Bash", {"command": "ls"}))) as server:
        n_cut = len(says("T.", "I look.")) + len('\n<tool_call>\n{"name": "Bash", "arguments": {"comm')
        tools = [{"name": "Bash", "input_schema": BASH}]
        ask = {"model": "m", "max_tokens": n_cut, "messages": [{"role": "user", "content": "x"}], "tools": tools}
        whole = server.post("/v1/messages", ask).json()
        assert whole["stop_reason"] == "max_tokens", whole
        assert all(isinstance(b["input"], dict) for b in whole["content"] if b["type"] == "tool_use")
        assert named_events(server.post("/v1/messages", {**ask, "stream": True}))[-2]["delta"]["stop_reason"] == \
            "max_tokens"
        response = server.post("/v1/responses", {"input": "x", "max_output_tokens": n_cut, "tools": [
            {"type": "function", "name": "Bash", "parameters": BASH}]}).json()
        assert response["status"] == "incomplete" and response["output"][-1]["status"] == "incomplete"
        replay = server.post("/v1/responses", {"input": [{"role": "user", "content": "x"}, *response["output"],
                                                         {"role": "user", "content": "again"}]})
        assert replay.status == 200, replay.body
        history = [*ask["messages"], {"role": "assistant", "content": whole["content"]},
                   {"role": "user", "content": "again"}]
        again = server.post("/v1/messages", {**ask, "max_tokens": 1000, "messages": history})
        assert again.status == 200, again.body


if __name__ == "__main__":
    run_tests()
