#!/usr/bin/env bash
# Trains a classifier of handwritten digits on this machine: installs what is missing (apt), builds into build/, trains
# on the bundled data. Arguments are passed on to the program: quickstart.sh --epochs 5 --hidden 256
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
source cmake/setup.sh

install_packages "${build_packages[@]}"
options=()
if [[ ! -f build/CMakeCache.txt ]]; then
  # GoogleTest need not be there. tests/run.sh turns them on in the same directory, and goes on from what is built.
  options=(-DGEMMILL_BUILD_TESTS=OFF -DGEMMILL_BUILD_BENCHMARKS=OFF)
fi
configure cpu build "${options[@]}"
build_targets build train_mlp

echo "Training on data/samples/digits: 1,797 real handwritten digits of 8x8 pixels"
(cd "$caller" && "$root/build/examples/train_mlp" --data "$root/data/samples/digits" "$@")
cat <<END

What to try next, in $root:
  build/examples/train_mlp --help                          all flags
  build/examples/train_mlp --hidden 256,256,256 --activation silu --epochs 20
  bash data/fetch_mnist.sh build/mnist && build/examples/train_mlp --data build/mnist --epochs 5
                                                           the real MNIST, to 98%; needs a network
  bash tests/run.sh                                        every test
README.md shows how to write a program of your own.
END
