#!/usr/bin/env bash
# Triages the tickets of this folder against its policy, every answer forced into schema.json.
#
#   examples/ticket-triage/run.sh [--compare] [--clients N] [--tickets FILE] [--url URL]
#
# Installs what is missing, builds, fetches the default model, starts the server on a free port, prints a table,
# stops the server. Exit 0 only if every answer validates.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

setup_build_packages
setup_venv jsonschema==4.26.0
setup_build "$root/build"
setup_model
exec "$root/.venv/bin/python" "$root/examples/ticket-triage/triage.py" \
    --server "$root/build/espalier" --model "$model" "$@"
