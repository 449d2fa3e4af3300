"""POST /v1/embeddings: its shapes over the scripted engine, its numbers on tiny models against the float64 reference.

usage: test_embeddings.py PATH_OF_ESPALIER_FAKE PATH_OF_ESPALIER
"""
import base64
import os
import struct
import sys
import tempfile

FAKE, EXE = sys.argv[1], sys.argv.pop(2)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden"))
import make_tiny  # noqa: E402
import numpy as np  # noqa: E402
import reference  # noqa: E402
from kit import Server, at_once, run_tests, test  # noqa: E402

PATH = "/v1/embeddings"
BOS = 257


def fake(*options, **script):
    return Server([FAKE, *options], script={"text": "x", **script})


def unit(vector):
    return np.array(vector) / np.linalg.norm(vector)


@test
def shapes():
    with fake() as server:
        data = server.post(PATH, {"input": "ab", "model": "any"}).json()
        assert set(data) == {"object", "data", "model", "usage"} and data["object"] == "list", data
        assert data["usage"] == {"prompt_tokens": 3, "total_tokens": 3}, data["usage"]
        [one] = data["data"]
        assert one["object"] == "embedding" and one["index"] == 0
        want = unit([3, BOS + 97 + 98, BOS, 98, 1])
        assert np.allclose(one["embedding"], want, atol=1e-6)
        many = server.post(PATH, {"input": ["ab", "c", "ab"]}).json()
        assert [d["index"] for d in many["data"]] == [0, 1, 2] and many["usage"]["prompt_tokens"] == 8
        assert many["data"][0]["embedding"] == many["data"][2]["embedding"] == one["embedding"]
        ids = server.post(PATH, {"input": [BOS, 97, 98]}).json()
        assert ids["data"][0]["embedding"] == one["embedding"]
        mixed = server.post(PATH, {"input": [[BOS, 97, 98], "c"]}).json()
        assert mixed["data"][0]["embedding"] == one["embedding"] and len(mixed["data"]) == 2
        text = server.post(PATH, {"input": "ab", "encoding_format": "base64"}).json()["data"][0]["embedding"]
        assert list(struct.unpack("<5f", base64.b64decode(text, validate=True))) == [
            np.float32(x) for x in one["embedding"]
        ]
        for n in (1, 2, 3, 4, 5):
            for kind in ("float", "base64"):
                body = {"input": "ab", "dimensions": n, "encoding_format": kind}
                cut = server.post(PATH, body).json()["data"][0]["embedding"]
                cut = cut if kind == "float" else struct.unpack(f"<{n}f", base64.b64decode(cut, validate=True))
                assert np.allclose(cut, unit(want[:n]), atol=1e-6), n
        last = server.post(PATH, {"input": "ab", "pooling": "last"}).json()["data"][0]["embedding"]
        assert np.allclose(last, unit([3, BOS + 97 + 98, BOS, 98, 2]), atol=1e-6)
        warned = server.post(PATH, {"input": "ab", "input_type": "query", "user": "u"}).json()
        assert [w["param"] for w in warned["warnings"]] == ["input_type"]


@test
def refusals():
    with fake(n_ctx=16) as server:
        for body, param in [({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"),
                            ({"input": None}, "input"), ({"input": 3}, "input"), ({"input": {"a": 1}}, "input"),
                            ({"input": ["a", 3]}, "input"),
                            ({"input": ["a", ""]}, "input"), ({"input": [[]]}, "input"), ({"input": [1, "a"]}, "input"),
                            ({"input": [-1]}, "input"), ({"input": [70000]}, "input"), ({"input": [1.5]}, "input"),
                            ({"input": [True]}, "input"), ({"input": ["a"] * 2049}, "input"),
                            ({"input": "a", "dimensions": 0}, "dimensions"),
                            ({"input": "a", "dimensions": 6}, "dimensions"),
                            ({"input": "a", "dimensions": "2"}, "dimensions"),
                            ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
                            ({"input": "a", "encoding_format": 1}, "encoding_format"),
                            ({"input": "a", "pooling": "cls"}, "pooling"),
                            ({"input": "a", "model": 3}, "model")]:
            reply = server.post(PATH, body)
            assert reply.status == 400 and reply.error()["param"] == param, (body, reply.body)
        long = server.post(PATH, {"input": ["a", "b" * 17]})
        assert long.status == 400 and long.error()["code"] == "context_length_exceeded", long.body


@test
def against_the_reference():
    """In units of the vector's length: float32 and roundings to 8 or 11 bits are all that may differ."""
    for name, bound in (("llama_narrow", 1e-3), ("gemma3_f32", 1e-3)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name + ".gguf")
            make_tiny.make(next(m for m in make_tiny.MODELS if m["name"] == name), path)
            model = reference.Model(path, True)
            rng = np.random.default_rng(len(name))
            texts = [[int(t) for t in rng.integers(0, model.n_vocab, n)] for n in (1, 2, 3, 17, 70)]
            with Server([EXE, "serve", "-m", path, "--port", "0", "--max-batch", "8"]) as server:
                got = {
                    pooling: server.post(PATH, {"input": texts, "pooling": pooling}).json()["data"]
                    for pooling in ("mean", "last")
                }
                for index, text in enumerate(texts):
                    hidden = model.hidden(text)
                    mean, last = unit(hidden.mean(axis=0)), unit(hidden[-1])
                    errors = (np.linalg.norm(np.array(got["mean"][index]["embedding"]) - mean),
                              np.linalg.norm(np.array(got["last"][index]["embedding"]) - last))
                    print(f"# {name}, {len(text)} tokens: mean {errors[0]:.1e}, last {errors[1]:.1e}")
                    assert max(errors) < bound, (name, len(text), errors)
                    assert len(text) == 1 or np.linalg.norm(mean - last) > 10 * bound, "one would pass for the other"
                prompts = [{"prompt": texts[-1][:9], "max_tokens": 20}] * 4

                def again():
                    return server.post(PATH, {"input": texts}).json()["data"]

                def busy(body):
                    return lambda: server.post("/v1/completions", body)

                replies = at_once([again, *map(busy, prompts), again])
                assert replies[0] == replies[-1] == got["mean"], "other bits beside running requests"
                assert all(r.status == 200 for r in replies[1:-1])


@test
def official_client():
    import openai
    with fake() as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none")
        answer = client.embeddings.create(input=["ab", "c"], model="m", dimensions=3)
        assert [d.index for d in answer.data] == [0, 1] and answer.usage.total_tokens == 5
        assert np.allclose(answer.data[0].embedding, unit([3, BOS + 97 + 98, BOS]), atol=1e-6)


if __name__ == "__main__":
    run_tests()
