#!/usr/bin/env bash
# Builds the tool, and beside it the runtime from which tools are made of scripts.
#
#   tools/eval-js/build.sh OUT_DIR
#
# RINGWALL_BAKE names the program that takes the snapshot; without it, it is built here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:?the folder for the tool}" && pwd)
target=${CARGO_TARGET_DIR:-$here/../../target/tools}
cd "$here"
cargo build --locked --release --target wasm32-wasip2 --package tool-eval-js

if [ -z "${RINGWALL_BAKE:-}" ]; then
    host=$(rustc -vV | sed -n 's/^host: //p')
    cargo build --locked --release --target "$host" --manifest-path bake/Cargo.toml --target-dir "$target/bake"
    RINGWALL_BAKE=$target/bake/$host/release/ringwall-bake
fi
runtime=$target/wasm32-wasip2/release/tool_eval_js.wasm
made=$target/eval-js.wasm
"$RINGWALL_BAKE" "$runtime" "$here/tool.json" "$made"
cmp -s "$made" "$out/eval-js.wasm" || {
    cp "$made" "$out/.eval-js.part"
    mv "$out/.eval-js.part" "$out/eval-js.wasm"
}
mkdir -p "$out/runtimes"
cmp -s "$runtime" "$out/runtimes/js.wasm" || cp "$runtime" "$out/runtimes/js.wasm"
