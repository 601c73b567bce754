#!/usr/bin/env bash
# The attacks of `ringwall verify` behind other sandboxes, side by side with ours: all attacks, every
# rival that is installed, the options that its own documents give for running untrusted commands.
#
#   scripts/compare-security.sh DIRECTORY-OF-PROGRAMS
set -euo pipefail
programs=${1:?usage: compare-security.sh DIRECTORY-OF-PROGRAMS}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
not_tested=()

attack() {
    local name=$1
    shift
    echo "compare-security: $name" >&2
    # A breach is what is to be found out here, so its exit code is none.
    "$programs/ringwall" verify "$@" -o json >"$work/$name.json" 2>"$work/$name.log" || true
    # A sandbox that did not start is told as such, and counts as nothing.
    python3 -c 'import json, sys; sys.exit(not json.load(open(sys.argv[1]))["walls"])' "$work/$name.json" 2>/dev/null && return
    why=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["skipped"][0]["reason"])' "$work/$name.json" 2>/dev/null) ||
        why=$(tail -n 1 "$work/$name.log")
    not_tested+=("$name: not tested here: $why")
    rm -f "$work/$name.json"
}

attack 1-process --wall process
attack 2-container --wall container
# As its manual's example: the host read-only, everything unshared.
if command -v bwrap >/dev/null; then
    attack 3-bubblewrap --behind "bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --unshare-all --die-with-parent --new-session"
fi
if command -v firejail >/dev/null; then
    attack 4-firejail --behind "firejail --quiet --noprofile --caps.drop=all --nonewprivs --seccomp --net=none --private-tmp"
fi
if command -v nsjail >/dev/null; then
    attack 5-nsjail --behind "nsjail --quiet --mode o --chroot / --"
fi
if command -v srt >/dev/null; then
    attack 6-sandbox-runtime --behind "srt"
fi
# A root of their own, the default configuration that they write themselves.
bundle=$(dirname "$(readlink -f "$0")")/behind-bundle.sh
number=10
for runtime in crun runc podman runsc; do
    if command -v "$runtime" >/dev/null; then
        attack "$number-$runtime" --behind "$bundle $runtime"
    fi
    number=$((number + 1))
done
attack 90-none --control

python3 - "$work" <<'PYTHON'
import json, os, sys
work = sys.argv[1]
names = sorted((name for name in os.listdir(work) if name.endswith(".json")),
               key=lambda name: int(name.split("-", 1)[0]))
reports = {name.split("-", 1)[1][:-5]: json.load(open(os.path.join(work, name))) for name in names}
counts, classes = {}, []
for name, report in reports.items():
    for wall in report["walls"]:
        for finding in wall["findings"]:
            key = (name, finding["class"])
            through, made = counts.get(key, (0, 0))
            tested = finding["verdict"] != "not-tested"
            counts[key] = (through + (finding["verdict"] == "breach"), made + tested)
            if finding["class"] not in classes:
                classes.append(finding["class"])
print("attacks that got through, of all that were made\n")
print(f"{'':<20}" + "".join(f"{name:>18}" for name in reports))
for of in classes:
    cells = (counts.get((name, of), (0, 0)) for name in reports)
    print(f"{of:<20}" + "".join(f"{f'{through}/{n}':>18}" for through, n in cells))
PYTHON
printf '%s\n' "${not_tested[@]}"
for rival in bwrap firejail nsjail srt crun runc podman docker runsc; do
    if command -v "$rival" >/dev/null; then
        echo "$rival: $("$rival" --version 2>&1 | head -n 1)"
    else
        echo "$rival: not installed, not tested here"
    fi
done
# Docker runs the same runtime as above, by a daemon.
if command -v docker >/dev/null; then
    docker info >/dev/null 2>&1 || echo "docker: its daemon does not run here, not tested"
fi
