"""The Messages, Responses and embeddings APIs with the real server and a real model, through the official clients.

usage: test_apis_real.py PATH_OF_ESPALIER [test …]
"""
import json
import os
import sys
from typing import Literal

import anthropic
import openai
from pydantic import BaseModel

from kit import PATIENCE, Server, Skip, run_tests, test

PROGRAM = sys.argv[1]
MODEL = os.path.join(os.environ.get("ESPALIER_TEST_MODELS", "models"), "SmolLM2-135M-Instruct.Q4_1.gguf")
SAY = [{"role": "user", "content": "What is the capital of France?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"],
          "additionalProperties": False}


class Ticket(BaseModel):
    category: Literal["billing", "printing"]
    urgent: bool


def serve(*options):
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    return Server([PROGRAM, "serve", "-m", MODEL, "--port", "0", *options])


@test
def the_three_chat_apis_say_the_same():
    with serve() as server:
        messages = anthropic.Anthropic(base_url=server.url, api_key="none", timeout=120 * PATIENCE).messages
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=120 * PATIENCE)
        chat = client.chat.completions.create(model="m", messages=SAY, temperature=0, max_tokens=24)
        text = chat.choices[0].message.content
        greedy = {"model": "m", "max_tokens": 24, "messages": SAY, "extra_body": {"temperature": 0}}
        message = messages.create(**greedy)
        assert message.content[0].text == text and message.usage.output_tokens == chat.usage.completion_tokens
        assert message.usage.input_tokens + message.usage.cache_read_input_tokens == chat.usage.prompt_tokens
        assert message.usage.cache_read_input_tokens >= (chat.usage.prompt_tokens - 1) // 16 * 16
        with messages.stream(**greedy) as stream:
            assert "".join(stream.text_stream) == text
        answer = client.responses.create(model="m", input=SAY, temperature=0, max_output_tokens=24)
        assert answer.output_text == text and answer.usage.input_tokens == chat.usage.prompt_tokens
        events = list(client.responses.create(model="m", input=SAY, temperature=0, max_output_tokens=24, stream=True))
        assert events[-1].type == "response.incomplete" and events[-1].response.output_text == text
        counted = messages.count_tokens(model="m", messages=SAY)
        assert counted.input_tokens == chat.usage.prompt_tokens
        after = client.responses.create(model="m", input="And of Italy?", previous_response_id=answer.id, temperature=0,
                                        max_output_tokens=8)
        asked = [*SAY, {"role": "assistant", "content": text}, {"role": "user", "content": "And of Italy?"}]
        same = client.chat.completions.create(model="m", messages=asked, temperature=0, max_tokens=8)
        assert after.output_text == same.choices[0].message.content
        assert after.usage.input_tokens == same.usage.prompt_tokens


@test
def typed_answers_and_tools():
    with serve() as server:
        messages = anthropic.Anthropic(base_url=server.url, api_key="none", timeout=120 * PATIENCE).messages
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=120 * PATIENCE)
        for _ in range(3):
            parsed = messages.parse(model="m", max_tokens=200, messages=SAY, output_format=Ticket).parsed_output
            assert isinstance(parsed, Ticket)
            assert isinstance(client.responses.parse(model="m", input=SAY, text_format=Ticket).output_parsed, Ticket)
        tool = {"name": "weather", "description": "Tells the weather.", "input_schema": SCHEMA}
        called = messages.create(model="m", max_tokens=200, messages=SAY, tools=[tool], tool_choice={"type": "any"})
        use = called.content[-1]
        assert called.stop_reason == "tool_use" and use.name == "weather" and list(use.input) == ["city"], called
        flat = {"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}
        first = client.responses.create(model="m", input=SAY, tools=[flat], tool_choice="required")
        call = next(item for item in first.output if item.type == "function_call")
        assert list(json.loads(call.arguments)) == ["city"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        after = client.responses.create(model="m", input=[output], previous_response_id=first.id, tools=[flat],
                                        max_output_tokens=16)
        cached = after.usage.input_tokens_details.cached_tokens
        assert cached >= first.usage.input_tokens // 16 * 16, "the turn before is not a beginning"


@test
def embeddings_tell_likeness():
    with serve() as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=120 * PATIENCE)
        texts = ["My printer prints blank pages.", "The printer only gives empty sheets.",
                 "I was charged twice for May."]
        one, like, other = (item.embedding for item in client.embeddings.create(model="m", input=texts).data)

        def dot(a, b):
            return sum(x * y for x, y in zip(a, b, strict=True))

        assert abs(dot(one, one) - 1) < 1e-4 and dot(one, like) > dot(one, other)
        long = client.embeddings.create(model="m", input=["word " * 300, texts[0]]).data
        assert long[1].embedding == one, "what stands beside an input changed it"


if __name__ == "__main__":
    run_tests()
