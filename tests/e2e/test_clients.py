"""Official and popular client libraries, unmodified, over the scripted engine. The README's table is what passes here.

usage: test_clients.py PATH_OF_ESPALIER_FAKE [test …]

The engine says what a test scripts; a tool's own code scripts what comes after its call.
"""
import asyncio
import json
import os
import re
import sys
from importlib.metadata import version
from typing import Literal

os.environ.update(OPENAI_AGENTS_DISABLE_TRACING="1", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_LOG="ERROR",
                  LANGSMITH_TRACING="false", DO_NOT_TRACK="1")

import anthropic  # noqa: E402
import openai  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from kit import Server, run_tests, test  # noqa: E402

FAKE = sys.argv[1]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
FEATURES = ["chat", "stream", "tools", "typed answers", "Responses", "Messages", "embeddings", "errors"]
covered = {}
TICKET = {"category": "billing", "priority": 2}


class Ticket(BaseModel):
    category: Literal["billing", "printing"]
    priority: int


def covers(package, *features):
    """What a test shows, for the README."""
    assert set(features) <= set(FEATURES)
    covered.setdefault(package, set()).update(features)
    return test


def fake(*options, **script):
    return Server([FAKE, *options, "alias", "m"], script={"text": "Hello world", **script})


def call_text(name, arguments):
    """A call in the form of a template that knows no tools, as tokens: its markers in one piece."""
    return '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (name, json.dumps(arguments))


# ---- openai ----


def openai_of(server, **rest):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", **rest)


SAY = [{"role": "user", "content": "hi"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
           "additionalProperties": False}
CHAT_TOOL = {"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}}


@covers("openai", "chat", "stream")
def openai_chat_and_stream():
    with fake() as server:
        client = openai_of(server)
        answer = client.chat.completions.create(model="m", messages=SAY, logprobs=True, top_logprobs=2)
        assert answer.choices[0].message.content == "Hello world" and answer.usage.completion_tokens == 11
        assert answer.usage.prompt_tokens_details.cached_tokens == 0 and answer._request_id.startswith("req_")
        with client.chat.completions.stream(model="m", messages=SAY, stream_options={"include_usage": True}) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        assert text == "Hello world" == final.choices[0].message.content and final.usage.completion_tokens == 11
        raw = client.chat.completions.with_raw_response.create(model="m", messages=SAY)
        assert raw.headers["x-request-id"].startswith("req_")
        pieces = client.completions.create(model="m", prompt="x", stream=True)
        assert "".join(piece.choices[0].text for piece in pieces) == "Hello world"
        assert client.models.retrieve("m").id == "m" == client.models.list().data[0].id


@covers("openai", "tools")
def openai_tools():
    with fake(text="Let me look. " + call_text("weather", {"city": "Rome"})) as server:
        client = openai_of(server)
        answer = client.chat.completions.create(model="m", messages=SAY, tools=[CHAT_TOOL])
        call = answer.choices[0].message.tool_calls[0]
        assert answer.choices[0].finish_reason == "tool_calls" and call.function.name == "weather"
        assert json.loads(call.function.arguments) == {"city": "Rome"}
        with client.chat.completions.stream(model="m", messages=SAY, tools=[CHAT_TOOL]) as stream:
            events = list(stream)
            final = stream.get_final_completion().choices[0]
        done = next(event for event in events if event.type == "tool_calls.function.arguments.done")
        assert done.name == "weather" and json.loads(done.arguments) == {"city": "Rome"}
        assert final.finish_reason == "tool_calls" and len(final.message.tool_calls) == 1
        assert final.message.content.strip() == "Let me look."
        server.script(text="Sunny.")
        after = client.chat.completions.create(model="m", tools=[CHAT_TOOL], messages=[
            *SAY, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}])
        assert after.choices[0].message.content == "Sunny."
        assert client.chat.completions.create(model="m", messages=SAY, tools=[CHAT_TOOL],
                                              tool_choice="none").choices[0].message.tool_calls is None


@covers("openai", "typed answers")
def openai_parse():
    with fake(text=json.dumps(TICKET)) as server:
        client = openai_of(server)
        parsed = client.chat.completions.parse(model="m", messages=SAY, response_format=Ticket)
        assert parsed.choices[0].message.parsed == Ticket(**TICKET)
        with client.chat.completions.stream(model="m", messages=SAY, response_format=Ticket) as stream:
            assert stream.get_final_completion().choices[0].message.parsed == Ticket(**TICKET)
        try:
            client.chat.completions.parse(model="m", messages=SAY, response_format=Ticket, max_tokens=5)
            raise AssertionError("half an answer was parsed")
        except openai.LengthFinishReasonError:
            pass


@covers("openai", "Responses")
def openai_responses():
    tool = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}
    with fake(text=call_text("weather", {"city": "Rome"})) as server:
        client = openai_of(server)
        first = client.responses.create(model="m", input="hi", tools=[tool, {"type": "web_search"}])
        [call] = first.output
        assert call.type == "function_call" and json.loads(call.arguments) == {"city": "Rome"}
        with client.responses.stream(model="m", input="hi", tools=[tool]) as stream:
            names = [event.type for event in stream]
            final = stream.get_final_response()
        assert "response.function_call_arguments.done" in names and final.output[0].name == "weather"
        server.script(text="Sunny.")
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        kept = client.responses.create(model="m", previous_response_id=first.id, input=[result], tools=[tool])
        sent = client.responses.create(model="m", tools=[tool], store=False, input=[
            *SAY, *[item.model_dump(exclude_none=True) for item in first.output], result])
        assert kept.output_text == sent.output_text == "Sunny."
        assert kept.usage.input_tokens == sent.usage.input_tokens == sent.usage.input_tokens_details.cached_tokens + 1


