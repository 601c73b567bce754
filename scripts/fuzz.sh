#!/usr/bin/env bash
# Fuzzes every parser of untrusted bytes, each for a time, with the product's own compiler: coverage is
# one of LLVM's passes, and the code has no `unsafe` for which a sanitizer would be needed.
#
#   scripts/fuzz.sh SECONDS [TARGET...]    SECONDS for each target
#
# What is found lies in fuzz/artifacts/TARGET; new inputs are kept beside the build, not in fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: fuzz.sh SECONDS [TARGET...]}
shift
build=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"

# With a target named, the flags count for it alone and not for build scripts and macros.
(cd fuzz && CARGO_TARGET_DIR="$build" RUSTFLAGS="--cfg fuzzing $coverage" \
    cargo build --locked --release --target "$host")

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for source in fuzz/fuzz_targets/*.rs; do
        targets+=("$(basename "$source" .rs)")
    done
fi

failed=()
for target in "${targets[@]}"; do
    corpus=fuzz/corpus/$target
    found=$build/corpus/$target
    mkdir -p "$corpus" "$found" "fuzz/artifacts/$target"
    if "$build/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$target/" "$found" "$corpus" \
        >"$build/$target.log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$target.log")
        echo "fuzz: $target: $runs inputs, nothing found"
    else
        failed+=("$target")
        echo "fuzz: $target FAILED:"
        tail -n 30 "$build/$target.log"
    fi
done
[ ${#failed[@]} -eq 0 ] || { echo "fuzz: found something in: ${failed[*]}" >&2 && exit 1; }
