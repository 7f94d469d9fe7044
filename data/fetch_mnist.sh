#!/usr/bin/env bash
# Downloads MNIST's four files: fetch_mnist.sh [DIRECTORY], by default ./mnist. Needs curl or wget.
# Files that are already there and right are kept, and a broken download goes on where it stopped, so run it again
# after a failure. A file gets its name only once its checksum holds. MNIST_MIRROR=URL is tried first.
set -euo pipefail

directory=${1:-mnist}
mirrors=(${MNIST_MIRROR:+"$MNIST_MIRROR"} https://ossci-datasets.s3.amazonaws.com/mnist
         https://storage.googleapis.com/cvdf-datasets/mnist)

# Of the uncompressed bytes, since mirrors may compress them anew.
sha256_train_images=ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
sha256_train_labels=65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
sha256_t10k_images=0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
sha256_t10k_labels=ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2

right() {  # right FILE SHA256
  [[ -f $1 ]] && [[ $({ gzip -dc "$1" 2>/dev/null || true; } | sha256sum) == "$2  -" ]]
}

download() {  # download URL FILE: continues FILE where it stops
  if command -v curl >/dev/null; then
    curl --fail --location --silent --show-error --retry 3 --connect-timeout 20 --continue-at - --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --tries=3 --timeout=20 --continue --output-document="$2" "$1"
  else
    echo "fetch_mnist.sh: neither curl nor wget is installed" >&2
    exit 1
  fi
}

fetch() {  # fetch NAME SHA256
  local file=$directory/$1 part=$directory/$1.part mirror
  if right "$file" "$2"; then
    echo "$file is there"
    return
  fi
  for mirror in "${mirrors[@]}"; do
    echo "$file from $mirror"
    # What an earlier run left may be another mirror's, or whole and wrong. A server's refusal or a wrong checksum: once
    # more from the start. A connection that failed: keep what came.
    for _ in 1 2; do
      local failure=0
      right "$part" "$2" || download "$mirror/$1" "$part" || failure=$?
      if right "$part" "$2"; then
        mv "$part" "$file"
        return
      fi
      case $failure in
        0) echo "$file: wrong checksum" >&2 && rm -f "$part" ;;
        8 | 22 | 33) rm -f "$part" ;;
        *) break ;;
      esac
    done
  done
  echo "fetch_mnist.sh: could not download $1" >&2
  exit 1
}

mkdir -p "$directory"
fetch train-images-idx3-ubyte.gz $sha256_train_images
fetch train-labels-idx1-ubyte.gz $sha256_train_labels
fetch t10k-images-idx3-ubyte.gz $sha256_t10k_images
fetch t10k-labels-idx1-ubyte.gz $sha256_t10k_labels
