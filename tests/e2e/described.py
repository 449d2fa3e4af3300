"""Checks answers against the server's own description (GET /openapi.json): every answer that kit.Server reads.

Streams: each event's data is held against the schema that the description gives for text/event-stream, or against the
error of the API. An answer of a route that is not described, or with a status that is not, is a failure; what is
refused before a route is found (404, 405, 408, 413, 431 and OPTIONS) has the shape of an error.
"""
import functools
import json
import os
import re

import jsonschema

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
EVENTS_MAX = 300  # checked of one stream: the first and the last ones
counts = {"answers": 0, "events": 0}


@functools.cache
def description():
    with open(os.path.join(ROOT, "frontend/openapi.json"), encoding="utf-8") as file:
        return json.load(file)


@functools.cache
def validator(name):
    schema = {"$ref": "#/components/schemas/" + name, "components": description()["components"]}
    return jsonschema.Draft202012Validator(schema)


@functools.cache
def routes():
    return [(re.compile("^" + re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)) + "$"), path, methods)
            for path, methods in description()["paths"].items()]


def find(method, path):
    for pattern, name, methods in routes():
        if pattern.match(path) and method.lower() in methods:
            return methods[method.lower()]
    return None


def check(name, data, where):
    error = jsonschema.exceptions.best_match(validator(name).iter_errors(data))
    if error is not None:
        at = "/".join(map(str, error.absolute_path))
        raise AssertionError(f"{where} is no {name}: at /{at}: {error.message[:300]}")


def schema_of(response, kind):
    while "$ref" in response:
        response = description()["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    content = response["content"].get(kind)
    assert content is not None, f"answers of {kind} are not described"
    return content["schema"]


def check_events(text, name, error, where):
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ") and line != "data: [DONE]"]
    if len(lines) > EVENTS_MAX:
        lines = lines[:EVENTS_MAX // 2] + lines[-EVENTS_MAX // 2:]
    for line in lines:
        data = json.loads(line)
        check(error if "error" in data and "type" not in data else name, data, where)
        counts["events"] += 1


def check_answer(method, path, status, headers, body):
    """body: of a whole answer, bytes."""
    path = path.split("?")[0]
    where = f"{method} {path[:100]} {status}"
    error = "AnthropicError" if path.startswith("/v1/messages") else "Error"
    if method in ("HEAD", "OPTIONS"):
        assert body == b"", where
        return
    counts["answers"] += 1
    kind = headers.get("content-type", "").split(";")[0]
    route = find(method, path)
    if status in (404, 405, 408, 413, 431) or (status == 401 and route is None):
        check(error, json.loads(body), where)
        return
    assert route is not None and str(status) in route["responses"], f"{where} is not described"
    schema = schema_of(route["responses"][str(status)], kind)
    if kind == "text/event-stream":
        check_events(body.decode(), schema["$ref"].rsplit("/", 1)[1], error, where)
    elif kind == "application/json" and "$ref" in schema:
        check(schema["$ref"].rsplit("/", 1)[1], json.loads(body), where)
