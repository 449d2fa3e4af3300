"""What a request says about the cache, against the real server and model: names, conversations, pins.

usage: test_cache.py PATH_OF_ESPALIER [test …]
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

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
def dashboards_find_their_names():
    with serve() as server:
        ask(server, "one")
        ask(server, "two")
        text = server.get("/metrics").body.decode()

        def of(name):
            (line,) = [line for line in text.splitlines() if line.startswith(f"vllm:{name}{{")]
            return float(line.rsplit(" ", 1)[1])

        assert of("prefix_cache_hits_total") == server.metric('espalier_prompt_tokens_total{source="cached"}') > 300
        assert of("prefix_cache_queries_total") == of("prompt_tokens_total") > of("prefix_cache_hits_total")
        assert of("generation_tokens_total") == 4 and of("num_requests_running") == 0
        assert of("time_to_first_token_seconds_count") == 2 and of("kv_cache_usage_perc") == 0


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


@test
def pictures_of_a_running_server():
    with serve() as server:
        ask(server, "a ticket <about> \"tags\" & ünïcode", done=False)
        ask(server, "another ticket " * 20)

        def tree(*args):
            return subprocess.run([PROGRAM, "tree", *args], capture_output=True, text=True, check=False)

        text, dot, svg, raw = [tree("--url", server.url, "--format", name) for name in ["text", "dot", "svg", "json"]]
        assert [one.returncode for one in (text, dot, svg, raw)] == [0] * 4, text.stderr
        for part in ["namespace 0", "You are the triag", "return"]:
            assert part in text.stdout, text.stdout
        assert dot.stdout.startswith("digraph") and dot.stdout.count("->") >= 3, dot.stdout
        boxes = xml.etree.ElementTree.fromstring(svg.stdout).findall("{http://www.w3.org/2000/svg}rect")
        assert len(boxes) == text.stdout.count("refs"), svg.stdout
        assert json.loads(raw.stdout)["nodes"]
        assert tree("--url", server.url).stdout.count("\n") == text.stdout.count("\n"), "text is the default"
        for url in ["https://127.0.0.1:1", "", "http://", "http://x:123456789"]:
            assert tree("--url", url).returncode == 2, url
        gone = tree("--url", "http://127.0.0.1:1")
        assert gone.returncode == 1 and "refused" in gone.stderr, gone.stderr


# ---- the page file ----


def completion(server, text, **fields):
    """The answer's text, logprobs and cached tokens of a prompt, which must not depend on where its pages come from."""
    body = {"prompt": text, "max_tokens": 6, "temperature": 0, "logprobs": 1, **fields}
    answer = server.post("/v1/completions", body, timeout=300).json()
    choice = answer["choices"][0]
    return (choice["text"], choice["logprobs"]["token_logprobs"]), usage(answer)[0], answer["usage"]["prompt_tokens"]


def saved(server, n_pages):
    deadline = time.time() + 20
    while server.metric("espalier_kv_saved_pages_total") < n_pages:
        assert time.time() < deadline, server.metric("espalier_kv_saved_pages_total")
        time.sleep(0.02)


@test
def prompts_survive_a_restart():
    with tempfile.TemporaryDirectory() as folder:
        options = ("--cache-dir", os.path.join(folder, "new"), "--cache-bytes", "64M")
        with serve(*options) as server:
            cold, cached, n_tokens = completion(server, POLICY)
            assert cached == 0
        with serve(*options) as server:  # the first one saved what it had when it was stopped
            again, cached, _ = completion(server, POLICY)
            assert again == cold and cached >= (n_tokens - 1) // 16 * 16, (cached, n_tokens)
            assert server.metric("espalier_kv_restored_pages_total") == cached // 16
            assert server.metric('espalier_kv_pages{state="disk"}') >= cached // 16
            with serve(*options) as other:  # reads what this one has
                assert completion(other, POLICY)[:2] == (cold, cached)
                assert other.metric("espalier_kv_saved_pages_total") == 0
        (name,) = os.listdir(os.path.join(folder, "new"))
        assert os.path.getsize(os.path.join(folder, "new", name)) <= 64 << 20
        with serve(*options, "--ctx", "1024") as server:  # another way of computing has a file of its own
            assert completion(server, POLICY)[1] == 0
        assert len(os.listdir(os.path.join(folder, "new"))) == 2


@test
def killed_at_any_moment():
    with tempfile.TemporaryDirectory() as folder:
        options = ("--cache-dir", folder, "--cache-bytes", "64M")
        texts = [f"Policy number {n} is short. " * 30 for n in range(4)]
        rng = random.Random(os.getpid())
        with serve() as server:
            wanted = [completion(server, text)[0] for text in texts]
        n_found = 0
        for _ in range(5):
            server = serve(*options)
            server.must_stop_well = False
            with server:
                for text, want in zip(texts, wanted):
                    got, cached, _ = completion(server, text)
                    assert got == want, (got, want)
                    n_found += cached > 0
                time.sleep(rng.random() * 0.3)
                os.kill(server.process.pid, signal.SIGKILL)
                server.process.wait()
        assert n_found >= 8, n_found


@test
def broken_files_are_misses():
    with tempfile.TemporaryDirectory() as folder:
        options = ("--cache-dir", folder, "--cache-bytes", "64M")
        with serve(*options) as server:
            cold = completion(server, POLICY)[0]
        path = os.path.join(folder, os.listdir(folder)[0])
        with open(path, "rb") as file:
            whole = file.read()
        rng = random.Random(os.getpid())
        for damage in ["cut", "flip", "other", "folder"]:
            data = bytearray(whole)
            if damage == "flip":
                for _ in range(2000):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            elif damage == "other":
                data[:] = b"some other file" * 1000
            elif damage == "cut":
                del data[rng.randrange(len(data)):]
            os.remove(path)
            if damage == "folder":
                os.mkdir(path)
            else:
                with open(path, "wb") as file:
                    file.write(data)
            with serve(*options) as server:
                assert completion(server, POLICY)[0] == cold, damage
        assert b"no page file" in subprocess.run(
            [PROGRAM, "run", "-m", MODEL, "-p", "x", "--max-tokens", "1", "--cache-dir", "/dev/null/x"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=True).stderr


@test
def a_restored_prompt_is_not_computed_again():
    with tempfile.TemporaryDirectory() as folder:
        options = ("--cache-dir", folder, "--cache-bytes", "256M")
        text = POLICY * 4
        with serve(*options) as server:
            cold = completion(server, text)
        with serve(*options) as server:
            completion(server, "Something else to begin with.")
            began = time.time()
            restored = completion(server, text, max_tokens=1)
            first_s = time.time() - began
            assert restored[1] >= cold[2] - 16, restored
            warm_s = 1e9
            for _ in range(3):
                began = time.time()
                completion(server, text, max_tokens=1)
                warm_s = min(warm_s, time.time() - began)
        print(f"# the first hit after a restart costs {first_s / warm_s:.2f} times a warm one")


run_tests()