@covers("openai", "embeddings")
def openai_embeddings():
    with fake() as server:
        data = openai_of(server).embeddings.create(model="m", input=["a", "b"]).data
        assert len(data) == 2 and abs(sum(x * x for x in data[0].embedding) - 1) < 1e-5


@covers("openai", "errors")
def openai_errors():
    with fake(n_queue=0) as server:
        try:
            openai_of(server, max_retries=2).chat.completions.create(model="m", messages=SAY)
            raise AssertionError("no error")
        except openai.RateLimitError as error:
            assert error.code == "queue_full" and error.type == "rate_limit_error"
        log = server.logged(b"completions 429", count=3)
        assert log.count(b"completions 429") == 3, "retried as often as it was told to"
    with fake(fail_after=3) as server:
        client = openai_of(server, max_retries=0)
        try:
            client.chat.completions.create(model="m", messages=SAY, temperature=7)
            raise AssertionError("no error")
        except openai.BadRequestError as error:
            assert error.param == "temperature"
        try:
            list(client.chat.completions.create(model="m", messages=SAY, stream=True))
            raise AssertionError("the stream ended well")
        except openai.APIError:
            pass


# ---- anthropic ----


def anthropic_of(server, **rest):
    return anthropic.Anthropic(base_url=server.url, api_key="none", **rest)


@covers("anthropic", "Messages", "stream", "tools")
def anthropic_tools():
    tool = {"name": "weather", "input_schema": WEATHER}
    with fake(text="I look. " + call_text("weather", {"city": "Rome"}) + "\n" + call_text("weather",
                                                                                         {"city": "Oslo"})) as server:
        client = anthropic_of(server)
        body = {"model": "m", "max_tokens": 1000, "messages": SAY, "tools": [tool]}
        message = client.messages.create(**body)
        assert message.stop_reason == "tool_use"
        assert [b.type for b in message.content] == ["text", "tool_use", "tool_use"]
        assert [b.input["city"] for b in message.content[1:]] == ["Rome", "Oslo"]
        with client.messages.stream(**body) as stream:
            events = list(stream)
            final = stream.get_final_message()
        assert [b.model_dump(exclude={"id"}) for b in final.content] == [
            b.model_dump(exclude={"id"}) for b in message.content]
        assert sum(e.type == "content_block_stop" for e in events) == 3
        server.script(text="Sunny.")
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": [{"type": "text", "text": "sunny"}]}
                   for b in message.content[1:]]
        after = client.messages.create(**{**body, "messages": [
            *SAY, {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]},
            {"role": "user", "content": results}]})
        assert after.content[0].text == "Sunny." and after.usage.cache_read_input_tokens > 0
        for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}, {"type": "none"}):
            assert client.messages.create(**body, tool_choice=choice).content
        assert client.messages.count_tokens(model="m", messages=SAY, tools=[tool]).input_tokens > 0


@covers("anthropic", "tools")
def anthropic_tool_runner():
    with fake(text=call_text("weather", {"city": "Rome"})) as server:

        @anthropic.beta_tool
        def weather(city: str) -> str:
            """Tells the weather.

            Args:
                city: where
            """
            server.script(text=f"Sunny in {city}.")
            return "sunny"

        runner = anthropic_of(server).beta.messages.tool_runner(model="m", max_tokens=1000, messages=SAY,
                                                                tools=[weather])
        assert runner.until_done().content[0].text == "Sunny in Rome."


