"""Espalier and llama.cpp side by side: same file, same threads, same prompt lengths, interleaved runs.

    tests/bench/compare_llama.py -m MODEL.gguf [--threads 2] [--repeat 5] [--prompt 512,2048] [--generate 128]

llama.cpp comes from the Python package llama-cpp-python (which builds it). Runs alternate, so that both see the same
neighbours on a shared machine; medians are compared, the spread is printed. One JSON object a row.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


class LlamaCpp:
    """llama.cpp through its C interface: prefill and greedy decode of one sequence."""

    def __init__(self, path, threads, n_ctx):
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
        config.n_ctx, config.n_batch, config.n_ubatch = n_ctx, 2048, 512
        config.n_threads = config.n_threads_batch = threads
        self.context = lib.llama_init_from_model(self.model, config)
        self.n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))

    def decode(self, ids):
        array = (ctypes.c_int32 * len(ids))(*ids)
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(array, len(ids))) != 0:
            raise SystemExit("llama_decode failed")
        self.lib.llama_synchronize(self.context)

    def prefill(self, n_prompt):
        ids = [(17 * i + 5) % (self.n_vocab - 1000) + 500 for i in range(n_prompt)]
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        started = time.perf_counter()
        self.decode(ids)
        return n_prompt / (time.perf_counter() - started)

    def generate(self, n_prompt, n_generate):
        self.prefill(n_prompt)
        started = time.perf_counter()
        for step in range(n_generate):
            self.decode([(29 * step + 7) % (self.n_vocab - 1000) + 500])
        return n_generate / (time.perf_counter() - started)


def espalier(args, work, n_prompt, n_generate):
    """Tokens per second of one `espalier bench` run."""
    command = [args.espalier, "bench", "-m", args.model, "--threads", str(args.threads), "--prompt", str(n_prompt),
               "--generate", str(n_generate), "--batch", "1", "--repeat", "1", "--json"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in text.splitlines()]
    return next(row["tokens_per_s"]["median"] for row in rows if row["work"] == work)


def spread(values):
    return {"median": round(statistics.median(values), 1), "min": round(min(values), 1), "max": round(max(values), 1)}


def compare(args, llama, work, n_prompt, n_generate):
    ours, theirs = [], []
    for _ in range(args.repeat):
        ours.append(espalier(args, work, n_prompt, n_generate))
        theirs.append(llama.prefill(n_prompt) if work == "prefill" else llama.generate(n_prompt, n_generate))
    print(json.dumps({"work": work, "prompt": n_prompt, "generate": n_generate, "threads": args.threads,
                      "espalier_tokens_per_s": spread(ours), "llama_cpp_tokens_per_s": spread(theirs),
                      "ratio": round(statistics.median(ours) / statistics.median(theirs), 2)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--espalier", default=str(ROOT / "build/espalier"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--prompt", default="512,2048")
    parser.add_argument("--generate", type=int, default=128)
    args = parser.parse_args()
    prompts = [int(part) for part in args.prompt.split(",")]
    llama = LlamaCpp(args.model, args.threads, max(prompts) + args.generate + 64)
    llama.prefill(prompts[0])
    for n_prompt in prompts:
        compare(args, llama, "prefill", n_prompt, 1)
    compare(args, llama, "decode", 16, args.generate)


if __name__ == "__main__":
    main()
