#!/usr/bin/env bash
# Builds the tool.
#
#   tools/fetch/build.sh OUT_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:?the folder for the tool}" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target/tools}/fetch
cd "$here"
cargo build --locked --release --target wasm32-wasip2 --target-dir "$target"
made=$target/wasm32-wasip2/release/tool_fetch.wasm
cmp -s "$made" "$out/fetch.wasm" || {
    cp "$made" "$out/.fetch.part"
    mv "$out/.fetch.part" "$out/fetch.wasm"
}
