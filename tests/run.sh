#!/usr/bin/env bash
# Builds and runs every test that this machine can run.
#
#   tests/run.sh [--sanitize] [meson test arguments, e.g. --suite unit]
#
# --sanitize uses a second build with AddressSanitizer and UBSan. The last line is
# "N passed, N failed, N skipped", counting single tests, not programs.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../examples/setup.sh"

build=$root/build
options=()
setup=()
log=testlog.json
if [ "${1:-}" = --sanitize ]; then
    shift
    build=$root/build-sanitize
    options=(-Db_sanitize=address,undefined -Db_lundef=false)
    setup=(--setup sanitize)
    log=testlog-sanitize.json
fi

setup_build_packages
setup_packages openssl # makes the certificate of a test
setup_venv jsonschema==4.26.0 openai==3.57.0 anthropic==2.15.0 hypothesis==6.170.17 pydantic==2.14.4 numpy \
    jinja2==3.1.6 openai-agents==0.24.0 'pydantic-ai-slim[openai,anthropic]==2.68.0' langchain-openai==1.7.4 \
    litellm==1.110.2 tenacity==9.2.1 typer==0.29.2 rich==14.3.4 regex==2026.11.19 docstring_parser
# It asks for a JSON parser older than the one that openai needs, and works with the newer one.
setup_venv_alone instructor==1.17.0
setup_build "$build" "${options[@]}"
setup_model
setup_model_gemma

cd "$root"
status=0
meson test -C "$build" --no-rebuild --num-processes 2 --print-errorlogs "${setup[@]}" "$@" || status=$?
"$root/.venv/bin/python" "$root/tests/count.py" "$build/meson-logs/$log" || status=1
exit "$status"
