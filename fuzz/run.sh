#!/usr/bin/env bash
# Fuzzes every parser for some seconds each, after the inputs kept in fuzz/corpus.
# usage: [SEED=N] fuzz/run.sh [SECONDS [TARGET...]]; without a seed each run tries other inputs
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-10}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(basename -s .rs targets/*.rs)
# Coverage for libFuzzer with the ordinary compiler: our code is safe Rust, so no sanitizer is needed.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1"
build=${CARGO_TARGET_DIR:-../target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
# Naming the host keeps the flags away from build scripts and macros.
cargo build --quiet --release --target "$host" --target-dir "$build"
fuzz_one() {
  local target=$1 found="$build/corpus/$1" log="$build/$1.log"
  mkdir -p "$found" "corpus/$target"
  if ! "$build/$host/release/$target" -max_total_time="$seconds" -max_len=1024 -timeout=5 -seed="${SEED:-0}" \
    -artifact_prefix="$build/$target-" -print_final_stats=1 "$found" "corpus/$target" 2>"$log"; then
    tail -n 40 "$log"
    echo "fuzz: $target failed; the input is kept as $build/$target-*" >&2
    return 1
  fi
  echo "fuzz: $target for $seconds s," "$(grep -E 'number_of_executed_units|new_units_added' "$log" | tr -s '\n ' ' ')"
}
# Two at a time: each has one thread.
export -f fuzz_one
export build host seconds SEED
printf '%s\n' "${targets[@]}" | xargs -P 2 -I {} bash -c 'fuzz_one {}'
