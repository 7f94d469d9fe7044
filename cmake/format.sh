#!/usr/bin/env bash
# format.sh format|check BUILD_DIR: the work of the targets of the same names (GemmillFormat.cmake), which say where
# the tools are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# need PROGRAM PACKAGE: stops where CMake found no such program.
need() {
  if [[ ! -x $1 ]]; then
    echo "$2 was not found when this build was configured: install it (apt-get install $2) and configure again" >&2
    exit 1
  fi
}

need "$CLANG_FORMAT" clang-format
mapfile -d '' sources < <(git ls-files -z --cached --others --exclude-standard '*.h' '*.cc' '*.cu')
if [[ $1 == format ]]; then
  exec "$CLANG_FORMAT" -i "${sources[@]}"
fi
"$CLANG_FORMAT" --dry-run -Werror "${sources[@]}"

need "$CLANG_TIDY" clang-tidy
need "$RUN_CLANG_TIDY" clang-tidy
# clang cannot read GCC's -mprefer-vector-width=512 beside every -march, nor the flags of nvcc: .cu files are left out.
"$RUN_CLANG_TIDY" -clang-tidy-binary "$CLANG_TIDY" -p "$2" -quiet -extra-arg=-Wno-unknown-warning-option \
  "^$PWD/(runtime|autograd|layers|data|examples|tests)/.*\.cc$"
