#!/usr/bin/env bash
# Trains on the GPUs of this host: one process drives all of them. Starts again after a crash.
#
#   tools/launch/gpu_host.sh --restarts=5 -- --config=configs/longclip_l.py:docci --workdir=runs/first
#
# What stands behind -- goes to `hnclip train`. See docs/pods.md.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: gpu_host.sh [options] -- FLAGS OF hnclip train
  --gpus=0,1,2     only these GPUs (sets CUDA_VISIBLE_DEVICES)
  --restarts=N     starts again so often after a crash (default 0); never after a mistake
  --wait=SECONDS   before it starts again (default 10)
  --hnclip=PATH    the program (default: hnclip)
  --dry-run        prints the command and runs nothing
TEXT
}

fail() {
  printf 'gpu_host.sh: %s\n' "$1" >&2
  exit 2
}

restarts=0 wait_s=10 hnclip=hnclip dry_run=''
while (($#)); do
  case "$1" in
    --gpus=*) export CUDA_VISIBLE_DEVICES=${1#*=} ;;
    --restarts=*) restarts=${1#*=} ;;
    --wait=*) wait_s=${1#*=} ;;
    --hnclip=*) hnclip=${1#*=} ;;
    --dry-run) dry_run=yes ;;
    -h | --help)
      usage
      exit 0
      ;;
    --)
      shift
      break
      ;;
    *) fail "unknown option $1; flags of hnclip train stand behind --" ;;
  esac
  shift
done
[[ $restarts =~ ^[0-9]+$ ]] || fail "--restarts is '$restarts', but must be a whole number"
[[ $wait_s =~ ^[0-9]+$ ]] || fail "--wait is '$wait_s', but must be whole seconds"
(($#)) || fail 'needs the flags of hnclip train behind --'

command=("$hnclip" train --config.parallel.platform=gpu "$@")
if [[ -n $dry_run ]]; then
  printf '%q ' "${command[@]}"
  printf '\n'
  exit 0
fi

child='' asked=''
pass_on() {
  asked=yes
  [[ -z $child ]] || kill -s "$1" "$child" 2>/dev/null || true
}
trap 'pass_on TERM' TERM
trap 'pass_on INT' INT

run() {
  # A background process of a script ignores Ctrl-C, unless it is told not to.
  "${command[@]}" &
  child=$!
  local code=0
  wait "$child" || code=$?
  while kill -0 "$child" 2>/dev/null; do # A signal ended the waiting, not the child.
    code=0
    wait "$child" || code=$?
  done
  return "$code"
}

for ((done = 0; ; done++)); do
  code=0
  run || code=$?
  # 0: complete. 2: a mistake, which would happen again. 130: Ctrl-C.
  if [[ $code -eq 0 || $code -eq 2 || $code -eq 130 || -n $asked || $done -ge $restarts ]]; then
    exit "$code"
  fi
  printf 'gpu_host.sh: ended with code %s; start %s of %s in %s s\n' \
    "$code" "$((done + 2))" "$((restarts + 1))" "$wait_s" >&2
  sleep "$wait_s"
done
