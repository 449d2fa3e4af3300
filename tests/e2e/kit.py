"""Servers to test against, raw sockets, and TAP lines. Every test starts its own server on a free port."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import described

CHAT = "/v1/chat/completions"
tests = []


def sanitized():
    """A build that is slower, and whose memory is the sanitizer's more than its own."""
    if len(sys.argv) < 2 or not os.path.isfile(sys.argv[1]):
        return False
    with open(sys.argv[1], "rb") as program:
        return b"__asan_init" in program.read()


PATIENCE = 20 if sanitized() else 1  # how much longer to wait for what must come


def test(function):
    """Registers a test; its first doc line or name is what TAP shows."""
    tests.append(function)
    return function


class Skip(Exception):
    pass


def run_tests():
    """Runs all registered tests, or those named on the command line after the server's path."""
    names = sys.argv[2:]
    bad = 0
    chosen = [t for t in tests if not names or t.__name__ in names]
    print(f"TAP version 13\n1..{len(chosen)}")
    for number, function in enumerate(chosen, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {function.__name__} # SKIP {reason}", flush=True)
        except Exception:  # the next test must run whatever this one did
            bad += 1
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            print(f"not ok {number} - {function.__name__}", flush=True)
    sys.exit(1 if bad else 0)


class Server:
    """A server process; use it as a context. `script` makes it the scripted one."""

    def __init__(self, args, script=None, must_stop_well=True):
        self.dir = tempfile.TemporaryDirectory()
        self.must_stop_well = must_stop_well
        self.script_path = os.path.join(self.dir.name, "script.json")
        if script is not None:
            self.script(**script)
            args = [args[0], self.script_path, *args[1:]]
        self.log = open(os.path.join(self.dir.name, "log"), "w+b")
        self.process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=self.log)
        line = self.wait_for(rb"listening on (?:http|unix)[^\s]*\n", 20).decode().split()[-1]
        self.unix_path = line[5:] if line.startswith("unix:") else None
        self.tls = ssl.create_default_context() if line.startswith("https:") else None
        self.port = None if self.unix_path else int(line.rsplit(":", 1)[1])
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def wait_for(self, pattern, limit_s):
        deadline = time.time() + limit_s
        while time.time() < deadline:
            found = re.search(pattern, self.text())
            if found:
                return int(found[1]) if found.groups() else found[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError(f"no {pattern} in: {self.text()[-2000:]}")

    def text(self):
        with open(self.log.name, "rb") as log:
            return log.read()

    def logged(self, *parts, count=1):
        """The log, once each of parts (bytes) stands in it: a request's line may come a moment after its answer."""
        deadline = time.time() + 10 * PATIENCE
        while any(self.text().count(part) < count for part in parts) and time.time() < deadline:
            time.sleep(0.02)
        return self.text()

    def script(self, text=None, tokens=None, **rest):
        """What the next requests answer: text in pieces of one character, or tokens as byte strings."""
        if tokens is None:
            tokens = [c.encode() for c in text or ""]
        data = json.dumps({"tokens": [t.hex() for t in tokens], **rest})
        with open(self.script_path + ".new", "w") as out:
            out.write(data)
        os.replace(self.script_path + ".new", self.script_path)

    def ready(self):
        deadline = time.time() + 60
        while self.get("/health").status != 200:
            assert time.time() < deadline, "never ready"
            time.sleep(0.01)
        return self

    def __enter__(self):
        return self.ready()

    def __exit__(self, kind, value, trace):
        code = self.stop()
        log = self.text().decode(errors="replace")
        if kind is not None:
            for line in log.splitlines()[-30:]:
                print(f"# server: {line[:300]}")
        self.log.close()
        self.dir.cleanup()
        bad = re.search(r"(?s)(runtime error|AddressSanitizer|LeakSanitizer|ThreadSanitizer).*", log)
        if kind is None and self.must_stop_well:
            assert bad is None, bad[0][:3000]
            assert code == 0, f"the server ended with {code}: {log[-1000:]}"

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    # ---- requests ----

    def request(self, method, path, body=None, headers=None, timeout=60):
        timeout *= PATIENCE
        if self.tls:
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.tls)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if self.unix_path:
            connection.sock = self.connect()
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        headers = dict((k.lower(), v) for k, v in reply.getheaders())
        described.check_answer(method, path, reply.status, headers, data)
        return Reply(reply.status, headers, data)

    def get(self, path, **rest):
        return self.request("GET", path, **rest)

    def post(self, path, body, **rest):
        return self.request("POST", path, body, **rest)

    def chat(self, text="hi", **fields):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def metric(self, name):
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split(" ")[1])
        raise AssertionError(f"no metric {name}")

    def wait_metric(self, name, value, limit_s=5):
        deadline = time.time() + limit_s * PATIENCE
        while (now := self.metric(name)) != value:
            assert time.time() < deadline, f"{name} is {now}, not {value}"
            time.sleep(0.02)

    def connect(self):
        if self.unix_path:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(30)
            sock.connect(self.unix_path)
            return sock
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, data, timeout=30):
        """Sends bytes as they are and reads until the server closes, or until the timeout."""
        with contextlib.closing(self.connect()) as sock:
            sock.settimeout(timeout)
            with contextlib.suppress(OSError):
                sock.sendall(data)
            return read_all(sock)

    def memory_kb(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            parts = stat.read().rsplit(")", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


class Reply:

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return strict_json(self.body)

    def error(self):
        """The error object, with its shape checked."""
        error = self.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str) and error["message"], error
        assert isinstance(error["type"], str), error
        assert error["param"] is None or isinstance(error["param"], str), error
        assert error["code"] is None or isinstance(error["code"], str), error
        return error

    def events(self):
        """The data of a server-sent event stream, framing checked; [DONE] is left as a string."""
        assert self.headers["content-type"].startswith("text/event-stream"), self.headers
        text = self.body.decode("utf-8")
        assert text.endswith("\n\n"), text[-80:]
        result = []
        for event in text[:-2].split("\n\n"):
            if event.startswith(":"):
                continue
            name, colon, rest = event.partition("\n")
            event = rest if colon and name.startswith("event: ") else event
            assert event.startswith("data: ") and "\n" not in event, event
            data = event[6:]
            result.append(data if data == "[DONE]" else strict_json(data))
        return result


def named_events(reply):
    """The data of events that have a name, which is their type. The framing is checked."""
    assert reply.headers["content-type"].startswith("text/event-stream"), reply.headers
    text = reply.body.decode()
    assert text.endswith("\n\n") and "[DONE]" not in text
    result = []
    for event in text[:-2].split("\n\n"):
        name, data = event.split("\n")
        assert name.startswith("event: ") and data.startswith("data: "), event
        result.append(strict_json(data[6:]))
        assert result[-1]["type"] == name[7:], event
    return result


def numbered_events(reply):
    """Named events that count up."""
    result = named_events(reply)
    assert [e["sequence_number"] for e in result] == list(range(len(result)))
    return result


def strict_json(text):

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def joined(events, index=0):
    """The text of one choice of a chat stream."""
    return "".join(c["delta"].get("content") or "" for e in events if e != "[DONE]" for c in e["choices"]
                   if c["index"] == index)


def read_all(sock):
    data = b""
    with contextlib.suppress(OSError):
        while part := sock.recv(65536):
            data += part
    return data


def at_once(functions):
    """Runs functions in threads; returns their results in order, raises the first exception."""
    results = [None] * len(functions)

    def call(index):
        try:
            results[index] = (functions[index](), None)
        except Exception as error:  # handed to the caller below
            results[index] = (None, error)

    threads = [threading.Thread(target=call, args=(index, )) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for result in results:
        assert result is not None, "a request never ended"
        if result[1] is not None:
            raise result[1]
    return [result[0] for result in results]


def chat_body(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def post_bytes(body, path=CHAT, extra=b""):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s" % (path.encode(), len(body), extra, body)
