"""Conversations that come back: what was generated keeps its ids, whatever a client does to its spelling.

usage: test_replay.py PATH_OF_ESPALIER_FAKE PATH_OF_ESPALIER [test …]

Ten turns with tools: each answer is a call, sent back re-spaced, with its keys in another order and its id changed.
All tokens of earlier turns must be in the next prompt, and cached, where the template itself keeps what it printed.
"""
import json
import os
import sys

FAKE, PROGRAM = sys.argv[1], sys.argv.pop(2)
import test_tools
from kit import Server, Skip, run_tests, test, tests

MODEL = os.path.join(os.environ.get("ESPALIER_TEST_MODELS", "models"), "SmolLM2-135M-Instruct.Q4_1.gguf")
tests.clear()
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Tells the weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12, "description": "c"},
                                     "days": {"type": "integer", "minimum": 1, "maximum": 9, "description": "d"}},
    "required": ["city", "days"], "additionalProperties": False}}}]
STABLE = """
Qwen-Qwen2.5-7B-Instruct Qwen3-Coder MiMo-VL ibm-granite-granite-4.0 ByteDance-Seed-OSS GLM-4.6
mistralai-Ministral-3-14B-Reasoning-2512 moonshotai-Kimi-K2 meta-llama-Llama-3.1-8B-Instruct MiniMax-M2
meetkai-functionary-medium-v3.1 vllm-template_internlm2_tool vllm-template_xlam_qwen
Qwen-Qwen3-0.6B vllm-chatml deepseek-ai-DeepSeek-V4
""".split()


def changed(message, turn):
    """The same message as another client would send it."""
    message = json.loads(json.dumps(message))
    message.pop("reasoning_content", None)
    for call in message.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(reversed(arguments.items())), indent=turn % 3 or None)
    if message["content"]:
        message["content"] = " " + message["content"] + "\n"
    return message


def converse(server, say, n_turns=10, **fields):
    """Talks; returns per turn the prompt's ids, cached tokens and what the answer's ids should be in the next one."""
    messages, turns = [{"role": "user", "content": "How is the weather?"}], []
    for turn in range(n_turns):
        text = say(turn)
        if text is not None:
            server.script(text=text, n_ctx=1000000)
        body = {"messages": messages, "tools": TOOLS, **fields}
        reply = server.post("/v1/chat/completions", body)
        assert reply.status == 200, reply.body
        answer = reply.json()
        message = answer["choices"][0]["message"]
        assert message.get("tool_calls"), (turn, answer)
        turns.append((answer["usage"], text))
        messages = messages + [changed(message, turn)]
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": f"{turn} degrees"}
                     for call in message["tool_calls"]]
    return turns, messages


def check_family(name):
    path = os.path.join(test_tools.TEMPLATES, name + ".jinja")
    if not os.path.exists(path):
        raise Skip("no shared/ data beside the checkout")
    jinja = test_tools.Jinja(name)
    close = test_tools.CLOSE.get(name, "")

    def say(turn):
        call = test_tools.call(turn % 10, "get_weather", {"city": f"Rom{turn}", "days": 1 + turn % 9})
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        if "chatml" in name:
            return '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rom%d", "days": %d}}\n</tool_call>' % (
                turn, 1 + turn % 9)
        try:
            return close + jinja.turn(message)
        except Exception:  # it wants the arguments as text
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
            return close + jinja.turn(message)

    with Server([FAKE, "chat-template", path], script={"text": "x", "n_ctx": 1000000}) as server:
        turns, messages = converse(server, say)
        prompt = server.post("/apply-template", {"messages": messages, "tools": TOOLS}).json()
        for _, text in turns:  # a byte is a token here: what was said is there as it was said
            assert text.replace(close, "").strip() in prompt["prompt"], (name, text, prompt["prompt"])
        for before, after in zip(turns, turns[1:]):
            # The scripted engine remembers prompts, not answers: the whole earlier prompt must be found.
            assert after[0]["prompt_tokens_details"]["cached_tokens"] >= 0.999 * before[0]["prompt_tokens"], (
                name, before, after, prompt["prompt"])