@covers("anthropic", "errors")
def anthropic_errors():
    with fake(fail_after=3) as server:
        client = anthropic_of(server, max_retries=0)
        try:
            client.messages.create(model="m", max_tokens=10, messages=SAY, stop_sequences=[""])
            raise AssertionError("no error")
        except anthropic.BadRequestError as error:
            assert error.body["error"]["type"] == "invalid_request_error"
        try:
            with client.messages.stream(model="m", max_tokens=10, messages=SAY) as stream:
                stream.get_final_message()
            raise AssertionError("the stream ended well")
        except anthropic.APIStatusError as error:
            assert error.body["error"]["type"] == "api_error"


@covers("anthropic", "typed answers")
def anthropic_parse():
    with fake(text=json.dumps(TICKET)) as server:
        parsed = anthropic_of(server).messages.parse(model="m", max_tokens=1000, messages=SAY, output_format=Ticket)
        assert parsed.parsed_output == Ticket(**TICKET)


# ---- openai-agents ----


def agent_run(server, model, streamed):
    import agents
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def weather(city: str) -> str:
        """Tells the weather."""
        server.script(text=f"Sunny in {city}.")
        return "sunny"

    agent = agents.Agent(name="a", instructions="Be brief.", tools=[weather], model=model)

    async def go():
        if not streamed:
            return (await agents.Runner.run(agent, "hi")).final_output
        result = agents.Runner.run_streamed(agent, "hi")
        events = [event async for event in result.stream_events()]
        assert any(event.type == "raw_response_event" for event in events)
        return result.final_output

    return asyncio.run(go())


@covers("openai-agents", "chat", "Responses", "stream", "tools")
def agents_run():
    import agents
    for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
        for streamed in (False, True):
            with fake(text=call_text("weather", {"city": "Rome"})) as server:
                client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none")
                said = agent_run(server, kind(model="m", openai_client=client), streamed)
                assert said == "Sunny in Rome.", (kind, streamed, said)


@covers("openai-agents", "typed answers")
def agents_typed():
    import agents
    with fake(text=json.dumps(TICKET)) as server:
        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none")
        agent = agents.Agent(name="a", output_type=Ticket, model=agents.OpenAIResponsesModel("m", client))
        assert asyncio.run(agents.Runner.run(agent, "hi")).final_output == Ticket(**TICKET)


# ---- pydantic-ai ----


def pydantic_models(server):
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    provider = OpenAIProvider(base_url=server.url + "/v1", api_key="none")
    yield OpenAIChatModel("m", provider=provider)
    yield OpenAIResponsesModel("m", provider=provider)
    client = anthropic.AsyncAnthropic(base_url=server.url, api_key="none")
    yield AnthropicModel("m", provider=AnthropicProvider(anthropic_client=client))


@covers("pydantic-ai-slim", "chat", "stream", "tools", "Responses", "Messages")
def pydantic_ai_tools():
    from pydantic_ai import Agent
    with fake() as server:
        for model in pydantic_models(server):
            agent = Agent(model)

            @agent.tool_plain
            def weather(city: str) -> str:
                server.script(text=f"Sunny in {city}.")
                return "sunny"

            async def go():
                server.script(text=call_text("weather", {"city": "Rome"}))
                whole = await agent.run("hi")
                server.script(text=call_text("weather", {"city": "Oslo"}))
                async with agent.run_stream("hi") as stream:
                    return whole.output, "".join([piece async for piece in stream.stream_text(delta=True)])

            assert asyncio.run(go()) == ("Sunny in Rome.", "Sunny in Oslo."), model


@covers("pydantic-ai-slim", "typed answers")
def pydantic_ai_typed():
    from pydantic_ai import Agent, NativeOutput, ToolOutput
    with fake() as server:
        for model in pydantic_models(server):
            server.script(text=call_text("final_result", TICKET))
            said = asyncio.run(Agent(model, output_type=ToolOutput(Ticket)).run("hi"))
            assert said.output == Ticket(**TICKET), model
            if "Anthropic" not in type(model).__name__:  # there the library offers it for known models only
                server.script(text=json.dumps(TICKET))
                said = asyncio.run(Agent(model, output_type=NativeOutput(Ticket)).run("hi"))
                assert said.output == Ticket(**TICKET), model


# ---- instructor ----


