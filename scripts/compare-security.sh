#!/usr/bin/env bash
# The attacks of `ringwall verify` behind other sandboxes, side by side with ours: all attacks, every
# rival that is installed, the options that its own documents give for running untrusted commands.
#
#   scripts/compare-security.sh DIRECTORY-OF-PROGRAMS
set -euo pipefail
programs=${1:?usage: compare-security.sh DIRECTORY-OF-PROGRAMS}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

attack() {
    local name=$1
    shift
    echo "compare-security: $name" >&2
    # A breach is what is to be found out here, so its exit code is none.
    "$programs/ringwall" verify "$@" -o json >"$work/$name.json" 2>"$work/$name.log" || true
    [ -s "$work/$name.json" ] || { echo "compare-security: $name was not tested: $(tail -n 1 "$work/$name.log")" >&2 && rm -f "$work/$name.json"; }
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
attack 9-none --control

python3 - "$work" <<'PYTHON'
import json, os, sys
work = sys.argv[1]
reports = {name.split("-", 1)[1][:-5]: json.load(open(os.path.join(work, name)))
           for name in sorted(os.listdir(work)) if name.endswith(".json")}
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
for rival in bwrap firejail nsjail srt; do
    command -v "$rival" >/dev/null && echo "$rival: $("$rival" --version 2>&1 | head -n 1)" || echo "$rival: not installed, not tested here"
done
