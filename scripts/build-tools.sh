#!/usr/bin/env bash
# Builds the built-in tools into one folder, as NAME.wasm.
#
#   scripts/build-tools.sh OUT_DIR [NAME...]     default: all
#
# A tool is a folder of tools/ with a tool.json. One that needs more than Cargo has a build.sh,
# which gets OUT_DIR as an absolute path, runs in its own folder, and writes OUT_DIR/NAME.wasm.
# Files that did not change are not touched. CARGO_TARGET_DIR is honoured, in a subfolder `tools`.
set -euo pipefail

readonly TARGET=wasm32-wasip2

fail() {
    printf 'build-tools: %s\n' "$*" >&2
    exit 1
}

[ $# -ge 1 ] || fail "usage: scripts/build-tools.sh OUT_DIR [NAME...]"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift

cd "$(dirname "$0")/.."
CARGO_TARGET_DIR=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/tools
export CARGO_TARGET_DIR
cd tools

command -v cargo >/dev/null || fail "cargo is missing; install rustup, then run scripts/setup.sh"
[ -d "$(rustc --print sysroot)/lib/rustlib/$TARGET" ] ||
    fail "Rust cannot build for $TARGET; run: rustup target add $TARGET"

names=("$@")
if [ ${#names[@]} = 0 ]; then
    for manifest in */tool.json; do names+=("${manifest%/tool.json}"); done
fi

packages=() plain=() own=()
for name in "${names[@]}"; do
    [ -f "$name/tool.json" ] || fail "there is no tool $name: tools/$name/tool.json is missing"
    if [ -f "$name/build.sh" ]; then
        own+=("$name")
    else
        plain+=("$name")
        packages+=(--package "tool-$name")
    fi
done

if [ ${#plain[@]} != 0 ]; then
    cargo build --locked --release --target "$TARGET" "${packages[@]}"
fi
for name in "${plain[@]}"; do
    built=$CARGO_TARGET_DIR/$TARGET/release/tool_${name//-/_}.wasm
    # By rename: whoever watches the folder never sees half a file.
    cmp -s "$built" "$out/$name.wasm" ||
        { cp "$built" "$out/.$name.part" && mv "$out/.$name.part" "$out/$name.wasm"; }
done
for name in "${own[@]}"; do
    (cd "$name" && ./build.sh "$out") || fail "tools/$name/build.sh failed"
    [ -f "$out/$name.wasm" ] || fail "tools/$name/build.sh made no $name.wasm"
done
