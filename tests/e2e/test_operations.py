"""Keys read again, TLS, Unix sockets, headers and log lines, over the scripted engine.

usage: test_operations.py PATH_OF_ESPALIER_FAKE [test …]
"""
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

from kit import CHAT, Server, Skip, chat_body, joined, run_tests, test

FAKE = sys.argv[1]
MESSAGES = "/v1/messages"


def fake(*options, **script):
    return Server([FAKE, *options], script={"text": "Hello world", **script})


def wait_status(server, key, status):
    deadline = time.time() + 5
    while server.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status != status:
        assert time.time() < deadline, f"{key} never gave {status}"
        time.sleep(0.02)


@test
def keys_are_read_again():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "keys")

        def write(text):
            with open(path, "w") as out:
                out.write(text)

        write("one\n")
        with fake("api-key-file", path, load_ms=300) as server:
            wait_status(server, "one", 200)
            wait_status(server, "two", 401)
            write("two\nthree\n")
            server.process.send_signal(signal.SIGHUP)
            wait_status(server, "two", 200)
            wait_status(server, "three", 200)
            wait_status(server, "one", 401)
            write("# nothing\n")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for(rb"the API keys stay as they were", 5)
            wait_status(server, "two", 200)
            os.remove(path)
            server.process.send_signal(signal.SIGHUP)
            time.sleep(0.1)
            wait_status(server, "two", 200)
            wait_status(server, "four", 401)


@test
def errors_and_ids_of_both_apis():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("secret\n")
        keys.flush()
        with fake("api-key-file", keys.name) as server:
            reply = server.post(MESSAGES, {}, headers={"X-Request-Id": "abc"})
            assert reply.status == 401 and reply.headers["request-id"] == "abc"
            assert "x-request-id" not in reply.headers
            data = reply.json()
            assert set(data) == {"type", "error", "request_id"} and data["type"] == "error", data
            assert data["error"]["type"] == "authentication_error" and data["request_id"] == "abc"
            reply = server.post(CHAT, {})
            assert reply.status == 401 and reply.error()["type"] == "authentication_error"
            assert reply.headers["x-request-id"].startswith("req_")
            allowed = server.post(CHAT, json.loads(chat_body()), headers={"x-api-key": "secret"})
            assert allowed.status == 200


# ---- TLS ----


def make_certificate(directory):
    cert, key = os.path.join(directory, "cert.pem"), os.path.join(directory, "key.pem")
    try:
        subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
            "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert
        ], check=True, capture_output=True)
    except FileNotFoundError:
        raise Skip("no openssl command to make a certificate with") from None
    return cert, key


@test
def tls():
    with tempfile.TemporaryDirectory() as directory:
        cert, key = make_certificate(directory)
        server = fake("tls-cert", cert, "tls-key", key, "max-body", "100000")
        server.tls.load_verify_locations(cert)
        with server:
            assert server.url.startswith("https://")
            assert server.chat().json()["choices"][0]["message"]["content"] == "Hello world"
            assert joined(server.chat(stream=True).events()) == "Hello world"
            big = server.post(CHAT, chat_body(user="x" * 300000))
            assert big.status == 413 and big.error()["code"] == "body_too_large"
            chunked = server.request("POST", CHAT, iter([b"x" * 60000] * 4))  # sent in chunks
            assert chunked.status == 413, chunked.status
            assert server.chat().status == 200
            raw = server.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", timeout=5)
            assert b"200 OK" not in raw, raw
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            with old.wrap_socket(server.connect()) as sock:
                assert sock.version() == "TLSv1.2"


@test
def tls_hang_up_cancels():
    with tempfile.TemporaryDirectory() as directory:
        cert, key = make_certificate(directory)
        server = fake("tls-cert", cert, "tls-key", key, text="x", repeat=True, delay_us=5000)
        server.tls.load_verify_locations(cert)
        with server:
            with server.tls.wrap_socket(server.connect(), server_hostname="127.0.0.1") as sock:
                body = chat_body(stream=True)
                sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" %
                             (CHAT.encode(), len(body), body))
                assert b"200 OK" in sock.recv(4096)
                server.wait_metric('espalier_requests{state="running"}', 1)
            server.wait_metric('espalier_requests{state="running"}', 0)
            server.wait_metric("espalier_kv_pages_leased", 0)


@test
def tls_mistakes():
    with tempfile.TemporaryDirectory() as directory:
        cert, key = make_certificate(directory)
        for options, words in [(["tls-cert", cert], b"go together"), (["tls-key", key], b"go together"),
                               (["tls-cert", cert, "tls-key", cert], b"cannot listen"),
                               (["tls-cert", "/nowhere", "tls-key", key], b"/nowhere")]:
            done = subprocess.run([FAKE, "/dev/null", *options], capture_output=True, timeout=20)
            assert done.returncode == 1 and words in done.stderr, (options, done.stderr)


# ---- Unix sockets ----


@test
def unix_socket():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "x.sock")
        left = socket.socket(socket.AF_UNIX)
        left.bind(path)  # nobody listens: left from a process that died
        left.close()
        with fake("host", path) as server:
            assert server.unix_path == path
            assert server.chat().json()["choices"][0]["message"]["content"] == "Hello world"
            assert joined(server.chat(stream=True).events()) == "Hello world"
            taken = subprocess.run([FAKE, server.script_path, "host", path], capture_output=True, timeout=20)
            assert taken.returncode == 1 and b"taken" in taken.stderr
            assert server.chat().status == 200
        assert not os.path.exists(path), "the socket file stays behind"
        with open(path, "w") as out:
            out.write("mine")
        taken = subprocess.run([FAKE, "/dev/null", "host", path], capture_output=True, timeout=20)
        assert taken.returncode == 1 and b"taken" in taken.stderr
        with open(path) as kept:
            assert kept.read() == "mine"


@test
def unix_hang_up_cancels():
    with tempfile.TemporaryDirectory() as directory:
        with fake("host", os.path.join(directory, "x.sock"), text="x", repeat=True, delay_us=5000) as server:
            with server.connect() as sock:
                body = chat_body(stream=True)
                sock.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" %
                             (CHAT.encode(), len(body), body))
                assert b"200 OK" in sock.recv(4096)
                server.wait_metric('espalier_requests{state="running"}', 1)
            server.wait_metric('espalier_requests{state="running"}', 0)


# ---- Log lines ----


@test
def log_lines_have_the_request_id():
    with fake() as server:
        server.chat()
        server.wait_for(rb"POST /v1/chat/completions 200 .*tokens=11 ttft=[\d.]+ms finish=stop id=req_\w+", 5)
        server.get("/v1/models", headers={"X-Request-Id": "mine"})
        server.wait_for(rb"GET /v1/models 200 [\d.]+ms id=mine", 5)


if __name__ == "__main__":
    run_tests()
