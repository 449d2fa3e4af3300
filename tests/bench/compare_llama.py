"""Espalier and llama.cpp side by side: same file, same threads, same prompt lengths, interleaved runs.

    tests/bench/compare_llama.py -m MODEL.gguf [--threads 2] [--repeat 5] [--prompt 512,2048] [--generate 128]
                                 [--shared 2048 --batch 32 --shared-generate 64]
    tests/bench/compare_llama.py --shape 0.5b:Q4_0 --shape 1b:Q8_0 --shape 1b:Q4_K_M --prompt 512

llama.cpp comes from the Python package llama-cpp-python (which builds it), its weights not mapped. Runs alternate, so
that both see the same neighbours on a shared machine; medians are compared, the spread is printed. One JSON object a
row. --shape writes random weights of a shape and type (make_model.py) into --models-dir and keeps the file.
The first row holds the machine's ceilings (bench_machine); prefill rows tell which part of the 8-bit peak the layers'
multiplications take, decode rows which part of the read bandwidth the weights take.
With --shared, --batch sequences continue one prefix with 16 tokens of their own; seconds from the prefix's cold start
to the last token. llama.cpp computes the prefix once and copies it to the other sequences of one KV store.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN_TOKENS = 16


class LlamaCpp:
    """llama.cpp through its C interface."""

    def __init__(self, path, threads, n_ctx, n_seqs):
        import llama_cpp as lib

        self.lib = lib
        lib.llama_backend_init()
        self.log = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self.log, ctypes.c_void_p(0))
        params = lib.llama_model_default_params()
        params.use_mmap = False
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        config = lib.llama_context_default_params()
        config.n_ctx, config.n_batch, config.n_ubatch, config.n_seq_max = n_ctx, 2048, 512, n_seqs
        config.kv_unified = True
        config.n_threads = config.n_threads_batch = threads
        self.context = lib.llama_init_from_model(self.model, config)
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))

    def close(self):
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)

    def token(self, i):
        return (17 * i + 5) % (self.n_vocab - 1000) + 500

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def decode(self, rows):
        """rows: (token, position, sequence, wants logits)."""
        for at in range(0, len(rows), 2048):
            part = rows[at : at + 2048]
            batch = self.lib.llama_batch_init(len(part), 0, 1)
            batch.n_tokens = len(part)
            for i, (token, pos, seq, wanted) in enumerate(part):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, pos, 1, wanted
                batch.seq_id[i][0] = seq
            failed = self.lib.llama_decode(self.context, batch)
            self.lib.llama_batch_free(batch)
            if failed != 0:
                raise SystemExit("llama_decode failed")
        self.lib.llama_synchronize(self.context)

    def prompt_rows(self, n):
        return [(self.token(i), i, 0, i == n - 1) for i in range(n)]

    def prefill(self, n_prompt):
        self.clear()
        rows = self.prompt_rows(n_prompt)
        started = time.perf_counter()
        self.decode(rows)
        return n_prompt / (time.perf_counter() - started)

    def generate(self, n_prompt, n_generate):
        self.prefill(n_prompt)
        started = time.perf_counter()
        for step in range(n_generate):
            self.decode([(self.token(29 * step), n_prompt + step, 0, True)])
        return n_generate / (time.perf_counter() - started)

    def shared(self, n_shared, n_seqs, n_generate):
        """Seconds for all sequences."""
        self.clear()
        started = time.perf_counter()
        self.decode(self.prompt_rows(n_shared))
        memory = self.lib.llama_get_memory(self.context)
        for seq in range(1, n_seqs):
            self.lib.llama_memory_seq_cp(memory, 0, seq, -1, -1)
        self.decode(
            [
                (self.token(31 * seq + i), n_shared + i, seq, i == OWN_TOKENS - 1)
                for seq in range(n_seqs)
                for i in range(OWN_TOKENS)
            ]
        )
        for step in range(n_generate - 1):
            pos = n_shared + OWN_TOKENS + step
            self.decode([(self.token(37 * seq + step), pos, seq, True) for seq in range(n_seqs)])
        return time.perf_counter() - started


def espalier(args, model, work, n_prompt, n_generate, batch=1, shared=0):
    """The row of one work of one `espalier bench` run."""
    command = [args.espalier, "bench", "-m", model, "--threads", str(args.threads), "--prompt", str(n_prompt)]
    command += ["--generate", str(n_generate), "--batch", str(batch), "--shared", str(shared)]
    text = subprocess.run(command + ["--repeat", "1", "--json"], check=True, capture_output=True, text=True).stdout
    return next(row for row in map(json.loads, text.splitlines()) if row["work"] == work)


def spread(values):
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


def sizes(args, model):
    """Operations of a token in the layers' matrices, and bytes of all weights that a token reads."""
    command = [args.espalier, "inspect", model, "--json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    tensors = json.loads(text)["tensors"]
    ops = sum(2 * t["dims"][0] * t["dims"][1] for t in tensors if t["name"].startswith("blk.") and len(t["dims"]) == 2)
    has_head = any(t["name"] == "output.weight" for t in tensors)
    return ops, sum(t["bytes"] for t in tensors if not (has_head and t["name"] == "token_embd.weight"))


class Comparison:
    def __init__(self, args, model, ceilings):
        self.args, self.model, self.ceilings = args, model, ceilings
        self.ops, self.bytes = sizes(args, model)
        n_ctx = max(max(args.prompts), 16) + args.generate + 64
        n_ctx = max(n_ctx, args.shared + args.batch * (OWN_TOKENS + args.shared_generate) + 64)
        self.llama = LlamaCpp(model, args.threads, n_ctx, args.batch)
        self.llama.prefill(min(args.prompts))

    def row(self, work, ours, theirs, ratio, **more):
        name = pathlib.Path(self.model).name
        line = {"work": work, "model": name, "threads": self.args.threads, **more, "espalier": spread(ours)}
        print(json.dumps({**line, "llama_cpp": spread(theirs), "ratio": round(ratio, 2)}), flush=True)

    def rates(self, work, n_prompt, n_generate):
        ours, theirs = [], []
        for _ in range(self.args.repeat):
            row = espalier(self.args, self.model, work, n_prompt, n_generate)
            ours.append(row["tokens_per_s"]["median"])
            prefill = work == "prefill"
            theirs.append(self.llama.prefill(n_prompt) if prefill else self.llama.generate(n_prompt, n_generate))
        rate = statistics.median(ours)
        part, of = self.bytes * rate / 1e9, "read_gb_per_s"
        if work == "prefill":
            part, of = self.ops * rate / 1e9, "vnni_gops"
        share = {"of_" + of: round(part / self.ceilings[of], 3)} if self.ceilings[of] else {}
        more = {"prompt": n_prompt, "generate": n_generate, "unit": "tokens/s", **share}
        self.row(work, ours, theirs, rate / statistics.median(theirs), **more)

    def shared(self):
        a, ours, theirs = self.args, [], []
        for _ in range(a.repeat):
            row = espalier(a, self.model, "shared", OWN_TOKENS, a.shared_generate, a.batch, a.shared)
            ours.append(row["total_s"]["median"])
            theirs.append(self.llama.shared(a.shared, a.batch, a.shared_generate))
        more = {"batch": a.batch, "shared": a.shared, "generate": a.shared_generate, "unit": "s"}
        self.row("shared", ours, theirs, statistics.median(theirs) / statistics.median(ours), **more)


def models(args):
    """The given file, and files of the wanted shapes."""
    if args.model:
        yield args.model
    folder = pathlib.Path(args.models_dir)
    for shape in args.shape:
        path = folder / (shape.replace(":", "-") + ".gguf")
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            maker = str(pathlib.Path(__file__).with_name("make_model.py"))
            subprocess.run([sys.executable, maker, shape, str(path)], check=True)
        yield str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--models-dir", default=str(ROOT / "build/bench-models"))
    parser.add_argument("--espalier", default=str(ROOT / "build/espalier"))
    parser.add_argument("--machine", default=str(ROOT / "build/tests/bench/bench_machine"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prompt", default="512,2048")
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--shared-generate", type=int, default=64)
    args = parser.parse_args()
    if not args.model and not args.shape:
        parser.error("-m or --shape is needed")
    args.prompts = [int(part) for part in args.prompt.split(",")]
    machine = subprocess.run([args.machine, str(args.threads)], check=True, capture_output=True, text=True).stdout
    print(machine.strip(), flush=True)
    for model in models(args):
        comparison = Comparison(args, model, json.loads(machine))
        for n_prompt in args.prompts:
            comparison.rates("prefill", n_prompt, 1)
        comparison.rates("decode", 16, args.generate)
        if args.shared:
            comparison.shared()
        comparison.llama.close()


if __name__ == "__main__":
    main()
