"""Branches of one conversation and probabilities of choices, against separate requests and against the model's logits
in double precision.

usage: test_branches.py PATH_OF_ESPALIER [test …]
"""
import decimal
import json
import os
import subprocess
import sys
import tempfile

from kit import Server, Skip, joined, run_tests, test

try:
    import numpy
except ImportError:
    numpy = None

PROGRAM = sys.argv[1]
MODEL = os.path.join(os.environ.get("ESPALIER_TEST_MODELS", "models"), "SmolLM2-135M-Instruct.Q4_1.gguf")
BASE = [{"role": "system", "content": "You triage tickets. Answer with a priority, P1 for the most urgent. " * 6},
        {"role": "user", "content": "The printer in hall 4 prints every label twice since this morning."}]
ENDS = ("<|im_end|>", "<|endoftext|>")


def serve(*options):
    if not os.path.exists(MODEL):
        raise Skip("model file not fetched")
    return Server([PROGRAM, "serve", "-m", MODEL, "--port", "0", *options])


def chat(server, **fields):
    reply = server.post("/v1/chat/completions", {"messages": BASE, **fields}, timeout=120)
    assert reply.status == 200, reply.body
    return reply.json()


def refused(server, param, **fields):
    reply = server.post("/v1/chat/completions", {"messages": BASE, **fields})
    assert reply.status == 400 and reply.error()["param"] == param, (reply.status, reply.body)
    return reply.error()


