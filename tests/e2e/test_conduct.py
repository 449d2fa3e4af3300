"""How the server holds up, over the scripted engine: keys, loading, draining, hang-ups, crowds, hostile connections.

usage: test_conduct.py PATH_OF_ESPALIER_FAKE [test …]
"""
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

from kit import CHAT, Server, at_once, chat_body, joined, post_bytes, read_all, run_tests, test

FAKE = sys.argv[1]


def fake(*options, **script):
    return Server([FAKE, *options], script={"text": "Hello world", **script})


# ---- Keys, origins, ids ----


@test
def api_keys():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("# keys\nsecret-1\n\nsecret-2  \n")
        keys.flush()
        with fake("api-key-file", keys.name) as server:
            for headers, status in [
                ({}, 401),
                ({
                    "Authorization": "Bearer secret-1"
                }, 200),
                ({
                    "Authorization": "bearer secret-2"
                }, 200),
                ({
                    "x-api-key": "secret-2"
                }, 200),
                ({
                    "Authorization": "Bearer secret-12"
                }, 401),
                ({
                    "Authorization": "Bearer "
                }, 401),
                ({
                    "Authorization": "Bearer secret-"
                }, 401),
                ({
                    "Authorization": "secret-1"
                }, 401),
                ({
                    "x-api-key": "# keys"
                }, 401),
            ]:
                reply = server.get("/v1/models", headers=headers)
                assert reply.status == status, (headers, reply.status)
                if status == 401:
                    assert reply.error()["code"] == "invalid_api_key" and reply.headers["www-authenticate"] == "Bearer"
            assert server.get("/health").status == 200
            assert server.get("/metrics").status == 401 and server.get("/nope").status == 401
            assert server.request("OPTIONS", CHAT).status == 204
        keys.seek(0)
        keys.truncate()
        keys.flush()
        empty = subprocess.run([FAKE, "/dev/null", "api-key-file", keys.name], capture_output=True, timeout=20)
        assert empty.returncode == 1 and b"no API key" in empty.stderr


@test
def cors():
    with fake() as server:
        reply = server.get("/health", headers={"Origin": "http://a.example"})
        assert "access-control-allow-origin" not in reply.headers
        assert "access-control-allow-origin" not in server.request("OPTIONS",
                                                                   CHAT,
                                                                   headers={
                                                                       "Origin": "http://a.example"
                                                                   }).headers
    with fake("cors-origin", "http://a.example") as server:
        preflight = server.request("OPTIONS",
                                   CHAT,
                                   headers={
                                       "Origin": "http://a.example",
                                       "Access-Control-Request-Method": "POST"
                                   })
        assert preflight.status == 204 and preflight.headers["access-control-allow-origin"] == "http://a.example"
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        assert "x-stainless-os" in preflight.headers["access-control-allow-headers"]
        reply = server.request("POST", CHAT, chat_body(), {"Origin": "http://a.example"})
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
        assert "access-control-allow-origin" not in server.get("/health", headers={
            "Origin": "http://b.example"
        }).headers


