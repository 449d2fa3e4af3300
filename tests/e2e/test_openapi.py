"""The description that the server gives of itself: against the code's tables, and as the judge of random requests.

usage: test_openapi.py PATH_OF_ESPALIER_FAKE [test …]
"""
import copy
import json
import os
import re
import sys

import described
import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import CHAT, Server, run_tests, test

FAKE = sys.argv[1]
ROOT = described.ROOT
APIS = {
    "ESP_API_CHAT": "ChatRequest", "ESP_API_COMPLETIONS": "CompletionsRequest",
    "ESP_API_EMBEDDINGS": "EmbeddingsRequest", "ESP_API_MESSAGES": "MessagesRequest",
    "ESP_API_RESPONSES": "ResponsesRequest"
}
STATES = {  # what frontend/FIELDS.md may call a field, by its rule in the table
    "READ": {"as there", "deviates", "own"},
    "ANY": {"no effect"},
    "WARN": {"ignored, with a warning"},
    "EMPTY": {"refused", "refused unless empty"},
    "ONLY": {"some values"},
}


def fake(*options, **script):
    return Server([FAKE, *options], script={"text": "Hello world", **script})


def source(name):
    with open(os.path.join(ROOT, "frontend", name), encoding="utf-8") as file:
        return file.read()


def table():
    """{API: {field: rule}} as request_fields.c has it."""
    text = source("request_fields.c")
    bits = {name: {name} for name in APIS}
    for name, parts in re.findall(r"#define (\w+) \((ESP_API_[^)]*|[A-Z]+ \|[^)]*)\)", text):
        bits[name] = set().union(*(bits[part.strip()] for part in parts.split("|")))
    rows = re.findall(r'^    \{"(\w+)", ([\w| ]+), (\w+)[,}]', text, re.M)
    assert len(rows) == len(re.findall(r'^    \{"', text, re.M)), "a row of the table was not understood"
    result = {name: {} for name in APIS}
    for field, parts, rule in rows:
        for api in set().union(*(bits[part.strip()] for part in parts.split("|"))):
            assert field not in result[api], f"{field} stands twice for {api}"
            result[api][field] = rule
    return result


# ---- Against the code ----


@test
def the_description_is_sound():
    api = described.description()
    with fake(load_ms=500) as server:
        assert server.get("/openapi.json").json() == api
    text = json.dumps(api)
    for ref in set(re.findall(r'"\$ref": "([^"]+)"', text)):
        target = api
        for step in ref.removeprefix("#/").split("/"):
            target = target[step]
    for name, schema in api["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert text.count(f'"#/components/schemas/{name}"') > 0, f"nothing uses {name}"
    assert api["openapi"] == "3.1.0"


@test
def every_route_is_described():
    routes = set(re.findall(r'^    \{"([A-Z]+)", "([^"]+)",', source("routes.c"), re.M))
    for path, methods in described.description()["paths"].items():
        for method in methods:
            plain = re.sub(r"\{\w+\}.*", "", path)
            assert (method.upper(), plain) in routes, f"there is no route {method} {path}"
    for method, path in routes:
        tail = path + "x" if path.endswith("/") else path
        assert described.find(method, tail) is not None, f"frontend/openapi.json lacks {method} {path}"


@test
def every_field_is_described():
    schemas = described.description()["components"]["schemas"]
    for api, rows in table().items():
        have = set(schemas[APIS[api]]["properties"])
        assert have == set(rows), f"frontend/openapi.json, {APIS[api]}: {have ^ set(rows)}"


@test
def the_page_of_fields_is_complete():
    sections = re.split(r"^## ", source("FIELDS.md"), flags=re.M)[1:]
    by_api = {}
    for section in sections:
        name = section.split("\n")[0]
        by_api[name] = re.findall(r"^\| `(\w+)` \| ([^|]+?) \| ([^|]*) \|$", section, re.M)
    titles = dict(zip(APIS, ["Chat completions", "Completions", "Embeddings", "Messages", "Responses"], strict=True))
    for api, rows in table().items():
        page = by_api[titles[api]]
        names = [name for name, _, _ in page]
        assert len(set(names)) == len(names), f"{titles[api]}: a field stands twice"
        assert set(names) == set(rows), f"frontend/FIELDS.md, {titles[api]}: {set(names) ^ set(rows)}"
        for name, state, note in page:
            assert state in STATES[rows[name]], f"{titles[api]}, {name}: '{state}' for {rows[name]}"
            assert state in ("as there", "no effect") or note.strip(), f"{titles[api]}, {name}: how?"


@test
def what_the_page_says_of_fields_holds():
    """A field that is ignored gives a warning, one that has no effect none, others a refusal by name."""
    base = {
        "ESP_API_CHAT": (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
        "ESP_API_COMPLETIONS": ("/v1/completions", {"prompt": "x"}),
        "ESP_API_EMBEDDINGS": ("/v1/embeddings", {"input": "x"}),
        "ESP_API_MESSAGES": ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}),
        "ESP_API_RESPONSES": ("/v1/responses", {"input": "x"}),
    }
    with fake() as server:
        for api, rows in table().items():
            path, body = base[api]
            for name, rule in rows.items():
                value = {"x": "y"} if rule in ("WARN", "ANY") and name == "metadata" else {"x": {"a": [1]}}
                value = "me" if name in ("user", "safety_identifier") else value
                reply = server.post(path, {**body, name: value} if rule != "READ" else body)
                data = reply.json()
                if rule in ("EMPTY", "ONLY"):
                    assert reply.status == 400 and name in json.dumps(data["error"]), (path, name, data)
                else:
                    assert reply.status == 200, (path, name, data)
                    warned = {w["param"] for w in data.get("warnings", [])}
                    assert warned == ({name} if rule == "WARN" else set()), (path, name, warned)


