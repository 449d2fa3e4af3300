"""A thousand streams at once over the scripted engine: nothing lost, nothing reordered, nobody waits for a slow reader.

usage: test_streams.py PATH_OF_ESPALIER_FAKE [test …]

Prints the memory of a connection and the events a second of processor time of the whole HTTP layer, engine included.
"""
import json
import selectors
import sys
import time

from kit import CHAT, PATIENCE, Server, chat_body, post_bytes, run_tests, test

FAKE = sys.argv[1]
PATHS = {CHAT: chat_body(stream=True),
         "/v1/messages": json.dumps({"max_tokens": 10000, "messages": [{"role": "user", "content": "hi"}],
                                     "stream": True}).encode(),
         "/v1/responses": json.dumps({"input": "hi", "stream": True, "store": False}).encode()}


def fake(n_tokens, **script):
    tokens = [b"%d " % number for number in range(n_tokens)]
    return Server([FAKE], script={"tokens": tokens, "n_batch": 4096, "n_queue": 4096, "n_ctx": 100000, **script})


def read_streams(socks, stop=None):
    """Reads all of them to their ends; what came, in the order of socks. stop: asked each time, ends early."""
    got = {sock: [] for sock in socks}
    with selectors.DefaultSelector() as selector:
        for sock in socks:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
        left = len(socks)
        while left > 0 and not (stop and stop(got)):
            for key, _ in selector.select(30) or [(None, None)]:
                assert key is not None, f"{left} streams are silent"
                data = key.fileobj.recv(1 << 16)
                got[key.fileobj].append(data)
                if data == b"" or b"[DONE]" in data or b"message_stop" in data or b"response.completed" in data:
                    selector.unregister(key.fileobj)
                    left -= 1
    return [b"".join(got[sock]) for sock in socks]


def data_of(raw):
    """The events of an answer as it came from the socket: its chunks joined."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"chunked" in head.lower(), head[:200]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[:int(size, 16)]
        rest = rest[int(size, 16) + 2:]
        if size == b"0":
            break
    return [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]


def text_of(path, events):
    parts = []
    for event in events:
        data = {} if event == "[DONE]" else json.loads(event)
        if path == CHAT:
            parts += [choice["delta"].get("content", "") for choice in data.get("choices", ())]
        elif data.get("type") == "content_block_delta":
            parts.append(data["delta"]["text"])
        elif data.get("type") == "response.output_text.delta":
            parts.append(data["delta"])
    return "".join(parts)


def start(server, path, n):
    socks = [server.connect() for _ in range(n)]
    for sock in socks:
        sock.sendall(post_bytes(PATHS[path], path))
    return socks


@test
def a_thousand_streams():
    n_streams, n_tokens = 1000, 60
    want = "".join(f"{number} " for number in range(n_tokens))
    for path in PATHS:
        with fake(n_tokens, start_ms=1500) as server:
            before_kb = server.memory_kb()
            socks = start(server, path, n_streams)
            server.wait_metric('espalier_requests{state="running"}', n_streams, 30)
            each = (server.memory_kb() - before_kb) * 1024 // n_streams
            cpu_s = server.cpu_s()
            raws = read_streams(socks)
            cpu_s = server.cpu_s() - cpu_s
            n_events = 0
            for raw in raws:
                events = data_of(raw)
                n_events += len(events)
                assert text_of(path, events) == want, "a stream lost or reordered events"
            for sock in socks:
                sock.close()
            print(f"# {path}: {n_streams} streams, {n_events} events, {n_events / max(cpu_s, 0.01):.0f} a second of "
                  f"one core; {each} bytes a connection")
            assert n_events >= n_streams * n_tokens and each < 160_000 * PATIENCE, each
            server.wait_metric("espalier_kv_pages_leased", 0)


@test
def bursts_are_whole():
    """An engine that is faster than the sockets: what waits is sent in parts, and stays in order."""
    n_tokens = 8000
    want = "".join(f"{number} " for number in range(n_tokens))
    with fake(n_tokens) as server:
        socks = start(server, CHAT, 16)
        assert all(text_of(CHAT, data_of(raw)) == want for raw in read_streams(socks))
        for sock in socks:
            sock.close()


@test
def nobody_waits_for_a_slow_reader():
    """Some do not read at all; the others are as quick as without them, and the slow ones lose nothing either."""
    n_tokens = 2000
    want = "".join(f"{number} " for number in range(n_tokens))
    with fake(n_tokens, delay_us=300) as server:
        took = []
        for n_slow in (0, 20):
            slow = start(server, CHAT, n_slow)
            begin = time.time()
            quick = start(server, CHAT, 20)
            raws = read_streams(quick)
            took.append(time.time() - begin)
            assert all(text_of(CHAT, data_of(raw)) == want for raw in raws)
            late = read_streams(slow) if slow else []
            assert all(text_of(CHAT, data_of(raw)) == want for raw in late), "what was read late is not whole"
            for sock in slow + quick:
                sock.close()
        print(f"# 20 streams: {took[0]:.2f} s alone, {took[1]:.2f} s beside 20 that are not read")
        assert took[1] < 3 * took[0] + 2, took


if __name__ == "__main__":
    run_tests()
