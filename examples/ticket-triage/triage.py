"""Triage tickets through Espalier's OpenAI-compatible API and show what the prefix cache saved.

Each request is the same long policy (system message) and one ticket (user message); the answer is forced into
schema.json by the server and validated again here with jsonschema. Uses only the standard library besides.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import jsonschema

HERE = pathlib.Path(__file__).resolve().parent
SUMMARY_WIDTH = 44
MAX_TOKENS = 1000  # above what schema.json can need, so that no answer is cut


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


class Server:
    """Starts the server on a free port and stops it at the end."""

    def __init__(self, binary, model, extra):
        self.process = subprocess.Popen([binary, "serve", "-m", model, "--port", "0", *extra],
                                        stderr=subprocess.PIPE, text=True)
        self.url, self.plan = None, []
        for line in self.process.stderr:
            self.plan.append(line.rstrip())
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found.group(1)
                break
        if self.url is None:
            raise SystemExit("the server did not start:\n" + "\n".join(self.plan))
        threading.Thread(target=self.drain, daemon=True).start()
        self.wait_until_ready()

    def drain(self):
        for line in self.process.stderr:
            self.plan.append(line.rstrip())

    def wait_until_ready(self):
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=10):
                    return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit("the server ended while loading:\n" + "\n".join(self.plan))
                time.sleep(0.02)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def triage(url, policy, schema, ticket):
    """One ticket: returns the answer text, the usage and the seconds it took."""
    text = "Subject: {subject}\n\n{body}".format(**ticket)
    started = time.monotonic()
    reply = post(url + "/v1/chat/completions", {
        "model": "default",
        "messages": [{"role": "system", "content": policy}, {"role": "user", "content": text}],
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "triage", "schema": schema, "strict": True}},
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    })
    seconds = time.monotonic() - started
    return reply["choices"][0]["message"]["content"], reply["usage"], seconds


def fault_of(text, schema):
    """Why the answer is not valid, or None."""
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError) as error:
        return str(error).splitlines()[0]
    return None


def print_row(ticket, text, usage, seconds, fault):
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    if fault is None:
        answer = json.loads(text)
        shown = "{category:15} {priority:2} {routing[team]:9} {summary}".format(**answer)
        shown = shown if len(shown) <= SUMMARY_WIDTH + 28 else shown[:SUMMARY_WIDTH + 27] + "…"
    else:
        shown = "INVALID: " + fault
    tokens = f"{usage['prompt_tokens']:7} {cached:7} {usage['completion_tokens']:5}"
    print(f"{ticket['id']:4} {seconds:6.2f} {tokens}  {shown}", flush=True)


def run_all(url, policy, schema, tickets, clients, quiet=False):
    """Triages everything; returns total seconds, the number of valid answers and the usages in order."""
    if not quiet:
        tokens = f"{'prompt':>7} {'cached':>7} {'out':>5}"
        print(f"{'':4} {'time s':>6} {tokens}  {'category':15} {'p':2} {'team':9} summary")
    valid, usages = 0, []
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        results = pool.map(lambda ticket: triage(url, policy, schema, ticket), tickets)
        for ticket, (text, usage, seconds) in zip(tickets, results):
            fault = fault_of(text, schema)
            valid += fault is None
            usages.append(usage)
            if not quiet:
                print_row(ticket, text, usage, seconds, fault)
    return time.monotonic() - started, valid, usages


def report(label, seconds, valid, usages):
    prompt = sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    written = sum(usage["completion_tokens"] for usage in usages)
    print(f"{label}: {valid} of {len(usages)} valid, {seconds:.1f} s, {prompt} prompt tokens of which "
          f"{prompt - cached} computed, {written} tokens written")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=str(HERE.parents[1] / "build/espalier"), help="the espalier binary")
    parser.add_argument("--model", help="GGUF file for the server")
    parser.add_argument("--url", help="use a server that runs already, instead of starting one")
    parser.add_argument("--tickets", default=str(HERE / "tickets.jsonl"))
    parser.add_argument("--clients", type=int, default=4, help="requests at a time")
    parser.add_argument("--compare", action="store_true", help="also run with the prefix cache switched off")
    args = parser.parse_args()

    policy = (HERE / "policy.md").read_text()
    schema = json.loads((HERE / "schema.json").read_text())
    with open(args.tickets) as lines:
        tickets = [json.loads(line) for line in lines]

    server = None if args.url else Server(args.server, args.model, [])
    try:
        url = args.url or server.url
        policy_tokens = post(url + "/tokenize", {"text": policy})["count"]
        print(f"{len(tickets)} tickets against a policy of {len(policy.split())} words, {policy_tokens} tokens")
        seconds, valid, usages = run_all(url, policy, schema, tickets, args.clients)
    finally:
        if server is not None:
            server.stop()
    report("with the prefix cache", seconds, valid, usages)
    # The first ticket to arrive computes the policy; with several clients that need not be the first of the file.
    reused = sorted(min(usage["prompt_tokens_details"]["cached_tokens"], policy_tokens) for usage in usages)[1:]
    if reused:
        share = 100 * reused[0] / policy_tokens
        print(f"from the second ticket on, at least {share:.1f} % of the policy came from the cache")

    if args.compare:
        server = Server(args.server, args.model, ["--cache-off"])
        try:
            cold_seconds, cold_valid, cold = run_all(server.url, policy, schema, tickets, args.clients, quiet=True)
        finally:
            server.stop()
        report("without the cache", cold_seconds, cold_valid, cold)
        print(f"the cache made it {cold_seconds / seconds:.1f} times as fast")
        valid = min(valid, cold_valid)
    return 0 if valid == len(tickets) else 1


if __name__ == "__main__":
    sys.exit(main())