# ---- The judge itself ----


def changed(data):
    """Copies of data that each lack a member, have one more, or have one of another type."""
    for key in data:
        less = copy.deepcopy(data)
        del less[key]
        yield f"without {key}", less
        other = copy.deepcopy(data)
        other[key] = {"x": [True]} if not isinstance(data[key], dict) else "x"
        yield f"{key} of another type", other
    yield "one more member", {**data, "more": 1}


@test
def damage_is_seen():
    optional = {"warnings", "metadata of another type", "reasoning of another type", "text of another type"}
    loose = {"max_tool_calls of another type", "tool_choice of another type"}
    with fake() as server:
        for path, body in [(CHAT, {"messages": [{"role": "user", "content": "x"}]}),
                           ("/v1/completions", {"prompt": "x"}),
                           ("/v1/embeddings", {"input": "x"}), ("/v1/responses", {"input": "x"}),
                           ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}),
                           (CHAT, {}), ("/v1/messages", {})]:
            reply = server.post(path, body)
            headers = {"content-type": "application/json"}
            for what, bad in changed(reply.json()):
                if what in optional | loose or what == "without completed_at":
                    continue
                try:
                    described.check_answer("POST", path, reply.status, headers, json.dumps(bad).encode())
                except AssertionError:
                    continue
                raise AssertionError(f"{path}: {what} was not seen")
        stream = server.post("/v1/responses", {"input": "x", "stream": True})
        bad = stream.body.replace(b'"output_index"', b'"index"', 1)
        try:
            described.check_answer("POST", "/v1/responses", 200, stream.headers, bad)
        except AssertionError:
            return
        raise AssertionError("a bad event was not seen")


# ---- Random requests ----

texts = st.text(max_size=20)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=12)


def some(*words):
    return st.sampled_from(words)


def record(**members):
    """An object with some of these members, each junk now and then."""
    return st.fixed_dictionaries({}, optional={name: st.one_of(value, value, value, junk)
                                               for name, value in members.items()})


ids = some("call_1", "toolu_1", "")
parts = record(type=some("text", "input_text", "output_text", "tool_use", "tool_result", "thinking", "image"),
               text=texts, id=ids, name=some("f", "g"), input=st.dictionaries(texts, junk, max_size=2),
               tool_use_id=ids, content=texts, thinking=texts,
               cache_control=record(type=some("ephemeral"), ttl=some("5m", "1h", "x")),
               prompt_cache_breakpoint=record(ttl=some("1m")))
contents = texts | st.lists(parts, max_size=3)
calls = record(id=ids, type=some("function"),
               function=record(name=some("f", "g"), arguments=some("{}", '{"a":1}', "{")))
messages = record(role=some("user", "assistant", "system", "tool", "developer"), content=contents, name=texts,
                  tool_calls=st.lists(calls, max_size=2), tool_call_id=ids, reasoning_content=texts)
items = messages | record(type=some("message", "function_call", "function_call_output", "reasoning", "item_reference",
                                    "custom_tool_call", "web_search_call"), role=some("user", "assistant"),
                          content=contents, call_id=ids, name=some("f"), arguments=some("{}", "{"), output=contents,
                          summary=st.lists(parts, max_size=2))
schemas = junk | record(type=some("object", "string", "array", "number"), properties=st.dictionaries(texts, junk,
                                                                                                    max_size=3))
functions = record(name=some("f", "g"), description=texts, parameters=schemas, strict=st.booleans())
tools = record(type=some("function", "custom", "web_search"), name=some("f", "g"), function=functions,
               parameters=schemas, input_schema=schemas, description=texts)
