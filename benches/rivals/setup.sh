#!/usr/bin/env bash
# Installs the rivals of the tools bench that no Debian package has: two Python packages, and
# wasmtime's own program, which is built here and takes some minutes the first time.
#
#   benches/rivals/setup.sh
#
# Pinned versions, into a virtualenv of their own under ${RINGWALL_CACHE:-~/.cache/ringwall}/bench.
# Quick when it is all there already. The bench runs without them, and says what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
place=${RINGWALL_CACHE:-${HOME:?}/.cache/ringwall}/bench

fail() {
    printf 'rivals: %s\n' "$*" >&2
    exit 1
}

# The stamp is the list of pins itself: a changed pin installs anew.
if ! cmp -s "$here/requirements.txt" "$place/installed"; then
    rm -rf "$place/venv" "$place/installed"
    mkdir -p "$place"
    python3 -m venv "$place/venv" || fail "could not make a virtualenv; Debian has it in python3-venv"
    "$place/venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt" || {
        rm -rf "$place/venv"
        fail "could not install $(tr '\n' ' ' <"$here/requirements.txt")"
    }
    cp "$here/requirements.txt" "$place/installed"
fi

# The version of the library that Ringwall's wardens run on.
wasmtime=$(sed -n '/^name = "wasmtime"$/{n;s/^version = "\(.*\)"$/\1/p}' "$here/../../Cargo.lock")
[ -n "$wasmtime" ] || fail "Cargo.lock names no version of wasmtime"
if [ "$("$place/wasmtime/bin/wasmtime" --version 2>/dev/null | cut -d' ' -f2)" != "$wasmtime" ]; then
    cargo install -q --locked --force --root "$place/wasmtime" --version "$wasmtime" \
        --no-default-features --features run,compile,cranelift wasmtime-cli ||
        fail "could not build wasmtime $wasmtime"
fi
