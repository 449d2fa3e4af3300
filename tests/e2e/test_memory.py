#!/usr/bin/env python3
"""Memory, measured: opening a real model and computing until the pages of a small pool have all been used stays
within the plan. A large matrix of the file that stayed mapped while it is packed would show here. As TAP.

  test_memory.py ESPALIER
"""
import json
import os
import subprocess
import sys

from kit import Skip, run_tests, test

MODELS = os.environ.get("ESPALIER_TEST_MODELS", "models")
MARGIN = 1.05  # program text, stacks, the allocator's own
POOL_BYTES = 8 << 20
PROMPT, GENERATE, BATCH = 300, 40, 2


def check(name):
    path = os.path.join(MODELS, name)
    if not os.path.exists(path):
        raise Skip("model file not fetched")
    options = {"--kv-bytes": POOL_BYTES, "--ctx": 512, "--max-batch": 4, "--prompt": PROMPT, "--generate": GENERATE,
               "--batch": BATCH, "--repeat": 1}
    args = [sys.argv[1], "bench", "-m", path, "--json"]
    for option, value in options.items():
        args += [option, str(value)]
    done = subprocess.run(args, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout.splitlines()[-1])
    peak, plan = row["peak_bytes"], row["plan_bytes"]
    print(f"# {name}: peak {peak / 1e6:.1f} MB, plan {plan / 1e6:.1f} MB, file {os.path.getsize(path) / 1e6:.1f} MB")
    assert row["work"] == "decode" and row["batch"] == BATCH
    assert peak <= MARGIN * plan, f"{peak} bytes, but the plan says {plan}"
    assert plan < os.path.getsize(path) * 1.5, "a plan so large would hide anything"


@test
def smollm2():
    check("SmolLM2-135M-Instruct.Q4_1.gguf")


@test
def gemma3():
    """Three quarters of the file are one matrix."""
    check("gemma-3-270m-Q4_K_M.gguf")


run_tests()