KNOWN = {
    "messages": st.lists(messages, max_size=4),
    "input": texts | st.lists(items | texts | st.integers(0, 300), max_size=4),
    "prompt": texts | st.lists(st.integers(-1, 300) | texts, max_size=4), "system": contents, "instructions": texts,
    "tools": st.lists(tools, max_size=3),
    "tool_choice": some("auto", "none", "required") | record(
        type=some("auto", "any", "tool", "function", "allowed_tools"), name=some("f"), function=record(name=some("f"))),
    "response_format": record(type=some("text", "json_object", "json_schema"), json_schema=record(name=texts,
                                                                                                 schema=schemas)),
    "text": record(format=record(type=some("text", "json_schema"), name=texts, schema=schemas)),
    "output_config": record(format=record(type=some("json_schema"), schema=schemas), effort=some("low", "high")),
    "thinking": record(type=some("enabled", "disabled", "adaptive"), budget_tokens=st.integers(-5, 3000)),
    "reasoning": record(effort=some("low", "none"), summary=some("auto")),
    "stop": texts | st.lists(texts, max_size=3), "stop_sequences": st.lists(texts, max_size=3),
    "stream_options": record(include_usage=st.booleans()), "logit_bias": st.dictionaries(texts, st.integers(-200, 200)),
    "max_tokens": st.integers(-1, 50), "max_output_tokens": st.integers(-1, 50), "n": st.integers(0, 3),
    "top_logprobs": st.integers(-1, 25), "temperature": st.floats(-1, 3), "seed": st.integers(),
    "previous_response_id": some("resp_1", ""), "dimensions": st.integers(-1, 9), "stream": st.booleans(),
    "structured_outputs": record(json=schemas, regex=texts, choice=st.lists(texts, max_size=2)),
    "prompt_cache_options": record(mode=some("implicit", "explicit"), ttl=some("5m")),
}


say = st.fixed_dictionaries({"role": some("user"), "content": texts.map(lambda text: "x" + text)})
GOOD = {  # what is taken, with what each API needs first
    "messages": st.lists(say, min_size=1, max_size=3), "input": texts.map(lambda text: "x" + text),
    "prompt": texts.map(lambda text: "x" + text), "max_tokens": st.integers(1, 9), "n": st.integers(1, 3),
    "temperature": st.floats(0, 2), "top_p": st.floats(0, 1), "min_p": st.floats(0, 1), "top_k": st.integers(-1, 50),
    "seed": st.integers(-2**63, 2**63 - 1), "stream": st.booleans(), "max_output_tokens": st.integers(1, 9),
    "stop": some("o", ["l", "w"], []), "stop_sequences": some(["o"], []), "instructions": texts, "system": texts,
    "user": texts, "store": st.booleans(), "dimensions": st.integers(1, 5), "encoding_format": some("float", "base64"),
    "pooling": some("mean", "last"), "logprobs": some(False, None), "include": some([], None),
    "metadata": some({}, None),
    "cache_salt": some("a", None), "session_id": some("s", None), "response_format": some({"type": "text"}, None),
    "ignore_eos": some(None, False), "done": st.booleans(), "cache_control": some({"type": "ephemeral"}, None),
}


def bodies(api):
    """Mostly good fields with a bad one now and then, so that both answers and refusals come."""
    rows = table()[api]
    required = described.description()["components"]["schemas"][APIS[api]]["required"]
    good = {name: GOOD.get(name, st.none()) for name in rows}
    bad = {name: KNOWN.get(name, junk | st.integers(0, 5)) | junk for name in rows}

    def build(names, wrong):
        wanted = sorted(set(names) | set(required) | set(wrong))
        return st.fixed_dictionaries({name: (bad if name in wrong else good)[name] for name in wanted})

    choice = st.lists(st.sampled_from(sorted(rows)), max_size=6)
    return st.tuples(choice, choice.map(lambda names: names[:max(0, len(names) - 3)])).flatmap(lambda t: build(*t))


FIXED = "ESPALIER_TEST_SEED" in os.environ


def fuzz(server, api, path, n, seen):

    @settings(max_examples=n, deadline=None, database=None, print_blob=True, derandomize=FIXED,
              suppress_health_check=list(HealthCheck))
    @given(bodies(api))
    def ask(body):
        reply = server.post(path, json.dumps(body))  # the kit checks its shape
        seen[reply.status] = seen.get(reply.status, 0) + 1
        assert reply.status < 500, (body, reply.body[:500])

    ask()


@test
def random_requests_give_no_5xx():
    seen = {}
    with fake("alias", "m") as server:
        for api, path in [("ESP_API_CHAT", CHAT), ("ESP_API_COMPLETIONS", "/v1/completions"),
                          ("ESP_API_EMBEDDINGS", "/v1/embeddings"), ("ESP_API_MESSAGES", "/v1/messages"),
                          ("ESP_API_MESSAGES", "/v1/messages/count_tokens"), ("ESP_API_RESPONSES", "/v1/responses"),
                          ("ESP_API_RESPONSES", "/v1/responses/input_tokens"), ("ESP_API_CHAT", "/apply-template")]:
            seen[path] = {}
            fuzz(server, api, path, 250, seen[path])
            print(f"# {path}: {seen[path]}")
            assert seen[path].get(200, 0) >= 20 and seen[path].get(400, 0) >= 1, "the requests are all alike"
        assert server.get("/health").status == 200


@test
def random_bodies_give_no_5xx():
    paths = [path for path, methods in described.description()["paths"].items() if "post" in methods]
    with fake() as server:

        @settings(max_examples=300, deadline=None, database=None, print_blob=True, derandomize=FIXED,
                  suppress_health_check=list(HealthCheck))
        @given(st.sampled_from(paths), st.binary(max_size=60) | junk.map(lambda v: json.dumps(v).encode()))
        def ask(path, body):
            assert server.post(path, body).status < 500, (path, body)

        ask()


if __name__ == "__main__":
    run_tests()
