#!/usr/bin/env bash
# Builds the built-in tools into one folder, as NAME.wasm.
#
#   scripts/build-tools.sh [--quick] OUT_DIR [NAME...]     default: all
#
# With --quick, tools that take many minutes are left out unless they are in the cache; the file
# left-out in OUT_DIR then names them.
#
# A tool is a folder of tools/ with a tool.json. One that needs more than Cargo has a build.sh,
# which gets OUT_DIR as an absolute path, runs in its own folder, and writes OUT_DIR/NAME.wasm.
# Files that did not change are not touched. CARGO_TARGET_DIR is honoured, in a subfolder `tools`.
#
# What was built is kept in ${RINGWALL_CACHE:-~/.cache/ringwall}/tools by a hash of all that it was
# made from, so that another clone need not build it: the largest take minutes. No cache directory,
# no cache; RINGWALL_TOOLS_CACHE=no builds everything.
set -euo pipefail

readonly TARGET=wasm32-wasip2
# Of each tool, in the cache.
readonly KEPT_VERSIONS=4
# 8 to 15 minutes of computing each, for the compilers, linters and formatters that they are made of.
readonly DEAR="eval-js format lint"

fail() {
    printf 'build-tools: %s\n' "$*" >&2
    exit 1
}

quick=
if [ "${1:-}" = --quick ]; then
    quick=yes
    shift
fi
[ $# -ge 1 ] || fail "usage: scripts/build-tools.sh [--quick] OUT_DIR [NAME...]"
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift

cd "$(dirname "$0")/.."
CARGO_TARGET_DIR=$(mkdir -p "${CARGO_TARGET_DIR:-target}" && cd "${CARGO_TARGET_DIR:-target}" && pwd)/tools
export CARGO_TARGET_DIR
cd tools
command -v cargo >/dev/null || fail "cargo is missing; install rustup, then run scripts/setup.sh"

cache=
if [ "${RINGWALL_TOOLS_CACHE:-}" != no ]; then
    cache=${RINGWALL_CACHE:-${HOME:-/nonexistent}/.cache/ringwall}/tools
    # It gives out programs: nobody else may be able to write there.
    { mkdir -p -m 700 "$cache" && [ -O "$cache" ] && [ -w "$cache" ]; } 2>/dev/null || cache=
fi

# What every tool is made from, besides its own folder.
shared=$({
    rustc --version
    find sdk syntax walk wit toolchain .cargo Cargo.toml Cargo.lock ../scripts/build-tools.sh -type f -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum
} | sha256sum)

key_of() {
    { printf '%s\n' "$shared" && find "$1" -type f -not -path '*/__pycache__/*' -print0 |
        LC_ALL=C sort -z | xargs -0 sha256sum; } | sha256sum | cut -d ' ' -f 1
}

# The files that a tool leaves in the folder; the first is the tool.
files_of() {
    echo "$1.wasm"
    if [ "$1" = eval-js ]; then echo runtimes/js.wasm; fi
}

# By rename: whoever watches the folder never sees half a file.
place() {
    cmp -s "$1" "$2" && return
    mkdir -p "$(dirname "$2")" && cp "$1" "$2.part" && mv "$2.part" "$2"
}

restore() {
    local name=$1 kept=$cache/$1-$(key_of "$1") file
    [ -n "$cache" ] && [ -d "$kept" ] || return 1
    (cd "$kept" && sha256sum --quiet --check sums) >&2 || return 1
    for file in $(files_of "$name"); do place "$kept/$file" "$out/$file" || return 1; done
    # The ones used last are kept.
    touch "$kept"
}

keep() {
    local name=$1 kept=$cache/$1-$(key_of "$1") part file
    [ -n "$cache" ] || return 0
    part=$(mktemp -d "$cache/.part.XXXXXX")
    for file in $(files_of "$name"); do
        mkdir -p "$(dirname "$part/$file")"
        cp "$out/$file" "$part/$file"
    done
    # shellcheck disable=SC2046 # names without spaces, by the rules of tools
    (cd "$part" && sha256sum $(files_of "$name") >sums)
    rm -rf "$kept"
    # Another clone may have been quicker.
    mv -T "$part" "$kept" 2>/dev/null || rm -rf "$part"
    find "$cache" -mindepth 1 -maxdepth 1 -regex ".*/$name-[0-9a-f]*" -printf '%T@ %p\0' |
        sort -z -rn | tail -z -n +$((KEPT_VERSIONS + 1)) | cut -z -d ' ' -f 2- | xargs -0 -r rm -rf
}

names=("$@")
if [ ${#names[@]} = 0 ]; then
    for manifest in */tool.json; do names+=("${manifest%/tool.json}"); done
fi

is_dear() {
    case " $DEAR " in *" $1 "*) ;; *) return 1 ;; esac
}

packages=() plain=() own=()
rm -f "$out/left-out"
for name in "${names[@]}"; do
    [ -f "$name/tool.json" ] || fail "there is no tool $name: tools/$name/tool.json is missing"
    if restore "$name"; then
        continue
    elif [ -n "$quick" ] && is_dear "$name"; then
        # What an older build left there is of other sources; without a cache nobody knows.
        [ -n "$cache" ] && rm -f "$out/$name.wasm"
        echo "$name" >>"$out/left-out"
        echo "build-tools: $name is left out, for the time that it takes; make tools builds it"
    elif [ -f "$name/build.sh" ]; then
        own+=("$name")
    else
        plain+=("$name")
        packages+=(--package "tool-$name")
    fi
done

if [ ${#plain[@]} != 0 ] || [ ${#own[@]} != 0 ]; then
    echo "build-tools: building ${plain[*]} ${own[*]}"
    toolchain/setup.sh
fi
if [ ${#plain[@]} != 0 ]; then
    cargo build --locked --release --target "$TARGET" "${packages[@]}"
fi
for name in "${plain[@]}"; do
    place "$CARGO_TARGET_DIR/$TARGET/release/tool_${name//-/_}.wasm" "$out/$name.wasm"
    keep "$name"
done
for name in "${own[@]}"; do
    (cd "$name" && ./build.sh "$out") || fail "tools/$name/build.sh failed"
    [ -f "$out/$name.wasm" ] || fail "tools/$name/build.sh made no $name.wasm"
    keep "$name"
done
