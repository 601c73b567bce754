#!/usr/bin/env bash
# Runs a static program behind an OCI runtime, or behind podman with the same files: in a root with nothing
# but the program and empty directories, with the runtime's own default configuration.
#
#   scripts/behind-bundle.sh RUNTIME PROGRAM ARGUMENT...     RUNTIME is crun, runc, runsc or podman
set -euo pipefail
runtime=${1:?usage: behind-bundle.sh RUNTIME PROGRAM ARGUMENT...}
program=$2
shift 2
bundle=$(mktemp -d)
name=ringwall-compare-$$
trap 'rm -rf "$bundle"' EXIT
mkdir -p "$bundle/rootfs"/{dev,etc,home,proc,root,run,sys,tmp,usr/bin,var/tmp}
chmod 1777 "$bundle/rootfs/tmp" "$bundle/rootfs/var/tmp"
cp "$program" "$bundle/rootfs/usr/bin/probe"

if [ "$runtime" = podman ]; then
    # As its documents say for code that is not trusted.
    podman run --rm --quiet --network=none --cap-drop=all --security-opt=no-new-privileges --read-only \
        --tmpfs=/tmp --ulimit=nofile=256:256 --ulimit=nproc=1024:1024 \
        --runtime="$(command -v runc || command -v crun)" --rootfs "$bundle/rootfs" /usr/bin/probe "$@"
    exit
fi
(cd "$bundle" && "$runtime" spec)
python3 - "$bundle/config.json" /usr/bin/probe "$@" <<'PYTHON'
import json, sys
path, words = sys.argv[1], sys.argv[2:]
config = json.load(open(path))
config["process"]["terminal"] = False
config["process"]["args"] = words
json.dump(config, open(path, "w"))
PYTHON
options=()
case $runtime in
# The way to run a guest that needs nothing of the host.
runsc) options=(--network=none --platform=ptrace) ;;
# It has no use for the control groups of hosts that mix both versions, and sets no limits by default.
crun) options=(--cgroup-manager=disabled) ;;
esac
cd "$bundle"
"$runtime" "${options[@]}" run "$name" </dev/null
