#!/usr/bin/env bash
# Builds Gemmill and runs every test. With --all also those labelled "long", and the sanitizers' builds.
# Other arguments go to ctest: tests/run.sh -R Loader
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source cmake/setup.sh

all=false
if [[ ${1:-} == --all ]]; then
  all=true
  shift
fi
install_packages "${build_packages[@]}" "${test_packages[@]}"

# test_preset PRESET DIR BENCHMARKS CTEST_ARGUMENT...
test_preset() {
  local preset=$1 directory=$2 benchmarks=$3
  shift 3
  configure "$preset" "$directory" -DGEMMILL_BUILD_TESTS=ON "-DGEMMILL_BUILD_BENCHMARKS=$benchmarks"
  build_targets "$directory" all
  ctest --preset "$preset" --parallel "$(nproc)" "$@"
}

if $all; then
  test_preset asan build-asan OFF -LE long "$@"
  test_preset tsan build-tsan OFF -LE long "$@"
  test_preset cpu build ON "$@"
else
  test_preset cpu build ON -LE long "$@"
fi
