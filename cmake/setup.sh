# Sourced by examples/quickstart.sh and tests/run.sh, from the project's root: what they share of set-up and building.
# shellcheck shell=bash disable=SC2034

# Debian 12's names; Ubuntu 24.04 has the same. oneDNN's CMake package asks for OpenCL whatever one links.
build_packages=(cmake g++ make libabsl-dev libdnnl-dev ocl-icd-opencl-dev zlib1g-dev nlohmann-json3-dev)
test_packages=(libgtest-dev libgmock-dev libbenchmark-dev)

die() {
  echo "$*" >&2
  exit 1
}

# install_packages NAME...: installs those that are missing. Without the right to, says what to run and exits.
install_packages() {
  local package missing=() prefix=()
  command -v apt-get dpkg-query >/dev/null ||
    die "There is no apt-get here. Install what Debian calls $*, then configure with: cmake --preset cpu"
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Abbrev}\n' "$package" 2>/dev/null | grep -q '^.i' || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then return; fi

  if ((EUID != 0)); then
    prefix=(sudo)
    sudo -n true 2>/dev/null ||
      die "Some packages are missing, and installing them needs root. Run this, then start again:
  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
  fi
  local apt=("${prefix[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  local install=("${apt[@]}" install -y --no-install-recommends "${missing[@]}")
  local log
  log=$(mktemp)
  echo "Installing ${missing[*]}"
  # The first try fails where the package lists are absent or too old.
  if ! "${install[@]}" >"$log" 2>&1 && ! { "${apt[@]}" update && "${install[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "Installing failed (above, its last lines). The command was: ${install[*]}"
  fi
  rm -f "$log"
}

# show_progress: reads the output of make or ninja; shows one line that is rewritten on a terminal, a line for each
# tenth of the way, and one every 5 seconds, elsewhere.
show_progress() {
  local line percent last=-1 shown=$SECONDS step="" status
  while true; do
    status=0
    IFS= read -r -t 5 line || status=$?
    if ((status > 128)); then  # nothing new for 5 seconds
      if [[ ! -t 1 && -n $step ]]; then
        echo "  $step ($((SECONDS - shown)) s)"
      fi
      continue
    elif ((status != 0)); then
      break
    fi
    if [[ $line =~ ^\[\ *([0-9]+)%\] ]]; then
      percent=${BASH_REMATCH[1]}
    elif [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    else
      continue
    fi
    step=${line:0:79}
    if [[ -t 1 ]]; then
      printf '\r\033[K%s' "$step"
    elif ((percent / 10 > last || SECONDS - shown >= 5)); then
      last=$((percent / 10))
      shown=$SECONDS
      echo "  $step"
    fi
  done
  if [[ -t 1 ]]; then printf '\r\033[K'; fi
}

# run_logged LOG COMMAND...: runs the command with its output in LOG; where it fails, shows the errors and exits.
run_logged() {
  local log=$1
  shift
  if ! "$@" 2>&1 | tee "$log" | show_progress; then
    echo "Failed: $*" >&2
    grep -n -m 5 -A 6 -E '(error|Error)[: ]' "$log" >&2 || tail -n 20 "$log" >&2
    die "The whole output is in $PWD/$log"
  fi
}

# configure PRESET DIR OPTION...: cmake --preset; the directory is the preset's.
configure() {
  local preset=$1 directory=$2
  shift 2
  mkdir -p "$directory"
  echo "Configuring $directory"
  run_logged "$directory/configure.log" cmake --preset "$preset" "$@"
}

# build_targets DIR TARGET...
build_targets() {
  local directory=$1
  shift
  echo "Building $directory: $*"
  run_logged "$directory/build.log" cmake --build "$directory" --parallel "$(nproc)" --target "$@"
}