for family in STABLE:

    def check(name=family):
        check_family(name)

    check.__name__ = "ten_turns_with_" + family
    test(check)


@test
def ten_turns_with_a_model():
    """Every token of the earlier turns, prompts and answers, is cached in the next one: all their whole pages."""
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    with Server([PROGRAM, "serve", "-m", MODEL, "--port", "0"]) as server:
        for fields in ({"parallel_tool_calls": False}, {"stream": False}):
            turns, messages = converse(server, lambda turn: None, tool_choice="required", max_tokens=100, seed=3,
                                       temperature=0.7, **({"parallel_tool_calls": False, **fields}))
            for (before, _), (after, _) in zip(turns, turns[1:]):
                known = before["prompt_tokens"] + before["completion_tokens"]
                cached = after["prompt_tokens_details"]["cached_tokens"]
                assert cached >= (known - 1) // 16 * 16, (before, after)
            prompt = server.post("/apply-template", {"messages": messages, "tools": TOOLS}).json()["ids"]
            assert len(prompt) > known


@test
def text_answers_with_a_model():
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    with Server([PROGRAM, "serve", "-m", MODEL, "--port", "0"]) as server:
        messages, known = [{"role": "user", "content": "Tell me a story."}], 1
        for turn in range(4):
            answer = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 30, "temperature": 1.5,
                                                          "seed": turn}).json()
            usage = answer["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] >= (known - 1) // 16 * 16, (turn, known, usage)
            known = usage["prompt_tokens"] + usage["completion_tokens"]
            messages = messages + [changed(answer["choices"][0]["message"], turn),
                                   {"role": "user", "content": "Go on."}]


@test
def reasoning_stays_where_the_template_prints_it():
    """Sent back without its reasoning: within a turn of tool calls the ids are there, in older turns they are not."""
    path = os.path.join(test_tools.TEMPLATES, "Qwen-Qwen3-0.6B.jinja")
    if not os.path.exists(path):
        raise Skip("no shared/ data beside the checkout")
    call = '{"name": "get_weather", "arguments": {"city": "Rom", "days": 2}}'
    said = f"<think>\nzqhm\n</think>\n\n<tool_call>\n{call}\n</tool_call>"
    with Server([FAKE, "chat-template", path], script={"text": "x", "n_ctx": 1000000}) as server:
        turns, messages = converse(server, lambda turn: said, 2)
        prompt = server.post("/apply-template", {"messages": messages, "tools": TOOLS}).json()["prompt"]
        assert prompt.count(said) == 2, prompt
        messages.append({"role": "user", "content": "And now?"})
        prompt = server.post("/apply-template", {"messages": messages, "tools": TOOLS}).json()["prompt"]
        assert "zqhm" not in prompt and prompt.count(said.split("\n\n", 1)[1]) == 2, prompt


@test
def another_conversation_gets_nothing():
    path = os.path.join(test_tools.TEMPLATES, "Qwen-Qwen3-0.6B.jinja")
    if not os.path.exists(path):
        raise Skip("no shared/ data beside the checkout")
    with Server([FAKE, "chat-template", path], script={"text": "<think>\nsecret\n</think>\n\nYes."}) as server:
        first = [{"role": "user", "content": "a"}]
        message = server.post("/v1/chat/completions", {"messages": first}).json()["choices"][0]["message"]
        tail = [{"role": "assistant", "content": message["content"]}]
        body = {"add_generation_prompt": False}
        mine = server.post("/apply-template", {**body, "messages": first + tail}).json()["prompt"]
        assert "secret" in mine, mine
        for other in ({"messages": [{"role": "user", "content": "b"}] + tail},
                      {"messages": first + tail, "cache_salt": "x"}):
            assert "secret" not in server.post("/apply-template", {**body, **other}).json()["prompt"]


if __name__ == "__main__":
    run_tests()
