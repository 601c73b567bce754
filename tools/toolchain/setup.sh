#!/usr/bin/env bash
# Installs what the tools need beyond Rust: a C compiler for WASI (zig) and componentize-py.
#
#   tools/toolchain/setup.sh
#
# Both come as Python wheels of pinned versions, into a virtualenv of their own under
# ${RINGWALL_CACHE:-~/.cache/ringwall}/toolchain. Quick when it is all there already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=paths.sh
. "$here/paths.sh"

fail() {
    printf 'toolchain: %s\n' "$*" >&2
    exit 1
}

for target in wasm32-wasip2; do
    libraries=$(rustc --print target-libdir --target "$target" 2>/dev/null) && [ -d "$libraries" ] ||
        rustup target add "$target" || fail "Rust's $target is missing; run: rustup target add $target"
done

# The stamp is the list of pins itself: a changed pin installs anew.
if ! cmp -s "$here/requirements.txt" "$TOOLCHAIN/installed"; then
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        fail "python3 3.10 or newer is needed; install it, then run this again"
    rm -rf "$TOOLCHAIN/venv" "$TOOLCHAIN/installed"
    mkdir -p "$TOOLCHAIN"
    python3 -m venv "$TOOLCHAIN/venv" || fail "could not make a virtualenv; Debian has it in python3-venv"
    "$TOOLCHAIN/venv/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt" ||
        fail "could not install $(tr '\n' ' ' <"$here/requirements.txt")"
    cp "$here/requirements.txt" "$TOOLCHAIN/installed"
fi

# zig builds its C library once, at first use: here, not in the middle of someone's build.
check=$(mktemp -d)
trap 'rm -rf "$check"' EXIT
printf '#include <stdio.h>\nint main(void) { puts("ok"); }\n' >"$check/check.c"
"$here/cc" -O2 -o "$check/check.wasm" "$check/check.c" || fail "the C compiler for WASI does not work"
