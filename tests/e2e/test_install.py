"""What `meson install` puts down, as a program outside this tree finds it: the binary, the headers, the library.

usage: test_install.py BUILD [test …], with CC, CFLAGS and MESON in the environment. Installs into a folder of its own.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from kit import Skip, run_tests, test

BUILD = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = pathlib.Path(os.environ.get("ESPALIER_TEST_MODELS", ROOT / "models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
folder = tempfile.TemporaryDirectory()


def run(*args, **options):
    done = subprocess.run([str(arg) for arg in args], capture_output=True, text=True, timeout=120, **options)
    assert done.returncode == 0, (args, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


def only(pattern):
    found = list(pathlib.Path(folder.name).glob(pattern))
    assert len(found) == 1, (pattern, found)
    return found[0]


def pkg_config(*args):
    """As if the folder of this test were the root of the system."""
    pc = only("**/espalier.pc")
    prefix = re.search(r"^prefix=/*(.*)$", pc.read_text(), re.MULTILINE)[1]
    return run("pkg-config", f"--define-variable=prefix={folder.name}/{prefix}", *args, pc)


def install():
    if not any(pathlib.Path(folder.name).iterdir()):
        run(os.environ["MESON"], "install", "-C", BUILD, "--no-rebuild", "--destdir", folder.name)


def example():
    """examples/triage.c, built in a folder that knows nothing of this tree."""
    if shutil.which("pkg-config") is None:
        raise Skip("no pkg-config")
    install()
    program = pathlib.Path(folder.name) / "triage"
    if not program.exists():
        source = shutil.copy(ROOT / "examples/triage.c", folder.name)
        flags = shlex.split(os.environ.get("CFLAGS", ""))
        run(*shlex.split(os.environ["CC"]), *flags, source, "-o", program,
            *shlex.split(pkg_config("--cflags", "--libs")), cwd=folder.name)
    return program


@test
def one_version_everywhere():
    install()
    header = re.search(r'#define ESP_VERSION "(.*)"', only("**/espalier.h").read_text())[1]
    assert run(only("**/bin/espalier"), "--version").split() == ["espalier", header]
    if shutil.which("pkg-config") is None:
        raise Skip("no pkg-config")
    assert pkg_config("--modversion").strip() == header


@test
def example_builds_from_what_is_installed():
    done = subprocess.run([example()], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == "usage: triage MODEL.gguf\n", done


@test
def example_answers_and_shares_its_policy():
    if not MODEL.exists():
        raise Skip("model file not fetched")
    lines = run(example(), MODEL).splitlines()
    assert len(lines) == 6, lines
    for answer, figures in zip(lines[::2], lines[1::2]):
        answer = json.loads(answer)
        assert list(answer) == ["category", "priority", "reason"], answer
        assert answer["priority"] in ("P1", "P2", "P3", "P4"), answer
        n_prompt, n_cached = map(int, re.match(r"  (\d+) prompt tokens, (\d+) of them cached", figures).groups())
        assert 0 <= n_cached < n_prompt, figures
        if figures != lines[1]:
            assert n_cached > 50, figures


if __name__ == "__main__":
    with folder:
        run_tests()
