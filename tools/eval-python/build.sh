#!/usr/bin/env bash
# Builds the tool: CPython with the granted modules imported, as a snapshot.
#
#   tools/eval-python/build.sh OUT_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "${1:?the folder for the tool}" && pwd)
# shellcheck source=../toolchain/paths.sh
. "$here/../toolchain/paths.sh"
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

[ -x "$TOOLCHAIN/venv/bin/componentize-py" ] || {
    echo "componentize-py is missing; run tools/toolchain/setup.sh" >&2
    exit 1
}
# Only the sources: whatever else lies in the folder must not end up in the component.
mkdir "$build/app"
cp "$here"/{app,granted,sandbox,strict}.py "$build/app"
cd "$build"
"$TOOLCHAIN/venv/bin/componentize-py" -d "$here/../wit" -w tool-world \
    componentize --python-path app app -o "$build/tool.wasm"
"$TOOLCHAIN/venv/bin/python" "$here/../toolchain/add-manifest.py" \
    "$build/tool.wasm" "$here/tool.json" "$build/whole.wasm"
cmp -s "$build/whole.wasm" "$out/eval-python.wasm" || {
    mv "$build/whole.wasm" "$out/.eval-python.part"
    mv "$out/.eval-python.part" "$out/eval-python.wasm"
}