@covers("instructor", "typed answers", "tools", "chat")
def instructor_modes():
    import instructor
    with fake() as server:
        for mode, text in [(instructor.Mode.TOOLS, call_text("Ticket", TICKET)),
                           (instructor.Mode.JSON_SCHEMA, json.dumps(TICKET)),
                           (instructor.Mode.JSON, json.dumps(TICKET))]:
            server.script(text=text)
            client = instructor.from_openai(openai_of(server), mode=mode)
            ticket = client.chat.completions.create(model="m", messages=SAY, response_model=Ticket)
            assert ticket.model_dump() == TICKET, (mode, ticket)


@covers("instructor", "stream")
def instructor_partial():
    import instructor
    with fake(text=json.dumps(TICKET)) as server:
        client = instructor.from_openai(openai_of(server), mode=instructor.Mode.JSON_SCHEMA)
        parts = list(client.chat.completions.create_partial(model="m", messages=SAY, response_model=Ticket))
        assert parts[-1].priority == 2 and len(parts) > 2


# ---- langchain-openai ----


def langchain_of(server, **rest):
    from langchain_openai import ChatOpenAI
    return ChatOpenAI(model="m", base_url=server.url + "/v1", api_key="none", **rest)


@covers("langchain-openai", "chat", "stream", "tools", "Responses")
def langchain_chat():
    with fake() as server:
        for responses in (False, True):
            server.script(text="Hello world")
            chat = langchain_of(server, use_responses_api=responses, stream_usage=True)
            answer = chat.invoke("hi")
            assert answer.text == "Hello world" and answer.usage_metadata["output_tokens"] == 11
            pieces = list(chat.stream("hi"))
            whole = pieces[0]
            for piece in pieces[1:]:
                whole += piece
            assert whole.text == "Hello world" and whole.usage_metadata["output_tokens"] == 11, whole
            server.script(text=call_text("weather", {"city": "Rome"}))
            bound = chat.bind_tools([CHAT_TOOL])
            call = bound.invoke("hi").tool_calls[0]
            assert call["name"] == "weather" and call["args"] == {"city": "Rome"}
            pieces = list(bound.stream("hi"))
            whole = pieces[0]
            for piece in pieces[1:]:
                whole += piece
            assert whole.tool_calls[0]["args"] == {"city": "Rome"}, whole


@covers("langchain-openai", "typed answers")
def langchain_typed():
    with fake() as server:
        for method, text in [("json_schema", json.dumps(TICKET)), ("function_calling", call_text("Ticket", TICKET)),
                             ("json_mode", json.dumps(TICKET))]:
            server.script(text=text)
            typed = langchain_of(server).with_structured_output(Ticket, method=method)
            assert typed.invoke("json, please") == Ticket(**TICKET), method


@covers("langchain-openai", "embeddings")
def langchain_embeddings():
    from langchain_openai import OpenAIEmbeddings
    with fake() as server:
        model = OpenAIEmbeddings(model="m", base_url=server.url + "/v1", api_key="none",
                                 check_embedding_ctx_length=False)
        assert len(model.embed_documents(["a", "b"])) == 2


# ---- litellm ----


@covers("litellm", "chat", "stream", "tools", "Messages", "embeddings")
def litellm_routes():
    import litellm
    litellm.suppress_debug_info = True
    with fake() as server:
        for model, base in (("openai/m", server.url + "/v1"), ("anthropic/m", server.url)):
            server.script(text="Hello world")
            fields = {"model": model, "api_base": base, "api_key": "none", "messages": SAY, "max_tokens": 1000}
            assert litellm.completion(**fields).choices[0].message.content == "Hello world"
            pieces = list(litellm.completion(stream=True, **fields))
            assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "Hello world"
            server.script(text=call_text("weather", {"city": "Rome"}))
            choice = litellm.completion(tools=[CHAT_TOOL], **fields).choices[0]
            assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "Rome"}
            assert choice.finish_reason == "tool_calls"
        answer = litellm.embedding(model="openai/m", input=["a"], api_base=server.url + "/v1", api_key="none",
                                   encoding_format="float")
        assert len(answer.data[0]["embedding"]) == 5


# ---- The README ----


@test
def the_table_of_the_readme():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        table = re.search(r"<!-- clients -->\n(.*?)<!-- /clients -->", file.read(), re.S)[1]
    lines = ["| client | " + " | ".join(FEATURES) + " |", "| --- |" + " --- |" * len(FEATURES)]
    for package, features in covered.items():
        cells = [" ✓ " if feature in features else "  " for feature in FEATURES]
        lines.append(f"| {package} {version(package)} |" + "|".join(cells) + "|")
    want = "\n".join(lines) + "\n"
    assert table == want, "the table of clients should be:\n" + want


if __name__ == "__main__":
    run_tests()
