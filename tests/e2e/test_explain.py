"""Every cause of a miss, brought about on purpose, as /v1/cache/explain and the log tell it.

usage: test_explain.py PATH_OF_ESPALIER [test …]
"""
import json
import os
import sys
import threading
import time

from kit import Server, Skip, run_tests, test

PROGRAM = sys.argv[1]
MODEL = os.path.join(os.environ.get("ESPALIER_TEST_MODELS", "models"), "SmolLM2-135M-Instruct.Q4_1.gguf")
SYSTEM = {"role": "system", "content": "You keep the log book of a lighthouse. " * 8}


def serve(*options):
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    return Server([PROGRAM, "serve", "-m", MODEL, "--port", "0", *options])


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def run(server, messages, **fields):
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1, **fields}, timeout=120)
    assert reply.status == 200, reply.body
    return reply.json()


def explain(server, messages, **fields):
    reply = server.post("/v1/cache/explain", {"messages": messages, **fields})
    assert reply.status == 200, reply.body
    answer = reply.json()
    assert sum(m["cached"] for m in answer["messages"]) <= answer["cached_tokens"] < answer["prompt_tokens"]
    assert sum(m["tokens"] for m in answer["messages"]) <= answer["prompt_tokens"]
    return answer


@test
def causes():
    with serve() as server:
        first = [SYSTEM, user("The lamp went out at nine and was lit again by ten past nine.")]
        cold = explain(server, first)
        assert cold["cause"] == "never_seen" and cold["cached_tokens"] == 0 and cold["diverges"] is None, cold
        ids = server.post("/apply-template", {"messages": first}).json()["ids"]
        assert cold["prompt_tokens"] == len(ids) and [m["role"] for m in cold["messages"]] == ["system", "user"]
        assert server.metric("espalier_requests_total{finish=\"length\"}") == 0, "nothing ran"
        run(server, first)
        warm = explain(server, first)
        assert warm["cause"] == "hit" and warm["cached_tokens"] >= (len(ids) - 1) // 16 * 16, warm
        assert warm["messages"][0]["cached"] == warm["messages"][0]["tokens"] == cold["messages"][0]["tokens"]
        # What is told is what a run finds.
        other = [SYSTEM, user("The lamp went down with the tide and nobody has seen it since then, sadly.")]
        told = explain(server, other)
        assert told["cause"] == "never_seen" and told["diverges"] is not None, told
        other_ids = server.post("/apply-template", {"messages": other}).json()["ids"]
        at = next(i for i, (a, b) in enumerate(zip(ids, other_ids)) if a != b)
        have, want = told["diverges"]["have"], told["diverges"]["want"]
        assert told["diverges"]["at"] == told["cached_tokens"] == at, (told, at)
        assert have["id"] == ids[at] and want["id"] == other_ids[at], (have, want)
        assert want["text"] == server.post("/detokenize", {"ids": [want["id"]]}).json()["text"]
        assert run(server, other)["usage"]["prompt_tokens_details"]["cached_tokens"] == told["cached_tokens"]
        # Another namespace.
        elsewhere = explain(server, first, cache_salt="mine")
        assert elsewhere["cause"] == "other_namespace" and elsewhere["cached_tokens"] == 0, elsewhere
        # The history comes back with other white space: the same text in other tokens.
        said = assistant('{"when":\n\n"nine", "lamp": "lit again and burning"}')
        talk = [SYSTEM, user("Say when."), said, user("And?")]
        run(server, talk)
        spaced = [*talk[:2], assistant('{"when":\n "nine", "lamp": "lit again and burning"}'), talk[3]]
        drifted = explain(server, spaced)
        assert drifted["cause"] == "template_drift" and drifted["diverges"]["have"]["text"].isspace(), drifted
        # The same difference in the last message is just other words.
        last = [SYSTEM, user('Note: {"when":\n\n"nine", "lamp": "lit again and burning"}')]
        run(server, last)
        assert explain(server, [SYSTEM, user('Note: {"when":\n "nine", "lamp": "lit"}')])["cause"] == "never_seen"
        # Dropped by the operator.
        assert server.request("DELETE", "/v1/cache").status == 200
        gone = explain(server, first)
        assert gone["cause"] == "evicted" and "ago" in gone["detail"], gone
        run(server, first)
        log = server.logged(b"miss=never_seen@0", b"miss=evicted@0").decode()
        assert "miss=never_seen@0" in log and f'miss=never_seen@{at} have="' in log and "miss=evicted@0" in log, log


@test
def evicted_by_others():
    with serve("--kv-bytes", "24M", "--ctx", "1024") as server:
        first = [SYSTEM, user("What was it that the keeper saw?")]
        run(server, first)
        reusable = server.metric("espalier_prompt_tokens_reusable_total")
        for number in range(12):
            text = f"Story {number}: " + " ".join(f"w{number}x{i}" for i in range(90))
            assert server.post("/v1/completions", {"prompt": text, "max_tokens": 1}).status == 200
        gone = explain(server, first)
        assert gone["cause"] == "evicted" and gone["cached_tokens"] < 16, gone
        usage = run(server, first)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] < 16
        grown = server.metric("espalier_prompt_tokens_reusable_total") - reusable
        assert grown >= usage["prompt_tokens"] // 16 * 16 - 16, (grown, usage)
        assert 0 < server.metric("espalier_cache_hit_ceiling") < 1


@test
def pending():
    with serve("--max-batch", "1") as server:
        busy = threading.Thread(target=run, args=(server, [user("Count.")]),
                                kwargs={"max_tokens": 300, "ignore_eos": True})
        busy.start()
        time.sleep(0.3)
        waits = [SYSTEM, user("Who waits in the queue?")]
        later = threading.Thread(target=run, args=(server, waits))
        later.start()
        time.sleep(0.3)
        answer = explain(server, waits)
        assert answer["cause"] == "pending" and answer["cached_tokens"] < 16, answer
        busy.join()
        later.join()
        assert explain(server, waits)["cause"] == "hit"


@test
def json_log():
    with serve("--log-json") as server:
        run(server, [SYSTEM, user("One, and as many words behind it as fill a page of the cache alone.")])
        run(server, [SYSTEM, user("Two and more, in as many words as a page of the cache has, and then some more.")])
        log = server.logged(b'"cache"', count=2).decode()
        lines = [json.loads(line) for line in log.splitlines() if '"cache"' in line]
        assert lines[0]["cache"] == {"matched": 0, "cause": "never_seen", "diverges": None}, lines[0]
        assert lines[1]["cache"]["matched"] > 16 and lines[1]["cache"]["diverges"]["have"]["text"], lines[1]


@test
def refusals():
    with serve() as server:
        for body, param in (({}, "messages"), ({"messages": [user("hi")], "cache_salt": 5}, "cache_salt"),
                            ({"messages": [{"role": "x"}]}, "messages[0].role")):
            reply = server.post("/v1/cache/explain", body)
            assert reply.status == 400 and reply.error()["param"] == param, (param, reply.body)
        assert server.get("/v1/cache/explain").status == 405


if __name__ == "__main__":
    run_tests()