def logits_of(ids):
    """[n, n_vocab] in double precision."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "logits")
        subprocess.run([PROGRAM, "logits", "-m", MODEL, "--tokens", ",".join(map(str, ids)), "--out", out,
                        "--log-level", "error"], check=True, stdout=subprocess.DEVNULL, timeout=120)
        flat = numpy.fromfile(out, dtype="<f4").astype(numpy.float64)
    return flat.reshape(len(ids), -1)


def log_softmax(row):
    top = row.max()
    return row - top - numpy.log(numpy.exp(row - top).sum())


@test
def choice_probabilities():
    if numpy is None:
        raise Skip("numpy is not installed")
    texts = ["P1", "P2", "P3", "P4", "P", "none of these priorities", "äö ☃"]
    with serve() as server:
        answer = chat(server, choice=texts, choice_scores=True, temperature=0)
        scores = answer["choices"][0]["choice_probabilities"]
        assert [s["text"] for s in scores] == texts
        assert abs(sum(s["probability"] for s in scores) - 1) < 1e-12
        prompt = server.post("/apply-template", {"messages": BASE}).json()["ids"]
        ends = [server.post("/tokenize", {"text": t, "special": True}).json()["ids"] for t in ENDS]
        ends = [ids[0] for ids in ends if len(ids) == 1]
        want = []
        for text in texts:
            label = server.post("/tokenize", {"text": text}).json()["ids"]
            rows = logits_of(prompt + label)[len(prompt) - 1:]
            total = sum(log_softmax(row)[token] for row, token in zip(rows, label))
            last = log_softmax(rows[len(label)])
            want.append(total + numpy.log(sum(numpy.exp(last[end]) for end in ends)))
        for score, logprob in zip(scores, want):
            assert abs(score["logprob"] - logprob) < 1e-9, (score, logprob)
        share = numpy.exp(numpy.array(want) - max(want))
        for score, probability in zip(scores, share / share.sum()):
            assert abs(score["probability"] - probability) < 1e-9, (score, probability)
        # Again from the cache, as a stream, beside others, in other orders: the same digits.
        again = chat(server, choice=texts[::-1], choice_scores=True)["choices"][0]["choice_probabilities"]
        assert {s["text"]: s["logprob"] for s in again} == {s["text"]: s["logprob"] for s in scores}
        events = server.post("/v1/chat/completions", {"messages": BASE, "choice": texts, "choice_scores": True,
                                                      "stream": True}).events()
        last = events[-2]["choices"][0]
        assert last["finish_reason"] == "stop" and last["choice_probabilities"] == scores
        plain = server.post("/v1/completions", {"prompt": ["A: ", "Priority: "], "choice": ["P1", "P2"],
                                                "choice_scores": True}).json()["choices"]
        assert len(plain) == 2 and all(len(c["choice_probabilities"]) == 2 for c in plain)
        assert "choice_probabilities" not in chat(server, choice=texts)["choices"][0]
        refused(server, "choice_scores", choice_scores=True)
        refused(server, "choice_scores", choice_scores=True, regex="P[1-4]")
        refused(server, "choice_scores", choice_scores=True, choice=texts, n=2)
        refused(server, "choice_scores", choice_scores=True, choice=texts, stop=["P"])
        refused(server, "choice_scores", choice_scores="yes", choice=texts)


def own(text):
    return [{"role": "assistant", "content": "Noted."}, {"role": "user", "content": text}]


SCHEMA = {"type": "object", "properties": {"n": {"enum": [0.10, 7]}}, "required": ["n"], "additionalProperties": False}
BRANCHES = [
    {"messages": own("Which priority?"), "choice": ["P1", "P2", "P3"], "max_tokens": 9},
    {"messages": own("Summarise it in a few words."), "max_tokens": 12},
    {"messages": own("A number?"), "response_format": {"type": "json_schema",
                                                       "json_schema": {"name": "n", "schema": SCHEMA}}},
    {"max_tokens": 5},
]


@test
def branches_are_separate_requests():
    """Branch i answers as a request of its own messages would with seed + i; the common part is computed once."""
    common = {"temperature": 1.2, "logprobs": True, "top_logprobs": 3, "max_tokens": 30}
    with serve() as server:
        forked = chat(server, branches=BRANCHES, seed=11, **common)
        assert [c["index"] for c in forked["choices"]] == [0, 1, 2, 3]
        computed = server.metric('espalier_prompt_tokens_total{source="computed"}')
        cached = server.metric('espalier_prompt_tokens_total{source="cached"}')
        usage = forked["usage"]
        assert usage["prompt_tokens"] == computed + cached, (usage, computed, cached)
        assert usage["prompt_tokens_details"]["cached_tokens"] == cached
        separate = []
        for index, branch in enumerate(BRANCHES):
            server.request("DELETE", "/v1/cache")
            fields = {**common, "seed": 11 + index, **{k: v for k, v in branch.items() if k != "messages"}}
            reply = server.post("/v1/chat/completions", {"messages": BASE + branch.get("messages", []), **fields})
            separate.append(reply.json())
        for one, alone in zip(forked["choices"], separate):
            for key in ("message", "finish_reason", "logprobs"):
                assert one[key] == alone["choices"][0][key], (key, one, alone)
        assert usage["prompt_tokens"] < sum(s["usage"]["prompt_tokens"] for s in separate) / 2
        assert usage["completion_tokens"] == sum(s["usage"]["completion_tokens"] for s in separate)
        assert json.loads(forked["choices"][2]["message"]["content"])["n"] in (0.1, 7)
        events = server.post("/v1/chat/completions", {"messages": BASE, "branches": BRANCHES, "seed": 11, **common,
                                                      "stream": True}).events()
        for index, one in enumerate(forked["choices"]):
            assert joined(events, index) == one["message"]["content"], (index, one)


@test
def schema_source_of_a_branch():
    """A number in a branch's schema is the decimal that was written, not the double nearest to it."""
    with serve() as server:
        body = json.dumps({"messages": BASE, "branches": [
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": 12345}}}}]})
        body = body.replace("12345", "0.1")
        reply = server.post("/v1/chat/completions", body)
        content = reply.json()["choices"][0]["message"]["content"]
        assert decimal.Decimal(content) == decimal.Decimal("0.1"), content


@test
def refusals():
    with serve() as server:
        refused(server, "branches", branches=[])
        refused(server, "branches", branches={})
        refused(server, "branches", branches=[{}] * 65)
        refused(server, "branches", branches=[{}, {}], n=2)
        refused(server, "branches[1]", branches=[{}, 5])
        refused(server, "branches[1].seed", branches=[{}, {"seed": 1}])
        refused(server, "branches[0].messages", branches=[{"messages": "hi"}])
        refused(server, "branches[0].max_tokens", branches=[{"max_tokens": 0}])
        refused(server, "branches[1].choice", branches=[{}, {"regex": "a", "choice": ["b"]}])
        error = refused(server, "branches[1].regex", branches=[{}, {"regex": "(a"}])
        assert error["code"].startswith("grammar_"), error
        assert refused(server, "branches[0].messages[2].role", branches=[{"messages": [{"role": "x", "content": ""}]}])
        long = [{"messages": [{"role": "user", "content": "word " * 9000}]}]
        assert refused(server, "messages", branches=[{}] + long)["code"] == "context_length_exceeded"
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        refused(server, "branches[0]", branches=[{}], tools=[tool])
        server.wait_metric("espalier_kv_pages_leased", 0)


if __name__ == "__main__":
    run_tests()
