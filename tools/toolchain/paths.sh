# Where the toolchain lives; sourced by the scripts beside it.
# shellcheck shell=sh disable=SC2034
TOOLCHAIN=${RINGWALL_CACHE:-${HOME:?}/.cache/ringwall}/toolchain

# Finds zig without starting Python, which would double the time of a small compilation.
zig() {
    for zig in "$TOOLCHAIN"/venv/lib/python3.*/site-packages/ziglang/zig; do
        [ -x "$zig" ] && ZIG_GLOBAL_CACHE_DIR="$TOOLCHAIN/zig" exec "$zig" "$@"
    done
    echo "no C compiler for WASI; run tools/toolchain/setup.sh" >&2
    exit 1
}