@test
def request_ids():
    with fake() as server:
        assert server.chat().headers["x-request-id"].startswith("req_")
        assert server.get("/nope", headers={"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"
        assert server.get("/health", headers={"X-Request-Id": "x" * 300}).headers["x-request-id"].startswith("req_")


# ---- Engine states ----


@test
def loading_and_ready():
    server = Server([FAKE], script={"text": "x", "load_ms": 700})
    try:
        reply = server.get("/health")
        assert reply.status == 503 and reply.json() == {"status": "loading", "progress": 0}
        reply = server.chat()
        assert reply.status == 503 and reply.error()["code"] == "loading" and reply.headers["retry-after"] == "1"
        assert server.get("/v1/models").status == 200
        server.ready()
        assert server.get("/health").json() == {"status": "ok", "progress": 1}
        assert server.chat().status == 200
    finally:
        assert server.stop() == 0


@test
def stop_while_loading():
    server = Server([FAKE], script={"text": "x", "load_ms": 500})
    assert server.stop() == 0


@test
def load_failure():
    result = subprocess.run([FAKE, "/dev/null"], capture_output=True, timeout=20)
    assert result.returncode == 1 and b"is no script" in result.stderr, result


@test
def queue_full():
    with fake(text="x", repeat=True, delay_us=5000, n_batch=1, n_queue=2) as server:
        streams = [server.connect() for _ in range(3)]
        for stream in streams:
            stream.sendall(post_bytes(chat_body(stream=True)))
            stream.recv(100)
            time.sleep(0.05)
        reply = server.chat()
        assert reply.status == 429 and reply.error()["code"] == "queue_full"
        assert int(reply.headers["retry-after"]) >= 1 and int(reply.headers["retry-after-ms"]) > 0
        for stream in streams:
            stream.close()
        server.wait_metric('espalier_requests{state="waiting"}', 0)
        server.wait_metric("espalier_kv_pages_leased", 0)
        server.script(text="ok")
        assert server.chat().status == 200


@test
def engine_errors():
    with fake(fail_after=3) as server:
        reply = server.chat()
        assert reply.status == 500 and reply.error()["message"] == "the script says so"
        events = server.chat(stream=True).events()
        assert events[-1]["error"]["message"] == "the script says so" and joined(events[:-1]) == "Hel"
        assert "[DONE]" not in events
        server.script(text="fine")
        assert server.chat().json()["choices"][0]["message"]["content"] == "fine"


@test
def drain_on_sigterm():
    server = fake(text="slowly now", delay_us=60000).ready()
    with contextlib.closing(server.connect()) as stream:
        stream.sendall(post_bytes(chat_body(stream=True)))
        stream.recv(100)
        started = time.time()
        server.process.terminate()
        text = read_all(stream).decode()
        assert "[DONE]" in text, text[-300:]
    assert server.process.wait(10) == 0 and time.time() - started < 5


@test
def second_signal_stops_at_once():
    server = fake(text="x", repeat=True, delay_us=20000).ready()
    with contextlib.closing(server.connect()) as stream:
        stream.sendall(post_bytes(chat_body(stream=True)))
        stream.recv(100)
        server.process.terminate()
        time.sleep(0.2)
        started = time.time()
        server.process.terminate()
        text = read_all(stream).decode()
        assert '"error"' in text and "[DONE]" not in text, text[-300:]
    assert server.process.wait(10) == 0 and time.time() - started < 5


# ---- Hang-ups ----


@test
def hang_up_mid_stream():
    with fake(text="x", repeat=True, delay_us=3000) as server:
        stream = server.connect()
        stream.sendall(post_bytes(chat_body(stream=True, max_tokens=100000)))
        stream.recv(2000)
        server.wait_metric('espalier_requests{state="running"}', 1)
        stream.close()
        server.wait_metric("espalier_kv_pages_leased", 0, 1)


@test
def hang_up_before_the_first_token():
    with fake(text="x", repeat=True, start_ms=60000) as server:
        for stream in (True, False):
            sock = server.connect()
            sock.sendall(post_bytes(chat_body(stream=stream)))
            server.wait_metric('espalier_requests{state="running"}', 1)
            sock.close()
            server.wait_metric("espalier_kv_pages_leased", 0, 1)


@test
def hang_up_in_the_queue():
    with fake(text="x", repeat=True, delay_us=5000, n_batch=1) as server:
        running = server.connect()
        running.sendall(post_bytes(chat_body(stream=True)))
        running.recv(100)
        waiting = [server.connect() for _ in range(6)]
        for index, sock in enumerate(waiting):
            sock.sendall(post_bytes(chat_body(stream=index % 2 == 0)))
        server.wait_metric('espalier_requests{state="waiting"}', 6)
        for sock in waiting:
            sock.close()
        server.wait_metric('espalier_requests{state="waiting"}', 0, 1)
        running.close()
        server.wait_metric("espalier_kv_pages_leased", 0, 1)


CLIENT = """
import http.client, json, sys, time
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
body = {"stream": sys.argv[2] == "1", "messages": [{"role": "user", "content": "hi"}]}
c.request("POST", "/v1/chat/completions", json.dumps(body))
r = c.getresponse()
print(r.read(50), flush=True)
time.sleep(60)
"""


@test
def killed_clients():
    with fake(text="x", repeat=True, delay_us=3000) as server:
        for stream in ("1", "0"):
            client = subprocess.Popen([sys.executable, "-c", CLIENT, str(server.port), stream], stdout=subprocess.PIPE)
            if stream == "1":
                client.stdout.readline()
            server.wait_metric('espalier_requests{state="running"}', 1, 10)
            client.kill()
            server.wait_metric("espalier_kv_pages_leased", 0, 1)
            client.wait()
            client.stdout.close()


@test
def abort_storm():
    with fake(text="abc", repeat=True, delay_us=2000) as server:
        before = len(os.listdir(f"/proc/{server.process.pid}/fd"))

        def abort(index):
            sock = server.connect()
            sock.sendall(post_bytes(chat_body(stream=index % 3 != 0), extra=b"X-Request-Id: r1\r\n"))
            time.sleep((index * 7 % 60) / 1000)
            sock.close()

        for _ in range(6):
            at_once([lambda index=index: abort(index) for index in range(50)])
        server.wait_metric("espalier_kv_pages_leased", 0)
        server.script(text="ok")
        assert server.chat().json()["choices"][0]["message"]["content"] == "ok"
        deadline = time.time() + 5
        while len(os.listdir(f"/proc/{server.process.pid}/fd")) > before + 3:
            assert time.time() < deadline, "descriptors leak"
            time.sleep(0.05)


@test
def hang_up_during_errors():
    with fake() as server:
        for _ in range(100):
            for body, wait in ((b'{"messages":"bad"}', 0), (chat_body(model="word " * 40000), 0.001)):
                sock = server.connect()
                sock.sendall(post_bytes(body))
                time.sleep(wait)
                sock.close()
        assert server.chat().status == 200


@test
def slow_reader_is_cut_off():
    """A reader that takes nothing: memory stays bounded and the request is cancelled."""
    with fake(tokens=[b"y" * 2000], text=None, repeat=True, n_ctx=4000000, delay_us=300) as server:
        before = server.memory_kb()
        sock = server.connect()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(post_bytes(chat_body(stream=True)))
        server.wait_metric('espalier_requests{state="running"}', 1)
        server.wait_metric("espalier_kv_pages_leased", 0, 20)
        assert server.memory_kb() - before < 64 * 1024, server.memory_kb() - before
        sock.close()


# ---- Many ----


@test
def sixty_four_at_once():
    with fake(delay_us=2000) as server:
        replies = at_once([lambda index=index: server.chat(f"q{index}", stream=index % 2 == 0) for index in range(64)])
        for index, reply in enumerate(replies):
            text = joined(reply.events()) if index % 2 == 0 else reply.json()["choices"][0]["message"]["content"]
            assert text == "Hello world", (index, text)


@test
def held_connections():
    with fake() as server:
        socks = [server.connect() for _ in range(200)]
        for sock in socks[:100]:
            sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
        before = server.cpu_s()
        started = time.time()
        assert server.chat().status == 200 and time.time() - started < 1
        time.sleep(2)
        assert server.cpu_s() - before < 0.2, server.cpu_s() - before
        for sock in socks:
            sock.close()
        assert server.chat().status == 200


@test
def idle_costs_nothing():
    with fake() as server:
        server.chat()
        time.sleep(0.3)
        before = server.cpu_s()
        time.sleep(2)
        assert server.cpu_s() - before <= 0.01


@test
def keep_alive_and_pipelining():
    with fake() as server:
        with contextlib.closing(server.connect()) as sock:
            for _ in range(20):
                sock.sendall(post_bytes(chat_body()))
                data = b""
                while b"total_tokens" not in data:
                    data += sock.recv(4096)
                assert data.startswith(b"HTTP/1.1 200")
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 3 +
                         b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert read_all(sock).count(b"HTTP/1.1 200") == 4


# ---- Limits of HTTP itself ----


@test
def large_bodies():
    with fake("max-body", "100000") as server:
        big = server.post(CHAT, chat_body(user="x" * 200000))
        assert big.status == 413 and big.error()["code"] == "body_too_large"
        announced = server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1099511627776\r\n\r\n")
        assert announced.startswith(b"HTTP/1.1 413"), announced[:200]
        huge = server.raw(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n")
        assert huge.split(b" ")[1] in (b"400", b"413"), huge[:100]
        expect = server.raw(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 500000\r\n\r\n")
        assert expect.startswith(b"HTTP/1.1 413"), expect[:100]
        part = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        chunked = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + part
        endless = server.raw(chunked + (b"1000\r\n" + b"x" * 4096 + b"\r\n") * 100)
        assert endless.startswith(b"HTTP/1.1 413"), endless[:100]
        body = chat_body()
        small = server.raw(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        assert small.startswith(b"HTTP/1.1 200"), small[:200]
        put = server.raw(
            b"DELETE /v1/cache HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
        assert put.startswith(b"HTTP/1.1 200"), put[:100]


@test
def fifty_megabytes():
    with fake() as server:
        before = server.memory_kb()
        reply = server.post(CHAT, chat_body(user="x" * 50_000_000))
        assert reply.status == 413, reply.status
        assert server.memory_kb() - before < 20 * 1024
        assert server.chat().status == 200


@test
def hostile_heads():
    with fake() as server:
        before = server.memory_kb()
        for data, codes in [
            (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 10485760 + b"\r\n\r\n", (b"431", b"400", b"413")),
            (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: aaaaaaaaaaaaaaaaaaaa\r\n" * 2900 + b"\r\n", (b"431", )),
            (b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", (b"414", b"431", b"404")),
            (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", (b"400", )),
            (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\nhello", (b"400", )),
            (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
             (b"400", )),
            (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}", (b"400", )),
            (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", (b"400", )),
            (b"GET /health HTTP/1.1\r\n\r\n", (b"400", )),
            (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", (b"400", )),
            (b"GET /health HTTP/1.0\r\n\r\n", (b"200", )),
            (b"OPTIONSX /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (b"405", )),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100 + b"\r\n\r\n", (b"400", b"")),
            (b"GET /health\r\n\r\n", (b"400", b"200", b"")),
            (b"BREW /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (b"405", )),
            (b"GET /%00%ff%2e%2e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (b"404", )),
            (b"GET /v1/cache?limit=99999999999999999999 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", (b"200", )),
        ]:
            reply = server.raw(data, timeout=5)
            status = reply.split(b" ")[1] if b" " in reply else b""
            assert status in codes, (data[:60], reply[:100])
        assert server.memory_kb() - before < 8 * 1024
        assert server.get("/health").status == 200


@test
def slow_requests():
    """An idle head, a dripping head, an idle body and a dripping body all end within about ten seconds."""
    with fake() as server:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
        starts = [(head, None), (head, b"X: y\r\n"), (head + b"\r\n{", None), (head + b"\r\n{", b" ")]

        def slow(data, drip):
            with contextlib.closing(server.connect()) as sock:
                sock.sendall(data)
                begin = time.time()
                sock.settimeout(0.5)
                reply = b""
                while time.time() - begin < 20:
                    try:
                        part = sock.recv(4096)
                        reply += part
                        if not part:
                            break
                    except TimeoutError:
                        if drip is not None:
                            with contextlib.suppress(OSError):
                                sock.sendall(drip)
                    except OSError:
                        break
                return time.time() - begin, reply

        for took, reply in at_once([lambda s=s: slow(*s) for s in starts]):
            assert 8 < took < 14, took
            assert reply == b"" or reply.startswith(b"HTTP/1.1 408"), reply
        assert server.chat().status == 200


@test
def silent_stream_gets_pings():
    with fake(text="x", start_ms=11500) as server:
        reply = server.chat(stream=True)
        assert b": waiting\n\n" in reply.body and joined(reply.events()) == "x"


@test
def log_lines():
    with fake() as server:
        server.chat()
        server.wait_for(rb"POST /v1/chat/completions 200 .*prompt=\d+ cached=0 tokens=11 ttft=[\d.]+ms finish=stop", 5)
    with fake("log-json", "1") as server:
        server.chat()
        line = server.wait_for(rb"\{[^\n]*completion_tokens[^\n]*\}", 5)
        data = json.loads(line)
        assert data["finish"] == "stop" and data["status"] == 200 and data["path"] == CHAT and "ttft_ms" in data


@test
def metrics_names():
    with fake() as server:
        server.chat()
        text = server.get("/metrics").body.decode()
        for name in [
                'espalier_prompt_tokens_total{source="computed"}',
                'espalier_prompt_tokens_total{source="cached"}',
                'espalier_prompt_tokens_total{source="recomputed"}',
                "espalier_generation_tokens_total",
                'espalier_requests{state="running"}',
                'espalier_requests{state="waiting"}',
                'espalier_requests_total{finish="stop"}',
                'espalier_kv_pages{state="free"}',
                'espalier_kv_pages{state="private"}',
                'espalier_kv_pages{state="pending"}',
                'espalier_kv_pages{state="cached"}',
                'espalier_kv_pages{state="host"}',
                'espalier_kv_pages{state="disk"}',
                "espalier_kv_pages_total",
                "espalier_kv_pages_leased",
                "espalier_kv_evicted_pages_total",
                "espalier_preemptions_total",
                "espalier_ttft_seconds_count",
                "espalier_inter_token_seconds_sum",
                'espalier_mask_seconds_bucket{le="+Inf"}',
                "espalier_compile_seconds_count",
                "espalier_step_seconds_count",
        ]:
            assert f"\n{name} " in text, name
        assert "espalier_build_info{version=" in text


if __name__ == "__main__":
    run_tests()
