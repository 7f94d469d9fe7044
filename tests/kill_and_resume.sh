#!/usr/bin/env bash
# Kills train_mlp with SIGKILL at random moments, saving included, resumes it until it is done, and compares the final
# checkpoint, bit for bit, with that of a run that was never stopped.
#   tests/kill_and_resume.sh BUILD_DIR [KILLS] [SEED]
set -euo pipefail
program=$(realpath "$1")/examples/train_mlp
kills=${2:-100}
RANDOM=${3:-1}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
# A checkpoint after every step: about half of the time goes into saving.
train=("$program" --hidden 64 --dropout 0.1 --epochs 2 --threads 1 --save run.safetensors --save_every 1 --keep 1)

mkdir "$directory/whole" && cd "$directory/whole"
start=$(date +%s%N)
"${train[@]}" > output
whole_milliseconds=$((($(date +%s%N) - start) / 1000000))

killed=0
round=0
while ((killed < kills)); do
  round=$((round + 1))
  mkdir "$directory/$round" && cd "$directory/$round"
  # Several kills in one run, each within the time that a whole run takes.
  for _ in 1 2 3 4; do
    resume=()
    if [ -e run.safetensors ]; then resume=(--resume run.safetensors); fi
    milliseconds=$((RANDOM * 32768 + RANDOM))
    milliseconds=$((milliseconds % whole_milliseconds))
    status=0
    {
      timeout -s KILL "$((milliseconds / 1000)).$(printf %03d $((milliseconds % 1000)))" \
        "${train[@]}" "${resume[@]}" > output 2> errors || status=$?
    } 2> /dev/null # the shell's own report of the kill
    if ((status == 0)); then break; fi
    if ((status != 137)); then echo "exit code $status: $(cat errors)" >&2; exit 1; fi
    killed=$((killed + 1))
  done
  resume=()
  if [ -e run.safetensors ]; then resume=(--resume run.safetensors); fi
  "${train[@]}" "${resume[@]}" > output
  if ! cmp run.safetensors "$directory/whole/run.safetensors"; then
    echo "round $round: the resumed run's checkpoint differs" >&2
    exit 1
  fi
  if [ "$(find . -name '*.gemmill-*' | wc -l)" -gt 0 ]; then
    echo "round $round: temporary files are left: $(ls)" >&2
    exit 1
  fi
  cd / && rm -r "${directory:?}/$round"
done
echo "killed $killed times in $round runs; every resumed run ended with the same bits"
