"""What a request says about the cache, against the real server and model: names, conversations, pins.

usage: test_cache.py PATH_OF_ESPALIER [test …]
"""
import os
import sys
import time

from kit import Server, Skip, run_tests, test

PROGRAM = sys.argv[1]
MODEL = os.path.join(os.environ.get("ESPALIER_TEST_MODELS", "models"), "SmolLM2-135M-Instruct.Q4_1.gguf")
POLICY = "You are the triage agent. Follow policy 17. " * 40


def serve(*options):
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    return Server([PROGRAM, "serve", "-m", MODEL, "--port", "0", *options])


def ask(server, ticket, policy=POLICY, **fields):
    messages = [{"role": "system", "content": policy}, {"role": "user", "content": ticket}]
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2, "temperature": 0, **fields})
    assert reply.status == 200, reply.body
    return reply.json()


def usage(answer):
    details = answer["usage"]["prompt_tokens_details"]
    return details["cached_tokens"], details["cache_write_tokens"], details.get("cache_refused_tokens", 0)


def classes(server):
    return [node["class"] for node in server.get("/v1/cache").json()["nodes"]]


@test
def keys_share_with_equals_only():
    with serve() as server:
        pairs = [("a", "bc"), ("ab", "c"), ("abc", None), (None, "abc"), (None, None)]
        for salt, key in pairs:
            fields = {"cache_salt": salt, "prompt_cache_key": key}
            assert usage(ask(server, "t", **fields))[0] == 0, (salt, key)
            assert usage(ask(server, "t", **fields))[0] > 300, (salt, key)


@test
def conversations_decide_classes():
    with serve() as server:
        ask(server, "first ticket", done=False)
        assert set(classes(server)) == {"return"}
        server.request("DELETE", "/v1/cache")
        ask(server, "first ticket " * 20)
        # the class is corrected with the next step of the engine, which the next request brings
        ask(server, "second ticket " * 20, session_id="s", done=True)
        seen = classes(server)
        assert "return" not in seen and seen.count("normal") >= 20 and seen.count("tail") >= 4, seen


@test
def parts_are_pinned_and_seen_in_usage():
    with serve() as server:
        for mark in [{"prompt_cache_breakpoint": {"mode": "explicit"}},
                     {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]:
            server.request("DELETE", "/v1/cache")
            part = {"type": "text", "text": POLICY, **mark}
            answer = ask(server, "ticket", [part, {"type": "text", "text": " Answer."}])
            plain = server.post("/tokenize", {"text": POLICY}).json()["count"]
            cached, written, refused = usage(answer)
            assert cached == 0 and refused == 0 and plain - 16 < written <= plain + 16, (plain, written)
            assert usage(ask(server, "other", [part, {"type": "text", "text": " Answer."}]))[1:] == (0, 0)
            assert server.metric("espalier_kv_pages_pinned") * 16 == written
            assert classes(server).count("pinned") * 16 == written
            assert "warnings" not in answer, answer


@test
def whole_prompts_are_pinned_until_their_time():
    with serve() as server:
        written = usage(ask(server, "ticket", prompt_cache_options={"ttl": 1}))[1]
        assert written >= 300, written
        hour = {"ttl": "1h"}
        reply = server.post("/v1/completions", {"prompt": POLICY, "max_tokens": 1, "prompt_cache_options": hour})
        assert reply.json()["usage"]["prompt_tokens_details"]["cache_write_tokens"] > 300
        time.sleep(1.1)
        ask(server, "something else")
        pinned = server.metric("espalier_kv_pages_pinned") * 16
        assert pinned == reply.json()["usage"]["prompt_tokens"] // 16 * 16, pinned
        assert server.request("DELETE", "/v1/cache").status == 200
        assert server.metric("espalier_kv_pages_pinned") == 0


@test
def beyond_the_budget_is_refused():
    with serve("--ctx", "1024", "--kv-bytes", "37440K") as server:  # 640 tokens may be pinned
        assert usage(ask(server, "one", prompt_cache_options={"ttl": "5m"}))[2] == 0
        other = ask(server, "two", "Another policy. " * 100, prompt_cache_options={"ttl": "5m"})
        cached, written, refused = usage(other)
        assert written == 0 and refused > 300, (cached, written, refused)
        assert server.metric('espalier_cache_pins_total{answer="refused"}') == 1
        for n in range(6):  # pressure
            ask(server, "scan", f"Policy number {n} says no. " * 120)
        assert usage(ask(server, "one"))[0] > 300


@test
def bad_marks_are_named():
    with serve() as server:
        for mark in [{"prompt_cache_breakpoint": 5}, {"cache_control": {"ttl": "soon"}}]:
            reply = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x", **mark}]})
            assert reply.status == 400 and reply.error()["param"].startswith("messages[0]."), reply.body
        for name, value in [("done", "yes"), ("prompt_cache_key", 5), ("prompt_cache_options", {"mode": "sometimes"}),
                            ("prompt_cache_options", {"ttl": "5 minutes"}), ("prompt_cache_options", {"more": 1})]:
            reply = server.chat(**{name: value})
            assert reply.status == 400 and reply.error()["param"].startswith(name), reply.body
        marked = {"role": "user", "content": "x", "prompt_cache_breakpoint": True}
        reply = server.post("/v1/chat/completions", {"messages": [marked] * 17})
        assert reply.status == 400 and "16" in reply.error()["message"], reply.body


run_tests()
